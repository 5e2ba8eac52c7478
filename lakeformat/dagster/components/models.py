"""A folder of `.sql` files, each of which fills the table of its name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakeformat.dagster.checks import checks_for
from lakeformat.dagster.components.declared import DeclaredAssets, TableFields, check_declarations
from lakeformat.dagster.components.model import Model, plain_query, tables_in
from lakeformat.dagster.components.model_tests import Test, asset_check, tests_of_column
from lakeformat.dagster.components.query import QueryFields
from lakeformat.dagster.components.values import betas_allowed
from lakeformat.errors import InvalidInput

_OF_FILES = ("version", "models")
_OF_COLUMNS = ("name", "description", "tests", "data_tests")


class ModelFields(TableFields, QueryFields):
    """The fields that a model may have for itself."""

    table: Annotated[str | None, dg.Resolver.default(description="The table, if it has another name.")] = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What a YAML file says of a model: fields that it has for itself, comments of columns, and tests."""

    values: Mapping[str, Any]
    columns: Mapping[str, str]
    tests: tuple[Test, ...]


NOTHING = Entry({}, {}, ())


@dataclass(frozen=True, slots=True)
class Folder:
    """The `.sql` files of a folder by the names of their models, and what its YAML files say of these."""

    path: Path
    files: Mapping[str, Path]
    entries: Mapping[str, Entry]


def _folder(context: dg.ResolutionContext, name: str) -> Folder:
    """The folder `name` beside the YAML."""
    path = context.resolve_source_relative_path(name)
    if not path.is_dir():
        raise InvalidInput(f"folder: {name!r}; there is no folder {path}")
    files: dict[str, Path] = {}
    for file in sorted(path.rglob("*.sql")):
        if (other := files.setdefault(file.stem, file)) is not file:
            raise InvalidInput(f"{other} and {file} are both the model {file.stem}; rename one")
    if not files:
        raise InvalidInput(f"folder: {name!r}; there is no .sql file in {path}")
    entries: dict[str, Entry] = {}
    for file in sorted((*path.rglob("*.yaml"), *path.rglob("*.yml"))):
        for model, entry in _entries(context, file):
            if model not in files:
                raise InvalidInput(f"{file}: there is no model {model!r}; there are {', '.join(files)}")
            if model in entries:
                raise InvalidInput(f"{file}: the model {model} is described twice")
            entries[model] = entry
    return Folder(path, files, entries)


def _tests(context: dg.ResolutionContext, name: str) -> tuple[Test, ...]:
    """The queries of the folder `name` beside the YAML."""
    path = context.resolve_source_relative_path(name)
    if not path.is_dir():
        raise InvalidInput(f"tests: {name!r}; there is no folder {path}")
    return tuple(Test(file.stem, file.read_text("utf-8"), file) for file in sorted(path.rglob("*.sql")))


class ModelsParams(BaseModel):
    """The command line options of a scaffolded folder."""

    database: str | None = Field(default=None, description="The database of the tables; by default the lake's.")
    table_format: Literal["paimon", "iceberg"] = Field(default="paimon", description="The tables' format.")


class ModelsScaffolder(dg.Scaffolder[ModelsParams]):
    """The YAML, and a folder with two models and a test."""

    @classmethod
    def get_scaffold_params(cls) -> type[ModelsParams]:
        """The options of the command."""
        return ModelsParams

    def scaffold(self, request: dg.ScaffoldRequest[ModelsParams]) -> None:
        """Write defs.yaml, the folder `models` and the folder `tests`."""
        params = request.params
        database = {"database": params.database} if params.database else {}
        dg.scaffold_component(
            request, {"folder": "models", "tests": "tests", **database, "format": params.table_format}
        )
        for name, text in _EXAMPLE.items():
            file = request.target_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")


