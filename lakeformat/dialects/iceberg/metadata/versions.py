"""Versions of a table: load one. In the Hadoop layout they are numbered files; a catalog that keeps the pointer has
files named by number and uuid."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from lakeformat.dialects.iceberg import types
from lakeformat.dialects.iceberg.metadata.documents import IDS, parse
from lakeformat.dialects.iceberg.metadata.folders import METADATA_FOLDER, OF_CATALOG, SUFFIXES
from lakeformat.dialects.iceberg.metadata.history import history, numbered
from lakeformat.dialects.iceberg.metadata.refs import branches, snapshots, tags
from lakeformat.dialects.iceberg.metadata.schemas import key_columns, parse_spec
from lakeformat.dialects.iceberg.metadata.state import MAIN, NOTHING, State
from lakeformat.errors import (
    CorruptFile,
    NoSuchFile,
    NotFound,
)
from lakeformat.model.partition import (
    Partitioning,
)
from lakeformat.model.schema import (
    walk,
)
from lakeformat.model.snapshot import utc
from lakeformat.storage.cache import cache_of, in_catalog
from lakeformat.storage.head import CreateHead, Head, Pointer, load_newest
from lakeformat.storage.store import Reader, Store


def head(store: Store) -> Head:
    catalogued = in_catalog(store)
    return catalogued.head() if catalogued else CreateHead(store, METADATA_FOLDER, "v", SUFFIXES)


def is_table(reader: Reader) -> bool:
    """Whether there is an Iceberg table of the Hadoop layout at the reader's root, or a catalog's table."""
    if catalogued := in_catalog(reader):
        return catalogued.head().version() > 0
    return bool(numbered(reader))


def documents_of_catalogs(reader: Reader) -> list[str]:
    """The names of metadata files at the reader's root that belong to a catalog, oldest first; only the catalog knows
    the current one."""
    matches = map(OF_CATALOG.fullmatch, reader.names(METADATA_FOLDER))
    return [match[0] for match in sorted(filter(None, matches), key=lambda match: (int(match[1]), match[0]))]


def others(reader: Reader) -> list[State]:
    """The table as readers see it that look for its newest document elsewhere: in a catalog table's folder the newest
    of the Hadoop layout, and in a Hadoop table's folder all that a catalog may refer to."""
    if in_catalog(reader):
        newest_first = sorted(numbered(reader).items(), reverse=True)[:1]
        return [parse(reader.read(path), version, reader.location(path)) for version, path in newest_first]
    paths = [f"{METADATA_FOLDER}/{name}" for name in documents_of_catalogs(reader)]
    return [parse(reader.read(path), 0, reader.location(path)) for path in paths]


def load(reader: Reader, version: int, earlier: State | None = None) -> State:
    """The table at version `version` of its metadata; `NOTHING` if it does not exist. A version has one document, so
    that of `earlier` is not read again."""
    if version == 0:
        return NOTHING
    if earlier is not None and earlier.version == version:
        return earlier.whole or earlier
    if isinstance(version, Pointer):
        return _parsed(reader, version.location, version)
    first, *others = [f"{METADATA_FOLDER}/v{version}{suffix}" for suffix in SUFFIXES]
    try:
        return _parsed(reader, first, version)
    except NoSuchFile:
        for path in others:
            with suppress(NoSuchFile):
                return _parsed(reader, path, version)
        raise


def _parsed(reader: Reader, path: str, version: int) -> State:
    cache = cache_of(reader)
    written = dict(cache.written(reader.root)) if cache else {}
    ids = written.pop(IDS, None)
    return parse(reader.read(path), version, reader.location(path), written, ids)


def load_snapshot(reader: Reader, version: int) -> State:
    """The table at the snapshot `version`, with that snapshot's schema. Raises `NotFound`."""
    base = newest(reader)
    snapshot = snapshots(base).get(version)
    if snapshot is None:
        shown = ", ".join(str(s.id) for s in history(reader, base)[-10:]) or "none"
        raise NotFound(f"{reader.root}: no snapshot {version}; the newest are: {shown}")
    return _seen_from(base, snapshot)


def at_tag(reader: Reader, name: str) -> State:
    """The table at a tag. Raises `NotFound`."""
    base = newest(reader)
    kept = tags(base)
    if name not in kept:
        raise NotFound(f"{reader.root}: no tag {name!r}; there are: {', '.join(sorted(kept)) or 'none'}")
    return _seen_from(base, snapshots(base)[kept[name]["snapshot-id"]])


def at_time(reader: Reader, epoch_ms: int) -> State:
    """The table at a time, by the snapshot log. Raises `NotFound` if all entries are younger."""
    base = newest(reader)
    log = base.document.get("snapshot-log", [])
    by_id = snapshots(base)
    passed = [e["snapshot-id"] for e in log if e["timestamp-ms"] <= epoch_ms and e["snapshot-id"] in by_id]
    if not passed:
        first = next((e for e in log if e["snapshot-id"] in by_id), None)
        oldest = (
            f"the oldest, {first['snapshot-id']}, was made at {utc(first['timestamp-ms'])}"
            if first
            else "there is none"
        )
        raise NotFound(f"{reader.root}: no snapshot as old as {utc(epoch_ms)}; {oldest}")
    return _seen_from(base, by_id[passed[-1]])


def newest(reader: Reader) -> State:
    """The table at its newest version; `NOTHING` if it does not exist."""
    return load_newest(head(cast(Store, reader)), partial(load, reader))


def on(reader: Reader, base: State, branch: str | None) -> State:
    """The table at a branch, with the table's own schema. Raises `NotFound`."""
    if branch in (None, base.branch):
        return base
    refs = branches(base)
    if branch not in refs and branch != MAIN:
        raise NotFound(f"{reader.root}: no branch {branch!r}; there are: {', '.join(sorted({MAIN, *refs}))}")
    snapshot = snapshots(base)[refs[branch]["snapshot-id"]] if branch in refs else None
    return replace(base, snapshot_document=snapshot, branch=branch, whole=base.whole or base)


def until(reader: Reader, version: int) -> State:
    """As `at`: changes can be read as long as their snapshots are retained."""
    return load_snapshot(reader, version)


def _seen_from(base: State, snapshot: Mapping[str, Any]) -> State:
    """The table at a snapshot: its schema and its rows."""
    schema_id = snapshot.get("schema-id", base.schema.id)
    schema_json = next((s for s in base.document["schemas"] if s["schema-id"] == schema_id), None)
    if schema_json is None:
        raise CorruptFile(f"snapshot {snapshot['snapshot-id']} names schema {schema_id}, which does not exist")
    fields = types.parse_fields(schema_json)
    names = {f.id: f.name for f in fields}
    partitioning = Partitioning(
        tuple(
            replace(f, source=names.get(source, f.source))
            for f, source in zip(base.spec.partitioning.fields, base.spec.source_ids, strict=True)
        ),
        base.spec.id,
    )
    key = key_columns(schema_json, fields)
    schema = replace(base.schema, fields=fields, id=schema_id, partitioning=partitioning, primary_key=key)
    known = {f.id: f for schema in base.document["schemas"] for f in walk(types.parse_fields(schema))}
    specs = {s["spec-id"]: parse_spec(s, fields, known) for s in base.document["partition-specs"]}
    return replace(base, schema=schema, snapshot_document=snapshot, specs=specs, whole=base.whole or base)
