"""The context of a command: the warehouse and the output. Output is plain data first, then its display."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from lakeformat import InvalidInput
from lakeformat.cli import rows

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeformat import Lake, Table

_AGE = re.compile(r"(\d+)\s*(s|m|h|d|w)")
_PIPE_WIDTH = 100_000  # Lines of a pipe are not wrapped.
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Session:
    """The warehouse of this call, opened on first use, and its output: JSON, CSV, or the display that `show` draws."""

    def __init__(self, opened: Callable[[], Lake], as_json: bool, as_csv: bool, other: Callable[[str], Lake]) -> None:
        self._opened, self.as_json, self.as_csv = opened, as_json, as_csv
        self.other = other  # Opens another warehouse: a path, a URI, or a name in the config file.
        self._lake: Lake | None = None
        self.console = Console(highlight=False)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            self.console.width = _PIPE_WIDTH
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

    def answer(self, data: Any, show: Callable[[], RenderableType | None] | RenderableType | None = None) -> None:
        """Print `data` with `--json` and `--csv` (a dict is one row), else `show` or its result."""
        if self.as_json:
            rows.print_json(data, self.console.encoding)
            return
        if self.as_csv:
            rows.print_csv(data)
            return
        drawn = show() if callable(show) else show
        if drawn is not None:
            self.console.print(drawn, soft_wrap=isinstance(drawn, str | Text), crop=False)

    def rows(self, reader: pa.RecordBatchReader, limit: int | None = None, as_records: bool = False) -> None:
        """Print the first `limit` rows (None: all). Raises `InvalidInput` for JSON of columns that share a name."""
        names = reader.schema.names
        if self.as_csv:
            rows.print_csv_rows(reader, limit)
        elif not self.as_json:
            rows.print_rows(self.console, reader, limit, as_records)
        elif len(set(names)) < len(names):
            raise InvalidInput(
                f"two columns of one name among {', '.join(names)}: JSON holds one; give them names with AS"
            )
        else:
            listed = [row for batch in rows.limited(reader, limit) for row in batch.to_pylist()]
            rows.print_json(listed, self.console.encoding)


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
        raise InvalidInput(f"{text!r} is too long an age") from None


def duration(text: str | None) -> datetime.timedelta | None:
    """As `age`, for options that take only an age. Raises `InvalidInput`."""
    parsed = age(text)
    if isinstance(parsed, str):
        raise InvalidInput(f"{parsed!r} is not an age; write e.g. 7d, 12h or 90m")
    return parsed
