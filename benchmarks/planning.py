"""Planning a scan of 100,000 files in one manifest: against pypaimon, and against a bare Avro decode."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.peers.process import Peer, pypaimon
from lakeformat import Lake
from lakeformat.commit import commit
from lakeformat.dialects.paimon import manifest
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.model.operation import Append, Request
from lakeformat.model.work import ColumnStats, WrittenFile
from lakeformat.storage.files import open_store

paimon = Paimon()

FILES = 100_000
SHAPES = ("mixed", "ordered")  # A day and texts of their own; a number and one of 1,000 names.
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("name", pa.string()), ("dt", pa.string())])
ORDERED = pa.schema([("id", pa.int64()), ("value", pa.float64()), ("name", pa.string()), ("part", pa.int32())])


def run(folder: Path) -> Iterator[Figure]:
    with pypaimon() as peer:
        for shape in SHAPES:
            yield from _figures(folder / shape, shape, peer)


def _figures(folder: Path, shape: str, peer: Peer) -> Iterator[Figure]:
    entries = declare(folder / "warehouse", FILES, shape)
    (folder / "manifest").write_bytes(entries)
    names = count()

    def cold() -> float:
        """From nothing, at another root."""
        view = folder / f"view-{next(names)}"
        view.symlink_to(folder / "warehouse")
        return seconds(lambda: plan(Lake(str(view))))

    lake = Lake(str(folder / "warehouse"))  # The cache of decoded manifests is a lake's.
    plan(lake)

    def warm() -> float:
        return seconds(lambda: plan(lake))

    def decode() -> float:
        return seconds(lambda: manifest.parse(entries, "the manifest"))

    def theirs() -> float:
        found: float = peer.ask(verb="plan", warehouse=str(folder / "warehouse"), table="bench.files", files=FILES)
        return found

    def bare() -> float:
        found: float = peer.ask(verb="decode", path=str(folder / "manifest"), entries=FILES)
        return found

    subject = f"{FILES:,} files in one manifest, {shape}"
    yield by_turns(f"plan {subject}", "pypaimon 2.1", 0.1, cold, theirs, runs=3)
    yield by_turns(f"plan {subject}", "fastavro's decode of the manifest", 1.0, cold, bare, runs=5)
    yield by_turns(f"decode {subject}", "fastavro", 1.0, decode, bare, runs=5)
    yield by_turns(f"plan {subject}, again", "the first time", 0.5, warm, cold, runs=5)


def plan(lake: Lake) -> None:
    tasks = lake.table("bench.files").scan().plan()
    assert sum(len(task.paths) for task in tasks) == FILES, len(tasks)


def declare(warehouse: Path, files: int, shape: str = "mixed") -> bytes:
    """A table of files that need not be there, for planning opens none; returns the bytes of its only manifest."""
    properties = {"manifest.target-file-size": "4 gb"}
    schema, file_of = (SCHEMA, described) if shape == "mixed" else (ORDERED, described_in_order)
    parted = schema.names[-1:]
    Lake(str(warehouse)).create_table("bench.files", schema, partition_by=parted, properties=properties)
    store = open_store(str(warehouse / "bench.db" / "files"))
    operation = Append(request=Request(id="bench"), added=tuple(file_of(i) for i in range(files)))
    commit(store, paimon.head(store), paimon, operation)
    (only,) = [f.path for f in store.list("manifest") if "/manifest-list-" not in f.path]
    return store.read(only)


def described(i: int, first_id: int = 0, folder: str = "") -> WrittenFile:
    """The i-th file as a writer would tell of it: partition, size and bounds of four columns."""
    day = f"2024-01-{i % 30 + 1:02d}"
    low = i * 10_000
    bounds = [
        ColumnStats(low, low + 9_999, 0, 10_000),
        ColumnStats(i % 7 + 0.25, i % 7 + 100.5, i % 3, 10_000),
        ColumnStats(f"customer {i:08d}", f"customer {i + 1:08d}", 0, 10_000),
        ColumnStats(day, day, 0, 10_000),
    ]
    name = f"data-{uuid.uuid5(uuid.NAMESPACE_OID, str(i))}-0.parquet"
    return WrittenFile(
        f"{folder or f'dt={day}/bucket-0'}/{name}",
        (day,),
        10_000,
        250_000 + i % 1000,
        stats={first_id + place: each for place, each in enumerate(bounds)},
        created_ms=1_700_000_000_000,
    )


def described_in_order(i: int) -> WrittenFile:
    """The i-th file of a table in order of its id, of 30 numbered partitions."""
    part, low = i % 30, i * 10_000
    bounds = [
        ColumnStats(low, low + 9_999, 0, 10_000),
        ColumnStats(low / 7, (low + 9_999) / 7, 0, 10_000),
        ColumnStats("name-0", "name-999", 0, 10_000),
        ColumnStats(part, part, 0, 10_000),
    ]
    return WrittenFile(
        f"part={part}/bucket-0/data-{uuid.uuid5(uuid.NAMESPACE_OID, str(i))}-0.parquet",
        (part,),
        10_000,
        250_000 + i % 1000,
        stats=dict(enumerate(bounds)),
        created_ms=1_700_000_000_000,
    )
