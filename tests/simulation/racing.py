"""A race of callers who ask again, in any world: what each was told, for the world to judge."""

import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from lakeformat import commit as commit_module
from lakeformat.errors import CommitError, CommitUnknown, LakeError, NotFound, StoreError
from lakeformat.model.operation import Operation
from lakeformat.model.snapshot import Snapshot, Stamp
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.store import Store
from tests.simulation.turns import FaultyStore, LateStore, Turns

SEEDS = int(os.environ.get("LAKEFORMAT_SEEDS", "20"))  # Of each race; 10,000 before a release.
FREE_NAME_SEEDS = max(SEEDS // 6, 1)  # Of races in which names become free again: these are long.
ENOUGH = 200  # To find what is wrong where something is: the first one ends it.
Commit = Callable[..., Snapshot]


class Told(Enum):
    DONE = auto()  # A snapshot came back.
    REFUSED = auto()  # Conflict or CommitLost: nothing landed, and the files are gone.
    UNKNOWN = auto()  # No answer, however often asked.


@dataclass(frozen=True)
class Report:
    operation: Operation
    told: Told
    snapshot: Snapshot | None = None


class World(Protocol):
    """A table format in simulation."""

    dialect: Any
    fault_ratio: float  # Of calls that change something.
    read_fault_ratio: float
    pause_ratio: float  # Of calls before which an actor is stopped for a while.
    asks_again: bool  # Whether callers ask again by the same id: not where expiry may have dropped what tells.

    def found(self, seed: int) -> MemoryFiles:
        """A table to race on."""
        ...

    def operation(self, store: Store, random: random.Random, id: str) -> Operation | None:
        """Something to commit, its files written; None where there is nothing to do."""
        ...

    def around(self, store: Store, operation: Operation) -> AbstractContextManager[None]:
        """What a verb does around the commit of an operation."""
        ...

    def aside(self, store: Store, random: random.Random) -> None:
        """Work that is no commit: expiry, the sweep of a restore."""
        ...

    def violations(self, store: MemoryFiles, reports: Sequence[Report]) -> list[str]:
        """What is wrong with the table, told from its bytes."""
        ...


def race(
    world: World,
    seed: int,
    attempts: int,
    commit: Commit = commit_module.commit,
    head: Callable[[Store], Any] | None = None,
    actors: int | None = None,
    turns_each: int = 3,
    faults: bool = True,
    seen: Callable[[Any], Any] = lambda store: store,
    moves: list[int] | None = None,
) -> list[str]:
    """Violations after one seeded race; the world's own names for them. `seen`: what makes an actor's store the table's; `moves`
    is told how many turns there were."""
    turns, store = Turns(seed, world.pause_ratio if faults else 0.0), world.found(seed)
    reports: list[Report] = []
    actors = actors or 2 + seed % 3
    head = head or world.dialect.head

    def work(actor: str) -> Callable[[], None]:
        chance = random.Random(f"{seed}/{actor}")
        ratios = (world.fault_ratio, world.read_fault_ratio) if faults else (0.0, 0.0)
        faulty: Any = seen(FaultyStore(store, turns, actor, *ratios))
        count = 0

        def stamp(attempt: int) -> Stamp:
            nonlocal count
            count += 1
            return Stamp(1_700_000_000_000 + seed, f"{seed}-{actor}-{count}", attempt)

        def once(turn: int) -> None:
            operation = world.operation(faulty, chance, f"{actor}-{turn}")
            if operation is None:
                return
            for _ in range(4 if world.asks_again else 1):
                try:
                    with world.around(faulty, operation):
                        snapshot = commit(
                            faulty, head(faulty), world.dialect, operation, attempts,
                            stamp=stamp, sleep=lambda seconds: None, jitter=lambda: 0.0, clock=lambda: 0.0,
                        )  # fmt: skip
                except CommitUnknown:
                    continue
                except CommitError:
                    reports.append(Report(operation, Told.REFUSED))
                    return
                except (StoreError, NotFound):
                    continue  # Neither tells. NotFound: the snapshot to restore has gone.
                reports.append(Report(operation, Told.DONE, snapshot))
                return
            reports.append(Report(operation, Told.UNKNOWN))

        def run() -> None:
            for turn in range(turns_each):
                try:
                    once(turn)
                    world.aside(faulty, chance)
                except StoreError:
                    continue  # Its files could not be written, or its base not read: nothing was asked.

        return run

    try:
        turns.race({f"w{i}": work(f"w{i}") for i in range(actors)})
    except (LakeError, AssertionError, KeyError) as error:
        return [f"seed {seed}, {attempts} attempts: {type(error).__name__}: {error}"]
    finally:
        if moves is not None:
            moves.append(turns.moves)
    return [f"seed {seed}, {attempts} attempts: {violation}" for violation in world.violations(store, reports)]


def lands_late(world: World, seen: Callable[[Any], Any], commit: Commit) -> tuple[CommitError | None, int]:
    """(what a caller heard who asked again after no answer, while its first attempt landed before its second could; how often the
    operation is in the table's history)."""
    store = world.found(0)
    late: Any = seen(LateStore(store))
    chance = random.Random(0)
    operation = next(filter(None, (world.operation(store, chance, "again") for _ in range(100))))

    def ask() -> CommitError | None:
        try:
            commit(late, world.dialect.head(late), world.dialect, operation, 1, sleep=lambda seconds: None)
        except CommitError as error:
            return error
        return None

    assert isinstance(ask(), CommitUnknown), "the first attempt heard an answer"
    lost = ask()
    plain: Any = seen(store)
    history = commit_module.newest(plain, world.dialect).history.snapshots()
    return lost, [snapshot.operation_id for snapshot in history].count("again")


def race_for_free_names(world: World, seeds: int = FREE_NAME_SEEDS, **how: Any) -> list[str]:
    """Races in which a writer is stopped while the others use and free the name it is about to create. Says how many seeds and
    calls of storage it took; ends at the first violation."""
    calls, strays, wrong, seed = 0, 0, [], -1
    judge = world.violations

    def violations(store: Any, reports: Sequence[Report]) -> list[str]:
        nonlocal strays
        strays += len(store.strays)
        return judge(store, reports)

    world.violations = violations  # type: ignore[method-assign]
    for seed in range(seeds):
        told: list[int] = []
        wrong = race(world, seed, 1 + seed % 3, actors=3, turns_each=6, moves=told, **how)
        calls += sum(told)
        if wrong:
            break
    print(f"{seed + 1} seeds, {calls} turns of 3 writers, {strays} names taken again: {wrong[:1] or 'nothing lost'}")
    assert wrong or strays or seeds < 20, "no name became free while a writer was stopped: nothing was tested"
    return wrong


def without(rule: str, original: str, replacement: str, module: ModuleType = commit_module) -> Any:
    """The module's code with one rule taken out, as a namespace; proves that the rule is there and what it is for."""
    assert module.__file__ is not None
    with open(module.__file__) as file:
        source = file.read()
    assert source.count(original) == 1, (
        f"{rule}: {original!r} stands {source.count(original)} times in {module.__name__}"
    )
    changed = sys.modules[f"{module.__name__} without {rule}"] = ModuleType(f"{module.__name__} without {rule}")
    exec(compile(source.replace(original, replacement), changed.__name__, "exec"), changed.__dict__)
    return changed


class Instead:
    """A format of whose views some functions are others, which get the view first."""

    def __init__(self, format: Any, **functions: Callable[..., Any]) -> None:
        self._format, self._functions = format, functions

    def load(self, *arguments: Any, **named: Any) -> Any:
        return _Other(self._format.load(*arguments, **named), self._functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._format, name)


class _Other:
    def __init__(self, view: Any, functions: dict[str, Callable[..., Any]]) -> None:
        self._view, self._functions = view, functions

    def __getattr__(self, name: str) -> Any:
        return partial(self._functions[name], self._view) if name in self._functions else getattr(self._view, name)
