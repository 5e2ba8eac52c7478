"""What three pages that people learn the formats from type, word for word; `...` and notes behind `//` aside."""

import pyarrow as pa
import pytest

from lakeformat import Lake
from tests.sql.conftest import rows


@pytest.mark.parametrize("way", ["static", "hint"])
def test_insert_overwrite_of_paimon(lake, way):
    lake.sql(
        """
-- 假设表 T 有两个分区键: pt1, pt2
CREATE TABLE T (id INT, name STRING, pt1 STRING, pt2 INT) PARTITIONED BY (pt1, pt2);
"""
    )
    table = lake.table("default.T")
    table.append(
        pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"], "pt1": ["a", "a", "b", "c"], "pt2": [1, 2, 1, 1]})
    )
    source = pa.table({"id": [7, 8], "name": ["x", "y"], "pt1": ["a", "b"], "pt2": [3, 4]})
    lake.sql(
        """
-- 覆盖单个分区 pt1='a', pt2=1
INSERT OVERWRITE T PARTITION (pt1 = 'a', pt2 = 1)
SELECT id, name FROM source_table;
""",
        source_table=source,
    )
    assert rows(table) == [(2, "b", "a", 2), (3, "c", "b", 1), (4, "d", "c", 1), (7, "x", "a", 1), (8, "y", "a", 1)]
    lake.sql(
        """
-- 覆盖所有 pt1='a' 的分区 (pt2 的值不限)
-- 更安全的静态覆盖是明确指定所有分区键
INSERT OVERWRITE T PARTITION (pt1 = 'a') -- 这种语法在不同引擎下行为可能不同,需谨慎
SELECT id, name, pt2 FROM source_table;
""",
        source_table=source,
    )
    assert rows(table) == [(3, "c", "b", 1), (4, "d", "c", 1), (7, "x", "a", 3), (8, "y", "a", 4)]
    if way == "static":
        text = """
-- 覆盖整个表 (清空所有分区)
INSERT OVERWRITE T
SELECT id, name, pt1, pt2 FROM source_table;
"""
    else:
        text = """
SET spark.sql.sources.partitionOverwriteMode=dynamic;

-- Flink SQL: 静态覆盖整个表
INSERT OVERWRITE T /*+ OPTIONS('dynamic-partition-overwrite'='false') */
SELECT * FROM source_table;
"""
    lake.sql(text, source_table=source)
    assert rows(table) == [(7, "x", "a", 3), (8, "y", "b", 4)]
    lake.sql(
        """
-- 必须先开启 Spark 的动态分区覆盖模式
SET spark.sql.sources.partitionOverwriteMode=dynamic;

-- 假设 source_table 中包含 pt1='a' 和 pt1='b' 的数据
-- 那么 T 表中只有 pt1='a' 和 pt1='b' 这两个分区会被覆盖
-- T 表中原有的 pt1='c', pt1='d' 等分区数据不受影响
INSERT OVERWRITE T
SELECT id, name, pt1, pt2 FROM source_table;
""",
        source_table=pa.table({"id": [9], "name": ["z"], "pt1": ["b"], "pt2": [4]}),
    )
    assert rows(table) == [(7, "x", "a", 3), (9, "z", "b", 4)]


def test_a_walk_through_the_files_of_paimon(tmp_path):
    where = f"file://{tmp_path}/paimon"
    lake = Lake(where)
    lake.sql(
        f"""
CREATE CATALOG paimon WITH (
'type' = 'paimon',
'warehouse' = '{where}'
);

USE CATALOG paimon;
"""
    )
    lake.sql(
        """
CREATE TABLE T (
id BIGINT,
a INT,
b STRING,
dt STRING COMMENT 'timestamp string in format yyyyMMdd',
PRIMARY KEY(id, dt) NOT ENFORCED
) PARTITIONED BY (dt) WITH (
'write-mode' = 'change-log',
'merge-engine' = 'deduplicate'
);
"""
    )
    lake.sql("INSERT INTO T VALUES (1, 10001, 'varchar00001', '20230501');")
    assert rows(lake.sql("SELECT * FROM T")) == [(1, 10001, "varchar00001", "20230501")]
    lake.sql(
        """
INSERT INTO T VALUES 
(2, 10002, 'varchar00002', '20230502'),
(3, 10003, 'varchar00003', '20230503'),
(4, 10004, 'varchar00004', '20230504'),
(5, 10005, 'varchar00005', '20230505'),
(6, 10006, 'varchar00006', '20230506'),
(7, 10007, 'varchar00007', '20230507'),
(8, 10008, 'varchar00008', '20230508'),
(9, 10009, 'varchar00009', '20230509'),
(10, 10010, 'varchar00010', '20230510');
"""
    )
    assert len(rows(lake.sql("SELECT * FROM T"))) == 10
    lake.sql("SET 'execution.runtime-mode' = 'batch';")
    lake.sql("DELETE FROM T WHERE dt >= '20230503';")
    assert rows(lake.sql("SELECT * FROM T")) == [
        (1, 10001, "varchar00001", "20230501"),
        (2, 10002, "varchar00002", "20230502"),
    ]
    lake.sql("CREATE TABLE employee (id INT)")
    lake.sql("INSERT INTO employee VALUES (1)")
    lake.sql("DELETE FROM T WHERE id > (SELECT count(*) FROM employee)")
    assert len(rows(lake.sql("SELECT * FROM paimon.default.T"))) == 1
    lake.sql("CALL sys.compact('default.T', compact_strategy => 'full')")
    lake.sql("ALTER TABLE T SET ('full-compaction.delta-commits' = '1');")
    table = lake.table("default.T")
    assert table.properties["full-compaction.delta-commits"] == "1"
    assert [snapshot.kind for snapshot in table.snapshots()] == ["append", "append", "delete", "delete", "compact"]


def test_merge_into_of_iceberg(lake):
    for clause in ("INSERT *", "INSERT (key, value) VALUES (key, value)"):
        lake.sql("DROP TABLE IF EXISTS target_table")
        lake.sql("CREATE TABLE target_table (id INT, name STRING, key INT, value STRING) USING iceberg")
        lake.sql("INSERT INTO target_table VALUES (1, 'a', 1, 'k'), (2, 'b', 2, 'l'), (3, 'c', 3, 'm')")
        source = {
            "id": [1, 2, 9, 8],
            "name": ["A", "B", "I", "no"],
            "key": [1, 2, 9, 8],
            "value": ["K", "L", "Z", "no"],
        }
        lake.sql(
            f"""
MERGE INTO target_table t
USING source_table s
ON s.id = t.id
WHEN MATCHED AND s.opType = 'delete' THEN DELETE
WHEN MATCHED AND s.opType = 'update' THEN UPDATE SET id = s.id, name = s.name
WHEN NOT MATCHED AND s.opType = 'insert' THEN {clause}
""",
            source_table=pa.table({**source, "opType": ["delete", "update", "insert", "other"]}),
        )
        new = (9, "I", 9, "Z") if clause == "INSERT *" else (None, None, 9, "Z")
        assert set(rows(lake.table("default.target_table"))) == {(2, "B", 2, "l"), (3, "c", 3, "m"), new}
