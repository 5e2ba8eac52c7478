"""slot: the replication slots by which a PostgreSQL server keeps its log for syncs."""

from __future__ import annotations

import click

from lakeformat import InvalidInput
from lakeformat import cdc as capture
from lakeformat.cdc import Postgres
from lakeformat.cli.session import Session


@click.group()
def slot() -> None:
    """Manage the replication slots of change data capture."""


@slot.command()
@click.argument("source", envvar="LAKEFORMAT_CDC_SOURCE", help="`postgresql://...`.")
@click.argument("name", default="lakeformat", help="The slot.")
@click.pass_obj
def drop(session: Session, source: str, name: str) -> None:
    """Drop a slot and its publication, so that the server no longer keeps its log for them. The tables that followed it
    stay; a later sync of them needs --restart."""
    opened = capture.open_source(source, slot=name)
    try:
        if not isinstance(opened, Postgres):
            raise InvalidInput(
                "only PostgreSQL has replication slots; MySQL keeps its log by binlog_expire_logs_seconds"
            )
        tables, is_dropped = opened.served(), opened.drop()
    finally:
        opened.close()
    outcome = f"dropped slot {name}" if is_dropped else f"there is no slot {name}"
    session.answer({"slot": name, "dropped": is_dropped, "tables": list(tables)}, outcome)
