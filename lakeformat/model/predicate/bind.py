"""Bind expressions to the columns of a table: names are resolved, values converted to the columns' types."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model.predicate.builders import and_, call, in_tuples, is_in, is_not_null, is_null, not_, or_
from lakeformat.model.predicate.fit import TEXTS, fit, naive, negated
from lakeformat.model.predicate.functions import COMPARISONS, FLIPPED, FUNCTIONS
from lakeformat.model.predicate.nodes import NEVER, Call, Column, Expression, Literal, described
from lakeformat.model.schema import Field, Kind, Row, Scalar, Type, scalar, spelled
from lakeformat.model.type_text import parse_type


def bind(expression: Expression, fields: tuple[Field, ...]) -> Expression:
    """`expression` over the columns `fields`, with names resolved and values converted to the columns' types.

    Names match exactly, or else without regard to case if that is unique: `NotFound` names the existing columns. A
    value outside the column's type decides the comparison, null where the column is null. A value of a wrong type
    raises `InvalidInput` that names column, type and value.
    """
    match expression:
        case Column(path):
            return Column(resolve(path, fields)[0])
        case Literal():
            return expression
        case Call(("and" | "or" | "not") as name, arguments):
            bound = tuple(bind(argument, fields) for argument in arguments)
            return not_(bound[0]) if name == "not" else and_(*bound) if name == "and" else or_(*bound)
        case Call("in_tuples", (*columns, Literal(tuples))):
            return _bind_tuples([resolve(_path(c), fields) for c in columns], tuples)
        case Call("in", (operand, Literal(values))):
            return _bind_in(bind(operand, fields), values, fields)
        case Call(name, (left, right)) if name in COMPARISONS or name == "eq_null_safe":
            return _bind_comparison(name, bind(left, fields), bind(right, fields), fields)
        case Call(("like" | "starts_with" | "ends_with" | "contains") as name, arguments):
            bound = tuple(bind(argument, fields) for argument in arguments)
            _require_text(name, bound[0], fields)
            return call(name, *bound)
        case Call("variant_get", (operand, *how)):
            bound_operand = bind(operand, fields)
            _require_variant(bound_operand, fields)
            return Call("variant_get", (bound_operand, *how))
        case Call(name, arguments):
            return _folded(call(name, *(bind(argument, fields) for argument in arguments)))
    raise InvalidInput(f"not an expression: {expression!r}")


def resolve(path: tuple[str, ...], fields: tuple[Field, ...]) -> tuple[tuple[str, ...], Type]:
    """The path in the columns' spelling, and its type. Raises `NotFound`, naming the existing columns."""
    spelled_path: list[str] = []
    type: Type | None = None
    for name in path:
        if type is not None and not isinstance(type, Row):
            raise NotFound(f"no column {'.'.join(path)!r}: {'.'.join(spelled_path)} is {type} and has no fields")
        here = type.fields if isinstance(type, Row) else fields
        there = spelled(here, name)
        matches = [f for f in here if f.name == there]
        if not matches:
            where = f" in {'.'.join(spelled_path)}" if spelled_path else ""
            raise NotFound(f"no column {name!r}{where}; there are {', '.join(f.name for f in here) or 'none'}")
        spelled_path.append(matches[0].name)
        type = matches[0].type
    if type is None:
        raise InvalidInput("a column needs a name")
    return tuple(spelled_path), type


def path_assigned(name: str, fields: tuple[Field, ...], side: str = "") -> tuple[str, ...]:
    """The column or field that `name` means, in the table's spelling: a column with dots comes before a field, and
    `side.name` is `name`. Raises `NotFound`."""
    if any(field.name == name for field in fields) or "." not in str(name):
        return resolve((name,), fields)[0]
    parts = tuple(name.split("."))
    parts = parts[1:] if parts[0].casefold() == side else parts
    try:
        return resolve(parts, fields)[0]
    except NotFound as error:
        raise NotFound(f"no column {name!r}: {error}") from error


def whole_columns(
    values: Iterable[tuple[tuple[str, ...], Expression]], fields: tuple[Field, ...], side: tuple[str, ...] = ()
) -> dict[str, Expression]:
    """The assigned columns. A struct of which fields are assigned keeps the others, also where it was null. `side`:
    what qualifies the table's columns. Raises `InvalidInput` for what is assigned twice or is not in a struct."""
    assigned: dict[tuple[str, ...], Expression] = {}
    for path, value in values:
        if any(path[: len(other)] == other or other[: len(path)] == path for other in assigned):
            raise InvalidInput(f"column {'.'.join(path)!r} is assigned twice")
        assigned[path] = value
    by_name = {field.name: field for field in fields}
    columns = dict.fromkeys(path[0] for path in assigned)
    return {name: _whole((name,), by_name[name], assigned, side) for name in columns}


def _whole(
    path: tuple[str, ...], field: Field, assigned: Mapping[tuple[str, ...], Expression], side: tuple[str, ...]
) -> Expression:
    if path in assigned:
        return assigned[path]
    if all(other[: len(path)] != path for other in assigned):
        return Column((*side, *path))
    assert isinstance(field.type, Row), path
    parts = ((Literal(part.name), _whole((*path, part.name), part, assigned, side)) for part in field.type.fields)
    return Call("named_struct", tuple(expression for pair in parts for expression in pair))


def type_of(expression: Expression, fields: tuple[Field, ...]) -> Type | None:
    match expression:
        case Column(path):
            return resolve(path, fields)[1]
        case Call("cast", (_, Literal(text))) | Call("variant_get", (_, _, Literal(text))):
            return parse_type(text)
        case Call("stored", (_, Literal(Field() as field))):
            return field.type
        case Call(name):
            result = FUNCTIONS[name].result
            return None if result is None else scalar(result)
    return None


