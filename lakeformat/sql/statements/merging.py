"""MERGE INTO -> merge_into.

The query engine computes the expressions that our evaluator does not support (subqueries, other functions, a column
where it takes only a constant) as extra columns of the source. Expressions that name only the source are computed over
the source; others over the pairs of matching rows, which then replace the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression import sql_text
from lakeformat.expression.spark_sql import quoted
from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import SOURCE, TARGET, Act, Group, all_columns
from lakeformat.model.predicate import (
    ALWAYS,
    Call,
    Column,
    Expression,
    Literal,
    and_,
    conjuncts,
    not_,
    paths_of,
    resolve,
    wants_values,
)
from lakeformat.model.schema import Field, Type
from lakeformat.sql import inline, parameters, query, text
from lakeformat.sql.result import Result, metrics
from lakeformat.sql.session import Context
from lakeformat.sql.statements import insert, rows
from lakeformat.sql.statements.rows import Target
from lakeformat.sql.text import Cursor, Piece
from lakeformat.table import Table
from lakeformat.verbs.merge import DeclaredClause, MergeInto

_OWN = "_lakeformat_"  # Prefix of the columns that we add.
_COMPUTED, _OF_PAIR, _KEY = f"{_OWN}computed_", f"{_OWN}of_pair_", f"{_OWN}key_"
_KEYS_IN_TEXT = re.compile(rf"{_KEY}\d+(, {_KEY}\d+)*")
_STAGED, _ROW, _FIRST = f"{_OWN}source", f"{_OWN}row", f"{_OWN}first"
# Flags of a paired row: it has the values of a table row; no source row matches that table row.
_MATCHES, _ALONE = (
    f"{_OWN}matches",
    f"{_OWN}alone",
)


@dataclass(slots=True)
class Reading:
    """A MERGE being parsed: its sides, and the columns to add to the source: `computed` over its rows,
    `of_pairs` over pairs."""

    context: Context
    on: Target
    source: Piece
    alias: str
    computed: list[Piece] = field(default_factory=list)
    of_pairs: list[Piece] = field(default_factory=list)
    columns_of_pairs: list[str] = field(default_factory=list)  # The table's columns whose values may be of these.
    unconditional: set[Group] = field(default_factory=set)  # Those with a clause without a condition.
    decided: set[Group] = field(default_factory=set)  # By a clause with `AND true`; later ones apply to no row.
    needs_alone: bool = False  # Whether one of `of_pairs` is for rows NOT MATCHED BY SOURCE.


def merge(context: Context, cursor: Cursor, before: Piece | None = None) -> Result:
    cursor.expect("MERGE")
    evolve = cursor.take("WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    on = rows.target(context, cursor, ("USING",))
    cursor.expect("USING")
    using = cursor.until("ON")
    reading = Reading(context, on, using, _alias(using))
    cursor.expect("ON")
    matched_by = cursor.until("WHEN")
    matching = _matching(reading, matched_by)
    clauses = []
    while not cursor.done:
        decided = frozenset(reading.decided)
        if (clause := _clause(reading, cursor)).group not in decided:
            clauses.append(clause)
    data = query.rows(context, _source(reading, before))
    paired = matching is None or bool(reading.of_pairs)
    if any(clause.act is not Act.DELETE for clause in clauses):
        _fields(data, using)
    untyped = _untyped(data)
    fills = insert.filling(on.table)
    if untyped or paired or fills or any(clause.values is None and clause.act is not Act.DELETE for clause in clauses):
        clauses, evolve = _spelt_out(on.table, clauses, _fields(data, using), evolve), False
    clauses = [_without(clause, untyped) for clause in clauses]
    if paired:
        equal = {} if matching is None else _equal(matching)
        data, matching = _paired(reading, matched_by, clauses, data, before)
        clauses = [_of_pairs(clause, reading.needs_alone, equal) for clause in clauses]
    if fills:
        clauses = [replace(one, values=one.values and insert.filled(fills, one.values)) for one in clauses]
    clauses = _conformed(clauses, on.table.schema.fields, partial(_fields, data, using))
    assert matching is not None
    asked: MergeInto = on.table.merge_into(data, matching, evolve_schema=evolve)
    try:
        snapshot = replace(asked, clauses=tuple(clauses)).merge(spark=context.spark, **context.verb)
    except InvalidInput as error:
        if not paired or _KEY not in str(error):
            raise
        # Replace the names of key columns, which the user did not write.
        raise InvalidInput(_KEYS_IN_TEXT.sub("row of the table", str(error))) from error
    return metrics(snapshot)


# --- private ----------------------------------------------------------------------------------------------------------


def _alias(source: Piece) -> str:
    """The alias of the source."""
    tree = text.parse(Piece.join(source.script, ["SELECT * FROM ", source]), "source")
    from_ = tree.args.get("from_")
    if from_ is None or tree.args.get("joins"):
        raise source.script.invalid(source.origin(0), "MERGE takes one source; write USING (SELECT ...) AS s")
    return str(from_.this.alias_or_name).replace(text.DOLLAR, "$")


def _source(reading: Reading, before: Piece | None) -> Piece:
    parts: list[str | Piece] = [] if before is None else [before, " "]
    parts.append("SELECT *")
    for index, piece in enumerate(reading.computed):
        parts += [", (", piece, f") AS {_COMPUTED}{index}"]
    return Piece.join(reading.context.script, [*parts, " FROM ", reading.source])


def _matching(reading: Reading, piece: Piece) -> Expression | None:
    """The ON condition; None where our evaluator does not support it or it has no equality."""
    rows.require_repeatable(piece)
    inlined = inline.of_expression(reading.context, piece)
    if inlined is None:
        return None
    node = parameters.marked(text.expression(inlined))
    for name in parameters.used(node):
        parameters.value(reading.context.params, name)
    if any(True for _ in node.find_all(exp.Query)):
        return None
    filled = parameters.filled(text.requalified(node, _sides(reading)), reading.context.params)
    try:
        expression = sql_text.read(filled, piece.text, (TARGET, SOURCE))
    except InvalidInput:
        return None
    if wants_values(expression):
        return None
    for conjunct in conjuncts(expression):
        if isinstance(conjunct, Call) and conjunct.name in ("eq", "eq_null_safe"):
            sides = [{path[0] if len(path) > 1 else "" for path in paths_of(side)} for side in conjunct.arguments]
            if all(sides) and (sides[0] != sides[1] or "" in sides[0]):
                return expression
    return None


def _equal(matching: Expression) -> dict[str, Expression]:
    """The table's columns that equal a source column in matching rows -> that source column."""
    expressions: dict[str, Expression] = {}
    for conjunct in conjuncts(matching):
        if isinstance(conjunct, Call) and conjunct.name in ("eq", "eq_null_safe"):
            for here, there in (conjunct.arguments, conjunct.arguments[::-1]):
                if isinstance(here, Column) and isinstance(there, Column) and here.path[0] == TARGET != there.path[0]:
                    expressions[here.path[-1]] = there
    return expressions


