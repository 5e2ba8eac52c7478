"""What a table publishes to its Iceberg mirror: the files whose rows need no merging, and their metadata.

`metadata.iceberg.*`; which files are shown is Paimon's own rule (IcebergCommitCallback.shouldAddFileToIceberg), from
the first snapshot on: all files of an append table; of a table with a primary key those above level 0 where deletion
vectors come along, else those of the highest level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.dialect import FOLLOWED, Mirror, Published, PublishedFiles, ShownIn
from lakeformat.dialects.paimon import compaction, layout, manifest, metadata, options, scan, types
from lakeformat.dialects.paimon.branch import own_name
from lakeformat.dialects.paimon.layout import POSTPONED_BUCKET
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import OperationKind
from lakeformat.model.schema import Field, Kind, Scalar, Schema, rebuild, scalar
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import RewriteTask
from lakeformat.storage.store import Reader

_REST = "metadata.iceberg.rest."


def mirror(schema: Schema, root: str) -> Mirror | None:
    """The mirror of the table at `root`; None if it has none."""
    table_options = options.read(schema)
    storage = table_options.metadata_iceberg_storage
    if storage == "disabled":
        return None
    inside = table_options.metadata_iceberg_storage_location or (
        "table-location" if storage == "table-location" else "catalog-location"
    )
    version = table_options.metadata_iceberg_format_version
    shown_in = _shown_in(schema, root) if storage == "rest-catalog" else None
    if inside == "table-location":
        return Mirror(root, version, shown_in)
    above, _, table = root.rpartition("/")
    warehouse, _, database = above.rpartition("/")
    if not database.endswith(".db") or not warehouse:
        raise InvalidInput(
            f"{root}: metadata.iceberg.storage={storage} needs a table in a warehouse, in a folder <database>.db; set "
            "metadata.iceberg.storage-location to 'table-location'"
        )
    return Mirror(f"{warehouse}/iceberg/{database.removesuffix('.db')}/{table}", version, shown_in)


def _shown_in(schema: Schema, root: str) -> ShownIn:
    """The catalog in `metadata.iceberg.rest.*`, and the name there: the table's own unless `metadata.iceberg.database`
    and `.table` give another."""
    catalog_options = {
        key.removeprefix(_REST): value for key, value in schema.properties.items() if key.startswith(_REST)
    }
    address = catalog_options.pop("uri")
    above, _, table = root.rpartition("/")
    database = schema.properties.get("metadata.iceberg.database") or above.rpartition("/")[2].removesuffix(".db")
    table = schema.properties.get("metadata.iceberg.table") or table
    return ShownIn(address, f"{database}.{table}", tuple(sorted(catalog_options.items())))


@dataclass(frozen=True, slots=True)
class Mirroring(Part[State]):
    """The Iceberg metadata that a table may keep beside its own."""

    def mirror(self) -> Mirror | None:
        """The mirror; None if the table has none. A mirror shows the main branch only."""
        if options.read(self.state.schema).metadata_iceberg_storage == "disabled" or own_name(self.reader) is not None:
            return None
        return mirror(self.state.schema, self.reader.root)

    def published(self, earlier: Snapshot | None, schema_id: int) -> Published:
        """What the view publishes to a mirror that shows the snapshot `earlier` and has the schemas up to
        `schema_id`."""
        metadata.require_readable(self.state, self.reader.root)
        schema, document = self.state.schema, self.state.document
        kept_in = mirror(schema, self.reader.root)
        assert kept_in is not None, self.reader.root
        assert document is not None, self.reader.root
        metadata.require_writable(schema, self.reader.root)
        ids = metadata.snapshot_ids(self.reader)
        wanted = [] if earlier is None else [id for id in ids if earlier.id <= id < self.state.version]
        documents = {snapshot["id"]: snapshot for snapshot in metadata.read_snapshots(self.reader, wanted)} | {
            self.state.version: document
        }
        tags = {name: tag["id"] for name, tag in metadata.tags(self.reader).items()}
        since = _since(earlier, documents, self.state.version)
        between = None if since is None else _between(documents, since, self.state.version)
        if between is None:
            added, removed = manifest.live_entries(self.reader, document, schema), None
        else:
            tables = [
                table
                for snapshot in between
                for table in manifest.read_all(
                    self.reader, manifest.read_list(self.reader, snapshot["deltaManifestList"], snapshot)
                )
            ]
            added, gone = manifest.fold(tables)
            # An upgraded file is removed and added under the same name.
            removed = _locations(self.reader, scan.paths(gone, schema))
        index = document.get("indexManifest")
        same_index = between is not None and since is not None and index == documents[since].get("indexManifest")
        kind = OperationKind.OVERWRITE
        if between and not schema.primary_key and all(snapshot["commitKind"] == "COMPACT" for snapshot in between):
            kind = OperationKind.COMPACT
        return Published(
            location=_spelled(self.reader.root),
            format_version=kept_in.format_version,
            snapshot=metadata.to_snapshot(document),
            identity=document["deltaManifestList"],
            kind=kind,
            schemas=tuple(
                _published_schema(schema if id == schema.id else metadata.schema_at(self.reader, self.state, id))
                for id in metadata.schema_ids(self.reader)
                if schema_id < id <= schema.id or since is None
            ),
            schema=_published_schema(schema),
            properties=_properties(schema),
            kept=frozenset({*ids, self.state.version, *tags.values()}),
            tags=tags,
            since=since,
            added=self._files(added.filter(_shown(added, schema))),
            removed=removed,
            vectors=None if same_index or not options.read(schema).shows_vectors else self._vectors(),
        )

    def shown(self) -> State:
        """The table as if its mirror were in its own folder, without deletion vectors that Iceberg cannot represent and
        with Parquet files, once `unshown` is done. Raises `UnsupportedFeature`."""
        table_options = options.read(self.state.schema)
        if there := metadata.branches(self.reader):
            raise UnsupportedFeature(
                f"{self.reader.root}: branch {there[0].removeprefix('branch/branch-')[:-1]!r} would be lost: "
                "fast_forward to it, or delete_branch, first"
            )
        properties = {
            "metadata.iceberg.storage": "table-location",
            "metadata.iceberg.storage-location": "table-location",
            "file.format": "parquet",
        }
        if table_options.has_vectors:
            properties |= {"deletion-vectors.bitmap64": "true", "metadata.iceberg.format-version": "3"}
        schema = replace(self.state.schema, properties={**self.state.schema.properties, **properties})
        metadata.require_writable(schema, self.reader.root)
        return replace(self.state, schema=schema)

    def unshown(self) -> list[RewriteTask]:
        """What must be rewritten before Iceberg can show all rows: rows that are merged when they are read; in append
        tables files of other formats, and files with deleted rows."""
        metadata.require_readable(self.state, self.reader.root)
        entries = manifest.live_entries(self.reader, self.state.document, self.state.schema)
        if pc.any(pc.equal(entries["_BUCKET"], POSTPONED_BUCKET), min_count=0).as_py():
            raise UnsupportedFeature(
                f"{self.reader.root}: rows lie in postponed buckets, where no reader sees them yet; compact() it "
                "first, so that they are not lost"
            )
        if self.state.schema.primary_key:
            return compaction.Compaction(self.reader, self.state).tasks(True)
        data_files = scan.files(self.reader, self.state)
        fields, write = layout.rewriting(self.state, self.reader)
        write = replace(write, encoding=replace(write.encoding, file_format="parquet"))
        tasks = scan.tasks(self.reader, self.state, data_files, fields, alone=True)
        return [RewriteTask((task,), write) for task in tasks if any(task.deletes) or task.file_format != "parquet"]

    def _files(self, entries: pa.Table) -> tuple[PublishedFiles, ...]:
        """Data files, in groups of one schema."""
        formats = scan.file_formats(entries)
        if pc.any(pc.fill_null(pc.not_equal(formats, "parquet"), True), min_count=0).as_py():
            raise UnsupportedFeature(
                f"{self.reader.root}: metadata.iceberg.storage: some files are not Parquet files, which Iceberg could "
                "not read; write them anew (compact(full=True))"
            )
        files = scan.Files(entries, self.state.schema)
        ids = {field.name: field.id for field in self.state.schema.fields}
        groups = []
        for rows, bounds in scan.Pruning(self.reader, self.state).bounds(files, ids) if len(entries) else ():
            some = files.take(rows)
            columns = {
                "path": _locations(self.reader, some.paths),
                "row_count": some.entries["_ROW_COUNT"],
                "size_bytes": some.entries["_FILE_SIZE"],
            }
            table = pa.table({**columns, **_partitions(some.entries, self.state.schema)})
            groups.append(PublishedFiles(table, {ids[name]: columns for name, columns in bounds.items()}))
        return tuple(groups)

    def _vectors(self) -> PublishedFiles:
        """All deletion vectors."""
        index = manifest.read_index(self.reader, self.state.document)
        vectors = manifest.vectors(index)
        if vectors["cardinality"].null_count:
            raise UnsupportedFeature(
                f"{self.reader.root}: metadata.iceberg.storage: deletion vectors without a cardinality, "
                "which Iceberg needs; compact the table"
            )
        indexes = vectors["entry"]
        of = pa.table(
            {
                "_PARTITION": index["_PARTITION"].take(indexes),
                "_BUCKET": index["_BUCKET"].take(indexes),
                "_FILE_NAME": vectors["of"],
                "_EXTERNAL_PATH": pa.nulls(len(indexes), pa.string()),
            }
        )
        files = _locations(self.reader, pa.array(manifest.index_paths(index), pa.string()))
        columns = {
            "path": files.take(indexes),
            "row_count": vectors["cardinality"],
            "size_bytes": index["_FILE_SIZE"].take(indexes),
            "of": _locations(self.reader, scan.paths(of, self.state.schema)),
            "offset": vectors["offset"],
            "length": vectors["length"],
        }
        return PublishedFiles(pa.table({**columns, **_partitions(of, self.state.schema)}), {})


# --- private ----------------------------------------------------------------------------------------------------------


def _since(published: Snapshot | None, documents: Mapping[int, Mapping[str, Any]], version: int) -> int | None:
    """The snapshot from which the mirror continues; None if it shows one that is not part of this history."""
    if published is None or published.id > version:
        return None
    said, there = published.properties.get(FOLLOWED), documents.get(published.id)
    if said is not None and there is not None and there["deltaManifestList"] != said:
        return None  # Other engines reuse numbers after a rollback.
    return published.id


def _between(documents: Mapping[int, Mapping[str, Any]], since: int, version: int) -> list[Mapping[str, Any]] | None:
    """The snapshots after `since`, oldest first, if their deltas say how each came from the one before."""
    if not documents.keys() >= set(range(since, version + 1)):
        return None
    between = [documents[id] for id in range(since + 1, version + 1)]
    restores = any(metadata.RESTORED_FROM in (snapshot.get("properties") or {}) for snapshot in between)
    return None if restores else between


def _shown(entries: pa.Table, schema: Schema) -> pa.Array:
    """Which files have only rows that are the table's as they are."""
    if not schema.primary_key:
        return pa.array(np.ones(len(entries), bool))
    least = 1 if options.read(schema).shows_vectors else options.read(schema).level_count - 1
    at = pc.and_(pc.greater_equal(entries["_LEVEL"], least), pc.not_equal(entries["_BUCKET"], POSTPONED_BUCKET))
    return at.combine_chunks()


