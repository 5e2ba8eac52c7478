"""A query of Spark -> DuckDB SQL, with the names and types that its columns have in Spark."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sqlglot import exp

from lakeformat.expression.duckdb_sql import quoted
from lakeformat.model.dataclass import dataclass
from lakeformat.sql import parameters
from lakeformat.sql.text import Piece
from lakeformat.sql.titles import titled
from lakeformat.sql.translation import calls, expressions, pivots, scopes, signatures, spark_types, special
from lakeformat.sql.translation.operands import cast, condition, shown
from lakeformat.sql.translation.scopes import Columns, Rows, Scope, Typed
from lakeformat.sql.translation.spark_types import BIGINT, INT, SparkType, in_duckdb
from lakeformat.sql.translation.templates import fill

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_REFUSED = {
    "pivots": "PIVOT",
    "match": "MATCH_RECOGNIZE",
    "kind": "SELECT AS STRUCT",
    "into": "SELECT INTO",
    "prewhere": "PREWHERE",
    "connect": "CONNECT BY",
    "fetch": "FETCH",
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """DuckDB SQL, the values of its parameters, its columns, and the functions that read variants: (name, type,
    DuckDB's type)."""

    sql: str
    values: Mapping[str, Any]
    columns: Columns
    variants: tuple[tuple[str, str, str], ...]


def translated(tree: Any, piece: Piece, tables: Mapping[int, Rows], params: Mapping[str, Any]) -> Translated:
    """Translate a query. `tables`: what stands at these offsets of the text. Raises `InvalidInput` for names and types
    that do not fit, and `UnsupportedFeature` for what is not known to mean the same in process,
    with the place in the text."""
    values: dict[str, Any] = {}

    _spell_texts(tree)
    scope = Scope(piece, _Query(tables).query, expressions.translated, partial(_parameter, params, values), [])
    sql, columns = scope.query(tree, scope)
    values = {key: value for key, value in values.items() if f"${key} " in sql}
    return Translated(sql, values, columns, tuple(scope.variants))


# --- private ----------------------------------------------------------------------------------------------------------


def _spell_texts(tree: Any) -> None:
    """Literals in place of `CAST(X'..' AS STRING)`, by which `to_sql` spells text, whatever Spark's settings."""
    for node in list(tree.find_all(exp.Cast)):
        if isinstance(node.this, exp.HexString) and spark_types.of_syntax(node.to) == spark_types.STRING:
            with suppress(ValueError):
                node.replace(exp.Literal.string(bytes.fromhex(str(node.this.this)).decode()))


def _parameter(params: Mapping[str, Any], values: dict[str, Any], name: str) -> Typed:
    value = parameters.value(params, name)
    type = parameters.type_of(name, value)
    key = f"lakeformat_{zlib.crc32(name.encode())}"
    values[key] = value
    return Typed(f"CAST(${key} AS {in_duckdb(type)})", type)


@dataclass(frozen=True, slots=True)
class _Query:
    """The translation of queries in each other. `tables`: by the offset of their names in the text."""

    tables: Mapping[int, Rows]

    def query(self, node: Any, scope: Scope) -> tuple[str, Columns]:
        """DuckDB SQL of a query, and its columns."""
        head, scope = self._with(node, scope)
        match node:
            case exp.Subquery():
                sql, columns = self.query(node.this, scope)
                sql, columns = self._ended(f"SELECT * FROM ({sql}) AS _q", columns, node, scope)
            case exp.SetOperation():
                sql, columns = self._both(node, scope)
                sql, columns = self._ended(sql, columns, node, scope)
            case exp.Select():
                sql, columns = self._select(node, scope)
            case exp.Values():
                rows, source = self._values(node, scope)
                sql, columns = f"SELECT * FROM {source}", rows.columns
            case exp.Table():
                tables, source = self._source(node, scope, ())
                sql, columns = f"SELECT * FROM {source}", tables[-1].columns
            case _:
                raise scope.refuse(node, f"{shown(node)} in process; pass spark=")
        return head + sql, columns

    def _with(self, node: Any, scope: Scope) -> tuple[str, Scope]:
        """WITH, and the scope with its names."""
        with_ = node.args.get("with_")
        if with_ is None:
            return "", scope
        parts, ctes, is_recursive = [], dict(scope.ctes), bool(with_.args.get("recursive"))
        for number, item in enumerate(with_.expressions):
            name = f"_cte_{len(ctes)}_{number}"
            inner = replace(scope, ctes=dict(ctes))
            labels = [column.name for column in (item.args["alias"].columns or ())]
            if is_recursive and isinstance(item.this, exp.SetOperation):
                _, first = self.query(item.this.this.copy(), inner)
                first = _relabelled(first, labels, item, scope)
                inner = replace(inner, ctes={**ctes, item.alias.casefold(): (name, first)})
            sql, columns = self.query(item.this, inner)
            columns = _relabelled(columns, labels, item, scope)
            listed = ", ".join(quoted(label) for label, _ in columns)
            parts.append(f"{name}({listed}) AS ({sql})")
            ctes[item.alias.casefold()] = (name, columns)
        return f"WITH {'RECURSIVE ' if is_recursive else ''}{', '.join(parts)} ", replace(scope, ctes=ctes)

    def _both(self, node: Any, scope: Scope) -> tuple[str, Columns]:
        """UNION, INTERSECT, EXCEPT: both sides in the types that their columns have in common."""
        if node.args.get("by_name") or node.args.get("side") or node.args.get("on"):
            raise scope.refuse(node, "UNION BY NAME in process; pass spark=")
        sides = [self.query(side, scope) for side in (node.this, node.expression)]
        (_, left), (_, right) = sides
        if len(left) != len(right):
            raise scope.invalid(node.expression, f"{node.key.upper()} of {len(left)} and {len(right)} columns")
        types = []
        for (name, one), (_, other) in zip(left, right, strict=True):
            type = spark_types.common((one, other))
            if type is None:
                raise scope.invalid(
                    node.expression, f"{node.key.upper()}: column {name} is {one} and {other}; cast one"
                )
            types.append(type)
        is_all = not node.args.get("distinct")
        if not (is_all and isinstance(node, exp.Union)) and not all(map(_is_apart, types)):
            raise scope.refuse(node, f"{node.key.upper()} of these types in process; pass spark=")
        parts = [_cast_columns(sql, columns, types, node, scope) for sql, columns in sides]
        word = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}[type_of(node)]
        names = [name for name, _ in left]
        return f"({parts[0]}) {word}{' ALL' if is_all else ''} ({parts[1]})", tuple(zip(names, types, strict=True))

    def _ended(self, sql: str, columns: Columns, node: Any, scope: Scope) -> tuple[str, Columns]:
        """ORDER BY, LIMIT and OFFSET of a set operation or a query in parentheses."""
        aliases = {name.casefold(): (index, type) for index, (name, type) in enumerate(columns)}
        order = []
        for item in _ordered(node, scope):
            expression = item.this if isinstance(item, exp.Ordered) else item
            index = _position(expression, len(columns), scope)
            name = (
                expression.name.casefold() if isinstance(expression, exp.Column) and len(expression.parts) == 1 else ""
            )
            if index is None and name not in aliases:
                raise scope.refuse(item, "ORDER BY of another than a column's name behind a set operation in process")
            index = aliases[name][0] if index is None else index
            order.append(calls.ordered(Typed(str(index + 1), columns[index][1]), item, scope))
        if order:
            sql += f" ORDER BY {', '.join(order)}"
        return sql + _limit(node, scope), columns

    def _select(self, node: Any, scope: Scope) -> tuple[str, Columns]:
        for key, word in _REFUSED.items():
            if node.args.get(key):
                raise scope.refuse(node, f"{word} in process; pass spark=")
        inner, source = self._from(node, scope)
        windows = _windows(node, inner)
        where = node.args.get("where")
        if where is not None:
            _require_no_aggregate(where.this, "WHERE", inner)
            source += f" WHERE {condition(where.this, inner)}"
        items, inner = self._items(node, inner)
        if not items:
            raise scope.invalid(node, "SELECT lists no column")
        sql = ", ".join(f"{typed.sql} AS {quoted(name)}" for name, typed in items)
        columns = tuple((name, typed.type) for name, typed in items)
        distinct = node.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on"):
                raise scope.refuse(node, "DISTINCT ON")
            if not all(_is_apart(type) for _, type in columns):
                raise scope.refuse(node, "DISTINCT of these types in process; pass spark=")
        sql = f"SELECT {'DISTINCT ' if distinct is not None else ''}{sql}{source}"
        sql += self._group(node, items, inner)
        if (having := node.args.get("having")) is not None:
            sql += f" HAVING {condition(having.this, inner)}"
        sql += windows
        if (qualify := node.args.get("qualify")) is not None:
            sql += f" QUALIFY {condition(qualify.this, inner)}"
        order = [_order(item, items, inner, distinct is not None) for item in _ordered(node, scope)]
        if order:
            sql += f" ORDER BY {', '.join(order)}"
        return sql + _limit(node, inner), columns

    def _items(self, node: Any, scope: Scope) -> tuple[list[tuple[str, Typed]], Scope]:
        """The select list with its stars expanded, and the scope with its aliases."""
        items: list[tuple[str, Typed]] = []
        aliases: dict[str, Typed] = {}
        spread = 0
        for expression in node.expressions:
            inner = replace(scope, aliases=dict(aliases))
            if (generated := _generated(expression, inner)) is not None:
                items += generated
                spread += 1
                continue
            star = expression.this if isinstance(expression, exp.Column) else expression
            if isinstance(star, exp.Star):
                alias = expression.args.get("table") if isinstance(expression, exp.Column) else None
                items += _starred(star, scopes.stars(scope, alias), inner)
                continue
            value = expression.this if isinstance(expression, exp.Alias) else expression
            typed = scope.translate(value, inner)
            name = expression.alias if isinstance(expression, exp.Alias) else _name(value, inner)
            items.append((name, typed))
            if isinstance(expression, exp.Alias):
                aliases.setdefault(name.casefold(), typed)
        if spread > 1:
            raise scope.invalid(node, "SELECT has one explode at most")
        return items, replace(scope, aliases=aliases)

    def _group(self, node: Any, items: Sequence[tuple[str, Typed]], scope: Scope) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        if group.args.get("all"):
            return " GROUP BY ALL"
        parts = [_key(item, items, scope) for item in group.expressions if not isinstance(item, _SETS)]
        sets = [item for item in group.expressions if isinstance(item, _SETS)]
        for key in ("rollup", "cube", "grouping_sets"):
            sets += group.args.get(key) or ()
        for item in sets:
            word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(item), "GROUPING SETS")
            inner = ", ".join(
                (_set if word == "GROUPING SETS" else _key)(part, items, scope) for part in item.expressions
            )
            if word == "GROUPING SETS" or not inner:  # In Spark the columns before are those of the sets.
                parts = [f"{word} ({inner or ', '.join(parts)})"]
            else:
                parts.append(f"{word} ({inner})")
        if group.args.get("totals"):
            raise scope.refuse(node, "GROUP BY WITH TOTALS")
        return f" GROUP BY {', '.join(parts)}"

    # FROM.

    def _from(self, node: Any, scope: Scope) -> tuple[Scope, str]:
        """The scope of a SELECT, and DuckDB SQL of its FROM."""
        from_ = node.args.get("from_")
        inner = replace(
            scope, rows=(), merged={}, aliases={}, variables={}, outer=scope if scope.rows or scope.outer else None
        )
        if from_ is None:
            return inner, ""
        inner, source = self._joined(from_.this, node, inner)
        return inner, f" FROM {source}"

    def _joined(self, first: Any, node: Any, scope: Scope) -> tuple[Scope, str]:
        """A table with the joins and lateral views of a node behind it."""
        rows, source = self._source(first, scope, ())
        scope = replace(scope, rows=(*scope.rows, *rows))
        for join in node.args.get("joins") or ():
            scope, source = self._join(join, scope, source)
        for lateral in node.args.get("laterals") or ():
            scope, source = self._lateral_view(lateral, scope, source)
        return scope, source

    def _join(self, join: Any, scope: Scope, left: str) -> tuple[Scope, str]:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        method = (join.args.get("method") or "").upper()
        if method not in ("", "NATURAL") or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            raise scope.refuse(join, f"{method or kind} JOIN in process; pass spark=")
        if join.args.get("pivots") or join.args.get("match_condition"):
            raise scope.refuse(join, f"{shown(join)} in process; pass spark=")
        before = scope.rows
        is_lateral = isinstance(join.this, exp.Lateral)
        rows, source = self._source(join.this, scope if is_lateral else replace(scope, rows=()), before)
        known = [table.alias.casefold() for table in before]
        for table in rows:
            if table.alias.casefold() in known:
                raise scope.refuse(join, f"two tables named {table.alias} in process; give each an alias")
        both = replace(scope, rows=(*before, *rows))
        names = [identifier.name for identifier in join.args.get("using") or ()]
        if method:
            names = _common_names(replace(scope, rows=before), replace(scope, rows=rows))
        on, tests = join.args.get("on"), []
        merged = dict(scope.merged)
        for name in names:
            pair = [
                _side(name, replace(scope, rows=before), join),
                _side(name, replace(scope, rows=rows, merged={}), join),
            ]
            test, value = _equal(pair, side, join, scope)
            tests.append(test)
            merged[name.casefold()] = value
        if on is not None and not (isinstance(on, exp.Boolean) and on.this):
            tests.append(condition(on, both))
        word = "SEMI JOIN" if kind == "SEMI" else "ANTI JOIN" if kind == "ANTI" else f"{side} JOIN".strip()
        lateral = "LATERAL " if is_lateral else ""
        if not tests:
            tests = ["TRUE"]
        source = f"{left} {word} {lateral}{source} ON {' AND '.join(tests)}"
        if kind in ("SEMI", "ANTI"):
            return scope, source
        return replace(both, merged=merged if names or scope.merged else {}), source

    def _source(self, node: Any, scope: Scope, before: Sequence[Rows]) -> tuple[tuple[Rows, ...], str]:
        """What stands in FROM: (its tables, DuckDB SQL)."""
        if node.args.get("joins") or (node.args.get("laterals") and not isinstance(node, exp.Select)):
            bare = node.copy()
            joined = replace(scope, rows=(), merged={})
            for key in ("joins", "laterals"):
                bare.set(key, None)
            holder = exp.Select(joins=node.args.get("joins"), laterals=node.args.get("laterals"))
            inner, source = self._joined(bare, holder, joined)
            if isinstance(node, exp.Subquery) and node.alias:
                raise scope.refuse(node, "an alias of joined tables in process")
            return inner.rows, f"({source})" if len(inner.rows) > 1 else source
        if node.args.get("pivots"):
            bare = node.copy()
            bare.set("pivots", None)
            (rows,), source = self._source(bare, scope, before)
            for pivot in node.args["pivots"]:
                sql, columns = pivots.pivoted(
                    pivot, rows.listed, source, replace(scope, rows=(rows,), merged={}, aliases={})
                )
                rows, source = _aliased(pivot, columns, f"({sql})", scope, rows.alias)
            return (rows,), source
        sample = _sample(node, scope)
        match node:
            case exp.Table():
                rows, source = self._table(node, scope)
            case exp.Values():
                rows, source = self._values(node, scope)
            case exp.Lateral():
                sql, columns = self._lateral(node, scope)
                rows, source = _aliased(node, columns, f"({sql})", scope)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                return self._source(node.this, scope, before)
            case exp.Subquery():
                sql, columns = self.query(node.this, replace(scope, rows=(), merged={}, aliases={}))
                if any(node.args.get(key) for key in ("order", "limit", "offset")):
                    sql, columns = self.query(_bare(node), replace(scope, rows=(), merged={}, aliases={}))
                rows, source = _aliased(node, columns, f"({sql})", scope)
            case _:
                raise scope.refuse(node, f"{shown(node)} in FROM in process; pass spark=")
        return (rows,), source + sample

    def _table(self, node: Any, scope: Scope) -> tuple[Rows, str]:
        if isinstance(node.this, exp.Anonymous) and node.this.meta.get("start") not in self.tables:
            return self._function(node, scope)
        if node.this is None:
            raise scope.refuse(node, f"the table function {shown(node)}, of other tables, in process; pass spark=")
        start = min((n.meta["start"] for n in _own_names(node) if "start" in n.meta), default=-1)
        table = self.tables.get(start)
        if table is not None:
            name = node.alias or table.path[-1]
            path = (name,) if node.alias else table.path
            source = f"_lakeformat_{list(self.tables).index(start)}"
            rows, spelt = _aliased(node, table.columns, source, scope, name)
            hidden = table.hidden if rows.columns == table.columns else frozenset()
            return replace(rows, path=(*path[:-1], rows.alias), others=table.others, hidden=hidden), spelt
        cte = scope.ctes.get(node.name.casefold())
        if cte is None:
            raise scope.invalid(node, f"no table {node.name}")
        return _aliased(node, cte[1], cte[0], scope, node.alias or node.name)

    def _function(self, node: Any, scope: Scope) -> tuple[Rows, str]:
        call = node.this
        name, arguments = str(call.name).lower(), call.expressions
        if name in ("explode", "posexplode", "explode_outer", "posexplode_outer"):
            columns = _generated(call, scope)
            assert columns is not None, call
            listed = ", ".join(f"{typed.sql} AS {quoted(label)}" for label, typed in columns)
            kinds = tuple((label, typed.type) for label, typed in columns)
            return _aliased(node, kinds, f"(SELECT {listed})", scope, node.alias or name)
        if name != "range":
            raise scope.refuse(call, f"the table function {call.name} in process; pass spark=")
        if not 1 <= len(arguments) <= 4:
            raise scope.invalid(call, f"range takes 1 to 4 arguments, and {len(arguments)} are given")
        values = [cast(scope.translate(item, scope), BIGINT, scope, item) for item in arguments[:3]]
        source = f"(SELECT range AS id FROM RANGE({', '.join(values)}))"
        return _aliased(node, (("id", BIGINT),), source, scope, node.alias or "range")

    def _values(self, node: Any, scope: Scope) -> tuple[Rows, str]:
        lines = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        if len({len(line) for line in lines}) != 1:
            raise scope.invalid(node, "the rows of VALUES have different numbers of columns")
        typed = [[scope.translate(item, scope) for item in line] for line in lines]
        types: list[SparkType] = []
        for number in range(len(lines[0])):
            type = spark_types.common(line[number].type for line in typed)
            if type is None:
                raise scope.invalid(lines[0][number], f"column {number + 1} of VALUES has types with nothing in common")
            types.append(type)
        spelt = ", ".join(
            "("
            + ", ".join(cast(item, type, scope, node) for item, type, node in zip(line, types, places, strict=True))
            + ")"
            for line, places in zip(typed, lines, strict=True)
        )
        columns = tuple((f"col{number}", type) for number, type in enumerate(types, 1))
        return _aliased(node, columns, f"(VALUES {spelt})", scope, node.alias or "_values")

    def _lateral(self, node: Any, scope: Scope) -> tuple[str, Columns]:
        """LATERAL (query), which sees the tables before it."""
        if node.args.get("view") or not isinstance(node.this, exp.Subquery | exp.Query):
            call = node.this
            if isinstance(call, exp.Anonymous) and (columns := _generated(call, scope)) is not None:
                listed = ", ".join(f"{typed.sql} AS {quoted(label)}" for label, typed in columns)
                return f"SELECT {listed}", tuple((label, typed.type) for label, typed in columns)
            raise scope.refuse(node, f"{shown(node)} in process; pass spark=")
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return self.query(inner, scope)

    def _lateral_view(self, node: Any, scope: Scope, left: str) -> tuple[Scope, str]:
        call = node.this
        columns = None
        if isinstance(call, exp.Anonymous):
            name = str(call.name).lower().removesuffix("_outer")
            if node.args.get("outer"):
                call = exp.Anonymous(this=f"{name}_outer", expressions=call.expressions)
            columns = _generated(call, scope)
        if columns is None:
            raise scope.refuse(node, f"LATERAL VIEW of {shown(node.this)} in process; pass spark=")
        labels = [column.name for column in node.args["alias"].columns or ()]
        kinds = _relabelled(tuple((label, typed.type) for label, typed in columns), labels, node, scope)
        listed = ", ".join(
            f"{typed.sql} AS {quoted(label)}" for (label, _), (_, typed) in zip(kinds, columns, strict=True)
        )
        alias = node.args["alias"].name or f"_view_{len(scope.rows)}"
        rows = Rows((alias,), kinds)
        return replace(
            scope, rows=(*scope.rows, rows)
        ), f"{left} JOIN LATERAL (SELECT {listed}) AS {quoted(alias)} ON TRUE"


