"""Dispatch of statements by their first words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lakeformat.arguments import is_spark
from lakeformat.engines.choose import spark_engine
from lakeformat.errors import InvalidInput
from lakeformat.expression import sql_text
from lakeformat.model.predicate import Expression
from lakeformat.sql import parameters, query, text
from lakeformat.sql.result import Result
from lakeformat.sql.session import Context, Session, Warehouse
from lakeformat.sql.statements import (
    alter,
    analyze,
    copying,
    create,
    explain,
    insert,
    merging,
    procedures,
    rows,
    settings,
    show,
)
from lakeformat.sql.text import Cursor, Piece

_QUERIES = {"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("}
_WRITES = {"INSERT", "DELETE", "UPDATE", "MERGE", "TRUNCATE"}


def run(
    lake: Warehouse,
    session: Session,
    sql: str,
    spark: Any = None,
    params: Any = None,
    id: str | None = None,
    properties: Mapping[str, str] | None = None,
    frames: Mapping[str, Any] | None = None,
    folders: Sequence[str] = (),
) -> Iterator[Result]:
    """The results of the statements of a text, of which there is at least one. Each statement runs when its result is
    requested."""
    script = text.read(sql)
    if spark is not None and not is_spark(spark):
        raise InvalidInput(f"sql(spark={spark!r}): give a SparkSession")
    if spark is None:
        spark = next((frame.sparkSession for frame in (frames or {}).values() if is_spark(frame)), None)
    if spark is not None:
        spark_engine.require_sparks_own(
            spark, "SQL", "it answers by functions of its own; run it in process, sql(text), on tables or Arrow data"
        )
    named = parameters.named(script, params)
    if isinstance(folders, str) or not all(isinstance(folder, str) and folder for folder in folders):
        raise InvalidInput(f"sql(folders={folders!r}): give a list of folders, e.g. ['/data/in', 's3://bucket/in']")
    context = Context(lake, session, script, named, frames or {}, spark, id, properties, tuple(folders))
    statements = list(text.statements(script))
    writing = [statement for statement in statements if _is_write(statement)]
    if id is not None and len(writing) != 1:
        raise InvalidInput(f"sql(id=...) names one commit; the text has {len(writing)} statements that write rows")
    if not statements:
        raise InvalidInput(text.NO_STATEMENT)
    return (_statement(context, statement) for statement in statements)


def tables(sql: str) -> list[tuple[str, ...]]:
    """The names of the tables that a query reads at their current version, in the order of its text; see
    `query.tables`."""
    return query.tables(text.read(sql))


def expression(sql: str, sides: Collection[str] = ()) -> Expression:
    """The expression of a SQL text over the columns of a row, or of one row on each of `sides`, as in `t.id = s.id`.
    Raises `InvalidInput`."""
    if not isinstance(sql, str):
        raise InvalidInput(f"{sql!r} is no expression; give SQL text")
    return sql_text.parse(sql, sides)


def parameter_names(sql: str) -> list[str]:
    """The names of a query's parameters, `:name`, sorted; those of `?` are `_0`, `_1` ..."""
    return query.parameters_of(text.read(sql))


# --- private ----------------------------------------------------------------------------------------------------------


def _is_write(cursor: Cursor) -> bool:
    words = {token.text.upper() for token in cursor.tokens}
    match cursor.word():
        case "WITH":
            return bool(words & _WRITES)
        case "CREATE" | "REPLACE":
            return "SELECT" in words and not {"VIEW", "FUNCTION"} & {cursor.word(ahead) for ahead in range(1, 5)}
        case "COPY":
            return copying.loads(cursor)
        case "ALTER":
            return {"DROP", "PARTITION"} <= words and "FIELD" not in words
    return cursor.word() in _WRITES or cursor.word() == "CALL"


def _statement(context: Context, cursor: Cursor) -> Result:
    word = cursor.word()
    if word == "WITH" and (before := _before_write(cursor)) is not None:
        verb = insert.insert if cursor.peek("INSERT") else merging.merge
        return verb(context, cursor, before)
    if word in _QUERIES:
        if cursor.take("TABLE"):
            return query.run(context, Piece.join(context.script, ["SELECT * FROM ", cursor.rest()]))
        return query.run(context, cursor.rest())
    family = _FAMILIES.get(word)
    if family is None:
        if word in _WAYS:
            raise context.script.unsupported(cursor.offset, f"{word} is not a statement known here; {_WAYS[word]}")
        known = ", ".join(sorted({*_FAMILIES, "SELECT", "WITH", "VALUES"}))
        raise context.script.unsupported(
            cursor.offset, f"{word or 'this'} is not a statement known here; supported: {known}"
        )
    return family(context, cursor)


def _before_write(cursor: Cursor) -> Piece | None:
    """The WITH clause before an INSERT or MERGE; None before a query."""
    start, depth = cursor.offset, 0
    for index, token in enumerate(cursor.tokens):
        depth += (token.text == "(") - (token.text == ")")
        if not depth and token.text.upper() in ("INSERT", "MERGE", "SELECT"):
            if token.text.upper() == "SELECT":
                return None
            cursor.at = index
            return Piece.cut(cursor.script, start, cursor.tokens[index - 1].end + 1)
    return None


_WAYS = {
    "LOAD": (
        "load files with COPY INTO db.t FROM '/folder' FILE_FORMAT = (TYPE = CSV), or make Parquet files a table's "
        "with CALL system.add_files(table => 'db.t', source_table => '`parquet`.`/folder`')"
    ),
    "OPTIMIZE": "small files become large ones with CALL system.rewrite_data_files('db.t') (Paimon: CALL sys.compact)",
    "VACUUM": "old snapshots and their files go with CALL system.expire_snapshots('db.t'), files that no snapshot has "
    "with CALL system.remove_orphan_files('db.t')",
    "RESTORE": "go back with CALL system.rollback_to_snapshot('db.t', ID), rollback_to_timestamp (Paimon: CALL "
    "sys.rollback)",
    "MSCK": "the manifests list the files of partitions: a partition comes with its first row",
    "CACHE": "nothing is cached; with spark=, cache the frame that sql(...) returns",
    "UNCACHE": "nothing is cached; with spark=, uncache the frame that sql(...) returned",
}
_FAMILIES = {
    "INSERT": insert.insert,
    "DELETE": rows.delete,
    "UPDATE": rows.update,
    "TRUNCATE": rows.truncate,
    "MERGE": merging.merge,
    "USE": settings.use,
    "SET": settings.set_,
    "RESET": settings.reset,
    "EXPLAIN": explain.explain,
    "CREATE": create.create,
    "REPLACE": create.create,
    "DROP": create.drop,
    "ALTER": alter.alter,
    "COMMENT": alter.comment,
    "ANALYZE": analyze.analyze,
    "DESCRIBE": show.describe,
    "DESC": show.describe,
    "SHOW": show.show,
    "REFRESH": show.refresh,
    "CALL": procedures.call,
    "COPY": copying.copy,
}
