"""The metadata tables of Iceberg's Spark connector, `t.files` and its like, with their columns
(`org.apache.iceberg.MetadataTableType`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.iceberg import single_value
from lakeformat.dialects.iceberg import layout, manifest, metadata, scan
from lakeformat.dialects.iceberg.inspect import Inspections, metrics
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field, ListOf, MapOf, Row, Scalar
from lakeformat.model.work import DeleteFile

_TIME = pa.timestamp("us", "UTC")
_MAPS = {
    "column_sizes": pa.int64(), "value_counts": pa.int64(), "null_value_counts": pa.int64(),
    "nan_value_counts": pa.int64(), "lower_bounds": pa.binary(), "upper_bounds": pa.binary(),
}  # fmt: skip
_AFTER_MAPS = (
    "key_metadata", "split_offsets", "equality_ids", "sort_order_id", "first_row_id", "referenced_data_file",
    "content_offset", "content_size_in_bytes",
)  # fmt: skip
_ENTRY = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_FLAGS, _ENDS = ("contains_null", "contains_nan"), ("lower_bound", "upper_bound")
_DELETED_ROWS = ("position_delete", "equality_delete")


@dataclass(frozen=True, slots=True)
class MetadataTables(Part[State]):
    """See `dialects.metadata_tables.MetadataTables`."""

    @property
    def readers(self) -> Mapping[str, Callable[[MetadataTables], pa.Table]]:
        return METADATA_TABLES

    @property
    def compacted(self) -> State:
        return self.state

    def files(self) -> pa.Table:
        return self._files(self._live())

    def data_files(self) -> pa.Table:
        return self._files(self._live(manifest.ManifestContent.DATA))

    def delete_files(self) -> pa.Table:
        return self._files(self._live(manifest.ManifestContent.DELETES))

    def entries(self) -> pa.Table:
        return self._entries(manifest.metas_of(self.reader, self.state.snapshot_document))

    def all_files(self) -> pa.Table:
        return self._files(self._inspected.all_live())

    def all_data_files(self) -> pa.Table:
        return self._files(self._inspected.all_live(manifest.ManifestContent.DATA))

    def all_delete_files(self) -> pa.Table:
        return self._files(self._inspected.all_live(manifest.ManifestContent.DELETES))

    def all_entries(self) -> pa.Table:
        return self._entries(self._inspected.all_metas())

    def manifests(self) -> pa.Table:
        return pa.table(self._manifests(manifest.metas_of(self.reader, self.state.snapshot_document)))

    def all_manifests(self) -> pa.Table:
        """One row for each snapshot and manifest that it lists."""
        snapshots = list(metadata.snapshots(self.state).values())
        lists = [manifest.metas_of(self.reader, snapshot) for snapshot in snapshots]
        metas = pa.concat_tables([manifest.EMPTY_METAS, *lists])
        ids = np.repeat(np.array([s["snapshot-id"] for s in snapshots], np.int64), [len(rows) for rows in lists])
        return pa.table(
            {**self._manifests(metas), "reference_snapshot_id": pa.array(ids), "key_metadata": metas["key_metadata"]}
        )

    def partitions(self) -> pa.Table:
        """One row per spec and partition that has data files or delete files."""
        entries = self._live()
        codes = manifest.partition_codes(entries, self.state)
        _, first = np.unique(codes, return_index=True)
        count, content = len(first), np.asarray(entries["content"])
        is_data = content == int(manifest.FileContent.DATA)
        snapshots = metadata.snapshots(self.state)
        ids = pa.array(list(snapshots), pa.int64())
        times = pa.array([s["timestamp-ms"] for s in snapshots.values()], pa.int64())
        committed = times.take(pc.index_in(entries["snapshot_id"].combine_chunks(), ids))
        by_time = np.lexsort((np.asarray(pc.fill_null(committed, -1)), codes))
        newest = by_time[np.searchsorted(codes[by_time], np.arange(count), "right") - 1] if len(entries) else by_time

        def sums(name: str | None, chosen: np.ndarray) -> pa.Array:
            totals = np.zeros(count, np.int32 if name is None else np.int64)
            np.add.at(totals, codes[chosen], 1 if name is None else np.asarray(entries[name])[chosen])
            return pa.array(totals)

        measures = {
            "record_count": sums("record_count", is_data),
            "file_count": sums(None, is_data),
            "total_data_file_size_in_bytes": sums("file_size_in_bytes", is_data),
        }
        for kind, name in zip(("POSITION_DELETES", "EQUALITY_DELETES"), _DELETED_ROWS, strict=True):
            chosen = content == int(manifest.FileContent[kind])
            measures |= {f"{name}_record_count": sums("record_count", chosen), f"{name}_file_count": sums(None, chosen)}
        partition = self._partition(entries)
        shown: dict[str, Any] = {**partition, "spec_id": entries["_spec"]} if partition else {}
        table = pa.table({name: column.take(pa.array(first)) for name, column in shown.items()} | measures)
        updated = committed.take(pa.array(newest)).cast(pa.timestamp("ms", "UTC")).cast(_TIME)
        table = table.append_column("last_updated_at", updated)
        return table.append_column("last_updated_snapshot_id", entries["snapshot_id"].take(pa.array(newest)))

    def snapshots(self) -> pa.Table:
        table = self._inspected.snapshots()
        columns = {"committed_at": table["commit_time"].cast(_TIME)}
        kept = ("snapshot_id", "parent_id", "operation", "manifest_list", "summary")
        # Java keeps the operation apart from the summary.
        rows = [[pair for pair in row or () if pair[0] != "operation"] for row in table["summary"].to_pylist()]
        summaries = pa.array(rows, table.schema.field("summary").type)
        return pa.table({**columns, **{name: table[name] for name in kept}, "summary": summaries})

    def history(self) -> pa.Table:
        table = self._inspected.history()
        return table.set_column(0, "made_current_at", table["made_current_at"].cast(_TIME))

    def refs(self) -> pa.Table:
        table = self._inspected.refs()
        index = table.column_names.index("min_snapshots_to_keep")
        return table.set_column(index, "min_snapshots_to_keep", table["min_snapshots_to_keep"].cast(pa.int32()))

    def metadata_log_entries(self) -> pa.Table:
        """One row per metadata file of the log, and the current one, with the snapshot that was current at its time."""
        document, by_id = self.state.document, metadata.snapshots(self.state)
        log = document.get("snapshot-log") or ()
        times, ids = [entry["timestamp-ms"] for entry in log], [entry["snapshot-id"] for entry in log]
        files = [(entry["timestamp-ms"], entry["metadata-file"]) for entry in document.get("metadata-log") or ()]
        rows = []
        for time, file in (*files, (document["last-updated-ms"], (self.state.whole or self.state).location)):
            index = bisect_right(times, time)
            snapshot_id = ids[index - 1] if index else None
            snapshot: Mapping[str, Any] = by_id.get(snapshot_id, {}) if snapshot_id is not None else {}
            numbers = (snapshot.get(key) for key in ("schema-id", "sequence-number"))
            rows.append((time * 1000, file, snapshot_id, *numbers))
        kinds = [("timestamp", _TIME), ("file", pa.string()), ("latest_snapshot_id", pa.int64())]
        kinds += [("latest_schema_id", pa.int32()), ("latest_sequence_number", pa.int64())]
        columns = list(zip(*rows, strict=True))
        return pa.table({name: pa.array(c, kind) for c, (name, kind) in zip(columns, kinds, strict=True)})

    @property
    def position_deletes(self) -> tuple[list[DeleteFile], pa.Table]:
        live = self._live(manifest.ManifestContent.DELETES)
        live = live.filter(pc.equal(live["content"], int(manifest.FileContent.POSITION_DELETES)))
        row = pa.struct([pa.field(field.name, to_arrow(field.type)) for field in self.state.schema.fields])
        columns = {
            "file_path": scan.referenced(live),
            "row": pa.nulls(len(live), row),
            **self._partition(live),
            "spec_id": live["_spec"],
            "delete_file_path": live["file_path"],
        }
        if metadata.format_version(self.state) >= 3:
            columns |= {name: live[name] for name in ("content_offset", "content_size_in_bytes")}
        return scan.all_delete_files(self.reader, self.state, live), pa.table(columns)

    # --- private ------------------------------------------------------------------------------------------------------

    @property
    def _inspected(self) -> Inspections:
        return Inspections(self.reader, self.state)

    def _live(self, content: manifest.ManifestContent | None = None) -> pa.Table:
        metas = manifest.with_live(manifest.metas_of(self.reader, self.state.snapshot_document))
        if content is not None:
            metas = metas.filter(pc.equal(metas["content"], int(content)))
        entries = manifest.read_all(self.reader, self.state, metas)
        return entries.filter(pc.not_equal(entries["status"], int(manifest.Status.DELETED)))

    def _entries(self, metas: pa.Table) -> pa.Table:
        entries = manifest.read_all(self.reader, self.state, metas)
        file = self._file(entries)
        columns: dict[str, Any] = {name: entries[name] for name in _ENTRY}
        columns["data_file"] = pa.StructArray.from_arrays([_whole(column) for column in file.values()], list(file))
        return pa.table({**columns, "readable_metrics": self._metrics(entries)})

    def _files(self, entries: pa.Table) -> pa.Table:
        return pa.table({**self._file(entries), "readable_metrics": self._metrics(entries)})

    def _file(self, entries: pa.Table) -> dict[str, Any]:
        return {
            "content": entries["content"],
            "file_path": entries["file_path"],
            "file_format": pc.utf8_upper(entries["file_format"]),
            "spec_id": entries["_spec"].cast(pa.int32()),
            **self._partition(entries),
            "record_count": entries["record_count"],
            "file_size_in_bytes": entries["file_size_in_bytes"],
            **{name: _map(entries[name], kind) for name, kind in _MAPS.items()},
            **{name: entries[name] for name in _AFTER_MAPS},
        }

    def _partition(self, entries: pa.Table) -> dict[str, pa.Array]:
        """The partition of each, a struct of the fields of all specs; nothing for an unpartitioned table."""
        fields = metadata.partition_fields(self.state)
        if not fields:
            return {}
        columns = [_whole(entries[f"p{id}"]).cast(to_arrow(kind)) for id, (_, kind) in fields.items()]
        return {"partition": pa.StructArray.from_arrays(columns, [name for name, _ in fields.values()])}

    def _metrics(self, entries: pa.Table) -> pa.Array:
        return metrics(entries, sorted(_leaves(self.state.schema.fields), key=lambda field: field.name))

    def _manifests(self, metas: pa.Table) -> dict[str, Any]:
        is_data = pc.equal(metas["content"], int(manifest.ManifestContent.DATA))
        counts = {
            f"{verb}_{content}_files_count": pc.if_else(
                chosen, pc.fill_null(metas[f"{verb}_files_count"], 0), pa.scalar(0, pa.int32())
            )
            for content, chosen in (("data", is_data), ("delete", pc.invert(is_data)))
            for verb in ("added", "existing", "deleted")
        }
        return {
            "content": metas["content"],
            "path": metas["manifest_path"],
            "length": metas["manifest_length"],
            "partition_spec_id": metas["partition_spec_id"],
            "added_snapshot_id": metas["added_snapshot_id"],
            **counts,
            "partition_summaries": self._summaries(metas),
        }

    def _summaries(self, metas: pa.Table) -> pa.Array:
        """The summaries of each manifest's partition fields, bounds as text."""
        lists = _whole(metas["partitions"])
        flat, owners = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists), np.int64)
        offsets = _offsets(lists)
        indexes = np.arange(len(flat)) - offsets[owners]  # Of the field in its spec.
        spec_of = np.asarray(metas["partition_spec_id"])[owners]
        texts: dict[str, pa.Array] = {}
        for end in _ENDS:
            bounds, shown, order = pc.struct_field(flat, end), [], [np.zeros(0, np.int64)]
            for spec in self.state.specs.values():
                for index, (field, kind) in enumerate(zip(spec.partitioning.fields, spec.types, strict=True)):
                    rows = np.flatnonzero((spec_of == spec.id) & (indexes == index))
                    values = single_value.decode(bounds.take(pa.array(rows)), kind)
                    if pa.types.is_timestamp(values.type):
                        values = values.cast(pa.int64())
                    encoded = values.dictionary_encode()
                    spelt = [
                        layout.partition_text(value, field.transform.kind, kind)
                        for value in encoded.dictionary.to_pylist()
                    ]
                    shown.append(pa.array(spelt, pa.string()).take(encoded.indices))
                    order.append(rows)
            places = np.argsort(np.concatenate(order), kind="stable")
            texts[end] = pa.concat_arrays([pa.array([], pa.string()), *shown]).take(pa.array(places))
        flags = [pc.struct_field(flat, name) for name in _FLAGS]
        items = pa.StructArray.from_arrays([*flags, *texts.values()], [*_FLAGS, *_ENDS])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


