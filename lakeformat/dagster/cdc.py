"""Tables of a database as assets: change data capture in micro-batches, one per run.

    tables = {"public.orders": "shop.orders", "public.customers": "shop.customers"}
    orders, customers = cdc_assets("shop_database", tables)
    defs = dg.Definitions(
        assets=[orders, customers],
        asset_checks=lag_checks([orders, customers], timedelta(minutes=10)),
        sensors=[lag_sensor([orders, customers], timedelta(minutes=1))],
        resources={"shop_database": CdcSource(url=dg.EnvVar("SHOP_DSN")), "lake": LakeResource(...)},
    )

The first run of an asset reads the existing rows, each later run the changes since. A run without changes reports an
observation and no materialization, so that nothing downstream runs.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import ConfigDict, Field

from lakeformat import Lake, clock, sql
from lakeformat.cdc import OnMisfit, Report, TypeOption, lag_seconds, open_source, progress, sync_table
from lakeformat.cdc.progress import COMMITTED, FILLING, SNAPSHOT, USER
from lakeformat.cdc.source import Disconnected, InUse, Source
from lakeformat.dagster.asset_table import ASSET, as_dagster_failures, metadata_of
from lakeformat.dagster.declaration import SOURCE_TABLE, lake_key, names_of, naming
from lakeformat.dagster.declaration import declared as table_of
from lakeformat.dagster.fields import KnownFields, LaunchableFields, require, resolved
from lakeformat.dagster.lake import SECRET, LakeResource
from lakeformat.dagster.markdown import id_text
from lakeformat.dagster.sensors import EVERY_SECONDS, snapshots_after
from lakeformat.dagster.tables import RETRY, TableAsset, lake_keys, pool_of, tables_of
from lakeformat.dagster.upkeep import IN_FLIGHT
from lakeformat.errors import InvalidInput, LakeError

# Asset metadata beside SOURCE_TABLE: the resource of the database, and whether the table's name is a pattern.
SOURCE, IS_PATTERN = "cdc/source", "cdc/is_pattern"
LAG = "lag"
_SLOT_LENGTH = 63
_LONGEST_DELAY = 600.0  # Seconds between tries of a sensor to reach a database.


class CdcSource(LaunchableFields, dg.ConfigurableResource):
    """A source database, PostgreSQL or MySQL, by its address.

    All tables of `cdc_assets` share one replication slot, `slot`, which keeps what any of them lacks; call
    `open_shared().drop()` to remove it when none is followed any more. A table that earlier versions gave a slot of its
    own, `<slot>_<schema>_<table>`, keeps it: `open(table)`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: str = Field(
        description="`postgresql://user:password@host/database` or `mysql://user:password@host:port`, by `EnvVar`.",
        repr=False,
        json_schema_extra=SECRET,
    )
    slot: str = Field(default="lakeformat", description="PostgreSQL's replication slot, one for all tables.")
    type_options: list[str] = Field(default=[], description="How types are mapped: `to-string`, `to-nullable` ...")
    exclude_columns: list[str] = Field(default=[], description="`schema.table.column`, as the source names them.")
    on_misfit: str = Field(
        default="stop", description="What becomes of values that their column cannot hold: `stop` or `null`."
    )
    text_columns: list[str] = Field(default=[], description="`schema.table.column`: those that are STRING.")
    readers: int = Field(default=1, description="Connections that read a snapshot, a chunk each.", ge=1)

    name: str | None = Field(
        default=None, description="The name recorded in tables, for a MySQL server whose address may change."
    )

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        options = {"on_misfit": ([self.on_misfit], OnMisfit), "type_options": (self.type_options, TypeOption)}
        for name, (values, choices) in options.items():
            known = [choice.value for choice in choices]
            if wrong := [value for value in values if value not in known and not isinstance(value, dg.EnvVar)]:
                raise InvalidInput(f"{name}={wrong[0]!r}; it must be one of {', '.join(known)}")

    def open(self, table: str) -> Source:
        """Open the source through a slot of one of its tables, as earlier versions did; the caller closes it."""
        return self._open(self._slot_of(table))

    def open_shared(self) -> Source:
        """Open the source through the slot of all tables; the caller closes it."""
        return self._open(self.slot)

    def _open(self, slot: str) -> Source:
        options = {name: getattr(self, name) for name in CdcSource.model_fields.keys() - {"url", "slot"}}
        return open_source(resolved(self.url), slot=slot, **options)

    def of_table(self, name: str, lake: Lake, table: str) -> Source:
        """Open the source through the slot that `table`, in `lake`, follows `name` by;
        through that of all tables if it follows none."""
        saved = progress.read(lake.table(table)) if lake.exists(table) else None
        if saved is not None:
            source = self.open(name)
            if saved[0] == f"{source.name}/{name}":
                return source
            source.close()
        return self.open_shared()

    def _slot_of(self, table: str) -> str:
        plain = f"{self.slot}_{table.replace('.', '_')}"
        if re.fullmatch(r"[a-z0-9.]+", table) and len(plain) <= _SLOT_LENGTH:
            return plain
        digest = hashlib.sha256(table.encode()).hexdigest()[:8]
        return f"{re.sub('[^a-z0-9_]', '_', plain.lower())[: _SLOT_LENGTH - 9]}_{digest}"


