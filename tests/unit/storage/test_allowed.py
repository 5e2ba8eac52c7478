"""`allowed_locations`: whatever a table's metadata or a catalog names, nothing outside of them is touched.

Each field of either format that names a file or folder is pointed at files outside, which exist; then each verb runs. A web server counts
requests, and inotify what is opened, made or deleted on disk, also by Arrow and DuckDB.
"""

import ctypes
import datetime
import json
import os
import pickle
import shutil
import sqlite3
import struct
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInput, Lake, LakeError, OutOfReach
from lakeformat.storage import allowed
from tests import doors
from tests.unit.dialects.iceberg.test_foreign_metadata import rewrite
from tests.unit.s3_server import S3Server
from tests.unit.serving import Serving

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
TOMORROW = datetime.timedelta(days=-1)
IN_ALL = 0xFFF  # Each kind of event.


class Watched:
    """What is done in a folder and those below it, by any code of this process."""

    def __init__(self, top):
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._file >= 0
        for folder in [folder for folder, _, _ in os.walk(top)]:
            assert self._libc.inotify_add_watch(self._file, os.fsencode(folder), IN_ALL) >= 0

    def names(self):
        """The names touched since the last call."""
        with suppress(BlockingIOError):
            data, names = os.read(self._file, 1 << 20), []
            while data:
                size = struct.unpack_from("iIII", data)[3]
                names.append(os.fsdecode(data[16 : 16 + size].rstrip(b"\0")))
                data = data[16 + size :]
            return names
        return []

    def close(self):
        os.close(self._file)


class Files(BaseHTTPRequestHandler):
    """Serves the files of the server's `top`, and notes what is asked for."""

    def do_GET(self):
        self.server.paths.append(self.path)
        file = Path(f"{self.server.top}{self.path}")
        data = file.read_bytes() if file.is_file() else b""
        self.send_response(200 if file.is_file() else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else data)

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET

    def log_message(self, *_):
        pass


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def make(root, format):
    """A table with snapshots, a tag, statistics, data files and deletes. Returns its folder."""
    properties, key = {"format-version": "2", "write.delete.mode": "merge-on-read"}, ()
    if format == "paimon":
        properties, key = {"bucket": "1", "deletion-vectors.enabled": "true"}, ["id", "dt"]
    table = Lake(root, fsync="false").create_table("a.t", SCHEMA, format, ["dt"], key, properties)
    table.append(rows(1, 2, 3))
    table.create_tag("old")
    table.append(rows(4, 5, dt="b"))
    table.delete("id = 2")
    if format == "paimon":
        table.compact()
    table.compute_table_stats()
    if format == "iceberg":
        table.compute_partition_stats()
    return Path(table.uri.removeprefix("file://"))


def documents(folder):
    return sorted(folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))


def in_document(change, folder):
    path = documents(folder)[-1]
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def in_records(pattern, keys, folder, moved):
    for path in folder.glob(pattern):

        def change(record):
            entry = record
            for key in keys[:-1]:
                entry = entry[key]
            if entry.get(keys[-1]) is not None:
                entry[keys[-1]] = moved(entry[keys[-1]])

        rewrite(path, change)


def snapshots_of(document, key, moved):
    for snapshot in document["snapshots"]:
        snapshot[key] = moved(snapshot[key])


def statistics_of(key, folder, moved):
    in_document(lambda d: [s.update({"statistics-path": moved(s["statistics-path"])}) for s in d[key]], folder)


def property_of(key, folder, moved):
    in_document(lambda d: d["properties"].update({key: moved(str(folder))}), folder)


def metadata_log(folder, moved):
    def change(document):
        document["properties"] |= {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        }
        for entry in document["metadata-log"]:
            entry["metadata-file"] = moved(entry["metadata-file"])

    in_document(change, folder)


def location(folder, moved):
    in_document(lambda d: d.update({"location": moved(d["location"])}), folder)