def type_of(node: Any) -> type:
    """The kind of a set operation."""
    return next(kind for kind in (exp.Union, exp.Intersect, exp.Except) if isinstance(node, kind))


def _is_apart(type: SparkType) -> bool:
    """Whether DuckDB tells values of a type apart as Spark does."""
    return spark_types.has_order(type) or (type.name in ("array", "struct") and all(map(_is_apart, type.parts)))


def _own_names(node: Any) -> list[Any]:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    return parts or [node.this]


def _bare(node: Any) -> Any:
    """A query in parentheses without its alias."""
    made = node.copy()
    made.set("alias", None)
    return made


def _sample(node: Any, scope: Scope) -> str:
    if node.args.get("sample"):
        raise scope.refuse(node, "TABLESAMPLE in process; pass spark=")
    return ""


def _relabelled(columns: Columns, labels: Sequence[str], node: Any, scope: Scope) -> Columns:
    """Columns with the names of an alias's list."""
    if not labels:
        return columns
    if len(labels) != len(columns):
        raise scope.invalid(node, f"{len(labels)} names for {len(columns)} columns")
    return tuple((label, type) for label, (_, type) in zip(labels, columns, strict=True))


def _aliased(node: Any, columns: Columns, source: str, scope: Scope, name: str = "") -> tuple[Rows, str]:
    """Rows under their alias. Names of columns that are the same but for case get names of their own in DuckDB, and
    stay ambiguous."""
    alias = node.args.get("alias")
    labels = [column.name for column in alias.columns or ()] if isinstance(alias, exp.TableAlias) else []
    name = (node.alias if isinstance(alias, exp.TableAlias) and node.alias else name) or f"_rows_{scopes.offset(node)}"
    columns = _relabelled(columns, labels, node, scope)
    spelt = f"{source} AS {quoted(name)}"
    folded = [label.casefold() for label, _ in columns]
    if labels or source.startswith("(") or len(set(folded)) != len(folded):
        apart = [
            label if folded.count(label.casefold()) == 1 else f"_lakeformat_{number}_{label}"
            for number, (label, _) in enumerate(columns)
        ]
        spelt += f"({', '.join(map(quoted, apart))})"
    return Rows((name,), columns), spelt


