"""The table of an asset: one write, one read, and the metadata of its events."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa

from lakeformat import Lake
from lakeformat.codec.arrow import arrow_schema, to_arrow
from lakeformat.dagster.declaration import CURRENT, EVERY_COLUMN, AssetTable, Pin, settled
from lakeformat.dagster.drift import follow, refuse_missing
from lakeformat.dagster.frames import NoRows, fields_of, filled, is_untyped, to_write, untyped_columns
from lakeformat.dagster.identity import Origin, branch_of, request_id
from lakeformat.dagster.markdown import cell, id_text, markdown_table
from lakeformat.dagster.measures import measures, rows_by_key
from lakeformat.dagster.partition_keys import Spec, columns_of, has_windows, partition_specs, predicate_of
from lakeformat.errors import (
    AlreadyExists,
    CommitLost,
    CommitUnknown,
    Conflict,
    InvalidInput,
    LakeError,
    NotFound,
    OutsideScope,
    UnsupportedFeature,
)
from lakeformat.model import predicate
from lakeformat.model.evolution import can_widen
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import COUNTS, PartitionChange, Snapshot
from lakeformat.model.wording import count_text

PREVIEW_ROWS = 5
PREVIEW_COLUMNS = 8
MAX_KEYS_IN_PROPERTIES = 400
ASSET = "dagster/asset"  # Snapshot property: the asset that wrote it.
MAIN = "main"  # The branch that readers see; in Iceberg it has one empty snapshot where another branch began first.
AUDIT_KEPT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Written:
    """A write that landed: its snapshot (None if there was nothing to do), the data version that the table has then,
    and metadata for the event log: of the table, of the whole commit, and of each Dagster partition."""

    snapshot: Snapshot | None
    data_version: dg.DataVersion | None
    table: Mapping[str, Any]
    commit: Mapping[str, Any]
    partitions: Mapping[str, Mapping[str, Any]]


def _evolve(table: Any, fields: Iterable[Field], mode: str) -> None:
    """Evolve the table's columns towards those of a frame as far as `mode` allows; the write refuses the rest."""
    existing = {field.name: field for field in table.schema.fields}
    change = table.alter()
    for field in fields:
        if field.name not in existing:
            if is_untyped(field.type):
                continue
            change = change.add_column(field.name, field.type, comment=field.comment)
        elif (
            mode == "widen"
            and field.type != existing[field.name].type
            and can_widen(existing[field.name].type, field.type)
        ):
            change = change.change_type(field.name, field.type)
    if change.changes:
        change.commit()


def _describe(table: Any, to: AssetTable) -> None:
    """Set the table's and columns' comments to those the asset declares. Comments that it does not declare stay, and so
    do those of a table that another asset wrote last."""
    comments = {field.name: field.comment for field in table.schema.fields}
    change = table.alter()
    for name, text in to.descriptions:
        if name in comments and comments[name] != text:
            change = change.change_comment(name, text)
    if to.comment and table.schema.comment != to.comment:
        last = table.current_snapshot()
        asset = to.asset.to_user_string()
        if table.schema.comment is None or last is None or last.properties.get(ASSET, asset) == asset:
            change = change.set_comment(to.comment)
    if change.changes:
        change.commit()


def write(
    lake: Lake, to: AssetTable, data: Any, keys: Sequence[str], origin: Origin, branch: str | None = None
) -> Written:
    """Write a frame to the table as the asset declares, in one commit.

    "replace" replaces exactly the partitions `keys` (the whole table for an unpartitioned asset): a partition without
    rows becomes empty, and a row of another partition raises `OutsideScope`. The table is created from the frame if it
    does not exist. The write is exactly-once per `origin` and `keys`. The rows of an audited asset are written to the
    run's branch; `branch` is the branch that `data` was read from. The metadata of the commit has the seconds before
    it: of the query of a lazy frame, and of its files.
    """
    began = time.monotonic()
    written = _write(lake, to, data, keys, origin, branch)
    if not written.commit or written.snapshot is None:
        return written
    seconds = max(0.0, time.monotonic() - began - (written.snapshot.milliseconds or 0) / 1000)
    return replace(written, commit={"lake/write_seconds": round(seconds, 3), **written.commit})


