"""The projects of `examples/` do what their docstrings say."""

import importlib.util
from pathlib import Path

import dagster as dg
import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
DAYS = ("2026-01-01", "2026-01-04")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An example's module, its tables in a warehouse of their own."""

    def load(name):
        monkeypatch.setenv("WAREHOUSE", str(tmp_path / "warehouse"))
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "definitions.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def run(project, job, instance, span=DAYS):
    tags = {f"dagster/asset_partition_range_{edge}": key for edge, key in zip(("start", "end"), span, strict=True)}
    result = project.defs.resolve_job_def(job).execute_in_process(instance=instance, tags=tags)
    checks = result.get_asset_check_evaluations()
    assert checks
    assert all(check.passed for check in checks), checks
    return {name: project.lake.lake.table(name) for name in project.lake.lake.tables()}


def rows(table, *columns, **options):
    return sorted(map(tuple, (row.values() for row in table.scan(list(columns), **options).to_arrow().to_pylist())))


def test_pandas_frames_leave_failed_readings_out_and_keep_one_row_per_station(project, instance):
    example = project("pandas_frames")
    tables = run(example, "daily", instance)
    assert [len(table.snapshots()) for table in tables.values()] == [1, 1, 1]
    means = rows(tables["weather.daily_means"], "station", "celsius", "readings", where="day = '2026-01-02'")
    mean = (23 * 24 / 2 - 5) / 23
    assert means == [
        ("Kiel", pytest.approx(mean), 23),
        ("Lima", pytest.approx(mean - 10), 23),
        ("Oslo", pytest.approx(mean - 20), 23),
    ]
    assert rows(tables["weather.last_seen"], "station", "day") == [(s, DAYS[1]) for s in example.STATIONS]
    days = {"config": {"partitions": ["2026-01-01", "2026-01-03"]}}
    config = {"ops": {"rerun_readings": days, "rerun_daily_means": days}}
    assert (
        example.defs.resolve_job_def("rerun_partitions")
        .execute_in_process(instance=instance, run_config=config)
        .success
    )
    assert tables["weather.daily_means"].scan().count() == 4 * 3


def test_the_sql_pipeline_finds_the_best_product_of_each_day(project, instance):
    tables = run(project("sql_pipeline"), "daily", instance)
    assert rows(tables["shop.best_product"], "day", "product", "revenue") == [
        (f"2026-01-0{day}", "cheese", 10.0 + day) for day in range(1, 5)
    ]
    assert {name: table.format for name, table in tables.items()} == {
        "shop.best_product": "paimon",
        "shop.orders": "paimon",
        "shop.revenue": "iceberg",
    }


def test_spark_frames_merge_each_day_and_rerunning_a_day_changes_nothing(project, instance, spark):
    example = project("spark_frames")
    expected = [(0, "2026-01-01", 11.0), (1, "2026-01-02", 11.0), (2, "2026-01-02", 10.0)]
    tables = run(example, "daily", instance, ("2026-01-01", "2026-01-02"))
    assert rows(tables["shop.orders"], "id", "changed", "amount") == expected
    run(example, "daily", instance, ("2026-01-01", "2026-01-01"))
    assert rows(tables["shop.orders"], "id", "changed", "amount") == expected
    totals = dg.materialize(
        example.assets,
        selection=["monthly_totals"],
        resources=example.defs.resources,
        instance=instance,
        partition_key="2026-01-01",
    )
    assert totals.success
    assert rows(example.lake.lake.table("shop.monthly_totals"), "month", "changes", "orders") == [("2026-01-01", 4, 3)]
