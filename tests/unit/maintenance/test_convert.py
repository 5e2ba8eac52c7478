"""A table of one format becomes one of the other where it lies, whatever happens on the way."""

import collections
import datetime
import os
import uuid
from contextlib import suppress

import pyarrow as pa
import pytest

from lakeformat import Lake, NotFound, UnsupportedFeature
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.errors import LakeError
from lakeformat.lake import _declared
from lakeformat.maintenance import convert
from lakeformat.storage import fence
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.simulation.failing import NthCallFails, faults, holding
from tests.simulation.turns import FaultyStore, Turns
from tests.unit.maintenance.test_mirror import AT_ONCE, VECTORS, data, keyed, made, seen

OFF = {"metadata.iceberg.storage": "disabled"}


def opened(store):
    """The table that is there, of the format that it is."""
    format = next(known for known in (Paimon(), Iceberg()) if known.is_table(store))
    return Table("t", store, format)


def opened_as(store, format):
    return Table("t", store, format)


def data_files(table):
    """Where the live data and delete files lie, of any snapshot."""
    return set(table.inspect.all_files()["path"].to_pylist())


def parquet(store):
    return {file.path for file in store.list("") if file.path.endswith(".parquet")}


def leftovers(store, format):
    """But for the mark and the fence."""
    under_way = fence.conversion(store)
    assert under_way.stood
    assert under_way.is_done(store)
    known = {fence.MARK, under_way.path}
    return [f.path for folder in format.metadata_folders for f in store.list(folder) if f.path not in known]


def plain(table):
    table.append(data(1, 2, 3))
    table.append(data(4, dt="b/c"))


def of_keys(table):
    table.upsert(data(1, 2, 3))
    table.upsert(data(2, v="y"))
    table.delete("id = 3")


def with_deletes(table):
    plain(table)
    table.delete("id = 2")


def evolved(table):
    plain(table)
    table.alter().add_column("more", "int").rename_column("v", "w").drop_column("l").commit()
    table.append(pa.table({"id": [8], "w": ["y"], "dt": ["a"], "more": pa.array([1], pa.int32())}))


class Interrupted:
    """A store in which others act once, just before the table is switched."""

    def __init__(self, store, act):
        self._store, self._act = store, act

    def __getattr__(self, name):
        def call(*arguments):
            if name == "write" and arguments[0] == fence.MARK and self._act:
                act, self._act = self._act, None
                act()
            return getattr(self._store, name)(*arguments)

        return getattr(self._store, name) if name == "root" else call


def nothing(table):
    pass


SMALL_VECTORS = {"deletion-vectors.enabled": "true"}
TABLES = {
    "plain": (plain, made, OFF),
    "mirrored": (plain, made, {}),
    "evolved": (evolved, made, OFF),
    "empty": (nothing, made, OFF),
    "orc": (plain, made, {**OFF, "file.format": "orc"}),
    "deleted": (with_deletes, made, {**OFF, **VECTORS}),
    "deleted, 32 bits": (with_deletes, made, {**OFF, **SMALL_VECTORS}),
    "keyed": (of_keys, keyed, OFF),
    "keyed, vectors": (of_keys, keyed, {**OFF, **SMALL_VECTORS}),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", TABLES)
def test_a_paimon_table_becomes_an_iceberg_table(kind):
    fill, make, properties = TABLES[kind]
    table = make(**properties)
    fill(table)
    store, rows, files = doors.store(table), seen(table), parquet(doors.store(table))
    convert.convert(store, Paimon(), Iceberg(), history=False)
    now = opened(store)
    assert now.format == "iceberg"
    assert seen(now) == rows
    assert not leftovers(store, Paimon())
    assert now.schema.primary_key == (("id", "dt") if make is keyed else ())
    assert not any(key.startswith(("gc.", "metadata.iceberg")) for key in now.properties)
    if kind in ("plain", "mirrored", "evolved"):
        assert parquet(store) == files
    assert not any(any(task.deletes) for task in now.scan().plan())
    gone = now.scan(where="id = 1").count()
    now.delete("id = 1")
    now.append(now.scan(where="id = 4").to_arrow())
    now.remove_orphan_files(AT_ONCE)
    now.compact(full=True)
    assert now.scan().count() == len(rows) - gone + now.scan(where="id = 4").count() // 2


ICEBERG = {
    "plain": {},
    "hidden": {"partition_by": ["dt", "days(ts)", "bucket(4, id)"]},
    "v3": {"properties": {"format-version": "3"}},
    "orc": {"properties": {"write.format.default": "orc"}},
    "gzip": {"properties": {"write.metadata.compression-codec": "gzip"}},
}
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "v": ["x", None, "z", "w"],
        "dt": ["a", "a", "b/c", None],
        "ts": pa.array([0, 10**15, 5, None], pa.timestamp("us")),
        "l": [[1, None], [], None, [3]],
        "n": pa.array([1, 2, None, 4], pa.decimal128(12, 2)),
        "st": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}],
        "m": pa.array([[("k", 1)], [], None, [("j", None)]], pa.map_(pa.string(), pa.int32())),
        "b": [b"x", b"", None, b"y"],
    }
)


