"""Lengths in ORC streams: those that writers write pass, and those that no value has do not."""

import random

import pyarrow as pa
import pyarrow.orc as po
import pytest

from lakeformat.codec import orc_runs
from lakeformat.codec.varint import write
from lakeformat.engines.files.orc import File


@pytest.mark.parametrize("seed", range(12))
def test_lengths_of_any_distribution_are_read(seed):
    chance = random.Random(seed)
    shapes = [
        lambda i: 7, lambda i: i, lambda i: 900 - i, lambda i: chance.randrange(50), lambda i: (i % 7) * (i % 5),
        lambda i: 3000 if chance.random() < 0.03 else chance.randrange(3), lambda i: 900 - i - chance.randrange(3) if i < 800 else 0,
    ]  # fmt: skip
    lengths = [max(0, chance.choice(shapes[: seed % 7 + 1])(i)) for i in range(900)]
    table = pa.table({
        "text": [None if chance.random() < 0.1 else chr(97 + size % 26) * size for size in lengths],
        "list": [[1] * (size % 40) for size in lengths],
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    po.write_table(table, sink, compression=chance.choice(["uncompressed", "zlib", "snappy", "zstd", "lz4"]))
    file = File(pa.BufferReader(sink.getvalue()), "x")
    batches = [batch for _, batch in file.batches(file.fields(None), None, 1000)]
    assert pa.Table.from_batches(batches).to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("runs", "version_2"),
    [
        (b"\x3a" + b"\xff" * 8, True),  # One value of eight bytes, five times.
        (b"\x7e\x00" + b"\xff" * 8, True),  # Packed in 64 bits.
        (b"\xc0\x02" + write(5) + write(5), True),  # 5, then 3 less twice.
        (b"\xc0\x02" + write(1 << 63) + write(0), True),
        (b"\xc6\x04" + write(40) + write(1) + b"\xff" * 2, True),  # Falls by 15 a step, below nothing.
        (b"\x90\x00\xe0\x00" + b"\x80" + b"\x00" * 9, True),  # A base that is negative.
        (b"\x02\xff" + write(3), False),  # 3, 2, 1, 0, -1.
        (b"\xff" + write(1 << 62), False),
    ],
)
def test_what_no_length_is_does_not_pass(runs, version_2):
    assert not orc_runs.may_be_lengths(runs, version_2)


@pytest.mark.parametrize(
    ("runs", "version_2"),
    [
        (b"\x0a\x27\x10", True), (b"\x5e\x03\x5c\xa1\xab\x1e\xde\xad\xbe\xef", True), (b"\xc6\x09\x02\x02\x22\x42\x42\x46", True),
        (b"\x8e\x13\x2b\x21\x07\xd0\x1e\x00\x14\x70\x28\x32\x3c\x46\x50\x5a\x64\x6e\x78\x82\x8c\x96\xa0\xaa\xb4\xbe\xfc\xe8", True),
        (b"\x61\x00\x07", False), (b"\x61\xff\x64", False), (b"\xfb\x02\x03\x04\x07\x0b", False), (b"", True),
    ],
)  # fmt: skip
def test_the_examples_of_the_specification_pass(runs, version_2):
    assert orc_runs.may_be_lengths(runs, version_2)
