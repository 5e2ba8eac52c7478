"""Replicates one source table into one table: snapshot chunks first, then transactions, one commit each."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat import clock
from lakeformat.cdc import comparison, progress, readers, spool
from lakeformat.cdc.computed import NONE, Computed
from lakeformat.cdc.progress import Filling, Progress, Viewed
from lakeformat.cdc.report import Report
from lakeformat.cdc.shards import NAMES, NOTHING, is_of
from lakeformat.cdc.source import (
    Chunk,
    Emptied,
    Failed,
    Position,
    Rewritten,
    Source,
    SourceTable,
    TableChanges,
    Transactions,
    View,
)
from lakeformat.cdc.spool import Rows
from lakeformat.cdc.widening import holds
from lakeformat.codec.arrow import to_arrow
from lakeformat.engines.kernels.rows import key_codes
from lakeformat.errors import CommitUnknown, Conflict, InvalidInput, LakeError, NotFound, UnsupportedFeature
from lakeformat.model.evolution import AddColumn, ChangeComment, ChangeNullability, ChangeType
from lakeformat.model.predicate import ALWAYS, Call, Column, Expression, Literal, and_
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import ROW_KIND, RowKind
from lakeformat.table import Table

log = logging.getLogger("lakeformat")
_CARRY = 16 << 20  # A table without changes records its position every so many bytes of log.
_TRIES = 3
_SEQUENCE_FIELD = "sequence.field"  # Paimon's option.
_CONVERT_DELETES = "cdc.convert-deletes"  # A property of an Iceberg table.


class Follower:
    """Replicates `source_table` into `table`. Every commit records its source position, and fails if another process
    committed since; a new process continues from the position in the table."""

    def __init__(
        self,
        source: Source,
        source_table: SourceTable,
        table: Table,
        restart: bool | str = False,
        snapshot_properties: Mapping[str, str] = MappingProxyType({}),
        computed: Computed = NONE,
        tell: Callable[[Report], None] | None = None,
        *,
        swap: bool = False,
    ) -> None:
        self._computed, self._tell, self._began = computed, tell, time.monotonic()
        self.source, self.source_table, self.table = source, source_table, table
        self._present = source_table.parts  # The shards that there are now.
        self._sequence = [name.strip() for name in table.schema.properties.get(_SEQUENCE_FIELD, "").split(",")]
        self._converts = _converts_deletes(table)
        self._may_have_deletes = self._converts  # Of a sync that ended between its commit and the conversion.
        self._size = 0
        name = restart if isinstance(restart, str) else progress.last_restart(table)
        self._extra = {**snapshot_properties, **({} if name is None else {progress.RESTART: name})}
        restart = bool(restart) and not (isinstance(restart, str) and progress.has_restarted(table, restart))
        self._follows = f"{source.name}/{source_table.name}"
        self._session = table.stream(progress.USER)
        self._number = 0
        self.progress: Progress | None = None
        self.report = Report(table.name)
        self._covered: Position | None = None
        self._earlier = Rows()  # Earlier parts of the commit that is being assembled.
        saved = None if restart else progress.read(table)
        if saved is not None and saved[0] != self._follows:
            raise InvalidInput(
                f"{table.name} follows {saved[0]}, not {self._follows}: make another table, "
                "or load it again (restart=True)"
            )
        if saved is None and not restart and table.scan(limit=1).count():
            raise InvalidInput(
                f"{table.name} has rows, and no snapshot in its history records their position in {self._follows}: "
                "make another table, or load it again (restart=True), which removes them"
            )
        self.progress = saved[1] if saved else None
        self._recorded = self.progress  # As the table has it; `progress` may be ahead of it.
        self._number, self._restart, self._swaps = self._next_number(), restart, swap

    def _next_number(self) -> int:
        last = self._session.last_committed()
        return 0 if last is None else last + 1

    @property
    def names(self) -> tuple[str, ...]:
        """The source table, or the shards of a merged table."""
        return self._names()

    @property
    def committed(self) -> Position:
        assert self.progress is not None
        return self.source.parse(self.progress.position)

    @property
    def covered(self) -> Position:
        """The log position read so far. It is past `committed` only if the log between had no change of this table."""
        return self._covered or self.committed

    @property
    def is_anew(self) -> bool:
        """Whether the table needs nothing that the source kept before."""
        return self.progress is None or self._restart

    def reconnect(self) -> None:
        """Drop what was read and not committed, as the connection to the source was lost."""
        self._earlier.drop({})

    # --- the snapshot ---

    def require_kept(self) -> None:
        """Raise `NotFound` if the source did not keep all changes since the table's position."""
        if self.progress is None or self._restart:
            return
        names, now, before = self._names(), self._kept(), dict(self.progress.kept)
        began = set(self.progress.parts) if self.source_table.parts else set(names)
        for name in sorted(began & set(names)):
            if name not in now:
                why = "it was dropped and made anew, or taken out, or the slot was dropped"
            elif now[name] != before.get(name, now[name]):
                why = (
                    "its publication left changes out for a while, or it was taken out and put in again, "
                    "perhaps made anew"
                )
            else:
                continue
            raise NotFound(
                f"the changes of {name} were not kept by {self.source.name} all the time: {why}, and changes since are "
                "not in the log; load the table again (restart=True)"
            )

    def _names(self) -> tuple[str, ...]:
        return self.source_table.parts or (self.source_table.name,)

    def _kept(self) -> dict[str, str]:
        return dict(self.source.kept(self._names()))

    def require_described(self) -> None:
        """Describe the source table again. Raises if it is not there, or cannot be followed."""
        now = self.source.describe(self.source_table.name, self.source_table.key)
        if self.progress is None:
            self.source_table = now

    def record(self) -> None:
        """Commit the position if it is past the last commit."""
        assert self.progress is not None
        if self.covered > self.committed:
            self._commit(None, replace(self.progress, position=self.covered.text))

    def hold(self, position: Position) -> None:
        """Record that the source must keep the changes since `position`, before the snapshot begins."""
        if self._restart and self._swaps:
            self._mark(position)
        elif self._restart:
            self._empty_table(position)
        elif self.progress is None:
            self._commit(None, Progress(position.text, where=self.source_table.where))

    def begin(self, position: Position, size: int, is_over: Callable[[], bool]) -> None:
        """Take or continue the snapshot, one commit per chunk of `size` rows. `position`: the first position from which
        the source keeps changes."""
        self._size = size
        if self._restart and self._swaps:
            self._replace_rows(position)
            return
        if self._restart:
            self._empty_table(position)
        if self.progress is None:
            self.progress = Progress(position.text, where=self.source_table.where)
        is_rewritten = self._is_rewritten(self.source_table)
        self._join()
        # Entries of dropped shards stay.
        self.progress = replace(self.progress, kept=tuple(sorted({**dict(self.progress.kept), **self._kept()}.items())))
        self._renew(self.source_table, is_rewritten)
        if self.progress.is_complete or is_over():
            return
        with (
            self.source.view(self.source_table) as view,
            closing(readers.ahead(view.chunks(self.progress.upto, size))) as chunks,
        ):
            for chunk in chunks:
                rows = self._computed.added(chunk.rows, self.source_table.name, None)
                # All keys of the chunk are above the keys in the table, so no row is replaced.
                self._commit(
                    rows,
                    self.progress.with_chunk(view.text, view.until, chunk.upto),
                    appends=self.source_table.is_unique,
                )
                self._have(snapshot_rows=self.report.snapshot_rows + chunk.rows.num_rows)
                if is_over():
                    return

    def look_again(self) -> None:
        """In a sync that goes on: check again what `begin` checks, as a log may have none of it."""
        self.require_kept()
        now = self.source.describe(self.source_table.name, self.source_table.key)
        if now.version != self.source_table.version:
            self._renew(replace(now, parts=self.source_table.parts), self._is_rewritten(now))

    def _renew(self, now: SourceTable, is_rewritten: bool) -> None:
        """Follow the source table as it is `now`; compare all rows if they may have changed without the log."""
        assert self.progress is not None
        self.progress = replace(self.progress, version=now.version, where=now.where)
        self.evolve(now, None)
        if is_rewritten or self.progress.compares:
            self.compare(self._size)

    def _join(self) -> None:
        """Queue new shards for the snapshot, after the existing ones."""
        assert self.progress is not None
        before, views = self.progress.parts, self.progress.views
        new = tuple(part for part in self.source_table.parts if part not in before)
        self.source_table = replace(self.source_table, parts=(*before, *new))
        if new and self.progress.is_complete:
            end = (before[-1],)
            last = replace(views[-1], upto=end) if views else Viewed(end, NOTHING, self.progress.position)
            self.progress = replace(self.progress, views=(*views[:-1], last), is_complete=False)
        self.progress = replace(self.progress, parts=self.source_table.parts)

    def _empty_table(self, position: Position) -> None:
        """Restart: a commit that deletes all rows and records the new position."""
        kept, where = tuple(sorted(self._kept().items())), self.source_table.where
        self.progress, self._restart = Progress(position.text, kept=kept, where=where), False
        made = self.table.truncate(properties={**self._extra, **self.progress.properties(self._follows)})
        self._number, self._recorded = self._next_number(), self.progress
        if made is None:
            self._commit(None, self.progress)

    def _mark(self, position: Position) -> None:
        """Have other calls through the slot keep what the rows lack that are about to replace the table's. Without a
        position of the table in this source that keeps it already, a commit without rows says that they differ from
        the source's: a later sync without a restart compares them."""
        saved = progress.read(self.table)
        if saved is not None and saved[0] == self._follows:
            return
        parts, version = self.source_table.parts, self.source_table.version
        mark = Progress(position.text, compares=True, parts=parts, version=version, where=self.source_table.where)
        properties = {**self._extra, **mark.properties(self._follows)}
        properties.pop(progress.RESTART, None)
        prepared = self._session.prepare(self._number, self._empty())
        self._session.commit(prepared, empty=True, properties=properties)
        self._number = self._next_number()

    def _replace_rows(self, position: Position) -> None:
        """Restart beside the old rows: one commit replaces them by the source's rows in one view. Until then a process
        that dies leaves them as they are."""
        before = self.table.current_snapshot()
        self.progress = Progress(position.text, kept=tuple(sorted(self._kept().items())), where=self.source_table.where)
        try:
            self._join()
            self._renew(self.source_table, is_rewritten=False)
            with self.source.view(self.source_table) as view:
                next_ = self.progress.with_chunk(view.text, view.until, None)
                with closing(readers.ahead(view.chunks(None, self._size))) as chunks:
                    rows = self._snapshot_rows(chunks)
                    snapshot = self.table.overwrite(
                        rows,
                        pinned_to=0 if before is None else before.id,
                        id=f"{progress.USER}/{uuid.uuid4()}",  # As of a commit of the stream, by its user.
                        properties={**self._extra, **next_.properties(self._follows)},
                    )
        except BaseException:
            self.progress = None  # The rows are still the old ones.
            raise
        self._restart, self._number = False, self._next_number()
        self.progress = self._recorded = next_
        assert snapshot is not None
        self._report(snapshot)

    def _snapshot_rows(self, chunks: Iterator[Chunk]) -> pa.RecordBatchReader:
        fields, count = self.table.schema.fields, 0

        def tables() -> Iterator[pa.Table]:
            nonlocal count
            for chunk in chunks:
                yield _fitted(self._computed.added(chunk.rows, self.source_table.name, None), fields)
                count += chunk.rows.num_rows
                self._have(snapshot_rows=count)

        read = tables()
        first = next(read)  # There is a chunk without rows where there are none.
        schema = first.schema
        no_rows = [pa.RecordBatch.from_pylist([], schema)]  # A reader without a batch counts as one that was read.
        batches = (batch for table in chain([first], read) for batch in table.to_batches() or no_rows)
        return pa.RecordBatchReader.from_batches(schema, batches)

    # --- changes ---

    def apply(self, batch: Transactions) -> None:
        """Commit the changes of a batch that are not in the table yet."""
        assert self.progress is not None
        if batch.position <= self.covered:
            return
        for rewrite in batch.rewritten.get(self.source_table.name, ()):
            filled = set() if self._filling is None else set(self._filling.columns)
            if rewrite.columns and rewrite.columns <= filled:
                continue
            if rewrite.ends.max() > self.committed.order and not self._shows(rewrite):
                now = self.source.describe(self.source_table.name, self.source_table.key)
                self.evolve(replace(now, parts=self.source_table.parts), batch.position)
                self.compare(self._size)
        for failed in batch.failed.get(self.source_table.name, ()):
            if failed.ends.max() > self.committed.order and not self._shows(failed):
                raise failed.error
        changes = batch.tables.get(self.source_table.name)
        fresh = None
        if changes is not None:
            self.evolve(changes.table, batch.position)
            fresh = self._rows(changes)
            if self._earlier.num_rows or not batch.is_last:
                self._earlier.append(fresh)
        if not batch.is_last:
            return
        rows = self._earlier if self._earlier.num_rows else fresh
        views, filling = self.progress.views, self.progress.filling
        if all(self.source.parse(view.until) <= batch.position for view in views):
            views = ()
        if filling is not None and filling.is_done and self._filled_until() <= batch.position.order:
            filling = None
        next_ = replace(self.progress, position=batch.position.text, views=views, is_complete=True, filling=filling)
        if rows is not None and rows.num_rows:
            properties = {} if batch.committed_ms is None else {progress.COMMITTED: str(batch.committed_ms)}
            self._commit(rows, next_, properties)
            self._count(rows, batch.committed_ms)
            self._earlier.drop({})
        elif batch.position.order - self.committed.order > _CARRY:
            self._commit(None, next_)
        self._covered = batch.position

    def _count(self, rows: pa.Table | Rows, committed_ms: int | None) -> None:
        counts, old = Counter(self.report.rows_by_kind), self.report
        counts.update(rows.counts if isinstance(rows, Rows) else spool.kinds(rows))
        lag = old.lag_seconds if committed_ms is None else max(0.0, (clock.now_ms() - committed_ms) / 1000)
        self._have(rows=old.rows + rows.num_rows, rows_by_kind=dict(counts), lag_seconds=lag)

    def _have(self, **counts: Any) -> None:
        """Update the report after a commit, and pass it to `tell`."""
        took = time.monotonic() - self._began
        self.report = replace(self.report, **counts, seconds=took, misfits=self.source.misfits.counts(self.names))
        log.info("%s", self.report)
        if self._tell is not None:
            self._tell(self.report)

    def _rows(self, changes: TableChanges) -> pa.Table:
        """The changed rows that are not in the table yet, with omitted values filled in."""
        rows, keep = changes.rows, self._fresh(changes.rows, changes.ends, changes.transactions)
        if unknown := self._unknown(changes):
            rows = self._with_known(unknown, rows, keep)
        rows = self._computed.added(rows, self.source_table.name, changes.committed_ms)
        for truncation in changes.emptied:
            if truncation.end > self.committed.order:
                self._empty_rows(truncation, rows, keep)
        return rows.filter(pa.array(keep))

    def _empty_rows(self, emptied: Emptied, rows: pa.Table, keep: np.ndarray) -> None:
        """Apply a TRUNCATE: delete the rows in the table,
        and drop this commit's rows before it (in `keep` and `_earlier`)."""
        is_own = np.ones(rows.num_rows, bool)
        condition: Expression = ALWAYS
        for name, value in emptied.where.items():
            is_own &= pc.equal(rows[name], value).to_numpy(zero_copy_only=False)
            condition = and_(condition, Call("eq", (Column((name,)), Literal(value))))
        keep[: emptied.row] &= ~is_own[: emptied.row]
        self._earlier.drop(emptied.where)
        for batch in self.table.scan(where=condition).to_batches():
            existing = pa.Table.from_batches([batch])
            is_fresh = self._fresh(
                existing, np.full(len(existing), emptied.end), np.full(len(existing), emptied.transaction)
            )
            existing = existing.filter(pa.array(is_fresh))
            kinds = pa.repeat(pa.scalar(RowKind.DELETE.short), len(existing))
            self._earlier.append(existing.append_column(ROW_KIND.name, kinds))

    def _fresh(self, rows: pa.Table, ends: np.ndarray, transactions: np.ndarray) -> np.ndarray:
        """Per row: whether its transaction is after the position and not visible in the snapshot view that read its
        key."""
        assert self.progress is not None
        fresh, rest = ends > self.committed.order, np.ones(len(ends), bool)
        for view in self.progress.views if len(ends) else ():
            inside = rest.copy()
            if view.upto is not None:
                inside &= self.source.upto(self.source_table, rows, view.upto)
            fresh &= ~(inside & self.source.covers(view.view, ends, transactions))
            rest &= ~inside
        return fresh

    def _shows(self, failed: Failed | Rewritten) -> bool:
        """Whether the snapshot views of this table already show all transactions of `failed`."""
        assert self.progress is not None
        parts, first, views = self.source_table.parts or (failed.table,), 0, list[str]()
        for view in self.progress.views:
            last = len(parts) - 1 if view.upto is None or not self.source_table.parts else parts.index(view.upto[0])
            if first <= parts.index(failed.table) <= last:
                views.append(view.view)
            is_end = self.source_table.parts and view.upto is not None and len(view.upto) == 1
            first = last + 1 if is_end else last
        return bool(views) and all(self.source.covers(view, failed.ends, failed.transactions).all() for view in views)

    def _unknown(self, changes: TableChanges) -> dict[str, np.ndarray]:
        """Per column, a mask of the rows whose value must be taken from the table because the log omits it. This
        includes, in old rows (-U, -D), added columns while their values are filled: the table's value counts, not the
        log's; and the sequence fields of the table,
        by which a delete that has only its key would be older than the row it deletes."""
        unknown, filling, rows = dict(changes.unknown), self._filling, changes.rows
        is_old = pc.is_in(rows[ROW_KIND.name], pa.array([RowKind.UPDATE_BEFORE.short, RowKind.DELETE.short]))
        is_old = is_old.to_numpy(zero_copy_only=False)
        if filling is not None:
            early = changes.ends <= self._filled_until() if filling.is_done else np.ones(rows.num_rows, bool)
            for name in set(filling.columns) & set(rows.schema.names):
                unknown[name] = unknown.get(name, False) | (early & is_old)
        for name in set(self._sequence) & set(rows.schema.names):
            lacking = is_old & pc.is_null(rows[name]).to_numpy(zero_copy_only=False)
            if lacking.any():
                unknown[name] = unknown.get(name, False) | lacking
        return unknown

    @property
    def _filling(self) -> Filling | None:
        return None if self.progress is None else self.progress.filling

    def _filled_until(self) -> int:
        filling = self._filling
        return -1 if filling is None or filling.until is None else self.source.parse(filling.until).order

    def _rows_in_table(self, rows: pa.Table, columns: list[str] | None = None) -> pa.Table:
        """The table's rows that share the most selective key column with `rows`: a superset of those keys."""
        name, values = self._key_values(rows)
        condition = Call("in", (Column((name,)), Literal(frozenset(values.to_pylist()))))
        return self.table.scan(columns=columns, where=condition).to_arrow()

    def _earlier_of(self, rows: pa.Table, columns: list[str]) -> list[pa.Table]:
        """The rows of earlier parts of this commit that share the most selective key column with `rows`: a superset."""
        name, values = self._key_values(rows)
        matching = (table.filter(pc.is_in(table[name], values)) for table in self._earlier.tables())
        return [rows.select([name for name in columns if name in rows.schema.names]) for rows in matching]

    def _key_values(self, rows: pa.Table) -> tuple[str, pa.Array]:
        """The most selective key column, and its distinct values."""
        values = {name: rows[name].combine_chunks().unique() for name in self.source_table.key}
        return max(values.items(), key=lambda item: len(item[1]))

    def _with_known(self, unknown: Mapping[str, np.ndarray], rows: pa.Table, keep: np.ndarray) -> pa.Table:
        """Fill in unchanged values that the log omits, from the previous row of the same key, in this batch or in the
        table. Rows outside `keep` may stay without them: they are not written."""
        key, names = self.source_table.key, list(unknown)
        there = [self._rows_in_table(rows, [*key, *names]), *self._earlier_of(rows, [*key, *names])]
        both = pa.concat_tables([*there, rows.select([*key, *names])], promote_options="permissive").combine_chunks()
        offset = both.num_rows - rows.num_rows
        codes = key_codes([both[name].combine_chunks() for name in key]).astype(np.int64)
        # The table shows the rows outside `keep` already, and perhaps later ones of their keys, so those rows take
        # nothing from it.
        codes[offset:][~keep] += codes.max(initial=0) + 1
        order, numbers = np.argsort(codes, kind="stable"), np.arange(len(codes))
        previous = numbers.copy()
        previous[order[1:]] = np.where(np.diff(codes[order]) == 0, order[:-1], order[1:])
        inserted = pc.equal(rows[ROW_KIND.name], RowKind.INSERT.short).to_numpy(zero_copy_only=False)
        for name in names:
            missing = np.append(np.zeros(offset, bool), unknown[name])
            # A row that an update moved to another key is an insert right after the delete of its old key, and has the
            # values of that row, not of the row that had the new key before.
            moved = np.flatnonzero(missing[offset:] & inserted) + offset
            missing[moved - 1] = True
            source = np.where(missing, previous, numbers)
            source[moved] = moved - 1
            while (source[source] != source).any():
                source = source[source]
            if (missing[source][offset:] & keep).any():
                raise UnsupportedFeature(
                    f"{self.source_table.name}: the log leaves out unchanged values of column {name!r}, and "
                    f"{self.table.name} has not the rows they are of; ALTER TABLE ... REPLICA IDENTITY FULL, "
                    "and load it again (restart=True)"
                )
            values = both[name].take(pa.array(source[offset:]))
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows

    # --- the schema ---

    def evolve(self, now: SourceTable, position: Position | None) -> None:
        """Apply the source's schema changes: add new columns, widen types, make dropped columns nullable. The log has
        values of the new columns from `position` on (None: from now on)."""
        if now == self.source_table and position is not None:
            return
        require_names(now)
        have = {column.name: column for column in self.table.schema.fields}
        changes: list[AddColumn | ChangeType | ChangeComment | ChangeNullability] = []
        for column in (*now.fields, *self._computed.fields(now)):
            old = have.get(column.name)
            if old is None:
                changes.append(
                    AddColumn((column.name,), column.type, True, column.comment)
                )  # A path: a name may have a dot.
                continue
            if not holds(old.type, column.type):
                changes.append(ChangeType(column.name, column.type))
            if column.nullable and not old.nullable and column.name not in self.source_table.key:
                changes.append(ChangeNullability(column.name, True))
            if column.comment is not None and column.comment != old.comment:
                changes.append(ChangeComment(column.name, column.comment))
        column_names = {column.name for column in now.fields}
        changes += [
            ChangeNullability(name, True)
            for name, old in have.items()  # Columns that the source dropped.
            if not old.nullable and name not in column_names and name not in self.source_table.key
        ]
        if changes:
            self._begin_filling(
                [
                    change.name[0]
                    for change in changes
                    if isinstance(change, AddColumn) and change.name[0] in column_names
                ],
                position,
            )
            try:
                self.table.evolve(changes)
            except LakeError as error:
                raise UnsupportedFeature(
                    f"{self.table.name} cannot follow a change of {now.name}: {error}. Nothing is lost: the source "
                    "keeps the changes; drop the column here (table.alter().drop_column(...).commit()), and the next "
                    "sync makes and fills it anew, or leave it out (exclude_columns)"
                ) from error
            names = tuple(f"{type(change).__name__} {''.join(change.name)}" for change in changes)
            self.report = replace(self.report, schema_changes=self.report.schema_changes + names)
            log.info("%s: %s", self.table.name, ", ".join(names))
        self.source_table = now
        if self.progress is not None:
            self.progress = replace(self.progress, version=now.version)

    # --- values of columns that the source added ---

    def _begin_filling(self, names: list[str], position: Position | None) -> None:
        """Record that added columns must be filled, before the table gets them:
        a process that dies between resumes there."""
        assert self.progress is not None
        names = self._in_source(names) if self.progress.is_complete or self.progress.views else []
        if not names or not self.source.has_values(self.source_table, names):
            return
        before = self.progress.filling
        position = position or self.source.position()
        names = list(dict.fromkeys([*(before.columns if before is not None else ()), *names]))
        until = None if before is None else before.until
        self._commit(None, replace(self.progress, filling=Filling(tuple(names), position.text, None, until)))

    def _in_source(self, names: Collection[str]) -> list[str]:
        try:
            now = self.source.describe(self.source_table.name, self.source_table.key)
        except (NotFound, InvalidInput):
            return []  # The table was dropped since, or its key changed.
        return [column.name for column in now.fields if column.name in names]

    def fill(self, size: int, is_over: Callable[[], bool]) -> None:
        """Fill added columns of existing rows with the source's values, one commit per at most `size` rows."""
        assert self.progress is not None
        filling = self.progress.filling
        if filling is None or filling.is_done or not self.progress.is_complete or is_over():
            return
        if self.source.parse(filling.after) > self.covered:
            return
        names = self._in_source({*self.source_table.key, *filling.columns})
        if len(names) == len(self.source_table.key):
            self._commit(None, replace(self.progress, position=self.covered.text, filling=None))
            return
        now = self.source.describe(self.source_table.name, self.source_table.key)
        fields = tuple(column for column in now.fields if column.name in names)
        wanted = replace(now, fields=fields, parts=self.source_table.parts)
        with self.source.view(wanted) as view, closing(readers.ahead(view.chunks(filling.upto, size))) as chunks:
            until = max(view.until.order, self._filled_until())
            text = view.until.text if until == view.until.order else filling.until
            for chunk in chunks:
                rows = self._filled(chunk.rows)
                filling = replace(filling, upto=chunk.upto, until=text, is_done=chunk.upto is None)
                if rows.num_rows or filling.is_done:
                    self._commit(rows, replace(self.progress, position=self.covered.text, filling=filling))
                    self._have(filled_rows=self.report.filled_rows + rows.num_rows // 2)
                if is_over():
                    return

    def _filled(self, read: pa.Table) -> pa.Table:
        """The table's rows that differ from `read`, as `-U` with the old values and `+U` with the new ones."""
        read = _fitted(read, self.table.schema.fields)
        changed = comparison.difference(self._rows_in_table(read), read, self.source_table.key)
        return pa.concat_tables(self._updates(changed, set(read.schema.names)))

    def _updates(self, changed: comparison.Difference, names: set[str]) -> list[pa.Table]:
        after = self._computed.anew(changed.after, self.source_table.name, names)
        return [_of_kind(changed.before, RowKind.UPDATE_BEFORE), _of_kind(after, RowKind.UPDATE_AFTER)]

    # --- rows that changed without the log ---

    def _is_rewritten(self, now: SourceTable) -> bool:
        """Whether something changed rows of the table without the log since its version, e.g. ALTER COLUMN ... TYPE ...
        USING, or the table has the rows of another row filter."""
        assert self.progress is not None
        before, names = self.progress.version, {column.name for column in self.table.schema.fields}
        if not (self.progress.is_complete or self.progress.views):
            return False
        if self.progress.where != now.where:
            return True
        return before != "" and not names.isdisjoint(self.source.rewritten(before, now))

    def compare(self, size: int) -> None:
        """Make the table what the source is in a new view: commits of at most `size` rows with what differs. Changes
        that the view shows are not applied again. A process that dies compares from the first row on again,
        since its view is gone."""
        assert self.progress is not None
        log.info("%s: rows changed without the log; comparing all with the source", self.table.name)
        version = self.source_table.version
        mark = replace(self.progress, views=(), is_complete=False, compares=True, version=version)
        with self.source.view(self.source_table) as view:
            count, same_count = self.table.scan().count(), 0
            with closing(readers.ahead(view.chunks(None, size))) as chunks:
                for chunk in chunks:
                    read = self._computed.added(chunk.rows, self.source_table.name, None)
                    read, names = _fitted(read, self.table.schema.fields), chunk.rows.schema.names
                    difference = comparison.difference(
                        self._rows_in_table(read), read.select(names), self.source_table.key
                    )
                    same_count += difference.same_keys
                    new = comparison.matching(read, difference.new.select(self.source_table.key))
                    self._repair([*self._updates(difference, set(names)), _of_kind(new, RowKind.INSERT)], mark)
            if same_count < count:
                for keys in self._surplus(view, size):
                    gone = comparison.matching(self._rows_in_table(keys), keys)
                    self._repair([_of_kind(gone, RowKind.DELETE)], mark)
            shown = (Viewed(None, view.text, view.until.text),)
            self._commit(None, replace(mark, views=shown, is_complete=True, compares=False, filling=None))

    def _repair(self, rows: list[pa.Table], mark: Progress) -> None:
        changes = pa.concat_tables(rows, promote_options="default")
        if changes.num_rows:
            self._commit(changes, mark)
            updates = sum(row.num_rows for row in rows[:1]) if len(rows) > 1 else 0
            self._have(filled_rows=self.report.filled_rows + changes.num_rows - updates)

    def _surplus(self, view: View, size: int) -> Iterator[pa.Table]:
        """The keys of the table's rows that the view does not show, at most `size` at a time.
        Rows of dropped shards stay."""
        key, table = self.source_table.key, self.source_table
        only = view.narrowed_to(replace(table, fields=tuple(column for column in table.fields if column.name in key)))

        def table_rows() -> Iterator[pa.Table]:
            names = list(dict.fromkeys([*key, *(NAMES if table.parts else ())]))
            for batch in self.table.scan(columns=names).to_batches():
                rows = pa.Table.from_batches([batch])
                yield rows.filter(pa.array(is_of(rows, self._present))) if table.parts else rows

        def shown() -> Iterator[pa.Table]:
            return (_fitted(chunk.rows, self.table.schema.fields) for chunk in only.chunks(None, size))

        for keys in comparison.surplus(table_rows, shown, key, self.table.scan().count()):
            yield from (keys.slice(start, size) for start in range(0, keys.num_rows, size))

    # --- commits ---

    def carry(self) -> None:
        """Record the position in a new snapshot if other engines committed since,
        so that older snapshots may expire."""
        assert self.progress is not None
        newest = self.table.current_snapshot()
        if self.progress.is_complete and (newest is None or progress.POSITION not in newest.properties):
            self._commit(None, replace(self.progress, position=self.covered.text))

    def settle(self) -> Report:
        self._session.settle()
        self._earlier.close()
        self._convert_deletes()
        if self.progress is None:
            return self.report
        took = time.monotonic() - self._began
        return replace(self.report, position=self.covered.text, is_complete=self.progress.is_complete, seconds=took)

    def _commit(
        self,
        rows: pa.Table | Rows | None,
        next_: Progress,
        more: Mapping[str, str] | None = None,
        *,
        appends: bool = False,
    ) -> None:
        properties = {**self._extra, **next_.properties(self._follows), **(more or {})}
        if rows is None:
            rows = self._empty()
        for start in range(_TRIES):
            number, fields = self._number, self.table.schema.fields
            fitted = partial(_fitted, fields=fields)
            try:
                given = rows.batches(fitted) if isinstance(rows, Rows) else fitted(rows)
                prepared = self._session.prepare(number, given, appends=appends)
                snapshot = self._session.commit(prepared, empty=True, properties=properties)
                break
            except Conflict:
                self.require_unmoved()
                if start == _TRIES - 1:
                    raise
            except CommitUnknown:
                saved = progress.read(self.table)
                if saved is None or saved[1] != next_:
                    raise
                snapshot = self.table.current_snapshot()
                break
        if snapshot is None or snapshot.properties.get(progress.POSITION) != next_.position:
            self.require_unmoved()
            raise Conflict(f"{self.table.name}: commit {number} of {progress.USER!r} is another's; run it again")
        self._number, self.progress, self._recorded, self._covered = number + 1, next_, next_, None
        self._report(snapshot)
        self._may_have_deletes = self._converts
        self._convert_deletes()

    def _convert_deletes(self) -> None:
        """Where the table's property asks for it, leave no equality deletes; one that fails is made up for by the
        next."""
        if self._may_have_deletes:
            try:
                self.table.convert_equality_deletes()
                self._may_have_deletes = False
            except LakeError as error:
                log.warning("%s: its equality deletes were not converted: %s", self.table.name, error)

    def _report(self, snapshot: Snapshot) -> None:
        self.report = replace(self.report, snapshots=(*self.report.snapshots, snapshot.id))

    def require_unmoved(self) -> None:
        """Raise `Conflict` if another process advanced the table's position."""
        saved = progress.read(self.table)
        recorded = None if self._recorded is None else self._recorded.properties(self._follows)
        if saved is not None and saved[1].properties(self._follows) != recorded:
            raise Conflict(
                f"{self.table.name}: another process follows {self._follows} into it; nothing was written. One at a "
                "time may: run it again when that has ended"
            )

    def _empty(self) -> pa.Table:
        fields = self.table.schema.fields
        return pa.Table.from_batches([], pa.schema([(column.name, to_arrow(column.type)) for column in fields]))


def _converts_deletes(table: Table) -> bool:
    """Whether the table's property asks for position deletes. Raises `InvalidInput`."""
    text = table.schema.properties.get(_CONVERT_DELETES, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"{table.name}: {_CONVERT_DELETES}={text!r}: it is 'true' or 'false'")
    return text == "true" and table.format == "iceberg"


def require_names(table: SourceTable) -> None:
    """Raise `InvalidInput` if a column has the name of the row-kind column."""
    if any(column.name == ROW_KIND.name for column in table.fields):
        raise InvalidInput(
            f"{table.name} has a column {ROW_KIND.name!r}, as the kinds of changed rows are called here; "
            "leave it out (exclude_columns)"
        )


def _of_kind(rows: pa.Table, kind: RowKind) -> pa.Table:
    return rows.append_column(ROW_KIND.name, pa.array([kind.short] * rows.num_rows, pa.string()))


def _fitted(rows: pa.Table, fields: tuple[Field, ...]) -> pa.Table:
    """`rows` cast to the table's column types."""
    types = {column.name: to_arrow(column.type) for column in fields}
    columns = []
    for name in rows.schema.names:
        column, target = rows[name], types.get(name)
        if target is not None and target != column.type:
            is_time = pa.types.is_time(target)
            try:
                column = column.cast(target, safe=not is_time)  # Paimon stores TIME in milliseconds.
            except pa.ArrowInvalid as error:
                raise InvalidInput(f"column {name!r}: a value of the source is none of {target}: {error}") from error
        columns.append(column)
    return pa.Table.from_arrays(columns, names=rows.schema.names)
