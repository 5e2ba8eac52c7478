"""A model: one `.sql` file, and the table that it fills."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from lakeformat import sql
from lakeformat.dagster.components.declared import DeclaredTable
from lakeformat.dagster.components.query import QueryFields, query_asset
from lakeformat.dagster.declaration import naming
from lakeformat.dagster.sql_table import first_comment
from lakeformat.errors import InvalidInput, LakeError

_REF = re.compile(r"\{\{-?\s*ref\(\s*['\"]([^'\"]+)['\"]\s*\)\s*-?\}\}")
_SOURCE = re.compile(r"\{\{-?\s*source\(\s*['\"]([^'\"]+)['\"]\s*,\s*['\"]([^'\"]+)['\"]\s*\)\s*-?\}\}")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


class Model(DeclaredTable, QueryFields):
    """One file and its table. `refs`: the asset keys of all models of the folder, by name."""

    path: Path
    columns: dict[str, str]
    refs: dict[str, str]

    def query(self) -> str:
        """The query, with plain names of tables."""
        return plain_query(self.path, self.path.read_text("utf-8"), self.refs)

    def parameters(self) -> list[str]:
        """The names of the query's parameters."""
        with naming(str(self.path)):
            return sql.parameter_names(self.query())

    def tables(self) -> list[str]:
        """The names of the tables that the query reads."""
        return tables_in(self.path, self.query())

    def asset(self) -> dg.AssetsDefinition:
        """The asset that fills the table."""
        query = self.query()
        named, parameters = self.tables(), self.parameters()
        params = {name: value for name, value in self.params.items() if name in parameters}
        upstream = {name: key for name, key in {**self.refs, **self.upstream}.items() if name in named}
        comment = self.description or first_comment(query) or ""
        lines = "\n".join(f"    {name}: {' '.join(text.split())}" for name, text in self.columns.items())
        described = f"{comment}\n\nColumns:\n{lines}".strip() if lines else comment or None
        try:
            return query_asset(
                self.model_copy(update={"description": described}),
                self.path,
                query,
                upstream,
                self.model_copy(update={"params": params}),
            )
        except LakeError as error:
            raise InvalidInput(f"{self.path}: {error}") from error


def plain_query(path: Path, query: str, models: Mapping[str, Any]) -> str:
    """A query with the names of tables for `{{ ref(...) }}` and `{{ source(...) }}`."""
    for name in _REF.findall(query):
        if name not in models:
            raise InvalidInput(f"{path}: ref({name!r}) is no model; there are {', '.join(models)}")
    query = _SOURCE.sub(r"\1.\2", _REF.sub(r"\1", query))
    if template := _TEMPLATE.search(query):
        raise InvalidInput(
            f"{path}: {template[0]} is not read here, only ref('model') and source('db', 'table'); write plain SQL, "
            "with :name and `params`, and a model's options into a YAML file"
        )
    return query


def tables_in(path: Path, query: str) -> list[str]:
    try:
        return [".".join(names) for names in sql.tables(query)]
    except LakeError as error:
        raise InvalidInput(f"{path}: {error}") from error
