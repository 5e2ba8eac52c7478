"""Text files: CSV and JSON, one row per line, as in Paimon's format tables (CsvFileReader, JsonFileReader)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import Field, Kind, Scalar, Type, walk

# Writers disagree on the text of these types.
_AS_TEXT = (Kind.TIMESTAMP_TZ, Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED, Kind.VARIANT)
_SPELLED = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP)  # In JSON as strings.
_DOUBLE_DIGITS = 15  # Digits that a 64-bit float holds exactly.


class Csv:
    """A CSV file with the table's columns in order, whatever its header says."""

    row_count: int | None = None

    def __init__(self, source: Any, path: str, options: Mapping[str, str]) -> None:
        self._source, self._path, self._named = source, path, tuple[Field, ...]()
        delimiter = options.get("csv.field-delimiter", options.get("field-delimiter", ","))
        lines = options.get("csv.line-delimiter", "\n")
        signs = {
            "csv.field-delimiter": delimiter,
            "csv.quote-character": options.get("csv.quote-character", '"'),
            "csv.escape-character": options.get("csv.escape-character", "\\"),
        }
        for name, sign in signs.items():
            if len(sign.encode()) > 1:
                raise UnsupportedFeature(f"{path}: {name}={sign!r}: signs of more than one byte: not supported")
        if lines not in ("\n", "\r\n", "\r"):
            raise UnsupportedFeature(f"{path}: csv.line-delimiter={lines!r}: lines end with a line break")
        self._header = options.get("csv.include-header", "false").lower() == "true"
        self._null = options.get("csv.null-literal", "")
        self._parse = pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            quote_char=signs["csv.quote-character"] or False,
            escape_char=signs["csv.escape-character"] or False,
            newlines_in_values=True,
        )

    def fields(self, named: tuple[Field, ...] | None) -> tuple[Field, ...]:
        self._named = _required_fields(named, self._path)
        for field in self._named:
            if not isinstance(field.type, Scalar):
                raise UnsupportedFeature(
                    f"{self._path}: column {field.name} of a CSV file is a {field.type}: not supported"
                )
        return self._named

    def batches(
        self,
        fields: tuple[Field, ...],
        pushed: pc.Expression | None,
        batch_rows: int,
        far_as_null: frozenset[int] = frozenset(),
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(position of the first row, rows) with the columns `fields`; nothing is pruned."""
        names = [field.name for field in self._named]
        if self._source.size() == 0:
            return
        reader = pyarrow.csv.open_csv(
            self._source,
            pyarrow.csv.ReadOptions(column_names=names, skip_rows=int(self._header)),
            self._parse,
            pyarrow.csv.ConvertOptions(
                column_types={field.name: to_arrow(field.type) for field in self._named},
                include_columns=[field.name for field in fields] or names[:1],
                null_values=[self._null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        yield from _sliced(reader, fields, batch_rows)


class Json:
    """A file of JSON objects, one per line."""

    row_count: int | None = None

    def __init__(self, source: Any, path: str, options: Mapping[str, str]) -> None:
        self._source, self._path, self._named = source, path, tuple[Field, ...]()
        if options.get("json.ignore-parse-errors", "false").lower() == "true":
            raise UnsupportedFeature(f"{path}: json.ignore-parse-errors=true, which leaves rows out: not supported")
        if options.get("json.line-delimiter", "\n") not in ("\n", "\r\n"):
            raise UnsupportedFeature(
                f"{path}: json.line-delimiter={options['json.line-delimiter']!r}: lines end with a line break"
            )

    def fields(self, named: tuple[Field, ...] | None) -> tuple[Field, ...]:
        self._named = _required_fields(named, self._path)
        for field in self._named:
            for part in () if isinstance(field.type, Scalar) else walk((field,)):
                if isinstance(part.type, Scalar) and part.type.kind in (*_AS_TEXT, *_SPELLED, Kind.DECIMAL):
                    raise UnsupportedFeature(
                        f"{self._path}: column {field.name} of a JSON file has a {part.type} inside: not supported"
                    )
            match field.type:
                case Scalar(Kind.DECIMAL, (precision, _)) if precision > _DOUBLE_DIGITS:
                    raise UnsupportedFeature(
                        f"{self._path}: column {field.name} of a JSON file, a {field.type}: numbers of more than "
                        f"{_DOUBLE_DIGITS} digits: not supported"
                    )
        return self._named

    def batches(
        self,
        fields: tuple[Field, ...],
        pushed: pc.Expression | None,
        batch_rows: int,
        far_as_null: frozenset[int] = frozenset(),
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(position of the first row, rows) with the columns `fields`; nothing is pruned."""
        if self._source.size() == 0:
            return
        named = pa.schema([pa.field(field.name, _json_type(field.type)) for field in self._named])
        reader = pyarrow.json.open_json(
            self._source,
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=named, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
        yield from _sliced(reader, fields, batch_rows)


def _json_type(type: Type) -> pa.DataType:
    """The type with which Arrow reads values of this type."""
    match type:
        case Scalar(Kind.DECIMAL):
            return pa.float64()
        case Scalar(kind) if kind in _SPELLED:
            return pa.string()
        case _:
            return to_arrow(type)


def _required_fields(named: tuple[Field, ...] | None, path: str) -> tuple[Field, ...]:
    assert named is not None, path
    for field in named:
        if isinstance(field.type, Scalar) and field.type.kind in _AS_TEXT:
            raise UnsupportedFeature(f"{path}: column {field.name}, a {field.type} as text: not supported")
    return named


def _sliced(
    batches: Iterator[pa.RecordBatch], fields: tuple[Field, ...], batch_rows: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    position = 0
    for whole in batches:
        columns = [whole.column(field.name).cast(to_arrow(field.type)) for field in fields]
        whole = pa.RecordBatch.from_arrays(columns, [field.name for field in fields]) if columns else whole
        for start in range(0, whole.num_rows, batch_rows):
            yield position + start, whole.slice(start, batch_rows)
        position += whole.num_rows