def changed(table):
    """The files of each schema of the table."""
    table.alter().add_column("more", "int").rename_column("v", "w").drop_column("l").commit()
    table.append(pa.table({"id": [7], "w": ["7"], "dt": ["a"], "ts": NULL, "more": pa.array([2], pa.int32())}))
    table.alter().change_type("more", "bigint").commit()
    table.append(pa.table({"id": [9], "w": ["9"], "dt": ["a"], "ts": NULL, "more": pa.array([2**40])}))


NULL = pa.nulls(1, pa.timestamp("us"))


def iceberg(store=None, *, partition_by=("dt",), properties=None):
    table = Table("t", store or MemoryFiles(), Iceberg())
    create(table, _declared(ROWS.schema, tuple(partition_by), (), properties or {}, None, ()))
    table.append(ROWS)
    table.append(ROWS.slice(0, 2))
    return table


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", ICEBERG)
def test_an_iceberg_table_becomes_a_paimon_table(kind):
    table = iceberg(**ICEBERG[kind])
    table.delete("id = 2")
    table.alter().add_column("more", "int").commit()
    store, before = doors.store(table), parquet(doors.store(table))
    table.append(
        pa.table(
            {"id": [8], "more": pa.array([1], pa.int32()), "dt": ["a"], "ts": pa.nulls(1, ROWS.schema.field("ts").type)}
        )
    )
    rows, stay = seen(table), parquet(store) - before
    whole = {path for task in table.scan().plan() if not any(task.deletes) for path in task.paths}
    convert.convert(store, Iceberg(), Paimon(), history=False)
    now = opened(store)
    assert now.format == "paimon"
    assert seen(now) == rows
    assert not leftovers(store, Iceberg())
    assert now.schema.partitioning.names == ("dt",)
    there = {path.removeprefix(f"{store.root}/") for task in now.scan().plan() for path in task.paths}
    assert stay <= there
    assert (len(stay) == 1) is (kind != "orc")
    assert kind == "orc" or {path.removeprefix(f"{store.root}/") for path in whole} <= there
    assert len(now.scan(where="dt = 'b/c'").plan()) == 1
    assert now.scan(where="id > 7").count() == 1
    assert {f.path for f in store.list("data")} <= there  # Files of older columns and with deletes were written anew.
    now.remove_orphan_files(AT_ONCE)
    assert seen(now) == rows
    now.delete("id = 1")
    now.compact(full=True)
    now.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    assert {f.path for f in store.list("data")} <= {
        path.removeprefix(f"{store.root}/") for task in now.scan().plan() for path in task.paths
    }
    now.alter().rename_column("v", "w").drop_column("l").commit()
    assert now.scan().count() == len(rows) - len([row for row in rows if '"id": 1,' in row])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whatever_call_fails_an_iceberg_table_is_whole(after):
    table = iceberg()
    table.delete("id = 2")
    rows = seen(table)
    files = {f.path: doors.store(table).read(f.path) for f in doors.store(table).list("")}
    counting = NthCallFails(holding(files), 0, after)
    convert.convert(counting, Iceberg(), Paimon(), history=False)
    for n, call in faults(counting.made, after):
        store = holding(files)
        failing = NthCallFails(store, n, after, kind=call)
        with suppress(LakeError):
            convert.convert(failing, Iceberg(), Paimon(), history=False)
        assert seen(opened(store)) == rows, failing.failed
        if opened(store).format == "paimon":
            convert.finish(store, Iceberg(), Paimon())
        else:
            convert.convert(store, Iceberg(), Paimon(), history=False)
        assert opened(store).format == "paimon"
        assert seen(opened(store)) == rows, failing.failed
        assert not leftovers(store, Iceberg()), failing.failed


