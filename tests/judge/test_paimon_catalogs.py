"""Paimon's JDBC catalog, Java's and ours: each opens, reads, continues, renames and drops what the other made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.table import Table

from . import environments
from .peers import Conversation

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
