"""Tables over the files of Spark's own tables, to Iceberg's engines: Spark's INT96 timestamps, partitions elsewhere, name mapping."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeformat import Lake, NotFound
from lakeformat.table import Table
from tests.judge.test_iceberg import counted, ours
from tests.judge.test_rest import opened, serve

pytestmark = pytest.mark.spark


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE DATABASE judged LOCATION '{tmp_path}/spark'")
    spark.sql(
        "CREATE TABLE judged.src (id BIGINT, v STRING, ts TIMESTAMP, p STRING) USING parquet PARTITIONED BY (p) "
        f"LOCATION '{tmp_path}/src'"
    )
    spark.sql(
        "INSERT INTO judged.src VALUES (1, 'a', TIMESTAMP '2021-06-01 12:00:00.123456', 'x y'), (2, NULL, NULL, NULL)"
    )
    spark.sql(f"ALTER TABLE judged.src ADD PARTITION (p = 'far') LOCATION '{tmp_path}/far'")
    spark.sql("INSERT INTO judged.src PARTITION (p = 'far') VALUES (3, 'c', TIMESTAMP '1969-06-01 12:00:00')")
    yield "judged.src"
    spark.sql("DROP DATABASE judged CASCADE")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serve(tmp_path_factory.mktemp("rest"))


def seen(engines: dict, table: Table, metadata: str) -> None:
    for reader in ("pyiceberg", "duckdb"):
        assert counted(engines[reader].ask(verb="read", metadata=metadata)["rows"]) == ours(table), reader


def test_tables_of_spark_are_read_by_icebergs_engines(engines: dict, spark: Any, source: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "w")
    snap = lake.snapshot_spark_table(spark, source, "d.snap")
    moved = lake.migrate_spark_table(spark, source, "d.moved")
    added = lake.create_table("d.added", snap.schema, format="iceberg", partition_by=["p"])
    added.add_spark_table(spark, f"{source}_BACKUP_")
    for table in (snap, moved, added):
        newest = sorted((tmp_path / "w/d.db" / table.name[2:] / "metadata").glob("v*.json"))[-1]
        seen(engines, table, str(newest))
        name = f"lake.`d.db`.{table.name[2:]}"
        for where, ids in (
            ("p = 'far'", [3]),
            ("ts < TIMESTAMP '2000-01-01'", [3]),
            ("p IS NULL", [2]),
            ("id > 0", [1, 2, 3]),
        ):
            statement = f"SELECT id FROM {name} WHERE {where} ORDER BY id"
            rows = engines["iceberg"].ask(verb="run", warehouse=lake.uri, statements=[statement])["rows"]
            assert rows == [[id] for id in ids], (table, where)


def test_a_server_takes_tables_over_the_files_of_spark(
    engines: dict, server: str, spark: Any, source: str, tmp_path: Path
) -> None:
    lake = opened(server, tmp_path)
    for table in (
        lake.snapshot_spark_table(spark, source, "shop.snap"),
        lake.migrate_spark_table(spark, source, "shop.src"),
    ):
        assert table.scan().count() == 3
        location = lake._catalog.entry(table.name).location().removeprefix("file:").replace("//", "/")  # type: ignore[union-attr]
        seen(engines, table, location)
    with pytest.raises(NotFound):
        lake.migrate_spark_table(spark, source, "shop.other")
    assert spark.table(f"{source}_BACKUP_").count() == 3
