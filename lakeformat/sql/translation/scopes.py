"""The names that an expression may use: columns of the tables in FROM, aliases, variables of lambda functions, and
outer queries'."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sqlglot import exp

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression.duckdb_sql import quoted
from lakeformat.model.dataclass import dataclass
from lakeformat.sql.text import Piece
from lakeformat.sql.translation.spark_types import SparkType

Columns = tuple[tuple[str, SparkType], ...]  # Names and types, in order.


@dataclass(frozen=True, slots=True)
class Typed:
    """DuckDB SQL of an expression, and its type in Spark. `literal`: the digits of a whole number's literal."""

    sql: str
    type: SparkType
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """What stands in FROM under one alias. `path`: the parts of its name, the last of which is the alias."""

    path: tuple[str, ...]
    columns: Columns
    others: tuple[str, ...] = ()  # The table's columns that the query does not read.
    hidden: frozenset[str] = frozenset()  # Columns that `*` does not list.

    @property
    def alias(self) -> str:
        return self.path[-1]

    @property
    def listed(self) -> Columns:
        return tuple(column for column in self.columns if column[0] not in self.hidden)

    def column(self, name: str, type: SparkType) -> Typed:
        return Typed(f"{quoted(self.alias)}.{quoted(name)}", type)


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of one SELECT. `merged`: columns of USING by their names in lower case. `aliases`: of its select list,
    in lower case. `hidden`: the names of tables whose columns only conditions of a semi join may use."""

    piece: Piece
    query: Callable[[Any, Scope], tuple[str, Columns]]
    translate: Callable[[Any, Scope], Typed]
    parameter: Callable[[str], Typed]
    variants: list[tuple[str, str, str]]  # Functions that read variants, which the translation needs: see special.py.
    rows: tuple[Rows, ...] = ()
    merged: Mapping[str, Typed] = field(default_factory=dict)
    aliases: Mapping[str, Typed] = field(default_factory=dict)
    variables: Mapping[str, Typed] = field(default_factory=dict)
    ctes: Mapping[str, tuple[str, Columns]] = field(default_factory=dict)
    outer: Scope | None = None

    def invalid(self, node: Any, message: str) -> InvalidInput:
        return self.piece.script.invalid(self.piece.origin(offset(node)), message)

    def refuse(self, node: Any, message: str) -> UnsupportedFeature:
        return self.piece.script.unsupported(self.piece.origin(offset(node)), message)

    def within(self) -> Scope:
        """The scope of a subquery."""
        return replace(self, rows=(), merged={}, aliases={}, variables={}, outer=self)


def offset(node: Any) -> int:
    """Where a node begins in its text."""
    return min((n.meta["start"] for n in node.walk() if "start" in n.meta), default=0)


def column(scope: Scope, parts: Sequence[Any], has_aliases: bool = True) -> Typed:
    """The column, or the struct's field, that a dotted name means. Raises `InvalidInput` for none, and for several."""
    names = [part.name for part in parts]
    if (variable := scope.variables.get(names[0].casefold())) is not None:
        return _inside(scope, variable, parts, 1)
    where: Scope | None = scope
    while where is not None:
        if (typed := _column(where, parts, names)) is not None:
            return typed
        if has_aliases and len(names) == 1 and names[0].casefold() in where.aliases:
            return where.aliases[names[0].casefold()]
        where = where.outer
    raise _missing(scope, parts, names)


def stars(scope: Scope, alias: Any = None) -> list[tuple[str, Typed]]:
    """The columns of `*`, or of `alias.*`; those of USING come first."""
    named = [
        (name, rows.column(name, type), rows)
        for rows in scope.rows
        if alias is None or _is_named(rows, [alias.name])
        for name, type in rows.listed
    ]
    if alias is not None and not any(_is_named(rows, [alias.name]) for rows in scope.rows):
        typed = column(scope, [alias])
        if typed.type.name == "struct":
            return [(label, field_of(typed, label)) for label in typed.type.labels]
        raise scope.invalid(alias, f"no table {alias.name}")
    for rows in scope.rows:
        if alias is None or _is_named(rows, [alias.name]):
            _require_apart(scope, rows, alias)
    if alias is not None or not scope.merged:
        return [(name, typed) for name, typed, _ in named]
    first: dict[str, tuple[str, Typed]] = {}
    for name, _, _ in named:
        if name.casefold() in scope.merged:
            first.setdefault(name.casefold(), (name, scope.merged[name.casefold()]))
    return [*first.values(), *((name, typed) for name, typed, _ in named if name.casefold() not in scope.merged)]


