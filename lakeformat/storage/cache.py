"""The cache of a Lake: decoded metadata files and delete files, bounded by memory."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum, auto
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa

from lakeformat.model.dataclass import dataclass
from lakeformat.model.work import FileKey
from lakeformat.storage.catalogued import Catalogued, files_of
from lakeformat.storage.store import ForwardingReader, ForwardingStore, Reader, Store

CACHE_BYTES = 512 << 20
REMEMBERED_BYTES = 1 << 20
TOGETHER_BYTES = 256 << 10  # Bytes of files that are parsed together.
_PART = "#part"  # Suffix of the path of a file of which only some columns are cached.
ROW_BYTES = 100  # The least that a row of a metadata file takes.
_MARKS_BYTES = 1 << 10  # About what a file's name and the names of some columns take.
TABLE_BYTES = 32 << 10  # About what an empty Arrow table takes.


LARGE_BYTES = 16 << 20  # Bytes of manifests that are planned together: some 360,000 entries.
PART_BYTES = 1 << 20  # Bytes of a manifest, on average, from which on decoding only what a plan needs is worth it.


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Z = TypeVar("Z", bound=Sized)


class Cache:
    """Decoded files by table and path; beyond `limit_bytes` the least recently used are dropped. Only for files whose
    names are never reused. It also has the contents of delete files, which columns of data files were found undamaged,
    and the long lists of documents that were written. A copy in another process starts empty."""

    def __init__(self, limit_bytes: int = CACHE_BYTES, id: str | None = None) -> None:
        self.limit_bytes, self.id = limit_bytes, id or uuid.uuid4().hex  # A copy has the id of its original.
        self._size, self._lock = 0, threading.Lock()
        self._entries: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()  # Each with its bytes.

    def __reduce__(self) -> tuple[type[Cache], tuple[int, str]]:
        return Cache, (self.limit_bytes, self.id)

    def get(self, root: str, path: str) -> pa.Table | None:
        return self._get((root, path))

    def get_or_make(self, key: tuple[Any, ...], make: Callable[[], Z]) -> Z:
        """What `make` made for this key."""
        cached = self._get(key)
        if cached is not None:
            return cast(Z, cached)
        value = make()
        with self._lock:
            if key not in self._entries:
                self._insert(key, value, value.nbytes + _MARKS_BYTES)
        return value

    def add(self, root: str, path: str, table: pa.Table, size_bytes: int) -> None:
        with self._lock:
            if (root, path) not in self._entries:
                self._insert((root, path), table, size_bytes + TABLE_BYTES)

    def undamaged(self, file: tuple[Any, ...]) -> frozenset[str]:
        """The columns of a data file whose pages were found undamaged. `file` identifies the file's content: it changes
        when the file is written again."""
        return self._get(("undamaged", *file)) or frozenset()

    def put_undamaged(self, file: tuple[Any, ...], columns: Iterable[str]) -> None:
        key = ("undamaged", *file)
        with self._lock:
            known, size_bytes = self._entries.pop(key, (frozenset(), 0))
            self._size -= size_bytes
            names = known.union(columns)
            self._insert(key, names, _MARKS_BYTES + sum(map(len, names)))

    def written(self, root: str) -> Mapping[str, Any]:
        """The long lists of a table's document, by name, as `put_written` stored them."""
        return self._get(("written", root)) or {}

    def put_written(self, root: str, lists: Mapping[str, Any], size_bytes: int) -> None:
        key = ("written", root)
        with self._lock:
            self._size -= self._entries.pop(key, (None, 0))[1]
            self._insert(key, lists, size_bytes)

    def records(self, root: str, path: str) -> bytes | None:
        """The records of a file that was written, as they were `put_records`."""
        return cast(bytes | None, self._get(("records", root, path)))

    def put_records(self, root: str, path: str, records: bytes) -> None:
        key = ("records", root, path)
        with self._lock:
            self._size -= self._entries.pop(key, (None, 0))[1]
            self._insert(key, records, len(records) + _MARKS_BYTES)

    def _get(self, key: tuple[Any, ...]) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def _insert(self, key: tuple[Any, ...], value: Any, size_bytes: int) -> None:
        self._entries[key] = value, size_bytes
        self._size += size_bytes
        while self._size > self.limit_bytes:
            self._size -= self._entries.popitem(last=False)[1][1]


