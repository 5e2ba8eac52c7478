"""`sql_table`: queries as assets, their inputs, partitions and lineage."""

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat import InvalidInput
from lakeformat.dagster import LakeIOManager, sql_table

DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAYS = {"partition_by": {"date": "dt"}}


@dg.asset(key=["raw", "orders"], partitions_def=DAILY, metadata=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    days = [key for key in context.partition_keys for _ in range(2)]
    return pa.table({"dt": days, "customer": ["ann", "bob"] * (len(days) // 2), "amount": list(range(len(days)))})


@dg.asset
def customers() -> pa.Table:
    return pa.table({"name": ["ann", "bob"], "city": ["Ulm", "Ely"]})


@pytest.fixture
def run(lake, instance):
    def run(*assets, first=None, last=None, **options):
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first}
        return dg.materialize(
            list(assets),
            resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
            instance=instance,
            tags=tags if first else {},
            **options,
        )

    return run


def lineage(result, asset):
    (event, *_) = result.asset_materializations_for_node(asset)
    return {
        column: {f"{dependency.asset_key.to_user_string()}.{dependency.column_name}" for dependency in several}
        for column, several in event.metadata["dagster/column_lineage"].value.deps_by_column.items()
    }


def test_a_query_replaces_the_partitions_of_the_run_and_reports_the_lineage(run, lake, tmp_path):
    (tmp_path / "by_city.sql").write_text(
        "-- What each city\n-- bought.\nSELECT o.dt, c.city, sum(amount) AS total\n"
        "FROM raw.orders o JOIN customers c ON c.name = o.customer GROUP BY o.dt, c.city"
    )
    by_city = sql_table(tmp_path / "by_city.sql", partitions_def=DAILY, metadata={**DAYS, "format": "iceberg"})

    @sql_table(partitions_def=DAILY, metadata=DAYS, upstream={"nyc.by_city": "by_city", "nyc.customers": None})
    def total():
        """All cities."""
        return "SELECT dt, sum(total) AS t, (SELECT count(*) FROM nyc.customers) AS n FROM nyc.by_city GROUP BY dt"

    assert by_city.descriptions_by_key[by_city.key] == "What each city\nbought."
    assert total.descriptions_by_key[total.key] == "All cities."
    assert total.asset_deps[total.key] == {by_city.key}
    everything = [orders, customers, by_city, total]
    found = run(*everything, first="2013-01-01", last="2013-01-03")
    assert lineage(found, "by_city") == {
        "dt": {"raw/orders.dt"}, "city": {"customers.city"}, "total": {"raw/orders.amount"}
    }  # fmt: skip
    assert lineage(found, "total") == {"dt": {"by_city.dt"}, "t": {"by_city.total"}, "n": set()}
    table = lake.lake.table("nyc.by_city")
    assert (table.format, len(table.snapshots())) == ("iceberg", 1)
    run(*everything, first="2013-01-02")  # This day alone is computed again: from its rows 0 and 1.
    rows = {(r["dt"], r["city"]): r["total"] for r in table.scan().to_arrow().to_pylist()}
    assert rows == {
        ("2013-01-01", "Ulm"): 0, ("2013-01-01", "Ely"): 1, ("2013-01-02", "Ulm"): 0, ("2013-01-02", "Ely"): 1,
        ("2013-01-03", "Ulm"): 4, ("2013-01-03", "Ely"): 5,
    }  # fmt: skip
    assert table.snapshots()[-1].files_removed == 1
    assert sorted(lake.lake.table("nyc.total").scan().to_arrow()["n"].to_pylist()) == [2, 2, 2]


def test_parameters_stand_for_the_partition_and_what_the_caller_says(run, lake):
    text = (
        "SELECT :partition_key AS dt, CAST(:partition_start AS DATE) AS first, CAST(:partition_end AS DATE) AS past, :who AS who, "
        "count(*) AS files FROM `nyc.customers$files`"
    )
    stamped = sql_table(text, key="stamped", params={"who": "it's"}, partitions_def=DAILY, metadata=DAYS)
    run(customers)
    run(stamped, partition_key="2013-01-05")
    (row,) = lake.lake.table("nyc.stamped").scan().to_arrow().to_pylist()
    assert [str(value) for value in row.values()] == ["2013-01-05", "2013-01-05", "2013-01-06", "it's", "1"]


def test_mistakes_are_refused(run, lake):
    with pytest.raises(InvalidInput, match=r"upstream names 'nope'; the query reads a\.b"):
        sql_table("SELECT * FROM a.b", key="x", upstream={"nope": "a"})
    with pytest.raises(InvalidInput, match="needs a key"):
        sql_table("SELECT 1")
    with pytest.raises(InvalidInput, match="expected one query"):
        sql_table("SELECT 1; SELECT 2", key="x")
    run(customers)
    outside = sql_table(
        "SELECT 'elsewhere' AS dt, city FROM customers", key="outside", partitions_def=DAILY, metadata=DAYS
    )
    with pytest.raises(dg.Failure, match="rows outside the partitions of this run"):
        run(customers, outside, partition_key="2013-01-05", selection=[outside])
    misspelt = sql_table("SELECT citty FROM customers", key="misspelt")
    with pytest.raises(dg.Failure, match="misspelt: SQL at line 1, column 8: no column citty"):
        run(customers, misspelt, selection=[misspelt])
    assert not lake.lake.exists("nyc.misspelt")
