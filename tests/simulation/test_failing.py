"""Every verb, with its n-th storage call failing, for every n: the table is as before or as after, and asking again ends it."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import AlreadyExists, CommitError, InvalidInput, LakeError, NotFound, OutsideScope, StoreError
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.dialects.paimon.metadata import PIN
from lakeformat.engines.exchange.layout import layout
from lakeformat.model import evolution
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.session_table import SessionFiles
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.warehouse import adopting
from lakeformat.warehouse.creating import create_by
from lakeformat.warehouse.loading import load
from tests import doors
from tests.draw import IS_LONG, ends_and_some, some
from tests.simulation.failing import AT_ONCE, NthCallFails, Remembered, fail_each_call, faults, holding

dialect = Paimon()
judge = Paimon()  # Reads what is stored, where a writer's own cache holds what it wrote.

SCHEMA = Schema(
    fields=(
        Field(0, "id", scalar(Kind.BIGINT)),
        Field(1, "v", scalar(Kind.STRING)),
        Field(2, "dt", scalar(Kind.STRING)),
    ),
    partitioning=identity("dt"),
    properties={"manifest.merge-min-count": "2", "compaction.min.file-num": "2"},
)
KEYED = replace(
    SCHEMA,
    fields=tuple(replace(f, nullable=f.name == "v") for f in SCHEMA.fields),
    primary_key=("id", "dt"),
    properties=SCHEMA.properties | {"bucket": "1", "num-levels": "3", "write-only": "true"},
)
MARKED = replace(SCHEMA, properties=SCHEMA.properties | {"deletion-vectors.enabled": "true"})
MARKED_BUCKETS = replace(MARKED, properties=MARKED.properties | {"bucket": "1", "bucket-key": "id"})
KEYED_MARKED = replace(KEYED, properties=KEYED.properties | {"deletion-vectors.enabled": "true"})
LOOKING = replace(KEYED, properties=KEYED.properties | {"num-levels": "6", "changelog-producer": "lookup"})
LIFTING = replace(KEYED, properties=KEYED.properties | {"compaction.file-size": "1 b"})
TOLD = replace(
    KEYED,
    properties=KEYED.properties
    | {"changelog-producer": "input", "snapshot.num-retained.min": "1", "changelog.num-retained.min": "9"},
)
GROWING = replace(KEYED, properties=KEYED.properties | {"bucket": "-1", "dynamic-bucket.target-row-num": "2"})
CROSSING = replace(
    KEYED,
    fields=tuple(replace(f, nullable=f.name != "id") for f in SCHEMA.fields),
    primary_key=("id",),
    properties=GROWING.properties,
)
EVOLVING = replace(
    MARKED, properties=MARKED.properties | {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
)
BLOBS = replace(
    EVOLVING,
    fields=(*SCHEMA.fields, Field(-1, "b", scalar(Kind.BYTES))),
    properties=EVOLVING.properties | {"blob-field": "b", "blob.target-file-size": "1 b"},
)
MERGING = replace(SCHEMA, properties={**SCHEMA.properties, "branch-merge.enabled": "true"})
WAITING = replace(KEYED, properties=KEYED.properties | {"bucket": "-2", "deletion-vectors.enabled": "true"})
INDEXED = replace(
    SCHEMA,
    properties=SCHEMA.properties
    | {
        "file-index.bloom-filter.columns": "v",
        "file-index.bloom-filter.v.items": "9",
        "file-index.in-manifest-threshold": "1 b",
    },
)
TABLES = (
    SCHEMA,
    KEYED,
    GROWING,
    MARKED,
    MARKED_BUCKETS,
    KEYED_MARKED,
    CROSSING,
    LOOKING,
    LIFTING,
    TOLD,
    EVOLVING,
    BLOBS,
    WAITING,
    INDEXED,
)


def rows(*ids: int, dt: str = "a", v: str = "v") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids), "dt": [dt] * len(ids)})


def blobs(*ids: int, dt: str = "a") -> pa.Table:
    return rows(*ids, dt=dt).append_column("b", [[b"%d" % id for id in ids]])


VERBS: dict[str, Callable[[Table], object]] = {
    "append": lambda t: t.append(rows(10, 11, dt="c"), id="op"),
    "dynamic overwrite": lambda t: t.overwrite_partitions(rows(10, dt="a"), id="op"),
    "declared overwrite": lambda t: t.overwrite_partitions(rows(10), [{"dt": "a"}, {"dt": "b"}], id="op"),
    "static overwrite": lambda t: t.overwrite(rows(10, dt="b"), {"dt": "b"}, id="op"),
    "overwrite by row": lambda t: t.overwrite(rows(2, v="new"), where="id = 2", id="op"),
    "truncate": lambda t: t.truncate(id="op"),
    "drop partitions": lambda t: t.drop_partitions([{"dt": "a"}], id="op"),
    "delete": lambda t: t.delete("id in (1, 4)", id="op"),
    "update": lambda t: t.update({"v": "'new'"}, "id > 2", id="op"),
    "merge": lambda t: (
        t.merge_into(rows(1, 4, 20, v="new"), "t.id = s.id")
        .when_matched("t.id = 4")
        .delete()
        .when_matched()
        .update_all()
        .when_not_matched()
        .insert_all()
        .merge(id="op")
    ),
    "compact": lambda t: t.compact(full=True, id="op"),
    "sort": lambda t: t.compact(sort_by=["v", "id"], id="op"),
    "rollback": lambda t: t.rollback_to(snapshot_id=2, id="op"),
    "evolve": lambda t: t.evolve([evolution.AddColumn("x", "int")], id="op"),
    "expire snapshots": lambda t: t.expire_snapshots(retain_last=1),
    "create tag": lambda t: once(lambda: t.create_tag("new"), AlreadyExists),
    "delete tag": lambda t: once(lambda: t.delete_tag("old"), NotFound),
    "remove orphans": lambda t: t.remove_orphan_files(older_than=AT_ONCE),
}


def rescale(table: Table) -> None:
    table.evolve([evolution.SetProperties({"bucket": "2"})], id="wider")
    table.overwrite(table.scan().to_arrow(), id="op")


def index(table: Table) -> None:
    given = {key: value for key, value in INDEXED.properties.items() if key.startswith("file-index.")}
    table.evolve([evolution.SetProperties(given)], id="indexed")
    table.rewrite_file_index(id="op")


# What a table with a primary key does otherwise.
KEYED_VERBS = {
    "upsert": lambda t: t.upsert(rows(1, 10, v="new"), id="op"),
    **{name: VERBS[name] for name in ("dynamic overwrite", "truncate", "delete", "update", "compact", "rollback")},
    "expire snapshots": VERBS["expire snapshots"],
    "remove orphans": VERBS["remove orphans"],
}
# What index files take part in.
MARKED_VERBS = {
    "drop partitions",
    "delete",
    "update",
    "merge",
    "compact",
    "rollback",
    "expire snapshots",
    "remove orphans",
}
CASES = [(name, SCHEMA, verb) for name, verb in VERBS.items()]
CASES += [(f"marked {name}", MARKED, VERBS[name]) for name in VERBS if name in MARKED_VERBS]
CASES += [(f"marked in a bucket {name}", MARKED_BUCKETS, VERBS[name]) for name in ("delete", "merge", "compact")]
CASES += [
    (f"keyed and marked {n}", KEYED_MARKED, KEYED_VERBS[n])
    for n in ("upsert", "delete", "compact", "truncate", "rollback", "expire snapshots", "remove orphans")
]
CASES += [
    ("looking up compact", LOOKING, lambda t: t.compact(id="op")),
    ("lifting compact", LIFTING, VERBS["compact"]),
    ("keyed rescale", KEYED, rescale),
    *((f"indexed {name}", INDEXED, VERBS[name]) for name in ("update", "compact", "expire snapshots")),
    ("waiting compact", WAITING, VERBS["compact"]),
    ("waiting upsert", WAITING, KEYED_VERBS["upsert"]),
    ("waiting expire snapshots", WAITING, VERBS["expire snapshots"]),
    ("keyed expire snapshots that leave changelogs", TOLD, VERBS["expire snapshots"]),
]
CASES += [
    ("evolving merge", EVOLVING, lambda t: (
        t.merge_into(rows(1, 4, 20, v="new"), "t.id = s.id")
        .when_matched("t.id = 1").delete().when_matched().update({"v": "s.v"}).when_not_matched().insert_all().merge(id="op")
    )),
    *((f"evolving {name}", EVOLVING, VERBS[name]) for name in ("update", "compact", "expire snapshots", "remove orphans")),
    ("blobs append", BLOBS, lambda t: t.append(blobs(20, 21, dt="c"), id="op")),
    ("blobs of an update", BLOBS, lambda t: t.update({"b": "X'00'"}, "id in (2, 14)", id="op")),
    *((f"blobs {name}", BLOBS, VERBS[name]) for name in ("delete", "compact", "drop partitions", "expire snapshots")),
]  # fmt: skip
CASES += [(f"growing {name}", GROWING, KEYED_VERBS[name]) for name in ("upsert", "dynamic overwrite", "remove orphans")]
CASES += [
    ("crossing upsert", CROSSING, lambda t: t.upsert(pa.concat_tables([rows(1, dt="b"), rows(2, 20)]), id="op")),
    ("crossing static overwrite", CROSSING, lambda t: t.overwrite(rows(1, 10, dt="b"), {"dt": "b"}, id="op")),
    ("crossing overwrite by row", CROSSING, lambda t: t.overwrite(rows(2, dt="c"), where="id < 3", id="op")),
]
CASES += [(f"keyed {name}", KEYED, verb) for name, verb in KEYED_VERBS.items()]
CASES += [("sort manifests", SCHEMA, lambda t: t.rewrite_manifests(sort_by=True, full=True, id="op"))]
CASES += [
    ("create a global index", EVOLVING, lambda t: t.create_global_index("v", id="op")),
    ("create and drop a global index", EVOLVING, lambda t: (
        t.create_global_index("v", id="made"), t.drop_global_index("v", where="dt = 'a'", id="op"),
    )),
]  # fmt: skip
CASES += [("index files", SCHEMA, index), ("marked index files", MARKED, index), ("keyed index files", KEYED, index)]


def once(verb: Callable[[], object], done: type[LakeError]) -> None:
    with suppress(done):
        verb()


def before(schema: Schema) -> dict[str, bytes]:
    return _before(TABLES.index(schema))


@cache
def _before(which: int) -> dict[str, bytes]:
    """The files of a table with five snapshots, a tag, and some orphans; where rows are marked, with two snapshots more."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    schema = TABLES[which]
    create(table, schema)
    table.append(rows(1, 2))
    table.append(pa.concat_tables([rows(3), rows(4, 5, dt="b")]))
    table.create_tag("old")
    table.overwrite_partitions(rows(6, dt="b"))
    table.append(rows(7, 8))
    table.append(rows(9))
    if schema is WAITING:
        table.compact()
        table.append(rows(1, 13, v="later"))
    elif "deletion-vectors.enabled" in schema.properties:
        table.delete("id in (2, 8)")
        table.append(rows(10, 11, 12))
    if schema is BLOBS:
        table.append(blobs(14, 15))
    if schema in (EVOLVING, BLOBS):
        table.update({"v": "concat(v, id)"}, where="id in (1, 6)")
    if schema is LOOKING:
        table.compact(full=True)
        table.append(rows(1, 13, v="later"))
    orphan = "00000000-0000-0000-0000-000000000000-0"
    store.write(f"dt=a/bucket-0/data-{orphan}.parquet", b"x")
    store.write(f"manifest/manifest-{orphan}", b"x")
    return {listed.path: store.read(listed.path) for listed in store.list("")}


