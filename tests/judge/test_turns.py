"""Engines that take turns on one table: each goes on from what the others left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Lake

from .model import moments
from .recipes import COMPACT, Recipe, Step, alter, append, delete, overwrite, overwrite_partitions, request, update
from .rows import assert_rows, assert_shows

READERS = ("lakeformat", "pypaimon", "rust", "java")
EXPIRE: Step = {"do": "expire", "retain_last": 1}
SALES = (("id", "BIGINT"), ("item", "STRING"), ("price", "DOUBLE"), ("dt", "STRING"), ("hour", "INT"))
FIRST = append([1, "a", 1.0, "d1", 0], [2, "b", None, "d2", 1])
TURNS: dict[str, tuple[tuple[str, Step], ...]] = {
    "appends": (
        ("lakeformat", FIRST),
        ("java", append([3, "c", 3.0, "d1", 0])),
        ("pypaimon", append([4, "d", None, "d3", 0])),
        ("lakeformat", append([5, "e", 5.0, None, 0])),
    ),
    "overwrites": (
        ("lakeformat", FIRST),
        ("pypaimon", overwrite_partitions([6, "f", None, "d1", 0])),
        ("lakeformat", overwrite_partitions([4, "d", None, "d2", 0], [5, "e", None, None, 0])),
        ("java", overwrite_partitions([3, "c", 3.0, "d1", 0])),
        ("lakeformat", overwrite([7, "g", 7.0, "d2", 5], dt="d2")),
    ),
    "java_compacts_ours": (
        *(("lakeformat", append([i, f"r{i}", 0.01, "d1", 0])) for i in range(6)),
        ("java", COMPACT),
        ("lakeformat", append([9, "after", None, "d1", 0])),
        ("lakeformat", overwrite_partitions([10, "o", None, "d1", 1])),
    ),
    "we_compact_theirs": (
        *((("java", "pypaimon")[i % 2], append([i, f"r{i}", 0.01, "d1", 0])) for i in range(6)),
        ("lakeformat", COMPACT),
        ("java", append([9, "after", None, "d1", 0])),
        ("java", overwrite_partitions([10, "o", None, "d1", 1])),
    ),
    "java_expires_ours": (
        ("lakeformat", FIRST),
        ("lakeformat", overwrite_partitions([3, "c", None, "d1", 0])),
        ("lakeformat", overwrite_partitions([4, "d", None, "d1", 0])),
        ("lakeformat", append([5, "e", None, "d1", 0])),
        ("java", EXPIRE),
        ("lakeformat", append([6, "f", None, "d2", 0])),
    ),
    "we_expire_theirs": (
        ("pypaimon", FIRST),
        ("pypaimon", overwrite_partitions([3, "c", None, "d1", 0])),
        ("java", overwrite_partitions([4, "d", None, "d1", 0])),
        ("java", append([5, "e", None, "d1", 0])),
        ("lakeformat", EXPIRE),
        ("java", append([6, "f", None, "d2", 0])),
    ),
    "java_compacts_and_we_expire": (
        *(("lakeformat", append([i, f"r{i}", 0.01, "d1", 0])) for i in range(6)),
        ("java", COMPACT),
        ("lakeformat", append([7, "g", None, "d1", 0])),
        ("lakeformat", EXPIRE),
        ("java", append([8, "h", None, "d1", 0])),
    ),
    "we_compact_and_java_expires": (
        *(("java", append([i, f"r{i}", 0.01, "d1", 0])) for i in range(6)),
        ("lakeformat", COMPACT),
        ("java", append([7, "g", None, "d1", 0])),
        ("java", EXPIRE),
        ("lakeformat", append([8, "h", None, "d1", 0])),
    ),
    "schemas": (
        ("lakeformat", FIRST),
        ("java", alter(["add", "x", "INT"], ["rename", "item", "label"])),
        ("lakeformat", append([3, "c", None, "d1", 0, 33])),
        ("lakeformat", alter(["type", "x", "BIGINT"], ["drop", "price"])),
        ("java", append([4, "d", "d2", 1, 2**40])),
        ("pypaimon", append([5, "e", "d2", 1, 55])),
        ("lakeformat", COMPACT),
    ),
    "tags": (
        ("lakeformat", FIRST),
        ("lakeformat", {"do": "tag", "name": "ours"}),
        ("lakeformat", overwrite_partitions([3, "c", None, "d1", 0])),
        ("java", {"do": "tag", "name": "theirs"}),
        ("lakeformat", overwrite([4, "d", None, "d1", 0])),
        ("java", EXPIRE),
    ),
}  # fmt: skip
KEYED_TURNS: dict[str, tuple[tuple[str, Step], ...]] = {
    "upserts": (
        ("lakeformat", FIRST),
        ("pypaimon", append([3, "pypaimon's", None, "d1", 0], [9, "i", None, "d2", 0])),
        ("lakeformat", append([3, "ours", 3.0, "d1", 0], [1, "ours", None, "d1", 0])),
        ("java", append([2, "theirs", 2.0, "d2", 0], [3, "c", 3.0, "d1", 0])),
        ("lakeformat", update("item", "updated", "id = 9", 9)),
        ("lakeformat", delete("id = 1", 1)),
        ("java", append([1, "back", 0.5, "d1", 0])),
    ),
    "all_compact_as_they_write": (
        *((("lakeformat", "java")[i % 2], append([i % 3, f"r{i}", 0.01, "d1", 0])) for i in range(11)),
        ("lakeformat", delete("id = 1", 1)),
        ("java", append([9, "after", None, "d1", 0])),
    ),
    "java_compacts_ours": (
        *(("lakeformat", append(*([j, f"r{i}", 0.01, "d1", 0] for j in range(i, 9)))) for i in range(6)),
        ("lakeformat", delete("id = 3", 3)),
        ("java", COMPACT),
        ("lakeformat", append([3, "back", None, "d1", 0], [4, "newer", None, "d1", 0])),
        ("lakeformat", COMPACT),
        ("java", append([5, "newest", None, "d1", 0])),
    ),
    "we_compact_theirs": (
        *(("java", append(*([j, f"r{i}", 0.01, "d1", 0] for j in range(i, 9)))) for i in range(3)),
        ("lakeformat", COMPACT),
        ("java", append([3, "newer", None, "d1", 0])),
        ("java", COMPACT),
        ("lakeformat", overwrite_partitions([10, "o", None, "d1", 1])),
        ("java", append([10, "newest", None, "d1", 0])),
        ("java", EXPIRE),
        ("lakeformat", append([11, "last", None, "d1", 0])),
        ("lakeformat", EXPIRE),
    ),
}  # fmt: skip
CROSSING_TURNS: dict[str, tuple[tuple[str, Step], ...]] = {
    "moves": (
        ("lakeformat", append(*([i, f"r{i}", 0.5, ("d1", "d2")[i % 2], 0] for i in range(6)))),
        ("lakeformat", append([0, "moved", None, "d2", 0], [1, "stays", None, "d2", 0], [9, "new", None, None, 0])),
        ("java", append([1, "theirs", 1.0, "d3", 0], [0, "back", 1.0, "d1", 0], [9, "theirs", None, "d1", 0])),
        ("lakeformat", append([1, "ours", None, "d2", 0], [9, "ours", 1.0, "d4", 0], [1, "again", None, "d1", 0])),
        ("lakeformat", delete("id = 2", 2)),
        ("java", append([2, "back", None, "d5", 0], [3, "theirs", None, "d5", 0])),
        ("lakeformat", update("dt", "d7", "id = 3", 3)),
        ("java", COMPACT),
        ("lakeformat", append([4, "ours", None, "d8", 0], [5, "ours", None, "d8", 0])),
        ("lakeformat", overwrite_partitions([2, "over", None, "d8", 0], [20, "over", None, "d8", 0])),
        ("java", append([20, "last", None, "d1", 0], [2, "last", None, "d2", 0])),
        ("lakeformat", COMPACT),
        ("java", append([20, "end", None, "d9", 0])),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("file_format", "marked"), [("parquet", False), ("orc", False), ("parquet", True)], ids=["parquet", "orc", "marked"]
)
def test_keys_that_change_partitions_go_round(
    engines: dict[str, Any], tmp_path: Path, file_format: str, marked: bool
) -> None:
    """Java places its rows by its own index, which it builds of all keys that it finds."""
    columns = tuple((name, f"{type_} NOT NULL" if name == "id" else type_) for name, type_ in SALES)
    turns = CROSSING_TURNS["moves"]
    options = {"file.format": file_format, "dynamic-bucket.target-row-num": "2"}
    if marked:  # Then we overwrite no partition with keys that live in others.
        options |= {"deletion-vectors.enabled": "true"}
        turns = tuple(turn for turn in turns if turn[1]["do"] != "overwrite_partitions")
    steps = tuple(step for _, step in turns)
    recipe = Recipe("crossing", columns, steps, ("dt",), primary_key=("id",), options=options)
    goes_round(engines, tmp_path, recipe, turns)


STAYING = {
    "partial-update": ({}, [[1, "z", 1, "d1"], [2, "x", 2, "d2"], [3, "d", 1, "d3"]]),
    "aggregation": ({"fields.n.aggregate-function": "sum"}, [[1, "z", 7, "d1"], [2, "x", 2, "d2"], [3, "d", 1, "d3"]]),
    "first-row": ({}, [[1, "a", 1, "d1"], [2, "b", 2, "d2"], [3, "c", 1, "d3"]]),
}


@pytest.mark.parametrize("engine", STAYING)
def test_keys_that_stay_where_they_are(engines: dict[str, Any], tmp_path: Path, engine: str) -> None:
    """New rows go to the old ones, or are left out, whoever writes them."""
    options, wanted = STAYING[engine]
    turns = (
        ("lakeformat", append([1, "a", 1, "d1"], [2, "b", 2, "d2"])),
        ("lakeformat", COMPACT),
        ("java", append([1, None, 5, "d3"], [3, "c", 1, "d3"], [2, "x", None, "d1"])),
        ("lakeformat", append([3, "d", None, "d1"], [1, "z", 1, "d1"])),
        ("lakeformat", COMPACT),
    )
    columns = (("id", "BIGINT NOT NULL"), ("v", "STRING"), ("n", "BIGINT"), ("dt", "STRING"))
    recipe = Recipe("staying", columns, (), ("dt",), primary_key=("id",), options={"merge-engine": engine, **options})
    place = {"warehouse": str(tmp_path), "table": "turns.staying"}
    engines["lakeformat"].ask(verb="write", **place, **request(recipe))
    for writer, step in turns:
        engines[writer].ask(verb="steps", **place, steps=[step])
    for reader in readers(turns):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], wanted, recipe.fields(), reader)


@pytest.mark.parametrize("key", [(), ("id", "dt")], ids=["append", "keyed"])
@pytest.mark.parametrize("begins", ["lakeformat", "java"])
def test_a_branch_goes_round_and_is_published_by_the_other(
    engines: dict[str, Any], tmp_path: Path, begins: str, key: tuple[str, ...]
) -> None:
    """Whoever began it: all read it, both write to it, and both publish what the other wrote."""
    other = {"lakeformat": "java", "java": "lakeformat"}[begins]
    columns = (("id", "BIGINT NOT NULL"), ("v", "STRING"), ("dt", "STRING NOT NULL"))
    recipe = Recipe("branched", columns, (), ("dt",), primary_key=key, options={"bucket": "1"} if key else {})
    place = {"warehouse": str(tmp_path), "table": "turns.branched"}
    branch = place | {"table": "turns.branched$branch_b"}

    def do(engine: str, where: dict[str, str], *steps: Step) -> None:
        engines[engine].ask(verb="steps", **where, steps=list(steps))

    def shows(where: dict[str, str], *rows: list, to: tuple[str, ...] = ("lakeformat", "rust", "java")) -> None:
        for reader in to:  # pypaimon reads no manifests of Java 0.9.
            assert_rows(engines[reader].ask(verb="read", **where)["rows"], rows, recipe.fields(), reader)

    engines[begins].ask(verb="write", **place, **request(recipe))
    do(begins, place, append([1, "a", "d1"]), {"do": "tag", "name": "v1"}, {"do": "branch", "name": "b", "tag": "v1"})
    if begins == "lakeformat":
        do(begins, branch, append([0, "ours", "d1"]))
        do("pypaimon", branch, overwrite([1, "a", "d1"], dt="d1"))
        shows(branch, [1, "a", "d1"], to=READERS)
    do(other, branch, append([2, "b", "d1"]))
    do(begins, branch, append([3, "c", "d2"]), overwrite([4, "d", "d2"], dt="d2"))
    shows(branch, [1, "a", "d1"], [2, "b", "d1"], [4, "d", "d2"])
    shows(place, [1, "a", "d1"])
    do(other, place, {"do": "fast_forward", "name": "b"})
    shows(place, [1, "a", "d1"], [2, "b", "d1"], [4, "d", "d2"])
    do("lakeformat", branch, delete("id = 2", 2))
    do(begins, branch, append([5, "e", "d1"]))
    do(begins, place, {"do": "fast_forward", "name": "b"})
    do(other, place, append([6, "f", "d3"]))
    do("lakeformat", place, EXPIRE)
    shows(place, [1, "a", "d1"], [4, "d", "d2"], [5, "e", "d1"], [6, "f", "d3"])
    shows(branch, [1, "a", "d1"], [4, "d", "d2"], [5, "e", "d1"])
    do(other, place, {"do": "branch", "name": "more"})
    do(other, place | {"table": "turns.branched$branch_more"}, append([7, "g", "d9"], [8, "h", "d3"]))
    do(begins, place, alter(["set", "scan.fallback-branch", "more"]))
    for reader in ("lakeformat", "java"):
        found = engines[reader].ask(verb="read", **place)["rows"]
        wanted = [[1, "a", "d1"], [4, "d", "d2"], [5, "e", "d1"], [6, "f", "d3"], [7, "g", "d9"]]
        assert_rows(found, wanted, recipe.fields(), reader)


def test_rows_without_a_bucket_are_seen_when_they_have_one(engines: dict[str, Any], tmp_path: Path) -> None:
    """pypaimon and lakeformat write rows that wait; lakeformat compacts, and pypaimon gives rows their buckets at once."""
    columns = (("id", "BIGINT NOT NULL"), ("v", "STRING"), ("dt", "STRING NOT NULL"))
    options = {"bucket": "-2", "postpone.default-bucket-num": "2"}
    recipe = Recipe("postponed", columns, (), ("dt",), primary_key=("id", "dt"), options=options)
    place = {"warehouse": str(tmp_path), "table": "turns.postponed"}
    placed = {"do": "append_to_buckets", "rows": [[i, "a", "d1"] for i in range(5)] + [[1, "a", "d2"]]}
    steps = [placed, append([1, "waits", "d1"], [9, "waits", "d3"]), {**placed, "rows": [[2, "b", "d1"]]}]
    engines["pypaimon"].ask(verb="write", **place, **(request(recipe) | {"steps": steps}))
    wanted = [[i, "b" if i == 2 else "a", "d1"] for i in range(5)] + [[1, "a", "d2"]]
    for reader in ("pypaimon", "rust", "lakeformat"):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], wanted, recipe.fields(), reader)
    engines["lakeformat"].ask(verb="steps", **place, steps=[append([3, "ours", "d1"], [2, "ours", "d1"])])
    for reader in ("pypaimon", "rust", "lakeformat"):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], wanted, recipe.fields(), reader)
    engines["lakeformat"].ask(verb="steps", **place, steps=[COMPACT])
    wanted[1:4] = [[1, "waits", "d1"], [2, "ours", "d1"], [3, "ours", "d1"]]
    wanted += [[9, "waits", "d3"]]
    for reader in ("pypaimon", "rust", "lakeformat"):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], wanted, recipe.fields(), reader)
    engines["pypaimon"].ask(verb="steps", **place, steps=[{**placed, "rows": [[1, "theirs", "d1"], [7, "new", "d1"]]}])
    wanted[1] = [1, "theirs", "d1"]
    wanted.append([7, "new", "d1"])
    for reader in ("pypaimon", "rust", "lakeformat"):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], wanted, recipe.fields(), reader)


def test_columns_of_the_same_rows_are_written_in_turns(engines: dict[str, Any], tmp_path: Path) -> None:
    """pypaimon and lakeformat update columns by row id, compact, and go on from each other."""
    columns = (("id", "BIGINT"), ("a", "STRING"), ("b", "INT"), ("dt", "STRING"))
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
    recipe = Recipe("evolving", columns, (), ("dt",), options=options)
    place = {"warehouse": str(tmp_path), "table": "turns.evolving"}

    def columns_of(row_ids: list[int], **values: list) -> Step:
        return {"do": "update_columns", "row_ids": row_ids, "set": values}

    first = [
        append(*([i, f"a{i}", i, "x"] for i in range(6))),
        append([6, "a6", 6, "y"]),
        columns_of([1, 6], b=[10, 60]),
    ]
    engines["pypaimon"].ask(verb="write", **place, **(request(recipe) | {"steps": first}))
    turns: tuple[tuple[str, Step], ...] = (
        ("lakeformat", {"do": "update", "set": {"a": "concat(a, b)"}, "where": "id IN (1, 2)"}),
        ("pypaimon", columns_of([2, 3], a=["A2", None], b=[20, 30])),
        ("lakeformat", append([7, "a7", 7, "x"])),
        ("lakeformat", {"do": "compact"}),
        ("pypaimon", columns_of([0, 7], b=[-1, -7])),
        ("lakeformat", {"do": "delete", "where": "id = 4"}),
        ("pypaimon", append([8, "a8", 8, "y"])),
        ("lakeformat", {"do": "update", "set": {"b": "b + 1"}, "where": "id > 4"}),
    )
    for engine, step in turns:
        engines[engine].ask(verb="steps", **place, steps=[step])
    wanted = [[0, "a0", -1, "x"], [1, "a110", 10, "x"], [2, "A2", 20, "x"], [3, None, 30, "x"], [5, "a5", 6, "x"]]
    wanted += [[6, "a6", 61, "y"], [7, "a7", -6, "x"], [8, "a8", 9, "y"]]
    for reader in ("lakeformat", "pypaimon", "rust"):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], wanted, recipe.fields(), reader)


def test_blobs_are_read_as_pypaimon_reads_them(engines: dict[str, Any], tmp_path: Path) -> None:
    """Bytes and NULLs, in several files for a data file, and updated by row id."""
    columns = (("id", "BIGINT"), ("picture", "BLOB"), ("sound", "BLOB"), ("dt", "STRING"))
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "blob.target-file-size": "1 kb"}
    recipe = Recipe("blobs", columns, (), ("dt",), options=options)
    place = {"warehouse": str(tmp_path), "table": "turns.blobs"}
    first = append(*([i, f"{i:02x}" * (100 * i), None if i % 3 else "00ff", "xy"[i % 2]] for i in range(12)))
    engines["pypaimon"].ask(verb="write", **place, **(request(recipe) | {"steps": [first]}))
    for row_ids, name in (([1, 4, 9], "picture"), ([0, 4], "sound"), ([4, 5], "picture")):
        values = [None if id == 9 else f"{name} {id}" for id in row_ids]
        step = {"do": "update_columns", "row_ids": row_ids, "set": {name: values}}
        engines["pypaimon"].ask(verb="steps", **place, steps=[step])
        wanted = engines["pypaimon"].ask(verb="read", **place)["rows"]
        assert_rows(engines["lakeformat"].ask(verb="read", **place)["rows"], wanted, recipe.fields(), "lakeformat")
    assert sum(row[1] is None for row in wanted) == 1
    engines["pypaimon"].ask(verb="steps", **place, steps=[alter(["set", "blob-as-descriptor", "true"])])
    theirs, ours = (
        sorted(
            [row[0], *(described(value) for value in row[1:3])]
            for row in engines[each].ask(verb="read", **place)["rows"]
        )
        for each in ("pypaimon", "lakeformat")
    )
    assert theirs == ours


def test_blobs_are_written_in_turns(engines: dict[str, Any], tmp_path: Path) -> None:
    """lakeformat and pypaimon append blobs and go on from each other: columns updated beside them, ranges joined, rows deleted."""
    columns = (("id", "BIGINT"), ("picture", "BYTES"), ("name", "STRING"), ("sound", "BYTES"), ("dt", "STRING"))
    options = {
        "row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true",
        "blob-field": "picture,sound", "blob.target-file-size": "1 kb",
    }  # fmt: skip
    recipe = Recipe("blobs", columns, (), ("dt",), options=options)
    place = {"warehouse": str(tmp_path), "table": "turns.ours"}
    wanted: dict[int, list] = {}

    def rows(low: int, high: int) -> Step:
        new = [[i, f"{i:02x}" * (100 * i), f"n{i}", None if i % 3 else "00ff", "xy"[i % 2]] for i in range(low, high)]
        wanted.update({row[0]: row for row in new})
        return append(*new)

    def pictures(*ids: int) -> Step:
        for id in ids:
            wanted[id][1] = f"new {id}".encode().hex()
        values = {"picture": [f"new {id}" for id in ids]}
        return {"do": "update_columns", "row_ids": [row_ids[id] for id in ids], "set": values}

    def painted(low: int) -> Step:
        for id in range(low, len(wanted)):
            wanted[id][1] = "00ff"
        return {"do": "update", "set": {"picture": "X'00ff'"}, "where": f"id >= {low}"}

    def named(low: int) -> Step:
        for id in range(low, len(wanted)):
            wanted[id][2] += "!"
        return {"do": "update", "set": {"name": "concat(name, '!')"}, "where": f"id >= {low}"}

    engines["lakeformat"].ask(verb="write", **place, **(request(recipe) | {"steps": [rows(0, 12)]}))
    assert_rows(
        engines["pypaimon"].ask(verb="read", **place)["rows"], list(wanted.values()), recipe.fields(), "pypaimon"
    )
    of = Lake(str(tmp_path)).table("turns.ours").scan(["id", "_ROW_ID"]).to_arrow()
    row_ids = dict(zip(of["id"].to_pylist(), of["_ROW_ID"].to_pylist(), strict=True))
    assert sorted(row_ids.values()) == list(range(12))
    turns: tuple[tuple[str, Step], ...] = (
        ("pypaimon", pictures(1, 4, 9)),
        ("lakeformat", named(6)),
        ("lakeformat", painted(10)),
        ("pypaimon", rows(12, 16)),
        ("lakeformat", rows(16, 18)),
        ("lakeformat", {"do": "compact"}),
        ("pypaimon", pictures(0, 4)),
        ("lakeformat", painted(17)),
    )
    for engine, step in turns:
        engines[engine].ask(verb="steps", **place, steps=[step])
    engines["lakeformat"].ask(verb="steps", **place, steps=[{"do": "delete", "where": "id = 5"}, EXPIRE])
    del wanted[5]
    for reader in ("pypaimon", "lakeformat", "rust"):
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], list(wanted.values()), recipe.fields(), reader)


def test_global_indexes_prune_the_same_rows(engines: dict[str, Any], tmp_path: Path) -> None:
    """pypaimon indexes columns, lakeformat appends and compacts: both find the same rows by the same conditions."""
    columns = (("id", "BIGINT"), ("name", "STRING"), ("n", "INT"), ("dt", "STRING"))
    # By default pypaimon leaves out rows that came after an index.
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "scalar-index.search-mode": "full"}
    recipe = Recipe("indexed", columns, (), ("dt",), options=options)
    place = {"warehouse": str(tmp_path), "table": "turns.indexed"}

    def rows(low: int, high: int) -> Step:
        return append(
            *([i * 37 % 100, None if i % 7 == 3 else f"n{i % 30:02}", i % 5, "xy"[i % 2]] for i in range(low, high))
        )

    def index(column: str, kind: str = "btree") -> Step:
        return {"do": "index", "column": column, "kind": kind}

    first = [rows(0, 40), rows(40, 80), index("id"), index("name"), index("n", "bitmap")]
    engines["pypaimon"].ask(verb="write", **place, **(request(recipe) | {"steps": first}))
    conditions: tuple[list, ...] = (
        ["=", "id", 5], ["in", "id", [5, 37, 99]], ["and", [">", "id", 20], ["<=", "id", 23]], ["=", "name", "n07"],
        ["starts_with", "name", "n1"], ["is_null", "name"], ["or", ["=", "id", 7], ["=", "name", "n07"]], ["=", "n", 3],
        ["!=", "name", "n07"],
    )  # fmt: skip
    for step in (None, rows(80, 120), {"do": "compact"}, rows(120, 130)):
        if step is not None:
            engines["lakeformat"].ask(verb="steps", **place, steps=[step])
        for condition in conditions:
            asked = {**place, "filter": condition, "types": dict(columns)}
            wanted = engines["pypaimon"].ask(verb="read", **asked)["rows"]
            assert wanted
            assert_rows(
                engines["lakeformat"].ask(verb="read", **asked)["rows"], wanted, recipe.fields(), str(condition)
            )


@pytest.mark.parametrize("kind", ["buckets", "branches"])
def test_all_read_tables_after_upkeep_that_no_release_has(engines: dict[str, Any], tmp_path: Path, kind: str) -> None:
    """Sorted manifests, compacted buckets and file indexes written later; branches renamed and merged."""
    options = {"bucket": "2", "bucket-key": "id"} if kind == "buckets" else {"branch-merge.enabled": "true"}
    recipe = Recipe(kind, SALES, (), ("dt",), options=options)
    place = {"warehouse": str(tmp_path), "table": f"turns.{kind}"}
    rows = [[i, f"r{i}", i / 4, f"d{i % 3}", i % 5] for i in range(40)]
    steps = [append(*rows[low : low + 10]) for low in range(0, 40, 10)]
    engines["lakeformat"].ask(verb="write", **place, **(request(recipe) | {"steps": steps}))
    table = Lake(tmp_path).table(f"turns.{kind}")
    if kind == "buckets":
        assert table.compact(full=True, buckets=[1]) is not None
        table.alter().set_properties({"file-index.bloom-filter.columns": "item"}).commit()
        assert table.rewrite_file_index(where="dt = 'd1'") is not None
    else:
        table.create_branch("late", 0)
        late = table.rename_branch("late", "later")
        late.append(
            pa.table({"id": [99], "item": ["l"], "price": [1.0], "dt": ["d0"], "hour": pa.array([1], pa.int32())})
        )
        assert table.merge_branch("later").rows_added == 1
        rows.append([99, "l", 1.0, "d0", 1])
    assert table.rewrite_manifests(sort_by=True, full=True) is not None
    for reader in READERS:
        assert_rows(engines[reader].ask(verb="read", **place)["rows"], rows, recipe.fields(), reader)
    if kind == "branches":  # pypaimon writes no file indexes.
        engines["pypaimon"].ask(verb="steps", **place, steps=[append([100, "new", 0.5, "d1", 2])])
        rows.append([100, "new", 0.5, "d1", 2])
        for reader in READERS:
            assert_rows(engines[reader].ask(verb="read", **place)["rows"], rows, recipe.fields(), reader)


def test_pypaimon_finds_rows_by_our_global_indexes(engines: dict[str, Any], tmp_path: Path) -> None:
    """In its fast mode it reads no row that an index does not name: rows that came after the index are missing."""
    columns = (("id", "BIGINT"), ("name", "STRING"), ("n", "INT"), ("day", "DATE"), ("dt", "STRING"))
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
    recipe = Recipe("indexed", columns, (), ("dt",), options=options | {"scalar-index.search-mode": "fast"})
    place = {"warehouse": str(tmp_path), "table": "turns.indexed"}

    def row(i: int) -> list:
        return [
            i * 37 % 200,
            None if i % 7 == 3 else f"n{i % 30:02}é" * (i % 3 + 1),
            i % 5 - 2,
            19_700 + i % 28,
            "xy"[i % 2],
        ]

    steps = [append(*map(row, range(low, low + 40))) for low in (0, 40)]
    engines["lakeformat"].ask(verb="write", **place, **(request(recipe) | {"steps": steps}))
    table = Lake(tmp_path).table("turns.indexed")
    table.update({"n": "n + 10"}, where="id < 20")
    for name in ("id", "name", "n", "day"):
        assert table.create_global_index(name, where="dt = 'x'" if name == "n" else None) is not None
    table.create_global_index("n")
    table.delete("id = 37")
    wanted = [[*old[:2], old[2] + 10 * (old[0] < 20), *old[3:]] for old in map(row, range(80)) if old[0] != 37]
    conditions = [
        (["=", "id", 5], lambda r: r[0] == 5), (["in", "id", [5, 37, 99]], lambda r: r[0] in (5, 99)),
        (["and", [">", "id", 20], ["<=", "id", 60]], lambda r: 20 < r[0] <= 60), (["=", "n", 9], lambda r: r[2] == 9),
        (["=", "n", -2], lambda r: r[2] == -2), (["=", "name", "n07én07é"], lambda r: r[1] == "n07én07é"),
        (["starts_with", "name", "n1"], lambda r: (r[1] or "").startswith("n1")), (["is_null", "name"], lambda r: r[1] is None),
    ]  # fmt: skip
    for later in ([], [row(i) for i in range(80, 160)]):
        if later:
            engines["lakeformat"].ask(verb="steps", **place, steps=[append(*later)])
        for condition, holds in conditions:
            asked = {**place, "filter": condition, "types": dict(columns)}
            indexed = [r for r in wanted if holds(r)]
            assert indexed or condition[0] == "="
            found = engines["pypaimon"].ask(verb="read", **asked)["rows"]
            assert_rows(found, indexed, recipe.fields(), str(condition))
            whole = indexed + [r for r in later if holds(r)]
            assert_rows(engines["lakeformat"].ask(verb="read", **asked)["rows"], whole, recipe.fields(), str(condition))
    found = engines["rust"].ask(verb="read", **place)["rows"]
    assert_rows(found, wanted + [row(i) for i in range(80, 160)], recipe.fields(), "rust")


def described(value: str | None) -> tuple[str, str, str]:
    """(the local path, offset and length) of a descriptor in wire form."""
    data = bytes.fromhex(value or "")
    return data[13:-16].decode().removeprefix("file://"), data[-16:-8].hex(), data[-8:].hex()


MARKED_TURNS: dict[str, tuple[tuple[str, Step], ...]] = {
    "marked": (
        ("java", append(*([i, f"r{i}", 0.5, ("d1", "d2")[i % 2], 0] for i in range(30)))),
        ("lakeformat", append(*([i, "ours", None, ("d1", "d2")[i % 2], 0] for i in range(0, 30, 5)))),
        ("java", append(*([i, "theirs", 1.0, ("d1", "d2")[i % 2], 0] for i in range(0, 30, 7)))),
        ("lakeformat", delete("id in (3, 5, 7)", 3, 5, 7)),
        ("lakeformat", update("item", "changed", "id in (10, 14)", 10, 14)),
        ("java", append([5, "back", None, "d2", 0], [40, "new", 2.0, "d1", 1])),
        ("lakeformat", overwrite_partitions([1, "over", None, "d2", 1], [5, "over", 2.0, "d2", 1])),
        ("java", append([5, "last", None, "d2", 1], [0, "last", None, "d1", 1])),
        ("lakeformat", append([5, "end", None, "d2", 1], [2, "end", None, "d1", 1])),
        ("java", COMPACT),
        ("lakeformat", append([40, "end", 3.0, "d1", 1])),
        ("lakeformat", COMPACT),
        ("java", EXPIRE),
        ("java", append([41, "end", 3.0, "d1", 1])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_each_marks_what_the_others_wrote(engines: dict[str, Any], tmp_path: Path, file_format: str) -> None:
    columns = tuple((name, f"{type_} NOT NULL" if name in ("id", "dt") else type_) for name, type_ in SALES)
    turns = MARKED_TURNS["marked"]
    options = {"file.format": file_format, "bucket": "1", "deletion-vectors.enabled": "true"}
    steps = tuple(step for _, step in turns)
    goes_round(engines, tmp_path, Recipe("marked", columns, steps, ("dt",), ("id", "dt"), options), turns)


def test_java_compacts_what_we_marked(engines: dict[str, Any], tmp_path: Path) -> None:
    turns = (
        *(("lakeformat", append(*([10 * i + j, "r", 0.5, "d1", 0] for j in range(10)))) for i in range(6)),
        ("lakeformat", delete("id % 10 = 4", 4, 14, 24, 34, 44, 54)),
        ("lakeformat", delete("id in (5, 15)", 5, 15)),
        ("java", COMPACT),
        ("lakeformat", delete("id = 6", 6)),
        ("java", append([100, "theirs", None, "d1", 0])),
        ("lakeformat", COMPACT),
        ("java", append([101, "theirs", None, "d1", 0])),
    )
    options = {"deletion-vectors.enabled": "true"}
    goes_round(engines, tmp_path, Recipe("marks", SALES, tuple(s for _, s in turns), ("dt",), options=options), turns)


@pytest.mark.parametrize("name", KEYED_TURNS)
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_each_goes_on_from_the_others_by_key(
    engines: dict[str, Any], tmp_path: Path, name: str, file_format: str
) -> None:
    columns = tuple((name, f"{type_} NOT NULL" if name in ("id", "dt") else type_) for name, type_ in SALES)
    turns = KEYED_TURNS[name]
    recipe = Recipe(
        f"keyed_{name}",
        columns,
        tuple(step for _, step in turns),
        ("dt",),
        primary_key=("id", "dt"),
        options={"file.format": file_format, "bucket": "1"},
    )
    goes_round(engines, tmp_path, recipe, turns)


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_each_goes_on_from_the_others(engines: dict[str, Any], tmp_path: Path, name: str, file_format: str) -> None:
    turns = TURNS[name]
    recipe = Recipe(name, SALES, tuple(step for _, step in turns), ("dt",), options={"file.format": file_format})
    goes_round(engines, tmp_path, recipe, turns)


def goes_round(engines: dict[str, Any], warehouse: Path, recipe: Recipe, turns: tuple[tuple[str, Step], ...]) -> None:
    """Each takes its turn; after each, all read the same."""
    place = {"warehouse": str(warehouse), "table": f"turns.{recipe.name}"}
    engines[turns[0][0]].ask(verb="write", **place, **(request(recipe) | {"steps": []}))
    tagged = {}
    for number, (engine, step) in enumerate(turns):
        moment = moments(recipe)[number + 1]
        engines[engine].ask(verb="steps", **place, steps=[step])
        if step["do"] == "tag":
            tagged[step["name"]] = moment
        for reader in readers(turns[: number + 1]):
            assert_shows(engines[reader].ask(verb="read", **place), moment, (engine, step["do"], reader))
            for tag, then in tagged.items():
                assert_shows(engines[reader].ask(verb="read", **place, tag=tag), then, (tag, reader))


def readers(turns: tuple[tuple[str, Step], ...]) -> list[str]:
    """Who can read: pypaimon no manifest of Java 0.9, for it wants the column _VALUE_STATS_COLS, which came with 1.0."""
    java_wrote = any(engine == "java" and step["do"] != "tag" for engine, step in turns)
    return [reader for reader in READERS if not (java_wrote and reader == "pypaimon")]
