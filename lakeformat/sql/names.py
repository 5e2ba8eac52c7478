"""Names in SQL -> tables, their versions and branches, and their metadata tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.sql.session import WAP_BRANCH, WAP_ID, Context
from lakeformat.table import Table
from lakeformat.views import View

CHANGES = "changes"
_BRANCH, _TAG = "branch_", "tag_"
# What Paimon or Iceberg have besides, and we do not.
_ELSEWHERE = frozenset({
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "metadata_log_entries", "position_deletes",
    "data_files", "delete_files", "entries", "binlog", "ro", "aggregation_fields", "buckets", "statistics", "table_indexes", "row_tracking", "refs", "history",
    "file_key_ranges", "read_optimized",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A table that a name leads to: a branch, a tag or a metadata table of it where the name says so."""

    table: Table
    tag: str | None = None
    metadata: str | None = None
    version: Mapping[str, Any] = field(default_factory=dict)  # of `scan`: snapshot_id, as_of or tag

    def require_rows(self, where: str) -> Table:
        """The table to change. Raises `InvalidInput` for what cannot be written."""
        if self.metadata or self.tag or self.version:
            what = f"metadata table {self.metadata}" if self.metadata else f"version {self.tag or dict(self.version)}"
            raise InvalidInput(
                f"{where}: {self.table.name}, {what}, cannot be changed; name the table, or a branch of it"
            )
        return self.table


def full(context: Context, path: tuple[str, ...]) -> str:
    """`namespace.table`, with the current database where the name has none."""
    return _full(context, _split(context, path))


def find(context: Context, path: tuple[str, ...], where: str) -> Named:
    """What a name leads to. Raises `NotFound`, naming the place and what is near."""
    path = _split(context, path)
    for count in range(len(path), 0, -1):
        name = _there(context, _full(context, path[:count])) if count + 2 >= len(path) else None
        if name is not None and (found := _suffixed(_audited(context, name), path[count:], where)) is not None:
            return found
    try:
        context.lake.table(_full(context, _plain(path)))
    except (NotFound, InvalidInput) as error:
        raise type(error)(f"{where}: {error}") from None
    raise NotFound(f"{where}: no table {'.'.join(path)!r}")


def table(context: Context, path: tuple[str, ...], where: str) -> Table:
    """The table, or branch of one, that a statement changes."""
    return find(context, path, where).require_rows(where)


def view(context: Context, path: tuple[str, ...]) -> View | None:
    """The view of a catalog that a name leads to."""
    try:
        return context.lake.views.find(full(context, path))
    except InvalidInput:  # A name that cannot be.
        return None


# --- private ----------------------------------------------------------------------------------------------------------


def _full(context: Context, path: tuple[str, ...]) -> str:
    return ".".join(path if len(path) > 1 else (context.session.database, *path))


def _split(context: Context, path: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a name: `t$snapshots` is two, and so is a dotted name in backquotes; without the name of a catalog."""
    parts = tuple(part for each in path for part in (each.split(".") if "." in each else [each]))
    if len(parts) > 2 and parts[0] in context.session.catalogs:
        parts = parts[1:]
    return tuple(part for each in parts for part in _dollars(each))


def _dollars(part: str) -> Iterator[str]:
    first, *rest = part.split("$")
    yield first
    yield from (f"${each}" for each in rest)


def _plain(path: tuple[str, ...]) -> tuple[str, ...]:
    """The name without what stands behind a `$`."""
    return tuple(each for each in path if not each.startswith("$")) or path


def _there(context: Context, name: str) -> str | None:
    """A table's name as it is spelt: exactly this, or the only one that differs in case."""
    try:
        if context.lake.exists(name):
            return name
        namespaces = context.lake.namespaces()
    except (InvalidInput, NotFound):  # A name that cannot be, or a warehouse that is not there yet.
        return None
    namespace = name.rpartition(".")[0].casefold()
    near = [
        each
        for known in namespaces
        if known.casefold() == namespace
        for each in context.lake.tables(known)
        if each.casefold() == name.casefold()
    ]
    if len(near) > 1:
        raise InvalidInput(f"{name!r} could be {' or '.join(near)}; spell it exactly")
    return near[0] if near else None


def _audited(context: Context, name: str) -> Table:
    """The table, or where `write.wap.enabled` lets it be audited first, the branch that `SET spark.wap.branch` named, or where writes
    are staged under the id of `SET spark.wap.id`."""
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
        known = ", ".join(tables_of_metadata(table))
        if metadata in _ELSEWHERE:
            raise UnsupportedFeature(f"{where}: {table.name}.{metadata} is not supported; there are {known}")
        near = difflib.get_close_matches(metadata, tables_of_metadata(table), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NotFound(f"{where}: {table.name} has no metadata table {metadata!r}; {hint}there are {known}")
    return Named(table, tag, metadata)


def tables_of_metadata(table: Table) -> list[str]:
    """Names of the metadata tables: those of `inspect`, and `changes`, the changelog."""
    return sorted({*table.inspect.names, CHANGES})
