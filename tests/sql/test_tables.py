"""CREATE, ALTER, DROP, DESCRIBE, SHOW and CALL: statements about tables, as verbs of Lake and Table."""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, NotFound, UnsupportedFeature
from tests import doors
from tests.sql.conftest import rows


def column(result, name):
    return result.to_arrow()[name].to_pylist()


def names(table):
    return list(table.schema.names)


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_create_table_declares_what_it_says(lake, format):
    lake.sql(
        f"""
        CREATE TABLE IF NOT EXISTS shop.t (
          id BIGINT NOT NULL COMMENT 'the key; with a ''quote''',
          `odd name` STRUCT<a: INT, b: ARRAY<MAP<STRING, DECIMAL(10, 2)>>> COMMENT "nested",
          at TIMESTAMP, wall TIMESTAMP_NTZ, raw BINARY, dt STRING NOT NULL
        ) USING {format} PARTITIONED BY (dt) COMMENT 'orders'
        TBLPROPERTIES ('primary-key' = 'id,DT', 'note' = 'x = {{y}}')
        """
    )
    table = lake.table("shop.t")
    found = {field.name: field for field in table.schema.fields}
    assert table.format == format
    assert table.schema.primary_key == ("id", "dt")
    assert table.schema.partitioning.columns == ("dt",)
    assert table.schema.comment == "orders"
    assert table.properties["note"] == "x = {y}"
    assert not found["id"].nullable
    assert found["id"].comment == "the key; with a 'quote'"
    assert str(found["odd name"].type) == "row<a: int, b: array<map<string, decimal(10, 2)>>>"
    assert (found["at"].type.kind, found["wall"].type.kind) == ("timestamp_tz", "timestamp")
    lake.sql("CREATE TABLE IF NOT EXISTS shop.t (x INT)")
    with pytest.raises(AlreadyExists, match=r"line 1, column 14: there is a table shop\.t"):
        lake.sql("CREATE TABLE shop.t (x INT)")


def test_partitions_are_columns_transforms_and_columns_with_types(lake):
    lake.sql(
        "CREATE TABLE a.t (id INT, ts TIMESTAMP, s STRING) USING iceberg PARTITIONED BY (days(ts), bucket(4, id), truncate(s, 2), s)"
    )
    fields = lake.table("a.t").schema.partitioning.fields
    assert [str(field.transform) for field in fields] == ["day", "bucket[4]", "truncate[2]", "identity"]
    lake.sql("CREATE TABLE a.p (id INT) USING paimon PARTITIONED BY (dt STRING COMMENT 'day', `hh` INT)")
    assert names(lake.table("a.p")) == ["id", "dt", "hh"]
    assert lake.table("a.p").schema.partitioning.columns == ("dt", "hh")


def test_create_table_as_select_and_like(lake, orders):
    lake.sql(
        "CREATE TABLE shop.big USING iceberg PARTITIONED BY (dt) AS SELECT id, upper(name) AS name, dt FROM shop.orders WHERE amount > 10"
    )
    assert rows(lake.table("shop.big")) == [
        (1, "ANN", "05-01"),
        (2, "BOB", "05-01"),
        (3, None, "05-02"),
        (5, "EVE", "05-03"),
    ]
    lake.sql("CREATE TABLE shop.twin LIKE shop.orders TBLPROPERTIES ('note' = 'twin')")
    twin = lake.table("shop.twin")
    assert (twin.format, names(twin), twin.schema.partitioning.columns) == (orders.format, names(orders), ("dt",))
    lake.sql("INSERT INTO shop.twin SELECT * FROM shop.orders")
    lake.sql(
        "CREATE OR REPLACE TABLE shop.twin USING "
        + orders.format
        + " PARTITIONED BY (dt) AS SELECT * FROM shop.orders WHERE id = 1"
    )
    assert len(rows(twin)) == 1
    assert len(twin.snapshots()) == 2
    other = "paimon" if orders.format == "iceberg" else "iceberg"
    with pytest.raises(UnsupportedFeature, match="in another format or place"):
        lake.sql(f"CREATE OR REPLACE TABLE shop.twin (x INT) USING {other}")
    with pytest.raises((InvalidInput, NotFound)):
        lake.sql("CREATE TABLE shop.fails AS SELECT nope FROM shop.orders")
    assert not lake.exists("shop.fails")


