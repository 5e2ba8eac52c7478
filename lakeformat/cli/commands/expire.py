"""expire: remove old snapshots, and the files that only they used."""

from __future__ import annotations

import click

from lakeformat.cli import effects
from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, age


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.option("--retain-last", type=click.IntRange(min=1), help="Keep at least that many.")
@click.option("--older-than", help="An age (7d, 12h) or a time.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.pass_obj
def expire(session: Session, table: str, retain_last: int | None, older_than: str | None, dry_run: bool) -> None:
    """Drop old snapshots.

    Without options, those that the table's own properties let go.
    """
    opened = session.table(table)
    twin, record = opened.dry_run()
    target = twin if dry_run else opened
    gone = target.expire_snapshots(retain_last=retain_last, older_than=age(older_than))
    paths = [f"{opened.uri}/{path}" if "://" not in path else path for wave in gone.waves for path in wave]
    effects.deletions(session, opened, list(record.deleted) if dry_run else paths, list(gone.snapshots), not dry_run)
