"""A launchpad as it opens is valid and runs: with secrets and without, from the environment and literal."""

import json
from itertools import count

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap  # What a launchpad is filled with.

from lakeformat import Lake
from lakeformat.dagster import (
    CdcSource,
    LakeIOManager,
    LakeResource,
    SparkResource,
    Upkeep,
    external_tables,
    maintenance,
    rerun_partitions,
)
from lakeformat.errors import InvalidInput

# Dagster's own use of it, for observable assets.
pytestmark = pytest.mark.filterwarnings("ignore:Property `OpDefinition.version` is deprecated")

SECRET = "hush"
KEY = "MDEyMzQ1Njc4OWFiY2RlZg=="
LAKES = {
    "no secrets": {},
    "an empty catalog": {"catalog": None, "catalog_options": {}, "storage_options": {}, "encryption_keys": {}},
    "literal": {"catalog": "sql", "catalog_options": {"name": SECRET}, "encryption_keys": {"master": KEY}},
    "environment": {
        "warehouse": dg.EnvVar("WAREHOUSE"),
        "catalog": dg.EnvVar("CATALOG"),
        "catalog_options": {"name": dg.EnvVar("SECRET")},
    },
    "both": {"catalog": "sql", "catalog_options": {"name": dg.EnvVar("SECRET")}, "encryption_keys": {"master": KEY}},
}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name, value in {"WAREHOUSE": str(tmp_path / "warehouse"), "CATALOG": "sql", "SECRET": SECRET}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=LAKES)
def resource(request, tmp_path):
    fields = {"warehouse": str(tmp_path / "warehouse"), "database": "shop", **LAKES[request.param]}
    return LakeResource(**fields)


def asset_of(name="orders", **options):
    @dg.asset(name=name, **options)
    def asset(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
        assert lake.lake.uri.endswith("warehouse")
        return pa.table({"n": [1], "day": ["2026-01-01"]})

    return asset


def defaults(job):
    """The text that a job's launchpad opens with."""
    snapshot = job.get_job_snapshot()
    assert SECRET not in json.dumps(dg.serialize_value(snapshot)), "a secret is in what the UI is sent"
    schema = snapshot.config_schema_snapshot
    return default_values_yaml_from_type_snap(
        schema, schema.get_config_snap(snapshot.mode_def_snaps[0].root_config_key)
    )


def definitions(lake, *assets, **resources):
    own = dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("all_assets", [asset.key for asset in assets]), rerun_partitions(assets)],
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake), **resources},
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(own, maintenance(assets))


@pytest.mark.parametrize("name", ["all_assets", "maintain", "sweep_orphans", "rerun_partitions"])
def test_every_job_launches_from_its_launchpad_as_it_opens(resource, name, instance):
    orders = asset_of(metadata={"format": "iceberg"})
    defs = definitions(resource, orders)
    if name != "all_assets":
        defs.resolve_job_def("all_assets").execute_in_process(instance=instance)
    job = defs.resolve_job_def(name)
    assert job.execute_in_process(run_config=yaml.safe_load(defaults(job)), instance=instance).success
    options = resource.catalog_options and {"catalog": "sql", "catalog_options": {"name": SECRET}}
    lake = Lake(resource.lake.uri, **(options or {}))
    assert lake.table("shop.orders").scan().count() == 1, "the secrets of the code were used"


def test_a_resource_that_is_only_part_of_another_is_launched_as_it_is_configured(resource, instance):
    @dg.asset(metadata={"format": "iceberg"})
    def orders() -> pa.Table:
        return pa.table({"n": [1]})

    io = LakeIOManager(lake=resource)
    job = dg.Definitions([orders], resources={"io_manager": io}).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(run_config=yaml.safe_load(defaults(job)), instance=instance).success
    assert resource.lake.table("shop.orders").scan().count() == 1


def test_a_resource_configured_at_launch_needs_what_the_code_does_not_have(tmp_path, instance):
    rest = LakeResource.configure_at_launch(catalog="sql", catalog_options={"name": SECRET})
    job = dg.Definitions([asset_of()], resources={"lake": rest}).resolve_implicit_global_asset_job_def()
    config = yaml.safe_load(defaults(job))
    with pytest.raises(dg.DagsterInvalidConfigError, match="warehouse"):
        job.execute_in_process(run_config=config, instance=instance)
    config["resources"]["lake"]["config"]["warehouse"] = {"env": "WAREHOUSE"}
    assert job.execute_in_process(run_config=config, instance=instance).success


