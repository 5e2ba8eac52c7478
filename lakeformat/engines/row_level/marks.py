"""Deleted rows, given by file and position -> delete files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from lakeformat import clock
from lakeformat.codec import bitmap, numbers
from lakeformat.codec.iceberg import puffin
from lakeformat.codec.paimon import vector_file
from lakeformat.engines import worker
from lakeformat.engines.files import formats
from lakeformat.engines.row_level import deletes
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.predicate import columns_of
from lakeformat.model.work import (
    FILE,
    POSITION,
    Content,
    DeleteTask,
    MarkTask,
    OneFolder,
    Target,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.store import Store

_POSITION_COLUMN = 2147483645  # The reserved id of `_pos`, the field of a deletion vector.


def mark(store: Store, task: MarkTask) -> list[WrittenFile]:
    """Delete files for the rows that satisfy the predicate of `task.read`; see `MarkTask`."""
    named = columns_of(task.read.predicate)
    fields = (*(field for field in task.read.fields if field.name in named), FILE, POSITION)
    return write(store, worker.read(store, replace(task.read, fields=fields)), task.write)


def write(store: Store, batches: Iterable[pa.RecordBatch], task: DeleteTask) -> list[WrittenFile]:
    """Rows with the columns `FILE` and `POSITION`, in any order, -> delete files; none for a file without new
    positions.

    After an error the files are deleted as far as possible. Raises `InvalidInput` for a file that is no target.
    """
    return _write(store, _gathered(batches), task)


def write_positions(store: Store, positions: dict[str, np.ndarray], task: DeleteTask) -> list[WrittenFile]:
    """As `write`, for positions by file, ascending and unique."""
    return _write(store, positions, task)


def rewrite(store: Store, task: DeleteTask) -> list[WrittenFile]:
    """The existing deletes of all targets, in new files."""
    return _write(store, {target.path: np.array([], np.int64) for target in task.targets}, task)


def _write(store: Store, marked: dict[str, np.ndarray], task: DeleteTask) -> list[WrittenFile]:
    targets = {target.path: target for target in task.targets}
    unknown = marked.keys() - targets.keys()
    if unknown:
        raise InvalidInput(
            f"{min(unknown)}: rows of this file are to be deleted, and it is not among the {len(targets)} targets"
        )
    chosen = [(targets[path], _with_earlier(store, targets[path], marked[path])) for path in sorted(marked)]
    if task.content is Content.DELETION_VECTORS and task.encoding.file_format != "index":
        return _vectors(store, chosen, task)
    written: list[WrittenFile] = []
    name = formats.fresh_name()
    try:
        if task.content is Content.DELETION_VECTORS:
            for number, part in enumerate(_index_parts(chosen, task)):
                written += _index_file(store, f"index-{name}-{number}", part)
            return written
        for group in _grouped(chosen, task.per_file):
            written += _position_files(store, group, task)
    except BaseException:
        with suppress(LakeError):
            store.delete([file.path for file in written])
        raise
    return written


def _gathered(batches: Iterable[pa.RecordBatch]) -> dict[str, np.ndarray]:
    """Positions by file, ascending and unique."""
    by_path: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        paths = batch.column(FILE.name).dictionary_encode()
        codes, places = np.asarray(paths.indices), np.asarray(batch.column(POSITION.name))
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
        for number, path in enumerate(paths.dictionary.to_pylist()):
            by_path.setdefault(path, []).append(places[order[edges[number] : edges[number + 1]]])
    return {path: numbers.distinct(np.concatenate(parts)) for path, parts in by_path.items()}


def _with_earlier(store: Store, target: Target, marked: np.ndarray) -> np.ndarray:
    if not target.deletes:
        return marked
    return numbers.distinct(np.concatenate([marked, deletes.positions(store, target.path, target.deletes)]))


def _grouped(chosen: list[tuple[Target, np.ndarray]], per_file: bool) -> Iterator[list[tuple[Target, np.ndarray]]]:
    if per_file:
        yield from ([marked] for marked in chosen)
        return

    def order(marked: tuple[Target, np.ndarray]) -> tuple[int, str, str]:
        return marked[0].spec_id or 0, marked[0].folder, str(marked[0].partition)

    for _, group in groupby(sorted(chosen, key=order), key=order):
        yield sorted(group, key=lambda marked: marked[0].path)


def _position_files(store: Store, group: list[tuple[Target, np.ndarray]], task: DeleteTask) -> list[WrittenFile]:
    first = group[0][0]
    path, position = task.fields
    layout = WriteTask(
        fields=task.fields,
        directory=OneFolder(first.folder),
        content=task.content,
        encoding=task.encoding,
        naming=task.naming,
        target_size_bytes=task.target_size_bytes,
    )

    def rows() -> Iterator[pa.RecordBatch]:
        for target, positions in group:
            for start in range(0, len(positions), worker.BATCH_ROWS):
                part = pa.array(positions[start : start + worker.BATCH_ROWS])
                yield pa.record_batch([pa.repeat(target.path, len(part)), part], names=[path.name, position.name])

    if not any(len(positions) for _, positions in group):
        return []
    return [
        replace(
            file,
            partition=first.partition,
            spec_id=first.spec_id,
            refers_to=_between([target.path for target, _ in group], file, path.id),
            replaces=tuple(by for target, _ in group for by in target.replaced) if number == 0 else (),
        )
        for number, file in enumerate(worker.write(store, rows(), layout))
    ]


def _between(paths: list[str], file: WrittenFile, column: int) -> tuple[str, ...]:
    """Those of `paths` within the bounds of a delete file."""
    bounds = file.stats[column]
    return tuple(path for path in paths if bounds.minimum is None or bounds.minimum <= path <= bounds.maximum)


def _vectors(store: Store, chosen: list[tuple[Target, np.ndarray]], task: DeleteTask) -> list[WrittenFile]:
    """One file with a vector for each data file, in the folder of the first."""
    if not chosen:
        return []
    blobs = [
        puffin.Blob(
            puffin.DELETION_VECTOR,
            bitmap.encode(positions),
            (_POSITION_COLUMN,),
            {"referenced-data-file": target.path, "cardinality": str(len(positions))},
        )
        for target, positions in chosen
    ]
    content, offsets = puffin.emit(blobs)
    naming = task.naming
    name = f"{naming.prefix}{formats.fresh_name(naming.names_task)}-deletes.puffin"
    path = naming.locate(chosen[0][0].folder, name)
    store.write(path, content)
    now_ms = clock.now_ms()
    return [
        WrittenFile(
            path=path,
            partition=target.partition,
            row_count=len(positions),
            size_bytes=len(content),
            content=Content.DELETION_VECTORS,
            file_format="puffin",
            created_ms=now_ms,
            refers_to=(target.path,),
            spec_id=target.spec_id,
            offset=offset,
            vector_bytes=len(blob.data),
            replaces=target.replaced,
        )
        for (target, positions), blob, offset in zip(chosen, blobs, offsets, strict=True)
    ]


def _index_parts(
    chosen: list[tuple[Target, np.ndarray]], task: DeleteTask
) -> Iterator[list[tuple[Target, bytes, int]]]:
    """(data file, vector, rows) of each index file: of one bucket, up to the target size."""

    def order(marked: tuple[Target, np.ndarray]) -> tuple[str, int]:
        return str(marked[0].partition), marked[0].bucket

    for _, group in groupby(sorted(chosen, key=order), key=order):
        part: list[tuple[Target, bytes, int]] = []
        size_bytes = 0
        for target, positions in group:
            part.append((target, bitmap.encode(positions, task.wide), len(positions)))
            size_bytes += len(part[-1][1])
            if size_bytes > task.target_size_bytes:
                yield part
                part, size_bytes = [], 0
        if part:
            yield part


def _index_file(store: Store, name: str, part: list[tuple[Target, bytes, int]]) -> list[WrittenFile]:
    content, offsets = vector_file.emit([vector for _, vector, _ in part])
    path = f"{part[0][0].folder}/{name}"
    store.write(path, content)
    now_ms = clock.now_ms()
    return [
        WrittenFile(
            path=path,
            partition=target.partition,
            row_count=row_count,
            size_bytes=len(content),
            bucket=target.bucket,
            content=Content.DELETION_VECTORS,
            file_format="index",
            created_ms=now_ms,
            refers_to=(target.path,),
            offset=offset,
            vector_bytes=vector_file.length(vector),
            replaces=target.replaced,
        )
        for (target, vector, row_count), offset in zip(part, offsets, strict=True)
    ]
