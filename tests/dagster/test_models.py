"""The component for a folder of `.sql` files: models with refs, tests as checks, what a YAML file beside them says; and
several lakes in one project."""

import traceback
from datetime import timedelta

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

FILES = {
    "models/staging/orders.sql": "-- Every order.\nSELECT * FROM (VALUES (1, 'eu', 5), (2, 'us', 7)) AS t(id, region, amount)",
    "models/marts/revenue.sql": "SELECT region, sum(amount) AS total FROM {{ ref('orders') }} GROUP BY region",
    "models/marts/best-region.sql": "SELECT max(total) AS total FROM shop.revenue",
    "models/models.yaml": """
version: 2
models:
  - name: orders
    columns:
      - {name: id, description: The number., tests: [unique, not_null]}
      - name: region
        data_tests:
          - accepted_values: {arguments: {values: [eu, us]}, config: {severity: warn}}
  - name: revenue
    description: What each region brings.
    format: iceberg
    unique_key: [region]
    owners: ["team:shop"]
    kinds: [gold]
    freshness: {fail_hours: 26}
    metadata: {rank: 1}
    columns:
      - {name: region, tests: [{relationships: {to: ref('orders'), field: region}}]}
""",
    "tests/revenue_is_positive.sql": "-- No region loses.\nSELECT * FROM {{ ref('revenue') }} WHERE total < 6",
}
MODELS = {"folder": "models", "tests": "tests", "database": "shop", "deps": ["raw/landed"]}
KEYS = {name: dg.AssetKey(["shop", name]) for name in ("orders", "revenue", "best-region")}


@pytest.fixture
def load():
    """Definitions of a project with a component of each kind named, and files beside that of the models."""
    with create_defs_folder_sandbox() as sandbox:

        def load(files=(), lakes=({"warehouse": "warehouse"},), rest=None, **models):
            parts = {"models": ("LakeModels", {**MODELS, **models})}
            if rest is not None:
                parts["rest"] = ("LakeModels", {"folder": "../models/models", "database": "shop", **rest})
            parts |= {f"lake{number}": ("Lake", lake) for number, lake in enumerate(lakes)}
            for name, (kind, attributes) in parts.items():
                folder = sandbox.defs_folder_path / name
                folder.mkdir()
                attributes = {field: value for field, value in attributes.items() if value is not None}
                contents = {"type": f"lakeformat.dagster.{kind}Component", "attributes": attributes}
                (folder / "defs.yaml").write_text(yaml.safe_dump(contents))
            for name, text in {**FILES, **dict(files)}.items():
                if text is not None:
                    file = sandbox.defs_folder_path / "models" / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text)
            with sandbox.build_all_defs() as defs:
                return defs

        yield load


def run(defs, instance, *names):
    job = defs.resolve_implicit_global_asset_job_def()
    keys = [KEYS[name] for name in names] or None
    return job.execute_in_process(instance=instance, asset_selection=keys, raise_on_error=False)


def test_a_folder_of_queries_is_a_graph_of_tables_with_tests(load, instance):
    defs = load()
    graph = defs.resolve_asset_graph()
    assert graph.get(KEYS["revenue"]).parent_keys == {KEYS["orders"], dg.AssetKey(["raw", "landed"])}
    assert graph.get(KEYS["best-region"]).parent_keys == {KEYS["revenue"], dg.AssetKey(["raw", "landed"])}
    revenue = graph.get(KEYS["revenue"])
    assert (revenue.owners, revenue.kinds, revenue.description) == (
        ["team:shop"], {"iceberg", "sql", "gold"}, "What each region brings."
    )  # fmt: skip
    assert revenue.metadata["rank"] == 1
    assert revenue.freshness_policy.fail_window.to_timedelta() == timedelta(hours=26)
    names = {(key.asset_key.path[-1], key.name) for key in graph.asset_check_keys}
    assert names >= {
        ("orders", "unique_id"), ("orders", "not_null_id"), ("orders", "accepted_values_region"),
        ("revenue", "relationships_region"), ("revenue", "revenue_is_positive"), ("revenue", "unique_key"),
    }  # fmt: skip
    result = run(defs, instance)
    assert result.success
    failed = [check.check_name for check in result.get_asset_check_evaluations() if not check.passed]
    assert failed == ["revenue_is_positive"], "5 is less than 6"
    lake = defs.resources["lake"].lake
    assert lake.table("shop.best-region").scan().to_arrow().to_pylist() == [{"total": 7}]
    orders = lake.table("shop.orders").schema
    assert (orders.comment, orders.field("id").comment) == ("Every order.", "The number.")
    assert (lake.table("shop.orders").format, lake.table("shop.revenue").format) == ("paimon", "iceberg")
    assert "shop/best-region" in defs.resolve_job_def("maintain").metadata["lake/tables"].value


