"""Which assets are tables, in which order, and which may share one."""

import warnings
from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster import (
    LakeIOManager,
    LakeResource,
    checks_for,
    external_tables,
    foreign_commits,
    freshness_checks,
    maintenance,
    maintenance_of,
    published,
    rerun_partitions,
    sql_table,
    tables_of,
)
from lakeformat.errors import InvalidInput

DAILY = dg.DailyPartitionsDefinition("2026-01-01")
BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
ALL = (tables_of, checks_for, maintenance, rerun_partitions, foreign_commits)


def asset_of(key, upstream=(), itself=False, metadata=None, **options):
    """An asset that reads others, and its own earlier partitions if `itself`."""
    key = dg.AssetKey(key)
    ins = {f"table_{index}": dg.AssetIn(key=dg.AssetKey(name)) for index, name in enumerate(upstream)}
    if itself:
        ins["before"] = dg.AssetIn(key=key, partition_mapping=BEFORE)
        options["partitions_def"] = DAILY
        metadata = {"partition_by": {"date": "day"}, **(metadata or {})}

    @dg.asset(key=key, ins=ins, metadata=metadata, **options)
    def asset(**tables: pa.Table) -> pa.Table:
        return pa.table({"n": [len(tables)]})

    return asset


@pytest.mark.parametrize("function", ALL)
def test_an_asset_that_reads_its_own_earlier_partitions_is_a_table_as_others_are(function):
    function([asset_of("after", ["balance"]), asset_of("balance", ["before"], itself=True), asset_of("before")])


def test_upstream_tables_come_first_also_where_assets_depend_on_themselves():
    names = [f"asset_{index:02}" for index in range(60)]
    chain = [
        asset_of(name, names[max(0, index - 2) : index], itself=index % 3 == 0) for index, name in enumerate(names)
    ]
    assert list(tables_of(chain[::-1])) == names
    assert list(tables_of([*chain, *chain])) == names, "an asset that is given twice is one"


SHARED = {
    "keys that join": (("sales", "eu", "orders"), {}, ("sales_eu", "orders"), {}, "join to one name"),
    "keys that join, and append": (
        *(("a", "b_c", "t"), {"write": "append"}, ("a_b", "c", "t"), {"write": "append"}),
        "join to one name",
    ),
    "a key and a name": (("shop", "orders"), {}, ("old",), {"table": "shop.orders"}, "join to one name"),
    "one name, both replace": (("new",), {"table": "shop.orders"}, ("old",), {"table": "shop.orders"}, "old replaces"),
    "one name in the lake's database": (("new",), {"table": "orders"}, ("old",), {"table": "orders"}, "old replaces"),
    "one replaces": (
        *(("new",), {"table": "shop.orders"}, ("old",), {"table": "shop.orders", "write": "append"}),
        "new replaces the rows of the other",
    ),
    "audited by another": (
        ("new",),
        {"table": "shop.orders"},
        ("old",),
        {"table": "shop.orders", "audit": True},
        "old",
    ),
}


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize(("first", "one", "second", "other", "reason"), SHARED.values(), ids=SHARED)
def test_two_assets_of_one_table_are_refused_when_definitions_load(function, first, one, second, other, reason):
    with pytest.raises(InvalidInput) as refused:
        function([asset_of(second, metadata=other), asset_of(first, metadata=one)])
    assert reason in str(refused.value)
    assert "/".join(first) in str(refused.value)
    assert "/".join(second) in str(refused.value)


def test_assets_that_add_to_a_table_they_name_may_share_it_and_an_audited_one_its_publisher():
    named = {"table": "shop.events", "write": "append"}
    key = {"table": "shop.events", "write": "upsert", "primary_key": "id"}
    assert (
        len(tables_of([asset_of("web", metadata=named), asset_of("app", metadata=named), asset_of("x", metadata=key)]))
        == 3
    )
    audited = asset_of("orders_audited", metadata={"table": "shop.orders", "audit": True})
    assert list(tables_of([published(audited, key="orders"), audited])) == ["orders_audited", "orders"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (["a__b"], ["a", "b"], "both are called a__b"),
        (["a-b"], ["a_b"], "both are called a_b"),
    ],
)
def test_two_keys_with_one_name_are_refused(first, second, message):
    with pytest.raises(InvalidInput, match=message):
        tables_of([asset_of(first), asset_of(second)])


def test_assets_of_other_io_managers_are_no_tables():
    lake = LakeResource(warehouse="w")

    @dg.asset
    def notified(orders: pa.Table) -> None: ...

    @dg.asset
    def written(lake: LakeResource) -> None: ...

    @dg.asset(metadata={"write": "append"})
    def written_elsewhere(warehouse: LakeResource) -> None: ...

    @dg.multi_asset(specs=[dg.AssetSpec("model_a"), dg.AssetSpec("model_b")])
    def models(): ...

    @dg.multi_asset(outs={"kept": dg.AssetOut(), "pickled": dg.AssetOut(io_manager_key="files")})
    def several(): ...

    bound = [
        asset_of("bound", resource_defs={"io_manager": LakeIOManager(lake=lake)}),
        asset_of("bound_elsewhere", resource_defs={"io_manager": dg.FilesystemIOManager()}),
        asset_of("bound_by_name", io_manager_key="ours", resource_defs={"ours": LakeIOManager(lake=lake)}),
    ]
    others = [
        asset_of("pickled_daily", io_manager_key="files", partitions_def=DAILY),
        asset_of("declared", io_manager_key="ours", metadata={"format": "iceberg"}),
    ]
    assets = [notified, written, written_elsewhere, models, several, asset_of("orders"), *bound, *others]
    ours = {"written", "written_elsewhere", "kept", "orders", "bound", "bound_by_name", "declared"}
    assert set(tables_of(assets)) == ours
    assert [set(job.metadata["lake/tables"].value.split(", ")) for job in maintenance(assets).jobs] == [ours, ours]
    assert {spec.asset_key.to_user_string() for checks in checks_for(assets) for spec in checks.check_specs} == ours
    rerun_partitions(assets)
    named = [asset_of("ours", io_manager_key="lake_io"), asset_of("theirs")]
    for function in ALL:
        function(named, io_manager_key="lake_io")
    assert list(tables_of(named, io_manager_key="lake_io")) == ["ours"]


@pytest.mark.filterwarnings("ignore:Property `OpDefinition.version` is deprecated")  # Dagster's own use of it.
def test_a_repository_of_all_builders_loads_without_warnings_of_beta_features(tmp_path):
    lake = LakeResource(warehouse=str(tmp_path))
    mapping = {"partition_by": {"date": "day"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", dg.BetaWarning)
        query = sql_table("SELECT day FROM orders", key="days", partitions_def=DAILY, metadata=mapping)
        audited = asset_of("audited", metadata={"audit": True})
        tables = [asset_of("orders"), query, audited, published(audited, key="public")]
        external = external_tables(lake, ["raw.prices"], partitions_def=DAILY, partition_by={"date": "day"})
        own = dg.Definitions(
            assets=[*tables, *external],
            asset_checks=[*checks_for(tables), *freshness_checks([*tables, *external], timedelta(hours=1))],
            sensors=[foreign_commits(tables)],
            jobs=[rerun_partitions(tables)],
            resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
        )
        fleet = maintenance_of(lake, "raw.*")
        repository = dg.Definitions.merge(own, maintenance(tables), fleet).get_repository_def()
    assert {target.job_name for target in repository.get_sensor_def("compaction").targets} == {"maintain"}
