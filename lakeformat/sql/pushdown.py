"""The columns that a query reads of each table, and the conditions that all rows it uses meet.

Only safe conditions are pushed down: the engine evaluates the whole query anyway, whether or not the scan skipped rows.
One that may raise an error is pushed only with all those on its table that are tested before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from lakeformat.codec.arrow import fields_from_arrow, to_arrow
from lakeformat.errors import InvalidInput
from lakeformat.expression import sql_text, totality
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression, bind
from lakeformat.sql import parameters, text
from lakeformat.sql.sources import Source

# The value of these depends on more than one row, or skipping rows changes the values of others.
_OPAQUE = (exp.Query, exp.AggFunc, exp.Window, exp.Rand, exp.Randn, exp.Uuid, exp.Explode, exp.Anonymous, exp.Subquery)
_WHOLE = (exp.Pivot, exp.MatchRecognize, exp.QueryTransform)  # Queries with these read all columns and rows.


class Referring(Protocol):
    node: Any
    path: tuple[str, ...]
    source: Source


@dataclass(slots=True)
class Need:
    """The columns and conditions of one reference, in the order in which they are tested. `columns` None: all columns;
    a condition None: one that scans do not support."""

    columns: tuple[str, ...] | None = None
    conditions: list[Expression | None] = field(default_factory=list)


def needs(tree: Any, references: Sequence[Referring], params: Mapping[str, Any]) -> list[Need]:
    """One `Need` per reference, in order; all columns and rows if the query cannot be analysed."""
    needed = [Need() for _ in references]
    if any(True for _ in tree.find_all(*_WHOLE)) or any(j.args.get("method") for j in tree.find_all(exp.Join)):
        return needed
    spelt = [{name.lower(): name for name in reference.source.names} for reference in references]
    if any(len(names) != len(reference.source.names) for names, reference in zip(spelt, references, strict=True)):
        return needed  # Columns whose names differ only in case.
    try:
        scopes, mentioned = _scopes(tree, references)
    except (SqlglotError, KeyError, AttributeError, ValueError, IndexError, RecursionError):
        return needed
    conditions = _conditions(scopes)
    for index, need in enumerate(needed):
        read = _read(scopes, _named(index))
        if read is None:
            continue
        named = {spelt[index].get(name.lower()) for name in read | mentioned[_named(index)]}
        if None not in named:  # Else the optimizer took another name for a column of the table.
            need.columns = tuple(name for name in references[index].source.names if name in named)
            need.columns = need.columns or references[index].source.names[:1]
        need.conditions = [None if c is None else _expression(c, params) for c in conditions.get(index, ())]
    return needed


def is_total(condition: Expression, source: Source) -> bool:
    """Whether a condition raises an error for no row of the source, so that no other need be tested before it."""
    schema = pa.schema([(name, to_arrow(type)) for name, type in source.types.items()])
    return totality.is_total(bind(condition, fields_from_arrow(schema)), schema.empty_table())


def qualified(tree: Any, references: Sequence[Referring]) -> Any:
    """A copy of the tree with every column qualified by its table; the table of reference `index` is named
    `_lakeformat_<place>`. Raises sqlglot's errors for a query that sqlglot cannot analyse."""
    schema: dict[str, dict[str, str]] = {}
    for index, reference in enumerate(references):
        reference.node.meta["lakeformat"] = index
        schema[_named(index)] = dict.fromkeys(reference.source.names, "string")
    # sqlglot takes the first parts of `db.t.column.field` for more than a table's name.
    long = [r.path for r in references if len(r.path) > 1 and not r.node.args.get("alias")]
    copied = text.requalified(tree, {tuple(map(str.casefold, path)): path[-1:] for path in long})
    for node in list(copied.find_all(exp.Table)):
        index = node.meta.get("lakeformat")
        if index is not None:
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
            kept = {key: node.args[key] for key in ("joins", "laterals", "sample", "pivots") if node.args.get(key)}
            node.replace(exp.Table(this=exp.to_identifier(_named(index)), alias=alias, **kept))
    how = {"expand_alias_refs": False, "validate_qualify_columns": False, "quote_identifiers": False}
    # Do not expand aliases that are also columns: in WHERE, Spark means the column.
    return qualify(copied, schema=schema, dialect="spark", **how)


