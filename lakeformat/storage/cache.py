"""What metadata files hold, decoded: kept as far as memory allows, for readers that ask again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.store import ForwardingReader, Reader

CACHE_BYTES = 512 << 20
REMEMBERED_BYTES = 1 << 20
TOGETHER_BYTES = 256 << 10  # Of files that are parsed together.
_PART = "#part"  # After the path of a file of which some columns are kept.
ROW_BYTES = 100  # What a row of a metadata file takes at least.
_MARKS_BYTES = 1 << 10  # About what the names of some columns take, and the name of their file.
TABLE_BYTES = 32 << 10  # About what an Arrow table of so many columns takes before it holds anything.


class Cache:
    """Decoded files by table and path, the least recently used dropped beyond `limit_bytes`. Only for files whose names are
    never given twice. Beside them, which columns of data files were found undamaged,
    and the long lists of documents that were written. Copies in other processes begin empty."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit, self._size, self._lock = limit_bytes, 0, threading.Lock()
        self._held: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()  # With the bytes of each.

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        return Cache, (self._limit,)

    def get(self, root: str, path: str) -> pa.Table | None:
        return self._get((root, path))

    def put(self, root: str, path: str, table: pa.Table, size_bytes: int) -> None:
        with self._lock:
            if (root, path) not in self._held:
                self._put((root, path), table, size_bytes + TABLE_BYTES)

    def undamaged(self, file: tuple[Any, ...]) -> frozenset[str]:
        """The columns of a data file whose pages were found undamaged; `file`: what it has no more once it was written to."""
        return self._get(("undamaged", *file)) or frozenset()

    def put_undamaged(self, file: tuple[Any, ...], columns: Iterable[str]) -> None:
        key = ("undamaged", *file)
        with self._lock:
            known, size_bytes = self._held.pop(key, (frozenset(), 0))
            self._size -= size_bytes
            names = known.union(columns)
            self._put(key, names, _MARKS_BYTES + sum(map(len, names)))

    def written(self, root: str) -> Mapping[str, Any]:
        """The long lists of a table's document as they were `put_written`, by name."""
        return self._get(("written", root)) or {}

    def put_written(self, root: str, lists: Mapping[str, Any], size_bytes: int) -> None:
        key = ("written", root)
        with self._lock:
            self._size -= self._held.pop(key, (None, 0))[1]
            self._put(key, lists, size_bytes)

    def _get(self, key: tuple[Any, ...]) -> Any:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def _put(self, key: tuple[Any, ...], value: Any, size_bytes: int) -> None:
        self._held[key] = value, size_bytes
        self._size += size_bytes
        while self._size > self._limit and len(self._held) > 1:
            self._size -= self._held.popitem(last=False)[1][1]


Parse = Callable[
    [Sequence[bytes], Sequence[str]], Iterable[pa.Table]
]  # The bytes and the paths of files -> what each holds.


class Elsewhere(Protocol):
    """Other processes that read and decode files, where these are many."""

    @property
    def least(self) -> int:
        """How many files are worth it."""
        ...

    def decoded(self, paths: Sequence[str], parse: Parse) -> list[pa.Table | None]:
        """What each file holds, in order; None for one that is not there. `parse` goes to the other processes."""
        ...


@dataclass(frozen=True, slots=True)
class Cached(ForwardingReader):
    """A Reader beside a cache of what its files hold; see `decoded`. Many files are decoded `elsewhere`, if that is given."""

    store: Reader
    cache: Cache
    elsewhere: Elsewhere | None = None


def cached(reader: Reader, cache: Cache) -> Reader:
    """The reader with this cache, or with its own if it has one."""
    return reader if isinstance(reader, Cached) else Cached(reader, cache)


def decoding(reader: Reader, elsewhere: Elsewhere) -> Reader:
    """The reader, of which many files that are to be `decoded` are so elsewhere; one without a cache as it is."""
    return replace(reader, elsewhere=elsewhere) if isinstance(reader, Cached) else reader


def decoded(reader: Reader, paths: Sequence[str], parse: Parse, is_part: bool = False) -> list[pa.Table | None]:
    """What files hold, in order, read several at a time; None for one that is not there. Those that a `Cached` reader has
    given before are not read again. `parse` is given the bytes and the paths of as many as are worth parsing together. With
    `is_part`, it makes some of the columns only, which are kept beside the whole; where the whole is kept, that is given."""
    cache = cache_of(reader)
    mark = _PART if is_part else ""

    def kept(path: str) -> pa.Table | None:
        whole = cache.get(reader.root, path) if cache else None
        return cache.get(reader.root, path + mark) if whole is None and cache and is_part else whole

    found = {path: kept(path) for path in paths}
    absent = [path for path, table in found.items() if table is None]
    if isinstance(reader, Cached) and reader.elsewhere is not None and len(absent) >= reader.elsewhere.least:
        made = zip(absent, reader.elsewhere.decoded(absent, parse), strict=True)
        there = {path: table for path, table in made if table is not None}
        for (path, table), size_bytes in zip(
            there.items(), map(pa.Table.get_total_buffer_size, there.values()), strict=True
        ):
            reader.cache.put(reader.root, path + mark, table, size_bytes)
        found |= there
        return [found[path] for path in paths]
    for some in _grouped(zip(absent, reader.read_many(absent), strict=True)):
        paths_of_some = [path for path, _ in some]
        tables = list(parse([data for _, data in some], paths_of_some))
        for path, table, size_bytes in zip(paths_of_some, tables, _sizes(tables), strict=True):
            found[path] = table
            if cache:
                cache.put(reader.root, path + mark, table, size_bytes)
    return [found[path] for path in paths]


def keeps_part(reader: Reader, path: str) -> bool:
    """Whether a file is kept as it was `decoded` with `is_part`, and not whole."""
    cache = cache_of(reader)
    if cache is None or cache.get(reader.root, path) is not None:
        return False
    return cache.get(reader.root, path + _PART) is not None


def _grouped(files: Iterable[tuple[str, bytes | None]]) -> Iterator[list[tuple[str, bytes]]]:
    """The files that are there: small ones together, large ones each alone."""
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
    """The bytes of tables that may be pieces of one. Arrow's `nbytes` takes a hundred times as long for them."""
    sizes = [table.get_total_buffer_size() for table in tables]
    buffers = {buffer.address for table in tables if len(table) and (buffer := table.column(0).chunk(0).buffers()[1])}
    if len(tables) == 1 or len(buffers) != 1:
        return sizes
    rows = sum(map(len, tables))
    return [size * len(table) // rows for size, table in zip(sizes, tables, strict=True)]


def remember(reader: Reader, path: str, table: pa.Table) -> None:
    """What a file that is about to be written under a name of its own will hold, so that the next commit need not read it.
    Only small tables: a large one would push out what readers ask for."""
    if not isinstance(reader, Cached) or len(table) > REMEMBERED_BYTES // ROW_BYTES:
        return
    own = table.combine_chunks()
    size_bytes = own.get_total_buffer_size()  # With what else is in memory where it is a piece of a larger table.
    if size_bytes <= REMEMBERED_BYTES:
        reader.cache.put(reader.root, path, own, size_bytes)


def cache_of(reader: Reader) -> Cache | None:
    """The cache beside a reader."""
    return reader.cache if isinstance(reader, Cached) else None


def in_catalog(reader: Reader) -> Catalogued | None:
    """The table's files with its place in a catalog; None for a table without one."""
    inner = reader.store if isinstance(reader, Cached) else reader
    return inner if isinstance(inner, Catalogued) else None
