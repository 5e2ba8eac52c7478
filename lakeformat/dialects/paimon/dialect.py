"""Apache Paimon as a `Format`: finds and loads tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from lakeformat.dialects.dialect import View
from lakeformat.dialects.paimon import expire, lineage, metadata
from lakeformat.dialects.paimon.folder import TYPE as FOLDER
from lakeformat.dialects.paimon.folder import FolderView
from lakeformat.dialects.paimon.inspect import INSPECTIONS
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.paimon.options import check_dynamic
from lakeformat.dialects.paimon.view import PaimonView
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Expiry
from lakeformat.storage.cache import Cache, cached
from lakeformat.storage.head import Head, Newest
from lakeformat.storage.store import Reader, Store


@dataclass(frozen=True, slots=True)
class Paimon:
    """See `dialects.dialect.Format` and `Adjustable`. Its views read through `cache`, and its heads keep the versions
    they have seen in `newest`. `options` come before those of the tables."""

    cache: Cache = field(default_factory=Cache)
    newest: Newest = field(default_factory=Newest, compare=False, repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return "paimon"

    @property
    def is_movable(self) -> bool:
        return True

    @property
    def creates_with_rows(self) -> bool:
        return False  # A schema and a snapshot are two files.

    @property
    def metadata_folders(self) -> Sequence[str]:
        return ("tag", "consumer", "statistics", "changelog", "service", "manifest", "snapshot", "schema")

    @property
    def inspections(self) -> Collection[str]:
        return INSPECTIONS

    def is_table(self, reader: Reader) -> bool:
        return metadata.is_table(reader)

    def on_branch(self, store: Store, name: str) -> Store:
        return metadata.on_branch(store, name)

    def head(self, store: Store) -> Head:
        return metadata.head(store, self.newest)

    def load(self, reader: Reader, version: int, earlier: View[State] | None = None) -> PaimonView:
        return self._view(reader, metadata.load(reader, version, earlier.state if earlier else None))

    def load_snapshot(self, reader: Reader, snapshot_id: int) -> PaimonView:
        return self._view(reader, lineage.load_snapshot(cached(reader, self.cache), snapshot_id))

    def at_tag(self, reader: Reader, name: str) -> PaimonView:
        return self._view(reader, metadata.at_tag(reader, name))

    def at_time(self, reader: Reader, epoch_ms: int) -> PaimonView:
        return self._view(reader, lineage.at_time(cached(reader, self.cache), epoch_ms))

    def until(self, reader: Reader, snapshot_id: int) -> PaimonView:
        return self._view(reader, metadata.until(reader, snapshot_id))

    def everything(self, reader: Reader) -> Expiry:
        return expire.everything(cached(reader, self.cache))

    def with_options(self, options: Mapping[str, str], where: str) -> Paimon:
        check_dynamic(options, where)
        return replace(self, options=tuple(sorted(options.items())))

    def _view(self, reader: Reader, state: State) -> PaimonView:
        if self.options:
            newest = None if state.newest is None else self._adjusted(state.newest)
            state = replace(state, schema=self._adjusted(state.schema), newest=newest)
        kind = FolderView if state.schema.properties.get("type", "").lower() == FOLDER else PaimonView
        return kind(cached(reader, self.cache), state)

    def _adjusted(self, schema: Schema) -> Schema:
        return replace(schema, properties={**schema.properties, **dict(self.options)})
