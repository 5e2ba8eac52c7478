"""COPY INTO: files -> a table, and a table or a query -> files, as in Paimon (docs: Spark, COPY INTO)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import pyarrow as pa
from sqlglot.tokens import TokenType

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.sql import names, query
from lakeformat.sql.result import Result, listing
from lakeformat.sql.session import Context
from lakeformat.sql.statements import settings
from lakeformat.sql.text import Cursor, Piece
from lakeformat.storage.allowed import allowed

_LOADED = {
    "file_name": pa.string(),
    "status": pa.string(),
    "rows_loaded": pa.int64(),
    "rows_parsed": pa.int64(),
    "errors_seen": pa.int64(),
    "first_error": pa.string(),
}
_EXPORTED = {"output_path": pa.string(), "file_count": pa.int32(), "rows_written": pa.int64()}
_TEXTS = {TokenType.STRING, TokenType.RAW_STRING}
_ON_ERROR = ("ABORT_STATEMENT", "CONTINUE", "SKIP_FILE")


def copy(context: Context, cursor: Cursor) -> Result:
    """COPY INTO table [(columns)] FROM 'folder' ..., COPY INTO 'folder' FROM {table | (query)} ..."""
    cursor.expect("COPY INTO")
    return _export(context, cursor) if cursor.kind in _TEXTS else _load(context, cursor)


def loads(cursor: Cursor) -> bool:
    """Whether the statement writes to a table."""
    into = cursor.tokens[cursor.at + 2 : cursor.at + 3]
    return bool(into) and into[0].token_type not in _TEXTS


# --- private ----------------------------------------------------------------------------------------------------------


def _load(context: Context, cursor: Cursor) -> Result:
    at = cursor.offset
    table = settings.with_options(context, names.table(context, cursor.path(), f"SQL at {context.script.position(at)}"))
    columns = cursor.listed(cursor.part) if cursor.peek("(") else None
    cursor.expect("FROM")
    source = _address(context, cursor)
    clauses = _clauses(cursor, {"PATTERN": _pattern, "FORCE": _truth, "ON_ERROR": _on_error})
    loaded = context.lake.load_files(
        table,
        source,
        *clauses.pop("FILE_FORMAT"),
        columns=columns,
        pattern=clauses.get("PATTERN"),
        force=clauses.get("FORCE", False),
        on_error=clauses.get("ON_ERROR", "abort_statement"),
        folders=context.folders,
        spark=context.spark,
        **context.verb,
    )
    rows = listing(_LOADED, [astuple(file) for file in loaded.files])
    return Result(rows.to_arrow(), snapshot=loaded.snapshot)


def _export(context: Context, cursor: Cursor) -> Result:
    folder = _address(context, cursor)
    cursor.expect("FROM")
    if cursor.peek("("):
        rows = cursor.enclosed()
    else:
        start = cursor.offset
        cursor.path()
        name = Piece.cut(context.script, start, cursor.tokens[cursor.at - 1].end + 1)
        rows = Piece.join(context.script, ["SELECT * FROM ", name])
    clauses = _clauses(cursor, {"OVERWRITE": _truth})
    result = query.run(context, rows)
    data = result.to_spark() if context.spark is not None else result.to_batches()
    exported = context.lake.export_files(
        data, folder, *clauses.pop("FILE_FORMAT"), overwrite=clauses.get("OVERWRITE", False)
    )
    return listing(_EXPORTED, [(exported.folder, len(exported.files), exported.row_count)])


def _address(context: Context, cursor: Cursor) -> str:
    """A file or folder, in reach of the statement."""
    offset, address = cursor.offset, cursor.string()
    try:
        return allowed(address, context.folders) + ("/" if address.endswith("/") else "")
    except (InvalidInput, UnsupportedFeature) as error:
        raise type(error)(f"SQL at {context.script.position(offset)}: {error}") from None


def _clauses(cursor: Cursor, readers: dict[str, Callable[[Cursor], Any]]) -> dict[str, Any]:
    """FILE_FORMAT = (...) and the clauses that are known, in any order."""
    readers = {"FILE_FORMAT": _file_format, **readers}
    values: dict[str, Any] = {}
    while not cursor.done:
        word = cursor.word()
        if word not in readers or word in values:
            cursor.fail(f"expected {', '.join(clause for clause in readers if clause not in values)}")
        cursor.expect(word)
        cursor.expect("=")
        is_enclosed = word != "FILE_FORMAT" and cursor.take("(")
        values[word] = readers[word](cursor)
        if is_enclosed:
            cursor.expect(")")
    if "FILE_FORMAT" not in values:
        cursor.fail("expected FILE_FORMAT = (TYPE = CSV | JSON | PARQUET)")
    return values


def _file_format(cursor: Cursor) -> tuple[str, dict[str, Any]]:
    offset = cursor.offset
    options: dict[str, Any] = {}

    def option() -> None:
        name = cursor.part().upper()
        cursor.expect("=")
        if name in options:
            cursor.fail(f"{name} is given twice")
        options[name] = tuple(cursor.listed(cursor.string)) if cursor.peek("(") else _value(cursor)

    cursor.listed(option)
    if "TYPE" not in options:
        raise cursor.script.invalid(offset, "FILE_FORMAT needs TYPE = CSV, JSON or PARQUET")
    return str(options.pop("TYPE")), options


def _value(cursor: Cursor) -> str:
    """A word, a number or a text."""
    if cursor.kind in _TEXTS:
        return cursor.string()
    return str(cursor.number()) if cursor.kind is TokenType.NUMBER else cursor.part()


def _pattern(cursor: Cursor) -> str:
    return cursor.string()


def _truth(cursor: Cursor) -> bool:
    at, word = cursor.offset, _value(cursor).upper()
    if word not in ("TRUE", "FALSE"):
        raise cursor.script.invalid(at, f"{word}: it is TRUE or FALSE")
    return word == "TRUE"


def _on_error(cursor: Cursor) -> str:
    at, word = cursor.offset, _value(cursor).upper()
    if word not in _ON_ERROR:
        raise cursor.script.invalid(at, f"ON_ERROR = {word}: it is one of {', '.join(_ON_ERROR)}")
    return word.lower()
