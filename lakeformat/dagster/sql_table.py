"""`sql_table`: a query as an asset. Its rows replace the run's partitions; the tables that it names are its inputs."""

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from lakeformat import Scan, sql
from lakeformat.dagster.asset_table import as_dagster_failures
from lakeformat.dagster.declaration import declared, lake_key
from lakeformat.dagster.fields import require
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.tables import pool_of
from lakeformat.errors import InvalidInput

_KEY, _WINDOW = ":partition_key", (":partition_start", ":partition_end")


def sql_table(
    query: str | Path | None = None,
    *,
    key: Any = None,
    upstream: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    spark: bool = False,
    **asset: Any,
) -> Any:
    """An asset filled by a SELECT, given as text or as a `.sql` file, whose name is the asset's unless there is a
    `key`. Also a decorator for a function that returns the text.

        orders_by_day = sql_table(Path(__file__).with_name("orders_by_day.sql"), partitions_def=DAILY,
        metadata={"partition_by": {"date": "dt"}})

        @sql_table(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
        def orders_by_day():
            return "SELECT dt, sum(amount) AS total FROM shop.orders GROUP BY dt"

    Each table that the text names is an input, loaded by the IO manager; of a partitioned asset, the partitions that
    the run's partitions map to. `shop.orders` is the asset with the key [shop, orders], one of the repository's or of
    `external_tables`. `upstream={"shop.orders": "orders"}` gives another key, and `{"shop.orders": None}` reads the
    table itself through the resource `lake`, or the one that the asset's metadata names. Names with a version (`VERSION
    AS OF`) and metadata tables (`` `orders$files` ``) are read that way too.

    The query runs in this process, or with `spark=True` on Spark. `params`: values for `:name`. `:partition_key` (in
    runs of one partition) and, for time partitions, `:partition_start` and `:partition_end` (timestamps) are always
    available. The asset's metadata has the lineage of its columns. `asset`: further arguments of `dg.asset`; a
    partitioned asset is made in one run unless its `backfill_policy` or `:partition_key` says otherwise.
    """
    options = {"key": key, "upstream": upstream or {}, "params": params or {}, "spark": spark}
    if query is not None:
        is_file = isinstance(query, Path)
        if isinstance(query, Path) and not query.is_file():
            raise InvalidInput(f"sql_table: there is no file {query}")
        if not is_file and key is None:
            raise InvalidInput("sql_table of a text needs a key=..., as a file's is its name")
        text = query.read_text(encoding="utf-8") if isinstance(query, Path) else query
        asset.setdefault("description", first_comment(text))
        if isinstance(query, Path):
            asset["metadata"] = {**code_reference(query), **(asset.get("metadata") or {})}
        return _asset(
            text, **{**options, "key": query.stem if isinstance(query, Path) and key is None else key}, asset=asset
        )

    def decorate(function: Callable[[], str]) -> dg.AssetsDefinition:
        asset.setdefault("description", function.__doc__)
        return _asset(function(), **{**options, "key": function.__name__ if key is None else key}, asset=asset)

    return decorate


