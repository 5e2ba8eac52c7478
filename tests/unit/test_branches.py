"""Branches of Iceberg tables: rows go to one and not to the others, history is each one's own, and main catches up."""

import datetime
import time

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, Conflict, InvalidInput, Lake, NotFound, UnsupportedFeature

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table, **version):
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


@pytest.fixture(params=[None, "sql"], ids=["folder", "catalog"])
def table(request, tmp_path):
    lake = Lake(tmp_path / "w", catalog=request.param)
    return lake.create_table("a.t", SCHEMA, format="iceberg", partition_by=["dt"])


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
    assert content(audit, snapshot_id=made.id) == content(table, snapshot_id=made.id) == [1, 2, 3]
    audit.alter().add_column("x", "int").commit()  # The whole table's.
    assert table.schema.names == ("id", "dt", "x")
    told = table.inspect.branches().to_pydict()
    assert told["branch_name"] == ["audit", "main"]
    assert told["record_count"] == [2, 2]
    table.fast_forward("audit")
    assert (content(table), len(table.snapshots())) == ([2, 4], 4)
    assert table.current_snapshot().id == audit.current_snapshot().id
    table.append(rows(9))
    assert (content(table), content(audit)) == ([2, 4, 9], [2, 4])
    audit.fast_forward("main")
    assert content(audit) == [2, 4, 9]
    table.delete_branch("audit")
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


def test_the_same_id_is_another_request_on_another_branch(table):
    table.append(rows(1))
    b = table.create_branch("b")
    on_b, on_main = b.append(rows(2), id="load"), table.append(rows(2), id="load")
    assert on_b.id != on_main.id
    assert b.append(rows(2), id="load").id == on_b.id
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
    assert content(table, tag="kept") == [1]


def test_a_pinned_overwrite_minds_its_own_branch_alone(table):
    table.append(rows(1))
    b = table.create_branch("b")
    read_at = b.current_snapshot().id
    table.append(rows(2))
    b.overwrite_partitions(rows(5), pinned_to=read_at)
    with pytest.raises(Conflict):
        table.overwrite_partitions(rows(6), pinned_to=read_at)
    assert (content(table), content(b)) == ([1, 2], [5])


def test_expiry_keeps_what_each_branch_asks_for(table):
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


def test_a_branch_whose_time_is_over_goes(table):
    table.append(rows(1))
    gone = table.create_branch("gone", retain=datetime.timedelta(0))
    table.create_branch("stays", retain=datetime.timedelta(days=1))
    gone.append(rows(2))
    time.sleep(0.002)
    table.expire_snapshots(retain_last=1)
    assert table.inspect.branches()["branch_name"].to_pylist() == ["main", "stays"]
    assert len(table.inspect.snapshots()) == 1


def test_the_table_says_when_the_time_of_branches_and_tags_is_over(table):
    table.append(rows(1))
    table.create_tag("short")
    table.create_tag("long", retain=datetime.timedelta(days=1))
    table.create_branch("audit")
    table.alter().set_properties({"history.expire.max-ref-age-ms": "0"}).commit()
    table.expire_snapshots()
    assert table.inspect.branches()["branch_name"].to_pylist() == ["main"]
    assert table.inspect.tags()["tag_name"].to_pylist() == ["long"]


def test_names_of_branches(table):
    with pytest.raises(NotFound, match="no snapshot"):
        table.create_branch("b")
    table.append(rows(1))
    table.create_branch("b")
    table.create_tag("v1")
    for name, error in (("b", AlreadyExists), ("main", AlreadyExists), ("v1", InvalidInput), ("", InvalidInput), ("7", InvalidInput), (5, InvalidInput)):  # fmt: skip
        with pytest.raises(error):
            table.create_branch(name)
    with pytest.raises(InvalidInput, match="branch"):
        table.create_tag("b")
    with pytest.raises(InvalidInput, match="stays"):
        table.delete_branch("main")
    with pytest.raises(NotFound, match="'c'"):
        table.delete_branch("c")
    with pytest.raises(NotFound, match="'v1'"):
        table.branch("v1").append(rows(1))
    assert content(table.branch("main")) == [1]
    assert repr(table.branch("b")).endswith(", branch='b')")


def test_paimon_branches_are_refused_by_name(tmp_path):
    table = Lake(tmp_path).create_table("a.t", SCHEMA)
    table.append(rows(1))
    for ask in (
        lambda: table.create_branch("b"),
        lambda: table.delete_branch("b"),
        lambda: table.fast_forward("b"),
        lambda: content(table.branch("b")),
    ):
        with pytest.raises(UnsupportedFeature, match="'b'"):
            ask()
    assert content(table.branch("main")) == [1]
    assert table.inspect.branches().num_rows == 0
