"""copy: copy a table to another name, warehouse or format; resumable; verified by count and checksum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from lakeformat import InvalidInput, LakeError, lazy
from lakeformat.cli.completion import formats, tables
from lakeformat.cli.session import Session
from lakeformat.model.wording import count_text

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeformat import Lake, Scan, Table
else:
    pa = lazy.library("pyarrow")


@click.command()
@click.argument("source", help="`db.table`.", shell_complete=tables)
@click.argument("target", help="`db.table` that is to be made, or gone on with.")
@click.option("--to", help="The warehouse of the target, as --warehouse names it; by default the same.")
@click.option("--format", help="paimon or iceberg; by default the source's.", shell_complete=formats)
@click.option("--rows", type=click.IntRange(min=1), default=2000000, help="Rows of one commit.")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@click.pass_obj
def copy(
    session: Session, source: str, target: str, to: str | None, format: str | None, rows: int, dry_run: bool
) -> None:
    """Copy a table. Each commit has an id, so that the same command again goes on where it was cut off."""
    opened = session.lake.table(source)
    lake = session.lake if to is None else session.other(to)
    scan = opened.scan()
    format = format or opened.format
    total = scan.count()
    data: dict[str, Any] = {
        "source": opened.name, "snapshot_id": scan.snapshot_id, "target": target, "warehouse": lake.uri,
        "format": format, "rows": total
    }  # fmt: skip
    if dry_run:
        message = (
            f"would copy {total:,} rows of {opened.name} (snapshot {scan.snapshot_id}) "
            f"to {target} in {lake.uri} as {format}"
        )
        session.answer({**data, "dry_run": True}, Text(message))
        return
    if lake.exists(target):
        copied = lake.table(target)
        mark = f"copy/{opened.uri}/{scan.snapshot_id}/"
        others = [s for s in copied.snapshots() if not (s.operation_id or "").startswith(mark)]
        if others:
            raise InvalidInput(
                f"{target}: there is a table of that name already, and not a copy under way of {opened.name} at "
                f"snapshot {scan.snapshot_id}; choose another name, or drop it"
            )
    else:
        copied = _create(lake, target, opened, format)
    commits = 0
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=session.notes, transient=True, disable=not session.notes.is_terminal,
    ) as progress:  # fmt: skip
        bar = progress.add_task(f"copying {opened.name}", total=total)
        for number, chunk in enumerate(_chunks(scan, rows)):
            if copied.append(chunk, id=f"copy/{opened.uri}/{scan.snapshot_id}/{number}") is not None:
                commits += 1
            progress.advance(bar, len(chunk))
    verified = _verified(scan, copied)
    session.answer(
        {**data, "commits": commits, **verified},
        Text(
            f"copied {count_text(verified['rows'], 'row')} in {count_text(commits, 'commit')} to {copied!r}; "
            "count and checksum agree"
        ),
    )


def _create(lake: Lake, name: str, source: Table, format: str) -> Table:
    """A table with the source's declaration, as far as the target's format supports it."""
    schema = source.schema
    same = format == source.format
    declared: dict[str, Any] = {
        "format": format,
        "partition_by": [str(field) for field in schema.partitioning.fields],
        "primary_key": list(schema.primary_key),
        "comment": schema.comment,
        "properties": {k: v for k, v in schema.properties.items() if k != "path"} if same else None,
    }
    if same:
        return lake.create_table(name, schema, **{**declared, "partition_by": ()})
    return lake.create_table(name, source.scan().schema, **declared)


def _chunks(scan: Scan, rows: int) -> Iterator[pa.Table]:
    """The rows in the order of the plan. Each call gives the same order, so the n-th chunk is always the same."""
    kept: list[pa.RecordBatch] = []
    count = 0
    for batch in scan.to_batches():
        while len(batch):
            part = batch.slice(0, rows - count)
            kept.append(part)
            count += len(part)
            batch = batch.slice(len(part))
            if count == rows:
                yield pa.Table.from_batches(kept, scan.schema)
                kept, count = [], 0
    if kept:
        yield pa.Table.from_batches(kept, scan.schema)


def _verified(source: Scan, target: Table) -> dict[str, Any]:
    """Compare count and checksum of both tables. Raises `LakeError` if they differ."""
    ours, theirs = (scan.checksum(source.schema) for scan in (source, target.scan()))
    if ours != theirs:
        raise LakeError(
            f"the copy differs: {ours[0]:,} rows and checksum {ours[1]}, copied {theirs[0]:,} rows and {theirs[1]}"
        )
    return {"rows": ours[0], "checksum": ours[1]}
