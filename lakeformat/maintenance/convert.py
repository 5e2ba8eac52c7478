"""Convert a table to the other format in place; data files stay where the other format can represent them.

The other format's metadata is written beside the table's own and compared with it, row for row. Then a fence is created
under the name of the table's next version, which only one writer can create: from then on the table has the other
format, and the old metadata is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lakeformat.commit import commit, newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.engines.choose import engine_for
from lakeformat.engines.engine import Engine
from lakeformat.errors import Conflict, LakeError, UnsupportedFeature
from lakeformat.maintenance import compact, mirror
from lakeformat.model import evolution
from lakeformat.model.log import log
from lakeformat.model.operation import Adopt, Create, Evolve, Operation, OperationKind, Overwrite, Request
from lakeformat.model.partition import Partitioning, TransformKind
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import Plan, Snapshot
from lakeformat.model.work import Adopted, AdoptTask, FilesTask, RewriteTask
from lakeformat.reading.scan import Scan
from lakeformat.storage import fence, load_history
from lakeformat.storage.fence import Conversion
from lakeformat.storage.head import CreateHead
from lakeformat.storage.paths import relative
from lakeformat.storage.rehearsal import Rehearsal
from lakeformat.storage.store import Store
from lakeformat.verbs.change import Change

_ROUNDS = 5
_KEPT = {"comment", "write.format.default"}  # Prefix of properties that mirrored metadata has.


def convert(store: Store, format: Format, to: Format, history: bool, spark: object = None) -> None:
    """Convert the table of `format` at `store` to `to`. If interrupted, the table is complete in one of the formats,
    and the same call resumes. With `history`, the retained snapshots and their tags stay readable. Raises
    `UnsupportedFeature` for what `to` cannot represent, `LakeError` if the rows differ, and `Conflict` if others keep
    committing faster."""
    engine = engine_for(spark=spark)
    is_mirrored = newest(store, format).mirroring is not None
    if history and not is_mirrored:
        raise UnsupportedFeature(
            f"{store.root}: history=True: earlier snapshots cannot become {to.name.capitalize()} snapshots; "
            "leave it out"
        )
    for _ in range(_ROUNDS):
        unused: tuple[str, ...] = ()
        if is_mirrored:
            view = _prepared(store, format, engine)
            _show(store, format, view, history)
        else:
            view, unused = _adopted(store, format, to, engine)
        if newest(store, format).version != view.version:
            continue
        _verify(store, view, newest(store, to))
        beside = mirror.of_view(view)
        if beside is not None and beside.root != store.root:
            mirror.remove(store, beside)
        if _switch(store, format, view, to.name, unused):
            finish(store, format, to, spark)
            return
        log.info("%s: others committed while it was converted; once more", store.root)
    raise Conflict(f"{store.root}: others commit faster than the table is converted; stop them and convert it again")


def finish(store: Store, format: Format, to: Format, spark: object = None) -> None:
    """Finish a conversion from `format` that has been switched: delete the metadata of `format`. Does nothing if there
    is nothing left to do.

    The fence and its mark stay: a writer that was stopped just before it created its version would otherwise find the
    name free.
    """
    under_way = fence.conversion(store)
    if under_way is None or under_way.stood or under_way.to != to.name or not under_way.is_done(store):
        return
    _take_over(store, to, under_way.key, engine_for(spark=spark))
    last = {under_way.path, fence.MARK}
    *others, root = format.metadata_folders
    for folders in (others, [root]):  # The root documents are deleted last.
        store.delete([f.path for folder in folders for f in store.list(folder) if f.path not in last])
    store.delete(under_way.gone)
    store.write(fence.MARK, replace(under_way, gone=(), stood=True).emit())
    store.remove_empty_folders(format.metadata_folders)


# --- private ----------------------------------------------------------------------------------------------------------


def _prepared(store: Store, format: Format, engine: Engine) -> AnyView:
    """The table, once the other format can show all its rows."""
    view = newest(store, format)
    if view.mirroring is None:
        raise UnsupportedFeature(f"{store.root}: {view.format.capitalize()} tables are not converted")
    view.mirroring.shown()  # Raises what it refuses before anything is written.
    if view.snapshot is None:
        nothing = Overwrite(request=_request(view), added=(), kind=OperationKind.TRUNCATE)
        _commit(store, format, view, nothing)
    elif tasks := view.mirroring.unshown():
        _commit(store, format, view, compact.rewritten(Change(store, view, engine, _request(view)), ALWAYS, tasks))
    return newest(store, format)


def _show(store: Store, format: Format, view: AnyView, history: bool) -> None:
    """Write the other format's metadata into the table's folder."""

    def load(snapshot_id: int | None) -> AnyView:
        loaded = newest(store, format) if snapshot_id is None else format.load_snapshot(store, snapshot_id)
        return _shown(loaded)

    kept = mirror.of_view(view)
    if kept is None or kept.root != store.root:
        at = mirror.of_view(_shown(view))
        assert at is not None, store.root
        mirror.remove(store, at)  # Left by a conversion that was given up.
        for snapshot in view.history.snapshots()[:-1] if history else ():
            mirror.follow(store, format, partial(load, snapshot.id))
    mirror.follow(store, format, partial(load, None))


def _shown(view: AnyView) -> AnyView:
    """The table as if its mirror were in its own folder."""
    assert view.mirroring is not None, view
    return replace(view, state=view.mirroring.shown())


def _verify(store: Store, ours: AnyView, theirs: AnyView) -> None:
    """Raise `LakeError` unless both tables have the same rows."""
    there = Scan(store, theirs, theirs.project(None))
    scans = (Scan(store, ours, ours.project(None)), there)
    before, after = (scan.checksum(there.schema) for scan in scans)
    if before != after:
        raise LakeError(
            f"{store.root}: not converted: as {ours.format} it has {before[0]:,} rows and checksum {before[1]}, as "
            f"{theirs.format} {after[0]:,} rows and {after[1]}"
        )
    log.info("%s: %d rows, checksum %s, in both formats", store.root, *before)


def _adopted(store: Store, format: Format, to: Format, engine: Engine) -> tuple[AnyView, tuple[str, ...]]:
    """The table, once an invisible table of `to` has its rows, and the data files that only the old metadata refers to.
    Files are kept, each under a schema of the columns that it has. Files with deleted rows, outside the table's folder,
    or that no schema describes are rewritten."""
    view = newest(store, format)
    _require_adoptable(store, view)
    schema = _declared(view.schema)
    twin = Rehearsal(store)  # The files say which schemas are needed.
    _clear(twin, to)
    _create(twin, to, schema, ())
    like = newest(twin, to).layout()
    initial = {field.id: field.initial for field in schema.fields}
    like = replace(like, fields=tuple(replace(field, initial=initial.get(field.id)) for field in like.fields))
    tasks = view.tasks(view.files(), view.schema.fields, alone=True)
    _require_apart(store, tasks, to)
    whole = [t for t in tasks if not any(t.deletes) and relative(store.root, store.location(t.paths[0])) is not None]
    adopting = (AdoptTask(t.paths[0], like, t.mapping, t.positions, has_schema=True) for t in whole)
    adopted = engine.adopt(store, list(adopting))
    now = tuple((field.id, field.name, field.type) for field in like.fields)
    groups: dict[tuple[Any, ...], list[Adopted]] = {}
    for outcome in adopted:
        if outcome.file is not None:
            groups.setdefault(tuple((f.id, f.name, f.type) for f in outcome.fields), []).append(outcome)
    others = [columns for columns in groups if columns != now]
    _mark(store, format, view, to.name)
    _clear(store, to)
    _create(store, to, schema, tuple(groups[columns][0].fields for columns in others))
    created = newest(store, to)
    stay = {task.paths[0] for task, one in zip(whole, adopted, strict=True) if one.refused is None}
    anew = [RewriteTask((task,), created.layout()) for task in tasks if task.paths[0] not in stay]
    written = [file for files in engine.rewrite(store, anew) for file in files]
    added = [(id, [group.file for group in groups[columns] if group.file]) for id, columns in enumerate(others)]
    added.append((created.schema.id, [*(outcome.file for outcome in groups.get(now, ()) if outcome.file), *written]))
    for schema_id, files in added:
        if files:
            request = replace(_request(created), schema_id=schema_id)
            _commit(store, to, newest(store, to), Adopt(request=request, added=tuple(files), may_repeat=True))
    used = {store.location(file.path) for _, files in added for file in files}
    kept = (*format.metadata_folders, *to.metadata_folders, *load_history.FOLDERS.values())
    folders = tuple(f"{folder}/" for folder in kept)
    reached = {path for wave in format.everything(store).waves for path in wave if not path.startswith(folders)}
    return view, tuple(sorted(path for path in reached if store.location(path) not in used))


def _require_apart(store: Store, tasks: Sequence[FilesTask], to: Format) -> None:
    """Raise `UnsupportedFeature` for a table whose files lie where `to` has its metadata, which a conversion clears."""
    folders = tuple(f"{folder}/" for folder in to.metadata_folders)
    for task in tasks:
        for path in (*task.paths, *(file.path for files in task.deletes for file in files)):
            inner = relative(store.root, store.location(path)) or ""
            if inner.startswith(folders):
                raise UnsupportedFeature(
                    f"{store.root}: {inner} is a file of the table, in a folder where {to.name.capitalize()} has "
                    "metadata: set write.data.path to another folder, compact(full=True, sort_by=...), "
                    "and expire the snapshots before"
                )


def _declared(schema: Schema) -> Schema:
    """A table without a key, with these columns, and with those partition fields that are plain columns."""
    kept = (field for field in schema.partitioning.fields if field.transform.kind is TransformKind.IDENTITY)
    return Schema(
        fields=tuple(replace(field, default=None) for field in schema.fields),
        partitioning=Partitioning(tuple(kept)),
        properties={"bucket": "-1", "file.format": "parquet"},
        comment=schema.comment,
        last_field_id=schema.last_field_id,
    )


def _create(store: Store, to: Format, schema: Schema, earlier: tuple[tuple[Field, ...], ...]) -> None:
    request = Request(id=str(uuid.uuid4()))
    commit(store, to.head(store), to, Create(request=request, schema=schema, keeps_ids=True, earlier=earlier))


def _require_adoptable(store: Store, view: AnyView) -> None:
    """Raise `UnsupportedFeature` for what would be lost."""
    refs = view.inspect("refs").to_pylist()
    branches = [ref["name"] for ref in refs if ref["type"] == "BRANCH" and ref["name"] != "main"]
    if branches:
        raise UnsupportedFeature(
            f"{store.root}: branch {branches[0]!r} would be lost: fast_forward to it, or delete_branch, first"
        )
    if view.schema.properties.get("gc.enabled", "true").strip().lower() == "false":
        raise UnsupportedFeature(
            f"{store.root}: gc.enabled=false: others use this table's files, "
            "which the converted table would delete one day"
        )
    if view.schema.primary_key:
        raise UnsupportedFeature(
            f"{store.root}: a Paimon table with a primary key orders its rows by key, so all of them would be "
            "rewritten: copy it into one (lakeformat copy), or alter().set_primary_key([]) first, for a table "
            "without a key"
        )


def _clear(store: Store, to: Format) -> None:
    """Delete what an abandoned conversion left behind."""
    folders = reversed(to.metadata_folders)
    store.delete([f.path for folder in folders for f in store.list(folder) if f.path != fence.MARK])


def _mark(store: Store, format: Format, view: AnyView, to: str, unused: tuple[str, ...] = ()) -> Conversion:
    """Write the mark: the target format, and the name of the next version, which the fence will take."""
    head = format.head(store)
    assert isinstance(head, CreateHead), head
    names = set(store.names(head.folder))
    ending = next(suffix for suffix in head.suffixes if f"{head.prefix}{view.version}{suffix}" in names)
    path = f"{head.folder}/{head.prefix}{view.version + 1}{ending}"
    under_way = Conversion(to, path, view.schema.primary_key, unused)
    store.write(fence.MARK, under_way.emit())
    return under_way


def _switch(store: Store, format: Format, view: AnyView, to: str, unused: tuple[str, ...]) -> bool:
    """Create the fence. False if others have committed the next version of the table."""
    under_way = _mark(store, format, view, to, unused)
    nothing = Snapshot(0, "convert", 0, view.schema.id)
    format.head(store).advance(view.version, Plan({}, under_way.path, fence.fence(to, str(uuid.uuid4())), nothing))
    return under_way.is_done(store)


def _take_over(store: Store, to: Format, key: tuple[str, ...], engine: Engine) -> None:
    """Make the mirrored metadata the table's own: properties for the mirror are removed, and so are deleted rows and
    their files."""
    view = newest(store, to)
    of_mirror = tuple(sorted(view.schema.properties.keys() - _KEPT))
    if "gc.enabled" in of_mirror:
        changes = (evolution.RemoveProperties(of_mirror), *([evolution.SetKey(key)] if key else []))
        _commit(store, to, view, Evolve(request=_request(view), changes=changes))
        view = newest(store, to)
    fields, write = view.rewriting()
    tasks = [RewriteTask((task,), write) for task in view.tasks(view.files(), fields, alone=True) if any(task.deletes)]
    if tasks:
        _commit(store, to, view, compact.rewritten(Change(store, view, engine, _request(view)), ALWAYS, tasks))


def _commit(store: Store, format: Format, view: AnyView, operation: Operation) -> Snapshot:
    return commit(store, format.head(store), format, operation, view.attempts(), loaded=view)


def _request(view: AnyView) -> Request:
    schema = view.schema
    return Request(
        id=str(uuid.uuid4()), absent_until=view.version, schema_id=schema.id, partitioning_id=schema.partitioning.id
    )
