"""Backfills of many partitions on an instance in SQLite: one run, and runs of some partitions each, of which one dies.

`make test-long` has a thousand partitions, `make test` twelve.
"""

import os

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster import LakeIOManager

COUNT = 1000 if int(os.environ.get("LAKEFORMAT_SEEDS", "150")) >= 10_000 else 12
DAILY = dg.DailyPartitionsDefinition("2010-01-01", end_date="2014-01-01")
KEYS = DAILY.get_partition_keys()[:COUNT]
DIES = {"before": None}


class Dies(Exception):
    """A process that is gone."""


class Killed(LakeIOManager):
    """Dies once its write has landed, before Dagster knows of it."""

    def handle_output(self, context: dg.OutputContext, obj) -> None:
        super().handle_output(context, obj)
        if DIES["before"] in context.asset_partition_keys:
            raise Dies


@pytest.mark.parametrize(("format", "runs"), [("paimon", 1), ("iceberg", 3)])
def test_a_backfill_of_many_partitions_with_a_run_that_dies(lake, tmp_path, monkeypatch, format, runs):
    declared = {"partition_by": {"date": "dt"}, "format": format}

    @dg.asset(partitions_def=DAILY, metadata=declared, backfill_policy=dg.BackfillPolicy.single_run())
    def days(context: dg.AssetExecutionContext) -> pa.Table:
        keys = list(context.partition_keys)
        return pa.table({"dt": keys, "n": [1] * len(keys)})

    size = COUNT // runs + 1
    parts = [KEYS[n : n + size] for n in range(0, COUNT, size)]
    monkeypatch.setitem(DIES, "before", parts[-1][0])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def run(keys):
            edges = zip(("start", "end"), (keys[0], keys[-1]), strict=True)
            tags = {f"dagster/asset_partition_range_{edge}": key for edge, key in edges}
            resources = {"io_manager": Killed(lake=lake)}
            return dg.materialize(
                [days], resources=resources, instance=instance, tags=tags, raise_on_error=False
            ).success

        assert [run(part) for part in parts] == [True] * (len(parts) - 1) + [False]
        table = lake.lake.table("nyc.days")
        assert table.scan().count() == COUNT, "its write has landed"
        assert instance.get_materialized_partitions(days.key) == set(KEYS) - set(parts[-1]), "and Dagster does not know"
        monkeypatch.setitem(DIES, "before", None)
        assert run(parts[-1])
        assert instance.get_materialized_partitions(days.key) == set(KEYS)
        assert sorted(table.scan().to_arrow()["dt"].to_pylist()) == KEYS
        assert len(table.snapshots()) == len(parts) + 1
        assert table.inspect.files().num_rows == COUNT
