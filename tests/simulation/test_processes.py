"""Real processes and real storage: four writers with many commits each; and writers that are killed."""

import datetime
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from lakeformat import Lake
from tests.draw import IS_LONG
from tests.simulation.writers import SCHEMA, write, write_until_killed
from tests.unit.s3_server import S3Server

WRITERS = 4
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


S3 = pytest.param(
    "s3", marks=pytest.mark.long("unit/storage/test_storage.py: of racing processes one creates, on S3 too")
)


@pytest.fixture(params=["local", S3])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str], int]]:
    """(warehouse, its options, commits of each writer: fewer where all wait for one slow server)."""
    if request.param == "local":
        yield str(tmp_path / "warehouse"), {}, 30 if IS_LONG else 10
    else:
        with S3Server() as server:
            yield f"{server.new_bucket()}/warehouse", server.options, 5


def test_four_processes_commit_at_the_same_time(where: tuple[str, dict[str, str], int]):
    uri, options, commits = where
    properties = {"commit.max-retries": "200", "manifest.merge-min-count": "10"}
    table = Lake(uri, **options).create_table("db.t", SCHEMA, partition_by=["dt"], properties=properties)
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WRITERS, mp_context=context, initializer=context.Barrier(WRITERS).wait) as pool:
        told = [each for told in pool.map(write, [(uri, options, i, commits) for i in range(WRITERS)]) for each in told]
    attempts = sum(attempts for _, _, attempts in told)
    print(f"{uri}: {len(told)} commits, {attempts} attempts, {time.monotonic() - started:.1f} s")
    history = table.snapshots()
    assert [s.id for s in history] == list(range(1, WRITERS * commits + 1)), "one snapshot a commit, none overwritten"
    assert {(s.operation_id, s.id) for s in history} == {(id, snapshot_id) for id, snapshot_id, _ in told}
    assert attempts > len(told), "no race was lost: nothing was tested"
    found = table.scan().to_arrow()
    shared = [writer * 1000 + i for writer in range(WRITERS) for i in range(commits) if i % 5 != 4]
    own = [writer * 1000 + commits - 1 for writer in range(WRITERS)]
    assert Counter(found["id"].to_pylist()) == Counter(shared + own), "nothing lost, nothing doubled"
    assert table.scan().count() == len(shared + own)
    assert [f.path for f in table.remove_orphan_files(older_than=AT_ONCE, dry_run=True) if "/bucket-" in f.path] == []


def test_a_killed_writer_changes_nothing_that_is_seen(tmp_path: Path):
    uri, seed = str(tmp_path / "warehouse"), random.randrange(1000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = Lake(uri).create_table("db.t", SCHEMA, partition_by=["dt"])
    context = multiprocessing.get_context("spawn")
    for turn in range(4 if IS_LONG else 2):
        ready = context.Event()
        process = context.Process(target=write_until_killed, args=(uri, turn, ready))
        process.start()
        assert ready.wait(400)  # A busy machine may need long to start a process, and to commit.
        begun = len(table.snapshots())
        while len(table.snapshots()) < begun + 2:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        asked = [s.operation_id for s in table.snapshots() if s.kind == "append"]
        assert len(set(asked)) == len(asked)
        assert Counter(table.scan(["id"]).to_arrow()["id"].to_pylist()) == Counter(list(range(20)) * len(asked))
        for snapshot in table.snapshots()[-3:]:
            table.scan(snapshot_id=snapshot.id).to_arrow()
    rows_before = len(table.scan().to_arrow())
    table.remove_orphan_files(older_than=AT_ONCE)
    assert len(table.scan().to_arrow()) == rows_before
    assert table.remove_orphan_files(older_than=AT_ONCE, dry_run=True) == []
    assert not list(Path(uri).rglob("*.tmp")), "the sweep takes files that were in the making"
    assert len(table.snapshots()) > 4, "the writers were killed before they wrote"
