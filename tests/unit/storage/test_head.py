"""The contested name: who wins, what a hint may not do, and what is said when storage does not answer."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakeformat.errors import NoSuchFile, StoreError
from lakeformat.model.snapshot import Outcome, Plan, Snapshot
from lakeformat.storage.head import CreateHead, FollowHead, Newest, RehearsedHead, load_newest, root_pointer
from lakeformat.storage.memory import MemoryFiles


def plan(version: int, root: bytes = b"root", hints: dict[str, bytes] | None = None) -> Plan:
    hints = {"snapshot/LATEST": str(version).encode()} if hints is None else hints
    return Plan({}, f"snapshot/snapshot-{version}", root, Snapshot(version, "append", 0, 0), hints)


class Failing:
    """A store whose named calls fail, before or after their effect."""

    def __init__(self, store: MemoryFiles, *calls: str, after: bool = False) -> None:
        self._store, self._calls, self._after = store, calls, after

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name in self._calls:
                if self._after:
                    getattr(self._store, name)(*arguments)
                raise StoreError(f"{name}: no answer")
            return getattr(self._store, name)(*arguments)

        return call


def test_versions_are_counted_from_one():
    store = MemoryFiles()
    head = CreateHead(store)
    assert head.version() == 0
    for version in range(1, 13):
        assert head.advance(version - 1, plan(version)) is Outcome.PUBLISHED
        assert head.version() == version
    assert store.read("snapshot/LATEST") == b"12"
    assert head.versions() == list(range(1, 13))


@pytest.mark.parametrize(
    "hint", [None, b"", b"garbage", b"3", b"9", b"-1", b"0", b"99999999999999999999", b"\xff", b"7\n"]
)
def test_the_hint_does_not_matter(hint: bytes | None):
    store = MemoryFiles()
    for version in (2, 3, 7):
        store.write(f"snapshot/snapshot-{version}", b"x")
    for other in (
        "snapshot-8.tmp",
        ".snapshot-9.x.tmp",
        "snapshot-",
        "snapshot-x",
        "snapshot-012",
        "EARLIEST",
        "deep/snapshot-11",
    ):
        store.write(f"snapshot/{other}", b"x")
    if hint is not None:
        store.write("snapshot/LATEST", hint)
    assert CreateHead(store).version() == 7


def test_a_slow_writer_that_sets_the_hint_back_misleads_nobody():
    """Snapshots 6 to 8 were undone by 9, then the writer of 5 wakes up and writes its hint."""
    store = MemoryFiles()
    head = CreateHead(store)
    for version in (5, 9):
        store.write(f"snapshot/snapshot-{version}", b"x")
    store.write("snapshot/LATEST", b"5")
    assert head.version() == 9
    assert head.advance(9, plan(10)) is Outcome.PUBLISHED
    assert head.versions() == [5, 9, 10]


class Listed(MemoryFiles):
    """Counts its listings."""

    count = 0

    def names(self, prefix: str) -> list[str]:
        self.count += 1
        return super().names(prefix)


def old_table() -> tuple[Listed, CreateHead]:
    """Three versions, the third of which a head has found twice to be the newest."""
    store = Listed()
    head = CreateHead(store, newest=Newest(few=1))
    for version in range(3):
        assert head.advance(version, plan(version + 1, f"root {version + 1}".encode())) is Outcome.PUBLISHED
    assert head.version() == head.version() == 3
    store.count = 0
    return store, head


def test_a_commit_to_a_folder_of_many_versions_lists_it_no_more():
    store, head = old_table()
    other = CreateHead(store)
    assert other.advance(3, plan(4, b"theirs")) is Outcome.PUBLISHED
    store.count = 0
    assert head.advance(3, plan(4, b"late")) is Outcome.LOST
    assert head.version() == 4
    assert head.version() == 4
    assert store.count == 2, "what others have made is listed, and found again before it is relied on"
    for version in range(4, 8):
        assert head.version() == version
        assert head.advance(version, plan(version + 1, f"root {version + 1}".encode())) is Outcome.PUBLISHED
    assert store.count == 2
    assert head.versions() == list(range(1, 9))


def test_a_version_whose_writer_died_before_its_hint_is_seen():
    store, head = old_table()
    assert CreateHead(store).advance(3, plan(4, b"theirs", hints={})) is Outcome.PUBLISHED
    assert head.version() == 4


@pytest.mark.parametrize("hint", [b"3", b"6", None])
@pytest.mark.parametrize("mark", [b"of a restore", None])
def test_what_became_free_above_a_version_that_was_the_newest_is_seen(hint: bytes | None, mark: bytes | None):
    """Versions 4 and 5 were undone by 6, and the hint may be late: the mark tells, or the hint where no mark is written."""
    store, head = old_table()
    store.write("snapshot/snapshot-6", b"restored from 3")
    for name, content in (("LATEST", hint), ("RESTORED", mark)):
        if content:
            store.write(f"snapshot/{name}", content)
        else:
            store.delete([f"snapshot/{name}"])
    is_seen = hint != b"3" or mark is not None
    assert head.version() == (6 if is_seen else 3), "a restore writes its mark"
    if is_seen:
        assert head.advance(3, plan(4, b"mine")) is Outcome.LOST


def test_a_name_that_became_free_between_the_look_and_the_create_is_no_proof():
    store, head = old_table()

    class Stopped(Listed):
        """Others make three versions, and expiry leaves the newest, before the create."""

        def create(self, path: str, data: bytes) -> bool:
            store.write("snapshot/snapshot-6", b"theirs")
            store.delete([f"snapshot/snapshot-{version}" for version in (1, 2, 3)])
            return store.create(path, data)

    stopped = Stopped()
    stopped._files = store._files
    assert CreateHead(stopped, newest=head.newest).advance(3, plan(4, b"mine")) is Outcome.UNKNOWN


def test_a_lost_race_is_a_value():
    store = MemoryFiles()
    head = CreateHead(store)
    assert head.advance(0, plan(1, b"mine")) is Outcome.PUBLISHED
    assert head.advance(0, plan(1, b"yours", hints={"snapshot/LATEST": b"777"})) is Outcome.LOST
    assert store.read("snapshot/snapshot-1") == b"mine"
    assert store.read("snapshot/LATEST") == b"1", "a loser gives no hints"


def test_a_rehearsal_loses_the_race_that_a_commit_would_lose():
    """The catalog's pointer moved after the state was read from which the plan was made."""
    store, real = MemoryFiles(), MemoryFiles()
    head = RehearsedHead(CreateHead(real), store, root_pointer)
    assert CreateHead(real).advance(0, plan(1)) is Outcome.PUBLISHED
    assert head.advance(0, plan(1)) is Outcome.LOST
    assert store.list("") == []
    assert head.advance(1, plan(2)) is Outcome.PUBLISHED
    assert (store.read("snapshot/snapshot-2"), CreateHead(real).version()) == (b"root", 1)


