"""A table that a SELECT over other tables fills."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import dagster as dg
from pydantic import Field

from lakeformat.dagster.components.declared import DeclaredTable
from lakeformat.dagster.components.table import TableParams
from lakeformat.dagster.sql_table import code_reference, first_comment, sql_table
from lakeformat.errors import InvalidInput


def _file(context: dg.ResolutionContext, name: str) -> Path:
    """The file `name` beside the YAML."""
    path = context.resolve_source_relative_path(name)
    if not path.is_file():
        raise InvalidInput(f"sql: {name!r}; there is no file {path}")
    return path


class QueryFields(dg.Model):
    """How a query, or each of several, is answered."""

    upstream: Annotated[
        dict[str, str | None],
        dg.Resolver.default(
            description="Name in the query -> the asset's key ('raw/orders'), or null: a table that is no asset."
        ),
    ] = {}
    params: Annotated[
        dict[str, str | bool | int | float | None], dg.Resolver.default(description="Values of :name in the query.")
    ] = {}
    on_spark: Annotated[
        bool, dg.Resolver.default(description="Whether Spark answers the query; else this process.")
    ] = False


class SqlParams(TableParams):
    """The command line options of a scaffolded table of a query."""

    upstream: str = Field(description="The table that the query reads, 'db.name', or 'name' in the lake's database.")


class SqlScaffolder(dg.Scaffolder[SqlParams]):
    """A table's YAML, and the query that makes its rows."""

    @classmethod
    def get_scaffold_params(cls) -> type[SqlParams]:
        """The options of the command."""
        return SqlParams

    def scaffold(self, request: dg.ScaffoldRequest[SqlParams]) -> None:
        """Write defs.yaml and rows.sql."""
        params = request.params
        attributes = {"table": params.table, "sql": "rows.sql", **params.attributes()}
        dg.scaffold_component(request, attributes)
        column = attributes.get("partition_by")
        select = f"SELECT {column}, count(*) AS n FROM {params.upstream} GROUP BY {column}" if column else ""
        query = select or f"SELECT count(*) AS n FROM {params.upstream}"
        (request.target_path / "rows.sql").write_text(
            f"-- The rows of {params.table}; replace this by your own.\n{query}\n", "utf-8"
        )


@dg.scaffold_with(SqlScaffolder)
class LakeSqlComponent(DeclaredTable, QueryFields):
    """A table that a SELECT over other tables fills.

    ```yaml
    type: lakeformat.dagster.LakeSqlComponent
    attributes:
      table: shop.days
      sql: rows.sql
      partitions: {type: daily, start_date: "2026-01-01"}
      partition_by: {date: day}
    ```
    """

    sql: Annotated[Path, dg.Resolver(_file, model_field_type=str)] = Field(
        description="The file of the SELECT, beside this one. Each table that it names is upstream; it may name "
        ":partition_key, :partition_start and :partition_end."
    )

    def asset(self) -> dg.AssetsDefinition:
        """The asset that fills the table."""
        return query_asset(self, self.sql, self.sql.read_text("utf-8"), self.upstream, self)


def query_asset(
    table: DeclaredTable, file: Path, query: str, upstream: Mapping[str, str | None], fields: QueryFields
) -> dg.AssetsDefinition:
    """The asset that fills a table by the query of a file; `upstream`: by name in the query."""
    keys = {name: key and dg.AssetKey.from_user_string(key) for name, key in upstream.items()}
    options = {**table.options(), "kinds": {table.format, "sql", *table.kinds}}
    options["metadata"] = {**code_reference(file), **options["metadata"]}
    if table.description is None:
        options["description"] = first_comment(query)
    asset: dg.AssetsDefinition = sql_table(query, upstream=keys, params=fields.params, spark=fields.on_spark, **options)
    return asset
