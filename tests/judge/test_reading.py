"""Every kind of table, written by lakeformat and read by each engine we did not write; and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Made
from .gaps import cases
from .recipes import OUR_RECIPES, RECIPES, Recipe
from .rows import assert_shows, spelled

Make = Callable[[str, Recipe], Made]
READERS = ("pypaimon", "rust", "java")
WRITERS = ("pypaimon", "java")


def both_ways(view: str, step: str | None = None) -> list:
    """Ours to every reader, theirs to us; of the recipes that have such a step."""
    ours, theirs = (
        [one for one in recipes if step is None or any(action["do"] == step for action in one.steps)]
        for recipes in ((*RECIPES, *OUR_RECIPES), RECIPES)
    )
    return cases(["lakeformat"], ours, (*READERS, "lakeformat"), view) + cases(WRITERS, theirs, ["lakeformat"], view)


@pytest.mark.parametrize(("writer", "recipe", "reader"), both_ways("latest"))
def test_rows_of_the_table(engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str) -> None:
    made = make(writer, recipe)
    assert_shows(engines[reader].ask(verb="read", **made.place), made.last)


@pytest.mark.parametrize(("writer", "recipe", "reader"), both_ways("snapshots"))
def test_rows_at_each_snapshot(engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str) -> None:
    made = make(writer, recipe)
    alive = {one["id"] for one in engines[reader].ask(verb="describe", **made.place)["snapshots"]}
    for snapshot, moment in made.at_snapshots.items():
        if snapshot in alive:
            assert_shows(engines[reader].ask(verb="read", **made.place, snapshot=snapshot), moment, snapshot)


@pytest.mark.parametrize(("writer", "recipe", "reader"), both_ways("tags", "tag"))
def test_rows_at_each_tag(engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str) -> None:
    made = make(writer, recipe)
    for tag, moment in made.tags.items():
        assert_shows(engines[reader].ask(verb="read", **made.place, tag=tag), moment, tag)


@pytest.mark.parametrize(("writer", "recipe", "reader"), both_ways("description"))
def test_schema_and_history(engines: dict[str, Any], make: Make, writer: str, recipe: Recipe, reader: str) -> None:
    made = make(writer, recipe)
    seen, own = (engines[name].ask(verb="describe", **made.place) for name in (reader, writer))
    assert [one["name"] for one in seen["columns"]] == [field["name"] for field in made.last.fields]
    if reader != "rust":  # It spells types in a way of its own.
        assert [spelled(one) for one in seen["columns"]] == [spelled(field) for field in made.last.fields]
    assert tuple(seen["partition_keys"]) == recipe.partition_by
    assert seen["comment"] == recipe.comment
    assert set(seen["tags"]) == set(made.tags)
    ids = [one["id"] for one in seen["snapshots"]]
    assert ids == [one["id"] for one in own["snapshots"]]
    totals = {one["id"]: one["total"] for one in seen["snapshots"]}
    for snapshot, moment in made.at_snapshots.items():
        # Versions of a row are counted, and rows that deletion vectors took.
        if snapshot in totals and not recipe.primary_key and "deletion-vectors.enabled" not in recipe.options:
            assert totals[snapshot] == len(moment.rows), snapshot
