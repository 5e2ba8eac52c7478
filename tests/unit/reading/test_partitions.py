"""Partitions of every spec a table ever had, and of columns that are called as the measures beside them."""

import datetime
import random
import time
from collections import Counter

import pyarrow as pa
import pytest

from lakeformat import Lake, NotFound, UnsupportedFeature
from lakeformat.reading import partitions

MEASURES = ("file_count", "small_file_count", "row_count", "deleted_row_count", "size_bytes", "last_modified_ms")
FIELDS = pa.schema([("dt", pa.string()), ("x", pa.int64()), ("d", pa.date32())])
NAMES = {
    "dt": "dt",
    "x": "x",
    "bucket(4, x)": "x_bucket",
    "truncate(10, x)": "x_truncate",
    "days(d)": "d_day",
    "d": "d",
}


class Evolving:
    """A table whose partition fields come and go, and its rows by the file that has them."""

    def __init__(self, seed, folder):
        self.random, self.rows = random.Random(seed), []
        self.now = list(self.random.choice([(), ("dt",), ("dt", "bucket(4, x)")]))
        self.lake = Lake(str(folder))
        properties = {"format-version": self.random.choice("23")}
        self.table = self.lake.create_table(
            "d.t", FIELDS, format="iceberg", partition_by=self.now, properties=properties
        )

    def append(self):
        day = datetime.date(2024, 1, 1)
        rows = [
            {
                "dt": self.random.choice([None, "2024-01-01", "2024-01-02", "a'b"]),
                "x": self.random.choice([None, *range(20)]),
                "d": self.random.choice([None, day, day + datetime.timedelta(1)]),
            }
            for _ in range(3)
        ]
        self.table.append(pa.Table.from_pylist(rows, FIELDS))
        self.rows += rows

    def add(self):
        if free := [field for field in NAMES if field not in self.now]:
            self.now.append(self.random.choice(free))
            self.table.alter().add_partition_field(self.now[-1]).commit()

    def remove(self):
        if self.now:
            field = self.now.pop(self.random.randrange(len(self.now)))
            self.table.alter().drop_partition_field(NAMES[field]).commit()


@pytest.mark.parametrize("seed", range(100))
def test_partitions_of_all_specs_add_up_to_the_table(seed, tmp_path):
    table = Evolving(seed, tmp_path)
    for step in table.random.choices([table.append, table.append, table.add, table.remove], k=9):
        step()
        table.table = table.lake.table("d.t")
    table.append()
    inspect, files = table.table.inspect, table.table.inspect.files()
    listed = inspect.partitions()
    assert sum(listed["row_count"].to_pylist()) == len(table.rows)
    assert sum(listed["file_count"].to_pylist()) == len(files)
    assert Counter(listed["spec_id"].to_pylist()).keys() == set(files["spec_id"].to_pylist())
    specs = {spec["spec_id"]: spec["fields"] for spec in inspect.partition_specs().to_pylist()}
    by_text = Counter(zip(files["spec_id"].to_pylist(), files["partition"].to_pylist(), strict=True))
    by_spec = Counter(spec_id for spec_id, _ in by_text)
    assert by_spec == Counter(listed["spec_id"].to_pylist())
    for row in listed.to_pylist():
        others = {name for fields in specs.values() for name in (f["name"] for f in fields)}
        others -= {field["name"] for field in specs[row["spec_id"]]}
        assert all(row["partition"][name] is None for name in others)
        assert all(row[name] == value for name, value in row.get("partition", {}).items())
    for columns in (["dt"], ["x"], ["d", "dt"]):
        counts = inspect.partition_measures(columns)
        if counts is not None:
            expected = Counter(tuple(row[name] for name in columns) for row in table.rows)
            assert {values: row["row_count"] for values, row in counts.items()} == expected
    first = table.table.schema.partitioning.fields[:1]
    if not first or first[0].transform.kind == "void":
        return
    shown = [row["partition"] for row in table.lake.sql("SHOW PARTITIONS d.t").to_arrow().to_pylist()]
    assert len(shown) == len(set(shown)) == len(partitions.named(listed, inspect.partition_specs()))
    if first[0].transform.kind == "identity":
        name = first[0].source
        most = max((row[name] for row in table.rows if row[name] is not None), default=None)
        query = f"SELECT {name} FROM d.t WHERE {name} = sys.max_pt('d.t')"
        selected = table.lake.sql(query).to_arrow()[name].to_pylist()
        assert selected == [row[name] for row in table.rows if row[name] == most is not None]


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
@pytest.mark.parametrize("name", [*MEASURES, "spec_id", "partition", "Row_Count", "p0", "made"])
def test_a_partition_column_may_be_called_as_a_measure(format, name, tmp_path):
    lake = Lake(str(tmp_path))
    fields = pa.schema([("id", pa.int64()), (name, pa.int64())])
    table = lake.create_table("d.t", fields, format=format, partition_by=[name])
    table.append(pa.table({"id": [1, 2, 3], name: [7, 8, 8]}))
    rows = table.inspect.partitions().to_pylist()
    assert [(row["partition"], row["row_count"], row["file_count"]) for row in rows] == [
        ({name: 7}, 1, 1),
        ({name: 8}, 2, 1),
    ]
    assert {*MEASURES, "spec_id", "partition"} <= {column.casefold() for column in rows[0]}
    shown = [row["partition"] for row in lake.sql("SHOW PARTITIONS d.t").to_arrow().to_pylist()]
    assert shown == [f"{name}=7", f"{name}=8"]
    assert lake.sql(f"SHOW PARTITIONS d.t PARTITION (`{name}` = 8)").to_arrow().num_rows == 1
    newest = lake.sql(f"SELECT id FROM d.t WHERE `{name}` = sys.max_pt('d.t')").to_arrow()["id"].to_pylist()
    assert sorted(newest) == [2, 3]
    assert lake.sql("SELECT count(*) AS n FROM d.t.partitions").to_arrow()["n"].to_pylist() == [2]
    assert table.inspect.partition_measures([name])[(8,)]["row_count"] == 2


