"""Which files a compaction reads together (AppendCompactCoordinator; UniversalCompaction for tables with a primary
key)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.paimon import manifest, metadata, options, scan
from lakeformat.dialects.paimon.layout import POSTPONED_BUCKET, in_buckets, of_range, rewriting
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.paimon.scan import Files, Sections
from lakeformat.dialects.part import Part
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import pruning
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import RewriteManifests
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression, and_, bind, columns_of, ge, is_in, lt, or_
from lakeformat.model.schema import Field, Kind, Scalar, Schema
from lakeformat.model.work import (
    RETRACTS,
    SEQUENCE,
    VALUE_KIND,
    Content,
    MergeTask,
    ReadTask,
    RewriteTask,
    Upkeep,
    WriteTask,
)
from lakeformat.storage.store import Reader

_OPEN_COST = 4 << 20
_IDLE_MINIMUM = 2
_EPOCH = dt.datetime(1970, 1, 1)
_MILLISECONDS = 10**12
_RETRACTS = bind(is_in(VALUE_KIND.name, [int(kind) for kind in RETRACTS]), (VALUE_KIND,))


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
        """Bins of small files, each of one partition and bucket, and of files with a larger share of deleted rows than
        `compaction.delete-ratio-threshold`. With `full`, two small files of a bucket are enough, and any file with
        deleted rows; otherwise fewer than `compaction.min.file-num` small files wait for more. `scope`: on partition
        columns only; `buckets`: of a table with fixed buckets."""
        if min_files is not None:
            raise UnsupportedFeature(
                f"{self.reader.root}: min_files={min_files}: a Paimon table sets it by its option "
                "compaction.min.file-num"
            )
        metadata.require_rewritable(self.state.schema, self.reader.root)
        live = self._in_buckets(scope, buckets)
        if self.state.schema.primary_key:
            return self._of_keys(live, full, now_ms)
        table_options = options.read(self.state.schema)
        target, small = (
            options.read(self.state.schema).target_file_bytes,
            options.read(self.state.schema).small_file_bytes,
        )
        least = _IDLE_MINIMUM if full else max(table_options.compaction_min_file_num, 2)
        if table_options.data_evolution_enabled:
            return self._of_ranges(live, target, least)
        ordered = table_options.bucket > 0
        fields, write = rewriting(self.state)
        lost = scan.deleted_rows(self.reader, self.state, live)
        enough = 0.0 if full else table_options.compaction_delete_ratio_threshold
        heavy = lost > enough * np.asarray(live.entries["_ROW_COUNT"])
        result = []
        for rows in _buckets(live, self.state, ordered):
            bucket = live.entries["_BUCKET"][int(rows[0])].as_py()
            write = replace(write, bucket=None, default_bucket=bucket)  # Rows keep their order in the bucket.
            sizes = np.asarray(live.entries["_FILE_SIZE"])[rows]
            bins = (
                _neighbours(sizes, heavy[rows], small, target, least)
                if ordered
                else _by_size(sizes, heavy[rows], small, target, least, 0 if full else _OPEN_COST)
            )
            for chosen in bins:
                part = rows[chosen]
                part = part if ordered else np.sort(part)
                files = live.take(part)
                tasks = scan.tasks(self.reader, self.state, files, fields, alone=ordered)
                result.append(RewriteTask(tuple(tasks), write))
        return result

    def has_many_manifests(self, request: RewriteManifests) -> bool:
        """Whether rewriting manifests would make them fewer, or sort them."""
        metas, schema = manifest.read_metas(self.reader, self.state.document), self.state.schema
        if request.sort_by:
            return len(metas) > 0 and manifest.are_unsorted(metas, schema, request)
        return manifest.are_many(metas, schema)

    def sorting(self, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        """All files of each partition, to be sorted (Paimon's `sort_compact`); only for append tables without
        buckets."""
        if self.state.schema.primary_key or options.read(self.state.schema).bucket > 0:
            raise UnsupportedFeature(
                f"{self.reader.root}: compact(sort_by=...) of a table with a primary key or fixed buckets: the rows of "
                "its buckets have an order of their own; compact() without sort_by"
            )
        if options.read(self.state.schema).data_evolution_enabled:
            raise UnsupportedFeature(
                f"{self.reader.root}: compact(sort_by=...) of a table with data evolution, whose files hold rows in "
                "the order of their ids; compact() without sort_by"
            )
        metadata.require_rewritable(self.state.schema, self.reader.root)
        data_files = scan.files(self.reader, self.state, scope)
        fields, write = rewriting(self.state)
        write = replace(write, sort_by=sort_by)
        result = []
        for part in _buckets(data_files, self.state, ordered=False):
            files = data_files.take(part)
            tasks = scan.tasks(self.reader, self.state, files, fields)
            result.append(RewriteTask(tuple(tasks), write, spreads=True))
        return result

    def _of_ranges(self, data_files: Files, target: int, least: int) -> list[RewriteTask]:
        """With data evolution: adjacent row ranges of a partition become one file, and so do the files of one range, up
        to the target size (DataEvolutionCompactCoordinator). Blob files stay. Deleted rows are kept: a file has all
        rows of its range, and the commit moves their deletion vectors."""
        entries, beside = data_files.entries, data_files.beside.without_blobs()
        first, counts = np.asarray(entries["_FIRST_ROW_ID"]), np.asarray(entries["_ROW_COUNT"])
        sizes, files = np.asarray(entries["_FILE_SIZE"]).copy(), np.ones(len(entries), np.int64)
        indices = beside.owners(entries)
        np.add.at(sizes, indices[indices >= 0], np.asarray(beside.entries["_FILE_SIZE"])[indices >= 0])
        np.add.at(files, indices[indices >= 0], 1)
        result = []
        partitions = scan.partitions_of(self.state, entries)
        for rows in _buckets(data_files, self.state, ordered=False):
            rows = rows[np.argsort(first[rows], kind="stable")]
            joins = np.zeros(len(rows), bool)
            joins[1:] = first[rows][1:] == (first + counts)[rows][:-1]
            for part in _runs(joins, sizes[rows], target):
                chosen = rows[part]
                if files[chosen].sum() < least:
                    continue
                write = of_range(self.state, int(first[chosen[0]]), partitions[int(chosen[0])])
                fields = tuple(self.state.schema.field(f.name) for f in write.fields)
                tasks = scan.tasks(self.reader, self.state, data_files.take(chosen), fields, alone=True)
                result.append(RewriteTask(tuple(replace(task, deletes=()) for task in tasks), write))
        return result

    def upkeep(self, number: int | None = None) -> Upkeep | None:
        """The auto-compaction of a table with a primary key, without `write-only`: what the sorted runs need, or
        everything by `full-compaction.delta-commits`. That counts the commits of a stream; without a `number`, every
        write counts (as in Paimon on Spark)."""
        table_options = options.read(self.state.schema)
        is_left = table_options.write_only or table_options.bucket == POSTPONED_BUCKET
        if is_left or not self.state.schema.primary_key:
            return None
        every = table_options.delta_commits
        trigger = table_options.num_sorted_run_compaction_trigger
        return Upkeep(
            full=every > 0 and (number is None or (number + 1) % every == 0),
            everywhere=every > 1 and number is not None,
            waits=table_options.commit_force_compact or (table_options.empties_level_0 and table_options.lookup_wait),
            hides=table_options.hides_level_0,
            ahead=max(table_options.stop_trigger - trigger, 1),
        )

    def _in_buckets(self, scope: Expression, buckets: Sequence[int] | None) -> Files:
        live, count = scan.files(self.reader, self.state, scope), options.read(self.state.schema).bucket
        if buckets is None:
            return live
        if count < 1:
            raise UnsupportedFeature(
                f"{self.reader.root}: compact(buckets=...): the table has no fixed buckets ('bucket' = {count})"
            )
        numbers = live.entries["_BUCKET"].combine_chunks()
        # Partitions written before a rescale may have more buckets than the table has now.
        most = max(count, (pc.max(numbers).as_py() or 0) + 1)
        if strange := sorted({bucket for bucket in buckets if bucket >= most}):
            raise InvalidInput(
                f"{self.reader.root}: compact(buckets=...): no bucket {strange[0]}; there are 0 to {most - 1}"
            )
        return live.filter(pc.is_in(numbers, value_set=pa.array(buckets, numbers.type)))

    def _of_keys(self, live: Files, full: bool, now_ms: int | None) -> list[RewriteTask]:
        """For each bucket that is worth it, the files to merge and the files to upgrade (MergeTreeCompactTask)."""
        schema, general, table_options = (
            self.state.schema,
            Rules.read(self.state.schema, now_ms),
            options.read(self.state.schema),
        )
        write = replace(in_buckets(self.state), bucket=None)  # Raises for a table that must not be written.
        sections = Sections.build(live, schema)
        if len(sections) == 0:
            return []
        assert write.keyed is not None, write
        entries = sections.files.entries
        buckets = manifest.bucket_codes(entries)
        expired = _expired(schema, now_ms, self.reader.root)
        files = _BucketFiles.read(self.reader, self.state, sections.files, full, expired)
        worn_names = entries["_FILE_NAME"].filter(pa.array(files.worn)).combine_chunks()
        result: list[RewriteTask] = []
        for rows in np.split(np.arange(len(buckets)), np.flatnonzero(np.diff(buckets)) + 1):
            highest = int(files.levels[rows].max())
            # Files keep their level if the number of levels has been reduced.
            rules = replace(general, levels=max(general.levels, highest + 1))
            # All rows of level 0 at once: their changes, and the existing rows.
            settles = (table_options.keeps_first_row or table_options.looks_up) and bool(
                (files.levels[rows] == 0).any()
            )
            picked = files.picked(rows, rules, full, settles and _settles_at_once(table_options, write), now_ms)
            if picked is None:
                continue
            chosen, higher, level = picked
            # A delete row hides no older row: there is none, or a deletion vector deletes it.
            drops = table_options.has_vectors or level >= highest
            removed = (_RETRACTS if expired is None else or_(_RETRACTS, expired)) if drops else None
            keyed = replace(write.keyed, is_numbered=True, level=level)
            into = replace(write, keyed=keyed, default_bucket=entries["_BUCKET"][int(rows[0])].as_py())
            part, above = Sections.build(sections.files.take(chosen), schema), sections.files.take(higher)
            known = _known_level(table_options.changelog_producer, settles, level, rules)
            for task in self._unit(part, into, removed, rules, known, worn_names):
                if task.read and table_options.has_vectors:
                    task = self._looking(task, part, above)
                elif task.read and settles:
                    task = self._settling(task, part, above)
                result.append(task)
        return result

    def _holds(self, data_files: Files, condition: Expression) -> np.ndarray:
        """For each file, whether it may have a row for which `condition` is true, by its bounds; False without
        bounds."""
        result = np.zeros(len(data_files), bool)
        for rows, bounds in scan.Pruning(self.reader, self.state).bounds(data_files, columns_of(condition)):
            if all(name in bounds for name in columns_of(condition)):
                known = np.logical_and.reduce([np.asarray(bound.minimum.is_valid()) for bound in bounds.values()])
                result[rows] = known & np.asarray(pruning.may_match(condition, bounds, len(rows)))
        return result

    def _looking(self, task: RewriteTask, sections: Sections, above: Files) -> RewriteTask:
        """The task that also looks up older rows in the files `above`, which stay, if their keys and those of the new
        rows may overlap."""
        if len(above) == 0:
            return task
        head, *_ = task.read
        assert isinstance(head, MergeTask), task
        spec = head.merge
        fields = (
            tuple(self.state.schema.field(name) for name in spec.key)
            if spec.replaces
            else (*self.state.schema.fields, SEQUENCE, VALUE_KIND)
        )
        low, high = scan.key_ranks(pa.concat_tables([sections.files.entries, above.entries]), self.state.schema)
        count, starts = len(sections.files), sections.starts
        first, last = np.minimum.reduceat(low[:count], starts), np.maximum.reduceat(high[:count], starts)
        is_new = np.logical_or.reduceat(np.asarray(sections.files.entries["_LEVEL"]) == 0, starts)
        section_of = {path: i for i, path in enumerate(sections.files.paths.take(pa.array(starts)).to_pylist())}
        older, touched = [], np.zeros(len(above), bool)
        for read in task.read:
            section = section_of[read.paths[0]]
            meets = (low[count:] <= last[section]) & (high[count:] >= first[section]) & bool(is_new[section])
            touched |= meets
            older.append(tuple(scan.with_places(self.reader, self.state, above.filter(pa.array(meets)), fields)))
        if not touched.any():
            return task
        marks = scan.marking(self.reader, self.state, above.filter(pa.array(touched)))
        return replace(task, older=tuple(older), marks=marks, upgrades=False)

    def _settling(self, task: RewriteTask, sections: Sections, above: Files) -> RewriteTask:
        """The task whose new rows are also merged with the rows of their keys in the files `above`, which stay."""
        if len(above) == 0:
            return task
        above = above.take(np.argsort(-np.asarray(above.entries["_LEVEL"]), kind="stable"))
        low, high = scan.key_ranks(pa.concat_tables([sections.files.entries, above.entries]), self.state.schema)
        count, starts = len(sections.files), sections.starts
        is_new = np.asarray(sections.files.entries["_LEVEL"]) == 0
        nothing = np.iinfo(np.int64).max
        first = np.minimum.reduceat(np.where(is_new, low[:count], nothing), starts)
        last = np.maximum.reduceat(np.where(is_new, high[:count], -1), starts)
        section_of = {path: i for i, path in enumerate(sections.files.paths.take(pa.array(starts)).to_pylist())}
        older = []
        for read in task.read:
            section = section_of[read.paths[0]]
            meets = (low[count:] <= last[section]) & (high[count:] >= first[section])
            older.append(tuple(scan.standing(self.reader, self.state, above.filter(pa.array(meets)), read.fields)))
        return replace(task, older=tuple(older)) if any(older) else task

    def _unit(
        self,
        sections: Sections,
        write: WriteTask,
        removed: Expression | None,
        rules: Rules,
        known_level: int | None,
        worn_names: pa.Array,
    ) -> Iterator[RewriteTask]:
        """The sections of one bucket, in key order: adjacent ones are rewritten together, large files in between are
        upgraded.

        With `known_level`, the changes of rows on levels from there on are written to the changelog, if there is one.
        Files of `worn_names` are rewritten on any level. Rows for which `removed` is true are left out."""
        assert write.keyed is not None, write
        level, fields = write.keyed.level, (*self.state.schema.fields, SEQUENCE, VALUE_KIND)
        producer = options.read(self.state.schema).changelog_producer
        entries, starts = sections.files.entries, sections.starts
        alone = sections.sizes == 1
        sizes = np.asarray(entries["_FILE_SIZE"])[starts]
        levels = np.asarray(entries["_LEVEL"])[starts]
        retracts = np.asarray(pc.fill_null(entries["_DELETE_ROW_COUNT"], 1))[starts]
        worn = np.asarray(pc.is_in(entries["_FILE_NAME"], value_set=worn_names))[starts]
        is_large = alone & (sizes >= rules.large_bytes)
        runs = np.split(np.arange(len(sections)), np.flatnonzero(is_large[1:] | is_large[:-1]) + 1)
        for run in runs:
            first = int(run[0])
            is_upgraded = False
            part = sections.filter(np.isin(np.arange(len(sections)), run))
            if len(run) == 1 and alone[first] and not worn[first]:
                if levels[first] == level:
                    continue
                drops_some = retracts[first] > 0 and (level == rules.levels - 1 or rules.empties_level_0)
                if levels[first] >= (known_level or 0) and not drops_some:
                    if levels[first] > 0:
                        yield RewriteTask((), write, upgraded=((part.files.paths[0].as_py(), level),))
                        continue
                    is_upgraded = (
                        True  # Unless it has duplicate keys, which its reader finds: pypaimon wrote such files.
                    )
            read = scan.merges(self.reader, self.state, part, fields)
            task = RewriteTask(tuple(read), write, delete_where=removed, upgrades=is_upgraded)
            if known_level is not None:
                task = replace(
                    task,
                    changelog=_log(self.state, write) if producer in {"lookup", "full-compaction"} else None,
                    before=self._before(part, known_level, fields),
                    compared=options.read(self.state.schema).compared,
                )
            yield task

    def _before(self, sections: Sections, known_level: int, fields: tuple[Field, ...]) -> tuple[ReadTask | None, ...]:
        """For each section, the task that reads its rows on levels from `known_level` on; None if there are none."""
        is_above = np.asarray(sections.files.entries["_LEVEL"]) >= known_level
        counts = np.add.reduceat(is_above.astype(np.int64), sections.starts)
        some = counts > 0
        starts = np.cumsum(counts[some]) - counts[some]
        files = sections.files.filter(pa.array(is_above))
        read = iter(scan.merges(self.reader, self.state, Sections(files, starts, sections.is_whole[some]), fields))
        return tuple(next(read) if there else None for there in some.tolist())


def _runs(joins: np.ndarray, sizes: np.ndarray, target: int) -> Iterator[np.ndarray]:
    """Runs of adjacent row ranges, split at the target size."""
    start, total = 0, 0
    for i in range(len(joins)):
        if i > start and (not joins[i] or total + int(sizes[i]) > target):
            yield np.arange(start, i)
            start, total = i, 0
        total += int(sizes[i])
    if len(joins) > start:
        yield np.arange(start, len(joins))


@dataclass(frozen=True, slots=True)
class Rules:
    """When the sorted runs of a bucket are worth merging, and into what."""

    levels: int
    trigger: int
    size_ratio: int  # Percent by which the next run may be larger than all earlier ones together.
    amplification: int  # Percent of the oldest run that all others together may have.
    full_below_bytes: int = 0
    full_above_bytes: int | None = None  # The bytes of all runs below the highest level.
    full_after_ms: int | None = None
    large_bytes: int = 0  # A file as large as that is upgraded if no other overlaps its keys.
    empties_level_0: bool = (
        False  # Rows of level 0 must become visible, or reach the changelog, now (ForceUpLevel0Compaction).
    )

    @classmethod
    def read(cls, schema: Schema, now_ms: int | None = None) -> Rules:
        table_options = options.read(schema)
        return cls(
            levels=table_options.level_count,
            trigger=table_options.num_sorted_run_compaction_trigger,
            size_ratio=table_options.compaction_size_ratio + _off_peak(schema, now_ms),
            amplification=table_options.compaction_max_size_amplification_percent,
            full_below_bytes=table_options.compaction_total_size_threshold,
            full_above_bytes=table_options.compaction_incremental_size_threshold,
            full_after_ms=table_options.compaction_optimization_interval,
            large_bytes=options.read(schema).small_file_bytes,
            empties_level_0=table_options.empties_level_0,
        )


def pick(levels: np.ndarray, sizes: np.ndarray, rules: Rules, full: bool = False) -> tuple[int, int] | None:
    """(how many runs to merge, the newest first; the level of the result), None if it is not worth it.

    `levels` and `sizes` (bytes) of a bucket's sorted runs, the newest first: each file of level 0, then the levels.
    """
    count, top = len(levels), rules.levels - 1
    if count == 0 or (count == 1 and levels[0] == top):
        return None
    if full or (count > 1 and sizes.sum() < rules.full_below_bytes):
        return count, top
    if rules.full_above_bytes is not None and count > 1 and sizes[levels != top].sum() > rules.full_above_bytes:
        return count, top
    if count >= rules.trigger and sizes[:-1].sum() * 100 > rules.amplification * sizes[-1]:
        return count, top
    taken = 0
    if count >= rules.trigger:
        taken = _growing(levels, sizes, 1, rules)
    if not taken and count > rules.trigger:
        taken = _growing(levels, sizes, count - rules.trigger + 1, rules)
    if not taken and rules.empties_level_0:  # Alone: Java also merges runs that are not larger, and writes more.
        taken = int((levels == 0).sum())
    if not taken:
        return None
    level = top if taken == count else max(0, int(levels[taken]) - 1)
    while level == 0 and taken < count:  # Merged rows cannot stay on level 0.
        level = int(levels[taken])
        taken += 1
    if taken == count:
        level = top
    return taken, level


def _growing(levels: np.ndarray, sizes: np.ndarray, taken: int, rules: Rules) -> int:
    """The first `taken` runs, and those after them that are not much larger than all earlier ones; 0 if that is a
    single run."""
    total, goes_on = int(sizes[:taken].sum()), taken > 1
    for i in range(taken, len(levels)):
        is_larger = total * (100 + rules.size_ratio) < int(sizes[i]) * 100
        if is_larger and (not goes_on or levels[i] > 1):
            break
        total, taken, goes_on = total + int(sizes[i]), i + 1, True
    return taken if goes_on else 0


def _off_peak(schema: Schema, now_ms: int | None) -> int:
    """The percent that `compaction.offpeak-ratio` adds to the size ratio between two hours of the day, by the local
    clock."""
    table_options = options.read(schema)
    start, end = table_options.compaction_offpeak_start_hour, table_options.compaction_offpeak_end_hour
    if now_ms is None or start == end:
        return 0
    hour = metadata.local_ms(now_ms) // 3_600_000 % 24
    is_inside = start <= hour < end if start < end else hour >= start or hour < end
    return table_options.compaction_offpeak_ratio if is_inside else 0


def _is_due(created_ms: np.ndarray, levels: np.ndarray, rules: Rules, now_ms: int | None) -> bool:
    """Whether several runs have not been merged for `compaction.optimization-interval`: none of the highest level is
    younger."""
    if rules.full_after_ms is None or now_ms is None:
        return False
    newest = created_ms[levels == rules.levels - 1].max(initial=-1)
    return bool(newest + rules.full_after_ms < metadata.local_ms(now_ms))


@dataclass(frozen=True, slots=True)
class _BucketFiles:
    """What decides whether the files of buckets are merged: one value per file."""

    levels: np.ndarray
    sizes: np.ndarray
    newest: np.ndarray  # The highest sequence number.
    created_ms: np.ndarray
    worn: np.ndarray  # So many rows are deleted, or have expired, that the file is rewritten on any level.

    @classmethod
    def read(
        cls, reader: Reader, base: State, data_files: Files, full: bool, expired: Expression | None
    ) -> _BucketFiles:
        entries = data_files.entries
        lost = scan.deleted_rows(reader, base, data_files)
        enough = 0.0 if full else options.read(base.schema).compaction_delete_ratio_threshold
        worn = lost > enough * np.asarray(entries["_ROW_COUNT"])
        if full and expired is not None:
            worn |= Compaction(reader, base)._holds(data_files, expired)
        return cls(
            levels=np.asarray(entries["_LEVEL"]),
            sizes=np.asarray(entries["_FILE_SIZE"]),
            newest=np.asarray(entries["_MAX_SEQUENCE_NUMBER"]),
            created_ms=np.asarray(pc.fill_null(entries["_CREATION_TIME"], 0), np.int64),
            worn=worn,
        )

    def picked(
        self, rows: np.ndarray, rules: Rules, full: bool, at_once: bool, now_ms: int | None
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Of the files `rows` of a bucket: (those to merge, those on higher levels, the level of the result); None if
        it is not worth it. All are merged with `at_once`, and with `full`, which also rewrites worn files."""
        order = rows[np.lexsort((-self.newest[rows], self.levels[rows]))]
        levels = self.levels[order]
        begins = np.concatenate(([0], 1 + np.flatnonzero((levels[1:] == 0) | np.diff(levels).astype(bool))))
        is_due = len(begins) > 1 and _is_due(self.created_ms[rows], self.levels[rows], rules, now_ms)
        sizes = np.add.reduceat(self.sizes[order], begins)
        picked = pick(levels[begins], sizes, rules, full or is_due or at_once)
        if picked is None and full and self.worn[rows].any():
            picked = len(begins), rules.levels - 1
        if picked is None:
            return None
        taken, level = picked
        end = int(np.append(begins, len(order))[taken])
        return np.sort(order[:end]), np.sort(order[end:]), level


def _settles_at_once(table_options: options.TableOptions, write: WriteTask) -> bool:
    """Whether a compaction of level 0 merges the existing rows too."""
    assert write.keyed is not None, write
    # pypaimon and pypaimon-rust return the rows of several levels without merging, so there must be one level only.
    sums_up = bool(write.keyed.merge.aggregations)
    return table_options.has_vectors or table_options.changelog_producer == "full-compaction" or sums_up


def _known_level(producer: str, settles: bool, level: int, rules: Rules) -> int | None:
    """From which level on rows are in the changelog, if a compaction into `level` writes changes; None if it does
    not."""
    if producer == "full-compaction":
        return level if level == rules.levels - 1 else None
    return 1 if settles else None


def _expired(schema: Schema, now_ms: int | None, where: str) -> Expression | None:
    """Which rows are older than `record-level.expire-time`; a row without a time stays."""
    expiry = metadata.row_expiry(schema, where)
    if expiry is None or now_ms is None:
        return None
    field, seconds = expiry
    since = max(now_ms // 1000 - seconds, 0)
    match field.type:
        case Scalar(Kind.INT):
            expired = lt(field.name, since)
        case Scalar(Kind.BIGINT):  # Larger numbers are milliseconds.
            expired = or_(lt(field.name, since), and_(ge(field.name, _MILLISECONDS), lt(field.name, since * 1000)))
        case _:
            expired = lt(field.name, _EPOCH + dt.timedelta(seconds=since))
    return bind(expired, schema.fields)


def _log(base: State, write: WriteTask) -> WriteTask:
    assert write.keyed is not None, write
    naming = replace(write.naming, prefix=options.read(base.schema).changelog_file_prefix)
    return replace(write, content=Content.CHANGELOG, naming=naming, keyed=replace(write.keyed, level=0))


def _buckets(data_files: Files, base: State, ordered: bool) -> Iterator[np.ndarray]:
    """The rows of the files of each partition and bucket; in sequence order if rows have one."""
    if len(data_files) == 0:
        return
    codes, _ = manifest.partitions(data_files.entries, base.schema)
    buckets = np.asarray(data_files.entries["_BUCKET"])
    first = np.asarray(data_files.entries["_MIN_SEQUENCE_NUMBER"]) if ordered else np.zeros(len(data_files), np.int64)
    order = np.lexsort((first, buckets, codes))
    change = np.flatnonzero((np.diff(codes[order]) != 0) | (np.diff(buckets[order]) != 0)) + 1
    yield from np.split(order, change)


def _by_size(
    sizes: np.ndarray, heavy: np.ndarray, small: int, target: int, least: int, open_cost: int
) -> Iterator[np.ndarray]:
    """The smallest first, until a bin has twice the target size; the rest only if it has `least` files or a file with
    many deleted rows. Files of `small` bytes and more stay."""
    chosen = np.flatnonzero((sizes < small) | heavy)
    order = chosen[np.argsort(sizes[chosen], kind="stable")]
    start, total = 0, 0
    for i, at in enumerate(order):
        total += int(sizes[at]) + open_cost
        if total >= 2 * target and i > start:
            yield order[start : i + 1]
            start, total = i + 1, 0
    if len(order) - start >= least or heavy[order[start:]].any():
        yield order[start:]


def _neighbours(sizes: np.ndarray, heavy: np.ndarray, small: int, target: int, least: int) -> Iterator[np.ndarray]:
    """Runs of adjacent small files, and of files with many deleted rows, so that rows keep their order in the
    bucket."""
    chosen = (sizes < small) | heavy
    start, total = 0, 0
    for i in range(len(sizes) + 1):
        if i < len(sizes) and chosen[i] and total < 2 * target:
            total += int(sizes[i])
            continue
        if i - start >= least or heavy[start:i].any():
            yield np.arange(start, i)
        start, total = (i, int(sizes[i])) if i < len(sizes) and chosen[i] else (i + 1, 0)
