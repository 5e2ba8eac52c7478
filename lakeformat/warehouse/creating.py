"""Creation of a table together with its first rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lakeformat.commit import commit, discard
from lakeformat.engines.choose import engine_for
from lakeformat.errors import CommitUnknown, LakeError
from lakeformat.maintenance.drop import drop
from lakeformat.model.operation import Create
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Snapshot
from lakeformat.table import Table, create
from lakeformat.verbs.append import append


def create_with_rows(
    table: Table, schema: Schema, data: Any, id: str | None = None, properties: Mapping[str, str] | None = None
) -> Snapshot | None:
    """Create a table with its first rows, which are written before the table appears. Raises `AlreadyExists`.

    If the format can do both in one commit, they appear together. Otherwise the table is created first, and dropped
    again if the commit of its rows fails. Without rows: an empty table and no snapshot.
    """
    twin, _ = table.dry_run()
    create(twin, schema)
    view = twin._view()
    request, _ = table._runner.request(view, id, properties)
    engine = engine_for(data)
    change = table._runner.change(view, request, engine)
    rows, store, format = append(change, data), change.store, table._format
    try:
        if rows and format.creates_with_rows:
            together = Create(request=replace(request, absent_until=0), schema=schema, added=rows.added)
            return commit(store, format.head(store), format, together, view.attempts())
        create(table, schema)
    except CommitUnknown:
        raise
    except LakeError:  # Nothing was committed, and no sweep would find the files: there is no table.
        discard(store, (file.path for file in rows.added) if rows else ())
        raise
    if not rows:
        return None
    try:
        return table._runner.commit(table._view(), rows, engine)
    except CommitUnknown:
        raise
    except LakeError:
        with suppress(LakeError):
            if table._view().snapshot is None:  # No other writer has committed to it.
                drop(table._store, format)
        raise
