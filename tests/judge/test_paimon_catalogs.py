"""Paimon's JDBC catalog, Java's and ours: each opens, reads, continues, renames and drops what the other made. Its REST catalog, by its
own server: what Java writes is listed and read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, Lake, NotFound, StoreError
from lakeformat.catalogs.paimon_rest import PaimonRestCatalog, _path
from lakeformat.table import Table
from tests.unit.catalogs.test_paimon_rest import Server
from tests.unit.serving import Serving

from . import environments
from .peers import Conversation

GIVEN = {"format": "paimon", "warehouse": "main", "token": "token"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("dt", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [f"v{id}" for id in ids]})


def content(table: Table) -> list[list]:
    return sorted([row["id"], row["dt"]] for row in table.scan(["id", "dt"]).to_arrow().to_pylist())


@pytest.fixture(scope="module")
def java() -> Iterator[Conversation]:
    spoken = Conversation("paimon-catalogs", environments.paimon_catalogs)
    yield spoken
    spoken.close()


@pytest.mark.parametrize("locks", ["false", "true"])
@pytest.mark.parametrize("keyed", [False, True])
def test_one_jdbc_catalog_is_the_same_to_both(java: Conversation, tmp_path: Path, locks: str, keyed: bool) -> None:
    lake = Lake(tmp_path / "w", catalog="sql", catalog_options={"format": "paimon", "lock.enabled": locks})
    # Java keeps readers open, for whose end its own lock would wait for ever with SQLite's other journals.
    uri = f"jdbc:sqlite:{tmp_path}/w/catalog.sqlite?journal_mode=WAL"
    catalog = {
        "metastore": "jdbc", "uri": uri, "warehouse": str(tmp_path / "w"), "lock.enabled": locks, "jdbc.user": "u",
        "jdbc.password": "p",
    }  # fmt: skip
    options = {"bucket": "1" if keyed else "-1"}
    (tmp_path / "w").mkdir()

    def theirs(verb: str, table: str = "a.theirs", **how: object) -> object:
        return java.ask(verb=verb, catalog=catalog, table=table, **how)

    theirs("create", keyed=keyed, options=options)
    theirs("write", rows=[[1, "v1"], [2, "v2"]])
    table = lake.table("a.theirs")
    table.append(rows(3))
    theirs("write", rows=[[4, "v4"]])
    table.delete("id = 1")
    expected = [[2, "v2"], [3, "v3"], [4, "v4"]]
    assert sorted(theirs("read")) == content(table) == expected  # type: ignore[call-overload]
    theirs("add_column", name="x")
    assert table.schema.names == ("id", "dt", "x")
    table.alter().drop_column("x").commit()
    moved = lake.rename_table("a.theirs", "b.moved")
    assert sorted(theirs("read", "b.moved")) == content(moved) == expected  # type: ignore[call-overload]

    key = ["id"] if keyed else []
    own = lake.create_table("a.own", SCHEMA, primary_key=key, properties=options)
    own.append(rows(1))
    theirs("write", "a.own", rows=[[2, "v2"]])
    own.append(rows(3))
    assert theirs("tables") == lake.tables() == ["a.own", "b.moved"]
    theirs("rename", "a.own", to="b.own")
    found = lake.table("b.own")
    assert sorted(theirs("read", "b.own")) == content(found) == [[1, "v1"], [2, "v2"], [3, "v3"]]  # type: ignore[call-overload]
    theirs("drop", "b.moved")
    assert lake.tables() == ["b.own"]
    lake.drop_table("b.own")
    assert theirs("tables") == lake.tables() == []
    theirs("create", "b.own", keyed=keyed, options=options)
    assert content(lake.table("b.own")) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Java's REST catalog, over a folder; the token is `token`."""
    folder = tmp_path_factory.mktemp("served")
    command = environments.paimon_catalogs("Server", str(folder), "token")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    yield process.stdout.readline().strip().rstrip("/")
    process.stdin.close()
    process.wait(30)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_rest_catalog_is_listed_and_read(java: Conversation, server: str, tmp_path: Path, keyed: bool) -> None:
    namespace = f"n{keyed}".lower()
    catalog = {"metastore": "rest", "uri": server, "warehouse": "main", "token.provider": "bear", "token": "token"}
    lake = Lake(tmp_path / "w", catalog=server, catalog_options=GIVEN)

    def theirs(verb: str, table: str = f"{namespace}.t", **how: object) -> object:
        return java.ask(verb=verb, catalog=catalog, table=table, **how)

    theirs("create", keyed=keyed, options={"bucket": "1" if keyed else "-1"})
    table = lake.table(f"{namespace}.t")
    assert (content(table), table.current_snapshot()) == ([], None)
    theirs("write", rows=[[1, "v1"], [2, "v2"]])
    assert content(table) == [[1, "v1"], [2, "v2"]]
    theirs("add_column", name="x")
    theirs("write", rows=[[3, "v3"]])
    assert (content(table), table.schema.names) == ([[1, "v1"], [2, "v2"], [3, "v3"]], ("id", "dt", "x"))
    assert content(lake.table(f"{namespace}.t").dry_run()[0]) == content(table)
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2]
    for number in range(3):
        theirs("create", f"{namespace}.t{number}", keyed=keyed, options={})
    assert lake.tables(namespace) == [f"{namespace}.{name}" for name in ("t", "t0", "t1", "t2")]
    assert theirs("read") == content(table)
    with pytest.raises(NotFound, match=rf"{namespace}\.none"):
        lake.table(f"{namespace}.none")
    beside = lake.create_table("plain.ice", SCHEMA, format="iceberg")
    beside.append(rows(7))
    assert content(lake.table("plain.ice")) == [[7, "v7"]]
    lake.drop_table("plain.ice")
    with pytest.raises(StoreError, match="401"):
        Lake(tmp_path / "w", catalog=server, catalog_options={**GIVEN, "token": "wrong"}).tables(namespace)