def code_reference(file: Path, line: int = 1) -> dict[str, Any]:
    """The metadata by which an asset's page opens the file in an editor, or in the repository if the definitions go
    through `dg.link_code_references_to_git`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(file.absolute()), line_number=line, label=file.name)
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def first_comment(text: str) -> str | None:
    """The comment at the beginning of a text."""
    lines = []
    for line in text.strip().splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").removeprefix(" ").rstrip())
    return "\n".join(lines) or None


# --- private ----------------------------------------------------------------------------------------------------------


def _asset(
    text: str, key: Any, upstream: Mapping[str, Any], params: Mapping[str, Any], spark: bool, asset: dict[str, Any]
) -> dg.AssetsDefinition:
    asset_key = dg.AssetKey.from_coercible(key)
    name = asset_key.to_user_string()
    require(f"{name}: upstream", upstream, Mapping, "a mapping of names in the query to asset keys")
    require(f"{name}: params", params, Mapping, "a mapping of names in the query to values")
    asset["metadata"] = asset.get("metadata") or {}
    declared(asset_key, name, asset.get("partitions_def"), asset["metadata"])  # Refuses what is misspelt.
    named = [".".join(path) for path in sql.tables(text)]
    if unknown := sorted(set(upstream) - set(named)):
        raise InvalidInput(f"{name}: upstream names {unknown[0]!r}; the query reads {', '.join(named) or 'nothing'}")
    _check_parameters(name, text, params, asset.get("partitions_def"))
    keys = {
        name: dg.AssetKey.from_coercible(upstream.get(name, name.split(".")))
        for name in named
        if upstream.get(name, name) is not None and "$" not in name
    }
    arguments = {name: f"table_{index}_" + re.sub(r"\W", "_", name) for index, name in enumerate(keys)}
    kind: Any = Any if spark else Scan
    if asset.get("partitions_def") is not None and _KEY not in text:
        asset.setdefault("backfill_policy", dg.BackfillPolicy.single_run())
    asset.setdefault("pool", pool_of(asset_key.to_python_identifier()))
    asset.setdefault("kinds", {"sql", "spark" if spark else "duckdb"})
    asset["metadata"] = {"lake/sql": dg.MetadataValue.md(f"```sql\n{text.strip()}\n```"), **asset.get("metadata", {})}

    resource = lake_key(asset_key, asset["metadata"])

    def table(context: dg.AssetExecutionContext, **inputs: Any) -> dg.Output:
        lake: LakeResource = getattr(context.resources, resource)
        keys_asked = list(context.partition_keys) if context.assets_def.partitions_def else []
        with as_dagster_failures(asset_key, keys_asked):
            frames = {name: inputs[argument] for name, argument in arguments.items()}
            result = lake.lake.sql(text, params={**_partition(context, text), **params}, **frames)
            origins = {
                column: [dg.TableColumnDep(keys[table], source) for table, source in several if table in keys]
                for column, several in result.lineage.items()
            }
            rows = result.to_spark() if spark else result.to_arrow()
        metadata = {"dagster/column_lineage": dg.TableColumnLineage(origins)} if origins else {}
        return dg.Output(rows, metadata=metadata)

    ins = {arguments[name]: dg.AssetIn(key=key, dagster_type=kind) for name, key in keys.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # Of `backfill_policy`.
        return dg.asset(key=asset_key, ins=ins, required_resource_keys={resource}, **asset)(table)


def _check_parameters(
    name: str, query: str, params: Mapping[str, Any], partitions: dg.PartitionsDefinition | None
) -> None:
    """Raise `InvalidInput` for a `:name` of the query without a value, and for a value that the query does not use."""
    used, of_run = set(sql.parameter_names(query)), set[str]()
    if partitions is not None:
        of_run.add(_KEY)
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition | dg.MultiPartitionsDefinition):
        of_run.update(_WINDOW)
    names = {word.removeprefix(":") for word in of_run} | params.keys()
    if lacking := sorted(used - names):
        is_of_partition = f":{lacking[0]}" in (_KEY, *_WINDOW)
        advice = "partitions_def= of time" if is_of_partition else f"params={{{lacking[0]!r}: ...}}"
        raise InvalidInput(f"{name}: the query uses :{lacking[0]}, which has no value; give {advice}")
    if unused := sorted(params.keys() - used):
        shown = ", ".join(f":{parameter}" for parameter in sorted(used)) or "none"
        raise InvalidInput(f"{name}: params has {unused[0]!r}, and the query uses {shown}")


def _partition(context: dg.AssetExecutionContext, text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if _KEY in text and context.has_partition_key:
        values["partition_key"] = context.partition_key
    if any(word in text for word in _WINDOW):
        window = context.partition_time_window
        values |= {"partition_start": window.start, "partition_end": window.end}
    return values
