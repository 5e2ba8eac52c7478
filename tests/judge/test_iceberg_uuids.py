"""Bounds of uuids: Java 1.10 compares them as two signed numbers, all else as bytes; so it leaves out rows, also its own. We do not."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from lakeformat import Field, Lake, Schema
from lakeformat.model.schema import Kind, scalar

from .conftest import Sql
from .test_iceberg_deletes import fresh, named

# Both halves of the first number, and of the second.
IDS = [
    uuid.UUID(int=(high << 120) | (low << 56) | 1)
    for high in (0x00, 0x20, 0x7F, 0x80, 0xC0, 0xFF)
    for low in (0x00, 0x80)
]


@pytest.mark.parametrize("by", [[], ["u"]], ids=["bounds of files", "bounds of partitions"])
def test_we_find_each_uuid_in_what_either_wrote(sql: Sql, lake: Lake, by: list) -> None:
    fields = (Field(0, "id", scalar(Kind.INT)), Field(1, "u", scalar(Kind.UUID)))
    name = fresh()
    t = lake.create_table(f"d.{name}", Schema(fields), format="iceberg", partition_by=by)
    t.append(
        pa.table({"id": pa.array(range(len(IDS)), pa.int32()), "u": pa.array([u.bytes for u in IDS], pa.binary(16))})
    )
    values = ", ".join(f"({100 + i}, '{u}')" for i, u in enumerate(IDS))
    sql(f"insert into {named(name)} select /*+ coalesce(1) */ * from values {values} as s(id, u)", "select 1")
    for i, u in enumerate(IDS):
        assert sorted(t.scan(where=f"u = X'{u.hex}'").to_arrow()["id"].to_pylist()) == [i, 100 + i]
