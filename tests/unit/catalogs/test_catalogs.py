"""SQL catalogs: SQLite in the warehouse and a PostgreSQL server; tables of both formats side by side, and real races."""

import datetime
import json
import multiprocessing
import pickle
import shutil
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, LakeError, NotFound, StoreError, UnsupportedFeature
from lakeformat.catalogs.sql import SqlCatalog, SqlEntry
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model import evolution
from lakeformat.model.partition import identity
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Outcome, Plan, Snapshot
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.files import open_store
from lakeformat.storage.head import Pointer, SwapHead
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.simulation.failing import NthCallFails
from tests.simulation.writers import SCHEMA as WRITERS_SCHEMA
from tests.simulation.writers import write
from tests.unit.s3_server import S3Server

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
COMMITS = 5
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table, **version):
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


@pytest.fixture(scope="session")
def postgres(postgres_server):
    return postgres_server.get_uri().replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request, tmp_path):
    """Options of a Lake with a catalog that nobody else has."""
    if request.param == "sqlite":
        return {"catalog": "sql"}
    return {"catalog": request.getfixturevalue("postgres"), "catalog_options": {"name": str(tmp_path)}}


@pytest.fixture
def lake(tmp_path, catalog):
    return Lake(tmp_path / "warehouse", **catalog)


def test_tables_of_both_formats_live_side_by_side(lake, tmp_path):
    assert (lake.tables(), lake.namespaces()) == ([], [])
    orders = lake.create_table("shop.orders", SCHEMA, format="iceberg", partition_by=["dt"])
    lake.create_table("shop.items", SCHEMA).append(rows(1))
    orders.append(rows(1, 2), id="once")
    assert orders.append(rows(1, 2), id="once").id == orders.current_snapshot().id
    assert lake.tables("shop") == lake.tables() == ["shop.items", "shop.orders"]
    assert [lake.table(name).format for name in lake.tables()] == ["paimon", "iceberg"]
    again = pickle.loads(pickle.dumps(lake)).table("shop.orders")
    again.overwrite_partitions(rows(5))
    orders.create_tag("five")
    again.alter().add_column("x", "int").commit()
    assert (content(orders), orders.schema.names) == ([5], ("id", "dt", "x"))
    names = sorted(p.name for p in (tmp_path / "warehouse/shop.db/orders/metadata").glob("*.json"))
    assert [name[:6] for name in names] == [f"0000{i}-" for i in range(5)]
    again.append(rows(6))
    assert content(orders, tag="five") == content(orders, snapshot_id=orders.snapshots()[1].id) == [5]
    again.rollback_to(tag="five")
    assert content(orders) == [5]
    with pytest.raises(AlreadyExists, match=r"shop\.items"):
        lake.create_table("shop.items", SCHEMA, format="iceberg")
    with pytest.raises(AlreadyExists, match=r"shop\.orders"):
        lake.create_table("shop.orders", SCHEMA)
    assert lake.create_table("shop.orders", SCHEMA, format="iceberg", if_exists="ignore").schema.names == (
        "id",
        "dt",
        "x",
    )


def test_a_renamed_table_keeps_its_files_and_a_new_one_of_its_name_has_its_own(lake):
    old = lake.create_table("a.one", SCHEMA, format="iceberg")
    old.append(rows(1))
    lake.create_table("a.other", SCHEMA, format="iceberg")
    with pytest.raises(AlreadyExists, match=r"a\.other"):
        lake.rename_table("a.one", "a.other")
    with pytest.raises(NotFound, match=r"a\.none"):
        lake.rename_table("a.none", "a.two")
    moved = lake.rename_table("a.one", "b.two")
    assert (content(moved), lake.tables(), lake.namespaces()) == ([1], ["a.other", "b.two"], ["a", "b"])
    with pytest.raises(NotFound, match=r"a\.one"):
        old.append(rows(2))
    new = lake.create_table("a.one", SCHEMA, format="iceberg")
    new.append(rows(7))
    assert new.uri != moved.uri
    lake.drop_table("b.two", purge=True)
    assert content(new) == [7]
    assert lake.tables() == ["a.one", "a.other"]
    assert not Path(moved.uri.removeprefix("file://")).exists()
    lake.drop_table("b.two", if_exists=True)
    with pytest.raises(NotFound, match=r"b\.two"):
        lake.drop_table("b.two")


