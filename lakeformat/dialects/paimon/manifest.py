"""Manifests and manifest lists: parse, emit, merge, fold into the live files. Entries are stored in Arrow tables
only."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat import lazy
from lakeformat.codec import parsing, plain_values
from lakeformat.codec.arrow import one_row, rows_where
from lakeformat.codec.avro import file as avro
from lakeformat.codec.paimon import binary_row
from lakeformat.dialects.paimon import options
from lakeformat.dialects.paimon.metadata import INDEX_FOLDER, MANIFEST_FOLDER, key_of
from lakeformat.errors import CorruptFile, CorruptTable, NoSuchFile, UnsupportedFeature
from lakeformat.expression import evaluation, pruning
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import RewriteManifests
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Schema, Type
from lakeformat.model.work import WrittenFile
from lakeformat.storage.cache import LARGE_BYTES, PART_BYTES, Way, cache_of, decoded, remember, way_to_decode
from lakeformat.storage.store import Reader

if TYPE_CHECKING:
    from pyarrow import orc
else:
    orc = lazy.library("pyarrow.orc")


class EntryKind(IntEnum):
    ADD = 0
    DELETE = 1


class FileSource(IntEnum):
    APPEND = 0
    COMPACT = 1


_STATS = pa.struct([("_MIN_VALUES", pa.binary()), ("_MAX_VALUES", pa.binary()), ("_NULL_COUNTS", pa.list_(pa.int64()))])
# A manifest entry together with its file's fields, in file order.
_FILE_FIELDS = [
    pa.field("_FILE_NAME", pa.string()),
    pa.field("_FILE_SIZE", pa.int64()),
    pa.field("_ROW_COUNT", pa.int64()),
    pa.field("_MIN_KEY", pa.binary()),
    pa.field("_MAX_KEY", pa.binary()),
    pa.field("_KEY_STATS", _STATS),
    pa.field("_VALUE_STATS", _STATS),
    pa.field("_MIN_SEQUENCE_NUMBER", pa.int64()),
    pa.field("_MAX_SEQUENCE_NUMBER", pa.int64()),
    pa.field("_SCHEMA_ID", pa.int64()),
    pa.field("_LEVEL", pa.int32()),
    pa.field("_EXTRA_FILES", pa.list_(pa.string())),
    pa.field("_CREATION_TIME", pa.int64()),
    pa.field("_DELETE_ROW_COUNT", pa.int64()),
    pa.field("_EMBEDDED_FILE_INDEX", pa.binary()),
    pa.field("_FILE_SOURCE", pa.int32()),
    pa.field("_VALUE_STATS_COLS", pa.list_(pa.string())),
    pa.field("_EXTERNAL_PATH", pa.string()),
    pa.field("_FIRST_ROW_ID", pa.int64()),
    pa.field("_WRITE_COLS", pa.list_(pa.string())),
]
_ENTRY_FIELDS = [
    pa.field("_KIND", pa.int32()),
    pa.field("_PARTITION", pa.binary()),
    pa.field("_BUCKET", pa.int32()),
    pa.field("_TOTAL_BUCKETS", pa.int32()),
]
ENTRY = pa.schema(_ENTRY_FIELDS + _FILE_FIELDS)
_NESTED_ENTRY = pa.schema(
    [pa.field("_VERSION", pa.int32()), *_ENTRY_FIELDS, pa.field("_FILE", pa.struct(_FILE_FIELDS))]
)
# The fields that no task needs, mostly bounds and keys.
# The offset of the bounds in the manifest is kept, for conditions.
_NOT_PLANNED = {
    "_MIN_KEY", "_MAX_KEY", "_KEY_STATS", "_VALUE_STATS", "_CREATION_TIME", "_DELETE_ROW_COUNT", "_FILE_SOURCE"
}  # fmt: skip
_STATS_AT = "_VALUE_STATS@"
PLANNED = pa.schema([f for f in ENTRY if f.name not in _NOT_PLANNED])
_PLACED = PLANNED.append(pa.field(_STATS_AT, pa.int32()))
META = pa.schema(
    [
        ("_VERSION", pa.int32()),
        ("_FILE_NAME", pa.string()),
        ("_FILE_SIZE", pa.int64()),
        ("_NUM_ADDED_FILES", pa.int64()),
        ("_NUM_DELETED_FILES", pa.int64()),
        ("_PARTITION_STATS", _STATS),
        ("_SCHEMA_ID", pa.int64()),
        ("_MIN_BUCKET", pa.int32()),
        ("_MAX_BUCKET", pa.int32()),
        ("_MIN_LEVEL", pa.int32()),
        ("_MAX_LEVEL", pa.int32()),
        ("_MIN_ROW_ID", pa.int64()),
        ("_MAX_ROW_ID", pa.int64()),
    ]
)
INDEX_ENTRY = pa.schema(
    [
        ("_VERSION", pa.int32()),
        ("_KIND", pa.int32()),
        ("_PARTITION", pa.binary()),
        ("_BUCKET", pa.int32()),
        ("_INDEX_TYPE", pa.string()),
        ("_FILE_NAME", pa.string()),
        ("_FILE_SIZE", pa.int64()),
        ("_ROW_COUNT", pa.int64()),
        (
            "_DELETIONS_VECTORS_RANGES",
            pa.list_(
                pa.struct([("f0", pa.string()), ("f1", pa.int32()), ("f2", pa.int32()), ("_CARDINALITY", pa.int64())])
            ),
        ),
        ("_EXTERNAL_PATH", pa.string()),
        (
            "_GLOBAL_INDEX",
            pa.struct(
                [
                    ("_ROW_RANGE_START", pa.int64()),
                    ("_ROW_RANGE_END", pa.int64()),
                    ("_INDEX_FIELD_ID", pa.int32()),
                    ("_EXTRA_FIELD_IDS", pa.list_(pa.int32())),
                    ("_INDEX_META", pa.binary()),
                    ("_SOURCE_META", pa.binary()),
                ]
            ),
        ),
    ]
)
HASH_INDEX = "HASH"
DELETION_VECTORS = "DELETION_VECTORS"
BTREE_INDEX = "btree"
_ENTRY_VERSION = 2
_FEW = 32  # Entries below which a value at a time costs less than a few calls of Arrow.
_LIST_BYTES = 32_000  # Of the records of a list that is made of those before: they go into one block.
_INDEX_ENTRY_VERSION = 1
_PIECE_ROWS = 500
_LARGE_AT_ONCE = 8  # Manifests of the target size that are scanned together.


@dataclass(frozen=True, slots=True)
class Manifests:
    """New manifests by path, a row of `META` for each, and their content."""

    files: Mapping[str, bytes]
    metas: pa.Table
    entries: Mapping[str, pa.Table] = field(default_factory=dict)


EMPTY_ENTRIES = pa.Table.from_batches([], ENTRY)
EMPTY_INDEX = pa.Table.from_batches([], INDEX_ENTRY)  # `Schema.empty_table` imports pandas.
EMPTY_METAS = pa.Table.from_batches([], META)
NO_MANIFESTS = Manifests({}, EMPTY_METAS)


# --- parse ------------------------------------------------------------------------------------------------------------


def parse(data: bytes, where: str, schema: pa.Schema = ENTRY) -> pa.Table:
    """A manifest of any Paimon version, in Avro or ORC -> its entries, as rows of `ENTRY` or of `PLANNED`."""
    with parsing.naming(where):
        # A batch at a time, so that no two copies of all entries are in memory.
        return pa.concat_tables([_entries(batch, where, schema) for batch in _batches(data, schema)])


def _entries(batch: pa.RecordBatch, where: str, schema: pa.Schema = ENTRY) -> pa.Table:
    if "_FILE" not in batch.schema.names:
        raise CorruptFile(f"{where}: not a manifest; its fields are {', '.join(batch.schema.names)}")
    _check_version(batch, _ENTRY_VERSION, where)
    file = batch["_FILE"]
    file_names = [f.name for f in file.type]
    _check_unknown(file, file_names, {*(f.name for f in _FILE_FIELDS), _STATS_AT}, where)
    kinds = pc.is_in(batch["_KIND"], value_set=pa.array(list(EntryKind), batch["_KIND"].type))
    if not pc.all(kinds, min_count=0).as_py():
        raise CorruptFile(f"{where}: entries of a kind that is neither ADD nor DELETE")
    columns = {f.name: batch[f.name] for f in _ENTRY_FIELDS if f.name in batch.schema.names}
    columns |= {name: pc.struct_field(file, name) for name in file_names}
    return _conform(columns, schema, batch.num_rows, where)


def parse_list(data: bytes, where: str) -> pa.Table:
    """A manifest list -> rows of `META`."""
    with parsing.naming(where):
        return _metas(_decode(data), where)


def _metas(table: pa.Table, where: str) -> pa.Table:
    if "_NUM_ADDED_FILES" not in table.column_names:
        raise CorruptFile(f"{where}: not a manifest list; its fields are {', '.join(table.column_names)}")
    _check_version(table, _ENTRY_VERSION, where)
    return _conform({n: table[n] for n in table.column_names}, META, len(table), where)


def parse_lists(files: Sequence[bytes], where: Sequence[str]) -> list[pa.Table]:
    """Several manifest lists, decoded together if their schemas are equal."""
    return avro.parse_together(files, where, parse_list, lambda all, name: _metas(all.table, name))


def parse_all(files: Sequence[bytes], where: Sequence[str]) -> list[pa.Table]:
    """Several manifests, decoded together if their schemas are equal."""
    return avro.parse_together(files, where, parse, lambda all, name: _entries(all.table.to_batches()[0], name))


def parse_index(data: bytes, where: str) -> pa.Table:
    """An index manifest -> its entries, as rows of `INDEX_ENTRY`."""
    with parsing.naming(where):
        table = _decode(data)
        if "_INDEX_TYPE" not in table.column_names:
            raise CorruptFile(f"{where}: not an index manifest; its fields are {', '.join(table.column_names)}")
        _check_version(table, _INDEX_ENTRY_VERSION, where)
        return _conform({n: table[n] for n in table.column_names}, INDEX_ENTRY, len(table), where)


def read_index(reader: Reader, document: Mapping[str, Any] | None) -> pa.Table:
    """The entries of a snapshot's index manifest, as rows of `INDEX_ENTRY`; empty if it has none."""
    name = (document or {}).get("indexManifest")
    if not name:
        return EMPTY_INDEX
    return _all_decoded(reader, [name], partial(map, parse_index), EMPTY_INDEX)[0]


