"""Tables in HDFS, of which Arrow's client is replaced by its view of a local folder."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from pyarrow import fs

from lakeformat import InvalidInput, Lake, NoSuchFile, OutOfReach, StoreError, UnsupportedFeature, open_table
from lakeformat.storage.allowed import allowed_in
from lakeformat.storage.files import open_store

ROWS = pa.table({"k": [1, 2, 3], "p": ["a", "a", "b"]})


@pytest.fixture
def connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list:
    """Each connection's address and options; the files are those below tmp_path/hdfs."""
    opened = []

    def connect(*address, **options):
        opened.append((address, {name: value for name, value in options.items() if value}))
        return fs.SubTreeFileSystem(str(tmp_path / "hdfs"), fs.LocalFileSystem())

    (tmp_path / "hdfs").mkdir()
    monkeypatch.setattr(fs, "HadoopFileSystem", connect)
    return opened


@pytest.mark.parametrize(
    ("uri", "root", "address", "path"),
    [
        ("hdfs://nn:8020/a/b/", "hdfs://nn:8020/a/b", ("nn", 8020), "/a/b/x"),
        ("hdfs://service/a", "hdfs://service/a", ("hdfs://service", 0), "/a/x"),
        ("hdfs:///a", "hdfs:///a", ("default", 0), "/a/x"),
        ("hdfs:/a", "hdfs:///a", ("default", 0), "/a/x"),
        ("hdfs://nn2:9000", "hdfs://nn2:9000", ("nn2", 9000), "/x"),
    ],
)
def test_a_location_is_a_name_node_and_a_path(uri, root, address, path, connections, tmp_path):
    store = open_store(uri, {"user": uri, "dfs.replication": "2"})
    assert store.root == root
    assert not connections
    assert store.location("x") == root + "/x"
    (tmp_path / f"hdfs{path}").parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"hdfs{path}").write_bytes(b"1")
    assert store.read("x") == store.read(f"{root}/x") == b"1"
    assert connections == [(address, {"user": uri, "extra_conf": {"dfs.replication": "2"}})]


@pytest.mark.parametrize("uri", ["hdfs://me@nn/x", "hdfs://nn:port/x", "hdfs://nn/a/../b"])
def test_wrong_locations_are_refused_at_once(uri):
    with pytest.raises(InvalidInput):
        open_store(uri)


def test_files_are_listed_and_read(connections, tmp_path):
    store = open_store("hdfs://files:1/t")
    for name in ("hdfs/t/x", "hdfs/t/a/y", "hdfs/t/a/b/z", "hdfs/tt/w"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert [file.path for file in store.list("")] == ["a/b/z", "a/y", "x"]
    assert store.list("")[2].modified_ms == (tmp_path / "hdfs/t/x").stat().st_mtime_ns // 1_000_000
    assert [(file.path, file.size_bytes) for file in store.list("a")] == [("a/b/z", 12), ("a/y", 10)]
    assert (store.list("none"), store.names("none"), store.folders("none")) == ([], [], [])
    assert (store.names(""), store.folders(""), store.folders("a")) == (["x"], ["a"], ["b"])
    assert (store.exists("x"), store.exists("a"), store.exists("none")) == (True, False, False)
    assert list(store.read_many(["x", "none"])) == [b"hdfs/t/x", None]
    with store.open("a/y") as file:
        file.seek(-1, 2)
        assert file.read() == b"y"
    assert store.read("hdfs://files:1/tt/w") == b"hdfs/tt/w"
    (tmp_path / "local").write_bytes(b"local")
    assert store.read(f"file://{tmp_path}/local") == b"local"
    for read in (store.read, store.open):
        with pytest.raises(NoSuchFile, match="hdfs://files:1/t/none: no such file"):
            read("none")


def test_both_formats_are_read_and_neither_is_written(connections, tmp_path):
    lake = Lake(tmp_path / "hdfs")
    lake.create_table("d.paimon", ROWS.schema, partition_by=["p"]).append(ROWS)
    iceberg = lake.create_table("d.iceberg", ROWS.schema, format="iceberg")
    iceberg.append(ROWS)
    relocated = iceberg.rewrite_table_path(f"file://{tmp_path}/hdfs", "hdfs://nn:1")
    for copied in pyarrow.csv.read_csv(
        relocated.file_list.removeprefix("file://"), pyarrow.csv.ReadOptions(column_names=["source", "target"])
    ).to_pylist():
        target = tmp_path / copied["target"].replace("hdfs://nn:1", "hdfs")
        if (source := Path(copied["source"].removeprefix("file://"))) != target:
            shutil.copy(source, target)
    remote = Lake("hdfs://nn:1/")
    assert remote.tables() == ["d.iceberg", "d.paimon"]
    metadata = open_table(f"hdfs://nn:1/d.db/iceberg/metadata/{relocated.latest}")
    tables = [remote.table("d.paimon"), remote.table("d.iceberg"), metadata]
    assert all(uri.startswith("hdfs://nn:1/") for uri in metadata.inspect.files()["path"].to_pylist())
    for table in tables:
        assert table.scan(where="k > 1").to_arrow().sort_by("k")["k"].to_pylist() == [2, 3]
    for table in tables[:2]:
        before = sorted((tmp_path / "hdfs").rglob("*"))
        for change in (
            lambda table=table: table.append(ROWS),
            lambda table=table: table.delete("k = 1"),
            lambda table=table: table.create_tag("v"),
            lambda table=table: table.alter().add_column("x", "int").commit(),
            lambda table=table: remote.drop_table(table.name),
        ):
            with pytest.raises(UnsupportedFeature, match="tables in HDFS can be read but not written"):
                change()
        assert sorted((tmp_path / "hdfs").rglob("*")) == before
    with pytest.raises(UnsupportedFeature, match="read but not written"):
        remote.create_table("d.new", ROWS.schema)


def test_folders_elsewhere_have_the_options_of_hdfs_alone(connections, tmp_path):
    store = open_store("hdfs://here:1/t", {"user": "me"})
    for name in ("hdfs/x", "x"):
        (tmp_path / name).write_bytes(name.encode())
    assert store.read(f"file://{tmp_path}/x") == b"x"
    assert store.read("hdfs://elsewhere:1/x") == b"hdfs/x"
    assert connections == [(("elsewhere", 1), {"user": "me"})]


def test_locations_outside_the_allowed_ones_are_refused(connections):
    allowed = allowed_in("hdfs://nn:1/a", [])
    store = open_store("hdfs://nn:1/a", allowed=allowed)
    for path in ("hdfs://nn:1/b/x", "hdfs://other:1/a/x", "file:///etc/passwd"):
        with pytest.raises(OutOfReach):
            store.read(path)


def test_a_machine_without_libhdfs_says_what_is_lacking(monkeypatch):
    def lacking(*address, **options):
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/libjvm.so) failed")

    monkeypatch.setattr(fs, "HadoopFileSystem", lacking)
    with pytest.raises(
        UnsupportedFeature, match=r"^hdfs://no:1: HDFS needs Java and libhdfs.*\(Unable to load libjvm\)"
    ):
        Lake("hdfs://no:1/x").table("d.t")


def test_a_name_node_that_does_not_answer_is_an_error_of_storage(monkeypatch):
    def refusing(*address, **options):
        raise OSError("HDFS connection failed")

    monkeypatch.setattr(fs, "HadoopFileSystem", refusing)
    with pytest.raises(StoreError, match="hdfs://off:1: cannot connect to: HDFS connection failed"):
        Lake("hdfs://off:1/x").table("d.t")
