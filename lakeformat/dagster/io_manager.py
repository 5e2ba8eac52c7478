"""The IO manager: Dagster's outputs become table commits, one per run, and its inputs frames."""

import difflib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from lakeformat.arguments import epoch_ms
from lakeformat.dagster.asset_table import (
    as_dagster_failures,
    audited_branch,
    report,
    scan,
    write,
)
from lakeformat.dagster.declaration import AssetTable, Pin, at_run_time, declared, pin_of
from lakeformat.dagster.fields import KnownFields, LaunchableFields
from lakeformat.dagster.frames import kind_by_partition, required, to_read
from lakeformat.dagster.identity import note_write, origin_of
from lakeformat.dagster.internals import asset_names
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource
from lakeformat.errors import InvalidInput

# Run tag <READS_TAG>/<step>/<table>: the snapshots that a step reads, which expiry keeps during the run. Dagster's
# pages hide it.
READS_TAG = ".dagster/lake/reads"

Reads = dict[str, set[int]]


@dataclass(slots=True)
class Reading:
    """The seconds in which a step read its inputs, and when it had the last one, by the clock of `time.monotonic`."""

    seconds: float = 0
    ended: float = 0


class ReadAt(KnownFields, dg.Config):
    """The version of a table to read; set one of the four."""

    snapshot_id: int | None = Field(default=None, description="A snapshot's id.")
    snapshot: str | None = Field(
        default=None, description="A snapshot's id as text, as the launchpad rounds numbers of more than 16 digits."
    )
    tag: str | None = Field(default=None, description="A tag's name.")
    as_of: str | None = Field(default=None, description="A time: the last snapshot up to then.")

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        names = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(names) != 1:
            raise InvalidInput(f"a version is {' and '.join(names) or 'empty'}; set one of snapshot_id, tag and as_of")
        if self.as_of is not None:
            epoch_ms(self.as_of)


