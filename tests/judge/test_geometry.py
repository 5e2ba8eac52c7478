"""Geometries: DuckDB reads ours and prunes by their boxes, and we read DuckDB's; Iceberg's Java library and pyiceberg read the boxes.

Java's library (1.11) and pyiceberg (0.12) read no files with geometries, and DuckDB has no geographies.
"""

from __future__ import annotations

import json
import struct
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.table import Table
from tests.unit.dialects.iceberg.test_types import geo_bounds, made_geo, point, ring, several

from .peers import PeerRefused
from .test_rest import CREDENTIAL, opened, server  # noqa: F401 - a fixture

LINE = struct.pack("<BI", 1, 2) + ring((0, 9), (1, 1))
AREA = several(3, ring((4, 4), (6, 4), (5, 7), (4, 4)))
SHAPES = [point(1, 2), LINE, AREA, several(6, AREA, AREA), several(7, point(-1, 8), several(7, LINE)), None]
# The shapes whose boxes meet that of these.
WITHIN = {"POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))": [0, 1, 4], "POINT(5 5)": [2, 3], "POINT(-1 8)": [4], "POINT(50 50)": []}


def filled(folder: Path, text: str) -> Table:
    t = made_geo(folder, text)
    for start in range(0, len(SHAPES), 2):
        t.append(pa.table({"id": range(start, start + 2), "g": pa.array(SHAPES[start : start + 2], pa.binary())}))
    return t


def rows(table: Table) -> list[list[Any]]:
    found = table.scan(["id", "g"]).to_arrow().sort_by("id").to_pylist()
    return [[row["id"], row["g"] and row["g"].hex()] for row in found]


def metadata(table: Table) -> str:
    files = Path(table.uri.removeprefix("file://")).glob("metadata/v*.metadata.json")
    return str(max(files, key=lambda file: int(file.name[1:].split(".")[0])))


@pytest.mark.parametrize("text", ["geometry", "geometry(srid:4326)"])
def test_duckdb_reads_our_geometries_after_every_change(engines: dict, tmp_path: Path, text: str) -> None:
    t = filled(tmp_path, text)
    changes = (
        lambda: t.delete("id = 1"), lambda: t.update({"g": None}, where="id = 2"), lambda: t.compact(full=True),
        lambda: t.append(pa.table({"id": [9], "g": [point(3, 4, flag=0)]})),
    )  # fmt: skip
    for change in (lambda: None, *changes):
        change()
        found = engines["duckdb"].ask(verb="read", metadata=metadata(t))["rows"]
        expected = rows(t)
        if expected[-1][0] == 9:  # It gives bytes in its own order.
            expected[-1][1] = point(3, 4).hex()
        assert sorted(found) == expected
    assert len(found) == 6


def test_duckdb_finds_by_our_boxes_what_it_finds_without_them(engines: dict, tmp_path: Path) -> None:
    t = filled(tmp_path, "geometry")
    for shape, ids in WITHIN.items():
        found = engines["duckdb"].ask(verb="read", metadata=metadata(t), filter=f"g && '{shape}'::geometry")["rows"]
        assert sorted(row[0] for row in found) == ids, shape


@pytest.mark.parametrize("text", ["geometry", "geography"])
def test_java_and_pyiceberg_read_our_boxes(engines: dict, tmp_path: Path, text: str) -> None:
    t = made_geo(tmp_path, text)
    m_alone = struct.pack("<BI3d", 1, 2001, 1, 2, 7)
    for id, shapes in enumerate(([point(1, 2), LINE], [point(1, 2, 3)], [m_alone], [point(1, 2, 3, 4)], [None])):
        t.append(pa.table({"id": [id] * len(shapes), "g": pa.array(shapes, pa.binary())}))
    found = engines["iceberg-spark-4"].ask(verb="boxes", location=t.uri, column="g")
    spelt = [
        ["x=0.0, y=1.0", "x=1.0, y=9.0"],
        *([f"x=1.0, y=2.0{more}"] * 2 for more in (", z=3.0", ", m=7.0", ", z=3.0, m=4.0")),
    ]
    expected = [*(spelt if text == "geometry" else [[None, None]] * 4), [None, None]]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    told = engines["pyiceberg"].ask(verb="describe", metadata=metadata(t))
    assert told["columns"][1]["type"] == text
    own = [[end and end.hex() for end in box] for box in geo_bounds(t)]
    assert sorted((file["g"] for file in told["bounds"]), key=repr) == sorted(own, key=repr)


def token(address: str) -> str:
    user, secret = CREDENTIAL.split(":")
    form = {"grant_type": "client_credentials", "client_id": user, "client_secret": secret, "scope": "catalog"}
    with urllib.request.urlopen(f"{address}/v1/oauth/tokens", urllib.parse.urlencode(form).encode()) as answer:
        return json.load(answer)["access_token"]


def test_we_read_and_continue_duckdbs_geometries(engines: dict, server: str, tmp_path: Path) -> None:  # noqa: F811
    def asked(*statements: str) -> list[list[Any]]:
        return engines["duckdb"].ask(verb="run", endpoint=server, token=token(server), statements=statements)

    shapes = [
        "POINT(1 2)",
        "LINESTRING(-3 5, 9 9)",
        "POLYGON((0 0, 2 0, 2 2, 0 0))",
        "POINT Z(1 2 3)",
        "MULTIPOINT(1 1, 7 8)",
    ]
    values = ", ".join(f"({id}, '{shape}'::geometry)" for id, shape in enumerate(shapes))
    asked(
        "create schema if not exists lake.geo", "create table lake.geo.t (id bigint, g geometry) with ('format-version' = '3')",
        f"insert into lake.geo.t values {values}, (7, null)", "delete from lake.geo.t where id = 3",
    )  # fmt: skip
    said = "select id, hex(ST_AsWKB(g)) from lake.geo.t order by id"
    t = opened(server, tmp_path).table("geo.t")
    assert str(t.schema.field("g").type) == "geometry"
    assert [[id, wkb and wkb.upper()] for id, wkb in rows(t)] == asked(said)
    t.append(pa.table({"id": [8], "g": [AREA]}))
    t.delete("id = 0")
    t.compact(full=True)
    found = asked(said)
    assert [[id, wkb and wkb.upper()] for id, wkb in rows(t)] == found
    assert [id for id, _ in found] == [1, 2, 4, 7, 8]


@pytest.mark.parametrize(
    ("reader", "text", "why"),
    [
        ("duckdb", "geography", "Geography support"), ("pyiceberg", "geometry", "LogicalType|promote"),
        ("pyiceberg", "geometry(srid:4326)", "Could not parse"), ("iceberg-spark-4", "geometry", "Unsupported logical type"),
    ],
)  # fmt: skip
def test_what_others_do_not_read_yet(engines: dict, tmp_path: Path, reader: str, text: str, why: str) -> None:
    """When one of them does, this fails: then it becomes a judge."""
    t = filled(tmp_path, text)
    ask = (
        {"verb": "java", "location": t.uri}
        if reader == "iceberg-spark-4"
        else {"verb": "read", "metadata": metadata(t)}
    )
    with pytest.raises(PeerRefused, match=why):
        engines[reader].ask(**ask)