def _untyped(data: Any) -> frozenset[str]:
    """The source's all-NULL INT columns, in lower case: DuckDB types an untyped NULL as INT,
    and NULL fits every column."""
    if not isinstance(data, pa.Table):
        return frozenset()
    columns = zip(data.column_names, data.columns, strict=True)
    return frozenset(
        name.casefold()
        for name, values in columns
        if pa.types.is_int32(values.type) and values.null_count == len(values)
    )


def _fields(data: Any, source: Piece) -> tuple[Field, ...]:
    """The source's columns. Raises `InvalidInput` for some that differ only in case, which Spark calls ambiguous."""
    fields = insert.fields(data.schema)
    spellings: dict[str, list[str]] = {}
    for column in fields:
        spellings.setdefault(column.name.casefold(), []).append(column.name)
    for names in spellings.values():
        if len(names) > 1:
            listed = ", ".join(names)
            raise source.script.invalid(source.origin(0), f"the source has columns that differ only in case, {listed}")
    return fields


def _conformed(
    clauses: Sequence[DeclaredClause], target: tuple[Field, ...], fields_of_source: Callable[[], tuple[Field, ...]]
) -> list[DeclaredClause]:
    """The clauses with the casts of Spark's store assignment in their values."""
    if not any(clause.values for clause in clauses):
        return list(clauses)  # Without a look at the source's schema, for which Spark analyses its query.
    fields = {field.name: field for field in target}
    source = fields_of_source()

    def type_of_column(path: tuple[str, ...]) -> Type | None:
        try:
            return resolve(path[1:], target if path[0] == TARGET else source)[1]
        except (InvalidInput, NotFound):  # The verb says so, with the clause.
            return None

    def conformed(name: str, value: str | Expression) -> str | Expression:
        if isinstance(value, str) or name not in fields:
            return value
        return insert.conformed(value, fields[name], type_of_column)

    return [
        replace(
            clause, values=clause.values and {name: conformed(name, value) for name, value in clause.values.items()}
        )
        for clause in clauses
    ]


