"""Lookup compaction: it checks whether a file can be upgraded, and looks up the rows that new keys have on higher
levels, for a changelog or for deletion vectors; those rows stay where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import worker
from lakeformat.engines.kernels import rows
from lakeformat.engines.keyed import merge
from lakeformat.engines.row_level import marks
from lakeformat.errors import LakeError
from lakeformat.expression import evaluation
from lakeformat.model.predicate import ALWAYS, Expression, between, is_in
from lakeformat.model.schema import Field, Kind, Scalar, find_field
from lakeformat.model.work import (
    FILE,
    POSITION,
    MergeEngine,
    MergeSpec,
    MergeTask,
    ReadTask,
    RewriteTask,
    WrittenFile,
    paths_of,
)
from lakeformat.storage.store import Store

_FEW = 1000  # Up to so many keys are looked up one by one.
_PRUNABLE = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.DATE, Kind.CHAR, Kind.VARCHAR, Kind.STRING)


def rewrite(store: Store, task: RewriteTask) -> list[WrittenFile]:
    """Read, change and rewrite; rows on higher levels that the new rows replace (`task.older`) are merged in, written
    to the changelog and deleted by position. Nothing is written for `task.upgrades` if the file's rows are sorted by
    unique keys."""
    if task.upgrades and all(_rises(store, part) for part in task.read):
        return []
    if not task.older:
        return worker.rewrite(store, task)
    replaced: list[pa.RecordBatch] = []
    changelog: list[pa.RecordBatch] = []
    merged = _settled(store, task, changelog) if task.marks is None else _rows(store, task, replaced)
    written = worker.write(store, merged, task.write)
    try:
        if task.marks is not None and replaced:
            written += marks.write(store, replaced, task.marks)
        if task.changelog is not None and changelog:
            written += worker.write(store, changelog, task.changelog)
        return written
    except BaseException:
        with suppress(LakeError):
            store.delete(paths_of(written))
        raise


def _rises(store: Store, task: ReadTask) -> bool:
    """Whether each row's key is greater than the one before: then no key is duplicated."""
    assert isinstance(task, MergeTask), task
    (part,) = task.parts
    fields = tuple(find_field(part.fields, name) for name in task.merge.key)
    last: list[pa.Array] = []
    for batch in worker.read(store, replace(part, fields=fields)):
        keys = [layouts.plain(batch.column(field.name)) for field in fields]
        if last:
            keys = [pa.concat_arrays([before, column]) for before, column in zip(last, keys, strict=True)]
        if not rows.rise(keys):
            return False
        last = [column[-1:] for column in keys]
    return True


def _settled(store: Store, task: RewriteTask, changelog: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of each section; those of new keys are merged with the rows of the levels above. `changelog` gets the
    changed rows."""
    for part, earlier, older in zip(task.read, task.before, task.older, strict=True):
        assert isinstance(part, MergeTask), part
        schema = arrow_schema(part.fields)
        new, before = (
            pa.Table.from_batches([] if one is None else list(worker.read(store, one)), schema)
            for one in (part, earlier)
        )
        if older and (table := _under(store, older, new, before, part.merge)).num_rows:
            if part.merge.engine is MergeEngine.FIRST_ROW:  # Existing rows, which stay where they are.
                key = tuple(find_field(older[0].fields, name) for name in part.merge.key)
                new = new.filter(pa.array(~_key_set(key, table).contains(_key_columns(key, new))))
            else:
                before = pa.concat_tables([before, table])
                new = merge.merge(pa.concat_tables([table, new]), part.merge)
        if task.changelog is not None:
            changelog += merge.difference(before, new, part.merge, task.compared).to_batches(worker.BATCH_ROWS)
        yield from _kept(task, new.to_batches(worker.BATCH_ROWS))


def _under(store: Store, older: tuple[ReadTask, ...], new: pa.Table, before: pa.Table, spec: MergeSpec) -> pa.Table:
    """The rows on the levels above of the `new` keys that have none in `before`: those of the lowest level."""
    fields = tuple(find_field(older[0].fields, name) for name in spec.key)
    if before.num_rows:
        old_keys = _key_set(fields, before)
        new = new.filter(pa.array(~old_keys.contains(_key_columns(fields, new))))
    parts = [new.schema.empty_table()]
    if new.num_rows:
        keys, near = _key_set(fields, new), _near(fields[0], new)
        for task in older:
            for batch in worker.read(store, replace(task, predicate=near)):
                batch = batch.filter(pa.array(keys.contains([batch.column(f.name) for f in fields])))
                if batch.num_rows:
                    parts.append(pa.Table.from_batches([batch]))
    return merge.last_of_each(pa.concat_tables(parts), spec)


def _key_columns(fields: tuple[Field, ...], table: pa.Table) -> list[pa.Array]:
    return [table.column(f.name).combine_chunks() for f in fields]


def _key_set(fields: tuple[Field, ...], table: pa.Table) -> rows.KeySet:
    return rows.KeySet(fields, _key_columns(fields, table))


def _near(field: Field, table: pa.Table) -> Expression:
    """A condition on a key column that is true for all rows of `table`, by which files are skipped."""
    if not isinstance(field.type, Scalar) or field.type.kind not in _PRUNABLE:
        return ALWAYS
    values = pc.unique(table.column(field.name))
    if len(values) <= _FEW:
        return is_in(field.name, values.to_pylist())
    bounds = pc.min_max(values).as_py()
    return between(field.name, bounds["min"], bounds["max"])


def _kept(task: RewriteTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if task.delete_where is not None:
            batch = rows.keep(batch, pc.invert(evaluation.mask(task.delete_where, batch)))
        yield batch


def _rows(store: Store, task: RewriteTask, replaced: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of each section; `replaced` gets the positions of the rows on higher levels with their keys."""
    for part, older in zip(task.read, task.older, strict=True):
        assert isinstance(part, MergeTask), part
        batches: Iterator[pa.RecordBatch] = worker.read(store, part)
        if older:
            merged = _merged(store, part, part.merge, older, replaced)
            batches = iter(merged.to_batches(worker.BATCH_ROWS))
        yield from _kept(task, batches)


def _merged(
    store: Store, task: ReadTask, spec: MergeSpec, older: tuple[ReadTask, ...], replaced: list[pa.RecordBatch]
) -> pa.Table:
    new = pa.Table.from_batches(list(worker.read(store, task)), arrow_schema(task.fields))
    keys = _key_set(tuple(find_field(task.fields, name) for name in spec.key), new)
    under: list[pa.Table] = []
    for level in older:
        for batch in worker.read(store, level):
            batch = batch.filter(pa.array(keys.contains([batch.column(name) for name in spec.key])))
            if batch.num_rows:
                replaced.append(batch.select([FILE.name, POSITION.name]))
            if batch.num_rows and not spec.replaces:
                under.append(pa.Table.from_batches([batch.select(new.schema.names)]))
    return merge.merge(pa.concat_tables([*under, new]), spec) if under else new
