"""Tables of Spark's own catalog become tables of the lake: their files are adopted, or their rows copied."""

import datetime as dt
import sqlite3
import uuid
from decimal import Decimal
from pathlib import Path

import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, LakeError, NotFound, UnsupportedFeature
from tests.sql.conftest import rows

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT COMMENT 'the key', v STRING, x DECIMAL(9, 2), b TINYINT, ts TIMESTAMP, s STRUCT<a: INT, t: TIMESTAMP>"
)
VALUES = (
    "(1, 'a', 1.5, 1, TIMESTAMP '2021-06-01 12:00:00.123456', struct(1, TIMESTAMP '1969-01-01 00:00:00'), 'x y/z', 1), "
    "(2, NULL, NULL, NULL, NULL, NULL, NULL, 2), "
    "(3, 'c', -0.05, -1, TIMESTAMP '1969-06-01 12:00:00', struct(NULL, NULL), 'b', 2)"
)
FAR = "(9, 'far', 0, 0, NULL, NULL)"


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "w", catalog="sql")


@pytest.fixture
def db(spark, tmp_path):
    """A database of Spark's own catalog, whose managed tables lie below `tmp_path`."""
    name = f"db_{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/spark'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


@pytest.fixture
def source(spark, db, tmp_path):
    """An external table, one partition of which lies elsewhere."""
    spark.sql(
        f"CREATE TABLE {db}.src ({COLUMNS}, p STRING, q INT) USING parquet PARTITIONED BY (p, q) COMMENT 'hello' "
        f"TBLPROPERTIES ('made.by' = 'me') LOCATION '{tmp_path}/data of src'"
    )
    spark.sql(f"INSERT INTO {db}.src VALUES {VALUES}")
    spark.sql(f"ALTER TABLE {db}.src ADD PARTITION (p = 'far', q = 3) LOCATION '{tmp_path}/far away'")
    spark.sql(f"INSERT INTO {db}.src PARTITION (p = 'far', q = 3) VALUES {FAR}")
    return f"{db}.src"


def tables_of(spark, db):
    return sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN {db}").collect() if not row.isTemporary)


def tuples(table):
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def ids(table, **how):
    return sorted(table.scan(["id"], **how).to_arrow()["id"].to_pylist())


def files_below(folder):
    return {str(path): path.stat().st_size for path in Path(folder).rglob("*.parquet")}


def test_a_snapshot_table_has_the_rows_of_its_source_and_never_deletes_its_files(lake, spark, source, tmp_path):
    before = {**files_below(tmp_path / "data of src"), **files_below(tmp_path / "far away")}
    assert len(before) == 4
    made = lake.sql(f"CALL system.snapshot('{source}', 'd.snap', properties => map('k', 'v'))", spark=spark)
    assert rows(made) == [(4,)]
    table = lake.table("d.snap")
    got = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["p"], row["q"]) for row in got] == [
        (1, "x y/z", 1),
        (2, None, 2),
        (3, "b", 2),
        (9, "far", 3),
    ]
    assert got[0]["ts"] == dt.datetime(2021, 6, 1, 12, 0, 0, 123456, dt.UTC)
    assert got[0]["s"] == {"a": 1, "t": dt.datetime(1969, 1, 1, tzinfo=dt.UTC)}
    assert (got[2]["x"], got[2]["b"], got[2]["ts"]) == (
        Decimal("-0.05"),
        -1,
        dt.datetime(1969, 6, 1, 12, tzinfo=dt.UTC),
    )
    assert {key: table.properties[key] for key in ("gc.enabled", "snapshot", "made.by", "k")} == {
        "gc.enabled": "false", "snapshot": "true", "made.by": "me", "k": "v"}  # fmt: skip
    assert (table.schema.comment, table.schema.field("id").comment) == ("hello", "the key")
    assert ids(table, where="p = 'far'") == [9]
    assert ids(table, where="ts < timestamp '2000-01-01'") == [3]
    assert sorted(table.scan().to_spark(spark).select("id", "ts", "s.t", "p").collect()) == sorted(
        spark.table(source).select("id", "ts", "s.t", "p").collect()
    )
    table.delete("id = 1")
    table.update({"v": "'new'"}, where="q = 2")
    table.compact(full=True)
    for verb in (
        lambda: table.expire_snapshots(retain_last=1),
        lambda: table.remove_orphan_files(older_than=dt.datetime.now(dt.UTC)),
        lambda: lake.drop_table("d.snap", purge=True),
    ):
        with pytest.raises(UnsupportedFeature, match=r"gc\.enabled=false"):
            verb()
    assert ids(table) == [2, 3, 9]
    lake.drop_table("d.snap")
    assert {**files_below(tmp_path / "data of src"), **files_below(tmp_path / "far away")} == before
    assert spark.table(source).count() == 4


