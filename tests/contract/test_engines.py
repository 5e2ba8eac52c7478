"""One contract for both engines: what they write and what they read is the same."""

import datetime as dt
import os
import random
import re
import threading
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lakeformat import Lake
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.files import formats
from lakeformat.engines.spark import session
from lakeformat.errors import CorruptFile, InvalidInput, OutsideScope, StoreError, UnsupportedFeature
from lakeformat.model.partition import PartitionField, Transform, TransformKind, identity
from lakeformat.model.predicate import and_, call, column, eq, ge, gt, is_in, is_not_null, is_null, like, lt, not_
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, scalar
from lakeformat.model.work import BucketRule, Encoding, FilesTask, Naming, RewriteTask, WriteTask
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.files import open_store
from lakeformat.storage.local import LocalFiles
from tests.draw import IS_LONG, some

FORMATS = ("parquet", "orc", "avro")
UTC = dt.UTC


def field(id, name, kind, *parameters, nullable=True):
    return Field(id, name, kind if not isinstance(kind, Kind) else scalar(kind, *parameters), nullable)


def part(type, name="element", nullable=True):
    return Field(-1, name, type, nullable)


FIELDS = (
    field(0, "id", Kind.INT, nullable=False),
    field(1, "day", Kind.DATE),
    field(2, "tiny", Kind.TINYINT),
    field(3, "big", Kind.BIGINT),
    field(4, "single", Kind.FLOAT),
    field(5, "double", Kind.DOUBLE),
    field(6, "price", Kind.DECIMAL, 9, 2),
    field(7, "wide", Kind.DECIMAL, 30, 4),
    field(8, "text", Kind.STRING),
    field(9, "code", Kind.CHAR, 3),
    field(10, "blob", Kind.BYTES),
    field(11, "flag", Kind.BOOLEAN),
    field(12, "millis", Kind.TIMESTAMP, 3),
    field(13, "micros", Kind.TIMESTAMP, 6),
    field(14, "instant", Kind.TIMESTAMP_TZ, 6),
    field(15, "tags", ListOf(part(scalar(Kind.STRING)))),
    field(16, "spots", ListOf(part(Row((field(17, "x", Kind.INT), field(18, "at", Kind.TIMESTAMP, 3)))))),
    field(19, "by_name", MapOf(part(scalar(Kind.STRING), "key", False), part(scalar(Kind.INT), "value"))),
    field(20, "counts", MultisetOf(part(scalar(Kind.STRING)))),
    field(21, "address", Row((field(22, "city", Kind.STRING), field(23, "geo", Row((field(24, "lat", Kind.FLOAT),)))))),
)