def external(pattern, folder, moved):
    """Data or index files at an external path."""
    for path in folder.glob(pattern):

        def change(record):
            entry = record.get("_FILE", record)
            name = entry["_FILE_NAME"]
            (place,) = folder.rglob(name)
            entry["_EXTERNAL_PATH"] = moved(str(place))

        rewrite(path, change)


def paimon_option(key, value, folder, moved):
    path = max(folder.glob("schema/schema-*"))
    document = json.loads(path.read_text())
    document["options"][key] = moved(str(folder)) if value is None else value
    path.write_text(json.dumps(document))


def renamed(key, folder, moved):
    """A manifest list of a snapshot lies elsewhere: Paimon names it relative to its folder."""
    for path in folder.glob("snapshot/snapshot-*"):
        document = json.loads(path.read_text())
        if document.get(key):
            document[key] = moved(f"{folder}/manifest/{document[key]}")
            path.write_text(json.dumps(document))


PLACES = {
    "iceberg": {
        "manifest list": lambda f, moved: in_document(lambda d: snapshots_of(d, "manifest-list", moved), f),
        "manifest": partial(in_records, "metadata/snap-*.avro", ["manifest_path"]),
        "data or delete file": partial(in_records, "metadata/*-m*.avro", ["data_file", "file_path"]),
        "statistics": partial(statistics_of, "statistics"),
        "partition statistics": partial(statistics_of, "partition-statistics"),
        "metadata log": metadata_log,
        "location": location,
        "write.data.path": partial(property_of, "write.data.path"),
        "write.metadata.path": partial(property_of, "write.metadata.path"),
        "write.object-storage.path": partial(property_of, "write.object-storage.path"),
        "write.folder-storage.path": partial(property_of, "write.folder-storage.path"),
    },
    "paimon": {
        "external data file": partial(external, "manifest/manifest-[0-9a-f]*"),
        "external index file": partial(external, "manifest/index-manifest-*"),
        "data-file.external-paths": partial(paimon_option, "data-file.external-paths", None),
        "path": partial(paimon_option, "path", None),
        "base manifest list": partial(renamed, "baseManifestList"),
        "index manifest": partial(renamed, "indexManifest"),
        "statistics": partial(renamed, "statistics"),
    },
}
VERBS = {
    "scan": lambda lake, t, outside: t.scan().to_arrow(),
    "filter": lambda lake, t, outside: t.scan(where="dt = 'b'").to_arrow(),
    "time travel": lambda lake, t, outside: t.scan(tag="old").to_arrow(),
    "sql": lambda lake, t, outside: lake.sql("SELECT count(*), max(id) FROM a.t").to_arrow(),
    "changes": lambda lake, t, outside: t.changes(from_snapshot=t.snapshots()[0].id).to_arrow(),
    "inspect": lambda lake, t, outside: [t.inspect.files(), t.inspect.partitions(), t.inspect.snapshots()],
    "append": lambda lake, t, outside: t.append(rows(9)),
    "upsert": lambda lake, t, outside: (
        t.upsert(rows(1, 9), on=["id"]) if t.format == "iceberg" else t.upsert(rows(1, 9))
    ),
    "overwrite": lambda lake, t, outside: t.overwrite(rows(7), where="dt = 'a'"),
    "delete": lambda lake, t, outside: t.delete("id = 4"),
    "update": lambda lake, t, outside: (
        t.update({"id": "id + 10"}, "id = 3") if t.format == "iceberg" else t.delete("id = 3")
    ),
    "compact": lambda lake, t, outside: t.compact(),
    "rewrite manifests": lambda lake, t, outside: t.rewrite_manifests(),
    "compute statistics": lambda lake, t, outside: t.compute_table_stats(),
    "expire": lambda lake, t, outside: t.expire_snapshots(retain_last=1, older_than=TOMORROW),
    "delete tag": lambda lake, t, outside: t.delete_tag("old"),
    "sweep": lambda lake, t, outside: t.remove_orphan_files(older_than=TOMORROW),
    "missing files": lambda lake, t, outside: t.missing_files(),
    "purge": lambda lake, t, outside: t.purge(),
    "drop": lambda lake, t, outside: lake.drop_table("a.t"),
    "rename": lambda lake, t, outside: lake.rename_table("a.t", "a.u"),
    "convert": lambda lake, t, outside: lake.convert("a.t", {"iceberg": "paimon", "paimon": "iceberg"}[t.format]),
    "copy": lambda lake, t, outside: lake.create_table_as("a.u", t.scan(), t.schema),
    "copy table path": lambda lake, t, outside: t.rewrite_table_path(t.uri, "s3://b/t"),
    "add files": lambda lake, t, outside: t.add_files([f"{outside}/x.parquet"]),
    "load files": lambda lake, t, outside: lake.load_files("a.t", f"{outside}/x.parquet", "parquet"),
    "export": lambda lake, t, outside: lake.export_files(rows(1), f"{outside}/new", "parquet"),
}