def test_partitions_of_several_specs_are_described_as_one(tmp_path):
    lake = Lake(str(tmp_path))
    table = lake.create_table("d.t", FIELDS, format="iceberg", partition_by=["dt"])
    rows = pa.Table.from_pylist([{"dt": "a", "x": 1, "d": None}], FIELDS)
    table.append(rows)
    table.alter().add_partition_field("x").commit()
    lake.table("d.t").append(rows)
    assert [r["partition"] for r in lake.sql("SHOW PARTITIONS d.t").to_arrow().to_pylist()] == ["dt=a/x=1", "dt=a"]
    described = lake.sql("DESCRIBE EXTENDED d.t PARTITION (dt = 'a', x = 1)").to_arrow().to_pylist()
    assert ("Rows", "1") in [(row["col_name"], row["data_type"]) for row in described]
    with pytest.raises(NotFound, match="expected one partition"):
        lake.sql("DESCRIBE EXTENDED d.t PARTITION (dt = 'a')")


def test_the_largest_partition_counts_rows_of_files_without_the_field(tmp_path):
    lake = Lake(str(tmp_path))
    table = lake.create_table("d.t", FIELDS, format="iceberg")
    table.append(pa.Table.from_pylist([{"dt": "b", "x": 1}, {"dt": None, "x": 2}], FIELDS))
    table.alter().add_partition_field("dt").commit()
    lake.table("d.t").append(pa.Table.from_pylist([{"dt": "a", "x": 3}], FIELDS))
    assert lake.sql("SELECT x FROM d.t WHERE dt = sys.max_pt('d.t')").to_arrow()["x"].to_pylist() == [1]
    lake.table("d.t").alter().drop_partition_field("dt").add_partition_field("bucket(4, x)").commit()
    with pytest.raises(UnsupportedFeature, match="compact it"):
        lake.sql("SELECT sys.max_pt('d.t')")


def test_partitions_that_are_idle_in_all_specs_are_compacted(tmp_path):
    lake = Lake(str(tmp_path))
    table = lake.create_table("d.t", FIELDS, format="iceberg", partition_by=["dt"])
    for dt in ("a", "a", "b", "b"):
        table.append(pa.Table.from_pylist([{"dt": dt, "x": 1}], FIELDS))
    time.sleep(1.1)
    table.alter().add_partition_field("bucket(4, x)").commit()
    lake.table("d.t").append(pa.Table.from_pylist([{"dt": "b", "x": 1}], FIELDS))
    lake.sql("CALL sys.compact(table => 'd.t', partition_idle_time => '1 s')")
    counts = lake.table("d.t").inspect.partition_measures(["dt"])
    assert {values: row["file_count"] for values, row in counts.items()} == {("a",): 1, ("b",): 3}