def _spelt_out(
    table: Table, clauses: Sequence[DeclaredClause], fields: tuple[Field, ...], evolve: bool
) -> list[DeclaredClause]:
    """Expand `*` to the source's columns, without those that we added. With `evolve`,
    first add the columns that the table lacks."""
    named = tuple(column for column in fields if not column.name.startswith(_OWN))
    stars = [clause.values is None and clause.act is not Act.DELETE for clause in clauses]
    if evolve and any(stars):
        insert.grow(table, named)
    target = table.schema.fields
    return [
        replace(clause, values=all_columns(clause.act, target, named, evolve)) if star else clause
        for clause, star in zip(clauses, stars, strict=True)
    ]


def _without(clause: DeclaredClause, untyped: frozenset[str]) -> DeclaredClause:
    """The clause with NULL in place of the source's all-NULL columns."""

    def change(node: Any) -> Any:
        match node:
            case Column((side, name)) if side == SOURCE and name.casefold() in untyped:
                return Literal(None)
            case Call(name, given):
                return Call(name, tuple(change(part) for part in given))
        return node

    values = None if clause.values is None else {name: change(value) for name, value in clause.values.items()}
    return replace(clause, condition=change(clause.condition), values=values)


def _paired(
    reading: Reading, piece: Piece, clauses: Sequence[DeclaredClause], data: Any, before: Piece | None
) -> tuple[pa.Table, Expression]:
    """A new source, and the equality that replaces the ON condition. The new source has one row per pair: the source's
    row and the values of the table columns that decide the match and the clauses. Source rows without a match stay,
    with nulls for these values. If a clause needs it, it also has a row for the values of unmatched table rows. The
    query engine computes the join; the source is held in memory."""
    context, on = reading.context, reading.on
    source: pa.Table = data if isinstance(data, pa.Table) else data.toArrow()
    numbered = source.append_column(_ROW, pa.array(range(len(source)), pa.int64()))
    context = replace(context, frames={**context.frames, _STAGED: numbered})
    head: list[str | Piece] = [] if before is None else [before, " "]
    join = "LEFT JOIN" if reading.needs_alone else "JOIN"
    tail: list[str | Piece] = [" FROM ", *on.in_from, f" {join} {_STAGED} AS "]
    tail += [quoted(reading.alias), " ON ", piece]
    computed: list[str | Piece] = []
    for index, of_pair in enumerate(reading.of_pairs):
        computed += ["(", of_pair, f") AS {_OF_PAIR}{index}, "]
    tried = query.prepare(context, Piece.join(context.script, [*head, "SELECT ", *computed, "1 AS one", *tail]))
    target = next(
        reference for reference in tried.references if tried.piece.origin(reference.start) == on.named.origin(0)
    )
    keys = rows.identity(on.table, target.source.names, _KEY)
    uses_bytes = rows.by_bytes(on.table, keys, reading.columns_of_pairs)
    listed = "".join(f"{part.sql(on.alias)} AS {name}, " for name, part in keys.items())
    chosen = ["SELECT " if uses_bytes else "SELECT DISTINCT ", *computed, f"{listed}{quoted(reading.alias)}.{_ROW}"]
    result = query.rows(context, Piece.join(context.script, [*head, *chosen, *tail]))
    pairs: pa.Table = result if isinstance(result, pa.Table) else result.toArrow()
    if uses_bytes:
        pairs = rows.apart(pairs, keys)
    unmatched = numbered.filter(pc.invert(pc.is_in(numbered[_ROW], value_set=pairs[_ROW].combine_chunks())))
    matched = [clause for clause in clauses if clause.group is Group.MATCHED]
    if reading.needs_alone and [(one.act, one.condition) for one in matched] in ([], [(Act.DELETE, ALWAYS)]):
        # Without a clause, and for a plain DELETE, several matches per row are allowed.
        numbers = pairs.select(list(keys)).append_column(_FIRST, pa.array(range(len(pairs)), pa.int64()))
        pairs = pairs.take(numbers.group_by(list(keys)).aggregate([(_FIRST, "min")])[f"{_FIRST}_min"].combine_chunks())
    beside = source.take(pairs[_ROW].combine_chunks())
    for name in pairs.column_names:
        if name != _ROW:
            beside = beside.append_column(name, pairs[name])
    beside = beside.append_column(_ALONE, pc.is_null(pairs[_ROW]))
    beside = beside.append_column(_MATCHES, pa.array([True] * len(beside), pa.bool_()))
    unmatched = unmatched.drop_columns([_ROW]).append_column(_MATCHES, pa.array([False] * len(unmatched), pa.bool_()))
    both = pa.concat_tables([beside, unmatched], promote_options="default")
    same = (Call("eq_null_safe", (part.expression, Column((SOURCE, name)))) for name, part in keys.items())
    return both, and_(*same, Column((SOURCE, _MATCHES)))


