"""Parquet data files: columns by name or field id, with pruning of leaves and row groups; and a writer."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import accumulate, pairwise
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec import layouts, parquet_footer
from lakeformat.codec.arrow import from_arrow, to_arrow
from lakeformat.codec.latest import latest
from lakeformat.codec.variant import shredding as variant_shredding
from lakeformat.engines.files import statistics
from lakeformat.engines.kernels import casts
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import NO_ID, Field, Geo, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar, walk
from lakeformat.model.work import ColumnStats, Encoding, FileKey, WriteTask

_ARROW = int(pa.__version__.partition(".")[0])

PIECE_OPTION = "parquet.block.size"

BATCH_BYTES = 16 << 20  # Bytes of rows that are read together, unless a single row has more.

GROUP_ROWS = 1 << 17  # Rows of a row group in sorted files, so that readers can skip row groups.

PART_BYTES = 2 << 20  # The least bytes in memory of columns that are encoded apart from the others.

_BUFFER_BYTES = 4 << 20  # Bytes of a column chunk that are read at a time.
_RUN_BYTES = 8 << 20  # Encoded bytes of row groups from which on another thread may read the next.
_AHEAD_BYTES = 64 << 20  # Stored bytes of row groups that are read ahead together.
# The least bytes of a value in memory.
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_PAGE_ROWS = 1 << 10  # Arrow's own default of `write_batch_size`.
_SAMPLES, _SAMPLE_ROWS = 8, 1 << 12  # Slices and rows of a sample.

_COMMON = frozenset(
    {
        *(Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL),
        *(Kind.STRING, Kind.VARCHAR, Kind.DATE),
    }
)

_ID = b"PARQUET:field_id"
_MAGIC = b"PAR1"
NANOS = "parquet.nanoseconds"  # An option: "int64" for timestamps of more than 6 digits, else INT96.
# An option: "annotated" marks variants as such, which Java Paimon's Parquet cannot read.
VARIANTS = "parquet.variants"
# An option: which parts of variants are shredded into columns; see `variant_shredding.options`.
SHREDDING = "parquet.shredding"


_THREAD = threading.local()
_latest_schema = pa.schema([])


def one_of_many() -> None:
    """Make the calling thread decode by itself, without Arrow's threads; for threads beside others that use all
    cores."""
    _THREAD.is_one_of_many = True


@dataclass(frozen=True, slots=True)
class Stored:
    """A row group of a file, to be copied to another as bytes."""

    source: Any
    path: str
    row_group: bytes  # As `parquet_footer` has it.
    spans: tuple[tuple[int, int], ...]  # The start and end of each column's pages.
    extra: dict[int, ColumnStats]  # As `statistics.beside_footer` gives them.
    row_count: int
    size_bytes: int  # Encoded, not compressed.

    def chunk(self, start: int, end: int) -> bytes:
        """The pages of a column. Raises `CorruptFile` if some are missing or do not match their checksums."""
        try:
            data: bytes = self.source.read_at(end - start, start)  # Other threads may read the same source.
            if len(data) != end - start:
                raise CorruptFile(
                    f"{self.path}: it ends at byte {start + len(data)}, and its footer says {end} or more"
                )
            offset = parquet_footer.damaged_page(memoryview(data))
        except OSError as error:
            raise CorruptFile(f"{self.path}: cannot be read: {error}") from error
        except (IndexError, KeyError, AssertionError) as error:
            raise CorruptFile(f"{self.path}: no pages at byte {start}") from error
        if offset is not None:
            raise CorruptFile(f"{self.path}: the page at byte {start + offset} is damaged (checksum)")
        return data


@dataclass(frozen=True, slots=True)
class Encoded:
    """A row group of a file that is being written, or some of its columns, encoded beside it."""

    row_group: bytes  # As `parquet_footer` has it.
    chunks: tuple[memoryview, ...]  # The pages of each column.
    extra: dict[int, ColumnStats]  # As `statistics.beside_footer` gives them.


class File:
    """A Parquet file opened for reading."""

    def __init__(self, source: Any, path: str, key: FileKey | None = None, metadata: Any = None) -> None:
        self._source, self._path, self._is_encrypted = source, path, key is not None
        # Arrow's prefetching requests ranges one by one through Python; `Ranges` fetches them together.
        self._prefetch = getattr(source, "prefetch", None)
        self._options: dict[str, Any] = {"page_checksum_verification": True, "pre_buffer": False}
        if key is not None:
            self._options["decryption_properties"] = _decryption(key)
        self._file = pq.ParquetFile(source, **self._options, metadata=metadata)
        self.row_count: int | None = self._file.metadata.num_rows

    def fields(self, named: tuple[Field, ...] | None) -> tuple[Field, ...]:
        """The columns of the file: those of `named`, matched by name; otherwise with the ids in the file."""
        return _own_fields(self._arrow_schema) if named is None else _present(named, self._arrow_schema)

    @cached_property
    def _arrow_schema(self) -> pa.Schema:
        """That of the file before if it is equal, so that what follows from it is not computed again."""
        global _latest_schema
        before, schema = _latest_schema, self._file.schema_arrow
        if schema.equals(before, check_metadata=True):
            return before
        _latest_schema = schema
        return schema

    @property
    def size_bytes(self) -> int:
        return int(self._source.size())

    @property
    def split_offsets(self) -> tuple[int, ...]:
        self._require_sound(range(self._file.metadata.num_row_groups), [0])
        return _split_offsets(self._file.metadata)

    @property
    def untyped(self) -> tuple[str, ...]:
        """The leaf columns of nulls without a type."""
        schema = self._file.metadata.schema
        leaves = [schema.column(i) for i in range(len(schema))]
        return tuple(leaf.path for leaf in leaves if leaf.logical_type.type in ("UNKNOWN", "NULL"))

    @property
    def has_int96(self) -> bool:
        """Whether its timestamps of nanoseconds are INT96, of Spark and Hive, and none is INT64."""
        schema = self._file.metadata.schema
        leaves = [schema.column(i) for i in range(len(schema))]
        return _has_int96(schema) and not any("timeUnit=nanoseconds" in str(leaf.logical_type) for leaf in leaves)

    def statistics(self, fields: tuple[Field, ...]) -> dict[int, ColumnStats]:
        """The footer's statistics of the columns `fields` of the file, by field id."""
        leaves = _leaf_ranges(self._arrow_schema)
        self._require_sound(range(self._file.metadata.num_row_groups))
        return statistics.from_footer(self._file.metadata, fields, [leaves[field.name] for field in fields])

    @property
    def group_rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [self._file.metadata.row_group(i).num_rows for i in range(self._file.metadata.num_row_groups)]

    @property
    def runs_of_groups(self) -> list[list[int]]:
        """The row groups in runs of `_RUN_BYTES` or more, which `apart` can read on other threads."""
        runs: list[list[int]] = [[]]
        size = 0
        for group in range(0 if self._is_encrypted else self._file.metadata.num_row_groups):
            if size >= _RUN_BYTES:
                runs.append([])
                size = 0
            runs[-1].append(group)
            size += self._file.metadata.row_group(group).total_byte_size
        return runs

    def apart(self) -> File:
        """The same file for another thread; its footer is not read again."""
        source = self._other_source
        return File(source, self._path, metadata=self._file.metadata)

    @property
    def _other_source(self) -> Any:
        return self._source.apart() if hasattr(self._source, "apart") else self._source

    def copyable(self, task: WriteTask, least_bytes: int) -> list[int]:
        """The row groups of at least `least_bytes` (stored) that can be copied unchanged to a file of `task`: they have
        the schema and codec that it would write."""
        if _shreds(task) or self.size_bytes < least_bytes:
            return []
        metadata = self._file.metadata
        self._require_sound(range(metadata.num_row_groups))
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [[group.column(i) for i in range(group.num_columns)] for group in groups]
        codec = _codec(task.encoding.compression).upper().replace("NONE", "UNCOMPRESSED")
        copied = [
            index
            for index, some in enumerate(chunks)
            if all(chunk.compression == codec for chunk in some)
            and sum(chunk.total_compressed_size for chunk in some) >= least_bytes
        ]
        return (
            copied
            if copied and self._footer.agrees(_empty_footer(task.fields, frozenset(task.encoding.options.items())))
            else []
        )

    def lacking(self, group: int, task: WriteTask) -> tuple[Field, ...]:
        """The columns of `task` whose statistics `stored` must compute from rows."""
        metadata, fields = self._file.metadata.row_group(group), task.fields
        return statistics.lacking(metadata, fields, _writes_int96(task))

    def stored(self, group: int, task: WriteTask, rows: pa.Table) -> Stored | None:
        """A row group to be copied; `rows` are its rows, with the columns that it is `lacking`. None if its pages are
        in another file."""
        metadata = self._file.metadata.row_group(group)
        spans = tuple(_span(metadata.column(i)) for i in range(metadata.num_columns))
        row_group = self._footer.row_groups[group]
        if parquet_footer.moved(row_group, [0] * len(spans)) is None:
            return None
        by_name = {field.name: field for field in task.fields}
        extra = statistics.beside_footer(rows, tuple(by_name[name] for name in rows.column_names), _writes_int96(task))
        return Stored(
            self._other_source, self._path, row_group, spans, extra, metadata.num_rows, metadata.total_byte_size
        )

    @cached_property
    def _footer(self) -> parquet_footer.Footer:
        size = self._source.size()
        length = int.from_bytes(self._source.read_at(4, size - 8), "little")
        return parquet_footer.parse(self._source.read_at(length, size - 8 - length), self._path)

    def row_groups(self, pushed: pc.Expression | None) -> tuple[int, int]:
        """(the number of row groups that `batches` reads, the number of row groups)."""
        total = self._file.metadata.num_row_groups
        return total if pushed is None else len(self._surviving(pushed)), total

    def is_plain(self, columns: Mapping[str, Field]) -> bool:
        """Whether every reader reads these columns as they are: common types in their plain form."""
        arrow_schema = self._arrow_schema
        if len({name.casefold() for name in arrow_schema.names}) < len(arrow_schema.names):
            return False
        return all(
            arrow_schema.field(name).type == to_arrow(column.type)
            and isinstance(column.type, Scalar)
            and _is_common(column.type)
            for name, column in columns.items()
        )

    def check_pages(self, columns: Sequence[str]) -> None:
        """Raises `CorruptFile` for pages of these top-level columns that do not match their checksums. Reads no
        rows."""
        metadata = self._file.metadata
        self._require_sound(range(metadata.num_row_groups))
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        for chunk in (group.column(i) for group in groups for i in range(group.num_columns)):
            if chunk.path_in_schema not in columns:
                continue
            start, end = _span(chunk)
            self._source.seek(start)
            try:
                offset = parquet_footer.damaged_page(memoryview(self._source.read(end - start)))
            except (IndexError, KeyError, AssertionError) as error:
                raise CorruptFile(f"column {chunk.path_in_schema}: no pages at byte {start}") from error
            if offset is not None:
                raise CorruptFile(
                    f"column {chunk.path_in_schema}: the page at byte {start + offset} is damaged (checksum)"
                )

    def without_nan(self, columns: Sequence[str]) -> frozenset[str]:
        """Those of these top-level columns without NaN, as far as the footer says."""
        schema = self._file.metadata.schema
        # By index: the field `b` of a column `a` has the path of a column `a.b`.
        leaves = _leaf_ranges(self._arrow_schema)
        float_columns = [
            name for name in columns if schema.column(leaves[name].start).physical_type in ("FLOAT", "DOUBLE")
        ]
        if not float_columns:
            return frozenset(columns)
        chosen = [leaves[name].start for name in float_columns]
        try:
            counts = [parquet_footer.nan_counts(row_group, chosen) for row_group in self._footer.row_groups]
        except (IndexError, KeyError, AssertionError) as error:
            raise CorruptFile("its footer is damaged") from error
        return frozenset(columns) - {
            name for index, name in enumerate(float_columns) if any(count[index] != 0 for count in counts)
        }

    def batches(
        self,
        fields: tuple[Field, ...],
        pushed: pc.Expression | None,
        batch_rows: int,
        far_as_null: frozenset[int] = frozenset(),
        groups: list[int] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(position of the first row, rows) with exactly the columns `fields`, in their order; without row groups that
        `pushed` excludes or that are not in `groups`. `far_as_null`: see `ReadTask`."""
        metadata = self._file.metadata
        leaves = _leaves_below(self._arrow_schema, fields)
        names = [field.name for field in fields]
        if groups is None:
            groups = list(range(metadata.num_row_groups)) if pushed is None else self._surviving(pushed)
        starts = list(accumulate(self.group_rows, initial=0))
        for run, rows in self._runs(groups, leaves, batch_rows):
            position = starts[run[0]]
            if self._prefetch is not None and rows == batch_rows:
                self._prefetch([_span(metadata.row_group(i).column(leaf)) for i in run for leaf in leaves])
            for batch in self._run(run, leaves, fields, rows, rows < batch_rows, far_as_null):
                # Arrow returns columns in the order of the file.
                yield position, batch if batch.schema.names == names else batch.select(names)
                position += batch.num_rows
            if position != starts[run[-1] + 1]:
                raise CorruptFile(
                    f"{self._path}: row groups {run[0]} to {run[-1]} end at row {position}, not {starts[run[-1] + 1]}"
                )

    def _run(
        self,
        groups: list[int],
        leaves: list[int],
        fields: tuple[Field, ...],
        batch_rows: int,
        are_wide: bool,
        far_as_null: frozenset[int],
    ) -> Iterator[pa.RecordBatch]:
        options: dict[str, Any] = {"batch_size": batch_rows, "row_groups": groups, "column_indices": leaves}
        options["use_threads"] = not getattr(_THREAD, "is_one_of_many", False)
        # Column chunks of wide rows are not read as a whole either; other chunks are, which is a little faster.
        file_options = {**self._options, "buffer_size": _BUFFER_BYTES if are_wide else 0}
        if not self._is_encrypted:  # The metadata of an encrypted file carries a decryptor of its own.
            file_options["metadata"] = self._file.metadata
        file = pq.ParquetFile(self._source, **file_options) if are_wide else self._file
        digits = _most_digits(fields)
        if digits < 0 or not _has_int96(self._file.metadata.schema):
            yield from file.reader.iter_batches(**options)
            return
        micros = pq.ParquetFile(self._source, coerce_int96_timestamp_unit="us", **file_options)
        if digits <= 6:
            yield from micros.reader.iter_batches(**options)
            return
        # Arrow does not detect overflows of nanoseconds: microseconds show where they would be.
        for nanos, wide in zip(
            *(reader.iter_batches(**options) for reader in (file.reader, micros.reader)), strict=True
        ):
            triples = [(nanos.column(field.name), wide.column(field.name), field) for field in fields]
            reaching = [
                casts.near(*triple[:2]) if triple[2].id in far_as_null else self._reaching(*triple)
                for triple in triples
            ]
            yield pa.RecordBatch.from_arrays(reaching, names=[field.name for field in fields])

    def _runs(self, groups: list[int], leaves: list[int], batch_rows: int) -> Iterator[tuple[list[int], int]]:
        """(consecutive row groups that are read together, rows of a batch), both by the sizes in the footer."""
        if self._is_small(leaves):
            if groups:
                yield groups, batch_rows
            return
        run: list[int] = []
        stored, rows = 0, batch_rows
        self._require_sound(groups, leaves)
        for group in groups:
            metadata = self._file.metadata.row_group(group)
            chunks = [metadata.column(leaf) for leaf in leaves]
            group_bytes = sum(chunk.total_compressed_size for chunk in chunks)
            if run and (run[-1] != group - 1 or stored + group_bytes > _AHEAD_BYTES):
                yield run, rows
                run, stored, rows = [], 0, batch_rows
            run.append(group)
            stored += group_bytes
            # Encodings of repeated values make chunks smaller than their decoded values.
            size = sum(
                max(chunk.total_uncompressed_size, chunk.num_values * _WIDTHS.get(chunk.physical_type, 0))
                for chunk in chunks
            )
            rows = max(1, min(rows, BATCH_BYTES * max(1, metadata.num_rows) // max(1, size)))
        if run:
            yield run, rows

    def _is_small(self, leaves: list[int]) -> bool:
        """Whether all rows of these columns make a batch, without a look at column chunks, which must be sound for
        it: one row group of few bytes, and a value a row."""
        metadata = self._file.metadata
        if self._prefetch is not None or metadata.num_row_groups != 1 or not _is_flat(self._arrow_schema):
            return False
        widest = max(_WIDTHS.values()) * len(leaves) * metadata.num_rows
        return max(metadata.row_group(0).total_byte_size, 0) + widest <= BATCH_BYTES

    def _require_sound(self, groups: Iterable[int], leaves: Sequence[int] | None = None) -> None:
        """Raise the error of Arrow's reader for damaged column chunks in the footer, over which
        `RowGroupMetaData.column` ends the process. Reads no rows."""
        metadata = self._file.metadata
        columns = list(range(metadata.num_columns) if leaves is None else leaves)
        if self._is_encrypted or not columns:  # An encrypted footer is authenticated.
            return
        file = pq.ParquetFile(self._source, metadata=metadata, buffer_size=1)  # Without a buffer it reads whole chunks.
        for group in groups:
            next(file.reader.iter_batches(0, row_groups=[group], column_indices=columns, use_threads=False), None)

    def _reaching(self, nanos: pa.Array, wide: pa.Array, field: Field) -> pa.Array:
        """A column in nanoseconds if that is needed, with its range checked."""
        if max(_digits(part.type) for part in walk((field,))) <= 6:
            return wide
        reach = casts.REACH_MICROS
        for leaf in _timestamps(wide):
            if leaf.type.unit == "ns":  # Stored in nanoseconds.
                continue
            bounds = pc.min_max(leaf.view(pa.int64())).as_py()
            if bounds["min"] is not None and not -reach <= bounds["min"] <= bounds["max"] <= reach:
                raise UnsupportedFeature(
                    f"{self._path}: column {field.name} holds timestamps outside 1677 to 2262, too far for "
                    "nanoseconds in Arrow; read them with scan(nanoseconds='microseconds') or "
                    "scan(nanoseconds='null'), or change the column to TIMESTAMP(6)"
                )
        return nanos

    def _surviving(self, pushed: pc.Expression) -> list[int]:
        """The row groups whose statistics do not exclude `pushed`; all if that cannot be evaluated."""
        try:
            self._source.seek(0)
            # It imports pandas if that is installed, which takes a second and is rarely needed.
            import pyarrow.dataset as ds

            decryption = {"decryption_properties": self._options["decryption_properties"]} if self._is_encrypted else {}
            scanning = ds.ParquetFragmentScanOptions(**decryption)
            fragment = ds.ParquetFileFormat(default_fragment_scan_options=scanning).make_fragment(self._source)
            return [group.id for group in fragment.subset(pushed).row_groups]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError):
            return list(range(self._file.metadata.num_row_groups))


def _decryption(key: FileKey) -> Any:
    """The decryption properties of an encrypted file; one key is for its footer and all columns."""
    try:
        library = import_module("pyarrow.parquet.encryption")
        return library.create_decryption_properties(key.key, aad_prefix=key.signed)
    except (ImportError, AttributeError) as error:
        raise UnsupportedFeature(
            f"encrypted Parquet files: not supported by pyarrow {pa.__version__}; install a newer one, "
            "with Parquet encryption"
        ) from error


class Output:
    """A Parquet file being written to `sink`. Each `add` ends a row group; in sorted files so do `GROUP_ROWS` rows."""

    def __init__(self, sink: BinaryIO, task: WriteTask) -> None:
        self._sink = _Ended(sink)
        self._task, self._fields = task, task.fields
        self._schema = _file_schema(task.fields)
        # By the index of a variant column: its shredded parts.
        self._shredded: dict[int, pa.DataType] = {}
        self._extra: list[dict[int, ColumnStats]] = []
        # Java Paimon uses INT96 for more than 6 digits, and reads it as any TIMESTAMP; pyarrow's switch is per file.
        self._int96 = _writes_int96(task)
        self._has_uuids = _holds(task.fields, Kind.UUID)
        self._is_ordered = task.keyed is not None or bool(task.sort_by)
        self._writer: pq.ParquetWriter | None = None
        self._settings: dict[str, Any] = {}
        # For each row group: itself, if it was copied;
        # otherwise the number of bytes before it that Arrow does not know about.
        self._groups: list[bytes | int] = []
        self._copied_bytes = 0

    def add(self, table: pa.Table) -> None:
        self.prepare(table)
        assert self._writer is not None, table
        for start, rows in self._groups_of(table):
            self._extra.append(statistics.beside_footer(table.slice(start, rows), self._fields, self._int96))
            self._groups.append(self._copied_bytes)
        self._writer.write_table(self._as_stored(table), row_group_size=self._group_rows(table))

    def prepare(self, table: pa.Table) -> None:
        """Check rows that come next, and choose by the first how the file is encoded; before each `encode`."""
        if self._int96 and _ARROW < 23:
            self._refuse_before_1970(table)
        if self._writer is None:
            if _shreds(self._task):
                self._shred(table)
            self._settings = self._settings_for(table)
            self._writer = self._opened(self._sink, self._schema)

    def parts(self, table: pa.Table, most: int) -> list[slice]:
        """The columns of a table in at most `most` parts of about as many bytes, for a call of `encode` each."""
        sizes = [column.nbytes for column in table.columns]
        count = min(most, sum(sizes) // PART_BYTES)
        if count < 2 or self._has_uuids or self._shredded:
            return [slice(None)]
        ends, cuts = list(accumulate(sizes, initial=0)), set()
        for part in range(1, count):
            middle = ends[-1] * part / count
            cuts.add(min(range(1, len(sizes)), key=lambda end: abs(ends[end] - middle), default=len(sizes)))
        return [slice(start, end) for start, end in pairwise(sorted({0, *cuts, len(sizes)}))]

    def encode(self, table: pa.Table, columns: slice = slice(None)) -> list[Encoded]:
        """The row groups of a table, to be written by `append` once all their `columns` are `joined`; several threads
        may encode at the same time."""
        sink = pa.BufferOutputStream()
        stored, fields, schema = self._as_stored(table), self._fields, self._schema
        if columns != slice(None):
            chosen = list(range(len(fields))[columns])
            stored, fields, schema = (
                stored.select(chosen),
                fields[columns],
                pa.schema([schema.field(i) for i in chosen]),
            )
            table = stored
        writer = self._opened(sink, schema)
        writer.write_table(stored, row_group_size=self._group_rows(table))
        writer.close()
        content = sink.getvalue()
        file, view = File(pa.BufferReader(content), ""), memoryview(content)
        metadata, row_groups = file._file.metadata, file._footer.row_groups
        encoded = []
        for index, (start, rows) in enumerate(self._groups_of(table)):
            group = metadata.row_group(index)
            spans = (_span(group.column(column)) for column in range(group.num_columns))
            extra = statistics.beside_footer(table.slice(start, rows), fields, self._int96)
            encoded.append(Encoded(row_groups[index], tuple(view[start:end] for start, end in spans), extra))
        return encoded

    def _group_rows(self, table: pa.Table) -> int:
        return max(1, min(table.num_rows, GROUP_ROWS) if self._is_ordered else table.num_rows)

    def _groups_of(self, table: pa.Table) -> list[tuple[int, int]]:
        """(the first row, the number of rows) of each row group of a table."""
        rows = self._group_rows(table)
        return [(start, min(rows, table.num_rows - start)) for start in range(0, max(1, table.num_rows), rows)]

    def _as_stored(self, table: pa.Table) -> pa.Table:
        if self._has_uuids:
            given = zip(table.columns, self._fields, strict=True)
            columns = [casts.rebuilt(layouts.plain(column), field.type, _marked) for column, field in given]
            fields = [field.with_type(column.type) for field, column in zip(self._schema, columns, strict=True)]
            table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        for index, parts in self._shredded.items():
            chunks = [variant_shredding.shred(chunk, parts) for chunk in table.column(index).chunks]
            table = table.set_column(
                index, self._schema.field(index), pa.chunked_array(chunks, self._schema.types[index])
            )
        return table

    def copy(self, stored: Stored) -> None:
        """Copy a `copyable` row group of another file unchanged."""
        if (prefetch := getattr(stored.source, "prefetch", None)) is not None:
            prefetch(stored.spans)
        self.append((stored.chunk(*span) for span in stored.spans), stored.row_group, stored.extra)

    def append(self, chunks: Iterable[Any], row_group: bytes, extra: dict[int, ColumnStats]) -> None:
        """Write the pages of the columns of a row group, which Arrow does not know about, after those before it."""
        starts = []
        for chunk in chunks:
            starts.append(max(self._sink.tell(), len(_MAGIC)))
            self._sink.write_raw(chunk)
            self._copied_bytes += len(chunk)
        moved = parquet_footer.moved(row_group, starts)
        assert moved is not None, row_group
        self._groups.append(moved)
        self._extra.append(extra)

    def give_up(self) -> None:
        """Abandon the file; nothing more is written to it."""
        if self._writer is not None:
            self._writer.is_open = False

    def size(self) -> int:
        """Bytes written so far, without the footer."""
        return self._sink.tell()

    def close(self) -> tuple[dict[int, ColumnStats], tuple[int, ...]]:
        """(statistics by field id, offsets of the row groups); the sink stays open."""
        if self._writer is None:
            self._settings = self._settings_for(self._schema.empty_table())
        writer = self._writer or self._opened(self._sink, self._schema)
        self._sink.end = bytearray()
        writer.close()
        end, metadata = bytes(self._sink.end), writer.writer.metadata
        if self._copied_bytes:
            end = parquet_footer.spliced(end, self._groups)
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + end))
        variant = parquet_footer.VARIANT if self._task.encoding.options.get(VARIANTS) == "annotated" else b""
        marks = [
            mark
            for field, arrow_field in zip(self._fields, self._schema, strict=True)
            for mark in _marks(field.type, arrow_field.type, variant)
        ]
        if any(marks):
            end = parquet_footer.annotated(end, marks)
        counts = statistics.nan_counts(self._fields, self._extra, [_width(field.type) for field in self._schema])
        if any(counts) and len(counts) == metadata.num_row_groups:
            end = parquet_footer.counted(end, counts)
        self._sink.end = None
        self._sink.write(end)
        leaves = list(_leaf_ranges(self._schema).values())
        stats = statistics.from_footer(metadata, self._fields, leaves, self._extra)
        return stats, _split_offsets(metadata)

    def _shred(self, first: pa.Table) -> None:
        """Choose the shredded columns of variants by the first rows."""
        shredding = variant_shredding.options(self._task.encoding.options[SHREDDING])
        for index, field in enumerate(self._fields):
            if field.type == scalar(Kind.VARIANT):
                parts = shredding.parts(field.name, first.column(index))
                if parts != pa.null():
                    self._shredded[index] = parts
                    type = variant_shredding.stored(parts)
                    if self._task.encoding.options.get(VARIANTS) != "annotated":
                        type = variant_shredding.numbered(type)
                    self._schema = self._schema.set(index, self._schema.field(index).with_type(type))

    def _refuse_before_1970(self, table: pa.Table) -> None:
        """Raise for INT96 before 1970: Arrow before version 23 writes them with a negative time of day, which only
        Arrow can read."""
        for name in table.column_names:
            for chunk in table.column(name).chunks:
                if any((pc.min(leaf.view(pa.int64())).as_py() or 0) < 0 for leaf in _timestamps(chunk)):
                    raise UnsupportedFeature(
                        f"column {name}: TIMESTAMP(7) and finer before 1970 is written right by pyarrow 23 and later; "
                        f"this is {pa.__version__}"
                    )

    def _settings_for(self, first: pa.Table) -> dict[str, Any]:
        """What Arrow's writer is told, by the first rows."""
        task = self._task
        row_bytes = max(1, first.nbytes // max(1, first.num_rows))
        with self._refusing_options():
            page = int(task.encoding.options.get("parquet.page.size", 1 << 20))
            return {
                "compression": _codec(task.encoding.compression),
                "compression_level": _level(task.encoding),
                "use_dictionary": _dictionaries(first, self._schema, task.encoding.options),
                "use_deprecated_int96_timestamps": self._int96,
                "data_page_size": page,
                # Arrow checks a page's size only after so many rows.
                "write_batch_size": max(1, min(_PAGE_ROWS, page // row_bytes)),
                "dictionary_pagesize_limit": int(task.encoding.options.get("parquet.dictionary.page.size", 1 << 20)),
                "store_schema": False,
                "store_decimal_as_integer": True,
                "write_page_checksum": True,
                # Geometries have no order, so Parquet allows no bounds for them.
                "write_statistics": _ordered(task.fields, self._schema),
            }

    def _opened(self, sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
        with self._refusing_options():
            return pq.ParquetWriter(sink, schema, **self._settings)

    @contextmanager
    def _refusing_options(self) -> Iterator[None]:
        task = self._task
        try:
            yield
        except (ValueError, OSError) as error:
            raise InvalidInput(
                f"options of the table for Parquet, compression {task.encoding.compression!r}: {error}"
            ) from error


def joined(parts: Sequence[list[Encoded]]) -> list[Encoded]:
    """The row groups of a table whose columns were encoded in `parts`."""
    if len(parts) == 1:
        return parts[0]
    return [
        Encoded(
            parquet_footer.joined([part.row_group for part in group]),
            tuple(chunk for part in group for chunk in part.chunks),
            {id: stats for part in group for id, stats in part.extra.items()},
        )
        for group in zip(*parts, strict=True)
    ]


def _shreds(task: WriteTask) -> bool:
    return SHREDDING in task.encoding.options and any(field.type == scalar(Kind.VARIANT) for field in task.fields)


def _ordered(fields: tuple[Field, ...], schema: pa.Schema) -> bool | list[str]:
    """The leaves with bounds in a footer, if not all have them."""
    if not any(isinstance(field.type, Geo) for field in fields):
        return True
    return [
        leaf
        for field, arrow_field in zip(fields, schema, strict=True)
        if not isinstance(field.type, Geo)
        for leaf in _dotted(arrow_field)
    ]


def _dotted(arrow_field: pa.Field, above: str = "") -> list[str]:
    name = f"{above}{arrow_field.name}"
    match arrow_field.type:
        case pa.StructType() as parts:
            return [leaf for part in parts for leaf in _dotted(part, f"{name}.")]
        case pa.MapType() as pairs:
            return [
                leaf
                for role, part in (("key", pairs.key_field), ("value", pairs.item_field))
                for leaf in _dotted(part.with_name(role), f"{name}.key_value.")
            ]
        case pa.ListType() as items:
            return _dotted(items.value_field.with_name("element"), f"{name}.list.")
    return [name]


class _Ended:
    """A sink that withholds the end of a file, to add what Arrow does not write: the annotation of variants, without
    which other engines read rows; copied row groups; and counts of NaN."""

    closed = False

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._skips = False  # Whether to skip the magic that Arrow writes first: the file has it already.
        self.end: bytearray | None = None  # The withheld bytes, once withholding has begun.

    def write_raw(self, data: bytes) -> None:
        """Write bytes that Arrow does not know about, even before it has begun the file."""
        if not self._sink.tell():
            self._sink.write(_MAGIC)
            self._skips = True
        self._sink.write(data)

    def write(self, data: Any) -> int:
        if self.end is not None:
            self.end += data
        elif self._skips:
            assert len(data) == len(_MAGIC), len(data)
            self._skips = False
        else:
            return self._sink.write(data)
        return len(data)

    def tell(self) -> int:
        return self._sink.tell() + len(self.end or b"")

    def flush(self) -> None:
        pass


def _marks(type: Type, arrow_type: Any, variant: bytes) -> list[bytes]:
    """For each schema element of a type stored as `arrow_type`, in order, the logical type that Arrow does not write;
    `variant` is that of a variant."""
    match type:
        case Geo():
            return [parquet_footer.geo(type.text)]
        case Scalar(Kind.VARIANT):
            return [variant, *[b""] * (_elements(arrow_type) - 1)]
        case Row(parts):
            return [
                b"",
                *(
                    mark
                    for part, child in zip(parts, arrow_type, strict=True)
                    for mark in _marks(part.type, child.type, variant)
                ),
            ]
        case ListOf(element):
            return [b"", b"", *_marks(element.type, arrow_type.value_type, variant)]
        case MapOf(key, value):
            return [
                b"",
                b"",
                *_marks(key.type, arrow_type.key_type, variant),
                *_marks(value.type, arrow_type.item_type, variant),
            ]
        case MultisetOf(element):
            return [b"", b"", *_marks(element.type, arrow_type.key_type, variant), b""]
    return [b""]


def _elements(arrow_type: Any) -> int:
    """The number of schema elements of a type of structs and lists."""
    if isinstance(arrow_type, pa.StructType):
        return 1 + sum(_elements(field.type) for field in arrow_type)
    return 2 + _elements(arrow_type.value_type) if isinstance(arrow_type, pa.ListType) else 1


def _writes_int96(task: WriteTask) -> bool:
    return task.encoding.options.get(NANOS) != "int64" and _is_fine(task.fields)


@lru_cache(maxsize=64)
def _is_fine(fields: tuple[Field, ...]) -> bool:
    """Whether some timestamps have more than 6 digits."""
    return any(_digits(field.type) > 6 for field in walk(fields))


@lru_cache(maxsize=64)
def _holds(fields: tuple[Field, ...], kind: Kind) -> bool:
    return any(field.type == scalar(kind) for field in walk(fields))


@lru_cache(maxsize=64)
def _file_schema(fields: tuple[Field, ...]) -> pa.Schema:
    return pa.schema([_file_field(field, field.name) for field in fields])


@lru_cache(maxsize=64)
def _empty_footer(fields: tuple[Field, ...], options: frozenset[tuple[str, str]]) -> parquet_footer.Footer:
    """The footer of a file without rows, whatever its codec; `options` as in `WriteTask`."""
    made = io.BytesIO()
    Output(made, WriteTask(fields, lambda *_: "", encoding=Encoding(options=dict(options)))).close()
    footer = made.getvalue()[len(_MAGIC) : -8]
    return parquet_footer.parse(footer, "a file without rows")


def plain_timestamps(source: Any, fields: tuple[Field, ...]) -> bool:
    """Whether the timestamps in the columns `fields` (by name) are stored as their types say: 64 bits, with a zone only
    if they have one.

    Older Paimon marked all timestamps as instants, and INT96 has no such mark.
    """
    with pq.ParquetFile(source) as file:
        schema, stored = file.metadata.schema, file.schema_arrow
        if _has_int96(schema):
            return False
        there = {field.name: field.type for field in stored}
        return all(
            _zones(there[field.name]) == _zones(_file_type(field.type)) for field in fields if field.name in there
        )


def _zones(type: pa.DataType) -> list[str | None]:
    if pa.types.is_timestamp(type):
        return [type.tz]
    return [zone for i in range(type.num_fields) for zone in _zones(type.field(i).type)]


@latest
def _is_flat(schema: pa.Schema) -> bool:
    """Whether no column is nested."""
    return not any(type.num_fields for type in schema.types)


@latest
def _own_fields(schema: pa.Schema) -> tuple[Field, ...]:
    return tuple(map(_own_field, schema))


@latest
def _most_digits(fields: tuple[Field, ...]) -> int:
    """The digits of the finest timestamp; -1 without one."""
    return max((_digits(field.type) for field in walk(fields)), default=-1)


def present(fields: tuple[Field, ...], arrow_fields: Iterable[pa.Field]) -> tuple[Field, ...]:
    """Those of `fields`, with their parts, that a file with the columns `arrow_fields` has, matched by name."""
    by_name = {arrow_field.name: arrow_field for arrow_field in arrow_fields}
    return tuple(
        _retyped(field, _present_type(field.type, by_name[field.name].type))
        for field in fields
        if field.name in by_name
    )


_present = latest(present)


def _present_type(type: Type, arrow_type: pa.DataType) -> Type:
    match type:
        case Row(parts) if pa.types.is_struct(arrow_type):
            return Row(present(parts, list(arrow_type)))
        case ListOf(element) if pa.types.is_list(arrow_type):
            return ListOf(_retyped(element, _present_type(element.type, arrow_type.value_type)))
        case MapOf(key, value) if pa.types.is_map(arrow_type):
            return MapOf(
                _retyped(key, _present_type(key.type, arrow_type.key_type)),
                _retyped(value, _present_type(value.type, arrow_type.item_type)),
            )
        case MultisetOf(element) if pa.types.is_map(arrow_type):
            return MultisetOf(_retyped(element, _present_type(element.type, arrow_type.key_type)))
        case _:
            return type


def _retyped(field: Field, type: Type) -> Field:
    return field if type is field.type else Field(field.id, field.name, type, field.nullable)


def _own_field(arrow_field: pa.Field) -> Field:
    try:
        return Field(
            int((arrow_field.metadata or {}).get(_ID, NO_ID)),
            arrow_field.name,
            _own_type(arrow_field.type),
            arrow_field.nullable,
        )
    except UnsupportedFeature:
        return Field(NO_ID, arrow_field.name, Scalar(Kind.VARIANT), arrow_field.nullable)


def _own_type(arrow_type: pa.DataType) -> Type:
    if pa.types.is_struct(arrow_type):
        return Row(tuple(_own_field(field) for field in arrow_type))
    if pa.types.is_list(arrow_type):
        return ListOf(_own_field(arrow_type.value_field))
    if pa.types.is_map(arrow_type):
        return MapOf(_own_field(arrow_type.key_field), _own_field(arrow_type.item_field))
    return from_arrow(arrow_type)


@latest
def _leaves_below(arrow_schema: pa.Schema, fields: tuple[Field, ...]) -> list[int]:
    """The indexes of the leaf columns below `fields`."""
    by_name = {field.name: field for field in fields}
    leaves: list[int] = []
    index = 0
    for column in arrow_schema:
        width = _width(column.type) if column.type.num_fields else 1
        if column.name in by_name:
            if width == 1:
                leaves.append(index)
            else:
                _leaves(column.type, by_name[column.name].type, index, leaves)
        index += width
    return leaves


def _leaves(arrow_type: pa.DataType, type: Type, index: int, leaves: list[int]) -> None:
    if pa.types.is_struct(arrow_type) and isinstance(type, Row):
        by_name = {part.name: part for part in type.fields}
        for field in arrow_type:
            if field.name in by_name:
                _leaves(field.type, by_name[field.name].type, index, leaves)
            index += _width(field.type)
    elif pa.types.is_list(arrow_type) and isinstance(type, ListOf):
        _leaves(arrow_type.value_type, type.element.type, index, leaves)
    elif pa.types.is_map(arrow_type) and isinstance(type, MapOf):
        _leaves(arrow_type.key_type, type.key.type, index, leaves)
        _leaves(arrow_type.item_type, type.value.type, index + _width(arrow_type.key_type), leaves)
    else:
        leaves.extend(range(index, index + _width(arrow_type)))


def _leaf_ranges(arrow_schema: pa.Schema) -> dict[str, range]:
    """The indexes of the leaf columns of each column of a file."""
    ends = accumulate(_width(field.type) for field in arrow_schema)
    return {f.name: range(end - _width(f.type), end) for f, end in zip(arrow_schema, ends, strict=True)}


def _width(arrow_type: pa.DataType) -> int:
    if pa.types.is_struct(arrow_type):
        return sum(_width(field.type) for field in arrow_type)
    if pa.types.is_list(arrow_type):
        return _width(arrow_type.value_type)
    if pa.types.is_map(arrow_type):
        return _width(arrow_type.key_type) + _width(arrow_type.item_type)
    return 1


def _is_common(type: Scalar) -> bool:
    if type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ):
        return _digits(type) == 6
    return type.kind in _COMMON


def _has_int96(schema: pq.ParquetSchema) -> bool:
    return any(schema.column(i).physical_type == "INT96" for i in range(len(schema)))


def _timestamps(array: Any) -> Iterator[pa.Array]:
    """The timestamps in a column, at any depth."""
    if pa.types.is_timestamp(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for i in range(array.type.num_fields):
            yield from _timestamps(array.field(i))
    elif pa.types.is_map(array.type):
        yield from _timestamps(array.keys)
        yield from _timestamps(array.items)
    elif pa.types.is_list(array.type):
        yield from _timestamps(array.values)


def _digits(type: Type) -> int:
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            return digits
        case _:
            return -1


def _file_field(field: Field, name: str, nullable: bool | None = None) -> pa.Field:
    metadata = {_ID: str(field.id).encode()} if field.id >= 0 else None
    return pa.field(name, _file_type(field.type), field.nullable if nullable is None else nullable, metadata)


def _file_type(type: Type) -> pa.DataType:
    match type:
        case Scalar(Kind.UUID):
            return pa.uuid()
        case Row(parts):
            return pa.struct([_file_field(part, part.name) for part in parts])
        case ListOf(element):
            return pa.list_(_file_field(element, "element"))
        case MapOf(key, value):
            return pa.map_(_file_field(key, "key", nullable=False), _file_field(value, "value"))
        case MultisetOf(element):
            return pa.map_(_file_field(element, "key", nullable=False), pa.field("value", pa.int32(), nullable=False))
        case _:
            return to_arrow(type)


def _marked(array: pa.Array, type: Type) -> pa.Array:
    """UUID columns marked as such."""
    return pa.ExtensionArray.from_storage(pa.uuid(), array) if type == Scalar(Kind.UUID) else array


def _codec(name: str) -> str:
    known = {"uncompressed": "none", "none": "none"}
    return known.get(name.lower(), name.lower())


def _level(encoding: Encoding) -> int | None:
    codec, level = encoding.compression.lower(), encoding.compression_level
    if codec not in ("zstd", "gzip", "brotli"):
        return None
    return 1 if level is None and codec == "zstd" else level


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    return {"true": True, "false": False}.get(options.get(name, "").lower(), default)


def _dictionaries(first: pa.Table, schema: pa.Schema, options: Mapping[str, str]) -> list[str] | bool:
    """The leaf columns whose values repeat often enough for a dictionary, judged by some of the first rows.

    Arrow abandons a dictionary only when it is full; one without repetitions makes files larger and readers slower.
    """
    if not _flag(options, "parquet.enable.dictionary", True):
        return False
    chosen = []
    step = max(1, first.num_rows // _SAMPLES)
    rows = min(step, _SAMPLE_ROWS // _SAMPLES)
    some = first
    if step > 1:
        some = pa.concat_tables([first.slice(start, rows) for start in range(0, first.num_rows, step)])
    for index, field in enumerate(schema):
        if not pa.types.is_nested(field.type):
            sample = some.column(index)
            sample = sample.drop_null() if sample.null_count else sample
            distinct = pc.count_distinct(sample).as_py()
            value_bytes = sample.nbytes / max(1, len(sample))
            if distinct * value_bytes + len(sample) * distinct.bit_length() / 8 > len(sample) * value_bytes:
                continue
        chosen += _leaf_paths(field.type, field.name)
    return chosen


def _leaf_paths(type: pa.DataType, path: str) -> list[str]:
    if pa.types.is_struct(type):
        return [leaf for field in type for leaf in _leaf_paths(field.type, f"{path}.{field.name}")]
    if pa.types.is_list(type):
        return _leaf_paths(type.value_type, f"{path}.list.element")
    if pa.types.is_map(type):
        keys = _leaf_paths(type.key_type, f"{path}.key_value.key")
        return keys + _leaf_paths(type.item_type, f"{path}.key_value.value")
    return [path]


def _split_offsets(metadata: pq.FileMetaData) -> tuple[int, ...]:
    return tuple(_span(metadata.row_group(i).column(0))[0] for i in range(metadata.num_row_groups))


def _span(chunk: Any) -> tuple[int, int]:
    """The start and end of a column chunk's bytes."""
    start = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
    return start, start + chunk.total_compressed_size
