"""What a retention expires, and which files nothing reaches any more. No file is listed without proof.

Proof for a data file: it is live in no remaining snapshot and in no tag, and no remaining changelog reads it. For
metadata: no remaining snapshot, tag, changelog or branch refers to it. A file that cannot be read ends the expiry with
an error, and nothing is deleted.

A changelog may outlive its snapshot: `changelog/changelog-N` is a copy of the snapshot's file, and keeps the files with
its changes: its changelog files, or, where none were written, the files that an append added."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.paimon import branch, layout, lineage, manifest, metadata, options, partition_times, scan
from lakeformat.dialects.paimon.metadata import INDEX_FOLDER, MANIFEST_FOLDER, STATISTICS_FOLDER, State
from lakeformat.dialects.part import Part
from lakeformat.errors import CorruptTable, NoSuchFile, NotFound, OutOfReach, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.log import log
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Expiry, Retention, Snapshot
from lakeformat.model.tag_schedule import TagSchedule
from lakeformat.storage.head import EXPIRING, RESTORED
from lakeformat.storage.load_history import FOLDERS, RECORDS
from lakeformat.storage.paths import relative, tables_below
from lakeformat.storage.store import Listed, Reader

NOTHING = Expiry((), ())

# The names that engines give to a table's files; other files are never deleted.
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_METADATA_NAME = re.compile(
    rf"(manifest|manifest-list|index-manifest|index|stat|statistics)-{_UUID}-\d+(-\d+)?|[a-z-]+-global-index-{_UUID}\.index"
)
_DATA_NAME = re.compile(rf".*{_UUID}(-\d+)?(\.[a-z0-9]+)*\.(parquet|orc|avro|blob|index)")
_TEMPORARY_NAME = re.compile(rf"\.(.+\.)?{_UUID}\.tmp|\..+\.tmp|_temporary.*")
_ROOT_NAMES = {
    metadata.SCHEMA_FOLDER: re.compile(r"schema-\d+"),
    metadata.SNAPSHOT_FOLDER: re.compile(rf"snapshot-\d+|LATEST|EARLIEST|{RESTORED}|{EXPIRING}{_UUID}"),
    metadata.CHANGELOG_FOLDER: re.compile(r"changelog-\d+|LATEST|EARLIEST"),
    metadata.TAG_FOLDER: re.compile(r"tag-.+|.*_SUCCESS"),
    metadata.CONSUMER_FOLDER: re.compile(r"consumer-.+"),
    **{folder.partition("/")[0]: re.compile(RECORDS) for folder in FOLDERS.values()},
    # Iceberg metadata of Paimon tables (`metadata.iceberg.storage`).
    "metadata": re.compile(rf"v\d+\.metadata\.json|version-hint\.text|snap-.*\.avro|{_UUID}(-\w+)?-m\d+\.avro"),
}
_LOGS_AT_ONCE = 64
_LISTS_AT_ONCE = 128
_HINTS = {"LATEST", "EARLIEST"}
_MARKS = (f"{metadata.SNAPSHOT_FOLDER}/{RESTORED}",)  # For numbers that become free out of order: see `CreateHead`.


@dataclass(frozen=True, slots=True)
class Expiring(Part[State]):
    """What may be deleted."""

    def default_retention(self, now_ms: int) -> Retention:
        """The retention of the table's options (`snapshot.num-retained.*`, `snapshot.time-retained`)."""
        least, most, kept_ms = options.read(self.state.schema).snapshots_kept
        limit = options.read(self.state.schema).snapshot_expire_limit
        return Retention(retain_min=least, retain_max=most, older_than_ms=now_ms - kept_ms, limit=limit)

    def snapshots(self, retention: Retention, now_ms: int) -> Expiry:
        """The snapshots that `retention` expires, oldest first, and the files that only they reach.

        The first step is a notice of the snapshots, and what refers to files is read after it. A restore, a tag and a
        branch begin with a file that refers to their snapshot, and look for notices after it (`require_kept`): one of
        the two sees the other."""
        metadata.require_readable(self.state, self.reader.root)
        if retention.snapshot_ids:
            raise UnsupportedFeature(
                f"{self.reader.root}: snapshots of a Paimon table expire from the oldest on, not by id; give "
                "retain_last or older_than"
            )
        names = self.reader.names(metadata.SNAPSHOT_FOLDER)
        documents = {d["id"]: d for d in metadata.read_snapshots(self.reader, metadata.snapshot_ids_among(names))}
        ids = sorted(documents)
        begun = _notices(self.reader, names)  # Other expiries may have been cut short: they are finished.
        if (awaited := branch.awaited(self.reader, documents)) is not None:
            retention = replace(retention, keep_from=min(awaited, retention.keep_from or awaited))
        replaced = _replaced(documents)
        expired = replaced | set(_old(self.reader, self.state.schema, ids, documents, retention))
        expired |= {id for ids_begun in begun.values() for id in ids_begun} & set(ids[:-1])
        if not expired:
            expiry = self._released(documents, replaced, expired, _tags(self.reader), now_ms)
            return replace(expiry, notices=tuple(begun)) if begun else expiry  # Of none of them a snapshot is there.
        notice = f"{metadata.SNAPSHOT_FOLDER}/{EXPIRING}{uuid.uuid4()}"

        def then(after: State) -> Expiry:
            tags = _tags(self.reader)  # Before the snapshots: a restore deletes its tag when its snapshot is there.
            ids = metadata.snapshot_ids(self.reader)
            existing = {i: documents[i] for i in ids if i in documents}
            existing |= {
                d["id"]: d for d in metadata.read_snapshots(self.reader, [i for i in ids if i not in existing])
            }
            expiry = Expiring(self.reader, after)._released(
                existing, replaced & existing.keys(), expired & existing.keys(), tags, now_ms
            )
            left = existing.keys() - set(expiry.snapshots)
            return replace(expiry, notices=(notice, *(path for path, ids in begun.items() if left.isdisjoint(ids))))

        return Expiry(tuple(sorted(expired)), (), files={notice: json.dumps(sorted(expired)).encode()}, then=then)

    def require_kept(self, tag: str | None = None) -> None:
        """Raises `NotFound` if an expiry has begun to remove the snapshot of the view, or, where that is given, the
        tag. Whatever keeps the snapshot from then on has to be there before this is called."""
        if self.state.document is None:
            return
        if tag is not None:
            if not self.reader.exists(metadata.tag_path(tag)):
                raise NotFound(f"{self.reader.root}: tag {tag!r} has been deleted meanwhile")
            return
        names = self.reader.names(metadata.SNAPSHOT_FOLDER)
        if self.state.version not in metadata.snapshot_ids_among(names):
            raise NotFound(f"{self.reader.root}: snapshot {self.state.version} has expired meanwhile")
        for path, ids in _notices(self.reader, names).items():
            if self.state.version in ids:
                raise NotFound(
                    f"{self.reader.root}: snapshot {self.state.version} is expiring, says {path}. If no expiry runs, "
                    "one was cut short, and files of the snapshot may be missing: expire_snapshots finishes it"
                )

    def expired_tags(self, now_ms: int) -> list[str]:
        """The tags whose time is over."""
        return metadata.expired_tags(self.reader, self.state, now_ms)

    def pin(self, now_ms: int, retain_ms: int) -> tuple[str, bytes] | None:
        """A tag that keeps the snapshot while a verb refers to it."""
        return metadata.pin(self.state, now_ms, retain_ms)

    def due(self, snapshot: Snapshot, now_ms: int) -> Retention | None:
        """The retention after the commit `snapshot` on the view, for a table that expires snapshots with its commits,
        if one listing of the snapshots with their ages shows one that may expire; else None."""
        if not options.read(self.state.schema).expires_with_commits or snapshot.id <= self.state.version:
            return None
        kept = self.default_retention(now_ms)
        least = max(kept.retain_min, 1)
        if snapshot.id <= least:
            return None
        listed = metadata.listed_snapshots(self.reader)
        assert kept.retain_max is not None
        assert kept.older_than_ms is not None
        is_due = len(listed) > least and (len(listed) > kept.retain_max or listed[1][1] < kept.older_than_ms)
        if not is_due or min(metadata.consumers(self.reader).values(), default=snapshot.id) <= listed[0][0]:
            return None
        return kept

    def of_tag(self, name: str) -> Expiry:
        """The tag's file first, then the files that only it reached, by what is there without it: see `expiry`."""
        metadata.require_readable(self.state, self.reader.root)
        document = metadata.read_tag(self.reader, name)
        if name.startswith(metadata.PIN) and not _stands(self.reader, document):
            return Expiry((), ((metadata.tag_path(name),),))
        self._released_with(document, name)  # Raises if that cannot be told, before the tag goes.
        return Expiry(
            (),
            ((metadata.tag_path(name),),),
            then=lambda after: Expiring(self.reader, after)._released_with(document, name),
        )

    def of_restore(self, version: int) -> Expiry:
        """The snapshots between the one that a table was restored to and `version`, the restore. Their files are left
        to the sweep: their deletes are undone, and no engine that expires snapshots may apply them."""
        documents = metadata.read_snapshots(self.reader, metadata.snapshot_ids(self.reader))
        ids = sorted(_replaced({d["id"]: d for d in documents if d["id"] <= version}), reverse=True)
        return Expiry(tuple(ids), (tuple(metadata.snapshot_path(i) for i in ids),), marks=_MARKS if ids else ())

    def partitions(self, now_ms: int, properties: Mapping[str, str] = MappingProxyType({})) -> Expression | None:
        """The partitions older than `partition.expiration-time`, by their value or their newest file; at most
        `partition.expiration-max-num` (100), oldest first. None if there are none, or without that option. `properties`
        come before the table's."""
        schema = replace(self.state.schema, properties={**self.state.schema.properties, **properties})
        table_options = options.read(schema)
        kept_ms = table_options.partition_expiration_time
        if kept_ms is None or not schema.partitioning:
            return None
        now = metadata.local_ms(now_ms)  # Files and partitions are dated by the local clock.
        entries = manifest.live_entries(self.reader, self.state.document, schema)
        codes, values = manifest.partitions(entries, schema)
        tuples = manifest.partition_values(values, schema)
        moments: list[int | None]
        match table_options.partition_expiration_strategy:
            case "values-time":
                moments = _moments(self.reader, schema, tuples)
            case "update-time":
                newest = np.zeros(len(tuples), np.int64)
                np.maximum.at(newest, codes, np.asarray(pc.fill_null(entries["_CREATION_TIME"], now), np.int64))
                moments = [int(m) for m in newest]
            case other:
                raise UnsupportedFeature(f"{self.reader.root}: partition.expiration-strategy={other}: not supported")
        over = sorted((m, i) for i, m in enumerate(moments) if m is not None and m < now - kept_ms)
        chosen = over[: table_options.partition_expiration_max_num]
        return manifest.scope_of(schema, [tuples[i] for _, i in chosen]) if chosen else None

    def tag_schedule(self) -> TagSchedule | None:
        """The tags that the table makes by itself, by its options."""
        return metadata.tag_schedule(self.state.schema)

    def orphans(self, older_than_ms: int) -> list[Listed]:
        """Files that no metadata refers to and that are older than `older_than_ms` (epoch). Candidates are listed
        first, so that a file committed meanwhile is either referred to by metadata read afterwards or no candidate."""
        metadata.require_readable(self.state, self.reader.root)
        listed = self.reader.list("")
        inside = _tables_below(f.path for f in listed)
        candidates = [
            f for f in listed if f.modified_ms < older_than_ms and _is_ours(f.path) and not f.path.startswith(inside)
        ]
        if not candidates:
            return []
        used: set[str] = set()
        for folder in ["", *metadata.branches(self.reader)]:
            is_whole = any(f.path.startswith(f"{folder}schema/schema-") for f in self.reader.list(f"{folder}schema"))
            if not is_whole and not folder:
                raise CorruptTable(
                    f"{self.reader.root}: the table has no schema; orphans cannot be distinguished from files in use"
                )
            # A branch that is being made keeps what it will have; one that was deleted in part may lack files already.
            used |= _used(self.reader, folder, missing_ok=not is_whole)
        return [f for f in candidates if f.path.rsplit("/", 1)[-1] not in used]

    def _released(
        self,
        documents: Mapping[int, dict[str, Any]],
        replaced: Set[int],
        expired: Set[int],
        tags: Mapping[str, Mapping[str, Any]],
        now_ms: int,
    ) -> Expiry:
        """The expiry of the snapshots `expired` among `documents`, all that there are, of which a restore undid
        `replaced`; and of strays and changelogs."""
        ids = sorted(documents)
        # The manifest lists that prove that a snapshot led to the next are read together, and cached.
        lists = [document[key] for document in documents.values() for key in ("baseManifestList", "deltaManifestList")]
        for start in range(0, len(lists), _LISTS_AT_ONCE):
            manifest.read_lists(
                self.reader, [name for name in lists[start : start + _LISTS_AT_ONCE] if name], missing_ok=True
            )
        # Of a stray only the snapshot file is deleted: a writer may be about to commit its files,
        # and the sweep deletes the rest.
        pairs = itertools.pairwise(documents[i] for i in ids)
        strays = {d["id"] for d, after in pairs if lineage.leads_to(self.reader, d, after) is False} - replaced
        kept = [documents[i] for i in ids if i not in expired | strays]
        expired_documents = [documents[i] for i in ids if i in expired - strays]
        left = {d["id"]: d for d in metadata.read_changelogs(self.reader, metadata.changelog_ids(self.reader))}
        if options.read(self.state.schema).outlives_snapshots:
            left = {d["id"]: d for d in expired_documents if d["id"] not in replaced} | left
        over = _over(self.reader, self.state.schema, left, documents, ids, now_ms)
        logs = [left[i] for i in sorted(left.keys() - over)]
        silent = [left[i] for i in sorted(over)]
        if not expired_documents and not silent and not strays:
            return NOTHING
        keepers = [*kept, *tags.values(), *_branch_documents(self.reader)]
        unreachable = self._unreachable(expired_documents, kept, keepers, silent, [*logs, *_branch_logs(self.reader)])
        clean = options.read(self.state.schema).snapshot_clean_empty_directories
        hints = {f"{metadata.SNAPSHOT_FOLDER}/EARLIEST": str(kept[0]["id"]).encode()}
        if logs:
            ends = zip(("EARLIEST", "LATEST"), (logs[0]["id"], logs[-1]["id"]), strict=True)
            hints |= {f"{metadata.CHANGELOG_FOLDER}/{name}": str(id).encode() for name, id in ends}
        return Expiry(
            snapshots=tuple(d["id"] for d in expired_documents),
            waves=(
                *unreachable,
                # In order: strays are recognised because a name becomes free only after all names below it.
                *((metadata.snapshot_path(i),) for i in sorted({d["id"] for d in expired_documents} | strays)),
                tuple(metadata.changelog_path(d["id"]) for d in silent),
            ),
            files=_copies(self.reader, [d for d in logs if d["id"] in expired]),
            marks=_MARKS if replaced else (),
            folders=tuple(sorted({p.rsplit("/", 1)[0] for p in unreachable[0]})) if clean else (),
            hints=hints,
        )

    def _released_with(self, document: Mapping[str, Any], name: str) -> Expiry:
        """The files that only the tag `name` reached, whose content is `document`."""
        tags = _tags(self.reader)
        tags.pop(name, None)
        kept = metadata.read_snapshots(self.reader, metadata.snapshot_ids(self.reader))
        if any(d["id"] == document["id"] for d in kept):
            return NOTHING
        keepers = [*kept, *tags.values(), *_branch_documents(self.reader)]
        logs = _logs(self.reader)
        data = (
            *self._data_paths(_live(self.reader, document), keepers, logs),
            *self._changelog_paths([document], [*keepers, *logs]),
        )
        named = _names(self.reader, [document])
        still = _names(self.reader, keepers) | _names_of_changes(self.reader, logs)
        return Expiry((), (data, *_metadata_waves(named - still)))

    def _unreachable(
        self,
        expired: Sequence[Mapping[str, Any]],
        kept: Sequence[Mapping[str, Any]],
        keepers: Sequence[Mapping[str, Any]],
        silent: Sequence[Mapping[str, Any]],
        logs: Sequence[Mapping[str, Any]],
    ) -> tuple[tuple[str, ...], ...]:
        """In waves, data files first: what only the snapshots `expired` and the changelogs `silent` reach; `logs`
        stay."""
        # A snapshot's delta has its adds and deletes;
        # the delta of the first remaining one lists the deletes that made it.
        ids = {document["id"] for document in expired}
        with_delta = [
            *expired,
            *(kept[:1] if expired else ()),
            *(d for d in silent if d["id"] not in ids and _changes_in_data_files(d)),
        ]
        names = [
            name for group in _listed(self.reader, with_delta, "deltaManifestList", missing_ok=True) for name in group
        ]
        candidates = manifest.joined(manifest.read_entries(self.reader, names, missing_ok=True))
        with_changelog = [*expired, *(d for d in silent if d["id"] not in ids)]
        data = (
            *self._data_paths(candidates, keepers, logs),
            *self._changelog_paths(with_changelog, [*keepers, *logs]),
        )
        named = _names(self.reader, expired, missing_ok=True) | _names_of_changes(self.reader, silent, missing_ok=True)
        return data, *_metadata_waves(named - _names(self.reader, keepers) - _names_of_changes(self.reader, logs))

    def _changelog_paths(
        self, expired: Sequence[Mapping[str, Any]], keepers: Sequence[Mapping[str, Any]]
    ) -> tuple[str, ...]:
        """The paths of the changelog files of the snapshots `expired`: no other snapshot has them, but a tag may."""
        key = "changelogManifestList"
        kept = {document.get(key) for document in keepers}
        alone = [document for document in expired if document.get(key) not in kept]
        names = [name for group in _listed(self.reader, alone, key, missing_ok=True) for name in group]
        entries = manifest.joined(manifest.read_entries(self.reader, names, missing_ok=True))
        return tuple(scan.paths(entries, self.state.schema).to_pylist())

    def _data_paths(
        self, candidates: pa.Table, keepers: Sequence[Mapping[str, Any]], logs: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[str, ...]:
        """The paths, with extra files, of those `candidates` (rows of ENTRY) that are live in none of `keepers` and do
        not hold the changes of any of `logs`."""
        if len(candidates) == 0:
            return ()
        names = pc.unique(candidates["_FILE_NAME"])
        small: dict[str, pa.Table] = {}  # Manifest -> its candidate entries.
        reachable: list[pa.Array] = []
        for base_names, delta_names in zip(
            _listed(self.reader, keepers, "baseManifestList"),
            _listed(self.reader, keepers, "deltaManifestList"),
            strict=True,
        ):
            chain = [*base_names, *delta_names]
            absent = [n for n in chain if n not in small]
            for name, table in zip(absent, manifest.read_entries(self.reader, absent), strict=True):
                small[name] = table.filter(pc.is_in(table["_FILE_NAME"], value_set=names))
            own = [small[n] for n in chain if len(small[n])]
            if own:
                reachable.append(pc.unique(manifest.fold(own)[0]["_FILE_NAME"]))
        free = _without(candidates, reachable)
        free = _without(free, _read_by_changelogs(self.reader, free, [d for d in logs if _changes_in_data_files(d)]))
        paths = scan.paths(free, self.state.schema).to_pylist()
        owned = dict.fromkeys(paths)
        for path, extra in zip(paths, free["_EXTRA_FILES"].to_pylist(), strict=True):
            owned |= dict.fromkeys(f"{path.rsplit('/', 1)[0]}/{name}" for name in extra or ())
        return tuple(owned)


def everything(reader: Reader) -> Expiry:
    """All files of the table, in the order of deletion: those that its metadata reaches, and those with a folder and
    name that engines use. The schemas are last. Tables inside this folder keep theirs."""
    listed = [f.path for f in reader.list("")]
    inside = _tables_below(listed)
    used: set[str] = set()
    try:
        for folder in ["", *metadata.branches(reader)]:
            used |= _used(reader, folder, missing_ok=True)
    except (CorruptTable, OutOfReach, UnsupportedFeature) as error:
        log.info("%s: %s; files of the table are known by their names alone", reader.root, error)
    table_files = {path for path in listed if _is_own(path, used) and not path.startswith(inside)}
    ids = metadata.snapshot_ids(reader)
    schemas = {path for path in table_files if path.startswith(f"{metadata.SCHEMA_FOLDER}/")}
    newest = {metadata.snapshot_path(id) for id in ids[-1:]} & table_files
    first = {path for path in table_files - newest if path.startswith(f"{metadata.SNAPSHOT_FOLDER}/")}
    waves = (first, table_files - schemas - newest - first, newest, schemas)
    emptied = {
        f"{folder}{metadata.TAG_FOLDER}" for folder in ["", *metadata.branches(reader)]
    }  # By pins that have gone.
    folders = sorted({path.rpartition("/")[0] for path in table_files} - {""} | emptied)
    return Expiry((), tuple(tuple(sorted(wave)) for wave in waves if wave), folders=tuple(folders))


# --- private ----------------------------------------------------------------------------------------------------------


def _tags(reader: Reader, folder: str = "") -> dict[str, dict[str, Any]]:
    """Tag name -> its document, with pins. A pin that came too late, and whose verb was killed before it saw that, is
    left out: it keeps nothing."""
    tags = metadata.tags(reader, folder, pins=True)
    return {n: d for n, d in tags.items() if not n.startswith(metadata.PIN) or _stands(reader, d)}


def _stands(reader: Reader, document: Mapping[str, Any]) -> bool:
    """Whether all metadata files that the document reaches are there."""
    try:
        _names(reader, [document])
        _live(reader, document)
    except NoSuchFile:
        return False
    return True


def _notices(reader: Reader, names: Iterable[str]) -> dict[str, list[int]]:
    """The snapshots that expiries have begun to remove, by the path of each notice among `names`, those of the snapshot
    folder. One may have gone meanwhile."""
    paths = [f"{metadata.SNAPSHOT_FOLDER}/{name}" for name in names if name.startswith(EXPIRING)]
    read = zip(paths, reader.read_many(paths), strict=True)
    return {path: json.loads(data) for path, data in read if data is not None}


def _moments(reader: Reader, schema: Schema, tuples: Sequence[tuple[Any, ...]]) -> list[int | None]:
    """The time that each partition's values name, in milliseconds since 1970; None, which the log says, if they name
    none."""
    names, kinds = schema.partitioning.names, manifest.partition_types(schema)
    shown = [
        {n: None if v is None else layout.sql_text(v, k) for n, v, k in zip(names, values, kinds, strict=True)}
        for values in tuples
    ]
    moments = [partition_times.moment(schema.properties, values) for values in shown]
    timeless = [values for values, moment in zip(shown, moments, strict=True) if moment is None]
    if timeless:
        log.warning(
            "%s: %d partitions name no time by partition.timestamp-pattern and -formatter, and do not expire, e.g. %s; "
            "drop_partitions drops them, and partition.expiration-strategy=update-time goes by their files",
            reader.root, len(timeless), timeless[0],
        )  # fmt: skip
    return moments


def _old(
    reader: Reader, schema: Schema, ids: Sequence[int], documents: Mapping[int, Any], retention: Retention
) -> list[int]:
    """The ids that a retention expires: a run from the oldest on. A snapshot is as old as its successor, since it was
    current until then (ExpireSnapshotsImpl)."""
    given = options.read(schema)
    waits = not (given.outlives_snapshots and given.consumer_changelog_only)
    consumed = min(metadata.consumers(reader).values(), default=None) if waits else None
    if consumed is not None and consumed in documents and scan.needs_before(documents[consumed]):
        consumed -= 1
    expired: list[int] = []
    for index, snapshot_id in enumerate(ids[: max(len(ids) - max(retention.retain_min, 1), 0)]):
        if consumed is not None and snapshot_id >= consumed:
            break
        if retention.keep_from is not None and snapshot_id >= retention.keep_from:
            break
        if retention.limit is not None and index >= retention.limit:
            break
        too_many = retention.retain_max is not None and index < len(ids) - retention.retain_max
        successor_ms = documents[ids[index + 1]]["timeMillis"]
        too_old = retention.older_than_ms is not None and successor_ms < retention.older_than_ms
        if not (too_many or too_old):
            break
        expired.append(snapshot_id)
    return expired


def _over(
    reader: Reader,
    schema: Schema,
    left: Mapping[int, Mapping[str, Any]],
    documents: Mapping[int, Mapping[str, Any]],
    ids: Sequence[int],
    now_ms: int,
) -> set[int]:
    """The changelogs among `left` that the table's options expire (ExpireChangelogImpl). They are counted together with
    the snapshots after them, and each lasts until its successor is too old; without options of their own they expire
    like snapshots."""
    table_options = options.read(schema)
    latest = ids[-1] if ids else 0
    least, most, kept_ms = table_options.changelogs_kept
    old_ms = now_ms - kept_ms
    consumed = min(metadata.consumers(reader).values(), default=None)
    limit = table_options.snapshot_expire_limit
    every = {**documents, **left}
    successor = dict(itertools.pairwise(sorted(every)))
    over: set[int] = set()
    for id in sorted(left)[:limit]:
        too_many = id <= latest - most
        too_old = id <= latest - least and id in successor and every[successor[id]]["timeMillis"] < old_ms
        if (consumed is not None and id >= consumed) or not (too_many or too_old):
            break
        over.add(id)
    return over


def _logs(reader: Reader) -> list[dict[str, Any]]:
    """The changelogs that outlived their snapshots, of all branches."""
    return [*metadata.read_changelogs(reader, metadata.changelog_ids(reader)), *_branch_logs(reader)]


def _branch_logs(reader: Reader) -> list[dict[str, Any]]:
    prefixes = [f"{folder}{metadata.CHANGELOG_FOLDER}/changelog-" for folder in metadata.branches(reader)]
    return [document for prefix in prefixes for document in _documents(reader, prefix, metadata.parse_changelog)]


def _replaced(documents: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Snapshots undone by a later restore: see `replaced_history`."""
    undone: set[int] = set()
    for snapshot_id, document in documents.items():
        origin = (document.get("properties") or {}).get(metadata.RESTORED_FROM)
        if origin is not None and origin.isdecimal():
            undone |= {i for i in documents if int(origin) < i < snapshot_id}
    return undone


def _read_by_changelogs(reader: Reader, files: pa.Table, logs: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
    """Names among those of `files` (rows of ENTRY) that were added with one of `logs`, whose changes are read from data
    files: newest first, until no other may have been. Files written by compaction were not."""
    may = pc.fill_null(pc.not_equal(files["_FILE_SOURCE"], int(manifest.FileSource.COMPACT)), True)
    left, names_read = files.filter(may), []
    for end in range(len(logs), 0, -_LOGS_AT_ONCE):
        if len(left) == 0:
            break
        some = logs[max(0, end - _LOGS_AT_ONCE) : end]
        names = [name for group in _manifests_of_changes(reader, some) for name in group]
        for table in manifest.read_entries(reader, names):
            added = table.filter(pc.equal(table["_KIND"], int(manifest.EntryKind.ADD)))
            names_read.append(pc.unique(added["_FILE_NAME"]))
        left = _without(left, names_read)
    return names_read


def _without(entries: pa.Table, names: Sequence[pa.Array]) -> pa.Table:
    """The entries of files that are not in `names`."""
    named = pa.chunked_array(names, pa.string()).combine_chunks() if names else pa.array([], pa.string())
    return entries.filter(pc.invert(pc.is_in(entries["_FILE_NAME"], value_set=named)))


def _live(reader: Reader, document: Mapping[str, Any]) -> pa.Table:
    return manifest.fold(manifest.read_all(reader, manifest.read_metas(reader, document)))[0]


def _changes_in_data_files(document: Mapping[str, Any]) -> bool:
    """Whether a snapshot's changes are read from the data files it added, since it has no changelog."""
    is_append = document["commitKind"] == "APPEND" and bool(document.get("deltaManifestList"))
    return is_append and not document.get("changelogManifestList")


def _names_of_changes(reader: Reader, logs: Iterable[Mapping[str, Any]], missing_ok: bool = False) -> set[str]:
    """Names of the metadata files that list the changes of `logs`."""
    logs = list(logs)
    manifests = _manifests_of_changes(reader, logs, missing_ok)
    return {d[_list_of_changes(d)] for d in logs if d.get(_list_of_changes(d))} | {
        n for group in manifests for n in group
    }


def _manifests_of_changes(
    reader: Reader, logs: Sequence[Mapping[str, Any]], missing_ok: bool = False
) -> list[list[str]]:
    """The names of the manifests that list the changes of each of `logs`; most record them."""
    unrecorded = iter(
        _manifests_in(
            reader, [d.get(_list_of_changes(d)) for d in logs if d.get(metadata.MANIFESTS) is None], missing_ok
        )
    )
    return [d[metadata.MANIFESTS] if d.get(metadata.MANIFESTS) is not None else next(unrecorded) for d in logs]


def _copies(reader: Reader, documents: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """The changelog documents that snapshots leave. They also record the manifests, so that later expiries need not
    read lists."""
    manifests = _manifests_of_changes(reader, documents)
    return {
        metadata.changelog_path(document["id"]): metadata.emit_snapshot({**document, metadata.MANIFESTS: names})
        for document, names in zip(documents, manifests, strict=True)
    }


def _list_of_changes(document: Mapping[str, Any]) -> str:
    return "deltaManifestList" if _changes_in_data_files(document) else "changelogManifestList"


def _names(reader: Reader, documents: Iterable[Mapping[str, Any]], missing_ok: bool = False) -> set[str]:
    """Names of all metadata files that the documents reach: lists, manifests, index and statistics files."""
    documents = list(documents)
    names: set[str] = set()
    for key in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
        names |= {name for group in _listed(reader, documents, key, missing_ok) for name in group}
        names |= {document[key] for document in documents if document.get(key)}
    names |= {document["statistics"] for document in documents if document.get("statistics")}
    indexes = {document["indexManifest"] for document in documents if document.get("indexManifest")}
    return names | indexes | {name for index in indexes for name in _index_names(reader, index, missing_ok)}


def _listed(
    reader: Reader, documents: Iterable[Mapping[str, Any]], key: str, missing_ok: bool = False
) -> list[list[str]]:
    """The names of the manifests in a list of each document; empty for a document without such a list. A remaining
    snapshot must have its list, but an interrupted expiry may have deleted that of an expired one (`missing_ok`)."""
    return _manifests_in(reader, [document.get(key) for document in documents], missing_ok)


def _manifests_in(reader: Reader, lists: Sequence[str | None], missing_ok: bool) -> list[list[str]]:
    there = list(dict.fromkeys(name for name in lists if name))
    tables = dict(zip(there, manifest.read_lists(reader, there, missing_ok), strict=True))
    return [tables[name]["_FILE_NAME"].to_pylist() if name else [] for name in lists]


def _index_names(reader: Reader, name: str, missing_ok: bool) -> set[str]:
    path = f"{MANIFEST_FOLDER}/{name}"
    try:
        return set(manifest.parse_index(reader.read(path), f"{reader.root}/{path}")["_FILE_NAME"].to_pylist())
    except NoSuchFile:
        if not missing_ok:
            raise
        return set()


def _metadata_waves(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of metadata files: lists after manifests, so that after an interruption the rest can still be found."""

    def path(name: str) -> str:
        if name.startswith(("manifest-", "index-manifest-")):
            return f"{MANIFEST_FOLDER}/{name}"
        return f"{STATISTICS_FOLDER if name.startswith('stat') else INDEX_FOLDER}/{name}"

    paths = sorted(map(path, names))
    lists = {path for path in paths if "/manifest-list-" in path}
    return tuple(path for path in paths if path not in lists), tuple(sorted(lists))


def _branch_documents(reader: Reader) -> list[dict[str, Any]]:
    """The snapshots and tags of the other branches."""
    documents: list[dict[str, Any]] = []
    for folder in metadata.branches(reader):
        documents += _tags(reader, folder).values()
        documents += _documents(reader, f"{folder}{metadata.SNAPSHOT_FOLDER}/snapshot-")
    return documents


def _documents(
    reader: Reader, prefix: str, parse: Callable[[bytes, str], dict[str, Any]] = metadata.parse_snapshot
) -> list[dict[str, Any]]:
    paths = [f.path for f in reader.list(prefix.rsplit("/", 1)[0]) if f.path.startswith(prefix)]
    paths = [p for p in paths if p[len(prefix) :].isdecimal()]
    read = zip(paths, reader.read_many(paths), strict=True)
    return [parse(data, f"{reader.root}/{path}") for path, data in read if data is not None]


def _used(reader: Reader, folder: str, missing_ok: bool = False) -> set[str]:
    """Names of all files that a branch's snapshots, tags and changelogs reach; of data files elsewhere in the table's
    folder also their paths."""
    documents = [
        *_tags(reader, folder).values(),  # Before the snapshots: see `expiry`.
        *_documents(reader, f"{folder}{metadata.SNAPSHOT_FOLDER}/snapshot-"),
    ]
    logs = _documents(reader, f"{folder}{metadata.CHANGELOG_FOLDER}/changelog-", metadata.parse_changelog)
    try:
        names = _names(reader, documents, missing_ok) | _names_of_changes(reader, logs, missing_ok)
        manifests = [n for n in names if n.startswith("manifest-") and not n.startswith("manifest-list-")]
        for table in manifest.read_entries(reader, manifests, missing_ok):
            names |= set(table["_FILE_NAME"].to_pylist())
            names |= {name for extra in table["_EXTRA_FILES"].to_pylist() for name in extra or ()}
            elsewhere = (relative(reader.root, path) for path in table["_EXTERNAL_PATH"].drop_null().to_pylist())
            names |= {path for path in elsewhere if path}
    except NoSuchFile as error:
        raise CorruptTable(f"{reader.root}: {error}; orphans cannot be distinguished from files in use") from error
    return names


def _is_ours(path: str) -> bool:
    """Whether a file has a folder and name that engines use; no others may be deleted."""
    folder, _, name = path.rpartition("/")
    if _TEMPORARY_NAME.fullmatch(name):
        return True
    top = folder.split("/", 1)[0]
    if top in {MANIFEST_FOLDER, INDEX_FOLDER, STATISTICS_FOLDER}:
        return bool(_METADATA_NAME.fullmatch(name))
    if top in {metadata.SCHEMA_FOLDER, metadata.SNAPSHOT_FOLDER, metadata.TAG_FOLDER, metadata.CONSUMER_FOLDER,
               metadata.CHANGELOG_FOLDER, metadata.BRANCH_FOLDER}:  # fmt: skip
        return False
    return folder.rsplit("/", 1)[-1].startswith("bucket-") and bool(_DATA_NAME.fullmatch(name))


def _is_own(path: str, used: Set[str]) -> bool:
    """Whether a file has a folder and name that engines use for any file of a table, or is among those `used`."""
    folder, _, name = path.rpartition("/")
    if folder.startswith(f"{metadata.BRANCH_FOLDER}/"):  # A branch has the same folders as the table.
        folder = folder.split("/", 2)[2] if folder.count("/") > 1 else ""
    if name.startswith(".") and name.endswith(".crc"):  # Hadoop writes one beside each local file.
        return _is_own(f"{folder}/{name[1:-4]}", used)
    if _TEMPORARY_NAME.fullmatch(name):
        return True
    top, last = folder.split("/", 1)[0], folder.rsplit("/", 1)[-1]
    if top in _ROOT_NAMES:
        return bool(_ROOT_NAMES[top].fullmatch(name))
    if top in {MANIFEST_FOLDER, INDEX_FOLDER, STATISTICS_FOLDER}:
        return bool(_METADATA_NAME.fullmatch(name)) or name in used
    if last.startswith("bucket-"):
        return bool(_DATA_NAME.fullmatch(name)) or name in used
    return path in used or (name == "_SUCCESS" and "=" in last)  # A partition that is marked as done.


def _tables_below(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(folder for folder in tables_below(paths) if not folder.startswith(f"{metadata.BRANCH_FOLDER}/"))
