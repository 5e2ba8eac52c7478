"""convert: convert a table to the other format in place."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat.cli import effects
from lakeformat.cli.completion import formats, tables
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.option("--to", required=True, help="paimon or iceberg.", shell_complete=formats)
@click.option("--history", is_flag=True, help="Earlier snapshots and tags stay readable.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written and removed.")
@click.pass_obj
def convert(session: Session, table: str, to: str, history: bool, dry_run: bool) -> None:
    """Convert a table to the other format.

    In place, after its rows were compared. The same command again goes on where it was cut off.
    """
    if dry_run:
        opened = session.table(table)
        twin, record = session.lake.rehearse_convert(opened.name, to, history)
        effects.rewritten(session, opened, record.written, list(record.deleted), {"table": twin.name, "format": to})
        return
    converted = session.lake.convert(table, to, history)
    data = {"table": converted.name, "format": to, "uri": converted.uri, "dry_run": False}
    session.answer(data, Text(f"{converted!r} is {'an' if to[0] in 'aeiou' else 'a'} {to} table"))
