"""The engine that runs the worker in this process, on Arrow data and on everything that converts to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from lakeformat.codec import layouts
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import adopt, ahead, once, python_values, worker
from lakeformat.engines.kernels import gather
from lakeformat.engines.keyed import lookup
from lakeformat.engines.row_level import marks
from lakeformat.engines.row_level.arrow_merge import ArrowSource, typed, untyped_columns
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model.partition import PartitionField
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Field, too_deep
from lakeformat.model.work import (
    Adopted,
    AdoptTask,
    DeleteTask,
    MarkTask,
    ReadTask,
    RewriteTask,
    WriteTask,
    WrittenFile,
    paths_of,
)
from lakeformat.storage.store import Store

_BATCH_BYTES = 64 << 20  # Bytes of a batch of the data.


class ArrowEngine:
    """Runs in this process, on `threads` threads (by default one per core)."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = max(1, threads or os.cpu_count() or 1)

    def read(
        self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...], limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The rows of all tasks in order, read ahead by some megabytes per thread; raises as `worker.read` while it is
        consumed."""
        schema = arrow_schema(fields)
        parts = chain.from_iterable(map(partial(worker.parts, store, fields=fields), tasks))
        # The first rows of all are in one file or a few.
        are_few = limit is not None and limit <= worker.BATCH_ROWS and all(task.predicate == ALWAYS for task in tasks)
        batches = map(layouts.based, _limited(ahead.read(parts, 1 if are_few else self.threads), limit))
        return pa.RecordBatchReader.from_batches(schema, once.never_without(schema, batches))

    def write(self, store: Store, data: Any, task: WriteTask) -> list[WrittenFile]:
        """Rows to files; `data` is whatever `batches` takes."""
        return worker.write(store, batches(data, task.fields, task.partition_by), task, threads=self.threads)

    def count(self, store: Store, tasks: Sequence[ReadTask]) -> list[int]:
        """For each task, the number of rows that satisfy its predicate."""
        counts = [0] * len(tasks)
        parts = chain.from_iterable(map(partial(worker.counts, store), tasks, range(len(tasks))))
        for index, count in ahead.read(parts, self.threads):
            counts[index] += count
        return counts

    def rewrite(self, store: Store, tasks: Sequence[RewriteTask]) -> list[list[WrittenFile]]:
        """The files that each task wrote. If one fails, the files of the others are deleted as far as possible."""
        is_plain = not any(task.upgrades or task.older for task in tasks)  # No keys are looked up on other levels.
        if not is_plain:
            return self._each(store, partial(lookup.rewrite, store), tasks)
        return self._each(
            store, partial(worker.rewrite, store, threads=max(1, self.threads // max(1, len(tasks)))), tasks
        )

    def mark(self, store: Store, tasks: Sequence[MarkTask]) -> list[list[WrittenFile]]:
        """The delete files that each task wrote. If one fails, those of the others are deleted too."""
        return self._each(store, partial(marks.mark, store), tasks)

    def rewrite_deletes(self, store: Store, tasks: Sequence[DeleteTask]) -> list[list[WrittenFile]]:
        """The earlier deletes of all targets of each task, in new files."""
        return self._each(store, partial(marks.rewrite, store), tasks)

    def adopt(self, store: Store, tasks: Sequence[AdoptTask]) -> list[Adopted]:
        """Existing files as files of the table."""
        return list(store.several(partial(adopt.adopt, store), tasks, self.threads))

    def stage(self, store: Store, data: Any, layout: WriteTask, hints: tuple[Field, ...]) -> ArrowSource:
        """The source of a merge, in memory; `data` is whatever `batches` takes."""
        pieces = list(gather.joined(batches(data, hints, layout.partition_by)))
        table = pa.Table.from_batches(pieces) if pieces else arrow_schema(hints).empty_table()
        untyped = untyped_columns(table.schema)
        return ArrowSource(store, typed(table, hints), partial(self._each, store), self.threads, untyped)

    def _each(self, store: Store, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """The results of `work` for each task, in order. If one fails, the files that the others wrote are deleted."""
        if len(tasks) <= 1 or self.threads == 1:
            return _all_or_nothing(store, map(work, tasks))
        with ahead.pool(self.threads, "rewrite", len(tasks)) as pool:
            waiting = [pool.submit(work, task) for task in tasks]
            try:
                return _all_or_nothing(store, (future.result() for future in waiting))
            except BaseException:
                _discard(store, waiting)
                raise


def batches(
    data: Any, fields: tuple[Field, ...] = (), partition_by: tuple[PartitionField, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """Rows in any supported form, as Arrow in the plain layout (`codec.layouts`), in batches of some megabytes.

    `pyarrow` tables, batches, readers, datasets and scanners; pandas frames, with the named levels of their index;
    polars frames, also lazy ones; anything with `__arrow_c_stream__` or `__arrow_c_array__`; a dict of columns; dicts
    (converted by the types of `fields`), where all rows or none have the columns in `partition_by`; an iterable of
    batches. Raises `InvalidInput` for anything else, and if Arrow cannot convert it.
    """
    try:
        for batch in _batches(data, fields, partition_by):
            yield from layouts.plain_batches(batch, _BATCH_BYTES)
    except LakeError:
        raise
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"the data does not make Arrow columns: {error}") from error
    except UnicodeEncodeError as error:  # Half of a surrogate pair.
        raise InvalidInput(f"the data has text that is not Unicode: {error}") from error
    except (ValueError, TypeError, OverflowError) as error:
        if type(data).__module__.partition(".")[0] != "pandas":
            raise
        raise InvalidInput(f"the frame does not make Arrow columns: {error}") from error
    except RecursionError as error:
        raise too_deep("the data") from error


def in_memory(data: Any) -> pa.Table:
    """All rows of `data`, which is whatever `batches` takes."""
    return pa.Table.from_batches(batches(data))


def _batches(
    data: Any, fields: tuple[Field, ...], partition_by: tuple[PartitionField, ...] = ()
) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.Table):
        return _typed(data.schema, data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return _typed(data.schema, once.parts(data))
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and hasattr(data, "columns"):
        return _batches(_from_pandas(_indexed(data), fields), fields)
    if library == "polars" and hasattr(data, "collect"):
        return _batches(data.collect(engine="streaming"), fields)
    if library == "pyarrow" and hasattr(data, "scanner"):  # A dataset.
        return _batches(data.scanner().to_reader(), fields)
    if library == "pyarrow" and hasattr(data, "to_reader"):
        return _batches(data.to_reader(), fields)
    if library in ("duckdb", "_duckdb") and hasattr(data, "project"):
        data = data.project("*")  # All rows, also where the relation was fetched from.
    if hasattr(data, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(data)
        return _typed(stream.schema, stream)
    if library == "pyspark":
        raise UnsupportedFeature(
            "a Spark DataFrame comes to this process partition by partition from PySpark 4.1 on; before, "
            "give frame.toArrow()"
        )
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    if isinstance(data, Mapping):
        try:
            return _batches(pa.table({name: _values(values, name) for name, values in data.items()}), fields)
        except TypeError as error:
            raise InvalidInput(f"the data does not make Arrow columns: {error}") from error
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return _rows(data, fields, partition_by).to_batches()
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        parts = once.parts(data)
        if isinstance(first := next(parts, None), Mapping):
            rows = [first, *parts]
            if strangers := [row for row in rows if not isinstance(row, Mapping)]:
                raise InvalidInput(f"among the dicts of the data is a {type(strangers[0]).__name__}; give dicts alone")
            return _rows(rows, fields, partition_by).to_batches()
        return _checked(parts if first is None else chain([first], parts))
    raise InvalidInput(
        f"{type(data).__name__} is not data that can be written; give a pyarrow.Table, a RecordBatchReader, "
        f"a pandas or polars DataFrame, a Spark DataFrame or a list of dicts"
    )


def _typed(schema: pa.Schema, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, preceded by one without rows, so that columns are checked even if there is no other."""
    plain = pa.schema([layouts.plain_field(field) for field in schema])
    yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in plain], schema=plain)
    yield from pieces


