"""convert: a table becomes one of the other format where it lies."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from lakeformat.cli.session import of


def convert(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="`db.table`.")],
    to: Annotated[str, typer.Option("--to", help="paimon or iceberg.")],
    history: Annotated[bool, typer.Option("--history", help="Earlier snapshots and tags stay readable.")] = False,
) -> None:
    """Make a table one of the other format where it lies; its rows are compared before. The same command again goes on where it was cut off."""
    session = of(context)
    made = session.lake.convert(table, to, history)
    data = {"table": made.name, "format": made.format, "uri": made.uri}
    session.answer(data, Text(f"{made!r} is {'an' if made.format[0] in 'aeiou' else 'a'} {made.format} table"))
