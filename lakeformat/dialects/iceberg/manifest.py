"""Manifests and manifest lists: parse by field id, inherit, emit, merge. Entries are stored in Arrow tables only.

An entry is a row of `ENTRY`, followed by a column `p<field id>` for each partition field of any spec of the table, and,
once it is read through a list, by `_spec` (the spec of its manifest) and `_manifest` (its row in the list).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import parsing, plain_values
from lakeformat.codec.arrow import one_row, rows_where, to_arrow
from lakeformat.codec.avro import file as avro
from lakeformat.codec.avro import schema as avro_schema
from lakeformat.codec.iceberg import gcm_stream, single_value
from lakeformat.dialects.iceberg import options
from lakeformat.dialects.iceberg.manifest_schema import (
    FILE,
    LIST_TEXTS,
    META_FIELDS,
    ONLY_IN_3,
    OWN,
    entry_text,
)
from lakeformat.dialects.iceberg.metadata import Spec, State, format_version, metadata_folder
from lakeformat.errors import CorruptFile, CorruptTable, NoSuchFile, UnsupportedFeature
from lakeformat.expression import evaluation, pruning, transform
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import TransformKind
from lakeformat.model.predicate import (
    ALWAYS,
    Call,
    Column,
    Expression,
    Literal,
    and_,
    columns_of,
    conjuncts,
    eq,
    eq_null_safe,
    ge,
    is_in,
    is_never,
    is_null,
    le,
    or_,
    starts_with,
)
from lakeformat.model.schema import Kind, Scalar, Schema, Type, scalar
from lakeformat.model.work import FileKey, in_folder
from lakeformat.storage.cache import LARGE_BYTES, Way, cache_of, decoded, keys_of, remember, way_to_decode
from lakeformat.storage.paths import is_absolute
from lakeformat.storage.store import Reader


class Status(IntEnum):
    EXISTING = 0
    ADDED = 1
    DELETED = 2


class ManifestContent(IntEnum):
    DATA = 0
    DELETES = 1


class FileContent(IntEnum):
    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


# The fields of data files that no task needs. The offset of the first of the bounds in the manifest is kept, for
# conditions.
_NOT_PLANNED = {
    "snapshot_id", "file_sequence_number", "column_sizes", "value_counts", "null_value_counts", "nan_value_counts",
    "lower_bounds", "upper_bounds", "split_offsets", "equality_ids", "sort_order_id",
}  # fmt: skip
_BOUNDS_OF = {110: "null_value_counts", 137: "nan_value_counts", 125: "lower_bounds", 128: "upper_bounds"}
_BOUNDS_AT = "bounds@"
ENTRY = pa.schema([(name, type) for _, name, type in (*OWN, *FILE)])
_PLACED = pa.schema([*(f for f in ENTRY if f.name not in _NOT_PLANNED), pa.field(_BOUNDS_AT, pa.int32())])
META = pa.schema([(name, type) for _, name, type in META_FIELDS])
_FEW = 16  # Entries below which a value at a time costs less than a few calls of Arrow.
_LIST_BYTES = 32_000  # Of the records of a list that is made of the one before: they go into one block.
EMPTY_METAS = pa.Table.from_batches([], META)
_PARTITION_ID, _DATA_FILE_ID = 102, 2
# The required fields of an entry in a manifest, and in a list.
_NEEDED = {
    "status", "file_path", "file_format", "record_count", "file_size_in_bytes", "manifest_path", "manifest_length",
    "partition_spec_id", "added_snapshot_id",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Manifests:
    """New manifests by path, a row of `META` for each, and by location their parsed content."""

    files: Mapping[str, bytes]
    metas: pa.Table
    entries: Mapping[str, pa.Table] = dataclasses.field(default_factory=dict)


NO_MANIFESTS = Manifests({}, EMPTY_METAS)


# --- parse ------------------------------------------------------------------------------------------------------------


def parse_list(data: bytes, where: str) -> pa.Table:
    """A manifest list -> rows of `META`; fields that version 1 lacks are filled in."""
    with parsing.naming(where):
        return _metas(avro.decode(data, logical=True), where)


def parse_lists(files: Sequence[bytes], where: Sequence[str]) -> list[pa.Table]:
    """Several manifest lists, decoded together if their schemas are equal."""
    return avro.parse_together(files, where, parse_list, _metas, logical=True)


def _metas(decoded: avro.Decoded, where: str) -> pa.Table:
    ids = _ids(decoded.schema["fields"])
    by_id = {ids[f["name"]]: decoded.table[f["name"]] for f in decoded.schema["fields"] if f["name"] in ids}
    if 500 not in by_id:
        raise CorruptFile(f"{where}: not a manifest list; its fields are {', '.join(decoded.table.column_names)}")
    table = _conform({name: by_id[id] for id, name, _ in META_FIELDS if id in by_id}, META, len(decoded.table))
    for name in ("content", "sequence_number", "min_sequence_number"):
        position = META.get_field_index(name)
        table = table.set_column(position, META.field(name), pc.fill_null(table[name], 0))
    return table


def parse(data: bytes, where: str, schema: pa.Schema = ENTRY) -> pa.Table:
    """A manifest -> its entries without inheritance: rows of `ENTRY` or of `_PLACED`, and their partition columns."""
    with parsing.naming(where):
        head, columns = avro.read_head(data), None if schema is ENTRY else _placed_columns
        # A batch at a time, so that no two copies of all entries are in memory.
        batches = avro.batches(data, columns, logical=True)
        return pa.concat_tables([_entries(batch, head.schema, where, schema) for batch in batches])


def parse_all(files: Sequence[bytes], where: Sequence[str]) -> list[pa.Table]:
    """Several manifests, decoded together if their schemas are equal."""
    return avro.parse_together(
        files, where, parse, lambda all, name: _entries(all.table.to_batches()[0], all.schema, name), logical=True
    )


def _entries(batch: pa.RecordBatch, written: Mapping[str, Any], where: str, schema: pa.Schema = ENTRY) -> pa.Table:
    """`written`: the Avro schema of the file."""
    fields, inside = _fields(written, where)
    columns = {name: batch[fields[id]["name"]] for id, name, _ in OWN if id in fields and name in schema.names}
    file = batch[fields[_DATA_FILE_ID]["name"]]
    columns |= {
        name: pc.struct_field(file, inside[id]["name"]) for id, name, _ in FILE if id in inside and name in schema.names
    }
    if schema is _PLACED:
        columns[_BOUNDS_AT] = pc.struct_field(file, f"{_bounds_in(inside)[0]}@")
    table = _conform(columns, schema, batch.num_rows)
    position = schema.get_field_index("content")
    table = table.set_column(position, ENTRY.field("content"), pc.fill_null(table["content"], int(FileContent.DATA)))
    if _PARTITION_ID in inside:
        partition = pc.struct_field(file, inside[_PARTITION_ID]["name"])
        for part in inside[_PARTITION_ID]["type"]["fields"]:
            table = table.append_column(f"p{part['field-id']}", pc.struct_field(partition, part["name"]))
    return table


def _fields(written: Mapping[str, Any], where: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """The fields of an entry, and of its file, in the Avro schema of a manifest, by id."""
    fields = {f["field-id"]: f for f in written["fields"] if "field-id" in f}
    if _DATA_FILE_ID not in fields:
        raise CorruptFile(f"{where}: not a manifest; its fields are {', '.join(f['name'] for f in written['fields'])}")
    kind = fields[_DATA_FILE_ID]["type"]
    if not isinstance(kind, dict) or "fields" not in kind:
        raise CorruptFile(f"data_file is of type {str(kind)[:80]}, not a record")
    return fields, {f["field-id"]: f for f in kind["fields"] if "field-id" in f}


def _bounds_in(inside: Mapping[int, Any]) -> list[str]:
    """The names of the bounds among the fields of a file, in the manifest's order."""
    return [f["name"] for id, f in inside.items() if id in _BOUNDS_OF]