def state(store: MemoryFiles, remembered: Remembered) -> dict[str, Any]:
    """What users see: rows now, of each earlier snapshot and each tag."""
    table = Table("t", store, judge)
    seen: dict[str, Any] = {"now": content(table), "columns": table.schema.names}
    versions: list[tuple[dict[str, Any], str | None]] = [
        ({"snapshot_id": snapshot.id}, f"snapshot/snapshot-{snapshot.id}") for snapshot in table.snapshots()[:-1]
    ]
    versions += [({"tag": tag}, None) for tag in table.inspect.tags()["tag_name"].to_pylist()]
    for version, snapshot in versions:
        seen[str(version)] = remembered(
            str(version),
            store,
            lambda files, version=version: content(Table("t", files, judge), **version),
            snapshot,
        )
    return seen


def content(table: Table, **version: Any) -> list[tuple[Any, ...]]:
    columns = [name for name in ("id", "v", "dt", "b") if name in table.schema.names]
    found = table.scan(columns, **version).to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def swept(store: MemoryFiles) -> Counter[str]:
    """How many files there are of each kind, but for hints and the tags that keep a snapshot for an hour at most, once nothing
    is left that nobody names."""
    Table("t", store, judge).remove_orphan_files(older_than=AT_ONCE)
    paths = [listed.path for listed in store.list("") if not listed.path.endswith(("/EARLIEST", "/LATEST"))]
    paths = [path for path in paths if f"/tag-{PIN}" not in f"/{path}"]
    return Counter(re.sub(r"[0-9a-f]{8}(-[0-9a-f]+)+", "*", path) for path in paths)


