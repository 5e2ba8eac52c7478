"""Paimon's JDBC catalog: a line for each table in SQLite or PostgreSQL, and the tables in the warehouse's folders."""

import itertools
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, NotFound, StoreError, UnsupportedFeature
from lakeformat.catalogs import paimon_sql
from lakeformat.errors import StoreRefused

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table, **version):
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


def opened(folder, **options):
    return Lake(folder / "warehouse", catalog="sql", catalog_options={"format": "paimon", **options})


@pytest.fixture(params=["sqlite", "sqlite-locked", "postgres-locked"])
def lake(request, tmp_path):
    locks = {"lock.enabled": "true"} if request.param.endswith("locked") else {}
    if request.param.startswith("sqlite"):
        return opened(tmp_path, **locks)
    address = request.getfixturevalue("postgres_server").get_uri().replace("postgresql://", "postgresql+psycopg://")
    options = {"format": "paimon", "name": str(tmp_path), **locks}
    return Lake(tmp_path / "warehouse", catalog=address, catalog_options=options)


def test_tables_have_lines_and_folders(lake, tmp_path):
    assert (lake.tables(), lake.namespaces()) == ([], [])
    table = lake.create_table("a.t", SCHEMA, partition_by=["dt"])
    table.append(rows(1, 2))
    table.append(rows(3), id="once")
    table.append(rows(3), id="once")
    table.create_branch("b")
    table.branch("b").append(rows(4))
    pickle.loads(pickle.dumps(lake)).table("a.t").alter().add_column("x", "int").commit()
    assert (content(table), content(table.branch("b")), table.schema.names) == (
        [1, 2, 3],
        [1, 2, 3, 4],
        ("id", "dt", "x"),
    )
    twin, record = table.dry_run()
    twin.append(pa.table({"id": [9], "dt": ["a"], "x": pa.array([1], pa.int32())}))
    assert (content(twin), content(table), bool(record.written)) == ([1, 2, 3, 9], [1, 2, 3], True)
    lake.create_table_as("b.made", rows(7), SCHEMA)
    beside = lake.create_table("a.ice", SCHEMA, format="iceberg")
    beside.append(rows(5))
    assert (lake.tables(), lake.namespaces()) == (["a.ice", "a.t", "b.made"], ["a", "b"])
    assert content(lake.table("b.made")) == [7]
    lake.alter_namespace("a", {"owner": "me", "k": "1"})
    lake.alter_namespace("a", {"k": "2"}, ["owner"])
    assert lake.namespace_properties("a") == {"k": "2"}
    with pytest.raises(UnsupportedFeature, match="location"):
        lake.alter_namespace("a", {"location": "/elsewhere"})
    with pytest.raises(AlreadyExists, match=r"b\.made"):
        lake.rename_table("a.t", "b.made")
    moved = lake.rename_table("a.t", "c.t")
    moved.append(pa.table({"id": [8], "dt": ["b"], "x": pa.array([1], pa.int32())}))
    moved.compact(full=True)
    moved.expire_snapshots(retain_last=1)
    assert moved.remove_orphan_files(older_than=0) == []
    assert (content(moved), lake.tables()) == ([1, 2, 3, 8], ["a.ice", "b.made", "c.t"])
    assert not (tmp_path / "warehouse/a.db/t").exists()
    for name in ("c.t", "b.made", "a.ice"):
        lake.drop_table(name)
    with pytest.raises(NotFound, match=r"c\.t"):
        lake.drop_table("c.t")
    lake.drop_table("c.t", if_exists=True)
    for name in "abc":
        lake.drop_namespace(name)
    assert (lake.tables(), lake.namespaces()) == ([], [])
    assert [path.name for path in (tmp_path / "warehouse").rglob("*") if not path.name.startswith("catalog")] == []


