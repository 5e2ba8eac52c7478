"""Expressions over Arrow tables, with the semantics of Spark SQL, evaluated by whole columns."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import arrow, layouts
from lakeformat.codec.arrow import Values
from lakeformat.codec.variant import get as variant_get
from lakeformat.codec.variant import variant
from lakeformat.errors import InvalidInput, LakeError, NotFound
from lakeformat.expression import canonical, rounding, store
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model import casing
from lakeformat.model.predicate import (
    ALWAYS,
    BLANKS,
    COMPARISONS,
    FUNCTIONS,
    Call,
    Column,
    Expression,
    Function,
    Literal,
    Takes,
    like_regex,
)
from lakeformat.model.schema import Field
from lakeformat.model.type_text import parse_type

# The value of an expression: a column, or one value for all rows.


def evaluate(
    expression: Expression, table: pa.Table | pa.RecordBatch, as_type: pa.DataType | None = None
) -> pa.Array | pa.ChunkedArray:
    """One value per row of `table`: an Array for a RecordBatch, a ChunkedArray for a Table.

    With `as_type` the values are cast to it, as an assignment to a column of that type does. Conditions give booleans
    with nulls (three-valued logic). Raises `NotFound` for an unknown column, and `InvalidInput`, naming the operation,
    for incompatible types, for overflow and for text that cannot be cast.
    """
    values = _evaluate(expression, table)
    if as_type is not None:
        return _as_column(_guarded(expression, lambda: cast(values, as_type)), table)
    return _as_column(values, table)


def mask(expression: Expression, table: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
    """True for the rows that satisfy the condition, False for the rest: no nulls."""
    values = _evaluate(expression, table)
    if pa.types.is_null(values.type):
        values = pa.scalar(False)
    if not pa.types.is_boolean(values.type):
        raise InvalidInput(f"{to_sql(expression)} is {values.type}, not a condition; compare it with something")
    return _as_column(pc.fill_null(values, False), table)


def keep(expression: Expression, table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """The rows that satisfy the condition."""
    return table if expression == ALWAYS else table.filter(mask(expression, table))


def scalar(value: Any) -> pa.Scalar:
    """A Python value with its Arrow type in SQL. Raises `InvalidInput` if it has none."""
    try:
        match value:
            case None:
                return pa.scalar(None, pa.null())
            case bool():
                return pa.scalar(value, pa.bool_())
            case int():
                if -(2**31) <= value < 2**31:
                    return pa.scalar(value, pa.int32())
                return pa.scalar(value, pa.int64()) if -(2**63) <= value < 2**63 else _decimal(Decimal(value))
            case float():
                return pa.scalar(value, pa.float64())
            case Decimal():
                return _decimal(value)
            case str():
                return pa.scalar(value, pa.string())
            case bytes() | bytearray() | memoryview():
                return pa.scalar(bytes(value), pa.binary())
            case uuid.UUID():
                return pa.scalar(value.bytes, pa.binary())
            case dt.datetime():
                return pa.scalar(value, pa.timestamp("us", "UTC" if value.tzinfo else None))
            case dt.date():
                return pa.scalar(value, pa.date32())
            case dt.time():
                return pa.scalar(value, pa.time64("us"))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInput(f"{value!r} has no Arrow form: {error}") from error
    raise InvalidInput(f"{value!r} ({type(value).__name__}) is not a value that a column can hold")


def compare(name: str, left: Values, right: Values) -> Values:
    """`left name right` (`name` is one of `COMPARISONS`), null if either is: NaN equals NaN and is above all other
    numbers."""
    left, right = align(left, right)
    if pa.types.is_null(left.type):
        return _nulls_like(right if isinstance(left, pa.Scalar) else left, pa.bool_())
    if pa.types.is_nested(left.type):
        raise InvalidInput(f"values of type {left.type} cannot be compared; compare a part of them")
    if not pa.types.is_floating(left.type):
        return _COMPARE[name](left, right)
    plain, left_nan, right_nan = _COMPARE[name](left, right), pc.is_nan(left), pc.is_nan(right)
    match name:
        case "eq":
            return pc.or_(plain, pc.and_(left_nan, right_nan))
        case "ne":
            return pc.and_(plain, pc.invert(pc.and_(left_nan, right_nan)))
        case "lt":
            return pc.or_(plain, pc.and_not(right_nan, left_nan))
        case "gt":
            return pc.or_(plain, pc.and_not(left_nan, right_nan))
        case "le":
            return pc.or_(plain, right_nan)
        case _:
            return pc.or_(plain, left_nan)


def align(left: Values, right: Values) -> tuple[Values, Values]:
    """Both sides in the type in which SQL compares or combines them. Raises `InvalidInput` if there is none."""
    left, right = _plain(left), _plain(right)
    both = common_type(left.type, right.type)
    return _widen(left, both), _widen(right, both)


def comparable(column: Values, members: Sequence[pa.Scalar]) -> tuple[Values, pa.Array]:
    """A column and the values to look up in it, in one type in which equal values have equal bits.

    Raises `InvalidInput` if there is no such type.
    """
    column = _plain(column)
    both = column.type
    kinds = dict.fromkeys(member.type for member in members)
    for kind in kinds:
        both = common_type(both, kind)
    if len(kinds) == 1:
        values = _widen(pa.array([member.as_py() for member in members], *kinds), both)
    else:
        values = pa.array([_widen(member, both).as_py() for member in members], both)
    return _canonical(_widen(column, both)), _canonical(values)


def lookup(values: Values, type: pa.DataType) -> Values:
    """A column as `type` (its common type with itself), in which equal values have equal bits."""
    return _canonical(_widen(_plain(values), type))


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type that holds the values of both, by Spark's rules. Raises `InvalidInput` if there is none."""
    t = pa.types
    if left == right or t.is_null(right):
        return left
    if t.is_null(left):
        return right
    for a, b in ((left, right), (right, left)):
        if _is_text(a) and not (_is_text(b) or _is_binary(b) or t.is_nested(b)):
            return pa.int64() if t.is_integer(b) else pa.float64() if _is_number(b) else b
    if _is_text(left) and _is_text(right):
        return pa.large_string() if pa.large_string() in (left, right) else pa.string()
    if _is_binary(left) and _is_binary(right):
        return pa.large_binary() if pa.large_binary() in (left, right) else pa.binary()
    if _is_number(left) and _is_number(right):
        return _common_number(left, right)
    if t.is_temporal(left) and t.is_temporal(right):
        arrow_type = _common_moment(left, right)
        if arrow_type is not None:
            return arrow_type
    raise InvalidInput(f"{left} and {right} are not compatible; cast one of them")


