"""cdc: tables of a database into tables of the warehouse, from where they stand."""

from __future__ import annotations

import re
import signal
import sys
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from lakeformat import InvalidInput
from lakeformat import cdc as capture
from lakeformat.cdc import TypeOption
from lakeformat.cli.session import grid, of

if TYPE_CHECKING:
    from lakeformat.cdc import Report


def cdc(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(envvar="LAKEFORMAT_CDC_SOURCE", help="`postgresql://...` or `mysql://user:password@host:port`."),
    ],
    tables: Annotated[str, typer.Argument(help="`schema.table`; with --all a regular expression that names match.")],
    target: Annotated[str, typer.Argument(help="`db.table`; with --all the database.")],
    all: Annotated[bool, typer.Option("--all", help="All tables that match, each as a table of its own.")] = False,
    format: Annotated[str, typer.Option("--format", help="paimon or iceberg, of tables that are made.")] = "paimon",
    primary_key: Annotated[list[str] | None, typer.Option("--key", help="Where the source declares none.")] = None,
    slot: Annotated[
        str, typer.Option("--slot", help="PostgreSQL's replication slot, one for each call.")
    ] = "lakeformat",
    type_option: Annotated[list[TypeOption] | None, typer.Option("--type-option", help="How types are mapped.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude-column", help="`schema.table.column`; may be repeated.")
    ] = None,
    computed: Annotated[
        list[str] | None,
        typer.Option("--computed-column", help="`name=Spark SQL`, e.g. 'year=year(at)'; may be repeated."),
    ] = None,
    readers: Annotated[
        int, typer.Option("--readers", min=1, help="Connections that read a snapshot, a chunk each.")
    ] = 1,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C, not only to where the source is now.")
    ] = False,
    max_rows: Annotated[int | None, typer.Option("--max-rows", min=1)] = None,
    max_seconds: Annotated[float | None, typer.Option("--max-seconds", min=0.1)] = None,
    shards: Annotated[
        bool, typer.Option("--shards", help="All tables whose names match, together as one table.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Empty the table and begin anew.")] = False,
    excluding: Annotated[str | None, typer.Option("--excluding", help="With --all: not those that match this.")] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="With --all: what the tables' names begin with.")] = "",
    suffix: Annotated[str, typer.Option("--suffix", help="With --all: what the tables' names end with.")] = "",
    batch_rows: Annotated[int | None, typer.Option("--batch-rows", min=1, help="Of a commit, about.")] = None,
) -> None:
    """Bring tables up to those of a PostgreSQL or MySQL database. Each call goes on where the tables stand."""
    session = of(context)
    found = capture.open_source(
        source, slot=slot, type_options=type_option or [], exclude_columns=exclude or [], readers=readers
    )
    stopped = Event()
    if follow:
        signal.signal(signal.SIGINT, lambda number, frame: stopped.set())
        signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    how: dict[str, Any] = {
        "format": format,
        "until": "stopped" if follow else "now",
        "max_rows": max_rows,
        "max_seconds": max_seconds,
        "on_progress": (lambda done: typer.echo(str(done), err=True)) if follow or sys.stderr.isatty() else None,
        **({} if batch_rows is None else {"batch_rows": batch_rows}),
        "stop": stopped.is_set,
    }
    try:
        if all and shards:
            raise InvalidInput("--all makes a table of each, --shards one of all: give one of them")
        if not all and (excluding or prefix or suffix):
            raise InvalidInput(
                "--excluding, --prefix and --suffix go with --all, which makes a table of each that matches"
            )
        if all:
            if restart or primary_key or computed:
                raise InvalidInput("--all goes without --restart, --key and --computed-column; name their table")
            reports = capture.sync_database(
                found,
                session.lake,
                target,
                including=tables,
                excluding=excluding,
                table_prefix=prefix,
                table_suffix=suffix,
                **how,
            )
        else:
            made = capture.sync_table(
                found,
                re.compile(tables) if shards else tables,
                session.lake,
                target,
                primary_key=primary_key,
                restart=restart,
                computed_columns=_columns(computed or []),
                **how,
            )
            reports = {tables: made}
    finally:
        found.close()
    session.answer([_record(name, each) for name, each in reports.items()], lambda: _drawn(reports))
    if any(each.error is not None for each in reports.values()):
        raise typer.Exit(1)


def _columns(given: list[str]) -> dict[str, str]:
    parts = [each.partition("=") for each in given]
    if wrong := [name for name, sign, _ in parts if not (name and sign)]:
        raise InvalidInput(f"--computed-column {wrong[0]!r}: give name=expression, e.g. 'year=year(at)'")
    return {name.strip(): text for name, _, text in parts}


def _record(name: str, report: Report) -> dict[str, Any]:
    return {
        "source": name, "table": report.table, "snapshot_rows": report.snapshot_rows, "filled_rows": report.filled_rows, "rows": report.rows,
        "seconds": report.seconds, "rows_per_second": report.rows_per_second,
        "rows_by_kind": dict(report.rows_by_kind), "position": report.position, "lag_seconds": report.lag_seconds,
        "snapshots": list(report.snapshots), "schema_changes": list(report.schema_changes),
        "error": None if report.error is None else str(report.error),
    }  # fmt: skip


def _drawn(reports: dict[str, Report]) -> Group:
    rows = [
        (
            name,
            each.table,
            each.snapshot_rows,
            each.rows,
            " ".join(f"{kind} {count}" for kind, count in sorted(each.rows_by_kind.items())),
            each.position,
            None if each.lag_seconds is None else f"{each.lag_seconds:.1f} s",
            f"{each.rows_per_second:,.0f}",
        )
        for name, each in reports.items()
    ]
    shown = grid(("source", "table", "snapshot rows", "changes", "kinds", "position", "lag", "rows/s"), rows)
    errors = [Text(f"{name}: {each.error}", style="red") for name, each in reports.items() if each.error is not None]
    return Group(shown, *errors)
