"""EXPLAIN: which files and manifests of each table a statement reads, and which it skips."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakeformat.expression.spark_sql import quoted
from lakeformat.model.predicate import ALWAYS
from lakeformat.sql import pushdown, query
from lakeformat.sql.prepared import Query, Reference
from lakeformat.sql.result import Result, listing
from lakeformat.sql.session import Context
from lakeformat.sql.sources import Source, TableRows
from lakeformat.sql.statements import insert, rows
from lakeformat.sql.text import Cursor, Piece

_COLUMNS = {
    "table": pa.string(),
    "format": pa.string(),
    "snapshot_id": pa.int64(),
    "columns": pa.string(),
    "pushed": pa.string(),
    "files_read": pa.int64(),
    "files": pa.int64(),
    "rows_read": pa.int64(),
    "bytes_read": pa.int64(),
    "manifests_read": pa.int64(),
    "manifests": pa.int64(),
}


def explain(context: Context, cursor: Cursor) -> Result:
    """EXPLAIN of a query or a write: one row per table read."""
    cursor.expect("EXPLAIN")
    for mode in ("EXTENDED", "CODEGEN", "COST", "FORMATTED"):
        cursor.take(mode)
    word = cursor.word()
    if word == "INSERT":
        return _query(context, insert.read(context, cursor).rows)
    if word in ("DELETE", "UPDATE"):
        return _rows(context, cursor, word)
    if word == "MERGE":
        return _merge(context, cursor)
    if word in ("SELECT", "WITH", "VALUES", "FROM", "("):
        return _query(context, cursor.rest())
    said = f"EXPLAIN {word}; supported: EXPLAIN of queries, INSERT, DELETE, UPDATE and MERGE"
    raise context.script.unsupported(cursor.offset, said)


# --- private ----------------------------------------------------------------------------------------------------------


def _query(context: Context, piece: Piece) -> Result:
    prepared = query.prepare(context, piece)
    return listing(
        _COLUMNS,
        [_row(".".join(reference.path), reference.source, reference.pushed) for reference in _references(prepared)],
    )


def _references(prepared: Query) -> Iterator[Reference]:
    """The references of a query; a view is replaced by the references of its query."""
    for reference in prepared.references:
        if isinstance(reference.source, query.ViewRows):
            yield from _references(reference.source.prepared())
        else:
            yield reference


def _rows(context: Context, cursor: Cursor, word: str) -> Result:
    """The files that hold rows to change."""
    cursor.expect(word)
    cursor.take("FROM")
    on = rows.target(context, cursor, ("SET", "WHERE"))
    if cursor.take("SET"):
        rows.assignments(context, cursor, on, ("WHERE",))
    where = cursor.until() if cursor.take("WHERE") else None
    condition = ALWAYS if where is None else rows.evaluable(context, where, on)
    if condition is None:
        assert where is not None
        return _query(
            context,
            Piece.join(context.script, ["SELECT 1 FROM ", on.named, " AS ", quoted(on.alias), " WHERE ", where]),
        )
    source = TableRows(on.table.scan(where=condition), on.table.scan())
    return listing(_COLUMNS, [_row(on.table.name, source, "" if where is None else pushdown.shown(condition))])


def _merge(context: Context, cursor: Cursor) -> Result:
    """The files of the target and the source that finding the matching rows reads."""
    cursor.expect("MERGE")
    cursor.take("WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    on = rows.target(context, cursor, ("USING",))
    cursor.expect("USING")
    source = cursor.until("ON")
    cursor.expect("ON")
    matching = cursor.until("WHEN")
    parts: list[str | Piece] = [
        "SELECT 1 FROM ",
        on.named,
        " AS ",
        quoted(on.alias),
        " JOIN ",
        source,
        " ON ",
        matching,
    ]
    return _query(context, Piece.join(context.script, parts))


def _row(name: str, source: Source, pushed: str) -> tuple[Any, ...]:
    columns = ", ".join(source.names)
    if not isinstance(source, TableRows):
        return (name, "frame", None, columns, pushed, *[None] * 6)
    scan = source.scan
    read, whole, manifests = scan.plan(), source.whole.plan(), scan.explain_manifests()
    return (
        name,
        scan.view.format,
        scan.snapshot_id,
        columns,
        pushed,
        sum(len(task.paths) for task in read),
        sum(len(task.paths) for task in whole),
        sum(task.row_count for task in read) if all(leaf.row_counts for task in read for leaf in task.leaves) else None,
        sum(task.size_bytes for task in read),
        manifests["left_out_by"].null_count,
        len(manifests),
    )
