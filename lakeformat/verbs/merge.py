"""MERGE INTO: the clauses that the user chains, and the operation they become. Changed rows are rewritten with their
files (copy-on-write), or written as new rows and delete files (merge-on-read), as the table says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import plain_values
from lakeformat.codec.arrow import from_arrow
from lakeformat.commit import discard
from lakeformat.dialects.dialect import AnyView
from lakeformat.engines import once
from lakeformat.engines.engine import Decided, Source, Spread
from lakeformat.engines.kernels import assign
from lakeformat.engines.row_level import outcomes
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import sql_text
from lakeformat.model import evolution
from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import (
    SOURCE,
    TARGET,
    Act,
    Clause,
    Group,
    Key,
    Merge,
    all_columns,
    prepare,
    sides_of,
)
from lakeformat.model.operation import Append, OperationKind, Rewrite, RowCounts, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    NEVER,
    Call,
    Column,
    Expression,
    Literal,
    and_,
    bind,
    conjuncts,
    ge,
    is_in,
    is_null,
    le,
    not_,
    or_,
    rename,
    resolve,
    split,
)
from lakeformat.model.schema import Field, Kind, Scalar, Schema, Type
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import (
    LAST_UPDATED,
    POSITION,
    RETRACTS,
    ROW_KIND,
    DeleteTask,
    MergeEngine,
    WriteTask,
    WrittenFile,
    paths_of,
)
from lakeformat.verbs import rows
from lakeformat.verbs.change import Change
from lakeformat.verbs.placing import with_lookup

_VALUES = 10_000  # Up to so many values of a key, files are pruned by the values; beyond, by the smallest and largest.

_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_FLOATS = (Kind.FLOAT, Kind.DOUBLE)

Values = Mapping[str, Any]  # Column -> SQL text, an expression, or a Python value.


class Run(Protocol):
    """The function that runs a merge."""

    def __call__(
        self, declared: MergeInto, id: str | None, properties: Mapping[str, str] | None, spark: Any
    ) -> Snapshot | None: ...


@dataclass(frozen=True, slots=True)
class DeclaredClause:
    """A clause as the user wrote it. Without values: the source's columns of the same names."""

    group: Group
    act: Act
    condition: str | Expression
    values: Values | None = None


@dataclass(frozen=True, slots=True)
class MergeInto:
    """A merge: chain clauses, then call `merge()`. In each group the first clause whose condition is true applies.

    Expressions are Spark SQL over the table's row `t` and the source's row `s`.
    """

    source: Any
    on: str | Expression
    run: Run
    evolve_schema: bool = False
    clauses: tuple[DeclaredClause, ...] = ()
    key: tuple[str, ...] = ()  # An upsert by these columns, whose clauses follow from the columns of the source.

    def when_matched(self, condition: str | Expression = ALWAYS) -> WhenMatched:
        """Rows of the table that match a row of the source."""
        return WhenMatched(self, Group.MATCHED, condition)

    def when_not_matched(self, condition: str | Expression = ALWAYS) -> WhenNotMatched:
        """Rows of the source that match no row of the table. The condition uses `s` alone."""
        return WhenNotMatched(self, Group.NOT_MATCHED, condition)

    def when_not_matched_by_source(self, condition: str | Expression = ALWAYS) -> WhenNotMatchedBySource:
        """Rows of the table that match no row of the source. The condition uses `t` alone."""
        return WhenNotMatchedBySource(self, Group.NOT_MATCHED_BY_SOURCE, condition)

    def merge(
        self, *, id: str | None = None, properties: Mapping[str, str] | None = None, spark: Any = None
    ) -> Snapshot | None:
        """Run the merge, in one snapshot. Returns None if there was nothing to do. Raises `InvalidInput` if several
        rows of the source match one row of the table, unless matched rows are only deleted."""
        return self.run(self, id, properties, spark)


@dataclass(frozen=True, slots=True)
class _When:
    """A clause that still needs its action."""

    _before: MergeInto
    _group: Group
    _condition: str | Expression

    def _then(self, act: Act, values: Values | None = None) -> MergeInto:
        clause = DeclaredClause(self._group, act, self._condition, values)
        return replace(self._before, clauses=(*self._before.clauses, clause))


