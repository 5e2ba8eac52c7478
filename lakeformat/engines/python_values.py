"""Python values -> a column that holds each of them as it was.

Facts: pyarrow takes the type of a column from the first values, or as it is given, and fits the others into it: it cuts
off fractions, times of day, time zones and nanoseconds, and leaves out keys of dicts.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.errors import InvalidInput

_CONSECUTIVE = 2**53  # Up to here a float stands for one integer.


def column(values: Iterable[Any], name: str, type: pa.DataType | None = None) -> pa.Array:
    """The values as a column of `type`, or of the type that Arrow derives from them.

    Raises `InvalidInput` for a value that the type does not hold without loss, but for the digits that a 32-bit float
    rounds away.
    """
    values = values if isinstance(values, list) else list(values)
    require_no_mix(values, name)
    try:
        array = pa.array(values, type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidInput(f"column {name!r}: {error}") from error
    require_kept(values, array, name, is_given=type is not None)
    return array


def require_no_mix(values: Iterable[Any], name: str) -> None:
    """Raise `InvalidInput` for numpy's times beside its other scalars, at which pyarrow (26) ends the process."""
    kinds = set(map(type, values))
    if np.datetime64 in kinds:
        if others := [kind for kind in kinds if issubclass(kind, np.generic) and kind is not np.datetime64]:
            raise InvalidInput(f"column {name!r}: numpy.datetime64 beside numpy.{others[0].__name__}; use one type")
    elif list in kinds or tuple in kinds:
        require_no_mix([part for value in values if isinstance(value, list | tuple) for part in value], name)
    if dict in kinds:
        rows = [value for value in values if isinstance(value, dict)]
        for key in {key for row in rows for key in row}:
            require_no_mix([row.get(key) for row in rows], name)


def require_kept(
    values: Iterable[Any], array: pa.Array | pa.ChunkedArray, name: str, *, is_given: bool = False
) -> None:
    """Raise `InvalidInput` if the array that pyarrow made of the values lacks something of one. `is_given`: its type
    was not derived from the values; derived types hold all numbers and keys."""
    if not _may_lose(array.type, is_given):
        return
    values = values if isinstance(values, list) else list(values)
    try:
        stored = array.to_pylist()
    except (ValueError, OverflowError) as error:  # Integers for timestamps.
        raise InvalidInput(f"column {name!r}: {error}") from error
    with suppress(ValueError, TypeError):  # Of numpy arrays, and of times that Python does not compare.
        if values == stored and not any(isinstance(value, float | list | Mapping) for value in values):
            return
    for value, kept in zip(values, stored, strict=True):
        _require_kept(value, kept, name, array.type)


# --- private ----------------------------------------------------------------------------------------------------------


def _may_lose(type: pa.DataType, is_given: bool) -> bool:
    t = pa.types
    if t.is_temporal(type):
        return True
    if is_given and (t.is_integer(type) or t.is_float16(type) or t.is_float32(type) or t.is_struct(type)):
        return True
    return any(_may_lose(type.field(index).type, is_given) for index in range(type.num_fields))


def _require_kept(value: Any, kept: Any, name: str, type: pa.DataType) -> None:
    if isinstance(value, Mapping):
        if isinstance(kept, list):
            kept = dict(kept)
        elif strangers := [key for key in value if key not in kept]:
            raise InvalidInput(
                f"column {name!r}: a row has {strangers[0]!r}, and {type} has not; leave it out or add it to the table "
                "(alter().add_column)"
            )
        for key, part in value.items():
            _require_kept(part, kept[key], f"{name}.{key}", type)
    elif isinstance(kept, dict):
        _require_kept(dict(value), kept, name, type)
    elif isinstance(kept, list | tuple):  # A tuple is an entry of a map.
        for part, kept_part in zip(value, kept, strict=True):
            _require_kept(part, kept_part, name, type)
    elif kept is not None and not _is_kept(value, kept):
        raise InvalidInput(f"column {name!r}: {value!r} does not fit {type} without loss{_way_out(value, kept)}")


def _is_kept(value: Any, kept: Any) -> bool:
    if isinstance(kept, datetime.datetime) and isinstance(value, datetime.datetime):
        if (value.tzinfo is None) != (kept.tzinfo is None):
            return False
        if value.tzinfo is not None:  # In UTC: a repeated hour of another zone equals nothing.
            return value.astimezone(datetime.UTC) == kept.astimezone(datetime.UTC)
        return bool(value == kept)
    if isinstance(value, datetime.datetime) and isinstance(kept, datetime.date):
        return value == datetime.datetime.combine(kept, datetime.time())
    if isinstance(kept, int) and isinstance(value, float | np.floating):
        return bool(value == kept) and abs(kept) <= _CONSECUTIVE
    if isinstance(kept, float):
        return bool(np.isfinite(value) == np.isfinite(kept))
    if isinstance(value, np.datetime64 | np.timedelta64):  # Arrow compares the units of these.
        return isinstance(kept, datetime.date | datetime.timedelta)
    return (isinstance(value, str | bytes) and isinstance(kept, str | bytes)) or bool(value == kept)


def _way_out(value: Any, kept: Any) -> str:
    if isinstance(value, datetime.datetime) and isinstance(kept, datetime.datetime):
        if value.tzinfo is None and kept.tzinfo is not None:
            return "; it has no time zone: set its time zone first"
        if value.tzinfo is not None and kept.tzinfo is None:
            return "; it is an instant, the column has no time zone: convert it to the wall clock you mean first"
    return "; cast it first"
