"""Which files a compaction reads together (SizeBasedFileRewritePlanner, bin-pack)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakeformat.dialects.iceberg import manifest, scan
from lakeformat.dialects.iceberg.layout import layout
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.iceberg.scan import Files
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.work import RewriteTask
from lakeformat.storage.store import Reader

SMALL, LARGE = 0.75, 1.8  # Of the target size: what lies between is left alone.
_LEAST_FILES = 5


def compaction(reader: Reader, base: State, full: bool = False, scope: Expression = ALWAYS) -> list[RewriteTask]:
    """Bins of files that are too small or too large, each of one partition; files of earlier specs are one group.

    A bin is worth it with five files, with more than one that together exceed the target size, or with a file that is too
    large; with `full`, with any two. `scope`: on partition columns only.
    """
    write = layout(base)
    found = scan.files(reader, base, scope)
    entries = manifest.in_scope(found.entries, base, scope, unknown=False)
    target = write.target_size_bytes
    sizes = np.asarray(entries["file_size_in_bytes"])
    is_old = np.asarray(entries["_spec"]) != base.spec.id
    chosen = np.flatnonzero(is_old | (sizes < target * SMALL) | (sizes > target * LARGE))
    left, right = scan.attached(base, entries, found.deletes)
    result = []
    for rows in _groups(entries.take(pa.array(chosen)), base):
        for part in _packed(chosen[rows], sizes, target):
            total = sizes[part].sum()
            worth = len(part) >= (2 if full else _LEAST_FILES) or (len(part) > 1 and total > target)
            if worth or is_old[part].any() or (sizes[part] > target * LARGE).any():
                own = np.unique(right[np.isin(left, part)])
                files = Files(entries.take(pa.array(part)), found.deletes.take(pa.array(own)))
                result.append(RewriteTask(tuple(scan.tasks(reader, base, files, base.schema.fields)), write))
    return result


def _groups(entries: pa.Table, base: State) -> Iterator[np.ndarray]:
    """Rows of the files of each partition of the current spec, and of all others together."""
    is_old = np.asarray(entries["_spec"]) != base.spec.id
    if is_old.any():
        yield np.flatnonzero(is_old)
    rows = np.flatnonzero(~is_old)
    if len(rows):
        codes, _ = manifest.partitions(entries.take(pa.array(rows)), base.spec)
        order = np.argsort(codes, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            yield rows[part]


def _packed(rows: np.ndarray, sizes: np.ndarray, target: int) -> Iterator[np.ndarray]:
    """Runs of files, in their order, that are closed once they hold the target size."""
    start, total = 0, 0
    for end in range(len(rows)):
        total += int(sizes[rows[end]])
        if total >= target:
            yield rows[start : end + 1]
            start, total = end + 1, 0
    if start < len(rows):
        yield rows[start:]
