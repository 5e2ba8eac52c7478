"""What a retention expires, and which files nothing reaches any more. The expiry is committed first; then only files
are deleted that no remaining snapshot of the committed table reaches."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.iceberg import manifest, metadata, options
from lakeformat.dialects.iceberg.manifest import Status
from lakeformat.dialects.iceberg.metadata import DATA_FOLDER, METADATA_FOLDER, State
from lakeformat.dialects.part import Part
from lakeformat.errors import CorruptTable, InvalidInput, NoSuchFile, NotFound, OutOfReach, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.log import log
from lakeformat.model.operation import DropBranch, DropSnapshots, DropTag, Request
from lakeformat.model.predicate import Expression
from lakeformat.model.snapshot import Expiry, Retention, Snapshot
from lakeformat.model.tag_schedule import TagSchedule
from lakeformat.storage.cache import in_catalog
from lakeformat.storage.load_history import FOLDERS, RECORDS
from lakeformat.storage.paths import is_absolute, relative, tables_below
from lakeformat.storage.store import Listed, Reader

NOTHING = Expiry((), ())

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_METADATA_NAME = re.compile(rf"snap-\d+-\d+-{_UUID}\.avro|{_UUID}-[a-z0-9]*-?m\d+\.avro")
_DOCUMENT_NAME = re.compile(rf"\d{{5,}}-{_UUID}(\.gz)?\.metadata\.json")
# Also partition statistics, beside manifests.
_STATISTICS_NAME = re.compile(rf".*{_UUID}.*\.(stats|puffin|parquet|orc|avro)")
_OWN_STATISTICS = re.compile(rf"\d+-{_UUID}\.stats|partition-stats-\d+-{_UUID}\.parquet")
_FOLDER_NAME = re.compile(r"v\d+(\.gz)?\.metadata\.json(\.gz)?|version-hint\.text")  # In the Hadoop layout.
_DATA_NAME = re.compile(rf".*{_UUID}.*\.(parquet|orc|avro|puffin)")
_TEMPORARY_NAME = re.compile(rf"\.(.+\.)?{_UUID}\.tmp|\..+\.tmp|{_UUID}(\.gz)?\.metadata\.json")


@dataclass(frozen=True, slots=True)
class Expiring(Part[State]):
    """What may be deleted."""

    def default_retention(self, now_ms: int) -> Retention:
        """The retention of the table's properties (`history.expire.*`): five days, and at least one snapshot."""
        properties = self.state.schema.properties
        return Retention(
            retain_min=options.read(properties).min_snapshots_to_keep,
            older_than_ms=now_ms - options.read(properties).max_snapshot_age_ms,
        )

    def due(self, snapshot: Snapshot, now_ms: int) -> Retention | None:
        """None: snapshots expire by a job of their own."""
        return None

    def pin(self, now_ms: int, retain_ms: int) -> tuple[str, bytes] | None:
        """None: a commit on a snapshot that is gone is refused."""
        return None

    def require_kept(self, tag: str | None = None) -> None:
        """Nothing: see `pin`."""

    def partitions(self, now_ms: int, properties: Mapping[str, str] = MappingProxyType({})) -> Expression | None:
        """None: partitions do not expire by options."""
        return None

    def of_restore(self, version: int) -> Expiry:
        """None: undone snapshots expire as others do."""
        return Expiry((), ())

    def expired_tags(self, now_ms: int) -> list[str]:
        """The tags whose time is over."""
        return metadata.expired_tags(self.reader, self.state, now_ms)

    def snapshots(self, retention: Retention, now_ms: int) -> Expiry:
        """The snapshots that `retention` expires: ancestors of each branch, and those that nothing refers to. Tagged
        snapshots stay, and a branch may have a retention of its own."""
        self._require_collectable()
        self._require_free(retention.snapshot_ids)
        main = metadata.ancestry(self.state, metadata.current_id(self.state))
        kept = {ref["snapshot-id"] for ref in metadata.tags(self.state).values()}
        old: set[int] = set()
        for ref in metadata.branches(self.state).values():
            chain = metadata.ancestry(self.state, ref["snapshot-id"])
            gone = _old(chain, _own_retention(ref, retention, now_ms))
            old |= gone
            kept |= {s["snapshot-id"] for s in chain} - gone
        floor = [s.get("sequence-number", 0) for s in main if s["snapshot-id"] == retention.keep_from]
        expired = []
        for snapshot_id, document in metadata.snapshots(self.state).items():
            young = retention.older_than_ms is not None and document["timestamp-ms"] >= retention.older_than_ms
            named = snapshot_id in old
            later = bool(floor) and document.get("sequence-number", 0) >= floor[0]
            if snapshot_id in retention.snapshot_ids or (snapshot_id not in kept and (named or not (young or later))):
                expired.append(snapshot_id)
        if not expired:
            return NOTHING
        order = {i: d.get("sequence-number", 0) for i, d in metadata.snapshots(self.state).items()}
        ids = tuple(sorted(expired, key=order.__getitem__))
        return Expiry(
            snapshots=ids,
            waves=(),
            operation=DropSnapshots(
                request=Request(id=str(uuid.uuid4()), absent_until=self.state.version), snapshots=ids
            ),
            then=lambda after: _unreachable(self.reader, self.state, after),
        )

    def of_tag(self, name: str) -> Expiry:
        """Delete the tag (or branch); its snapshots stay until they expire."""
        request = Request(id=str(uuid.uuid4()), absent_until=self.state.version)
        drop = DropBranch if name in metadata.branches(self.state) else DropTag
        return Expiry((), (), operation=drop(request=request, name=name))

    def tag_schedule(self) -> TagSchedule | None:
        """None: a table makes no tags by itself."""
        return None

    def orphans(self, older_than_ms: int) -> list[Listed]:
        """Files that no snapshot refers to and that are older than `older_than_ms` (epoch). Candidates are listed
        first, so that a file committed meanwhile is either referred to by metadata read afterwards or no candidate.
        Locations outside the table's folder are left alone: other tables may have files there. Raises
        `UnsupportedFeature` with `gc.enabled=false`, as Java does: then other tables may have files in this folder
        too."""
        self._require_collectable()
        listed = self._listed()
        inside = tables_below(f.path for f in listed)
        folder = metadata.metadata_folder(self.state)
        candidates = [
            f
            for f in listed
            if f.modified_ms < older_than_ms and _is_ours(self.reader, f.path, folder) and not f.path.startswith(inside)
        ]
        if not candidates:
            return []
        now = metadata.newest(self.reader)
        if not now.exists:
            raise CorruptTable(f"{self.reader.root} has no metadata; orphans cannot be distinguished from files in use")
        try:
            used = [*reached(self.reader, now, list(metadata.snapshots(now).values()))]
            for other in metadata.others(self.reader):
                used += reached(self.reader, other, list(metadata.snapshots(other).values()), missing_ok=True)
        except NoSuchFile as error:
            raise CorruptTable(
                f"{self.reader.root}: {error}; orphans cannot be distinguished from files in use"
            ) from error
        paths = {_relative(self.reader, p) for group in used for p in group.to_pylist()}
        paths |= {_relative(self.reader, p) for p in metadata.named_documents(now)}
        # A path elsewhere may be this location by another name (a link, another host). No two files have one name.
        elsewhere = {p.rpartition("/")[2] for p in paths if is_absolute(p)}
        return [f for f in candidates if f.path not in paths and f.path.rpartition("/")[2] not in elsewhere]

    def _require_collectable(self) -> None:
        if not _may_collect(self.state):
            raise UnsupportedFeature(
                f"{self.reader.root}: gc.enabled=false: other tables may use its files, so none is deleted"
            )

    def _require_free(self, snapshot_ids: frozenset[int]) -> None:
        if missing := sorted(snapshot_ids - metadata.snapshots(self.state).keys()):
            raise NotFound(f"{self.reader.root}: no snapshot {missing[0]}, which was to expire")
        for kind, refs in (("tag", metadata.tags(self.state)), ("branch", metadata.branches(self.state))):
            for name, ref in refs.items():
                if ref["snapshot-id"] in snapshot_ids:
                    raise InvalidInput(
                        f"{self.reader.root}: snapshot {ref['snapshot-id']} is that of {kind} {name!r} and cannot "
                        f"expire; drop the {kind} first"
                    )

    def _listed(self) -> list[Listed]:
        """The files in the data and metadata folders below the table's location."""
        return list({f.path: f for folder in _folders(self.state) for f in self.reader.list(folder)}.values())


