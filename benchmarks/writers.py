"""Commits per second on one table by several writers, where each request takes as long as on object storage.

Writers are threads, each with a table of its own and nothing remembered of others, over files in memory. They append a
few rows each without a pause. Requests that a call sends together take one round trip, as there.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from benchmarks.measure import Figure, at_most
from lakeformat.codec.arrow import arrow_schema
from lakeformat.errors import CommitLost
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.cache import Cache
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.objects import IN_FLIGHT
from lakeformat.storage.store import Listed
from lakeformat.table import Table, create
from lakeformat.warehouse.roots import FORMATS

REQUEST_SECONDS = 0.04
WRITERS = (1, 8, 32)
SECONDS = 15.0  # Of each figure.
SECONDS_A_COMMIT = 1.0  # Catalogs of others are said to reach one or two commits a second.
_FIELDS = (Field(1, "id", scalar(Kind.BIGINT)), Field(2, "name", scalar(Kind.STRING)))
_ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}, schema=arrow_schema(_FIELDS))


def run(folder: Path) -> Iterator[Figure]:
    for format in FORMATS:
        for writers in WRITERS:
            commits, lost, seconds = race(format, writers)
            yield at_most(
                f"append by {writers} {'writer' if writers == 1 else 'writers'}, {format}, "
                f"{REQUEST_SECONDS * 1000:.0f} ms a request: {commits / seconds:.2f} commits a second, "
                f"{lost} outrun",
                "s a commit",
                SECONDS_A_COMMIT,
                [seconds / max(1, commits)],
            )


def race(
    format: str, writers: int, seconds: float = SECONDS, request_seconds: float = REQUEST_SECONDS
) -> tuple[int, int, float]:
    """(commits that landed, commits that others outran in every attempt, seconds that they took)"""
    near = MemoryFiles(f"memory://writers/{uuid.uuid4()}")
    create(Table("t", near, FORMATS[format](Cache())), Schema(_FIELDS))
    began, landed, lost = time.monotonic(), 0, 0
    counting = threading.Lock()

    def write(_: int) -> None:
        nonlocal landed, lost
        table = Table("t", Distant(near, request_seconds), FORMATS[format](Cache()))
        while time.monotonic() < began + seconds:
            try:
                table.append(_ROWS)
            except CommitLost:
                with counting:
                    lost += 1
            else:
                with counting:
                    landed += 1

    with ThreadPoolExecutor(writers) as pool:
        for _ in pool.map(write, range(writers)):
            pass
    took = time.monotonic() - began
    count = Table("t", near, FORMATS[format](Cache())).scan().count()
    assert count == landed * _ROWS.num_rows, f"{landed} commits left {count} rows"
    return landed, lost, took


class Distant(MemoryFiles):
    """The files of another store, each round trip to which takes `seconds`."""

    def __init__(self, near: MemoryFiles, seconds: float) -> None:
        super().__init__(near.root)
        self._files, self._lock, self._seconds = near._files, near._lock, seconds

    @property
    def is_local(self) -> bool:
        return False

    def read(self, path: str) -> bytes:
        self._wait()
        return super().read(path)

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        self._wait(len(paths))
        return super().read_many(paths)

    def exists(self, path: str) -> bool:
        self._wait()
        return super().exists(path)

    def folders(self, prefix: str) -> list[str]:
        self._wait()
        return super().folders(prefix)

    def names(self, prefix: str) -> list[str]:
        self._wait()
        return super().names(prefix)

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self.read(path))

    def write(self, path: str, data: bytes) -> None:
        self._wait()
        super().write(path, data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        self._wait(len(files))
        for path, data in files.items():
            super().write(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._wait()
        return super().create(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        self._wait()
        super().delete(paths)

    def list(self, prefix: str) -> list[Listed]:
        self._wait()
        return super().list(prefix)

    def _wait(self, requests: int = 1) -> None:
        time.sleep(self._seconds * -(-requests // IN_FLIGHT))
