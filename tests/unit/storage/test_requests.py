"""What verbs ask of storage: each metadata file is read once, and the head's folder is listed once before the commit."""

import datetime
import heapq
import io
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.codec.arrow import arrow_schema
from lakeformat.dialects.iceberg import manifest as iceberg
from lakeformat.dialects.paimon import manifest as paimon
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.cache import Cache
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.objects import IN_FLIGHT, TAIL_BYTES
from lakeformat.storage.streams import NewFile, Ranges
from lakeformat.table import Table, create
from lakeformat.warehouse.roots import FORMATS
from tests import doors

METADATA = ("metadata/", "snapshot/", "schema/", "manifest/", "index/", "tag/")
BESIDE = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
TABLES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "iceberg": ("iceberg", (), {}),
    "iceberg merge-on-read": ("iceberg", (), BESIDE),
    "paimon": ("paimon", (), {}),
    "paimon deletion vectors": ("paimon", (), {"deletion-vectors.enabled": "true"}),
    "paimon primary key": ("paimon", ("id", "p"), {"bucket": "1", "write-only": "true"}),
}
VERBS: dict[str, Callable[[Table], Any]] = {
    "scan": lambda t: t.scan(where="id = 5").to_arrow(),
    "append": lambda t: t.append(rows(5, 100)),
    "overwrite": lambda t: t.overwrite(rows(5, 100), where="id in (5, 100)"),
    "overwrite_partitions": lambda t: t.overwrite_partitions(rows(5, 100)),
    "delete": lambda t: t.delete("id = 5"),
    "update": lambda t: t.update({"v": "'z'"}, "id = 5"),
    "merge": lambda t: (
        t.merge_into(rows(5, 100), "t.id = s.id and t.p = s.p")
        .when_matched()
        .update_all()
        .when_not_matched()
        .insert_all()
        .merge()
    ),
    "compact": lambda t: t.compact(full=True),
    "expire": lambda t: t.expire_snapshots(retain_last=1),
}
# Round trips in sequence, in the order of `TABLES`; docs/performance-notes.md has them too.
TRIPS = {
    "scan": (5, 5, 6, 6, 7),
    "append": (10, 10, 12, 12, 13),
    "overwrite": (15, 15, 17, 17, 16),
    "overwrite_partitions": (11, 11, 13, 13, 13),
    "delete": (14, 12, 16, 14, 15),
    "update": (14, 14, 16, 16, 15),
    "merge": (15, 16, 17, 18, 15),
    "compact": (14, 14, 16, 16, 20),
    "expire": (14, 14, 21, 21, 21),
}


class Distant:
    """A store as a network away: it notes what is asked of it, and its clock moves by one with each round trip. Requests that
    may be under way together take one; what threads of others do at the same time counts as if one waited for the other."""

    def __init__(self, store: MemoryFiles) -> None:
        self._store, self._lock = store, threading.RLock()
        self.read_counts: Counter[str] = Counter()  # Of files that are there.
        self.asked: list[tuple[str, str]] = []  # (call, path), in order.
        self.clocks: list[int] = []  # When each was answered.
        self.requests = self.clock = 0

    @property
    def root(self) -> str:
        return self._store.root

    def location(self, path: str) -> str:
        return self._store.location(path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(path: str, *args: Any) -> Any:
            self._ask(name, path)
            return getattr(self._store, name)(path, *args)

        return call

    def several(self, work: Callable[[Any], Any], items: Iterable[Any], threads: int = 1) -> Iterator[Any]:
        with self._lock:
            free = [self.clock] * IN_FLIGHT
            made = []
            for item in items:
                self.clock = heapq.heappop(free)
                made.append(work(item))
                heapq.heappush(free, self.clock)
            self.clock = max(free)
        return iter(made)

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        def one(path: str) -> bytes | None:
            self._ask("read_many", path)
            return self._store.read(path) if self._store.exists(path) else None

        return list(self.several(one, paths))

    def open(self, path: str) -> Any:
        self._ask("open", path)
        data = self._store.read(path)

        def fetch(starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
            for index in range(len(starts)):
                self._ask("get_range", path, trips=index == 0)
            return [data[start:end] for start, end in zip(starts, ends, strict=True)]

        return Ranges(path, len(data), fetch, data[-TAIL_BYTES:])

    def create_stream(self, path: str) -> NewFile:
        content = io.BytesIO()
        return NewFile(path, content.write, lambda: self.write(path, content.getvalue()), content.close)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        list(self.several(lambda path: self.write(path, files[path]), files))

    write_hints = write_many

    def delete(self, paths: Iterable[str]) -> None:
        for index, path in enumerate(paths):
            self._ask("delete", path, trips=index % 1000 == 0)
            self._store.delete([path])

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        """Nothing, as on object storage."""

    def _ask(self, name: str, path: str, trips: int = 1) -> None:
        with self._lock:
            inside = path.removeprefix(f"{self.root}/")
            self.asked.append((name, inside))
            if name in {"read", "read_many", "open"} and self._store.exists(path):
                self.read_counts[inside] += 1
            self.requests += trips if name == "delete" else 1
            self.clock += trips
            self.clocks.append(self.clock)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids), "v": ["a"] * len(ids), "p": pa.array([id % 2 for id in ids], pa.int32())})


