"""A prepared query: its tree, and the tables that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeformat.model.dataclass import dataclass
from lakeformat.sql.sources import Source
from lakeformat.sql.text import Piece


@dataclass(slots=True)
class Reference:
    """A table that a query reads: its node in the tree, the part of the text that names it, and its rows."""

    node: Any
    start: int  # in the piece's text
    end: int
    path: tuple[str, ...]
    source: Source
    pushed: str = ""  # The pushed conditions, for EXPLAIN.
    names: tuple[str, ...] = ()  # All columns, before narrowing.
    hidden: tuple[str, ...] = ()  # Of these, the ones that `*` does not list.


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query; its tables are resolved and narrowed to the needed columns and conditions."""

    piece: Piece
    tree: Any
    references: tuple[Reference, ...]
    params: Mapping[str, Any]
