"""Output for the effects of a verb, done or in a dry run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from lakeformat.cli.session import Session, Size, grid, size
from lakeformat.model.wording import count_text

if TYPE_CHECKING:
    from lakeformat import Snapshot, Table

_SHOWN = 50


def snapshot(session: Session, new_snapshot: Snapshot | None, nothing: str) -> None:
    """Print the snapshot that a verb made."""
    if new_snapshot is None:
        session.answer({"snapshot_id": None}, nothing)
        return
    data = {
        "snapshot_id": new_snapshot.id, "kind": new_snapshot.kind,
        "rows_added": new_snapshot.rows_added, "rows_removed": new_snapshot.rows_removed,
        "files_added": new_snapshot.files_added, "files_removed": new_snapshot.files_removed,
        "milliseconds": new_snapshot.milliseconds,
    }  # fmt: skip
    session.answer(data, Text(f"{new_snapshot!r} in {new_snapshot.milliseconds} ms"))


def deletions(session: Session, table: Table, locations: list[str], snapshots: list[int], done: bool) -> None:
    """Print the deleted files, or those to delete, with sizes where known.
    Files that another engine already removed are left out."""
    files = _removed_files(table, locations, done)
    data = {"dry_run": not done, "snapshots": snapshots, "files": files}
    verb = "removed" if done else "would remove"

    def drawn() -> Group:
        summary = f"{verb} {count_text(len(snapshots), 'snapshot')}, {_summary(files)}"
        return Group(Text(summary, style="bold"), *([] if done else _drawn("file", files)))

    session.answer(data, drawn)


def rewritten(
    session: Session, table: Table, written: Mapping[str, bytes], locations: list[str], data: Mapping[str, Any]
) -> None:
    """Print the files that a dry run would write, and those it would delete."""
    root = f"{table.uri}/"
    new = [
        {"path": location.removeprefix(root), "size_bytes": len(content)}
        for location, content in sorted(written.items())
    ]
    files = _removed_files(table, locations, False)

    def drawn() -> Group:
        return Group(
            Text(f"would write {_summary(new)}", style="bold"),
            *_drawn("new file", new),
            Text(f"would remove {_summary(files)}", style="bold"),
            *_drawn("removed file", files),
        )

    session.answer({**data, "dry_run": True, "written": new, "removed": files}, drawn)


def removed(table: Table, before: Collection[str]) -> list[str]:
    """The locations of the files of a table's folder, as it was before, that are no longer there."""
    return sorted(f"{table.uri}/{path}" for path in set(before) - {file.path for file in table.stored_files()})


def _removed_files(table: Table, locations: list[str], done: bool) -> list[dict[str, Any]]:
    root = f"{table.uri}/"
    sizes = {} if done else _sizes(table)
    locations = [location for location in locations if done or location in sizes or not location.startswith(root)]
    return [{"path": location.removeprefix(root), "size_bytes": sizes.get(location)} for location in locations]


def _summary(files: list[dict[str, Any]]) -> str:
    total = sum(file["size_bytes"] or 0 for file in files)
    return count_text(len(files), "file") + (f", {size(total)}" if total else "")


def _drawn(title: str, files: list[dict[str, Any]]) -> list[Any]:
    """A table of the first files; no table if there are none."""
    if not files:
        return []
    rows = [(f["path"], None if f["size_bytes"] is None else Size(f["size_bytes"])) for f in files[:_SHOWN]]
    more = len(files) - _SHOWN
    return [
        grid((title, "size"), rows),
        *([Text(f"and {more} more (--json lists all)", style="dim")] if more > 0 else []),
    ]


def _sizes(table: Table) -> dict[str, int]:
    """The sizes in bytes of all files in the table's folder, by location."""
    return {f"{table.uri}/{file.path}": file.size_bytes for file in table.stored_files()}
