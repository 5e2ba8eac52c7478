"""Functions of the formats in queries: Iceberg's partition transforms (`system.bucket(16, id)`), its
`system.iceberg_version()`, and Paimon's `sys.max_pt('t')`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from lakeformat.expression import transform
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.partition import TransformKind
from lakeformat.model.predicate import Literal
from lakeformat.reading import partitions
from lakeformat.sql import names, text
from lakeformat.sql.session import Context
from lakeformat.sql.text import Piece

VERSION = "1.10"  # Of Iceberg's Spark functions, which these follow.
KINDS = {
    "bucket": TransformKind.BUCKET,
    "truncate": TransformKind.TRUNCATE,
    "year": TransformKind.YEAR,
    "years": TransformKind.YEAR,
    "month": TransformKind.MONTH,
    "months": TransformKind.MONTH,
    "day": TransformKind.DAY,
    "days": TransformKind.DAY,
    "hour": TransformKind.HOUR,
    "hours": TransformKind.HOUR,
}
_OF_QUERY = {("sys", ".", "max_pt", "("), ("system", ".", "iceberg_version", "(")}


def called(node: Any) -> TransformKind | None:
    """The transform of a call `[catalog.]system.<transform>(...)`, a node `Dot`."""
    if not isinstance(node, exp.Dot) or not isinstance(node.expression, exp.Anonymous):
        return None
    return KINDS.get(node.expression.name.lower()) if _owner(node) == "system" else None


def calls(tree: Any) -> Iterator[tuple[Any, TransformKind]]:
    """The calls of transforms in a tree."""
    for node in tree.find_all(exp.Dot):
        if (kind := called(node)) is not None:
            yield node, kind


def spelt(kind: TransformKind, *columns: pa.Array) -> pa.Array:
    """As `transform.call`, truncated values as text that DuckDB casts to the type of the last argument."""
    values = transform.call(kind, *columns)
    if kind is not TransformKind.TRUNCATE:
        return values
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        escaped = [
            None if value is None else "".join(f"\\x{byte:02X}" for byte in value) for value in values.to_pylist()
        ]
        return pa.array(escaped, pa.string())
    return values.cast(pa.string())


def with_constants(context: Context, piece: Piece) -> Piece:
    """The text with the values of functions that depend on no row in place of their calls: `sys.max_pt('t')` and
    `system.iceberg_version()`."""
    tokens = text.tokens(piece)
    parts: list[str | Piece] = []
    offset = 0
    for index, token in enumerate(tokens[:-4]):
        owner, dot, name, opening = (other.text.lower() for other in tokens[index : index + 4])
        if (owner, dot, name, opening) not in _OF_QUERY:
            continue
        first = index
        while first >= 2 and tokens[first - 1].text == ".":  # A catalog's name.
            first -= 2
        arguments = list(takewhile(lambda other: other.text != ")", tokens[index + 4 :]))
        close = tokens[min(index + 4 + len(arguments), len(tokens) - 1)]
        origin = piece.origin(token.start)
        value = VERSION if name == "iceberg_version" else _largest(context, arguments, origin)
        if name == "iceberg_version" and arguments:
            raise context.script.invalid(origin, "system.iceberg_version() takes no arguments")
        parts += [piece.part(offset, tokens[first].start), "NULL" if value is None else to_sql(Literal(value))]
        offset = close.end + 1
    return Piece.join(context.script, [*parts, piece.part(offset, len(piece.text))]) if parts else piece


def name_of(kind: TransformKind, type: str = "") -> str:
    """The name of a transform where DuckDB or Spark has it as a function; `type` is the result's, where that varies."""
    return "_".join(["_lakeformat", kind.value, *re.findall(r"\w+", type.lower())])


# --- private ----------------------------------------------------------------------------------------------------------


def _owner(node: Any) -> str:
    owner = node.this
    owner = owner.expression if isinstance(owner, exp.Dot) else owner
    return str(owner.name).lower() if isinstance(owner, exp.Identifier | exp.Column) else ""


def _largest(context: Context, arguments: Sequence[Token], origin: int) -> str | None:
    """The largest value of a table's first partition column, as text; None if the table has no rows."""
    if len(arguments) != 1 or arguments[0].token_type is not TokenType.STRING:
        raise context.script.invalid(origin, "sys.max_pt takes the name of a table, as text: sys.max_pt('db.t')")
    where = f"SQL at {context.script.position(origin)}"
    table = names.table(context, tuple(arguments[0].text.split(".")), where)
    fields = table.schema.partitioning.fields
    if not fields:
        raise context.script.invalid(origin, f"sys.max_pt('{arguments[0].text}'): {table.name} has no partitions")
    largest = partitions.largest(
        table.inspect.partitions(), table.inspect.partition_specs(), fields[0].source, str(fields[0].transform)
    )
    if largest is None:  # Files of an earlier spec have several values.
        if fields[0].transform.kind is not TransformKind.IDENTITY:
            raise context.script.unsupported(
                origin,
                f"sys.max_pt('{arguments[0].text}'): {table.name} has files of an earlier partition spec, "
                f"without {fields[0]}; compact it",
            )
        batches = table.scan(columns=[fields[0].source]).to_batches()
        bounds = [pc.max(batch.column(0)) for batch in batches if batch.num_rows]
        largest = pc.max(pa.array(bounds)) if bounds else pa.scalar(None)
    return None if not largest.is_valid else str(largest.cast(pa.string()).as_py())
