"""Scan: what to read of a table at one version, and the forms in which it can be had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeformat.codec.arrow import arrow_schema
from lakeformat.dialects.dialect import Dialect
from lakeformat.engines.choose import engine_for, require_spark
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Snapshot, TableState
from lakeformat.model.work import ReadTask
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class Scan:
    """A read that has been described and not yet done. Each `to_...` reads; all of them see the same snapshot."""

    store: Store
    dialect: Dialect
    base: TableState
    fields: tuple[Field, ...]
    columns: tuple[str, ...] | None = None
    predicate: Expression = ALWAYS
    limit: int | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """What is read; None for a table that nothing was ever written to."""
        return self.base.snapshot

    @property
    def snapshot_id(self) -> int | None:
        """The id of what is read, also where it was asked for by tag or time."""
        return None if self.base.snapshot is None else self.base.snapshot.id

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what is read."""
        return arrow_schema(self.fields)

    def plan(self) -> list[ReadTask]:
        """The tasks that together read the rows, files pruned by partition and by bounds."""
        tasks = self.dialect.scan(self.store, self.base, self.columns, self.predicate)
        if self.limit is None:
            return tasks
        chosen, rows = [], 0
        for task in tasks:
            if rows >= self.limit:
                break
            chosen.append(task)
            if task.predicate == ALWAYS and task.merge is None and not any(task.deletes):
                rows += task.row_count  # Of other tasks nobody knows how many of their rows are left.
        return chosen

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        return engine_for().read(self.store, self.plan(), self.fields, self.limit)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.to_batches().read_all()

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_spark(self, spark: Any) -> Any:
        """The rows as a Spark DataFrame of the session `spark`, read on its executors."""
        require_spark(spark)
        return engine_for(spark=spark).read(self.store, self.plan(), self.fields, self.limit)

    def count(self) -> int:
        """The number of rows; from metadata alone where that is exact."""
        rows = self.dialect.count(self.store, self.base, self.predicate)
        if rows is None:
            some = self.base.schema.names[:1]  # Besides, a task reads what its condition and merging need.
            tasks = self.dialect.scan(self.store, self.base, some, self.predicate)
            rows = sum(engine_for().count(self.store, tasks))
        return rows if self.limit is None else min(rows, self.limit)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_batches())
