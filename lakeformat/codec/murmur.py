"""Hashes of byte strings and rows, and Paimon's buckets of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakeformat.codec import decimals, spans
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.paimon import binary_row
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Kind, Scalar, Type

PAIMON_SEED = 42
FUNCTIONS = ("default", "mod", "hive")


def murmur3_32(values: pa.Array, seed: int | np.ndarray = 0, bytewise: bool = False) -> np.ndarray:
    """MurmurHash3_x86_32 of byte strings, int32; null counts as empty. Iceberg's seed is 0, Paimon's `PAIMON_SEED`,
    and of an array (uint32) each string has its own.
    With `bytewise` the bytes after the last whole word are mixed in one by one, as Java Paimon hashes text
    (MurmurHashUtils.hashBytes)."""
    data, offsets = spans.padded(values.cast(pa.binary()).fill_null(b""))
    begin, size = offsets[:-1], np.diff(offsets)
    order, reach = by_length(size // 4)
    words = _words32(data)
    begin, size = begin[order], size[order]
    state = np.full(len(order), seed, np.uint32) if isinstance(seed, int) else seed[order]
    for k, count in enumerate(reach):  # Longest first: the strings with a k-th word are the first `count`.
        part = state[:count]
        part ^= _scrambled(words[begin[:count] + 4 * k])
        part[:] = _turned(part, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    rest = (size % 4).astype(np.uint32)
    for k in range(3 if bytewise else 0):
        own = np.flatnonzero(rest > k)
        byte = data[(begin + size // 4 * 4)[own] + k].view(np.int8).astype(np.int32).view(np.uint32)
        state[own] = _turned(state[own] ^ _scrambled(byte), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if rest.any() and not bytewise:
        tail = words[begin + size // 4 * 4] & ((np.uint32(1) << (rest * np.uint32(8))) - np.uint32(1))
        state ^= np.where(rest > 0, _scrambled(tail), np.uint32(0))
    state ^= size.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state ^= state >> np.uint32(shift)
        state *= np.uint32(factor)
    state ^= state >> np.uint32(16)
    out = np.empty(len(order), np.uint32)
    out[order] = state
    return out.view(np.int32)


def murmur3_128(values: pa.Array, seed: int = 0) -> np.ndarray:
    """The first 64 bits of MurmurHash3_x64_128 of byte strings, uint64; null counts as empty."""
    data, offsets = spans.padded(values.cast(pa.binary()).fill_null(b""))
    words = spans.words(np.concatenate([data, np.zeros(2 * spans.WORD, np.uint8)]))
    begin, size = offsets[:-1], np.diff(offsets)
    order, reach = by_length(size // 16)
    begin, size = begin[order], size[order]
    first, second = np.full(len(order), seed, np.uint64), np.full(len(order), seed, np.uint64)
    for k, count in enumerate(reach):
        one, two, words_at = first[:count], second[:count], begin[:count] + 16 * k
        one ^= _scrambled64(words[words_at], _LONG_1, 31, _LONG_2)
        one[:] = (_turned64(one, 27) + two) * np.uint64(5) + np.uint64(0x52DCE729)
        two ^= _scrambled64(words[words_at + 8], _LONG_2, 33, _LONG_1)
        two[:] = (_turned64(two, 31) + one) * np.uint64(5) + np.uint64(0x38495AB5)
    rest, words_at = size % 16, begin + size // 16 * 16
    second ^= _scrambled64(_cut(words[words_at + 8], rest - 8), _LONG_2, 33, _LONG_1)
    first ^= _scrambled64(_cut(words[words_at], rest), _LONG_1, 31, _LONG_2)
    first ^= size.astype(np.uint64)
    second ^= size.astype(np.uint64)
    first += second
    second += first
    out = np.empty(len(order), np.uint64)
    out[order] = _mixed64(first) + _mixed64(second)
    return out


_LONG_1, _LONG_2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)


def _turned64(values: np.ndarray, by: int) -> np.ndarray:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _scrambled64(words: np.ndarray, factor: np.uint64, by: int, then: np.uint64) -> np.ndarray:
    return _turned64(words * factor, by) * then


def _mixed64(values: np.ndarray) -> np.ndarray:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    return values ^ (values >> np.uint64(33))


def _cut(words: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The first `size` bytes of each word, clipped to 0 to 8."""
    size = np.clip(size, 0, 8)
    shift = (8 * (8 - np.maximum(size, 1))).astype(np.uint64)
    return np.where(size > 0, words & (np.uint64(2**64 - 1) >> shift), np.uint64(0))


def bucket(rows: pa.Array, count: int) -> np.ndarray:
    """Paimon's default bucket of key rows (BinaryRows without the arity), int32."""
    _counted(count)
    hashed = murmur3_32(rows, PAIMON_SEED).astype(np.int64)
    return (np.abs(hashed) % count).astype(np.int32)  # Java's |h % n| is |h| % n.


def buckets(columns: Sequence[pa.Array], types: Sequence[Type], count: int, function: str = "default") -> np.ndarray:
    """The bucket of each row by its bucket-key columns, int32. `function` is the option `bucket-function.type`.

    Raises `InvalidInput` for an unknown function and for key types that it does not support.
    """
    match function:
        case "default":
            return bucket(binary_row.encode(columns, types), count)
        case "mod":
            return mod_bucket(columns, types, count)
        case "hive":
            return hive_bucket(columns, types, count)
    raise InvalidInput(f"bucket-function.type={function!r}; supported: {', '.join(FUNCTIONS)}")


