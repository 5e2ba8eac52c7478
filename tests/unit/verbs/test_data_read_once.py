"""Readers and iterators that were read already are not taken for data without rows."""

import logging
from contextlib import suppress

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "dt": ["x", "y"]})
ONCE = {
    "reader": ROWS.to_reader,
    "generator": lambda: (batch for batch in ROWS.to_batches()),
    "map": lambda: map(pa.Table.from_batches, [[batch] for batch in ROWS.to_batches()]),
    "list iterator": lambda: iter([ROWS]),
}
WRITES = {
    "append": lambda table, data: table.append(data),
    "upsert": lambda table, data: table.upsert(data, on=["id"]),
    "overwrite": lambda table, data: table.overwrite(data),
    "overwrite where": lambda table, data: table.overwrite(data, where="id > 0"),
    "overwrite partition": lambda table, data: table.overwrite_partitions(data),
    "declared": lambda table, data: table.overwrite_partitions(data, [{"dt": "x"}, {"dt": "y"}]),
    "merge": lambda table, data: table.merge_into(data, "t.id = s.id").when_matched().update_all().merge(),
    "merge by source": lambda table, data: (
        table.merge_into(data, "t.id = s.id").when_not_matched_by_source().delete().merge()
    ),
}
REPLACING = {"overwrite", "overwrite where", "declared", "merge by source"}


def spent_elsewhere(data):
    list(data)
    return data


@pytest.fixture(params=["iceberg", "paimon"])
def table(request, tmp_path):
    lake = Lake(str(tmp_path / "w"))
    table = lake.create_table("d.t", ROWS.schema, partition_by=["dt"], format=request.param)
    table.append(ROWS)
    return table


@pytest.mark.parametrize("kind", ["reader", "generator"])
@pytest.mark.parametrize("verb", WRITES)
def test_data_that_a_write_read_is_refused_by_the_next(table, kind, verb):
    data = ONCE[kind]()
    table.append(data)
    before, snapshot = table.scan().to_arrow(), table.current_snapshot()
    with pytest.raises(InvalidInput, match="was read by an earlier write"):
        WRITES[verb](table, data)
    assert table.current_snapshot() == snapshot
    assert table.scan().to_arrow() == before


@pytest.mark.parametrize("kind", ONCE)
@pytest.mark.parametrize("verb", WRITES)
def test_data_that_was_read_elsewhere_takes_no_rows_away(table, kind, verb, caplog):
    before = table.scan().to_arrow()
    with caplog.at_level(logging.WARNING):
        if verb in REPLACING:
            with pytest.raises(InvalidInput, match="has no batches"):
                WRITES[verb](table, spent_elsewhere(ONCE[kind]()))
        else:
            WRITES[verb](table, spent_elsewhere(ONCE[kind]()))
            assert "has no batches" in caplog.text
    assert table.scan().to_arrow() == before


@pytest.mark.parametrize("verb", sorted(REPLACING))
def test_rows_of_the_librarys_own_readers_may_be_none(table, verb, caplog):
    none = table.scan(where="id > 5")
    empty = pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.slice(0, 0).to_batches() or [ROWS.to_batches()[0][:0]])
    for data in (none, none.to_batches(), empty, ROWS.slice(0, 0)):
        table.append(ROWS)
        WRITES[verb](table, data)
        assert table.scan().to_arrow().num_rows == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_overwrite_by_a_query_without_rows(table):
    lake = Lake(table.uri.rpartition("/d.db")[0].removeprefix("file://"))
    lake.sql("INSERT OVERWRITE d.t SELECT id, dt FROM d.t WHERE id > 5")
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_a_relation_gives_all_rows_after_some_were_fetched(table, verb):
    relation = duckdb.connect().sql("select range id, 'x' dt from range(5)")
    with suppress(AttributeError):  # From DuckDB 2 on a relation keeps no place.
        relation.fetchmany(5)
    table.truncate()
    WRITES[verb](table, relation)
    WRITES["overwrite"](table, relation)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(5))


def test_frames_can_be_written_twice(table):
    table.truncate()
    for data in (ROWS, ROWS.to_batches(), pd.DataFrame({"id": [1, 2], "dt": ["x", "y"]}), ROWS.to_pylist()):
        table.append(data)
        table.append(data)
    assert table.scan().to_arrow().num_rows == 16
