"""lakeformat behind the judge's verbs, through its public API only: the same requests, answered in this process."""

from __future__ import annotations

import datetime
from typing import Any

from lakeformat import Field, Lake, Schema, Table
from lakeformat.dialects.paimon import types
from tests.golden import wire


class Ours:
    """What a peer's `Conversation` is, for lakeformat. With a Spark session the rows go through Spark, both ways."""

    def __init__(self, spark: Any = None) -> None:
        self.spark = spark

    def ask(self, verb: str, **request: Any) -> Any:
        """The answer to a request; lakeformat's own errors come through as they are."""
        lake = Lake(request["warehouse"])
        match verb:
            case "write":
                return write(lake, request, self.spark)
            case "steps":
                return [take(open_table(lake, request), step, self.spark) for step in request["steps"]]
            case "read":
                return read(open_table(lake, request), request, self.spark)
            case "describe":
                return describe(open_table(lake, request))
        raise AssertionError(verb)

    def close(self) -> None:
        """Nothing runs."""


def open_table(lake: Lake, request: dict) -> Table:
    """The table, or with `$branch_` in its name a branch of it, as Java names them."""
    name, _, branch = request["table"].partition("$branch_")
    return lake.table(name).branch(branch or "main")


def write(lake: Lake, request: dict, spark: Any) -> list[int | None]:
    """Create the table and do the steps; for each step the snapshot that was the latest after it."""
    table = lake.create_table(
        request["table"],
        Schema(tuple(declared(field) for field in request["fields"])),
        format="paimon",
        partition_by=request["partition_by"],
        primary_key=request["primary_key"],
        properties=request["options"],
        comment=request["comment"],
    )
    return [take(table, step, spark) for step in request["steps"]]


def declared(field: dict) -> Field:
    """A column as a schema file has it."""
    type_, nullable = types.parse_type(field["type"])
    return Field(-1, field["name"], type_, nullable, field.get("description"))


def take(table: Table, step: dict, spark: Any) -> int | None:
    """Do one step; the snapshot that is the latest after it."""
    match step["do"]:
        case "append":
            table.append(rows(table, step, spark), **step.get("with", {}))
        case "overwrite_partitions":
            table.overwrite_partitions(rows(table, step, spark), **step.get("with", {}))
        case "overwrite":
            table.overwrite(rows(table, step, spark), **({"partition": step["partition"]} if step["partition"] else {}))
        case "overwrite_where":
            table.overwrite(rows(table, step, spark), where=step["where"])
        case "truncate":
            table.truncate()
        case "drop_partitions":
            for partition in step["partitions"]:
                table.drop_partitions([partition])
        case "delete":
            table.delete(where=step["where"], spark=spark)
        case "update":
            table.update(step["set"], where=step["where"], spark=spark)
        case "alter":
            alteration = table.alter()
            for change in step["changes"]:
                alteration = alter(alteration, *change)
            alteration.commit()
        case "branch":
            table.create_branch(step["name"], None if "tag" in step else 0, tag=step.get("tag"))
        case "fast_forward":
            table.fast_forward(step["name"])
        case "tag":
            table.create_tag(step["name"])
        case "compact":
            table.compact(full=True, spark=spark)
        case "expire":
            table.expire_snapshots(retain_last=step["retain_last"])
        case "sweep":
            table.remove_orphan_files(older_than=datetime.timedelta(0))
        case "rollback":
            table.rollback_to(snapshot_id=step["snapshot"])
        case other:
            raise AssertionError(other)
    latest = table.current_snapshot()
    return None if latest is None else latest.id


def rows(table: Table, step: dict, spark: Any) -> Any:
    """A step's rows in the table's present columns: an Arrow table, or a Spark frame of it."""
    found = wire.to_arrow([types.emit_field(field) for field in table.schema.fields], step["rows"])
    return found if spark is None else spark.createDataFrame(found)


def alter(alteration: Any, verb: str, name: str, *details: Any) -> Any:
    """One schema change added to others."""
    match verb:
        case "add":
            type_, nullable = types.parse_type(details[0])
            return alteration.add_column(name, type_, nullable=nullable, **place(*details[1:]))
        case "rename":
            return alteration.rename_column(name, details[0])
        case "drop":
            return alteration.drop_column(name)
        case "type":
            return alteration.change_type(name, types.parse_type(details[0])[0])
        case "move":
            return alteration.move_column(name, **place(*details))
        case "set":
            return alteration.set_properties({name: details[0]})
    raise AssertionError(verb)


def place(*after: str | None) -> dict:
    """Where a column goes: nothing said, first (None), or after another."""
    return {} if not after else {"first": True} if after[0] is None else {"after": after[0]}


def read(table: Table, request: dict, spark: Any) -> dict:
    """Rows in wire form, with the Arrow types they had."""
    scan = table.scan(
        columns=request.get("columns"),
        where=sql(request["filter"], request["types"]) if request.get("filter") else None,
        snapshot_id=request.get("snapshot"),
        tag=request.get("tag"),
    )
    found = scan.to_arrow() if spark is None else scan.to_spark(spark).toArrow()
    assert scan.count() == found.num_rows, (table.name, scan.count(), found.num_rows)
    columns = [{"name": field.name, "arrow": wire.arrow_text(field.type)} for field in found.schema]
    return {"columns": columns, "rows": wire.from_arrow(found)}


def describe(table: Table) -> dict:
    """The latest schema, the snapshots that can be read, the tags."""
    snapshots = table.inspect.snapshots().select(["snapshot_id", "schema_id", "commit_kind", "total_record_count"])
    tags = table.inspect.tags().to_pylist()
    return {
        "columns": [types.emit_field(field) for field in table.schema.fields],
        "partition_keys": list(table.schema.partitioning.names),
        "primary_keys": list(table.schema.primary_key),
        "comment": table.schema.comment,
        "snapshots": [
            {"id": id_, "schema": schema, "kind": kind, "total": total}
            for id_, schema, kind, total in (row.values() for row in snapshots.to_pylist())
        ],
        "tags": {tag["tag_name"]: tag["snapshot_id"] for tag in tags},
    }


def sql(condition: list, types_: dict) -> str:
    """A condition as SQL text."""
    operator, *operands = condition
    if operator in ("and", "or"):
        return "(" + f" {operator} ".join(sql(part, types_) for part in operands) + ")"
    column, *values = operands
    match operator:
        case "is_null":
            return f"`{column}` is null"
        case "is_not_null":
            return f"`{column}` is not null"
        case "in":
            return f"`{column}` in ({', '.join(literal(value, types_[column]) for value in values[0])})"
        case "starts_with":
            return f"`{column}` like '{values[0]}%'"
    return f"`{column}` {operator} {literal(values[0], types_[column])}"


def literal(value: Any, type_: str) -> str:
    """A value in wire form as SQL text."""
    name = type_.split("(")[0].split(" ")[0]
    match name:
        case "STRING" | "CHAR" | "VARCHAR":
            return "'" + value.replace("'", "''") + "'"
        case "DATE":
            return f"date '{wire.date_text(value)}'"
        case "TIME":
            return f"'{wire.timestamp_text(value * 10**6).split(' ')[1]}'"
        case "TIMESTAMP":
            return f"timestamp '{wire.timestamp_text(value)}'"
        case "BYTES" | "BINARY" | "VARBINARY":
            return f"X'{value}'"
        case "DECIMAL" | "DOUBLE" | "FLOAT":
            return f"cast('{value}' as {type_})"
    return str(value).lower()