AGAIN = [case for case in range(len(CASES)) if CASES[case][2] in [verb for _, _, verb in CASES[:case]]]
DRAWN = {*range(len(CASES))} - {*AGAIN} | {*some(AGAIN, 20, "verbs in other tables")}
# Either way comes in turn, but in `make test-long`.
TURNS = [(case, after) for case in sorted(DRAWN) for after in (False, True) if IS_LONG or case % 2 == after]


@pytest.mark.parametrize(
    ("case", "after"), TURNS, ids=[f"{CASES[n][0]} {'answer lost' if after else 'refused'}" for n, after in TURNS]
)
def test_the_nth_call_fails(case: int, after: bool):
    _, schema, verb = CASES[case]
    remembered = Remembered()

    def whole(table: Table) -> object:
        asked = [snapshot.operation_id for snapshot in table.snapshots()]
        return asked.count("op"), swept(doors.store(table)), state(doors.store(table), remembered)

    fail_each_call(before(schema), dialect, verb, content, whole, after)


BRANCHING: dict[str, Callable[[Table], object]] = {
    "create": lambda t: once(lambda: t.create_branch("new"), AlreadyExists),
    "create at a tag": lambda t: once(lambda: t.create_branch("new", tag="v1"), AlreadyExists),
    "create empty": lambda t: once(lambda: t.create_branch("new", 0), AlreadyExists),
    "delete": lambda t: once(lambda: t.delete_branch("b"), NotFound),
    "fast-forward": lambda t: t.fast_forward("b"),
    "append": lambda t: t.branch("b").append(rows(10), id="op"),
    "expire": lambda t: t.branch("old").expire_snapshots(retain_last=1),
    "remove orphans": lambda t: t.branch("b").remove_orphan_files(older_than=AT_ONCE),
}


