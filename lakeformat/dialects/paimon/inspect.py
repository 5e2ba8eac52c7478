"""Paimon metadata as Arrow tables: snapshots, files, manifests, partitions, tags, branches, schemas, options."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.partition_listing import described, partition_listing, spec_listing
from lakeformat.dialects.paimon import branch as branching
from lakeformat.dialects.paimon import manifest, metadata, options, scan, statistics, tracking, types
from lakeformat.dialects.paimon.layout import directory
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass

_TIME = pa.timestamp("ms", "UTC")
_SNAPSHOTS = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("schema_id", pa.int64()),
        ("commit_user", pa.string()),
        ("commit_identifier", pa.int64()),
        ("commit_kind", pa.string()),
        ("operation", pa.string()),
        ("commit_time", _TIME),
        ("base_manifest_list", pa.string()),
        ("delta_manifest_list", pa.string()),
        ("changelog_manifest_list", pa.string()),
        ("index_manifest", pa.string()),
        ("total_record_count", pa.int64()),
        ("delta_record_count", pa.int64()),
        ("changelog_record_count", pa.int64()),
        ("watermark", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Inspections(Part[State]):
    """Metadata as tables."""

    def snapshots(self) -> pa.Table:
        """One row per snapshot, oldest first."""
        rows = [
            [
                d["id"], d["schemaId"], d["commitUser"], d["commitIdentifier"], d["commitKind"], d.get("operation"),
                d["timeMillis"],
                d["baseManifestList"], d["deltaManifestList"], d.get("changelogManifestList"), d.get("indexManifest"),
                d.get("totalRecordCount"), d.get("deltaRecordCount"), d.get("changelogRecordCount"), d.get("watermark"),
                list((d.get("properties") or {}).items()),
            ]
            for d in metadata.read_snapshots(self.reader, metadata.snapshot_ids(self.reader))
        ]  # fmt: skip
        return _table(rows, _SNAPSHOTS)

    def files(self) -> pa.Table:
        """One row per live data file, in the order of the manifests."""
        live = scan.files(self.reader, self.state).each()
        entries = live.entries
        stats = entries["_VALUE_STATS"].combine_chunks()
        return pa.table(
            {
                "partition": pa.array(_partition_texts(entries, self.state), pa.string()),
                "bucket": entries["_BUCKET"],
                "path": live.paths,
                "file_format": scan.file_formats(entries),
                "schema_id": entries["_SCHEMA_ID"],
                "level": entries["_LEVEL"],
                "row_count": entries["_ROW_COUNT"],
                "deleted_row_count": pa.array(self._deleted_rows(live)),
                "size_bytes": entries["_FILE_SIZE"],
                "null_counts": pc.struct_field(stats, "_NULL_COUNTS"),
                "min_sequence_number": entries["_MIN_SEQUENCE_NUMBER"],
                "max_sequence_number": entries["_MAX_SEQUENCE_NUMBER"],
                "creation_time": entries["_CREATION_TIME"].cast(pa.timestamp("ms")),
                "source": _sources(entries["_FILE_SOURCE"]),
            }
        )

    def manifests(self) -> pa.Table:
        """One row per manifest of the current snapshot, older before newer."""
        metas = manifest.read_metas(self.reader, self.state.document)
        return pa.table(
            {
                "file_name": metas["_FILE_NAME"],
                "size_bytes": metas["_FILE_SIZE"],
                "added_files": metas["_NUM_ADDED_FILES"],
                "deleted_files": metas["_NUM_DELETED_FILES"],
                "schema_id": metas["_SCHEMA_ID"],
                "min_bucket": metas["_MIN_BUCKET"],
                "max_bucket": metas["_MAX_BUCKET"],
            }
        )

    def discrepancies(self) -> pa.Table:
        """One row (`text`) per count of the current snapshot's metadata that differs from what it counts, and per
        snapshot that is missing among the retained ones."""
        ids, document = metadata.snapshot_ids(self.reader), self.state.document
        # As other engines expect: every number from the hint on, but for those that a rollback took out.
        first = metadata.earliest(self.reader, ids[-1])[0] if ids else 0
        retained = [id for id in ids if id >= first]
        after_gaps = [id for before, id in pairwise(retained) if id != before + 1]
        restored = {
            snapshot["id"]
            for snapshot in metadata.read_snapshots(self.reader, after_gaps)
            if metadata.RESTORED_FROM in (snapshot.get("properties") or {})
        }
        texts = [
            f"snapshots {before + 1} to {id - 1} are missing between {before} and {id}"
            for before, id in pairwise(retained)
            if id != before + 1 and id not in restored
        ]
        metas = manifest.read_metas(self.reader, document)
        names = metas["_FILE_NAME"].to_pylist()
        for meta, entries in zip(metas.to_pylist(), manifest.read_entries(self.reader, names), strict=True):
            added = pc.sum(pc.equal(entries["_KIND"], int(manifest.EntryKind.ADD))).as_py() or 0
            counted = {"_NUM_ADDED_FILES": added, "_NUM_DELETED_FILES": len(entries) - added}
            texts += [
                f"manifest/{meta['_FILE_NAME']}: {name} is {meta[name]} in its list, and it has {count}"
                for name, count in counted.items()
                if meta[name] != count
            ]
        total = (document or {}).get("totalRecordCount")
        if total is not None and not texts and not options.read(self.state.schema).data_evolution_enabled:
            live = manifest.live_entries(self.reader, document, self.state.schema)
            rows = pc.sum(live["_ROW_COUNT"]).as_py() or 0
            if rows != total:
                texts.append(f"totalRecordCount is {total}, and the files of the snapshot have {rows} rows")
        return pa.table({"text": pa.array(texts, pa.string())})

    def partitions(self, small_file_bytes: int | None = None) -> pa.Table:
        """One row per partition that has files; see `partition_listing`. Measures: `file_count`, `small_file_count`
        (below `small_file_bytes`, by default compaction's limit), `row_count`, `deleted_row_count` (of these, rows in
        deletion vectors and delete rows), `size_bytes` and `last_modified_ms` (epoch milliseconds, of the newest
        file)."""
        schema = self.state.schema
        whole, beside = manifest.live_entries(self.reader, self.state.document, schema), tracking.NOTHING_BESIDE
        if options.read(schema).data_evolution_enabled:
            whole, beside = tracking.by_row_id(whole, self.reader.root)
        live = scan.Files(whole, schema, beside).each()
        entries = live.entries
        # Column files have rows that other files have too.
        row_counts = np.where(np.arange(len(entries)) < len(whole), np.asarray(entries["_ROW_COUNT"]), 0)
        codes, values = manifest.partitions(entries, schema)
        count = len(values)
        sizes = np.asarray(entries["_FILE_SIZE"], np.int64)
        if small_file_bytes is None:
            small_file_bytes = options.read(schema).small_file_bytes
        small = sizes < small_file_bytes
        created = np.asarray(pc.fill_null(entries["_CREATION_TIME"], 0), np.int64)
        newest = np.zeros(count, np.int64)
        np.maximum.at(newest, codes, created)

        def sums(weights: Any) -> pa.Array:
            return pa.array(np.bincount(codes, weights, minlength=count).astype(np.int64))

        measures = {
            "file_count": sums(np.ones(len(codes))),
            "small_file_count": sums(small),
            "row_count": sums(row_counts),
            "deleted_row_count": sums(self._deleted_rows(live)),
            "size_bytes": sums(sizes),
            "last_modified_ms": pa.array([metadata.epoch_ms(ms) for ms in newest.tolist()], pa.int64()),
        }
        return partition_listing({n: values[n] for n in schema.partitioning.names}, np.zeros(count), measures)

    def partition_specs(self) -> pa.Table:
        """The one partition spec of the table, 0."""
        return spec_listing({0: described(self.state.schema.partitioning)}, 0)

    def tags(self) -> pa.Table:
        """One row per tag, by name."""
        rows = [
            [
                *(name, d["id"], d["schemaId"], d["timeMillis"], d.get("totalRecordCount"), _retained(d)),
                metadata.tag_created_ms(self.reader, name, d),
            ]
            for name, d in sorted(metadata.tags(self.reader).items())
        ]
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
                    ("create_time", _TIME),
                ]
            ),
        )

    def branches(self) -> pa.Table:
        """One row per branch, by name."""
        names = {*branching.names(self.reader), branching.own_name(self.reader) or metadata.MAIN} - {metadata.MAIN}
        return pa.table({"branch_name": pa.array(sorted(names), pa.string())})

    def schemas(self) -> pa.Table:
        """One row per schema, oldest first; fields and options as JSON."""
        read = [metadata.read_schema(self.reader, i) for i in metadata.schema_ids(self.reader)]
        rows = [
            [
                s.id, json.dumps([types.emit_field(f) for f in s.fields]), list(s.partitioning.names),
                list(s.primary_key), json.dumps(dict(s.properties)), s.comment,
            ]
            for s in read
        ]  # fmt: skip
        keys = pa.list_(pa.string())
        return _table(
            rows,
            pa.schema(
                [
                    ("schema_id", pa.int64()),
                    ("fields", pa.string()),
                    ("partition_keys", keys),
                    ("primary_keys", keys),
                    ("options", pa.string()),
                    ("comment", pa.string()),
                ]
            ),
        )

    def sort_orders(self) -> pa.Table:
        """Raises `UnsupportedFeature`: Paimon has no sort orders."""
        raise UnsupportedFeature(f"{self.reader.root}: {metadata.UNSORTED}")

    def table_statistics(self) -> pa.Table:
        """One row per column in the statistics file that the snapshot names."""
        return statistics.Statistics(self.reader, self.state).registered()

    def table_options(self) -> pa.Table:
        """One row per option that is set, by key."""
        return _table(
            [list(i) for i in sorted(self.state.schema.properties.items())],
            pa.schema([("key", pa.string()), ("value", pa.string())]),
        )

    def consumers(self) -> pa.Table:
        """One row per consumer: the next snapshot it will read, which expiry keeps."""
        rows = [list(i) for i in sorted(metadata.consumers(self.reader).items())]
        return _table(rows, pa.schema([("consumer_id", pa.string()), ("next_snapshot_id", pa.int64())]))

    def _deleted_rows(self, live: scan.Files) -> np.ndarray:
        """Per file, the rows in its deletion vector and its delete rows."""
        retracting = np.asarray(pc.fill_null(live.entries["_DELETE_ROW_COUNT"], 0))
        return retracting + scan.deleted_rows(self.reader, self.state, live)


INSPECTIONS: dict[str, Callable[..., pa.Table]] = {
    "snapshots": Inspections.snapshots,
    "files": Inspections.files,
    "manifests": Inspections.manifests,
    "partitions": Inspections.partitions,
    "partition_specs": Inspections.partition_specs,
    "tags": Inspections.tags,
    "branches": Inspections.branches,
    "schemas": Inspections.schemas,
    "sort_orders": Inspections.sort_orders,
    "statistics": Inspections.table_statistics,
    "options": Inspections.table_options,
    "consumers": Inspections.consumers,
    "discrepancies": Inspections.discrepancies,
}


def _partition_texts(entries: pa.Table, base: State) -> Any:
    codes, values = manifest.partitions(entries, base.schema)
    folders = directory(base.schema)
    shown = np.array(["/".join(folders.partition(v)) for v in manifest.partition_values(values, base.schema)], object)
    return shown[codes]


def _sources(codes: pa.ChunkedArray) -> pa.ChunkedArray:
    names = pa.array([s.name.lower() for s in manifest.FileSource])
    return names.take(codes.combine_chunks())


def _retained(document: Any) -> int | None:
    retained = document.get("tagTimeRetained")
    return None if retained is None else round(float(retained) * 1000)


def _table(rows: list[list[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
