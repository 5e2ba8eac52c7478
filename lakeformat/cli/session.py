"""The context of a command: the warehouse and the output. Output is plain data first, then its display."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from lakeformat import InvalidInput

if TYPE_CHECKING:
    from lakeformat import Lake, Table

_AGE = re.compile(r"(\d+)\s*(s|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Session:
    """The warehouse of this call, opened on first use, and its output: JSON, or the display that `show` draws."""

    def __init__(self, opened: Callable[[], Lake], as_json: bool, other: Callable[[str], Lake]) -> None:
        self._opened, self.as_json = opened, as_json
        self.other = other  # Opens another warehouse: a path, a URI, or a name in the config file.
        self._lake: Lake | None = None
        self.console = Console(highlight=False)
        self.notes = Console(stderr=True, highlight=False)  # What is no output: progress.

    @property
    def lake(self) -> Lake:
        if self._lake is None:
            self._lake = self._opened()
        return self._lake

    def table(self, name: str) -> Table:
        """`db.table`, or `db.table@branch`."""
        table, at, branch = name.partition("@")
        opened = self.lake.table(table)
        return opened.branch(branch) if at else opened

    def answer(self, data: Any, show: Callable[[], RenderableType | None] | RenderableType | None) -> None:
        """Print `data` with `--json`, else `show` or its result."""
        if self.as_json:
            escaped = not self.console.encoding.startswith("utf")
            click.echo(json.dumps(data, default=plain, ensure_ascii=escaped, indent=2))
            return
        drawn = show() if callable(show) else show
        if drawn is not None:
            self.console.print(drawn, soft_wrap=isinstance(drawn, str | Text), crop=False)


def data_grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    """A grid of a table's rows: numbers without thousands separators."""
    drawn = grid(
        columns, [[str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in row] for row in rows]
    )
    for index, column in enumerate(drawn.columns):
        if rows and all(isinstance(row[index], int | float | None) for row in rows):
            column.justify = "right"
    return drawn


def grid(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> Grid:
    """Rows under a header, numbers right-aligned. Text is never read as markup."""
    drawn = Grid(title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False)
    for index, name in enumerate(columns):
        values = [row[index] for row in rows]
        right = bool(values) and all(isinstance(v, int | float | Size) or v is None for v in values)
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(value) for value in row))
    return drawn


class Size(int):
    """A number of bytes, displayed in binary units."""


def cell(value: Any) -> Text:
    match value:
        case None:
            return Text("")
        case Text():
            return value
        case bool():
            return Text("yes" if value else "no")
        case Size():
            return Text(size(value))
        case int():
            return Text(f"{value:,}")
        case _:
            return Text(str(value))


def size(count: int) -> str:
    """Bytes in binary units, to three digits."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def counted(count: int, noun: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def live_files(table: Table) -> tuple[int, int]:
    """The number of data files, and their bytes."""
    partitions = table.inspect.partitions()
    return sum(partitions["file_count"].to_pylist()), sum(partitions["size_bytes"].to_pylist())


def time(epoch_ms: int | None) -> str | None:
    """A time as ISO text in UTC, to the second."""
    if epoch_ms is None:
        return None
    try:
        return f"{datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{epoch_ms} ms"


def age(text: str | None) -> datetime.timedelta | str | None:
    """`7d`, `12h`, `90m`, `30s`, `2w` as an age; any other text is returned as a time."""
    match = _AGE.fullmatch(text.strip()) if text else None
    try:
        return datetime.timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else text
    except OverflowError:
        raise InvalidInput(f"{text!r} is longer than times reach back") from None


def duration(text: str | None) -> datetime.timedelta | None:
    """As `age`, for options that take only an age. Raises `InvalidInput`."""
    parsed = age(text)
    if isinstance(parsed, str):
        raise InvalidInput(f"{parsed!r} is no age; write e.g. 7d, 12h or 90m")
    return parsed


def plain(value: Any) -> Any:
    """A value without a JSON type, as text."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)
