"""SQL text -> expressions: the part of Spark's dialect that lakeformat evaluates."""

from __future__ import annotations

import datetime as dt
import difflib
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lakeformat import lazy
from lakeformat.codec.variant import get as variant_get
from lakeformat.errors import InvalidInput
from lakeformat.model import casing, predicate
from lakeformat.model.exact import EXACT
from lakeformat.model.predicate import FUNCTIONS, Call, Column, Expression, Literal, and_, call, described, not_, or_
from lakeformat.model.schema import Scalar
from lakeformat.model.type_text import parse_type

if TYPE_CHECKING:
    from sqlglot.errors import SqlglotError
    from sqlglot.tokens import Token

sqlglot = lazy.library("sqlglot")
exp = lazy.library("sqlglot.expressions")
dialects = lazy.library("sqlglot.dialects.spark")


@lru_cache(maxsize=1)
def spark() -> Any:
    """sqlglot's Spark dialect, in which calls that it reads otherwise than Spark are unknown functions: trunc and
    date_trunc with a unit such as 'Q', for which Spark gives null, datediff(unit, a, b), which counts whole units
    between instants, and named_struct, whose names are not columns."""
    functions = dialects.Spark.Parser.FUNCTIONS
    short = frozenset(exp.TimeUnit.UNABBREVIATED_UNIT_NAME)

    def is_short(argument: Any) -> bool:
        return isinstance(argument, exp.Literal) and argument.is_string and argument.name.upper() in short

    def truncated(name: str) -> Callable[[list[Any]], Any]:
        def read(arguments: list[Any]) -> Any:
            return (
                exp.Anonymous(this=name, expressions=arguments)
                if any(map(is_short, arguments))
                else functions[name.upper()](arguments)
            )

        return read

    def difference(arguments: list[Any]) -> Any:
        if len(arguments) == 3:
            return exp.Anonymous(this="datediff", expressions=[exp.Var(this=arguments[0].name), *arguments[1:]])
        return functions["DATEDIFF"](arguments)

    class Parser(dialects.Spark.Parser):  # type: ignore[name-defined]  # sqlglot is not typed.
        FUNCTIONS = {
            **{name: build for name, build in functions.items() if name != "NAMED_STRUCT"},
            **{name.upper(): truncated(name) for name in ("trunc", "date_trunc")},
            **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), difference),
        }

    class LakeformatSpark(dialects.Spark):  # type: ignore[name-defined]  # sqlglot is not typed.
        pass

    LakeformatSpark.Parser = Parser
    LakeformatSpark.parser_class = Parser
    return LakeformatSpark


@lru_cache(maxsize=1)
def plain() -> Any:
    """sqlglot's Spark dialect without its functions: each call is read as it is typed, name and arguments; only calls
    with words between the arguments, such as `CAST(a AS INT)`, have nodes of their own."""
    spark_parser = dialects.Spark.Parser
    words = ("CAST", "TRY_CAST", "EXTRACT", "TRIM")

    def separated(*separators: Any) -> Callable[[Any], Any]:
        """A reader of arguments between which words may stand in place of commas: `substring(a FROM 2 FOR 1)`."""

        def read(self: Any) -> Any:
            name, arguments = self._tokens[self._index - 2].text, self._parse_csv(self._parse_bitwise)
            for separator in separators:
                if self._match(separator):
                    arguments.append(self._parse_bitwise())
            return self.expression(exp.Anonymous(this=name, expressions=arguments))

        return read

    def position(self: Any) -> Any:
        arguments = self._parse_csv(self._parse_bitwise)
        if self._match(tokens.IN):
            arguments.append(self._parse_bitwise())
        return self.expression(exp.Anonymous(this="position", expressions=arguments))

    tokens = sqlglot.TokenType
    apart = dict.fromkeys(("SUBSTRING", "SUBSTR"), separated(tokens.FROM, tokens.FOR))

    class Parser(spark_parser):  # type: ignore[misc, valid-type]  # sqlglot is not typed.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = (
            {name: reader for name, reader in spark_parser.FUNCTION_PARSERS.items() if name in words}
            | apart
            | {"POSITION": position}
        )
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: reader
            for name, reader in spark_parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in ("ANY", "CASE", "TRANSFORM")
        }

    class PlainSpark(dialects.Spark):  # type: ignore[name-defined]  # sqlglot is not typed.
        pass

    PlainSpark.Parser = Parser
    PlainSpark.parser_class = Parser
    return PlainSpark


