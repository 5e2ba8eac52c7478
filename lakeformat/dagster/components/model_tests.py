"""Tests of models as asset checks: queries whose rows are wrong, in files or by their names in dbt's YAML."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from lakeformat import sql
from lakeformat.dagster.asset_table import as_dagster_failures, has_branch, preview
from lakeformat.dagster.components.model import Model
from lakeformat.dagster.identity import Origin, branch_of, origin_of
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.sql_table import first_comment
from lakeformat.errors import InvalidInput
from lakeformat.model.wording import count_text

_ARGUMENTS = {"not_null": (), "unique": (), "accepted_values": ("values",), "relationships": ("to", "field")}
_REF = re.compile(r"(?:ref\(\s*['\"])?([^'\"()]+)(?:['\"]\s*\))?")


@dataclass(frozen=True, slots=True)
class Test:
    """A query whose rows are wrong."""

    name: str
    query: str
    path: Path
    is_warning: bool = False


def tests_of_column(path: Path, model: str, column: Mapping[str, Any]) -> Iterator[Test]:
    """The tests that YAML names of a column: `not_null`, `unique`, `accepted_values`, `relationships`."""
    name = str(column["name"])
    for test in (*(column.get("tests") or ()), *(column.get("data_tests") or ())):
        kind, options = next(iter(test.items())) if isinstance(test, Mapping) and len(test) == 1 else (test, {})
        if kind not in _ARGUMENTS:
            raise InvalidInput(
                f"{path}: {model}.{name}: there is no test {kind!r}, only {', '.join(_ARGUMENTS)}; write it as a query "
                "in the folder of `tests`"
            )
        options = dict(options or {})
        config = options.pop("config", {}) or {}
        severity = str(options.pop("severity", config.get("severity", "error")))
        arguments = (options.pop("arguments", None) or {}) | options
        if set(arguments) != set(_ARGUMENTS[kind]) or severity not in ("warn", "error"):
            needed = ", ".join(_ARGUMENTS[kind]) or "no arguments"
            raise InvalidInput(f"{path}: {model}.{name}: {kind} takes {needed}, and severity: warn or error")
        query = _query(kind, model, f"`{name}`", arguments)
        yield Test(f"{kind}_{name}", query, path, severity == "warn")


def asset_check(test: Test, model: Model, models: Mapping[str, Model]) -> dg.AssetChecksDefinition:
    """The check of a model by a test; of an audited one it reads the run's branch, and blocks."""
    names = [".".join(path) for path in sql.tables(test.query)]
    by_name = {name: one for one in models.values() for name in (one.path.stem, one.table) if name in names}
    key = model.options()["key"]
    others = {one.key for one in by_name.values()} - {model.key}

    @dg.asset_check(
        asset=key,
        name=re.sub(r"\W", "_", test.name),
        description=first_comment(test.query) or f"The query of {test.path.name} has no rows.",
        blocking=model.audit,
        additional_deps=sorted(others),
        required_resource_keys={model.lake, *(one.lake for one in by_name.values())},
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        step = context.op_execution_context
        lake: LakeResource = getattr(step.resources, model.lake)
        with as_dagster_failures(key, []):
            frames = {name: _scan(step.resources, one, origin_of(step)) for name, one in by_name.items()}
            rows = lake.lake.sql(test.query, **frames).to_arrow()
        query = dg.MetadataValue.md(f"```sql\n{test.query.strip()}\n```")
        return dg.AssetCheckResult(
            passed=rows.num_rows == 0,
            severity=dg.AssetCheckSeverity.WARN if test.is_warning else dg.AssetCheckSeverity.ERROR,
            description=f"{count_text(rows.num_rows, 'row')} of the query"
            if rows.num_rows
            else "no rows, as it must be",
            metadata={"query": query, **({"rows": preview(rows)} if rows.num_rows else {})},
        )

    return check


def _scan(resources: Any, model: Model, origin: Origin) -> Any:
    """The rows of a model that a run checks."""
    lake: LakeResource = getattr(resources, model.lake)
    table = lake.lake.table(lake.table_name(model.key, {}))
    branch = branch_of(origin)
    return (table.branch(branch) if model.audit and has_branch(table, branch) else table).scan()


def _query(kind: str, model: str, column: str, arguments: Mapping[str, Any]) -> str:
    if kind == "not_null":
        return f"-- {column} is not null.\nSELECT * FROM {model} WHERE {column} IS NULL"
    grouped = f"GROUP BY {column}"
    if kind == "unique":
        return (
            f"-- {column} is unique.\nSELECT {column}, count(*) AS row_count FROM {model} WHERE {column} IS NOT NULL "
            f"{grouped} HAVING count(*) > 1"
        )
    if kind == "accepted_values":
        values = ", ".join(_literal(value) for value in arguments["values"])
        return (
            f"-- {column} is one of {values}.\nSELECT {column}, count(*) AS row_count FROM {model} "
            f"WHERE {column} NOT IN ({values}) {grouped}"
        )
    other, field = _REF.sub(r"\1", str(arguments["to"])), f"`{arguments['field']}`"
    return (
        f"-- {column} is among {field} of {other}.\nSELECT {column}, count(*) AS row_count FROM {model} WHERE {column} "
        f"IS NOT NULL AND {column} NOT IN (SELECT {field} FROM {other} WHERE {field} IS NOT NULL) {grouped}"
    )


def _literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
