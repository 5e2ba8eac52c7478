"""Row ids of Paimon tables, and columns of the same rows in several files."""

import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat.engines import worker
from lakeformat.lake import Paimon
from lakeformat.maintenance import sweep
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table

GOLDEN = Path(__file__).parents[1] / "golden" / "evolution"
# As pypaimon reads its table: b was set for ids 1, 3 and 6, then a for 1 and 2, then b for 1 again.
ROWS = [(0, "a0", 0), (1, "A1", 101), (2, None, 2), (3, "a3", 300), (4, "a4", 4)]
MORE = [(5, "a5", 5), (6, "a6", 600), (7, "a7", 7), (8, "a8", 8)]


def golden(name: str) -> Table:
    store = MemoryFiles("file:/golden/db.db/t")
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as packed:
        for each in packed.namelist():
            store.write(each, packed.read(each))
    return Table("t", store, Paimon())


def rows(table: Table, columns=("id", "a", "b"), **how) -> list[tuple]:
    found = table.scan(columns=list(columns), **how).to_arrow()
    return sorted(zip(*(each.to_pylist() for each in found.columns), strict=True))


def test_columns_of_several_files_are_put_together_by_row_id():
    table = golden("pypaimon")
    assert rows(table) == ROWS + MORE
    assert table.scan().count() == 9
    assert rows(table, ("id", "_ROW_ID", "_SEQUENCE_NUMBER")) == [(i, i, 5 if i < 5 else 3) for i in range(9)]
    assert rows(table, snapshot_id=3)[1] == (1, "a1", 100)
    assert rows(table, ("b",)) == sorted((b,) for _, _, b in ROWS + MORE)


@pytest.mark.parametrize(
    ("where", "ids"),
    [("b = 600", [6]), ("b = 6", []), ("b >= 100", [1, 3, 6]), ("a = 'A1'", [1]), ("a IS NULL", [2]), ("id = 3 AND b = 300", [3]),
     ("dt = 'y' AND b < 10", [5, 7, 8]), ("id > 7", [8]), ("b = 101 AND a = 'a1'", [])],
)  # fmt: skip
def test_bounds_of_values_that_newer_files_hold_leave_nothing_out(where, ids):
    table = golden("pypaimon")
    assert [id for (id,) in rows(table, ("id",), where=where)] == ids
    assert table.scan(where=where).count() == len(ids)


def test_files_of_the_same_rows_are_read_in_step_whatever_their_batches():
    table = golden("pypaimon")
    (task,) = (each for each in table.scan(["a", "b"], where="dt = 'x'").plan() if any(each.beside))
    found = pa.Table.from_batches(worker.read(table._store, task, 2))
    assert found["b"].to_pylist() == [b for _, _, b in ROWS]
    path = task.beside[0][0].paths[0]
    table._store.delete([path])
    assert sweep.missing(table._store, table._view()) == [path]


def test_changes_of_columns_are_the_rows_before_and_after():
    table = golden("pypaimon")
    found = table.changes(2, 3, columns=["id", "b"], where="id < 2 OR id = 6").to_arrow().to_pylist()
    assert [(each["_row_kind"], each["id"], each["b"]) for each in found] == [
        ("-D", 0, 0), ("-D", 1, 1), ("-D", 6, 6), ("+I", 0, 0), ("+I", 1, 100), ("+I", 6, 600),
    ]  # fmt: skip
    assert table.changes(0, 2).to_arrow()["_row_kind"].to_pylist() == ["+I"] * 9
