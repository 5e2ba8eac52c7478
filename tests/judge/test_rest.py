"""Iceberg's own REST catalog, in a process of its own, with our client and, beside it, pyiceberg's and DuckDB as readers."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pickle
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, NotFound, StoreError, open_table
from lakeformat.catalogs.rest import RestCatalog
from lakeformat.model import evolution
from lakeformat.table import Table
from tests.judge import environments
from tests.judge.test_iceberg import counted, ours
from tests.simulation.writers import SCHEMA as WRITERS_SCHEMA
from tests.simulation.writers import write

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
CREDENTIAL = "me:secret"
COMMITS = 5


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table: Table, **version: Any) -> list[int]:
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


def serve(folder: Path, **environ: str) -> Iterator[str]:
    command = environments.rest_server(folder / "served", CREDENTIAL)
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}, cwd=folder
    )
    assert server.stdin is not None
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.stdin.close()
    server.wait(30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serve(tmp_path_factory.mktemp("rest"))


@pytest.fixture(scope="module")
def loser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server every second of whose commits loses its answer."""
    yield from serve(tmp_path_factory.mktemp("loser"), LOSE_ANSWERS="2")


def opened(address: str, folder: Path) -> Lake:
    options = {"credential": CREDENTIAL, "warehouse": "main"}
    return Lake(str(folder / "warehouse"), catalog=address, catalog_options=options)


def seen_by_all(engines: dict, lake: Lake, table: Table) -> None:
    location = lake._catalog.entry(table.name).location().removeprefix("file:").replace("//", "/")  # type: ignore[union-attr]
    for reader in ("pyiceberg", "duckdb"):
        assert counted(engines[reader].ask(verb="read", metadata=location)["rows"]) == ours(table), reader


def test_every_verb_is_a_commit_that_the_server_takes(engines: dict, server: str, tmp_path: Path) -> None:
    lake = opened(server, tmp_path)
    t = lake.create_table(
        "shop.orders",
        SCHEMA,
        format="iceberg",
        partition_by=["dt"],
        properties={"k": "v"},
        comment="c",
        sort_by=["id desc"],
    )
    assert (t.schema.sort_order.id, str(t.schema.sort_order.fields[0])) == (1, "id DESC NULLS LAST")
    lake.create_table("shop.items", SCHEMA).append(rows(1))
    assert lake.tables("shop") == ["shop.items", "shop.orders"]
    assert (t.schema.names, t.properties["k"], t.schema.comment) == (("id", "dt"), "v", "c")
    first = t.append(rows(1, 2, 3), id="first")
    assert first is not None
    assert t.append(rows(1, 2, 3), id="first").id == first.id  # type: ignore[union-attr]
    t.overwrite_partitions(rows(4, 5, dt="b"))
    t.create_tag("one", snapshot_id=first.id, retain=datetime.timedelta(days=1))
    t.delete("id = 1")
    t.update({"id": "id + 10"}, where="id = 2")
    t.evolve([evolution.AddColumn("x", "int")], id="evolved")
    t.evolve([evolution.AddColumn("x", "int")], id="evolved")  # Landed already.
    t.alter().rename_column("x", "y").set_properties({"a": "b"}).remove_properties("k").commit()
    t.append(pa.table({"id": [9], "dt": ["c"], "y": [7]}))
    assert (t.schema.names, dict(t.properties)) == (
        ("id", "dt", "y"),
        {"a": "b", "write.parquet.compression-codec": "zstd"},
    )
    assert content(t) == [3, 4, 5, 9, 12]
    seen_by_all(engines, lake, t)
    assert content(t, tag="one") == [1, 2, 3]
    b = t.create_branch("audit", keep_snapshots=2)
    b.append(pa.table({"id": [30], "dt": ["a"], "y": [1]}))
    assert (content(t), content(b)) == ([3, 4, 5, 9, 12], [3, 4, 5, 9, 12, 30])
    seen_by_all(engines, lake, t)
    t.fast_forward("audit")
    seen_by_all(engines, lake, t)
    for asked, expected in ((["dt", "bucket(4, id)"], 2), ([], 0), (["id desc"], 1)):
        assert t.alter().set_sort_order(asked).commit().sort_order.id == expected
    t.delete_branch("audit")
    assert t.inspect.branches()["branch_name"].to_pylist() == ["main"]
    t.compact(sort_by=True)
    assert set(t.inspect.files()["sort_order_id"].to_pylist()) == {1}
    t.rollback_to(tag="one")
    seen_by_all(engines, lake, t)
    t.delete_tag("one")
    t.append(pa.table({"id": [20], "dt": ["a"], "y": [1]}))
    assert t.expire_snapshots(retain_last=1).snapshots
    assert t.remove_orphan_files(older_than=0) == []
    assert content(t) == [1, 2, 3, 20]
    seen_by_all(engines, lake, t)
    t.truncate()
    assert content(pickle.loads(pickle.dumps(lake)).table("shop.orders")) == []
    assert len(t.snapshots()) == 2


