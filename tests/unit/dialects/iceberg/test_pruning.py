"""Partitions by transforms leave out files and manifests, and never one that has a row."""

import datetime
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.dialects.iceberg import manifest, metadata
from lakeformat.expression import evaluation, sql_text, transform
from lakeformat.model.partition import Transform, TransformKind
from lakeformat.model.predicate import bind
from lakeformat.model.schema import Kind, scalar
from tests import doors

SCHEMA = pa.schema(
    [("id", pa.int64()), ("i", pa.int32()), ("day", pa.date32()), ("ts", pa.timestamp("us")), ("s", pa.string())]
)
TRANSFORMS = ["years(day)", "months(day)", "days(day)", "years(ts)", "months(ts)", "days(ts)", "hours(ts)",
              "bucket(5, id)", "bucket(3, s)", "bucket(4, day)", "truncate(10, id)", "truncate(7, i)", "truncate(2, s)", "void(s)"]  # fmt: skip
NO_METRICS = {"write.metadata.metrics.default": "none"}


def made(count, seed):
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        moment = datetime.datetime(1968, 1, 1) + datetime.timedelta(seconds=chance.randrange(4 * 365 * 86400))
        number = chance.randrange(-40, 40)
        row = {
            "id": number,
            "i": -number,
            "day": moment.date(),
            "ts": moment,
            "s": chance.choice("abc") * chance.randrange(4),
        }
        rows.append({k: None if chance.random() < 0.05 else v for k, v in row.items()})
    return pa.Table.from_pylist(rows, SCHEMA)


def conditions(seed):
    chance = random.Random(seed)
    for _ in range(2):
        number, text = chance.randrange(-45, 45), chance.choice("abc") * chance.randrange(4)
        moment = datetime.datetime(1968, 1, 1) + datetime.timedelta(hours=chance.randrange(4 * 365 * 24))
        operator = chance.choice(["=", "<", "<=", ">", ">=", "<=>", "<>"])
        yield from (
            f"id {operator} {number}", f"i {operator} {number}", f"s {operator} '{text}'",
            f"day {operator} '{moment:%Y-%m-%d}'", f"ts {operator} timestamp '{moment:%Y-%m-%d %H:%M:%S}'",
            f"id in ({number}, {number + 3}) and ts > timestamp '{moment:%Y-%m-%d %H:%M:%S}'",
            f"not (id > {number} or s = '{text}')", f"s like '{text[:1]}%'", f"s in ('{text}', 'aa') and id is null",
        )  # fmt: skip


@pytest.mark.drawn(4)
@pytest.mark.parametrize("partition", TRANSFORMS)
def test_no_row_is_lost(tmp_path, partition):
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=[partition], properties=NO_METRICS)
    everything = pa.concat_tables([made(16, 1), made(16, 2)])
    for seed in (1, 2):
        t.append(made(16, seed))
    fields = fields_from_arrow(SCHEMA)
    for where in conditions(partition):
        expected = everything.filter(evaluation.mask(bind(sql_text.parse(where), fields), everything))
        found = t.scan(where=where).to_arrow()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), where


@pytest.mark.drawn(8)
@pytest.mark.parametrize(
    ("partition", "where", "files"),
    [
        ("days(ts)", "ts >= timestamp '2020-01-02 05:00:00' and ts < timestamp '2020-01-04'", 2),
        ("days(ts)", "ts = timestamp '2020-01-05 00:00:00'", 1), ("days(ts)", "ts is null", 0), ("days(ts)", "id = 3", 10),
        ("months(ts)", "ts < timestamp '2020-01-01'", 0), ("years(ts)", "ts > timestamp '2020-06-01'", 1),
        ("hours(ts)", "ts between timestamp '2020-01-03' and timestamp '2020-01-04'", 2),
        ("days(day)", "day in ('2020-01-01', '2020-01-09', '2021-01-01')", 2), ("months(day)", "day > '2020-01-31'", 0),
        ("bucket(100, id)", "id = 7", 1), ("bucket(100, id)", "id in (1, 2, null)", 2), ("bucket(100, id)", "id > 7", 10),
        ("bucket(100, id)", "7 = id and s > ''", 1), ("bucket(100, s)", "s = 'x4'", 1),
        ("truncate(5, id)", "id < 5", 1), ("truncate(5, id)", "id = 9", 1), ("truncate(5, i)", "i between 1 and 4", 1),
        ("truncate(1, s)", "s >= 'z'", 0), ("truncate(2, s)", "s = 'x3'", 1), ("truncate(2, s)", "s like 'x3%'", 2),
    ],
)  # fmt: skip
def test_files_and_manifests_are_left_out(tmp_path, partition, where, files):
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=[partition], properties=NO_METRICS)
    rows = [
        {"id": n, "i": n, "day": datetime.date(2020, 1, 1 + n), "ts": datetime.datetime(2020, 1, 1 + n), "s": f"x{n}"}
        for n in range(10)
    ]
    for row in rows:
        t.append(pa.Table.from_pylist([row], SCHEMA))
    plan = t.scan(where=where).plan()
    found = {path for task in plan for path in task.paths}
    distinct = {f.rpartition("/")[0] for f in t.inspect.files()["path"].to_pylist()}
    assert len({path.rpartition("/")[0] for path in found}) == min(files, len(distinct))
    base = metadata.newest(doors.store(t))
    metas = manifest.metas_of(doors.store(t), base.snapshot_document)
    kept = manifest.prune_metas(metas, base, sql_text.parse("true"), bind(sql_text.parse(where), base.schema.fields))
    assert len(kept) == len(found)


