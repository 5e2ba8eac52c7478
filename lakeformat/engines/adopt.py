"""add_files: check an existing Parquet file against the table's columns, and find its statistics and partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakeformat import clock
from lakeformat.codec import plain_values
from lakeformat.codec.arrow import to_arrow
from lakeformat.engines import worker
from lakeformat.engines.files import parquet, statistics
from lakeformat.engines.files.formats import opened
from lakeformat.engines.kernels import casts
from lakeformat.errors import InvalidInput, LakeError, NoSuchFile, NotFound
from lakeformat.expression import transform
from lakeformat.model.partition import PartitionField, TransformKind
from lakeformat.model.schema import NO_ID, Field, Kind, ListOf, MapOf, Row, Scalar, Type, children, find_field
from lakeformat.model.work import Adopted, AdoptTask, ColumnStats, WrittenFile
from lakeformat.storage.store import Reader

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"  # Hive's name of the partition of null.

_LONG = 64  # Writers truncate bounds of texts from this length on.
_WHOLE = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_NUMBERS = (*_WHOLE, Kind.DOUBLE, Kind.DECIMAL)
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


def adopt(store: Reader, task: AdoptTask) -> Adopted:
    """The file as one of the table; see `Adopted` and `AdoptTask.has_schema`. Raises `NotFound`, and `InvalidInput` for
    a file that is no Parquet, for columns that do not fit the table's, and for an unknown partition."""
    try:
        file: parquet.File = opened(store, task.path, "parquet")
    except NoSuchFile as error:
        raise NotFound(f"{task.path}: there is no such file") from error
    except LakeError:
        raise
    except Exception as error:
        if task.has_schema:
            return Adopted(None, refused=str(error))
        raise InvalidInput(f"{task.path}: no Parquet file that can be read: {error}") from error
    try:
        return _File(task, file).adopted()
    except InvalidInput as error:
        if task.has_schema:
            return Adopted(None, refused=str(error))
        raise


