"""What a recipe must leave behind, worked out without any engine: the columns and rows after each step."""

from __future__ import annotations

import operator as operator_
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from .recipes import Recipe, number

_WIDE = Context(prec=60)


@dataclass(frozen=True, slots=True)
class Moment:
    """A table after one step: fields as a schema file has them, rows in wire form, in the order of the fields."""

    fields: tuple[dict, ...]
    rows: tuple[tuple, ...]


def moments(recipe: Recipe) -> list[Moment]:
    """The table when it was created, then after each step."""
    table = _Table(recipe)
    made = [table.moment()]
    for step in recipe.steps:
        table.take(step)
        made.append(table.moment())
    return made


def at(recipe: Recipe, latest: Sequence[int | None]) -> dict[int, Moment]:
    """What each snapshot must show, given the snapshot that was the latest after each step."""
    shown: dict[int, Moment] = {}
    for step, snapshot, moment in zip(recipe.steps, latest, moments(recipe)[1:], strict=True):
        # A step without a snapshot of its own leaves the latest as it was, and a schema change is no part of it.
        if snapshot is not None and (snapshot not in shown or step["do"] == "append"):
            shown[snapshot] = moment
    return shown


def matches(condition: Sequence, fields: Sequence[dict], row: Sequence) -> bool:
    """Whether a row meets a condition, as SQL has it: what is null meets nothing but `is_null`."""
    operator, *operands = condition
    if operator in ("and", "or"):
        parts = [matches(part, fields, row) for part in operands]
        return all(parts) if operator == "and" else any(parts)
    position = next(i for i, field in enumerate(fields) if field["name"] == operands[0])
    value, type_ = row[position], fields[position]["type"]
    if operator in ("is_null", "is_not_null"):
        return (value is None) == (operator == "is_null")
    if value is None:
        return False
    if operator == "in":
        return any(_comparable(value, type_) == _comparable(one, type_) for one in operands[1])
    if operator == "starts_with":
        return value.startswith(operands[1])
    return _COMPARE[operator](_comparable(value, type_), _comparable(operands[1], type_))


_COMPARE = {
    "=": operator_.eq,
    "!=": operator_.ne,
    "<": operator_.lt,
    "<=": operator_.le,
    ">": operator_.gt,
    ">=": operator_.ge,
}


def tags(recipe: Recipe) -> dict[str, Moment]:
    """What each tag must show."""
    return {
        step["name"]: moment
        for step, moment in zip(recipe.steps, moments(recipe)[1:], strict=True)
        if step["do"] == "tag"
    }


class _Table:
    def __init__(self, recipe: Recipe) -> None:
        self.fields = recipe.fields()
        self.next_id = 1 + max(_ids(self.fields), default=-1)
        self.keys = recipe.partition_by
        self.primary_key = [self._field(name)["id"] for name in recipe.primary_key]
        self.rows: list[dict[int, Any]] = []
        self.after: list[list[dict[int, Any]]] = []

    def moment(self) -> Moment:
        rows = tuple(tuple(row.get(field["id"]) for field in self.fields) for row in self.rows)
        return Moment(tuple(dict(field) for field in self.fields), rows)

    def take(self, step: Any) -> None:
        match step["do"]:
            case "append":
                self.rows = self._merged(self.rows + self._new(step))
            case "overwrite_partitions":
                touched = {self._partition(row) for row in self._new(step)}
                touched |= {(value,) for value in step.get("emptied", ())}
                kept = [row for row in self.rows if self._partition(row) not in touched]
                self.rows = self._merged(kept + self._new(step))
            case "overwrite":
                kept = [row for row in self.rows if not self._within(row, step["partition"])]
                self.rows = self._merged(kept + self._new(step))
            case "truncate":
                self.rows = []
            case "drop_partitions":
                for partition in step["partitions"]:
                    self.rows = [row for row in self.rows if not self._within(row, partition)]
            case "delete" | "overwrite_where":
                kept = [row for row in self.rows if row[self.fields[0]["id"]] not in step["ids"]]
                self.rows = kept + (self._new(step) if "rows" in step else [])
            case "update":
                first, changed = self.fields[0]["id"], {self._field(step["column"])["id"]: step["value"]}
                self.rows = [row | changed if row[first] in step["ids"] else row for row in self.rows]
            case "rollback":
                self.rows = self.after[step["step"]]
            case "alter":
                for change in step["changes"]:
                    self._change(*change)
            case "compact" | "expire" | "sweep" | "tag":
                pass
            case other:
                raise AssertionError(other)
        self.after.append(self.rows)

    def _new(self, step: Any) -> list[dict[int, Any]]:
        return [{field["id"]: value for field, value in zip(self.fields, row, strict=True)} for row in step["rows"]]

    def _merged(self, rows: list[dict[int, Any]]) -> list[dict[int, Any]]:
        if not self.primary_key:
            return rows
        return list({tuple(row[id_] for id_ in self.primary_key): row for row in rows}.values())

    def _partition(self, row: dict[int, Any]) -> tuple:
        return tuple(row[self._field(key)["id"]] for key in self.keys)

    def _within(self, row: dict[int, Any], partition: dict[str, Any]) -> bool:
        return all(row[self._field(key)["id"]] == value for key, value in partition.items())

    def _field(self, name: str) -> dict:
        return next(field for field in self.fields if field["name"] == name)

    def _change(self, verb: str, name: str, *details: Any) -> None:
        match verb:
            case "add":
                field = {"id": self.next_id, "name": name, "type": None}
                field["type"], self.next_id = number(details[0], self.next_id + 1)
                place = 1 + self._position(details[1]) if len(details) > 1 else len(self.fields)
                self.fields = [*self.fields[:place], field, *self.fields[place:]]
            case "rename":
                old = self._field(name)
                self.fields = [{**field, "name": details[0]} if field is old else field for field in self.fields]
            case "drop":
                self.fields = [field for field in self.fields if field["name"] != name]
            case "type":
                old = self._field(name)
                self.fields = [{**field, "type": details[0]} if field is old else field for field in self.fields]
                self.rows = [
                    {id_: _cast(value, details[0]) if id_ == old["id"] else value for id_, value in row.items()}
                    for row in self.rows
                ]
            case "move":
                field = self._field(name)
                self.fields = [other for other in self.fields if other is not field]
                place = 1 + self._position(details[0])
                self.fields = [*self.fields[:place], field, *self.fields[place:]]
            case "set" | "unset" | "nullable" | "comment":
                pass
            case other:
                raise AssertionError(other)

    def _position(self, name: str | None) -> int:
        return -1 if name is None else self.fields.index(self._field(name))


def _cast(value: Any, to: str) -> Any:
    if value is None or to in ("BIGINT", "INT", "DOUBLE"):
        return float(value) if value is not None and to == "DOUBLE" else value
    if to.startswith("DECIMAL"):
        scale = int(to[:-1].split(",")[1])
        return format(Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_WIDE), "f")
    return value


def _comparable(value: Any, type_: str) -> Any:
    if type_.startswith("DECIMAL"):
        return Decimal(value)
    if type_.startswith(("STRING", "CHAR", "VARCHAR")):
        return value.encode()  # Text is ordered by its bytes.
    return value


def _ids(fields: list[dict]) -> list[int]:
    found = []
    for field in fields:
        found.append(field["id"])
        found.extend(_nested_ids(field["type"]))
    return found


def _nested_ids(type_: Any) -> list[int]:
    if isinstance(type_, str):
        return []
    found = _ids(type_["fields"]) if "fields" in type_ else []
    for part in ("element", "key", "value"):
        if part in type_:
            found += _nested_ids(type_[part])
    return found