class WhenMatched(_When):
    """The action for rows of the table that match a row of the source. Values use `t` and `s`."""

    __slots__ = ()

    def delete(self) -> MergeInto:
        """Delete the row."""
        return self._then(Act.DELETE)

    def update(self, values: Values) -> MergeInto:
        """Set columns to expressions over both rows; other columns stay."""
        return self._then(Act.UPDATE, _some(values, "update"))

    def update_all(self) -> MergeInto:
        """Set every column to the source's column of the same name."""
        return self._then(Act.UPDATE)


class WhenNotMatched(_When):
    """The action for rows of the source that match no row of the table. Values use `s` alone."""

    __slots__ = ()

    def insert(self, values: Values) -> MergeInto:
        """Insert a row of expressions over the source's row. Missing columns get their default or null."""
        return self._then(Act.INSERT, _some(values, "insert"))

    def insert_all(self) -> MergeInto:
        """Insert a row of the source's columns of the same names."""
        return self._then(Act.INSERT)


class WhenNotMatchedBySource(_When):
    """The action for rows of the table that match no row of the source. Values use `t` alone."""

    __slots__ = ()

    def delete(self) -> MergeInto:
        """Delete the row."""
        return self._then(Act.DELETE)

    def update(self, values: Values) -> MergeInto:
        """Set columns to expressions over the table's row; other columns stay."""
        return self._then(Act.UPDATE, _some(values, "update"))


def plan(
    change: Change,
    declared: MergeInto,
    grow: Callable[[list[evolution.AddColumn]], AnyView],
) -> Rewrite | RowDelta | Append | None:
    """The operation that a merge becomes on this base; None if nothing changes. `grow` adds columns to the table."""
    takes_rows = any(clause.group is Group.NOT_MATCHED_BY_SOURCE for clause in declared.clauses)
    rows_given = once.required(declared.source) if takes_rows else declared.source
    source = change.engine.stage(change.files, rows_given, change.view.layout(), change.view.schema.fields)
    try:
        change, merge = _bound_to_source(change, declared, source, grow)
        layout = change.view.layout(from_files=True)
        for _, clause in merge.clauses_of(Group.NOT_MATCHED):
            given = {name for name, _ in clause.assignments}
            assign.require_placed(given, change.view.schema.fields, layout.partition_by, "the insert")
        condition = candidates(merge, source.spread(merge, _VALUES))
        if layout.keyed is not None:
            return _by_key(change, source, merge, layout, condition)
        data_files = change.view.files(condition)
        tasks = change.view.tasks(data_files, (*merge.deciding(TARGET), POSITION), alone=True)
        decided = source.decide(merge, tasks)
        touched = data_files.filter(
            pc.is_in(data_files.paths, value_set=pa.array(sorted(decided.touched), pa.string()))
        )
        if (beside := change.view.column_files) is not None:
            names = sorted(
                {name for clause in merge.clauses if clause.act is Act.UPDATE for name, _ in clause.assignments}
            )
            layouts = beside.layouts(touched, names)
            if len(touched):
                return _by_column(change, source, merge, decided, touched, layout, layouts, condition)
        return _by_file(change, source, merge, decided, touched, layout, condition)
    finally:
        source.close()


def _bound_to_source(
    change: Change, declared: MergeInto, source: Source, grow: Callable[[list[evolution.AddColumn]], AnyView]
) -> tuple[Change, Merge]:
    """The merge with the names of both sides resolved, and the change on the table that has the source's new columns if
    the merge adds them."""
    if declared.key:
        declared = upserting(declared, change.view.schema.fields, source.fields)
        source.keep_last(declared.key)
    fields = tuple(field for field in source.fields if field.name not in source.untyped)
    if declared.evolve_schema and (new := new_columns(declared, change.view.schema.fields, fields)):
        schema = (view := grow(new)).schema
        request = replace(change.request, schema_id=schema.id, partitioning_id=schema.partitioning.id)
        change = replace(change, view=view, request=request)
    return change, bound(declared, change.view.schema.fields, source.fields)


