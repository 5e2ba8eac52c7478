"""Compaction: what it takes, what it keeps, and what it loses to."""

import datetime
import itertools
import random
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import Conflict, InvalidInput, Lake, UnsupportedFeature
from lakeformat.codec import murmur
from lakeformat.commit import commit
from lakeformat.dialects.paimon import compaction, manifest, metadata
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.dialects.paimon.view import PaimonView
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.maintenance import compact
from lakeformat.model.operation import Append, Request, Rewrite
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Kind, Schema, scalar
from lakeformat.model.work import KeyRange, Upkeep, WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.verbs.append import append
from lakeformat.verbs.change import Change
from tests import doors

dialect = Paimon()

RULES = compaction.Rules.read(Schema(fields=()))
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])


def rows(*ids, dt="x"):
    return pa.table({"id": list(ids), "v": [f"v{i}" for i in ids], "dt": [dt] * len(ids)})


def make(tmp_path, **properties):
    given = {k.replace("_", "-"): v for k, v in properties.items()}
    return Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], properties=given)


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())


def by_bucket(table):
    """(partition, bucket) -> [(first sequence number, last, rows in the file)], in order of sequence."""
    files = table.inspect.files().sort_by([("min_sequence_number", "ascending")])
    found = {}
    for row in files.to_pylist():
        place = found.setdefault((row["partition"], row["bucket"]), [])
        place.append((row["min_sequence_number"], row["max_sequence_number"], row["row_count"]))
    return found


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "hour", "ratio"),
    [
        ((2, 6), 1, 1),
        ((2, 6), 2, 51),
        ((2, 6), 6, 1),
        ((22, 3), 23, 51),
        ((22, 3), 2, 51),
        ((22, 3), 3, 1),
        ((5, 5), 5, 1),
        ((-1, -1), 0, 1),
    ],
)
def test_runs_may_be_larger_off_peak(hours, hour, ratio):
    given = {"compaction.offpeak-ratio": "50"}
    given |= {f"compaction.offpeak.{name}.hour": str(at) for name, at in zip(("start", "end"), hours, strict=True)}
    now_ms = int(datetime.datetime(2023, 5, 1, hour, 30).timestamp() * 1000)
    assert compaction.Rules.read(Schema(fields=(), properties=given), now_ms).size_ratio == ratio
    assert compaction.Rules.read(Schema(fields=(), properties=given)).size_ratio == 1


def test_runs_become_one_once_the_interval_is_over():
    levels, created = np.array([0, 4, 5]), np.array([900, 100, 500])
    rules = replace(RULES, full_after_ms=100)
    start = metadata.epoch_ms(600)
    assert not compaction._is_due(created, levels, rules, start)
    assert compaction._is_due(created, levels, rules, start + 1)
    assert compaction._is_due(created[:2], levels[:2], rules, start)
    assert not compaction._is_due(created, levels, rules, None)
    assert not compaction._is_due(created, levels, RULES, start + 1)


@pytest.mark.parametrize(
    ("properties", "number", "expected"),
    [
        ({}, None, Upkeep()),
        ({"write-only": "true", "full-compaction.delta-commits": "1"}, None, None),
        ({"full-compaction.delta-commits": "3"}, None, Upkeep(full=True)),
        ({"full-compaction.delta-commits": "3"}, 1, Upkeep(everywhere=True)),
        ({"full-compaction.delta-commits": "3"}, 2, Upkeep(full=True, everywhere=True)),
        ({"changelog-producer": "full-compaction"}, 7, Upkeep(full=True)),
        ({"changelog-producer": "lookup"}, 7, Upkeep(waits=True)),
        ({"changelog-producer": "lookup", "lookup-wait": "false"}, 7, Upkeep()),
        ({"commit.force-compact": "true", "num-sorted-run.stop-trigger": "9"}, 7, Upkeep(waits=True, ahead=4)),
        ({"num-sorted-run.compaction-trigger": "10"}, 7, Upkeep(ahead=3)),
    ],
)
def test_the_compaction_that_belongs_to_a_write(properties, number, expected):
    assert (
        compaction.Compaction(
            MemoryFiles(), metadata.State(0, Schema(fields=(), primary_key=("id",), properties=properties))
        ).upkeep(number)
        == expected
    )
    without_key = metadata.State(0, Schema(fields=(), properties=properties))
    assert PaimonView(MemoryFiles(), without_key).compaction.upkeep(number) is None