def test_a_snapshot_table_lies_where_it_is_told_but_not_at_its_source(lake, spark, source, tmp_path):
    lake.sql(f"CALL system.snapshot('spark_catalog.{source}', 'd.snap', '{tmp_path}/apart')", spark=spark)
    assert (lake.table("d.snap").uri, ids(lake.table("d.snap"))) == (f"file://{tmp_path}/apart", [1, 2, 3, 9])
    for location in (f"{tmp_path}/data of src", f"{tmp_path}/data of src/below", str(tmp_path)):
        with pytest.raises(InvalidInput, match="contains the other"):
            lake.snapshot_spark_table(spark, source, "d.other", location=location)
    with pytest.raises(AlreadyExists):
        lake.snapshot_spark_table(spark, source, "d.snap")
    with pytest.raises(UnsupportedFeature, match="only tables of a SQL catalog take a location"):
        Lake(tmp_path / "folders").snapshot_spark_table(spark, source, "d.snap", location=str(tmp_path / "x"))
    assert lake.tables() == ["d.snap"]


@pytest.mark.parametrize("catalog", ["sql", None])
def test_a_migrated_table_leaves_a_backup_that_reads_the_same_files(spark, source, tmp_path, catalog):
    lake = Lake(tmp_path / "w", catalog=catalog)
    made = lake.sql(f"CALL system.migrate('spark_catalog.{source}', map('foo', 'bar'))", spark=spark)
    assert rows(made) == [(4,)]
    table = lake.table(source)
    assert (ids(table), table.properties["migrated"], table.properties["foo"]) == ([1, 2, 3, 9], "true", "bar")
    assert (table.uri == f"file://{tmp_path}/data of src") == (catalog == "sql")
    assert not spark.catalog.tableExists(source)
    assert sorted(row.id for row in spark.table(f"{source}_BACKUP_").collect()) == [1, 2, 3, 9]
    paths = [path.removeprefix("file://") for path in table.inspect.files()["path"].to_pylist()]
    with pytest.raises(AlreadyExists):
        table.add_files(paths, [{"p": "b", "q": 2}] * 4)
    table.delete("id = 1")
    table.expire_snapshots(retain_last=1, older_than=dt.timedelta(0))
    assert [Path(path).exists() for path in sorted(paths, key=lambda path: "x y" in path)] == [True] * 3 + [
        catalog is None
    ]
    assert ids(table) == [2, 3, 9]
    spark.sql(f"DROP TABLE {source}_BACKUP_")
    assert ids(table) == [2, 3, 9]
    with pytest.raises(InvalidInput, match="is a table already"):
        lake.sql(f"CALL system.migrate('{source}')", spark=spark)


def test_migrate_names_or_drops_its_backup_and_takes_tables_without_partitions(lake, spark, db, tmp_path):
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE {db}.{name} (id BIGINT NOT NULL) USING parquet LOCATION '{tmp_path}/{name}'")
    spark.sql(f"INSERT INTO {db}.a VALUES (1), (2)")
    lake.sql(f"CALL system.migrate(table => '{db}.a', backup_table_name => 'kept')", spark=spark)
    assert (
        lake.sql(f"CALL system.migrate(table => '{db}.b', drop_backup => true)", spark=spark).to_arrow()[0][0].as_py()
        == 0
    )
    assert tables_of(spark, db) == ["kept"]
    assert (ids(lake.table(f"{db}.a")), ids(lake.table(f"{db}.b")), spark.table(f"{db}.kept").count()) == (
        [1, 2],
        [],
        2,
    )
    lake.table(f"{db}.b").append([{"id": 5}])
    assert ids(lake.table(f"{db}.b")) == [5]


