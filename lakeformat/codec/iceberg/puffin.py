"""Puffin files: blobs, and a JSON footer that describes each (Puffin spec)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field

from lakeformat.model.dataclass import dataclass

MAGIC = b"PFA1"
DELETION_VECTOR = "deletion-vector-v1"


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob of one type, with the field ids of its columns. Snapshot id and sequence number are -1 until inherited."""

    type: str
    data: bytes
    fields: tuple[int, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    snapshot_id: int = -1
    sequence_number: int = -1


def emit(blobs: Sequence[Blob], properties: Mapping[str, str] | None = None) -> tuple[bytes, list[int]]:
    """(the file, the offset of each blob)."""
    parts, offsets, entries = [MAGIC], [], []
    offset = len(MAGIC)
    for blob in blobs:
        parts.append(blob.data)
        offsets.append(offset)
        entries.append(
            {
                "type": blob.type,
                "fields": list(blob.fields),
                "snapshot-id": blob.snapshot_id,
                "sequence-number": blob.sequence_number,
                "offset": offset,
                "length": len(blob.data),
                "properties": dict(blob.properties),
            }
        )
        offset += len(blob.data)
    footer = json.dumps({"blobs": entries, "properties": dict(properties or {})}, separators=(",", ":")).encode()
    parts += [MAGIC, footer, struct.pack("<i", len(footer)), b"\0\0\0\0", MAGIC]
    return b"".join(parts), offsets


def footer_size(file: bytes) -> int:
    """The size of a file's footer in bytes, with the magic at both of its ends."""
    (size,) = struct.unpack("<i", file[-12:-8])
    return int(size) + 16
