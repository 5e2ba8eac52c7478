"""Rows of a table that is partitioned by day."""

import pyarrow as pa

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])


def rows(*ids, dt="x"):
    return pa.table({"id": list(ids), "v": ["v"] * len(ids), "dt": [dt] * len(ids)})


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())
