"""Words of messages that depend on a number."""

from __future__ import annotations


def count_text(count: int, noun: str) -> str:
    """A number of things: "1 row", "27,004 rows", "2 entries"."""
    plural = noun if count == 1 else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"