def test_a_folder_without_its_line_is_no_table_and_can_be_given_it(tmp_path):
    Lake(tmp_path / "warehouse").create_table("a.t", SCHEMA).append(rows(1))
    lake = opened(tmp_path)
    assert (lake.tables(), lake.exists("a.t")) == ([], False)
    with pytest.raises(AlreadyExists, match=r"register_table\('a\.t', 'file://"):
        lake.create_table("a.t", SCHEMA)
    with pytest.raises(AlreadyExists, match=r"register_table\('a\.t', 'file://"):
        lake.create_table("a.t", SCHEMA, format="iceberg")
    with pytest.raises(NotFound, match="no Paimon table"):
        lake.register_table("a.t", f"{tmp_path}/warehouse/a.db")
    with pytest.raises(InvalidInput, match=r"warehouse/a\.db/u"):
        lake.register_table("a.u", f"{tmp_path}/warehouse/a.db/t")
    assert content(lake.register_table("a.t", f"{tmp_path}/warehouse/a.db/t")) == [1]
    with pytest.raises(AlreadyExists, match=r"a\.t"):
        lake.register_table("a.t", f"{tmp_path}/warehouse/a.db/t")
    (tmp_path / "warehouse/a.db/t").rename(tmp_path / "gone")
    assert lake.tables() == ["a.t"]  # A drop of others that was cut short.
    with pytest.raises(NotFound, match=r"a\.t"):
        lake.table("a.t").scan()
    lake.drop_table("a.t")
    assert lake.tables() == []


def test_racing_writers_lose_nothing_and_leave_no_lock(lake):
    table = lake.create_table("a.t", SCHEMA)

    def write(number):
        again = pickle.loads(pickle.dumps(lake))
        assert again.create_table("a.t", SCHEMA, if_exists="ignore").uri == table.uri
        for turn in range(3):
            again.table("a.t").append(rows(10 * number + turn), id=f"{number}/{turn}")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, range(3)))
    assert content(table) == sorted(10 * number + turn for number in range(3) for turn in range(3))
    if lake._catalog.locks:
        with paimon_sql.connected(lake._catalog.uri, paimon_sql._WITH_LOCKS) as connection:
            assert connection.execute(paimon_sql._LOCKS.select()).all() == []


def test_a_lock_that_expired_is_broken_and_another_is_waited_for(tmp_path, monkeypatch):
    lake = opened(tmp_path, **{"lock.enabled": "true"})
    table = lake.create_table("a.t", SCHEMA)
    with sqlite3.connect(tmp_path / "warehouse/catalog.sqlite") as database:
        database.execute("INSERT INTO paimon_distributed_locks VALUES ('jdbc.a.t', '2020-01-01 00:00:00', 480)")
    table.append(rows(1))
    with sqlite3.connect(tmp_path / "warehouse/catalog.sqlite") as database:
        assert database.execute("SELECT * FROM paimon_distributed_locks").fetchall() == []
        database.execute("INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES ('jdbc.a.t', 480)")
    monkeypatch.setattr(paimon_sql, "_LOCK_SECONDS", 0.1)
    with pytest.raises(StoreRefused, match=r"jdbc\.a\.t"):
        table.append(rows(2))
    with sqlite3.connect(tmp_path / "warehouse/catalog.sqlite") as database:
        database.execute("DELETE FROM paimon_distributed_locks")
    table.append(rows(3))
    assert content(table) == [1, 3]


