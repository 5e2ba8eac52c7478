"""LakeResource: a Lake made from configuration, and the write of a table from inside an asset."""

import base64
import binascii
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa
from pydantic import ConfigDict, Field, PrivateAttr

from lakeformat import Lake
from lakeformat.dagster.asset_table import (
    as_dagster_failures,
    commit_metadata,
    data_version_of,
    metadata_of,
    report,
    table_for,
    with_changes,
    write,
)
from lakeformat.dagster.declaration import AssetTable, at_run_time, check_table_name, declared, naming, table_name
from lakeformat.dagster.fields import LaunchableFields, resolved
from lakeformat.dagster.identity import change_id, consumer_of, note_write, origin_of
from lakeformat.dagster.markdown import id_text
from lakeformat.errors import InvalidInput

SECRET: dict[str, Any] = {"dagster__is_secret": True}  # Dagster's launchpad hides its value.
LAKE_FORM = "the repository's LakeResource, as in LakeResource(warehouse='/data/warehouse')"  # In errors.
UNTIL = "lake/changes_until"  # Snapshot property: the last upstream snapshot whose changes it includes.


class LakeResource(LaunchableFields, dg.ConfigurableResource):
    """A warehouse: its location, its storage and catalog options, and the default database of assets' tables.

        LakeResource(
            warehouse="s3://bucket/warehouse",
            storage_options={"region": "eu-west-1", "secret_access_key": dg.EnvVar("S3_SECRET")},
            catalog="https://catalog.example/iceberg",
            catalog_options={"credential": dg.EnvVar("CATALOG_CREDENTIAL")},
        )

    Give keys and passwords by `dg.EnvVar`. Dagster shows neither `storage_options`, `catalog`, `catalog_options` nor
    `encryption_keys`; a run uses those of the code, unless its configuration gives others.

    An asset that writes inside its body returns the result of `write`:

        @dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}}, ...)
        def flights(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
            return lake.write(context, rows_of(context.partition_keys))
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    warehouse: str = Field(description="A path or URI, e.g. `/data/warehouse` or `s3://bucket/warehouse`.")
    database: str = Field(default="default", description="The database of tables whose asset key names none.")
    storage_options: dict[str, str] = Field(
        default={},
        description="What the storage needs: endpoint, region; keys as `EnvVar`.",
        repr=False,
        json_schema_extra=SECRET,
    )
    catalog: str | None = Field(
        default=None,
        description="Where Iceberg tables are named: `sql`, a database's address or `https://...`; "
        "see `lakeformat.Lake`.",
        repr=False,  # An address may contain a password.
        json_schema_extra=SECRET,
    )
    catalog_options: dict[str, str] = Field(
        default={},
        description="What the catalog needs: its name, or a token or credential as `EnvVar`.",
        repr=False,
        json_schema_extra=SECRET,
    )
    encryption_keys: dict[str, str] = Field(
        default={},
        description="What opens encrypted Iceberg tables: master keys by id, in base64, as `EnvVar`.",
        repr=False,
        json_schema_extra=SECRET,
    )
    allowed_locations: list[str] | None = Field(
        default=None,
        description="The folders, besides the warehouse, in which files may lie, whatever tables' metadata name; "
        "by default all.",
    )
    _lake: Lake | None = PrivateAttr(default=None)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if not isinstance(self.database, dg.EnvVar):
            with naming("LakeResource: database"):
                check_table_name(self.database)

    @property
    def lake(self) -> Lake:
        """The Lake, opened on first use."""
        if self._lake is None:
            options: dict[str, Any] = {
                "catalog": resolved(self.catalog),
                "catalog_options": resolved(self.catalog_options),
                "allowed_locations": resolved(self.allowed_locations),
                **resolved(self.storage_options),
            }
            if self.encryption_keys:
                keys = resolved(self.encryption_keys)
                options["encryption_keys"] = {id: _key(id, text) for id, text in keys.items()}
            self._lake = Lake(resolved(self.warehouse), **options)
        return self._lake

    def write(
        self, context: dg.AssetExecutionContext, data: Any, asset: str | dg.AssetKey | None = None
    ) -> dg.MaterializeResult:
        """Write `data` to the asset's table as the asset declares (by default, replace its partitions), in one commit,
        and report it; once per step and table. `data` may be a `dg.Output` of a frame, whose metadata says how this
        output is written. A multi-asset names the `asset`, by its key."""
        output = data if isinstance(data, dg.Output) else dg.Output(data)
        key = _written_asset(context, asset)
        keys = list(context.partition_keys) if context.assets_def.partitions_def else []
        with as_dagster_failures(key, keys):
            table = self.declared(key, context.assets_def, output.metadata)
            origin = origin_of(context)
            note_write(context, table, origin)
            written = write(self.lake, table, output.value, keys, origin)
        return dg.MaterializeResult(
            asset_key=table.asset,
            metadata={**output.metadata, **report(context, table, written, keys)},
            data_version=written.data_version,
        )

    def append_changes(
        self, context: dg.AssetExecutionContext, of: str, shape: Callable[[pa.Table], pa.Table] = lambda rows: rows
    ) -> dg.MaterializeResult:
        """Append to the asset's table what has changed in the table of the asset `of` since the last call: the rows
        with `_row_kind`, transformed by `shape`. Each change is appended exactly once, even if a run dies before it has
        recorded its progress. Expiry keeps the snapshots that are still to be read."""
        with as_dagster_failures(context.asset_key, []):
            upstream = dg.AssetKey.from_user_string(of)
            source = self.lake.table(self.table_name(upstream, {}))
            consumer = consumer_of(context.asset_key)
            to = self.declared(context.asset_key, context.assets_def)
            after = None
            while True:
                changes = source.changes(consumer=consumer)
                after = changes.after if after is None else after
                rows = shape(changes.to_arrow())
                table = table_for(self.lake, to, rows)
                # The append of a run that died, which may have ended at another snapshot.
                snapshot = table.append(
                    rows,
                    id=change_id(context.asset_key, source.name, changes.after),
                    properties={UNTIL: str(changes.until), "dagster/run_id": context.run.run_id},
                )
                until = int(snapshot.properties[UNTIL]) if snapshot else changes.until
                source.changes(to_snapshot=until, consumer=consumer).acknowledge()
                if until == changes.until:
                    break
        current = snapshot or table.current_snapshot()
        span = {"lake/changes_after": after, "lake/changes_until": until}
        metadata = {
            **metadata_of(table, to, current),
            **{name: id_text(id) for name, id in span.items() if id is not None},
        }
        commit = commit_metadata(table, to, with_changes(table, snapshot)) if snapshot else {}
        return dg.MaterializeResult(
            asset_key=to.asset, metadata={**metadata, **commit}, data_version=data_version_of(current)
        )

    def declared(
        self, asset: dg.AssetKey, definition: dg.AssetsDefinition, output: Mapping[str, Any] = MappingProxyType({})
    ) -> AssetTable:
        """The table of an asset, from its definition and the metadata of its output."""
        metadata = at_run_time(definition.metadata_by_key.get(asset) or {}, output)
        description = definition.specs_by_key[asset].description
        return declared(asset, self.table_name(asset, metadata), definition.partitions_def, metadata, description)

    def table_name(self, asset: dg.AssetKey, metadata: Mapping[str, Any]) -> str:
        """The table of an asset: its metadata's `table`, or else its key; in `database` if that has one part."""
        return table_name(asset, metadata, self.database)


def _written_asset(context: dg.AssetExecutionContext, asset: str | dg.AssetKey | None) -> dg.AssetKey:
    """The asset of the step that `lake.write` is to write. Raises `Failure` for none of them."""
    if not context.has_assets_def:
        raise dg.Failure(
            f"lake.write writes the table of an asset, and {context.op_def.name} is an op; return the rows with "
            "out=dg.Out(metadata={'table': 'db.name'}), or write lake.lake.table('db.name')",
            allow_retries=False,
        )
    keys = sorted(context.selected_asset_keys)
    if asset is None and len(keys) == 1:
        return keys[0]
    key = dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset
    if key is None or key not in keys:
        names = [one.to_user_string() for one in keys]
        wrong = "" if key is None else f", and not {key.to_user_string()}"
        raise dg.Failure(
            f"this step makes {', '.join(names)}{wrong}; name one: lake.write(context, rows, asset={names[0]!r})",
            allow_retries=False,
        )
    return key


def _key(id: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidInput(f"encryption_keys[{id!r}]: give the key in base64") from None
