"""What a retention lets go of an Iceberg table, which files nobody names, and in which order a table goes."""

import json
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import CorruptTable, InvalidInput, NotFound
from lakeformat.maintenance import sweep
from lakeformat.model.operation import Append, Request
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Retention
from lakeformat.model.work import WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors

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


def expired(table: Table, retention: Retention, *without: str, **main: int) -> list[int]:
    """How old those are that go, if the snapshots were made at 100, 200 and 300, and did not say what is in `without`. `main`
    is what the branch says that it keeps."""
    base: Any = doors.view(table)
    made = [
        {key: value for key, value in snapshot.items() if key not in without} | {"timestamp-ms": 100 * number}
        for number, snapshot in enumerate(base.state.document["snapshots"], 1)
    ]
    refs = base.state.document["refs"]
    refs = {**refs, "main": {**refs["main"], **{key.replace("_", "-"): value for key, value in main.items()}}}
    state = replace(base.state, document={**base.state.document, "snapshots": made, "refs": refs})
    gone = replace(base, state=state).expiring.snapshots(retention, NOW).snapshots
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
        (Retention(1, retain_max=1, older_than_ms=50), [100, 200]),  # However young.
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
    ids = [snapshot["snapshot-id"] for snapshot in doors.view(table).state.document["snapshots"]]
    assert expired(table, Retention(1, retain_max=1, keep_from=ids[0]), *without) == []


@pytest.mark.parametrize(
    ("retention", "main", "gone"),
    [
        (Retention(1, older_than_ms=301), {"min_snapshots_to_keep": 2}, [100]),
        (Retention(3, older_than_ms=301), {"min_snapshots_to_keep": 1}, [100, 200]),
        (Retention(1, retain_max=1), {"min_snapshots_to_keep": 2}, [100]),
        (Retention(1, retain_max=2), {"min_snapshots_to_keep": 1}, [100]),
        (Retention(1, older_than_ms=301), {"max_snapshot_age_ms": NOW - 250}, [100]),
        (Retention(1, retain_max=1), {"max_snapshot_age_ms": NOW - 250}, [100]),
    ],
)
def test_what_a_branch_keeps_comes_before_what_is_asked(
    table: Table, retention: Retention, main: dict[str, int], gone: list[int]
):
    assert expired(table, retention, **main) == gone


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(1), [400]),
        (Retention(1, older_than_ms=400), [100, 200]),  # It is as old as itself.
        (Retention(1, older_than_ms=401), [100, 200, 400]),
        (Retention(3, older_than_ms=401), [400]),
        (Retention(1, retain_max=1), [100, 200, 400]),
    ],
)
def test_snapshots_that_no_branch_holds_expire_by_their_own_age(table: Table, retention: Retention, gone: list[int]):
    without_branch(table)
    assert expired(table, retention) == gone


@pytest.mark.parametrize("without", [(), ("sequence-number",)])
def test_a_snapshot_that_no_branch_holds_stays_if_it_is_later_than_what_is_read_yet(
    table: Table, without: tuple[str, ...]
):
    without_branch(table)
    ids = [snapshot["snapshot-id"] for snapshot in doors.view(table).state.document["snapshots"]]
    assert expired(table, Retention(1, retain_max=1, keep_from=ids[1]), *without) == [100]


def test_snapshots_that_are_named_expire_whatever_their_age(table: Table):
    ids = [snapshot["snapshot-id"] for snapshot in doors.view(table).state.document["snapshots"]]
    table.create_tag("kept", ids[0])
    for wrong, error, said in (
        (ids[0], InvalidInput, "tag 'kept'"),
        (ids[2], InvalidInput, "branch 'main'"),
        (7, NotFound, "no snapshot 7"),
    ):
        with pytest.raises(error, match=said):
            table.expire_snapshots(snapshot_ids=[ids[1], wrong])
    gone = table.expire_snapshots(snapshot_ids=[ids[1]])
    assert gone.snapshots == (ids[1],)
    assert [sum(len(wave) for wave in gone.waves)] == [
        1
    ]  # Its manifest list; the data files and manifests are the last one's too.
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert table.scan(snapshot_id=ids[0]).count() == 1
    with pytest.raises(NotFound):
        table.scan(snapshot_id=ids[1]).count()


