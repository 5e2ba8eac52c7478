"""Hashes of columns are those of the reference algorithms, at every length of text."""

import random
import zlib

import numpy as np
import pyarrow as pa

from lakeformat.codec import spark_hash

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def turned(value, by):
    return ((value << by) | (value >> (64 - by))) & MASK


def xxh64(data, seed):
    """XXH64 as its specification has it, byte by byte."""

    def mixed(state, word):
        return turned((state + word * P2) & MASK, 31) * P1 & MASK

    place = 0
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while place + 32 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[place + 8 * lane : place + 8 * lane + 8], "little")
                lanes[lane] = mixed(lanes[lane], word)
            place += 32
        state = sum(turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            state = ((state ^ mixed(0, lane)) * P1 + P4) & MASK
    else:
        state = (seed + P5) & MASK
    state = (state + len(data)) & MASK
    while place + 8 <= len(data):
        state = (turned(state ^ mixed(0, int.from_bytes(data[place : place + 8], "little")), 27) * P1 + P4) & MASK
        place += 8
    if place + 4 <= len(data):
        word = int.from_bytes(data[place : place + 4], "little")
        state = (turned(state ^ (word * P1 & MASK), 23) * P2 + P3) & MASK
        place += 4
    for byte in data[place:]:
        state = turned(state ^ (byte * P5 & MASK), 11) * P1 & MASK
    state = (state ^ (state >> 33)) * P2 & MASK
    state = (state ^ (state >> 29)) * P3 & MASK
    return state ^ (state >> 32)


def texts():
    chance = random.Random("lengths")
    return [chance.randbytes(length) for length in (*range(100), 2047, 2048, 5000)]


def test_xxhash64_of_texts_of_every_length_is_that_of_the_specification():
    values = texts()
    hashed = spark_hash.xxhash64([pa.array(values, pa.binary())])
    assert hashed.view(np.uint64).tolist() == [xxh64(value, spark_hash.SEED) for value in values]


def test_crc32_is_that_of_zlib():
    values = [*texts(), None]
    assert spark_hash.crc32(pa.array(values, pa.binary())).to_pylist() == [
        None if value is None else zlib.crc32(value) for value in values
    ]
    assert spark_hash.crc32(pa.array([], pa.binary())).to_pylist() == []


def test_null_leaves_the_hash_of_the_columns_before():
    left, right = pa.array(["a", None, "b"]), pa.array([None, 7, None], pa.int64())
    for of in (spark_hash.murmur, spark_hash.xxhash64):
        assert of([left, right]).tolist() == [
            of([pa.array(["a"])])[0],
            of([pa.array([7])])[0],
            of([pa.array(["b"])])[0],
        ]
