"""What rows of one key become, by merge engine: written by one engine, read by another, always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Made
from .gaps import cases
from .recipes import Recipe, append, array, map_
from .rows import assert_rows

READERS = ("pypaimon", "rust", "java", "lakeformat")
WRITERS = ("pypaimon", "java")
KEY = ("id", "INT NOT NULL")


def keyed(name: str, engine: str, columns: list[tuple[str, Any]], *commits: list[list], **options: str) -> Recipe:
    return Recipe(
        name,
        (KEY, *columns),
        tuple(append(*rows) for rows in commits),
        primary_key=("id",),
        options={"bucket": "1", "merge-engine": engine} | {k.replace("_of_", "."): v for k, v in options.items()},
    )


def function(column: str, name: str, **more: str) -> dict[str, str]:
    return {f"fields.{column}.aggregate-function": name} | {f"fields.{column}.{k}": v for k, v in more.items()}


COUNTS = [("n", "BIGINT"), ("d", "DECIMAL(10, 2)"), ("f", "DOUBLE"), ("s", "STRING"), ("b", "BOOLEAN")]
RECIPES: dict[str, tuple[Recipe, list[list]]] = {
    "deduplicate": (
        keyed("dedup", "deduplicate", [("v", "STRING"), ("w", "INT")], [[1, "a", 1], [2, "b", 2]], [[1, "A", None]]),
        [[1, "A", None], [2, "b", 2]],
    ),
    "changelog": (
        keyed(
            "changelog",
            "deduplicate",
            [("v", "STRING")],
            [[1, "a"], [2, "b"]],
            [[1, "A"], [3, "c"]],
            **{"changelog-producer": "input"},
        ),
        [[1, "A"], [2, "b"], [3, "c"]],
    ),
    "sequence": (
        keyed(
            "sequence",
            "deduplicate",
            [("v", "STRING"), ("g", "INT")],
            [[1, "new", 5], [2, "x", None]],
            [[1, "old", 3], [2, "y", 0]],
            **{"sequence.field": "g"},
        ),
        [[1, "new", 5], [2, "y", 0]],
    ),
    "partial": (
        keyed(
            "partial",
            "partial-update",
            [("a", "STRING"), ("b", "INT"), ("c", "STRING")],
            [[1, "x", None, "p"], [2, "y", 1, None]],
            [[1, None, 7, None], [3, None, None, "q"]],
            [[1, "z", None, None]],
        ),
        [[1, "z", 7, "p"], [2, "y", 1, None], [3, None, None, "q"]],
    ),
    "groups": (
        keyed(
            "groups",
            "partial-update",
            [("a", "STRING"), ("g", "INT"), ("total", "BIGINT"), ("h", "INT"), ("free", "INT")],
            [[1, "two", 2, 5, 1, 1]],
            [[1, "one", 1, 6, 0, None]],
            [[1, None, None, 7, None, 3]],
            [[1, None, 3, 8, 2, None]],
            **{"fields.g.sequence-group": "a", "fields.h.sequence-group": "total"},
            **function("total", "sum"),
        ),
        [[1, None, 3, 19, 2, 3]],
    ),
    "sums": (
        keyed(
            "sums",
            "aggregation",
            COUNTS,
            [[1, 1, "1.50", 1.0, "a", True], [2, 5, None, 2.5, None, None]],
            [[1, 2, "2.25", 0.5, "b", False], [2, None, "1.00", None, "c", True]],
            **function("n", "sum"),
            **function("d", "sum"),
            **function("f", "max"),
            **function("s", "listagg"),
            **function("b", "bool_and"),
        ),
        [[1, 3, "3.75", 1.0, "a,b", False], [2, 5, "1.00", 2.5, "c", True]],
    ),
    "values": (
        keyed(
            "values",
            "aggregation",
            COUNTS,
            [[1, 1, "1.50", 1.0, None, True], [2, 5, None, 2.5, "x", None]],
            [[1, 2, None, None, "b", None], [2, None, "1.00", 4.0, "c", True]],
            **function("n", "last_value"),
            **function("d", "last_non_null_value"),
            **function("f", "min"),
            **function("s", "first_value"),
            **function("b", "bool_or"),
        ),
        [[1, 2, "1.50", 1.0, None, True], [2, None, "1.00", 2.5, "x", True]],
    ),
    "products": (
        keyed(
            "products",
            "aggregation",
            COUNTS,
            [[1, 3, "1.50", 1.5, None, True]],
            [[1, -2, "1.50", 2.0, "b", None]],
            [[1, 5, "0.01", None, "c", None]],
            **function("n", "product"),
            **function("d", "product"),
            **function("f", "product"),
            **function("s", "first_non_null_value"),
        ),
        [[1, -30, "0.02", 3.0, "b", True]],
    ),
    "collections": (
        keyed(
            "collections",
            "aggregation",
            [("l", array("INT")), ("m", map_("STRING", "INT"))],
            [[1, [1, 2], [["a", 1]]], [2, None, None]],
            [[1, [2, 3], [["a", 2]]], [2, [4], [["b", 1]]]],
            **function("l", "collect"),
            **function("m", "merge_map"),
        ),
        [[1, [1, 2, 2, 3], [["a", 2]]], [2, [4], [["b", 1]]]],
    ),
    "first": (
        keyed("first", "first-row", [("v", "STRING")], [[1, "a"], [2, "b"]], [[1, "A"], [3, "c"]]),
        [[1, "a"], [2, "b"], [3, "c"]],
    ),
}


def every() -> list:
    recipes = [recipe for recipe, _ in RECIPES.values()]
    return cases(["lakeformat"], recipes, READERS, "latest") + cases(WRITERS, recipes, ["lakeformat"], "latest")


@pytest.mark.parametrize(("writer", "recipe", "reader"), every())
def test_rows_of_a_key_become_one(
    engines: dict[str, Any], make: Callable[[str, Recipe], Made], writer: str, recipe: Recipe, reader: str
) -> None:
    made = make(writer, recipe)
    expected = next(rows for each, rows in RECIPES.values() if each is recipe)
    assert_rows(engines[reader].ask(verb="read", **made.place)["rows"], expected, recipe.fields())
