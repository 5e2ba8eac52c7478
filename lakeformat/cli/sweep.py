"""sweep: files that nothing names."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat.cli import effects
from lakeformat.cli.session import age, of


def sweep(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`.")],
    older_than: Annotated[
        str, typer.Option("--older-than", help="An age (7d, 12h) or a time; younger files may be in use.")
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
) -> None:
    """Remove orphan files: those that no snapshot, tag or branch reaches."""
    session = of(context)
    found = session.table(table)
    limit = age(older_than)
    assert limit is not None
    gone = found.remove_orphan_files(older_than=limit, dry_run=dry_run)
    effects.deletions(session, found, [f"{found.uri}/{each.path}" for each in gone], [], not dry_run)
