"""Scan: a description of a read of a table at one version, and the forms in which its rows can be had."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn

import pyarrow as pa

from lakeformat import arguments
from lakeformat.arguments import require_spark
from lakeformat.codec.arrow import arrow_schema
from lakeformat.dialects.dialect import AnyView
from lakeformat.engines import worker
from lakeformat.engines.choose import engine_for, spark_engine
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.expression import sql_text
from lakeformat.expression.duckdb_sql import quoted, selected
from lakeformat.model import html, nanoseconds
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression, and_, bind, columns_of
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import FilesTask, ReadTask
from lakeformat.reading import explain as explaining
from lakeformat.reading import frames, polars_source
from lakeformat.storage.store import Store

SHOWN = 20  # Rows shown in a notebook.
MANIFESTS_IN_DRIVER = 1_000  # See docs/performance-notes.md.


@dataclass(frozen=True, slots=True)
class Scan:
    """A read that has been described and not done yet. Each `to_...` method reads; all of them see the same
    snapshot."""

    store: Store
    view: AnyView
    fields: tuple[Field, ...]
    columns: tuple[str, ...] | None = None
    predicate: Expression = ALWAYS
    limit: int | None = None
    nanoseconds: str = "error"

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read; None if the table has none."""
        return self.view.snapshot

    @property
    def snapshot_id(self) -> int | None:
        """The id of the snapshot that is read, also if it was chosen by tag or time."""
        return self.view.snapshot_id or None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return arrow_schema(self.fields)

    def plan(self) -> Sequence[ReadTask]:
        """The tasks that together read the rows. Files are pruned by partition and by column bounds; tasks are made
        lazily."""
        tasks = self._tasks(self.columns)
        if self.limit is None:
            return tasks
        chosen, rows = [], 0
        for task in tasks:
            if rows >= self.limit:
                break
            chosen.append(task)
            if task.predicate == ALWAYS and isinstance(task, FilesTask) and not any(task.deletes):
                rows += task.row_count  # How many rows other tasks yield is unknown.
        return chosen

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        return engine_for().read(self.store, self.plan(), self.fields, self.limit)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.to_batches().read_all()

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; integers with nulls among them have a nullable dtype (`Int64`)."""
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_polars_lazy(self) -> Any:
        """The rows as a `polars.LazyFrame` of this scan's snapshot, which reads when it is evaluated, as little as it
        can: the columns, rows and conditions that its query needs."""
        return polars_source.lazy_frame(self)

    def to_spark(self, spark: Any, manifests_in_driver: int = MANIFESTS_IN_DRIVER) -> Any:
        """The rows as a Spark DataFrame of the session `spark`, read by its executors.

        The executors also read and decode the manifests, if more than `manifests_in_driver` are not in the cache.
        """
        require_spark(spark)
        if isinstance(manifests_in_driver, bool) or not isinstance(manifests_in_driver, int) or manifests_in_driver < 0:
            raise InvalidInput(f"manifests_in_driver={manifests_in_driver!r}: give a whole number, 0 or more")
        engine = engine_for(spark=spark)
        elsewhere = spark_engine.planning.OnExecutors(spark, self.store, manifests_in_driver + 1)
        scan = replace(self, view=self.view.planned(elsewhere))
        return engine.read(self.store, scan.plan(), self.fields, self.limit)

    def count(self) -> int:
        """The number of rows; from metadata alone where metadata has the exact number."""
        rows = self.count_if_cheap(sys.maxsize)
        assert rows is not None, "no table has so many rows"
        return rows

    def count_if_cheap(self, rows_read: int) -> int | None:
        """The number of rows; None if counting them means to read more than `rows_read` rows, whose condition, merging
        or equality deletes decide whether they count."""
        by_bounds, rest = self._apart()
        rows = self.view.count(by_bounds) if rest == ALWAYS else None
        if rows is None:
            some = self.view.schema.names[:1]  # A task also reads the columns that its condition and merging need.
            tasks = self._tasks(some)
            if rows_read < sys.maxsize:  # A file without a row count has hardly more rows than bytes.
                unknown = [task.row_count or task.size_bytes for task in tasks if worker.needs_rows(task)]
                if sum(unknown) > rows_read:
                    return None
            rows = sum(engine_for().count(self.store, tasks))
        return rows if self.limit is None else min(rows, self.limit)

    def explain(self) -> pa.Table:
        """Which files the scan reads and which it skips, and why. One row per live data file: `path`, `row_count`,
        `size_bytes`, `left_out_by` (the condition that excludes the file, null if it is read), `bounds` (the file's
        bounds of that condition's columns), and for Parquet files that are read `row_groups_read` of `row_groups`."""
        return explaining.explain(self.store, self.view, self._apart()[0])

    def explain_manifests(self) -> pa.Table:
        """Which manifests the scan reads and which it skips. One row per manifest: `path`, `file_count`, `size_bytes`,
        `left_out_by` (the condition that its partition bounds exclude, null if it is read) and `bounds`."""
        return explaining.manifests(self.view, self._apart()[0])

    def filter(self, where: str | Expression) -> Scan:
        """A scan of the rows for which `where` is true as well. Raises `InvalidInput` after a limit, which would
        otherwise apply after the filter."""
        if self.limit is not None:
            raise InvalidInput("filter() of a scan with a limit: filter first, then limit")
        condition = bind(sql_text.parse(where), nanoseconds.seen(self.view.schema.fields, self.nanoseconds))
        return replace(self, predicate=and_(self.predicate, condition))

    def select(self, columns: Sequence[str]) -> Scan:
        """A scan of these columns, in this order; `a.b` is the field `b` of the row `a`. Raises `NotFound`."""
        names = arguments.columns(columns)
        fields = nanoseconds.seen(self.view.project(names), self.nanoseconds)
        return replace(self, fields=fields, columns=names)

    def to_duckdb(self, connection: Any = None) -> Any:
        """The rows as a DuckDB relation of `connection` (by default DuckDB's default connection). They are read once,
        into memory.

        NaN is greater than all numbers here, as in DuckDB's own tables. `FROM scan` differs: DuckDB lets Arrow filter
        Arrow data, and Arrow's NaN is greater than nothing.
        """
        import duckdb

        relation = duckdb.from_arrow(self.to_arrow(), **({} if connection is None else {"connection": connection}))
        return relation.select(selected(relation.columns, relation.types))

    def checksum(self, schema: pa.Schema | None = None) -> tuple[int, str | None]:
        """(number of rows, sum of DuckDB's hashes of the rows), independent of row order; the sum is None without rows.
        `schema` selects the columns and casts them, so that scans of other formats can be compared."""
        try:
            import duckdb
        except ModuleNotFoundError:
            raise InvalidInput("a checksum needs DuckDB: pip install 'lakeformat[duckdb]'") from None
        target = self.schema if schema is None else schema
        scan = self.select(target.names)
        failed: list[LakeError] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in scan.to_batches():
                    yield from pa.Table.from_batches([batch]).cast(target).to_batches()
            except LakeError as error:
                failed.append(error)
                raise

        names = ", ".join(map(quoted, target.names))
        with _hashing(os.getpid()).cursor() as connection:
            connection.register("rows", pa.RecordBatchReader.from_batches(target, batches()))
            query = f"SELECT count(*), CAST(sum(hash({names})::HUGEINT) AS VARCHAR) FROM rows"
            try:
                row = connection.execute(query).fetchone()
            except duckdb.Error:
                if failed:  # DuckDB keeps only the text of the error.
                    raise failed[0] from None
                raise
        assert row is not None
        return row[0], row[1]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows as an Arrow C stream: for `pa.table(scan)`, `pl.DataFrame(scan)`, DuckDB's `FROM scan`."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> NoReturn:
        """Always raises, with an error that names `to_pandas`: `pd.DataFrame(scan)` would otherwise fail without saying
        why."""
        raise TypeError(f"{self!r} is not a sequence of rows; take .to_pandas(), .to_arrow() or .to_batches()")

    def _apart(self) -> tuple[Expression, Expression]:
        if self.nanoseconds == "error":  # Columns are as the table holds them.
            return self.predicate, ALWAYS
        return nanoseconds.apart(self.predicate, self.view.schema.fields, self.nanoseconds)

    def _tasks(self, columns: tuple[str, ...] | None) -> Sequence[ReadTask]:
        by_bounds, rest = self._apart()
        needed = None if columns is None else (*columns, *sorted(columns_of(rest)))
        tasks = self.view.scan(needed, by_bounds)
        return (
            tasks
            if self.nanoseconds == "error"
            else [nanoseconds.changed(task, self.nanoseconds, rest) for task in tasks]
        )

    def __repr__(self) -> str:
        version = "no snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        where = "" if self.predicate == ALWAYS else f", where {explaining.text(self.predicate)}"
        limit = "" if self.limit is None else f", limit {self.limit}"
        return f"Scan({self.store.root!r}, {version}, columns {', '.join(f.name for f in self.fields)}{where}{limit})"

    def _repr_html_(self) -> str:
        rows = replace(self, limit=SHOWN if self.limit is None else min(SHOWN, self.limit)).to_arrow()
        columns = [column.to_pylist() for column in rows.columns]
        shown = "" if len(rows) < SHOWN else f" (the first {SHOWN} rows)"
        return html.table(f"{self!r}{shown}", rows.column_names, zip(*columns, strict=True))


@cache
def _hashing(pid: int) -> Any:
    """A DuckDB connection that the process keeps: opening one takes longer than hashing a small table."""
    import duckdb

    return duckdb.connect()
