"""Apache Iceberg as a `Format`: finds and loads tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from lakeformat.dialects.dialect import View
from lakeformat.dialects.iceberg import expire, metadata
from lakeformat.dialects.iceberg.encryption import Keyring, MasterKeys
from lakeformat.dialects.iceberg.inspect import INSPECTIONS
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.iceberg.view import IcebergView
from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Expiry
from lakeformat.storage.cache import Cache, cached, unlocked
from lakeformat.storage.head import Head
from lakeformat.storage.store import Reader, Store


@dataclass(frozen=True, slots=True)
class Iceberg:
    """See `dialects.dialect.Format`. Its views read through `cache`, and open encrypted tables with `keys`."""

    cache: Cache = field(default_factory=Cache)
    keys: MasterKeys = field(default_factory=MasterKeys)

    @property
    def name(self) -> str:
        return "iceberg"

    @property
    def is_movable(self) -> bool:
        return False  # Metadata refers to files by absolute paths.

    @property
    def creates_with_rows(self) -> bool:
        return True

    @property
    def metadata_folders(self) -> Sequence[str]:
        return (metadata.METADATA_FOLDER,)

    @property
    def inspections(self) -> Collection[str]:
        return {*INSPECTIONS, "position_deletes"}

    def is_table(self, reader: Reader) -> bool:
        return metadata.is_table(reader)

    def on_branch(self, store: Store, name: str) -> Store:
        return store

    def head(self, store: Store) -> Head:
        return metadata.head(store)

    def load(self, reader: Reader, version: int, earlier: View[State] | None = None) -> IcebergView:
        own = cached(reader, self.cache)
        return self._view(own, metadata.load(own, version, earlier.state if earlier else None))

    def load_snapshot(self, reader: Reader, snapshot_id: int) -> IcebergView:
        return self._view(reader, metadata.load_snapshot(cached(reader, self.cache), snapshot_id))

    def at_tag(self, reader: Reader, name: str) -> IcebergView:
        return self._view(reader, metadata.at_tag(reader, name))

    def at_time(self, reader: Reader, epoch_ms: int) -> IcebergView:
        return self._view(reader, metadata.at_time(cached(reader, self.cache), epoch_ms))

    def until(self, reader: Reader, snapshot_id: int) -> IcebergView:
        return self._view(reader, metadata.until(reader, snapshot_id))

    def everything(self, reader: Reader) -> Expiry:
        return expire.everything(cached(reader, self.cache))

    def _view(self, reader: Reader, state: State) -> IcebergView:
        if not metadata.is_encrypted(state):
            return IcebergView(cached(reader, self.cache), state)
        keys = Keyring(self.keys, state.document, reader.root)
        return IcebergView(unlocked(reader, self.cache, keys), state)