def _cast_columns(sql: str, columns: Columns, types: Sequence[SparkType], node: Any, scope: Scope) -> str:
    """A side of a set operation with its columns in these types."""
    if all(column_type == type for (_, column_type), type in zip(columns, types, strict=True)):
        return sql
    labels = [f"_c{number}" for number in range(len(columns))]
    parts = [
        f"{cast(Typed(label, column_type), type, scope, node)} AS {quoted(name)}"
        for label, (name, column_type), type in zip(labels, columns, types, strict=True)
    ]
    return f"SELECT {', '.join(parts)} FROM ({sql}) AS _side({', '.join(labels)})"


def _ordered(node: Any, scope: Scope) -> list[Any]:
    for key in ("sort", "cluster", "distribute"):
        if node.args.get(key):
            raise scope.refuse(node, f"{key.upper()} BY in process; use ORDER BY")
    order = node.args.get("order")
    return [] if order is None else list(order.expressions)


def _position(node: Any, count: int, scope: Scope) -> int | None:
    """The index of the column that a number in ORDER BY or GROUP BY means."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        return None
    if not 1 <= int(node.name) <= count:
        raise scope.invalid(node, f"position {node.name} of a select list with {count} columns")
    return int(node.name) - 1


def _order(item: Any, items: Sequence[tuple[str, Typed]], scope: Scope, is_distinct: bool) -> str:
    """An item of ORDER BY: a position, an alias, or an expression."""
    node = item.this if isinstance(item, exp.Ordered) else item
    position = _position(node, len(items), scope)
    if position is None and isinstance(node, exp.Column) and len(node.parts) == 1:
        named = [index for index, (name, _) in enumerate(items) if name.casefold() == node.name.casefold()]
        if len({items[index][1].sql for index in named}) > 1:
            raise scope.invalid(node, f"ORDER BY {node.name} is ambiguous: several columns have this name")
        position = named[0] if named else None
    if position is not None:
        return calls.ordered(replace(items[position][1], sql=str(position + 1)), item, scope)
    typed = scope.translate(node, scope)
    matching = [index for index, (_, other) in enumerate(items) if other.sql == typed.sql]
    if is_distinct and not matching and isinstance(node, exp.Column):
        raise scope.invalid(node, f"ORDER BY {shown(node)} after SELECT DISTINCT, which does not list it")
    if is_distinct and matching:
        typed = replace(typed, sql=str(matching[0] + 1))
    return calls.ordered(typed, item, scope)


def _key(node: Any, items: Sequence[tuple[str, Typed]], scope: Scope) -> str:
    """A key of GROUP BY: a position, a column, an alias, or an expression."""
    position = _position(node, len(items), scope)
    if isinstance(node, exp.Tuple):
        return f"({', '.join(_key(part, items, scope) for part in node.expressions)})"
    _require_no_aggregate(node, "GROUP BY", scope)
    typed = items[position][1] if position is not None else scope.translate(node, scope)
    if not _is_apart(typed.type):
        raise scope.refuse(node, f"GROUP BY of {typed.type} in process; pass spark=")
    return typed.sql


def _set(node: Any, items: Sequence[tuple[str, Typed]], scope: Scope) -> str:
    if isinstance(node, exp.Tuple | exp.Paren):
        parts = node.expressions if isinstance(node, exp.Tuple) else [node.this]
        return f"({', '.join(_key(part, items, scope) for part in parts)})"
    return f"({_key(node, items, scope)})"


def _limit(node: Any, scope: Scope) -> str:
    sql = ""
    for key, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(key)
        if clause is None:
            continue
        value = clause.expression if clause.expression is not None else clause.this
        if (isinstance(value, exp.Column) and value.name.upper() == "ALL") or isinstance(value, exp.Var | exp.All):
            continue
        typed = scope.translate(value, replace(scope, rows=(), aliases={}, outer=None))
        if not spark_types.is_integral(typed.type):
            raise scope.invalid(value, f"{word} takes a whole number, not {typed.type}")
        test = f"CASE WHEN $x < 0 OR $x IS NULL THEN ERROR('{word} takes a number that is not negative') ELSE $x END"
        sql += f" {word} ({typed.sql if typed.literal and typed.literal[0] != '-' else fill(test, x=typed.sql)})"
    return sql


def _windows(node: Any, scope: Scope) -> str:
    parts = [
        f'"{item.this.name}" AS ({calls.window_definition(item, scope)})' for item in node.args.get("windows") or ()
    ]
    return f" WINDOW {', '.join(parts)}" if parts else ""


def _require_no_aggregate(node: Any, clause: str, scope: Scope) -> None:
    for inner in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(inner, exp.Anonymous) and str(inner.name).lower() in {
            *signatures.AGGREGATES,
            *special.AGGREGATES,
        }:
            raise scope.invalid(inner, f"{clause} with the aggregate function {inner.name}; use HAVING")


def _name(node: Any, scope: Scope) -> str:
    """The name of a column without an alias."""
    if isinstance(node, exp.Column | exp.Identifier):
        return node.name
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return node.expression.name
    return titled(node.transform(_unqualified, scope)) or node.name


def _unqualified(node: Any, scope: Scope) -> Any:
    """A column without the name of its table, as Spark writes it in names."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return node
    parts = node.parts
    folded = [part.name.casefold() for part in parts]
    for rows in scope.rows:
        for length in range(min(len(rows.path), len(parts) - 1), 0, -1):
            if folded[:length] == [part.casefold() for part in rows.path[-length:]]:
                return exp.column(*reversed([part.copy() for part in parts[length:]]))
    return node


