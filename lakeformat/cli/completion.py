"""Completion in the user's shell: tables, tags, branches and formats."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from lakeformat import LakeError
from lakeformat.cli.warehouses import chosen

if TYPE_CHECKING:
    from lakeformat import Lake


def tables(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tables of the warehouse that the command line, the environment or the config file names."""
    try:
        return [name for name in _lake(context).tables() if name.startswith(incomplete)]
    except LakeError:  # A shell shows no errors while it completes.
        return []


def formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Both formats."""
    return [name for name in ("paimon", "iceberg") if name.startswith(incomplete)]


def _named(kind: str, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tags or branches of the table that the command line names."""
    try:
        named = context.params.get("table") or next(iter(context.args), "")  # Arguments that are not parsed yet.
        listed = getattr(_lake(context).table(named.partition("@")[0]).inspect, kind)()
        return [name for name in listed.columns[0].to_pylist() if name.startswith(incomplete)]
    except LakeError:
        return []


tags, branches = partial(_named, "tags"), partial(_named, "branches")


# --- private ----------------------------------------------------------------------------------------------------------


def _lake(context: click.Context) -> Lake:
    shared = context.find_root().params
    return chosen(shared["warehouse"], shared["catalog"], shared["option"], shared["allowed"], shared["config"])