def place_of(source: Any) -> int | None:
    """The index of the reference that a table of a qualified tree stands for."""
    if not isinstance(source, exp.Table) or not source.name.startswith("_lakeformat_"):
        return None
    return int(source.name.removeprefix("_lakeformat_"))


def shown(condition: Expression) -> str:
    """A condition as text."""
    try:
        return to_sql(condition)
    except InvalidInput:
        return "..."


# --- private ----------------------------------------------------------------------------------------------------------


def _named(position: int) -> str:
    return f"_lakeformat_{position}"


def _scopes(tree: Any, references: Sequence[Referring]) -> tuple[list[Scope], dict[str, set[str]]]:
    """The scopes of the query with qualified columns and without unused columns of stars, and the columns of each table
    that the text names."""
    qualified_ = qualified(tree, references)
    loose = _aliases_used(qualified_)
    before = traverse_scope(qualified_)
    # Keep each column that the text names, used or not: if it were missing,
    # the engine would take the name for an alias.
    named = {_named(index): _read(before, _named(index), "start") or set() for index in range(len(references))}
    if any(select.is_star for select in tree.find_all(exp.Select)):
        loose |= _named_outside(before) | _named_in_stars(tree)
    for index, reference in enumerate(references):
        named[_named(index)] |= {name.lower() for name in reference.source.names} & loose
    return traverse_scope(pushdown_projections(qualified_)), named


def _named_outside(scopes: list[Scope]) -> set[str]:
    """Names by which the text reads columns of subqueries, which may come from a table through a star."""
    names: set[str] = set()
    for scope in scopes:
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, Scope):
                names |= {column.name.lower() for column in scope.source_columns(alias) if "start" in column.this.meta}
    return names


def _named_in_stars(tree: Any) -> set[str]:
    """The columns of `* EXCEPT (a)` and `* REPLACE (b + 1 AS b)`: they must exist even if the result lacks them."""
    parts = [
        part
        for star in tree.find_all(exp.Star)
        for key in ("except_", "replace", "rename")
        for part in star.args.get(key) or ()
    ]
    columns = {column.name.lower() for part in parts for column in part.find_all(exp.Column)}
    return columns | {part.alias_or_name.lower() for part in parts}


def _aliases_used(qualified: Any) -> set[str]:
    """Unqualified column names, each an alias of a select or a lambda's parameter. Raises `KeyError` for any other."""
    aliases = {
        expression.alias_or_name.lower()
        for select in qualified.find_all(exp.Select)
        for expression in select.expressions
    }
    aliases |= {name.name.lower() for inner in qualified.find_all(exp.Lambda) for name in inner.expressions}
    loose = {column.name.lower() for column in qualified.find_all(exp.Column) if not column.table}
    if unknown := loose - aliases:
        raise KeyError(unknown.pop())
    return loose


def _read(scopes: list[Scope], name: str, mark: str | None = None) -> set[str] | None:
    """The columns of a table that any scope reads; with `mark`, only columns with that metadata. None if the table is
    not found or a star reads it."""
    names: set[str] | None = None
    for scope in scopes:
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, exp.Table) and source.name == name:
                columns = scope.source_columns(alias)
                if any(isinstance(column.this, exp.Star) for column in columns) or scope.expression.is_star:
                    return None
                names = (names or set()) | {
                    column.name for column in columns if mark is None or mark in column.this.meta
                }
    return names