def require_known_indexes(entries: pa.Table, where: str) -> None:
    """Raise `UnsupportedFeature` for index entries of unknown types that are no global indexes."""
    own = entries.filter(entries["_GLOBAL_INDEX"].is_null())
    if strange := set(own["_INDEX_TYPE"].to_pylist()) - {HASH_INDEX, DELETION_VECTORS}:
        raise UnsupportedFeature(f"{where}: indexes of type {', '.join(sorted(strange))} beside others: not supported")


def vectors(entries: pa.Table) -> pa.Table:
    """The deletion vectors in entries of an index manifest: each one's data file `of`, `entry` (its row in `entries`),
    and its `offset`, `length` and `cardinality` (null if unknown) in that entry's file."""
    is_vector = pc.equal(entries["_INDEX_TYPE"], DELETION_VECTORS)
    vector_rows = pa.array(np.flatnonzero(np.asarray(is_vector)))
    ranges = entries["_DELETIONS_VECTORS_RANGES"].take(vector_rows).combine_chunks()
    flat = pc.list_flatten(ranges)
    columns = [pc.struct_field(flat, name) for name in ("f0", "f1", "f2", "_CARDINALITY")]
    entry = vector_rows.take(pc.list_parent_indices(ranges))
    table = pa.table([columns[0], entry, *columns[1:]], names=["of", "entry", "offset", "length", "cardinality"])
    return table.filter(table["of"].is_valid())


def index_paths(entries: pa.Table) -> list[str]:
    """The paths of the files of an index manifest's entries."""
    names, elsewhere = entries["_FILE_NAME"].to_pylist(), entries["_EXTERNAL_PATH"].to_pylist()
    return [path or f"{INDEX_FOLDER}/{name}" for path, name in zip(elsewhere, names, strict=True)]


def read_list(reader: Reader, name: str | None, document: Mapping[str, Any] | None = None) -> pa.Table:
    """The manifests in a manifest list; empty without a list. Decoded lists are cached by name, like manifests. Raises
    `CorruptFile` for an empty one that is shorter than the snapshot `document` says: an Avro file that ends after its
    header is a valid one."""
    if not name:
        return EMPTY_METAS
    return read_lists(reader, [name], document=document)[0]


def read_metas(reader: Reader, document: Mapping[str, Any] | None) -> pa.Table:
    """All manifests of a snapshot, older before newer: its base list, then its delta list."""
    if document is None:
        return EMPTY_METAS
    lists = (document["baseManifestList"], document["deltaManifestList"])
    return pa.concat_tables([EMPTY_METAS, *read_lists(reader, [name for name in lists if name], document=document)])


