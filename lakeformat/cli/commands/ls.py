"""ls: the databases and tables of a warehouse, as a tree."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from lakeformat import LakeError
from lakeformat.cli.session import Session, live_files, size, time


@click.command()
@click.argument("database", required=False, help="Only this database.")
@click.pass_obj
def ls(session: Session, database: str | None) -> None:
    """List databases and tables: format, rows, size, last commit."""
    lake = session.lake
    names = lake.tables(database)
    lines = [_line(lake.table(name)) for name in names]
    databases = [database] if database else lake.namespaces()

    def tree() -> Tree:
        drawn = Tree(Text(lake.uri, style="bold"))
        for database in databases:
            branch = drawn.add(Text(database, style="bold cyan"))
            mine = [line for line in lines if line["table"].rpartition(".")[0] == database]
            width = max((len(line["table"]) - len(database) - 1 for line in mine), default=0)
            for line in mine:
                name = line["table"][len(database) + 1 :].ljust(width)
                branch.add(Text.assemble((name, "green"), "  ", _text(line)))
        return drawn

    session.answer(lines, tree)


def _line(table: Any) -> dict[str, Any]:
    line: dict[str, Any] = {"table": table.name, "format": table.format}
    try:
        count, size_bytes = live_files(table)
        snapshot = table.scan().snapshot
        line |= {
            "rows": table.scan().count(),
            "files": count,
            "size_bytes": size_bytes,
            "last_commit": time(snapshot.timestamp_ms) if snapshot else None,
        }
    except LakeError as error:
        line["error"] = str(error)
    return line


def _text(line: dict[str, Any]) -> Text:
    if "error" in line:
        return Text(f"{line['format']:8} {line['error']}", style="red")
    made = line["last_commit"] or "never written"
    return Text(
        f"{line['format']:8} {line['rows']:>12,} rows {line['files']:>7,} files {size(line['size_bytes']):>11}  {made}"
    )