def sample(count, seed=5, format="parquet"):
    """Rows of FIELDS; for ORC no fractions of a second before 1970, which it refuses."""
    rng = random.Random(seed)

    def some(make):
        return None if rng.random() < 0.25 else make()

    def moment(step):
        micros = rng.randrange(-(10**15), 10**15)
        if micros < 0:  # ORC cannot hold a fraction of a second there.
            step = 10**6
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros // step * step)

    rows = [
        {
            "id": i,
            "day": some(lambda: dt.date(2020, 1, 1) + dt.timedelta(days=rng.randrange(3))),
            "tiny": some(lambda: rng.randrange(-128, 128)),
            "big": some(lambda: rng.randrange(-(2**63), 2**63)),
            "single": some(lambda: rng.choice([0.5, -1.25, float("inf")])),
            "double": some(lambda: rng.uniform(-9, 9)),
            "price": some(lambda: Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
            "wide": some(lambda: Decimal(rng.randrange(-(10**28), 10**28)).scaleb(-4)),
            "text": some(lambda: rng.choice(["", " ", "a/b", "ä€🙂", "100%", "O'Neil\\"])),
            "code": some(lambda: rng.choice(["a", "bc", "def"])),
            "blob": some(lambda: rng.randbytes(rng.randrange(4))),
            "flag": some(lambda: rng.random() < 0.5),
            "millis": some(lambda: moment(1000)),
            "micros": some(lambda: moment(1)),
            "instant": some(lambda: moment(1).replace(tzinfo=UTC)),
            "tags": some(lambda: [some(lambda: "t") for _ in range(rng.randrange(3))]),
            "spots": some(
                lambda: [some(lambda: {"x": some(lambda: 1), "at": moment(1000)}) for _ in range(rng.randrange(3))]
            ),
            "by_name": some(lambda: [(f"k{n}", some(lambda: 5)) for n in range(rng.randrange(3))]),
            "counts": some(lambda: [(f"c{n}", n) for n in range(rng.randrange(3))]),
            "address": some(lambda: {"city": some(lambda: "x"), "geo": some(lambda: {"lat": 0.5})}),
        }
        for i in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(FIELDS))


class Folder:
    """Where files go: picklable, and known to the executors by no name."""

    def __call__(self, values, bucket):
        return "/".join(["t", *(str(value).replace("/", "%2F") for value in values), f"bucket-{bucket or 0}"])


class Here:
    """The engine of this process, and how its frames become rows."""

    name = "arrow"

    def __init__(self):
        self.engine = ArrowEngine()

    def frame(self, table):
        return table

    def rows(self, frame):
        return normal(frame.read_all())


def known_type(table, name):
    return table.schema.field(name).type == arrow_schema(FIELDS).field(name).type


class OnSpark:
    name = "spark"

    def __init__(self, spark):
        from lakeformat.engines.spark import SparkEngine

        self.spark, self.engine = spark, SparkEngine(spark)

    def frame(self, table):
        from lakeformat.engines.spark import spark_schema

        # Without a schema Spark would take naive timestamps inside others for the session's.
        known = {each.name: each for each in FIELDS}
        if all(name in known and known_type(table, name) for name in table.column_names):
            columns = tuple(replace(known[name], nullable=True) for name in table.column_names)
            return self.spark.createDataFrame(table, spark_schema(columns))
        return self.spark.createDataFrame(table)

    def rows(self, frame):
        return normal(frame.toArrow())


def normal(table):
    """Rows as comparable values, by id where there is one; units and zones of Arrow types do not matter."""

    def value(each):
        if isinstance(each, dict):
            return {name: value(inner) for name, inner in each.items()}
        if isinstance(each, list):
            return (
                sorted(value(inner) for inner in each)
                if each and isinstance(each[0], tuple)
                else [value(i) for i in each]
            )
        if isinstance(each, tuple):
            return tuple(value(inner) for inner in each)
        return each.astimezone(UTC) if isinstance(each, dt.datetime) and each.tzinfo else each

    rows = [value(row) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["id"]) if "id" in table.column_names else rows


@pytest.fixture(scope="module")
def spark(spark):
    """A session of its own, in a zone that is not the machine's."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.sparkContext.setLogLevel("ERROR")
    spark.createDataFrame([], "id int")  # Makes the session of all tests the active one again.


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def run(request):
    return Here() if request.param == "arrow" else OnSpark(request.getfixturevalue("spark"))


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "a table {x} %20"), {"fsync": "false"})


def layout(fields=FIELDS, **options):
    return WriteTask(fields=fields, directory=Folder(), **options)


def tasks_of(files, fields=FIELDS, file_fields=FIELDS, **options):
    return [
        FilesTask(
            (f.path,),
            (f.row_count,),
            (f.size_bytes,),
            f.file_format,
            fields,
            file_fields,
            partition=f.partition,
            **options,
        )
        for f in files
    ]


# --- Writing and reading back ---


@pytest.mark.parametrize("format", FORMATS)
def test_what_an_engine_writes_it_reads_and_so_does_the_other(run, store, format):
    table = sample(200, format=format)
    files = run.engine.write(
        store, run.frame(table), layout(encoding=Encoding(format), partition_by=identity("day").fields)
    )
    assert Counter(table.column("day").to_pylist()) == sum(
        (Counter({f.partition[0]: f.row_count}) for f in files), Counter()
    )
    assert sorted(f.path for f in files) == sorted(listed.path for listed in store.list(""))
    assert run.rows(run.engine.read(store, tasks_of(files), FIELDS)) == normal(table)
    assert Here().rows(ArrowEngine().read(store, tasks_of(files), FIELDS)) == normal(table)


def test_statistics_are_the_same_whoever_writes(run, store):
    table = sample(300)
    (here,) = ArrowEngine().write(store, table, layout())
    files = run.engine.write(store, run.frame(table).coalesce(1) if run.name == "spark" else table, layout())
    assert [f.stats for f in files] == [here.stats]


def test_no_rows_are_no_files_and_no_tasks_are_typed(run, store):
    assert run.engine.write(store, run.frame(sample(3).slice(0, 0)), layout()) == []
    found = run.engine.read(store, [], FIELDS[:2])
    assert run.rows(found) == []
    assert (found.schema.names if run.name == "arrow" else found.columns) == ["id", "day"]


def test_buckets_are_the_same_whoever_writes(run, store):
    table = sample(200)
    task = layout(partition_by=identity("day").fields, bucket=BucketRule(("big", "text", "micros"), 3))
    files = run.engine.write(store, run.frame(table), task)
    here = ArrowEngine().write(store, table, task)
    assert {(f.partition, f.bucket) for f in files} == {(f.partition, f.bucket) for f in here}

    def held(written):
        return {
            (f.partition, f.bucket): {
                row["id"] for row in Here().rows(ArrowEngine().read(store, tasks_of([f]), FIELDS))
            }
            for f in written
        }

    merged = {}
    for f in files:
        merged.setdefault((f.partition, f.bucket), set()).update(held([f])[f.partition, f.bucket])
    assert merged == held(here)


@pytest.mark.parametrize("distribution", ["none", "hash", "range", "auto"])
def test_every_distribution_writes_every_row_once(run, store, distribution):
    table = sample(200)
    frame = run.frame(table)
    files = run.engine.write(store, frame, layout(partition_by=identity("day").fields, distribution=distribution))
    assert run.rows(run.engine.read(store, tasks_of(files), FIELDS)) == normal(table)
    if distribution == "hash":
        assert len(files) == 4


@pytest.mark.parametrize(
    ("source", "transform"),
    [
        ("day", Transform(TransformKind.MONTH)),
        ("text", Transform(TransformKind.BUCKET, 2)),
        ("id", Transform(TransformKind.TRUNCATE, 50)),
    ],
    ids=str,
)
def test_rows_of_a_derived_partition_meet_in_one_file(run, store, source, transform):
    """Several Spark tasks have rows of every partition; each partition is one file none the less."""
    table = sample(200)
    by = PartitionField(source, transform, "by")
    task = layout(partition_by=(by,), distribution="hash")
    files = run.engine.write(store, run.frame(table), task)
    assert len(files) == len({f.partition for f in files}) > 1
    assert run.rows(run.engine.read(store, tasks_of(files), FIELDS)) == normal(table)


# --- Columns and conditions ---


@pytest.mark.parametrize("format", FORMATS)
def test_columns_follow_their_ids(run, store, format):
    table = sample(100, format=format)
    files = run.engine.write(store, run.frame(table), layout(encoding=Encoding(format)))
    now = (
        field(8, "id_text", Kind.STRING),
        field(0, "id", Kind.BIGINT),
        field(99, "text", Kind.INT),
        field(6, "price", Kind.DECIMAL, 12, 4),
        field(4, "single", Kind.DOUBLE),
        field(2, "tiny", Kind.STRING),
        field(1, "day", Kind.TIMESTAMP, 6),
        field(21, "address", Row((field(50, "zip", Kind.INT), field(22, "town", Kind.STRING)))),
    )

    def moved(row):
        return {
            "id_text": row["text"], "id": row["id"], "text": None, "price": row["price"], "single": row["single"],
            "tiny": None if row["tiny"] is None else str(row["tiny"]),
            "day": row["day"] and dt.datetime.combine(row["day"], dt.time()),
            "address": row["address"] and {"zip": None, "town": row["address"]["city"]},
        }  # fmt: skip

    expected = [moved(row) for row in normal(table)]
    assert run.rows(run.engine.read(store, tasks_of(files, now), now)) == expected
    # Without the columns that Spark's own reader leaves to the worker.
    fewer = tuple(each for each in now if each.name not in ("tiny", "day", "address"))
    expected = [{each.name: row[each.name] for each in fewer} for row in expected]
    assert run.rows(run.engine.read(store, tasks_of(files, fewer), fewer)) == expected


CONDITIONS = [
    lt("id", 20),
    and_(ge("big", 0), is_not_null("text")),
    eq("text", "O'Neil\\"),
    is_in("text", ["", "ä€🙂", None]),
    not_(is_in("code", ["a"])),
    like("text", "%/%"),
    eq("day", dt.date(2020, 1, 2)),
    gt("price", Decimal("10.50")),
    gt("single", 1.0),
    lt("micros", dt.datetime(1970, 1, 1)),
    ge("instant", dt.datetime(1970, 1, 1, tzinfo=UTC)),
    is_null("address"),
    eq(column("address", "city"), "x"),
    eq("blob", b""),
    eq("flag", True),
]


@pytest.mark.parametrize("format", FORMATS)
def test_conditions_select_the_same_rows(run, store, format):
    from lakeformat.expression import evaluation

    table = sample(300, format=format)
    files = run.engine.write(
        store, run.frame(table), layout(encoding=Encoding(format), partition_by=identity("day").fields)
    )
    conditions = CONDITIONS if format == "parquet" or run.name == "arrow" else CONDITIONS[::5]
    for condition in conditions:
        expected = normal(evaluation.keep(condition, table))
        assert run.rows(run.engine.read(store, tasks_of(files, predicate=condition), FIELDS)) == expected, condition
    counted = run.engine.count(store, tasks_of(files, predicate=CONDITIONS[0]))
    assert (len(counted), sum(counted)) == (len(files), 20)


# Settings that change how Spark parses or evaluates expressions.
SETTINGS = {
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.function.concatBinaryAsString": "true",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
}
OF_SETTINGS = """
s = 'it\\'s'
s in ('a\\\\b', '${user.name}', 'x')
s like '%\\\\\\\\%'
s like 'x!_%' escape '!'
s > 'b' and "x" = 'x'
startswith(s, 'it\\'')
upper(s) = 'STRASSE'
i + 1 > 0
i = '7'
`left` = 1
cast(t as date) = '2020-01-01'
hour(t) = 23
t >= timestamp '2020-01-01 23:30:00'
n = '2020-01-01 23:30:00'
p * 1.5 = 1.845
p in (1.23, 5)
y = X'00'
i is null or i <=> 2147483647
cast(s as string) || 1 = 'x_y1'
""".strip().splitlines()


@pytest.mark.spark
def test_no_setting_of_a_session_changes_what_a_condition_finds(spark, tmp_path):
    last = dt.datetime(2020, 1, 1, 23, 30)
    columns = {
        "id": pa.array(range(6)), "s": ["it's", "a\\b", "${user.name}", "straße", "x_y", None], "left": [1, 2, 3, 4, 5, 6],
        "i": pa.array([1, 7, None, -1, 2**31 - 2, 2], pa.int32()), "y": pa.array([b"", b"\0", None, b"1", b"2", b"3"]),
        "t": pa.array([last, None, last, last, dt.datetime(1970, 1, 1), None], pa.timestamp("us", "UTC")),
        "n": pa.array([last, None, last, last, dt.datetime(1970, 1, 1), None], pa.timestamp("us")),
        "p": pa.array([Decimal("1.23"), None, 5, 6, 7, 8], pa.decimal128(9, 2)),
    }  # fmt: skip
    rows = pa.table(columns)
    table = Lake(str(tmp_path)).create_table("d.t", rows.schema)
    table.append(rows)
    expected = {text: sorted(table.scan(where=text).to_arrow()["id"].to_pylist()) for text in OF_SETTINGS}
    assert all(expected.values()), expected
    settings = list(SETTINGS.items())
    for given in ({}, *([setting] for setting in settings)) if IS_LONG else [some(settings, len(settings) // 2)]:
        given = dict(given)
        before = {name: spark.conf.get(name, None) for name in given}
        for name, value in given.items():
            spark.conf.set(name, value)
        try:
            frames = [
                table.scan(["id"], where=text).to_spark(spark).withColumn("c", F.lit(i))
                for i, text in enumerate(OF_SETTINGS)
            ]
            found = reduce(lambda a, b: a.union(b), frames).collect()
        finally:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)
        by_text = {text: sorted(r.id for r in found if r.c == i) for i, text in enumerate(OF_SETTINGS)}
        assert by_text == expected, given


def test_columns_for_the_condition_alone_are_not_shown(run, store):
    files = run.engine.write(store, run.frame(sample(50)), layout())
    found = run.engine.read(store, tasks_of(files, FIELDS[:2], predicate=lt("id", 3)), FIELDS[1:2])
    assert [list(row) for row in run.rows(found)] == [["day"]] * 3


def test_constants_stand_in_for_columns(run, store):
    files = run.engine.write(store, run.frame(sample(5)), layout())
    added = (
        FIELDS[0], field(70, "d", Kind.DATE), field(71, "at", Kind.TIMESTAMP, 3), field(72, "zoned", Kind.TIMESTAMP_TZ, 6),
        field(73, "text", Kind.STRING), field(74, "n", Kind.DECIMAL, 5, 2), field(75, "none", Kind.INT), field(76, "b", Kind.BYTES),
    )  # fmt: skip
    constants = (
        (70, dt.date(2020, 1, 1)), (71, 5), (72, 1_000_001), (73, "it's"), (74, Decimal("1.50")), (75, None), (76, b"\x00"),
    )  # fmt: skip
    found = run.rows(run.engine.read(store, tasks_of(files, added, constants=constants), added))
    assert found[0] == {
        "id": 0, "d": dt.date(2020, 1, 1), "at": dt.datetime(1970, 1, 1, 0, 0, 0, 5000),
        "zoned": dt.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), "text": "it's", "n": Decimal("1.50"), "none": None, "b": b"\x00",
    }  # fmt: skip
    assert len(found) == 5


def test_a_limit_is_a_limit(run, store):
    files = run.engine.write(store, run.frame(sample(50)), layout(partition_by=identity("day").fields))
    assert len(run.rows(run.engine.read(store, tasks_of(files), FIELDS, limit=7))) == 7
    assert run.rows(run.engine.read(store, tasks_of(files), FIELDS, limit=0)) == []


# --- Refusals ---


def test_columns_that_do_not_fit_are_refused_before_anything_runs(run, store):
    for table, message in [
        (pa.table({"id": [1], "idd": [2]}), "column 'idd' is not in the table"),
        (pa.table({"day": [dt.date(2020, 1, 1)]}), "column 'id' is NOT NULL"),
        (pa.table({"id": [1], "text": [5]}), "column text: int64 does not fit string"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            run.engine.write(store, run.frame(table), layout())
    assert store.list("") == []


def test_values_that_do_not_fit_are_refused_by_name_and_leave_nothing(run, store):
    table = pa.table({"id": pa.array([1, None, 3] * 50, pa.int32()), "day": [dt.date(2020, 1, 1)] * 150})
    with pytest.raises(InvalidInput, match="column id is NOT NULL, and the data has"):
        run.engine.write(store, run.frame(table), layout(partition_by=identity("day").fields))
    with pytest.raises(InvalidInput, match=r"column code: .* longer than char\(3\)"):
        run.engine.write(store, run.frame(pa.table({"id": [1], "code": ["abcd"]})), layout())
    with pytest.raises(OutsideScope, match="rows are outside"):
        run.engine.write(store, run.frame(sample(40)), layout(required=eq("day", dt.date(2020, 1, 1))))
    assert store.list("") == []


def test_missing_columns_become_null(run, store):
    files = run.engine.write(store, run.frame(pa.table({"id": pa.array([1], pa.int32())})), layout())
    assert run.rows(run.engine.read(store, tasks_of(files), FIELDS)) == [
        {**dict.fromkeys(f.name for f in FIELDS), "id": 1}
    ]


def test_a_missing_file_is_an_error_that_names_it(run, store):
    files = run.engine.write(store, run.frame(sample(30)), layout(partition_by=identity("day").fields))
    gone = files[0].path
    store.delete([gone])
    with pytest.raises(Exception, match=gone.rpartition("/")[2]) as caught:
        run.rows(run.engine.read(store, tasks_of(files), FIELDS))
    if run.name == "arrow":
        assert caught.type is CorruptFile


# --- Rewriting ---


@pytest.mark.parametrize("format", FORMATS)
def test_rewriting_merges_deletes_and_assigns(run, store, format):
    table = sample(120, format=format)
    task = layout(encoding=Encoding(format), partition_by=identity("day").fields)
    files = [f for _ in range(2) for f in run.engine.write(store, run.frame(table), task)]
    by_day = {day: [f for f in files if f.partition == day] for day in {f.partition for f in files}}
    merged = [RewriteTask(tuple(tasks_of(group)), task) for group in by_day.values()]
    written = run.engine.rewrite(store, merged)
    assert [len(file) for file in written] == [1] * len(by_day)
    assert [file[0].partition for file in written] == list(by_day)
    assert [file[0].row_count for file in written] == [sum(f.row_count for f in group) for group in by_day.values()]

    change = replace(
        merged[0],
        delete_where=lt("id", 50),
        assignments=(("big", call("neg", column("id"))),),
        update_where=lt("id", 80),
    )
    ((file,),) = run.engine.rewrite(store, [change])
    day = file.partition[0]
    expected = [
        {**row, "big": -row["id"] if row["id"] < 80 else row["big"]}
        for row in normal(table)
        for _ in range(2)
        if row["day"] == day and row["id"] >= 50
    ]
    assert Here().rows(ArrowEngine().read(store, tasks_of([file]), FIELDS)) == expected
    assert run.engine.rewrite(store, []) == []


def test_a_rewrite_that_fails_leaves_only_what_was_there(run, store):
    table = sample(60)
    task = layout(partition_by=identity("day").fields)
    files = run.engine.write(store, run.frame(table), task)
    before = {listed.path for listed in store.list("")}
    bad = RewriteTask(tuple(tasks_of(files)), task, assignments=(("id", call("nullif", column("id"), column("id"))),))
    with pytest.raises(InvalidInput, match="column id is NOT NULL"):
        run.engine.rewrite(store, [RewriteTask(tuple(tasks_of(files)), task), bad])
    assert {listed.path for listed in store.list("")} == before


# --- Forms of data that this process takes ---


def test_this_process_takes_every_form_of_data(store):
    import pandas as pd
    import polars as pl

    fields = (field(0, "id", Kind.BIGINT), field(1, "text", Kind.STRING), field(2, "at", Kind.TIMESTAMP, 6))
    at = dt.datetime(2020, 1, 1, 10)
    rows = [{"id": 1, "text": "a", "at": at}, {"id": 2, "text": None, "at": None}]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(fields))
    task = layout(fields)
    for data in [
        table,
        table.to_batches()[0],
        table.to_batches(),
        table.to_reader(),
        iter(table.to_batches()),
        rows,
        {"id": [1, 2], "text": ["a", None], "at": pa.array([at, None])},
        pl.from_arrow(table),
        pd.DataFrame({"id": [1, 2], "text": ["a", None], "at": [at, None]}),
    ]:
        files = ArrowEngine().write(store, data, task)
        assert Here().rows(ArrowEngine().read(store, tasks_of(files, fields, fields), fields)) == rows, type(data)
    for data in ["a", 5, object(), [1, 2]]:
        with pytest.raises(InvalidInput, match="data"):
            ArrowEngine().write(store, data, task)
    with pytest.raises(InvalidInput, match="column 'id'"):
        ArrowEngine().write(store, [{"id": "x"}], task)


def test_columns_are_checked_also_where_there_is_no_row(store):
    empty = pa.table({"id": pa.array([], pa.int64()), "nmae": pa.array([], pa.string())})
    for data in [empty, empty.to_reader(), empty.to_pandas()]:
        with pytest.raises(InvalidInput, match="column 'nmae' is not in the table"):
            ArrowEngine().write(store, data, layout((field(0, "id", Kind.BIGINT),)))
    assert ArrowEngine().write(store, empty.select(["id"]), layout((field(0, "id", Kind.BIGINT),))) == []


def test_reading_ahead_keeps_the_order_of_tasks_and_stops_with_its_reader(store):
    fields = (field(0, "id", Kind.BIGINT),)
    files = [
        f
        for start in range(0, 50_000, 1000)
        for f in ArrowEngine().write(store, pa.table({"id": range(start, start + 1000)}), layout(fields))
    ]
    found = ArrowEngine(threads=4).read(store, tasks_of(files, fields, fields), fields).read_all()
    assert found.column("id").to_pylist() == list(range(50_000))
    reader = ArrowEngine(threads=4).read(store, tasks_of(files, fields, fields), fields)
    assert reader.read_next_batch().num_rows == 1000
    del reader


# --- What only Spark has ---


@pytest.mark.spark
def test_spark_reads_clean_files_by_itself_and_leaves_the_rest_to_the_worker(spark, store):
    run = OnSpark(spark)
    table = sample(40)
    files = run.engine.write(store, run.frame(table), layout())
    clean = run.engine.read(store, tasks_of(files), FIELDS)
    assert "MapInArrow" not in plan(clean)
    assert "FileScan parquet" in plan(clean)
    pushed = plan(run.engine.read(store, tasks_of(files, predicate=lt("id", 5)), FIELDS))
    assert "PushedFilters: [IsNotNull(id), LessThan(id,5)]" in pushed
    avro = run.engine.write(store, run.frame(table), layout(encoding=Encoding("avro")))
    mixed = run.engine.read(store, [*tasks_of(files), *tasks_of(avro)], FIELDS)
    assert "FileScan parquet" in plan(mixed)
    assert "MapInArrow" in plan(mixed)
    assert len(run.rows(mixed)) == 80


@pytest.mark.spark
def test_executors_are_not_handed_what_opens_the_catalog(spark, store):
    run = OnSpark(spark)
    table, in_catalog = sample(20), Catalogued(store, threading.Lock())  # A place that cannot travel.
    files = run.engine.write(in_catalog, run.frame(table), layout(encoding=Encoding("avro")))
    assert run.rows(run.engine.read(in_catalog, tasks_of(files), FIELDS)) == normal(table)
    assert run.engine.count(in_catalog, tasks_of(files)) == [f.row_count for f in files]


def plan(frame):
    return frame._jdf.queryExecution().toString()


@pytest.mark.spark
def test_timestamps_marked_as_instants_by_older_writers_are_left_to_the_worker(spark, store):
    import pyarrow.parquet as pq

    run = OnSpark(spark)
    fields = (field(0, "id", Kind.INT), field(1, "at", Kind.TIMESTAMP, 6), field(2, "old", Kind.TIMESTAMP, 6))
    at = dt.datetime(2020, 1, 1, 10)
    held = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([at], pa.timestamp("us", "UTC")), "old": [at]})
    with store.create_stream("t/instant.parquet") as sink:
        pq.write_table(held, sink)
    with store.create_stream("t/int96.parquet") as sink:
        pq.write_table(held, sink, use_deprecated_int96_timestamps=True)
    tasks = [FilesTask((f"t/{n}.parquet",), (1,), (1,), "parquet", fields, fields) for n in ("instant", "int96")]
    found = run.engine.read(store, tasks, fields)
    assert "FileScan parquet" not in plan(found)
    assert run.rows(found) == [{"id": 1, "at": at, "old": at}] * 2


@pytest.mark.spark
@pytest.mark.from_pyspark("4.1")
def test_rows_of_a_bucket_meet_in_one_file_whatever_tasks_held_them(spark, store):
    frame = OnSpark(spark).frame(sample(400)).repartition(4)
    task = layout(partition_by=identity("day").fields, bucket=BucketRule(("big", "micros"), 2))
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        files = OnSpark(spark).engine.write(store, frame, task)
        assert len({(f.partition, f.bucket) for f in files}) == len(files) == 8
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    assert sum(f.row_count for f in files) == 400


@pytest.mark.spark
def test_spark_evaluates_its_source_once(spark, store, tmp_path):
    seen = spark.sparkContext.accumulator(0)

    def counted(batches):
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    frame = spark.range(0, 1000, 1, 4).mapInArrow(counted, "id bigint")
    fields = (field(0, "id", Kind.BIGINT),)
    for distribution in ("none", "auto", "hash"):
        before = seen.value
        task = layout(
            fields, partition_by=identity("id").fields if distribution == "none" else (), distribution=distribution
        )
        files = OnSpark(spark).engine.write(store, frame, replace(task, partition_by=()))
        assert sum(f.row_count for f in files) == 1000
        assert seen.value - before == 1000


@pytest.mark.spark
def test_spark_timestamps_with_and_without_zone_become_each_other_by_the_sessions_zone(spark, store):
    fields = (field(0, "local", Kind.TIMESTAMP, 6), field(1, "instant", Kind.TIMESTAMP_TZ, 6))
    frame = spark.sql("select timestamp'2020-01-01 10:00:00' local, timestamp_ntz'2020-01-01 10:00:00' instant")
    files = OnSpark(spark).engine.write(store, frame, layout(fields))
    assert Here().rows(ArrowEngine().read(store, tasks_of(files, fields, fields), fields)) == [
        {"local": dt.datetime(2020, 1, 1, 10), "instant": dt.datetime(2020, 1, 1, 18, tzinfo=UTC)}
    ]


@pytest.mark.spark
def test_a_source_that_fails_raises_sparks_own_error_and_leaves_nothing(spark, store):
    frame = spark.range(0, 1000, 1, 2).selectExpr("cast(raise_error('a mistake of the user') as bigint) id")
    with pytest.raises(Exception, match="a mistake of the user"):
        OnSpark(spark).engine.write(store, frame, layout((field(0, "id", Kind.BIGINT),)))
    assert store.list("") == []


@pytest.mark.spark
def test_a_task_that_is_tried_again_doubles_no_row_and_loses_none(spark, store, tmp_path):
    marker = str(tmp_path / "failed")

    def fails_once(batches):
        for batch in batches:
            yield batch
            if not os.path.exists(marker):
                with open(marker, "w"):
                    raise OSError("this executor is lost")

    frame = spark.range(0, 100_000, 1, 1).mapInArrow(fails_once, "id bigint")
    fields = (field(0, "id", Kind.BIGINT),)
    files = OnSpark(spark).engine.write(store, frame, replace(layout(fields), naming=Naming("", names_task=True)))
    assert os.path.exists(marker)
    partition, attempt, *_ = files[0].path.rpartition("/")[2].split("-")
    assert (partition, int(attempt) > 0) == ("00000", True), "the attempt that counts was not the session's first"
    found = ArrowEngine().read(store, tasks_of(files, fields, fields), fields).read_all()
    assert sorted(found.column("id").to_pylist()) == list(range(100_000))


@pytest.mark.spark
def test_a_write_that_is_cancelled_ends_and_leaves_no_task_running(spark, store):
    def slow(batches):
        for batch in batches:
            time.sleep(120)
            yield batch

    frame = spark.range(0, 10, 1, 2).mapInArrow(slow, "id bigint")
    cancel = threading.Timer(5, spark.interruptAll)
    cancel.start()
    started = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)cancel"):
        OnSpark(spark).engine.write(store, frame, layout((field(0, "id", Kind.BIGINT),)))
    assert time.monotonic() - started < 90
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert store.list("") == []
    assert spark.range(5).count() == 5


def _stops(batches):
    """The last row's task ends as `how` says, once others have written."""
    for batch in batches:
        for value in batch.column(0).to_pylist():
            how, _, folder = value.partition(":")
            if how != "write":
                deadline = time.monotonic() + 60
                while _data_files(folder) < 3 and time.monotonic() < deadline:
                    time.sleep(0.05)
            if how == "raise":
                raise OSError("this disk is full")
            if how == "exit":
                os._exit(1)
            if how == "wait":
                time.sleep(120)
        yield pa.RecordBatch.from_arrays([pa.array(range(batch.num_rows), pa.int64())], names=["id"])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("format", "properties", "how"),
    [
        ("paimon", {}, "raise"),
        ("paimon", {}, "wait"),
        ("iceberg", {"write.distribution-mode": "none"}, "exit"),
    ],
)
def test_whatever_ends_a_job_what_its_tasks_wrote_is_deleted(spark, tmp_path, caplog, format, properties, how):
    table = Lake(str(tmp_path)).create_table(
        "a.b", pa.schema([("id", pa.int64())]), format=format, properties=properties
    )
    kept = table.append(pa.table({"id": [1, 2]}))
    before = {str(path) for path in tmp_path.rglob("*")}
    last = f"{how}:{tmp_path}"
    text = F.when(F.col("id") < 4, F.lit("write")).otherwise(F.lit(last)).alias("text")
    frame = spark.range(0, 5, 1, 5).select(text).mapInArrow(_stops, "id bigint")
    if how == "wait":
        threading.Thread(target=_interrupt_when_written, args=(spark, tmp_path), daemon=True).start()
    with pytest.raises(Exception, match=r"(?i)this disk is full|cancel|crashed|exited"):
        table.append(frame)
    assert {str(path) for path in tmp_path.rglob("*")} == before
    assert [snapshot.id for snapshot in table.snapshots()] == [kept.id]
    assert table.scan().count() == 2
    assert "files that its tasks had written are deleted" in caplog.text
    count = int(re.search(r"(\d+) files that its tasks", caplog.text)[1])
    assert count >= 2, caplog.text


def _interrupt_when_written(spark, folder):
    deadline = time.monotonic() + 60
    while _data_files(folder) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    spark.interruptAll()


def _data_files(folder):
    return sum(name.startswith(("data-", "0000")) for _, _, names in os.walk(folder) for name in names)


def test_what_tasks_wrote_and_storage_does_not_delete_is_left_to_the_sweep_by_name(tmp_path, caplog):
    from lakeformat.engines.spark import jobs

    class Stuck(LocalFiles):
        def delete(self, paths):
            raise StoreError("the disk is gone")

    job = formats.new_job()
    with formats.of_task(job, 0, 0):
        name = f"data-{formats.fresh_name()}-0.parquet"
    others = f"data-{formats.fresh_name()}-0.parquet"
    for path in (name, others):
        open_store(str(tmp_path)).write(path, b"x")
    jobs._delete(Stuck(str(tmp_path), open_store), job)
    assert f"those with {job} in their names, cannot be deleted now: the disk is gone" in caplog.text
    jobs._delete(open_store(str(tmp_path)), job)
    assert [file.path for file in open_store(str(tmp_path)).list("")] == [others]
    assert "1 files that its tasks had written are deleted" in caplog.text


@pytest.mark.spark
def test_executors_can_be_sent_the_library(spark):
    from lakeformat.engines.spark import add_to_session

    add_to_session(spark)

    def places(batches):
        import sys

        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([p for p in sys.path if p.endswith("lakeformat.zip")])], ["p"])

    assert spark.range(1).mapInArrow(places, "p string").count() >= 1


