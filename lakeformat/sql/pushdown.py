"""What a query needs of each table that it reads: columns, and conditions that every row it uses fulfils.

Only what is certain is pushed: the engine evaluates the whole query anyway, over rows that a scan has left out early or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from lakeformat.codec import sql_text
from lakeformat.codec.spark_sql import to_sql
from lakeformat.errors import InvalidInput
from lakeformat.model.predicate import Expression
from lakeformat.sql import parameters
from lakeformat.sql.sources import Source

# Of these, a row alone does not say what becomes of it, or rows that are left out change what others become.
_OPAQUE = (exp.Query, exp.AggFunc, exp.Window, exp.Rand, exp.Randn, exp.Uuid, exp.Explode, exp.Anonymous, exp.Subquery)
_WHOLE = (exp.Pivot, exp.MatchRecognize, exp.QueryTransform)  # Queries with these read everything.


class Referring(Protocol):
    node: Any
    path: tuple[str, ...]
    source: Source


@dataclass(slots=True)
class Need:
    """What is needed of one reference; `columns` None: all."""

    columns: tuple[str, ...] | None = None
    conditions: list[Expression] = field(default_factory=list)


def needs(tree: Any, references: Sequence[Referring], params: Mapping[str, Any]) -> list[Need]:
    """For each reference, in their order; all of everything where the query cannot be taken apart."""
    found = [Need() for _ in references]
    if any(True for _ in tree.find_all(*_WHOLE)) or any(j.args.get("method") for j in tree.find_all(exp.Join)):
        return found
    spelt = [{name.lower(): name for name in each.source.names} for each in references]
    if any(len(names) != len(each.source.names) for names, each in zip(spelt, references, strict=True)):
        return found  # Names that differ in case alone.
    try:
        scopes, mentioned = _scopes(tree, references)
    except (SqlglotError, KeyError, AttributeError, ValueError, IndexError, RecursionError):
        return found
    conditions = _conditions(scopes)
    for place, need in enumerate(found):
        read = _read(scopes, _named(place))
        if read is None:
            continue
        named = {spelt[place].get(name.lower()) for name in read | mentioned[_named(place)]}
        if None not in named:  # Else a name that the optimizer took for a column of the table.
            need.columns = tuple(each for each in references[place].source.names if each in named)
            need.columns = need.columns or references[place].source.names[:1]
        need.conditions = [e for c in conditions.get(place, ()) if (e := _expression(c, params)) is not None]
    return found


def qualified(tree: Any, references: Sequence[Referring]) -> Any:
    """A copy of the tree with every column named by its table, the table of the reference at `place` being `_lakeformat_<place>`.
    Raises what sqlglot raises for a query that it cannot take apart."""
    schema: dict[str, dict[str, str]] = {}
    for place, each in enumerate(references):
        each.node.meta["lakeformat"] = place
        schema[_named(place)] = dict.fromkeys(each.source.names, "string")
    copied = tree.copy()
    for node in list(copied.find_all(exp.Table)):
        place = node.meta.get("lakeformat")
        if place is not None:
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
            kept = {key: node.args[key] for key in ("joins", "laterals", "sample", "pivots") if node.args.get(key)}
            node.replace(exp.Table(this=exp.to_identifier(_named(place)), alias=alias, **kept))
    how = {"expand_alias_refs": False, "validate_qualify_columns": False, "quote_identifiers": False}
    # An alias is never taken for a column that a table has: in WHERE, Spark means the column.
    return qualify(copied, schema=schema, dialect="spark", **how)


def place_of(source: Any) -> int | None:
    """Which reference a table of a qualified tree is."""
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


def _named(place: int) -> str:
    return f"_lakeformat_{place}"


def _scopes(tree: Any, references: Sequence[Referring]) -> tuple[list[Scope], dict[str, set[str]]]:
    """The scopes of the query with every column named by its table, and without what stars stand for and nobody uses; and
    the columns of each table that the text names."""
    qualified_ = qualified(tree, references)
    loose = _aliases_used(qualified_)
    before = traverse_scope(qualified_)
    # What the text names stays, used or not: the engine would take a column that is not there for an alias.
    named = {_named(place): _read(before, _named(place), "start") or set() for place in range(len(references))}
    if any(select.is_star for select in tree.find_all(exp.Select)):
        loose |= _named_outside(before) | _named_in_stars(tree)
    for place, each in enumerate(references):
        named[_named(place)] |= {name.lower() for name in each.source.names} & loose
    return traverse_scope(pushdown_projections(qualified_)), named


def _named_outside(scopes: list[Scope]) -> set[str]:
    """Names that the text gives to columns of subqueries, where these may come from a table by a star."""
    found: set[str] = set()
    for scope in scopes:
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, Scope):
                found |= {each.name.lower() for each in scope.source_columns(alias) if "start" in each.this.meta}
    return found


def _named_in_stars(tree: Any) -> set[str]:
    """`* EXCEPT (a)`, `* REPLACE (b + 1 AS b)`: columns that must be there, whether or not they are in the result."""
    parts = [
        each
        for star in tree.find_all(exp.Star)
        for key in ("except_", "replace", "rename")
        for each in star.args.get(key) or ()
    ]
    columns = {column.name.lower() for each in parts for column in each.find_all(exp.Column)}
    return columns | {each.alias_or_name.lower() for each in parts}


def _aliases_used(qualified: Any) -> set[str]:
    """Names of columns that belong to no table, since they are what a select calls its own. Raises `KeyError` for others."""
    aliases = {each.alias_or_name.lower() for select in qualified.find_all(exp.Select) for each in select.expressions}
    aliases |= {name.name.lower() for each in qualified.find_all(exp.Lambda) for name in each.expressions}
    loose = {each.name.lower() for each in qualified.find_all(exp.Column) if not each.table}
    if unknown := loose - aliases:
        raise KeyError(unknown.pop())
    return loose


def _read(scopes: list[Scope], name: str, mark: str | None = None) -> set[str] | None:
    """The columns of a table that are read anywhere, of those with `mark` only; None where the table is not to be found."""
    found: set[str] | None = None
    for scope in scopes:
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, exp.Table) and source.name == name:
                columns = scope.source_columns(alias)
                if any(isinstance(each.this, exp.Star) for each in columns) or scope.expression.is_star:
                    return None
                found = (found or set()) | {each.name for each in columns if mark is None or mark in each.this.meta}
    return found


def _conditions(scopes: list[Scope]) -> dict[int, list[Any]]:
    """Conditions by the place of the reference whose rows fulfil them."""
    found: dict[int, list[Any]] = {}
    incoming: dict[int, list[Any]] = {}
    uses = Counter(id(source) for scope in scopes for _, source in scope.selected_sources.values())
    for scope in reversed(scopes):  # Outer before inner.
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        sources = {alias: source for alias, (_, source) in scope.selected_sources.items()}
        extended = _null_extended(select, sources)
        for condition, alias in _testing(select, incoming.get(id(scope), []), extended):
            source = sources.get(alias)
            place = place_of(source)
            if place is not None and source is not None and not source.args.get("sample"):
                found.setdefault(place, []).append(condition)
            elif isinstance(source, Scope) and uses[id(source)] == 1:
                inner = _inside(condition, source.expression)
                if inner is not None:
                    incoming.setdefault(id(source), []).append(inner)
    return found


def _testing(select: Any, given: list[Any], extended: set[str]) -> Iterator[tuple[Any, str]]:
    """Conditions on one source each, with its alias, that every row of it fulfils that the select uses."""
    where = select.args.get("where")
    tests = [(each, None) for each in given]
    tests += [(each, None) for each in _conjuncts(where.this)] if where else []
    for join in select.args.get("joins") or ():
        on, side = join.args.get("on"), (join.side or "").upper()
        if on is None or (join.kind or "").upper() in ("SEMI", "ANTI") or side not in ("", "LEFT"):
            continue
        only = join.alias_or_name if side == "LEFT" else None
        tests += [(each, only) for each in _conjuncts(on)]
    for condition, only in tests:
        if isinstance(condition, _OPAQUE) or any(True for _ in condition.find_all(*_OPAQUE)):
            continue
        aliases = {each.table for each in condition.find_all(exp.Column)}
        if len(aliases) != 1:
            continue
        (alias,) = aliases
        if (alias not in extended) if only is None else alias == only:
            yield condition, alias


def _null_extended(select: Any, sources: Mapping[str, Any]) -> set[str]:
    """Aliases of sources of which an outer join makes rows of nulls."""
    from_ = select.args.get("from_")
    before = [from_.this.alias_or_name] if from_ else []
    found: set[str] = set()
    for join in select.args.get("joins") or ():
        side, alias = (join.side or "").upper(), join.alias_or_name
        if side in ("RIGHT", "FULL"):
            found |= set(before)
        if side in ("LEFT", "FULL"):
            found.add(alias)
        before.append(alias)
    return found if set(before) <= set(sources) else set(sources)


def _inside(condition: Any, select: Any) -> Any:
    """A condition on the rows of a subquery as one on the rows that it selects from; None where that is not the same."""
    if not isinstance(select, exp.Select):
        return None
    if any(select.args.get(key) for key in ("group", "having", "limit", "offset", "qualify", "laterals", "fetch")):
        return None
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        return None
    if any(True for each in select.expressions for _ in each.find_all(exp.AggFunc, exp.Window, exp.UDTF, exp.Explode)):
        return None
    given = {each.alias_or_name.lower(): each.unalias() for each in select.expressions}

    def change(node: Any) -> Any:
        if isinstance(node, exp.Column):
            inner = given.get(node.name.lower())
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
    """A condition on one table as our own scan tests it; None for one that it does not know."""

    def bare(node: Any) -> Any:
        return exp.column(node.this.copy()) if isinstance(node, exp.Column) else node

    try:
        return sql_text.read(parameters.filled(condition.transform(bare), params), condition.sql(dialect="spark"))
    except InvalidInput:
        return None
