"""Table: the public verbs. Wiring only; the logic is in `verbs`, `maintenance`, the dialects and the engines."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from typing import Any, NoReturn

import pyarrow as pa

from lakeformat import arguments, clock
from lakeformat.arguments import Age, Moment
from lakeformat.commit import commit
from lakeformat.dialects.dialect import (
    Adjustable,
    AnyView,
    Consumers,
    Format,
    Staging,
)
from lakeformat.engines.choose import engine_for, spark_engine
from lakeformat.engines.row_level.delta import BUFFER_BYTES, MAX_KEYS
from lakeformat.errors import Conflict, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression import sql_text
from lakeformat.maintenance import automatic_tags, compact, drop, expire, follow_up, mirror, relocate, sweep, verify
from lakeformat.maintenance.relocate import Relocated
from lakeformat.maintenance.runner import Runner
from lakeformat.maintenance.verify import Damage
from lakeformat.model import evolution
from lakeformat.model import nanoseconds as fine
from lakeformat.model.operation import (
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
)
from lakeformat.model.predicate import ALWAYS, Expression, bind, split
from lakeformat.model.schema import Field, Schema
from lakeformat.model.session_table import require_parquet
from lakeformat.model.snapshot import Expiry, Snapshot
from lakeformat.reading.changes import KIND_COLUMN, Changes
from lakeformat.reading.inspect import Inspect
from lakeformat.reading.scan import Scan
from lakeformat.storage.cache import with_cache
from lakeformat.storage.catalogued import Catalogued, files_of
from lakeformat.storage.rehearsal import Rehearsal, RehearsedEntry
from lakeformat.storage.store import Listed, Store
from lakeformat.streaming import DeltaWriter, WriteSession
from lakeformat.verbs import (
    adopt,
    analyze,
    append,
    branch,
    delete,
    file_index,
    global_index,
    merge,
    overwrite,
    specs,
    update,
)
from lakeformat.verbs import tag as tags
from lakeformat.verbs.alter import Alteration
from lakeformat.verbs.change import Change
from lakeformat.verbs.merge import MergeInto


class Table:
    """A table of a warehouse. A Table holds no state: every verb reads the table as it is at the time of the call.

    A verb that changes the table commits one snapshot and returns it, or None if there was nothing to do. `id` makes
    the verb exactly-once: repeated with the same id, it returns the same snapshot. `properties` are written into the
    snapshot.
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
        self._runner = Runner(name, self._store, format, branch, wap_id)

    def __repr__(self) -> str:
        on = f", branch={self._branch!r}" if self._branch else f", staged={self._wap_id!r}" if self._wap_id else ""
        return f"Table({self.name!r}, {self._store.root!r}{on})"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The current rows as an Arrow C stream: for `pa.table(t)`, `pl.DataFrame(t)`, DuckDB's `FROM t`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> NoReturn:
        """Always raises, with an error that names `scan`: `pd.DataFrame(t)` would otherwise fail without saying why."""
        raise TypeError(f"{self!r} is not a sequence of rows; take .scan().to_pandas(), .to_arrow() or .to_batches()")

    def _repr_html_(self) -> str:
        view = self._view()
        made = "nothing written yet" if view.snapshot is None else repr(view.snapshot)
        return f"{view.schema._repr_html_()}<p>{escape(f'{self!r}, {self.format}: {made}')}</p>"

    @property
    def uri(self) -> str:
        """The location of the table."""
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
        """The table's metadata as Arrow tables."""
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
        """Describe a read of the rows for which `where` is true, at the newest snapshot or an older one. Nothing is
        read yet.

        Args:
            columns: The columns to read; `a.b` reads the field `b` of the row `a`. All columns by default.
            where: A condition: SQL text or an expression.
            snapshot_id: Read this snapshot.
            as_of: Read the newest snapshot committed by this time: a datetime (UTC if it has no zone), ISO text, or
                milliseconds since 1970.
            tag: Read the snapshot with this tag.
            limit: The maximum number of rows.
            nanoseconds: How to read timestamps finer than microseconds outside the range of Arrow (1677 to 2262).
                `"error"` raises; `"microseconds"` truncates all of them towards the past to microseconds (years 1 to
                9999); `"null"` reads the values outside the range as null (not inside rows, lists and maps). Conditions
                see the converted values.

        Raises `NotFound` for a version or column that does not exist.
        """
        if nanoseconds != "error":
            fine.check(nanoseconds)
        limit = arguments.whole("limit", limit, 0)
        names = None if columns is None else arguments.columns(columns)
        view = self._version(snapshot_id, as_of, tag).with_fallback()
        fields, every = view.project(names), view.schema.fields
        if nanoseconds != "error":
            fields, every = fine.seen(fields, nanoseconds), fine.seen(every, nanoseconds)
        condition = self._condition(where, every)
        return Scan(with_cache(self._store, view.reader), view, fields, names, condition, limit, nanoseconds)

    def changes(
        self,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expression | None = None,
        consumer: str | None = None,
    ) -> Changes:
        """Describe a read of the rows added and removed after `from_snapshot` (0: since the first snapshot) up to
        `to_snapshot` (by default the newest). The column `_row_kind` holds each row's kind.

        Args:
            from_snapshot: Read the changes after this snapshot. For a new consumer the default is the oldest snapshot
                that is kept.
            to_snapshot: The last snapshot whose changes are read.
            columns: The columns to read.
            where: A condition on single rows of the changes.
            consumer: Start where this consumer stopped; `Changes.acknowledge` saves its progress, and expiry keeps the
                snapshots it has not read (Paimon).
        """
        view = self._until(to_snapshot)
        view.project(columns)  # Refuses what cannot be read before it records a consumer.
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
                self._store.write(*consumers.file(consumer, after + 1))
        if after is None:
            raise InvalidInput("changes() needs from_snapshot (0 for all) or a consumer")
        return replace(self._changes(after, to_snapshot, columns, where), view=view, consumer=consumer)

    def drop_consumer(self, name: str) -> None:
        """Delete a consumer; expiry may then drop the snapshots kept for it. Raises `NotFound`."""
        consumers = self._consumers(self._view())
        if consumers.progress(name) is None:
            raise NotFound(f"{self.name}: no consumer {name!r}")
        self._store.delete([consumers.path(name)])

    def current_snapshot(self) -> Snapshot | None:
        """The newest snapshot with its changes per partition; None if the table has no snapshot."""
        view = self._view()
        snapshot = view.snapshot
        return None if snapshot is None else replace(snapshot, partitions=view.history.changes())

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """A snapshot with its changes per partition. Raises `NotFound`."""
        view = self._version(snapshot_id, None, None)
        assert view.snapshot is not None
        return replace(view.snapshot, partitions=view.history.changes())

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        """The retained snapshots that led to the current one, oldest first; with `after`, those after that snapshot id.
        For a table without a current snapshot, all retained ones, such as those of branches.

        Their counts are the ones recorded in snapshot metadata, and None for the rest; `snapshot(id)` computes all of
        them.
        """
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
        """Append rows. Columns are matched by name; a missing column gets its default or null. Without rows, no
        snapshot is made. An Iceberg table gets the rows as they are, whatever its primary key; a Paimon table replaces
        rows by key, as `upsert` does."""
        return self._runner.write(
            lambda change: append.append(change, data), engine_for(data), id, properties, watermark
        )

    def add_files(
        self,
        paths: Sequence[str],
        partition: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        check_duplicate_files: bool = True,
        spark: Any = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Add existing Parquet files to the table without moving or rewriting them, in one snapshot (Iceberg).

        Columns are matched by field id, or by name if the files have no field ids: then `schema.name-mapping.default`
        is first set in a commit of its own. The partition of a file is taken from the bounds in its footer, or else
        from its rows. Files without rows are left out. The table owns the files from then on; no file is deleted after
        an error.

        Args:
            paths: Absolute, or relative to the table's location.
            partition: Values for partition columns that the files lack, the same for all or a list with those of each
                file; by default they come from the folder names `name=value`.
            check_duplicate_files: Raise `AlreadyExists` for a file that the table already has.
            spark: A Spark session that reads the footers.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.

        Raises `InvalidInput` for files that do not fit the table, `AlreadyExists`, and `NotFound`.
        """
        if isinstance(paths, str) or not all(isinstance(path, str) and path for path in paths):
            raise InvalidInput(f"paths={paths!r}: give a list of files, e.g. ['s3://bucket/a.parquet']")
        partitions = [partition or {}] * len(paths) if isinstance(partition, Mapping | None) else list(partition)
        if len(partitions) != len(paths):
            raise InvalidInput(f"partition: {len(partitions)} are given for {len(paths)} paths")

        def set_properties(properties_to_set: Mapping[str, str]) -> None:
            self.evolve([evolution.SetProperties(properties_to_set)])

        def plan(change: Change) -> Operation | None:
            return adopt.plan(change, tuple(paths), partitions, not check_duplicate_files, set_properties)

        return self._runner.run(plan, id, properties, engine_for(spark=spark))

    def add_spark_table(
        self,
        spark: Any,
        source: str,
        partition: Mapping[str, Any] | None = None,
        check_duplicate_files: bool = True,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Add the Parquet files of a table of Spark's own catalog, in place, in one snapshot, as `add_files` does,
        which describes the other arguments.

        Args:
            spark: The session whose catalog has the table.
            source: `namespace.table`; its partition columns must be partition columns of this table.
            partition: Values of some partition columns of the source: only files of these partitions are added.

        Raises as `add_files` does, and `NotFound`, and `UnsupportedFeature` for a source of another file format. The
        source stays as it is.
        """
        described = spark_engine.session_tables.describe(spark, source)
        require_parquet(described)
        files = spark_engine.session_tables.files(spark, described, partition or {})
        return self.add_files(files.paths, files.partitions, check_duplicate_files, spark, id=id, properties=properties)

    def upsert(
        self,
        data: Any,
        *,
        on: Iterable[str] = (),
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> Snapshot | None:
        """Insert rows, or update the rows that have the same key, as the table's merge engine defines.

        The key is the table's primary key, or the columns `on`, which need not be one; null equals null in them. An
        optional column `rowkind`, unless the table has one of that name, holds each row's kind: "+I" and "+U" (and
        null) write the row, "-D" and "-U" delete it. Of several rows with one key the last one counts. In Paimon
        tables, which merge rows by key when they are read, `append` does the same. In other tables this is a merge: an
        existing row keeps the values of columns that the data lacks."""
        view, key = self._view(), arguments.columns(on)
        primary_key = view.schema.primary_key
        if view.layout().keyed is not None and (not key or set(key) == set(primary_key)):
            return self.append(data, id=id, properties=properties, watermark=watermark)
        if not (key or primary_key):
            raise InvalidInput(
                f"{self.name}: upsert needs a primary key, and the table has none; name the key's columns, "
                "on=[...], or append"
            )
        asked = MergeInto(data, ALWAYS, self._merge, key=key or primary_key)
        return self._merge(asked, id, properties, None, watermark)

    def stream(self, user: str) -> WriteSession:
        """Open a write session for a stream: `prepare` and then `commit`, with increasing identifiers. See
        `WriteSession`.

        Rows are upserted into a table with a primary key, and appended to any other table. For Spark:
        `frame.writeStream.foreachBatch(table.stream("name").write_batch)`.
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
        """Replace whole partitions in one snapshot. Concurrent changes to the same partitions are overwritten, unless
        `pinned_to`.

        Without `partitions` (dynamic): the partitions that the data has rows for; without rows, no snapshot. With
        `partitions` (declared): exactly these partitions, which become empty if the data has no row for them. Of
        several rows with one primary key the last one counts.

        Args:
            data: The rows.
            partitions: Full or partial specs, column -> value. A row outside them raises `OutsideScope`, and nothing is
                committed.
            pinned_to: A snapshot id; raise `Conflict` if others have changed these partitions since then.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.
            watermark: Event time in milliseconds, recorded in the snapshot.
        """
        pinned_to = arguments.whole("pinned_to", pinned_to, 0)

        def plan(change: Change) -> Operation | None:
            scope = None if partitions is None else specs.declared(self.name, change.view.schema, partitions)
            return overwrite.overwrite(change, data, scope, pinned_to)

        return self._runner.write(plan, engine_for(data), id, properties, watermark)

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
        """Replace the whole table (also by an empty spec), one partition (`partition`, a full or partial spec), or the
        rows for which `where` is true. Of several rows with one primary key the last one counts.

        A snapshot is made even without rows. A row outside `partition` or `where` raises `OutsideScope`, and nothing is
        committed. A `where` on other than partition columns rewrites the files that contain matching rows; in a table
        that merges rows by key it writes delete rows. `pinned_to`: see `overwrite_partitions`.
        """
        if partition is not None and where is not None:
            raise InvalidInput("overwrite takes a partition or a condition, not both")
        pinned_to = arguments.whole("pinned_to", pinned_to, 0)

        def plan(change: Change) -> Operation | None:
            schema = change.view.schema
            if partition:
                condition = specs.declared(self.name, schema, [partition])
            else:
                condition = self._condition(where, schema.fields)
            return overwrite.overwrite(change, data, condition, pinned_to)

        return self._runner.write(plan, engine_for(data), id, properties, watermark)

    def truncate(self, *, id: str | None = None, properties: Mapping[str, str] | None = None) -> Snapshot | None:
        """Delete all rows."""

        def plan(change: Change) -> Operation:
            return Overwrite(request=change.request, added=(), kind=OperationKind.TRUNCATE)

        return self._runner.run(plan, id, properties)

    def drop_partitions(
        self,
        partitions: Iterable[Mapping[str, Any]],
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Delete the partitions named by full or partial specs (column -> value)."""
        listed = list(arguments.specs(partitions))
        if not listed:
            raise InvalidInput("drop_partitions without a partition; name one, e.g. [{'dt': '2023-05-01'}]")

        def plan(change: Change) -> Operation:
            scope = specs.declared(self.name, change.view.schema, listed)
            return overwrite.replace_rows(change, scope, (), None)

        return self._runner.run(plan, id, properties)

    def mark_partitions_done(self, partitions: Iterable[Mapping[str, Any]]) -> None:
        """Mark partitions of a Paimon table (full specs, column -> value) as done for downstream jobs: write a
        `_SUCCESS` file into the folder of each (`partition.mark-done-action=success-file`). Raises `UnsupportedFeature`
        for an Iceberg table."""
        view = self._view()
        if view.hints is None:
            raise UnsupportedFeature(
                f"{self.name}: partitions of Paimon tables can be marked as done, Iceberg's cannot"
            )
        values = specs.whole(self.name, view.schema, partitions)
        self._store.write_many(view.hints.done_marks(values, clock.now_ms()))

    def delete(
        self,
        where: str | Expression,
        *,
        spark: Any = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Delete the rows for which `where` is true. Whole partitions are deleted by metadata alone."""
        if where is None:
            raise InvalidInput("delete needs a condition; truncate() removes all rows")

        def plan(change: Change) -> Operation | None:
            return delete.delete(change, self._condition(where, change.view.schema.fields))

        return self._runner.write(plan, engine_for(spark=spark), id, properties)

    def update(
        self,
        assignments: Mapping[str, Any],
        where: str | Expression | None = None,
        *,
        spark: Any = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Set columns of the rows for which `where` is true (all rows by default).

        Args:
            assignments: Column, or field of a struct (`"s.a"`) -> SQL expression over the old row (a str), or a value:
                None, a number, a boolean, bytes, `Decimal`, date, time or `datetime`. Text is quoted inside the
                expression: `{"name": "'bob'"}`.
            where: A condition: SQL text or an expression.
            spark: A Spark session that does the work.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.
        """
        if not isinstance(assignments, Mapping) or not assignments:
            raise InvalidInput("update needs an assignment, e.g. {'a': 'a + 1'}")

        def plan(change: Change) -> Operation | None:
            fields = change.view.schema.fields
            bound = {name: bind(value, fields) for name, value in update.assigned(assignments, fields).items()}
            return update.update(change, bound, self._condition(where, fields))

        return self._runner.write(plan, engine_for(spark=spark), id, properties)

    def merge_into(self, source: Any, on: str | Expression, *, evolve_schema: bool = False) -> MergeInto:
        """Start a merge of source rows into the table: chain clauses, then call `merge()`.

        Args:
            source: Any data that `append` takes. Spark merges a Spark DataFrame.
            on: The condition that matches a row of the table (`t`) with a row of the source (`s`). It needs at least
                one equality between them, e.g. `"t.id = s.id"`; null equals nothing.
            evolve_schema: First add the columns that only the source has, in a commit of its own, if a clause takes all
                columns; a column without any type, as of a frame in which all its values are None, is not added.
                Columns that only the table has keep their value, or get their default in a new row.
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
        """Open a writer that applies a changelog to an Iceberg table, with one snapshot per checkpoint, exactly once.

        Args:
            name: Identifies the stream.
            key: The columns that identify a row, by default the identifier fields. They must include the source columns
                of the partitions.
            upsert: An inserted row replaces an older row with its key; by default as the table's property
                `write.upsert.enabled` says. Otherwise the changelog itself deletes the older row.
            max_keys: The maximum number of keys between two checkpoints.
            buffer_bytes: How many bytes of rows are buffered before they are written.
        """
        arguments.text("name", name)
        if self._wap_id is not None:
            raise InvalidInput(f"delta_writer({name!r}): a stream stages nothing; write to a branch")
        schema = self.schema
        chosen = schema.primary_key if key is None else tuple(key)
        if not chosen:
            raise InvalidInput(f"{self.name}: the table has no identifier fields; give the key of the changelog")
        for column in chosen:
            schema.field(column)
        session = WriteSession(self._store, self._format, name, self._branch)
        return DeltaWriter(session, chosen, upsert, max_keys, buffer_bytes)

    # --- schema ---

    def with_options(self, options: Mapping[str, str]) -> Table:
        """The table, read and written with these options in place of its own, e.g. `{"target-file-size": "32 mb"}`
        (Paimon). They are not kept: the table's properties, and what `alter` changes, stay its own.

        Raises `InvalidInput` for unknown options and values, and `UnsupportedFeature` for options that change what rows
        mean, such as `merge-engine`, and for Iceberg tables.
        """
        if not isinstance(self._format, Adjustable):
            raise UnsupportedFeature(
                f"{self.name}: {self.format.capitalize()} tables have only their own options; "
                "set them with alter().set_properties"
            )
        format = self._format.with_options({**dict(self._format.options), **options}, self.name)
        return Table(self.name, self._whole, format, self._branch, self._wap_id)

    def alter(self) -> Alteration:
        """Start a schema change: chain changes, then call `commit()`."""
        return Alteration(self.evolve, lambda: self.schema)

    def evolve(self, changes: Sequence[Any], id: str | None = None) -> Schema:
        """Apply schema changes (`lakeformat.model.evolution`) in one commit; returns the new schema."""
        if id is not None:
            arguments.text("id", id)
        if not isinstance(changes, list | tuple):
            raise InvalidInput(f"changes={changes!r}: give a list of schema changes")
        if isinstance(self._format, Adjustable) and self._format.options:  # No option of a reader becomes the table's.
            own = self._format.with_options({}, self.name)
            return Table(self.name, self._whole, own, self._branch, self._wap_id).evolve(changes, id)
        view = self._view()
        request = Request(id=id or str(uuid.uuid4()), absent_until=0 if id else view.version)
        self._runner.commit(view, Evolve(request=request, changes=tuple(changes)))
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
        buckets: Iterable[int] | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Rewrite small files into larger ones. Returns None if nothing is worth rewriting.

        A concurrent overwrite wins: the compaction is planned again without the replaced files, up to three times, and
        then raises `Conflict`.

        Args:
            full: Rewrite wherever there are two small files or a file with deleted rows. In a Paimon table with a
                primary key: a full compaction.
            where: A condition on partition columns that selects partitions.
            spark: A Spark session that does the work.
            sort_by: Rewrite all files, with the rows of each partition sorted: `"id"`, `"days(ts) DESC NULLS LAST"` as
                in `create_table`, `"zorder(a, b)"`, `"hilbert(a, b)"`, or True for the table's own sort order. No two
                files then overlap, so conditions on these columns skip files.
            partial_progress: Commit up to `max_commits` snapshots, and return the last. A part that fails is left out
                and does not affect the others.
            max_commits: See `partial_progress`.
            min_files: How many small files make a partition worth rewriting; five by default, two with `full`; one
                with `full` rewrites all files (Iceberg).
            buckets: Only these buckets, from 0, of a Paimon table with fixed buckets; not with `sort_by`.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.
        """
        min_files, numbers = arguments.whole("min_files", min_files, 1), compact.bucket_numbers(buckets, sort_by)
        most = arguments.whole("max_commits", max_commits, 1)
        if partial_progress and id is not None:
            raise InvalidInput(
                "compact(id=..., partial_progress=True): the snapshots of its parts have ids of their own"
            )

        def compacted(change: Change) -> Snapshot | None:
            order = compact.order_of_rows(self.name, change.view, sort_by)
            scope = self._chosen("compact", change.view, where)
            if partial_progress:
                snapshot = compact.compact_in_parts(change, self._format, full, scope, order, most, min_files, numbers)
            else:
                snapshot = compact.compact(
                    change, self._format, full, scope, sort_by=order, min_files=min_files, buckets=numbers
                )
            if snapshot is not None:
                follow_up.after(change.store, self._format, change.view, snapshot, clock.now_ms())
            return snapshot

        return self._runner.once(compacted, id, properties, engine_for(spark=spark))

    def compaction_plan(
        self,
        full: bool = False,
        where: str | Expression | None = None,
        *,
        sort_by: Sequence[str] | bool | None = None,
        buckets: Iterable[int] | None = None,
    ) -> pa.Table:
        """What `compact` would rewrite: one row per unit of work, with the `paths`, `row_count` and `size_bytes` of its
        files."""
        view = self._view()
        chosen, scope = compact.order_of_rows(self.name, view, sort_by), self._chosen("compact", view, where)
        return compact.preview(view, full, scope, chosen, compact.bucket_numbers(buckets, sort_by))

    def rewrite_manifests(
        self,
        *,
        sort_by: Sequence[str] | bool = False,
        full: bool = False,
        max_bytes: int | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Rewrite the manifests into as few as their target size allows, clustered by partition, so that scans read
        fewer of them.

        Args:
            sort_by: Partition columns of a Paimon table, or True for all in their order: each manifest then covers a
                range of them, so that conditions on the first skip manifests. Manifests that overlap no other one stay
                as they are. Those of an Iceberg table are always sorted.
            full: With `sort_by`, rewrite all manifests.
            max_bytes: With `sort_by`, rewrite manifests of at most this many bytes together; those with deleted
                entries are rewritten in any case.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.

        Returns None if that gains nothing. No data file changes, and concurrent writers are not affected.
        """

        def plan(change: Change) -> Operation | None:
            operation = compact.manifest_rewrite(self.name, change.view, change.request, sort_by, full, max_bytes)
            return operation if change.view.compaction.has_many_manifests(operation) else None

        return self._runner.run(plan, id, properties)

    def rewrite_file_index(
        self,
        where: str | Expression | None = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Index the files of a Paimon table that lack a file index which its options ask for (`file-index.*.columns`),
        in one snapshot: those written before the options were set, or by engines that write none. No data file changes.

        Reads the indexed columns in this process. `where` is a condition on partition columns. Returns None if no file
        lacks an index. A concurrent overwrite or compaction wins: the files that it replaced are left out."""

        def plan(change: Change) -> Operation | None:
            return file_index.rewrite(change, self._chosen("rewrite_file_index", change.view, where))

        return self._runner.run(plan, id, properties)

    def create_global_index(
        self,
        column: str,
        kind: str = "btree",
        where: str | Expression | None = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Index the rows of a column, by which engines that read Paimon tables find the rows with a value: a B-tree
        over row ids. The table needs `row-tracking.enabled` and `data-evolution.enabled`; the column is of whole
        numbers, dates or text.

        Covers the rows that no index covers yet, in one snapshot; rows that come later need another call. New values of
        an indexed column are refused until `drop_global_index`. `where` is a condition on partition columns. Returns
        None if all rows are indexed. Raises `Conflict` if others write new values of the rows meanwhile."""

        def plan(change: Change) -> Operation | None:
            scope = self._chosen("create_global_index", change.view, where)
            return global_index.create(change, column, kind, scope)

        return self._runner.run(plan, id, properties)

    def drop_global_index(
        self,
        column: str,
        kind: str = "btree",
        where: str | Expression | None = None,
        *,
        dry_run: bool = False,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Drop the global indexes of a column, in partitions that satisfy `where`; returns their files, which expiry
        deletes. With `dry_run` only names them."""
        view = self._view()
        scope = self._chosen("drop_global_index", view, where)
        request, landed = self._runner.request(view, id, properties)
        operation = None if landed else global_index.drop(view, request, column, kind, scope)
        if operation is not None and not dry_run:
            self._runner.commit(view, operation)
        return [] if operation is None else list(operation.removed)

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
        """Rewrite position delete files in the table's delete granularity, and drop dangling deletes (Iceberg).

        Args:
            full: Rewrite all of them.
            where: A condition on partition columns that selects partitions.
            spark: A Spark session that does the work.
            min_files: How many position delete files make a partition worth rewriting; five by default.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.

        Returns None if nothing is worth rewriting.
        """
        min_files = arguments.whole("min_files", min_files, 1)

        def compacted(change: Change) -> Snapshot | None:
            scope = self._chosen("rewrite_position_deletes", change.view, where)
            return compact.compact_deletes(change, self._format, full, scope, min_files)

        return self._runner.once(compacted, id, properties, engine_for(spark=spark))

    def convert_equality_deletes(
        self,
        where: str | Expression | None = None,
        spark: Any = None,
        *,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Convert equality deletes into position deletes (deletion vectors in format version 3), so that readers need
        not compare values and engines without equality deletes can read the table (Iceberg).

        No data file changes. `where` selects partitions; equality deletes that also apply elsewhere are kept. Returns
        None if the table has no equality deletes.
        """

        def converted(change: Change) -> Snapshot | None:
            scope = self._chosen("convert_equality_deletes", change.view, where)
            return compact.convert_deletes(change, self._format, scope)

        return self._runner.once(converted, id, properties, engine_for(spark=spark))

    def compute_table_stats(
        self, columns: Sequence[str] | None = None, snapshot_id: int | None = None, *, id: str | None = None
    ) -> str | None:
        """Estimate the number of distinct values per column at a snapshot, and store it for engines whose optimizer
        reads it: in Iceberg as theta sketches in a Puffin file; in Paimon, with nulls, bounds and lengths, in a
        statistics file that a new snapshot names, as ANALYZE TABLE of its Spark connector does.

        Reads all rows of these columns, in this process. `columns` are by default all columns of plain types. Returns
        the location of the file, or None if the table has no snapshot. `inspect.statistics()` shows the counts. Raises
        `Conflict` if another writer changes the schema of a Paimon table meanwhile.
        """
        names = None if columns is None else arguments.columns(columns)
        return self._analyze("table", snapshot_id, id, lambda change: analyze.columns(change, names))

    def compute_partition_stats(self, snapshot_id: int | None = None, *, id: str | None = None) -> str | None:
        """Compute statistics per partition at a snapshot (rows, files, deletes, last change) from metadata, and store
        them in a Parquet file of the table (Iceberg). Returns the location of the file, or None if the table has no
        snapshot."""
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
        """Prepare a copy of an Iceberg table under another prefix. The table itself does not change.

        Metadata files, manifests and position deletes with the new paths are written to a staging folder, and a CSV
        file lists every file to copy with its source and target. Copying is left to another tool.

        Args:
            source_prefix: The prefix that paths have now.
            target_prefix: The prefix that replaces it.
            start_version: The name of a metadata file: list only what was added after it.
            end_version: The name of the last metadata file to copy; by default the newest.
            staging: The staging folder; by default one in the table's metadata folder.
        """
        for name, value in (("source_prefix", source_prefix), ("target_prefix", target_prefix)):
            arguments.text(name, value)
        versions = (start_version, end_version)
        return relocate.prepare(self._store, self._view(), source_prefix, target_prefix, versions, staging)

    def _analyze(
        self, of: str, snapshot_id: int | None, id: str | None, work: Callable[[Change], Operation]
    ) -> str | None:
        view = self._version(arguments.whole("snapshot_id", snapshot_id, 0), None, None)
        request, _ = self._runner.request(view, id)
        if view.snapshot is None:
            return None
        self._runner.commit(self._view(), work(Change(self._store, view, engine_for(), request)))
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
        """Expire old snapshots and delete the files that only they reach. Returns what was removed.

        Tags, branches and consumers protect their snapshots. Without `retain_last` and `older_than` the table's options
        decide.

        Args:
            retain_last: How many snapshots to keep.
            older_than: A time or an age: only snapshots replaced before it expire.
            keep_from: Keep this snapshot and all later ones.
            snapshot_ids: Expire these snapshots too, whatever their age (Iceberg). Raises `NotFound` for one that does
                not exist, and `InvalidInput` for the newest of a branch or one with a tag.
        """
        retain_last = arguments.whole("retain_last", retain_last, 1)  # The current snapshot cannot expire.
        keep_from = arguments.whole("keep_from", keep_from, 0)
        view = self._view()
        now_ms = clock.now_ms()
        limit_ms = None if older_than is None else arguments.before(older_than, now_ms)
        chosen = frozenset(arguments.whole("snapshot_ids", snapshot_id, 0) or 0 for snapshot_id in snapshot_ids)
        retention = expire.requested_retention(view, retain_last, limit_ms, chosen, now_ms)
        known = view if self._branch is None else None  # Snapshots expire for the whole table, not for a branch.
        return expire.expire(self._runner.reach(view), self._format, retention, now_ms, keep_from, known)

    def expire_partitions(
        self,
        *,
        options: Mapping[str, str] | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Drop the partitions that have expired by the table's options, with `options` taking precedence. None if there
        are none."""

        def plan(change: Change) -> Operation | None:
            scope = change.view.expiring.partitions(clock.now_ms(), options or {})
            return None if scope is None else Overwrite(request=change.request, added=(), scope=scope)

        return self._runner.run(plan, id, properties)

    def sync_iceberg(self) -> Snapshot | None:
        """Bring the Iceberg metadata of a Paimon table (`metadata.iceberg.storage`) up to its newest snapshot, tags and
        schema.

        Every commit does this itself; call it after writes of engines that do not, or after a failure. Returns the
        Iceberg snapshot, whose id is that of Paimon's; None if the table keeps no Iceberg metadata or has no rows yet.
        """
        return mirror.follow(self._store, self._format)

    def remove_orphan_files(
        self, older_than: Age = datetime.timedelta(days=1), dry_run: bool = False, *, below: str | None = None
    ) -> list[Listed]:
        """Delete files that no snapshot refers to and that are older than `older_than` (a time or an age); returns
        them.

        Younger files may belong to a writer that has not committed yet.

        Args:
            older_than: A time or an age; one day by default.
            dry_run: Only return the files.
            below: Only files in or below this folder of the table; any other folder raises `InvalidInput`.
        """
        view = self._view()
        limit = arguments.before(older_than, clock.now_ms())
        return sweep.sweep(self._runner.reach(view), self._format, limit, dry_run, view, below)

    def stored_files(self) -> list[Listed]:
        """Every file in the table's folder, sorted by path, whether or not a snapshot refers to it."""
        return self._store.list("")

    def missing_files(self) -> list[str]:
        """The data and delete files of the current snapshot that storage does not have. An undamaged table has none."""
        return sweep.missing(self._store, self._view())

    def verify(self, deep: bool = False) -> list[Damage]:
        """Compare the current snapshot with storage: missing files, files of another size, wrong counts of manifests
        and snapshots, and missing snapshots (Paimon). An undamaged table has no `Damage`.

        Args:
            deep: Also read every data and delete file: their footers, pages with checksums, and row counts.

        Raises `CorruptTable` and `CorruptFile` if metadata cannot be read.
        """
        return verify.verify(self._store, self._view(), deep)

    def remove_missing_files(
        self, *, id: str | None = None, properties: Mapping[str, str] | None = None
    ) -> Snapshot | None:
        """Remove missing data files from the table, so that the remaining rows can be read: the rows in the missing
        files are lost.

        Returns None if no file is missing. Raises `UnsupportedFeature` if delete files are missing: roll back instead.
        """
        return self._runner.run(sweep.without_missing, id, properties)

    def purge(self) -> None:
        """Delete all rows, snapshots, tags, branches, consumers and orphan files of a Paimon table at once; its schemas
        stay.

        This cannot be undone, and concurrent readers and writers fail. Raises `UnsupportedFeature` for an Iceberg
        table.
        """
        view = self._view()
        if view.branches is None or mirror.of_view(view) is not None:
            raise UnsupportedFeature(
                f"{self.name}: purge is for tables without Iceberg metadata; truncate(), then expire"
            )
        drop.purge(self._store, self._format)

    def dry_run(self) -> tuple[Table, Rehearsal]:
        """A copy of the table whose verbs change memory only, and a record of what they would have written and deleted.

        The copy sees its own changes: `twin, record = t.dry_run(); twin.expire_snapshots(); record.deleted`. Data files
        that it writes stay in memory whole, so use it for verbs that write little data.
        """
        record = Rehearsal(files_of(self._whole))
        store: Store = record
        if isinstance(self._whole, Catalogued):
            store = Catalogued(record, RehearsedEntry(self._whole.entry))
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
        """Restore the table to an earlier version, by a new snapshot with the old files.

        The snapshots in between leave the history, so that no engine applies their deletes; their files are left to
        `remove_orphan_files`. Returns None if the table is at that snapshot already.
        """
        if sum(v is not None for v in (snapshot_id, tag, as_of)) != 1:
            raise InvalidInput("rollback_to takes one of snapshot_id, tag and as_of")
        view = self._view()
        request, restored = self._runner.request(view, id, properties)
        if restored is None:
            old = self._version(snapshot_id, as_of, tag)
            if old.snapshot is None or (view.snapshot is not None and old.snapshot.id == view.snapshot.id):
                return None
            with tags.kept(self._store, old, tag):
                restored = self._runner.commit(view, Restore(request=request, snapshot_id=old.snapshot.id, tag=tag))
        expire.remove(self._runner.reach(view), view.expiring.of_restore(restored.id))
        self._runner.follow(view)
        return restored

    def repair_earliest_snapshot(self, snapshot_id: int) -> int:
        """Tell other engines which snapshot of a Paimon table is the earliest, by the hint that they read, after files
        of snapshots were lost or deleted by hand: they expect every number from the earliest on. Returns the snapshot
        that they took for the earliest before. lakeformat itself lists the snapshots and needs no hint.

        Raises `InvalidInput` unless all snapshots from `snapshot_id` to the newest exist.
        """
        chosen = arguments.whole("snapshot_id", snapshot_id, 1)
        assert chosen is not None
        return expire.repair_earliest(self._store, self._view(), chosen)

    def create_tag(self, name: str, snapshot_id: int | None = None, retain: datetime.timedelta | None = None) -> None:
        """Tag a snapshot (by default the current one), for the time `retain` or for ever. Raises `AlreadyExists`."""
        retain_ms = arguments.milliseconds("retain", retain)
        view = self._version(snapshot_id, None, None)
        match view.tag(name, clock.now_ms(), retain_ms):
            case (path, data):
                tags.create(self._store, view, name, path, data)
                self._runner.follow(view)
            case operation:
                self._runner.commit(view, operation)

    def create_automatic_tags(self) -> list[str]:
        """Create the tags that are due by the table's options `tag.automatic-creation` and others (Paimon), as every
        commit does; returns their names."""
        view = self._view()
        return automatic_tags.create(self._runner.reach(view), self._format, view, clock.now_ms())

    def delete_tag(self, name: str) -> None:
        """Delete a tag and the files that only it kept. Raises `NotFound`."""
        self._format.at_tag(self._store, name)
        view = self._view()
        expire.release_tag(self._runner.reach(view), self._format, view, name)
        self._runner.follow(view)

    # --- branches ---

    def branch(self, name: str) -> Table:
        """The table at the branch `name`: all verbs read and write the branch.

        In Iceberg, all branches share schema, properties and maintenance; a branch of a Paimon table has its own, and
        its own tags.
        """
        arguments.text("branch", name)
        return type(self)(self.name, self._whole, self._format, None if name == "main" else name)

    def staged(self, wap_id: str) -> Table:
        """The table with staged writes (write-audit-publish): snapshots made under this id stay invisible until
        `publish`. Reads see the current rows. Needs an Iceberg table with `write.wap.enabled`."""
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
        """Publish the snapshot staged under an id, as `cherry_pick` does. Raises `NotFound`, and `InvalidInput` if
        several snapshots are staged under the id: none of them includes the others."""
        arguments.text("wap_id", wap_id)
        return self.cherry_pick(branch.staged(self.name, self._staging(self._view()), wap_id))

    def cherry_pick(self, snapshot_id: int) -> Snapshot:
        """Make a staged snapshot the current one. If others have committed since, apply its changes to the current
        snapshot: an append, or a dynamic overwrite of partitions that nobody else has changed (Iceberg).

        Raises `Conflict` if it is published already or cannot be applied.
        """
        chosen = arguments.whole("snapshot_id", snapshot_id, 1)
        assert chosen is not None
        view = self._view()
        said = self._staging(view)
        request, _ = self._runner.request(view, None)
        if said.leads_to(chosen):
            with suppress(Conflict):  # Another writer may commit in between.
                self._runner.commit(view, FastForward(request=request, to=chosen))
                return self.snapshot(chosen)
            view = self._view()
        picked = self.snapshot(chosen)
        properties = {"source-snapshot-id": str(chosen)}
        if wap_id := picked.properties.get("wap.id"):
            properties["published-wap-id"] = wap_id
        return self._runner.commit(
            view, CherryPick(request=replace(request, properties=properties), snapshot_id=chosen)
        )

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
        """Create a branch at a snapshot (by default the current one) or a tag; returns the Table at that branch.

        Args:
            name: The branch.
            snapshot_id: The snapshot that it starts at. 0 makes an empty branch of a Paimon table.
            tag: The tag that it starts at.
            retain: Drop the branch this long after its newest snapshot (Iceberg).
            keep_snapshots: How many snapshots of the branch expiry keeps (Iceberg); by default as for the table.
            keep_younger_than: Expiry keeps younger snapshots of the branch (Iceberg); by default as for the table.

        Raises `AlreadyExists`.
        """
        arguments.text("branch", name)
        if snapshot_id == 0 and tag is None and (branches := (whole := self._view()).branches) is not None:
            view: AnyView = replace(whole, state=branches.empty())
        else:
            view = self._version(snapshot_id, None, tag)
        if view.branches is not None:
            if retain is not None or keep_snapshots is not None or keep_younger_than is not None:
                raise UnsupportedFeature(
                    f"{self.name}: branch {name!r} of a {view.format.capitalize()} table has no retention of its own; "
                    "leave out retain, keep_snapshots and keep_younger_than, "
                    "and set the options of snapshot.* on the branch"
                )
            branch.create(self._store, self._format, view, view.branches, name, tag)
            return self.branch(name)
        retain_ms, keep_ms = (
            arguments.milliseconds("retain", retain),
            arguments.milliseconds("keep_younger_than", keep_younger_than),
        )
        keep_snapshots = arguments.whole("keep_snapshots", keep_snapshots, 1)
        self._runner.commit(view, branch.begin(self.name, view, name, retain_ms, keep_snapshots, keep_ms))
        return self.branch(name)

    def delete_branch(self, name: str) -> None:
        """Delete a branch. Its snapshots expire; files that only a branch of a Paimon table reached are left to
        `remove_orphan_files`. Raises `NotFound`."""
        arguments.text("branch", name)
        view = self._view()
        if view.branches is not None:
            expire.remove(self._store, branch.drop(self._store, view.branches, name))
            return
        self._runner.commit(
            view, DropBranch(request=Request(id=str(uuid.uuid4()), absent_until=view.version), name=name)
        )

    def rename_branch(self, name: str, to: str) -> Table:
        """Rename a branch of a Paimon table; returns the Table at that branch. Raises `NotFound` and `AlreadyExists`.

        On local storage the branch's folder is renamed in one step. On object storage its files are copied and then
        deleted, so let no one write to the branch meanwhile; an interrupted call can be repeated.
        """
        for branch_name in (name, to):
            arguments.text("branch", branch_name)
        branch.rename(self._store, self._view(), name, to)
        return self.branch(to)

    def merge_branch(
        self, source: str, *, id: str | None = None, properties: Mapping[str, str] | None = None
    ) -> Snapshot | None:
        """Add the rows of the branch `source` that this branch (for `lake.table(...)`, the main branch) lacks; both may
        have written since they parted. Returns None if there are none.

        For Paimon tables without a primary key that were made with the option `branch-merge.enabled`, so that their
        files stay: no compaction, overwrite, delete or update. Data files are added as they are; rows get row ids of
        their own. Raises `NotFound`, and `Conflict` if the two have different schemas."""
        arguments.text("branch", source)
        return self._runner.run(lambda change: branch.merge(change.view, change.request, source), id, properties)

    def fast_forward(self, to: str) -> None:
        """Move this branch (for `lake.table(...)`, the main branch) to the head of the branch `to`. Raises `Conflict`
        if it has snapshots that `to` has not.

        A Paimon table commits the branch's snapshots one after the other. If interrupted, it is at one of them, and the
        same call resumes.
        """
        arguments.text("branch", to)
        view = self._view()
        if view.branches is not None:
            branch.fast_forward(self._store, self._format, view, to)
            self._runner.follow(view)
            return
        request = Request(id=str(uuid.uuid4()), absent_until=view.version, branch=self._branch)
        self._runner.commit(view, FastForward(request=request, to=to))

    # --- private ---

    def _view(self) -> AnyView:
        return self._runner.view()

    def _staging(self, view: AnyView) -> Staging:
        if view.staging is None:
            raise UnsupportedFeature(f"{self.name}: {view.format.capitalize()} tables stage nothing; write to a branch")
        return view.staging

    def _consumers(self, view: AnyView) -> Consumers:
        if view.consumers is None:
            raise UnsupportedFeature(
                f"{self.uri}: {view.format.capitalize()} tables have no consumers; keep a snapshot by a tag"
            )
        return view.consumers

    def _version(self, snapshot_id: int | None, as_of: Moment | None, tag: str | None) -> AnyView:
        if sum(v is not None for v in (snapshot_id, as_of, tag)) > 1:
            raise InvalidInput("a version is one of snapshot_id, as_of and tag, not several")
        if snapshot_id is not None:
            snapshot_id = arguments.whole("snapshot_id", snapshot_id, 0)
            return self._of_branch(self._format.load_snapshot(self._store, snapshot_id), f"snapshot {snapshot_id}")
        if as_of is not None and self._branch is not None:
            passed = [s.id for s in self.snapshots() if s.timestamp_ms <= arguments.epoch_ms(as_of)]
            if not passed:
                raise NotFound(f"{self.name}: branch {self._branch!r} has no snapshot as old as {as_of}")
            return self._format.load_snapshot(self._store, passed[-1])
        if as_of is not None:
            return self._format.at_time(self._store, arguments.epoch_ms(as_of))
        if tag is not None:
            return self._of_branch(self._format.at_tag(self._store, tag), f"tag {tag!r}")
        return self._view()

    def _of_branch(self, view: AnyView, version: str) -> AnyView:
        """The view. Raises `NotFound` if the branch, where branches share snapshots and tags, has not passed it."""
        if self._branch is not None and self._store is self._whole:
            passed = {snapshot.id for snapshot in self.snapshots()}
            if view.snapshot_id > 0 and view.snapshot_id not in passed:
                raise NotFound(
                    f"{self.name}: {version} is not in the history of branch {self._branch!r}, as far as that is kept; "
                    "read it without the branch"
                )
        return view

    def _until(self, to_snapshot: int | None) -> AnyView:
        """The table at the snapshot up to which changes are read."""
        chosen = arguments.whole("to_snapshot", to_snapshot, 1)
        return self._view() if chosen is None else self._format.until(self._store, chosen)

    def _merge(
        self,
        declared: MergeInto,
        id: str | None,
        properties: Mapping[str, str] | None,
        spark: Any,
        watermark: int | None = None,
    ) -> Snapshot | None:
        def grow(columns: list[evolution.AddColumn]) -> AnyView:
            self.evolve(columns)
            return self._view()

        def plan(change: Change) -> Operation | None:
            return merge.plan(change, declared, grow)

        return self._runner.write(plan, engine_for(declared.source, spark), id, properties, watermark)

    def _changes(
        self,
        after: int | None,
        until: int | None,
        columns: Sequence[str] | None,
        where: str | Expression | None,
    ) -> Changes:
        """The changes after `after` up to `until`; without `after`, the rows themselves."""
        after = arguments.whole("from_snapshot", after, 0)
        view = (
            self._version(arguments.whole("to_snapshot", until, 1), None, None) if after is None else self._until(until)
        )
        fields = view.project(columns)
        if any(field.name == KIND_COLUMN for field in fields):
            raise InvalidInput(
                f"{self.name}: a column of the table is called {KIND_COLUMN!r}, as the kinds of changed rows are; "
                "leave it out (columns=...), or rename it"
            )
        return Changes(
            with_cache(self._store, view.reader), view, after, fields, self._condition(where, view.schema.fields)
        )

    def _condition(self, where: str | Expression | None, fields: tuple[Field, ...]) -> Expression:
        return ALWAYS if where is None else bind(sql_text.parse(where), fields)

    def _chosen(self, verb: str, view: AnyView, where: str | Expression | None) -> Expression:
        """`where` as a condition on partition columns."""
        scope, rest = split(self._condition(where, view.schema.fields), view.schema.partitioning.columns)
        if rest != ALWAYS:
            raise InvalidInput(f"{verb}(where={where!r}): the condition must use partition columns only")
        return scope


def create(table: Table, schema: Schema) -> None:
    """Create the table. Raises `AlreadyExists`."""
    store, format = table._store, table._format
    operation = Create(request=Request(id=str(uuid.uuid4())), schema=schema)
    commit(store, format.head(store), format, operation)
