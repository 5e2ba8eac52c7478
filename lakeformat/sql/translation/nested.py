"""Functions of arrays, maps, structs, JSON and variants, with those that take lambda functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.errors import InvalidInput
from lakeformat.expression import sql_text
from lakeformat.expression.duckdb_sql import quoted, text
from lakeformat.model.predicate import Call, Literal
from lakeformat.sql.translation import casts, patterns, spark_types
from lakeformat.sql.translation.arguments import (
    Builder,
    as_text,
    literal_text,
)
from lakeformat.sql.translation.operands import cast, shared, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BOOLEAN,
    INT,
    STRING,
    VOID,
    SparkType,
    array,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

# --- private ----------------------------------------------------------------------------------------------------------


def _array(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if not nodes:
        return Typed("CAST([] AS INTEGER[])", array(VOID))
    type, values = shared([scope.translate(item, scope) for item in nodes], nodes, scope)
    return Typed(f"CAST([{', '.join(values)}] AS {in_duckdb(array(type))})", array(type))


def _map(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if not nodes:
        return Typed("CAST(MAP([], []) AS MAP(INTEGER, INTEGER))", SparkType("map", (VOID, VOID)))
    if len(nodes) % 2:
        raise scope.invalid(node, "map takes keys and values by turns")
    keys, values = nodes[::2], nodes[1::2]
    key_type, key_values = shared([scope.translate(item, scope) for item in keys], keys, scope)
    value_type, value_values = shared([scope.translate(item, scope) for item in values], values, scope)
    type = SparkType("map", (key_type, value_type))
    if not spark_types.has_order(key_type) or key_type == VOID:
        raise scope.refuse(node, f"a map with keys of {key_type} in process; pass spark=")
    return Typed(f"CAST(MAP([{', '.join(key_values)}], [{', '.join(value_values)}]) AS {in_duckdb(type)})", type)


def _struct(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    labels, values = [], []
    for number, item in enumerate(nodes, 1):
        inner = item.this if isinstance(item, exp.Alias) else item
        name = (
            item.alias
            if isinstance(item, exp.Alias)
            else inner.name
            if isinstance(inner, exp.Column | exp.Dot | exp.Identifier)
            else ""
        )
        labels.append(name or f"col{number}")
        values.append(scope.translate(inner, scope))
    return _row(labels, values, node, scope)


def _named_struct(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if len(nodes) % 2 or not nodes:
        raise scope.invalid(node, "named_struct takes names and values by turns")
    labels = [literal_text(item, "named_struct", scope) for item in nodes[::2]]
    return _row(labels, [scope.translate(item, scope) for item in nodes[1::2]], node, scope)


def _row(labels: Sequence[str], values: Sequence[Typed], node: Any, scope: Scope) -> Typed:
    if len({label.casefold() for label in labels}) != len(labels) or not labels:
        raise scope.refuse(node, "a struct with two fields of one name, or none, in process")
    type = SparkType("struct", tuple(value.type for value in values), tuple(labels))
    fields = ", ".join(f"{quoted(label)} := {value.sql}" for label, value in zip(labels, values, strict=True))
    return Typed(f"STRUCT_PACK({fields})", type)


def _lambda(
    node: Any, types: Sequence[SparkType], scope: Scope, name: str, values: Sequence[str] = ("{0}", "{1}")
) -> tuple[list[str], Typed]:
    """A lambda function's variables in DuckDB and its value. `values`: what Spark's variables are in terms of those."""
    if not isinstance(node, exp.Lambda) or len(node.expressions) > len(types):
        raise scope.invalid(
            node, f"{name} takes a lambda function of at most {len(types)} variables, such as x -> x + 1"
        )
    depth = len(scope.variables)
    spelt = [f"_v{depth + index}" for index in range(len(node.expressions))]
    variables = {
        variable.name.casefold(): Typed(value.format(*spelt), type)
        for variable, value, type in zip(node.expressions, values, types, strict=False)
    }
    inner = replace(scope, variables={**scope.variables, **variables})
    return spelt, scope.translate(node.this, inner)


def _list(node: Any, name: str, scope: Scope) -> Typed:
    typed = scope.translate(node, scope)
    if typed.type.name != "array":
        raise scope.invalid(node, f"{name} takes an array, and {shown(node)} is {typed.type}")
    return typed


def _with_index(nodes: Sequence[Any], name: str, scope: Scope) -> tuple[Typed, str, Typed]:
    """The array, the head `lambda v, n:` and the value of transform and filter;
    Spark's index begins with 0, DuckDB's with 1."""
    values = _list(nodes[0], name, scope)
    both = ("{0}", "CAST({1} - 1 AS INTEGER)")
    variables, typed = _lambda(nodes[1], [values.type.parts[0], INT], scope, name, both)
    return values, f"lambda {', '.join(variables)}:", typed


def _transform(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values, head, typed = _with_index(nodes, "transform", scope)
    return Typed(f"LIST_TRANSFORM({values.sql}, {head} {typed.sql})", array(typed.type))


def _filter(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values, head, typed = _with_index(nodes, "filter", scope)
    _require_boolean(typed, nodes[1], scope)
    return Typed(f"LIST_FILTER({values.sql}, {head} {typed.sql})", values.type)


def _zip_with(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    left, right = (_list(item, "zip_with", scope) for item in nodes[:2])
    types = [left.type.parts[0], right.type.parts[0]]
    variables, typed = _lambda(nodes[2], types, scope, "zip_with", ("{0}[1]", "{0}[2]"))
    if len(variables) != 2:
        raise scope.invalid(nodes[2], "zip_with takes a lambda function of two variables")
    pairs = f"LIST_TRANSFORM(LIST_ZIP($x, $y), lambda {variables[0]}: {typed.sql})"
    sql = f"CASE WHEN $x IS NOT NULL AND $y IS NOT NULL THEN {pairs} END"
    return Typed(fill(sql, x=left.sql, y=right.sql), array(typed.type))


def _require_boolean(typed: Typed, node: Any, scope: Scope) -> None:
    if typed.type != BOOLEAN:
        raise scope.invalid(node, f"the lambda function gives {typed.type}, and BOOLEAN is needed")


def _any_or_all(name: str, sql: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        values = _list(nodes[0], name, scope)
        (variable,), typed = _lambda(nodes[1], [values.type.parts[0]], scope, name)
        _require_boolean(typed, nodes[1], scope)
        return Typed(fill(sql, x=f"LIST_TRANSFORM({values.sql}, lambda {variable}: {typed.sql})"), BOOLEAN)

    return build


_EXISTS = (
    "CASE WHEN $x IS NULL THEN NULL WHEN LIST_CONTAINS($x, TRUE) THEN TRUE WHEN LIST_COUNT($x) < LEN($x) "
    "THEN NULL ELSE FALSE END"
)


_FORALL = (
    "CASE WHEN $x IS NULL THEN NULL WHEN LIST_CONTAINS($x, FALSE) THEN FALSE WHEN LIST_COUNT($x) < LEN($x) "
    "THEN NULL ELSE TRUE END"
)


def _aggregate(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values, start = _list(nodes[0], "aggregate", scope), scope.translate(nodes[1], scope)
    variables, merged = _lambda(nodes[2], [start.type, values.type.parts[0]], scope, "aggregate")
    if nodes[2].find(exp.Column) is not None:  # DuckDB's list_reduce takes the values of other rows for them.
        raise scope.refuse(nodes[2], "a function that reads columns, in aggregate, in process; pass spark=")
    if merged.type != start.type or len(variables) != 2:
        raise scope.invalid(
            nodes[2], f"aggregate: the lambda function gives {merged.type}, and the start is {start.type}; cast one"
        )
    if values.type.parts[0] != start.type:
        item = casts.cast(variables[1], values.type.parts[0], start.type)
        if item is None or not casts.widens(values.type.parts[0], start.type):
            raise scope.refuse(node, f"aggregate of {values.type} to {start.type} in process; pass spark=")
        values = Typed(f"CAST({values.sql} AS {in_duckdb(array(start.type))})", array(start.type))
    made = f"LIST_REDUCE({values.sql}, lambda {', '.join(variables)}: {merged.sql}, {start.sql})"
    sql = Typed(made, start.type)
    if len(nodes) == 4:
        (variable,), finished = _lambda(nodes[3], [start.type], scope, "aggregate")
        return Typed(f"LIST_TRANSFORM([{sql.sql}], lambda {variable}: {finished.sql})[1]", finished.type)
    return sql


def _sort_array(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values = _list(nodes[0], "sort_array", scope)
    if not spark_types.has_order(values.type.parts[0]):
        raise scope.refuse(node, f"sort_array of {values.type} in process; pass spark=")
    if len(nodes) == 2 and not isinstance(nodes[1], exp.Boolean):
        raise scope.refuse(nodes[1], "sort_array by another than TRUE or FALSE in process; pass spark=")
    is_descending = len(nodes) == 2 and not nodes[1].this
    direction = "'DESC', 'NULLS LAST'" if is_descending else "'ASC', 'NULLS FIRST'"
    return Typed(f"LIST_SORT({values.sql}, {direction})", values.type)


def _sequence(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    type, values = shared([scope.translate(item, scope) for item in nodes[:2]], nodes[:2], scope)
    if not spark_types.is_integral(type):
        raise scope.refuse(node, f"sequence of {type} in process; pass spark=")
    step = (
        cast(scope.translate(nodes[2], scope), type, scope, node)
        if len(nodes) == 3
        else "CASE WHEN $x <= $y THEN 1 ELSE -1 END"
    )
    wrong = "ERROR('sequence: a step of 0, or in the wrong direction')"
    test = "$z = 0 AND $x <> $y OR $z > 0 AND $x > $y OR $z < 0 AND $x < $y"
    long = "ABS(CAST($y AS HUGEINT) - CAST($x AS HUGEINT)) > 16777216 * ABS(CAST($z AS HUGEINT))"
    start, end = values
    step = fill(step, x=start, y=end)
    template = (
        f"CASE WHEN $x IS NULL OR $y IS NULL OR $z IS NULL THEN NULL WHEN {test} THEN {wrong} WHEN $x = $y THEN [$x] "
        f"WHEN {long} THEN ERROR('in process, no array of over 16777216 elements is made') ELSE "
        "GENERATE_SERIES(CAST($x AS BIGINT), CAST($y AS BIGINT), CAST($z AS BIGINT)) END"
    )
    return Typed(f"CAST({fill(template, x=start, y=end, z=step)} AS {in_duckdb(array(type))})", array(type))


def _get_json_object(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    path = literal_text(nodes[1], "get_json_object", scope)
    if scope.translate(nodes[0], scope).type not in (STRING, VOID):
        raise scope.refuse(node, "get_json_object of another than STRING in process; cast it")
    value = as_text(nodes[0], scope)
    if not path.startswith("$"):
        return Typed(fill("CASE WHEN $x IS NULL THEN NULL END", x=f"CAST({value} AS VARCHAR)"), STRING)
    steps = patterns.json_path(path)
    if steps is None:
        raise scope.refuse(node, f"get_json_object by the path {shown(nodes[1])} in process; pass spark=")
    spelt = "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in steps)
    kind = f"JSON_TYPE(CAST($x AS JSON), {text(spelt)})"
    plain = f"JSON_EXTRACT_STRING(CAST($x AS JSON), {text(spelt)})"
    others = "ERROR('in process, get_json_object gives text, whole numbers and booleans; pass spark= for others')"
    sql = (
        f"CASE WHEN NOT JSON_VALID($x) THEN NULL WHEN {kind} IN ('VARCHAR', 'BIGINT', 'UBIGINT', 'BOOLEAN') THEN "
        f"{plain} WHEN {kind} IS NULL OR {kind} = 'NULL' THEN NULL ELSE {others} END"
    )
    return Typed(fill(sql, x=value), STRING)


def _variant_get(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """A call of our own function, one per result type; in_process.py registers it."""
    try:
        read = sql_text.read(exp.Anonymous(this="variant_get", expressions=[exp.column("v"), *nodes[1:]]), "v")
    except InvalidInput as error:
        raise scope.invalid(node, str(error)) from error
    match read:
        case Call(_, (_, Literal(path), Literal(spelt))):
            target = spark_types.of_syntax(exp.DataType.build(nodes[2].name, dialect="spark"))
            if target is not None:
                name = "_lakeformat_variant_get_" + re.sub(r"\W+", "_", str(spelt))
                scope.variants.append((name, str(spelt), in_duckdb(target)))
                return Typed(f"{name}({scope.translate(nodes[0], scope).sql}, {text(str(path))})", target)
    raise scope.refuse(node, "variant_get of this form in process; pass spark=")


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    "array": (0, None, _array),
    "map": (0, None, _map),
    "struct": (1, None, _struct),
    "named_struct": (2, None, _named_struct),
    "transform": (2, 2, _transform),
    "filter": (2, 2, _filter),
    "zip_with": (3, 3, _zip_with),
    "exists": (2, 2, _any_or_all("exists", _EXISTS)),
    "forall": (2, 2, _any_or_all("forall", _FORALL)),
    **dict.fromkeys(("aggregate", "reduce"), (3, 4, _aggregate)),
    "sort_array": (1, 2, _sort_array),
    "sequence": (2, 3, _sequence),
    "get_json_object": (2, 2, _get_json_object),
    "variant_get": (3, 3, _variant_get),
}  # fmt: skip
