"""What our manifests say of the data files, as Java reads it: counts, bounds, nulls, partitions, buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from . import recipes
from .conftest import Made
from .gaps import cases
from .model import _comparable
from .recipes import FORMATS, Recipe

Make = Callable[[str, Recipe], Made]
UNORDERED = ("ARRAY", "MAP", "MULTISET", "ROW", "BYTES", "BINARY", "VARBINARY")
KINDS = (
    recipes.scalars,
    recipes.nested,
    recipes.partitioned,
    recipes.bucketed,
    recipes.evolved,
    recipes.overwritten,
    recipes.compacted,
    recipes.many_commits,
    recipes.many_rows,
)
TOLD = [kind(file_format) for kind in KINDS for file_format in FORMATS]
ALONE = [recipes.scalars(file_format) for file_format in FORMATS]


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(["lakeformat"], TOLD, ["java"], "files"))
def test_files_add_up_to_the_table(
    engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str
) -> None:
    made = make(writer, recipe)
    files = engines[reader].ask(verb="files", **made.place)
    assert sum(file["rows"] for file in files) == len(made.last.rows)
    assert len({file["name"] for file in files}) == len(files)
    buckets = int(recipe.options.get("bucket", "-1"))
    for file in files:
        assert file["total_buckets"] == buckets, file
        assert 0 <= file["bucket"] < max(buckets, 1), file
        assert file["level"] == 0, file
        assert len(file["nulls"]) == len(file["columns"]), file
    keys = [next(i for i, f in enumerate(made.last.fields) if f["name"] == key) for key in recipe.partition_by]
    partitions = {tuple(row[key] for key in keys) for row in made.last.rows}
    assert {tuple(file["partition"]) for file in files} == partitions


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(["lakeformat"], TOLD, ["java"], "bounds"))
def test_bounds_hold_every_value(engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str) -> None:
    made = make(writer, recipe)
    by_id = {field["id"]: position for position, field in enumerate(made.last.fields)}
    keys = [next(i for i, f in enumerate(made.last.fields) if f["name"] == key) for key in recipe.partition_by]
    for file in engines[reader].ask(verb="files", **made.place):
        rows = [row for row in made.last.rows if [row[key] for key in keys] == file["partition"]]
        alone = len(rows) == file["rows"]  # The file is all there is of its partition.
        for column, low, high, nulls in zip(file["columns"], file["min"], file["max"], file["nulls"], strict=True):
            position = by_id.get(column["id"])
            if position is None or column["type"] != made.last.fields[position]["type"]:
                continue
            values = [row[position] for row in rows]
            if alone:
                assert nulls == values.count(None), (file, column)
            present = [_comparable(v, column["type"]) for v in values if v is not None] if alone else []
            if not isinstance(column["type"], str) or column["type"].startswith(UNORDERED):
                assert (low, high) == (None, None), (file, column)
            elif present:
                assert low is not None, (file, column)
                assert _comparable(low, column["type"]) <= min(present), (file, column)
                assert high is None or max(present) <= _comparable(high, column["type"]), (file, column)
                if not column["type"].startswith(("STRING", "CHAR", "VARCHAR")):
                    assert (low, high) != (None, None)
                    assert _comparable(low, column["type"]) == min(present), (file, column)
                    assert _comparable(high, column["type"]) == max(present), (file, column)


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(["lakeformat"], ALONE, ["java"], "same bounds"))
def test_bounds_are_those_that_java_writes(
    engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str
) -> None:
    ours, theirs = (engines["java"].ask(verb="files", **make(name, recipe).place) for name in (writer, "java"))

    def told(files: list[dict]) -> list:
        kept = ("partition", "bucket", "rows", "schema", "min", "max", "nulls", "total_buckets", "sequence", "source")
        return sorted(([file[key] for key in kept] for file in files), key=repr)

    assert told(ours) == told(theirs)