def _of_pairs(clause: DeclaredClause, needs_alone: bool, equal: Mapping[str, Expression]) -> DeclaredClause:
    """A clause over pairs of rows. A value that equals its target column in all matches becomes that column: keys do
    not change."""
    values = clause.values
    if values is not None and clause.group is Group.MATCHED:
        values = {
            name: Column((TARGET, name)) if name in equal and equal[name] == value else value
            for name, value in values.items()
        }
    condition, alone = clause.condition, Column((SOURCE, _ALONE))
    assert not isinstance(condition, str), condition
    if not needs_alone or clause.group is Group.NOT_MATCHED:
        return replace(clause, values=values)
    if clause.group is Group.MATCHED:
        return replace(clause, condition=and_(not_(alone), condition), values=values)
    return replace(clause, group=Group.MATCHED, condition=and_(alone, condition), values=values)


def _clause(reading: Reading, cursor: Cursor) -> DeclaredClause:
    offset = cursor.offset
    cursor.expect("WHEN")
    group = Group.MATCHED
    if cursor.take("NOT MATCHED"):
        group = Group.NOT_MATCHED
        if cursor.take("BY SOURCE"):
            group = Group.NOT_MATCHED_BY_SOURCE
        elif cursor.take("BY"):
            cursor.expect("TARGET")
    else:
        cursor.expect("MATCHED")
    if group in reading.unconditional:
        what = f"a clause after a WHEN {group.name.replace('_', ' ')} without a condition, which decides for all rows"
        raise reading.context.script.invalid(offset, what)
    condition: Expression = ALWAYS
    if not cursor.peek("AND"):
        reading.unconditional.add(group)
    elif cursor.take("AND"):
        condition = _expression(reading, cursor.until("THEN"), group)
        if condition == ALWAYS:
            reading.decided.add(group)
    cursor.expect("THEN")
    if group is Group.NOT_MATCHED:
        cursor.expect("INSERT")
        return DeclaredClause(group, Act.INSERT, condition, _inserted(reading, cursor, offset))
    if cursor.take("DELETE"):
        return DeclaredClause(group, Act.DELETE, condition)
    cursor.expect("UPDATE")
    cursor.expect("SET")
    if cursor.take("*"):
        if group is Group.NOT_MATCHED_BY_SOURCE:
            raise reading.context.script.invalid(offset, "UPDATE SET * of rows that the source does not have")
        return DeclaredClause(group, Act.UPDATE, condition)
    given = rows.assignments(reading.context, cursor, reading.on, ("WHEN",))
    return DeclaredClause(
        group, Act.UPDATE, condition, {name: _value(reading, value, name, group) for name, value in given.items()}
    )


