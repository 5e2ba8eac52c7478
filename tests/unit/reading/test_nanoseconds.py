"""Scans of timestamps finer than microseconds, some of them beyond what 64 bits of nanoseconds reach."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Field, InvalidInput, Lake, Schema, UnsupportedFeature
from lakeformat.model.type_text import parse_type

FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
NANOSECONDS = pa.timestamp("ns")
BEFORE, NEAR = -1, 1_700_000_000_123_456_789  # Nanoseconds since 1970.
MICROS = {
    1: dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # Cut towards the past.
    2: dt.datetime(2023, 11, 14, 22, 13, 20, 123456),
    3: FIRST,
    4: LAST,
    5: None,
}


def made(lake, at="timestamp(9)", name="d.t", **how):
    fields = tuple(Field(-1, name, parse_type(type)) for name, type in (("id", "bigint"), ("at", at), ("v", "bigint")))
    return lake.create_table(name, Schema(fields, primary_key=how.pop("key", ())), **how)


def rows(ids, moments, type=NANOSECONDS):
    given = pa.schema([("id", pa.int64()), ("at", type), ("v", pa.int64())])
    return pa.table([ids, moments, ids], schema=given)


def plant(root, far):
    """Put INT96 beyond nanoseconds, as Java writes them, into files of the table that have rows of these ids."""
    for path in root.rglob("*.parquet"):
        held = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
        if not far.keys() & set(held["id"].to_pylist()):
            continue
        moments = [far.get(id, at) for id, at in zip(held["id"].to_pylist(), held["at"].to_pylist(), strict=True)]
        for index, field in enumerate(held.schema):
            if field.name.removeprefix("_KEY_") == "at":
                held = held.set_column(index, field, pa.array(moments, field.type))
        pq.write_table(held, path, use_deprecated_int96_timestamps=True)


@pytest.fixture(params=["append", "merged"])
def table(tmp_path, request):
    """Ids 1 to 5, `MICROS` to the microsecond; with a primary key, two rows of each key."""
    keyed = request.param == "merged"
    t = made(Lake(tmp_path), **({"key": ("id",), "properties": {"bucket": "1"}} if keyed else {}))
    for _ in range(2 if keyed else 1):
        t.append(rows([1, 2], [BEFORE, NEAR]))
        t.append(rows([3, 4, 5], [0, 0, None]))
    plant(tmp_path, {3: FIRST, 4: LAST})
    return t


def asked(scan):
    """The ids a scan gives, all ways to read it alike."""
    found = scan.to_arrow()
    assert found.schema == scan.schema
    assert scan.count() == found.num_rows
    assert pa.table(scan).equals(found)
    return sorted(found["id"].to_pylist())


def test_far_timestamps_are_an_error_that_names_the_ways_out(table):
    with pytest.raises(UnsupportedFeature, match=r"column at .* scan\(nanoseconds='microseconds'\)"):
        table.scan().to_arrow()
    assert asked(table.scan(columns=["id"])) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidInput, match=r"nanoseconds='us'.*'microseconds'"):
        table.scan(nanoseconds="us")


def test_far_timestamps_are_read_in_microseconds_and_so_do_conditions_see_them(table):
    found = table.scan(nanoseconds="microseconds").to_arrow()
    assert found.schema.field("at").type == pa.timestamp("us")
    assert dict(zip(found["id"].to_pylist(), found["at"].to_pylist(), strict=True)) == MICROS

    def ids(where, **how):
        scan = table.scan(where=where, nanoseconds="microseconds", **how)
        assert asked(table.scan(nanoseconds="microseconds", **how).filter(where)) == asked(scan)
        return asked(scan)

    assert ids("at < timestamp '0002-01-01 00:00:00'") == [3]
    assert ids("at = timestamp '9999-12-31 23:59:59.999999'", columns=["id"]) == [4]
    assert ids("at = timestamp '2023-11-14 22:13:20.123456'") == [2]  # Its bounds are some nanoseconds later.
    assert ids("at = timestamp '1969-12-31 23:59:59.999999' and v < 5", columns=["v", "id"]) == [1]
    assert ids("at is null") == [5]
    assert table.scan(nanoseconds="microseconds").select(["at"]).to_arrow().schema.types == [pa.timestamp("us")]


def test_far_timestamps_are_null_and_near_ones_keep_their_nanoseconds(table):
    found = table.scan(nanoseconds="null").to_arrow()
    values = dict(zip(found["id"].to_pylist(), found["at"].cast(pa.int64()).to_pylist(), strict=True))
    assert values == {1: BEFORE, 2: NEAR, 3: None, 4: None, 5: None}
    assert asked(table.scan(where="at is null", nanoseconds="null")) == [3, 4, 5]  # The files know of one null.
    assert asked(table.scan(where="at is not null and v > 1", columns=["id"], nanoseconds="null")) == [2]
    assert asked(table.scan(where="at < timestamp '2000-01-01 00:00:00'", nanoseconds="null")) == [1]


def test_far_timestamps_of_a_column_that_was_widened_are_read_alike(tmp_path):
    t = made(Lake(tmp_path), "timestamp(6)")
    t.append(rows([1, 2], [FIRST, MICROS[2]], pa.timestamp("us")))
    (first,) = tmp_path.rglob("schema-0")
    widened = json.loads(first.read_text().replace("TIMESTAMP(6)", "TIMESTAMP(9)"))
    (first.parent / "schema-1").write_text(json.dumps({**widened, "id": 1}))  # As Java alters it.
    with pytest.raises(InvalidInput, match=r"column at.*scan\(nanoseconds="):
        t.scan().to_arrow()
    assert t.scan(nanoseconds="microseconds").to_arrow()["at"].to_pylist() == [FIRST, MICROS[2]]
    found = t.scan(nanoseconds="null", where="at is null or id = 2").to_arrow()
    assert found["at"].cast(pa.int64()).to_pylist() == [None, NEAR // 1000 * 1000]


def test_far_timestamps_inside_lists_are_read_in_microseconds_or_stay_an_error(tmp_path):
    t = made(Lake(tmp_path), "array<timestamp(9)>")
    t.append(rows([1], [[0]], pa.list_(pa.timestamp("ns"))))
    plant(tmp_path, {1: [FIRST, None]})
    assert t.scan(nanoseconds="microseconds").to_arrow()["at"].to_pylist() == [[FIRST, None]]
    for mode in ("error", "null"):
        with pytest.raises(UnsupportedFeature, match="column at"):
            t.scan(nanoseconds=mode).to_arrow()


def test_rows_of_one_microsecond_are_merged_by_their_nanoseconds(tmp_path):
    t = made(Lake(tmp_path), key=("at",), properties={"bucket": "1"})
    t.append(rows([1, 2], [NEAR, NEAR + 1]))
    t.append(rows([3], [NEAR + 1]))
    found = t.scan(nanoseconds="microseconds").to_arrow()
    assert found["id"].to_pylist() == [1, 3]
    assert found["at"].to_pylist() == [MICROS[2], MICROS[2]]
    plant(tmp_path, {1: FIRST})
    with pytest.raises(UnsupportedFeature, match=r"column .*at holds timestamps outside 1677 to 2262"):
        t.scan(nanoseconds="null").to_arrow()


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_partitions_of_nanoseconds_are_read_in_microseconds(tmp_path, format):
    properties = {"format-version": "3"} if format == "iceberg" else {}
    t = made(Lake(tmp_path), format=format, partition_by=["at"], properties=properties)
    t.append(rows([1, 2, 5], [BEFORE, NEAR, None]))
    for where, expected in [
        (None, [1, 2, 5]), ("at = timestamp '2023-11-14 22:13:20.123456'", [2]), ("at is null", [5]),
    ]:  # fmt: skip
        found = t.scan(nanoseconds="microseconds", where=where).to_arrow().sort_by("id")
        assert found["id"].to_pylist() == expected
        assert found["at"].to_pylist() == [MICROS[id] for id in expected]
    assert t.scan(nanoseconds="null").to_arrow().sort_by("id").equals(t.scan().to_arrow().sort_by("id"))


def test_an_equality_delete_by_nanoseconds_holds_in_microseconds(tmp_path):
    t = made(Lake(tmp_path), format="iceberg", properties={"format-version": "3"})
    t.append(rows([1, 2], [NEAR, NEAR + 1]))
    with t.delta_writer("w", key=["at"]) as writer:
        writer.write(pa.table({"at": pa.array([NEAR + 1], NANOSECONDS), "rowkind": ["-D"]}))
        writer.checkpoint(1)
    assert t.scan(nanoseconds="microseconds", columns=["at", "id"]).to_arrow().to_pylist() == [
        {"at": MICROS[2], "id": 1}
    ]