def _write(lake: Lake, to: AssetTable, data: Any, keys: Sequence[str], origin: Origin, branch: str | None) -> Written:
    """What `write` does."""
    frame = _with_partition(lake, to, to_write(data), keys)
    to = settled(to, fields_of(frame))
    _refuse_lineage_of_nothing(lake, to, frame)
    request: dict[str, Any] = {"id": request_id(to, keys, origin)}
    is_new = not lake.exists(to.name)
    if is_new:
        if untyped := untyped_columns(frame):
            if isinstance(frame, pa.Table) and frame.num_rows == 0:
                return Written(None, None, {"dagster/table_name": to.name}, {}, {})  # Its columns have no type yet.
            raise InvalidInput(
                f"{to.name} does not exist yet, and no value of the frame has the type of {', '.join(untyped)}; give "
                "each column one, e.g. by a pyarrow schema or astype()"
            )
        if not to.audit:
            request["properties"] = _properties(to, keys, origin, branch)
            created = _create(lake, to, frame, keys, origin, request)
            if created is not None:
                return created
    if to.audit:
        branch = branch_of(origin)
    request["properties"] = _properties(to, keys, origin, branch)
    if to.audit and is_new:
        return _created_with_branch(lake, to, frame, keys, origin, request)
    table = table_for(lake, to, frame)
    if to.audit:
        table = _begun(table, branch_of(origin))
    return written_of(table, to, _apply(table, to, frame, keys, request), keys, origin)


def _refuse_lineage_of_nothing(lake: Lake, to: AssetTable, frame: Any) -> None:
    """Raise `InvalidInput` for a declared lineage of a column that neither the frame nor the table has."""
    names = [name for name in to.lineage or {} if name != EVERY_COLUMN]
    columns = {field.name for field in fields_of(frame)} if names else set()
    if lost := [name for name in names if name not in columns]:
        schema = lake.table(to.name).schema.names if lake.exists(to.name) else ()
        if unknown := [name for name in lost if name not in schema]:
            shown = ", ".join(dict.fromkeys((*(field.name for field in fields_of(frame)), *schema)))
            raise InvalidInput(
                f"lineage names the column {unknown[0]!r}, and {to.name} has {shown}; correct it, or leave it out"
            )


def _create(
    lake: Lake, to: AssetTable, frame: Any, keys: Sequence[str], origin: Origin, request: Mapping[str, Any]
) -> Written | None:
    """The table's first write, which creates it; None if another run has created it meanwhile. Raises `Conflict` if the
    frame can then not be read again."""
    try:
        snapshot = lake.create_table_by(
            to.name, lambda table: _apply(table, to, frame, keys, request), **_declaration(to, frame)
        )
    except AlreadyExists as error:
        if not lake.exists(to.name):
            raise
        if isinstance(frame, pa.RecordBatchReader):
            raise Conflict(f"{to.name}: another run has created it meanwhile") from error
        return None
    table = lake.table(to.name)
    _describe(table, to)
    return written_of(table, to, snapshot, keys, origin)


def _created_with_branch(
    lake: Lake, to: AssetTable, frame: Any, keys: Sequence[str], origin: Origin, request: Mapping[str, Any]
) -> Written:
    """The first write of an audited table, which creates it and the run's branch. If the write fails, the table is
    dropped, unless another run uses it by then."""
    branch = branch_of(origin)
    try:
        table = _begun(table_for(lake, to, frame), branch)
        snapshot = _apply(table, to, frame, keys, request)
    except CommitUnknown:
        raise
    except BaseException:
        with suppress(LakeError):
            created = lake.table(to.name)
            others = set(created.inspect.branches()["branch_name"].to_pylist()) - {MAIN, branch}
            if not others and len(created.snapshots()) <= 1 and not created.scan().count():
                lake.drop_table(to.name)
        raise
    return written_of(table, to, snapshot, keys, origin)


def _apply(table: Any, to: AssetTable, frame: Any, keys: Sequence[str], request: Mapping[str, Any]) -> Snapshot | None:
    """Write a frame to the table, in one verb."""
    snapshot: Snapshot | None
    if to.write == "append":
        snapshot = table.append(frame, **request)
    elif to.write == "upsert":
        is_stored = set(to.primary_key) <= set(table.schema.primary_key)
        snapshot = table.upsert(frame, on=[] if is_stored else list(to.primary_key), **request)
    elif to.write == "merge":
        snapshot = _merge(table, frame, to.merge or {}).merge(**request)
    elif to.partitions is None:
        snapshot = table.overwrite(frame, **request)
    else:
        specs = specs_of(to, table.schema, keys)
        if has_windows(specs):
            snapshot = table.overwrite(frame, where=predicate_of(specs, columns_of(to.partition_by or {})), **request)
        else:
            partitions = [spec for several in specs.values() for spec in several]
            snapshot = table.overwrite_partitions(frame, partitions=partitions, **request)
    return snapshot