def _by_key(change: Change, source: Source, merge: Merge, layout: WriteTask, condition: Expression) -> RowDelta | None:
    """New rows of the keys that the merge changes; the merge engine lets them replace the older ones."""
    assert layout.keyed is not None, layout
    _require_replacing(change.store.root, merge, change.view.schema, layout)
    key = (*layout.keyed.merge.key, *(by.source for by in layout.partition_by))
    needed = [column.name for column in merge.reading(key)]
    tasks = change.keyed.scan_by_bucket(needed, condition)
    written, counts = source.write_by_key(merge, tasks, with_lookup(change.view, layout))
    added = tuple(written)
    if not added:
        return None
    return RowDelta(
        request=change.request,
        added=added,
        read_at=change.view.snapshot_id,
        condition=condition,
        kind=OperationKind.MERGE,
        counts=counts,
    )


def _by_file(
    change: Change,
    source: Source,
    merge: Merge,
    decided: Decided,
    touched: Any,
    layout: WriteTask,
    condition: Expression,
) -> Rewrite | RowDelta | Append | None:
    """Files of new rows; and for the files `touched`, whose rows change, delete files or files that replace them."""
    marking = change.view.delete_layout(touched, OperationKind.MERGE)
    fields = change.view.schema.fields
    if len(touched) and (marking is None or any(clause.act is Act.UPDATE for clause in merge.clauses)):
        fields, layout = change.view.rewriting()
        merge = keeping(merge, fields[len(change.view.schema.fields) :])
    tasks = change.view.tasks(touched, (*(fields if marking is None else merge.surviving), POSITION), alone=True)
    added = tuple(source.write(merge, decided, tasks, layout, whole=marking is None))
    # Beside the inserted rows are the updated ones or, of whole files, all that stay.
    beside = decided.updated if marking is not None else rows.live_rows(tasks)
    if beside is not None and marking is None:
        beside -= decided.deleted
    inserted = None if beside is None else rows.row_count(added) - beside
    counts = RowCounts(decided.updated, decided.deleted, inserted)
    if marking is not None and len(touched):
        added = (*added, *_marked(change, source, merge, decided, marking, added))
    if not added and not len(touched):
        return None
    isolation = change.view.isolation(OperationKind.MERGE)
    if isolation != "serializable" and not len(touched):
        return Append(request=change.request, added=added, counts=counts)
    paths, read_at = tuple(touched.paths.to_pylist()), change.view.snapshot_id
    if marking is not None:
        return RowDelta(
            request=change.request,
            added=added,
            referenced=paths,
            read_at=read_at,
            condition=condition,
            kind=OperationKind.MERGE,
            isolation=isolation,
            counts=counts,
        )
    scope, _ = split(condition, change.view.schema.partitioning.columns)
    return Rewrite(
        request=change.request,
        removed=paths,
        added=added,
        kind=OperationKind.MERGE,
        scope=scope,
        read_at=read_at,
        condition=condition,
        isolation=isolation,
        counts=counts,
    )


def _marked(
    change: Change,
    source: Source,
    merge: Merge,
    decided: Decided,
    marking: DeleteTask,
    added: tuple[WrittenFile, ...],
    deleted_only: bool = False,
) -> list[WrittenFile]:
    """Delete files of the rows that the merge removes from their files; if they fail, the files `added` before are
    deleted."""
    try:
        return source.mark(merge, decided, marking, deleted_only=deleted_only)
    except BaseException:
        discard(change.store, paths_of(added))  # No commit was tried, so no snapshot can have them.
        raise


