"""Hidden columns: names and types of the connectors, where each row lies, and refusals where rows have no such place."""

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound, UnsupportedFeature
from tests.sql.conftest import rows

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("p", pa.string())])
NAMES = {
    "paimon": ("__paimon_file_path", "__paimon_row_index", "__paimon_partition"),
    "iceberg": ("_file", "_pos", "_partition"),
}
PARTITIONS = ["x", "a b", "50%", "é", "k=v/w", None]
REFUSED = [
    ("USING paimon TBLPROPERTIES ('primary-key'='id')", "__paimon_file_path", "merges rows by key"),
    ("USING paimon TBLPROPERTIES ('primary-key'='id')", "__paimon_bucket", "merges rows by key"),
    ("USING paimon TBLPROPERTIES ('row-tracking.enabled'='true', 'data-evolution.enabled'='true')", "__paimon_row_index", "several files"),
    ("USING paimon", "_ROW_ID", "does not track rows"),
    ("USING paimon", "__paimon_partition", "no partitions"),
    ("USING iceberg", "_partition", "no partitions"),
    ("USING iceberg", "_row_id", "does not track rows"),
    ("USING iceberg", "_deleted", "deleted rows"),
]  # fmt: skip


@pytest.fixture(params=["paimon", "iceberg", "iceberg, merge-on-read"])
def table(request, tmp_path):
    """Two files in each partition, one of them with a deleted first row."""
    form, _, mode = request.param.partition(", ")
    properties = {"deletion-vectors.enabled": "true"} if form == "paimon" else {}
    properties |= {"write.delete.mode": mode, "format-version": "3"} if mode else {}
    table = Lake(tmp_path).create_table("d.t", SCHEMA, format=form, partition_by=["p"], properties=properties)
    for start in (0, 100):
        lines = [{"id": start + 10 * i + j, "s": "v", "p": p} for i, p in enumerate(PARTITIONS) for j in range(3)]
        table.append(pa.Table.from_pylist(lines, SCHEMA))
    table.delete("id IN (0, 10, 20, 30, 40, 50)")
    return table


def test_places_are_those_of_the_files(table, tmp_path):
    lake, (file, position, partition) = Lake(tmp_path), NAMES[table.format]
    read = lake.sql(f"SELECT id, p, {file} AS f, {position} AS i, {partition} AS q FROM d.t").to_arrow()
    assert read.schema.types == [pa.int64(), pa.string(), pa.string(), pa.int64(), pa.struct([("p", pa.string())])]
    listed = lake.sql(
        "SELECT file_path FROM d.t.data_files" if table.format == "iceberg" else "SELECT file_path FROM `d.t$files`"
    )
    assert set(read["f"].to_pylist()) == set(listed.to_arrow()["file_path"].to_pylist())
    lines = read.to_pylist()
    assert all(line["q"] == {"p": line["p"]} for line in lines)
    assert len({(line["f"], line["i"]) for line in lines}) == len(lines) == 30
    kept = {line["id"]: line["i"] for line in lines}
    assert {id: kept[id] for id in (100, 101, 102, 151)} == {100: 0, 101: 1, 102: 2, 151: 1}
    rewritten = table.format == "iceberg" and table.properties.get("write.delete.mode") != "merge-on-read"
    assert (kept[1], kept[52]) == ((0, 1) if rewritten else (1, 2))


def test_a_star_does_not_list_them_and_conditions_use_them(table, tmp_path):
    lake, (file, position, partition) = Lake(tmp_path), NAMES[table.format]
    assert lake.sql(f"SELECT *, {position} AS i FROM d.t WHERE {position} = 2").to_arrow().column_names == [
        "id",
        "s",
        "p",
        "i",
    ]
    assert lake.sql(f"SELECT t.* FROM d.t WHERE upper({file}) LIKE '%PARQUET'").to_arrow().column_names == [
        "id",
        "s",
        "p",
    ]
    assert rows(lake.sql(f"SELECT count(*) FROM d.t GROUP BY {partition}.p")) == [(5,)] * 6
    assert rows(lake.sql(f"SELECT {position} FROM d.t VERSION AS OF {table.snapshots()[0].id} WHERE id = 1")) == [(1,)]
    assert rows(
        lake.sql(f"SELECT count(*) FROM d.t a JOIN d.t b ON a.{file} = b.{file} AND a.{position} = b.{position}")
    ) == [(30,)]
    assert rows(lake.sql(f"SELECT id AS {file} FROM d.t WHERE id = 1")) == [(1,)]
    assert rows(lake.sql(f"SELECT {position.upper()} FROM d.t WHERE id > 200")) == []


def test_a_column_of_the_table_comes_before_a_hidden_one(tmp_path):
    lake = Lake(tmp_path)
    lake.sql("CREATE TABLE d.t (__paimon_bucket STRING) USING paimon")
    lake.sql("INSERT INTO d.t VALUES ('own')")
    assert rows(lake.sql("SELECT __paimon_bucket FROM d.t")) == [("own",)]


@pytest.mark.parametrize(("definition", "name", "reason"), REFUSED)
def test_columns_that_rows_do_not_have_are_refused_by_name(tmp_path, definition, name, reason):
    lake = Lake(tmp_path)
    lake.sql(f"CREATE TABLE d.t (id INT NOT NULL) {definition}")
    lake.sql("INSERT INTO d.t VALUES (1)")
    with pytest.raises(UnsupportedFeature, match=f"{name}.*{reason}"):
        lake.sql(f"SELECT {name} FROM d.t")


def test_numbers_of_rows(tmp_path):
    lake = Lake(tmp_path)
    lake.sql("CREATE TABLE i.t (id INT) USING iceberg TBLPROPERTIES ('format-version'='3')")
    lake.sql("CREATE TABLE p.t (id INT) USING paimon TBLPROPERTIES ('row-tracking.enabled'='true')")
    for name, id in (("i.t", "_row_id"), ("p.t", "_ROW_ID")):
        lake.sql(f"INSERT INTO {name} VALUES (5), (6)")
        assert rows(lake.sql(f"SELECT id, {id} FROM {name}")) == [(5, 0), (6, 1)]
    assert rows(lake.sql("SELECT _last_updated_sequence_number, _spec_id FROM i.t")) == [(1, 0)] * 2
    assert rows(lake.sql("SELECT _SEQUENCE_NUMBER, __paimon_bucket FROM p.t")) == [(1, 0)] * 2


def test_changes_by_a_place_are_refused(table, tmp_path):
    lake, (file, position, _) = Lake(tmp_path), NAMES[table.format]
    for text in (
        f"DELETE FROM d.t WHERE initcap({file}) = 'X'",
        f"UPDATE d.t SET s = initcap({file})",
        f"DELETE FROM d.t WHERE {position} = 0",
    ):
        with pytest.raises((UnsupportedFeature, NotFound, InvalidInput), match=f"{file}|{position}"):
            lake.sql(text)
    assert table.scan().count() == 30
