"""Load: files of others are appended to a table, each file once; and rows are exported to files."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from lakeformat import clock
from lakeformat.arguments import is_spark
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import once
from lakeformat.engines.arrow import batches as arrow_batches
from lakeformat.engines.choose import engine_for, spark_engine
from lakeformat.engines.exchange import fitting, reading, writing
from lakeformat.engines.exchange.layout import FileLayout
from lakeformat.engines.exchange.reading import Source, Tally
from lakeformat.errors import (
    AlreadyExists,
    CommitLost,
    CommitUnknown,
    Conflict,
    InvalidInput,
    NotFound,
    UnsupportedFeature,
)
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Append, Request
from lakeformat.model.predicate import resolve
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import Snapshot
from lakeformat.storage import load_history as history
from lakeformat.storage.allowed import allowed
from lakeformat.storage.load_history import LoadedFile, Pending
from lakeformat.storage.store import Store
from lakeformat.table import Table
from lakeformat.verbs import append

ON_ERROR = ("abort_statement", "continue", "skip_file")
_HOUR_MS = 3_600_000  # A load that began within it may still be under way.


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of a file: `LOADED`, `PARTIALLY_LOADED`, `LOAD_FAILED` or `SKIPPED` (it was loaded before)."""

    file_name: str
    status: str
    rows_loaded: int = 0
    rows_parsed: int = 0
    errors_seen: int = 0
    first_error: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The files of a load, in the order of their names, and the snapshot that has their rows; None if no row was
    loaded."""

    files: tuple[FileResult, ...]
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Export:
    """The files that an export wrote, by their names in the folder."""

    folder: str
    files: tuple[str, ...]
    row_count: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file in the folder, by its name there."""

    name: str
    file: LoadedFile


def load(
    table: Table,
    source: Store,
    file: str,
    pattern: str | None,
    folders: Sequence[str] | None,
    layout: FileLayout,
    columns: Sequence[str] | None,
    force: bool,
    on_error: str,
    spark: Any,
    id: str | None,
    properties: Mapping[str, str] | None,
) -> Load:
    """Append the rows of the files in one commit: those directly in the folder `source`, or its `file`. See
    `Lake.load_files`."""
    if table._branch is not None or table._wap_id is not None:
        raise UnsupportedFeature(
            f"{table.name}: files are loaded into the main branch, which records them; write to another with append"
        )
    files = _candidates(source, file, pattern)
    for candidate in files if folders is not None else ():
        allowed(source.location(candidate.name), folders or ())
    fields = _targets(table.schema, columns, layout)
    folder, store = history.FOLDERS[table.format], table._store
    _settle(table, folder)
    done = set() if force else history.loaded(store, [candidate.file for candidate in files])
    chosen = [candidate for candidate in files if candidate.file.key not in done]
    results = {candidate.name: FileResult(candidate.name, "SKIPPED") for candidate in files}
    view = table._view()
    request, landed = table._runner.request(view, id or (None if force or not chosen else _id_of(chosen)), properties)
    if landed or not chosen:  # Another process has loaded the same files meanwhile, or this call is repeated.
        return Load(tuple(results.values()), landed)
    strict = on_error == "abort_statement"
    sources = [Source(candidate.name, fields, layout, strict) for candidate in chosen]
    data, tallies = _rows(source, sources, on_error, spark)
    engine = engine_for(data)
    operation = append.append(table._runner.change(view, request, engine), data)
    loads = tuple(
        replace(candidate.file, rows=tally.rows_loaded)
        for candidate, tally in zip(chosen, tallies, strict=True)
        if tally.rows_loaded or not tally.errors
    )
    started_ms, snapshot = clock.now_ms(), None
    if operation is not None:
        begun = Pending(history.pending_name(request.id), request.id, started_ms, view.snapshot_id, loads)
        history.begin(store, folder, begun)
        try:
            snapshot = table._runner.commit(view, operation, engine)
        except (Conflict, CommitLost):
            history.end(store, folder, begun.name)
            raise
        _finish(store, folder, begun, snapshot)
    else:
        history.record(store, folder, loads, 0, started_ms)
    for candidate, tally in zip(chosen, tallies, strict=True):
        results[candidate.name] = _result(candidate.name, tally)
    return Load(tuple(results.values()), snapshot)


def export(store: Store, data: Any, layout: FileLayout, overwrite: bool) -> Export:
    """Write rows to new files of a folder. See `Lake.export_files`."""
    before = store.list("")
    if before and not overwrite:
        raise AlreadyExists(f"{store.root} holds files, e.g. {before[0].path}; OVERWRITE = TRUE replaces them")
    if is_spark(data):
        files = spark_engine.exchange.export(data, store, layout)
    else:
        pieces = arrow_batches(data)
        schema, pieces = _schema(pieces)
        files = writing.export(store, pieces, schema, layout, f"part-00000-{uuid.uuid4()}")
    store.delete([listed.path for listed in before if "/" not in listed.path])
    return Export(store.root, tuple(file.path for file in files), sum(file.row_count for file in files))


# --- private ----------------------------------------------------------------------------------------------------------


