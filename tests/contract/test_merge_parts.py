"""Merging a table part by part does what merging it at once does, and leaves as few files."""

import random

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.row_level import merge_parts
from lakeformat.model.work import FilesTask
from tests.contract.in_parts import Workers, by_parts
from tests.contract.merging import random_case
from tests.contract.test_merge import MODES, SCHEMA, SOURCE, row, rows_of, run_case, values


@pytest.fixture
def workers(monkeypatch):
    found = Workers()
    monkeypatch.setattr(ArrowEngine, "stage", by_parts(ArrowEngine.stage, found))
    return found


def made(tmp_path, mode, partition_by=("dt",), **properties):
    format = mode.partition(" ")[0]
    return Lake(tmp_path).create_table(
        "shop.t", SCHEMA, format=format, partition_by=list(partition_by), properties={**MODES[mode], **properties}
    )


def table_of(rows, schema=SOURCE):
    return pa.Table.from_pylist(rows, schema)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_merge_by_parts_does_what_a_merge_row_by_row_does(tmp_path, workers, mode, seed):
    rng = random.Random(f"parts {seed}")
    lake = Lake(tmp_path)
    for number in range(5):
        table = lake.create_table(
            f"a.t{number}",
            SCHEMA,
            format=mode.partition(" ")[0],
            partition_by=rng.choice([[], ["dt"]]),
            properties=MODES[mode],
        )
        run_case(table, random_case(rng), table_of)
        assert not list(tmp_path.rglob("merge-*"))
    assert {name for name, _ in workers.worked} >= {"_decide", "_settle"}


