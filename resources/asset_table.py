"""The table behind an asset: what the asset's metadata declares, one write, one read, and what Dagster is told.

Metadata that an asset may set (see also `resources.partitions`):

    table             "db.name"; without it the asset key, in the resource's database
    partition_by      how Dagster's partitions fall onto the table's partition columns
    layout            the table's partition columns, where they are not those of `partition_by`, in its order
    format            "paimon" unless it says otherwise
    primary_key       columns
    write             how a frame changes the table:
                      "replace" (the default)  exactly the run's partitions become the frame's rows
                      "upsert"                 rows take the place of those with the same primary key
                      "merge"                  MERGE INTO, as `merge` says; the frame is the source
                      "append"                 rows are added; the asset's body does it (`LakeResource.append_changes`)
    merge             {"on": "t.id = s.id", "matched": [{"when": "s.op = 'cancel'", "then": "delete"}, {"then": "update_all"}],
                      "not_matched": [{"then": "insert_all"}], "not_matched_by_source": [...]}; `then` may be a mapping of
                      columns to expressions
    table_properties  of a table that is created
    lineage           {"column": ["upstream.column", ...], "*": "upstream"}: where each column comes from;
                      "*" is every column that is not named and comes unchanged from one upstream asset
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa

from lakeformat import Lake
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import (
    CommitLost,
    CommitUnknown,
    Conflict,
    InvalidInput,
    LakeError,
    NotFound,
    OutsideScope,
    UnsupportedFeature,
)
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Snapshot
from resources.frames import to_write
from resources.partitions import PartitionBy, Spec, columns_of, has_windows, partition_specs, predicate_of

PREVIEW_ROWS = 5
PREVIEW_COLUMNS = 8
MAX_KEYS_IN_PROPERTIES = 400
WRITES = ("replace", "upsert", "merge", "append")


@dataclass(frozen=True, slots=True)
class AssetTable:
    """What an asset declares about the table it fills."""

    asset: dg.AssetKey
    name: str
    partitions: dg.PartitionsDefinition | None = None
    partition_by: PartitionBy | None = None
    layout: tuple[str, ...] = ()
    format: str = "paimon"
    primary_key: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    write: str = "replace"
    merge: Mapping[str, Any] | None = None
    lineage: Mapping[str, Any] | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that writes: what makes a write happen once, and what its snapshot remembers."""

    run_id: str
    step: str
    backfill: str = ""


@dataclass(frozen=True, slots=True)
class Pin:
    """Which state of a table to read; the current one where nothing is set."""

    snapshot_id: int | None = None
    tag: str | None = None
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A write that landed: its snapshot (None where nothing was to do), the rows of each Dagster partition, and metadata for
    the event log."""

    snapshot: Snapshot | None
    row_counts: Mapping[str, int]
    metadata: Mapping[str, Any]


def declared(
    asset: dg.AssetKey,
    name: str,
    partitions: dg.PartitionsDefinition | None,
    metadata: Mapping[str, Any],
    comment: str | None = None,
) -> AssetTable:
    """The table that an asset declares by its metadata."""
    partition_by, write = metadata.get("partition_by"), str(metadata.get("write", "replace"))
    if write not in WRITES:
        raise InvalidInput(f"{asset.to_user_string()}: write={write!r}; it must be one of {', '.join(WRITES)}")
    if (write == "merge") != (metadata.get("merge") is not None):
        raise InvalidInput(
            f"{asset.to_user_string()}: 'merge' says how to merge where write is 'merge', and only there"
        )
    if partitions is not None and partition_by is None and write == "replace":
        raise InvalidInput(
            f"{asset.to_user_string()} has partitions, but its metadata has no 'partition_by' that says which columns "
            f"of {name} they are, e.g. metadata={{'partition_by': {{'date': 'dt'}}}}"
        )
    return AssetTable(
        asset=asset,
        name=name,
        partitions=partitions,
        partition_by=partition_by,
        layout=tuple(metadata.get("layout") or (columns_of(partition_by, windows=False) if partition_by else ())),
        format=str(metadata.get("format", "paimon")),
        primary_key=tuple(metadata.get("primary_key", ())),
        properties=tuple(sorted((metadata.get("table_properties") or {}).items())),
        write=write,
        merge=metadata.get("merge"),
        lineage=metadata.get("lineage"),
        comment=comment,
    )


def write(lake: Lake, to: AssetTable, data: Any, keys: Sequence[str], origin: Origin) -> Written:
    """Bring a frame into the table as the asset declares it, in one commit.

    "replace": exactly the partitions `keys` (the whole table, where the asset has none); a partition without rows becomes
    empty, and rows of other partitions raise `OutsideScope`. The table is created from the frame if it is not there. The
    write happens once for an `origin` and `keys`, however often it is asked for.
    """
    frame = to_write(data)
    table = lake.create_table(
        to.name,
        frame.schema,
        format=to.format,
        partition_by=list(to.layout),
        primary_key=list(to.primary_key),
        properties=dict(to.properties),
        comment=to.comment,
        if_exists="ignore",
    )
    request: dict[str, Any] = {"id": request_id(to, keys, origin), "properties": _properties(to, keys, origin)}
    specs: Mapping[str, tuple[Spec, ...]] = {}
    if to.write == "upsert":
        snapshot = table.upsert(frame, **request)
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
    counts = _row_counts(table, to, snapshot, specs) if snapshot and specs else {}
    return Written(snapshot, counts, metadata_of(table, to, snapshot, specs))


def _merge(table: Any, source: Any, declared: Mapping[str, Any]) -> Any:
    """MERGE INTO as an asset's metadata declares it."""
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
    lake: Lake, of: AssetTable, keys: Sequence[str] | None, pin: Pin = Pin(), columns: Sequence[str] | None = None
) -> tuple[Any, int | None]:
    """The rows of the partitions `keys` (all rows for None) as a Scan, and the id of the snapshot it reads."""
    table = lake.table(of.name)
    where = None
    if keys is not None and of.write == "replace":  # Other tables gather what all partitions bring.
        where = predicate_of(specs_of(of, table.schema, keys), columns_of(of.partition_by or {}))
    found = table.scan(columns=columns, where=where, snapshot_id=pin.snapshot_id, tag=pin.tag, as_of=pin.as_of)
    return found, found.snapshot.id if found.snapshot else None


