"""Branches: folders with schemas, snapshots and tags of their own, over the data and manifests that all branches share.

A branch is read and written like a table, through a store that shows its folders in place of the table's
(`metadata.on_branch`). This module creates branches, deletes them, and fast-forwards the table to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.paimon import manifest, metadata, options
from lakeformat.dialects.paimon.metadata import (
    BRANCH_FOLDER,
    MAIN,
    SCHEMA_FOLDER,
    SNAPSHOT_FOLDER,
    State,
    branch_folder,
)
from lakeformat.dialects.part import Part
from lakeformat.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import NEVER, Expression, bind
from lakeformat.model.schema import Schema, Type
from lakeformat.model.snapshot import Expiry, Plan
from lakeformat.storage.cache import Cached, cached
from lakeformat.storage.store import Reader, Store
from lakeformat.storage.swapped import Swapped

_RENAMING = (
    "RENAMING"  # A file in the folder of a branch whose files are being copied there: the branch that they are of.
)


def names(reader: Reader) -> list[str]:
    """The names of all other branches, sorted. A folder without the table's first schema is no branch: it was not
    finished, or is being deleted."""
    prefix = f"{BRANCH_FOLDER}/branch-"
    folders = metadata.branches(reader)
    first = min(metadata.schema_ids(reader) if folders else (), default=0)
    there = [folder for folder in folders if reader.exists(f"{folder}{metadata.schema_path(first)}")]
    return sorted(folder[len(prefix) : -1] for folder in there)


@dataclass(frozen=True, slots=True)
class Branches(Part[State]):
    """Branches, seen from a table or one of them."""

    def begin(self, name: str, tag: str | None) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """(the snapshot that a branch starts at, if the view has one, and its tag; the schemas up to that of the view,
        the oldest last: it makes the branch complete).

        Raises `AlreadyExists`, but the unfinished creation of a branch with these files is resumed.
        """
        if name == MAIN:
            raise AlreadyExists(f"{self.reader.root}: branch {MAIN!r} is the table itself")
        metadata.check_new_name("branch", name)
        folder = branch_folder(name)
        files: dict[str, bytes] = {}
        if self.state.document is not None:
            snapshot = {key: value for key, value in self.state.document.items() if not key.startswith("tag")}
            files[f"{folder}/{metadata.snapshot_path(self.state.version)}"] = metadata.emit_snapshot(snapshot)
            if tag is not None:
                files[f"{folder}/{metadata.tag_path(tag)}"] = self.reader.read(metadata.tag_path(tag))
        paths = [
            metadata.schema_path(i) for i in reversed(metadata.schema_ids(self.reader)) if i <= self.state.schema.id
        ]
        schemas = {f"{folder}/{path}": self.reader.read(path) for path in paths}
        if self.require_free(name, {**files, **schemas}):
            raise AlreadyExists(f"{self.reader.root}: there is a branch {name!r}; delete it first")
        return files, schemas

    def require_free(self, name: str, files: Mapping[str, bytes]) -> bool:
        """Whether the folder of a branch has all of `files`. Raises `AlreadyExists` if it has any other file."""
        contents = _contents(self.reader, branch_folder(name))
        if any(files.get(path) != data for path, data in contents.items()):
            raise AlreadyExists(f"{self.reader.root}: there is a branch {name!r}; delete it first")
        return len(contents) == len(files)

    def end(self, name: str) -> Expiry:
        """The files of a branch, its first schema first: without it the branch does not exist, and the deletion of the
        rest can be repeated. Data and manifests that only the branch reached are left to the sweep. Raises
        `NotFound`."""
        if name == MAIN:
            raise InvalidInput(f"{self.reader.root}: {MAIN!r} is the table itself and cannot be deleted")
        if options.read(self.state.schema).scan_fallback_branch == name:
            raise InvalidInput(
                f"{self.reader.root}: branch {name!r} is the table's 'scan.fallback-branch'; "
                "remove that option before the branch"
            )
        folder = branch_folder(name)
        files = [file.path for file in self.reader.list(folder)]
        if not files:
            raise NotFound(
                f"{self.reader.root}: no branch {name!r}; there are: {', '.join([*names(self.reader), MAIN])}"
            )
        schemas = {path for path in files if path.startswith(f"{folder}/{SCHEMA_FOLDER}/")}
        folders = {path.rpartition("/")[0] for path in files} | {folder, f"{folder}/{metadata.TAG_FOLDER}"}
        first = tuple(sorted(schemas, key=lambda path: (len(path), path))[:1])
        return Expiry((), (first, tuple(sorted({*files} - {*first}))), folders=tuple(sorted(folders)))

    def require_renamable(self, name: str, to: str) -> tuple[str, str, str]:
        """(the folder of the branch `name`, the folder of `to`, a file in it that says that it is being renamed).
        Raises `NotFound` and `AlreadyExists`, but a renaming that was interrupted is resumed."""
        if MAIN in (name, to):
            raise InvalidInput(f"{self.reader.root}: {MAIN!r} is the table itself; no branch is renamed from or to it")
        if options.read(self.state.schema).scan_fallback_branch == name:
            raise InvalidInput(
                f"{self.reader.root}: branch {name!r} is the table's 'scan.fallback-branch'; "
                "remove that option before renaming the branch"
            )
        metadata.check_new_name("branch", to)
        folder = branch_folder(to)
        places, contents = (branch_folder(name), folder, f"{folder}/{_RENAMING}"), _contents(self.reader, folder)
        if contents.get(places[2]) == name.encode():
            return places
        if name not in (known := names(self.reader)):
            raise NotFound(f"{self.reader.root}: no branch {name!r}; there are: {', '.join([*known, MAIN])}")
        if contents:
            raise AlreadyExists(f"{self.reader.root}: there is a branch {to!r}; delete it first")
        return places

    def renamed(self, name: str, to: str) -> dict[str, bytes]:
        """The files of the branch `name` under the names that they have in a branch `to`, without hints; the schema
        that makes it a branch is last."""
        folder = branch_folder(name)
        files = {path.removeprefix(folder): data for path, data in _contents(self.reader, folder).items()}
        files = {
            path: data for path, data in files.items() if not path.endswith(("/LATEST", "/EARLIEST", f"/{_RENAMING}"))
        }
        schemas = [path for path in files if path.startswith(f"/{SCHEMA_FOLDER}/")]
        schemas.sort(key=lambda path: (len(path), path), reverse=True)
        order = [*(path for path in files if path not in schemas), *schemas]
        return {branch_folder(to) + path: files[path] for path in order}

    def require_mergeable(self, source: str) -> None:
        """Raise if the files of the branch `source` cannot be added to the view: `NotFound`, `InvalidInput`, and
        `Conflict` if the schemas of the two differ."""
        where = f"{self.reader.root}: branch {source!r} cannot be merged"
        if source == (own_name(self.reader) or MAIN):
            raise InvalidInput(f"{where} into itself")
        view, state = _newest(self.reader, source)
        table_options, source_options = options.read(self.state.schema), options.read(state.schema)
        if not table_options.branch_merge_enabled or not source_options.branch_merge_enabled:
            raise InvalidInput(
                f"{where}: the table needs the option 'branch-merge.enabled' = 'true' when it is made, "
                "by which files stay as they are"
            )
        if (
            table_options.bucket != source_options.bucket
            or table_options.row_tracking_enabled != source_options.row_tracking_enabled
        ):
            raise Conflict(f"{where}: the two have different options bucket or row-tracking.enabled")
        used = set(self.lacking(source)["_SCHEMA_ID"].to_pylist())
        paths = [
            metadata.schema_path(id)
            for id in sorted({*used, *(i for i in metadata.schema_ids(view) if i <= max(used, default=-1))})
        ]
        for path, mine, theirs in zip(paths, self.reader.read_many(paths), view.read_many(paths), strict=True):
            if mine is None or theirs is None or not metadata.is_same_schema(mine, theirs):
                raise Conflict(f"{where}: the two have different schemas ({path})")

    def lacking(self, source: str) -> pa.Table:
        """The live files of the branch `source` that the view lacks, as rows of `manifest.ENTRY`."""
        view, state = _newest(self.reader, source)
        entries = manifest.live_entries(view, state.document, state.schema)
        own = manifest.live_entries(self.reader, self.state.document, self.state.schema)
        return entries.filter(pc.invert(pc.is_in(entries["_FILE_NAME"], value_set=own["_FILE_NAME"].combine_chunks())))

    def forward(self, to: str) -> tuple[dict[str, bytes], Plan | None, dict[str, bytes] | None]:
        """(the schemas of the branch `to` that the view lacks, the first of its snapshots that the view lacks, as a
        plan, the tags that follow if that is the last one). If the view has all, the tags come with the schemas.

        Paimon's own fast-forward deletes the table's commits since the branch was created, and copies. Here nothing is
        deleted: the newest snapshot of the view must be one of the branch's, and those after it are committed in order.
        Raises `NotFound`, and `Conflict` if the two have diverged.
        """
        folder = branch_folder(to)
        schemas = _contents(self.reader, f"{folder}/{SCHEMA_FOLDER}")
        if not schemas:
            raise NotFound(f"{self.reader.root}: no branch {to!r}; there are: {', '.join([*names(self.reader), MAIN])}")
        where = f"{self.reader.root}: the table cannot go forward to branch {to!r}"
        ahead = _snapshots(self.reader, f"{folder}/")
        shared = [
            at for at, document in enumerate(ahead) if self.state.document and is_same(document, self.state.document)
        ]
        if self.state.document is not None and not shared:
            raise Conflict(
                f"{where}: its snapshot {self.state.version} did not lead to {to!r}. Write the branch's rows into the "
                "table instead, or create the branch again"
            )
        copies: dict[str, bytes] = {}
        for path, data in schemas.items():
            target = path.removeprefix(f"{folder}/")
            (existing,) = self.reader.read_many([target])
            if existing is not None and not metadata.is_same_schema(existing, data):
                raise Conflict(f"{where}: both changed their schemas since the branch began ({target})")
            if existing is None:
                copies[target] = data
        rest = ahead[shared[-1] + 1 :] if shared else ahead
        tags = _tags(self.reader, folder, where)
        if not rest:
            return copies | tags, None, None
        return copies, _taken_over(self.state.version + 1, rest[0]), tags if len(rest) == 1 else None

    def fallback(self) -> tuple[Reader, State] | None:
        """(a reader, the state) of the branch that `scan.fallback-branch` names, at the time of the view if that is an
        older snapshot; None if there is none (FallbackReadFileStoreTable)."""
        name = options.read(self.state.newest or self.state.schema).scan_fallback_branch
        if not name or name == (own_name(self.reader) or MAIN):
            return None
        view = _on(self.reader, name)
        where = f"{self.reader.root}: 'scan.fallback-branch' is {name!r}, and"
        newest = metadata.snapshot_ids(view)[-1:]
        state = metadata.load(view, newest[0] if newest else 0)
        if not state.exists:
            raise NotFound(
                f"{where} there is no such branch; there are: {', '.join(sorted({MAIN, *names(self.reader)}))}"
            )
        if self.state.newest is not None and self.state.document is not None:
            ids = metadata.snapshot_ids(view)
            if not ids:
                return None
            try:
                state = metadata.at_time(view, self.state.document["timeMillis"])
            except NotFound:  # Its first snapshot is younger: that one, as rewriteFallbackOptions has it.
                state = metadata.load_snapshot(view, ids[0])
        if _columns(self.state.schema) != _columns(state.schema):
            raise InvalidInput(f"{where} its columns are not the table's: {', '.join(map(str, state.schema.names))}")
        if self.state.schema.partitioning.names != state.schema.partitioning.names:
            raise InvalidInput(
                f"{where} its partitions are by {', '.join(state.schema.partitioning.names) or 'nothing'}"
            )
        if self.state.schema.primary_key and self.state.schema.primary_key != state.schema.primary_key:
            raise InvalidInput(
                f"{where} its primary key is {', '.join(state.schema.primary_key) or 'none'}, not the table's"
            )
        metadata.require_readable(state, self.reader.root)
        return view, state

    def empty(self) -> State:
        """The state before the first snapshot, with the newest schema."""
        return replace(self.state, version=0, document=None)

    def is_behind(self, source: str) -> bool:
        """Whether the branch `source` has files that the view lacks. Raises as `require_mergeable`."""
        self.require_mergeable(source)
        return len(self.lacking(source)) > 0

    def beside(self, other: Reader, state: State) -> Expression:
        """The condition on partitions that selects those that `state` has and the view lacks."""
        own, others = self._partitions(), Branches(other, state)._partitions()
        return bind(manifest.scope_of(state.schema, others - own), state.schema.fields) if others - own else NEVER

    def require(self, name: str) -> State:
        """The state, seen from the branch `name`. Raises `NotFound`."""
        if own_name(self.reader) != name:
            raise AssertionError(f"{self.reader.root}: a view of {own_name(self.reader)} is not one of branch {name}")
        if not self.state.exists:
            there = ", ".join(sorted({MAIN, *names(self.reader)} - {name}))
            raise NotFound(f"{self.reader.root}: no branch {name!r}; there are: {there}")
        return self.state

    def _partitions(self) -> set[tuple[Any, ...]]:
        _, values = manifest.partitions(
            manifest.live_entries(self.reader, self.state.document, self.state.schema), self.state.schema
        )
        return set(manifest.partition_values(values, self.state.schema))


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two documents are the same snapshot: on another branch it may have another number, and a tag adds
    fields."""
    return _essence(one) == _essence(other)


