"""Iceberg metadata that mirrors a table of another format: the followed snapshot -> the document to start from and the
entries that change.

Documents, snapshots and sequences have the followed table's numbers (paimon: IcebergCommitCallback).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.iceberg import single_value
from lakeformat.dialects.dialect import Published, PublishedFiles
from lakeformat.dialects.iceberg import manifest, metadata, options, types
from lakeformat.dialects.iceberg.manifest import ENTRY, FileContent, ManifestContent, Status
from lakeformat.dialects.iceberg.metadata import MAIN, METADATA_FOLDER, State
from lakeformat.model.schema import Field, Scalar, Schema
from lakeformat.model.snapshot import Snapshot, Stamp
from lakeformat.storage.paths import relative
from lakeformat.storage.store import Reader

_FIRST_PARTITION_ID = 1000
_SPEC = 0


def shown(base: State, location: str, format_version: int) -> Snapshot | None:
    """The mirrored snapshot of the table at `location` from which the mirror can continue."""
    if base.snapshot_document is None or metadata.format_version(base) != format_version:
        return None
    if relative(location, base.document["location"]) != "":
        return None
    return metadata.to_snapshot(base.snapshot_document)


def find(base: State, published: Published) -> Snapshot | None:
    """The followed snapshot, if the mirror shows it with the current schemas, tags and snapshots."""
    shown = base.snapshot_document
    if not base.exists or shown is None or published.since is None or shown["snapshot-id"] != published.snapshot.id:
        return None
    return None if _document(base, published) != base.document else metadata.to_snapshot(shown)


def followed(base: State, published: Published, stamp: Stamp) -> State:
    """The mirror before the followed snapshot, with the current schemas, tags and snapshots. One that begins anew has
    no files before it."""
    begun = published.since is not None
    document = _document(base, published) if begun else _first(published, stamp)
    number = published.snapshot.id
    if document.get("current-snapshot-id") != number:
        document["last-sequence-number"] = number - 1
    return metadata.parse(metadata.emit(document), number - 1, base.location if begun else "")


def unused(reader: Reader, base: State, start: State) -> tuple[str, ...]:
    """Files that no reader needs once the document after `start` exists: older documents, if the table deletes these,
    and the manifests and lists of removed snapshots. No data files."""
    properties, number = start.schema.properties, start.version + 1
    older = sorted((v for v in metadata.numbered(reader).items() if v[0] < number), reverse=True)
    unused_paths = []
    if options.read(properties).metadata_delete_after_commit:
        unused_paths = [path for _, path in older[options.read(properties).metadata_previous_versions_max :]]
    before, after = ([] if not s.exists else list(metadata.snapshots(s).values()) for s in (base, start))
    there = {s["snapshot-id"]: s.get("manifest-list") for s in after}
    dropped = [s for s in before if there.get(s["snapshot-id"]) != s.get("manifest-list")]
    if dropped:
        lost, used = (
            {
                *(s["manifest-list"] for s in some),
                *(
                    path
                    for table in manifest.read_lists(reader, [s["manifest-list"] for s in some], missing_ok=True)
                    for path in table["manifest_path"].to_pylist()
                ),
            }
            for some in (dropped, after)
        )
        inside = (relative(reader.root, path) for path in sorted(lost - used))
        unused_paths += [path for path in inside if path and path.startswith(f"{METADATA_FOLDER}/")]
    return tuple(unused_paths)


def changes(reader: Reader, start: State, published: Published) -> tuple[pa.Table, pa.Table]:
    """(new entries, live entries to remove): the changes of `published` that `start` lacks."""
    empty = manifest.read_all(reader, start, manifest.EMPTY_METAS)
    number = published.snapshot.id
    # Engines spell the same location differently.
    theirs, ours = f"{published.location}/", f"{start.document['location']}/"

    def spelled(paths: Any) -> Any:
        return paths if theirs == ours else pc.replace_substring(paths, theirs, ours, max_replacements=1)

    def entries(files: PublishedFiles) -> pa.Table:
        return _entries(start, files, number, empty.schema, spelled)

    came = pa.concat_tables([empty, *map(entries, published.added)])
    went = empty
    if published.removed is None or len(published.removed):
        live = manifest.live_entries(reader, start)
        stays = pc.is_in(live["file_path"], value_set=came["file_path"].combine_chunks())
        goes = pc.invert(stays)
        if published.removed is not None:
            goes = pc.and_(goes, pc.is_in(live["file_path"], value_set=spelled(published.removed)))
        went = live.filter(goes)
        came = came.filter(pc.invert(pc.is_in(came["file_path"], value_set=live["file_path"].combine_chunks())))
    if published.vectors is not None:
        old_deletes = manifest.live_entries(reader, start, content=ManifestContent.DELETES)
        now = entries(published.vectors)
        new, old = _vectors(now), _vectors(old_deletes)
        came = pa.concat_tables([came, now.filter(pc.invert(pc.is_in(new, value_set=old)))])
        went = pa.concat_tables([went, old_deletes.filter(pc.invert(pc.is_in(old, value_set=new)))])
    return came, went


# --- private ----------------------------------------------------------------------------------------------------------


def _first(published: Published, stamp: Stamp) -> dict[str, Any]:
    """The document of a table without a snapshot."""
    by = published.schema.partitioning
    fields = tuple(replace(field, id=_FIRST_PARTITION_ID + index) for index, field in enumerate(by.fields))
    schema = Schema(
        fields=tuple(map(_typed, published.schema.fields)),
        partitioning=replace(by, fields=fields),
        properties={metadata.FORMAT_VERSION: str(published.format_version)},
    )
    stamp = replace(stamp, now_ms=published.snapshot.timestamp_ms)
    document = metadata.new_document(schema, published.location, stamp)
    return _with_today({**document, "schemas": []}, published)


def _document(base: State, published: Published) -> dict[str, Any]:
    """The base's document with the current schemas, tags and snapshots. The current snapshot stays until the next one
    is made."""
    document = dict(base.document)
    shown = metadata.current_id(base)
    kept = published.kept | {shown}
    document["snapshots"] = [s for s in document.get("snapshots") or () if s["snapshot-id"] in kept]
    log = document.get("snapshot-log") or []
    cut = max((index for index, entry in enumerate(log) if entry["snapshot-id"] not in kept), default=-1)
    document["snapshot-log"] = log[cut + 1 :]
    snapshot_ids = {s["snapshot-id"] for s in document["snapshots"]}
    refs = {name: ref for name, ref in document["refs"].items() if ref["type"] == "branch" and name == MAIN}
    for name, snapshot_id in published.tags.items():
        if snapshot_id in snapshot_ids and name != MAIN:
            refs[name] = {"snapshot-id": snapshot_id, "type": "tag"}
    document["refs"] = refs
    return _with_today(document, published)


def _with_today(document: dict[str, Any], published: Published) -> dict[str, Any]:
    document.setdefault("metadata-log", [])  # Paimon's Java engine writes none, and no row ids.
    if document["format-version"] >= 3:
        document.setdefault("next-row-id", 0)
    known = {s["schema-id"] for s in document["schemas"]}
    emitted = [_emitted(schema) for schema in published.schemas if schema.id not in known]
    document["schemas"] = [*document["schemas"], *emitted]
    document["current-schema-id"] = published.schema.id
    document["last-column-id"] = max(published.schema.last_field_id, document.get("last-column-id", 0))
    comment = {"comment": published.schema.comment} if published.schema.comment else {}
    document["properties"] = {**published.properties, **comment}
    return document


def _emitted(schema: Schema) -> dict[str, Any]:
    fields = tuple(_typed(field) for field in schema.fields)
    return metadata.emit_schema(fields, schema.id, [])


def _typed(field: Field) -> Field:
    """A column with Iceberg's type, without defaults: the writer fills them in."""
    return replace(field, type=types.iceberg_type(field.type), default=None, initial=None)


