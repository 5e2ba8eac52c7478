"""Creates the tags that a table's own schedule asks for, and deletes those that are too many."""

from __future__ import annotations

from contextlib import suppress

from lakeformat.commit import newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.errors import AlreadyExists, NotFound
from lakeformat.maintenance import expire
from lakeformat.model.tag_schedule import Commit, TagSchedule
from lakeformat.storage.store import Store
from lakeformat.verbs import tag


def create(store: Store, format: Format, view: AnyView, now_ms: int) -> list[str]:
    """Create the tags that are due, and delete those beyond the number that stays. Returns the names of the new ones.
    A tag that another process creates meanwhile is no error."""
    schedule = view.expiring.tag_schedule()
    if schedule is None:
        return []
    view = newest(store, format, view)
    tags = _tags(view)
    due = _moved(store, format, view, schedule, tags) or schedule.due(_commits(view), tags)
    created = []
    for name, snapshot_id in due:
        snapshot = format.load_snapshot(store, snapshot_id)
        match snapshot.tag(name, now_ms, schedule.retain_ms):
            case (path, data):
                with suppress(AlreadyExists, NotFound):
                    tag.create(store, snapshot, name, path, data)
                    created.append(name)
    for name in schedule.surplus(_tags(view)):
        expire.release_tag(store, format, newest(store, format, view), name)
    return created


# --- private ----------------------------------------------------------------------------------------------------------


def _moved(
    store: Store, format: Format, view: AnyView, schedule: TagSchedule, tags: dict[str, int]
) -> list[tuple[str, int]]:
    """The tag that each commit moves, after it was taken from where it is."""
    if view.snapshot is None or (name := schedule.batch_tag(view.snapshot.timestamp_ms)) is None:
        return []
    if tags.get(name) == view.snapshot.id:
        return []
    if name in tags:
        expire.release_tag(store, format, view, name)
    return [(name, view.snapshot.id)]


def _tags(view: AnyView) -> dict[str, int]:
    listed = view.inspect("tags")
    return dict(zip(listed["tag_name"].to_pylist(), listed["snapshot_id"].to_pylist(), strict=True))


def _commits(view: AnyView) -> list[Commit]:
    listed = view.inspect("snapshots").select(["snapshot_id", "commit_time", "watermark"])
    return [
        Commit(row["snapshot_id"], int(row["commit_time"].timestamp() * 1000), row["watermark"])
        for row in listed.to_pylist()
    ]
