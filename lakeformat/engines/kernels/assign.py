"""Users' columns converted to the table's: names, types, nulls and lengths, with an error for every misfit."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.arrow import arrow_schema, from_arrow, to_arrow
from lakeformat.codec.variant import variant
from lakeformat.engines.kernels import casts, nested_text
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import default_value
from lakeformat.model.partition import PartitionField, TransformKind
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_NUMBERS = (*_INTEGERS, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_ICEBERGS = (Kind.TIME_MICROS, Kind.TIMESTAMP_TZ, Kind.FIXED, Kind.UUID)  # What only its defaults are of.
_TIMES = (Kind.TIME, Kind.TIME_MICROS)
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_CONSECUTIVE = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}  # Up to which a float of so many bits has all integers.
_BLOBS = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED, Kind.UUID, Kind.GEOMETRY, Kind.GEOGRAPHY)


def check(schema: pa.Schema, fields: tuple[Field, ...], partition_by: tuple[PartitionField, ...] = ()) -> None:
    """Raise `InvalidInput` if columns of `schema` cannot be assigned to `fields`: extra, missing, duplicate or of
    another type. Columns in `partition_by` must be present or have a default: otherwise their rows would go to the
    partition of null."""
    by_name = {field.name: field for field in fields}
    for name in schema.names:
        if name not in by_name:
            raise InvalidInput(
                f"column {name!r} is not in the table, which has {', '.join(by_name)}; "
                f"drop it from the data or add it to the table (alter().add_column)"
            )
        if schema.names.count(name) > 1:
            raise InvalidInput(f"column {name!r} is in the data twice; rename one")
    for field in fields:
        index = schema.get_field_index(field.name)
        if index >= 0:
            _check_type(schema.field(index).type, field, field.name)
        elif not field.nullable and field.default is None:
            raise InvalidInput(f"column {field.name!r} is NOT NULL and has no default, and the data lacks it")
    if schema.names:
        require_placed(schema.names, fields, partition_by, "the data")


def require_placed(
    names: Collection[str], fields: tuple[Field, ...], partition_by: tuple[PartitionField, ...], source: str
) -> None:
    """Raise `InvalidInput` if `source`, which has these columns, does not say which partitions its rows belong to:
    without a default they would all go to the partition of null."""
    defaults = {field.name for field in fields if field.default is not None}
    for by in partition_by:
        name, is_read = by.source, by.transform.kind is not TransformKind.VOID
        if is_read and name not in names and name not in defaults and any(field.name == name for field in fields):
            raise InvalidInput(
                f"column {name!r} is a partition column without a default, and {source} lacks it: all these rows "
                "would go to the partition of null; give the column, with nulls if that is intended"
            )


def assign(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """`batch` (checked by `check`) with exactly the columns `fields`, with the types of `codec.arrow`.

    A missing column gets its default or null. Raises `InvalidInput` for nulls in NOT NULL columns, overflows, lost
    digits, and texts or bytes that are too long.
    """
    columns = []
    for field in fields:
        index = batch.schema.get_field_index(field.name)
        if index >= 0:
            column = _assign(layouts.plain(batch.column(index)), field, field.name)
        elif field.default is not None:
            column = default(field, batch.num_rows)
        else:
            column = casts.nulls(batch.num_rows, to_arrow(field.type))
        if column.null_count and not field.nullable:
            raise _nulls(field.name, column.null_count)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(fields))


def default(field: Field, length: int) -> pa.Array:
    """The column's declared default, `length` times."""
    assert field.default is not None, field
    if isinstance(field.default, bytes) or (isinstance(field.type, Scalar) and field.type.kind in _ICEBERGS):
        value = default_value.value(field.default, field.type, f"column {field.name!r}", "default")
        return casts.repeated(value, length)
    try:
        values = nested_text.parse(field.default, field.type, field.name)
    except InvalidInput as error:
        raise InvalidInput(
            f"column {field.name!r}: default {field.default!r} is not a valid {field.type}: {error}"
        ) from error
    return casts.repeated(values[0], length)