def cast(values: Values, target: pa.DataType) -> Values:
    """A cast by Spark's rules: text is trimmed, decimals round half up, floats lose their fraction, overflow is an
    error."""
    values = _plain(values)
    source, t = values.type, pa.types
    if source == target:
        return values
    if t.is_null(source):
        return pc.cast(values, target)
    if _is_text(source):
        return _from_text(values, target)
    if _is_text(target):
        return _to_text(values, target)
    if _is_number(source) and _is_number(target):
        return _number_to_number(values, target)
    if t.is_boolean(source) and _is_number(target):
        return _number_to_number(pc.cast(values, pa.int8()), target)
    if _is_number(source) and t.is_boolean(target):
        return compare("ne", values, pa.scalar(0, pa.int32()))
    if t.is_timestamp(source) and (t.is_timestamp(target) or t.is_date(target)):
        return _from_timestamp(values, target)
    if t.is_date(source) and (t.is_timestamp(target) or t.is_date(target)):
        return pc.cast(values, target)
    if (t.is_time(source) and t.is_time(target)) or (_is_binary(source) and _is_binary(target)):
        return pc.cast(values, target, safe=not t.is_time(source))
    if t.is_nested(source) and t.is_nested(target):
        return pc.cast(values, target)
    raise InvalidInput(f"{source} cannot be cast to {target}")


_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {name: getattr(pc, FUNCTIONS[name].arrow) for name in COMPARISONS}
_UNITS = ("s", "ms", "us", "ns")
_ARROW_ERRORS = (pa.ArrowException, OverflowError, ValueError, TypeError)


def _evaluate(expression: Expression, table: pa.Table | pa.RecordBatch) -> Values:
    match expression:
        case Literal(value):
            return value if isinstance(value, pa.Scalar) else scalar(value)
        case Column(path):
            return _column(path, table)
        case Call("case", arguments):
            return _guarded(expression, lambda: _case(arguments, table))
        case Call(("and" | "or" | "coalesce") as name, arguments):
            return _in_turn(name, expression, arguments, table)
        case Call("in", (operand, Literal(values))):
            members = [scalar(v) for v in values]
            value = _evaluate(operand, table)
            return _guarded(expression, lambda: _is_in(value, members))
        case Call("in_tuples", (*columns, Literal(tuples))):
            parts = [_as_column(_evaluate(column, table), table) for column in columns]
            return _guarded(expression, lambda: _is_in_tuples(parts, sorted(tuples, key=repr)))
        case Call("cast", (operand, Literal(text))):
            value, target = _evaluate(operand, table), arrow.to_arrow(parse_type(text))
            return _guarded(expression, lambda: _of_rows(lambda values: cast(values, target), [value], (), table))
        case Call("variant_get", (operand, Literal(str(path)), Literal(text))):
            value, target = _one_array(_as_column(_evaluate(operand, table), table)), arrow.to_arrow(parse_type(text))
            return _guarded(
                expression, lambda: variant_get.get(variant.plain(value, "the operand"), path, target, cast)
            )
        case Call("named_struct", arguments):
            names = [str(name.value) for name in arguments[::2] if isinstance(name, Literal)]
            parts = [_one_array(_as_column(_evaluate(part, table), table)) for part in arguments[1::2]]
            return pa.StructArray.from_arrays(parts, names)
        case Call("stored", (operand, Literal(Field() as field))):
            return store.stored(_as_column(_evaluate(operand, table), table), field, cast)
        case Call("canonical", (operand,)):
            return canonical.encoded(_as_column(_evaluate(operand, table), table))
        case Call(name, arguments) if name in _KERNELS:
            values = [_evaluate(argument, table) for argument in arguments]
            return _guarded(expression, lambda: _of_rows(_KERNELS[name], values, FUNCTIONS[name].constants, table))
        case Call(name):
            raise InvalidInput(f"{name} cannot be evaluated; supported: {', '.join(sorted(FUNCTIONS))}")
    raise InvalidInput(f"not an expression: {expression!r}")


def _guarded(expression: Expression, apply: Callable[[], Values]) -> Values:
    """The result of `apply`; its errors name the part of the condition, and Arrow's own are converted."""
    try:
        return apply()
    except LakeError as error:
        if str(error).startswith("in "):
            raise
        raise type(error)(f"in {to_sql(expression)[:300]}: {error}") from error
    except _ARROW_ERRORS as error:
        raise InvalidInput(f"in {to_sql(expression)[:300]}: {error}") from error


def _of_rows(
    kernel: Callable[..., Values], values: list[Values], constants: tuple[int, ...], table: pa.Table | pa.RecordBatch
) -> Values:
    """The result of a kernel; without rows, values for all rows raise no error."""
    try:
        return kernel(*values)
    except (LakeError, *_ARROW_ERRORS):
        if table.num_rows:
            raise
    return kernel(*(value if index in constants else _as_column(value, table) for index, value in enumerate(values)))


