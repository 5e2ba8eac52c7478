"""Rows of tables and queries as text: aligned columns, one record below the other, CSV, JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text

from lakeformat import InvalidInput, lazy

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
else:
    pa = lazy.library("pyarrow")

_MANY_COLUMNS = 8  # A single row with more, or rows that are wider than the terminal, are shown as records.
_BATCH_ROWS = 10_000  # The rows whose widths set the widths of columns.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def print_rows(console: Console, reader: pa.RecordBatchReader, limit: int | None, as_records: bool = False) -> None:
    """Print the first `limit` rows (None: all) as text.

    A terminal shows them within its width; a pipe has one line a row, at any width. `as_records` prints one column a
    line.
    """
    names, batches = reader.schema.names, map(_values, limited(reader, limit))
    first = next(batches, [])
    width = console.width if console.is_terminal else None
    as_records |= len(first) == 1 and len(names) > _MANY_COLUMNS
    as_records |= (
        width is not None and len(names) > _MANY_COLUMNS and sum(_widths(names, first)) + 2 * len(names) > width
    )
    if as_records:
        _print_records(names, chain([first], batches))
    elif width is not None:
        console.print(data_grid(names, [row for rows in chain([first], batches) for row in rows]), crop=False)
    else:
        _print_lines(names, first, batches)


def print_json(data: Any, encoding: str) -> None:
    """Print `data` as one JSON document."""
    escaped = not encoding.startswith("utf")
    sys.stdout.write(json.dumps(valid(data), default=plain, ensure_ascii=escaped, indent=2) + "\n")


def print_csv(data: Any) -> None:
    """Print a list of dicts, or one, as CSV with a header. Raises `InvalidInput` for anything else."""
    listed = data if isinstance(data, list) else [data]
    if not all(isinstance(row, dict) for row in listed):
        raise InvalidInput("--csv: this command's output is not a table; use --json")
    names = list(dict.fromkeys(name for row in listed for name in row))
    cells = [[row.get(name) for row in listed] for name in names]
    texts = [pa.array([None if cell is None else text(cell) for cell in column], pa.string()) for column in cells]
    print_csv_rows(pa.table(texts, names).to_reader(), None)


def print_csv_rows(reader: pa.RecordBatchReader, limit: int | None) -> None:
    """Print the first `limit` rows (None: all) as CSV with a header; null is empty, and empty text is quoted."""
    from pyarrow import csv

    flat = pa.schema([pa.field(f.name, f.type if _is_flat(f.type) else pa.string()) for f in reader.schema])
    sys.stdout.flush()
    with csv.CSVWriter(sys.stdout.buffer, flat) as writer:
        for batch in limited(reader, limit):
            columns = [
                column
                if _is_flat(column.type)
                else pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())
                for column in batch.columns
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
    sys.stdout.buffer.flush()


def limited(reader: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows, in batches of at most 10,000."""
    for batch in reader:
        for offset in range(0, len(batch), _BATCH_ROWS):
            if limit is not None and limit <= 0:
                return
            piece = batch.slice(offset, _BATCH_ROWS if limit is None else min(_BATCH_ROWS, limit))
            limit = None if limit is None else limit - len(piece)
            yield piece


def data_grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    """A grid of a table's rows for a terminal. Null is dim, to differ from text."""
    drawn = Grid(box=None, header_style="bold", pad_edge=False)
    for name, is_right in zip(columns, _is_right(len(columns), rows), strict=True):
        drawn.add_column(Text(_one_line(name)), justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        cells = ((value, value if isinstance(value, Text) else Text(text(value))) for value in row)
        drawn.add_row(*(Text("NULL", style="dim") if value is None else cell for value, cell in cells))
    return drawn


def text(value: Any) -> str:
    """One value on one line: null as NULL, nested values as JSON, bytes in hexadecimal."""
    match value:
        case None:
            return "NULL"
        case str():
            return _one_line(value)
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case float():
            return str(valid(value))
        case list() | dict() | tuple():
            return json.dumps(valid(value), default=plain, ensure_ascii=False)
        case _:
            return str(value)


def valid(value: Any) -> Any:
    """The value with NaN and infinite numbers as text, as Spark's `to_json` has them: JSON has no such numbers."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: valid(item) for key, item in value.items()}
        case list() | tuple():
            return [valid(item) for item in value]
    return value


def plain(value: Any) -> Any:
    """A value without a JSON type, as text."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


# --- private ----------------------------------------------------------------------------------------------------------


def _print_lines(names: Sequence[str], first: list[tuple[Any, ...]], batches: Iterable[list[tuple[Any, ...]]]) -> None:
    """One line a row. The first batch sets the widths of columns."""
    if not names:
        return
    widths, right = _widths(names, first), _is_right(len(names), first)
    sys.stdout.write(_line([_one_line(name) for name in names], widths, right))
    for rows in chain([first], batches):
        sys.stdout.writelines(_line([text(value) for value in row], widths, right) for row in rows)


def _print_records(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> None:
    """A line a column, an empty line between rows."""
    labels = [_one_line(name) for name in names]
    width = max(map(cell_len, labels), default=0)
    padded = [label + " " * (width - cell_len(label)) for label in labels]
    separator = ""
    for rows in batches:
        for row in rows:
            lines = (f"{label}  {text(value)}" for label, value in zip(padded, row, strict=True))
            sys.stdout.write(separator + "\n".join(lines) + "\n")
            separator = "\n"


def _is_flat(kind: pa.DataType) -> bool:
    """Whether pyarrow's CSV has the type."""
    types = pa.types
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_time(kind)
    )


def _values(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _widths(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[int]:
    return [
        max(cell_len(_one_line(name)), *(cell_len(text(row[index])) for row in rows), 0)
        for index, name in enumerate(names)
    ]


def _is_right(columns: int, rows: Sequence[Sequence[Any]]) -> list[bool]:
    """The columns of numbers."""
    return [bool(rows) and all(isinstance(row[index], int | float | None) for row in rows) for index in range(columns)]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    spaces = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    padded = (s + c if is_right else c + s for c, s, is_right in zip(cells, spaces, right, strict=True))
    return "  ".join(padded).rstrip() + "\n"


def _one_line(value: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), value)
