"""A table option, declared once: its key, how its text is parsed, its default, and when it may be set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar, overload

V = TypeVar("V")
Parser = Callable[[str, str], V]  # (key, text) -> value; raises `InvalidInput`, which names the key.


class HasProperties(Protocol):
    @property
    def properties(self) -> Mapping[str, str]: ...


class Option(Generic[V]):
    """An option that lakeformat acts on. As an attribute of a class with `properties` it is the parsed value of its
    text there, or the default."""

    def __init__(
        self,
        key: str,  # A `*` stands for a name, e.g. of a column.
        parse: Parser[Any],
        default: V,
        *,
        fixed: bool = False,  # It is set when the table is created, and does not change.
        dynamic: bool = False,  # A reader or writer may use another value than the table's.
        of_columns: bool = False,  # Its value names columns.
    ) -> None:
        self.key, self.parse, self.default = key, parse, default
        self.fixed, self.dynamic, self.of_columns = fixed, dynamic, of_columns

    @overload
    def __get__(self, options: None, owner: type) -> Option[V]: ...
    @overload
    def __get__(self, options: HasProperties, owner: type) -> V: ...
    def __get__(self, options: HasProperties | None, owner: type) -> V | Option[V]:
        return self if options is None else self.read(options.properties)

    def read(self, properties: Mapping[str, str]) -> V:
        """The parsed value. Raises `InvalidInput`."""
        text = properties.get(self.key)
        if text is None:
            return self.default
        value: V = self.parse(self.key, text)
        return value


def as_text(key: str, text: str) -> str:
    return text


def read_by_key(*keys: str, fixed: bool = False, dynamic: bool = False) -> tuple[Option[str | None], ...]:
    """Options of any text, which the code that acts on them reads by their keys."""
    return tuple(Option[str | None](key, as_text, None, fixed=fixed, dynamic=dynamic) for key in keys)


def declared(owner: type, *others: Iterable[Option[Any]]) -> dict[str, Option[Any]]:
    """By key the options that are attributes of `owner`, and the others. Of options with the same key the first one."""
    attributes = (value for value in vars(owner).values() if isinstance(value, Option))
    result: dict[str, Option[Any]] = {}
    for option in chain(attributes, *others):
        result.setdefault(option.key, option)
    return result
