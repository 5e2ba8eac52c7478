"""Primary keys without all partition columns: a key that comes again elsewhere is live once, whatever the merge engine."""

import random

import pyarrow as pa
import pytest

from lakeformat import Conflict, InvalidInput, Lake, OutsideScope, UnsupportedFeature
from tests.contract.meanwhile import before_commits

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("dt", pa.string())])
ENGINES = {
    "deduplicate": {},
    "partial-update": {},
    "aggregation": {"fields.n.aggregate-function": "sum"},
    "first-row": {},
}


def rows(*given, kinds=None):
    found = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)
    return found if kinds is None else found.append_column("rowkind", pa.array(kinds, pa.string()))


@pytest.fixture(params=["arrow", "spark"])
def frame(request):
    """Rows as the engine's own kind of frame."""
    if request.param == "arrow":
        return lambda data: data
    spark = request.getfixturevalue("spark")

    def make(data):
        types = {"id": "bigint", "v": "string", "n": "bigint", "dt": "string", "rowkind": "string"}
        names = ", ".join(f"{name} {types[name]}" for name in data.column_names)
        return spark.createDataFrame([tuple(row.values()) for row in data.to_pylist()], names)

    return make


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "warehouse"))


def make(lake, engine="deduplicate", name="d.t", **properties):
    given = {"merge-engine": engine, **ENGINES[engine], **properties}
    return lake.create_table(name, SCHEMA, format="paimon", partition_by=["dt"], primary_key=["id"], properties=given)


@pytest.fixture
def table(lake):
    return make(lake, **{"dynamic-bucket.target-row-num": "3"})


def held(table):
    """By key, the row that is live; no key is live twice."""
    found = table.scan().to_arrow().to_pylist()
    assert table.scan().count() == len(found)
    by_key = {row["id"]: tuple(row.values())[1:] for row in found}
    assert len(by_key) == len(found), sorted(found, key=str)
    return by_key


class Model:
    """What Paimon's assigner does, row by row: the old row is deleted, or the new one goes to it, or it is left out."""

    def __init__(self, engine):
        self.engine, self.rows = engine, {}

    def put(self, id, v, n, dt, kind="+I"):
        old = self.rows.get(id)
        if self.engine == "deduplicate":
            self.rows.pop(id, None)
            if kind in ("+I", "+U"):
                self.rows[id] = (v, n, dt)
        elif old is None:
            self.rows[id] = (v, n, dt)
        elif self.engine == "partial-update":
            self.rows[id] = (old[0] if v is None else v, old[1] if n is None else n, old[2])
        elif self.engine == "aggregation":
            total = old[1] if n is None else n if old[1] is None else old[1] + n
            self.rows[id] = (old[0] if v is None else v, total, old[2])


def random_rows(draw, count, engine):
    """Rows whose keys come several times, in several partitions; null is a partition too."""
    found, kinds = [], []
    for _ in range(count):
        value = None if draw.random() < 0.2 else f"v{draw.randrange(99)}"
        number = None if draw.random() < 0.2 else draw.randrange(9)
        found.append((draw.randrange(12), value, number, draw.choice(["a", "b", "c", None])))
        kinds.append("-D" if engine == "deduplicate" and draw.random() < 0.2 else draw.choice(["+I", "+U", None]))
    return found, kinds


MARKED = {"deletion-vectors.enabled": "true"}


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("engine", "more"),
    [*((name, {}) for name in ENGINES), *((name, MARKED) for name in ENGINES if name != "first-row")],
    ids=[*ENGINES, *(f"{name}, marked" for name in ENGINES if name != "first-row")],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_key_is_live_once_wherever_it_comes(lake, engine, more, seed):
    draw, model = random.Random(seed), Model(engine)
    t = make(lake, engine, **{"dynamic-bucket.target-row-num": "2"}, **more)
    for _ in range(6):
        given, kinds = random_rows(draw, draw.choice([1, 5, 20]), engine)
        t.upsert(rows(*given, kinds=kinds))
        for row, kind in zip(given, kinds, strict=True):
            model.put(*row, kind=kind or "+I")
        assert held(t) == model.rows
        if draw.random() < 0.3:
            t.compact(full=True)
            assert held(t) == model.rows


def both(engines, on_spark):
    """Each merge engine in process, and a few on Spark, which finds the rows elsewhere for all engines alike."""
    pairs = [*(("arrow", engine) for engine in engines), *(("spark", engine) for engine in on_spark)]
    return pytest.mark.parametrize(("frame", "engine"), pairs, indirect=["frame"])