@pytest.mark.parametrize("after", [False, True])
def test_no_answer_raises(after: bool):
    store = MemoryFiles()
    with pytest.raises(StoreError):
        CreateHead(Failing(store, "create", after=after)).advance(0, plan(1))
    assert CreateHead(store).version() == int(after)


def test_a_race_whose_winner_cannot_be_read_is_no_answer():
    store = MemoryFiles()

    class Late(Failing):
        def create(self, path: str, data: bytes) -> bool:
            store.write(path, b"whose?")
            return False

    with pytest.raises(StoreError):
        CreateHead(Late(store, "read")).advance(0, plan(1))
    assert CreateHead(Late(store)).advance(1, plan(2)) is Outcome.LOST


class Repeating(Failing):
    """The store's client asks twice, and hears the second answer."""

    def create(self, path: str, data: bytes) -> bool:
        self._store.create(path, data)
        return self._store.create(path, data)


def test_a_root_that_is_there_and_ours_is_published():
    store = MemoryFiles()
    assert CreateHead(Repeating(store)).advance(0, plan(1, b"ours")) is Outcome.PUBLISHED
    assert store.read("snapshot/LATEST") == b"1"


@pytest.mark.parametrize("there", [(5, 9), (7, 8)])
def test_a_name_that_is_free_again_is_not_taken(there: tuple[int, int]):
    """Between load and publish, others went on, and a restore or an expiry deleted the versions in between."""
    store = MemoryFiles()
    for version in there:
        store.write(f"snapshot/snapshot-{version}", b"x")
    assert CreateHead(store).advance(5, plan(6)) is Outcome.LOST
    assert CreateHead(store).versions() == list(there)