def test_a_table_is_registered_by_the_request_that_java_makes(java: Conversation, tmp_path: Path) -> None:
    """Java's own server does not know the request, which its client has: what both ask of another server is the same."""
    Lake(tmp_path / "served").create_table("n.t", SCHEMA, format="paimon").append(rows(1))
    folder, asked = f"file:{tmp_path}/served/n.db/t", list[tuple[str, object]]()
    there = {"id": "1", "name": "t", "path": folder, "schema": {"options": {}}}

    def respond(path: str, body: object) -> tuple[int, object] | None:
        if path.endswith("/register"):
            asked.append((path, body))
        if body is None and path.endswith("/snapshot"):
            return 200, {"snapshot": {"snapshot": {"id": 1}}}
        return None if body is None and not asked else (200, there)

    with Serving(served := Server()):
        served.respond, served.config = respond, {"defaults": {"prefix": "p"}}
        lake = Lake(tmp_path / "w", catalog=served.address, catalog_options=GIVEN)
        assert content(lake.register_table("n.t", folder)) == [[1, "v1"]]
        catalog = {
            "metastore": "rest",
            "uri": served.address,
            "warehouse": "main",
            "token.provider": "bear",
            "token": "token",
        }
        java.ask(verb="register", catalog=catalog, table="n.t", path=folder)
    assert len(asked) == 2
    assert asked[0] == asked[1]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_rest_catalog_makes_alters_and_branches_tables(
    java: Conversation, server: str, tmp_path: Path, keyed: bool
) -> None:
    name = f"m{keyed}.t".lower()
    catalog = {"metastore": "rest", "uri": server, "warehouse": "main", "token.provider": "bear", "token": "token"}
    lake = Lake(tmp_path / "w", catalog=server, catalog_options=GIVEN)

    def theirs(verb: str, table: str = name, **how: object) -> object:
        return java.ask(verb=verb, catalog=catalog, table=table, **how)

    part = pa.struct([("x", pa.int32()), ("y", pa.string())])
    fields = [*SCHEMA, ("a", pa.int32()), ("b", pa.int32()), ("r", part), ("l", pa.list_(part))]
    table = lake.create_table(
        name, pa.schema(fields), primary_key=["id"] if keyed else [], properties={"bucket": "1" if keyed else "-1"},
        comment="made here",
    )  # fmt: skip
    with pytest.raises(AlreadyExists):
        lake.create_table(name, SCHEMA)
    full = {"a": [1], "b": [2], "r": [{"x": 1, "y": "y"}], "l": [[{"x": 2, "y": "z"}]]}
    table.append(pa.table({**rows(1).to_pydict(), **full}, pa.schema(fields)))
    table.alter().rename_column("a", "c").rename_column("b", "a").rename_column("c", "b").commit()
    altering = (
        table.alter().drop_column("a").add_column("n", "bigint", comment="new", after="id").change_type("b", "bigint")
    )
    altering.rename_column("r.x", "z").add_column("r.w", "int").add_column("l.element.w", "int").commit()
    table.alter().move_column("b", first=True).set_properties({"snapshot.num-retained.min": "3"}).commit()
    table.alter().move_column("b", after="l").remove_properties("snapshot.num-retained.min").commit()
    table.alter().change_comment("n", "newer").commit()
    assert table.schema.names == ("id", "n", "dt", "r", "l", "b")
    assert (table.schema.comment, table.schema.field("n").comment) == ("made here", "newer")
    expected = {
        "id": 1,
        "n": None,
        "dt": "v1",
        "r": {"z": 1, "y": "y", "w": None},
        "l": [{"x": 2, "y": "z", "w": None}],
        "b": 1,
    }
    assert table.scan().to_arrow().to_pylist() == [expected]
    table.alter().drop_column("n").commit()
    assert theirs("read") == content(table) == [[1, "v1"]]
    twin, _ = table.dry_run()
    twin.alter().drop_column("b").commit()
    twin.append(twin.scan().to_arrow())
    assert ("b" in twin.schema.names, "b" in table.schema.names, len(table.snapshots())) == (False, True, 1)

    table.create_branch("empty", snapshot_id=0)  # Of one without snapshots this server tells the table's newest.
    branch = table.create_branch("b")
    assert (content(branch), table.inspect.tags().num_rows) == ([[1, "v1"]], 0)
    assert branch.inspect.tags().num_rows == 0
    branch.alter().drop_column("b").commit()
    branch.append(branch.scan().to_arrow().set_column(0, "id", pa.array([2], pa.int64())))
    branch.create_tag("kept")
    assert theirs("read", f"{name}$branch_b") == content(branch) == [[1, "v1"], [2, "v1"]]
    branch.expire_snapshots(retain_last=1)
    branch.delete_tag("kept")
    with pytest.raises(AlreadyExists):
        table.create_branch("b")
    table.append(table.scan().to_arrow().set_column(0, "id", pa.array([4], pa.int64())))
    table.create_tag("t")
    tagged = table.create_branch("c", tag="t")
    tagged.alter().drop_column("l").commit()
    tagged.append(tagged.scan(where="id = 1").to_arrow().set_column(0, "id", pa.array([3], pa.int64())))
    table.fast_forward("c")
    assert "l" not in table.schema.names
    assert sorted(theirs("read")) == content(table) == content(tagged) == [[1, "v1"], [3, "v1"], [4, "v1"]]  # type: ignore[call-overload]
    for each in ("b", "c", "empty"):
        table.delete_branch(each)
    assert table.inspect.branches().num_rows == 0
    lake.alter_namespace(name.partition(".")[0], {"owner": "me", "k": "v"})
    lake.alter_namespace(name.partition(".")[0], {"k": "w"}, ["owner"])
    assert {"k": "w"}.items() <= lake.namespace_properties(name.partition(".")[0]).items()
    assert "owner" not in lake.namespace_properties(name.partition(".")[0])
    lake.create_table_as(f"{name}as", rows(5), SCHEMA)
    assert theirs("read", f"{name}as") == [[5, "v5"]]


