"""Names in SQL -> tables, their versions and branches, and their metadata tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.sql.session import WAP_BRANCH, WAP_ID, Context
from lakeformat.table import Table
from lakeformat.warehouse.views import View

CHANGES = "changes"
ROW_TRACKING = "row_tracking"
READ_OPTIMIZED = "ro"  # Paimon: rows that need no merging.
OWN = "inspect_"  # Begins the name of `Table.inspect`'s form of a metadata table that the connector has too.
_ROW_IDS = ("_ROW_ID", "_SEQUENCE_NUMBER")  # Columns of Paimon tables with row tracking.
_BRANCH, _TAG = "branch_", "tag_"
# Metadata tables that Paimon or Iceberg may have and a table here may not.
_ELSEWHERE = frozenset({
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "metadata_log_entries",
    "position_deletes", "data_files", "delete_files", "entries", "binlog", "ro", "aggregation_fields", "buckets",
    "statistics", "table_indexes", "row_tracking", "refs", "history", "file_key_ranges", "read_optimized",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """The table that a name resolves to, with the branch, tag or metadata table in the name."""

    table: Table
    tag: str | None = None
    metadata: str | None = None
    version: Mapping[str, Any] = field(default_factory=dict)  # of `scan`: snapshot_id, as_of or tag

    def require_rows(self, where: str) -> Table:
        """The table to change. Raises `InvalidInput` for metadata tables, tags and old versions."""
        if self.metadata or self.tag or self.version:
            what = f"metadata table {self.metadata}" if self.metadata else f"version {self.tag or dict(self.version)}"
            raise InvalidInput(
                f"{where}: {self.table.name}, {what}, cannot be changed; name the table, or a branch of it"
            )
        return self.table


def full(context: Context, path: tuple[str, ...]) -> str:
    """`namespace.table`; a name without a database gets the current one."""
    return _full(context, _split(context, path))


def find(context: Context, path: tuple[str, ...], where: str) -> Named:
    """Resolve a name. Raises `NotFound` with the place in the text and similar names."""
    path = _split(context, path)
    for count in range(len(path), 0, -1):
        name = _stored_name(context, _full(context, path[:count])) if count + 2 >= len(path) else None
        if name is not None and (named := _suffixed(_audited(context, name), path[count:], where)) is not None:
            return named
    try:
        context.lake.table(_full(context, _plain(path)))
    except (NotFound, InvalidInput) as error:
        raise type(error)(f"{where}: {error}") from None
    raise NotFound(f"{where}: no table {'.'.join(path)!r}")


def table(context: Context, path: tuple[str, ...], where: str) -> Table:
    """The table or branch that a statement changes."""
    return find(context, path, where).require_rows(where)


def view(context: Context, path: tuple[str, ...]) -> View | None:
    """The catalog's view of this name."""
    try:
        return context.lake.views.find(full(context, path))
    except InvalidInput:  # An invalid name.
        return None


# --- private ----------------------------------------------------------------------------------------------------------


def _full(context: Context, path: tuple[str, ...]) -> str:
    return ".".join(path if len(path) > 1 else (context.session.database, *path))


def _split(context: Context, path: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a name without the catalog: `t$snapshots` has two, and so has a dotted name in backquotes."""
    parts = tuple(part for name in path for part in (name.split(".") if "." in name else [name]))
    if len(parts) > 2 and parts[0] in context.session.catalogs:
        parts = parts[1:]
    return tuple(part for piece in parts for part in _dollars(piece))


def _dollars(part: str) -> Iterator[str]:
    first, *rest = part.split("$")
    yield first
    yield from (f"${suffix}" for suffix in rest)


def _plain(path: tuple[str, ...]) -> tuple[str, ...]:
    """The name up to the `$`."""
    return tuple(part for part in path if not part.startswith("$")) or path


def _stored_name(context: Context, name: str) -> str | None:
    """The table's name in its own spelling: this name, or the only one that differs in case."""
    try:
        if context.lake.exists(name):
            return name
        namespaces = context.lake.namespaces()
    except (InvalidInput, NotFound):  # An invalid name, or a warehouse that does not exist yet.
        return None
    namespace = name.rpartition(".")[0].casefold()
    near = [
        listed
        for known in namespaces
        if known.casefold() == namespace
        for listed in context.lake.tables(known)
        if listed.casefold() == name.casefold()
    ]
    if len(near) > 1:
        raise InvalidInput(f"{name!r} could be {' or '.join(near)}; spell it exactly")
    return near[0] if near else None


def _audited(context: Context, name: str) -> Table:
    """The table. If it has `write.wap.enabled` (write-audit-publish): the branch of `SET spark.wap.branch`, or the
    table that stages its writes under the id of `SET spark.wap.id`."""
    table = context.lake.table(name)
    branch, wap_id = context.session.settings.get(WAP_BRANCH), context.session.settings.get(WAP_ID)
    if (branch is None and wap_id is None) or table.properties.get("write.wap.enabled", "").lower() != "true":
        return table
    if branch is not None and wap_id is not None:
        raise InvalidInput(f"{name}: both {WAP_BRANCH} and {WAP_ID} are set; RESET one of them")
    return table.staged(wap_id) if branch is None and wap_id is not None else table.branch(str(branch))


def _suffixed(table: Table, suffixes: tuple[str, ...], where: str) -> Named | None:
    tag = metadata = None
    for suffix in suffixes:
        word = suffix.removeprefix("$")
        if word.startswith(_BRANCH):
            table = table.branch(word.removeprefix(_BRANCH))
        elif word.startswith(_TAG):
            tag = word.removeprefix(_TAG)
        else:
            metadata = word.lower()
    if metadata is not None and metadata not in tables_of_metadata(table):
        metadata_tables = ", ".join(tables_of_metadata(table))
        if metadata in _ELSEWHERE:
            raise UnsupportedFeature(f"{where}: {table.name}.{metadata} is not supported; there are {metadata_tables}")
        near = difflib.get_close_matches(metadata, tables_of_metadata(table), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NotFound(f"{where}: {table.name} has no metadata table {metadata!r}; {hint}there are {metadata_tables}")
    return Named(table, tag, metadata)


def tables_of_metadata(table: Table) -> list[str]:
    """Names of the metadata tables: those of the format's connector; those of `inspect`, with `inspect_` before a name
    that the connector has too; the changelog `changes`; of Paimon tables `ro`; and of tables with row tracking the
    rows with their ids, `row_tracking`."""
    tracked = {ROW_TRACKING} if table.properties.get("row-tracking.enabled", "").lower() == "true" else set()
    connector = set(table.inspect.connector_names)
    own = {f"{OWN}{name}" if name in connector else name for name in table.inspect.names}
    rows = {READ_OPTIMIZED} if table.format == "paimon" else set()
    return sorted({*connector, *own, *rows, CHANGES, *tracked})


def tracked_columns(table: Table) -> list[str]:
    """The columns of `row_tracking`."""
    return [*table.schema.names, *_ROW_IDS]