def parse(text: str | Expression, qualifiers: Collection[str] = ()) -> Expression:
    """The expression of Spark SQL `text`; an expression is returned unchanged.

    A dotted name is a path, so `t.id` has the qualifier `t` in `path[0]`; `qualifiers` (e.g. `{"t", "s"}`) are matched
    case-insensitively and returned as spelled here. Raises `InvalidInput` with the position of a syntax error, or with
    an unknown name.
    """
    if isinstance(text, Column | Literal | Call):
        return text
    if isinstance(text, bool):
        return Literal(text)
    if not isinstance(text, str):
        kind = f"{type(text).__module__}.{type(text).__qualname__}"
        raise InvalidInput(
            f"a condition is SQL text such as \"a > 1\" or a lakeformat predicate such as gt('a', 1), not {kind}"
        )
    try:
        statements = sqlglot.parse(_escaped(text), read=spark())
        if len(statements) != 1 or statements[0] is None:
            raise InvalidInput(
                f"{text!r}: expected one SQL expression, found {'none' if not text.strip() else 'several'}"
            )
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInput(f"{text!r}: {_position(error)}") from error
    except RecursionError as error:
        raise _too_deep(text) from error
    return read(statements[0], text, qualifiers)


def read(node: Any, text: str, qualifiers: Collection[str] = ()) -> Expression:
    """The expression of sqlglot's syntax tree of `text`; otherwise as `parse`."""
    try:
        return _Reading(text, {q.casefold(): q for q in qualifiers}).expression(node)
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInput(f"{text!r}: {_position(error)}") from error
    except KeyError as error:
        raise InvalidInput(f"{text!r}: a function lacks its argument {error}") from error
    except RecursionError as error:
        raise _too_deep(text) from error


def doubled_quotes(text: str, tokens: Iterable[Token]) -> Iterator[int]:
    """The positions of doubled quotes within a text, as in `'it''s'`. sqlglot reads two texts there; with a backslash
    in place of the first quote it reads what Spark does."""
    for here, after in itertools.pairwise(tokens):
        both = here.token_type is sqlglot.TokenType.STRING is after.token_type
        if both and after.start == here.end + 1 and text[here.end] == text[after.start]:
            yield here.end


def _escaped(text: str) -> str:
    if "''" not in text and '""' not in text:
        return text
    changed = list(text)
    for position in doubled_quotes(text, sqlglot.tokenize(text, read="spark")):
        changed[position] = "\\"
    return "".join(changed)


def _too_deep(text: str) -> InvalidInput:
    return InvalidInput(f"SQL of {len(text)} characters is nested too deeply: {text[:60]!r}...")


def value(operand: Any, qualifiers: Collection[str] = ()) -> Expression:
    """The expression of an assigned value: text is an expression, see `parse`; None, bool, int, float, Decimal, bytes,
    date, time and datetime are literals. Raises `InvalidInput`."""
    if isinstance(operand, np.generic):
        operand = operand.item()
    if operand is None or isinstance(operand, bool | int | float | Decimal | bytes | dt.date | dt.time | uuid.UUID):
        return Literal(operand)
    return parse(operand, qualifiers)