def _by_column(
    change: Change,
    source: Source,
    merge: Merge,
    decided: Decided,
    touched: Any,
    layout: WriteTask,
    layouts: list[WriteTask],
    condition: Expression,
) -> RowDelta:
    """Files with new values of the updated columns beside the rows' own files, and files of inserted rows; deleted rows
    are marked."""
    deletes = any(clause.act is Act.DELETE for clause in merge.clauses)
    marking = change.view.delete_layout(touched, OperationKind.MERGE) if deletes else None
    if deletes and marking is None:
        raise UnsupportedFeature(
            f"{change.store.root}: a merge_into that deletes, on a table with data evolution without deletion vectors, "
            "where no row leaves its file: set deletion-vectors.enabled=true"
        )
    reads = {f.name for f in (*merge.deciding(TARGET), *merge.assigning(TARGET))}
    needed = {*reads, *(f.name for field in layouts for f in field.fields)}
    fields = tuple(f for f in change.view.schema.fields if f.name in needed)
    tasks = change.view.tasks(touched, (*rows.without_blobs(fields, layouts, reads), POSITION), alone=True)
    # With deleted rows too: each file of a row range has all of its rows.
    tasks = [replace(task, fields=(*fields, POSITION), deletes=()) for task in tasks]
    added = tuple(source.write(merge, decided, tasks, layout, whole=True, beside=layouts))
    if marking is not None:
        added = (*added, *_marked(change, source, merge, decided, marking, added, deleted_only=True))
    return RowDelta(
        request=change.request,
        added=added,
        read_at=change.view.snapshot_id,
        condition=condition,
        kind=OperationKind.MERGE,
        isolation=change.view.isolation(OperationKind.MERGE),
        reads=frozenset(reads),
        counts=RowCounts(decided.updated, decided.deleted, rows.row_count(added)),
    )


def upserting(declared: MergeInto, target: tuple[Field, ...], source: tuple[Field, ...]) -> MergeInto:
    """An upsert as a merge. Raises `InvalidInput` for columns that the table lacks, and for a missing key."""
    target_names = {field.name for field in target}
    strangers = [field.name for field in source if field.name not in target_names]
    unknown = [name for name in strangers if name != ROW_KIND.name]
    missing = [name for name in declared.key if all(field.name != name for field in source)]
    nullable = {field.name for field in target if field.nullable}
    if unknown:
        raise InvalidInput(
            f"column {unknown[0]!r} is not in the table, which has {', '.join(field.name for field in target)}; drop "
            "it from the data or add it to the table (alter().add_column)"
        )
    if missing:
        raise InvalidInput(f"upsert: the data has no column {missing[0]!r}, which is in the primary key or `on`")
    values: dict[str, str | Expression] = {
        field.name: Column((SOURCE, field.name)) for field in source if field.name in target_names
    }
    changed = {name: value for name, value in values.items() if name not in declared.key}
    clauses = [DeclaredClause(Group.NOT_MATCHED, Act.INSERT, ALWAYS, values)]
    if changed:
        clauses.append(DeclaredClause(Group.MATCHED, Act.UPDATE, ALWAYS, changed))
    if ROW_KIND.name in strangers:  # Not a column of the table.
        gone = is_in(Column((SOURCE, ROW_KIND.name)), [kind.short for kind in RETRACTS])
        clauses[0] = replace(clauses[0], condition=not_(Call("coalesce", (gone, NEVER))))
        clauses.insert(0, DeclaredClause(Group.MATCHED, Act.DELETE, gone))
    on = and_(
        *(
            Call("eq_null_safe" if name in nullable else "eq", (Column((TARGET, name)), Column((SOURCE, name))))
            for name in declared.key
        )
    )
    return replace(declared, on=on, clauses=tuple(clauses))


def new_columns(declared: MergeInto, target: tuple[Field, ...], source: tuple[Field, ...]) -> list[evolution.AddColumn]:
    """The columns that only the source has, if a clause takes all columns."""
    if not any(clause.values is None and clause.act is not Act.DELETE for clause in declared.clauses):
        return []
    known = {field.name.casefold() for field in target}
    return [evolution.AddColumn(field.name, field.type) for field in source if field.name.casefold() not in known]


def bound(declared: MergeInto, target: tuple[Field, ...], source: tuple[Field, ...]) -> Merge:
    """The clauses bound to these columns. Raises `InvalidInput` and `NotFound`."""
    clauses = []
    for clause in declared.clauses:
        values: Values = {}
        if clause.act is not Act.DELETE:
            given = clause.values
            values = all_columns(clause.act, target, source, declared.evolve_schema) if given is None else given
        assignments = tuple((name, sql_text.value(value, (TARGET, SOURCE))) for name, value in values.items())
        clauses.append(Clause(clause.group, clause.act, _parsed(clause.condition), assignments))
    merge = prepare(target, source, _parsed(declared.on), tuple(clauses))
    outcomes.check(merge)
    return merge