def test_files_of_each_schema_stay_where_they_are():
    table = iceberg()
    changed(table)
    store, rows = doors.store(table), seen(table)
    files = parquet(store)
    convert.convert(store, Iceberg(), Paimon(), history=False)
    now = opened(store)
    assert seen(now) == rows
    assert parquet(store) == files
    assert [f.name for f in now.schema.fields] == ["id", "w", "dt", "ts", "n", "st", "m", "b", "more"]
    assert [now.scan(where=w).count() for w in ("more > 1000", "more = 2", "w = 'z'", "more is null")] == [1, 1, 1, 6]
    now.append(pa.table({"id": [10], "w": ["10"], "dt": ["a"], "more": [1]}))
    now.compact(full=True)
    assert now.scan().count() == len(rows) + 1


def test_files_that_paimons_engines_could_not_read_are_written_anew():
    kinds = {"u": pa.array([b"0" * 16], pa.uuid()), "f": pa.array([b"1" * 16], pa.binary(16)),
             "ns": pa.array([1], pa.timestamp("ns")), "t": pa.array([1000], pa.time64("us"))}  # fmt: skip
    for name, values in kinds.items():
        store = MemoryFiles()
        table, data = Table("t", store, Iceberg()), pa.table({"id": [1], name: values})
        create(table, _declared(data.schema, (), (), {"format-version": "3"}, None, ()))
        table.append(data)
        files = parquet(store)
        convert.convert(store, Iceberg(), Paimon(), history=False)
        assert opened(store).scan().count() == 1
        assert not files & parquet(store), name


def test_a_column_with_an_initial_default_is_written():
    table = iceberg(properties={"format-version": "3"})
    table.alter().add_column("more", "int", default="5").commit()
    rows = seen(table)
    convert.convert(doors.store(table), Iceberg(), Paimon(), history=False)
    assert seen(opened(doors.store(table))) == rows
    assert opened(doors.store(table)).scan(where="more = 5").count() == 6