# --- which files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "least", "open_cost", "bins"),
    [
        ([], 2, 0, []),
        ([10], 2, 0, []),
        ([10, 10], 2, 0, [[0, 1]]),
        ([10, 10, 10, 10], 5, 0, []),
        ([10, 10, 10, 10, 10], 5, 0, [[0, 1, 2, 3, 4]]),
        ([70, 10, 10], 2, 0, [[1, 2]]),
        ([69, 69, 69], 2, 0, [[0, 1, 2]]),
        ([69, 69, 69, 1, 1], 2, 0, [[3, 4, 0, 1, 2]]),
        ([69] * 6, 2, 0, [[0, 1, 2], [3, 4, 5]]),
        ([1] * 4, 5, 60, [[0, 1, 2, 3]]),
        ([1] * 2, 5, 60, []),
    ],
)
def test_bins_by_size(sizes, least, open_cost, bins):
    found = compaction._by_size(np.array(sizes, np.int64), np.zeros(len(sizes), bool), 70, 100, least, open_cost)
    assert [b.tolist() for b in found] == bins


@pytest.mark.parametrize(
    ("sizes", "least", "bins"),
    [
        ([], 2, []),
        ([10, 10], 2, [[0, 1]]),
        ([10, 90, 10], 2, []),
        ([10, 10, 90, 10, 10, 10], 2, [[0, 1], [3, 4, 5]]),
        ([10, 10, 90, 10, 10, 10], 3, [[3, 4, 5]]),
        ([60] * 8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_runs_of_neighbours(sizes, least, bins):
    found = compaction._neighbours(np.array(sizes, np.int64), np.zeros(len(sizes), bool), 70, 100, least)
    assert [b.tolist() for b in found] == bins


@pytest.mark.parametrize(
    ("sizes", "heavy", "by_size", "neighbours"),
    [
        ([90], [0], [[0]], [[0]]),
        ([90, 90], [1], [[1]], [[1]]),
        ([10, 90, 90, 10], [1], [[0, 3, 1]], [[0, 1]]),
        ([10, 90, 90, 10], [], [], []),
        ([90, 90, 90], [0, 2], [[0, 2]], [[0], [2]]),
    ],
)
def test_files_that_lost_rows_do_not_wait_for_others(sizes, heavy, by_size, neighbours):
    given = np.array(sizes, np.int64), np.isin(np.arange(len(sizes)), heavy), 70, 100, 5
    assert [b.tolist() for b in compaction._by_size(*given, 0)] == by_size
    assert [b.tolist() for b in compaction._neighbours(*given)] == neighbours


def test_waits_for_enough_files_unless_full(tmp_path):
    t = make(tmp_path)
    for i in range(4):
        t.append(rows(i))
    assert t.compact() is None
    t.append(rows(4))
    made = t.compact()
    assert (made.kind, made.files_removed, made.files_added, made.rows_added, made.rows_removed) == (
        "compact",
        5,
        1,
        5,
        5,
    )
    assert made.total_rows == 5
    t.append(rows(5))
    assert t.compact() is None
    assert t.compact(full=True).files_removed == 2
    assert t.compact(full=True) is None
    assert ids(t) == list(range(6))
    assert t.inspect.files()["source"].to_pylist() == ["compact"]


def test_only_the_partitions_asked_for(tmp_path):
    t = make(tmp_path)
    for i in range(3):
        t.append(rows(i, dt="x"))
        t.append(rows(10 + i, dt="y"))
    made = t.compact(full=True, where="dt = 'x'")
    assert [p.values for p in made.partitions] == [("x",)]
    assert len(t.inspect.files()) == 4
    assert t.compact(full=True, where="dt = 'nowhere'") is None
    assert ids(t) == [0, 1, 2, 10, 11, 12]


# --- buckets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", [1, 6])
def test_files_of_a_bucket_without_a_key_keep_the_order_of_their_rows(tmp_path, story):
    """Those that are merged lie beside each other, by sequence numbers, wherever manifests name them."""
    chance, count = random.Random(story), 0
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    properties = {"bucket": "1", "bucket-key": "id", "write-only": "true", "target-file-size": "3 kb"}
    properties["manifest.merge-min-count"] = str(chance.choice([2, 30]))
    t = Lake(tmp_path, fsync="false").create_table("d.t", schema, properties=properties)
    for _ in range(14):
        more = chance.choice([1, 1, 200])
        rows = {"id": range(count, count + more), "s": [str(chance.random()) for _ in range(more)]}
        t.append(pa.table(rows, schema=schema))
        count += more
        if chance.random() < 0.4:
            t.compact(full=chance.random() < 0.5)
        view = doors.view(t)
        entries = manifest.live_entries(view.reader, view.state.document, view.state.schema)
        ends = sorted(zip(*(entries[f"_{end}_SEQUENCE_NUMBER"].to_pylist() for end in ("MIN", "MAX")), strict=True))
        assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends)), ends
    assert t.scan().count() == count


@pytest.mark.parametrize("key", [(), ("id",)])
def test_only_the_buckets_asked_for(tmp_path, key):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=not key)])
    properties = {"bucket": "4", "write-only": "true"} | ({} if key else {"bucket-key": "id"})
    t = Lake(tmp_path).create_table("d.t", schema, primary_key=key, properties=properties)
    for i in range(3):
        t.append(pa.table({"id": range(100 * i, 100 * i + 100)}, schema=schema))
    plan = t.compaction_plan(full=True, buckets=[1, 3])
    assert {path.split("/")[0] for unit in plan["paths"].to_pylist() for path in unit} == {"bucket-1", "bucket-3"}
    assert t.compact(full=True, buckets=(n for n in (3, 1))) is not None
    files = t.inspect.files()["path"].to_pylist()
    assert [sum(path.startswith(f"bucket-{n}/") for path in files) for n in range(4)] == [3, 1, 3, 1]
    assert t.compact(full=True, buckets=[1, 3]) is None
    assert t.compact(full=True, buckets=[0, 2], partial_progress=True) is not None
    assert len(t.inspect.files()) == 4
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == list(range(300))
    with pytest.raises(InvalidInput, match="no bucket 7; there are 0 to 3"):
        t.compact(buckets=[3, 7])
    for wrong in ([], [None], [-1], ["a"]):
        with pytest.raises(InvalidInput, match="buckets"):
            t.compact(buckets=wrong)
    with pytest.raises(InvalidInput, match="an order of its own"):
        t.compact(buckets=[1], sort_by=["id"])
    with pytest.raises(InvalidInput, match="'2-b' is neither a number nor a range"):
        Lake(tmp_path).sql("CALL sys.compact(table => 'd.t', buckets => '0,2-b')")
    for format in ("paimon", "iceberg"):
        other = Lake(tmp_path).create_table(f"d.{format}", schema, format=format)
        with pytest.raises(UnsupportedFeature, match="buckets"):
            other.compact(buckets=[0])


