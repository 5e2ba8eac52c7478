"""Map Dagster partitions to table partitions.

An asset's metadata `partition_by` maps its partitions to the table's partition columns:

    {"partition_by": "dt"}                                     the whole key into one column
    {"partition_by": {"date": "dt", "hour": "hour"}}           parts of a time partition into columns
    {"partition_by": {"days": "dt"}}                           a week or month onto a table that is laid out by day
    {"partition_by": {"day": "dt", "region": "region"}}        the two dimensions of a MultiPartitionsDefinition
    {"partition_by": {"time": {"date": "dt", "hour": "hour"}, "region": "region"}}     the same, one of them in parts
    {"partition_by": {"window": "booked_at"}} the rows whose time lies in the partition, for tables with hidden
                                                               partitions: `layout=["days(booked_at)"]`

Parts of a time partition: `key`, `start`, `date`, `year`, `month`, `hour`, `minute` are taken at its start (in the
partitions' own time zone); `days` and `hours` give one table partition for each day or hour inside it; `window` is all
of the time from its start to its end. A value takes the column's type: for a DATE column the date, for an INT column
20130131, 201301 or the number itself, for a STRING column the ISO form ("2013-01-31", "2013-01", "05").
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInput
from lakeformat.model import predicate

PartitionBy = str | Mapping[str, Any]
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """The values from `start` on that are less than `end`."""

    start: Any
    end: Any


_AT_START: dict[str, Callable[[datetime], Any]] = {
    "start": lambda at: at,
    "date": lambda at: at.date(),
    "year": lambda at: at.year,
    "month": lambda at: at.date().replace(day=1),
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
}
_WITHIN = {"days": ("date", timedelta(days=1)), "hours": ("hour", timedelta(hours=1))}
_COARSER: Mapping[str, frozenset[str]] = {  # The parts that a repeating part needs beside it.
    "hour": frozenset(("date", "days", "start", "key", "window")),
    "hours": frozenset(("date", "days", "start", "key", "window")),
    "minute": frozenset(("hour", "hours", "start", "key", "window")),
}
_TEXT = {"month": "%Y-%m", "hour": "%H", "minute": "%M", "year": "%Y", "date": "%Y-%m-%d"}


def columns_of(partition_by: PartitionBy, windows: bool = True) -> tuple[str, ...]:
    """The table's columns that a mapping names, in order; with `windows` also columns whose values are no partition
    values."""
    if isinstance(partition_by, str):
        return (partition_by,)
    return tuple(
        column
        for part, inner in partition_by.items()
        if windows or part != "window"
        for column in columns_of(inner, windows)
    )


def check_partition_by(definition: dg.PartitionsDefinition | None, partition_by: Any) -> None:
    """Raise `InvalidInput` for a mapping that partitions of `definition` cannot have, whatever the columns' types, and
    for one by which neighbouring partitions would share their rows."""
    shown = f"partition_by={partition_by!r}"
    if not (isinstance(partition_by, str | Mapping) and partition_by):
        raise InvalidInput(
            f"{shown}; name the column of the partition's key, or map parts of the partition to columns: "
            "{'date': 'day'}"
        )
    if isinstance(definition, dg.MultiPartitionsDefinition):
        dimensions = {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
        if isinstance(partition_by, str) or set(partition_by) != set(dimensions):
            raise InvalidInput(f"{shown}; name a column for each dimension: {', '.join(sorted(dimensions))}")
        for name, inner in partition_by.items():
            check_partition_by(dimensions[name], inner)
    else:
        parts = {"key": partition_by} if isinstance(partition_by, str) else partition_by
        if wrong := [column for column in parts.values() if not (isinstance(column, str) and column)]:
            raise InvalidInput(f"{shown}: {wrong[0]!r} is no column; give each part the name of a column")
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            _check_time_parts(definition, parts)
        elif definition is not None and set(parts) != {"key"}:
            raise InvalidInput(f"{shown}: partitions that are not of time have one part, 'key'; name its column")
    columns = columns_of(partition_by)
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"{shown} names a column twice; give each part a column of its own")


def check_expression(definition: dg.PartitionsDefinition | None, expression: Any) -> None:
    """Raise `InvalidInput` for a `partition_expr` that names no column, or not one for each dimension."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        check_partition_by(definition, expression)
    elif not (isinstance(expression, str) and expression):
        raise InvalidInput(
            f"partition_expr={expression!r}; name a column, or map each dimension to one; `partition_by` maps parts of "
            "a partition"
        )