def _entries(
    start: State, files: PublishedFiles, number: int, schema: pa.Schema, spelled: Callable[[Any], Any]
) -> pa.Table:
    """Files as entries added by the snapshot `number`. Their sequence numbers are explicit, as Paimon reads them."""
    table, count = files.table, len(files.table)
    is_vector = "of" in table.column_names
    content = FileContent.POSITION_DELETES if is_vector else FileContent.DATA
    one = {"status": Status.ADDED, "content": content, "_spec": _SPEC, "_manifest": -1}
    one |= dict.fromkeys(("snapshot_id", "sequence_number", "file_sequence_number"), number)
    columns: dict[str, Any] = {name: pa.array(np.full(count, int(value))) for name, value in one.items()}
    columns["file_format"] = pa.array(["PUFFIN" if is_vector else "PARQUET"] * count, pa.string())
    columns |= {
        name: spelled(table[source]) if source in ("path", "of") else table[source]
        for name, source in {
            "file_path": "path",
            "record_count": "row_count",
            "file_size_in_bytes": "size_bytes",
            "referenced_data_file": "of",
            "content_offset": "offset",
            "content_size_in_bytes": "length",
            **{f"p{_FIRST_PARTITION_ID + index}": f"p{index}" for index in range(len(start.spec.types))},
        }.items()
        if source in table.column_names
    }
    columns |= {} if is_vector else _metrics(start, files)
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _metrics(start: State, files: PublishedFiles) -> Mapping[str, pa.Array]:
    count = len(files.table)
    names = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    parts: dict[str, list[tuple[int, pa.Array]]] = {name: [] for name in names}
    for field in start.schema.fields:
        bounds = files.bounds.get(field.id)
        if bounds is None or not isinstance(field.type, Scalar):
            continue
        kind = to_arrow(field.type)
        parts["value_counts"].append((field.id, bounds.row_count.cast(pa.int64())))
        parts["null_value_counts"].append((field.id, bounds.null_count.cast(pa.int64())))
        for name, values in (("lower_bounds", bounds.minimum), ("upper_bounds", bounds.maximum)):
            values = values.cast(kind)
            if pa.types.is_floating(kind):  # NaN bounds nothing.
                values = pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
            parts[name].append((field.id, single_value.encode(values, field.type)))
    return {name: manifest.mapped(columns, count, ENTRY.field(name).type) for name, columns in parts.items()}


def _vectors(entries: pa.Table) -> pa.Array:
    """What identifies a deletion vector: also its data file, which may be written again."""
    return pc.binary_join_element_wise(manifest.keys(entries), entries["referenced_data_file"].combine_chunks(), "#")
