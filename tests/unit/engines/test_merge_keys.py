"""Looking up the keys of a merge finds what comparing every row of the table with every row of the source finds."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat import Lake
from lakeformat.codec import parquet_footer
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.kernels.gather import Rows
from lakeformat.engines.row_level import outcomes
from lakeformat.expression import sql_text
from lakeformat.model.merge import SOURCE, TARGET, Act, Clause, Group, prepare
from lakeformat.model.predicate import ALWAYS

# Few values, so that rows match; some lie too far apart for a table of places.
POOLS = {
    pa.int64(): [0, 1, 2, 7, -3],
    pa.int32(): [-(2**31), -1, 0, 5, 2**31 - 1],
    pa.decimal128(12, 2): [Decimal("1.00"), Decimal("-0.01"), Decimal("9999999999.99")],
    pa.float64(): [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf],
    pa.float32(): [0.0, -0.0, 0.5, math.nan],
    pa.string(): ["", "a", "A", "a ", "ä"],
    pa.binary(): [b"", b"a", b"\x00"],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1)],
}
FAR = [-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1]


@settings(max_examples=100)
@given(data=st.data())
def test_rows_match_as_their_keys_are_equal(data):
    count = data.draw(st.integers(1, 3))
    chosen = [data.draw(st.sampled_from([*POOLS.items(), (pa.int64(), FAR)])) for _ in range(count)]
    null_safe = [data.draw(st.booleans()) for _ in chosen]
    sides = []
    for most in (12, 6):
        rows = data.draw(st.lists(st.tuples(*(st.none() | st.sampled_from(pool) for _, pool in chosen)), max_size=most))
        columns = [pa.array([row[i] for row in rows], kind) for i, (kind, _) in enumerate(chosen)]
        sides.append((rows, pa.table(columns, [f"k{i}" for i in range(count)])))
    (of_target, target), (of_source, source) = sides
    deleted = sorted(data.draw(st.sets(st.integers(0, max(0, len(of_target) - 1))))) if of_target else []
    index = index_of(target, source, null_safe)

    rows, choice, beside = outcomes.decide(index, outcomes.named(TARGET, target), np.array(deleted, np.int64))

    expected = [
        {j for j, theirs in enumerate(of_source) if i not in deleted and equal(mine, theirs, null_safe)}
        for i, mine in enumerate(of_target)
    ]
    assert rows.tolist() == [i for i, found in enumerate(expected) if found]
    assert (choice == 0).all()
    assert all(b in expected[i] for i, b in zip(rows.tolist(), beside.tolist(), strict=True))
    assert index.matched().tolist() == sorted(set().union(*expected))


@pytest.mark.parametrize("step", [1, 50, 1 << 40], ids=["a table of places", "with gaps", "a filter"])
@pytest.mark.parametrize("unique", [True, False])
def test_many_keys_are_found_whatever_lies_between_them(step, unique):
    random = np.random.default_rng(5)
    known = np.arange(-3_000, 3_000) * step
    if not unique:
        known = np.concatenate([known, known[:1_000]])
    ids = np.concatenate([known, known[:500] + 1, [-(2**63), 2**63 - 1]])
    random.shuffle(ids)
    other = random.integers(0, 3, len(ids))
    source = pa.table({"k0": known, "k1": known % 3})
    index = index_of(pa.table({"k0": ids, "k1": other}), source, [False, False])

    rows, _, beside = outcomes.decide(index, outcomes.named(TARGET, pa.table({"k0": ids, "k1": other})))

    assert rows.tolist() == np.flatnonzero(np.isin(ids, known) & (ids % 3 == other)).tolist()
    assert known[beside].tolist() == ids[rows].tolist()


def test_rows_that_change_and_rows_that_come_go_to_the_same_files(tmp_path):
    lake = Lake(str(tmp_path))
    table = lake.create_table(
        "d.t", pa.schema([("p", pa.int32()), ("id", pa.int64()), ("v", pa.string())]), format="iceberg",
        partition_by=["p"], properties={"write.merge.mode": "merge-on-read"},
    )  # fmt: skip
    for start in (0, 10):
        table.append(pa.table({"p": pa.array([0, 1] * 5, pa.int32()), "id": range(start, start + 10), "v": ["a"] * 10}))
    source = pa.table({"p": pa.array([0, 1, 0], pa.int32()), "id": [2, 13, 90], "v": ["b", "c", "d"]})

    table.merge_into(source, on="t.p = s.p and t.id = s.id").when_matched().update(
        {"v": "s.v"}
    ).when_not_matched().insert_all().merge()

    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(r["id"], r["v"]) for r in rows if r["v"] != "a"] == [(2, "b"), (13, "c"), (90, "d")]
    assert len(rows) == 21
    assert sum(len(task.paths) for task in table.scan().plan()) == 4 + 2


def test_counts_of_nan_are_put_into_a_footer_and_replaced():
    sink = pa.BufferOutputStream()
    with pa.parquet.ParquetWriter(
        sink, pa.schema([("a", pa.float64()), ("b", pa.int64()), ("c", pa.float32())])
    ) as out:
        for _ in range(20):  # Of more row groups than the head of a list holds.
            out.write_table(pa.table({"a": [math.nan, 1.0], "b": [1, 2], "c": pa.array([None, 2.0], pa.float32())}))
    end = sink.getvalue().to_pybytes()
    first = [{0: 1, 2: 300 + index} for index in range(20)]
    second = [{0: 7} for _ in range(20)]

    once = parquet_footer.counted(end, first)
    twice = parquet_footer.counted(once, second)

    def counts(of):
        footer = parquet_footer.parse(of[-8 - int.from_bytes(of[-8:-4], "little") : -8], "a test")
        return [parquet_footer.nan_counts(group, [0, 1, 2]) for group in footer.row_groups]

    assert counts(end) == [[None, None, None]] * 20
    assert counts(once) == [[1, None, 300 + index] for index in range(20)]
    assert counts(twice) == [[7, None, 300 + index] for index in range(20)]
    assert pa.parquet.read_table(pa.BufferReader(twice))["b"].to_pylist() == [1, 2] * 20


def index_of(target, source, null_safe):
    on = " and ".join(f"t.k{i} {'<=>' if safe else '='} s.k{i}" for i, safe in enumerate(null_safe))
    fields = tuple(fields_from_arrow(side.schema) for side in (target, source))
    merge = prepare(*fields, sql_text.parse(on, (TARGET, SOURCE)), (Clause(Group.MATCHED, Act.DELETE, ALWAYS, ()),))
    return outcomes.Index(merge, Rows(outcomes.named(SOURCE, source)))


def equal(mine, theirs, null_safe):
    return all(
        (safe and b is None) if a is None else b is not None and (a == b or (a != a and b != b))
        for a, b, safe in zip(mine, theirs, null_safe, strict=True)
    )
