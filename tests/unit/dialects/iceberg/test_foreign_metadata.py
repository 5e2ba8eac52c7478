"""Metadata as old and foreign writers leave it: what no read needs may be missing, wrong or not there."""

import json
import random
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakeformat import CorruptTable, InvalidInput, Lake, LakeError

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
DELETED = 2
TABLES = [(2, 0), (3, 1)]  # Versions and seeds: copied on write, and with delete files.


def rewrite(path, change):
    """Change the records of an Avro file in place; `change` returns False for those to leave out."""
    with open(path, "rb") as file:
        reader = fastavro.reader(file)
        metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
        schema, records = json.loads(reader.metadata["avro.schema"]), list(reader)
    with open(path, "wb") as file:
        kept = [record for record in records if change(record) is not False]
        fastavro.writer(file, schema, kept, codec="deflate", metadata=metadata)


def lists(folder):
    return sorted(folder.glob("metadata/snap-*.avro"))


def change_entries(folder, change):
    """Change the entries of all manifests, and their sizes in the lists."""
    for path in folder.glob("metadata/*-m*.avro"):
        rewrite(path, change)
    for path in lists(folder):
        rewrite(
            path,
            lambda meta: meta.update(
                manifest_length=Path(meta["manifest_path"].removeprefix("file://")).stat().st_size
            ),
        )


