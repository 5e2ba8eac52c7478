"""head: the first rows of a table, at any version."""

from __future__ import annotations

import click

from lakeformat.cli.completion import tables, tags
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--rows", "-n", type=click.IntRange(min=0), default=10, help="How many.")
@click.option("--columns", "-c", help="Names with commas between them.")
@click.option("--where", help="A condition, as SQL writes it.")
@click.option("--snapshot", type=int, help="As of this snapshot.")
@click.option("--tag", help="As of this tag.", shell_complete=tags)
@click.option("--as-of", help="As of this time, e.g. 2023-05-01T12:00:00.")
@click.option("--expanded", "-x", is_flag=True, help="One column a line.")
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
    expanded: bool,
) -> None:
    """Print some rows."""
    names = [name.strip() for name in columns.split(",")] if columns else None
    scan = session.table(table).scan(names, where, snapshot_id=snapshot, tag=tag, as_of=as_of, limit=rows)
    session.rows(scan.to_batches(), as_records=expanded)
