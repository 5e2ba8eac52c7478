"""The mirror, a table's metadata in another format, follows the table: after each commit, or later if that failed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from lakeformat.catalogs.catalog import Catalog, ShowCatalog
from lakeformat.catalogs.choose import open_catalog
from lakeformat.codec import document
from lakeformat.commit import commit, newest
from lakeformat.dialects.dialect import AnyView, Format, Mirror, ShownIn
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.metadata import HINT, METADATA_FOLDER
from lakeformat.errors import (
    CommitLost,
    CommitUnknown,
    Conflict,
    CorruptTable,
    InvalidInput,
    NotFound,
    UnsupportedFeature,
)
from lakeformat.model.log import log
from lakeformat.model.operation import Follow, Request
from lakeformat.model.snapshot import Snapshot
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.head import FollowHead, load_newest
from lakeformat.storage.reaching import beside
from lakeformat.storage.rehearsal import Rehearsal
from lakeformat.storage.store import Store

_ROUNDS = 10


def after(store: Store, format: Format) -> bool:
    """Bring a table's mirror up to a commit; returns whether it is. The commit has landed, so nothing is raised: what
    fails is left to the next commit."""
    try:
        follow(store, format)
    except Exception:
        log.warning(
            "%s: its metadata of the other format stays behind; the next commit tries again", store.root, exc_info=True
        )
        return False
    return True


def forget(store: Store, format: Format) -> None:
    """Delete the table's mirror. Its data files stay."""
    if (mirror := find(store, format)) is not None:
        remove(store, mirror)


def find(store: Store, format: Format) -> Mirror | None:
    """The location of the table's mirror; None if it has none. Unknown if the table cannot be read."""
    try:
        view = newest(store, format)
        return of_view(view) if view.exists else None
    except (CorruptTable, InvalidInput, UnsupportedFeature) as error:
        log.info("%s: %s; its metadata of the other format, if it keeps any, stays", store.root, error)
        return None


def of_view(view: AnyView) -> Mirror | None:
    """The location of the mirror of the table that is viewed; None if it has none."""
    return None if view.mirroring is None else view.mirroring.mirror()


def is_shown(store: Store, format: Format) -> bool:
    """Whether a catalog shows the mirror; the catalog's documents are then among the mirror's files."""
    mirror = find(store, format)
    return mirror is not None and mirror.shown_in is not None


def remove(store: Store, mirror: Mirror) -> None:
    """Delete the files of a mirror, and its name in a catalog."""
    if mirror.shown_in is not None:
        with suppress(NotFound):
            _catalog(mirror.shown_in).drop(mirror.shown_in.name)
    files = _beside(store, mirror)
    names = (
        name
        for name in files.names(METADATA_FOLDER)
        if name.endswith((".metadata.json", ".avro")) or HINT.endswith(name)
    )
    files.delete([f"{METADATA_FOLDER}/{name}" for name in names])
    files.remove_empty_folders([METADATA_FOLDER])


def follow(store: Store, format: Format, load: Callable[[], AnyView] | None = None) -> Snapshot | None:
    """Bring the table's mirror up to the newest snapshot, tags and schema, or to the view that `load` returns. Returns
    the mirror's snapshot, or None if the table has none.

    Any process may do it, however far behind the mirror is, and an interrupted call can be repeated. Raises `Conflict`
    if others commit faster than this follows.
    """
    load = load or partial(newest, store, format)
    for _ in range(_ROUNDS):
        view = load()
        kept_in = of_view(view)
        if kept_in is None:
            return None
        files = _beside(store, kept_in)
        head, mirror = FollowHead(files, METADATA_FOLDER, "v", (".metadata.json",)), Iceberg()
        versions = head.versions()
        view = load()  # Read after the mirror, so that the table has all that the mirror shows.
        if view.snapshot is None or view.mirroring is None:
            return None
        rolled_back = [version for version in versions if version > view.version]
        try:
            shown = load_newest(head, partial(mirror.load, files))
        except NotFound:  # A fence: the table had that format before.
            files.delete([f"{METADATA_FOLDER}/v{version}.metadata.json" for version in versions])
            continue
        followed = None if rolled_back else shown.followed(store.root, kept_in.format_version)
        files.delete([f"{METADATA_FOLDER}/v{version}.metadata.json" for version in rolled_back])
        request = Request(id=str(uuid.uuid4()), absent_until=head.version() if rolled_back else shown.version)
        published = view.mirroring.published(followed, shown.schema.id if followed else -1)
        operation = Follow(request=request, published=published)
        if snapshot := shown.find(operation):
            if kept_in.shown_in is not None and not isinstance(files, Rehearsal):
                _show(files, head, kept_in.shown_in)
            return snapshot
        try:
            commit(files, head, mirror, operation)
        except (Conflict, CommitLost, CommitUnknown) as error:
            log.info("%s: %s", store.root, error)
    raise Conflict(
        f"{store.root}: other writers commit faster than the metadata of the other format is written; try again"
    )


def _show(files: Store, head: FollowHead, shown_in: ShownIn) -> None:
    """Have the catalog show the newest metadata."""

    def newest() -> tuple[str, Mapping[str, Any]]:
        path = f"{METADATA_FOLDER}/v{head.version()}.metadata.json"
        return files.location(path), document.parse(files.read(path), path)

    catalog = _catalog(shown_in)
    assert isinstance(catalog, ShowCatalog), catalog
    catalog.show(shown_in.name, newest)


def _catalog(shown_in: ShownIn) -> Catalog:
    return open_catalog(shown_in.catalog, dict(shown_in.options), "")


def _beside(store: Store, mirror: Mirror) -> Store:
    files = files_of(store)  # The table's own catalog does not keep its mirror.
    return files if mirror.root == store.root else beside(files, mirror.root)
