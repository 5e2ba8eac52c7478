"""drop: drop a table."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session
from lakeformat.model.wording import count_text


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.option("--purge", is_flag=True, help="Delete the files, where a catalog would only forget the name.")
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@click.pass_obj
def drop(session: Session, table: str, purge: bool, dry_run: bool) -> None:
    """Drop a table. Without a catalog its files are deleted."""
    opened = session.lake.table(table)
    data = {"table": opened.name, "uri": opened.uri, "dry_run": dry_run}
    if dry_run:
        rows, files = opened.scan().count(), len(opened.stored_files())
        message = f"would drop {opened.name}: {count_text(rows, 'row')}, {count_text(files, 'file')} at {opened.uri}"
        session.answer({**data, "rows": rows, "files": files}, Text(message))
        return
    session.lake.drop_table(opened.name, purge=purge)
    session.answer(data, Text(f"dropped {opened.name}"))