def read_all(reader: Reader, metas: pa.Table, schema: pa.Schema = ENTRY) -> list[pa.Table]:
    """The entries of each manifest of `metas`, in order. Raises `CorruptTable` if one has more or fewer than
    recorded."""
    if schema is PLANNED:
        return [table.select(PLANNED.names) for table in _read_counted(reader, metas, _read_placed)]
    return _read_counted(reader, metas, read_entries)


def _read_counted(
    reader: Reader, metas: pa.Table, read: Callable[[Reader, Sequence[str]], list[pa.Table]]
) -> list[pa.Table]:
    names = metas["_FILE_NAME"].to_pylist()
    tables = read(reader, names)
    counts = pc.add(metas["_NUM_ADDED_FILES"], metas["_NUM_DELETED_FILES"]).to_pylist()
    for name, table, count in zip(names, tables, counts, strict=True):
        if len(table) != count:
            raise CorruptTable(
                f"{reader.root}: {MANIFEST_FOLDER}/{name} holds {len(table)} entries, its list says {count}"
            )
    return tables


def read_entries(reader: Reader, names: Sequence[str], missing_ok: bool = False) -> list[pa.Table]:
    """The entries of each manifest, in order. Decoded manifests are cached by name, since no name is reused."""
    return _all_decoded(reader, names, parse_all, EMPTY_ENTRIES, missing_ok)


def _read_placed(reader: Reader, names: Sequence[str]) -> list[pa.Table]:
    """As `read_entries`, rows of `_PLACED`; of `ENTRY` if these are cached, or if bounds cannot be read later."""
    return _all_decoded(reader, names, _parse_placed, _PLACED.empty_table(), is_part=True)


def _parse_placed(files: Sequence[bytes], where: Sequence[str]) -> Iterable[pa.Table]:
    for data, name in zip(files, where, strict=True):
        with parsing.naming(name):
            has_places = data[:3] != b"ORC" and not avro.read_head(data).has_unions
        yield parse(data, name, _PLACED if has_places else ENTRY)


def _with_stats(reader: Reader, name: str, entries: pa.Table) -> Iterator[pa.Table]:
    """The entries of a manifest, slice by slice, with the bounds of their files, which are read if necessary."""
    if "_VALUE_STATS" in entries.column_names:
        yield entries
        return
    path = f"{MANIFEST_FOLDER}/{name}"
    with parsing.naming(f"{reader.root}/{path}"):
        start, places = 0, np.asarray(entries[_STATS_AT])
        for batch in avro.values_at(reader.read(path), "_FILE", ["_VALUE_STATS"], places):
            piece = entries.slice(start, batch.num_rows)
            yield piece.append_column(ENTRY.field("_VALUE_STATS"), _cast(batch["_VALUE_STATS"], _STATS))
            start += batch.num_rows


def read_lists(
    reader: Reader, names: Sequence[str], missing_ok: bool = False, document: Mapping[str, Any] | None = None
) -> list[pa.Table]:
    """The manifests in each manifest list, in order; cached and checked as by `read_list`."""
    return _all_decoded(reader, names, partial(_parse_sized, document or {}), EMPTY_METAS, missing_ok)


def _parse_sized(document: Mapping[str, Any], files: Sequence[bytes], where: Sequence[str]) -> list[pa.Table]:
    lists = ("baseManifestList", "deltaManifestList", "changelogManifestList")
    sizes = {document.get(part): document.get(f"{part}Size") or 0 for part in lists}
    tables = parse_lists(files, where)
    for data, path, table in zip(files, where, tables, strict=True):
        size_bytes = sizes.get(path.rpartition("/")[2], 0)
        if not len(table) and len(data) < size_bytes:
            raise CorruptFile(f"{path}: it lists no manifests in {len(data)} bytes, and its snapshot says {size_bytes}")
    return tables


def _all_decoded(
    reader: Reader,
    names: Sequence[str],
    parse: Callable[[Sequence[bytes], Sequence[str]], Iterable[pa.Table]],
    empty: pa.Table,
    missing_ok: bool = False,
    is_part: bool = False,
) -> list[pa.Table]:
    """Decoded files of the manifest folder, whose names are never reused; `empty` for one that does not exist, if that
    is allowed."""
    paths = [f"{MANIFEST_FOLDER}/{name}" for name in names]
    tables = []
    per_path = decoded(reader, paths, partial(_parsed_at, reader.root, parse), is_part)
    for path, table in zip(paths, per_path, strict=True):
        if table is None and not missing_ok:
            raise NoSuchFile(f"{reader.root}: {path} is missing: the snapshot that names it expired, or is damaged")
        if table is not None and not is_part and table.num_columns != empty.num_columns:
            raise CorruptFile(
                f"{reader.root}: {path} is a metadata file of another kind than the document says that names it"
            )
        tables.append(empty if table is None else table)
    return tables


def _parsed_at(
    root: str,
    parse: Callable[[Sequence[bytes], Sequence[str]], Iterable[pa.Table]],
    files: Sequence[bytes],
    paths: Sequence[str],
) -> Iterable[pa.Table]:
    return parse(files, [f"{root}/{path}" for path in paths])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The entries of several manifests; those of many small ones are copied into one chunk, since each chunk costs as
    much as some hundred rows."""
    if not tables:
        return EMPTY_ENTRIES
    entries = pa.concat_tables(tables)
    return entries.combine_chunks() if len(entries) < _PIECE_ROWS * len(tables) else entries


def fold(tables: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Entries in order -> (live files, DELETE entries without an ADD), both as rows of `ENTRY`."""
    entries = joined(tables)
    kinds = entries["_KIND"]
    is_delete = pc.equal(kinds, int(EntryKind.DELETE))
    deletes = entries.filter(is_delete)
    if len(deletes) == 0:
        return entries, deletes
    adds = entries.filter(pc.invert(is_delete))
    add_keys, delete_keys = identity(adds), identity(deletes)
    is_deleted = pc.is_in(add_keys, value_set=delete_keys)
    matched = pc.is_in(delete_keys, value_set=add_keys)
    live, unmatched = adds.filter(pc.invert(is_deleted)), deletes.filter(pc.invert(matched))
    came, went = pc.filter(add_keys, is_deleted), pc.filter(delete_keys, matched)
    if len(pc.unique(came)) < len(came) or len(pc.unique(went)) < len(went):
        # An upgrade deletes a file and adds it again, so the number of ADDs and DELETEs counts.
        net = _net(came, went)
        back, excess = (pc.filter(net["key"], pc.equal(net["net"], sign)) for sign in (1, -1))
        live = pa.concat_tables([live, _last_of_each(adds.filter(pc.is_in(add_keys, value_set=back)))])
        again = deletes.filter(pc.is_in(delete_keys, value_set=excess))
        unmatched = pa.concat_tables([unmatched, _last_of_each(again)])
    return live, unmatched