@pytest.mark.parametrize("to", ["paimon", "iceberg"])
@pytest.mark.parametrize("fill", [nothing, plain, with_deletes, evolved])
def test_a_rehearsed_conversion_names_the_files_of_the_real_one_and_changes_none(tmp_path, fill, to):
    lake = Lake(tmp_path)
    properties = VECTORS | OFF if to == "iceberg" else {}
    format = {"iceberg": "paimon", "paimon": "iceberg"}[to]
    fill(lake.create_table("db.t", data(1).schema, format=format, partition_by=["dt"], properties=properties))
    table = lake.table("db.t")
    rows, before = seen(table), {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    twin, record = lake.rehearse_convert("db.t", to)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (twin.format, seen(twin)) == (to, rows)
    lake.convert("db.t", to)
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert set(record.deleted) == {f"file://{path}" for path in before.keys() - after}
    assert kinds(record.written) == kinds(f"file://{path}" for path in after - before.keys())


def kinds(locations):
    """How many files there are of each folder and ending; names are new each time."""
    return collections.Counter((os.path.dirname(path), os.path.splitext(path)[1]) for path in locations)


def test_a_converted_table_keeps_its_folder(tmp_path):
    lake = Lake(tmp_path)
    lake.create_table("db.t", ROWS.schema, format="iceberg").append(ROWS)
    table = lake.convert("db.t", to="paimon")
    with pytest.raises(UnsupportedFeature, match="absolute paths"):
        lake.rename_table("db.t", "db.u")
    assert seen(lake.table("db.t")) == seen(table)


def test_a_converted_table_can_be_dropped_and_made_again(tmp_path):
    lake = Lake(tmp_path)
    for format, to in (("iceberg", "paimon"), ("paimon", "iceberg")):
        lake.create_table("db.t", ROWS.schema, format=format).append(ROWS)
        lake.convert("db.t", to=to)
        lake.drop_table("db.t")
        assert not lake.exists("db.t")
        assert not [path for path in tmp_path.rglob("*") if path.is_file()], to
        lake.create_table("db.t", ROWS.schema, format=format)
        assert lake.convert("db.t", to=to).scan().count() == 0
        lake.table("db.t").append(ROWS)
        lake.drop_table("db.t")


def test_metadata_beside_the_warehouse_goes_with_the_conversion(tmp_path):
    lake = Lake(tmp_path)
    table = lake.create_table("db.t", ROWS.schema, properties={"metadata.iceberg.storage": "hadoop-catalog"})
    table.append(ROWS)
    assert list((tmp_path / "iceberg").rglob("*.avro"))
    assert seen(lake.convert("db.t", to="iceberg")) == seen(Table("t", doors.store(table), Iceberg()))
    assert not list((tmp_path / "iceberg").rglob("*.*"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"primary_key": ["id"]}, "with a primary key"),
        ({"properties": {"gc.enabled": "false"}}, "gc.enabled=false"),
        ({"history": True}, "history=True"),
        ({"branch": True}, "branch 'b'"),
    ],
)
def test_what_has_no_place_in_paimon_is_refused_and_nothing_changes(tmp_path, asked, said):
    lake, history, branch = Lake(tmp_path), asked.pop("history", False), asked.pop("branch", False)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = lake.create_table("db.t", schema, format="iceberg", **asked)
    table.append(pa.table({"id": [1], "v": ["a"]}, schema=schema))
    if branch:
        table.create_branch("b")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedFeature, match=said):
        lake.convert("db.t", to="paimon", history=history)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_converted_table_can_keep_metadata_of_its_former_format():
    table = iceberg()
    convert.convert(doors.store(table), Iceberg(), Paimon(), history=False)
    now = opened(doors.store(table))
    now.alter().set_properties({"metadata.iceberg.storage": "table-location"}).commit()
    now.append(ROWS)
    assert Table("i", doors.store(now), Iceberg()).scan().count() == now.scan().count() == 10


def test_there_and_back_no_data_file_moves():
    table = iceberg()
    rows, files = seen(table), parquet(doors.store(table))
    convert.convert(doors.store(table), Iceberg(), Paimon(), history=False)
    convert.convert(doors.store(table), Paimon(), Iceberg(), history=False)
    assert seen(opened(doors.store(table))) == rows
    assert parquet(doors.store(table)) == files


@pytest.mark.parametrize("properties", [VECTORS, SMALL_VECTORS], ids=["64 bits", "32 bits"])
def test_only_files_with_deleted_rows_are_written_anew(properties):
    table = made(**OFF, **properties)
    table.append(data(1, 2))
    table.append(data(3))
    untouched = files_of(table, "id = 3")
    table.delete("id = 2")
    convert.convert(doors.store(table), Paimon(), Iceberg(), history=False)
    now = opened(doors.store(table))
    assert files_of(now, "id = 3") == untouched
    assert now.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 3]


def files_of(table, where):
    return {path.rpartition("/")[2] for task in table.scan(where=where).plan() for path in task.paths}


def test_a_commit_to_an_iceberg_table_on_the_way_is_converted_too():
    table = iceberg()
    store = Interrupted(doors.store(table), lambda: table.append(ROWS))
    convert.convert(store, Iceberg(), Paimon(), history=False)
    assert len(seen(opened(doors.store(table)))) == 10
    with pytest.raises(NotFound):
        table.append(ROWS)


