"""The sweep: deletes orphan files, which no snapshot refers to and which dead writers left behind."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain

from lakeformat.commit import newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.maintenance.expire import planned, remove
from lakeformat.model.log import log
from lakeformat.model.operation import OperationKind, Rewrite
from lakeformat.model.snapshot import Expiry
from lakeformat.model.work import BlobTask, FilesTask, MergeTask, ReadTask
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.paths import is_absolute, relative
from lakeformat.storage.store import Listed, Reader, Store
from lakeformat.verbs.change import Change


def missing(store: Reader, view: AnyView) -> list[str]:
    """The data and delete files that `view` refers to and storage does not have, sorted. Files outside the table's
    folder are checked one by one."""
    return missing_of(store, view.scan(), {file.path for file in store.list("")})


def missing_of(store: Reader, tasks: Iterable[ReadTask], stored: Container[str]) -> list[str]:
    """As `missing`, of the files that these tasks read; `stored`: the paths of the files in the table's folder."""
    named = {path for task in tasks for path in _paths(task)}
    inside = f"{store.root}/"
    lost = [path for path in named if path.removeprefix(inside) not in stored]
    return sorted(path for path in lost if not store.exists(path))


def without_missing(change: Change) -> Rewrite | None:
    """The operation that removes missing data files from the table; None if none is missing. Raises
    `UnsupportedFeature` for missing delete files: the rows that they delete would come back."""
    gone = set(missing(change.store, change.view))
    data = {path for task in change.view.scan() for part in with_parts(task) for path in part.paths} & gone
    if deletes := sorted(gone - data):
        raise UnsupportedFeature(
            f"{change.store.root}: delete file {deletes[0]} is missing: without it, deleted rows would come back; roll "
            "the table back to a snapshot that is whole"
        )
    if not data:
        return None
    return Rewrite(
        request=change.request,
        removed=tuple(sorted(data)),
        added=(),
        kind=OperationKind.DELETE,
        read_at=change.view.snapshot_id,
    )


def _paths(task: ReadTask) -> Iterator[str]:
    for part in with_parts(task):
        yield from part.paths
        if isinstance(part, FilesTask):
            yield from (delete.path for deletes in part.deletes for delete in deletes)


def with_parts(task: ReadTask | BlobTask) -> Iterator[FilesTask | BlobTask]:
    """The tasks that a task consists of."""
    match task:
        case MergeTask():
            yield from chain.from_iterable(map(with_parts, task.parts))
        case FilesTask():
            yield task
            yield from chain.from_iterable(map(with_parts, chain.from_iterable(task.beside)))
        case BlobTask():
            yield task


def sweep(
    store: Store,
    format: Format,
    older_than_ms: int,
    dry_run: bool,
    loaded: AnyView | None = None,
    below: str | None = None,
) -> list[Listed]:
    """Delete, or with `dry_run` only list, the orphan files older than `older_than_ms` (epoch milliseconds), all or
    those `below` a folder. Raises `InvalidInput` if the catalog has other tables at this location."""
    inside = "" if below is None else _inside(store, below)
    _, listed = planned(store, format, newest(store, format, loaded), lambda view: view.expiring.orphans(older_than_ms))
    orphans = [orphan for orphan in listed if orphan.path.startswith(inside)]
    if orphans and isinstance(store, Catalogued) and (others := store.entry.sharers(store)):
        raise InvalidInput(
            f"{store.root} is the location of {', '.join(others)} too, whose files look like orphans from here: "
            "nothing "
            "is removed. Give each table its own location, or drop the other names (without purge)"
        )
    log.info(
        "%s: %d orphans, %d bytes%s",
        store.root,
        len(orphans),
        sum(f.size_bytes for f in orphans),
        ", kept" if dry_run else "",
    )
    if not dry_run:
        paths = tuple(f.path for f in orphans)
        remove(store, Expiry((), (paths,)))
    return orphans


def _inside(store: Reader, folder: str) -> str:
    """The prefix of the paths below a folder of the table. Raises `InvalidInput`."""
    path = relative(store.root, folder.rstrip("/")) if is_absolute(folder) else folder.strip("/")
    if path is None or ".." in path.split("/"):
        raise InvalidInput(f"{folder} is not in the table's folder, {store.root}; name a folder in it")
    return f"{path}/" if path else ""
