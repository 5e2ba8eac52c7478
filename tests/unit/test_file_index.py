"""File indexes of Paimon tables: what they leave out, and that they go with their files."""

import pytest

from lakeformat.codec import file_index
from lakeformat.errors import CorruptFile
from lakeformat.lake import Paimon
from lakeformat.table import Table
from tests.golden import unzipped

NAMES = ["embedded", "beside"]  # In the manifest, and in files beside the data files.


def golden(name: str) -> Table:
    return Table("t", unzipped(f"file_index/{name}.zip"), Paimon())


def literal(value) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'" if isinstance(value, str) else f"DATE '{value}'"


def files(table: Table, where: str) -> int:
    return sum(len(task.paths) for task in table.scan(where=where).plan())


@pytest.mark.parametrize("name", NAMES)
def test_files_that_hold_none_of_the_values_are_left_out(name):
    """Java 1.3.1 kept no bounds of these columns, and bloom filters of all."""
    table = golden(name)
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == 18
    for row in rows[::4]:
        for column, value in row.items():
            where = f"{column} = {literal(value)}"
            assert table.scan(where=where).to_arrow().to_pylist() == [row], where
            assert files(table, where) == 1, where
    first, last = rows[0], rows[-1]
    assert files(table, f"a IN ({literal(first['a'])}, {literal(last['a'])}, 'none')") == 2
    assert files(table, f"id = {first['id']} AND b = {last['b']}") == 0
    assert files(table, f"id = {first['id']} OR b = {last['b']}") == 3
    assert [files(table, w) for w in ("b > 0", "a IS NULL", "a LIKE 'x%'", "id <=> NULL")] == [3, 3, 3, 3]
    assert table.scan(where="b = 1").count() == 0


def test_an_index_that_is_lost_leaves_nothing_out_and_a_damaged_one_is_an_error():
    table = golden("beside")
    path = next(each.path for each in table._store.list("") if each.path.endswith(".index"))
    table._store.delete([path])
    assert files(Table("t", table._store, Paimon()), "b = 1") == 1
    for damaged in (b"", b"no index of any kind", table._store.read(path.replace(".index", ""))):
        table._store.write(path, damaged)
        with pytest.raises(CorruptFile, match=r"\.index"):
            Table("t", table._store, Paimon()).scan(where="b = 1").to_arrow()


def test_index_files_stay_with_their_files_and_go_with_them():
    table = golden("beside")

    def indexes() -> set[str]:
        return {each.path for each in table._store.list("") if each.path.endswith(".index")}

    before = indexes()
    assert len(before) == 3
    table.remove_orphan_files(older_than="2100-01-01")
    table.alter().rename_column("b", "c").add_column("b", "int").commit()
    assert indexes() == before
    assert files(table, "c = -7") == 1
    assert files(table, "b = -7") == 0  # The column is younger than all files.
    table.delete("c = -7")
    assert table.scan().count() == 17
    assert files(table, "c = 1") == 1  # What was written again has no index, and no bounds.
    table.compact(full=True)
    assert indexes() == before
    table.expire_snapshots(retain_last=1, older_than="2100-01-01")
    assert indexes() == set()
    assert table.scan().count() == 17


def test_texts_are_hashed_as_by_xxhash64():
    found = file_index.hash_bytes([b"", b"a", b"Nobody inspects the spammish repetition"]).tolist()
    assert found == [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0xFBCEA83C8A378BF1]