def _starred(star: Any, columns: list[tuple[str, Typed]], scope: Scope) -> list[tuple[str, Typed]]:
    """`*` with EXCEPT and REPLACE."""
    if star.args.get("rename"):
        raise scope.refuse(star, "* RENAME in process; name the columns")
    names = [name.casefold() for name, _ in columns]
    left_out = {part.name.casefold() for part in star.args.get("except_") or ()}
    for part in star.args.get("except_") or ():
        if part.name.casefold() not in names:
            raise scope.invalid(
                part, f"* EXCEPT: no column {part.name}{scopes.near(part.name, [n for n, _ in columns])}"
            )
    replaced = {item.alias.casefold(): scope.translate(item.this, scope) for item in star.args.get("replace") or ()}
    if unknown := [name for name in replaced if name not in names]:
        raise scope.invalid(star, f"* REPLACE: no column {unknown[0]}")
    return [(name, replaced.get(name.casefold(), typed)) for name, typed in columns if name.casefold() not in left_out]


def _common_names(left: Scope, right: Scope) -> list[str]:
    """The columns that both sides of a NATURAL JOIN have."""
    others = {name.casefold() for rows in right.rows for name, _ in rows.listed}
    return list(dict.fromkeys(name for rows in left.rows for name, _ in rows.listed if name.casefold() in others))