# Function names by syntax-tree node, for nodes whose arguments are the function's own.
_NODES = {node: function.name for function in FUNCTIONS.values() for node in function.nodes}
# Functions with a syntax of their own or none, which are not called by name.
_WRITTEN = frozenset({
    "in", "in_tuples", "like", "case", "cast", "and", "or", "not", "variant_get", "named_struct", "canonical", "stored",
})  # fmt: skip
_CALLED = {
    name: function.name
    for function in FUNCTIONS.values()
    if function.name not in _WRITTEN
    for name in (function.name, *function.calls)
}
_SHORTHANDS: dict[str, Callable[..., Expression]] = {
    "isnotnull": lambda a: not_(call("is_null", a)),
    "nvl2": lambda a, b, c: call("case", not_(call("is_null", a)), b, c),
    "positive": lambda a: a,
}
# The function names that users write.
NAMES = frozenset(
    {*_SHORTHANDS, "if", "left", "right", "like", "ilike", "to_date", "cast", "between", "variant_get", "named_struct"}
    | {name for f in FUNCTIONS.values() if not f.infix and f.name not in _WRITTEN for name in f.calls or (f.name,)}
)
_TYPES = {
    "TEXT": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "BINARY": "bytes",
    "VARBINARY": "bytes",
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "TIME": "time_micros",
    "TIMESTAMP": "timestamp_tz(6)",
    "TIMESTAMPTZ": "timestamp_tz(6)",
    "TIMESTAMPLTZ": "timestamp_tz(6)",
    "TIMESTAMPNTZ": "timestamp(6)",
}


