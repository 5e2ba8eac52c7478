"""The engines of a session, and the tables they were told to make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakeformat import Lake

from . import environments
from .model import Moment, at, moments, tags
from .ours import Ours
from .peers import Conversation
from .recipes import Recipe, request

Sql = Callable[..., list]


@dataclass(frozen=True, slots=True)
class Made:
    """A table that an engine made by a recipe."""

    warehouse: str
    table: str
    recipe: Recipe
    latest: tuple[int | None, ...]

    @property
    def at_snapshots(self) -> dict[int, Moment]:
        return at(self.recipe, self.latest)

    @property
    def tags(self) -> dict[str, Moment]:
        return tags(self.recipe)

    @property
    def last(self) -> Moment:
        return moments(self.recipe)[-1]

    @property
    def place(self) -> dict[str, str]:
        return {"warehouse": self.warehouse, "table": self.table}


@pytest.fixture(scope="session")
def engines() -> Iterator[dict[str, Any]]:
    """Every engine by name; a peer's process starts when it is first asked."""
    known = {"lakeformat": Ours(), **{name: Conversation(name) for name in environments.PEERS}}
    yield known
    for engine in known.values():
        engine.close()


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture
def lake(warehouse: Path) -> Lake:
    """Iceberg tables that Spark sees too."""
    return Lake(warehouse / "iceberg")


@pytest.fixture
def sql(engines: dict[str, Any], warehouse: Path) -> Sql:
    """Statements for Iceberg's own runtime on Spark, on tables called `lake`.`d.db`.<name>; the rows of the last."""
    where = str(warehouse / "iceberg")  # Spark keeps a catalog for as long as it runs: one warehouse for all.
    return lambda *statements: engines["iceberg"].ask(verb="run", warehouse=where, statements=statements)["rows"]


@pytest.fixture(scope="session")
def make(engines: dict[str, Any], warehouse: Path) -> Callable[[str, Recipe], Made]:
    """Have an engine make a table, once a session; a failure is raised again for each case that wants the table."""
    made: dict[tuple[str, str], Made | Exception] = {}

    def once(writer: str, recipe: Recipe) -> Made:
        key = (writer, recipe.name)
        if key not in made:
            table = f"{writer}.{recipe.name}"
            place = {"warehouse": str(warehouse), "table": table}
            try:
                latest = engines[writer].ask(verb="write", **place, **request(recipe))
                made[key] = Made(str(warehouse), table, recipe, tuple(latest))
            except Exception as error:
                made[key] = error
        if isinstance(found := made[key], Exception):
            raise found
        return found

    return once