def test_rows_lie_in_the_buckets_of_their_hash_and_stay_there(tmp_path):
    t = make(tmp_path, bucket="4", bucket_key="id")
    many = list(range(200))
    t.append(rows(*many[:100]))
    t.append(pa.concat_tables([rows(*many[100:]), pa.table({"id": [None], "v": ["n"], "dt": ["x"]}, SCHEMA)]))

    def check():
        import pyarrow.parquet as pq

        for row in t.inspect.files().to_pylist():
            inside = pq.read_table(tmp_path / "d.db/t" / row["path"])["id"].combine_chunks()
            expected = murmur.buckets([inside], [scalar(Kind.BIGINT)], 4)
            assert set(expected.tolist()) == {row["bucket"]}
            assert f"/bucket-{row['bucket']}/" in row["path"]

    check()
    assert t.compact(full=True) is not None
    check()
    assert sorted(i for i in ids_or_none(t) if i is not None) == many
    assert ids_or_none(t).count(None) == 1


def ids_or_none(table):
    return table.scan().to_arrow()["id"].to_pylist()


def test_sequence_numbers_go_on_in_a_bucket_and_compaction_keeps_them(tmp_path):
    t = make(tmp_path, bucket="1", bucket_key="id")
    for i in range(0, 30, 10):
        t.append(rows(*range(i, i + 10)))
    t.append(rows(1, 2, dt="y"))
    assert by_bucket(t) == {
        ("dt=x", 0): [(0, 9, 10), (10, 19, 10), (20, 29, 10)],
        ("dt=y", 0): [(0, 1, 2)],
    }
    t.compact(full=True, where="dt = 'x'")
    assert by_bucket(t) == {("dt=x", 0): [(0, 29, 30)], ("dt=y", 0): [(0, 1, 2)]}
    assert t.scan(where="dt = 'x'").to_arrow()["id"].to_pylist() == list(range(30))
    t.append(rows(30))
    assert by_bucket(t)["dt=x", 0] == [(0, 29, 30), (30, 30, 1)]


