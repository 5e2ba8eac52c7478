"""A warehouse with small tables of both formats, each like the other."""

import pyarrow as pa
import pytest

from lakeformat import Lake

ORDERS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.decimal128(10, 2)), ("dt", pa.string())])


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "warehouse")


@pytest.fixture(params=["paimon", "iceberg"])
def orders(request, lake):
    """`shop.orders` in both formats, parted by `dt`, with five rows in three partitions."""
    table = lake.create_table("shop.orders", ORDERS, format=request.param, partition_by=["dt"])
    lake.sql(
        "INSERT INTO shop.orders VALUES (1, 'ann', 10.5, '05-01'), (2, 'bob', 20, '05-01'), (3, NULL, 30, '05-02'), "
        "(4, 'dan', NULL, '05-02'), (5, 'eve', 50, '05-03')"
    )
    return table


def rows(result):
    """Rows as tuples, in an order of their own."""
    found = result.to_arrow() if hasattr(result, "to_arrow") else result.scan().to_arrow()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)