def identity(entries: pa.Table) -> pa.ChunkedArray:
    """The key by which two entries are of the same file: partition, bucket, level, name, and the extra files."""
    extra = pc.binary_join(pc.fill_null(entries["_EXTRA_FILES"], []), "\x01")
    return pc.binary_join_element_wise(
        entries["_FILE_NAME"].cast(pa.binary()),
        entries["_LEVEL"].cast(pa.string()).cast(pa.binary()),
        entries["_BUCKET"].cast(pa.string()).cast(pa.binary()),
        extra.cast(pa.binary()),
        pc.fill_null(entries["_EXTERNAL_PATH"], "").cast(pa.binary()),
        pc.fill_null(entries["_EMBEDDED_FILE_INDEX"], b""),
        entries["_PARTITION"],
        b"\x00",
    )


def live_entries(
    reader: Reader,
    document: Mapping[str, Any] | None,
    schema: Schema,
    scope: Expression = ALWAYS,
    to_plan: bool = False,
    matching: Callable[[pa.Table], pa.Array] | None = None,
    large_bytes: int = LARGE_BYTES,
    part_bytes: int = PART_BYTES,
) -> pa.Table:
    """The live files of a snapshot in the partitions that satisfy `scope` (a condition on partition columns only), of
    these the ones whose bounds satisfy `matching`. With `to_plan` rows of `PLANNED`,
    decoded as `way_to_decode` says."""
    metas = prune_metas(read_metas(reader, document), schema, scope)
    names = metas["_FILE_NAME"].to_pylist()
    size_bytes = pc.sum(metas["_FILE_SIZE"]).as_py() or 0
    paths = [f"{MANIFEST_FOLDER}/{name}" for name in names]
    way = way_to_decode(reader, paths, size_bytes, bool(matching), large_bytes, part_bytes) if to_plan else Way.WHOLE
    if matching and way is Way.PART_AND_BOUNDS:
        tables = []
        for name, table in zip(names, _read_counted(reader, metas, _read_placed), strict=True):
            for piece in _with_stats(reader, name, table):
                chosen = in_scope(piece, schema, scope)
                # Bounds do not say whether a DELETE has an ADD.
                keep = pc.or_(pc.equal(chosen["_KIND"], int(EntryKind.DELETE)), matching(chosen))
                tables.append(rows_where(chosen.select(PLANNED.names), keep))
        return fold(tables)[0]
    tables = read_all(reader, metas, PLANNED if way is Way.PART else ENTRY)
    if to_plan and not matching:  # Filtering fewer columns is faster.
        tables = [table.select(PLANNED.names) for table in tables] or [PLANNED.empty_table()]
    live = fold([in_scope(t, schema, scope) for t in tables])[0]
    return rows_where(live, matching(live)) if matching else live


def prune_metas(metas: pa.Table, schema: Schema, scope: Expression) -> pa.Table:
    """The manifests that may have an entry of a partition that satisfies `scope`."""
    if scope == ALWAYS or len(metas) == 0 or not schema.partitioning:
        return metas
    return metas.filter(pa.array(pruning.may_match(scope, partition_bounds(metas, schema))))


def partition_bounds(metas: pa.Table, schema: Schema) -> Mapping[str, pruning.Bounds]:
    """The bounds of partition columns from the partition statistics of manifests."""
    stats = metas["_PARTITION_STATS"].combine_chunks()
    kinds = partition_types(schema)
    low = binary_row.decode(pc.struct_field(stats, "_MIN_VALUES"), kinds)
    high = binary_row.decode(pc.struct_field(stats, "_MAX_VALUES"), kinds)
    counts = pc.struct_field(stats, "_NULL_COUNTS")
    rows = pc.add(metas["_NUM_ADDED_FILES"], metas["_NUM_DELETED_FILES"]).combine_chunks()
    bounds = {}
    for i, name in enumerate(schema.partitioning.names):
        lengths = pc.fill_null(pc.list_value_length(counts), 0)
        nulls = pc.list_element(counts, i) if pc.min(lengths).as_py() > i else pa.nulls(len(metas), pa.int64())
        bounds[name] = pruning.Bounds(low[i], high[i], nulls, rows)
    return bounds


def in_scope(entries: pa.Table, schema: Schema, scope: Expression) -> pa.Table:
    """The entries whose partition satisfies `scope`."""
    if scope == ALWAYS or len(entries) == 0:
        return entries
    codes, values = partitions(entries, schema)
    keep = np.asarray(evaluation.mask(scope, values), dtype=bool)
    return rows_where(entries, pa.array(keep[codes]))


def partitions(entries: pa.Table, schema: Schema) -> tuple[np.ndarray, pa.Table]:
    """(the index of each entry's partition, the distinct partitions as a table of their values)."""
    names, kinds = schema.partitioning.names, tuple(partition_types(schema))
    if len(entries) <= _FEW:
        places: dict[bytes, int] = {}
        codes = [places.setdefault(entry, len(places)) for entry in entries["_PARTITION"].to_pylist()]
        return np.array(codes, np.int32), _few_partitions(tuple(places), names, kinds)
    encoded = entries["_PARTITION"].dictionary_encode().unify_dictionaries()
    return np.concatenate([np.asarray(chunk.indices) for chunk in encoded.chunks]), _partitions_of(
        encoded.chunk(0).dictionary, names, kinds
    )


@lru_cache(maxsize=256)
def _few_partitions(rows: tuple[bytes, ...], names: tuple[str, ...], kinds: tuple[Type, ...]) -> pa.Table:
    """A commit asks twice, and the next one mostly for the same."""
    return _partitions_of(pa.array(rows, pa.binary()), names, kinds)


def _partitions_of(rows: pa.Array, names: tuple[str, ...], kinds: tuple[Type, ...]) -> pa.Table:
    columns = binary_row.decode(rows, list(kinds))
    fields = [pa.field(n, c.type) for n, c in zip(names, columns, strict=True)]
    if not fields:  # A table without columns would have no rows either.
        return pa.table({"": pa.nulls(len(rows))})
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def bucket_codes(entries: pa.Table) -> np.ndarray:
    """The partition and bucket of each file, as numbers from 0."""
    partitions = entries["_PARTITION"].combine_chunks().dictionary_encode().indices
    pairs = np.asarray(partitions).astype(np.int64) << 32 | np.asarray(entries["_BUCKET"]).astype(np.int64) & 0xFFFFFFFF
    return np.unique(pairs, return_inverse=True)[1]


