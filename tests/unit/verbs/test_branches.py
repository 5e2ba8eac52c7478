"""Branches: rows go to one and not to the others, history is each one's own, and main catches up."""

import datetime
import time
from contextlib import suppress

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, Conflict, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.model.operation import MergeBranch, Request
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.verbs.branch import _copy
from tests import doors

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table, **version):
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


def made(tmp_path, how):
    lake = Lake(tmp_path / "w", catalog="sql" if how == "catalog" else None)
    format = "paimon" if how == "paimon" else "iceberg"
    return lake.create_table("a.t", SCHEMA, format=format, partition_by=["dt"])


@pytest.fixture(params=["folder", "catalog", "paimon"])
def table(request, tmp_path):
    return made(tmp_path, request.param)


@pytest.fixture(params=["folder", "catalog"])
def iceberg(request, tmp_path):
    return made(tmp_path, request.param)


@pytest.fixture
def paimon(tmp_path):
    return made(tmp_path, "paimon")


def branches(table):
    return sorted({*table.inspect.branches()["branch_name"].to_pylist(), "main"})


def test_rows_go_to_the_branch_alone_until_main_catches_up(table):
    table.append(rows(1, 2))
    audit = table.create_branch("audit")
    assert content(audit) == [1, 2]
    made = audit.append(rows(3, dt="b"), id="load")
    assert made.parent_id == table.current_snapshot().id
    assert audit.append(rows(3, dt="b"), id="load").id == made.id
    audit.delete("id = 1")
    audit.overwrite_partitions(rows(4, dt="b"))
    assert (content(table), content(audit), content(table.branch("audit"))) == ([1, 2], [2, 4], [2, 4])
    assert (len(table.snapshots()), len(audit.snapshots())) == (1, 4)
    assert content(audit, snapshot_id=made.id) == [1, 2, 3]
    assert branches(table) == branches(audit) == ["audit", "main"]
    audit.alter().add_column("x", "int").commit()  # The whole table's, in Iceberg.
    table.fast_forward("audit")
    assert table.schema.names == audit.schema.names == ("id", "dt", "x")
    assert (content(table), len(table.snapshots())) == ([2, 4], 4)
    assert table.current_snapshot().id == audit.current_snapshot().id
    table.append(rows(9))
    assert (content(table), content(audit)) == ([2, 4, 9], [2, 4])
    audit.fast_forward("main")
    assert content(audit) == [2, 4, 9]
    table.delete_branch("audit")
    assert branches(table) == ["main"]
    with pytest.raises(NotFound, match=r"no branch 'audit'; there are: main"):
        audit.append(rows(10))
    with pytest.raises(NotFound, match="audit"):
        content(audit)
    assert content(table) == [2, 4, 9]


def test_branches_that_went_apart_do_not_catch_up(table):
    table.append(rows(1))
    table.create_branch("b").append(rows(2))
    table.append(rows(3))
    with pytest.raises(Conflict, match="did not lead to 'b'"):
        table.fast_forward("b")
    with pytest.raises(NotFound, match="'c'"):
        table.fast_forward("c")
    assert (content(table), content(table.branch("b"))) == ([1, 3], [1, 2])


def test_a_branch_is_not_read_at_versions_of_another(iceberg):
    iceberg.append(rows(1))
    iceberg.create_tag("both")
    side = iceberg.create_branch("side")
    side.append(rows(2))
    main = iceberg.append(rows(3))
    iceberg.create_tag("main only")
    assert content(side, tag="both") == [1]
    for version, text in (({"tag": "main only"}, "tag 'main only'"), ({"snapshot_id": main.id}, f"snapshot {main.id}")):
        assert content(iceberg, **version) == [1, 3]
        with pytest.raises(NotFound, match=rf"{text} is not in the history of branch 'side'.*without the branch"):
            side.scan(**version)


def test_a_commit_while_a_paimon_table_catches_up_is_a_conflict_that_names_what_the_table_took():
    class Meanwhile(MemoryFiles):
        """Someone else appends just after the first schema has come."""

        def create(self, path, data):
            made = super().create(path, data)
            if path == "schema/schema-1":
                Table("other", self, Paimon()).append(rows(3))
            return made

    table = Table("t", Meanwhile(), Paimon())
    fields = (Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING)))
    create(table, Schema(fields, properties={"bucket": "-1"}))
    table.append(rows(1))
    branch = table.create_branch("b")
    branch.alter().add_column("more", "int").commit()
    branch.append(rows(2))
    with pytest.raises(Conflict, match=r"did not lead to 'b'.* has and keeps schema/schema-1"):
        table.fast_forward("b")
    assert (content(table), table.schema.names) == ([1, 3], ("id", "dt", "more"))
    with pytest.raises(Conflict) as again:
        table.fast_forward("b")
    assert "already" not in str(again.value)


