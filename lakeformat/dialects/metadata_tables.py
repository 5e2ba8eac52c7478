"""The metadata tables of a format's own Spark connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from lakeformat.model.work import DeleteFile


class MetadataTables(Protocol):
    """The tables by name, with the connector's columns; `compacted` is the state without rows that reading would have
    to merge (Paimon's `$ro`)."""

    @property
    def readers(self) -> Mapping[str, Callable[[Any], pa.Table]]: ...
    @property
    def compacted(self) -> Any: ...
    @property
    def position_deletes(self) -> tuple[Sequence[DeleteFile], pa.Table] | None:
        """The live position delete files and deletion vectors, and for each a row of `position_deletes` without `pos`;
        None for a format without such a table."""
