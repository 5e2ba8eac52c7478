"""The functions whose DuckDB SQL depends on more than the types of their arguments: constants, lambda functions,
decimals, formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from lakeformat.errors import InvalidInput
from lakeformat.expression.duckdb_sql import text
from lakeformat.sql.translation import aggregates, formats, hashes, nested, numbers, texts, times
from lakeformat.sql.translation.arguments import (
    Builder,
    fixed,
)
from lakeformat.sql.translation.operands import cast, compared, shared, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    SparkType,
    decimal,
)

# --- private ----------------------------------------------------------------------------------------------------------


def _conversion(target: SparkType) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        return Typed(cast(scope.translate(nodes[0], scope), target, scope, node), target)

    return build


def _nullif(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    first = scope.translate(nodes[0], scope)
    return Typed(f"CASE WHEN {compared('=', nodes, scope).sql} THEN NULL ELSE {first.sql} END", first.type)


def _zeroifnull(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    both = [*nodes, exp.Literal.number(0)]
    type, values = shared([scope.translate(item, scope) for item in both], both, scope)
    return Typed(f"COALESCE({', '.join(values)})", type)


def _typeof(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(text(str(scope.translate(nodes[0], scope).type).lower().replace(", ", ",").replace(": ", ":")), STRING)


_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def _grouping(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    value = scope.translate(nodes[0], scope).sql
    if value not in _grouping_keys(node, "grouping", scope):
        raise scope.invalid(node, f"{shown(node)}: {shown(nodes[0])} is no key of GROUP BY")
    return Typed(f"CAST(GROUPING({value}) AS TINYINT)", TINYINT)


def _grouping_id(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    keys = _grouping_keys(node, "grouping_id", scope)
    if nodes and [scope.translate(item, scope).sql for item in nodes] != keys:
        raise scope.invalid(node, f"{shown(node)}: the arguments are the keys of GROUP BY, in order, or none")
    return Typed(f"CAST(GROUPING({', '.join(keys)}) AS BIGINT)", BIGINT)


def _grouping_keys(node: Any, name: str, scope: Scope) -> list[str]:
    """The keys of GROUP BY with several sets, each once, in the order of the text."""
    select: Any = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select is not None else None
    if group is None or group.find(*_SETS) is None:
        raise scope.invalid(node, f"{name} stands beside GROUPING SETS, ROLLUP or CUBE")
    keys: list[Any] = list(group.expressions)
    for word in ("rollup", "cube", "grouping_sets"):
        keys += group.args.get(word) or ()
    while any(isinstance(key, (*_SETS, exp.Tuple, exp.Paren)) for key in keys):
        keys = [part for key in keys for part in _parts(key)]
    if any(isinstance(key, exp.Literal) for key in keys) and any(item.is_star for item in select.expressions):
        raise scope.refuse(node, f"{name} beside positions in GROUP BY and a star in process; name the keys")
    if any(key.is_int and not 1 <= int(key.name) <= len(select.expressions) for key in keys):
        raise scope.invalid(node, f"{name}: GROUP BY has a position outside of the select list")
    keys = [select.expressions[int(key.name) - 1].unalias() if key.is_int else key for key in keys]
    return list(dict.fromkeys(_key(key, select, scope) for key in keys))


def _key(key: Any, select: Any, scope: Scope) -> str:
    """A key of GROUP BY, which may be an alias of the select list."""
    try:
        return scope.translate(key, scope).sql
    except InvalidInput:
        named = (item for item in select.expressions if isinstance(item, exp.Alias) and isinstance(key, exp.Column))
        behind = next((item.this for item in named if item.alias.casefold() == key.name.casefold()), None)
        if behind is None or key.table:
            raise
        return scope.translate(behind, scope).sql


def _parts(key: Any) -> list[Any]:
    if isinstance(key, exp.Paren):
        return [key.this]
    is_list = isinstance(key, (*_SETS, exp.Tuple))
    return list(key.expressions) if is_list else [key]


def _spread(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    raise scope.refuse(
        node, f"{shown(node)} inside another expression in process; select it by itself, or use LATERAL VIEW"
    )


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    **texts.SCALARS,
    **formats.SCALARS,
    **numbers.SCALARS,
    **times.SCALARS,
    **nested.SCALARS,
    **hashes.SCALARS,
    "nullif": (2, 2, _nullif),
    "zeroifnull": (1, 1, _zeroifnull),
    "typeof": (1, 1, _typeof),
    "uuid": (0, 0, fixed("CAST(UUID() AS VARCHAR)", STRING)),
    "grouping": (1, 1, _grouping),
    "grouping_id": (0, None, _grouping_id),
    **dict.fromkeys(("explode", "explode_outer", "posexplode", "posexplode_outer"), (1, 1, _spread)),
    **{
        name: (1, 1, _conversion(type))
        for name, type in {
            "string": STRING, "boolean": BOOLEAN, "tinyint": TINYINT, "smallint": SparkType("smallint"), "int": INT,
            "bigint": BIGINT,
            "float": FLOAT, "double": DOUBLE, "decimal": decimal(10, 0), "binary": BINARY, "date": DATE,
            "timestamp": TIMESTAMP,
        }.items()
    },
}  # fmt: skip
AGGREGATES = aggregates.AGGREGATES