def test_a_replaced_table_may_have_other_columns_and_keeps_its_history(lake, orders):
    first = orders.current_snapshot().id
    replace = f"CREATE OR REPLACE TABLE shop.orders USING {orders.format}"
    lake.sql(
        f"{replace} PARTITIONED BY (dt) COMMENT 'anew' AS SELECT id AS Name, CAST(id AS INT) AS id, dt, amount * 2 AS amount, 'x' AS note "
        "FROM shop.orders WHERE dt = '05-01'"
    )
    table = lake.table("shop.orders")
    assert [str(field.type) for field in table.schema.fields][:3] == ["bigint", "int", "string"]
    assert (names(table), table.schema.comment) == (["Name", "id", "dt", "amount", "note"], "anew")
    assert [row[:3] for row in rows(table)] == [(1, 1, "05-01"), (2, 2, "05-01")]
    assert (
        len(
            rows(lake.sql(f"SELECT id, name, amount, dt FROM shop.orders VERSION AS OF {first} WHERE name IS NOT NULL"))
        )
        == 4
    )
    lake.sql(f"REPLACE TABLE shop.orders (dt STRING, only BIGINT) USING {orders.format} PARTITIONED BY (dt)")
    assert (names(table), len(rows(table)), len(table.snapshots())) == (["dt", "only"], 0, 3)
    if orders.format == "paimon":
        with pytest.raises(
            UnsupportedFeature, match=r"partitions of a Paimon table are fixed; .* DROP TABLE and CREATE TABLE"
        ):
            lake.sql(f"{replace} AS SELECT 1 AS only")
    else:
        lake.sql(f"{replace} PARTITIONED BY (bucket(2, only)) AS SELECT CAST(1 AS BIGINT) AS only")
        assert [str(field) for field in table.schema.partitioning.fields] == ["bucket(2, only)"]
        lake.sql(f"{replace} AS SELECT 1 AS dt")
    assert len(rows(lake.sql(f"SELECT * FROM shop.orders VERSION AS OF {first}"))) == 5


