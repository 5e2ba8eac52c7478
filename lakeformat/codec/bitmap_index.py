"""Bitmaps and bit slices of a column of a data file, two kinds of Paimon's file indexes (BitmapFileIndex,
BitSliceIndexBitmapFileIndex)."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lakeformat.model.schema import Kind, Scalar, Type

_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.STRING})
_WIDTHS = {Kind.TINYINT: 1, Kind.SMALLINT: 2, Kind.INT: 4, Kind.BIGINT: 8, Kind.DATE: 4}  # Bytes of a value.
_Slices = tuple[
    int, int, BitMap, list[BitMap]
]  # Least and greatest value, the rows with a value, those with each bit set.


def in_bitmap(index: bytes, values: pa.Array, type: Type) -> bool:
    """Whether one of the values, without nulls, may have a bitmap (BitmapFileIndexMeta). In the second version they lie sorted in
    blocks, of which only those that a value falls into are searched (BitmapFileIndexMetaV2)."""
    version, _, count, has_null = struct.unpack_from(">bii?", index)
    if version not in (1, 2) or not isinstance(type, Scalar):
        return True
    at = 10 + (4 * version if has_null else 0)
    if type.kind in _TEXTS:  # Each text follows its length. If other bytes look the same by chance, the file is read.
        texts = values.cast(pa.large_binary()).to_pylist()
        return any(index.find(len(each).to_bytes(4, "big") + each, at) >= 0 for each in texts)
    if (width := _WIDTHS.get(type.kind)) is None:
        return True
    wanted, entry = _numbers(values, type), [("value", f">i{width}"), ("offset", ">i4")]
    if version == 1:
        return bool(np.isin(wanted, np.frombuffer(index, entry, count, at)["value"]).any())
    (blocks,) = struct.unpack_from(">i", index, at)
    first = np.frombuffer(index, entry, blocks, at + 4)
    start = at + 4 + first.nbytes + 4
    block_of = np.searchsorted(first["value"], wanted, side="right") - 1
    for block in np.unique(block_of[block_of >= 0]).tolist():
        begin = start + int(first["offset"][block])
        (size,) = struct.unpack_from(">i", index, begin)
        held = np.frombuffer(index, [*entry, ("length", ">i4")], size, begin + 4)["value"]
        if np.isin(wanted[block_of == block], held).any():
            return True
    return False


def in_slices(index: bytes, values: pa.Array, type: Type) -> bool:
    """Whether a row has the bits of one of the values, without nulls. Negative ones lie apart, as their absolute values."""
    if not isinstance(type, Scalar) or type.kind not in _WIDTHS or index[0] != 1:
        return True
    at, parts = 5, list[_Slices | None]()
    for _ in range(2):
        part, at = _slices(index, at + 1) if index[at] else (None, at + 1)
        parts.append(part)
    return any(_has(parts[value < 0], abs(value)) for value in _numbers(values, type).tolist())


def _slices(index: bytes, at: int) -> tuple[_Slices, int]:
    version, least, greatest = struct.unpack_from(">bqq", index, at)
    if version != 1:
        raise ValueError(f"bit slices of version {version}")
    rows, at = _bitmap(index, at + 17)
    (count,) = struct.unpack_from(">i", index, at)
    at, slices = at + 4, []
    for _ in range(count):
        each, at = _bitmap(index, at)
        slices.append(each)
    return (least, greatest, rows, slices), at


def _bitmap(index: bytes, at: int) -> tuple[BitMap, int]:
    bits = BitMap.deserialize(index[at:])
    return bits, at + len(bits.serialize())


def _has(part: _Slices | None, value: int) -> bool:
    if part is None or not part[0] <= value <= part[1]:
        return False
    least, _, rows, slices = part
    for bit, each in enumerate(slices):
        rows = rows & each if (value - least) >> bit & 1 else rows - each
    return bool(rows)


def _numbers(values: pa.Array, type: Scalar) -> np.ndarray:
    """Whole numbers, or the days of dates."""
    return np.asarray((values.cast(pa.int32()) if type.kind is Kind.DATE else values).cast(pa.int64()))