def _inserted(reading: Reading, cursor: Cursor, offset: int) -> dict[str, str | Expression] | None:
    """Columns and their values; None for INSERT *."""
    if cursor.take("*"):
        return None
    fields = reading.on.table.schema.fields
    columns = [column.name for column in fields]
    if not cursor.peek("VALUES"):
        columns = [resolve(path[-1:], fields)[0][0] for path in cursor.listed(cursor.path)]
    cursor.expect("VALUES")
    values = cursor.listed(lambda: cursor.until(",", ")"))
    if len(values) != len(columns):
        raise reading.context.script.invalid(
            offset, f"INSERT of {len(values)} values into {len(columns)} columns: {', '.join(columns)}"
        )
    given: dict[str, str | Expression] = {n: Literal(None) for n in insert.unplaced(reading.on.table, columns)}
    for name, value in zip(columns, values, strict=True):
        given[name] = _value(reading, value, name, Group.NOT_MATCHED)
    return given


def _value(reading: Reading, piece: Piece, column: str, group: Group) -> Expression:
    if piece.text.strip().upper() == "DEFAULT":
        return insert.default(reading.on.table.schema.field(column))
    reading.columns_of_pairs.append(column)
    return _expression(reading, piece, group)


def _expression(reading: Reading, piece: Piece, group: Group) -> Expression:
    """An expression over `t` and `s`; if only the query engine supports it, the source column with its value."""
    inlined = inline.of_expression(reading.context, piece)
    node = parameters.marked(text.expression(piece if inlined is None else inlined))
    for name in parameters.used(node):
        parameters.value(reading.context.params, name)
    renamed = text.requalified(node, _sides(reading))
    if inlined is not None and not any(True for _ in node.find_all(exp.Query)):
        with suppress(InvalidInput):
            expression = sql_text.read(parameters.filled(renamed, reading.context.params), piece.text, (TARGET, SOURCE))
            if not wants_values(expression):
                return expression
    if group is Group.NOT_MATCHED or (group is Group.MATCHED and not _names_target(reading, node)):
        reading.computed.append(piece)
        return Column((SOURCE, f"{_COMPUTED}{len(reading.computed) - 1}"))
    reading.needs_alone |= group is Group.NOT_MATCHED_BY_SOURCE
    reading.of_pairs.append(piece)
    return Column((SOURCE, f"{_OF_PAIR}{len(reading.of_pairs) - 1}"))


def _sides(reading: Reading) -> dict[tuple[str, ...], tuple[str, ...]]:
    return {**dict.fromkeys(reading.on.qualifiers, (TARGET,)), (reading.alias.casefold(),): (SOURCE,)}


def _names_target(reading: Reading, node: Any) -> bool:
    """Whether an expression names the target: by its alias or, outside subqueries, by an unqualified column."""
    column_names = {name.casefold() for name in reading.on.table.schema.names}
    nested = {id(column) for subquery in node.find_all(exp.Query) for column in subquery.find_all(exp.Column)}
    for column in node.find_all(exp.Column):
        parts = tuple(part.name.casefold() for part in column.parts)
        if any(
            len(parts) > len(qualifier) and parts[: len(qualifier)] == qualifier for qualifier in reading.on.qualifiers
        ):
            return True
        if len(parts) == 1 and parts[0] in column_names and id(column) not in nested:
            return True
    return False
