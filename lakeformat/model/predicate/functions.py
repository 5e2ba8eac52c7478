"""The table of operators and functions. Most of them need only a row of it.

`expression.evaluation` reads it for the kernels, `expression.spark_sql` for Spark's text, `expression.sql_text` for
sqlglot's nodes and the names that users call. What a row cannot express is there under the row's name: a special
kernel (`_OWN`), SQL that is neither infix nor a call, a node with other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Kind


class Takes(Enum):
    """The arguments that `Function.arrow` takes."""

    ANY = auto()  # The arguments unchanged.
    ALIGNED = auto()  # Both as one type; NaN is equal to itself and above every other number.
    CONDITIONS = auto()  # Conditions, folded from left to right.
    DOUBLES = auto()
    PATTERN = auto()  # Text, and a constant text.
    DATE = auto()  # A date or timestamp; the result becomes an INT.
    TIME = auto()  # A time of day, date or timestamp; the result becomes an INT.


@dataclass(frozen=True, slots=True)
class Function:
    """An operator or function.

    `arity` is the least and the most number of arguments, None without a limit. `result` is the kind of the result,
    None if it follows from the arguments. `arrow` is a function of `pyarrow.compute` over what it `takes`; "" if it has
    a kernel of its own. In Spark's text it is written as `infix` between its arguments, or as a call of the first of
    `calls`. `nodes` are sqlglot's node classes with the same arguments in the same order. `constants` are the indexes
    of arguments that must have one value for all rows; the evaluator refuses columns there.
    """

    name: str
    arity: tuple[int, int | None]
    result: Kind | None = None
    arrow: str = ""
    takes: Takes = Takes.ANY
    infix: str = ""
    calls: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    flipped: str = ""  # A comparison with its sides swapped.
    negated: str = ""  # A comparison that is true where this one is false.
    constants: tuple[int, ...] = ()

    @property
    def spark(self) -> str:
        """Spark's name for it."""
        return self.calls[0] if self.calls else self.name


# Aliases, for rows of one line.
_ONE, _TWO, _THREE, _SOME = (1, 1), (2, 2), (3, 3), (1, None)
_CONDITION, _INT, _BIGINT, _DOUBLE, _STRING, _DATE = (
    Kind.BOOLEAN,
    Kind.INT,
    Kind.BIGINT,
    Kind.DOUBLE,
    Kind.STRING,
    Kind.DATE,
)
_ALIGNED, _CONDITIONS, _DOUBLES, _PATTERN = Takes.ALIGNED, Takes.CONDITIONS, Takes.DOUBLES, Takes.PATTERN