def mod_bucket(columns: Sequence[pa.Array], types: Sequence[Type], count: int) -> np.ndarray:
    """One INT or BIGINT key modulo the number of buckets, never negative; null counts as 0."""
    _counted(count)
    if len(types) != 1 or not isinstance(types[0], Scalar) or types[0].kind not in (Kind.INT, Kind.BIGINT):
        raise InvalidInput(
            f"bucket-function.type=mod takes one bucket-key column of int or bigint, not {', '.join(map(str, types))}"
        )
    return (_integers(columns[0]) % count).astype(np.int32)


def hive_bucket(columns: Sequence[pa.Array], types: Sequence[Type], count: int) -> np.ndarray:
    """Hive's bucket of the key columns (paimon-core: HiveBucketFunction, HiveHasher); null counts as 0."""
    _counted(count)
    total = np.zeros(len(columns[0]), np.uint32)
    for column, type in zip(columns, types, strict=True):
        total = total * np.uint32(31) + _hive_hash(column.cast(to_arrow(type)), type)
    return ((total & np.uint32(0x7FFFFFFF)).astype(np.int64) % count).astype(np.int32)


def _counted(count: int) -> None:
    if count < 1:
        raise InvalidInput(f"{count} buckets; rows are hashed to 1 or more")


_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def _turned(words: np.ndarray, by: int) -> np.ndarray:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _scrambled(words: np.ndarray) -> np.ndarray:
    return _turned(words * _C1, 15) * _C2


def _words32(data: np.ndarray) -> np.ndarray:
    """A little-endian uint32 beginning at each byte of `data`, which ends in `spans.WORD` zeros."""
    return np.ndarray((len(data) - 4,), "<u4", data, 0, (1,))


def by_length(length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the order, longest first; how many are longer than 0, 1, 2, ...)."""
    order = np.argsort(-length, kind="stable")
    counts = np.bincount(length) if len(length) else np.zeros(1, np.int64)
    return order, len(length) - np.cumsum(counts)[:-1]


def _integers(column: pa.Array) -> np.ndarray:
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _hive_hash(column: pa.Array, type: Type) -> np.ndarray:
    kind = type.kind if isinstance(type, Scalar) else None
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    match kind:
        case Kind.BOOLEAN | Kind.TINYINT | Kind.SMALLINT | Kind.INT:
            hashes = _integers(column).astype(np.uint32)
        case Kind.DATE | Kind.TIME:
            hashes = _integers(column.cast(pa.int32())).astype(np.uint32)
        case Kind.BIGINT:
            hashes = _folded(_integers(column).view(np.uint64))
        case Kind.FLOAT | Kind.DOUBLE:
            values = column.fill_null(0).to_numpy(zero_copy_only=False)
            values = np.where(values == 0, values.dtype.type(0), values)  # -0.0 counts as 0.0.
            values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
            hashes = values.view(np.uint32) if kind is Kind.FLOAT else _folded(values.view(np.uint64))
        case Kind.CHAR | Kind.VARCHAR | Kind.STRING | Kind.BINARY | Kind.VARBINARY | Kind.BYTES:
            hashes = _polynomial(column)
        case Kind.DECIMAL:
            hashes = _hive_decimal(column)
        case _:
            raise UnsupportedFeature(f"bucket-function.type=hive does not take a bucket key of {type}")
    return np.where(nulls, np.uint32(0), hashes)


def _folded(values: np.ndarray) -> np.ndarray:
    return (values ^ (values >> np.uint64(32))).astype(np.uint32)


def _polynomial(column: pa.Array) -> np.ndarray:
    """31 * hash + byte, over signed bytes."""
    data, offsets = spans.padded(column.cast(pa.binary()).fill_null(b""))
    order, reach = by_length(np.diff(offsets))
    begin = offsets[:-1][order]
    state = np.zeros(len(order), np.uint32)
    signed = data.view(np.int8)
    for k, count in enumerate(reach):
        part = state[:count]
        part[:] = part * np.uint32(31) + signed[begin[:count] + k].astype(np.uint32)
    out = np.empty(len(order), np.uint32)
    out[order] = state
    return out


def _hive_decimal(column: pa.Array) -> np.ndarray:
    """Java's `BigDecimal.hashCode` without trailing zeros: 31 * hash of the unscaled value + scale."""
    wide = decimals.little_endian(column.fill_null(0))
    negative = wide[:, 15] >= 0x80
    limbs = np.where(negative[:, None], ~wide, wide).view("<u4").astype(np.uint64)  # Lowest first.
    carry = negative.astype(np.uint64)
    for k in range(4):
        limbs[:, k] += carry
        carry = limbs[:, k] >> np.uint64(32)
        limbs[:, k] &= np.uint64(0xFFFFFFFF)
    scale = np.full(len(limbs), column.type.scale)
    scale[(limbs == 0).all(axis=1)] = 0
    while True:
        shorter, rest = _tenth(limbs)
        ends_in_zero = (rest == 0) & (scale > 0)
        if not ends_in_zero.any():
            break
        limbs[ends_in_zero] = shorter[ends_in_zero]
        scale[ends_in_zero] -= 1
    number = np.zeros(len(limbs), np.uint32)
    for k in (3, 2, 1, 0):
        number = number * np.uint32(31) + limbs[:, k].astype(np.uint32)
    number = np.where(negative, np.uint32(0) - number, number)
    return number * np.uint32(31) + scale.astype(np.uint32)


def _tenth(limbs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(quotient, remainder) by 10 of numbers of 32-bit limbs, lowest first."""
    quotient, rest = np.empty_like(limbs), np.zeros(len(limbs), np.uint64)
    for k in range(limbs.shape[1] - 1, -1, -1):
        whole = (rest << np.uint64(32)) | limbs[:, k]
        quotient[:, k], rest = whole // np.uint64(10), whole % np.uint64(10)
    return quotient, rest
