"""Java's 64-bit roaring bitmaps: the bytes that Java made, and back."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakeformat.engines.keyed import roaring64

GOLDEN = Path(__file__).parents[2] / "golden" / "vectors" / "roaring64.json"
SETS = json.loads(GOLDEN.read_text(encoding="utf-8"))["sets"]


def listed(ranges):
    return [(start + i * step) % (1 << 64) for start, count, step in ranges for i in range(count)]


def numbers(ranges):
    return set(listed(ranges))


def made(values):
    bitmap = BitMap64(sorted(values))
    bitmap.run_optimize()
    return bitmap


@pytest.mark.parametrize("case", SETS, ids=lambda case: str(case["ranges"]))
def test_what_java_wrote_is_read(case):
    values = numbers(case["ranges"])
    first = numbers(SETS[0]["ranges"])
    assert set(roaring64.deserialize(bytes.fromhex(case["bytes"]))) == values
    assert set(roaring64.deserialize(bytes.fromhex(case["with_first"]))) == values | first


@pytest.mark.parametrize("case", SETS, ids=lambda case: str(case["ranges"]))
def test_what_we_write_is_what_java_wrote(case):
    """Byte by byte, but for the places that Java keeps free for more containers."""
    values = numbers(case["ranges"])
    java, ours = bytes.fromhex(case["bytes"]), roaring64.serialize(made(values))
    if free := len(java) - len(ours):
        head, count = struct.pack("<ib", 1, -2), len({value >> 16 for value in values})
        tree, containers = ours.split(head + struct.pack("<i", count))
        ours = tree + head + struct.pack("<i", count + free) + containers[:-16] + bytes(free) + containers[-16:]
    assert set(roaring64.deserialize(ours)) == values
    if listed(case["ranges"]) == sorted(values):  # Else Java has its containers in the order that they came in.
        assert ours.hex() == case["bytes"]


WIDE = st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 18) | st.integers(0, 300).map(lambda n: n << 40)
RANGES = st.tuples(WIDE, st.integers(1, 9000), st.sampled_from([1, 2, 1 << 16]))


@given(st.sets(WIDE, max_size=80), st.lists(RANGES, max_size=2))
def test_numbers_come_back(alone, ranges):
    values = alone | numbers(ranges)
    assert roaring64.deserialize(roaring64.serialize(made(values))) == BitMap64(values)


def test_containers_of_an_odd_size_are_read():
    """An array of more than 4096 numbers, and bits for fewer: Java may leave either behind."""
    bits = bytearray(8192)
    bits[1] = 1
    array = b"".join(n.to_bytes(2, "little") for n in range(0, 10000, 2))
    leaf = (0).to_bytes(8, "little")
    for kind, payload, values in ((2, array, set(range(0, 10000, 2))), (1, bytes(bits), {8})):
        count = len(values).to_bytes(4, "little")
        head = b"\x01" + (1).to_bytes(8, "little") + b"\x04\0\0\0" + bytes(6) + leaf + b"\1\0\0\0\xfe\1\0\0\0\1"
        data = head + bytes([kind]) + count + payload + (1).to_bytes(8, "little") + bytes(8)
        assert set(roaring64.deserialize(data)) == values


def test_other_bytes_are_no_bitmap():
    whole = bytes.fromhex(SETS[0]["bytes"])
    for data in (b"", b"\x07", whole[:-40], whole[:30], whole[:9] + b"\x09" + whole[10:], BitMap64([1]).serialize()):
        with pytest.raises(ValueError):
            roaring64.deserialize(data)