def partition_values(values: pa.Table, schema: Schema) -> list[tuple[object, ...]]:
    """Partitions as tuples of Python values; timestamps as Arrow's integers."""
    if not schema.partitioning:
        return [()] * len(values)
    columns = []
    for column in values.columns:
        kind = column.type
        columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column).to_pylist())
    return list(zip(*columns, strict=True))


def partition_rows(partitions: Sequence[tuple[Any, ...]], schema: Schema) -> pa.Array:
    """Partitions as manifests hold them: BinaryRows with their arity."""
    kinds = partition_types(schema)
    if not kinds:
        return empty_rows(len(partitions))
    columns = [plain_values.column([p[i] for p in partitions], kind) for i, kind in enumerate(kinds)]
    return binary_row.with_arity(binary_row.encode(columns, kinds), len(kinds))


def key_entries(added: Sequence[WrittenFile], schema: Schema) -> pa.Table:
    """New files of a table with a primary key: the `_PARTITION`, `_BUCKET`, `_MIN_KEY` and `_MAX_KEY` of their
    entries."""
    kinds = [schema.field(name).type for name in key_of(schema)]
    ranges = [f.keys for f in added if f.keys is not None]
    assert len(ranges) == len(added), added

    def rows(ends: list[tuple[Any, ...]]) -> pa.Array:
        columns = [plain_values.column([end[i] for end in ends], kind) for i, kind in enumerate(kinds)]
        return binary_row.with_arity(binary_row.encode(columns, kinds), len(kinds))

    names = ("_PARTITION", "_BUCKET", "_MIN_KEY", "_MAX_KEY")
    columns = [
        partition_rows([f.partition for f in added], schema),
        pa.array([f.bucket for f in added], pa.int32()),
        rows([r.minimum for r in ranges]),
        rows([r.maximum for r in ranges]),
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema([ENTRY.field(name) for name in names]))


def partition_table(partitions: Sequence[tuple[Any, ...]], schema: Schema) -> pa.Table:
    """Partitions in plain form, as a table of their values."""
    kinds = partition_types(schema)
    columns = [plain_values.column([p[i] for p in partitions], kind) for i, kind in enumerate(kinds)]
    if not columns:  # A table without columns would have no rows.
        return pa.table({"": pa.nulls(len(partitions))})
    return pa.table(columns, names=list(schema.partitioning.names))


def scope_of(schema: Schema, partitions: Iterable[tuple[Any, ...]]) -> Expression:
    """The condition on partition columns that selects exactly these partitions."""
    return plain_values.selecting(schema.partitioning.names, partition_types(schema), partitions)


def rows_in(schema: Schema, partitions: Iterable[tuple[Any, ...]]) -> Expression:
    """The condition that selects exactly the rows of these partitions: the same one, since partitions are columns."""
    return scope_of(schema, partitions)


def partition_types(schema: Schema) -> list[Type]:
    return [schema.field(n).type for n in schema.partitioning.names]


# --- emit -------------------------------------------------------------------------------------------------------------


def emit(entries: pa.Table, schema: Schema, name: str) -> Manifests:
    """Entries -> manifests called `name`-0, `name`-1, ..., each about as large as `manifest.target-file-size` and none
    smaller: smaller ones would be merged again and again."""
    if len(entries) == 0:
        return NO_MANIFESTS
    codec = options.read(schema).manifest_codec
    target = options.read(schema).manifest_target_file_size
    whole = avro.encode(_nest(entries), _ENTRY_TEXT, codec)
    count = max(int(len(whole) / (1.1 * target)), 1)
    step = -(-len(entries) // count)
    files, metas, contents = {}, [], {}
    for i in range(count):
        part = entries.slice(i * step, step)
        if len(part) == 0:
            break
        data = whole if count == 1 else avro.encode(_nest(part), _ENTRY_TEXT, codec)
        path = f"{MANIFEST_FOLDER}/{name}-{i}"
        files[path], contents[path] = data, part
        metas.append(_meta(part, schema, f"{name}-{i}", len(data)))
    return Manifests(files, pa.concat_tables(metas), contents)


def remembered(reader: Reader, manifests: Manifests) -> Manifests:
    """Cache new manifests, so that users of this reader need not read them."""
    for path, entries in manifests.entries.items():
        remember(reader, path, entries)
    return manifests


def emit_list(metas: pa.Table, schema: Schema) -> bytes:
    """Rows of `META` -> a manifest list."""
    return emit_records(metas, schema)[0]


def emit_records(metas: pa.Table, schema: Schema, records: bytes | None = None) -> tuple[bytes, bytes | None]:
    """Rows of `META` -> (a manifest list, its records where these are few). `records`: those of `metas`,
    where they are known."""
    codec, columns = options.read(schema).manifest_codec, metas.select(META.names)
    if records is None:
        records = avro.few_records(columns, _META_TEXT)
    if records is None or not len(columns):
        return avro.encode(columns, _META_TEXT, codec), None
    return avro.of_records(len(columns), records, _META_TEXT, codec), records


def records_of(reader: Reader, document: Mapping[str, Any] | None) -> bytes | None:
    """The records of a snapshot's manifests, older before newer, where its lists were written here."""
    cache = cache_of(reader)
    if cache is None or document is None:
        return None
    lists = (document["baseManifestList"], document["deltaManifestList"])
    records = [cache.records(reader.root, f"{MANIFEST_FOLDER}/{name}") for name in lists]
    whole = None if None in records else b"".join(filter(None, records))
    return whole if whole and len(whole) <= _LIST_BYTES else None


def emit_hash_index(entries: pa.Table, added: Sequence[WrittenFile], schema: Schema) -> bytes:
    """An index manifest with `added` and those of `entries` (rows of `INDEX_ENTRY`) that no file of `added` replaces. A
    bucket has one file of hashes."""
    partitions, buckets = partition_rows([f.partition for f in added], schema), [f.bucket for f in added]
    files = [(f.path, f.size_bytes, f.row_count, None) for f in added]
    new = index_entries(HASH_INDEX, partitions.to_pylist(), buckets, files)
    replaced = set(zip(partitions.to_pylist(), buckets, strict=True))
    existing = zip(
        entries["_PARTITION"].to_pylist(),
        entries["_BUCKET"].to_pylist(),
        entries["_INDEX_TYPE"].to_pylist(),
        strict=True,
    )
    kept = [kind != HASH_INDEX or (partition, bucket) not in replaced for partition, bucket, kind in existing]
    return emit_index(pa.concat_tables([entries.filter(pa.array(kept, pa.bool_())), new]), schema)


def index_entries(
    kind: str,
    partitions: Sequence[bytes],
    buckets: Sequence[int],
    files: Sequence[tuple[str, int, int, list[dict[str, Any]] | None]],
    of_rows: Sequence[dict[str, Any]] | None = None,
) -> pa.Table:
    """Entries of an index manifest for new `files`: (path, size, count, ranges of deletion vectors). `of_rows`: of
    global indexes."""
    columns = {
        "_VERSION": [_INDEX_ENTRY_VERSION] * len(files),
        "_KIND": [int(EntryKind.ADD)] * len(files),
        "_PARTITION": partitions,
        "_BUCKET": buckets,
        "_INDEX_TYPE": [kind] * len(files),
        "_FILE_NAME": [path.rsplit("/", 1)[-1] for path, _, _, _ in files],
        "_FILE_SIZE": [size_bytes for _, size_bytes, _, _ in files],
        "_ROW_COUNT": [count for _, _, count, _ in files],
        "_DELETIONS_VECTORS_RANGES": [ranges for _, _, _, ranges in files],
        "_EXTERNAL_PATH": [None] * len(files),
        "_GLOBAL_INDEX": [None] * len(files) if of_rows is None else of_rows,
    }
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in INDEX_ENTRY], schema=INDEX_ENTRY)


