"""Shredded variants -> variants: typed columns encoded and reassembled (VariantShredding.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.variant import bytes as variant_bytes
from lakeformat.codec.variant.bytes import BINARY, DECIMALS, FALSE, NULL, OBJECT, TEXT, TRUE, Names, Parts
from lakeformat.errors import CorruptFile, UnsupportedFeature

_NUMBERS = {type: number for number, type in variant_bytes.FIXED.items()}
_DECIMALS = ((9, 8), (18, 9), (38, 10))  # (the greatest precision, the number of the type).


def values(array: pa.Array) -> pa.Array:
    """The values of a shredded column (a struct with `metadata`, `typed_value` and maybe `value`); null for null rows.

    Raises `CorruptFile` for contradicting columns, and `UnsupportedFeature` for a type that cannot be shredded.
    """
    names = Names(_part(array, "metadata"))
    encoded = pc.fill_null(_encoded(array, names, np.arange(len(array))), NULL)
    return pc.if_else(array.is_valid(), encoded, pa.scalar(None, pa.binary()))


def _encoded(array: pa.Array, names: Names, rows: np.ndarray) -> pa.Array:
    """The values of a struct of `value` and `typed_value`, null if missing. `rows`: the row of each value."""
    value = _part(array, "value")
    if array.type.get_field_index("typed_value") < 0:
        return value
    typed = _part(array, "typed_value")
    if pa.types.is_struct(typed.type):
        encoded = _objects(typed, value, names, rows)
    else:
        if pc.any(pc.and_(typed.is_valid(), value.is_valid())).as_py():
            raise CorruptFile("a shredded variant holds both value and typed_value, and is not an object")
        encoded = _arrays(typed, names, rows) if _is_list(typed.type) else _primitives(typed)
    return pc.coalesce(encoded, value)


def _part(array: pa.Array, name: str) -> pa.Array:
    index = array.type.get_field_index(name)
    if index < 0:
        return pa.nulls(len(array), pa.binary())
    part = pc.struct_field(array, [index])
    if isinstance(part, pa.ExtensionArray):
        return part.storage
    return part.cast(pa.binary()) if name != "typed_value" else part


def _objects(typed: pa.Array, rest: pa.Array, names: Names, rows: np.ndarray) -> pa.Array:
    owners, ids, pieces = [], [], []
    for index, field in enumerate(typed.type):
        encoded = _encoded(pc.struct_field(typed, [index]), names, rows)
        present = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
        of_name = names.ids(field.name)[rows[present]]
        if (of_name < 0).any():
            raise CorruptFile(f"a variant's field {field.name!r} is not in its metadata")
        owners.append(present)
        ids.append(of_name)
        pieces.append(encoded.drop_null())
    left = np.flatnonzero(pc.and_(typed.is_valid(), rest.is_valid()).to_numpy(zero_copy_only=False))
    objects = variant_bytes.blobs(rest)
    if (variant_bytes.numbers(objects.data, objects.starts[left], 1) & 3 != OBJECT).any():
        raise CorruptFile("a shredded variant holds both value and typed_value, and value is not an object")
    parts: Parts = variant_bytes.fields(objects.data, objects.starts[left])
    owners.append(left[parts.owners])
    ids.append(parts.ids)
    pieces.append(variant_bytes.Blobs(objects.data, parts.starts, parts.ends).gather())
    owner, id = np.concatenate(owners), np.concatenate(ids)
    order = np.lexsort((names.ranks(rows[owner], id), owner))
    counts = np.bincount(owner, minlength=len(typed))
    encoded = variant_bytes.container(counts, pa.concat_arrays(pieces).take(pa.array(order)), id[order])
    return pc.if_else(typed.is_valid(), encoded, pa.scalar(None, pa.binary()))


def _arrays(typed: Any, names: Names, rows: np.ndarray) -> pa.Array:
    counts = pc.fill_null(pc.list_value_length(typed), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _encoded(typed.flatten(), names, np.repeat(rows, counts))
    made = variant_bytes.container(counts, pc.fill_null(elements, NULL))
    return pc.if_else(typed.is_valid(), made, pa.scalar(None, pa.binary()))


def _is_list(type: pa.DataType) -> bool:
    return pa.types.is_list(type) or pa.types.is_large_list(type)


def _primitives(array: pa.Array) -> pa.Array:
    t, type = pa.types, array.type
    if t.is_boolean(type):
        heads = pc.if_else(array, pa.scalar(TRUE << 2, pa.uint8()), pa.scalar(FALSE << 2, pa.uint8()))
        return _fixed(array, heads.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, 1))
    if t.is_string(type) or t.is_large_string(type):
        return _sized(array.cast(pa.binary()), is_text=True)
    if t.is_binary(type) or t.is_large_binary(type):
        return _sized(array.cast(pa.binary()), is_text=False)
    if t.is_decimal(type) and type.precision <= 38:
        number = next(number for most, number in _DECIMALS if type.precision <= most)
        unscaled = _raw(array.cast(pa.decimal128(38, type.scale)), 16)[:, : DECIMALS[number]]
        scale = np.full((len(array), 1), type.scale, np.uint8)
        return _headed(array, number, np.concatenate([scale, unscaled], axis=1))
    if type in _NUMBERS:
        return _headed(array, _NUMBERS[type], _raw(array, type.bit_width // 8))
    raise UnsupportedFeature(f"a variant shredded as {type} is not read")


def _raw(array: pa.Array, width: int) -> np.ndarray:
    """The bytes of fixed-width values, one matrix row each."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros((len(array), width), np.uint8)
    return np.frombuffer(data, np.uint8)[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _headed(array: pa.Array, number: int, payload: np.ndarray) -> pa.Array:
    heads = np.full((len(array), 1), number << 2, np.uint8)
    return _fixed(array, np.concatenate([heads, payload], axis=1))


def _fixed(array: pa.Array, rows: np.ndarray) -> pa.Array:
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    return variant_bytes.binary(offsets, rows.ravel(), array.is_valid().to_numpy(zero_copy_only=False))


def _sized(array: pa.Array, is_text: bool) -> pa.Array:
    """Text or bytes after their length; text below 64 bytes has its length in the header."""
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.uint32)
    is_short = (lengths < 64) & is_text
    heads = np.empty((len(array), 5), np.uint8)
    heads[:, 0] = np.where(is_short, lengths << 2 | 1, (TEXT if is_text else BINARY) << 2)
    heads[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    kept = np.ones((len(array), 5), bool)
    kept[:, 1:] = ~is_short[:, None]
    offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return pc.binary_join_element_wise(variant_bytes.binary(offsets, heads[kept]), array, pa.scalar(b"", pa.binary()))
