"""A scan as a lazy polars frame: columns, row conditions and the number of rows are pushed into the scan."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeformat.model.predicate import (
    Expression,
    and_,
    between,
    column,
    eq,
    ge,
    gt,
    is_not_null,
    is_null,
    le,
    lt,
    ne,
    not_,
    or_,
)
from lakeformat.model.schema import Field, Kind, Scalar

_COMPARED = {"Eq": eq, "NotEq": ne, "Lt": lt, "LtEq": le, "Gt": gt, "GtEq": ge}
_FLIPPED = {"Eq": "Eq", "NotEq": "NotEq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_JOINED: Mapping[str, Callable[..., Expression]] = {"And": and_, "LogicalAnd": and_, "Or": or_, "LogicalOr": or_}
_INTEGERS = {Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT}
_INTEGER_LITERALS = {"Int8", "Int16", "Int32", "Int64"}
_DAY_0 = datetime.date(1970, 1, 1)


def lazy_frame(scan: Any) -> Any:
    """A `polars.LazyFrame` of the rows of a `Scan`; each evaluation reads the same snapshot. polars evaluates every
    condition itself; those that mean the same in a scan also leave out files and rows there."""
    import polars as pl
    from polars.io.plugins import register_io_source

    fields = {field.name: field for field in scan.fields}

    def source(
        with_columns: Sequence[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        narrowed = scan
        if predicate is not None and scan.limit is None:
            narrowed = scan.filter(and_(*_conjuncts(_tree(predicate), fields)))
        if with_columns is not None and not any("." in name for name in with_columns):  # A dot names a nested field.
            narrowed = narrowed.select(list(with_columns))
        if n_rows is not None and predicate is None:
            narrowed = replace(narrowed, limit=n_rows if scan.limit is None else min(n_rows, scan.limit))
        left = n_rows
        for batch in narrowed.to_batches():
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            if predicate is not None:
                frame = frame.filter(predicate)
            if with_columns is not None:
                frame = frame.select(with_columns)
            if left is not None:
                frame = frame.head(left)
                left -= len(frame)
            yield frame
            if left == 0:
                return

    empty = pl.from_arrow(scan.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return register_io_source(source, schema=empty.schema, validate_schema=False)


# --- private ----------------------------------------------------------------------------------------------------------


def _tree(predicate: Any) -> Any:
    """A polars expression as nested dicts and lists."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The format may change between versions: unknown nodes are not pushed.
        return json.loads(predicate.meta.serialize(format="json"))


def _conjuncts(tree: Any, fields: Mapping[str, Field]) -> Iterator[Expression]:
    """The parts of a condition that mean the same in a scan."""
    match tree:
        case {"BinaryExpr": {"op": "And" | "LogicalAnd", "left": left, "right": right}}:
            yield from _conjuncts(left, fields)
            yield from _conjuncts(right, fields)
        case _:
            condition = _condition(tree, fields)
            if condition is not None:
                yield condition


def _condition(tree: Any, fields: Mapping[str, Field]) -> Expression | None:
    """The same condition of a scan; None if there is none."""
    match tree:
        case {"BinaryExpr": {"op": op, "left": left, "right": right}} if op in _JOINED:
            parts = _condition(left, fields), _condition(right, fields)
            return None if parts[0] is None or parts[1] is None else _JOINED[op](*parts)
        case {"BinaryExpr": {"op": op, "left": {"Column": name}, "right": {"Literal": literal}}} if op in _COMPARED:
            value = _value(literal, fields.get(name))
            return None if value is None else _COMPARED[op](column(name), value)
        case {"BinaryExpr": {"op": op, "left": {"Literal": literal}, "right": {"Column": name}}} if op in _COMPARED:
            value = _value(literal, fields.get(name))
            return None if value is None else _COMPARED[_FLIPPED[op]](column(name), value)
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNull"}}} if name in fields:
            return is_null(column(name))
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNotNull"}}} if name in fields:
            return is_not_null(column(name))
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            condition = _condition(inner, fields)
            return None if condition is None else not_(condition)
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": "Both"}}},
            }
        }:
            ends = _value(low, fields.get(name)), _value(high, fields.get(name))
            return None if ends[0] is None or ends[1] is None else between(column(name), *ends)
    return None


def _value(literal: Any, field: Field | None) -> Any:
    """The value of a literal that polars compares with the column as it is, without a cast of either; else None."""
    kind = field.type.kind if field is not None and isinstance(field.type, Scalar) else None
    match literal:
        case {"Scalar": {"Boolean": bool(value)}} if kind is Kind.BOOLEAN:
            return value
        case {"Scalar": dict(scalar)} if kind in _INTEGERS and scalar.keys() <= _INTEGER_LITERALS:
            (value,) = scalar.values()
            return value
        case {"Scalar": {"String": str(value)}} if kind in (Kind.STRING, Kind.VARCHAR, Kind.CHAR):
            return value
        case {"Scalar": {"Date": int(value)}} if kind is Kind.DATE:
            return _DAY_0 + datetime.timedelta(days=value)
    return None