def test_a_migration_that_fails_gives_the_source_its_name_and_keeps_its_files(lake, spark, source, tmp_path):
    lake.create_table("d.other", spark.table(source).schema, format="iceberg")
    with sqlite3.connect(tmp_path / "w" / "catalog.sqlite") as database:
        database.execute("CREATE TRIGGER full BEFORE INSERT ON iceberg_tables BEGIN SELECT RAISE(ABORT, 'full'); END")
    before = files_below(tmp_path)
    with pytest.raises(LakeError):
        lake.migrate_spark_table(spark, source, properties={"commit.retry.num-retries": "1"})
    assert sorted(row.id for row in spark.table(source).collect()) == [1, 2, 3, 9]
    assert files_below(tmp_path) == before
    assert not [path for path in (tmp_path / "data of src" / "metadata").rglob("*") if path.is_file()]
    assert not lake.exists(source)
    with sqlite3.connect(tmp_path / "w" / "catalog.sqlite") as database:
        database.execute("DROP TRIGGER full")
    assert ids(lake.migrate_spark_table(spark, source)) == [1, 2, 3, 9]


def test_what_cannot_migrate_is_refused_and_stays(lake, spark, db, source, tmp_path):
    spark.sql(f"CREATE TABLE {db}.managed USING parquet AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE {db}.o USING orc LOCATION '{tmp_path}/orc' AS SELECT 1 AS id")
    spark.sql(f"CREATE VIEW {db}.v AS SELECT 1 AS id")
    for name, error, said in (
        ("managed", UnsupportedFeature, "managed table"),
        ("o", UnsupportedFeature, "files of orc"),
        ("v", UnsupportedFeature, "a view"),
        ("none", NotFound, "has no table"),
    ):
        with pytest.raises(error, match=said):
            lake.migrate_spark_table(spark, f"{db}.{name}")
    with pytest.raises(InvalidInput, match=r"write 'namespace\.table'"):
        lake.migrate_spark_table(spark, "managed")
    for statement in (f"snapshot('{source}', 'd.s')", f"migrate('spark_catalog.{source}')", f"migrate('{source}')"):
        with pytest.raises((UnsupportedFeature, InvalidInput), match="spark=spark"):
            lake.sql(f"CALL system.{statement}")
    spark.sql(f"CREATE TABLE {source}_BACKUP_ (id INT) USING parquet LOCATION '{tmp_path}/x'")
    with pytest.raises(InvalidInput, match="Spark does not rename it"):
        lake.migrate_spark_table(spark, source)
    assert set(tables_of(spark, db)) == {
        "managed",
        "o",
        "v",
        "src",
        "src_backup_",
    }
    assert lake.tables() == []


def test_partitions_of_a_spark_table_are_added_by_a_filter(lake, spark, source):
    lake.sql("CREATE TABLE d.t (id BIGINT, p STRING, q INT) USING iceberg PARTITIONED BY (p, q)")
    with pytest.raises(InvalidInput, match="is not in the table"):
        lake.sql(f"CALL system.add_files('d.t', '{source}')", spark=spark)
    lake.sql(f"DROP TABLE d.t; CREATE TABLE d.t ({COLUMNS}, p STRING, q INT) USING iceberg PARTITIONED BY (p, q)")
    call = f"CALL system.add_files(table => 'd.t', source_table => '{source}', partition_filter => map("
    assert rows(lake.sql(f"{call}'q', '2'))", spark=spark)) == [(2, 2)]
    table = lake.table("d.t")
    assert (ids(table), ids(table, where="p IS NULL")) == ([2, 3], [2])
    made = table.add_spark_table(spark, source, {"p": "far"}, id="once")
    assert table.add_spark_table(spark, source, {"p": "far"}, id="once").id == made.id
    assert (made.files_added, ids(table, where="p = 'far'")) == (1, [9])
    with pytest.raises(AlreadyExists):
        lake.sql(f"{call}'p', 'far'))", spark=spark)
    with pytest.raises(InvalidInput, match="'v' is not a partition column; those are p, q"):
        lake.sql(f"{call}'v', 'a'))", spark=spark)
    with pytest.raises(UnsupportedFeature, match="spark=spark"):
        lake.sql(f"{call}'p', 'far'))")
    assert rows(lake.sql(f"{call}'p', 'nobody'))", spark=spark)) == [(0, 0)]
    flat = lake.create_table("d.flat", spark.table(source).schema, format="iceberg")
    with pytest.raises(InvalidInput, match="not a column whose own values are partitions"):
        flat.add_spark_table(spark, source)
    assert (flat.current_snapshot(), ids(table)) == (None, [2, 3, 9])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["parquet", "orc", "csv"])
