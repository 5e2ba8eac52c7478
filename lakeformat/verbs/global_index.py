"""Global indexes: a column is read with the ids of its rows, and its index is recorded with the snapshot."""

from __future__ import annotations

import pyarrow as pa

from lakeformat.codec.arrow import arrow_schema
from lakeformat.dialects.dialect import AnyView, Indexes
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.operation import Request, SetGlobalIndexes
from lakeformat.model.predicate import Expression
from lakeformat.verbs.change import Change


def create(change: Change, column: str, kind: str, scope: Expression) -> SetGlobalIndexes | None:
    """The operation that indexes the rows of a column which no index has, by files that are written now; None if there
    are none."""
    view = _indexed(change.view)
    files = []
    for part in view.unindexed_rows(column, kind, scope):
        batches = list(change.engine.read(change.files, part.reads, part.fields))
        for data, file in view.index_files(part, pa.Table.from_batches(batches, arrow_schema(part.fields))):
            change.store.write(file.path, data)
            files.append(file)
    if not files:
        return None
    return SetGlobalIndexes(request=change.request, added=tuple(files), read_at=change.view.snapshot_id)


def drop(view: AnyView, request: Request, column: str, kind: str, scope: Expression) -> SetGlobalIndexes | None:
    """The operation that drops a column's indexes in these partitions; None if there are none."""
    paths = _indexed(view).global_indexes(column, kind, scope)
    return SetGlobalIndexes(request=request, removed=tuple(paths), read_at=view.snapshot_id) if paths else None


def _indexed(view: AnyView) -> Indexes:
    if view.indexes is None:
        raise UnsupportedFeature(f"{view.reader.root}: {view.format.capitalize()} has no global indexes")
    return view.indexes
