"""Every SQL example of both connectors' Spark documentation: it runs and gives what the page says, or is refused by name."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import InvalidInput, Lake, NotFound, UnsupportedFeature
from tests.draw import some
from tests.sql.conftest import rows
from tests.sql.examples import GROUPS, SYSTEM, reasons, share, table

ROOT = Path(__file__).parents[2]


def test_the_page_counts_the_examples():
    page = (ROOT / "docs" / "sql.md").read_text()
    assert table() in page
    run, elsewhere, total = share()["all"]
    assert run >= 0.95 * (total - elsewhere)
    assert f"{run} of {total} examples run" in page
    for why, count in reasons().items():
        assert f"| {why} | {count} |" in page


FILES = {  # To load.
    "csv_files/a.csv": "1,a\n2,b\n",
    "csv_files/below/b.csv": "3,c\n",
    "new_users/a.csv": "id,name\n1,ann\n2,bob\n",
    "logs/a.csv": "1|2024-05-01\n2|NULL\n3|\\N\n4|\n",
    "logs/a.txt": "no events",
    "json_files/a.json": '{"name": "c", "id": 3}\n{"name": "d", "more": 1}\n',
    "events/a.json": '[{"id": 5,\n  "event_date": "2024-06-01"},\n {"id": 6}]\n',
}


def told(result):
    return [tuple(row.values()) for row in result.to_arrow().to_pylist()]


@pytest.mark.drawn(30)
@pytest.mark.parametrize("place", range(len(GROUPS)), ids=lambda i: f"{GROUPS[i].page}-{i}")
def test_examples_of_the_connectors_pages(tmp_path, place):
    walk(tmp_path, GROUPS[place])


PAGES = sorted({group.page for group in GROUPS}, key=lambda page: (page != SYSTEM, page))


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(len(PAGES)))  # `make test` runs the first page, of functions.
@pytest.mark.from_pyspark("4.1")
def test_examples_of_the_connectors_pages_on_spark(tmp_path, spark, seed):
    page = PAGES[seed]
    groups = [group for group in GROUPS if group.page == page]
    for place, group in enumerate(some(groups, 6, page)):
        (tmp_path / str(place)).mkdir()
        with tables_of_spark(spark, group, tmp_path / str(place)):
            walk(tmp_path / str(place), group, spark)


@pytest.mark.spark
def test_examples_with_tables_of_spark(tmp_path, spark):
    groups = [group for group in GROUPS if group.spark_tables]
    for place, group in enumerate(some(groups, 4, "tables of Spark")):
        (tmp_path / str(place)).mkdir()
        with tables_of_spark(spark, group, tmp_path / str(place)):
            walk(tmp_path / str(place), group, spark)


@contextmanager
def tables_of_spark(spark, group, folder):
    """The group's tables in Spark's own catalog, for a while."""
    for name, rest in group.spark_tables.items():
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {name.partition('.')[0]} LOCATION '{folder}/spark'")
        at = f"LOCATION '{folder}/spark/{name}'"
        spark.sql(f"CREATE TABLE {name} USING parquet {rest.replace('{at}', at)}")
    yield
    for name in group.spark_tables:
        for left in (name, f"{name}_BACKUP_"):
            spark.sql(f"DROP TABLE IF EXISTS {left}")


def walk(tmp_path, group, spark=None):
    """Run a group's statements from top to bottom, in process or on Spark, and compare what each gives with the page."""
    of_paimon = {"catalog": "sql", "catalog_options": {"format": "paimon"}}
    lake = Lake(tmp_path / "w", **(of_paimon if group.catalog == "paimon" else {"catalog": group.catalog}))
    for name in ("prod", "paimon", "catalog_name", "spark_catalog", "hive_prod"):
        lake.sql(f"CREATE CATALOG {name} WITH ('type' = '{group.format}', 'warehouse' = '{tmp_path / 'w'}')")
    lake.sql("CREATE DATABASE default; CREATE DATABASE db; CREATE DATABASE my_database")
    (tmp_path / "folder").mkdir()
    pq.write_table(pa.table({"id": pa.array([7], pa.int32())}), tmp_path / "folder" / "a.parquet")
    frames = {
        "other": pa.table({"id": pa.array([1, 2], pa.int32()), "data": ["a", "b"]}),
        "another_table": pa.table(
            {"id": [1], "data": ["a"], "category": ["x"], "ts": pa.array([0], pa.timestamp("us", "UTC"))}
        ),
    }
    known = {"folder": str(tmp_path / "folder"), "spark": str(tmp_path), "data": str(tmp_path / "data")}
    for name, text in FILES.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    (tmp_path / "data" / "parquet_files").mkdir()
    pq.write_table(pa.table({"ID": [9], "other": [1]}), tmp_path / "data" / "parquet_files" / "a.parquet")

    def run(text):
        for key, value in known.items():
            text = text.replace("{" + key + "}", str(value))
        return lake.sql(text, spark=spark, folders=[known["data"]], **frames)

    for step in group.setup:
        step(lake) if callable(step) else run(step)
        names = [name for name in ("db.sample", "db.table", "db.tbl", "default.T") if lake.exists(name)]
        snapshots = lake.table(names[0]).snapshots() if names else []
        if len(snapshots) == 1 and "first" not in known:
            known["first"] = snapshots[0].id
            time.sleep(0.005)  # Snapshots of different milliseconds.
            known["between"] = datetime.now(UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
            time.sleep(0.005)
    known["seconds"] = int(time.time()) + 1
    for example in group.examples:
        known["now"] = int(time.time() * 1000)
        if "{older}" in example.sql:
            named = set(lake.sql("SELECT snapshot_id FROM db.sample.refs").to_arrow()["snapshot_id"].to_pylist())
            made = lake.sql("SELECT snapshot_id FROM db.sample.snapshots").to_arrow()["snapshot_id"].to_pylist()
            known["older"] = next(name for name in made if name not in named)
            known["location"] = lake.table("db.sample").uri
        if "{metadata}" in example.sql:
            log = lake.sql("SELECT file FROM db.sample.metadata_log_entries").to_arrow()["file"]
            known["metadata"] = log[-1].as_py()
        if "{staged" in example.sql and "staged" not in known:
            shown = "SELECT snapshot_id FROM my_table.snapshots WHERE summary['wap.id'] = 'wap_id_{}'"
            for key, number in (("staged", 1), ("staged_next", 2)):
                known[key] = lake.sql(shown.replace("{}", str(number))).to_arrow()[0][0].as_py()
        if example.needs_spark and spark is None:
            with pytest.raises((UnsupportedFeature, InvalidInput), match="spark=spark"):
                run(example.sql)
            continue
        if example.refused is not None:
            with pytest.raises((UnsupportedFeature, InvalidInput, NotFound)) as error:
                run(example.sql)
            if spark is not None:  # Spark refuses functions in words of its own.
                continue
            assert example.refused in str(error.value), example.sql
            assert str(error.value).startswith(("SQL at line 1, column ", lake.uri, f"file://{lake.uri}")), example.sql
            continue
        found = run(example.sql)
        found = found if example.then is None else run(example.then)
        if isinstance(example.gives, int):
            assert len(found) == example.gives, (example.sql, told(found))
        elif example.gives is not None:
            got = rows(found)
            if (example.then or "").startswith("DESCRIBE"):
                wanted = {give[0] for give in example.gives}
                got = [row[: len(example.gives[0])] for row in got if row[0] in wanted]
            assert got == example.gives, example.sql
