"""Files -> which of them are read together, and tasks that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np

T = TypeVar("T")


def cuts(sizes: np.ndarray, target: int, opening: int) -> np.ndarray:
    """The start of each task of about `target` bytes among files of these sizes, and the end of the last; a file counts
    as at least `opening` bytes."""
    most = target // max(opening, 1) + 1  # The most files of a task, if each counts only as much as opening it.
    if opening and (sizes <= opening).all():
        return np.append(np.arange(0, len(sizes), max(most - 1, 1)), len(sizes))
    weights = np.cumsum(np.maximum(sizes, opening))
    starts = [0]
    before = 0
    while starts[-1] < len(sizes):
        start = starts[-1]
        starts.append(start + max(int(weights[start : start + most].searchsorted(before + target, "right")), 1))
        before = int(weights[starts[-1] - 1])
    return np.array(starts, np.int64)


class OnDemand(Sequence[T]):
    """A sequence of `count` items; `make(i)` makes the i-th, anew each time, so items that are not used take no memory.
    Equal to any sequence of equal items."""

    __slots__ = ("_count", "_make")

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(number) for number in range(self._count)[index]]
        return self._make(range(self._count)[index])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # As Python does for a class with `__eq__`.

    def __add__(self, other: Sequence[T]) -> list[T]:
        return [*self, *other]

    def __radd__(self, other: Sequence[T]) -> list[T]:
        return [*other, *self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return repr(list(self))