def change_document(folder, change):
    path = max(folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def rows(ids):
    return pa.table({"id": list(ids), "dt": [f"d{id % 3}" for id in ids]}, schema=SCHEMA)


def as_seen(lake):
    """What the table shows: rows and changes at each snapshot, and counts."""
    table = lake.table("d.t")
    ids = [snapshot.id for snapshot in table.snapshots()]

    def ordered(frame):
        return sorted(frame.to_pylist(), key=str)

    return {
        "rows": {id: ordered(table.scan(snapshot_id=id).to_arrow()) for id in ids},
        "counts": {id: table.scan(snapshot_id=id, where="dt = 'd1'").count() for id in ids},
        "changes": {pair: ordered(table.changes(*pair).to_arrow()) for pair in pairwise(ids)},
        "files": sorted(table.inspect.all_data_files()["path"].to_pylist()),
        "paths": sorted(table.inspect.files()["path"].to_pylist()),
    }


def some_table(path, seed, version):
    """A table after some commits, some of whose manifests have only deleted entries."""
    chance = random.Random(seed)
    mode = "merge-on-read" if seed % 2 else "copy-on-write"
    properties = {"format-version": str(version), "write.delete.mode": mode, "commit.manifest-merge.enabled": "false"}
    table = Lake(path).create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    table.append(rows([0, 3]))
    table.overwrite_partitions(rows([0]))
    start = 1
    for _ in range(2):
        table.append(rows(range(start, start := start + chance.randrange(1, 12))))
        if chance.random() < 0.6:
            table.delete(chance.choice([f"id = {start - 1}", f"dt = 'd{chance.randrange(3)}'", f"id < {start // 2}"]))
    table.delete("dt = 'd0'")
    table.append(rows([1000]))
    return path / "d.db/t"


def wrong_counts(folder, chance):
    """Other counts, as planners use them: none that says of a manifest with live files that there are none."""

    def change(meta):
        if meta["added_files_count"] + meta["existing_files_count"]:
            for name in ("added", "existing", "deleted"):
                meta[f"{name}_files_count"] = chance.randrange(1, 9)
                meta[f"{name}_rows_count"] = chance.randrange(1, 9)

    for path in lists(folder):
        rewrite(path, change)


def nothing_live_is_gone(folder):
    """The manifests that list no live file are not there."""
    for path in lists(folder):
        rewrite(
            path,
            lambda meta: (
                Path(meta["manifest_path"].removeprefix("file://")).unlink(missing_ok=True)
                if meta["added_files_count"] + meta["existing_files_count"] == 0
                else None
            ),
        )


def deleted_without_numbers(folder, chance):
    """As Iceberg Java of 2022 and 2023 wrote deleted entries."""

    def change(entry):
        if entry["status"] == DELETED and chance.random() < 0.7:
            entry |= {"sequence_number": None, "file_sequence_number": None}

    change_entries(folder, change)


def keys_of_somebody(folder, chance):
    """Key metadata without encryption: bytes of whatever the writer likes."""
    keys = (None, b"", b"\x01", b"\x01\x20" + bytes(16), b"b0fb0a52-any-key")
    change_entries(folder, lambda entry: entry["data_file"].update(key_metadata=chance.choice(keys)))
    for path in lists(folder):
        rewrite(path, lambda meta: meta.update(key_metadata=chance.choice(keys)))


@pytest.mark.parametrize(("version", "seed"), TABLES)
@pytest.mark.parametrize("change", [wrong_counts, deleted_without_numbers, keys_of_somebody])
def test_what_no_read_needs_may_be_missing_or_wrong(tmp_path, change, version, seed):
    folder = some_table(tmp_path, seed, version)
    before = as_seen(Lake(tmp_path))
    change(folder, random.Random(seed))
    assert as_seen(Lake(tmp_path)) == before
    table = Lake(tmp_path).table("d.t")
    table.append(rows([2000, 2001]))
    table.delete("id = 2000")
    expected = [*(row["id"] for row in list(before["rows"].values())[-1]), 2001]
    table.compact(full=True)
    table.rewrite_manifests()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(expected)


@pytest.mark.parametrize(("version", "seed"), TABLES)
def test_manifests_without_live_files_are_not_opened(tmp_path, version, seed):
    folder = some_table(tmp_path, seed, version)
    before = as_seen(Lake(tmp_path))
    count = len(list(folder.glob("metadata/*-m*.avro")))
    nothing_live_is_gone(folder)
    assert len(list(folder.glob("metadata/*-m*.avro"))) < count, "no manifest of deleted entries"
    table = Lake(tmp_path).table("d.t")
    for id, expected in before["rows"].items():
        assert sorted(table.scan(snapshot_id=id).to_arrow().to_pylist(), key=str) == expected
        assert table.scan(snapshot_id=id, where="dt = 'd1'").count() == before["counts"][id]
    assert sorted(table.inspect.files()["path"].to_pylist()) == before["paths"]
    assert sorted(table.inspect.all_data_files()["path"].to_pylist()) == before["files"]
    assert "manifest" in str(table.scan(where="dt = 'd1'").explain())
    table.delete("id = 1000")
    table.append(rows([2000]))
    table.rewrite_manifests()
    table.compact(full=True)
    expected = [row["id"] for row in list(before["rows"].values())[-1] if row["id"] != 1000]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted([*expected, 2000])


def test_live_entries_without_a_sequence_number_are_refused(tmp_path):
    folder = some_table(tmp_path, 0, 2)
    change_entries(folder, lambda entry: entry.update(status=0, sequence_number=None))
    with pytest.raises(CorruptTable, match="no sequence number"):
        Lake(tmp_path).table("d.t").scan().to_arrow()


def test_row_ids_after_an_upgrade_are_unique_whatever_the_list_counts(tmp_path):
    folder = some_table(tmp_path, 1, 2)
    wrong_counts(folder, random.Random(0))
    table = Lake(tmp_path).table("d.t")
    table.alter().set_properties({"format-version": "3"}).commit()
    table.append(rows(range(3000, 3020)))
    ids = table.scan(["_row_id"]).to_arrow()["_row_id"].to_pylist()
    assert len(set(ids)) == len(ids) > 20


# --- Documents of version 1 ---


def first_version(document, *left_out):
    """A document of version 1, with the older keys, without some of the newer ones."""
    current = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
    spec = next(s for s in document["partition-specs"] if s["spec-id"] == document["default-spec-id"])["fields"]
    document |= {"format-version": 1, "schema": current, "partition-spec": spec}
    for key in ("last-partition-id", "last-sequence-number", *left_out):
        document.pop(key, None)


LEFT_OUT = [
    ("current-schema-id",),
    ("current-schema-id", "schemas"),
    ("default-spec-id",),
    ("default-spec-id", "partition-specs"),
    ("sort-orders", "default-sort-order-id"),
    ("current-schema-id", "default-spec-id", "refs", "properties"),
]


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_documents_of_version_1_may_leave_out_what_version_2_must_have(tmp_path, left_out, with_ids):
    table = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=["bucket(2, id)", "dt"])
    table.append(rows(range(6)))
    table.alter().add_column("x", "int").commit()

    def change(document):
        first_version(document, *left_out)
        document["schema"] = {key: value for key, value in document["schema"].items() if with_ids or key != "schema-id"}
        for spec in (document["partition-spec"], *(s["fields"] for s in document.get("partition-specs", ()))):
            for field in spec:
                if not with_ids:
                    field.pop("field-id", None)

    change_document(tmp_path / "d.db/t", change)
    table = Lake(tmp_path).table("d.t")
    assert table.schema.names == ("id", "dt", "x")
    assert [(field.name, field.id) for field in table.schema.partitioning.fields] == [("id_bucket", 1000), ("dt", 1001)]
    assert table.scan(where="dt = 'd1' and id = 4").to_arrow().to_pylist() == [{"id": 4, "dt": "d1", "x": None}]
    table.alter().set_properties({"format-version": "2"}).commit()
    table.append(pa.table({"id": [9], "dt": ["d0"], "x": pa.array([1], pa.int32())}))
    assert table.scan(where="dt = 'd0'").count() == 3


