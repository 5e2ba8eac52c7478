"""Rows -> exchanged files: CSV and JSON as Spark writes them, and Parquet."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec import layouts
from lakeformat.engines.exchange.layout import SUFFIXES, FileLayout
from lakeformat.engines.kernels import casts
from lakeformat.errors import LakeError, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.store import Store

_FILE_BYTES = 256 << 20  # Of rows in Arrow; then another file begins.
_ROWS = 1 << 16
_CONTROLS = {**{chr(code): f"\\u{code:04x}" for code in range(32)}, "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FORMATS = {  # Letters of Spark's patterns -> Arrow's.
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p", "DDD": "%j"
}  # fmt: skip
_PATTERN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    path: str
    row_count: int


def export(
    store: Store,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    layout: FileLayout,
    stem: str,
    may_be_none: bool = False,
) -> list[ExportedFile]:
    """Write the rows to files of the store whose names begin with `stem`: at least one, unless `may_be_none`. If that
    fails, none is left behind."""
    require_exported(schema, layout)
    done: list[ExportedFile] = []
    try:
        rows = _Batches(batches)
        while rows.has_more or not (done or may_be_none):
            done.append(_file(store, rows, schema, layout, f"{stem}-c{len(done):03}"))
    except BaseException:
        with suppress(LakeError):
            store.delete([file.path for file in done])
        raise
    return done


def require_exported(schema: pa.Schema, layout: FileLayout) -> None:
    """Raise `UnsupportedFeature` for columns that the format has no spelling of, and for unknown patterns."""
    for option in ("DATE_FORMAT", "TIMESTAMP_FORMAT"):
        _pattern(layout.options.get(option, ""))
    for column in schema if layout.format != "PARQUET" else ():
        if not _is_spelt(column.type, layout.format == "JSON"):
            raise UnsupportedFeature(
                f"column {column.name}: {layout.format} files have no spelling of {column.type} that all engines read; "
                "export it as PARQUET, or cast it in a query"
            )
    if len({name.casefold() for name in schema.names}) < len(schema.names):
        raise UnsupportedFeature(f"two columns of one name among {', '.join(schema.names)}: give them names with AS")


# --- private ----------------------------------------------------------------------------------------------------------


class _Batches:
    """Batches with rows, and whether there are more of them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._left = (part for batch in batches for part in _parts(batch))
        self._next = next(self._left, None)

    @property
    def has_more(self) -> bool:
        return self._next is not None

    def up_to(self, size: int) -> Iterator[pa.RecordBatch]:
        while self._next is not None and size > 0:
            batch = self._next
            size -= batch.nbytes
            yield batch
            self._next = next(self._left, None)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _ROWS):
        yield batch.slice(start, _ROWS)


def _file(store: Store, rows: _Batches, schema: pa.Schema, layout: FileLayout, stem: str) -> ExportedFile:
    codec = layout.codec if layout.format != "PARQUET" else None
    end = f".{layout.format.lower()}{SUFFIXES.get(codec or '', '')}"
    path, count = stem + end, 0
    with store.create_stream(path) as sink:
        for part in _written(sink, rows.up_to(_FILE_BYTES), schema, layout, codec):
            count += part
    return ExportedFile(path, count)


def _written(
    sink: BinaryIO, batches: Iterator[pa.RecordBatch], schema: pa.Schema, layout: FileLayout, codec: str | None
) -> Iterator[int]:
    if layout.format == "PARQUET":
        compression = layout["COMPRESSION"].replace("UNCOMPRESSED", "NONE")
        with pq.ParquetWriter(_Unclosed(sink), schema, compression=compression) as writer:
            for batch in batches:
                writer.write_batch(batch)
                yield batch.num_rows
        return
    target: Any = sink if codec is None else pa.CompressedOutputStream(pa.PythonFile(_Unclosed(sink), "w"), codec)
    if layout.format == "CSV" and layout["HEADER"]:
        names = [pa.array([name]) for name in schema.names]
        target.write(_bytes(_csv(names, layout)))
    for batch in batches:
        columns = [layouts.plain(column) for column in batch.columns]
        if layout.format == "CSV":
            target.write(_bytes(_csv([_text(column, layout) for column in columns], layout)))
        else:
            target.write(_bytes(_objects(schema.names, columns, layout)))
        yield batch.num_rows
    if codec is not None:
        target.close()


