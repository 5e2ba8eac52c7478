"""The text of JSON values in MySQL's binary log, as the server shows them. MariaDB logs JSON as text.

Source: MySQL's `json_binary.h` and `my_time_packed_from_binary` ff.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from pymysqlreplication import json_binary
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.util.bytes import decode_decimal, decode_variable_length


class _Text(str):
    """JSON text of a value of an SQL type, which JSON lacks."""

    __slots__ = ()


def text(value: bytes) -> str:
    return _text(json_binary.parse_json(value[0], value[1:]))


def _text(value: Any) -> str:
    match value:
        case _Text():
            return value
        case bytes():
            return json.dumps(value.decode(), ensure_ascii=False)
        case dict():
            return "{" + ", ".join(f"{_text(name)}: {_text(member)}" for name, member in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case _:
            return json.dumps(value)


def _sql_value(data: bytes) -> _Text:
    """The library cannot read times above 24 hours and zero dates, loses the bytes of binary strings, and returns a
    date as a moment."""
    length, prefix = decode_variable_length(data[1:])
    type, content = data[0], data[1 + prefix :][:length]
    match type:
        case FIELD_TYPE.NEWDECIMAL:
            return _Text(format(decode_decimal(content), "f"))
        case FIELD_TYPE.DATE | FIELD_TYPE.TIME | FIELD_TYPE.DATETIME | FIELD_TYPE.TIMESTAMP:
            return _Text(f'"{_moment(type, int.from_bytes(content, "little", signed=True))}"')
        case _:
            return _Text(f'"base64:type{type}:{b64encode(content).decode()}"')


def _moment(type: int, packed: int) -> str:
    seconds, micros = divmod(abs(packed), 1 << 24)
    days, clock = divmod(seconds, 1 << 17)
    hour, minute, second = (
        (seconds >> 12) % (1 << 10) if type == FIELD_TYPE.TIME else clock >> 12,
        clock >> 6 & 63,
        clock & 63,
    )
    time = f"{hour:02}:{minute:02}:{second:02}.{micros:06}"
    if type == FIELD_TYPE.TIME:
        return f"-{time}" if packed < 0 else time
    (year, month), day = divmod(days >> 5, 13), days & 31
    date = f"{year:04}-{month:02}-{day:02}"
    return date if type == FIELD_TYPE.DATE else f"{date} {time}"


json_binary.parse_opaque = _sql_value
