"""Syncs tables of a database in bounded micro-batches, one commit per table and batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from lakeformat.cdc import failures
from lakeformat.cdc.computed import NONE, Computed
from lakeformat.cdc.filters import filtered
from lakeformat.cdc.follow import Follower, require_names
from lakeformat.cdc.report import Report
from lakeformat.cdc.run import BATCH_ROWS, Beside, Limits, Run, Until, persistent, run
from lakeformat.cdc.shards import Shards, matching
from lakeformat.cdc.source import Disconnected, Source
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.lake import Lake

_Answer = TypeVar("_Answer")


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
    swap: bool = False,
    until: str = "now",
    max_rows: int | None = None,
    max_seconds: float | None = None,
    batch_rows: int = BATCH_ROWS,
    stop: Callable[[], bool] | None = None,
    poll_seconds: float = 1.0,
    reconnect_seconds: float = 600.0,
    on_progress: Callable[[Report], None] | None = None,
    slot_shared_with: Mapping[str | re.Pattern[str], str] | None = None,
    where: str | None = None,
) -> Report:
    """Copy `source_table` into `table`, then apply its changes: first a snapshot of its rows, then its transactions, in
    commits of about `batch_rows` rows. Each call continues from the position in the table,
    however the previous call ended.

    The table is created if it does not exist, with the source's columns and primary key (`primary_key`: other columns,
    or those of a source table without one), `partition_by` and `properties`. `computed_columns`: further columns by
    name, as Spark SQL over the source's columns, `_source_table` and `_committed_at` (when the row was changed; null in
    the snapshot), e.g. `{"year": "year(at)"}`.

    A pattern, `re.compile("shop_[0-9]+[.]orders_[0-9]+")`, copies all tables that match it into one. They must have the
    same key; rows get the columns `database_name` and `table_name`, which belong in `primary_key` if two of the tables
    may have the same key. Tables that match later are copied once a sync finds them.

    `restart`: empty the table and take a new snapshot; a string does so once under that name. With `swap`, the old rows
    stay readable until the new snapshot is whole, and one commit replaces them; it is read in one view, ignores
    `max_rows` and `max_seconds`, and begins again if it is interrupted, with the old rows in place. `until`: "now"
    returns when everything committed before the call is in the table, "stopped" when `stop()` returns true. `max_rows`
    and `max_seconds` return earlier, after a whole batch. `poll_seconds`: the pause where the source has no changes.
    `reconnect_seconds`: how long a call tries to connect again, with growing pauses, after its connection dropped (0:
    it ends); a database that cannot be reached at first is an error at once. `on_progress` gets the report so far after
    each commit. `snapshot_properties` are written into each snapshot. `slot_shared_with`: further source tables and
    patterns, with their tables in `lake`, that other calls follow through PostgreSQL's same slot, which then keeps what
    any of them lacks. Without it, a slot that serves another table is refused. `where`: only the rows that satisfy this
    condition, Spark SQL over the source's columns, are in the table: a row that an update makes satisfy it is inserted,
    and one that no longer does is deleted. PostgreSQL needs REPLICA IDENTITY FULL for it. A sync with another condition
    than before compares all rows.

    Raises `SourceError` if the database is not set up or cannot be reached, `NotFound` if it no longer has the changes,
    `UnsupportedFeature` if a schema change cannot be followed, and `Conflict` if another process writes the same table.
    """
    limits = Limits(_until(until), max_rows, max_seconds, batch_rows, stop, poll_seconds, reconnect_seconds)
    _require_restart(restart, swap)
    if isinstance(source_table, re.Pattern):
        pattern, shards = source_table, source
        source = _reconnected(source, lambda: Shards.matching(shards, pattern))
        source_table = pattern.pattern
    if where is not None:
        source = filtered(source, {source_table: where})
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
        swap=swap,
    )
    beside = Beside(source, lake, slot_shared_with or {}, is_complete=True)
    return run(Run(source, [follower], limits, beside))[0]


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
    table_names: Mapping[str, str] | None = None,
    merge_shards: bool = False,
    properties: Mapping[str, Any] | None = None,
    restart: bool | str = False,
    swap: bool = False,
    until: str = "now",
    max_rows: int | None = None,
    max_seconds: float | None = None,
    batch_rows: int = BATCH_ROWS,
    stop: Callable[[], bool] | None = None,
    poll_seconds: float = 1.0,
    reconnect_seconds: float = 600.0,
    on_progress: Callable[[Report], None] | None = None,
    row_filters: Mapping[str, str] | None = None,
) -> dict[str, Report]:
    """Sync all tables of a database whose names (`schema.table`)
    match `including` and not `excluding` into tables of `namespace`.

    A table keeps its name, with `_` for dots, between `table_prefix` and `table_suffix`; `table_names` gives others, by
    source name (`{"public.We.ird Näme": "weird_name"}`).

    Returns a report per table, by source name. A table that cannot be followed stops alone; its `Report.error` says
    why. `merge_shards`: merge tables of the same name in several schemas into one, as a pattern does in `sync_table`;
    it is reported as `*.name`. `restart` and `swap`: empty the tables and take new snapshots, as in `sync_table`.
    PostgreSQL's slot keeps what the tables of earlier calls lack that these names leave out, or that cannot be
    followed. `row_filters`: by source name, the condition that rows of the table satisfy, as `where` in `sync_table`.

    `until="stopped"` also follows tables that match later (unless `merge_shards`), and tries a table that stopped
    again, after pauses of 1 to 60 seconds, as it may have been renamed for a moment.
    """
    limits = Limits(_until(until), max_rows, max_seconds, batch_rows, stop, poll_seconds, reconnect_seconds)
    _require_restart(restart, swap)
    names = _reconnected(source, lambda: matching(source, including, excluding))
    if merge_shards:
        merged = {
            f"*.{name.partition('.')[2]}": [o for o in names if o.partition(".")[2] == name.partition(".")[2]]
            for name in names
        }
        source, names = Shards(source, merged), list(merged)

    own_names = dict(table_names or {})
    for what, chosen in (("table_names", own_names), ("row_filters", row_filters or {})):
        if (unknown := sorted(chosen.keys() - set(names))) and limits.until is Until.NOW:
            raise InvalidInput(f"{what}: {unknown[0]!r} is no table to follow; there are {', '.join(names)}")
    if row_filters:
        source = filtered(source, row_filters)

    def target(name: str) -> str:
        if name in own_names:
            return f"{namespace}.{own_names[name]}"
        return f"{namespace}.{table_prefix}{name.partition('.')[2].replace('.', '_')}{table_suffix}"

    targets = {name: target(name) for name in names}
    for source_name, table in targets.items():
        if others := [other for other, name in targets.items() if name == table and other != source_name]:
            raise InvalidInput(
                f"{source_name} and {others[0]} would both be {table}; leave one out (excluding=...), give one "
                "another name (table_names), or take them together (merge_shards=True)"
            )

    def opened(name: str, restart: bool | str = False) -> Follower:
        with failures.of_table(name):
            declared = source.describe(name)
            return _follower(
                source, declared, lake, target(name), format, (), properties, restart, tell=on_progress, swap=swap
            )

    followers, failed = dict[str, Follower](), dict[str, LakeError]()
    for name in targets:
        try:
            followers[name] = persistent(source, limits, partial(opened, name, restart))
        except LakeError as error:
            failed[name] = error
    is_ongoing = limits.until is Until.STOPPED
    if followers or is_ongoing:
        parts = {part for follower in followers.values() for part in follower.names}
        served = persistent(source, limits, source.retention.served)
        left_out = {name: target(name) for name in served if name not in parts and lake.exists(target(name))}
        beside = Beside(source, lake, left_out, is_complete=False)
        names_now = None if merge_shards else (lambda: matching(source, including, excluding))
        call = Run(source, list(followers.values()), limits, beside, opened, names_now, failed)
        made = run(call)
        reports = {follower.source_table.name: report for follower, report in zip(call.followers, made, strict=True)}
    else:
        reports = {}
    return dict(
        sorted({**{name: Report(target(name), error=error) for name, error in failed.items()}, **reports}.items())
    )


def _reconnected(source: Source, look: Callable[[], _Answer]) -> _Answer:
    """The answer of the first look at the source, over a new connection if the one of an earlier call dropped since."""
    try:
        return look()
    except Disconnected:
        with suppress(LakeError):
            source.close()
        return look()


def _require_restart(restart: bool | str, swap: bool) -> None:
    if swap and not restart:
        raise InvalidInput("swap=True: it goes with restart=True, and says when its new rows replace the old ones")


def _until(text: str) -> Until:
    if text not in list(Until):
        raise InvalidInput(f"until={text!r}: it is 'now' or 'stopped'")
    return Until(text)


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
    *,
    swap: bool = False,
) -> Follower:
    require_names(declared)
    target = lake.create_table(
        table,
        (*declared.fields, *computed.fields(declared)),
        format=format,
        partition_by=partition_by,
        primary_key=declared.key,
        properties=properties,
        comment=declared.comment,
        if_exists="ignore",
    )
    if target.schema.primary_key != declared.key:
        raise InvalidInput(
            f"{table}: its primary key is ({', '.join(target.schema.primary_key)}), that of {declared.name} "
            f"({', '.join(declared.key)})"
        )
    return Follower(source, declared, target, restart, snapshot_properties, computed, tell, swap=swap)
