"""Which snapshots a table tags by itself: of each period the first one after its end, as Paimon's TagAutoCreation."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from zoneinfo import ZoneInfo

from lakeformat.model.dataclass import dataclass

_EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Commit:
    """What decides about the tag of a snapshot. `watermark_ms`: event time, or None."""

    snapshot_id: int
    time_ms: int
    watermark_ms: int | None


@dataclass(frozen=True, slots=True)
class TagSchedule:
    """Tags named after periods (`pattern`, of `strftime`), each `delay` after the end of its period at the earliest; at
    most `retained_max` of them stay, each for `retain_ms` (None: for ever).

    The time is that of the commit in the local zone, or with `watermark_zone` the watermark in that zone. `completes`:
    a period without a commit gets the next commit's tag, one a commit. `batch_name`: instead, each commit moves the tag
    of this name, a pattern too.
    """

    pattern: str
    period: datetime.timedelta
    delay: datetime.timedelta = datetime.timedelta(0)
    watermark_zone: str | None = None
    completes: bool = False
    retained_max: int | None = None
    retain_ms: int | None = None
    batch_name: str | None = None

    def due(self, commits: Iterable[Commit], tags: Mapping[str, int]) -> list[tuple[str, int]]:
        """(name, snapshot id) of the tags to create, oldest first. `commits`: the retained ones, rising; `tags`: the
        snapshot id of every tag there is."""
        dated = [
            (snapshot_id, start) for name, snapshot_id in tags.items() if (start := self.start_of(name)) is not None
        ]
        newest = max(dated, default=None)
        following = None if newest is None else newest[1] + self.period
        result = []
        for commit in commits:
            time = self._time(commit)
            if time is None or (newest is not None and commit.snapshot_id <= newest[0]):
                continue
            if following is not None and time - self.delay < following + self.period:
                continue
            start = following if self.completes and following is not None else self._previous(time)
            name = start.strftime(self.pattern)
            if name not in tags:
                result.append((name, commit.snapshot_id))
            following = start + self.period
        return result

    def surplus(self, tags: Mapping[str, int]) -> list[str]:
        """The tags of periods that are more than `retained_max`, oldest first."""
        dated = sorted((snapshot_id, name) for name, snapshot_id in tags.items() if self.start_of(name) is not None)
        return (
            [] if self.retained_max is None else [name for _, name in dated[: max(0, len(dated) - self.retained_max)]]
        )

    def batch_tag(self, time_ms: int) -> str | None:
        """The name of the tag that a commit at this time moves; None unless every commit does."""
        moment = datetime.datetime.fromtimestamp(time_ms / 1000)
        return None if self.batch_name is None else moment.strftime(self.batch_name)

    def start_of(self, name: str) -> datetime.datetime | None:
        """The start of the period that a tag is named after; None for other tags."""
        try:
            start = datetime.datetime.strptime(name, self.pattern)
        except ValueError:
            return None
        return start if start.strftime(self.pattern) == name else None

    def _dated(self, tags: Mapping[str, int]) -> Iterator[tuple[int, datetime.datetime, str]]:
        """(snapshot id, the period's start, name) of the tags of periods."""
        for name, snapshot_id in tags.items():
            if (start := self.start_of(name)) is not None:
                yield snapshot_id, start, name

    def _time(self, commit: Commit) -> datetime.datetime | None:
        if self.watermark_zone is None:
            return datetime.datetime.fromtimestamp(commit.time_ms / 1000)
        if commit.watermark_ms is None or commit.watermark_ms < 0:
            return None
        return datetime.datetime.fromtimestamp(commit.watermark_ms / 1000, ZoneInfo(self.watermark_zone)).replace(
            tzinfo=None
        )

    def _previous(self, time: datetime.datetime) -> datetime.datetime:
        """The start of the last period that was over at a time."""
        return _EPOCH + ((time - _EPOCH) // self.period - 1) * self.period
