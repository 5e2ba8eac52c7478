"""One call of a sync: the tables that it follows through one log, until when, and what happens when one of them or the
connection fails."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from lakeformat.cdc import failures, progress
from lakeformat.cdc.follow import Follower
from lakeformat.cdc.report import Report
from lakeformat.cdc.source import Disconnected, Position, Source
from lakeformat.errors import InvalidInput, LakeError, NotFound
from lakeformat.lake import Lake

log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
BATCH_ROWS = 100_000
FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0  # Between tries to connect again, or to follow a table that stopped.
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


@dataclass(frozen=True, slots=True)
class Beside:
    """Tables of other calls through the same slot: source table or pattern -> its table in `lake`."""

    source: Source
    lake: Lake
    tables: Mapping[str, str] | Mapping[str | re.Pattern[str], str]
    is_complete: bool  # Whether no further table may follow the slot.

    def require_served(self, names: Collection[str]) -> None:
        """Raise `InvalidInput` if the slot serves tables other than `names` and these; if these are not all, if it
        serves none of `names`."""
        served = set(self.source.retention.served())
        others = sorted(name for name in served.difference(names) if not self._has(name))
        if others and (self.is_complete or served.isdisjoint(names)):
            raise InvalidInput(
                f"{self.source.name} serves {', '.join(others)}: take another slot for {', '.join(names)}, as two "
                "calls through one lose each other's changes, or follow all in one call (sync_database). If nobody "
                f"follows {others[0]} any more, drop the slot (Postgres.drop(), lakeformat slot drop)"
            )

    def _has(self, name: str) -> bool:
        return any(
            key.fullmatch(name) is not None if isinstance(key, re.Pattern) else key == name for key in self.tables
        )

    def positions(self) -> list[Position]:
        """The positions up to which these tables have all changes, without those whose log is kept apart."""
        positions = []
        for key, name in self.tables.items():
            text = key.pattern if isinstance(key, re.Pattern) else key
            saved = progress.read(self.lake.table(name)) if self.lake.exists(name) else None
            if saved is None or saved[0] != f"{self.source.name}/{text}" or self.source.retention.kept_apart([text]):
                continue
            if self.is_complete or not self.source.retention.keep_apart(text):
                positions.append(self.source.parse(saved[1].position))
        return positions


@dataclass(slots=True)
class _Retry:
    """When a table that stopped is tried again."""

    time: float
    delay: float = FIRST_DELAY

    def postpone(self) -> None:
        self.time = time.monotonic() + self.delay
        self.delay = min(2 * self.delay, _LONGEST_DELAY)


@dataclass(slots=True)
class _Lost:
    """A connection that dropped, and the pause before the next try to connect again."""

    time: float
    delay: float

    def waits(self, error: Disconnected, source: Source, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Wait, and close what is left of it; False if it was lost for `seconds`."""
        left = self.time + seconds - time.monotonic()
        if left <= 0:
            return False
        delay = min(self.delay, left)
        log.warning("%s; connecting again in %.0f s, for %.0f s at most", error, delay, left)
        with suppress(LakeError):
            source.close()
        end, self.delay = time.monotonic() + delay, min(2 * self.delay, _LONGEST_DELAY)
        while time.monotonic() < end and not is_over():
            time.sleep(min(_STOP_SECONDS, max(0.0, end - time.monotonic())))
        return True


def persistent(source: Source, limits: Limits, look: Callable[[], _Answer]) -> _Answer:
    """The answer of a look at a source that could be reached before, by another connection if the one it had drops."""
    lost: _Lost | None = None
    while True:
        try:
            return look()
        except Disconnected as error:
            lost = lost or _Lost(time.monotonic(), FIRST_DELAY)
            is_over = limits.stop or (lambda: False)
            if is_over() or not lost.waits(error, source, limits.reconnect_seconds, is_over):
                raise


