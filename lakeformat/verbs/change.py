"""Change: the context of a verb that is running."""

from __future__ import annotations

from lakeformat.dialects.dialect import AnyView, Keyed
from lakeformat.engines.engine import Engine
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Request
from lakeformat.storage.cache import with_cache
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class Change:
    """The context of a verb: the table as it was read, the engine that moves rows, and the request. `store` takes the
    files it writes, which are invisible until the commit."""

    store: Store
    view: AnyView
    engine: Engine
    request: Request

    @property
    def files(self) -> Store:
        """`store` as the engine gets it: with the Lake's cache."""
        return with_cache(self.store, self.view.reader)

    @property
    def keyed(self) -> Keyed:
        """The rows of a table that merges them by key."""
        assert self.view.keyed is not None, self.view
        return self.view.keyed
