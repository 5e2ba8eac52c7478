"""Integers of seven bits per byte, lowest first (LEB128), as in the footers of Parquet and ORC files."""

from __future__ import annotations


def read(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(the number at `at`, where it ends). Raises `IndexError` at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def write(value: int) -> bytes:
    """The bytes of a non-negative number."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