class _File:
    """A file, and what the table requires of it."""

    def __init__(self, task: AdoptTask, file: parquet.File) -> None:
        self._task, self._file = task, file
        fields = file.fields(None)
        self._has_ids = any(field.id != NO_ID for field in fields)
        self._fields = fields if self._has_ids else worker.identified(fields, task.mapping, task.positions)
        if task.has_schema:  # Columns that the table has dropped are not part of its schema.
            known = {field.id for field in task.layout.fields}
            self._fields = tuple(field for field in self._fields if field.id in known)
        strange = (
            [field.name for field in fields if field.id == NO_ID] if self._has_ids else _lost(fields, self._fields)
        )
        if file.untyped:
            raise self._wrong(f"column {file.untyped[0]!r} holds nulls and has no type; cast it and write it again")
        if strange:
            raise self._wrong(
                f"column {strange[0]!r} is not in the table, which has "
                f"{', '.join(f.name for f in task.layout.fields)}; add it to the table first (alter().add_column)"
            )

    def adopted(self) -> Adopted:
        layout, rows = self._task.layout, self._file.row_count
        footer = self._file.statistics(self._fields)
        self._check(footer)
        if not rows:
            return Adopted(None, self._has_ids)
        wanted = {field.id: field for field in layout.fields}
        stats = {field.id: _as(footer[field.id], field, wanted[field.id]) for field in self._fields}
        written = WrittenFile(
            path=self._task.path,
            partition=self._partition(stats),
            row_count=rows,
            size_bytes=self._file.size_bytes,
            stats=statistics.trim(stats, layout.fields, layout.stats),
            split_offsets=self._file.split_offsets,
            created_ms=clock.now_ms(),
        )
        return Adopted(written, self._has_ids, self._own_fields() if self._task.has_schema else ())

    def _own_fields(self) -> tuple[Field, ...]:
        """The table's columns that the file has, in the table's order, with the file's names and types."""
        in_file = {field.id: field for field in self._fields}
        return tuple(
            replace(
                field,
                name=in_file[field.id].name,
                type=in_file[field.id].type if isinstance(field.type, Scalar) else field.type,
            )
            for field in self._task.layout.fields
            if field.id in in_file
        )

    def _check(self, footer: Mapping[int, ColumnStats]) -> None:
        """Whether the table could have written these columns."""
        table_fields = {field.id: field for field in self._task.layout.fields}
        names = {entry.id: entry.names for entry in self._task.mapping}
        for stored in self._fields:
            column = table_fields.get(stored.id)
            is_known = column is not None and self._task.has_schema and (self._has_ids or bool(self._task.positions))
            if column is None or not (is_known or stored.name in (column.name, *names.get(stored.id, ()))):
                known = f"which is the table's {column.name!r}" if column else "which the table does not know"
                raise self._wrong(
                    f"column {stored.name!r} has the field id {stored.id}, {known}: it was written for another table; "
                    "write it without field ids, or append its rows"
                )
            self._fits(stored, column, stored.name)
            nulls = footer[stored.id].null_count
            if not column.nullable and nulls != 0 and self._file.row_count:
                counted = "nulls, or its footer does not count them" if nulls is None else f"{nulls} nulls"
                raise self._wrong(
                    f"column {stored.name!r} holds {counted}, and the table requires a value in each row; append its "
                    "rows"
                )
        in_file = {field.id for field in self._fields}
        here = {p.source for p in self._task.layout.partition_by if p.transform.kind is TransformKind.IDENTITY}
        for field in self._task.layout.fields:
            if not field.nullable and field.id not in in_file and field.name not in here:
                raise self._wrong(f"it has no column {field.name!r}, and the table requires a value in each row")
            if self._task.has_schema and field.id not in in_file and (field.initial is not None or field.name in here):
                raise self._wrong(f"there is no column {field.name!r}, of which its rows have values")

    def _fits(self, file_field: Field, table_field: Field, name: str) -> None:
        """Raise `InvalidInput` for a column, or a field of one, whose type cannot be read as the table's."""
        match file_field.type, table_field.type:
            case Row(parts), Row(table_parts):
                by_id = {field.id: field for field in table_parts}
                for inner in parts:
                    if inner.id not in by_id or (self._task.has_schema and inner.name != by_id[inner.id].name):
                        raise self._wrong(
                            f"{name}.{inner.name} is not a part of the table's column {table_field.name!r}"
                        )
                    self._part(inner, by_id[inner.id], f"{name}.{inner.name}")
                for field in table_parts:
                    may_lack = field.nullable and not self._task.has_schema
                    if not may_lack and field.id not in {part.id for part in parts}:
                        raise self._wrong(f"there is no {name}.{field.name}, which the table requires a value of")
            case (ListOf(), ListOf()) | (MapOf(), MapOf()):
                for child, part in zip(children(file_field.type), children(table_field.type), strict=True):
                    self._part(child, part, f"{name}.{part.name}")
            case Scalar(), Scalar() if self._task.has_schema:
                if not self._has_type(file_field, table_field):
                    raise self._wrong(
                        f"column {name!r} is {file_field.type}, which is not a type that a schema has for such files"
                    )
            case Scalar(), Scalar() if _reads_as(file_field.type, table_field.type) or self._is_int96(
                file_field.type, table_field.type
            ):
                pass
            case _:
                raise self._wrong(
                    f"column {name!r} is {file_field.type}, the table's is {table_field.type}; "
                    "cast it and write it again"
                )

    def _is_int96(self, file_type: Scalar, table_type: Scalar) -> bool:
        """Whether it is Spark's or Hive's form of a timestamp, which has no mark of its zone and more digits."""
        is_nanoseconds = file_type == Scalar(Kind.TIMESTAMP, (9,))
        return (
            is_nanoseconds and table_type.kind in _INSTANTS and table_type.parameters <= (6,) and self._file.has_int96
        )

    def _has_type(self, file_field: Field, table_field: Field) -> bool:
        """Whether a schema of the file's own can describe its type: the table's type, or for a number column a narrower
        one."""
        assert isinstance(file_field.type, Scalar), file_field
        assert isinstance(table_field.type, Scalar), table_field
        if file_field.type.kind is Kind.BINARY or (
            file_field.type.kind in _INSTANTS and file_field.type.parameters > (6,)
        ):
            # Engines differ on bytes of a fixed length and on nanoseconds.
            return False
        is_column = any(field is file_field for field in self._fields)
        is_number = is_column and table_field.type.kind in _NUMBERS
        return file_field.type == table_field.type or (is_number and _reads_as(file_field.type, table_field.type))

    def _part(self, file_field: Field, table_field: Field, name: str) -> None:
        self._fits(file_field, table_field, name)
        if file_field.nullable and not table_field.nullable:
            raise self._wrong(f"{name} may be null, and the table requires a value; append its rows")

    def _partition(self, stats: Mapping[int, ColumnStats]) -> tuple[Any, ...]:
        layout = self._task.layout
        partition, shown = dict(self._task.partition), folders(self._task.path)
        identical = {p.source: p.name for p in layout.partition_by if p.transform.kind is TransformKind.IDENTITY}
        partition_values: list[Any] = []
        for by in layout.partition_by:
            source = find_field(layout.fields, by.source)
            if by.transform.kind is TransformKind.VOID:
                partition_values.append(None)
                continue
            if source.id in stats:
                values = self._ends(source, stats[source.id], by)
                if source.name in partition and not values.equals(
                    pa.repeat(_value(source, partition[source.name])[0], len(values))
                ):
                    raise self._wrong(
                        f"partition={partition!r}, and column {source.name!r} holds {values[0].as_py()!r}; "
                        "leave it to the file"
                    )
            elif source.name in identical and (source.name in partition or source.name in shown):
                values = _value(source, partition[source.name] if source.name in partition else shown[source.name])
            else:
                raise self._wrong(
                    f"the table is partitioned by {by.transform}({by.source}), and the file has no column {by.source!r}"
                    + (
                        f", nor a folder {by.source}=...: say partition={{{by.source!r}: ...}}"
                        if source.name in identical
                        else "; append its rows"
                    )
                )
            if not source.nullable and values.null_count:
                raise self._wrong(f"its partition has null in {source.name!r}, which the table requires a value of")
            partition_values.append(self._one(values, source, by))
        return tuple(partition_values)

    def _ends(self, source: Field, stats: ColumnStats, by: PartitionField) -> pa.Array:
        """The smallest and largest value, and a null if there is one. The column is read if the footer lacks them."""
        texts = [v for v in (stats.minimum, stats.maximum) if isinstance(v, str | bytes)]
        floats = isinstance(source.type, Scalar) and source.type.kind in (Kind.FLOAT, Kind.DOUBLE)
        nulls = stats.null_count
        empty = nulls is not None and nulls == self._file.row_count
        if (
            nulls is None
            or floats
            or (not empty and None in (stats.minimum, stats.maximum))
            or any(len(t) >= _LONG for t in texts)
        ):
            return self._read(source)
        values = [] if empty else [stats.minimum, stats.maximum]
        return plain_values.column([*values, *([None] if nulls else [])], source.type)

    def _read(self, source: Field) -> pa.Array:
        """The distinct values of a column."""
        stored = next(field for field in self._fields if field.id == source.id)
        values: pa.Array = pa.array([], to_arrow(source.type))
        for _, batch in self._file.batches((stored,), None, worker.BATCH_ROWS):
            column = casts.project(batch.column(0), stored.type, source.type, source.name)
            values = pa.concat_arrays([values, column]).unique()
        return values

    def _one(self, values: pa.Array, source: Field, by: PartitionField) -> Any:
        """The only partition of `values`; for a transform that keeps no order, all must be equal."""
        ordered = by.transform.kind is not TransformKind.BUCKET
        partitions = transform.apply(by.transform, values if ordered else values.unique(), source.type).unique()
        if len(partitions) > 1 or (not ordered and len(values.unique()) > 1):
            shown = " to ".join(repr(value.as_py()) for value in values[:2])
            raise self._wrong(
                f"its rows are in more than one partition of {by.transform}({by.source}), or may be: {source.name!r} "
                f"holds {shown}{' and nulls' if values.null_count else ''}; append its rows"
            )
        return worker.partition_value(partitions[0])

    def _wrong(self, problem: str) -> InvalidInput:
        return InvalidInput(f"add_files: {self._task.path}: {problem}. Nothing was changed")