def test_the_same_id_is_another_request_on_another_branch(table):
    table.append(rows(1))
    b = table.create_branch("b")
    on_b, on_main = b.append(rows(2), id="load"), table.append(rows(2), id="load")
    assert (b.append(rows(2), id="load").id, table.append(rows(2), id="load").id) == (on_b.id, on_main.id)
    assert (content(table), content(b)) == ([1, 2], [1, 2])


def test_a_branch_begins_at_any_snapshot_and_rolls_back_alone(table):
    first = table.append(rows(1)).id
    table.append(rows(2))
    old = table.create_branch("old", snapshot_id=first)
    middle = old.append(rows(3)).id
    time.sleep(0.002)
    old.append(rows(4))
    assert old.compact(full=True) is not None
    assert (content(old), content(table)) == ([1, 3, 4], [1, 2])
    at = next(s.timestamp_ms for s in old.snapshots() if s.id == middle)
    assert content(old, as_of=at) == [1, 3]
    with pytest.raises(NotFound, match="as old as"):
        content(old, as_of=1)
    old.rollback_to(snapshot_id=first)
    assert (content(old), content(table)) == ([1], [1, 2])
    old.create_tag("kept")
    assert content(old, tag="kept") == [1]


def test_a_pinned_overwrite_minds_its_own_branch_alone(table):
    table.append(rows(1))
    b = table.create_branch("b")
    read_at = b.current_snapshot().id
    table.append(rows(2))
    b.overwrite_partitions(rows(5), pinned_to=read_at)
    with pytest.raises(Conflict):
        table.overwrite_partitions(rows(6), pinned_to=read_at)
    assert (content(table), content(b)) == ([1, 2], [5])


def test_expiry_keeps_what_each_branch_asks_for(iceberg):
    table = iceberg
    for i in range(3):
        table.append(rows(i))
    keeps = table.create_branch("keeps", keep_snapshots=3)
    young = table.create_branch("young", keep_younger_than=datetime.timedelta(days=1))
    plain = table.create_branch("plain")
    for branch in (keeps, young, plain):
        for i in range(10, 14):
            branch.append(rows(i))
    for i in range(3, 6):
        table.append(rows(i))
    table.expire_snapshots(retain_last=1)
    assert [len(t.snapshots()) for t in (table, plain)] == [1, 1]
    assert len(keeps.snapshots()) == 3
    assert len(young.snapshots()) == 7, "whatever is younger than a day stays"
    assert content(table) == [0, 1, 2, 3, 4, 5]
    for branch in (keeps, young, plain):
        assert content(branch) == [0, 1, 2, 10, 11, 12, 13]
    assert [content(young, snapshot_id=s.id)[-1] for s in young.snapshots()] == [0, 1, 2, 10, 11, 12, 13]
    table.remove_orphan_files(older_than=AT_ONCE)
    assert content(keeps) == [0, 1, 2, 10, 11, 12, 13]


def test_a_branch_whose_time_is_over_goes(iceberg):
    table = iceberg
    table.append(rows(1))
    gone = table.create_branch("gone", retain=datetime.timedelta(0))
    table.create_branch("stays", retain=datetime.timedelta(days=1))
    gone.append(rows(2))
    time.sleep(0.002)
    table.expire_snapshots(retain_last=1)
    assert table.inspect.branches()["branch_name"].to_pylist() == ["main", "stays"]
    assert len(table.inspect.snapshots()) == 1


def test_the_table_says_when_the_time_of_branches_and_tags_is_over(iceberg):
    table = iceberg
    table.append(rows(1))
    table.create_tag("short")
    table.create_tag("long", retain=datetime.timedelta(days=1))
    table.create_branch("audit")
    table.alter().set_properties({"history.expire.max-ref-age-ms": "0"}).commit()
    table.expire_snapshots()
    assert table.inspect.branches()["branch_name"].to_pylist() == ["main"]
    assert table.inspect.tags()["tag_name"].to_pylist() == ["long"]


def test_a_branch_and_a_tag_of_an_iceberg_table_have_different_names(iceberg):
    with pytest.raises(NotFound, match="no snapshot"):
        iceberg.create_branch("b")
    iceberg.append(rows(1))
    iceberg.create_branch("b")
    iceberg.create_tag("v1")
    with pytest.raises(InvalidInput):
        iceberg.create_branch("v1")
    with pytest.raises(InvalidInput, match="branch"):
        iceberg.create_tag("b")


def test_names_of_branches(table):
    table.append(rows(1))
    table.create_branch("b")
    table.create_tag("v1")
    for name, error in (("b", AlreadyExists), ("main", AlreadyExists), ("", InvalidInput), (" ", InvalidInput), ("7", InvalidInput), ("a/b", InvalidInput), (5, InvalidInput)):  # fmt: skip
        with pytest.raises(error):
            table.create_branch(name)
    with pytest.raises(InvalidInput, match="cannot be deleted"):
        table.delete_branch("main")
    with pytest.raises(NotFound, match="'c'"):
        table.delete_branch("c")
    with pytest.raises(NotFound, match="'v1'"):
        table.branch("v1").append(rows(1))
    assert content(table.branch("main")) == [1]
    assert repr(table.branch("b")).endswith(", branch='b')")


