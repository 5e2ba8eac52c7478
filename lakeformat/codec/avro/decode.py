"""Avro records -> Arrow columns, many records at once.

Records have no index and no fixed length, so only reading them one by one shows where each begins. Here all records of
a batch are walked in lockstep: one numpy operation reads the same field of every record ("lanes"), each lane at its own
position. That needs to know where records begin. Positions are guessed from the first bytes of known records, walked,
and then proved: beginning at the first byte, every record must end where another one begins, blocks must hold as many
records as they declare, and the last record must end with the batch. A wrong guess is never reached from the first
byte, so a guess costs time at worst, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.codec import decimals, spans
from lakeformat.codec.avro.schema import (
    Array,
    Choice,
    Leaf,
    Map,
    Member,
    Node,
    Place,
    Record,
    Union,
    arrow_type,
    min_bytes,
    nullable,
)
from lakeformat.errors import CorruptFile
from lakeformat.model.dataclass import dataclass

PADDING = 64  # Zero bytes that must follow the data of a batch: lanes from wrong guesses end there.
_DECIMAL_BYTES_MAX = 64
EMPTY_RECORDS = 1 << 20  # Damage: more records or items of zero bytes in one block than this.


@dataclass(frozen=True, slots=True)
class Block:
    """`count` records in bytes `begin` to `end` of a batch. The blocks of a batch are contiguous."""

    begin: int
    end: int
    count: int


def columns(
    record: Record, null_at: int | None, buffer: np.ndarray, blocks: list[Block], logical: bool, looks: Looks
) -> pa.RecordBatch:
    """The kept columns of all records of `blocks`, in order. `looks` is shared by all batches of a file.

    With `null_at` every record is preceded by its branch in a union with null.

    `buffer`: uint8; the blocks begin at 0, and `PADDING` zero bytes follow the last. The result does not refer to it.
    Raises `CorruptFile`, without naming a file, if the bytes do not match the schema.
    """
    lanes = _Lanes.over(buffer, blocks[-1].end if blocks else 0)
    total = sum(block.count for block in blocks)
    if null_at is None:
        capture = _capture(record, lanes, blocks, total, looks)
    else:
        whole = _capture(Record((Member("record", Choice(record, null_at)),)), lanes, blocks, total, looks).parts[0]
        assert isinstance(whole, _Optional), whole
        assert isinstance(whole.inner, _Parts), whole
        if whole.present is not None and not whole.present.all():
            raise CorruptFile("a record is null")
        capture = whole.inner
    return pa.RecordBatch.from_struct_array(_struct(record, capture, lanes, logical, "record"))


def values_at(node: Node, buffer: np.ndarray, blocks: list[Block], places: np.ndarray) -> pa.Array:
    """The values that begin at `places`, which `columns` returned for a `Place` of `node` in the same bytes."""
    lanes = _Lanes.over(buffer, blocks[-1].end)
    ends, capture = _walk(node, lanes, places, True)
    if (ends > lanes.end).any():
        raise CorruptFile("a value goes on past the end of its block")
    assert capture is not None, node
    return _array(node, capture, lanes, False, "record")


# --- One record at a time: exact and slow, and able to say what is wrong. ---

_Skip = Callable[[memoryview, int], int]


@lru_cache(maxsize=64)
def skipper(node: Node, path: str = "record") -> _Skip:
    """A function (bytes, position) -> position after one value. Raises `CorruptFile` or IndexError past the end."""
    match node:
        case Leaf("null"):
            return lambda data, position: position
        case Leaf("boolean"):
            return _skip_boolean(path)
        case Leaf("float"):
            return _skip_fixed(4, path)
        case Leaf("double"):
            return _skip_fixed(8, path)
        case Leaf("fixed", size):
            return _skip_fixed(size, path)
        case Leaf("bytes" | "string"):
            return _skip_sized(path)
        case Leaf("enum", symbols=symbols):
            return _skip_numbered(
                [lambda data, position: position] * len(symbols), f"{path}: an enum of {len(symbols)} symbols"
            )
        case Leaf():
            return _skip_varint(path)
        case Record(members):
            return _skip_record(tuple(skipper(m.node, f"{path}.{m.name}") for m in members))
        case Array(item):
            return _skip_items(skipper(item, f"{path}[]"), min_bytes(item), path)
        case Map(pair):
            return _skip_items(skipper(pair, f"{path}{{}}"), min_bytes(pair), path)
        case Choice(inner, null_at):
            return _skip_choice(skipper(inner, path), null_at, path)
        case Union(branches):
            return _skip_numbered([skipper(branch, path) for branch in branches], f"{path}: a union of {len(branches)}")
        case Place(inner):
            return skipper(inner, path)
    raise AssertionError(node)


def varint(data: memoryview | bytes, offset: int) -> tuple[int, int]:
    """A zig-zag number at `offset`: (value, position after it). IndexError past the end,
    `CorruptFile` beyond 64 bits."""
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CorruptFile(f"a number of more than 10 bytes at byte {offset}")
    if value >> 64:
        raise CorruptFile(f"a number of more than 64 bits at byte {offset}")
    return (value >> 1) ^ -(value & 1), offset


def _skip_fixed(size: int, path: str) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        if offset + size > len(data):
            raise CorruptFile(f"{path}: {size} bytes at byte {offset}, but the block ends at {len(data)}")
        return offset + size

    return skip


def _skip_boolean(path: str) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        if data[offset] > 1:
            raise CorruptFile(f"{path}: a boolean of {data[offset]} at byte {offset}")
        return offset + 1

    return skip


def _skip_varint(path: str) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        begin = offset
        while data[offset] >= 0x80:
            offset += 1
        if offset - begin > 9 or (offset - begin == 9 and data[offset] > 1):
            raise CorruptFile(f"{path}: a number of more than 64 bits at byte {begin}")
        return offset + 1

    return skip


def _skip_sized(path: str) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        size, after = varint(data, offset)
        if size < 0 or after + size > len(data):
            raise CorruptFile(f"{path}: a length of {size} at byte {offset}, but the block ends at {len(data)}")
        return after + size

    return skip


def _skip_record(parts: tuple[_Skip, ...]) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        for part in parts:
            offset = part(data, offset)
        return offset

    return skip


def _skip_items(item: _Skip, item_bytes: int, path: str) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        while True:
            begin = offset
            count, offset = varint(data, offset)
            if count < 0:
                count = -count
                _, offset = varint(data, offset)
            if count > ((len(data) - offset) // item_bytes if item_bytes else EMPTY_RECORDS):
                raise CorruptFile(f"{path}: {count} items at byte {begin}, more than the block has room for")
            if not count:
                return offset
            for _ in range(count):
                offset = item(data, offset)

    return skip


def _skip_choice(inner: _Skip, null_at: int | None, path: str) -> _Skip:
    null = None if null_at is None else 2 * null_at
    value = 0 if null is None else 2 - null

    def skip(data: memoryview, offset: int) -> int:
        branch = data[offset]
        if branch == value:
            return inner(data, offset + 1)
        if branch == null:
            return offset + 1
        raise CorruptFile(f"{path}: union branch byte {branch:#04x} at byte {offset}")

    return skip


def _skip_numbered(inner: Sequence[_Skip], label: str) -> _Skip:
    def skip(data: memoryview, offset: int) -> int:
        number, after = varint(data, offset)
        if not 0 <= number < len(inner):
            raise CorruptFile(f"{label} holds number {number} at byte {offset}")
        return inner[number](data, after)

    return skip


# --- All records at once. ---


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The bytes that lanes walk over. A lane that cannot go on moves to `astray`, among zeros, and stays there."""

    bytes: np.ndarray  # uint8
    words: np.ndarray  # uint64, little-endian, one beginning at every byte
    view: memoryview
    end: int
    guessing: bool = False  # Lanes may be wrong: do not walk one alone for long.

    @property
    def astray(self) -> int:
        return self.end + 1

    @staticmethod
    def over(buffer: np.ndarray, end: int) -> _Lanes:
        assert buffer.dtype == np.uint8, buffer.dtype
        assert len(buffer) >= end + PADDING, (len(buffer), end)
        return _Lanes(buffer, spans.words(buffer), buffer.data[:end], end)