def _candidates(store: Store, file: str, pattern: str | None) -> list[Candidate]:
    """The files directly in a folder of the store, or the file of that name, sorted; names that begin with `_` or `.`
    are left out. `pattern`: a regular expression that is found in their names. Raises `NotFound`, and `InvalidInput`
    for another text."""
    try:
        matching = re.compile(pattern or "")
    except re.error as error:
        raise InvalidInput(f"PATTERN={pattern!r} is not a regular expression: {error}") from error
    files = []
    for listed in store.list(""):
        is_direct = "/" not in listed.path and listed.path[0] not in "_."
        if is_direct and matching.search(listed.path) and file in ("", listed.path):
            address = store.location(listed.path).replace("file:///", "file:/", 1)  # As Hadoop spells it.
            files.append(Candidate(listed.path, LoadedFile(address, listed.size_bytes, listed.modified_ms)))
    if not files:
        among = f" whose name has {pattern!r}" if pattern else ""
        raise NotFound(f"{store.root}: no file{among} lies there")
    return files


def _schema(pieces: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    first = next(pieces, None)
    if first is None:
        raise InvalidInput("data without columns: there is nothing to export")
    return first.schema, chain([first], pieces)


def _targets(schema: Schema, columns: Sequence[str] | None, layout: FileLayout) -> tuple[Field, ...]:
    """The columns that the files give, in their order. Raises `InvalidInput` and `NotFound`."""
    if columns is None:
        fields = schema.fields
    else:
        names = [resolve((name,), schema.fields)[0][0] for name in columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidInput(f"column {twice[0]!r} is in the list of columns twice")
        fields = tuple(schema.field(name) for name in names)
        for field in schema.fields:
            if field.name not in names and not field.nullable and field.default is None:
                raise InvalidInput(
                    f"column {field.name!r} is NOT NULL, has no default, and is not in the list of columns"
                )
    if layout.format != "PARQUET":
        fitting.require_text(fields, layout.format, nested=layout.format == "JSON")
    return fields


def _rows(store: Store, sources: Sequence[Source], on_error: str, spark: Any) -> tuple[Any, list[Tally]]:
    """The rows to append, and what is counted of each file: on Spark now, in this process as the rows are read. Of
    files that are left out whole no row is counted as loaded."""
    if spark is None and on_error != "skip_file":
        tallies = [Tally() for _ in sources]
        return _reader(store, sources, tallies), tallies
    tallies = (
        spark_engine.exchange.examined(spark, store, sources)
        if spark is not None
        else [reading.examine(store, s) for s in sources]
    )
    if on_error == "skip_file":
        kept = [source for source, tally in zip(sources, tallies, strict=True) if not tally.errors]
        for tally in tallies:
            tally.rows_loaded *= not tally.errors
        sources = [replace(source, strict=True) for source in kept] or sources[:0]
    if spark is not None and sources:
        return spark_engine.exchange.loading_frame(spark, store, sources), tallies
    return _reader(store, sources, [Tally() for _ in sources]), tallies


def _reader(store: Store, sources: Sequence[Source], tallies: Sequence[Tally]) -> Any:
    pieces = (
        batch for source, tally in zip(sources, tallies, strict=True) for batch in reading.batches(store, source, tally)
    )
    if not sources:
        return []
    loose = tuple(replace(field, nullable=True) for field in sources[0].fields)
    schema = arrow_schema(loose)
    return pa.RecordBatchReader.from_batches(schema, once.never_without(schema, pieces))


def _result(name: str, tally: Tally) -> FileResult:
    status = "LOADED" if not tally.errors else "PARTIALLY_LOADED" if tally.rows_loaded else "LOAD_FAILED"
    return FileResult(name, status, tally.rows_loaded, tally.rows_parsed, tally.errors, tally.first_error)


def _id_of(files: Sequence[Candidate]) -> str:
    """The id of the commit that loads these files: two processes that load the same files at once load them once."""
    keys = json.dumps([candidate.file.key for candidate in files])
    return f"copy-into/{hashlib.sha256(keys.encode()).hexdigest()}"


def _settle(table: Table, folder: str) -> None:
    """Record what loads have committed that did not come to record it. Raises `CommitUnknown` if the snapshots that
    would tell have expired."""
    store = table._store
    for begun in history.pending(store, folder):
        view = table._view()
        landed = view.find(Append(request=Request(id=begun.id), added=()))
        if landed is not None:
            _finish(store, folder, begun, landed)
        elif not _is_told(table, begun):
            raise CommitUnknown(
                f"{table.name}: a load of {len(begun.files)} files, e.g. {begun.files[0].path}, may or may not have "
                "been committed: the snapshots that would show it have expired. Check whether the table has its "
                f"rows, then delete {store.location(f'{folder}/{begun.name}')}; if they are, load no such file again"
            )
        elif begun.started_ms < clock.now_ms() - _HOUR_MS:
            history.end(store, folder, begun.name)


def _is_told(table: Table, begun: Pending) -> bool:
    """Whether the table still has all snapshots since the load began."""
    kept = table.snapshots()
    if not kept or kept[0].timestamp_ms <= begun.started_ms:
        return bool(kept) or not begun.read_at
    return not begun.read_at and (kept[0].id == 1 if table.format == "paimon" else kept[0].parent_id is None)


def _finish(store: Store, folder: str, begun: Pending, snapshot: Snapshot) -> None:
    history.record(store, folder, begun.files, snapshot.id, begun.started_ms)
    history.end(store, folder, begun.name)
