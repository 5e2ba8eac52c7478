"""rename: give a table another name."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.argument("name", help="Its new `db.table`.")
@click.pass_obj
def rename(session: Session, table: str, name: str) -> None:
    """Rename a table."""
    renamed = session.lake.rename_table(table, name)
    session.answer({"table": renamed.name, "was": table, "uri": renamed.uri}, Text(f"{table} is now {renamed.name}"))
