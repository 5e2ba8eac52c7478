"""Values as SQL statements assign them to columns: Spark's ANSI store assignment (spark.sql.storeAssignmentPolicy)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, Row, Scalar, Type, scalar

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_NUMBERS = (*_INTEGERS, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_TEXTS = (Kind.STRING, Kind.VARCHAR, Kind.CHAR)
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)

Cast = Callable[[Any, pa.DataType], Any]


def stored(values: pa.Array | pa.ChunkedArray, target: Field, cast: Cast) -> pa.Array:
    """`values` cast by `cast` where store assignment casts, also inside structs, arrays and maps: numbers to numbers,
    dates and timestamps to each other, and numbers, booleans, dates and timestamps to text. All else is unchanged, and
    does not fit the column unless it has its type. Raises `InvalidInput` for a value that the type does not hold."""
    try:
        return _stored(layouts.plain(values), target.type, cast)
    except (pa.ArrowException, LakeError) as error:
        raise InvalidInput(f"column {target.name}: a value does not fit {target.type}: {error}") from error


def is_cast(source: Type, target: Type) -> bool:
    """Whether store assignment casts values of the type `source`, which differs from `target`."""
    match source, target:
        case Scalar(), Scalar():
            return _is_cast(to_arrow(source), target)
        case ListOf(item), ListOf(target_item):
            return _fits(item.type, target_item.type)
        case MapOf(), MapOf():
            return _fits(source.key.type, target.key.type) and _fits(source.value.type, target.value.type)
        case Row(parts), Row(target_parts) if [part.name for part in parts] == [part.name for part in target_parts]:
            return all(_fits(one.type, other.type) for one, other in zip(parts, target_parts, strict=True))
    return False


def labelled(source: Type, target: Type) -> Type:
    """The type `source` with its structs' fields called as those of `target` in the same places; a struct with another
    number of fields keeps its own names."""
    match source, target:
        case Row(parts), Row(target_parts) if len(parts) == len(target_parts):
            pairs = zip(parts, target_parts, strict=True)
            return Row(tuple(replace(part, name=to.name, type=labelled(part.type, to.type)) for part, to in pairs))
        case ListOf(item), ListOf(target_item):
            return ListOf(replace(item, type=labelled(item.type, target_item.type)))
        case MapOf(), MapOf():
            key = replace(source.key, type=labelled(source.key.type, target.key.type))
            value = replace(source.value, type=labelled(source.value.type, target.value.type))
            return MapOf(key, value)
    return source


def by_position(values: pa.ChunkedArray, target: Field) -> pa.ChunkedArray:
    """`values` with the fields of structs called as the target's in the same places, as INSERT by position takes
    them."""
    if not pa.types.is_nested(values.type):
        return values
    return pa.chunked_array([_labelled(layouts.plain(values), target.type)])


# --- private ----------------------------------------------------------------------------------------------------------


def _stored(array: Any, target: Type, cast: Cast) -> pa.Array:
    match target:
        case Row(parts) if pa.types.is_struct(array.type):
            by_name = {part.name: part for part in parts}
            names = [part.name for part in array.type]
            columns = [
                _stored(pc.struct_field(array, [index]), by_name[name].type, cast)
                if name in by_name
                else pc.struct_field(array, [index])
                for index, name in enumerate(names)
            ]
            return pa.StructArray.from_arrays(columns, names, mask=array.is_null()) if columns else array
        case ListOf(element) if pa.types.is_list(array.type):
            first, offsets = _offsets(array)
            elements = _stored(array.values.slice(first, offsets[-1].as_py()), element.type, cast)
            return pa.ListArray.from_arrays(offsets, elements, mask=array.is_null())
        case MapOf(key, value) if pa.types.is_map(array.type):
            first, offsets = _offsets(array)
            count = offsets[-1].as_py()
            keys = _stored(array.keys.slice(first, count), key.type, cast)
            items = _stored(array.items.slice(first, count), value.type, cast)
            return pa.MapArray.from_arrays(offsets, keys, items, mask=array.is_null())
        case Scalar() if _is_cast(array.type, target):
            wanted = pa.string() if target.kind in _TEXTS else to_arrow(target)
            return layouts.plain(cast(array, wanted))
    return array


def _labelled(array: Any, target: Type) -> pa.Array:
    match target:
        case Row(parts) if pa.types.is_struct(array.type) and len(parts) == array.type.num_fields and parts:
            fields = [_labelled(pc.struct_field(array, [index]), part.type) for index, part in enumerate(parts)]
            return pa.StructArray.from_arrays(fields, [part.name for part in parts], mask=array.is_null())
        case ListOf(element) if pa.types.is_list(array.type):
            first, offsets = _offsets(array)
            elements = _labelled(array.values.slice(first, offsets[-1].as_py()), element.type)
            return pa.ListArray.from_arrays(offsets, elements, mask=array.is_null())
        case MapOf(key, value) if pa.types.is_map(array.type):
            first, offsets = _offsets(array)
            count = offsets[-1].as_py()
            keys = _labelled(array.keys.slice(first, count), key.type)
            items = _labelled(array.items.slice(first, count), value.type)
            return pa.MapArray.from_arrays(offsets, keys, items, mask=array.is_null())
    return array


def _fits(source: Type, target: Type) -> bool:
    return source in (target, scalar(Kind.UNKNOWN)) or is_cast(source, target)


def _is_cast(source: pa.DataType, target: Scalar) -> bool:
    """Whether store assignment casts values of the Arrow type `source`."""
    t = pa.types
    is_number = t.is_integer(source) or t.is_floating(source) or t.is_decimal(source)
    is_time = t.is_date(source) or t.is_timestamp(source)
    if target.kind in _TEXTS:
        return is_number or is_time or t.is_boolean(source)
    if target.kind in _NUMBERS:
        return is_number
    return is_time and target.kind in _TIMES


def _offsets(array: Any) -> tuple[int, pa.Array]:
    """(the first entry, the offsets from there)."""
    offsets = array.offsets.to_numpy()
    return int(offsets[0]), pa.array(offsets - offsets[0])
