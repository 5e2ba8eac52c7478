"""The SQL examples of both connectors' Spark documentation, and what each gives here.

Statements are the pages' own, in our words where those are long or leave something out (`SELECT ...`). Each group has a warehouse of its
own and runs from top to bottom. `gives`: the result's rows, or with `then` those of a query afterwards; `refused`: what the error says.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeformat import Lake


@dataclass(frozen=True)
class Example:
    sql: str
    gives: Any = None  # Rows as tuples, sorted; or how many, where they name snapshots and files.
    then: str | None = None
    refused: str | None = None
    needs_spark: bool = False  # Refused in process.
    why: str = ""  # What a refused example needs that no Lake has; empty if a Lake could have it.


@dataclass(frozen=True)
class Group:
    page: str
    examples: tuple[Example, ...]
    setup: tuple[Any, ...] = ()  # Statements, or functions of the lake.
    format: str = "iceberg"
    catalog: str | None = "sql"
    spark_tables: Any = None  # Tables of Spark's own catalog: name -> the rest of CREATE TABLE, `{at}` for a location.


def runs(sql, gives=None, then=None):
    return Example(" ".join(sql.split()), gives, then)


def of_spark(sql, gives=None, then=None):
    return Example(" ".join(sql.split()), gives, then, needs_spark=True)


HIVE = "a Hive metastore or Spark's own tables"
CLASSES = "Java classes that a query would load"
AHEAD = "what no release of Paimon has, on its main branch alone"


def refused(sql, said, why=""):
    return Example(" ".join(sql.split()), refused=said, why=why)


def group(page, *examples, setup=(), format="iceberg", catalog=None, spark_tables=None):
    setup = (setup,) if isinstance(setup, str) or callable(setup) else tuple(setup)
    return Group(page, examples, setup, format, catalog or ("sql" if format == "iceberg" else None), spark_tables or {})


COLUMNS = "SHOW COLUMNS IN db.sample"
SAMPLE = "CREATE TABLE db.sample (id bigint NOT NULL, data string, category string, ts timestamp) USING iceberg"
FILLED = (
    SAMPLE,
    "INSERT INTO db.sample VALUES (1, 'a', 'x', TIMESTAMP '2021-06-01 00:00:00'), (2, 'b', 'y', TIMESTAMP '2021-06-02 00:00:00')",
)
PARTS = "SELECT col_name, data_type FROM described WHERE col_name LIKE 'Part %'"
DDL, QUERIES, WRITES, CALLS = (f"Iceberg: spark-{page}" for page in ("ddl", "queries", "writes", "procedures"))


def columns(*names):
    return [(name,) for name in sorted(names)]


STAGED = ("CREATE TABLE my_table (id bigint) USING iceberg TBLPROPERTIES ('write.wap.enabled'='true')", "SET spark.wap.id = wap_id_1; INSERT INTO my_table VALUES (1)",
          "SET spark.wap.id = wap_id_2; INSERT INTO my_table VALUES (2)", "RESET spark.wap.id")  # fmt: skip
ALL = columns("id", "data", "category", "ts")
TWO = "CREATE TABLE db.table (id int, data string) USING iceberg"

SPARK_SAMPLE = "{at} AS SELECT * FROM VALUES (1L, 'a'), (2L, 'b') AS t (id, data)"

ICEBERG = (
    group(DDL, runs("CREATE TABLE prod.db.sample (id bigint NOT NULL COMMENT 'unique id', data string) USING iceberg", columns("id", "data"), COLUMNS)),
    group(DDL, runs("CREATE TABLE prod.db.sample (id bigint, data string, category string) USING iceberg PARTITIONED BY (category)", [("Part 0", "category")], "DESCRIBE db.sample")),
    group(DDL, runs("CREATE TABLE prod.db.sample (id bigint, data string, category string, ts timestamp) USING iceberg PARTITIONED BY (bucket(16, id), days(ts), category)",
          [("Part 0", "bucket(16, id)"), ("Part 1", "day(ts)"), ("Part 2", "category")], "DESCRIBE db.sample")),
    group(DDL,
          runs("CREATE TABLE prod.db.sample USING iceberg AS SELECT id, data FROM other", [(1, "a"), (2, "b")], "SELECT * FROM db.sample"),
          runs("CREATE TABLE prod.db.sample2 USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('key'='value') AS SELECT id, data AS part FROM other", [(1, "a"), (2, "b")], "SELECT * FROM db.sample2"),
          runs("REPLACE TABLE prod.db.sample USING iceberg AS SELECT id, data FROM other WHERE id = 1", [(1, "a")], "SELECT * FROM db.sample"),
          runs("REPLACE TABLE prod.db.sample2 USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('key'='value') AS SELECT id, 'n' AS part FROM other", [(1, "n"), (2, "n")], "SELECT * FROM db.sample2"),
          runs("CREATE OR REPLACE TABLE prod.db.sample USING iceberg AS SELECT id, data FROM other WHERE id = 2", [(2, "b")], "SELECT * FROM db.sample")),
    group(DDL, runs("DROP TABLE prod.db.sample", [], "SHOW TABLES IN db"), setup=SAMPLE),
    group(DDL, runs("DROP TABLE prod.db.sample PURGE", [], "SHOW TABLES IN db"), setup=FILLED),
    group(DDL, runs("ALTER TABLE prod.db.sample RENAME TO prod.db.new_name", [("db", "new_name", False)], "SHOW TABLES IN db"), setup=SAMPLE),
    group(DDL,
          runs("ALTER TABLE prod.db.sample SET TBLPROPERTIES ('read.split.target-size'='268435456')", [("read.split.target-size", "268435456")], "SHOW TBLPROPERTIES db.sample ('read.split.target-size')"),
          runs("ALTER TABLE prod.db.sample UNSET TBLPROPERTIES ('read.split.target-size')", [("read.split.target-size", "Table db.sample does not have property: read.split.target-size")], "SHOW TBLPROPERTIES db.sample ('read.split.target-size')"),
          runs("ALTER TABLE prod.db.sample SET TBLPROPERTIES ('comment' = 'A table comment.')", [("Comment", "A table comment.", None)], "DESCRIBE EXTENDED db.sample"),
          setup=SAMPLE),
    group(DDL,
          runs("ALTER TABLE prod.db.sample ADD COLUMNS (new_column string comment 'new_column docs')", columns("id", "new_column"), COLUMNS),
          runs("ALTER TABLE prod.db.sample ADD COLUMN point struct<x: double, y: double>", [("point", "struct<x:double,y:double>", None)], "DESCRIBE db.sample point"),
          runs("ALTER TABLE prod.db.sample ADD COLUMN point.z double", [("point", "struct<x:double,y:double,z:double>", None)], "DESCRIBE db.sample point"),
          runs("ALTER TABLE prod.db.sample ADD COLUMN points array<struct<x: double, y: double>>", [("points", "array<struct<x:double,y:double>>", None)], "DESCRIBE db.sample points"),
          runs("ALTER TABLE prod.db.sample ADD COLUMN points.element.z double", [("points", "array<struct<x:double,y:double,z:double>>", None)], "DESCRIBE db.sample points"),
          runs("ALTER TABLE prod.db.sample ADD COLUMN pairs map<struct<x: int>, struct<a: int>>", [("pairs", "map<struct<x:int>,struct<a:int>>", None)], "DESCRIBE db.sample pairs"),
          runs("ALTER TABLE prod.db.sample ADD COLUMN pairs.value.b int", [("pairs", "map<struct<x:int>,struct<a:int,b:int>>", None)], "DESCRIBE db.sample pairs"),
          runs("ALTER TABLE prod.db.sample ADD COLUMN behind bigint AFTER id", columns("id", "behind", "new_column", "point", "points", "pairs"), COLUMNS),
          runs("ALTER TABLE prod.db.sample ADD COLUMN point.w bigint FIRST", [("point", "struct<w:bigint,x:double,y:double,z:double>", None)], "DESCRIBE db.sample point"),
          setup="CREATE TABLE db.sample (id bigint) USING iceberg"),
    group(DDL,
          runs("ALTER TABLE prod.db.sample RENAME COLUMN data TO payload", columns("id", "location", "measurement", "payload"), COLUMNS),
          runs("ALTER TABLE prod.db.sample RENAME COLUMN location.lat TO latitude", [("location", "struct<latitude:double,lon:double>", None)], "DESCRIBE db.sample location"),
          runs("ALTER TABLE prod.db.sample ALTER COLUMN measurement TYPE double", [("measurement", "double", None)], "DESCRIBE db.sample measurement"),
          runs("ALTER TABLE prod.db.sample ALTER COLUMN measurement TYPE double COMMENT 'unit is bytes per second'", [("measurement", "double", "unit is bytes per second")], "DESCRIBE db.sample measurement"),
          runs("ALTER TABLE prod.db.sample ALTER COLUMN measurement COMMENT 'unit is kilobytes per second'", [("measurement", "double", "unit is kilobytes per second")], "DESCRIBE db.sample measurement"),
          runs("ALTER TABLE prod.db.sample ALTER COLUMN payload FIRST", [("payload", "string", None)], "DESCRIBE db.sample payload"),
          runs("ALTER TABLE prod.db.sample ALTER COLUMN location.latitude AFTER lon", [("location", "struct<lon:double,latitude:double>", None)], "DESCRIBE db.sample location"),
          runs("ALTER TABLE prod.db.sample ALTER COLUMN id DROP NOT NULL"),
          runs("ALTER TABLE prod.db.sample DROP COLUMN id", columns("location", "measurement", "payload"), COLUMNS),
          runs("ALTER TABLE prod.db.sample DROP COLUMN location.lon", [("location", "struct<latitude:double>", None)], "DESCRIBE db.sample location"),
          setup="CREATE TABLE db.sample (id bigint NOT NULL, data string, location struct<lat: double, lon: double>, measurement float) USING iceberg"),
    group(DDL,
          runs("ALTER TABLE prod.db.sample ADD PARTITION FIELD category", [("Part 0", "category")], "DESCRIBE db.sample"),
          runs("ALTER TABLE prod.db.sample ADD PARTITION FIELD bucket(16, id)"),
          runs("ALTER TABLE prod.db.sample ADD PARTITION FIELD truncate(4, data)"),
          runs("ALTER TABLE prod.db.sample ADD PARTITION FIELD year(ts)"),
          runs("ALTER TABLE prod.db.sample ADD PARTITION FIELD bucket(8, id) AS shard", [("Part 4", "bucket(8, id)")], "DESCRIBE db.sample"),
          runs("ALTER TABLE prod.db.sample DROP PARTITION FIELD category"),
          runs("ALTER TABLE prod.db.sample DROP PARTITION FIELD bucket(16, id)"),
          runs("ALTER TABLE prod.db.sample DROP PARTITION FIELD truncate(4, data)"),
          runs("ALTER TABLE prod.db.sample DROP PARTITION FIELD year(ts)"),
          runs("ALTER TABLE prod.db.sample DROP PARTITION FIELD shard", 4, "DESCRIBE db.sample"),
          setup=SAMPLE),
    group(DDL,
          runs("ALTER TABLE prod.db.sample REPLACE PARTITION FIELD ts_day WITH month(ts)", [("Part 0", "month(ts)")], "DESCRIBE db.sample"),
          runs("ALTER TABLE prod.db.sample REPLACE PARTITION FIELD ts_month WITH day(ts) AS day_of_ts", [("Part 0", "day(ts)")], "DESCRIBE db.sample"),
          setup=SAMPLE + " PARTITIONED BY (day(ts))"),
    group(DDL,
          runs("ALTER TABLE prod.db.sample WRITE ORDERED BY category, id", 1, "SELECT * FROM db.sample.sort_orders WHERE is_current AND array_size(sort_by) = 2"),
          runs("ALTER TABLE prod.db.sample WRITE ORDERED BY category ASC, id DESC"),
          runs("ALTER TABLE prod.db.sample WRITE ORDERED BY category ASC NULLS LAST, id DESC NULLS FIRST"),
          runs("INSERT INTO prod.db.sample SELECT id, data, category, ts FROM another_table ORDER BY ts, category", [(1,)], "SELECT id FROM db.sample"),
          runs("ALTER TABLE prod.db.sample WRITE LOCALLY ORDERED BY category, id", [("write.distribution-mode", "none")], "SHOW TBLPROPERTIES db.sample ('write.distribution-mode')"),
          runs("ALTER TABLE prod.db.sample WRITE UNORDERED"),
          runs("ALTER TABLE prod.db.sample WRITE DISTRIBUTED BY PARTITION", [("write.distribution-mode", "hash")], "SHOW TBLPROPERTIES db.sample ('write.distribution-mode')"),
          runs("ALTER TABLE prod.db.sample WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY category, id"),
          setup=SAMPLE),
    group(DDL,
          runs("ALTER TABLE prod.db.sample SET IDENTIFIER FIELDS id", [("Primary Key", "id", None)], "DESCRIBE EXTENDED db.sample"),
          runs("ALTER TABLE prod.db.sample SET IDENTIFIER FIELDS id, data", [("Primary Key", "id, data", None)], "DESCRIBE EXTENDED db.sample"),
          runs("ALTER TABLE prod.db.sample DROP IDENTIFIER FIELDS id", [("Primary Key", "data", None)], "DESCRIBE EXTENDED db.sample"),
          runs("ALTER TABLE prod.db.sample DROP IDENTIFIER FIELDS data", [("Primary Key", "", None)], "DESCRIBE EXTENDED db.sample"),
          setup="CREATE TABLE db.sample (id bigint NOT NULL, data string NOT NULL) USING iceberg"),
    group(DDL,
          runs("ALTER TABLE prod.db.sample CREATE BRANCH `audit-branch`", [("audit-branch",), ("main",)], "SELECT name FROM db.sample.refs"),
          runs("ALTER TABLE prod.db.sample CREATE BRANCH IF NOT EXISTS `audit-branch`"),
          runs("ALTER TABLE prod.db.sample CREATE OR REPLACE BRANCH `audit-branch`"),
          runs("ALTER TABLE prod.db.sample CREATE BRANCH `other-branch` AS OF VERSION {first}"),
          runs("ALTER TABLE prod.db.sample CREATE BRANCH `kept-branch` AS OF VERSION {first} RETAIN 30 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS 2 DAYS",
               [(2592000000, 3, 172800000)], "SELECT max_reference_age_in_ms, min_snapshots_to_keep, max_snapshot_age_in_ms FROM db.sample.refs WHERE name = 'kept-branch'"),
          runs("ALTER TABLE prod.db.sample REPLACE BRANCH `audit-branch` AS OF VERSION {first} RETAIN 60 DAYS", [(5184000000,)], "SELECT max_reference_age_in_ms FROM db.sample.refs WHERE name = 'audit-branch'"),
          runs("ALTER TABLE prod.db.sample DROP BRANCH `audit-branch`", [("kept-branch",), ("main",), ("other-branch",)], "SELECT name FROM db.sample.refs"),
          runs("ALTER TABLE prod.db.sample CREATE TAG `historical-tag`", [("historical-tag",)], "SELECT tag_name FROM db.sample.tags"),
          runs("ALTER TABLE prod.db.sample CREATE TAG IF NOT EXISTS `historical-tag`"),
          runs("ALTER TABLE prod.db.sample CREATE OR REPLACE TAG `historical-tag`"),
          runs("ALTER TABLE prod.db.sample CREATE TAG `first-tag` AS OF VERSION {first}"),
          runs("ALTER TABLE prod.db.sample CREATE TAG `kept-tag` AS OF VERSION {first} RETAIN 365 DAYS", [(True,)], "SELECT retained_ms >= 31536000000 FROM db.sample.tags WHERE tag_name = 'kept-tag'"),
          runs("ALTER TABLE prod.db.sample REPLACE TAG `historical-tag` AS OF VERSION {first} RETAIN 60 DAYS", [(True,)], "SELECT retained_ms >= 5184000000 FROM db.sample.tags WHERE tag_name = 'historical-tag'"),
          runs("ALTER TABLE prod.db.sample DROP TAG `historical-tag`", [("first-tag",), ("kept-tag",)], "SELECT tag_name FROM db.sample.tags"),
          setup=FILLED),
    group(DDL,
          runs("CREATE VIEW v AS SELECT * FROM db.sample", [(1, "a"), (2, "b")], "SELECT id, data FROM v"),
          runs("CREATE VIEW IF NOT EXISTS v AS SELECT * FROM db.sample", [(1,), (2,)], "SELECT id FROM v"),
          runs("CREATE VIEW named (ID COMMENT 'Unique ID', ZIP COMMENT 'Zipcode') COMMENT 'View Comment' AS SELECT id, data FROM db.sample",
               [("Comment", "View Comment", None), ("ID", "bigint", "Unique ID"), ("ZIP", "string", "Zipcode")], "DESCRIBE EXTENDED named"),
          runs("CREATE VIEW keyed TBLPROPERTIES ('key1' = 'val1', 'key2' = 'val2') AS SELECT * FROM db.sample", [("key2", "val2")], "SHOW TBLPROPERTIES keyed ('key2')"),
          runs("CREATE VIEW elsewhere TBLPROPERTIES ('location' = '{folder}/view') AS SELECT * FROM db.sample", [(1,), (2,)], "SELECT id FROM elsewhere"),
          runs("CREATE OR REPLACE VIEW v (updated_id COMMENT 'updated ID') TBLPROPERTIES ('key1' = 'new_val1') AS SELECT id FROM db.sample", [(1,), (2,)], "SELECT updated_id FROM v"),
          runs("SHOW TBLPROPERTIES v", [("key1", "new_val1"), ("spark.query-column-names", "id")]),
          runs("SHOW CREATE TABLE v", [("CREATE VIEW `default`.`v` (\n  `updated_id` COMMENT 'updated ID')\nTBLPROPERTIES (\n  'key1' = 'new_val1')\nAS\nSELECT id FROM db.sample",)]),
          runs("DESCRIBE EXTENDED v", 9),
          runs("ALTER VIEW v SET TBLPROPERTIES ('key1' = 'val1', 'key2' = 'val2')", [("key1", "val1"), ("key2", "val2"), ("spark.query-column-names", "id")], "SHOW TBLPROPERTIES v"),
          runs("ALTER VIEW v UNSET TBLPROPERTIES ('key1', 'key2')", [("spark.query-column-names", "id")], "SHOW TBLPROPERTIES v"),
          runs("SHOW VIEWS", 4), runs("SHOW VIEWS IN prod", 4), runs("SHOW VIEWS IN db", []), runs("SHOW VIEWS IN prod.db", []),
          runs("DROP VIEW v", 3, "SHOW VIEWS"), runs("DROP VIEW IF EXISTS v"),
          setup=FILLED),
    group(QUERIES,
          runs("SELECT * FROM prod.db.table", [(1, "a"), (2, "b"), (3, "c")]),
          runs("SELECT * FROM prod.db.table.files", 2),
          runs("SELECT * FROM prod.db.table TIMESTAMP AS OF '{between}'", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table VERSION AS OF {first}", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table VERSION AS OF 'audit-branch'", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table VERSION AS OF 'historical-snapshot'", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table FOR SYSTEM_TIME AS OF '{between}'", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table FOR SYSTEM_VERSION AS OF {first}", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table FOR SYSTEM_VERSION AS OF 'audit-branch'", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table FOR SYSTEM_VERSION AS OF 'historical-snapshot'", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table TIMESTAMP AS OF {seconds}", [(1, "a"), (2, "b"), (3, "c")]),
          runs("SELECT * FROM prod.db.table FOR SYSTEM_TIME AS OF {seconds}", [(1, "a"), (2, "b"), (3, "c")]),
          runs("SELECT * FROM prod.db.table.`branch_audit-branch`", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table.`tag_historical-snapshot`", [(1, "a"), (2, "b")]),
          runs("SELECT * FROM prod.db.table.history", 2),
          runs("SELECT * FROM prod.db.table.metadata_log_entries", 5),
          runs("SELECT * FROM prod.db.table.snapshots", 2),
          runs("SELECT h.made_current_at, s.operation, h.snapshot_id, h.is_current_ancestor, s.summary['operation'] FROM prod.db.table.history h JOIN prod.db.table.snapshots s ON h.snapshot_id = s.snapshot_id ORDER BY made_current_at", 2),
          runs("SELECT * FROM prod.db.table.entries", 2),
          runs("SELECT * FROM prod.db.table.manifests", 2),
          runs("SELECT * FROM prod.db.table.partitions", 1),
          runs("SELECT * FROM prod.db.table.position_deletes", 0),
          runs("SELECT * FROM prod.db.table.all_data_files", 2),
          runs("SELECT * FROM prod.db.table.all_delete_files", 0),
          runs("SELECT * FROM prod.db.table.all_entries", 2),
          runs("SELECT * FROM prod.db.table.all_manifests", 2),
          runs("SELECT name, type FROM prod.db.table.refs", [("audit-branch", "BRANCH"), ("historical-snapshot", "TAG"), ("main", "BRANCH")]),
          runs("SELECT * FROM prod.db.table.manifests TIMESTAMP AS OF '{between}'", 1),
          runs("SELECT * FROM prod.db.table.partitions VERSION AS OF {first}", 1),
          setup=(TWO, "INSERT INTO db.table SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b') AS v(id, data)", "ALTER TABLE db.table CREATE BRANCH `audit-branch`", "ALTER TABLE db.table CREATE TAG `historical-snapshot`",
                 "INSERT INTO db.table VALUES (3, 'c')")),
    group(WRITES,
          runs("INSERT INTO prod.db.table VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")], "SELECT * FROM db.table"),
          runs("INSERT INTO prod.db.table SELECT id + 2, data FROM other", [(1,), (2,), (3,), (4,)], "SELECT id FROM db.table"),
          runs("MERGE INTO prod.db.table t USING (SELECT id, 'm' AS data, 'delete' AS op FROM other WHERE id = 1) s ON t.id = s.id WHEN MATCHED AND s.op = 'delete' THEN DELETE "
               "WHEN MATCHED AND t.data IS NULL AND s.op = 'increment' THEN UPDATE SET t.data = '0' WHEN MATCHED AND s.op = 'increment' THEN UPDATE SET t.data = concat(t.data, '1')", [(2,), (3,), (4,)], "SELECT id FROM db.table"),
          runs("MERGE INTO prod.db.table t USING (SELECT id, data FROM other) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", [(1,), (2,), (3,), (4,)], "SELECT id FROM db.table"),
          runs("MERGE INTO prod.db.table t USING (SELECT 9 AS id, 5 AS event_time) s ON t.id = s.id WHEN NOT MATCHED AND s.event_time > 4 THEN INSERT (id, data) VALUES (s.id, 'new')", [(9, "new")], "SELECT * FROM db.table WHERE id = 9"),
          runs("MERGE INTO prod.db.table t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET data = 'invalid'", [(9, "new")], "SELECT * FROM db.table WHERE data <> 'invalid'"),
          setup=TWO),
    group(WRITES,
          runs("CREATE TABLE prod.my_app.logs (uuid string NOT NULL, level string NOT NULL, ts timestamp NOT NULL, message string) USING iceberg PARTITIONED BY (level, hours(ts))", [("my_app", "logs", False)], "SHOW TABLES IN my_app"),
          runs("INSERT OVERWRITE prod.my_app.logs SELECT uuid, first(level), first(ts), first(message) FROM prod.my_app.logs WHERE cast(ts as date) = '2020-07-01' GROUP BY uuid", [], "SELECT * FROM my_app.logs"),
          runs("INSERT OVERWRITE prod.my_app.logs PARTITION (level = 'INFO') SELECT uuid, first(ts), first(message) FROM prod.my_app.logs WHERE level = 'INFO' GROUP BY uuid", [], "SELECT * FROM my_app.logs")),
    group(WRITES,
          runs("DELETE FROM prod.db.table WHERE ts >= '2020-05-01 00:00:00' and ts < '2020-06-01 00:00:00'", [(1,), (3,)], "SELECT id FROM db.table"),
          runs("DELETE FROM prod.db.all_events WHERE session_time < (SELECT min(session_time) FROM prod.db.good_events)", [(7,)], "SELECT session_time FROM db.all_events"),
          runs("DELETE FROM prod.db.orders AS t1 WHERE EXISTS (SELECT oid FROM prod.db.returned_orders WHERE t1.oid = oid)", [(2,)], "SELECT oid FROM db.orders"),
          runs("UPDATE prod.db.table SET c1 = 'update_c1', c2 = 'update_c2' WHERE ts >= '2020-01-01 00:00:00' and ts < '2020-06-01 00:00:00'", [(1, "update_c1"), (3, None)], "SELECT id, c1 FROM db.table"),
          runs("UPDATE prod.db.all_events SET session_time = 0, ignored = true WHERE session_time < (SELECT min(session_time) + 5 FROM prod.db.good_events)", [(0, True)], "SELECT session_time, ignored FROM db.all_events"),
          runs("UPDATE prod.db.orders AS t1 SET order_status = 'returned' WHERE EXISTS (SELECT oid FROM prod.db.returned_orders WHERE t1.oid = oid + 1)", [(2, "returned")], "SELECT * FROM db.orders"),
          setup=("CREATE TABLE db.table (id int, ts timestamp, c1 string, c2 string) USING iceberg",
                 "INSERT INTO db.table (id, ts) VALUES (1, TIMESTAMP '2020-04-01 00:00:00'), (2, TIMESTAMP '2020-05-07 00:00:00'), (3, TIMESTAMP '2020-07-01 00:00:00')",
                 "CREATE TABLE db.all_events (session_time int, ignored boolean) USING iceberg; INSERT INTO db.all_events VALUES (1, false), (7, false)",
                 "CREATE TABLE db.good_events USING iceberg AS SELECT 5 AS session_time",
                 "CREATE TABLE db.orders (oid int, order_status string) USING iceberg; INSERT INTO db.orders VALUES (1, 'new'), (2, 'new')",
                 "CREATE TABLE db.returned_orders USING iceberg AS SELECT 1 AS oid")),
    group(WRITES,
          runs("INSERT INTO prod.db.table.branch_audit VALUES (1, 'a'), (2, 'b')", [(0,), (1,), (2,)], "SELECT id FROM db.table.branch_audit"),
          runs("MERGE INTO prod.db.table.branch_audit t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", [(0,), (2,)], "SELECT id FROM db.table.branch_audit"),
          runs("UPDATE prod.db.table.branch_audit AS t1 SET data = 'c'", [("c",), ("c",)], "SELECT data FROM db.table.branch_audit"),
          runs("DELETE FROM prod.db.table.branch_audit WHERE id = 2", [(0,)], "SELECT id FROM db.table.branch_audit"),
          runs("SET spark.wap.branch = audit; INSERT INTO prod.db.table VALUES (3, 'c')", [(0,), (3,)], "SELECT id FROM db.table.branch_audit"),
          runs("RESET spark.wap.branch; SELECT id FROM prod.db.table", [(0,)]),
          runs("ALTER TABLE prod.db.table SET TBLPROPERTIES ('write.spark.accept-any-schema'='true')"),
          setup=(TWO + " TBLPROPERTIES ('write.wap.enabled'='true')", "INSERT INTO db.table VALUES (0, 'z')", "ALTER TABLE db.table CREATE BRANCH audit")),
    group(WRITES,
          runs("CREATE TABLE prod.db.sample (id bigint, data string, category string, ts timestamp) USING iceberg PARTITIONED BY (days(ts), category)"),
          runs("INSERT INTO prod.db.sample SELECT id, data, category, ts FROM another_table", [(1,)], "SELECT id FROM db.sample")),
    group(CALLS,
          runs("CALL catalog_name.system.cherrypick_snapshot('my_table', {staged})", [(1,)], "SELECT id FROM my_table"),
          runs("CALL catalog_name.system.cherrypick_snapshot(snapshot_id => {staged_next}, table => 'my_table')", [(1,), (2,)], "SELECT id FROM my_table"),
          setup=STAGED),
    group(CALLS,
          runs("CALL catalog_name.system.publish_changes('my_table', 'wap_id_1')", [(1,)], "SELECT id FROM my_table"),
          runs("CALL catalog_name.system.publish_changes(wap_id => 'wap_id_2', table => 'my_table')", [(1,), (2,)], "SELECT id FROM my_table"),
          setup=STAGED),
    group(CALLS,
          runs("CALL catalog_name.system.rollback_to_snapshot('db.sample', {first})", 1),
          runs("CALL catalog_name.system.set_current_snapshot(table => 'db.sample', ref => 's1')", 1),
          runs("CALL catalog_name.system.set_current_snapshot('db.sample', {first})", 1),
          runs("CALL catalog_name.system.rollback_to_timestamp('db.sample', TIMESTAMP '{between}')", 1),
          runs("CALL hive_prod.system.expire_snapshots('db.sample', TIMESTAMP '2021-06-30 00:00:00.000', 100)", 1),
          runs("CALL hive_prod.system.expire_snapshots(table => 'db.sample', snapshot_ids => ARRAY({older}))", 0, "SELECT * FROM db.sample.snapshots WHERE snapshot_id = {older}"),
          runs("CALL catalog_name.system.remove_orphan_files(table => 'db.sample', dry_run => true)", 0),
          runs("CALL catalog_name.system.remove_orphan_files(table => 'db.sample', location => '{location}/data')", 0),
          runs("CALL catalog_name.system.rewrite_data_files('db.sample')", 1),
          runs("CALL catalog_name.system.rewrite_data_files(table => 'db.sample', strategy => 'sort', sort_order => 'id DESC NULLS LAST,data ASC NULLS FIRST')", 1),
          runs("CALL catalog_name.system.rewrite_data_files(table => 'db.sample', strategy => 'sort', sort_order => 'zorder(id,data)')", 1),
          runs("CALL catalog_name.system.rewrite_data_files(table => 'db.sample', options => map('min-input-files','2'))", 1),
          runs("CALL catalog_name.system.rewrite_data_files(table => 'db.sample', where => 'category = \"x\"')", 1),
          runs("CALL catalog_name.system.rewrite_manifests('db.sample')", 1),
          runs("CALL catalog_name.system.rewrite_manifests('db.sample', false)", 1),
          runs("CALL catalog_name.system.rewrite_position_delete_files('db.sample')", 1),
          runs("CALL catalog_name.system.rewrite_position_delete_files(table => 'db.sample', options => map('rewrite-all', 'true'))", 1),
          runs("CALL catalog_name.system.rewrite_position_delete_files(table => 'db.sample', options => map('min-input-files','2'))", 1),
          runs("CALL spark_catalog.system.add_files(table => 'db.tbl', source_table => '`parquet`.`{folder}`')", [(7,)], "SELECT id FROM db.tbl"),
          runs("CALL spark_catalog.system.register_table(table => 'db.tbl2', metadata_file => '{metadata}')", 1),
          runs("CALL spark_catalog.system.ancestors_of('db.sample')"),
          runs("CALL spark_catalog.system.ancestors_of('db.sample', {first})", 1),
          runs("CALL spark_catalog.system.ancestors_of(snapshot_id => {first}, table => 'db.sample')", 1),
          setup=(SAMPLE + " PARTITIONED BY (category)", *FILLED[1:], "ALTER TABLE db.sample CREATE TAG s1", "INSERT INTO db.sample VALUES (3, 'c', 'x', TIMESTAMP '2021-06-03 00:00:00')",
                 "ALTER TABLE db.sample CREATE TAG s2", "CREATE TABLE db.tbl (id int) USING iceberg")),
    group(CALLS, runs("CALL catalog_name.system.fast_forward('db.sample', 'main', 'audit-branch')", [(1,), (2,), (9,)], "SELECT id FROM db.sample"),
          setup=(*FILLED, "ALTER TABLE db.sample CREATE BRANCH `audit-branch`", "INSERT INTO db.sample.`branch_audit-branch` (id) VALUES (9)")),
    group(CALLS,
          runs("CALL spark_catalog.system.create_changelog_view(table => 'db.tbl', options => map('start-snapshot-id','{first}'))", [(1, "Alice", "DELETE")], "SELECT id, name, _change_type FROM tbl_changes"),
          runs("CALL spark_catalog.system.create_changelog_view(table => 'db.tbl', options => map('start-timestamp','1678335750489','end-timestamp', '{now}'), changelog_view => 'my_changelog_view')", 3, "SELECT * FROM my_changelog_view"),
          runs("CALL spark_catalog.system.create_changelog_view(table => 'db.tbl', options => map('end-snapshot-id','{first}'), identifier_columns => array('id', 'name'))", 2, "SELECT * FROM tbl_changes"),
          runs("SELECT id, name, _change_type, _change_ordinal FROM tbl_changes", [(1, "Alice", "INSERT", 0), (2, "Bob", "INSERT", 0)]),
          runs("SELECT * FROM tbl_changes where _change_type = 'INSERT' AND id = 3 ORDER BY _change_ordinal", []),
          runs("CALL spark_catalog.system.create_changelog_view(table => 'db.tbl', net_changes => true)", [(2, "Bob", "INSERT", 0)], "SELECT id, name, _change_type, _change_ordinal FROM tbl_changes"),
          runs("SELECT id, name, _change_type FROM spark_catalog.db.tbl.changes", [(1, "Alice", "DELETE"), (1, "Alice", "INSERT"), (2, "Bob", "DELETE"), (2, "Bob", "INSERT"), (2, "Bob", "INSERT")]),
          setup=("CREATE TABLE db.tbl (id int, name string) USING iceberg", "INSERT INTO db.tbl SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'Alice'), (2, 'Bob') AS v(id, name)", "DELETE FROM db.tbl WHERE id = 1")),
    *(group(CALLS, of_spark(call, [(count,)], then), spark_tables={"db.sample": SPARK_SAMPLE}) for call, count, then in (
        ("CALL catalog_name.system.snapshot('db.sample', 'db.snap')", 2, "SELECT count(*) FROM db.snap"),
        ("CALL catalog_name.system.snapshot('db.sample', 'db.snap', '{spark}/temptable/')", 2, "SELECT count(*) FROM db.snap"),
        ("CALL catalog_name.system.migrate('spark_catalog.db.sample', map('foo', 'bar'))", 2, "SELECT count(*) FROM db.sample"),
        ("CALL catalog_name.system.migrate('db.sample')", 2, "SELECT count(*) FROM db.sample"))),
    group(CALLS, of_spark("CALL spark_catalog.system.add_files(table => 'db.tbl', source_table => 'db.src_tbl', partition_filter => map('part_col_1', 'A'))", [(1, "A")], "SELECT * FROM db.tbl"),
          setup="CREATE TABLE db.tbl (id bigint, part_col_1 string) USING iceberg PARTITIONED BY (part_col_1)",
          spark_tables={"db.src_tbl": "PARTITIONED BY (part_col_1) {at} AS SELECT * FROM VALUES (1L, 'A'), (2L, 'B') AS t (id, part_col_1)"}),
)  # fmt: skip

DDL, QUERY, WRITE, ALTER, CALLS = (
    f"Paimon: spark/{page}" for page in ("sql-ddl", "sql-query", "sql-write", "sql-alter", "procedures")
)
FIVE = "user_id BIGINT, item_id BIGINT, behavior STRING, dt STRING, hh STRING"
T = (
    "CREATE TABLE T (k INT, v STRING, p INT) PARTITIONED BY (p)",
    "INSERT INTO T VALUES (1, 'a', 0)",
    "INSERT INTO T VALUES (2, 'b', 1)",
)


def marked(lake):
    """T's second row, by a stream that sets a watermark."""
    lake.table("default.T").append({"k": [2], "v": ["b"], "p": [1]}, watermark=1678883047356)


