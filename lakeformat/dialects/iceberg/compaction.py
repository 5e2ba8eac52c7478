"""Which files a compaction reads together (as Java's SizeBasedFileRewritePlanner, bin-pack)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.numbers import distinct
from lakeformat.dialects.iceberg import manifest, metadata, options, scan
from lakeformat.dialects.iceberg.layout import beside, rewriting, rewritten_deletes
from lakeformat.dialects.iceberg.manifest import FileContent
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.iceberg.scan import Files
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.work import DeleteFile, DeleteTask, MarkTask, RewriteTask
from lakeformat.storage.store import Reader

SMALL, LARGE = 0.75, 1.8  # Relative to the target size: files in between are left alone.
_LEAST_FILES = 5


def compaction(
    reader: Reader,
    base: State,
    full: bool = False,
    scope: Expression = ALWAYS,
    now_ms: int | None = None,
    min_files: int | None = None,
) -> list[RewriteTask]:
    """Bins of files that are too small, too large, or have too many deleted rows. Each bin is of one partition; files
    of earlier specs are one group.

    A bin is worth rewriting if it has `min_files` (five) files, more than one that together exceed the target size, or
    one that is too large or has too many deleted rows. With `full`, two files or any deletes are enough. `scope`: on
    partition columns only.
    """
    least = max(min_files or (2 if full else _LEAST_FILES), 2)
    fields, write = rewriting(base)
    live = scan.files(reader, base, scope)
    entries = manifest.in_scope(live.entries, base, scope, unknown=False)
    target = write.target_size_bytes
    sizes = np.asarray(entries["file_size_in_bytes"])
    is_old = np.asarray(entries["_spec"]) != base.spec.id
    left, right = scan.attached(base, entries, live.deletes)
    is_eaten = _eaten(base, entries, live.deletes, left, right, full)
    chosen = np.flatnonzero(is_old | (sizes < target * SMALL) | (sizes > target * LARGE) | is_eaten)
    result = []
    for rows in _groups(entries.take(pa.array(chosen)), base):
        for part in _packed(chosen[rows], sizes, target):
            total = sizes[part].sum()
            worth = len(part) >= least or (len(part) > 1 and total > target)
            if worth or (is_old | is_eaten)[part].any() or (sizes[part] > target * LARGE).any():
                own = np.unique(right[np.isin(left, part)])
                files = Files(entries.take(pa.array(part)), live.deletes.take(pa.array(own)))
                result.append(RewriteTask(tuple(scan.tasks(reader, base, files, fields)), write))
    return result


def sorting(reader: Reader, base: State, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
    """All files of each partition, to be sorted; all files together if some are in partitions of earlier specs."""
    fields, write = rewriting(base)
    write = replace(write, sort_by=sort_by, sort_order_id=metadata.order_id(base, sort_by))
    data_files = scan.files(reader, base, scope)
    entries = manifest.in_scope(data_files.entries, base, scope, unknown=False)
    left, right = scan.attached(base, entries, data_files.deletes)
    is_old = bool((np.asarray(entries["_spec"]) != base.spec.id).any())
    groups = [np.arange(len(entries))] if is_old else list(_groups(entries, base))
    result = []
    for part in groups:
        own = np.unique(right[np.isin(left, part)])
        files = Files(entries.take(pa.array(part)), data_files.deletes.take(pa.array(own)))
        result.append(RewriteTask(tuple(scan.tasks(reader, base, files, fields)), write, spreads=True))
    return result


def delete_compaction(
    reader: Reader, base: State, full: bool = False, scope: Expression = ALWAYS, min_files: int | None = None
) -> list[DeleteTask]:
    """Position delete files that are rewritten together, without positions in removed data files: those of a partition
    with `min_files` (five) of them; with `full`, of any partition. From version 3 on all become deletion vectors, which
    need no compaction."""
    least = 1 if full or metadata.format_version(base) >= 3 else min_files or _LEAST_FILES
    live = scan.files(reader, base, scope)
    entries = manifest.in_scope(live.entries, base, scope, unknown=False)
    positions = live.deletes.filter(pc.equal(live.deletes["content"], int(FileContent.POSITION_DELETES)))
    # A data file with a deletion vector has no other position deletes.
    left, right = scan.attached(base, entries, positions)
    files_of_deletes = np.flatnonzero(~scan.is_vector(positions))
    partitions = manifest.partition_codes(positions, base)[files_of_deletes]
    result = []
    for partition in np.unique(partitions):
        own = files_of_deletes[partitions == partition]
        data_files = np.unique(left[np.isin(right, own)])
        if len(own) < least or not len(data_files):
            continue
        files = Files(entries.take(pa.array(data_files)), positions.take(pa.array(own)))
        result.append(rewritten_deletes(reader, base, files))
    return result


def conversion(
    reader: Reader, base: State, scope: Expression = ALWAYS
) -> tuple[list[MarkTask], tuple[DeleteFile, ...], tuple[str, ...]]:
    """(tasks that find the positions of rows deleted by equality deletes, these delete files, the data files they apply
    to); only of equality deletes all of whose data files are in `scope`."""
    files = scan.files(reader, base)
    is_equality = pc.equal(files.deletes["content"], int(FileContent.EQUALITY_DELETES))
    equality, positions = files.deletes.filter(is_equality), files.deletes.filter(pc.invert(is_equality))
    left, right = scan.attached(base, files.entries, equality)
    inside = manifest.in_scope(files.entries, base, scope, unknown=False)["file_path"].combine_chunks()
    outside = ~np.asarray(pc.is_in(files.paths, value_set=inside))
    goes = np.ones(len(equality), bool)
    goes[right[outside[left]]] = False
    left, right = left[goes[right]], right[goes[right]]
    goes &= (scope == ALWAYS) | np.isin(np.arange(len(equality)), right)
    entries, chosen = files.entries.take(pa.array(distinct(left))), equality.filter(pa.array(goes))
    with_positions = Files(entries, positions)
    write = beside(reader, base, with_positions)
    taken = scan.delete_files(reader, base, Files(entries, chosen))
    tasks, start = [], 0
    for read in scan.tasks(reader, base, with_positions, ()):
        own = slice(start, start := start + len(read.paths))
        tasks.append(MarkTask(replace(read, taken_by=taken[own]), replace(write, targets=write.targets[own])))
    return tasks, tuple(scan.all_delete_files(reader, base, chosen)), tuple(entries["file_path"].to_pylist())


def has_many_manifests(reader: Reader, base: State) -> bool:
    """Whether the manifests of some spec would be fewer at the size `commit.manifest.target-size-bytes`."""
    target = options.integer(base.schema.properties, "commit.manifest.target-size-bytes")
    metas = manifest.metas_of(reader, base.snapshot_document)
    sums = metas.group_by(["partition_spec_id", "content"]).aggregate(
        [("manifest_length", "sum"), ("manifest_length", "count")]
    )
    counts, sizes = np.asarray(sums["manifest_length_count"]), np.asarray(sums["manifest_length_sum"])
    return bool((counts > np.maximum(-(-sizes // max(target, 1)), 1)).any())


def _eaten(
    base: State, entries: pa.Table, deletes: pa.Table, left: np.ndarray, right: np.ndarray, full: bool
) -> np.ndarray:
    """The files that are worth rewriting because of their deleted rows alone."""
    count = len(entries)
    if full:
        return np.bincount(left, minlength=count) > 0
    given = base.schema.properties
    ratio = options.number(given, "lakeformat.compact.delete-ratio-threshold")
    most = options.integer(given, "lakeformat.compact.delete-file-threshold")
    alone = np.asarray(scan.referenced(deletes).is_valid())[right] if len(right) else np.zeros(0, bool)
    rows = np.asarray(deletes["record_count"])[right[alone]]
    gone = np.bincount(left[alone], weights=rows, minlength=count)
    too_many = np.bincount(left, minlength=count) >= most
    return too_many | ((gone > 0) & (gone >= ratio * np.asarray(entries["record_count"])))


def _groups(entries: pa.Table, base: State) -> Iterator[np.ndarray]:
    """The rows of the files of each partition of the current spec; those of all other specs together."""
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
    """Runs of files, in order, each closed when it reaches the target size."""
    start, total = 0, 0
    for end in range(len(rows)):
        total += int(sizes[rows[end]])
        if total >= target:
            yield rows[start : end + 1]
            start, total = end + 1, 0
    if start < len(rows):
        yield rows[start:]
