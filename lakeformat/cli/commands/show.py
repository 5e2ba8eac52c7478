"""show: a table's declaration and health."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, Size, cell, grid, size, time


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.pass_obj
def show(session: Session, table: str) -> None:
    """Show a table: schema with ids, partitioning, properties, health."""
    target = session.table(table)
    schema, scan = target.schema, target.scan()
    partitions = target.inspect.partitions()

    def total(name: str) -> int:
        return sum(partitions[name].to_pylist())

    by_source = {field.source: str(field) for field in schema.partitioning.fields}
    snapshot = scan.snapshot
    data: dict[str, Any] = {
        "table": target.name,
        "format": target.format,
        "location": target.uri,
        "comment": schema.comment,
        "schema_id": schema.id,
        "columns": [
            {
                "id": f.id, "name": f.name, "type": str(f.type), "nullable": f.nullable,
                "partition": by_source.get(f.name), "key": f.name in schema.primary_key, "comment": f.comment,
            }
            for f in schema.fields
        ],
        "partition_by": [str(field) for field in schema.partitioning.fields],
        "primary_key": list(schema.primary_key),
        "sort_by": [str(field) for field in schema.sort_order.fields],
        "properties": dict(sorted(schema.properties.items())),
        "snapshot_id": scan.snapshot_id,
        "last_commit": time(snapshot.timestamp_ms) if snapshot else None,
        "snapshots": len(target.snapshots()),
        "rows": scan.count(),
        "partitions": len(partitions),
        "files": total("file_count"),
        "small_files": total("small_file_count"),
        "deleted_rows": total("deleted_row_count"),
        "size_bytes": total("size_bytes"),
    }  # fmt: skip

    def drawn() -> Group:
        columns = grid(
            ("id", "column", "type", "null", "", "comment"),
            [
                (
                    str(c["id"]), c["name"], c["type"], "" if c["nullable"] else "not null",
                    " ".join([*["key"] * bool(c["key"]), *[f"partition {c['partition']}"] * bool(c["partition"])]),
                    c["comment"],
                )
                for c in data["columns"]
            ],
        )  # fmt: skip
        health = Text.assemble(
            ("rows ", "bold"), cell(data["rows"]), ("  partitions ", "bold"), cell(data["partitions"]),
            ("  files ", "bold"), cell(data["files"]), ("  small ", "bold"), cell(data["small_files"]),
            ("  deleted rows ", "bold"), cell(data["deleted_rows"]),
            ("  size ", "bold"), size(Size(data["size_bytes"])), ("  snapshots ", "bold"), cell(data["snapshots"]),
        )  # fmt: skip
        last_commit = (
            f"snapshot {data['snapshot_id']} of {data['last_commit']} UTC" if snapshot else "nothing written yet"
        )
        parts: list[Any] = [
            Text.assemble(
                (target.name, "bold green"), f"  {target.format}  {target.uri}", no_wrap=True, overflow="ignore"
            ),
            *([Text(schema.comment)] if schema.comment else []),
            Text(last_commit),
            health,
            Text(),
            columns,
        ]
        if schema.sort_order:
            parts += [Text(), Text.assemble(("sorted by ", "bold"), ", ".join(data["sort_by"]))]
        if data["properties"]:
            parts += [Text(), grid(("property", "value"), list(data["properties"].items()))]
        return Group(*parts)

    session.answer(data, drawn)
