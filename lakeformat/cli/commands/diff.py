"""diff: what changed between two snapshots: schema, partitions, files, rows."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat import InvalidInput, NotFound
from lakeformat.cli.completion import tables
from lakeformat.cli.rows import data_grid
from lakeformat.cli.session import Session, Size, grid

if TYPE_CHECKING:
    from lakeformat import Field, Scan, Table

_COLORS = {"+I": "green", "+U": "green", "-U": "red", "-D": "red"}


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.argument(
    "versions",
    default="current~1..current",
    help="`a..b`: ids, tags, branches, or `current~N`; by default the last commit.",
)
@click.option("--rows", is_flag=True, help="The rows that came and went, with their kinds.")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=100, help="How many of them.")
@click.pass_obj
def diff(session: Session, table: str, versions: str, rows: bool, limit: int) -> None:
    """Show what changed between two versions of a table."""
    target = session.table(table)
    first, dots, last = versions.partition("..")
    if not dots:
        raise InvalidInput(f"{versions!r}: write two versions, e.g. 3..5, v1..current or current~1..current")
    before, after = _scan(target, first), _scan(target, last or "current")
    if after is None:
        raise InvalidInput(f"{versions!r}: there is nothing before the oldest snapshot to compare")
    old, new = _files(before), _files(after)
    added, removed = new.keys() - old.keys(), old.keys() - new.keys()
    partitions = Counter({_partition(path): 0 for path in (*added, *removed)})
    data: dict[str, Any] = {
        "from": None if before is None else before.snapshot_id,
        "to": after.snapshot_id,
        "schema": [] if before is None else _schema(before, after),
        "files_added": len(added),
        "files_removed": len(removed),
        "files_kept": len(new.keys() & old.keys()),
        "bytes_added": sum(new[path][1] for path in added),
        "bytes_removed": sum(old[path][1] for path in removed),
        "rows_before": 0 if before is None else before.count(),
        "rows_after": after.count(),
        "partitions": [
            {
                "partition": partition,
                "files_added": sum(_partition(path) == partition for path in added),
                "files_removed": sum(_partition(path) == partition for path in removed),
            }
            for partition in sorted(partitions)
        ],
    }
    if rows:
        kept = []
        for batch in target.changes(data["from"] or 0, after.snapshot_id).to_batches():
            kept += batch.to_pylist()
            if len(kept) >= limit:
                break
        data["rows"] = kept[:limit]

    def drawn() -> Group:
        parts: list[Any] = [
            Text.assemble(
                (f"{data['from'] or 'nothing'}..{data['to']}", "bold yellow"),
                f"  rows {data['rows_before']:,} -> {data['rows_after']:,}  files ",
                (f"+{len(added)}", "green"),
                " ",
                (f"-{len(removed)}", "red"),
                f", {data['files_kept']} kept",
            )
        ]
        parts += [Text(line, style={"+": "green", "-": "red", "~": "yellow"}[line[0]]) for line in data["schema"]]
        if data["partitions"] and any(partition["partition"] for partition in data["partitions"]):
            listed = [list(partition.values()) for partition in data["partitions"]]
            parts += [Text(), grid(("partition", "files +", "files -"), listed)]
        parts += [
            Text(),
            grid(
                ("", "file", "rows", "size"),
                [
                    (Text(sign, style=color), path, files[path][0], Size(files[path][1]))
                    for sign, color, files, paths in (("+", "green", new, added), ("-", "red", old, removed))
                    for path in sorted(paths)
                ],
            ),
        ]
        if data.get("rows"):
            names = [name for name in data["rows"][0] if name != "_row_kind"]
            kinds = [
                (Text(r["_row_kind"], style=_COLORS[r["_row_kind"]]), *(r[n] for n in names)) for r in data["rows"]
            ]
            parts += [Text(), data_grid(("", *names), kinds)]
        return Group(*parts)

    session.answer(data, drawn)


def _scan(table: Table, version: str) -> Scan | None:
    """The scan of `7`, `v1`, `current` or `current~2`; None stands for the table before its oldest snapshot."""
    version = version.strip()
    back = re.fullmatch(r"current(?:~(\d+))?", version)
    if back:
        snapshots = table.snapshots()
        steps = int(back[1] or 0)
        if steps == len(snapshots):
            return None
        if steps > len(snapshots):
            raise InvalidInput(f"{table.name}: {version}: only {len(snapshots)} snapshots are kept")
        return table.scan(snapshot_id=snapshots[-1 - steps].id)
    if version in table.inspect.tags()["tag_name"].to_pylist():
        return table.scan(tag=version)
    if version in table.inspect.branches()["branch_name"].to_pylist():
        return table.branch(version).scan()
    if version.isdecimal():
        return table.scan(snapshot_id=int(version))
    raise NotFound(f"{table.name}: {version!r} is not a snapshot, tag or branch of it")


def _files(scan: Scan | None) -> dict[str, tuple[int, int]]:
    """path -> (rows, bytes)."""
    tasks = [] if scan is None else scan.plan()
    leaves = (leaf for task in tasks for leaf in task.leaves)
    listed = (file for leaf in leaves for file in zip(leaf.paths, leaf.row_counts, leaf.sizes_bytes, strict=True))
    return {path: (rows, size_bytes) for path, rows, size_bytes in listed}


def _schema(before: Scan, after: Scan) -> list[str]:
    """The columns that differ, by id."""
    old, new = ({field.id: field for field in scan.fields} for scan in (before, after))
    lines = [
        f"~ column {old[id].name} is now {new[id].name}" for id in old if id in new and old[id].name != new[id].name
    ]
    retyped = [id for id in old if id in new and _declared(old[id]) != _declared(new[id])]
    lines += [f"- column {old[id].name} {_declared(old[id])}" for id in old if id not in new or id in retyped]
    return lines + [f"+ column {new[id].name} {_declared(new[id])}" for id in new if id not in old or id in retyped]


def _declared(field: Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _partition(path: str) -> str:
    """The `k=v` folders of a path."""
    return "/".join(part for part in path.split("/")[:-1] if "=" in part)
