"""JSON documents, plain or gzip: table metadata as files hold it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from lakeformat.errors import CorruptFile

_GZIP = b"\x1f\x8b"
# What a file may unpack to, for each of its bytes and besides. Metadata, most of it names and numbers, packs to a tenth.
_RATIO, _LEEWAY_BYTES = 200, 16 << 20


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The object in a file, whatever the file is called: gzip is known by its first bytes. Raises `CorruptFile`."""
    try:
        document = json.loads(_unpacked(data, where) if data.startswith(_GZIP) else data)
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise CorruptFile(f"{where}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptFile(f"{where}: a JSON {type(document).__name__}, not an object")
    return document


def emit(document: Mapping[str, Any], is_gzip: bool = False) -> bytes:
    """The same bytes for the same document."""
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return gzip.compress(data, mtime=0) if is_gzip else data


def _unpacked(data: bytes, where: str) -> bytes:
    most = _RATIO * len(data) + _LEEWAY_BYTES
    unpacker = zlib.decompressobj(wbits=31)
    found = unpacker.decompress(data, most)
    if unpacker.unconsumed_tail:
        raise CorruptFile(f"{where}: {len(data)} bytes of gzip unpack to more than {most}; metadata does not")
    if not unpacker.eof:
        raise EOFError("the end of the gzip data is missing")
    return found
