"""Iceberg metadata as Arrow tables: snapshots, files, manifests, partitions, tags, branches, schemas, options."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.iceberg import single_value
from lakeformat.codec.partition_listing import partition_listing, spec_listing
from lakeformat.dialects.iceberg import manifest, metadata, options, scan, statistics, types
from lakeformat.dialects.iceberg.layout import SMALL, directory
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import TransformKind
from lakeformat.model.schema import Field, Geo, Kind, Scalar
from lakeformat.model.work import DeleteFile

_TIME = pa.timestamp("ms", "UTC")
_SNAPSHOTS = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("parent_id", pa.int64()),
        ("sequence_number", pa.int64()),
        ("schema_id", pa.int64()),
        ("operation", pa.string()),
        ("commit_time", _TIME),
        ("manifest_list", pa.string()),
        ("total_record_count", pa.int64()),
        ("summary", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Inspections(Part[State]):
    """Metadata as tables."""

    def snapshots(self) -> pa.Table:
        """One row per snapshot, also those that nothing refers to, in the order in which they were made."""
        ordered = sorted(metadata.snapshots(self.state).values(), key=lambda s: s.get("sequence-number", 0))
        rows = [
            [
                s["snapshot-id"], s.get("parent-snapshot-id"), s.get("sequence-number"), s.get("schema-id"),
                (s.get("summary") or {}).get("operation"), s["timestamp-ms"], s.get("manifest-list"),
                metadata.to_snapshot(s).total_rows, list((s.get("summary") or {}).items()),
            ]
            for s in ordered
        ]  # fmt: skip
        return _table(rows, _SNAPSHOTS)

    def files(self) -> pa.Table:
        """One row per live data file, in the order of the manifests."""
        entries = scan.files(self.reader, self.state).entries
        return pa.table(
            {
                **_file_columns(entries, self.state),
                "split_offsets": entries["split_offsets"],
                "sort_order_id": entries["sort_order_id"],
                "readable_metrics": metrics(entries, self.state.schema.fields),
            }
        )

    def discrepancies(self) -> pa.Table:
        """One row (`text`) per count of the current snapshot's metadata that differs from what it counts."""
        document = self.state.snapshot_document
        metas, texts = manifest.metas_of(self.reader, document), []
        paths = metas["manifest_path"].to_pylist()
        for meta, entries in zip(metas.to_pylist(), manifest.read_raw(self.reader, paths), strict=True):
            for status in manifest.Status:
                chosen, name = entries.filter(pc.equal(entries["status"], int(status))), status.name.lower()
                counts = {f"{name}_files_count": len(chosen), f"{name}_rows_count": _sum(chosen["record_count"])}
                texts += [
                    f"{meta['manifest_path']}: {count} is {meta[count]} in its list, and it has {actual}"
                    for count, actual in counts.items()
                    if meta[count] not in (None, actual)
                ]
        live = manifest.live_entries(self.reader, self.state)
        summary = (document or {}).get("summary") or {}
        for key, actual in (("total-data-files", len(live)), ("total-records", _sum(live["record_count"]))):
            if key in summary and summary[key] != str(actual):
                texts.append(f"{key} is {summary[key]}, and its files have {actual}")
        return pa.table({"text": pa.array(texts, pa.string())})

    def delete_files(self) -> pa.Table:
        """One row per live delete file, in the order of the manifests."""
        return _files(
            manifest.live_entries(self.reader, self.state, content=manifest.ManifestContent.DELETES), self.state
        )

    def position_deletes(self) -> tuple[list[DeleteFile], pa.Table]:
        """The live position delete files and deletion vectors, and one row for each, in the order of the manifests."""
        live = manifest.live_entries(self.reader, self.state, content=manifest.ManifestContent.DELETES)
        live = live.filter(pc.equal(live["content"], int(manifest.FileContent.POSITION_DELETES)))
        shown = _file_columns(live, self.state)
        columns = {"partition": shown["partition"], "spec_id": shown["spec_id"], "delete_file_path": shown["path"]}
        return scan.all_delete_files(self.reader, self.state, live), pa.table(
            {"file_path": scan.referenced(live), **columns}
        )

    def entries(self) -> pa.Table:
        """One row per entry of the current snapshot's manifests, also of files that it removed."""
        return _entries(
            manifest.read_all(self.reader, self.state, manifest.metas_of(self.reader, self.state.snapshot_document)),
            self.state,
        )

    def all_entries(self) -> pa.Table:
        """One row per entry of every manifest that a snapshot refers to."""
        return _entries(manifest.read_all(self.reader, self.state, self.all_metas()), self.state)

    def all_files(self) -> pa.Table:
        """One row per data or delete file that is live in some snapshot; more if several manifests list it."""
        return _files(self.all_live(), self.state)

    def all_data_files(self) -> pa.Table:
        """The data files among `all_files`."""
        return _files(self.all_live(manifest.ManifestContent.DATA), self.state)

    def all_delete_files(self) -> pa.Table:
        """The delete files among `all_files`."""
        return _files(self.all_live(manifest.ManifestContent.DELETES), self.state)

    def all_manifests(self) -> pa.Table:
        """One row per manifest that a snapshot refers to."""
        return _manifests(self.all_metas())

    def history(self) -> pa.Table:
        """One row each time that a snapshot became the current one, oldest first, and whether it is an ancestor of the
        current one."""
        by_id = metadata.snapshots(self.state)
        led = {snapshot["snapshot-id"] for snapshot in metadata.ancestry(self.state, metadata.current_id(self.state))}
        rows = [
            [entry["timestamp-ms"], entry["snapshot-id"], by_id.get(entry["snapshot-id"], {}).get("parent-snapshot-id"),
             entry["snapshot-id"] in led]
            for entry in self.state.document.get("snapshot-log") or ()
        ]  # fmt: skip
        kinds = [("made_current_at", _TIME), ("snapshot_id", pa.int64()), ("parent_id", pa.int64())]
        return _table(rows, pa.schema([*kinds, ("is_current_ancestor", pa.bool_())]))

    def metadata_log_entries(self) -> pa.Table:
        """One row per earlier metadata file in the log, oldest first."""
        rows = [
            [entry["timestamp-ms"], entry["metadata-file"]] for entry in self.state.document.get("metadata-log") or ()
        ]
        return _table(rows, pa.schema([("timestamp", _TIME), ("file", pa.string())]))

    def refs(self) -> pa.Table:
        """One row per branch or tag, by name."""
        keys = ("snapshot-id", "max-ref-age-ms", "min-snapshots-to-keep", "max-snapshot-age-ms")
        rows = [
            [name, ref["type"].upper(), *(ref.get(key) for key in keys)]
            for name, ref in sorted((self.state.document.get("refs") or {}).items())
        ]
        numbers = ("snapshot_id", "max_reference_age_in_ms", "min_snapshots_to_keep", "max_snapshot_age_in_ms")
        return _table(
            rows, pa.schema([("name", pa.string()), ("type", pa.string()), *((n, pa.int64()) for n in numbers)])
        )

    def manifests(self) -> pa.Table:
        """One row per manifest of the current snapshot."""
        return _manifests(manifest.metas_of(self.reader, self.state.snapshot_document))

    def partitions(self, small_file_bytes: int | None = None) -> pa.Table:
        """One row per spec and partition that has files, with the fields of all specs; see `partition_listing`.
        Measures: `file_count`, `small_file_count` (below `small_file_bytes`, by default 75 % of the target size),
        `row_count`, `deleted_row_count` (positions in delete files, which may be more than the rows in data files),
        `size_bytes` and `last_modified_ms` (epoch milliseconds, of the snapshot that wrote the newest file)."""
        entries = manifest.live_entries(self.reader, self.state)
        deletes = manifest.live_entries(self.reader, self.state, content=manifest.ManifestContent.DELETES)
        columns = manifest.partition_names(entries)
        both = pa.concat_tables([entries.select(columns), deletes.select(columns)])
        every = manifest.partition_codes(both, self.state)
        codes, deleting = np.split(every, [len(entries)])
        # Numbers are given spec by spec; partitions of delete files alone are left out below.
        count = int(every.max(initial=-1)) + 1
        first = np.zeros(count, np.int64)
        first[every[::-1]] = np.arange(len(every) - 1, -1, -1)  # Of several, numpy keeps the last.
        sizes = np.asarray(entries["file_size_in_bytes"], np.int64)
        if small_file_bytes is None:
            target = options.read(self.state.schema.properties).target_file_size
            small_file_bytes = int(target * SMALL)
        times = {i: s["timestamp-ms"] for i, s in metadata.snapshots(self.state).items()}
        by = pa.array(list(times), pa.int64())
        made = pa.array(list(times.values()), pa.int64()).take(pc.index_in(entries["snapshot_id"].combine_chunks(), by))
        newest = np.zeros(count, np.int64)
        np.maximum.at(newest, codes, np.asarray(pc.fill_null(made, 0)))

        def sums(weights: Any) -> pa.Array:
            return pa.array(np.bincount(codes, weights, minlength=count).astype(np.int64))

        listed = both.take(pa.array(first))
        values = {name: listed[f"p{id}"] for id, (name, _) in metadata.partition_fields(self.state).items()}
        measures = {
            "file_count": sums(np.ones(len(codes))),
            "small_file_count": sums(sizes < small_file_bytes),
            "row_count": sums(np.asarray(entries["record_count"])),
            "deleted_row_count": pa.array(
                np.bincount(deleting, np.asarray(deletes["record_count"]), minlength=count).astype(np.int64)
            ),
            "size_bytes": sums(sizes),
            "last_modified_ms": pa.array(newest),
        }
        table = partition_listing(values, listed["_spec"].combine_chunks(), measures)
        return table.filter(pc.greater(table["file_count"], 0))

    def partition_specs(self) -> pa.Table:
        """One row per partition spec, by id, its fields by the names that `partitions` has."""
        names = {id: name for id, (name, _) in metadata.partition_fields(self.state).items()}
        specs = {
            spec.id: [
                (names[field.id], field.source, str(field.transform))
                for field in spec.partitioning.fields
                if field.transform.kind is not TransformKind.VOID
            ]
            for spec in self.state.specs.values()
        }
        return spec_listing(specs, self.state.spec.id)

    def table_statistics(self) -> pa.Table:
        """The registered statistics of columns and partitions; see `statistics.registered`."""
        return statistics.registered(self.state)

    def tags(self) -> pa.Table:
        """One row per tag, by name."""
        by_id = metadata.snapshots(self.state)
        rows = []
        for name, ref in sorted(metadata.tags(self.state).items()):
            snapshot = metadata.to_snapshot(by_id[ref["snapshot-id"]])
            max_age_ms = ref.get("max-ref-age-ms")
            rows.append([name, snapshot.id, snapshot.schema_id, snapshot.timestamp_ms, snapshot.total_rows, max_age_ms])
        return _table(
            rows,
            pa.schema(
                [
                    ("tag_name", pa.string()),
                    ("snapshot_id", pa.int64()),
                    ("schema_id", pa.int64()),
                    ("commit_time", _TIME),
                    ("record_count", pa.int64()),
                    ("retained_ms", pa.int64()),
                ]
            ),
        )

    def branches(self) -> pa.Table:
        """One row per branch, by name."""
        by_id = metadata.snapshots(self.state)
        rows = []
        for name, ref in sorted(metadata.branches(self.state).items()):
            snapshot = metadata.to_snapshot(by_id[ref["snapshot-id"]])
            own = [ref.get(key) for key in ("max-ref-age-ms", "min-snapshots-to-keep", "max-snapshot-age-ms")]
            rows.append([name, snapshot.id, snapshot.timestamp_ms, snapshot.total_rows, *own])
        return _table(
            rows,
            pa.schema(
                [
                    ("branch_name", pa.string()),
                    ("snapshot_id", pa.int64()),
                    ("commit_time", _TIME),
                    ("record_count", pa.int64()),
                    ("retained_ms", pa.int64()),
                    ("kept_snapshots", pa.int64()),
                    ("kept_ms", pa.int64()),
                ]
            ),
        )

    def schemas(self) -> pa.Table:
        """One row per schema, by id; fields as JSON."""
        rows = [
            [s["schema-id"], json.dumps(s["fields"]), s.get("identifier-field-ids") or []]
            for s in sorted(self.state.document["schemas"], key=lambda s: s["schema-id"])
        ]
        kinds = [("schema_id", pa.int64()), ("fields", pa.string()), ("identifier_field_ids", pa.list_(pa.int32()))]
        return _table(rows, pa.schema(kinds))

    def sort_orders(self) -> pa.Table:
        """One row per sort order, by id: its fields as SQL, and whether it is the current one."""
        by_id = {field.id: field for s in self.state.document["schemas"] for field in types.parse_fields(s)}
        by_id |= {field.id: field for field in self.state.schema.fields}
        rows = []
        for id in sorted(order["order-id"] for order in self.state.document["sort-orders"]):
            order = metadata.sort_order(self.state.document, id, tuple(by_id.values()))
            shown = [str(field) for field in order.fields] if order.unknown is None else None
            rows.append([id, shown, id == self.state.schema.sort_order.id])
        kinds = [("order_id", pa.int64()), ("sort_by", pa.list_(pa.string())), ("is_current", pa.bool_())]
        return _table(rows, pa.schema(kinds))

    def table_options(self) -> pa.Table:
        """One row per property, by key."""
        return _table(
            [list(i) for i in sorted(self.state.schema.properties.items())],
            pa.schema([("key", pa.string()), ("value", pa.string())]),
        )

    def consumers(self) -> pa.Table:
        """Raises `UnsupportedFeature`: Iceberg has no consumers."""
        raise UnsupportedFeature(f"{self.reader.root}: Iceberg tables have no consumers; keep a snapshot by a tag")

    def all_metas(self) -> pa.Table:
        """The manifests of all snapshots, each once, as rows of `manifest.META`."""
        snapshots = metadata.snapshots(self.state).values()
        lists = [snapshot["manifest-list"] for snapshot in snapshots if "manifest-list" in snapshot]
        embedded = [
            manifest.metas_of(self.reader, snapshot) for snapshot in snapshots if "manifest-list" not in snapshot
        ]  # In version 1.
        table = pa.concat_tables([manifest.EMPTY_METAS, *embedded, *manifest.read_lists(self.reader, lists)])
        _, first = np.unique(np.asarray(table["manifest_path"], object).astype(str), return_index=True)
        return table.take(pa.array(np.sort(first)))

    def all_live(self, content: manifest.ManifestContent | None = None) -> pa.Table:
        """The entries of files that are live in a snapshot, of one content or all."""
        metas = self.all_metas()
        if content is not None:
            metas = metas.filter(pc.equal(metas["content"], int(content)))
        table = manifest.read_all(self.reader, self.state, manifest.with_live(metas))
        return table.filter(pc.not_equal(table["status"], int(manifest.Status.DELETED)))


