"""Types as text: `decimal(10, 2)`, `array<string>`, `struct<a: int, b: timestamp(3)>`, `INT NOT NULL`."""

from __future__ import annotations

import re

from lakeformat.errors import InvalidInput
from lakeformat.model.schema import NO_ID, Field, Geo, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar

KNOWN = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), char(n), varchar(n), string, binary(n), "
    "varbinary(n), bytes, fixed(n), date, time(p), timestamp(p), timestamp_ltz(p), uuid, variant, unknown, "
    "geometry(crs), geography(crs, edges), array<t>, multiset<t>, map<k, v>, struct<name: t, ...>"
)


def parse_type(text: str) -> Type:
    """The type that `text` spells, in Spark's, Paimon's or Iceberg's syntax; its parts have no ids yet.

    `timestamp` has no time zone and six digits, `timestamp_ltz` (or `timestamp_tz`) is an instant, `binary` without a
    length is any bytes. Raises `InvalidInput` that names the text and the position of the error.
    """
    return parse_column(text)[0]


def parse_column(text: str) -> tuple[Type, bool, str | None]:
    """(type, nullable, comment) of e.g. `INT NOT NULL COMMENT 'count'`."""
    if not isinstance(text, str):
        raise InvalidInput(f"a type is text such as 'int' or 'decimal(10, 2)', not {type(text).__name__} {text!r}")
    reader = _Reader(text)
    column = reader.column()
    reader.end()
    return column


