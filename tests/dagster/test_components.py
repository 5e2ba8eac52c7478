"""Components for `dg`: YAML that is assets, checks and upkeep; the page about them, run as a user would run it."""

import inspect
import traceback
from importlib import metadata
from pathlib import Path

import dagster as dg
import jsonschema
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from lakeformat.dagster import (
    LakeCdcComponent,
    LakeComponent,
    LakeModelsComponent,
    LakeSqlComponent,
    LakeTableComponent,
)
from tests.dagster.transcript import commands, matches, run

PAGE = Path(__file__).parent.parent.parent / "docs" / "components.md"

EVENTS = """
import pyarrow as pa

def events(context) -> pa.Table:
    keys = [key.keys_by_dimension for key in context.partition_keys]
    return pa.table({"day": [key["day"] for key in keys], "region": [key["region"] for key in keys], "n": range(len(keys))})

def prices(context) -> pa.Table:
    days = [day for day in context.partition_keys for _ in range(2)]
    return pa.table({"day": days, "n": [0 if day == "2026-01-02" else place for place, day in enumerate(days)]})

def totals(of_day: pa.Table) -> pa.Table:
    return of_day.group_by("day").aggregate([("n", "sum")])
"""
DOUBLED = """
-- Twice as many.
SELECT day, n_sum * :factor AS n FROM shop.totals
"""
DAILY = {"type": "daily", "start_date": "2026-01-01", "end_date": "2026-02-01"}
REGIONS = {"type": "static", "partition_keys": ["eu", "us"]}
FIELDS = {
    "events": {
        "table": "shop.events",
        "rows": ".rows.events",
        "format": "iceberg",
        "partitions": {"type": "multi", "dimensions": {"day": DAILY, "region": REGIONS}},
        "partition_by": {"day": "day", "region": "region"},
        "table_properties": {"commit.retry.num-retries": "3"},
        "unique_key": ["day", "region"],
        "maintenance": {"max_small_files": 2},
        "owners": ["team:shop"],
        "automation_condition": "{{ dg.AutomationCondition.eager() }}",
    },
    "totals": {
        "table": "totals",
        "rows": ".rows.totals",
        "inputs": {"of_day": "shop.events"},
        "partitions": DAILY,
        "partition_by": {"date": "day"},
        "max_partitions_per_run": 5,
        "checks": False,
        "maintenance": False,
    },
    "doubled": {
        "table": "nyc.doubled",
        "sql": "rows.sql",
        "upstream": {"shop.totals": "totals"},
        "params": {"factor": 2},
        "format": "iceberg",
        "partitions": DAILY,
        "partition_by": {"date": "day"},
    },
    "lake": {
        "warehouse": "warehouse",
        "database": "nyc",
        "storage_options": {"secret_access_key": {"env": "S3_SECRET"}},
        "upkeep": {"max_snapshots": 7},
    },
}


@pytest.fixture
def load(instance):
    """Definitions of a project whose folder `defs` holds a component for each of `fields`."""
    with create_defs_folder_sandbox() as sandbox:

        def load(**fields):
            for name, attributes in fields.items():
                folder = sandbox.defs_folder_path / name
                folder.mkdir()
                kind = "Lake" if name == "lake" else "LakeSql" if "sql" in attributes else "LakeTable"
                contents = {"type": f"lakeformat.dagster.{kind}Component", "attributes": attributes}
                (folder / "defs.yaml").write_text(yaml.safe_dump(contents))
                (folder / "rows.py").write_text(EVENTS)
                (folder / "rows.sql").write_text(DOUBLED)
                (folder / "asset.py").write_text("import dagster as dg\n\n@dg.asset\ndef events():\n    return 1\n")
            with sandbox.build_all_defs() as defs:
                return defs, sandbox.project_root

        yield load


