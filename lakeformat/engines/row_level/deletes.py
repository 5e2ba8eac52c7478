"""Delete files -> the deleted rows of a data file. Their contents are in the cache of the store, if it has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from lakeformat.codec import bitmap, numbers
from lakeformat.codec.arrow import to_arrow
from lakeformat.engines.files import formats
from lakeformat.engines.kernels import casts
from lakeformat.engines.kernels.rows import KeySet
from lakeformat.errors import CorruptFile, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import NO_ID, Field, walk
from lakeformat.model.work import Content, DeleteFile
from lakeformat.storage.cache import Cache, Sized, WithCache, cache_of
from lakeformat.storage.store import Reader, Store

# The columns of a position delete file, by their reserved ids (Iceberg); without ids, by their names.
PATH_ID, POSITION_ID = 2147483546, 2147483545

S = TypeVar("S", bound=Reader)
T = TypeVar("T", bound=Sized)

_NONE = np.array([], np.int64)
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The deleted rows of one data file: at `positions`, ascending and unique, or equal to one of `keys`."""

    positions: np.ndarray
    keys: tuple[KeySet, ...] = ()


NOTHING = DeletedRows(_NONE)  # For a file without delete files.


def deleted_rows(store: Reader, path: str, deletes: Sequence[DeleteFile]) -> DeletedRows:
    """The rows of the data file `path` that `deletes` remove.
    Raises `CorruptFile` for a missing or damaged delete file."""
    return DeletedRows(positions(store, path, deletes), _keys(store, deletes))


def listed(store: Reader, file: DeleteFile) -> pa.Table:
    """The deleted rows in a position delete file or deletion vector: `file_path` (null in a vector, which is of one
    data file) and `pos`, ascending per file."""
    loaded = _loaded(store, file)
    if isinstance(loaded, _Vector):
        paths = pa.nulls(len(loaded.values), pa.string())
    else:
        codes = np.repeat(np.arange(len(loaded.paths)), np.diff(loaded.starts))
        paths = pa.array(list(loaded.paths), pa.string()).take(pa.array(codes))
    return pa.table({"file_path": paths, "pos": pa.array(loaded.values, pa.int64())})


def load(store: S, files: Collection[DeleteFile]) -> S:
    """The store to read rows with: it has these delete files, which are read together, in its cache. A store without a
    cache gets one, for as long as the result is referred to."""
    kept = cache_of(store)
    if kept is None or not kept.limit_bytes:
        store = cast(S, WithCache(cast(Store, store), Cache(), 0))
    if len(files) > 1:
        for _ in store.several(partial(_loaded, store), files):
            pass
    return store


def _loaded(store: Reader, file: DeleteFile) -> Any:
    return _cached(store, (_name(store, file), file.fields), lambda: _read(store, file, _READ[file.content]))


def _cached(store: Reader, key: tuple[Any, ...], make: Callable[[], T]) -> T:
    cache = cache_of(store)
    return make() if cache is None else cache.get_or_make(("deletes", *key), make)


def positions(store: Reader, path: str, deletes: Sequence[DeleteFile]) -> np.ndarray:
    """The positions in the data file `path` that `deletes` contain, ascending and unique."""
    parts = []
    for delete in deletes:
        if delete.content is not Content.EQUALITY_DELETES:
            parts.append(_loaded(store, delete).positions_in(path))
    if len(parts) < 2:
        return parts[0] if parts else _NONE
    return numbers.distinct(np.concatenate(parts))


def _keys(store: Reader, deletes: Sequence[DeleteFile]) -> tuple[KeySet, ...]:
    """One set for all files that compare the same columns."""
    groups: dict[tuple[Field, ...], list[DeleteFile]] = {}
    for delete in deletes:
        if delete.content is Content.EQUALITY_DELETES:
            groups.setdefault(delete.fields, []).append(delete)
    return tuple(_key_set(store, fields, files) for fields, files in groups.items())


def _key_set(store: Reader, fields: tuple[Field, ...], files: Sequence[DeleteFile]) -> KeySet:
    def make() -> KeySet:
        table = pa.concat_tables([_loaded(store, file) for file in files])
        return KeySet(fields, [column.combine_chunks() for column in table.columns])

    return _cached(store, (fields, *(_name(store, file) for file in files)), make)


@dataclass(frozen=True, slots=True)
class _Positions:
    """Positions by the data file they are in: those of `paths[i]` are `values[starts[i] : starts[i + 1]]`,
    ascending."""

    paths: dict[str, int]
    starts: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + 200 * len(self.paths)

    def positions_in(self, path: str) -> np.ndarray:
        index = self.paths.get(path)
        return _NONE if index is None else self.values[self.starts[index] : self.starts[index + 1]]