@pytest.mark.parametrize("to", ["iceberg", "paimon"])
@pytest.mark.parametrize("seed", range(2))
def test_rows_of_racing_writers_are_there_or_were_refused(to, seed):
    table = made(**OFF) if to == "iceberg" else iceberg()
    plain(table) if to == "iceberg" else None
    store, rows = doors.store(table), data if to == "iceberg" else lambda i: ROWS.slice(0, 1).set_column(0, "id", [[i]])
    former, after = (Paimon(), Iceberg()) if to == "iceberg" else (Iceberg(), Paimon())
    turns, there = Turns(seed, pause_ratio=0.02), {row["id"] for row in table.scan(["id"]).to_arrow().to_pylist()}

    def write(own, first):
        for i in range(first, first + 3):
            with suppress(LakeError):
                own.append(rows(i))
                there.add(i)

    def switch(own):
        with suppress(LakeError):
            convert.convert(own, former, after, history=False)

    writer, converter = (FaultyStore(store, turns, actor, 0.0, 0.0) for actor in ("writer", "converter"))
    turns.race(
        {"writer": lambda: write(Table("t", writer, type(former)()), 100), "converter": lambda: switch(converter)}
    )
    now = opened(store)
    if now.format == former.name:
        convert.convert(store, former, after, history=False)
        now = opened(store)
    assert now.format == to
    assert set(now.scan(["id"]).to_arrow()["id"].to_pylist()) == there, seed


def test_history_stays_where_it_is_asked_for():
    table = made(**OFF)
    plain(table)
    table.create_tag("kept", snapshot_id=1)
    table.alter().rename_column("v", "w").commit()
    table.delete("id = 2")
    rows = {s.id: seen(table, snapshot_id=s.id) for s in table.snapshots()}
    convert.convert(doors.store(table), Paimon(), Iceberg(), history=True)
    now = opened(doors.store(table))
    assert [s.id for s in now.snapshots()] == list(rows)
    assert {id: len(seen(now, snapshot_id=id)) for id in rows} == {id: len(each) for id, each in rows.items()}
    assert seen(now, tag="kept") == rows[1]


def test_a_writer_of_the_former_format_fails():
    table = made(**OFF)
    plain(table)
    files = {f.path: doors.store(table).read(f.path) for f in doors.store(table).list("")}
    convert.convert(doors.store(table), Paimon(), Iceberg(), history=False)
    with pytest.raises(NotFound):
        table.append(data(9))
    # Also one that looks while the conversion is being finished.
    store = holding(files)
    with suppress(LakeError):
        convert.convert(
            NthCallFails(store, 1, True, kind="create snapshot/snapshot-*"), Paimon(), Iceberg(), history=False
        )
    rows = seen(opened(store))
    late = Table("t", store, Paimon())
    with pytest.raises(NotFound, match="converted to another format"):
        late.append(data(9))
    assert seen(opened(store)) == rows


def test_what_has_no_place_in_iceberg_is_refused_and_nothing_changes():
    table = made(**OFF)
    plain(table)
    table.create_branch("b")
    before = {f.path for f in doors.store(table).list("")}
    with pytest.raises(UnsupportedFeature, match="branch 'b'"):
        convert.convert(doors.store(table), Paimon(), Iceberg(), history=False)
    assert {f.path for f in doors.store(table).list("")} == before


def test_rows_that_no_reader_sees_yet_are_not_lost():
    table = keyed(**OFF, bucket="-2")
    table.upsert(data(1, 2))
    with pytest.raises(UnsupportedFeature, match="postponed"):
        convert.convert(doors.store(table), Paimon(), Iceberg(), history=False)
    table.compact()
    convert.convert(doors.store(table), Paimon(), Iceberg(), history=False)
    assert opened(doors.store(table)).scan().count() == 2