def _indexed(frame: Any) -> Any:
    """A pandas frame with the named levels of its index as columns. Raises `InvalidInput` if there is a column of that
    name."""
    index = getattr(frame, "index", None)
    named = [name for name in getattr(index, "names", ()) if name is not None]
    for name in named:
        if name in frame.columns or named.count(name) > 1:
            raise InvalidInput(
                f"the frame's index is called {name!r}, and so is another column: rename one, or leave the index out "
                f"(frame.reset_index(drop=True))"
            )
    return frame.reset_index(level=named) if named else frame


def _from_pandas(frame: Any, fields: tuple[Field, ...]) -> pa.Table:
    """The rows of a pandas frame. Maps, which pandas holds as lists of pairs, have the types of `fields`."""
    kinds = {field.name: field.type for field in arrow_schema(fields) if _has_map(field.type)}
    maps = [name for name in frame.columns if name in kinds]
    rest = frame.drop(columns=maps)
    objects = [index for index, kind in enumerate(rest.dtypes) if kind == "object"]
    for index in objects:
        python_values.require_no_mix(rest.iloc[:, index], str(rest.columns[index]))
    table = pa.Table.from_pandas(rest, preserve_index=False)
    for index in objects:
        python_values.require_kept(rest.iloc[:, index], table.column(index), table.column_names[index])
    for name in maps:
        try:
            column = pa.array(frame[name], kinds[name], from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInput(f"column {name!r}: {error}") from error
        table = table.append_column(name, column)
    return table


def _has_map(type: pa.DataType) -> bool:
    return pa.types.is_map(type) or any(_has_map(type.field(index).type) for index in range(type.num_fields))


def _rows(
    data: Sequence[Mapping[str, Any]], fields: tuple[Field, ...], partition_by: tuple[PartitionField, ...]
) -> pa.Table:
    by_name = {field.name: field for field in arrow_schema(fields)}
    names = dict.fromkeys(name for row in data for name in row)
    if strangers := [name for name in names if not isinstance(name, str)]:
        raise InvalidInput(f"a row has the key {strangers[0]!r}; columns are named by text")
    for name in {by.source for by in partition_by} & names.keys():
        if (lacking := next((index for index, row in enumerate(data) if name not in row), None)) is not None:
            raise InvalidInput(
                f"column {name!r} is a partition column, and row {lacking} lacks it while other rows have it: give it "
                "in all rows, None for a null"
            )
    columns = [
        python_values.column((row.get(name) for row in data), name, by_name[name].type if name in by_name else None)
        for name in names
    ]
    return pa.table(columns, list(names)) if columns else pa.table({})


def _values(values: Any, name: str) -> Any:
    return python_values.column(values, name) if isinstance(values, list | tuple) else values


def _checked(data: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for part in data:
        if isinstance(part, pa.Table):
            yield from part.to_batches()
        elif isinstance(part, pa.RecordBatch):
            yield part
        else:
            raise InvalidInput(f"an iterable of {type(part).__name__} is not data; give Arrow record batches")


def _limited(pieces: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    if limit is None:
        yield from pieces
        return
    left = limit
    while left > 0:
        batch = next(pieces, None)
        if batch is None:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _all_or_nothing(store: Store, results: Iterator[Any]) -> list[Any]:
    done: list[Any] = []
    try:
        done.extend(results)
    except BaseException:
        with suppress(LakeError):
            store.delete(_written(done))
        raise
    return done


def _written(results: Sequence[Any]) -> list[str]:
    """The files among the results of tasks."""
    return paths_of(file for result in results if isinstance(result, list) for file in result)


def _discard(store: Store, waiting: Sequence[Future[Any]]) -> None:
    """Cancel tasks that have not started, and delete what the others still write."""
    for future in waiting:
        if not future.cancel() and future.exception() is None:
            with suppress(LakeError):
                store.delete(_written([future.result()]))