def test_a_paimon_branch_begins_empty_or_at_a_tag_with_schemas_and_tags_of_its_own(paimon):
    empty = paimon.create_branch("empty")
    with pytest.raises(AlreadyExists):
        paimon.create_branch("empty")
    paimon.append(rows(1))
    paimon.create_tag("v1")
    paimon.append(rows(2))
    paimon.alter().add_column("x", "int").commit()
    later, nothing = paimon.create_branch("later", tag="v1"), paimon.create_branch("nothing", snapshot_id=0)
    assert (content(empty), content(later), content(nothing)) == ([], [1], [])
    assert (empty.schema.names, later.schema.names, nothing.schema.names) == (
        ("id", "dt"),
        ("id", "dt"),
        ("id", "dt", "x"),
    )
    assert [t.inspect.tags()["tag_name"].to_pylist() for t in (empty, later)] == [[], ["v1"]]
    later.alter().add_column("y", "string").commit()
    later.append(rows(3))
    later.create_tag("v2")
    assert later.scan(tag="v2").to_arrow().column_names == ["id", "dt", "y"]
    assert paimon.inspect.tags()["tag_name"].to_pylist() == ["v1"]
    empty.append(rows(7))
    stream = empty.stream("s")
    stream.commit(stream.prepare(1, rows(8)))
    assert content(empty) == [7, 8]
    assert empty.changes(1).to_arrow()["id"].to_pylist() == [8]
    other = later.create_branch("other")
    other.append(rows(4))
    later.fast_forward("other")
    assert content(later) == [1, 3, 4]
    with pytest.raises(Conflict, match="did not lead"):
        paimon.fast_forward("later")
    with pytest.raises(UnsupportedFeature, match="retention"):
        paimon.create_branch("short", retain=datetime.timedelta(days=1))
    later.delete_branch("other")
    assert branches(paimon) == branches(later) == ["empty", "later", "main", "nothing"]


def test_a_renamed_branch_keeps_rows_tags_and_history(paimon):
    paimon.append(rows(1))
    b = paimon.create_branch("b")
    b.append(rows(2))
    b.create_tag("v")
    history = [snapshot.id for snapshot in b.snapshots()]
    for table in (paimon.dry_run()[0], paimon):
        renamed = table.rename_branch("b", "c")
        assert (branches(table), content(renamed), content(renamed, tag="v")) == (["c", "main"], [1, 2], [1, 2])
        assert [snapshot.id for snapshot in renamed.snapshots()] == history
    with pytest.raises(NotFound, match="no branch 'b'; there are: c, main"):
        paimon.rename_branch("b", "d")
    paimon.create_branch("b")
    with pytest.raises(AlreadyExists, match="there is a branch 'b'"):
        paimon.rename_branch("c", "b")
    with pytest.raises(InvalidInput, match="'main' is the table itself"):
        paimon.rename_branch("main", "d")
    paimon.alter().set_properties({"scan.fallback-branch": "c"}).commit()
    with pytest.raises(InvalidInput, match="fallback-branch"):
        paimon.rename_branch("c", "d")
    assert branches(paimon) == ["b", "c", "main"]


@pytest.mark.parametrize(
    "options", [{}, {"row-tracking.enabled": "true"}, {"bucket": "2", "bucket-key": "id"}], ids=str
)
def test_rows_of_branches_that_went_apart_are_merged(tmp_path, options):
    properties = {"branch-merge.enabled": "true"} | options
    table = Lake(tmp_path).create_table("a.t", SCHEMA, partition_by=["dt"], properties=properties)
    table.append(rows(1))
    one, two = table.create_branch("one"), table.create_branch("two")
    one.append(rows(2))
    one.append(rows(3, dt="b"))
    two.append(rows(4))
    table.append(rows(5))
    made = table.merge_branch("one", id="merge")
    assert (made.kind, made.rows_added, made.files_added, made.total_rows) == ("append", 2, 2, 4)
    assert content(table) == [1, 2, 3, 5]
    assert table.changes(made.id - 1).to_arrow()["id"].to_pylist() == [2, 3]
    assert table.merge_branch("one", id="merge").id == made.id
    assert table.merge_branch("one") is None
    assert [two.merge_branch("main").rows_added, content(two)] == [3, [1, 2, 3, 4, 5]]
    assert table.merge_branch("two").rows_added == 1
    one.append(rows(6))
    assert table.merge_branch("one").rows_added == 1
    assert (content(table), content(one)) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 6])
    if "row-tracking.enabled" in options:
        ids = Lake(tmp_path).sql("SELECT _ROW_ID FROM `a.t$row_tracking`".replace("a.t", "a`.`t")).to_arrow()["_ROW_ID"]
        assert sorted(ids.to_pylist()) == list(range(6))
        table.append(rows(7))
        assert doors.view(table).state.document["nextRowId"] == 7
    for branch in ("one", "two"):
        table.delete_branch(branch)
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert content(table)[:6] == [1, 2, 3, 4, 5, 6]


