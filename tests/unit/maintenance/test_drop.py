"""What goes with a table, and what stays: drops, purges and sweeps of places that tables and strangers share."""

import datetime
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, LakeError, NotFound, StoreError, UnsupportedFeature
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.maintenance.drop import drop
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.head import RESTORED
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.simulation.failing import NthCallFails
from tests.unit.catalogs.test_catalogs import Counted, FailingEntry
from tests.unit.s3_server import S3Server
from tests.unit.storage.test_credentials import catalog as rest_catalog

iceberg = Iceberg()

paimon = Paimon()

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.
LOST = "00000-0-00000000-0000-0000-0000-000000000000-00001"


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table, **version):
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


def local(table):
    return Path(table.uri.removeprefix("file://"))


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def files(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and "sqlite" not in p.name}


def busy(table):
    """A table with history: expired and undone snapshots, deletes, tags, statistics of others, side files."""
    for i in range(4):
        table.append(rows(i, i + 10, dt="ab"[i % 2]))
    table.create_tag("kept")
    table.delete("id = 1")
    table.overwrite_partitions(rows(7))
    table.compact(full=True)
    table.expire_snapshots(retain_last=2)
    return table


def newest(lake, name):
    return lake._catalog.entry(name).location()


def at_root(lake, tmp_path, name, root):
    """A table of the catalog that has `root` for its location, as other engines and servers make them."""
    made = Lake(tmp_path / f"made-{name}").create_table("x.y", SCHEMA, format="iceberg")
    document = json.loads((local(made) / "metadata/v1.metadata.json").read_text())
    uuid = f"00000000-0000-0000-0000-{hash(name) % 10**12:012}"
    path = write(
        root / "metadata" / f"00000-{uuid}.metadata.json", json.dumps({**document, "location": f"file://{root}"})
    )
    table = lake.register_table(name, str(path))
    table.append(rows(1, 2))
    table.append(rows(3))
    return table


@pytest.mark.parametrize("kind", ["paimon", "iceberg", "catalog"])
def test_a_table_goes_and_what_is_not_its_own_stays(tmp_path, kind):
    lake = Lake(tmp_path / "w", catalog="sql" if kind == "catalog" else None)
    table = lake.create_table("a.t", SCHEMA, format="paimon" if kind == "paimon" else "iceberg", partition_by=["dt"])
    busy(table)
    folder, other = local(table), lake.create_table("a.other", SCHEMA, format=table.format)
    other.append(rows(5))
    own = folder / ("dt=a/bucket-0" if kind == "paimon" else "data")
    write(own / f"data-{LOST}.parquet")  # What a writer that died left.
    write(own / f".data-{LOST}.parquet.crc")
    strangers = [
        write(folder / name) for name in ("notes.txt", "data/notes.parquet", "metadata/readme", "mine/a.parquet")
    ]
    beside = files(local(other))
    lake.drop_table("a.t", purge=kind == "catalog")
    assert list(files(folder)) == sorted(strangers)
    assert (lake.tables(), content(lake.table("a.other"))) == (["a.other"], [5])
    assert files(local(other)) == beside
    with pytest.raises(NotFound):
        lake.drop_table("a.t")
    lake.drop_table("a.t", if_exists=True, purge=True)
    lake.drop_table("a.other", purge=True)
    assert not local(other).exists(), "without strangers the folder goes too"


def test_the_mark_of_a_rollback_goes_with_its_table(tmp_path):
    table = Lake(tmp_path / "w").create_table("a.t", SCHEMA)
    first = table.append(rows(1))
    table.append(rows(2))
    table.rollback_to(first.id)
    table.append(rows(3))
    table.expire_snapshots(retain_last=1)
    assert (local(table) / "snapshot" / RESTORED).exists()
    Lake(tmp_path / "w").drop_table("a.t")
    assert not local(table).exists()


