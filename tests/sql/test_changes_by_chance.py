"""Recorded statements on tables of both formats, with the rows that Iceberg's own runtime has after each; see
`differential_changes.py`, which records them."""

import pytest

from tests.draw import some
from tests.sql.differential_changes import KEYED, TABLES, Tables, recorded

RUNS = recorded()


@pytest.mark.parametrize("number", some(range(len(RUNS)), 5, "changes"))
def test_rows_after_statements_are_those_of_iceberg_on_spark(number):
    """Each run on one kind of table, a different one in each."""
    keyed, run = RUNS[number]
    kinds = list((KEYED if keyed else TABLES).items())
    tables = Tables(dict([kinds[number % len(kinds)]]))
    tables.begin()
    (name,) = tables.tables
    for text, outcome, rows in run:
        kind, here = tables.answer(name, text)
        assert (kind == "rows") == (outcome == "rows"), (name, text, here)
        assert kind != "rows" or here == rows, (name, text)
