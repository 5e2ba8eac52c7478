"""paimon-rust 0.4 (the package pypaimon-rust) behind the judge's protocol: a reader of Paimon tables in Rust."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from protocol import literal, rows, serve
from pypaimon_rust.datafusion import PaimonCatalog

OPERATORS = {
    "=": "equal",
    "!=": "notEqual",
    "<": "lessThan",
    "<=": "lessOrEqual",
    ">": "greaterThan",
    ">=": "greaterOrEqual",
    "is_null": "isNull",
    "is_not_null": "isNotNull",
    "starts_with": "startsWith",
    "in": "in",
}


def open_table(request: dict) -> Any:
    return PaimonCatalog({"warehouse": request["warehouse"]}).get_table(request["table"])


def read(request: dict) -> dict:
    at = {}
    if request.get("snapshot") is not None:
        at["scan.snapshot-id"] = str(request["snapshot"])
    if request.get("tag") is not None:
        at["scan.tag-name"] = request["tag"]
    builder = open_table(request).new_read_builder(at or None)
    if request.get("columns"):
        builder = builder.with_projection(request["columns"])
    if request.get("filter"):
        builder = builder.with_filter(predicate(request["filter"], request["types"]))
    batches = builder.new_read().read(builder.new_scan().plan().splits())
    return rows(pa.Table.from_batches(batches)) if batches else {"columns": None, "rows": []}


def changes(request: dict) -> list:
    """What came and went from the first snapshot to the last, as its changelogs tell: kinds and rows."""
    latest = max(one.id() for one in open_table(request).list_snapshots())
    between = {"incremental-between": f"0,{latest}", "incremental-between-scan-mode": "changelog"}
    builder = open_table(request).new_read_builder(between)
    batches = builder.new_read().read(builder.new_scan().plan().splits())
    found = pa.Table.from_batches(batches)
    kinds = found.column("_row_kind").to_pylist()
    return list(zip(kinds, rows(found.drop_columns(["_row_kind"]))["rows"], strict=True))


def describe(request: dict) -> dict:
    table = open_table(request)
    snapshots = [
        {"id": one.id(), "kind": one.commit_kind(), "total": one.total_record_count()} for one in table.list_snapshots()
    ]
    return {
        "columns": [{"id": f.id(), "name": f.name(), "type": f.field_type()} for f in table.schema().fields()],
        "partition_keys": table.schema().partition_keys(),
        "primary_keys": table.schema().primary_keys(),
        "comment": table.schema().comment(),
        "snapshots": snapshots[::-1],
        "tags": {tag.name(): tag.snapshot_id() for tag in table.list_tags()},
    }


def predicate(condition: list, types: dict) -> dict:
    operator, *operands = condition
    if operator in ("and", "or"):
        return {"method": operator, "children": [predicate(part, types) for part in operands]}
    column, *values = operands
    values = values[0] if operator == "in" else values
    literals = [literal(value, types[column]) for value in values]
    return {"method": OPERATORS[operator], "field": column, "literals": literals}


serve({"read": read, "changes": changes, "describe": describe})
