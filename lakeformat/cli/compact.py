"""compact: small files become large ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from lakeformat.cli import effects
from lakeformat.cli.session import Size, counted, grid, of, size


def compact(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`, or `db.table@branch`.")],
    full: Annotated[bool, typer.Option("--full", help="All files, not only those that are worth it.")] = False,
    where: Annotated[str | None, typer.Option(help="Of which partitions.")] = None,
    sort_by: Annotated[
        list[str] | None,
        typer.Option("--sort-by", help='e.g. "id", "days(ts) DESC", "zorder(a, b)", "hilbert(a, b)"; may be repeated.'),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written anew.")] = False,
) -> None:
    """Make small files into large ones, in one snapshot."""
    session = of(context)
    found = session.table(table)
    if not dry_run:
        made = found.compact(full=full, where=where, sort_by=sort_by or None)
        effects.snapshot(session, made, "nothing is worth compacting")
        return
    units = found.compaction_plan(full=full, where=where, sort_by=sort_by or None).to_pylist()
    data: dict[str, Any] = {
        "dry_run": True,
        "files": sum(len(unit["paths"]) for unit in units),
        "size_bytes": sum(unit["size_bytes"] for unit in units),
        "units": units,
    }

    def drawn() -> Group:
        heading = Text(
            f"would write {counted(data['files'], 'file')} anew, {size(data['size_bytes'])}, in {counted(len(units), 'unit')}",
            style="bold",
        )
        rows = [(len(u["paths"]), u["row_count"], Size(u["size_bytes"]), u["paths"][0]) for u in units]
        return Group(heading, *([grid(("files", "rows", "size", "first"), rows)] if rows else []))

    session.answer(data, drawn)