_PLAIN = {
    "boolean": Kind.BOOLEAN,
    "bool": Kind.BOOLEAN,
    "tinyint": Kind.TINYINT,
    "byte": Kind.TINYINT,
    "smallint": Kind.SMALLINT,
    "short": Kind.SMALLINT,
    "int": Kind.INT,
    "integer": Kind.INT,
    "bigint": Kind.BIGINT,
    "long": Kind.BIGINT,
    "float": Kind.FLOAT,
    "real": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "string": Kind.STRING,
    "text": Kind.STRING,
    "bytes": Kind.BYTES,
    "date": Kind.DATE,
    "uuid": Kind.UUID,
    "variant": Kind.VARIANT,
    "unknown": Kind.UNKNOWN,
    "geometry": Kind.GEOMETRY,
    "geography": Kind.GEOGRAPHY,
    "time_micros": Kind.TIME_MICROS,
}
_TIMES = {
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP,
    "timestamp_ltz": Kind.TIMESTAMP_TZ,
    "timestamp_tz": Kind.TIMESTAMP_TZ,
    "timestamptz": Kind.TIMESTAMP_TZ,
}
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|`((?:[^`]|``)+)`|'((?:[^']|'')*)'|(\S))")
_MAX_LENGTH = 2**31 - 1
_MAX_DEPTH = 64


class _Reader:
    """A cursor over the tokens of one type text."""

    def __init__(self, text: str) -> None:
        self._text, self._next, self._depth = text, 0, 0
        self._tokens = [(m.start(), m.groups()) for m in _TOKEN.finditer(text)]

    def column(self) -> tuple[Type, bool, str | None]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._expected(f"at most {_MAX_DEPTH} levels of nesting")
        parsed = self._type()
        nullable, comment = True, None
        if self._word("not"):
            if not self._word("null"):
                raise self._expected("NULL after NOT")
            nullable = False
        else:
            self._word("null")
        if self._word("comment"):
            comment = self._quoted()
        self._depth -= 1
        return parsed, nullable, comment

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise self._expected("the end")

    def _type(self) -> Type:
        name = self._name("a type").lower()
        if name in _PLAIN:
            return self._plain(name)
        if name in _TIMES:
            digits = self._numbers(1) or (6,)
            kind = _TIMES[name]
            if self._word("with"):
                self._word("local")
                self._words("with", "time", "zone")
                kind = Kind.TIMESTAMP_TZ
            elif self._word("without"):
                self._words("without", "time", "zone")
            return self._within(scalar(kind, *digits), 0, 9)
        match name:
            case "time":
                parsed = self._within(scalar(Kind.TIME, *(self._numbers(1) or (0,))), 0, 9)
                if self._word("without"):
                    self._words("without", "time", "zone")
                return parsed
            case "decimal" | "numeric" | "dec":
                numbers = self._numbers(2) or (10, 0)
                precision, scale = (*numbers, 0)[:2]
                if not (1 <= precision <= 38 and 0 <= scale <= precision):
                    raise self._refusal(f"{name}({precision}, {scale}): precision is 1 to 38, scale 0 to precision")
                return scalar(Kind.DECIMAL, precision, scale)
            case "char" | "varchar" | "character":
                kind = Kind.VARCHAR if name == "varchar" else Kind.CHAR
                numbers = self._numbers(1)
                if not numbers:
                    raise self._refusal(f"{name} needs a length, e.g. {name}(20); or use string")
                return self._within(scalar(kind, *numbers), 1, _MAX_LENGTH)
            case "binary" | "varbinary":
                kind = Kind.VARBINARY if name == "varbinary" else Kind.BINARY
                numbers = self._numbers(1)
                if not numbers:
                    return scalar(Kind.BYTES)
                return self._within(scalar(kind, *numbers), 1, _MAX_LENGTH)
            case "fixed":
                return self._within(scalar(Kind.FIXED, *(self._numbers(1) or (0,))), 1, _MAX_LENGTH)
            case "array" | "list":
                return ListOf(self._parts(1, ("element",))[0])
            case "multiset":
                return MultisetOf(self._parts(1, ("element",))[0])
            case "map":
                key, value = self._parts(2, ("key", "value"))
                return MapOf(key, value)
            case "struct" | "row":
                return Row(self._members())
        raise self._refusal(f"unknown type {name!r}; there are {KNOWN}")

    def _plain(self, name: str) -> Scalar:
        kind = _PLAIN[name]
        return Geo(kind, text=name + self._system()) if kind in (Kind.GEOMETRY, Kind.GEOGRAPHY) else scalar(kind)

    def _system(self) -> str:
        """The reference system of a geometry, and of a geography its edges, e.g. `(srid:4326)`, as it is spelled."""
        if not self._symbol("("):
            return ""
        first, start = self._next, self._tokens[self._next - 1][0]
        while self._next < len(self._tokens) and self._token()[4] not in ("(", ")"):
            self._next += 1
        if self._next == first:
            raise self._expected("a reference system such as srid:4326")
        end = self._tokens[self._next][0] if self._next < len(self._tokens) else 0
        self._expect(")")
        return f"({self._text[start:end].strip().removeprefix('(').strip()})"

    def _parts(self, count: int, names: tuple[str, ...]) -> list[Field]:
        close = self._open("<")
        types = []
        for i in range(count):
            if i:
                self._expect(",")
            part, nullable, comment = self.column()
            if names[i] == "key":
                nullable = False
            types.append(Field(NO_ID, names[i], part, nullable, comment))
        self._expect(close)
        return types

    def _members(self) -> tuple[Field, ...]:
        close = self._open("<(")
        fields: list[Field] = []
        while not self._symbol(close):
            if fields:
                self._expect(",")
            name = self._name("a field name")
            self._symbol(":")
            part, nullable, comment = self.column()
            if any(field.name == name for field in fields):
                raise self._refusal(f"field {name!r} appears twice in one struct")
            fields.append(Field(NO_ID, name, part, nullable, comment))
        if not fields:
            raise self._refusal("a struct needs at least one field")
        return tuple(fields)

    def _within(self, type: Scalar, low: int, high: int) -> Scalar:
        if not low <= type.parameters[0] <= high:
            raise self._refusal(f"{type}: the parameter is {low} to {high}")
        return type

    def _numbers(self, at_most: int) -> tuple[int, ...]:
        if not self._symbol("("):
            return ()
        numbers = [self._number()]
        while self._symbol(","):
            numbers.append(self._number())
        self._expect(")")
        if len(numbers) > at_most:
            raise self._expected(f"at most {at_most} parameter{'s' if at_most > 1 else ''}")
        return tuple(numbers)

    def _open(self, symbols: str) -> str:
        for symbol in symbols:
            if self._symbol(symbol):
                return {"<": ">", "(": ")"}[symbol]
        raise self._expected(f"{symbols[0]!r}")

    def _token(self) -> tuple[str | None, ...]:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else (None,) * 5

    def _peek(self, word: str) -> bool:
        token = self._token()[1]
        return token is not None and token.lower() == word

    def _word(self, word: str) -> bool:
        if not self._peek(word):
            return False
        self._next += 1
        return True

    def _words(self, first: str, *rest: str) -> None:
        for word in rest:
            if not self._word(word):
                raise self._expected(f"{first.upper()} {' '.join(rest).upper()}")

    def _symbol(self, symbol: str) -> bool:
        if self._token()[4] != symbol:
            return False
        self._next += 1
        return True

    def _expect(self, symbol: str) -> None:
        if not self._symbol(symbol):
            raise self._expected(f"{symbol!r}")

    def _name(self, label: str) -> str:
        token = self._token()
        if token[1] is None and token[2] is None:
            raise self._expected(label)
        self._next += 1
        return token[1] if token[1] is not None else (token[2] or "").replace("``", "`")

    def _number(self) -> int:
        token = self._token()[0]
        if token is None:
            raise self._expected("a number")
        self._next += 1
        return int(token)

    def _quoted(self) -> str:
        token = self._token()[3]
        if token is None:
            raise self._expected("a comment in single quotes")
        self._next += 1
        return token.replace("''", "'")

    def _expected(self, label: str) -> InvalidInput:
        at = self._tokens[self._next][0] if self._next < len(self._tokens) else len(self._text)
        return self._refusal(f"expected {label} at position {at}, found {self._text[at:].strip()[:20] or 'the end'!r}")

    def _refusal(self, reason: str) -> InvalidInput:
        return InvalidInput(f"type {self._text!r}: {reason}")
