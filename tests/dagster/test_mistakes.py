"""What newcomers get wrong ends in one clear line, and in no table."""

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from lakeformat.dagster import LakeIOManager, LakeResource, checks_for, tables_of
from lakeformat.errors import InvalidInput

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
ROWS = pa.table({"id": [1], "day": ["2026-01-01"], "amount": [1.5]})
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
    "an unknown evolution of the table": ({"table_evolution": "follow"}, None, "must be one of refuse, alter"),
}


@pytest.mark.parametrize(("metadata", "partitions", "message"), DECLARED.values(), ids=DECLARED)
def test_a_declaration_is_refused_when_definitions_load(metadata, partitions, message):
    @dg.asset(metadata={"maintenance": True, **metadata}, partitions_def=partitions)
    def orders() -> pa.Table:
        return ROWS

    with pytest.raises(InvalidInput, match=message):
        tables_of([orders])


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
    "a list of rows": ({"rows": [{"id": 1}]}, "an asset returned list"),
    "a column of None": ({"rows": pd.DataFrame({"id": [1], "x": [None]}), "write": "append"}, "no value of the frame has the type of x"),
    "a key that is no column": ({"rows": ROWS, "write": "upsert", "primary_key": ["nope"]}, "nope"),
    "a format that there is not": ({"rows": ROWS, "format": "delta"}, "delta"),
}  # fmt: skip


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
    assert "nyc.orders is not there" in failure
    assert "the rows went to another IO manager than LakeIOManager" in failure
