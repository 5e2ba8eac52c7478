"""Runs a verb: load the table, check whether its id has landed, plan, commit, and do the upkeep that follows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from lakeformat import arguments, clock
from lakeformat.commit import commit, newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.engines.choose import engine_for
from lakeformat.engines.engine import Engine
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.maintenance import compact, follow_up, mirror
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Append, Operation, Request
from lakeformat.model.snapshot import Snapshot
from lakeformat.storage.reaching import reaching
from lakeformat.storage.store import Store
from lakeformat.verbs.change import Change


@dataclass(frozen=True, slots=True)
class Runner:
    """A table as verbs run on it: its files, its format, and the branch or the staging id that snapshots go to."""

    name: str
    store: Store
    format: Format
    branch: str | None = None
    wap_id: str | None = None

    def view(self) -> AnyView:
        """The table as it is now. Raises `NotFound`."""
        view = newest(self.store, self.format)
        if not view.exists and self.branch is None:
            raise NotFound(f"{self.name}: there is no table at {self.store.root}")
        return view.on(self.branch)

    def reach(self, view: AnyView) -> Store:
        """The store that also writes and deletes files in the locations outside the table's folder that its properties
        name."""
        return reaching(self.store, view.outside_folders) if view.outside_folders else self.store

    def write(
        self,
        plan: Callable[[Change], Operation | None],
        engine: Engine,
        id: str | None,
        properties: Mapping[str, str] | None,
        watermark: int | None = None,
    ) -> Snapshot | None:
        """Commit the operation that `plan` makes of rows, and run the auto-compaction that belongs to it: also for an
        id that landed before, whose process may have died in between. None if there is nothing to do."""
        view = self.view()
        request, landed = self.request(view, id, properties, watermark)
        change = self.change(view, request, engine)
        if landed:
            compact.again(change, self.format, compact.upkeep(view), landed)
            return landed
        operation = plan(change)
        return None if operation is None else self.commit(view, operation, engine)

    def run(
        self,
        plan: Callable[[Change], Operation | None],
        id: str | None,
        properties: Mapping[str, str] | None,
        engine: Engine | None = None,
    ) -> Snapshot | None:
        """Commit the operation that `plan` makes, unless its id has landed. None if there is nothing to do."""

        def committed(change: Change) -> Snapshot | None:
            operation = plan(change)
            return None if operation is None else self.commit(change.view, operation)

        return self.once(committed, id, properties, engine)

    def once(
        self,
        work: Callable[[Change], Snapshot | None],
        id: str | None,
        properties: Mapping[str, str] | None,
        engine: Engine | None = None,
    ) -> Snapshot | None:
        """Do `work`, which commits by itself, unless its id has landed."""
        view = self.view()
        request, landed = self.request(view, id, properties)
        return landed or work(self.change(view, request, engine))

    def request(
        self,
        view: AnyView,
        id: str | None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> tuple[Request, Snapshot | None]:
        """The request of a verb, and the snapshot that it has already become: then no row is written again."""
        if id is not None:
            arguments.text("id", id)
        watermark = arguments.whole("watermark", watermark, -(2**63))
        if properties is not None and not isinstance(properties, Mapping):
            raise InvalidInput(f"properties={properties!r}: give a mapping of text to text")
        for key, value in (properties or {}).items():
            arguments.text("a property's name", key)
            arguments.text(f"property {key!r}", value, may_be_empty=True)
            if key.startswith("lakeformat."):
                raise InvalidInput(f"property {key!r}: names that begin with 'lakeformat.' are the library's own")
        staged = {} if self.wap_id is None else {"wap.id": self.wap_id}
        request = Request(
            id=id or str(uuid.uuid4()),
            schema_id=view.schema.id,
            properties={**(properties or {}), **staged},
            stages=bool(staged),
            watermark=watermark,
            branch=self.branch,
            partitioning_id=view.schema.partitioning.id,
        )
        landed = view.find(Append(request=request, added=())) if id else None
        return replace(request, absent_until=view.version), landed

    def change(self, view: AnyView, request: Request, engine: Engine | None = None) -> Change:
        return Change(self.reach(view), view, engine or engine_for(), request)

    def commit(self, view: AnyView, operation: Operation, engine: Engine | None = None) -> Snapshot:
        """Commit an operation. With `engine`, for a write of rows, also run the auto-compaction that belongs to it."""
        store = self.reach(view)
        snapshot = commit(store, self.format.head(store), self.format, operation, view.attempts(), loaded=view)
        upkeep = None if engine is None else view.compaction.upkeep()
        if engine is not None and upkeep is not None:
            compact.after(self.change(view, operation.request, engine), self.format, upkeep, snapshot)
        follow_up.after(store, self.format, view, snapshot, clock.now_ms())
        return snapshot

    def follow(self, view: AnyView) -> None:
        """Run what follows a change of tags or history alone."""
        if view.mirroring is not None:
            mirror.after(self.store, self.format)
