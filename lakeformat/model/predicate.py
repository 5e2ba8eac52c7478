"""Expressions over columns, as values: row conditions, and what an update assigns.

Their meaning is Spark SQL's: three-valued logic, NaN equal to itself and above every other number, `/` of integers a
double, division by zero null. A timestamp text without a zone, where an instant is asked for, is UTC.
"""

from __future__ import annotations

import datetime as dt
import difflib
import itertools
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model import casing
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar, spelled
from lakeformat.model.type_text import parse_type


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name; a part of one by its path, e.g. `("address", "city")`."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path[0]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value: None, bool, int, float, Decimal, str, bytes, date, time, datetime; a frozenset or tuple of those.

    Equal to a value of its own type only (1 is not TRUE), and NaN to itself."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal) or type(self.value) is not type(other.value):
            return False
        return bool(self.value == other.value or (self.value != self.value and other.value != other.value))


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function by its one name (see `OPERATORS`), applied to arguments."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Column | Literal | Call

ALWAYS = Literal(True)
NEVER = Literal(False)

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
CONDITIONS = COMPARISONS | {
    "eq_null_safe",
    "and",
    "or",
    "not",
    "in",
    "in_tuples",
    "is_null",
    "is_nan",
    "like",
    "starts_with",
    "ends_with",
    "contains",
}

# Every name that a Call may have, with the least and the most arguments.
#   in(x, Literal(frozenset))            in_tuples(column, ..., Literal(frozenset of tuples)), null equal to null
#   like(x, pattern, Literal(escape))    cast(x, Literal(type text))    case(when, then, ..., otherwise)
OPERATORS: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "in"), (2, 2)),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), (2, 2)),
    **dict.fromkeys(("and", "or", "concat", "coalesce"), (1, None)),
    **dict.fromkeys(("not", "is_null", "is_nan", "neg"), (1, 1)),
    "in_tuples": (2, None),
    "like": (3, 3),
    **dict.fromkeys(("add", "sub", "mul", "div", "int_div", "mod", "power"), (2, 2)),
    "case": (3, None),
    "cast": (2, 2),
    "nullif": (2, 2),
    **dict.fromkeys(("upper", "lower", "length", "trim", "ltrim", "rtrim"), (1, 1)),
    "substring": (2, 3),
    "replace": (3, 3),
    **dict.fromkeys(("abs", "floor", "ceil", "sqrt", "sign"), (1, 1)),
    "round": (1, 2),
    **dict.fromkeys(("greatest", "least"), (2, None)),
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), (1, 1)),
    **dict.fromkeys(("date_add", "date_sub", "date_diff", "date_trunc"), (2, 2)),
}


def column(*path: str) -> Column:
    """A column, or a part of one: `column("address", "city")`."""
    if not path or not all(isinstance(part, str) and part for part in path):
        raise InvalidInput(f"a column is named by non-empty text, not {path!r}")
    return Column(path)


def literal(value: Any) -> Literal:
    return value if isinstance(value, Literal) else Literal(value)


def call(name: str, *arguments: Expression) -> Call:
    """An operator by name; raises `InvalidInput` for a name or a number of arguments that is not in `OPERATORS`."""
    if name not in OPERATORS:
        near = difflib.get_close_matches(name, OPERATORS, 3, 0.8) or sorted(OPERATORS)
        raise InvalidInput(f"unknown function {name!r}; there are {', '.join(near)}")
    low, high = OPERATORS[name]
    if len(arguments) < low or (high is not None and len(arguments) > high):
        wanted = str(low) if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        raise InvalidInput(f"{name} takes {wanted} arguments, not {len(arguments)}")
    return Call(name, arguments)


# The left side of a condition may be a column's name; everything else that is not an expression is a value.


def eq(left: str | Expression, right: Any) -> Expression:
    return _compare("eq", left, right)


def ne(left: str | Expression, right: Any) -> Expression:
    return _compare("ne", left, right)


def lt(left: str | Expression, right: Any) -> Expression:
    return _compare("lt", left, right)


def le(left: str | Expression, right: Any) -> Expression:
    return _compare("le", left, right)


def gt(left: str | Expression, right: Any) -> Expression:
    return _compare("gt", left, right)


def ge(left: str | Expression, right: Any) -> Expression:
    return _compare("ge", left, right)


def eq_null_safe(left: str | Expression, right: Any) -> Expression:
    """Equal, with null equal to null; never null itself."""
    return _compare("eq_null_safe", left, right)


def is_null(operand: str | Expression) -> Expression:
    return Call("is_null", (_left(operand),))


def is_not_null(operand: str | Expression) -> Expression:
    return not_(is_null(operand))


def is_nan(operand: str | Expression) -> Expression:
    return Call("is_nan", (_left(operand),))


def is_in(operand: str | Expression, values: Iterable[Any]) -> Expression:
    """One of `values`; as in SQL, a None among them makes every miss null."""
    return Call("in", (_left(operand), Literal(frozenset(values))))


