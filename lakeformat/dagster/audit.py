"""Write-audit-publish: an asset writes to a branch of its run; after its blocking checks,
the table moves to that branch.

@dg.asset(metadata={"table": "shop.orders", "format": "iceberg", "audit": True, "unique_key": ["id"]})
def orders_audited() -> pa.Table: ...

orders = published(orders_audited, key="orders")  # Downstream assets depend on this one.
checks = checks_for([orders_audited])             # Blocking: `orders` waits for them.
"""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from lakeformat.dagster.asset_table import (
    Written,
    as_dagster_failures,
    has_branch,
    report,
    scan,
    write,
    written_of,
)
from lakeformat.dagster.fields import require
from lakeformat.dagster.identity import branch_of, origin_of
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.tables import listed, tables_of
from lakeformat.errors import Conflict, InvalidInput, NotFound

NOT_PUBLISHED = ("audit", "unique_key", "unique_over")  # Metadata of the audited asset alone.


def published(
    audited: dg.AssetsDefinition, *, key: Any, together: Iterable[dg.AssetsDefinition] = (), **asset: Any
) -> dg.AssetsDefinition:
    """The asset `key`, which publishes the audited asset `audited` (whose metadata has `"audit": True`): it moves the
    table to the branch that `audited` wrote in the same run.

    It waits for the blocking checks of `audited`. If one fails, the table stays unchanged; the branch is kept for a
    week, or in a Paimon table until it is deleted. It uses the resource `lake`, or the one that `audited` names.

    It also waits for the blocking checks of the audited assets `together`, as far as the run has them: give all audited
    assets whose tables belong together to each of their publishers, and none of the tables moves before the checks of
    all have passed. The tables then move one after the other, so a reader may see some before the others; a run that
    dies in between is finished by its re-execution from the failure.

    If the table has changed meanwhile, the audited rows replace the run's partitions in it; for writes other than
    "replace" the asset then fails, and the run must be repeated. A run that was killed can safely be repeated, or
    re-executed from the failure. `asset`: further arguments of `dg.asset`.
    """
    require("audited", audited, dg.AssetsDefinition, "the asset that writes the branch")
    together = listed(together, "together")
    for name, asset_table in tables_of([audited, *together]).items():
        if not asset_table.audits:
            raise InvalidInput(f"{name}: published() is for assets whose metadata has 'audit': True")
    (staged,) = tables_of([audited]).values()
    if dg.AssetKey.from_coercible(key) == staged.key:
        raise InvalidInput(f"key={key!r} is the audited asset's own; give the asset that publishes it another")
    metadata = {name: value for name, value in staged.metadata.items() if name not in NOT_PUBLISHED}
    defaults = {
        "partitions_def": audited.partitions_def,
        "backfill_policy": audited.backfill_policy,
        "group_name": audited.specs_by_key[staged.key].group_name,
        "pool": staged.pool,
        "description": f"What {staged.name} wrote, once its blocking checks have passed.",
    }
    asset = {**defaults, **asset, "metadata": {**metadata, "publishes": staged.name, **asset.get("metadata", {})}}

    deps = [audited, *(other for other in together if other is not audited)]

    @dg.asset(key=key, deps=deps, required_resource_keys={staged.lake_key}, **asset)
    def publish(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        lake = staged.lake(context.resources)
        keys = list(context.partition_keys) if context.assets_def.partitions_def else []
        with as_dagster_failures(context.asset_key, keys):
            written = _publish(context, lake, staged.name, keys)
        return dg.MaterializeResult(
            asset_key=context.asset_key,
            metadata=report(context, lake.declared(context.asset_key, context.assets_def), written, keys),
            data_version=written.data_version,
        )

    return publish


def _publish(context: dg.AssetExecutionContext, lake: LakeResource, staged: str, keys: list[str]) -> Written:
    origin = origin_of(context)
    to = lake.declared(context.asset_key, context.assets_def)
    table, name = lake.lake.table(to.name), branch_of(origin)
    if has_branch(table, name):
        try:
            table.fast_forward(name)
        except Conflict as error:
            if to.write != "replace":
                raise InvalidInput(
                    f"{to.name} has moved on since branch {name} began, and write={to.write!r} cannot be brought onto "
                    f"it: run {staged} again ({error})"
                ) from error
            rows, _ = scan(lake.lake, to, keys if to.partitions else None, branch=name)
            write(lake.lake, to, rows, keys, origin, branch=name)
        table.delete_branch(name)
    for snapshot in reversed(table.snapshots() if table.current_snapshot() else ()):
        if snapshot.properties.get("lake/branch") == name:
            return written_of(table, to, snapshot, keys, origin)
    raise NotFound(f"{to.name} has no branch {name}: publish in the run that writes {staged}, or run that again")