def _with_partition(lake: Lake, to: AssetTable, frame: Any, keys: Sequence[str]) -> Any:
    """The frame with the partition columns that it lacks, where the run has one partition, of which each has one value.
    In a table that does not exist yet they are text."""
    if to.is_expression and lake.exists(to.name):
        to = settled(to, lake.table(to.name).schema.fields)
    names = columns_of(to.partition_by or {}, windows=False)
    there = {field.name for field in fields_of(frame)}
    missing = [name for name in names if name not in there]
    is_plain = not to.is_expression and names == columns_of(to.partition_by or {})
    if len(keys) != 1 or not missing or to.partitions is None or not is_plain:
        return frame
    types = {name: pa.string() for name in names}
    types |= {field.name: to_arrow(field.type) for field in fields_of(frame) if field.name in names}
    if lake.exists(to.name):
        types |= {
            field.name: to_arrow(field.type) for field in lake.table(to.name).schema.fields if field.name in names
        }
    (specs,) = partition_specs(to.partitions, keys, to.partition_by or {}, types).values()
    values = {name: {spec[name] for spec in specs} for name in missing}
    if any(len(distinct) != 1 for distinct in values.values()):
        return frame
    return filled(frame, {name: pa.scalar(next(iter(distinct)), types[name]) for name, distinct in values.items()})


def table_for(lake: Lake, to: AssetTable, frame: Any) -> Any:
    """The table of an asset, with the declared columns and comments; created from the frame if it does not exist.
    Raises `InvalidInput` where it is not as declared, and where another asset keeps its rows in it."""
    if not lake.exists(to.name):
        table = lake.create_table(to.name, **_declaration(to, frame), if_exists="ignore")
        _describe(table, to)
        return table
    table = lake.table(to.name)
    refuse_other_owner(table, to)
    follow(table, to)
    if to.evolution != "refuse":
        _evolve(table, fields_of(frame), to.evolution)
    refuse_missing(table, to, [field.name for field in fields_of(frame)])
    _describe(table, to)
    return table


def _declaration(to: AssetTable, frame: Any) -> dict[str, Any]:
    """The arguments of `Lake.create_table`, in their order."""
    return {
        "schema": frame.schema,
        "format": to.format,
        "partition_by": list(to.layout),
        "primary_key": list(to.primary_key),
        "properties": dict(to.properties),
        "comment": to.comment,
    }


def refuse_other_owner(table: Any, to: AssetTable) -> None:
    """Raise `InvalidInput` if another asset wrote the table last, and `to` has its name from the asset's key alone."""
    if "table" in to.named:
        return
    current = table.current_snapshot()
    newest = (current, *reversed(table.snapshots())) if current and ASSET not in current.properties else (current,)
    owner = next((snapshot.properties[ASSET] for snapshot in newest if snapshot and ASSET in snapshot.properties), None)
    name = to.asset.to_user_string()
    if owner not in (None, name):
        raise InvalidInput(
            f"{to.name} has the rows of the asset {owner}, and {name} would keep its own there too; name another table "
            f"by metadata={{'table': 'db.name'}}, or this one, 'table': {to.name!r}, if {owner} is not an asset any "
            "more"
        )


def written_of(table: Any, to: AssetTable, snapshot: Snapshot | None, keys: Sequence[str], origin: Origin) -> Written:
    """The metadata of a write of the partitions `keys` that became `snapshot` (None if there was nothing to do)."""
    to = settled(to, table.schema.fields)
    specs = specs_of(to, table.schema, keys) if to.partitions is not None and to.partition_by is not None else {}
    current = snapshot or table.current_snapshot()
    metadata = metadata_of(table, to, current)
    if current is not None:
        metadata["lake/snapshot_id"] = id_text(current.id)
    if snapshot is None:
        partitions = {} if current is None else _rows_by_partition(table, to, current, specs)
        return Written(None, data_version_of(current), metadata, {}, partitions)
    snapshot = with_changes(table, snapshot)
    commit = commit_metadata(table, to, snapshot, specs if to.write == "replace" else {})
    first = snapshot.properties.get("dagster/run_id", origin.run_id)
    if first != origin.run_id:
        commit["lake/committed_by_run"] = first  # This run re-executes it and adds nothing.
    if to.audit:
        metadata["lake/branch"] = branch_of(origin)
    return Written(snapshot, data_version_of(snapshot), metadata, commit, _by_partition(table, to, snapshot, specs))