def _placed_columns(head: avro.Head) -> list[str]:
    """The columns to decode for `_PLACED`."""
    fields, inside = _fields(head.schema, "it")
    entry_columns = [fields[id]["name"] for id, name, _ in OWN if id in fields and name not in _NOT_PLANNED]
    names = [inside[id]["name"] for id, name, _ in FILE if id in inside and name not in _NOT_PLANNED]
    names += [inside[id]["name"] for id in (_PARTITION_ID,) if id in inside]
    file = fields[_DATA_FILE_ID]["name"]
    return [*entry_columns, *(f"{file}.{name}" for name in (*names, f"{_bounds_in(inside)[0]}@"))]


def metas_of(reader: Reader, snapshot: Mapping[str, Any] | None) -> pa.Table:
    """The manifests of a snapshot, as rows of `META`. Raises `CorruptFile` for a list without any, of a snapshot that
    has files: no length of a list is stored, and one that ends after its header is a valid Avro file."""
    if snapshot is None:
        return EMPTY_METAS
    path = snapshot.get("manifest-list")
    if path is None:
        return _embedded(reader, snapshot)
    (metas,) = read_lists(reader, [path])
    total = (snapshot.get("summary") or {}).get("total-data-files", "0")
    if not len(metas) and total != "0":
        raise CorruptFile(f"{path}: it lists no manifests, and its snapshot has {total} data files")
    return metas


def read_lists(reader: Reader, paths: Sequence[str], missing_ok: bool = False) -> list[pa.Table]:
    """The manifests in each manifest list, as rows of `META`; cached as by `read_raw`."""
    tables = _all_decoded(reader, paths, parse_lists, EMPTY_METAS, missing_ok)
    keys = keys_of(reader)
    if keys is not None:  # Of a table without encryption the key metadata says nothing.
        for table in tables:
            keys.learn(table)
    return tables


