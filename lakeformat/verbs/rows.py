"""What row-level changes share.

In tables without keys, files are rewritten (copy-on-write) or delete files are written (merge-on-read), as the table
says; a file whose bounds prove that all rows match is removed without being read. In tables that merge rows by key, new
rows by key say what becomes of the existing ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import OperationKind, Rewrite, RowCounts, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    Expression,
    Literal,
    columns_of,
)
from lakeformat.model.schema import Field
from lakeformat.model.work import (
    LAST_UPDATED,
    Content,
    DeleteFile,
    DeleteTask,
    FilesTask,
    MarkTask,
    MergeEngine,
    RewriteTask,
    RowKind,
    WriteTask,
    WrittenFile,
)
from lakeformat.verbs.change import Change


@dataclass(frozen=True, slots=True)
class Touched:
    """The files that a condition matches: those with all rows (`whole`), and those with other rows as well
    (`mixed`)."""

    whole: Any
    mixed: Any
    row_count: int | None = None  # Rows for which it is true.

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.whole.paths.to_pylist(), *self.mixed.paths.to_pylist())


def mark(
    change: Change,
    files: Any,
    condition: Expression,
    layout: DeleteTask,
) -> tuple[WrittenFile, ...]:
    """Delete files for the rows of `files` for which `condition` is true."""
    targets = {target.path: target for target in layout.targets}
    tasks = [
        MarkTask(task, replace(layout, targets=tuple(targets[path] for path in task.paths)))
        for task in change.view.tasks(files, change.view.schema.fields, condition)
    ]
    return tuple(file for written in change.engine.mark(change.files, tasks) for file in written)


def touch(change: Change, condition: Expression, whole_files: bool = True) -> Touched:
    """The files with a row for which `condition` is true. Files that may have one are read to find out."""
    data_files = change.view.files(condition)
    whole = (
        change.view.pruning.matching_wholly(data_files, condition) if whole_files else np.zeros(len(data_files), bool)
    )
    rest = data_files.filter(pa.array(~whole))
    tasks = change.view.tasks(rest, change.view.schema.fields, condition, alone=True)
    counts = np.array(change.engine.count(change.files, tasks), np.int64)
    wholly = data_files.filter(pa.array(whole))
    live = live_rows(change.view.tasks(wholly, change.view.schema.fields)) if len(wholly) else 0
    hits = rest.filter(pa.array(counts > 0, pa.bool_()))
    return Touched(wholly, hits, None if live is None else live + int(counts.sum()))


def row_count(files: Iterable[WrittenFile]) -> int:
    """The rows that new data files add: not those of columns beside the existing rows of other files."""
    return sum(
        file.row_count
        for file in files
        if file.content is Content.DATA and not file.refers_to and file.first_row_id is None
    )


def row_count_in(change: Change, scope: Expression) -> int | None:
    """The rows of a scope that chooses whole files; None if metadata does not say, or if the commit counts them."""
    # The scope may be on partition fields, and rows are counted by columns.
    is_on_columns = columns_of(scope) <= set(change.view.schema.partitioning.columns)
    return change.view.count(scope) if is_on_columns and not change.view.pruning.has_whole_files() else None


def live_rows(tasks: Sequence[FilesTask]) -> int | None:
    """The rows that the deletes of the tasks' files leave; None if metadata does not say."""
    deleted = vector_rows(file for task in tasks for some in task.deletes for file in some)
    return None if deleted is None else sum(task.row_count for task in tasks) - deleted


def vector_rows(deletes: Iterable[DeleteFile]) -> int | None:
    """The rows that deletion vectors delete; None if there are other deletes, which may delete a row twice."""
    counts = [file.row_count if file.content is Content.DELETION_VECTORS else None for file in deletes]
    return None if None in counts else sum(count for count in counts if count is not None)


def marked_rows(marked: Sequence[WrittenFile], layout: DeleteTask) -> int | None:
    """The rows that new delete files delete, beside those that the files before them had deleted; None: not known."""
    paths = {path for file in marked for path in file.refers_to}
    earlier = vector_rows(file for target in layout.targets if target.path in paths for file in target.deletes)
    return None if earlier is None else sum(file.row_count for file in marked) - earlier


