"""cdc: replicate tables of a database into the warehouse, from the recorded position on."""

from __future__ import annotations

import re
import signal
import sys
from threading import Event
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat import InvalidInput
from lakeformat import cdc as capture
from lakeformat.cdc import OnMisfit, TypeOption
from lakeformat.cli.completion import formats
from lakeformat.cli.pairs import pairs
from lakeformat.cli.session import Session, grid
from lakeformat.model.wording import count_text

if TYPE_CHECKING:
    from lakeformat.cdc import Report


@click.command()
@click.argument(
    "source", envvar="LAKEFORMAT_CDC_SOURCE", help="`postgresql://...` or `mysql://user:password@host:port`."
)
@click.argument("tables", help="`schema.table`; with --all a regular expression that names match.")
@click.argument("target", help="`db.table`; with --all the database.")
@click.option("--all", is_flag=True, help="All tables that match, each as a table of its own.")
@click.option("--format", default="paimon", help="paimon or iceberg, of tables that are made.", shell_complete=formats)
@click.option("--key", "primary_key", multiple=True, help="Where the source declares none.")
@click.option("--slot", default="lakeformat", help="PostgreSQL's replication slot, one for each call.")
@click.option(
    "--type-option",
    multiple=True,
    type=click.Choice([choice.value for choice in TypeOption]),
    help="How types are mapped.",
)
@click.option("--exclude-column", "exclude", multiple=True, help="`schema.table.column`; may be repeated.")
@click.option("--text-column", "texts", multiple=True, help="`schema.table.column` that is STRING; may be repeated.")
@click.option(
    "--on-misfit",
    type=click.Choice([choice.value for choice in OnMisfit]),
    default=OnMisfit.STOP.value,
    help="What becomes of values that their column cannot hold.",
)
@click.option(
    "--computed-column", "computed", multiple=True, help="`name=Spark SQL`, e.g. 'year=year(at)'; may be repeated."
)
@click.option(
    "--readers", type=click.IntRange(min=1), default=1, help="Connections that read a snapshot, a chunk each."
)
@click.option("--name", help="Recorded in tables, for a MySQL server whose address may change.")
@click.option(
    "--lock-seconds", type=click.IntRange(min=1), help="How long MySQL's FLUSH TABLES may wait for statements."
)
@click.option("--partition-by", multiple=True, help="Column or transform, of a table that is made; may be repeated.")
@click.option("--property", "properties", multiple=True, help="`key=value`, of tables that are made; may be repeated.")
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C, not only to where the source is now.")
@click.option("--max-rows", type=click.IntRange(min=1))
@click.option("--max-seconds", type=click.FloatRange(min=0.1))
@click.option(
    "--reconnect-seconds",
    type=click.FloatRange(min=0),
    default=600.0,
    help="How long to try to connect again after the connection dropped.",
)
@click.option("--shards", is_flag=True, help="All tables whose names match, together as one table.")
@click.option("--restart", is_flag=True, help="Empty the table, or with --all the tables, and begin anew.")
@click.option("--swap", is_flag=True, help="With --restart: the old rows stay until the new ones replace them at once.")
@click.option("--excluding", help="With --all: not those that match this.")
@click.option("--prefix", default="", help="With --all: what the tables' names begin with.")
@click.option("--suffix", default="", help="With --all: what the tables' names end with.")
@click.option("--table-name", "table_names", multiple=True, help="With --all: `schema.table=name`; may be repeated.")
@click.option("--where", help="Only the rows that satisfy this condition, Spark SQL over the source's columns.")
@click.option(
    "--row-filter", "row_filters", multiple=True, help="With --all: `schema.table=condition`; may be repeated."
)
@click.option("--batch-rows", type=click.IntRange(min=1), help="Of a commit, about.")
@click.pass_obj
def cdc(
    session: Session,
    source: str,
    tables: str,
    target: str,
    all: bool,
    format: str,
    primary_key: tuple[str, ...],
    slot: str,
    type_option: tuple[str, ...],
    exclude: tuple[str, ...],
    texts: tuple[str, ...],
    on_misfit: str,
    computed: tuple[str, ...],
    readers: int,
    name: str | None,
    lock_seconds: int | None,
    partition_by: tuple[str, ...],
    properties: tuple[str, ...],
    follow: bool,
    max_rows: int | None,
    max_seconds: float | None,
    reconnect_seconds: float,
    shards: bool,
    restart: bool,
    swap: bool,
    excluding: str | None,
    prefix: str,
    suffix: str,
    table_names: tuple[str, ...],
    where: str | None,
    row_filters: tuple[str, ...],
    batch_rows: int | None,
) -> None:
    """Bring tables up to those of a PostgreSQL or MySQL database. Each call goes on where the tables stand."""
    opened = capture.open_source(
        source,
        slot=slot,
        type_options=type_option,
        exclude_columns=exclude,
        readers=readers,
        name=name,
        on_misfit=on_misfit,
        text_columns=texts,
        lock_seconds=lock_seconds,
    )
    stopped = Event()
    if follow:
        signal.signal(signal.SIGINT, lambda number, frame: stopped.set())
        signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    arguments: dict[str, Any] = {
        "format": format,
        "properties": pairs("--property", properties, "KEY=VALUE, e.g. bucket=4"),
        "until": "stopped" if follow else "now",
        "max_rows": max_rows,
        "max_seconds": max_seconds,
        "reconnect_seconds": reconnect_seconds,
        "on_progress": (lambda done: click.echo(str(done), err=True)) if follow or sys.stderr.isatty() else None,
        **({} if batch_rows is None else {"batch_rows": batch_rows}),
        "stop": stopped.is_set,
    }
    try:
        if all and shards:
            raise InvalidInput("--all makes a table of each, --shards one of all: give one of them")
        if not all and (excluding or prefix or suffix or table_names or row_filters):
            raise InvalidInput(
                "--excluding, --prefix, --suffix, --table-name and --row-filter go with --all, "
                "which makes a table of each that matches"
            )
        if all:
            if primary_key or computed or partition_by or where is not None:
                raise InvalidInput(
                    "--all goes without --key, --computed-column, --partition-by and --where (but --row-filter); "
                    "name their table"
                )
            reports = capture.sync_database(
                opened,
                session.lake,
                target,
                including=tables,
                excluding=excluding,
                table_prefix=prefix,
                table_suffix=suffix,
                table_names=pairs("--table-name", table_names, "schema.table=name"),
                row_filters=pairs("--row-filter", row_filters, "schema.table=condition"),
                restart=restart,
                swap=swap,
                **arguments,
            )
        else:
            single_report = capture.sync_table(
                opened,
                re.compile(tables) if shards else tables,
                session.lake,
                target,
                primary_key=primary_key or None,
                restart=restart,
                swap=swap,
                computed_columns=pairs("--computed-column", computed, "name=expression, e.g. 'year=year(at)'"),
                partition_by=partition_by,
                where=where,
                **arguments,
            )
            reports = {tables: single_report}
    finally:
        opened.close()
    session.answer([_record(name, report) for name, report in reports.items()], lambda: _drawn(reports))
    if any(report.error is not None for report in reports.values()):
        raise click.exceptions.Exit(1)


