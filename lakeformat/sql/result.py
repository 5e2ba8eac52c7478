"""Result: the rows or metrics of a statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import chain
from typing import Any

import pyarrow as pa

from lakeformat.arguments import require_spark
from lakeformat.engines import once
from lakeformat.engines.choose import spark_engine
from lakeformat.errors import InvalidInput
from lakeformat.model import html
from lakeformat.model.snapshot import CHANGED_ROWS, Snapshot
from lakeformat.model.wording import count_text
from lakeformat.reading import frames

_SHOWN = 20  # Rows in a notebook.
_HELD_BYTES = 64 << 20  # Larger results are streamed.
# As Spark's MERGE calls them.
_CHANGED = ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")
METRICS = pa.schema(
    [
        ("operation", pa.string()),
        ("snapshot_id", pa.int64()),
        ("rows_added", pa.int64()),
        ("rows_removed", pa.int64()),
        *((name, pa.int64()) for name in _CHANGED),
        ("files_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("bytes_added", pa.int64()),
        ("bytes_removed", pa.int64()),
        ("partitions", pa.int64()),
        ("total_rows", pa.int64()),
        ("attempts", pa.int64()),
        ("milliseconds", pa.int64()),
    ]
)


class Result:
    """The rows of a query; one row with the snapshot's metrics for a statement that changes rows;
    a listing for other statements.

    With `spark`, a query's result is a DataFrame that Spark evaluates when rows are requested.
    """

    def __init__(
        self,
        rows: pa.Table | None = None,
        frame: Any = None,
        snapshot: Snapshot | None = None,
        origins: Callable[[Sequence[str]], dict[str, tuple[tuple[str, str], ...]]] | None = None,
        stream: Callable[[], pa.RecordBatchReader] | None = None,
    ) -> None:
        self._materialized, self._frame, self.snapshot, self._origins, self._stream = (
            rows,
            frame,
            snapshot,
            origins,
            stream,
        )
        self._begun: pa.RecordBatchReader | None = None
        if stream is not None:
            self._begin(stream())

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        if self._frame is not None:
            return self._frame.limit(0).toArrow().schema
        return self._schema if self._materialized is None else self._materialized.schema

    @property
    def lineage(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """For each column of a query, the (table, column) pairs that its value is computed from; tables as the text
        names them. Empty if unknown."""
        if self._origins is None:
            return {}
        return self._origins(self._frame.columns if self._frame is not None else self.schema.names)

    def to_arrow(self) -> pa.Table:
        return self._frame.toArrow() if self._frame is not None else self._rows

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows batch by batch. A large result of a query in process is never in memory as a whole; each further
        call runs the query again, at the same snapshots."""
        if self._frame is not None or self._materialized is not None:
            rows = self.to_arrow()
            return pa.RecordBatchReader.from_batches(rows.schema, once.never_without(rows.schema, rows.to_batches()))
        assert self._stream is not None
        begun, self._begun = self._begun, None
        return self._stream() if begun is None else begun

    def to_pandas(self) -> Any:
        return self._frame.toPandas() if self._frame is not None else frames.to_pandas(self._rows)

    def to_polars(self) -> Any:
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_spark(self, spark: Any = None) -> Any:
        """The query's Spark DataFrame; for rows in this process, one made with `spark`."""
        if self._frame is not None:
            return self._frame
        if spark is None:
            raise InvalidInput("to_spark() of rows that are in this process; give the session: to_spark(spark)")
        require_spark(spark)
        return spark_engine.of_arrow(spark, self._rows)

    def show(self, rows: int = 20) -> None:
        """Print the first rows."""
        print(self._text(rows))

    def __len__(self) -> int:
        return self._frame.count() if self._frame is not None else sum(map(len, self.to_batches()))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        if self._frame is not None:
            return f"Result({self._frame!r})"
        if self._materialized is None:
            return f"Result(many rows: {', '.join(self.schema.names)})"
        return f"Result({count_text(len(self._rows), 'row')}: {', '.join(self._rows.column_names)})"

    def _repr_html_(self) -> str:
        if self._frame is not None:  # Spark evaluates nothing before rows are requested.
            return f"<p>{escape(repr(self))}</p>"
        first = self._first(_SHOWN + 1)
        columns = [map(_cell, column.to_pylist()) for column in first.slice(0, _SHOWN).columns]
        caption = f"the first {_SHOWN} rows" if len(first) > _SHOWN else count_text(len(first), "row")
        return html.table(caption, first.column_names, zip(*columns, strict=True))

    @property
    def _rows(self) -> pa.Table:
        """All rows, held from now on."""
        if self._materialized is None:
            self._materialized = self.to_batches().read_all()
        return self._materialized

    def _begin(self, reader: pa.RecordBatchReader) -> None:
        """Hold the rows if they are few, so that later changes of the tables do not affect them."""
        self._schema = reader.schema
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if size > _HELD_BYTES:
                self._begun = pa.RecordBatchReader.from_batches(reader.schema, chain(batches, reader))
                return
        self._materialized = pa.Table.from_batches(batches, reader.schema)

    def _first(self, count: int) -> pa.Table:
        if self._materialized is not None:
            return self._materialized.slice(0, count)
        batches: list[pa.RecordBatch] = []
        with self.to_batches() as reader:
            while sum(map(len, batches)) < count and (batch := next(reader, None)) is not None:
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema).slice(0, count)

    def _text(self, rows: int) -> str:
        first = self._frame.limit(rows + 1).toArrow() if self._frame is not None else self._first(rows + 1)
        names = list(first.column_names)
        columns = [map(_cell, column.to_pylist()) for column in first.slice(0, rows).columns]
        lines = list(zip(*columns, strict=True))
        widths = [max(len(name), *(len(line[i]) for line in lines), 0) for i, name in enumerate(names)]
        ruled = ["-" * width for width in widths]
        shown = "\n".join(
            " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            for line in [names, ruled, *lines]
        )
        return f"{shown}\n(only the first {count_text(rows, 'row')})" if len(first) > rows else shown


def metrics(snapshot: Snapshot | None) -> Result:
    """One row with the snapshot's metrics; zeros and no id if nothing changed."""
    if snapshot is None:
        row = {
            "operation": "none",
            **{f.name: 0 for f in METRICS if pa.types.is_integer(f.type)},
            "snapshot_id": None,
            "total_rows": None,
        }
    else:
        changed = [snapshot.figures.get(name) for name in CHANGED_ROWS]
        affected = sum(count for count in changed if count is not None)
        row = {
            "operation": snapshot.kind,
            "snapshot_id": snapshot.id,
            **{
                name: getattr(snapshot, name) for name in ("rows_added", "rows_removed", "files_added", "files_removed")
            },
            **dict(zip(_CHANGED, (None if None in changed else affected, *changed), strict=True)),
            "bytes_added": snapshot.bytes_added,
            "bytes_removed": snapshot.bytes_removed,
            "partitions": None if snapshot.partitions is None else len(snapshot.partitions),
            "total_rows": snapshot.total_rows,
            "attempts": snapshot.attempts,
            "milliseconds": snapshot.milliseconds,
        }
    return Result(pa.Table.from_pylist([row], schema=METRICS), snapshot=snapshot)


def listing(columns: dict[str, pa.DataType], rows: list[tuple[Any, ...]]) -> Result:
    """The result of a statement that lists rows."""
    schema = pa.schema(list(columns.items()))
    return Result(pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema))


def nothing() -> Result:
    """The result of a statement without rows."""
    return Result(pa.table({}))


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(value)
