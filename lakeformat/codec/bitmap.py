"""Row positions <-> deletion vectors: a Roaring bitmap with its length and checksum.

Both kinds are `int32 BE length | magic | bitmap | int32 BE CRC-32 of magic and bitmap`. The wide kind (64-bit
positions, portable format) is Iceberg's `deletion-vector-v1` and Paimon's `deletion-vectors.bitmap64`; the narrow kind
(32-bit) is Paimon's alone. The magic number tells them apart.
"""

from __future__ import annotations

import array
import struct
import zlib

import numpy as np
from pyroaring import BitMap, BitMap64

from lakeformat.errors import CorruptFile, InvalidInput

_WIDE = struct.pack("<i", 1681511377)
_NARROW = struct.pack(">i", 1581511376)
FRAME_BYTES = 4 + 4  # The length and the checksum.


def encode(positions: np.ndarray, wide: bool = True) -> bytes:
    """Positions, in any order, -> a deletion vector. Raises `InvalidInput` for positions that a narrow vector cannot
    hold."""
    if not wide and len(positions) and int(positions.max()) >= 1 << 31:
        raise InvalidInput(
            f"position {int(positions.max())} is beyond the 2^31 rows that a 32-bit deletion vector reaches"
        )
    bits = _bitmap(positions, wide)
    bits.run_optimize()
    body = (_WIDE if wide else _NARROW) + bits.serialize()
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def plain(positions: np.ndarray) -> bytes:
    """A 64-bit roaring bitmap of positions, without a frame."""
    bits = _bitmap(positions, wide=True)
    bits.run_optimize()
    data: bytes = bits.serialize()
    return data


def framed(data: bytes) -> bytes:
    """The vector at the start of `data`, without up to `FRAME_BYTES` bytes after it: Paimon records the length of wide
    vectors with the frame, and of narrow vectors without it."""
    (length,) = struct.unpack_from(">i", data) if len(data) >= FRAME_BYTES else (0,)
    return data[:-FRAME_BYTES] if len(data) == length + 2 * FRAME_BYTES else data


def is_wide(data: bytes) -> bool:
    """Whether a deletion vector holds 64-bit positions."""
    return data[4:8] == _WIDE


def decode(data: bytes, where: str) -> np.ndarray:
    """A deletion vector -> its positions, ascending. Raises `CorruptFile` for bytes that are no deletion vector."""
    if len(data) < FRAME_BYTES + 4:
        raise CorruptFile(f"{where}: a deletion vector of {len(data)} bytes")
    (length,) = struct.unpack_from(">i", data)
    body = memoryview(data)[4:-4]
    if length != len(body):
        raise CorruptFile(f"{where}: a deletion vector of {len(body)} bytes says that it is {length} long")
    if zlib.crc32(body) != struct.unpack(">I", data[-4:])[0]:
        raise CorruptFile(f"{where}: the checksum of a deletion vector does not match its bytes")
    magic = bytes(body[:4])
    if magic not in (_WIDE, _NARROW):
        raise CorruptFile(f"{where}: a deletion vector that begins with {magic.hex()}")
    kind, code = (BitMap64, np.uint64) if magic == _WIDE else (BitMap, np.uint32)
    try:
        bitmap = kind.deserialize(bytes(body[4:]))
    except (ValueError, RuntimeError, EOFError) as error:
        raise CorruptFile(f"{where}: a deletion vector whose bitmap cannot be read: {error}") from error
    return np.frombuffer(bitmap.to_array(), code).astype(np.int64)


def _bitmap(positions: np.ndarray, wide: bool) -> BitMap | BitMap64:
    if wide:
        return BitMap64(array.array("Q", positions.astype(np.uint64).tobytes()))
    return BitMap(array.array("I", positions.astype(np.uint32).tobytes()))
