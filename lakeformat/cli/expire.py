"""expire: old snapshots go, and the files that only they reached."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat.cli import effects
from lakeformat.cli.session import age, of


def expire(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`.")],
    retain_last: Annotated[int | None, typer.Option("--retain-last", min=1, help="Keep at least that many.")] = None,
    older_than: Annotated[str | None, typer.Option("--older-than", help="An age (7d, 12h) or a time.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
) -> None:
    """Drop old snapshots; without options, as the table's own properties say."""
    session = of(context)
    found = session.table(table)
    twin, record = found.dry_run()
    target = twin if dry_run else found
    gone = target.expire_snapshots(retain_last=retain_last, older_than=age(older_than))
    paths = [f"{found.uri}/{path}" if "://" not in path else path for wave in gone.waves for path in wave]
    effects.deletions(session, found, list(record.deleted) if dry_run else paths, list(gone.snapshots), not dry_run)
