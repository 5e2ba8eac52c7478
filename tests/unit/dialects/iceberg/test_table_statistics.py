"""Statistics beside a snapshot: distinct values of columns, figures of partitions."""

import datetime
import hashlib
import json
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Conflict, InvalidInput, Lake, UnsupportedFeature
from lakeformat.catalogs import documents
from lakeformat.codec.iceberg import theta
from lakeformat.verbs import analyze
from tests import doors

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string()), ("l", pa.list_(pa.int32()))])


def rows(start, end, dt="a"):
    ids = list(range(start, end))
    return pa.table(
        {
            "id": ids,
            "v": [None if i % 10 == 0 else f"v{i % 7}" for i in ids],
            "dt": [dt] * len(ids),
            "l": [[i] for i in ids],
        },
        SCHEMA,
    )


def made(tmp_path, **properties):
    given = {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=given)
    table.append(rows(0, 100))
    table.append(rows(50, 150, "b"))
    return table


def sketch(*parts):
    found = theta.Sketch()
    for part in parts:
        found.add(pa.array(part, pa.binary()))
    return found


@pytest.mark.parametrize(  # What Apache DataSketches 5.2 writes of the same values, added in whatever order.
    ("values", "emitted"),
    [
        ([], "01030300001ecc93"),
        ([b"a"], "01030300001acc9317c11d528507017b"),
        ([b"a", b"", b"b", None, b"a"], "02030300001acc930200000000000000857f40b689c7e53417c11d528507017b"),
    ],
)
def test_sketches_are_those_of_datasketches(values, emitted):
    assert sketch(values).emit().hex() == emitted


def test_sketches_of_many_values_are_those_of_datasketches():
    texts = [b"x" * i for i in range(40)]  # Of each length, also of several blocks.
    assert hashlib.sha256(sketch(texts[20:], texts[:25]).emit()).hexdigest()[:16] == "91253a5ead9163e0"
    many = sketch(*([struct.pack("<q", i) for i in range(at, at + 5_000)] for at in range(0, 100_000, 5_000)))
    assert many.estimate == pytest.approx(98045.91060164096)  # As DataSketches estimates it of these bytes.
    assert len(many.emit()) == 24 + 8 * theta.NOMINAL


def test_distinct_values_are_counted_and_noted_with_the_snapshot(tmp_path):
    table = made(tmp_path)
    first = table.snapshots()[0].id
    path = table.compute_table_stats()
    found = {row["column"]: row["distinct_values"] for row in table.inspect.statistics().to_pylist()}
    assert found == {"id": 150, "v": 7, "dt": 2}
    data = doors.store(table).read(path)
    (entry,) = doors.view(table).state.document["statistics"]
    assert data[:4] == data[-4:] == b"PFA1"
    assert (entry["file-size-in-bytes"], entry["snapshot-id"]) == (len(data), table.current_snapshot().id)
    footer = data[-entry["file-footer-size-in-bytes"] :]
    assert footer[:4] == b"PFA1"
    blobs = json.loads(footer[4:-12])["blobs"]
    assert [blob["type"] for blob in blobs] == [theta.BLOB] * 3
    assert [{k: blob[k] for k in ("type", "fields", "properties")} for blob in blobs] == [
        {k: each[k] for k in ("type", "fields", "properties")} for each in entry["blob-metadata"]
    ]

    old = table.compute_table_stats(["id"], first)
    assert {row["distinct_values"] for row in table.inspect.statistics().to_pylist()} == {150, 7, 2, 100}
    again = table.compute_table_stats(["id"])
    assert len(table.inspect.statistics()) == 2
    swept = [orphan.path for orphan in table.remove_orphan_files(datetime.timedelta(days=-1))]
    assert [path.endswith(each) for each in swept] == [True]  # Another took its place.
    table.expire_snapshots(retain_last=1)
    assert [doors.store(table).exists(each) for each in (path, old, again)] == [False, False, True]
    with pytest.raises(InvalidInput, match="'l' is"):
        table.compute_table_stats(["l"])