def everything(reader: Reader) -> Expiry:
    """All files of the table below its location, in the order of deletion: those that its metadata reaches, and those
    with a folder and name that engines use; also in the locations that its properties name, unless `gc.enabled` is
    false. The newest document is last. Tables inside this folder keep theirs."""
    base = metadata.NOTHING
    with suppress(NoSuchFile, OutOfReach, CorruptTable, UnsupportedFeature):
        base = metadata.newest(reader)
    records = (f.path for folder in FOLDERS.values() for f in reader.list(folder))
    listed = [*(f.path for f in Expiring(reader, base)._listed()), *records]
    documents, names = [], []
    # With gc.enabled=false, others may use files outside the folder.
    outer = metadata.outside_folders(base) if _may_collect(base) else ()
    try:
        now = metadata.newest(reader)
        documents = [_relative(reader, path) for path in metadata.named_documents(now)] if now.location else []
        groups = reached(reader, now, list(metadata.snapshots(now).values()), missing_ok=True)
        names = [_relative(reader, path) for group in groups for path in group.to_pylist()]
    except (NoSuchFile, OutOfReach, CorruptTable, UnsupportedFeature) as error:
        # Deleted by an earlier call, or unreadable: fall back to names.
        log.info("%s: %s; files of the table are known by their names alone", reader.root, error)
    if outside := [path for path in (*names, *documents) if not _is_within(path, outer)]:
        log.warning("%s: %d files outside the table stay, e.g. %s", reader.root, len(outside), outside[0])
    inside = (*tables_below(listed), *_tables_around(reader, names))
    folder = metadata.metadata_folder(base)
    table_files = {path for path in listed if _is_own(path, folder)} | {*names, *documents}
    table_files = {path for path in table_files if _is_within(path, outer) and not path.startswith(inside)}
    beside = {path for path in table_files if not path.startswith(tuple(f"{folder}/" for folder in _folders(base)))}
    table_files = (table_files & set(listed)) | {path for path in beside if reader.exists(path)}
    last = set(documents[:1]) or {path for path in table_files if _FOLDER_NAME.fullmatch(path.rpartition("/")[2])}
    first = {path for path in table_files - last if path.endswith((".metadata.json", ".metadata.json.gz"))}
    data = {path for path in table_files - last - first if path.rpartition("/")[0] not in (METADATA_FOLDER, folder)}
    waves = (first, data, table_files - last - first - data, last & table_files)
    folders = sorted({path.rpartition("/")[0] for path in table_files if not is_absolute(path)} - {""}, reverse=True)
    return Expiry((), tuple(tuple(sorted(wave)) for wave in waves if wave), folders=tuple(folders))


