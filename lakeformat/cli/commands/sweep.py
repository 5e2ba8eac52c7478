"""sweep: remove orphan files."""

from __future__ import annotations

import click

from lakeformat.cli import effects
from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, age


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.option("--older-than", default="1d", help="An age (7d, 12h) or a time; younger files may be in use.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.pass_obj
def sweep(session: Session, table: str, older_than: str, dry_run: bool) -> None:
    """Remove orphan files.

    Files that no snapshot, tag or branch reaches.
    """
    target = session.table(table)
    limit = age(older_than)
    assert limit is not None
    gone = target.remove_orphan_files(older_than=limit, dry_run=dry_run)
    effects.deletions(session, target, [f"{target.uri}/{file.path}" for file in gone], [], not dry_run)
