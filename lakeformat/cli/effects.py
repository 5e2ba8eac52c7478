"""Output for the effects of a verb, done or in a dry run."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from lakeformat.cli.session import Session, Size, counted, grid, size

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
    root = f"{table.uri}/"
    sizes = {} if done else _sizes(table)
    locations = [location for location in locations if done or location in sizes or not location.startswith(root)]
    files: list[dict[str, Any]] = [
        {"path": location[len(root) :] if location.startswith(root) else location, "size_bytes": sizes.get(location)}
        for location in locations
    ]
    data = {"dry_run": not done, "snapshots": snapshots, "files": files}

    def drawn() -> Group:
        verb = "removed" if done else "would remove"
        total = sum(file["size_bytes"] or 0 for file in files)
        summary = f"{verb} {counted(len(snapshots), 'snapshot')}, {counted(len(files), 'file')}" + (
            f", {size(total)}" if total else ""
        )
        parts: list[Any] = [Text(summary, style="bold")]
        if not done and files:
            rows = [(f["path"], None if f["size_bytes"] is None else Size(f["size_bytes"])) for f in files[:_SHOWN]]
            parts.append(grid(("file", "size"), rows))
        if not done and len(files) > _SHOWN:
            parts.append(Text(f"and {len(files) - _SHOWN} more (--json lists all)", style="dim"))
        return Group(*parts)

    session.answer(data, drawn)


def removed(table: Table, before: Collection[str]) -> list[str]:
    """The locations of the files of a table's folder, as it was before, that are no longer there."""
    return sorted(f"{table.uri}/{path}" for path in set(before) - {file.path for file in table.stored_files()})


def _sizes(table: Table) -> dict[str, int]:
    """The sizes in bytes of all files in the table's folder, by location."""
    return {f"{table.uri}/{file.path}": file.size_bytes for file in table.stored_files()}
