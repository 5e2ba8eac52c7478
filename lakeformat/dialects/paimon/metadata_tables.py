"""The system tables of Paimon's connectors, `t$files` and its like, with their columns
(`org.apache.paimon.table.system`). Times are the local clock's, as there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.paimon import binary_row
from lakeformat.dialects.paimon import branch as branching
from lakeformat.dialects.paimon import layout, manifest, metadata, scan, tracking, types
from lakeformat.dialects.paimon.inspect import Inspections
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Kind, Scalar, Type

_TIME = pa.timestamp("us")
_SNAPSHOTS = {
    "snapshot_id": "id", "schema_id": "schemaId", "commit_user": "commitUser", "commit_identifier": "commitIdentifier",
    "commit_kind": "commitKind", "commit_time": "timeMillis", "base_manifest_list": "baseManifestList",
    "delta_manifest_list": "deltaManifestList", "changelog_manifest_list": "changelogManifestList",
    "total_record_count": "totalRecordCount", "delta_record_count": "deltaRecordCount",
    "changelog_record_count": "changelogRecordCount", "watermark": "watermark",
}  # fmt: skip
_TEXTS = {"commit_user", "commit_kind", "base_manifest_list", "delta_manifest_list", "changelog_manifest_list"}
_SNAPSHOT_SCHEMA = pa.schema(
    [(n, pa.string() if n in _TEXTS else _TIME if n == "commit_time" else pa.int64()) for n in _SNAPSHOTS]
)
_KEY_RANGES = (
    "partition", "bucket", "file_path", "file_format", "schema_id", "level", "record_count", "file_size_in_bytes",
    "min_key", "max_key", "first_row_id",
)  # fmt: skip
_VECTORS = pa.list_(
    pa.struct([("f0", pa.string()), ("f1", pa.int32()), ("f2", pa.int32()), ("_CARDINALITY", pa.int64())])
)
_PATTERNS = ((r"\.000000$", ""), (r"(\.\d{3})000$", r"\1"), (r"(T\d\d:\d\d):00$", r"\1"))  # LocalDateTime.toString


@dataclass(frozen=True, slots=True)
class MetadataTables(Part[State]):
    """See `dialects.metadata_tables.MetadataTables`."""

    @property
    def readers(self) -> Mapping[str, Callable[[MetadataTables], pa.Table]]:
        return METADATA_TABLES

    @property
    def compacted(self) -> State:
        return replace(self.state, is_compacted=bool(self.state.schema.primary_key))

    @property
    def position_deletes(self) -> None:
        return None

    def snapshots(self) -> pa.Table:
        documents = metadata.read_snapshots(self.reader, metadata.snapshot_ids(self.reader))
        rows = [
            [_local(d[key]) if name == "commit_time" else d.get(key) for name, key in _SNAPSHOTS.items()]
            for d in documents
        ]
        return _table(rows, _SNAPSHOT_SCHEMA)

    def schemas(self) -> pa.Table:
        """Fields, keys and options as the JSON of the schema's file."""
        paths = [metadata.schema_path(id) for id in metadata.schema_ids(self.reader)]
        documents = [json.loads(data) for data in self.reader.read_many(paths) if data is not None]
        rows = [
            [
                d["id"], *(_compact(d.get(key) or empty) for key, empty in _SCHEMA_PARTS), d.get("comment") or None,
                _local(d["timeMillis"]) if "timeMillis" in d else None,
            ]
            for d in documents
        ]  # fmt: skip
        names = ("fields", "partition_keys", "primary_keys", "options", "comment")
        columns = [("schema_id", pa.int64()), *((name, pa.string()) for name in names), ("update_time", _TIME)]
        return _table(rows, pa.schema(columns))

    def table_options(self) -> pa.Table:
        return Inspections(self.reader, self.state).table_options()

    def files(self) -> pa.Table:
        return self._files().drop_columns("first_row_id")

    def file_key_ranges(self) -> pa.Table:
        return self._files().select(list(_KEY_RANGES))

    def manifests(self) -> pa.Table:
        changelog = (self.state.document or {}).get("changelogManifestList")
        listed = manifest.read_metas(self.reader, self.state.document)
        metas = pa.concat_tables([listed, manifest.read_list(self.reader, changelog)])
        kinds = manifest.partition_types(self.state.schema)
        stats = metas["_PARTITION_STATS"].combine_chunks()
        bounds = {
            f"{end}_partition_stats": _joined(
                _cast(binary_row.decode(pc.struct_field(stats, f"_{end.upper()}_VALUES"), kinds), kinds), len(metas)
            )
            for end in ("min", "max")
        }
        return pa.table(
            {
                "file_name": metas["_FILE_NAME"],
                "file_size": metas["_FILE_SIZE"],
                "num_added_files": metas["_NUM_ADDED_FILES"],
                "num_deleted_files": metas["_NUM_DELETED_FILES"],
                "schema_id": metas["_SCHEMA_ID"],
                **bounds,
            }
        )

    def tags(self) -> pa.Table:
        rows = [
            [
                name, d["id"], d["schemaId"], _local(d["timeMillis"]), d.get("totalRecordCount"),
                _created(d.get("tagCreateTime")), _duration(d.get("tagTimeRetained")),
            ]
            for name, d in sorted(metadata.tags(self.reader).items())
        ]  # fmt: skip
        columns = [
            ("tag_name", pa.string()), ("snapshot_id", pa.int64()), ("schema_id", pa.int64()), ("commit_time", _TIME),
            ("record_count", pa.int64()), ("create_time", _TIME), ("time_retained", pa.string()),
        ]  # fmt: skip
        return _table(rows, pa.schema(columns))

    def branches(self) -> pa.Table:
        """The creation time is that of the branch's oldest file."""
        rows = []
        for name in sorted(set(branching.names(self.reader)) - {metadata.MAIN}):
            times = [file.modified_ms for file in self.reader.list(f"{metadata.branch_folder(name)}/")]
            rows.append([name, _local(min(times)) if times else None])
        return _table(rows, pa.schema([("branch_name", pa.string()), ("create_time", _TIME)]))

    def consumers(self) -> pa.Table:
        return Inspections(self.reader, self.state).consumers()

    def partitions(self) -> pa.Table:
        entries = manifest.live_entries(self.reader, self.state.document, self.state.schema)
        codes, values = manifest.partitions(entries, self.state.schema)
        return pa.table({"partition": self._shown(values), **_measures(entries, codes, len(values))})

    def buckets(self) -> pa.Table:
        entries = manifest.live_entries(self.reader, self.state.document, self.state.schema)
        codes, values = manifest.partitions(entries, self.state.schema)
        places = codes.astype(np.int64) << 32 | (np.asarray(entries["_BUCKET"], np.int64) & 0xFFFFFFFF)
        distinct, first, bucket_codes = np.unique(places, return_index=True, return_inverse=True)
        columns = {
            "partition": self._shown(values).take(pa.array(codes[first])),
            "bucket": entries["_BUCKET"].take(pa.array(first)),
        }
        return pa.table({**columns, **_measures(entries, bucket_codes, len(distinct))})

    def table_statistics(self) -> pa.Table:
        name, rows = (self.state.document or {}).get("statistics"), []
        if name:
            d = json.loads(self.reader.read(metadata.statistics_path(name)))
            colstat = json.dumps(d.get("colStats") or {}, indent=2, separators=(",", " : "), ensure_ascii=False)
            rows = [[d["snapshotId"], d["schemaId"], d.get("mergedRecordCount"), d.get("mergedRecordSize"), colstat]]
        names = ("snapshot_id", "schema_id", "mergedRecordCount", "mergedRecordSize")
        return _table(rows, pa.schema([*((n, pa.int64()) for n in names), ("colstat", pa.string())]))

    def aggregation_fields(self) -> pa.Table:
        """One row per column: the values and names of its options `fields.<column>.*`."""
        schema, rows = self.state.schema, []
        for field in schema.fields:
            set_options = {
                key: value
                for key, value in schema.properties.items()
                if (parts := key.split("."))[0] == "fields" and len(parts) > 2 and parts[1] == field.name
            }
            values, keys = (f"[{', '.join(texts)}]" for texts in (set_options.values(), set_options))
            rows.append([field.name, types.sql_name(field.type, field.nullable), values, keys, field.comment])
        names = ("field_name", "field_type", "function", "function_options", "comment")
        return _table(rows, pa.schema([(name, pa.string()) for name in names]))

    def table_indexes(self) -> pa.Table:
        entries = manifest.read_index(self.reader, self.state.document)
        codes, values = manifest.partitions(entries, self.state.schema)
        return pa.table(
            {
                "partition": self._shown(values).take(pa.array(codes)),
                "bucket": entries["_BUCKET"],
                "index_type": entries["_INDEX_TYPE"],
                "file_name": entries["_FILE_NAME"],
                "file_size": entries["_FILE_SIZE"],
                "row_count": entries["_ROW_COUNT"],
                "dv_ranges": entries["_DELETIONS_VECTORS_RANGES"].cast(_VECTORS),
            }
        )

    # --- private ------------------------------------------------------------------------------------------------------

    def _shown(self, values: pa.Table) -> pa.Array:
        """Partitions as text: `{a, b}`."""
        kinds = manifest.partition_types(self.state.schema)
        return _joined(_cast(values.columns if kinds else [], kinds), len(values))

    def _files(self) -> pa.Table:
        live = scan.files(self.reader, self.state).each()
        entries = live.entries
        codes, values = manifest.partitions(entries, self.state.schema)
        located = pc.binary_join_element_wise(f"{self.reader.root}/", live.paths, "")
        external = entries["_EXTERNAL_PATH"].combine_chunks()
        sources = pa.array([source.name for source in manifest.FileSource])
        return pa.table(
            {
                "partition": self._shown(values).take(pa.array(codes)),
                "bucket": entries["_BUCKET"],
                "file_path": pc.coalesce(external, located),
                "file_format": scan.file_formats(entries),
                "schema_id": entries["_SCHEMA_ID"],
                "level": entries["_LEVEL"],
                "record_count": entries["_ROW_COUNT"],
                "file_size_in_bytes": entries["_FILE_SIZE"],
                **self._keys(entries),
                **self._values(entries),
                "min_sequence_number": entries["_MIN_SEQUENCE_NUMBER"],
                "max_sequence_number": entries["_MAX_SEQUENCE_NUMBER"],
                "creation_time": entries["_CREATION_TIME"].cast(pa.timestamp("ms")).cast(_TIME),
                "deleteRowCount": entries["_DELETE_ROW_COUNT"],
                "file_source": sources.take(entries["_FILE_SOURCE"].combine_chunks()),
                "first_row_id": entries["_FIRST_ROW_ID"],
            }
        )

    def _keys(self, entries: pa.Table) -> dict[str, pa.Array]:
        """The first and last key of each file: `[1, a]`; null in tables without a primary key."""
        if not self.state.schema.primary_key:
            return {"min_key": pa.nulls(len(entries), pa.string()), "max_key": pa.nulls(len(entries), pa.string())}
        parts: dict[str, list[pa.Array]] = {"min_key": [], "max_key": []}
        order = [np.zeros(0, np.int64)]
        nothing = pa.nulls(len(entries), pa.list_(pa.string()))
        for schema_id, _, rows in tracking.alike(entries, nothing):
            schema = metadata.schema_at(self.reader, self.state, schema_id)
            kinds = [schema.field(name).type for name in metadata.key_of(schema)]
            for end, texts in parts.items():
                keys = entries[f"_{end.upper()}"].combine_chunks().take(pa.array(rows))
                shown = [
                    _text(column, kind) for column, kind in zip(binary_row.decode(keys, kinds), kinds, strict=True)
                ]
                texts.append(_joined(shown, len(rows), "[", "]"))
            order.append(rows)
        return {end: _restored(texts, order) for end, texts in parts.items()}

    def _values(self, entries: pa.Table) -> dict[str, pa.Array]:
        """The statistics of each file, of the table's columns by name: `{a=1, b=null}`."""
        stats = entries["_VALUE_STATS"].combine_chunks()
        parts: dict[str, list[pa.Array]] = {"null_value_counts": [], "min_value_stats": [], "max_value_stats": []}
        order = [np.zeros(0, np.int64)]
        fields = sorted(self.state.schema.fields, key=lambda field: field.name)
        for schema_id, columns, rows in scan.stat_kinds(entries):
            schema = metadata.schema_at(self.reader, self.state, schema_id)
            present = tracking.file_fields(schema, columns)
            places = {field.id: index for index, field in enumerate(present)}
            plain = [index for index, field in enumerate(present) if isinstance(field.type, Scalar)]
            kinds = [field.type for field in present]
            chosen = stats.take(pa.array(rows))
            counts = pc.struct_field(chosen, "_NULL_COUNTS")
            is_complete = (pc.min(pc.fill_null(pc.list_value_length(counts), 0)).as_py() or 0) >= len(present)
            nothing = pa.nulls(len(rows), pa.string())
            low, high = (
                dict(zip(plain, binary_row.decode(pc.struct_field(chosen, name), kinds, plain), strict=True))
                for name in ("_MIN_VALUES", "_MAX_VALUES")
            )
            of_file = {field.id for field in schema.fields}
            texts: dict[str, list[pa.Array]] = {name: [] for name in parts}
            for field in fields:
                index = places.get(field.id)
                if index is not None:
                    nulls = pc.list_element(counts, index).cast(pa.string()) if is_complete else nothing
                elif field.id not in of_file:  # A column added after the file was written.
                    nulls = entries["_ROW_COUNT"].combine_chunks().take(pa.array(rows)).cast(pa.string())
                else:
                    nulls = nothing
                texts["null_value_counts"].append(nulls)
                for name, bounds in (("min_value_stats", low), ("max_value_stats", high)):
                    texts[name].append(_text(bounds[index], kinds[index]) if index in bounds else nothing)
            for name, shown in texts.items():
                named = [
                    pc.binary_join_element_wise(f"{field.name}=", pc.fill_null(text, "null"), "")
                    for field, text in zip(fields, shown, strict=True)
                ]
                parts[name].append(_joined(named, len(rows)))
            order.append(rows)
        return {name: _restored(texts, order) for name, texts in parts.items()}