def test_namespaces_lie_inside_others(lake):
    lake.create_table("a.b.c", SCHEMA, format="iceberg").append(rows(1))
    assert (lake.namespaces(), lake.tables("a.b")) == (["a.b"], ["a.b.c"])
    assert content(lake.table("a.b.c")) == [1]
    with pytest.raises(InvalidInput, match="inside others"):
        lake.create_table("a.b.d", SCHEMA)


def test_namespaces_have_properties_and_a_place_and_go(lake, tmp_path):
    lake.create_namespace("a")
    lake.create_table("b.paimon", SCHEMA)  # A folder, which the catalog does not know.
    assert lake.namespace_properties("a") == lake.namespace_properties("b") == {}
    location = f"file://{tmp_path}/elsewhere"
    for name in ("a", "b"):
        lake.alter_namespace(name, {"owner": "me", "k": "1"})
        lake.alter_namespace(name, {"k": "2", "location": location}, ["owner", "never"])
        assert lake.namespace_properties(name) == {"k": "2", "location": location}
    made = lake.create_table("a.t", SCHEMA, format="iceberg")
    made.append(rows(1))
    assert (made.uri, content(lake.table("a.t"))) == (f"{location}/t", [1])
    assert lake.create_table("b.t", SCHEMA, format="iceberg").uri.startswith(
        f"{location}/t-"
    )  # Not that of another one.
    with pytest.raises(InvalidInput, match=r"holds a\.t"):
        lake.drop_namespace("a")
    lake.drop_table("a.t", purge=True)
    lake.sql("CREATE VIEW a.v AS SELECT 1 AS x")
    with pytest.raises(InvalidInput, match=r"holds a\.v"):
        lake.drop_namespace("a")
    lake.views.drop("a.v")
    lake.drop_namespace("a")
    lake.drop_namespace("a")
    assert lake.namespaces() == ["b"]
    with pytest.raises(NotFound, match="'a'"):
        lake.namespace_properties("a")
    with pytest.raises(NotFound, match="'a'"):
        lake.alter_namespace("a", {"k": "1"})
    with pytest.raises(UnsupportedFeature, match="keeps no properties"):
        Lake(tmp_path / "folders").alter_namespace("a", {"k": "1"})


def test_a_table_lies_where_it_is_told(lake, tmp_path):
    location = f"{tmp_path}/far/away"
    made = lake.create_table("a.t", SCHEMA, format="iceberg", location=f"{location}/")
    made.append(rows(1))
    assert (made.uri, content(pickle.loads(pickle.dumps(lake)).table("a.t"))) == (f"file://{location}", [1])
    lake.sql(f"CREATE TABLE a.u USING iceberg LOCATION 'file://{location}-u' AS SELECT 2L AS id")
    lake.sql(f"CREATE OR REPLACE TABLE a.u USING iceberg LOCATION '{location}-u' AS SELECT 2L AS id")
    assert (lake.table("a.u").uri, content(lake.table("a.u"))) == (f"file://{location}-u", [2])
    for wrong, error, said in ((location, AlreadyExists, "a table at"), ("far", InvalidInput, "absolute")):
        with pytest.raises(error, match=said):
            lake.create_table("a.v", SCHEMA, format="iceberg", location=wrong)
    for target, format in ((lake, "paimon"), (Lake(tmp_path / "folders"), "iceberg")):
        with pytest.raises(UnsupportedFeature, match="location="):
            target.create_table("a.v", SCHEMA, format=format, location=f"{location}-v")
    lake.drop_table("a.t", purge=True)
    assert not Path(location).exists() or not any(path.is_file() for path in Path(location).rglob("*"))


