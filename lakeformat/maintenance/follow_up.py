"""What a table's own options ask for after each commit: the mirror in the other format, tags, and expiry."""

from __future__ import annotations

from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.maintenance import automatic_tags, expire, mirror
from lakeformat.model.log import log
from lakeformat.model.snapshot import Snapshot
from lakeformat.storage.store import Store


def after(store: Store, format: Format, view: AnyView, snapshot: Snapshot, now_ms: int) -> None:
    """The mirror update, the tags and the expiry that belong to the commit `snapshot` on `view`, if the table asks for
    them. The commit has landed, so nothing is raised: what fails is left to the next commit."""
    may_be_shown = view.mirroring is not None and (view.mirroring.mirror() or snapshot.kind == "evolve")
    if may_be_shown and not mirror.after(store, format):
        return  # Files that the mirror still refers to must stay.
    work = "tags"
    try:
        if view.expiring.tag_schedule() is not None:
            automatic_tags.create(store, format, view, now_ms)
        work = "expiry"
        kept = view.expiring.due(snapshot, now_ms)
        if kept is not None:
            gone = expire.expire(store, format, kept, now_ms)
            log.info("%s: %d snapshots expired after snapshot %d", store.root, len(gone.snapshots), snapshot.id)
    except Exception:
        log.warning(
            "%s: %s after snapshot %d failed; the next commit tries again",
            *(store.root, work, snapshot.id),
            exc_info=True,
        )