INSPECTIONS: dict[str, Callable[..., pa.Table]] = {
    "snapshots": Inspections.snapshots,
    "files": Inspections.files,
    "data_files": Inspections.files,
    "delete_files": Inspections.delete_files,
    "entries": Inspections.entries,
    "all_files": Inspections.all_files,
    "all_data_files": Inspections.all_data_files,
    "all_delete_files": Inspections.all_delete_files,
    "all_entries": Inspections.all_entries,
    "all_manifests": Inspections.all_manifests,
    "history": Inspections.history,
    "metadata_log_entries": Inspections.metadata_log_entries,
    "refs": Inspections.refs,
    "manifests": Inspections.manifests,
    "partitions": Inspections.partitions,
    "partition_specs": Inspections.partition_specs,
    "statistics": Inspections.table_statistics,
    "tags": Inspections.tags,
    "branches": Inspections.branches,
    "schemas": Inspections.schemas,
    "sort_orders": Inspections.sort_orders,
    "options": Inspections.table_options,
    "consumers": Inspections.consumers,
    "discrepancies": Inspections.discrepancies,
}


def _manifests(metas: pa.Table) -> pa.Table:
    return pa.table(
        {
            "path": metas["manifest_path"],
            "size_bytes": metas["manifest_length"],
            "spec_id": metas["partition_spec_id"],
            "content": metas["content"],
            "snapshot_id": metas["added_snapshot_id"],
            "added_files": metas["added_files_count"],
            "existing_files": metas["existing_files_count"],
            "deleted_files": metas["deleted_files_count"],
        }
    )


