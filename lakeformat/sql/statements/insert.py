"""INSERT INTO and INSERT OVERWRITE -> append, overwrite, overwrite_partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot.tokens import TokenType

from lakeformat.codec import layouts
from lakeformat.codec.arrow import fields_from_arrow, from_arrow, to_arrow
from lakeformat.engines.choose import spark_engine
from lakeformat.engines.kernels import assign, casts
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import evaluation, store
from lakeformat.expression.spark_sql import spark_type, to_sql
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Call, Column, Expression, Literal, cast, coerce, resolve
from lakeformat.model.schema import Field, Kind, Scalar, Type
from lakeformat.sql import inline, names, on_spark, parameters, query
from lakeformat.sql.result import Result, metrics
from lakeformat.sql.session import MERGE_SCHEMA, OVERWRITE_MODE, Context
from lakeformat.sql.statements import settings
from lakeformat.sql.text import Cursor, Piece
from lakeformat.table import Table

_DYNAMIC_HINT = re.compile(r"OPTIONS\s*\(\s*'dynamic-partition-overwrite'\s*=\s*'(true|false)'\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Insert:
    """A parsed INSERT."""

    table: Table
    overwrite: bool
    partition: Mapping[str, Any]  # Static values by column.
    is_dynamic: bool
    columns: tuple[str, ...] | None
    by_name: bool
    rows: Piece
    offset: int
    where: Expression | None = None  # The rows to replace.
    evolve: bool = False  # Add missing columns in a commit before; only BY NAME gives their names.


def insert(context: Context, cursor: Cursor, before: Piece | None = None) -> Result:
    """`before`: the WITH clause in front of the statement."""
    statement = read(context, cursor, before)
    data = query.rows(context, statement.rows)
    if statement.evolve:
        grow(statement.table, fields(data.schema))
    data = _columns(context, statement, data)
    if statement.where is not None:
        snapshot = statement.table.overwrite(data, where=statement.where, **context.verb)
    elif not statement.overwrite:
        snapshot = statement.table.append(data, **context.verb)
    elif statement.is_dynamic:
        snapshot = statement.table.overwrite_partitions(data, **context.verb)
    else:
        snapshot = statement.table.overwrite(data, partition=dict(statement.partition) or None, **context.verb)
    return metrics(snapshot)


def read(context: Context, cursor: Cursor, before: Piece | None = None) -> Insert:
    start = cursor.offset
    cursor.expect("INSERT")
    evolve = cursor.take("WITH SCHEMA EVOLUTION") or (context.setting(MERGE_SCHEMA) or "false").lower() == "true"
    overwrite = cursor.take("OVERWRITE")
    if not overwrite:
        cursor.expect("INTO")
    elif cursor.take("INTO"):
        pass
    cursor.take("TABLE")
    at = cursor.offset
    table = settings.with_options(context, names.table(context, cursor.path(), f"SQL at {context.script.position(at)}"))
    if cursor.take("BRANCH"):
        table = table.branch(cursor.part())
    is_dynamic = _hinted(cursor, _is_dynamic(context, table))
    static: dict[str, Any] = {}
    by_name, columns = False, None
    if cursor.take("PARTITION"):
        static = partition(context, cursor, table)
    if cursor.take("IF NOT EXISTS"):
        cursor.refuse("INSERT ... IF NOT EXISTS")
    where = None
    if not overwrite and cursor.take("REPLACE WHERE"):
        piece = cursor.until("SELECT", "WITH", "VALUES", "FROM", "TABLE")
        where = parameters.condition(inline.of_expression(context, piece) or piece, context.params)
    if cursor.take("BY NAME"):
        by_name = True
    elif cursor.peek("(") and cursor.word(1) not in ("SELECT", "WITH", "VALUES", "FROM", "(", "TABLE"):
        columns = tuple(cursor.listed(cursor.part))
    if cursor.done:
        cursor.fail("expected a query or VALUES")
    targets = [resolve((name,), table.schema.fields)[0][0] for name in columns or ()]
    targets = targets or [name for name in table.schema.names if name not in static]
    given = _defaults(cursor, table, targets) or _query(cursor)
    given = given if before is None else _with(before, given)
    return Insert(table, overwrite, static, is_dynamic, columns, by_name, given, start, where, evolve and by_name)


def fields(schema: Any) -> tuple[Field, ...]:
    """The columns of a query's rows, from a `pyarrow.Schema` or Spark's StructType."""
    return fields_from_arrow(schema) if isinstance(schema, pa.Schema) else spark_engine.fields_from_spark(schema)


def grow(table: Table, new_fields: Sequence[Field]) -> None:
    """Add the columns that the table lacks."""
    there, change = {name.casefold() for name in table.schema.names}, table.alter()
    for field in new_fields:
        if field.name.casefold() not in there:
            change = change.add_column(field.name, field.type)
    if change.changes:
        change.commit()


def default(field: Field) -> Expression:
    """A column's declared default."""
    if field.default is None or isinstance(field.default, bytes):
        return Literal(field.default)
    if not isinstance(field.type, Scalar):
        return cast(Literal(assign.default(field, 1)[0]), spark_type(field.type))
    return cast(Literal(field.default), spark_type(field.type))