@pytest.mark.spark
def test_packages_that_workers_lack_are_named(spark, monkeypatch):
    from lakeformat.engines.spark import workers

    monkeypatch.setattr(workers, "MODULES", ("pyarrow", "a_package_of_nobody"))
    with pytest.raises(UnsupportedFeature, match=r"which lacks a_package_of_nobody: .*pack='auto'"):
        workers.ready(spark)


@pytest.mark.spark
def test_spark_schemas_and_columns_become_each_other(spark):
    from pyspark.sql import types as T

    from lakeformat.engines.spark import fields_from_spark, spark_schema

    schema = T.StructType([
        T.StructField("a", T.IntegerType(), False, {"comment": "a number"}),
        T.StructField("b", T.ArrayType(T.StructType([T.StructField("c", T.DecimalType(10, 2))]), False)),
        T.StructField("d", T.MapType(T.StringType(), T.TimestampNTZType(), False)),
        T.StructField("e", T.TimestampType()),
        T.StructField("f", T.VarcharType(5)),
        T.StructField("g", T.CharType(2)),
    ])  # fmt: skip
    fields = fields_from_spark(schema)
    assert [str(each.type) for each in fields] == [
        "int", "array<row<c: decimal(10, 2)>>", "map<string, timestamp(6)>", "timestamp_tz(6)", "varchar(5)", "char(2)",
    ]  # fmt: skip
    assert (fields[0].nullable, fields[0].comment) == (False, "a number")
    assert [each.dataType.simpleString() for each in spark_schema(fields)] == [
        "int", "array<struct<c:decimal(10,2)>>", "map<string,timestamp_ntz>", "timestamp", "string", "string",
    ]  # fmt: skip
    with pytest.raises(UnsupportedFeature, match="interval"):
        fields_from_spark(T.StructType([T.StructField("x", T.DayTimeIntervalType())]))


@pytest.mark.spark
def test_a_size_of_shuffled_partitions_that_the_session_sets_is_kept(spark):
    """Else Spark splits them above the target size of files, since a task writes a file to each partition."""
    name = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    spark.conf.unset(name)
    default = spark.conf.get(name)
    with session.in_tasks_of(spark, 512 << 20):
        assert spark.conf.get(name) == f"{512 << 20}b"
    assert spark.conf.get(name) == default
    spark.conf.set(name, "32MB")
    try:
        with session.in_tasks_of(spark, 512 << 20):
            assert spark.conf.get(name) == "32MB"
    finally:
        spark.conf.unset(name)
