"""LIKE patterns, and ranges of texts with a common prefix."""

from __future__ import annotations

import re
from typing import Any

from lakeformat.errors import InvalidInput

ANY_TEXT, ANY_CHARACTER = object(), object()


def like_parts(pattern: str, escape: str = "\\") -> list[Any]:
    """A LIKE pattern as literal texts, `ANY_TEXT` (for `%`) and `ANY_CHARACTER` (for `_`), in order."""
    if not isinstance(pattern, str):
        raise InvalidInput(f"LIKE needs a pattern as text, not {pattern!r}")
    if not isinstance(escape, str) or len(escape) != 1:
        raise InvalidInput(f"LIKE ... ESCAPE needs one character, not {escape!r}")
    parts: list[Any] = []

    def text(part: str) -> None:
        if parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)

    characters = iter(pattern)
    for character in characters:
        if character == escape:
            taken = next(characters, None)
            if taken is None or taken not in ("%", "_", escape):
                raise InvalidInput(f"LIKE pattern {pattern!r}: {escape!r} goes before %, _ or itself only")
            text(taken)
        elif character == "%":
            parts.append(ANY_TEXT)
        elif character == "_":
            parts.append(ANY_CHARACTER)
        else:
            text(character)
    return parts


def like_regex(pattern: str, escape: str = "\\") -> str:
    """The pattern as a regular expression for Python and RE2, without anchors; a dot must match newlines."""
    wild = {ANY_TEXT: ".*", ANY_CHARACTER: "."}
    return "".join(re.escape(p) if isinstance(p, str) else wild[p] for p in like_parts(pattern, escape))


def successor(text: str) -> str | None:
    """The least text above every text that begins with `text`; None if there is none."""
    for i in range(len(text) - 1, -1, -1):
        code = ord(text[i])
        if code < 0x10FFFF:
            return text[:i] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None