def test_branches_that_cannot_be_merged_say_why(tmp_path, iceberg):
    lake = Lake(tmp_path / "w")
    table = lake.create_table("a.p", SCHEMA, properties={"branch-merge.enabled": "true"})
    plain = lake.create_table("a.plain", SCHEMA)
    for t in (table, plain):
        t.append(rows(1))
        t.create_branch("b").append(rows(2))
    with pytest.raises(InvalidInput, match=r"needs the option 'branch-merge\.enabled' = 'true' when it is made"):
        plain.merge_branch("b")
    with pytest.raises(NotFound, match="no branch 'c'; there are: b, main"):
        table.merge_branch("c")
    with pytest.raises(InvalidInput, match="into itself"):
        table.branch("b").merge_branch("b")
    with pytest.raises(UnsupportedFeature, match="fast-forwarded, not merged"):
        iceberg.merge_branch("b")
    rewriting = [
        lambda: table.compact(full=True),
        lambda: table.compact(sort_by=["id"]),
        lambda: table.delete("id = 1"),
        lambda: table.update({"dt": "'x'"}),
        lambda: table.truncate(),
        lambda: table.overwrite(rows(3)),
    ]
    for verb in rewriting:
        with pytest.raises(InvalidInput, match="stay as they are: rows are appended"):
            verb()
    assert sum(file.path.endswith(".parquet") for file in table.stored_files()) == 2
    with pytest.raises(InvalidInput, match=r"'branch-merge\.enabled' is set when a table is made"):
        plain.alter().set_properties({"branch-merge.enabled": "true"}).commit()
    for key, options in ((["id"], {}), ([], {"deletion-vectors.enabled": "true"})):
        with pytest.raises(InvalidInput, match=r"branch-merge\.enabled is for tables without"):
            lake.create_table(
                "a.k", SCHEMA, primary_key=key, properties=options | {"branch-merge.enabled": "true", "bucket": "1"}
            )
    b = table.branch("b")
    b.alter().add_column("w", "int").commit()
    b.append(rows(3))
    with pytest.raises(Conflict, match="different schemas"):
        table.merge_branch("b")
    table.alter().add_column("x", "int").commit()
    with pytest.raises(Conflict, match="different schemas"):
        table.merge_branch("b")
    assert content(table) == [1]


def test_iceberg_does_not_rename_branches_nor_has_it_hints(iceberg):
    iceberg.append(rows(1))
    iceberg.create_branch("b")
    with pytest.raises(UnsupportedFeature, match="create branch 'c' and delete 'b'"):
        iceberg.rename_branch("b", "c")
    with pytest.raises(UnsupportedFeature, match="no hint of the earliest snapshot"):
        iceberg.repair_earliest_snapshot(1)


def test_a_commit_beside_a_renaming_comes_along_or_is_refused():
    """On storage that renames no folders, whichever call of the renaming it comes before."""
    calls, n = 1, 0
    while n < calls:
        n += 1
        store = Beside(n)
        table = Table("t", store.store, Paimon())
        create(table, Schema(fields=(Field(-1, "id", scalar(Kind.BIGINT)),)))
        table.append(pa.table({"id": [1]}))
        table.create_branch("b").append(pa.table({"id": [2]}))
        Table("t", store, Paimon()).rename_branch("b", "c")
        assert content(table.branch("c")) == store.expected, n
        assert branches(table) == ["c", "main"], n
        assert not store.store.exists("branch/branch-c/RENAMING"), n
        calls = store.calls
    assert n > 8


class Beside:
    """A store on which a row is appended to the branch b before the n-th call."""

    def __init__(self, n):
        self.store, self.n, self.calls, self.expected = MemoryFiles(), n, 0, [1, 2]

    def __getattr__(self, name):
        if name in ("list", "read_many", "create", "delete"):
            self.calls += 1
            if self.calls == self.n:
                with suppress(NotFound):
                    Table("t", self.store, Paimon()).branch("b").append(pa.table({"id": [3]}))
                    self.expected.append(3)
        return getattr(self.store, name)


def test_the_earliest_snapshot_is_one_from_which_all_exist(paimon):
    for id in range(5):
        paimon.append(rows(id))
    for path in ("snapshot/snapshot-2", "snapshot/snapshot-3"):
        doors.store(paimon).delete([path])
    with pytest.raises(InvalidInput, match="snapshot 3 cannot be the earliest: the snapshots 3 after it are missing"):
        paimon.repair_earliest_snapshot(3)
    with pytest.raises(InvalidInput, match="snapshot 6 cannot be the earliest: it is 1 to 5"):
        paimon.repair_earliest_snapshot(6)
    assert (paimon.repair_earliest_snapshot(4), doors.store(paimon).read("snapshot/EARLIEST")) == (1, b"4")
    assert paimon.repair_earliest_snapshot(5) == 4
    with pytest.raises(InvalidInput, match="snapshot 4 cannot be the earliest"):
        paimon.repair_earliest_snapshot(4)


