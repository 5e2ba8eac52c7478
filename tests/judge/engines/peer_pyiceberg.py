"""pyiceberg 0.12 behind the judge's protocol: reads tables by their metadata file, and writes tables of its own."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from protocol import rows, serve
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.literals import literal
from pyiceberg.table import StaticTable
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import parse_transform
from pyiceberg.view.metadata import ViewMetadata

from tests.golden import wire


def catalog(request: dict) -> SqlCatalog:
    warehouse = request["warehouse"]
    return SqlCatalog("default", uri=f"sqlite:///{warehouse}/catalog.sqlite", warehouse=f"file://{warehouse}")


def open_table(request: dict) -> Any:
    if "warehouse" in request:
        return catalog(request).load_table(request["name"])
    if "metadata" in request:
        return StaticTable.from_metadata(request["metadata"])
    return StaticTable.from_metadata(f"{request['location']}/metadata/v{request['version']}.metadata.json")


def read(request: dict) -> dict:
    table = open_table(request)
    snapshot = request.get("snapshot")
    if request.get("tag") is not None:  # Or a branch.
        snapshot = table.refs()[request["tag"]].snapshot_id
    found = table.scan(snapshot_id=snapshot, row_filter=request.get("filter") or "true")
    return rows(found.to_arrow())


def describe(request: dict) -> dict:
    """What pyiceberg's own objects say of the table: it parses all of the metadata for that."""
    table = open_table(request)
    entries = table.inspect.entries().to_pylist()
    return {
        "columns": [{"id": f.field_id, "name": f.name, "type": str(f.field_type)} for f in table.schema().fields],
        "partitions": [f"{f.name}: {f.transform}" for f in table.spec().fields],
        "order": [
            f"{f.transform}({table.schema().find_column_name(f.source_id)}) {f.direction} {f.null_order}"
            for f in table.sort_order().fields
        ],
        "order_id": table.sort_order().order_id,
        "file_orders": sorted(entry["data_file"]["sort_order_id"] or 0 for entry in entries if entry["status"] != 2),
        "snapshots": [
            {
                "id": one.snapshot_id,
                "operation": one.summary.operation.value,
                "sequence": one.sequence_number,
                "summary": one.summary.additional_properties,
            }
            for one in table.snapshots()
        ],
        "tags": {name: ref.snapshot_id for name, ref in table.refs().items() if ref.snapshot_ref_type.value == "tag"},
        "statuses": sorted(entry["status"] for entry in entries),
        "files": table.inspect.files().num_rows,
        "bounds": [
            {name: [_hex(metrics[end]) for end in ("lower_bound", "upper_bound")] for name, metrics in file.items()}
            for file in table.inspect.files()["readable_metrics"].to_pylist()
        ],
        "manifests": table.inspect.manifests().num_rows,
    }


def view(request: dict) -> dict:
    """What pyiceberg's objects say of a view, by its metadata file; its SQL catalog has no views."""
    found = ViewMetadata.model_validate_json(Path(request["metadata"]).read_bytes())
    (current,) = (version for version in found.versions if version.version_id == found.current_version_id)
    (schema,) = (schema for schema in found.schemas if schema.schema_id == current.schema_id)
    return {
        "columns": [[field.name, str(field.field_type)] for field in schema.fields],
        "queries": {representation.root.dialect: representation.root.sql for representation in current.representations},
        "namespace": list(current.default_namespace),
        "versions": [version.version_id for version in found.versions],
        "log": [entry.version_id for entry in found.version_log],
        "properties": found.properties,
    }


def transforms(request: dict) -> list:
    """For each data file: (its partition value in the manifest, what pyiceberg makes of the column's values in it)."""
    table = open_table(request)
    field = table.spec().fields[0]
    source = table.schema().find_field(field.source_id)
    apply = field.transform.transform(source.field_type)
    found = []
    for task in table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        values = pq.read_table(path, columns=[source.name])[source.name].to_pylist()
        internal = [None if v is None else apply(_internal(v)) for v in values]
        found.append([repr(task.file.partition[0]), sorted({repr(v) for v in internal})])
    return found


def write(request: dict) -> dict:
    """A table that pyiceberg makes and changes, step by step; its last metadata becomes version 1 of the Hadoop layout."""
    warehouse = Path(request["warehouse"])
    warehouse.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("judge", uri=f"sqlite:///{warehouse}/catalog.sqlite", warehouse=f"file://{warehouse}")
    catalog.create_namespace_if_not_exists("by")
    schema = wire.arrow_schema(request["fields"])
    table = catalog.create_table(f"by.{request['name']}", schema)
    with table.update_spec() as update:
        for column, transform in request["partition_by"]:
            update.add_field(column, parse_transform(transform), f"{column}_by")
    for step in request["steps"]:
        data = wire.to_arrow(request["fields"], step["rows"]) if "rows" in step else None
        match step["do"]:
            case "append":
                table.append(data)
            case "overwrite":
                table.overwrite(data, overwrite_filter=step["where"])
            case "delete":
                table.delete(step["where"])
            case "rename":
                with table.update_schema() as update:
                    update.rename_column(step["column"], step["to"])
            case "tag":
                table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, step["name"]).commit()
    location = table.location().removeprefix("file://")
    shutil.copy(table.metadata_location.removeprefix("file://"), f"{location}/metadata/v1.metadata.json")
    return {"location": location, **rows(table.scan().to_arrow())}


def continue_(request: dict) -> dict:
    """A table of the SQL catalog in the warehouse, made if it is not there, and changed."""
    there = catalog(request)
    if not there.table_exists(request["name"]):
        there.create_namespace_if_not_exists(request["name"].rpartition(".")[0])
        there.create_table(request["name"], wire.arrow_schema(request["fields"]))
    table = there.load_table(request["name"])
    if "sort_by" in request:
        with table.update_sort_order() as update:
            for column, transform in request["sort_by"]:
                update.desc(column, parse_transform(transform), NullOrder.NULLS_FIRST)
    table.append(wire.to_arrow(request["fields"], request["rows"]))
    if "files" in request:
        table.add_files(request["files"])
    if "where" in request:
        table.delete(request["where"])
    names = [".".join(name) for namespace in there.list_namespaces() for name in there.list_tables(namespace)]
    return {"metadata": table.metadata_location, "tables": sorted(names), **rows(table.scan().to_arrow())}


def _hex(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _internal(value: Any) -> Any:
    """A value as pyiceberg's transforms take it: dates in days, timestamps in microseconds."""
    return literal(value).value if isinstance(value, datetime.date | datetime.datetime) else value


serve(
    {"read": read, "describe": describe, "view": view, "transforms": transforms, "write": write, "continue": continue_}
)