def test_names_are_the_servers(server: str, tmp_path: Path) -> None:
    lake = opened(server, tmp_path)
    names = [f"many.t{i}" for i in range(5)]  # More than a page.
    for name in names:
        lake.create_table(name, SCHEMA, format="iceberg")
    made = lake.create_table_as("many.inside.t", rows(1), SCHEMA, format="iceberg", id="made")
    assert (made.operation_id, made.rows_added) == ("made", 1)
    with pytest.raises(InvalidInput):
        lake.create_table_as("many.fails", pa.table({"other": [1]}), SCHEMA, format="iceberg")
    assert not lake.exists("many.fails")
    assert lake.tables("many") == names
    assert {"many", "many.inside"} <= set(lake.namespaces())
    assert lake.tables("many.inside") == ["many.inside.t"]
    with pytest.raises(AlreadyExists, match=r"many\.t0"):
        lake.create_table("many.t0", SCHEMA, format="iceberg")
    with pytest.raises(AlreadyExists, match=r"many\.t1"):
        lake.rename_table("many.t0", "many.t1")
    moved = lake.rename_table("many.inside.t", "other.t")
    assert content(moved) == [1]
    location = lake._catalog.entry("other.t").location()  # type: ignore[union-attr]
    lake._catalog.drop("other.t")  # type: ignore[union-attr]
    with pytest.raises(NotFound, match=r"other\.t"):
        moved.append(rows(2))
    back = lake.register_table("other.back", location)
    back.append(rows(3))
    assert content(back) == [1, 3]
    lake.drop_table("other.back", purge=True)
    assert not lake.exists("other.back")
    assert [p for p in Path(back.uri.removeprefix("file://")).rglob("*") if p.is_file()] == []


def test_views_are_changed_by_the_server(server: str, tmp_path: Path) -> None:
    lake = opened(server, tmp_path)
    lake.create_table("seen.t", SCHEMA, format="iceberg").append(rows(1, 2, 3))
    lake.sql("USE seen; CREATE VIEW v (n COMMENT 'many') TBLPROPERTIES ('a' = 'b') AS SELECT count(*) FROM t")
    with pytest.raises(AlreadyExists):
        lake.sql("CREATE VIEW v AS SELECT 1 AS a")
    assert lake.sql("SELECT n FROM v").to_arrow()["n"].to_pylist() == [3]
    lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id > 1; ALTER VIEW v SET TBLPROPERTIES ('a' = 'c')")
    lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t; CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id > 1")
    assert lake.sql("SELECT id FROM v ORDER BY id").to_arrow()["id"].to_pylist() == [2, 3]
    found = lake._catalog.find_view("seen.v", {})  # type: ignore[union-attr]
    assert [version["version-id"] for version in found.document["versions"]] == [1, 2, 3]
    assert (found.document["current-version-id"], found.document["properties"]["a"]) == (2, "c")
    lake.sql("CALL sys.alter_view_dialect('seen.v', 'add', 'trino', 'SELECT 1'); ALTER VIEW v RENAME TO w")
    with pytest.raises(NotFound, match=r"no view 'seen\.v'"):
        lake.sql("DROP VIEW v")
    assert lake.views.names("seen") == ["seen.w"]
    lake.sql("DROP VIEW w")
    assert lake.views.names("seen") == []


def test_a_lost_answer_is_found_again(loser: str, tmp_path: Path) -> None:
    lake = opened(loser, tmp_path)
    t = lake.create_table("a.t", SCHEMA, format="iceberg", if_exists="ignore")
    for i in range(6):
        t.append(rows(i), id=f"op-{i}")
        t.evolve([evolution.AddColumn(f"c{i}", "int")], id=f"column-{i}")
    assert content(t) == list(range(6))
    assert t.schema.names == ("id", "dt", *(f"c{i}" for i in range(6)))
    assert len(t.snapshots()) == 6
    assert t.remove_orphan_files(older_than=0, dry_run=True) == []