def emit_index(entries: pa.Table, schema: Schema) -> bytes:
    """Rows of `INDEX_ENTRY` -> an index manifest. Without global indexes it has no field for them,
    as older engines write it."""
    if entries["_GLOBAL_INDEX"].null_count == len(entries):
        return avro.encode(entries.drop_columns(["_GLOBAL_INDEX"]), _INDEX_TEXT, options.read(schema).manifest_codec)
    return avro.encode(entries, _GLOBAL_TEXT, options.read(schema).manifest_codec)


def filter_index(data: bytes, keep: pa.Array, schema: Schema, where: str) -> bytes:
    """An index manifest with those of its entries for which `keep` is true, including fields that only its writer
    knows."""
    if data[:3] == b"ORC":
        raise UnsupportedFeature(f"{where}: index manifests in ORC are read, not written")
    decoded = avro.decode(data)
    return avro.encode(decoded.table.filter(keep), decoded.schema, options.read(schema).manifest_codec)


def merge(reader: Reader, metas: pa.Table, schema: Schema, name: str, full: bool = False) -> Manifests:
    """Manifests -> fewer manifests with the same entries (ManifestFileMerger): all of them with `full`, or if many
    entries are deleted or many manifests small; otherwise neighbours are merged up to the target size. `files` has the
    new ones; `metas` lists old and new ones, in order."""
    target = options.read(schema).manifest_target_file_size
    threshold = options.read(schema).manifest_full_compaction_threshold_size
    least = options.read(schema).manifest_merge_min_count
    sizes = metas["_FILE_SIZE"].to_numpy()
    worth = (metas["_NUM_DELETED_FILES"].to_numpy() > 0) | (sizes < target)
    if len(metas) > 1 and (full or sizes[worth].sum() >= threshold):
        return _merge_all(reader, metas, worth, schema, name)
    return _merge_neighbours(reader, metas, sizes, target, least, schema, name)


def are_many(metas: pa.Table, schema: Schema) -> bool:
    """Whether a full merge would make them fewer or remove deleted entries."""
    small = pc.less(metas["_FILE_SIZE"], options.read(schema).manifest_target_file_size)
    is_eaten = pc.any(pc.greater(metas["_NUM_DELETED_FILES"], 0)).as_py()
    return len(metas) > 1 and bool(is_eaten or pc.sum(small).as_py() > 1)


def sort(reader: Reader, metas: pa.Table, schema: Schema, name: str, request: RewriteManifests) -> Manifests:
    """Manifests -> manifests with the same live entries in the order of partition columns, so that each has a range of
    them (ManifestFileSorter). Large ones that overlap no other one stay as they are."""
    return _merge_all(reader, metas, _unsorted(metas, schema, request), schema, name, request.sort_by)


def are_unsorted(metas: pa.Table, schema: Schema, request: RewriteManifests) -> bool:
    """Whether `sort` has anything to do."""
    is_eaten = pc.any(pc.greater(metas["_NUM_DELETED_FILES"], 0)).as_py()
    return bool(is_eaten) or int(_unsorted(metas, schema, request).sum()) > (0 if request.rewrites_all else 1)


# --- private ----------------------------------------------------------------------------------------------------------


def _unsorted(metas: pa.Table, schema: Schema, request: RewriteManifests) -> np.ndarray:
    """Which manifests to sort: those with deleted entries in any case, for entries must not come after those that
    delete them; else up to `most_bytes` small ones and those whose range of the first column overlaps another's, or
    all."""
    sizes, eaten = np.asarray(metas["_FILE_SIZE"]), np.asarray(metas["_NUM_DELETED_FILES"]) > 0
    order, overlaps = _by_range(metas, schema, request.sort_by[0])
    small = sizes < options.read(schema).manifest_target_file_size
    chosen = eaten | overlaps | (small & (small.sum() > 1)) | request.rewrites_all
    if request.most_bytes is not None:
        order = np.concatenate([order[eaten[order]], order[(chosen & ~eaten)[order]]])
        chosen[order[np.cumsum(sizes[order]) > request.most_bytes]] = False
    return chosen | eaten


def _by_range(metas: pa.Table, schema: Schema, column: str) -> tuple[np.ndarray, np.ndarray]:
    """(the order of manifests by their least value of a partition column, which of them overlap another one). Those
    with NULLs or without bounds overlap."""
    bounds = partition_bounds(metas, schema)[column]
    encoded = pa.concat_arrays([bounds.minimum, bounds.maximum]).dictionary_encode(null_encoding="encode")
    ranks = np.argsort(np.asarray(pc.sort_indices(encoded.dictionary)))[np.asarray(encoded.indices)]
    low, high = ranks[: len(metas)], ranks[len(metas) :]
    order = np.lexsort((high, low))
    meets = low[order][1:] < np.maximum.accumulate(high[order])[:-1]
    overlaps = np.asarray(pc.fill_null(pc.not_equal(bounds.null_count, 0), True)) | np.asarray(bounds.minimum.is_null())
    overlaps[order] |= np.append(meets, False) | np.append(False, meets)
    return order, overlaps