def test_a_table_that_is_there_is_registered_and_goes_on(lake, tmp_path):
    table = Lake(tmp_path / "elsewhere").create_table("x.y", SCHEMA, format="iceberg")
    table.append(rows(1))
    table.append(rows(2))
    metadata = f"{table.uri}/metadata/v3.metadata.json"
    registered = lake.register_table("shop.y", metadata)
    assert content(registered) == [1, 2]
    registered.append(rows(3), id="third")
    assert content(lake.table("shop.y")) == [1, 2, 3]
    assert registered.append(rows(3), id="third").total_rows == 3
    location = lake._catalog.entry("shop.y").location()
    assert location.startswith(f"{table.uri}/metadata/00004-")
    assert [e["metadata-file"] for e in json.loads(Path(location[7:]).read_text())["metadata-log"]][-1] == metadata
    with pytest.raises(AlreadyExists, match=r"shop\.y"):
        lake.register_table("shop.y", metadata)
    with pytest.raises(InvalidInput, match="no catalog"):
        Lake(tmp_path / "elsewhere").register_table("shop.y", metadata)


def test_maintenance_sees_the_catalogs_newest(lake):
    table = lake.create_table("a.t", SCHEMA, format="iceberg", partition_by=["dt"])
    for i in range(6):
        table.append(rows(i))
    table.compact(full=True)
    assert table.inspect.files().num_rows == 1
    assert len(table.expire_snapshots(retain_last=1).snapshots) == 6
    folder = Path(table.uri.removeprefix("file://"))
    lost = folder / "metadata/00003-00000000-0000-0000-0000-000000000000.metadata.json"
    lost.write_text("{}")
    before = len(list(folder.glob("metadata/*.json")))
    assert [f.path for f in table.remove_orphan_files(older_than=AT_ONCE)] == [f"metadata/{lost.name}"]
    assert len(list(folder.glob("metadata/*.json"))) == before - 1
    assert content(table) == [0, 1, 2, 3, 4, 5]
    table.delete("id > 2")
    table.truncate()
    assert (content(table), table.scan().count()) == ([], 0)


def test_metadata_is_compressed_where_the_table_asks_for_it(lake):
    codec = "write.metadata.compression-codec"
    table = lake.create_table("a.t", SCHEMA, format="iceberg", properties={codec: "gzip"})
    table.append(rows(1), id="one")
    table.alter().set_properties({codec: "none"}).commit()
    table.append(rows(2), id="two")
    table.alter().set_properties({codec: "gzip"}).commit()
    endings = [".gz.metadata.json", ".gz.metadata.json", ".metadata.json", ".metadata.json", ".gz.metadata.json"]
    names = sorted(path.name for path in Path(table.uri.removeprefix("file://")).glob("metadata/*.metadata.json"))
    assert [name[:6] + name[42:] for name in names] == [f"0000{i}-{ending}" for i, ending in enumerate(endings)]
    assert content(lake.table("a.t")) == [1, 2]
    moved = lake.rename_table("a.t", "b.t")
    again = lake.register_table("a.other", lake._catalog.entry("b.t").location())
    assert content(again) == content(moved) == [1, 2]
    assert moved.append(rows(1), id="one").id == moved.snapshots()[0].id
    assert moved.remove_orphan_files(older_than=AT_ONCE) == []


def test_racing_creators_make_one_table(lake):
    told = []

    def create():
        told.append(lake.create_table("a.t", SCHEMA, format="iceberg", if_exists="ignore"))

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, table in enumerate(told):
        table.append(rows(number))
    assert content(lake.table("a.t")) == [0, 1, 2, 3]