def test_create_table_as_select_is_one_commit_and_leaves_nothing_where_it_fails(lake, orders, tmp_path):
    head = f"CREATE TABLE shop.made USING {orders.format} TBLPROPERTIES ('primary-key' = 'name') AS SELECT name, id FROM shop.orders"
    with pytest.raises(InvalidInput, match="name"):  # A key that is null, which is found while rows are written.
        lake.sql(head)
    assert not lake.exists("shop.made")
    assert not [path for path in (tmp_path / "warehouse/shop.db/made").rglob("*") if path.is_file()]
    result = lake.sql(f"{head} WHERE name IS NOT NULL", id="made", properties={"by": "test"})
    assert column(result, "rows_added") == [4]
    table = lake.table("shop.made")
    (snapshot,) = table.snapshots()
    assert (snapshot.operation_id, snapshot.properties["by"], snapshot.id) == ("made", "test", result.snapshot.id)
    if orders.format == "iceberg":
        assert len(table.inspect.metadata_log_entries()) == 0  # No metadata file came before the one with the rows.
    assert column(lake.sql("CREATE TABLE shop.empty AS SELECT id FROM shop.orders WHERE id > 99"), "operation") == [
        "none"
    ]
    assert rows(lake.table("shop.empty")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE TABLE s.t (a INT) USING lakeformat", "write USING paimon or USING iceberg"),
        ("CREATE TABLE s.t (a INT) USING parquet", "USING parquet"),
        ("CREATE TABLE s.t (a INT) LOCATION '/tmp/x'", "LOCATION"),
        ("CREATE TABLE s.t (a INT) CLUSTERED BY (a) INTO 4 BUCKETS", "CLUSTERED"),
        ("CREATE TABLE s.t", "without columns"),
        ("CREATE TABLE s.t (a NOPE)", "line 1, column 21"),
        ("CREATE TABLE s.t (a INT) AS SELECT 1", "takes its columns from the query"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
        ("DROP VIEW v", "DROP VIEW"),
        ("CREATE CATALOG c WITH ('type' = 'paimon', 'warehouse' = '/other')", "open another"),
        ("USE CATALOG c", "a Lake is one warehouse"),
        ("USE nope", "no database 'nope'"),
        ("SET spark.sql.shuffle.partitions=1", "supported"),
        ("ALTER TABLE shop.orders DROP IDENTIFIER FIELDS id", "not an identifier field"),
        ("ALTER TABLE shop.orders ALTER COLUMN id SET NOT NULL", "may hold nulls"),
        ("ALTER TABLE shop.orders ADD PARTITION (dt = 'x')", "comes with its first row"),
        ("ALTER TABLE shop.orders FROB", "FROB"),
        ("ALTER TABLE shop.orders CHANGE id id BIGINT NOT NULL", "may hold nulls"),
        ("ALTER TABLE shop.orders CHANGE COLUMN id", "the end"),
        ("SHOW TABLE EXTENDED IN shop LIKE '*x' PARTITION (dt = 'x')", "the pattern names: none"),
        ("SHOW FUNCTIONS", "SHOW FUNCTIONS"),
        ("CALL system.repair('a.b')", "supported"),
        ("CALL migrate('a.b')", "CALL sys.name"),
        ("CALL sys.compact(nope => 1)", "no argument nope"),
        ("CALL sys.compact('shop.orders', table => 'x')", "given twice"),
        ("CALL sys.compact(table => 'shop.orders', order_strategy => 'hilbert')", "order_strategy"),
        ("ANALYZE TABLE shop.orders COMPUTE STATISTICS NOSCAN", "NOSCAN"),
        ("ANALYZE TABLE shop.orders PARTITION (dt = 'x') COMPUTE STATISTICS", "PARTITION in ANALYZE"),
        ("ANALYZE TABLES IN shop COMPUTE STATISTICS", "ANALYZE TABLES"),
        ("COPY INTO shop.orders FROM '/etc'", "/etc: this file or folder is out of reach"),
        ("MSCK REPAIR TABLE shop.orders", "a partition comes with its first row"),
        ("ALTER TABLE shop.orders ADD IF NOT EXISTS PARTITION (dt = 'z')", "a partition comes with its first row"),
        ("CACHE TABLE shop.orders", "CACHE is not a statement known here; nothing is cached"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name_and_place(lake, orders, text, said):
    with pytest.raises((UnsupportedFeature, InvalidInput, NotFound)) as raised:
        lake.sql(text)
    assert said in str(raised.value)
    assert "line 1, column" in str(raised.value)


def test_analyze_table_counts_distinct_values(lake, orders):
    text = "ANALYZE TABLE shop.orders COMPUTE STATISTICS"
    (path,) = column(lake.sql(f"{text} FOR COLUMNS DT, `id`"), "statistics_file")
    found = orders.inspect.statistics()
    assert set(found["path"].to_pylist()) == {path}
    assert dict(zip(found["column"].to_pylist(), found["distinct_values"].to_pylist(), strict=True)) == {
        "dt": 3,
        "id": 5,
    }
    for every in (text, f"{text} FOR ALL COLUMNS"):
        lake.sql(every)
        assert orders.inspect.statistics()["column"].to_pylist() == names(orders)
    with pytest.raises(InvalidInput, match=r"line 1, column 46: expected FOR ALL COLUMNS, found 'FAST'"):
        lake.sql(f"{text} FAST")
    with pytest.raises(NotFound, match="no column 'nope'"):
        lake.sql(f"{text} FOR COLUMNS nope")


def test_rollback_takes_a_number_for_a_snapshot_or_else_a_tag(tmp_path):
    lake = Lake(str(tmp_path))
    table = lake.create_table("d.t", pa.schema([("id", pa.int64())]))
    for number in (1, 2, 3):
        table.append({"id": [number]})
    root = tmp_path / "d.db" / "t"
    (root / "tag").mkdir()
    for tag in ("20240731", "2"):
        (root / "tag" / f"tag-{tag}").write_bytes((root / "snapshot" / "snapshot-1").read_bytes())
    lake.sql("CALL sys.rollback('d.t', version => '2')")
    assert table.scan().to_arrow()["id"].to_pylist() == [1, 2]
    lake.sql("CALL sys.rollback('d.t', version => '20240731')")
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(NotFound):
        lake.sql("CALL sys.rollback('d.t', version => '20240801')")


@pytest.mark.parametrize("name", ["_change_type", "_change_ordinal", "_commit_snapshot_id"])
def test_a_changelog_refuses_columns_that_are_called_as_its_own(lake, name):
    rows = pa.table({"id": [1], name: ["a"]})
    lake.create_table("shop.t", rows.schema, format="paimon").append(rows)
    with pytest.raises(InvalidInput, match=f"'{name}'"):
        lake.sql("CALL system.create_changelog_view('shop.t')")


def test_tags_and_snapshots_expire_as_procedures_ask(lake, orders):
    if orders.format == "iceberg":
        return
    for number in (1, 2, 3):
        orders.append({"id": [number], "dt": ["05-09"]})
    orders.create_tag("kept")
    orders.create_tag("long", 1, retain=dt.timedelta(days=9))
    assert column(lake.sql("CALL sys.expire_tags('shop.orders')"), "expired_tags") == []
    tomorrow = (dt.datetime.now() + dt.timedelta(days=2)).isoformat(" ")
    assert column(lake.sql(f"CALL sys.expire_tags('shop.orders', '{tomorrow}')"), "expired_tags") == ["kept", "long"]
    assert orders.inspect.tags()["tag_name"].to_pylist() == []
    call = "CALL sys.expire_snapshots('shop.orders', retain_max => 1"
    assert column(lake.sql(f"{call}, options => 'snapshot.expire.limit=2')"), "expired_snapshots") == [2]
    assert column(lake.sql(f"{call}, max_deletes => 1)"), "expired_snapshots") == [1]
    with pytest.raises(UnsupportedFeature, match="option 'nope' is not supported"):
        lake.sql(f"{call}, options => 'nope=1')")
    with pytest.raises(InvalidInput, match="max_deletes => 'all' is not a whole number"):
        lake.sql(f"{call}, max_deletes => 'all')")
    with pytest.raises(UnsupportedFeature, match=r"option 'sink\.parallelism' is not supported"):
        lake.sql("CALL sys.expire_partitions('shop.orders', options => 'sink.parallelism=1')")


def test_databases_come_and_go(lake, orders):
    lake.sql("CREATE DATABASE IF NOT EXISTS web")
    lake.sql("USE web")
    lake.sql("CREATE TABLE t (a INT)")
    assert lake.exists("web.t")
    assert column(lake.sql("SHOW DATABASES"), "namespace") == ["shop", "web"]
    assert column(lake.sql("SHOW TABLES"), "tableName") == ["t"]
    assert column(lake.sql("SHOW TABLES IN shop LIKE 'ord*|x'"), "tableName") == ["orders"]
    assert column(lake.sql("SHOW CURRENT NAMESPACE"), "namespace") == ["web"]
    with pytest.raises(InvalidInput, match="CASCADE"):
        lake.sql("DROP DATABASE web")
    lake.sql("ALTER TABLE t RENAME TO u") if orders.format == "paimon" else None
    lake.sql("DROP DATABASE web CASCADE")
    assert column(lake.sql("SHOW SCHEMAS"), "namespace") == ["shop"]
    lake.sql("DROP TABLE IF EXISTS shop.nope; DROP TABLE shop.orders")
    assert not lake.exists("shop.orders")


def test_alter_table_columns(lake, orders):
    for text in (
        "ADD COLUMN note STRING COMMENT 'a note' AFTER id",
        "ADD COLUMNS (p STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>, q INT FIRST)",
        "ADD COLUMN IF NOT EXISTS note INT",
        "ADD COLUMN p.w DOUBLE COMMENT 'inside'",
        "ADD COLUMN p.y.element.v STRING",
        "RENAME COLUMN note TO remark",
        "ALTER COLUMN q TYPE BIGINT",
        "ALTER COLUMN REMARK COMMENT 'it''s'",
        "ALTER COLUMN remark FIRST",
        "ALTER COLUMN q AFTER name",
        "DROP COLUMN p.x",
        "DROP COLUMNS IF EXISTS (nope)",
        "CHANGE COLUMN q r BIGINT COMMENT 'anew' AFTER amount",
        "CHANGE r q BIGINT AFTER name",
    ):
        lake.sql(f"ALTER TABLE shop.orders {text}")
    schema = orders.schema
    assert names(orders) == ["remark", "id", "name", "q", "amount", "dt", "p"]
    assert str(schema.field("p").type) == "row<y: array<row<z: int, v: string>>, w: double>"
    assert (schema.field("remark").comment, schema.field("q").comment) == ("it's", "anew")
    lake.sql("ALTER TABLE shop.orders DROP COLUMNS remark, q; ALTER TABLE shop.orders DROP COLUMN p")
    assert names(orders) == ["id", "name", "amount", "dt"]
    assert len(rows(orders)) == 5


def test_alter_table_properties_comments_and_partitions(lake, orders):
    lake.sql("ALTER TABLE shop.orders SET TBLPROPERTIES ('a.b' = 'c', d = 1, 'comment' = 'hello')")
    assert (orders.properties["a.b"], orders.properties["d"], orders.schema.comment) == ("c", "1", "hello")
    lake.sql(
        "ALTER TABLE shop.orders UNSET TBLPROPERTIES IF EXISTS ('a.b', 'zz'); COMMENT ON TABLE shop.orders IS 'bye'"
    )
    assert "a.b" not in orders.properties
    assert orders.schema.comment == "bye"
    with pytest.raises(InvalidInput, match="has no property 'zz'"):
        lake.sql("ALTER TABLE shop.orders UNSET TBLPROPERTIES ('zz')")
    lake.sql("ALTER TABLE shop.orders DROP PARTITION (dt = '05-01'), PARTITION (dt = '05-03')")
    assert column(lake.sql("SHOW PARTITIONS shop.orders"), "partition") == ["dt=05-02"]


@pytest.mark.parametrize("orders", ["iceberg"], indirect=True)
def test_alter_table_of_iceberg_alone(lake, orders):
    lake.sql("ALTER TABLE shop.orders ADD PARTITION FIELD bucket(8, id) AS shard")
    assert [field.name for field in orders.schema.partitioning.fields] == ["dt", "shard"]
    lake.sql("ALTER TABLE shop.orders DROP PARTITION FIELD bucket(8, id)")
    lake.sql("ALTER TABLE shop.orders REPLACE PARTITION FIELD dt WITH truncate(name, 1)")
    assert [str(field.transform) for field in orders.schema.partitioning.fields] == ["truncate[1]"]
    lake.sql("ALTER TABLE shop.orders WRITE ORDERED BY name DESC NULLS LAST, bucket(4, id)")
    assert [str(field) for field in orders.schema.sort_order.fields] == [
        "name DESC NULLS LAST",
        "bucket(4, id) ASC NULLS FIRST",
    ]
    assert orders.properties["write.distribution-mode"] == "range"
    lake.sql("ALTER TABLE shop.orders WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id")
    assert orders.properties["write.distribution-mode"] == "hash"
    lake.sql("ALTER TABLE shop.orders WRITE UNORDERED")
    assert not orders.schema.sort_order
    first = orders.current_snapshot().id
    lake.sql(
        f"ALTER TABLE shop.orders CREATE BRANCH IF NOT EXISTS audit AS OF VERSION {first} RETAIN 7 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS 2 HOURS"
    )
    (told,) = (
        lake.sql("SHOW BRANCHES shop.orders")
        .to_arrow()
        .filter(pa.compute.equal(lake.sql("SHOW BRANCHES shop.orders").to_arrow()["branch_name"], "audit"))
        .to_pylist()
    )
    assert (told["retained_ms"], told["kept_snapshots"], told["kept_ms"]) == (7 * 86_400_000, 3, 7_200_000)
    lake.sql("INSERT INTO shop.orders.branch_audit VALUES (6, 'fay', 1, '05-04')")
    lake.sql("CALL system.fast_forward('shop.orders', 'main', 'audit'); ALTER TABLE shop.orders DROP BRANCH audit")
    assert len(rows(orders)) == 6
    lake.sql("ALTER TABLE shop.orders SET TBLPROPERTIES ('write.wap.enabled'='true'); SET spark.wap.id = w")
    lake.sql("INSERT INTO shop.orders VALUES (7, 'gil', 1, '05-04'); RESET spark.wap.id")
    assert len(rows(orders)) == 6
    (staged,) = lake.sql("SELECT snapshot_id FROM shop.orders.snapshots ORDER BY committed_at DESC LIMIT 1").to_arrow()[
        0
    ]
    lake.sql(f"CALL system.cherrypick_snapshot('shop.orders', {staged})")
    assert len(rows(orders)) == 7


def test_procedures_answer_with_icebergs_columns(tmp_path):
    lake = Lake(tmp_path)
    lake.sql(
        "CREATE TABLE d.t (id INT, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
    )
    for row in range(3):
        lake.sql(f"INSERT INTO d.t VALUES ({row}, 'a'), ({row + 10}, 'a')")
    lake.sql("DELETE FROM d.t WHERE id = 0")
    answers = {
        "rewrite_manifests('d.t')": {"rewritten_manifests_count": 4, "added_manifests_count": 2},
        "rewrite_data_files(table => 'd.t', options => map('min-input-files', '2'))": {
            "rewritten_data_files_count": 3, "added_data_files_count": 1, "failed_data_files_count": 0,
        },
        "rewrite_data_files('d.t')": {"rewritten_data_files_count": 0, "added_data_files_count": 0},
        "rewrite_data_files(table => 'd.t', options => map('rewrite-all', 'true'))": {
            "rewritten_data_files_count": 1, "added_data_files_count": 1,
        },
        "rewrite_position_delete_files('d.t')": {"rewritten_delete_files_count": 0, "rewritten_bytes_count": 0},
        "expire_snapshots(table => 'd.t', older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)": {
            "deleted_data_files_count": 4, "deleted_position_delete_files_count": 1,
            "deleted_equality_delete_files_count": 0, "deleted_manifest_lists_count": 6,
            "deleted_statistics_files_count": 0,
        },
    }  # fmt: skip
    for call, expected in answers.items():
        (row,) = lake.sql(f"CALL system.{call}").to_arrow().to_pylist()
        assert {name: row[name] for name in expected} == expected, call
    assert sorted(rows(lake.table("d.t"))) == [(1, "a"), (2, "a"), (10, "a"), (11, "a"), (12, "a")]


def test_tags_by_statements_and_procedures(lake, orders):
    first = orders.current_snapshot().id
    lake.sql(
        f"ALTER TABLE shop.orders CREATE TAG v1 AS OF VERSION {first} RETAIN 30 DAYS; ALTER TABLE shop.orders CREATE TAG IF NOT EXISTS `v1`"
    )
    with pytest.raises(AlreadyExists):
        lake.sql("ALTER TABLE shop.orders CREATE TAG v1")
    lake.sql("INSERT INTO shop.orders VALUES (6, 'fay', 1, '05-04')")
    lake.sql("CALL sys.create_tag(table => 'shop.orders', tag => 'v2', time_retained => '1 d')")
    assert sorted(column(lake.sql("SHOW TAGS shop.orders"), "tag_name")) == ["v1", "v2"]
    lake.sql("ALTER TABLE shop.orders CREATE OR REPLACE TAG v1; CALL sys.delete_tag('shop.orders', 'v2')")
    assert len(rows(lake.sql("SELECT * FROM shop.orders VERSION AS OF 'v1'"))) == 6
    lake.sql("ALTER TABLE shop.orders DROP TAG IF EXISTS nope; ALTER TABLE shop.orders DROP TAG v1")
    assert column(lake.sql("SHOW TAGS shop.orders"), "tag_name") == []


def test_procedures_are_verbs(lake, orders):
    first = orders.current_snapshot()
    for i in range(3):
        lake.sql("INSERT INTO shop.orders VALUES (?, 'x', 1, '05-01')", params=[10 + i])
    (told,) = (
        lake.sql("CALL sys.compact('shop.orders', partitions => 'dt=05-01', compact_strategy => 'full')")
        .to_arrow()
        .to_pylist()
    )
    assert told["files_removed"] >= 4
    lake.sql(
        "CALL system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'), where => \"dt = '05-01'\")"
    )
    found = lake.sql(f"CALL system.rollback_to_snapshot('shop.orders', {first.id})").to_arrow().to_pylist()
    assert found[0]["current_snapshot_id"] == orders.current_snapshot().id
    assert len(rows(orders)) == 5
    lake.sql("INSERT INTO shop.orders VALUES (20, 'x', 1, '05-01')")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    expired = (
        lake.sql(
            "CALL system.expire_snapshots(table => 'shop.orders', older_than => :t, retain_last => 1)",
            params={"t": later},
        )
        .to_arrow()
        .to_pylist()
    )
    count = "deleted_manifest_lists_count" if orders.format == "iceberg" else "expired_snapshots"
    assert expired[0][count] >= 1
    orphans = lake.sql(
        "CALL sys.remove_orphan_files(table => 'shop.orders', older_than => '2020-01-01', dry_run => true)"
    )
    assert len(orphans) == 0
    assert column(lake.sql("CALL system.ancestors_of('shop.orders')"), "snapshot_id")[0] == orders.current_snapshot().id


def test_describe_and_show_tell_what_there_is(lake, orders):
    lake.sql(
        "ALTER TABLE shop.orders ALTER COLUMN name COMMENT 'who'; ALTER TABLE shop.orders SET TBLPROPERTIES ('note' = 'it''s')"
    )
    told = rows(lake.sql("DESCRIBE shop.orders"))
    assert {
        ("id", "bigint", None),
        ("name", "string", "who"),
        ("amount", "decimal(10, 2)", None),
        ("Part 0", "dt", None),
    } <= set(told)
    assert rows(lake.sql("DESC TABLE shop.orders name")) == [("name", "string", "who")]
    extended = dict(row[:2] for row in rows(lake.sql("DESCRIBE EXTENDED shop.orders")))
    assert (extended["Provider"], extended["Location"]) == (orders.format, orders.uri)
    assert column(lake.sql("SHOW COLUMNS IN shop.orders"), "col_name") == ["id", "name", "amount", "dt"]
    assert column(lake.sql("SHOW TBLPROPERTIES shop.orders ('note')"), "value") == ["it's"]
    assert column(lake.sql("SHOW PARTITIONS shop.orders PARTITION (dt = '05-01')"), "partition") == ["dt=05-01"]
    assert column(lake.sql("SHOW COLUMNS FROM orders IN shop"), "col_name") == ["id", "name", "amount", "dt"]
    parted = dict(row[:2] for row in rows(lake.sql("DESCRIBE EXTENDED shop.orders PARTITION (dt = '05-01')")))
    assert (parted["Partition Values"], parted["Rows"]) == ("dt=05-01", "2")
    assert "Rows" not in dict(row[:2] for row in rows(lake.sql("DESC shop.orders PARTITION (dt = '05-01')")))
    with pytest.raises(NotFound, match="found no partition"):
        lake.sql("DESCRIBE shop.orders PARTITION (dt = 'nope')")
    ((database, name, temporary, text),) = rows(lake.sql("SHOW TABLE EXTENDED IN shop LIKE 'ord*|x'"))
    assert (database, name, temporary) == ("shop", "orders", False)
    assert {f"Provider: {orders.format}", f"Location: {orders.uri}", "Partitioning: dt"} <= set(text.split("\n"))
    assert " |-- amount: decimal(10, 2) (nullable = true)\n" in text
    (text,) = column(lake.sql("SHOW TABLE EXTENDED IN shop LIKE 'orders' PARTITION (dt = '05-02')"), "information")
    assert text.startswith("Partition Values: [dt=05-02]\nRows: 2\n")
    assert rows(lake.sql("DESCRIBE QUERY SELECT id, dt AS day FROM shop.orders")) == [
        ("day", "string", None),
        ("id", "bigint", None),
    ]
    assert rows(lake.sql("REFRESH TABLE shop.orders")) == []


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_show_create_table_makes_the_same_table(lake, tmp_path, format):
    lake.sql(
        f"CREATE TABLE shop.`odd` (`a b` INT NOT NULL COMMENT 'it''s \\\\ back', s STRUCT<x: INT, `y z`: STRING>, t TIMESTAMP_NTZ, dt STRING NOT NULL) "
        f"USING {format} PARTITIONED BY (dt) COMMENT 'c' TBLPROPERTIES ('primary-key' = 'a b,dt', 'k' = 'it''s')"
    )
    (text,) = column(lake.sql("SHOW CREATE TABLE shop.odd"), "createtab_stmt")
    other = Lake(tmp_path / "other")
    other.sql(text)
    one, two = lake.table("shop.odd").schema, other.table("shop.odd").schema
    assert (one.fields, one.partitioning, one.primary_key, one.comment) == (
        two.fields,
        two.partitioning,
        two.primary_key,
        two.comment,
    )
    assert dict(one.properties) == dict(two.properties)


ROWS = pa.table({"id": pa.array(range(20000), pa.int32()), "name": [f"{n * 7919 % 20011:x}" for n in range(20000)]})


def test_options_of_a_session_are_not_the_tables(lake):
    for name in ("a", "b"):
        lake.sql(
            f"CREATE TABLE shop.{name} (id INT, name STRING) USING paimon TBLPROPERTIES ('file.compression' = 'zstd')"
        )

    def written(name):
        table = lake.table(f"shop.{name}")
        before = set(doors.view(table).files().paths.to_pylist())
        lake.sql(f"INSERT INTO shop.{name} SELECT * FROM rows", rows=ROWS)
        (path,) = set(doors.view(table).files().paths.to_pylist()) - before
        meta = pq.read_metadata(doors.store(table).location(path).removeprefix("file://"))
        return meta.num_row_groups, meta.row_group(0).column(0).compression

    assert written("a") == (1, "ZSTD")
    lake.sql("SET spark.paimon.file.block-size=64 kb; SET spark.paimon.here.shop.b.file.compression = snappy")
    assert written("a")[0] > 1
    assert written("a")[1] == "ZSTD"
    assert written("b")[1] == "SNAPPY"
    lake.sql("SET `spark.paimon.*.*.B.file.block-size` = '1 gb'")
    assert written("b") == (1, "SNAPPY")
    for name in ("a", "b"):
        lake.sql(f"ALTER TABLE shop.{name} ADD COLUMN extra INT; ALTER TABLE shop.{name} DROP COLUMN extra")
        assert lake.table(f"shop.{name}").properties == {"file.compression": "zstd"}
    lake.sql("RESET spark.paimon.file.block-size")
    assert written("a")[0] == 1
    lake.sql("RESET")
    assert written("b") == (1, "ZSTD")


def test_options_of_a_session_for_merges_and_new_columns(lake):
    lake.sql("CREATE TABLE shop.a (id INT, name STRING) USING paimon; INSERT INTO shop.a VALUES (1, 'x')")
    lake.sql("SET spark.paimon.file.format = orc; SET spark.paimon.write.merge-schema = true")
    lake.sql("INSERT INTO shop.a BY NAME SELECT 2 AS id, 'y' AS name, 3 AS more")
    lake.sql("MERGE INTO shop.a t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'z'")
    lake.sql("UPDATE shop.a SET more = 4 WHERE id = 2")
    table = lake.table("shop.a")
    assert rows(table) == [(1, "z", None), (2, "y", 4)]
    assert all(path.endswith(".orc") for path in doors.view(table).files().paths.to_pylist())
    assert dict(table.properties) == {}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("spark.paimon.file.blok-size=1 mb", "unknown option 'file.blok-size'; did you mean 'file.block-size'?"),
        ("spark.paimon.bucket=4", "option 'bucket' cannot differ from the table's own"),
        ("spark.paimon.here.shop.a.merge-engine=first-row", "option 'merge-engine' cannot differ"),
        ("spark.paimon.*.*.a.write-buffer-size=1 mb", "option 'write-buffer-size': lakeformat does not act on it"),
        ("spark.paimon.target-file-size=large", "it must be a size such as '128 mb'"),
    ],
)
def test_options_that_a_session_cannot_have(lake, setting, said):
    with pytest.raises((InvalidInput, UnsupportedFeature)) as raised:
        lake.sql(f"SET {setting}")
    assert said in str(raised.value)
    assert str(raised.value).startswith("SQL at line 1, column 5: ")
    assert len(lake.sql("SET")) == 0


def test_options_of_a_session_are_paimons(orders):
    if orders.format == "iceberg":
        with pytest.raises(UnsupportedFeature, match="Iceberg tables have only their own options"):
            orders.with_options({"target-file-size": "1 mb"})
    else:
        assert orders.with_options({"target-file-size": "1 mb"}).properties["target-file-size"] == "1 mb"
        assert "target-file-size" not in orders.properties


def test_by_is_a_name_where_no_clause_has_it(tmp_path):
    lake = Lake(tmp_path)
    lake.sql("CREATE NAMESPACE by; USE by; CREATE TABLE t (by INT); INSERT INTO t VALUES (1)")
    assert lake.sql("SELECT by FROM by.t GROUP BY by ORDER BY by").to_arrow().to_pylist() == [{"by": 1}]
    assert lake.sql("SHOW TABLES IN by").to_arrow()["tableName"].to_pylist() == ["t"]
    for clause in ("ORDER BY", "GROUP BY", "SORT BY"):
        with pytest.raises(InvalidInput, match="expected something behind 'BY'"):
            lake.sql(f"SELECT by FROM t {clause}")
