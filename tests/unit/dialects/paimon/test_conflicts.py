"""What others did since an operation read a Paimon table: the table at the top of `conflict.py`, line by line."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.commit import commit
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.errors import Conflict, InvalidInput, NotFound, OutsideScope
from lakeformat.expression import sql_text
from lakeformat.model import evolution
from lakeformat.model.operation import (
    Append,
    Operation,
    Overwrite,
    Request,
    Restore,
    Rewrite,
    RowDelta,
)
from lakeformat.model.partition import identity
from lakeformat.model.predicate import bind
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.work import Content, KeyRange, WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors

dialect = Paimon()

PLAIN = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT), False), Field(1, "dt", scalar(Kind.STRING), False)),
    partitioning=identity("dt"),
    properties={"deletion-vectors.enabled": "true"},
)
KEYED = replace(PLAIN, primary_key=("id", "dt"), properties={"bucket": "2", "write-only": "true"})
GROWS = replace(KEYED, properties={"bucket": "-1", "write-only": "true"})
CROSSING = replace(GROWS, primary_key=("id",))  # Keys may change partitions.
WAITS = replace(
    KEYED, properties=KEYED.properties | {"deletion-vectors.enabled": "true"}
)  # For compaction, to be seen.


def made(schema: Schema) -> Table:
    table = Table("d.t", MemoryFiles(), dialect)
    create(table, schema)
    return table


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def request(table: Table, **more: Any) -> Request:
    """Of somebody who saw the table as it is."""
    return Request(id="op", absent_until=now(table), schema_id=table.schema.id, **more)


def now(table: Table) -> int:
    version: int = doors.view(table).version
    return version


def file(low: int, high: int | None = None, dt: str = "a", bucket: int = 0, level: int = 0) -> WrittenFile:
    keys = KeyRange((low,), (low if high is None else high,), 0, 0, 0, level)
    return WrittenFile(f"dt={dt}/bucket-{bucket}/data-new", (dt,), 1, 1, bucket, keys=keys)


def vectors(dt: str, *paths: str) -> WrittenFile:
    """Deletion vectors of data files."""
    return WrittenFile("index/new", (dt,), 1, 1, content=Content.DELETION_VECTORS, refers_to=paths)


def check(table: Table, operation: Operation) -> None:
    doors.view(table).check(operation)


def on(table: Table, text: str) -> Any:
    return bind(sql_text.parse(text), table.schema.fields)


def files(table: Table, dt: str = "a") -> list[dict[str, Any]]:
    return [row for row in table.inspect.files().to_pylist() if row["partition"] == f"dt={dt}"]


def path(table: Table, dt: str = "a") -> str:
    """Of the only file in a partition."""
    (found,) = files(table, dt)
    return str(found["path"])


def bucket_of(id: int) -> int:
    table = made(KEYED)
    table.append(rows(id))
    return int(files(table)[0]["bucket"])


IN_0 = next(id for id in range(10) if bucket_of(id) == 0)
IN_1 = next(id for id in range(10) if bucket_of(id) == 1)


@pytest.mark.parametrize(
    "operation",
    [
        Append(request=Request(id="op"), added=()),
        RowDelta(request=Request(id="op"), added=()),
        Overwrite(request=Request(id="op"), added=()),
        Rewrite(request=Request(id="op"), removed=(), added=()),
    ],
)
def test_nothing_can_be_done_to_a_table_that_is_gone(operation: Operation):
    with pytest.raises(NotFound, match="the table no longer exists"):
        dialect.load(MemoryFiles(), 0).check(operation)


# --- buckets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "minds"),
    [
        (lambda r, f: Append(request=r, added=f), True),
        (lambda r, f: RowDelta(request=r, added=f), True),
        (lambda r, f: Rewrite(request=r, removed=(), added=f, kind="update"), True),
        (lambda r, f: Rewrite(request=r, removed=(), added=f, kind="compact"), False),
        (lambda r, f: Overwrite(request=r, added=f), False),
        (lambda r, f: RowDelta(request=r, added=(vectors("a"),)), False),
    ],
)
def test_a_partition_keeps_its_number_of_buckets_until_it_is_overwritten(make: Callable[..., Operation], minds: bool):
    table = made(KEYED)
    before = request(table)
    table.append(rows(1, 2))
    table.evolve([evolution.SetProperties({"bucket": "4"})])
    check(table, make(before, (file(1),)))
    check(table, make(request(table), (file(1, dt="b"),)))
    check(table, make(request(table), ()))
    if not minds:
        check(table, make(request(table), (file(1),)))
        return
    with pytest.raises(InvalidInput, match="a partition has 2 buckets and the table now 4"):
        check(table, make(request(table), (file(1),)))


@pytest.mark.parametrize("kind", [Append, RowDelta])
def test_keys_that_others_gave_buckets_meanwhile_are_a_conflict(kind: type):
    table = made(GROWS)
    table.append(rows(1))

    def op(before: Request, dt: str = "a") -> Operation:
        return kind(request=before, added=(file(9, dt=dt),))

    before = request(table)
    check(table, op(before))
    table.append(rows(1))  # A key that has a bucket.
    check(table, op(before))
    table.append(rows(2, dt="b"))
    check(table, op(before))
    with pytest.raises(Conflict, match="gave new keys"):
        check(table, op(before, "b"))
    check(table, kind(request=before, added=()))
    table.append(rows(3))
    check(table, op(request(table)))
    with pytest.raises(Conflict, match=r"gave new keys .* after snapshot 1;"):
        check(table, op(before))
    table.expire_snapshots(retain_last=1)
    with pytest.raises(Conflict, match="snapshot 1, whose buckets these rows were given, has expired"):
        check(table, op(before))


def test_keys_of_an_empty_table_get_buckets_once():
    table = made(GROWS)
    before = request(table)
    check(table, Append(request=before, added=(file(1),)))
    table.append(rows(1))
    with pytest.raises(Conflict, match="after snapshot 0"):
        check(table, Append(request=before, added=(file(1),)))


# --- streams ----------------------------------------------------------------------------------------------------------


def committed(table: Table, user: str, number: int, *ids: int) -> None:
    session = table.stream(user)
    session.commit(session.prepare(number, rows(*ids)))


@pytest.mark.parametrize("schema", [KEYED, GROWS], ids=["fixed buckets", "buckets that grow"])
def test_a_stream_commits_in_the_order_of_its_numbers(schema: Schema):
    table = made(schema)
    committed(table, "u", 5, 1)

    def append(*follows: int, added: tuple[WrittenFile, ...] = (file(9),)) -> Operation:
        return Append(request=replace(before, session=("u", 7), follows=follows), added=added)

    before = request(table)
    check(table, append())
    committed(table, "other", 6, 1)
    table.append(rows(1))
    check(table, append())
    committed(table, "u", 6, 1)
    with pytest.raises(Conflict, match="commit 7 of 'u' was prepared before 6 was known"):
        check(table, append())
    check(table, append(6))
    check(table, append(added=()))
    check(table, Append(request=before, added=(file(9),)))
    before = request(table)
    committed(table, "u", 8, 1)
    with pytest.raises(Conflict, match="before 8 was known"):
        check(table, append())


def test_a_stream_knows_the_buckets_that_its_own_commits_gave():
    table = made(GROWS)
    committed(table, "u", 5, 1)
    before = replace(request(table), session=("u", 7), follows=(6,))
    committed(table, "u", 6, 2)
    check(table, Append(request=before, added=(file(9),)))
    table.append(rows(3))
    with pytest.raises(Conflict, match="gave new keys"):
        check(table, Append(request=before, added=(file(9),)))
    before = replace(request(table), session=("u", 9), follows=(8,))
    table.append(rows(4))
    committed(table, "u", 8, 5)  # Its own is the last one.
    with pytest.raises(Conflict, match="gave new keys"):
        check(table, Append(request=before, added=(file(9),)))


def test_streams_of_rows_without_a_key_have_no_order():
    table = made(PLAIN)
    before = replace(request(table), session=("u", 7))
    committed(table, "u", 6, 1)
    check(table, Append(request=before, added=(replace(file(9), keys=None),)))


# --- rows by key ------------------------------------------------------------------------------------------------------


def test_rows_of_a_key_range_that_others_changed_are_a_conflict():
    table = made(KEYED)
    table.append(rows(IN_0, IN_1))
    before, read = request(table), now(table)

    def delta(low: int, high: int, dt: str = "a", bucket: int = 0, read_at: int | None = read) -> Operation:
        return RowDelta(request=before, added=(file(low, high, dt, bucket),), read_at=read_at)

    check(table, delta(IN_0, IN_0))
    table.compact(full=True)
    table.append(rows(IN_0))
    for ours in ((IN_0, IN_0), (IN_0 - 1, IN_0), (IN_0, IN_0 + 1), (IN_0 - 1, IN_0 + 1)):
        with pytest.raises(Conflict, match=rf"snapshot \d+ \(APPEND by .*read at snapshot {read}"):
            check(table, delta(*ours))
    check(table, delta(IN_0 + 1, IN_0 + 9))
    check(table, delta(IN_0 - 9, IN_0 - 1))
    check(table, delta(IN_0, IN_0, bucket=1))
    check(table, delta(IN_0, IN_0, dt="b"))
    check(table, delta(IN_0, IN_0, read_at=None))
    check(table, delta(IN_0, IN_0, read_at=now(table)))
    table.rollback_to(snapshot_id=read)
    with pytest.raises(Conflict, match=r"not complete|rolled back"):
        check(table, delta(IN_0 + 1, IN_0 + 9))
    read = now(table)
    table.append(rows(IN_1))
    table.append(rows(IN_1))
    table.expire_snapshots(retain_last=1)
    with pytest.raises(Conflict, match=f"pinned to snapshot {read}, but history .* not complete"):
        check(table, delta(IN_0, IN_0, read_at=read))
    read = now(table)
    table.append(rows(IN_1))
    restore(table, read)
    with pytest.raises(Conflict, match=f"rolled back after snapshot {read}, at which it was read"):
        check(table, delta(IN_0, IN_0, read_at=read))


def restore(table: Table, snapshot_id: int) -> None:
    """Roll back, and leave what is undone in history."""
    store = doors.store(table)
    commit(store, dialect.head(store), dialect, Restore(request=request(table), snapshot_id=snapshot_id))


def test_of_many_ranges_one_that_meets_is_enough():
    table = made(KEYED)
    table.append(rows(*range(0, 40, 2)))
    before, read = request(table), now(table)
    table.append(rows(4, 20))
    added = tuple(file(low, low + 1, bucket=bucket) for bucket in (0, 1) for low in (100, 25, 40))
    check(table, RowDelta(request=before, added=added, read_at=read))
    for low, high in ((18, 22), (0, 60)):
        met = (*added, file(low, high, bucket=bucket_of(20)))
        with pytest.raises(Conflict, match="changed rows with keys"):
            check(table, RowDelta(request=before, added=met, read_at=read))


def test_a_pinned_change_by_row_minds_the_partitions_of_its_condition():
    table = made(KEYED)
    read = now(table)
    table.append(rows(5, dt="b"))

    def delta(condition: str) -> Operation:
        return RowDelta(request=request(table), added=(), condition=on(table, condition), pinned_to=read)

    check(table, delta("dt = 'a' and id = 1"))
    with pytest.raises(Conflict, match=rf"changed 1 files in .*'b'.* after snapshot {read}"):
        check(table, delta("dt = 'b' and id = 1"))


@pytest.mark.parametrize("kind", [Append, RowDelta])
def test_keys_that_moved_between_partitions_meanwhile_are_a_conflict(kind: type):
    table = made(CROSSING)
    table.append(rows(1))
    before = request(table)
    check(table, kind(request=before, added=(file(1),)))
    table.append(rows(5, dt="c"))
    check(table, kind(request=before, added=(file(1),)))
    table.append(rows(1, dt="b"))
    with pytest.raises(Conflict, match="changed rows with keys"):
        check(table, kind(request=before, added=(file(1, bucket=7),)))
    check(table, kind(request=request(table), added=(file(1),)))
    check(table, kind(request=before, added=()))


def test_an_overwrite_minds_keys_that_moved_outside_its_scope():
    table = made(CROSSING)
    before = request(table)

    def overwrite(scope: str | None) -> Operation:
        how = {} if scope is None else {"scope": on(table, scope)}
        return Overwrite(request=before, added=(file(1),), **how)

    table.append(rows(1))
    check(table, overwrite("dt = 'a'"))
    table.append(rows(1, dt="b"))
    with pytest.raises(Conflict, match="changed rows with keys"):
        check(table, overwrite("dt = 'a'"))
    check(table, overwrite(None))


def test_waiting_rows_get_no_buckets_that_others_wrote_to_since_they_were_read():
    """They continue the sequence numbers that the buckets had."""
    table = made(replace(KEYED, properties={"bucket": "-2"}))
    table.append(rows(1))
    placed = Rewrite(
        request=request(table),
        removed=(),
        added=(replace(file(1), bucket_count=2),),
        read_at=now(table),
        kind="compact",
    )
    table.append(rows(2))
    check(table, placed)
    commit(
        doors.store(table), dialect.head(doors.store(table)), dialect, Append(request=request(table), added=(file(3),))
    )
    with pytest.raises(Conflict, match="postponed rows get their buckets here"):
        check(table, placed)


# --- overwrites -------------------------------------------------------------------------------------------------------


def test_an_overwrite_writes_inside_its_scope():
    table = made(PLAIN)
    inside, outside = (WrittenFile("x", (dt,), 1, 1) for dt in "ab")

    def overwrite(*added: WrittenFile, **how: Any) -> Operation:
        return Overwrite(request=request(table), added=added, **how)

    check(table, overwrite(inside, scope=on(table, "dt = 'a'")))
    check(table, overwrite(scope=on(table, "dt = 'a'")))
    check(table, overwrite(inside, outside))
    with pytest.raises(OutsideScope, match=r"rows of 1 partitions .*: \{'dt': 'b'\}\."):
        check(table, overwrite(inside, outside, scope=on(table, "dt = 'a'")))
    with pytest.raises(OutsideScope, match=r"rows of 2 partitions .*None"):
        check(table, overwrite(outside, replace(outside, partition=(None,)), scope=on(table, "dt = 'a'")))


def test_rows_that_only_go_may_lie_outside_where_keys_change_partitions():
    table = made(CROSSING)
    gone = replace(file(1, dt="b"), row_count=2, keys=KeyRange((1,), (1,), 0, 0, 2))
    scope = on(table, "dt = 'a'")
    check(table, Overwrite(request=request(table), added=(file(1), gone), scope=scope))
    for keys in (KeyRange((1,), (1,), 0, 0, 1), None):
        with pytest.raises(OutsideScope):
            check(table, Overwrite(request=request(table), added=(replace(gone, keys=keys),), scope=scope))
    fixed = made(KEYED)
    with pytest.raises(OutsideScope):
        check(fixed, Overwrite(request=request(fixed), added=(gone,), scope=scope))


@pytest.mark.parametrize("kind", ["overwrite", "rewrite"])
def test_a_pin_minds_rows_that_come_or_go_inside_the_scope_alone(kind: str):
    table = made(PLAIN)
    table.append(rows(1, 2))
    read = now(table)

    def pinned(scope: str | None = "dt = 'a'") -> Operation:
        how: dict[str, Any] = {} if scope is None else {"scope": on(table, scope)}
        if kind == "overwrite":
            return Overwrite(request=request(table), added=(), pinned_to=read, **how)
        return Rewrite(request=request(table), removed=(), added=(), kind="overwrite", pinned_to=read, **how)

    table.append(rows(5, dt="b"))
    table.compact(full=True)
    check(table, pinned())
    with pytest.raises(Conflict, match=r"changed 1 files in the table after snapshot 1"):
        check(table, pinned(None))
    table.append(rows(6))
    with pytest.raises(Conflict, match=rf"\(APPEND by .*\) changed 1 files in .*'a'.* after snapshot {read}"):
        check(table, pinned())
    read = now(table) + 1
    with pytest.raises(Conflict, match="not complete"):
        check(table, pinned())


def test_a_pinned_overwrite_minds_rows_that_nobody_has_seen():
    table = made(WAITS)
    table.append(rows(1))

    def pinned(dt: str) -> Operation:
        return Overwrite(request=request(table), added=(), scope=on(table, f"dt = '{dt}'"), pinned_to=now(table))

    with pytest.raises(Conflict, match="rows of 1 files wait for compaction"):
        check(table, pinned("a"))
    check(table, pinned("b"))
    table.compact(full=True)
    check(table, pinned("a"))
    for schema in (KEYED, PLAIN):  # Where rows are seen at once.
        table = made(schema)
        table.append(rows(1))
        check(table, pinned("a"))


# --- rows that are marked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["delta", "rewrite that marks", "rewrite"])
def test_rows_of_a_file_that_others_marked_meanwhile_are_a_conflict(kind: str):
    table = made(PLAIN)
    table.append(rows(*range(10)))
    table.append(rows(*range(10), dt="b"))
    marked, read = path(table), now(table)

    def op(read_at: int | None = read) -> Operation:
        if kind == "delta":
            return RowDelta(request=request(table), added=(vectors("a", marked),), kind="delete", read_at=read_at)
        if kind == "rewrite":
            return Rewrite(request=request(table), removed=(marked,), added=(), kind="update", read_at=read_at)
        return Rewrite(
            request=request(table), removed=(), added=(vectors("a", marked),), kind="update", read_at=read_at
        )

    check(table, op())
    table.delete("id = 3 and dt = 'b'")
    check(table, op())
    table.delete("id = 3 and dt = 'a'")
    with pytest.raises(
        Conflict, match=rf"rows of {marked.rpartition('/')[2]} were deleted after snapshot {read}, at which it was read"
    ):
        check(table, op())
    with pytest.raises(Conflict, match="after snapshot 0"):
        check(table, op(0))
    check(table, op(None))
    check(table, op(now(table)))
    table.delete("id = 4 and dt = 'b'")  # Whose vector may lie in the same file.
    table.expire_snapshots(retain_last=2)
    check(table, op(now(table) - 1))
    with pytest.raises(Conflict, match=rf"snapshot {read} has expired since it was read"):
        check(table, op())
    read = now(table)
    restore(table, read - 1)
    check(table, op(read))  # It took back what was done to another file.
    table.delete("id = 5 and dt = 'a'")
    read = now(table)
    restore(table, read - 1)
    with pytest.raises(Conflict, match=rf"rows of .* were deleted after snapshot {read}"):
        check(table, op(read))
    table.compact(full=True)
    with pytest.raises(Conflict, match="1 are no longer in the table at snapshot"):
        check(table, op(now(table)))


def test_a_file_that_others_gave_its_rows_back_is_a_conflict_too():
    table = made(PLAIN)
    table.append(rows(1, 2))
    table.delete("id = 1")
    read = now(table)
    restore(table, 1)
    with pytest.raises(Conflict, match=rf"were deleted after snapshot {read}"):
        check(table, RowDelta(request=request(table), added=(vectors("a", path(table)),), read_at=read))


# --- files that are written again ---------------------------------------------------------------------------------------


def test_a_rewrite_minds_files_that_are_gone():
    table = made(PLAIN)
    table.append(rows(1))
    table.append(rows(2, dt="b"))
    there = path(table)
    check(table, Rewrite(request=request(table), removed=(there,), added=()))
    with pytest.raises(Conflict, match=r"compact read 2 files, of which 1 are no longer .*, e\.g\. dt=a/none"):
        check(table, Rewrite(request=request(table), removed=(there, "dt=a/none"), added=()))
    with pytest.raises(Conflict, match="read 1 files"):
        check(table, Rewrite(request=request(table), removed=(), added=(), upgraded=(("dt=a/none", 5),)))


def settled() -> Table:
    """A file with the keys IN_0 and IN_0 + 100 on level 5 of bucket 0 of two partitions."""
    table = made(KEYED)
    other = next(id for id in range(IN_0 + 100, IN_0 + 200) if bucket_of(id) == 0)
    for dt in "ab":
        table.append(rows(IN_0, other, dt=dt))
    table.compact(full=True)
    assert [entry["level"] for entry in files(table)] == [5]
    return table


@pytest.mark.parametrize(
    ("new", "meets"),
    [
        (file(IN_0 + 5, level=5), True),
        (file(-9, IN_0, level=5), True),
        (file(-9, 900, level=5), True),
        (file(300, 900, level=5), False),
        (file(-9, -5, level=5), False),
        (file(IN_0 + 5, level=4), False),
        (file(IN_0 + 5), False),
        (file(IN_0 + 5, bucket=1, level=5), False),
        (file(IN_0 + 5, dt="c", level=5), False),
        *((file(IN_0 + 5, dt=dt, level=level), False) for dt in "ab" for level in (1, 4)),
    ],
)
def test_a_compaction_writes_no_keys_where_others_have_put_them(new: WrittenFile, meets: bool):
    table = settled()

    def compact(*removed: str, **how: Any) -> Operation:
        return Rewrite(request=request(table), removed=removed, added=(new,), **how)

    if meets:
        for how in ({}, {"scope": on(table, "dt = 'a'")}):
            with pytest.raises(Conflict, match="keys that another writer has put on the same level since"):
                check(table, compact(**how))
        check(table, compact(scope=on(table, "dt = 'b'")))
    else:
        check(table, compact())
    check(table, compact(path(table)))
    check(table, Rewrite(request=request(table), removed=(path(table), path(table, "b")), added=(new,)))


def test_a_file_is_lifted_once_and_not_onto_its_own_keys():
    table = settled()
    table.append(rows(IN_0))
    (young,) = (entry["path"] for entry in files(table) if entry["level"] == 0)
    (old,) = (entry["path"] for entry in files(table) if entry["level"] == 5)

    def lift(path: str, level: int, *removed: str) -> Operation:
        return Rewrite(request=request(table), removed=removed, added=(), upgraded=((path, level),))

    check(table, lift(young, 4))
    check(table, lift(young, 5, old))
    with pytest.raises(Conflict, match="keys that another writer has put on the same level since"):
        check(table, lift(young, 5))
    for path_, level, found in ((young, 0, 0), (old, 5, 5), (old, 4, 5)):
        with pytest.raises(
            Conflict, match=f"upgrades {path_} to level {level}, and another writer has put it on level {found}"
        ):
            check(table, lift(path_, level))


def test_level_1_is_a_level_too():
    table = settled()
    table.append(rows(IN_0))
    (young,) = (entry["path"] for entry in files(table) if entry["level"] == 0)
    lift = Rewrite(request=request(table), removed=(), added=(), upgraded=((young, 1),))
    commit(doors.store(table), dialect.head(doors.store(table)), dialect, lift)
    with pytest.raises(Conflict, match="keys that another writer has put on the same level since"):
        check(table, Rewrite(request=request(table), removed=(), added=(file(IN_0, level=1),)))


def test_what_is_restored_is_looked_for_when_it_is_planned():
    table = made(PLAIN)
    check(table, Restore(request=request(table), snapshot_id=5))