def _in_turn(
    name: str, expression: Expression, arguments: tuple[Expression, ...], table: pa.Table | pa.RecordBatch
) -> Values:
    """AND, OR and coalesce: an argument raises no error for rows that earlier ones decide, as in Spark."""
    try:
        values = [_evaluate(argument, table) for argument in arguments]
    except LakeError:
        if len(arguments) == 1 or not table.num_rows:
            raise
    else:
        return _guarded(expression, lambda: _KERNELS[name](*values))
    combined = _as_column(_evaluate(arguments[0], table), table)
    for argument in arguments[1:]:
        open_rows = _undecided(name, combined)
        some = table.take(open_rows)
        values_there = _one_array(_as_column(_evaluate(argument, some), some))
        places = pc.index_in(pa.array(np.arange(table.num_rows)), open_rows)
        combined = _guarded(expression, partial(_KERNELS[name], combined, values_there.take(places)))
    return combined


def _undecided(name: str, values: Values) -> pa.Array:
    """The numbers of the rows whose value the next argument may change."""
    if name == "coalesce":
        is_open = pc.is_null(values)
    else:
        is_open = pc.fill_null(pc.equal(_condition(values), pa.scalar(name == "and")), True)
    return pa.array(np.flatnonzero(_one_array(is_open).to_numpy(zero_copy_only=False)))


def _as_column(values: Values, table: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Scalar):
        count = table.num_rows
        values = pa.nulls(count, values.type) if not values.is_valid else pa.repeat(values, count)
    if isinstance(table, pa.Table):
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values], values.type)
    return _one_array(values)


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _column(path: tuple[str, ...], table: pa.Table | pa.RecordBatch) -> Values:
    indices = table.schema.get_all_field_indices(path[0])
    if len(indices) != 1:
        if indices:
            raise InvalidInput(f"column {path[0]!r} stands {len(indices)} times among the columns; rename one")
        raise NotFound(f"no column {path[0]!r}; there are {', '.join(table.schema.names) or 'none'}")
    column = table.column(indices[0])
    for depth, name in enumerate(path[1:], 1):
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            here = [f.name for f in column.type] if pa.types.is_struct(column.type) else []
            raise NotFound(f"no {name!r} in {'.'.join(path[:depth])}; there are {', '.join(here) or 'none'}")
        column = pc.struct_field(column, name)
    return _plain(column)


def _plain(values: Values) -> Values:
    """Values in the plain layout at the top level, though maybe with 64-bit offsets; instants in UTC."""
    type, t = values.type, pa.types
    if not (t.is_large_string(type) or t.is_large_binary(type)) and (outer := layouts.outer_type(type)) != type:
        return _plain(pc.cast(values, outer) if isinstance(values, pa.Scalar) else layouts.plain(values))
    if t.is_timestamp(type) and type.tz not in (None, "UTC"):
        return pc.cast(values, pa.timestamp(type.unit, "UTC"))
    return pc.cast(values, pa.date32()) if t.is_date64(type) else values


def _is_text(type: pa.DataType) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type)


def _is_binary(type: pa.DataType) -> bool:
    t = pa.types
    return t.is_binary(type) or t.is_large_binary(type) or t.is_fixed_size_binary(type)


def _is_number(type: pa.DataType) -> bool:
    return pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)


def _is_moment(type: pa.DataType) -> bool:
    return pa.types.is_date(type) or pa.types.is_timestamp(type)


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_floating(left) or t.is_floating(right):
        return left if left == right else pa.float64()
    if t.is_integer(left) and t.is_integer(right):
        if t.is_signed_integer(left) == t.is_signed_integer(right):
            return left if left.bit_width >= right.bit_width else right
        return pa.int64()
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    if precision > 76:
        raise InvalidInput(f"{left} and {right} together need {precision} digits; cast one of them")
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _digits(type: pa.DataType) -> tuple[int, int]:
    """(precision, scale) of the decimal that holds every value of an integer or decimal type."""
    if pa.types.is_decimal(type):
        return type.precision, type.scale
    return {8: 3, 16: 5, 32: 10, 64: 20}[type.bit_width], 0


def _common_moment(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    t = pa.types
    if _is_moment(left) and _is_moment(right):
        stamps = [side for side in (left, right) if t.is_timestamp(side)]
        unit = max((stamp.unit for stamp in stamps), key=_UNITS.index)
        return pa.timestamp(unit, "UTC" if any(stamp.tz for stamp in stamps) else None)
    if t.is_time(left) and t.is_time(right):
        unit = max(left.unit, right.unit, key=_UNITS.index)
        return pa.time64(unit) if unit == "us" or unit == "ns" else pa.time32(unit)
    return None


def _widen(values: Values, target: pa.DataType) -> Values:
    """A cast to a type that holds every value; for text, an ordinary cast."""
    if values.type == target:
        return values
    if _is_text(values.type):
        return _from_text(values, target)
    if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
        return _number_to_number(values, target)
    return _as_float(values, target) if pa.types.is_floating(target) else pc.cast(values, target)


def _nulls_like(values: Values, type: pa.DataType) -> Values:
    return pa.scalar(None, type) if isinstance(values, pa.Scalar) else pa.nulls(len(values), type)


def _decimal(value: Decimal) -> pa.Scalar:
    if not value.is_finite():
        raise InvalidInput(f"{value} is not a number that a decimal can hold")
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    if precision > 76:
        raise InvalidInput(f"{value} has more than 76 digits")
    return pa.scalar(value, pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale))


# Casts.

_YES, _NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


def _from_text(values: Values, target: pa.DataType) -> Values:
    if _is_text(target) or _is_binary(target):
        return pc.cast(values, target)
    try:
        return _parsed(values, target)
    except _ARROW_ERRORS as error:
        if isinstance(error, LakeError):
            raise
        raise InvalidInput(f"text that is not a valid {target}: {error}") from error


def _parsed(values: Values, target: pa.DataType) -> Values:
    t = pa.types
    is_float = t.is_floating(target) or t.is_decimal(target)
    trimmed = pc.utf8_trim(values, characters=BLANKS.removesuffix("\x7f") if is_float else BLANKS)
    if t.is_boolean(target):
        return _text_to_boolean(trimmed)
    if t.is_date(target):
        return _text_to_date(trimmed, target)
    if t.is_timestamp(target):
        return _text_to_timestamp(trimmed, target)
    if t.is_time(target):
        moment = pc.binary_join_element_wise("1970-01-01", trimmed, " ")  # Arrow parses no time of day without a date.
        return pc.cast(pc.cast(pc.cast(moment, pa.timestamp("ns")), pa.time64("ns")), target, safe=False)
    if t.is_decimal(target):
        return _number_to_number(pc.cast(trimmed, pa.decimal256(76, 37)), target)
    return pc.cast(_digits_of(trimmed) if t.is_integer(target) else trimmed, target)


