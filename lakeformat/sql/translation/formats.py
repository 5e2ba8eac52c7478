"""`format_string` and `printf`: Java's formats of text, whole numbers and doubles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakeformat.expression.duckdb_sql import text
from lakeformat.sql.translation.arguments import Builder, literal_text
from lakeformat.sql.translation.operands import shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import BOOLEAN, DOUBLE, FLOAT, INTEGRAL, STRING
from lakeformat.sql.translation.templates import fill

# --- private ----------------------------------------------------------------------------------------------------------


_PART = re.compile(r"%(?P<flags>[-0,+]*)(?P<width>[1-9]\d*)?(?:\.(?P<digits>\d+))?(?P<kind>[sdxXf])|%%|[^%]+|%")
_MOST_WIDTH, _MOST_DIGITS = 1000, 18
_BITS = {type: 8 * 2**power for power, type in enumerate(INTEGRAL)}
_UNITS = "LENGTH(REGEXP_REPLACE($x, '[\\x{10000}-\\x{10FFFF}]', '  ', 'g'))"  # Java's lengths are of UTF-16.


def _format_string(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    parts, arguments = [], list(nodes[1:])
    for match in _PART.finditer(literal_text(nodes[0], "format_string", scope)):
        if match["kind"]:
            if not arguments:
                raise scope.invalid(node, f"{shown(node)}: fewer arguments than the format has places")
            parts.append(_formatted(match, arguments.pop(0), scope))
        elif match[0] == "%":
            raise scope.refuse(
                node, f"the format {shown(nodes[0])} in process; it has %s, %d, %,d, %+d, %x and %.2f with widths"
            )
        else:
            parts.append(text("%" if match[0] == "%%" else match[0]))
    if arguments:
        raise scope.refuse(node, f"{shown(node)}: more arguments than the format has places, in process")
    return Typed(f"({' || '.join(parts or [text('')])})", STRING)


def _formatted(match: re.Match[str], node: Any, scope: Scope) -> str:
    """One place of a format, filled. Zeros stand between the sign and the digits of a number, but not before NaN."""
    kind, flags, width = match["kind"], match["flags"], int(match["width"] or 0)
    digits = int(match["digits"] or 6)
    typed = scope.translate(node, scope)
    types = {"s": (STRING, BOOLEAN, *INTEGRAL), "f": (FLOAT, DOUBLE)}.get(kind, INTEGRAL)
    pads = {*flags} & {"-", "0"}  # Which Java takes one of, once, with a width.
    has_fitting_flags = len(flags) == len({*flags}) and len(pads) <= bool(width)
    has_fitting_flags &= not (kind == "s" and "0" in flags) and (kind == "d" or {*flags} == pads)
    if typed.type not in types or not has_fitting_flags or (match["digits"] and kind != "f"):
        raise scope.refuse(node, f"the format {match[0]} of {typed.type} in process; pass spark=")
    if width > _MOST_WIDTH or digits > _MOST_DIGITS:
        raise scope.refuse(node, f"the format {match[0]}, of so many characters, in process; pass spark=")
    sign, plain, is_number = "''", "CAST($x AS VARCHAR)", "TRUE"
    if kind in "xX":
        mask = 2 ** _BITS[typed.type] - 1
        plain = "PRINTF('%x', CAST($x AS BIGINT))" if mask > 2**32 else f"PRINTF('%x', CAST($x AS BIGINT) & {mask})"
    elif kind != "s":
        plus = "+" if "+" in flags else ""
        sign = f"CASE WHEN STARTS_WITH(CAST($x AS VARCHAR), '-') THEN '-' ELSE '{plus}' END"
        shown_digits = "FORMAT('{:,}', CAST($x AS BIGINT))" if "," in flags else "CAST($x AS VARCHAR)"
        plain = f"LTRIM({shown_digits}, '-')"
    if kind == "f":
        is_number = "ISFINITE($x)"
        exact = f"CAST(ROUND(CAST({plain} AS DECIMAL(38, 20)), {digits}) AS DECIMAL(38, {digits}))"
        plain = (
            "CASE WHEN ISNAN($x) THEN 'NaN' WHEN ISINF($x) THEN 'Infinity' WHEN ABS($x) >= 1e16 THEN "
            f"ERROR('in process, format_string takes no floats beyond 1e16') ELSE CAST({exact} AS VARCHAR) END"
        )
    value = f"CAST({typed.sql} AS DOUBLE)" if kind == "f" else typed.sql
    if "0" in flags:
        zeros = f"CASE WHEN {is_number} THEN REPEAT('0', GREATEST({width} - LENGTH($s) - LENGTH($p), 0)) ELSE '' END"
        plain = fill(f"($s || {zeros} || $p)", x=value, s=fill(sign, x=value), p=fill(plain, x=value))
    else:
        plain = fill(f"({sign} || {plain})", x=value)
    null = "null"[: int(match["digits"])] if match["digits"] else "null"  # Java cuts it off, as it does text.
    plain = f"COALESCE({plain}, {text(null)})"
    if kind == "X":
        plain = f"UPPER({plain})"
    if not width:
        return plain
    spaces = f"REPEAT(' ', GREATEST({width} - {_UNITS}, 0))"
    return fill(f"($x || {spaces})" if "-" in flags else f"({spaces} || $x)", x=plain)


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    **dict.fromkeys(("format_string", "printf"), (1, None, _format_string)),
}
