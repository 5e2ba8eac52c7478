"""MERGE INTO as a value: clauses over two sides, the table's rows (`t`) and the source's (`s`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import (
    ALWAYS,
    Call,
    Column,
    Expression,
    and_,
    bind,
    columns_of,
    conjuncts,
    described,
    path_assigned,
    paths_of,
    rename,
    resolve,
    whole_columns,
)
from lakeformat.model.schema import NO_ID, Field, Row

TARGET, SOURCE = "t", "s"


class Group(StrEnum):
    """The rows that a clause applies to."""

    MATCHED = "when_matched"
    NOT_MATCHED = "when_not_matched"
    NOT_MATCHED_BY_SOURCE = "when_not_matched_by_source"


class Act(StrEnum):
    DELETE = "delete"
    UPDATE = "update"
    INSERT = "insert"


SIDES: Mapping[Group, tuple[str, ...]] = {
    Group.MATCHED: (TARGET, SOURCE),
    Group.NOT_MATCHED: (SOURCE,),
    Group.NOT_MATCHED_BY_SOURCE: (TARGET,),
}


@dataclass(frozen=True, slots=True)
class Clause:
    """What happens to a group's rows for which `condition` is true. An insert gives columns without an assignment their
    default or null; an update leaves them unchanged."""

    group: Group
    act: Act
    condition: Expression = ALWAYS
    assignments: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """One equality between the sides."""

    target: Expression
    source: Expression
    null_safe: bool = False  # Whether null equals null.


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge whose expressions are bound. Columns are called `t.name` and `s.name`, each a single name.

    Two rows match if all `keys` are equal and `rest` is true. In each group the first clause whose condition is true
    applies; a row for which none is true stays unchanged, or is not inserted.
    """

    target: tuple[Field, ...]
    source: tuple[Field, ...]
    keys: tuple[Key, ...]
    rest: Expression
    clauses: tuple[Clause, ...]

    def clauses_of(self, group: Group) -> tuple[tuple[int, Clause], ...]:
        """The group's clauses, each with its index among all clauses."""
        return tuple((index, clause) for index, clause in enumerate(self.clauses) if clause.group is group)

    @property
    def wants_one_match(self) -> bool:
        """Whether it is an error if several rows of the source match one row of the table."""
        matched = self.clauses_of(Group.MATCHED)
        return bool(matched) and not (
            len(matched) == 1 and matched[0][1].act is Act.DELETE and matched[0][1].condition == ALWAYS
        )

    @property
    def condition(self) -> Expression:
        """The match condition as one expression."""
        equal = (Call("eq_null_safe" if k.null_safe else "eq", (k.target, k.source)) for k in self.keys)
        return and_(*equal, self.rest)

    def deciding(self, side: str) -> tuple[Field, ...]:
        """The columns of one side that decide which clause applies."""
        groups = [g for g in Group if side in SIDES[g] and g is not Group.NOT_MATCHED]
        decisive = [clause.condition for clause in self.clauses if clause.group in groups]
        return self._columns(side, [self.condition, *decisive])

    def assigning(self, side: str) -> tuple[Field, ...]:
        """The columns of one side whose values are assigned to matched and unmatched rows."""
        values = [v for clause in self.clauses if clause.act is Act.UPDATE for _, v in clause.assignments]
        return self._columns(side, values)

    @property
    def surviving(self) -> tuple[Field, ...]:
        """The table's columns whose old value is in a row after its update, or is needed to compute a new one; at least
        one, so that rows can be counted."""
        updates = [{name for name, _ in clause.assignments} for clause in self.clauses if clause.act is Act.UPDATE]
        needed = {f.name for f in self.assigning(TARGET)}
        kept = tuple(f for f in self.target if f.name in needed or any(f.name not in update for update in updates))
        return kept or self.target[:1]

    def keeps(self, columns: Iterable[str]) -> bool:
        """Whether matched rows, and rows that come from the source, have the same values in these columns, which have
        the same names on both sides."""
        inserts = [dict(action.assignments) for _, action in self.clauses_of(Group.NOT_MATCHED)]
        for name in columns:
            target, source = Column((flat_name(TARGET, name),)), Column((flat_name(SOURCE, name),))
            if not any((key.target, key.source) == (target, source) for key in self.keys):
                return False
            if any(insert.get(name) != source for insert in inserts):
                return False
        return True

    def reading(self, key: tuple[str, ...]) -> tuple[Field, ...]:
        """The columns to read of a table that merges rows by `key`."""
        if any(clause.act is Act.DELETE for clause in self.clauses):
            return self.target  # A changelog has the whole deleted row.
        named = {*key, *(f.name for f in (*self.deciding(TARGET), *self.surviving))}
        return tuple(f for f in self.target if f.name in named)

    def require_by_key(self, key: tuple[str, ...]) -> None:
        """Raise `InvalidInput` if rows of a table that merges rows by `key` could get another key, or the key of
        another row."""
        key_sources = {k.target.path[0].partition(".")[2]: k.source for k in self.keys if isinstance(k.target, Column)}
        missing = [name for name in key if name not in key_sources]
        if missing and self.clauses_of(Group.NOT_MATCHED):
            raise InvalidInput(
                f"merge_into: the table's primary key is ({', '.join(key)}), and rows are inserted that are not looked "
                f"for by {', '.join(missing)}: make that part of the condition, e.g. t.{missing[0]} = s.{missing[0]}"
            )
        for clause in self.clauses:
            for name, value in clause.assignments if clause.act is Act.UPDATE else ():
                if name in key and value not in (key_sources.get(name), Column((flat_name(TARGET, name),))):
                    raise InvalidInput(
                        f"{clause.group}: update of {name!r}, which is in the primary key; delete the rows and insert "
                        f"them, or make t.{name} = s.{name} part of the condition"
                    )

    def _columns(self, side: str, expressions: Iterable[Expression]) -> tuple[Field, ...]:
        named = frozenset().union(*(columns_of(expression) for expression in expressions))
        fields = self.target if side == TARGET else self.source
        return tuple(f for f in fields if flat_name(side, f.name) in named)


