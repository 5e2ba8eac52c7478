"""Which files a compaction reads together (as Java's SizeBasedFileRewritePlanner, bin-pack)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.numbers import distinct
from lakeformat.dialects.iceberg import manifest, metadata, options, scan
from lakeformat.dialects.iceberg.inspect import Inspections
from lakeformat.dialects.iceberg.layout import LARGE, SMALL, beside, delta_layout, rewriting, rewritten_deletes
from lakeformat.dialects.iceberg.manifest import FileContent
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.iceberg.scan import Files
from lakeformat.dialects.part import Part
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import RewriteManifests
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.work import DeleteFile, DeleteTask, DeltaLayout, MarkTask, RewriteTask, Upkeep

_LEAST_FILES = 5


@dataclass(frozen=True, slots=True)
class Compaction(Part[State]):
    """What is worth rewriting."""

    def tasks(
        self,
        full: bool = False,
        scope: Expression = ALWAYS,
        now_ms: int | None = None,
        min_files: int | None = None,
        buckets: Sequence[int] | None = None,
    ) -> list[RewriteTask]:
        """Bins of files that are too small, too large, or have too many deleted rows. Each bin is of one partition;
        files of earlier specs are one group.

        A bin is worth rewriting if it has `min_files` (five) files, more than one that together exceed the target size,
        or one that is too large or has too many deleted rows. With `full`, two files or any deletes are enough, and
        with `min_files=1` as well, all files are rewritten.
        `scope`: on partition columns only."""
        if buckets is not None:
            raise UnsupportedFeature(
                f"{self.reader.root}: compact(buckets=...): the buckets of an Iceberg table are partition fields; "
                "use where"
            )
        everything = full and min_files == 1
        least = 1 if everything else max(min_files or (2 if full else _LEAST_FILES), 2)
        fields, write = rewriting(self.state)
        live = scan.files(self.reader, self.state, scope)
        entries = manifest.in_scope(live.entries, self.state, scope, unknown=False)
        target = write.target_size_bytes
        sizes = np.asarray(entries["file_size_in_bytes"])
        is_old = np.asarray(entries["_spec"]) != self.state.spec.id
        left, right = scan.attached(self.state, entries, live.deletes)
        is_eaten = _eaten(self.state, entries, live.deletes, left, right, full)
        is_unfit = is_old | (sizes < target * SMALL) | (sizes > target * LARGE) | is_eaten
        chosen = np.flatnonzero(is_unfit | everything)
        result = []
        for rows in _groups(entries.take(pa.array(chosen)), self.state):
            for part in _packed(chosen[rows], sizes, target):
                total = sizes[part].sum()
                worth = len(part) >= least or (len(part) > 1 and total > target)
                if worth or (is_old | is_eaten)[part].any() or (sizes[part] > target * LARGE).any():
                    own = np.unique(right[np.isin(left, part)])
                    files = Files(entries.take(pa.array(part)), live.deletes.take(pa.array(own)))
                    result.append(RewriteTask(tuple(scan.tasks(self.reader, self.state, files, fields)), write))
        return result

    def sorting(self, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        """All files of each partition, to be sorted; all files together if some are in partitions of earlier specs."""
        fields, write = rewriting(self.state)
        write = replace(write, sort_by=sort_by, sort_order_id=metadata.order_id(self.state, sort_by))
        data_files = scan.files(self.reader, self.state, scope)
        entries = manifest.in_scope(data_files.entries, self.state, scope, unknown=False)
        left, right = scan.attached(self.state, entries, data_files.deletes)
        is_old = bool((np.asarray(entries["_spec"]) != self.state.spec.id).any())
        groups = [np.arange(len(entries))] if is_old else list(_groups(entries, self.state))
        result = []
        for part in groups:
            own = np.unique(right[np.isin(left, part)])
            files = Files(entries.take(pa.array(part)), data_files.deletes.take(pa.array(own)))
            result.append(RewriteTask(tuple(scan.tasks(self.reader, self.state, files, fields)), write, spreads=True))
        return result

    def upkeep(self, number: int | None = None) -> Upkeep | None:
        """None: other jobs compact."""
        return None

    def has_many_manifests(self, request: RewriteManifests) -> bool:
        """Whether the manifests of some spec would be fewer at the size `commit.manifest.target-size-bytes`."""
        if request.sort_by:
            raise UnsupportedFeature(
                f"{self.reader.root}: rewrite_manifests(sort_by=...): "
                "those of an Iceberg table are always sorted by its partition fields"
            )
        target = options.read(self.state.schema.properties).commit_manifest_target_size
        metas = manifest.metas_of(self.reader, self.state.snapshot_document)
        sums = metas.group_by(["partition_spec_id", "content"]).aggregate(
            [("manifest_length", "sum"), ("manifest_length", "count")]
        )
        counts, sizes = np.asarray(sums["manifest_length_count"]), np.asarray(sums["manifest_length_sum"])
        return bool((counts > np.maximum(-(-sizes // max(target, 1)), 1)).any())


@dataclass(frozen=True, slots=True)
class DeleteFiles(Part[State]):
    """Delete files, and what becomes them."""

    def delta_layout(self, key: tuple[str, ...]) -> DeltaLayout:
        """How a changelog of rows with the key `key` becomes files."""
        return delta_layout(self.reader, self.state, key)

    def position_deletes(self) -> tuple[list[DeleteFile], pa.Table]:
        """The live position delete files and deletion vectors, and what `inspect` shows of them."""
        return Inspections(self.reader, self.state).position_deletes()

    def compaction(
        self, full: bool = False, scope: Expression = ALWAYS, min_files: int | None = None
    ) -> list[DeleteTask]:
        """Position delete files that are rewritten together, without positions in removed data files: those of a
        partition with `min_files` (five) of them; with `full`, of any partition. From version 3 on all become deletion
        vectors, which need no compaction."""
        least = 1 if full or metadata.format_version(self.state) >= 3 else min_files or _LEAST_FILES
        live = scan.files(self.reader, self.state, scope)
        entries = manifest.in_scope(live.entries, self.state, scope, unknown=False)
        positions = live.deletes.filter(pc.equal(live.deletes["content"], int(FileContent.POSITION_DELETES)))
        # A data file with a deletion vector has no other position deletes.
        left, right = scan.attached(self.state, entries, positions)
        files_of_deletes = np.flatnonzero(~scan.is_vector(positions))
        partitions = manifest.partition_codes(positions, self.state)[files_of_deletes]
        result = []
        for partition in np.unique(partitions):
            partition_deletes = files_of_deletes[partitions == partition]
            data_files = np.unique(left[np.isin(right, partition_deletes)])
            if len(partition_deletes) < least or not len(data_files):
                continue
            files = Files(entries.take(pa.array(data_files)), positions.take(pa.array(partition_deletes)))
            result.append(rewritten_deletes(self.reader, self.state, files))
        return result

    def conversion(self, scope: Expression = ALWAYS) -> tuple[list[MarkTask], tuple[DeleteFile, ...], tuple[str, ...]]:
        """(tasks that find the positions of rows deleted by equality deletes, these delete files, the data files they
        apply to); only of equality deletes all of whose data files are in `scope`."""
        files = scan.files(self.reader, self.state)
        is_equality = pc.equal(files.deletes["content"], int(FileContent.EQUALITY_DELETES))
        equality, positions = files.deletes.filter(is_equality), files.deletes.filter(pc.invert(is_equality))
        left, right = scan.attached(self.state, files.entries, equality)
        inside = manifest.in_scope(files.entries, self.state, scope, unknown=False)["file_path"].combine_chunks()
        outside = ~np.asarray(pc.is_in(files.paths, value_set=inside))
        goes = np.ones(len(equality), bool)
        goes[right[outside[left]]] = False
        left, right = left[goes[right]], right[goes[right]]
        goes &= (scope == ALWAYS) | np.isin(np.arange(len(equality)), right)
        entries, chosen = files.entries.take(pa.array(distinct(left))), equality.filter(pa.array(goes))
        with_positions = Files(entries, positions)
        write = beside(self.reader, self.state, with_positions)
        taken = scan.delete_files(self.reader, self.state, Files(entries, chosen))
        tasks, start = [], 0
        for read in scan.tasks(self.reader, self.state, with_positions, ()):
            own = slice(start, start := start + len(read.paths))
            tasks.append(MarkTask(replace(read, taken_by=taken[own]), replace(write, targets=write.targets[own])))
        return (
            tasks,
            tuple(scan.all_delete_files(self.reader, self.state, chosen)),
            tuple(entries["file_path"].to_pylist()),
        )


def _eaten(
    base: State, entries: pa.Table, deletes: pa.Table, left: np.ndarray, right: np.ndarray, full: bool
) -> np.ndarray:
    """The files that are worth rewriting because of their deleted rows alone."""
    count = len(entries)
    if full:
        return np.bincount(left, minlength=count) > 0
    given = base.schema.properties
    ratio = options.read(given).compact_delete_ratio_threshold
    most = options.read(given).compact_delete_file_threshold
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