def own_name(reader: Reader) -> str | None:
    """The branch that `reader` shows; None for the table itself."""
    inner = reader.store if isinstance(reader, Cached) else reader
    return inner.inner.removeprefix(f"{BRANCH_FOLDER}/branch-") if isinstance(inner, Swapped) else None


def awaited(reader: Reader, documents: Mapping[int, Mapping[str, Any]]) -> int | None:
    """On a branch, the snapshot that the table is at: the table may still take over those after it. Otherwise None."""
    if own_name(reader) is None:
        return None
    newest = _snapshots(reader, f"{branch_folder(MAIN)}/")[-1:]
    return next((i for i, document in documents.items() if newest and is_same(document, newest[0])), None)


# --- private ----------------------------------------------------------------------------------------------------------


def _on(reader: Reader, name: str) -> Reader:
    """The table at the branch `name`, seen from any branch."""
    inner = reader.store if isinstance(reader, Cached) else reader
    whole = inner.store if isinstance(inner, Swapped) else inner
    store = whole if name == MAIN else metadata.on_branch(cast(Store, whole), name)
    return cached(store, reader.cache) if isinstance(reader, Cached) else store


def _newest(reader: Reader, name: str) -> tuple[Reader, State]:
    """(a reader of a branch, its newest state). Raises `NotFound`."""
    view = _on(reader, name)
    state = metadata.load(view, max(metadata.snapshot_ids(view), default=0))
    if not state.exists:
        raise NotFound(f"{reader.root}: no branch {name!r}; there are: {', '.join(sorted({MAIN, *names(reader)}))}")
    return view, state