def field_of(typed: Typed, label: str) -> Typed:
    """A struct's field of exactly this name."""
    return Typed(f"({typed.sql})[{_text(label)}]", typed.type.parts[typed.type.labels.index(label)])


def near(name: str, names: Sequence[str]) -> str:
    """The names like one, as a question; or all of a few."""
    by_case = {other.casefold(): other for other in names}
    alike = [by_case[other] for other in difflib.get_close_matches(name.casefold(), list(by_case), 3, 0.6)]
    if alike:
        return f"; did you mean {' or '.join(alike)}?"
    shown = ", ".join(list(dict.fromkeys(names))[:12])
    return f"; there are {shown}{', ...' if len(set(names)) > 12 else ''}" if shown else ""


# --- private ----------------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _is_named(rows: Rows, names: Sequence[str]) -> bool:
    """Whether a name's last parts are these."""
    path = [part.casefold() for part in rows.path]
    return path[-len(names) :] == [name.casefold() for name in names]


def _column(scope: Scope, parts: Sequence[Any], names: Sequence[str]) -> Typed | None:
    for count in range(min(len(names) - 1, 3), 0, -1):  # `db.t.a`, `t.a`: the table's name first, as in Spark.
        tables = [rows for rows in scope.rows if _is_named(rows, names[:count])]
        matches = [(rows, name, type) for rows in tables for name, type in rows.columns if _same(name, names[count])]
        if matches:
            return _inside(scope, _one(scope, parts[count], matches), parts, count + 1)
    if (merged := scope.merged.get(names[0].casefold())) is not None:
        return _inside(scope, merged, parts, 1)
    matches = [(rows, name, type) for rows in scope.rows for name, type in rows.columns if _same(name, names[0])]
    return _inside(scope, _one(scope, parts[0], matches), parts, 1) if matches else None


def _one(scope: Scope, part: Any, matches: Sequence[tuple[Rows, str, SparkType]]) -> Typed:
    if len(matches) > 1:
        could = " or ".join(f"{rows.alias}.{name}" for rows, name, _ in matches)
        raise scope.invalid(part, f"the column {part.name} is ambiguous: it could be {could}")
    ((rows, name, type),) = matches
    return rows.column(name, type)


def _require_apart(scope: Scope, rows: Rows, node: Any) -> None:
    """Refuse a star over columns whose names differ only in case, which DuckDB does not tell apart."""
    names = [name.casefold() for name, _ in rows.listed]
    twice = [name for name, _ in rows.listed if names.count(name.casefold()) > 1]
    if twice:
        raise scope.invalid(
            node or exp.Star(),
            f"{rows.alias} has columns that differ only in case, {', '.join(twice)}; name the others",
        )


def _inside(scope: Scope, typed: Typed, parts: Sequence[Any], count: int) -> Typed:
    for part in parts[count:]:
        if typed.type.name == "map":
            return Typed(f"MAP_EXTRACT({typed.sql}, {_text(part.name)})[1]", typed.type.parts[1])
        labels = [label for label in typed.type.labels if _same(label, part.name)]
        if len(labels) != 1:
            message = f"is ambiguous: it could be {' or '.join(labels)}" if labels else "does not exist"
            rest = (
                near(part.name, typed.type.labels)
                if typed.type.name == "struct"
                else f"; {parts[0].name} is {typed.type}"
            )
            raise scope.invalid(part, f"the field {part.name} {message}{'' if labels else rest}")
        typed = field_of(typed, labels[0])
    return typed


def _missing(scope: Scope, parts: Sequence[Any], names: Sequence[str]) -> InvalidInput:
    visible: list[str] = []
    where: Scope | None = scope
    while where is not None:
        tables = [rows for rows in where.rows if len(names) == 1 or _is_named(rows, names[:1])] or where.rows
        visible += [name for rows in tables for name in (*(label for label, _ in rows.columns), *rows.others)]
        visible += list(where.aliases)
        where = where.outer
    wrong = parts[1] if len(names) > 1 and any(_is_named(rows, names[:1]) for rows in scope.rows) else parts[0]
    return scope.invalid(wrong, f"no column {'.'.join(names)}{near(wrong.name, visible)}")


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