def test_an_upper_bound_of_floats_leaves_out_files_and_manifests_without_nan(tmp_path):
    """NaN is above all numbers: a file that holds one is read, and so is a manifest of a partition of it."""
    schema = pa.schema([("f", pa.float64()), ("g", pa.float32())])
    files = [[1.0, 2.0], [1.0, math.nan], [None, 2.0], [2e9, 1.0]]
    for name, partition in (("free", []), ("split", ["f"])):
        t = Lake(tmp_path).create_table(f"d.{name}", schema, format="iceberg", partition_by=partition)
        for values in files:
            t.append(pa.table({"f": values, "g": values}, schema=schema))
        for column in "fg":
            scan = t.scan(where=f"{column} > 1e9")
            assert sorted(map(str, scan.to_arrow()[column].to_pylist())) == ["2000000000.0", "nan"]
            assert sum(len(task.paths) for task in scan.plan()) == 2
        reasons = t.scan(where="f > 1e9").explain_manifests()["left_out_by"].to_pylist()
        assert sum(reason is None for reason in reasons) == (2 if partition else 4)
        assert t.scan(where="not f <= 1e9 and not isnan(f)").count() == 1


def test_what_a_transform_leaves_between():
    day = Transform(TransformKind.DAY)
    low, high = transform.between(
        day, pa.array([datetime.date(2020, 1, 2), None, datetime.date(1969, 12, 31)]), pa.array([datetime.date(2020, 1, 3), None, datetime.date(1970, 1, 1)]),
        scalar(Kind.TIMESTAMP, 6),
    )  # fmt: skip
    assert low.to_pylist() == [datetime.datetime(2020, 1, 2), None, datetime.datetime(1969, 12, 30)], (
        "counted towards 1970"
    )
    assert high.to_pylist()[:2] == [datetime.datetime(2020, 1, 3, 23, 59, 59, 999999), None]
    ten = Transform(TransformKind.TRUNCATE, 10)
    low, high = transform.between(
        ten, pa.array([-10, 2**31 - 8], pa.int32()), pa.array([0, 2**31 - 8], pa.int32()), scalar(Kind.INT)
    )
    assert (low.to_pylist(), high.to_pylist()) == ([-10, 2**31 - 8], [9, 2**31 - 1])
    low, high = transform.between(
        Transform(TransformKind.TRUNCATE, 2),
        pa.array(["ab", "a", None]),
        pa.array(["ab", "a", None]),
        scalar(Kind.STRING),
    )
    assert high.to_pylist() == ["ac", "a", None]


def test_every_source_value_lies_between():
    values = made(300, 5)
    for text, name, kind in (
        ("years", "ts", TransformKind.YEAR), ("months", "ts", TransformKind.MONTH), ("days", "day", TransformKind.DAY),
        ("hours", "ts", TransformKind.HOUR), ("truncate", "id", TransformKind.TRUNCATE), ("truncate", "s", TransformKind.TRUNCATE),
    ):  # fmt: skip
        column = values[name].combine_chunks()
        each = Transform(kind, 2 if text == "truncate" else None)
        source = fields_from_arrow(SCHEMA)[SCHEMA.names.index(name)].type
        made_of = transform.apply(each, column, source)
        low, high = transform.between(each, made_of, made_of, source)
        for value, least, most in zip(column.to_pylist(), low.to_pylist(), high.to_pylist(), strict=True):
            assert (value is None) == (least is None)
            assert value is None or least <= value <= most, (text, value)


def test_the_lowest_numbers_are_found_whatever_they_are_cut_to(tmp_path):
    """Java cuts them to one above all others (2147483646 for -2147483648)."""
    schema = pa.schema([("i", pa.int32()), ("n", pa.decimal128(9, 2))])
    t = Lake(tmp_path).create_table("d.t", schema, format="iceberg", partition_by=["truncate(10, i)"])
    for i in (-(2**31), -(2**31) + 7, -(2**31) + 8, 5, 2**31 - 1):
        t.append(pa.table({"i": [i], "n": [Decimal(0)]}, schema=schema))

    def found(where):
        rows = sorted(t.scan(["i"], where=where).to_arrow()["i"].to_pylist())
        assert t.scan(where=where).count() == len(rows), where
        return rows

    lowest = [-(2**31), -(2**31) + 7, -(2**31) + 8]
    for _ in range(2):  # As an int, and once the column is a bigint.
        assert found("i < 0") == lowest
        assert found("i = -2147483648") == lowest[:1]
        assert found("i in (-2147483641, 5)") == [lowest[1], 5]
        assert found("i > 0") == [5, 2**31 - 1]
        assert (len(t.scan(where="i < 0").plan()), len(t.scan(where="i = 5").plan())) == (1, 1)
        t.alter().change_type("i", "bigint").commit()
    t.alter().drop_partition_field("i_truncate").add_partition_field("truncate(20, i)").commit()
    t.overwrite_partitions(pa.table({"i": [lowest[0]], "n": [Decimal(1)]}))
    assert found("i < 0") == lowest[:1] + lowest[2:]  # What lies from -2147483660 to -2147483641 is replaced.
    t.delete("i < 0")
    assert found("i is not null") == [5, 2**31 - 1]


def test_a_decimal_is_not_cut_to_more_digits_than_it_has(tmp_path):
    schema = pa.schema([("n", pa.decimal128(9, 2))])
    t = Lake(tmp_path).create_table("d.t", schema, format="iceberg", partition_by=["truncate(50, n)"])
    with pytest.raises(InvalidInput, match=r"partition of -10000000\.00, which decimal128\(9, 2\) does not hold"):
        t.append(pa.table({"n": [Decimal("-9999999.99")]}, schema=schema))
    assert list(tmp_path.rglob("*.parquet")) == []