def _columns(schema: Schema) -> list[tuple[int, str, Type]]:
    return [(field.id, field.name, field.type) for field in schema.fields]


def _contents(reader: Reader, folder: str) -> dict[str, bytes]:
    paths = [file.path for file in reader.list(folder)]
    contents = zip(paths, reader.read_many(paths), strict=True)
    return {path: data for path, data in contents if data is not None}


def _snapshots(reader: Reader, folder: str) -> list[dict[str, Any]]:
    """The documents of a branch's snapshots, oldest first."""
    start = f"{folder}{SNAPSHOT_FOLDER}/snapshot-"
    paths = [f"{folder}{SNAPSHOT_FOLDER}/{name}" for name in reader.names(f"{folder}{SNAPSHOT_FOLDER}")]
    paths = [path for path in paths if path.startswith(start) and path[len(start) :].isdecimal()]
    read = zip(paths, reader.read_many(paths), strict=True)
    documents = [metadata.parse_snapshot(data, f"{reader.root}/{path}") for path, data in read if data is not None]
    return sorted(documents, key=lambda document: document["id"])


def _taken_over(version: int, document: Mapping[str, Any]) -> Plan:
    """A branch's snapshot as the table's own, under the next number: restores leave gaps in a branch's numbers."""
    renumbered = {**document, "id": version}
    hints = {f"{SNAPSHOT_FOLDER}/LATEST": str(version).encode()}
    if version == 1:
        hints[f"{SNAPSHOT_FOLDER}/EARLIEST"] = b"1"
    return Plan(
        {}, metadata.snapshot_path(version), metadata.emit_snapshot(renumbered), metadata.to_snapshot(renumbered), hints
    )


def _tags(reader: Reader, folder: str, where: str) -> dict[str, bytes]:
    """The tags of a branch that the table lacks, each of the snapshot that the table took over."""
    existing = metadata.tags(reader)
    copies: dict[str, bytes] = {}
    taken = {metadata.content(document): document["id"] for document in _snapshots(reader, "")}
    for name, document in metadata.tags(reader, f"{folder}/").items():
        if name not in existing:
            version = taken.get(metadata.content(document), document["id"])
            copies[metadata.tag_path(name)] = metadata.emit_snapshot({**document, "id": version})
        elif not is_same(existing[name], document):
            raise Conflict(f"{where}: both have a tag {name!r}, of different snapshots; delete one of them")
    return copies


def _essence(document: Mapping[str, Any]) -> dict[str, Any]:
    own = {"id", "version", "tagCreateTime", "tagTimeRetained"}
    return {key: value for key, value in document.items() if key not in own and value is not None}
