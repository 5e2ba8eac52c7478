"""Tables that are opened without a warehouse: by folder or metadata file, and only read."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInput, Lake, NoSuchFile, NotFound, UnsupportedFeature
from lakeformat.errors import AlreadyExists, CorruptTable
from lakeformat.table import Table
from tests import doors
from tests.unit.s3_server import S3Server

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": ["a"] * len(ids)})


def ids(table, **version):
    return sorted(table.scan(**version).to_arrow()["id"].to_pylist())


def folder(table):
    return Path(table.uri.removeprefix("file://"))


def files(path):
    return {p: p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.fixture(params=["paimon", "iceberg", "iceberg in a catalog"])
def made(request, tmp_path):
    """(a table, what it is opened by)"""
    in_catalog = request.param.endswith("catalog")
    lake = Lake(tmp_path / "w", catalog="sql" if in_catalog else None)
    table = lake.create_table("a.t", SCHEMA, format=request.param.split()[0], partition_by=["dt"])
    table.append(rows(1))
    table.create_tag("one")
    table.append(rows(2, 3))
    return table, lake._catalog.entry("a.t").location() if in_catalog else table.uri


def test_a_table_is_read_and_no_verb_changes_it(made):
    table, path = made
    opened = lakeformat.open_table(path)
    before = files(folder(table))
    for view in (opened, opened.branch("main")):
        assert (ids(view), ids(view, tag="one"), view.schema, view.format) == (
            [1, 2, 3], [1], table.schema, table.format,
        )  # fmt: skip
        assert view.snapshots() == table.snapshots()
        assert view.inspect.files() == table.inspect.files()
        assert sorted(r["id"] for r in view.changes(0).to_arrow().to_pylist()) == [1, 2, 3]
        assert str(view.uri) == table.uri
    reads = {"branch", "changes", "current_snapshot", "dry_run", "scan", "snapshot", "snapshots"}
    verbs = [
        name for name, it in vars(Table).items() if not name.startswith("_") and callable(it) and name not in reads
    ]
    assert {"append", "alter", "compact", "expire_snapshots", "remove_orphan_files", "stream", "truncate"} <= set(verbs)
    for verb in verbs:
        for view in (opened, opened.branch("main")):
            with pytest.raises(InvalidInput, match=rf"{verb}: .* was opened by open_table"):
                getattr(view, verb)()
    with pytest.raises((InvalidInput, UnsupportedFeature), match=r"read-only|no consumers"):
        opened.changes(0, consumer="c")
    for change in (
        lambda s: s.write("x", b""), lambda s: s.create("x", b""), lambda s: s.create_stream("x"), lambda s: s.delete(["x"]),
        lambda s: s.remove_empty_folders(["x"]), lambda s: s.move_folder("x", "y"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match="read-only"):
            change(doors.store(opened))
    assert files(folder(table)) == before
    table.append(rows(4))
    assert ids(opened) == ([1, 2, 3] if path.endswith(".json") else [1, 2, 3, 4])


def test_a_metadata_file_is_the_table_as_it_was_then(tmp_path, monkeypatch):
    table = Lake(tmp_path / "w").create_table("a.t", SCHEMA, format="iceberg")
    table.append(rows(1))
    table.append(rows(2))
    monkeypatch.chdir(folder(table) / "metadata")
    for path in ("v2.metadata.json", Path("v2.metadata.json").absolute(), f"{table.uri}/metadata/v2.metadata.json"):
        then = lakeformat.open_table(path)
        twin, _ = then.dry_run()
        twin.append(rows(3))
        assert (ids(then), ids(twin)) == ([1], [1, 3])
    assert ids(lakeformat.open_table(os.pardir)) == [1, 2]


def test_tables_in_object_storage_take_its_options():
    with S3Server() as server:
        lake = Lake(f"{server.new_bucket()}/w", **server.options)
        for format in ("paimon", "iceberg"):
            table = lake.create_table(f"a.{format}", SCHEMA, format=format)
            table.append(rows(1))
            assert ids(lakeformat.open_table(table.uri, **server.options)) == [1]
        document = f"{table.uri}/metadata/v2.metadata.json"
        assert ids(lakeformat.open_table(document, **server.options)) == [1]


def test_a_folder_of_a_catalogs_metadata_says_so(tmp_path, caplog):
    table = Lake(tmp_path / "w", catalog="sql").create_table("a.t", SCHEMA, format="iceberg")
    table.append(rows(1))
    newest = sorted(folder(table).glob("metadata/*.json"))[-1]
    says = rf"in a catalog.*open_table\('file://{newest}'\)"
    lake = Lake(tmp_path / "w")
    assert lake.tables() == []
    assert f"1 folders hold Iceberg tables of a catalog, which are not listed, e.g. {table.uri}" in caplog.text
    with pytest.raises(NotFound, match=says):
        lakeformat.open_table(table.uri)
    with pytest.raises(NotFound, match=says):
        lake.table("a.t")
    for format in ("paimon", "iceberg"):
        with pytest.raises(AlreadyExists, match=says):
            lake.create_table("a.t", SCHEMA, format=format)
    with pytest.raises(InvalidInput, match=says):
        Lake(table.uri).tables()
    assert ids(lakeformat.open_table(newest)) == [1]


def test_what_is_no_table_is_refused_by_name(tmp_path):
    (tmp_path / "metadata").mkdir()
    bad = tmp_path / "metadata" / "v1.metadata.json"
    bad.write_text("[]")
    for path, error, says in (
        (tmp_path / "nothing", NotFound, "nothing: there is no Paimon or Iceberg table"),
        (bad, CorruptTable, "not an object"),
        (tmp_path / "metadata" / "v9.metadata.json", NoSuchFile, r"v9\.metadata\.json"),
        (None, InvalidInput, "None is not a table"),
        ("", InvalidInput, "is not a table"),
    ):
        with pytest.raises(error, match=says):
            lakeformat.open_table(path)


def test_a_file_that_cannot_be_read_gets_no_name(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    table = Lake(tmp_path / "elsewhere").create_table("x.y", SCHEMA, format="iceberg")
    good = json.loads((folder(table) / "metadata/v1.metadata.json").read_text())
    for text, error in (
        (None, NoSuchFile),
        ("", CorruptTable),
        ("{}", CorruptTable),
        (json.dumps({**good, "format-version": 9}), UnsupportedFeature),
        (json.dumps({**good, "location": None}), CorruptTable),
    ):
        path = tmp_path / "00000-x.metadata.json"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        with pytest.raises(error, match=path.name):
            lake.register_table("a.bad", str(path))
        assert (lake.tables(), lake.namespaces(), lake.exists("a.bad")) == ([], [], False)
    (tmp_path / "00000-x.metadata.json").write_text(json.dumps(good))
    assert ids(lake.register_table("a.good", str(tmp_path / "00000-x.metadata.json"))) == []