@pytest.mark.parametrize("way", ["one worker", "spread", "several workers"])
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_move_are_written_where_they_belong(tmp_path, workers, monkeypatch, mode, way):
    t = made(tmp_path, mode)
    for start in (0, 30):
        t.append(table_of([row(i, i, "abc"[i % 3]) for i in range(start, start + 30)], SCHEMA))
    if way != "one worker":
        monkeypatch.setattr(merge_parts, "LOOSE_BYTES", 1)
        monkeypatch.setattr(merge_parts, "_ASIDE_BYTES", 1)
    if way == "several workers":
        monkeypatch.setattr(Workers, "spread", lambda *_: None)
    source = [row(i, 100 + i, "d" if i % 2 else "abc"[i % 3], op="u") for i in range(0, 80, 5)]
    t.merge_into(table_of(source), on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()
    known = {i: row(i, i, "abc"[i % 3]) for i in range(60)}
    known |= {s["id"]: {name: s[name] for name in SCHEMA.names} for s in source}
    assert rows_of(t) == sorted(known.values(), key=str)
    assert ("spread" in [name for name, _ in workers.worked]) == (way == "spread")
    settled = [count for name, count in workers.worked if name == "_settle"]
    assert settled == [{"one worker": 1, "spread": 1}.get(way, settled[0])]
    if way == "several workers":
        assert settled[0] > 1


def test_rows_that_stay_are_written_by_the_worker_that_read_them(tmp_path, workers):
    t = made(tmp_path, "iceberg")
    for start in range(0, 40, 10):
        t.append(table_of([row(i, i, "ab"[i % 2]) for i in range(start, start + 10)], SCHEMA))
    assert len(t.inspect.files()) == 8
    source = [row(i, -i, "ab"[i % 2], op="u") for i in range(40)]
    t.merge_into(table_of(source), on="t.id = s.id").when_matched().update_all().merge()
    assert values(t) == {i: -i for i in range(40)}
    assert [name for name, _ in workers.worked] == ["_decide", "_write"]
    assert len(t.inspect.files()) == 4  # Three parts, of which the second has files of both partitions.


def test_files_of_an_earlier_partitioning_come_to_few_files_of_the_new_one(tmp_path, workers):
    t = made(tmp_path, "iceberg", ())
    for start in range(0, 40, 10):
        t.append(table_of([row(i, i, "abcde"[i % 5]) for i in range(start, start + 10)], SCHEMA))
    t.alter().add_partition_field("dt").commit()
    t.append(table_of([row(50, 50, "a")], SCHEMA))
    source = [row(i, -i, "x", op="u") for i in range(60)]
    t.merge_into(table_of(source), on="t.id = s.id").when_matched().update({"v": "s.v"}).merge()
    assert values(t) == {i: -i for i in [*range(40), 50]}
    folders = [path.rpartition("/")[0].rpartition("=")[2] for path in t.inspect.files()["path"].to_pylist()]
    assert sorted(folders) == ["a", "a", "b", "c", "d", "e"]


def test_nothing_is_inserted_where_every_row_of_the_source_was_matched(tmp_path, workers):
    t = made(tmp_path, "iceberg")
    t.append(table_of([row(i, i, "abc"[i % 3]) for i in range(30)], SCHEMA))
    for ids in ([3, 4, 5, 20], [3, 4, 5, 40]):
        workers.worked.clear()
        chain = t.merge_into(table_of([row(i, -i, "abc"[i % 3], op="u") for i in ids]), on="t.id = s.id")
        chain.when_matched().update_all().when_not_matched().insert_all().merge()
        assert ("_settle" in [name for name, _ in workers.worked]) == (40 in ids)
    assert values(t) == {**{i: i for i in range(30)}, **{i: -i for i in (3, 4, 5, 20, 40)}}


def test_of_the_source_s_rows_of_a_key_every_worker_takes_the_last(tmp_path, workers):
    t = Lake(tmp_path).create_table("i.t", SCHEMA, format="iceberg", partition_by=["dt"], primary_key=["id", "dt"])
    t.append(table_of([row(i, i, "ab"[i % 2]) for i in range(20)], SCHEMA))
    t.upsert(table_of([row(i % 25, 1000 * n + i, "ab"[i % 25 % 2]) for n in range(3) for i in range(25)], SCHEMA))
    assert values(t) == {i: 2000 + i for i in range(25)}


def test_several_rows_of_the_source_for_one_row_are_shown_and_leave_nothing(tmp_path, workers):
    t = made(tmp_path, "iceberg")
    t.append(table_of([row(i, i, "ab"[i % 2]) for i in range(20)], SCHEMA))
    before = sorted(tmp_path.rglob("*.parquet"))
    twice = table_of([row(7, 1, op="u"), row(8, 1, op="u"), row(7, 2, op="u")])
    with pytest.raises(InvalidInput, match=r"more than one row of the source.*'t\.id': 7.*one row for each id"):
        t.merge_into(twice, on="t.id = s.id").when_matched().update_all().merge()
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_a_position_delete_file_applies_to_all_parts_where_it_is_one_a_partition(tmp_path, workers):
    granularity = {"write.delete.granularity": "partition"}
    t = made(tmp_path, "iceberg merge-on-read", **granularity)
    for start in range(0, 40, 10):
        t.append(table_of([row(i, i, "ab"[i % 2]) for i in range(start, start + 10)], SCHEMA))
    t.merge_into(table_of([row(i, op="d") for i in range(0, 40, 4)]), on="t.id = s.id").when_matched().delete().merge()
    assert values(t) == {i: i for i in range(40) if i % 4}
    assert ("_mark", 1) in workers.worked
    assert "_settle" not in [name for name, _ in workers.worked]
    deletes = {by.path for task in t.scan().plan() for delete in task.deletes for by in delete}
    assert len(deletes) == 1


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_keep_their_ids_wherever_they_go(tmp_path, workers, mode):
    properties = {"format-version": "3", "write.merge.mode": mode, "write.delete.mode": "merge-on-read"}
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    for start in (0, 20):
        t.append(table_of([row(i, i, "ab"[i % 2]) for i in range(start, start + 20)], SCHEMA))
    t.delete("id = 6")

    def ids():
        found = t.scan(columns=["id", "_row_id", "_last_updated_sequence_number"]).to_arrow().to_pylist()
        return {each["id"]: (each["_row_id"], each["_last_updated_sequence_number"]) for each in found}

    before = ids()
    source = [row(i, -i, "c" if i == 3 else "ab"[i % 2], op="u") for i in (3, 6, 8, 30, 99)]
    t.merge_into(table_of(source), on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()
    after = ids()
    assert len({row_id for row_id, _ in after.values()}) == 41
    assert {i: row_id for i, (row_id, _) in after.items() if i not in (6, 99)} == {i: r for i, (r, _) in before.items()}
    assert {i for i, (_, updated) in after.items() if updated == 4} == {3, 6, 8, 30, 99}
    deletes = [by for task in t.scan().plan() for delete in task.deletes for by in delete]
    assert all(by.content == "deletion_vectors" for by in deletes)
    assert values(t)[8] == -8
    t.merge_into(table_of([row(9, op="d")]), on="t.id = s.id").when_matched().delete().merge()
    assert ids() == {i: each for i, each in after.items() if i != 9}


def test_a_table_is_divided_by_size_into_a_part_for_each_worker():
    def task(size, partition):
        return FilesTask((f"f{size}-{partition}",), (1,), (size,), "parquet", (), partition=(partition,))

    some = [task(1 + i, "ab"[i % 2]) for i in range(7)]
    assert [len(part.tasks) for part in merge_parts.divided(some, 3)] == [2, 3, 2]
    assert [t.partition for part in merge_parts.divided(some, 3) for t in part.tasks] == [("a",)] * 4 + [("b",)] * 3
    assert len(merge_parts.divided(some, 100)) == 7
    assert merge_parts.divided([], 3) == []
    large = [task(100 << 20, "a") for _ in range(10)]
    assert [len(part.tasks) for part in merge_parts.divided(large, 1)] == [2, 2, 2, 2, 2]
    uneven = [task(250 << 20, "a"), *(task(1 << 20, "b") for _ in range(20))]
    assert [len(part.tasks) for part in merge_parts.divided(uneven, 2)] == [1, 20]


def test_columns_of_the_same_rows_are_written_part_by_part(tmp_path, workers):
    properties = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
    t = Lake(tmp_path).create_table("shop.t", SCHEMA, partition_by=["dt"], properties=properties)
    for start in (0, 10):
        t.append(table_of([row(i, i, "ab"[i % 2]) for i in range(start, start + 10)], SCHEMA))
    ids = dict(zip(*(t.scan(["id", "_ROW_ID"]).to_arrow()[n].to_pylist() for n in ("id", "_ROW_ID")), strict=True))
    source = table_of([row(i, 100 + i, "a") for i in (1, 2, 3, 12, 30)], SCHEMA)
    asked = t.merge_into(source, "t.id = s.id").when_matched("t.id = 2").delete()
    made = asked.when_matched("t.id < 12").update({"v": "s.v"}).when_not_matched().insert_all().merge()
    found = {r["id"]: (r["v"], r["_ROW_ID"]) for r in t.scan(["id", "v", "_ROW_ID"]).to_arrow().to_pylist()}
    assert found == {i: (100 + i if i in (1, 3, 30) else i, ids.get(i, 20)) for i in [*range(20), 30] if i != 2}
    assert sum(partition.files_removed for partition in made.partitions) == 0
    assert {name for name, _ in workers.worked} == {"_decide", "_write_columns", "_settle", "_mark"}
