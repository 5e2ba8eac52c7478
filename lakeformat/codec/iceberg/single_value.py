"""Single values <-> bytes as in Iceberg's manifests (spec, Appendix D: binary single-value serialization)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import decimals, spans
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.wkb import Corner
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import Kind, Scalar, Type, scalar

# The stored widths of each type; an old value keeps its width when its column is widened.
_WIDTHS: dict[Kind, dict[int, str]] = {
    Kind.BOOLEAN: {1: "u1"},
    Kind.INT: {4: "<i4"},
    Kind.DATE: {4: "<i4"},
    Kind.BIGINT: {8: "<i8", 4: "<i4"},
    Kind.TIME_MICROS: {8: "<i8"},
    Kind.TIMESTAMP: {8: "<i8"},
    Kind.TIMESTAMP_TZ: {8: "<i8"},
    Kind.FLOAT: {4: "<f4"},
    Kind.DOUBLE: {8: "<f8", 4: "<f4"},
}
_TEXTS = (Kind.STRING, Kind.BYTES, Kind.FIXED, Kind.UUID)
_SIGN = np.uint64(63)  # The position of the sign bit in 64 bits.
_LONGS = (Kind.TIME_MICROS, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


def encode(values: pa.Array, type: Type) -> pa.Array:
    """Values of `type` -> binary; null stays null. Raises `UnsupportedFeature` for a type without a serialization."""
    match type:
        case Scalar(kind) if kind in _WIDTHS:
            width, code = next(iter(_WIDTHS[kind].items()))
            raw = values.cast(pa.int64()) if kind in _LONGS else values
            raw = raw.cast(pa.int32()) if kind is Kind.DATE else raw.cast(pa.uint8()) if kind is Kind.BOOLEAN else raw
            numbers = np.ascontiguousarray(raw.fill_null(0).to_numpy(zero_copy_only=False).astype(code))
            fixed = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(numbers)])
            encoded = fixed.cast(pa.binary())
        case Scalar(Kind.DECIMAL):
            wide = decimals.little_endian(values.fill_null(0))
            sizes = decimals.sizes(wide)
            data = wide[:, ::-1][np.arange(16) >= 16 - sizes[:, None]]
            encoded = spans.binary(np.concatenate([[0], np.cumsum(sizes)]), data).cast(pa.binary())
        case Scalar(kind) if kind in _TEXTS:
            return values.cast(pa.binary())
        case _:
            raise UnsupportedFeature(f"type {type} has no single value in manifests")
    return pc.if_else(values.is_valid(), encoded, pa.scalar(None, pa.binary())) if values.null_count else encoded


def corners(points: Sequence[Corner | None]) -> pa.Array:
    """Bounds of geometries -> binary: x, y, then z and m if known, as little-endian doubles; z is NaN if only m is
    known."""
    encoded = []
    for point in points:
        x, y, z, m = point or (0.0, 0.0, None, None)
        known = [x, y] if z is m is None else [x, y, z] if m is None else [x, y, float("nan") if z is None else z, m]
        encoded.append(None if point is None else struct.pack(f"<{len(known)}d", *known))
    return pa.array(encoded, pa.binary())


def decode_corners(data: pa.Array) -> pa.Array:
    """Binary -> corners of boxes around geometries: `x`, `y`, `z`, `m`, null if unknown."""
    lengths = np.asarray(pc.fill_null(pc.binary_length(data), 0))
    corners = np.full((len(data), 4), np.nan)
    for count in (2, 3, 4):
        rows = np.flatnonzero(lengths == 8 * count)
        if len(rows):
            fixed = data.take(pa.array(rows)).cast(pa.binary(8 * count))
            values = np.frombuffer(fixed.buffers()[1], "<f8")[fixed.offset * count :]
            corners[rows, :count] = values[: len(rows) * count].reshape(-1, count)
    columns = [pa.array(corners[:, index], mask=np.isnan(corners[:, index])) for index in range(4)]
    return pa.StructArray.from_arrays(columns, ["x", "y", "z", "m"], mask=pa.array(np.isnan(corners[:, 0])))


def decode_bounds(low: pa.Array, high: pa.Array, type: Type) -> tuple[pa.Array, pa.Array]:
    """Binary -> bounds of values of `type`; null if unknown.

    The specification orders UUIDs by their bytes. Java up to 1.10 compares them as two signed numbers, and orders
    partition summaries that way. The orders agree only on the first eight bytes, and only if all have the same sign.
    """
    least, most = decode(low, type), decode(high, type)
    if type != scalar(Kind.UUID):
        return least, most
    first, last = _halves(least), _halves(most)
    known = np.asarray(pc.and_(least.is_valid(), most.is_valid())) & (first >> _SIGN == last >> _SIGN)
    return _uuids(first, known, np.uint64(0)), _uuids(last, known, ~np.uint64(0))


def decode(data: pa.Array, type: Type) -> pa.Array:
    """Binary -> values of `type`; null for missing and for invalid bytes."""
    target = to_arrow(type)
    match type:
        case Scalar(kind) if kind in _WIDTHS:
            lengths = np.asarray(pc.fill_null(pc.binary_length(data), -1))
            numbers = np.zeros(len(data), next(iter(_WIDTHS[kind].values())))
            is_valid = np.zeros(len(data), bool)
            for width, code in _WIDTHS[kind].items():
                rows = np.flatnonzero(lengths == width)
                if len(rows):
                    fixed = data.take(pa.array(rows)).cast(pa.binary(width))
                    numbers[rows] = np.frombuffer(fixed.buffers()[1], code)[fixed.offset : fixed.offset + len(rows)]
                    is_valid[rows] = True
            if kind is Kind.BOOLEAN:
                return pa.array(numbers != 0, pa.bool_(), mask=~is_valid)
            return pa.array(numbers, mask=~is_valid).cast(target)
        case Scalar(Kind.DECIMAL):
            lengths = np.asarray(pc.fill_null(pc.binary_length(data), 0))
            is_valid = (lengths >= 1) & (lengths <= 16)
            buffer, offsets = spans.padded(data.fill_null(b""))
            end = np.where(is_valid, offsets[1:], offsets[:-1] + 1)
            return decimals.from_big_endian(buffer, offsets[:-1], end, target, ~is_valid)
        case Scalar(Kind.STRING):
            try:
                return data.cast(pa.string())
            except pa.ArrowInvalid:  # Some writers truncate text in the middle of a character.
                return pa.nulls(len(data), pa.string())
        case Scalar(Kind.BYTES):
            return data
        case Scalar(Kind.UUID | Kind.FIXED):
            lengths = pc.fill_null(pc.equal(pc.binary_length(data), target.byte_width), False)
            return pc.if_else(lengths, data, pa.scalar(None, pa.binary())).cast(target)
    raise UnsupportedFeature(f"type {type} has no single value in manifests")


def _halves(uuids: pa.Array) -> np.ndarray:
    """The first eight bytes of each UUID as a number; 0 for null."""
    filled = uuids.fill_null(bytes(16))
    whole = np.frombuffer(filled.buffers()[1], ">u8")[2 * filled.offset : 2 * (filled.offset + len(filled))]
    return whole[::2].astype(np.uint64)


def _uuids(first: np.ndarray, is_valid: np.ndarray, rest: np.uint64) -> pa.Array:
    """UUIDs with these first eight bytes and the last eight bytes `rest`; null where not `is_valid`."""
    whole = np.stack([first, np.full(len(first), rest)], axis=1).astype(">u8")
    uuids = pa.Array.from_buffers(pa.binary(16), len(first), [None, pa.py_buffer(whole.tobytes())])
    return pc.if_else(pa.array(is_valid), uuids, pa.scalar(None, pa.binary(16)))
