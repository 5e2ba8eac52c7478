"""Queries on Spark: the user's own text, with our frames in place of the tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from lakeformat.engines.choose import spark_engine
from lakeformat.errors import InvalidInput
from lakeformat.expression import store
from lakeformat.expression.spark_sql import quoted, spark_type, to_sql
from lakeformat.model.partition import TransformKind
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import Field, Kind, Scalar
from lakeformat.sql import parameters, text, transforms
from lakeformat.sql.prepared import Query
from lakeformat.sql.session import Context
from lakeformat.sql.translation.scopes import near

# Functions of Spark that reach beyond the query's tables, and the reason for refusing them.
_OUTSIDE = {
    "identifier": "makes a name of a text, also one of files; write the name itself",
    "stream": "reads what no table of this warehouse is; write the table's name",
    "table": "hands tables to functions by names of Spark's own; pass a subquery's columns",
    "reflect": "calls any method of Java",
    "try_reflect": "calls any method of Java",
    "java_method": "calls any method of Java",
    "from_protobuf": "may read a file; decode the column with the DataFrame's own function",
    "to_protobuf": "may read a file; encode the column with the DataFrame's own function",
    "input_file_name": "gives names of files, which are not the table's; see `table.inspect.files()`",
    "input_file_block_start": "gives places in files, which are not the table's",
    "input_file_block_length": "gives places in files, which are not the table's",
}


_UNRESOLVED = re.compile(r"\[UNRESOLVED_COLUMN\.\w+\].* with name (?P<name>`.*`) cannot be resolved")
# Places in the text that Spark got, where frames stand in place of tables.
_IN_SPLICED = re.compile(r";? line \d+,? pos \d+;?$| ?\(line \d+, pos \d+\)")


def frame(context: Context, query: Query) -> Any:
    """The query as a Spark DataFrame. Raises `InvalidInput` with Spark's message if Spark cannot analyse it, and
    `UnsupportedFeature` if it reaches files, programs or Java methods."""
    _require_inside(query)
    frames = {_name(index): reference.source.frame(context.spark) for index, reference in enumerate(query.references)}
    values = {name: parameters.value(context.params, name) for name in parameters.used(query.tree)}
    transform_calls = _transforms(query)
    if transform_calls:
        spark_engine.transforms.register_transforms(
            context.spark, {name: (kind, type) for *_, name, kind, type in transform_calls}
        )
    try:
        result = context.spark.sql(spliced(query), args=values or None, **frames)
        result.schema  # noqa: B018 - Connect reports errors only when the plan is analysed.
    except Exception as error:
        if type(error).__module__.startswith("pyspark.errors"):
            sentence = next((line for line in str(error).split("\n") if line.strip()), type(error).__name__)
            index = context.script.position(query.piece.origin(_place(query, error)))
            message = _unresolved(query, sentence) or f"Spark says: {_IN_SPLICED.sub('', sentence)}"
            raise InvalidInput(f"SQL at {index}: {message}") from error
        raise
    return result


def spliced(query: Query) -> str:
    """The text with `{frame}` for each table, the user's own braces doubled, and `?` as named parameters. Without a
    table there is no frame, and Spark then takes the text as it is."""
    original = query.piece.text.replace(text.DOLLAR, "$")
    double = _doubled if query.references else str
    edits = [
        (reference.start, reference.end, "{" + _name(index) + "}" + _alias(reference))
        for index, reference in enumerate(query.references)
    ]
    edits += _shortened(query)
    edits += [(start, end, name) for start, end, name, *_ in _transforms(query)]
    for token in text.tokens(query.piece):
        mark = text.question_mark(token.text) if token.token_type is TokenType.VAR else None
        if mark is not None:
            edits.append((token.start, token.end + 1, f":_{mark}"))
    pieces, position = [], 0
    for start, end, new in sorted(edits):
        assert start >= position, (query.piece.text, edits)
        pieces += [double(original[position:start]), new]
        position = end
    return "".join(pieces) + double(original[position:])


def named(data: Any, columns: list[str], static: Mapping[str, tuple[Any, Field]]) -> Any:
    """A frame with its columns renamed, and constant columns added."""
    result = data.toDF(*columns) if columns else data
    if not static:
        return result
    functions = import_module("pyspark.sql.functions")
    for name, (value, field) in static.items():
        result = result.withColumn(name, functions.lit(value).cast(spark_type(field.type)))
    return result


def by_position(data: Any, targets: Sequence[Field]) -> Any:
    """A frame with the fields of structs in its first columns called as those of `targets` in the same places."""
    functions = import_module("pyspark.sql.functions")
    for column, target in zip(spark_engine.fields_from_spark(data.schema), targets, strict=False):
        labelled = store.labelled(column.type, target.type)
        if labelled != column.type:
            data = data.withColumn(column.name, functions.col(quoted(column.name)).cast(spark_type(labelled)))
    return data


def stored(data: Any, targets: Sequence[Field]) -> Any:
    """A frame with its first columns cast as Spark's store assignment casts them to `targets`. Without ANSI mode, where
    a cast changes values that do not fit, it is unchanged."""
    if str(data.sparkSession.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        return data
    functions = import_module("pyspark.sql.functions")
    for column, target in zip(spark_engine.fields_from_spark(data.schema), targets, strict=False):
        if column.type != target.type and store.is_cast(column.type, target.type):
            is_text = isinstance(target.type, Scalar) and target.type.kind in (Kind.CHAR, Kind.VARCHAR)
            cast = functions.col(quoted(column.name)).cast("STRING" if is_text else spark_type(target.type))
            data = data.withColumn(column.name, cast)
    return data


def filled(data: Any, values: Mapping[str, Expression]) -> Any:
    """A frame with these values in place of nulls."""
    functions = import_module("pyspark.sql.functions")
    for name, value in values.items():
        column = functions.coalesce(functions.col(quoted(name)), functions.expr(to_sql(value)))
        data = data.withColumn(name, column)
    return data


# --- private ----------------------------------------------------------------------------------------------------------


def _require_inside(query: Query) -> None:
    script, before = query.piece.script, ""
    for token, following in pairwise(text.tokens(query.piece)):
        name = token.text.lower()
        if name in _OUTSIDE and following.text == "(" and token.token_type is not TokenType.STRING:
            raise script.unsupported(query.piece.origin(token.start), f"{name}(...) {_OUTSIDE[name]}")
        if token.token_type is TokenType.USING and following.text != "(" and before != "as":
            said = "TRANSFORM ... USING runs a program; map the DataFrame instead (to_spark())"
            raise script.unsupported(query.piece.origin(token.start), said)
        before = name


def _unresolved(query: Query, sentence: str) -> str | None:
    """For Spark's sentence on an unknown column, ours: Spark can only suggest columns that the query needs."""
    match = _UNRESOLVED.search(sentence)
    if match is None:
        return None
    columns = [name for reference in query.references for name in reference.names]
    name = match["name"].replace("`", "")
    return f"no column {name}{near(name.rpartition('.')[2], columns)}"