def test_four_processes_lose_nothing_and_double_nothing(server: str, tmp_path: Path) -> None:
    where = str(tmp_path / "w")
    options = {"catalog": server, "catalog_options": {"token": "none", "credential": CREDENTIAL, "warehouse": "main"}}
    table = Lake(where, **options).create_table(  # type: ignore[arg-type]
        "db.t", WRITERS_SCHEMA, format="iceberg", partition_by=["dt"], properties={"commit.retry.num-retries": "200"}
    )
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context, initializer=context.Barrier(4).wait) as pool:
        told = [each for told in pool.map(write, [(where, options, i, COMMITS) for i in range(4)]) for each in told]
    history = table.snapshots()
    assert {(s.operation_id, s.id) for s in history} == {(id, snapshot_id) for id, snapshot_id, _ in told}
    assert len(history) == 4 * COMMITS
    assert sum(attempts for _, _, attempts in told) > 4 * COMMITS, "no race was lost: nothing was tested"
    expected = [writer * 1000 + i for writer in range(4) for i in range(COMMITS)]
    assert Counter(content(table)) == Counter(expected)


def test_what_a_server_refuses_is_said(server: str, tmp_path: Path) -> None:
    for options, says in (
        ({"credential": "me:mistaken", "warehouse": "main"}, "wrong credential"),
        ({"token": "nobody's", "warehouse": "main"}, "401"),
        ({"credential": CREDENTIAL, "warehouse": "none"}, "no such warehouse"),
    ):
        with pytest.raises(StoreError, match=says) as raised:
            Lake(str(tmp_path / "w"), catalog=server, catalog_options=options).tables()
        assert "secret" not in str(raised.value)
        assert "mistaken" not in str(raised.value)
    with pytest.raises(InvalidInput, match="'tokens'"):
        Lake(str(tmp_path / "w"), catalog=server, catalog_options={"tokens": "x"})
    with pytest.raises(StoreError, match="does not answer"):
        Lake(str(tmp_path / "w"), catalog="http://127.0.0.1:1").tables()


@pytest.mark.parametrize("answers", ["kept", "lost"])
def test_a_paimon_table_is_shown_in_the_catalog_after_each_verb(
    server: str, loser: str, tmp_path: Path, answers: str
) -> None:
    """`metadata.iceberg.storage=rest-catalog`: what the server shows are the table's rows; an answer lost is made up for."""
    address = server if answers == "kept" else loser
    catalog = RestCatalog(address, (("credential", CREDENTIAL), ("warehouse", "main")))
    given = {"storage": "rest-catalog", "rest.uri": address, "rest.credential": CREDENTIAL, "rest.warehouse": "main"}
    properties = {f"metadata.iceberg.{key}": value for key, value in given.items()}
    properties |= {"metadata.iceberg.database": "shown", "bucket": "-1"}
    if answers == "lost":
        properties["metadata.iceberg.storage-location"] = "table-location"
    lake, name = Lake(tmp_path / "w"), f"shown.t_{answers}"
    t = lake.create_table(f"d.t_{answers}", SCHEMA, format="paimon", partition_by=["dt"], properties=properties)

    def require_shown() -> None:
        t.sync_iceberg()
        loaded = catalog.entry(name).load()
        assert loaded is not None
        found = open_table(loaded["metadata-location"].removeprefix("file:").replace("//", "/"))
        assert sorted(map(str, found.scan().to_arrow().to_pylist())) == sorted(
            map(str, t.scan().to_arrow().to_pylist())
        )
        assert {tag["name"] for tag in found.inspect.refs().to_pylist() if tag["type"] == "TAG"} == set(
            t.inspect.tags()["tag_name"].to_pylist()
        )

    t.append(pa.table({"id": [1, 2, 3], "dt": ["a", "a", "b"]}))
    require_shown()
    for change in (
        lambda: t.append(pa.table({"id": [4], "dt": ["c"]})),
        lambda: t.delete("id = 2"),
        lambda: t.create_tag("v1"),
        lambda: t.alter().add_column("x", "int").commit(),
        lambda: t.overwrite_partitions(pa.table({"id": [9], "dt": ["a"], "x": pa.array([1], pa.int32())})),
        lambda: t.compact(full=True),
        lambda: t.expire_snapshots(retain_last=1),
        lambda: t.delete_tag("v1"),
        lambda: t.append(pa.table({"id": [5], "dt": ["c"], "x": pa.array([2], pa.int32())})),
        lambda: t.append(pa.table({"id": [6], "dt": ["c"], "x": pa.array([2], pa.int32())})),
        lambda: t.rollback_to(snapshot_id=t.snapshots()[-2].id),
        lambda: t.append(pa.table({"id": [7], "dt": ["c"], "x": pa.array([2], pa.int32())})),
    ):
        change()
        require_shown()
    lake.drop_table(t.name)
    assert catalog.entry(name).load() is None