# (bytes, paths) of files -> the decoded content of each.
Parse = Callable[[Sequence[bytes], Sequence[str]], Iterable[pa.Table]]


class Elsewhere(Protocol):
    """Other processes that read and decode many files."""

    @property
    def least(self) -> int:
        """The smallest number of files for which it is worth it."""
        ...

    def decoded(self, paths: Sequence[str], parse: Parse) -> list[pa.Table | None]:
        """The decoded files, in order; None for a file that does not exist. `parse` is sent to the other processes."""
        ...


class Keys(Protocol):
    """What opens a table's encrypted metadata files."""

    def keys_of(self, paths: Sequence[str]) -> Mapping[str, FileKey]:
        """The keys of those files that are encrypted. Raises `MissingKey`."""
        ...

    def learn(self, metas: pa.Table) -> None:
        """Files as others have them, with their keys."""
        ...


@dataclass(frozen=True, slots=True)
class Cached(ForwardingReader):
    """A Reader with a cache of decoded files; see `decoded`. Many files are decoded `elsewhere`, if that is set. With
    `keys`, files may be encrypted."""

    store: Reader
    cache: Cache
    elsewhere: Elsewhere | None = None
    keys: Keys | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class WithCache(ForwardingStore):
    """A table's files as engines get them, with the Lake's cache for delete files. A Spark worker that unpickles it
    gets a cache of at most half as many bytes, and shares it among the tasks of the Lake that it ran last."""

    store: Store
    cache: Cache
    worker_bytes: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_worker, (files_of(self.store), self.cache.id, self.worker_bytes)