def in_tuples(columns: Sequence[str | Column], tuples: Iterable[Sequence[Any]]) -> Expression:
    """The columns' values are one of `tuples`, null equal to null: a set of partitions."""
    named = tuple(_left(each) for each in columns)
    found = frozenset(tuple(each) for each in tuples)
    for each in found:
        if len(each) != len(named):
            raise InvalidInput(f"in_tuples: {len(named)} columns, but {each!r} has {len(each)} values")
    if not found:
        return NEVER
    if not named:
        return ALWAYS
    return Call("in_tuples", (*named, Literal(found)))


def between(operand: str | Expression, low: Any, high: Any) -> Expression:
    return and_(ge(operand, low), le(operand, high))


def like(operand: str | Expression, pattern: str, escape: str = "\\") -> Expression:
    """SQL LIKE: `%` any text, `_` any one character, `escape` before either takes it literally."""
    like_parts(pattern, escape)
    return Call("like", (_left(operand), Literal(pattern), Literal(escape)))


def starts_with(operand: str | Expression, prefix: str) -> Expression:
    return Call("starts_with", (_left(operand), Literal(prefix)))


def and_(*conditions: Expression) -> Expression:
    """All of them, flat; `ALWAYS` of none."""
    return _junction("and", conditions, neutral=True)


def or_(*conditions: Expression) -> Expression:
    """Any of them, flat; `NEVER` of none."""
    return _junction("or", conditions, neutral=False)


def not_(condition: Expression) -> Expression:
    match condition:
        case Literal(bool(value)):
            return NEVER if value else ALWAYS
        case Literal(None):
            return condition
        case Call("not", (inner,)):
            return inner
    return Call("not", (condition,))


def cast(operand: str | Expression, type_text: str) -> Expression:
    parse_type(type_text)
    return Call("cast", (_left(operand), Literal(type_text)))


def case(*branches: tuple[Expression, Any], otherwise: Any = None) -> Expression:
    """`case((condition, value), ..., otherwise=value)`: the first that is true."""
    flat = [part for condition, value in branches for part in (condition, _right(value))]
    return call("case", *flat, _right(otherwise))


