"""MERGE INTO -> merge_into.

Expressions that our own evaluator does not know (subqueries, other functions) become columns of the source, which the query engine
computes, where they speak of the source alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lakeformat.codec import sql_text
from lakeformat.codec.spark_sql import quoted
from lakeformat.errors import InvalidInput
from lakeformat.model.merge import SOURCE, TARGET, Act, Group
from lakeformat.model.predicate import ALWAYS, Call, Column, Expression, and_, conjuncts, paths_of, resolve
from lakeformat.sql import parameters, query, rows, text
from lakeformat.sql.result import Result, metrics
from lakeformat.sql.rows import Target
from lakeformat.sql.session import Context
from lakeformat.sql.text import Cursor, Piece
from lakeformat.verbs.merge import Asked, MergeInto

_COMPUTED, _KEY = "_lakeformat_computed_", "_lakeformat_key_"
_STAGED, _ROW, _MATCHES = "_lakeformat_source", "_lakeformat_row", "_lakeformat_matches"


@dataclass(slots=True)
class Reading:
    """A MERGE being read: its sides, and the columns that its source is to be given."""

    context: Context
    on: Target
    source: Piece
    alias: str
    evolve: bool
    computed: list[Piece] = field(default_factory=list)


def merge(context: Context, cursor: Cursor, before: Piece | None = None) -> Result:
    cursor.expect("MERGE")
    evolve = cursor.take("WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    on = rows.target(context, cursor, ("USING",))
    cursor.expect("USING")
    source = cursor.until("ON")
    reading = Reading(context, on, source, _alias(source), evolve)
    cursor.expect("ON")
    matched_by = cursor.until("WHEN")
    matching = _matching(reading, matched_by)
    clauses = []
    while not cursor.done:
        clauses.append(_clause(reading, cursor))
    data = query.rows(context, _source(reading, before))
    if matching is None:
        data, matching = _paired(reading, matched_by, data, before)
    asked: MergeInto = on.table.merge_into(data, matching, evolve_schema=evolve)
    made = replace(asked, clauses=tuple(clauses)).merge(spark=context.spark, **context.verb)
    return metrics(made)


# --- private ----------------------------------------------------------------------------------------------------------


def _alias(source: Piece) -> str:
    """What the source's columns are called by."""
    tree = text.parse(Piece.join(source.script, ["SELECT * FROM ", source]), "source")
    from_ = tree.args.get("from_")
    if from_ is None or tree.args.get("joins"):
        raise source.script.invalid(source.origin(0), "MERGE takes one source; write USING (SELECT ...) AS s")
    return str(from_.this.alias_or_name).replace(text.DOLLAR, "$")


def _source(reading: Reading, before: Piece | None) -> Piece:
    parts: list[str | Piece] = [] if before is None else [before, " "]
    parts.append("SELECT *")
    for place, each in enumerate(reading.computed):
        parts += [", (", each, f") AS {_COMPUTED}{place}"]
    return Piece.join(reading.context.script, [*parts, " FROM ", reading.source])


def _matching(reading: Reading, piece: Piece) -> Expression | None:
    """The condition by which rows match; None where our own evaluator does not know it, or no equality is part of it."""
    node = parameters.marked(text.expression(piece))
    for name in parameters.used(node):
        parameters.value(reading.context.params, name)
    if any(True for _ in node.find_all(exp.Query)):
        return None
    filled = parameters.filled(rows.qualified(node, _sides(reading)), reading.context.params)
    try:
        found = sql_text.read(filled, piece.text, (TARGET, SOURCE))
    except InvalidInput:
        return None
    for each in conjuncts(found):
        if isinstance(each, Call) and each.name in ("eq", "eq_null_safe"):
            sides = [{path[0] if len(path) > 1 else "" for path in paths_of(side)} for side in each.arguments]
            if all(sides) and (sides[0] != sides[1] or "" in sides[0]):
                return found
    return None


def _paired(reading: Reading, piece: Piece, data: Any, before: Piece | None) -> tuple[pa.Table, Expression]:
    """The source's rows beside the values of the table's columns that decide what they match, one row for each pair, and the
    others without any; and the equality that this makes of the condition. The query engine joins them; the source is held in memory."""
    context, on = reading.context, reading.on
    if reading.evolve:
        raise context.script.unsupported(
            piece.origin(0), "WITH SCHEMA EVOLUTION and ON without an equality that is known here"
        )
    source: pa.Table = data if isinstance(data, pa.Table) else data.toArrow()
    numbered = source.append_column(_ROW, pa.array(range(len(source)), pa.int64()))
    context = replace(context, frames={**context.frames, _STAGED: numbered})
    head: list[str | Piece] = [] if before is None else [before, " "]
    tail: list[str | Piece] = [" FROM ", on.named, " AS ", quoted(on.alias), f" JOIN {_STAGED} AS "]
    tail += [quoted(reading.alias), " ON ", piece]
    tried = query.prepare(context, Piece.join(context.script, [*head, "SELECT 1 AS one", *tail]))
    target = next(each for each in tried.references if tried.piece.origin(each.start) == on.named.origin(0))
    names = target.source.names
    listed = "".join(f"{quoted(on.alias)}.{quoted(name)} AS {_KEY}{i}, " for i, name in enumerate(names))
    chosen = f"SELECT DISTINCT {listed}{quoted(reading.alias)}.{_ROW}"
    found = query.rows(context, Piece.join(context.script, [*head, chosen, *tail]))
    pairs: pa.Table = found if isinstance(found, pa.Table) else found.toArrow()
    alone = numbered.filter(pc.invert(pc.is_in(numbered[_ROW], value_set=pairs[_ROW].combine_chunks())))
    beside = source.take(pairs[_ROW].combine_chunks())
    for i in range(len(names)):
        beside = beside.append_column(f"{_KEY}{i}", pairs[f"{_KEY}{i}"])
    beside = beside.append_column(_MATCHES, pa.array([True] * len(beside), pa.bool_()))
    alone = alone.drop_columns([_ROW]).append_column(_MATCHES, pa.array([False] * len(alone), pa.bool_()))
    both = pa.concat_tables([beside, alone], promote_options="default")
    keys = (
        Call("eq_null_safe", (Column((TARGET, name)), Column((SOURCE, f"{_KEY}{i}")))) for i, name in enumerate(names)
    )
    return both, and_(*keys, Column((SOURCE, _MATCHES)))


