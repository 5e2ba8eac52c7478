"""Lineage: the table columns that each column of a query is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.optimizer.scope import build_scope

from lakeformat.sql import pushdown
from lakeformat.sql.pushdown import Referring

Origin = tuple[str, str]  # (the table as the text names it, its column)


def origins(tree: Any, references: Sequence[Referring], columns: Sequence[str]) -> dict[str, tuple[Origin, ...]]:
    """For each of the query's `columns`, in order, the columns that its value is computed from. Conditions, grouping
    and order do not count. Empty for a query that sqlglot cannot analyse."""
    try:
        qualified = pushdown.qualified(tree, references)
        selects = qualified.selects
        if len(selects) != len(columns):
            return {}
        scope = build_scope(qualified)
        return {
            name: _origins(
                lineage(select.alias_or_name, qualified, schema={}, dialect="spark", scope=scope), references
            )
            for name, select in zip(columns, selects, strict=True)
        }
    except (SqlglotError, KeyError, AttributeError, ValueError, IndexError, RecursionError):
        return {}


# --- private ----------------------------------------------------------------------------------------------------------


def _origins(node: Any, references: Sequence[Referring]) -> tuple[Origin, ...]:
    origins: dict[Origin, None] = {}
    for step in node.walk():
        index = pushdown.place_of(step.expression)
        if index is None or isinstance(step.source, exp.Star):
            continue
        reference = references[index]
        name = step.name.rpartition(".")[2].strip('`"').lower()
        column = next((c for c in reference.source.names if c.lower() == name), None)
        if column is not None:
            origins[".".join(reference.path), column] = None
    return tuple(origins)
