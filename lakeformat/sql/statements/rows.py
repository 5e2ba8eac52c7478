"""DELETE, UPDATE and TRUNCATE -> delete, update, truncate, drop_partitions.

The query engine evaluates conditions and values that our evaluator does not support (subqueries, other functions). They
depend only on the columns that they name, so a query first finds the distinct values of these columns, and one commit
then changes the rows with these values. Arrays, maps and floats (-0.0 equals 0.0) are compared by canonical bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakeformat.engines.choose import spark_engine
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import canonical, sql_text
from lakeformat.expression.spark_sql import quoted
from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import SOURCE, TARGET
from lakeformat.model.predicate import (
    ALWAYS,
    Call,
    Column,
    Expression,
    Literal,
    and_,
    in_tuples,
    is_in,
    is_null,
    resolve,
    wants_values,
)
from lakeformat.model.schema import Kind, Row, Scalar
from lakeformat.sql import inline, names, parameters, query, text
from lakeformat.sql.result import Result, metrics
from lakeformat.sql.session import Context
from lakeformat.sql.statements import insert, settings
from lakeformat.sql.text import Cursor, Piece
from lakeformat.table import Table

LISTED = 10_000  # Up to this many distinct values become a condition, which skips files; more, a merge.
_VOLATILE = {"rand", "random", "randn", "randstr", "shuffle", "uniform", "uuid"}
_VALUE, _KEY, _ONE = "_lakeformat_value_", "_lakeformat_key_", "_lakeformat_one"
Path = tuple[str, ...]  # A column, or a field within one.


@dataclass(frozen=True, slots=True)
class Part:
    """A value by which rows are told apart: a scalar, the bytes of a value that SQL does not tell apart, or whether a
    struct is NULL, whose fields alone do not say."""

    path: Path
    is_null: bool = False
    is_bytes: bool = False

    def sql(self, alias: str) -> str:
        path = ".".join(map(quoted, (alias, *self.path)))
        return f"({path} IS NULL)" if self.is_null else path

    @property
    def expression(self) -> Expression:
        column = Column((TARGET, *self.path))
        return is_null(column) if self.is_null else Call("canonical", (column,)) if self.is_bytes else column


@dataclass(frozen=True, slots=True)
class Target:
    """The table that a statement changes, as its text names it."""

    table: Table
    named: Piece
    alias: str
    qualifiers: tuple[tuple[str, ...], ...]  # Qualifiers of its columns, in lower case; longest first.
    has_alias: bool = False  # Whether the text gives the alias.

    @property
    def in_from(self) -> list[str | Piece]:
        """The table as it stands in FROM."""
        return [self.named, " AS ", quoted(self.alias)] if self.has_alias else [self.named]


def delete(context: Context, cursor: Cursor) -> Result:
    cursor.expect("DELETE")
    if not cursor.take("FROM"):
        cursor.fail("expected FROM")
    on = target(context, cursor, ("WHERE", "USING"))
    if cursor.peek("USING"):
        cursor.refuse("DELETE ... USING; write WHERE EXISTS (SELECT ...), or MERGE INTO ... WHEN MATCHED THEN DELETE")
    if cursor.done:
        return metrics(on.table.delete(ALWAYS, spark=context.spark, **context.verb))
    cursor.expect("WHERE")
    where = cursor.until()
    cursor.close()
    condition = evaluable(context, where, on)
    if condition is None:
        keys, matches = _evaluated(context, on, {}, where)
        condition = _listed(keys, matches)
        if condition is None:
            merge = on.table.merge_into(matches, _same(keys)).when_matched().delete()
            return metrics(merge.merge(spark=context.spark, **context.verb))
    return metrics(on.table.delete(condition, spark=context.spark, **context.verb))


def update(context: Context, cursor: Cursor) -> Result:
    cursor.expect("UPDATE")
    on = target(context, cursor, ("SET",))
    cursor.expect("SET")
    pieces = assignments(context, cursor, on, ("WHERE",))
    where = cursor.until() if cursor.take("WHERE") else None
    cursor.close()
    condition = ALWAYS if where is None else evaluable(context, where, on)
    values = {name: assigned(context, piece, on, name) for name, piece in pieces.items()}
    unknown = [name for name, value in values.items() if value is None]
    fills = insert.filling(on.table)
    if condition is None or unknown:
        keys, matches = _evaluated(context, on, {name: pieces[name] for name in unknown}, where)
        condition = None if unknown else _listed(keys, matches)
        if condition is None:
            sided: dict[str, str | Expression] = {
                name: _on_target(value) for name, value in values.items() if value is not None
            }
            sided |= {
                name: insert.conformed(Column((SOURCE, f"{_VALUE}{index}")), on.table.schema.field(name))
                for index, name in enumerate(unknown)
            }
            merge = on.table.merge_into(matches, _same(keys)).when_matched().update(insert.filled(fills, sided))
            return metrics(merge.merge(spark=context.spark, **context.verb))
    known_ = insert.filled(fills, {name: value for name, value in values.items() if value is not None})
    where_ = None if condition == ALWAYS else condition
    return metrics(on.table.update(known_, where_, spark=context.spark, **context.verb))


def truncate(context: Context, cursor: Cursor) -> Result:
    cursor.expect("TRUNCATE")
    cursor.expect("TABLE")
    at = cursor.offset
    table = settings.with_options(context, names.table(context, cursor.path(), f"SQL at {context.script.position(at)}"))
    if cursor.take("PARTITION"):
        spec = insert.partition(context, cursor, table)
        cursor.close()
        return metrics(table.drop_partitions([spec], **context.verb))
    cursor.close()
    return metrics(table.truncate(**context.verb))


def target(context: Context, cursor: Cursor, stops: Sequence[str]) -> Target:
    """The table to change, with its alias."""
    offset = cursor.offset
    path = cursor.path()
    named = Piece.cut(context.script, offset, cursor.tokens[cursor.at - 1].end + 1)
    table = settings.with_options(context, names.table(context, path, f"SQL at {context.script.position(offset)}"))
    if cursor.take("AS") or not (cursor.done or cursor.word() in stops):
        alias = cursor.part()
        return Target(table, named, alias, ((alias.casefold(),),), has_alias=True)
    folded = tuple(part.casefold() for part in path)
    ends = sorted({folded, folded[-1:]}, key=len, reverse=True)
    return Target(table, named, path[-1], tuple(ends))


def assignments(context: Context, cursor: Cursor, on: Target, stops: Sequence[str]) -> dict[str, Piece]:
    """`a = 1, t.b = c + 1` -> the table's columns with their new values."""
    pieces: dict[str, Piece] = {}
    parts: dict[tuple[str, ...], Piece] = {}  # of columns
    while True:
        offset = cursor.offset
        path = cursor.path()
        folded = tuple(part.casefold() for part in path)
        for qualifier in on.qualifiers:
            if len(path) > len(qualifier) and folded[: len(qualifier)] == qualifier:
                path = path[len(qualifier) :]
                break
        spelt = resolve(path, on.table.schema.fields)[0]
        name = spelt[0]
        if name in pieces or any(spelt[: len(p)] == p or p[: len(spelt)] == spelt for p in parts):
            raise context.script.invalid(offset, f"column {'.'.join(spelt)!r} is assigned twice")
        cursor.expect("=")
        value = cursor.until(",", *stops)
        if len(spelt) > 1:
            parts[spelt] = value
        else:
            pieces[name] = value
        if not cursor.take(","):
            break
    for name in dict.fromkeys(path[0] for path in parts):
        inner = {path[1:]: value for path, value in parts.items() if path[0] == name}
        pieces[name] = _rebuilt(context, on, (name,), on.table.schema.field(name).type, inner, offset)
    return pieces