def test_files_that_stay_between_compacted_ones_keep_their_place(tmp_path):
    """small small BIG small small: two compactions in one commit, each in the place of what it read."""
    t = make(tmp_path, bucket="1", bucket_key="id", target_file_size="40 kb", **{"file.compression": "none"})
    big = pa.table({"id": range(100, 2100), "v": [f"{i:040}" for i in range(2000)], "dt": ["x"] * 2000})
    t.append(rows(0, 1))
    t.append(rows(2))
    t.append(big)
    stays = by_bucket(t)["dt=x", 0][2:]
    t.append(rows(5000, 5001, 5002))
    t.append(rows(5003))
    made = t.compact(full=True)
    assert made.files_removed >= 4
    found = by_bucket(t)["dt=x", 0]
    assert found[0] == (0, 2, 3)
    assert found[-1][1] == 2006
    assert [f for f in found if f in stays]
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(found))
    assert ids(t) == [0, 1, 2, *range(100, 2100), 5000, 5001, 5002, 5003]


def test_files_of_several_schemas_keep_their_order(tmp_path):
    t = make(tmp_path, bucket="1", bucket_key="id")
    t.append(rows(1))
    t.alter().set_properties({"file.format": "avro"}).commit()
    t.append(rows(2))
    t.alter().set_properties({"file.format": "parquet"}).add_column("n", "int").commit()
    t.append(rows(3))
    t.compact(full=True)
    assert t.scan().to_arrow()["id"].to_pylist() == [1, 2, 3]
    assert by_bucket(t)["dt=x", 0] == [(0, 2, 3)]


# --- rescaling --------------------------------------------------------------------------------------------------------


def totals(table):
    base = doors.view(table)
    entries = base.files().entries
    return sorted(set(zip(entries["_TOTAL_BUCKETS"].to_pylist(), entries["_BUCKET"].to_pylist(), strict=True)))


def test_a_rescaled_partition_takes_no_rows_until_it_is_overwritten(tmp_path):
    t = make(tmp_path, bucket="2", bucket_key="id")
    t.append(rows(*range(20)))
    t.append(rows(*range(20, 40)))
    t.append(rows(*range(50, 60), dt="y"))
    t.alter().set_properties({"bucket": "4"}).commit()
    kept = sorted((tmp_path / "d.db/t").rglob("*.parquet"))
    for verb in (
        lambda: t.append(rows(99)),
        lambda: t.delete("id = 3"),
        lambda: t.update({"v": "'w'"}, where="id = 3"),
        lambda: t.overwrite(rows(3), where="id = 3"),
    ):
        with pytest.raises(InvalidInput, match="2 buckets and the table now 4"):
            verb()
        assert sorted((tmp_path / "d.db/t").rglob("*.parquet")) == kept
    # New partitions have the new number, and compaction keeps the old one.
    t.append(rows(*range(100, 120), dt="z"))
    t.compact(full=True, where="dt = 'x'")
    assert totals(t) == [(2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)]
    assert ids(t, where="dt = 'x'") == list(range(40))
    t.overwrite_partitions(t.scan(where="dt = 'x'").to_arrow())
    t.append(rows(40))
    assert ids(t, where="dt = 'x'") == list(range(41))
    assert ids(t) == [*range(41), *range(50, 60), *range(100, 120)]
    t.delete("dt = 'y'")
    assert {total for total, _ in totals(t)} == {4}