@dataclass(frozen=True, slots=True)
class _Values:
    values: np.ndarray

    def pick(self, lanes: np.ndarray) -> _Values:
        return _Values(self.values[lanes])


@dataclass(frozen=True, slots=True)
class _Spans:
    """Byte strings, by their begin and end in the batch."""

    begin: np.ndarray
    end: np.ndarray

    def pick(self, lanes: np.ndarray) -> _Spans:
        return _Spans(self.begin[lanes], self.end[lanes])


@dataclass(frozen=True, slots=True)
class _Parts:
    parts: tuple[_Capture | None, ...]
    count: int

    def pick(self, lanes: np.ndarray) -> _Parts:
        return _Parts(tuple(None if p is None else p.pick(lanes) for p in self.parts), len(lanes))


@dataclass(frozen=True, slots=True)
class _Optional:
    """`inner` of the lanes in which `present` is true; `present` is None if it is true for all."""

    present: np.ndarray | None
    inner: _Capture

    def pick(self, lanes: np.ndarray) -> _Optional:
        if self.present is None:
            return _Optional(None, self.inner.pick(lanes))
        picked = self.present[lanes]
        rank = np.cumsum(self.present) - 1
        return _Optional(picked, self.inner.pick(rank[lanes[picked]]))


@dataclass(frozen=True, slots=True)
class _Items:
    """`counts` items per lane, lane after lane in `inner`."""

    counts: np.ndarray
    inner: _Capture

    def pick(self, lanes: np.ndarray) -> _Items:
        counts = self.counts[lanes]
        first = np.cumsum(self.counts) - self.counts
        return _Items(counts, self.inner.pick(spans.ranges(first[lanes], counts)))