def reached(
    reader: Reader, base: State, snapshots: Sequence[Mapping[str, Any]], missing_ok: bool = False
) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """The paths of (live data and delete files, manifests, manifest lists, statistics) of these snapshots."""
    lists = [s["manifest-list"] for s in snapshots if "manifest-list" in s]
    # An interrupted expiry may have deleted its lists; a remaining snapshot must have its own.
    tables = manifest.read_lists(reader, lists, missing_ok)
    embedded = pa.array([path for s in snapshots for path in s.get("manifests") or ()], pa.string())  # In version 1.
    listed = pa.concat_tables([manifest.EMPTY_METAS, *tables])["manifest_path"].combine_chunks()
    manifests = pc.unique(pa.concat_arrays([listed, embedded]))
    live = [pa.array([], pa.string())]
    for table in manifest.read_raw(reader, manifests.to_pylist(), missing_ok):
        there = table.filter(pc.not_equal(table["status"], int(Status.DELETED)))
        live.append(there["file_path"].combine_chunks())
    ids = {s["snapshot-id"] for s in snapshots}
    statistics = [
        s["statistics-path"]
        for key in ("statistics", "partition-statistics")
        for s in base.document.get(key) or ()
        if s["snapshot-id"] in ids
    ]
    return pc.unique(pa.concat_arrays(live)), manifests, pa.array(lists, pa.string()), pa.array(statistics, pa.string())


# --- private ----------------------------------------------------------------------------------------------------------


def _own_retention(ref: Mapping[str, Any], retention: Retention, now_ms: int) -> Retention:
    """The retention of a branch, which overrides the table's."""
    least, age_ms = ref.get("min-snapshots-to-keep"), ref.get("max-snapshot-age-ms")
    if least is not None:
        most = None if retention.retain_max is None else max(retention.retain_max, least)
        retention = replace(retention, retain_min=least, retain_max=most)
    return retention if age_ms is None else replace(retention, retain_max=None, older_than_ms=now_ms - age_ms)


