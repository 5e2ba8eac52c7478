"""Casts of columns: schema evolution's widening, SQL's casts, and the units and widths of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.variant import variant
from lakeformat.errors import InvalidInput
from lakeformat.expression import default_value
from lakeformat.model import nanoseconds
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, walk

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_NUMBERS = (*_INTEGERS, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_BLOBS = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED, Kind.UUID, Kind.GEOMETRY, Kind.GEOGRAPHY)
_TIMES = (Kind.TIME, Kind.TIME_MICROS)
REACH_MICROS = (2**63 - 1) // 1000  # The range of nanoseconds on either side of 1970.
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
_SECONDS = (Kind.INT, Kind.BIGINT)  # The integers that are timestamps too: seconds since 1970.
_MILLIS = pa.timestamp("ms")
_BIT_WIDTH = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}


def constant(value: object, type: Type, length: int) -> pa.Array:
    """An array of `length` times `value`, in the form of values in `model.work`: timestamps are integers in the Arrow
    unit."""
    target = to_arrow(type)
    if value is None:
        return nulls(length, target)
    if isinstance(value, int) and (pa.types.is_timestamp(target) or pa.types.is_time(target)):
        return pa.repeat(pa.scalar(value, pa.int64()), length).cast(pa.int64()).cast(target)
    return pa.repeat(pa.scalar(value, target), length)


def nulls(length: int, type: pa.DataType) -> pa.Array:
    """`length` nulls; `pa.nulls` would put nulls into NOT NULL fields of a row."""
    if not pa.types.is_struct(type):
        return pa.nulls(length, type)
    return struct(pa.nulls(length), [nulls(length, part.type) for part in type], type)


_NOTHING: Mapping[int, Any] = {}


def initial(field: Field, length: int, constants: Mapping[int, Any] = _NOTHING) -> pa.Array:
    """The column's value in rows of a file that lacks it. `constants`: known values of fields (by field id); a row with
    such a field is not null."""
    if field.id in constants:
        return constant(constants[field.id], field.type, length)
    if isinstance(field.type, Row) and any(constants.get(part.id) is not None for part in walk(field.type.fields)):
        parts = [initial(part, length, constants) for part in field.type.fields]
        return pa.StructArray.from_arrays(parts, fields=to_arrow(field.type).fields)
    if field.initial is None:
        return nulls(length, to_arrow(field.type))
    return repeated(default_value.value(field.initial, field.type, f"column {field.name!r}"), length)


def repeated(value: pa.Scalar, length: int) -> pa.Array:
    """`length` times `value`; `pa.repeat` does not take a nested one no times."""
    return pa.repeat(value, length) if length else pa.array([], value.type)


def project(
    array: pa.Array, source: Type, target: Type, name: str, constants: Mapping[int, Any] = _NOTHING
) -> pa.Array:
    """A column of logical type `source` as `target`, whose parts are found by field id (collections' parts by
    position).

    `array` may have any Arrow form of `source`. Widens, and casts as SQL does; a value that does not fit raises
    `InvalidInput` with the column's `name`. A field of a row that `source` lacks has its value in `constants`, or its
    initial default, or null.
    """
    array = layouts.plain(array)
    match source, target:
        case ((Row() | Scalar(Kind.VARIANT)), Scalar(Kind.VARIANT)):
            return variant.plain(array, name)
        case Row(parts), Row(target_parts):
            by_id = {part.id: (part, index) for index, part in enumerate(parts)}
            columns = []
            for field in target_parts:
                if field.id in by_id:
                    part, index = by_id[field.id]
                    child = _child(array, part, index)
                    columns.append(project(child, part.type, field.type, f"{name}.{field.name}", constants))
                else:
                    columns.append(initial(field, len(array), constants))
            return struct(array, columns, to_arrow(target))
        case ListOf(element), ListOf(wanted_element):
            return relist(
                array, to_arrow(target), project(items(array), element.type, wanted_element.type, f"{name}[]")
            )
        case ((MapOf() | MultisetOf()), (MapOf() | MultisetOf())):
            keys, values = entries(array)
            (key, value), (wanted_key, wanted_value) = _map_parts(source), _map_parts(target)
            return remap(
                array,
                to_arrow(target),
                project(keys, key, wanted_key, f"{name}[key]"),
                project(values, value, wanted_value, f"{name}[value]"),
            )
        case Scalar(Kind.UNKNOWN), _:
            return nulls(len(array), to_arrow(target))
        case Scalar(), Scalar():
            return _cast(normal(array, source, name), source, target, name)
    raise InvalidInput(f"column {name}: {source} cannot be read as {target}")


def normal(array: pa.Array, type: Scalar, name: str) -> pa.Array:
    """A column of a file in the one Arrow form of its logical type, without the file's units, zones and widths."""
    target, stored = to_arrow(type), array.type
    if stored == target:
        return array
    try:
        if pa.types.is_timestamp(target):
            if pa.types.is_timestamp(stored):
                return _to_unit(array, target)
            if pa.types.is_int64(stored):
                return array.cast(target)
        elif type.kind in _TIMES:
            if pa.types.is_integer(stored):
                return array.cast(target)
            if pa.types.is_time(stored):
                return array.cast(target, safe=False)
        return array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"column {name}: {stored} values cannot be read as {type}: {error}") from error


