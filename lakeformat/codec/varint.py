"""Whole numbers of seven bits a byte, the lowest first (LEB128), as the footers of Parquet and ORC files hold them."""

from __future__ import annotations


def read(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(the number that begins at `at`, where it ends). Raises `IndexError` where the data ends first."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def write(value: int) -> bytes:
    """The bytes of a number that is not negative."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
