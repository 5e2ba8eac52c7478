"""Few rows with much text go through every verb of both formats, in memory of some batches: what is gathered is bounded by bytes.

The long form has more than 2 GiB of text, which no array with 32-bit offsets holds; the short form has small bounds instead."""

import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import Lake
from lakeformat.engines import written
from lakeformat.engines.files import parquet
from lakeformat.engines.kernels import gather

IS_LONG = int(os.environ.get("LAKEFORMAT_SEEDS", "100")) > 1000  # `make test-long`.
FIELDS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string()), ("parts", pa.list_(pa.string()))])
KINDS = {
    "iceberg parquet": ("iceberg", {}, ()),
    "iceberg merge-on-read": ("iceberg", dict.fromkeys((f"write.{v}.mode" for v in ("merge", "update", "delete")), "merge-on-read"), ()),
    "iceberg orc": ("iceberg", {"write.format.default": "orc"}, ()),
    "iceberg avro": ("iceberg", {"write.format.default": "avro"}, ()),
    "paimon rows": ("paimon", {"bucket": "-1"}, ()),
    "paimon columns": ("paimon", {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, ()),
    "paimon keyed": ("paimon", {"bucket": "1"}, ("id",)),
    "paimon orc": ("paimon", {"bucket": "1", "file.format": "orc"}, ("id",)),
    "paimon first-row": ("paimon", {"bucket": "1", "merge-engine": "first-row"}, ("id",)),
    "paimon partial-update": ("paimon", {"bucket": "1", "merge-engine": "partial-update"}, ("id",)),
    "paimon aggregation": ("paimon", {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}, ("id",)),
    "paimon ignore-delete": ("paimon", {"bucket": "1", "ignore-delete": "true"}, ("id",)),
    "paimon changelog": ("paimon", {"bucket": "1", "changelog-producer": "full-compaction"}, ("id",)),
}  # fmt: skip
SHAPES = {"many of 40 KB": (60_000, 40 << 10), "few of 200 MB": (12, 200 << 20)}
PEAK_BYTES = 1 << 30  # Beside the rows themselves.


def rows(count, width, letter, start=0, step=1):
    """A stream of batches, of about 64 MiB unless one row has more, in an order of its own."""
    ids = np.random.default_rng(count).permutation(np.arange(start, count, step))
    size = max(1, (64 << 20) // width)

    def batches():
        for first in range(0, len(ids), size):
            some = ids[first : first + size]
            text = pa.array([letter * width], pa.string()).take(pa.array([0] * len(some)))
            parts = pa.array([["x", letter]] * len(some), FIELDS.field("parts").type)
            yield pa.record_batch([pa.array(some), pa.array(some * 2), text, parts], schema=FIELDS)

    return pa.RecordBatchReader.from_batches(FIELDS, batches())


def letters(table):
    """For each id the first letter of its text, and what else can be checked of a row."""
    seen = {}
    for batch in table.scan().to_batches():
        first = pc.utf8_slice_codeunits(batch.column("s"), 0, 1).to_pylist()
        seen.update(zip(batch.column("id").to_pylist(), first, strict=True))
    return seen


def goes_through(folder, kind, count, width):
    format, properties, key = KINDS[kind]
    table = Lake(str(folder)).create_table("d.t", FIELDS, format=format, properties=properties, primary_key=list(key))
    write = table.upsert if key else table.append
    write(rows(count, width, "a"))
    expected = dict.fromkeys(range(count), "a")
    assert letters(table) == expected

    again = dict.fromkeys(range(0, count, 2), "b")
    if key:
        table.upsert(rows(count, width, "b", step=2))
        keeps_first = "first-row" in kind
        expected |= {} if keeps_first else again
    else:
        more = rows(count + 2, width, "b", step=2)
        merge = table.merge_into(more, "t.id = s.id and t.s <> s.s").when_matched("s.s > t.s").update_all()
        merge.when_not_matched().insert_all().merge()
        expected |= again | dict.fromkeys(range(0, count + 2, 2), "b")
    assert letters(table) == expected

    if key and "first-row" not in kind and "aggregation" not in kind and "partial" not in kind:
        merge = table.merge_into(rows(count, width, "c", step=4), "t.id = s.id").when_matched().update_all()
        merge.when_not_matched().insert_all().merge()
        expected |= dict.fromkeys(range(0, count, 4), "c")
        table.delete("id = 1") if "ignore" not in kind else None
        expected = {id: letter for id, letter in expected.items() if id != 1 or "ignore" in kind}
        assert letters(table) == expected
    if not key:
        if "columns" not in kind:
            table.update({"s": "concat('d', s)"}, where="id % 3 = 0")
            expected = {id: "d" if id % 3 == 0 else letter for id, letter in expected.items()}
            table.delete("id % 5 = 1")
            expected = {id: letter for id, letter in expected.items() if id % 5 != 1}
            assert letters(table) == expected
            table.overwrite(rows(3, width, "e"), where="id < 3")
            expected = {id: letter for id, letter in expected.items() if id >= 3} | dict.fromkeys(range(3), "e")
        table.compact(sort_by=["s", "id"]) if format == "iceberg" else table.compact(full=True)
    else:
        table.compact(full=True)
    assert letters(table) == expected
    assert table.scan(where="s >= 'b'", columns=["id"]).to_arrow().num_rows == sum(v >= "b" for v in expected.values())


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_gathered_by_bytes(kind, tmp_path, monkeypatch):
    taken = []
    take = gather.take

    def recorded(table, numbers):
        result = take(table, numbers)
        taken.append(result.nbytes)
        return result

    monkeypatch.setattr(gather, "take", recorded)
    for module, name, size in [
        *((gather, name, 1 << 14) for name in ("SMALL_BYTES", "WINDOW_BYTES", "JOINED_BYTES")),
        (parquet, "BATCH_BYTES", 1 << 12),
        (written, "CHUNK_BYTES", 1 << 14),
    ]:
        monkeypatch.setattr(module, name, size)
    goes_through(tmp_path, kind, 60, 1 << 10)
    assert max(taken, default=0) <= 5 << 14, "much more is gathered than a window"


@pytest.mark.parametrize("shape", SHAPES if IS_LONG else [])
@pytest.mark.parametrize("kind", KINDS)
def test_more_text_than_an_array_holds(kind, shape, tmp_path):
    count, width = SHAPES[shape]
    ran = subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path), kind, str(count), str(width)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    peak = int(ran.stdout)  # The rows that are merged, and those that they are merged with.
    assert peak <= 2 * count * width + PEAK_BYTES, f"{peak >> 20} MiB"


if __name__ == "__main__":
    goes_through(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