def test_yaml_becomes_assets_with_checks_upkeep_and_reruns(load, instance, monkeypatch):
    monkeypatch.setenv("S3_SECRET", "hidden")
    defs, root = load(**FIELDS)
    graph = defs.resolve_asset_graph()
    events, totals = (graph.get(dg.AssetKey(key)) for key in (["shop", "events"], ["totals"]))
    assert events.partitions_def.get_num_partitions() == 62
    assert events.backfill_policy == dg.BackfillPolicy.single_run()
    assert totals.backfill_policy == dg.BackfillPolicy.multi_run(5)
    assert events.automation_condition is not None
    assert events.owners == ["team:shop"]
    assert totals.parent_keys == {events.key}
    doubled = graph.get(dg.AssetKey(["nyc", "doubled"]))
    assert doubled.parent_keys == {totals.key}
    assert doubled.description == "Twice as many."
    assert {key.asset_key for key in graph.asset_check_keys} == {events.key, doubled.key}, "totals asked for none"
    repository = defs.get_repository_def()
    assert {job.name for job in repository.get_all_jobs()} >= {"maintain", "rerun_partitions"}
    assert "totals" not in repository.get_job("maintain").metadata["lake/tables"].value
    assert {sensor.name for sensor in repository.sensor_defs} >= {"compaction", "snapshot_expiry", "foreign_commits"}
    resources = defs.resources
    assert resources["upkeep"].max_snapshots == 7
    lake = resources["lake"]
    assert lake.warehouse == str(root / "warehouse"), "a path is one from the project's root"
    assert lake.storage_options == {"secret_access_key": dg.EnvVar("S3_SECRET")}, (
        "its value is read when a run needs it"
    )


def test_a_project_in_yaml_runs_ranges_and_reruns(load, instance):
    fields = {name: dict(fields_of) for name, fields_of in FIELDS.items()}
    del fields["lake"]["storage_options"]
    defs, _ = load(**fields)
    days = {
        "dagster/asset_partition_range_start": "2026-01-01|eu",
        "dagster/asset_partition_range_end": "2026-01-03|us",
    }
    job = defs.resolve_implicit_global_asset_job_def()
    made = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(["shop", "events"])], tags=days)
    assert made.success
    assert all(asset_check_evaluation.passed for asset_check_evaluation in made.get_asset_check_evaluations())
    second = [dg.AssetKey("totals"), dg.AssetKey(["nyc", "doubled"])]
    total = job.execute_in_process(instance=instance, asset_selection=second, partition_key="2026-01-02")
    assert total.success
    lake = defs.resources["lake"].lake
    assert len(lake.table("shop.events").snapshots()) == 1
    assert lake.table("shop.events").scan().count() == 6
    assert lake.table("nyc.totals").scan().to_arrow().to_pylist() == [{"day": "2026-01-02", "n_sum": 2 + 3}]
    assert lake.table("nyc.doubled").scan().to_arrow().to_pylist() == [{"day": "2026-01-02", "n": 10}]
    days = {
        "rerun_shop__events": ["2026-01-02|us", "2026-01-09|eu"],
        "rerun_nyc__doubled": ["2026-01-01", "2026-01-02"],
    }
    again = {"ops": {name: {"config": {"partitions": keys}} for name, keys in days.items()}}
    assert defs.resolve_job_def("rerun_partitions").execute_in_process(instance=instance, run_config=again).success
    assert [len(lake.table(name).snapshots()) for name in ("shop.events", "nyc.doubled")] == [2, 2]


