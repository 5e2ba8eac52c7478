"""The nodes of an expression: columns, values, calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate.functions import FUNCTIONS


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name, or a field inside one by its path, e.g. `("address", "city")`."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path[0]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value: None, bool, int, float, Decimal, str, bytes, date, time, datetime; a frozenset or tuple of those; an
    Arrow scalar of an array, map or struct.

    Equal to a value of its own type only (1 is not TRUE), and NaN to itself."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal) or type(self.value) is not type(other.value):
            return False
        return bool(self.value == other.value or (self.value != self.value and other.value != other.value))


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function by its name (see `FUNCTIONS`), applied to arguments."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Column | Literal | Call
ALWAYS = Literal(True)
NEVER = Literal(False)


def is_never(expression: Expression) -> bool:
    """Whether it is the value False or null, which no row satisfies."""
    return isinstance(expression, Literal) and (expression.value is False or expression.value is None)


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The conditions that must all be true; none for `ALWAYS`."""
    match expression:
        case Call("and", arguments):
            return tuple(part for argument in arguments for part in conjuncts(argument))
    return () if expression == ALWAYS else (expression,)


def paths_of(expression: Expression) -> frozenset[tuple[str, ...]]:
    """The paths of the columns that it reads."""
    match expression:
        case Column(path):
            return frozenset({path})
        case Call(_, arguments):
            return frozenset().union(*(paths_of(argument) for argument in arguments))
    return frozenset()


def columns_of(expression: Expression) -> frozenset[str]:
    """The names of the top-level columns that it reads."""
    return frozenset(path[0] for path in paths_of(expression))


def functions_of(expression: Expression) -> frozenset[str]:
    """The names of the operators and functions in it."""
    if not isinstance(expression, Call):
        return frozenset()
    return frozenset({expression.name}).union(*map(functions_of, expression.arguments))


def wants_values(expression: Expression) -> bool:
    """Whether it has a column as an argument for which the evaluator takes only one value for all rows, as in
    `replace(a, 'x', b)`."""
    match expression:
        case Call(name, arguments):
            at = FUNCTIONS[name].constants
            return any(
                wants_values(argument) or (i in at and paths_of(argument)) for i, argument in enumerate(arguments)
            )
    return False


def described(expression: Expression) -> str:
    """SQL-like text for messages; nothing has to parse it."""
    match expression:
        case Column(path):
            return ".".join(path)
        case Call(name, arguments):
            parts = [described(argument) for argument in arguments]
            infix = FUNCTIONS[name].infix if name in FUNCTIONS else ""
            return f"({f' {infix} '.join(parts)})" if infix else f"{name}({', '.join(parts)})"
    return repr(expression.value)


def rename(expression: Expression, mapping: Mapping[Any, Any]) -> Expression:
    """The expression over other columns. Keys and values are top-level names, or prefixes of paths as tuples.

    `{"a": "b"}` renames; `{("t",): ()}` drops a qualifier. The longest matching prefix wins; other paths stay
    unchanged.
    """
    prefixes = {_prefix(old): _prefix(new) for old, new in mapping.items()}

    def change(path: tuple[str, ...]) -> tuple[str, ...]:
        for length in range(len(path), 0, -1):
            new = prefixes.get(path[:length])
            if new is not None:
                renamed = new + path[length:]
                if not renamed:
                    raise InvalidInput(
                        f"{'.'.join(path)} names no column once {'.'.join(path[:length])!r} is taken away"
                    )
                return renamed
        return path

    def walk(node: Expression) -> Expression:
        match node:
            case Column(path):
                return Column(change(path))
            case Call(name, arguments):
                return Call(name, tuple(walk(a) for a in arguments))
        return node

    return walk(expression)


def _prefix(name: Any) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) else tuple(name)
