"""count: how many rows."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat.cli.session import of


def count(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`, or `db.table@branch`.")],
    where: Annotated[str | None, typer.Option(help="A condition, as SQL writes it.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="As of this snapshot.")] = None,
    tag: Annotated[str | None, typer.Option(help="As of this tag.")] = None,
    as_of: Annotated[str | None, typer.Option(help="As of this time.")] = None,
) -> None:
    """Count rows; from metadata alone where that is exact."""
    session = of(context)
    rows = session.table(table).scan(where=where, snapshot_id=snapshot, tag=tag, as_of=as_of).count()
    session.answer({"rows": rows}, str(rows))
