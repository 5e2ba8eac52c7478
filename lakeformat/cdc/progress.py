"""A table's progress through its source, stored in snapshot properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from lakeformat.cdc.source import Position
from lakeformat.errors import CorruptTable
from lakeformat.table import Table

SOURCE, POSITION, SNAPSHOT, COMMITTED = "cdc.source", "cdc.position", "cdc.snapshot", "cdc.committed-ms"
FILLING, SHARDS, KEPT = "cdc.filling", "cdc.shards", "cdc.kept"
VERSION, COMPARES, WHERE = "cdc.version", "cdc.compares", "cdc.where"
USER = "cdc"  # Commit user of the stream.
RESTART = "cdc.restart"  # Snapshot property: the name of the last restart.
_RESTORED = "lakeformat.restored-from"  # Property of a rollback's snapshot: the snapshot that it restored.


@dataclass(frozen=True, slots=True)
class Viewed:
    """A key range, up to `upto` (None: to the end), that was read in one snapshot view."""

    upto: tuple[str, ...] | None
    view: str
    until: str  # The view shows no transaction after this position.


@dataclass(frozen=True, slots=True)
class Filling:
    """Added columns whose values in existing rows the log does not have, for example defaults. They are read from the
    source once the table has reached `after`, because log rows before that may not have them."""

    columns: tuple[str, ...]
    after: str
    upto: tuple[str, ...] | None = None  # Rows up to this key are filled.
    until: str | None = None  # The values read show no transaction after this position.
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """All transactions up to `position` are in the table, and of later ones what `views` show. The snapshot is complete
    once a view reaches the end of the table."""

    position: str
    views: tuple[Viewed, ...] = ()
    is_complete: bool = False
    filling: Filling | None = None
    parts: tuple[str, ...] = ()  # The shards of a merged table, in the order in which they are read.
    # `Source.kept` when replication began; earlier versions did not write it.
    kept: tuple[tuple[str, str], ...] = ()
    version: str = ""  # `SourceTable.version` of the rows in the table.
    compares: bool = (
        False  # Whether rows are being compared with the source's; the table is then of no single position.
    )
    where: str = ""  # `SourceTable.where` of the rows in the table.

    @property
    def upto(self) -> tuple[str, ...] | None:
        """The last key read, while the snapshot is incomplete."""
        return self.views[-1].upto if self.views else None

    def with_chunk(self, view: str, until: Position, upto: tuple[str, ...] | None) -> Progress:
        before = self.views[:-1] if self.views and self.views[-1].view == view else self.views
        return replace(self, views=(*before, Viewed(upto, view, until.text)), is_complete=upto is None)

    def properties(self, source: str) -> dict[str, str]:
        views = [[view.upto, view.view, view.until] for view in self.views]
        properties = {SOURCE: source, POSITION: self.position}
        if self.filling is not None:
            properties[FILLING] = json.dumps(astuple(self.filling))
        if self.parts:
            properties[SHARDS] = json.dumps(self.parts)
        if any(entry for _, entry in self.kept):
            properties[KEPT] = json.dumps(dict(self.kept))
        if self.version:
            properties[VERSION] = self.version
        if self.compares:
            properties[COMPARES] = "true"
        if self.where:
            properties[WHERE] = self.where
        if self.is_complete and not views:
            return properties
        return properties | {SNAPSHOT: json.dumps([self.is_complete, views])}


def read(table: Table) -> tuple[str, Progress] | None:
    """The source and progress recorded in the newest snapshot that has them;
    rollbacks are followed to the restored snapshot."""
    snapshot_id, history = None, {snapshot.id: snapshot for snapshot in table.snapshots()}
    for id in reversed(history):
        if snapshot_id is not None and id != snapshot_id:
            continue
        properties, snapshot_id = history[id].properties, None
        if POSITION in properties:
            return properties.get(SOURCE, ""), _parse(properties, table.name)
        if origin := properties.get(_RESTORED):
            snapshot_id = int(origin)
    return None


def has_restarted(table: Table, name: str) -> bool:
    """Whether a restart with this name has happened."""
    return any(snapshot.properties.get(RESTART) == name for snapshot in table.snapshots())


def last_restart(table: Table) -> str | None:
    """The name of the last named restart."""
    return next(
        (snapshot.properties[RESTART] for snapshot in reversed(table.snapshots()) if RESTART in snapshot.properties),
        None,
    )


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
        wrong = {key: properties.get(key) for key in (SNAPSHOT, FILLING, SHARDS, KEPT)}
        raise CorruptTable(f"{name}: properties {wrong} are none of a sync's ({error})") from error
    version, compares = properties.get(VERSION, ""), properties.get(COMPARES) == "true"
    where = properties.get(WHERE, "")
    return Progress(properties[POSITION], viewed, bool(is_complete), filling, parts, kept, version, compares, where)


def _key(texts: list[str] | None) -> tuple[str, ...] | None:
    return None if texts is None else tuple(texts)