@dataclass(frozen=True, slots=True)
class _Vector:
    """The positions of one data file, whatever its path."""

    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)

    def positions_in(self, path: str) -> np.ndarray:
        return self.values


def _read_vector(store: Reader, file: DeleteFile) -> _Vector:
    offset, size = file.offset or 0, file.size_bytes
    with formats.plain(store, file.path, file.key) as source:
        source.seek(offset)
        data = source.read() if size is None else source.read(size)
    rows = bitmap.decode(bitmap.framed(data), f"{file.path} at {offset}")
    if file.row_count is not None and len(rows) != file.row_count:
        raise CorruptFile(f"{file.path} at {offset}: a vector of {len(rows)} rows, its table says {file.row_count}")
    return _Vector(rows)


def _read_positions(store: Reader, file: DeleteFile) -> _Positions:
    opened = formats.opened(store, file.path, file.file_format, key=file.key)
    stored = opened.fields(None)
    has_ids = any(field.id != NO_ID for field in stored)
    columns = {(field.id if has_ids else field.name): field for field in stored}
    keys = (PATH_ID, POSITION_ID) if has_ids else ("file_path", "pos")
    if not columns.keys() >= set(keys):
        raise CorruptFile(f"{file.path}: no position delete file; its columns are {[field.name for field in stored]}")
    needed = tuple(columns[key] for key in keys)
    schema = pa.schema([(needed[0].name, pa.string()), (needed[1].name, pa.int64())])
    batches = [batch.select(schema.names).cast(schema) for _, batch in opened.batches(needed, None, _BATCH_ROWS)]
    table = pa.Table.from_batches(batches, schema)
    if file.file_format == "avro" and table.num_rows < (file.row_count or 0):  # Without a footer, a cut may not show.
        raise CorruptFile(f"{file.path}: it ends after {table.num_rows} deletes, its table says {file.row_count}")
    paths = table.column(0).combine_chunks().dictionary_encode()
    values = table.column(1).combine_chunks()
    if paths.null_count or values.null_count:
        raise CorruptFile(f"{file.path}: position deletes without a file or a position")
    codes, places = np.asarray(paths.indices), np.asarray(values)
    if len(paths.dictionary) > 1 or not (places[1:] > places[:-1]).all():
        order = np.lexsort((places, codes))
        codes, places = codes[order], places[order]
        once = np.ones(len(codes), bool)
        once[1:] = (codes[1:] != codes[:-1]) | (places[1:] != places[:-1])
        codes, places = codes[once], places[once]
    starts = np.searchsorted(codes, np.arange(len(paths.dictionary) + 1))
    return _Positions({name: i for i, name in enumerate(paths.dictionary.to_pylist())}, starts, places)


def _read_keys(store: Reader, file: DeleteFile) -> pa.Table:
    """The compared columns, with the table's current types."""
    with_ids = formats.opened(store, file.path, file.file_format, key=file.key)
    in_file = {field.id: field for field in with_ids.fields(None)}
    stored_ids = {field.id for field in walk(tuple(in_file.values()))}
    lost = [part.name for part in walk(file.fields) if part.id not in stored_ids]
    if lost and stored_ids == {NO_ID}:
        raise UnsupportedFeature(
            f"{file.path}: equality deletes without field ids: not supported; "
            "let the engine that wrote them rewrite the data files"
        )
    if lost:
        raise CorruptFile(f"{file.path}: equality deletes by column {lost[0]!r}, which the file does not hold")
    needed = tuple(in_file[field.id] for field in file.fields)
    read = tuple(dict.fromkeys(needed))
    columns: list[list[pa.Array]] = [[] for _ in file.fields]
    for _, batch in with_ids.batches(read, None, _BATCH_ROWS):
        for field, have, into in zip(file.fields, needed, columns, strict=True):
            array = casts.project(batch.column(have.name), have.type, field.type, field.name)
            into.append(casts.innermost(array))
    schema = [casts.innermost(casts.nulls(0, to_arrow(field.type))) for field in file.fields]
    return pa.table(
        [pa.chunked_array([*into, empty]) for into, empty in zip(columns, schema, strict=True)],
        names=[field.name for field in file.fields],
    )


def _name(store: Reader, file: DeleteFile) -> tuple[str, int | None]:
    return store.location(file.path), file.offset


def _read(store: Reader, file: DeleteFile, read: Callable[[Reader, DeleteFile], Any]) -> Any:
    with formats.blamed(file.path, "delete file"):
        return read(store, file)


_READ = {
    Content.DELETION_VECTORS: _read_vector,
    Content.POSITION_DELETES: _read_positions,
    Content.EQUALITY_DELETES: _read_keys,
}
