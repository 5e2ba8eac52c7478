"""compact: merge small files into large ones."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat import arguments
from lakeformat.cli import effects
from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, Size, grid, size
from lakeformat.model.wording import count_text


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--full", is_flag=True, help="All files, not only those that are worth it.")
@click.option("--where", help="Of which partitions.")
@click.option(
    "--sort-by", multiple=True, help='e.g. "id", "days(ts) DESC", "zorder(a, b)", "hilbert(a, b)"; may be repeated.'
)
@click.option("--buckets", help='Only these of a Paimon table with fixed buckets, e.g. "0-3,7".')
@click.option("--dry-run", is_flag=True, help="Only show what would be written anew.")
@click.pass_obj
def compact(
    session: Session,
    table: str,
    full: bool,
    where: str | None,
    sort_by: tuple[str, ...],
    buckets: str | None,
    dry_run: bool,
) -> None:
    """Make small files into large ones, in one snapshot."""
    target, chosen = session.table(table), None if buckets is None else arguments.ranges("--buckets", buckets)
    if not dry_run:
        made = target.compact(full=full, where=where, sort_by=sort_by or None, buckets=chosen)
        effects.snapshot(session, made, "nothing is worth compacting")
        return
    plan = target.compaction_plan(full=full, where=where, sort_by=sort_by or None, buckets=chosen)
    units = plan.to_pylist()
    data: dict[str, Any] = {
        "dry_run": True,
        "files": sum(len(unit["paths"]) for unit in units),
        "size_bytes": sum(unit["size_bytes"] for unit in units),
        "units": units,
    }

    def drawn() -> Group:
        heading = Text(
            f"would write {count_text(data['files'], 'file')} anew, {size(data['size_bytes'])}, in "
            f"{count_text(len(units), 'unit')}",
            style="bold",
        )
        rows = [(len(u["paths"]), u["row_count"], Size(u["size_bytes"]), u["paths"][0]) for u in units]
        return Group(heading, *([grid(("files", "rows", "size", "first"), rows)] if rows else []))

    session.answer(data, drawn)
