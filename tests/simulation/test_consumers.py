"""Readers of changes beside expiry: what a consumer needs next is kept, in every kind of table, and nothing is read twice."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from lakeformat import Lake, NotFound
from tests.draw import some

TRACKING = {"row-tracking.enabled": "true"}
EVOLUTION = {**TRACKING, "data-evolution.enabled": "true"}
VECTORS = {"deletion-vectors.enabled": "true"}
KINDS = {
    "plain": ({}, []),
    "vectors": (VECTORS, []),
    "tracking": (TRACKING, []),
    "tracking vectors": ({**TRACKING, **VECTORS}, []),
    "evolution": (EVOLUTION, []),
    "evolution vectors": ({**EVOLUTION, **VECTORS}, []),
    "keyed": ({"bucket": "1"}, ["id"]),
    "keyed input": ({"bucket": "1", "changelog-producer": "input"}, ["id"]),
    "keyed full": ({"bucket": "1", "changelog-producer": "full-compaction"}, ["id"]),
    "keyed lookup": ({"bucket": "1", "changelog-producer": "lookup"}, ["id"]),
}
FIELDS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64()), pa.field("w", pa.int64())])


class Reader:
    """A consumer, and the rows that it has put together from the changes."""

    def __init__(self, table, name, keyed):
        self.table, self.name, self.keyed, self.rows, self.by_key = table, name, keyed, Counter(), {}

    def read(self):
        changes = self.table().changes(consumer=self.name)
        for row in changes.to_arrow().to_pylist():
            kind, values = row.pop("_row_kind"), tuple(row.values())
            if self.keyed:
                if kind in ("+I", "+U"):
                    self.by_key[values[0]] = values
                elif kind == "-D":
                    self.by_key.pop(values[0], None)
            else:
                self.rows[values] += 1 if kind in ("+I", "+U") else -1
        changes.acknowledge()

    def seen(self):
        return Counter(self.by_key.values()) if self.keyed else +self.rows


class World:
    def __init__(self, kind, seed, folder):
        self.random, (self.properties, self.key) = random.Random(f"{kind} {seed}"), KINDS[kind]
        self.lake, self.next = Lake(str(folder)), 0
        properties = {**self.properties, "write-only": "true"}
        self.lake.create_table("d.t", FIELDS, primary_key=self.key, properties=properties)
        self.branch = None
        self.readers = [Reader(self.table, name, bool(self.key)) for name in ("one", "two")]
        self.moves_rows = "data-evolution.enabled" not in properties or "deletion-vectors.enabled" in properties

    def table(self):
        return self.lake.table("d.t")

    def append(self):
        rows = {"id": [self.next, self.next + 1], "v": [0, 1], "w": [self.random.randrange(9)] * 2}
        self.next += 2
        self.table().append(pa.table(rows).cast(FIELDS))

    def update(self):
        self.table().update({self.random.choice("vw"): "v + 10"}, where=f"id % 3 = {self.random.randrange(3)}")

    def delete(self):
        if self.moves_rows:
            self.table().delete(f"id % 7 = {self.random.randrange(7)}")

    def compact(self):
        if not (self.key and self.properties.get("changelog-producer") is None):
            self.table().compact(full=True)

    def expire(self):
        self.table().expire_snapshots(retain_last=1)

    def tag(self):
        self.table().create_tag(f"tag-{self.next}-{self.random.random()}")

    def untag(self):
        tags = self.table().inspect.tags()["tag_name"].to_pylist()
        if tags:
            self.table().delete_tag(self.random.choice(tags))

    def fork(self):
        if self.branch is None and self.table().snapshots():
            self.table().create_branch("side")
            self.branch = Reader(self.side, "beside", bool(self.key))
            start = self.side().current_snapshot().id
            self.side().changes(start, consumer="beside").acknowledge()
            self.branch.rows = self.rows_of(self.side())
            self.branch.by_key = {row[0]: row for row in self.branch.rows}

    def side(self):
        return self.table().branch("side")

    def beside(self):
        if self.branch is None:
            return
        step = self.random.choice(["append", "expire", "read"])
        if step == "append":
            rows = {"id": [1000 + self.next], "v": [0], "w": [0]}
            self.next += 1
            self.side().append(pa.table(rows).cast(FIELDS))
        elif step == "expire":
            self.side().expire_snapshots(retain_last=1)
        else:
            self.branch.read()

    def read(self):
        self.random.choice(self.readers).read()

    def rows_of(self, table):
        return Counter(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in some(range(500), 2, kind)])
def test_a_consumer_reads_on_after_any_expiry(kind, seed, tmp_path):
    world = World(kind, seed, tmp_path)
    for reader in world.readers:  # A consumer keeps what it needs from its first acknowledgement on.
        reader.read()
    world.append()
    steps = [world.append, world.append, world.update, world.delete, world.compact, world.expire, world.expire]
    steps += [world.read, world.read, world.tag, world.untag, world.fork, world.beside, world.beside]
    for step in world.random.choices(steps, k=14):
        step()
    if world.properties.get("changelog-producer") in ("lookup", "full-compaction"):
        world.table().compact(full=True)
    world.expire()
    for reader in world.readers:
        reader.read()
        assert reader.seen() == world.rows_of(world.table()), reader.name
    if world.branch is not None and "changelog-producer" not in world.properties:
        world.branch.read()
        assert world.branch.seen() == world.rows_of(world.side())
    assert world.table().missing_files() == []


def test_changes_before_an_expired_snapshot_are_refused(tmp_path):
    table = Lake(str(tmp_path)).create_table("d.t", FIELDS, properties=EVOLUTION)
    for id in range(3):
        table.append(pa.table({"id": [id], "v": [0], "w": [0]}).cast(FIELDS))
    table.update({"v": "1"})
    table.expire_snapshots(retain_last=1)
    with pytest.raises(NotFound):
        table.changes(2).to_arrow()