def is_never(expression: Expression) -> bool:
    """Is it the value False or null, which no row satisfies?"""
    return isinstance(expression, Literal) and (expression.value is False or expression.value is None)


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The conditions that all have to hold; none for `ALWAYS`."""
    match expression:
        case Call("and", arguments):
            return tuple(part for each in arguments for part in conjuncts(each))
    return () if expression == ALWAYS else (expression,)


def paths_of(expression: Expression) -> frozenset[tuple[str, ...]]:
    """The paths of the columns it looks at."""
    match expression:
        case Column(path):
            return frozenset({path})
        case Call(_, arguments):
            return frozenset().union(*(paths_of(each) for each in arguments))
    return frozenset()


def columns_of(expression: Expression) -> frozenset[str]:
    """The names of the top-level columns it looks at."""
    return frozenset(path[0] for path in paths_of(expression))


def rename(expression: Expression, mapping: Mapping[Any, Any]) -> Expression:
    """The same over other columns. Keys and values are top-level names, or prefixes of paths as tuples.

    `{"a": "b"}` renames; `{("t",): ()}` drops a qualifier. The longest prefix that fits wins; what fits none stays.
    """
    prefixes = {_prefix(old): _prefix(new) for old, new in mapping.items()}

    def change(path: tuple[str, ...]) -> tuple[str, ...]:
        for length in range(len(path), 0, -1):
            new = prefixes.get(path[:length])
            if new is not None:
                found = new + path[length:]
                if not found:
                    raise InvalidInput(
                        f"{'.'.join(path)} names no column once {'.'.join(path[:length])!r} is taken away"
                    )
                return found
        return path

    def walk(each: Expression) -> Expression:
        match each:
            case Column(path):
                return Column(change(path))
            case Call(name, arguments):
                return Call(name, tuple(walk(a) for a in arguments))
        return each

    return walk(expression)


def bind(expression: Expression, fields: tuple[Field, ...]) -> Expression:
    """`expression` over the columns `fields`: names resolved, values turned into those of the columns' types.

    Names match exactly, or else without regard to case if that is unique: `NotFound` names the columns there are. A
    value that the column's type cannot hold decides the comparison, null where the column is null. A value of a wrong
    type raises `InvalidInput` that names column, type and value.
    """
    match expression:
        case Column(path):
            return Column(resolve(path, fields)[0])
        case Literal():
            return expression
        case Call(("and" | "or" | "not") as name, arguments):
            bound = tuple(bind(each, fields) for each in arguments)
            return not_(bound[0]) if name == "not" else and_(*bound) if name == "and" else or_(*bound)
        case Call("in_tuples", (*columns, Literal(tuples))):
            return _bind_tuples([resolve(_path(c), fields) for c in columns], tuples)
        case Call("in", (operand, Literal(values))):
            return _bind_in(bind(operand, fields), values, fields)
        case Call(name, (left, right)) if name in COMPARISONS or name == "eq_null_safe":
            return _bind_comparison(name, bind(left, fields), bind(right, fields), fields)
        case Call(("like" | "starts_with" | "ends_with" | "contains") as name, arguments):
            bound = tuple(bind(each, fields) for each in arguments)
            _require_text(name, bound[0], fields)
            return call(name, *bound)
        case Call(name, arguments):
            return _folded(call(name, *(bind(each, fields) for each in arguments)))
    raise InvalidInput(f"not an expression: {expression!r}")


def resolve(path: tuple[str, ...], fields: tuple[Field, ...]) -> tuple[tuple[str, ...], Type]:
    """The path as the columns spell it, and its type; raises `NotFound`, naming what there is."""
    found: list[str] = []
    type: Type | None = None
    for name in path:
        if type is not None and not isinstance(type, Row):
            raise NotFound(f"no column {'.'.join(path)!r}: {'.'.join(found)} is {type} and has no fields")
        here = type.fields if isinstance(type, Row) else fields
        there = spelled(here, name)
        matches = [f for f in here if f.name == there]
        if not matches:
            where = f" in {'.'.join(found)}" if found else ""
            raise NotFound(f"no column {name!r}{where}; there are {', '.join(f.name for f in here) or 'none'}")
        found.append(matches[0].name)
        type = matches[0].type
    if type is None:
        raise InvalidInput("a column needs a name")
    return tuple(found), type


def coerce(value: Any, type: Type, what: str = "value") -> Any:
    """`value` as `type` holds it, e.g. `'2023-05-01'` for a date as `datetime.date`; None stays None.

    Raises `InvalidInput`, naming `what`, the type and the value, where it is of a wrong type or does not fit.
    """
    if value is None:
        return None
    found, exact, side = _fit(value, type, what)
    if side or not exact:
        raise InvalidInput(f"{what}: {type} cannot hold {value!r}")
    return found


def partition_equals(values: Mapping[str, Any]) -> Expression:
    """The rows of one partition, or of all that begin so: each column equals its value, null equal to null."""
    return and_(*(eq_null_safe(column(name), Literal(value)) for name, value in values.items()))


def split(expression: Expression, names: Iterable[str]) -> tuple[Expression, Expression]:
    """(what it says over the columns `names` alone, the rest): both together are the same condition.

    A rest other than `ALWAYS` means that the condition does not select by those columns alone. The first part also
    holds what an `or` in the rest implies over the columns.
    """
    allowed = frozenset(names)
    inside, outside = [], []
    for each in conjuncts(expression):
        if columns_of(each) <= allowed:
            inside.append(each)
            continue
        outside.append(each)
        if isinstance(each, Call) and each.name == "or":
            implied = or_(*(split(branch, allowed)[0] for branch in each.arguments))
            if implied != ALWAYS:
                inside.append(implied)
    return and_(*inside), and_(*outside)


def listed(expression: Expression, names: Sequence[str], limit: int) -> list[tuple[Any, ...]] | None:
    """Values of the columns `names` among which are all with which the condition (bound) can be true; None where it does not
    list them for each column, or they are more than `limit`."""
    found = []
    for name in names:
        values = _values(expression, name)
        if values is None:
            return None
        found.append(values)
    if math.prod(map(len, found)) > limit:
        return None
    return list(itertools.product(*found))


def push_not(expression: Expression, negate: bool = False) -> Expression:
    """The same condition with every `not` moved inward as far as it goes."""
    match expression:
        case Call("not", (inner,)):
            return push_not(inner, not negate)
        case Call(("and" | "or") as name, arguments):
            pushed = tuple(push_not(each, negate) for each in arguments)
            return and_(*pushed) if (name == "and") != negate else or_(*pushed)
        case Call(name, (left, right)) if negate and name in COMPARISONS:
            return Call(_NEGATED[name], (left, right))
    return not_(expression) if negate else expression


def test(expression: Expression, row: Mapping[str, Any]) -> Any:
    """The value for one row of Python values (for a condition True, False or None); structs are mappings.

    For the few rows that partitions are; tables go through `codec.expression.evaluate`, which also knows casts.
    Raises `NotFound` for a column that `row` lacks, `InvalidInput` for what cannot be told.
    """
    match expression:
        case Literal(value):
            return value
        case Column(path):
            return _cell(path, row)
        case Call("and", arguments):
            return _kleene((test(each, row) for each in arguments), decisive=False)
        case Call("or", arguments):
            return _kleene((test(each, row) for each in arguments), decisive=True)
        case Call("not", (inner,)):
            found = test(inner, row)
            return None if found is None else not found
        case Call("is_null", (inner,)):
            return test(inner, row) is None
        case Call("is_nan", (inner,)):
            return _is_nan(test(inner, row))
        case Call("eq_null_safe", (left, right)):
            a, b = test(left, row), test(right, row)
            return (a is None and b is None) if a is None or b is None else _order(a, b) == 0
        case Call("in", (operand, Literal(values))):
            return _test_in(test(operand, row), values)
        case Call("in_tuples", (*columns, Literal(tuples))):
            here = tuple(test(each, row) for each in columns)
            return any(all(_same(a, b) for a, b in zip(here, each, strict=True)) for each in tuples)
        case Call("coalesce", arguments):
            return next((v for v in (test(each, row) for each in arguments) if v is not None), None)
        case Call("case", arguments):
            return _test_case(arguments, row)
        case Call("nullif", (left, right)):
            value, other = test(left, row), test(right, row)
            return None if value is not None and other is not None and _order(value, other) == 0 else value
        case Call(("greatest" | "least") as name, arguments):
            return _extreme(name, [v for v in (test(each, row) for each in arguments) if v is not None])
        case Call(name, arguments) if name in _STRICT:
            values = [test(each, row) for each in arguments]
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


def is_plain(condition: Expression, fields: tuple[Field, ...]) -> bool:
    """Whether a condition (bound) only compares columns with values, or with columns of the same type: what Spark makes of such
    goes by none of its settings (ANSI mode, time zone, ...)."""
    match condition:
        case Literal(value):
            return value is None or isinstance(value, bool)
        case Call("and" | "or" | "not", arguments):
            return all(is_plain(each, fields) for each in arguments)
        case Call("in_tuples", (*columns, Literal())):
            return all(_is_simple(each, fields) for each in columns)
        case Call(name, (operand, *values)) if name in CONDITIONS:
            is_simple = isinstance(operand, Column) and _is_simple(operand, fields)
            of_type = _type_of(operand, fields) if is_simple else None
            return is_simple and all(
                isinstance(each, Literal) or (isinstance(each, Column) and _type_of(each, fields) == of_type)
                for each in values
            )
    return False


def _is_simple(column: Expression, fields: tuple[Field, ...]) -> bool:
    """Whether a column is of a type that Spark has under all settings."""
    type = _type_of(column, fields)
    return isinstance(type, Scalar) and type.kind not in (Kind.TIME, Kind.TIME_MICROS, Kind.UNKNOWN, Kind.VARIANT)


def to_sql(expression: Expression) -> str:
    """Spark SQL text that means the same, however the session parses text; raises `InvalidInput` for a value that has no SQL
    form. What Spark makes of arithmetic, casts and functions still goes by its settings: see `is_plain`."""
    match expression:
        case Column(path):
            return ".".join("`" + part.replace("`", "``") + "`" for part in path)
        case Literal(value):
            return _sql_value(value)
        case Call(("and" | "or") as name, arguments):
            return "(" + f" {name.upper()} ".join(to_sql(each) for each in arguments) + ")"
        case Call("not", (Call("is_null", (inner,)),)):
            return f"({to_sql(inner)} IS NOT NULL)"
        case Call("not", (inner,)):
            return f"(NOT {to_sql(inner)})"
        case Call("neg", (inner,)):
            return f"(- {to_sql(inner)})"
        case Call("is_null", (inner,)):
            return f"({to_sql(inner)} IS NULL)"
        case Call("in", (operand, Literal(values))):
            return _sql_in(to_sql(operand), values)
        case Call("in_tuples", (*columns, Literal(tuples))):
            return _sql_tuples([to_sql(each) for each in columns], tuples)
        case Call("like", (operand, Literal(str(pattern)), Literal(str(escape)))):
            return _sql_like(to_sql(operand), pattern, escape)
        case Call("cast", (operand, Literal(text))):
            return f"CAST({to_sql(operand)} AS {spark_type(parse_type(text))})"
        case Call("case", (*branches, otherwise)):
            pairs = zip(branches[::2], branches[1::2], strict=True)
            whens = " ".join(f"WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in pairs)
            return f"(CASE {whens} ELSE {to_sql(otherwise)} END)"
        case Call(("div" | "int_div" | "mod") as name, (left, right)):
            # Spark's ANSI mode refuses a division by zero; here it is null on every engine.
            divisor = to_sql(right) if _is_nonzero(right) else f"nullif({to_sql(right)}, 0)"
            return f"({to_sql(left)} {_SQL_BETWEEN[name]} {divisor})"
        case Call(name, (left, right)) if name in _SQL_BETWEEN:
            return f"({to_sql(left)} {_SQL_BETWEEN[name]} {to_sql(right)})"
        case Call(name, arguments) if name in OPERATORS:
            return f"{_SQL_NAMES.get(name, name)}({', '.join(to_sql(each) for each in arguments)})"
    raise InvalidInput(f"not an expression: {expression!r}")


def spark_type(type: Type) -> str:
    """`type` as Spark SQL spells it."""
    match type:
        case Scalar(Kind.BYTES | Kind.BINARY | Kind.VARBINARY | Kind.FIXED | Kind.UUID):
            return "BINARY"
        case Scalar(Kind.TIME_MICROS):
            return "TIME(6)"
        case Scalar(Kind.UNKNOWN):
            return "VOID"
        case Scalar(Kind.TIMESTAMP):
            return "TIMESTAMP_NTZ"
        case Scalar(Kind.TIMESTAMP_TZ):
            return "TIMESTAMP_LTZ"
        case Scalar(kind, parameters):
            return str(Scalar(kind, parameters)).upper()
        case ListOf(element):
            return f"ARRAY<{spark_type(element.type)}>"
        case MultisetOf(element):
            return f"MAP<{spark_type(element.type)}, INT>"
        case MapOf(key, value):
            return f"MAP<{spark_type(key.type)}, {spark_type(value.type)}>"
        case Row(fields):
            parts = (f"{to_sql(Column((f.name,)))}: {spark_type(f.type)}" for f in fields)
            return f"STRUCT<{', '.join(parts)}>"


BLANKS = "".join(map(chr, range(33))) + "\x7f"  # What Spark takes from both ends of a text that it casts.
ANY_TEXT, ANY_CHARACTER = object(), object()


def like_parts(pattern: str, escape: str = "\\") -> list[Any]:
    """A LIKE pattern as literal texts, `ANY_TEXT` (for `%`) and `ANY_CHARACTER` (for `_`), in order."""
    if not isinstance(pattern, str):
        raise InvalidInput(f"LIKE needs a pattern as text, not {pattern!r}")
    if not isinstance(escape, str) or len(escape) != 1:
        raise InvalidInput(f"LIKE ... ESCAPE needs one character, not {escape!r}")
    parts: list[Any] = []

    def text(part: str) -> None:
        if parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)

    characters = iter(pattern)
    for each in characters:
        if each == escape:
            taken = next(characters, None)
            if taken is None or taken not in ("%", "_", escape):
                raise InvalidInput(f"LIKE pattern {pattern!r}: {escape!r} goes before %, _ or itself only")
            text(taken)
        elif each == "%":
            parts.append(ANY_TEXT)
        elif each == "_":
            parts.append(ANY_CHARACTER)
        else:
            text(each)
    return parts


def like_regex(pattern: str, escape: str = "\\") -> str:
    """The same as a regular expression for Python and RE2 alike, without anchors; a dot must match newlines."""
    wild = {ANY_TEXT: ".*", ANY_CHARACTER: "."}
    return "".join(re.escape(p) if isinstance(p, str) else wild[p] for p in like_parts(pattern, escape))


def successor(text: str) -> str | None:
    """The least text above every text that begins with `text`; None where there is none."""
    for i in range(len(text) - 1, -1, -1):
        code = ord(text[i])
        if code < 0x10FFFF:
            return text[:i] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None


_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq_null_safe": "eq_null_safe"}
_INTEGERS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED)
_WIDE = Context(prec=120)
_UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1)


def _left(operand: str | Expression) -> Expression:
    return Column((operand,)) if isinstance(operand, str) else _right(operand)


def _right(operand: Any) -> Expression:
    return operand if isinstance(operand, Column | Literal | Call) else Literal(operand)


def _compare(name: str, left: str | Expression, right: Any) -> Expression:
    return Call(name, (_left(left), _right(right)))


def _junction(name: str, conditions: Iterable[Expression], neutral: bool) -> Expression:
    flat: list[Expression] = []
    for each in conditions:
        if isinstance(each, Literal) and isinstance(each.value, bool):
            if each.value is not neutral:
                return each
        elif isinstance(each, Call) and each.name == name:
            flat += each.arguments
        else:
            flat.append(each)
    if not flat:
        return Literal(neutral)
    return flat[0] if len(flat) == 1 else Call(name, tuple(flat))


def _prefix(name: Any) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) else tuple(name)


def _values(expression: Expression, name: str) -> frozenset[Any] | None:
    """The values of a column with which the condition can be true; None where it does not list them."""
    match expression:
        case Literal(value) if value is not True:
            return frozenset()
        case Call("eq" | "eq_null_safe", (Column((column,)), Literal(value))) if column == name:
            return frozenset({value})
        case Call("in", (Column((column,)), Literal(values))) if column == name:
            return frozenset(values)
        case Call("in_tuples", (*columns, Literal(tuples))) if Column((name,)) in columns:
            place = columns.index(Column((name,)))
            return frozenset(each[place] for each in tuples)
        case Call("and", arguments):
            told = [values for each in arguments if (values := _values(each, name)) is not None]
            return min(told, key=len, default=None)
        case Call("or", arguments):
            parts = [_values(each, name) for each in arguments]
            known = [each for each in parts if each is not None]
            return frozenset().union(*known) if len(known) == len(parts) else None
    return None


def _path(expression: Expression) -> tuple[str, ...]:
    if not isinstance(expression, Column):
        raise InvalidInput(f"in_tuples compares columns, not {to_sql(expression)}")
    return expression.path


def _type_of(expression: Expression, fields: tuple[Field, ...]) -> Type | None:
    match expression:
        case Column(path):
            return resolve(path, fields)[1]
        case Call("cast", (_, Literal(text))):
            return parse_type(text)
        case Call(name) if name in CONDITIONS:
            return scalar(Kind.BOOLEAN)
        case Call("year" | "month" | "day" | "hour" | "minute" | "second" | "length"):
            return scalar(Kind.INT)
        case Call("upper" | "lower" | "trim" | "ltrim" | "rtrim" | "replace"):
            return scalar(Kind.STRING)
    return None


def _name(expression: Expression) -> str:
    return ".".join(expression.path) if isinstance(expression, Column) else to_sql(expression)


def _require_text(name: str, operand: Expression, fields: tuple[Field, ...]) -> None:
    type = _type_of(operand, fields)
    if type is not None and not (isinstance(type, Scalar) and type.kind in _TEXTS):
        raise InvalidInput(f"{name} needs text; {_name(operand)} is {type}: cast it to string first")


def _unless_null(value: bool, operand: Expression) -> Expression:
    """`value` where the operand is there, null where it is null."""
    if value:
        return or_(is_not_null(operand), Literal(None))
    return and_(is_null(operand), Literal(None))


def _folded(expression: Call) -> Expression:
    """A call of values alone, as its value."""
    constant = all(isinstance(each, Literal) for each in expression.arguments)
    if constant and expression.name in (COMPARISONS | {"eq_null_safe", "is_null", "neg"}):
        return Literal(test(expression, {}))
    return expression


def _bind_comparison(name: str, left: Expression, right: Expression, fields: tuple[Field, ...]) -> Expression:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        name, left, right = FLIPPED[name], right, left
    if not isinstance(right, Literal) or isinstance(left, Literal):
        return _folded(Call(name, (left, right)))
    if right.value is None:
        return is_null(left) if name == "eq_null_safe" else Literal(None)
    type = _type_of(left, fields)
    if type is None:
        return Call(name, (left, right))
    value, exact, side = _fit(right.value, type, _name(left))
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
    type = None if isinstance(operand, Literal) else _type_of(operand, fields)
    present = [v for v in values if v is not None]
    if type is None:
        return Call("in", (operand, Literal(values)))
    fitted = [_fit(v, type, _name(operand)) for v in present]
    kept = [value for value, exact, side in fitted if exact and side == 0]
    odd = [value for value in kept if isinstance(value, Call)]
    plain = frozenset(value for value in kept if not isinstance(value, Call))
    null = [Literal(None)] if len(present) < len(values) else []
    if odd:
        return or_(*(Call("eq", (operand, each)) for each in odd), *([is_in(operand, plain)] if plain else []), *null)
    if not plain:
        return Literal(None) if null else _unless_null(False, operand)
    return Call("in", (operand, Literal(plain | {None} if null else plain)))


def _bind_tuples(columns: list[tuple[tuple[str, ...], Type]], tuples: Iterable[Any]) -> Expression:
    kept = []
    for each in tuples:
        if len(each) != len(columns):
            raise InvalidInput(f"in_tuples: {len(columns)} columns, but {each!r} has {len(each)} values")
        fitted = [
            (None, True, 0) if v is None else _fit(v, type, ".".join(path))
            for v, (path, type) in zip(each, columns, strict=True)
        ]
        if any(isinstance(value, Call) for value, _, _ in fitted):
            raise InvalidInput(f"in_tuples: {each!r}: at most microseconds")
        if all(exact and side == 0 for _, exact, side in fitted):
            kept.append(tuple(value for value, _, _ in fitted))
    return in_tuples([Column(path) for path, _ in columns], kept)


def _fit(value: Any, type: Type, what: str) -> tuple[Any, bool, int]:
    """(the greatest value of `type` that is not above `value`, is it equal, -1/+1 if it lies below/above them all)."""
    if not isinstance(type, Scalar):
        raise InvalidInput(f"{what} is {type}: it cannot be compared with {value!r}; compare a part of it")
    found = None
    try:
        match type.kind:
            case Kind.BOOLEAN:
                found = _fit_boolean(value)
            case kind if kind in _INTEGERS:
                limit = 2 ** (_INTEGERS[kind] - 1)
                found = _fit_number(value, 0, -limit, limit - 1, int)
            case Kind.DECIMAL:
                precision, scale = type.parameters
                limit = 10**precision - 1
                found = _fit_number(value, scale, -limit, limit, lambda n: Decimal(n).scaleb(-scale, _WIDE))
            case Kind.FLOAT | Kind.DOUBLE:
                found = _fit_float(value, type.kind)
            case kind if kind in _TEXTS:
                found = (value, True, 0) if isinstance(value, str) else None
            case kind if kind in _BYTES:
                found = (bytes(value), True, 0) if isinstance(value, bytes | bytearray | memoryview) else None
            case Kind.DATE:
                found = _fit_date(value)
            case Kind.TIME | Kind.TIME_MICROS as kind:
                found = _fit_time(value, 1000 if kind is Kind.TIME else 1)
            case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
                found = _fit_timestamp(value, type)
            case Kind.UUID:
                found = _fit_uuid(value)
    except InvalidOperation as error:
        raise InvalidInput(f"{what} is {type}: {value!r} is not a number") from error
    except ValueError as error:
        raise InvalidInput(f"{what} is {type}: {value!r} is not one ({error})") from error
    if found is None:
        kind_of = value.__class__.__name__
        raise InvalidInput(f"{what} is {type}: it cannot be compared with {value!r}, which is {kind_of}")
    return found


def _fit_boolean(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, bool):
        return value, True, 0
    if isinstance(value, str) and value.strip(BLANKS).lower() in ("true", "false"):
        return value.strip(BLANKS).lower() == "true", True, 0
    return None


def _fit_number(
    value: Any, scale: int, low: int, high: int, make: Callable[[int], Any]
) -> tuple[Any, bool, int] | None:
    """The number in units of `10**-scale`, as a whole one between `low` and `high`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        number = Decimal(number_text(value))
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, int | Decimal):
        number = Decimal(value)
    else:
        return None
    if number.is_nan():
        return None, False, 1
    if number.is_infinite() or number.adjusted() > 60:
        return (None, False, 1 if number > 0 else -1) if number else (make(0), True, 0)
    units = number.scaleb(scale, _WIDE)
    floor = int(units.to_integral_value(ROUND_FLOOR))
    exact = floor == units
    if floor > high:
        return None, False, 1
    if floor < low:
        # Between the least value and the one below it there is nothing to be the lower neighbour.
        return None, False, -1
    return make(floor), exact, 0


