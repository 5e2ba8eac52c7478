"""The one reader and the one writer: every type through every format, evolution by id, and what damage does."""

import datetime as dt
import io
import json
import os
import random
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from lakeformat.codec import murmur
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import worker
from lakeformat.engines.files import formats, parquet
from lakeformat.errors import (
    CorruptFile,
    InvalidInput,
    LakeError,
    NotFound,
    OutsideScope,
    StoreError,
    UnsupportedFeature,
)
from lakeformat.model.partition import SortField, identity
from lakeformat.model.predicate import and_, call, cast, column, eq, ge, gt, is_in, is_not_null, is_null, literal, lt
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, scalar
from lakeformat.model.work import (
    FILE,
    POSITION,
    BucketRule,
    Content,
    DeleteFile,
    Encoding,
    FilesTask,
    Naming,
    RewriteTask,
    StatsMode,
    WriteTask,
)
from lakeformat.storage.files import open_store
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.streams import NewFile

FORMATS = ("parquet", "orc", "avro")


def field(id, name, kind, *parameters, nullable=True, default=None):
    type = kind if not isinstance(kind, Kind) else scalar(kind, *parameters)
    return Field(id, name, type, nullable, None, default)


def part(type, name="element", nullable=True):
    return Field(-1, name, type, nullable)


STRING, INT = scalar(Kind.STRING), scalar(Kind.INT)
FIELDS = (
    field(0, "id", Kind.INT, nullable=False),
    field(1, "tiny", Kind.TINYINT),
    field(2, "small", Kind.SMALLINT),
    field(3, "big", Kind.BIGINT),
    field(4, "flag", Kind.BOOLEAN),
    field(5, "single", Kind.FLOAT),
    field(6, "double", Kind.DOUBLE),
    field(7, "price", Kind.DECIMAL, 9, 2),
    field(8, "price18", Kind.DECIMAL, 18, 3),
    field(9, "price38", Kind.DECIMAL, 38, 10),
    field(10, "code", Kind.CHAR, 3),
    field(11, "short", Kind.VARCHAR, 20),
    field(12, "text", Kind.STRING),
    field(13, "bytes", Kind.BYTES),
    field(14, "day", Kind.DATE),
    field(15, "time", Kind.TIME, 3),
    field(16, "millis", Kind.TIMESTAMP, 3),
    field(17, "micros", Kind.TIMESTAMP, 6),
    field(18, "instant", Kind.TIMESTAMP_TZ, 6),
    field(19, "tags", ListOf(part(STRING))),
    field(20, "points", ListOf(part(Row((field(21, "x", Kind.INT), field(22, "y", Kind.DOUBLE)))))),
    field(23, "by_name", MapOf(part(STRING, "key", False), part(INT, "value"))),
    field(24, "by_number", MapOf(part(INT, "key", False), part(Row((field(25, "note", Kind.STRING),)), "value"))),
    field(26, "counts", MultisetOf(part(STRING))),
    field(27, "address", Row((field(28, "city", Kind.STRING), field(29, "geo", Row((field(30, "lat", Kind.FLOAT),)))))),
)
UTC = dt.UTC


