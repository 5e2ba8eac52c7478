"""The bridge between Dagster's inputs and outputs and tables: frames by annotation, one commit per run."""

import json
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from resources.asset_table import AssetTable, Pin, as_dagster_failures, declared, scan, write
from resources.frames import to_read
from resources.lake import LakeResource, origin_of
from resources.spark import SparkResource

READS_TAG = "lake/reads"  # On a run, per step: {table: snapshot}. Expiry keeps what a run in flight reads.


class ReadAt(dg.Config):
    """Which state of a table to read; set one of the three."""

    snapshot_id: int | None = Field(default=None, description="A snapshot's id.")
    tag: str | None = Field(default=None, description="A tag's name.")
    as_of: str | None = Field(default=None, description="A time: the last snapshot up to then.")


class LakeIOManager(dg.ConfigurableIOManager):
    """Assets as tables: an output is one commit, which replaces the run's partitions unless the asset declares otherwise;
    an input reads the partitions asked for, or the whole of a table that gathers rows by upsert or merge.

    Inputs are read as their annotation says: a Spark, pandas or polars frame, a pyarrow.Table or a Scan. They can be
    pinned by the input's metadata (`AssetIn(metadata={"tag": "v1"})`) or, for a run or a whole backfill, by
    configuration: `resources: {io_manager: {config: {read_at: {flights: {snapshot_id: 7}}}}}`.
    """

    lake: LakeResource
    spark: SparkResource
    read_at: dict[str, ReadAt] = Field(default={}, description="Asset key -> the state of its table to read.")
    _reads: dict[str, dict[str, int]] = PrivateAttr(default_factory=dict)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a frame to the asset's table; tell Dagster the rows of each partition and the snapshot."""
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
        step = dg.AssetExecutionContext.get()
        with as_dagster_failures(context.asset_key, keys):
            table = self._declared(context, context.definition_metadata or {})
            written = write(self.lake.lake, table, obj, keys, origin_of(step, context.step_key))
        for key, rows in written.row_counts.items():
            step.add_asset_metadata({"dagster/partition_row_count": rows}, asset_key=table.asset, partition_key=key)
        if written.snapshot:
            step.set_data_version(table.asset, dg.DataVersion(str(written.snapshot.id)))
        context.add_output_metadata(dict(written.metadata))

    def load_input(self, context: dg.InputContext) -> Any:
        """The rows of the partitions that the input maps to, from one snapshot that is noted on the run."""
        upstream = context.upstream_output
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else None
        with as_dagster_failures(context.asset_key, keys or []):
            table = self._declared(context, (upstream.definition_metadata if upstream else None) or {})
            found, snapshot_id = scan(self.lake.lake, table, keys, self._pin(context))
            if snapshot_id is not None:
                note_read(dg.OpExecutionContext.get(), self._reads, table.name, snapshot_id)
            return to_read(found, context.dagster_type.typing_type, self.spark)

    def _declared(self, context: dg.InputContext | dg.OutputContext, metadata: Any) -> AssetTable:
        partitions = context.asset_partitions_def if context.has_asset_partitions else None
        name = self.lake.table_name(context.asset_key, metadata)
        return declared(context.asset_key, name, partitions, metadata)

    def _pin(self, context: dg.InputContext) -> Pin:
        configured = self.read_at.get(context.asset_key.to_user_string())
        if configured is not None:
            return Pin(configured.snapshot_id, configured.tag, configured.as_of)
        metadata = context.definition_metadata or {}
        return Pin(**{name: metadata[name] for name in ("snapshot_id", "tag", "as_of") if name in metadata})


def note_read(step: dg.OpExecutionContext, reads: dict[str, dict[str, int]], table: str, snapshot_id: int) -> None:
    """Tell expiry, by a tag of the run, which snapshot a step reads; `reads` is what the run's steps read so far."""
    name = str(step.op_handle)
    reads.setdefault(name, {})[table] = snapshot_id
    step.instance.add_run_tags(step.run_id, {f"{READS_TAG}/{name}": json.dumps(reads[name])})
