"""Verification finds what storage has lost, cut or changed, and says nothing of undamaged tables."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.cli.app import run

ROWS = pa.table({"id": pa.array(range(2000), pa.int64()), "v": [f"value {i}" for i in range(2000)]})


@pytest.fixture(params=["paimon", "iceberg"])
def table(request, tmp_path):
    table = Lake(tmp_path / "wh").create_table("d.t", ROWS.schema, format=request.param)
    table.append(ROWS)
    table.append(ROWS)
    return table


def local(table, path):
    return Path(
        path.removeprefix("file://") if path.startswith("file:") else f"{table.uri.removeprefix('file://')}/{path}"
    )


def newest_file(table):
    (path,) = {path for task in table.scan().plan() for path in task.paths} - {
        path for task in table.scan(snapshot_id=table.snapshots()[0].id).plan() for path in task.paths
    }
    return local(table, path)


def kinds(table, deep=False):
    return [damage.kind for damage in table.verify(deep)]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize(
    "properties", [{}, {"file.format": "orc"}, {"file.format": "avro"}], ids=["parquet", "orc", "avro"]
)
def test_an_undamaged_table_has_no_damage(tmp_path, format, properties):
    names = {"file.format": "write.format.default"} if format == "iceberg" else {}
    properties = {names.get(key, key): value for key, value in properties.items()}
    table = Lake(tmp_path).create_table("d.t", ROWS.schema, format=format, properties=properties)
    assert kinds(table, deep=True) == []
    table.append(ROWS)
    table.append(ROWS)
    table.delete("id < 10")
    table.compact(full=True)
    table.delete("id = 77")
    table.overwrite(ROWS.slice(0, 5))
    table.expire_snapshots(retain_last=2)
    assert kinds(table, deep=True) == []


def test_keyed_and_marked_tables_have_no_damage(tmp_path):
    lake = Lake(tmp_path)
    keyed = lake.create_table("d.k", ROWS.schema, primary_key=["id"], properties={"bucket": "2"})
    marked = lake.create_table(
        "d.m", ROWS.schema, primary_key=["id"], properties={"bucket": "2", "deletion-vectors.enabled": "true"}
    )
    mor = lake.create_table(
        "d.i", ROWS.schema, format="iceberg", properties={"write.delete.mode": "merge-on-read", "format-version": "3"}
    )
    for table in (keyed, marked, mor):
        table.append(ROWS)
        table.delete("id % 3 = 0")
        if table is not mor:
            table.upsert(ROWS.slice(0, 100))
        assert kinds(table, deep=True) == []


def test_a_cut_file_has_another_size(table):
    file = newest_file(table)
    file.write_bytes(file.read_bytes()[:-100])
    assert kinds(table) == ["size"]
    assert kinds(table, deep=True) == ["size"]


def test_a_lost_file_is_missing(table):
    newest_file(table).unlink()
    assert kinds(table) == ["missing"]


def test_a_flipped_byte_shows_when_files_are_read(table):
    file = newest_file(table)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0x10
    file.write_bytes(data)
    assert kinds(table) == []
    assert kinds(table, deep=True) == ["content"]


def test_wrong_counts_of_manifests_and_snapshots_are_named(tmp_path):
    lake = Lake(tmp_path)
    paimon = lake.create_table("d.p", ROWS.schema)
    paimon.append(ROWS)
    snapshot = local(paimon, "snapshot/snapshot-1")
    document = json.loads(snapshot.read_text())
    snapshot.write_text(json.dumps(document | {"totalRecordCount": 7}))
    (damage,) = lake.table("d.p").verify()
    assert (damage.kind, "totalRecordCount is 7" in damage.text) == ("counts", True)

    iceberg = lake.create_table("d.i", ROWS.schema, format="iceberg")
    iceberg.append(ROWS)
    (metadata,) = local(iceberg, "metadata").glob("v2.metadata.json")
    document = json.loads(metadata.read_text())
    document["snapshots"][0]["summary"]["total-records"] = "7"
    metadata.write_text(json.dumps(document))
    (damage,) = lake.table("d.i").verify()
    assert (damage.kind, "total-records is 7" in damage.text) == ("counts", True)


def test_a_hole_among_the_snapshots_of_paimon_is_named_and_can_be_mended(tmp_path):
    table = Lake(tmp_path).create_table("d.t", ROWS.schema)
    for _ in range(5):
        table.append(ROWS.slice(0, 1))
    local(table, "snapshot/snapshot-3").unlink()
    assert [damage.text for damage in table.verify()] == ["snapshots 3 to 3 are missing between 2 and 4"]
    table.repair_earliest_snapshot(4)
    assert table.verify() == []


def test_doctor_names_damage_its_cure_and_the_snapshot_to_go_back_to(table, tmp_path, capsys):
    def doctor(*options):
        code = run(["--warehouse", str(tmp_path / "wh"), "--json", "doctor", *options])
        return code, [finding for finding in json.loads(capsys.readouterr().out) if finding["problem"] != "small files"]

    assert doctor("--deep") == (0, [])
    file, first = newest_file(table), table.snapshots()[0].id
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    code, (finding,) = doctor()
    assert (code, finding["problem"]) == (1, "broken")
    assert f"rollback d.t --snapshot {first}" in finding["cure"]
    data = bytearray(whole)
    data[len(data) // 3] ^= 0x10
    file.write_bytes(data)
    assert doctor() == (0, [])
    assert doctor("--deep")[0] == 1
    assert run(["--warehouse", str(tmp_path / "wh"), *finding["cure"].split(": ")[1].split()]) == 0
    capsys.readouterr()
    assert doctor("--deep") == (0, [])


def test_a_table_that_cannot_be_read_is_named_beside_the_others(table, tmp_path, capsys):
    Lake(tmp_path / "wh").create_table("d.u", ROWS.schema)
    for file in local(table, "manifest" if table.format == "paimon" else "metadata").iterdir():
        if file.suffix != ".json" and not file.name.startswith("version-hint"):
            file.write_bytes(b"no Avro")
    assert run(["--warehouse", str(tmp_path / "wh"), "--json", "doctor"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert (finding["table"], finding["problem"]) == ("d.t", "unreadable")