def test_a_writer_that_began_before_the_rescaling_still_lands(tmp_path):
    t = make(tmp_path, bucket="2", bucket_key="id")
    t.append(rows(1, 2, 3))
    base = doors.view(t)
    request, _ = doors.runner(t).request(base, None)
    operation = append(doors.runner(t).change(base, request), rows(4, 5, 6))
    t.alter().set_properties({"bucket": "4"}).commit()
    doors.runner(t).commit(base, operation)
    assert ids(t) == [1, 2, 3, 4, 5, 6]
    assert {total for total, _ in totals(t)} == {2}


# --- races ------------------------------------------------------------------------------------------------------------


class Meddling(ArrowEngine):
    """Does something else to the table once the rewriting is done, and before it is committed."""

    def __init__(self, *deeds):
        super().__init__(1)
        self.deeds = list(deeds)

    def rewrite(self, store, tasks):
        written = super().rewrite(store, tasks)
        if self.deeds:
            self.deeds.pop(0)()
        return written


def run(table, engine, full=True):
    request, _ = doors.runner(table).request(doors.view(table), None)
    return compact.compact(Change(doors.store(table), doors.view(table), engine, request), dialect, full, ALWAYS)


@pytest.mark.parametrize("bucket", ["-1", "2"])
def test_rows_appended_meanwhile_survive(tmp_path, bucket):
    t = make(tmp_path, **({"bucket": bucket} | ({"bucket_key": "id"} if bucket != "-1" else {})))
    t.append(rows(1))
    t.append(rows(2))
    t.append(rows(3, 4, 5))
    made = run(t, Meddling(lambda: t.append(rows(6, 7))))
    assert made.attempts == 1
    assert ids(t) == [1, 2, 3, 4, 5, 6, 7]
    for files in by_bucket(t).values():
        if bucket != "-1":
            assert all(before[1] < after[0] for before, after in itertools.pairwise(files))


@pytest.mark.parametrize(
    ("deed", "left"),
    [
        (lambda t: t.overwrite_partitions(rows(9)), [9, 20, 21]),
        (lambda t: t.delete("id = 2"), [1, 3, 20, 21]),
        (lambda t: t.update({"id": "id + 100"}, where="id = 2"), [1, 3, 20, 21, 102]),
        (lambda t: t.truncate(), []),
        (lambda t: t.drop_partitions([{"dt": "x"}]), [20, 21]),
        (lambda t: t.compact(full=True), [1, 2, 3, 20, 21]),
        (lambda t: t.rollback_to(2), [1, 2]),
    ],
)
def test_it_loses_to_whoever_changed_what_it_read_and_starts_over(tmp_path, deed, left):
    t = make(tmp_path)
    for i in (1, 2, 3):
        t.append(rows(i))
    t.append(rows(20, dt="y"))
    t.append(rows(21, dt="y"))
    run(t, Meddling(lambda: deed(t)))
    assert ids(t) == left
    live = set(t.inspect.files()["path"].to_pylist())
    t.expire_snapshots(retain_last=1)
    assert ids(t) == left
    # What a lost start wrote is gone again.
    there = {str(p.relative_to(tmp_path / "d.db/t")) for p in (tmp_path / "d.db/t").rglob("*.parquet")}
    assert live <= there
    if deed.__code__.co_names[0] != "rollback_to":
        assert there == live


def test_it_gives_up_after_three_starts(tmp_path):
    t = make(tmp_path)
    for i in (1, 2, 3):
        t.append(rows(i))
    deeds = [lambda i=i: (t.overwrite(rows(10 + i)), t.append(rows(20 + i))) for i in range(3)]
    with pytest.raises(Conflict, match="another writer replaced them"):
        run(t, Meddling(*deeds))
    assert ids(t) == [12, 22]


def test_a_pinned_overwrite_does_not_mind_a_compaction(tmp_path):
    t = make(tmp_path)
    t.append(rows(1))
    seen = t.append(rows(2)).id
    t.compact(full=True)
    t.overwrite(rows(3), pinned_to=seen)
    assert ids(t) == [3]