def test_a_database_that_fails_leaves_what_can_be_asked_for_again(tmp_path, monkeypatch):
    """The nth call to the database fails, before its effect or after it; then the same is asked for again."""
    real, calls = paimon_sql.connected, {"left": -1, "late": False}

    def failing(uri, tables):
        calls["left"] -= 1
        if calls["left"] == 0 and not calls["late"]:
            raise StoreError("refused")
        return lost(uri, tables) if calls["left"] == 0 else real(uri, tables)

    @paimon_sql.contextmanager
    def lost(uri, tables):
        with real(uri, tables) as connection:
            yield connection
        raise StoreError("answer lost")

    monkeypatch.setattr(paimon_sql, "connected", failing)
    lake = opened(tmp_path)

    def happens(do, *args, **how):
        """Ask until it is done, with one failure."""
        for _ in range(2):
            with suppress(StoreError):
                return do(*args, **how)
        return do(*args, **how)

    def rename(old, new):
        return lake.rename_table(old, new) if lake.exists(old) else None

    for nth, late in itertools.product(range(1, 30), (False, True)):
        old, new = f"a.t{nth}{late}".lower(), f"b.t{nth}{late}".lower()
        calls.update(left=nth, late=late)
        happens(lake.create_table, old, SCHEMA, if_exists="ignore")
        happens(rename, old, new)
        assert happens(lake.tables) == [new]
        happens(happens(lake.table, new).append, rows(1), id="one")
        happens(lake.drop_table, new, if_exists=True)
        assert happens(lake.tables) == []
        assert not list(tmp_path.rglob("s*-*"))  # Neither schema nor snapshot.
        if calls["left"] > 0 and late:
            break
    else:
        raise AssertionError("more calls than were tried")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"format": "hudi"}, "hudi"),
        ({"format": "paimon", "nme": "x"}, "lock.enabled"),
        ({"format": "paimon", "lock.enabled": "maybe"}, "maybe"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path, options, says):
    with pytest.raises(InvalidInput, match=says):
        Lake(tmp_path, catalog="sql", catalog_options=options)


def test_paimon_has_no_namespaces_inside_others(tmp_path):
    lake = opened(tmp_path)
    with pytest.raises(InvalidInput, match="inside others"):
        lake.create_table("a.b.c", SCHEMA)
    with pytest.raises(InvalidInput, match="inside others"):
        lake.create_namespace("a.b")
    lake.create_table("a.t", SCHEMA)
    with pytest.raises(InvalidInput, match="inside others"):
        lake.rename_table("a.t", "a.b.c")
    assert lake.namespaces() == ["a"]


def test_a_database_whose_location_is_refused_is_not_made(tmp_path):
    lake = opened(tmp_path)
    with pytest.raises(UnsupportedFeature, match="'location' is the catalog's own"):
        lake.sql("CREATE DATABASE y COMMENT 'here' LOCATION '/elsewhere'")
    assert lake.namespaces() == []
    lake.sql("CREATE DATABASE y COMMENT 'here'")
    assert lake.namespace_properties("y") == {"comment": "here"}


def test_an_external_table_lies_elsewhere_and_its_files_outlive_its_name(lake, tmp_path):
    far, uri = tmp_path / "far away", f"file://{tmp_path}/far away"
    lake.sql(f"CREATE TABLE a.t (id BIGINT, dt STRING) PARTITIONED BY (dt) LOCATION '{far}'")
    table = lake.table("a.t")
    table.append(rows(1, 2))
    assert (table.uri, content(table), lake.tables(), lake.namespace_properties("a")) == (uri, [1, 2], ["a.t"], {})
    assert not (tmp_path / "warehouse/a.db/t").exists()
    assert content(pickle.loads(pickle.dumps(lake)).table("a.t")) == [1, 2]
    with pytest.raises(UnsupportedFeature, match="external table"):
        lake.alter_namespace("a", {"lakeformat.table.t": "/other"})
    with pytest.raises(AlreadyExists):
        lake.create_table("a.t", SCHEMA)
    moved = lake.rename_table("a.t", "b.u")
    moved.append(rows(3))
    assert (moved.uri, content(moved), lake.tables()) == (uri, [1, 2, 3], ["b.u"])
    with pytest.raises(InvalidInput, match=r"b\.u"):
        lake.drop_namespace("b")
    lake.drop_table("b.u")
    assert (lake.tables(), lake.exists("b.u")) == ([], False)
    lake.sql(f"CREATE TABLE a.again LOCATION '{far}'")
    assert (content(lake.table("a.again")), lake.table("a.again").schema.partitioning.names) == ([1, 2, 3], ("dt",))
    lake.table("a.again").remove_orphan_files()
    lake.sql(f"CREATE TABLE IF NOT EXISTS a.again LOCATION '{far}'")
    lake.sql("DROP TABLE a.again")
    alike = "CREATE TABLE a.v ({}) PARTITIONED BY (dt) LOCATION '{}'"
    for columns, said in (("id INT, dt STRING", "columns"), ("id BIGINT, dt STRING, x INT", "columns")):
        with pytest.raises(InvalidInput, match=f"a.v: {said}.*already"):
            lake.sql(alike.format(columns, far))
    with pytest.raises(InvalidInput, match=r"property 'file\.format'"):
        lake.create_table("a.v", SCHEMA, partition_by=["dt"], properties={"file.format": "orc"}, location=str(far))
    assert lake.tables() == []
    lake.sql(alike.format("id BIGINT, dt STRING", far))
    assert content(lake.table("a.v")) == [1, 2, 3]
    lake.drop_table("a.v", purge=True)
    assert (lake.tables(), [path for path in far.rglob("*") if path.is_file()]) == ([], [])