# in(x, Literal(frozenset))            in_tuples(column, ..., Literal(frozenset of tuples)), null equal to null
# like(x, pattern, Literal(escape))    cast(x, Literal(type text))    case(when, then, ..., otherwise)
# variant_get(x, Literal(path), Literal(type text))    named_struct(Literal(name), x, ...)
# canonical(x): bytes that are equal exactly if no expression tells the values apart; without a name in SQL
# stored(x, Literal(field)): as that column takes it in SQL (`expression.store`); without a name in SQL
# fmt: off
_ROWS = (
    Function("eq", _TWO, _CONDITION, "equal", _ALIGNED, infix="=", nodes=("EQ",), flipped="eq", negated="ne"),
    Function("ne", _TWO, _CONDITION, "not_equal", _ALIGNED, infix="<>", nodes=("NEQ",), flipped="ne", negated="eq"),
    Function("lt", _TWO, _CONDITION, "less", _ALIGNED, infix="<", nodes=("LT",), flipped="gt", negated="ge"),
    Function("le", _TWO, _CONDITION, "less_equal", _ALIGNED, infix="<=", nodes=("LTE",), flipped="ge", negated="gt"),
    Function("gt", _TWO, _CONDITION, "greater", _ALIGNED, infix=">", nodes=("GT",), flipped="lt", negated="le"),
    Function("ge", _TWO, _CONDITION, "greater_equal", _ALIGNED, infix=">=", nodes=("GTE",), flipped="le", negated="lt"),
    Function("eq_null_safe", _TWO, _CONDITION, infix="<=>", nodes=("NullSafeEQ",), flipped="eq_null_safe"),
    Function("and", _SOME, _CONDITION, "and_kleene", _CONDITIONS, infix="AND"),
    Function("or", _SOME, _CONDITION, "or_kleene", _CONDITIONS, infix="OR"),
    Function("not", _ONE, _CONDITION),
    Function("in", _TWO, _CONDITION),
    Function("in_tuples", (2, None), _CONDITION),
    Function("is_null", _ONE, _CONDITION, "is_null", calls=("isnull",)),
    Function("is_nan", _ONE, _CONDITION, calls=("isnan",), nodes=("IsNan",)),
    Function("like", _THREE, _CONDITION, constants=(1, 2)),
    Function(
        "starts_with", _TWO, _CONDITION, "starts_with", _PATTERN,
        calls=("startswith",), nodes=("StartsWith",), constants=(1,)
    ),
    Function(
        "ends_with", _TWO, _CONDITION, "ends_with", _PATTERN,
        calls=("endswith",), nodes=("EndsWith",), constants=(1,)
    ),
    Function("contains", _TWO, _CONDITION, "match_substring", _PATTERN, nodes=("Contains",), constants=(1,)),
    Function("add", _TWO, infix="+", nodes=("Add",)),
    Function("sub", _TWO, infix="-", nodes=("Sub",)),
    Function("mul", _TWO, infix="*", nodes=("Mul",)),
    Function("div", _TWO, infix="/", nodes=("Div",)),
    Function("int_div", _TWO, _BIGINT, infix="DIV", nodes=("IntDiv",)),
    Function("mod", _TWO, infix="%", nodes=("Mod",)),
    Function("neg", _ONE, calls=("negative",), nodes=("Neg", "Negative")),
    Function("power", _TWO, _DOUBLE, "power", _DOUBLES, nodes=("Pow",)),
    Function("sqrt", _ONE, _DOUBLE, "sqrt", _DOUBLES, nodes=("Sqrt",)),
    Function("sign", _ONE, _DOUBLE, nodes=("Sign",)),
    Function("abs", _ONE, nodes=("Abs",)),
    Function("floor", _ONE, nodes=("Floor",)),
    Function("ceil", _ONE, nodes=("Ceil",)),
    Function("round", (1, 2), nodes=("Round",), constants=(1,)),
    Function("case", (3, None)),
    Function("cast", _TWO),
    Function("coalesce", _SOME, calls=("coalesce", "ifnull", "nvl"), nodes=("Coalesce",)),
    Function("nullif", _TWO, nodes=("Nullif",)),
    Function("greatest", (2, None), nodes=("Greatest",)),
    Function("least", (2, None), nodes=("Least",)),
    Function("upper", _ONE, _STRING, nodes=("Upper",)),
    Function("lower", _ONE, _STRING, nodes=("Lower",)),
    Function("length", _ONE, _INT, nodes=("Length",)),
    Function("trim", _ONE, _STRING),
    Function("ltrim", _ONE, _STRING),
    Function("rtrim", _ONE, _STRING),
    Function("concat", _SOME, nodes=("Concat",)),
    Function("substring", (2, 3), nodes=("Substring",), constants=(1, 2)),
    Function("replace", _THREE, _STRING, constants=(1, 2)),
    Function("year", _ONE, _INT, "year", Takes.DATE, nodes=("Year",)),
    Function("quarter", _ONE, _INT, "quarter", Takes.DATE, nodes=("Quarter",)),
    Function("month", _ONE, _INT, "month", Takes.DATE, nodes=("Month",)),
    Function("weekofyear", _ONE, _INT, "iso_week", Takes.DATE, nodes=("WeekOfYear",)),
    Function("day", _ONE, _INT, "day", Takes.DATE, nodes=("Day", "DayOfMonth")),
    Function("dayofyear", _ONE, _INT, "day_of_year", Takes.DATE, nodes=("DayOfYear",)),
    Function("hour", _ONE, _INT, "hour", Takes.TIME, nodes=("Hour",)),
    Function("minute", _ONE, _INT, "minute", Takes.TIME, nodes=("Minute",)),
    Function("second", _ONE, _INT, "second", Takes.TIME, nodes=("Second",)),
    Function("date_add", _TWO, _DATE),
    Function("date_sub", _TWO, _DATE, nodes=("DateSub",)),
    Function("date_diff", _TWO, _INT, calls=("datediff",)),
    Function("date_trunc", _TWO, constants=(0,)),
    Function("variant_get", _THREE),
    Function("named_struct", (2, None)),
    Function("canonical", _ONE, Kind.BYTES),
    Function("stored", _TWO),
)
# fmt: on
FUNCTIONS: Mapping[str, Function] = {row.name: row for row in _ROWS}
COMPARISONS = frozenset(row.name for row in _ROWS if row.takes is Takes.ALIGNED)
CONDITIONS = frozenset(row.name for row in _ROWS if row.result is Kind.BOOLEAN)
FLIPPED: Mapping[str, str] = {row.name: row.flipped for row in _ROWS if row.flipped}
