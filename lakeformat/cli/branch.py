"""branch: lines of snapshots beside the table's own."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat import InvalidInput
from lakeformat.cli.session import duration, grid, of


def branch(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`.")],
    name: Annotated[str | None, typer.Argument(help="The branch; without it, branches are listed.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="It begins at this snapshot, not the current one.")] = None,
    retain: Annotated[str | None, typer.Option(help="For how long, e.g. 30d.")] = None,
    delete: Annotated[bool, typer.Option("--delete", "-d", help="Let the branch go.")] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="Move the table to where the branch is (fast-forward).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
) -> None:
    """List branches, make one, publish one, or let one go."""
    session = of(context)
    found = session.table(table)
    if name is None:
        if delete or publish:
            raise InvalidInput("branch --delete and --publish: say which branch")
        listed = found.inspect.branches()
        rows = listed.to_pylist()
        shown = [[str(v) if isinstance(v, int) else v for v in row.values()] for row in rows]
        session.answer(rows, lambda: grid(list(listed.column_names), shown))
        return
    if delete and publish:
        raise InvalidInput("branch: --delete or --publish, not both")
    target = found.dry_run()[0] if dry_run else found
    would = "would " if dry_run else ""
    if delete:
        target.delete_branch(name)
        message = f"branch {name} {would}go" if dry_run else f"branch {name} is gone"
    elif publish:
        target.fast_forward(name)
        message = f"{found.name} {'would be' if dry_run else 'is'} at snapshot {target.scan().snapshot_id}, as branch {name} is"
    else:
        target.create_branch(name, snapshot, retain=duration(retain))
        at = target.branch(name).scan().snapshot_id
        message = f"branch {name} {'would begin' if dry_run else 'begins'} at snapshot {at}"
    session.answer({"branch": name, "dry_run": dry_run, "did": message}, message)