def sample(count, seed=7, format="parquet"):
    """`count` rows of FIELDS, a third of the values null; for ORC no fractions of a second before 1970."""
    rng = random.Random(seed)

    def some(make):
        return None if rng.random() < 0.3 else make()

    def word():
        return "".join(rng.choice("abcäß€🙂 ") for _ in range(rng.randrange(8)))

    def moment(digits):
        micros = rng.randrange(-(10**15), 10**15)
        digits = 0 if format == "orc" and micros < 0 else digits
        if micros < 0:  # ORC cannot hold a fraction of a second there.
            micros -= micros % 10**6
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros // 10 ** (6 - digits) * 10 ** (6 - digits))

    rows = []
    for i in range(count):
        rows.append(
            {
                "id": i,
                "tiny": some(lambda: rng.randrange(-128, 128)),
                "small": some(lambda: rng.randrange(-(2**15), 2**15)),
                "big": some(lambda: rng.randrange(-(2**63), 2**63)),
                "flag": some(lambda: rng.random() < 0.5),
                "single": some(lambda: float(np.float32(rng.uniform(-9, 9)))),
                "double": some(lambda: rng.uniform(-9e9, 9e9)),
                "price": some(lambda: Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
                "price18": some(lambda: Decimal(rng.randrange(-(10**18) + 1, 10**18)).scaleb(-3)),
                "price38": some(lambda: Decimal(rng.randrange(-(10**28), 10**28)).scaleb(-10)),
                "code": some(lambda: rng.choice(["a", "bc", "def"])),
                "short": some(word),
                "text": some(word),
                "bytes": some(lambda: rng.randbytes(rng.randrange(5))),
                "day": some(lambda: dt.date(1970, 1, 1) + dt.timedelta(days=rng.randrange(-300000, 900000))),
                "time": some(lambda: dt.time(rng.randrange(24), rng.randrange(60), 1, rng.randrange(1000) * 1000)),
                "millis": some(lambda: moment(3)),
                "micros": some(lambda: moment(6)),
                "instant": some(lambda: moment(6).replace(tzinfo=UTC)),
                "tags": some(lambda: [some(word) for _ in range(rng.randrange(4))]),
                "points": some(
                    lambda: [some(lambda: {"x": some(lambda: 1), "y": 0.5}) for _ in range(rng.randrange(3))]
                ),
                "by_name": some(lambda: [(f"k{n}", some(lambda: 5)) for n in range(rng.randrange(3))]),
                "by_number": some(lambda: [(n, some(lambda: {"note": some(word)})) for n in range(rng.randrange(3))]),
                "counts": some(lambda: [(f"c{n}", n) for n in range(rng.randrange(3))]),
                "address": some(lambda: {"city": some(word), "geo": some(lambda: {"lat": some(lambda: 0.5)})}),
            }
        )
    return pa.Table.from_pylist(rows, schema=arrow_schema(FIELDS))


def folder(values, bucket):
    name = "/".join(str(value) for value in values)
    return f"t/{name or 'all'}" + ("" if bucket is None else f"/bucket-{bucket}")


def write(store, table, fields=FIELDS, format="parquet", compression="zstd", options=(), **others):
    encoding = Encoding(format, compression, options=dict(options))
    task = WriteTask(fields=fields, directory=folder, encoding=encoding, **others)
    return worker.write(store, table.to_batches(), task)


def reading(files, fields=FIELDS, file_fields=FIELDS, **options):
    return FilesTask(
        paths=tuple(f.path for f in files),
        row_counts=tuple(f.row_count for f in files),
        sizes_bytes=tuple(f.size_bytes for f in files),
        file_format=files[0].file_format,
        fields=fields,
        file_fields=file_fields,
        **options,
    )


def read(store, task):
    """The rows of a task, which are the same where its parts are read in another order."""
    schema = arrow_schema(task.fields)
    table = pa.Table.from_batches(worker.read(store, task), schema)
    parts = [list(part()) for part in reversed(list(worker.parts(store, task)))]
    again = pa.Table.from_batches(chain.from_iterable(reversed(parts)), schema)
    assert again.equals(table) or repr(again.to_pylist()) == repr(table.to_pylist())
    return table


def raw(store, path, table, writer):
    """A file as another writer makes it, with nothing of ours."""
    with store.create_stream(path) as sink:
        writer(table, sink)
    return FilesTask((path,), (table.num_rows,), (0,), path.rpartition(".")[2], (), ())


def attempt(work):
    """What `work` returns, or the LakeError that it raises."""
    try:
        return work()
    except LakeError as error:
        return error


@pytest.fixture
def store():
    return MemoryFiles()


@pytest.fixture(autouse=True)
def row_groups_are_parts(monkeypatch):
    monkeypatch.setattr(parquet, "_RUN_BYTES", 0)


# --- Round trips ---


@pytest.mark.parametrize("format", FORMATS)
def test_slices_come_back_as_they_were_written(store, format):
    """Arrow's ORC writer takes other values for those of rows, where these are part of longer columns."""
    table = sample(60, seed=3, format=format)
    for start, count in ((1, 40), (17, 9), (50, 10), (33, 1)):
        piece = table.slice(start, count)
        assert read(store, reading(write(store, piece, format=format))).to_pylist() == piece.to_pylist()
    by_day = write(store, table, format=format, partition_by=identity("flag").fields)
    found = [read(store, reading([file])).to_pylist() for file in by_day]
    assert [{row["flag"] for row in rows} for rows in found] == [{file.partition[0]} for file in by_day]
    assert sorted((row for rows in found for row in rows), key=lambda row: row["id"]) == table.to_pylist()


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_comes_back_as_it_was_written(store, format):
    table = sample(500, format=format)
    files = write(store, table, format=format)
    found = read(store, reading(files))
    assert found.schema == table.schema
    assert found.to_pylist() == table.to_pylist()
    assert [f.row_count for f in files] == [500]
    assert all(f.size_bytes == len(store.read(f.path)) for f in files)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_that_are_all_null_and_tables_without_rows(store, format):
    fields = FIELDS[1:]
    table = pa.Table.from_pylist([{}] * 3, schema=arrow_schema(fields))
    files = write(store, table, fields, format)
    assert read(store, reading(files, fields, fields)).to_pylist() == table.to_pylist()
    assert write(store, table.slice(0, 0), fields, format) == []


def test_parquet_columns_are_found_by_the_ids_in_the_file(store):
    table = sample(50)
    files = write(store, table)
    renamed = tuple(replace(each, name=f"new_{each.name}") for each in reversed(FIELDS))
    found = read(store, reading(files, renamed, file_fields=None))
    assert found.column_names == [each.name for each in renamed]
    assert [column.to_pylist() for column in reversed(found.columns)] == [c.to_pylist() for c in table.columns]


def test_parquet_bytes_are_what_java_paimon_writes(store):
    (file,) = write(store, sample(50))
    schema = pq.ParquetFile(pa.BufferReader(store.read(file.path))).schema
    kinds = {
        schema.column(i).path: (schema.column(i).physical_type, str(schema.column(i).logical_type))
        for i in range(len(schema))
    }
    assert kinds["tiny"] == ("INT32", "Int(bitWidth=8, isSigned=true)")
    assert kinds["price"][0] == "INT32"
    assert kinds["price18"][0] == "INT64"
    assert kinds["price38"][0] == "FIXED_LEN_BYTE_ARRAY"
    assert (
        kinds["time"] == ("INT32", "Time(isAdjustedToUTC=true, timeUnit=milliseconds)") or kinds["time"][0] == "INT32"
    )
    assert "isAdjustedToUTC=false, timeUnit=milliseconds" in kinds["millis"][1]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in kinds["micros"][1]
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in kinds["instant"][1]
    assert "points.list.element.x" in kinds
    assert {"by_name.key_value.key", "by_name.key_value.value"} <= kinds.keys()
    arrow = pq.ParquetFile(pa.BufferReader(store.read(file.path))).schema_arrow
    assert arrow.field("id").metadata == {b"PARQUET:field_id": b"0"}
    assert not arrow.field("id").nullable
    assert arrow.field("address").type.field("geo").type.field("lat").metadata == {b"PARQUET:field_id": b"30"}
    assert b"ARROW:schema" not in (arrow.metadata or {})


@pytest.mark.parametrize("digits", [7, 9])
def test_nanoseconds_are_int96_in_parquet_and_come_back_beside_other_timestamps(store, digits):
    fields = (
        field(0, "nanos", Kind.TIMESTAMP, digits),
        field(1, "millis", Kind.TIMESTAMP, 3),
        field(2, "zoned", Kind.TIMESTAMP_TZ, digits),
    )
    table = pa.table(
        [[1_700_000_000_123_456_789, -1, None], [5, -5, None], [-7, 7, None]],
        schema=None,
        names=["nanos", "millis", "zoned"],
    ).cast(arrow_schema(fields))
    files = write(store, table, fields)
    schema = pq.ParquetFile(pa.BufferReader(store.read(files[0].path))).schema
    assert {schema.column(i).physical_type for i in range(3)} == {"INT96"}
    assert read(store, reading(files, fields, fields)).equals(table)
    assert files[0].stats[1].minimum == -5


def test_int96_far_from_1970_is_read_in_microseconds(store):
    table = pa.table({"at": pa.array([dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)], pa.timestamp("us"))})
    fields = (field(0, "at", Kind.TIMESTAMP, 6),)
    task = raw(store, "far.parquet", table, lambda t, s: pq.write_table(t, s, use_deprecated_int96_timestamps=True))
    found = read(store, replace(task, fields=fields, file_fields=fields))
    assert found.column("at").to_pylist() == table.column("at").to_pylist()


def test_int96_too_far_for_nanoseconds_is_refused_and_never_wrapped(store):
    far = pa.array([dt.datetime(2020, 1, 1), dt.datetime(9999, 12, 31)], pa.timestamp("us"))
    for table in (
        pa.table({"at": far}),
        pa.table({"at": pa.array([[at] for at in far.to_pylist()], pa.list_(far.type))}),
    ):
        task = raw(store, "far.parquet", table, lambda t, s: pq.write_table(t, s, use_deprecated_int96_timestamps=True))
        fine = scalar(Kind.TIMESTAMP, 9)
        fields = (Field(0, "at", ListOf(part(fine)) if pa.types.is_list(table.column(0).type) else fine),)
        with pytest.raises(UnsupportedFeature, match=r"far\.parquet: column at holds timestamps outside 1677 to 2262"):
            read(store, replace(task, fields=fields, file_fields=fields))


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_orc_timestamps_too_far_for_arrow_are_refused_and_never_wrapped(store, codec):
    near, far = dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31)
    fields = (field(0, "id", Kind.INT), field(1, "at", Kind.TIMESTAMP, 6))
    for moments, fits in [([near, None], True), ([near, far], False)]:
        table = pa.table({"id": pa.array([1, 2], pa.int32()), "at": pa.array(moments, pa.timestamp("us"))})
        task = raw(store, f"{fits}.orc", table, lambda t, s: po.write_table(t, s, compression=codec))
        assert read(store, replace(task, fields=fields[:1], file_fields=fields)).num_rows == 2
        task = replace(task, fields=fields, file_fields=fields)
        if fits:
            assert read(store, task).column("at").to_pylist() == moments
        else:
            with pytest.raises(UnsupportedFeature, match=r"orc: holds timestamps outside 1677 to 2262"):
                read(store, task)


