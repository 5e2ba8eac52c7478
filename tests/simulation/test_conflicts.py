"""Any two verbs at once, on tables of every kind: it is as if one had come after the other, or the one that is refused leaves
nothing."""

import datetime
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, Conflict, InvalidInput, LakeError, NotFound, OutsideScope
from lakeformat.dialects.dialect import Format
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.paimon import manifest, scan
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.model import evolution
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.draw import some

PLAIN = Schema(
    fields=(
        Field(0, "id", scalar(Kind.BIGINT)),
        Field(1, "n", scalar(Kind.BIGINT)),
        Field(2, "dt", scalar(Kind.STRING)),
    ),
    partitioning=identity("dt"),
    properties={"manifest.merge-min-count": "2", "compaction.min.file-num": "2"},
)
KEYED = replace(
    PLAIN,
    fields=tuple(replace(f, nullable=f.name == "n") for f in PLAIN.fields),
    primary_key=("id", "dt"),
    properties=PLAIN.properties | {"num-sorted-run.compaction-trigger": "2", "compaction.file-size": "1 b"},
)
GROWS = {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}
MARKS = {"deletion-vectors.enabled": "true"}
QUIET = {"write-only": "true"}
APART = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
MERGES = {"branch-merge.enabled": "true"}
SHOWN = {"metadata.iceberg.storage": "table-location"}


def having(schema: Schema, *more: dict[str, str]) -> Schema:
    for properties in more:
        schema = replace(schema, properties=schema.properties | properties)
    return schema


TABLES = {
    "rows": PLAIN,
    "rows with vectors": having(PLAIN, MARKS),
    "buckets with vectors": having(PLAIN, MARKS, {"bucket": "2", "bucket-key": "id"}),
    "columns in files of their own": having(PLAIN, MARKS, APART),
    "rows shown as Iceberg": having(PLAIN, SHOWN),
    "rows of branches that are merged": having(PLAIN, MERGES),
    "keys": having(KEYED, {"bucket": "2"}, QUIET),
    "keys in buckets that grow": having(KEYED, GROWS, QUIET),
    "keys that change partitions": having(
        replace(KEYED, fields=tuple(replace(f, nullable=f.name != "id") for f in PLAIN.fields), primary_key=("id",)),
        GROWS,
        QUIET,
    ),
    "keys with vectors": having(KEYED, {"bucket": "2"}, MARKS),
    "keys looked up": having(KEYED, {"bucket": "2", "changelog-producer": "lookup"}),
}
VERSION_2 = replace(PLAIN, properties={"format-version": "2", "commit.manifest.min-count-to-merge": "2"})
ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
ICEBERG = {
    "copies on write": VERSION_2,
    "merges on read": having(VERSION_2, ON_READ),
    "vectors of version 3": having(VERSION_2, ON_READ, {"format-version": "3"}),
}
FORMATS: dict[str, tuple[Format, dict[str, Schema]]] = {"paimon": (Paimon(), TABLES), "iceberg": (Iceberg(), ICEBERG)}
DIALECTS = {kind: dialect for dialect, kinds in FORMATS.values() for kind in kinds}
SCHEMAS = TABLES | ICEBERG
ROOTS = ("snapshot/", "metadata/v", "branch/branch-ahead/snapshot/")  # Creating one publishes a snapshot.
DAY_MS = 86_400_000
ORPHANS = {
    "paimon": "dt=a/bucket-0/data-00000000-0000-0000-0000-000000000000-0.parquet",
    "iceberg": "data/dt=a/00000-0-00000000-0000-0000-0000-000000000000-0.parquet",
}


def table_of(kind: str, store: Any) -> Table:
    return Table("t", store, DIALECTS[kind])


def orphan(kind: str) -> str:
    return ORPHANS["paimon" if kind in TABLES else "iceberg"]


def rows(*ids: int, n: int = 0, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64()), "dt": [dt] * len(ids)})


def rescale(table: Table, who: int) -> None:
    seen = table.current_snapshot()
    assert seen is not None
    held = table.scan().to_arrow()
    table.alter().set_properties({"bucket": f"{int(table.properties['bucket']) + 1}"}).commit()
    table.overwrite(held, pinned_to=seen.id)


