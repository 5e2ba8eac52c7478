"""doctor: find problems of tables. Exit code 1 if there are any."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat import LakeError, NotFound
from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, size
from lakeformat.model.wording import count_text

if TYPE_CHECKING:
    from lakeformat import Table

_SMALL = 8  # Small files in a partition; from this many on, reads slow down.
_DELETED = 0.2  # Of a table's rows.
# Iceberg's readers take counts for statistics; Paimon's refuse manifests with wrong ones.
_CURE_OF_COUNTS = {
    "iceberg": "rows are read right, counts without a scan are not: compact {table} --full writes new metadata",
    "paimon": "restore the metadata file; after lost snapshots: CALL sys.repair_earliest_snapshot('{table}', FIRST)",
}
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
@click.option("--deep", is_flag=True, help="Read every data and delete file: footers, pages, row counts.")
@click.pass_obj
def doctor(session: Session, table: str | None, orphans_older_than: int, deep: bool) -> None:
    """Look for what is wrong with tables.

    Missing and cut files, wrong counts, small files, deleted rows, skew, orphan files, and snapshots to expire. Exit
    code 1 if there are any.
    """
    names = [table] if table else session.lake.tables()
    findings = [finding for name in names for finding in _findings(session, name, orphans_older_than, deep)]

    def drawn() -> Group:
        sick = {finding["table"] for finding in findings}
        healthy = [Text.assemble(("ok    ", "green"), name) for name in names if name not in sick]
        return Group(*healthy, *(_text(finding) for finding in findings))

    session.answer(findings, drawn)
    if findings:
        raise click.exceptions.Exit(1)


def _findings(session: Session, name: str, days: int, deep: bool) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = []

    def add(problem: str, text: str, cure: str) -> None:
        findings.append({"table": name, "problem": problem, "found": text, "cure": cure})

    try:
        table = session.lake.table(name)
    except NotFound:
        raise
    except LakeError as error:
        add("unreadable", str(error), "restore the file that the message names")
        return findings
    way_back = cache(lambda: _way_back(table))  # Looked for once, and only for what needs it.
    try:
        damage = table.verify(deep)
        lost = [finding for finding in damage if finding.kind == "missing"]
        if lost:
            add(
                "broken",
                f"{len(lost)} files are named and not there, e.g. {lost[0].path}",
                f"restore them, or {way_back()}",
            )
        for finding in damage:
            if finding.kind == "counts":
                add("wrong count", finding.text, _CURE_OF_COUNTS[table.format].format(table=table.name))
            elif finding.kind != "missing":
                add("broken", finding.text, f"restore the file, or {way_back()}")
        partitions = table.inspect.partitions()
        small, sizes, rows, deleted = (
            partitions[name].fill_null(0).to_pylist()  # Other engines' files may have no row count.
            for name in ("small_file_count", "size_bytes", "row_count", "deleted_row_count")
        )
        crowded = [count for count in small if count >= _SMALL]
        if crowded:
            add("small files", f"{sum(crowded)} in {count_text(len(crowded), 'partition')}", f"compact {table.name}")
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
                f"{len(expired)} are past their time, and {count_text(len(record.deleted), 'file')}",
                f"expire {table.name}",
            )
        orphans = table.remove_orphan_files(older_than=datetime.timedelta(days=days), dry_run=True)
        if orphans:
            add("orphan files", f"{len(orphans)}, {size(sum(f.size_bytes for f in orphans))}", f"sweep {table.name}")
    except LakeError as error:
        add("unreadable", str(error), f"restore the file that the message names, or {way_back()}")
    return findings


def _way_back(table: Table) -> str:
    """The command that goes back to the newest snapshot whose files are all there."""
    try:
        stored = {file.path: file.size_bytes for file in table.stored_files()}
        for snapshot in reversed(table.snapshots()[:-1]):
            if _is_whole(table, snapshot.id, stored):
                return f"go back to the newest whole snapshot: rollback {table.name} --snapshot {snapshot.id}"
    except LakeError:  # Not even the list of snapshots can be read.
        pass
    return "copy the rows that can be read to a new table: no other snapshot is whole"


def _is_whole(table: Table, snapshot_id: int, stored: Mapping[str, int]) -> bool:
    """Whether the files of a snapshot are among those of the table's folder (path -> bytes), with their sizes."""
    try:
        listed = table.inspect.at(snapshot_id).files()
    except LakeError:
        return False
    paths = [path.removeprefix(f"{table.uri}/") for path in listed["path"].to_pylist()]
    sizes = zip(paths, listed["size_bytes"].to_pylist(), strict=True)
    return all(stored.get(path) == size for path, size in sizes if "://" not in path)


def _text(finding: dict[str, Any]) -> Text:
    color = "red" if finding["problem"] in {"broken", "unreadable"} else "yellow"
    return Text.assemble(
        (f"{finding['problem']:<14}", color),
        (finding["table"], "bold"),
        f": {finding['found']}",
        (f"  -> {finding['cure']}", "dim"),
    )