def _in_order(entries: pa.Table, schema: Schema, columns: tuple[str, ...]) -> pa.Table:
    """Entries by these partition columns, then the others; those of a partition keep their order."""
    codes, values = partitions(entries, schema)
    names = [*columns, *(name for name in values.column_names if name not in columns)]
    order = np.asarray(pc.sort_indices(values, sort_keys=[(name, "ascending") for name in names]))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    return entries.take(pa.array(np.argsort(ranks[codes], kind="stable")))


def _merge_all(
    reader: Reader, metas: pa.Table, worth: np.ndarray, schema: Schema, name: str, columns: tuple[str, ...] = ()
) -> Manifests:
    """Everything worth merging becomes ADD entries, in the order of `columns` if given; large manifests that lose no
    entry stay unchanged."""
    small, large = np.flatnonzero(worth), np.flatnonzero(~worth)
    tables = dict(zip(small.tolist(), read_all(reader, metas.take(pa.array(small))), strict=True))
    keys = identity(pa.concat_tables([t.filter(pc.equal(t["_KIND"], int(EntryKind.DELETE))) for t in tables.values()]))
    # Manifests that lose nothing, most of a large table, are not in memory together.
    for start in range(0, len(large) if len(keys) else 0, _LARGE_AT_ONCE):
        some = large[start : start + _LARGE_AT_ONCE]
        for index, table in zip(some.tolist(), read_all(reader, metas.take(pa.array(some))), strict=True):
            if pc.any(pc.is_in(identity(table), value_set=keys)).as_py():
                tables[index] = table
    live, _ = fold([tables[index] for index in sorted(tables)])
    merged = remembered(reader, emit(_in_order(live, schema, columns) if columns else live, schema, name))
    kept = metas.take(pa.array([index for index in range(len(metas)) if index not in tables], pa.int64()))
    return Manifests(merged.files, pa.concat_tables([kept, merged.metas]))


def _merge_neighbours(
    reader: Reader, metas: pa.Table, sizes: np.ndarray, target: int, least: int, schema: Schema, name: str
) -> Manifests:
    """Neighbours are merged once they reach the target size; the rest at the end once there are `least` of them."""
    bins: list[tuple[int, int]] = []
    start, total = 0, 0
    for i, size_bytes in enumerate(sizes):
        total += int(size_bytes)
        if total >= target:
            bins.append((start, i + 1))
            start, total = i + 1, 0
    tail = len(sizes) - start
    files: dict[str, bytes] = {}
    result = []
    for n, (low, high) in enumerate([*bins, (start, len(sizes))]):
        part = metas.slice(low, high - low)
        if high - low < 2 or (low == start and tail < least):
            result.append(part)
            continue
        live, unmatched = fold(read_all(reader, part))
        # A DELETE whose ADD is in an older manifest must stay, and must not come before an ADD that it would remove.
        merged = remembered(reader, emit(pa.concat_tables([unmatched, live]), schema, f"{name}-{n}"))
        files |= merged.files
        result.append(merged.metas)
    return Manifests(files, pa.concat_tables(result) if result else metas)


def _meta(entries: pa.Table, schema: Schema, name: str, size_bytes: int) -> pa.Table:
    added = int(np.count_nonzero(entries["_KIND"].to_numpy() == int(EntryKind.ADD)))
    codes, values = partitions(entries, schema)
    kinds = partition_types(schema)
    occurrences = np.bincount(codes, minlength=len(values))
    lows, highs, nulls = [], [], []
    for chunks in values.columns if kinds else []:
        column = chunks.combine_chunks()
        bounds = pc.min_max(column)
        lows.append(pa.array([bounds["min"]], column.type))
        highs.append(pa.array([bounds["max"]], column.type))
        nulls.append(int(occurrences[np.asarray(column.is_null())].sum()))
    buckets, levels = entries["_BUCKET"].to_numpy(), entries["_LEVEL"].to_numpy()
    stats = stats_struct(lows, highs, kinds, [nulls])
    row = {
        "_VERSION": _ENTRY_VERSION,
        "_FILE_NAME": name,
        "_FILE_SIZE": size_bytes,
        "_NUM_ADDED_FILES": added,
        "_NUM_DELETED_FILES": len(entries) - added,
        "_PARTITION_STATS": stats[0].as_py(),
        "_SCHEMA_ID": schema.id,
        "_MIN_BUCKET": int(buckets.min()),
        "_MAX_BUCKET": int(buckets.max()),
        "_MIN_LEVEL": int(levels.min()),
        "_MAX_LEVEL": int(levels.max()),
        "_MIN_ROW_ID": None,
        "_MAX_ROW_ID": None,
    }
    return one_row(row, META)


def stats_struct(
    lows: Sequence[pa.Array],
    highs: Sequence[pa.Array],
    kinds: Sequence[Type],
    null_counts: Sequence[Sequence[int | None]],
) -> pa.StructArray:
    """Columns of lower and upper bounds -> one statistics record per row."""
    count = len(null_counts)
    if kinds:  # Encoded together, for a call costs as much as some hundred rows.
        both = [pa.concat_arrays([low, high]) for low, high in zip(lows, highs, strict=True)]
        rows = binary_row.with_arity(binary_row.encode(both, kinds), len(kinds))
        low, high = rows[:count], rows[count:]
    else:
        low = high = empty_rows(count)
    return pa.StructArray.from_arrays([low, high, pa.array(null_counts, pa.list_(pa.int64()))], fields=list(_STATS))


def empty_rows(count: int) -> pa.Array:
    """The row without columns, `count` times: arity 0 and eight bytes of flags."""
    return pa.array([EMPTY_ROW] * count, pa.binary())


EMPTY_ROW = bytes(12)


def _nest(entries: pa.Table) -> pa.Table:
    (whole,) = entries.select(ENTRY.names).combine_chunks().to_batches()
    columns = dict(zip(ENTRY.names, whole.columns, strict=True))
    file = pa.StructArray.from_arrays([columns[f.name] for f in _FILE_FIELDS], fields=_FILE_FIELDS)
    version = pa.array(np.full(len(entries), _ENTRY_VERSION, np.int32))
    return pa.Table.from_arrays([version, *(columns[f.name] for f in _ENTRY_FIELDS), file], schema=_NESTED_ENTRY)


def _net(adds: pa.ChunkedArray, deletes: pa.ChunkedArray) -> pa.Table:
    keys = pa.chunked_array([*adds.chunks, *deletes.chunks], type=pa.binary())
    weights = pa.array(np.r_[np.ones(len(adds), np.int64), -np.ones(len(deletes), np.int64)])
    grouped = pa.table({"key": keys, "net": weights}).group_by("key").aggregate([("net", "sum")])
    return grouped.rename_columns({"net_sum": "net"})