def test_files_of_older_writers_are_read_as_their_table_types_them(store):
    """Parquet with instants for all timestamps, plain ints for small ones, bytes for texts, and other names in lists."""
    table = pa.table(
        {
            "tiny": pa.array([1, None], pa.int32()),
            "at": pa.array([1_000_001, None], pa.timestamp("us", "UTC")),
            "text": pa.array([b"\xc3\xa4", None], pa.binary()),
            "time": pa.array([1, None], pa.int32()),
            "tags": pa.array([["a"], None], pa.list_(pa.field("array_element", pa.string()))),
        }
    )
    fields = (
        field(0, "tiny", Kind.TINYINT), field(1, "at", Kind.TIMESTAMP, 6), field(2, "text", Kind.STRING),
        field(3, "time", Kind.TIME, 3), field(4, "tags", ListOf(part(STRING))),
    )  # fmt: skip
    task = raw(store, "old.parquet", table, lambda t, s: pq.write_table(t, s, use_compliant_nested_type=False))
    assert read(store, replace(task, fields=fields, file_fields=fields)).to_pylist() == [
        {
            "tiny": 1,
            "at": dt.datetime(1970, 1, 1, 0, 0, 1, 1),
            "text": "ä",
            "time": dt.time(0, 0, 0, 1000),
            "tags": ["a"],
        },
        dict.fromkeys(("tiny", "at", "text", "time", "tags")),
    ]


def test_orc_char_loses_the_blanks_that_other_writers_pad_it_with(store):
    table = pa.table({"code": ["ab ", None], "in_list": [["x  "], None], "text": ["ab ", None]})
    fields = (
        field(0, "code", Kind.CHAR, 3),
        field(1, "in_list", ListOf(part(scalar(Kind.CHAR, 3)))),
        field(2, "text", Kind.STRING),
    )
    task = raw(store, "padded.orc", table, po.write_table)
    assert read(store, replace(task, fields=fields, file_fields=fields)).to_pylist() == [
        {"code": "ab", "in_list": ["x"], "text": "ab "},
        {"code": None, "in_list": None, "text": None},
    ]


AT = scalar(Kind.TIMESTAMP, 6)
ORC_GOLDEN = Path(__file__).parents[2] / "golden" / "orc"


@pytest.mark.parametrize("zone", ["europe_berlin", "america_new_york"])
def test_orc_timestamps_around_1970_of_a_writer_outside_utc_come_back_as_java_reads_them(store, zone):
    fields = (
        field(0, "id", Kind.INT), field(1, "at", AT), field(2, "plain", AT), field(3, "many", ListOf(part(AT))),
        field(4, "deep", Row((field(5, "at", AT), field(6, "by_key", MapOf(part(STRING, "key", False), part(AT, "value")))))),
    )  # fmt: skip
    texts = json.loads((ORC_GOLDEN / f"{zone}.json").read_text())["moments"]
    moments = pa.array(texts).cast(pa.timestamp("us")).to_pylist()
    ids = pa.table({"id": pa.array(range(len(moments)), pa.int32())})
    task = raw(store, f"{zone}.orc", ids, lambda _, s: s.write((ORC_GOLDEN / f"{zone}.orc").read_bytes()))
    rows = read(store, replace(task, fields=fields, file_fields=fields)).to_pylist()
    assert rows == [
        {"id": id, "at": at, "plain": at, "many": [at], "deep": {"at": at, "by_key": [("k", at)]}}
        for id, at in enumerate(moments)
    ]


def zoned(*zones):
    """Writes the 1024 rows as one ORC stripe per zone, and puts these, of three letters, in the place of Arrow's GMT."""

    def write(table, sink):
        plain = pa.BufferOutputStream()
        with po.ORCWriter(plain, compression="uncompressed", stripe_size=1) as writer:
            for _ in zones:
                writer.write(table)
        parts = plain.getvalue().to_pybytes().split(b"\x1a\x03GMT")
        assert len(parts) == len(zones) + 1
        for before, zone in zip(parts, zones, strict=False):
            sink.write(before + b"\x1a\x03" + zone.encode())
        sink.write(parts[-1])

    return write


@pytest.mark.parametrize("kind", [Kind.TIMESTAMP, Kind.TIMESTAMP_TZ])
def test_each_orc_stripe_has_its_own_time_zone_and_instants_have_none(store, kind):
    """Seconds of a Java writer at clock times 00:30:00.5 and 19:30:00.5 where these are before and after 1970 in UTC."""
    zones, half_past = ("CET", "GMT", "EST", "UTC"), dt.timedelta(minutes=30, milliseconds=500)
    zone = dt.UTC if kind is Kind.TIMESTAMP_TZ else None
    new_year, evening = dt.datetime(1970, 1, 1, tzinfo=zone), dt.datetime(1969, 12, 31, 19, tzinfo=zone)
    fields, second = (field(0, "at", kind, 6),), dt.timedelta(seconds=1)
    stored = pa.array([new_year + half_past, evening + half_past] * 512, arrow_schema(fields).field(0).type)
    task = replace(
        raw(store, "zones.orc", pa.table({"at": stored}), zoned(*zones)), row_counts=(len(stored) * len(zones),)
    )
    found = read(store, replace(task, fields=fields, file_fields=fields)).column("at").to_pylist()
    if kind is Kind.TIMESTAMP_TZ:
        assert found == stored.to_pylist() * 4
        return
    late, early = new_year + half_past, evening + half_past
    berlin, new_york, utc = [late - second, early] * 512, [late, early + second] * 512, [late, early] * 512
    assert found == berlin + utc + new_york + utc


def test_what_paimons_orc_and_avro_lack_is_refused_by_name(store):
    limited = (field(0, "b", Kind.VARBINARY, 3),)
    with pytest.raises(UnsupportedFeature, match=r"column b: Paimon's ORC has no varbinary\(3\)"):
        write(store, pa.table({"b": [b"x"]}), limited, "orc")
    fine = (field(0, "at", Kind.TIMESTAMP, 9),)
    with pytest.raises(UnsupportedFeature, match=r"no timestamp\(9\)"):
        write(store, pa.table({"at": pa.array([1], pa.timestamp("ns"))}), fine, "avro")
    far = (field(0, "at", Kind.TIMESTAMP, 6),)
    with pytest.raises(InvalidInput, match="column at: ORC timestamps outside 1677 to 2262"):
        write(store, pa.table({"at": [dt.datetime(3000, 1, 1)]}), far, "orc")
    with pytest.raises(UnsupportedFeature, match="file format 'csv'"):
        write(store, pa.table({"at": [dt.datetime(3000, 1, 1)]}), far, "csv")
    assert store.list("") == []


# --- Evolution ---


@pytest.mark.parametrize("format", FORMATS)
def test_a_task_may_ask_where_its_rows_lie(store, format):
    fields = (field(0, "id", Kind.INT),)
    write = WriteTask(
        fields, lambda partition, bucket: "", encoding=Encoding(format, options={"parquet.block.size": "4096"})
    )
    table = pa.table({"id": pa.array(range(5000), pa.int32())})
    files = worker.write(store, table.to_batches(1000), write, chunk_bytes=4000)
    asked = (*fields, FILE, POSITION)
    total = 0
    for file in files:
        task = FilesTask((file.path,), (file.row_count,), (file.size_bytes,), format, asked, fields)
        rows = pa.Table.from_batches(worker.read(store, replace(task, predicate=gt(column("id"), literal(4200)))))
        whole = pa.Table.from_batches(worker.read(store, replace(task, fields=fields)))
        assert set(rows["_lakeformat_file"].to_pylist()) <= {file.path}
        assert whole["id"].take(rows["_lakeformat_pos"].combine_chunks()).equals(rows["id"])
        total += rows.num_rows
    assert total == 799


