"""Iceberg tables of version 3, on either engine: rows keep their ids whatever changes them, and deletes are vectors."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import Lake, NotFound

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
MODES = ("copy-on-write", "merge-on-read")
ROW_ID, UPDATED = "_row_id", "_last_updated_sequence_number"


ENGINES = ("arrow", pytest.param("spark", marks=pytest.mark.spark))
BY_JOIN = pytest.param("spark by join", marks=pytest.mark.spark)  # As Spark merges sources that are not small.


@pytest.fixture(params=ENGINES)
def session(request):
    if request.param == "spark by join":
        request.getfixturevalue("monkeypatch").setattr("lakeformat.engines.spark.merge._PART_BYTES", -1)
    return request.getfixturevalue("spark") if request.param.startswith("spark") else None


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def written(mode, version="3"):
    return {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")} | {"format-version": version}


@pytest.fixture
def table(tmp_path, mode):
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=written(mode))
    for start in (0, 10):
        t.append(rows(range(start, start + 10)))
    return t


def rows(ids, v="v"):
    return pa.table({"id": list(ids), "v": [v] * len(ids), "dt": ["ab"[i % 2] for i in ids]}, schema=SCHEMA)


def lineage(table):
    found = table.scan(columns=["id", ROW_ID, UPDATED]).to_arrow().to_pylist()
    by_id = {row["id"]: (row[ROW_ID], row[UPDATED]) for row in found}
    assert len(by_id) == len(found)
    assert len({row_id for row_id, _ in by_id.values()}) == len(by_id), by_id
    return by_id


def sequence(table):
    return table.inspect.snapshots()["sequence_number"].to_pylist()[-1]


def vectors(table):
    """(data files that have one, delete files), by metadata alone."""
    deletes = [by for task in table.scan().plan() for delete in task.deletes for by in delete]
    return len(deletes), {by.content for by in deletes}


def given(session, data):
    return data if session is None else session.createDataFrame(data.to_pylist(), "id long, v string, dt string")


@pytest.mark.parametrize("session", [*ENGINES, BY_JOIN], indirect=True)
def test_a_merge_keeps_the_ids_of_rows_that_were_there(table, session):
    before = lineage(table)
    assert sorted(row_id for row_id, _ in before.values()) == list(range(20))
    source = given(session, rows([1, 3, 12, 100], "new"))
    chain = table.merge_into(source, on="t.id = s.id").when_matched("s.id = 3").delete()
    chain.when_matched().update_all().when_not_matched().insert_all().merge()
    at, after = sequence(table), lineage(table)
    inserted = after.pop(100)
    assert inserted[0] >= 20
    assert inserted[1] == at
    assert after == {
        id: (row_id, at if id in (1, 12) else updated) for id, (row_id, updated) in before.items() if id != 3
    }
    assert {row["v"] for row in table.scan(where="id in (1, 12, 100)").to_arrow().to_pylist()} == {"new"}
    table.compact(full=True, spark=session)
    assert lineage(table) == {**after, 100: inserted}


def test_rows_that_only_come_are_numbered_anew(table):
    before = lineage(table)
    table.merge_into(rows([5, 200]), on="t.id = s.id").when_not_matched().insert_all().merge()
    after = lineage(table)
    assert {id: told for id, told in after.items() if id != 200} == before
    files = table.inspect.files()["path"].to_pylist()
    assert len(files) == 5


def test_a_row_that_moves_to_another_partition_keeps_its_id(table):
    before = lineage(table)
    table.update({"dt": "'c'"}, where="id = 4")
    source = pa.table({"id": [7], "v": ["m"], "dt": ["c"]}, schema=SCHEMA)
    table.merge_into(source, on="t.id = s.id").when_matched().update({"dt": "s.dt"}).merge()
    after = lineage(table)
    assert {id: row_id for id, (row_id, _) in after.items()} == {id: row_id for id, (row_id, _) in before.items()}
    assert (after[4][1], after[7][1]) == (sequence(table) - 1, sequence(table))
    assert [row["id"] for row in table.scan(where="dt = 'c'").to_arrow().sort_by("id").to_pylist()] == [4, 7]


def test_rows_of_a_merge_that_does_not_match_by_source(table):
    before = lineage(table)
    source = rows([1, 2, 3])
    chain = table.merge_into(source, on="t.id = s.id").when_not_matched_by_source("t.id < 6").update({"v": "'gone'"})
    chain.when_not_matched_by_source("t.id = 19").delete().merge()
    at = sequence(table)
    assert lineage(table) == {
        id: (row_id, at if id in (0, 4, 5) else updated) for id, (row_id, updated) in before.items() if id != 19
    }


def test_upserts_keep_ids(tmp_path, mode):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    t = Lake(tmp_path).create_table("d.u", schema, format="iceberg", primary_key=["id"], properties=written(mode))
    t.append(pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=schema))
    before = lineage(t)
    data = pa.table({"id": [2, 3], "v": ["B", "c"]})
    t.upsert(data)
    after = lineage(t)
    assert (after[1], after[2]) == (before[1], (before[2][0], sequence(t)))
    assert after[3][0] >= 2


def test_lineage_is_read_where_it_is_asked_for_and_there(table, tmp_path, session):
    assert table.scan().to_arrow().column_names == SCHEMA.names
    found = table.scan(columns=[UPDATED, "v"], where="id = 11").to_arrow()
    assert found.to_pylist() == [{UPDATED: 2, "v": "v"}]
    if session is not None:
        row_ids = {row["id"]: row[ROW_ID] for row in table.scan(columns=["id", ROW_ID]).to_spark(session).collect()}
        assert row_ids == {id: row_id for id, (row_id, _) in lineage(table).items()}
    first = table.snapshots()[0].id
    assert table.scan(columns=[ROW_ID], snapshot_id=first).to_arrow().num_rows == 10
    old = Lake(tmp_path).create_table("d.old", SCHEMA, format="iceberg")
    old.append(rows(range(3)))
    with pytest.raises(NotFound, match="_row_id"):
        old.scan(columns=["id", ROW_ID])


@pytest.mark.parametrize("mode", ["merge-on-read"], indirect=True)
@pytest.mark.parametrize("session", [*ENGINES, BY_JOIN], indirect=True)
def test_vectors_take_in_the_ones_before(table, session):
    table.delete("id % 5 = 1", spark=session)
    assert vectors(table) == (4, {"deletion_vectors"})
    table.update({"v": "'u'"}, where="id in (0, 3)", spark=session)
    chain = table.merge_into(given(session, rows([2, 4, 300])), on="t.id = s.id").when_matched("s.id = 2").delete()
    chain.when_matched().update_all().when_not_matched().insert_all().merge()
    count, contents = vectors(table)
    assert contents == {"deletion_vectors"}
    assert count <= len(table.inspect.files())  # One vector for a data file at most.
    kept = [id for id in range(20) if id % 5 != 1 and id != 2] + [300]
    found = table.scan().to_arrow().sort_by("id")
    assert found["id"].to_pylist() == kept
    assert table.scan().count() == len(kept)
    assert table.rewrite_position_deletes(full=True, spark=session) is None  # There is nothing to gain.
    table.compact(full=True, spark=session)
    assert vectors(table) == (0, set())
    assert table.scan().to_arrow().sort_by("id") == found


def test_a_table_of_version_2_goes_on_as_version_3(tmp_path):
    mode = "merge-on-read"
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", properties=written(mode, "2"))
    t.append(rows(range(10)))
    t.append(rows(range(10, 20)))
    t.delete("id in (1, 2, 11)")
    assert vectors(t) == (2, {"position_deletes"})
    t.alter().set_properties({"format-version": "3"}).commit()
    assert lineage_or_null(t) == set()
    t.delete("id in (3, 12)")
    assert vectors(t) == (2, {"deletion_vectors"})
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [i for i in range(20) if i not in (1, 2, 3, 11, 12)]
    lineages = lineage(t)
    chain = t.merge_into(rows([4, 13], "m"), on="t.id = s.id").when_matched().update_all()
    chain.merge()
    after = lineage(t)
    assert {id: row_id for id, (row_id, _) in after.items()} == {id: row_id for id, (row_id, _) in lineages.items()}
    assert {id for id, (_, updated) in after.items() if updated == sequence(t)} == {4, 13}


def lineage_or_null(table):
    found = table.scan(columns=[ROW_ID]).to_arrow()[ROW_ID]
    return set(pc.drop_null(found).to_pylist())


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_changes_keeps_ids(tmp_path, seed):
    """A row's id is that which it came with, its number that of the snapshot that last changed it, by a plain dict."""
    chance = random.Random(seed)
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=written(MODES[0]))
    model: dict[int, list] = {}
    ids: dict[int, int] = {}
    for step in range(25):
        digit, low, changed, fresh = chance.randrange(5), chance.randrange(60), set(), set()
        match chance.choice(["append", "delete", "update", "merge", "compact", "mode"]):
            case "append":
                fresh = {i for i in range(low, low + 6) if i not in model}
                t.append(rows(sorted(fresh)))
            case "delete":
                t.delete(f"id % 5 = {digit} and id > {low}")
                model = {i: told for i, told in model.items() if not (i % 5 == digit and i > low)}
            case "update":
                t.update({"v": f"'{step}'"}, where=f"id % 5 = {digit}")
                changed = {i for i in model if i % 5 == digit}
            case "merge":
                chain = t.merge_into(rows(range(low, low + 5)), on="t.id = s.id").when_matched("t.id % 2 = 0").delete()
                chain.when_matched().update({"v": f"'{step}'"}).when_not_matched("s.id % 3 = 0").insert_all().merge()
                changed = {i for i in range(low, low + 5) if i in model and i % 2}
                fresh = {i for i in range(low, low + 5) if i not in model and i % 3 == 0}
                model = {i: told for i, told in model.items() if not (low <= i < low + 5 and i % 2 == 0)}
            case "compact":
                t.compact(full=True)
            case "mode":
                t.alter().set_properties(written(chance.choice(MODES))).commit()
        found = lineage(t)
        at = sequence(t) if t.snapshots() else None
        for i in changed | fresh:
            model[i] = at
        for i in fresh:
            assert found[i][0] not in ids.values(), (seed, step)
            ids[i] = found[i][0]
        assert found == {i: (ids[i], updated) for i, updated in model.items()}, (seed, step)
