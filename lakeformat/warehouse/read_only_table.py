"""Read-only tables: opened by their folder or metadata file instead of through a warehouse."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from lakeformat.dialects.dialect import Format
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.encryption import MasterKeys
from lakeformat.dialects.iceberg.metadata import METADATA_FOLDER
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.storage.allowed import allowed_in
from lakeformat.storage.cache import Cache
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.files import open_store
from lakeformat.storage.read_only import Fixed, ReadOnly
from lakeformat.table import Table
from lakeformat.warehouse.roots import FORMATS, read_root, refers_to_catalog

# Verbs that are not listed are refused, so a new verb is refused until it is known to change nothing.
_READS = frozenset({
    "branch", "changes", "current_snapshot", "dry_run", "format", "inspect", "properties", "scan", "schema", "snapshot",
    "snapshots", "uri",
})  # fmt: skip


class ReadOnlyTable(Table):
    """A read-only table: verbs that would change it raise `InvalidInput`."""


def open_table(
    path: str | os.PathLike[str],
    *,
    encryption_keys: Mapping[str, bytes] | Callable[[bytes, str], bytes] | None = None,
    allowed_locations: Iterable[str | os.PathLike[str]] | None = None,
    **storage_options: str,
) -> Table:
    """Open a table for reading, without a warehouse or a catalog.

    Args:
        path: The folder of a table in either format, or an Iceberg metadata file
            (`.../metadata/00003-....metadata.json`): then the table is read as it was at that version.
        encryption_keys: The master keys of encrypted Iceberg tables, as for `Lake`.
        allowed_locations: The folders, besides the table's own, in which files may be opened, as for `Lake`.
        storage_options: The storage options, as for `Lake`.

    Raises `NotFound` for a folder without a table, or one whose newest metadata file only a catalog knows.
    """
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{path!r} is not a table; give a folder or a metadata file")
    keys = MasterKeys(encryption_keys)
    is_file = name.endswith((".json", ".json.gz"))
    allowed = allowed_in(_folder_of(name) if is_file else name, allowed_locations)
    if is_file:
        where, root = read_root(name, storage_options, allowed)
        store = open_store(root, storage_options if _same_service(where, root) else None, None, allowed, name)
        return ReadOnlyTable(name, Catalogued(ReadOnly(store), Fixed(where)), Iceberg(keys=keys))
    store = open_store(name, storage_options, None, allowed)
    formats: dict[str, Format] = {name: make(Cache()) for name, make in FORMATS.items()}
    formats["iceberg"] = Iceberg(keys=keys)
    for format in formats.values():
        if format.is_table(store):
            return ReadOnlyTable(name, ReadOnly(store), format)
    if said := refers_to_catalog(store):
        raise NotFound(f"{name} {said}")
    raise NotFound(f"{name}: there is no Paimon or Iceberg table; give the table's folder, or its metadata file")


def _folder_of(metadata_file: str) -> str:
    """The folder of the table whose metadata file that is."""
    folder = metadata_file.rpartition("/")[0]
    return (
        folder.removesuffix(METADATA_FOLDER).rstrip("/") if f"/{folder}".endswith(f"/{METADATA_FOLDER}") else folder
    ) or ("/" if metadata_file.startswith("/") else ".")


def _same_service(one: str, other: str) -> bool:
    return one.partition(":")[0] == other.partition(":")[0]


def _refusal(verb: str) -> Any:
    def refuse(self: Table, *arguments: Any, **named: Any) -> NoReturn:
        raise InvalidInput(
            f"{verb}: {self.name} was opened by open_table, to be read; to change it, open it by its warehouse or "
            "catalog: Lake(...).table(name)"
        )

    return refuse


for _verb in [name for name in vars(Table) if not name.startswith("_") and name not in _READS]:
    setattr(ReadOnlyTable, _verb, _refusal(_verb))