@pytest.mark.parametrize("format", FORMATS)
def test_columns_follow_their_ids_through_rename_reorder_drop_and_add(store, format):
    table = sample(40, format=format)
    files = write(store, table, format=format)
    now = (
        field(12, "tiny", Kind.STRING),  # Takes the name of another column, which is gone.
        field(99, "text", Kind.STRING),  # New, under an old name.
        field(0, "key", Kind.INT),
    )
    assert read(store, reading(files, now)).to_pylist() == [
        {"tiny": row["text"], "text": None, "key": row["id"]} for row in table.to_pylist()
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_parts_of_rows_lists_and_maps_follow_their_ids_too(store, format):
    table = sample(200, format=format)
    files = write(store, table, format=format)
    now = (
        field(20, "points", ListOf(part(Row((field(50, "z", Kind.INT), field(22, "why", Kind.DOUBLE)))))),
        field(24, "by_number", MapOf(part(scalar(Kind.BIGINT), "key", False), part(Row((field(25, "remark", Kind.STRING), field(51, "n", Kind.INT))), "value"))),
        field(27, "address", Row((field(29, "where", Row((field(52, "lon", Kind.FLOAT), field(30, "lat", Kind.DOUBLE)))),))),
    )  # fmt: skip

    def moved(row):
        points, numbers, address = row["points"], row["by_number"], row["address"]
        geo = address and address["geo"]
        return {
            "points": points and [p and {"z": None, "why": p["y"]} for p in points],
            "by_number": numbers and [(k, v and {"remark": v["note"], "n": None}) for k, v in numbers],
            "address": address and {"where": geo and {"lon": None, "lat": geo["lat"]}},
        }

    assert read(store, reading(files, now)).to_pylist() == [moved(row) for row in table.to_pylist()]


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_of_which_only_new_parts_are_asked_for_is_null_where_it_was(store, format):
    table = sample(50, format=format)
    files = write(store, table, format=format)
    now = (field(27, "address", Row((field(90, "zip", Kind.STRING),))),)
    assert read(store, reading(files, now)).column("address").to_pylist() == [
        row["address"] and {"zip": None} for row in table.to_pylist()
    ]


WIDENINGS = [
    (Kind.TINYINT, (), Kind.SMALLINT, (), [-128, 127], [-128, 127]),
    (Kind.INT, (), Kind.BIGINT, (), [-(2**31), 5], [-(2**31), 5]),
    (Kind.INT, (), Kind.DOUBLE, (), [3, -4], [3.0, -4.0]),
    (Kind.INT, (), Kind.DECIMAL, (12, 2), [3, -4], [Decimal("3.00"), Decimal("-4.00")]),
    (Kind.FLOAT, (), Kind.DOUBLE, (), [0.5, -1.25], [0.5, -1.25]),
    (Kind.DECIMAL, (9, 2), Kind.DECIMAL, (20, 4), [Decimal("1.25")], [Decimal("1.2500")]),
    (Kind.DECIMAL, (9, 2), Kind.DECIMAL, (8, 1), [Decimal("1.25"), Decimal("-1.25")], [Decimal("1.3"), Decimal("-1.3")]),
    (Kind.DECIMAL, (9, 2), Kind.INT, (), [Decimal("1.99"), Decimal("-1.99")], [1, -1]),
    (Kind.DOUBLE, (), Kind.INT, (), [1.99, -1.99], [1, -1]),
    (Kind.BIGINT, (), Kind.INT, (), [7], [7]),
    (Kind.DATE, (), Kind.TIMESTAMP, (3,), [dt.date(1969, 12, 31)], [dt.datetime(1969, 12, 31)]),
    (Kind.TIMESTAMP, (6,), Kind.DATE, (), [dt.datetime(1969, 12, 31, 23, 59, 59, 1)], [dt.date(1969, 12, 31)]),
    (Kind.TIMESTAMP, (3,), Kind.TIMESTAMP, (6,), [dt.datetime(2020, 1, 1, 0, 0, 0, 5000)], [dt.datetime(2020, 1, 1, 0, 0, 0, 5000)]),
    (Kind.TIMESTAMP, (6,), Kind.TIMESTAMP, (3,), [dt.datetime(1960, 1, 1, 0, 0, 0, 1999)], [dt.datetime(1960, 1, 1, 0, 0, 0, 1000)]),
    (Kind.BOOLEAN, (), Kind.STRING, (), [True, False], ["true", "false"]),
    (Kind.BOOLEAN, (), Kind.INT, (), [True, False], [1, 0]),
    (Kind.INT, (), Kind.BOOLEAN, (), [2, 0], [True, False]),
    (Kind.BIGINT, (), Kind.STRING, (), [-12], ["-12"]),
    (Kind.DOUBLE, (), Kind.STRING, (), [1e10, 0.001, 1.5, 1e-5], ["1.0E10", "0.001", "1.5", "1.0E-5"]),
    (Kind.DECIMAL, (9, 7), Kind.STRING, (), [Decimal("0.0000001")], ["0.0000001"]),
    (Kind.DATE, (), Kind.STRING, (), [dt.date(2020, 2, 3)], ["2020-02-03"]),
    (Kind.STRING, (), Kind.INT, (), [" 12 ", "-3"], [12, -3]),
    (Kind.STRING, (), Kind.DECIMAL, (6, 2), ["12.5"], [Decimal("12.50")]),
    (Kind.STRING, (), Kind.DATE, (), ["2020-02-03"], [dt.date(2020, 2, 3)]),
    (Kind.STRING, (), Kind.BOOLEAN, (), ["TRUE", "no"], [True, False]),
    (Kind.STRING, (), Kind.VARCHAR, (2,), ["äöü"], ["äö"]),
    (Kind.STRING, (), Kind.BYTES, (), ["ä"], [b"\xc3\xa4"]),
    (Kind.VARCHAR, (3,), Kind.VARCHAR, (9,), ["abc"], ["abc"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "old_parameters", "new", "new_parameters", "values", "expected"), WIDENINGS)
@pytest.mark.parametrize("format", FORMATS)
def test_values_are_cast_to_the_type_that_the_column_has_now(
    store, format, old, old_parameters, new, new_parameters, values, expected
):
    was, now = (field(4, "v", old, *old_parameters),), (field(4, "v", new, *new_parameters),)
    table = pa.table([pa.array([*values, None], arrow_schema(was).field(0).type)], ["v"])
    if format == "orc" and isinstance(values[0], dt.datetime) and values[0].year < 1970 and values[0].microsecond:
        with pytest.raises(InvalidInput, match="before 1970"):
            write(store, table, was, format)
        return
    files = write(store, table, was, format)
    assert read(store, reading(files, now, was)).column("v").to_pylist() == [*expected, None]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (scalar(Kind.BIGINT), INT, 2**40),
        (STRING, INT, "twelve"),
        (scalar(Kind.DECIMAL, 9, 2), scalar(Kind.DECIMAL, 4, 2), Decimal("1234.00")),
        (STRING, scalar(Kind.BOOLEAN), "perhaps"),
        (scalar(Kind.DATE), INT, dt.date(2020, 1, 1)),
        (ListOf(part(INT)), INT, [1]),
    ],
)
def test_a_value_that_does_not_fit_the_new_type_is_an_error_that_names_file_and_column(store, old, new, value):
    was, now = (Field(4, "v", old),), (Field(4, "v", new),)
    files = write(store, pa.table([pa.array([value], arrow_schema(was).field(0).type)], ["v"]), was)
    with pytest.raises(InvalidInput, match=rf"{files[0].path}.*column v"):
        read(store, reading(files, now, was))