def test_an_audited_table_in_yaml_is_published_once_its_checks_have_passed(load, instance):
    prices = {
        "table": "prices",
        "rows": ".rows.prices",
        "format": "iceberg",
        "audit": True,
        "unique_key": ["day", "n"],
        "partitions": DAILY,
        "partition_by": {"date": "day"},
        "owners": ["team:shop"],
    }
    lake = {"warehouse": "warehouse", "database": "nyc"}
    defs, _ = load(prices=prices, lake=lake, doubled={**FIELDS["doubled"], "upstream": {"shop.totals": "prices"}})
    graph = defs.resolve_asset_graph()
    written, shown, after = (dg.AssetKey(key) for key in ("prices_audited", "prices", ["nyc", "doubled"]))
    assert graph.get(shown).parent_keys == {written}
    assert graph.get(after).parent_keys == {shown}
    assert [graph.get(key).owners for key in (written, shown)] == [["team:shop"]] * 2
    assert "prices_audited" not in defs.resolve_job_def("maintain").metadata["lake/tables"].value
    job = defs.resolve_implicit_global_asset_job_def()

    def run(day):
        options = {"asset_selection": [written, shown], "partition_key": day, "raise_on_error": False}
        return job.execute_in_process(instance=instance, **options).success

    assert [run("2026-01-01"), run("2026-01-02"), run("2026-01-03")] == [True, False, True]
    table = defs.resources["lake"].lake.table("nyc.prices")
    assert sorted(table.scan(["day"]).to_arrow()["day"].to_pylist()) == ["2026-01-01"] * 2 + ["2026-01-03"] * 2
    assert instance.get_materialized_partitions(shown) == {"2026-01-01", "2026-01-03"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": ".row.events"}, "there is no"),
        ({"rows": ".rows.event"}, "has no function event, it has events, prices, totals"),
        ({"rows": "events"}, "give '.module.function'"),
        ({"sql": "row.sql", "rows": None}, "there is no file"),
        ({"format": "delta"}, "'paimon' or 'iceberg'"),
        ({"partition_by": None}, "partition_by"),
        ({"wirte": "append"}, "wirte"),
        ({"partitions": {"type": "daily"}}, "start_date"),
        ({"partition_by": {"day": "day", "regoin": "region"}}, "name a column for each dimension: day, region"),
        ({"layout": ["days(day)"]}, "{'window': 'day'}"),
        ({"partitions": {"type": "static", "partition_keys": []}}, "partitions: partition_keys is empty"),
        ({"partitions": {**DAILY, "end_date": "2025-01-01"}}, "end_date=2025-01-01 is not after start_date=2026-01-01"),
        ({"partitions": {**DAILY, "timezone": "Mars"}}, "No time zone found with key Mars"),
        ({"table": "shop..events"}, "table: 'shop..events' is not a table name"),
        ({"max_partitions_per_run": 0}, "greater than or equal to 1"),
        (
            {"partitions": None, "partition_by": None, "max_partitions_per_run": 5},
            "splits backfills, and the table has no",
        ),
        ({"maintenance": {"max_small_files": -1}}, "max_small_files=-1; it must be at least 1"),
        ({"lineage": {"n": ["nowhere.n"]}}, "lineage names the asset 'nowhere', which is not upstream"),
        ({"rows": ".asset.events"}, "'.asset.events' is an asset; give a plain function"),
        ({"sql": "rows.sql", "rows": None}, "the query uses :factor, which has no value"),
        (
            {"sql": "rows.sql", "rows": None, "params": {"factor": 2, "fcator": 3}},
            "params has 'fcator', and the query uses :factor",
        ),
    ],
)
def test_what_a_table_cannot_be_is_said_when_the_project_loads(load, change, said):
    with pytest.raises(Exception, match="Error while") as error:
        load(events={name: field for name, field in {**FIELDS["events"], **change}.items() if field is not None})
    assert said in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("tables", [{}, {"events": FIELDS["events"]}], ids=["no tables", "a table"])
@pytest.mark.parametrize(
    ("upkeep", "message"),
    [
        ({"max_snapshots": -1}, "max_snapshots=-1; it must be at least 1"),
        ({"max_snapshot": 1}, "did you mean 'max_snapshots'"),
    ],
)
def test_limits_that_a_lake_cannot_have_are_refused_with_and_without_tables(load, tables, upkeep, message):
    with pytest.raises(Exception, match="Error while") as error:
        load(lake={"warehouse": "warehouse", "upkeep": upkeep}, **tables)
    assert message in "".join(traceback.format_exception(error.value))


@pytest.mark.skipif(
    "json_schema_extra" not in inspect.signature(dg.Resolver.default).parameters,
    reason="this version of Dagster has no patterns: loading refuses the choice",
)
@pytest.mark.parametrize("component", [LakeTableComponent, LakeSqlComponent, LakeModelsComponent, LakeCdcComponent])
def test_dg_check_yaml_refuses_a_choice_that_there_is_not(component):
    """By the JSON schema alone, so before anything is loaded. A template is of any value."""
    schema = component.get_model_cls().model_json_schema()
    fields = {name: field for name, field in schema["properties"].items() if "pattern" in field}
    assert "format" in fields
    for name, field in fields.items():
        validator = jsonschema.Draft202012Validator(field)
        assert validator.is_valid(field["default"]), name
        assert validator.is_valid("{{ env.CHOICE }}"), name
        assert not validator.is_valid("delta"), name


def test_dg_finds_the_components_by_the_entry_point():
    (found,) = [
        entry_point
        for entry_point in metadata.entry_points(group="dagster_dg_cli.registry_modules")
        if entry_point.name == "lakeformat"
    ]
    module = found.load()
    for component in (LakeCdcComponent, LakeComponent, LakeModelsComponent, LakeSqlComponent, LakeTableComponent):
        assert getattr(module, component.__name__) is component
        assert component.get_spec().description or component.__doc__
        fields = component.get_model_cls().model_json_schema()["properties"]
        assert [name for name, field in fields.items() if not field.get("description")] == []


@pytest.mark.long("the tests above: such projects load, run ranges and reruns; dg finds the components")
@pytest.mark.slow
def test_the_page_from_nothing_to_a_backfilled_graph(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    for command, expected in commands(PAGE):
        printed = run(command, folder)
        assert matches(expected, printed), f"$ {command}\n{printed}"