def flat_name(side: str, name: str) -> str:
    """The name of one side's column among the columns of both."""
    return f"{side}.{name}"


def sides_of(expression: Expression) -> set[str]:
    """The sides that a bound expression reads."""
    return {name.partition(".")[0] for name in columns_of(expression)}


def prepare(target: tuple[Field, ...], source: tuple[Field, ...], on: Expression, clauses: tuple[Clause, ...]) -> Merge:
    """Resolve names, bind conditions, and split the match condition into keys and the rest.

    Raises `InvalidInput` for an `on` without an equality between the sides, for unreachable clauses and for columns
    assigned twice; `NotFound` for columns that do not exist.
    """
    equal, rest = [], []
    for conjunct in conjuncts(bind_sides(on, target, source, (TARGET, SOURCE))):
        key = _key(conjunct)
        if key is None:
            rest.append(conjunct)
        else:
            equal.append(key)
    if not equal:
        raise InvalidInput(
            f"merge_into on {described(on)}: no equality between the table and the source; "
            "join them by at least one, e.g. on='t.id = s.id'"
        )
    _require_reachable(clauses)
    bound = tuple(_bound(clause, target, source) for clause in clauses)
    return Merge(target, source, tuple(equal), and_(*rest), bound)


def bind_sides(
    expression: Expression, target: tuple[Field, ...], source: tuple[Field, ...], sides: tuple[str, ...]
) -> Expression:
    """The expression over `t.name` and `s.name`. A name without a side belongs to the only side that has it."""
    fields = {TARGET: target, SOURCE: source}
    mapping: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in paths_of(expression):
        side = path[0].casefold()
        if len(path) > 1 and side in fields:
            if side not in sides:
                raise InvalidInput(
                    f"column {'.'.join(path)}: only columns of {' and '.join(sides)} are known there, "
                    f"as {'the source' if side == SOURCE else 'the table'} has no row that belongs to it"
                )
            mapping[path] = (side, *resolve(path[1:], fields[side])[0])
            continue
        resolved = [(s, resolve(path, fields[s])[0]) for s in sides if _has(fields[s], path)]
        if not resolved:
            there = "; ".join(f"{s}: {', '.join(f.name for f in fields[s])}" for s in sides)
            raise NotFound(f"no column {'.'.join(path)!r}; there are {there}")
        if len(resolved) > 1:
            name = ".".join(path)
            raise InvalidInput(f"column {name!r} is in the table and in the source; say t.{name} or s.{name}")
        mapping[path] = (resolved[0][0], *resolved[0][1])
    both = tuple(Field(NO_ID, side, Row(fields[side])) for side in sides)
    bound = bind(rename(expression, mapping) if mapping else expression, both)
    flat = {(s, f.name): (flat_name(s, f.name),) for s in sides for f in fields[s]}
    return rename(bound, flat)


