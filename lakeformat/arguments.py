"""Arguments of verbs other than rows: numbers, texts, times, ages and partition specs. Invalid ones raise
`InvalidInput`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from lakeformat.errors import InvalidInput

Moment = datetime.datetime | datetime.date | int | str
Age = datetime.timedelta | Moment
_MOST = 100_000  # Numbers in a range.


def epoch_ms(moment: Moment) -> int:
    """Milliseconds since 1970; a time without a zone is UTC. Raises `InvalidInput`."""
    if isinstance(moment, bool):
        raise InvalidInput(f"{moment!r} is not a time")
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        try:
            moment = datetime.datetime.fromisoformat(moment)
        except ValueError:
            raise InvalidInput(f"{moment!r} is not a time; write e.g. '2023-05-01T12:00:00'") from None
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        moment = datetime.datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime.datetime):
        raise InvalidInput(f"{moment!r} is not a time")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)


def before(age: Age, now_ms: int) -> int:
    return now_ms - age // datetime.timedelta(milliseconds=1) if isinstance(age, datetime.timedelta) else epoch_ms(age)


def specs(partitions: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    if not isinstance(partitions, Iterable) or isinstance(partitions, Mapping | str | bytes):
        raise InvalidInput(f"partitions={partitions!r}: give a list of specs, e.g. [{{'dt': '2023-05-01'}}]")
    for spec in partitions:
        if not isinstance(spec, Mapping) or any(isinstance(value, list | dict | set) for value in spec.values()):
            raise InvalidInput(f"{spec!r} is not a partition spec; write e.g. {{'dt': '2023-05-01'}}")
        yield dict(spec)


def milliseconds(name: str, age: datetime.timedelta | None) -> int | None:
    if age is not None and (not isinstance(age, datetime.timedelta) or age < datetime.timedelta(0)):
        raise InvalidInput(f"{name}={age!r}: give a datetime.timedelta that is not negative")
    return None if age is None else round(age.total_seconds() * 1000)


def whole(name: str, value: Any, least: int) -> Any:
    """A 64-bit integer that is at least `least`, or None. Raises `InvalidInput`."""
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value < 2**63:
        raise InvalidInput(f"{name}={value!r}: it must be a whole number{f', at least {least}' if least >= 0 else ''}")
    return int(value)


def text(name: str, value: Any, may_be_empty: bool = False) -> None:
    """Raise `InvalidInput` for a value that is no text, or that UTF-8 cannot encode."""
    if not isinstance(value, str) or not (value or may_be_empty) or "\0" in value:
        raise InvalidInput(f"{name} is {value!r}; it must be text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} is {value!r}, which is not text that a file can hold") from error


def columns(value: Any) -> tuple[str, ...]:
    """Column names, as a list or tuple. Raises `InvalidInput`."""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InvalidInput(f"columns={value!r}: give a list of names, e.g. ['id', 'address.city']")
    return tuple(value)


def ranges(name: str, text: str) -> list[int]:
    """Whole numbers and inclusive ranges of them, as `0-3,7`. Raises `InvalidInput`."""
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = (number.strip() for number in part.partition("-"))
        if not low.isdecimal() or not (high.isdecimal() if dash else True) or (dash and int(low) > int(high)):
            raise InvalidInput(f"{name} {text!r}: {part.strip()!r} is neither a number nor a range; write e.g. '0-3,7'")
        if dash and int(high) - int(low) > _MOST:
            raise InvalidInput(f"{name} {text!r}: {part.strip()!r} has more than {_MOST} numbers")
        numbers += range(int(low), int(high if dash else low) + 1)
    return numbers


def is_spark(value: Any) -> bool:
    """Whether a value is an object of PySpark, classic or Connect."""
    return type(value).__module__.startswith("pyspark.")


def require_spark(session: Any) -> None:
    """Raise `InvalidInput` unless the value is a Spark session."""
    if not is_spark(session):
        raise InvalidInput(f"to_spark({session!r}): give the SparkSession that reads the rows")