def _check_type(arrow_type: pa.DataType, field: Field, name: str) -> None:
    arrow_type = layouts.plain_type(arrow_type)
    if pa.types.is_null(arrow_type):
        return None
    match field.type:
        case Row(parts) if pa.types.is_struct(arrow_type):
            return _check_parts(arrow_type, parts, name)
        case ListOf(element) if pa.types.is_list(arrow_type):
            return _check_type(arrow_type.value_type, element, f"{name}[]")
        case MapOf(key, value) if pa.types.is_map(arrow_type):
            _check_type(arrow_type.key_type, key, f"{name}[key]")
            return _check_type(arrow_type.item_type, value, f"{name}[value]")
        case MultisetOf(element) if pa.types.is_map(arrow_type):
            _check_type(arrow_type.key_type, element, f"{name}[key]")
            return _check_type(arrow_type.item_type, Field(-1, "value", Scalar(Kind.INT)), f"{name}[count]")
        case Scalar() if _fits(arrow_type, field.type):
            return None
    raise InvalidInput(f"column {name}: {arrow_type} does not fit {field.type}; {_way_out(arrow_type, field.type)}")


def _check_parts(arrow_type: pa.DataType, parts: tuple[Field, ...], name: str) -> None:
    names = [arrow_type.field(i).name for i in range(arrow_type.num_fields)]
    by_name = {part.name: part for part in parts}
    if len(set(names)) < len(names):
        twice = next(part for part in names if names.count(part) > 1)
        raise InvalidInput(f"column {name}: part {twice!r} is in the data twice; rename one")
    for extra in names:
        if extra not in by_name:
            raise InvalidInput(f"column {name}: part {extra!r} is not in the table, which has {', '.join(by_name)}")
    for part in parts:
        if part.name in names:
            _check_type(arrow_type.field(part.name).type, part, f"{name}.{part.name}")
        elif not part.nullable and part.default is None:
            raise InvalidInput(f"column {name}: part {part.name!r} is NOT NULL, and the data lacks it")


def _fits(arrow_type: pa.DataType, type: Scalar) -> bool:
    if to_arrow(type) == arrow_type:
        return True
    if type.kind is Kind.VARIANT:
        return variant.has_form(arrow_type)
    try:
        have = from_arrow(arrow_type)
    except UnsupportedFeature:
        return type.kind is Kind.BIGINT and pa.types.is_uint64(arrow_type)
    if not isinstance(have, Scalar):
        return False
    for family in (_NUMBERS, _TEXTS, _BLOBS, _TIMES):
        if type.kind in family:
            return have.kind in family
    return have.kind is type.kind or (have.kind is Kind.DATE and type.kind is Kind.TIMESTAMP)


def _way_out(arrow_type: pa.DataType, type: Type) -> str:
    if pa.types.is_timestamp(arrow_type) and isinstance(type, Scalar):
        if type.kind is Kind.TIMESTAMP:
            return "the data is an instant, the column has no time zone: convert it to the wall clock you mean first"
        if type.kind is Kind.TIMESTAMP_TZ:
            return "the data has no time zone: set its time zone first"
    return "cast the column first"


def _assign(array: pa.Array, field: Field, name: str) -> pa.Array:
    type, target = field.type, to_arrow(field.type)
    if pa.types.is_null(array.type):
        return casts.nulls(len(array), target)
    match type:
        case Row(parts):
            columns = [_of_row(array, part, f"{name}.{part.name}") for part in parts]
            return casts.struct(array, columns, target)
        case ListOf(element):
            return casts.relist(array, target, _part(casts.items(array), element, f"{name}[]"))
        case MapOf(key, value):
            keys, values = casts.entries(array)
            return casts.remap(
                array, target, _part(keys, key, f"{name}[key]", key=True), _part(values, value, f"{name}[value]")
            )
        case MultisetOf(element):
            keys, values = casts.entries(array)
            count = Field(-1, "count", Scalar(Kind.INT), nullable=False)
            return casts.remap(
                array, target, _part(keys, element, f"{name}[key]", key=True), _part(values, count, f"{name}[count]")
            )
        case Scalar(Kind.VARIANT):
            return variant.plain(array, name)
        case Scalar():
            return _scalar(array, type, target, name)
    raise InvalidInput(f"column {name}: {type} cannot be written")


