"""The functions whose DuckDB SQL depends on more than the types of their arguments: constants, lambda functions,
decimals, formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from lakeformat.expression.duckdb_sql import text
from lakeformat.sql.translation import aggregates, nested, numbers, texts, times
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


def _grouping(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(f"CAST(GROUPING({scope.translate(nodes[0], scope).sql}) AS TINYINT)", TINYINT)


def _spread(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    raise scope.refuse(
        node, f"{shown(node)} inside another expression in process; select it by itself, or use LATERAL VIEW"
    )


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    **texts.SCALARS,
    **numbers.SCALARS,
    **times.SCALARS,
    **nested.SCALARS,
    "nullif": (2, 2, _nullif),
    "zeroifnull": (1, 1, _zeroifnull),
    "typeof": (1, 1, _typeof),
    "uuid": (0, 0, fixed("CAST(UUID() AS VARCHAR)", STRING)),
    "grouping": (1, 1, _grouping),
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