@pytest.mark.parametrize("version", ["2", "3"])
def test_figures_of_partitions_are_those_of_the_specification(tmp_path, version):
    table = made(tmp_path, format__version=version, write_delete_mode="merge-on-read")
    deleted = table.delete("id = 1 or id = 2")
    table.alter().add_partition_field("bucket(4, id)").commit()
    table.append(rows(200, 201, "a"))
    path = table.compute_partition_stats()
    assert path.endswith(".parquet")
    file = pq.read_table(pa.BufferReader(doors.store(table).read(path)))
    ids = {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in file.schema}
    assert list(ids.values()) == [*range(1, 13), *([13] if version == "3" else [])]
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in file.schema.field("partition").type] == [1000, 1001]
    found = file.to_pylist()
    last = table.current_snapshot().id
    shown = [
        (*entry["partition"].values(), entry["spec_id"], entry["data_record_count"], entry["data_file_count"])
        for entry in found
    ]
    assert shown[0][0] == "a"
    assert [row[2:] for row in shown] == [(1, 1, 1), (0, 100, 1), (0, 100, 1)]
    of_a = found[1]
    assert (of_a["position_delete_record_count"], of_a["last_updated_snapshot_id"]) == (2, deleted.id)
    assert of_a["position_delete_file_count"] == (1 if version == "2" else 0)
    assert version == "2" or of_a["dv_count"] == 1
    assert found[0]["last_updated_snapshot_id"] == last
    assert sum(entry["total_data_file_size_in_bytes"] for entry in found) == sum(
        table.inspect.files()["size_bytes"].to_pylist()
    )
    (row,) = table.inspect.statistics().to_pylist()
    assert (row["of"], row["snapshot_id"], row["path"]) == ("partition", last, path)


def test_a_rest_catalog_is_asked_to_note_statistics(tmp_path):
    table = made(tmp_path)
    base = doors.view(table).state.document
    table.compute_table_stats(["id"])
    table.compute_partition_stats()
    asked = {update["action"]: update for update in documents.updates(base, doors.view(table).state.document)}
    snapshot_id = table.current_snapshot().id
    assert asked["set-statistics"]["statistics"]["snapshot-id"] == snapshot_id
    assert asked["set-partition-statistics"]["partition-statistics"]["snapshot-id"] == snapshot_id


def test_what_has_no_statistics_is_named(tmp_path):
    lake = Lake(str(tmp_path))
    written = lake.create_table("d.p", SCHEMA)
    written.append(rows(0, 3))
    with pytest.raises(UnsupportedFeature, match="Paimon has no statistics of partitions"):
        written.compute_partition_stats()
    plain = lake.create_table("d.i", SCHEMA, format="iceberg")
    assert plain.compute_table_stats() is None
    plain.append(rows(0, 3))
    with pytest.raises(InvalidInput, match="no partitions"):
        plain.compute_partition_stats()
    assert lake.sql("CALL system.compute_table_stats(table => 'd.i', columns => array('id'))").to_pandas().shape == (
        1,
        1,
    )


def test_figures_of_a_paimon_table_are_in_a_file_that_its_snapshots_name(tmp_path):
    lake = Lake(str(tmp_path))
    table = lake.create_table("d.t", pa.schema([("k", pa.int32()), ("v", pa.string()), ("f", pa.float64()), ("day", pa.date32()), ("l", pa.list_(pa.int32()))]))  # fmt: skip
    assert table.compute_table_stats() is None
    table.append({"k": [1, 2, 2, None], "v": ["a", "", "häß", None], "f": [1.5, -1e20, float("nan"), None], "day": [datetime.date(1969, 12, 31), None, None, None], "l": [None] * 4})  # fmt: skip
    path = table.compute_table_stats()
    document = json.loads(doors.store(table).read(path))
    assert {name: list(figures.values()) for name, figures in document.pop("colStats").items()} == {
        "k": [0, 2, "1", "2", 1, 4, 4],
        "v": [1, 3, 1, 2, 3],
        "f": [2, 3, "-1.0E20", "NaN", 1, 8, 8],
        "day": [3, 1, "-1", "-1", 3, 4, 4],
    }
    size = sum(table.inspect.files()["size_bytes"].to_pylist())
    assert document == {"snapshotId": 1, "schemaId": 0, "mergedRecordCount": 4, "mergedRecordSize": size}
    analyzed = table.current_snapshot()
    assert (analyzed.id, analyzed.kind, analyzed.rows_added, len(table.scan().to_arrow())) == (2, "analyze", 0, 4)
    table.append({"k": [5]})
    assert table.inspect.statistics()["path"].to_pylist() == [path] * 4
    again = table.compute_table_stats(["k"])
    table.expire_snapshots(retain_last=1)
    assert [doors.store(table).exists(file) for file in (path, again)] == [False, True]
    table.alter().add_column("n", "int").commit()
    table.append({"k": [6]})
    assert len(table.inspect.statistics()) == 0  # They are of the columns before.
    with pytest.raises(InvalidInput, match="'l' is"):
        table.compute_table_stats(["l"])


def test_paimon_s_figures_of_columns_that_others_change_meanwhile_are_a_conflict(tmp_path):
    table = Lake(str(tmp_path)).create_table("d.t", pa.schema([("k", pa.int32())]))
    table.append({"k": [1]})
    view = doors.view(table)
    change = doors.runner(table).change(view, doors.runner(table).request(view, None)[0])
    operation = analyze.columns(change, None)
    table.alter().rename_column("k", "n").commit()
    with pytest.raises(Conflict, match="changed the schema"):
        doors.runner(table).commit(view, operation)
    assert len(table.snapshots()) == 1
