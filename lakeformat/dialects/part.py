"""What a view of a table and its parts share, and how a view has a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import TableState
from lakeformat.storage.store import Reader

S = TypeVar("S", bound=TableState, covariant=True)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Part(Generic[S]):
    """The reader and state that a view and its parts share."""

    reader: Reader
    state: S


class Owned(Generic[P]):
    """An attribute of a view: a part, made of the view's reader and state each time it is used."""

    def __init__(self, kind: Callable[[Reader, Any], P]) -> None:
        self._kind = kind

    @overload
    def __get__(self, view: None, owner: type) -> Owned[P]: ...
    @overload
    def __get__(self, view: Part[Any], owner: type) -> P: ...
    def __get__(self, view: Part[Any] | None, owner: type) -> P | Owned[P]:
        return self if view is None else self._kind(view.reader, view.state)