def _path(expression: Expression) -> tuple[str, ...]:
    if not isinstance(expression, Column):
        raise InvalidInput(f"in_tuples compares columns, not {described(expression)}")
    return expression.path


def _require_text(name: str, operand: Expression, fields: tuple[Field, ...]) -> None:
    type = type_of(operand, fields)
    if type is not None and not (isinstance(type, Scalar) and type.kind in TEXTS):
        raise InvalidInput(f"{name} needs text; {described(operand)} is {type}: cast it to string first")


def _require_variant(operand: Expression, fields: tuple[Field, ...]) -> None:
    type = type_of(operand, fields)
    if type != scalar(Kind.VARIANT):
        raise InvalidInput(f"variant_get needs a variant; {described(operand)} is {type or 'none'}")


def _unless_null(value: bool, operand: Expression) -> Expression:
    """`value` where the operand is not null, null where it is."""
    if value:
        return or_(is_not_null(operand), Literal(None))
    return and_(is_null(operand), Literal(None))


def _folded(expression: Call) -> Expression:
    """A call with constant arguments, evaluated."""
    match expression:
        case Call("is_null", (Literal(value),)):
            return Literal(value is None)
        case Call("neg", (Literal(value),)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | Decimal)):
                raise InvalidInput(f"{value!r} is not a number")
            return Literal(None if value is None else negated(value))
        case Call("eq_null_safe", (Literal(left), Literal(right))):
            nulls = left is None, right is None
            return Literal(all(nulls) if any(nulls) else order(left, right) == 0)
        case Call(name, (Literal(left), Literal(right))) if name in COMPARISONS:
            return Literal(None if left is None or right is None else _COMPARED[name](order(left, right), 0))
    return expression


_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1 for two values, neither None; NaN is equal to itself and above every other number."""
    if isinstance(left, dt.datetime) or isinstance(right, dt.datetime):
        left, right = _moment(left), _moment(right)
    nans = _is_nan(left), _is_nan(right)
    if any(nans):
        return nans[0] - nans[1]
    if isinstance(left, bool) != isinstance(right, bool):
        raise InvalidInput(f"{left!r} cannot be compared with {right!r}")
    if isinstance(left, Decimal) and isinstance(right, float):
        left = float(left)
    elif isinstance(right, Decimal) and isinstance(left, float):
        right = float(right)
    try:
        return (left > right) - (left < right)
    except TypeError as error:
        raise InvalidInput(f"{left!r} cannot be compared with {right!r}") from error


def _moment(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return naive(value)
    return dt.datetime.combine(value, dt.time()) if isinstance(value, dt.date) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


def _bind_comparison(name: str, left: Expression, right: Expression, fields: tuple[Field, ...]) -> Expression:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        name, left, right = FLIPPED[name], right, left
    if not isinstance(right, Literal) or isinstance(left, Literal):
        return _folded(Call(name, (left, right)))
    if right.value is None:
        return is_null(left) if name == "eq_null_safe" else Literal(None)
    type = type_of(left, fields)
    if type is None:
        return Call(name, (left, right))
    value, exact, side = fit(right.value, type, described(left))
    if side == 0 and exact:
        return Call(name, (left, _bound_literal(value)))
    if name == "eq_null_safe":
        return NEVER
    if name in ("eq", "ne"):
        return _unless_null(name == "ne", left)
    if side:
        return _unless_null((name in ("lt", "le")) == (side > 0), left)
    # The value lies between two that the type holds; `value` is the lower one.
    return Call("gt" if name in ("gt", "ge") else "le", (left, _bound_literal(value)))


def _bound_literal(value: Any) -> Expression:
    return value if isinstance(value, Call) else Literal(value)


def _bind_in(operand: Expression, values: Iterable[Any], fields: tuple[Field, ...]) -> Expression:
    values = frozenset(values)
    type = None if isinstance(operand, Literal) else type_of(operand, fields)
    present = [v for v in values if v is not None]
    if type is None:
        return Call("in", (operand, Literal(values)))
    fitted = [fit(v, type, described(operand)) for v in present]
    kept = [value for value, exact, side in fitted if exact and side == 0]
    odd = [value for value in kept if isinstance(value, Call)]
    plain = frozenset(value for value in kept if not isinstance(value, Call))
    null = [Literal(None)] if len(present) < len(values) else []
    if odd:
        return or_(*(Call("eq", (operand, value)) for value in odd), *([is_in(operand, plain)] if plain else []), *null)
    if not plain:
        return Literal(None) if null else _unless_null(False, operand)
    return Call("in", (operand, Literal(plain | {None} if null else plain)))


def _bind_tuples(columns: list[tuple[tuple[str, ...], Type]], tuples: Iterable[Any]) -> Expression:
    kept = []
    for tuple_ in tuples:
        if len(tuple_) != len(columns):
            raise InvalidInput(f"in_tuples: {len(columns)} columns, but {tuple_!r} has {len(tuple_)} values")
        fitted = [
            (None, True, 0) if v is None else fit(v, type, ".".join(path))
            for v, (path, type) in zip(tuple_, columns, strict=True)
        ]
        if any(isinstance(value, Call) for value, _, _ in fitted):
            raise InvalidInput(f"in_tuples: {tuple_!r}: at most microseconds")
        if all(exact and side == 0 for _, exact, side in fitted):
            kept.append(tuple(value for value, _, _ in fitted))
    return in_tuples([Column(path) for path, _ in columns], kept)
