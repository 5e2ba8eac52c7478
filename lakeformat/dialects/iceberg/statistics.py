"""Statistics files of a snapshot: sketches of column values (Puffin), and statistics per partition (Parquet)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.figures import Figures, figures_table
from lakeformat.codec.iceberg import puffin, single_value, theta
from lakeformat.dialects.iceberg import manifest, metadata, scan
from lakeformat.dialects.iceberg.manifest import FileContent, Status
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Request, SetStatistics
from lakeformat.model.schema import Field

KEYS = {"table": "statistics", "partition": "partition-statistics"}  # The document's keys for them.
_FIGURES = (  # (field id, name, type, whether version 2 may lack it), from the specification's partition statistics.
    (2, "spec_id", pa.int32(), False),
    (3, "data_record_count", pa.int64(), False),
    (4, "data_file_count", pa.int32(), False),
    (5, "total_data_file_size_in_bytes", pa.int64(), False),
    (6, "position_delete_record_count", pa.int64(), True),
    (7, "position_delete_file_count", pa.int32(), True),
    (8, "equality_delete_record_count", pa.int64(), True),
    (9, "equality_delete_file_count", pa.int32(), True),
    (10, "total_record_count", pa.int64(), True),
    (11, "last_updated_at", pa.int64(), True),
    (12, "last_updated_snapshot_id", pa.int64(), True),
)
_VECTORS = (13, "dv_count", pa.int32(), False)


@dataclass(frozen=True, slots=True)
class Statistics(Part[State]):
    """Statistics files of a snapshot."""

    def comparable(self, values: pa.Array, field: Field) -> pa.Array:
        """Values as the bytes that sketches hash: Iceberg's single values."""
        return single_value.encode(values, field.type)

    def of_columns(self, request: Request, figures: Mapping[int, Figures], row_count: int) -> SetStatistics:
        """The file of sketches by field id, for the base's snapshot."""
        snapshot = self.state.snapshot_document
        assert snapshot is not None
        blobs = [
            puffin.Blob(
                theta.BLOB,
                column.sketch.emit(),
                (id,),
                {"ndv": str(round(column.sketch.estimate))},
                snapshot["snapshot-id"],
                snapshot.get("sequence-number", 0),
            )
            for id, column in figures.items()
        ]
        data, _ = puffin.emit(blobs, {"created-by": "lakeformat"})
        notes = [
            {
                "type": blob.type,
                "snapshot-id": blob.snapshot_id,
                "sequence-number": blob.sequence_number,
                "fields": list(blob.fields),
                "properties": dict(blob.properties),
            }
            for blob in blobs
        ]
        details = {"file-footer-size-in-bytes": puffin.footer_size(data), "blob-metadata": notes}
        return SetStatistics(
            request=request, snapshot_id=snapshot["snapshot-id"], of="table", data=data, details=details
        )

    def of_partitions(self, request: Request) -> SetStatistics:
        """The file of statistics per partition, for the base's snapshot. Raises `InvalidInput` for a table without
        partitions."""
        snapshot = self.state.snapshot_document
        assert snapshot is not None
        fields = _partition_fields(self.state)
        if not fields:
            raise InvalidInput(f"{self.reader.root}: the table has no partitions, so it has no partition statistics")
        entries = manifest.read_all(self.reader, self.state, manifest.metas_of(self.reader, snapshot))
        table = _figures(entries, self.state)
        ids = [(field.metadata or {})[b"PARQUET:field_id"].decode() for field in fields]
        values = [table.column(f"p{id}").combine_chunks() for id in ids]
        partition = pa.StructArray.from_arrays(values, fields=fields)
        version = metadata.format_version(self.state)
        figures = [*_FIGURES, *([_VECTORS] if version >= 3 else [])]
        columns = [partition, *(table.column(name).cast(kind) for _, name, kind, _ in figures)]
        schema = pa.schema(
            [
                _with_id(pa.field("partition", partition.type, False), 1),
                *(
                    _with_id(pa.field(name, kind, optional and (version < 3 or id > 9)), id)
                    for id, name, kind, optional in figures
                ),
            ]
        )
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        return SetStatistics(request=request, snapshot_id=snapshot["snapshot-id"], of="partition", data=data)


def name_of(operation: SetStatistics, unique: str) -> str:
    """The file name that engines use."""
    if operation.of == "table":
        return f"{operation.snapshot_id}-{unique}.stats"
    return f"partition-stats-{operation.snapshot_id}-{unique}.parquet"