class LakeIOManager(LaunchableFields, dg.ConfigurableIOManager):
    """Stores assets as tables. An output is one commit, which replaces the run's partitions unless the asset declares
    otherwise. An input is the partitions asked for, or the whole table if upserts or merges collect its rows.

    The annotation of an input selects its form: a Spark, pandas or polars frame, a pyarrow.Table or a Scan, a
    RecordBatchReader that streams, or one of these for each partition: `dict[str, pd.DataFrame]`. Its metadata may
    select columns (`AssetIn(metadata={"columns": ["id", "dt"]})`) or a version (`{"tag": "v1"}`). The version can also
    be configured for a run or a backfill: `resources: {io_manager: {config: {read_at: {flights: {snapshot_id: 7}}}}}`.
    """

    lake: LakeResource
    spark: SparkResource = Field(description="The session of inputs that are Spark frames; nothing starts before.")
    read_at: dict[str, ReadAt] = Field(default={}, description="Asset key -> the state of its table to read.")
    _reads: Reads = PrivateAttr(default_factory=dict)
    _reading: dict[str, Reading] = PrivateAttr(default_factory=dict)  # By step.

    def __init__(self, **fields: Any) -> None:
        lake = fields.get("lake")
        if not fields or isinstance(lake, str | Path):
            example = "/data/warehouse" if lake is None else lake
            raise InvalidInput(
                f"LakeIOManager(lake={lake!r}): give it the warehouse, lake=LakeResource(warehouse={str(example)!r})"
            )
        super().__init__(**{"spark": SparkResource(), **fields})

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a frame to the asset's table; report the rows of each partition and the snapshot to Dagster."""
        if not context.has_asset_key:
            self._write_op_output(context, obj)
            return
        keys = _keys(context) if context.has_asset_partitions else []
        step = dg.AssetExecutionContext.get()
        self._refuse_unknown_pins(step.op_execution_context)
        reading, began = self._reading.pop(_step_name(step), None), time.monotonic()
        with as_dagster_failures(context.asset_key, keys):
            table = self._declared(context, _metadata(context), context.asset_spec.description)
            origin = origin_of(step)
            note_write(step, table, origin)
            written = write(self.lake.lake, table, obj, keys, origin)
        if reading is not None and written.commit:
            seconds = {"read": reading.seconds, "compute": began - reading.ended}
            timed = {f"lake/{part}_seconds": round(spent, 3) for part, spent in seconds.items()}
            written = replace(written, commit={**timed, **written.commit})
        context.add_output_metadata(report(step, table, written, keys))

    def load_input(self, context: dg.InputContext) -> Any:
        """The rows of the input's partitions, from one snapshot that is recorded on the run."""
        upstream = context.upstream_output
        if upstream is not None and not upstream.has_asset_key:
            return self._read_op_output(context, upstream)
        keys = _keys(context) if context.has_asset_partitions else None
        began = time.monotonic()
        self._refuse_unknown_pins(dg.OpExecutionContext.get())
        with as_dagster_failures(context.asset_key, keys or []):
            table = self._declared(context, (upstream.definition_metadata if upstream else None) or {})
            pin, columns = pin_of(f"input {context.name}", context.definition_metadata or {})
            step = dg.OpExecutionContext.get()
            branch = audited_branch(self.lake.lake, table, origin_of(step))
            selected, snapshot_id = scan(self.lake.lake, table, keys, self._configured(context) or pin, columns, branch)
            if snapshot_id is not None:
                note_read(step, self._reads, table.name, snapshot_id)
            annotation = required(context.dagster_type.typing_type)
            kind = kind_by_partition(annotation)
            if kind is None:
                frame = to_read(selected, annotation, self.spark)
            elif keys is None or (table.partition_by is None and table.write != "replace"):
                raise InvalidInput(
                    f"input {context.name} is annotated as a frame for each partition, and the rows of "
                    f"{context.asset_key.to_user_string()} are not by partition; annotate it as a frame"
                )
            else:  # All of the version that was noted.
                pin = Pin(snapshot_id=snapshot_id)
                scans = {key: scan(self.lake.lake, table, [key], pin, columns, branch)[0] for key in keys}
                frame = {key: to_read(selected, kind, self.spark) for key, selected in scans.items()}
        reading = self._reading.setdefault(_step_name(step), Reading())
        reading.ended = time.monotonic()
        reading.seconds += reading.ended - began
        return frame

    def _write_op_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an op's output to the table that its metadata names."""
        step, metadata = dg.OpExecutionContext.get(), _metadata(context)
        key = _op_table(context, metadata)
        with as_dagster_failures(key, []):
            table = declared(key, self.lake.table_name(key, metadata), None, metadata)
            origin = origin_of(step, context.name)
            note_write(step, table, origin)
            written = write(self.lake.lake, table, obj, [], origin)
        context.add_output_metadata({**written.table, **written.commit})

    def _read_op_output(self, context: dg.InputContext, upstream: dg.OutputContext) -> Any:
        metadata = dict(upstream.definition_metadata or {})
        key = _op_table(upstream, metadata)
        with as_dagster_failures(key, []):
            table = declared(key, self.lake.table_name(key, metadata), None, metadata)
            pin, columns = pin_of(f"input {context.name}", context.definition_metadata or {})
            selected, _ = scan(self.lake.lake, table, None, pin, columns)
            return to_read(selected, required(context.dagster_type.typing_type), self.spark)

    def _declared(
        self, context: dg.InputContext | dg.OutputContext, metadata: Any, description: str | None = None
    ) -> AssetTable:
        partitions = context.asset_partitions_def if context.has_asset_partitions else None
        name = self.lake.table_name(context.asset_key, metadata)
        return declared(context.asset_key, name, partitions, metadata, description)

    def _refuse_unknown_pins(self, step: dg.OpExecutionContext) -> None:
        """Raise `Failure` for a version of an asset that there is not."""
        names = asset_names(step) if self.read_at else set()
        if unknown := sorted(self.read_at.keys() - names):
            near = difflib.get_close_matches(unknown[0], names, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
            raise dg.Failure(f"read_at names {unknown[0]!r}, which is no asset here; {advice}", allow_retries=False)

    def _configured(self, context: dg.InputContext) -> Pin | None:
        pin = self.read_at.get(context.asset_key.to_user_string())
        return None if pin is None else pinned({name: getattr(pin, name) for name in type(pin).model_fields})


def pinned(read_at: Mapping[str, Any]) -> Pin:
    """The version that the fields of a `ReadAt` name. Raises `InvalidInput` for an id that is no number."""
    version = {name: value for name, value in read_at.items() if value is not None}
    text = version.pop("snapshot", None)
    if text is not None:
        if not str(text).isdecimal():
            raise InvalidInput(f"read_at: snapshot={text!r}; give a snapshot's id in digits, or its tag: ...")
        version["snapshot_id"] = int(text)
    return Pin(**version)


def note_read(step: dg.OpExecutionContext, reads: Reads, table: str, snapshot_id: int) -> None:
    """Record in a run tag which snapshots a step reads, so that expiry keeps them; `reads` are those of the run's steps
    so far."""
    name = f"{READS_TAG}/{step.op_handle}/{table}"
    reads.setdefault(name, set()).add(snapshot_id)
    step.instance.add_run_tags(step.run_id, {name: ", ".join(map(str, sorted(reads[name])))})


def snapshots_read(run: dg.DagsterRun, table: str) -> set[int]:
    """The snapshots of a table that the steps of a run have recorded."""
    noted = [ids for tag, ids in run.tags.items() if tag.startswith(f"{READS_TAG}/") and tag.endswith(f"/{table}")]
    return {int(snapshot_id) for ids in noted for snapshot_id in ids.split(", ")}


def _keys(context: dg.InputContext | dg.OutputContext) -> list[str]:
    """The partitions of an input or output: those of time as they follow each other, others by name, since Dagster's
    order of these is another in each process."""
    keys = context.asset_partition_keys
    is_time = isinstance(context.asset_partitions_def, dg.TimeWindowPartitionsDefinition)
    return list(keys) if is_time else sorted(keys)


def _step_name(step: Any) -> str:
    context = getattr(step, "op_execution_context", step)
    return f"{context.run_id}/{context.op_handle}"


def _metadata(context: dg.OutputContext) -> dict[str, Any]:
    """The metadata of an output's definition, overridden by the output's own."""
    return at_run_time(context.definition_metadata or {}, context.output_metadata)


def _op_table(context: dg.OutputContext, metadata: Mapping[str, Any]) -> dg.AssetKey:
    if "table" not in metadata:
        raise dg.Failure(
            f"output {context.name!r} of {context.step_key} is not an asset, and nothing names its table; write "
            f"dg.Out(metadata={{'table': 'db.name'}}), or keep it elsewhere with dg.Out(io_manager_key=...)",
            allow_retries=False,
        )
    if context.mapping_key is not None or context.step_key.endswith("]"):
        raise dg.Failure(
            f"output {context.name!r} of {context.step_key} is one of several, and each would take the place of the "
            f"others in {metadata['table']}; keep them elsewhere with dg.DynamicOut(io_manager_key=...) and "
            "dg.Out(io_manager_key=...), and write the table in a step after collect()",
            allow_retries=False,
        )
    return dg.AssetKey(str(metadata["table"]).split("."))
