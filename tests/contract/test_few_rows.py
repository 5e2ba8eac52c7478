"""Few rows of a Spark frame are written where the driver is, and nothing but the time tells."""

import pyarrow as pa
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from lakeformat import InvalidInput, Lake
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.spark import few, jobs
from lakeformat.maintenance import compact
from lakeformat.model.predicate import ALWAYS
from tests import doors

ROWS = """
    select id, cast(id % 3 as string) as dt, cast(id as tinyint) as tiny, id % 2 = 0 as even, cast(id as decimal(20, 3)) as dec,
        timestamp'2024-03-31 02:30:00' + make_interval(0, 0, 0, cast(id as int)) as at, timestamp_ntz'2024-03-31 02:30:00' as ntz,
        date_from_unix_date(cast(id as int)) as day, if(id = 1, null, encode('x', 'utf-8')) as raw,
        array(id, null) as list, map('k', id) as map, named_struct('a.b', id, 'c', array('d')) as part, id / 7 as `with.dot`,
        if(id % 5 = 4, '-D', '+I') as rowkind
    from range({})
"""


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "warehouse"))


@pytest.fixture
def ways(monkeypatch):
    """How many frames came to the driver."""
    came, write = [], ArrowEngine.write

    def seen(self, store, data, task):
        came.append(data.num_rows)
        return write(self, store, data, task)

    monkeypatch.setattr(ArrowEngine, "write", seen)
    return came


def make(lake, name, frame, bucket="2", **properties):
    return lake.create_table(
        name,
        frame.drop("rowkind").schema,
        format="paimon",
        partition_by=["dt"],
        primary_key=["id", "dt"],
        properties={"bucket": bucket, **properties},
    )


def content(table):
    return table.scan().to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize("bucket", ["3", "-1"])
def test_few_rows_are_the_same_as_many(lake, spark, ways, monkeypatch, bucket):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = spark.sql(ROWS.format(40))
        here, there = make(lake, "d.here", frame, bucket), make(lake, "d.there", frame, bucket)
        for _ in range(2):
            here.upsert(frame)
            assert ways.pop() == 40
        here.overwrite_partitions(frame.where("dt = '1'"))
        assert ways.pop() == 13
        monkeypatch.setattr(few, "_FEW_BYTES", -1)
        for _ in range(2):
            there.upsert(frame)
        there.overwrite_partitions(frame.where("dt = '1'"))
        assert not ways
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert content(here) == content(there)
    assert len(content(here)) == 32
    assert here.scan().to_arrow().schema == there.scan().to_arrow().schema


def test_rows_that_spark_took_for_few_are_written_by_all(lake, spark, ways, monkeypatch):
    monkeypatch.setattr(few, "_FEW_ROWS", 20)
    frame = spark.sql(ROWS.format(50)).repartition(2)
    table = make(lake, "d.t", frame)
    table.upsert(frame)
    assert not ways
    assert len(content(table)) == 40
    table.upsert(frame.where("id < 20"))
    assert ways == [20]
    multiplied = frame.where("id < 10").selectExpr("* except (id)", "explode(sequence(100 * id, 100 * id + 9)) as id")
    table.upsert(multiplied)
    assert ways == [20], "many rows of few"
    table.upsert(multiplied.where("id % 10 = 0"))
    assert ways == [20, 10]


