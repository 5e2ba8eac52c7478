"""DuckDB SQL with values in place of `$x`, `$y` ...: a long value that stands several times is computed once."""

from __future__ import annotations

import re
from itertools import count

_PLACE = re.compile(r"\$([a-z])\b")
_LONGEST = 240  # Characters of a value that stands several times. Copies of copies grow with the power of the depth.
_numbers = count()


def fill(template: str, **values: str) -> str:
    """The template with each value in parentheses. If a long one, or one with a query, stands several times, all are
    bound to a variable of a lambda function, which DuckDB evaluates once per row."""
    uses = [match[1] for match in _PLACE.finditer(template)]
    if not any(
        uses.count(name) > 1 and (len(value) > _LONGEST or "SELECT " in value) for name, value in values.items()
    ):
        return _PLACE.sub(lambda match: _enclosed(values[match[1]]), template)
    variable = f"_lakeformat_v{next(_numbers)}"
    body = _PLACE.sub(lambda match: f"{variable}.{match[1]}", template)
    fields = ", ".join(f"{name} := {values[name]}" for name in dict.fromkeys(uses))
    return f"LIST_TRANSFORM([STRUCT_PACK({fields})], lambda {variable}: {body})[1]"


def _enclosed(value: str) -> str:
    return value if re.fullmatch(r"\w+|[\w.\"]+|'[^']*'", value) else f"({value})"