METADATA_TABLES: Mapping[str, Callable[[MetadataTables], pa.Table]] = {
    "snapshots": MetadataTables.snapshots,
    "schemas": MetadataTables.schemas,
    "options": MetadataTables.table_options,
    "files": MetadataTables.files,
    "manifests": MetadataTables.manifests,
    "tags": MetadataTables.tags,
    "branches": MetadataTables.branches,
    "consumers": MetadataTables.consumers,
    "partitions": MetadataTables.partitions,
    "buckets": MetadataTables.buckets,
    "statistics": MetadataTables.table_statistics,
    "aggregation_fields": MetadataTables.aggregation_fields,
    "file_key_ranges": MetadataTables.file_key_ranges,
    "table_indexes": MetadataTables.table_indexes,
}
_SCHEMA_PARTS: tuple[tuple[str, Any], ...] = (
    ("fields", []), ("partitionKeys", []), ("primaryKeys", []), ("options", {}),
)  # fmt: skip


def _local(epoch_ms: int) -> int:
    """Microseconds of the local clock."""
    return metadata.local_ms(epoch_ms) * 1000


def _created(parts: Sequence[int] | None) -> Any:
    """The time of a tag's file, whose last part is nanoseconds; parts that are zero may be missing."""
    if parts is None:
        return None
    year, month, day, hour, minute, second, nanos = [*parts, 0, 0][:7]
    return np.datetime64(f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}", "us") + np.timedelta64(
        nanos // 1000, "us"
    )


