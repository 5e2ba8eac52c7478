"""Hashes and buckets against Java's, against published vectors, and against plain loops."""

import json
import random
import struct
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.codec import murmur
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.paimon import binary_row
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Kind, scalar
from tests.unit.codec.test_binary_row import beyond, columns_of, type_of

GOLDEN = Path(__file__).parents[2] / "golden/vectors"
MURMUR = json.loads((GOLDEN / "murmur.json").read_text())["vectors"]
GROUPS = json.loads((GOLDEN / "bucket.json").read_text())["groups"]


def wrapped(value):
    """A Python number as Java's int."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def test_hashes_of_words_are_those_of_java():
    rows = pa.array([bytes.fromhex(text) for text, _ in MURMUR], pa.binary())
    assert murmur.murmur3_32(rows, murmur.PAIMON_SEED).tolist() == [hashed for _, hashed in MURMUR]


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: ",".join(map(str, g["types"])))
def test_buckets_of_rows_are_those_of_java(group):
    types = [type_of(t) for t in group["types"]]
    held = [i for i, row in enumerate(group["rows"]) if not beyond(group["types"], row)]
    columns = columns_of([group["rows"][i] for i in held], types)
    hashes = murmur.murmur3_32(binary_row.encode(columns, types), murmur.PAIMON_SEED)
    assert hashes.tolist() == [group["hashes"][i] for i in held]
    for count, wanted in group["buckets"].items():
        assert murmur.buckets(columns, types, int(count)).tolist() == [wanted[i] for i in held], count


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (struct.pack("<q", 34), 2017239379),
        (struct.pack("<q", 17486), -653330422),
        (b"iceberg", 1210000089),
        ((1420).to_bytes(2, "big"), -500754589),
        (struct.pack("<q", 81068000000), -662762989),
        (struct.pack("<q", 1510871468000000), -2047944441),
        (bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7"), 1488055340),
        (bytes([0, 1, 2, 3]), -188683207),
    ],
)
def test_seed_0_hashes_are_those_of_the_iceberg_specification(data, hashed):
    assert murmur.murmur3_32(pa.array([data])).tolist() == [hashed]


def murmur_loop(data, seed):
    """MurmurHash3_x86_32 as its paper has it, a byte string at a time."""
    mask, state = 0xFFFFFFFF, seed
    turned = lambda v, r: ((v << r) | (v >> (32 - r))) & mask  # noqa: E731
    scrambled = lambda k: turned(k * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask  # noqa: E731
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        state = (turned(state ^ scrambled(int.from_bytes(data[i : i + 4], "little")), 13) * 5 + 0xE6546B64) & mask
    state ^= scrambled(int.from_bytes(data[whole:], "little")) if data[whole:] else 0
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return wrapped(state ^ state >> 16)


@pytest.mark.parametrize("seed", [0, 42])
def test_lengths_mixed_in_one_array_hash_as_one_by_one(seed):
    draw = random.Random(7)
    values = [draw.randbytes(draw.choice([0, 1, 2, 3, 4, 5, 7, 8, 30, 200])) for _ in range(400)]
    array = pa.array(values, pa.binary())
    assert murmur.murmur3_32(array, seed).tolist() == [murmur_loop(v, seed) for v in values]
    assert murmur.murmur3_32(array.slice(13, 200), seed).tolist() == [murmur_loop(v, seed) for v in values[13:213]]
    assert murmur.murmur3_32(pa.array([], pa.binary()), seed).tolist() == []
    assert murmur.murmur3_32(pa.array([None, "é"]), seed).tolist() == [murmur_loop(b, seed) for b in (b"", b"\xc3\xa9")]


@pytest.mark.parametrize("kind", [Kind.INT, Kind.BIGINT])
def test_mod_is_never_negative(kind):
    values = pa.array([17, -3, 5, None, -5, 0], to_arrow(scalar(kind)))
    assert murmur.buckets([values], [scalar(kind)], 5, "mod").tolist() == [2, 2, 0, 0, 0, 0]


def hive_loop(value, kind):
    """Java's hashes of boxed values, one at a time."""
    match kind:
        case Kind.BIGINT:
            return wrapped((value ^ value >> 32) & 0xFFFFFFFF)
        case Kind.DOUBLE:
            bits = 0 if value == 0 else struct.unpack("<q", struct.pack("<d", value))[0]
            return hive_loop(bits, Kind.BIGINT)
        case Kind.FLOAT:
            return 0 if value == 0 else struct.unpack("<i", struct.pack("<f", value))[0]
        case Kind.STRING | Kind.BYTES:
            state = 0
            for byte in value.encode() if isinstance(value, str) else value:
                state = wrapped(31 * state + (byte - 256 if byte > 127 else byte))
            return state
        case Kind.DECIMAL:
            _, digits, exponent = value.as_tuple()
            number = int("".join(map(str, digits)))
            while number and number % 10 == 0 and exponent < 0:
                number, exponent = number // 10, exponent + 1
            if not number:
                return 0
            state = 0
            for shift in (96, 64, 32, 0):
                state = wrapped(31 * state + (number >> shift & 0xFFFFFFFF))
            return wrapped(31 * (-state if value < 0 else state) - exponent)
    return int(value)