def test_a_hive_table_becomes_a_paimon_table_and_goes_once_its_rows_are_there(spark, db, tmp_path, kind):
    lake = Lake(tmp_path / "w")
    spark.sql(f"CREATE TABLE {db}.t (k INT, v STRING, p STRING) USING {kind} PARTITIONED BY (p) COMMENT 'hello'")
    spark.sql(f"INSERT INTO {db}.t VALUES (1, 'a', 'x'), (2, NULL, 'y'), (3, 'c', NULL)")
    before = tuples(spark.table(f"{db}.t").toArrow())
    call = f"CALL sys.migrate_table(source_type => 'hive', table => '{db}.t', options => 'file.format=parquet'"
    assert rows(
        lake.sql(
            f"{call}, target_table => 'd.copy', delete_origin => false, options_map => map('a', 'b'), parallelism => 6)",
            spark=spark,
        )
    ) == [(True,)]
    assert spark.table(f"{db}.t").count() == 3
    assert rows(lake.sql(f"{call})", spark=spark)) == [(True,)]
    assert not spark.catalog.tableExists(f"{db}.t")
    for table in (lake.table("d.copy"), lake.table(f"{db}.t")):
        assert (table.format, table.schema.partitioning.names, table.schema.primary_key) == ("paimon", ("p",), ())
        assert (table.schema.comment, table.properties["file.format"], table.properties.get("bucket", "-1")) == (
            "hello",
            "parquet",
            "-1",
        )
        assert tuples(table.scan().to_arrow()) == before
    assert lake.table("d.copy").properties["a"] == "b"


def test_a_database_migrates_table_by_table_and_says_which_failed(spark, db, tmp_path):
    lake = Lake(tmp_path / "w")
    for name in ("a", "b", "c"):
        spark.sql(f"CREATE TABLE {db}.{name} USING parquet AS SELECT 1 AS id")
    spark.sql(f"CREATE VIEW {db}.v AS SELECT * FROM {db}.a")
    lake.create_table(f"{db}.b", spark.table(f"{db}.b").schema)
    call = f"CALL sys.migrate_database(source_type => 'hive', database => '{db}', options => 'file.format=parquet')"
    with pytest.raises(LakeError, match=f"2 of 3 tables of {db} were migrated; not {db}.b: "):
        lake.sql(call, spark=spark)
    assert tables_of(spark, db) == ["b", "v"]
    lake.drop_table(f"{db}.b")
    assert rows(lake.sql(call, spark=spark)) == [(f"{db}.b", True)]
    assert [ids(lake.table(f"{db}.{name}")) for name in "abc"] == [[1], [1], [1]]
    spark.sql(f"DROP VIEW {db}.v")
    for statement, said in (
        ("migrate_table(source_type => 'hudi', table => 'd.t')", "source_type => 'hudi'"),
        ("migrate_table(source_type => 'hive', table => 'd.t', options => 'bucket=4')", "bucket=4"),
        ("migrate_database(source_type => 'hive', database => 'nowhere')", "no namespace 'nowhere'"),
    ):
        with pytest.raises((UnsupportedFeature, InvalidInput, NotFound), match=said):
            lake.sql(f"CALL sys.{statement}", spark=spark)
    with pytest.raises(UnsupportedFeature, match="spark=spark"):
        lake.sql(call)


def test_a_table_with_every_kind_of_column_is_copied_to_either_format(lake, spark, source):
    wanted = sorted(spark.table(source).collect(), key=lambda row: row.id)
    for format in ("paimon", "iceberg"):
        table = lake.import_spark_table(spark, source, f"d.{format}", format)
        assert (table.format, table.schema.partitioning.names, table.schema.comment) == (format, ("p", "q"), "hello")
        assert sorted(table.scan().to_spark(spark).collect(), key=lambda row: row.id) == wanted
        with pytest.raises(AlreadyExists):
            lake.import_spark_table(spark, source, f"d.{format}", format, drop_source=True)
    assert spark.table(source).count() == len(wanted) == 4