def _record(name: str, report: Report) -> dict[str, Any]:
    return {
        "source": name, "table": report.table, "snapshot_rows": report.snapshot_rows,
        "filled_rows": report.filled_rows, "rows": report.rows,
        "seconds": report.seconds, "rows_per_second": report.rows_per_second,
        "rows_by_kind": dict(report.rows_by_kind), "position": report.position, "lag_seconds": report.lag_seconds,
        "snapshots": list(report.snapshots), "schema_changes": list(report.schema_changes),
        "misfits": dict(report.misfits),
        "error": None if report.error is None else str(report.error),
    }  # fmt: skip


def _drawn(reports: dict[str, Report]) -> Group:
    rows = [
        (
            name,
            report.table,
            report.snapshot_rows,
            report.rows,
            " ".join(f"{kind} {count}" for kind, count in sorted(report.rows_by_kind.items())),
            report.position,
            None if report.lag_seconds is None else f"{report.lag_seconds:.1f} s",
            f"{report.rows_per_second:,.0f}",
        )
        for name, report in reports.items()
    ]
    shown = grid(("source", "table", "snapshot rows", "changes", "kinds", "position", "lag", "rows/s"), rows)
    misfits = [
        Text(f"{name}: {count_text(count, 'value')} of {column} did not fit and became NULL", style="yellow")
        for name, report in reports.items()
        for column, count in report.misfits.items()
    ]
    errors = [
        Text(f"{name}: {report.error}", style="red") for name, report in reports.items() if report.error is not None
    ]
    return Group(shown, *misfits, *errors)
