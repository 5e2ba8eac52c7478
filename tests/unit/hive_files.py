"""Iceberg data files as Hive and its kin leave them: without the columns that the partition tells."""

import uuid
from dataclasses import replace

from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines import worker
from lakeformat.engines.files import parquet
from lakeformat.model.operation import Append, Request
from lakeformat.model.partition import Partitioning, TransformKind
from lakeformat.model.work import OneFolder
from tests import doors

iceberg = Iceberg()


def append(table, rows, without=None, partition=None):
    """Append `rows` in files that lack `without`, by default the identity sources of the table's spec.

    `partition`: the partition of all of them, where it does not follow from the rows. Files then hold the columns, and the
    parts of columns, that `rows` has.
    """
    store, head = doors.store(table), iceberg.head(doors.store(table))
    base = iceberg.load(store, head.version())
    if partition is not None:
        schema = replace(base.schema, partitioning=Partitioning())
        base = replace(base, state=replace(base.state, schema=schema))
    layout = base.layout(from_files=True)
    if without is None:
        without = {p.source for p in layout.partition_by if p.transform.kind is TransformKind.IDENTITY}
    held = parquet.present(layout.fields, list(rows.schema))
    kept = tuple(field for field in held if field.name not in without)
    task = replace(layout, fields=kept, stats=(), partition_by=(), sort_by=(), directory=OneFolder("data"))
    added = []
    for batch in rows.combine_chunks().to_batches():
        groups = [(partition, None, batch)] if partition is not None else worker.placed(batch, layout)
        for values, _, group in groups:
            part = group.select([field.name for field in kept])
            added += [replace(file, partition=values) for file in worker.write(store, [part], task)]
    return commit(store, head, iceberg, Append(request=Request(id=str(uuid.uuid4())), added=tuple(added)))