def test_places_that_no_external_table_has_are_refused(tmp_path):
    lake = opened(tmp_path)
    lake.create_table("a.t", SCHEMA).append(rows(1))
    with pytest.raises(NotFound, match="no Paimon table"):
        lake.sql(f"CREATE TABLE a.u LOCATION '{tmp_path}/nowhere'")
    with pytest.raises(InvalidInput, match="location of another table"):
        lake.sql(f"CREATE TABLE a.u LOCATION '{tmp_path}/warehouse/a.db/t'")
    with pytest.raises(InvalidInput, match="absolute path"):
        lake.create_table("a.u", SCHEMA, location="here")
    with pytest.raises(UnsupportedFeature, match="LOCATION of a table of iceberg here"):
        lake.sql(f"CREATE TABLE a.u (id INT) USING iceberg LOCATION '{tmp_path}/ice'")
    with pytest.raises(UnsupportedFeature, match="LOCATION of a table of paimon here"):
        Lake(tmp_path / "folders").sql(f"CREATE TABLE a.u (id INT) LOCATION '{tmp_path}/far'")
    with pytest.raises(ZeroDivisionError):
        lake.create_table_as("a.u", failing(), SCHEMA, location=f"{tmp_path}/far")
    assert (lake.tables(), [path for path in (tmp_path / "far").rglob("*") if path.is_file()]) == (["a.t"], [])
    assert lake.create_table_as("a.u", rows(5), SCHEMA, location=f"{tmp_path}/far").rows_added == 1


def failing():
    yield rows(1).to_batches()[0]
    raise ZeroDivisionError


def test_repair_registers_the_tables_of_folders(lake, tmp_path):
    plain = Lake(tmp_path / "warehouse")
    for name in ("a.t", "a.u", "b.t"):
        plain.create_table(name, SCHEMA).append(rows(1))
    plain.create_table("a.ice", SCHEMA, format="iceberg")
    (tmp_path / "warehouse/a.db/empty").mkdir()
    assert lake.tables("a") == ["a.ice"]
    for name in ("a.none", "a.ice", "c", "a.t,c"):
        with pytest.raises(NotFound, match="no Paimon table is in"):
            lake.sql(f"CALL sys.repair('{name}')")
    assert lake.tables("a") == ["a.ice"]
    assert lake.sql("CALL sys.repair('a.t')").to_arrow().to_pylist() == [{"table": "a.t"}]
    assert lake.sql("CALL sys.repair('a.t')").to_arrow().to_pylist() == []
    assert lake.sql("CALL sys.repair('a.u,b')").to_arrow()["table"].to_pylist() == ["a.u", "b.t"]
    lake.drop_table("b.t")
    assert lake.sql("CALL sys.repair()").to_arrow().to_pylist() == []
    plain.create_table("c.t", SCHEMA)
    assert lake.repair() == ["c.t"]
    assert lake.tables() == ["a.ice", "a.t", "a.u", "c.t"]
    assert [content(lake.table(name)) for name in ("a.t", "a.u", "c.t")] == [[1], [1], []]
    with pytest.raises(UnsupportedFeature, match="the folders are the names"):
        plain.repair()
