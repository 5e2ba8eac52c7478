"""Partition and sort transforms over Arrow columns (Iceberg spec, Partition Transforms and Appendix B)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import decimals, murmur
from lakeformat.codec.arrow import from_arrow, to_arrow
from lakeformat.codec.iceberg import single_value
from lakeformat.errors import InvalidInput
from lakeformat.model.partition import Transform, TransformKind
from lakeformat.model.predicate import successor
from lakeformat.model.schema import Kind, Scalar, Type, result_type, scalar

_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
_MICROS_OF = {TransformKind.HOUR: 3_600_000_000, TransformKind.DAY: 86_400_000_000}
_HOURS_UNSURE = 2**32 - 2**63 // 3_600_000_000 - 2  # Hours of microseconds beyond this may have wrapped around in Java.
_WIDTH_UNSURE = 2**30  # An int truncated to a greater width may wrap around more than once in Java.


def apply(transform: Transform, values: pa.Array, source: Type) -> pa.Array:
    """The transform's values for `values`, a column of type `source`, in the Arrow type of `result_type`.

    Null gives null. Years, months and hours count from 1970, days are dates. Truncated decimals may have a digit more
    than their type.
    """
    target = to_arrow(result_type(transform, source))
    match transform.kind:
        case TransformKind.IDENTITY:
            return values
        case TransformKind.VOID:
            return pa.nulls(len(values), target)
        case TransformKind.BUCKET:
            hashed = murmur.murmur3_32(_hashed_bytes(values, source)).astype(np.int64) & 0x7FFFFFFF
            return _numbers(hashed % (transform.parameter or 1), values, target)
        case TransformKind.TRUNCATE:
            return _truncated(values, source, transform.parameter or 1)
        case kind:
            whole = _whole(values).fill_null(0).to_numpy(zero_copy_only=False)
            return _numbers(_gone_round(_moments(whole, kind, pa.types.is_date32(values.type))), values, target)


def call(kind: TransformKind, *columns: pa.Array) -> pa.Array:
    """The values of Iceberg's function `bucket(n, x)`, `truncate(n, x)`, `years(x)` and so on, as SQL calls it:
    `columns` are the arguments, a constant `n` before `x`. Raises `InvalidInput` for a type that the transform does not
    take, and for another number of arguments."""
    wanted = 2 if kind in (TransformKind.BUCKET, TransformKind.TRUNCATE) else 1
    if len(columns) != wanted:
        raise InvalidInput(f"{kind} takes {wanted} argument{'s' * (wanted > 1)}, not {len(columns)}")
    *counts, values = columns
    count = None
    if counts:
        distinct_counts = [*dict.fromkeys(counts[0].to_pylist())] or [1]
        if len(distinct_counts) > 1 or not isinstance(distinct_counts[0], int):
            raise InvalidInput(f"{kind}(n, x): n is {', '.join(map(str, distinct_counts[:3]))}; give one whole number")
        count = distinct_counts[0]
    transform = Transform(kind, count)
    if pa.types.is_null(values.type):
        result = values.type if kind is TransformKind.TRUNCATE else to_arrow(result_type(transform, scalar(Kind.DATE)))
        return pa.nulls(len(values), result)
    if pa.types.is_timestamp(values.type) and values.type.tz not in (None, "UTC"):
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return apply(transform, values, from_arrow(values.type))


def between(
    transform: Transform, low: pa.Array, high: pa.Array, source: Type, exact: bool = False
) -> tuple[pa.Array, pa.Array]:
    """The bounds of a column's values (inclusive) whose transformed values are between `low` and `high`; null if
    unknown, as for buckets. Unless `exact`, lower bounds allow for writers that rounded toward 1970."""
    target, width = to_arrow(source), transform.parameter or 1
    nothing = pa.nulls(len(low), target)
    match transform.kind:
        case TransformKind.IDENTITY:
            return low, high
        case TransformKind.YEAR | TransformKind.MONTH | TransformKind.DAY | TransformKind.HOUR as kind:
            if not pa.types.is_date32(target) and not (pa.types.is_timestamp(target) and target.unit in _REACH):
                return nothing, nothing
            first, last = _count(low), _count(high)
            # Some writers rounded toward 1970 rather than down: their values of 0 or less may begin one earlier.
            first, last = first - ((first <= 0) & (not exact)), last + 1
            begin, end = _instants(first, kind, target, 0), _instants(last, kind, target, 1)
            # Hours beyond an int wrap around: such early hours may be late ones, and the reverse.
            from_late = (first < -_HOURS_UNSURE) & (kind is TransformKind.HOUR)
            from_early = (last > _HOURS_UNSURE) & (kind is TransformKind.HOUR)
            return (
                _whole_numbers(begin, np.asarray(low.is_null()) | from_early, target),
                _whole_numbers(end, np.asarray(high.is_null()) | from_late, target),
            )
        case TransformKind.TRUNCATE if pa.types.is_integer(target):
            if width > _WIDTH_UNSURE:
                return nothing, nothing
            return _cut_between(low, high, width, target)
        case TransformKind.TRUNCATE if pa.types.is_string(target):
            return low, pc.take(*_above(high, width))
        case _:
            return nothing, nothing


_UNITS = {TransformKind.YEAR: "Y", TransformKind.MONTH: "M", TransformKind.DAY: "D", TransformKind.HOUR: "h"}
_REACH: dict[str, Any] = {"D": np.iinfo(np.int32), "us": np.iinfo(np.int64), "ns": np.iinfo(np.int64)}


def _count(counts: pa.Array) -> np.ndarray:
    whole = counts.cast(pa.int32()) if pa.types.is_date32(counts.type) else counts
    return np.asarray(pc.fill_null(whole, 0)).astype(np.int64)


def _instants(counts: np.ndarray, kind: TransformKind, target: pa.DataType, less: int) -> np.ndarray:
    """The beginning of each year, month, day or hour, minus `less`, in the unit of `target`; clipped to the range of
    `target`."""
    unit = "D" if pa.types.is_date32(target) else target.unit
    reach = _REACH[unit]
    first, last = _moments(np.array([reach.min, reach.max]) // (1000 if unit == "ns" else 1), kind, unit == "D")
    inside = (
        np.clip(counts, first + 1, last).astype(f"M8[{_UNITS[kind]}]").astype(f"M8[{unit}]").astype(np.int64) - less
    )
    return np.where(counts <= first, reach.min, np.where(counts > last, reach.max, inside))


def _cut_between(low: pa.Array, high: pa.Array, width: int, target: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """The bounds of integers that truncate to multiples of `width` between `low` and `high`.

    The lowest values of an int, and of a bigint, truncate to a number above all others, because Java's arithmetic wraps
    around. A bigint column may have been an int, whose files stay unchanged.
    """
    first, upto = (np.asarray(pc.fill_null(bound, 0)).astype(np.int64) for bound in (low, high))
    most = np.iinfo(target.to_pandas_dtype()).max
    least, last = first, np.where(upto > most - width, most, upto + width - 1)
    for bits in (32, 64)[: target.bit_width // 32]:
        floor = -(2 ** (bits - 1))
        beyond = floor % width
        if not beyond:
            continue
        lowest = floor - beyond + 2**bits
        least = np.where((first <= lowest) & (lowest <= upto), np.minimum(least, floor), least)
        last = np.where((first == lowest) & (upto == lowest), floor - beyond + width - 1, last)
    return _whole_numbers(least, low.is_null(), target), _whole_numbers(last, high.is_null(), target)


def _whole_numbers(numbers: np.ndarray, missing: Any, target: pa.DataType) -> pa.Array:
    made = pa.array(numbers, mask=np.asarray(missing))
    return (made.cast(pa.int32()) if pa.types.is_date32(target) else made).cast(target)


def _above(texts: pa.Array, width: int) -> tuple[pa.Array, pa.Array]:
    """Upper bounds of the texts that truncate to `texts`: (distinct bounds, the index of each text's bound)."""
    encoded = texts.dictionary_encode()
    uppers = [text if len(text) < width else successor(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(uppers, texts.type), encoded.indices


def _hashed_bytes(values: pa.Array, source: Type) -> pa.Array:
    if isinstance(source, Scalar) and source.kind in (Kind.INT, Kind.DATE, Kind.TIME_MICROS, *_INSTANTS):
        return single_value.encode(_whole(values), scalar(Kind.BIGINT))  # An int is hashed as 8 bytes too.
    return single_value.encode(values, source)


def _whole(values: pa.Array) -> pa.Array:
    """Values as int64: dates in days, timestamps in microseconds."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(values.type):
        numbers = values.cast(pa.int64())
        if values.type.unit != "ns":
            return (
                numbers
                if values.type.unit == "us"
                else values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
            )
        return pa.array(numbers.fill_null(0).to_numpy() // 1000, mask=np.asarray(values.is_null()))
    return values.cast(pa.int64())


def _moments(numbers: np.ndarray, kind: TransformKind, are_days: bool) -> np.ndarray:
    """Days or microseconds as years, months, days or hours since 1970."""
    if kind is TransformKind.HOUR:
        return numbers // _MICROS_OF[kind]
    days = numbers if are_days else numbers // _MICROS_OF[TransformKind.DAY]
    if kind is TransformKind.DAY:
        return days
    return days.astype("M8[D]").astype("M8[Y]" if kind is TransformKind.YEAR else "M8[M]").astype(np.int64)


def _truncated(values: pa.Array, source: Type, width: int) -> pa.Array:
    match source:
        case Scalar(Kind.STRING):
            return pc.utf8_slice_codeunits(values, 0, width)
        case Scalar(Kind.BYTES):
            return pc.binary_slice(values, 0, width)
        case Scalar(Kind.DECIMAL):
            filled = values.fill_null(0)
            halves = np.ascontiguousarray(decimals.little_endian(filled)).view("<u8").reshape(-1, 2)
            low, high = halves[:, 0], halves[:, 1].view(np.int64)
            # Below 2^31, so that no product exceeds 63 bits.
            rest = (high % width * (2**64 % width) + (low % np.uint64(width)).astype(np.int64)) % width
            cut = np.empty_like(halves)
            cut[:, 0] = low - rest.astype(np.uint64)
            cut[:, 1] = (high - (cut[:, 0] > low)).view(np.uint64)
            mask = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
            return decimals.from_little_endian(cut.view(np.uint8).reshape(-1, 16), values.type, mask)
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if source != scalar(Kind.INT):
        with np.errstate(over="ignore"):
            return _numbers(numbers - numbers % width, values, values.type)
    # Java's arithmetic wraps around at 32 bits.
    rest = np.fmod(_gone_round(np.fmod(numbers, width) + width), width)
    return _numbers(_gone_round(numbers - rest), values, values.type)


def _gone_round(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.int32).astype(np.int64)


def _numbers(numbers: np.ndarray, like: pa.Array, target: pa.DataType) -> pa.Array:
    mask = np.asarray(like.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_date32(target):
        return pa.array(numbers.astype(np.int32), pa.int32(), mask=mask).cast(target)
    return pa.array(numbers, pa.int64(), mask=mask).cast(target)