def test_expiry_and_sweep_of_paimon_keep_what_any_branch_reaches(paimon):
    for i in range(3):
        paimon.append(rows(i))
    branch = paimon.create_branch("b")
    branch.overwrite(rows(10))
    paimon.compact(full=True)
    for i in range(3, 5):
        paimon.append(rows(i))
    paimon.expire_snapshots(retain_last=1)
    for t in (paimon, branch):
        t.remove_orphan_files(older_than=AT_ONCE)
    assert (content(paimon), content(branch)) == ([0, 1, 2, 3, 4], [10])
    assert content(branch, snapshot_id=3) == [0, 1, 2], "the table has let that go, and the branch has not"
    assert branch.expire_snapshots(retain_last=1).snapshots == (3,)
    assert (content(paimon), content(branch), branch.missing_files()) == ([0, 1, 2, 3, 4], [10], [])
    before = len(paimon.stored_files())
    paimon.delete_branch("b")
    swept = paimon.remove_orphan_files(older_than=AT_ONCE)
    assert swept
    assert len(paimon.stored_files()) < before
    assert (content(paimon), paimon.missing_files()) == ([0, 1, 2, 3, 4], [])


def test_expiry_on_a_paimon_branch_waits_for_the_table_to_catch_up(paimon):
    paimon.append(rows(1))
    branch = paimon.create_branch("b")
    for i in range(2, 5):
        branch.append(rows(i))
    assert branch.expire_snapshots(retain_last=1).snapshots == ()
    paimon.fast_forward("b")
    assert (content(paimon), [s.id for s in paimon.snapshots()]) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert branch.expire_snapshots(retain_last=1).snapshots == (1, 2, 3)
    branch.append(rows(5))
    paimon.fast_forward("b")
    assert content(paimon) == [1, 2, 3, 4, 5]
    assert paimon.changes(4).to_arrow()["id"].to_pylist() == [5]


def test_a_table_takes_over_tags_and_schemas_and_snapshots_after_a_rollback_of_the_branch(paimon):
    first = paimon.append(rows(1)).id
    branch = paimon.create_branch("b")
    branch.append(rows(2))
    branch.rollback_to(snapshot_id=first)
    branch.append(rows(3))
    branch.create_tag("good")
    branch.alter().add_column("x", "int").commit()
    assert [s.id for s in branch.snapshots()] == [1, 3, 4]
    paimon.fast_forward("b")
    assert [s.id for s in paimon.snapshots()] == [1, 2, 3], "numbers without the gap that the rollback left"
    assert (content(paimon), content(paimon, tag="good"), content(paimon, snapshot_id=1)) == ([1, 3], [1, 3], [1])
    assert paimon.schema == branch.schema
    branch.append(rows(4))
    paimon.fast_forward("b")
    assert (content(paimon), len(paimon.snapshots())) == ([1, 3, 4], 4)
    paimon.expire_snapshots(retain_last=1)
    paimon.delete_tag("good")
    assert (content(paimon), content(branch, tag="good"), branch.missing_files()) == ([1, 3, 4], [1, 3], [])
    for table in (paimon, branch):
        table.alter().add_column(f"of_{table._branch}", "int").commit()
    branch.append(rows(5))
    with pytest.raises(Conflict, match="schemas"):
        paimon.fast_forward("b")


@pytest.mark.parametrize("key", [{"primary_key": ["id"], "properties": {"bucket": "1"}}, {"primary_key": ["id"]}], ids=["fixed", "dynamic"])  # fmt: skip
def test_keyed_paimon_tables_merge_on_each_branch_alone(tmp_path, key):
    table = Lake(tmp_path).create_table("a.t", SCHEMA, **key)
    table.upsert(rows(1, 2, dt="a"))
    branch = table.create_branch("b")
    branch.upsert(rows(2, 3, dt="b"))
    branch.delete("id = 1")
    branch.update({"dt": "'c'"}, where="id = 3")
    branch.merge_into(rows(4, dt="d"), on="t.id = s.id").when_not_matched().insert_all().merge()
    branch.compact(full=True)
    assert sorted(map(tuple, (r.values() for r in branch.scan().to_arrow().to_pylist()))) == [
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]
    assert content(table) == [1, 2]
    table.fast_forward("b")
    assert content(table) == [2, 3, 4]
    table.upsert(rows(5))
    assert (content(table), content(branch)) == ([2, 3, 4, 5], [2, 3, 4])


