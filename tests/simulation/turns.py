"""Racing writers, one at a time: a seed decides who runs next and which call fails, so a failure replays."""

import io
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lakeformat.errors import StoreError
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.streams import NewFile


class Turns:
    """Hands one baton among actors; it moves only when an actor calls the store. With a chance of `pause_ratio` before a
    call (ten times that before a `create` and directly after it, where commits are decided) an actor is stopped there, as SIGSTOP
    or a slow put stops a process, for up to 500 calls of the others."""

    def __init__(self, seed: int, pause_ratio: float = 0.0) -> None:
        self.random, self.baton = random.Random(seed), threading.Condition()
        self.pause_ratio, self.moves = pause_ratio, 0
        self.actors: list[str] = []
        self.stopped: dict[str, int] = {}  # Actor -> the move at which it goes on.
        self.last: dict[str, str] = {}  # Actor -> the call it made last.
        self.holder: str | None = None
        self.late: list[Callable[[], object]] = []  # Writes whose answer is lost and whose effect is still to come.
        self.failures: list[BaseException] = []

    def race(self, actors: dict[str, Callable[[], None]]) -> None:
        """Run all of them to their ends; raises what one of them raised."""
        self.actors = list(actors)
        threads = [threading.Thread(target=self._run, args=item) for item in actors.items()]
        for thread in threads:
            thread.start()
        with self.baton:
            self._pass_on()
        for thread in threads:
            thread.join()
        for effect in self.late:
            effect()
        if self.failures:
            raise self.failures[0]

    def take(self, actor: str, call: str = "") -> None:
        with self.baton:
            often = 10 if "create" in (call, self.last.get(actor)) else 1
            self.last[actor] = call
            alone = all(until <= self.moves for until in self.stopped.values())  # The others have to go on.
            if self.pause_ratio and alone and self.random.random() < often * self.pause_ratio:
                self.stopped[actor] = self.moves + self.random.randrange(50, 500)
            if self.holder == actor:
                self._pass_on()
            self.baton.wait_for(lambda: self.holder == actor)

    def _run(self, actor: str, work: Callable[[], None]) -> None:
        with self.baton:
            self.baton.wait_for(lambda: self.holder == actor)
        try:
            work()
        except BaseException as error:
            self.failures.append(error)
        finally:
            with self.baton:
                self.actors.remove(actor)
                self._pass_on()

    def _pass_on(self) -> None:
        self.moves += 1
        running = [actor for actor in self.actors if self.stopped.get(actor, 0) <= self.moves]
        self.holder = self.random.choice(running or self.actors) if self.actors else None
        self.baton.notify_all()


class Watched:
    """A store, `_store`, of which every call goes through `__getattr__`: a file that is streamed is one `write`, and so is each
    of several."""

    _store: Any

    def several(self, work: Callable[[Any], Any], items: Iterable[Any], threads: int = 1) -> Iterator[Any]:
        return map(work, items)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.write(path, data)

    write_hints = write_many

    @property
    def root(self) -> str:
        return self._store.root

    def create_stream(self, path: str) -> NewFile:
        content = io.BytesIO()
        return NewFile(path, content.write, lambda: self.write(path, content.getvalue()), content.close)


class FaultyStore(Watched):
    """A store as one actor sees it.

    A call may fail before its effect, after it, or with the effect still to come; a `create` may be repeated by the
    client that makes it, which then hears that the file is there. Each with a chance of `fault_ratio`, or, for calls
    that only look, `read_fault_ratio`.
    """

    MAY_LAND_LATE = frozenset({"create", "swap"})
    CHANGES = MAY_LAND_LATE | {"write", "delete", "remove_empty_folders"}

    def __init__(
        self, store: MemoryFiles, turns: Turns, actor: str, fault_ratio: float, read_fault_ratio: float
    ) -> None:
        self._store, self._turns, self._actor = store, turns, actor
        self._faults = fault_ratio, read_fault_ratio

    @property
    def inner(self) -> MemoryFiles:
        """The store without faults, for the world to keep notes on."""
        return self._store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._turns.take(self._actor, name)
            roll, late = self._turns.random.random(), self._turns.late
            fault = self._faults[name not in self.CHANGES]
            while late and self._turns.random.random() < 0.3:
                late.pop(self._turns.random.randrange(len(late)))()
            if roll < fault:
                raise StoreError(f"{name}: refused")
            if name in self.MAY_LAND_LATE and roll < 2 * fault:
                late.append(lambda: getattr(self._store, name)(*args))
                raise StoreError(f"{name}: no answer yet")
            answer = getattr(self._store, name)(*args)
            if roll > 1 - fault:
                raise StoreError(f"{name}: answer lost")
            if name == "create" and roll > 1 - 2 * fault:
                return getattr(self._store, name)(*args)
            return answer

        return call


class LateStore(Watched):
    """A store whose first `create` or `swap` gets no answer, and takes effect when the next one is asked for."""

    def __init__(self, store: MemoryFiles) -> None:
        self._store = store
        self._late: Callable[[], Any] | None = None
        self._is_first = True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if name in FaultyStore.MAY_LAND_LATE and self._is_first:
                self._is_first, self._late = False, lambda: getattr(self._store, name)(*args)
                raise StoreError(f"{name}: no answer yet")
            if name in FaultyStore.MAY_LAND_LATE and self._late:
                self._late()
                self._late = None
            return getattr(self._store, name)(*args)

        return call
