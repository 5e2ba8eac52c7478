"""count: count rows."""

from __future__ import annotations

import click

from lakeformat.cli.completion import tables, tags
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--where", help="A condition, as SQL writes it.")
@click.option("--snapshot", type=int, help="As of this snapshot.")
@click.option("--tag", help="As of this tag.", shell_complete=tags)
@click.option("--as-of", help="As of this time.")
@click.pass_obj
def count(
    session: Session, table: str, where: str | None, snapshot: int | None, tag: str | None, as_of: str | None
) -> None:
    """Count rows; from metadata alone where that is exact."""
    rows = session.table(table).scan(where=where, snapshot_id=snapshot, tag=tag, as_of=as_of).count()
    session.answer({"rows": rows}, str(rows))
