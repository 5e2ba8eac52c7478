"""Maintenance beside maintenance: another process expires, compacts or deletes a tag between any two storage calls of a
verb, which then goes round and does not fail."""

import copy
import datetime
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import LakeError, NotFound
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.cache import Cache
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.warehouse.roots import FORMATS
from tests.draw import ends_and_some
from tests.simulation.turns import Watched

TABLES = {
    "paimon": ("paimon", {"snapshot.num-retained.min": "1"}),
    "vectors": ("paimon", {"deletion-vectors.enabled": "true", "snapshot.num-retained.min": "1"}),
    "iceberg": ("iceberg", {"write.delete.mode": "merge-on-read", "format-version": "2"}),
}
VERBS = {
    "expire": lambda table: table.expire_snapshots(retain_last=1),
    "delete_tag": lambda table: table.delete_tag("a"),
    "compact": lambda table: table.compact(full=True),
    "sweep": lambda table: table.remove_orphan_files(older_than=datetime.timedelta(days=-1), dry_run=True),
}
BESIDE = {
    **VERBS,
    "compact_and_expire": lambda table: (table.compact(full=True), table.expire_snapshots(retain_last=1)),
}


class BeforeCall(Watched):
    """A store before whose call number `n` (from 1) something else happens, once."""

    def __init__(self, store: MemoryFiles, n: int, happens: Callable[[], object]) -> None:
        self._store, self._n, self._happens, self.calls = store, n, happens, 0

    def location(self, path: str) -> str:
        return self._store.location(path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self._n:
                self._happens()
            return getattr(self._store, name)(*arguments)

        return call


@cache
def world(name: str) -> MemoryFiles:
    """The files of a table with two tags, eight snapshots, and delete files or vectors if it has them."""
    format, options = TABLES[name]
    store = MemoryFiles("memory://side-by-side")
    table = Table("t", store, FORMATS[format](Cache()))
    fields = (Field(1, "id", scalar(Kind.BIGINT)), Field(2, "v", scalar(Kind.STRING)))
    create(table, Schema(fields, properties=options))
    for start in range(4):
        table.append(pa.table({"id": [2 * start, 2 * start + 1], "v": ["a", "b"]}))
        table.delete(f"id = {2 * start}")
        if start < 2:
            table.create_tag("ab"[start])
    return store


def copied(name: str) -> MemoryFiles:
    begun = world(name)
    store = copy.copy(begun)
    store._files = dict(begun._files)
    return store


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", TABLES)
def test_maintenance_goes_round_when_other_maintenance_is_faster(name: str, verb: str, beside: str):
    format = TABLES[name][0]
    counting = BeforeCall(copied(name), 0, lambda: None)
    VERBS[verb](Table("t", counting, FORMATS[format](Cache())))
    for n in ends_and_some(range(1, counting.calls + 1), 2, name, verb, beside):
        store = copied(name)
        other = Table("t", store, FORMATS[format](Cache()))

        def happens(other: Table = other) -> None:
            with suppress(LakeError):  # It sees a table between two steps of the verb, and may refuse to go on.
                BESIDE[beside](other)

        watched = BeforeCall(store, n, happens)
        try:
            VERBS[verb](Table("t", watched, FORMATS[format](Cache())))
        except NotFound:
            assert verb == beside == "delete_tag"
        left = Table("t", store, FORMATS[format](Cache()))
        assert left.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 3, 5, 7], (n, verb, beside)
        assert left.missing_files() == [], (n, verb, beside)
        assert left.scan(tag="b").count() == 2