def items(array: Any) -> pa.Array:
    """The elements of a list array, those of its rows alone."""
    first, last = _span(array)
    return array.values.slice(first, last - first)


def entries(array: Any) -> tuple[pa.Array, pa.Array]:
    """Keys and values of a map array, those of its rows alone."""
    pairs: Any = items(array)
    return pairs.field(0), pairs.field(1)


def struct(array: pa.Array, columns: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    """`columns` as the parts of a struct that is null where `array` is."""
    filled = [column if part.nullable else _filled(column) for part, column in zip(type.fields, columns, strict=True)]
    return pa.Array.from_buffers(type, len(array), [_validity(array)], children=filled)


def relist(array: pa.Array, type: pa.DataType, elements: pa.Array) -> pa.Array:
    """A list array shaped as `array`, of `elements` (see `items`)."""
    return pa.Array.from_buffers(type, len(array), [_validity(array), _offsets(array)], children=[elements])


def remap(array: pa.Array, type: pa.DataType, keys: pa.Array, values: pa.Array) -> pa.Array:
    """A map array shaped as `array`, of `keys` and `values` (see `entries`)."""
    pairs = layouts.map_entries(type, _filled(keys) if array.null_count else keys, values)
    return pa.Array.from_buffers(type, len(array), [_validity(array), _offsets(array)], children=[pairs])


def rebuilt(
    array: pa.Array, type: Type, leaf: Callable[[pa.Array, Type], pa.Array], name: Callable[[str], str] = str
) -> pa.Array:
    """The same values with `leaf` applied to everything that is no row, list or map, and fields of rows renamed by
    `name`."""
    match type:
        case Row(parts):
            columns = [rebuilt(pc.struct_field(array, [i]), part.type, leaf, name) for i, part in enumerate(parts)]
            fields = [pa.field(name(p.name), c.type, p.nullable) for p, c in zip(parts, columns, strict=True)]
            return struct(array, columns, pa.struct(fields))
        case ListOf(element):
            elements = rebuilt(items(array), element.type, leaf, name)
            return relist(array, pa.list_(pa.field("element", elements.type, element.nullable)), elements)
        case MapOf(key, value):
            old_keys, values = entries(array)
            keys, values = rebuilt(old_keys, key.type, leaf, name), rebuilt(values, value.type, leaf, name)
            keys = old_keys if pa.types.is_null(keys.type) else keys  # Keys without a type are none.
            return remap(array, pa.map_(keys.type, pa.field("value", values.type, value.nullable)), keys, values)
    return leaf(array, type)


def innermost(array: pa.Array) -> pa.Array:
    """The field of rows with a single field, at any depth; null where a row is."""
    while pa.types.is_struct(array.type):
        array = pc.struct_field(array, [0])
    return array


def near(array: pa.Array, micros: pa.Array) -> pa.Array:
    """`array`, null where the timestamps `micros` are outside the range of nanoseconds."""
    if micros.type.unit == "ns":
        return array
    values = micros.view(pa.int64())
    reached = pc.and_(pc.greater_equal(values, -REACH_MICROS), pc.less_equal(values, REACH_MICROS))
    return pc.if_else(reached, array, pa.scalar(None, array.type))


def _filled(array: pa.Array) -> pa.Array:
    """A NOT NULL field: below null rows it must have a value other than null."""
    if not array.null_count:
        return array
    places = np.arange(len(array))
    places[array.is_null().to_numpy(zero_copy_only=False)] = len(array)
    return pa.concat_arrays([array, pa.array([_blank(array.type)], array.type)]).take(pa.array(places))


def _blank(type: pa.DataType) -> Any:
    if pa.types.is_struct(type):
        return {part.name: _blank(part.type) for part in type}
    if pa.types.is_nested(type):
        return []
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return b""
    if pa.types.is_fixed_size_binary(type):
        return bytes(type.byte_width)
    if pa.types.is_decimal(type):
        return Decimal(0)
    return False if pa.types.is_boolean(type) else 0


def _child(array: pa.Array, part: Field, number: int) -> pa.Array:
    """A struct's field by its name in the file, or by its index if the file has no names."""
    index = array.type.get_field_index(part.name)
    return pc.struct_field(array, [index if index >= 0 else number])


def _span(array: Any) -> tuple[int, int]:
    if len(array) == 0:
        return 0, 0
    offsets = array.offsets
    return offsets[0].as_py(), offsets[-1].as_py()


def _offsets(array: Any) -> pa.Buffer:
    if len(array) == 0:
        return pa.array([0], pa.int32()).buffers()[1]
    offsets = array.offsets.to_numpy()
    return pa.py_buffer(np.ascontiguousarray(offsets - offsets[0], np.int32))


def _validity(array: pa.Array) -> pa.Buffer | None:
    return array.is_valid().buffers()[1] if array.null_count else None


def _map_parts(type: MapOf | MultisetOf) -> tuple[Type, Type]:
    if isinstance(type, MapOf):
        return type.key.type, type.value.type
    return type.element.type, Scalar(Kind.INT)


def _to_unit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Timestamps in another unit, towards the past where digits are cut; a zone is a label, the number stays."""
    source = array.type
    bare = array.view(pa.timestamp(source.unit)) if source.tz else array
    if source.unit != target.unit:
        if _UNITS[source.unit] < _UNITS[target.unit]:
            bare = bare.cast(pa.timestamp(target.unit))
        else:
            step = _UNITS[source.unit] // _UNITS[target.unit]
            numbers = bare.view(pa.int64())
            floor = pc.divide(numbers, step)
            bare = pc.if_else(pc.greater(pc.multiply(floor, step), numbers), pc.subtract(floor, 1), floor)
    return bare.view(target)


_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _cast(array: pa.Array, source: Scalar, target: Scalar, name: str) -> pa.Array:
    arrow_type = to_arrow(target)
    if source == target or (
        array.type == arrow_type and source.kind is target.kind and source.kind not in _TEXTS + _BLOBS
    ):
        return array
    try:
        return _cast_by_kind(array, source, target, arrow_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        hint = "; scan(nanoseconds='microseconds') reads it" if nanoseconds.is_fine(target) else ""
        raise InvalidInput(f"column {name}: a value of {source} cannot become {target}: {error}{hint}") from error
    except KeyError:
        raise InvalidInput(f"column {name}: {source} cannot be read as {target}") from None


def _cast_by_kind(array: pa.Array, source: Scalar, target: Scalar, arrow_type: pa.DataType) -> pa.Array:
    """As Java Paimon's `CastExecutors` in a JVM with the zone UTC, except that a number out of range is an error."""
    have, want = source.kind, target.kind
    if want in _TEXTS:
        return _shorten(_text(array, source), target)
    if want in _BLOBS and have in _BLOBS + _TEXTS:
        blobs = array.cast(pa.binary())
        if want in (Kind.BINARY, Kind.VARBINARY):
            blobs = pc.binary_slice(blobs, 0, target.parameters[0])
        return blobs.cast(arrow_type)
    if have in _TEXTS:
        return _parse(array, target, arrow_type)
    if have is Kind.BOOLEAN and want in _NUMBERS:
        return array.cast(pa.int8()).cast(arrow_type)
    if want is Kind.BOOLEAN and have in _INTEGERS:
        return pc.not_equal(array, pa.scalar(0, array.type))
    if have in _NUMBERS and want in _NUMBERS:
        return _number(array, source, target, arrow_type)
    return _time(array, have, want, arrow_type)


def _time(array: pa.Array, have: Kind, want: Kind, arrow_type: pa.DataType) -> pa.Array:
    """Casts between dates, times, timestamps and seconds since 1970."""
    if have is Kind.DATE and want in _INSTANTS:
        return array.cast(pa.timestamp(arrow_type.unit)).view(arrow_type)
    if have in _INSTANTS and want is Kind.DATE:
        return pc.floor_temporal(array.view(pa.timestamp(array.type.unit)), unit="day").cast(pa.date32())
    if have in _INSTANTS and want in _INSTANTS:
        return _to_unit(array, arrow_type)
    if have in _INSTANTS and want in _SECONDS:
        return pc.divide(_to_unit(array, _MILLIS).view(pa.int64()), 1000).cast(arrow_type)
    if have in _SECONDS and want in _INSTANTS:
        return _to_unit(array.cast(pa.int64()).view(pa.timestamp("s")), arrow_type)
    if have in _INSTANTS and want is Kind.TIME:
        return _to_unit(array, _MILLIS).cast(arrow_type)
    if have is Kind.TIME and want in _INSTANTS:
        return _to_unit(array.cast(pa.int32()).cast(pa.int64()).view(_MILLIS), arrow_type)
    if have in _TIMES and want in _TIMES:
        return array.cast(arrow_type, safe=False)
    raise KeyError(have, want)


def _number(array: pa.Array, source: Scalar, target: Scalar, arrow_type: pa.DataType) -> pa.Array:
    have, want = source.kind, target.kind
    if want is Kind.DECIMAL:
        scale = target.parameters[1]
        if have is Kind.DECIMAL:
            if scale < source.parameters[1]:
                array = pc.round(array, ndigits=scale, round_mode="half_towards_infinity")
            return array.cast(arrow_type)
        if have in _INTEGERS:
            return array.cast(pa.decimal128(38, 0)).cast(pa.decimal256(76, scale)).cast(arrow_type)
        return array.cast(arrow_type)
    if have is Kind.DECIMAL:
        if want in _INTEGERS:
            return pc.trunc(array).cast(arrow_type)
        return array.cast(pa.float64()).cast(arrow_type)
    if have in (Kind.FLOAT, Kind.DOUBLE) and want in _INTEGERS:
        return pc.trunc(array).cast(arrow_type)
    if want in (Kind.FLOAT, Kind.DOUBLE):
        return array.cast(arrow_type, safe=False)
    return array.cast(arrow_type)


def _text(array: pa.Array, source: Scalar) -> pa.Array:
    """Values as SQL spells them (Paimon's casts to string)."""
    match source.kind:
        case Kind.BOOLEAN:
            return pc.if_else(array, "true", "false")
        case Kind.FLOAT | Kind.DOUBLE:
            return _per_distinct(array, lambda value: _java_double(value, single=source.kind is Kind.FLOAT))
        case Kind.DECIMAL:
            return _per_distinct(array, lambda value: format(value, "f"))
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            bare = array.view(pa.timestamp(array.type.unit))
            most = _UNIT_DIGITS[array.type.unit] - source.parameters[0]
            texts = bare.cast(pa.string())
            return pc.replace_substring_regex(texts, rf"\.?0{{1,{most}}}$", "") if most > 0 else texts
        case _:
            return array.cast(pa.string())


def _shorten(texts: pa.Array, target: Scalar) -> pa.Array:
    if target.kind is Kind.STRING:
        return texts
    return pc.utf8_slice_codeunits(texts, 0, target.parameters[0])


def _parse(texts: pa.Array, target: Scalar, arrow_type: pa.DataType) -> pa.Array:
    texts = pc.utf8_trim_whitespace(texts)
    match target.kind:
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            return _parse_timestamps(texts, target, arrow_type)
        case Kind.TIME:
            return _parse_times(texts, target).cast(arrow_type)
        case Kind.BOOLEAN:
            lower = pc.utf8_lower(texts)
            yes = pc.is_in(lower, pa.array(["t", "true", "y", "yes", "1"]))
            no = pc.is_in(lower, pa.array(["f", "false", "n", "no", "0"]))
            odd = pc.and_(pc.invert(pc.or_(yes, no)), texts.is_valid())
            if pc.any(odd, min_count=0).as_py():
                raise pa.ArrowInvalid(f"not a boolean: {texts.filter(odd)[0].as_py()!r}")
            return pc.if_else(texts.is_valid(), yes, pa.scalar(None, pa.bool_()))
        case kind if kind in _NUMBERS or kind is Kind.DATE:
            return texts.cast(arrow_type)
    raise KeyError(target.kind)


def _parse_timestamps(texts: pa.Array, target: Scalar, arrow_type: pa.DataType) -> pa.Array:
    """A day, maybe with a time, whose fraction is cut to the digits of `target`; or a count of its units since 1970."""
    digits = target.parameters[0]
    counts = pa.nulls(len(texts), arrow_type)
    if target.kind is Kind.TIMESTAMP and digits in _UNIT_OF:
        numbers = _counts(texts)
        counts = _to_unit(numbers.view(pa.timestamp(_UNIT_OF[digits])), arrow_type)
        texts = pc.if_else(numbers.is_valid(), None, texts)
    parts = _matched(texts, rf"^(?P<year>\d{{4}})-(?P<month>\d\d?)-(?P<day>\d\d?)(?:[ T]{_CLOCK})?$", target)
    days = pc.binary_join_element_wise(parts["year"], *(_two_digits(parts[name]) for name in ("month", "day")), "-")
    seconds = _seconds(days, parts).cast(pa.timestamp(arrow_type.unit)).view(pa.int64())
    nanos = pc.utf8_rpad(pc.utf8_slice_codeunits(parts["fraction"], 0, digits), 9, "0").cast(pa.int64())
    fraction = pc.divide(nanos, _UNITS["ns"] // _UNITS[arrow_type.unit])
    return pc.coalesce(counts, pc.add_checked(seconds, fraction).view(arrow_type))


def _parse_times(texts: pa.Array, target: Scalar) -> pa.Array:
    """A time, rounded to milliseconds; or a count of them. In milliseconds, 32 bits."""
    counts = _counts(texts)
    parts = _matched(pc.if_else(counts.is_valid(), None, texts), rf"^{_CLOCK}$", target)
    seconds = _seconds(pc.if_else(parts["hour"].is_valid(), "1970-01-01", None), parts).view(pa.int64())
    tenths = pc.utf8_rpad(pc.utf8_slice_codeunits(parts["fraction"], 0, 4), 4, "0").cast(pa.int64())
    millis = pc.coalesce(counts, pc.add(pc.multiply(seconds, 1000), pc.divide(pc.add(tenths, 5), 10)))
    late = pc.filter(millis, pc.greater_equal(millis, 86_400_000))
    if len(late):
        raise pa.ArrowInvalid(f"{late[0].as_py()} milliseconds are a day or more")
    return millis.cast(pa.int32())


_UNIT_OF = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_UNIT_DIGITS = {unit: digits for digits, unit in _UNIT_OF.items()}
_CLOCK = r"(?P<hour>\d\d?)(?::(?P<minute>\d\d?)(?::(?P<second>\d\d?)(?:\.(?P<fraction>\d*))?)?)?"


def _seconds(days: pa.Array, parts: Mapping[str, pa.Array]) -> pa.Array:
    clock = pc.binary_join_element_wise(*(_two_digits(parts[name]) for name in ("hour", "minute", "second")), ":")
    return pc.binary_join_element_wise(days, clock, " ").cast(pa.timestamp("s"))


def _two_digits(numbers: pa.Array) -> pa.Array:
    return pc.utf8_lpad(numbers, 2, "0")


def _matched(texts: pa.Array, pattern: str, target: Scalar) -> dict[str, pa.Array]:
    """The named parts of texts that match, empty where a text lacks one."""
    values = pc.extract_regex(texts, pattern)
    odd = pc.and_(values.is_null(), texts.is_valid())
    if pc.any(odd, min_count=0).as_py():
        raise pa.ArrowInvalid(f"not a {target}: {texts.filter(odd)[0].as_py()!r}")
    return {part.name: pc.struct_field(values, [index]) for index, part in enumerate(values.type)}


def _counts(texts: pa.Array) -> pa.Array:
    """Texts of digits alone as numbers; null for others."""
    return pc.if_else(pc.match_substring_regex(texts, r"^\d+$"), texts, None).cast(pa.int64())


def _per_distinct(array: pa.Array, spell: Callable[[Any], str | None]) -> pa.Array:
    encoded = array.dictionary_encode()
    spelled = pa.array([spell(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return spelled.take(encoded.indices)


def _java_double(value: float, single: bool) -> str:
    """A number as Java 19 and later spells it (`Double.toString`, `Float.toString`): the shortest that is exact."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = np.format_float_scientific(np.float32(value) if single else np.float64(value), trim="0", exp_digits=1)
    mantissa, exponent = shortest.split("e")
    power = int(exponent)
    if value == 0 or not -3 <= power < 7:
        return mantissa if value == 0 else f"{mantissa}E{power}"
    return np.format_float_positional(np.float32(value) if single else np.float64(value), trim="0")