def _of_row(rows: pa.Array, part: Field, name: str) -> pa.Array:
    """The values of one part of rows: theirs, the part's default or null."""
    index = rows.type.get_field_index(part.name)
    if index >= 0:
        column = _assign(pc.struct_field(rows, [index]), part, name)
    elif part.default is not None:
        column = default(part, len(rows))
    else:
        column = casts.nulls(len(rows), to_arrow(part.type))
    if not part.nullable and column.null_count > rows.null_count:
        raise _nulls(name, column.null_count - rows.null_count)
    return column


def _part(array: pa.Array, field: Field, name: str, key: bool = False) -> pa.Array:
    array = _assign(array, field, name)
    if array.null_count and (key or not field.nullable):
        raise _nulls(name, array.null_count)
    return array


def _scalar(array: pa.Array, type: Scalar, target: pa.DataType, name: str) -> pa.Array:
    if array.type != target:
        try:
            if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
                array = array.view(pa.timestamp(array.type.unit)).cast(pa.timestamp(target.unit)).view(target)
            elif pa.types.is_decimal(target) and pa.types.is_integer(array.type):
                array = casts.project(array, from_arrow(array.type), type, name)
            elif pa.types.is_float32(target) and pa.types.is_float64(array.type):
                array = _single(array, name)
            elif pa.types.is_integer(target) and pa.types.is_floating(array.type):
                array = _whole(array, type, name).cast(target)
            else:
                array = array.cast(target)
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"column {name}: a value does not fit {type} without loss: {error}") from error
        except pa.ArrowNotImplementedError as error:
            raise InvalidInput(f"column {name}: {array.type} does not fit {type}; cast the column first") from error
    match type:
        case Scalar(Kind.CHAR | Kind.VARCHAR, (length,)):
            _limit(array, pc.utf8_length, length, type, "characters", name)
        case Scalar(Kind.BINARY | Kind.VARBINARY, (length,)):
            _limit(array, pc.binary_length, length, type, "bytes", name)
    return array


def _single(array: pa.Array, name: str) -> pa.Array:
    """Doubles rounded to 32 bits."""
    rounded = array.cast(pa.float32(), safe=False)
    if pc.any(beyond := pc.and_not(pc.is_finite(array), pc.is_finite(rounded)), min_count=0).as_py():
        raise InvalidInput(f"column {name}: {array.filter(beyond)[0].as_py()!r} becomes infinite as a float")
    return rounded


def _whole(array: pa.Array, type: Scalar, name: str) -> pa.Array:
    """Floats that may become integers:
    those of a size at which one float may stand for several integers are refused."""
    most = _CONSECUTIVE[array.type.bit_width]
    floats = array.cast(pa.float64())
    beyond = pc.greater(pc.abs(floats), most)
    if pc.any(beyond, min_count=0).as_py():
        raise InvalidInput(
            f"column {name}: {floats.filter(beyond)[0].as_py()!r} does not fit {type} without loss: a float above "
            f"{most:,} may stand for several integers; give integers (in pandas with nulls: dtype 'Int64')"
        )
    return floats


def _limit(
    array: pa.Array, measure: Callable[[pa.Array], pa.Array], length: int, type: Scalar, unit: str, name: str
) -> None:
    longest = pc.max(measure(array)).as_py()
    if longest is not None and longest > length:
        count = pc.sum(pc.greater(measure(array), length)).as_py()
        raise InvalidInput(
            f"column {name}: {count} values are longer than {type} holds; the longest has {longest} {unit}"
        )


def _nulls(name: str, count: int) -> InvalidInput:
    return InvalidInput(f"column {name} is NOT NULL, and the data has {count} null{'s' * (count > 1)} in it")
