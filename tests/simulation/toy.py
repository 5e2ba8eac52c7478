"""The smallest table format that the commit loop can drive: one manifest of data files a version, all in JSON."""

import json
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lakeformat.errors import Conflict, NoSuchFile
from lakeformat.model.operation import Append, Operation, Overwrite, Request, Rewrite
from lakeformat.model.snapshot import Outcome, Plan, Snapshot, Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage.head import CreateHead, Head
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.store import Reader, Store
from tests.simulation.racing import Report, Told

name = "toy"


@dataclass(frozen=True)
class State:
    """A view of the toy."""

    version: int
    root: dict[str, Any]
    files: tuple[str, ...]
    reader: Reader

    def find(self, operation: Operation) -> Snapshot | None:
        return find(self.reader, operation, self)

    def settle(self, operation: Operation, plan: Plan, since: int) -> Outcome:
        return settle(self.reader, operation, self, plan, since)

    def waits_ms(self) -> tuple[int, int]:
        return 10, 10_000

    def check(self, operation: Operation) -> None:
        check(self.reader, operation, self)

    def plan(self, operation: Operation, stamp: Stamp) -> Plan:
        return plan(self.reader, operation, self, stamp)


def head(store: Store) -> Head:
    return CreateHead(store)


def load(reader: Reader, version: int, known: State | None = None) -> State:
    if version == 0:
        return State(0, {"schema": 0}, (), reader)
    root = json.loads(reader.read(f"snapshot/snapshot-{version}"))
    return State(version, root, tuple(json.loads(reader.read(root["manifest"]))), reader)


def find(reader: Reader, operation: Operation, base: State) -> Snapshot | None:
    for version in range(base.version, operation.request.absent_until, -1):
        root = json.loads(reader.read(f"snapshot/snapshot-{version}"))
        if root["id"] == operation.request.id:
            return Snapshot(version, root["kind"], 0, 0, root["id"])
    return None


def settle(reader: Reader, operation: Operation, base: State, plan: Plan, since: int) -> Outcome:
    return Outcome.PUBLISHED if reader.read(plan.root_path) == plan.root else Outcome.LOST


def check(reader: Reader, operation: Operation, base: State) -> None:
    if isinstance(operation, Rewrite) and not set(operation.removed) <= set(base.files):
        raise Conflict("files that were read are gone")


def plan(reader: Reader, operation: Operation, base: State, stamp: Stamp) -> Plan:
    match operation:
        case Append(added=added):
            files = [*base.files, *(f.path for f in added)]
        case Overwrite(added=added):
            files = [f.path for f in added]
        case Rewrite(added=added, removed=removed):
            files = [*(f for f in base.files if f not in removed), *(f.path for f in added)]
        case _:
            raise AssertionError(operation)
    manifest, version = f"manifest/manifest-{stamp.nonce}", base.version + 1
    root = {"id": operation.request.id, "kind": type(operation).__name__, "manifest": manifest}
    return Plan(
        {manifest: json.dumps(files).encode()},
        f"snapshot/snapshot-{version}",
        json.dumps(root).encode(),
        Snapshot(version, root["kind"], 0, 0, root["id"]),
        {"snapshot/LATEST": str(version).encode()},
    )


class ToyWorld:
    """Appends, replacements of everything, and rewrites of files that were read."""

    fault_ratio = read_fault_ratio = 0.06
    pause_ratio, asks_again = 0.0, True

    def __init__(self) -> None:
        import tests.simulation.toy as dialect

        self.dialect = dialect

    def found(self, seed: int) -> MemoryFiles:
        return MemoryFiles(now_ms=lambda: 0)

    def operation(self, store: Store, random: random.Random, id: str) -> Operation | None:
        kind = random.choice(["append", "append", "replace", "rewrite"])
        path = f"data/{id}"
        if kind == "rewrite":
            base = load(store, head(store).version())
            if not base.files:
                return None
            removed = tuple(random.sample(base.files, min(2, len(base.files))))
        store.write(path, id.encode())
        added, request = (WrittenFile(path, (), 1, len(id)),), Request(id=id)
        match kind:
            case "append":
                return Append(request=request, added=added)
            case "replace":
                return Overwrite(request=request, added=added)
            case _:
                return Rewrite(request=request, removed=removed, added=added)

    def around(self, store: Store, operation: Operation) -> AbstractContextManager[None]:
        return nullcontext()

    def aside(self, store: Store, random: random.Random) -> None:
        pass

    def violations(self, store: MemoryFiles, reports: Sequence[Report]) -> list[str]:
        wrong = []
        history: list[str] = []
        live: list[str] = []
        operations = {r.operation.request.id: r.operation for r in reports}
        for version in range(1, head(store).version() + 1):
            try:
                state = load(store, version)
            except NoSuchFile as error:
                return [f"dangling manifest: {error}"]
            history.append(state.root["id"])
            match operations.get(state.root["id"]):
                case Append(added=added):
                    live = [*live, *(f.path for f in added)]
                case Overwrite(added=added):
                    live = [f.path for f in added]
                case Rewrite(added=added, removed=removed):
                    if not set(removed) <= set(live):
                        wrong.append("a rewrite of files that were gone")
                    live = [*(f for f in live if f not in removed), *(f.path for f in added)]
                case None:
                    wrong.append(f"version {version} is nobody's: {state.root['id']}")
            if list(state.files) != live:
                wrong.append(f"version {version} holds {state.files}, its history says {live}")
            if gone := [path for path in state.files if version == head(store).version() and not store.exists(path)]:
                wrong.append(f"dangling data: version {version} names {gone}")
        wrong += [f"operation applied twice: {id}" for id in sorted(set(history)) if history.count(id) > 1]
        for report in reports:
            id = report.operation.request.id
            if report.told is Told.DONE and id not in history:
                wrong.append(f"operation lost: {id}")
            if report.told is Told.DONE and report.snapshot and history[report.snapshot.id - 1 :][:1] != [id]:
                wrong.append(f"operation {id} was said to be version {report.snapshot.id}")
            if report.told is Told.REFUSED and id in history:
                wrong.append(f"operation refused and applied: {id}")
        return wrong
