"""Exchanged files -> batches of a table's columns; rows that do not fit are counted and left out."""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from lakeformat.codec import layouts
from lakeformat.codec.arrow import to_arrow
from lakeformat.engines.exchange import fitting
from lakeformat.engines.exchange.fitting import Fitted
from lakeformat.engines.exchange.layout import SUFFIXES, FileLayout
from lakeformat.engines.exchange.plain_text import PlainCsv, lines
from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field, Kind, Scalar
from lakeformat.storage.store import Reader

_BLOCK = 8 << 20  # Bytes of CSV that are parsed at a time; no row is longer.
_ROWS = 1 << 16
_COLUMN = re.compile(r"Column\(/([^/)]*)\) changed from (\w+) to (\w+)")
_FEW = 256  # Lines of JSON.
_SHOWN = 80  # Characters of a row in an error.

_Columns = tuple[Sequence[pa.Array | None], int]  # The columns of some rows, and how many rows.


@dataclass(slots=True)
class Tally:
    """What was read of a file so far."""

    rows_parsed: int = 0
    rows_loaded: int = 0
    errors: int = 0
    first: tuple[int, str] | None = None  # The first row with an error, from 1, and what it says; 0: the file.
    malformed: list[int] = field(default_factory=list)  # The rows that are none, in order.

    @property
    def first_error(self) -> str | None:
        if self.first is None:
            return None
        return f"row {self.first[0]}: {self.first[1]}" if self.first[0] else self.first[1]

    @property
    def rows_read(self) -> int:
        """The rows that are no malformed ones."""
        return self.rows_parsed - len(self.malformed)

    def add(self, count: int, row: int, message: str) -> None:
        self.errors += count
        if self.first is None or row < self.first[0]:
            self.first = row, message

    def add_malformed(self, row: int, message: str) -> None:
        self.rows_parsed += 1
        self.malformed.append(row)
        self.add(1, row, message)

    def number(self, index: int) -> int:
        """The number in the file, from 1, of the row that is the `index`-th of those that are not malformed."""
        row = index + 1
        for malformed in self.malformed:
            if malformed > row:
                break
            row += 1
        return row


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read: its path in the store, the columns that it gives, and how it is laid out. CSV gives the columns
    in this order, other formats by name."""

    path: str
    fields: tuple[Field, ...]
    layout: FileLayout
    strict: bool = True  # The first error is raised.


def examine(store: Reader, source: Source) -> Tally:
    """Read the file and forget its rows."""
    tally = Tally()
    for _ in batches(store, source, tally):
        pass
    return tally


def batches(store: Reader, source: Source, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows that fit, in the table's types. With `strict` raises `InvalidInput` for the first that does not, with
    the file, the row and the column. `StoreError` if storage fails."""
    read = _READERS[source.layout.format]
    rows_read = 0
    try:
        for columns, row_count in read(store, source, tally):
            yield from _good(columns, row_count, source, tally, rows_read)
            rows_read += row_count
            _require_none(source, tally)
        _require_none(source, tally)
    except _Refused as error:
        raise InvalidInput(*error.args) from error.__cause__
    except (pa.ArrowException, OSError, EOFError, InvalidInput) as error:
        message = str(error)
        if "straddl" in message:
            message = f"a row of more than {_BLOCK >> 20} MiB, or a quote that is not closed"
        tally.add(1, 0 if tally.first is None else tally.rows_parsed + 1, message)
        if source.strict:
            raise InvalidInput(_refusal(source, tally)) from error


# --- private ----------------------------------------------------------------------------------------------------------


class _Refused(InvalidInput):
    """An error of a row, with its file."""


def _require_none(source: Source, tally: Tally) -> None:
    if source.strict and tally.errors:
        raise _Refused(_refusal(source, tally))


def _refusal(source: Source, tally: Tally) -> str:
    return (
        f"{source.path}: {tally.first_error}; nothing was loaded (ON_ERROR = CONTINUE leaves such rows out, SKIP_FILE "
        "such files)"
    )


def _good(
    columns: Sequence[pa.Array | None], row_count: int, source: Source, tally: Tally, before: int
) -> Iterator[pa.RecordBatch]:
    """The rows of these columns that fit; None is a column of nulls. `before`: the rows read before them."""
    arrays, bad = [], np.zeros(row_count, bool)
    for column, wanted in zip(columns, source.fields, strict=True):
        result = _fitted(pa.nulls(row_count) if column is None else column, wanted, source.layout)
        if result.bad is not None and result.first is not None:
            bad |= result.bad
            tally.add(0, tally.number(before + result.first[0]), result.first[1])
        arrays.append(result.column)
    tally.rows_parsed += row_count
    tally.errors += int(bad.sum())
    batch = fitting.table(arrays, source.fields)
    if bad.any():
        batch = batch.filter(pa.array(~bad))
    tally.rows_loaded += batch.num_rows
    if batch.num_rows:
        yield batch


