"""doctor: find problems of tables. Exit code 1 if there are any."""

from __future__ import annotations

import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat import LakeError
from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, size

if TYPE_CHECKING:
    from lakeformat import Table

_SMALL = 8  # Small files in a partition; from this many on, reads slow down.
_DELETED = 0.2  # Of a table's rows.
_SKEW = 20  # Times the median partition.


@click.command()
@click.argument("table", required=False, help="`db.table`; without it, all tables.", shell_complete=tables)
@click.option(
    "--orphans-older-than",
    type=click.IntRange(min=0, max=36500),
    default=1,
    metavar="DAYS",
    help="Younger files may be in use.",
)
@click.pass_obj
def doctor(session: Session, table: str | None, orphans_older_than: int) -> None:
    """Look for what is wrong with tables.

    Small files, deleted rows, skew, orphan files, snapshots to expire, and references to missing files. Exit code 1 if
    there are any.
    """
    names = [table] if table else session.lake.tables()
    findings = [finding for name in names for finding in _findings(session.lake.table(name), orphans_older_than)]

    def drawn() -> Group:
        sick = {finding["table"] for finding in findings}
        healthy = [Text.assemble(("ok    ", "green"), name) for name in names if name not in sick]
        return Group(*healthy, *(_text(finding) for finding in findings))

    session.answer(findings, drawn)
    if findings:
        raise click.exceptions.Exit(1)


def _findings(table: Table, days: int) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = []

    def add(problem: str, text: str, cure: str) -> None:
        findings.append({"table": table.name, "problem": problem, "found": text, "cure": cure})

    try:
        lost = table.missing_files()
        if lost:
            add(
                "broken",
                f"{len(lost)} files are named and not there, e.g. {lost[0]}",
                "restore them, or rollback to a snapshot without them",
            )
        partitions = table.inspect.partitions()
        small, sizes, rows, deleted = (
            partitions[name].fill_null(0).to_pylist()  # Other engines' files may have no row count.
            for name in ("small_file_count", "size_bytes", "row_count", "deleted_row_count")
        )
        crowded = [count for count in small if count >= _SMALL]
        if crowded:
            add("small files", f"{sum(crowded)} in {len(crowded)} partitions", f"compact {table.name}")
        if sum(rows) and sum(deleted) > _DELETED * sum(rows):
            add(
                "deleted rows",
                f"{sum(deleted) / sum(rows):.0%} of {sum(rows):,} stored rows",
                f"compact {table.name} --full",
            )
        if len(sizes) >= 5 and max(sizes) > _SKEW * max(median(sizes), 1):
            add(
                "skew",
                f"the largest partition is {size(max(sizes))}, the median {size(int(median(sizes)))}",
                "partition by more, or by other columns",
            )
        twin, record = table.dry_run()
        expired = twin.expire_snapshots().snapshots
        if expired:
            add(
                "old snapshots",
                f"{len(expired)} are past their time, and {len(record.deleted)} files",
                f"expire {table.name}",
            )
        orphans = table.remove_orphan_files(older_than=datetime.timedelta(days=days), dry_run=True)
        if orphans:
            add("orphan files", f"{len(orphans)}, {size(sum(f.size_bytes for f in orphans))}", f"sweep {table.name}")
    except LakeError as error:
        add("unreadable", str(error), "see the message")
    return findings


def _text(finding: dict[str, Any]) -> Text:
    color = "red" if finding["problem"] in {"broken", "unreadable"} else "yellow"
    return Text.assemble(
        (f"{finding['problem']:<14}", color),
        (finding["table"], "bold"),
        f": {finding['found']}",
        (f"  -> {finding['cure']}", "dim"),
    )