def unplaced(table: Table, names: Collection[str]) -> dict[str, None]:
    """The partition columns that a list of columns leaves out, which are null then, as the connectors write them."""
    fields = (table.schema.field(name) for name in table.schema.partitioning.sources if name not in names)
    return {field.name: None for field in fields if field.nullable and field.default is None}


def filling(table: Table) -> dict[str, Field]:
    """The columns whose default a statement writes for NULL, as Paimon's engines do;
    in Iceberg tables NULL stays NULL."""
    if table.format != "paimon":
        return {}
    return {field.name: field for field in table.schema.fields if field.nullable and field.default is not None}


def filled(fills: Mapping[str, Field], values: Mapping[str, str | Expression]) -> dict[str, str | Expression]:
    """The values that a statement gives columns, with the defaults of `fills` in place of NULL."""

    def with_default(name: str, value: str | Expression) -> str | Expression:
        if name not in fills or isinstance(value, str):
            return value
        own = default(fills[name])
        return own if value in (Literal(None), own) else Call("coalesce", (value, own))

    return {name: with_default(name, value) for name, value in values.items()}


def conformed(
    value: Expression,
    target: Field,
    type_of_column: Callable[[tuple[str, ...]], Type | None] = lambda _: None,
) -> Expression:
    """An assigned value as Spark's store assignment gives it to the column. `type_of_column`: the type of a column that
    the value names, None if it is unknown."""
    if value == Literal(None) or (isinstance(value, Column) and type_of_column(value.path) == target.type):
        return value
    return Call("stored", (value, Literal(target)))


# --- private ----------------------------------------------------------------------------------------------------------


def _is_dynamic(context: Context, table: Table) -> bool:
    """Whether INSERT OVERWRITE replaces only the partitions of its rows: as the session is set, else as the table's
    option says."""
    option = table.properties.get("dynamic-partition-overwrite") if table.format == "paimon" else None
    return context.is_dynamic if option is None or context.setting(OVERWRITE_MODE) else option.lower() == "true"


def _hinted(cursor: Cursor, is_dynamic: bool) -> bool:
    """Flink's `/*+ OPTIONS('dynamic-partition-overwrite'='false') */` after the table's name."""
    comments = list(cursor.tokens[cursor.at - 1].comments)
    if cursor.kind is TokenType.HINT:
        comments += cursor.tokens[cursor.at].comments
        cursor.at += 1
    for comment in comments:
        if match := _DYNAMIC_HINT.fullmatch(comment.strip().lstrip("+").strip()):
            is_dynamic = match[1].lower() == "true"
        elif comment.strip().lstrip("+").strip().upper().startswith("OPTIONS"):
            cursor.refuse(f"the hint {comment.strip()}; supported: OPTIONS('dynamic-partition-overwrite'='...')")
    return is_dynamic


def _defaults(cursor: Cursor, table: Table, targets: Sequence[str]) -> Piece | None:
    """VALUES with the columns' defaults in place of the word DEFAULT; None for other queries."""
    words = [cursor.word(ahead) for ahead in range(len(cursor.tokens) - cursor.at)]
    if words[:1] != ["VALUES"] or "DEFAULT" not in words:
        return None
    cursor.expect("VALUES")
    fills = filling(table)
    parts: list[str | Piece] = ["VALUES "]
    while True:
        offset, values = cursor.offset, cursor.listed(lambda: cursor.until(",", ")"))
        if len(values) != len(targets):
            raise cursor.script.invalid(
                offset, f"INSERT of {len(values)} values into {len(targets)} columns: {', '.join(targets)}"
            )
        for index, (value, name) in enumerate(zip(values, targets, strict=True)):
            parts.append(", " if index else "(")
            if value.text.strip().upper() != "DEFAULT":
                parts.append(value)
            else:
                parts.append("NULL" if name in fills else _default(value, table.schema.field(name)))
        parts.append(")")
        if not cursor.take(","):
            cursor.close()
            return Piece.join(cursor.script, parts)
        parts.append(", ")


def _default(word: Piece, field: Field) -> str:
    if field.default is not None and (isinstance(field.default, bytes) or not isinstance(field.type, Scalar)):
        raise word.script.unsupported(
            word.origin(0), f"DEFAULT of {field.name!r}, {field.type}, in VALUES; leave the column out of the list"
        )
    value = None if field.default is None else coerce(field.default, field.type, f"the default of column {field.name}")
    return to_sql(Literal(value))


def _query(cursor: Cursor) -> Piece:
    """The query to insert; `TABLE t` is SELECT * FROM t."""
    if cursor.take("TABLE"):
        return Piece.join(cursor.script, ["SELECT * FROM ", cursor.rest()])
    return cursor.rest()


def _with(before: Piece, rows: Piece) -> Piece:
    if rows.text.lstrip().upper().startswith("WITH"):
        skip = len(rows.text) - len(rows.text.lstrip()) + len("WITH")
        inner = Piece(rows.script, rows.text[skip:], ((0, rows.origin(skip)),))
        return Piece.join(rows.script, [before, ",", inner])
    return Piece.join(rows.script, [before, " ", rows])