def _file_columns(entries: pa.Table, base: State) -> dict[str, Any]:
    return {
        "partition": pa.array(_partition_texts(entries, base), pa.string()),
        "path": entries["file_path"],
        "file_format": pc.utf8_lower(entries["file_format"]),
        "spec_id": entries["_spec"],
        "row_count": entries["record_count"],
        "size_bytes": entries["file_size_in_bytes"],
        "sequence_number": entries["sequence_number"],
        "snapshot_id": entries["snapshot_id"],
    }


_COUNTS = {
    "column_size": "column_sizes",
    "value_count": "value_counts",
    "null_value_count": "null_value_counts",
    "nan_value_count": "nan_value_counts",
}
_NO_BOUNDS = (Kind.VARIANT, Kind.UNKNOWN)


def metrics(entries: pa.Table, fields: Sequence[Field]) -> pa.Array:
    """Per field outside of rows, lists and maps the counts and bounds in manifests, as in Java's table of this
    name."""
    columns = {}
    for field in fields:
        if not isinstance(field.type, Scalar):
            continue
        metrics = {name: manifest.look_up(entries[key], field.id) for name, key in _COUNTS.items()}
        if field.type.kind not in _NO_BOUNDS:
            low, high = (manifest.look_up(entries[key], field.id) for key in ("lower_bounds", "upper_bounds"))
            if isinstance(field.type, Geo):
                low, high = single_value.decode_corners(low), single_value.decode_corners(high)
            else:
                low, high = single_value.decode_bounds(low, high, field.type)
            metrics |= {"lower_bound": low, "upper_bound": high}
        columns[field.name] = pa.StructArray.from_arrays(list(metrics.values()), list(metrics))
    if not columns:
        return pa.nulls(len(entries))  # SQL has no rows without fields.
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def _files(entries: pa.Table, base: State) -> pa.Table:
    return pa.table(
        {
            "content": entries["content"],
            **_file_columns(entries, base),
            "equality_ids": entries["equality_ids"],
            "referenced_data_file": entries["referenced_data_file"],
        }
    )


def _entries(entries: pa.Table, base: State) -> pa.Table:
    names = ("file_sequence_number", "sequence_number", "snapshot_id", "status")
    rows = _files(entries, base).drop_columns(["sequence_number", "snapshot_id"])
    for name in names:
        rows = rows.add_column(0, name, entries[name])
    return rows


def _partition_texts(entries: pa.Table, base: State) -> list[str]:
    shown = np.full(len(entries), "", object)
    ids = np.asarray(entries["_spec"])
    for spec_id in np.unique(ids):
        rows = np.flatnonzero(ids == spec_id)
        spec = base.specs[int(spec_id)]
        codes, values = manifest.partitions(entries.take(pa.array(rows)), spec)
        folders = directory(spec)
        shown[rows] = np.array(["/".join(folders.partition(v)) for v in values], object)[codes]
    return list(shown)


def _sum(column: pa.ChunkedArray) -> int:
    return pc.sum(column).as_py() or 0


def _table(rows: list[list[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