def test_without_purge_the_name_alone_goes(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    table = busy(lake.create_table("a.t", SCHEMA, format="iceberg", partition_by=["dt"]))
    before, expected, location = files(local(table)), content(table), newest(lake, "a.t")
    lake.drop_table("a.t")
    assert (lake.tables(), files(local(table))) == ([], before)
    again = lake.register_table("b.t", location)
    assert content(again) == expected
    Path(location.removeprefix("file://")).write_text("{")  # A name can go that cannot be opened.
    with pytest.raises(LakeError):
        lake.drop_table("b.t", purge=True)
    lake.drop_table("b.t")
    assert lake.tables() == []


def test_a_table_at_the_warehouses_root_takes_no_other_with_it(tmp_path):
    root = tmp_path / "w"
    lake = Lake(root, catalog="sql")
    catalogued = lake.create_table("a.t", SCHEMA, format="iceberg")
    folder = lake.create_table("a.p", SCHEMA)
    for table in (catalogued, folder):
        table.append(rows(5))
    inside = write(root / "notes.txt")
    at = at_root(lake, tmp_path, "a.root", root)
    at.add_files([str(p) for p in (root / "a.db/t/data").glob("*.parquet")])  # Reached, and another's all the same.
    assert content(at) == [1, 2, 3, 5]
    before = files(root / "a.db")
    assert at.remove_orphan_files(older_than=AT_ONCE) == []
    lake.drop_table("a.root", purge=True)
    assert files(root) == {**before, inside: b"x"}
    assert (content(lake.table("a.t")), content(lake.table("a.p"))) == ([5], [5])


def test_two_tables_at_one_place_are_neither_purged_nor_swept(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    first = at_root(lake, tmp_path, "a.first", tmp_path / "w")
    at_root(lake, tmp_path, "a.second", tmp_path / "w")
    before = files(tmp_path / "w")
    for name, other in (("a.first", "a.second"), ("a.second", "a.first")):
        with pytest.raises(InvalidInput, match=rf"{name} shares its location with {other}"):
            lake.drop_table(name, purge=True)
        with pytest.raises(InvalidInput, match=rf"is the location of {other} too"):
            lake.table(name).remove_orphan_files(older_than=AT_ONCE)
    assert files(tmp_path / "w") == before
    lake.drop_table("a.second")
    assert content(first) == [1, 2, 3]


def test_an_alias_goes_alone(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    table = busy(lake.create_table("a.t", SCHEMA, format="iceberg", partition_by=["dt"]))
    expected = sorted([*content(table), 98])
    alias = lake.register_table("b.alias", newest(lake, "a.t"))
    alias.append(rows(99))
    table.append(rows(98))
    elsewhere = Lake(tmp_path / "w", catalog="sql", catalog_options={"name": "second"})
    elsewhere.register_table("c.copy", newest(lake, "a.t"))
    before = files(local(table))
    for name, others in (("a.t", r"b\.alias, c\.copy"), ("b.alias", r"a\.t, c\.copy")):
        with pytest.raises(InvalidInput, match=others):
            lake.drop_table(name, purge=True)
        with pytest.raises(InvalidInput, match=others):
            lake.table(name).remove_orphan_files(older_than=AT_ONCE)
    assert files(local(table)) == before
    lake.drop_table("b.alias")
    elsewhere.drop_table("c.copy")
    assert content(table) == expected
    assert table.remove_orphan_files(older_than=AT_ONCE), "what the alias alone had"
    assert content(table) == expected
    lake.drop_table("a.t", purge=True)
    assert not local(table).exists()


def test_a_folders_table_and_its_alias_do_not_take_each_other(tmp_path):
    plain, lake = Lake(tmp_path / "plain"), Lake(tmp_path / "w", catalog="sql")
    table = plain.create_table("x.y", SCHEMA, format="iceberg")
    table.append(rows(1))
    alias = lake.register_table("b.alias", f"{table.uri}/metadata/v2.metadata.json")
    table.append(rows(2))
    alias.append(rows(3))
    for opened, seen in ((table, [1, 2]), (alias, [1, 3])):
        assert opened.remove_orphan_files(older_than=AT_ONCE) == []
        assert (content(table), content(alias)) == ([1, 2], [1, 3]), seen
    with pytest.raises(InvalidInput, match="a table without a catalog too"):
        lake.drop_table("b.alias", purge=True)
    with pytest.raises(InvalidInput, match="a catalog has a table at"):
        plain.drop_table("x.y")
    assert (content(table), content(alias)) == ([1, 2], [1, 3])
    lake.drop_table("b.alias")
    assert content(table) == [1, 2]
    plain.drop_table("x.y", purge=True)
    assert not local(table).exists()


def test_tables_inside_the_folder_of_another_are_nobodys_orphans(tmp_path):
    for format, place in (("paimon", "{}/deep"), ("iceberg", "{}/data"), ("iceberg", "{}/metadata")):
        lake = Lake(tmp_path / f"{format}{place[3:]}")
        outer = lake.create_table("a.outer", SCHEMA, format=format)
        outer.append(rows(1))
        inner = []
        for other in ("paimon", "iceberg"):
            inner.append(Lake(place.format(local(outer))).create_table(f"b.{other}", SCHEMA, format=other))
            inner[-1].append(rows(2))
            write(local(inner[-1]) / f"bucket-0/data-{LOST}.parquet")
        before = [files(local(table)) for table in inner]
        assert outer.remove_orphan_files(older_than=AT_ONCE) == []
        lake.drop_table("a.outer")
        assert [files(local(table)) for table in inner] == before
        assert [content(table) for table in inner] == [[2], [2]]
        assert lake.tables() == []


def test_a_folder_by_another_name_is_swept_of_nothing_in_use(tmp_path):
    table = Lake(tmp_path / "w").create_table("a.t", SCHEMA, format="iceberg")
    table.append(rows(1))
    (tmp_path / "link").symlink_to(tmp_path / "w")
    lost = write(local(table) / f"data/{LOST}.parquet")
    linked = Lake(tmp_path / "link").table("a.t")
    assert [f.path for f in linked.remove_orphan_files(older_than=AT_ONCE)] == [f"data/{lost.name}"]
    assert content(table) == [1]


def test_a_bucket_has_the_names_of_all_its_schemes():
    with S3Server() as server:
        uri = f"{server.new_bucket()}/w"
        theirs = Lake(uri.replace("s3://", "s3a://"), **server.options).create_table("a.t", SCHEMA, format="iceberg")
        theirs.append(rows(1))
        table = Lake(uri, **server.options).table("a.t")
        assert table.remove_orphan_files(older_than=AT_ONCE) == []
        table.append(rows(2))
        table.compact(full=True)
        assert len(table.expire_snapshots(retain_last=1).snapshots) == 2
        assert [f.path.rpartition("/")[0] for f in doors.store(table).list("data")] == ["data"], "the old files went"
        assert content(theirs) == [1, 2]
        Lake(uri, **server.options).drop_table("a.t")
        assert doors.store(table).list("") == []


def test_the_files_of_a_snapshot_table_outlive_it_also_where_it_writes_beside_them(tmp_path):
    theirs, folder = tmp_path / "theirs", f"file://{tmp_path}/theirs"
    pa.parquet.write_table(rows(1), write(theirs / "x.parquet"))
    lake = Lake(tmp_path / "w")
    table = lake.snapshot_table(str(theirs), "a.t", properties={"write.data.path": folder})
    table.append(rows(2))
    table.overwrite(rows(3))
    lake.drop_table("a.t")
    assert (theirs / "x.parquet").exists()
    assert not lake.exists("a.t")


def test_what_others_use_is_not_purged(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    table = lake.create_table("a.t", SCHEMA, format="iceberg", properties={"gc.enabled": "false"})
    table.append(rows(1))
    before = files(local(table))
    with pytest.raises(UnsupportedFeature, match=r"gc\.enabled=false"):
        lake.drop_table("a.t", purge=True)
    outside = write(tmp_path / "outside" / "x.parquet")
    table.alter().set_properties({"gc.enabled": "true"}).commit()
    pa.parquet.write_table(rows(9), outside)
    table.add_files([str(outside)])
    lake.drop_table("a.t", purge=True)
    assert outside.exists()
    assert before
    assert not local(table).exists()


def test_a_rest_servers_table_goes_with_what_is_its_own():
    with rest_catalog(short=0) as (lake, server):
        table = lake.table("a.t")
        table.append(pa.table({"id": [2]}))
        table.append(pa.table({"id": [3]}))
        server.names.append("alias")
        before = [f.path for f in doors.store(table).list("")]
        with pytest.raises(InvalidInput, match=r"shares its location with a\.alias"):
            lake.drop_table("a.t", purge=True)
        doors.store(table).write(f"data/{LOST}.parquet", b"x")
        with pytest.raises(InvalidInput, match=r"is the location of a\.alias too"):
            table.remove_orphan_files(older_than=AT_ONCE)
        assert [f.path for f in doors.store(table).list("") if LOST not in f.path] == before
        server.names.remove("alias")
        swept = [f.path for f in table.remove_orphan_files(older_than=AT_ONCE)]
        assert [path for path in swept if path.startswith("data/")] == [f"data/{LOST}.parquet"]
        before = [path for path in before if path not in swept]
        lake.drop_table("a.t")
        assert server.names == []
        assert [f.path for f in doors.store(table).list("")] == before


# --- faults -------------------------------------------------------------------------------------------------------------

FIELDS = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))), partitioning=identity("dt")
)


