"""files: the live files of a table, as a list or a picture."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from lakeformat.cli.completion import tables
from lakeformat.cli.session import Session, Size, grid, size

_SHADES = "░▒▓█"
_WIDTH = 40


@click.command()
@click.argument("table", help="`db.table`, or `db.table@branch`.", shell_complete=tables)
@click.option("--heat", is_flag=True, help="Draw partitions by size; a block is a file, levels are bars.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="How many lines; on a terminal 50, else all.")
@click.pass_obj
def files(session: Session, table: str, heat: bool, limit: int | None) -> None:
    """List live files, or draw them."""
    target = session.table(table)
    limit = limit or (50 if session.console.is_terminal else sys.maxsize)
    rows = target.inspect.files().to_pylist()
    names = ("partition", "bucket", "level", "path", "row_count", "deleted_row_count", "size_bytes")
    here = [name for name in names if rows and name in rows[0]]
    data = [{name: row[name] for name in here} for row in rows]

    def listed() -> Group:
        shown = [[Size(row[n]) if n == "size_bytes" else _text(n, row[n]) for n in here] for row in data[:limit]]
        more = [Text(f"and {len(data) - limit} more (--limit)", style="dim")] if len(data) > limit else []
        return Group(grid(here, shown), *more) if data else Group(Text("no files"))

    session.answer(data, (lambda: _picture(data, limit, bool(target.schema.primary_key))) if heat else listed)


def _text(name: str, value: Any) -> Any:
    return str(value) if name in {"bucket", "level"} and value is not None else value


def _picture(data: list[dict[str, Any]], limit: int, keyed: bool) -> Group:
    """One line per partition (and bucket): a bar for its size, with a block per file, darker for larger files."""
    groups: dict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)
    for row in data:
        groups[row["partition"], row.get("bucket")].append(row)
    largest = max((sum(r["size_bytes"] for r in rows) for rows in groups.values()), default=1)
    biggest = max((r["size_bytes"] for r in data), default=1)
    leveled = keyed and any("level" in row for row in data)
    shown = []
    for (partition, bucket), rows in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or 0))[:limit]:
        total = sum(r["size_bytes"] for r in rows)
        name = partition or "(table)"
        name += f" bucket {bucket}" if bucket is not None and (leveled or bucket) else ""
        levels = sorted({row.get("level") or 0 for row in rows}) if leveled else [None]
        for depth, level in enumerate(levels):
            mine = [r for r in rows if level is None or (r.get("level") or 0) == level]
            bytes_ = sum(r["size_bytes"] for r in mine)
            bar = Text(_bar(mine, bytes_, largest, biggest), style="cyan" if level in (None, 0) else "green")
            label = name if depth == 0 else ""
            at = [f"L{level}"] if leveled else []
            shown.append((label, *at, bar, len(mine), Size(bytes_), f"{bytes_ / total:.0%}" if leveled else ""))
    header = ("partition", *(["level"] if leveled else []), "", "files", "size", "")
    more = [Text(f"and {len(groups) - limit} more (--limit)", style="dim")] if len(groups) > limit else []
    legend = Text(
        f"a bar of {_WIDTH} is {size(largest)}; a block is a share of a file, {_SHADES[0]} small to {_SHADES[-1]} large"
    )
    legend.stylize("dim")
    return Group(grid(header, shown), *more, legend)


def _bar(rows: list[dict[str, Any]], total: int, largest: int, biggest: int) -> str:
    """A bar whose length is the partition's share of the largest one. Each file takes its share, at least one character
    while there is room."""
    length = max(1, round(_WIDTH * total / max(largest, 1)))
    ordered = sorted(rows, key=lambda row: -row["size_bytes"])
    text = ""
    for row in ordered:
        share = max(1, round(length * row["size_bytes"] / max(total, 1)))
        shade = _SHADES[min(len(_SHADES) - 1, int(len(_SHADES) * row["size_bytes"] / max(biggest, 1)))]
        text += shade * share
        if len(text) >= length:
            break
    return text[:length]