@pytest.mark.long("test_racing_creators_make_one_table, and simulation/test_processes.py: the same race on storage")
def test_four_processes_lose_nothing_and_double_nothing(tmp_path, postgres):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    with ProcessPoolExecutor(4, mp_context=context, initializer=barrier.wait) as pool:
        for name, catalog in (("sqlite", "sql"), ("postgres", postgres)):
            where, options = str(tmp_path / name), {"catalog": catalog, "catalog_options": {"name": str(tmp_path)}}
            properties = {"commit.retry.num-retries": "200"}
            table = Lake(where, **options).create_table(
                "db.t", WRITERS_SCHEMA, format="iceberg", partition_by=["dt"], properties=properties
            )
            told = [each for told in pool.map(write, [(where, options, i, COMMITS) for i in range(4)]) for each in told]
            history = table.snapshots()
            assert {(s.operation_id, s.id) for s in history} == {(id, snapshot_id) for id, snapshot_id, _ in told}
            assert len(history) == 4 * COMMITS
            assert sum(attempts for _, _, attempts in told) > 4 * COMMITS, "no race was lost: nothing was tested"
            shared = [writer * 1000 + i for writer in range(4) for i in range(COMMITS) if i % 5 != 4]
            assert Counter(content(table)) == Counter(shared + [writer * 1000 + COMMITS - 1 for writer in range(4)])
            left = table.remove_orphan_files(older_than=AT_ONCE, dry_run=True)
            assert left == [], "a lost race leaves nothing"


def test_tables_of_a_catalog_lie_in_object_storage_too(tmp_path):
    with S3Server() as server:
        lake = Lake(f"{server.new_bucket()}/w", catalog=f"sqlite:///{tmp_path}/c.sqlite", **server.options)
        t = lake.create_table("a.t", SCHEMA, format="iceberg", partition_by=["dt"])
        t.append(rows(1, 2))
        t.append(rows(3, dt="b"))
        t.delete("id = 1")
        assert content(lake.table("a.t")) == [2, 3]
        moved = lake.rename_table("a.t", "b.t")
        assert moved.remove_orphan_files(older_than=AT_ONCE, dry_run=True) == []
        lake.drop_table("b.t", purge=True)
        assert lake.tables() == []
        assert doors.store(lake).list("") == []


# --- the database as others have it -------------------------------------------------------------------------------------


def test_a_database_without_types_and_one_with_views(tmp_path):
    (tmp_path / "w").mkdir()
    connection = sqlite3.connect(tmp_path / "w" / "catalog.sqlite")
    connection.execute(
        "create table iceberg_tables (catalog_name varchar(255) not null, table_namespace varchar(255) not null, "
        "table_name varchar(255) not null, metadata_location varchar(1000), previous_metadata_location varchar(1000), "
        "primary key (catalog_name, table_namespace, table_name))"
    )
    connection.close()
    old = Lake(tmp_path / "w", catalog="sql")
    old.create_table("a.t", SCHEMA, format="iceberg").append(rows(1))
    assert content(old.table("a.t")) == [1]
    new = Lake(tmp_path / "v", catalog="sql", catalog_options={"name": "mine"})
    new.create_table("a.t", SCHEMA, format="iceberg")
    connection = sqlite3.connect(tmp_path / "v" / "catalog.sqlite")
    connection.execute("insert into iceberg_tables values ('mine', 'a', 'v', 'x', null, 'VIEW')")
    connection.commit()
    assert connection.execute(
        "select catalog_name, iceberg_type from iceberg_tables where table_name = 't'"
    ).fetchall() == [("mine", "TABLE")]
    connection.close()
    assert new.tables() == ["a.t"]
    assert not new.exists("a.v")
    with pytest.raises(NotFound):
        new.drop_table("a.v")
    for format in ("iceberg", "paimon"):  # Its name is taken all the same.
        with pytest.raises(AlreadyExists, match="there is a view of that name"):
            new.create_table("a.v", SCHEMA, format=format)
    with pytest.raises(UnsupportedFeature, match="version 0, which keeps no views"):
        old.sql("CREATE VIEW a.v AS SELECT 1 AS n")
    assert Lake(tmp_path / "v", catalog="sql").tables() == []


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"catalog": ""}, "catalog=''"),
        ({"catalog": 5}, "catalog=5"),
        ({"catalog": "sql", "catalog_options": {"token": "x"}}, "'token'"),
        ({"catalog_options": {"name": "x"}}, "'name' needs a catalog"),
        ({"catalog_options": {"case-sensitive": "false", "table-default.k": "v"}}, "'case-sensitive' needs a catalog"),
        ({"catalog_options": {"table-default.": "v"}}, "write table-default.<property>"),
        ({"catalog": "sql", "catalog_options": {"table-default.k": 1}}, "'table-default.k' is 1"),
    ],
)
def test_catalogs_that_cannot_be(tmp_path, how, says):
    with pytest.raises(InvalidInput, match=says):
        Lake(tmp_path / "w", **how)