def specs_of(of: AssetTable, schema: Schema, keys: Sequence[str]) -> dict[str, tuple[Spec, ...]]:
    """The table partitions of each key, with values of the table's own types."""
    if of.partitions is None or of.partition_by is None:
        raise InvalidInput(f"{of.asset.to_user_string()} has no partitions, but was asked for {list(keys)[:3]}")
    names = columns_of(of.partition_by)
    for each in schema.partitioning.fields:
        if each.source in columns_of(of.partition_by, windows=False) and each.source not in schema.partitioning.columns:
            raise InvalidInput(
                f"{of.name} is partitioned by {each.transform}({each.source}), not by the values of {each.source}; map the "
                f"partition's time onto it: metadata={{'partition_by': {{'window': {each.source!r}}}}}"
            )
    types = {field.name: to_arrow(field.type) for field in schema.fields if field.name in names}
    return partition_specs(of.partitions, keys, of.partition_by, types)


def request_id(to: AssetTable, keys: Sequence[str], origin: Origin) -> str:
    """Names one write: the run, the step and its partitions. A retried step asks with the same name."""
    asset = to.asset.to_user_string()
    if not keys:
        return f"{origin.run_id}/{origin.step}/{asset}"
    digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:12]
    return f"{origin.run_id}/{origin.step}/{asset}/{keys[0]}...{keys[-1]}/{digest}"


def metadata_of(
    table: Any, to: AssetTable, snapshot: Snapshot | None, specs: Mapping[str, Sequence[Spec]] = MappingProxyType({})
) -> dict[str, Any]:
    """What Dagster is told of a table and of the commit that was made; `specs` are the partitions that were replaced."""
    schema: Schema = table.schema
    found: dict[str, Any] = {
        "dagster/table_name": to.name,
        "dagster/uri": table.uri,
        "dagster/storage_kind": to.format,
        "dagster/column_schema": column_schema(schema),
    }
    if to.lineage:
        found["dagster/column_lineage"] = column_lineage(to.lineage, schema.names)
    if snapshot is None:
        return found
    found |= {
        "lake/snapshot_id": snapshot.id,
        "lake/files_added": snapshot.files_added,
        "lake/files_removed": snapshot.files_removed,
        "lake/rows_added": snapshot.rows_added,
        "lake/rows_removed": snapshot.rows_removed,
        "lake/bytes_added": snapshot.bytes_added,
        "lake/bytes_removed": snapshot.bytes_removed,
        "lake/commit_milliseconds": snapshot.milliseconds,
        "lake/commit_attempts": snapshot.attempts,
    }
    if specs:
        found["lake/partitions_in_commit"] = len(specs)
    elif to.write == "replace":
        found["dagster/row_count"] = snapshot.rows_added
    if snapshot.rows_added:
        where = predicate_of(specs, columns_of(to.partition_by or {})) if specs else None
        columns = list(schema.names[:PREVIEW_COLUMNS])
        rows = table.scan(columns=columns, where=where, snapshot_id=snapshot.id, limit=PREVIEW_ROWS).to_arrow()
        found["lake/preview"] = dg.MarkdownMetadataValue(preview(rows))
    return found


