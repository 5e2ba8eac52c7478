"""Files that several threads write: as one thread writes them, whenever the threads are ready."""

from __future__ import annotations

import io
import random
import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.engines import worker
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.files import parquet
from lakeformat.errors import InvalidInput, StoreError
from lakeformat.model.partition import SortField, identity
from lakeformat.model.predicate import call, column, eq, literal
from lakeformat.model.schema import Kind, scalar
from lakeformat.model.work import Encoding, RewriteTask, WriteTask
from lakeformat.storage.memory import MemoryFiles
from tests.unit.engines.test_worker import FIELDS, field, folder, reading, sample

ROWS = (field(0, "id", Kind.BIGINT), field(1, "day", Kind.INT), field(2, "amount", Kind.DOUBLE))
TASK = WriteTask(fields=ROWS, directory=folder, encoding=Encoding(compression="zstd"))
DAILY = replace(TASK, partition_by=identity("day").fields)


@pytest.fixture
def store():
    return MemoryFiles()


def rows(count, seed=3):
    rng = np.random.default_rng(seed)
    amounts = np.where(rng.random(count) < 0.01, np.nan, rng.normal(size=count))
    return pa.table({"id": np.arange(count), "day": rng.integers(0, 5, count).astype("int32"), "amount": amounts})


def write(store, table, task, threads, chunk_bytes=1 << 14, **limits):
    return worker.write(store, table.to_batches(700), task, chunk_bytes=chunk_bytes, threads=threads, **limits)


def shape(store, file):
    """What a file's name and time of writing do not change."""
    content = pq.ParquetFile(pa.BufferReader(store.read(file.path)), page_checksum_verification=True)
    groups = [content.metadata.row_group(index).to_dict() for index in range(content.metadata.num_row_groups)]
    for chunk in (chunk for group in groups for chunk in group["columns"]):
        del chunk["file_offset"]  # Deprecated: 0 where the row group was encoded beside the file.
    facts = replace(file, path="", created_ms=0, size_bytes=round(file.size_bytes, -3))
    return repr(facts), repr(groups), str(content.schema).partition("\n")[2], repr(content.read().to_pylist())


@pytest.mark.parametrize("part_bytes", [1, 1 << 10, 1 << 30])
@pytest.mark.parametrize("sort_by", [(), (SortField(("id",)),)])
def test_a_file_is_as_one_thread_writes_it(store, monkeypatch, sort_by, part_bytes):
    monkeypatch.setattr(parquet, "PART_BYTES", part_bytes)
    task = WriteTask(fields=FIELDS, directory=folder, sort_by=sort_by)
    table = sample(3000)
    alone, together = (write(store, table, task, threads) for threads in (1, 4))
    assert [shape(store, file) for file in alone] == [shape(store, file) for file in together]
    assert pq.ParquetFile(pa.BufferReader(store.read(together[0].path))).metadata.num_row_groups > 3 or sort_by


@pytest.mark.parametrize("part_bytes", [1, 1 << 30])
@pytest.mark.parametrize("kind", [(Kind.UUID,), (Kind.TIMESTAMP, 9), (Kind.VARIANT,)])
def test_what_arrow_does_not_write_is_the_same_too(store, monkeypatch, kind, part_bytes):
    monkeypatch.setattr(parquet, "PART_BYTES", part_bytes)
    fields = (ROWS[0], replace(ROWS[1], name="v", type=scalar(*kind)))
    random = np.random.default_rng(5)
    values = {
        Kind.UUID: lambda: pa.array([random.bytes(16) for _ in range(4000)], pa.binary(16)),
        Kind.TIMESTAMP: lambda: pa.array(random.integers(0, 10**18, 4000), pa.timestamp("ns")),
        Kind.VARIANT: lambda: pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}] * 4000),
    }
    table = pa.table({"id": np.arange(4000), "v": values[kind[0]]()})
    options = {parquet.VARIANTS: "annotated"} if kind == (Kind.VARIANT,) else {}
    task = WriteTask(fields=fields, directory=folder, encoding=Encoding(options=options))
    alone, together = (write(store, table, task, threads, 1 << 12) for threads in (1, 4))
    assert [shape(store, file) for file in alone] == [shape(store, file) for file in together]


