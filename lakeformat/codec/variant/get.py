"""A part of variants, by path, as a column of a plain type: Spark's `variant_get`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.variant import bytes as variant_bytes
from lakeformat.codec.variant.bytes import (
    ARRAY,
    BINARY,
    DECIMALS,
    FALSE,
    FIXED,
    OBJECT,
    SHORT_TEXT,
    TEXT,
    TRUE,
    Blobs,
    Names,
    Parts,
)
from lakeformat.errors import CorruptFile, InvalidInput

_STEP = re.compile(r"""\.(?P<name>[^.\['"]+)|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\]|\[(?P<index>\d+)\]""")

_NULL = 0


def steps(path: str) -> tuple[str | int, ...]:
    """The names and indices of a path such as `$.a['b c'][0]`. Raises `InvalidInput`."""
    parsed: list[str | int] = []
    offset = 1
    while path.startswith("$") and offset < len(path):
        step = _STEP.match(path, offset)
        if step is None:
            break
        name = next((step[group] for group in ("name", "single", "double") if step[group] is not None), None)
        parsed.append(int(step["index"]) if name is None else name)
        offset = step.end()
    if not path.startswith("$") or offset < len(path):
        raise InvalidInput(f"{path!r} is not a path into a variant; write one such as $.name, $['a name'] or $.list[0]")
    return tuple(parsed)


def get(
    variants: pa.Array, path: str, target: pa.DataType, cast: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """The values at `path`, each cast to `target`; null where the path is missing or its value is a variant null.

    Raises `InvalidInput` for objects and arrays, which have no plain type, and the errors of `cast`.
    """
    present = np.flatnonzero(variants.is_valid().to_numpy(zero_copy_only=False))
    values = variant_bytes.blobs(pc.struct_field(variants, "value"))
    metadata = Names(pc.struct_field(variants, "metadata"))
    rows, starts = present, values.starts[present]
    for step in steps(path):
        kinds = variant_bytes.numbers(values.data, starts, 1) & 3
        is_open = kinds == (OBJECT if isinstance(step, str) else ARRAY)
        rows, starts = rows[is_open], starts[is_open]
        parts: Parts
        if isinstance(step, str):
            parts = variant_bytes.fields(values.data, starts)
            is_step = metadata.are(step, rows[parts.owners], parts.ids)
        else:
            parts = variant_bytes.elements(values.data, starts)
            is_step = parts.ids == step
        rows, starts = rows[parts.owners[is_step]], parts.starts[is_step]
    if np.isin(variant_bytes.numbers(values.data, starts, 1) & 3, (OBJECT, ARRAY)).any():
        raise InvalidInput(
            f"some values at {path} are objects or arrays, which become no plain value; ask for a part of them"
        )
    places: list[np.ndarray] = []
    pieces: list[pa.Array] = []
    for at, array in decoded(values.data, starts):
        places.append(rows[at])
        pieces.append(cast(array, target))
    order = np.full(len(variants), -1)
    if places:
        every = np.concatenate(places)
        order[every] = np.arange(len(every))
    flat = pa.concat_arrays(pieces) if pieces else pa.array([], target)
    return flat.take(pa.array(order, pa.int64(), mask=order < 0))


def decoded(data: np.ndarray, starts: np.ndarray) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """(indexes into `starts`, the values there) for each plain type; without nulls. Raises `CorruptFile`."""
    heads = variant_bytes.numbers(data, starts, 1)
    kinds, heads = heads & 3, heads >> 2
    rows = np.flatnonzero(kinds == SHORT_TEXT)
    if len(rows):
        yield rows, _text(_blobs(data, starts[rows] + 1, heads[rows]))
    for head in np.unique(heads[kinds == variant_bytes.PRIMITIVE]).tolist():
        rows = np.flatnonzero((kinds == variant_bytes.PRIMITIVE) & (heads == head))
        here = starts[rows] + 1
        if head == _NULL:
            continue
        if head in (TRUE, FALSE):
            yield rows, pa.repeat(head == TRUE, len(rows))
        elif head in (TEXT, BINARY):
            inner = _blobs(data, here + 4, variant_bytes.numbers(data, here, 4))
            yield rows, _text(inner) if head == TEXT else inner
        elif head in DECIMALS:
            scales = variant_bytes.numbers(data, here, 1)
            for scale in np.unique(scales).tolist():
                same = scales == scale
                yield rows[same], _decimals(_matrix(data, here[same] + 1, DECIMALS[head]), scale)
        elif head in FIXED:
            type = FIXED[head]
            numbers = np.ascontiguousarray(_matrix(data, here, type.bit_width // 8))
            yield rows, pa.Array.from_buffers(type, len(rows), [None, pa.py_buffer(numbers)])
        else:
            raise CorruptFile(f"a variant of the primitive type {head}, which is not known")


def _text(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptFile("a variant's text is not UTF-8") from error


def _blobs(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.Array:
    return Blobs(data, starts, starts + sizes).gather()


def _matrix(data: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    if int(starts.max()) + width > len(data):
        raise CorruptFile("a variant ends before its values do")
    return data[starts[:, None] + np.arange(width)]


def _decimals(unscaled: np.ndarray, scale: int) -> pa.Array:
    """Little-endian numbers of 4, 8 or 16 bytes as decimals of the greatest precision of that size."""
    if scale > 38:
        raise CorruptFile(f"a variant's decimal of scale {scale}; 38 is the most")
    count, width = unscaled.shape
    wide = np.repeat(np.where(unscaled[:, -1:] >= 128, 255, 0).astype(np.uint8), 16, axis=1)
    wide[:, :width] = unscaled
    most = max(scale, {4: 10, 8: 19, 16: 38}[width])
    return pa.Array.from_buffers(pa.decimal128(most, scale), count, [None, pa.py_buffer(np.ascontiguousarray(wide))])