def keeping(merge: Merge, kept: tuple[Field, ...]) -> Merge:
    """The merge over rows with the columns `kept` beside the table's own: null in new rows; updated rows lose the
    sequence number of their last update."""
    unsaid = tuple((field.name, Literal(None)) for field in kept if field.id == LAST_UPDATED.id)
    clauses = (
        replace(clause, assignments=(*clause.assignments, *unsaid)) if clause.act is Act.UPDATE else clause
        for clause in merge.clauses
    )
    return replace(merge, target=(*merge.target, *kept), clauses=tuple(clauses))


def candidates(merge: Merge, spreads: list[Spread]) -> Expression:
    """A condition that is true for every row of the table that the merge may change."""
    parts = [_within(key, spread, merge.target) for key, spread in zip(merge.keys, spreads, strict=True)]
    parts += [conjunct for conjunct in conjuncts(merge.rest) if sides_of(conjunct) == {TARGET}]
    alone = [clause.condition for _, clause in merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE)]
    flat = {(f"{TARGET}.{f.name}",): (f.name,) for f in merge.target}
    return bind(rename(or_(and_(*parts), *alone), flat), merge.target)


# --- private ----------------------------------------------------------------------------------------------------------


def _require_replacing(where: str, merge: Merge, schema: Schema, layout: WriteTask) -> None:
    """Refuse to change rows of a table whose merge engine does not replace a key's row by the newest."""
    assert layout.keyed is not None, layout
    merge.require_by_key(schema.primary_key)
    engine = layout.keyed.merge.engine
    if engine is not MergeEngine.DEDUPLICATE and (
        merge.clauses_of(Group.MATCHED) or merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE)
    ):
        raise UnsupportedFeature(
            f"{where}: merge_into cannot change rows of a table with merge-engine '{engine}', where a new row does not "
            "replace the old one; upsert, or insert only (when_not_matched)"
        )
    if layout.keyed.merge.ignore_delete and any(clause.act is Act.DELETE for clause in merge.clauses):
        raise UnsupportedFeature(
            f"{where}: merge_into cannot delete rows of a table with 'ignore-delete', which keeps all rows; leave the "
            "clause out"
        )


def _within(key: Key, spread: Spread, target: tuple[Field, ...]) -> Expression:
    """A condition that is true wherever the table's side of a key equals one of the values; ALWAYS if none is known."""
    flat = key.target
    if spread.values is None or not isinstance(flat, Column):
        return ALWAYS
    column = Column((flat.name.partition(".")[2], *flat.path[1:]))
    if not _alike(resolve(column.path, target)[1], from_arrow(spread.values.type)):
        return ALWAYS
    try:
        within = _one_of(column, spread)
        bind(within, target)
    except (InvalidInput, OverflowError, ValueError):
        return ALWAYS  # Values that cannot be compared with the column's bounds.
    if key.null_safe and spread.has_null:
        within = or_(within, is_null(column))
    return rename(within, {column.path: flat.path})


def _alike(target: Type, source: Type) -> bool:
    """Whether values are equal as values of the table's type exactly when they are equal as a merge compares them."""
    if not isinstance(target, Scalar) or not isinstance(source, Scalar):
        return False
    if target.kind in _FLOATS or source.kind in _FLOATS:
        return target == source
    return (target.kind in _TEXTS) == (source.kind in _TEXTS)


def _one_of(column: Column, spread: Spread) -> Expression:
    values = spread.values
    assert values is not None, spread
    if not len(values):
        return NEVER
    kind = from_arrow(values.type)
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return ALWAYS
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if spread.every:
        members = [plain_values.literal(value, kind) for value in values.to_pylist()]
        if all(isinstance(member, Literal) for member in members):
            return is_in(column, [member.value for member in members if isinstance(member, Literal)])
    ends = pc.min_max(values)
    low, high = (plain_values.literal(ends[end].as_py(), kind) for end in ("min", "max"))
    return and_(ge(column, low), le(column, high))


def _parsed(text: str | Expression) -> Expression:
    return sql_text.parse(text, (TARGET, SOURCE))


def _some(values: Any, verb: str) -> Values:
    if not isinstance(values, Mapping) or not values:
        raise InvalidInput(f"{verb}({values!r}): give the columns and their values, e.g. {{'name': 's.name'}}")
    return values