def data_version_of(snapshot: Snapshot | None) -> dg.DataVersion | None:
    """The data version of a table at a snapshot; None for a table without snapshots."""
    return None if snapshot is None else dg.DataVersion(str(snapshot.id))


def _begun(table: Any, branch: str) -> Any:
    """The table at its branch `branch`, which is created if it does not exist; in Iceberg it expires a week after its
    last write."""
    opened = table.branch(branch)
    try:
        opened.current_snapshot()
    except NotFound:
        with suppress(AlreadyExists):  # Two steps of a run may create it at once.
            _begin(table, branch)
    return opened


def _begin(table: Any, branch: str) -> None:
    try:
        table.create_branch(branch, retain=AUDIT_KEPT)
    except UnsupportedFeature:  # Branches of Paimon tables do not expire.
        table.create_branch(branch)
    except NotFound:  # A branch of an Iceberg table needs a snapshot: here one without rows.
        nothing = predicate.in_tuples(table.schema.names[:1], [])
        table.overwrite(arrow_schema(table.schema.fields).empty_table(), where=nothing)
        table.create_branch(branch, retain=AUDIT_KEPT)


def with_changes(table: Any, snapshot: Snapshot) -> Snapshot:
    """The snapshot with its changes per partition, which a repeated write, found in the history, lacks."""
    return snapshot if snapshot.partitions is not None else table.snapshot(snapshot.id)


def report(context: Any, to: AssetTable, written: Written, keys: Sequence[str]) -> dict[str, Any]:
    """Report a write and the table's data version to Dagster; returns the metadata of its materializations.

    Each partition's event has the partition's own metadata. Metadata of the whole commit is added to it if the run has
    at most one partition; otherwise it is one observation.
    """
    if written.data_version:
        context.set_data_version(to.asset, written.data_version)
    for key, metadata in written.partitions.items():
        context.add_asset_metadata(dict(metadata), asset_key=to.asset, partition_key=key)
    if len(keys) <= 1:
        return {**written.table, **written.commit}
    if written.commit:
        snapshot = written.snapshot
        assert snapshot is not None, "only a commit has metadata"
        rows = f"+{count_text(snapshot.rows_added or 0, 'row')}, -{count_text(snapshot.rows_removed or 0, 'row')}"
        text = f"One commit of {count_text(len(keys), 'partition')}: {rows}, in {snapshot.milliseconds:,} ms"
        context.log_event(dg.AssetObservation(to.asset, description=text, metadata={**written.table, **written.commit}))
    return dict(written.table)


def _merge(table: Any, source: Any, declared: Mapping[str, Any]) -> Any:
    """The MERGE INTO that an asset's metadata declares."""
    merge = table.merge_into(source, on=declared["on"])
    for kind in ("matched", "not_matched", "not_matched_by_source"):
        for clause in declared.get(kind, ()):
            when = [clause["when"]] if "when" in clause else []
            branch = getattr(merge, f"when_{kind}")(*when)
            then = clause["then"]
            if isinstance(then, str):
                merge = getattr(branch, then)()
            else:
                merge = (branch.insert if kind == "not_matched" else branch.update)(dict(then))
    return merge


def scan(
    lake: Lake,
    of: AssetTable,
    keys: Sequence[str] | None,
    pin: Pin = CURRENT,
    columns: Sequence[str] | None = None,
    branch: str | None = None,
) -> tuple[Any, int | None]:
    """A scan of the partitions `keys`, and the id of the snapshot it reads. It reads all rows for None, and of a table
    without `partition_by`, which collects the rows of all partitions. `NoRows` if no partition is asked for and the
    table does not exist. `branch`: the branch to read."""
    if keys is not None and not keys and not lake.exists(of.name):
        return NoRows(), None
    table = lake.table(of.name) if branch is None else lake.table(of.name).branch(branch)
    of = settled(of, table.schema.fields)
    where = None
    if keys is not None and (of.partition_by is not None or of.write == "replace"):
        where = predicate_of(specs_of(of, table.schema, keys), columns_of(of.partition_by or {}))
    selected = table.scan(columns=columns, where=where, snapshot_id=pin.snapshot_id, tag=pin.tag, as_of=pin.as_of)
    return selected, selected.snapshot.id if selected.snapshot else None


