"""The last row of each key, with less memory than the rows need."""

import random

import pyarrow as pa
import pytest

from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.kernels import unique

SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string()), ("number", pa.int64())])


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1 << 12, 200])
@pytest.mark.parametrize("key", [["id"], ["text"], ["id", "text"]])
@pytest.mark.parametrize("count", [0, 1, 2000])
def test_the_last_row_of_each_key_is_kept(key, count, memory_bytes):
    chance = random.Random(f"{key} {count} {memory_bytes}")
    rows = [
        {"id": chance.choice([1, 2, chance.randrange(500)]), "text": chance.choice(["", "a", "aa", "é"]), "number": n}
        for n in range(count)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    batches = table.to_batches(max_chunksize=chance.randrange(1, 200))
    kept = unique.last_rows(iter(batches), key, fields_from_arrow(SCHEMA), memory_bytes)
    result = [row for batch in kept for row in batch.to_pylist()]
    last = {tuple(row[name] for name in key): row for row in rows}
    assert sorted(row["number"] for row in result) == sorted(row["number"] for row in last.values())
    if memory_bytes == 1 << 30:
        assert result == sorted(last.values(), key=lambda row: row["number"])