class World:
    """A table of each format, whose metadata name files `outside`, which is watched."""

    def __init__(self, top):
        self.top, self.home, self.outside = top, top / "home", top / "outside"
        self.folders = {format: make(self.home / format, format) for format in PLACES}
        shutil.copytree(self.home, top / "kept")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
        self.server.top, self.server.paths = self.outside, []

    def pointed(self, format, place, way):
        """The warehouse, with one field of the table's metadata pointed outside."""
        for folder in (self.home, self.outside):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.top / "kept" / format, folder / format)
        (self.outside / "x.parquet").write_bytes(next(self.outside.rglob("*.parquet")).read_bytes())
        (self.home / format / "link").symlink_to(self.outside)
        root = {
            "folder": f"file://{self.outside}",
            "plain": f"{self.outside}",
            "link": f"file://{self.home}/{format}/link",
        }.get(way, f"http://127.0.0.1:{self.server.server_address[1]}")
        PLACES[format][place](
            self.folders[format], lambda path: root + path.removeprefix("file://").removeprefix(str(self.home))
        )
        return self.home / format

    def touched(self, format, place, way, verb, locations):
        """(what was touched outside; the error)."""
        root = self.pointed(format, place, way)
        watched, error = Watched(self.outside), None
        self.server.paths.clear()
        try:
            lake = Lake(root, allowed_locations=locations, fsync="false")
            VERBS[verb](lake, lake.table("a.t"), self.outside)
        except LakeError as raised:
            error = raised
        finally:
            names = watched.names() + self.server.paths
            watched.close()
        return names, error


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("allowed"))
    with Serving(world.server):
        yield world


WAYS = ["folder", "plain", "link", "web"]
PAIRS = [(format, place) for format in PLACES for place in PLACES[format]]
IS_LONG = int(os.environ.get("LAKEFORMAT_EXAMPLES", "0")) >= 300


@pytest.mark.drawn(9)
@pytest.mark.parametrize(("format", "place"), PAIRS)
def test_no_verb_touches_what_metadata_name_outside(world, format, place):
    """The short run takes some verbs and ways of each place, so that together all are taken."""
    number = PAIRS.index((format, place))
    crossed = [(verb, way) for verb in VERBS for way in WAYS]
    for verb, way in crossed if IS_LONG else crossed[number % 25 :: 25]:
        names, error = world.touched(format, place, way, verb, [])
        assert names == [], (format, place, way, verb, error)
        if isinstance(error, OutOfReach):
            assert "allowed_locations" in str(error), error
            assert "none of the allowed locations" in str(error), error


@pytest.mark.parametrize("format", PLACES)
def test_a_link_in_the_tables_folder_is_followed_only_where_it_may(world, format):
    root = world.pointed(format, next(iter(PLACES[format])), "folder")
    shutil.rmtree(root)
    shutil.copytree(world.top / "kept" / format, root)
    for file in [*root.rglob("*.parquet")]:
        file.unlink()
        file.symlink_to(world.outside / format / file.relative_to(root))
    with pytest.raises(OutOfReach, match="none of the allowed locations"):
        Lake(root, allowed_locations=[]).table("a.t").scan().to_arrow()
    table = Lake(root, allowed_locations=[world.outside]).table("a.t")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3, 4, 5]
    assert pickle.loads(pickle.dumps(Lake(root, allowed_locations=[]))).allowed_locations == (str(root),)


