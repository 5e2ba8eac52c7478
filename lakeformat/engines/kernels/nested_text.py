"""Defaults of arrays, maps and rows as text: `[a, b]`, `{k -> v}`, `{x, y}`, and SQL's `ARRAY(a, b)`, `MAP(k, v)`,
`STRUCT(x, y)`, read as Paimon's Java engine reads them (StringToArrayCastRule, StringToMapCastRule,
StringToRowCastRule)."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from lakeformat.codec.arrow import to_arrow
from lakeformat.engines.kernels import casts
from lakeformat.errors import InvalidInput
from lakeformat.model.schema import Kind, ListOf, MapOf, Row, Type, scalar

_OPEN, _CLOSE = "[{(<", "]})>"
_UNCLEAR = re.compile(r"""[,"\\\[\]{}()<>]|->|\A\s|\s\Z|\A\Z|\A(null|'.*')\Z""")  # What the text would not give back.


def parse(text: str, type: Type, name: str) -> pa.Array:
    """The value that a text stands for, as an array of length 1. Raises `InvalidInput`."""
    target = to_arrow(type)
    match type:
        case ListOf(element):
            parts = _split(_content(text, "[", "]", "ARRAY"))
            items = [_part(part, element.type, name) for part in parts]
            values = pa.concat_arrays([pa.array([], to_arrow(element.type)), *items])
            return pa.ListArray.from_arrays(pa.array([0, len(parts)], pa.int32()), values).cast(target)
        case MapOf(key, value):
            content, is_call = _content(text, "{", "}", "MAP"), text.strip()[:1] != "{"
            parts = _split(content, keeps_quotes=False)
            pairs = list(zip(parts[::2], parts[1::2], strict=False)) if is_call else [_pair(part) for part in parts]
            if is_call and len(parts) % 2:
                raise InvalidInput(f"{text!r} has a key without a value")
            keys = [_part(part, key.type, name) for part, _ in pairs]
            values = [_part(part, value.type, name) for _, part in pairs]
            return pa.MapArray.from_arrays(
                pa.array([0, len(pairs)], pa.int32()),
                pa.concat_arrays([pa.array([], to_arrow(key.type)), *keys]),
                pa.concat_arrays([pa.array([], to_arrow(value.type)), *values]),
            ).cast(target)
        case Row(fields):
            parts = _split(_content(text, "{", "}", "STRUCT")) or ["null"] * len(fields)
            if len(parts) != len(fields):
                raise InvalidInput(f"{text!r} has {len(parts)} values for {len(fields)} fields")
            columns = [_part(part, field.type, name) for part, field in zip(parts, fields, strict=True)]
            return pa.StructArray.from_arrays(columns, fields=list(target))
    return casts.project(pa.array([text], pa.string()), scalar(Kind.STRING), type, name)


def emit(value: pa.Scalar) -> str:
    """The text that `parse` reads as the value. Raises `InvalidInput` for a part that it would read otherwise."""
    if not value.is_valid:
        return "null"
    if pa.types.is_map(value.type):
        return "{" + ", ".join(f"{emit(pair[0])} -> {emit(pair[1])}" for pair in value.values) + "}"
    if pa.types.is_list(value.type) or pa.types.is_large_list(value.type) or pa.types.is_fixed_size_list(value.type):
        return "[" + ", ".join(emit(item) for item in value.values) + "]"
    if pa.types.is_struct(value.type):
        return "{" + ", ".join(emit(value[index]) for index in range(value.type.num_fields)) + "}"
    text = _text(value.as_py())
    if _UNCLEAR.search(text):
        raise InvalidInput(f"{text!r} inside a default: the table's metadata has no spelling of it")
    return text


# --- private ----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise InvalidInput(f"{value!r} inside a default: bytes have no spelling there")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _content(text: str, first: str, last: str, call: str) -> str:
    """What is between the brackets, or the parentheses of the call."""
    text = text.strip()
    if text.startswith(first) and text.endswith(last):
        return text[1:-1].strip()
    match = re.fullmatch(rf"{call}\s*\((.*)\)", text, re.IGNORECASE | re.DOTALL)
    if match is None:
        raise InvalidInput(f"{text!r} is neither {first}...{last} nor {call}(...)")
    return match[1].strip()


def _split(content: str, keeps_quotes: bool = True) -> list[str]:
    """The parts between commas outside brackets and double quotes; maps lose these quotes and what is escaped."""
    parts, depth, in_quotes, is_escaped = [""], 0, False, False
    for sign in content:
        is_mark = is_escaped or sign in '\\"'
        if is_escaped:
            is_escaped = False
        elif sign == "\\":
            is_escaped = True
        elif sign == '"':
            in_quotes = not in_quotes
        elif not in_quotes:
            if sign == "," and depth == 0:
                parts.append("")
                continue
            depth += sign in _OPEN
            depth -= sign in _CLOSE and depth > 0
        if keeps_quotes or not is_mark:
            parts[-1] += sign
    return [part.strip() for part in parts if part]


def _pair(part: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.+?)\s*->\s*(.+)", part)
    if match is None:
        raise InvalidInput(f"{part!r} is not a key -> value")
    return match[1].strip(), match[2].strip()


def _part(text: str, type: Type, name: str) -> pa.Array:
    return pa.nulls(1, to_arrow(type)) if text == "null" else parse(text, type, name)