def test_a_partition_field_that_became_void_keeps_its_values(tmp_path):
    """Version 1 has no other way to drop one; its type is then another."""
    table = Lake(tmp_path).create_table(
        "d.t", SCHEMA, format="iceberg", partition_by=["bucket(4, dt)", "truncate(2, id)"]
    )
    table.append(rows(range(9)))

    def change(document):
        fields = [{**field, "transform": "void"} for field in document["partition-specs"][0]["fields"]]
        document["partition-specs"].append({"spec-id": 1, "fields": fields})
        document["default-spec-id"] = 1

    change_document(tmp_path / "d.db/t", change)
    table = Lake(tmp_path).table("d.t")
    assert table.scan(where="dt = 'd1' and id > 1").to_arrow()["id"].to_pylist() == [4, 7]
    table.append(rows([10, 11]))
    table.delete("dt = 'd1'")
    table.rewrite_manifests()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 2, 3, 5, 6, 8, 11]
    table.compact(full=True)
    assert sorted(table.scan(where="dt = 'd2'").to_arrow()["id"].to_pylist()) == [2, 5, 8, 11]


# --- Numbers that no writer should make ---


def numbers_in(part, path=()):
    """Where the whole numbers of a document lie."""
    if isinstance(part, dict | list):
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from numbers_in(inner, (*path, key))
    elif isinstance(part, int) and not isinstance(part, bool):
        yield path


VERBS = {
    "scan": lambda table: table.scan(where="dt = 'd1'").to_arrow(),
    "append": lambda table: table.append(rows([7])),
    "delete": lambda table: table.delete("id = 4"),
    "add_column": lambda table: table.alter().add_column("n", "row<a int>").commit(),
    "tag": lambda table: table.create_tag("now"),
    "inspect": lambda table: (table.inspect.files(), table.inspect.history(), table.snapshots()),
}


@pytest.mark.parametrize("version", [2, 3])
def test_extreme_numbers_in_a_document_raise_errors_of_the_library(tmp_path, version):
    table = Lake(tmp_path).create_table(
        "d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties={"format-version": str(version)}
    )
    table.append(rows(range(5)))
    path = tmp_path / "d.db/t/metadata/v2.metadata.json"
    text = path.read_text()
    chance = random.Random(version)
    counters = [("last-sequence-number",), ("last-column-id",), ("last-partition-id",), ("next-row-id",)]
    others = [path for path in numbers_in(json.loads(text)) if path not in counters]
    for keys in [*counters[: 2 + version - 1], *chance.sample(others, 6)]:
        for value in (2**31, 2**63 - 1, -(2**63)):
            changed = document = json.loads(text)
            for key in keys[:-1]:
                document = document[key]
            document[keys[-1]] = value
            for verb in VERBS.values():
                for later in path.parent.glob("v[3-9].metadata.json"):
                    later.unlink()
                path.write_text(json.dumps(changed))
                with suppress(LakeError):
                    verb(Lake(tmp_path).table("d.t"))


@pytest.mark.parametrize(
    "type", ["decimal(39,2)", "decimal(0,0)", "decimal(5,6)", "decimal(5,99999999999)", "fixed[2147483648]"]
)
def test_types_out_of_range_are_named(tmp_path, type):
    Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg")
    change_document(tmp_path / "d.db/t", lambda document: document["schemas"][0]["fields"][1].update(type=type))
    with pytest.raises(CorruptTable, match=f"'dt'.*{re.escape(type)}"):
        Lake(tmp_path).table("d.t").scan()


@pytest.mark.parametrize("value", ["0", "-1", str(2**63), "many"])
@pytest.mark.parametrize(
    "key", ["commit.manifest.target-size-bytes", "write.target-file-size-bytes", "read.split.target-size"]
)
def test_sizes_that_are_none_are_refused(tmp_path, key, value):
    with pytest.raises(InvalidInput, match=key):
        Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", properties={key: value})
    table = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg")
    change_document(tmp_path / "d.db/t", lambda document: document["properties"].update({key: value}))
    for verb in VERBS.values():
        with suppress(LakeError):
            verb(table)
