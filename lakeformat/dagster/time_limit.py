"""Work on many things side by side, with a time limit for each: what hangs or fails does not stop the others."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_UNLIMITED = float("inf")
MOST_STUCK = 32  # Threads past their limit that may still run. A thread cannot be ended from outside.


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T, R]):
    """What came of the work on an item: a result, or the error that it ended with, or `TimeoutError`."""

    item: T
    result: R | None = None
    error: BaseException | None = None


def each_in_time(
    work: Callable[[T, Callable[[float], None]], R], items: Iterable[T], at_once: int
) -> Iterator[Outcome[T, R]]:
    """The outcomes of `work` for each item, as they come; `at_once` items are worked on side by side, in order.

    `work` calls its second argument with the seconds that it may take from then on. Work past its limit is left to
    itself, its outcome is dropped, and the next item begins. If more than `MOST_STUCK` are, the other items end as
    `TimeoutError` without having begun.
    """
    messages: queue.SimpleQueue[tuple[int, float | Outcome[T, R]]] = queue.SimpleQueue()
    waiting = enumerate(items)  # Asked for an item when one can begin.
    running: dict[int, tuple[T, float, float]] = {}  # By number: the item, its seconds, and when they are over.
    stuck: list[threading.Thread] = []
    threads: dict[int, threading.Thread] = {}

    def run(number: int, item: T) -> None:
        try:
            outcome: Outcome[T, R] = Outcome(item, result=work(item, lambda seconds: messages.put((number, seconds))))
        except BaseException as error:  # Of a thread of its own: handed to the caller.
            outcome = Outcome(item, error=error)
        messages.put((number, outcome))

    while True:
        stuck = [thread for thread in stuck if thread.is_alive()]
        if len(stuck) > MOST_STUCK:
            for _, item in waiting:
                yield Outcome(item, error=TimeoutError(f"not begun, as {len(stuck)} others hang"))
        for number, item in islice(waiting, at_once - len(running)):
            threads[number] = threading.Thread(target=run, args=(number, item), daemon=True, name=f"in-time-{number}")
            running[number] = (item, _UNLIMITED, _UNLIMITED)
            threads[number].start()
        if not running:
            return
        end = min((end for _, _, end in running.values()))
        try:
            number, message = messages.get(timeout=None if end == _UNLIMITED else max(0.0, end - time.monotonic()))
        except queue.Empty:
            for number in [number for number, (_, _, end) in running.items() if end <= time.monotonic()]:
                item, seconds, _ = running.pop(number)
                stuck.append(threads.pop(number))
                yield Outcome(item, error=TimeoutError(f"no end after {seconds:g} seconds"))
            continue
        if number not in running:
            continue  # It came too late.
        if isinstance(message, Outcome):
            del running[number], threads[number]
            yield message
        else:
            running[number] = (running[number][0], message, time.monotonic() + message)