def _fit_float(value: Any, kind: Kind) -> tuple[Any, bool, int] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        found = float(number_text(value))
        # A FLOAT column's own value in text, e.g. a partition's, must find itself again.
        return (_single(found) if kind is Kind.FLOAT else found), True, 0
    if isinstance(value, int | float | Decimal):
        try:
            return float(value), True, 0
        except OverflowError:
            return (-math.inf if value < 0 else math.inf), True, 0
    return None


def number_text(value: str) -> str:
    """Without blanks; Python's own forms of numbers, such as 1_000, are none of SQL's."""
    found = value.strip(BLANKS)
    if "_" in found or not found.isascii():
        raise ValueError(f"{value!r} is not a number")
    return found


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


_DATE = re.compile(r"([+-]?\d{4,5})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[ T].*)?", re.DOTALL | re.ASCII)
_TIME_OF_DAY = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
_TIME = re.compile(_TIME_OF_DAY, re.ASCII)
_ZONE = r"\s*(Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2})?)?"
_TIMESTAMP = re.compile(rf"(\d{{4}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T](?:{_TIME_OF_DAY})?{_ZONE})?)?)?", re.ASCII)


def parse_date(text: str) -> dt.date:
    """A date as Spark casts it from text: `2023-05-01`, `2023-5-1`, `2023-05`, `2023`; a time behind it is left out."""
    found = _DATE.fullmatch(text.strip(BLANKS))
    if not found:
        raise ValueError("a date looks like 2023-05-01")
    year, month, day = found.groups()
    return dt.date(int(year), int(month or 1), int(day or 1))


