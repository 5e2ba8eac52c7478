"""Change: a verb at work."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.dialects.dialect import AnyView, Keyed
from lakeformat.engines.engine import Engine
from lakeformat.model.operation import Request
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class Change:
    """A verb at work: the table as it was read, what moves the rows, and what was asked for. `store` takes the files that it
    writes, which nobody sees before the commit."""

    store: Store
    view: AnyView
    engine: Engine
    request: Request

    @property
    def keyed(self) -> Keyed:
        """The view of a table that merges rows by key."""
        assert isinstance(self.view, Keyed), self.view
        return self.view