def test_partitions_that_the_table_lacks_are_read_from_its_fallback_branch(tmp_path):
    """As FallbackReadFileStoreTable has it."""
    table = Lake(tmp_path).create_table("a.t", SCHEMA, partition_by=["dt"])
    stream = table.create_branch("stream")
    stream.append(
        pa.concat_tables([rows(1, 2, dt="a"), rows(3, dt="b"), pa.table({"id": [4], "dt": pa.nulls(1, pa.string())})])
    )
    table.alter().set_properties({"scan.fallback-branch": "stream"}).commit()
    assert (content(table), table.scan().count(), table.scan(where="id > 2").count()) == ([1, 2, 3, 4], 4, 2)
    first = table.append(rows(10, dt="a")).id
    assert (content(table), table.scan().count()) == ([3, 4, 10], 3), "a partition is the table's alone once it has it"
    assert table.scan(where="dt = 'b'", columns=["id"]).to_arrow()["id"].to_pylist() == [3]
    assert content(stream) == [1, 2, 3, 4]
    stream.append(rows(5, dt="c"))
    assert (content(table), content(table, snapshot_id=first)) == ([3, 4, 5, 10], [3, 4, 10])
    assert table.delete("id = 3") is None, "what is written goes to the table alone"
    table.drop_partitions([{"dt": "a"}])
    assert content(table) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidInput, match=r"scan\.fallback-branch"):
        table.delete_branch("stream")
    stream.alter().add_column("x", "int").commit()
    with pytest.raises(InvalidInput, match="columns are not the table's"):
        content(table)
    table.alter().set_properties({"scan.fallback-branch": "gone"}).commit()
    with pytest.raises(NotFound, match="there is no such branch; there are: main, stream"):
        content(table)


def test_a_keyed_table_falls_back_to_a_branch_of_other_buckets(tmp_path):
    table = Lake(tmp_path).create_table(
        "a.t", SCHEMA, partition_by=["dt"], primary_key=["id", "dt"], properties={"bucket": "2"}
    )
    merged = table.create_branch("merged")
    merged.upsert(rows(1, 2))
    merged.upsert(rows(2, 3))
    table.alter().set_properties({"scan.fallback-branch": "merged", "bucket": "1"}).commit()
    assert (content(table), table.scan().count()) == ([1, 2, 3], 3)
    table.upsert(rows(7, dt="b"))
    assert content(table) == [1, 2, 3, 7]


def test_staged_rows_are_published_once_and_after_what_others_wrote(iceberg):
    """Write, audit, publish by id: the rules of CherryPickOperation and WapUtil."""
    with pytest.raises(InvalidInput, match=r"write\.wap\.enabled"):
        iceberg.staged("one")
    iceberg.alter().set_properties({"write.wap.enabled": "true"}).commit()
    first = iceberg.staged("one").append(rows(1), id="load")
    assert (content(iceberg), iceberg.current_snapshot(), first.properties["wap.id"]) == ([], None, "one")
    assert iceberg.staged("one").append(rows(1), id="load").id == first.id
    assert content(iceberg, snapshot_id=first.id) == [1]
    assert iceberg.publish("one").id == iceberg.current_snapshot().id == first.id, "nothing came in between"
    with pytest.raises(Conflict, match="published already"):
        iceberg.publish("one")
    staged = iceberg.staged("two").append(rows(2, dt="b"))
    iceberg.append(rows(3, dt="c"))
    made = iceberg.publish("two")
    assert (content(iceberg), made.kind, made.rows_added) == ([1, 2, 3], "append", 1)
    assert (made.properties["source-snapshot-id"], made.properties["published-wap-id"]) == (str(staged.id), "two")
    with pytest.raises(Conflict, match="published already"):
        iceberg.cherry_pick(staged.id)
    same = iceberg.staged("two").append(rows(2))
    with pytest.raises(Conflict, match="'two' are published already"):
        iceberg.cherry_pick(same.id)
    with pytest.raises(InvalidInput, match="2 snapshots are staged"):
        iceberg.publish("two")
    with pytest.raises(NotFound, match="'three'"):
        iceberg.publish("three")
    assert content(iceberg) == [1, 2, 3]
    undone = iceberg.append(rows(7))
    iceberg.rollback_to(made.id)
    iceberg.append(rows(8))
    iceberg.cherry_pick(undone.id)
    assert content(iceberg) == [1, 2, 3, 7, 8]
    with pytest.raises(Conflict, match=f"snapshot {undone.id} is published already"):
        iceberg.cherry_pick(undone.id)
    assert content(iceberg) == [1, 2, 3, 7, 8]


def test_staged_overwrites_and_deletes_are_published_where_nobody_came_in_between(iceberg):
    iceberg.alter().set_properties({"write.wap.enabled": "true", "write.delete.mode": "copy-on-write"}).commit()
    iceberg.append(pa.concat_tables([rows(1, dt="a"), rows(2, dt="b")]))
    over, clash = (
        iceberg.staged("over").overwrite_partitions(rows(4)),
        iceberg.staged("clash").overwrite_partitions(rows(5, dt="c")),
    )
    gone = iceberg.staged("gone").delete("id = 2")
    iceberg.append(rows(3, dt="c"))
    assert iceberg.publish("over").properties["source-snapshot-id"] == str(over.id)
    assert (content(iceberg), iceberg.missing_files()) == ([2, 3, 4], [])
    with pytest.raises(Conflict, match="wrote to 1 of the partitions"):
        iceberg.cherry_pick(clash.id)
    with pytest.raises(InvalidInput, match="neither an append nor a dynamic overwrite"):
        iceberg.cherry_pick(gone.id)
    iceberg.staged("again").delete("id = 2")
    assert iceberg.publish("again").kind == "delete"
    assert content(iceberg) == [3, 4]
    late = iceberg.staged("late").overwrite_partitions(rows(6))
    iceberg.drop_partitions([{"dt": "a"}])
    with pytest.raises(Conflict, match="some no longer exist"):
        iceberg.cherry_pick(late.id)
    iceberg.expire_snapshots(retain_last=1, older_than=datetime.timedelta(0))
    iceberg.remove_orphan_files(older_than=AT_ONCE)
    assert (content(iceberg), iceberg.missing_files()) == ([3], [])