@both(ENGINES, ["deduplicate", "aggregation"])
def test_engines_move_rows_alike(lake, spark, frame, engine):
    draw, model = random.Random(7), Model(engine)
    t = make(lake, engine, **{"dynamic-bucket.target-row-num": "2"})
    for _ in range(2):
        given, kinds = random_rows(draw, 30, engine)
        t.upsert(frame(rows(*given, kinds=kinds)))
        for row, kind in zip(given, kinds, strict=True):
            model.put(*row, kind=kind or "+I")
        assert held(t) == model.rows


def test_the_old_row_is_deleted_in_its_own_bucket(table):
    table.upsert(rows(*((i, "v", i, "a") for i in range(7))))
    assert sorted(table.inspect.files()["bucket"].to_pylist()) == [0, 1, 2]
    made = table.upsert(rows((5, "w", 5, "b")))
    assert (made.rows_added, made.files_added) == (2, 2)
    files = {(f["partition"], f["bucket"]): f["row_count"] for f in table.inspect.files().to_pylist()}
    assert len(files) == 4  # Six live ones in three buckets of one partition, and one in another.
    assert held(table)[5] == ("w", 5, "b")
    assert len(held(table)) == 7
    table.compact(full=True)
    counts = {(f["partition"], f["bucket"]): f["row_count"] for f in table.inspect.files().to_pylist()}
    assert counts == {("dt=a", 0): 3, ("dt=a", 1): 2, ("dt=a", 2): 1, ("dt=b", 0): 1}


def test_rows_change_by_row(table, spark):
    table.upsert(rows((1, "a", 1, "x"), (2, "b", 2, "x"), (3, "c", 3, "y"), (4, "d", 4, None)))
    assert table.delete("n = 2").rows_added == 1
    table.update({"dt": "'z'", "n": "n + 10"}, where="id in (1, 4)")
    assert held(table) == {1: ("a", 11, "z"), 3: ("c", 3, "y"), 4: ("d", 14, "z")}
    table.update({"dt": "case when id = 3 then null else dt end"}, spark=spark)
    table.update({"v": "'e'"}, where="id = 1")
    assert held(table) == {1: ("e", 11, "z"), 3: ("c", 3, None), 4: ("d", 14, "z")}
    source = rows((3, "m", 0, "q"), (4, "gone", 0, "q"), (9, "new", 0, "q"))
    merge = table.merge_into(source, on="t.id = s.id").when_matched("s.v = 'gone'").delete()
    merge.when_matched().update_all().when_not_matched().insert_all().merge()
    assert held(table) == {1: ("e", 11, "z"), 3: ("m", 0, "q"), 9: ("new", 0, "q")}
    table.merge_into(rows((3, "n", 1, "r")), on="t.id = s.id and t.dt = s.dt").when_not_matched().insert_all().merge()
    assert held(table)[3] == ("n", 1, "r")


def test_a_merge_moves_keys_and_an_empty_table_takes_all(lake, frame):
    t = make(lake)
    t.upsert(frame(rows((7, None, 1, "x"))))
    t.delete("id = 7")
    assert t.upsert(rows()) is None
    t.upsert(frame(rows(*((i, "v", i, "ab"[i % 2]) for i in range(6)))))
    merge = t.merge_into(frame(rows((3, "m", 0, "x"), (1, "gone", 0, "x"), (9, "new", 0, None))), on="t.id = s.id")
    merge = merge.when_matched("s.v = 'gone'").delete().when_matched().update_all().when_not_matched().insert_all()
    merge.when_not_matched_by_source("t.id = 5").update({"dt": "'y'"}).merge()
    wanted = {i: ("v", i, "ab"[i % 2]) for i in (0, 2, 4)} | {3: ("m", 0, "x"), 5: ("v", 5, "y"), 9: ("new", 0, None)}
    assert held(t) == wanted


def test_an_overwrite_takes_its_keys_from_other_partitions(table, frame):
    table.upsert(rows(*((i, "v", i, "ab"[i % 2]) for i in range(8))))
    made = table.overwrite_partitions(frame(rows((1, "w", 0, "a"), (20, "w", 0, "c"), (20, "x", 0, "a"))))
    assert made.kind == "overwrite"
    wanted = {i: ("v", i, "b") for i in (3, 5, 7)} | {1: ("w", 0, "a"), 20: ("x", 0, "a")}
    assert held(table) == wanted
    table.overwrite(frame(rows((3, "y", 0, "d"))), partition={"dt": "d"})
    wanted[3] = ("y", 0, "d")
    assert held(table) == wanted
    with pytest.raises(OutsideScope):
        table.overwrite(frame(rows((3, "y", 0, "a"))), partition={"dt": "d"})
    table.overwrite_partitions(frame(rows((1, "z", 0, "d"))), partitions=[{"dt": "d"}, {"dt": "a"}])
    wanted = {5: ("v", 5, "b"), 7: ("v", 7, "b"), 1: ("z", 0, "d")}
    assert held(table) == wanted
    table.drop_partitions([{"dt": "b"}])
    assert held(table) == {1: ("z", 0, "d")}
    table.overwrite(frame(rows((1, "all", 1, "n"))))
    assert held(table) == {1: ("all", 1, "n")}
    table.truncate()
    assert held(table) == {}


