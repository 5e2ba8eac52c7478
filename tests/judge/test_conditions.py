"""Conditions and projections: no engine may lose a row to the bounds, partitions or buckets that another one wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from . import recipes
from .conftest import Made
from .gaps import cases
from .model import matches
from .recipes import FORMATS, SCALARS, Recipe
from .rows import assert_rows

Make = Callable[[str, Recipe], Made]
READERS = ("pypaimon", "rust", "java", "lakeformat")
WRITERS = ("pypaimon", "java")
NOT_ORDERED = ("BOOLEAN", "BINARY", "VARBINARY", "BYTES", "TIME(")


def of_each_scalar(recipe: Recipe) -> dict[str, list[list]]:
    """Equal, other, below, above, null: for each column and both of its values."""
    found: dict[str, list[list]] = {}
    for name, type_ in recipe.columns:
        found[name] = [["is_null", name], ["is_not_null", name]]
        for value in SCALARS[type_]:
            found[name] += [["=", name, value], ["in", name, [value]]]
            if not type_.startswith(NOT_ORDERED):
                found[name] += [[operator, name, value] for operator in ("!=", "<", "<=", ">", ">=")]
    return found


def of_each_key(recipe: Recipe) -> dict[str, list[list]]:
    """Each row by its bucket key."""
    rows = [row for step in recipe.steps for row in step["rows"]]
    return {
        "keys": [
            ["and", ["=", "id", row[0]], ["is_null", "name"] if row[1] is None else ["=", "name", row[1]]]
            for row in rows
        ]
    }


CONDITIONS: dict[str, dict[str, list[list]]] = {
    "partitioned": {
        "keys": [
            ["=", "dt", "2024-01-01"],
            ["=", "dt", ""],
            ["in", "dt", ["a/b=c%d:e", "日本 é"]],
            ["is_null", "dt"],
            ["and", ["is_null", "hour"], ["is_not_null", "dt"]],
            ["<", "dt", "3"],
        ],
        "both": [
            ["and", ["=", "dt", "2024-01-01"], [">", "id", 1]],
            ["or", ["=", "hour", 23], ["=", "item", "apple"]],
            ["starts_with", "item", "p"],
        ],
    },
    "evolved": {
        "widened": [
            ["=", "a", 2**40],
            ["<", "a", 4],
            [">", "b", 1.0],
            [">=", "d", "3.00"],
            ["=", "d", "1.00"],
            ["and", ["=", "p", "x"], ["<=", "a", 3]],
        ],
        "added": [["is_null", "e"], ["is_not_null", "e"], ["=", "text", "six"], ["is_null", "text"]],
    },
    "overwritten": {"all": [["=", "dt", "d1"], ["is_null", "dt"], [">=", "id", 6], ["=", "item", "c"]]},
    "many_rows": {
        "all": [
            ["and", [">=", "id", 100], ["<", "id", 110]],
            ["and", ["=", "item", "red"], ["=", "dt", "d1"], ["<", "hour", 3]],
            [">", "price", "999000.25"],
            ["is_null", "item"],
            ["starts_with", "item", "a long"],
        ]
    },
}
KINDS = (
    recipes.scalars,
    recipes.partitioned,
    recipes.bucketed,
    recipes.evolved,
    recipes.overwritten,
    recipes.many_rows,
)
ASKED = [kind(file_format) for kind in KINDS for file_format in FORMATS]


def conditions(recipe: Recipe) -> dict[str, list[list]]:
    match recipe.name.rsplit("_", 1)[0]:
        case "scalars":
            return of_each_scalar(recipe)
        case "bucketed":
            return of_each_key(recipe)
        case name:
            return CONDITIONS[name]


def grouped() -> list:
    """(writer, recipe, reader, group of conditions), each with its own gaps."""
    found = []
    for recipe in ASKED:
        for group, asked in conditions(recipe).items():
            view = f"conditions on {group}"
            of_group = cases(["lakeformat"], [recipe], READERS, view) + cases(WRITERS, [recipe], ["lakeformat"], view)
            found += [pytest.param(*one.values, asked, id=f"{one.id}-{group}", marks=one.marks) for one in of_group]
    return found


@pytest.mark.parametrize(("writer", "recipe", "reader", "asked"), grouped())
def test_rows_that_meet_a_condition(
    engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str, asked: list[list]
) -> None:
    made = make(writer, recipe)
    fields = made.last.fields
    types = {field["name"]: field["type"] for field in fields}
    for condition in asked:
        wanted = [row for row in made.last.rows if matches(condition, fields, row)]
        found = engines[reader].ask(verb="read", **made.place, filter=condition, types=types)["rows"]
        if reader != "lakeformat":  # The others promise to lose nothing; what is over they may leave to their caller.
            found = [row for row in found if matches(condition, fields, row)]
        assert_rows(found, wanted, fields, condition)


@pytest.mark.parametrize(
    ("writer", "recipe", "reader"),
    cases(["lakeformat"], ASKED, READERS, "columns") + cases(WRITERS, ASKED, ["lakeformat"], "columns"),
)
def test_some_of_the_columns(engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str) -> None:
    made = make(writer, recipe)
    fields = made.last.fields
    for chosen in (fields[-1:], fields[::-1], fields[1::2], (*fields[:1], *fields[-1:])):
        names = [field["name"] for field in chosen]
        found = engines[reader].ask(verb="read", **made.place, columns=names)
        assert [column["name"] for column in found["columns"]] == names
        wanted = [[row[fields.index(field)] for field in chosen] for row in made.last.rows]
        assert_rows(found["rows"], wanted, chosen, names)