def partition_specs(
    definition: dg.PartitionsDefinition,
    keys: Sequence[str],
    partition_by: PartitionBy,
    types: Mapping[str, pa.DataType],
) -> dict[str, tuple[Spec, ...]]:
    """The table partitions of each partition key, as `{column: value}` with values of `types`.

    Raises `InvalidInput` if two keys would share a table partition: replacing one would destroy the other.
    """
    check_partition_by(definition, partition_by)
    if missing := [column for column in columns_of(partition_by) if column not in types]:
        raise InvalidInput(f"partition_by names {missing}, which the table does not have; it has {sorted(types)}")
    specs = {key: tuple(_specs(definition, key, partition_by, types)) for key in keys}
    owner: dict[tuple[Any, ...], str] = {}
    for key, several in specs.items():
        for spec in several:
            other = owner.setdefault(tuple(spec.values()), key)
            if other != key:
                raise InvalidInput(
                    f"partitions {other!r} and {key!r} both stand for {spec}; map more of the key's parts"
                )
    return specs


def predicate_of(specs: Mapping[str, Sequence[Spec]], columns: Sequence[str]) -> predicate.Expression:
    """The condition for exactly the rows of these table partitions; no row if there are none."""
    values = [tuple(spec[column] for column in columns) for several in specs.values() for spec in several]
    if not has_windows(specs):
        return predicate.in_tuples(columns, values)
    index = next(n for n, value in enumerate(values[0]) if isinstance(value, Window))
    beside: dict[tuple[Any, ...], list[Window]] = {}
    for row in values:
        beside.setdefault((*row[:index], *row[index + 1 :]), []).append(row[index])
    others = (*columns[:index], *columns[index + 1 :])
    return predicate.or_(
        *(
            predicate.and_(*map(_holds, others, rest), _holds(columns[index], window))
            for rest, windows in beside.items()
            for window in _joined(windows)
        )
    )


def indexes_of(specs: Mapping[str, Sequence[Spec]], rows: pa.Table) -> np.ndarray:
    """For each row, the position in `specs` of the key whose table partitions have it, or -1."""
    flat = [(index, spec) for index, several in enumerate(specs.values()) for spec in several]
    codes, spec_codes = np.zeros(rows.num_rows, np.int64), np.zeros(len(flat), np.int64)
    for column in flat[0][1] if flat else ():
        distinct = list(dict.fromkeys(spec[column] for _, spec in flat))
        if isinstance(distinct[0], Window):
            distinct.sort(key=lambda window: window.start)
            column_codes = _within(rows[column], distinct)
        else:
            value_set = pa.array(distinct, rows[column].type)
            column_codes = np.asarray(pc.fill_null(pc.index_in(rows[column], value_set=value_set), -1))
        codes = np.where((codes < 0) | (column_codes < 0), -1, codes * len(distinct) + column_codes)
        places = {value: index for index, value in enumerate(distinct)}
        spec_codes = spec_codes * len(distinct) + np.array([places[spec[column]] for _, spec in flat], np.int64)
    order = np.argsort(spec_codes)
    nearest = np.minimum(np.searchsorted(spec_codes[order], codes), max(0, len(flat) - 1))
    keys = np.array([index for index, _ in flat], np.int64)[order]
    return np.where(spec_codes[order][nearest] == codes, keys[nearest], -1) if flat else np.full(rows.num_rows, -1)


def sql_of(specs: Sequence[Spec]) -> str:
    """The SQL condition for the rows of a key's table partitions."""
    clauses = [" AND ".join(_clause(column, value) for column, value in spec.items()) for spec in specs]
    return " OR ".join(clauses if len(clauses) == 1 else (f"({clause})" for clause in clauses))


def has_windows(specs: Mapping[str, Sequence[Spec]]) -> bool:
    """Whether these are time windows, not single values of partition columns."""
    first = next((spec for several in specs.values() for spec in several), {})
    return any(isinstance(value, Window) for value in first.values())


