"""A table whose rows a Python function returns."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

from lakeformat.dagster.components.declared import DeclaredTable
from lakeformat.errors import InvalidInput

KEY_COLUMNS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month"}  # Columns of a scaffolded table.


class TableParams(BaseModel):
    """The command line options of a scaffolded table."""

    table: str = Field(description="'db.name', or 'name' in the database of the lake.")
    table_format: Literal["paimon", "iceberg"] = Field(default="paimon", description="The table's format.")
    partitions: Literal["hourly", "daily", "weekly", "monthly"] | None = Field(default=None, description="Of time.")
    start_date: str = Field(default="2026-01-01", description="The first partition.")

    def attributes(self) -> dict[str, Any]:
        """The YAML of the table."""
        attributes: dict[str, Any] = {"table": self.table, "format": self.table_format}
        if self.partitions:
            attributes["partitions"] = {"type": self.partitions, "start_date": self.start_date}
            attributes["partition_by"] = KEY_COLUMNS[self.partitions]
        return attributes


ROWS = '''import dagster as dg
import pyarrow as pa


def {name}(context: dg.AssetExecutionContext) -> pa.Table:
    """The rows of {table}; replace this by your own."""
    return pa.table({columns})
'''


class TableScaffolder(dg.Scaffolder[TableParams]):
    """A table's YAML, and a function that makes its rows."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableParams]:
        """The options of the command."""
        return TableParams

    def scaffold(self, request: dg.ScaffoldRequest[TableParams]) -> None:
        """Write defs.yaml and rows.py."""
        params = request.params
        name = dg.AssetKey(params.table.split(".")).path[-1]
        attributes = params.attributes()
        dg.scaffold_component(request, {"table": attributes.pop("table"), "rows": f".rows.{name}", **attributes})
        column = attributes.get("partition_by")
        keys = "context.partition_keys"
        columns = f'{{"{column}": {keys}, "n": [1] * len({keys})}}' if column else '{"n": [1]}'
        rows = ROWS.format(name=name, table=params.table, columns=columns)
        (request.target_path / "rows.py").write_text(rows, "utf-8")


def _function(context: dg.ResolutionContext, path: str) -> Callable[..., Any]:
    """`.module.function` beside the YAML, or `package.module.function`."""
    name, _, function = path.rpartition(".")
    if not name.strip("."):
        raise InvalidInput(f"rows: {path!r}; give '.module.function' beside the YAML, or 'package.module.function'")
    if name.startswith("."):
        component = dg.ComponentLoadContext.from_resolution_context(context)
        file = Path(*name[1:].split(".")).with_suffix(".py")
        folder = component.path.parent if component.path.is_file() else component.path
        if not (folder / file).exists():
            raise InvalidInput(f"rows: {path!r} is the function {function} of {file}, and there is no {folder / file}")
        module = component.load_defs_relative_python_module(file)
    else:
        module = import_module(name)
    loaded = getattr(module, function, None)
    if not callable(loaded):
        there = sorted(name for name in vars(module) if callable(getattr(module, name)) and not name.startswith("_"))
        raise InvalidInput(f"rows: {path!r}; {module.__name__} has no function {function}, it has {', '.join(there)}")
    if isinstance(loaded, dg.AssetsDefinition):
        raise InvalidInput(f"rows: {path!r} is an asset; give a plain function, which this component makes an asset of")
    return loaded


@dg.scaffold_with(TableScaffolder)
class LakeTableComponent(DeclaredTable):
    """A table whose rows a Python function returns.

    ```yaml
    type: lakeformat.dagster.LakeTableComponent
    attributes:
      table: shop.orders
      rows: .rows.orders
      partitions: {type: daily, start_date: "2026-01-01"}
      partition_by: {date: day}
    ```
    """

    rows: Annotated[Callable[..., Any], dg.Resolver(_function, model_field_type=str)] = Field(
        description="The function: '.module.function' beside this file, or 'package.module.function'. As of any "
        "asset, its arguments are `context`, resources and upstream tables, and it returns a frame."
    )
    inputs: Annotated[
        dict[str, str], dg.Resolver.default(description="Argument -> upstream table, where it has another name.")
    ] = {}

    def asset(self) -> dg.AssetsDefinition:
        """The asset that fills the table."""
        ins = {name: dg.AssetIn(key=table.split(".")) for name, table in self.inputs.items()}
        one_run = {"backfill_policy": dg.BackfillPolicy.single_run()} if self.partitions else {}
        return dg.asset(ins=ins, **{**one_run, **self.options()})(self.rows)
