"""Golden tables: small tables of the Java engine 0.9 in `tests/golden/paimon`, with the rows they must show.

`python -m tests.judge.golden` (from the root of the repository) makes them anew. Each is checked first: at every
snapshot and tag that the engine itself can still read, it reads what the model says.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from tests.golden import wire

from . import recipes
from .model import Moment, at, moments, tags
from .peers import Conversation, PeerRefused
from .recipes import Recipe, request, with_options

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "paimon"
DATABASE = "java09"
ENGINE = "Apache Paimon 0.9 (paimon-python-java-bridge-0.9.0)"


def chosen() -> list[Recipe]:
    """One table of each kind, formats in turn; then other spellings of manifests, and a table with a primary key."""
    every = [recipes.scalars, recipes.binaries, recipes.nested, recipes.multisets, recipes.evolved]
    parquet = [
        recipes.partitioned,
        recipes.bucketed_by_nulls,
        recipes.overwritten,
        recipes.overwritten_whole,
        recipes.emptied,
        recipes.untouched,
        recipes.compacted,
        recipes.expired,
        recipes.tagged,
        recipes.evolved_bare,
        recipes.nanoseconds,
    ]
    orc = [
        recipes.before_epoch,
        recipes.nanoseconds_before_epoch,
        recipes.overwritten_static,
        recipes.compacted_evolved,
        recipes.rolled_back,
    ]
    avro = [recipes.hollow, recipes.bucketed, recipes.dropped, recipes.compacted_buckets, recipes.many_commits]
    made = [kind(file_format) for kind in every for file_format in recipes.FORMATS]
    made += [kind("parquet") for kind in parquet] + [kind("orc") for kind in orc] + [kind("avro") for kind in avro]
    made += [recipes.partitioned_by(type_) for type_ in recipes.KEY_TYPES]
    manifests = {"manifest.format": "orc"}
    made += [
        with_options(recipes.partitioned("orc"), "manifests_orc_partitioned", **manifests),
        with_options(recipes.evolved("parquet"), "manifests_orc_evolved", **manifests),
        with_options(recipes.overwritten("parquet"), "data_gzip", **{"file.compression": "gzip"}),
        with_options(recipes.partitioned("parquet"), "default_partition_name", **{"partition.default-name": "NOTHING"}),
        with_options(recipes.scalars("parquet"), "statistics_full", **{"metadata.stats-mode": "full"}),
        with_options(recipes.partitioned("parquet"), "statistics_none", **{"metadata.stats-mode": "none"}),
        recipes.keyed("parquet"),
        recipes.keyed_marked("parquet"),
    ]
    return made


def main() -> None:
    """Write every table and its expected rows."""
    java = Conversation("java")
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as warehouse:
        for recipe in chosen():
            expected = make(java, warehouse, recipe)
            shutil.copytree(f"{warehouse}/{DATABASE}.db/{recipe.name}", GOLDEN / f"{DATABASE}.db" / recipe.name)
            file = GOLDEN / "expected" / f"{recipe.name}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(expected, separators=(",", ":")) + "\n", encoding="utf-8")
    java.close()


def make(java: Conversation, warehouse: str, recipe: Recipe) -> dict:
    """Have the Java engine make the table; the document that says what must be read from it."""
    table = f"{DATABASE}.{recipe.name}"
    latest = java.ask(verb="write", warehouse=warehouse, table=table, **request(recipe))
    alive = {one["id"] for one in java.ask(verb="describe", warehouse=warehouse, table=table)["snapshots"]}
    after = moments(recipe)
    at_snapshots = {snapshot: moment for snapshot, moment in at(recipe, latest).items() if snapshot in alive}
    check(java, warehouse, table, after[-1])
    for snapshot, moment in at_snapshots.items():
        check(java, warehouse, table, moment, snapshot=snapshot)
    for tag, moment in tags(recipe).items():
        check(java, warehouse, table, moment, tag=tag)
    return {
        "engine": ENGINE,
        "table": table,
        "partition_by": recipe.partition_by,
        "primary_key": recipe.primary_key,
        "options": dict(recipe.options),
        "comment": recipe.comment,
        "latest": _said(after[-1]),
        "snapshots": {str(snapshot): _said(moment) for snapshot, moment in at_snapshots.items()},
        "tags": {tag: _said(moment) for tag, moment in tags(recipe).items()},
    }


def check(java: Conversation, warehouse: str, table: str, moment: Moment, **at: object) -> None:
    """The engine reads from its own table what the model says."""
    try:
        found = java.ask(verb="read", warehouse=warehouse, table=table, **at)
    except PeerRefused as error:
        raise AssertionError(f"{table} {at}: {error}") from error
    assert [_column(one) for one in found["columns"]] == [_column(one) for one in moment.fields], (table, at)
    assert wire.multiset(found["columns"], found["rows"]) == wire.multiset(moment.fields, moment.rows), (table, at)


def _column(field: dict) -> dict:
    return {key: field[key] for key in ("id", "name", "type")}


def _said(moment: Moment) -> dict:
    return {"fields": list(moment.fields), "rows": [list(row) for row in moment.rows]}


if __name__ == "__main__":
    main()