def test_a_run_that_configures_some_fields_keeps_the_others_of_the_code(instance, tmp_path):
    lake = LakeResource(
        warehouse=dg.EnvVar("WAREHOUSE"), database="shop", catalog="sql", catalog_options={"name": dg.EnvVar("SECRET")}
    )
    seen = {}

    @dg.op
    def look(lake: LakeResource, upkeep: Upkeep, spark: SparkResource) -> None:
        seen.update(lake=lake, upkeep=upkeep, spark=spark)
        seen["uri"] = lake.lake.uri

    @dg.job(
        resource_defs={
            "lake": lake,
            "upkeep": Upkeep(max_snapshots=7, retain_snapshots=3),
            "spark": SparkResource(master="local[3]", conf={"a": "b"}),
        }
    )
    def job():
        look()

    some = {"lake": {"database": "other"}, "upkeep": {"max_snapshots": 9}, "spark": {"app_name": "launched"}}
    config = {"resources": {name: {"config": fields} for name, fields in some.items()}}
    assert job.execute_in_process(run_config=config, instance=instance).success
    assert (seen["lake"].database, seen["uri"].removeprefix("file://")) == ("other", str(tmp_path / "warehouse"))
    assert seen["lake"].lake.table is not None
    assert (seen["upkeep"].max_snapshots, seen["upkeep"].retain_snapshots) == (9, 3)
    assert (seen["spark"].master, seen["spark"].conf, seen["spark"].app_name) == ("local[3]", {"a": "b"}, "launched")


def test_a_secret_may_be_given_in_the_launchpad(tmp_path, instance):
    lake = LakeResource(warehouse=str(tmp_path / "warehouse"), database="shop", catalog="sql")
    job = definitions(lake, asset_of(metadata={"format": "iceberg"})).resolve_job_def("all_assets")
    config = yaml.safe_load(defaults(job))
    config["resources"]["lake"]["config"]["catalog_options"] = {"name": {"env": "SECRET"}}
    config["resources"].pop("io_manager")
    seen = job.execute_in_process(run_config=config, instance=instance)
    assert seen.success


def test_a_variable_that_is_not_set_is_named(monkeypatch, tmp_path, instance):
    monkeypatch.delenv("SECRET")
    options = {"catalog": "sql", "catalog_options": {"name": dg.EnvVar("SECRET")}}
    lake = LakeResource(warehouse=str(tmp_path), **options)
    with pytest.raises(InvalidInput, match="environment variable SECRET is not set"):
        lake.lake  # noqa: B018
    source = CdcSource(url=dg.EnvVar("SECRET"))
    with pytest.raises(InvalidInput, match="environment variable SECRET is not set"):
        source.open("public.orders")


@pytest.mark.parametrize("named", [True, False], ids=["by name", "all that exist"])
def test_an_external_table_is_observed_with_the_resource_of_the_run(resource, named, instance):
    made = resource.lake.create_table("theirs.events", pa.schema([("n", pa.int64())]), format="iceberg")
    made.append(pa.table({"n": [1, 2]}))
    (events,) = external_tables(resource, ["theirs.events"] if named else None)
    job = dg.Definitions(
        [events], jobs=[dg.define_asset_job("observe", [events])], resources={"lake": resource}
    ).resolve_job_def("observe")
    result = job.execute_in_process(run_config=yaml.safe_load(defaults(job)), instance=instance)
    (event,) = result.get_asset_observation_events()
    assert event.asset_observation_data.asset_observation.metadata["dagster/row_count"].value == 2


def test_an_external_table_is_read_from_the_warehouse_of_the_run_and_the_resource_that_is_named(tmp_path, instance):
    lakes = [LakeResource(warehouse=str(tmp_path / name)) for name in ("declared", "of_the_run")]
    for rows, lake in zip(count(1), lakes, strict=False):
        table = lake.lake.create_table("theirs.events", pa.schema([("n", pa.int64())]))
        table.append(pa.table({"n": [1] * rows}))
    for options, key in (({}, "lake"), ({"resource": "second"}, "second")):
        (events,) = external_tables(lakes[0], ["theirs.events"], **options)
        defs = dg.Definitions([events], jobs=[dg.define_asset_job("observe", [events])], resources={key: lakes[1]})
        (event,) = defs.resolve_job_def("observe").execute_in_process(instance=instance).get_asset_observation_events()
        assert event.asset_observation_data.asset_observation.metadata["dagster/row_count"].value == 2
