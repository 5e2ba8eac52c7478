"""JSON documents, plain or gzip: table metadata files."""

from __future__ import annotations

import gzip
import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

from lakeformat.errors import CorruptFile, InvalidInput
from lakeformat.model.dataclass import dataclass

_GZIP = b"\x1f\x8b"
# The limit on the inflated size: this many times the file's size, plus this much. Metadata, mostly names and numbers,
# compresses to a tenth.
_RATIO, _LEEWAY_BYTES = 200, 16 << 20
_PIECES = 64  # The most pieces of a text before they are joined.


@dataclass(frozen=True, slots=True)
class Written:
    """The first items of a long list of a document: parsed, and as `emit` writes them, separated by commas. The text is
    in pieces because joining copies it."""

    parts: Sequence[Any] = ()
    text: tuple[bytes, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.text))

    def begins(self, parts: Sequence[Any]) -> bool:
        """Whether a list begins with the same objects."""
        return len(self.parts) <= len(parts) and all(map(is_, self.parts, parts))

    def followed(self, parts: Sequence[Any]) -> Written:
        """`parts` as `Written`, if it begins with these items."""
        more = _dumped(parts[len(self.parts) :])[1:-1]
        if not more:
            return Written(parts, self.text)
        text = (*self.text, b"," + more if self.text else more)
        return Written(parts, text if len(text) <= _PIECES else (b"".join(text),))

    def stands_at(self, data: bytes, start: int) -> int | None:
        """Where the text ends if `data` has it from `start` on, else None."""
        for piece in self.text:
            if not data.startswith(piece, start):
                return None
            start += len(piece)
        return start


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in a file; gzip is detected by the first bytes, not by the file's name. Raises `CorruptFile`."""
    try:
        document = json.loads(_unpacked(data, where) if data.startswith(_GZIP) else data)
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise CorruptFile(f"{where}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptFile(f"{where}: a JSON {type(document).__name__}, not an object")
    return document


def parse_after(
    data: bytes, where: str, parsed: Mapping[str, Written]
) -> tuple[dict[str, Any], bytes, dict[str, Written]]:
    """As `parse`, for an object whose lists may begin with `parsed` items, by name: (the object, its lists without the
    known items; the bytes that were parsed; the known items of each list)."""
    if data.startswith(_GZIP):
        return parse(data, where), data, {}
    rest, cut, mark = data, dict[str, Written](), f"{uuid.uuid4()}"
    for name, begun in parsed.items():
        start = rest.find(key := f'"{name}":['.encode())
        after = start + len(key)
        end = begun.stands_at(rest, after) if start >= 0 and begun.text else None
        if end is not None and rest[end : end + 1] in (b",", b"]"):
            rest, cut[name] = b'%b"%b"%b' % (rest[:after], mark.encode(), rest[end:]), begun
    if cut:
        try:
            document = parse(rest, where)
        except CorruptFile:
            document = {}
        if all((document.get(name) or [None])[0] == mark for name in cut):  # Not of nested objects.
            return document | {name: document[name][1:] for name in cut}, rest, cut
    return parse(data, where), data, {}


def encoded(text: str) -> bytes:
    """The text in UTF-8. Raises `InvalidInput` if a part of it is half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        part = text[max(0, error.start - 20) : error.end]
        raise InvalidInput(f"{part!r} is not text that a file can hold") from error


def emit(document: Mapping[str, Any], is_gzip: bool = False, lists: Mapping[str, Written] | None = None) -> bytes:
    """The same bytes for the same document. `lists`: the first items of its lists, whose text is reused."""
    if not lists:
        data = _dumped(document)
    else:
        pieces = [b"{"]
        for name, value in document.items():
            pieces += [_dumped(name), b":"]
            if name not in lists:
                pieces += [_dumped(value), b","]
                continue
            more = _dumped(value[len(lists[name].parts) :])[1:-1]
            pieces += [b"[", *lists[name].text, b"," if more else b"", more, b"]", b","]
        data = b"".join([*pieces[:-1], b"}"])
    return gzip.compress(data, mtime=0) if is_gzip else data


def _dumped(part: Any) -> bytes:
    return encoded(json.dumps(part, ensure_ascii=False, separators=(",", ":")))


def _unpacked(data: bytes, where: str) -> bytes:
    most = _RATIO * len(data) + _LEEWAY_BYTES
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(data, most)
    if unpacker.unconsumed_tail:
        raise CorruptFile(f"{where}: {len(data)} bytes of gzip unpack to more than {most}; metadata does not")
    if not unpacker.eof:
        raise EOFError("the end of the gzip data is missing")
    return unpacked