NESTED = "CREATE TABLE my_table (k INT, v STRUCT<f1: STRING, f2: INT>, w ARRAY<STRUCT<f1: STRING, f2: INT>>, x MAP<INT, STRUCT<f1: STRING, f2: INT>>)"
KEYED = "CREATE TABLE {0} (a INT, b INT, c STRING) TBLPROPERTIES ('primary-key' = 'a')"
INDEXES = (
    "CALL sys.drop_global_index(table => 'default.T', index_column => 'v', index_type => 'btree', dry_run => true)"
)
MANIFESTS = "SELECT num_added_files, num_deleted_files FROM T.manifests"
TAGS = "SELECT tag_name, snapshot_id FROM T.tags"


def shape(name):
    return f"DESCRIBE my_table {name}"


def unnamed(lake):
    """Tables in folders of which the catalog knows nothing."""
    for name in ("test_db.T", "test_db.T2", "test_db01.a"):
        Lake(lake.uri).create_table(name, pa.schema([("k", pa.int32())]))


PAIMON = (
    group(DDL, runs("USE paimon.default"), runs(f"CREATE TABLE my_table ({FIVE}) TBLPROPERTIES ('primary-key' = 'dt,hh,user_id')", [("Primary Key", "dt, hh, user_id", None)], "DESCRIBE EXTENDED my_table"), format="paimon"),
    group(DDL, runs(f"CREATE TABLE my_table ({FIVE}) PARTITIONED BY (dt, hh) TBLPROPERTIES ('primary-key' = 'dt,hh,user_id')", [("Part 0", "dt"), ("Part 1", "hh")], "DESCRIBE my_table"), format="paimon"),
    group(DDL,
          runs("CREATE TABLE my_table (user_id BIGINT, item_id BIGINT); CREATE TABLE my_table_as AS SELECT * FROM my_table", columns("user_id", "item_id"), "SHOW COLUMNS IN my_table_as"),
          runs(f"CREATE TABLE my_table_partition ({FIVE}) PARTITIONED BY (dt, hh); CREATE TABLE my_table_partition_as PARTITIONED BY (dt) AS SELECT * FROM my_table_partition", [("Part 0", "dt")], "DESCRIBE my_table_partition_as"),
          runs("CREATE TABLE my_table_options (user_id BIGINT, item_id BIGINT) TBLPROPERTIES ('file.format' = 'orc'); CREATE TABLE my_table_options_as TBLPROPERTIES ('file.format' = 'parquet') AS SELECT * FROM my_table_options",
               [("file.format", "parquet")], "SHOW TBLPROPERTIES my_table_options_as ('file.format')"),
          runs(f"CREATE TABLE my_table_pk ({FIVE}) TBLPROPERTIES ('primary-key' = 'dt,hh,user_id'); CREATE TABLE my_table_pk_as TBLPROPERTIES ('primary-key' = 'dt') AS SELECT * FROM my_table_pk", [("Primary Key", "dt", None)], "DESCRIBE EXTENDED my_table_pk_as"),
          runs(f"CREATE TABLE my_table_all ({FIVE}) PARTITIONED BY (dt, hh) TBLPROPERTIES ('primary-key' = 'dt,hh,user_id'); CREATE TABLE my_table_all_as PARTITIONED BY (dt) TBLPROPERTIES ('primary-key' = 'dt,hh') AS SELECT * FROM my_table_all",
               [("Primary Key", "dt, hh", None)], "DESCRIBE EXTENDED my_table_all_as"),
          format="paimon"),
    group(DDL, runs("CREATE VIEW v1 AS SELECT * FROM my_table", [(1,)], "SELECT * FROM v1"), runs("CREATE OR REPLACE VIEW v1 AS SELECT * FROM my_table", [(1,)], "SELECT * FROM v1"), runs("DROP VIEW v1", [], "SHOW VIEWS"),
          setup=("CREATE TABLE my_table (id INT)", "INSERT INTO my_table VALUES (1)"), format="paimon", catalog="sql"),
    group(DDL,
          runs("ALTER TABLE T CREATE TAG `TAG-1`", [("TAG-1", 2)], TAGS),
          runs("ALTER TABLE T CREATE TAG IF NOT EXISTS `TAG-1`"),
          runs("ALTER TABLE T CREATE TAG `TAG-2` RETAIN 7 DAYS", [(604800000,)], "SELECT retained_ms FROM T.inspect_tags WHERE tag_name = 'TAG-2'"),
          runs("ALTER TABLE T CREATE TAG `TAG-3` AS OF VERSION 1", [("TAG-1", 2), ("TAG-2", 2), ("TAG-3", 1)], TAGS),
          runs("ALTER TABLE T CREATE TAG `TAG-4` AS OF VERSION 2 RETAIN 12 HOURS"),
          runs("ALTER TABLE T REPLACE TAG `TAG-4` AS OF VERSION 2 RETAIN 24 HOURS", [(86400000,)], "SELECT retained_ms FROM T.inspect_tags WHERE tag_name = 'TAG-4'"),
          runs("ALTER TABLE T CREATE OR REPLACE TAG `TAG-5` AS OF VERSION 2 RETAIN 24 HOURS"),
          runs("SHOW TAGS T", 5),
          runs("ALTER TABLE T DELETE TAG `TAG-1`"), runs("ALTER TABLE T DELETE TAG IF EXISTS `TAG-1`"),
          runs("ALTER TABLE T DELETE TAG `TAG-2,TAG-3`", [("TAG-4", 2), ("TAG-5", 2)], TAGS),
          runs("ALTER TABLE T RENAME TAG `TAG-4` TO `TAG-2`", [("TAG-2", 2), ("TAG-5", 2)], TAGS), setup=T, format="paimon"),
    group(QUERY,
          runs("SELECT * FROM t VERSION AS OF 1", [(1, "a", 0)]), runs("SELECT * FROM t TIMESTAMP AS OF '{between}'", [(1, "a", 0)]), runs("SELECT k FROM t TIMESTAMP AS OF {seconds}", [(1,), (2,)]),
          runs("SELECT * FROM t VERSION AS OF 'my-tag'", [(1, "a", 0)]), runs("SELECT * FROM t VERSION AS OF 'watermark-1678883047356'", [(1, "a", 0), (2, "b", 1)]),
          runs("SELECT * FROM paimon_incremental_query('t', 1, 2)", [(2, "b", 1)]), setup=(*T[:2], marked, "ALTER TABLE t CREATE TAG `my-tag` AS OF VERSION 1"), format="paimon"),
    group(QUERY,
          runs("CREATE TABLE orders (catalog_id BIGINT, order_id BIGINT, amount INT) TBLPROPERTIES ('primary-key' = 'catalog_id,order_id'); INSERT INTO orders VALUES (1025, 29495, 1), (1025, 2100, 2), (1, 29495, 3)"),
          runs("SELECT amount FROM orders WHERE catalog_id=1025", [(1,), (2,)]), runs("SELECT amount FROM orders WHERE catalog_id=1025 AND order_id=29495", [(1,)]),
          runs("SELECT amount FROM orders WHERE catalog_id=1025 AND order_id>2035 AND order_id<6000", [(2,)]), runs("SELECT amount FROM orders WHERE order_id=29495", [(1,), (3,)]),
          runs("SELECT amount FROM orders WHERE catalog_id=1025 OR order_id=29495", [(1,), (2,), (3,)]), format="paimon"),
    group(WRITE,
          runs("INSERT INTO my_table SELECT k, v, p FROM T", [(1,), (2,)], "SELECT k FROM my_table"), runs("INSERT OVERWRITE my_table SELECT k, v, p FROM T WHERE k = 1", [(1,)], "SELECT k FROM my_table"),
          runs("INSERT OVERWRITE my_table PARTITION (p = 5) SELECT k, v FROM T", [(1, 0), (1, 5), (2, 5)], "SELECT k, p FROM my_table"),
          setup=(*T, "CREATE TABLE my_table (k INT, v STRING, p INT) PARTITIONED BY (p)"), format="paimon"),
    group(WRITE,
          runs("CREATE TABLE my_table (id INT, pt STRING) PARTITIONED BY (pt); INSERT INTO my_table VALUES (1, 'p1'), (2, 'p2')"),
          runs("INSERT OVERWRITE my_table PARTITION (pt) VALUES (3, 'p1')", [(3, "p1")], "SELECT * FROM my_table"), runs("INSERT OVERWRITE my_table VALUES (3, 'p1'), (2, 'p2')", [(2, "p2"), (3, "p1")], "SELECT * FROM my_table"),
          runs("INSERT OVERWRITE my_table PARTITION (pt='p1') VALUES (4)", [(2, "p2"), (4, "p1")], "SELECT * FROM my_table"),
          runs("SET spark.sql.sources.partitionOverwriteMode=dynamic; INSERT OVERWRITE my_table VALUES (3, 'p1')", [(2, "p2"), (3, "p1")], "SELECT * FROM my_table"),
          runs("TRUNCATE TABLE my_table", [], "SELECT * FROM my_table"), format="paimon"),
    group(WRITE,
          runs("CREATE TABLE t (id INT, s STRUCT<c1: INT, c2: STRING>, name STRING) TBLPROPERTIES ('primary-key' = 'id', 'merge-engine' = 'deduplicate'); INSERT INTO t VALUES (1, named_struct('c1', 1, 'c2', 'b'), 'a')"),
          runs("UPDATE t SET name = 'a_new' WHERE id = 1", [("a_new",)], "SELECT name FROM t"), runs("UPDATE t SET s.c2 = 'a_new' WHERE s.c1 = 1", [({"c1": 1, "c2": "a_new"},)], "SELECT s FROM t"),
          runs("DELETE FROM my_table WHERE currency = 'UNKNOWN'", [("EUR",)], "SELECT currency FROM my_table"),
          setup="CREATE TABLE my_table (currency STRING, n INT); INSERT INTO my_table VALUES ('UNKNOWN', 1), ('EUR', 2)", format="paimon"),
    group(WRITE,
          runs("MERGE INTO target USING source ON target.a = source.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", [(1, 100, "c11"), (2, 20, "c2"), (3, 300, "c33"), (5, 500, "c55"), (6, 600, "c66"), (7, 700, "c99")], "SELECT * FROM target"),
          runs("MERGE INTO again USING source ON again.a = source.a WHEN MATCHED AND again.a = 5 THEN UPDATE SET b = source.b + again.b WHEN MATCHED AND source.c > 'c2' THEN UPDATE SET * WHEN MATCHED THEN DELETE "
               "WHEN NOT MATCHED AND c > 'c9' THEN INSERT (a, b, c) VALUES (a, b * 1.1, c) WHEN NOT MATCHED THEN INSERT *", [(2, 20, "c2"), (3, 300, "c33"), (5, 550, "c5"), (6, 600, "c66"), (7, 770, "c99")], "SELECT * FROM again"),
          setup=[KEYED.format(name) for name in ("target", "again", "source")] + ["INSERT INTO target VALUES (1, 10, 'c1'), (2, 20, 'c2'), (3, 30, 'c3'), (5, 50, 'c5')", "INSERT INTO again SELECT * FROM target",
                 "INSERT INTO source VALUES (1, 100, 'c11'), (3, 300, 'c33'), (5, 500, 'c55'), (6, 600, 'c66'), (7, 700, 'c99')"], format="paimon"),
    group(WRITE, runs("set `spark.paimon.write.merge-schema` = true; CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (1, '1'), (2, '2'); INSERT INTO t BY NAME SELECT 3 AS a, '3' AS b, 3 AS c", [(1, None), (2, None), (3, 3)], "SELECT a, c FROM t"), format="paimon"),
    group(ALTER,
          runs("ALTER TABLE my_table SET TBLPROPERTIES ('write-buffer-size' = '256 MB')", [("write-buffer-size", "256 MB")], "SHOW TBLPROPERTIES my_table ('write-buffer-size')"), runs("ALTER TABLE my_table UNSET TBLPROPERTIES ('write-buffer-size')", [], "SELECT * FROM my_table.options WHERE key = 'write-buffer-size'"),
          runs("ALTER TABLE my_table SET TBLPROPERTIES ('comment' = 'table comment')", [("Comment", "table comment", None)], "DESCRIBE EXTENDED my_table"), runs("ALTER TABLE my_table UNSET TBLPROPERTIES ('comment')", [("Comment", "", None)], "DESCRIBE EXTENDED my_table"),
          runs("ALTER TABLE my_table ADD COLUMNS (c1 INT, c2 STRING)", columns("b", "buy_count", "c0", "c1", "c2", "col_a"), "SHOW COLUMNS IN my_table"), runs("ALTER TABLE my_table DROP COLUMNS (c1, c2)", columns("b", "buy_count", "c0", "col_a"), "SHOW COLUMNS IN my_table"),
          runs("ALTER TABLE my_table RENAME COLUMN c0 TO c1", columns("b", "buy_count", "c1", "col_a"), "SHOW COLUMNS IN my_table"), runs("ALTER TABLE my_table ALTER COLUMN buy_count COMMENT 'buy count'", [("buy_count", "int", "buy count")], shape("buy_count")),
          runs("ALTER TABLE my_table ADD COLUMN c INT FIRST", [("c", "int", None)], shape("c")), runs("ALTER TABLE my_table ADD COLUMN d INT AFTER b", [("d", "int", None)], shape("d")), runs("ALTER TABLE my_table ALTER COLUMN col_a FIRST"), runs("ALTER TABLE my_table ALTER COLUMN col_a AFTER b"),
          runs("ALTER TABLE my_table ALTER COLUMN col_a TYPE DOUBLE", [("col_a", "double", None)], shape("col_a")), runs("ALTER TABLE my_table RENAME TO my_table_new", [("default", "my_table_new", False)], "SHOW TABLES"),
          runs("ALTER TABLE paimon.default.my_table_new RENAME to default.test2", [("default", "test2", False)], "SHOW TABLES"), setup="CREATE TABLE my_table (b INT, c0 INT, buy_count INT, col_a INT)", format="paimon"),
    group(ALTER,
          runs("ALTER TABLE my_table ADD COLUMN v.f3 STRING", [("v", "struct<f1:string,f2:int,f3:string>", None)], shape("v")), runs("ALTER TABLE my_table ADD COLUMN w.element.f3 STRING", [("w", "array<struct<f1:string,f2:int,f3:string>>", None)], shape("w")),
          runs("ALTER TABLE my_table ADD COLUMN x.value.f3 STRING", [("x", "map<int,struct<f1:string,f2:int,f3:string>>", None)], shape("x")), runs("ALTER TABLE my_table RENAME COLUMN v.f1 to f100", [("v", "struct<f100:string,f2:int,f3:string>", None)], shape("v")),
          runs("ALTER TABLE my_table RENAME COLUMN w.element.f1 to f100", [("w", "array<struct<f100:string,f2:int,f3:string>>", None)], shape("w")), runs("ALTER TABLE my_table RENAME COLUMN x.value.f1 to f100", [("x", "map<int,struct<f100:string,f2:int,f3:string>>", None)], shape("x")),
          runs("ALTER TABLE my_table ALTER COLUMN v.f2 TYPE BIGINT", [("v", "struct<f100:string,f2:bigint,f3:string>", None)], shape("v")), runs("ALTER TABLE my_table ALTER COLUMN w.element.f2 TYPE BIGINT", [("w", "array<struct<f100:string,f2:bigint,f3:string>>", None)], shape("w")),
          runs("ALTER TABLE my_table ALTER COLUMN x.value.f2 TYPE BIGINT", [("x", "map<int,struct<f100:string,f2:bigint,f3:string>>", None)], shape("x")), runs("ALTER TABLE my_table DROP COLUMN v.f2", [("v", "struct<f100:string,f3:string>", None)], shape("v")),
          runs("ALTER TABLE my_table DROP COLUMN w.element.f2", [("w", "array<struct<f100:string,f3:string>>", None)], shape("w")), runs("ALTER TABLE my_table DROP COLUMN x.value.f2", [("x", "map<int,struct<f100:string,f3:string>>", None)], shape("x")), setup=NESTED, format="paimon"),
    group(ALTER,
          runs("ALTER TABLE my_table DROP PARTITION (`id` = 1, `name` = 'paimon')", [(2,)], "SELECT id FROM my_table"), refused("ALTER TABLE my_table ADD PARTITION (`id` = 1, `name` = 'paimon')", "comes with its first row", HIVE),
          setup="CREATE TABLE my_table (n INT, id INT, name STRING) PARTITIONED BY (id, name); INSERT INTO my_table VALUES (0, 1, 'paimon'), (0, 2, 'paimon')", format="paimon"),
    group(DDL,
          runs(f"CREATE TABLE my_table ({FIVE}) PARTITIONED BY (dt, hh) TBLPROPERTIES ('primary-key' = 'dt,hh,user_id') LOCATION '{{spark}}/path/to/table'", [("Primary Key", "dt, hh, user_id", None)], "DESCRIBE EXTENDED my_table"),
          format="paimon", catalog="paimon"),
    group(DDL, runs("CREATE TABLE my_table LOCATION '{spark}/path/to/table'", [("Part 0", "dt"), ("Part 1", "hh")], "DESCRIBE my_table"), format="paimon", catalog="paimon",
          setup=(f"CREATE TABLE there ({FIVE}) PARTITIONED BY (dt, hh) TBLPROPERTIES ('primary-key' = 'dt,hh,user_id') LOCATION '{{spark}}/path/to/table'", "DROP TABLE there")),
    group(CALLS, runs("CALL sys.repair('test_db.T')", [("test_db.T",)]), runs("CALL sys.repair('test_db.T,test_db01,test_db.T2')", [("test_db.T2",), ("test_db01.a",)]),
          setup=unnamed, format="paimon", catalog="paimon"),
    group(CALLS, of_spark("CALL sys.migrate_database(source_type => 'hive', database => 'db01', options => 'file.format=parquet')", [(1, "a"), (2, "b")], "SELECT * FROM db01.sample"),
          of_spark("CALL sys.migrate_table(source_type => 'hive', table => 'default.T', options => 'file.format=parquet')", [(1, "a"), (2, "b")], "SELECT * FROM T"),
          format="paimon", spark_tables={"db01.sample": SPARK_SAMPLE, "default.T": SPARK_SAMPLE}),
    group(CALLS,
          runs("CALL sys.compact(table => 'T', partitions => 'p=0;p=1', order_strategy => 'zorder', order_by => 'k,v')", 1), runs("CALL sys.compact(table => 'T', where => 'p>0 and p<3', order_strategy => 'zorder', order_by => 'k,v')", 1),
          runs("CALL sys.compact(table => 'T', where => 'p>10', order_strategy => 'zorder', order_by => 'k,v', options => 'sink.parallelism=4')", 1), runs("CALL sys.compact(table => 'T', partition_idle_time => '60s')", 1), runs("CALL sys.compact(table => 'T', compact_strategy => 'minor')", 1),
          runs("CALL sys.compact_manifest(`table` => 'default.T')", 1, "SELECT * FROM T.manifests"), runs("CALL sys.expire_snapshots(table => 'default.T', retain_max => 10)", 1), runs("CALL sys.expire_snapshots(table => 'default.T', retain_max => 10, options => 'snapshot.expire.limit=1')", 1),
          runs("CALL sys.create_tag(table => 'default.T', tag => 'my_tag', snapshot => 1, time_retained => '1 d')", [("my_tag", 1)], TAGS), runs("CALL sys.create_tag(table => 'default.T', tag => 'tag1')", 2, TAGS),
          runs("CALL sys.create_tag_from_timestamp(`table` => 'default.T', `tag` => 'early', `timestamp` => 1724404318750, time_retained => '1 d')", [("early", 1)], TAGS + " WHERE tag_name = 'early'"),
          runs("CALL sys.rename_tag(table => 'default.T', tag => 'tag1', target_tag => 'tag2')", [("early",), ("my_tag",), ("tag2",)], "SELECT tag_name FROM T.tags"), runs("CALL sys.replace_tag(table => 'default.T', tag => 'tag2', snapshot => 2, time_retained => '1 d')", [("tag2", 2)], TAGS + " WHERE tag_name = 'tag2'"),
          runs("CALL sys.delete_tag(table => 'default.T', tag => 'early')", 2, TAGS), runs("CALL sys.expire_tags(table => 'default.T', older_than => '2024-09-06 11:00:00')", 0),
          runs("CALL sys.trigger_tag_automatic_creation(table => 'default.T')", 2, TAGS),
          runs("CALL sys.rollback(table => 'default.T', tag => 'tag2')", [(1,), (2,)], "SELECT k FROM T"), runs("CALL sys.rollback(table => 'default.T', snapshot => 2)", [(1,), (2,)], "SELECT k FROM T"), runs("CALL sys.rollback(table => 'default.T', version => 'my_tag')", [(1,)], "SELECT k FROM T"),
          runs("CALL sys.rollback(table => 'default.T', version => 1)", [(1,)], "SELECT k FROM T"), runs("CALL sys.rollback_to_timestamp(table => 'default.T', timestamp => {now})", 1), runs("CALL sys.rollback_to_watermark(table => 'default.T', watermark => 1730292023000)", [(1,)], "SELECT k FROM T"),
          runs("CALL sys.remove_orphan_files(table => 'default.T', older_than => '2023-10-31 12:00:00')", 0), runs("CALL sys.remove_orphan_files(table => 'default.*', older_than => '2023-10-31 12:00:00')", 0), runs("CALL sys.remove_orphan_files(table => 'default.T', older_than => '2023-10-31 12:00:00', dry_run => true)", 0),
          runs("CALL sys.remove_orphan_files(table => 'default.T', older_than => '2023-10-31 12:00:00', dry_run => true, parallelism => '5')", 0), runs("CALL sys.remove_orphan_files(table => 'default.T', older_than => '2023-10-31 12:00:00', dry_run => true, parallelism => '5', mode => 'local')", 0),
          runs("CALL sys.remove_unexisting_files(table => 'default.T')", 0), runs("CALL sys.remove_unexisting_files(table => 'default.T', dry_run = true)", 0),
          runs("CALL sys.create_branch(table => 'default.T', branch => 'test_branch')", 0, "SELECT * FROM T$branch_test_branch"), runs("CALL sys.create_branch(table => 'default.T', branch => 'other', tag => 'my_tag')", [(1,)], "SELECT k FROM T$branch_other"),
          runs("CALL sys.create_branch(table => 'default.T$branch_other', branch => 'third', tag => 'my_tag')", [(1,)], "SELECT k FROM T$branch_third"), runs("CALL sys.fast_forward(table => 'default.T$branch_other', branch => 'third')", [(1,)], "SELECT k FROM T$branch_other"), runs("CALL sys.delete_branch(table => 'default.T', branch => 'other')", [("test_branch",), ("third",)], "SELECT branch_name FROM T.branches"),
          runs("CALL sys.reset_consumer(table => 'default.T', consumerId => 'myid', nextSnapshotId => 1)", 1, "SELECT * FROM T.consumers"), runs("CALL sys.reset_consumer(table => 'default.T', consumerId => 'myid')", 0, "SELECT * FROM T.consumers"), runs("CALL sys.clear_consumers(table => 'default.T')", 0, "SELECT * FROM T.consumers"),
          runs("CALL sys.clear_consumers(table => 'default.T', includingConsumers => 'myid.*')", 1), runs("CALL sys.clear_consumers(table => 'default.T', includingConsumers => '', excludingConsumers => 'myid1.*')", 1), runs("CALL sys.clear_consumers(table => 'default.T', includingConsumers => 'myid.*', excludingConsumers => 'myid1.*')", 1),
          runs("CALL sys.mark_partition_done(table => 'default.T', partitions => 'p=0')", [(True,)]), runs("CALL sys.mark_partition_done(table => 'default.T', partitions => 'p=0;p=1')", [(True,)]),
setup=(*T[:2], marked), format="paimon"),
    group(ALTER,
          runs("ALTER DATABASE my_database SET DBPROPERTIES ('a' = 'b')", [("Namespace Name", "my_database"), ("Properties", "((a,b))")], "DESCRIBE DATABASE EXTENDED my_database"),
          runs("ALTER DATABASE my_database SET LOCATION 'file:/temp/my_database.db'", [("Location", "file:/temp/my_database.db"), ("Namespace Name", "my_database")], "DESCRIBE DATABASE my_database"), format="paimon", catalog="sql"),
    group(CALLS,
          runs("CALL sys.create_function(`function` => 'my_database.area_func', `inputParams` => '[{\"id\": 0, \"name\":\"length\", \"type\":\"INT\"}, {\"id\": 1, \"name\":\"width\", \"type\":\"INT\"}]', "
               "`returnParams` => '[{\"id\": 0, \"name\":\"area\", \"type\":\"BIGINT\"}]', `deterministic` => true, `comment` => 'comment', `options` => 'k1=v1,k2=v2')",
               [("               width INT",), ("Comment:       comment",), ("Deterministic: true",), ("Function:      my_database.area_func",), ("Input:         length INT",), ("Returns:       BIGINT",), ("Type:          SCALAR",)],
               "DESCRIBE FUNCTION EXTENDED my_database.area_func"),
          runs("CALL sys.alter_function(`function` => 'my_database.area_func', `change` => '{\"action\" : \"addDefinition\", \"name\" : \"spark\", \"definition\" : {\"type\" : \"lambda\", "
               "\"definition\" : \"(Integer length, Integer width) -> { return (long) length * width; }\", \"language\": \"JAVA\" } }')", 9, "DESCRIBE FUNCTION EXTENDED my_database.area_func"),
          runs("CALL sys.drop_function(`function` => 'my_database.area_func')", [], "SHOW USER FUNCTIONS IN my_database"), format="paimon", catalog="sql"),
    group(CALLS,
          runs("CALL sys.purge_files(table => 'default.T')", 0, "SELECT * FROM T"), setup=T, format="paimon"),
    group(CALLS,
          runs("CALL sys.alter_view_dialect('v', 'drop', 'spark')", [(True,)]), runs("CALL sys.alter_view_dialect('v', 'add', 'spark', 'SELECT 2 AS a')", [(2,)], "SELECT * FROM v"), runs("CALL sys.alter_view_dialect('v', 'update', 'spark', 'SELECT 3 AS a')", [(3,)], "SELECT * FROM v"),
          runs("CALL sys.alter_view_dialect(`view` => 'v', `action` => 'drop')", [(True,)]), runs("CALL sys.alter_view_dialect(`view` => 'v', `action` => 'add', `query` => 'SELECT 4 AS a')", [(4,)], "SELECT * FROM v"), runs("CALL sys.alter_view_dialect(`view` => 'v', `action` => 'update', `query` => 'SELECT 5 AS a')", [(5,)], "SELECT * FROM v"),
          setup=("CREATE VIEW v AS SELECT 1 AS a", "CALL sys.alter_view_dialect('v', 'add', 'trino', 'SELECT 1 AS a')"), format="paimon", catalog="sql"),
    group(CALLS,
          runs("CALL sys.expire_partitions(table => 'default.T', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt', expire_strategy => 'values-time')", [(2, "2999-01-01")], "SELECT * FROM T"),
          setup=("CREATE TABLE T (k INT, dt STRING) PARTITIONED BY (dt)", "INSERT INTO T VALUES (1, '2020-01-01'), (2, '2999-01-01')"), format="paimon"),
)  # fmt: skip

