"""Text of the data in Markdown and in sentences, for Dagster's pages."""

import re
from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakeformat.model.snapshot import utc

# All ASCII punctuation may be escaped (CommonMark, "Backslash escapes"); these mean something within a cell.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|&~]")
# An address becomes a link, escaped or not, except as code (GitHub Flavored Markdown, "Autolinks"), which ends at a
# backtick and in a table at a pipe.
_ADDRESS = re.compile(r"[^`|\\]*(://|www\.|@)[^`|\\]*", re.IGNORECASE)
_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
SHOWN_CHARACTERS = 200  # Of one value.


def escaped(text: str) -> str:
    """`text` in one line of Markdown that shows it as it is: no link, image, HTML or emphasis."""
    line = _BREAKS.sub(" ", text)
    return f"`{line}`" if _ADDRESS.fullmatch(line) else _SPECIAL.sub(r"\\\g<0>", line)


def cell(value: Any) -> str:
    """A value of the data in a Markdown table: at most `SHOWN_CHARACTERS` of its text, "null" for None."""
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else value.hex() if isinstance(value, bytes) else str(value)
    return escaped(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> dg.MarkdownMetadataValue:
    """A Markdown table; `header` is plain text, the cells of `rows` are Markdown."""
    lines = ([escaped(name) for name in header], ["---"] * len(header), *rows)
    return dg.MarkdownMetadataValue("\n".join(f"| {' | '.join(line)} |" for line in lines))


def size_text(size_bytes: int) -> str:
    """A size for people: 512 B, 31.3 KB, 2 GB (of 1,000 bytes each)."""
    size, unit = float(size_bytes), 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def id_text(snapshot_id: int) -> str:
    """A snapshot's id as metadata: text, as Iceberg's have 19 digits, and the scripts of pages round numbers above
    2**53."""
    return str(snapshot_id)


def time_text(epoch_ms: int | None) -> str:
    """A time in UTC, to the second; nothing for None."""
    return "" if epoch_ms is None else utc(epoch_ms)[:19].replace("T", " ")
