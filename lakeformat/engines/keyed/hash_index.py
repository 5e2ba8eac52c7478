"""Dynamic buckets: a key stays in the bucket first assigned to its hash (Paimon's HASH index)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat import clock
from lakeformat.codec import murmur, numbers
from lakeformat.codec.paimon import binary_row
from lakeformat.engines.files import formats
from lakeformat.engines.kernels import rows
from lakeformat.errors import CorruptFile, InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import find_field
from lakeformat.model.work import Content, HashIndex, WriteTask, WrittenFile
from lakeformat.storage.store import Store

_BUCKETS_MAX = 1 << 15


@dataclass(slots=True)
class _Partition:
    """The hashes of each bucket of a partition, ascending; the number assigned to each; the buckets with new hashes."""

    hashes: dict[int, np.ndarray]
    counts: dict[int, int]
    grown: set[int] = field(default_factory=set)


class Assigner:
    """Assigns buckets to rows during one write, and then writes the changed index files."""

    def __init__(self, store: Store, task: WriteTask, index: HashIndex) -> None:
        self._store, self._index = store, index
        self._types = [find_field(task.fields, name).type for name in index.columns]
        self._partitions: dict[tuple[Any, ...], _Partition] = {}

    def split(self, partition: tuple[Any, ...], batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each bucket."""
        keys = binary_row.encode([batch.column(name) for name in self._index.columns], self._types)
        hashes = murmur.murmur3_32(keys, murmur.PAIMON_SEED)
        index = self._partitions.get(partition)
        if index is None:
            index = self._partitions[partition] = self._load(partition)
        distinct = numbers.distinct(hashes)
        key_buckets = self._admit(index, distinct, partition)
        if len(key_buckets) and (key_buckets == key_buckets[0]).all():
            yield int(key_buckets[0]), batch
            return
        buckets = key_buckets[np.searchsorted(distinct, hashes)]
        for (bucket,), group in rows.split(batch, [pa.array(buckets)]):
            yield bucket.as_py(), group

    def finish(self) -> list[WrittenFile]:
        """A file for each bucket with new hashes, with all of its hashes."""
        name = formats.fresh_name()
        written: list[WrittenFile] = []
        for partition, index in self._partitions.items():
            for bucket in sorted(index.grown):
                hashes = index.hashes[bucket]
                path = f"{self._index.folder}/index-{name}-{len(written)}"
                data = hashes.astype(">i4").tobytes()
                self._store.write(path, data)
                written.append(
                    WrittenFile(
                        path=path,
                        partition=partition,
                        bucket=bucket,
                        row_count=len(hashes),
                        size_bytes=len(data),
                        content=Content.HASH_INDEX,
                        file_format="",
                        created_ms=clock.now_ms(),
                    )
                )
        return written

    def _load(self, partition: tuple[Any, ...]) -> _Partition:
        hashes: dict[int, np.ndarray] = {}
        for bucket, path in self._index.files.get(repr(partition), ()):
            data = self._store.read(path)
            if len(data) % 4:
                raise CorruptFile(f"{path}: {len(data)} bytes are not a list of hashes of 4 bytes each")
            bucket_hashes = np.concatenate(
                [hashes.get(bucket, np.zeros(0, np.int32)), np.frombuffer(data, ">i4").astype(np.int32)]
            )
            bucket_hashes.sort()
            hashes[bucket] = bucket_hashes
        return _Partition(hashes, {bucket: len(bucket_hashes) for bucket, bucket_hashes in hashes.items()})

    def _admit(self, index: _Partition, hashes: np.ndarray, partition: tuple[Any, ...]) -> np.ndarray:
        """The bucket of each of these distinct, ascending hashes. New hashes are assigned to a bucket with room, or to
        a new one."""
        buckets, left = np.zeros(len(hashes), np.int32), np.arange(len(hashes))
        for bucket, bucket_hashes in index.hashes.items():
            is_own = numbers.among(hashes[left], bucket_hashes)
            buckets[left[is_own]] = bucket
            left = left[~is_own]
            if not len(left):
                return buckets
        new_buckets = with_room(index.counts, len(left), self._index.target_rows, self._index.max_buckets, partition)
        buckets[left] = new_buckets
        for bucket in np.unique(new_buckets).tolist():
            new, bucket_hashes = hashes[left[new_buckets == bucket]], index.hashes.get(bucket, hashes[:0])
            index.hashes[bucket] = np.insert(bucket_hashes, np.searchsorted(bucket_hashes, new), new)
            index.grown.add(bucket)
        return buckets


def with_room(
    counts: dict[int, int], key_count: int, target: int, most: int | None, partition: tuple[Any, ...]
) -> np.ndarray:
    """Buckets for `key_count` keys: first those with fewer than `target` keys (`counts`, which is updated), then new
    ones; if there may be no more, all share the rest."""
    buckets, start, bucket = np.zeros(key_count, np.int32), 0, 0
    limit = min(most or _BUCKETS_MAX, _BUCKETS_MAX)
    while start < key_count and bucket < limit:
        room = max(target - counts.get(bucket, 0), 0)
        buckets[start : start + room] = bucket
        start, bucket = start + room, bucket + 1
    if start < key_count:
        if limit == _BUCKETS_MAX:
            raise InvalidInput(f"partition {partition}: more than {limit} buckets; raise dynamic-bucket.target-row-num")
        buckets[start:] = np.arange(start, key_count) % limit
    for filled, count in zip(*np.unique(buckets, return_counts=True), strict=True):
        counts[int(filled)] = counts.get(int(filled), 0) + int(count)
    return buckets