def test_orphans_of_one_folder(table: Table):
    for folder in ("data", "data/dt=a", "metadata"):
        doors.store(table).write(
            f"{folder}/{uuid.uuid4()}.parquet" if folder != "metadata" else f"metadata/{uuid.uuid4()}-m0.avro", b""
        )
    later = NOW + 1
    assert len(sweep.sweep(doors.store(table), dialect, later, True)) == 3
    for below, count in (
        ("data", 2),
        (f"{doors.store(table).root}/data/dt=a/", 1),
        ("dat", 0),
        (doors.store(table).root, 3),
    ):
        assert len(sweep.sweep(doors.store(table), dialect, later, True, None, below)) == count
    for below in ("/elsewhere", "data/../..", f"{doors.store(table).root}x"):
        with pytest.raises(InvalidInput, match="not in the table's folder"):
            sweep.sweep(doors.store(table), dialect, later, False, None, below)


@pytest.mark.parametrize("asked", [{"min_files": 3}, {"min_files": 4, "full": True}])
def test_how_many_small_files_are_worth_a_compaction(table: Table, asked: dict[str, Any]):
    assert table.compact(**asked) is None  # Two of a, one of b.
    assert len(table.compact(min_files=2).partitions) == 1


def without_branch(table: Table) -> None:
    """A fourth snapshot, of a branch that was dropped."""
    table.create_branch("dropped")
    table.branch("dropped").append(pa.table({"id": pa.array([9], pa.int64()), "dt": ["a"]}))
    table.delete_branch("dropped")


def orphan(table: Table) -> str:
    path = f"data/dt=a/{uuid.uuid4()}.parquet"
    doors.store(table).write(path, b"x")
    return path


def without_list(table: Table, **more: Any) -> None:
    """The first snapshot's manifest list is not there, and the document says `more`."""
    state = doors.view(table).state
    first, *others = state.document["snapshots"]
    snapshots = [{**first, "manifest-list": f"memory://files/metadata/snap-1-0-{ID}.avro"}, *others]
    doors.store(table).write(state.location, json.dumps({**state.document, "snapshots": snapshots, **more}).encode())


def test_an_expiry_that_was_cut_short_goes_on(table: Table):
    """The first time it got as far as the manifest lists."""
    without_list(table)
    gone = doors.view(table).state.document["snapshots"][1]["manifest-list"]
    assert len(table.expire_snapshots(retain_last=1).snapshots) == 2
    assert not doors.store(table).exists(gone)
    assert table.scan().count() == 3


def test_files_that_nobody_names_are_orphans_once_they_are_old_enough(table: Table):
    path = orphan(table)
    doors.store(table).write("data/dt=a/mine.parquet", b"x")
    assert doors.view(table).expiring.orphans(NOW) == []
    assert [file.path for file in doors.view(table).expiring.orphans(NOW + 1)] == [path]


ID = "0190a5f2-7d3b-7c4e-8a9b-0123456789ab"
OURS = [
    f"data/.{ID}.tmp",
    f"metadata/.snap.{ID}.tmp",
    f"metadata/{ID}.metadata.json",  # Before it is renamed.
    f"metadata/snap-1-0-{ID}.avro",
    f"metadata/{ID}-m0.avro",
    *(f"data/dt=a/0-{ID}-1.{kind}" for kind in ("parquet", "orc", "avro", "puffin")),
]
OF_OTHERS = ["metadata/mine.avro", f"metadata/stats-{ID}.puffin", "data/mine.orc", f"data/{ID}.csv"]


def test_orphans_have_names_that_engines_give(table: Table):
    for path in (*OURS, *OF_OTHERS):
        doors.store(table).write(path, b"x")
    assert {file.path for file in doors.view(table).expiring.orphans(NOW + 1)} == set(OURS)
    assert set(OURS) <= {path for wave in dialect.everything(doors.store(table)).waves for path in wave}


def test_files_that_a_document_of_a_catalog_names_are_no_orphans(table: Table):
    """Such a document in the folder may be a catalog's newest; some of its snapshots may have expired."""
    table.append(pa.table({"id": pa.array([4], pa.int64()), "dt": ["a"]}))
    store, newest = doors.store(table), doors.view(table).state.location
    document = json.loads(store.read(newest))
    document["snapshots"][0]["manifest-list"] = f"memory://files/metadata/snap-1-0-{ID}.avro"
    store.write(f"metadata/00004-{ID}.metadata.json", json.dumps(document).encode())
    store.delete([newest])  # The folder's own newest names less.
    assert table.scan().count() == 3
    assert doors.view(table).expiring.orphans(NOW + 1) == []
    store.delete([f"metadata/00004-{ID}.metadata.json"])
    assert len(doors.view(table).expiring.orphans(NOW + 1)) == 3


