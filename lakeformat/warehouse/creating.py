"""Creation of a table together with its first rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace

from lakeformat.commit import commit, discard
from lakeformat.dialects.dialect import AnyView
from lakeformat.engines.engine import Engine
from lakeformat.errors import CommitUnknown, LakeError
from lakeformat.maintenance.drop import drop
from lakeformat.maintenance.runner import Runner
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Append, Create, Operation, Overwrite, Rewrite, RowDelta, new_files
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Snapshot
from lakeformat.table import Table, create


@dataclass(frozen=True, slots=True)
class CreatingRunner(Runner):
    """Runs the verb that creates a table. `empty` is the table in memory, without rows."""

    empty: AnyView = field(kw_only=True)
    schema: Schema = field(kw_only=True)

    def view(self) -> AnyView:
        """The empty table that the verb adds rows to."""
        return self.empty

    def commit(self, view: AnyView, operation: Operation, engine: Engine | None = None) -> Snapshot:
        """Create the table with the rows of an operation that was planned on `view`.

        If the format can do both in one commit, they appear together. Otherwise the table is created first, and dropped
        again if the commit of its rows fails.
        """
        store, table = self.reach(view), Table(self.name, self.store, self.format)
        try:
            added = operation.added if isinstance(operation, Append | Overwrite | RowDelta | Rewrite) else ()
            if added and self.format.creates_with_rows:
                request = replace(operation.request, absent_until=0)
                together = Create(request=request, schema=self.schema, added=added)
                return commit(store, self.format.head(store), self.format, together, view.attempts())
            create(table, self.schema)
        except CommitUnknown:
            raise
        except LakeError:  # Nothing was committed, and no sweep would find the files: there is no table.
            discard(store, new_files(operation))
            raise
        try:
            return Runner.commit(self, table._view(), operation, engine)
        except CommitUnknown:
            raise
        except LakeError:
            with suppress(LakeError):
                if table._view().snapshot is None:  # No other writer has committed to it.
                    drop(self.store, self.format)
            raise


def create_by(table: Table, schema: Schema, write: Callable[[Table], Snapshot | None]) -> Snapshot | None:
    """Create a table by the one verb that `write` calls on it, which adds its first rows. These are written before the
    table appears. Raises `AlreadyExists`.

    If the verb adds no rows, the table is empty; the result is None, or the snapshot of a verb that makes one without
    rows.
    """
    twin, _ = table.dry_run()
    create(twin, schema)
    creating = Table(table.name, table._store, table._format)
    creating._runner = CreatingRunner(table.name, table._store, table._format, empty=twin._view(), schema=schema)
    snapshot = write(creating)
    if snapshot is None:
        create(table, schema)
    return snapshot
