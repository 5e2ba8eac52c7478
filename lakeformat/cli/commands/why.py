"""why: the manifests and files that a condition skips, and the bounds that allow it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, Size, grid, size
from lakeformat.model.wording import count_text


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--where", required=True, help="The condition, as SQL writes it.")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=50, help="How many files.")
@click.pass_obj
def why(session: Session, table: str, where: str, limit: int) -> None:
    """Explain which files a condition reads.

    And which it leaves out: by partition, by bounds, or by row group.
    """
    scan = session.table(table).scan(where=where)
    rows, manifests = scan.explain().to_pylist(), scan.explain_manifests().to_pylist()
    manifests_read = sum(row["left_out_by"] is None for row in manifests)
    read = [row for row in rows if row["left_out_by"] is None]
    reasons = Counter(row["left_out_by"] for row in rows if row["left_out_by"] is not None)
    groups = [row for row in read if row["row_groups"] is not None]
    data: dict[str, Any] = {
        "files": len(rows),
        "files_read": len(read),
        "bytes": sum(row["size_bytes"] for row in rows),
        "bytes_read": sum(row["size_bytes"] for row in read),
        "row_groups_read": sum(row["row_groups_read"] for row in groups),
        "row_groups": sum(row["row_groups"] for row in groups),
        "left_out_by": dict(reasons.most_common()),
        "manifests": len(manifests),
        "manifests_read": manifests_read,
        "manifest_details": manifests,
        "details": rows,
    }

    def drawn() -> Group:
        head = Text.assemble(
            ("reads ", "bold"),
            f"{len(read)} of {count_text(len(rows), 'file')}, {size(data['bytes_read'])} of {size(data['bytes'])}",
            f"; in them {data['row_groups_read']} of {data['row_groups']} row groups" if groups else "",
            f"; {manifests_read} of {len(manifests)} manifests",
        )
        parts: list[Any] = [head]
        if reasons:
            parts += [Text(), grid(("files left out", "by"), [(n, reason) for reason, n in reasons.most_common()])]
        shown = [
            (
                Text("read", style="green") if row["left_out_by"] is None else Text("left out", style="dim"),
                row["path"], row["row_count"], Size(row["size_bytes"]),
                row["bounds"] if row["row_groups"] is None
                else f"{row['row_groups_read']} of {row['row_groups']} row groups",
            )
            for row in rows[:limit]
        ]  # fmt: skip
        parts += [Text(), grid(("", "file", "rows", "size", "because"), shown)]
        if manifests_read < len(manifests):
            left_out = [row for row in manifests if row["left_out_by"] is not None][:limit]
            of_manifests = [
                (
                    row["path"].rpartition("/")[2],
                    row["file_count"],
                    Size(row["size_bytes"]),
                    row["left_out_by"],
                    row["bounds"],
                )
                for row in left_out
            ]
            parts += [Text(), grid(("manifest left out", "files", "size", "by", "because"), of_manifests)]
        return Group(*parts)

    session.answer(data, drawn)