def test_what_a_test_finds_is_shown(load, instance):
    defs = load(
        {"models/staging/orders.sql": "SELECT 1 AS id, 'xx' AS region, 5 AS amount UNION ALL SELECT 1, 'eu', 9"}
    )
    checks = {check.check_name: check for check in run(defs, instance).get_asset_check_evaluations()}
    assert checks["unique_id"].metadata["rows"].value.splitlines()[2] == "| 1 | 2 |"
    assert "GROUP BY `id`" in checks["unique_id"].metadata["query"].value
    assert checks["accepted_values_region"].severity == dg.AssetCheckSeverity.WARN
    assert not checks["accepted_values_region"].passed
    assert checks["relationships_region"].passed


def test_a_failed_test_keeps_an_audited_model_back(load, instance):
    orders = {
        "models/models.yaml": "models: [{name: orders, format: iceberg, audit: true, columns: [{name: id, tests: [unique]}]}]"
    }
    defs = load(
        {
            **orders,
            "models/staging/orders.sql": "SELECT 1 AS id, 'eu' AS region, 5 AS amount UNION ALL SELECT 1, 'eu', 9",
        }
    )
    result = run(defs, instance)
    assert not result.success
    assert defs.resources["lake"].lake.table("shop.orders").scan().count() == 0, "its rows are in the run's branch"
    assert not instance.get_latest_materialization_event(KEYS["revenue"])


@pytest.mark.parametrize(
    ("select", "exclude", "names"),
    [
        (["marts"], [], {"revenue", "best-region"}),
        (["marts/rev*"], [], {"revenue"}),
        (["*/orders.sql"], [], {"orders"}),
        ([], ["marts"], {"orders"}),
        (["mar*"], ["marts/best-region"], {"revenue"}),
    ],
)
def test_models_are_selected_by_folder_and_file(load, select, exclude, names):
    others = sorted(f"*/{name}" for name in KEYS.keys() - names)
    graph = load(select=select, exclude=exclude, group_name="these", rest={"select": others}).resolve_asset_graph()
    assert {key.path[-1] for key in graph.materializable_asset_keys} == KEYS.keys()
    assert {key.path[-1] for key in graph.asset_keys_for_group("these")} == names
    assert KEYS["orders"] in graph.get(KEYS["revenue"]).parent_keys, "also if another component fills it"


