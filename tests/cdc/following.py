"""A world for change data capture: a table in memory whose storage fails, and what a changelog must lead to."""

import random
from contextlib import contextmanager
from types import SimpleNamespace

from lakeformat import SourceError, Table
from lakeformat.lake import FORMATS
from lakeformat.model.schema import Schema
from lakeformat.storage.cache import Cache
from lakeformat.table import create


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
