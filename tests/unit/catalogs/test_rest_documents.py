"""What is said to a REST catalog: the updates, applied by their own words, make of each document the next one."""

import copy
import datetime
import itertools
import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, StoreError
from lakeformat.catalogs import documents
from tests.unit.rest_server import applied


@pytest.fixture
def history(tmp_path):
    """The documents of a table on which every verb was tried."""
    schema = pa.schema([("id", pa.int64()), ("dt", pa.string())])
    t = Lake(tmp_path).create_table("d.t", schema, format="iceberg", partition_by=["dt"], properties={"k": "v"})
    for i in range(3):
        t.append(pa.table({"id": [i, 10 + i], "dt": ["a", "b"]}))
    t.create_tag("kept", snapshot_id=t.snapshots()[0].id, retain=datetime.timedelta(days=1))
    t.alter().add_column("x", "int").set_properties({"k": "w", "l": "m"}).commit()
    t.alter().remove_properties("l").rename_column("x", "y").commit()
    t.overwrite_partitions(pa.table({"id": [5], "dt": ["a"], "y": [1]}))
    t.delete("id > 10")
    t.compact(full=True)
    t.expire_snapshots(retain_last=2)
    t.rollback_to(tag="kept")
    t.delete_tag("kept")
    t.truncate()
    paths = Path(t.uri.removeprefix("file://")).glob("metadata/v*.metadata.json")
    return [json.loads(p.read_text()) for p in sorted(paths, key=lambda p: int(p.name[1:].split(".")[0]))]


def shown(document):
    """What an update can change, but for what the server says itself."""
    kept = {k: v for k, v in document.items() if k not in ("last-updated-ms", "metadata-log", "snapshot-log")}
    kept["properties"] = {k: v for k, v in document["properties"].items() if k != documents.OPERATION_PROPERTY}
    kept.pop(documents.OPERATION)
    kept.pop("lakeformat-follows", None)
    return kept


def test_updates_make_the_next_document(history):
    assert len(history) > 12
    for base, new in itertools.pairwise(history):
        updates = documents.updates(base, new)
        assert updates, new
        made = applied(base, updates)
        assert shown(made) == shown({**new})
        says = new[documents.OPERATION] in json.dumps(updates)
        assert says, "the operation is found again by its id"
        required = documents.requirements(base, new)
        assert {"type": "assert-table-uuid", "uuid": new["table-uuid"]} in required
        refs = {r["ref"]: r["snapshot-id"] for r in required if r["type"] == "assert-ref-snapshot-id"}
        assert refs == {
            name: base["refs"].get(name, {}).get("snapshot-id") for name in {"main", *base["refs"], *new["refs"]}
        }


def test_a_specification_and_an_order_that_are_new(history):
    base, new = history[0], copy.deepcopy(history[0])
    spec = {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1001, "name": "b", "transform": "bucket[4]"}]}
    order = {
        "order-id": 1,
        "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
    }
    new |= {"partition-specs": [*base["partition-specs"], spec], "default-spec-id": 1, "last-partition-id": 1001}
    new |= {"sort-orders": [*base["sort-orders"], order], "default-sort-order-id": 1, "format-version": 3}
    assert [u for u in documents.updates(base, new) if "propert" not in u["action"]] == [
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": 1},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": 1},
    ]
    made = documents.creation("t", new)
    assert (made["partition-spec"], made["write-order"], made["properties"]["format-version"]) == (spec, order, "3")
    assert made["properties"][documents.OPERATION_PROPERTY] == base[documents.OPERATION]


def test_a_server_that_is_not_there(tmp_path):
    lake = Lake(tmp_path, catalog="http://127.0.0.1:1", catalog_options={"token": "secret"})
    for ask in (lake.tables, lambda: lake.table("a.t"), lambda: lake.exists("a.t")):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1.*does not answer") as raised:
            ask()
        assert "secret" not in f"{raised.value} {lake._catalog!r}"
    with pytest.raises(InvalidInput, match="'tokens'"):
        Lake(tmp_path, catalog="https://example.test", catalog_options={"tokens": "x"})
