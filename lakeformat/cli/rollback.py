"""rollback: a table becomes what it was."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from lakeformat.cli import effects
from lakeformat.cli.session import of


def rollback(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`, or `db.table@branch`.")],
    snapshot: Annotated[int | None, typer.Option(help="To this snapshot.")] = None,
    tag: Annotated[str | None, typer.Option(help="To this tag.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", help="To what it was at this time.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would leave the history.")] = False,
) -> None:
    """Make a table what it was, in a new snapshot."""
    session = of(context)
    found = session.table(table)
    target = found.dry_run()[0] if dry_run else found
    before = {each.id: each for each in found.snapshots()}
    rows = found.scan().count()
    made = target.rollback_to(snapshot_id=snapshot, tag=tag, as_of=as_of)
    if not dry_run:
        effects.snapshot(session, made, "it is that snapshot already")
        return
    gone = [id for id in before if id not in {each.id for each in target.snapshots()}]
    data = {"dry_run": True, "leaves_history": gone, "rows_before": rows, "rows_after": target.scan().count()}
    listed = ", ".join(map(str, gone)) or "none"
    message = f"would take out of the history: {listed}; rows {rows:,} -> {data['rows_after']:,}"
    session.answer(data, Text(message if made else "it is that snapshot already"))