def _locations(reader: Reader, paths: pa.Array) -> pa.Array:
    return pa.array([_spelled(reader.location(path)) for path in paths.to_pylist()], pa.string())


def _spelled(uri: str) -> str:
    """As Paimon's Java engines spell it: they compare listed files by text."""
    return f"file:{uri.removeprefix('file://')}" if uri.startswith("file:///") else uri


def _partitions(entries: pa.Table, schema: Schema) -> dict[str, pa.ChunkedArray]:
    if not schema.partitioning:
        return {}
    codes, values = manifest.partitions(entries, schema)
    return {f"p{index}": column.take(pa.array(codes)) for index, column in enumerate(values.columns)}


def _published_schema(schema: Schema) -> Schema:
    """The columns as data files have them: with the ids of all parts, and bytes without a length."""

    def plain(field: Field) -> Field:
        if isinstance(field.type, Scalar) and field.type.kind is Kind.BINARY:
            return replace(field, type=scalar(Kind.BYTES))
        return replace(field, type=rebuild(field.type, plain))

    return replace(schema, fields=tuple(map(plain, types.with_file_ids(schema.fields))))


def _properties(schema: Schema) -> dict[str, str]:
    table_options = options.read(schema)
    return {
        "write.format.default": "parquet",
        "gc.enabled": "false",  # The data files belong to this table: no engine of the other format may delete them.
        "write.manifest.compression-codec": table_options.metadata_iceberg_manifest_compression,
        "commit.manifest.target-size-bytes": str(table_options.manifest_target_file_size),
        "commit.manifest.min-count-to-merge": str(table_options.metadata_iceberg_compaction_max_file_num),
        "write.metadata.delete-after-commit.enabled": str(table_options.metadata_iceberg_delete_after_commit).lower(),
        "write.metadata.previous-versions-max": str(table_options.metadata_iceberg_previous_versions_max),
    }
