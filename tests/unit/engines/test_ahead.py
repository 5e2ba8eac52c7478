"""Batches that threads read ahead: their order, errors, bytes and threads."""

from __future__ import annotations

import random
import threading
import time
from itertools import islice

import pyarrow as pa
import pytest

from lakeformat.engines import ahead


def batch(value, size=1):
    return pa.record_batch({"v": pa.array([value] * size, pa.int64())})


def values(batches):
    return [value for part in batches for value in part.column("v").to_pylist()]


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("seed", range(5))
def test_batches_come_in_the_order_of_their_parts(monkeypatch, seed, threads):
    rng = random.Random(seed)
    monkeypatch.setattr(ahead, "_BYTES", rng.choice([1, 100, 1 << 20]))
    monkeypatch.setattr(ahead, "_PART_BYTES", rng.choice([1, 100, 1 << 20]))
    counts = [rng.randrange(6) for _ in range(rng.randrange(40))]

    def part(number, count):
        for index in range(count):
            time.sleep(rng.choice([0, 0, 0.0005]))
            yield batch(100 * number + index, rng.randrange(1, 20))

    parts = (lambda number=number, count=count: part(number, count) for number, count in enumerate(counts))
    found = list(dict.fromkeys(values(ahead.read(parts, threads))))
    assert found == [100 * number + index for number, count in enumerate(counts) for index in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_an_error_stands_where_the_next_batch_would(threads):
    def part(number):
        yield batch(number)
        if number == 3:
            raise ValueError("damaged")

    batches = ahead.read((lambda number=number: part(number) for number in range(9)), threads)
    assert values(islice(batches, 4)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="damaged"):
        next(batches)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_an_error_of_taking_the_parts_is_raised(threads):
    def parts():
        yield from (lambda: iter([batch(1)]) for _ in range(threads + 5))
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        list(ahead.read(parts(), threads))


@pytest.mark.parametrize("threads", [2, 4, 16, 64])
def test_every_thread_reads_a_part(threads):
    """Also where the first part takes longest: each of the others waits for one that begins after it."""
    together = threading.Barrier(threads, timeout=20)

    def part(number):
        together.wait()
        yield batch(number)

    found = values(ahead.read((lambda number=number: part(number) for number in range(3 * threads)), threads))
    assert found == list(range(3 * threads))


def test_a_first_part_that_takes_long_does_not_stop_the_other_threads():
    is_over = threading.Event()
    read = []

    def part(number):
        if number == 0:
            assert is_over.wait(20)
        read.append(number)
        if number == 7:
            is_over.set()
        yield batch(number)

    assert values(ahead.read((lambda number=number: part(number) for number in range(20)), 2)) == list(range(20))
    assert read[:7] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("threads", [2, 8])
def test_waiting_batches_are_bounded_by_bytes(monkeypatch, threads):
    size = batch(0, 100).nbytes
    monkeypatch.setattr(ahead, "_BYTES", 10 * size)
    monkeypatch.setattr(ahead, "_PART_BYTES", 2 * size)
    lock, counts = threading.Lock(), [0]

    def part(number):
        for _ in range(30):
            with lock:
                counts[0] += 1
            yield batch(number, 100)

    most = 0
    for index, each in enumerate(ahead.read((lambda number=number: part(number) for number in range(12)), threads)):
        assert each.column("v")[0].as_py() == index // 30
        time.sleep(0.0005)
        most = max(most, counts[0] - index)
    assert counts[0] == 360
    assert 10 < most <= 10 + 2 + threads + 1, most


def test_threads_end_when_their_rows_are_no_longer_wanted():
    begun = []

    def part(number):
        for _ in range(1000):
            begun.append(number)
            yield batch(number, 100_000)

    before = threading.active_count()
    rows = ahead.read((lambda number=number: part(number) for number in range(1000)), 4)
    assert len(list(islice(rows, 3))) == 3
    rows.close()
    assert threading.active_count() == before
    assert max(begun) < 4 * 4 + 1