METADATA_TABLES: Mapping[str, Callable[[MetadataTables], pa.Table]] = {
    "files": MetadataTables.files,
    "data_files": MetadataTables.data_files,
    "delete_files": MetadataTables.delete_files,
    "entries": MetadataTables.entries,
    "manifests": MetadataTables.manifests,
    "partitions": MetadataTables.partitions,
    "snapshots": MetadataTables.snapshots,
    "history": MetadataTables.history,
    "refs": MetadataTables.refs,
    "metadata_log_entries": MetadataTables.metadata_log_entries,
    "all_files": MetadataTables.all_files,
    "all_data_files": MetadataTables.all_data_files,
    "all_delete_files": MetadataTables.all_delete_files,
    "all_entries": MetadataTables.all_entries,
    "all_manifests": MetadataTables.all_manifests,
}


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _map(column: Any, kind: pa.DataType) -> pa.Array:
    """Pairs of field ids and values as a map."""
    lists = _whole(column)
    offsets = pa.array(_offsets(lists), pa.int32(), mask=np.append(np.asarray(lists.is_null()), False))
    pairs = pc.list_flatten(lists)
    keys, items = (pc.struct_field(pairs, name) for name in ("key", "value"))
    return pa.MapArray.from_arrays(offsets, keys, items.cast(kind))


def _offsets(lists: pa.Array) -> np.ndarray:
    """Where each list begins among the elements of all, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64))])


def _leaves(fields: Sequence[Field], above: str = "") -> Iterator[Field]:
    """The columns and parts of columns that are no collections, under their whole names."""
    for field in fields:
        name = above + field.name
        match field.type:
            case Scalar():
                yield replace(field, name=name)
            case Row(parts):
                yield from _leaves(parts, f"{name}.")
            case ListOf(element):
                yield from _leaves([replace(element, name="element")], f"{name}.")
            case MapOf(key, value):
                yield from _leaves([replace(key, name="key"), replace(value, name="value")], f"{name}.")
