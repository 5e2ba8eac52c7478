"""File indexes of existing files: columns are read, and their indexes are recorded with the files."""

from __future__ import annotations

import uuid

from lakeformat.codec.paimon import file_index
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.operation import SetFileIndexes
from lakeformat.model.predicate import Expression
from lakeformat.model.work import IndexTask
from lakeformat.verbs.change import Change


def rewrite(change: Change, scope: Expression) -> SetFileIndexes | None:
    """The operation that gives files the indexes that they lack, which are written now; None if they have all."""
    view = change.view
    if view.indexes is None:
        raise UnsupportedFeature(
            f"{view.reader.root}: {view.format.capitalize()} has no file indexes; "
            "its Parquet files may have bloom filters"
        )
    made = tuple((task.read.paths[0], _written(change, task)) for task in view.indexes.unindexed(scope))
    return SetFileIndexes(request=change.request, indexes=made) if made else None


def _written(change: Change, task: IndexTask) -> bytes | str:
    """The indexes of a file, old and new, or the path at which they are written: under a name of its own, since readers
    of older snapshots know the old one."""
    fresh = {column: file_index.fresh(column.kind, column.settings) for column, _ in task.missing}
    types = {field.name: field.type for field in task.read.fields}
    for batch in change.engine.read(change.files, [task.read], task.read.fields):
        for column, index in fresh.items():
            index.add(batch.column(column.column), types[column.column])
    columns = {name: dict(kinds) for name, kinds in task.kept.items()}
    for column, name in task.missing:
        columns.setdefault(name, {})[column.kind] = bytes(fresh[column])
    data = file_index.emit(columns)
    if len(data) <= task.embedded_bytes:
        return data
    path = f"{task.read.paths[0]}-{uuid.uuid4()}.index"
    change.store.write(path, data)
    return path