def test_threads_appending_overwriting_and_compacting_lose_nothing(tmp_path):
    t = make(tmp_path, **{"commit.max-retries": "100"})
    t.append(rows(0))
    failures = []

    def append(n):
        for i in range(6):
            t.append(rows(1000 * n + i, dt="x"))

    def overwrite():
        for i in range(4):
            t.overwrite_partitions(rows(50_000 + i, dt="y"))

    def compacting():
        for _ in range(4):
            try:
                t.compact(full=True)
            except Conflict:
                continue

    def guarded(work, *args):
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    work = [(append, 1), (append, 2), (overwrite,), (compacting,)]
    threads = [threading.Thread(target=guarded, args=w) for w in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(t) == sorted([0, *(1000 * n + i for n in (1, 2) for i in range(6)), 50_003])


def test_a_rewrite_that_removes_what_is_gone_is_refused_whole(tmp_path):
    t = make(tmp_path)
    t.append(rows(1))
    t.append(rows(2))
    base = doors.view(t)
    request = Request(id="r", schema_id=base.schema.id)
    paths = tuple(t.inspect.files()["path"].to_pylist())
    t.delete("id = 2")
    added = append(doors.runner(t).change(base, request), rows(1, 2)).added
    with pytest.raises(Conflict, match="1 are no longer"):
        commit(
            doors.store(t), dialect.head(doors.store(t)), dialect, Rewrite(request=request, removed=paths, added=added)
        )
    assert not any((tmp_path / "d.db/t" / f.path).exists() for f in added)
    assert ids(t) == [1]


@pytest.mark.parametrize(
    ("key", "properties", "mebibytes", "small"),
    [
        (["id"], {}, 100, 0),  # Of 128 MiB.
        (["id"], {}, 89, 1),
        ([], {}, 100, 1),  # Of 256 MiB.
        ([], {"compaction.file-size": "99 mb"}, 100, 0),
    ],
)
def test_partitions_count_as_small_what_compaction_takes(tmp_path, key, properties, mebibytes, small):
    table = Lake(str(tmp_path)).create_table(
        "d.t", SCHEMA, primary_key=key, properties=properties | ({"bucket": "1"} if key else {})
    )
    store = doors.store(table)
    for name in "ab":
        keys = KeyRange((1,), (1,), 0, 0, 0) if key else None
        file = WrittenFile(f"bucket-0/data-{name}.parquet", (), 1, mebibytes << 20, keys=keys)
        commit(store, dialect.head(store), dialect, Append(request=Request(id=name, absent_until=0), added=(file,)))
    assert table.inspect.partitions()["small_file_count"].to_pylist() == [2 * small]
    base = dialect.load(store, 2)
    if not key:
        assert len(base.compaction.tasks(True, ALWAYS)) == small


def test_runs_hold_adjacent_ranges_up_to_the_target():
    """A file of ranges that do not adjoin would give rows the ids of others."""
    chance = np.random.default_rng(7)
    for _ in range(200):
        count, target = int(chance.integers(0, 9)), int(chance.integers(1, 12))
        joins, sizes = chance.random(count) < 0.6, chance.integers(1, 9, count)
        runs = [run.tolist() for run in compaction._runs(joins, sizes, target)]
        assert [index for run in runs for index in run] == list(range(count))
        for run, following in zip(runs, [*runs[1:], None], strict=False):
            assert all(joins[index] for index in run[1:]), (joins, sizes, target, runs)
            assert len(run) == 1 or sizes[run].sum() <= target
            if following is not None:  # As long as it may be.
                assert not joins[following[0]] or sizes[run].sum() + sizes[following[0]] > target


def test_buckets_of_a_rescaled_partition_can_be_named(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("dt", pa.string())])
    properties = {"bucket": "4", "bucket-key": "id", "write-only": "true"}
    t = Lake(tmp_path).create_table("d.t", schema, partition_by=["dt"], properties=properties)
    with pytest.raises(InvalidInput, match="no bucket 4; there are 0 to 3"):
        t.compact(buckets=[4])
    for _ in range(3):
        t.append(pa.table({"id": range(100), "dt": ["a"] * 100}, schema=schema))
    for count in (2, 7):
        t.alter().set_properties({"bucket": str(count)}).commit()
        most = max(4, count)
        with pytest.raises(InvalidInput, match=f"no bucket {most}; there are 0 to {most - 1}"):
            t.compact(full=True, buckets=[most])
        plan = t.compaction_plan(full=True, buckets=[3, most - 1])
        assert {path.split("/")[1] for unit in plan["paths"].to_pylist() for path in unit} == {"bucket-3"}