def _embedded(reader: Reader, snapshot: Mapping[str, Any]) -> pa.Table:
    """The manifests that a snapshot of version 1 lists itself, with the fields of a manifest list, but without
    partition summaries, which are optional."""
    paths = snapshot.get("manifests") or []
    rows = []
    for path, data in zip(paths, reader.read_many(paths), strict=True):
        if data is None:
            raise NoSuchFile(f"{path} is missing: the snapshot that names it expired, or is damaged")
        spec_id = avro.read_head(data).metadata.get("partition-spec-id", b"0")
        if not spec_id.isdigit():
            raise CorruptFile(f"{path}: partition-spec-id is {spec_id!r}")
        rows.append(
            {
                "manifest_path": path, "manifest_length": len(data), "partition_spec_id": int(spec_id),
                "content": int(ManifestContent.DATA), "sequence_number": 0, "min_sequence_number": 0,
                "added_snapshot_id": snapshot["snapshot-id"], **_counts(parse(data, path)),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, META)


def with_live(metas: pa.Table) -> pa.Table:
    """The manifests that list a live file, by their counts, or may (core/ManifestGroup.java)."""
    count = pc.add(metas["added_files_count"], metas["existing_files_count"])
    return rows_where(metas, pc.fill_null(pc.greater(count, 0), True))


def counted(reader: Reader, base: State, metas: pa.Table) -> pa.Table:
    """`metas` with the counts of their entries, which lists of version 1 may lack. In version 3 those that `numbered`
    will use are counted too: a list may be wrong, and two rows would get one id."""
    names = [name for name in META.names if name.endswith("_count")]
    is_numbered = format_version(base) < 3 or metas["first_row_id"].null_count == 0
    if is_numbered and not any(metas[name].null_count for name in names):
        return metas
    rows = metas.to_pylist()
    unknown = [
        row
        for row in rows
        if None in (row[name] for name in names)
        or (not is_numbered and row["first_row_id"] is None and row["content"] == ManifestContent.DATA)
    ]
    for row, entries in zip(unknown, read_raw(reader, [row["manifest_path"] for row in unknown]), strict=True):
        row |= _counts(entries)
    return pa.Table.from_pylist(rows, META)


def _counts(entries: pa.Table) -> dict[str, int]:
    """The files and rows per status, as in a manifest list."""
    status, rows = np.asarray(entries["status"]), np.asarray(entries["record_count"])
    of = {Statu.name.lower(): status == Statu for Statu in Status}
    return {f"{name}_files_count": int(chosen.sum()) for name, chosen in of.items()} | {
        f"{name}_rows_count": int(rows[chosen].sum()) for name, chosen in of.items()
    }


def read_all(reader: Reader, base: State, metas: pa.Table) -> pa.Table:
    """The entries of each manifest of `metas`, in order, with inheritance applied. The counts in its list may differ:
    they are statistics. Raises `CorruptFile` for a manifest that has fewer entries and fewer bytes than its list says:
    an Avro file that ends after a block is a valid one."""
    return pa.concat_tables([_empty(base), *_read_inherited(reader, base, metas, read_raw)])


def _read_inherited(
    reader: Reader, base: State, metas: pa.Table, read: Callable[[Reader, Sequence[str]], list[pa.Table]]
) -> Iterator[pa.Table]:
    raw = read(reader, metas["manifest_path"].to_pylist())
    for index, (meta, table) in enumerate(zip(metas.to_pylist(), raw, strict=True)):
        with parsing.naming(meta["manifest_path"]):
            count = sum(meta[f"{status.name.lower()}_files_count"] or 0 for status in Status)
            if len(table) < count:
                _require_length(reader, meta, f"{len(table)} of {count} entries")
            yield _inherited(table, base, meta, index)


def _require_length(reader: Reader, meta: Mapping[str, Any], entries: str) -> None:
    (data,) = reader.read_many([meta["manifest_path"]])
    if data is not None and len(data) < meta["manifest_length"]:
        raise CorruptFile(f"it ends after {entries}, {len(data)} of {meta['manifest_length']} bytes")


def read_raw(reader: Reader, paths: Sequence[str], missing_ok: bool = False) -> list[pa.Table]:
    """The entries of each manifest without inheritance. Decoded manifests are cached by path, since no path is written
    twice."""
    return _all_decoded(reader, paths, parse_all, ENTRY.empty_table(), missing_ok)


def _read_placed(reader: Reader, paths: Sequence[str]) -> list[pa.Table]:
    """As `read_raw`, rows of `_PLACED`; of `ENTRY` if these are cached, for delete files, or if bounds cannot be read
    later."""
    return _all_decoded(reader, paths, _parse_placed, _PLACED.empty_table(), is_part=True)


def _parse_placed(files: Sequence[bytes], where: Sequence[str]) -> list[pa.Table]:
    tables = []
    for data, name in zip(files, where, strict=True):
        with parsing.naming(name):
            head = avro.read_head(data)
            is_data = head.metadata.get("content", b"data") == b"data"
            has_places = is_data and not head.has_unions and _bounds_in(_fields(head.schema, name)[1])
        tables.append(parse(data, name, _PLACED if has_places else ENTRY))
    return tables


def _with_bounds(reader: Reader, path: str, entries: pa.Table) -> Iterator[pa.Table]:
    """The entries of a manifest, slice by slice, with the bounds of their files, which are read if necessary."""
    if _BOUNDS_AT not in entries.column_names:
        yield entries
        return
    (data,), keys = reader.read_many([path]), keys_of(reader)
    if data is None:
        raise NoSuchFile(f"{path} is missing: the snapshot that names it expired, or is damaged")
    if keys is not None and (known := keys.keys_of([path])):
        data = gcm_stream.decrypt(data, known[path], path)
    with parsing.naming(path):
        fields, inside = _fields(avro.read_head(data).schema, path)
        start, places = 0, np.asarray(entries[_BOUNDS_AT])
        for batch in avro.values_at(data, fields[_DATA_FILE_ID]["name"], _bounds_in(inside), places):
            piece = entries.slice(start, batch.num_rows)
            for id, name in _BOUNDS_OF.items():
                kind = ENTRY.field(name)
                values = (
                    _cast(batch[inside[id]["name"]], kind.type) if id in inside else pa.nulls(len(piece), kind.type)
                )
                piece = piece.append_column(kind, values)
            yield piece
            start += batch.num_rows


def _all_decoded(
    reader: Reader,
    paths: Sequence[str],
    parse: Callable[[Sequence[bytes], Sequence[str]], list[pa.Table]],
    empty: pa.Table,
    missing_ok: bool = False,
    is_part: bool = False,
) -> list[pa.Table]:
    """Decoded files of the metadata folder; `empty` for one that does not exist, if that is allowed."""
    keys = keys_of(reader)
    if keys is not None and (known := keys.keys_of(paths)):
        parse = partial(_parse_encrypted, parse, known)
    tables = []
    for path, table in zip(paths, decoded(reader, paths, parse, is_part), strict=True):
        if table is None and not missing_ok:
            raise NoSuchFile(f"{path} is missing: the snapshot that names it expired, or is damaged")
        tables.append(empty if table is None else table)
    return tables


def _parse_encrypted(
    parse: Callable[[Sequence[bytes], Sequence[str]], list[pa.Table]],
    keys: Mapping[str, FileKey],
    files: Sequence[bytes],
    where: Sequence[str],
) -> list[pa.Table]:
    pairs = zip(files, where, strict=True)
    return parse([gcm_stream.decrypt(data, keys[path], path) if path in keys else data for data, path in pairs], where)


def live_entries(
    reader: Reader,
    base: State,
    scope: Expression = ALWAYS,
    content: ManifestContent = ManifestContent.DATA,
    predicate: Expression = ALWAYS,
) -> pa.Table:
    """The live data files, or delete files, in partitions that satisfy `scope` or whose spec cannot decide; without
    those whose partition proves that no row satisfies `predicate`."""
    metas = with_live(metas_of(reader, base.snapshot_document))
    metas = prune_metas(metas.filter(pc.equal(metas["content"], int(content))), base, scope, predicate)
    return by_partition(_live(read_all(reader, base, metas), base, scope), base, predicate)


def live_files(
    reader: Reader,
    base: State,
    scope: Expression = ALWAYS,
    predicate: Expression = ALWAYS,
    to_plan: bool = False,
    asks_bounds: bool = False,
    large_bytes: int = LARGE_BYTES,
) -> tuple[pa.Table | Iterator[pa.Table], pa.Table]:
    """(`live_entries` of data files for which `predicate` may be true; those of delete files); their manifests are read
    together. With `to_plan` entries of data files may come in pieces without what tasks do not need (see `planned`):
    decoded as `way_to_decode` says, and with bounds if the caller `asks_bounds`."""
    metas = with_live(metas_of(reader, base.snapshot_document))
    is_data = pc.equal(metas["content"], int(ManifestContent.DATA))
    data = prune_metas(metas.filter(is_data), base, scope, predicate)
    deletes = prune_metas(metas.filter(pc.invert(is_data)), base, scope)
    paths, both = data["manifest_path"].to_pylist(), pa.concat_tables([data, deletes])
    size_bytes = pc.sum(data["manifest_length"]).as_py() or 0
    way = way_to_decode(reader, paths, size_bytes, asks_bounds, large_bytes) if to_plan else Way.WHOLE
    if way is not Way.WHOLE:
        tables = list(_read_inherited(reader, base, both, _read_placed))
        others = _live(pa.concat_tables([_empty(base), *tables[len(paths) :]]), base, scope)
        # Equality deletes are compared with the bounds of data files.
        if not pc.any(pc.equal(others["content"], int(FileContent.EQUALITY_DELETES))).as_py():
            pieces = (
                piece
                for path, table in zip(paths, tables, strict=False)
                for piece in (_with_bounds(reader, path, table) if asks_bounds else [table])
            )
            return (by_partition(_live(piece, base, scope), base, predicate) for piece in pieces), others
    live = _live(read_all(reader, base, both), base, scope)
    holds_data = pc.equal(live["content"], int(FileContent.DATA))
    entries, others = (
        (live.filter(holds_data), live.filter(pc.invert(holds_data))) if len(deletes) else (live, live.slice(0, 0))
    )
    return by_partition(entries, base, predicate), others


def planned(entries: pa.Table) -> pa.Table:
    """Entries of data files without what no task needs."""
    return entries.select([name for name in entries.column_names if name not in {*_NOT_PLANNED, _BOUNDS_AT}])


def _live(entries: pa.Table, base: State, scope: Expression) -> pa.Table:
    return in_scope(rows_where(entries, pc.not_equal(entries["status"], int(Status.DELETED))), base, scope)


def by_partition(entries: pa.Table, base: State, predicate: Expression) -> pa.Table:
    """The entries whose partition values, by any transforms, allow a row for which `predicate` is true."""
    if predicate == ALWAYS or len(entries) == 0:
        return entries
    keep = np.ones(len(entries), bool)
    for spec, rows, part in _by_spec(entries, base):
        if not columns_of(predicate) & set(spec.partitioning.sources):
            continue
        counts = entries["record_count"].combine_chunks().take(pa.array(rows))
        bounds: dict[str, pruning.Bounds] = {}
        for index, id in enumerate(spec.field_ids):
            values = part[f"p{id}"].combine_chunks()
            nulls = pc.if_else(values.is_null(), counts, pa.scalar(0, pa.int64()))
            bounds = _bounds_of(base, spec, index, values, values, nulls, counts) | bounds
        keep[rows] = np.asarray(pruning.may_match(_transformed(predicate, base, spec), bounds, len(rows)))
    return rows_where(entries, pa.array(keep))


def entries_of_snapshot(
    reader: Reader, base: State, snapshot: Mapping[str, Any], content: ManifestContent, status: Status
) -> pa.Table:
    """The entries that a snapshot added or removed."""
    metas = metas_of(reader, snapshot)
    metas = metas.filter(
        pc.and_(pc.equal(metas["added_snapshot_id"], snapshot["snapshot-id"]), pc.equal(metas["content"], int(content)))
    )
    entries = read_all(reader, base, metas)
    by_it = pc.and_(pc.equal(entries["snapshot_id"], snapshot["snapshot-id"]), pc.equal(entries["status"], int(status)))
    return entries.filter(by_it)


def prune_metas(metas: pa.Table, base: State, scope: Expression, predicate: Expression = ALWAYS) -> pa.Table:
    """The manifests that may have an entry of a partition that satisfies `scope` and allows `predicate`."""
    if (scope == ALWAYS and predicate == ALWAYS) or len(metas) == 0:
        return metas
    keep = np.ones(len(metas), bool)
    for spec, rows, bounds in partition_bounds(metas, base):
        asked = and_(scope, _transformed(predicate, base, spec))
        keep[rows] = np.asarray(pruning.may_match(asked, bounds, len(rows)))
    return metas.filter(pa.array(keep))


def partition_bounds(metas: pa.Table, base: State) -> Iterator[tuple[Spec, np.ndarray, Mapping[str, pruning.Bounds]]]:
    """(a spec, the indices of its manifests that have partition summaries, the bounds of columns and partition fields
    that follow from these)."""
    ids = np.asarray(metas["partition_spec_id"])
    summaries = metas["partitions"].combine_chunks()
    counts = pc.add(pc.add(metas["added_files_count"], metas["existing_files_count"]), metas["deleted_files_count"])
    for spec in base.specs.values():
        rows = np.flatnonzero(ids == spec.id)
        indexes = pa.array(rows)
        lengths = pc.fill_null(pc.list_value_length(summaries.take(indexes)), 0)
        if not len(rows) or not spec.types or pc.min(lengths).as_py() < len(spec.types):
            continue
        files = counts.combine_chunks().cast(pa.int64()).take(indexes)
        bounds: dict[str, pruning.Bounds] = {}
        for index, kind in enumerate(spec.types):
            summary = pc.list_element(summaries.take(indexes), index)
            ends = [pc.struct_field(summary, n) for n in ("lower_bound", "upper_bound")]
            low, high = single_value.decode_bounds(ends[0], ends[1], kind)
            # Without bounds all values are null or NaN; only whether any is null is recorded.
            nulls = pc.if_else(pc.struct_field(summary, "contains_null"), pa.scalar(None, pa.int64()), 0)
            if not (isinstance(kind, Scalar) and kind.kind in (Kind.FLOAT, Kind.DOUBLE)):
                nothing = pc.and_(ends[0].is_null(), pc.struct_field(summary, "contains_null"))
                nulls = pc.if_else(nothing, files, nulls)
            nans = pc.if_else(pc.struct_field(summary, "contains_nan"), pa.scalar(None, pa.int64()), 0)
            bounds = _bounds_of(base, spec, index, low, high, nulls, files, nans) | bounds
        yield spec, rows, bounds


def in_scope(entries: pa.Table, base: State, scope: Expression, unknown: bool = True) -> pa.Table:
    """The entries whose partition satisfies `scope`; `unknown`: whether to keep those whose spec lacks a column of
    it."""
    if scope == ALWAYS or len(entries) == 0:
        return entries
    if is_never(scope):
        return entries.slice(0, 0)
    keep = np.full(len(entries), unknown)
    for spec, rows, part in _by_spec(entries, base):
        if _has_columns(base, spec, scope):
            keep[rows] = np.asarray(evaluation.mask(scope, _scope_columns(part, base, spec)))
    return rows_where(entries, pa.array(keep))


def rows_in(schema: Schema, partitions: Iterable[tuple[Any, ...]]) -> Expression:
    """The condition on rows that selects exactly the rows of these partitions. Raises `UnsupportedFeature` for
    transforms that no condition on rows can express."""
    return or_(*(and_(*(_rows_of(schema, index, v) for index, v in enumerate(p))) for p in sorted(partitions, key=str)))


def _rows_of(schema: Schema, index: int, value: Any) -> Expression:
    part, kind = schema.partitioning.fields[index], transform_type(schema, index)
    source = schema.field(part.source).type
    match part.transform.kind:
        case TransformKind.IDENTITY:
            return eq_null_safe(part.source, plain_values.literal(value, kind))
        case TransformKind.VOID:
            return ALWAYS
        case _ if value is None:
            return is_null(part.source)
        case TransformKind.TRUNCATE if isinstance(value, str) and len(value) == part.transform.parameter:
            return starts_with(part.source, value)
        case TransformKind.TRUNCATE if isinstance(value, str):
            return eq(part.source, value)
    one = plain_values.column([value], kind)
    low, high = transform.between(part.transform, one, one, source, exact=True)
    if low.null_count or high.null_count:
        raise UnsupportedFeature(
            f"partition field {part.name!r}: files under an earlier partition spec do not record the "
            f"{part.transform.kind} of {part.source!r}; compact the table first (compact(full=True))"
        )
    least, most = (plain_values.literal(_python(side)[0], source) for side in (low, high))
    return and_(ge(part.source, least), le(part.source, most))


def decides(base: State, entries: pa.Table, scope: Expression) -> bool:
    """Whether the specs of all these entries have the columns of `scope`, and so decide whether it includes them."""
    return scope == ALWAYS or specs_decide(base, pc.unique(entries["_spec"]).to_pylist(), scope)


def specs_decide(base: State, spec_ids: Iterable[int], scope: Expression) -> bool:
    """As `decides`, for entries of these specs."""
    return all(_has_columns(base, base.specs[id], scope) for id in spec_ids)


def _has_columns(base: State, spec: Spec, scope: Expression) -> bool:
    return columns_of(scope) <= {n for index in range(len(spec.types)) for n in _names_of(base, spec, index)}


def partitions(entries: pa.Table, spec: Spec) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """(the index of each entry's partition, the distinct partitions in plain form)."""
    if not spec.types:
        return np.zeros(len(entries), np.int64), [()]
    codes = _codes(entries, spec)
    first = pa.array(_first_of_each(codes))
    chosen = [_python(entries[f"p{id}"].combine_chunks().take(first)) for id in spec.field_ids]
    return codes, list(zip(*chosen, strict=True))


def partition_codes(entries: pa.Table, base: State) -> np.ndarray:
    """One number per distinct spec and partition."""
    coded = np.zeros(len(entries), np.int64)
    total = 0
    for spec, rows, part in _by_spec(entries, base):
        codes = _codes(part, spec)
        coded[rows] = codes + total
        total += int(codes.max()) + 1
    return coded


def _codes(entries: pa.Table, spec: Spec) -> np.ndarray:
    codes = np.zeros(len(entries), np.int64)
    for number, id in enumerate(spec.field_ids):
        encoded = entries[f"p{id}"].combine_chunks().dictionary_encode("encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = _dense(codes * max(len(encoded.dictionary), 1) + indices) if number else indices
    return codes


def _dense(values: np.ndarray) -> np.ndarray:
    """The values as codes, in the order in which they first occur."""
    return pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)


def _first_of_each(codes: np.ndarray) -> np.ndarray:
    """Where each code first occurs."""
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # Of several, numpy keeps the last.
    return first


def partition_of_each(entries: pa.Table, base: State) -> list[tuple[Any, ...]]:
    """The partition of each entry under its own spec, in plain form."""
    values_of: list[tuple[Any, ...]] = [()] * len(entries)
    for spec, rows, part in _by_spec(entries, base):
        codes, values = partitions(part, spec)
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            values_of[row] = values[code]
    return values_of


def identities(entries: pa.Table, base: State) -> tuple[np.ndarray, list[tuple[tuple[int, Any], ...]]]:
    """(the index of each entry in the second, the distinct values of the columns with an identity transform in the spec
    of their entries as pairs of field id and value).

    A file may lack these columns (spec, Column Projection). Values are as `casts.constant` takes them: dates are days.
    """
    indices = np.zeros(len(entries), np.int64)
    constants: list[tuple[tuple[int, Any], ...]] = [()]
    for spec, rows, part in _by_spec(entries, base):
        sources = {
            source: f"p{field.id}"
            for field, source in zip(spec.partitioning.fields, spec.source_ids, strict=True)
            if field.transform.kind is TransformKind.IDENTITY
        }
        if not sources:
            continue
        codes = _codes(part, spec)
        first = pa.array(_first_of_each(codes))
        columns = [part[name].combine_chunks().take(first) for name in sources.values()]
        days = [c.cast(pa.int32()) if pa.types.is_date32(c.type) else c for c in columns]
        indices[rows] = codes + len(constants)
        constants += (tuple(zip(sources, row, strict=True)) for row in zip(*map(_python, days), strict=True))
    return indices, constants


def partition_names(entries: pa.Table) -> list[str]:
    """The columns of entries that say their partition."""
    return [name for name in entries.column_names if name == "_spec" or (name[0] == "p" and name[1:].isdigit())]


def _by_spec(entries: pa.Table, base: State) -> Iterator[tuple[Spec, np.ndarray, pa.Table]]:
    """(a spec, the rows of its entries, their partitions)."""
    columns, ids = entries.select(partition_names(entries)), entries["_spec"]
    spec_ids = sorted(pc.unique(ids).to_pylist())
    for spec_id in spec_ids:
        if len(spec_ids) == 1:
            yield base.specs[spec_id], np.arange(len(entries)), columns
            continue
        rows = np.flatnonzero(np.asarray(ids) == spec_id)
        yield base.specs[spec_id], rows, columns.take(pa.array(rows))


def partition_columns(rows: Sequence[tuple[Any, ...]], spec: Spec) -> dict[str, pa.Array]:
    """Partitions in plain form, as columns of entries."""
    return {
        f"p{id}": plain_values.column([row[index] for row in rows], kind)
        for index, (id, kind) in enumerate(zip(spec.field_ids, spec.types, strict=True))
    }


def partition_table(rows: Sequence[tuple[Any, ...]], base: State) -> pa.Table:
    """Partitions in plain form, as a table on which a scope can be evaluated."""
    columns = partition_columns(rows, base.spec)
    return _scope_columns(pa.table(columns) if columns else _without_values(len(rows)), base, base.spec)


def scope_of(schema: Schema, partitions: Iterable[tuple[Any, ...]]) -> Expression:
    """The condition on partition fields, by their own names, that selects exactly these partitions."""
    kinds = [transform_type(schema, index) for index in range(len(schema.partitioning.fields))]
    return plain_values.selecting(schema.partitioning.names, kinds, partitions)


def transform_type(schema: Schema, index: int) -> Type:
    """The type of a partition field's values."""
    part = schema.partitioning.fields[index]
    match part.transform.kind:
        case TransformKind.BUCKET | TransformKind.YEAR | TransformKind.MONTH | TransformKind.HOUR:
            return scalar(Kind.INT)
        case TransformKind.DAY:
            return scalar(Kind.DATE)
    return schema.field(part.source).type


def look_up(column: pa.ChunkedArray, field_id: int) -> pa.Array:
    """For each entry, the value of one field in a map by field id (counts or bounds); null if it has none."""
    lists = column.combine_chunks()
    parents = pc.list_parent_indices(lists)
    pairs = pc.list_flatten(lists)
    at = np.flatnonzero(np.asarray(pc.struct_field(pairs, "key")) == field_id)
    where = np.full(len(lists), -1)
    where[np.asarray(parents)[at]] = at
    return pc.struct_field(pairs, "value").take(pa.array(where, mask=where < 0))


def keys(entries: pa.Table) -> pa.Array:
    """What identifies a file: the path, and for a deletion vector in a shared file its offset."""
    paths, offsets = (entries[n].combine_chunks() for n in ("file_path", "content_offset"))
    if offsets.null_count == len(offsets):
        return paths
    placed = pc.binary_join_element_wise(paths, offsets.cast(pa.string()), "#")
    return pc.if_else(offsets.is_valid(), placed, paths)


def mapped(parts: Sequence[tuple[int, pa.Array]], count: int, kind: pa.DataType) -> pa.Array:
    """Columns by field id -> for each row of a manifest the pairs that are not null; null if there are none."""
    if not parts:
        return pa.nulls(count, kind)
    if count <= _FEW:
        few: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        for id, column in parts:
            for pairs_of_row, value in zip(few, column.to_pylist(), strict=True):
                if value is not None:
                    pairs_of_row.append({"key": id, "value": value})
        return pa.array([pairs_of_row or None for pairs_of_row in few], kind)
    keys = np.repeat(np.array([id for id, _ in parts], np.int32), count)
    values = pa.concat_arrays([column for _, column in parts])
    rows = np.tile(np.arange(count), len(parts))
    order = np.argsort(rows, kind="stable")
    order = order[np.asarray(values.is_valid())[order]]
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys[order]), values.take(pa.array(order))], fields=kind.value_type.fields
    )
    counts = np.bincount(rows[order], minlength=count)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=kind, mask=pa.array(counts == 0))


