"""Columns, types, properties and transforms as CREATE and ALTER spell them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot.tokens import TokenType

from lakeformat.engines.kernels import nested_text
from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import NO_ID, Field, Scalar, Type
from lakeformat.model.type_text import parse_type
from lakeformat.sql import parameters, query
from lakeformat.sql.session import Context
from lakeformat.sql.text import Cursor, Piece

_ENDS = {"NOT", "NULL", "COMMENT", "DEFAULT", "FIRST", "AFTER", "GENERATED", "PRIMARY", ",", ")", "AS", ";"}


@dataclass(frozen=True, slots=True)
class Declared:
    """One column's declaration."""

    path: tuple[str, ...]
    type: Type
    nullable: bool = True
    comment: str | None = None
    default: str | None = None
    first: bool = False
    after: str | None = None

    @property
    def field(self) -> Field:
        return Field(NO_ID, self.path[-1], self.type, self.nullable, self.comment, self.default)


def column(context: Context, cursor: Cursor, flink: bool = False) -> Declared:
    """`a.b INT NOT NULL DEFAULT 1 COMMENT 'text' AFTER c`."""
    path = cursor.path()
    attributes: dict[str, Any] = {"path": path, "type": type_(context, cursor, flink)}
    while not cursor.done and not cursor.peek(",") and not cursor.peek(")"):
        if cursor.take("NOT NULL"):
            attributes["nullable"] = False
        elif cursor.take("NULL"):
            pass
        elif cursor.take("COMMENT"):
            attributes["comment"] = cursor.string()
        elif cursor.take("DEFAULT"):
            piece = cursor.until(",", ")", "COMMENT", "NOT", "FIRST", "AFTER")
            attributes["default"] = default(context, piece, attributes["type"])
        elif cursor.take("FIRST"):
            attributes["first"] = True
        elif cursor.take("AFTER"):
            attributes["after"] = cursor.path()[-1]
        elif cursor.peek("GENERATED") or cursor.peek("PRIMARY"):
            cursor.refuse(f"{cursor.word()} behind a column; a key is said by 'primary-key' in TBLPROPERTIES")
        else:
            break
    return Declared(**attributes)


def type_(context: Context, cursor: Cursor, flink: bool = False, ends: Sequence[str] = ()) -> Type:
    """A type in Spark's spelling: TIMESTAMP is an instant. In Flink's CREATE TABLE ... WITH it has no time zone.
    `ends`: words that end it beside those that end a column's type."""
    start, depth, first = cursor.offset, 0, cursor.at
    words = []
    while not cursor.done:
        token, word = cursor.tokens[cursor.at], cursor.word()
        if depth <= 0 and (
            word in _ENDS or word in ends or (cursor.at > first and token.token_type is TokenType.STRING)
        ):
            break
        words.append(context.script.original[token.start : token.end + 1])
        if word == "TIMESTAMP" and not flink and cursor.word(1) != "WITH" and cursor.word(3) != "LOCAL":
            words[-1] = "timestamp_ltz"
        if token.token_type is not TokenType.STRING and token.token_type is not TokenType.IDENTIFIER:
            depth += sum(c in "<(" for c in token.text) - sum(c in ">)" for c in token.text)
        cursor.at += 1
    if cursor.at == first:
        cursor.fail("expected a type")
    try:
        return parse_type(" ".join(words))
    except InvalidInput as error:
        raise context.script.invalid(start, str(error)) from error


def default(context: Context, piece: Piece, type: Type | None) -> str | None:
    """A default value of a type as text, as the library stores it; that of an array,
    map or struct as Paimon reads it."""
    value = parameters.constant(piece, context.params)
    is_nested = type is not None and not isinstance(type, Scalar)
    try:
        if value is parameters.UNKNOWN:
            result = query.scalar(context, piece)
            is_nested |= pa.types.is_nested(result.type)
            value = nested_text.emit(result) if pa.types.is_nested(result.type) and result.is_valid else result.as_py()
        if value is None:
            return None
        if type is not None and is_nested:
            nested_text.parse(str(value), type, "DEFAULT")
    except InvalidInput as error:
        raise context.script.invalid(piece.origin(0), f"a DEFAULT of {piece.text.strip()}: {error}") from error
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat(" ") if isinstance(value, dt.datetime) else str(value)


def require_kept(context: Context, format: str, fields: Sequence[Field], offset: int) -> None:
    """Refuse defaults that the format cannot keep."""
    nested = [field for field in fields if field.default is not None and not isinstance(field.type, Scalar)]
    if nested and format == "iceberg":
        raise context.script.unsupported(
            offset,
            f"column {nested[0].name!r} has a DEFAULT of {nested[0].type}, which SQL gives Paimon tables only; in "
            "Python, add_column(..., default=) takes the JSON of Iceberg's specification",
        )


def properties(cursor: Cursor) -> dict[str, str]:
    """`('a' = 'b', c.d = 1)`."""

    def item() -> tuple[str, str]:
        name = key(cursor)
        if not cursor.take("="):
            cursor.fail("expected =")
        if cursor.kind is TokenType.STRING:
            return name, cursor.string()
        return name, cursor.until(",", ")").text.strip()

    return dict(cursor.listed(item))


def key(cursor: Cursor) -> str:
    """A property's name: quoted, or words joined by dots and dashes."""
    if cursor.kind is TokenType.STRING:
        return cursor.string()
    return cursor.until("=", ",", ")").text.strip().strip("`")


def transform(cursor: Cursor) -> str:
    """`days(ts)`, `bucket(16, id)`, `truncate(name, 4)` -> an item of `partition_by`."""
    name = cursor.part() if not cursor.peek("(") else ""
    if not cursor.peek("("):
        path = [name]
        while cursor.take("."):
            path.append(cursor.part())
        return ".".join(path)

    def item() -> str:
        if cursor.kind is TokenType.NUMBER:
            return str(cursor.number())
        return ".".join(cursor.path())

    arguments = cursor.listed(item)
    if len(arguments) == 2 and arguments[1].isdecimal():
        arguments.reverse()
    return f"{name.lower()}({', '.join(arguments)})"
