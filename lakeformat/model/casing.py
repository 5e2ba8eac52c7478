"""Upper and lower case of text as Spark has them: Unicode 17, full case mapping (`ß` -> `SS`), final sigma, no locale.

Spark 4 maps case by ICU. Python's own mapping agrees, apart from letters that are newer than Python's Unicode.
"""

from __future__ import annotations

# (first lower-case letter, first upper-case letter, how many): what Unicode 16 and 17 added.
_NEWER = (
    (0x019B, 0xA7DC, 1),
    (0x0264, 0xA7CB, 1),
    (0x1C8A, 0x1C89, 1),
    (0xA7CD, 0xA7CC, 1),
    (0xA7CF, 0xA7CE, 1),
    (0xA7D3, 0xA7D2, 1),
    (0xA7D5, 0xA7D4, 1),
    (0xA7DB, 0xA7DA, 1),
    (0x10D70, 0x10D50, 22),
    (0x16EBB, 0x16EA0, 25),
)
_TO_UPPER = {low + i: up + i for low, up, count in _NEWER for i in range(count)}
_TO_LOWER = {up: low for low, up in _TO_UPPER.items()}


def upper(text: str) -> str:
    return text.upper().translate(_TO_UPPER)


def lower(text: str) -> str:
    return text.lower().translate(_TO_LOWER)