def with_cache(store: Store, reader: Reader) -> Store:
    """`store` with the cache of `reader`, if that has one."""
    cache = cache_of(reader)
    return store if cache is None else WithCache(store, cache, cache.limit_bytes // 2)


_of_worker: list[Cache] = []  # At most one: the cache of the Lake whose task this process ran last.


def _in_worker(store: Store, id: str, limit_bytes: int) -> WithCache:
    """A store that was sent to this process, with the cache that earlier tasks of the same Lake filled."""
    if [(cache.id, cache.limit_bytes) for cache in _of_worker] != [(id, limit_bytes)]:
        _of_worker[:] = [Cache(limit_bytes, id)]
    return WithCache(store, _of_worker[0], limit_bytes)


def cached(reader: Reader, cache: Cache) -> Reader:
    """The reader with this cache, or with its own if it has one."""
    return reader if isinstance(reader, Cached) else Cached(reader, cache)


def unlocked(reader: Reader, cache: Cache, keys: Keys) -> Reader:
    """As `cached`, with these keys."""
    return replace(reader, keys=keys) if isinstance(reader, Cached) else Cached(reader, cache, keys=keys)


def keys_of(reader: Reader) -> Keys | None:
    return reader.keys if isinstance(reader, Cached) else None


def decoding(reader: Reader, elsewhere: Elsewhere) -> Reader:
    """The reader, which has many files `decoded` elsewhere. A reader without a cache is returned unchanged."""
    return replace(reader, elsewhere=elsewhere) if isinstance(reader, Cached) else reader


def decoded(reader: Reader, paths: Sequence[str], parse: Parse, is_part: bool = False) -> list[pa.Table | None]:
    """The decoded files, in order, several read at a time; None for a file that does not exist. A `Cached` reader does
    not read a file that it has cached. `parse` gets the bytes and paths of as many files as are worth parsing together.
    With `is_part` it decodes only some columns, which are cached beside the whole; a cached whole is returned
    instead."""
    cache = reader.cache if isinstance(reader, Cached) else None
    mark = _PART if is_part else ""

    def kept(path: str) -> pa.Table | None:
        whole = cache.get(reader.root, path) if cache else None
        return cache.get(reader.root, path + mark) if whole is None and cache and is_part else whole

    by_path = {path: kept(path) for path in paths}
    absent = [path for path, table in by_path.items() if table is None]
    if isinstance(reader, Cached) and reader.elsewhere is not None and len(absent) >= reader.elsewhere.least:
        made = zip(absent, reader.elsewhere.decoded(absent, parse), strict=True)
        decoded_tables = {path: table for path, table in made if table is not None}
        for (path, table), size_bytes in zip(
            decoded_tables.items(), map(pa.Table.get_total_buffer_size, decoded_tables.values()), strict=True
        ):
            reader.cache.add(reader.root, path + mark, table, size_bytes)
        by_path |= decoded_tables
        return [by_path[path] for path in paths]
    for some in _grouped(zip(absent, reader.read_many(absent), strict=True)):
        paths_of_some = [path for path, _ in some]
        tables = list(parse([data for _, data in some], paths_of_some))
        for path, table, size_bytes in zip(paths_of_some, tables, _sizes(tables), strict=True):
            by_path[path] = table
            if cache:
                cache.add(reader.root, path + mark, table, size_bytes)
    return [by_path[path] for path in paths]


def keeps_part(reader: Reader, path: str) -> bool:
    """Whether the cache has a file as it was `decoded` with `is_part`, and not whole."""
    cache = cache_of(reader)
    if cache is None or cache.get(reader.root, path) is not None:
        return False
    return cache.get(reader.root, path + _PART) is not None


class Way(Enum):
    """How a plan decodes manifests."""

    WHOLE = auto()
    PART = auto()  # Only what tasks need.
    PART_AND_BOUNDS = auto()  # What tasks need is cached; bounds are read again, and not kept.


def way_to_decode(
    reader: Reader,
    paths: Sequence[str],
    size_bytes: int,
    asks_bounds: bool,
    large_bytes: int = LARGE_BYTES,
    part_bytes: int = PART_BYTES,
) -> Way:
    """How to decode the manifests at `paths`, which have `size_bytes` together, for a plan. Only what tasks need is
    decoded if manifests have more than `part_bytes` on average, which saves time, or more than `large_bytes` together,
    which saves memory. Only with more than `large_bytes` are bounds read again each time, instead of kept."""
    is_large = size_bytes > large_bytes
    if asks_bounds:
        return Way.PART_AND_BOUNDS if is_large and all(keeps_part(reader, path) for path in paths) else Way.WHOLE
    return Way.PART if is_large or size_bytes > part_bytes * len(paths) else Way.WHOLE


def _grouped(files: Iterable[tuple[str, bytes | None]]) -> Iterator[list[tuple[str, bytes]]]:
    """The files that exist: small ones in groups, large ones one by one."""
    group: list[tuple[str, bytes]] = []
    size = 0
    for path, data in files:
        if data is None:
            continue
        if group and size + len(data) > TOGETHER_BYTES:
            yield group
            group, size = [], 0
        group.append((path, data))
        size += len(data)
    if group:
        yield group


def _sizes(tables: Sequence[pa.Table]) -> list[int]:
    """The bytes of tables that may be slices of one. Arrow's `nbytes` is a hundred times slower for them."""
    buffers = {buffer.address for table in tables if len(table) and (buffer := table.column(0).chunk(0).buffers()[1])}
    if len(tables) == 1 or len(buffers) != 1:
        return [table.get_total_buffer_size() for table in tables]
    size = next(table for table in tables if len(table)).get_total_buffer_size()
    rows = sum(map(len, tables))
    return [size * len(table) // rows for table in tables]


def remember(reader: Reader, path: str, table: pa.Table) -> None:
    """Cache the content of a file that is about to be written under a new name, so that the next commit need not read
    it. Only small tables: a large one would push out what readers need."""
    if not isinstance(reader, Cached) or len(table) > REMEMBERED_BYTES // ROW_BYTES:
        return
    combined = table.combine_chunks()
    size_bytes = combined.get_total_buffer_size()  # Counts the whole buffers that a slice refers to.
    if size_bytes <= REMEMBERED_BYTES:
        reader.cache.add(reader.root, path, combined, size_bytes)


def cache_of(reader: Reader) -> Cache | None:
    """The cache of a reader."""
    return reader.cache if isinstance(reader, Cached | WithCache) else None


def in_catalog(reader: Reader) -> Catalogued | None:
    """The table's files with its entry in a catalog; None for a table without a catalog."""
    inner = reader.store if isinstance(reader, Cached | WithCache) else reader
    return inner if isinstance(inner, Catalogued) else None