def _old(main: Sequence[Mapping[str, Any]], retention: Retention) -> set[int]:
    """The snapshots of a chain (newest first) that a retention expires: all that are older than some point. A snapshot
    is as old as its successor, since it was current until then."""
    first = len(main)
    for index in range(len(main) - 1, max(retention.retain_min, 1) - 1, -1):
        too_many = retention.retain_max is not None and index >= retention.retain_max
        too_old = retention.older_than_ms is not None and main[index - 1]["timestamp-ms"] < retention.older_than_ms
        if main[index]["snapshot-id"] == retention.keep_from or not (too_many or too_old):
            break
        first = index
    if retention.limit is not None:
        first = max(first, len(main) - retention.limit)
    return {s["snapshot-id"] for s in main[first:]}


def _unreachable(reader: Reader, before: State, after: State) -> Expiry:
    """The files that expired snapshots reach and remaining ones do not: data first, then what refers to it."""
    there = metadata.snapshots(after)
    expired = [s for i, s in metadata.snapshots(before).items() if i not in there]
    lost, used = reached(reader, before, expired, missing_ok=True), reached(reader, after, list(there.values()))
    waves, outer = [], metadata.outside_folders(after)
    for old, new in zip(lost, used, strict=True):
        free = old.filter(pc.invert(pc.is_in(old, value_set=new)))
        inside = (_relative(reader, path) for path in free.to_pylist())
        waves.append(tuple(path for path in inside if _is_within(path, outer)))
    return Expiry(tuple(s["snapshot-id"] for s in expired), tuple(waves))


def _may_collect(base: State) -> bool:
    return options.read(base.schema.properties).gc_enabled


def _relative(reader: Reader, path: str) -> str:
    """A path as listings have it; a path outside the table is unchanged."""
    inside = relative(reader.root, path) if is_absolute(path) else path
    return path if inside is None else inside


def _is_within(path: str, folders: Sequence[str]) -> bool:
    """Whether a path, as `_relative` returns it, is in the table's folder or in one of the absolute `folders`."""
    return not is_absolute(path) or any(relative(folder, path) is not None for folder in folders)


def _folders(base: State) -> list[str]:
    folders = (METADATA_FOLDER, DATA_FOLDER, metadata.metadata_folder(base), metadata.data_folder(base))
    return [folder for folder in dict.fromkeys(folders) if not is_absolute(folder)]


def _is_ours(reader: Reader, path: str, metadata_folder: str) -> bool:
    """Whether a file has a folder and name that engines use; no others may be deleted."""
    folder, _, name = path.rpartition("/")
    if _TEMPORARY_NAME.fullmatch(name):
        return True
    if folder in (METADATA_FOLDER, metadata_folder):
        # Only the catalog knows whether such a document is a table's newest.
        lost = in_catalog(reader) and _DOCUMENT_NAME.fullmatch(name)
        return bool(lost or _METADATA_NAME.fullmatch(name) or _OWN_STATISTICS.fullmatch(name))
    return bool(_DATA_NAME.fullmatch(name))


def _is_own(path: str, metadata_folder: str) -> bool:
    """Whether a file has a folder and name that engines use for any file of a table."""
    folder, _, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):  # Hadoop writes one beside each local file.
        return _is_own(f"{folder}/{name[1:-4]}", metadata_folder)
    if _TEMPORARY_NAME.fullmatch(name):
        return True
    if folder in (METADATA_FOLDER, metadata_folder):
        names = (_METADATA_NAME, _DOCUMENT_NAME, _FOLDER_NAME, _STATISTICS_NAME)
        return any(pattern.fullmatch(name) for pattern in names)
    if folder in FOLDERS.values():
        return re.fullmatch(RECORDS, name) is not None
    return bool(_DATA_NAME.fullmatch(name))


def _tables_around(reader: Reader, paths: Sequence[str]) -> tuple[str, ...]:
    """The folders of tables inside this one's that contain some of `paths`, outside its own folders."""
    folders: set[str] = set()
    for path in paths:
        parts = path.split("/")[:-1]
        if not is_absolute(path) and parts and parts[0] not in (METADATA_FOLDER, DATA_FOLDER):
            folders |= {"/".join(parts[: end + 1]) for end in range(len(parts))}
    return tables_below(
        f"{folder}/{kind}/{name}"
        for folder in sorted(folders)
        for kind in ("schema", METADATA_FOLDER)
        for name in reader.names(f"{folder}/{kind}")
    )