@pytest.mark.parametrize("seed", range(3))
def test_hive_buckets_are_those_of_its_loops(seed):
    draw = random.Random(seed)
    money = lambda p, s: Decimal(draw.randrange(10**p) * draw.choice([1, -1, 0])).scaleb(-s)  # noqa: E731
    drawn = {
        scalar(Kind.BOOLEAN): lambda: draw.random() < 0.5,
        scalar(Kind.TINYINT): lambda: draw.randrange(-128, 128),
        scalar(Kind.INT): lambda: draw.randrange(-(1 << 31), 1 << 31),
        scalar(Kind.BIGINT): lambda: draw.randrange(-(1 << 63), 1 << 63),
        scalar(Kind.FLOAT): lambda: draw.choice([0.0, -0.0, 1.5, -2.25, float("inf")]),
        scalar(Kind.DOUBLE): lambda: draw.choice([0.0, -0.0, draw.uniform(-1e9, 1e9)]),
        scalar(Kind.STRING): lambda: "é日x"[: draw.randrange(4)] * draw.randrange(4),
        scalar(Kind.BYTES): lambda: draw.randbytes(draw.randrange(9)),
        scalar(Kind.DECIMAL, 10, 4): lambda: draw.choice([money(10, 4), Decimal("12.5000"), Decimal("100.0000")]),
        scalar(Kind.DECIMAL, 38, 20): lambda: money(38, 20),
        scalar(Kind.DATE): lambda: draw.randrange(-9999, 9999),
    }
    types = list(drawn)
    rows = [[None if draw.random() < 0.1 else make() for make in drawn.values()] for _ in range(300)]
    columns = [pa.array([r[i] for r in rows], to_arrow(t)) for i, t in enumerate(types)]
    wanted = []
    for row in rows:
        state = 0
        for value, type in zip(row, types, strict=True):
            state = wrapped(31 * state + (0 if value is None else hive_loop(value, type.kind)))
        wanted.append((state & 0x7FFFFFFF) % 13)
    assert murmur.buckets(columns, types, 13, "hive").tolist() == wanted, f"seed {seed}"


def test_java_strings_and_decimals_of_known_hash():
    assert murmur.hive_bucket([pa.array(["hello"])], [scalar(Kind.STRING)], 1 << 30).tolist() == [99162322]
    one = pa.array([Decimal("1.50")], pa.decimal128(10, 2))  # Java: new BigDecimal("1.5").hashCode() is 31 * 15 + 1.
    assert murmur.hive_bucket([one], [scalar(Kind.DECIMAL, 10, 2)], 1 << 30).tolist() == [466]


def test_the_least_int_has_a_bucket():
    rows = pa.array([struct.pack("<q", i) for i in range(20_000)])
    found = murmur.bucket(rows, 7)
    assert found.dtype == np.int32
    assert set(found.tolist()) == set(range(7))


def test_what_cannot_be_bucketed_is_refused_by_name():
    column, text = [pa.array([1])], [pa.array(["a"])]
    with pytest.raises(InvalidInput, match="'murmur'"):
        murmur.buckets(column, [scalar(Kind.BIGINT)], 4, "murmur")
    with pytest.raises(InvalidInput, match="mod takes one bucket-key column of int or bigint, not string"):
        murmur.buckets(text, [scalar(Kind.STRING)], 4, "mod")
    with pytest.raises(InvalidInput, match="0 buckets"):
        murmur.buckets(column, [scalar(Kind.BIGINT)], 0)
    with pytest.raises(UnsupportedFeature, match="timestamp"):
        murmur.buckets([pa.array([1], pa.timestamp("us"))], [scalar(Kind.TIMESTAMP, 6)], 4, "hive")
