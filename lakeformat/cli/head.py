"""head: the first rows of a table, as it is or was."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat.cli.session import data_grid, of


def head(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`, or `db.table@branch`.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="How many.")] = 10,
    columns: Annotated[str | None, typer.Option("--columns", "-c", help="Names with commas between them.")] = None,
    where: Annotated[str | None, typer.Option(help="A condition, as SQL writes it.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="As of this snapshot.")] = None,
    tag: Annotated[str | None, typer.Option(help="As of this tag.")] = None,
    as_of: Annotated[str | None, typer.Option(help="As of this time, e.g. 2023-05-01T12:00:00.")] = None,
) -> None:
    """Print some rows."""
    session = of(context)
    names = [name.strip() for name in columns.split(",")] if columns else None
    scan = session.table(table).scan(names, where, snapshot_id=snapshot, tag=tag, as_of=as_of, limit=rows)
    found = scan.to_arrow()
    listed = found.to_pylist()
    session.answer(listed, lambda: data_grid(found.column_names, [list(row.values()) for row in listed]))