@pytest.mark.parametrize("format", PLACES)
def test_open_table_keeps_to_the_tables_folder(world, format):
    place = {"iceberg": "manifest", "paimon": "external data file"}[format]
    root = world.pointed(format, place, "folder")
    path = root / "a.db" / "t"
    paths = [path, documents(path)[-1]] if format == "iceberg" else [path]
    for opened in paths:
        assert lakeformat.open_table(opened).scan().to_arrow().num_rows == 4
        assert lakeformat.open_table(opened, allowed_locations=[world.outside]).scan().to_arrow().num_rows == 4
        with pytest.raises(OutOfReach, match=r"a\.db/t"):
            lakeformat.open_table(opened, allowed_locations=[]).scan().to_arrow()
    if format == "iceberg":  # The location in the document is no reason to trust it.
        root = world.pointed(format, "location", "folder")
        with pytest.raises(OutOfReach, match="outside"):
            lakeformat.open_table(documents(path)[-1], allowed_locations=[]).scan().to_arrow()


def test_what_a_sql_catalog_names_must_be_allowed(world, tmp_path):
    outside = world.pointed("iceberg", "statistics", "folder") and world.outside / "iceberg" / "a.db" / "t"
    root = tmp_path / "w"
    lake = Lake(root, catalog="sql")
    lake.create_table("a.t", SCHEMA, "iceberg").append(rows(1))
    lake.sql("CREATE VIEW a.v AS SELECT id FROM a.t")
    document, view = documents(outside)[-1], next(path for path in root.rglob("*.json") if "/v/" in str(path))
    shutil.copy(view, outside / "view.metadata.json")
    with sqlite3.connect(root / "catalog.sqlite") as connection:
        for name, place in [("t", document), ("v", outside / "view.metadata.json")]:
            connection.execute(
                "update iceberg_tables set metadata_location = ? where table_name = ?", (f"file://{place}", name)
            )
    watched, keeping = Watched(outside), Lake(root, catalog="sql", allowed_locations=[])
    for call in (
        lambda: keeping.table("a.t"),
        lambda: keeping.sql("SELECT * FROM a.v"),
        lambda: keeping.sql("DROP VIEW a.v"),
        lambda: keeping.drop_table("a.t", purge=True),
        lambda: keeping.register_table("a.u", f"file://{document}"),
        lambda: keeping.create_table("a.u", SCHEMA, "iceberg", location=f"{outside}/new"),
        lambda: keeping.snapshot_table(str(outside), "a.u"),
        lambda: keeping.sql(f"CALL system.add_files(table => 'a.t', source_table => '`parquet`.`{outside}`')"),
    ):
        with pytest.raises(OutOfReach, match="allowed"):
            call()
    assert watched.names() == []
    watched.close()
    assert Lake(root, catalog="sql", allowed_locations=[world.top]).table("a.t").uri


def test_what_a_paimon_catalog_names_must_be_allowed(world, tmp_path):
    outside = world.pointed("paimon", "statistics", "folder") and world.outside / "paimon" / "a.db" / "t"
    arguments = {"catalog": "sql", "catalog_options": {"format": "paimon"}}
    Lake(tmp_path / "w", **arguments).register_table("a.t", str(outside))
    watched, keeping = Watched(outside), Lake(tmp_path / "w", allowed_locations=[], **arguments)
    for call in (
        lambda: keeping.table("a.t").scan().to_arrow(),
        lambda: keeping.register_table("a.u", str(outside)),
        lambda: keeping.create_table("a.u", SCHEMA, location=f"{outside}/new"),
    ):
        with pytest.raises(OutOfReach, match="allowed"):
            call()
    assert watched.names() == []
    watched.close()