@dataclass
class Run:
    """The tables that a call follows. Those of one table (`opened` is None) end with its error; of several,
    each stops alone.

    `opened(name)`: a follower of a table. `names`: the tables that are to be followed now. `failed`: those that could
    not be opened, and why."""

    source: Source
    followers: list[Follower]
    limits: Limits
    beside: Beside
    opened: Callable[[str], Follower] | None = None
    names: Callable[[], Collection[str]] | None = None
    failed: dict[str, LakeError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._live, self._started = list(self.followers), time.monotonic()  # Live: not stopped by an error.
        self._lost: _Lost | None = None  # A connection that is not back yet.
        self._commits = 0  # Of this call when it was lost.
        self._retries: dict[str, _Retry] = {}  # By source table.
        self._signatures: dict[str, list[str | None]] = {}  # Of live tables, when they were last looked at.
        self._names_before: set[str] = set()

    def is_over(self) -> bool:
        limits = self.limits
        rows = sum(follower.report.rows + follower.report.snapshot_rows for follower in self.followers)
        return (
            (limits.stop is not None and limits.stop())
            or (limits.max_rows is not None and rows >= limits.max_rows)
            or (limits.max_seconds is not None and time.monotonic() - self._started >= limits.max_seconds)
        )

    def run(self) -> None:
        """Follow the tables, and connect again when the connection drops, as when the server restarts."""
        while True:
            try:
                self.begin(self._live)
                self.follow()
                return
            except Disconnected as error:
                if not self._waits_after(error):
                    raise
            if self.is_over():
                return

    def _waits_after(self, error: Disconnected) -> bool:
        """Wait before the next try to connect; False if there is none."""
        commits = sum(len(follower.report.snapshots) for follower in self.followers)
        if self._lost is None or commits > self._commits:  # The connection was back for a while.
            self._lost, self._commits = _Lost(time.monotonic(), FIRST_DELAY), commits
        if not self._lost.waits(error, self.source, self.limits.reconnect_seconds, self.is_over):
            return False
        for follower in self._live:
            follower.reconnect()
        return True

    def begin(self, followers: Sequence[Follower]) -> None:
        """Take or continue the snapshots of these tables."""
        self._each_alone(lambda follower: follower.require_kept(), followers)
        if not (followers := [follower for follower in followers if follower in self._live]):
            return
        anew = {follower.source_table.name for follower in followers if follower.is_anew}
        self.beside.require_served([name for follower in self.followers for name in follower.names])
        with self.source.retention.exclusive():
            start = self._start(followers, is_anew=len(anew) == len(followers))
            if self.beside.tables:
                self._each_alone(lambda follower: follower.hold(start), followers)
        self._each_alone(lambda follower: follower.begin(start, self.limits.batch_rows, self.is_over), followers)
        for name in self.source.retention.kept_apart(anew):  # They need nothing of it any more.
            follower = next(follower for follower in followers if follower.source_table.name == name)
            if follower.progress is not None:
                self.source.retention.rejoin(name, follower.committed)

    def _start(self, followers: Sequence[Follower], is_anew: bool) -> Position:
        """Have the source keep the log for these tables;
        one that was dropped or renamed since it was described stops alone."""
        try:
            return self.source.begin([follower.source_table for follower in followers], is_anew)
        except Disconnected:
            raise
        except LakeError:
            live = len(self._live)
            if self.opened is not None:
                self._each_alone(lambda follower: follower.require_described(), followers)
            left = [follower for follower in followers if follower in self._live]
            if live == len(self._live) or not left:
                raise
            return self.source.begin([follower.source_table for follower in left], is_anew)

    def follow(self) -> None:
        """Apply changes: those up to now, or until the call is over."""
        is_ongoing = self.limits.until is Until.STOPPED
        while (self._live or (is_ongoing and self.opened is not None)) and not self.is_over():
            has_read = self._apply_changes() if self._live else False
            self._lost = None
            self._each_alone(lambda follower: follower.fill(self.limits.batch_rows, self.is_over))
            if not is_ongoing:
                break
            if not has_read:
                time.sleep(self.limits.poll_seconds)
            self._look_again()
            if self.opened is not None:
                self._take_up()
        self._each_alone(lambda follower: follower.carry())

    def _look_again(self) -> None:
        """Look at the tables that are not what they were, which one query says of all."""
        signatures = self.source.signatures([name for follower in self._live for name in follower.names])
        for follower in list(self._live):
            name, signature = follower.source_table.name, [signatures.get(part) for part in follower.names]
            if signature != self._signatures.get(name):
                self._each_alone(lambda follower: follower.look_again(), [follower])
                self._signatures[name] = signature

    def _take_up(self) -> None:
        """Follow tables that are new, and try those that stopped again."""
        assert self.opened is not None
        names, now = set(self.names() if self.names is not None else ()), time.monotonic()
        stopped = [follower for follower in self.followers if follower not in self._live]
        # A table that a statement renames for a moment is none of the new ones.
        settled = (names & self._names_before).difference(follower.source_table.name for follower in self.followers)
        self._names_before, begun = names, list[Follower]()
        for name in sorted({*settled, *(follower.source_table.name for follower in stopped)}):
            retry = self._retries.get(name)
            if retry is not None and now < retry.time:
                continue
            follower = next((follower for follower in stopped if follower.source_table.name == name), None)
            try:
                with failures.of_table(name):
                    if follower is None:
                        self.followers.append(follower := self.opened(name))
                    else:
                        follower.reconnect()
                        follower.require_described()
                        follower.report = replace(follower.report, error=None)
            except Disconnected:
                raise
            except LakeError as error:
                self.failed[name] = error
                self._retries.setdefault(name, _Retry(now)).postpone()
                continue
            self.failed.pop(name, None)
            self._live.append(follower)
            begun.append(follower)
        if begun:
            self.begin(begun)
            for follower in begun:
                name = follower.source_table.name
                if follower in self._live:
                    log.info("%s is followed", name)

    def _apply_changes(self) -> bool:
        """Apply the changes up to the log's present end, and acknowledge those that all tables have.
        False if there is no new log."""
        end = self.source.position()
        self._catch_up(end)
        if not self._live:
            return False
        tables = {follower.source_table.name: follower.source_table for follower in self._live}
        after = min(follower.covered for follower in self._live)
        # Also without new log: it may be lost.
        for batch in self.source.changes(after, end, tables, self.limits.batch_rows):
            self._each_alone(lambda follower, batch=batch: follower.apply(batch))  # type: ignore[misc]  # mypy cannot infer a lambda with a default.
            if self._live and not batch.is_last:
                continue
            if not self.beside.tables:
                self._acknowledge()
            if self.is_over() or not self._live:
                break
        if self.beside.tables:  # Their positions take a while to read.
            with self.source.retention.exclusive():
                self._acknowledge()
        return after < end

    def _catch_up(self, end: Position) -> None:
        """Apply the log that is kept apart for tables that stopped, which then follow the log of all again."""
        behind = self.source.retention.kept_apart([follower.source_table.name for follower in self._live])
        for follower in list(self._live):
            name = follower.source_table.name
            if name not in behind:
                continue
            apart = self.source.apart(name)
            for batch in apart.changes(follower.covered, end, {name: follower.source_table}, self.limits.batch_rows):
                self._each_alone(lambda follower, batch=batch: follower.apply(batch), [follower])  # type: ignore[misc]  # As above.
                if follower not in self._live:
                    break
                if batch.is_last:
                    apart.acknowledge(follower.committed)
            else:
                follower.record()
                with self.source.retention.exclusive():
                    if not self.source.retention.rejoin(name, follower.committed):
                        self._live.remove(follower)  # Other calls went on meanwhile: the next one reads the rest.

    def _acknowledge(self) -> None:
        """Release the log that no table needs. What a table needs that stopped is kept apart, so that the others do not
        read it again each time. A table without a position begins where the source keeps the log then."""
        positions = self.beside.positions()
        for follower in self.followers:
            if follower.progress is None:
                continue
            if follower in self._live or not self.source.retention.keep_apart(follower.source_table.name):
                positions.append(follower.committed)
        if positions:
            self.source.acknowledge(min(positions))

    def _each_alone(self, act: Callable[[Follower], None], followers: Sequence[Follower] | None = None) -> None:
        """Act on each live table (of `followers`); an error stops it alone, or the call if it is of one table."""
        for follower in list(self._live):
            if followers is not None and follower not in followers:
                continue
            try:
                with failures.of_table(follower.source_table.name):
                    act(follower)
            except LakeError as error:
                if isinstance(error, Disconnected):
                    raise
                if self.opened is None:
                    self._keep_apart_alone(follower)
                    raise
                self._stop(follower, error)

    def _keep_apart_alone(self, follower: Follower) -> None:
        """A table that stops does not hold back the tables of other calls through the slot."""
        if self.beside.tables and follower.progress is not None:
            with suppress(LakeError):
                self.source.retention.keep_apart(follower.source_table.name)

    def _stop(self, follower: Follower, error: LakeError) -> None:
        name = follower.source_table.name
        follower.report = replace(follower.report, error=error)
        self._live.remove(follower)
        self._signatures.pop(name, None)
        self._retries.setdefault(name, _Retry(time.monotonic())).postpone()
        log.warning("%s stopped: %s", name, error)

    def reports(self) -> list[Report]:
        """The reports of all tables, in the order of `followers`."""
        reports = []
        for follower in self.followers:
            report = follower.settle()
            if follower not in self._live:
                with suppress(LakeError):
                    report = replace(report, kept_bytes=self.source.retention.kept_bytes(follower.source_table.name))
            reports.append(report)
        return reports

    def require_unmoved(self) -> None:
        """Raise `Conflict` if another process applied and acknowledged what a table here still needs."""
        for follower in self._live:
            if follower.progress is not None:
                follower.require_unmoved()


def run(call: Run) -> list[Report]:
    """The reports of a call, in the order of its followers."""
    try:
        call.run()
    except NotFound:
        call.require_unmoved()
        raise
    finally:
        for follower in call.followers:
            follower.settle()
    return call.reports()
