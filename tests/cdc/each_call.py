"""A small workload whose every call fails once, and which is killed once after every call that changes something.

Three syncs: a snapshot in chunks; micro-batches, with an added column that is filled and a transaction larger than a batch; a comparison after a
statement that changes rows without the log. A sync is repeated from the files before it, so that its every call is tried in dozens of short runs.
"""

import os
import threading

from lakeformat import LakeError, StoreError
from lakeformat.cdc import sync_table
from lakeformat.storage.memory import MemoryFiles
from tests.cdc.following import IS_LONG, NthFetchFails, OneTable, changelog_properties, replay
from tests.simulation.failing import NthCallFails, holding
from tests.simulation.turns import FaultyStore

# Of all runs each `STEP`-th, beginning with `FIRST`: `make test-long` takes all, in one process or, by these variables, in several.
STEP = int(os.environ.get("LAKEFORMAT_CDC_STEP", "1" if IS_LONG else "197"))
FIRST = int(os.environ.get("LAKEFORMAT_CDC_FIRST", "15"))
BATCH_ROWS, ALL_ROWS = 3, 100_000
_MANY = ", ".join(f"({id}, 0, repeat('n', 900))" for id in range(20, 25))
_STAGES = (
    ("INSERT INTO t (id, v, note) VALUES (1, 0, 'a'), (2, 0, NULL), (3, 0, ''), (4, 0, 'd'), (5, 0, 'e'), (6, 0, 'f'), (7, 0, 'g')",),
    (
        "BEGIN", "UPDATE t SET v = 1 WHERE id < 3", "DELETE FROM t WHERE id = 4", "COMMIT",
        "INSERT INTO t (id, v, note) VALUES (10, 0, NULL)",
        "ALTER TABLE t ADD d int DEFAULT 7", "UPDATE t SET d = 8 WHERE id = 2",
        "BEGIN", f"INSERT INTO t (id, v, note) VALUES {_MANY}", "UPDATE t SET id = 30, v = 2 WHERE id = 20", "DELETE FROM t WHERE id = 21", "COMMIT",
    ),
    ("{rewrite}", "UPDATE t SET v = 3 WHERE id = 2"),
)  # fmt: skip
_COLUMNS = (("id", "v", "note"), ("id", "v", "note", "d"), ("id", "v", "note", "d"))
_BETWEEN = (  # Changes after the process is killed and before the next sync, in each part of the keys; as many rows as before.
    "BEGIN", "UPDATE t SET v = v + 1 WHERE id IN (1, 7, 22)", "DELETE FROM t WHERE id = 5", "INSERT INTO t (id, v, note) VALUES (5, {number}, 'new')",
    "COMMIT",
)  # fmt: skip


class Stopped(BaseException):
    """The process is told to end, as by Ctrl-C: what is being done is left, and what cleans up still works."""


class StopsAfter(NthCallFails):
    """A store whose process is told to end after the n-th call that changes something."""

    def __init__(self, store, n):
        super().__init__(store, n, after=True)

    def __getattr__(self, name):
        call = super().__getattr__(name)

        def stopping(*arguments):
            was_stopped = self.failed is not None
            try:
                return call(*arguments)
            except StoreError:
                # Ctrl-C stops the main thread; a compaction in another finds an error.
                if (
                    self.failed is not None
                    and not was_stopped
                    and threading.current_thread() is threading.main_thread()
                ):
                    raise Stopped from None
                raise

        return stopping


class Noted(NthCallFails):
    """A store that calls `note()` after each call that changes something."""

    def __init__(self, store, note):
        super().__init__(store, 0, after=False)
        self._note = note

    def __getattr__(self, name):
        call = super().__getattr__(name)

        def noted(*arguments):
            answer = call(*arguments)
            if name in FaultyStore.CHANGES:
                self._note()
            return answer

        return noted


class Kept:
    """A source that keeps its changes for a run from earlier files, whatever is acknowledged, and fails where acknowledged ones are read again.
    `note()` is called after each acknowledgement."""

    def __init__(self, source, acknowledged=None, note=lambda: None):
        self._source, self.acknowledged, self._note = source, acknowledged, note

    @property
    def name(self):
        return self._source.name

    def __getattr__(self, name):
        return getattr(self._source, name)

    def acknowledge(self, position):
        self.acknowledged = position if self.acknowledged is None else max(self.acknowledged, position)
        self._note()

    def changes(self, after, until, tables, limit):
        assert self.acknowledged is None or self.acknowledged <= after, f"{self.acknowledged} was acknowledged"
        return self._source.changes(after, until, tables, limit)


