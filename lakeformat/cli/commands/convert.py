"""convert: convert a table to the other format in place."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat.cli.completion import formats, tables
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.option("--to", required=True, help="paimon or iceberg.", shell_complete=formats)
@click.option("--history", is_flag=True, help="Earlier snapshots and tags stay readable.")
@click.pass_obj
def convert(session: Session, table: str, to: str, history: bool) -> None:
    """Convert a table to the other format.

    In place, after its rows were compared. The same command again goes on where it was cut off.
    """
    made = session.lake.convert(table, to, history)
    data = {"table": made.name, "format": made.format, "uri": made.uri}
    session.answer(data, Text(f"{made!r} is {'an' if made.format[0] in 'aeiou' else 'a'} {made.format} table"))
