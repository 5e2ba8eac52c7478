"""Variants -> shredded columns: frequent parts as typed columns of their own (VariantShredding.md).

Parts are described by an Arrow type: a struct for the names of objects, a list for the elements of arrays, else the
type of the values; `pa.null()` is a part without a type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.variant import bytes as variant_bytes
from lakeformat.codec.variant import get as variant_get
from lakeformat.codec.variant.bytes import (
    ARRAY,
    BINARY,
    DECIMALS,
    FALSE,
    FIXED,
    OBJECT,
    PRIMITIVE,
    SHORT_TEXT,
    TEXT,
    TRUE,
    Blobs,
    Names,
)
from lakeformat.errors import CorruptFile
from lakeformat.model.dataclass import dataclass
from lakeformat.model.type_text import parse_type

_WHOLE = (3, 4, 5, 6)  # The primitive types of integers.
_UNTYPED = pa.null()
_ELEMENT = 536870911 + 1024 + 1  # The field id of the elements of the array `typed_value`, whose own id is 1.


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on inferred shredding: a part needs a `share` of the rows, up to `columns` columns and `depth` levels,
    judged by a sample of `rows` rows."""

    rows: int = 100
    columns: int = 300
    depth: int = 50
    share: float = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """Which parts of a table's variants are shredded: the `named` ones, or those that `infer` finds."""

    limits: Limits | None = None
    # By variant column: its parts, as the text of a type, as a list of it, or as a mapping of object names.
    named: Mapping[str, Any] = field(default_factory=dict)
    # Whether to shred decimals, times and timestamps, which Java Paimon 1.3.1 cannot read from shredded columns.
    all_types: bool = True

    def emit(self) -> str:
        """The text of the `WriteTask` option."""
        return json.dumps(asdict(self))

    def parts(self, name: str, first: pa.ChunkedArray) -> pa.DataType:
        """The shredded parts of a column, given its first rows."""
        if name in self.named:
            shape = _declared_type(self.named[name])
        else:
            shape = infer(first, self.limits) if self.limits else _UNTYPED
        return shape if self.all_types else _plainest(shape)


def options(text: str) -> Options:
    """The inverse of `Options.emit`."""
    document = json.loads(text)
    return Options(
        Limits(**document["limits"]) if document["limits"] else None, document["named"], document["all_types"]
    )


def _plainest(type: pa.DataType) -> pa.DataType:
    """The parts without decimals, times and timestamps."""
    if isinstance(type, pa.StructType):
        kept = [(part.name, _plainest(part.type)) for part in type]
        fields = [pa.field(name, part) for name, part in kept if part != _UNTYPED]
        return pa.struct(fields) if fields else _UNTYPED
    if isinstance(type, pa.ListType):
        element = _plainest(type.value_type)
        return _UNTYPED if element == _UNTYPED else pa.list_(element)
    is_plain = not (pa.types.is_decimal(type) or pa.types.is_timestamp(type) or pa.types.is_time(type))
    return type if is_plain else _UNTYPED


def _declared_type(parts: Any) -> pa.DataType:
    match parts:
        case dict():
            return pa.struct([pa.field(name, _declared_type(part)) for name, part in parts.items()])
        case [element]:
            return pa.list_(_declared_type(element))
    given = to_arrow(parse_type(parts))
    return given if _numbers(given) else _UNTYPED  # Variants may have no values of this type.


