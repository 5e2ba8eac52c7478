"""DuckDB's SQL: names, text, and SELECT lists that keep DuckDB from pushing conditions down to Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def selected(
    columns: Iterable[str],
    types: Iterable[object],
    has_null_safe: bool = False,
    without_nan: Collection[str] = (),
    casts: Mapping[str, str] | None = None,
) -> str:
    """The SELECT list of these columns, such that DuckDB itself evaluates conditions that Arrow evaluates differently.
    `without_nan`: columns known to hold no NaN; `casts`: other types for some columns.

    DuckDB pushes conditions on Arrow columns down to Arrow, but not conditions on expressions. In Arrow no number
    compares with NaN, in Spark and DuckDB it is greater than all numbers; Arrow has no `<=>`. The row-group bounds by
    which DuckDB skips row groups exclude NaN too.
    """

    def value(column: str, type: str) -> str:
        if casts and column in casts:
            return f"CAST({quoted(column)} AS {casts[column]})"
        return quoted(column) if column in without_nan else _tested(quoted(column), type, has_null_safe)

    return ", ".join(
        f"{value(column, str(type))} AS {quoted(column)}" for column, type in zip(columns, types, strict=True)
    )


# --- private ----------------------------------------------------------------------------------------------------------


def _tested(column: str, type: str, has_null_safe: bool) -> str:
    if type in ("FLOAT", "DOUBLE"):
        return f"{column} * 1::{type}"
    if has_null_safe or (type.startswith("STRUCT") and ("FLOAT" in type or "DOUBLE" in type)):
        return f"coalesce({column}, NULL)"
    return column