def without_blobs(fields: tuple[Field, ...], layouts: Sequence[WriteTask], reads: Collection[str]) -> tuple[Field, ...]:
    """Those of `fields` whose old values are needed to write columns as in `layouts`: not those of BLOB columns that
    nothing `reads`, which the rows that do not change keep. They are read as NULL instead."""
    apart = {name for layout in layouts[:1] if layout.blobs is not None for name in layout.blobs.names}
    return tuple(field for field in fields if field.name not in apart or field.name in reads or not field.nullable)


def rewrite(
    change: Change,
    files: Any,
    delete_where: Expression | None = None,
    assignments: tuple[tuple[str, Expression], ...] = (),
    update_where: Expression = ALWAYS,
    where: Expression = ALWAYS,
) -> tuple[WrittenFile, ...]:
    """New files with the rows of `files` for which `where` is true, changed."""
    if not len(files):
        return ()
    fields, layout = change.view.rewriting()
    if assignments:  # Null means: the snapshot that this becomes.
        assignments = (*assignments, *((f.name, Literal(None)) for f in fields if f.id == LAST_UPDATED.id))
    tasks = [
        RewriteTask((task,), layout, delete_where, assignments, update_where)
        for task in change.view.tasks(files, fields, where)
    ]
    return tuple(file for written in change.engine.rewrite(change.files, tasks) for file in written)


def by_key(
    change: Change,
    layout: WriteTask,
    condition: Expression,
    kind: OperationKind,
    row_kind: RowKind,
    assignments: tuple[tuple[str, Expression], ...] = (),
) -> RowDelta | None:
    """The rows for which `condition` is true, changed, written as rows of `row_kind`."""
    assert layout.keyed is not None, layout
    merge = layout.keyed.merge
    if merge.engine is not MergeEngine.DEDUPLICATE and not (row_kind == RowKind.DELETE and merge.remove_on_delete):
        may = row_kind == RowKind.DELETE and merge.engine in {MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION}
        raise UnsupportedFeature(
            f"{change.store.root}: {kind} on a table with merge engine '{merge.engine}', which does not replace "
            "rows by newer ones: not supported"
            + (f"; set '{merge.engine}.remove-record-on-delete' to 'true'" if may else "")
        )
    if row_kind == RowKind.DELETE and merge.ignore_delete:
        raise UnsupportedFeature(
            f"{change.store.root}: {kind} of rows on a table with 'ignore-delete', which keeps all rows: not "
            "supported; drop or overwrite whole partitions"
        )
    places, read = layout.keyed.places, change.keyed.scan(predicate=condition)
    if places is not None:  # Rows stay in their partition, unless the assignments change it.
        stays = not {name for name, _ in assignments} & {*places.partition}
        places, read = replace(places, is_settled=True), change.keyed.located(predicate=condition)
        places = replace(places, rows={}) if stays else places
    write = replace(layout, keyed=replace(layout.keyed, kind=row_kind, kind_column=None, places=places))
    tasks = [RewriteTask((task,), write, None, assignments) for task in read]
    added = tuple(file for written in change.engine.rewrite(change.files, tasks) for file in written)
    if not added:
        return None
    count = row_count(added)
    counts = RowCounts(deleted=count) if row_kind == RowKind.DELETE else RowCounts(updated=count)
    return RowDelta(
        request=change.request,
        added=added,
        read_at=change.view.snapshot_id,
        condition=condition,
        kind=kind,
        counts=counts,
    )


def delta(
    change: Change,
    kind: OperationKind,
    condition: Expression,
    marked: tuple[WrittenFile, ...],
    rows: tuple[WrittenFile, ...],
    counts: RowCounts | None,
) -> RowDelta:
    return RowDelta(
        request=change.request,
        added=(*rows, *marked),
        referenced=tuple(path for file in marked for path in file.refers_to),
        read_at=change.view.snapshot_id,
        condition=condition,
        kind=kind,
        isolation=change.view.isolation(kind),
        counts=counts,
    )


def replacement(
    change: Change,
    kind: OperationKind,
    scope: Expression,
    condition: Expression,
    touched: Touched,
    added: tuple[WrittenFile, ...],
    counts: RowCounts,
) -> Rewrite:
    return Rewrite(
        request=change.request,
        removed=touched.paths,
        added=added,
        scope=scope,
        kind=kind,
        read_at=change.view.snapshot_id,
        condition=condition,
        isolation=change.view.isolation(kind),
        counts=counts,
    )