@pytest.mark.parametrize(
    ("folder", "inside", "beside"),
    [
        ("s3://b/a", ["s3://b/a/x", "s3a://b/a/x", "S3://b/a/x/y", "s3n://b/a"], ["s3://b/ab", "s3://b/x", "s3://B/a/x", "gs://b/a/x"]),
        ("s3://b/a/", ["s3://b/a", "s3://b/a/"], ["s3://b/ab/", "s3://b", "s3://b/%61/x", "s3://b@c/a/x"]),
        ("s3a://b", ["s3://b/x", "s3://b/"], ["s3://b2/x", "s3://b.c/x", "file:///b/x", "/b/x"]),
        ("abfss://c@n.dfs.core.windows.net/p", ["abfs://c@n.dfs.core.windows.net/p/x"], ["abfss://c@m.dfs.core.windows.net/p/x"]),
        ("https://Host/a", ["https://host/a/x"], ["http://host/a/x", "https://host:8443/a/x", "https://host@evil/a/x", "https://host.evil/a/x"]),
        ("http://host/a", ["http://HOST/a/x", "https://host/a"], ["http://host/ab", "http://10.0.0.1/a/x"]),
        ("/no/such", ["file:/no/such/x", "file:///no/such", "FILE:///no/such/x", "file://localhost/no/such/x", "/no//such/x"],
         ["/no/suchx", "/no", "/no/such/../x", "file:///no/%73uch/x", "file:/etc", "s3://no/such/x"]),
        ("/", ["/etc/passwd", "file:/x"], ["s3://b/x", "http://host/x"]),
    ],
)  # fmt: skip
def test_spellings_of_a_location(folder, inside, beside):
    locations = allowed.allowed_in("/warehouse", [folder])
    for location in inside:
        locations.require(location, "t")
    for location in beside:
        with pytest.raises(OutOfReach, match=r"^t names .* none of the allowed locations .*allowed_locations"):
            locations.require(location, "t")


@pytest.mark.parametrize("locations", ["s3://b/a", ["folder"], ["/a/../b"], [3], b"x", 7, ["~/x"], [""]])
def test_bad_locations_are_refused(tmp_path, locations):
    with pytest.raises(InvalidInput, match="allowed_locations"):
        Lake(tmp_path, allowed_locations=locations)


def test_object_storage_is_kept_to_as_well(world):
    """A table in a bucket names what is in another one, in this process's files, and on a web server."""
    with S3Server() as storage:
        bucket, other = storage.new_bucket(), storage.new_bucket()
        Lake(f"{other}/w", **storage.options).create_table("a.t", SCHEMA, "iceberg").append(rows(1))
        lake = Lake(f"{bucket}/w", allowed_locations=[], **storage.options)
        table = lake.create_table("a.t", SCHEMA, "iceberg")
        for name in (
            f"{other}/w/a.db/t/x",
            "/etc/passwd",
            "file:/etc/passwd",
            "http://127.0.0.1:1/x/y",
            f"{bucket}/w2/x",
        ):
            for call in (
                doors.store(table).read,
                doors.store(table).exists,
                doors.store(table).open,
                doors.store(table).location,
            ):
                with pytest.raises(OutOfReach, match=r"names .* none of the allowed locations"):
                    call(name)
        with pytest.raises(OutOfReach, match="outside, which"):
            Lake(f"{other}/w", allowed_locations=[], **storage.options).load_files("a.t", f"{world.outside}", "parquet")


def test_the_folder_of_loaded_files_may_be_the_allowed_one(world, tmp_path):
    world.pointed("paimon", "statistics", "folder")
    lake = Lake(tmp_path / "w", allowed_locations=[world.outside])
    for number, address in enumerate((world.outside, world.outside / "x.parquet")):
        lake.create_table(f"a.t{number}", SCHEMA)
        lake.load_files(f"a.t{number}", str(address), "parquet")
        assert lake.table(f"a.t{number}").scan().to_arrow().num_rows > 0