MISTAKES = {
    "a ref of no model": ({"models/a.sql": "SELECT * FROM {{ ref('ordrs') }}"}, {}, "a.sql: ref('ordrs') is no model; there are"),
    "a macro of dbt": ({"models/a.sql": "{{ config(x=1) }} SELECT 1 AS n"}, {}, "a.sql: {{ config(x=1) }} is not read here"),
    "no SELECT": ({"models/a.sql": "SELEC 1"}, {}, "a.sql: SQL at line 1"),
    "an empty file": ({"models/a.sql": ""}, {}, "a.sql: "),
    "two statements": ({"models/a.sql": "SELECT 1; SELECT 2"}, {}, "a.sql: SQL at line 1, column 11: expected one query"),
    "two models of one name": ({"models/orders.sql": "SELECT 1 AS n"}, {}, "are both the model orders; rename one"),
    "a test of no model": ({"tests/a.sql": "SELECT 1"}, {}, "a.sql names no model; there are"),
    "YAML that is none": ({"models/a.yaml": "models: ["}, {}, "a.yaml: while parsing"),
    "YAML of something else": ({"models/a.yaml": "sources: []"}, {}, "a.yaml: 'sources' means nothing here"),
    "a model that there is not": ({"models/a.yaml": "models: [{name: ordrs}]"}, {}, "a.yaml: there is no model 'ordrs'"),
    "a model described twice": ({"models/a.yaml": "models: [{name: orders}]"}, {}, "the model orders is described twice"),
    "a field that there is not": ({"models/models.yaml": "models: [{name: orders, wirte: append}]"}, {}, "models.yaml: orders: wirte: Extra inputs"),
    "a format that there is not": ({"models/models.yaml": "models: [{name: orders, format: delta}]"}, {}, "models.yaml: orders: format: Input should be 'paimon' or 'iceberg'"),
    "a test that there is not": ({"models/models.yaml": "models: [{name: orders, columns: [{name: id, tests: [positive]}]}]"}, {}, "orders.id: there is no test 'positive', only not_null"),
    "a test without arguments": ({"models/models.yaml": "models: [{name: orders, columns: [{name: id, tests: [accepted_values]}]}]"}, {}, "accepted_values takes values"),
    "a column of more": ({"models/models.yaml": "models: [{name: orders, columns: [{name: id, type: int}]}]"}, {}, "not 'type'"),
    "no such folder": ({}, {"folder": "sql"}, "folder: 'sql'; there is no folder"),
    "no such tests": ({}, {"tests": "checks"}, "tests: 'checks'; there is no folder"),
    "nothing selected": ({}, {"select": ["mart"]}, "'mart' selects nothing;"),
    "metadata that is a field": ({}, {"metadata": {"write": "append"}}, "metadata 'write' is a field of its own"),
    "freshness of nothing": ({}, {"freshness": {"hours": 1}}, "fail_hours"),
    "a parameter of no model": ({}, {"params": {"least": 1}}, "params names 'least', which no model uses; they use none"),
    "an upstream of no model": ({}, {"upstream": {"raw.ordrs": None}}, "upstream names 'raw.ordrs', which no model uses"),
    "a parameter without a value": ({"models/a.sql": "SELECT :least AS n"}, {}, "a.sql: shop/a: the query uses :least, which has no value"),
    "a column described twice": ({"models/models.yaml": "models: [{name: orders, columns: [{name: id}, {name: id}]}]"}, {}, "the column 'id' is described twice"),
    "models in a circle": ({"models/a.sql": "SELECT * FROM b", "models/b.sql": "SELECT * FROM a"}, {}, "each of these assets needs the next"),
    "a lake that there is not": ({}, {"lake": "archiv"}, "there is no lake 'archiv'; this project has lake"),
    "two lakes of one name": ({}, {"lakes": [{"warehouse": "a"}, {"warehouse": "b"}]}, "give each a `name` of its own"),
}  # fmt: skip


@pytest.mark.parametrize(("files", "models", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_said_in_one_line_when_the_project_loads(load, files, models, message):
    with pytest.raises(Exception, match="Error while") as error:
        load(files, **models)
    assert message in "".join(traceback.format_exception(error.value))


def test_two_lakes_in_one_project(load, instance):
    """Each table is in the lake that it names; checks, maintenance and sensors are one for all."""
    archive = {"warehouse": "old", "name": "archive", "upkeep": {"max_small_files": 3}}
    defs = load(lakes=[{"warehouse": "warehouse"}, archive], lake="archive")
    assert run(defs, instance).success
    lakes = {name: defs.resources[name].lake for name in ("lake", "archive")}
    assert (len(lakes["archive"].tables()), lakes["lake"].exists("shop.orders")) == (3, False)
    repository = defs.get_repository_def()
    assert len([sensor for sensor in repository.sensor_defs if sensor.name == "compaction"]) == 1
    kept = defs.resolve_job_def("maintain").execute_in_process(instance=instance, raise_on_error=False)
    assert kept.success
    context = dg.build_sensor_context(
        instance=instance, resources={"archive": defs.resources["archive"]}, repository_def=None
    )
    reason = repository.get_sensor_def("foreign_commits")(context).skip_reason.skip_message
    assert reason == "3 tables: no foreign commit"
