"""Syncs tables of a database in bounded micro-batches, one commit per table and batch."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from lakeformat.cdc import failures, progress
from lakeformat.cdc.computed import NONE, Computed
from lakeformat.cdc.follow import Follower, Report, require_names
from lakeformat.cdc.shards import Shards, matching
from lakeformat.cdc.source import Disconnected, Position, Source
from lakeformat.errors import InvalidInput, LakeError, NotFound
from lakeformat.lake import Lake

log = logging.getLogger(__name__)
BATCH_ROWS = 100_000
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0  # Between tries to connect again.
_Answer = TypeVar("_Answer")
_STOP_SECONDS = 0.2  # A wait looks that often whether the call is over.


class Until(StrEnum):
    """When a sync ends."""

    NOW = "now"  # Once everything committed before the call is in the table.
    STOPPED = "stopped"  # When `stop()` returns true.


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one call. Batches are whole transactions, so one batch may exceed `max_rows`."""

    until: Until = Until.NOW
    max_rows: int | None = None  # Over all tables, including snapshot chunks.
    max_seconds: float | None = None
    batch_rows: int = BATCH_ROWS  # Rows per commit.
    stop: Callable[[], bool] | None = None  # Called after each commit.
    poll_seconds: float = 1.0  # Pause if there are no new changes.
    reconnect_seconds: float = 600.0  # How long a call tries to connect again after its connection dropped.

    def __post_init__(self) -> None:
        if self.reconnect_seconds < 0:
            raise InvalidInput(f"reconnect_seconds={self.reconnect_seconds!r}: it must be at least 0")
        for name in ("max_rows", "max_seconds", "batch_rows", "poll_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"{name}={value!r}: it must be above 0")


def sync_table(
    source: Source,
    source_table: str | re.Pattern[str],
    lake: Lake,
    table: str,
    format: str = "paimon",
    *,
    primary_key: Sequence[str] | None = None,
    computed_columns: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    properties: Mapping[str, Any] | None = None,
    snapshot_properties: Mapping[str, str] | None = None,
    restart: bool | str = False,
    until: str = "now",
    max_rows: int | None = None,
    max_seconds: float | None = None,
    batch_rows: int = BATCH_ROWS,
    stop: Callable[[], bool] | None = None,
    poll_seconds: float = 1.0,
    reconnect_seconds: float = 600.0,
    on_progress: Callable[[Report], None] | None = None,
    slot_shared_with: Mapping[str | re.Pattern[str], str] | None = None,
) -> Report:
    """Copy `source_table` into `table`, then apply its changes: first a snapshot of its rows, then its transactions, in commits of about
    `batch_rows` rows. Each call continues from the position in the table, however the previous call ended.

    The table is created if it does not exist, with the source's columns and primary key (`primary_key`: other columns, or those of a source
    table without one), `partition_by` and `properties`. `computed_columns`: further columns by name, as Spark SQL over the source's columns,
    `_source_table` and `_committed_at` (when the row was changed; null in the snapshot), e.g. `{"year": "year(at)"}`.

    A pattern, `re.compile("shop_[0-9]+[.]orders_[0-9]+")`, copies all tables that match it into one. They must have the same key; rows get the
    columns `database_name` and `table_name`, which belong in `primary_key` if two of the tables may have the same key. Tables that match later
    are copied once a sync finds them.

    `restart`: empty the table and take a new snapshot; a string does so once under that name. `until`: "now" returns when everything committed
    before the call is in the table, "stopped" when `stop()` returns true. `max_rows` and `max_seconds` return earlier, after a whole batch.
    `poll_seconds`: the pause where the source has no new changes. `reconnect_seconds`: how long a call tries to connect again, with growing
    pauses, after its connection dropped (0: it ends); a database that cannot be reached at first is an error at once. `on_progress` gets the report
    so far after each commit.
    `snapshot_properties` are written into each snapshot.
    `slot_shared_with`: further source tables and patterns, with their tables in `lake`, that other calls follow through PostgreSQL's same slot, which
    then keeps what any of them lacks. Without it, a slot that serves another table is refused.

    Raises `SourceError` if the database is not set up or cannot be reached, `NotFound` if it no longer has the changes, `UnsupportedFeature` if a
    schema change cannot be followed, and `Conflict` if another process writes the same table.
    """
    limits = Limits(_until(until), max_rows, max_seconds, batch_rows, stop, poll_seconds, reconnect_seconds)
    if isinstance(source_table, re.Pattern):
        pattern, shards = source_table, source
        source = _reconnected(source, lambda: Shards.matching(shards, pattern))
        source_table = pattern.pattern
    declared = _reconnected(source, lambda: source.describe(source_table, primary_key))
    computed = Computed.parse(computed_columns or {})
    follower = _follower(
        source,
        declared,
        lake,
        table,
        format,
        partition_by,
        properties,
        restart,
        snapshot_properties or {},
        computed,
        on_progress,
    )
    beside = _Beside(source, lake, slot_shared_with or {}, is_complete=True)
    return _run(source, [follower], limits, beside, is_alone=True)[0]


def sync_database(
    source: Source,
    lake: Lake,
    namespace: str,
    format: str = "paimon",
    *,
    including: str = ".*",
    excluding: str | None = None,
    table_prefix: str = "",
    table_suffix: str = "",
    merge_shards: bool = False,
    properties: Mapping[str, Any] | None = None,
    restart: bool | str = False,
    until: str = "now",
    max_rows: int | None = None,
    max_seconds: float | None = None,
    batch_rows: int = BATCH_ROWS,
    stop: Callable[[], bool] | None = None,
    poll_seconds: float = 1.0,
    reconnect_seconds: float = 600.0,
    on_progress: Callable[[Report], None] | None = None,
) -> dict[str, Report]:
    """Sync all tables of a database whose names (`schema.table`) match `including` and not `excluding` into tables of `namespace`.

    Returns a report per table, by source name. A table that cannot be followed stops alone; its `Report.error` says why.
    `merge_shards`: merge tables of the same name in several schemas into one, as a pattern does in `sync_table`; it is reported as `*.name`.
    `restart`: empty the tables and take new snapshots, as in `sync_table`. PostgreSQL's slot keeps what the tables of earlier calls lack that these
    names leave out, or that cannot be followed.
    """
    limits = Limits(_until(until), max_rows, max_seconds, batch_rows, stop, poll_seconds, reconnect_seconds)
    names = _reconnected(source, lambda: matching(source, including, excluding))
    if merge_shards:
        merged = {
            f"*.{name.partition('.')[2]}": [o for o in names if o.partition(".")[2] == name.partition(".")[2]]
            for name in names
        }
        source, names = Shards(source, merged), list(merged)

    def target(name: str) -> str:
        return f"{namespace}.{table_prefix}{name.partition('.')[2].replace('.', '_')}{table_suffix}"

    targets = {name: target(name) for name in names}
    for source_name, table in targets.items():
        if others := [other for other, name in targets.items() if name == table and other != source_name]:
            raise InvalidInput(
                f"{source_name} and {others[0]} would both be {table}; leave one out (excluding=...), or take them together (merge_shards=True)"
            )
    followers, failed = dict[str, Follower](), dict[str, Report]()
    for source_name, table in targets.items():
        try:
            with failures.of_table(source_name):
                declared = source.describe(source_name)
                followers[source_name] = _follower(
                    source, declared, lake, table, format, (), properties, restart, tell=on_progress
                )
        except LakeError as error:
            failed[source_name] = Report(table, error=error)
    parts = {part for follower in followers.values() for part in follower.names}
    left_out = {name: target(name) for name in source.served() if name not in parts and lake.exists(target(name))}
    beside = _Beside(source, lake, left_out, is_complete=False)
    reports = _run(source, list(followers.values()), limits, beside, is_alone=False) if followers else []
    return dict(sorted({**failed, **dict(zip(followers, reports, strict=True))}.items()))


def _reconnected(source: Source, look: Callable[[], _Answer]) -> _Answer:
    """The answer of the first look at the source, over a new connection if the one of an earlier call dropped since."""
    try:
        return look()
    except Disconnected:
        with suppress(LakeError):
            source.close()
        return look()


def _until(given: str) -> Until:
    if given not in list(Until):
        raise InvalidInput(f"until={given!r}: it is 'now' or 'stopped'")
    return Until(given)


def _follower(
    source: Source,
    declared: Any,
    lake: Lake,
    table: str,
    format: str,
    partition_by: Iterable[str],
    properties: Mapping[str, Any] | None,
    restart: bool | str = False,
    snapshot_properties: Mapping[str, str] = MappingProxyType({}),
    computed: Computed = NONE,
    tell: Callable[[Report], None] | None = None,
) -> Follower:
    require_names(declared)
    made = lake.create_table(
        table,
        (*declared.fields, *computed.fields(declared)),
        format=format,
        partition_by=partition_by,
        primary_key=declared.key,
        properties=properties,
        comment=declared.comment,
        if_exists="ignore",
    )
    if made.schema.primary_key != declared.key:
        raise InvalidInput(
            f"{table}: its primary key is ({', '.join(made.schema.primary_key)}), that of {declared.name} ({', '.join(declared.key)})"
        )
    return Follower(source, declared, made, restart, snapshot_properties, computed, tell)


def _run(source: Source, followers: list[Follower], limits: Limits, beside: _Beside, is_alone: bool) -> list[Report]:
    run = _Run(source, followers, limits, beside, is_alone)
    try:
        run.run()
    except NotFound:
        run.require_unmoved()
        raise
    finally:
        for follower in followers:
            follower.settle()
    return [follower.settle() for follower in followers]


@dataclass(frozen=True, slots=True)
class _Beside:
    """Tables of other calls through the same slot: source table or pattern -> its table in `lake`."""

    source: Source
    lake: Lake
    tables: Mapping[str, str] | Mapping[str | re.Pattern[str], str]
    is_complete: bool  # Whether no further table may follow the slot.

    def require_served(self, names: Collection[str]) -> None:
        """Raise `InvalidInput` if the slot serves tables other than `names` and these; if these are not all, if it serves none of `names`."""
        served = set(self.source.served())
        others = sorted(name for name in served.difference(names) if not self._has(name))
        if others and (self.is_complete or served.isdisjoint(names)):
            raise InvalidInput(
                f"{self.source.name} serves {', '.join(others)}: take another slot for {', '.join(names)}, as two calls through one lose each other's "
                f"changes, or follow all in one call (sync_database). If nobody follows {others[0]} any more, drop the slot (Postgres.drop(), lakeformat "
                f"slot drop)"
            )

    def _has(self, name: str) -> bool:
        return any(
            key.fullmatch(name) is not None if isinstance(key, re.Pattern) else key == name for key in self.tables
        )

    def positions(self) -> list[Position]:
        """The positions up to which these tables have all changes."""
        positions = []
        for key, name in self.tables.items():
            text = key.pattern if isinstance(key, re.Pattern) else key
            saved = progress.read(self.lake.table(name)) if self.lake.exists(name) else None
            if saved is not None and saved[0] == f"{self.source.name}/{text}":
                positions.append(self.source.parse(saved[1].position))
        return positions


class _Run:
    """One call of a sync: the tables that it follows through one log, and when it ends."""

    def __init__(
        self, source: Source, followers: list[Follower], limits: Limits, beside: _Beside, is_alone: bool
    ) -> None:
        self._beside = beside
        self._source, self._followers, self._limits, self._is_alone = source, followers, limits, is_alone
        self._live, self._started = list(followers), time.monotonic()  # Live: not stopped by an error.
        self._lost_at: float | None = None  # When the connection was lost that is not back yet.
        self._delay, self._commits = _FIRST_DELAY, 0  # Commits of this call when it was lost.

    def is_over(self) -> bool:
        limits = self._limits
        rows = sum(follower.report.rows + follower.report.snapshot_rows for follower in self._followers)
        return (
            (limits.stop is not None and limits.stop())
            or (limits.max_rows is not None and rows >= limits.max_rows)
            or (limits.max_seconds is not None and time.monotonic() - self._started >= limits.max_seconds)
        )

    def run(self) -> None:
        """Follow the tables, and connect again when the connection drops, as when the server restarts."""
        while True:
            try:
                self.begin()
                self.follow()
                return
            except Disconnected as error:
                if not self._waits_after(error):
                    raise
            if self.is_over():
                return

    def _waits_after(self, error: Disconnected) -> bool:
        """Wait before the next try to connect; False if there is none."""
        now, commits = time.monotonic(), sum(len(follower.report.snapshots) for follower in self._followers)
        if self._lost_at is None or commits > self._commits:  # The connection was back for a while.
            self._lost_at, self._commits, self._delay = now, commits, _FIRST_DELAY
        left = self._lost_at + self._limits.reconnect_seconds - now
        if left <= 0:
            return False
        delay = min(self._delay, left)
        log.warning("%s; connecting again in %.0f s, for %.0f s at most", error, delay, left)
        for follower in self._live:
            follower.reconnect()
        with suppress(LakeError):
            self._source.close()
        end, self._delay = now + delay, min(2 * self._delay, _LONGEST_DELAY)
        while time.monotonic() < end and not self.is_over():
            time.sleep(min(_STOP_SECONDS, max(0.0, end - time.monotonic())))
        return True

    def begin(self) -> None:
        """Take or continue the snapshots."""
        self._each_alone(lambda follower: follower.require_kept())
        if self._live:
            is_anew = all(follower.is_anew for follower in self._live)
            self._beside.require_served([name for follower in self._followers for name in follower.names])
            with self._source.exclusive():
                start = self._source.begin([follower.source_table for follower in self._live], is_anew)
                if self._beside.tables:
                    self._each_alone(lambda follower: follower.hold(start))
            self._each_alone(lambda follower: follower.begin(start, self._limits.batch_rows, self.is_over))

    def follow(self) -> None:
        """Apply changes: those up to now, or until the call is over."""
        while self._live and not self.is_over():
            has_read = self._apply_changes()
            self._lost_at, self._delay = None, _FIRST_DELAY
            self._each_alone(lambda follower: follower.fill(self._limits.batch_rows, self.is_over))
            if self._limits.until is Until.NOW:
                break
            if not has_read:
                time.sleep(self._limits.poll_seconds)
            self._each_alone(lambda follower: follower.look_again())
        self._each_alone(lambda follower: follower.carry())

    def _apply_changes(self) -> bool:
        """Apply the changes up to the log's present end, and acknowledge those that all tables have. False if there is no new log."""
        tables = {follower.source_table.name: follower.source_table for follower in self._live}
        end, after = self._source.position(), min(follower.covered for follower in self._live)
        for batch in self._source.changes(
            after, end, tables, self._limits.batch_rows
        ):  # Also without new log: it may be lost.
            self._each_alone(lambda follower, batch=batch: follower.apply(batch))  # type: ignore[misc]  # mypy cannot infer a lambda with a default.
            if self._live and not batch.is_last:
                continue
            if not self._beside.tables:
                self._acknowledge()
            if self.is_over() or not self._live:
                break
        if self._beside.tables:  # Their positions take a while to read.
            with self._source.exclusive():
                self._acknowledge()
        return after < end

    def _acknowledge(self) -> None:
        """Release the log that no table needs. A table without a position begins where the source keeps the log then."""
        positions = [follower.committed for follower in self._followers if follower.progress is not None]
        if positions:
            self._source.acknowledge(min([*positions, *self._beside.positions()]))

    def _each_alone(self, act: Callable[[Follower], None]) -> None:
        """Act on each live table; an error stops it alone, or the call if it is of one table."""
        for follower in list(self._live):
            try:
                with failures.of_table(follower.source_table.name):
                    act(follower)
            except LakeError as error:
                if self._is_alone or isinstance(error, Disconnected):
                    raise
                follower.report = replace(follower.report, error=error)
                self._live.remove(follower)

    def require_unmoved(self) -> None:
        """Raise `Conflict` if another process applied and acknowledged what a table here still needs."""
        for follower in self._live:
            if follower.progress is not None:
                follower.require_unmoved()