@pytest.mark.parametrize("how", [{}, {"catalog": "sql"}, {"catalog": "sql", "catalog_options": {"format": "paimon"}}])
def test_new_tables_have_the_catalogs_defaults_unless_they_say_otherwise(tmp_path, how):
    """Of the format that the catalog keeps; without one, of Paimon (Java's FileSystemCatalog)."""
    kept, other = ("iceberg", "paimon") if how == {"catalog": "sql"} else ("paimon", "iceberg")
    options = {"table-default.k": "default", "table-default.l": "default"}
    lake = pickle.loads(
        pickle.dumps(Lake(tmp_path, **how | {"catalog_options": how.get("catalog_options", {}) | options}))
    )
    lake.create_table("a.t", SCHEMA, format=kept, properties={"k": "own"})
    lake.create_table("a.u", lake.table("a.t").schema, format=kept, properties={"l": "own"})
    lake.create_table_as("a.v", rows(1), SCHEMA, format=kept)
    lake.sql(f"CREATE TABLE a.w (id BIGINT) USING {kept} TBLPROPERTIES ('l' = 'own')")
    lake.create_table("a.x", SCHEMA, format=other)
    seen = {name: [lake.table(f"a.{name}").properties.get(key) for key in "kl"] for name in "tuvwx"}
    assert seen == {
        "t": ["own", "default"], "u": ["own", "own"], "v": ["default"] * 2, "w": ["default", "own"], "x": [None] * 2,
    }  # fmt: skip


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path):
    for address, error in (
        ("nothing at all", InvalidInput),
        ("nosuchdb://user:secret@host/db", InvalidInput),
        ("postgresql+psycopg://user:secret@host:port/db", InvalidInput),
        ("postgresql+psycopg://user:secret@127.0.0.1:1/db?connect_timeout=2", StoreError),
    ):
        with pytest.raises(error, match=address.split("@")[-1][:5]) as raised:
            Lake(tmp_path / "w", catalog=address).tables()
        assert "secret" not in str(raised.value)
    with pytest.raises(InvalidInput, match="not local"):
        Lake("s3://bucket/warehouse", catalog="sql")


# --- the head -----------------------------------------------------------------------------------------------------------


def test_pointers_count_from_their_names():
    for name, number in (
        ("00000-x", 1),
        ("00012-x", 13),
        ("v3", 4),
        ("v3.gz", 4),
        ("garbage", 1),
        ("123456-x", 123457),
    ):
        location = f"file:///w/metadata/{name}.metadata.json"
        again = pickle.loads(pickle.dumps(Pointer(location)))
        assert (again, again.location, again > 0) == (number, location, True)
    mine, yours = Pointer("x/00001-mine.metadata.json"), Pointer("x/00001-yours.metadata.json")
    same = Pointer(mine.location)
    assert (mine == yours, mine != yours) == (False, True), "a server need not number its roots"
    assert (mine == same, mine != same, hash(mine) == hash(same)) == (True, False, True)
    assert (mine == 2, mine != 2, mine == 3, mine != 3) == (True, False, False, True)
    assert repr(mine) == "Pointer('x/00001-mine.metadata.json')"


