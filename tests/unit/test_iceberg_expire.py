"""What a retention lets go of an Iceberg table, which files nobody names, and in which order a table goes."""

import json
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import CorruptTable
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Retention
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create

SCHEMA = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))), partitioning=identity("dt")
)
NOW = 1000
dialect = Iceberg()


@pytest.fixture
def table() -> Table:
    """Three snapshots."""
    made = Table("d.t", MemoryFiles(now_ms=lambda: NOW), dialect)
    create(made, SCHEMA)
    for id in range(3):
        made.append(pa.table({"id": pa.array([id], pa.int64()), "dt": ["ab"[id % 2]]}))
    return made


def expired(table: Table, retention: Retention, *without: str) -> list[int]:
    """How old those are that go, if the snapshots were made at 100, 200 and 300, and did not say what is in `without`."""
    base: Any = table._view()
    made = [
        {key: value for key, value in snapshot.items() if key not in without} | {"timestamp-ms": 100 * number}
        for number, snapshot in enumerate(base.state.document["snapshots"], 1)
    ]
    state = replace(base.state, document={**base.state.document, "snapshots": made})
    gone = replace(base, state=state).expiry(retention, NOW).snapshots
    return [s["timestamp-ms"] for s in made if s["snapshot-id"] in gone]


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(1, older_than_ms=200), []),  # A snapshot is as old as the one after it.
        (Retention(1, older_than_ms=201), [100]),
        (Retention(1, older_than_ms=301), [100, 200]),
        (Retention(1, older_than_ms=999), [100, 200]),
        (Retention(2, older_than_ms=999), [100]),
        (Retention(3, older_than_ms=999), []),
        (Retention(1, retain_max=1), [100, 200]),
        (Retention(1, retain_max=2), [100]),
        (Retention(1, retain_max=2, older_than_ms=301), [100, 200]),
        (Retention(1, retain_max=1, limit=1), [100]),
        (Retention(1, retain_max=1, limit=0), []),
        (Retention(0, retain_max=0), [100, 200]),
    ],
)
def test_what_a_retention_lets_go(table: Table, retention: Retention, gone: list[int]):
    assert expired(table, retention) == gone


@pytest.mark.parametrize("without", [(), ("sequence-number",)])
def test_what_is_read_yet_and_all_later_ones_stay(table: Table, without: tuple[str, ...]):
    """Snapshots of version 1 have no sequence number."""
    ids = [each["snapshot-id"] for each in table._view().state.document["snapshots"]]
    assert expired(table, Retention(1, retain_max=1, keep_from=ids[0]), *without) == []


def orphan(table: Table) -> str:
    path = f"data/dt=a/{uuid.uuid4()}.parquet"
    table._store.write(path, b"x")
    return path


def test_files_that_nobody_names_are_orphans_once_they_are_old_enough(table: Table):
    path = orphan(table)
    table._store.write("data/dt=a/mine.parquet", b"x")
    assert table._view().orphans(NOW) == []
    assert [each.path for each in table._view().orphans(NOW + 1)] == [path]


def test_nothing_is_an_orphan_where_a_manifest_list_is_missing(table: Table):
    orphan(table)
    store, path = table._store, "metadata/v4.metadata.json"
    document = json.loads(store.read(path))
    document["snapshots"][0]["manifest-list"] = "memory://files/metadata/snap-1-0-gone.avro"
    store.write(path, json.dumps(document).encode())
    with pytest.raises(CorruptTable, match=r"gone\.avro is missing.*orphans cannot be told"):
        table._view().orphans(NOW + 1)
    base = table._view()
    for path in [each.path for each in store.list("metadata")]:
        store.delete([path])
    with pytest.raises(CorruptTable, match="has no metadata"):
        base.orphans(NOW + 1)


def test_a_table_goes_in_an_order_in_which_it_can_be_asked_for_again(table: Table):
    """Old documents first, what the newest reaches, and that last; folders after those inside them."""
    found = dialect.everything(table._store)
    there = [each.path for each in table._store.list("")]
    assert sorted(path for wave in found.waves for path in wave) == sorted(there), "each once"
    first, data, named, last = found.waves
    assert last == ("metadata/v4.metadata.json",)
    assert set(first) == {f"metadata/v{version}.metadata.json" for version in (1, 2, 3)}
    assert {path.split("/")[0] for path in data} == {"data"}
    assert all(path.endswith((".avro", "version-hint.text")) for path in named)
    assert len(found.folders) == len(set(found.folders)) == 4 - ("data" not in found.folders)
    assert all(not later.startswith(f"{f}/") for i, f in enumerate(found.folders) for later in found.folders[i:])