_EXAMPLE = {
    "models/staging/numbers.sql": "-- Some numbers; replace this by your own.\nSELECT 1 AS n UNION ALL SELECT 2 AS n\n",
    "models/totals.sql": "-- Their sum.\nSELECT sum(n) AS total FROM numbers\n",
    "models/models.yaml": "models:\n  - name: numbers\n    columns:\n      - name: n\n        description: A number.\n"
    "        tests: [not_null, unique]\n",
    "tests/total_is_positive.sql": "SELECT total FROM totals WHERE total <= 0\n",
}


@dg.scaffold_with(ModelsScaffolder)
class LakeModelsComponent(TableFields, QueryFields, DeclaredAssets):
    """The tables that a folder of `.sql` files fills, each by its SELECT. A file's name is its table's. A query names
    other models as tables, or by `{{ ref('orders') }}`.

    ```yaml
    type: lakeformat.dagster.LakeModelsComponent
    attributes:
      folder: models
      tests: tests
      database: shop
      format: iceberg
    ```

    The other fields are those of each table. A YAML file in the folder says what a model has for itself:

    ```yaml
    models:
      - name: revenue
        description: Revenue of each day.
        group_name: marts
        columns:
          - {name: day, description: The day., tests: [not_null, unique]}
    ```
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    folder: Annotated[Folder, dg.Resolver(_folder, model_field_type=str)] = Field(
        description="The folder of the .sql files, beside this file, with the folders in it."
    )
    tests: Annotated[
        tuple[Test, ...],
        dg.Resolver(
            _tests,
            model_field_type=str,
            description="A folder of queries, beside this file. Each is a check of the model that it names first: its "
            "rows are wrong.",
        ),
    ] = ()
    select: Annotated[
        list[str],
        dg.Resolver.default(description="Folders and files in `folder`: 'marts', 'marts/*_daily'. By default all."),
    ] = []
    exclude: Annotated[list[str], dg.Resolver.default(description="Those that are left out.")] = []
    database: Annotated[
        str | None, dg.Resolver.default(description="The database of the tables; by default the lake's.")
    ] = None

    def models(self) -> dict[str, Model]:
        """The selected models by name."""
        tests = {test.path for test in self.tests}
        files = {name: path for name, path in self.folder.files.items() if path not in tests}
        named = {name: self.folder.entries.get(name, NOTHING).values.get("table") for name in files}
        tables = {name: table or ".".join(filter(None, (self.database, name))) for name, table in named.items()}
        keys = {name: table.replace(".", "/") for name, table in tables.items()}
        common = {name: getattr(self, name) for name in ModelFields.model_fields if name != "table"}
        models: dict[str, Model] = {}
        for name in _selected(self.folder.path, files, self.select, self.exclude):
            entry = self.folder.entries.get(name, NOTHING)
            values = {**common, **entry.values, "table": tables[name], "lake": self.lake}
            models[name] = Model(path=files[name], columns=dict(entry.columns), refs=keys, **values)
        _refuse_unused("params", self.params, (model.parameters() for model in models.values()))
        _refuse_unused("upstream", self.upstream, (model.tables() for model in models.values()))
        return models

    def assets(self) -> list[dg.AssetsDefinition]:
        """The assets that fill the tables."""
        return [asset for model in self.models().values() for asset in model.assets()]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The assets and their checks. Raises `InvalidInput` for an invalid declaration."""
        models = self.models()
        with betas_allowed():
            assets = {name: model.assets() for name, model in models.items()}
            every = [asset for several in assets.values() for asset in several]
            check_declarations(every)
            checks = [check for name, model in models.items() if model.checks for check in checks_for(assets[name][:1])]
        return dg.Definitions(assets=every, asset_checks=[*checks, *self._tested(models)])

    def _tested(self, models: Mapping[str, Model]) -> Iterator[dg.AssetChecksDefinition]:
        """The tests of selected models."""
        for name, entry in self.folder.entries.items():
            for test in entry.tests:
                if name in models:
                    yield asset_check(test, models[name], models)
        for test in self.tests:
            query = plain_query(test.path, test.query, self.folder.files)
            tested = [name for name in tables_in(test.path, query) if name.split(".")[-1] in self.folder.files]
            if not tested:
                raise InvalidInput(f"{test.path} names no model; there are {', '.join(self.folder.files)}")
            if tested[0].split(".")[-1] in models:
                plain = Test(test.name, query, test.path)
                yield asset_check(plain, models[tested[0].split(".")[-1]], models)


