"""Keys of MySQL tables as bounds of chunks: a bound is compared as the server orders the column,
also without the table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from lakeformat.cdc.mysql.types import MySqlType

_WHOLE = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_NUMBERS = {"decimal", "double", "float"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_MEMBERED = {"enum", "set"}  # They sort by number, and compare with text as text.
_CASTS = {
    "date": "DATE",
    "datetime": "DATETIME(6)",
    "timestamp": "DATETIME(6)",
    "time": "TIME(6)",
    "uuid": "UUID",
    "inet6": "INET6",
    "inet4": "INET4",
}
_MEMBER = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key, for queries with placeholders."""

    name: str
    type: MySqlType

    @property
    def expression(self) -> str:
        """SQL that has the order of the column, and comes back as it is sent."""
        quoted = f"`{self.name.replace('`', '``')}`".replace("%", "%%")
        if self.type.name == "float":  # As text a float is rounded to six digits.
            return f"({quoted} + 0e0)"
        return f"CAST({quoted} AS UNSIGNED)" if self.type.name == "bit" or self.type.name in _MEMBERED else quoted

    @property
    def placeholder(self) -> str:
        """SQL of a value that is compared as the column's values are."""
        if self.type.name in _CASTS:
            return f"CAST(%s AS {_CASTS[self.type.name]})"
        if self.type.collation is not None and self.type.name not in _MEMBERED:
            return f"CONVERT(%s USING {self.type.charset}) COLLATE {self.type.collation}"
        return "%s"

    def of_text(self, text: str) -> Any:
        """The value for the placeholder, of a bound's text."""
        match self.type.name:
            case name if name in _WHOLE or name in _MEMBERED or name == "bit":
                return int(text)
            case name if name in _NUMBERS:
                return Decimal(text)
            case name if name in _BYTES:
                return bytes.fromhex(text)
            case _:
                return text

    def of_row(self, value: Any) -> Any:
        """The value for the placeholder, of a table's row."""
        match self.type.name:
            case "bit":
                return int.from_bytes(value) if isinstance(value, bytes) else int(value)
            case "enum":
                return 1 + self._members.index(value) if value in self._members else 0
            case "set":
                chosen = set(value.split(","))
                return sum(1 << number for number, member in enumerate(self._members) if member in chosen)
            case _:
                return value

    @property
    def _members(self) -> list[str]:
        return [member.replace("''", "'") for member in _MEMBER.findall(self.type.text)]


def text_of(value: Any) -> str:
    """The text of a bound, as PyMySQL has its value."""
    match value:
        case bytes():
            return value.hex()
        case timedelta():
            hours, rest = divmod(abs(value), timedelta(hours=1))
            return f"{'-' if value < timedelta(0) else ''}{hours:02}:{str(rest)[2:]}"
        case _:
            return str(value)


def compared(
    left: Sequence[str], right: Sequence[str], sign: str, *, or_equal: bool
) -> tuple[str, list[tuple[bool, int]]]:
    """SQL that compares two keys of the same columns, in a form that can use an index. Also for each placeholder, in
    order: whether it is of the left key, and the number of its column. A side without placeholders has none of them."""
    parts, values = [], list[tuple[bool, int]]()
    for index in range(len(left)):
        tests = []
        for number in range(index + 1):
            is_last = number == index
            comparison = (f"{sign}=" if or_equal and index == len(left) - 1 else sign) if is_last else "="
            tests.append(f"{left[number]} {comparison} {right[number]}")
            values += [(True, number)] if "%s" in left[number] else []
            values.append((False, number))
        parts.append(f"({' AND '.join(tests)})")
    return f"({' OR '.join(parts)})", values
