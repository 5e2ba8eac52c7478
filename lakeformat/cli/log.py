"""log: the snapshots of a table as `git log --graph` shows commits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from lakeformat.cli.session import of, size, time

if TYPE_CHECKING:
    from lakeformat import Snapshot, Table

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*")


def log(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`, or `db.table@branch`.")],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many, newest first.")] = 20,
    graph: Annotated[bool, typer.Option("--graph", help="Draw branches, and what was rolled back.")] = False,
) -> None:
    """List snapshots, newest first: kind, rows and files that came and went, who made them."""
    session = of(context)
    found = session.table(table)
    names = _names(found)
    if graph:
        ids = found.inspect.snapshots()["snapshot_id"].to_pylist()
    else:
        ids = [each.id for each in found.snapshots()]
    made = [found.snapshot(id) for id in reversed(ids[-number:])]
    parents = _parents(found, made)
    data = [_line(each, names.get(each.id, []), parents.get(each.id)) for each in made]

    def drawn() -> Group:
        lanes = lines(((each.id, parents.get(each.id)) for each in made), {each.id for each in made}) if graph else None
        shown: list[Text] = []
        for snapshot in data:
            before, mark = next(lanes) if lanes else ([], "●")
            shown += [Text(line, style="dim") for line in before]
            shown.append(Text.assemble((mark + " ", "yellow"), _text(snapshot)))
        return Group(*(shown or [Text("nothing was written yet")]))

    session.answer(data, drawn)


def lines(commits: Iterable[tuple[int, int | None]], shown: set[int]) -> Iterator[tuple[list[str], str]]:
    """For each (id, parent), newest first: (lines that join lanes above it, the lanes at it)."""
    lanes: list[int | None] = []
    for id, parent in commits:
        mine = [at for at, expected in enumerate(lanes) if expected == id] or [len(lanes)]
        joins = []
        for at in reversed(mine[1:]):
            joins.append("".join(_joint(place, mine[0], at, lanes) for place in range(at + 1)).rstrip())
            lanes.pop(at)
        if mine[0] == len(lanes):
            lanes.append(id)
        marks = ["●" if at == mine[0] else "│" for at in range(len(lanes))]
        yield joins, " ".join(marks)
        if parent in shown:
            lanes[mine[0]] = parent
        else:
            lanes.pop(mine[0])


def _joint(place: int, to: int, at: int, lanes: Sequence[int | None]) -> str:
    """Two characters of the line that leads lane `at` into lane `to`."""
    if place < to:
        return "│ "
    if place == to:
        return "├─"
    if place == at:
        return "┘ "
    return "┼─" if lanes[place] is not None else "──"


def _names(table: Table) -> dict[int, list[str]]:
    """Tags and branches by the snapshot they name."""
    found: dict[int, list[str]] = {}
    current = table.scan().snapshot_id
    if current is not None:
        found[current] = ["current"]
    for rows, name, kind in (
        (table.inspect.tags().to_pylist(), "tag_name", "tag "),
        (table.inspect.branches().to_pylist(), "branch_name", ""),
    ):
        for row in rows:
            if row.get("snapshot_id") is not None:
                found.setdefault(row["snapshot_id"], []).append(f"{kind}{row[name]}")
    return found


def _parents(table: Table, made: Sequence[Snapshot]) -> dict[int, int | None]:
    """The snapshot before each: where the format writes none down, the one with the id before."""
    rows = table.inspect.snapshots().to_pylist()
    if rows and "parent_id" in rows[0]:
        return {row["snapshot_id"]: row["parent_id"] for row in rows}
    ids = [each.id for each in reversed(made)]
    return dict(zip(ids, [None, *ids], strict=False))


def _line(snapshot: Snapshot, names: Sequence[str], parent: int | None) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "parent_id": parent,
        "kind": snapshot.kind,
        "time": time(snapshot.timestamp_ms),
        "names": list(names),
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