def specs_of(of: AssetTable, schema: Schema, keys: Sequence[str]) -> dict[str, tuple[Spec, ...]]:
    """The table partitions of each key, with values of the table's types."""
    if of.partitions is None or of.partition_by is None:
        raise InvalidInput(f"{of.asset.to_user_string()} has no partitions, but was asked for {list(keys)[:3]}")
    names = columns_of(of.partition_by)
    for by in schema.partitioning.fields:
        if by.source in columns_of(of.partition_by, windows=False) and by.source not in schema.partitioning.columns:
            raise InvalidInput(
                f"{of.name} is partitioned by {by.transform}({by.source}), not by the values of {by.source}; map the "
                f"partition's time onto it: metadata={{'partition_by': {{'window': {by.source!r}}}}}"
            )
    types = {field.name: to_arrow(field.type) for field in schema.fields if field.name in names}
    if missing := [name for name in names if name not in types]:
        raise InvalidInput(
            f"partition_by names {', '.join(missing)}, which {of.name} does not have; it has {', '.join(schema.names)}"
        )
    return partition_specs(of.partitions, keys, of.partition_by, types)


def metadata_of(table: Any, to: AssetTable, snapshot: Snapshot | None) -> dict[str, Any]:
    """The metadata of a table at a snapshot."""
    schema: Schema = table.schema
    metadata: dict[str, Any] = {
        "dagster/table_name": to.name,
        "dagster/uri": table.uri,
        "dagster/storage_kind": table.format,
        "dagster/column_schema": column_schema(schema),
        **measures(table, snapshot),
    }
    if to.lineage:
        metadata["dagster/column_lineage"] = column_lineage(to.lineage, schema.names)
    return metadata


def commit_metadata(
    table: Any, to: AssetTable, snapshot: Snapshot, specs: Mapping[str, Sequence[Spec]] = MappingProxyType({})
) -> dict[str, Any]:
    """The metadata of a whole commit; `specs` are the replaced partitions."""
    metadata: dict[str, Any] = {
        "lake/snapshot_id": id_text(snapshot.id),
        **{f"lake/{name}": getattr(snapshot, name) for name in COUNTS},
        "lake/commit_milliseconds": snapshot.milliseconds,
        "lake/commit_attempts": snapshot.attempts,
    }
    if specs:
        metadata["lake/partitions_in_commit"] = len(specs)
    if snapshot.rows_added:
        where = predicate_of(specs, columns_of(to.partition_by or {})) if specs else None
        first = [name for name in table.schema.partitioning.sources if "." not in name]
        columns = list(dict.fromkeys((*first, *table.schema.names)))[:PREVIEW_COLUMNS]
        rows = table.scan(columns=columns, where=where, snapshot_id=snapshot.id, limit=PREVIEW_ROWS).to_arrow()
        metadata["lake/preview"] = preview(rows)
    return metadata


@contextmanager
def as_dagster_failures(asset: dg.AssetKey, keys: Sequence[str]) -> Iterator[None]:
    """Turn lake errors into Dagster's: an error that a retry cannot fix fails at once, a lost race is retried."""
    name = asset.to_user_string()
    details: dict[str, Any] = {"lake/partitions_asked_for": _shown(keys)} if keys else {}
    try:
        yield
    except OutsideScope as error:
        raise dg.Failure(
            f"{name}: rows outside the partitions of this run ({_shown(keys)}); nothing was committed. {error}",
            metadata=details,
            allow_retries=False,
        ) from error
    except (Conflict, CommitLost, CommitUnknown) as error:
        raise dg.RetryRequested(max_retries=5, seconds_to_wait=2) from error
    except LakeError as error:
        said = str(error)
        text = said if said.startswith(f"{name}: ") else f"{name}: {said}"
        raise dg.Failure(text, metadata=details, allow_retries=error.retryable) from error
    except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt) as error:
        # With a retry policy, Dagster retries every interrupted step, a terminated one like a lost pod.
        if _is_terminated():
            raise dg.Failure(f"{name}: the run was terminated", metadata=details, allow_retries=False) from error
        raise


