"""rollback: restore an earlier snapshot of a table."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat.cli import effects
from lakeformat.cli.completion import tables, tags
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--snapshot", type=int, help="To this snapshot.")
@click.option("--tag", help="To this tag.", shell_complete=tags)
@click.option("--as-of", help="To what it was at this time.")
@click.option("--dry-run", is_flag=True, help="Only show what would leave the history.")
@click.pass_obj
def rollback(
    session: Session, table: str, snapshot: int | None, tag: str | None, as_of: str | None, dry_run: bool
) -> None:
    """Make a table what it was, in a new snapshot."""
    opened = session.table(table)
    target = opened.dry_run()[0] if dry_run else opened
    before = {snapshot.id: snapshot for snapshot in opened.snapshots()}
    rows = opened.scan().count()
    new_snapshot = target.rollback_to(snapshot_id=snapshot, tag=tag, as_of=as_of)
    if not dry_run:
        effects.snapshot(session, new_snapshot, "it is that snapshot already")
        return
    gone = [id for id in before if id not in {snapshot.id for snapshot in target.snapshots()}]
    data = {"dry_run": True, "leaves_history": gone, "rows_before": rows, "rows_after": target.scan().count()}
    listed = ", ".join(map(str, gone)) or "none"
    message = f"would take out of the history: {listed}; rows {rows:,} -> {data['rows_after']:,}"
    session.answer(data, Text(message if new_snapshot else "it is that snapshot already"))
