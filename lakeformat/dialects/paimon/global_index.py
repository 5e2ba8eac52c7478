"""Pruning by global indexes with B-trees: which files of a table with data evolution may have a row that satisfies a
condition.

An index covers a range of row ids. Rows outside all ranges are unknown to it, and so are values that column files have
replaced since. Indexes of other kinds are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import spans
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.paimon.btree_index import Ends, File
from lakeformat.dialects.paimon import manifest, metadata, options
from lakeformat.dialects.paimon.metadata import State
from lakeformat.errors import CorruptFile, NoSuchFile, UnsupportedFeature
from lakeformat.expression import evaluation, pruning
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression, and_, columns_of, conjuncts
from lakeformat.model.schema import Field, Kind, Scalar, Type
from lakeformat.storage.store import Reader

_MOST_BYTES = 16 << 20  # Of blocks that are read for a column; an index that would take more proves too little.
# How an index stores the values; others, such as -0.0 and times of another precision,
# are not told apart by their bytes.
_STORED = {Kind.TINYINT: "<i1", Kind.SMALLINT: "<i2", Kind.INT: "<i4", Kind.BIGINT: "<i8", Kind.DATE: "<i4"}
_NO_BTREES = pa.Table.from_batches(
    [],
    pa.schema(
        [
            ("path", pa.string()),
            ("field_id", pa.int32()),
            ("first", pa.int64()),
            ("last", pa.int64()),
            ("ends", pa.binary()),
        ]
    ),
)
_TEXTS = {Kind.STRING, Kind.CHAR, Kind.VARCHAR}


def read_all(reader: Reader, document: Mapping[str, Any] | None) -> pa.Table:
    """The global indexes of one column with a B-tree in a snapshot's index manifest: the `path` of each, the column's
    id `field_id`, the row ids that it covers (from `first` to `last`), and its `ends` (see `btree_index.Ends`)."""
    entries = manifest.read_index(reader, document)
    if not pc.any(pc.equal(entries["_INDEX_TYPE"], manifest.BTREE_INDEX)).as_py():
        return _NO_BTREES
    of = entries["_GLOBAL_INDEX"].combine_chunks()
    extra = pc.fill_null(pc.list_value_length(pc.struct_field(of, "_EXTRA_FIELD_IDS")), 0)
    is_btree = pc.and_(
        pc.equal(entries["_INDEX_TYPE"], manifest.BTREE_INDEX), pc.and_(of.is_valid(), pc.equal(extra, 0))
    )
    names = ("_INDEX_FIELD_ID", "_ROW_RANGE_START", "_ROW_RANGE_END", "_INDEX_META")
    columns = [pa.array(manifest.index_paths(entries), pa.string()), *(pc.struct_field(of, name) for name in names)]
    table = pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, _NO_BTREES.schema, strict=True)],
        schema=_NO_BTREES.schema,
    )
    return table.filter(pc.and_(is_btree, table["ends"].is_valid()))


def may_hold(reader: Reader, base: State, entries: pa.Table, predicate: Expression) -> np.ndarray:
    """For each file of `entries`, whether a row for which `predicate` is true may be in it."""
    keep = np.ones(len(entries), bool)
    given = options.read(base.schema)
    if not given.global_index_enabled or given.global_index_column_update_action == "ignore":
        return keep
    indexes = read_all(reader, base.document)
    for field, condition in _conditions_by_field(reader, base, indexes, predicate):
        own = indexes.filter(pc.equal(indexes["field_id"], field.id))
        keep &= _of_column(reader, own, entries.filter(pa.array(keep)), keep, field, condition)
    return keep


def stored(values: pa.Array, type: Type) -> pa.Array:
    """Values without nulls as an index stores them: see `_values`."""
    assert isinstance(type, Scalar), type
    if type.kind in _TEXTS:
        return values.cast(pa.binary())
    layout = np.dtype(_STORED[type.kind])
    numbers = np.asarray(values.cast(pa.int32()) if type.kind is Kind.DATE else values).astype(layout)
    return spans.fixed(numbers.view(np.uint8), layout.itemsize, len(numbers))


def is_known(type: Type) -> bool:
    return isinstance(type, Scalar) and (type.kind in _STORED or type.kind in _TEXTS)


def _conditions_by_field(
    reader: Reader, base: State, indexes: pa.Table, predicate: Expression
) -> Iterator[tuple[Field, Expression]]:
    """The indexed columns, and what the predicate asks of each alone that NULL does not satisfy."""
    if not len(indexes):
        return
    ids = set(indexes["field_id"].to_pylist())
    for field in base.schema.fields:
        parts = [part for part in conjuncts(predicate) if columns_of(part) == {field.name}]
        if field.id not in ids or not parts or not is_known(field.type):
            continue
        condition = and_(*parts)
        null = pa.RecordBatch.from_arrays([pa.nulls(1, to_arrow(field.type))], [field.name])
        if not evaluation.mask(condition, null)[0].as_py() and always_had(reader, base, field):
            yield field, condition


def always_had(reader: Reader, base: State, field: Field) -> bool:
    """Whether a column has always had its type, so that its indexes store values of it."""
    for schema in metadata.read_schemas(reader, range(base.schema.id)):
        if schema is None or any(f.id == field.id and f.type != field.type for f in schema.fields):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an index says of a condition: the row ids that it covers, and those that satisfy it."""

    first: int
    last: int
    row_ids: np.ndarray


