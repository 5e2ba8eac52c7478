"""tag: snapshots that are kept by name."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat import InvalidInput
from lakeformat.cli import effects
from lakeformat.cli.session import duration, grid, of


def tag(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`.")],
    name: Annotated[str | None, typer.Argument(help="The tag; without it, tags are listed.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="Of this snapshot, not the current one.")] = None,
    retain: Annotated[str | None, typer.Option(help="For how long, e.g. 30d.")] = None,
    delete: Annotated[bool, typer.Option("--delete", "-d", help="Let the tag go, and what only it kept.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
) -> None:
    """List tags, make one, or let one go."""
    session = of(context)
    found = session.table(table)
    if name is None:
        if delete:
            raise InvalidInput("tag --delete: say which tag")
        rows = found.inspect.tags().to_pylist()
        session.answer(rows, lambda: grid(list(found.inspect.tags().column_names), [_texts(row) for row in rows]))
        return
    twin, record = found.dry_run()
    target = twin if dry_run else found
    if delete:
        before = {each.path for each in found.stored_files()}
        target.delete_tag(name)
        gone = (
            list(record.deleted)
            if dry_run
            else [f"{found.uri}/{p}" for p in before - {f.path for f in found.stored_files()}]
        )
        effects.deletions(session, found, sorted(gone), [], not dry_run)
        return
    target.create_tag(name, snapshot_id=snapshot, retain=duration(retain))
    kept = target.scan(tag=name).snapshot_id
    verb = "would keep" if dry_run else "keeps"
    session.answer({"tag": name, "snapshot_id": kept, "dry_run": dry_run}, f"tag {name} {verb} snapshot {kept}")


def _texts(row: dict[str, object]) -> list[object]:
    return [str(value) if isinstance(value, int) else value for value in row.values()]