# --- emit -------------------------------------------------------------------------------------------------------------


def emit(
    entries: pa.Table, base: State, spec: Spec, name: str, snapshot_id: int, sequence_number: int, root: str
) -> Manifests:
    """Entries of one spec, of data or of deletes, -> manifests called `name`-m0.avro, `name`-m1.avro, ..., each of
    about `commit.manifest.target-size-bytes`. ADDED entries without a sequence number inherit theirs."""
    if len(entries) == 0:
        return NO_MANIFESTS
    content = ManifestContent(int(entries["content"][0].as_py() != FileContent.DATA))
    version = format_version(base)
    schema, metadata = entry_text(spec, version), _manifest_metadata(base, spec, content)
    codec = _codec(base.schema)
    target = options.read(base.schema.properties).commit_manifest_target_size
    whole = avro.encode(_nest(entries, spec, version), schema, codec, metadata)
    count = max(int(len(whole) / (1.1 * target)), 1)
    step = -(-len(entries) // count)
    files, metas, contents, folder = {}, [], {}, metadata_folder(base)
    columns = [*ENTRY.names, *(f"p{id}" for id in spec.field_ids)]
    for number, start in enumerate(range(0, len(entries), step)):
        part = entries.slice(start, step)
        data = whole if count == 1 else avro.encode(_nest(part, spec, version), schema, codec, metadata)
        path = in_folder(folder, f"{name}-m{number}.avro")
        files[path] = data
        location = path if is_absolute(path) else f"{root}/{path}"
        contents[location] = part.select(columns)
        metas.append(_meta(part, spec, content, location, len(data), snapshot_id, sequence_number))
    return Manifests(files, pa.concat_tables(metas), contents)


def remembered(reader: Reader, manifests: Manifests) -> Manifests:
    """Cache new manifests, so that users of this reader need not read them."""
    for location, entries in manifests.entries.items():
        remember(reader, location, entries)
    return manifests


def encode(entries: pa.Table, base: State, spec: Spec, version: int, head: Mapping[str, bytes]) -> bytes:
    """Entries as `parse` returns them -> a manifest with the key-value metadata `head`."""
    for id, kind in zip(spec.field_ids, spec.types, strict=True):
        name = f"p{id}"
        values = _partition_values(entries, name, to_arrow(kind))
        entries = entries.drop_columns([name]) if name in entries.column_names else entries
        entries = entries.append_column(name, values)
    return avro.encode(_nest(entries, spec, version), entry_text(spec, version), _codec(base.schema), dict(head))


def numbered(metas: pa.Table, first_row_id: int) -> tuple[pa.Table, int]:
    """(manifests with first row ids assigned to those of data that had none, the number of ids used): each manifest
    gets as many as it has rows, in order (spec, First Row ID Assignment)."""
    wants = pc.and_(pc.equal(metas["content"], int(ManifestContent.DATA)), metas["first_row_id"].is_null())
    rows = pc.if_else(wants, pc.add(metas["added_rows_count"], metas["existing_rows_count"]), 0)
    ends = np.cumsum(np.asarray(rows))
    starts = pa.array(first_row_id + ends - np.asarray(rows), pa.int64())
    position = META.get_field_index("first_row_id")
    made = pc.if_else(wants, starts, metas["first_row_id"])
    return metas.set_column(position, META.field(position), made), int(ends[-1]) if len(ends) else 0


def emit_list(
    metas: pa.Table,
    base: State,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int | None = None,
    records: bytes | None = None,
) -> bytes:
    """Rows of `META` -> a manifest list. `records`: those of `metas`, where they are known."""
    version = format_version(base)
    metadata = {
        "snapshot-id": str(snapshot_id).encode(),
        "parent-snapshot-id": b"null" if parent_id is None else str(parent_id).encode(),
        "sequence-number": str(sequence_number).encode(),
        "format-version": str(version).encode(),
    }
    if first_row_id is not None:
        metadata["first-row-id"] = str(first_row_id).encode()
    names, text = LIST_TEXTS[version >= 3]
    if records:
        return avro.of_records(len(metas), records, text, _codec(base.schema), metadata)
    return avro.encode(metas.select(names), text, _codec(base.schema), metadata)


def keep_records(reader: Reader, base: State, path: str, records: bytes) -> None:
    """Keep what `list_records` made for the list at `path`."""
    if (cache := cache_of(reader)) is not None:
        cache.put_records(reader.root, _records_of(path, base), records)


def _records_of(path: str, base: State) -> str:
    return f"{path}#{format_version(base)}"  # A version's records have its fields.


def list_records(reader: Reader, base: State, metas: pa.Table) -> bytes | None:
    """The records of a list of the manifests `metas`, which mostly ends as the base's does;
    None where they are many."""
    cache, (names, text) = cache_of(reader), LIST_TEXTS[format_version(base) >= 3]
    if cache is None or len(metas) == 0:
        return None
    path = (base.snapshot_document or {}).get("manifest-list", "")
    before, records = cache.get(reader.root, path), cache.records(reader.root, _records_of(path, base))
    start = 0 if before is None or records is None else len(metas) - len(before)
    if records is None or before is None or start < 0 or not metas.slice(start).equals(before):
        return avro.few_records(metas.select(names), text, _LIST_BYTES)
    new = avro.few_records(metas.slice(0, start).select(names), text, _LIST_BYTES) if start else b""
    whole = None if new is None else new + records
    return whole if whole is not None and len(whole) <= _LIST_BYTES else None


# --- private ----------------------------------------------------------------------------------------------------------


def _ids(fields: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {f["name"]: f["field-id"] for f in fields if "field-id" in f}


def _conform(columns: Mapping[str, Any], schema: pa.Schema, rows: int) -> pa.Table:
    arrays = [_cast(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    table = pa.Table.from_arrays(arrays, schema=schema)
    if lost := [f.name for f in schema if f.name in _NEEDED and table[f.name].null_count]:
        raise CorruptFile(f"an entry has no {lost[0]}")
    return table


def _cast(column: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if column.type == kind:
        return column
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.type == kind:
        return array
    if pa.types.is_map(array.type):  # Some writers use maps where the spec has arrays of pairs.
        array = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    return array.cast(kind)


def _empty(base: State) -> pa.Table:
    return _empty_of(tuple(_partition_types(base).items()))


@lru_cache(maxsize=64)
def _empty_of(partition_types: tuple[tuple[int, Type], ...]) -> pa.Table:
    columns = [(f"p{id}", to_arrow(kind)) for id, kind in partition_types]
    tail = [("_spec", pa.int32()), ("_manifest", pa.int32())]
    return pa.schema([*ENTRY, *(pa.field(*c) for c in (*columns, *tail))]).empty_table()


def _partition_types(base: State) -> dict[int, Type]:
    """The type of every partition field of any spec, by id. A field that a later spec makes void keeps its type."""
    typed = [pair for spec in base.specs.values() for pair in zip(spec.partitioning.fields, spec.types, strict=True)]
    typed.sort(key=lambda pair: pair[0].transform.kind is not TransformKind.VOID)
    return {part.id: kind for part, kind in typed}


def _inherited(table: pa.Table, base: State, meta: Mapping[str, Any], index: int) -> pa.Table:
    spec_id, first = meta["partition_spec_id"], meta["sequence_number"]
    if spec_id not in base.specs:
        raise CorruptTable(f"{meta['manifest_path']}: partition spec {spec_id} is not in the table's metadata")
    added = pc.or_(pc.equal(table["status"], int(Status.ADDED)), pa.scalar(first == 0))
    inherited, names = {}, [name for name in table.column_names if name in _PLACED.names or name in ENTRY.names]
    for name in {"sequence_number", "file_sequence_number"} & set(names):
        inherited[name] = pc.if_else(pc.and_(table[name].is_null(), added), pa.scalar(first, pa.int64()), table[name])
    unknown = inherited[
        "sequence_number"
    ].is_null()  # Some writers left it out of deleted entries, which no scan reads.
    if pc.any(pc.and_(unknown, pc.not_equal(table["status"], int(Status.DELETED)))).as_py():
        raise CorruptTable(f"{meta['manifest_path']}: entries that are not new have no sequence number")
    if "snapshot_id" in names:
        inherited["snapshot_id"] = pc.fill_null(table["snapshot_id"], meta["added_snapshot_id"])
    inherited["first_row_id"] = _row_ids(table, meta)
    arrays = [inherited[name] if name in inherited else table[name] for name in names]
    for id, kind in _partition_types(base).items():
        name, target = f"p{id}", to_arrow(kind)
        arrays.append(_partition_values(table, name, target))
        names.append(name)
    arrays += [pa.array(np.full(len(table), number, np.int32)) for number in (spec_id, index)]
    return pa.table(arrays, names=[*names, "_spec", "_manifest"])


def _partition_values(table: pa.Table, name: str, target: pa.DataType) -> pa.ChunkedArray:
    values = table[name] if name in table.column_names else pa.nulls(len(table), target)
    if pa.types.is_integer(values.type) and pa.types.is_date(target):
        values = values.cast(pa.int32())
    if pa.types.is_fixed_size_binary(values.type) and not pa.types.is_fixed_size_binary(target):
        values = values.cast(pa.binary())
    return values.cast(target)


def _row_ids(table: pa.Table, meta: Mapping[str, Any]) -> pa.ChunkedArray:
    """The first row id of each data file: its own, or counted file by file from the manifest's first."""
    if meta["first_row_id"] is None or meta["content"] != ManifestContent.DATA:
        return table["first_row_id"]
    wants = pc.and_(table["first_row_id"].is_null(), pc.not_equal(table["status"], int(Status.DELETED)))
    rows = np.where(np.asarray(wants), np.asarray(table["record_count"]), 0)
    starts = pa.array(meta["first_row_id"] + np.cumsum(rows) - rows, pa.int64())
    return pc.if_else(wants, starts, table["first_row_id"])


def _names_of(base: State, spec: Spec, index: int) -> tuple[str, ...]:
    """The names by which a scope may refer to a partition field: its column's name for an identity transform, and its
    own name if that is the same field in the current spec and no other column's name."""
    part = spec.partitioning.fields[index]
    own = (part.name,) if part.id in base.spec.field_ids and part.name not in base.schema.names else ()
    return (*own, part.source) if part.transform.kind is TransformKind.IDENTITY else own


def _bounds_of(
    base: State,
    spec: Spec,
    index: int,
    low: pa.Array,
    high: pa.Array,
    nulls: pa.Array,
    rows: pa.Array,
    nans: pa.Array | None = None,
) -> dict[str, pruning.Bounds]:
    """What the bounds `low` and `high` of a partition field imply: for the field itself and for its source column."""
    part = spec.partitioning.fields[index]
    bounds = {name: pruning.Bounds(low, high, nulls, rows, nans) for name in _names_of(base, spec, index)}
    source = next((f for f in base.schema.fields if f.id == spec.source_ids[index]), None)
    if part.transform.kind not in (TransformKind.IDENTITY, TransformKind.VOID) and source is not None:
        bounds[part.source] = pruning.Bounds(*transform.between(part.transform, low, high, source.type), nulls, rows)
    return bounds


def _transformed(predicate: Expression, base: State, spec: Spec) -> Expression:
    """`predicate`, with its equalities applied to bucket and truncated fields."""
    conditions = [predicate]
    for part, source_id in zip(spec.partitioning.fields, spec.source_ids, strict=True):
        source = next((f for f in base.schema.fields if f.id == source_id), None)
        if part.transform.kind not in (TransformKind.BUCKET, TransformKind.TRUNCATE) or source is None:
            continue
        for values in filter(None, (_equals(condition, source.name) for condition in conjuncts(predicate))):
            try:
                column = pa.array(values, to_arrow(source.type))
                transformed = transform.apply(part.transform, column, source.type).to_pylist()
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                continue  # No value of the column: the rows decide.
            if pa.types.is_int64(column.type):  # As in files written while the column was an int.
                ints = [value for value in values if -(2**31) <= value < 2**31]
                transformed += transform.apply(part.transform, pa.array(ints, pa.int32()), scalar(Kind.INT)).to_pylist()
            conditions.append(is_in(part.name, frozenset(transformed)))
    return and_(*conditions)


def _equals(condition: Expression, name: str) -> list[Any] | None:
    """The values that a condition compares a column with for equality."""
    match condition:
        case Call("eq" | "eq_null_safe", (Column((column,)), Literal(value))) if column == name and value is not None:
            return [value]
        case Call("eq" | "eq_null_safe", (Literal(value), Column((column,)))) if column == name and value is not None:
            return [value]
        case Call("in", (Column((column,)), Literal(values))) if column == name:
            return [value for value in values if value is not None]
    return None


def _scope_columns(entries: pa.Table, base: State, spec: Spec) -> pa.Table:
    columns = {}
    for index, id in enumerate(spec.field_ids):
        for name in _names_of(base, spec, index):
            columns[name] = entries[f"p{id}"]
    return pa.table(columns) if columns else _without_values(len(entries))


def _without_values(count: int) -> pa.Table:
    """As many rows, which a table without columns would not have."""
    return pa.table({"": pa.nulls(count)})


def _python(column: pa.Array) -> list[Any]:
    """Partition values in plain form: timestamps as integers."""
    try:
        return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    except OverflowError as error:
        raise UnsupportedFeature(f"a partition of a day outside the years 1 to 9999: {error}") from error


def _partition_of(entries: pa.Table, spec: Spec) -> list[pa.Array]:
    """The partition fields of a spec, with its types: nulls where they are void."""
    return [
        pa.nulls(len(entries), to_arrow(kind))
        if part.transform.kind is TransformKind.VOID
        else entries[f"p{part.id}"].combine_chunks()
        for part, kind in zip(spec.partitioning.fields, spec.types, strict=True)
    ]


def _nest(entries: pa.Table, spec: Spec, version: int) -> pa.Table:
    columns = {n: entries[n].combine_chunks() for n in entries.column_names}
    parts = _partition_of(entries, spec)
    names = [avro_schema.legal(f.name) for f in spec.partitioning.fields]
    if parts:
        partition = pa.StructArray.from_arrays(parts, names)
    else:
        partition = pa.StructArray.from_buffers(pa.struct([]), len(entries), [None])
    inside = {"content": columns["content"], "file_path": columns["file_path"], "file_format": columns["file_format"]}
    inside["partition"] = partition
    inside |= {
        name: columns[name] for _, name, _ in FILE if name not in inside and not (version < 3 and name in ONLY_IN_3)
    }
    file = pa.StructArray.from_arrays(list(inside.values()), list(inside))
    return pa.table([*(columns[n] for _, n, _ in OWN), file], names=[*(n for _, n, _ in OWN), "data_file"])


def _meta(
    entries: pa.Table,
    spec: Spec,
    content: ManifestContent,
    path: str,
    size: int,
    snapshot_id: int,
    sequence_number: int,
) -> pa.Table:
    live = rows_where(entries, pc.not_equal(entries["status"], int(Status.DELETED)))
    least = pc.min(pc.fill_null(live["sequence_number"], sequence_number)).as_py()
    row = {
        "manifest_path": path,
        "manifest_length": size,
        "partition_spec_id": spec.id,
        "content": int(content),
        "sequence_number": sequence_number,
        "min_sequence_number": sequence_number if least is None else least,
        "added_snapshot_id": snapshot_id,
        **_counts(entries),
        "partitions": [
            _summary(column, kind) for column, kind in zip(_partition_of(entries, spec), spec.types, strict=True)
        ],
        "key_metadata": None,
        "first_row_id": None,
    }
    return one_row(row, META)


def _summary(column: pa.Array, kind: Type) -> dict[str, Any]:
    nan = False
    if pa.types.is_floating(column.type):
        nan = bool(pc.any(pc.is_nan(column)).as_py())
        column = column.filter(pc.invert(pc.fill_null(pc.is_nan(column), False)))
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    low, high = None, None
    if column.null_count < len(column):
        extremes = pc.min_max(column)
        low, high = (single_value.encode(pa.repeat(extremes[n], 1), kind)[0].as_py() for n in ("min", "max"))
    return {"contains_null": column.null_count > 0, "contains_nan": nan, "lower_bound": low, "upper_bound": high}


def _codec(schema: Schema) -> str:
    codec = options.read(schema.properties).manifest_codec
    avro_codecs = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null", "none": "null", "snappy": "snappy"}
    if codec not in avro_codecs:
        raise UnsupportedFeature(f"write.manifest.compression-codec={codec!r}; supported: {', '.join(avro_codecs)}")
    return avro_codecs[codec]


def _manifest_metadata(base: State, spec: Spec, content: ManifestContent) -> dict[str, bytes]:
    schema = next(s for s in base.document["schemas"] if s["schema-id"] == base.document["current-schema-id"])
    fields = next(s for s in base.document["partition-specs"] if s["spec-id"] == spec.id)["fields"]
    return {
        "schema": json.dumps(schema, ensure_ascii=False).encode(),
        "schema-id": str(schema["schema-id"]).encode(),
        "partition-spec": json.dumps(fields, ensure_ascii=False).encode(),
        "partition-spec-id": str(spec.id).encode(),
        "format-version": str(format_version(base)).encode(),
        "content": content.name.lower().encode(),
    }