@pytest.mark.parametrize("keyed", [False, True])
def test_both_commit_through_a_rest_catalog(java: Conversation, server: str, tmp_path: Path, keyed: bool) -> None:
    name = f"w{keyed}.t".lower()
    catalog = {"metastore": "rest", "uri": server, "warehouse": "main", "token.provider": "bear", "token": "token"}
    lake = Lake(tmp_path / "w", catalog=server, catalog_options=GIVEN)

    def theirs(verb: str, **how: object) -> object:
        return java.ask(verb=verb, catalog=catalog, table=name, **how)

    def counted() -> tuple[list[list[int]], list[int]]:
        """Rows, files and bytes: as the server has summed up the commits' statistics, of all its tables, and as it is there."""
        response = PaimonRestCatalog(server, tuple(GIVEN.items()))._get(f"{_path(name)}/partitions", name, ())
        assert response is not None
        sums = [
            [partition[key] for key in ("recordCount", "fileCount", "fileSizeInBytes")]
            for partition in response.body["partitions"]
        ]
        (there,) = table.inspect.partitions().to_pylist()
        return sums, [there[key] for key in ("row_count", "file_count", "size_bytes")]

    theirs("create", keyed=keyed, options={"bucket": "1" if keyed else "-1", "metastore.partitioned-table": "true"})
    table = lake.table(name)
    table.append(rows(1, 2, 3))
    theirs("write", rows=[[4, "v4"], [5, "v5"]])
    for change in (
        lambda: table.append(rows(6)), lambda: table.delete("id = 1"), lambda: theirs("write", rows=[[7, "v7"]]),
        lambda: table.update({"dt": "'u'"}, "id = 2"), lambda: table.compact(full=True), lambda: table.create_tag("a"),
    ):  # fmt: skip
        change()
        assert sorted(theirs("read")) == content(table)  # type: ignore[call-overload]
        said, there = counted()
        assert there in said
    assert content(table) == [[2, "u"], *([id, f"v{id}"] for id in range(3, 8))]
    table.rollback_to(2)
    table.expire_snapshots(retain_last=1)
    theirs("write", rows=[[8, "v8"]])
    assert sorted(theirs("read")) == content(table) == [[id, f"v{id}"] for id in (1, 2, 3, 4, 5, 8)]  # type: ignore[call-overload]
    stream = table.stream("job")
    stream.commit(stream.prepare(1, rows(9)))
    assert len(theirs("read")) == table.scan().count() == 7  # type: ignore[arg-type]
    moved = lake.rename_table(name, f"{name}2")
    assert moved.name in java.ask(verb="tables", catalog=catalog)  # type: ignore[operator]
    lake.drop_table(moved.name)
    lake.create_namespace("empty")
    assert moved.name not in java.ask(verb="tables", catalog=catalog)  # type: ignore[operator]
    assert "empty" in lake.namespaces()
    lake.drop_namespace("empty")
    assert "empty" not in lake.namespaces()