def _side(name: str, scope: Scope, join: Any) -> Typed:
    """A column of USING on one side."""
    return scopes.column(replace(scope, outer=None), [exp.to_identifier(name)], has_aliases=False)


def _equal(pair: Sequence[Typed], side: str, join: Any, scope: Scope) -> tuple[str, Typed]:
    """The test of a column of USING, and its value in the result."""
    type = spark_types.common(item.type for item in pair)
    if type is None or not spark_types.has_order(type):
        raise scope.invalid(join, f"USING: {pair[0].type} and {pair[1].type} are not compared")
    a, b = (cast(item, type, scope, join) for item in pair)
    value = {"RIGHT": pair[1], "FULL": Typed(f"COALESCE({a}, {b})", type)}.get(side, pair[0])
    return f"({a} = {b})", value


def _generated(expression: Any, scope: Scope) -> list[tuple[str, Typed]] | None:
    """The columns of explode and its like; None for other expressions."""
    call = expression.this if isinstance(expression, exp.Alias | exp.Aliases) else expression
    name = str(call.name).lower() if isinstance(call, exp.Anonymous) else ""
    if name.removesuffix("_outer") not in ("explode", "posexplode"):
        return None
    if len(call.expressions) != 1:
        raise scope.invalid(call, f"{call.name} takes 1 arguments, and {len(call.expressions)} are given")
    typed = scope.translate(call.expressions[0], scope)
    if typed.type.name not in ("array", "map"):
        raise scope.invalid(call, f"{call.name} takes an array or a map, not {typed.type}")
    is_map, is_outer = typed.type.name == "map", name.endswith("_outer")
    lists = [("MAP_KEYS($x)", "key"), ("MAP_VALUES($x)", "value")] if is_map else [("$x", "col")]
    columns = []
    if name.startswith("pos"):
        columns.append(
            ("pos", Typed(f"CAST(UNNEST({_outer(typed.sql, 'RANGE(LEN($y))', is_map, is_outer)}) AS INTEGER)", INT))
        )
    for (sql, label), type in zip(lists, typed.type.parts, strict=True):
        columns.append((label, Typed(f"UNNEST({_outer(typed.sql, sql.replace('$x', '$y'), is_map, is_outer)})", type)))
    if isinstance(expression, exp.Alias):
        if len(columns) != 1:
            raise scope.invalid(expression, f"{call.name} gives {len(columns)} columns; name each: AS (a, b)")
        return [(expression.alias, columns[0][1])]
    if isinstance(expression, exp.Aliases):
        labels = [identifier.name for identifier in expression.expressions]
        if len(labels) != len(columns):
            raise scope.invalid(expression, f"{len(labels)} names for {len(columns)} columns")
        return [(label, typed) for label, (_, typed) in zip(labels, columns, strict=True)]
    return columns


def _outer(value: str, values: str, is_map: bool, is_outer: bool) -> str:
    """A list to unnest; with `is_outer`, [NULL] in place of an empty one or NULL."""
    count = "CARDINALITY($y)" if is_map else "LEN($y)"
    values = values.replace("LEN($y)", count)
    return fill(f"CASE WHEN $y IS NULL OR {count} = 0 THEN [NULL] ELSE {values} END" if is_outer else values, y=value)