def infer(variants: pa.ChunkedArray | pa.Array, limits: Limits) -> pa.DataType:
    """The parts of variants to shred, judged by evenly spread rows."""
    present = pa.chunked_array([variants]) if isinstance(variants, pa.Array) else variants
    present = present.drop_null()
    count = min(limits.rows, len(present))
    if not count:
        return _UNTYPED
    sample: Any = present.take(pa.array(np.arange(count) * len(present) // count)).combine_chunks()
    names = Names(pc.struct_field(sample, "metadata"))
    values = variant_bytes.blobs(pc.struct_field(sample, "value"))
    judge = _Judge(values.data, names, max(1, int(np.ceil(count * limits.share))), limits.columns)
    return judge.part(np.arange(count), values.starts, limits.depth)


def stored(parts: pa.DataType) -> pa.DataType:
    """The type of a shredded column: `metadata`, `value` for what is not shredded, `typed_value`."""
    group: Any = _group(parts)
    return pa.struct([pa.field("metadata", pa.binary(), nullable=False), *group])


def numbered(type: Any) -> pa.DataType:
    """The type of a shredded column with field ids, without which Paimon's Java engines read no part. They number a
    field by its index in its struct, and the element of an array as SpecialFields does."""
    if isinstance(type, pa.StructType):
        return pa.struct([_numbered(part, index) for index, part in enumerate(type)])
    if isinstance(type, pa.ListType):
        return pa.list_(_numbered(type.value_field, _ELEMENT))
    return type


def _numbered(field: pa.Field, id: int) -> pa.Field:
    return field.with_type(numbered(field.type)).with_metadata({b"PARQUET:field_id": str(id).encode()})


def shred(variants: pa.Array, parts: pa.DataType) -> pa.Array:
    """Variants in the form `variant.ARROW` as a column of the type `stored(parts)`.

    Values of another type than their column, or that would not be read back as the same value, stay in `value`.
    Integers and decimals take the width of their column. Raises `CorruptFile` for bytes that are no variants.
    """
    metadata = pc.struct_field(variants, "metadata")
    values = variant_bytes.blobs(pc.struct_field(variants, "value"))
    valid = variants.is_valid().to_numpy(zero_copy_only=False)
    names = Names(metadata)
    split = _Split(values.data, names)
    columns = split.columns(np.arange(len(valid)), np.where(valid, values.starts, -1), values.ends, parts)
    metadata = pc.fill_null(names.sorted_where_said(metadata), b"")
    return _struct([metadata, *columns], stored(parts), valid)


@dataclass(slots=True)
class _Judge:
    data: np.ndarray
    names: Names
    least: int  # The fewest rows of a part that is shredded.
    left: int  # Columns left to assign.

    def part(self, rows: np.ndarray, starts: np.ndarray, depth: int) -> pa.DataType:
        """The most frequent type of the values at `starts`."""
        kinds, numbers = _kinds(self.data, starts)
        numbers = np.where(np.isin(numbers, _WHOLE), _WHOLE[-1], np.where(np.isin(numbers, list(DECIMALS)), 8, numbers))
        numbers = np.where(numbers == FALSE, TRUE, numbers)
        # Objects and arrays share the scale of primitive type numbers, of which 0 is the variant null.
        distinct, counts = np.unique(np.where(kinds == PRIMITIVE, numbers, kinds << 8), return_counts=True)
        counts = np.where(distinct == 0, 0, counts)
        if self.left <= 0 or not counts.any():
            return _UNTYPED
        most = int(distinct[np.argmax(counts)])
        if most >> 8:
            chosen = np.flatnonzero(kinds == most >> 8)
            if depth <= 0:
                return _UNTYPED
            return (self._object if most >> 8 == OBJECT else self._array)(rows[chosen], starts[chosen], depth)
        type = self._decimal(starts[(kinds == PRIMITIVE) & (numbers == 8)]) if most in DECIMALS else _plain(most)
        self.left -= type != _UNTYPED
        return type

    def _object(self, rows: np.ndarray, starts: np.ndarray, depth: int) -> pa.DataType:
        parts = variant_bytes.fields(self.data, starts)
        codes = self.names.codes(rows[parts.owners], parts.ids)
        distinct, counts = np.unique(codes, return_counts=True)
        # The most frequent names first, while columns are left.
        fields = []
        for index in np.lexsort((distinct, -counts)).tolist():
            name = self.names.name(int(distinct[index]))
            if counts[index] < self.least or not name:
                continue
            at = codes == distinct[index]
            type = self.part(rows[parts.owners[at]], parts.starts[at], depth - 1)
            if type != _UNTYPED:
                fields.append(pa.field(name, type))
        fields.sort(key=lambda part: part.name)
        return pa.struct(fields) if fields else _UNTYPED

    def _array(self, rows: np.ndarray, starts: np.ndarray, depth: int) -> pa.DataType:
        parts = variant_bytes.elements(self.data, starts)
        type = self.part(rows[parts.owners], parts.starts, depth - 1)
        return _UNTYPED if type == _UNTYPED else pa.list_(type)

    def _decimal(self, starts: np.ndarray) -> pa.DataType:
        """The decimal type of 18 or 38 digits for the largest values and the most decimal places."""
        scale = whole = 0
        for _, decimals in variant_get.decoded(self.data, starts):
            type: Any = decimals.type
            bounds = pc.min_max(decimals).as_py()
            largest = max(abs(bounds["min"]), abs(bounds["max"]))
            scale, whole = max(scale, type.scale), max(whole, largest.adjusted() + 1 if largest else 0)
        digits = scale + whole
        return pa.decimal128(18 if digits <= 18 else 38, scale) if digits <= 38 else _UNTYPED


@dataclass(frozen=True, slots=True)
class _Split:
    data: np.ndarray
    names: Names

    def columns(self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, type: pa.DataType) -> list[pa.Array]:
        """`value` and, for a part with a type, `typed_value` of the values at `starts`, which are below 0 for missing
        values. `rows`: the row of each value."""
        present = np.flatnonzero(starts >= 0)
        kinds, numbers = _kinds(self.data, starts[present])
        if isinstance(type, pa.StructType):
            chosen = present[kinds == OBJECT]
            rest, typed = self._objects(rows, starts, chosen, type)
            whole = present[kinds != OBJECT]
        elif isinstance(type, pa.ListType):
            chosen = present[kinds == ARRAY]
            rest, typed = None, self._arrays(rows, starts, chosen, type)
            whole = present[kinds != ARRAY]
        elif type == _UNTYPED:
            return [self._values(starts, ends, present, None)]
        else:
            fits = (kinds == PRIMITIVE) & np.isin(numbers, _numbers(type))
            typed = self._primitives(starts, present[fits], type)
            rest, whole = None, present[~typed.is_valid().to_numpy(zero_copy_only=False)[present]]
        return [self._values(starts, ends, whole, rest), typed]

    def _values(
        self, starts: np.ndarray, ends: np.ndarray, whole: np.ndarray, rest: tuple[np.ndarray, pa.Array] | None
    ) -> pa.Array:
        """The bytes of the values at `whole`, and `rest` as (other positions, their bytes)."""
        values = Blobs(self.data, starts[whole], ends[whole]).gather()
        return _placed(len(starts), [(whole, values), *([rest] if rest else [])], pa.binary())

    def _objects(
        self, rows: np.ndarray, starts: np.ndarray, chosen: np.ndarray, type: pa.StructType
    ) -> tuple[tuple[np.ndarray, pa.Array], pa.Array]:
        parts = variant_bytes.fields(self.data, starts[chosen])
        owners = chosen[parts.owners]
        codes = self.names.codes(rows[owners], parts.ids)
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        left = np.ones(len(codes), bool)
        groups = []
        for part in type:
            code = self.names.code(part.name)
            low, high = np.searchsorted(ordered, [code, code + 1]) if code >= 0 else (0, 0)
            mine = order[low:high]
            if (np.diff(owners[mine]) == 0).any():
                raise CorruptFile(f"a variant's object has the field {part.name!r} twice")
            left[mine] = False
            begin, end = np.full(len(starts), -1), np.zeros(len(starts), np.int64)
            begin[owners[mine]], end[owners[mine]] = parts.starts[mine], parts.ends[mine]
            groups.append(_struct(self.columns(rows, begin, end, part.type), _group(part.type)))
        counts = np.bincount(parts.owners[left], minlength=len(chosen))
        values = Blobs(self.data, parts.starts[left], parts.ends[left]).gather()
        rest = variant_bytes.container(counts[counts > 0], values, parts.ids[left])
        return (chosen[counts > 0], rest), _struct(groups, _typed(type), _mask(len(starts), chosen))

    def _arrays(self, rows: np.ndarray, starts: np.ndarray, chosen: np.ndarray, type: pa.ListType) -> pa.Array:
        parts = variant_bytes.elements(self.data, starts[chosen])
        columns = self.columns(rows[chosen][parts.owners], parts.starts, parts.ends, type.value_type)
        counts = np.zeros(len(starts), np.int64)
        counts[chosen] = np.bincount(parts.owners, minlength=len(chosen))
        offsets = pa.py_buffer(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        mask = pa.array(_mask(len(starts), chosen)).buffers()[1]
        group = _struct(columns, _group(type.value_type))
        return pa.Array.from_buffers(_typed(type), len(starts), [mask, offsets], children=[group])

    def _primitives(self, starts: np.ndarray, chosen: np.ndarray, type: pa.DataType) -> pa.Array:
        parts = []
        for places, values in variant_get.decoded(self.data, starts[chosen]):
            fits = _fits(values, type)
            if fits is not None:
                places, values = places[fits.to_numpy(zero_copy_only=False)], values.filter(fits)
            parts.append((chosen[places], values.cast(type)))
        return _placed(len(starts), parts, type)


def _kinds(data: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The basic type of each value, with short text as text, and the number of its primitive type."""
    heads = variant_bytes.numbers(data, starts, 1)
    is_short = heads & 3 == SHORT_TEXT
    return np.where(is_short, PRIMITIVE, heads & 3), np.where(is_short, TEXT, heads >> 2)


def _plain(number: int) -> pa.DataType:
    """The Arrow type of a primitive type; UUIDs have none."""
    if number in (TRUE, TEXT, BINARY):
        return {TRUE: pa.bool_(), TEXT: pa.string(), BINARY: pa.binary()}[number]
    type = FIXED.get(number, _UNTYPED)
    return _UNTYPED if isinstance(type, pa.FixedSizeBinaryType) else type


def _numbers(type: pa.DataType) -> list[int]:
    """The primitive types that a column of the type can hold."""
    if pa.types.is_decimal(type):
        return list(DECIMALS)
    if pa.types.is_integer(type):
        return list(_WHOLE)
    known: dict[pa.DataType, list[int]] = {pa.bool_(): [TRUE, FALSE], pa.string(): [TEXT], pa.binary(): [BINARY]}
    return known.get(type) or [number for number, known_type in FIXED.items() if known_type == type]


def _fits(values: Any, type: Any) -> Any:
    """Which values a column of the type holds unchanged; None: all."""
    if pa.types.is_integer(type) and values.type.bit_width > type.bit_width:
        most = 1 << type.bit_width - 1
        return pc.and_(
            pc.greater_equal(values, pa.scalar(-most, values.type)), pc.less(values, pa.scalar(most, values.type))
        )
    if not pa.types.is_decimal(type):
        return None
    if values.type.scale > type.scale:
        return pa.repeat(False, len(values))
    wide = values.cast(pa.decimal256(76, type.scale))
    most = pa.scalar(10 ** (type.precision - type.scale), wide.type)
    return pc.less(pc.abs(wide), most)


def _placed(count: int, parts: list[tuple[np.ndarray, pa.Array]], type: pa.DataType) -> pa.Array:
    """A column of `count` values: those in `parts` at their positions, null elsewhere."""
    parts = [part for part in parts if len(part[1])]
    if not parts:
        return pa.nulls(count, type)
    order = np.full(count, -1)
    order[np.concatenate([places for places, _ in parts])] = np.arange(sum(len(part) for part, _ in parts))
    values = pa.concat_arrays([values for _, values in parts]) if len(parts) > 1 else parts[0][1]
    return values.take(pa.array(order, pa.int64(), mask=order < 0))


def _mask(count: int, valid: np.ndarray) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[valid] = True
    return mask


def _struct(columns: list[pa.Array], type: Any, valid: np.ndarray | None = None) -> pa.Array:
    mask = None if valid is None or valid.all() else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(type, len(columns[0]), [mask], children=columns)


def _group(type: pa.DataType) -> pa.DataType:
    value = pa.field("value", pa.binary())
    return pa.struct([value] if type == _UNTYPED else [value, pa.field("typed_value", _typed(type))])


def _typed(type: pa.DataType) -> pa.DataType:
    if isinstance(type, pa.StructType):
        return pa.struct([pa.field(part.name, _group(part.type), nullable=False) for part in type])
    if isinstance(type, pa.ListType):
        return pa.list_(pa.field("element", _group(type.value_type), nullable=False))
    return type