def test_nothing_is_an_orphan_where_a_manifest_list_is_missing(table: Table):
    orphan(table)
    store, path = doors.store(table), "metadata/v4.metadata.json"
    document = json.loads(store.read(path))
    document["snapshots"][0]["manifest-list"] = "memory://files/metadata/snap-1-0-gone.avro"
    store.write(path, json.dumps(document).encode())
    with pytest.raises(CorruptTable, match=r"gone\.avro is missing.*orphans cannot be distinguished"):
        doors.view(table).expiring.orphans(NOW + 1)
    base = doors.view(table)
    for path in [file.path for file in store.list("metadata")]:
        store.delete([path])
    with pytest.raises(CorruptTable, match="has no metadata"):
        base.expiring.orphans(NOW + 1)


def test_a_table_goes_in_an_order_in_which_it_can_be_asked_for_again(table: Table):
    """Old documents first, what the newest reaches, and that last; folders after those inside them."""
    found = dialect.everything(doors.store(table))
    there = [file.path for file in doors.store(table).list("")]
    assert sorted(path for wave in found.waves for path in wave) == sorted(there), "each once"
    first, data, named, last = found.waves
    assert last == ("metadata/v4.metadata.json",)
    assert set(first) == {f"metadata/v{version}.metadata.json" for version in (1, 2, 3)}
    assert {path.split("/")[0] for path in data} == {"data"}
    assert all(path.endswith((".avro", "version-hint.text")) for path in named)
    assert len(found.folders) == len(set(found.folders)) == 4 - ("data" not in found.folders)
    assert all(not later.startswith(f"{f}/") for i, f in enumerate(found.folders) for later in found.folders[i:])


def add_file(table: Table, path: str) -> None:
    view, store = doors.view(table), doors.store(table)
    file = WrittenFile(path, ("a",), 1, 1)
    commit(
        store, dialect.head(store), dialect, Append(request=Request(id=path, absent_until=view.version), added=(file,))
    )


def test_a_table_goes_with_its_files_in_other_folders_even_if_a_manifest_list_is_missing(
    table: Table, caplog: pytest.LogCaptureFixture
):
    """Files outside its location stay, and those in the folders of other tables."""
    for path in ("other/foreign.parquet", *(f"{inner}/metadata/v1.metadata.json" for inner in ("flat", "deep"))):
        doors.store(table).write(path, b"x")
    for path in ("other/file.parquet", "other/deep/file.parquet", "flat/file.parquet", "deep/in/file.parquet"):
        doors.store(table).write(path, b"x")
        add_file(table, path)
    state = doors.view(table).state
    first = state.document["snapshots"][0]
    outside = {"snapshot-id": first["snapshot-id"], "statistics-path": "s3://elsewhere/stats.puffin"}
    without_list(table, statistics=[outside])
    found = dialect.everything(doors.store(table))
    there = {file.path for file in doors.store(table).list("")}
    stays = {path for path in there if path.startswith(("other/foreign", "flat/", "deep/"))}
    assert len(stays) == 5
    assert {path for wave in found.waves for path in wave} == there - stays
    assert found.folders.index("other/deep") < found.folders.index("other")
    assert "1 files outside the table stay, e.g. s3://elsewhere/stats.puffin" in caplog.text


def test_a_table_whose_metadata_cannot_be_read_goes_by_the_names_of_its_files(
    table: Table, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    doors.store(table).write("data/dt=a/mine.parquet", b"x")
    newest = "metadata/v4.metadata.json"
    doors.store(table).delete([newest])
    doors.store(table).write(newest, b"{")
    found = dialect.everything(doors.store(table))
    there = {file.path for file in doors.store(table).list("")}
    assert {path for wave in found.waves for path in wave} == there - {"data/dt=a/mine.parquet"}
    assert set(found.waves[-1]) == {path for path in there if path.startswith("metadata/v")} | {
        "metadata/version-hint.text"
    }
    assert "known by their names alone" in caplog.text