def _conditions(scopes: list[Scope]) -> dict[int, list[Any]]:
    """Conditions by the index of the reference whose rows meet them; None for one with an unknown function."""
    by_source: dict[int, list[Any]] = {}
    incoming: dict[int, list[Any]] = {}
    uses = Counter(id(source) for scope in scopes for _, source in scope.selected_sources.values())
    for scope in reversed(scopes):  # Outer scopes before inner ones.
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        sources = {alias: source for alias, (_, source) in scope.selected_sources.items()}
        extended = _null_extended(select, sources)
        for condition, alias in _testing(select, incoming.get(id(scope), []), extended):
            source = sources.get(alias)
            position = place_of(source)
            if condition is None:
                if position is not None:
                    by_source.setdefault(position, []).append(None)
            elif position is not None and source is not None and not source.args.get("sample"):
                by_source.setdefault(position, []).append(condition)
            elif isinstance(source, Scope) and uses[id(source)] == 1:
                inner = _inside(condition, source.expression)
                if inner is not None:
                    incoming.setdefault(id(source), []).append(inner)
    return by_source


def _testing(select: Any, conditions: list[Any], extended: set[str]) -> Iterator[tuple[Any, str]]:
    """(condition, alias): conditions on a single source that all rows used by the select meet, in the order in which
    they are tested; None for one with an unknown function."""
    where = select.args.get("where")
    tests = [(conjunct, None) for conjunct in _conjuncts(where.this)] if where else []
    tests += [(condition, None) for condition in conditions]
    for join in select.args.get("joins") or ():
        on, side = join.args.get("on"), (join.side or "").upper()
        if on is None or (join.kind or "").upper() in ("SEMI", "ANTI") or side not in ("", "LEFT"):
            continue
        only = join.alias_or_name if side == "LEFT" else None
        tests += [(conjunct, only) for conjunct in _conjuncts(on)]
    for condition, only in tests:
        opaque = {type(node) for node in condition.find_all(*_OPAQUE)}
        if opaque - {exp.Anonymous}:
            continue
        aliases = {column.table for column in condition.find_all(exp.Column)}
        if len(aliases) != 1:
            continue
        (alias,) = aliases
        if (alias not in extended) if only is None else alias == only:
            yield None if opaque else condition, alias


def _null_extended(select: Any, sources: Mapping[str, Any]) -> set[str]:
    """Aliases of sources that an outer join may extend with null rows."""
    from_ = select.args.get("from_")
    before = [from_.this.alias_or_name] if from_ else []
    extended: set[str] = set()
    for join in select.args.get("joins") or ():
        side, alias = (join.side or "").upper(), join.alias_or_name
        if side in ("RIGHT", "FULL"):
            extended |= set(before)
        if side in ("LEFT", "FULL"):
            extended.add(alias)
        before.append(alias)
    return extended if set(before) <= set(sources) else set(sources)


def _inside(condition: Any, select: Any) -> Any:
    """A condition on a subquery's rows as a condition on its input rows; None where the two are not equivalent."""
    if not isinstance(select, exp.Select):
        return None
    if any(select.args.get(key) for key in ("group", "having", "limit", "offset", "qualify", "laterals", "fetch")):
        return None
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        return None
    if any(
        True
        for expression in select.expressions
        for _ in expression.find_all(exp.AggFunc, exp.Window, exp.UDTF, exp.Explode)
    ):
        return None
    outputs = {expression.alias_or_name.lower(): expression.unalias() for expression in select.expressions}

    def change(node: Any) -> Any:
        if isinstance(node, exp.Column):
            inner = outputs.get(node.name.lower())
            if not isinstance(inner, exp.Column):
                raise KeyError(node.name)
            return inner.copy()
        return node

    try:
        return condition.transform(change)
    except KeyError:
        return None


def _conjuncts(condition: Any) -> list[Any]:
    condition = condition.unnest()
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _expression(condition: Any, params: Mapping[str, Any]) -> Expression | None:
    """A condition on one table as an expression for our scan; None if the scan does not support it."""

    def bare(node: Any) -> Any:
        return exp.column(node.this.copy()) if isinstance(node, exp.Column) else node

    try:
        return sql_text.read(parameters.filled(condition.transform(bare), params), condition.sql(dialect="spark"))
    except InvalidInput:
        return None
