"""Whether what an ORC stream has as lengths of texts, lists and maps can be lengths: ORC has no checksums, and Arrow's
reader trusts them."""

from __future__ import annotations

from lakeformat.codec import varint

_LIMIT = 1 << 40  # No length is so great, and the sum of a stripe's stays far below 64 bits.
_BITS = 40
_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # Bits of a packed value, by their code.


def may_be_lengths(data: bytes, is_version_2: bool) -> bool:
    """Whether the integers of a stream, in run length encoding of version 1 or 2 (ORC specification v1), are neither
    negative nor greater than any length. Runs are bounded by their heads. Raises `IndexError` for a stream that ends
    within a run."""
    offset = 0
    while offset < len(data):
        offset = (_run if is_version_2 else _old_run)(data, offset)
        if offset < 0:
            return False
    return True


def _run(data: bytes, offset: int) -> int:
    """The end of the run that begins at `offset`; -1 if it may hold what no length is."""
    head, code = data[offset], (data[offset] >> 1) & 31
    if head >> 6 == 0:  # One value, repeated.
        size = (head >> 3 & 7) + 1
        return offset + 1 + size if int.from_bytes(data[offset + 1 : offset + 1 + size], "big") < _LIMIT else -1
    count, width = ((head & 1) << 8 | data[offset + 1]) + 1, _WIDTHS[code]
    match head >> 6:
        case 1:  # Packed.
            return offset + 2 + _packed(width, count) if width <= _BITS else -1
        case 2:  # Packed, with patches of great values.
            base_bytes, patch_width = (data[offset + 2] >> 5) + 1, _WIDTHS[data[offset + 2] & 31]
            gap_width, patches = (data[offset + 3] >> 5) + 1, data[offset + 3] & 31
            base = int.from_bytes(data[offset + 4 : offset + 4 + base_bytes], "big")
            if width + patch_width > _BITS or base >= _LIMIT or base >> (8 * base_bytes - 1):
                return -1
            entry = next(fixed for fixed in _WIDTHS if fixed >= gap_width + patch_width)
            return offset + 4 + base_bytes + _packed(width, count) + _packed(entry, patches)
    base, offset = varint.read(data, offset + 2)
    zigzag, offset = varint.read(data, offset)
    delta, left = (zigzag >> 1) ^ -(zigzag & 1), max(count - 2, 0)
    width = width if code else 0
    if base >= _LIMIT or abs(delta) >= _LIMIT or width > _BITS:
        return -1
    end = offset + _packed(width, left)
    if delta < 0:
        packed = int.from_bytes(data[offset:end], "big") >> (8 * (end - offset) - width * left)
        steps = sum(packed >> (width * step) & ((1 << width) - 1) for step in range(left)) if width else -delta * left
        if base + delta - steps < 0:
            return -1
    return end


def _old_run(data: bytes, offset: int) -> int:
    """As `_run`, in version 1."""
    head = data[offset]
    if head < 128:
        delta = data[offset + 1] - 256 if data[offset + 1] > 127 else data[offset + 1]
        base, offset = varint.read(data, offset + 2)
        return offset if base < _LIMIT and base + delta * (head + 2) >= 0 else -1
    offset += 1
    for _ in range(256 - head):
        value, offset = varint.read(data, offset)
        if value >= _LIMIT:
            return -1
    return offset


def _packed(width: int, count: int) -> int:
    """Bytes."""
    return (width * count + 7) // 8