def all_columns(
    act: Act, target: tuple[Field, ...], source: tuple[Field, ...], lenient: bool = False
) -> dict[str, Expression]:
    """Assign every column of the table from the source's column of that name; with `lenient`, only those that the
    source has."""
    assignments: dict[str, Expression] = {}
    for column in target:
        if _has(source, (column.name,)):
            assignments[column.name] = Column((SOURCE, resolve((column.name,), source)[0][0]))
        elif not lenient:
            raise InvalidInput(
                f"{act}_all: the source has no column {column.name!r}; it has {', '.join(f.name for f in source)}. Add "
                f"it to the source, or name the columns: {act}({{...}})"
            )
    return assignments


def _has(fields: tuple[Field, ...], path: tuple[str, ...]) -> bool:
    return any(f.name.casefold() == path[0].casefold() for f in fields)


def _key(condition: Expression) -> Key | None:
    match condition:
        case Call(("eq" | "eq_null_safe") as name, (left, right)):
            if (sides_of(left), sides_of(right)) == ({TARGET}, {SOURCE}):
                return Key(left, right, name == "eq_null_safe")
            if (sides_of(left), sides_of(right)) == ({SOURCE}, {TARGET}):
                return Key(right, left, name == "eq_null_safe")
    return None


def _bound(clause: Clause, target: tuple[Field, ...], source: tuple[Field, ...]) -> Clause:
    sides = SIDES[clause.group]
    paths = [(path_assigned(name, target, TARGET), value) for name, value in clause.assignments]
    if clause.act is Act.INSERT and (parts := [path for path, _ in paths if len(path) > 1]):
        raise InvalidInput(f"{clause.group}: {'.'.join(parts[0])!r} is part of a column; assign the whole column")
    try:
        assigned = whole_columns(paths, target, (TARGET,))
    except InvalidInput as error:
        raise InvalidInput(f"{clause.group}: {error}") from error
    values = tuple((name, bind_sides(value, target, source, sides)) for name, value in assigned.items())
    return Clause(clause.group, clause.act, bind_sides(clause.condition, target, source, sides), values)


def _require_reachable(clauses: tuple[Clause, ...]) -> None:
    if not clauses:
        raise InvalidInput("merge_into without a clause; say e.g. when_matched().update_all()")
    if len(clauses) > 100:
        raise InvalidInput(f"merge_into with {len(clauses)} clauses; at most 100 are taken")
    for group in Group:
        members = [clause for clause in clauses if clause.group is group]
        for member in members[:-1]:
            if member.condition == ALWAYS:
                raise InvalidInput(
                    f"{group}: a clause without a condition decides for all rows; it must be the last one"
                )