class World:
    """A table of a server, and what a sync of it into a table of `format` must lead to.

    `execute(*statements)`, `read(query)`: on the server, whose table `t (id, v, note)` has no rows. `rewrite`: a statement that changes rows of it
    without the log. `drop()`: breaks the connections of `source`. `anew()`: `source` no longer keeps changes for the table, if it ever does."""

    def __init__(self, source, name, execute, read, rewrite, drop, anew, format):
        self.source, self.name, self.execute, self.format = source, name, execute, format
        self.drop, self.anew, self._read, self._rewrite = drop, anew, read, rewrite
        # Compactions run within a commit, not beside those after it, so that calls have an order.
        self._properties = changelog_properties(format) and {
            **changelog_properties(format),
            "commit.force-compact": "true",
        }
        self._columns = ()
        self._rows, self._snapshot = [], 0  # Before the statements of the stage.

    def begin(self, stage, store):
        """Executes the statements of a stage; `store` has the table after those before."""
        if stage:
            self._rows, self._snapshot = self.rows_there(), self._table(store).current_snapshot().id
        self._columns = _COLUMNS[stage]
        self.execute(*(each.format(rewrite=self._rewrite) for each in _STAGES[stage]))

    def sync(self, store, source, batch_rows=BATCH_ROWS):
        lake = OneTable(store, self.format)
        sync_table(source, self.name, lake, "d.t", self.format, properties=self._properties, batch_rows=batch_rows)

    def rows_there(self):
        rows = self._read(f"SELECT {', '.join(self._columns)} FROM t ORDER BY id")
        return [dict(zip(self._columns, row, strict=True)) for row in rows]

    def check(self, store, rows, where):
        """The table has these rows, each run of transactions is one commit, and each change came once."""
        table = self._table(store)
        assert table.scan().to_arrow().sort_by("id").to_pylist() == rows, where
        commits = [each.properties for each in table.snapshots() if "cdc.committed-ms" in each.properties]
        positions = [self.source.parse(each["cdc.position"]) for each in commits]
        assert positions == sorted(set(positions)), where
        if self.format == "paimon":
            before = [{**dict.fromkeys(self._columns), **row} for row in self._rows]
            changed = replay(table.changes(self._snapshot).to_arrow().to_pylist(), ["id"], before)
            assert [changed[key] for key in sorted(changed)] == rows, where

    def _table(self, store):
        lake = OneTable(store, self.format)
        return lake.create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")


def every_call_fails_once(world):
    """Returns how many runs there were, of how many."""
    store, tried, every = MemoryFiles(), 0, 0
    print(f"LAKEFORMAT_CDC_STEP={STEP} LAKEFORMAT_CDC_FIRST={FIRST}: {world.format}, {world.source!r}")
    for stage in range(len(_STAGES)):
        world.begin(stage, store)
        base, rows = _files(store), world.rows_there()
        if stage == 0:
            world.anew()
        calls, changes, fetches, states = _recorded(world, base)
        storage = [("storage", n) for n in range(1, calls + 1)]
        storage += [(how, n) for how in ("storage, answer lost", "storage, stopped") for n in range(1, changes + 1)]
        hows = ("source", "source, answer lost", "source, connections drop")
        source = [(how, n) for how in hows for n in range(1, fetches + 1)]
        killed = [("killed", n) for n in range(len(states))]
        # The source is anew for each fault of it in the first stage, and then lacks the changes after the states of that stage.
        for how, n in (*storage, *killed, *source) if stage == 0 else (*storage, *source, *killed):
            every += 1
            if every % STEP != FIRST % STEP:
                continue
            tried += 1
            where = f"stage {stage}, {how}, {n} of {calls} calls, {fetches} fetches, {len(states)} states"
            if how == "killed":
                _goes_on(world, *states[n], n, where)
                rows = world.rows_there()
            else:
                if stage == 0 and how.startswith("source"):
                    world.anew()
                _fails(world, base, rows, how, n, where)
        world.sync(store, world.source, ALL_ROWS)
        world.check(store, rows, f"stage {stage}")
    print(f"{tried} runs of {every}")
    return tried, every


def _recorded(world, base):
    """A sync where nothing fails: how many calls of the storage, calls that change it, and calls of the source there are, and the states after each of
    these that changes something: the files, and what is acknowledged."""
    store, states = holding(base), [(base, None)]

    def note():
        states.append((_files(store), kept.acknowledged))

    kept = Kept(world.source, note=note)
    noted, counted = Noted(store, note), NthFetchFails(kept, 0)
    world.sync(noted, counted)
    world.check(store, world.rows_there(), "nothing fails")
    changes = sum(count for kind, count in noted.made.items() if kind.split()[0] in FaultyStore.CHANGES)
    return noted.made.total(), changes, counted.made, states


def _fails(world, base, rows, how, n, where):
    """One call fails, and the next sync goes on in a process of its own."""
    store, kept = holding(base), Kept(world.source)
    faulty = {
        "storage": lambda: NthCallFails(store, n, after=False),
        "storage, answer lost": lambda: NthCallFails(store, n, after=True),
        "storage, stopped": lambda: StopsAfter(store, n),
        "source": lambda: NthFetchFails(kept, n),
        "source, answer lost": lambda: NthFetchFails(kept, n, after=True),
        "source, connections drop": lambda: NthFetchFails(kept, n, drop=world.drop),
    }[how]()
    of_storage = how.startswith("storage")
    try:
        world.sync(faulty if of_storage else store, kept if of_storage else faulty)
    except (LakeError, Stopped):
        world.source.close()
        world.sync(store, kept, ALL_ROWS)
    world.source.close()
    assert faulty.failed is not None, where
    world.check(store, rows, f"{where}: {faulty.failed}")


def _goes_on(world, files, acknowledged, number, where):
    """A process is killed, the source changes, and the next sync goes on."""
    world.execute(*(each.format(number=number) for each in _BETWEEN))
    store = holding(files)
    world.sync(store, Kept(world.source, acknowledged), ALL_ROWS)
    world.check(store, world.rows_there(), where)


def _files(store):
    return {each.path: store.read(each.path) for each in store.list("")}