@pytest.mark.parametrize("format", FORMATS)
def test_constants_stand_in_for_columns_that_files_do_not_hold(store, format):
    files = write(store, sample(3, format=format), format=format)
    now = (FIELDS[0], field(70, "day", Kind.DATE), field(71, "at", Kind.TIMESTAMP, 3), field(72, "none", Kind.INT))
    constants = ((70, dt.date(2020, 1, 1)), (71, 5), (72, None))
    assert read(store, reading(files, now, constants=constants)).to_pylist() == [
        {"id": i, "day": dt.date(2020, 1, 1), "at": dt.datetime(1970, 1, 1, 0, 0, 0, 5000), "none": None}
        for i in range(3)
    ]


# --- Conditions ---


@pytest.mark.parametrize("format", FORMATS)
def test_conditions_are_exact_whatever_was_pushed_down(store, format):
    table = sample(3000, format=format)
    files = write(store, table, format=format, target_size_bytes=64 << 10)
    now = (*FIELDS[:14], replace(FIELDS[14], name="date"), field(99, "added", Kind.INT))
    rows = table.to_pylist()
    for condition, accept in [
        (lt("id", 10), lambda r: r["id"] < 10),
        (and_(ge("id", 1000), lt("id", 1010)), lambda r: 1000 <= r["id"] < 1010),
        (gt("date", dt.date(2500, 1, 1)), lambda r: r["day"] is not None and r["day"] > dt.date(2500, 1, 1)),
        (is_null("text"), lambda r: r["text"] is None),
        (is_not_null("added"), lambda r: False),
        (is_in("code", ["a", "def"]), lambda r: r["code"] in ("a", "def")),
        (eq("price", Decimal("-1.00")), lambda r: r["price"] == Decimal("-1.00")),
        (gt("single", 8.9), lambda r: r["single"] is not None and r["single"] > 8.9),
    ]:
        found = read(store, reading(files, now, predicate=condition))
        assert found.column("id").to_pylist() == [r["id"] for r in rows if accept(r)], condition


def test_row_groups_that_cannot_match_are_not_read(store):
    fields = (field(0, "id", Kind.BIGINT), field(1, "noise", Kind.BIGINT))
    rng = np.random.default_rng(3)
    table = pa.table({"id": np.arange(400_000), "noise": rng.integers(0, 2**62, 400_000)})
    (file,) = write(store, table, fields, options={"parquet.block.size": str(1 << 20)})
    assert len(file.split_offsets) > 3
    opened = parquet.File(pa.BufferReader(store.read(file.path)), file.path)
    task = reading([file], fields, fields, predicate=lt("id", 1000))
    pushed = worker.pruning.to_dataset_filter(task.predicate, fields)
    read_rows = sum(batch.num_rows for _, batch in opened.batches(fields, pushed, 1000))
    assert 1000 <= read_rows < 200_000
    assert read(store, task).num_rows == 1000


def test_nan_is_above_every_number_also_where_bounds_leave_it_out(store):
    fields = (field(0, "x", Kind.DOUBLE),)
    files = write(store, pa.table({"x": [1.0, float("nan"), 2.0]}), fields)
    assert read(store, reading(files, fields, fields, predicate=gt("x", 100.0))).num_rows == 1
    assert read(store, reading(files, fields, fields, predicate=lt("x", 100.0))).num_rows == 2


def test_a_condition_on_a_column_that_is_not_asked_for_is_refused(store):
    files = write(store, sample(3))
    with pytest.raises(NotFound, match="no column 'text'"):
        read(store, reading(files, FIELDS[:1], predicate=eq("text", "a")))


def test_rows_can_be_counted_without_any_column(store):
    for format in FORMATS:
        files = write(store, sample(300, format=format), format=format)
        batches = list(worker.read(store, reading(files, ())))
        assert sum(batch.num_rows for batch in batches) == 300
        assert worker.count(store, reading(files)) == 300
        assert worker.count(store, reading(files, predicate=lt("id", 7))) == 7


# --- What cannot be read ---


def test_deletes_that_are_not_there_are_refused(store):
    files = write(store, sample(3))
    gone = (DeleteFile("index/1", Content.DELETION_VECTORS),)
    with pytest.raises(CorruptFile, match="index/1: the table lists this delete file, but it does not exist"):
        read(store, reading(files, deletes=(gone,)))


def test_a_missing_file_is_named(store):
    files = write(store, sample(3))
    store.delete([files[0].path])
    with pytest.raises(CorruptFile, match=rf"{files[0].path}: the table lists this file, but it does not exist"):
        read(store, reading(files))


@pytest.mark.parametrize("format", FORMATS)
def test_another_number_of_rows_than_the_table_says_is_damage(store, format):
    files = write(store, sample(30, format=format), format=format)
    with pytest.raises(CorruptFile, match="holds 30 rows, its table says 31"):
        read(store, replace(reading(files), row_counts=(31,)))


@pytest.mark.parametrize("format", FORMATS)
def test_a_truncated_file_is_never_half_read(store, format):
    table = sample(300, format=format)
    (file,) = write(store, table, format=format)
    content = store.read(file.path)
    rng = random.Random(11)
    for length in [0, 1, 4, len(content) - 1, *(rng.randrange(len(content)) for _ in range(20))]:
        store.write(file.path, content[:length])
        with pytest.raises(CorruptFile, match=file.path):
            read(store, reading([file]))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("format", FORMATS)
def test_flipped_bits_give_named_errors_and_no_foreign_ones(store, format):
    table = sample(300, format=format)
    (file,) = write(store, table, format=format)
    content = store.read(file.path)
    seed = 23
    rng = random.Random(seed)
    silent = 0
    for _ in range(150):
        place, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
        damaged = bytearray(content)
        damaged[place] ^= bit
        store.write(file.path, bytes(damaged))
        found = attempt(lambda: read(store, reading([file])))
        if isinstance(found, LakeError):
            assert file.path in str(found), (seed, place, bit)
        else:
            silent += not found.equals(table)
    # Parquet pages carry checksums. ORC has none at all, Avro none in its zstandard blocks.
    assert silent == 0 or format != "parquet", (seed, silent)


def test_a_file_of_another_format_is_damage(store):
    files = write(store, sample(3))
    for format in ("orc", "avro"):
        with pytest.raises(CorruptFile, match=files[0].path):
            read(store, replace(reading(files), file_format=format))
    with pytest.raises(UnsupportedFeature, match="'lance'"):
        read(store, replace(reading(files), file_format="lance"))


# --- What cannot be written ---

PLAIN = (
    field(0, "id", Kind.INT, nullable=False),
    field(1, "name", Kind.VARCHAR, 3),
    field(2, "price", Kind.DECIMAL, 4, 2),
    field(3, "kind", Kind.STRING, default="none"),
    field(4, "spot", Row((field(5, "x", Kind.INT, nullable=False), field(6, "y", Kind.INT)))),
    field(7, "tags", ListOf(part(INT, nullable=False))),
    field(8, "at", Kind.TIMESTAMP, 3),
)


