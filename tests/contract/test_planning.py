"""Manifests decoded by Spark's tasks: the plan, the rows and the errors are those of the driver alone."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import CorruptTable, InvalidInput, Lake
from lakeformat.engines.choose import spark_engine

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])


@pytest.fixture(scope="module", params=["paimon", "iceberg"])
def table(request, tmp_path_factory):
    """A manifest for each of some commits, under two specs or schemas; one file is gone again, and one has lost a row."""
    properties = {"deletion-vectors.enabled": "true"} if request.param == "paimon" else {"format-version": "3"}
    lake = Lake(tmp_path_factory.mktemp("planning"), fsync="false")
    made = lake.create_table("d.t", SCHEMA, format=request.param, partition_by=["dt"], properties=properties)
    for number in range(6):
        rows = {"id": [number, number + 100], "name": [f"n{number}", None], "dt": ["a", "b"]}
        made.append(pa.table(rows, schema=SCHEMA))
    made.alter().add_column("more", "double").commit()
    made.append(pa.table({"id": [9], "name": ["x"], "dt": ["c"], "more": [1.5]}))
    made.delete("id = 3")
    made.delete("id = 100")
    return made


def planned(table, spark, least, where=None):
    """The plan of a Lake that has read nothing yet, and what its view reads through."""
    scan = Lake(table.uri.removeprefix("file://").rpartition("/d.db")[0]).table("d.t").scan(where=where)
    view = scan.view.planned(spark_engine.planning.OnExecutors(spark, scan.store, least))
    return list(replace(scan, view=view).plan()), view.reader


@pytest.mark.parametrize("where", [None, "dt = 'b'", "id > 4 and name is not null", "id = 1000"])
def test_plans_are_the_same_wherever_manifests_are_decoded(spark, table, where):
    here, _ = planned(table, spark, 10**9, where)
    there, reader = planned(table, spark, 1, where)
    assert there == here
    assert planned(table, spark, 5, where)[0] == here
    kept = [path for _, path in reader.cache._entries]
    assert where == "id = 1000" or any("manifest" in path or "-m0" in path for path in kept)


def test_rows_are_the_same_wherever_manifests_are_decoded(spark, table):
    fresh = Lake(table.uri.removeprefix("file://").rpartition("/d.db")[0]).table("d.t")
    scan = fresh.scan(["id", "more"], where="dt <> 'x'")
    found = scan.to_spark(spark, manifests_in_driver=0).toArrow().sort_by("id")
    assert found.to_pylist() == scan.to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize("number", [-1, True, "1", None])
def test_a_number_of_manifests_that_is_none_is_refused(spark, table, number):
    with pytest.raises(InvalidInput, match=r"manifests_in_driver=.*give a whole number"):
        table.scan().to_spark(spark, manifests_in_driver=number)


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_damaged_manifest_is_named_wherever_it_is_decoded(spark, table, damage):
    folder = Path(table.uri.removeprefix("file://"))
    there = [*folder.glob("manifest/manifest-*-0"), *folder.glob("metadata/*-m0.avro")]
    live = str(table.inspect.manifests().to_pylist())  # Deletes have put others in the place of some.
    path = min(each for each in there if each.name in live)
    before = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(before[: len(before) // 2])
    try:
        messages = []
        for least in (10**9, 1):
            with pytest.raises(CorruptTable if damage == "cut" else Exception, match=path.name) as raised:
                planned(table, spark, least)
            messages.append((type(raised.value), str(raised.value)))
    finally:
        path.write_bytes(before)
    assert messages[0] == messages[1]