@both(["partial-update", "aggregation", "first-row"], ["first-row"])
def test_an_overwrite_is_refused_where_rows_elsewhere_cannot_go(lake, frame, engine):
    t = make(lake, engine)
    t.upsert(rows((1, "a", 1, "x"), (2, "b", 2, "y")))
    files = t.inspect.files().num_rows
    with pytest.raises(OutsideScope, match="1 rows have keys that exist in partitions that are not overwritten"):
        t.overwrite(frame(rows((1, "c", 1, "y"))), partition={"dt": "y"})
    assert t.inspect.files().num_rows == files
    t.overwrite(frame(rows((2, "c", 5, "y"))), partition={"dt": "y"})
    assert held(t) == {1: ("a", 1, "x"), 2: ("c", 5, "y")}


def test_a_key_moves_in_the_snapshot_that_marks_its_old_row(lake):
    t = make(lake, **MARKED)
    t.upsert(rows((1, "a", 1, "x"), (2, "b", 1, "x"), (3, "c", 1, "y")))
    made = t.upsert(rows((1, "moved", 2, "y"), (4, "d", 1, "z")))
    assert [snapshot.kind for snapshot in t.snapshots()] == ["append", "compact"] * 2
    assert {row["id"]: row["dt"] for row in t.scan(snapshot_id=made.id).to_arrow().to_pylist()} == {
        1: "x",
        2: "x",
        3: "y",
    }
    assert held(t) == {1: ("moved", 2, "y"), 2: ("b", 1, "x"), 3: ("c", 1, "y"), 4: ("d", 1, "z")}
    assert sum(t.inspect.files()["deleted_row_count"].to_pylist()) == 1  # Where it was.
    t.update({"dt": "'z'"}, where="id = 2")
    t.delete("id = 3")
    assert held(t) == {1: ("moved", 2, "y"), 2: ("b", 1, "z"), 4: ("d", 1, "z")}


def test_an_overwrite_takes_no_marked_row_elsewhere(lake, frame):
    t = make(lake, **MARKED)
    t.upsert(rows((1, "a", 1, "x"), (2, "b", 2, "y")))
    with pytest.raises(OutsideScope, match="only count once they are compacted"):
        t.overwrite_partitions(frame(rows((1, "c", 1, "y"))))
    assert held(t) == {1: ("a", 1, "x"), 2: ("b", 2, "y")}
    t.overwrite_partitions(frame(rows((2, "c", 5, "y"), (3, "d", 5, "y"))))
    t.overwrite_partitions(frame(rows((1, "e", 5, "y"))), partitions=[{"dt": "x"}, {"dt": "y"}])
    assert held(t) == {1: ("e", 5, "y")}
    t.overwrite(frame(rows((1, "f", 5, "z"), (7, "g", 5, "z"))), where="n = 5")
    assert held(t) == {1: ("f", 5, "z"), 7: ("g", 5, "z")}


def test_changes_include_the_move(lake):
    t = make(lake, **{"changelog-producer": "input"})
    t.upsert(rows((1, "a", 1, "x")))
    t.upsert(rows((1, "b", 2, "y")))
    found = [tuple(row.values()) for row in t.changes(1).to_arrow().to_pylist()]
    assert sorted(found) == [(1, "b", 2, "x", "-D"), (1, "b", 2, "y", "+I")]


@pytest.mark.parametrize("verb", ["upsert", "delete", "overwrite", "merge"])
def test_two_writers_never_leave_a_key_live_twice(table, lake, monkeypatch, verb):
    table.upsert(rows((1, "a", 1, "x"), (5, "far", 1, "x")))
    other = lake.table("d.t")

    def run():
        if verb == "upsert":
            table.upsert(rows((1, "ours", 1, "y"), (3, "ours", 1, "y")))
        elif verb == "delete":
            table.delete("id <= 3")
        elif verb == "merge":
            table.merge_into(rows((1, "ours", 1, "y")), on="t.id = s.id").when_matched().update_all().merge()
        else:
            table.overwrite(rows((1, "ours", 1, "y")), partition={"dt": "y"})

    def meanwhile(theirs):
        before_commits(monkeypatch, table, lambda: other.upsert(theirs))

    meanwhile(rows((1, "theirs", 1, "z")))
    with pytest.raises(Conflict):
        run()
    assert held(table)[1] == ("theirs", 1, "z")
    meanwhile(rows((77, "theirs", 1, "z")))
    run()  # Keys far from ours.
    assert (1 in held(table)) == (verb != "delete")
    assert held(table)[77] == ("theirs", 1, "z")
    before_commits(monkeypatch, table, lambda: other.compact(full=True))
    if verb == "upsert":
        run()  # Compaction moves no key.
        assert held(table)[1] == ("ours", 1, "y")


