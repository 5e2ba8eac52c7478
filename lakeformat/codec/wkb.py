"""The bounding box of a column of geometries in WKB (ISO, as in Iceberg's specification, Appendix G), without a loop
over rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakeformat.codec import spans
from lakeformat.errors import InvalidInput

# x, y, z, m; None unless every geometry has the coordinate.
Corner = tuple[float, float, float | None, float | None]

_POINT, _LINE, _POLYGON, _MULTIPOINT, _COLLECTION = 1, 2, 3, 4, 7
_RING = 0  # Not a WKB type: a ring of a polygon has neither byte order nor type.
_COUNTED = 9  # Byte order, type, count.
_MAX_DEPTH = 16
_ROWS = 1 << 16  # Rows that are decoded together.
_FLAGS = 0xE0000000  # The flags of PostGIS's EWKB: z, m, srid.


def box(column: pa.ChunkedArray | pa.Array, name: str) -> tuple[Corner, Corner] | None:
    """(lower, upper) corner of the box around all geometries; None if no x or no y is known. NaN coordinates are
    ignored.

    Raises `InvalidInput` naming the column `name` for a value that is not WKB of one of ISO's seven types.
    """
    low, high = np.full(4, np.inf), np.full(4, -np.inf)
    everywhere = np.ones(4, bool)  # Per coordinate: whether all geometries have it.
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    for chunk in chunks:
        for start in range(0, len(chunk), _ROWS):
            for values, has in _coordinates(chunk.slice(start, _ROWS).drop_null(), name):
                everywhere[2:] &= has
                places = [0, 1, *(position for position, there in zip((2, 3), has, strict=True) if there)]
                if len(values):
                    low[places] = np.fmin(low[places], np.fmin.reduce(values, axis=0))
                    high[places] = np.fmax(high[places], np.fmax.reduce(values, axis=0))
    is_bounded = everywhere & (low <= high)
    if not is_bounded[:2].all():
        return None
    return _corner(low, is_bounded), _corner(high, is_bounded)


def joined(one: tuple[Corner, Corner], other: tuple[Corner, Corner]) -> tuple[Corner, Corner]:
    """The box around two boxes; a coordinate that one of them lacks is unknown."""
    ends = []
    for choose, left, right in zip((min, max), one, other, strict=True):
        ends.append(tuple(None if a is None or b is None else choose(a, b) for a, b in zip(left, right, strict=True)))
    return ends[0], ends[1]  # type: ignore[return-value]  # Tuples of four, as given.


def _corner(values: np.ndarray, is_bounded: np.ndarray) -> Corner:
    z, m = (float(values[i]) if is_bounded[i] else None for i in (2, 3))
    return float(values[0]), float(values[1]), z, m


def _coordinates(values: pa.Array, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(coordinates, one row per point; whether they have z and m), grouped by dimensions.

    All rows are walked in lockstep: each step reads the next header of every unfinished row, which determines the run
    of coordinates after it.
    """
    data, offsets = spans.padded(values)
    if (points := _points(data, offsets)) is not None:
        yield points
        return
    position, end = offsets[:-1].copy(), offsets[1:]
    left = np.zeros((len(values), _MAX_DEPTH + 1), np.int64)  # Per row and depth: the geometries or rings left.
    inner = np.zeros((len(values), _MAX_DEPTH + 1), np.int64)  # The type that they must have; -1 for any.
    # Per row and depth: the type's thousands (z, m, both); the byte order in the last bit.
    shapes = np.zeros((len(values), _MAX_DEPTH + 1), np.int64)
    depth = np.zeros(len(values), np.int64)
    left[:, 0], inner[:, 0] = 1, -1
    rows = np.arange(len(values))
    while len(rows):
        header, level = position[rows], depth[rows]
        left[rows, level] -= 1
        inner_type, shape = inner[rows, level], shapes[rows, level]
        is_ring = inner_type == _RING
        _check(np.where(is_ring, True, header + 5 <= end[rows]), values, rows, name, "it ends within a header")
        order = np.where(is_ring, shape & 1, data[header])
        _check(order <= 1, values, rows, name, "its byte order is neither 0 nor 1")
        code = _number(data, np.where(is_ring, header, header + 1), order)
        _check(is_ring | (code & _FLAGS == 0), values, rows, name, "it is EWKB (PostGIS's flags); write it as ISO WKB")
        kind = np.where(is_ring, _RING, code % 1000)
        dims = np.where(is_ring, shape >> 1, code // 1000)
        fits = is_ring | ((kind >= _POINT) & (kind <= _COLLECTION) & (dims <= 3))
        fits &= (inner_type < 0) | (kind == inner_type)
        fits &= (level == 0) | (dims == shape >> 1)
        _check(fits, values, rows, name, "its type is not one of ISO's seven, or not that of its collection")
        width = 8 * (2 + (dims & 1) + (dims >> 1))
        is_point = kind == _POINT
        count_at = np.where(is_ring, header, header + 5)
        _check(is_point | (count_at + 4 <= end[rows]), values, rows, name, "it ends within a header")
        count = np.where(is_point, 1, _number(data, np.minimum(count_at, len(data) - 4), order))
        begin = np.where(is_point, header + 5, count_at + 4)
        is_run = is_point | is_ring | (kind == _LINE)
        least = np.where(
            is_run, width, np.where(kind == _POLYGON, 4, np.where(kind == _MULTIPOINT, 5 + width, _COUNTED))
        )
        # A point of a collection takes more than nine bytes too.
        stop = begin + count * least
        _check(stop <= end[rows], values, rows, name, "it ends before its last coordinate")
        yield from _runs(data, begin[is_run], count[is_run], order[is_run], dims[is_run])
        position[rows] = np.where(is_run, stop, begin)
        opens = ~is_run & (count > 0)
        _check(~opens | (level < _MAX_DEPTH), values, rows, name, f"it is nested more than {_MAX_DEPTH} deep")
        parents = rows[opens]
        depth[parents] += 1
        to = depth[parents]
        left[parents, to] = count[opens]
        of = kind[opens]
        inner[parents, to] = np.where(of == _POLYGON, _RING, np.where(of == _COLLECTION, -1, of - 3))
        shapes[parents, to] = dims[opens] << 1 | order[opens]
        # Return to the depth with geometries left; at depth 0 a row is done.
        while len(over := rows[(left[rows, depth[rows]] == 0) & (depth[rows] > 0)]):
            depth[over] -= 1
        done = left[rows, depth[rows]] == 0
        _check(~done | (position[rows] == end[rows]), values, rows, name, "bytes follow its end")
        rows = rows[~done]


def _points(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The coordinates of rows that are all points of one form, which most columns are; else None."""
    sizes = np.diff(offsets)
    if not len(sizes) or sizes[0] not in (21, 29, 37) or (sizes != sizes[0]).any():
        return None
    size = int(sizes[0])
    rows = data[: offsets[-1]].reshape(len(sizes), size)
    order, code = int(rows[0, 0]), int(_number(data, np.array([1]), rows[0, :1])[0])
    dims = code // 1000
    if order > 1 or code % 1000 != _POINT or dims > 3 or size != 21 + 8 * int(_has(dims).sum()):
        return None
    if (rows[:, :5] != rows[0, :5]).any():
        return None
    return np.ndarray((len(sizes), size // 8), "<f8" if order else ">f8", data, 5, (size, 8)), _has(dims)


def _runs(
    data: np.ndarray, begin: np.ndarray, count: np.ndarray, order: np.ndarray, dims: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for shape in np.unique(dims << 1 | order):
        chosen = np.flatnonzero(dims << 1 | order == shape)
        has = _has(int(shape) >> 1)
        size = 2 + int(has.sum())
        first = np.repeat(begin[chosen] - 8 * size * (np.cumsum(count[chosen]) - count[chosen]), count[chosen])
        starts = first + 8 * size * np.arange(len(first))
        # A double beginning at each byte, without a copy: numpy reads unaligned ones.
        doubles = np.ndarray((max(0, len(data) - 7),), "<f8" if shape & 1 else ">f8", data, 0, (1,))
        yield np.stack([doubles[starts + 8 * i] for i in range(size)], axis=1).astype(float), has


def _has(dims: int) -> np.ndarray:
    return np.array([dims in (1, 3), dims in (2, 3)])


def _number(data: np.ndarray, offsets: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The four bytes at each `offsets` as a number: little-endian where `order` is 1."""
    size = max(0, len(data) - 3)
    little, big = (np.ndarray((size,), code, data, 0, (1,)) for code in ("<u4", ">u4"))
    return np.where(order == 1, little[offsets], big[offsets]).astype(np.int64)


def _check(fits: np.ndarray, values: pa.Array, rows: np.ndarray, name: str, why: str) -> None:
    if not fits.all():
        first = values[int(rows[np.flatnonzero(~fits)[0]])].as_py()
        shown = first[:24].hex() + ("..." if len(first) > 24 else "")
        raise InvalidInput(f"column {name}: X'{shown}' is not WKB: {why}")
