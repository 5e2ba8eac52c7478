"""log: the snapshots of a table, as `git log --graph` shows commits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, size, time
from lakeformat.model.dataclass import dataclass

if TYPE_CHECKING:
    from lakeformat import Table

Key = tuple[str, int]  # (branch, snapshot id); branch "" unless the branch numbers its snapshots itself

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*")


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot of a table or branch, and its parent."""

    key: Key
    parent: Key | None
    table: Table


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--number", "-n", type=click.IntRange(min=1), default=20, help="How many, newest first.")
@click.option("--graph", is_flag=True, help="Draw branches, and what was rolled back.")
@click.pass_obj
def log(session: Session, table: str, number: int, graph: bool) -> None:
    """List snapshots, newest first.

    Each with its kind, the rows and files added and removed, and who made it.
    """
    target = session.table(table)
    commits = (_all(target) if graph else _led(target))[-number:]
    commits.reverse()
    names = _names(target, commits)
    data = [_line(commit, names.get(commit.key, [])) for commit in commits]

    def drawn() -> Group:
        lanes = lines(((e.key, e.parent) for e in commits), {e.key for e in commits}) if graph else None
        shown: list[Text] = []
        for snapshot in data:
            before, mark = next(lanes) if lanes else ([], "●")
            shown += [Text(line, style="dim") for line in before]
            shown.append(Text.assemble((mark + " ", "yellow"), _text(snapshot)))
        return Group(*(shown or [Text("nothing was written yet")]))

    session.answer(data, drawn)


def lines(commits: Iterable[tuple[Key, Key | None]], shown: set[Key]) -> Iterator[tuple[list[str], str]]:
    """For each (key, parent), newest first: (the lines above it that join lanes, the lanes of its own line)."""
    lanes: list[Key | None] = []
    for key, parent in commits:
        mine = [index for index, expected in enumerate(lanes) if expected == key] or [len(lanes)]
        joins = []
        for index in reversed(mine[1:]):
            joins.append("".join(_joint(lane, mine[0], index, lanes) for lane in range(index + 1)).rstrip())
            lanes.pop(index)
        if mine[0] == len(lanes):
            lanes.append(key)
        marks = ["●" if index == mine[0] else "│" for index in range(len(lanes))]
        yield joins, " ".join(marks)
        if parent in shown:
            lanes[mine[0]] = parent
        else:
            lanes.pop(mine[0])


def _joint(lane: int, to: int, ending: int, lanes: Sequence[Key | None]) -> str:
    """Two characters of the line that joins lane `ending` to lane `to`."""
    if lane < to:
        return "│ "
    if lane == to:
        return "├─"
    if lane == ending:
        return "┘ "
    return "┼─" if lanes[lane] is not None else "──"


def _led(table: Table) -> list[Commit]:
    """The ancestors of the current snapshot, oldest first."""
    keys: list[Key] = [("", snapshot.id) for snapshot in table.snapshots()]
    return [Commit(key, before, table) for key, before in zip(keys, [None, *keys], strict=False)]


def _all(table: Table) -> list[Commit]:
    """All snapshots, also rolled back ones and those of branches, oldest first."""
    rows = table.inspect.snapshots().to_pylist()
    if rows and "parent_id" in rows[0]:  # Of all branches.
        parents = [row["parent_id"] for row in rows]
        return [
            Commit(("", row["snapshot_id"]), None if parent is None else ("", parent), table)
            for row, parent in zip(rows, parents, strict=True)
        ]
    keys: dict[tuple[int, int], Key] = {}  # By id and time: a branch begins with snapshots of the table's.
    commits: list[tuple[int, Commit]] = []
    for branch in ("", *table.inspect.branches()["branch_name"].to_pylist()):
        line = table.branch(branch) if branch else table
        before, latest = None, 0
        for snapshot in line.snapshots():
            key, latest = (branch, snapshot.id), max(latest, snapshot.timestamp_ms)
            if keys.setdefault((snapshot.id, snapshot.timestamp_ms), key) == key:
                commits.append((latest, Commit(key, before, line)))
            before = keys[snapshot.id, snapshot.timestamp_ms]
    return [commit for _, commit in sorted(commits, key=itemgetter(0))]


def _names(table: Table, commits: Sequence[Commit]) -> dict[Key, list[str]]:
    """Tags and branches by the snapshot they name."""
    names: dict[Key, list[str]] = {}
    current = table.scan().snapshot_id
    if current is not None:
        names["", current] = ["current"]
    for rows, name, kind in (
        (table.inspect.tags().to_pylist(), "tag_name", "tag "),
        (table.inspect.branches().to_pylist(), "branch_name", ""),
    ):
        for row in rows:
            if row.get("snapshot_id") is not None:
                names.setdefault(("", row["snapshot_id"]), []).append(f"{kind}{row[name]}")
    newest = {commit.key[0]: commit.key for commit in reversed(commits)}  # Of a branch with snapshots of its own.
    for branch, key in newest.items():
        if branch:
            names.setdefault(key, []).append(branch)
    return names


def _line(commit: Commit, names: Sequence[str]) -> dict[str, Any]:
    snapshot = commit.table.snapshot(commit.key[1])
    return {
        "id": snapshot.id,
        "parent_id": None if commit.parent is None else commit.parent[1],
        "names": list(names),
        "kind": snapshot.kind,
        "time": time(snapshot.timestamp_ms),
        "rows_added": snapshot.rows_added,
        "rows_removed": snapshot.rows_removed,
        "files_added": snapshot.files_added,
        "files_removed": snapshot.files_removed,
        "bytes_added": snapshot.bytes_added,
        "partitions": None if snapshot.partitions is None else len(snapshot.partitions),
        "total_rows": snapshot.total_rows,
        "operation_id": snapshot.operation_id,
        "properties": dict(snapshot.properties),
    }


def _text(line: dict[str, Any]) -> Text:
    names = f" ({', '.join(line['names'])})" if line["names"] else ""
    by = line["operation_id"]
    return Text.assemble(
        (str(line["id"]), "bold yellow"),
        (names, "cyan"),
        f"  {line['time']}  {line['kind']:<9}  rows ",
        (f"+{line['rows_added'] or 0:,}", "green"),
        " ",
        (f"-{line['rows_removed'] or 0:,}", "red"),
        f"  files +{line['files_added'] or 0} -{line['files_removed'] or 0}  {size(line['bytes_added'] or 0)}",
        f"  by {by}" if by and not _UUID.fullmatch(by) else "",
    )