def test_missing_columns_become_their_default_or_null(store):
    files = write(store, pa.table({"id": [1, 2]}), PLAIN)
    assert read(store, reading(files, PLAIN, PLAIN)).to_pylist() == [
        {"id": i, "name": None, "price": None, "kind": "none", "spot": None, "tags": None, "at": None} for i in (1, 2)
    ]


def test_columns_are_matched_by_name_and_values_fitted_where_nothing_is_lost(store):
    table = pa.table(
        {
            "kind": pa.array(["a", "b", None]).dictionary_encode(),
            "id": pa.array([1, 2, 3], pa.int64()),
            "price": pa.array([1, 2, None], pa.int64()),
            "name": pa.array(["x", "y", None], pa.large_string()),
            "at": pa.array([1_000_000, None, None], pa.timestamp("us")),
            "tags": pa.array([[1], [], None], pa.large_list(pa.int64())),
            "spot": pa.array([{"y": 1, "x": 2}, None, {"y": None, "x": 4}]),
        }
    )
    files = write(store, table, PLAIN)
    assert read(store, reading(files, PLAIN, PLAIN)).to_pylist() == [
        {"id": 1, "name": "x", "price": Decimal("1.00"), "kind": "a", "spot": {"x": 2, "y": 1}, "tags": [1], "at": dt.datetime(1970, 1, 1, 0, 0, 1)},
        {"id": 2, "name": "y", "price": Decimal("2.00"), "kind": "b", "spot": None, "tags": [], "at": None},
        {"id": 3, "name": None, "price": None, "kind": None, "spot": {"x": 4, "y": None}, "tags": None, "at": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a"]}, "column 'id' is NOT NULL and has no default, and the data lacks it"),
        ({"id": [1], "nmae": ["a"]}, "column 'nmae' is not in the table, which has id, name, price"),
        ({"id": ["1"]}, "column id: string does not fit int"),
        ({"id": [1], "name": [5]}, r"column name: int64 does not fit varchar\(3\)"),
        ({"id": [1, None, None]}, "column id is NOT NULL, and the data has 2 nulls in it"),
        ({"id": [2**40]}, "column id: a value does not fit int without loss"),
        ({"id": [1.5]}, "column id: a value does not fit int without loss"),
        ({"id": [1], "name": ["abcd"]}, r"column name: 1 values are longer than varchar\(3\)"),
        ({"id": [1], "price": [Decimal("123.45")]}, r"column price: a value does not fit decimal\(4, 2\)"),
        ({"id": [1], "price": [Decimal("1.234")]}, r"column price: a value does not fit decimal\(4, 2\)"),
        ({"id": [1], "spot": [{"y": 1}]}, "column spot: part 'x' is NOT NULL, and the data lacks it"),
        ({"id": [1], "spot": [{"x": 1, "z": 1}]}, "column spot: part 'z' is not in the table"),
        ({"id": [1, 2], "spot": [{"x": None}, None]}, "column spot.x is NOT NULL, and the data has 1 null in it"),
        ({"id": [1], "tags": [[1, None]]}, r"column tags\[\] is NOT NULL, and the data has 1 null in it"),
        ({"id": [1], "tags": [["a"]]}, r"column tags\[\]: string does not fit int"),
        (
            {"id": [1], "at": [dt.datetime(2020, 1, 1, microsecond=1)]},
            r"column at: a value does not fit timestamp\(3\)",
        ),
        ({"id": [1], "at": [dt.datetime(2020, 1, 1, tzinfo=UTC)]}, "the column has no time zone"),
        ({"id": [1], "at": [dt.timedelta(1)]}, "column at: duration"),
    ],
)
def test_data_that_does_not_fit_is_refused_by_column_and_leaves_nothing(store, columns, message):
    with pytest.raises(InvalidInput, match=message):
        write(store, pa.table(columns), PLAIN)
    assert store.list("") == []


def test_rows_outside_what_is_required_are_named_and_nothing_is_written(store):
    fields = (field(0, "dt", Kind.DATE), field(1, "v", Kind.INT))
    table = pa.table({"dt": [dt.date(2020, 1, 1), dt.date(2020, 1, 2), None], "v": [1, 2, 3]})
    with pytest.raises(OutsideScope, match=r"2 rows are outside.*2020, 1, 2"):
        write(store, table, fields, partition_by=identity("dt").fields, required=eq("dt", dt.date(2020, 1, 1)))
    assert store.list("") == []


# --- Files ---


def test_rows_go_to_the_folder_of_their_partition_and_bucket(store):
    fields = (
        field(0, "dt", Kind.DATE),
        field(1, "region", Kind.STRING),
        field(2, "id", Kind.BIGINT),
        field(3, "v", Kind.INT),
    )
    rng = np.random.default_rng(5)
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2), None]
    regions = ["", " ", "a/b", None]
    table = pa.table(
        {
            "v": rng.integers(0, 100, 20_000).astype("int32"),
            "dt": [days[i] for i in rng.integers(0, 3, 20_000)],
            "region": [regions[i] for i in rng.integers(0, 4, 20_000)],
            "id": rng.integers(0, 1000, 20_000),
        }
    )
    task = WriteTask(
        fields=fields,
        directory=lambda values, bucket: f"p{days.index(values[0])}/q{regions.index(values[1])}/b{bucket}",
        partition_by=identity("dt", "region").fields,
        bucket=BucketRule(("id",), 4),
    )
    files = worker.write(store, table.to_batches(700), task)
    assert len({(f.partition, f.bucket) for f in files}) == len(files) == 3 * 4 * 4
    buckets = murmur.buckets([table.column("id").combine_chunks()], [fields[2].type], 4)
    expected = Counter(
        zip(table.column("dt").to_pylist(), table.column("region").to_pylist(), buckets.tolist(), strict=True)
    )
    assert {(*f.partition, f.bucket): f.row_count for f in files} == expected
    for file in files:
        assert file.path.startswith(
            f"p{days.index(file.partition[0])}/q{regions.index(file.partition[1])}/b{file.bucket}/data-"
        )
        found = read(store, reading([file], fields, fields))
        assert set(found.column("dt").to_pylist()) == {file.partition[0]}
        assert set(found.column("region").to_pylist()) == {file.partition[1]}
    everything = read(store, reading(files, fields, fields))
    key = [("id", "ascending"), ("v", "ascending"), ("dt", "ascending"), ("region", "ascending")]
    assert everything.sort_by(key).select(table.column_names).equals(table.sort_by(key))


@pytest.mark.parametrize(
    ("kind", "parameters", "values", "expected"),
    [
        (Kind.TIMESTAMP, (3,), [dt.datetime(1970, 1, 1, 0, 0, 1)], 1000),
        (Kind.TIMESTAMP_TZ, (6,), [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], 1_000_000),
        (Kind.DECIMAL, (5, 2), [Decimal("1.50")], Decimal("1.50")),
        (Kind.BOOLEAN, (), [True], True),
        (Kind.INT, (), [5], 5),
        (Kind.BYTES, (), [b"x"], b"x"),
    ],
)
def test_partition_values_are_python_values(store, kind, parameters, values, expected):
    fields = (field(0, "p", kind, *parameters),)
    table = pa.table([pa.array([*values, None], arrow_schema(fields).field(0).type)], ["p"])
    files = write(store, table, fields, partition_by=identity("p").fields)
    assert [f.partition for f in files] == [(expected,), (None,)]