def partition(context: Context, cursor: Cursor, table: Table) -> dict[str, Any]:
    """`(dt = '2023-05-01', hh)` -> the columns with a value.
    Raises `InvalidInput` for columns that are not partition columns."""
    schema, spec = table.schema, {}
    partition_columns = schema.partitioning.columns

    def item() -> None:
        offset = cursor.offset
        name = cursor.part()
        columns = [column for column in partition_columns if column.casefold() == name.casefold()]
        if not columns:
            there = ", ".join(partition_columns) or "none"
            raise context.script.invalid(
                offset, f"{name!r} is not a partition column of {table.name}; those are: {there}"
            )
        if cursor.take("="):
            spec[columns[0]] = literal(context, cursor.until(",", ")"), schema.field(columns[0]))

    cursor.listed(item)
    return spec


def literal(context: Context, piece: Piece, field: Field) -> Any:
    """A constant as a value of a column."""
    value = parameters.constant(piece, context.params)
    if value is parameters.UNKNOWN:
        value = query.constant(context, piece)
    if (
        isinstance(field.type, Scalar)
        and field.type.kind is Kind.STRING
        and value is not None
        and not isinstance(value, str)
    ):
        value = str(value)
    return coerce(value, field.type, f"SQL at {context.script.position(piece.origin(0))}: {field.name}")


def _columns(context: Context, statement: Insert, data: Any) -> Any:
    """The query's columns under the table's names, with the static partition values."""
    fields = statement.table.schema.fields
    where = f"SQL at {context.script.position(statement.offset)}: INSERT"
    names = list(data.column_names if isinstance(data, pa.Table) else data.columns)
    static = dict(statement.partition)
    if statement.by_name:
        targets = [resolve((name,), fields)[0][0] for name in names]
    else:
        targets = [field.name for field in fields if field.name not in static]
        if statement.columns is not None:
            targets = [resolve((name,), fields)[0][0] for name in statement.columns]
        if len(targets) != len(names):
            raise InvalidInput(
                f"{where} of {len(names)} columns ({', '.join(names)}) "
                f"into {len(targets)} columns ({', '.join(targets)})"
            )
    twice = [name for name in targets if targets.count(name) > 1 or name in static]
    if twice:
        raise InvalidInput(f"{where}: column {twice[0]!r} is given twice")
    by_name, fills = {field.name: field for field in fields}, filling(statement.table)
    if statement.columns is not None or statement.by_name:
        static |= unplaced(statement.table, (*targets, *static))
    if not isinstance(data, pa.Table):
        data = on_spark.named(data, targets, {name: (value, by_name[name]) for name, value in static.items()})
        if not statement.by_name:
            data = on_spark.by_position(data, [by_name[name] for name in targets])
        data = on_spark.stored(data, [by_name[name] for name in targets])
        return on_spark.filled(data, {name: default(fills[name]) for name in targets if name in fills})
    fields_of_data = [by_name[name] for name in targets]
    if not statement.by_name:  # Structs, too: Spark does not look at the names of their fields.
        columns = [store.by_position(column, field) for column, field in zip(data.columns, fields_of_data, strict=True)]
        data = pa.Table.from_arrays(columns, names)
    data = _assigned(data, targets, fields_of_data, static, by_name)
    for index, name in enumerate(targets):
        if name in fills and data.column(index).null_count:
            batch = pa.RecordBatch.from_arrays([layouts.plain(data.column(index))], [name])
            assign.check(batch.schema, (fills[name],))
            column = assign.assign(batch, (fills[name],)).column(0)
            data = data.set_column(index, name, pc.coalesce(column, assign.default(fills[name], 1)[0]))
    return data


def _assigned(
    data: pa.Table,
    data_names: Sequence[str],
    targets: Sequence[Field],
    static: Mapping[str, Any],
    by_name: Mapping[str, Field],
) -> pa.Table:
    columns = [stored(column, target) for column, target in zip(data.columns, targets, strict=True)]
    for name, value in static.items():
        columns.append(pa.chunked_array([pa.array([value] * len(data), to_arrow(by_name[name].type))]))
    return pa.Table.from_arrays(columns, names=[*data_names, *static])


def stored(column: pa.ChunkedArray, target: Field) -> pa.ChunkedArray:
    """As `expression.store` has it; in process, the session's zone is UTC."""
    return pa.chunked_array([store.stored(_untyped(column), target, evaluation.cast)])


def _untyped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with all-NULL INT parts retyped as null: DuckDB types an untyped NULL as INT."""
    if not (pa.types.is_int32(column.type) or pa.types.is_nested(column.type)):
        return column
    try:
        column_type = from_arrow(column.type)
    except UnsupportedFeature:  # Not a type of tables; the write raises the error.
        return column
    return pa.chunked_array([casts.rebuilt(layouts.plain(column), column_type, _without_type)])


def _without_type(array: pa.Array, _: Type) -> pa.Array:
    return pa.nulls(len(array)) if pa.types.is_int32(array.type) and array.null_count == len(array) else array