class _Unclosed(io.RawIOBase):
    """A sink that Arrow's writers do not close: it appears with `close`, also what an error cut off."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._sink.write(data)


def _bytes(lines: pa.Array) -> bytes:
    """Lines of text, with an end each."""
    if not len(lines):
        return b""
    return bytes(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py().encode()) + b"\n"


def _csv(columns: Sequence[pa.Array], layout: FileLayout) -> pa.Array:
    """Lines: null is empty, and text is quoted where it must be, or is empty itself."""
    quote, escape, delimiter = layout["QUOTE"], layout["ESCAPE"], layout["FIELD_DELIMITER"]
    signs = "".join(re.escape(sign) for sign in (quote, escape, delimiter))
    cells = []
    for text in columns:
        if quote:
            must = pc.match_substring_regex(text, rf"^$|[{signs}\r\n]|^\s|\s$")
            inner = pc.replace_substring(text, escape, escape * 2) if escape not in ("", quote) else text
            inner = pc.replace_substring(inner, quote, (escape or quote) + quote)
            text = pc.if_else(must, pc.binary_join_element_wise(quote, inner, quote, ""), text)
        cells.append(pc.fill_null(text, "" if len(columns) > 1 else quote * 2))  # Readers skip empty lines.
    return pc.binary_join_element_wise(*cells, delimiter)


def _objects(names: Sequence[str], columns: Sequence[pa.Array], layout: FileLayout) -> pa.Array:
    """JSON objects; a null is left out."""
    members = []
    for name, column in zip(names, columns, strict=True):
        key = _quoted(pa.array([name]))[0].as_py()
        members.append(pc.fill_null(pc.binary_join_element_wise(f",{key}:", _value(column, layout), ""), ""))
    joined = pc.binary_join_element_wise(*members, "") if len(members) > 1 else members[0]
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")


def _value(values: pa.Array, layout: FileLayout) -> pa.Array:
    """Values as JSON; null where a value is null."""
    type = values.type
    if pa.types.is_struct(type):
        parts = [layouts.plain(pc.struct_field(values, [index])) for index in range(type.num_fields)]
        objects = _objects([part.name for part in type], parts, layout)
        return pc.if_else(values.is_valid(), objects, pa.scalar(None, pa.string()))
    if pa.types.is_map(type):
        keys, items = casts.entries(values)
        pairs = pc.binary_join_element_wise(_quoted(_text(keys, layout)), _null(_value(items, layout)), ":")
        return _joined(values, pairs, "{", "}")
    if pa.types.is_list(type):
        return _joined(values, _null(_value(layouts.plain(casts.items(values)), layout)), "[", "]")
    if pa.types.is_null(type):
        return pa.nulls(len(values), pa.string())
    text = _text(values, layout)
    if pa.types.is_boolean(type) or pa.types.is_integer(type) or pa.types.is_decimal(type):
        return text
    if pa.types.is_floating(type):  # NaN and infinity are no numbers in JSON.
        return pc.if_else(pc.is_finite(values), text, _quoted(text))
    return _quoted(text)


def _null(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, "null")


def _joined(lists: pa.Array, texts: pa.Array, first: str, last: str) -> pa.Array:
    """The texts of each list between brackets."""
    as_list = casts.relist(lists, pa.list_(pa.string()), texts)
    return pc.binary_join_element_wise(first, pc.binary_join(as_list, ","), last, "")


def _quoted(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]"), min_count=0).as_py():
        for sign, spelling in _CONTROLS.items():
            texts = pc.replace_substring(texts, sign, spelling)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _text(values: pa.Array, layout: FileLayout) -> pa.Array:
    """Plain values as Spark spells them in such files; timestamps with all their digits."""
    type = values.type
    if pa.types.is_timestamp(type):
        pattern = _pattern(layout.options.get("TIMESTAMP_FORMAT", ""))
        wall = values.view(pa.timestamp(type.unit))
        if pattern:
            return pc.strftime(wall.cast(pa.timestamp("s"), safe=False), pattern)
        text = pc.replace_substring(
            wall.cast(pa.timestamp("ns" if type.unit == "ns" else "us")).cast(pa.string()), " ", "T"
        )
        text = pc.replace_substring_regex(text, r"(\.\d{3}(?:\d*[1-9])?)0*$", r"\1")
        return text if type.tz is None else pc.binary_join_element_wise(text, "Z", "")
    if pa.types.is_date(type):
        pattern = _pattern(layout.options.get("DATE_FORMAT", ""))
        return pc.strftime(values.cast(pa.timestamp("s")), pattern) if pattern else values.cast(pa.string())
    if pa.types.is_floating(type):
        text = pc.replace_substring_regex(values.cast(pa.string()), r"^(-?\d+)$", r"\1.0")
        return pc.replace_substring(pc.replace_substring(text, "nan", "NaN"), "inf", "Infinity")
    if pa.types.is_dictionary(type):
        return _text(values.cast(type.value_type), layout)
    return values.cast(pa.string())


def _pattern(spark_pattern: str) -> str:
    """Arrow's pattern for Spark's. Raises `UnsupportedFeature` for letters that have no equal."""
    pattern = ""
    for match in _PATTERN.finditer(spark_pattern):
        part = match[0]
        if part.startswith("'") and match[1] is not None:
            pattern += (match[1].replace("''", "'") or "'").replace("%", "%%")
        elif match[2] is None:
            pattern += "%%" if part == "%" else part
        elif part in _FORMATS:
            pattern += _FORMATS[part]
        else:
            raise UnsupportedFeature(
                f"pattern {spark_pattern!r}: {part!r} is not known; supported: {', '.join(_FORMATS)}, "
                "and text in single quotes"
            )
    return pattern


def _is_spelt(type: pa.DataType, nested: bool) -> bool:
    if pa.types.is_nested(type):
        if not nested:
            return False
        if pa.types.is_map(type):
            return not pa.types.is_nested(type.key_type) and all(
                _is_spelt(t, True) for t in (type.key_type, type.item_type)
            )
        parts = [part.type for part in type] if pa.types.is_struct(type) else [type.value_type]
        return all(_is_spelt(part, True) for part in parts)
    if pa.types.is_dictionary(type):
        return _is_spelt(type.value_type, nested)
    return not (pa.types.is_binary(type) or pa.types.is_large_binary(type) or pa.types.is_fixed_size_binary(type))