@pytest.mark.parametrize("seed", range(4))
def test_files_and_row_groups_do_not_depend_on_when_threads_are_ready(store, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(parquet, "PART_BYTES", rng.choice([1, 1 << 12, 1 << 30]))
    task = replace(rng.choice([TASK, DAILY]), target_size_bytes=rng.choice([40_000, 150_000, 1 << 30]))
    threads, limits = rng.choice([2, 3, 8]), {"buffer_bytes": rng.choice([1 << 15, 1 << 18])}
    table = rows(40_000, seed)
    encode = parquet.Output.encode

    def late(output, part, *columns):
        time.sleep(rng.choice([0, 0, 0.003]))
        return encode(output, part, *columns)

    monkeypatch.setattr(parquet.Output, "encode", late)
    first, second = (write(store, table, task, threads, **limits) for _ in range(2))
    assert [shape(store, file) for file in first] == [shape(store, file) for file in second]
    table_again = pa.Table.from_batches(worker.read(store, reading(first, ROWS, ROWS)))
    assert table_again.sort_by("id").column("id").equals(table.column("id"))
    sizes = [file.size_bytes for file in first]
    assert max(sizes) < 1.5 * task.target_size_bytes, sizes


def test_row_groups_of_one_file_are_encoded_at_the_same_time(store, monkeypatch):
    together = threading.Barrier(3, timeout=20)
    encode = parquet.Output.encode
    calls = []

    def waiting(output, part, *columns):
        calls.append(part.num_rows)
        if len(calls) <= 3:
            together.wait()
        return encode(output, part, *columns)

    monkeypatch.setattr(parquet.Output, "encode", waiting)
    (file,) = write(store, rows(20_000), TASK, 3)
    assert file.row_count == 20_000
    assert len(calls) > 3


def test_columns_of_the_only_row_group_are_encoded_at_the_same_time(store, monkeypatch):
    table, whole = rows(300_000), 1 << 30
    (alone,) = write(store, table, TASK, 1, whole)
    together = threading.Barrier(2, timeout=20)
    encode = parquet.Output.encode

    def waiting(output, part, *columns):
        together.wait()
        return encode(output, part, *columns)

    monkeypatch.setattr(parquet.Output, "encode", waiting)
    (file,) = write(store, table, TASK, 2, whole)
    assert shape(store, file) == shape(store, alone)
    assert pq.ParquetFile(pa.BufferReader(store.read(file.path))).metadata.num_row_groups == 1


@pytest.mark.parametrize("most", [1, 2, 3, 16])
def test_parts_have_each_column_once_and_about_as_many_bytes(most):
    names = [f"c{index}" for index in range(5)]
    fields = tuple(field(index, name, Kind.BIGINT) for index, name in enumerate(names))
    table = pa.table({name: np.arange(1 << 19) for name in names})
    output = parquet.Output(io.BytesIO(), WriteTask(fields=fields, directory=folder))
    parts = output.parts(table, most)
    assert [name for part in parts for name in names[part]] == names
    assert len(parts) == min(most, 5)
    assert max(len(names[part]) for part in parts) == -(-5 // len(parts))


@pytest.mark.parametrize("at", [0, 2, 5])
def test_an_error_of_a_thread_leaves_no_file(store, monkeypatch, at):
    encode = parquet.Output.encode
    calls = []

    def failing(output, part, *columns):
        calls.append(None)
        if len(calls) == at + 1:
            raise OSError("no space left")
        return encode(output, part, *columns)

    monkeypatch.setattr(parquet.Output, "encode", failing)
    with pytest.raises(StoreError, match="no space left"):
        write(store, rows(40_000), replace(TASK, target_size_bytes=60_000), 4)
    assert store.list("") == []


def test_rows_are_split_and_rewritten_as_by_one_thread(store):
    files = write(store, rows(30_000), DAILY, 3, buffer_bytes=1 << 15)
    task = RewriteTask(
        (reading(files, ROWS, ROWS),),
        DAILY,
        eq(call("mod", column("id"), literal(7)), literal(3)),
        (("amount", call("add", column("amount"), literal(1.0))),),
        eq(call("mod", column("id"), literal(5)), literal(1)),
    )
    (alone,) = ArrowEngine(1).rewrite(store, [task])
    (together,) = ArrowEngine(4).rewrite(store, [task])
    assert [shape(store, file) for file in alone] == [shape(store, file) for file in together]
    assert sum(file.row_count for file in together) == 30_000 - len(range(3, 30_000, 7))


def test_rows_that_do_not_fit_are_refused_on_any_thread(store):
    table = pa.table({"id": [1], "day": pa.array(["x"]), "amount": [1.0]})
    with pytest.raises(InvalidInput, match="day"):
        write(store, table, DAILY, 4)
    assert store.list("") == []