def index(table: Table, who: int) -> None:
    given = {"file-index.bloom-filter.columns": "n", "file-index.bloom-filter.n.items": "9"}
    table.evolve([evolution.SetProperties(given | {"file-index.in-manifest-threshold": "1 b"})], id="indexed")
    table.rewrite_file_index()


def merge(table: Table, who: int) -> None:
    clauses = table.merge_into(rows(1, 4, 30, n=100), "t.id = s.id and t.dt = s.dt").when_matched("t.id = 4").delete()
    clauses.when_matched().update({"n": "t.n + s.n"}).when_not_matched().insert_all().merge()


# `who` is 1 or 2: whose rows they are.
VERBS: dict[str, Callable[[Table, int], object]] = {
    "append": lambda t, who: t.append(rows(10 + who)),
    "upsert": lambda t, who: t.append(pa.concat_tables([rows(1, 60, n=who), rows(5, n=who, dt="b")])),
    "delete": lambda t, who: t.delete("id in (1, 4)"),
    "update": lambda t, who: t.update({"n": "n + 1"}, "id < 5"),
    "merge": merge,
    "dynamic overwrite": lambda t, who: t.overwrite_partitions(rows(50, n=who)),
    "static overwrite": lambda t, who: t.overwrite(rows(52, n=who, dt="b"), {"dt": "b"}),
    "overwrite by row": lambda t, who: t.overwrite(rows(2, n=10 * who), where="id = 2"),
    "truncate": lambda t, who: t.truncate(),
    "drop partitions": lambda t, who: t.drop_partitions([{"dt": "a"}]),
    "compact": lambda t, who: t.compact(),
    "compact all": lambda t, who: t.compact(full=True),
    "rescale": rescale,
    "evolve": lambda t, who: t.evolve([evolution.AddColumn(f"x{who}", "int")]),
    "roll back": lambda t, who: t.rollback_to(tag="old"),
    "expire": lambda t, who: t.expire_snapshots(retain_last=1),
    "create tag": lambda t, who: t.create_tag(f"new{who}"),
    "delete tag": lambda t, who: t.delete_tag("old"),
    "remove orphans": lambda t, who: t.remove_orphan_files(),
    "rewrite manifests": lambda t, who: t.rewrite_manifests(),
    "sort manifests": lambda t, who: t.rewrite_manifests(sort_by=True, full=True),
    "index files": index,
    "create a global index": lambda t, who: t.create_global_index("n"),
    "drop a global index": lambda t, who: t.drop_global_index("n"),
    "append to a branch": lambda t, who: t.branch("ahead").append(rows(70 + who)),
    "create branch": lambda t, who: t.create_branch(f"new{who}"),
    "delete branch": lambda t, who: t.delete_branch("ahead"),
    "merge branch": lambda t, who: t.merge_branch("ahead"),
    "rename branch": lambda t, who: t.rename_branch("ahead", f"renamed{who}"),
    "fast forward": lambda t, who: t.fast_forward("ahead"),
}
BRANCHING = {verb for verb in VERBS if verb.endswith(("branch", "forward"))}
REFUSALS = (Conflict, InvalidInput, NotFound, AlreadyExists, OutsideScope)


def verbs_of(kind: str) -> list[str]:
    has_buckets = SCHEMAS[kind].properties.get("bucket", "-1") != "-1"
    by_row = not APART.items() <= SCHEMAS[kind].properties.items()  # Where rows leave their files.
    own = {"rescale": has_buckets, "rewrite manifests": kind in ICEBERG, "overwrite by row": by_row}
    own |= {"index files": kind in TABLES and not APART.items() <= SCHEMAS[kind].properties.items()}
    own |= dict.fromkeys(
        ("create a global index", "drop a global index"), APART.items() <= SCHEMAS[kind].properties.items()
    )
    own |= {"sort manifests": kind in TABLES, "rename branch": kind in TABLES}
    if MERGES.items() <= SCHEMAS[kind].properties.items():
        return [
            "append",
            "evolve",
            "roll back",
            "expire",
            "create tag",
            "delete tag",
            "remove orphans",
            *BRANCHING,
            "merge branch",
        ]
    return [verb for verb in VERBS if own.get(verb, verb != "merge branch")]