def test_what_comes_out_of_python_or_multiplies_many_rows_has_no_bound(lake, spark, ways):
    frame = spark.sql(ROWS.format(10)).drop("with.dot")  # Which mapInArrow does not take.
    assert few.guessed_bytes(frame) < 1 << 20
    assert few.guessed_bytes(frame.groupBy("dt").count().orderBy("dt").limit(2)) < 1 << 20
    one = frame.select("id", "dt")
    for multiplied in (frame.join(one, "id", "left"), frame.selectExpr("*", "explode(list) as one")):
        assert few.guessed_bytes(multiplied) < 1 << 20, "as large as what it reads"
    wide = spark.range(200_000).selectExpr("id", "string(id) as dt", *(f"id + {n} as n{n}" for n in range(20)))
    assert few.guessed_bytes(wide.join(wide.withColumnRenamed("n0", "m"), "id")) == float("inf"), "32 MB are joined"
    daily = wide.select("id", "dt").groupBy("dt").agg(F.max("id").alias("last"))
    joined = daily.join(one, "dt", "left").selectExpr("*", "explode(array(1, 2)) as n")
    assert few.guessed_bytes(joined) < 16 << 20, "of what is joined, not of what that was made from"
    for unbounded in (
        frame.mapInArrow(lambda found: found, frame.schema),
        spark.range(1 << 30).selectExpr("id", "explode(array(id, null)) as one"),
        frame.alias("a").crossJoin(frame.alias("b")),
        one.join(one.toDF("a", "b"), F.col("id") < F.col("a")),
        one.join(spark.range(1 << 30), "id"),
        spark.range(1 << 40),
    ):
        assert few.guessed_bytes(unbounded) > few._FEW_BYTES
    table = make(lake, "d.t", frame)
    table.upsert(frame.mapInArrow(lambda found: found, frame.schema))
    table.upsert(table.scan().to_spark(spark))
    assert not ways


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_few_rows_without_a_key_are_one_file_of_the_driver(lake, spark, ways, monkeypatch, format):
    """Also where they are joined, and of several parts, of which executors make a file each."""
    frame = spark.sql(ROWS.format(40)).drop("rowkind", "tiny", "part").repartition(3)
    joined = frame.join(spark.range(30), "id").withColumn(
        "n", F.row_number().over(Window.partitionBy("dt").orderBy("id"))
    )
    tables = [lake.create_table(f"d.{name}", joined.schema, format=format, partition_by=["dt"]) for name in "ab"]
    tables[0].overwrite_partitions(joined)
    assert ways == []
    monkeypatch.setattr(few, "_WRITTEN_BYTES", 64 << 20)
    tables[1].overwrite_partitions(joined)
    assert ways == [30]
    assert content(tables[1]) == content(tables[0])
    assert tables[1].inspect.partitions()["file_count"].to_pylist() == [1, 1, 1]
    monkeypatch.setattr(few, "_FEW_ROWS", 5)
    tables[1].append(joined)
    assert ways == [30]
    assert tables[1].scan().count() == 60


def test_a_mistake_among_few_rows_is_refused_and_leaves_nothing(lake, spark, tmp_path):
    frame = spark.sql(ROWS.format(10))
    table = make(lake, "d.t", frame)
    with pytest.raises(InvalidInput, match="row kinds"):
        table.upsert(frame.selectExpr("* except (rowkind)", "if(id = 7, 'x', '+I') as rowkind"))
    with pytest.raises(InvalidInput, match="column id is NOT NULL"):
        table.upsert(frame.selectExpr("* except (id)", "if(id = 7, null, id) as id"))
    with pytest.raises(Exception, match="odd row"):
        table.upsert(frame.selectExpr("* except (raw)", "if(id = 7, raise_error('odd row'), raw) as raw"))
    assert table.current_snapshot() is None
    assert not list(tmp_path.rglob("bucket-*/*"))


def test_a_column_twice_is_refused_by_its_name(lake, spark):
    frame = spark.sql("select 1L as id, 'a' as dt")
    table = make(lake, "d.t", frame)
    with pytest.raises(InvalidInput, match="column 'dt' is in the data twice"):
        table.upsert(frame.selectExpr("*", "'b' as dt"))
    assert table.current_snapshot() is None


def test_no_row_at_all(lake, spark, ways):
    frame = spark.sql(ROWS.format(10))
    table = make(lake, "d.t", frame)
    table.upsert(frame.where("id > 100"))
    assert content(table) == []
    assert table.scan().to_arrow().schema.field("dec").type == pa.decimal128(20, 3)


def test_rows_too_large_for_the_driver_are_written_by_all(lake, spark, ways, monkeypatch):
    frame = spark.sql(ROWS.format(10))
    table = make(lake, "d.t", frame)

    def too_large(self):
        raise RuntimeError("Total size of serialized results is bigger than spark.driver.maxResultSize (1024.0 MiB)")

    monkeypatch.setattr(type(frame), "toArrow", too_large)
    table.upsert(frame)
    assert not ways
    assert len(content(table)) == 8


