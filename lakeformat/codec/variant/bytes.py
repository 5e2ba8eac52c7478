"""The bytes of variants, by whole columns: names, objects and arrays decoded and encoded (VariantEncoding.md)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import CorruptFile
from lakeformat.model.dataclass import dataclass

PRIMITIVE, SHORT_TEXT, OBJECT, ARRAY = range(4)  # The basic type: the lowest two bits of a value.
NULL = b"\x00"

# The Arrow type of fixed-size primitive types, by number; then the numbers of the other types.
FIXED = {
    3: pa.int8(),
    4: pa.int16(),
    5: pa.int32(),
    6: pa.int64(),
    7: pa.float64(),
    11: pa.date32(),
    12: pa.timestamp("us", "UTC"),
    13: pa.timestamp("us"),
    14: pa.float32(),
    17: pa.time64("us"),
    18: pa.timestamp("ns", "UTC"),
    19: pa.timestamp("ns"),
    20: pa.binary(16),
}
TRUE, FALSE, BINARY, TEXT = 1, 2, 15, 16
_SORTED = np.uint8(0x10)  # In the first byte of metadata.
DECIMALS = {8: 4, 9: 8, 10: 16}  # The bytes of each decimal type.


@dataclass(frozen=True, slots=True)
class Blobs:
    """Binaries as numpy arrays: `data`, and the start and end of each in it."""

    data: np.ndarray  # uint8
    starts: np.ndarray
    ends: np.ndarray

    def gather(self) -> pa.Array:
        """The binaries as an Arrow column, copied."""
        sizes = self.ends - self.starts
        if len(sizes) and (sizes.min() < 0 or self.ends.max() > len(self.data)):
            raise CorruptFile("a variant ends before its values do")
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(self.starts - offsets[:-1], sizes) + np.arange(offsets[-1])
        return binary(offsets, self.data[places])


@dataclass(frozen=True, slots=True)
class Parts:
    """The fields of objects or the elements of arrays, concatenated: their owners, ids and bytes."""

    owners: np.ndarray
    ids: np.ndarray  # For a field the id of its name in the metadata, for an element its index.
    starts: np.ndarray
    ends: np.ndarray


def blobs(array: pa.Array) -> Blobs:
    """An Arrow column of binaries; null becomes empty."""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    if not len(array):
        return Blobs(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return Blobs(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), bounds[:-1], bounds[1:])


def binary(offsets: np.ndarray, data: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    """An Arrow column of binaries, null where not `valid`."""
    mask = None if valid is None or valid.all() else pa.array(valid).buffers()[1]
    kept = [mask, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, kept)


def numbers(data: np.ndarray, places: np.ndarray, widths: np.ndarray | int) -> np.ndarray:
    """Unsigned little-endian numbers of up to four bytes. Raises `CorruptFile` for numbers beyond the end of the
    data."""
    if len(places) and int((places + widths).max()) > len(data):
        raise CorruptFile("a variant ends before its values do")
    result = np.zeros(len(places), np.int64)
    for byte in range(int(np.max(widths, initial=0))):
        has = byte < np.asarray(widths)
        at = data[np.minimum(places + byte, max(0, len(data) - 1))].astype(np.int64) if len(places) else result
        result |= np.where(has, at << (8 * byte), 0)
    return result


def ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(owner, index within its owner) of each item, for `counts` items per owner."""
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) - firsts[owners]