def test_paimon_tables_stage_nothing(paimon):
    for ask in (lambda: paimon.staged("x"), lambda: paimon.publish("x"), lambda: paimon.cherry_pick(1)):
        with pytest.raises(UnsupportedFeature, match="write to a branch"):
            ask()


@pytest.mark.parametrize("version", ["2", "3"])
def test_every_verb_of_rows_happens_on_an_iceberg_branch_alone(tmp_path, version):
    properties = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")} | {
        "format-version": version
    }
    lake = Lake(tmp_path)
    table = lake.create_table("a.t", SCHEMA, format="iceberg", primary_key=["id"], properties=properties)
    table.append(rows(1, 2, 3, 4))
    b = table.create_branch("b")
    b.delete("id = 1")
    b.update({"dt": "'u'"}, where="id = 2")
    b.merge_into(
        rows(3, 9, dt="m"), on="t.id = s.id"
    ).when_matched().update_all().when_not_matched().insert_all().merge()
    b.upsert(rows(4, 10, dt="k"))
    b.overwrite(rows(10, dt="o"), where="id = 10")
    stream = b.stream("s")
    stream.commit(stream.prepare(1, rows(12, dt="s")))
    with b.delta_writer("d", key=["id"]) as writer:
        writer.write(pa.table({"id": [9], "dt": ["m"], "rowkind": ["-D"]}))
        writer.checkpoint(1)
    wanted = [(2, "u"), (3, "m"), (4, "k"), (10, "o"), (12, "s")]
    for _ in range(2):
        assert sorted(map(tuple, (r.values() for r in b.scan().to_arrow().to_pylist()))) == wanted
        b.rewrite_position_deletes(full=True)
        b.convert_equality_deletes()
        b.compact(full=True)
        b.rewrite_manifests()
    assert content(table) == [1, 2, 3, 4]
    assert [snapshot.kind for snapshot in table.snapshots()] == ["append"]
    table.fast_forward("b")
    assert content(table) == [2, 3, 4, 10, 12]


def test_iceberg_metadata_of_a_paimon_table_follows_the_table_and_not_its_branches(tmp_path):
    table = Lake(tmp_path).create_table("a.t", SCHEMA, properties={"metadata.iceberg.storage": "table-location"})
    table.append(rows(1))
    branch = table.create_branch("b")

    def mirrored():
        return {stored_file.path for stored_file in table.stored_files() if stored_file.path.startswith("metadata/")}

    before = mirrored()
    assert before
    branch.append(rows(2))
    branch.expire_snapshots(retain_last=1)
    assert mirrored() == before
    table.fast_forward("b")
    assert mirrored() - before
    assert content(table) == [1, 2]


def test_tags_and_branches_that_are_called_by_a_number_are_used_and_not_made(tmp_path):
    """Daily automatic tags are called so with `tag.period-formatter = without_dashes`."""
    lake = Lake(str(tmp_path))
    table = lake.create_table("d.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    root = tmp_path / "d.db" / "t"
    (root / "tag").mkdir()
    (root / "tag" / "tag-20240731").write_bytes((root / "snapshot" / "snapshot-1").read_bytes())
    table.create_branch("b")
    (root / "branch" / "branch-b").rename(root / "branch" / "branch-20240801")
    for id in (2, 3):
        table.append(pa.table({"id": [id]}))
    table = lake.table("d.t")
    table.expire_snapshots(retain_last=1)
    assert table.scan(tag="20240731").to_arrow()["id"].to_pylist() == [1]
    assert lake.sql("SELECT id FROM d.t VERSION AS OF '20240731'").to_arrow()["id"].to_pylist() == [1]
    assert table.inspect.tags()["tag_name"].to_pylist() == ["20240731"]
    assert table.inspect.branches()["branch_name"].to_pylist() == ["20240801"]
    table.branch("20240801").append(pa.table({"id": [9]}))
    assert sorted(table.branch("20240801").scan().to_arrow()["id"].to_pylist()) == [1, 9]
    assert table.remove_orphan_files(older_than="2100-01-01") == []
    table.create_branch("kept", tag="20240731")
    table.delete_branch("20240801")
    table.delete_tag("20240731")
    assert table.inspect.tags().num_rows == 0
    assert table.branch("kept").scan().to_arrow()["id"].to_pylist() == [1]
    for make in (table.create_tag, table.create_branch, lambda name: table.rename_branch("kept", name)):
        with pytest.raises(InvalidInput, match="must not be a number"):
            make("20240731")


def test_a_merge_of_a_branch_loses_to_a_change_of_schema_on_the_way(tmp_path):
    """The branch's files were mergeable when the merge was planned; the check is repeated on every base."""
    properties = {"branch-merge.enabled": "true"}
    table = Lake(tmp_path).create_table("a.t", rows(1).schema, properties=properties)
    table.append(rows(1))
    table.create_branch("b")
    table.branch("b").append(rows(2))
    operation = MergeBranch(request=Request(id="merge"), source="b")
    view = doors.view(table)
    view.check(operation)
    table.alter().add_column("x", "int").commit()
    table.append(rows(3))
    table.branch("b").alter().add_column("y", "int").commit()
    table.branch("b").append(rows(4))
    with pytest.raises(Conflict, match="different schemas"):
        doors.view(table).check(operation)
    with pytest.raises(Conflict, match="different schemas"):
        commit(doors.store(table), Paimon().head(doors.store(table)), Paimon(), operation)
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 3]


