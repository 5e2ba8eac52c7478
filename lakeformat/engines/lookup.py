"""Compaction that looks into files before it writes: whether one may stay as it is; and, where deletion vectors take the older
rows of a key, what there is of these on higher levels, which stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import expression
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import casts, marks, merge, rows, worker
from lakeformat.errors import LakeError
from lakeformat.model.schema import find_field
from lakeformat.model.work import FILE, POSITION, MergeSpec, ReadTask, RewriteTask, WrittenFile
from lakeformat.storage.store import Store


def rewrite(store: Store, task: RewriteTask) -> list[WrittenFile]:
    """Read, change, write again; with `task.marks`, what the new rows replace on higher levels is merged in and marked. Nothing is
    written where `task.lifts` and the keys rise."""
    if task.lifts and all(_rises(store, each) for each in task.read):
        return []
    if task.marks is None:
        return worker.rewrite(store, task)
    replaced: list[pa.RecordBatch] = []
    written = worker.write(store, _rows(store, task, replaced), task.write)
    try:
        return [*written, *(marks.write(store, replaced, task.marks) if replaced else [])]
    except BaseException:
        with suppress(LakeError):
            store.delete([file.path for file in written])
        raise


def _rises(store: Store, task: ReadTask) -> bool:
    """Whether each row's key is greater than that of the row before: then no key is there twice."""
    assert task.merge is not None, task
    (part,) = task.parts
    fields = tuple(find_field(part.fields, name) for name in task.merge.key)
    last: list[pa.Array] = []
    for batch in worker.read(store, replace(part, fields=fields)):
        keys = [casts.flat(batch.column(each.name)) for each in fields]
        if last:
            keys = [pa.concat_arrays([before, column]) for before, column in zip(last, keys, strict=True)]
        if not rows.rise(keys):
            return False
        last = [column[-1:] for column in keys]
    return True


def _rows(store: Store, task: RewriteTask, replaced: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of each section; `replaced` gets the places of those on higher levels that have their keys."""
    for each, older in zip(task.read, task.older, strict=True):
        assert each.merge is not None, each
        found: Iterator[pa.RecordBatch] = worker.read(store, each)
        if older:
            merged = _merged(store, each, each.merge, older, replaced)
            found = iter(merged.to_batches(worker.BATCH_ROWS))
        for batch in found:
            if task.delete_where is not None:
                batch = rows.keep(batch, pc.invert(expression.mask(task.delete_where, batch)))
            yield batch


def _merged(
    store: Store, task: ReadTask, spec: MergeSpec, older: tuple[ReadTask, ...], replaced: list[pa.RecordBatch]
) -> pa.Table:
    new = pa.Table.from_batches(list(worker.read(store, task)), arrow_schema(task.fields))
    fields = tuple(find_field(task.fields, name) for name in spec.key)
    keys = rows.KeySet(fields, [new.column(name).combine_chunks() for name in spec.key])
    under: list[pa.Table] = []
    for each in older:
        for batch in worker.read(store, each):
            batch = batch.filter(pa.array(keys.contains([batch.column(name) for name in spec.key])))
            if batch.num_rows:
                replaced.append(batch.select([FILE.name, POSITION.name]))
            if batch.num_rows and not spec.replaces:
                under.append(pa.Table.from_batches([batch.select(new.schema.names)]))
    return merge.merge(pa.concat_tables([*under, new]), spec) if under else new