# --- private ----------------------------------------------------------------------------------------------------------


def _refuse_unused(field: str, names: Iterable[str], used: Iterable[Iterable[str]]) -> None:
    """Raise `InvalidInput` for a name in a field of all models that the query of none uses."""
    every = {name for several in used for name in several}
    if unused := sorted(set(names) - every):
        raise InvalidInput(
            f"{field} names {unused[0]!r}, which no model uses; they use {', '.join(sorted(every)) or 'none'}"
        )


def _selected(folder: Path, files: Mapping[str, Path], select: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    """The names of the files that are selected."""
    paths = {name: file.relative_to(folder).with_suffix("").parts for name, file in files.items()}
    for pattern in (*select, *exclude):
        if not any(_matches(parts, pattern) for parts in paths.values()):
            listed = ", ".join(sorted("/".join(parts) for parts in paths.values()))
            raise InvalidInput(f"{pattern!r} selects nothing; {folder} has {listed}")
    for name, parts in paths.items():
        is_selected = not select or any(_matches(parts, pattern) for pattern in select)
        if is_selected and not any(_matches(parts, pattern) for pattern in exclude):
            yield name


def _matches(parts: Sequence[str], pattern: str) -> bool:
    """Whether a pattern is one of a file, or of a folder that it is in."""
    plain = pattern.removesuffix(".sql").strip("/")
    return any(fnmatchcase("/".join(parts[:count]), plain) for count in range(1, len(parts) + 1))


def _entries(context: dg.ResolutionContext, path: Path) -> Iterator[tuple[str, Entry]]:
    """The models that a YAML file describes."""
    try:
        document = yaml.safe_load(path.read_text("utf-8")) or {}
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("models", []), list):
        raise InvalidInput(f"{path}: write a list of models: `models: [{{name: orders, description: ...}}]`")
    if unknown := [name for name in document if name not in _OF_FILES]:
        raise InvalidInput(f"{path}: {unknown[0]!r} means nothing here; the file has `models`")
    for model in document.get("models", []):
        if not isinstance(model, Mapping) or not isinstance(model.get("name"), str):
            raise InvalidInput(f"{path}: {model!r} has no name; write `- name: orders`")
        yield model["name"], _entry(context, path, model)


def _entry(context: dg.ResolutionContext, path: Path, model: Mapping[str, Any]) -> Entry:
    name = model["name"]
    fields = {field: value for field, value in model.items() if field not in ("name", "columns")}
    if "tests" in fields or "data_tests" in fields:
        raise InvalidInput(f"{path}: {name}: a test of a whole model is a query in the folder of `tests`")
    try:
        resolved = ModelFields.resolve_from_model(context, ModelFields.model().model_validate(fields))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{path}: {name}: {field}: {first['msg']}") from error
    columns = model.get("columns") or []
    if not isinstance(columns, list) or not all(isinstance(column, Mapping) and "name" in column for column in columns):
        raise InvalidInput(f"{path}: {name}: columns: write a list, `- {{name: day, description: The day.}}`")
    names = [str(column["name"]) for column in columns]
    if len(set(names)) < len(names):
        twice = next(column for index, column in enumerate(names) if column in names[:index])
        raise InvalidInput(f"{path}: {name}: the column {twice!r} is described twice")
    if unknown := [field for column in columns for field in column if field not in _OF_COLUMNS]:
        raise InvalidInput(f"{path}: {name}: a column has {', '.join(_OF_COLUMNS)}, not {unknown[0]!r}")
    return Entry(
        {field: getattr(resolved, field) for field in fields},
        {str(column["name"]): str(column["description"]) for column in columns if column.get("description")},
        tuple(test for column in columns for test in tests_of_column(path, name, column)),
    )
