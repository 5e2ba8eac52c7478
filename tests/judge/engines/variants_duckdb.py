"""Variants of DuckDB: `write FOLDER` makes a file for each way to shred, `read FILE` prints id and JSON of each row."""

import json
import sys

import duckdb

VALUES = """
CASE id % 8
  WHEN 0 THEN {'a': id, 'b': 'text ' || id, 'c': [1, id], 'd': {'x': id::DOUBLE, 'y': [{'z': id}]}}::VARIANT
  WHEN 1 THEN {'a': id, 'b': REPEAT('long', 30), 'f': 1.5::FLOAT, 't': TIME '01:02:03.4'}::VARIANT
  WHEN 2 THEN {'a': 'no number', 'zz': 1.5::DECIMAL(5, 2), 'Ä': DATE '2024-02-03', 'u': 12345678901234567890.12::DECIMAL(30, 2)}::VARIANT
  WHEN 3 THEN 'plain'::VARIANT
  WHEN 4 THEN NULL
  WHEN 5 THEN {'b': 'b', 'd': {'x': 2.5::DOUBLE, 'w': TRUE}, 'e': TIMESTAMP '2024-01-02 03:04:05.678901'}::VARIANT
  WHEN 6 THEN {'a': NULL, 'i8': 1::TINYINT, 'i16': -2::SMALLINT, 'z': TIMESTAMPTZ '2024-01-02 03:04:05+00'}::VARIANT
  ELSE [1, 2, id]::VARIANT
END"""
SHAPES = {
    "object": "STRUCT(a BIGINT, b VARCHAR, d STRUCT(x DOUBLE, y STRUCT(z BIGINT)[]), e TIMESTAMP)",
    "list": "INTEGER[]",
    "text": "VARCHAR",
    "other": "STRUCT(zz DECIMAL(5, 2), u DECIMAL(30, 2), f FLOAT, i8 TINYINT, i16 SMALLINT, z TIMESTAMPTZ, t TIME)",
}

if sys.argv[1] == "write":
    duckdb.sql(f"CREATE TABLE v AS SELECT id, {VALUES} AS v FROM RANGE(2000) t(id)")
    for name, shape in SHAPES.items():
        path = f"{sys.argv[2]}/{name}.parquet"
        duckdb.sql(f"COPY v TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, SHREDDING {{'v': '{shape}'}})")
else:
    rows = duckdb.sql(f"SELECT id, typeof(v), v::VARCHAR FROM '{sys.argv[2]}' ORDER BY id").fetchall()
    print(json.dumps(rows))