def _digits_of(values: Values) -> Values:
    """Whole numbers as text that Arrow parses: it takes no plus sign, and reads 0x10 as 16."""
    odd = pc.fill_null(pc.invert(pc.match_substring_regex(values, r"^[+-]?[0-9]+$")), False)
    if len(wrong := _listed(values).filter(_listed(odd))):
        raise InvalidInput(f"{wrong[0].as_py()!r} is not a whole number")
    return pc.utf8_ltrim(values, characters="+")


def _text_to_boolean(values: Values) -> Values:
    lowered = pc.cast(pc.utf8_lower(values), pa.string())
    yes, no = pc.is_in(lowered, pa.array(_YES)), pc.is_in(lowered, pa.array(_NO))
    odd = _listed(lowered).filter(_listed(pc.invert(pc.or_(pc.or_(yes, no), pc.is_null(lowered)))))
    if len(odd):
        raise InvalidInput(f"{odd[0].as_py()!r} is neither true nor false")
    return pc.if_else(pc.is_null(lowered), pa.scalar(None, pa.bool_()), yes)


def _text_to_date(values: Values, target: pa.DataType) -> Values:
    for pattern, replacement in (
        (r"^(\d{4})$", r"\1-01-01"),
        (r"^(\d{4}-\d{1,2})$", r"\1-01"),
        (r"^(\d{4})-(\d)-", r"\1-0\2-"),
        (r"^(\d{4}-\d{2})-(\d)($|[ T])", r"\1-0\2\3"),
        (r"^(\d{4}-\d{2}-\d{2})[ T].*$", r"\1"),
    ):
        values = pc.replace_substring_regex(values, pattern=pattern, replacement=replacement)
    return pc.cast(values, target)


def _text_to_timestamp(values: Values, target: pa.DataType) -> Values:
    """Text without a zone is UTC; text with a zone gives a timestamp without zone its local time, as in Spark."""
    unit = "ns" if target.unit == "ns" else "us"
    if target.tz is None:
        values = pc.replace_substring_regex(values, pattern=r"(:\d\d.*?)\s*[+-]\d\d(:?\d\d)?$", replacement=r"\1")
    values = pc.replace_substring_regex(values, pattern=r"\s*(Z|UTC)$", replacement="")
    zoned = pc.match_substring_regex(values, pattern=r":\d\d.*[+-]\d\d(:?\d\d)?$")
    if not pc.any(_listed(zoned)).as_py():
        return _from_timestamp(pc.cast(values, pa.timestamp(unit)), target)
    stamped = pc.if_else(zoned, values, pc.binary_join_element_wise(values, "Z", ""))
    return _from_timestamp(pc.cast(stamped, pa.timestamp(unit, "UTC")), target)


def _to_text(values: Values, target: pa.DataType) -> Values:
    source, t = values.type, pa.types
    if t.is_timestamp(source):
        values = pc.cast(values, pa.timestamp(source.unit))
    elif t.is_floating(source):
        return _floats_to_text(values, target)
    elif t.is_nested(source):
        raise InvalidInput(f"{source} cannot be cast to text")
    elif t.is_decimal(source):
        return _plain_digits(values, target)
    array = pc.cast(values, target)
    if _is_moment(source):
        array = pc.replace_substring_regex(array, pattern=r"^(\d{5,}-)", replacement=r"+\1")  # Years of five digits.
    if (t.is_timestamp(source) or t.is_time(source)) and source.unit != "s":
        return pc.replace_substring_regex(array, pattern=r"\.?0*$", replacement="")
    return array