def folders(path: str) -> dict[str, str | None]:
    """`name=value` for each folder of a path, in Hive's naming."""
    parts = [part.partition("=") for part in path.split("/")[:-1] if "=" in part]
    return {unquote(name): None if value == NULL_FOLDER else unquote(value) for name, _, value in parts}


def _lost(fields: Sequence[Field], file_fields: Sequence[Field]) -> list[str]:
    """The columns and fields of `fields` that `file_fields` lacks."""
    by_name = {file_field.name: file_field for file_field in file_fields}
    lost = [field.name for field in fields if field.name not in by_name]
    for field in fields:
        if field.name in by_name:
            inside = children(by_name[field.name].type)
            lost += [f"{field.name}.{name}" for name in _lost(children(field.type), inside)]
    return lost


def _value(source: Field, value: Any) -> pa.Array:
    """One value of a column; text is parsed as the column's type."""
    target = to_arrow(source.type)
    try:
        if isinstance(value, str) and not pa.types.is_binary(target):
            return pa.array([value]).cast(target)
        return pa.array([value.encode() if isinstance(value, str) else value], target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"add_files: partition {source.name}={value!r} is not a valid {source.type}: {error}"
        ) from error


def _reads_as(file_type: Type, table_type: Type) -> bool:
    """Whether every reader of the format can read values of one type as the other."""
    if file_type == table_type:
        return True
    match file_type, table_type:
        case Scalar(have), Scalar(want) if have in _WHOLE and want in _WHOLE:
            return _WHOLE.index(have) <= _WHOLE.index(want)
        case Scalar(Kind.FLOAT), Scalar(Kind.DOUBLE):
            return True
        case Scalar(Kind.DECIMAL, (precision, scale)), Scalar(Kind.DECIMAL, (wider, same)):
            return scale == same and precision <= wider
        case Scalar(Kind.BINARY, (16,)), Scalar(Kind.UUID):
            return True
        case Scalar(Kind.BINARY, (have,)), Scalar(Kind.FIXED, (want,)):
            return have == want
        case Scalar(have, (digits,)), Scalar(want, (six,)) if have == want and have in _INSTANTS:
            return digits <= six
    return False


def _as(stats: ColumnStats, file_field: Field, table_field: Field) -> ColumnStats:
    """The footer's statistics as values of the table's type."""
    if (
        file_field.type == table_field.type
        or not isinstance(file_field.type, Scalar)
        or stats.minimum is None
        or stats.maximum is None
    ):
        return stats
    ends = casts.project(
        plain_values.column([stats.minimum, stats.maximum], file_field.type),
        file_field.type,
        table_field.type,
        file_field.name,
    )
    low, high = (worker.partition_value(end) for end in ends)
    return replace(stats, minimum=low, maximum=high)