def test_a_fallback_branch_is_read_before_its_first_snapshot(tmp_path):
    """Its first snapshot is then read (FallbackReadFileStoreTable.rewriteFallbackOptions)."""
    lake = Lake(str(tmp_path))
    fields = pa.schema([("pt", pa.int32()), ("v", pa.int32())])
    table = lake.create_table("d.t", fields, partition_by=["pt"])
    table.append(pa.table({"pt": [1], "v": [10]}, schema=fields))
    time.sleep(0.01)
    table.create_branch("side")
    for v in (20, 21):
        table.branch("side").append(pa.table({"pt": [2], "v": [v]}, schema=fields))
    table.append(pa.table({"pt": [1], "v": [11]}, schema=fields))
    table.branch("side").expire_snapshots(retain_last=2)
    lake.table("d.t").alter().set_properties({"scan.fallback-branch": "side"}).commit()

    def values(**version):
        return sorted(lake.table("d.t").scan(**version).to_arrow()["v"].to_pylist())

    assert values() == [10, 11, 20, 21]
    assert values(snapshot_id=1) == [10, 20]


@pytest.mark.parametrize("how", ["folder", "catalog"])
def test_snapshots_of_a_table_without_a_current_one_are_those_of_its_branches(how, tmp_path):
    table = made(tmp_path, how)
    table.alter().set_properties({"write.wap.enabled": "true"}).commit()
    staged = table.staged("first")
    one = staged.append(rows(1))
    assert table.current_snapshot() is None
    assert [snapshot.id for snapshot in table.snapshots()] == [one.id]
    two = table.staged("second").append(rows(2))
    assert [snapshot.id for snapshot in table.snapshots()] == [one.id, two.id]
    table.publish("second")
    assert two.id not in [snapshot.id for snapshot in table.snapshots()[1:]]
    assert content(table) == [2]


@pytest.mark.parametrize("kept", ["nothing", "the snapshot", "the snapshot and the tag"])
def test_a_branch_made_in_part_does_not_stop_the_sweep(kept, tmp_path):
    table = made(tmp_path, "paimon")
    table.append(rows(1, 2))
    table.create_tag("t")
    branch = table.create_branch("b", tag="t")
    folder = tmp_path / "w/a.db/t/branch/branch-b"
    for part in {"nothing": ["schema", "snapshot", "tag"], "the snapshot": ["schema", "tag"]}.get(kept, ["schema"]):
        for file in (folder / part).iterdir():
            file.unlink()
    with suppress(NotFound):
        assert branch.scan().count() == 2
    table.overwrite(rows(3))
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    orphan = tmp_path / "w/a.db/t/manifest/manifest-00000000-0000-0000-0000-000000000000-0"
    orphan.write_bytes(b"")
    assert [listed.path for listed in table.remove_orphan_files(older_than=AT_ONCE)] == ["manifest/" + orphan.name]
    assert content(table) == [3]
    assert content(table, tag="t") == [1, 2]
    with suppress(NotFound, AlreadyExists):
        table.delete_branch("b")
    assert content(table.create_branch("c", tag="t")) == [1, 2]


def test_a_file_of_a_renamed_branch_that_others_wrote_meanwhile_is_theirs():
    store, copied = MemoryFiles("memory://copied"), {}
    store.write("b/schema-0", b"same")
    _copy(store, {"b/schema-0": b"same", "b/schema-1": b"new"}, copied, "b")
    assert copied == {"b/schema-0": b"same", "b/schema-1": b"new"}
    store.write("b/schema-2", b"of another")
    with pytest.raises(AlreadyExists, match="schema-2 came meanwhile"):
        _copy(store, {"b/schema-2": b"ours"}, copied, "b")
    assert store.read("b/schema-2") == b"of another"
