"""A verb with its n-th storage call failing, for every n."""

import datetime
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from lakeformat import LakeError, StoreError
from lakeformat.dialects.dialect import Format
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table
from tests.draw import IS_LONG, some
from tests.simulation.turns import FaultyStore, Watched

_NUMBERS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]+)+|\d+|(?<=dt=)[^/]+")
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


class NthCallFails(Watched):
    """A store whose call number `n` (from 1), or whose n-th call of a `kind`, raises, before its effect or after it, or is `repeated`
    on its way, so that the second answer is heard; all others do as they should.

    Only calls that change something have an effect to come after, so only they are counted then. `made`: how many calls of
    each kind there were.
    """

    def __init__(
        self, store: MemoryFiles, n: int, after: bool, repeated: bool = False, kind: str | None = None
    ) -> None:
        self._store, self._n, self._after, self._repeated = store, n, after or repeated, repeated
        self._kind, self._lock = kind, threading.Lock()
        self.failed: str | None = None
        self.made: Counter[str] = Counter()

    def location(self, path: str) -> str:
        return self._store.location(path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with self._lock:
                counts = not self._after or name in FaultyStore.CHANGES
                kind = _kind(name, *arguments)
                self.made[kind] += counts
                count = self.made.total() if self._kind is None else self.made[self._kind]
                fails = counts and self._kind in (None, kind) and count == self._n and self.failed is None
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


def faults(made: Counter[str], after: bool) -> list[tuple[int, str | None]]:
    """Which calls are to fail, one a run, of those that are `made` where nothing fails: (n, kind), as `NthCallFails` takes them.

    `make test-long` takes every call. `make test` takes two of the kinds of calls, and of each kind one call.
    """
    if IS_LONG:
        return [(n, None) for n in range(1, made.total() + 1)]
    kinds = some([kind for kind, count in made.items() if count], 2, *made, after)
    return [(some(range(1, made[kind] + 1), 1, kind, after)[0], kind) for kind in kinds]


def _kind(name: str, path: Any = "", *_: Any) -> str:
    """What a call does to which kind of file, whatever the file's numbers, ids and partition."""
    path = path if isinstance(path, str) else next(iter(path), "") if isinstance(path, list | tuple) else ""
    return f"{name} {_NUMBERS.sub('*', path)}"


_SNAPSHOT = re.compile(r"(^|/)snapshot/snapshot-\d+$")


class Reading(Watched):
    """A store that notes the files that are read, with their bytes, but of snapshots only the one of this `snapshot`."""

    def __init__(self, store: MemoryFiles, snapshot: str | None) -> None:
        self._store, self._snapshot = store, snapshot
        self.files: dict[str, bytes] = {}

    @property
    def root(self) -> str:
        return self._store.root

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            paths = [*arguments[0]] if name == "read_many" else [arguments[0]] if name in ("read", "open") else []
            paths = [path for path in paths if path == self._snapshot or not _SNAPSHOT.search(path)]
            contents = zip(paths, self._store.read_many(paths), strict=True)
            self.files |= {path: data for path, data in contents if data is not None}
            return getattr(self._store, name)(*arguments)

        return call


class Remembered:
    """What functions of a table's files gave, to be given again as long as the files that they read are the same: snapshots stay as
    they are while a verb fails at one call after the other, and reading each of them again takes most of the time."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[dict[str, bytes], Any]] = {}

    def __call__(self, key: Any, store: MemoryFiles, function: Callable[[Any], Any], snapshot: str | None) -> Any:
        """`function` reads an earlier `snapshot`, or a tag's: the newest one means nothing to it, and is another in each run."""
        if key in self._kept:
            files, answer = self._kept[key]
            if list(store.read_many(list(files))) == list(files.values()):
                return answer
        reading = Reading(store, snapshot)
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
) -> int:
    """After each failure `seen` is as before `act` or as after it, as after it if nothing was raised; and once it was asked
    again, `whole` is what it is where nothing fails. Returns how many calls `act` makes."""

    judge = type(dialect)()  # Reads what is stored, where a writer's own cache holds what it wrote.

    def table(store: Any) -> Table:
        return Table("t", store, dialect)

    def judged(store: Any) -> Table:
        return Table("t", store, judge)

    clean = holding(files)
    old = seen(judged(clean))
    counting = NthCallFails(clean, 0, after)
    act(table(counting))
    new, end = seen(judged(clean)), whole(judged(clean))
    for n, kind in faults(counting.made, after):
        store = holding(files)
        failing, told = NthCallFails(store, n, after, kind=kind), None
        try:
            act(table(failing))
        except LakeError as error:
            told = error
        where = f"call {n} of {kind or 'all'}, {failing.failed}, told {told!r}"
        assert seen(judged(store)) in ([new] if told is None else [old, new]), where
        act(table(store))
        assert whole(judged(store)) == end, where
    assert counting.made.total() > 0
    return counting.made.total()