def _floats_to_text(values: Values, target: pa.DataType) -> Values:
    """The shortest digits that give the float, with a fraction, as Java writes them between 0.001 and 9999999. Raises
    `InvalidInput` for others, of which Java's versions write some in different ways."""
    size = pc.abs(values)
    is_plain = pc.or_(pc.and_(pc.greater_equal(size, 0.001), pc.less(size, 1e7)), pc.equal(size, 0))
    is_named = pc.invert(pc.is_finite(values))
    odd = _listed(values).filter(_listed(pc.invert(pc.or_(is_plain, is_named))))
    if len(odd):
        raise InvalidInput(f"{odd[0].as_py()!r} has many spellings as text: cast it to decimal(p, s) first")
    digits = pc.cast(pc.if_else(is_plain, values, pa.scalar(0, values.type)), target)
    digits = pc.if_else(
        pc.match_substring(digits, "."), digits, pc.binary_join_element_wise(digits, pa.scalar(".0", target), "")
    )
    name = pc.if_else(pc.is_nan(values), "NaN", pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity"))
    return pc.if_else(is_named, pc.cast(name, target), digits)


def _plain_digits(values: Values, target: pa.DataType) -> Values:
    """Text without the exponent that Arrow gives small numbers: the unscaled digits, padded, with a decimal point."""
    array = pc.cast(values, target)
    if not pc.any(_listed(pc.match_substring(array, "E"))).as_py():
        return array
    scale = values.type.scale
    ten = pa.scalar(10**scale, pa.decimal256(37, 0))
    unscaled = pc.cast(pc.abs(pc.multiply(_wide(values), ten)), pa.decimal256(76, 0))
    padded = pc.utf8_lpad(pc.cast(unscaled, target), width=scale + 1, padding="0")
    whole, fraction = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    text = pc.binary_join_element_wise(whole, fraction, ".")
    negative = compare("lt", values, pa.scalar(0, pa.int32()))
    return pc.if_else(negative, pc.binary_join_element_wise("-", text, ""), text)


def _number_to_number(values: Values, target: pa.DataType) -> Values:
    source, t = values.type, pa.types
    if source == target:
        return values
    if t.is_integer(target):
        return pc.cast(values if t.is_integer(source) else pc.trunc(values), target)
    if t.is_floating(target):
        return _as_float(values, target)
    if t.is_floating(source):
        values = pc.cast(values, pa.decimal256(76, min(target.scale + 10, 38)))
    elif t.is_integer(source):
        values = pc.cast(pc.cast(values, pa.int64()), pa.decimal128(19, 0))
    if values.type.scale > target.scale:
        wide = pc.cast(values, pa.decimal256(76, values.type.scale))
        values = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    return pc.cast(values, target)


def _as_float(values: Values, target: pa.DataType) -> Values:
    if pa.types.is_decimal(values.type):
        # Arrow's cast of a decimal may miss the nearest float by a bit or two; a cast through text is exact.
        return pc.cast(pc.cast(values, pa.string()), target)
    return pc.cast(values, target, safe=False)


def _from_timestamp(values: Values, target: pa.DataType) -> Values:
    source = values.type
    if pa.types.is_date(target):
        return pc.cast(values, target, safe=False)
    if _UNITS.index(target.unit) < _UNITS.index(source.unit):
        names = {"s": "second", "ms": "millisecond", "us": "microsecond"}
        values = pc.floor_temporal(pc.cast(values, pa.timestamp(source.unit)), unit=names[target.unit])
    return pc.cast(values, target)


# Conditions.


def _case(arguments: tuple[Expression, ...], table: pa.Table | pa.RecordBatch) -> Values:
    """Each branch sees only the rows that it decides, so that no other row can raise an error."""
    left = np.arange(table.num_rows)
    rows: list[np.ndarray] = []
    pieces: list[pa.Array] = []

    def decide(then: Expression, here: np.ndarray) -> None:
        part = table.take(pa.array(here, pa.int64()))
        rows.append(here)
        pieces.append(_plain(_one_array(_as_column(_evaluate(then, part), part))))

    for when, then in zip(arguments[:-1:2], arguments[1:-1:2], strict=True):
        rest = table.take(pa.array(left, pa.int64()))
        taken = _one_array(mask(when, rest)).to_numpy(zero_copy_only=False).astype(bool)
        decide(then, left[taken])
        left = left[~taken]
    decide(arguments[-1], left)
    both = pieces[0].type
    for piece in pieces[1:]:
        both = common_type(both, piece.type)
    joined = pa.concat_arrays([_widen(piece, both) for piece in pieces])
    return joined.take(pa.array(np.argsort(np.concatenate(rows), kind="stable")))


def _is_in(operand: Values, members: Sequence[pa.Scalar]) -> Values:
    present = [member for member in members if member.is_valid]
    listed = _listed(operand)
    result = pa.array(np.zeros(len(listed), dtype=bool))
    if present:
        looked, values = comparable(listed, present)
        result = pc.is_in(looked, pc.unique(values), skip_nulls=True)
    unknown = pc.is_null(listed)
    if len(present) < len(members):
        unknown = pc.or_(unknown, pc.invert(result))
    result = pc.if_else(unknown, pa.scalar(None, pa.bool_()), result)
    return result[0] if isinstance(operand, pa.Scalar) else result


def _is_in_tuples(columns: Sequence[Values], tuples: Sequence[tuple[Any, ...]]) -> Values:
    """Column by column, each row gets the number of the tuple prefix that it matches, or null."""
    array: Values = None
    tuple_codes = np.zeros(len(tuples), dtype=np.int64)
    for i, column in enumerate(columns):
        looked, values = comparable(column, [scalar(tuple_[i]) for tuple_ in tuples])
        distinct = pc.unique(values)
        codes = pc.index_in(values, distinct).to_numpy(zero_copy_only=False).astype(np.int64)
        here = pc.cast(pc.index_in(looked, distinct), pa.int64())
        beginnings, tuple_codes = np.unique(tuple_codes * len(distinct) + codes, return_inverse=True)
        if array is not None:
            here = pc.add(pc.multiply(array, pa.scalar(len(distinct))), here)
        array = pc.cast(pc.index_in(here, pa.array(beginnings), skip_nulls=True), pa.int64())
    return pc.is_valid(array)


def _canonical(values: Values) -> Values:
    """One NaN and one zero, because lookups compare bits."""
    if not pa.types.is_floating(values.type):
        return values
    values = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)


def _listed(values: Values) -> pa.Array | pa.ChunkedArray:
    return pa.array([values.as_py()], values.type) if isinstance(values, pa.Scalar) else values


def _condition(values: Values) -> Values:
    if pa.types.is_null(values.type):
        return pc.cast(values, pa.bool_())
    if not pa.types.is_boolean(values.type):
        raise InvalidInput(f"{values.type} is not a condition")
    return values


def _joined(combine: Callable[[Any, Any], Any]) -> Callable[..., Values]:
    def apply(first: Values, *rest: Values) -> Values:
        joined = _condition(first)
        for operand in rest:
            joined = combine(joined, _condition(operand))
        return joined

    return apply


