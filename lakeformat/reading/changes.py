"""Changes: the rows added and removed between two snapshots, each with its kind, and the progress of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lakeformat.arguments import require_spark
from lakeformat.codec.arrow import arrow_schema
from lakeformat.codec.plain_values import row_kinds
from lakeformat.dialects.dialect import AnyView
from lakeformat.engines import once
from lakeformat.engines.choose import engine_for
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import Field
from lakeformat.model.work import VALUE_KIND, Delta, RowKind
from lakeformat.reading import frames
from lakeformat.storage.store import Store

KIND_COLUMN = "_row_kind"  # The last column: "+I", "-U", "+U" or "-D".


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes after the snapshot `after` up to and including that of `view`. Applied in order to the rows of the
    former, they give the rows of the latter. Nothing is read before a `to_...` method is called.

    In a table with a changelog, the rows are those of the changelog. In any other table they are the rows of the added
    files (with the kinds that were written; rows with one key are not merged across snapshots) and, for overwrites and
    deletes, the rows of the removed files.
    """

    store: Store
    view: AnyView
    after: int | None  # None: all rows at that snapshot, each with its kind.
    fields: tuple[Field, ...]
    predicate: Expression
    consumer: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return arrow_schema(self.fields).append(pa.field(KIND_COLUMN, pa.string(), nullable=False))

    @property
    def until(self) -> int:
        """The last snapshot whose changes are read."""
        return self.view.snapshot_id

    def plan(self) -> list[Delta]:
        """The tasks, oldest changes first. Raises `NotFound` if a snapshot in between has expired."""
        if self.after is None:
            deltas = self.view.audit(self.fields, self.predicate)
            if deltas is None:
                raise UnsupportedFeature(
                    f"{self.view.reader.root}: an audit log of an {self.view.format.capitalize()} table without "
                    "from_snapshot: not supported; its rows have no kinds"
                )
            return [delta for delta in deltas if delta.tasks]
        return [
            delta
            for since, snapshot_id in pairwise([self.after, *self.snapshot_ids()])
            for delta in self.view.history.delta(since, snapshot_id, self.fields, self.predicate)
            if delta.tasks
        ]

    def snapshot_ids(self) -> list[int]:
        """The snapshots whose changes are read, oldest first. Raises `NotFound` if `after` did not lead to the last
        one."""
        kept = self.view.history.ids_with_changes(self.after or 0)
        if self.until in kept:
            return kept[: kept.index(self.until) + 1]
        # A consumer may be ahead of a table that another engine has rolled back: it waits.
        if self.after not in (None, self.until) and self.consumer is None:
            raise NotFound(
                f"{self.view.reader.root}: snapshot {self.after} did not lead to snapshot {self.until}, the last one "
                "of these changes; snapshots() lists those that did"
            )
        return []

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, oldest first."""
        batches = self._batches(self.plan())
        return pa.RecordBatchReader.from_batches(self.schema, once.never_without(self.schema, batches))

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, oldest first."""
        return self.to_batches().read_all()

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame, oldest first; integers with nulls among them have a nullable dtype
        (`Int64`)."""
        return frames.to_pandas(self.to_arrow())

    def to_spark(self, spark: Any) -> Any:
        """The rows as a Spark DataFrame of the session `spark`, unordered."""
        require_spark(spark)
        engine, frames = engine_for(spark=spark), []
        names = ", ".join(f"'{kind.short}'" for kind in RowKind)
        for delta in self.plan():
            frame = engine.read(self.store, delta.tasks, self._fields_of(delta))
            kind_name = f"element_at(array({names}), cast({VALUE_KIND.name} as int) + 1)"
            shown = kind_name if delta.kind is None else f"'{delta.kind.short}'"
            columns = [f"`{field.name.replace('`', '``')}`" for field in self.fields]
            frames.append(frame.selectExpr(*columns, f"{shown} as {KIND_COLUMN}"))
        if not frames:
            return engine.read(self.store, [], self.fields).selectExpr("*", f"'+I' as {KIND_COLUMN}")
        return reduce(lambda one, other: one.unionAll(other), frames)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows and their kinds as an Arrow C stream."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def acknowledge(self) -> None:
        """Save the consumer's progress: its next read starts after these changes."""
        if self.consumer is None:
            raise InvalidInput("acknowledge() without a consumer; ask for changes(consumer=...)")
        assert self.view.consumers is not None, self.view
        self.store.write(*self.view.consumers.file(self.consumer, self.until + 1))

    def _fields_of(self, delta: Delta) -> tuple[Field, ...]:
        return self.fields if delta.kind is not None else (*self.fields, VALUE_KIND)

    def _batches(self, deltas: list[Delta]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for delta in deltas:
            for batch in engine_for().read(self.store, delta.tasks, self._fields_of(delta)):
                if delta.kind is None:
                    kinds = row_kinds().take(batch.column(VALUE_KIND.name))
                else:
                    kinds = pa.array([delta.kind.short]).take(pa.array([0] * batch.num_rows, pa.int8()))
                columns = [batch.column(field.name) for field in self.fields]
                yield pa.RecordBatch.from_arrays([*columns, kinds], schema=schema)
