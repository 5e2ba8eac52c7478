"""A verb with its n-th storage call failing, for every n."""

import datetime
import io
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lakeformat import LakeError, StoreError
from lakeformat.dialects.dialect import Format
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.streams import NewFile
from lakeformat.table import Table
from tests.simulation.racing import SEEDS
from tests.simulation.turns import FaultyStore


def calls(step: int = 1, first: int = 1) -> Iterator[int]:
    """The numbers of the calls that are to fail, one a run: where much of a verb is what others do too, every `step`-th is enough for
    `make test`; `make test-long` takes all."""
    return itertools.count(1) if SEEDS > 1000 else itertools.count(first, step)


AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


class NthCallFails:
    """A store whose call number `n` (from 1) raises, before its effect or after it, or is `repeated` on its way, so that the second
    answer is heard; all others do as they should.

    Only calls that change something have an effect to come after, so only they are counted then.
    """

    def __init__(self, store: MemoryFiles, n: int, after: bool, repeated: bool = False) -> None:
        self._store, self._n, self._after, self._repeated = store, n, after or repeated, repeated
        self._count, self._lock = 0, threading.Lock()
        self.failed: str | None = None

    @property
    def root(self) -> str:
        return self._store.root

    def location(self, path: str) -> str:
        return self._store.location(path)

    def create_stream(self, path: str) -> NewFile:
        content = io.BytesIO()
        return NewFile(path, content.write, lambda: self.write(path, content.getvalue()), content.close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with self._lock:
                self._count += not self._after or name in FaultyStore.CHANGES
                fails = self._count == self._n and self.failed is None
            if fails:
                self.failed = f"{name}{arguments[:1]}"
            if fails and not self._after:
                raise StoreError(f"{name}: refused")
            answer = getattr(self._store, name)(*arguments)
            if fails and self._repeated:
                return getattr(self._store, name)(*arguments)
            if fails:
                raise StoreError(f"{name}: answer lost")
            return answer

        return call


class Reading:
    """A store that notes the files that are read, with their bytes."""

    def __init__(self, store: MemoryFiles) -> None:
        self._store = store
        self.files: dict[str, bytes] = {}

    @property
    def root(self) -> str:
        return self._store.root

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name in ("read", "open"):
                self.files[arguments[0]] = self._store.read(arguments[0])
            if name == "read_many":
                found = self._store.read_many(arguments[0])
                self.files |= {path: data for path, data in zip(arguments[0], found, strict=True) if data is not None}
            return getattr(self._store, name)(*arguments)

        return call


class Remembered:
    """What functions of a table's files gave, to be given again as long as the files that they read are the same: snapshots stay as
    they are while a verb fails at one call after the other, and reading each of them again takes most of the time."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[dict[str, bytes], Any]] = {}

    def __call__(self, key: Any, store: MemoryFiles, function: Callable[[Any], Any]) -> Any:
        if key in self._kept:
            files, answer = self._kept[key]
            if store.read_many(list(files)) == list(files.values()):
                return answer
        reading = Reading(store)
        answer = function(reading)
        self._kept[key] = reading.files, answer
        return answer


def holding(files: Mapping[str, bytes]) -> MemoryFiles:
    """A store with these files."""
    store = MemoryFiles()
    for path, data in files.items():
        store.write(path, data)
    return store


def fail_each_call(
    files: Mapping[str, bytes],
    dialect: Format,
    act: Callable[[Table], object],
    seen: Callable[[Table], Any],
    whole: Callable[[Table], Any],
    after: bool,
    numbers: Iterator[int],
) -> int:
    """After each failure `seen` is as before `act` or as after it, as after it if nothing was raised; and once it was asked
    again, `whole` is what it is where nothing fails. Returns the number of the last call of `numbers` that was tried."""

    def table(store: Any) -> Table:
        return Table("t", store, dialect)

    clean = table(holding(files))
    old = seen(clean)
    act(clean)
    new, end = seen(clean), whole(clean)
    for n in numbers:
        store = holding(files)
        failing, told = NthCallFails(store, n, after), None
        try:
            act(table(failing))
        except LakeError as error:
            told = error
        if failing.failed is None:
            assert told is None
            break
        where = f"call {n}, {failing.failed}, told {told!r}"
        assert seen(table(store)) in ([new] if told is None else [old, new]), where
        act(table(store))
        assert whole(table(store)) == end, where
    assert n > 1
    return n