@pytest.mark.parametrize("kept", [(2, 3), (3,)])
def test_a_name_that_became_free_after_the_look_proves_nothing(kept: tuple[int, ...]):
    """A writer is stopped between its look and its create, while others commit 1 to 3 and expire what is not `kept`."""
    store = MemoryFiles()

    class Stopped(Failing):
        def create(self, path: str, data: bytes) -> bool:
            for version in kept:
                store.write(f"snapshot/snapshot-{version}", b"x")
            return store.create(path, data)

    assert CreateHead(Stopped(store)).advance(0, plan(1)) is Outcome.UNKNOWN
    assert not store.exists("snapshot/LATEST"), "no hint leads to it"


def test_hints_may_fail():
    store = MemoryFiles()
    assert CreateHead(Failing(store, "write")).advance(0, plan(1)) is Outcome.PUBLISHED
    assert CreateHead(store).version() == 1


def test_a_head_that_storage_cannot_read_raises():
    with pytest.raises(StoreError):
        CreateHead(Failing(MemoryFiles(), "names")).version()


def test_a_newest_version_that_expires_before_it_is_read_is_looked_for_again():
    store = MemoryFiles()
    store.write("snapshot/snapshot-1", b"first")

    def load(version: int) -> bytes:
        store.write("snapshot/snapshot-2", b"second")
        if version == 1:
            store.delete(["snapshot/snapshot-1"])
        return store.read(f"snapshot/snapshot-{version}")

    assert load_newest(CreateHead(store), load) == b"second"
    loads = []
    with pytest.raises(NoSuchFile, match="manifest"):
        load_newest(CreateHead(store), lambda version: (loads.append(version), store.read("manifest"))[1])
    assert loads == [2], "nobody moved on: it is missing"


def test_of_racing_writers_one_advances():
    store = MemoryFiles()
    for version in range(1, 30):
        start = threading.Barrier(8)

        def race(i: int, version: int = version, start: threading.Barrier = start) -> Outcome:
            start.wait()
            return CreateHead(store).advance(version - 1, plan(version, b"%d" % i))

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(race, range(8)))
        assert sorted(o.name for o in outcomes) == ["LOST"] * 7 + ["PUBLISHED"]
        assert store.read(f"snapshot/snapshot-{version}") == b"%d" % outcomes.index(Outcome.PUBLISHED)


def followed(version: int, root: bytes = b"root") -> Plan:
    return Plan({}, f"snapshot/v{version}.json", root, Snapshot(version, "append", 0, 0), {"hint": b"%d" % version})


def following(store: Any) -> FollowHead:
    return FollowHead(store, "snapshot", "v", (".json",))


def test_a_follower_looks_again_after_its_version_is_there():
    """Another follower may have written a later one meanwhile: which of the two readers see is then unknown."""

    class Overtaken:
        def __init__(self, store: MemoryFiles) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def create(self, path: str, data: bytes) -> bool:
            created = self._store.create(path, data)
            self._store.write("snapshot/v9.json", b"newer")
            return created

    store = MemoryFiles()
    assert following(store).advance(0, followed(2)) is Outcome.PUBLISHED
    assert store.read("hint") == b"2"
    assert following(Overtaken(store)).advance(2, followed(5)) is Outcome.UNKNOWN
    assert store.read("hint") == b"2"
    assert following(store).advance(5, followed(6)) is Outcome.LOST
    assert following(store).advance(9, followed(9, b"again")) is Outcome.PUBLISHED
    assert (store.read("snapshot/v9.json"), store.read("hint")) == (b"again", b"9")
