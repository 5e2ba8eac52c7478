"""What others did since an operation read an Iceberg table: the table at the top of `conflict.py`, line by line."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.dialects.iceberg import conflict
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import AlreadyExists, Conflict, InvalidInput, NotFound, OutsideScope, UnsupportedFeature
from lakeformat.expression import sql_text
from lakeformat.model import evolution
from lakeformat.model.operation import (
    Adopt,
    Append,
    CreateBranch,
    DropBranch,
    DropSnapshots,
    DropTag,
    FastForward,
    Operation,
    Overwrite,
    Request,
    Restore,
    Rewrite,
    RowDelta,
    SetTag,
)
from lakeformat.model.partition import identity
from lakeformat.model.predicate import ALWAYS, bind
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.work import Content, DeleteFile, WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors

SCHEMA = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))),
    partitioning=identity("dt"),
    properties={"write.delete.mode": "merge-on-read"},
)
REQUEST = Request(id="op")
IN_A, IN_B = (WrittenFile("data/new", (dt,), 1, 1) for dt in "ab")
NO_FILE = DeleteFile("data/none", Content.POSITION_DELETES)


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


@pytest.fixture
def table() -> Table:
    """A row in each of two partitions, a tag on the first snapshot, and a branch that is one ahead."""
    made = Table("d.t", MemoryFiles(), Iceberg())
    create(made, SCHEMA)
    made.append(rows(1, 2))
    made.create_tag("kept")
    made.append(rows(3, dt="b"))
    made.create_branch("ahead")
    made.branch("ahead").append(rows(4))
    return made


def on(table: Table, text: str) -> Any:
    return bind(sql_text.parse(text), table.schema.fields)


def check(table: Table, operation: Operation) -> None:
    doors.view(table).check(operation)


def paths(table: Table, dt: str) -> tuple[str, ...]:
    return tuple(file["path"] for file in table.inspect.files().to_pylist() if f"dt={dt}/" in file["path"])


def last(table: Table) -> int:
    made = table.current_snapshot()
    assert made is not None
    return made.id


def test_nothing_can_be_done_to_a_table_that_is_gone():
    store = MemoryFiles()
    with pytest.raises(NotFound, match="the table no longer exists"):
        Iceberg().load(store, 0).check(Append(request=REQUEST, added=()))


@pytest.mark.parametrize(
    ("operation", "error", "says"),
    [
        (Overwrite(request=REQUEST, added=(IN_B,), scope="dt = 'a'"), OutsideScope, "'dt': 'b'"),
        (
            Overwrite(request=REQUEST, added=(IN_B, replace(IN_B, partition=(None,))), scope="dt = 'a'"),
            OutsideScope,
            "rows of 2 partitions .*None",
        ),
        (Overwrite(request=REQUEST, added=(IN_A,), scope="dt = 'a'"), None, ""),
        (Overwrite(request=REQUEST, added=(IN_B,)), None, ""),
        (Rewrite(request=REQUEST, removed=("data/none",), added=()), Conflict, "1 are no longer in the table"),
        (
            RowDelta(request=REQUEST, added=(), removed=(NO_FILE,), kind="update"),
            Conflict,
            "1 are no longer in the table",
        ),
        (
            RowDelta(request=REQUEST, added=(replace(IN_A, replaces=(NO_FILE,)),), kind="merge"),
            Conflict,
            "1 are no longer",
        ),
        (RowDelta(request=REQUEST, added=(), removed=(NO_FILE,), kind="delete"), None, ""),
        (Restore(request=REQUEST, snapshot_id=5), NotFound, "snapshot 5 no longer exists"),
        (SetTag(request=REQUEST, name="7", snapshot_id=5), InvalidInput, "a number"),
        (SetTag(request=REQUEST, name="ahead", snapshot_id=5), InvalidInput, "a branch of that name"),
        (SetTag(request=REQUEST, name="kept", snapshot_id=5), AlreadyExists, "a tag 'kept'"),
        (SetTag(request=REQUEST, name="new", snapshot_id=5), NotFound, "snapshot 5 no longer exists"),
        (DropTag(request=REQUEST, name="kept"), None, ""),
        (DropTag(request=REQUEST, name="new"), NotFound, "no tag 'new'"),
        (CreateBranch(request=REQUEST, name="7", snapshot_id=5), InvalidInput, "a number"),
        (CreateBranch(request=REQUEST, name="ahead", snapshot_id=5), AlreadyExists, "a branch 'ahead'"),
        (CreateBranch(request=REQUEST, name="main", snapshot_id=5), AlreadyExists, "a branch 'main'"),
        (CreateBranch(request=REQUEST, name="new", snapshot_id=5), NotFound, "snapshot 5 no longer exists"),
        (DropBranch(request=REQUEST, name="main"), InvalidInput, "is the table itself"),
        (DropBranch(request=REQUEST, name="new"), NotFound, "new"),
        (DropBranch(request=REQUEST, name="ahead"), None, ""),
        (FastForward(request=REQUEST, to="ahead"), None, ""),
        (FastForward(request=REQUEST, to="new"), NotFound, "new"),
        (DropSnapshots(request=REQUEST, snapshots=(5,)), None, ""),
        (
            RowDelta(request=REQUEST, added=(), kind="delete", isolation="none"),
            UnsupportedFeature,
            "'serializable' or 'snapshot'",
        ),
        (RowDelta(request=REQUEST, added=(), kind="delete", isolation="snapshot"), None, ""),
        (RowDelta(request=REQUEST, added=(), kind="append", isolation=None, read_at=5), None, ""),
        (
            RowDelta(request=REQUEST, added=(), kind="compact", isolation=None, read_at=5),
            Conflict,
            "history .* not complete",
        ),
    ],
)
def test_what_is_asked_of_a_table_as_it_is(table: Table, operation: Any, error: Any, says: str):
    if isinstance(getattr(operation, "scope", ALWAYS), str):
        operation = replace(operation, scope=on(table, operation.scope))
    if error is None:
        check(table, operation)
    else:
        with pytest.raises(error, match=says):
            check(table, operation)


@pytest.mark.parametrize(
    "make",
    [
        lambda r: Append(request=r, added=(IN_A,)),
        lambda r: Adopt(request=r, added=(IN_A,)),
        lambda r: Overwrite(request=r, added=(IN_A,)),
        lambda r: Rewrite(request=r, removed=(), added=(IN_A,)),
        lambda r: RowDelta(request=r, added=(IN_A,)),
    ],
)
def test_rows_of_an_earlier_partitioning_are_refused(table: Table, make: Callable[[Request], Operation]):
    request = replace(REQUEST, partitioning_id=doors.view(table).state.spec.id)
    check(table, make(request))
    table.evolve([evolution.DropPartitionField("dt")])
    table.evolve([evolution.AddPartitionField(identity("id").fields[0])])
    with pytest.raises(Conflict, match="changed the table's partitions"):
        check(table, make(request))
    with pytest.raises(Conflict, match="changed the table's partitions"):  # Two values, of one field.
        check(table, Append(request=REQUEST, added=(replace(IN_A, partition=("a", "b")),)))


def test_deletes_may_be_of_an_earlier_partitioning(table: Table):
    request = replace(REQUEST, partitioning_id=doors.view(table).state.spec.id)
    table.evolve([evolution.DropPartitionField("dt")])
    check(table, RowDelta(request=request, added=(replace(IN_A, spec_id=0, content=Content.POSITION_DELETES),)))


@pytest.mark.parametrize("kind", ["overwrite", "rewrite"])
def test_a_pin_minds_rows_that_come_or_go_inside_the_scope_alone(table: Table, kind: str):
    def pinned(to: int) -> Operation:
        scope = on(table, "dt = 'a'")
        if kind == "overwrite":
            return Overwrite(request=REQUEST, added=(), scope=scope, pinned_to=to)
        return Rewrite(request=REQUEST, removed=(), added=(), kind="overwrite", scope=scope, pinned_to=to)

    read = last(table)
    table.append(rows(5, dt="b"))
    check(table, pinned(read))
    table.append(rows(6))
    with pytest.raises(Conflict, match=rf"\(append\) changed 1 files in .*after snapshot {read}"):
        check(table, pinned(read))
    read = last(table)
    table.compact(full=True)
    check(table, pinned(read))
    table.overwrite(rows(), partition={"dt": "a"})
    with pytest.raises(Conflict, match="changed 1 files"):
        check(table, pinned(read))
    table.expire_snapshots(retain_last=1)
    with pytest.raises(Conflict, match=f"pinned to snapshot {read}, but history .* not complete"):
        check(table, pinned(read))


def test_a_pin_before_the_first_snapshot():
    table = Table("d.t", MemoryFiles(), Iceberg())
    create(table, SCHEMA)
    check(table, Overwrite(request=REQUEST, added=(), pinned_to=0))
    table.append(rows(1))
    with pytest.raises(Conflict, match="changed 1 files in the table after snapshot 0"):
        check(table, Overwrite(request=REQUEST, added=(), pinned_to=0))
    table.append(rows(2))
    table.expire_snapshots(retain_last=1)
    with pytest.raises(Conflict, match="not complete"):
        check(table, Overwrite(request=REQUEST, added=(), pinned_to=0))


def test_a_branch_goes_forward_to_what_its_own_snapshots_led_to(table: Table):
    with pytest.raises(Conflict, match="is not an ancestor"):
        check(table, FastForward(request=replace(REQUEST, branch="ahead"), to="main"))
    table.append(rows(5))
    with pytest.raises(Conflict, match="did not lead to 'ahead'"):
        check(table, FastForward(request=REQUEST, to="ahead"))


def test_a_snapshot_that_is_in_use_again_does_not_expire(table: Table):
    with pytest.raises(Conflict, match="is in use again"):
        check(table, DropSnapshots(request=REQUEST, snapshots=(last(table), 5)))
    fresh = Table("d.t", MemoryFiles(), Iceberg())
    create(fresh, SCHEMA)
    check(fresh, DropSnapshots(request=REQUEST, snapshots=(5,)))


def test_files_that_are_in_the_table_are_not_adopted_again(table: Table):
    again = replace(IN_A, path=paths(table, "a")[0])
    with pytest.raises(AlreadyExists, match="1 of 2 files are in the table already"):
        check(table, Adopt(request=REQUEST, added=(IN_A, again)))
    check(table, Adopt(request=REQUEST, added=(IN_A, again), may_repeat=True))
    check(table, Adopt(request=REQUEST, added=(IN_A,)))


@pytest.mark.parametrize("kind", ["compact", "delete", "update", "merge", "overwrite"])
def test_a_rewrite_minds_deletes_on_what_it_removes(table: Table, kind: str):
    """Also where it does not know what was read; an append since is nothing to it."""
    read = last(table)
    located = {dt: tuple(map(doors.store(table).location, paths(table, dt))) for dt in "ab"}

    def rewrite(dt: str, read_at: int | None) -> Operation:
        return Rewrite(request=REQUEST, removed=located[dt], added=(), kind=kind, read_at=read_at)

    table.append(rows(9))
    table.delete("id = 1")
    for read_at in (read, None):
        with pytest.raises(Conflict, match="deleted rows"):
            check(table, rewrite("a", read_at))
        check(table, rewrite("b", read_at))
    check(table, rewrite("a", last(table)))


@pytest.mark.parametrize("kind", ["delete", "update", "merge"])
@pytest.mark.parametrize("level", ["snapshot", "serializable"])
def test_what_a_change_by_row_minds(table: Table, kind: str, level: str):
    read, file = last(table), doors.store(table).location(paths(table, "a")[0])

    def change(condition: str) -> Operation:
        return RowDelta(
            request=REQUEST,
            added=(),
            referenced=(file,),
            read_at=read,
            condition=on(table, condition),
            kind=kind,
            isolation=level,
        )

    table.append(rows(9))
    if level == "serializable":
        with pytest.raises(
            Conflict, match=rf"{kind} \(.*'a'\)+: snapshot \d+ added data files in which rows may satisfy"
        ):
            check(table, change("dt = 'a'"))
    else:
        check(table, change("dt = 'a'"))
    check(table, change("dt = 'b'"))
    table.delete("id = 1")
    if kind == "delete":
        check(table, change("id = 2000"))
    else:
        with pytest.raises(Conflict, match="added delete files"):
            check(table, change("dt = 'a' and id < 9"))
    table.compact(full=True)
    with pytest.raises(
        Conflict, match="replaced a data file" if kind == "delete" else "removed a data file|added files"
    ):
        check(table, change("dt = 'a' and id < 9"))


def test_delete_files_go_with_an_overwrite_of_their_partition(table: Table):
    table.delete("id = 1")
    view = doors.view(table)
    for dt, count in (("a", 1), ("b", 0)):
        assert len(conflict.useless(doors.store(table), view.state, on(table, f"dt = '{dt}'"))) == count


def test_an_overwrite_leaves_files_of_an_earlier_partition_spec_alone(table: Table):
    """Their spec does not say whether they lie inside the scope."""
    table.delete("id = 1")
    table.evolve([evolution.DropPartitionField("dt"), evolution.AddPartitionField(identity("id").fields[0])])
    view, scope = doors.view(table), on(table, "id = 2")
    assert len(conflict.useless(doors.store(table), view.state, scope)) == 0
    with pytest.raises(UnsupportedFeature, match="files under an earlier partition spec"):
        conflict.overwritten(doors.store(table), view.state, scope)


def test_only_a_compaction_counts_as_of_what_it_read(table: Table):
    read = last(table)
    number = conflict.starting_sequence(
        doors.view(table).state, Rewrite(request=REQUEST, removed=(), added=(), kind="compact", read_at=read)
    )
    assert number == 2
    state = doors.view(table).state
    snapshots = [{k: v for k, v in s.items() if k != "sequence-number"} for s in state.document["snapshots"]]
    old = replace(state, document={**state.document, "snapshots": snapshots})  # As version 1 has them.
    compaction = Rewrite(request=REQUEST, removed=(), added=(), kind="compact", read_at=read)
    assert conflict.starting_sequence(old, compaction) == 0
    for other in (
        Rewrite(request=REQUEST, removed=(), added=(), kind="delete", read_at=read),
        Rewrite(request=REQUEST, removed=(), added=(), kind="compact"),
        Rewrite(request=REQUEST, removed=(), added=(), kind="compact", read_at=5),
    ):
        assert conflict.starting_sequence(doors.view(table).state, other) is None
