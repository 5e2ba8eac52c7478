"""AES GCM streams: files encrypted in blocks (Iceberg's gcm-stream-spec.md); and secrets encrypted as one block."""

from __future__ import annotations

import io
import struct
from typing import Any

from lakeformat.errors import CorruptFile, UnsupportedFeature
from lakeformat.model.work import FileKey

MAGIC = b"AGS1"
KEY_SIZES = (16, 24, 32)
_HEADER, _NONCE, _TAG = 8, 12, 16
_BLOCK_BYTES = 64 << 20  # Larger blocks are refused: a block is decrypted as a whole.


class WrongTag(Exception):
    """The bytes are damaged, or were encrypted with another key; the tag does not tell which."""


def opened_block(key: bytes, data: bytes, signed: bytes | None) -> bytes:
    """The plaintext of a block of nonce, ciphertext and tag; `signed` is the additional authenticated data. Raises
    `WrongTag`."""
    if len(data) < _NONCE + _TAG:
        raise WrongTag
    library, refusal = _library()
    try:
        plain: bytes = library(key).decrypt(data[:_NONCE], data[_NONCE:], signed)
    except refusal as error:
        raise WrongTag from error
    return plain


def decrypt(data: bytes, key: FileKey, where: str) -> bytes:
    """The plaintext of a whole stream. Raises `CorruptFile` for a damaged block and for a truncated stream."""
    return Stream(io.BytesIO(data), key, where).read()


class Stream(io.RawIOBase):
    """The plaintext of an encrypted file, with random access: only the blocks read are decrypted."""

    def __init__(self, source: Any, key: FileKey, where: str) -> None:
        super().__init__()
        self._source, self._key, self._where, self._at = source, key, where, 0
        size_bytes = source.seek(0, io.SEEK_END)
        # The size in the table metadata is authoritative: blocks may have been cut off the end of the file.
        stored = size_bytes if key.size_bytes is None else key.size_bytes
        source.seek(0)
        head = source.read(_HEADER)
        if head[:4] != MAGIC or len(head) < _HEADER:
            raise CorruptFile(
                f"{where}: not encrypted, as its table says: it begins with {bytes(head[:4])!r}, not {MAGIC!r}"
            )
        (self._block,) = struct.unpack("<i", head[4:])
        if not 0 < self._block <= _BLOCK_BYTES:
            raise CorruptFile(f"{where}: encrypted in blocks of {self._block} bytes")
        if size_bytes < stored:
            raise CorruptFile(f"{where}: it ends at byte {size_bytes}, and its table says {stored}")
        whole, rest = divmod(stored - _HEADER, self._block + _NONCE + _TAG)
        if (rest or not whole) and rest < _NONCE + _TAG:
            raise CorruptFile(f"{where}: cut off at byte {stored}, within an encrypted block")
        self._size = whole * self._block + max(rest - _NONCE - _TAG, 0)
        self._last: tuple[int, bytes] = (-1, b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        first, last = self._at // self._block, (end - 1) // self._block
        start = first * self._block
        data = b"".join(self._opened(number) for number in range(first, last + 1))[self._at - start : end - start]
        self._at = end
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()

    def _opened(self, number: int) -> bytes:
        known, plain = self._last
        if known == number:
            return plain
        step = self._block + _NONCE + _TAG
        self._source.seek(_HEADER + number * step)
        left = self._size - number * self._block
        data = self._source.read(min(left, self._block) + _NONCE + _TAG)
        try:
            plain = opened_block(self._key.key, data, self._key.signed + struct.pack("<i", number))
        except WrongTag:
            raise CorruptFile(
                f"{self._where}: encrypted block {number} is damaged, "
                "or was encrypted with another key than its table says"
            ) from None
        self._last = number, plain
        return plain


def _library() -> tuple[Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise UnsupportedFeature(
            "encrypted tables need the package cryptography: pip install 'lakeformat[encryption]'"
        ) from error
    return AESGCM, InvalidTag
