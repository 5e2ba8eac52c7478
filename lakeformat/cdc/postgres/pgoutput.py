"""Decodes messages of PostgreSQL's `pgoutput` plugin (protocol 1) into columns, all messages at once.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakeformat.codec import spans
from lakeformat.errors import CorruptFile
from lakeformat.model.work import RowKind

_EPOCH_MS = 946_684_800_000  # 2000-01-01.
_PAD = spans.WORD  # Padding after the last message, for reads ahead.
_VALUE_HEAD = 5  # Bytes before a value: its mark and its length (int32).


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as a `Relation` message describes it."""

    id: int
    name: str
    columns: tuple[tuple[str, int, int], ...]  # (name, type id, type modifier)
    identity: str  # "f": old rows are complete; "d", "i": they have only the columns of `key`; "n": no old rows.
    key: frozenset[str]


@dataclass(frozen=True, slots=True)
class RelationRows:
    """Rows of one relation between two of its `Relation` messages."""

    relation: Relation
    columns: list[pa.Array]  # Binary arrays with the text of the values.
    unchanged: list[np.ndarray | None]  # Per column: mask of rows whose unchanged value is omitted.
    kinds: np.ndarray
    places: np.ndarray  # Message number of each row, from 0; both rows of an update have the same.
    is_key_only: np.ndarray  # Rows that have only the replica identity's columns.
    replaces: np.ndarray | None = None  # Per row: index of its old row in the previous `RelationRows`.

    @property
    def lacks_old_row(self) -> np.ndarray:
        """Per row: whether it is an old row with the key alone, or a new row whose old one is not in the log."""
        lacking: np.ndarray = self.is_key_only | ((self.kinds == RowKind.UPDATE_AFTER) & (self.replaces is None))
        return lacking


@dataclass(frozen=True, slots=True)
class Commits:
    """The transactions of the messages, in commit order."""

    last: np.ndarray  # Per transaction: the number of its last message.
    ends: np.ndarray  # Per transaction: the position after it.
    ids: np.ndarray
    committed_ms: np.ndarray  # Milliseconds since 1970.


@dataclass(slots=True)
class Decoded:
    """The decoded messages of some transactions."""

    rows: list[RelationRows]
    ends: np.ndarray  # Per message: the position after its transaction.
    transactions: np.ndarray  # Per message: its transaction id.
    committed_ms: np.ndarray  # Per message: commit time of its transaction, milliseconds since 1970.
    truncated: list[tuple[Relation, int]]  # Truncated relations, each with the message number.
    relations: dict[int, Relation] = field(default_factory=dict)


def commits(parts: Iterable[tuple[bytearray, np.ndarray]]) -> Commits:
    """The transactions of `parts`, which hold all messages of whole transactions:
    bytes and message offsets of each part."""
    blocks, begun, count = list[np.ndarray](), list[np.ndarray](), 0
    for data, starts in parts:
        buffer = np.frombuffer(data, np.uint8)
        tags = buffer[starts]
        begins, ends = np.flatnonzero(tags == ord("B")), np.flatnonzero(tags == ord("C"))
        begun.append(np.stack([begins + count, _int(buffer, starts[begins] + 17, 4)]))
        times = _int(buffer, starts[ends] + 18, 8) // 1000 + _EPOCH_MS
        blocks.append(np.stack([ends + count, _int(buffer, starts[ends] + 10, 8), times]))
        count += len(starts)
    first, ids = np.hstack([np.empty((2, 0), np.int64), *begun])
    last, positions, times = np.hstack([np.empty((3, 0), np.int64), *blocks])
    if len(first) != len(last) or (first > last).any():
        raise CorruptFile(f"pgoutput: {len(first)} transactions begin and {len(last)} are committed")
    return Commits(last, positions, ids, times)


def decode(
    data: bytearray, starts: np.ndarray, earlier: Mapping[int, Relation], transactions: Commits, first: int = 0
) -> Decoded:
    """Decode `data`, whose messages begin at `starts`; pads `data` in place. `first`: the number of its first message
    among the messages of `transactions`. `earlier`: relations from earlier `Relation` messages."""
    data += bytes(_PAD)
    buffer = np.frombuffer(data, np.uint8)
    tags = buffer[starts]
    of = np.searchsorted(transactions.last, first + np.arange(len(tags)))  # The transaction of each message.
    relations, pieces, truncated = dict(earlier), list[RelationRows](), list[tuple[Relation, int]]()
    is_row = np.isin(tags, np.frombuffer(b"IUD", np.uint8))
    row_places = np.flatnonzero(is_row)
    ids = _int(buffer, starts[row_places] + 1, 4)
    # A `Relation` message applies to the rows after it, up to the next one of the same relation.
    changes = [
        (int(message_index), _relation(data, int(starts[message_index])))
        for message_index in np.flatnonzero(tags == ord("R"))
    ]
    for relation_id in np.unique(ids).tolist():
        places = row_places[ids == relation_id]
        own = [(message_index, relation) for message_index, relation in changes if relation.id == relation_id]
        edges = [message_index for message_index, _ in own]
        versions = [relations.get(relation_id), *(relation for _, relation in own)]
        which = np.searchsorted(edges, places)
        for number in np.unique(which).tolist():
            relation = versions[number]
            if relation is None:
                raise CorruptFile(f"pgoutput: rows of relation {relation_id} come before its description")
            pieces += _rows(buffer, starts, tags, places[which == number], relation)
    for message_index in np.flatnonzero(tags == ord("T")).tolist():
        count = int(_int(buffer, starts[message_index : message_index + 1] + 1, 4)[0])
        named = _int(buffer, starts[message_index] + 6 + 4 * np.arange(count), 4).tolist()
        described = {relation.id: relation for index, relation in changes if index < message_index}
        truncated += [(described.get(oid) or relations[oid], message_index) for oid in named]
    relations |= {relation.id: relation for _, relation in changes}
    return Decoded(
        pieces,
        transactions.ends[of],
        transactions.ids[of],
        transactions.committed_ms[of],
        truncated,
        relations,
    )


