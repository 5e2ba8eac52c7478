"""Rows in every form that libraries have them in: what is written is what they say."""

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lakeformat import InvalidInput, Lake

pl = pytest.importorskip("polars")

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("nested", pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int64()))), ("x", pa.int32())])),
        ("many", pa.list_(pa.map_(pa.int32(), pa.string()))),
    ]
)
ROWS = pa.table(
    {
        "id": [1, 2, None],
        "tags": [[("a", 1), ("b", None)], [], None],
        "nested": [{"m": [("k", [1, None])], "x": None}, None, {"m": None, "x": 5}],
        "many": [[[(1, "v")], None], None, []],
    },
    schema=SCHEMA,
)
PLAIN = pa.table({"id": [3, 1, 2], "v": ["c", None, "a"]})


@pytest.fixture(params=["paimon", "iceberg"])
def lake(request, tmp_path):
    lake = Lake(tmp_path)
    lake.create_table("d.maps", SCHEMA, format=request.param)
    lake.create_table("d.t", PLAIN.schema, format=request.param)
    return lake


def sorted_rows(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["id"] is None, row["id"]))


def test_maps_come_back_from_pandas(lake):
    table = lake.table("d.maps")
    table.append(ROWS)
    frame = table.scan().to_pandas()
    table.overwrite(frame)
    assert sorted_rows(table) == ROWS.to_pylist()
    frame["tags"] = [[("a", "no number")], None, None]
    with pytest.raises(InvalidInput, match="column 'tags'"):
        table.append(frame)


@pytest.mark.parametrize(
    "rows",
    [
        lambda folder: pl.from_arrow(PLAIN).lazy().filter(pl.col("id") > 0),
        lambda folder: ds.dataset(PLAIN),
        lambda folder: ds.dataset(PLAIN).scanner(),
        lambda folder: ds.dataset(folder / "f.parquet"),
        lambda folder: (row for row in PLAIN.to_pylist()),
        lambda folder: iter(PLAIN.to_batches(max_chunksize=1)),
        lambda folder: (PLAIN.slice(i, 1) for i in range(3)),
    ],
    ids=["lazy polars", "dataset", "scanner", "files", "dicts", "batches", "tables"],
)
def test_lazy_forms_are_written_whole(lake, tmp_path, rows):
    pq.write_table(PLAIN, tmp_path / "f.parquet")
    table = lake.table("d.t")
    assert table.append(rows(tmp_path)).rows_added == 3
    assert sorted_rows(table) == sorted(PLAIN.to_pylist(), key=lambda row: row["id"])


def test_a_generator_that_mixes_forms_is_refused(lake):
    table = lake.table("d.t")
    for mixed in (({"id": 1}, PLAIN), (PLAIN, {"id": 1}), (1, 2)):
        with pytest.raises(InvalidInput, match="data"):
            table.append(part for part in mixed)
    assert table.snapshots() == []
