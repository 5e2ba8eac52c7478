"""Paimon's index files of deletion vectors: a version byte, then the vectors (DeletionVectorsIndexFile)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lakeformat.codec.bitmap import FRAME_BYTES, is_wide
from lakeformat.errors import CorruptFile

_VERSION = b"\x01"


def emit(vectors: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """(the file, the offset of each vector)."""
    offsets, offset = [], len(_VERSION)
    for vector in vectors:
        offsets.append(offset)
        offset += len(vector)
    return b"".join((_VERSION, *vectors)), offsets


def length(vector: bytes) -> int:
    """The length of a vector as index manifests record it: for narrow vectors without the frame."""
    return len(vector) if is_wide(vector) else len(vector) - FRAME_BYTES


def take(data: bytes, offset: int, recorded: int, where: str) -> bytes:
    """The vector at `offset`, with the length `recorded` in the index manifest. Raises `CorruptFile`."""
    if not 0 < offset <= len(data) - FRAME_BYTES:
        raise CorruptFile(f"{where}: a deletion vector at {offset} of {len(data)} bytes")
    (inside,) = struct.unpack_from(">i", data, offset)
    vector = data[offset : offset + inside + FRAME_BYTES]
    if len(vector) != inside + FRAME_BYTES or recorded != length(vector):
        raise CorruptFile(f"{where}: the deletion vector at {offset} is {inside} bytes long, its table says {recorded}")
    return vector