def noted(document: Mapping[str, Any], operation: SetStatistics, location: str) -> dict[str, Any]:
    """The document's entries of this kind, with that of the operation's file in place of an earlier one."""
    key = KEYS[operation.of]
    kept = [entry for entry in document.get(key) or () if entry["snapshot-id"] != operation.snapshot_id]
    entry = {
        "snapshot-id": operation.snapshot_id,
        "statistics-path": location,
        "file-size-in-bytes": len(operation.data),
        **operation.details,
    }
    return {key: [*kept, entry]}


def registered(base: State) -> pa.Table:
    """One row per column or partition statistics file of a snapshot: `snapshot_id`, `of` ("table" or "partition"),
    `column` (null for a dropped column), `distinct_values` (an estimate), `path`, `size_bytes`."""
    names = {f.id: f.name for f in base.schema.fields}
    rows: list[tuple[Any, ...]] = []
    for of, key in KEYS.items():
        for entry in base.document.get(key) or ():
            rest = (entry["statistics-path"], entry.get("file-size-in-bytes"))
            if of == "partition":
                rows.append((entry["snapshot-id"], of, None, None, *rest))
            for blob in entry.get("blob-metadata") or () if of == "table" else ():
                (id, *_) = blob.get("fields") or (-1,)
                count = (blob.get("properties") or {}).get("ndv")
                rows.append((entry["snapshot-id"], of, names.get(id), None if count is None else int(count), *rest))
    return figures_table(rows)


# --- private ----------------------------------------------------------------------------------------------------------


def _partition_fields(base: State) -> list[pa.Field]:
    """The fields of all specs as one struct, by id; each with its newest name (Partitioning.partitionType)."""
    united = metadata.partition_fields(base)
    return [_with_id(pa.field(name, to_arrow(kind)), id) for id, (name, kind) in united.items()]


def _figures(entries: pa.Table, base: State) -> pa.Table:
    """Sums by spec and partition, in the order of the partitions."""
    content, status = np.asarray(entries["content"]), np.asarray(entries["status"])
    live, rows = status != int(Status.DELETED), np.asarray(entries["record_count"])
    is_data, is_position, is_equality = (live & (content == kind) for kind in FileContent)
    vectors = scan.is_vector(entries) & live
    times = {i: s["timestamp-ms"] for i, s in metadata.snapshots(base).items()}
    known = pa.array(list(times), pa.int64())
    times_of = pa.array(list(times.values()), pa.int64()).take(
        pc.index_in(entries["snapshot_id"].combine_chunks(), known)
    )
    measures = {
        "data_record_count": np.where(is_data, rows, 0),
        "data_file_count": is_data,
        "total_data_file_size_in_bytes": np.where(is_data, np.asarray(entries["file_size_in_bytes"]), 0),
        "position_delete_record_count": np.where(is_position, rows, 0),
        "position_delete_file_count": is_position & ~vectors,
        "equality_delete_record_count": np.where(is_equality, rows, 0),
        "equality_delete_file_count": is_equality,
        "dv_count": vectors,
    }
    ids = sorted({id for spec in base.specs.values() for id in spec.field_ids})
    partition = {f"p{id}": entries[f"p{id}"] for id in ids}
    figures = pa.table(
        {
            **partition,
            "spec_id": entries["_spec"],
            **{name: pa.array(values.astype(np.int64)) for name, values in measures.items()},
            "made": times_of,
            "snapshot": pc.if_else(times_of.is_valid(), entries["snapshot_id"].combine_chunks(), None),
        }
    )
    keys = [*partition, "spec_id"]
    figures = figures.sort_by([("made", "ascending")])  # The last row of a group is then its newest.
    sums = figures.group_by(keys, use_threads=False).aggregate(
        [*((name, "sum") for name in measures), ("made", "max"), ("snapshot", "last")]
    )
    renamed = {f"{name}_sum": name for name in measures}
    renamed |= {"made_max": "last_updated_at", "snapshot_last": "last_updated_snapshot_id"}
    sums = sums.rename_columns([renamed.get(name, name) for name in sums.column_names])
    sums = sums.append_column("total_record_count", pa.nulls(len(sums), pa.int64()))
    return sums.sort_by([(name, "ascending") for name in keys])


def _with_id(field: pa.Field, id: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(id)})