class FailingEntry:
    """A line whose call counts as one of the store's calls."""

    def __init__(self, failing, entry):
        self._failing, self._entry = failing, entry

    def head(self, store):
        return SwapHead(store, self)

    def sharers(self, reader):
        return []

    def location(self):
        return self._failing.pointer()

    def swap(self, old, new):
        return self._failing.swap(old, new)


class Counted(MemoryFiles):
    """A store that is asked for its line too, so that one count covers both."""

    def __init__(self, files, line):
        super().__init__()
        for path, data in files.items():
            self.write(path, data)
        self.line = line

    def pointer(self):
        return self.line

    def swap(self, old, new):
        if self.line != old:
            return False
        self.line = new
        return True


VERBS = {
    "append": lambda t: t.append(rows(10, 11), id="op"),
    "overwrite": lambda t: t.overwrite_partitions(rows(10), id="op"),
    "compact": lambda t: t.compact(full=True, id="op"),
    "evolve": lambda t: t.evolve([evolution.AddColumn("x", "int")], id="op"),
}


@pytest.mark.parametrize("how", [(False,), (True,), (True, True)], ids=["refused", "answer lost", "repeated"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_nth_call_to_storage_or_catalog_fails(verb, how):
    """A swap that is repeated says no, though it was made: nothing of it may be deleted."""
    first = Counted({}, None)
    made = Table("t", Catalogued(first, FailingEntry(first, None)), iceberg)
    create(made, Schema(fields=fields_from_arrow(SCHEMA), partitioning=identity("dt")))
    made.append(rows(1, 2))
    made.append(rows(3))
    files, line = {f.path: first.read(f.path) for f in first.list("")}, first.line
    clean = Counted(files, line)
    VERBS[verb](Table("t", Catalogued(clean, FailingEntry(clean, None)), iceberg))
    after_all = content(Table("t", Catalogued(clean, FailingEntry(clean, None)), iceberg))
    n = 0
    while True:
        n += 1
        store = Counted(files, line)
        failing = NthCallFails(store, n, *how)
        table = Table("t", Catalogued(failing, FailingEntry(failing, None)), iceberg)
        seen = Table("t", Catalogued(store, FailingEntry(store, None)), iceberg)
        told = None
        try:
            VERBS[verb](table)
        except LakeError as error:
            told = error
        assert content(seen) in ([after_all] if told is None else [[1, 2, 3], after_all]), (n, failing.failed, told)
        VERBS[verb](seen)
        assert content(seen) == after_all, (n, failing.failed, told)
        if failing.failed is None:
            break
    assert n > 2


def test_a_warehouse_is_deleted_and_made_anew(tmp_path):
    for _ in range(2):
        table = Lake(tmp_path / "w", catalog="sql").create_table("d.t", pa.schema([("n", pa.int64())]))
        table.append(pa.table({"n": [1]}))
        assert table.scan().count() == 1
        shutil.rmtree(tmp_path / "w")


def test_a_sql_line_is_swapped_by_whoever_read_it(tmp_path):
    entry = SqlEntry(SqlCatalog(f"sqlite:///{tmp_path}/c.sqlite"), "a", "t")
    assert entry.location() is None
    assert not entry.swap("x", "y")
    assert entry.swap(None, "x")
    assert not entry.swap(None, "z")
    assert entry.swap("x", "y")
    assert not entry.swap("x", "z")
    assert entry.location() == "y"
    head = SwapHead(open_store(str(tmp_path)), entry)
    assert isinstance(head.version(), Pointer)
    plan = Plan({}, "metadata/00001-new.metadata.json", b"{}", Snapshot(1, "append", 0, 0))
    assert head.advance(Pointer("x"), plan) is Outcome.UNKNOWN, "history has to tell"
    assert entry.location() == "y"
    assert head.advance(head.version(), plan) is Outcome.PUBLISHED
    assert entry.location() == f"file://{tmp_path}/metadata/00001-new.metadata.json"
