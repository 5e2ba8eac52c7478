"""Table: the public verbs. Wiring, no logic: that is in `verbs`, dialects and engines."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from typing import Any, NoReturn

import pyarrow as pa

from lakeformat import arguments
from lakeformat.alter import Alteration
from lakeformat.arguments import Age, Moment
from lakeformat.changes import KIND_COLUMN, Changes
from lakeformat.codec import sql_text
from lakeformat.commit import commit, newest
from lakeformat.dialects.dialect import (
    AnyView,
    BranchFolders,
    Consumers,
    FallsBack,
    Format,
    Mirrored,
    Relocatable,
    Staging,
    Upkept,
)
from lakeformat.engines.choose import engine_for
from lakeformat.engines.engine import Engine
from lakeformat.engines.row_level.delta import BUFFER_BYTES, MAX_KEYS
from lakeformat.errors import AlreadyExists, Conflict, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.inspect import Inspect
from lakeformat.maintenance import compact, drop, expire, mirror, relocate, sweep
from lakeformat.maintenance.relocate import Relocated
from lakeformat.model import evolution
from lakeformat.model import nanoseconds as fine
from lakeformat.model.operation import (
    Append,
    CherryPick,
    Create,
    DropBranch,
    Evolve,
    FastForward,
    Operation,
    OperationKind,
    Overwrite,
    Request,
    Restore,
    RewriteManifests,
)
from lakeformat.model.predicate import ALWAYS, Expression, bind, split
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import Expiry, Snapshot
from lakeformat.scan import Scan
from lakeformat.storage.catalogued import Catalogued, files_of
from lakeformat.storage.reaching import reaching
from lakeformat.storage.rehearsal import Rehearsal, RehearsedPlace
from lakeformat.storage.store import Listed, Store
from lakeformat.streaming import DeltaWriter, WriteSession
from lakeformat.verbs import adopt, analyze, append, branch, delete, merge, overwrite, specs, update
from lakeformat.verbs.change import Change
from lakeformat.verbs.merge import MergeInto


class Table:
    """A table of a warehouse. Every verb looks at the table as it is then; a Table holds no state of its own.

    A verb that changes the table makes one snapshot and returns it, or None where nothing was to do. `id` makes it
    happen once: asked again with the same id, it returns the same snapshot. `properties` go into the snapshot.
    """

    def __init__(
        self, name: str, store: Store, format: Format, branch: str | None = None, wap_id: str | None = None
    ) -> None:
        self.name = name
        self._whole = store
        self._store = store if branch is None else format.on_branch(store, branch)
        self._format = format
        self._branch = branch
        self._wap_id = wap_id

    def __repr__(self) -> str:
        on = f", branch={self._branch!r}" if self._branch else f", staged={self._wap_id!r}" if self._wap_id else ""
        return f"Table({self.name!r}, {self._store.root!r}{on})"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The current rows for whoever speaks Arrow's C stream interface: `pa.table(t)`, `pl.DataFrame(t)`, DuckDB's `FROM t`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> NoReturn:
        """Refused by name: without this, `pd.DataFrame(...)` says only that it was called wrongly."""
        raise TypeError(f"{self!r} is no sequence of rows; take .scan().to_pandas(), .to_arrow() or .to_batches()")

    def _repr_html_(self) -> str:
        view = self._view()
        made = "nothing written yet" if view.snapshot is None else repr(view.snapshot)
        return f"{view.schema._repr_html_()}<p>{escape(f'{self!r}, {self.format}: {made}')}</p>"

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self._store.root

    @property
    def format(self) -> str:
        return self._format.name

    @property
    def schema(self) -> Schema:
        """The table's newest schema."""
        return self._view().schema

    @property
    def properties(self) -> Mapping[str, str]:
        return self.schema.properties

    @property
    def inspect(self) -> Inspect:
        """The table's metadata, as Arrow tables."""
        return Inspect(self._format, self._view, self._changes, self._version, self._store)

    # --- reading ---

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | Expression | None = None,
        snapshot_id: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
        limit: int | None = None,
        nanoseconds: str = "error",
    ) -> Scan:
        """Rows for which `where` is true, now or at a snapshot, a time or a tag. `a.b` in `columns` reads part of a row.

        `as_of`: a datetime (UTC unless it says otherwise), ISO text, or milliseconds since 1970: the newest snapshot
        made by then. Raises `NotFound` for a version or column that is not there.

        `nanoseconds`: what becomes of timestamps finer than microseconds, which Arrow counts from 1677 to 2262 only. "error":
        a scan that meets one beyond raises; "microseconds": all of them are cut, towards the past, to timestamps in
        microseconds, which reach from year 1 to 9999; "null": those beyond are null (not inside rows, lists and maps).
        Conditions see what the scan gives.
        """
        if nanoseconds != "error":
            fine.check(nanoseconds)
        limit = arguments.whole("limit", limit, 0)
        names = None if columns is None else arguments.columns(columns)
        view = self._version(snapshot_id, as_of, tag)
        view.require_readable()
        if isinstance(view, FallsBack):
            view = view.with_fallback()
        fields, every = view.project(names), view.schema.fields
        if nanoseconds != "error":
            fields, every = fine.seen(fields, nanoseconds), fine.seen(every, nanoseconds)
        condition = self._condition(where, every)
        return Scan(self._store, view, fields, names, condition, limit, nanoseconds)

    def changes(
        self,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expression | None = None,
        consumer: str | None = None,
    ) -> Changes:
        """The rows that came and went after `from_snapshot` (0: from the first one on) up to `to_snapshot` (the newest),
        with their kinds in a column `_row_kind`.

        With `consumer`, from where that one has come to, and its `acknowledge` notes how far it came; expiry keeps what it
        has still to read. A new one begins at `from_snapshot`, or else with the oldest snapshot that is kept. `where` is
        true or not of each row alone. Consumers: Paimon tables only.
        """
        view = self._until(to_snapshot)
        view.require_readable()
        after = arguments.whole("from_snapshot", from_snapshot, 0)
        if consumer is not None:
            consumers = self._consumers(view)
            next_snapshot = consumers.progress(consumer)
            if next_snapshot is not None:
                after = next_snapshot - 1
            elif after is None:
                kept = view.history.snapshots()
                after = kept[0].id - 1 if kept else 0
            if next_snapshot is None:
                self._store.write(*consumers.consumer(consumer, after + 1))
        if after is None:
            raise InvalidInput("changes() of no snapshots; give from_snapshot (0 for all) or a consumer")
        return replace(self._changes(after, to_snapshot, columns, where), view=view, consumer=consumer)

    def drop_consumer(self, name: str) -> None:
        """Forget a consumer, and what is kept for it alone. Raises `NotFound`."""
        consumers = self._consumers(self._view())
        if consumers.progress(name) is None:
            raise NotFound(f"{self.name}: no consumer {name!r}")
        self._store.delete([consumers.consumer_path(name)])

    def current_snapshot(self) -> Snapshot | None:
        """The newest snapshot, and what it changed; None for a table that nothing was ever written to."""
        view = self._view()
        found = view.snapshot
        return None if found is None else replace(found, partitions=view.history.changes())

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """A snapshot, and what it changed. Raises `NotFound`."""
        view = self._version(snapshot_id, None, None)
        assert view.snapshot is not None
        return replace(view.snapshot, partitions=view.history.changes())

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        """The snapshots that led to the current one, as far as they are kept, oldest first: all, or those after the snapshot
        `after`. Their counts are those that the snapshots' own metadata holds, and None for the rest; `snapshot(id)` looks them
        up."""
        after = arguments.whole("after", after, 0)
        return self._view().history.snapshots(after or 0)

    # --- writing ---

    def append(
        self,
        data: Any,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> Snapshot | None:
        """Add rows. Columns are matched by name; those left out become their default or null. No rows: no snapshot."""
        view, engine = self._view(), engine_for(data)
        request, landed = self._asked(view, id, properties, watermark)
        if landed:
            return self._again(view, request, landed, engine)
        operation = append.append(self._change(view, request, engine), data)
        return self._commit(view, operation, engine) if operation else None

    def add_files(
        self,
        paths: Sequence[str],
        partition: Mapping[str, Any] | None = None,
        check_duplicate_files: bool = True,
        spark: Any = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Make Parquet files that are there part of the table, where they are and as they are, in one snapshot (Iceberg).

        `paths`: absolute, or relative to the table's location. Columns are known by the files' field ids, else by name: then
        `schema.name-mapping.default` is set in a commit before. A file's partition follows from the bounds in its footer (else
        from its rows); a partition column that it lacks has the value that `partition` says, or the folder `name=value`.
        Files without rows are left out. Raises `InvalidInput` for files that do not fit, `AlreadyExists` for one that the table
        has, `NotFound`. The files are the table's from then on; whatever fails, none of them is deleted.
        """
        if isinstance(paths, str) or not all(isinstance(path, str) and path for path in paths):
            raise InvalidInput(f"paths={paths!r}: give a list of files, e.g. ['s3://bucket/a.parquet']")
        view = self._view()
        request, landed = self._asked(view, id, properties)
        if landed:
            return landed

        def set_properties(asked: Mapping[str, str]) -> None:
            self.evolve([evolution.SetProperties(asked)])

        change = self._change(view, request, engine_for(spark=spark))
        operation = adopt.plan(change, tuple(paths), partition, not check_duplicate_files, set_properties)
        return self._commit(view, operation) if operation else None

    def upsert(
        self,
        data: Any,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> Snapshot | None:
        """Add rows, each in the place of the row with its key, as the table's merge engine has it.

        A column `rowkind` may say what a row does to its key: "+I" and "+U" (and null) put it there, "-D" and "-U" take
        it away. Of rows with the same key the last one counts. Tables with a primary key only; where rows are merged by
        it when they are read, `append` is the same, and elsewhere (Iceberg) this is a merge: a row that is there keeps
        the columns that the data lacks.
        """
        view = self._view()
        if view.layout().keyed is not None:
            return self.append(data, id=id, properties=properties, watermark=watermark)
        if not view.schema.primary_key:
            raise InvalidInput(
                f"{self.name}: upsert needs a primary key, and the table has none; append, or merge_into"
            )
        return self._merge(
            MergeInto(data, ALWAYS, self._merge, key=view.schema.primary_key), id, properties, None, watermark
        )

    def stream(self, user: str) -> WriteSession:
        """A session for a stream that writes here: `prepare`, then `commit`, by identifiers that rise; see `WriteSession`. Rows
        of a table with a primary key are upserted, others added.

        For Spark: `frame.writeStream.foreachBatch(table.stream("name").write_batch)`.
        """
        arguments.text("user", user)
        if self._wap_id is not None:
            raise InvalidInput(
                f"stream({user!r}): a stream stages nothing, as it has to find what it committed; write to a branch"
            )
        if "/" in user:
            raise InvalidInput(f"user {user!r}: a stream's name has no slashes")
        self._view()
        return WriteSession(self._store, self._format, user, self._branch)

    def overwrite_partitions(
        self,
        data: Any,
        partitions: Iterable[Mapping[str, Any]] | None = None,
        *,
        pinned_to: int | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> Snapshot | None:
        """Replace partitions, in one snapshot. The last writer wins inside them.

        Dynamic (without `partitions`): those that the data has rows for; no rows, no snapshot. Declared: each of
        `partitions` (column -> value), emptied if the data has no row for it; a row outside raises `OutsideScope` and
        nothing is committed. With `pinned_to` (a snapshot id), what others wrote there since is a `Conflict`.
        """
        pinned_to = arguments.whole("pinned_to", pinned_to, 0)
        view = self._view()
        request, landed = self._asked(view, id, properties, watermark)
        if landed:
            return self._again(view, request, landed, engine_for(data))
        scope = None if partitions is None else specs.declared(self.name, view.schema, partitions)
        return self._overwrite(view, request, data, scope, pinned_to)

    def overwrite(
        self,
        data: Any,
        partition: Mapping[str, Any] | None = None,
        where: str | Expression | None = None,
        *,
        pinned_to: int | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> Snapshot | None:
        """Replace the whole table, the partitions that a full or partial `partition` spec names, or the rows `where`.

        A snapshot is always made, also without rows. A row outside raises `OutsideScope` and nothing is committed.
        `where` on more than partition columns rewrites the files it touches; where rows are merged by key, it
        writes rows that delete. `pinned_to`: see `overwrite_partitions`.
        """
        if partition is not None and where is not None:
            raise InvalidInput("overwrite takes a partition or a condition, not both")
        pinned_to = arguments.whole("pinned_to", pinned_to, 0)
        view = self._view()
        request, landed = self._asked(view, id, properties, watermark)
        if landed:
            return self._again(view, request, landed, engine_for(data))
        if partition is not None:
            condition = specs.declared(self.name, view.schema, [partition])
        else:
            condition = self._condition(where, view.schema.fields)
        return self._overwrite(view, request, data, condition, pinned_to)

    def truncate(self, *, id: str | None = None, properties: Mapping[str, str] | None = None) -> Snapshot | None:
        """Remove all rows."""
        view = self._view()
        request, landed = self._asked(view, id, properties)
        return landed or self._commit(view, Overwrite(request=request, added=(), kind=OperationKind.TRUNCATE))

    def drop_partitions(
        self,
        partitions: Iterable[Mapping[str, Any]],
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Remove the partitions that these full or partial specs (column -> value) name."""
        view = self._view()
        given = list(arguments.specs(partitions))
        if not given:
            raise InvalidInput("drop_partitions without a partition; name one, e.g. [{'dt': '2023-05-01'}]")
        scope = specs.declared(self.name, view.schema, given)
        request, landed = self._asked(view, id, properties)
        if landed:
            return landed
        change = self._change(view, request)
        return self._commit(view, overwrite.replace_rows(change, scope, (), None))

    def mark_partitions_done(self, partitions: Iterable[Mapping[str, Any]]) -> None:
        """Say to those who wait for them that these partitions of a Paimon table (full specs, column -> value) are complete, by a
        `_SUCCESS` file in the folder of each, as Paimon's `partition.mark-done-action=success-file` has it. Raises
        `UnsupportedFeature` for an Iceberg table."""
        view = self._view()
        if not isinstance(view, Upkept):
            raise UnsupportedFeature(
                f"{self.name}: partitions of Paimon tables can be marked as done, Iceberg's cannot"
            )
        found = specs.whole(self.name, view.schema, partitions)
        self._store.write_many(view.done_marks(found, _now_ms()))

    def delete(
        self,
        where: str | Expression,
        *,
        spark: Any = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Remove the rows for which `where` is true. Whole partitions go by metadata alone."""
        view = self._view()
        request, landed = self._asked(view, id, properties)
        engine = engine_for(spark=spark)
        if landed:
            return self._again(view, request, landed, engine)
        if where is None:
            raise InvalidInput("delete needs a condition; truncate() removes all rows")
        condition = self._condition(where, view.schema.fields)
        operation = delete.delete(self._change(view, request, engine), condition)
        return self._commit(view, operation, engine) if operation else None

    def update(
        self,
        assignments: Mapping[str, Any],
        where: str | Expression | None = None,
        *,
        spark: Any = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Set columns in the rows for which `where` is true: to values, or to expressions as SQL text, which see the old row.

        A str is an expression: text is quoted in it, `{"name": "'bob'"}`. None, numbers, booleans, bytes, `Decimal`, dates,
        times and `datetime` are values.
        """
        view = self._view()
        request, landed = self._asked(view, id, properties)
        engine = engine_for(spark=spark)
        if landed:
            return self._again(view, request, landed, engine)
        fields = view.schema.fields
        if not isinstance(assignments, Mapping) or not assignments:
            raise InvalidInput("update needs an assignment, e.g. {'a': 'a + 1'}")
        bound = {name: bind(value, fields) for name, value in update.assigned(assignments, fields).items()}
        condition = self._condition(where, view.schema.fields)
        operation = update.update(self._change(view, request, engine), bound, condition)
        return self._commit(view, operation, engine) if operation else None

    def merge_into(self, source: Any, on: str | Expression, *, evolve_schema: bool = False) -> MergeInto:
        """Change the table by a source of rows: chain clauses, then `merge()`.

        `source`: whatever `append` takes; a Spark DataFrame is merged by Spark. `on`: when a row of the table (`t`) and one
        of the source (`s`) match, with at least one equality between them, e.g. `"t.id = s.id"`; null equals nothing.
        With `evolve_schema`, columns that only the source has are added first, in a commit of their own, where a clause
        takes all columns; and those that only the table has stay as they are, or become their default.
        """
        return MergeInto(source, on, self._merge, evolve_schema)

    def delta_writer(
        self,
        name: str,
        key: Sequence[str] | None = None,
        *,
        upsert: bool = False,
        max_keys: int = MAX_KEYS,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> DeltaWriter:
        """A writer of a changelog, on Iceberg tables: one snapshot for each checkpoint, each of them once.

        `name` identifies the stream. Rows are known by `key`, by default the identifier fields, which must hold the
        columns that the partitions are made of. With `upsert` an inserted row takes the place of an older one; without, the
        changelog itself takes that away. `max_keys` bounds the keys between two checkpoints, `buffer_bytes` the rows that
        wait to be written together.
        """
        arguments.text("name", name)
        if self._wap_id is not None:
            raise InvalidInput(f"delta_writer({name!r}): a stream stages nothing; write to a branch")
        schema = self.schema
        chosen = schema.primary_key if key is None else tuple(key)
        if not chosen:
            raise InvalidInput(f"{self.name}: the table has no identifier fields; give the key of the changelog")
        for each in chosen:
            schema.field(each)
        session = WriteSession(self._store, self._format, name, self._branch)
        return DeltaWriter(session, chosen, upsert, max_keys, buffer_bytes)

    # --- schema ---

    def alter(self) -> Alteration:
        """A schema change in the making: chain its verbs, then `commit()`."""
        return Alteration(self.evolve, lambda: self.schema)

    def evolve(self, changes: Sequence[Any], id: str | None = None) -> Schema:
        """Apply schema changes (`lakeformat.model.evolution`) all at once; returns the new schema."""
        if id is not None:
            arguments.text("id", id)
        if not isinstance(changes, list | tuple):
            raise InvalidInput(f"changes={changes!r}: give a list of schema changes")
        view = self._view()
        request = Request(id=id or str(uuid.uuid4()), absent_until=0 if id else view.version)
        self._commit(view, Evolve(request=request, changes=tuple(changes)))
        return self.schema

    # --- maintenance ---

    def compact(
        self,
        full: bool = False,
        where: str | Expression | None = None,
        spark: Any = None,
        *,
        sort_by: Sequence[str] | bool | None = None,
        partial_progress: bool = False,
        max_commits: int = 10,
        min_files: int | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Make small files into large ones; None when nothing is worth it. `where` chooses partitions.

        With `sort_by`, all files are written anew, the rows of each partition in this order ("id", "days(ts) DESC NULLS LAST", as
        in `create_table`, or "zorder(a, b)", "hilbert(a, b)"; True: the table's own), so that no two files overlap and conditions on it leave files out. A concurrent overwrite always wins: the
        compaction starts over without what was replaced, at most three times, then raises `Conflict`. With
        `partial_progress` there are up to `max_commits` snapshots, the last of which is returned: a part that fails is left out,
        and loses nothing of the others. `min_files`, of an Iceberg table: how many small files of a partition are worth it; five
        by default, two with `full`.
        """
        min_files = arguments.whole("min_files", min_files, 1)
        most = arguments.whole("max_commits", max_commits, 1)
        if partial_progress and id is not None:
            raise InvalidInput(
                "compact(id=..., partial_progress=True): the snapshots of its parts have ids of their own"
            )
        view = self._view()
        chosen = compact.asked_order(self.name, view, sort_by)
        scope = self._chosen("compact", view, where)
        engine = engine_for(spark=spark)
        request, landed = self._asked(view, id, properties)
        if landed:
            return landed
        change = self._change(view, request, engine)
        if partial_progress:
            made = compact.compact_in_parts(change, self._format, full, scope, chosen, most, min_files)
        else:
            made = compact.compact(change, self._format, full, scope, sort_by=chosen, min_files=min_files)
        if made is not None:
            expire.after(self._reach(view), self._format, view, made, _now_ms())
        return made

    def compaction_plan(
        self, full: bool = False, where: str | Expression | None = None, *, sort_by: Sequence[str] | bool | None = None
    ) -> pa.Table:
        """What `compact` would write anew: one row a unit of work, with `paths`, `row_count` and `size_bytes` of its files."""
        view = self._view()
        chosen, scope = compact.asked_order(self.name, view, sort_by), self._chosen("compact", view, where)
        return compact.preview(view, full, scope, chosen)

    def rewrite_manifests(
        self, *, id: str | None = None, properties: Mapping[str, str] | None = None
    ) -> Snapshot | None:
        """Write the manifests anew, as few as their target size allows and by partition, so that scans read fewer; None when
        that gains nothing. No data file is touched, and no concurrent writer is in the way."""
        view = self._view()
        request, landed = self._asked(view, id, properties)
        if landed or not view.maintenance.has_many_manifests():
            return landed
        return self._commit(view, RewriteManifests(request=request))

    def rewrite_position_deletes(
        self,
        full: bool = False,
        where: str | Expression | None = None,
        spark: Any = None,
        *,
        min_files: int | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Write position delete files anew where a partition has `min_files` (five), or with `full` all: as the table's
        granularity says, and without dangling deletes. None when nothing is worth it. `where` chooses partitions."""
        view, min_files = self._view(), arguments.whole("min_files", min_files, 1)
        scope = self._chosen("rewrite_position_deletes", view, where)
        request, landed = self._asked(view, id, properties)
        change = self._change(view, request, engine_for(spark=spark))
        return landed or compact.compact_deletes(change, self._format, full, scope, min_files)

    def convert_equality_deletes(
        self,
        where: str | Expression | None = None,
        spark: Any = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Turn equality deletes into position deletes: position delete files, or deletion vectors in a table of version 3, so that
        readers compare no values and those that know no equality deletes read the table. No data is touched. None where there
        are none. `where` chooses partitions; what also applies elsewhere stays."""
        view = self._view()
        scope = self._chosen("convert_equality_deletes", view, where)
        request, landed = self._asked(view, id, properties)
        change = self._change(view, request, engine_for(spark=spark))
        return landed or compact.convert_deletes(change, self._format, scope)

    def compute_table_stats(
        self, columns: Sequence[str] | None = None, snapshot_id: int | None = None, *, id: str | None = None
    ) -> str | None:
        """Count about how many distinct values columns have (all of plain values, unless named) at a snapshot, and note it with
        the table, as theta sketches in a Puffin file, for engines that plan by it. Reads all rows of these columns, in this
        process. Returns the file's location; None for a table without a snapshot. `inspect.statistics()` has the counts."""
        names = None if columns is None else arguments.columns(columns)
        return self._analyze("table", snapshot_id, id, lambda change: analyze.columns(change, names))

    def compute_partition_stats(self, snapshot_id: int | None = None, *, id: str | None = None) -> str | None:
        """Note the figures of each partition at a snapshot (rows, files, deletes, the last change) in a Parquet file with the
        table, from its metadata alone. Returns the file's location; None for a table without a snapshot."""
        return self._analyze("partition", snapshot_id, id, analyze.partitions)

    def rewrite_table_path(
        self,
        source_prefix: str,
        target_prefix: str,
        *,
        start_version: str | None = None,
        end_version: str | None = None,
        staging: str | None = None,
    ) -> Relocated:
        """Make a copy of an Iceberg table at another prefix ready: metadata files, manifests and position deletes that say the new
        paths are written below the folder `staging` (by default one beside the metadata), and a CSV list names every file of the
        copy: where it is, and where it is copied to. Copying is left to a tool for that; the table itself is not changed.

        `start_version`, `end_version`: names of metadata files; with a start, only what came after it is in the list.
        """
        for name, value in (("source_prefix", source_prefix), ("target_prefix", target_prefix)):
            arguments.text(name, value)
        view = self._view()
        if not isinstance(view, Relocatable):
            raise UnsupportedFeature(
                f"{self.uri}: a {view.format.capitalize()} table names its files relative to its folder: copy the folder"
            )
        found = view.relocation(source_prefix, target_prefix, start_version, end_version)
        place = staging or f"{self._store.location('metadata')}/copy-table-staging-{uuid.uuid4()}"
        return relocate.relocate(self._store, found, place)

    def _analyze(
        self, of: str, snapshot_id: int | None, id: str | None, work: Callable[[Change], Operation]
    ) -> str | None:
        view = self._version(arguments.whole("snapshot_id", snapshot_id, 0), None, None)
        analyze.supported(view)
        request, _ = self._asked(view, id, None)
        if view.snapshot is None:
            return None
        view.require_readable()
        self._commit(self._view(), work(Change(self._store, view, engine_for(), request)))
        rows = self.inspect.statistics().to_pylist()
        return next(row["path"] for row in rows if (row["snapshot_id"], row["of"]) == (view.snapshot.id, of))

    def expire_snapshots(
        self,
        retain_last: int | None = None,
        older_than: Age | None = None,
        keep_from: int | None = None,
        *,
        snapshot_ids: Iterable[int] = (),
    ) -> Expiry:
        """Drop old snapshots, and the files that only they reached.

        `retain_last` keeps that many; `older_than` (a time, or an age) drops only what was replaced before. Without
        either, the table's own options decide. Tags and consumers protect, and so does `keep_from`: that snapshot, and
        all later ones, stay whatever their age. `snapshot_ids`, of an Iceberg table, go besides, whatever their age: raises
        `NotFound` for one that is not there, and `InvalidInput` for one that is a branch's newest or a tag's. Returns what went.
        """
        retain_last = arguments.whole("retain_last", retain_last, 1)  # The current snapshot cannot go.
        keep_from = arguments.whole("keep_from", keep_from, 0)
        view = self._view()
        now_ms = _now_ms()
        limit_ms = None if older_than is None else arguments.before(older_than, now_ms)
        chosen = frozenset(arguments.whole("snapshot_ids", each, 0) or 0 for each in snapshot_ids)
        retention = expire.asked(view, retain_last, limit_ms, chosen, now_ms)
        known = view if self._branch is None else None  # What expires is the whole table's.
        return expire.expire(self._reach(view), self._format, retention, now_ms, keep_from, known)

    def expire_partitions(
        self,
        *,
        options: Mapping[str, str] | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Drop the partitions whose time is over by the table's options, and `options` over them; None when there is none."""
        view = self._view()
        scope = view.expired_partitions(_now_ms(), options or {}) if isinstance(view, Upkept) else None
        if scope is None:
            return None
        request, landed = self._asked(view, id, properties)
        return landed or self._commit(view, Overwrite(request=request, added=(), scope=scope))

    def sync_iceberg(self) -> Snapshot | None:
        """Bring the Iceberg metadata that a Paimon table keeps (`metadata.iceberg.storage`) up to its newest snapshot, tags and
        schema, as each commit does by itself: after writes of engines that do not, or where that failed. Returns the Iceberg
        snapshot, which has the number of Paimon's; None for a table that keeps none, or that has no rows yet."""
        return mirror.follow(self._store, self._format)

    def remove_orphan_files(
        self, older_than: Age = datetime.timedelta(days=1), dry_run: bool = False, *, below: str | None = None
    ) -> list[Listed]:
        """Remove files that nothing names and that are older than a time or an age; returns them. Younger ones may belong
        to a writer that is still at work. `below`: only those in or below this folder of the table, else `InvalidInput`."""
        view = self._view()
        limit = arguments.before(older_than, _now_ms())
        return sweep.sweep(self._reach(view), self._format, limit, dry_run, view, below)

    def stored_files(self) -> list[Listed]:
        """Every file in the table's folder, whether or not a snapshot names it, by path."""
        return self._store.list("")

    def missing_files(self) -> list[str]:
        """Data and delete files that the current snapshot names and storage does not have; none in a table that is whole."""
        return sweep.missing(self._store, self._view())

    def remove_missing_files(
        self, *, id: str | None = None, properties: Mapping[str, str] | None = None
    ) -> Snapshot | None:
        """Take the data files that storage does not have out of the table, so that the rest of it can be read: their rows are
        lost. None in a table that is whole. Raises `UnsupportedFeature` where delete files are missing: roll back then."""
        view = self._view()
        request, landed = self._asked(view, id, properties)
        change = self._change(view, request)
        operation = None if landed else sweep.without_missing(change)
        return landed if operation is None else self._commit(view, operation)

    def purge(self) -> None:
        """Delete all rows, snapshots, tags, branches and consumers of a Paimon table at once, and what they left behind; its schemas
        stay. Nothing comes back, and whoever reads or writes meanwhile fails. Raises `UnsupportedFeature` for an Iceberg table."""
        view = self._view()
        if not isinstance(view, Upkept) or (isinstance(view, Mirrored) and view.mirror() is not None):
            raise UnsupportedFeature(
                f"{self.name}: purge is for tables without Iceberg metadata; truncate(), then expire"
            )
        drop.purge(self._store, self._format)

    def dry_run(self) -> tuple[Table, Rehearsal]:
        """A twin of the table on which verbs happen in memory only, and the record of what they would have written and deleted.

        The twin sees what it did: `twin, record = t.dry_run(); twin.expire_snapshots(); record.deleted`. Data that it writes
        stays in memory whole, so use it for verbs that write metadata or little.
        """
        record = Rehearsal(files_of(self._whole))
        store: Store = record
        if isinstance(self._whole, Catalogued):
            store = Catalogued(record, RehearsedPlace(self._whole.place))
        return Table(self.name, store, self._format, self._branch), record

    def rollback_to(
        self,
        snapshot_id: int | None = None,
        tag: str | None = None,
        as_of: Moment | None = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Make the table what it was: a new snapshot with the old files. The snapshots in between leave the history, so
        that no engine acts on their deletes; their files are left to the sweep. None if it is that snapshot already."""
        if sum(v is not None for v in (snapshot_id, tag, as_of)) != 1:
            raise InvalidInput("rollback_to takes one of snapshot_id, tag and as_of")
        view = self._view()
        request, made = self._asked(view, id, properties)
        if made is None:
            chosen, current = self._version(snapshot_id, as_of, tag).snapshot, view.snapshot
            if chosen is None or (current is not None and chosen.id == current.id):
                return None
            made = self._commit(view, Restore(request=request, snapshot_id=chosen.id, tag=tag))
        if isinstance(view, Upkept):
            expire.remove(self._reach(view), view.replaced_history(made.id))
        self._follow(view)
        return made

    def create_tag(self, name: str, snapshot_id: int | None = None, retain: datetime.timedelta | None = None) -> None:
        """Keep a snapshot (the current one by default) by name, for a time or for ever. Raises `AlreadyExists`."""
        retain_ms = arguments.milliseconds("retain", retain)
        view = self._version(snapshot_id, None, None)
        match view.tag(name, _now_ms(), retain_ms):
            case (path, data):
                if not self._store.create(path, data) and self._store.read(path) != data:
                    raise AlreadyExists(f"{self.name}: there is a tag {name!r}; delete it first")
                self._follow(view)
            case operation:
                self._commit(view, operation)

    def delete_tag(self, name: str) -> None:
        """Let a tag go, and the files that only it kept. Raises `NotFound`."""
        self._format.at_tag(self._store, name)
        view = self._view()
        expire.release(self._reach(view), self._format, view, view.maintenance.expiry_of_tag(name))
        self._follow(view)

    # --- branches ---

    def branch(self, name: str) -> Table:
        """The table as its branch `name`: every verb happens there. Of Iceberg tables, schema, properties and maintenance are the
        whole table's; a branch of a Paimon table has its own, and its own tags."""
        arguments.text("branch", name)
        return type(self)(self.name, self._whole, self._format, None if name == "main" else name)

    def staged(self, wap_id: str) -> Table:
        """The table, where what verbs of rows write is staged under an id: snapshots that nobody sees before `publish` (Iceberg tables
        with `write.wap.enabled`). Reads see the table as it is."""
        arguments.text("wap_id", wap_id)
        if self._branch is not None:
            raise InvalidInput(f"{self.name}: changes are staged on the table, or written to a branch, not both")
        view = self._view()
        self._staging(view)
        if view.schema.properties.get("write.wap.enabled", "").lower() != "true":
            raise InvalidInput(
                f"{self.name}: set the property 'write.wap.enabled' to 'true' first: nothing is staged without it"
            )
        return type(self)(self.name, self._whole, self._format, None, wap_id)

    def publish(self, wap_id: str) -> Snapshot:
        """Publish what was staged under an id, as `cherry_pick`. Raises `NotFound`, and `InvalidInput` for an id under which several
        snapshots are staged: none of them has the rows of the others."""
        arguments.text("wap_id", wap_id)
        found = self._staging(self._view()).staged(wap_id)
        if not found:
            raise NotFound(f"{self.name}: nothing is staged under the id {wap_id!r}")
        if len(found) > 1:
            raise InvalidInput(
                f"{self.name}: {len(found)} snapshots are staged under the id {wap_id!r}: {', '.join(map(str, found))}; choose one, by "
                "cherry_pick"
            )
        return self.cherry_pick(found[0])

    def cherry_pick(self, snapshot_id: int) -> Snapshot:
        """Make a staged snapshot the current one, or, where others have committed since, do again what it did (Iceberg): an append, or
        a dynamic overwrite of partitions that nobody wrote to. Raises `Conflict` where it is published already, or cannot be."""
        chosen = arguments.whole("snapshot_id", snapshot_id, 1)
        assert chosen is not None
        view = self._view()
        said = self._staging(view)
        request, _ = self._asked(view, None, None)
        if said.leads_to(chosen):
            with suppress(Conflict):  # Somebody may commit in between.
                self._commit(view, FastForward(request=request, to=chosen))
                return self.snapshot(chosen)
            view = self._view()
        picked = self.snapshot(chosen)
        properties = {"source-snapshot-id": str(chosen)}
        if wap_id := picked.properties.get("wap.id"):
            properties["published-wap-id"] = wap_id
        return self._commit(view, CherryPick(request=replace(request, properties=properties), snapshot_id=chosen))

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        retain: datetime.timedelta | None = None,
        keep_snapshots: int | None = None,
        keep_younger_than: datetime.timedelta | None = None,
    ) -> Table:
        """A branch that begins at a snapshot (the current one by default) or a tag, as a Table. Raises `AlreadyExists`.

        `retain`: the branch goes that long after its newest snapshot. Of what led to that, expiry keeps `keep_snapshots`,
        and all that are younger than `keep_younger_than`; by default what it keeps of the table. Iceberg tables only: a branch of a
        Paimon table has the table's options. There `snapshot_id=0` makes an empty one.
        """
        arguments.text("branch", name)
        if snapshot_id == 0 and tag is None and isinstance(whole := self._view(), BranchFolders):
            view: AnyView = whole.empty()
        else:
            view = self._version(snapshot_id, None, tag)
        if isinstance(view, BranchFolders):
            if retain is not None or keep_snapshots is not None or keep_younger_than is not None:
                raise UnsupportedFeature(
                    f"{self.name}: branch {name!r} of a {view.format.capitalize()} table has no retention of its own; leave out "
                    "retain, keep_snapshots and keep_younger_than, and set the options of snapshot.* on the branch"
                )
            branch.create(self._store, self._format, view, name, tag)
            return self.branch(name)
        retain_ms, keep_ms = (
            arguments.milliseconds("retain", retain),
            arguments.milliseconds("keep_younger_than", keep_younger_than),
        )
        keep_snapshots = arguments.whole("keep_snapshots", keep_snapshots, 1)
        self._commit(view, branch.begin(self.name, view, name, retain_ms, keep_snapshots, keep_ms))
        return self.branch(name)

    def delete_branch(self, name: str) -> None:
        """Let a branch go; its snapshots expire, and what only a branch of a Paimon table reached is the sweep's. Raises `NotFound`."""
        arguments.text("branch", name)
        view = self._view()
        if isinstance(view, BranchFolders):
            expire.remove(self._store, branch.drop(self._store, view, name))
            return
        self._commit(view, DropBranch(request=Request(id=str(uuid.uuid4()), absent_until=view.version), name=name))

    def fast_forward(self, to: str) -> None:
        """Move this branch (of `lake.table(...)`, the table itself) to where the branch `to` is. Raises `Conflict` where it
        has snapshots that did not lead there.

        A Paimon table commits the branch's snapshots one after the other; cut short, it is at one of them, and the same call goes
        on from there.
        """
        arguments.text("branch", to)
        view = self._view()
        if isinstance(view, BranchFolders):
            branch.fast_forward(self._store, self._format, view, to)
            self._follow(view)
            return
        request = Request(id=str(uuid.uuid4()), absent_until=view.version, branch=self._branch)
        self._commit(view, FastForward(request=request, to=to))

    # --- private ---

    def _view(self) -> AnyView:
        view = newest(self._store, self._format)
        if not view.exists and self._branch is None:
            raise NotFound(f"{self.name}: there is no table at {self._store.root}")
        return view.on(self._branch)

    def _reach(self, view: AnyView) -> Store:
        """The store that also writes and deletes where the table's properties put its files."""
        return reaching(self._store, view.places) if view.places else self._store

    def _staging(self, view: AnyView) -> Staging:
        if not isinstance(view, Staging):
            raise UnsupportedFeature(f"{self.name}: {view.format.capitalize()} tables stage nothing; write to a branch")
        return view

    def _consumers(self, view: AnyView) -> Consumers:
        if not isinstance(view, Consumers):
            raise UnsupportedFeature(
                f"{self.uri}: {view.format.capitalize()} tables have no consumers; keep a snapshot by a tag"
            )
        return view

    def _version(self, snapshot_id: int | None, as_of: Moment | None, tag: str | None) -> AnyView:
        if sum(v is not None for v in (snapshot_id, as_of, tag)) > 1:
            raise InvalidInput("a version is one of snapshot_id, as_of and tag, not several")
        if snapshot_id is not None:
            snapshot_id = arguments.whole("snapshot_id", snapshot_id, 0)
            return self._format.at(self._store, snapshot_id)
        if as_of is not None and self._branch is not None:
            passed = [s.id for s in self.snapshots() if s.timestamp_ms <= arguments.epoch_ms(as_of)]
            if not passed:
                raise NotFound(f"{self.name}: branch {self._branch!r} has no snapshot as old as {as_of}")
            return self._format.at(self._store, passed[-1])
        if as_of is not None:
            return self._format.at_time(self._store, arguments.epoch_ms(as_of))
        if tag is not None:
            return self._format.at_tag(self._store, tag)
        return self._view()

    def _until(self, to_snapshot: int | None) -> AnyView:
        """The table up to which changes are read."""
        chosen = arguments.whole("to_snapshot", to_snapshot, 1)
        return self._view() if chosen is None else self._format.until(self._store, chosen)

    def _asked(
        self, view: AnyView, id: str | None, properties: Mapping[str, str] | None, watermark: int | None = None
    ) -> tuple[Request, Snapshot | None]:
        """A verb's request, and the snapshot that it became if it was asked before: then no row is written again."""
        if id is not None:
            arguments.text("id", id)
        watermark = arguments.whole("watermark", watermark, -(2**63))
        if properties is not None and not isinstance(properties, Mapping):
            raise InvalidInput(f"properties={properties!r}: give a mapping of text to text")
        for key, value in (properties or {}).items():
            arguments.text("a property's name", key)
            arguments.text(f"property {key!r}", value, may_be_empty=True)
            if key.startswith("lakeformat."):
                raise InvalidInput(f"property {key!r}: names that begin with 'lakeformat.' are the library's own")
        staged = {} if self._wap_id is None else {"wap.id": self._wap_id}
        request = Request(
            id=id or str(uuid.uuid4()),
            schema_id=view.schema.id,
            properties={**(properties or {}), **staged},
            stages=bool(staged),
            watermark=watermark,
            branch=self._branch,
            partitioning_id=view.schema.partitioning.id,
        )
        landed = view.find(Append(request=request, added=())) if id else None
        return replace(request, absent_until=view.version), landed

    def _merge(
        self,
        asked: MergeInto,
        id: str | None,
        properties: Mapping[str, str] | None,
        spark: Any,
        watermark: int | None = None,
    ) -> Snapshot | None:
        view = self._view()
        request, landed = self._asked(view, id, properties, watermark)
        engine = engine_for(asked.source, spark)
        if landed:
            return self._again(view, request, landed, engine)

        def grow(columns: list[evolution.AddColumn]) -> AnyView:
            self.evolve(columns)
            return self._view()

        operation = merge.plan(self._change(view, request, engine), asked, grow)
        return self._commit(view, operation, engine) if operation else None

    def _commit(self, view: AnyView, operation: Operation, engine: Engine | None = None) -> Snapshot:
        """`engine`: of a write of rows, which also does the compaction that belongs to it."""
        store = self._reach(view)
        made = commit(store, self._format.head(store), self._format, operation, view.attempts(), known=view)
        upkeep = view.upkeep() if engine is not None and isinstance(view, Upkept) else None
        if upkeep is not None:
            compact.after(self._change(view, operation.request, engine), self._format, upkeep, made)
        if isinstance(view, Upkept | Mirrored):
            expire.after(store, self._format, view, made, _now_ms())
        return made

    def _follow(self, view: AnyView) -> None:
        """After what changes tags and history alone."""
        if isinstance(view, Mirrored):
            mirror.after(self._store, self._format)

    def _again(self, view: AnyView, request: Request, landed: Snapshot, engine: Engine) -> Snapshot:
        """What a write became that is asked for again, once the compaction that belongs to it has run too."""
        compact.again(self._change(view, request, engine), self._format, compact.upkeep(view), landed)
        return landed

    def _change(self, view: AnyView, request: Request, engine: Engine | None = None) -> Change:
        return Change(self._reach(view), view, engine or engine_for(), request)

    def _overwrite(
        self, view: AnyView, request: Request, data: Any, scope: Expression | None, pinned_to: int | None
    ) -> Snapshot | None:
        engine = engine_for(data)
        operation = overwrite.overwrite(self._change(view, request, engine), data, scope, pinned_to)
        return self._commit(view, operation, engine) if operation else None

    def _changes(
        self,
        after: int | None,
        until: int | None,
        columns: Sequence[str] | None,
        where: str | Expression | None,
    ) -> Changes:
        """What came and went after `after` up to `until`; without `after`, the rows themselves."""
        after = arguments.whole("from_snapshot", after, 0)
        view = (
            self._version(arguments.whole("to_snapshot", until, 1), None, None) if after is None else self._until(until)
        )
        view.require_readable()
        fields = view.project(columns)
        if any(each.name == KIND_COLUMN for each in fields):
            raise InvalidInput(
                f"{self.name}: a column of the table is called {KIND_COLUMN!r}, as the kinds of changed rows are; leave it out "
                f"(columns=...), or rename it"
            )
        return Changes(self._store, view, after, fields, self._condition(where, view.schema.fields))

    def _condition(self, where: str | Expression | None, fields: tuple[Field, ...]) -> Expression:
        return ALWAYS if where is None else bind(sql_text.parse(where), fields)

    def _chosen(self, verb: str, view: AnyView, where: str | Expression | None) -> Expression:
        """`where`, on partition columns."""
        scope, rest = split(self._condition(where, view.schema.fields), view.schema.partitioning.columns)
        if rest != ALWAYS:
            raise InvalidInput(f"{verb}(where={where!r}): the condition must use partition columns only")
        return scope


def create(table: Table, schema: Schema) -> None:
    """Make the table; raises `AlreadyExists`."""
    store, format = table._store, table._format
    operation = Create(request=Request(id=str(uuid.uuid4())), schema=schema)
    commit(store, format.head(store), format, operation)


def _now_ms() -> int:
    return int(time.time() * 1000)