@pytest.mark.parametrize(("kind", "after"), [("plain", False), ("plain", True), ("keyed, vectors", False)])
def test_whatever_call_fails_there_is_a_whole_table(kind, after):
    fill, make, properties = TABLES[kind]
    table = make(**properties)
    fill(table)
    rows = seen(table)
    files = {f.path: doors.store(table).read(f.path) for f in doors.store(table).list("")}
    counting = NthCallFails(holding(files), 0, after)
    convert.convert(counting, Paimon(), Iceberg(), history=False)
    for n, call in faults(counting.made, after):
        store = holding(files)
        failing = NthCallFails(store, n, after, kind=call)
        with suppress(LakeError):
            convert.convert(failing, Paimon(), Iceberg(), history=False)
        there = opened(store)
        assert seen(there) == rows, failing.failed
        if there.format == "iceberg":
            convert.finish(store, Paimon(), Iceberg())
        else:
            convert.convert(store, Paimon(), Iceberg(), history=False)
        assert seen(opened(store)) == rows, failing.failed
        assert opened(store).format == "iceberg"
        assert not leftovers(store, Paimon()), failing.failed


def test_a_commit_of_others_on_the_way_is_converted_too():
    table = made(**OFF)
    plain(table)
    store = Interrupted(doors.store(table), lambda: table.append(data(7)))
    convert.convert(store, Paimon(), Iceberg(), history=False)
    assert len(seen(opened(doors.store(table)))) == 5


def test_a_lake_converts_by_name(tmp_path):
    lake = Lake(tmp_path)
    table = lake.create_table("db.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    now = lake.convert("db.t", to="iceberg")
    assert now.format == "iceberg"
    assert lake.convert("db.t", to="iceberg").scan().count() == 2
    assert lake.sql("SELECT sum(id) AS s FROM db.t").to_arrow()["s"].to_pylist() == [3]
    with pytest.raises(UnsupportedFeature):
        lake.convert("db.t", to="delta")
    with pytest.raises(NotFound):
        lake.convert("db.u", to="iceberg")


@pytest.mark.parametrize("kind", ICEBERG)
def test_only_data_files_of_the_former_table_are_left_to_delete(kind):
    """Metadata of neither format is: the former's goes with its folders, in an order of its own, and the other's is the table's."""

    class Leaving(MemoryFiles):
        """Leaves a temporary file beside each that it creates, as a process does that is killed."""

        def create(self, path, data):
            folder, _, name = path.rpartition("/")
            self.write(f"{folder}/.{name}.{uuid.uuid4()}.tmp", data)
            return super().create(path, data)

    table = iceberg(Leaving(), **ICEBERG[kind])
    table.delete("id = 2")
    table.compute_table_stats(["id"])
    store, before = doors.store(table), data_files(table)
    _, leaves = convert._adopted(store, Iceberg(), Paimon(), ArrowEngine())
    now = {store.location(path) for task in opened_as(store, Paimon()).scan().plan() for path in task.paths}
    assert {store.location(path) for path in leaves} == before - now


@pytest.mark.parametrize("folder", ["manifest", "snapshot", "schema", "tag/deep"])
def test_data_files_where_the_other_format_has_metadata_are_not_cleared(folder, tmp_path):
    lake = Lake(tmp_path / "w")
    properties = {"write.data.path": str(tmp_path / "w/d.db/t" / folder), "write.delete.mode": "merge-on-read"}
    table = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format="iceberg", properties=properties)
    table.append(pa.table({"id": [1, 2]}))
    table.delete("id = 1")
    with pytest.raises(UnsupportedFeature, match="is a file of the table, in a folder where Paimon has metadata"):
        lake.convert("d.t", "paimon")
    assert lake.table("d.t").format == "iceberg"
    assert lake.table("d.t").scan().to_arrow()["id"].to_pylist() == [2]
    assert lake.table("d.t").missing_files() == []
    lake.table("d.t").alter().set_properties({"write.data.path": str(tmp_path / "w/d.db/t/data")}).commit()
    lake.table("d.t").compact(full=True, sort_by=["id"])
    lake.table("d.t").expire_snapshots(retain_last=1, older_than=datetime.timedelta(days=-1))
    assert lake.convert("d.t", "paimon").scan().to_arrow()["id"].to_pylist() == [2]
