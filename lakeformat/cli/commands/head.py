"""head: the first rows of a table, at any version."""

from __future__ import annotations

import click

from lakeformat.cli.session import Session, data_grid


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.")
@click.option("--rows", "-n", type=click.IntRange(min=0), default=10, help="How many.")
@click.option("--columns", "-c", help="Names with commas between them.")
@click.option("--where", help="A condition, as SQL writes it.")
@click.option("--snapshot", type=int, help="As of this snapshot.")
@click.option("--tag", help="As of this tag.")
@click.option("--as-of", help="As of this time, e.g. 2023-05-01T12:00:00.")
@click.pass_obj
def head(
    session: Session,
    table: str,
    rows: int,
    columns: str | None,
    where: str | None,
    snapshot: int | None,
    tag: str | None,
    as_of: str | None,
) -> None:
    """Print some rows."""
    names = [name.strip() for name in columns.split(",")] if columns else None
    scan = session.table(table).scan(names, where, snapshot_id=snapshot, tag=tag, as_of=as_of, limit=rows)
    preview = scan.to_arrow()
    listed = preview.to_pylist()
    session.answer(listed, lambda: data_grid(preview.column_names, [list(row.values()) for row in listed]))