def _place(query: Query, error: Any) -> int:
    """Where in the text the fragment stands that Spark complains about; the start if that is not known."""
    contexts: list[Any] = getattr(error, "getQueryContext", list)() or []
    fragments = [fragment for fragment in (getattr(entry, "fragment", str)() for entry in contexts) if fragment]
    for fragment in fragments[:1]:
        places = [match.start() for match in re.finditer(rf"(?<!\w){re.escape(fragment)}(?!\w)", query.piece.text)]
        if len(places) == 1:  # Of several, the place in the spliced text does not say which.
            return places[0]
    return 0


def _name(position: int) -> str:
    return f"_lakeformat_{position}"


def _doubled(part: str) -> str:
    return part.replace("{", "{{").replace("}", "}}")


def _alias(reference: Any) -> str:
    """An alias for the table where the user gave none, so that columns can be qualified by its name."""
    # With TABLESAMPLE, Spark accepts the alias only after it.
    if reference.node.args.get("alias") or reference.node.args.get("sample"):
        return ""
    return " AS " + quoted(reference.path[-1]).replace("{", "{{").replace("}", "}}")


def _shortened(query: Query) -> list[tuple[int, int, str]]:
    """`shop.orders.id` -> `orders.id`: drop the qualifiers of the table's name."""
    qualified_names = {
        tuple(p.casefold() for p in reference.path) for reference in query.references if len(reference.path) > 1
    }
    edits = []
    for column in query.tree.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        for count in range(len(parts) - 1, 1, -1):
            if tuple(p.name.casefold() for p in parts[:count]) in qualified_names and "start" in parts[0].meta:
                edits.append((parts[0].meta["start"], parts[count - 1].meta["start"], ""))
                break
    return edits


def _transforms(query: Query) -> list[tuple[int, int, str, TransformKind, str]]:
    """The calls of partition transforms: where `catalog.system.bucket` is in the text, the function's name in the
    session, the transform and its result type."""
    calls = []
    for node, kind in transforms.calls(query.tree):
        first = node.this
        while isinstance(first, exp.Dot):
            first = first.this
        of = {TransformKind.DAY: "DATE", TransformKind.TRUNCATE: _type(query, node)}.get(kind, "INT")
        start, function = next(n.meta["start"] for n in first.walk() if "start" in n.meta), node.expression
        end = function.meta["start"] + len(function.name)
        calls.append((start, end, transforms.name_of(kind, of if kind is TransformKind.TRUNCATE else ""), kind, of))
    return calls


def _type(query: Query, node: Any) -> str:
    """The type of the last argument of a call, which Spark's functions of Python have to declare for their result."""
    value = node.expression.expressions[-1] if node.expression.expressions else None
    while isinstance(value, exp.Paren | exp.Neg):
        value = value.this
    match value:
        case exp.Null():
            return "INT"
        case exp.Literal():
            if value.is_string:
                return "STRING"
            if value.name.isdecimal():
                return "INT" if int(value.name) < 2**31 else "BIGINT"
        case exp.HexString():
            return "BINARY"
        case exp.Cast():
            return value.to.sql(dialect="spark")
        case exp.Column():
            types = {kind for reference in query.references for kind in _types(reference, value)}
            if len(types) == 1:
                return types.pop()
    offset = query.piece.origin(node.expression.meta["start"])
    raise query.piece.script.unsupported(
        offset, "system.truncate of this expression on Spark: cast it, system.truncate(n, CAST(x AS type))"
    )


def _types(reference: Any, column: Any) -> list[str]:
    """The type of a column in the rows of a reference, if it is a column of theirs."""
    if column.table and column.table.casefold() != (reference.node.alias or reference.path[-1]).casefold():
        return []
    return [spark_type(t) for name, t in reference.source.types.items() if name.casefold() == column.name.casefold()]
