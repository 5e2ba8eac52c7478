"""What verbs ask of storage: each metadata file is read once, and the head's folder is listed once before the commit."""

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.lake import FORMATS
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.cache import Cache
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create

METADATA = ("metadata/", "snapshot/", "schema/", "manifest/", "index/", "tag/")
BESIDE = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
TABLES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "iceberg": ("iceberg", (), {}),
    "iceberg merge-on-read": ("iceberg", (), BESIDE),
    "paimon": ("paimon", (), {}),
    "paimon deletion vectors": ("paimon", (), {"deletion-vectors.enabled": "true"}),
    "paimon primary key": ("paimon", ("id", "p"), {"bucket": "1", "write-only": "true"}),
}
VERBS: dict[str, Callable[[Table], Any]] = {
    "scan": lambda t: t.scan(where="id = 5").to_arrow(),
    "append": lambda t: t.append(rows(5, 100)),
    "overwrite": lambda t: t.overwrite(rows(5, 100), where="id in (5, 100)"),
    "overwrite_partitions": lambda t: t.overwrite_partitions(rows(5, 100)),
    "delete": lambda t: t.delete("id = 5"),
    "update": lambda t: t.update({"v": "'z'"}, "id = 5"),
    "merge": lambda t: (
        t.merge_into(rows(5, 100), "t.id = s.id and t.p = s.p")
        .when_matched()
        .update_all()
        .when_not_matched()
        .insert_all()
        .merge()
    ),
    "compact": lambda t: t.compact(full=True),
    "expire": lambda t: t.expire_snapshots(retain_last=1),
}


class Counted:
    """A store that notes what is asked of it."""

    def __init__(self, store: MemoryFiles) -> None:
        self._store = store
        self.read_counts: Counter[str] = Counter()  # Of files that are there.
        self.asked: list[tuple[str, str]] = []  # (call, path), in order.

    @property
    def root(self) -> str:
        return self._store.root

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if name == "location":
                return self._store.location(*args)
            for path in args[0] if name in {"read_many", "delete", "remove_empty_folders"} else args[:1]:
                inside = path.removeprefix(f"{self.root}/")
                self.asked.append((name, inside))
                if name in {"read", "read_many", "open"} and self._store.exists(path):
                    self.read_counts[inside] += 1
            return getattr(self._store, name)(*args)

        return call


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids), "v": ["a"] * len(ids), "p": pa.array([id % 2 for id in ids], pa.int32())})


def world(name: str) -> tuple[Table, Counted]:
    """A table of three commits to two partitions, and its store; nothing is known of it yet."""
    format, key, options = TABLES[name]
    kinds = {"id": Kind.BIGINT, "v": Kind.STRING, "p": Kind.INT}
    fields = tuple(Field(id, name, scalar(kind)) for id, (name, kind) in enumerate(kinds.items()))
    store = MemoryFiles(f"memory://requests/{uuid.uuid4()}")
    table = Table("t", store, FORMATS[format](Cache()))
    create(table, Schema(fields, partitioning=identity("p"), primary_key=key, properties=options))
    for start in (0, 10, 20):
        table.append(rows(*range(start, start + 10)))
    counted = Counted(store)
    return Table("t", counted, FORMATS[format](Cache())), counted


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_each_metadata_file_once_and_lists_the_head_once_before_its_commit(name: str, verb: str):
    table, store = world(name)
    VERBS[verb](table)
    often = {path: n for path, n in store.read_counts.items() if n > 1 and path.startswith(METADATA)}
    if name.startswith(
        "paimon"
    ):  # A snapshot's number can be given anew, so the commit looks whether it is still that one.
        often = {path: n for path, n in often.items() if n > 2 or not path.startswith("snapshot/")}
    assert often == {}
    folder = "metadata" if name.startswith("iceberg") else "snapshot"
    looks = [place for place, (call, path) in enumerate(store.asked) if call == "names" and path == folder]
    commit = next((place for place, (call, path) in enumerate(store.asked) if call == "create"), None)
    if commit is not None:  # The verb's own look, the loop's, and the head's directly before it creates.
        assert len([place for place in looks if place < commit]) <= (4 if verb == "expire" else 3)
    else:
        assert len(looks) <= 1
