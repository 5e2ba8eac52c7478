"""How far a table follows its source, in the properties of its snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from lakeformat.cdc.source import Position
from lakeformat.errors import CorruptTable
from lakeformat.table import Table

SOURCE, POSITION, SNAPSHOT, COMMITTED = "cdc.source", "cdc.position", "cdc.snapshot", "cdc.committed-ms"
FILLING, SHARDS, KEPT = "cdc.filling", "cdc.shards", "cdc.kept"
USER = "cdc"  # Of the stream that commits.
RESTART = "cdc.restart"  # The name of the restart that a snapshot is of.
_RESTORED = "lakeformat.restored-from"  # In the snapshot that a rollback makes: the one whose rows it has again.


@dataclass(frozen=True, slots=True)
class Viewed:
    """Keys up to `upto` (None: all that are left) were read in one view."""

    upto: tuple[str, ...] | None
    view: str
    until: str  # The position that no transaction in the view comes after.


@dataclass(frozen=True, slots=True)
class Filling:
    """Columns that the source added, and whose values of rows that were there its log does not have: a default's, for one. They are read
    from the source once the table has reached `after`: the log's rows up to there may lack them."""

    columns: tuple[str, ...]
    after: str
    upto: tuple[str, ...] | None = None  # Of rows up to this key they are filled in.
    until: str | None = None  # No later transaction is in what was read.
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """All transactions up to `position` are in the table; of those after it, what the views show. Without a last view up to the
    end of the table the snapshot is not complete."""

    position: str
    views: tuple[Viewed, ...] = ()
    is_complete: bool = False
    filling: Filling | None = None
    parts: tuple[str, ...] = ()  # Of a table of several: in the order in which their rows were, or are to be, read.
    # As `Source.kept` had the tables since this began; none in what earlier versions wrote.
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def upto(self) -> tuple[str, ...] | None:
        """The last key that is read, of a snapshot that is not complete."""
        return self.views[-1].upto if self.views else None

    def with_chunk(self, view: str, until: Position, upto: tuple[str, ...] | None) -> Progress:
        before = self.views[:-1] if self.views and self.views[-1].view == view else self.views
        return replace(self, views=(*before, Viewed(upto, view, until.text)), is_complete=upto is None)

    def properties(self, source: str) -> dict[str, str]:
        views = [[each.upto, each.view, each.until] for each in self.views]
        properties = {SOURCE: source, POSITION: self.position}
        if self.filling is not None:
            properties[FILLING] = json.dumps(astuple(self.filling))
        if self.parts:
            properties[SHARDS] = json.dumps(self.parts)
        if any(entry for _, entry in self.kept):
            properties[KEPT] = json.dumps(dict(self.kept))
        if self.is_complete and not views:
            return properties
        return properties | {SNAPSHOT: json.dumps([self.is_complete, views])}


def read(table: Table) -> tuple[str, Progress] | None:
    """What the table follows and how far: of the newest snapshot that led to the table's rows and records it."""
    at, history = None, {each.id: each for each in table.snapshots()}
    for id in reversed(history):
        if at is not None and id != at:
            continue
        properties, at = history[id].properties, None
        if POSITION in properties:
            return properties.get(SOURCE, ""), _parse(properties, table.name)
        if origin := properties.get(_RESTORED):
            at = int(origin)
    return None


def has_restarted(table: Table, name: str) -> bool:
    """Whether the table was taken anew under that name."""
    return any(each.properties.get(RESTART) == name for each in table.snapshots())


def last_restart(table: Table) -> str | None:
    """The name under which it was taken anew last."""
    return next((each.properties[RESTART] for each in reversed(table.snapshots()) if RESTART in each.properties), None)


def _parse(properties: Mapping[str, str], name: str) -> Progress:
    try:
        is_complete, views = json.loads(properties.get(SNAPSHOT, "[true, []]"))
        viewed = tuple(Viewed(_key(upto), view, until) for upto, view, until in views)
        filling = None
        if FILLING in properties:
            columns, after, upto, until, is_done = json.loads(properties[FILLING])
            filling = Filling(tuple(columns), after, _key(upto), until, is_done)
        parts = tuple(json.loads(properties.get(SHARDS, "[]")))
        kept = tuple(sorted(json.loads(properties.get(KEPT, "{}")).items()))
    except (ValueError, TypeError, AttributeError) as error:
        wrong = {each: properties.get(each) for each in (SNAPSHOT, FILLING, SHARDS, KEPT)}
        raise CorruptTable(f"{name}: properties {wrong} are none of a sync's ({error})") from error
    return Progress(properties[POSITION], viewed, bool(is_complete), filling, parts, kept)


def _key(texts: list[str] | None) -> tuple[str, ...] | None:
    return None if texts is None else tuple(texts)
