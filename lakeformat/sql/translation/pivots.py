"""PIVOT and UNPIVOT as grouped aggregates and as lists of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from lakeformat.expression.duckdb_sql import quoted, text
from lakeformat.sql.titles import titled
from lakeformat.sql.translation import spark_types
from lakeformat.sql.translation.operands import cast, shown
from lakeformat.sql.translation.scopes import Columns, Scope, Typed
from lakeformat.sql.translation.spark_types import BOOLEAN, STRING, VOID


def pivoted(pivot: Any, columns: Columns, source: str, scope: Scope) -> tuple[str, Columns]:
    """DuckDB SQL and the columns of a PIVOT or UNPIVOT of `source`, whose columns are those of the scope."""
    if len(pivot.args["fields"]) != 1 or not isinstance(pivot.args["fields"][0], exp.In):
        raise scope.refuse(pivot, f"{shown(pivot)} in process; pass spark=")
    if pivot.args.get("unpivot"):
        return _unpivoted(pivot, columns, source, scope)
    (field,) = pivot.args["fields"]
    keys = field.this.expressions if isinstance(field.this, exp.Tuple) else [field.this]
    aggregates = [(node.unalias(), node.alias) for node in pivot.expressions]
    named = {column.name.casefold() for node in (*keys, *pivot.expressions) for column in node.find_all(exp.Column)}
    rest = [(name, type) for name, type in columns if name.casefold() not in named]
    if apart := [name for name, type in rest if not spark_types.has_order(type)]:
        raise scope.refuse(pivot, f"PIVOT beside the column {apart[0]}, whose type has no order, in process")
    listed = [f"{scope.translate(exp.column(name, quoted=True), scope).sql} AS {quoted(name)}" for name, _ in rest]
    outputs: list[tuple[str, Any]] = []
    for value in field.expressions:
        condition = _is(keys, value, scope)
        label = value.alias if isinstance(value, exp.PivotAlias) else _label(value, scope)
        for node, alias in aggregates:
            name = label if len(aggregates) == 1 else f"{label}_{alias or titled(node)}"
            typed = _of_group(node, condition, scope)
            outputs.append((name, typed.type))
            listed.append(f"{typed.sql} AS {quoted(name)}")
    keys_sql = f" GROUP BY {', '.join(map(str, range(1, len(rest) + 1)))}" if rest else ""
    return f"SELECT {', '.join(listed)} FROM {source}{keys_sql}", (*rest, *outputs)


# --- private ----------------------------------------------------------------------------------------------------------


def _is(keys: Sequence[Any], value: Any, scope: Scope) -> Any:
    """The condition that the columns have a value of the IN list."""
    inner = value.this if isinstance(value, exp.PivotAlias) else value
    values = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
    if len(values) != len(keys) or any(part.find(exp.Column, exp.AggFunc, exp.Query) for part in values):
        raise scope.invalid(value, f"{shown(inner)}: PIVOT takes one constant for each column after FOR")
    for key, part in zip(keys, values, strict=True):
        column, constant = scope.translate(key, scope).type, scope.translate(part, scope).type
        if (
            constant != VOID
            and column != constant
            and not (spark_types.is_integral(column) and spark_types.is_integral(constant))
        ):
            raise scope.refuse(part, f"PIVOT of {column} by {constant} in process; cast the column in a subquery")
    tests = [exp.NullSafeEQ(this=key.copy(), expression=part.copy()) for key, part in zip(keys, values, strict=True)]
    return exp.and_(*tests, copy=False)


def _label(value: Any, scope: Scope) -> str:
    """The name that Spark gives a value without an alias."""
    if isinstance(value, exp.Tuple):
        return f"{{{', '.join(_label(part, scope) for part in value.expressions)}}}"
    sign, literal = ("-", value.this) if isinstance(value, exp.Neg) else ("", value)
    if isinstance(literal, exp.Literal) and (literal.is_string or literal.name.isdecimal()):
        return sign + str(literal.this)
    if isinstance(literal, exp.Boolean):
        return str(literal.this).lower()
    raise scope.refuse(value, f"the value {shown(value)} of PIVOT without an alias in process; give it one")


def _of_group(node: Any, condition: Any, scope: Scope) -> Typed:
    """An aggregate over the rows that meet a condition: null where there are none, also for a count."""
    if not isinstance(node, exp.AggFunc | exp.Anonymous):
        raise scope.refuse(node, f"{shown(node)} in PIVOT in process: it takes calls of aggregate functions")
    filtered = exp.Filter(this=node.copy(), expression=exp.Where(this=condition.copy()))
    typed = scope.translate(filtered, scope)
    if not (spark_types.is_number(typed.type) or typed.type == BOOLEAN or node.name.lower() in ("max", "min")):
        raise scope.refuse(node, f"PIVOT of {typed.type} by {shown(node)} in process; pass spark=")
    test = scope.translate(condition, scope).sql
    return Typed(f"CASE WHEN COUNT(*) FILTER (WHERE {test}) > 0 THEN {typed.sql} END", typed.type)


def _unpivoted(pivot: Any, columns: Columns, source: str, scope: Scope) -> tuple[str, Columns]:
    (field,), (into,) = pivot.args["fields"], pivot.expressions
    labels = [part.name for part in (into.expressions if isinstance(into, exp.Tuple) else [into])]
    groups: list[tuple[str, list[Any]]] = []
    for value in field.expressions:
        inner = value.this if isinstance(value, exp.PivotAlias) else value
        nodes = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        if len(nodes) != len(labels) or not all(isinstance(node, exp.Column) for node in nodes):
            raise scope.invalid(value, f"{shown(inner)}: UNPIVOT takes {len(labels)} of the columns here")
        groups.append((value.alias if isinstance(value, exp.PivotAlias) else "_".join(n.name for n in nodes), nodes))
    named = {node.name.casefold() for _, nodes in groups for node in nodes}
    rest = [(name, type) for name, type in columns if name.casefold() not in named]
    types = []
    for nodes in zip(*(nodes for _, nodes in groups), strict=True):
        kinds = tuple(scope.translate(node, scope).type for node in nodes)
        type = spark_types.common(kinds)
        if type is None or (STRING in kinds and len(set(kinds)) > 1):
            raise scope.refuse(
                nodes[0], f"UNPIVOT of columns of the types {', '.join(map(str, kinds))}; cast them to one"
            )
        types.append(type)
    items = []
    for label, nodes in groups:
        values = [
            cast(scope.translate(node, scope), type, scope, node) for node, type in zip(nodes, types, strict=True)
        ]
        fields = [f"_n := {text(label)}", *(f"_v{number} := {sql}" for number, sql in enumerate(values))]
        items.append(f"STRUCT_PACK({', '.join(fields)})")
    listed = [
        f"{scope.translate(exp.column(name, quoted=True), scope).sql} AS _c{number}"
        for number, (name, _) in enumerate(rest)
    ]
    listed.append(f"UNNEST([{', '.join(items)}]) AS _u")
    inner_sql = f"SELECT {', '.join(listed)} FROM {source}"
    outputs = [(name, f"_c{number}") for number, (name, _) in enumerate(rest)]
    outputs += [(field.this.name, "_u._n"), *((label, f"_u._v{number}") for number, label in enumerate(labels))]
    chosen = ", ".join(f"{value} AS {quoted(name)}" for name, value in outputs)
    sql = f"SELECT {chosen} FROM ({inner_sql}) AS _unpivoted"
    if not pivot.args.get("include_nulls"):
        sql += f" WHERE {' OR '.join(f'_u._v{number} IS NOT NULL' for number in range(len(labels)))}"
    return sql, (*rest, (field.this.name, STRING), *zip(labels, types, strict=True))