def world(name: str) -> tuple[Table, Distant]:
    """A table of three commits to two partitions, and its store; nothing is known of it yet."""
    format, key, options = TABLES[name]
    kinds = {"id": Kind.BIGINT, "v": Kind.STRING, "p": Kind.INT}
    fields = tuple(Field(id, name, scalar(kind)) for id, (name, kind) in enumerate(kinds.items()))
    store = MemoryFiles(f"memory://requests/{uuid.uuid4()}")
    table = Table("t", store, FORMATS[format](Cache()))
    create(table, Schema(fields, partitioning=identity("p"), primary_key=key, properties=options))
    for start in (0, 10, 20):
        table.append(rows(*range(start, start + 10)))
    distant = Distant(store)
    return Table("t", distant, FORMATS[format](Cache())), distant


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_each_metadata_file_once_lists_the_head_once_and_waits_for_few_round_trips(name: str, verb: str):
    table, store = world(name)
    VERBS[verb](table)
    assert store.clock <= dict(zip(TABLES, TRIPS[verb], strict=True))[name], store.asked
    often = {path: n for path, n in store.read_counts.items() if n > 1 and path.startswith(METADATA)}
    # A snapshot's number can be given anew, so the commit looks whether it is still that one.
    if name.startswith("paimon"):
        often = {path: n for path, n in often.items() if n > 2 or not path.startswith("snapshot/")}
    assert often == {}
    folder = "metadata" if name.startswith("iceberg") else "snapshot"
    looks = [index for index, (call, path) in enumerate(store.asked) if call == "names" and path == folder]
    commit = next((index for index, (call, path) in enumerate(store.asked) if call == "create"), None)
    if commit is not None:  # The verb's own look, the loop's, and the head's directly before it creates.
        assert len([place for place in looks if place < commit]) <= (4 if verb == "expire" else 3)
    else:  # Expiry lists the snapshots that there are, too, and once more when it has given notice.
        assert len(looks) <= (3 if verb == "expire" else 1)


@pytest.mark.parametrize("name", TABLES)
def test_the_commit_of_an_append_waits_for_eight_round_trips(name: str):
    table, store = world(name)
    table.append(rows(5, 100))
    written = [clock for (_, path), clock in zip(store.asked, store.clocks, strict=True) if path.endswith(".parquet")]
    assert store.clock - max(written) <= 8, store.asked


@pytest.mark.parametrize("name", TABLES)
def test_an_append_reads_no_manifest_that_the_append_before_it_wrote(name: str):
    table, store = world(name)
    table.append(rows(5, 100))
    store.read_counts.clear()
    table.append(rows(6, 101))
    folder = "manifest/" if name.startswith("paimon") else "metadata/snap-"
    assert [path for path in store.read_counts if path.startswith(folder)] == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_manifest_is_remembered_as_it_would_be_read(format: str):
    kinds = {
        "b": scalar(Kind.BOOLEAN), "i": scalar(Kind.INT), "l": scalar(Kind.BIGINT), "s": scalar(Kind.STRING),
        "d": scalar(Kind.DATE), "n": scalar(Kind.DECIMAL, 9, 2), "v": scalar(Kind.BIGINT),
    }  # fmt: skip
    fields = tuple(Field(id, name, kind) for id, (name, kind) in enumerate(kinds.items()))
    values: dict[str, list[Any]] = {
        "b": [True, None], "i": [1, None], "l": [2**40, None], "s": ["x", None],
        "d": [datetime.date(2024, 2, 29), None], "n": [Decimal("1.25"), None], "v": [1, 2],
    }  # fmt: skip
    store, cache = MemoryFiles(f"memory://remembered/{uuid.uuid4()}"), Cache()
    table = Table("t", store, FORMATS[format](cache))
    create(table, Schema(fields, partitioning=identity(*list(kinds)[:-1])))
    for _ in range(2):
        table.append(pa.table(values, schema=arrow_schema(fields)))
    remembered = {key: held for key, held in cache._entries.items() if key[0] == store.root}  # Of files.
    assert len(remembered) >= 4
    for (_, path), (held, _) in remembered.items():
        parse = {"paimon": paimon, "iceberg": iceberg}[format]
        is_list = "manifest-list" in path or "snap-" in path
        read = (parse.parse_list if is_list else parse.parse)(store.read(path), path)
        assert held.schema.equals(read.schema), path
        assert held.to_pylist() == read.to_pylist(), path


def test_small_delete_files_are_read_together():
    table, store = world("iceberg merge-on-read")
    table.delete("id in (0, 1, 10, 11, 20, 21)")
    far = Distant(doors.store(store))
    assert Table("t", far, FORMATS["iceberg"](Cache())).scan().to_arrow().num_rows == 24
    assert len([path for call, path in far.asked if call == "open" and path.endswith("deletes.parquet")]) == 6
    assert far.clock <= 6, far.asked


if __name__ == "__main__":
    for verb in VERBS:
        figures = []
        for name in TABLES:
            table, store = world(name)
            VERBS[verb](table)
            figures.append(f"{store.requests} / {store.clock}")
        print(f"| {verb} | {' | '.join(figures)} |")
