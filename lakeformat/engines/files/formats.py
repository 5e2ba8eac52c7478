"""Data files: the file formats by name, and the names of new files.

Every name is unique; names given by an engine's tasks contain the job and the task.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, BinaryIO, cast

import pyarrow as pa

from lakeformat.codec.iceberg import gcm_stream
from lakeformat.engines.files import avro, orc, parquet, text
from lakeformat.errors import CorruptFile, InvalidInput, LakeError, NoSuchFile, UnsupportedFeature
from lakeformat.model.work import FileKey
from lakeformat.storage.store import Reader

FORMATS: dict[str, Any] = {"parquet": parquet, "orc": orc, "avro": avro}

TEXTS: dict[str, Any] = {"csv": text.Csv, "json": text.Json}


_job: ContextVar[str | None] = ContextVar("job", default=None)
_task: ContextVar[tuple[int, int]] = ContextVar("task", default=(0, 0))


def opened(
    store: Reader,
    path: str,
    format: str,
    text_options: Iterable[tuple[str, str]] | None = None,
    key: FileKey | None = None,
) -> Any:
    """A file opened for reading; CSV and JSON with their options. Raises `UnsupportedFeature` for an unknown format."""
    if format in TEXTS and text_options is not None:
        return TEXTS[format](pa.PythonFile(store.open(path), "r"), path, dict(text_options))
    if format not in FORMATS:
        raise UnsupportedFeature(f"{path}: file format {format!r} cannot be read; supported: {', '.join(FORMATS)}")
    if key is not None and format != "parquet":
        return FORMATS[format].File(pa.PythonFile(plain(store, path, key), "r"), path)
    source: Any = store.open(path)
    if not isinstance(source, pa.NativeFile):
        source = _Ranged(source) if hasattr(source, "prefetch") else pa.PythonFile(source, "r")
    return FORMATS[format].File(source, path) if key is None else parquet.File(source, path, key)


@contextmanager
def blamed(path: str, kind: str = "file") -> Iterator[None]:
    """Add `path` to errors raised inside, and turn those of other libraries, and a missing file, into `CorruptFile`."""
    try:
        yield
    except NoSuchFile as error:
        raise CorruptFile(f"{path}: the table lists this {kind}, but it does not exist") from error
    except (InvalidInput, CorruptFile, UnsupportedFeature) as error:
        if path in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
    except (LakeError, MemoryError):
        raise
    except Exception as error:
        raise CorruptFile(f"{path}: a {kind} that cannot be read: {error}") from error


def plain(store: Reader, path: str, key: FileKey | None) -> BinaryIO:
    """The bytes of a file, decrypted where it has a key."""
    source = store.open(path)
    return source if key is None else cast(BinaryIO, gcm_stream.Stream(source, key, path))


class _Ranged(pa.PythonFile):
    """A file for Arrow that can fetch several ranges together."""

    def __init__(self, source: Any) -> None:
        self.prefetch = source.prefetch
        self._ranges = source

    def apart(self) -> _Ranged:
        """The same file for another thread, with ranges of its own."""
        return _Ranged(self._ranges.apart())


def new_job() -> str:
    """The common part of the file names of a job's tasks, and of no others: the first half of a UUID."""
    return str(uuid.uuid4())[:18]


@contextmanager
def of_task(job: str | None, partition: int, attempt: int) -> Iterator[None]:
    """Inside, names requested in this thread are those of `job` and of this partition's task and attempt."""
    job_before, task_before = _job.set(job), _task.set((partition, attempt))
    try:
        yield
    finally:
        _job.reset(job_before)
        _task.reset(task_before)


def fresh_name(with_task: bool = False) -> str:
    """A uuid; with `with_task`, after the task's partition and attempt, both 0 outside of tasks."""
    made, job = str(uuid.uuid4()), _job.get()
    name = made if job is None else job + made[18:]
    partition, attempt = _task.get()
    return f"{partition:05}-{attempt}-{name}" if with_task else name