class Meanwhile:
    """A store in which something else happens right before the first change (`moment` 0), or before the first, second, ...
    snapshot is published."""

    CHANGES = ("write", "write_many", "create", "create_stream", "delete")

    def __init__(self, store: MemoryFiles, moment: int = -1, act: Callable[[], None] | None = None) -> None:
        self._store, self._moment, self._act = store, moment, act
        self.moments = 0  # How many have come.

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **how: Any) -> Any:
            publishes = name == "create" and arguments[0].startswith(ROOTS)
            if (self.moments == 0 and name in self.CHANGES) or publishes:
                self.moments += 1
                if self._act and self.moments - 1 == self._moment:
                    self._act()
            return found(*arguments, **how)

        return call


@cache
def _files(kind: str) -> dict[str, bytes]:
    """Of a table with files on several levels, deleted rows, a tag that is not the newest snapshot, a branch that is ahead, and an
    orphan."""
    store = MemoryFiles()
    table = table_of(kind, store)
    create(table, SCHEMAS[kind])
    table.append(pa.concat_tables([rows(1, 2, 3), rows(5, 6, dt="b")]))
    table.append(rows(4))
    table.create_tag("old")
    table.append(rows(7, 8))
    if not MERGES.items() <= SCHEMAS[kind].properties.items():
        table.update({"n": "n + 5"}, "id < 4")
        table.compact(full=True)
        table.delete("id = 7")
    table.append(pa.concat_tables([rows(9), rows(10, dt="b")]))
    table.create_branch("ahead").append(rows(11))
    store.write(orphan(kind), b"x")
    return {file.path: store.read(file.path) for file in store.list("")}


def made(kind: str) -> MemoryFiles:
    now_ms = time.time_ns() // 1_000_000
    ages = iter([now_ms - 2 * DAY_MS] * len(_files(kind)))
    store = MemoryFiles(now_ms=lambda: next(ages, now_ms))
    for path, data in _files(kind).items():
        store.write(path, data)
    return store


def asked(kind: str, verb: str, store: Any, who: int) -> LakeError | None:
    try:
        VERBS[verb](table_of(kind, store), who)
    except LakeError as error:
        return error
    return None


def content(table: Table, **version: Any) -> list[tuple[Any, ...]]:
    found = table.scan(["id", "n", "dt"], **version).to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def tags_of(table: Table) -> list[str]:
    tags = table.inspect.tags()
    return sorted(tags[tags.column_names[0]].to_pylist())


def state(kind: str, store: MemoryFiles) -> tuple[Any, ...]:
    table = table_of(kind, store)
    tags = tags_of(table)
    names = sorted(table.inspect.branches()["branch_name"].to_pylist())
    branches = {name: content(table.branch(name)) for name in names if name != "main"}
    return content(table), sorted(table.schema.names), tags, branches


@cache
def in_turn(kind: str, *verbs: tuple[str, int]) -> tuple[Any, ...]:
    store = made(kind)
    for verb, who in verbs:
        asked(kind, verb, store, who)
    return state(kind, store)


@cache
def moments(kind: str, verb: str) -> int:
    store = Meanwhile(made(kind))
    asked(kind, verb, store, 1)
    return store.moments


def check_whole(kind: str, store: MemoryFiles, rows: list[tuple[Any, ...]]) -> None:
    """What the metadata counts is there, and so is each tag, and what another format shows of the `rows` that the table has; see
    the format's own for the rest."""
    table = table_of(kind, store)
    assert table.scan().count() == len(rows)
    (check_levels if kind in TABLES else check_deletes)(table, rows)
    for tag in tags_of(table):
        content(table, tag=tag)
    if SHOWN.items() <= SCHEMAS[kind].properties.items():
        assert content(Table("i", store, Iceberg())) == rows


