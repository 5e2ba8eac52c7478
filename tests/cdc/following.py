"""A world for change data capture: a table in memory whose storage fails, and what a changelog must lead to."""

import os
import random
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import pytest

from lakeformat import LakeError, SourceError, Table
from lakeformat.cdc import sync_table
from lakeformat.lake import FORMATS
from lakeformat.model.schema import Schema
from lakeformat.storage.cache import Cache
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import create
from tests.simulation.failing import NthCallFails

IS_LONG = int(os.environ.get("LAKEFORMAT_SEEDS", "100")) > 1000  # `make test-long`.
CALLS_THAT_FAIL = pytest.mark.parametrize(
    ("what", "step"), [("storage", 1 if IS_LONG else 307), ("source", 1 if IS_LONG else 103)]
)


class OneTable:
    """A lake of one table, over any store."""

    def __init__(self, store, format):
        self.store, self.format = store, format

    def create_table(self, name, fields, *, primary_key, properties, if_exists, **others):
        table = Table(name, self.store, FORMATS[self.format](Cache()))
        if not self.store.list(""):
            create(table, Schema(tuple(fields), primary_key=tuple(primary_key), properties=properties or {}))
        return table


class NthFetchFails:
    """A source whose call or fetch number `n` (from 1) raises, before its effect or `after` it; all others do as they should."""

    def __init__(self, source, n, after):
        self._source, self._n, self._after, self._count = source, n, after, 0
        self.failed = None

    @property
    def name(self):
        return self._source.name

    def __getattr__(self, name):
        return self._counted(name, getattr(self._source, name))

    def _counted(self, name, call):
        def counted(*arguments):
            self._count += 1
            fails = self._count == self._n
            if fails and not self._after:
                self._fail(name)
            made = call(*arguments)
            if fails:
                self._fail(name)
            return self._fetched(name, made) if name == "changes" else self._viewed(made) if name == "view" else made

        return counted

    def _fail(self, name):
        self.failed = name
        raise SourceError(f"{name} fails")

    def _fetched(self, name, items):
        fetch = self._counted(f"{name}: fetch", lambda: next(items, None))
        while (item := fetch()) is not None:
            yield item

    @contextmanager
    def _viewed(self, view):
        with view as opened:
            yield SimpleNamespace(
                text=opened.text,
                until=opened.until,
                chunks=lambda *given: self._fetched("chunks", opened.chunks(*given)),
            )


def replay(changes, key):
    """The rows that a changelog leads to, by key; fails where a change is there twice, or one is left out."""
    rows = {}
    for change in changes:
        kind = change.pop("_row_kind")
        at = tuple(change[name] for name in key)
        if kind in {"+I", "+U"}:
            assert at not in rows, f"{kind} of {at}, which is there: {change}"
            rows[at] = change
        else:
            assert rows.pop(at, None) == change, f"{kind} of {at}, which is not there: {change}"
    return rows


def any_call_may_fail(source, name, anew, execute, rows_there, format, what, step):
    """The n-th call of the storage, or the n-th fetch from the source, fails before its effect or after it, in a snapshot of three chunks or in the
    batches after it; every n in `make test-long`. `anew()` makes the source's table `(id, v)` without rows, and `rows_there()` returns what it has."""
    properties, failures = {"changelog-producer": "input", "bucket": "1"} if format == "paimon" else {}, 0

    def sync(over, of):
        return sync_table(of, name, OneTable(over, format), "d.t", format, properties=properties, batch_rows=2)

    def fails(n, after):
        """Whether there was an n-th call; checks what came of it."""
        anew()
        execute("INSERT INTO t VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)")
        store = MemoryFiles()
        faulty = NthCallFails(store, n, after) if what == "storage" else NthFetchFails(source, n, after)
        over, of = (faulty, source) if what == "storage" else (store, faulty)
        for step in range(2):
            try:
                sync(over, of)
            except LakeError:
                source.close()
                over, of = store, source
                sync(over, of)
            execute(
                "BEGIN", f"UPDATE t SET v = {step + 1} WHERE id < 3", f"DELETE FROM t WHERE id = {step + 3}", "COMMIT"
            )
            execute(f"INSERT INTO t (id, v) VALUES ({10 + step}, {step})")
            if step == 0:
                execute("ALTER TABLE t ADD d int DEFAULT 7", "UPDATE t SET d = 8 WHERE id = 2")
        sync(store, source)
        table = OneTable(store, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
        expected, found = rows_there(), table.scan().to_arrow().sort_by("id").to_pylist()
        assert found == expected, f"call {n}: {faulty.failed}"
        if format == "paimon":
            told = replay(table.changes(0).to_arrow().to_pylist(), ["id"])
            assert [told[key] for key in sorted(told)] == expected, f"call {n}: {faulty.failed}"
        return faulty.failed is not None

    for after in (False, True) if IS_LONG else (what == "storage",):
        for n in count(1, step):
            if not fails(n, after):
                break
            failures += 1
    source.close()
    assert failures


class Workload:
    """Random transactions on a table `(id, version, name, note)` of a PostgreSQL server; the seed says which."""

    def __init__(self, connection, table, seed):
        self.connection, self.table, self.draw = connection, table, random.Random(seed)
        self.version = 0

    def step(self):
        """One transaction of up to six statements, one of five rolled back."""
        statements = [self._statement() for _ in range(self.draw.randint(1, 6))]
        is_undone = self.draw.random() < 0.2
        self.connection.execute("BEGIN")
        for each in statements:
            self.connection.execute(each)
        self.connection.execute("ROLLBACK" if is_undone else "COMMIT")

    def _statement(self):
        self.version += 1
        id, other = self.draw.randint(1, 60), self.draw.randint(1, 60)
        name = self.draw.choice(["NULL", "''", "'a'", "'ä\"\n,'"])
        note = f"repeat('n{self.version}', {self.draw.choice([0, 1, 3000])})"
        match self.draw.randint(0, 5):
            case 0:
                return f"DELETE FROM {self.table} WHERE id = {id}"
            case 1:
                return (
                    f"UPDATE {self.table} SET id = {other}, version = {self.version} "
                    f"WHERE id = {id} AND NOT EXISTS (SELECT 1 FROM {self.table} WHERE id = {other})"
                )
            case 2:
                return f"UPDATE {self.table} SET version = {self.version} WHERE id BETWEEN {id} AND {id + 5}"
            case _:
                return (
                    f"INSERT INTO {self.table} VALUES ({id}, {self.version}, {name}, {note}) "
                    f"ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, name = EXCLUDED.name"
                )