class CdcRun(KnownFields, dg.Config):
    """The configuration of one run of a followed table."""

    restart: bool = Field(default=False, description="Empty the table and read the source's rows anew.")
    swap: bool = Field(
        default=False, description="With restart: the old rows stay until the new ones replace them in one commit."
    )
    max_rows: int | None = Field(default=None, description="End after about so many rows; the next run goes on.")
    max_seconds: float | None = Field(default=None, description="End after about so long; the next run goes on.")
    reconnect_seconds: float = Field(
        default=600.0, description="How long to try to connect again after the connection dropped.", ge=0
    )


def cdc_assets(
    source: str,
    tables: Mapping[str, str] | Mapping[str | re.Pattern[str], str],
    *,
    format: str = "paimon",
    primary_keys: Mapping[str, Sequence[str]] | None = None,
    computed_columns: Mapping[str, Mapping[str, str]] | None = None,
    partition_by: Mapping[str, Sequence[str]] | None = None,
    table_properties: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    row_filters: Mapping[str, str] | None = None,
    **asset: Any,
) -> list[dg.AssetsDefinition]:
    """One asset per followed table. Its runs bring the table up to date by `sync_table`.

    Runs of one table wait for each other by its pool. `CdcRun` configures a run: `restart: true` reads the whole table
    again, once even if the step is retried.

    Args:
        source: The name of a resource that is a `CdcSource`. The other resource is `lake`, or the one that `metadata`
            names (`"lake"`).
        tables: Name in the database -> asset key, "db.name", or "name" in the lake's database. A pattern takes all
            matching tables together; their rows get the columns `database_name` and `table_name`.
        primary_keys: By database name (or pattern): the key of a table that declares none.
        computed_columns: By database name (or pattern): as in `sync_table`.
        partition_by: By database name (or pattern): the partitioning of a table that is created.
        row_filters: By database name (or pattern): the condition that rows satisfy, as `where` in `sync_table`.
        asset: Further arguments of `dg.asset`: `group_name`, `owners`, `tags`, `automation_condition`
            (`dg.AutomationCondition.on_cron("*/5 * * * *")` is a schedule) ...
    """
    require("source", source, str, "the name of the resource that is the CdcSource")
    require("tables", tables, Mapping, "a mapping, as in {'public.orders': 'shop.orders'}")
    for name, target in tables.items():
        require(f"the asset key of {name!r} in tables", target, str, "it as text, as in 'shop.orders'")
        if not all(target.split(".")):
            raise InvalidInput(
                f"the asset key of {name!r} in tables is {target!r}; give it as text, as in 'shop.orders'"
            )
    firsts: dict[str, str | re.Pattern[str]] = {}
    for name, target in tables.items():
        if (first := firsts.setdefault(target, name)) is not name:
            raise InvalidInput(
                f"tables: {first!r} and {name!r} both become {target}; give each an asset key of its own, or take them "
                "together by a pattern"
            )
    keys, partitions, computed = dict(primary_keys or {}), dict(partition_by or {}), dict(computed_columns or {})
    named = {
        pattern.pattern if isinstance(pattern, re.Pattern) else pattern: (pattern, to) for pattern, to in tables.items()
    }
    if len(named) < len(tables):
        raise InvalidInput(
            f"two of the tables have the same text: {', '.join(named)}; leave the table or the pattern out"
        )
    filters = dict(row_filters or {})
    by_table: dict[str, Mapping[str, Any]] = {
        "primary_keys": keys,
        "partition_by": partitions,
        "computed_columns": computed,
        "row_filters": filters,
    }
    for what, given in by_table.items():
        if unknown := sorted(given.keys() - named.keys()):
            raise InvalidInput(f"{what} names {unknown[0]!r}; the tables are {', '.join(named)}")
    for argument, lists in (("primary_keys", keys), ("partition_by", partitions)):
        lists.update({name: names_of(argument, lists, name) for name in lists})
    for name, columns in computed.items():
        require(f"computed_columns[{name!r}]", columns, Mapping, "a mapping of columns to SQL")
        with naming(f"computed_columns[{name!r}]"):
            for text in columns.values():
                sql.expression(text)
    for name, condition in filters.items():
        with naming(f"row_filters[{name!r}]"):
            sql.expression(condition)
    common = {"format": format, "table_properties": table_properties or {}, **(metadata or {})}
    return [
        _followed(
            source,
            pattern,
            target,
            {other: to for other, to in named.values() if other is not pattern},
            keys.get(name),
            partitions.get(name, ()),
            computed.get(name, {}),
            filters.get(name),
            common,
            dict(asset),
        )
        for name, (pattern, target) in named.items()
    ]


