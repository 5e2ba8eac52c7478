"""The peers' end of the protocol: a request on each line of stdin, its answer on a line of stdout, both JSON.

Runs inside a peer's own environment, with nothing of the project but the wire form.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.golden import wire


def serve(verbs: Mapping[str, Callable[[dict], Any]]) -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Whatever the engine prints must not end up between the answers.
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": verbs[request["verb"]](request)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer, default=str), file=answers, flush=True)


def rows(table: pa.Table) -> dict:
    """The answer that holds a table."""
    columns = [{"name": field.name, "arrow": wire.arrow_text(field.type)} for field in table.schema]
    return {"columns": columns, "rows": wire.from_arrow(table)}


def literal(value: Any, type_: str) -> Any:
    """A value in wire form as Python has it, for a condition on a column of this Paimon type."""
    if type_.startswith("DECIMAL"):
        return Decimal(value)
    if type_.startswith(("BINARY", "VARBINARY", "BYTES")):
        return bytes.fromhex(value)
    if type_.startswith("DATE"):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    if type_.startswith("TIME("):
        return (datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=value)).time()
    if type_.startswith("TIMESTAMP"):
        zone = datetime.UTC if "ZONE" in type_ else None
        return datetime.datetime(1970, 1, 1, tzinfo=zone) + datetime.timedelta(microseconds=value // 1000)
    return value
