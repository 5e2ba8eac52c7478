"""What DuckDB's own SQL says: names, text, and columns whose conditions DuckDB tests itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def selected(
    columns: Iterable[str], types: Iterable[object], has_null_safe: bool = False, without_nan: Collection[str] = ()
) -> str:
    """The list of a SELECT of these columns, conditions on which DuckDB tests itself where others would test something else.
    `without_nan`: columns that are known to hold no NaN.

    DuckDB lets Arrow filter columns of Arrow, not what expressions give. To Arrow NaN is greater than nothing, to Spark and DuckDB
    than all numbers, and it knows no `<=>`. The bounds of a file's row groups, by which DuckDB leaves them out, hold no NaN either.
    """
    return ", ".join(
        f"{quoted(column) if column in without_nan else _tested(quoted(column), str(type), has_null_safe)} AS {quoted(column)}"
        for column, type in zip(columns, types, strict=True)
    )


# --- private ----------------------------------------------------------------------------------------------------------


def _tested(column: str, type: str, has_null_safe: bool) -> str:
    if type in ("FLOAT", "DOUBLE"):
        return f"{column} * 1::{type}"
    if has_null_safe or (type.startswith("STRUCT") and ("FLOAT" in type or "DOUBLE" in type)):
        return f"coalesce({column}, NULL)"
    return column
