"""What newcomers get wrong ends in one clear line, and in no table."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakeformat.dagster import (
    CdcSource,
    LakeIOManager,
    LakeResource,
    Upkeep,
    cdc_assets,
    check_specs,
    checks_for,
    external_tables,
    foreign_commits,
    freshness_checks,
    lag_checks,
    lag_sensor,
    maintenance,
    maintenance_of,
    preview_rerun,
    published,
    rerun_partitions,
    sql_table,
    tables_of,
)
from lakeformat.errors import InvalidInput

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
CELLS = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
ROWS = pa.table({"id": [1], "day": ["2026-01-01"], "amount": [1.5]})


def merged(**clauses):
    return {"write": "merge", "merge": {"on": "t.id = s.id", "matched": [{"then": "update_all"}], **clauses}}


DECLARED = {
    "partition_by without partitions": ({"partition_by": "day"}, None, "no partitions_def"),
    "partition_expr without partitions": ({"partition_expr": "day"}, None, "no partitions_def"),
    "partitions without partition_by": ({}, DAYS, "has no 'partition_by'"),
    "upsert without a key": ({"write": "upsert"}, None, "declare 'primary_key'"),
    "pk": ({"pk": "id"}, None, "here it is 'primary_key'"),
    "table_name": ({"table_name": "shop.orders"}, None, "here it is 'table'"),
    "partition_column": ({"partition_column": "day"}, DAYS, "here it is 'partition_by'"),
    "table_format": ({"table_format": "iceberg"}, None, "here it is 'format'"),
    "a misspelt key": ({"wirte": "append"}, None, "did you mean 'write'?"),
    "merge without clauses": ({"write": "merge"}, None, "'merge' says how to merge"),
    "partition_by as a list": ({"partition_by": ["day"]}, DAYS, "map parts of the partition to columns"),
    "a key that is a mapping": ({"primary_key": {"id": 1}}, None, "name a column, or a list of them"),
    "a table that is no text": ({"table": 5}, None, "give its name as text, 'db.name'"),
    "table_properties as a list": ({"table_properties": ["a=b"]}, None, "give a mapping"),
    "audit as text": ({"audit": "yes"}, None, "give True or False"),
    "an unknown schema_evolution": ({"schema_evolution": "yes"}, None, "must be one of refuse, add, widen"),
    "an unknown write mode": ({"write": "overwrite"}, None, "must be one of replace, upsert, merge, append"),
    "lineage as a list": ({"lineage": ["id"]}, None, "give a mapping"),
    "merge by another clause": (
        {"write": "merge", "merge": {"on": "t.id = s.id", "when_matched": []}},
        None,
        "its clauses",
    ),
    "an unknown evolution of the table": ({"table_evolution": "follow"}, None, "must be one of refuse, alter"),
    "an unknown format": ({"format": "delta"}, None, "format='delta'; it must be one of paimon, iceberg"),
    "a misspelt dimension": (
        {"partition_by": {"day": "d", "regoin": "r"}}, CELLS, "name a column for each dimension: day, region"
    ),
    "a dimension left out": ({"partition_by": {"day": "d"}}, CELLS, "name a column for each dimension: day, region"),
    "one column for two dimensions": ({"partition_by": "day"}, CELLS, "name a column for each dimension: day, region"),
    "partition_expr by a misspelt dimension": ({"partition_expr": {"day": "d", "regon": "r"}}, CELLS, "name a column for each"),
    "a column of two dimensions": ({"partition_by": {"day": "d", "region": "d"}}, CELLS, "names a column twice"),
    "a misspelt part": ({"partition_by": {"dat": "d"}}, DAYS, "no part 'dat' of a time partition; there are date, days"),
    "a part of static partitions": ({"partition_by": {"date": "r"}}, REGIONS, "have one part, 'key'"),
    "days of hours": ({"partition_by": {"date": "d"}}, HOURS, "shares .*with its neighbour"),
    "hours of no day": ({"partition_by": {"hour": "h"}}, HOURS, "map 'date' too"),
    "months of days": ({"partition_by": {"month": "m"}}, DAYS, "shares .*with its neighbour"),
    "an empty partition_by": ({"partition_by": {}}, DAYS, "partition_by={}; name the column"),
    "a part without a column": ({"partition_by": {"date": None}}, DAYS, "None is no column"),
    "a part with columns": ({"partition_by": {"date": ["d"]}}, DAYS, r"\['d'\] is no column"),
    "partition_expr as a number": ({"partition_expr": 5}, DAYS, "partition_expr=5; name a column"),
    "a layout by other columns": (
        {"partition_by": {"date": "day"}, "layout": ["region"]}, DAYS, "is not by the values of day, which partition_by"
    ),
    "a layout by hidden partitions": (
        {"partition_by": {"date": "day"}, "layout": ["days(day)"], "format": "iceberg"}, DAYS, "{'window': 'day'}"
    ),
    "hidden partitions of Paimon": ({"layout": ["days(day)"], "format": "paimon"}, None, "or use format='iceberg'"),
    "a misspelt transform": ({"layout": ["dayz(day)"]}, None, "no transform 'dayz'"),
    "a column twice in a layout": ({"layout": ["a", "a"]}, None, "names a column twice"),
    "a key with an empty name": ({"primary_key": ["id", ""]}, None, "name a column, or a list of them"),
    "a column twice in a key": ({"unique_key": ["id", "id"]}, None, "names a column twice"),
    "unique_over without a key": ({"unique_over": "table"}, None, "where 'unique_key' is unique"),
    "an empty table name": ({"table": ""}, None, "'' is not a table name; write 'db.name'"),
    "a table name with a slash": ({"table": "shop/orders"}, None, "'shop/orders' is not a table name"),
    "lineage by a number": ({"lineage": {"id": 5}}, None, r"give the columns that it comes from, \['orders.amount'\]"),
    "lineage from an asset": ({"lineage": {"id": ["raw"]}}, None, r"lineage={'id': \['raw'\]}; give the columns"),
    "lineage of all columns from two": ({"lineage": {"*": ["raw", "other"]}}, None, "from which all other columns come"),
    "lineage from what is not upstream": ({"lineage": {"id": ["raw.id"]}}, None, "names the asset 'raw', which is not upstream"),
    "all from what is not upstream": ({"lineage": {"*": "raw"}}, None, "names the asset 'raw', which is not upstream"),
    "maintenance of negative limits": ({"maintenance": {"max_small_files": -1}}, None, "orders: .*max_small_files=-1; it must be"),
    "maintenance of a misspelt limit": ({"maintenance": {"max_smal_files": 1}}, None, "orders: .*did you mean 'max_small_files'"),
    "maintenance by text": ({"maintenance": {"minutes": "many"}}, None, "orders: .*minutes is str; input should be a valid number"),
    "maintenance of nothing": ({"maintenance": None}, None, "maintenance=None; give limits"),
    "a percentage as a share": ({"maintenance": {"max_deleted_share": 20}}, None, "max_deleted_share=20.0; it must be from 0 to 1"),
    "nested table_properties": ({"table_properties": {"a": {"b": 1}}}, None, "give names and values as text"),
    "a column schema as a mapping": ({"dagster/column_schema": {"id": "text"}}, None, "give a dg.TableSchema"),
    "a merge by a broken condition": (merged(on="t.id == = s.id"), None, "an expression is missing at line 1, column 9"),
    "a merge by a broken clause": (merged(matched=[{"when": "s.op ==", "then": "delete"}]), None, "'s.op ==': an expression"),
    "a merge that does nothing": (merged(matched=[]), None, "has no clause"),
    "a merge to no columns": (merged(matched=[{"then": {}}]), None, "maps columns to expressions"),
    "a merge to a broken value": (merged(matched=[{"then": {"id": "s.id +"}}]), None, "an expression is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "partitions", "message"), DECLARED.values(), ids=DECLARED)
def test_a_declaration_is_refused_when_definitions_load(metadata, partitions, message):
    @dg.asset(metadata={"maintenance": True, **metadata}, partitions_def=partitions)
    def orders() -> pa.Table:
        return ROWS

    with pytest.raises(InvalidInput, match=message):
        maintenance([orders])


def test_lineage_may_come_from_what_is_upstream_or_among_the_assets():
    @dg.asset
    def raw() -> pa.Table:
        return ROWS

    @dg.asset(deps=["other"], metadata={"lineage": {"id": ["raw.id"], "amount": ["other.amount"]}})
    def orders() -> pa.Table:
        return ROWS

    assert set(tables_of([orders, raw])) == {"orders", "raw"}


@pytest.fixture
def run(lake, instance):
    def run(rows, key=None, partitions=None, name="orders", **metadata):
        @dg.asset(name=name, metadata=metadata, partitions_def=partitions)
        def orders():
            return rows

        resources = {"io_manager": LakeIOManager(lake=lake)}
        result = dg.materialize(
            [orders], resources=resources, instance=instance, partition_key=key, raise_on_error=False
        )
        failures = result.get_step_failure_events()
        return failures[0].step_failure_data.user_failure_data.description if failures else None

    return run


FIRST = {
    "a row outside the partitions": ({"rows": ROWS, "key": "2026-01-02"}, "rows outside the partitions"),
    "no rows, but None": ({"rows": None}, "an asset returned NoneType"),
    "a pandas Series": ({"rows": pd.Series([1])}, "an asset returned Series"),
    "a polars Series": ({"rows": pl.Series([1])}, "an asset returned Series"),
    "an Arrow array": ({"rows": pa.array([1])}, "an asset returned Int64Array"),
    "a mapping": ({"rows": {"id": [1]}}, "an asset returned dict"),
    "values of several types": ({"rows": pd.DataFrame({"a": [1, "x"]})}, "the data does not make Arrow columns"),
    "a layout of no column": ({"rows": ROWS, "layout": ["nope"]}, "'nope', which is not a column; there are id, day"),
    "a misspelt transform": ({"rows": ROWS, "layout": ["dayz(day)"]}, "no transform 'dayz'"),
    "a table in no database": ({"rows": ROWS, "table": "a.b.c"}, "write 'namespace.table'"),
    "two columns of one name": ({"rows": pa.table([ROWS["id"]] * 2, ["a", "a"])}, "two columns are called 'a'"),
    "a list of rows": ({"rows": [{"id": 1}]}, "an asset returned list"),
    "a column of None": ({"rows": pd.DataFrame({"id": [1], "x": [None]}), "write": "append"}, "no value of the frame has the type of x"),
    "a key that is no column": ({"rows": ROWS, "write": "upsert", "primary_key": ["nope"]}, "nope"),
    "a format that there is not": ({"rows": ROWS, "format": "delta"}, "delta"),
    "lineage of no column": ({"rows": ROWS, "lineage": {"amuont": ["raw.amount"]}}, "lineage names the column 'amuont', and nyc.orders has id, day"),
}  # fmt: skip


@pytest.mark.drawn(6)
@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize(("options", "message"), FIRST.values(), ids=FIRST)
def test_a_first_write_that_is_refused_leaves_no_table(run, lake, options, message, format):
    options = {"format": format, **options}
    if "key" in options:
        options |= {"partitions": DAYS, "partition_by": {"date": "day"}}
    assert message in run(**options)
    assert not lake.lake.exists("nyc.orders")


def test_a_first_frame_without_rows_and_types_waits_for_one_that_has_them(run, lake):
    options = {"partitions": DAYS, "partition_by": {"date": "day"}}
    assert run(pd.DataFrame(columns=["id", "day"]), key="2026-01-01", **options) is None
    assert not lake.lake.exists("nyc.orders")
    assert run(pd.DataFrame({"id": [1], "day": ["2026-01-02"]}), key="2026-01-02", **options) is None
    assert run(pd.DataFrame(columns=["id", "day"]), key="2026-01-01", **options) is None
    assert lake.lake.table("nyc.orders").scan().to_arrow().to_pylist() == [{"id": 1, "day": "2026-01-02"}]


CHANGED = {
    "the key": ({"primary_key": ["id", "day"]}, "primary_key=", "set_primary_key"),
    "the partitions": ({"layout": ["day"]}, "partitioned by day, and it is by nothing", "add_partition_field"),
    "a property": ({"table_properties": {"a.b": "c"}}, "a.b=c, and it has a.b=unset", "set_properties"),
}
REQUIRED = pa.table(ROWS.columns, pa.schema([field.with_nullable(False) for field in ROWS.schema]))


@pytest.mark.parametrize(("metadata", "difference", "call"), CHANGED.values(), ids=CHANGED)
def test_a_declaration_that_the_table_does_not_have_is_refused_with_the_change_and_made_on_request(
    run, lake, metadata, difference, call
):
    assert run(REQUIRED, format="iceberg") is None
    refused = run(REQUIRED, format="iceberg", **metadata)
    assert difference in refused
    assert f"table.alter().{call}(" in refused
    before = lake.lake.table("nyc.orders").current_snapshot().id
    assert lake.lake.table("nyc.orders").scan().count() == 1
    assert run(REQUIRED, format="iceberg", table_evolution="alter", **metadata) is None
    assert lake.lake.table("nyc.orders").current_snapshot().id != before
    assert run(REQUIRED, format="iceberg", **metadata) is None


def test_another_format_and_a_column_that_the_frame_lacks_are_refused(run, lake):
    assert run(ROWS) is None
    assert "lake.lake.convert('nyc.orders', 'iceberg')" in run(ROWS, format="iceberg")
    assert ".drop_column('amount')" in run(ROWS.drop_columns(["amount"]))
    assert run(ROWS.drop_columns(["amount"]), schema_evolution="add") is None
    assert lake.lake.table("nyc.orders").scan().to_arrow()["amount"].to_pylist() == [None]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_an_upsert_by_declared_columns_needs_no_stored_key(run, lake, format):
    lake.lake.create_table("nyc.orders", ROWS.schema, format=format)
    for amount in (2.5, 3.5):
        rows = ROWS.set_column(2, "amount", pa.array([amount]))
        assert run(rows, write="upsert", primary_key=["id"], format=format) is None
    assert lake.lake.table("nyc.orders").scan().to_arrow()["amount"].to_pylist() == [3.5]


def test_a_table_of_another_asset_is_taken_over_by_name_only(run, lake):
    assert run(ROWS, name="first", table="nyc.orders") is None
    assert "has the rows of the asset first" in run(ROWS)
    assert run(ROWS, table="nyc.orders") is None


def test_a_frame_beside_lake_write_is_refused(lake, instance):
    @dg.asset(metadata={"write": "append"})
    def orders(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
        lake.write(context, ROWS)
        return ROWS

    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    result = dg.materialize([orders], resources=resources, instance=instance, raise_on_error=False)
    failure = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "lake.write has written nyc.orders in this step" in failure


def test_rows_that_another_io_manager_takes_are_missed(lake, instance):
    @dg.asset(metadata={"primary_key": "id"}, resource_defs={"io_manager": dg.mem_io_manager})
    def bound() -> pa.Table:
        return ROWS

    with pytest.raises(
        InvalidInput, match="'primary_key' declares a table, and the asset's IO manager 'io_manager' is"
    ):
        tables_of([bound])

    @dg.asset(metadata={"primary_key": "id"})
    def orders() -> pa.Table:
        return ROWS

    assets = [orders, *checks_for([orders])]
    resources = {"lake": lake, "io_manager": dg.mem_io_manager}
    result = dg.materialize(assets, resources=resources, instance=instance, raise_on_error=False)
    failure = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "nyc.orders does not exist" in failure
    assert "the rows went to another IO manager than LakeIOManager" in failure


PLACES = {
    "a misspelt scheme": ({"warehouse": "s4://x/y"}, "cannot open s4: URIs"),
    "a file": ({"warehouse": __file__}, "is a file; a warehouse or a table is a folder"),
    "nothing": ({"warehouse": ""}, "'' names no folder"),
    "a misspelt option": ({"warehouse": "/tmp/x", "storage_options": {"regoin": "x"}}, "unknown option 'regoin'"),
    "no catalog": ({"warehouse": "/tmp/x", "catalog": "nope"}, "catalog='nope' is not an address of a database"),
}


@pytest.mark.parametrize(("fields", "message"), PLACES.values(), ids=PLACES)
def test_a_warehouse_that_there_is_not_is_named(fields, message, instance):
    @dg.asset(metadata={"format": "iceberg"})
    def orders() -> pa.Table:
        return ROWS

    resources = {"io_manager": LakeIOManager(lake=LakeResource(**fields))}
    result = dg.materialize([orders], resources=resources, instance=instance, raise_on_error=False)
    assert message in result.get_step_failure_events()[0].step_failure_data.user_failure_data.description


@pytest.mark.parametrize("annotation", [list, str, dict])
def test_an_input_of_another_type_is_refused_before_spark_starts(lake, instance, annotation):
    @dg.asset
    def orders() -> pa.Table:
        return ROWS

    def after(orders):
        return ROWS

    after.__annotations__ = {"orders": annotation, "return": pa.Table}
    resources = {"io_manager": LakeIOManager(lake=lake)}
    result = dg.materialize([orders, dg.asset(after)], resources=resources, instance=instance, raise_on_error=False)
    failure = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "orders: an input is annotated" in failure
    assert "annotate it as a Spark, pandas or polars DataFrame" in failure


def test_an_io_manager_without_a_lake_says_what_it_takes():
    with pytest.raises(InvalidInput, match=r"lake=LakeResource\(warehouse='/data/warehouse'\)"):
        LakeIOManager()
    with pytest.raises(InvalidInput, match=r"lake=LakeResource\(warehouse='/data/x'\)"):
        LakeIOManager(lake="/data/x")
    with pytest.raises(InvalidInput, match="did you mean 'warehouse'"):
        LakeResource(warehous="/data/x")


@pytest.mark.parametrize("version", [{"tag": "v1"}, {"snapshot_id": 1}])
def test_a_version_of_an_asset_that_there_is_not_is_refused(lake, instance, version):
    @dg.asset
    def orders() -> pa.Table:
        return ROWS

    @dg.asset
    def totals(orders: pa.Table) -> pa.Table:
        return orders

    plain = {"io_manager": LakeIOManager(lake=lake)}
    assert dg.materialize([orders], resources=plain, instance=instance).success
    pinned = {"io_manager": LakeIOManager(lake=lake, read_at={"oders": version})}
    result = dg.materialize(
        [orders, totals], selection=[totals], resources=pinned, instance=instance, raise_on_error=False
    )
    failure = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "read_at names 'oders', which is no asset here; did you mean 'orders'?" in failure
    assert not lake.lake.exists("nyc.totals")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_damaged_table_is_not_retried(lake, instance, tmp_path, format):
    @dg.asset(metadata={"format": format}, retry_policy=dg.RetryPolicy(max_retries=3))
    def orders() -> pa.Table:
        return ROWS

    options = {"resources": {"io_manager": LakeIOManager(lake=lake)}, "instance": instance, "raise_on_error": False}
    assert dg.materialize([orders], **options).success
    for path in (tmp_path / "warehouse").rglob("*manifest*" if format == "paimon" else "*.avro"):
        if path.is_file():
            path.write_bytes(b"no manifest")
    failed = dg.materialize([orders], **options)
    assert not failed.success
    assert not [event for event in failed.all_events if event.is_step_up_for_retry]
    failure = failed.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert failure.startswith("orders: ")


@dg.asset(metadata={"primary_key": "id"})
def declared_orders() -> pa.Table:
    return ROWS


@dg.asset(name="orders", metadata={"audit": True})
def audited_orders() -> pa.Table:
    return ROWS


def managed(**fields):
    return LakeIOManager(lake=LakeResource(warehouse="/x"), **fields)


NO_LIST = r"assets is AssetsDefinition; give a list of assets, as in \[orders, customers\]"
TAKERS = {
    "tables_of": tables_of,
    "checks_for": checks_for,
    "maintenance": maintenance,
    "rerun_partitions": rerun_partitions,
    "foreign_commits": foreign_commits,
    "freshness_checks": lambda assets: freshness_checks(assets, timedelta(hours=1)),
    "lag_checks": lambda assets: lag_checks(assets, timedelta(hours=1)),
    "lag_sensor": lambda assets: lag_sensor(assets, timedelta(hours=1)),
    "maintenance_of": lambda assets: maintenance_of(LakeResource(warehouse="/data/x"), "raw.*", assets=assets),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_what_takes_assets_refuses_one_that_is_in_no_list_and_names(take):
    with pytest.raises(InvalidInput, match=NO_LIST):
        take(declared_orders)
    with pytest.raises(InvalidInput, match="assets is the text 'orders'; give a list of assets"):
        take("orders")
    for name in ("orders", dg.AssetKey("orders")):
        with pytest.raises(InvalidInput, match="assets has the name 'orders'; give the assets themselves"):
            take([name])


ARGUMENTS = {
    "limits as a mapping": (lambda: maintenance([], upkeep={"max_snapshots": 3}), r"upkeep is dict; give limits, as in"),
    "limits of a fleet": (
        lambda: maintenance_of(LakeResource(warehouse="/data/x"), upkeep=3), r"upkeep is int; give limits, as in"
    ),
    "a fleet's warehouse as text": (lambda: maintenance_of("/data/x"), "lake is str; give the repository's LakeResource"),
    "external tables of a path": (lambda: external_tables("/data/x"), "lake is str; give the repository's LakeResource"),
    "one external table": (
        lambda: external_tables(LakeResource(warehouse="/data/x"), "shop.orders"),
        r"tables is the text 'shop.orders'; give a list of names",
    ),
    "followed tables as a list": (lambda: cdc_assets("shop", ["public.orders"]), "tables is list; give a mapping, as in"),
    "a followed table's key": (
        lambda: cdc_assets("shop", {"public.orders": 5}), "key of 'public.orders' in tables is int; give it as text"
    ),
    "limits below zero": (lambda: Upkeep(max_snapshots=-1), "max_snapshots=-1; it must be at least 1"),
    "limits of no number": (lambda: Upkeep(retain_hours=float("nan")), "retain_hours=nan; it must be at least 0"),
    "limits as text": (lambda: Upkeep(max_snapshots="many"), "max_snapshots is str; input should be a valid integer"),
    "no warehouse": (LakeResource, "LakeResource: warehouse is nothing; input should be a valid string"),
    "options as a list": (
        lambda: LakeResource(warehouse="/x", storage_options=["region"]), "storage_options is list; input should be"
    ),
    "an empty database": (lambda: LakeResource(warehouse="/x", database=""), "database: '' is not a table name"),
    "an IO manager's session as text": (lambda: managed(spark="local[2]"), "LakeIOManager: spark is str; input should be"),
    "a version as a number": (lambda: managed(read_at={"a": 7}), r"read_at\['a'\] is 7; input should be"),
    "a misspelt version": (lambda: managed(read_at={"a": {"snapshotid": 7}}), r"read_at\['a'\]: ReadAt has no field 'snapshotid'"),
    "two versions": (lambda: managed(read_at={"a": {"snapshot_id": 7, "tag": "v1"}}), "a version is snapshot_id and tag; set one"),
    "no version": (lambda: managed(read_at={"a": {}}), "a version is empty; set one"),
    "a version of no time": (lambda: managed(read_at={"a": {"as_of": "yesterday"}}), "'yesterday' is not a time"),
    "an external table by a number": (
        lambda: external_tables(LakeResource(warehouse="/x"), [5]), "the name of a table is int; give it as text"
    ),
    "an external table in no database": (
        lambda: external_tables(LakeResource(warehouse="/x"), ["orders"]), "give the whole name, 'db.orders'"
    ),
    "an external table twice": (
        lambda: external_tables(LakeResource(warehouse="/x"), ["a.b", "a.b"]), "names a table twice"
    ),
    "external tables by a misspelt part": (
        lambda: external_tables(LakeResource(warehouse="/x"), ["a.b"], partitions_def=DAYS, partition_by={"dat": "d"}),
        "no part 'dat'",
    ),
    "a query that is not there": (lambda: sql_table(Path("/nope.sql")), "there is no file /nope.sql"),
    "a query with a parameter of no value": (
        lambda: sql_table("SELECT * FROM a WHERE x > :least", key="b"), r"uses :least, which has no value; give params={'least'"
    ),
    "a parameter that no query uses": (
        lambda: sql_table("SELECT * FROM a", key="b", params={"leest": 3}), "params has 'leest', and the query uses none"
    ),
    "the start of no partition": (
        lambda: sql_table("SELECT * FROM a WHERE x > :partition_start", key="b"), "give partitions_def= of time"
    ),
    "the start of a static partition": (
        lambda: sql_table("SELECT * FROM a WHERE x > :partition_start", key="b", partitions_def=REGIONS, metadata={"partition_by": "r"}),
        "give partitions_def= of time",
    ),
    "a query's upstream as a list": (lambda: sql_table("SELECT * FROM a", key="b", upstream=["a"]), "upstream is list"),
    "a query's format": (lambda: sql_table("SELECT * FROM a", key="b", metadata={"format": "delta"}), "format='delta'"),
    "published assets": (lambda: published([declared_orders], key="x"), "audited is list; give the asset"),
    "published under its own name": (lambda: published(audited_orders, key="orders"), "the audited asset's own"),
    "published with one other": (
        lambda: published(audited_orders, key="x", together=declared_orders), "together is AssetsDefinition; give a list"
    ),
    "published with an unaudited one": (
        lambda: published(audited_orders, key="x", together=[declared_orders]), r"declared_orders: published\(\) is for"
    ),
    "checks of an asset itself": (lambda: check_specs(declared_orders), "asset is AssetsDefinition; give the asset's key"),
    "checks by misspelt metadata": (lambda: check_specs("a", metadata={"uniqe_key": "id"}), "did you mean 'unique_key'"),
    "a preview of a list": (
        lambda: preview_rerun([], LakeResource(warehouse="/x"), ["orders"]), "partitions is list; give a mapping"
    ),
    "a preview of a text": (
        lambda: preview_rerun([], LakeResource(warehouse="/x"), {"orders": "2026-01-01"}), r"partitions\['orders'\] is the text"
    ),
    "a preview in a path": (lambda: preview_rerun([], "/x", {}), "lake is str; give the repository's LakeResource"),
    "a lag as a number": (lambda: lag_sensor([], 60), "max_lag is int; give a datetime.timedelta"),
    "a followed table's format": (lambda: cdc_assets("shop", {"a.b": "c.d"}, format="delta"), "c/d: format='delta'"),
    "two followed tables in one": (lambda: cdc_assets("shop", {"a.b": "x", "a.c": "x"}), "'a.b' and 'a.c' both become x"),
    "a followed table's empty key": (lambda: cdc_assets("shop", {"a.b": ""}), "in tables is ''; give it as"),
    "a broken filter": (lambda: cdc_assets("shop", {"a.b": "c"}, row_filters={"a.b": "x >"}), r"row_filters\['a.b'\]: 'x >'"),
    "a computed column as text": (
        lambda: cdc_assets("shop", {"a.b": "c"}, computed_columns={"a.b": "1"}), r"computed_columns\['a.b'\] is str; give a mapping"
    ),
    "a broken computed column": (
        lambda: cdc_assets("shop", {"a.b": "c"}, computed_columns={"a.b": {"x": "1 +"}}), r"computed_columns\['a.b'\]: '1 \+'"
    ),
    "properties as a list": (lambda: cdc_assets("shop", {"a.b": "c"}, table_properties=["a"]), "table_properties="),
    "an unknown policy of misfits": (lambda: CdcSource(url="x", on_misfit="nul"), "on_misfit='nul'; it must be one of stop, null"),
    "an unknown type option": (lambda: CdcSource(url="x", type_options=["to-strin"]), "type_options='to-strin'; it must be one of"),
    "a source itself": (lambda: cdc_assets(CdcSource(url="x"), {}), "source is CdcSource; give the name of the resource"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_an_argument_of_another_kind_is_named_with_what_to_give(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
