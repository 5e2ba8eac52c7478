"""Reads damaged data files, one by one, in a process that may die of it: `python -m tests.unit.engines.damaging FOLDER FIRST LAST KIND ...`.

Each seed is printed before its file is read, and afterwards with what came of it.
"""

import datetime
import random
import resource
import sys
import time
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq

from lakeformat import LakeError
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines import worker
from lakeformat.model.evolution import number
from lakeformat.model.work import Encoding, FilesTask, OneFolder, WriteTask
from lakeformat.storage.files import open_store

ROWS = 300


def rows():
    numbers = range(ROWS)
    some = [None if i % 7 == 0 else i for i in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "small": pa.array(some, pa.int16()),
            "flag": pa.array([None if i is None else i % 3 == 0 for i in some]),
            "part": pa.array([None if i is None else i / 3 for i in some], pa.float64()),
            "text": pa.array([None if i is None else f"text {i * 7919 % 1000}" * (i % 5) for i in some]),
            "word": pa.array([["red", "green", "blue"][i % 3] for i in numbers]),
            "data": pa.array([None if i is None else bytes([i % 256]) * (i % 9) for i in some], pa.binary()),
            "price": pa.array([None if i is None else Decimal(i * i) / 100 for i in some], pa.decimal128(12, 2)),
            "wide": pa.array([None if i is None else Decimal(-i) * 10**20 for i in some], pa.decimal128(30, 0)),
            "day": pa.array([None if i is None else datetime.date(1970, 1, 1) + datetime.timedelta(i) for i in some]),
            "time": pa.array([None if i is None else i * 1_000_003 for i in some], pa.timestamp("us")),
            "list": pa.array([None if i is None else [*range(i % 4)] for i in some], pa.list_(pa.int32())),
            "map": pa.array([None if i is None else [(f"k{n}", n) for n in range(i % 3)] for i in some], pa.map_(pa.string(), pa.int64())),
            "row": pa.array([None if i is None else {"a": i, "b": [{"c": str(i)}] * (i % 3)} for i in some]),
        }
    )  # fmt: skip


KINDS = ["parquet", "parquet plain", "parquet foreign", "orc", "orc plain", "orc foreign", "avro", "avro plain"]


def whole(folder, kind):
    """The bytes of an undamaged file."""
    format, _, how = kind.partition(" ")
    table = rows()
    fields, _ = number(fields_from_arrow(table.schema), 0, True)
    if how == "foreign" and format == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(
            table, sink, row_group_size=100, data_page_version="2.0", compression="snappy", data_page_size=500
        )
        return sink.getvalue().to_pybytes(), fields
    if how == "foreign" and format == "orc":
        sink = pa.BufferOutputStream()
        po.write_table(table, sink, compression="zlib", dictionary_key_size_threshold=0.9)
        return sink.getvalue().to_pybytes(), fields
    compression = "none" if how == "plain" else "zstd"
    if format == "avro":
        compression = "null" if how == "plain" else "deflate"
    encoding = Encoding(format, compression)
    task = WriteTask(fields=fields, directory=OneFolder(""), encoding=encoding, target_size_bytes=1 << 30)
    (file,) = worker.write(open_store(folder), table.to_batches(), task)
    return open_store(folder).read(file.path), fields


def damaged(data, chance):
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        spot = (
            chance.randrange(len(data))
            if chance.random() < 0.6
            else max(0, len(data) - 1 - int(chance.expovariate(1 / 400)))
        )
        match chance.randrange(8):
            case 0 | 1:
                data[spot] ^= 1 << chance.randrange(8)
            case 2:
                data[spot] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 3:
                size = chance.randrange(1, 12)
                data[spot : spot + size] = chance.choice([b"\xff", b"\x00", b"\x7f", b"\x80"]) * size
            case 4:
                del data[spot : len(data) if chance.random() < 0.3 else spot + chance.randrange(1, 40)]
            case 5:
                data[spot:spot] = chance.randbytes(chance.randrange(1, 12))
            case 6:
                other, size = chance.randrange(len(data) or 1), chance.randrange(1, 300)
                data[spot : spot + size] = data[other : other + size]
            case 7:
                data[spot : spot + 6] = chance.choice(
                    [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x08"]
                )
        if not data:
            data = bytearray(b"x")
    return bytes(data)


def main(folder, kind, seeds):
    data, fields = whole(folder, kind)
    store = open_store(folder)
    name = "damaged"
    for seed in seeds:
        print(kind, seed, end=": ", flush=True)
        with open(f"{folder}/{name}", "wb") as file:
            file.write(damaged(data, random.Random(f"{kind} {seed}")))
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        task = FilesTask((name,), (ROWS,), (len(data),), kind.partition(" ")[0], fields, file_fields=fields)
        try:
            table = pa.Table.from_batches(worker.read(store, task))
            table.validate()
            result = "read"
        except LakeError as error:
            result = type(error).__name__ if name in str(error) else f"unnamed: {error}"
        except Exception as error:
            result = f"raw {type(error).__name__}: {error}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > 1 << 20:
            result = f"{grown >> 10} MB"
        if time.monotonic() - began > 5:
            result = f"{time.monotonic() - began:.0f} s"
        print(result.splitlines()[0] if result else "", flush=True)


if __name__ == "__main__":
    for one_kind in sys.argv[4:]:
        main(sys.argv[1], one_kind, range(int(sys.argv[2]), int(sys.argv[3])))