@cache
def with_branches() -> dict[str, bytes]:
    """The files of a table with a branch one snapshot ahead, one two ahead, and one that it has left."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, SCHEMA)
    table.append(rows(1))
    table.create_tag("v1")
    table.create_branch("old").append(rows(9))
    table.append(rows(2))
    table.evolve([evolution.AddColumn("w", "int")])
    ahead = [table.create_branch(name) for name in "bc"]
    for id, branch in zip((3, 4), ahead, strict=True):
        branch.append(rows(id))
    ahead[0].create_tag("v2")
    ahead[1].overwrite(rows(5, dt="b"))
    return {listed.path: store.read(listed.path) for listed in store.list("")}


def on_branches(table: Table) -> dict[str, Any]:
    """What users see of each branch: its rows now, and its columns."""
    names = [*table.inspect.branches()["branch_name"].to_pylist(), "main"]
    return {name: (content(table.branch(name)), table.branch(name).schema.names) for name in names}


def _folder(branch: str) -> str:
    return "" if branch == "main" else f"branch/branch-{branch}/"


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("verb", BRANCHING)
def test_the_nth_call_fails_on_branches(verb: str, after: bool):
    remembered = Remembered()

    def whole(table: Table) -> object:
        found = on_branches(table)
        tags = {name: table.branch(name).inspect.tags()["tag_name"].to_pylist() for name in found}
        versions = {
            (name, snapshot.id): remembered(
                (name, snapshot.id),
                doors.store(table),
                lambda files, name=name, id=snapshot.id: content(Table("t", files, judge).branch(name), snapshot_id=id),
                f"{_folder(name)}snapshot/snapshot-{snapshot.id}",
            )
            for name in found
            for snapshot in table.branch(name).snapshots()
        }
        return found, tags, versions, swept(doors.store(table))

    fail_each_call(with_branches(), dialect, BRANCHING[verb], on_branches, whole, after)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_a_fast_forward_that_is_cut_short_is_at_a_snapshot_of_the_branch_and_goes_on(after: bool):
    def table(store: Any) -> Table:
        return Table("t", store, dialect)

    counting = NthCallFails(holding(with_branches()), 0, after)
    table(counting).fast_forward("c")
    end, steps = table(counting).snapshots(), [[1, 2], [1, 2, 4], [5]]
    for n in ends_and_some(range(1, counting.made.total() + 1), 2, "fast forward", after):
        store = holding(with_branches())
        failing = NthCallFails(store, n, after)
        with suppress(StoreError):
            table(failing).fast_forward("c")
        assert [row[0] for row in content(table(store))] in steps, failing.failed
        table(store).fast_forward("c")
        assert table(store).snapshots() == end, failing.failed
        assert [row[0] for row in content(table(store))] == [5], failing.failed


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_the_nth_call_fails_while_branches_are_merged(after: bool):
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, MERGING)
    table.append(rows(1))
    table.create_branch("b").append(pa.concat_tables([rows(2), rows(3, dt="b")]))
    table.append(rows(4))
    files = {listed.path: store.read(listed.path) for listed in store.list("")}

    def whole(table: Table) -> object:
        return (
            [snapshot.operation_id for snapshot in table.snapshots()].count("op"),
            on_branches(table),
            swept(doors.store(table)),
        )

    fail_each_call(files, dialect, lambda t: t.merge_branch("b", id="op"), content, whole, after)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_a_renaming_of_a_branch_that_is_cut_short_loses_nothing_and_goes_on(after: bool):
    """On storage that renames no folders: both names may be there, until the same call has ended."""

    def table(store: Any) -> Table:
        return Table("t", store, dialect)

    store = holding(with_branches())
    counting, begun = NthCallFails(store, 0, after), on_branches(table(store))
    table(counting).rename_branch("b", "new")
    end, files = on_branches(table(store)), swept(store)
    assert end == {"new" if name == "b" else name: seen for name, seen in begun.items()}
    for n in ends_and_some(range(1, counting.made.total() + 1), 2, "rename", after):
        store = holding(with_branches())
        failing = NthCallFails(store, n, after)
        with suppress(StoreError):
            table(failing).rename_branch("b", "new")
        seen = on_branches(table(store))
        assert {**end, "b": begun["b"]}.items() >= seen.items(), failing.failed
        assert {"b", "new"} & {*seen}, failing.failed
        once(lambda store=store: table(store).rename_branch("b", "new"), NotFound)
        assert (on_branches(table(store)), swept(store)) == (end, files), failing.failed


def test_create_table_with_every_call_failing():
    for after in (False, True):
        n = 0
        while True:
            n += 1
            store = MemoryFiles()
            failing = NthCallFails(store, n, after)
            try:
                create(Table("t", failing, dialect), SCHEMA)
            except StoreError:
                once(lambda store=store: create(Table("t", store, dialect), SCHEMA), AlreadyExists)
            Table("t", store, dialect).append(rows(1))
            assert content(Table("t", store, judge)) == [(1, "v", "a")]
            if failing.failed is None:
                break
        assert n > 1


FIRST_VERBS = {
    "append": lambda table, data: table.append(data, id="op"),
    "overwrite": lambda table, data: table.overwrite(data, id="op"),
    "overwrite_partitions": lambda table, data: table.overwrite_partitions(data, partitions=[{"dt": "a"}], id="op"),
    "upsert": lambda table, data: table.upsert(data, id="op"),
    "merge": lambda table, data: (
        table.merge_into(data, on="t.id = s.id")
        .when_matched()
        .update_all()
        .when_not_matched()
        .insert_all()
        .merge(id="op")
    ),
}


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("format", [dialect, Iceberg()], ids=["paimon", "iceberg"])
@pytest.mark.parametrize(("verb", "write"), FIRST_VERBS.items(), ids=FIRST_VERBS)
def test_a_table_is_created_with_its_rows_or_not_at_all(verb, write, format, after):
    schema = replace(KEYED if verb == "upsert" else SCHEMA, properties={})
    counting = NthCallFails(MemoryFiles(), 0, after)
    create_by(Table("t", counting, format), schema, lambda table: write(table, rows(1, 2)))
    calls = range(1, counting.made.total() + 1)
    for n in [0, *some(calls, 2, verb, format.name, after)]:
        store = MemoryFiles()
        failing = NthCallFails(store, n, after)
        table = Table("t", store, format)
        try:
            made = create_by(Table("t", failing, format), schema, lambda table: write(table, rows(1, 2)))
        except StoreError:
            assert not format.is_table(store), failing.failed
            left = [file.path for file in store.list("") if file.path.endswith(".parquet")]
            assert all(after and path in failing.failed for path in left), failing.failed  # Nobody heard of this file.
            made = create_by(table, schema, lambda table: write(table, rows(1, 2)))
        assert content(table) == [(1, "v", "a"), (2, "v", "a")], failing.failed
        assert [snapshot.operation_id for snapshot in table.snapshots()] == ["op"], failing.failed
        assert (made.id, made.rows_added) == (table.current_snapshot().id, 2), failing.failed
        assert made.kind == ("append" if format.creates_with_rows or verb == "append" else made.kind)
        assert format.head(store).version() == 1  # Of Iceberg, the version that makes the table has the rows.
        with pytest.raises(AlreadyExists):
            create_by(table, schema, lambda table: table.append(rows(3), id="other"))
        assert (failing.failed is None) == (n == 0)
    assert len(calls) > 5


@pytest.mark.parametrize("format", [dialect, Iceberg()], ids=["paimon", "iceberg"])
def test_a_first_verb_that_is_refused_leaves_no_table_and_no_file(format):
    refused = {
        OutsideScope: lambda table: table.overwrite_partitions(rows(1), partitions=[{"dt": "b"}]),
        InvalidInput: lambda table: table.upsert(rows(1)),
    }
    for error, write in refused.items():
        store = MemoryFiles()
        with pytest.raises(error):
            create_by(Table("t", store, format), replace(SCHEMA, properties={}), write)
        assert list(store.list("")) == []


@pytest.mark.parametrize("format", [dialect, Iceberg()], ids=["paimon", "iceberg"])
def test_a_first_verb_without_rows_makes_an_empty_table(format):
    schema = replace(SCHEMA, properties={})
    for write, snapshots in (
        (lambda table: table.append(rows()), 0),
        (lambda table: table.overwrite(rows(), id="op"), 1),
        (lambda table: table.overwrite_partitions(rows(), partitions=[{"dt": "a"}], id="op"), 1),
    ):
        table = Table("t", MemoryFiles(), format)
        made = create_by(table, schema, write)
        assert [snapshot.operation_id for snapshot in table.snapshots()] == ["op"] * snapshots
        assert (made is None) == (snapshots == 0)
        assert content(table) == []


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_a_table_is_created_over_files_or_not_at_all_and_they_stay(after):
    schema = replace(SCHEMA, properties={})
    landed = {"landing/dt=a/x.parquet": rows(1), "landing/dt=b/y.parquet": rows(2)}
    found = SessionFiles(tuple(landed), ({"dt": "a"}, {"dt": "b"}))
    for n in range(1, 200):
        store, format = MemoryFiles(), Iceberg()
        for path, data in landed.items():
            with store.create_stream(path) as sink:
                pq.write_table(data.drop_columns(["dt"]), sink)
        before = {path: store.read(path) for path in landed}
        failing = NthCallFails(store, n, after)
        table = Table("t", failing, format)
        try:
            adopting.create_over(table, adopting.inspect(table, schema, found, None))
        except StoreError:
            assert not format.is_table(store), failing.failed
            left = {file.path for file in store.list("")} - before.keys()
            assert all(after and path in failing.failed for path in left), failing.failed  # Nobody heard of this file.
            table = Table("t", store, format)
            adopting.create_over(table, adopting.inspect(table, schema, found, None))
        assert content(Table("t", store, format)) == [(1, "v", "a"), (2, "v", "b")], failing.failed
        assert {path: store.read(path) for path in landed} == before, failing.failed
        table = Table("t", store, format)
        with pytest.raises(AlreadyExists):
            adopting.create_over(table, adopting.Adoptable(schema, ()))
        assert {path: store.read(path) for path in landed} == before
        if failing.failed is None:
            break
    assert 5 < n < 199


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_a_write_that_compacts_lands_once_whatever_fails(after):
    schema = replace(KEYED, properties=KEYED.properties | {"write-only": "false", "full-compaction.delta-commits": "1"})

    def holding_rows() -> MemoryFiles:
        store = MemoryFiles()
        create(Table("t", store, dialect), schema)
        Table("t", store, dialect).append(rows(1, 2))
        return store

    counting = NthCallFails(holding_rows(), 0, after)
    Table("t", counting, dialect).upsert(rows(2, 3), id="once")
    assert counting.made.total() > 10
    for n, kind in faults(counting.made, after):
        store = holding_rows()
        failing = NthCallFails(store, n, after, kind=kind)
        try:
            made = Table("t", failing, dialect).upsert(rows(2, 3), id="once")
        except (StoreError, CommitError):
            made = Table("t", store, dialect).upsert(rows(2, 3), id="once")
        table = Table("t", store, dialect)
        assert (made.kind, made.operation_id) == ("append", "once"), failing.failed
        assert sorted(row[0] for row in content(table)) == [1, 2, 3], failing.failed
        kinds = [snapshot.kind for snapshot in table.snapshots()]
        assert kinds[:3] == ["append", "compact", "append"], failing.failed
        assert kinds[3:] in ([], ["compact"]), failing.failed
        table.upsert(rows(4))
        assert table.snapshots()[-1].kind == "compact", failing.failed
        table.remove_orphan_files(AT_ONCE)
        assert sorted(row[0] for row in content(table)) == [1, 2, 3, 4], failing.failed


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("format", [dialect, Iceberg()], ids=["paimon", "iceberg"])
def test_files_are_loaded_once_whatever_fails(format, after):
    """Also a file that arrives between the two calls."""
    schema = replace(SCHEMA, properties={})

    def holding_a_table() -> MemoryFiles:
        store = MemoryFiles()
        create(Table("t", store, format), schema)
        return store

    def loaded(store: Any, source: Any) -> tuple[str, ...]:
        asked = (source, "", None, None, layout("CSV", {}), None, False, "abort_statement", None, None, None)
        return tuple(file.status for file in load(Table("t", store, format), *asked).files)

    source = MemoryFiles("memory://source")
    source.write("a.csv", b"1,v,a\n2,v,b\n")
    counting = NthCallFails(holding_a_table(), 0, after)
    loaded(counting, source)
    for n, kind in faults(counting.made, after):
        store, arrived = holding_a_table(), MemoryFiles("memory://source")
        failing = NthCallFails(store, n, after, kind=kind)
        with suppress(StoreError, CommitError):
            loaded(failing, source)
        arrived._files.update(source._files)
        arrived.write("b.csv", b"3,v,a\n")
        assert loaded(store, arrived)[1] == "LOADED", failing.failed
        assert content(Table("t", store, format)) == [(1, "v", "a"), (2, "v", "b"), (3, "v", "a")], failing.failed
        assert loaded(store, arrived) == ("SKIPPED", "SKIPPED"), failing.failed