def _clause(reading: Reading, cursor: Cursor) -> Asked:
    at = cursor.offset
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
    sides = {Group.MATCHED: (TARGET, SOURCE), Group.NOT_MATCHED: (SOURCE,), Group.NOT_MATCHED_BY_SOURCE: (TARGET,)}[
        group
    ]
    condition = _expression(reading, cursor.until("THEN"), sides) if cursor.take("AND") else ALWAYS
    cursor.expect("THEN")
    if group is Group.NOT_MATCHED:
        cursor.expect("INSERT")
        return Asked(group, Act.INSERT, condition, _inserted(reading, cursor, at))
    if cursor.take("DELETE"):
        return Asked(group, Act.DELETE, condition)
    cursor.expect("UPDATE")
    cursor.expect("SET")
    if cursor.take("*"):
        if group is Group.NOT_MATCHED_BY_SOURCE:
            raise reading.context.script.invalid(at, "UPDATE SET * of rows that the source does not have")
        return Asked(group, Act.UPDATE, condition)
    given = rows.assignments(reading.context, cursor, reading.on, ("WHEN",))
    return Asked(
        group, Act.UPDATE, condition, {name: _value(reading, each, name, sides) for name, each in given.items()}
    )


def _inserted(reading: Reading, cursor: Cursor, at: int) -> dict[str, str | Expression] | None:
    """Columns and their values; None for INSERT *."""
    if cursor.take("*"):
        return None
    fields = reading.on.table.schema.fields
    columns = [each.name for each in fields]
    if not cursor.peek("VALUES"):
        columns = [resolve(path[-1:], fields)[0][0] for path in cursor.listed(cursor.path)]
    cursor.expect("VALUES")
    values = cursor.listed(lambda: cursor.until(",", ")"))
    if len(values) != len(columns):
        raise reading.context.script.invalid(
            at, f"INSERT of {len(values)} values into {len(columns)} columns: {', '.join(columns)}"
        )
    return {name: _value(reading, each, name, (SOURCE,)) for name, each in zip(columns, values, strict=True)}


def _value(reading: Reading, piece: Piece, column: str, sides: tuple[str, ...]) -> Expression:
    if piece.text.strip().upper() == "DEFAULT":
        return rows.default(reading.on.table.schema.field(column))
    return _expression(reading, piece, sides)


def _expression(reading: Reading, piece: Piece, sides: tuple[str, ...]) -> Expression:
    """An expression over `t` and `s`; of one that only the query engine knows, the source's column that holds it."""
    node = parameters.marked(text.expression(piece))
    for name in parameters.used(node):
        parameters.value(reading.context.params, name)
    renamed = rows.qualified(node, _sides(reading))
    unknown: InvalidInput | None = None
    if not any(True for _ in node.find_all(exp.Query)):
        try:
            return sql_text.read(parameters.filled(renamed, reading.context.params), piece.text, (TARGET, SOURCE))
        except InvalidInput as error:
            unknown = error
    place = piece.origin(0)
    why = f"{unknown}" if unknown else "a subquery"
    if reading.evolve:
        raise reading.context.script.unsupported(
            place, f"{why}: compute it in USING (SELECT ...), beside WITH SCHEMA EVOLUTION"
        )
    if SOURCE not in sides or _names_target(reading, node):
        raise reading.context.script.unsupported(
            place,
            f"{why}; where it speaks of the target, merge_into must know it: compute what it needs in USING (SELECT ...)",
        )
    reading.computed.append(piece)
    return Column((SOURCE, f"{_COMPUTED}{len(reading.computed) - 1}"))


def _sides(reading: Reading) -> dict[tuple[str, ...], tuple[str, ...]]:
    return {**dict.fromkeys(reading.on.qualifiers, (TARGET,)), (reading.alias.casefold(),): (SOURCE,)}


def _names_target(reading: Reading, node: Any) -> bool:
    """Whether an expression names the target by its alias; a name without one is looked for in the source."""
    for column in node.find_all(exp.Column):
        parts = tuple(part.name.casefold() for part in column.parts)
        if any(len(parts) > len(each) and parts[: len(each)] == each for each in reading.on.qualifiers):
            return True
    return False
