"""What an asset's metadata and docstring declare, looked at when a repository loads."""

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster import Upkeep, checks_for, maintenance
from lakeformat.dagster.declaration import declared, described_by, with_column_schema
from lakeformat.errors import InvalidInput

ON = {"on": "t.id = s.id"}


def asset(metadata):
    @dg.asset(metadata=metadata)
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    return orders


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"mode": "append"}, "'mode' is another IO manager's; here it is 'write'"),
        ({"write_mode": "upsert", "upsert_options": {"join_cols": ["id"]}}, "'upsert_options' is another IO manager's"),
        ({"schema_update_mode": "update"}, "here it is 'schema_evolution'"),
        ({"overwrite_schema": True}, "here it is 'schema_evolution'"),
        ({"schema": "shop"}, "here it is 'table': 'db.name'"),
        ({"columns": ["id"]}, "dg.AssetIn"),
        ({"primary_key": 1}, "primary_key=1; name a column, or a list of them"),
        ({"unique_key": [1]}, "unique_key=[1]; name a column"),
        ({"lineage": "orders"}, "lineage='orders'; give a mapping"),
        ({"table_properties": "bucket=4"}, "give a mapping"),
        ({"audit": "yes"}, "audit='yes'; give True or False"),
        ({"schema_evolution": True}, "schema_evolution='True'; it must be one of refuse, add, widen"),
        ({"write": "overwrite"}, "write='overwrite'; it must be one of"),
    ],
)
def test_what_would_be_passed_over_or_misread_is_refused(metadata, message):
    with pytest.raises(InvalidInput) as refused:
        checks_for([asset(metadata)])
    assert message in str(refused.value)
    assert str(refused.value).startswith("orders: ")


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ({"matched": [{"then": "update_all"}]}, "it has a condition, 'on'"),
        (
            ON | {"when_matched": [{"then": "update_all"}]},
            "its clauses are matched, not_matched, not_matched_by_source",
        ),
        (ON | {"matched": {"then": "update_all"}}, "give a list of clauses"),
        (ON | {"matched": [{"if": "s.v > 1", "then": "update_all"}]}, "and 'when' where it has a condition"),
        (ON | {"matched": [{"when": "s.v > 1"}]}, "a clause has 'then'"),
        (ON | {"matched": [{"then": "updateall"}]}, "'then' is 'update_all' or 'delete', or maps columns"),
        (ON | {"not_matched": [{"then": "update_all"}]}, "'then' is 'insert_all', or maps"),
        (ON | {"not_matched_by_source": [{"then": "update_all"}]}, "'then' is 'delete', or maps"),
    ],
)
def test_clauses_of_a_merge_are_what_they_can_be(merge, message):
    with pytest.raises(InvalidInput) as refused:
        checks_for([asset({"write": "merge", "merge": merge})])
    assert message in str(refused.value)


def test_one_column_needs_no_list_and_options_are_written_as_the_formats_have_them():
    metadata = {"primary_key": "id", "unique_key": "id", "table_properties": {"bucket": 4, "write-only": True}}
    found = declared(dg.AssetKey("orders"), "shop.orders", None, metadata)
    assert (found.primary_key, found.properties) == (("id",), (("bucket", "4"), ("write-only", "true")))
    (checks,) = checks_for([asset(metadata)])
    assert {check_spec.name: check_spec.description for check_spec in checks.check_specs}[
        "unique_key"
    ] == "No two rows of the table have the same id."


def test_maintenance_is_declined_by_name_and_its_limits_are_checked():
    for flag, tables in ((True, "orders"), (False, "")):
        jobs = maintenance([asset({"maintenance": flag})]).jobs
        assert {job.name: job.metadata["lake/tables"].value for job in jobs} == {
            "maintain": tables,
            "sweep_orphans": tables,
        }
    for wrong, message in (
        ({"max_small": 1}, "did you mean 'max_small_files'?"),
        ("never", "maintenance='never'; give"),
    ):
        with pytest.raises(InvalidInput, match=message):
            maintenance([asset({"maintenance": wrong})], upkeep=Upkeep())


@pytest.mark.parametrize(
    ("text", "table", "columns"),
    [
        ("", "", {}),
        ("Orders.\n\nTwo lines.", "Orders.\n\nTwo lines.", {}),
        ("Orders.\n\nColumns:\n    day: The day.\n    amount: In euros,\n        no tax.", "Orders.", {"day": "The day.", "amount": "In euros, no tax."}),
        ("Orders.\n\n    Columns:\n        day: The day.\n\n    By the shop.\n    ", "Orders.\n\nBy the shop.", {"day": "The day."}),
        ("Orders.\n\nColumns:\n\n- `day`: The day: local time.\n- `n`: How many.", "Orders.", {"day": "The day: local time.", "n": "How many."}),
        ("Orders.\nColumns:\nday: The day.", "Orders.", {"day": "The day."}),
        ("Orders.\n\nColumns:\n    of many kinds", "Orders.\n\nColumns:\n    of many kinds", {}),
    ],
)  # fmt: skip
def test_a_docstring_describes_the_table_and_its_columns(text, table, columns):
    assert described_by(text) == (table, tuple(columns.items()))


def test_columns_of_a_description_are_in_the_table_of_columns_alone():
    """Those of metadata win; what is declared, and what the table is told, stays."""
    shown = dg.TableSchema([dg.TableColumn("n", description="How many.")])
    spec = dg.AssetSpec(
        "orders",
        description="Orders.\n\nColumns:\n    day: The day.\n    n: A number.",
        metadata={"partition_by": {"date": "day"}, "dagster/column_schema": shown},
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    )
    changed = with_column_schema(spec)
    assert changed.description == "Orders."
    before, after = (
        declared(s.key, "shop.orders", s.partitions_def, s.metadata, s.description) for s in (spec, changed)
    )
    assert (before.comment, dict(before.descriptions)) == (after.comment, dict(after.descriptions))
    assert dict(after.descriptions) == {"day": "The day.", "n": "How many."}
    assert after.partition_by == {"date": "day"}
    plain = dg.AssetSpec("orders", description="Orders.")
    assert with_column_schema(plain) is plain