def lag_checks(assets: Iterable[Any], max_lag: timedelta) -> list[dg.AssetChecksDefinition]:
    """A check `lag` for each followed table among `assets`: the oldest change that the table lacks was committed less
    than `max_lag` ago.

    The check queries the database, so it passes for a table that has had no changes for days, and fails if no run
    picked up a change. It fails while a snapshot is incomplete.
    """
    require("max_lag", max_lag, timedelta, "a datetime.timedelta")
    return [_lag_check(asset, max_lag) for asset in _followed_among(assets)]


def lag_sensor(
    assets: Iterable[Any],
    max_lag: timedelta,
    *,
    name: str = "cdc_lag",
    status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """A sensor that requests a run for each followed table among `assets` whose oldest missing change was committed
    more than `max_lag` ago, or whose snapshot is incomplete. A database that cannot be reached is tried again after
    pauses of 30 seconds to 10 minutes, which grow."""
    require("max_lag", max_lag, timedelta, "a datetime.timedelta")
    followed = _followed_among(assets)

    @dg.sensor(
        name=name,
        target=[asset.definition for asset in followed],
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=status,
        required_resource_keys={*lake_keys(followed), *(str(asset.metadata[SOURCE]) for asset in followed)},
        description="Asks for a run of each table that is behind its database.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        runs, reasons = list[dg.RunRequest](), list[str]()
        outages: dict[str, list[float]] = json.loads(context.cursor or "{}")  # Resource -> failures, next try.
        for asset in followed:
            source, now = str(asset.metadata[SOURCE]), clock.now_ms() / 1000
            failures, next_try = outages.get(source, (0, 0))
            if now < next_try:
                reasons.append(f"{asset.name}: {source} cannot be reached; next try in {next_try - now:.0f} s")
                continue
            try:
                lag = _lag(context.resources, asset)
                outages.pop(source, None)
            except InUse as error:
                reasons.append(f"{asset.name}: {error}")
                continue
            except Disconnected as error:
                delay = min(EVERY_SECONDS * 2**failures, _LONGEST_DELAY)
                outages[source] = [failures + 1, now + delay]
                context.log.warning(f"{asset.name}: {error}; next try in {delay:.0f} s")
                reasons.append(f"{asset.name}: {error}")
                continue
            except LakeError as error:
                context.log.warning(f"{asset.name}: {error}")
                reasons.append(f"{asset.name}: {error}")
                continue
            if busy := _at_work(context.instance, asset):
                reasons.append(f"{asset.name}: run {busy[:8]} is at work")
            elif lag is None or lag >= max(max_lag.total_seconds(), 1e-9):
                runs.append(dg.RunRequest(asset_selection=[asset.key], tags={SOURCE_TABLE: asset.name}))
                reasons.append(f"{asset.name}: {'no complete snapshot' if lag is None else f'{lag:.0f} s behind'}")
            else:
                reasons.append(f"{asset.name}: {lag:.0f} s behind")
        cursor = json.dumps(outages)
        if runs:
            return dg.SensorResult(run_requests=runs, cursor=cursor)
        return dg.SensorResult(skip_reason="; ".join(reasons), cursor=cursor)

    return sensor


# --- private ----------------------------------------------------------------------------------------------------------


def _followed(
    source: str,
    source_table: str | re.Pattern[str],
    target: str,
    others: Mapping[str | re.Pattern[str], str],
    primary_key: Sequence[str] | None,
    partition_by: Sequence[str],
    computed_columns: Mapping[str, str],
    where: str | None,
    common: Mapping[str, Any],
    asset: dict[str, Any],
) -> dg.AssetsDefinition:
    key = dg.AssetKey(target.split("."))
    is_pattern = isinstance(source_table, re.Pattern)
    name = source_table.pattern if isinstance(source_table, re.Pattern) else source_table
    declared = {
        **common,
        "write": "upsert",
        "primary_key": list(primary_key or ()),
        "layout": list(partition_by),
        SOURCE: source,
        SOURCE_TABLE: name,
        IS_PATTERN: is_pattern,
    }
    table_of(key, key.to_user_string(), None, declared)  # Refuses what is misspelt.
    asset.setdefault("pool", pool_of(key.to_python_identifier()))
    asset.setdefault("retry_policy", RETRY)
    asset.setdefault("kinds", {"cdc", str(common["format"])})
    asset.setdefault(
        "description", f"{'All tables that match' if is_pattern else 'The table'} {name} of the database {source!r}."
    )

    resource = lake_key(key, declared)

    @dg.asset(
        key=key,
        metadata={name: value for name, value in declared.items() if value},
        required_resource_keys={resource, source},
        output_required=False,
        **asset,
    )
    def followed(context: dg.AssetExecutionContext, config: CdcRun) -> Iterator[dg.MaterializeResult]:
        lake: LakeResource = getattr(context.resources, resource)
        to = lake.declared(key, context.assets_def)
        opened = getattr(context.resources, source).of_table(name, lake.lake, to.name)
        try:
            with as_dagster_failures(key, []):
                report = sync_table(
                    opened,
                    source_table,
                    lake.lake,
                    to.name,
                    to.format,
                    primary_key=primary_key,
                    computed_columns=computed_columns,
                    where=where,
                    partition_by=partition_by,
                    properties=dict(to.properties),
                    # A retry and a re-execution continue the restart of the first attempt.
                    restart=(context.run.root_run_id or context.run.run_id) if config.restart else False,
                    swap=config.swap,
                    snapshot_properties={
                        ASSET: to.asset.to_user_string(),
                        "dagster/run_id": context.run.run_id,
                    },
                    max_rows=config.max_rows,
                    max_seconds=config.max_seconds,
                    reconnect_seconds=config.reconnect_seconds,
                    on_progress=lambda done: context.log.info(str(done)),
                    # Tables with a slot of their own do not hold this one back.
                    slot_shared_with={
                        other: lake.table_name(dg.AssetKey(to.split(".")), common) for other, to in others.items()
                    },
                )
        finally:
            opened.close()
        table = lake.lake.table(to.name)
        newest = table.current_snapshot()
        metadata = {**metadata_of(table, to, newest), **_metadata(report)}
        if report.is_complete and newest is not None and _has_changed(context.instance, key, table):
            yield dg.MaterializeResult(
                asset_key=key,
                metadata={**metadata, "lake/snapshot_id": id_text(newest.id)},
                data_version=dg.DataVersion(str(newest.id)),
            )
        else:
            context.log_event(dg.AssetObservation(key, metadata=metadata))

    return followed


def _metadata(report: Report) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "cdc/position": report.position,
        "cdc/lag_seconds": report.lag_seconds,
        "cdc/snapshot_rows": report.snapshot_rows,
        "cdc/snapshot_is_complete": report.is_complete,
        "cdc/filled_rows": report.filled_rows or None,
        "cdc/rows": report.rows,
        "cdc/rows_per_second": round(report.rows_per_second),
        **{f"cdc/rows {kind}": count for kind, count in sorted(report.rows_by_kind.items())},
        "cdc/commits": len(report.snapshots),
        "cdc/schema_changes": ", ".join(report.schema_changes) or None,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def _has_changed(instance: dg.DagsterInstance, key: dg.AssetKey, table: Any) -> bool:
    """Whether the table has commits of rows since the last materialization, also of a run that died before it
    reported."""
    event = instance.get_latest_materialization_event(key)
    last = event and event.asset_materialization and event.asset_materialization.metadata.get("lake/snapshot_id")
    if not last:
        return True
    return any(
        (snapshot.operation_id or "").startswith(f"{USER}/")
        and not snapshot.properties.keys().isdisjoint({COMMITTED, SNAPSHOT, FILLING})
        for snapshot in snapshots_after(table, int(str(last.value)))
    )


def _followed_among(assets: Iterable[Any]) -> list[TableAsset]:
    return [table for table in tables_of(assets).values() if SOURCE_TABLE in table.metadata]


def _lag(resources: Any, asset: TableAsset) -> float | None:
    name, source = str(asset.metadata[SOURCE_TABLE]), getattr(resources, str(asset.metadata[SOURCE]))
    resource = asset.lake(resources)
    lake, table = resource.lake, asset.table(resource).name
    opened = source.of_table(name, lake, table)
    try:
        return lag_seconds(opened, re.compile(name) if IS_PATTERN in asset.metadata else name, lake, table)
    finally:
        opened.close()


def _lag_check(asset: TableAsset, max_lag: timedelta) -> dg.AssetChecksDefinition:
    source = str(asset.metadata[SOURCE])

    @dg.asset_check(
        asset=asset.key,
        name=LAG,
        description=f"The oldest change that is not in the table was committed less than {max_lag} ago.",
        required_resource_keys={asset.lake_key, source},
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with as_dagster_failures(asset.key, []):
            lag = _lag(context.resources, asset)
        if lag is None:
            return dg.AssetCheckResult(passed=False, metadata={"cdc/snapshot_is_complete": False})
        return dg.AssetCheckResult(passed=lag < max_lag.total_seconds(), metadata={"cdc/lag_seconds": lag})

    return check


def _at_work(instance: dg.DagsterInstance, asset: TableAsset) -> str | None:
    """The sensor's queued or running run for a table, if there is one."""
    wanted = dg.RunsFilter(tags={SOURCE_TABLE: asset.name}, statuses=IN_FLIGHT)
    runs = instance.get_runs(wanted, limit=1)
    return runs[0].run_id if runs else None
