"""partitions: the partitions of a table, with rows, files and sizes."""

from __future__ import annotations

import click
from rich.console import RenderableType
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, Size, grid, time


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.pass_obj
def partitions(session: Session, table: str) -> None:
    """List partitions with rows, files and sizes."""
    listed = session.table(table).inspect.partitions()
    rows = listed.to_pylist()
    names = sorted(listed.column_names, key=lambda name: name != "partition")  # The partition stands first.

    def drawn() -> RenderableType:
        return grid(names, [[_cell(name, row[name]) for name in names] for row in rows]) if rows else Text("none")

    session.answer(rows, drawn)


def _cell(name: str, value: object) -> object:
    if isinstance(value, dict):
        return "/".join(f"{key}={part}" for key, part in value.items())
    if name.endswith("_bytes") and isinstance(value, int):
        return Size(value)
    if name.endswith("_ms") and isinstance(value, int):
        return time(value)
    return value
