"""A soak: four writers and a keeper (compaction, expiry, sweep) beside each other, killed again and again, against a model, for some minutes a
format; at the end another engine reads the table: `python -m tests.soak MINUTES [FORMAT ...]`.

Each writer has keys of its own, and its operations follow from the seed, its number and how many it has done. So it goes on after it was
killed: it repeats the operation that was under way, with the same id, which lands once.
"""

import datetime
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from lakeformat import CommitError, Lake, StoreError
from tests.judge.peers import Conversation

WRITERS, KEYS = 4, 10**9  # Keys of each writer.
SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("value", pa.int64())])
LATEST = datetime.timedelta(
    minutes=2
)  # What is younger is kept: by it a writer finds what landed, and a sweep spares what is being written.
TABLES = {
    "paimon": {"primary_key": ["id", "dt"], "properties": {"bucket": "2", "commit.max-retries": "100"}},
    "iceberg": {
        "properties": {
            "write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read", "commit.retry.num-retries": "100",
            # No writer touches another one's keys, but they share files.
            "write.delete.isolation-level": "snapshot", "write.merge.isolation-level": "snapshot",
            "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "200",
        }
    },
}  # fmt: skip
PEERS = {"paimon": "rust", "iceberg": "pyiceberg"}


def rows(values):
    """The rows of a model: value by key. The partition follows from the key."""
    return pa.table([list(values), [f"d{key % 5}" for key in values], list(values.values())], schema=SCHEMA)


def operation(seed, writer, number, model):
    """(verb, value by key) of a writer's operation; changes the model, the rows that the writer has."""
    chance = random.Random(f"{seed} {writer} {number}")
    verb = chance.choices(["append", "upsert", "delete"], [4, 3, 2])[0] if model else "append"
    old = chance.sample(sorted(model), min(len(model), chance.randrange(1, 12)))
    new = [writer * KEYS + number * 100 + i for i in range(chance.randrange(1, 30))]
    if verb == "delete":
        for key in old:
            del model[key]
        return verb, dict.fromkeys(old)
    values = dict.fromkeys([*old, *new[:5]] if verb == "upsert" else new, number)
    model.update(values)
    return verb, values


def model_of(seed, writer, done):
    model = {}
    for number in range(done):
        operation(seed, writer, number, model)
    return model


def write(root, seed, writer):
    """Operations, at least the one that was under way when the writer was killed, until there is a file `stop`."""
    done = progress(root, writer)
    model = model_of(seed, writer, done)
    table = Lake(f"{root}/w").table("db.t")
    while True:
        verb, values = operation(seed, writer, done, model)
        while True:
            try:
                match verb:
                    case "append":
                        table.append(rows(values), id=f"{writer}-{done}")
                    case "upsert":
                        table.upsert(rows(values), on=() if table.format == "paimon" else ["id"], id=f"{writer}-{done}")
                    case "delete":
                        table.delete(f"id IN ({', '.join(map(str, values))})", id=f"{writer}-{done}")
                break
            except (
                CommitError,
                StoreError,
            ) as error:  # Others were faster, or removed a file that was about to be read.
                print(f"writer {writer}: {verb} again: {str(error)[:150]}", flush=True)
        done += 1
        note(root, writer, done)
        if Path(root, "stop").exists():
            return


def keep(root, seed, keeper):
    chance, turns = random.Random(), progress(root, keeper)
    table = Lake(f"{root}/w").table("db.t")
    while not Path(root, "stop").exists():
        verb = chance.choice(["compact", "compact", "expire", "sweep"])
        try:
            match verb:
                case "compact":
                    table.compact()
                case "expire":
                    table.expire_snapshots(older_than=LATEST, retain_last=5)
                case "sweep":
                    table.remove_orphan_files(older_than=LATEST)
        except (CommitError, StoreError) as error:
            print(f"keeper: {verb}: {str(error)[:150]}", flush=True)
        turns += 1
        note(root, keeper, turns)
        time.sleep(chance.uniform(0, 1))


def progress(root, number):
    """How many operations a process has done, which is in a file."""
    path = Path(root, f"done-{number}")
    return int(path.read_text()) if path.exists() else 0


def note(root, number, done):
    Path(root, f"done-{number}.new").write_text(str(done))
    os.replace(Path(root, f"done-{number}.new"), Path(root, f"done-{number}"))


def soak(format, minutes, root, seed):
    """Raises AssertionError where the table is not the model."""
    context, chance = multiprocessing.get_context("spawn"), random.Random(seed)
    table = Lake(f"{root}/w").create_table("db.t", SCHEMA, format, ["dt"], **TABLES[format])
    work = [(write, writer) for writer in range(WRITERS)] + [(keep, WRITERS)]

    def started(number):
        target, writer = work[number]
        process = context.Process(target=target, args=(root, seed, writer))
        process.start()
        return process

    processes, before = [started(number) for number in range(len(work))], [0] * len(work)
    killed, looked, end = 0, time.monotonic(), time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.5, 4))
        number = chance.randrange(len(work))
        assert processes[number].exitcode is None, f"{work[number]} ended by itself: {processes[number].exitcode}"
        if progress(root, number) == before[number]:  # It has only just started.
            continue
        os.kill(processes[number].pid, signal.SIGKILL)
        processes[number].join()
        before[number], killed = progress(root, number), killed + 1
        processes[number] = started(number)
        if time.monotonic() - looked > 10:
            ids = table.scan(["id"]).to_arrow()["id"]
            assert len(ids.unique()) == len(ids), "rows are doubled"
            looked = time.monotonic()
    Path(root, "stop").touch()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0, process
    done = [progress(root, number) for number in range(WRITERS)]
    assert all(done), f"a writer did nothing: {done}"
    model = {}
    for writer in range(WRITERS):
        model |= model_of(seed, writer, done[writer])
    table = Lake(f"{root}/w").table("db.t")
    assert as_model(table.scan().to_arrow()) == model, "rows are lost or wrong"
    assert table.missing_files() == []
    assert foreign(format, table) == sorted(model), f"{PEERS[format]} reads other rows"
    return done, killed, len(model), len(table.snapshots())


def as_model(read):
    assert len(read) == len(read["id"].unique()), "rows are doubled"
    return dict(zip(read["id"].to_pylist(), read["value"].to_pylist(), strict=True))


def foreign(format, table):
    """The keys that the other engine reads."""
    folder = Path(table.uri.removeprefix("file://"))
    peer = Conversation(PEERS[format])
    try:
        if format == "paimon":
            answer = peer.ask(verb="read", warehouse=str(folder.parents[1]), table="db.t")
        else:
            versions = [int(path.name[1:].partition(".")[0]) for path in folder.glob("metadata/v*.metadata.json")]
            answer = peer.ask(verb="read", location=table.uri, version=max(versions))
    finally:
        peer.close()
    place = [column["name"] for column in answer["columns"]].index("id")
    return sorted(int(row[place]) for row in answer["rows"])


def main(minutes, formats):
    for format in formats:
        seed, root = random.randrange(10**6), tempfile.mkdtemp(prefix="soak-")
        print(f"{format}: {minutes} minutes, seed {seed}, in {root}", flush=True)
        done, killed, count, snapshots = soak(format, minutes, root, seed)
        print(
            f"{format}: {done} operations, {killed} kills, {count} rows, {snapshots} snapshots; {PEERS[format]} reads the same"
        )
        shutil.rmtree(root)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:] or list(TABLES))