def _of_column(
    reader: Reader, indexes: pa.Table, entries: pa.Table, keep: np.ndarray, field: Field, condition: Expression
) -> np.ndarray:
    """`keep` without the files whose rows are all in indexes of `field`, and of which none satisfies `condition`.
    `entries` are those that are kept."""
    first, counts = np.asarray(entries["_FIRST_ROW_ID"]), np.asarray(entries["_ROW_COUNT"])
    begins, ends = np.asarray(indexes["first"]), np.asarray(indexes["last"]) + 1
    order = np.argsort(first)
    # Indexes of rows in these files: some file begins before the index ends,
    # and the last such one ends after it begins.
    before = np.searchsorted(first[order], ends)
    reach = np.concatenate(([0], np.maximum.accumulate((first + counts)[order])))
    used = indexes.filter(pa.array(reach[before] > begins))
    answers = _hits(reader, used, field, condition)
    if not answers:
        return keep
    starts, stops = joined(
        np.array([answer.first for answer in answers]), np.array([answer.last + 1 for answer in answers])
    )
    at = np.searchsorted(starts, first, side="right") - 1
    covered = (at >= 0) & (stops[np.maximum(at, 0)] >= first + counts)
    row_ids = np.sort(np.concatenate([answer.row_ids for answer in answers]))
    hit = np.searchsorted(row_ids, first + counts) > np.searchsorted(row_ids, first)
    result = keep.copy()
    result[np.flatnonzero(keep)[covered & ~hit]] = False
    return result


def joined(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges that overlap or touch, as one."""
    if not len(starts):
        return starts, stops
    order = np.argsort(starts)
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    is_new = np.concatenate(([True], starts[1:] > reach[:-1]))
    return starts[is_new], reach[np.append(np.flatnonzero(is_new)[1:] - 1, len(reach) - 1)]


def _hits(reader: Reader, indexes: pa.Table, field: Field, condition: Expression) -> list[_Answer]:
    """What the indexes of a column say. Of those of the same rows each has other values:
    if one cannot be read, none is used."""
    rows = indexes.to_pylist()
    ends = [Ends.parse(row["ends"], f"{reader.root}/{row['path']}") for row in rows]
    low, high = (_values([getattr(end, name) for end in ends], field.type) for name in ("first", "last"))
    asks = _may_have(condition, field, low, high)
    budget, answers, unread = _MOST_BYTES, list[_Answer](), set[tuple[int, int]]()
    opened = reader.several(
        partial(_opened, reader), [row["path"] if ask else None for row, ask in zip(rows, asks, strict=True)]
    )
    for row, ask, lowest, file in zip(rows, asks, low, opened, strict=True):
        covers = row["first"], row["last"]
        if not ask:
            answers.append(_Answer(*covers, np.zeros(0, np.int64)))
            continue
        if file is None:
            unread.add(covers)
            continue
        values = _values(file.last_values, field.type)
        before = pa.concat_arrays([pa.array([lowest.as_py()], values.type), values.slice(0, max(len(values) - 1, 0))])
        blocks = np.flatnonzero(_may_have(condition, field, before.slice(0, len(values)), values))
        budget -= int(file.block_bytes[blocks].sum())
        if budget < 0:
            return []
        try:
            row_ids = [_row_ids(file, int(block), field, condition) for block in blocks]
        except UnsupportedFeature:
            unread.add(covers)
            continue
        answers.append(_Answer(*covers, np.concatenate([np.zeros(0, np.int64), *row_ids]) + row["first"]))
    return [answer for answer in answers if not any(a <= answer.last and answer.first <= z for a, z in unread)]


def _opened(reader: Reader, path: str | None) -> File | None:
    """An index; None without a path, and if it is missing or of a kind that is not known: it proves nothing."""
    try:
        return None if path is None else File(reader.open(path), f"{reader.root}/{path}")
    except (NoSuchFile, UnsupportedFeature):
        return None


def _row_ids(file: File, block: int, field: Field, condition: Expression) -> np.ndarray:
    """The row ids of the values in a block that satisfy the condition."""
    try:
        stored, row_ids, of = file.block(block)
    except (ValueError, IndexError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"{file.path}: block {block} of the index is damaged: {error}") from error
    batch = pa.RecordBatch.from_arrays([_values(stored, field.type)], [field.name])
    hit = np.asarray(pc.fill_null(evaluation.mask(condition, batch), False))
    return row_ids[hit[of]].astype(np.int64)


def _may_have(condition: Expression, field: Field, low: pa.Array, high: pa.Array) -> np.ndarray:
    """Whether values between these may satisfy the condition; no value is NULL. Without bounds there are no values."""
    count = len(low)
    no_nulls, one = pa.array(np.zeros(count, np.int64)), pa.array(np.ones(count, np.int64))
    bounds = {field.name: pruning.Bounds(low, high, no_nulls, one)}
    return np.asarray(pruning.may_match(condition, bounds, count)) & np.asarray(high.is_valid())


def _values(stored: pa.Array | list[bytes | None], type: Type) -> pa.Array:
    """Values as an index stores them, in the column's Arrow type. Raises `CorruptFile`."""
    assert isinstance(type, Scalar), type
    stored = stored if isinstance(stored, pa.Array) else pa.array(stored, pa.binary())
    if type.kind in _TEXTS:
        return stored.cast(to_arrow(type))
    layout = np.dtype(_STORED[type.kind])
    sizes = pc.binary_length(stored)
    if pc.any(pc.not_equal(sizes, layout.itemsize)).as_py():
        raise CorruptFile(f"an index of a column of type {type} has a value of another length")
    filled = pc.fill_null(stored, bytes(layout.itemsize))
    start = int(spans.offsets_of(filled)[0])
    numbers = np.frombuffer(filled.buffers()[2] or b"", layout, len(filled), start)
    values = pa.array(numbers.astype(layout.newbyteorder("=")), mask=np.asarray(stored.is_null()))
    return values.cast(to_arrow(type))
