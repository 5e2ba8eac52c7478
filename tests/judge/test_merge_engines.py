"""What rows of one key become, by merge engine: written by one engine, read by another, always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasketches
import pytest
from pyroaring import BitMap, BitMap64

from lakeformat.engines.keyed import roaring64

from .conftest import Made
from .gaps import cases
from .recipes import Recipe, append, array, map_, row
from .rows import assert_rows
from .vectors import SETS

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


def narrow(*values: int) -> str:
    return _hex(BitMap(values), BitMap.serialize)


def wide(*values: int) -> str:
    return _hex(BitMap64(values), roaring64.serialize)


def _hex(bitmap: Any, serialize: Callable[[Any], bytes]) -> str:
    bitmap.run_optimize()
    return serialize(bitmap).hex()


def hll(*values: int) -> str:
    made = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_4)
    for value in values:
        made.update(value)
    return bytes(made.serialize_compact()).hex()


def theta(*values: int) -> str:
    made = datasketches.update_theta_sketch()
    for value in values:
        made.update(value)
    return bytes(made.compact().serialize()).hex()


def counted(row: list) -> list:
    """The hashes that a row's theta sketch holds: Java writes into unused bytes of it, the C++ library zeros."""
    hashes = sorted(datasketches.compact_theta_sketch.deserialize(bytes.fromhex(row[2])))
    return [*row[:2], b"".join(number.to_bytes(8, "big") for number in hashes).hex()]


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
    "timed_maps": (
        keyed(
            "timed_maps",
            "aggregation",
            [("m", map_("STRING", row(n="INT", at="STRING")))],
            [[1, [["x", [2, "11:00"]]]], [2, [["x", [1, "10:00"]], ["y", [1, "10:00"]]]], [3, None]],
            [[1, [["x", [1, "10:00"]]]], [2, [["x", [9, None]], ["y", None]]], [3, [["x", [1, None]]]]],
            **function("m", "merge_map_with_keytime", **{"ts-field": "at"}),
        ),
        [[1, [["x", [2, "11:00"]]]], [2, [["x", [1, "10:00"]]]], [3, [["x", [1, None]]]]],
    ),
    "nested": (
        keyed(
            "nested",
            "aggregation",
            [("all", array(row(x="INT", y="STRING"))), ("one", array(row(x="INT", y="STRING")))],
            [[1, [[1, "a"]], [[1, "a"]]], [2, None, []]],
            [[1, [[1, "b"], [2, None]], [[1, "b"]]], [2, [[3, "c"]], None]],
            **function("all", "nested_update"),
            **function("one", "nested_update", **{"nested-key": "x"}),
        ),
        [[1, [[1, "a"], [1, "b"], [2, None]], [[1, "b"]]], [2, [[3, "c"]], []]],
    ),
    "nested_partial": (
        keyed(
            "nested_partial",
            "aggregation",
            [("r", array(row(x="INT", y="STRING", z="INT")))],
            [[1, [[1, "a", None]]]],
            [[1, [[1, None, 7]]]],
            **function("r", "nested_partial_update", **{"nested-key": "x"}),
        ),
        [[1, [[1, "a", 7]]]],
    ),
    "nested_ordered": (
        keyed(
            "nested_ordered",
            "aggregation",
            [("r", array(row(x="INT", y="STRING", z="INT"))), ("few", array(row(x="INT")))],
            [[1, [[1, "new", 2]], [[1]]]],
            [[1, [[1, "old", 1]], [[2], [3]]]],
            **function("r", "nested_update", **{"nested-key": "x", "nested-sequence-field": "z"}),
            **function("few", "nested_update", **{"count-limit": "2"}),
        ),
        [[1, [[1, "new", 2]], [[1], [2]]]],
    ),
    "bitmaps": (
        keyed(
            "bitmaps",
            "aggregation",
            [("narrow", "BYTES"), ("wide", "BYTES")],
            [[1, narrow(1, 70000), wide(1, 1 << 40)], [2, narrow(5), None]],
            [[1, narrow(2), wide(2, 3, (1 << 63) + 1)], [2, None, wide(9)]],
            **function("narrow", "rbm32"),
            **function("wide", "rbm64"),
        ),
        [[1, narrow(1, 2, 70000), wide(1, 2, 3, 1 << 40, (1 << 63) + 1)], [2, narrow(5), wide(9)]],
    ),
    "sketches": (
        keyed(
            "sketches",
            "aggregation",
            [("h", "BYTES"), ("t", "BYTES")],
            [[1, hll(1, 2), theta(1, 2)], [2, hll(5), None]],
            [[1, hll(2, 3), theta(2, 3)], [2, None, theta(9)]],
            **function("h", "hll_sketch"),
            **function("t", "theta_sketch"),
        ),
        [[1, hll(2, 3, 1), theta(1, 2, 3)], [2, hll(5), theta(9)]],
    ),
    "looked_up": (  # Each write is compacted, and what stands on a lower level holds all that is above.
        keyed(
            "looked_up",
            "aggregation",
            [("n", "BIGINT"), ("s", "STRING")],
            [[1, 1, "a"], [2, 5, None]],
            [[1, 2, "b"], [3, 7, "x"]],
            [[1, 4, "c"]],
            [[1, 8, None], [2, 1, "z"]],
            **{"changelog-producer": "lookup"},
            **function("n", "sum"),
            **function("s", "listagg"),
        ),
        [[1, 15, "a,b,c"], [2, 6, "z"], [3, 7, "x"]],
    ),
    "first": (
        keyed("first", "first-row", [("v", "STRING")], [[1, "a"], [2, "b"]], [[1, "A"], [3, "c"]]),
        [[1, "a"], [2, "b"], [3, "c"]],
    ),
}


def every() -> list:
    recipes = [recipe for recipe, _ in RECIPES.values()]
    return cases(["lakeformat"], recipes, READERS, "latest") + cases(WRITERS, recipes, ["lakeformat"], "latest")


def test_bitmaps_of_64_bits_are_the_same_to_java(engines: dict[str, Any]) -> None:
    java = engines["java"]
    made = [java_set["bytes"] for java_set in java.ask(verb="roaring64", sets=SETS)]
    pairs = [(theirs, roaring64.serialize(roaring64.deserialize(bytes.fromhex(theirs))).hex()) for theirs in made]
    assert java.ask(verb="same_roaring64", pairs=pairs) == [True] * len(SETS)


@pytest.mark.parametrize(("writer", "recipe", "reader"), every())
def test_rows_of_a_key_become_one(
    engines: dict[str, Any], make: Callable[[str, Recipe], Made], writer: str, recipe: Recipe, reader: str
) -> None:
    made = make(writer, recipe)
    expected = next(rows for each, rows in RECIPES.values() if each is recipe)
    found = engines[reader].ask(verb="read", **made.place)["rows"]
    if recipe.name == "bitmaps" and reader == "rust":  # It writes the same numbers in a tree of larger nodes.
        found = [[*row[:2], row[2] and wide(*roaring64.deserialize(bytes.fromhex(row[2])))] for row in found]
    if recipe.name == "sketches":
        found, expected = [counted(row) for row in found], [counted(row) for row in expected]
    assert_rows(found, expected, recipe.fields())
