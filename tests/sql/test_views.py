"""Views: kept by a catalog as Iceberg's view specification has them, or by the session."""

import json
import os
import pickle
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, NotFound, UnsupportedFeature
from tests.sql.conftest import rows
from tests.unit.rest_server import RestServer


@pytest.fixture
def lake(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    lake.sql("CREATE TABLE db.t (id BIGINT, name STRING, dt STRING) USING iceberg PARTITIONED BY (dt)")
    lake.sql("INSERT INTO db.t VALUES (1, 'ann', '05-01'), (2, 'bob', '05-01'), (3, 'eve', '05-02')")
    return lake


def document(lake, name):
    """(the line of the catalog, the newest metadata file of the view)"""
    with sqlite3.connect(f"{lake.uri}/catalog.sqlite") as connection:
        where = "SELECT iceberg_type, metadata_location FROM iceberg_tables WHERE table_name = ?"
        ((kind, place),) = connection.execute(where, (name,)).fetchall()
    with open(place.removeprefix("file://")) as file:
        return kind, json.load(file)


def test_a_view_is_kept_as_the_specification_has_it(lake):
    lake.sql(
        "USE db; CREATE VIEW v (n COMMENT 'how many', day) COMMENT 'by day' TBLPROPERTIES ('a' = 'b') AS SELECT count(*), dt FROM t GROUP BY dt"
    )
    kind, first = document(lake, "v")
    assert kind == "VIEW"
    assert set(first) == {
        "view-uuid", "format-version", "location", "schemas", "current-version-id", "versions", "version-log", "properties",
    }  # fmt: skip
    fields = [
        {key: field[key] for key in ("id", "name", "required", "type")} for field in first["schemas"][0]["fields"]
    ]
    assert fields == [
        {"id": 1, "name": "n", "required": False, "type": "long"}, {"id": 2, "name": "day", "required": False, "type": "string"},
    ]  # fmt: skip
    assert first["properties"] == {"a": "b", "comment": "by day", "spark.query-column-names": "count(1),dt"}
    (version,) = first["versions"]
    assert version["representations"] == [
        {"type": "sql", "sql": "SELECT count(*), dt FROM t GROUP BY dt", "dialect": "spark"}
    ]
    assert (version["version-id"], version["schema-id"], version["default-namespace"]) == (1, 0, ["db"])
    assert first["version-log"] == [{"timestamp-ms": version["timestamp-ms"], "version-id": 1}]

    lake.sql(
        "CREATE OR REPLACE VIEW v AS SELECT id FROM t; CREATE OR REPLACE VIEW v (n, day) AS SELECT count(*), dt FROM t GROUP BY dt"
    )
    _, last = document(lake, "v")
    assert (last["view-uuid"], last["current-version-id"]) == (first["view-uuid"], 3)
    assert (
        [version["version-id"] for version in last["versions"]]
        == [entry["version-id"] for entry in last["version-log"]]
        == [1, 2, 3]
    )
    lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t")  # As version 2 has it.
    _, again = document(lake, "v")
    assert (again["current-version-id"], len(again["versions"]), len(again["version-log"])) == (2, 3, 4)

    lake.sql("DROP VIEW v")
    assert (lake.views.names("db"), _files(lake, "v")) == ([], [])


def test_only_ten_versions_stay(lake):
    for number in range(12):
        lake.sql(f"CREATE OR REPLACE VIEW db.v AS SELECT id + {number} AS id FROM db.t")
    _, found = document(lake, "v")
    assert [version["version-id"] for version in found["versions"]] == list(range(3, 13))
    assert [each["version-id"] for each in found["version-log"]] == list(range(3, 13))
    assert rows(lake.sql("SELECT min(id) FROM db.v")) == [(12,)]


def test_a_view_reads_no_more_than_what_is_asked_of_it(lake):
    lake.sql(
        "CREATE VIEW db.v (key, called, day) AS SELECT * FROM db.t; CREATE VIEW db.w AS SELECT key, day FROM db.v WHERE key > 0"
    )
    assert rows(lake.sql("SELECT key FROM db.w WHERE day = '05-02'")) == [(3,)]
    (scan,) = lake.sql("EXPLAIN SELECT key FROM db.w WHERE day = '05-02'").to_arrow().to_pylist()
    assert (scan["columns"], scan["files_read"], scan["files"]) == ("id, dt", 1, 2)
    lake.sql("ALTER TABLE db.t ADD COLUMN more INT FIRST")  # `*` stays what it was.
    assert lake.sql("SELECT * FROM db.v WHERE key = 3").to_arrow().to_pylist() == [
        {"key": 3, "called": "eve", "day": "05-02"}
    ]
    lake.sql("ALTER TABLE db.t DROP COLUMN name")
    with pytest.raises(InvalidInput, match=r"view db\.v"):
        lake.sql("SELECT called FROM db.v")


def test_names_in_a_view_are_of_its_own_database_whatever_is_used_and_passed_later(lake):
    lake.sql(
        "CREATE DATABASE other; USE db; CREATE VIEW v AS WITH c AS (SELECT id FROM t) SELECT max(id) AS most FROM c; USE other"
    )
    assert rows(lake.sql("SELECT most FROM db.v", t=pa.table({"id": [99]}))) == [(3,)]


def test_a_temporary_view_holds_frames_and_parameters_and_goes_before_tables(lake):
    frame = pa.table({"a": [1, 2, 3]})
    lake.sql(
        "USE db; CREATE TEMP VIEW t (b) AS SELECT a * 10 FROM frame WHERE a > :least", params={"least": 1}, frame=frame
    )
    assert rows(lake.sql("SELECT * FROM t")) == [(20,), (30,)]
    assert rows(lake.sql("SELECT count(*) FROM db.t")) == [(3,)]
    assert rows(lake.sql("SHOW VIEWS LIKE 't'")) == [("", "t", True)]
    assert rows(pickle.loads(pickle.dumps(lake)).sql("SELECT count(*) FROM t")) == [(3,)]  # The session's stay behind.
    lake.sql("CREATE OR REPLACE TEMP VIEW t AS SELECT b + 1 AS c FROM t")
    assert rows(lake.sql("SELECT c FROM t")) == [(21,), (31,)]
    lake.sql("DROP VIEW t")
    assert rows(lake.sql("SELECT count(*) FROM t")) == [(3,)]


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("CREATE VIEW db.v AS SELECT 1 AS a", AlreadyExists, "line 1, column 13: there is a view db.v already"),
        ("CREATE VIEW db.t AS SELECT 1 AS a", AlreadyExists, "there is a table db.t already"),
        ("CREATE TABLE db.v (a INT) USING iceberg", AlreadyExists, "there is a view of that name"),
        ("CREATE TABLE db.v (a INT) USING paimon", AlreadyExists, "there is a view of that name"),
        ("CREATE VIEW db.w AS SELECT * FROM frame", InvalidInput, "frame, which only this session has"),
        ("CREATE VIEW db.w AS SELECT :n AS a", InvalidInput, "has parameters"),
        ("CREATE VIEW db.w (a) AS SELECT 1, 2", InvalidInput, "names 1 columns, and its query gives 2"),
        ("CREATE VIEW db.w AS SELECT id, id FROM db.t", InvalidInput, "two columns of one name"),
        ("CREATE VIEW db.w AS SELECT nothing FROM db.t", InvalidInput, "nothing"),
        ("CREATE OR REPLACE VIEW db.v AS SELECT * FROM db.v", InvalidInput, "view db.v reads itself"),
        ("INSERT INTO db.v VALUES (1)", NotFound, "db.v is a view"),
        ("DROP TABLE db.v", NotFound, "db.v is a view"),
        ("DROP VIEW db.t", InvalidInput, "db.t is a table; say DROP TABLE"),
        ("DROP VIEW db.w", NotFound, "line 1, column 11: no view 'db.w'"),
        ("SELECT * FROM db.v VERSION AS OF 1", InvalidInput, "db.v is a view and has no versions"),
        ("ALTER VIEW db.v UNSET TBLPROPERTIES ('none')", InvalidInput, "has no property none"),
        ("CREATE TEMP VIEW db.w AS SELECT 1 AS a", InvalidInput, "a temporary view is in no database"),
        ("CREATE GLOBAL TEMP VIEW w AS SELECT 1 AS a", UnsupportedFeature, "GLOBAL TEMPORARY VIEW"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_and_changes_nothing(lake, statement, error, said):
    lake.sql("CREATE VIEW db.v AS SELECT id FROM db.t")
    before = document(lake, "v")
    with pytest.raises(error, match=said.replace(".", r"\.").replace("(", r"\(")):
        lake.sql(statement, frame=pa.table({"a": [1]}), params={"n": 1} if ":n" in statement else None)
    assert (document(lake, "v"), lake.views.names("db"), lake.tables()) == (before, ["db.v"], ["db.t"])


def test_views_of_others_are_read_in_sparks_dialect_and_their_dialects_are_not_lost(lake):
    lake.sql("CREATE VIEW db.v AS SELECT id FROM db.t")
    _, found = document(lake, "v")
    with sqlite3.connect(f"{lake.uri}/catalog.sqlite") as connection:
        ((place,),) = connection.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'v'"
        ).fetchall()
    found["versions"][0]["representations"].append({"type": "sql", "sql": "SELECT 1", "dialect": "trino"})
    del found["properties"]["spark.query-column-names"]
    path = place.removeprefix("file://")
    with open(path, "w") as file:
        json.dump(found, file)
    assert rows(lake.sql("SELECT * FROM db.v")) == [(1,), (2,), (3,)]
    with pytest.raises(UnsupportedFeature, match="also written in trino"):
        lake.sql("CREATE OR REPLACE VIEW db.v AS SELECT 2 AS id")
    del found["versions"][0]["representations"][0]
    with open(path, "w") as file:
        json.dump(found, file)
    with pytest.raises(UnsupportedFeature, match=r"view db\.v is written in trino"):
        lake.sql("SELECT * FROM db.v")


@pytest.fixture
def served(tmp_path):
    """(a warehouse whose REST catalog has the table `a.t` and keeps views, the server)"""
    table = Lake(tmp_path / "w").create_table("a.t", pa.schema([("id", pa.int64())]), format="iceberg")
    table.append({"id": [1, 2, 3]})

    def local(uri):
        return Path(uri.removeprefix("file://"))

    newest = f"{table.uri}/metadata/v2.metadata.json"
    with RestServer(
        newest, lambda uri: local(uri).read_bytes(), lambda uri, data: local(uri).write_bytes(data), {}
    ) as server:
        server.views = {}
        yield Lake(tmp_path / "w", catalog=server.address, catalog_options={"credential": "client:secret"}), server


def test_views_of_a_rest_catalog_are_changed_by_the_server(served):
    lake, server = served
    lake.sql(
        "USE a; CREATE VIEW v (n COMMENT 'how many') TBLPROPERTIES ('a' = 'b', 'c' = 'd') AS SELECT count(*) FROM t"
    )
    made = server.views["v"]
    (version,) = made["versions"]
    assert version["representations"] == [{"type": "sql", "sql": "SELECT count(*) FROM t", "dialect": "spark"}]
    assert (version["default-namespace"], made["schemas"][0]["fields"][0]["doc"]) == (["a"], "how many")
    assert rows(lake.sql("SELECT n FROM v")) == [(3,)]
    assert rows(lake.sql("SHOW VIEWS IN a")) == [("a", "v", False)]
    lake.sql(
        "CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id > 1; ALTER VIEW v SET TBLPROPERTIES ('a' = 'e'); ALTER VIEW v UNSET TBLPROPERTIES ('c')"
    )
    assert rows(lake.sql("SELECT * FROM v")) == [(2,), (3,)]
    lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id < 2")  # Of a schema that is there.
    lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id > 1")  # A version that is there.
    found = server.views["v"]
    assert (found["current-version-id"], [version["schema-id"] for version in found["versions"]]) == (2, [0, 1, 1])
    assert (found["view-uuid"], found["properties"]["a"], "c" in found["properties"]) == (made["view-uuid"], "e", False)
    lake.sql("CALL sys.alter_view_dialect('a.v', 'add', 'trino', 'SELECT 1'); ALTER VIEW v RENAME TO w")
    assert len(server.views["w"]["versions"][-1]["representations"]) == 2
    for statement, error, said in (
        ("CREATE VIEW w AS SELECT 1 AS a", AlreadyExists, "there is a view a.w already"),
        ("CREATE VIEW t AS SELECT 1 AS a", AlreadyExists, "there is a table a.t already"),
        ("ALTER VIEW w RENAME TO t", AlreadyExists, "a.t: there is a table or a view already"),
        ("DROP VIEW v", NotFound, "no view 'a.v'"),
    ):
        with pytest.raises(error, match=said):
            lake.sql(statement)
    lake.sql("DROP VIEW w")
    assert (server.views, lake.views.names("a")) == ({}, [])


def test_a_rest_server_that_names_no_endpoints_of_views_is_asked_for_none(served):
    lake, server = served
    server.views = None
    with pytest.raises(UnsupportedFeature, match="keeps no views"):
        lake.sql("CREATE VIEW a.v AS SELECT 1 AS a")
    with pytest.raises(NotFound, match="v"):
        lake.sql("SELECT * FROM a.v")
    assert rows(lake.sql("SHOW VIEWS IN a")) == []
    assert not [each for each in server.asked if "views" in each]


def _files(lake, name):
    folder = f"{lake.uri}/db.db/{name}/metadata"
    return os.listdir(folder) if os.path.isdir(folder) else []


def test_a_dialect_is_added_changed_and_dropped_and_the_others_stay(lake):
    lake.sql("CREATE VIEW d.v (b COMMENT 'text') AS SELECT 1 AS a")
    call = "CALL sys.alter_view_dialect('d.v', "
    lake.sql(f"{call} 'add', 'trino', 'SELECT 2'); {call} 'update', 'Spark', 'SELECT 3 AS a')")
    assert rows(lake.sql("SELECT b FROM d.v")) == [(3,)]
    lake.sql(f"{call} 'drop')")
    with pytest.raises(UnsupportedFeature, match="written in trino"):
        lake.sql("SELECT * FROM d.v")
    for wrong, error, said in (
        ("'drop', 'flink')", NotFound, "not written in flink; it is in trino"),
        ("'drop', 'trino')", InvalidInput, "in trino only"),
        ("'add', 'trino', 'SELECT 4')", AlreadyExists, "in trino already"),
        ("'drop', 'trino', 'SELECT 4')", InvalidInput, "'drop' without"),
        ("'change', 'trino', 'SELECT 4')", InvalidInput, "this is 'change'"),
    ):
        with pytest.raises(error, match=said):
            lake.sql(call + wrong)
    lake.sql(f"{call} 'add', 'spark', 'SELECT 5 AS a')")
    assert rows(lake.sql("SELECT b FROM d.v")) == [(5,)]
