"""create: create an empty table from columns in SQL."""

from __future__ import annotations

import click
from rich.text import Text

from lakeformat import AlreadyExists
from lakeformat.cli.completion import formats
from lakeformat.cli.pairs import pairs
from lakeformat.cli.session import Session


@click.command()
@click.argument("table", help="`db.table` that is to be made.")
@click.argument("columns", help="As in SQL, e.g. \"id BIGINT NOT NULL, dt STRING COMMENT 'the day'\".")
@click.option("--format", default="paimon", help="paimon or iceberg.", shell_complete=formats)
@click.option("--partition-by", "-b", multiple=True, help="A column or a transform, e.g. days(ts); may be repeated.")
@click.option("--primary-key", "-k", multiple=True, help="A column; may be repeated.")
@click.option("--property", "-p", "properties", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--comment", help="What the table holds.")
@click.pass_obj
def create(
    session: Session,
    table: str,
    columns: str,
    format: str,
    partition_by: tuple[str, ...],
    primary_key: tuple[str, ...],
    properties: tuple[str, ...],
    comment: str | None,
) -> None:
    """Create an empty table."""
    values = pairs("--property", properties, "KEY=VALUE, e.g. bucket=4", takes_empty=True)
    if session.lake.exists(table):
        raise AlreadyExists(f"{table}: the table exists already; choose another name, or drop it")
    key = f", PRIMARY KEY ({', '.join(map(_quoted, primary_key))}) NOT ENFORCED" if primary_key else ""
    parts = [
        f"CREATE TABLE {'.'.join(map(_quoted, table.split('.')))} ({columns}{key}) USING {_quoted(format)}",
        f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else "",
        f"COMMENT {_text(comment)}" if comment is not None else "",
        "TBLPROPERTIES (" + ", ".join(f"{_text(key)} = {_text(value)}" for key, value in values.items()) + ")"
        if values
        else "",
    ]
    session.lake.sql(" ".join(filter(None, parts)))
    created = session.lake.table(table)
    data = {"table": created.name, "format": created.format, "uri": created.uri}
    session.answer(data, Text(f"created {created.name} ({created.format}) at {created.uri}"))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