def catalogued(store, inner):
    return Catalogued(store, FailingEntry(store, inner))


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("kind", ["paimon", "iceberg", "catalog"])
def test_the_nth_call_of_a_drop_fails_and_it_is_asked_again(kind, after):
    dialect = paimon if kind == "paimon" else iceberg
    world = (lambda s: catalogued(s, s)) if kind == "catalog" else (lambda s: s)
    first = Counted({}, None)
    table = Table("t", world(first), dialect)
    create(table, FIELDS)
    for i in range(3):
        table.append(rows(i, dt="ab"[i % 2]))
    table.overwrite_partitions(rows(7))
    first.write("notes.txt", b"x")
    held, line = {f.path: first.read(f.path) for f in first.list("")}, first.line
    n = 0
    while True:
        n += 1
        store = Counted(held, line)
        failing = NthCallFails(store, n, after)
        try:
            drop(world(failing), dialect)
        except StoreError:
            if kind != "catalog" and len(store.list("")) > 1:
                assert dialect.is_table(store) or failing.failed.startswith("delete"), failing.failed
            drop(world(store), dialect)
        assert [f.path for f in store.list("")] == ["notes.txt"], (n, failing.failed)
        if failing.failed is None:
            break
    assert n > 4


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_what_is_committed_while_a_table_is_dropped_goes_too(format):
    dialect = {"paimon": paimon, "iceberg": iceberg}[format]

    class Committing(MemoryFiles):
        """Somebody appends just before the first deletion."""

        armed = False

        def delete(self, paths):
            if self.armed:
                self.armed = False
                Table("t", self, dialect).append(rows(9))
            super().delete(paths)

    store = Committing()
    table = Table("t", store, dialect)
    create(table, FIELDS)
    table.append(rows(1))
    store.armed = True
    drop(store, dialect)
    assert store.list("") == []


def test_a_table_that_cannot_be_read_is_dropped_by_names(tmp_path):
    lake = Lake(tmp_path / "w")
    for format, broken in (
        ("paimon", "manifest/manifest-list-*"),
        ("iceberg", "metadata/snap-*.avro"),
        ("iceberg", "metadata/v2*"),
    ):
        table = lake.create_table("a.t", SCHEMA, format=format)
        table.append(rows(1))
        for path in local(table).glob(broken):
            path.write_bytes(gzip.compress(b"nonsense"))
        lake.drop_table("a.t")
        assert not local(table).exists()