def _rebuilt(
    context: Context, on: Target, path: tuple[str, ...], type: Any, parts: dict[tuple[str, ...], Piece], offset: int
) -> Piece:
    """The text of a struct with some fields set and the others unchanged."""
    if not isinstance(type, Row):
        raise context.script.unsupported(
            offset, f"assignment to a part of {'.'.join(path)}, which is not a STRUCT; assign it whole"
        )
    pieces: list[str | Piece] = ["named_struct("]
    for index, field in enumerate(type.fields):
        inner = {p[1:]: value for p, value in parts.items() if p[0] == field.name}
        name = field.name.replace("\\", "\\\\").replace("'", "\\'")
        pieces.append(f"{', ' if index else ''}'{name}', ")
        if () in inner:
            pieces.append(inner[()])
        elif inner:
            pieces.append(_rebuilt(context, on, (*path, field.name), field.type, inner, offset))
        else:
            pieces.append(".".join(quoted(part) for part in (on.alias, *path, field.name)))
    return Piece.join(context.script, [*pieces, ")"])


def assigned(context: Context, piece: Piece, on: Target, column: str) -> Expression | None:
    """A column's new value; None if our evaluator does not support it."""
    if piece.text.strip().upper() == "DEFAULT":
        return insert.default(on.table.schema.field(column))
    value, fields = evaluable(context, piece, on), on.table.schema.fields
    if value is None:
        return None
    return insert.conformed(value, on.table.schema.field(column), lambda path: resolve(path, fields)[1])