def test_nan_is_one_partition(store):
    fields = (field(0, "p", Kind.DOUBLE),)
    table = pa.table({"p": [float("nan"), 1.0, float("nan")] * 100})
    files = write(store, table, fields, partition_by=identity("p").fields)
    assert sorted(f.row_count for f in files) == [100, 200]


@pytest.mark.parametrize("format", FORMATS)
def test_files_end_near_the_target_size_and_keep_every_row(store, format):
    fields = (field(0, "id", Kind.BIGINT), field(1, "noise", Kind.BYTES))
    rng = random.Random(1)
    table = pa.table({"id": range(20_000), "noise": [rng.randbytes(100) for _ in range(20_000)]})
    target = 400_000
    files = write(store, table, fields, format, target_size_bytes=target)
    assert len(files) in range(4, 8)
    assert all(f.size_bytes < 1.7 * target for f in files)
    assert len({f.path.rpartition("-")[0] for f in files}) == 1
    assert read(store, reading(files, fields, fields)).equals(table.cast(arrow_schema(fields)))


class Counting(MemoryFiles):
    """Counts the files that are being written."""

    def __init__(self):
        super().__init__()
        self.writing = self.most = 0

    def create_stream(self, path):
        self.writing += 1
        self.most = max(self.most, self.writing)
        stream, content = super().create_stream(path), io.BytesIO()

        def end():
            self.writing -= 1
            stream.write(content.getvalue())
            stream.close()

        return NewFile(path, content.write, end, content.close)


@pytest.mark.parametrize(("fans_out", "most"), [(False, 330), (True, 300)])
def test_many_partitions_stay_within_memory_and_open_files(fans_out, most, caplog):
    """Rows that come mixed wait on disk for a file of their own, from the start or once it shows; sorted ones do not."""
    store, fields = Counting(), (field(0, "p", Kind.INT), field(1, "v", Kind.BIGINT))
    rng = np.random.default_rng(9)
    table = pa.table({"p": rng.integers(0, 300, 200_000).astype("int32"), "v": np.arange(200_000)})
    task = WriteTask(
        fields=fields, directory=folder, partition_by=identity("p").fields, open_files=8, fans_out=fans_out
    )
    caplog.set_level("INFO")
    with measured() as pool:
        files = worker.write(store, table.to_batches(4096), task, buffer_bytes=1 << 20, chunk_bytes=1 << 18)
    assert pool.max_memory() < 4 << 20, "8 files, the rows that wait, and some of a batch"
    assert store.most <= 8
    assert len(files) <= most, "a file for each partition, and those that were ended before it showed"
    assert [f"{store.root}: rows of " in message for message in caplog.messages] == [True]
    counts = sum((Counter({f.partition[0]: f.row_count}) for f in files), Counter())
    assert Counter(table.column("p").to_pylist()) == counts
    found = read(store, reading(files, fields, fields))
    assert found.sort_by("v").equals(table.cast(arrow_schema(fields)))
    of_each = {f.partition[0]: read(store, reading([f], fields, fields))["v"].to_pylist() for f in files}
    assert all(values == sorted(values) for values in of_each.values()), "rows of a partition stay in their order"


