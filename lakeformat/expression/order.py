"""SQL text -> sort fields, with the semantics of Spark's ORDER BY and Iceberg's WRITE ORDERED BY."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakeformat import lazy
from lakeformat.errors import InvalidInput
from lakeformat.model.partition import Curve, Sort, SortField, Transform, TransformKind, parse_field
from lakeformat.model.schema import Field, Scalar, find_part, is_plain, result_type, spelled, spelled_path

sqlglot = lazy.library("sqlglot")
exp = lazy.library("sqlglot.expressions")


def parse(texts: Iterable[str], columns: tuple[Field, ...], argument: str) -> tuple[SortField, ...]:
    """`id DESC NULLS LAST`, `days(ts)`, `bucket(16, id)`, `address.city` -> sort fields.

    The default is ascending; nulls first if ascending, last if descending. Text that is the name of one of `columns`
    (see `spelled`) is that column. Raises `InvalidInput`, naming `argument`.
    """
    sorts = parse_any(texts, columns, argument)
    fields = tuple(sort for sort in sorts if isinstance(sort, SortField))
    if len(fields) < len(sorts):
        raise InvalidInput(
            f"{argument}: a table's sort order is of columns and transforms; compact(sort_by=['zorder(...)'])"
        )
    return fields


def parse_any(texts: Iterable[str], columns: tuple[Field, ...], argument: str) -> tuple[Sort, ...]:
    """As `parse`; also accepts `zorder(a, b)` and `hilbert(a, b)`."""
    if isinstance(texts, str) or not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{argument}={texts!r}: give a list, e.g. ['id', 'days(ts) DESC NULLS LAST']")
    return tuple(dict.fromkeys(_sort(text, columns, argument) for text in texts))


def check(order: Iterable[Sort], fields: tuple[Field, ...], where: str) -> None:
    """Raises `NotFound` for unknown columns, and `InvalidInput` for columns without an order, transforms that do not
    apply to their column, and duplicates."""
    seen = set()
    for sort in order:
        if isinstance(sort, Curve):
            for source in sort.sources:
                _plain(source, fields, where)
            continue
        name, kind = ".".join(sort.source), _plain(sort.source, fields, where)
        if sort.transform.kind is TransformKind.VOID:
            raise InvalidInput(f"{where}: sort_by names void({name}), which is the same for all rows; leave it out")
        result_type(sort.transform, kind, name)
        if (sort.source, sort.transform) in seen:
            raise InvalidInput(f"{where}: sort_by names {str(sort).rsplit(' ', 3)[0]!r} twice")
        seen.add((sort.source, sort.transform))


def _plain(source: tuple[str, ...], fields: tuple[Field, ...], where: str) -> Scalar:
    kind = find_part(fields, source).type
    if not isinstance(kind, Scalar) or not is_plain(kind):
        raise InvalidInput(f"{where}: sort_by names {'.'.join(source)!r}, of type {kind}; it must be a plain value")
    return kind


def _sort(text: str, columns: tuple[Field, ...], argument: str) -> Sort:
    if (name := spelled(columns, text)) in {column.name for column in columns}:
        return SortField((name,))
    try:
        ordered = sqlglot.parse_one(text, into=exp.Ordered, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInput(
            f"{argument} {text!r}: write a column or a transform, then ASC or DESC, then NULLS FIRST or NULLS LAST"
        ) from error
    function, source = Transform(), ordered.this
    if isinstance(source, exp.Anonymous) and source.name.lower() in ("zorder", "hilbert"):
        kind = source.name.lower()
        parts = source.expressions
        if not parts or not all(isinstance(part, exp.Column | exp.Dot) for part in parts) or text.rstrip()[-1] != ")":
            raise InvalidInput(f"{argument} {text!r}: write columns only, e.g. {kind}(a, b); it has no direction")
        return Curve(tuple(_path(part, columns) for part in parts), kind)
    if isinstance(source, exp.Func):
        parsed = parse_field(text[: text.rfind(")") + 1], argument)
        function = parsed.transform
        source = _column(parsed.source)
    if not isinstance(source, exp.Column | exp.Dot):
        raise InvalidInput(f"{argument} {text!r}: write a column or a transform, e.g. days(ts)")
    descending = bool(ordered.args.get("desc"))
    return SortField(_path(source, columns), function, descending, not ordered.args.get("nulls_first"))


def _path(source: Any, columns: tuple[Field, ...]) -> tuple[str, ...]:
    path = tuple(part.name for part in source.parts)
    whole = spelled(columns, ".".join(path))
    return (whole,) if any(column.name == whole for column in columns) else spelled_path(columns, path)


def _column(text: str) -> Any:
    try:
        return sqlglot.parse_one(text, read="spark")
    except sqlglot.errors.SqlglotError:
        return None
