"""tag: list, create and delete tags."""

from __future__ import annotations

import click

from lakeformat import InvalidInput
from lakeformat.cli import effects
from lakeformat.cli.completion import tables, tags
from lakeformat.cli.session import Session, duration, grid


@click.command()
@click.argument("table", help="`db.table`.", shell_complete=tables)
@click.argument("name", required=False, help="The tag; without it, tags are listed.", shell_complete=tags)
@click.option("--snapshot", type=int, help="Of this snapshot, not the current one.")
@click.option("--retain", help="For how long, e.g. 30d.")
@click.option("--delete", "-d", is_flag=True, help="Let the tag go, and what only it kept.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.pass_obj
def tag(
    session: Session,
    table: str,
    name: str | None,
    snapshot: int | None,
    retain: str | None,
    delete: bool,
    dry_run: bool,
) -> None:
    """List tags, make one, or let one go."""
    opened = session.table(table)
    if name is None:
        if delete:
            raise InvalidInput("tag --delete: name the tag")
        rows = opened.inspect.tags().to_pylist()
        session.answer(rows, lambda: grid(list(opened.inspect.tags().column_names), [_texts(row) for row in rows]))
        return
    twin, record = opened.dry_run()
    target = twin if dry_run else opened
    if delete:
        before = {file.path for file in opened.stored_files()}
        target.delete_tag(name)
        removed = sorted(record.deleted) if dry_run else effects.removed(opened, before)
        effects.deletions(session, opened, removed, [], not dry_run)
        return
    target.create_tag(name, snapshot_id=snapshot, retain=duration(retain))
    kept = target.scan(tag=name).snapshot_id
    verb = "would keep" if dry_run else "keeps"
    session.answer({"tag": name, "snapshot_id": kept, "dry_run": dry_run}, f"tag {name} {verb} snapshot {kept}")


def _texts(row: dict[str, object]) -> list[object]:
    return [str(value) if isinstance(value, int) else value for value in row.values()]
