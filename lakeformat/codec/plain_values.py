"""Plain Python values of partitions and bounds <-> Arrow columns and literals; and truncated bounds."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput
from lakeformat.model.predicate import ALWAYS, Call, Expression, Literal, and_, eq_null_safe, in_tuples, or_
from lakeformat.model.schema import Kind, Scalar, Type
from lakeformat.model.work import RowKind


@cache  # Not a module constant: Arrow's first array imports pandas if it is installed.
def row_kinds() -> pa.Array:
    """The short names of row kinds ("+I", "-U", "+U", "-D"), indexed by number."""
    return pa.array([kind.short for kind in RowKind])


def column(values: list[Any], kind: Type) -> pa.Array:
    """Plain values -> Arrow; timestamps are Arrow's integers. Raises `InvalidInput`."""
    arrow = to_arrow(kind)
    if pa.types.is_timestamp(arrow):
        return pa.array(values, pa.int64()).cast(arrow)
    try:
        return pa.array(values, arrow)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(f"partition or bound {values[:3]!r} is not a valid {kind}: {error}") from error


def literal(value: Any, kind: Type) -> Expression:
    """Such a value as a literal of a condition."""
    match kind:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as zone, (digits,)) if value is not None:
            micros = value * 1000 if digits <= 3 else value if digits <= 6 else value // 1000
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
            if digits > 6:
                text = f"{moment.isoformat(' ', 'microseconds')}{value % 1000:03d}"
                return Call("cast", (Literal(text), Literal(str(kind))))
            return Literal(moment.replace(tzinfo=datetime.UTC) if zone is Kind.TIMESTAMP_TZ else moment)
        case _:
            return Literal(value)


def selecting(names: Sequence[str], kinds: Sequence[Type], partitions: Iterable[tuple[Any, ...]]) -> Expression:
    """The condition that selects exactly these partitions, whose values are of the columns `names`."""
    if not names:
        return ALWAYS
    rows = [[literal(value, kind) for value, kind in zip(p, kinds, strict=True)] for p in set(partitions)]
    if all(isinstance(value, Literal) for row in rows for value in row):
        return in_tuples(names, [tuple(v.value for v in row if isinstance(v, Literal)) for row in rows])
    return or_(*(and_(*(eq_null_safe(n, v) for n, v in zip(names, row, strict=True))) for row in rows))


def cut_low(value: str, length: int) -> str:
    """A lower bound of at most `length` characters."""
    return value[:length]


def cut_high(value: str, length: int) -> str | None:
    """An upper bound of at most `length` characters: a prefix whose last character is incremented; None if none can
    be."""
    if len(value) <= length:
        return value
    for end in range(length, 0, -1):
        code = ord(value[end - 1]) + 1
        if code > 0x10FFFF:
            continue
        # The code points D800 to DFFF have no UTF-8 form: the next one is E000.
        return value[: end - 1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return None