def test_keys_of_several_columns_and_partitions_partly_in_the_key(lake, frame):
    schema = pa.schema(
        [("region", pa.string()), ("id", pa.int32()), ("name", pa.string()), ("day", pa.date32()), ("v", pa.int64())]
    )
    t = lake.create_table(
        "d.t", schema, format="paimon", partition_by=["region", "day"], primary_key=["region", "id", "name"]
    )

    def put(*given):
        t.upsert(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in given], schema))

    put(("eu", 1, "a", None, 1), ("us", 1, "a", None, 2), ("eu", 1, "b", None, 3))
    put(("eu", 1, "a", 19000, 4), ("us", 1, "b", 19001, 5))
    put(("eu", 1, "a", 19001, 6), ("eu", 1, "b", None, 7))
    found = {(r["region"], r["id"], r["name"]): r["v"] for r in t.scan().to_arrow().to_pylist()}
    assert t.scan().count() == len(found) == 4
    assert found == {("eu", 1, "a"): 6, ("us", 1, "a"): 2, ("eu", 1, "b"): 7, ("us", 1, "b"): 5}


def test_what_cannot_be_is_said_when_the_table_is_made(lake):
    with pytest.raises(InvalidInput, match=r"have no sequence.field"):
        make(lake, **{"sequence.field": "n"})
    with pytest.raises(InvalidInput, match="must hold all partition columns"):
        make(lake, bucket="2")
    with pytest.raises(UnsupportedFeature, match="'ignore-delete' on a table whose keys may change partitions"):
        make(lake, **{"ignore-delete": "true"})


@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_columns_added_later_and_columns_left_out(lake, request, engine):
    t = make(lake, "partial-update")
    t.upsert(rows((1, "a", 1, "x")))
    t.alter().add_column("more", "int").commit()
    some = pa.table({"more": pa.array([7, 8], pa.int32()), "id": [1, 2]})
    with pytest.raises(InvalidInput, match="column 'dt' is a partition column"):
        t.upsert(some)
    some = some.append_column("dt", pa.nulls(2, pa.string()))  # A key that is there stays in its partition.
    t.upsert(some if engine == "arrow" else request.getfixturevalue("spark").createDataFrame(some))
    found = {r["id"]: (r["v"], r["dt"], r["more"]) for r in t.scan().to_arrow().to_pylist()}
    assert found == {1: ("a", "x", 7), 2: (None, None, 8)}


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_an_overwrite_by_row_moves_keys(lake, frame, engine):
    more = {"partial-update.remove-record-on-delete": "true"} if engine == "partial-update" else {}
    t = make(lake, engine, **more)
    t.upsert(rows((1, "a", 1, "x"), (2, "b", 1, "x"), (3, "c", 3, "y"), (4, "d", 1, "y")))
    t.overwrite(frame(rows((1, None, 1, "z"), (5, "e", 1, "x"), (3, "f", 1, "q"))), where="n = 1")
    moved = ("f", 1, "q") if engine == "deduplicate" else ("f", 1, "y")
    assert held(t) == {1: (None, 1, "z"), 5: ("e", 1, "x"), 3: moved}


def test_streams_move_keys(table, lake):
    session, other = table.stream("job"), lake.table("d.t").stream("other")
    session.commit(session.prepare(1, rows((1, "a", 1, "x"), (2, "b", 1, "x"))))
    first = session.prepare(2, rows((1, "c", 2, "y")))
    with pytest.raises(InvalidInput, match="commit 2 is prepared, and 3 may bring its keys in other partitions"):
        session.prepare(3, rows((1, "d", 3, "z")))
    session.commit(first)
    assert session.commit(first) is None
    late = session.prepare(3, rows((1, "d", 3, "z")))
    other.write_batch(rows((1, "e", 3, "x")), 1)
    with pytest.raises(Conflict):
        session.commit(late)
    session.write_batch(rows((1, "d", 3, "z")), 3)
    assert session.write_batch(rows((1, "d", 3, "z")), 3) is None
    assert held(table) == {1: ("d", 3, "z"), 2: ("b", 1, "x")}