def _duration(seconds: Any) -> str | None:
    """As Java's Duration: `PT1H30M`."""
    if seconds is None:
        return None
    whole, rest = divmod(round(float(seconds) * 1000), 1000)
    hours, minutes, left = whole // 3600, whole // 60 % 60, whole % 60
    second = f"{left}.{rest:03}".rstrip("0").rstrip(".") if rest else str(left)
    parts = [f"{hours}H" * bool(hours), f"{minutes}M" * bool(minutes), f"{second}S" * bool(left or rest)]
    return f"PT{''.join(parts) or '0S'}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _measures(entries: pa.Table, codes: np.ndarray, count: int) -> dict[str, pa.Array]:
    newest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(newest, codes, np.asarray(pc.fill_null(entries["_CREATION_TIME"], 0), np.int64))

    def sums(values: Any) -> pa.Array:
        totals = np.zeros(count, np.int64)
        np.add.at(totals, codes, values)
        return pa.array(totals)

    return {
        "record_count": sums(np.asarray(entries["_ROW_COUNT"], np.int64)),
        "file_size_in_bytes": sums(np.asarray(entries["_FILE_SIZE"], np.int64)),
        "file_count": sums(np.ones(len(codes), np.int64)),
        "last_update_time": pa.array(newest).cast(pa.timestamp("ms")).cast(_TIME),
    }