QUICK, AUXILIARY, DEFAULTS, FUNCTIONS_, COPY, FORMAT_TABLES = (
    f"Paimon: spark/{page}"
    for page in ("quick-start", "auxiliary", "default-value", "sql-functions", "copy-into", "format-table")
)
NEW_CALLS = "Paimon: spark/procedures, newest"
STARTED, SYSTEM = "Iceberg: spark-getting-started", "Iceberg: spark-functions"


COPIED = (
    "CREATE DATABASE my_db; CREATE TABLE my_db.my_table (id INT, name STRING); CREATE TABLE my_db.users (id INT NOT NULL, name STRING, active BOOLEAN DEFAULT true)",
    "CREATE TABLE my_db.events (id INT, event_date STRING); CREATE TABLE my_db.back (id INT, name STRING); CREATE TABLE my_db.employees (dept STRING)",
    "INSERT INTO my_db.employees VALUES ('a'), ('a'), ('b')",
)


def each_refused(said, *texts, why=""):
    return tuple(refused(text, said, why) for text in texts)


FURTHER = (
    group(STARTED,
          runs("CREATE TABLE catalog_name.db.table (id bigint, data string) USING iceberg", columns("id", "data"), "SHOW COLUMNS IN db.table"),
          runs("INSERT INTO catalog_name.db.table VALUES (1, 'a'), (2, 'b'), (3, 'c')", 3, "SELECT * FROM db.table"),
          runs("INSERT INTO catalog_name.db.table SELECT id, data FROM source WHERE length(data) = 1", 4, "SELECT * FROM db.table"),
          runs("MERGE INTO catalog_name.db.target t USING (SELECT * FROM updates) u ON t.id = u.id WHEN MATCHED THEN UPDATE SET t.count = t.count + u.count WHEN NOT MATCHED THEN INSERT *", [(1, 3), (2, 9)], "SELECT * FROM db.target"),
          runs("SELECT count(1) as count, data FROM catalog_name.db.table GROUP BY data", [(1, "b"), (1, "c"), (2, "a")]), runs("SELECT * FROM catalog_name.db.table.snapshots", 2),
          setup=("CREATE TABLE source USING iceberg AS SELECT 4L AS id, 'a' AS data UNION ALL SELECT 5L, 'long'", "CREATE TABLE db.target (id bigint, count int) USING iceberg; INSERT INTO db.target VALUES (1, 1)",
                 "CREATE TABLE updates (id bigint, count int) USING iceberg; INSERT INTO updates VALUES (1, 2), (2, 9)")),
    group(SYSTEM,
          runs("SELECT system.iceberg_version()", [("1.10",)]), runs("SELECT system.bucket(8, 'user_id_123') AS v", [(1,)]),
          *(runs(f"SELECT system.{unit}({value}) AS v", [(gives,)])
            for unit, row in {"years": (47, -1, 0, None), "months": (575, -1, 0, None), "days": (date(2017, 12, 1), date(1969, 12, 31), date(1970, 1, 1), None)}.items()
            for value, gives in zip(("DATE '2017-12-01'", "TIMESTAMP '1969-12-31 23:59:58'", "TIMESTAMP '1970-01-01 00:00:01'", "NULL"), row, strict=True)),
          *(runs(f"SELECT system.hours({value}) AS v", [(gives,)])
            for value, gives in (("TIMESTAMP '2017-12-01 10:12:55.038194'", 420034), ("TIMESTAMP '1970-01-01 00:00:01.000001'", 0), ("TIMESTAMP '1969-12-31 23:59:58.999999'", -1), ("CAST(NULL AS TIMESTAMP)", None), ("TIMESTAMP_NTZ '2017-12-01 10:12:55'", 420034))),
          *(runs(f"SELECT system.truncate({value}) AS v", [(gives,)])
            for value, gives in (("10, 34", 30), ("10, -11", -20), ("10, 12.34BD", Decimal("12.30")), ("3, 0.05BD", Decimal("0.03")), ("5, 'abcdefg'", "abcde"), ("2, '\u30a4\u30ed\u30cf'", "\u30a4\u30ed"), ("4, 'ab'", "ab"), ("3, X'1234567890'", b"\x12\x34\x56"), ("10, NULL", None)))),
    group(QUICK, runs("USE paimon"), runs("USE default"), runs("create table my_table (k int, v string) tblproperties ('primary-key' = 'k')", [("Primary Key", "k", None)], "DESCRIBE EXTENDED my_table"),
          runs("create table generic (k int, v string) USING paimon tblproperties ('primary-key' = 'k')"), runs("INSERT INTO my_table VALUES (1, 'Hi'), (2, 'Hello')"), runs("SELECT * FROM my_table", [(1, "Hi"), (2, "Hello")]), format="paimon"),
    group(AUXILIARY,
          runs("SET spark.sql.sources.partitionOverwriteMode=dynamic", [("spark.sql.sources.partitionOverwriteMode", "dynamic")]), runs("SET spark.paimon.file.block-size=512M", [("spark.paimon.file.block-size", "512M")]), runs("RESET spark.paimon.file.block-size"),
          *(runs(f"SET spark.paimon.{scope}scan.snapshot-id=1", [(1,)], "SELECT k FROM T") for scope in ("*.default.T.", "*.*.T.", "")),
          runs("DESCRIBE TABLE T", [("k", "int", None)], "DESCRIBE TABLE T k"), runs("DESCRIBE TABLE EXTENDED T", [("Part 0", "p")], "DESCRIBE TABLE EXTENDED T"), runs("SHOW CREATE TABLE T", 1), runs("SHOW COLUMNS FROM T", columns("k", "v", "p")),
          runs("SHOW PARTITIONS T", [("p=0",), ("p=1",)]), runs("SHOW PARTITIONS T PARTITION (p=1)", [("p=1",)]), runs("SHOW TABLE EXTENDED IN default LIKE 'T*'", 1), runs("SHOW TABLE EXTENDED IN default LIKE 'T' PARTITION(p = 0)", 1),
          runs("SHOW VIEWS", []), runs("SHOW VIEWS LIKE 'test*'", []), *(runs(f"ANALYZE TABLE T COMPUTE STATISTICS{columns}", gives, "SELECT column, distinct_values FROM T.inspect_statistics")
            for columns, gives in (("", [("k", 2), ("p", 2), ("v", 2)]), (" FOR COLUMNS k", [("k", 2)]), (" FOR ALL COLUMNS", [("k", 2), ("p", 2), ("v", 2)]))), runs("REFRESH TABLE T", []),
          setup=T, format="paimon"),
    group(DEFAULTS,
          runs("CREATE TABLE my_table (a BIGINT, b STRING DEFAULT 'my_value', c INT DEFAULT 5, tags ARRAY<STRING> DEFAULT ARRAY('tag1', 'tag2', 'tag3'), properties MAP<STRING, STRING> DEFAULT MAP('key1', 'value1', 'key2', 'value2'), nested STRUCT<x: INT, y: STRING> DEFAULT STRUCT(42, 'default_value'))"),
          runs("INSERT INTO my_table (a) VALUES (1), (2)", [(1, "my_value", 5, "tag1,tag2,tag3", "value1", "value2", 42, "default_value"), (2, "my_value", 5, "tag1,tag2,tag3", "value1", "value2", 42, "default_value")],
               "SELECT a, b, c, array_join(tags, ','), properties['key1'], properties['key2'], nested.x, nested.y FROM my_table"),
          runs("CREATE TABLE T (a INT, b INT DEFAULT 2)"), runs("INSERT INTO T (a) VALUES (1)", [(1, 2)], "SELECT * FROM T"), runs("ALTER TABLE T ALTER COLUMN b SET DEFAULT 3"), runs("INSERT INTO T (a) VALUES (2)", [(1, 2), (2, 3)], "SELECT * FROM T"),
          runs("ALTER TABLE my_table ALTER COLUMN tags SET DEFAULT ARRAY('new_tag1', 'new_tag2')"),
          runs("ALTER TABLE my_table ALTER COLUMN properties SET DEFAULT MAP('new_key', 'new_value'); INSERT INTO my_table (a) VALUES (3)", [("new_tag1,new_tag2", "new_value")], "SELECT array_join(tags, ','), properties['new_key'] FROM my_table WHERE a = 3"),
          format="paimon"),
    group(DDL,
          runs("CREATE TABLE my_table (user_id BIGINT, item_id BIGINT, behavior STRING) TBLPROPERTIES ('primary-key' = 'user_id', 'bucket' = '2'); INSERT INTO my_table VALUES (1, 10, 'pv')"),
          runs("REPLACE TABLE my_table (user_id BIGINT, item_id BIGINT, category STRING) TBLPROPERTIES ('primary-key' = 'user_id', 'bucket' = '4')", columns("user_id", "item_id", "category"), "SHOW COLUMNS IN my_table"),
          runs("SELECT * FROM my_table", []), runs("SELECT * FROM my_table VERSION AS OF 1", [(1, 10, "pv")]),
          runs("CREATE OR REPLACE TABLE my_table TBLPROPERTIES ('primary-key' = 'user_id', 'bucket' = '4') AS SELECT user_id, item_id, behavior FROM source_table", [(2, 20, "x")], "SELECT * FROM my_table"),
          runs("CREATE TABLE source_tbl (id INT, name STRING, pt STRING) COMMENT 'source comment' PARTITIONED BY (pt) TBLPROPERTIES ('primary-key' = 'id,pt', 'bucket' = '5')"),
          runs("CREATE TABLE target_tbl LIKE source_tbl", [("bucket", "5")], "SHOW TBLPROPERTIES target_tbl ('bucket')"),
          setup="CREATE TABLE source_table AS SELECT 2L AS user_id, 20L AS item_id, 'x' AS behavior", format="paimon"),
    group(QUERY,
          runs("SELECT * FROM paimon_incremental_between_timestamp('T', '1692169000000', '1692169900000')", []), runs("SELECT * FROM paimon_incremental_between_timestamp('T', '2025-03-12 00:00:00', '2100-03-12 00:08:00')", [(1, "a", 0), (2, "b", 1)]),
          runs("SELECT * FROM paimon_incremental_to_auto_tag('T', '2024-12-04')", [(2, "b", 1)]),
          setup=(*T, "CALL sys.create_tag('T', '2024-12-03', 1); CALL sys.create_tag('T', '2024-12-04', 2)"), format="paimon"),
    group(WRITE, runs("TRUNCATE TABLE T PARTITION (p = 0)", [(2,)], "SELECT k FROM T"), setup=T, format="paimon"),
    group(FUNCTIONS_,
          runs("SELECT sys.max_pt('T') AS p", [("1",)]), runs("SELECT k FROM T WHERE p = sys.max_pt('T')", [(2,)]),
          *each_refused("is not known to mean", "SELECT sys.descriptor_to_string(v) FROM T", "SELECT sys.descriptor_to_presigned_url('default.T', v, INTERVAL '5' MINUTE) FROM T", why=AHEAD),
          *each_refused("", "INSERT INTO T VALUES (1, sys.path_to_descriptor('file:///path/to/blob_file'), 1)", "INSERT OVERWRITE TABLE T PARTITION (p = 1) VALUES (1, sys.path_to_descriptor('file:///path/to/blob_file'))", why=AHEAD),
          runs("CREATE FUNCTION default.simple_udf AS 'com.example.SimpleUdf' USING JAR '/path/to/SimpleUdf.jar'", [("default.simple_udf",)], "SHOW USER FUNCTIONS"),
          *each_refused("loads no classes", "CREATE TEMPORARY FUNCTION temporary_udf AS 'com.example.SimpleUdf' USING JAR '/path/to/SimpleUdf.jar'",
          "CREATE OR REPLACE TEMPORARY FUNCTION temporary_udf AS 'com.example.SimpleUdf' USING JAR '/path/to/SimpleUdf.jar'", why=CLASSES),
          runs("DESCRIBE FUNCTION EXTENDED default.simple_udf", [("Class: com.example.SimpleUdf",), ("Function: default.simple_udf",), ("JAR: /path/to/SimpleUdf.jar",), ("Usage: N/A.",)]),
          runs("DROP FUNCTION default.simple_udf", [], "SHOW USER FUNCTIONS"), refused("DROP TEMPORARY FUNCTION temporary_udf", "no temporary function", CLASSES),
          runs("CREATE FUNCTION area(width DOUBLE, height DOUBLE) RETURNS DOUBLE RETURN width * height", [(6.0,)], "SELECT default.area(2, 3)"), runs("SELECT area(3.0, 4.0)", [(12.0,)]),
          runs("CREATE FUNCTION dept_total(d INT) RETURNS INT RETURN SELECT SUM(salary) FROM emp WHERE dept_id = d", [(300, 300, None)], "SELECT dept_total(10), dept_total(20), dept_total(30)"),
          runs("CREATE FUNCTION addd(x INT, y INT DEFAULT 10) RETURNS INT RETURN x + y", [(15, 6)], "SELECT addd(5), addd(5, 1)"),
          runs("CREATE OR REPLACE FUNCTION inc(x INT) RETURNS INT RETURN x + 100", [(110,)], "SELECT inc(10)"), runs("CREATE FUNCTION IF NOT EXISTS inc(x INT) RETURNS INT RETURN x + 1", [(110,)], "SELECT inc(10)"),
          runs("DESCRIBE FUNCTION EXTENDED area", [("               height DOUBLE",), ("Body:          width * height",), ("Data Access:   CONTAINS SQL",), ("Deterministic: true",),
               ("Function:      default.area",), ("Input:         width DOUBLE",), ("Returns:       DOUBLE",), ("Type:          SCALAR",)]),
          runs("SHOW USER FUNCTIONS", [("default.addd",), ("default.area",), ("default.dept_total",), ("default.inc",)]), runs("DROP FUNCTION IF EXISTS area", [("default.addd",), ("default.dept_total",), ("default.inc",)], "SHOW USER FUNCTIONS"),
          setup=(*T, "CREATE TABLE emp (id INT, dept_id INT, salary INT)", "INSERT INTO emp VALUES (1, 10, 100), (2, 10, 200), (3, 20, 300)"), format="paimon", catalog="sql"),
    group(NEW_CALLS,
          runs("CALL sys.create_tag_from_watermark(`table` => 'default.T', `tag` => 'my_tag', `watermark` => 1578883047356, time_retained => '1 d')", [("my_tag", 2)], TAGS),
          runs("CALL sys.compact_manifest(`table` => 'default.T', dry_run => true)", 2, "SELECT * FROM T.snapshots"), runs("CALL sys.materialize_deletion_vectors(table => 'T')", [(1,), (2,)], "SELECT k FROM T"), runs("CALL sys.materialize_deletion_vectors(table => 'T', partitions => 'p=0')", [(1,), (2,)], "SELECT k FROM T"),
          *each_refused("", "CALL sys.compact_chain_table(table => 'default.T', partition => 'p=0')",
          *(f"CALL sys.create_global_index(table => 'default.T', index_column => 'v', index_type => '{kind}'{more})" for kind, more in (("bitmap", ", options => 'sorted-index.records-per-range=1000000'"), ("fm", ""),
          ("full-text", ", options => 'full-text.tokenizer=ngram'"), ("full-text", ", options => 'full-text.tokenizer=jieba'"), ("full-text", ", options => 'full-text.tokenizer=simple'"))),
          "CALL sys.reassign_row_id(table => 'default.T')", "CALL sys.reassign_row_id(table => 'default.T', partitions => 'p=0')", why=AHEAD),
          setup=(*T[:2], marked), format="paimon"),
    group(NEW_CALLS,
          runs("CALL sys.compact_manifest(`table` => 'default.T', manifest_sort_enabled => true)", [(2, 0)], MANIFESTS),
          runs("CALL sys.compact_manifest(`table` => 'default.T', options => 'manifest-sort.force-rewrite=true', manifest_sort_enabled => true)", [("APPEND",), ("APPEND",), ("COMPACT",), ("COMPACT",)], "SELECT commit_kind FROM T.snapshots"),
          runs("CALL sys.repair_earliest_snapshot(table => 'default.T', snapshot_id => 2)", [(1, 2)]),
          runs("CALL sys.rename_branch(table => 'default.T', from_branch => 'test_branch', to_branch => 'new_branch')", [("new_branch",)], "SELECT branch_name FROM T.branches"),
          setup=(*T, "CALL sys.create_branch(table => 'default.T', branch => 'test_branch')"), format="paimon"),
    group(NEW_CALLS, runs("CALL sys.merge_branch(table => 'default.T', source_branch => 'branch1')", [(1,), (2,), (3,)], "SELECT k FROM T"),
          runs("CALL sys.merge_branch(table => 'default.T', source_branch => 'branch1', target_branch => 'branch2')", [(1,), (3,)], "SELECT k FROM T.branch_branch2"),
          setup=(T[0] + " TBLPROPERTIES ('branch-merge.enabled' = 'true')", T[1], *(f"CALL sys.create_branch('T', 'branch{n}')" for n in (1, 2)), *(f"INSERT INTO T.branch_branch{n} VALUES ({k}, 'c', 0)" for n, k in ((2, 1), (1, 3))), T[2]), format="paimon"),
    group(NEW_CALLS, runs("CALL sys.create_global_index(table => 'default.T', index_column => 'v', index_type => 'btree', partitions => 'p=0')", [(1,)], INDEXES),
          runs("CALL sys.create_global_index(table => 'default.T', index_column => 'v', index_type => 'btree')", [(2,)], INDEXES),
          runs("CALL sys.drop_global_index(table => 'default.T', index_column => 'v', index_type => 'btree', dry_run => true)", [(2,)]), runs("CALL sys.drop_global_index(table => 'default.T', index_column => 'v', index_type => 'btree', partitions => 'p=0')", [(1,)], INDEXES),
          setup=(T[0] + " TBLPROPERTIES ('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true')", *T[1:]), format="paimon"),
    group(NEW_CALLS, runs("CALL sys.rewrite_file_index(table => 'T', where => 'p = 0')", [(1, 1)]), runs("CALL sys.rewrite_file_index(table => 'T')", [(1, 1)]),
          setup=(*T, "ALTER TABLE T SET TBLPROPERTIES ('file-index.bloom-filter.columns' = 'v')"), format="paimon"),
    group(NEW_CALLS, runs("CALL sys.compact(table => 'T', compact_strategy => 'full', buckets => '0-3,7')", [(0, 1), (1, 1), (2, 1), (6, 2)], "SELECT bucket, count(*) FROM T.files GROUP BY bucket"),
          setup=("CREATE TABLE T (k INT, v STRING) TBLPROPERTIES ('bucket' = '8', 'bucket-key' = 'k')", *2 * ("INSERT INTO T VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",)), format="paimon"),
    group(NEW_CALLS, runs("CALL sys.rescale(table => 'default.T', bucket_num => 16, partitions => 'p=0')", [("16",)], "SELECT value FROM T.options WHERE key = 'bucket'"),
          setup=("CREATE TABLE T (k INT, v STRING, p INT) PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '4', 'bucket-key' = 'k')", *T[1:]), format="paimon"),
    group(COPY,
          runs("COPY INTO my_db.my_table FROM '{data}/csv_files/' FILE_FORMAT = (TYPE = CSV)", [("a.csv", "LOADED", 2, 2, 0, None)]),
          runs("COPY INTO my_db.users (id, name) FROM '{data}/new_users/' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1)", [(1, "ann", True), (2, "bob", True)], "SELECT id, name, active FROM my_db.users"),
          runs(r"COPY INTO my_db.events FROM '{data}/logs/' FILE_FORMAT = (TYPE = CSV, FIELD_DELIMITER = '|', NULL_IF = ('NULL', '\\N', '')) PATTERN = '.*\.csv' FORCE = FALSE", [(1, "2024-05-01"), (2, None), (3, None), (4, None)], "SELECT * FROM my_db.events"),
          runs("COPY INTO my_db.my_table FROM '{data}/json_files/' FILE_FORMAT = (TYPE = JSON)", [(1, "a"), (2, "b"), (3, "c"), (None, "d")], "SELECT * FROM my_db.my_table"),
          runs("COPY INTO my_db.events FROM '{data}/events/' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = TRUE)", [("a.json", "LOADED", 2, 2, 0, None)]),
          runs("COPY INTO my_db.my_table FROM '{data}/parquet_files/' FILE_FORMAT = (TYPE = PARQUET)", [("a.parquet", "LOADED", 1, 1, 0, None)]),
          runs(r"COPY INTO my_db.events FROM '{data}/parquet_files/' FILE_FORMAT = (TYPE = PARQUET) PATTERN = '.*\.parquet' FORCE = FALSE", [(9, None)], "SELECT * FROM my_db.events WHERE id = 9"),
          runs("COPY INTO '{data}/users_backup/' FROM my_db.users FILE_FORMAT = (TYPE = CSV, HEADER = TRUE, FIELD_DELIMITER = ',') OVERWRITE = TRUE", 1),
          runs("COPY INTO '{data}/active_users/' FROM (SELECT id, name FROM my_db.users WHERE active = TRUE) FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)", [(1, "ann"), (2, "bob")], "COPY INTO my_db.back FROM '{data}/active_users/' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1); SELECT * FROM my_db.back"),
          runs("COPY INTO '{data}/events_backup/' FROM my_db.events FILE_FORMAT = (TYPE = JSON) OVERWRITE = TRUE", 1),
          runs("COPY INTO '{data}/recent_events/' FROM (SELECT * FROM my_db.events WHERE event_date > '2024-01-01') FILE_FORMAT = (TYPE = JSON)", [(1, "2024-05-01"), (5, "2024-06-01")],
               "CREATE OR REPLACE TABLE my_db.back (id INT, event_date STRING); COPY INTO my_db.back FROM '{data}/recent_events/' FILE_FORMAT = (TYPE = JSON); SELECT * FROM my_db.back"),
          runs("COPY INTO '{data}/data_backup/' FROM my_db.events FILE_FORMAT = (TYPE = PARQUET) OVERWRITE = TRUE", 1),
          runs("COPY INTO '{data}/data_compressed/' FROM my_db.events FILE_FORMAT = (TYPE = PARQUET, COMPRESSION = GZIP) OVERWRITE = TRUE", [(1, "2024-05-01"), (2, None), (3, None), (4, None), (5, "2024-06-01"), (6, None), (9, None)],
               "CREATE OR REPLACE TABLE my_db.back (id INT, event_date STRING); COPY INTO my_db.back FROM '{data}/data_compressed/' FILE_FORMAT = (TYPE = PARQUET); SELECT * FROM my_db.back"),
          runs("COPY INTO '{data}/summary/' FROM (SELECT dept, COUNT(*) AS cnt FROM my_db.employees GROUP BY dept) FILE_FORMAT = (TYPE = PARQUET)", [("a", 2), ("b", 1)],
               "CREATE TABLE my_db.sums (dept STRING, cnt BIGINT); COPY INTO my_db.sums FROM '{data}/summary/' FILE_FORMAT = (TYPE = PARQUET); SELECT * FROM my_db.sums"),
          setup=COPIED, format="paimon"),
    group(FORMAT_TABLES, *each_refused("comes with its first row", "ALTER TABLE T ADD PARTITION (p = 5)", "ALTER TABLE T ADD PARTITION (p = 6) LOCATION 'oss://archive-bucket/events/p=6'", why=HIVE), runs("ALTER TABLE T DROP PARTITION (p = 0)", [(2,)], "SELECT k FROM T"),
          *each_refused("MSCK", "MSCK REPAIR TABLE T", why=HIVE), runs("SHOW PARTITIONS T", [("p=1",)]), *each_refused("PARTITION in ANALYZE", "ANALYZE TABLE T PARTITION (p = 1) COMPUTE STATISTICS NOSCAN", why=AHEAD), setup=T, format="paimon"),
)  # fmt: skip

GROUPS = (*ICEBERG, *PAIMON, *FURTHER)


def share():
    """(examples that run, those that need what no Lake has, all examples) of each page, and of all."""
    found = {}
    for each in GROUPS:
        here = found.setdefault(each.page, [0, 0, 0])
        here[0] += sum(example.refused is None for example in each.examples)
        here[1] += sum(bool(example.why) for example in each.examples)
        here[2] += len(each.examples)
    found["all"] = [sum(column) for column in zip(*found.values(), strict=True)]
    return {page: tuple(counts) for page, counts in found.items()}


def table():
    """The rows of docs/sql.md's table."""
    return "\n".join(
        f"| {page} | {total} | {run} | {elsewhere or ''} | {total - run - elsewhere or ''} |"
        for page, (run, elsewhere, total) in share().items()
    )


def reasons():
    """(what refused examples need that no Lake has, how many need it)."""
    whys = [example.why for each in GROUPS for example in each.examples if example.why]
    return {why: whys.count(why) for why in (CLASSES, HIVE, AHEAD)}
