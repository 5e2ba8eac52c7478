"""Sets of 64-bit numbers as Java's `Roaring64Bitmap` writes them:
a radix tree of the high 48 bits over containers of the low 16.

Facts: RoaringBitmap's `longlong/HighLowContainer.java`, `art/Art.java`, `art/Node*.java`, `art/Containers.java`.
Everything between is the portable form (a 32-bit bitmap for each high half), which pyroaring reads and writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from pyroaring import BitMap64

from lakeformat.model.dataclass import dataclass

_NODE_4, _NODE_16, _NODE_48, _NODE_256, _LEAF = range(5)
_RUNS, _BITS, _ARRAY = range(3)
_KEY_BYTES = 6
_ARRAY_MOST = 4096  # An array of more numbers takes more bytes than bits do.
_BITS_BYTES = 8192
_COOKIE, _RUN_COOKIE, _NO_OFFSETS_BELOW = 12346, 12347, 4


@dataclass(frozen=True, slots=True)
class _Container:
    """Some of the 65536 numbers that share their high 48 bits."""

    kind: int
    count: int
    payload: bytes


def deserialize(data: bytes) -> BitMap64:
    """The numbers; raises ValueError for other bytes."""
    try:
        return BitMap64.deserialize(_portable(_read(_Cursor(data))))
    except (struct.error, IndexError) as error:
        raise ValueError(str(error)) from error


def serialize(bitmap: BitMap64) -> bytes:
    """`bitmap` in its containers as they are."""
    containers = list(_of_portable(_Cursor(bitmap.serialize())))
    if not containers:
        return b"\x00"
    keys = [key.to_bytes(_KEY_BYTES, "big") for key, _ in containers]
    parts = [b"\x01", struct.pack("<q", len(keys)), *_tree(keys, 0, 0), struct.pack("<ibi", 1, -2, len(keys))]
    for _, container in containers:
        parts += [struct.pack("<bbi", 1, container.kind, container.count), container.payload]
    return b"".join([*parts, struct.pack("<qii", len(keys), 0, len(keys) - 1)])


# --- private ----------------------------------------------------------------------------------------------------------


class _Cursor:
    """Reads bytes from first to last."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError(f"ends after {len(self._data)} bytes; {count} were to come at {self._at}")
        self._at += count
        return taken

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))


def _read(data: _Cursor) -> list[tuple[int, _Container]]:
    """Containers by key, keys ascending."""
    (filled,) = data.unpack("<b")
    if filled == 0:
        return []
    (count,) = data.unpack("<q")
    leaves = list(_leaves(data, 0))
    arrays, trimmed, length = data.unpack("<ibi")
    if (filled, count, arrays, trimmed) != (1, len(leaves), 1, -2):
        raise ValueError(f"{len(leaves)} leaves under a head of {(filled, count, arrays, trimmed)}")
    containers = [_container(data) for _ in range(length)]
    pairs = []
    for key, index in sorted(leaves):
        container = containers[index]
        if container is None:
            raise ValueError(f"container {index} is missing")
        pairs.append((key, container))
    return pairs


def _leaves(data: _Cursor, depth: int) -> Iterator[tuple[int, int]]:
    """(key, place of its container) of a node and all below it."""
    kind, count, prefix = data.unpack("<bhb")
    if kind == _LEAF:
        yield int.from_bytes(data.take(_KEY_BYTES), "big"), data.unpack("<q")[0]
        return
    if not _NODE_4 <= kind <= _NODE_256 or depth >= _KEY_BYTES:
        raise ValueError(f"node of type {kind} at depth {depth}")
    data.take(prefix + {_NODE_4: 4, _NODE_16: 16, _NODE_48: 256, _NODE_256: 32}[kind])  # Leaves have their whole keys.
    for _ in range(count):
        yield from _leaves(data, depth + 1)


def _container(data: _Cursor) -> _Container | None:
    if data.take(1) == b"\x00":
        return None
    kind, count = data.unpack("<bi")
    if kind == _RUNS:
        runs = data.take(2)
        return _Container(kind, count, runs + data.take(4 * int.from_bytes(runs, "little")))
    if kind == _ARRAY:
        return _Container(kind, count, data.take(2 * count))
    if kind == _BITS:
        return _Container(kind, count, data.take(_BITS_BYTES))
    raise ValueError(f"container of type {kind}")


