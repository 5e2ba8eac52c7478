"""The time that a partition's values name (`partition.timestamp-pattern` and `-formatter`), read as Java reads it."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lakeformat.errors import InvalidInput

_DAY_MS = 24 * 3600 * 1000
_LETTERS = {"y": "year", "u": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}
_DATE = r"(?P<year>[0-9]{1,10})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_TIME = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,9}))?"
_DEFAULT = re.compile(f"{_DATE}(?: {_TIME})?")


def moment(properties: Mapping[str, str], values: Mapping[str, str | None]) -> int | None:
    """The time that a partition with these values (column -> text) names, in milliseconds since 1970 of the local
    clock; None if it names none (PartitionTimeExtractor).

    `partition.timestamp-pattern` (`$dt $hour`) combines the columns, by default the first alone;
    `partition.timestamp-formatter` (`yyyyMMdd`) parses the text, by default dates with or without a time of day. A text
    names a time only if all of it matches. Raises `InvalidInput` for a formatter with a letter that is not supported.
    """
    pattern = properties.get("partition.timestamp-pattern")
    if None in (values.values() if pattern else [*values.values()][:1]):
        return None
    text = pattern or str(next(iter(values.values())))
    if pattern:
        for name in sorted(values, key=len, reverse=True):
            text = text.replace(f"${name}", str(values[name]))
    formatter = properties.get("partition.timestamp-formatter")
    matched = (expression(formatter) if formatter else _DEFAULT).fullmatch(text)
    if matched is None:
        return None
    parts = {name: digits for name, digits in matched.groupdict().items() if digits is not None}
    if not {"year", "month", "day"} <= parts.keys():
        return None
    date = tuple(int(parts[name]) for name in ("year", "month", "day"))
    fraction = int(parts["fraction"][:3].ljust(3, "0")) if "fraction" in parts else None
    time = [*(int(parts[name]) if name in parts else None for name in ("hour", "minute", "second")), fraction]
    return _millis(date, time, is_strict=formatter is not None)


@lru_cache(maxsize=64)
def expression(formatter: str) -> re.Pattern[str]:
    """A DateTimeFormatter pattern as a regular expression: four letters of a year are four digits, two letters of
    anything else two digits, and a single letter any number of digits."""
    pieces: list[str] = []
    seen: set[str] = set()
    for piece in re.finditer(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|.", formatter, re.DOTALL):
        letters = piece["letters"]
        if piece["quoted"] is not None:
            pieces.append(re.escape(piece["quoted"].replace("''", "'") or "'"))
        elif letters is None:
            pieces.append({"[": "(?:", "]": ")?"}.get(piece.group(), re.escape(piece.group())))
        else:
            name = "fraction" if letters[0] == "S" else _LETTERS.get(letters[0], "")
            digits = _digits(name, len(letters))
            if not digits or name in seen:
                raise InvalidInput(
                    f"partition.timestamp-formatter {formatter!r}: {letters!r} is not known here; use each once of "
                    "yyyy, MM, dd, HH, mm, ss, SSS"
                )
            seen.add(name)
            pieces.append(f"(?P<{name}>{digits})")
    try:
        return re.compile("".join(pieces))
    except re.error as error:
        raise InvalidInput(f"partition.timestamp-formatter {formatter!r}: its brackets do not match") from error


def _digits(name: str, count: int) -> str:
    if name == "fraction":
        return f"[0-9]{{{count}}}"
    if name == "year" and count == 4:
        return r"[0-9]{4}|\+[0-9]{5,10}"
    return {1: "[0-9]{1,10}", 2: "[0-9]{2}"}.get(count, "") if name and (name, count) != ("year", 2) else ""


def _millis(date: tuple[int, ...], time: Sequence[int | None], is_strict: bool) -> int | None:
    """Milliseconds since 1970. Strict: None for what is no date or time, but the days 29 to 31 of each month are its
    last if it is shorter, and 24:00 is the next day (ResolverStyle.SMART); otherwise all parts count on (LENIENT)."""
    year, month, day = date
    if is_strict:
        limits = (24 if time == [24, *(part and 0 for part in time[1:])] else 23, 59, 59, 999)
        is_time = all(part is None or part <= limit for part, limit in zip(time, limits, strict=True))
        if not (is_time and year and 1 <= month <= 12 and 1 <= day <= 31):
            return None
        day = min(day, calendar.monthrange(year, month)[1])
    if None in time and any(part is not None for part in time[time.index(None) :]):
        time = []  # Minutes without hours are no time of day.
    hour, minute, second, millis = (part or 0 for part in (*time, *[0] * (4 - len(time))))
    first: Any = np.datetime64((year - 1970) * 12 + month - 1, "M").astype("datetime64[D]")
    days = int(first.astype(np.int64)) + day - 1
    return days * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + millis
