"""Which files a compaction reads together (AppendCompactCoordinator)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakeformat.dialects.paimon import manifest, options, scan
from lakeformat.dialects.paimon.layout import layout
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.paimon.scan import Files
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.work import DeleteTask, RewriteTask
from lakeformat.storage.store import Reader

_SMALL = 0.7  # Of the target size: what is smaller is worth another write.
_OPEN_COST = 4 << 20
_IDLE_MINIMUM = 2


def compaction(reader: Reader, base: State, full: bool = False, scope: Expression = ALWAYS) -> list[RewriteTask]:
    """Bins of small files, each of one partition and bucket. With `full`, any two small files of a bucket are worth it;
    else a rest of fewer than `compaction.min.file-num` files waits for more. `scope`: on partition columns only."""
    if base.schema.primary_key:
        raise UnsupportedFeature(f"{reader.root}: compaction of a table with a primary key: not supported yet")
    found = scan.files(reader, base, scope)
    given = base.schema.properties
    target = options.size(given, "target-file-size", 256 << 20)
    least = _IDLE_MINIMUM if full else max(options.integer(given, "compaction.min.file-num", 5), 2)
    ordered = options.integer(given, "bucket", -1) > 0
    write = layout(base)
    result = []
    for rows in _buckets(found, base, ordered):
        bucket = found.entries["_BUCKET"][int(rows[0])].as_py()
        write = replace(write, bucket=None, default_bucket=bucket)  # Rows stay where they are.
        sizes = np.asarray(found.entries["_FILE_SIZE"])[rows]
        bins = (
            _neighbours(sizes, target, least) if ordered else _by_size(sizes, target, least, 0 if full else _OPEN_COST)
        )
        for chosen in bins:
            part = rows[chosen]
            part = part if ordered else np.sort(part)
            files = Files(found.entries.take(pa.array(part)), found.paths.take(pa.array(part)))
            tasks = scan.tasks(reader, base, files, base.schema.fields, alone=ordered)
            result.append(RewriteTask(tuple(tasks), write))
    return result


def delete_compaction(reader: Reader, base: State, full: bool = False, scope: Expression = ALWAYS) -> list[DeleteTask]:
    """None: Paimon has no files of position deletes."""
    return []


def _buckets(found: Files, base: State, ordered: bool) -> Iterator[np.ndarray]:
    """Rows of the files of each partition and bucket; in sequence order where rows have one."""
    if len(found) == 0:
        return
    codes, _ = manifest.partitions(found.entries, base.schema)
    buckets = np.asarray(found.entries["_BUCKET"])
    first = np.asarray(found.entries["_MIN_SEQUENCE_NUMBER"]) if ordered else np.zeros(len(found), np.int64)
    order = np.lexsort((first, buckets, codes))
    change = np.flatnonzero((np.diff(codes[order]) != 0) | (np.diff(buckets[order]) != 0)) + 1
    yield from np.split(order, change)


def _by_size(sizes: np.ndarray, target: int, least: int, open_cost: int) -> Iterator[np.ndarray]:
    """The smallest first, until a bin holds twice the target."""
    small = np.flatnonzero(sizes < target * _SMALL)
    order = small[np.argsort(sizes[small], kind="stable")]
    start, total = 0, 0
    for i, at in enumerate(order):
        total += int(sizes[at]) + open_cost
        if total >= 2 * target and i > start:
            yield order[start : i + 1]
            start, total = i + 1, 0
    if len(order) - start >= least:
        yield order[start:]


def _neighbours(sizes: np.ndarray, target: int, least: int) -> Iterator[np.ndarray]:
    """Runs of small files that stand side by side, so that rows keep their order in the bucket."""
    small = sizes < target * _SMALL
    start, total = 0, 0
    for i in range(len(sizes) + 1):
        if i < len(sizes) and small[i] and total < 2 * target:
            total += int(sizes[i])
            continue
        if i - start >= least:
            yield np.arange(start, i)
        start, total = (i, int(sizes[i])) if i < len(sizes) and small[i] else (i + 1, 0)