def test_rows_that_come_partition_by_partition_do_not_wait_on_disk(caplog):
    store, fields = Counting(), (field(0, "p", Kind.INT), field(1, "v", Kind.BIGINT))
    table = pa.table({"p": pa.array(np.arange(200_000) // 700, pa.int32()), "v": np.arange(200_000)})
    task = WriteTask(fields=fields, directory=folder, partition_by=identity("p").fields, open_files=8)
    caplog.set_level("INFO")
    files = worker.write(store, table.to_batches(4096), task, buffer_bytes=1 << 18, chunk_bytes=1 << 18)
    assert (len(files), store.most <= 8, caplog.messages) == (286, True, [])
    assert read(store, reading(files, fields, fields)).equals(table.cast(arrow_schema(fields)))


def test_what_waits_on_disk_is_written_in_files_of_the_target_size(store):
    fields = (field(0, "p", Kind.INT), field(1, "noise", Kind.BYTES))
    rng = random.Random(3)
    noise = [rng.randbytes(100) for _ in range(20_000)]
    table = pa.table({"p": pa.array(range(20_000), pa.int32()), "noise": noise})
    table = table.set_column(0, "p", pc.bit_wise_and(table["p"], pa.scalar(3, pa.int32())))
    task = WriteTask(
        fields=fields, directory=folder, partition_by=identity("p").fields, open_files=1, fans_out=True,
        target_size_bytes=150_000,
    )  # fmt: skip
    files = worker.write(store, table.to_batches(512), task, buffer_bytes=1 << 16, chunk_bytes=1 << 15)
    assert all(f.size_bytes < 1.7 * 150_000 for f in files)
    assert len(files) in range(12, 25)
    found = read(store, reading(files, fields, fields))
    assert sorted(found["noise"].to_pylist()) == sorted(noise)


def test_names_of_files_have_the_task_and_the_attempt(store):
    def names_of(with_task):
        task = WriteTask(fields=WIDE, directory=folder, naming=Naming("", "-{:05}", names_task=with_task))
        return [file.path.rpartition("/")[2] for file in worker.write(store, wide_rows(1, 10), task)]

    job = formats.new_job()
    with formats.of_task(job, 3, 17), formats.of_task(job, 4, 18):
        (inner,) = names_of(True)
        (plain,) = names_of(False)
    with formats.of_task(job, 3, 17):
        (first,), (again,) = names_of(True), names_of(True)
    uuid = "[0-9a-f]{4}-[0-9a-f]{12}"
    assert re.fullmatch(rf"00004-18-{job}-{uuid}-00000\.parquet", inner), inner
    assert re.fullmatch(rf"{job}-{uuid}-00000\.parquet", plain), plain
    assert re.fullmatch(rf"00003-17-{job}-{uuid}-00000\.parquet", first), first
    assert first != again
    assert names_of(True)[0].startswith("00000-0-")


def test_files_ended_by_several_threads_are_those_of_one(store):
    fields = (field(0, "p", Kind.INT), field(1, "v", Kind.BIGINT))
    rng = np.random.default_rng(11)
    table = pa.table({"p": rng.integers(0, 20, 400_000).astype("int32"), "v": np.arange(400_000)})
    task = WriteTask(fields=fields, directory=folder, partition_by=identity("p").fields, target_size_bytes=3000)
    task, limits = replace(task, open_files=4), {"buffer_bytes": 2 << 20, "chunk_bytes": 1 << 16}

    def written(threads):
        files = worker.write(store, table.to_batches(1 << 15), task, threads=threads, **limits)
        assert len({f.path for f in files}) == len(files) > 40
        return read(store, reading(files, fields, fields)), [(f.partition, f.row_count) for f in files]

    alone = written(threads=1)
    for _ in range(3):
        assert written(threads=8) == alone


@contextmanager
def measured():
    """A memory pool that Arrow takes from meanwhile."""
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(usual)


WIDE = (field(0, "id", Kind.BIGINT), field(1, "v", Kind.BYTES))


def wide_rows(count, size):
    for index in range(count):
        yield pa.record_batch({"id": [index], "v": pa.array([os.urandom(size)], pa.binary())})


@pytest.mark.parametrize("is_local", [True, False])
def test_wide_rows_are_read_some_megabytes_at_a_time(store, tmp_path, is_local):
    """Of a local file a few batches are in memory; of a store that is read ahead, 64 MB of row groups more."""
    count = 40 if is_local else 100
    store = open_store(str(tmp_path), {"fsync": "false"}) if is_local else store
    task = WriteTask(fields=WIDE, directory=folder, encoding=Encoding(compression="none"))
    files = worker.write(store, wide_rows(count, 1 << 20), task)
    assert [file.row_count for file in files] == [count]
    with measured() as pool:
        found = [(batch.num_rows, batch.nbytes) for batch in worker.read(store, reading(files, WIDE, WIDE))]
    assert sum(rows for rows, _ in found) == count
    assert max(size for _, size in found) <= 17 << 20, found
    assert pool.max_memory() < (48 if is_local else 96) << 20, pool.max_memory()


def test_values_that_do_not_repeat_get_no_dictionary_in_a_small_file(store):
    (file,) = worker.write(store, wide_rows(20, 1 << 18), WriteTask(fields=WIDE, directory=folder))
    chunk = pq.ParquetFile(store.open(file.path)).metadata.row_group(0).column(1)
    assert not chunk.has_dictionary_page, chunk.encodings


def test_each_file_is_sorted_as_a_whole(store):
    fields = (field(0, "k", Kind.INT), field(1, "v", Kind.INT))
    rng = np.random.default_rng(4)
    keys = pa.array(rng.integers(0, 50, 5000).astype("int32"), mask=rng.random(5000) < 0.1)
    table = pa.table({"k": keys, "v": pa.array(np.arange(5000), pa.int32())})
    files = write(store, table, fields, sort_by=(SortField(("k",)),), target_size_bytes=40_000)
    found = read(store, reading(files, fields, fields))
    pairs = [((k is not None, k or 0), v) for k, v in zip(*(c.to_pylist() for c in found.columns), strict=True)]
    assert len(files) == 1
    assert pairs == sorted(pairs)


def test_rows_that_memory_does_not_hold_are_sorted_all_the_same(store):
    fields = (field(0, "k", Kind.BIGINT), field(1, "v", Kind.STRING))
    rng = np.random.default_rng(8)
    keys = rng.permutation(750_000)

    def batches():
        for start in range(0, 750_000, 5_000):
            part = pa.array(keys[start : start + 5_000])
            yield pa.record_batch({"k": part, "v": part.cast(pa.string())})

    size = sum(batch.nbytes for batch in batches())
    order = (SortField(("k",), descending=True),)
    task = WriteTask(
        fields=fields,
        directory=folder,
        sort_by=order,
        target_size_bytes=2_000_000,
        encoding=Encoding(compression="none"),
    )
    with measured() as pool:
        files = worker.write(store, batches(), task, buffer_bytes=size // 20)
    assert pool.max_memory() < size / 2, (pool.max_memory(), size)
    found = [read(store, reading([file], fields, fields))["k"].to_pylist() for file in files]
    assert len(found) > 5
    assert [key for each in found for key in each] == list(range(749_999, -1, -1))


def test_statistics_follow_the_modes_of_the_columns(store):
    fields = (field(0, "a", Kind.INT), field(1, "b", Kind.INT), field(2, "c", Kind.INT))
    modes = ((StatsMode.NONE, 0), (StatsMode.COUNTS, 0), (StatsMode.TRUNCATE, 16))
    (file,) = write(store, pa.table({"a": [1, 2], "b": [3, None], "c": [5, 6]}), fields, stats=modes)
    assert set(file.stats) == {1, 2}
    assert (file.stats[1].minimum, file.stats[1].null_count) == (None, 1)
    assert (file.stats[2].minimum, file.stats[2].maximum, file.stats[2].null_count) == (5, 6, 0)


class Failing(MemoryFiles):
    """Storage that breaks at the n-th new file, or at the n-th file's end."""

    def __init__(self, at):
        super().__init__()
        self.left = at

    def create_stream(self, path):
        self.left -= 1
        if self.left == 0:
            raise StoreError(f"{path}: no answer")
        return super().create_stream(path)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_write_that_fails_leaves_no_file(at, threads):
    store = Failing(at)
    fields = (field(0, "p", Kind.INT),)
    task = WriteTask(fields=fields, directory=folder, partition_by=identity("p").fields)
    with pytest.raises(StoreError, match="no answer"):
        worker.write(store, pa.table({"p": range(4)}).to_batches(), task, threads=threads)
    assert store.list("") == []


def test_the_data_s_own_error_comes_through_and_leaves_no_file(store):
    fields = (field(0, "v", Kind.BIGINT),)

    def batches():
        yield pa.record_batch({"v": np.arange(300_000)})
        raise ZeroDivisionError("a source of the user's")

    task = WriteTask(fields=fields, directory=folder, target_size_bytes=100_000)
    with pytest.raises(ZeroDivisionError):
        worker.write(store, batches(), task)
    assert store.list("") == []


def test_unknown_compression_is_refused_by_name(store):
    for format in FORMATS:
        with pytest.raises(InvalidInput, match="lzo9"):
            write(store, pa.table({"v": [1]}), (field(0, "v", Kind.INT),), format, compression="lzo9")


# --- Rewriting ---


@pytest.mark.parametrize("format", FORMATS)
def test_a_rewrite_leaves_out_assigns_and_casts(store, format):
    fields = (field(0, "id", Kind.INT), field(1, "n", Kind.BIGINT), field(2, "text", Kind.STRING))
    table = pa.table(
        {"id": range(10), "n": [None if i == 3 else i * 10 for i in range(10)], "text": [f"t{i}" for i in range(10)]}
    )
    files = write(store, table, fields, format)
    change = RewriteTask(
        read=(reading(files, fields, fields),),
        write=WriteTask(fields=fields, directory=folder, encoding=Encoding(format)),
        delete_where=gt("n", 70),
        assignments=(("n", call("add", column("n"), column("id"))), ("text", cast("n", "string"))),
        update_where=lt("id", 5),
    )
    written = worker.rewrite(store, change)
    assert read(store, reading(written, fields, fields)).to_pylist() == [
        {"id": 0, "n": 0, "text": "0"},
        {"id": 1, "n": 11, "text": "10"},
        {"id": 2, "n": 22, "text": "20"},
        {"id": 3, "n": None, "text": None},
        {"id": 4, "n": 44, "text": "40"},
        {"id": 5, "n": 50, "text": "t5"},
        {"id": 6, "n": 60, "text": "t6"},
        {"id": 7, "n": 70, "text": "t7"},
    ]


def test_an_assignment_that_breaks_the_columns_promise_is_refused(store):
    fields = (field(0, "id", Kind.INT, nullable=False), field(1, "n", Kind.TINYINT))
    files = write(store, pa.table({"id": [1], "n": [100]}), fields)
    read_it, write_it = (reading(files, fields, fields),), WriteTask(fields=fields, directory=folder)
    with pytest.raises(InvalidInput, match="column id is NOT NULL"):
        worker.rewrite(
            store, RewriteTask(read_it, write_it, assignments=(("id", call("nullif", column("id"), column("id"))),))
        )
    with pytest.raises(InvalidInput, match="n"):
        worker.rewrite(
            store, RewriteTask(read_it, write_it, assignments=(("n", call("mul", cast("n", "int"), literal(10))),))
        )


def test_a_part_of_a_row_is_not_taken_for_a_column_with_a_dot():
    made = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1], "a.b": [float("nan")], "a": [{"b": 1}]}), made)
    assert parquet.File(pa.BufferReader(made.getvalue()), "f").without_nan(["id", "a.b"]) == {"id"}
