"""Doors from what users call to what it stands on, for tests that look beneath: nothing else in tests names these attributes.

A change of how a table is built changes this file alone.
"""

from lakeformat import Lake
from lakeformat.dialects.dialect import Format, View
from lakeformat.maintenance.runner import Runner
from lakeformat.storage.store import Store
from lakeformat.table import Table


def store(owner: Table | Lake) -> Store:
    """Where the files of a table or a warehouse lie."""
    return owner._store


def view(table: Table) -> View:
    """The table's newest state, as its dialect reads it."""
    return table._view()


def runner(table: Table) -> Runner:
    """What loads, plans and commits the table's verbs."""
    return table._runner


def dialect(table: Table) -> Format:
    """The dialect that the table is of."""
    return table._format
