"""Paimon's newest Java engine over a folder, and ours: what its catalog's options do, and options of tables that came after 0.9."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.table import Table

from . import environments
from .peers import Conversation, PeerRefused

NOW = datetime.datetime.now(datetime.UTC).timestamp()
OLD, NEW = 10**9, int(NOW) + 86_400
TIMES: dict[str, tuple[pa.DataType, int]] = {  # With how many units a second has.
    "INT": (pa.int32(), 1),
    "BIGINT": (pa.int64(), 1),
    "BIGINT in milliseconds": (pa.int64(), 1000),
    "TIMESTAMP(6)": (pa.timestamp("us"), 10**6),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": (pa.timestamp("ms", "UTC"), 10**6),
}
EXPIRING = {"bucket": "1", "record-level.expire-time": "2 d", "record-level.time-field": "at"}


@pytest.fixture(scope="module")
def java() -> Iterator[Conversation]:
    spoken = Conversation("paimon-catalogs", environments.paimon_catalogs)
    yield spoken
    spoken.close()


Ask = Callable[..., Any]


def content(table: Table, **how: Any) -> list[list[Any]]:
    return sorted([row["id"], row["dt"]] for row in table.scan(["id", "dt"], **how).to_arrow().to_pylist())


@pytest.fixture
def theirs(java: Conversation, tmp_path: Path) -> Ask:
    return lambda verb, table, **how: java.ask(verb=verb, catalog={"warehouse": str(tmp_path)}, table=table, **how)


# --- options of the catalog -----------------------------------------------------------------------------------------------

ID = pa.schema([pa.field("id", pa.int64(), nullable=False), ("dt", pa.string())])


def options(folder: Path, table: str) -> dict[str, str]:
    return json.loads((folder / "d.db" / table / "schema/schema-0").read_text())["options"]


@pytest.mark.parametrize("metastore", ["filesystem", "jdbc"])
def test_defaults_of_new_tables_are_those_of_java(java: Conversation, tmp_path: Path, metastore: str) -> None:
    defaults = {
        "table-default.file.format": "orc",
        "table-default.metastore.partitioned-table": "true",
        "table-default.no.such": "x",
    }
    given = {"bucket": "1", "file.format": "avro"}
    catalog = {"warehouse": str(tmp_path), "metastore": metastore, **defaults}
    how: dict[str, Any] = {"catalog_options": defaults}
    if metastore == "jdbc":
        catalog |= {
            "uri": f"jdbc:sqlite:{tmp_path}/catalog.sqlite?journal_mode=WAL",
            "jdbc.user": "u",
            "jdbc.password": "p",
        }
        how = {"catalog": "sql", "catalog_options": {"format": "paimon", **defaults}}
    lake = Lake(tmp_path, **how)
    for name, stated in (("plain", {"bucket": "1"}), ("stated", given)):
        java.ask(verb="create", catalog=catalog, table=f"d.{name}_theirs", keyed=True, options=stated)
        lake.create_table(f"d.{name}_ours", ID, primary_key=["id"], properties=stated)
        expected = {"file.format": "orc", "metastore.partitioned-table": "true", "no.such": "x", **stated}
        assert options(tmp_path, f"{name}_ours") == options(tmp_path, f"{name}_theirs") == expected
        java.ask(verb="write", catalog=catalog, table=f"d.{name}_ours", rows=[[1, "v1"]])
        ours = lake.table(f"d.{name}_theirs")
        ours.append(pa.table({"id": [1], "dt": ["v1"]}))
        for table in (f"d.{name}_ours", f"d.{name}_theirs"):
            assert java.ask(verb="read", catalog=catalog, table=table) == content(lake.table(table)) == [[1, "v1"]]


@pytest.mark.parametrize(
    ("option", "value", "refused"),
    [
        ("case-sensitive", "false", None), ("case-sensitive", "true", None), ("lock.enabled", "true", None), ("cache-enabled", "false", None),
        ("sync-all-properties", "true", None), ("table.type", "external", "Only managed table"), ("lock.type", "zookeeper", "any factory"),
    ],
)  # fmt: skip
def test_other_options_of_java_change_nothing_in_folders(
    java: Conversation, tmp_path: Path, option: str, value: str, refused: str | None
) -> None:
    """What Java does with them is what a Lake without them does; it refuses them by name."""
    catalog = {"warehouse": str(tmp_path), "lock.enabled": "true", option: value}
    making = {"verb": "create", "catalog": catalog, "table": "Shop.Orders", "keyed": False, "options": {}}
    with pytest.raises(InvalidInput, match=f"'{option}' needs a catalog"):
        Lake(tmp_path, catalog_options={option: value})
    if refused is not None:
        with pytest.raises(PeerRefused, match=refused):
            java.ask(**making)
        return
    java.ask(**making)
    java.ask(**making | {"verb": "write", "rows": [[1, "v1"]]})
    lake = Lake(tmp_path)
    assert lake.tables() == ["Shop.Orders"]
    lake.table("Shop.Orders").append(pa.table({"id": [2], "dt": ["v2"]}))
    assert java.ask(**making | {"verb": "read"}) == content(lake.table("Shop.Orders")) == [[1, "v1"], [2, "v2"]]


# --- rows that expire ---------------------------------------------------------------------------------------------------


def timed(folder: Path, name: str, type: pa.DataType, options: dict[str, str]) -> Table:
    schema = pa.schema([*ID, ("at", type)])
    return Lake(folder).create_table(name, schema, primary_key=["id"], properties=options)


def upsert(table: Table, type: pa.DataType, units: int, *rows: list[Any]) -> None:
    unit = {"us": 1, "ms": 1000}[type.unit] if pa.types.is_timestamp(type) else 1
    times = pa.array([row[2] and row[2] * units // unit for row in rows], pa.int64()).cast(type)
    table.upsert(pa.table({"id": [row[0] for row in rows], "dt": [row[1] for row in rows], "at": times}))


@pytest.mark.parametrize("kind", TIMES)
def test_rows_too_old_go_by_javas_compaction_and_ours(theirs: Ask, tmp_path: Path, kind: str) -> None:
    type, units = TIMES[kind]
    rows = [[1, "old", OLD], [2, "new", NEW], [3, "none", None]]
    scaled = [[*row[:2], row[2] and row[2] * units] for row in rows]
    for writer in ("java", "lakeformat"):
        for compacter in ("java", "lakeformat"):
            name = f"d.{writer}_{compacter}"
            if writer == "java":
                theirs("create", name, keyed=True, options=EXPIRING, more={"at": kind.partition(" in ")[0]})
                theirs("write", name, rows=scaled)
            else:
                upsert(timed(tmp_path, name, type, EXPIRING), type, units, *rows)
            table = Lake(tmp_path).table(name)
            assert {id for id, _ in theirs("read", name)} == {id for id, _ in content(table)}
            if compacter == "java":
                theirs("compact", name)
            else:
                table.compact(full=True)
            assert sorted(theirs("read", name)) == content(table) == [[2, "new"], [3, "none"]], name


def test_an_older_row_comes_back_with_java_alone(theirs: Ask, tmp_path: Path) -> None:
    """Java leaves old rows out before it merges, as docs/keys.md says; here the row that a key has now decides."""
    seen = {}
    for compacter in ("java", "lakeformat"):
        name = f"d.{compacter}"
        table = timed(tmp_path, name, pa.int64(), EXPIRING | {"write-only": "true"})
        upsert(table, pa.int64(), 1, [1, "before", NEW], [2, "v", NEW])
        upsert(table, pa.int64(), 1, [1, "late", OLD])
        if compacter == "java":
            table.alter().remove_properties("write-only").commit()
            theirs("compact", name)
        else:
            table.compact(full=True)
        assert sorted(theirs("read", name)) == content(table)
        seen[compacter] = content(table)
    assert seen == {"java": [[1, "before"], [2, "v"]], "lakeformat": [[2, "v"]]}


# --- rows of before an update -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", ["true", "false"])
def test_rows_of_before_an_update_are_ignored_as_java_does(theirs: Ask, tmp_path: Path, ignored: str) -> None:
    given = {
        "bucket": "1", "merge-engine": "aggregation", "fields.dt.aggregate-function": "last_value", "ignore-update-before": ignored,
    }  # fmt: skip
    commits = [
        ([[1, "a"], [1, "a"], [2, "b"]], ["+I", "-U", "+I"]), ([[2, "b"], [3, "c"]], ["-U", "-U"]), ([[4, "d"], [4, "e"]], ["+I", "+U"]),
        ([[4, "e"]], ["-D"]),
    ]  # fmt: skip
    theirs("create", "d.java", keyed=True, options=given)
    ours = Lake(tmp_path).create_table("d.lakeformat", ID, primary_key=["id"], properties=given)
    for rows, kinds in commits:
        theirs("write", "d.java", rows=rows, kinds=kinds)
        ours.upsert(pa.table({"id": [id for id, _ in rows], "dt": [dt for _, dt in rows], "rowkind": kinds}))
        seen = [sorted(theirs("read", name), key=repr) for name in ("d.java", "d.lakeformat")]
        seen += [sorted(content(Lake(tmp_path).table(name)), key=repr) for name in ("d.java", "d.lakeformat")]
        assert seen == [seen[0]] * 4
    assert (seen[0][:2] == [[1, "a"], [2, "b"]]) == (ignored == "true")


# --- indexes of files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["bloom-filter", "bitmap"])
@pytest.mark.parametrize("threshold", ["1 b", "1 mb"], ids=["beside data files", "in manifests"])
@pytest.mark.parametrize("later", [False, True], ids=["written with files", "written later"])
def test_java_leaves_out_files_by_our_indexes(
    theirs: Ask, tmp_path: Path, index: str, threshold: str, later: bool
) -> None:
    """Without bounds nothing else could leave them out."""
    given = {
        f"file-index.{index}.columns": "dt", "file-index.in-manifest-threshold": threshold, "metadata.stats-mode": "none",
        "compaction.min.file-num": "100",
    }  # fmt: skip
    plain = {key: value for key, value in given.items() if not key.startswith("file-index.")}
    t = Lake(tmp_path).create_table("d.t", ID, properties=plain if later else given)
    for start in range(0, 40, 10):
        t.append(pa.table({"id": range(start, start + 10), "dt": [f"v{id}" for id in range(start, start + 10)]}, ID))
    if later:
        t.alter().set_properties(given).commit()
        assert t.rewrite_file_index() is not None
    for id in (0, 17, 39):
        found = theirs("read", "d.t", equals=f"v{id}")
        assert [id, f"v{id}"] in found
        assert len(found) <= 10, "of one file at most"
        assert content(t, where=f"dt = 'v{id}'") == [[id, f"v{id}"]]
    assert theirs("read", "d.t", equals="none of them") == []
    assert len(theirs("read", "d.t")) == 40