def _fitted(values: pa.Array, field: Field, layout: FileLayout) -> Fitted:
    if layout.format == "PARQUET":
        return fitting.fitted(values, field)
    spelt = fitting.texts(values, field.name) if pa.types.is_binary(values.type) else Fitted(values)
    empty = layout["EMPTY_FIELD_AS_NULL"] or (layout.format == "CSV" and not fitting.is_text(field.type))
    result = fitting.fitted(fitting.as_null(spelt.column, layout["NULL_IF"], empty), field)
    if spelt.bad is None:
        return result
    return Fitted(result.column, spelt.bad if result.bad is None else spelt.bad | result.bad, spelt.first)


@contextmanager
def _opened(store: Reader, source: Source) -> Iterator[Any]:
    """The file's bytes, decompressed as the layout says, or else as its name does."""
    name = source.path.lower()
    codec = source.layout.codec or next((codec for codec, end in SUFFIXES.items() if name.endswith(end)), None)
    with store.open(source.path) as file:
        if codec is None:
            yield file
            return
        plain = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, "r")
        with pa.CompressedInputStream(plain, codec) as unpacked:
            yield unpacked


def _csv(store: Reader, source: Source, tally: Tally) -> Iterator[_Columns]:
    layout, width = source.layout, len(source.fields)
    mark = uuid.uuid4().hex
    end = (mark + layout["FIELD_DELIMITER"] * width + "\n").encode() * 2
    is_closed = False

    def malformed(row: Any) -> str:
        nonlocal is_closed
        text = row.text or ""
        if text.startswith(mark):
            is_closed = True
        elif mark not in text:
            count = f"{row.actual_columns} field{'s' * (row.actual_columns != 1)}"
            number = max(1, (row.number or 0) - int(layout["SKIP_HEADER"]))
            tally.add_malformed(number, f"{count}, not {width}: {row.text!r:.{_SHOWN}}")
        return "skip"

    names = [f"c{index}" for index in range(width)]
    with _opened(store, source) as file:
        reader = pyarrow.csv.open_csv(
            pa.PythonFile(PlainCsv(file, layout["QUOTE"], layout["ESCAPE"], end), "r"),
            pyarrow.csv.ReadOptions(
                column_names=names,
                skip_rows_after_names=int(layout["SKIP_HEADER"]),
                use_threads=False,
                block_size=_BLOCK,
            ),
            pyarrow.csv.ParseOptions(
                delimiter=layout["FIELD_DELIMITER"],
                quote_char=layout["QUOTE"] or False,
                escape_char=False,
                newlines_in_values=True,
                invalid_row_handler=malformed,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            _require_none(source, tally)
            if _ends_in(batch, mark):
                batch = batch.slice(0, batch.num_rows - 1)
                yield from _parts(batch)
                break
            yield from _parts(batch)
        if not is_closed:
            raise InvalidInput("a quote is not closed, so that all after it is one field")


def _ends_in(batch: pa.RecordBatch, mark: str) -> bool:
    """Whether the last row of a CSV file goes on behind the file's end."""
    last = batch.slice(max(0, batch.num_rows - 1))
    return any(mark.encode() in (value.as_py() or b"") for column in last.columns for value in column)


def _parts(batch: pa.RecordBatch) -> Iterator[_Columns]:
    for start in range(0, batch.num_rows, _ROWS):
        part = batch.slice(start, _ROWS)
        yield part.columns, part.num_rows


def _json(store: Reader, source: Source, tally: Tally) -> Iterator[_Columns]:
    types = {field.name: _type_in_json(field) for field in source.fields}
    number = 0
    with _opened(store, source) as file:
        for text in lines(file, source.layout["MULTI_LINE"]):
            for rows in _objects(text, source, types):
                if isinstance(rows, str):
                    number += 1
                    tally.add_malformed(number, rows)
                    _require_none(source, tally)
                    continue
                for start in range(0, len(rows), _ROWS):
                    part = rows.slice(start, _ROWS)
                    yield [_column(part, field.name) for field in source.fields], len(part)
                number += len(rows)


def _column(rows: pa.Table, name: str) -> pa.Array | None:
    return layouts.plain(rows[name]) if name in rows.column_names else None


def _type_in_json(field: Field) -> pa.DataType:
    """The type with which Arrow first reads values of a column."""
    if not isinstance(field.type, Scalar):
        return to_arrow(field.type)
    match field.type.kind:
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT:
            return pa.int64()
        case Kind.FLOAT | Kind.DOUBLE:
            return pa.float64()
        case Kind.BOOLEAN | Kind.DECIMAL:
            return to_arrow(field.type)
    return pa.string()


def _objects(text: bytes, source: Source, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table | str]:
    """Lines of JSON as tables, and an error for each line that is no object."""
    parsed_types: dict[str, pa.DataType | None] = dict(types)
    tried: set[str] = set()
    while True:
        try:
            text.decode()  # Arrow takes text that is no UTF-8.
            yield _read(text, parsed_types)
            return
        except (ValueError, pa.ArrowException) as error:
            changed = _COLUMN.search(str(error))
        name = changed[1] if changed else ""
        is_plain = changed is not None and changed[3] not in ("object", "array")
        if changed is None or not is_plain or name not in types or name in tried or pa.types.is_nested(types[name]):
            break
        tried.add(name)
        parsed_types[name] = (
            pa.string() if changed[3] == "string" else None
        )  # Other values than the column's, but all alike.
    rows = [line for line in text.split(b"\n") if line.strip()]
    if len(rows) <= _FEW:
        yield from _one_by_one(rows, source)
        return
    for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        yield from _objects(b"\n".join(half), source, types)


def _read(text: bytes, types: Mapping[str, pa.DataType | None]) -> pa.Table:
    """All lines at once. Arrow chooses the type of a column of None."""
    schema = pa.schema([(name, type) for name, type in types.items() if type is not None])
    return pyarrow.json.read_json(
        io.BytesIO(text),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore" if len(schema) == len(types) else "infer"
        ),
    )


def _one_by_one(rows: Sequence[bytes], source: Source) -> Iterator[pa.Table | str]:
    """As `_objects`, for a few lines among which some are irregular: only a parser of single lines says which."""
    good: list[list[Any]] = []
    for row in rows:
        try:
            values = _values(row, source.fields)
        except (ValueError, RecursionError, pa.ArrowException) as error:
            if good:
                yield _table(good, source.fields)
            good = []
            yield f"{error}: {row[:_SHOWN].decode(errors='replace')!r}"
        else:
            good.append(values)
    if good:
        yield _table(good, source.fields)


def _values(row: bytes, fields: Sequence[Field]) -> list[Any]:
    """The row's values: text for plain columns, and an array of one value for nested ones."""
    text = row.decode("utf-8-sig")
    parsed = json.loads(text, parse_float=Decimal)
    if not isinstance(parsed, dict):
        raise ValueError("no JSON object; MULTI_LINE = TRUE reads arrays and objects over several lines")
    values: list[Any] = []
    for column in fields:
        value = parsed.get(column.name)
        if not isinstance(column.type, Scalar):
            try:
                values.append(pa.array([json.loads(text).get(column.name)], to_arrow(column.type)))
            except (pa.ArrowException, TypeError) as error:
                raise ValueError(f"column {column.name}: {error}") from error
        elif value is None:
            values.append(value)
        elif isinstance(value, str):
            values.append(value.encode().decode())  # Raises for half of a surrogate pair.
        else:
            is_number = isinstance(value, Decimal)
            values.append(str(value) if is_number else json.dumps(value, default=float, separators=(",", ":")))
    return values


def _table(rows: Sequence[Sequence[Any]], fields: Sequence[Field]) -> pa.Table:
    columns = []
    for column, values in zip(fields, zip(*rows, strict=True), strict=True):
        columns.append(pa.array(values, pa.string()) if isinstance(column.type, Scalar) else pa.concat_arrays(values))
    return pa.Table.from_arrays(columns, names=[column.name for column in fields])


def _parquet(store: Reader, source: Source, tally: Tally) -> Iterator[_Columns]:
    with store.open(source.path) as opened:
        file = pq.ParquetFile(opened if isinstance(opened, pa.NativeFile) else pa.PythonFile(opened, "r"))
        names = file.schema_arrow.names
        places = []
        for field in source.fields:
            same = [name for name in names if name.casefold() == field.name.casefold()]
            if len(same) > 1:
                raise InvalidInput(f"columns {' and '.join(same)} both have the name of column {field.name}")
            places.append(same[0] if same else None)
        if not any(places):
            raise InvalidInput(
                f"none of the columns {', '.join(field.name for field in source.fields)} is in the file, "
                f"which has {', '.join(names)}"
            )
        for batch in file.iter_batches(_ROWS, columns=[name for name in places if name is not None]):
            yield [None if name is None else batch.column(name) for name in places], batch.num_rows


_READERS: Mapping[str, Callable[[Reader, Source, Tally], Iterator[_Columns]]] = {
    "CSV": _csv,
    "JSON": _json,
    "PARQUET": _parquet,
}