def _is_terminated() -> bool:
    """Whether this is a step of a run that was asked to terminate."""
    try:
        step = dg.OpExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return False
    run = step.instance.get_run_by_id(step.run_id)
    return run is None or run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


def column_schema(schema: Schema) -> dg.TableSchema:
    """A table's columns as Dagster's `TableSchema`."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.type),
                description=field.comment,
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
                tags={"partition": ""} if field.name in schema.partitioning.sources else None,
            )
            for field in schema.fields
        ]
    )


def column_lineage(lineage: Mapping[str, Any], columns: Sequence[str]) -> dg.TableColumnLineage:
    """The declared origin of each column, as Dagster's lineage."""
    unchanged = lineage.get("*")
    dependencies = {name: [_dependency(text) for text in several] for name, several in lineage.items() if name != "*"}
    if unchanged:
        dependencies |= {name: [_dependency(f"{unchanged}.{name}")] for name in columns if name not in dependencies}
    return dg.TableColumnLineage(dependencies)


def preview(rows: pa.Table) -> dg.MarkdownMetadataValue:
    """A few rows as a Markdown table."""
    rows = rows.select(rows.column_names[:PREVIEW_COLUMNS]).slice(0, PREVIEW_ROWS)
    return markdown_table(rows.column_names, [[cell(value) for value in row.values()] for row in rows.to_pylist()])


def _dependency(text: str) -> dg.TableColumnDep:
    asset, _, column = text.rpartition(".")
    return dg.TableColumnDep(dg.AssetKey.from_user_string(asset), column)


def audited_branch(lake: Lake, of: AssetTable, origin: Origin) -> str | None:
    """The branch with the rows that an audited asset wrote in a run; None if they are in the table itself."""
    branch = branch_of(origin)
    return branch if of.audit and has_branch(lake.table(of.name), branch) else None


def has_branch(table: Any, branch: str) -> bool:
    """Whether the table has that branch."""
    return branch in table.inspect.branches()["branch_name"].to_pylist()


def _properties(to: AssetTable, keys: Sequence[str], origin: Origin, branch: str | None) -> dict[str, str]:
    """The snapshot properties that record its origin."""
    properties = {
        ASSET: to.asset.to_user_string(),
        "dagster/run_id": origin.run_id,
        "dagster/backfill": origin.backfill,
        "dagster/partitions": _shown(keys, MAX_KEYS_IN_PROPERTIES),
        "lake/branch": branch or "",
    }
    return {name: value for name, value in properties.items() if value}


def _by_partition(
    table: Any, to: AssetTable, snapshot: Snapshot, specs: Mapping[str, Sequence[Spec]]
) -> dict[str, dict[str, Any]]:
    """The rows of each Dagster partition, and of one that the snapshot replaced the changes."""
    if to.write != "replace" or has_windows(specs):
        return _rows_by_partition(table, to, snapshot, specs)
    asked = next((tuple(spec) for several in specs.values() for spec in several), ())
    places = [table.schema.partitioning.names.index(name) for name in asked]
    types = [to_arrow(table.schema.field(name).type) for name in asked]
    changes: dict[tuple[Any, ...], list[PartitionChange]] = {}
    for change in snapshot.partitions or ():
        # A snapshot may record times as numbers; Arrow turns both into the same Python value.
        values = (pa.scalar(change.values[index], type).as_py() for index, type in zip(places, types, strict=True))
        changes.setdefault(tuple(values), []).append(change)
    by_key = {}
    for key, several in specs.items():
        mine = [change for spec in several for change in changes.get(tuple(spec.values()), [])]
        measures = {f"lake/{name}": sum(getattr(change, name) for change in mine) for name in COUNTS}
        by_key[key] = {**measures, "dagster/partition_row_count": measures["lake/rows_added"]}
    return by_key


def _rows_by_partition(
    table: Any, to: AssetTable, snapshot: Snapshot, specs: Mapping[str, Sequence[Spec]]
) -> dict[str, dict[str, Any]]:
    counts = rows_by_key(table, specs, columns_of(to.partition_by or {}), snapshot.id) if specs else {}
    return {key: {"dagster/partition_row_count": count} for key, count in counts.items()}


def _shown(keys: Sequence[str], at_most: int = 20) -> str:
    """Keys in a message: all of them, or the first, the last and the number."""
    if len(keys) <= at_most:
        return ", ".join(keys)
    return f"{keys[0]} ... {keys[-1]} ({count_text(len(keys), 'partition')})"
