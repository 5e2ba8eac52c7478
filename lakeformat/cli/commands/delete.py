"""delete: delete the rows of a condition."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat.cli import effects
from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session
from lakeformat.model.wording import count_text


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--where", required=True, help="A condition, as SQL writes it.")
@click.option("--dry-run", is_flag=True, help="Only count the rows.")
@click.pass_obj
def delete(session: Session, table: str, where: str, dry_run: bool) -> None:
    """Delete rows, in one snapshot."""
    opened = session.table(table)
    if dry_run:
        rows, total = opened.scan(where=where).count(), opened.scan().count()
        data = {"table": opened.name, "dry_run": True, "rows_deleted": rows, "rows_kept": total - rows}
        session.answer(data, Text(f"would delete {count_text(rows, 'row')} of {total:,}"))
        return
    effects.snapshot(session, opened.delete(where), "no row meets the condition")