def _joined(windows: Iterable[Window]) -> list[Window]:
    """The same times in as few windows as possible."""
    joined: list[Window] = []
    for span in sorted(windows, key=lambda window: window.start):
        if joined and joined[-1].end == span.start:
            joined[-1] = Window(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def _within(values: pa.ChunkedArray, windows: Sequence[Window]) -> np.ndarray:
    """For each value, the position of the window that it lies in, or -1;
    the windows are in order and do not overlap."""

    def numbers(moments: pa.Array | pa.ChunkedArray) -> np.ndarray:
        integer = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        return np.asarray(pc.fill_null(moments.cast(integer), np.iinfo(np.int32).min).cast(pa.int64()))

    starts = numbers(pa.array([window.start for window in windows], values.type))
    ends = numbers(pa.array([window.end for window in windows], values.type))
    indexes = np.searchsorted(starts, moments := numbers(values), side="right") - 1
    inside = (indexes >= 0) & (moments < ends[indexes]) & np.asarray(pc.is_valid(values))
    return np.where(inside, indexes, -1)


def _clause(column: str, value: Any) -> str:
    name = column if column.isidentifier() else f"`{column.replace('`', '``')}`"
    if isinstance(value, Window):
        return f"{name} >= {_literal(value.start)} AND {name} < {_literal(value.end)}"
    return f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _holds(column: str, value: Any) -> predicate.Expression:
    if isinstance(value, Window):
        return predicate.and_(predicate.ge(column, value.start), predicate.lt(column, value.end))
    return predicate.eq(column, value)


def _specs(
    definition: dg.PartitionsDefinition, key: str, partition_by: PartitionBy, types: Mapping[str, pa.DataType]
) -> Iterator[Spec]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        yield from _two_dimensions(definition, key, partition_by, types)
    elif isinstance(definition, dg.TimeWindowPartitionsDefinition):
        yield from _time_window(definition, key, partition_by, types)
    else:
        parts = {"key": partition_by} if isinstance(partition_by, str) else partition_by
        value = _parse(key, types[parts["key"]])
        other = _first_keys(_all_keys(definition), types[parts["key"]]).get(value, key)
        if other != key:
            raise InvalidInput(
                f"partitions {other!r} and {key!r} both stand for {value!r}; map them onto a text column"
            )
        yield {parts["key"]: value}


def _check_time_parts(definition: dg.TimeWindowPartitionsDefinition, parts: Mapping[str, str]) -> None:
    if unknown := [name for name in parts if name not in {"key", "window", *_AT_START, *_WITHIN}]:
        known = sorted({"key", "window", *_AT_START, *_WITHIN})
        raise InvalidInput(f"partition_by has no part {unknown[0]!r} of a time partition; there are {', '.join(known)}")
    for name, coarser in _COARSER.items():
        if name in parts and not coarser & parts.keys():
            period, missing = ("hour", "hour") if name == "minute" else ("day", "date")
            raise InvalidInput(
                f"partition_by {dict(parts)}: each {period} has the same {name!r}, so partitions would share it; "
                f"map {missing!r} too"
            )
    types = {column: pa.timestamp("us") if name == "window" else pa.string() for name, column in parts.items()}
    first = definition.get_first_partition_key()
    if first is not None:
        next(_time_window(definition, first, parts, types))


def _all_keys(definition: dg.PartitionsDefinition) -> tuple[str, ...]:
    """The keys of a definition; of a dynamic one those of the instance that a step runs on."""
    if not isinstance(definition, dg.DynamicPartitionsDefinition):
        return tuple(definition.get_partition_keys())
    try:
        instance = dg.OpExecutionContext.get().instance
    except dg.DagsterInvariantViolationError:
        return ()
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return tuple(definition.get_partition_keys())


@lru_cache(maxsize=32)
def _first_keys(keys: tuple[str, ...], type: pa.DataType) -> dict[Any, str]:
    """The first of the keys with each value."""
    firsts: dict[Any, str] = {}
    for key in keys if not pa.types.is_string(type) else ():
        with suppress(InvalidInput):  # The value of a key that does not run.
            firsts.setdefault(_parse(key, type), key)
    return firsts


def _two_dimensions(
    definition: dg.MultiPartitionsDefinition, key: str, partition_by: PartitionBy, types: Mapping[str, pa.DataType]
) -> Iterator[Spec]:
    assert not isinstance(partition_by, str), "it maps each dimension"
    dimensions = {partitions_def.name: partitions_def.partitions_def for partitions_def in definition.partitions_defs}
    values = definition.get_partition_key_from_str(key).keys_by_dimension
    choices = [_specs(dimensions[name], values[name], inner, types) for name, inner in partition_by.items()]
    for combination in itertools.product(*choices):
        yield {column: value for spec in combination for column, value in spec.items()}


def _time_window(
    definition: dg.TimeWindowPartitionsDefinition, key: str, partition_by: PartitionBy, types: Mapping[str, pa.DataType]
) -> Iterator[Spec]:
    parts = {"key": partition_by} if isinstance(partition_by, str) else partition_by
    window = definition.time_window_for_partition_key(key)

    def values_at(instant: datetime) -> tuple[Any, ...]:
        return tuple(
            _window(window.start, window.end, key, types[column])
            if name == "window"
            else _time_value(name, instant, key, types[column])
            for name, column in parts.items()
        )

    steps = [_WITHIN[name][1] for name in parts if name in _WITHIN]
    instants = _instants(window.start, window.end, min(steps)) if steps else iter([window.start])
    specs = dict.fromkeys(values_at(instant) for instant in instants)
    # Where the next or the previous partition has the same values, this partition is not the only one in there.
    whole_key = any(name == "window" or (name == "key" and _holds_key(types[column])) for name, column in parts.items())
    if not whole_key and any(
        values_at(instant) in specs for instant in (window.end, _before(definition, window, steps))
    ):
        advice = "map its time, {'window': ...}" if steps else "map more of its parts"
        raise InvalidInput(
            f"partition_by {dict(parts)}: partition {key!r} shares {next(iter(specs))} with its neighbour; {advice} "
            "(for hourly partitions {'date': ..., 'hour': ...}, in UTC if the clock is set)"
        )
    for values in specs:
        yield dict(zip(parts.values(), values, strict=True))


def _before(
    definition: dg.TimeWindowPartitionsDefinition, window: dg.TimeWindow, steps: Sequence[timedelta]
) -> datetime:
    """The time whose values the partition before `window` has last: its end, if it has those of each step, or else its
    start."""
    last = window.start - timedelta(seconds=1)
    before = None if steps else definition.get_prev_partition_window(window.start, respect_bounds=False)
    return last if before is None else before.start


def _instants(start: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    """Days of the wall clock, or elapsed hours (23 or 25 on the days when the clock changes)."""
    if step >= timedelta(days=1):
        while start < end:
            yield start
            start += step
    else:
        instant = start.astimezone(UTC)
        while instant < end.astimezone(UTC):
            yield instant.astimezone(start.tzinfo)
            instant += step


def _window(start: datetime, end: datetime, key: str, type: pa.DataType) -> Window:
    if pa.types.is_date(type) and any(moment.time() != time() for moment in (start, end)):
        raise InvalidInput(f"partition {key!r} begins or ends within a day, and column values of type {type} do not")
    if not (pa.types.is_date(type) or pa.types.is_timestamp(type)):
        raise InvalidInput(
            f"the window of partition {key!r} has no form of type {type}; use a timestamp or date column"
        )
    return Window(*(_time_value("start", moment, key, type) for moment in (start, end)))


def _time_value(part: str, instant: datetime, key: str, type: pa.DataType) -> Any:
    if part == "key":
        if _holds_key(type):
            return _parse(key, type)
        part = "start" if pa.types.is_timestamp(type) else "date"
    part = _WITHIN[part][0] if part in _WITHIN else part
    value = _AT_START[part](instant)
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return value.isoformat() if part == "start" else instant.strftime(_TEXT[part])
    if pa.types.is_integer(type):
        match part:
            case "date":
                return int(instant.strftime("%Y%m%d"))
            case "month":
                return int(instant.strftime("%Y%m"))
            case "year" | "hour" | "minute":
                return value
    if pa.types.is_date(type) and isinstance(value, date):
        return value.date() if isinstance(value, datetime) else value
    if pa.types.is_timestamp(type) and isinstance(value, date):
        whole = (
            value
            if isinstance(value, datetime)
            else datetime(value.year, value.month, value.day, tzinfo=instant.tzinfo)
        )
        return whole.astimezone(UTC) if type.tz else whole.replace(tzinfo=None)
    raise InvalidInput(
        f"the {part} of partition {key!r} has no form of type {type}; use a string, integer or date column"
    )


def _holds_key(type: pa.DataType) -> bool:
    """Whether a column of `type` can hold the key of a time partition unchanged."""
    return not (pa.types.is_date(type) or pa.types.is_timestamp(type) or pa.types.is_integer(type))


def _parse(key: str, type: pa.DataType) -> Any:
    try:
        return pa.scalar(key).cast(type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"partition key {key!r} is not a {type}") from error
