"""Branches: create, rename, drop, merge, fast-forward. A branch begins by a commit, or, where it is a folder, with
copies of a snapshot and its schemas."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial

from lakeformat import clock
from lakeformat.commit import discard
from lakeformat.dialects.dialect import AnyView, Branches, Format, Staging
from lakeformat.errors import AlreadyExists, CommitLost, Conflict, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.operation import CreateBranch, MergeBranch, Request
from lakeformat.model.snapshot import Expiry, Outcome, Plan, Snapshot
from lakeformat.storage.catalogued import BranchKeeper, Catalogued
from lakeformat.storage.head import Head, load_newest
from lakeformat.storage.store import Store
from lakeformat.verbs import tag as tags

_TAG_MS = 3_600_000


def begin(
    table: str, view: AnyView, name: str, retain_ms: int | None, keep_snapshots: int | None, keep_ms: int | None
) -> CreateBranch:
    """The operation that creates the branch `name` at the snapshot of `view`. Raises `NotFound` if it has none."""
    if view.snapshot is None:
        raise NotFound(f"{table}: there is no snapshot that branch {name!r} could begin at; write something first")
    request = Request(id=str(uuid.uuid4()), absent_until=view.version)
    return CreateBranch(
        request=request,
        name=name,
        snapshot_id=view.snapshot.id,
        retain_ms=retain_ms,
        keep_snapshots=keep_snapshots,
        keep_ms=keep_ms,
    )


def create(store: Store, format: Format, view: AnyView, branches: Branches, name: str, tag: str | None) -> None:
    """Create the branch `name` at `view`; `tag` is the tag that it is the view of. Raises `AlreadyExists`,
    and `NotFound` if an expiry has begun to remove the snapshot or the tag is gone.

    The first schema is written last: without it there is no branch, so an interrupted call can be repeated.
    """
    begins_at, schemas = branches.begin(name, tag)
    if (keeper := _keeper(store)) is not None:
        _create_at(store, format, keeper, view, name, tag)
        return
    with tags.kept(store, view, tag):
        created = [path for path, data in begins_at.items() if store.create(path, data)]
    try:
        branches.require_free(name, {**begins_at, **schemas})  # If two create it at once, their files are not mixed.
    except AlreadyExists:
        discard(store, created)
        raise
    for path, data in schemas.items():
        store.create(path, data)


def drop(store: Store, branches: Branches, name: str) -> Expiry:
    """Drop the branch `name`; returns the files to delete. Raises `NotFound`."""
    files = branches.end(name)
    if (keeper := _keeper(store)) is None:
        return files
    keeper.drop_branch(name)
    return Expiry((), ())


def merge(view: AnyView, request: Request, source: str) -> MergeBranch | None:
    """The operation that adds the files of the branch `source` to `view`; None if it has them. Raises `NotFound` and
    `Conflict`."""
    if view.branches is None:
        raise UnsupportedFeature(
            f"{view.reader.root}: branches of an {view.format.capitalize()} table are fast-forwarded, not merged; "
            f"insert the rows of branch {source!r}"
        )
    return MergeBranch(request=request, source=source) if view.branches.is_behind(source) else None


def staged(table: str, staging: Staging, wap_id: str) -> int:
    """The snapshot staged under an id. Raises `NotFound`, and `InvalidInput` for several."""
    snapshot_ids = staging.staged(wap_id)
    if not snapshot_ids:
        raise NotFound(f"{table}: nothing is staged under the id {wap_id!r}")
    if len(snapshot_ids) > 1:
        raise InvalidInput(
            f"{table}: {len(snapshot_ids)} snapshots are staged under the id {wap_id!r}: "
            f"{', '.join(map(str, snapshot_ids))}; choose one, by cherry_pick"
        )
    return snapshot_ids[0]


def rename(store: Store, view: AnyView, name: str, to: str) -> None:
    """Rename a branch: its folder in one step where storage can do that, else file by file. Raises `NotFound` and
    `AlreadyExists`.

    File by file, the new branch exists once its last file is there, and the old one until its first schema is deleted:
    an interrupted call can be repeated. Commits to the old branch until then come along."""
    if _keeper(store) is not None:
        raise UnsupportedFeature(
            f"{store.root}: this catalog does not rename branches; create another branch at its tag"
        )
    branches = view.branches
    if branches is None:
        raise UnsupportedFeature(
            f"{store.root}: {view.format.capitalize()} has no renaming of branches; "
            f"create branch {to!r} and delete {name!r}"
        )
    old, new, marker = branches.require_renamable(name, to)
    try:
        store.move_folder(old, new)
        return
    except UnsupportedFeature:
        pass
    if not store.create(marker, name.encode()) and store.read(marker) != name.encode():
        raise AlreadyExists(f"{store.root}: another branch is being renamed to {to!r}")
    copied: dict[str, bytes] = {}
    while copies := _not_in(branches.renamed(name, to), copied):
        _copy(store, copies, copied, to)
    if copied:
        first, rest = branches.end(name).waves
        store.delete(first)
        _copy(store, _not_in(branches.renamed(name, to), copied), copied, to)
        store.delete(rest)
    store.delete([marker])


def fast_forward(store: Store, format: Format, view: AnyView, to: str) -> None:
    """Commit to the table the snapshots that the branch `to` has after the table's newest one, one after the other. If
    interrupted, the table is at one of the branch's snapshots, and the same call resumes.

    Raises `Conflict` if the table has snapshots that did not lead to the branch, including one committed meanwhile. The
    table may then have the branch's schema already, since a snapshot's schema is written before it.
    """
    head, lost = format.head(store), 0
    taken: list[str] = []
    last: Mapping[str, bytes] | None = None
    while True:
        assert view.branches is not None, view
        try:
            copies, plan, following = view.branches.forward(to)
        except NotFound:
            if last is None:
                raise
            copies, plan = last, None  # It was renamed or deleted since; the table has all of its snapshots.
        except Conflict as error:
            if not taken:
                raise
            raise Conflict(f"{error}. Of the branch, the table has and keeps {', '.join(taken)}") from error
        for path, data in copies.items():
            if _took_over(store, head, view, path, data):
                taken.append(path)
            elif store.read(path) != data:
                raise Conflict(f"{store.root}: {path} was written meanwhile; nothing more of branch {to!r} was copied")
        if plan is None:
            return
        last = following
        if head.advance(view.version, plan) is not Outcome.PUBLISHED:
            last = None
            lost += 1
            if lost > view.attempts():
                raise CommitLost(f"{store.root}: other writers were faster; run fast_forward({to!r}) again")
        view = load_newest(head, partial(format.load, store))


# --- private ----------------------------------------------------------------------------------------------------------


def _not_in(files: Mapping[str, bytes], copied: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if copied.get(path) != data}


def _copy(store: Store, files: Mapping[str, bytes], copied: dict[str, bytes], to: str) -> None:
    """Write files that nobody else has written."""
    for path, data in files.items():
        if path in copied:  # The progress of a consumer.
            store.write(path, data)
        elif not store.create(path, data) and store.read(path) != data:
            raise AlreadyExists(
                f"{store.root}: {path} came meanwhile, by a writer of branch {to!r}; nothing more was copied"
            )
        copied[path] = data


def _keeper(store: Store) -> BranchKeeper | None:
    keeper = store.entry if isinstance(store, Catalogued) else None
    return keeper if isinstance(keeper, BranchKeeper) else None


def _create_at(store: Store, format: Format, keeper: BranchKeeper, view: AnyView, name: str, tag: str | None) -> None:
    """Have the catalog create a branch. The catalog creates it at a tag; a snapshot without one gets a temporary tag,
    which is deleted again, or expires within an hour."""
    if tag is not None or view.snapshot is None:
        keeper.create_branch(name, tag)
        return
    nonce = f"lakeformat-{uuid.uuid4()}"
    made = view.tag(nonce, clock.now_ms(), _TAG_MS)
    assert isinstance(made, tuple), made
    path, data = made
    store.create(path, data)
    try:
        keeper.create_branch(name, nonce)
        format.on_branch(store, name).delete([path])
    finally:
        store.delete([path])


def _took_over(store: Store, head: Head, view: AnyView, path: str, data: bytes) -> bool:
    """Whether the table has the branch's file now. A schema is a root: the head creates it."""
    if not path.startswith("schema/"):
        return store.create(path, data)
    made = Snapshot(view.version, "evolve", 0, view.schema.id, partitions=())
    return head.advance(view.version, Plan({}, path, data, made)) is Outcome.PUBLISHED