@contextmanager
def as_dagster_failures(asset: dg.AssetKey, keys: Sequence[str]) -> Iterator[None]:
    """Lake errors as Dagster means them: what a second attempt cannot mend fails at once, a lost race is retried."""
    what = asset.to_user_string()
    details: dict[str, Any] = {"lake/partitions_asked_for": _shown(keys)} if keys else {}
    try:
        yield
    except OutsideScope as error:
        raise dg.Failure(
            f"{what}: rows outside the partitions of this run ({_shown(keys)}); nothing was committed. {error}",
            metadata=details,
            allow_retries=False,
        ) from error
    except (Conflict, CommitLost, CommitUnknown) as error:
        raise dg.RetryRequested(max_retries=5, seconds_to_wait=2) from error
    except (InvalidInput, NotFound, UnsupportedFeature) as error:
        raise dg.Failure(f"{what}: {error}", metadata=details, allow_retries=False) from error
    except LakeError as error:
        raise dg.Failure(f"{what}: {error}", metadata=details) from error


def column_schema(schema: Schema) -> dg.TableSchema:
    """A table's columns as Dagster shows them."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=each.name,
                type=str(each.type),
                description=each.comment,
                constraints=dg.TableColumnConstraints(nullable=each.nullable),
                tags={"partition": ""} if each.name in schema.partitioning.sources else None,
            )
            for each in schema.fields
        ]
    )


def column_lineage(lineage: Mapping[str, Any], columns: Sequence[str]) -> dg.TableColumnLineage:
    """The declared origin of each column, as Dagster shows it."""
    unchanged = lineage.get("*")
    found = {name: [_dependency(text) for text in several] for name, several in lineage.items() if name != "*"}
    if unchanged:
        found |= {name: [_dependency(f"{unchanged}.{name}")] for name in columns if name not in found}
    return dg.TableColumnLineage(found)


def preview(rows: pa.Table) -> str:
    """A few rows as a Markdown table."""
    rows = rows.select(rows.column_names[:PREVIEW_COLUMNS]).slice(0, PREVIEW_ROWS)

    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    body = [line(list(row.values())) for row in rows.to_pylist()]
    return "\n".join([line(rows.column_names), line(["---"] * rows.num_columns), *body])


def _dependency(text: str) -> dg.TableColumnDep:
    asset, _, column = text.rpartition(".")
    return dg.TableColumnDep(dg.AssetKey.from_user_string(asset), column)


def _properties(to: AssetTable, keys: Sequence[str], origin: Origin) -> dict[str, str]:
    """What the snapshot remembers about its origin."""
    found = {
        "dagster/asset": to.asset.to_user_string(),
        "dagster/run_id": origin.run_id,
        "dagster/backfill": origin.backfill,
        "dagster/partitions": _shown(keys, MAX_KEYS_IN_PROPERTIES),
    }
    return {name: value for name, value in found.items() if value}


def counts_by_key(
    table: Any, of: AssetTable, specs: Mapping[str, Sequence[Spec]], snapshot_id: int | None = None
) -> dict[str, int]:
    """The rows of each Dagster partition that is a stretch of time, from metadata where the table's partitions tell."""
    columns = columns_of(of.partition_by or {})
    return {
        key: table.scan(where=predicate_of({key: several}, columns), snapshot_id=snapshot_id).count()
        for key, several in specs.items()
    }


def _row_counts(table: Any, to: AssetTable, snapshot: Snapshot, specs: Mapping[str, Sequence[Spec]]) -> dict[str, int]:
    """The rows that the snapshot put into each Dagster partition."""
    if has_windows(specs):
        return counts_by_key(table, to, specs, snapshot.id)
    schema: Schema = table.schema
    names = schema.partitioning.names
    types = [to_arrow(schema.field(name).type) for name in names]
    asked = next((tuple(spec) for several in specs.values() for spec in several), ())
    added: dict[tuple[Any, ...], int] = {}
    for change in snapshot.partitions:
        # A snapshot may tell times as numbers; Arrow gives both the same Python value.
        scalars = (pa.scalar(value, type) for value, type in zip(change.values, types, strict=True))
        values = dict(zip(names, (scalar.as_py() for scalar in scalars), strict=True))
        named = tuple(values[name] for name in asked)
        added[named] = added.get(named, 0) + change.rows_added
    return {key: sum(added.get(tuple(spec.values()), 0) for spec in several) for key, several in specs.items()}


def _shown(keys: Sequence[str], at_most: int = 20) -> str:
    """Keys in a message: all of them, or the first and the last and how many."""
    if len(keys) <= at_most:
        return ", ".join(keys)
    return f"{keys[0]} ... {keys[-1]} ({len(keys)} partitions)"