_Capture = _Values | _Spans | _Parts | _Optional | _Items


_CONTINUES = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x0101010101010101)
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_HIGH_BYTE = np.uint64(56)
# Adjacent groups of bits are joined: (low half, high half, shift), 7-bit groups to 14, 28 and 56 bits.
_JOINS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)


def _raw_varint(lanes: _Lanes, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The raw uint64 numbers, before zig-zag decoding, and the positions after them."""
    first = lanes.bytes[offsets]
    if not offsets.size or first.max() < 0x80:
        return first.astype(np.uint64), np.minimum(offsets + 1, lanes.astray)
    word = lanes.words[offsets]
    stops = ~word & _CONTINUES
    upto = stops ^ (stops - _ONE)  # All ones up to the first byte without continuation bit; all ones if there is none.
    size = ((upto & _LOW_BITS) * _LOW_BITS) >> _HIGH_BYTE
    value = word & upto & _SEVENS
    longest = int(size.max())
    for i, (low, high, shift) in enumerate(_JOINS):
        if longest > 1 << i:
            value = (value & low) | ((value & high) >> shift)
    after = offsets + size.astype(np.int64)
    if longest == 8:
        beyond = np.flatnonzero(stops == 0)
        if len(beyond):
            _long_varint(lanes, value, after, beyond)
    return value, np.minimum(after, lanes.astray)


def _long_varint(lanes: _Lanes, value: np.ndarray, after: np.ndarray, which: np.ndarray) -> None:
    """Bytes 9 and 10 of the numbers of lanes `which`, in place."""
    offsets = after[which]
    ninth, tenth = lanes.bytes[offsets].astype(np.uint64), lanes.bytes[offsets + 1].astype(np.uint64)
    more = ninth >= 0x80
    value[which] |= ((ninth & np.uint64(0x7F)) << _HIGH_BYTE) | np.where(more, tenth << np.uint64(63), np.uint64(0))
    after[which] = np.where(more & (tenth > 1), lanes.astray, offsets + np.where(more, 2, 1))


def _unfold(raw: np.ndarray) -> np.ndarray:
    return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64)


def _walk(node: Node, lanes: _Lanes, offsets: np.ndarray, keep: bool) -> tuple[np.ndarray, _Capture | None]:
    """Walk one value in every lane: the positions after it, and the values if `keep`. Lanes astray read zeros."""
    match node:
        case Leaf("null"):
            return offsets, _Values(np.zeros(len(offsets), np.int8)) if keep else None
        case Leaf("int" | "long" | "enum"):
            raw, after = _raw_varint(lanes, offsets)
            return after, _Values(_unfold(raw)) if keep else None
        case Leaf("bytes" | "string"):
            raw, begin = _raw_varint(lanes, offsets)
            # A negative length has its lowest bit set; the rotation makes it the highest, so the length is too large.
            size = np.minimum((raw >> _ONE) | (raw << np.uint64(63)), np.uint64(lanes.astray)).astype(np.int64)
            after = np.minimum(begin + size, lanes.astray)
            return after, _Spans(begin, after) if keep else None
        case Leaf("boolean"):
            value = lanes.bytes[offsets]
            after = offsets + 1
            if value.size and value.max() > 1:
                after = np.where(value > 1, lanes.astray, after)
            return np.minimum(after, lanes.astray), _Values(value.astype(bool)) if keep else None
        case Leaf("float"):
            word = lanes.words[offsets].astype(np.uint32).view(np.float32) if keep else None
            return np.minimum(offsets + 4, lanes.astray), None if word is None else _Values(word)
        case Leaf("double"):
            word = lanes.words[offsets].astype(np.uint64).view(np.float64) if keep else None
            return np.minimum(offsets + 8, lanes.astray), None if word is None else _Values(word)
        case Leaf("fixed", size):
            after = np.minimum(offsets + size, lanes.astray)
            return after, _Spans(offsets, after) if keep else None
        case Record(members):
            parts: list[_Capture | None] = []
            for member in members:
                offsets, part = _walk(member.node, lanes, offsets, keep and member.keep)
                parts.append(part)
            return offsets, _Parts(tuple(parts), len(offsets)) if keep else None
        case Choice():
            return _walk_choice(node, lanes, offsets, keep)
        case Array(item):
            return _walk_items(item, lanes, offsets, keep)
        case Map(pair):
            return _walk_items(pair, lanes, offsets, keep)
        case Place(inner):
            return _walk(inner, lanes, offsets, False)[0], _Values(offsets.astype(np.int32)) if keep else None
    raise AssertionError(node)


def _walk_choice(node: Choice, lanes: _Lanes, offsets: np.ndarray, keep: bool) -> tuple[np.ndarray, _Capture | None]:
    branch = lanes.bytes[offsets]
    after = np.minimum(offsets + 1, lanes.astray)
    value = 0 if node.null_at is None else 2 - 2 * node.null_at
    present = branch == value
    if present.all():
        after, inner = _walk(node.inner, lanes, after, keep)
        return after, None if inner is None else _Optional(None, inner)
    known = present | (branch == 2 - value) if node.null_at is not None else present
    if not known.all():
        after[~known] = lanes.astray
    which = np.flatnonzero(present)
    inside, inner = _walk(node.inner, lanes, after[which], keep)
    after[which] = inside
    return after, None if inner is None else _Optional(present, inner)


_ALONE, _ALONE_GUESSED, _FAR = 64, 8, 32  # For so few lanes with so many items left, single steps are faster.


def _walk_items(item: Node, lanes: _Lanes, offsets: np.ndarray, keep: bool) -> tuple[np.ndarray, _Capture | None]:
    after = offsets.copy()
    owners: list[np.ndarray] = []
    captures: list[_Capture] = []
    active = np.arange(len(offsets))
    while active.size:
        active, left = _block_headers(lanes, after, active, min_bytes(item))
        step, furthest = 0, int(left.max(initial=0))
        while step < furthest:
            going = active if step == 0 else active[left > step]
            if len(going) <= (_ALONE_GUESSED if lanes.guessing else _ALONE) and furthest - step > _FAR:
                going, starts = _item_starts(item, lanes, after, going, left[left > step] - step)
                step = furthest
            else:
                starts, step = after[going], step + 1
            inside, inner = _walk(item, lanes, starts, keep)
            after[going] = inside  # The last item of a lane sets its end.
            if inner is not None:
                owners.append(going)
                captures.append(inner)
    if not keep:
        return after, None
    if not captures:
        captures, owners = [_nothing(item, lanes)], [np.zeros(0, np.int64)]
    together = captures[0] if len(captures) == 1 else _joined(captures)
    owner = np.concatenate(owners)
    if len(captures) > 1 and not (owner[1:] >= owner[:-1]).all():
        together = together.pick(np.argsort(owner, kind="stable"))
    return after, _Items(np.bincount(owner, minlength=len(offsets)), together)


def _block_headers(
    lanes: _Lanes, after: np.ndarray, active: np.ndarray, item_bytes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Read the item counts of the next array or map blocks: the lanes with items, and their counts. Advances
    `after`."""
    raw, begin = _raw_varint(lanes, after[active])
    count = _unfold(raw)
    sized = np.flatnonzero(count < 0)
    if sized.size:
        count[sized] = -count[sized]
        _, begin[sized] = _raw_varint(lanes, begin[sized])
    room = (lanes.end - begin) // item_bytes if item_bytes else EMPTY_RECORDS
    wrong = (count < 0) | (count > room)
    if wrong.any():
        count[wrong], begin[wrong] = 0, lanes.astray
    after[active] = np.minimum(begin, lanes.astray)
    some = count > 0
    return (active, count) if some.all() else (active[some], count[some])


def _item_starts(
    item: Node, lanes: _Lanes, after: np.ndarray, going: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the next `counts` items of each lane begin, found one by one: (lane, position) of each."""
    owners: list[int] = []
    starts: list[int] = []
    skip = skipper(item)
    for lane, count in zip(going.tolist(), counts.tolist(), strict=True):
        offset, positions = int(after[lane]), []
        try:
            for _ in range(0 if lanes.guessing else count):
                positions.append(offset)
                offset = skip(lanes.view, offset)
        except (CorruptFile, IndexError):
            positions = []
        if len(positions) < count:
            after[lane] = lanes.astray
            continue
        owners += [lane] * count
        starts += positions
    return np.array(owners, np.int64), np.array(starts, np.int64)


def _nothing(node: Node, lanes: _Lanes) -> _Capture:
    _, capture = _walk(node, lanes, np.zeros(0, np.int64), True)
    assert capture is not None, node
    return capture


def _joined(captures: list[Any]) -> _Capture:
    """Captures of one type, concatenated."""
    match captures[0]:
        case _Values():
            return _Values(np.concatenate([c.values for c in captures]))
        case _Spans():
            begins, ends = [c.begin for c in captures], [c.end for c in captures]
            return _Spans(np.concatenate(begins), np.concatenate(ends))
        case _Parts(parts):
            columns = [[c.parts[i] for c in captures] for i in range(len(parts))]
            joined = tuple(None if column[0] is None else _joined(column) for column in columns)
            return _Parts(joined, sum(c.count for c in captures))
        case _Optional():
            inner = _joined([c.inner for c in captures])
            if all(c.present is None for c in captures):
                return _Optional(None, inner)
            masks = [np.ones(_length(c.inner), bool) if c.present is None else c.present for c in captures]
            return _Optional(np.concatenate(masks), inner)
        case _Items():
            inner = _joined([c.inner for c in captures])
            return _Items(np.concatenate([c.counts for c in captures]), inner)
    raise AssertionError(captures[0])


def _length(capture: _Capture) -> int:
    match capture:
        case _Values(values):
            return len(values)
        case _Spans(begin):
            return len(begin)
        case _Parts(_, count):
            return count
        case _Optional(present, inner):
            return _length(inner) if present is None else len(present)
        case _Items(counts):
            return len(counts)


# --- Where records begin. ---


class Looks:
    """Which first bytes records have, learnt from records at known positions. One per file."""

    WIDTH = 24  # The number of first bytes.

    def __init__(self) -> None:
        self.known = 0
        self._seen = np.zeros((self.WIDTH, 256), np.int64)  # The count of each byte at each position.
        self._surprises = np.zeros(self.WIDTH, np.int64)
        self._frequency: np.ndarray | None = None  # Of each byte in a sample of the file.

    def learn(self, lanes: _Lanes, starts: np.ndarray) -> None:
        """Count the first bytes of the records at `starts`."""
        places = np.arange(self.WIDTH)
        rows = lanes.bytes[starts[:, None] + places]
        if self.known:
            self._surprises += (self._seen[places, rows] == 0).any(axis=0)
        np.add.at(self._seen, (np.broadcast_to(places, rows.shape), rows), 1)
        self.known += len(starts)

    def find(self, lanes: _Lanes, most: int) -> np.ndarray | None:
        """The positions whose bytes look like the beginning of a record, in order; None if there are far more than
        `most`."""
        if self._frequency is None:
            sample = lanes.bytes[: lanes.end : max(1, lanes.end >> 16)]
            self._frequency = np.bincount(sample, minlength=256) / max(1, len(sample))
        fits = self._fits()
        share = fits @ self._frequency
        chosen: list[int] = []
        expected = float(lanes.end)
        for j in np.argsort(share, kind="stable").tolist():
            if share[j] > 0.8 or len(chosen) == 14 or expected < 0.001 * most:
                break
            chosen.append(j)
            expected *= share[j]
        if not chosen or expected > 5 * most + 1000:
            return None
        first, *rest = chosen
        mask, left = _among(lanes.bytes[first : lanes.end + first], fits[first]), share[first]
        while rest and left > _SPARSE:  # Compare whole arrays while many positions would be left.
            j = rest.pop(0)
            mask &= _among(lanes.bytes[j : lanes.end + j], fits[j])
            left *= share[j]
        matches = np.flatnonzero(mask)
        for j in rest:
            matches = matches[fits[j][lanes.bytes[matches + j]]]
        return matches if len(matches) <= 8 * most + 1000 else None

    def _fits(self) -> np.ndarray:
        """Which bytes a record may have at each position, (WIDTH, 256).

        The bytes seen there. At positions with many different bytes, or with new ones in later records, only the
        highest bit counts: the continuation bit of a number. The few records that differ are missed here and found one
        by one.
        """
        seen = self._seen > 0
        vague = (seen.sum(1) > max(2, self.known // 4)) | (self._surprises > 0)
        halves = self._seen.reshape(self.WIDTH, 2, 128).sum(2) > 0.05 * self.known
        return np.where(vague[:, None], np.repeat(halves, 128, axis=1), seen)


def _among(data: np.ndarray, fits: np.ndarray) -> np.ndarray:
    """Which bytes are true in a table of 256."""
    edges = np.flatnonzero(np.diff(fits.astype(np.int8), prepend=0, append=0))
    runs = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    if len(runs) > _RUNS:
        return fits[data]
    # Below `start` the difference wraps around to more than the length of any run.
    masks = (data == start if stop - start == 1 else data - np.uint8(start) < stop - start for start, stop in runs)
    return reduce(np.logical_or, masks)


_RUNS = 8  # Up to this many ranges are compared faster than a table lookup takes.
_SPARSE = 0.05
_FEW = 40  # Up to this many records are faster walked one by one.
_SAMPLES = 8  # Blocks sampled, and at most so many records of each.
_SAMPLED = 64  # Of so many records one is sampled, since that takes as long as walking a hundred.
_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class _Walked:
    """Where values begin, ascending, and where each ends: `astray` if unknown."""

    starts: np.ndarray
    ends: np.ndarray

    def plus(self, other: _Walked) -> _Walked:
        """The union of both; the ends of `other` win."""
        if not len(self.starts):
            return other
        starts = np.concatenate([other.starts, self.starts])
        unique, which = np.unique(starts, return_index=True)
        return _Walked(unique, np.concatenate([other.ends, self.ends])[which])


def _capture(record: Record, lanes: _Lanes, blocks: list[Block], total: int, looks: Looks) -> _Parts:
    """The kept values of all records, in order."""
    room = min_bytes(record)
    for block in blocks:
        most = (block.end - block.begin) // room if room else EMPTY_RECORDS
        if not 0 <= block.count <= most:
            raise CorruptFile(f"a block of {block.end - block.begin} bytes says that it holds {block.count} records")
    if not room or total <= _FEW:
        starts = _one_by_one(record, lanes, blocks)
    else:
        guessed = _guess(record, lanes, blocks, total, looks)
        if isinstance(guessed, _Parts):
            return guessed
        starts = guessed
    ends, capture = _walk(record, lanes, starts, True)
    if not np.array_equal(ends, np.append(starts[1:], lanes.end)[: len(ends)]):
        _one_by_one(record, lanes, blocks)
        raise AssertionError("lockstep and single steps disagree")
    assert isinstance(capture, _Parts), capture
    return capture


def _one_by_one(record: Record, lanes: _Lanes, blocks: list[Block]) -> np.ndarray:
    """Where all records begin. Raises `CorruptFile` that says what is wrong with a block."""
    starts: list[int] = []
    for block in blocks:
        bounds = _steps(record, lanes, block, block.begin, block.count)
        if bounds[-1] != block.end:
            filled = bounds[-1] - block.begin
            raise CorruptFile(f"{block.count} records fill {filled} bytes of a block of {block.end - block.begin}")
        starts += bounds[:-1]
    return np.array(starts, np.int64)


def _steps(record: Record, lanes: _Lanes, block: Block, offset: int, most: int) -> list[int]:
    """Where the next `most` records from `offset` begin, and where the last one ends."""
    skip, data = skipper(record), lanes.view[: block.end]
    bounds = [offset]
    try:
        for _ in range(most):
            bounds.append(skip(data, bounds[-1]))
    except IndexError as error:
        raise CorruptFile(f"the record at byte {bounds[-1]} goes on past its block's end at {block.end}") from error
    return bounds


def _guess(record: Record, lanes: _Lanes, blocks: list[Block], total: int, looks: Looks) -> np.ndarray | _Parts:
    """Where all records begin, or their values if the first guess was right."""
    begins = np.array([block.begin for block in blocks if block.count], np.int64)
    pending = begins
    if not looks.known:
        sampled = [block for block in blocks if block.count][:: -(-len(begins) // _SAMPLES)]
        per_block = min(_SAMPLES * _SAMPLES, max(2 * _SAMPLES, total // _SAMPLED)) // len(sampled)
        some = [_steps(record, lanes, block, block.begin, min(block.count, per_block))[:-1] for block in sampled]
        pending = _merged(begins, np.concatenate(some))
    looks.learn(lanes, pending)
    guessing = replace(lanes, guessing=True)
    walked = _Walked(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for attempt in range(_ROUNDS):
        candidates = looks.find(lanes, total)
        fresh = _without(pending if candidates is None else _merged(pending, candidates), walked.starts)
        ends, capture = _walk(record, guessing, fresh, attempt == 0)
        walked = walked.plus(_Walked(fresh, ends))
        reached, stops = _chain(walked, begins, lanes)
        if not len(stops):
            starts = walked.starts[reached]
            _prove(record, lanes, blocks, starts, walked.ends[reached])
            if capture is None:
                return starts
            assert isinstance(capture, _Parts), capture
            return capture if len(starts) == len(fresh) else capture.pick(reached)
        if candidates is None or (attempt and np.count_nonzero(walked.ends <= lanes.end) > 0.9 * total):
            break
        more = _beyond(record, lanes, walked, stops, blocks)
        pending = more.ends[more.ends < lanes.end]
        looks.learn(lanes, pending)
        walked = walked.plus(more)
    return _finish(record, lanes, blocks, walked)


def _merged(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The union of two ascending arrays, without duplicates."""
    both = np.concatenate([left, right])
    both.sort(kind="stable")
    return both[np.append(True, both[1:] != both[:-1])]


def _without(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The values of one ascending array that are not in the other."""
    if not len(others):
        return values
    return values[others[np.minimum(np.searchsorted(others, values), len(others) - 1)] != values]


def _chain(walked: _Walked, begins: np.ndarray, lanes: _Lanes) -> tuple[np.ndarray, np.ndarray]:
    """The walked records that are reached from the certain starts `begins`, and those of them that end at an unknown
    position."""
    starts, ends = walked.starts, walked.ends
    count = len(starts)
    following = np.searchsorted(starts, ends)
    if starts[0] == begins[0] and ends[-1] == lanes.end and (following == np.arange(1, count + 1)).all():
        misses = np.flatnonzero(ends[:-1] != starts[1:])
        if not len(misses):
            return np.arange(count), misses
    hit = starts[np.minimum(following, count - 1)] == ends
    jump = np.append(np.where(hit, following, count), count)
    reached = np.zeros(count + 1, bool)
    reached[np.searchsorted(starts, begins)] = True
    while True:  # The records 1, 2, 4, ... further.
        reached[jump[reached]] = True
        if (jump == count).all():
            break
        jump = jump[jump]
    on_chain = np.flatnonzero(reached[:count])
    return on_chain, on_chain[~hit[on_chain] & (ends[on_chain] != lanes.end)]


def _prove(record: Record, lanes: _Lanes, blocks: list[Block], starts: np.ndarray, ends: np.ndarray) -> None:
    """Check that each block holds as many records as it declares, and that its last record ends with the block."""
    first = np.searchsorted(starts, [block.begin for block in blocks])
    last = np.searchsorted(starts, [block.end for block in blocks])
    counts = np.array([block.count for block in blocks])
    full = counts > 0
    closes = ends[last[full] - 1] == np.array([block.end for block in blocks])[full]
    if not (np.array_equal(last - first, counts) and closes.all()):
        _one_by_one(record, lanes, blocks)
        raise AssertionError("lockstep and single steps disagree on a block")


def _beyond(record: Record, lanes: _Lanes, walked: _Walked, stops: np.ndarray, blocks: list[Block]) -> _Walked:
    """The records at `stops` and a few after each, walked one by one."""
    block_ends = np.array([block.end for block in blocks])
    starts: list[int] = []
    ends: list[int] = []
    for offset in walked.starts[stops].tolist():
        block = blocks[int(np.searchsorted(block_ends, offset, side="right"))]
        for _ in range(4):
            if offset >= block.end:
                break
            starts.append(offset)
            offset = _steps(record, lanes, block, offset, 1)[-1]
            ends.append(offset)
    return _Walked(np.array(starts, np.int64), np.array(ends, np.int64))


def _finish(record: Record, lanes: _Lanes, blocks: list[Block], walked: _Walked) -> np.ndarray:
    """Where all records begin: from one to the next by the known ends, else one by one."""
    fine = walked.ends <= lanes.end
    end_of = dict(zip(walked.starts[fine].tolist(), walked.ends[fine].tolist(), strict=True))
    starts: list[int] = []
    skip = skipper(record)
    for block in blocks:
        offset, data = block.begin, lanes.view[: block.end]
        try:
            for _ in range(block.count):
                starts.append(offset)
                offset = end_of.get(offset) or skip(data, offset)
        except (CorruptFile, IndexError):
            offset = -1
        if offset != block.end:
            _one_by_one(record, lanes, blocks)
            raise AssertionError("guesses and single steps disagree on a block")
    return np.array(starts, np.int64)


# --- Captures as Arrow. ---


def _array(node: Node, capture: _Capture, lanes: _Lanes, logical: bool, path: str) -> pa.Array:
    """One array with a value per lane. Raises `CorruptFile` for values that the type cannot hold."""
    match node, capture:
        case Place(), _Values(values):
            return pa.array(values)
        case Leaf() as leaf, _:
            return _leaf(leaf, capture, lanes, arrow_type(leaf, logical), path)
        case Record(), _Parts():
            return _struct(node, capture, lanes, logical, path)
        case Choice(inner, _), _Optional(present, inside):
            if present is not None and not present.any():
                return pa.nulls(len(present), arrow_type(inner, logical))
            here = _array(inner, inside, lanes, logical, path)
            return here if present is None else here.take(pa.array(np.cumsum(present) - 1, mask=~present))
        case Array(item) | Map(item), _Items(counts, inside):
            offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
            items: Any = _array(item, inside, lanes, logical, f"{path}[]")
            if isinstance(node, Map):
                keys, values = items.flatten()
                pair = pa.map_(keys.type, pa.field("value", values.type, nullable(node.pair.members[1].node)))
                return pa.MapArray.from_arrays(offsets, keys, values, type=pair)
            kind = pa.list_(pa.field("element", items.type, nullable(item)))
            return pa.ListArray.from_arrays(offsets, items, type=kind)
    raise AssertionError((node, capture))


def _leaf(leaf: Leaf, capture: _Capture, lanes: _Lanes, type: pa.DataType, path: str) -> pa.Array:
    match leaf.kind, capture:
        case "null", _Values(values):
            return pa.nulls(len(values))
        case "enum", _Values(values):
            wrong = values[(values < 0) | (values >= len(leaf.symbols))]
            if len(wrong):
                raise CorruptFile(f"{path}: an enum of {len(leaf.symbols)} symbols holds number {wrong[0]}")
            return pa.array(leaf.symbols, pa.string()).take(pa.array(values))
        case "int", _Values(values):
            narrow = values.astype(np.int32)
            if not np.array_equal(narrow, values):
                raise CorruptFile(f"{path}: an int holds {values[narrow != values][0]}")
            return _relabelled(pa.array(narrow), type, path)
        case _, _Values(values):
            return _relabelled(pa.array(values), type, path)
        case _, _Spans(begin, end) if pa.types.is_decimal(type):
            return _decimals(begin, end, lanes, type, path)
        case "fixed", _Spans(begin, _):
            flat = lanes.bytes[begin[:, None] + np.arange(leaf.size)]
            return pa.Array.from_buffers(type, len(begin), [None, pa.py_buffer(np.ascontiguousarray(flat))])
        case _, _Spans(begin, end):
            return _relabelled(spans.gather(lanes.bytes, begin, end), type, path)
    raise AssertionError((leaf, capture))


def _struct(record: Record, capture: _Parts, lanes: _Lanes, logical: bool, path: str) -> pa.Array:
    arrays, fields = [], []
    for member, part in zip(record.members, capture.parts, strict=True):
        if part is not None:
            array = _array(member.node, part, lanes, logical, f"{path}.{member.name}")
            arrays.append(array)
            fields.append(pa.field(member.name, array.type, nullable(member.node)))
    if not arrays:
        return pa.StructArray.from_buffers(pa.struct([]), capture.count, [None])
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _decimals(begin: np.ndarray, end: np.ndarray, lanes: _Lanes, type: pa.DataType, path: str) -> pa.Array:
    sizes = end - begin
    longest = int(sizes.max(initial=1))
    if len(sizes) and not 1 <= sizes.min() <= longest <= _DECIMAL_BYTES_MAX:
        raise CorruptFile(f"{path}: a decimal of {sizes.min()} to {longest} bytes")
    short = np.maximum(begin, end - 16)  # Bytes before the last 16 can only repeat the sign.
    sign = np.where(lanes.bytes[short] >= 0x80, 0xFF, 0)
    for k in range(longest - 16):
        if (lanes.bytes[begin + k] != sign)[begin + k < short].any():
            raise CorruptFile(f"{path}: a decimal beyond 16 bytes, which is more than {type} holds")
    array = decimals.from_big_endian(lanes.bytes, short, end, type)
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptFile(f"{path}: {error}") from error
    return array


def _relabelled(array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
    """Integers as dates, times or timestamps; bytes as text."""
    try:
        return array if array.type == type else array.cast(type)
    except pa.ArrowException as error:
        raise CorruptFile(f"{path}: {error}") from error
