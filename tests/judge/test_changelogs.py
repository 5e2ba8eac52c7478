"""Changelogs that we write, as streams of other engines read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Made
from .gaps import cases
from .recipes import COMPACT, Recipe, append, delete

READERS = ("pypaimon", "rust", "java")
COLUMNS = (("id", "BIGINT NOT NULL"), ("v", "STRING"), ("dt", "STRING NOT NULL"))
STEPS = (
    append([1, "a", "x"], [2, "b", "x"], [3, "c", "y"]),
    append([1, "A", "x"], [1, "AA", "x"], [4, "d", "x"]),
    delete("id = 2", 2),
    COMPACT,
    append([2, "back", "x"], [3, "C", "y"]),
    COMPACT,
)
CAME = (
    *(("+I", row) for step in STEPS[:2] for row in step["rows"]),
    ("-D", [2, "b", "x"]),
    *(("+I", row) for row in STEPS[4]["rows"]),
)
FOUND = (
    *(("+I", row) for row in ([1, "AA", "x"], [3, "c", "y"], [4, "d", "x"], [2, "back", "x"])),
    ("-U", [3, "c", "y"]),
    ("+U", [3, "C", "y"]),
)
TOLD = {"input": CAME, "lookup": FOUND, "full-compaction": FOUND}
RECIPES = {
    f"changelog_{producer.replace('-', '_')}_{file_format}": Recipe(
        f"changelog_{producer.replace('-', '_')}_{file_format}",
        COLUMNS,
        STEPS,
        ("dt",),
        primary_key=("id", "dt"),
        options={
            "bucket": "2",
            "changelog-producer": producer,
            "file.format": file_format,
            "write-only": "true",  # Compaction, which tells, happens where the steps say.
        },
    )
    for producer in TOLD
    for file_format in ("parquet", "orc")
}

# Told by the rows of each write, where no changelog is written.
WRITTEN = tuple(change for change in CAME if change != ("+I", [1, "A", "x"]))
OUTLIVED = {
    f"outlived_{producer.replace('-', '_')}": Recipe(
        f"outlived_{producer.replace('-', '_')}",
        COLUMNS,
        (*STEPS, {"do": "expire", "retain_last": 1}),
        ("dt",),
        primary_key=("id", "dt"),
        options={
            "bucket": "2",
            "changelog-producer": producer,
            "changelog.num-retained.min": "30",
            "write-only": "true",
        },
    )
    for producer in (*TOLD, "none")
}


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(["lakeformat"], OUTLIVED.values(), ("java",), "changes"))
def test_streams_of_java_read_changelogs_whose_snapshots_expired(
    engines: dict[str, Any], make: Callable[[str, Recipe], Made], writer: str, recipe: Recipe, reader: str
) -> None:
    test_streams_of_others_read_our_changelogs(engines, make, writer, recipe, reader)


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(["lakeformat"], RECIPES.values(), READERS, "changes"))
def test_streams_of_others_read_our_changelogs(
    engines: dict[str, Any], make: Callable[[str, Recipe], Made], writer: str, recipe: Recipe, reader: str
) -> None:
    made = make(writer, recipe)
    answer = engines[reader].ask(verb="changes", **made.place)
    wanted = TOLD.get(recipe.options["changelog-producer"], WRITTEN)
    assert Counter((kind, *row) for kind, row in answer) == Counter((kind, *row) for kind, row in wanted)