def _last_of_each(entries: pa.Table) -> pa.Table:
    keys = identity(entries)
    order = pa.array(np.arange(len(entries)))
    last = pa.table({"key": keys, "at": order}).group_by("key").aggregate([("at", "max")])["at_max"]
    return entries.take(pc.take(last, pc.sort_indices(last)))


def _decode(data: bytes) -> pa.Table:
    return orc.ORCFile(io.BytesIO(data)).read() if data[:3] == b"ORC" else avro.decode(data).table


def _batches(data: bytes, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    if data[:3] == b"ORC":
        return orc.ORCFile(io.BytesIO(data)).read().combine_chunks().to_batches()
    return avro.batches(data, None if schema is ENTRY else _placed_columns)


def _placed_columns(head: avro.Head) -> list[str]:
    """The columns to keep for `_PLACED`; with unknown fields too, since these are refused."""
    known = [column for column in head.record.columns() if column.removeprefix("_FILE.") not in _NOT_PLANNED]
    return [*known, f"_FILE.{_STATS_AT}"]


def _check_version(table: pa.Table | pa.RecordBatch, version: int, where: str) -> None:
    if "_VERSION" in table.schema.names and len(table):
        highest = pc.max(table["_VERSION"]).as_py()
        if highest != version or pc.min(table["_VERSION"]).as_py() != version:
            raise UnsupportedFeature(f"{where}: entries of version {highest}; lakeformat knows version {version}")


def _check_unknown(file: pa.StructArray, names: list[str], known_names: set[str], where: str) -> None:
    for name in names:
        if name not in known_names:
            column = pc.struct_field(file, name)
            if column.null_count < len(column):
                raise UnsupportedFeature(
                    f"{where}: files have {name}, which lakeformat does not know; it does not read tables in part"
                )


def _conform(columns: Mapping[str, Any], schema: pa.Schema, rows: int, where: str) -> pa.Table:
    try:
        arrays = [_cast(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    except (pa.ArrowException, ValueError) as error:
        raise CorruptFile(f"{where}: {error}") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        names = [f.name for f in array.type]
        parts = [
            _cast(pc.struct_field(array, f.name), f.type) if f.name in names else pa.nulls(len(array), f.type)
            for f in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).cast(kind)
    return array.cast(kind)


# --- Avro schemas, as Java writes them
# ---------------------------------------------------------------------------------


def _optional(kind: Any) -> list[Any]:
    return ["null", kind]


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _record(name: str, fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            {"name": n, "type": t, "default": None} if isinstance(t, list) else {"name": n, "type": t}
            for n, t in fields
        ],
    }


def _stats_record(name: str) -> dict[str, Any]:
    return _record(
        name,
        [("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", _optional(_array(_optional("long"))))],
    )


_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}

ENTRY_SCHEMA = _record(
    "record",
    [
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_TOTAL_BUCKETS", "int"),
        (
            "_FILE",
            _record(
                "record__FILE",
                [
                    ("_FILE_NAME", "string"),
                    ("_FILE_SIZE", "long"),
                    ("_ROW_COUNT", "long"),
                    ("_MIN_KEY", "bytes"),
                    ("_MAX_KEY", "bytes"),
                    ("_KEY_STATS", _stats_record("record__FILE__KEY_STATS")),
                    ("_VALUE_STATS", _stats_record("record__FILE__VALUE_STATS")),
                    ("_MIN_SEQUENCE_NUMBER", "long"),
                    ("_MAX_SEQUENCE_NUMBER", "long"),
                    ("_SCHEMA_ID", "long"),
                    ("_LEVEL", "int"),
                    ("_EXTRA_FILES", _array("string")),
                    ("_CREATION_TIME", _optional(_MILLIS)),
                    ("_DELETE_ROW_COUNT", _optional("long")),
                    ("_EMBEDDED_FILE_INDEX", _optional("bytes")),
                    ("_FILE_SOURCE", _optional("int")),
                    ("_VALUE_STATS_COLS", _optional(_array("string"))),
                    ("_EXTERNAL_PATH", _optional("string")),
                    ("_FIRST_ROW_ID", _optional("long")),
                    ("_WRITE_COLS", _optional(_array("string"))),
                ],
            ),
        ),
    ],
)
META_SCHEMA = _record(
    "record",
    [
        ("_VERSION", "int"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_NUM_ADDED_FILES", "long"),
        ("_NUM_DELETED_FILES", "long"),
        ("_PARTITION_STATS", _stats_record("record__PARTITION_STATS")),
        ("_SCHEMA_ID", "long"),
        ("_MIN_BUCKET", _optional("int")),
        ("_MAX_BUCKET", _optional("int")),
        ("_MIN_LEVEL", _optional("int")),
        ("_MAX_LEVEL", _optional("int")),
        ("_MIN_ROW_ID", _optional("long")),
        ("_MAX_ROW_ID", _optional("long")),
    ],
)
_INDEX_FIELDS = [
    ("_VERSION", "int"),
    ("_KIND", "int"),
    ("_PARTITION", "bytes"),
    ("_BUCKET", "int"),
    ("_INDEX_TYPE", "string"),
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_ROW_COUNT", "long"),
    (
        "_DELETIONS_VECTORS_RANGES",
        _optional(
            _array(
                _optional(
                    _record(
                        "record__DELETIONS_VECTORS_RANGES",
                        [("f0", "string"), ("f1", "int"), ("f2", "int"), ("_CARDINALITY", _optional("long"))],
                    )
                )
            )
        ),
    ),
    ("_EXTERNAL_PATH", _optional("string")),
]
INDEX_SCHEMA = _record("record", _INDEX_FIELDS)
_GLOBAL_INDEX_FIELDS = [
    ("_ROW_RANGE_START", "long"),
    ("_ROW_RANGE_END", "long"),
    ("_INDEX_FIELD_ID", "int"),
    ("_EXTRA_FIELD_IDS", _optional(_array("int"))),
    ("_INDEX_META", _optional("bytes")),
    ("_SOURCE_META", _optional("bytes")),
]
GLOBAL_INDEX_SCHEMA = _record(
    "record", [*_INDEX_FIELDS, ("_GLOBAL_INDEX", _optional(_record("record__GLOBAL_INDEX", _GLOBAL_INDEX_FIELDS)))]
)

_ENTRY_TEXT, _META_TEXT, _INDEX_TEXT, _GLOBAL_TEXT = map(
    avro.spell, (ENTRY_SCHEMA, META_SCHEMA, INDEX_SCHEMA, GLOBAL_INDEX_SCHEMA)
)
