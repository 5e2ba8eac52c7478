"""The same judgement where lakeformat runs on Spark: what its executors wrote, others read; what others wrote, it reads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import environments, recipes
from .conftest import Made
from .gaps import cases
from .peers import Conversation, PeerRefused
from .recipes import Recipe, request
from .rows import assert_rows, assert_shows

Make = Callable[[str, Recipe], Made]
READERS = ("pypaimon", "rust", "java", "lakeformat")
# Two are Java's: one machine of it at a time, so Spark does all it has to before the others are asked.
KINDS = (
    recipes.partitioned,
    recipes.bucketed,
    recipes.bucketed_by_nulls,
    recipes.evolved,
    recipes.overwritten,
    recipes.overwritten_static,
    recipes.overwritten_where,
    recipes.declared,
    recipes.compacted,
    recipes.deleted,
    recipes.nested,
    recipes.many_rows,
)
WRITTEN = [kind(file_format) for kind in KINDS for file_format in ("parquet", "orc")]
READ = [kind(file_format) for kind in KINDS[:6] for file_format in ("parquet", "orc")]
WRITERS = ("java", "pypaimon")


@pytest.fixture(scope="module")
def spark_did(engines: dict[str, Any], make: Make, warehouse: Path) -> dict[tuple[str, str], Any]:
    """What Spark made and read, by (writer, recipe); an error stands in for what failed."""
    theirs = {(writer, recipe.name): make(writer, recipe) for writer in WRITERS for recipe in READ}
    engines["java"].close()
    spark = Conversation("lakeformat on Spark", lambda: [sys.executable, "-m", "tests.judge.engines.ours_on_spark"])
    done: dict[tuple[str, str], Any] = {}
    for recipe in WRITTEN:
        place = {"warehouse": str(warehouse), "table": f"spark.{recipe.name}"}
        try:
            latest = spark.ask(verb="write", **place, **request(recipe))
            done["spark", recipe.name] = Made(str(warehouse), place["table"], recipe, tuple(latest))
        except PeerRefused as error:
            done["spark", recipe.name] = error
    for key, made in theirs.items():
        try:
            done[key] = spark.ask(verb="read", **made.place)
        except PeerRefused as error:
            done[key] = error
    spark.close()
    return done


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(["spark"], WRITTEN, READERS, "latest"))
def test_rows_that_spark_wrote(
    engines: dict[str, Any], spark_did: dict[tuple[str, str], Any], writer: str, recipe: Recipe, reader: str
) -> None:
    made = spark_did[writer, recipe.name]
    if isinstance(made, PeerRefused):
        raise made
    assert_shows(engines[reader].ask(verb="read", **made.place), made.last)
    for snapshot, moment in made.at_snapshots.items():
        assert_shows(engines[reader].ask(verb="read", **made.place, snapshot=snapshot), moment, snapshot)


@pytest.mark.parametrize(("writer", "recipe", "reader"), cases(WRITERS, READ, ["spark"], "latest"))
def test_rows_that_spark_reads(
    make: Make, spark_did: dict[tuple[str, str], Any], writer: str, recipe: Recipe, reader: str
) -> None:
    found = spark_did[writer, recipe.name]
    if isinstance(found, PeerRefused):
        raise found
    last = make(writer, recipe).last
    assert [column["name"] for column in found["columns"]] == [field["name"] for field in last.fields]
    assert_rows(found["rows"], last.rows, last.fields)


def test_what_an_older_pyspark_lacks_is_refused_by_name(tmp_path: Path) -> None:
    run = subprocess.run(
        [*environments.script(environments.OLD_SPARK, "ours_on_old_spark.py"), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(run.stdout)
    assert answer["version"].startswith("4.0.")
    assert answer["said"] == {
        "stream": "_StreamReader",
        "maxFilesPerTrigger": "maxFilesPerTrigger and maxRowsPerTrigger need PySpark 4.2; read without them",
        "maxRowsPerTrigger": "maxFilesPerTrigger and maxRowsPerTrigger need PySpark 4.2; read without them",
        "writer": "_Writer",
        "streamWriter": "streams into a data source need PySpark 4.1; write the stream by foreachBatch",
    }
