"""Creation of a table over existing files, which are added where they are, in the commit that creates it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from lakeformat.commit import commit, discard
from lakeformat.engines.choose import engine_for
from lakeformat.errors import CommitUnknown, LakeError
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Create, Request
from lakeformat.model.schema import Schema
from lakeformat.model.session_table import SessionFiles
from lakeformat.model.work import WrittenFile
from lakeformat.storage.catalogued import Catalogued, files_of
from lakeformat.storage.store import ForwardingStore, Store
from lakeformat.table import Table, create
from lakeformat.verbs import adopt


@dataclass(frozen=True, slots=True)
class Adoptable:
    """Files that fit a table which does not exist yet; `schema` has the name mapping by which they are read."""

    schema: Schema
    added: tuple[WrittenFile, ...]


def inspect(table: Table, schema: Schema, files: SessionFiles, spark: Any) -> Adoptable:
    """Inspect the files as those of the table; nothing is written. Raises as `Table.add_files` does."""
    twin, _ = table.dry_run()
    create(twin, schema)
    view = twin._view()
    request, _ = table._runner.request(view, None)
    change = table._runner.change(view, request, engine_for(spark=spark))
    mapping: dict[str, str] = dict(adoption[1]) if (adoption := view.adoption()) is not None else {}

    def keep(properties: Mapping[str, str]) -> None:
        mapping.update(properties)

    operation = adopt.plan(change, files.paths, files.partitions, False, keep)
    return Adoptable(replace(schema, properties={**schema.properties, **mapping}), operation.added if operation else ())


def create_over(table: Table, adoptable: Adoptable) -> None:
    """Create the table with the files as its first snapshot, in one commit; none of them is deleted, whatever becomes
    of it. Raises `AlreadyExists`, and after any error but `CommitUnknown` removes its metadata: its folder may be
    another engine's."""
    store, written = table._store, Written(files_of(table._store))
    table = Table(
        table.name, replace(store, store=written) if isinstance(store, Catalogued) else written, table._format
    )
    head = table._format.head(table._store)
    request = Request(id=str(uuid.uuid4()))
    operation = Create(request=request, schema=adoptable.schema, added=adoptable.added, adopts=True)
    try:
        commit(table._store, head, table._format, operation)
    except CommitUnknown:
        raise
    except LakeError:
        with suppress(LakeError):
            if not head.version():
                discard(written.store, written.paths)
        raise


@dataclass(frozen=True, slots=True)
class Written(ForwardingStore):
    """A store that records the names of the files that are written."""

    store: Store
    paths: list[str] = field(default_factory=list)

    def write(self, path: str, data: bytes) -> None:
        self.paths.append(path)
        self.store.write(path, data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        self.paths.extend(files)
        self.store.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        is_new = self.store.create(path, data)
        if is_new:
            self.paths.append(path)
        return is_new