def _cast(columns: Sequence[Any], kinds: Sequence[Type]) -> list[pa.Array]:
    """Partition values as SQL casts them to text."""
    texts = []
    for column, kind in zip(columns, kinds, strict=True):
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).dictionary_encode()
        shown = pa.array([layout.sql_text(value, kind) for value in encoded.dictionary.to_pylist()], pa.string())
        texts.append(shown.take(encoded.indices))
    return texts


def _joined(texts: Sequence[pa.Array], count: int, start: str = "{", end: str = "}") -> pa.Array:
    if not texts:
        return pa.repeat(start + end, count)
    inside = pc.binary_join_element_wise(*(pc.fill_null(text, "null") for text in texts), ", ")
    return pc.binary_join_element_wise(start, inside, end, "")


def _text(values: pa.Array, kind: Type) -> pa.Array:
    """Values as Java's `toString` spells Paimon's internal ones: dates and times of day as numbers."""
    match kind:
        case Scalar(Kind.DATE):
            return values.cast(pa.int32()).cast(pa.string())
        case Scalar(Kind.TIME):
            return values.cast(pa.time32("ms")).cast(pa.int32()).cast(pa.string())
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ):
            texts = pc.strftime(values.cast(_TIME), "%Y-%m-%dT%H:%M:%S")
            for pattern, replacement in _PATTERNS:
                texts = pc.replace_substring_regex(texts, pattern, replacement)
            return texts
        case Scalar(Kind.FLOAT | Kind.DOUBLE):
            (texts,) = _cast([values], [kind])
            return texts
        case Scalar(Kind.BINARY | Kind.VARBINARY | Kind.BYTES):
            return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def _restored(parts: Sequence[pa.Array], order: Sequence[np.ndarray]) -> pa.Array:
    """Parts of a column in the order of the entries."""
    if not parts:
        return pa.array([], pa.string())
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