def check_levels(table: Table, rows: list[tuple[Any, ...]]) -> None:
    """Keys are there once, on each level above 0 of a bucket too; vectors speak of files that are there; all is counted."""
    base = doors.view(table)
    entries, document = base.files().entries, base.state.document or {}
    assert document.get("totalRecordCount", 0) == sum(table.inspect.files()["row_count"].to_pylist())
    marked = manifest.vectors(manifest.read_index(base.reader, base.state.document))["of"].to_pylist()
    assert len(set(marked)) == len(marked)
    assert set(marked) <= set(entries["_FILE_NAME"].to_pylist())
    if table.schema.primary_key and len(entries):
        keys = [(id, dt) if "dt" in table.schema.primary_key else id for id, _, dt in rows]
        assert len(set(keys)) == len(keys)
        low, high = scan.key_ranks(entries, table.schema)
        places = zip(manifest.bucket_codes(entries).tolist(), entries["_LEVEL"].to_pylist(), low, high, strict=True)
        above = sorted(place for place in places if place[1])
        assert not [
            pair for pair in itertools.pairwise(above) if pair[0][:2] == pair[1][:2] and pair[0][3] >= pair[1][2]
        ]


def check_deletes(table: Table, rows: list[tuple[Any, ...]]) -> None:
    """The summary counts the live files; of each data file there is at most one vector, and what it is of is live."""
    files, deletes = table.inspect.files(), table.inspect.delete_files()
    live = files["path"].to_pylist()
    assert len(set(live)) == len(live)
    now, found = table.current_snapshot(), table.inspect.snapshots()
    for id, summary in zip(found["snapshot_id"].to_pylist(), found["summary"].to_pylist(), strict=True):
        assert now is None or id != now.id or int(dict(summary)["total-data-files"]) == len(live)
    marked = [path for path in deletes["referenced_data_file"].to_pylist() if path is not None]
    if table.schema.properties.get("format-version") == "3":
        assert len(set(marked)) == len(marked)
        assert set(marked) <= set(live)


def race(kind: str, verb: str, other: str, moment: int) -> None:
    store, theirs = made(kind), list[LakeError | None]()
    refused = asked(kind, verb, Meanwhile(store, moment, lambda: theirs.append(asked(kind, other, store, 2))), 1)
    where = f"{verb!r} is told {refused!r}; {other!r}, at moment {moment}, {theirs!r}"
    assert theirs, where
    assert refused is None or isinstance(refused, REFUSALS), where
    after, orders = state(kind, store), [((other, 2), (verb, 1)), ((verb, 1), (other, 2))]
    if refused is not None and theirs[0] is None:
        orders = [((other, 2),)]
    elif theirs[0] is not None:
        orders += [((verb, 1),)]
    assert any(after == in_turn(kind, *order) for order in orders), where
    check_whole(kind, store, after[0])
    table = table_of(kind, store)
    if not {"roll back", "delete tag", "delete branch", "rename branch"} & {
        verb,
        other,
    }:  # Which leave files to the sweep.
        ours = {file.path for file in doors.view(table).expiring.orphans(2**62)} - {orphan(kind)}
        assert not ours, where
    if moment % 2 == 0:
        table.expire_snapshots(retain_last=1)
        table.remove_orphan_files(datetime.timedelta(days=-1))
        assert state(kind, store) == after, where
        check_whole(kind, store, after[0])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("verb", VERBS)
def test_two_at_once(verb: str, format: str) -> None:
    """Each verb, and another one within it, on one kind of tables; `make test-long` takes all."""
    kinds = [kind for kind in FORMATS[format][1] if verb in verbs_of(kind)]
    for kind in some(kinds, 1, format, verb):
        for other in some(verbs_of(kind), 1, kind, verb) if moments(kind, verb) else []:
            one, two = list(VERBS).index(verb), list(VERBS).index(other)
            race(kind, verb, other, (one * 3 + two) % moments(kind, verb))


@pytest.mark.parametrize(
    ("kind", "verb", "other", "moment"),
    [
        ("keys", "rescale", "roll back", 1),  # Whose delta is empty.
        ("keys", "update", "roll back", 0),
        ("keys with vectors", "merge", "rescale", 2),  # The rows merged are written, and nobody sees them yet.
        ("rows", "fast forward", "rename branch", 0),  # Gone once its snapshots are the table's.
        ("rows", "fast forward", "delete branch", 0),
        ("keys with vectors", "overwrite by row", "upsert", 2),  # Its compaction marks rows of one file part by part.
    ],
)
def test_what_went_wrong_once(kind: str, verb: str, other: str, moment: int) -> None:
    assert moment < moments(kind, verb)
    race(kind, verb, other, moment)
