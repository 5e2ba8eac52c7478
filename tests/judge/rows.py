"""Rows and columns that an engine read against those that a table must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.golden import wire

from .model import Moment


def assert_shows(found: dict, wanted: Moment, note: object = "") -> None:
    """The engine read these columns, of these types, and these rows, each as often as it must be there."""
    if found["columns"] is not None:  # paimon-rust gives no schema for what holds no row.
        assert_columns(found["columns"], wanted.fields)
    assert_rows(found["rows"], wanted.rows, wanted.fields, note)


def assert_columns(found: Sequence[dict], wanted: Sequence[dict]) -> None:
    """Names and types: Arrow types from Python's engines, the table's own types and ids from Java."""
    if any("arrow" in column for column in found):
        schema = wire.arrow_schema(wanted)
        assert [(c["name"], c["arrow"]) for c in found] == [(f.name, wire.arrow_text(f.type)) for f in schema]
    else:
        assert [spelled(column) for column in found] == [spelled(field) for field in wanted]


def assert_rows(found: Sequence, wanted: Sequence, fields: Sequence[dict], note: object = "") -> None:
    """The same rows, each as often; the difference is what fails."""
    there, expected = wire.multiset(fields, found), wire.multiset(fields, wanted)
    assert (list((there - expected).elements()), list((expected - there).elements())) == ([], []), note


def spelled(field: dict) -> dict[str, Any]:
    """What a schema file says of a column, without what only some engines write."""
    return {"id": field["id"], "name": field["name"], "type": _spelled_type(field["type"])}


def _spelled_type(type_: Any) -> Any:
    if isinstance(type_, str):
        return type_
    kept: dict[str, Any] = {"type": type_["type"]}
    for part in ("element", "key", "value"):
        if part in type_:
            kept[part] = _spelled_type(type_[part])
    if "fields" in type_:
        kept["fields"] = [spelled(field) for field in type_["fields"]]
    return kept
