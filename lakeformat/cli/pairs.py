"""Options of commands that are pairs of a key and a value."""

from __future__ import annotations

from collections.abc import Iterable

from lakeformat import InvalidInput


def pairs(option: str, texts: Iterable[str], form: str, *, takes_empty: bool = False) -> dict[str, str]:
    """Texts `key=value` as a dict. Raises `InvalidInput`, which shows the `form` and no value, for one without a key
    or, unless the option `takes_empty`, without a value."""
    by_key: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and (value or takes_empty)):
            raise InvalidInput(f"{option} {key!r}: write {form}")
        by_key[key.strip()] = value
    return by_key