def parse_timestamp(text: str) -> tuple[dt.datetime, int]:
    """(timestamp, nanoseconds beyond its microseconds) of `2023-05-01 10:00:00.123Z`; aware only if a zone is given."""
    found = _TIMESTAMP.fullmatch(text.strip(BLANKS))
    if not found:
        raise ValueError("a timestamp looks like 2023-05-01 10:00:00")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    nanos = int((fraction or "0").ljust(9, "0"))
    value = dt.datetime(
        int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), nanos // 1000
    )
    return (value if zone is None else value.replace(tzinfo=_zone(zone))), nanos % 1000


def parse_time(text: str) -> dt.time:
    found = _TIME.fullmatch(text.strip(BLANKS))
    if not found:
        raise ValueError("a time looks like 10:00:00")
    hour, minute, second, fraction = found.groups()
    return dt.time(int(hour), int(minute), int(second or 0), int((fraction or "0").ljust(9, "0")) // 1000)


def _zone(text: str) -> dt.tzinfo:
    text = text.removeprefix("UTC").removeprefix("GMT").removeprefix("Z")
    if not text:
        return _UTC
    hours, _, minutes = text[1:].partition(":")
    if not minutes and len(hours) > 2:
        hours, minutes = hours[:-2], hours[-2:]
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
    return dt.timezone(-offset if text[0] == "-" else offset)


def _fit_date(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, dt.datetime):
        naive = _naive(value)
        return naive.date(), naive.time() == dt.time(), 0
    if isinstance(value, dt.date):
        return value, True, 0
    return (parse_date(value), True, 0) if isinstance(value, str) else None


def _fit_time(value: Any, step: int) -> tuple[Any, bool, int] | None:
    if isinstance(value, str):
        value = parse_time(value)
    if not isinstance(value, dt.time):
        return None
    floor = value.replace(microsecond=value.microsecond // step * step)
    return floor, floor == value, 0


def _fit_timestamp(value: Any, type: Scalar) -> tuple[Any, bool, int] | None:
    digits = type.parameters[0] if type.parameters else 6
    extra = 0
    if isinstance(value, str):
        value, extra = parse_timestamp(value)
        value = value if type.kind is Kind.TIMESTAMP_TZ else value.replace(tzinfo=None)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if not isinstance(value, dt.datetime):
        return None
    naive = _naive(value)
    zoned = type.kind is Kind.TIMESTAMP_TZ
    if digits > 6:  # Nanoseconds in 64 bits reach from 1677 to 2262.
        nanos = ((naive - _EPOCH) // dt.timedelta(microseconds=1)) * 1000 + extra
        if not -(2**63) <= nanos < 2**63:
            return None, False, 1 if nanos > 0 else -1
        if extra:
            text = f"{naive.isoformat(' ', 'microseconds')}{extra:03d}"
            return Call("cast", (Literal(text), Literal(str(type)))), True, 0
    step = 1000 if digits <= 3 else 1
    floor = naive.replace(microsecond=naive.microsecond // step * step)
    return floor.replace(tzinfo=_UTC) if zoned else floor, floor == naive and not extra, 0


def _fit_uuid(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, str):
        value = uuid.UUID(value)
    if isinstance(value, uuid.UUID):
        return value.bytes, True, 0
    return (bytes(value), True, 0) if isinstance(value, bytes) and len(value) == 16 else None


def _naive(value: dt.datetime) -> dt.datetime:
    return value.astimezone(_UTC).replace(tzinfo=None) if value.tzinfo else value


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
    for each in values:
        if each is decisive:
            return decisive
        if each is None:
            unknown = True
        elif not isinstance(each, bool):
            raise InvalidInput(f"AND and OR need conditions, not {each!r}")
    return None if unknown else not decisive


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


def _order(left: Any, right: Any) -> int:
    """-1, 0 or 1; NaN is equal to itself and above every other number."""
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
        return _naive(value)
    return dt.datetime.combine(value, dt.time()) if isinstance(value, dt.date) else value


def _same(left: Any, right: Any) -> bool:
    return left is None and right is None if left is None or right is None else _order(left, right) == 0


def _test_in(value: Any, values: Iterable[Any]) -> bool | None:
    if value is None:
        return None
    present = [v for v in values if v is not None]
    if any(_order(value, v) == 0 for v in present):
        return True
    return None if any(v is None for v in values) else False


def _test_case(arguments: tuple[Expression, ...], row: Mapping[str, Any]) -> Any:
    for when, then in zip(arguments[:-1:2], arguments[1:-1:2], strict=True):
        if test(when, row) is True:
            return test(then, row)
    return test(arguments[-1], row)


def _extreme(name: str, values: list[Any]) -> Any:
    best = values[0] if values else None
    for each in values[1:]:
        if (_order(each, best) > 0) == (name == "greatest") and _order(each, best) != 0:
            best = each
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
    return lambda left, right: accept(_order(left, right))


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

_SQL_BETWEEN = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq_null_safe": "<=>",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "int_div": "DIV",
    "mod": "%",
}
_SQL_NAMES = {
    "starts_with": "startswith",
    "ends_with": "endswith",
    "is_nan": "isnan",
    "date_diff": "datediff",
    "date_trunc": "date_trunc",
}


def _is_nonzero(expression: Expression) -> bool:
    return (
        isinstance(expression, Literal)
        and isinstance(expression.value, int | float | Decimal)
        and expression.value != 0
    )


def _sql_text(value: str) -> str:
    """In a form that no setting of a session changes: how quotes and backslashes are escaped, and `${...}` replaced, are such."""
    if any(part in value for part in ("'", "\\", "${")):
        return f"CAST({_sql_value(value.encode())} AS STRING)"
    return f"'{value}'"


def _sql_like(operand: str, pattern: str, escape: str) -> str:
    """Escaped by an exclamation mark; Spark's own escape, a backslash, is written by its settings."""
    wild = {ANY_TEXT: "%", ANY_CHARACTER: "_"}
    parts = (
        wild[each] if not isinstance(each, str) else re.sub(r"[!%_]", r"!\g<0>", each)
        for each in like_parts(pattern, escape)
    )
    return f"({operand} LIKE {_sql_text(''.join(parts))} ESCAPE '!')"


def _sql_value(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            if not -(2**63) <= value < 2**63:
                return f"{value}BD" if value >= 0 else f"(- {-value}BD)"
            if value == -(2**63):
                return f"CAST('{value}' AS BIGINT)"
            text = f"{abs(value)}L" if abs(value) >= 2**31 else str(abs(value))
            return text if value >= 0 else f"(- {text})"
        case float():
            if math.isfinite(value):
                return f"CAST('{value!r}' AS DOUBLE)"
            return f"CAST('{'NaN' if value != value else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
        case Decimal():
            if not value.is_finite():
                raise InvalidInput(f"decimal {value} has no SQL form")
            text = f"{abs(value):f}BD"
            return text if not value.is_signed() else f"(- {text})"
        case str():
            return _sql_text(value)
        case bytes() | bytearray():
            return f"X'{bytes(value).hex().upper()}'"
        case dt.datetime():
            text = _naive(value).isoformat(" ", "microseconds")
            return f"TIMESTAMP_LTZ'{text}Z'" if value.tzinfo else f"TIMESTAMP_NTZ'{text}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
        case dt.time():
            return f"TIME'{value.isoformat('microseconds')}'"
        case uuid.UUID():
            return _sql_value(value.bytes)
    raise InvalidInput(f"{value!r} ({type(value).__name__}) has no SQL form")


def _sql_in(operand: str, values: Iterable[Any]) -> str:
    texts = sorted(_sql_value(each) for each in values)
    return f"({operand} IN ({', '.join(texts)}))" if texts else f"({operand} IS NULL AND NULL)"


def _sql_tuples(columns: list[str], tuples: Iterable[tuple[Any, ...]]) -> str:
    rows = sorted(
        "(" + " AND ".join(f"{c} <=> {_sql_value(v)}" for c, v in zip(columns, each, strict=True)) + ")"
        for each in tuples
    )
    return "(" + " OR ".join(rows) + ")" if rows else "FALSE"