def evaluable(context: Context, piece: Piece, on: Target) -> Expression | None:
    """An expression over the table's columns; None if our evaluator does not support it: an unknown function, a column
    where it takes only a constant, a subquery."""
    inlined = inline.of_expression(context, piece)
    if inlined is None:
        return None
    node = parameters.marked(text.expression(inlined))
    for name in parameters.used(node):
        parameters.value(context.params, name)
    if any(True for _ in node.find_all(exp.Query)):
        return None
    try:
        value = sql_text.read(
            parameters.filled(text.requalified(node, dict.fromkeys(on.qualifiers, ())), context.params), piece.text
        )
    except InvalidInput:
        return None
    return None if wants_values(value) else value


def require_repeatable(piece: Piece) -> None:
    """Raise `UnsupportedFeature` for a function that gives another value each time, outside of subqueries: rows that
    are equal in the named columns could not differ."""
    whole = text.expression(piece)
    nested = {id(call) for subquery in whole.find_all(exp.Query) for call in subquery.find_all(exp.Func)}
    for node in whole.find_all(exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        if name.lower() in _VOLATILE and id(node) not in nested:
            raise piece.script.unsupported(
                piece.origin(0),
                f"{name.lower()}() gives another value each time, and which rows change, and to what, would not be "
                "known; compute the values in a query, and MERGE its rows",
            )


def identity(table: Table, columns: Sequence[str], prefix: str) -> dict[str, Part]:
    """What tells the rows apart whose change depends on `columns`: source column, which begins with `prefix` -> the
    part of the table's row. In tables with a key, the key and scalar columns."""
    key, fields = table.schema.primary_key, {field.name: field for field in table.schema.fields}
    if strange := [name for name in columns if name not in fields]:
        raise UnsupportedFeature(
            f"{table.name}: a change of rows by the hidden column {strange[0]}, which says where a row lies now; "
            "name columns of the table"
        )
    if key and not all(isinstance(fields[name].type, Scalar) for name in columns):
        columns = ()
    names = dict.fromkeys((*key, *columns))
    parts = [part for name in names for part in _parts((name,), fields[name].type)]
    if key:  # Which tells rows apart as it is.
        parts = [replace(part, is_bytes=False) for part in parts]
    return {f"{prefix}{index}": part for index, part in enumerate(parts)}


def by_bytes(table: Table, keys: Mapping[str, Part], assigned: Iterable[str] = ()) -> bool:
    """Whether SQL may not tell apart the values of the keys, and of what is `assigned`."""
    types = (table.schema.field(name).type for name in assigned)
    values = (part for type in types for part in _parts((), type))
    return any(part.is_bytes for part in (*keys.values(), *values))


def apart(matches: Any, keys: Mapping[str, Part]) -> Any:
    """The distinct rows of a table or Spark DataFrame, with keys as bytes."""
    names = [name for name, part in keys.items() if part.is_bytes]
    return canonical.apart(matches, names) if isinstance(matches, pa.Table) else spark_engine.apart(matches, names)


# --- private ----------------------------------------------------------------------------------------------------------


def _evaluated(
    context: Context, on: Target, assigned: Mapping[str, Piece], where: Piece | None
) -> tuple[dict[str, Part], Any]:
    """The matching columns (source column -> the part of the table's row), and the source: the distinct values of these
    columns in the rows to change, with the new values."""
    for piece in (*assigned.values(), *([] if where is None else [where])):
        require_repeatable(piece)
    behind: list[str | Piece] = [" FROM ", *on.in_from]
    behind += [] if where is None else [" WHERE ", where]
    listed: list[str | Piece] = []
    for index, value in enumerate(assigned.values()):
        listed += ["(", value, f") AS {_VALUE}{index}, "]
    script = context.script
    tried = query.prepare(context, Piece.join(script, ["SELECT ", *listed, "1 AS one", *behind]))
    first = next(
        reference for reference in tried.references if tried.piece.origin(reference.start) == on.named.origin(0)
    )
    keys = identity(on.table, first.source.names, _KEY)
    keys = {part.path[0] if _is_column(part) else name: part for name, part in keys.items()}
    uses_bytes = by_bytes(on.table, keys, assigned)
    chosen = "".join(f"{part.sql(on.alias)} AS {quoted(key)}, " for key, part in keys.items())
    distinct = "" if uses_bytes else "DISTINCT "
    result = query.rows(context, Piece.join(script, [f"SELECT {distinct}", *listed, chosen, f"1 AS {_ONE}", *behind]))
    result = result.drop_columns([_ONE]) if isinstance(result, pa.Table) else result.drop(_ONE)
    return keys, apart(result, keys) if uses_bytes else result


def _is_column(part: Part) -> bool:
    """Whether it is a scalar column, which a condition can name."""
    return len(part.path) == 1 and not (part.is_null or part.is_bytes)


def _parts(path: Path, type: Any) -> Iterator[Part]:
    """What tells values of a column apart: itself, or of a struct whether it is NULL and its fields."""
    if isinstance(type, Row):
        yield Part(path, is_null=True)
        for field in type.fields:
            yield from _parts((*path, field.name), field.type)
    else:
        yield Part(path, is_bytes=not isinstance(type, Scalar) or type.kind in (Kind.FLOAT, Kind.DOUBLE))


def _listed(keys: Mapping[str, Part], matches: Any) -> Expression | None:
    """A condition that selects the rows with these values. None if there are too many values, a null among them (the
    condition would not match it), or a type that a condition cannot list."""
    rows = matches if isinstance(matches, pa.Table) else matches.limit(LISTED + 1).toArrow()
    if len(rows) > LISTED:
        return None
    if not all(map(_is_column, keys.values())):
        return None
    columns = tuple(keys)
    for name in columns:
        kind = rows[name].type
        plain = (
            pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind)
        )
        if not plain or rows[name].null_count:
            return None
    if len(columns) == 1:
        return is_in(columns[0], rows[columns[0]].to_pylist())
    return in_tuples(columns, [tuple(row.values()) for row in rows.select(list(columns)).to_pylist()])


def _same(keys: Mapping[str, Part]) -> Expression:
    """The condition that matches a table row and a source row by their values."""
    return and_(*(Call("eq_null_safe", (part.expression, Column((SOURCE, key)))) for key, part in keys.items()))


def _on_target(value: Expression) -> Expression:
    """An expression over the table's columns, with the columns qualified by the target side."""
    match value:
        case Column(path):
            return Column((TARGET, *path))
        case Call(name, given):
            return Call(name, tuple(_on_target(value) for value in given))
        case Literal():
            return value
    raise InvalidInput(f"{value!r} is not an expression")