class Names:
    """The names in the metadata of rows; each distinct metadata is decoded once."""

    def __init__(self, metadata: pa.Array) -> None:
        encoded = metadata.dictionary_encode()
        self.of_row = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        self._blobs = names = blobs(encoded.dictionary)
        heads = numbers(names.data, names.starts, 1)
        if (heads & 15 != 1).any():
            raise CorruptFile(f"variant metadata of version {heads[heads & 15 != 1][0] & 15}; 1 is known")
        widths = (heads >> 6) + 1
        self.counts = _counts(names.data, names.starts + 1, widths)
        owners, within = ragged(self.counts + 1)
        lists = names.starts + 1 + widths
        offsets = numbers(names.data, lists[owners] + within * widths[owners], widths[owners])
        offsets += (lists + (self.counts + 1) * widths)[owners]
        if (offsets > names.ends[owners]).any():
            raise CorruptFile("variant metadata ends before its names do")
        is_last = within == self.counts[owners]
        flat = Blobs(names.data, offsets[~is_last], np.roll(offsets, -1)[~is_last]).gather().dictionary_encode()
        self._owners = owners[~is_last]
        self._firsts = np.cumsum(self.counts) - self.counts
        self._codes = flat.indices.to_numpy(zero_copy_only=False)
        self._names = flat.dictionary
        order = pc.array_sort_indices(self._names) if len(self._names) else pa.array([], pa.uint64())
        self._ranks = np.empty(len(self._names), np.int64)
        self._ranks[order.to_numpy()] = np.arange(len(self._names))

    def sorted_where_said(self, metadata: pa.Array) -> pa.Array:
        """`metadata` without the mark of sorted, unique names where they are not. DuckDB 1.5 always sets it; Iceberg's
        Java engines then find no name of a shredded field."""
        falls = np.flatnonzero((np.diff(self._ranks[self._codes]) <= 0) & (np.diff(self._owners) == 0))
        owners = self._owners[falls]
        if not (self._blobs.data[self._blobs.starts[owners]] & _SORTED).any():
            return metadata
        data = self._blobs.data.copy()
        data[self._blobs.starts[owners]] &= ~_SORTED
        return Blobs(data, self._blobs.starts, self._blobs.ends).gather().take(pa.array(self.of_row))

    def ranks(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The ranks of the names of `ids` in `rows`, in name order."""
        return self._ranks[self.codes(rows, ids)]

    def ids(self, name: str) -> np.ndarray:
        """The id of `name` in each row, -1 if its metadata lacks it."""
        by_dictionary = np.full(len(self.counts), -1, np.int64)
        places = np.flatnonzero(self._codes == self.code(name))
        by_dictionary[self._owners[places]] = places - self._firsts[self._owners[places]]
        return by_dictionary[self.of_row]

    def are(self, name: str, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Whether `ids` are ids of `name` in `rows`; a dictionary may hold a name more than once."""
        return self.codes(rows, ids) == self.code(name)

    def code(self, name: str) -> int:
        """The code of a name across all rows; -1 if no row has it."""
        if not len(self._names):
            return -1
        return int(self._names.index(pa.scalar(name.encode(), self._names.type)).as_py())

    def name(self, code: int) -> str:
        """The name of a code; empty for bytes that are not text."""
        data: bytes = self._names[code].as_py()
        try:
            return data.decode()
        except UnicodeDecodeError:
            return ""

    def codes(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The codes of the names of `ids` in `rows`: one code per name, whatever the row."""
        owners = self.of_row[rows]
        if (ids >= self.counts[owners]).any():
            raise CorruptFile("a variant names a field that its metadata does not hold")
        return self._codes[self._firsts[owners] + ids]


def fields(data: np.ndarray, starts: np.ndarray) -> Parts:
    """The fields of the objects that begin at `starts`."""
    heads = numbers(data, starts, 1) >> 2
    widths, id_widths, count_widths = (heads & 3) + 1, (heads >> 2 & 3) + 1, np.where(heads >> 4 & 1, 4, 1)
    counts = _counts(data, starts + 1, count_widths)
    ids_at = starts + 1 + count_widths
    owners, within = ragged(counts)
    ids = numbers(data, ids_at[owners] + within * id_widths[owners], id_widths[owners])
    offsets, ends = _offsets(data, ids_at + counts * id_widths, counts, widths)
    # Fields are sorted by name, their bytes are in any order: a value ends where the next one in the bytes begins.
    order = np.lexsort((offsets, owners))
    until = np.empty_like(offsets)
    following = np.roll(offsets[order], -1)
    is_last = np.roll(owners[order], -1) != owners[order]
    if len(order):
        is_last[-1] = True
    until[order] = np.where(is_last, ends[owners[order]], following)
    return Parts(owners, ids, offsets, until)


def elements(data: np.ndarray, starts: np.ndarray) -> Parts:
    """The elements of the arrays that begin at `starts`."""
    heads = numbers(data, starts, 1) >> 2
    widths, count_widths = (heads & 3) + 1, np.where(heads >> 2 & 1, 4, 1)
    counts = _counts(data, starts + 1, count_widths)
    offsets, ends = _offsets(data, starts + 1 + count_widths, counts, widths)
    owners, within = ragged(counts)
    until = np.roll(offsets, -1)
    is_last = within == counts[owners] - 1
    until[is_last] = ends[owners[is_last]]
    return Parts(owners, within, offsets, until)


def container(counts: np.ndarray, values: pa.Array, ids: np.ndarray | None = None) -> pa.Array:
    """Objects, whose fields have these ids and are sorted by name, or without `ids` arrays, each of `counts` of the
    `values`."""
    inner = blobs(values)
    bounds = np.concatenate([[0], np.cumsum(inner.ends - inner.starts)])
    lasts = np.cumsum(counts)
    sizes = bounds[lasts] - bounds[lasts - counts]
    width, is_large = _width(sizes), bool((counts > 255).any())
    id_width = 0 if ids is None else _width(ids)
    count_width = 4 if is_large else 1
    head = ARRAY | (is_large << 2 | width - 1) << 2
    if ids is not None:
        head = OBJECT | (is_large << 4 | (id_width - 1) << 2 | width - 1) << 2
    lengths = 1 + count_width + counts * id_width + (counts + 1) * width + sizes
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = np.zeros(offsets[-1], np.uint8)
    starts = offsets[:-1]
    data[starts] = head
    _store(data, starts + 1, counts, count_width)
    cursors = starts + 1 + count_width
    if ids is not None:
        owners, within = ragged(counts)
        _store(data, cursors[owners] + within * id_width, ids, id_width)
        cursors = cursors + counts * id_width
    owners, within = ragged(counts + 1)
    relative = bounds[(lasts - counts)[owners] + within] - bounds[lasts - counts][owners]
    _store(data, cursors[owners] + within * width, relative, width)
    cursors = cursors + (counts + 1) * width
    first, last = (inner.starts[0], inner.ends[-1]) if len(values) else (0, 0)
    data[np.repeat(cursors - bounds[lasts - counts], sizes) + np.arange(bounds[-1])] = inner.data[first:last]
    return binary(offsets, data)


def _counts(data: np.ndarray, places: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """The number of items; each takes at least a byte, so there are no more items than bytes."""
    counts = numbers(data, places, widths)
    if counts.sum() > len(data):
        raise CorruptFile("a variant ends before its values do")
    return counts


def _offsets(
    data: np.ndarray, starts: np.ndarray, counts: np.ndarray, widths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(where each value starts, where the values of each owner end)."""
    owners, within = ragged(counts + 1)
    offsets = numbers(data, starts[owners] + within * widths[owners], widths[owners])
    offsets += (starts + (counts + 1) * widths)[owners]
    if len(offsets) and offsets.max() > len(data):
        raise CorruptFile("a variant ends before its values do")
    is_last = within == counts[owners]
    return offsets[~is_last], offsets[is_last]


def _store(target: np.ndarray, places: np.ndarray, values: np.ndarray, width: int) -> None:
    for byte in range(width):
        target[places + byte] = values >> (8 * byte) & 255


def _width(values: np.ndarray) -> int:
    return max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
