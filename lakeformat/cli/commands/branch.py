"""branch: list, create, publish, rename and delete branches."""

from __future__ import annotations

import click

from lakeformat import InvalidInput
from lakeformat.cli import effects
from lakeformat.cli.completion import branches, tables
from lakeformat.cli.session import Session, duration, grid


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.argument("name", required=False, help="The branch; without it, branches are listed.", shell_complete=branches)
@click.option("--snapshot", type=int, help="It begins at this snapshot, not the current one.")
@click.option("--retain", help="For how long, e.g. 30d.")
@click.option("--delete", "-d", is_flag=True, help="Let the branch go.")
@click.option("--publish", is_flag=True, help="Move the table to where the branch is (fast-forward).")
@click.option("--rename", help="Its new name (Paimon).")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.pass_obj
def branch(
    session: Session,
    table: str,
    name: str | None,
    snapshot: int | None,
    retain: str | None,
    delete: bool,
    publish: bool,
    rename: str | None,
    dry_run: bool,
) -> None:
    """List branches, make one, publish one, rename one, or let one go."""
    opened = session.table(table)
    if name is None:
        if delete or publish or rename:
            raise InvalidInput("branch --delete, --publish and --rename: name the branch")
        listed = opened.inspect.branches()
        rows = listed.to_pylist()
        shown = [[str(v) if isinstance(v, int) else v for v in row.values()] for row in rows]
        session.answer(rows, lambda: grid(list(listed.column_names), shown))
        return
    if delete + publish + bool(rename) > 1:
        raise InvalidInput("branch: one of --delete, --publish and --rename")
    rehearsed, record = opened.dry_run()
    target = rehearsed if dry_run else opened
    if delete:
        before = {file.path for file in opened.stored_files()}
        target.delete_branch(name)
        removed = list(record.deleted) if dry_run else effects.removed(opened, before)
        effects.deletions(session, opened, removed, [], not dry_run)
        return
    if rename:
        target.rename_branch(name, rename)
        message = f"branch {name} {'would be' if dry_run else 'is'} called {rename}"
    elif publish:
        target.fast_forward(name)
        message = (
            f"{opened.name} {'would be' if dry_run else 'is'} at snapshot {target.scan().snapshot_id}, "
            f"as branch {name} is"
        )
    else:
        target.create_branch(name, snapshot, retain=duration(retain))
        at = target.branch(name).scan().snapshot_id
        message = f"branch {name} {'would begin' if dry_run else 'begins'} at snapshot {at}"
    session.answer({"branch": name, "dry_run": dry_run, "did": message}, message)