def test_a_file_is_larger_in_memory(spark, tmp_path):
    spark.range(100_000).write.parquet(str(tmp_path / "files"))
    held = sum(path.stat().st_size for path in (tmp_path / "files").glob("*.parquet"))
    frame = spark.read.parquet(str(tmp_path / "files"))
    assert few.guessed_bytes(frame) == pytest.approx(8 * held, rel=0.1)


@pytest.mark.parametrize("format", ["paimon", "iceberg", "keyed"])
def test_few_rows_are_rewritten_by_the_driver_as_by_executors(lake, spark, monkeypatch, format):
    rewritten, rewrite = [], ArrowEngine.rewrite

    def seen(self, store, tasks):
        rewritten.extend(tasks)
        return rewrite(self, store, tasks)

    monkeypatch.setattr(ArrowEngine, "rewrite", seen)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    keys = {"primary_key": ["id"], "properties": {"bucket": "1"}} if format == "keyed" else {}
    contents = []
    for name, limit, by_driver in (("d.here", 64 << 20, True), ("d.there", -1, False)):
        monkeypatch.setattr(few, "_REWRITTEN_BYTES", limit)
        rewritten.clear()
        table = lake.create_table(name, schema, format="paimon" if format == "keyed" else format, **keys)
        for start in (0, 5, 10):
            table.append(pa.table({"id": range(start, start + 8), "v": ["x"] * 8}, schema=schema))
        table.compact(full=True, spark=spark)
        assert len(table.inspect.files()) == 1
        table.update({"v": "'y'"}, where="id = 3", spark=spark)
        assert bool(rewritten) == by_driver
        contents.append(content(table))
    assert contents[0] == contents[1]
    assert len(contents[0]) == (18 if format == "keyed" else 24)


def test_rows_that_are_merged_are_few_if_they_are_few_in_memory(lake, monkeypatch):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    data = pa.table({"id": range(1000), "v": [f"{i * 7919 % 1000}" for i in range(1000)]}, schema=schema)
    for name, keys in (("d.plain", {}), ("d.keyed", {"primary_key": ["id"], "properties": {"bucket": "1"}})):
        table = lake.create_table(name, schema, format="paimon", **keys)
        table.append(data)
        table.append(data)
        tasks = compact.worth_it(doors.view(table), True, ALWAYS, ())
        monkeypatch.setattr(few, "_REWRITTEN_BYTES", 4 * sum(read.size_bytes for task in tasks for read in task.read))
        assert few.to_rewrite(tasks) == (name == "d.plain")
        monkeypatch.setattr(few, "_REWRITTEN_BYTES", 64 << 20)
        assert few.to_rewrite(tasks)
        monkeypatch.setattr(few, "_FEW_ROWS", 1999)
        assert not few.to_rewrite(tasks)
        monkeypatch.undo()


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read", "keyed"])
def test_few_rows_are_merged_into_few_files_by_the_driver(lake, spark, monkeypatch, tmp_path, mode):
    """And into more by Spark's tasks, with the same result."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
    of_spark, each = [], jobs.each
    monkeypatch.setattr(jobs, "each", lambda *given: of_spark.append(given) or each(*given))
    found = []
    for limit in (256 << 20, -1):
        monkeypatch.setattr(few, "_MERGED_BYTES", limit)
        how = {"format": "iceberg", "properties": {"write.merge.mode": mode}}
        if mode == "keyed":
            how = {"format": "paimon", "primary_key": ["id", "dt"], "properties": {"bucket": "2"}}
        table = lake.create_table(f"d.t{limit % 7}", schema, partition_by=["dt"], **how)
        table.append(pa.table([range(60), ["old"] * 60, ["ab"[i % 2] for i in range(60)]], schema=schema))
        on = "t.id = s.id and t.dt = s.dt" if mode == "keyed" else "t.id = s.id"
        source = spark.range(50, 70).selectExpr("id", "concat('new ', id) as v", "if(id % 2 = 0, 'a', 'b') as dt")
        chain = table.merge_into(source, on=on).when_matched("s.id = 51").delete()
        made = chain.when_matched().update_all().when_not_matched().insert_all().merge()
        found.append((content(table), made.rows_added, made.rows_removed))
        assert bool(of_spark) == (limit < 0)
        assert not list(tmp_path.rglob("merge-*"))
    assert found[0] == found[1]
    assert len(found[0][0]) == 69
