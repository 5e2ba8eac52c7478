"""Scans of timestamps finer than microseconds. Arrow counts them in 64 bits of nanoseconds: from 1677 to 2262."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lakeformat.errors import InvalidInput
from lakeformat.model.predicate import Expression, and_, columns_of, conjuncts
from lakeformat.model.schema import Field, Kind, Scalar, Type, rebuild, walk
from lakeformat.model.work import BlobTask, FilesTask, MergeTask, ReadTask

MODES = ("error", "microseconds", "null")


def check(mode: Any) -> None:
    """Raise `InvalidInput` for a value that is not in `MODES`."""
    if mode not in MODES:
        raise InvalidInput(f"nanoseconds={mode!r}: it is one of {', '.join(map(repr, MODES))}")


def is_fine(type: Type) -> bool:
    """Whether the type is a timestamp finer than microseconds."""
    return isinstance(type, Scalar) and type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ) and type.parameters[0] > 6


def coarse(type: Type) -> Type:
    """The type with microseconds instead of finer timestamps, at every depth."""
    if is_fine(type) and isinstance(type, Scalar):
        return Scalar(type.kind, (6,))
    return rebuild(type, lambda part: replace(part, type=coarse(part.type)))


def seen(fields: tuple[Field, ...], mode: str) -> tuple[Field, ...]:
    """The columns as a scan returns them: in microseconds, or nullable (top-level columns only)."""
    match mode:
        case "microseconds":
            return tuple(replace(field, type=coarse(field.type)) for field in fields)
        case "null":
            return tuple(replace(field, nullable=True) if is_fine(field.type) else field for field in fields)
    return fields


def apart(predicate: Expression, fields: tuple[Field, ...], mode: str) -> tuple[Expression, Expression]:
    """(the conjuncts that bounds may decide, those on columns that the scan converts)."""
    changed = {old.name for old, new in zip(fields, seen(fields, mode), strict=True) if old != new}
    kept = [conjunct for conjunct in conjuncts(predicate) if not columns_of(conjunct) & changed]
    rest = [conjunct for conjunct in conjuncts(predicate) if columns_of(conjunct) & changed]
    return and_(*kept), and_(*rest)


def changed(task: ReadTask, mode: str, predicate: Expression) -> ReadTask:
    """The task with the columns that the scan returns, and with `predicate` in addition to its own. Columns that order
    a merge stay in nanoseconds."""
    if mode == "error":
        return task
    both = and_(task.predicate, predicate)
    match task:
        case MergeTask(parts, merge):
            order = {*merge.key, *merge.sequence, *(name for group in merge.groups for name in group.sequence)}
            parts = tuple(_changed(part, mode, order) for part in parts)
            return replace(task, fields=_fields(task.fields, mode, ()), parts=parts, predicate=both)
        case FilesTask():
            beside = tuple(
                tuple(part if isinstance(part, BlobTask) else _changed(part, mode, ()) for part in of_file)
                for of_file in task.beside
            )
            return replace(_changed(task, mode, ()), beside=beside, predicate=both)


def _fields(fields: tuple[Field, ...], mode: str, kept: Iterable[str]) -> tuple[Field, ...]:
    by_name = {field.name: field for field in seen(tuple(f for f in fields if f.name not in kept), mode)}
    return tuple(by_name.get(field.name, field) for field in fields)


def _changed(task: FilesTask, mode: str, kept: Iterable[str]) -> FilesTask:
    chosen = tuple(field for field in task.fields if field.name not in kept)
    fields = _fields(task.fields, mode, kept)
    if mode == "null":
        nulled = frozenset(field.id for field in chosen if is_fine(field.type))
        return replace(task, fields=fields, far_as_null=nulled)
    ids = {field.id for field in walk(chosen) if is_fine(field.type)}
    constants = _in_microseconds(task.constants, ids)
    absent = tuple(_in_microseconds(field, ids) for field in task.absent)
    return replace(task, fields=fields, constants=constants, absent=absent)


def _in_microseconds(constants: tuple[tuple[int, Any], ...], ids: set[int]) -> tuple[tuple[int, Any], ...]:
    return tuple((id, value // 1000 if id in ids and isinstance(value, int) else value) for id, value in constants)