def _tree(keys: list[bytes], start: int, depth: int) -> Iterator[bytes]:
    """The node of `keys`, which differ behind `depth`, and all below; the first has the container at place `start`."""
    if len(keys) == 1:
        yield struct.pack("<bhb", _LEAF, 0, 0) + keys[0] + struct.pack("<q", start)
        return
    fork = next(at for at in range(depth, _KEY_BYTES) if keys[0][at] != keys[-1][at])
    branches = np.array([key[fork] for key in keys], np.uint8)
    values, firsts = np.unique(branches, return_index=True)
    kind, body = _node(values)
    yield struct.pack("<bhb", kind, len(values), fork - depth) + keys[0][depth:fork] + body
    for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(keys)], strict=True):
        yield from _tree(keys[first:last], start + first, fork + 1)


def _node(values: np.ndarray) -> tuple[int, bytes]:
    """(type, body) of a node with a child for each of the bytes `values`.
    Java turns bytes around in words of 4 or 8."""
    if len(values) <= 4:
        return _NODE_4, values.tobytes().ljust(4, b"\x00")[::-1]
    if len(values) <= 16:
        return _NODE_16, np.frombuffer(values.tobytes().ljust(16, b"\x00"), ">u8").astype("<u8").tobytes()
    if len(values) <= 48:
        places = np.full(256, 255, np.uint8)
        places[values] = np.arange(len(values))
        return _NODE_48, places.view(">u8").astype("<u8").tobytes()
    bits = np.zeros(256, bool)
    bits[values] = True
    return _NODE_256, np.packbits(bits, bitorder="little").tobytes()


def _portable(containers: list[tuple[int, _Container]]) -> bytes:
    halves: dict[int, list[tuple[int, _Container]]] = {}
    for key, container in containers:
        halves.setdefault(key >> 16, []).append((key & 0xFFFF, _canonical(container)))
    parts = [struct.pack("<Q", len(halves))]
    for high, half in halves.items():
        parts.append(struct.pack("<I", high))
        flags = np.packbits([container.kind == _RUNS for _, container in half], bitorder="little").tobytes()
        head = struct.pack("<HH", _RUN_COOKIE, len(half) - 1) + flags
        head += b"".join(struct.pack("<HH", low, container.count - 1) for low, container in half)
        payloads = [container.payload for _, container in half]
        if len(half) >= _NO_OFFSETS_BELOW:
            sizes = np.cumsum([0, *(len(payload) for payload in payloads)])[:-1]
            head += (len(head) + 4 * len(half) + sizes).astype("<u4").tobytes()
        parts += [head, *payloads]
    return b"".join(parts)


def _canonical(container: _Container) -> _Container:
    """`container`, or one of runs where its count would make the portable form take it for another type."""
    if container.kind == _RUNS or (container.kind == _BITS) == (container.count > _ARRAY_MOST):
        return container
    if container.kind == _ARRAY:
        values = np.frombuffer(container.payload, "<u2")
    else:
        values = np.flatnonzero(np.unpackbits(np.frombuffer(container.payload, np.uint8), bitorder="little"))
    runs = np.stack((values, np.zeros(len(values), np.int64)), axis=1).astype("<u2").tobytes()
    return _Container(_RUNS, len(values), struct.pack("<H", len(values)) + runs)


def _of_portable(data: _Cursor) -> Iterator[tuple[int, _Container]]:
    """Containers by key, keys ascending."""
    (halves,) = data.unpack("<Q")
    for _ in range(halves):
        high, cookie = data.unpack("<II")
        has_runs = cookie & 0xFFFF == _RUN_COOKIE
        (count,) = ((cookie >> 16) + 1,) if has_runs else data.unpack("<I")
        flags = np.zeros(count, np.uint8)
        if has_runs:
            bits = np.frombuffer(data.take((count + 7) // 8), np.uint8)
            flags = np.unpackbits(bits, count=count, bitorder="little")
        heads = np.frombuffer(data.take(4 * count), "<u2").astype(np.int64).reshape(-1, 2).tolist()
        if not has_runs or count >= _NO_OFFSETS_BELOW:
            data.take(4 * count)
        for (low, less_one), is_run in zip(heads, flags.tolist(), strict=True):
            size = less_one + 1
            if is_run:
                runs = data.take(2)
                container = _Container(_RUNS, size, runs + data.take(4 * int.from_bytes(runs, "little")))
            elif size <= _ARRAY_MOST:
                container = _Container(_ARRAY, size, data.take(2 * size))
            else:
                container = _Container(_BITS, size, data.take(_BITS_BYTES))
            yield high << 16 | low, container