def _equal_null_safe(left: Values, right: Values) -> Values:
    equal = pc.fill_null(compare("eq", left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _is_nan(values: Values) -> Values:
    """False for null, as in Spark."""
    return pc.fill_null(pc.is_nan(_as_float(_number(values), pa.float64())), False)


def _like(text: Values, pattern: Values, escape: Values) -> Values:
    like_pattern = _constant(pattern, "the pattern of LIKE")
    if like_pattern is None:
        return _nulls_like(text, pa.bool_())
    regex = rf"(?s)\A(?:{like_regex(like_pattern, _constant(escape, 'the escape of LIKE'))})\z"
    return pc.match_substring_regex(_text(text), pattern=regex)


def _text_test(test: Callable[..., Any]) -> Callable[[Values, Values], Values]:
    def apply(text: Values, part: Values) -> Values:
        constant = _constant(part, "the text looked for")
        if constant is None:
            return _nulls_like(text, pa.bool_())
        return test(_text(text), pattern=str(constant))

    return apply


# Arithmetic.


def _number(values: Values) -> Values:
    values = _plain(values)
    if pa.types.is_null(values.type):
        return pc.cast(values, pa.int32())
    if _is_text(values.type):
        return _from_text(values, pa.float64())
    if not _is_number(values.type):
        raise InvalidInput(f"{values.type} is not a number")
    return values


def _numbers(left: Values, right: Values) -> tuple[Values, Values]:
    """Both as floats, both as integers of one width, or both as decimals of their own precision."""
    left, right = _number(left), _number(right)
    t = pa.types
    if t.is_decimal(left.type) and t.is_integer(right.type):
        right = _as_decimal(right)
    elif t.is_integer(left.type) and t.is_decimal(right.type):
        left = _as_decimal(left)
    if t.is_decimal(left.type) and t.is_decimal(right.type):
        return left, right
    return align(left, right)


def _as_decimal(values: Values) -> Values:
    if isinstance(values, pa.Scalar) and values.is_valid:
        return _decimal(Decimal(values.as_py()))
    return _number_to_number(values, pa.decimal128(*_digits(values.type)))


def _add(left: Values, right: Values) -> Values:
    if _is_moment(left.type) and pa.types.is_integer(right.type):
        return _date_add(left, right)
    if _is_moment(right.type) and pa.types.is_integer(left.type):
        return _date_add(right, left)
    return _plus(pc.add_checked, left, right)


def _subtract(left: Values, right: Values) -> Values:
    if _is_moment(left.type) and pa.types.is_integer(right.type):
        return _date_add(left, pc.negate_checked(right))
    return _plus(pc.subtract_checked, left, right)


def _plus(apply: Callable[[Any, Any], Any], left: Values, right: Values) -> Values:
    left, right = _numbers(left, right)
    if not pa.types.is_decimal(left.type):
        return apply(left, right)
    (p1, s1), (p2, s2) = _digits(left.type), _digits(right.type)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > 75:
        raise InvalidInput(f"{left.type} and {right.type} together need {precision} digits; cast one of them")
    wide = pa.decimal256(precision - 1, scale)
    return _bounded(apply(pc.cast(left, wide), pc.cast(right, wide)), precision, scale)


def _multiply(left: Values, right: Values) -> Values:
    left, right = _numbers(left, right)
    if not pa.types.is_decimal(left.type):
        return pc.multiply_checked(left, right)
    (p1, s1), (p2, s2) = _digits(left.type), _digits(right.type)
    if p1 + p2 > 75:
        raise InvalidInput(f"{left.type} * {right.type} needs {p1 + p2 + 1} digits; cast one of them")
    return _bounded(pc.multiply_checked(_wide(left, p1), _wide(right, p2)), p1 + p2 + 1, s1 + s2)


def _divide(left: Values, right: Values) -> Values:
    left, right = _numbers(left, right)
    if not pa.types.is_decimal(left.type):
        left, right = (_as_float(side, pa.float64()) for side in (left, right))
        return pc.divide(left, _divisor(left, right))
    (p1, s1), (p2, s2) = _digits(left.type), _digits(right.type)
    scale = max(6, s1 + p2 + 1)
    precision = p1 - s1 + s2 + scale
    kept = _adjusted(precision, scale)[1]
    # Arrow truncates quotients after max(4, s1 + p2 - s2 + 1) digits: the left side gets the missing ones and one.
    missing = max(kept + 1 - max(4, s1 + p2 - s2 + 1), 0)
    if precision + missing > 76:
        raise InvalidInput(f"{left.type} / {right.type} needs more than 76 digits; cast one of them")
    longer = pc.cast(left, pa.decimal256(p1 + missing, s1 + missing))
    return _bounded(pc.divide(longer, _wide(_divisor(left, right), p2)), precision, scale)


def _whole_divide(left: Values, right: Values) -> Values:
    left, right = _numbers(left, right)
    if pa.types.is_decimal(left.type):
        return _number_to_number(_divide(left, right), pa.int64())
    if pa.types.is_floating(left.type):
        raise InvalidInput("DIV needs whole numbers or decimals")
    return pc.divide_checked(pc.cast(left, pa.int64()), _divisor(left, pc.cast(right, pa.int64())))


def _remainder(left: Values, right: Values) -> Values:
    """The remainder, with the sign of the left side."""
    left, right = _numbers(left, right)
    right, type = _divisor(left, right), left.type
    if pa.types.is_floating(type):
        a, b = np.broadcast_arrays(_numpy(left), _numpy(right))
        with np.errstate(invalid="ignore"):
            values = pa.array(np.fmod(a, b), type)
        values = pc.if_else(pc.and_(pc.is_valid(left), pc.is_valid(right)), values, pa.scalar(None, type))
        return values[0] if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar) else values
    if pa.types.is_decimal(type):
        return _decimal_remainder(left, right)
    right = pc.if_else(pc.equal(right, pa.scalar(-1, type)), pa.scalar(1, type), right)
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _decimal_remainder(left: Values, right: Values) -> Values:
    """In a common scale both are integers of the same unit, so the integer part of the quotient is exact."""
    (p1, s1), (p2, s2) = _digits(left.type), _digits(right.type)
    scale = max(s1, s2)
    p1, p2 = p1 - s1 + scale, p2 - s2 + scale
    if p1 + p2 > 75:
        raise InvalidInput(f"{left.type} % {right.type} needs more digits than there are; cast one of them")
    a, b = pc.cast(left, pa.decimal256(p1, scale)), pc.cast(right, pa.decimal256(p2, scale))
    quotient = pc.cast(pc.trunc(pc.divide(a, b)), pa.decimal256(p1, 0))
    values = pc.subtract(a, pc.cast(pc.multiply(quotient, b), pa.decimal256(p1, scale)))
    return pc.cast(values, pa.decimal128(*_adjusted(min(p1, p2), scale)))


def _numpy(values: Values) -> np.ndarray:
    return np.asarray(_one_array(pc.fill_null(_listed(values), math.nan)))


def _divisor(left: Values, right: Values) -> Values:
    """The right side of a division, null where it is zero, which raises `InvalidInput` unless the left side is null."""
    is_zero = compare("eq", right, pa.scalar(0, pa.int32()))
    if pc.any(_listed(pc.and_(is_zero, pc.is_valid(left)))).as_py():
        raise InvalidInput("division by zero; write nullif(divisor, 0) for NULL")
    return pc.if_else(is_zero, pa.scalar(None, right.type), right)


def _wide(values: Values, precision: int = 38) -> Values:
    """A decimal of up to 76 digits with room for `precision`, so that the result still has a type."""
    return pc.cast(values, pa.decimal256(precision, values.type.scale))


def _adjusted(precision: int, scale: int) -> tuple[int, int]:
    """Spark's rule for decimals of more than 38 digits: integer digits take precedence, then up to six decimal
    places."""
    if precision <= 38:
        return precision, scale
    whole = precision - scale
    return 38, max(38 - whole, min(scale, 6))


def _bounded(values: Values, precision: int, scale: int) -> Values:
    precision, scale = _adjusted(precision, scale)
    return _number_to_number(values, pa.decimal128(precision, scale))


def _negate(values: Values) -> Values:
    values = _number(values)
    return pc.negate(values) if not pa.types.is_integer(values.type) else pc.negate_checked(values)


def _absolute(values: Values) -> Values:
    values = _number(values)
    return pc.abs(values) if not pa.types.is_integer(values.type) else pc.abs_checked(values)


def _round(values: Values, digits: Values | None = None) -> Values:
    values = _number(values)
    places = int(_constant(digits, "the number of digits") or 0) if digits is not None else 0
    if pa.types.is_decimal(values.type):
        (precision, scale), kept = _digits(values.type), max(places, 0)
        if kept >= scale:
            return values
        rounded = pc.round(_wide(values), ndigits=places, round_mode="half_towards_infinity")
        return pc.cast(rounded, pa.decimal128(min(precision - scale + kept + 1, 38), kept))
    if pa.types.is_integer(values.type) and places >= 0:
        return values
    return rounding.rounded(values, places)


def _rounded(apply: Callable[[Any], Any]) -> Callable[[Values], Values]:
    def compute(values: Values) -> Values:
        values = _number(values)
        if pa.types.is_integer(values.type):
            return pc.cast(values, pa.int64())
        if pa.types.is_decimal(values.type):
            precision, scale = _digits(values.type)
            return pc.cast(apply(_wide(values)), pa.decimal128(min(precision - scale + 1, 38), 0))
        return rounding.whole(apply(values))

    return compute


def _as_double(apply: Callable[..., Any]) -> Callable[..., Values]:
    return lambda *values: apply(*(_as_float(_number(value), pa.float64()) for value in values))


# Text.


def _text(values: Values) -> Values:
    values = _plain(values)
    if _is_text(values.type):
        return values
    return _to_text(values, pa.string()) if not pa.types.is_null(values.type) else pc.cast(values, pa.string())


def _constant(values: Values, role: str) -> Any:
    if not isinstance(values, pa.Scalar):
        raise InvalidInput(f"{role} must be a value, not a column")
    return values.as_py()


def _on_text(apply: Callable[[Any], Any]) -> Callable[[Values], Values]:
    return lambda values: apply(_text(values))


def _cased(ascii: Callable[[Any], Any], full: Callable[[str], str]) -> Callable[[Values], Values]:
    """Upper or lower case by `ascii` where it suffices, else by `full`, on all such rows at once, joined into one
    text."""

    def of_array(values: Any) -> Any:
        odd = pc.fill_null(pc.invert(pc.string_is_ascii(values)), False)
        if not odd.true_count:
            return ascii(values)
        result = values.filter(odd)
        texts = result.to_pylist()
        between = next((c for c in _CONTROLS if not pc.any(pc.match_substring(result, c)).as_py()), None)
        mapped = list(map(full, texts)) if between is None else full(between.join(texts)).split(between)
        return pc.replace_with_mask(ascii(values), odd, pa.array(mapped, values.type))

    def apply(values: Values) -> Values:
        if isinstance(values, pa.Scalar):
            return of_array(_listed(values))[0]
        if isinstance(values, pa.ChunkedArray):
            return pa.chunked_array([of_array(chunk) for chunk in values.chunks], values.type)
        return of_array(values)

    return apply


_CONTROLS = tuple(map(chr, range(32)))  # They have no case and do not affect the case of adjacent characters.


def _length(values: Values) -> Values:
    if _is_binary(values.type):
        return pc.cast(pc.binary_length(values), pa.int32())
    return pc.cast(pc.utf8_length(_text(values)), pa.int32())


def _concat(*parts: Values) -> Values:
    if all(_is_binary(part.type) for part in parts):
        return pc.binary_join_element_wise(
            *(pc.cast(p, pa.binary()) for p in parts), pa.scalar(b""), null_handling="emit_null"
        )
    texts = [pc.cast(_text(part), pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _substring(values: Values, start: Values, length: Values | None = None) -> Values:
    first = _constant(start, "where a substring starts")
    count = _constant(length, "the length of a substring") if length is not None else None
    values = values if _is_binary(values.type) else _text(values)
    if first is None or (length is not None and count is None):
        return _nulls_like(values, values.type)
    begin = first - 1 if first > 0 else first
    if count is not None and count <= 0:
        begin, end = 0, 0
    elif count is None or (begin < 0 <= begin + count):
        end = None
    else:
        end = begin + count
    cut = pc.binary_slice if _is_binary(values.type) else pc.utf8_slice_codeunits
    return cut(values, begin, end) if end is not None else cut(values, begin)


def _replace(values: Values, old: Values, new: Values) -> Values:
    pattern, replacement = _constant(old, "the text replaced"), _constant(new, "the replacement")
    values = _text(values)
    if pattern is None or replacement is None:
        return _nulls_like(values, values.type)
    return pc.replace_substring(values, pattern=pattern, replacement=replacement) if pattern else values


# Dates.


def _moment(values: Values) -> Values:
    """Values as dates or timestamps without zone (in UTC)."""
    values = _plain(values)
    if _is_text(values.type):
        return _from_text(values, pa.timestamp("us"))
    if pa.types.is_null(values.type):
        return pc.cast(values, pa.date32())
    if not _is_moment(values.type):
        raise InvalidInput(f"{values.type} is neither a date nor a timestamp")
    return pc.cast(values, pa.timestamp(values.type.unit)) if pa.types.is_timestamp(values.type) else values


def _day(values: Values) -> Values:
    return pc.cast(_moment(values), pa.date32(), safe=False)


def _part_of_date(apply: Callable[[Any], Any]) -> Callable[[Values], Values]:
    return lambda values: pc.cast(apply(_moment(values)), pa.int32())


def _part_of_time(apply: Callable[[Any], Any]) -> Callable[[Values], Values]:
    def compute(values: Values) -> Values:
        times = values if pa.types.is_time(values.type) else _moment(values)
        times = pc.cast(times, pa.timestamp("s")) if pa.types.is_date(times.type) else times
        return pc.cast(apply(times), pa.int32())

    return compute


def _date_add(day: Values, days: Values) -> Values:
    if not pa.types.is_integer(days.type) and not pa.types.is_null(days.type):
        raise InvalidInput(f"a number of days is an integer, not {days.type}")
    total = pc.add_checked(pc.cast(_day(day), pa.int32()), pc.cast(days, pa.int32()))
    return pc.cast(total, pa.date32())


def _date_diff(left: Values, right: Values) -> Values:
    return pc.subtract_checked(pc.cast(_day(left), pa.int32()), pc.cast(_day(right), pa.int32()))


def _date_trunc(unit: Values, values: Values) -> Values:
    name = str(_constant(unit, "the unit of date_trunc")).lower()
    names = {"yy": "year", "yyyy": "year", "mon": "month", "mm": "month", "dd": "day"}
    name = names.get(name, name)
    units = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
    if name not in units:
        raise InvalidInput(f"date_trunc knows no unit {name!r}; there are {', '.join(units)}")
    zone = values.type.tz if pa.types.is_timestamp(values.type) else None
    result = _moment(values)
    result = pc.cast(result, pa.timestamp("us")) if pa.types.is_date(result.type) else result
    result = pc.floor_temporal(result, unit=name)
    return pc.cast(result, pa.timestamp(result.type.unit, "UTC")) if zone else result


# Choices.


def _coalesce(first: Values, *rest: Values) -> Values:
    first_known = first
    for operand in rest:
        a, b = align(first_known, operand)
        first_known = pc.coalesce(a, b)
    return first_known


def _extreme(name: str) -> Callable[..., Values]:
    def compute(first: Values, *rest: Values) -> Values:
        extreme = first
        for operand in rest:
            a, b = align(extreme, operand)
            better = compare(name, a, b)
            extreme = pc.if_else(pc.is_null(a), b, pc.if_else(pc.or_(pc.is_null(b), pc.fill_null(better, True)), a, b))
        return extreme

    return compute


def _null_if(value: Values, other: Values) -> Values:
    equal = pc.fill_null(compare("eq", value, other), False)
    return pc.if_else(equal, pa.scalar(None, value.type), value)


def _compared(name: str) -> Callable[[Values, Values], Values]:
    return lambda left, right: compare(name, left, right)


# Kernels of functions that need more than a row in the table of functions.
_OWN: Mapping[str, Callable[..., Values]] = {
    "eq_null_safe": _equal_null_safe,
    "not": lambda values: pc.invert(_condition(values)),
    "is_nan": _is_nan,
    "like": _like,
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "int_div": _whole_divide,
    "mod": _remainder,
    "neg": _negate,
    "abs": _absolute,
    "sign": _as_double(lambda v: pc.if_else(pc.equal(v, 0.0), v, pc.sign(v))),
    "round": _round,
    "floor": _rounded(pc.floor),
    "ceil": _rounded(pc.ceil),
    "upper": _on_text(_cased(pc.ascii_upper, casing.upper)),
    "lower": _on_text(_cased(pc.ascii_lower, casing.lower)),
    "trim": _on_text(lambda v: pc.utf8_trim(v, characters=" ")),
    "ltrim": _on_text(lambda v: pc.utf8_ltrim(v, characters=" ")),
    "rtrim": _on_text(lambda v: pc.utf8_rtrim(v, characters=" ")),
    "length": _length,
    "concat": _concat,
    "substring": _substring,
    "replace": _replace,
    "date_add": _date_add,
    "date_sub": lambda day, days: _date_add(day, pc.negate_checked(days)),
    "date_diff": _date_diff,
    "date_trunc": _date_trunc,
    "coalesce": _coalesce,
    "greatest": _extreme("ge"),
    "least": _extreme("le"),
    "nullif": _null_if,
}
_APPLIED: Mapping[Takes, Callable[[Callable[..., Any]], Callable[..., Values]]] = {
    Takes.ANY: lambda kernel: kernel,
    Takes.CONDITIONS: _joined,
    Takes.DOUBLES: _as_double,
    Takes.PATTERN: _text_test,
    Takes.DATE: _part_of_date,
    Takes.TIME: _part_of_time,
}


def _kernel(function: Function) -> Callable[..., Values]:
    if function.takes is Takes.ALIGNED:
        return _compared(function.name)
    return _APPLIED[function.takes](getattr(pc, function.arrow)) if function.arrow else _OWN[function.name]


# Evaluated with the table, see `_evaluate`; all others depend only on the values of their arguments.
_BY_TABLE = frozenset({"in", "in_tuples", "case", "cast", "variant_get", "named_struct", "canonical", "stored"})
_KERNELS: Mapping[str, Callable[..., Values]] = {
    name: _kernel(function) for name, function in FUNCTIONS.items() if name not in _BY_TABLE
}