class _Reading:
    """The conversion of one text: its qualifiers, and its text for errors."""

    def __init__(self, text: str, qualifiers: dict[str, str]) -> None:
        self._text, self._qualifiers = text, qualifiers

    def expression(self, node: Any) -> Expression:
        name = type(node).__name__
        reader = getattr(self, f"_read_{name.lower()}", None)
        if reader is not None:
            expression: Expression = reader(node)
            return expression
        if name in _NODES:
            return self._plain(_NODES[name], node)
        raise self._unknown(node)

    def _plain(self, name: str, node: Any) -> Expression:
        """A call with the node's arguments, in order; sqlglot's own flags are dropped."""
        operands: list[Any] = []
        for key in node.arg_types:
            value = node.args.get(key)
            operands += (
                value if isinstance(value, list) else [] if value is None or isinstance(value, bool) else [value]
            )
        if any(not isinstance(operand, exp.Expression) for operand in operands):
            raise self._unknown(node)
        arguments = self._all(operands)
        first = arguments[0]
        if name == "neg" and isinstance(first, Literal) and isinstance(first.value, int | float | Decimal):
            return Literal(predicate.negated(first.value))
        return call(name, *arguments)

    def _unknown(self, node: Any) -> InvalidInput:
        name = node.this if isinstance(node, exp.Anonymous) else node.key if isinstance(node, exp.Expression) else node
        shown = node.sql(dialect="spark") if isinstance(node, exp.Expression) else str(node)
        if isinstance(node, exp.Expression) and node.find(exp.Query):
            return InvalidInput(
                f"{self._text!r}: {shown[:200]!r} holds a query, which a condition cannot; read what it gives first "
                "and list it, e.g. is_in('id', other.scan(['id']).to_arrow()['id'].to_pylist()), "
                "or merge_into a table by it"
            )
        near = difflib.get_close_matches(str(name).lower(), NAMES, 3, 0.8)
        return InvalidInput(
            f"{self._text!r}: {name} is not known, in {shown[:200]!r}; "
            + (f"near it are {', '.join(near)}" if near else f"the functions are {', '.join(sorted(NAMES))}")
        )

    def _all(self, nodes: Any) -> list[Expression]:
        return [self.expression(node) for node in nodes]

    # One method per sqlglot node that is neither a plain operator nor a plain function.

    def _read_paren(self, node: Any) -> Expression:
        return self.expression(node.this)

    def _read_and(self, node: Any) -> Expression:
        return and_(*self._all(node.flatten()))

    def _read_or(self, node: Any) -> Expression:
        return or_(*self._all(node.flatten()))

    def _read_not(self, node: Any) -> Expression:
        return not_(self.expression(node.this))

    def _read_column(self, node: Any) -> Expression:
        if isinstance(node.this, exp.Star):
            raise self._unknown(node)
        return self._path([part.name for part in node.parts])

    def _read_dot(self, node: Any) -> Expression:
        parts: list[str] = []
        while isinstance(node, exp.Dot):
            if not isinstance(node.expression, exp.Identifier):
                raise self._unknown(node)
            parts.insert(0, node.expression.name)
            node = node.this
        if not isinstance(node, exp.Column):
            raise self._unknown(node)
        return self._path([part.name for part in node.parts] + parts)

    def _path(self, parts: list[str]) -> Column:
        first = self._qualifiers.get(parts[0].casefold(), parts[0]) if len(parts) > 1 else parts[0]
        return Column((first, *parts[1:]))

    def _read_boolean(self, node: Any) -> Expression:
        return Literal(bool(node.this))

    def _read_null(self, node: Any) -> Expression:
        return Literal(None)

    def _read_literal(self, node: Any) -> Expression:
        if node.is_string:
            return Literal(node.this)
        text = node.this.lower()
        if "e" in text:
            return Literal(float(text))
        return Literal(EXACT.create_decimal(text) if "." in text else int(text))

    def _read_rawstring(self, node: Any) -> Expression:
        return Literal(node.this)

    def _read_hexstring(self, node: Any) -> Expression:
        text = str(node.this)
        try:
            return Literal(bytes.fromhex("0" * (len(text) % 2) + text))
        except ValueError as error:
            raise InvalidInput(f"{self._text!r}: X'{text}' holds other than hexadecimal digits") from error

    def _read_is(self, node: Any) -> Expression:
        left, right = self.expression(node.this), node.expression
        if isinstance(right, exp.Null):
            return call("is_null", left)
        if isinstance(right, exp.Boolean):
            return call("eq_null_safe", left, Literal(bool(right.this)))
        if isinstance(right, exp.Not) and isinstance(right.this, exp.Null):
            return not_(call("is_null", left))
        raise self._unknown(node)

    def _read_nullsafeneq(self, node: Any) -> Expression:
        return not_(call("eq_null_safe", self.expression(node.this), self.expression(node.expression)))

    def _read_between(self, node: Any) -> Expression:
        if node.args.get("symmetric"):
            raise self._unknown(node)
        low, high = self.expression(node.args["low"]), self.expression(node.args["high"])
        operand = self.expression(node.this)
        return and_(call("ge", operand, low), call("le", operand, high))

    def _read_in(self, node: Any) -> Expression:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise self._unknown(node)
        if isinstance(node.this, exp.Tuple):
            return self._in_rows(self._all(node.this.expressions), node)
        operand, members = self.expression(node.this), self._all(node.expressions)
        if all(isinstance(member, Literal) for member in members):
            return call(
                "in", operand, Literal(frozenset(member.value for member in members if isinstance(member, Literal)))
            )
        return or_(*(call("eq", operand, member) for member in members))

    def _in_rows(self, operands: list[Expression], node: Any) -> Expression:
        tuples = []
        for expression in node.expressions:
            members = self._all(expression.expressions) if isinstance(expression, exp.Tuple) else None
            if members is None or len(members) != len(operands):
                raise InvalidInput(
                    f"{self._text!r}: {expression.sql(dialect='spark')} is not a row of {len(operands)} values"
                )
            # Spark compares rows as a whole, and then null equals null.
            tuples.append(and_(*(call("eq_null_safe", a, b) for a, b in zip(operands, members, strict=True))))
        return or_(*tuples)

    def _read_like(self, node: Any, escape: str = "\\") -> Expression:
        pattern = self.expression(node.expression)
        if node.args.get("negate"):
            return not_(self._like(self.expression(node.this), pattern, escape, node))
        return self._like(self.expression(node.this), pattern, escape, node)

    def _like(self, operand: Expression, pattern: Expression, escape: str, node: Any) -> Expression:
        if not isinstance(pattern, Literal):
            raise InvalidInput(f"{self._text!r}: LIKE needs a pattern in quotes, not {described(pattern)}")
        if pattern.value is None:
            return Literal(None)
        return predicate.like(operand, pattern.value, escape)

    def _read_ilike(self, node: Any) -> Expression:
        pattern = self.expression(node.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise self._unknown(node)
        return predicate.like(call("lower", self.expression(node.this)), casing.lower(pattern.value))

    def _read_escape(self, node: Any) -> Expression:
        escape = self.expression(node.expression)
        if not isinstance(node.this, exp.Like) or not isinstance(escape, Literal):
            raise self._unknown(node)
        return self._read_like(node.this, escape.value)

    def _read_anonymous(self, node: Any) -> Expression:
        name, arguments = str(node.this).lower(), self._all(node.expressions)
        if name == "variant_get":
            return self._variant_get(node, arguments)
        if name == "named_struct":
            return self._named_struct(node, arguments)
        if name in _SHORTHANDS:
            try:
                return _SHORTHANDS[name](*arguments)
            except TypeError as error:
                raise InvalidInput(f"{self._text!r}: {name} does not take {len(arguments)} arguments") from error
        if name in _CALLED:
            return call(_CALLED[name], *arguments)
        raise self._unknown(node)

    def _variant_get(self, node: Any, arguments: list[Expression]) -> Expression:
        match arguments:
            case [operand, Literal(str(path)), Literal(str(type))]:
                variant_get.steps(path)
                target = exp.DataType.build(type, dialect="spark")
                return call("variant_get", operand, Literal(path), Literal(self._type_text(target)))
        shown = node.sql(dialect="spark")
        raise InvalidInput(f"{self._text!r}: {shown[:200]!r}: write it as variant_get(column, '$.path', 'type')")

    def _named_struct(self, node: Any, arguments: list[Expression]) -> Expression:
        names = [argument.value if isinstance(argument, Literal) else None for argument in arguments[::2]]
        if len(arguments) % 2 or not all(isinstance(name, str) for name in names):
            raise InvalidInput(
                f"{self._text!r}: {node.sql(dialect='spark')[:200]!r}: write it as named_struct('name', value, ...)"
            )
        if len(set(names)) < len(names):
            raise InvalidInput(f"{self._text!r}: {node.sql(dialect='spark')[:200]!r} has two fields of one name")
        return call("named_struct", *arguments)

    def _read_dpipe(self, node: Any) -> Expression:
        left, right = self.expression(node.this), self.expression(node.expression)
        first = left.arguments if isinstance(left, Call) and left.name == "concat" else (left,)
        return call("concat", *first, right)

    def _read_if(self, node: Any) -> Expression:
        otherwise = node.args.get("false")
        return call(
            "case",
            self.expression(node.this),
            self.expression(node.args["true"]),
            self.expression(otherwise) if otherwise is not None else Literal(None),
        )

    def _read_nvl2(self, node: Any) -> Expression:
        otherwise = node.args.get("false")
        return call(
            "case",
            not_(call("is_null", self.expression(node.this))),
            self.expression(node.args["true"]),
            self.expression(otherwise) if otherwise is not None else Literal(None),
        )

    def _read_case(self, node: Any) -> Expression:
        flat: list[Expression] = []
        for branch in node.args["ifs"]:
            when = self.expression(branch.this)
            if node.this is not None:
                when = call("eq", self.expression(node.this), when)
            flat += [when, self.expression(branch.args["true"])]
        default = node.args.get("default")
        return call("case", *flat, self.expression(default) if default is not None else Literal(None))

    def _read_cast(self, node: Any) -> Expression:
        return self._cast(node)

    def _read_trycast(self, node: Any) -> Expression:
        if node.args.get("safe"):
            raise self._unknown(node)
        return self._cast(node)

    def _cast(self, node: Any) -> Expression:
        target = node.args["to"]
        text = self._type_text(target)
        operand = self.expression(node.this)
        if isinstance(operand, Literal) and operand.value is not None and not isinstance(node.this, exp.Cast):
            return self._typed_literal(operand.value, text)
        if isinstance(operand, Call) and operand.name == "cast" and operand.arguments[1] == Literal(text):
            return operand
        return call("cast", operand, Literal(text))

    def _typed_literal(self, value: Any, text: str) -> Expression:
        """DATE '...', TIMESTAMP '...', 5L, 1.5BD, or a cast of a literal, as a literal."""
        try:
            if isinstance(value, str) and text.startswith("timestamp"):
                moment, beyond = predicate.parse_timestamp(value)
                moment = moment.replace(tzinfo=None) if text == "timestamp(6)" else moment
                return call("cast", Literal(value), Literal(text.replace("(6)", "(9)"))) if beyond else Literal(moment)
            if isinstance(value, str) and text == "date":
                return Literal(predicate.parse_date(value))
            if isinstance(value, str | int | Decimal) and not isinstance(value, bool) and text == "double":
                return Literal(float(predicate.number_text(value) if isinstance(value, str) else value))
            if isinstance(value, bytes) and text == "string":
                return Literal(value.decode())
            if isinstance(value, str) and text.startswith("decimal"):
                number = EXACT.create_decimal(predicate.number_text(value))
                target = parse_type(text)
                if isinstance(target, Scalar) and -int(number.as_tuple().exponent) == target.parameters[1]:
                    return Literal(predicate.coerce(number, target, "decimal"))
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and text in ("tinyint", "smallint", "int", "bigint")
            ):
                return Literal(predicate.coerce(value, parse_type(text), "literal"))
        except (ValueError, InvalidOperation) as error:
            raise InvalidInput(f"{self._text!r}: {value!r} is not a {text.partition('(')[0]}: {error}") from error
        return call("cast", Literal(value), Literal(text))

    def _type_text(self, target: Any) -> str:
        name = getattr(target.this, "name", str(target.this))
        if name == "DECIMAL":
            numbers = [
                expression.this.this if isinstance(expression, exp.DataTypeParam) else expression.this
                for expression in target.expressions
            ]
            return f"decimal({', '.join(map(str, numbers))})" if numbers else "decimal(10, 0)"
        if name not in _TYPES:
            raise InvalidInput(
                f"{self._text!r}: CAST to {target.sql(dialect='spark')} is not known; supported: "
                "boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, binary, date, "
                "timestamp, timestamp_ntz, timestamp_ltz"
            )
        return _TYPES[name]

    def _read_tsordstodate(self, node: Any) -> Expression:
        if node.args.get("format") is not None:
            raise self._unknown(node)
        operand = self.expression(node.this)
        if isinstance(operand, Literal) and isinstance(operand.value, str):
            return self._typed_literal(operand.value, "date")
        if isinstance(operand, Call) and operand.name == "cast" and operand.arguments[1] == Literal("date"):
            return operand
        return predicate.cast(operand, "date")

    def _read_date(self, node: Any) -> Expression:
        return self._read_tsordstodate(node)

    def _read_tsordsadd(self, node: Any) -> Expression:
        if str(node.args.get("unit") or "DAY").upper() != "DAY":
            raise self._unknown(node)
        return call("date_add", self.expression(node.this), self.expression(node.expression))

    def _read_dateadd(self, node: Any) -> Expression:
        return self._read_tsordsadd(node)

    def _read_datediff(self, node: Any) -> Expression:
        if str(node.args.get("unit") or "DAY").upper() != "DAY":
            raise self._unknown(node)
        return call("date_diff", self.expression(node.this), self.expression(node.expression))

    def _read_timestamptrunc(self, node: Any) -> Expression:
        unit = str(node.args["unit"].name).lower()
        return call("date_trunc", Literal(unit), self.expression(node.this))

    def _read_left(self, node: Any) -> Expression:
        return call("substring", self.expression(node.this), Literal(1), self.expression(node.expression))

    def _read_right(self, node: Any) -> Expression:
        count = self.expression(node.expression)
        if not isinstance(count, Literal) or not isinstance(count.value, int):
            raise self._unknown(node)
        operand = self.expression(node.this)
        if count.value <= 0:
            return call("substring", operand, Literal(1), Literal(0))
        return call("substring", operand, Literal(-count.value))

    def _read_trim(self, node: Any) -> Expression:
        if node.args.get("expression") is not None:
            raise self._unknown(node)
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        return call(name, self.expression(node.this))

    def _read_replace(self, node: Any) -> Expression:
        new = node.args.get("replacement")
        return call(
            "replace",
            self.expression(node.this),
            self.expression(node.expression),
            self.expression(new) if new is not None else Literal(""),
        )


def _position(error: SqlglotError) -> str:
    errors = getattr(error, "errors", None)
    if not errors:
        return str(error).partition("\n")[0]
    first = errors[0]
    near = first.get("highlight") or "the end"
    where = f"line {first.get('line')}, column {first.get('col')}, near {near!r}"
    said = first.get("description", "syntax error")
    return f"{'an expression is missing' if '<class' in said else said} at {where}"
