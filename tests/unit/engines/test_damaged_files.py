"""Data and delete files that are cut off or have a flipped bit raise errors of the library, whichever path reads them."""

import random
from contextlib import suppress

import pyarrow as pa
import pytest

from lakeformat import CorruptFile, Lake, LakeError

FIELDS = pa.schema([("id", pa.int64()), ("dt", pa.string())])
ICEBERG = {"format": "iceberg", "partition_by": ["dt"]}
PAIMON = {"format": "paimon", "partition_by": ["dt"]}


def merging(file_format, version="2"):
    return {
        "write.format.default": file_format, "write.delete.format.default": file_format, "format-version": version,
        "write.delete.mode": "merge-on-read",
    }  # fmt: skip


TABLES = {
    "iceberg parquet": ICEBERG | {"properties": merging("parquet")},
    "iceberg orc": ICEBERG | {"properties": merging("orc")},
    "iceberg avro": ICEBERG | {"properties": merging("avro")},
    "iceberg vectors": ICEBERG | {"properties": merging("parquet", "3")},
    "paimon vectors": PAIMON | {"properties": {"deletion-vectors.enabled": "true", "bucket": "-1"}},
    "paimon keys": PAIMON | {"primary_key": ["id", "dt"], "properties": {"bucket": "1"}},
}
LEFT = 400 - len(range(0, 400, 7))  # Rows.
METADATA = {"metadata", "manifest", "snapshot", "schema"}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", TABLES)
def test_a_damaged_file_raises_an_error_of_the_library(tmp_path, kind):
    table = Lake(tmp_path).create_table("d.t", FIELDS, **TABLES[kind])
    for start in (0, 200):
        keys = list(range(start, start + 200))
        table.append(pa.table({"id": keys, "dt": [f"d{key % 2}" for key in keys]}))
    table.delete("id % 7 = 0")
    chance = random.Random(kind)
    files = [
        path for path in sorted((tmp_path / "d.db/t").rglob("*"))
        if path.is_file() and not METADATA & set(path.relative_to(tmp_path / "d.db/t").parts[:-1])
    ]  # fmt: skip
    assert len(files) > 4
    for path in files:
        whole = path.read_bytes()
        cuts = [whole[: len(whole) * tenth // 10] for tenth in chance.sample(range(10), 2)]
        # A decoder may die of a flipped bit of an ORC data file; a position delete file has no texts but paths.
        spots = [chance.randrange(4, len(whole)) for _ in range(4)] if "orc" not in kind else []
        flips = [whole[:spot] + bytes([whole[spot] ^ 0x40]) + whole[spot + 1 :] for spot in spots]
        for damaged in cuts + flips:
            path.write_bytes(damaged)
            with suppress(LakeError):
                Lake(tmp_path).table("d.t").scan().to_arrow()
        for damaged in cuts:
            path.write_bytes(damaged)
            try:
                rows = Lake(tmp_path).table("d.t").scan().to_arrow()
            except CorruptFile:
                continue
            assert rows.num_rows == LEFT, path  # What was cut is not needed: a Puffin file's footer.
        path.write_bytes(whole)
    assert Lake(tmp_path).table("d.t").scan().count() == LEFT