def test_functions_of_a_rest_catalog(server: str, tmp_path: Path) -> None:
    """Java's server stores what SQL creates; pypaimon reads it, and SQL calls what pypaimon creates."""
    lake = Lake(tmp_path / "w", catalog=server, catalog_options=GIVEN)
    lake.sql(
        """
        CREATE DATABASE functions; USE functions;
        CREATE FUNCTION area(w DOUBLE COMMENT 'width', h DECIMAL(10, 2)) COMMENT 'c' RETURN w * h;
        CREATE FUNCTION at(xs ARRAY<INT>, t TIMESTAMP) RETURNS DOUBLE RETURN xs[0] + rand();
        CREATE FUNCTION udf AS 'com.example.Udf' USING JAR '/a.jar'
        """
    )
    assert lake.sql("SELECT area(2, 3) AS a").to_arrow()["a"].to_pylist() == [6.0]
    with pytest.raises(AlreadyExists):
        lake.sql("CREATE FUNCTION area(w INT) RETURN w")
    command = environments.script(environments.PYPAIMON, "functions.py")
    said = subprocess.run([*command, server, "functions"], capture_output=True, text=True, check=True)
    sql, file = [["spark", "SQLFunctionDefinition"]], [["spark", "FileFunctionDefinition"]]
    assert json.loads(said.stdout) == {
        "area": [[["w", "DOUBLE", "width"], ["h", "DECIMAL(10, 2)", None]], ["DOUBLE"], sql, "c", True],
        "at": [[["xs", "ARRAY<INT>", None], ["t", "TIMESTAMP(6) WITH LOCAL TIME ZONE", None]], ["DOUBLE"], sql, None, False],
        "udf": [[], [], file, None, True],
    }  # fmt: skip
    assert lake.sql("SELECT theirs(1.5, 1) AS a").to_arrow()["a"].to_pylist() == [2.5]
    lake.sql("CREATE OR REPLACE FUNCTION area(w INT) RETURN w + 1")
    assert lake.sql("SELECT functions.area(2) AS a").to_arrow()["a"].to_pylist() == [3]
    for change in (
        {"action": "updateDefinition", "name": "spark", "definition": {"type": "sql", "definition": "w + 2"}},
        {"action": "addDefinition", "name": "flink", "definition": {"type": "lambda", "definition": "w -> w", "language": "JAVA"}},
        {"action": "setOption", "key": "k", "value": "v"},
        {"action": "updateComment", "comment": "other"},
    ):  # fmt: skip
        lake.sql("CALL sys.alter_function('area', :change)", params={"change": json.dumps(change)})
    function = lake.functions.find("functions.area")
    assert function is not None
    assert (function.comment, function.options["k"], sorted(function.definitions)) == ("other", "v", ["flink", "spark"])
    assert lake.sql("SELECT area(2) AS a").to_arrow()["a"].to_pylist() == [4]
    lake.sql("DROP FUNCTION area; CALL sys.drop_function('udf'); DROP FUNCTION at; DROP FUNCTION theirs")
    assert lake.functions.names("functions") == []
    with pytest.raises(NotFound):
        lake.functions.drop("functions.area")