def _rows(
    buffer: np.ndarray, starts: np.ndarray, tags: np.ndarray, places: np.ndarray, relation: Relation
) -> Iterator[RelationRows]:
    """The rows in messages of one relation: first each message's first row,
    then the new rows of updates that have two."""
    offsets = starts[places] + 5
    marks, kinds = buffer[offsets], np.empty(len(places), np.int8)
    is_update = tags[places] == ord("U")
    has_old = is_update & (marks != ord("N"))
    kinds[tags[places] == ord("I")] = RowKind.INSERT
    kinds[is_update] = np.where(has_old[is_update], RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)
    kinds[tags[places] == ord("D")] = RowKind.DELETE
    columns, unchanged, after = _tuples(buffer, offsets + 1, relation)
    yield RelationRows(relation, columns, unchanged, kinds, places, marks == ord("K"))
    if has_old.any():
        if (buffer[after[has_old]] != ord("N")).any():
            raise CorruptFile(f"pgoutput: an update of {relation.name} has no new row")
        columns, unchanged, _ = _tuples(buffer, after[has_old] + 1, relation)
        count = int(has_old.sum())
        kinds = np.full(count, RowKind.UPDATE_AFTER, np.int8)
        yield RelationRows(
            relation, columns, unchanged, kinds, places[has_old], np.zeros(count, bool), np.flatnonzero(has_old)
        )


def _tuples(
    buffer: np.ndarray, offsets: np.ndarray, relation: Relation
) -> tuple[list[pa.Array], list[np.ndarray | None], np.ndarray]:
    """Decode the tuples at `offsets`: values and unchanged masks per column, and where each tuple ends."""
    counts = _int(buffer, offsets, 2)
    if (counts != len(relation.columns)).any():
        raise CorruptFile(
            f"pgoutput: a row of {relation.name} has not the {len(relation.columns)} columns of its table"
        )
    offsets, columns, unchanged = offsets + 2, list[pa.Array](), list[np.ndarray | None]()
    words = spans.words(buffer)
    for _ in relation.columns:
        heads = words[offsets]  # Mark and length in one read: the offsets are too far apart for the cache.
        marks, lengths = heads.astype(np.uint8), (heads >> 8).astype(np.uint32).byteswap()
        has_value = marks == ord("t")
        begins = offsets + np.where(has_value, _VALUE_HEAD, 1)
        offsets = begins + np.where(has_value, lengths, 0)
        columns.append(spans.gather(buffer, begins, offsets, None if has_value.all() else ~has_value))
        same = marks == ord("u")
        unchanged.append(same if same.any() else None)
    return columns, unchanged, offsets


def _int(buffer: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    """Big-endian integers of `size` bytes, as int64."""
    numbers = np.ndarray((max(0, len(buffer) - size + 1),), f">u{size}", buffer, 0, (1,))
    return numbers[offsets].astype(np.int64)


def _relation(data: bytearray, start: int) -> Relation:
    id = int.from_bytes(data[start + 1 : start + 5])
    namespace, offset = _text(data, start + 5)
    name, offset = _text(data, offset)
    identity, count, offset = chr(data[offset]), int.from_bytes(data[offset + 1 : offset + 3]), offset + 3
    columns, key = [], set[str]()
    for _ in range(count):
        is_key = data[offset] & 1
        column, offset = _text(data, offset + 1)
        key |= {column} if is_key else set()
        columns.append(
            (
                column,
                int.from_bytes(data[offset : offset + 4]),
                int.from_bytes(data[offset + 4 : offset + 8], signed=True),
            )
        )
        offset += 8
    return Relation(id, f"{namespace or 'pg_catalog'}.{name}", tuple(columns), identity, frozenset(key))


def _text(data: bytearray, start: int) -> tuple[str, int]:
    end = data.index(0, start)
    return data[start:end].decode(), end + 1
