"""Expressions evaluated a row at a time, over Python values: what the evaluation over Arrow tables is held against."""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model import casing
from lakeformat.model.predicate import Call, Column, Expression, Literal, like_regex, order

_WIDE = Context(prec=120)


def value_of(expression: Expression, row: Mapping[str, Any]) -> Any:
    """The value for one row of Python values (for a condition True, False or None); structs are mappings.

    Raises `NotFound` for a column that `row` lacks, `InvalidInput` for what cannot be told.
    """
    match expression:
        case Literal(value):
            return value
        case Column(path):
            return _cell(path, row)
        case Call("and", arguments):
            return _kleene((value_of(argument, row) for argument in arguments), decisive=False)
        case Call("or", arguments):
            return _kleene((value_of(argument, row) for argument in arguments), decisive=True)
        case Call("not", (inner,)):
            found = value_of(inner, row)
            return None if found is None else not found
        case Call("is_null", (inner,)):
            return value_of(inner, row) is None
        case Call("is_nan", (inner,)):
            return _is_nan(value_of(inner, row))
        case Call("eq_null_safe", (left, right)):
            a, b = value_of(left, row), value_of(right, row)
            return (a is None and b is None) if a is None or b is None else order(a, b) == 0
        case Call("in", (operand, Literal(values))):
            return _test_in(value_of(operand, row), values)
        case Call("in_tuples", (*columns, Literal(tuples))):
            here = tuple(value_of(column, row) for column in columns)
            return any(all(_same(a, b) for a, b in zip(here, tuple_, strict=True)) for tuple_ in tuples)
        case Call("coalesce", arguments):
            return next((v for v in (value_of(argument, row) for argument in arguments) if v is not None), None)
        case Call("case", arguments):
            return _test_case(arguments, row)
        case Call("nullif", (left, right)):
            value, other = value_of(left, row), value_of(right, row)
            return None if value is not None and other is not None and order(value, other) == 0 else value
        case Call(("greatest" | "least") as name, arguments):
            return _extreme(name, [v for v in (value_of(argument, row) for argument in arguments) if v is not None])
        case Call(name, arguments) if name in _STRICT:
            values = [value_of(argument, row) for argument in arguments]
            if any(v is None for v in values):
                return None
            try:
                return _STRICT[name](*values)
            except (TypeError, AttributeError) as error:
                shown = ", ".join(map(repr, values))
                raise InvalidInput(f"{name} does not go with {shown}") from error
        case Call(name):
            raise InvalidInput(f"{name} is not known for single values; evaluate it over a table")
    raise InvalidInput(f"not an expression: {expression!r}")


def _cell(path: tuple[str, ...], row: Mapping[str, Any]) -> Any:
    found: Any = row
    for i, name in enumerate(path):
        if found is None:
            return None
        if not isinstance(found, Mapping) or name not in found:
            there = ", ".join(map(str, found)) if isinstance(found, Mapping) else "none"
            raise NotFound(f"no column {'.'.join(path[: i + 1])!r}; there are {there}")
        found = found[name]
    return found


def _kleene(values: Iterable[Any], decisive: bool) -> bool | None:
    unknown = False
    for value in values:
        if value is decisive:
            return decisive
        if value is None:
            unknown = True
        elif not isinstance(value, bool):
            raise InvalidInput(f"AND and OR need conditions, not {value!r}")
    return None if unknown else not decisive


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


def _same(left: Any, right: Any) -> bool:
    return left is None and right is None if left is None or right is None else order(left, right) == 0


def _test_in(value: Any, values: Iterable[Any]) -> bool | None:
    if value is None:
        return None
    present = [v for v in values if v is not None]
    if any(order(value, v) == 0 for v in present):
        return True
    return None if any(v is None for v in values) else False


def _test_case(arguments: tuple[Expression, ...], row: Mapping[str, Any]) -> Any:
    for when, then in zip(arguments[:-1:2], arguments[1:-1:2], strict=True):
        if value_of(when, row) is True:
            return value_of(then, row)
    return value_of(arguments[-1], row)


def _extreme(name: str, values: list[Any]) -> Any:
    best = values[0] if values else None
    for value in values[1:]:
        if (order(value, best) > 0) == (name == "greatest") and order(value, best) != 0:
            best = value
    return best


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise InvalidInput(f"{value!r} is not a number")
    return value


def _arithmetic(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        left, right = _number(left), _number(right)
        if isinstance(left, float) or isinstance(right, float):
            return apply(float(left), float(right))
        return apply(left, right)

    return compute


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        raise InvalidInput("/ of decimals is not known for single values; evaluate it over a table")
    return None if right == 0 else left / right


def _whole_divide(left: Any, right: Any) -> int | None:
    if right == 0:
        return None
    quotient = abs(int(left)) // abs(int(right))
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, float):
        return math.nan if math.isinf(left) else math.fmod(left, right)
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _WIDE.remainder(Decimal(left), Decimal(right))
    return left - right * (_whole_divide(left, right) or 0)


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    """As Spark counts: from 1, or from the end; what lies before the text is part of `length`."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else first + length
    return text[max(first, 0) : max(end, 0)] if end > first else text[:0]


def _round(value: Any, digits: int = 0) -> Any:
    if isinstance(_number(value), int):
        return int(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)) if digits < 0 else value
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE))
    return value.quantize(Decimal(1).scaleb(-max(digits, 0)), ROUND_HALF_UP, _WIDE)


def _compared(accept: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: accept(order(left, right))


_STRICT: Mapping[str, Callable[..., Any]] = {
    "eq": _compared(lambda o: o == 0),
    "ne": _compared(lambda o: o != 0),
    "lt": _compared(lambda o: o < 0),
    "le": _compared(lambda o: o <= 0),
    "gt": _compared(lambda o: o > 0),
    "ge": _compared(lambda o: o >= 0),
    "like": lambda text, pattern, escape: re.fullmatch(like_regex(pattern, escape), text, re.DOTALL) is not None,
    "starts_with": lambda text, part: text.startswith(part),
    "ends_with": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
    "add": _arithmetic(lambda a, b: _WIDE.add(a, b) if isinstance(a, Decimal) else a + b),
    "sub": _arithmetic(lambda a, b: _WIDE.subtract(a, b) if isinstance(a, Decimal) else a - b),
    "mul": _arithmetic(lambda a, b: _WIDE.multiply(a, b) if isinstance(a, Decimal) else a * b),
    "div": _arithmetic(_divide),
    "int_div": _arithmetic(_whole_divide),
    "mod": _arithmetic(_remainder),
    "neg": lambda value: -_number(value),
    "abs": lambda value: abs(_number(value)),
    "round": _round,
    "upper": casing.upper,
    "lower": casing.lower,
    "length": len,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "concat": lambda *texts: "".join(texts),
    "substring": _substring,
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "year": lambda value: value.year,
    "month": lambda value: value.month,
    "day": lambda value: value.day,
    "hour": lambda value: value.hour,
    "minute": lambda value: value.minute,
    "second": lambda value: value.second,
    "date_add": lambda day, days: day + dt.timedelta(days=days),
    "date_sub": lambda day, days: day - dt.timedelta(days=days),
    "date_diff": lambda left, right: (left - right).days,
}
