"""Conditions on the key of a Paimon table: which files, buckets and row groups are read for them, and that no row is lost."""

import datetime
import json
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import CorruptFile, Lake
from lakeformat.engines.files import parquet
from lakeformat.expression import sql_text
from lakeformat.model.predicate import bind, listed
from lakeformat.model.schema import Field, Kind, scalar
from tests.draw import IS_LONG


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "warehouse"), fsync="false")


def made(lake, columns, key, name="d.t", **properties):
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return lake.create_table(
        name, pa.schema(columns), format="paimon", primary_key=key, properties={"bucket": "8"} | given
    )


def files_read(table, where):
    return [path for task in table.scan(where=where).plan() for path in task.paths]


def buckets_read(table, where):
    return {path.split("bucket-")[1].split("/")[0] for path in files_read(table, where)}


@pytest.mark.parametrize(
    ("where", "most"),
    [
        ("id = 5", 1),
        ("5 = id AND v <> 'x'", 1),
        ("id IN (5, 6, NULL)", 2),
        ("id = 5 OR (id = 6 AND v = 'v6')", 2),
        ("id <=> 5", 1),
        ("id = 5 AND id = 6", 1),
        ("id > 3 AND id IN (5)", 1),
        ("id = 5 OR v = 'v6'", 8),
        ("NOT id = 5", 8),
        ("id BETWEEN 20 AND 60", 8),
    ],
)
def test_keys_that_a_condition_lists_are_looked_for_in_their_buckets(lake, where, most):
    table = made(lake, [("id", pa.int64()), ("v", pa.string())], ["id"])
    table.upsert(pa.table({"id": range(100), "v": [f"v{i}" for i in range(100)]}))
    table.upsert(pa.table({"id": range(100), "v": [f"v{i}" for i in range(100)]}))
    found = buckets_read(table, where)
    assert 0 < len(found) <= most
    assert (len(found) == 8) == (most == 8)


def test_bucket_keys_of_several_columns_and_append_tables(lake):
    key = [("a", pa.int32()), ("b", pa.string()), ("c", pa.int64())]
    table = made(lake, [*key, ("v", pa.int64())], ["a", "b", "c"], **{"bucket-key": "b,a"})
    table.upsert(pa.table({"a": np.arange(200, dtype=np.int32) % 10, "b": ["x", "y"] * 100, "c": range(200)}))
    assert len(buckets_read(table, "a = 3 AND b = 'y'")) == 1
    assert len(buckets_read(table, "a IN (3, 4) AND b = 'y'")) <= 2
    assert len(buckets_read(table, "a = 3")) > 1
    found = table.scan(where="a = 3 AND b = 'y' AND c = 13").to_arrow().to_pylist()
    assert found == [{"a": 3, "b": "y", "c": 13, "v": None}]
    plain = lake.create_table("d.plain", pa.schema(key), format="paimon", properties={"bucket": "8", "bucket-key": "c"})
    plain.append(pa.table({"a": pa.array([1] * 99, pa.int32()), "b": ["x"] * 99, "c": [*range(98), None]}))
    assert len(buckets_read(plain, "c = 7")) == 1
    assert plain.scan(where="c = 7").count() == 1
    assert plain.scan(where="c <=> NULL").count() == 1


def test_buckets_are_looked_up_as_each_file_was_written(lake, tmp_path):
    """Partitions may have other numbers of buckets; a wider type hashes in another way."""
    table = lake.create_table(
        "d.t",
        pa.schema([("dt", pa.string()), ("id", pa.int32()), ("v", pa.string())]),
        format="paimon",
        partition_by=["dt"],
        primary_key=["dt", "id"],
        properties={"bucket": "8"},
    )
    rows = {"id": np.arange(-50, 50, dtype=np.int32), "v": ["v"] * 100}
    for dt in ("a", "b"):
        table.upsert(pa.table({"dt": [dt] * 100, **rows}))
    table.alter().set_properties({"bucket": "3"}).commit()
    table.overwrite(pa.table({"dt": ["b"] * 100, **rows}), partition={"dt": "b"})
    for id in range(-50, 50, 7):
        assert table.scan(where=f"id = {id}").count() == 2
    assert len(files_read(table, "id = 7")) == 2
    plain = lake.create_table(
        "d.plain", pa.schema([("id", pa.int32())]), format="paimon", properties={"bucket": "8", "bucket-key": "id"}
    )
    plain.append(pa.table({"id": rows["id"]}))
    folder = tmp_path / "warehouse" / "d.db" / "plain" / "schema"  # Java lets bucket keys grow, we do not.
    schema = json.loads((folder / "schema-0").read_text())
    schema["fields"][0]["type"], schema["id"] = "BIGINT", 1
    (folder / "schema-1").write_text(json.dumps(schema))
    plain = lake.table("d.plain")
    plain.append(pa.table({"id": np.arange(-50, 50, dtype=np.int64)}))
    for id in range(-50, 50, 7):
        assert plain.scan(where=f"id = {id}").count() == 2


def test_ranges_of_keys_are_known_whatever_statistics_a_table_keeps(lake):
    table = made(
        lake,
        [("id", pa.string()), ("v", pa.int64())],
        ["id"],
        **{"bucket": "1", "metadata.stats-mode": "none", "write-only": "true"},
    )
    prefix = "a text of more than sixteen characters: "
    for start in (0, 100, 200):
        table.upsert(pa.table({"id": [f"{prefix}{i:03}" for i in range(start, start + 100)], "v": range(100)}))
    assert len(files_read(table, f"id = '{prefix}150'")) == 1
    assert len(files_read(table, f"id > '{prefix}150'")) == 2
    assert table.scan(where=f"id > '{prefix}150'").count() == 149


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_row_groups_that_hold_no_such_key_are_not_read(lake, tmp_path, file_format):
    count = 3 * parquet.GROUP_ROWS
    table = made(
        lake,
        [("id", pa.int64()), ("v", pa.int64())],
        ["id"],
        **{"bucket": "1", "write-only": "true", "file.format": file_format, "file.compression": "none"},
    )
    table.upsert(pa.table({"id": np.arange(count), "v": np.arange(count)}))
    table.upsert(pa.table({"id": [5, count], "v": [-5, -1]}))
    assert table.scan(where="id = 5").to_arrow().to_pylist() == [{"id": 5, "v": -5}]
    if file_format == "orc":
        return
    path = next(tmp_path.rglob(max(table.inspect.files().to_pylist(), key=lambda f: f["size_bytes"])["path"]))
    metadata = parquet.pq.ParquetFile(path).metadata
    assert metadata.num_row_groups == 3
    content = bytearray(path.read_bytes())
    begin = metadata.row_group(2).column(3).data_page_offset  # Of `id`, after what the file says of keys.
    content[begin + 1000 : begin + 2000] = bytes(1000)  # Whoever reads these rows is told so by a checksum.
    path.write_bytes(content)
    assert table.scan(where="id = 5").to_arrow().to_pylist() == [{"id": 5, "v": -5}]
    assert table.scan(where="id < 10 AND v < 8").to_arrow().sort_by("id")["v"].to_pylist() == [0, 1, 2, 3, 4, -5, 6, 7]
    with pytest.raises(CorruptFile):
        table.scan().to_arrow()


ENGINES = [
    {},
    {"sequence.field": "n"},
    {"merge-engine": "partial-update"},
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    {"merge-engine": "first-row"},
    {"deletion-vectors.enabled": "true"},
]
DAY = datetime.date(2024, 1, 1)
KEYS = {  # The type of a key, and the i-th key as Python has it and as SQL does.
    "bigint": (pa.int64(), lambda i: i - 9, str),
    "string": (pa.string(), lambda i: f"key {i:02}" + "'" * (i % 3), lambda v: "'" + v.replace("'", "\\'") + "'"),
    "date": (pa.date32(), lambda i: DAY + datetime.timedelta(i * 9), lambda v: f"DATE '{v}'"),
    "decimal": (pa.decimal128(20, 2), lambda i: Decimal(i - 9) / 4, str),
    "timestamp": (
        pa.timestamp("us"),
        lambda i: datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=i, microseconds=i),
        lambda v: f"TIMESTAMP '{v}'",
    ),
    "double": (pa.float64(), lambda i: (i - 9) / 4, str),
    "binary": (pa.binary(), lambda i: bytes([i, 255 - i]), lambda v: f"X'{v.hex()}'"),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda options: ",".join(options.values()) or "deduplicate")
def test_conditions_on_keys_give_what_all_rows_would(lake, engine):
    """Random tables: what a condition gives is what is left of the whole table by a plain Python test of the same."""
    for seed in range(100 * ENGINES.index(engine), 100 * ENGINES.index(engine) + (4 if IS_LONG else 2)):
        chance = random.Random(seed)
        kind, (arrow, key, shown) = chance.choice(list(KEYS.items()))
        table = made(
            lake,
            [("k", arrow), ("j", pa.int32()), ("n", pa.int64())],
            ["k", "j"],
            name=f"d.t{seed}",
            **{
                "bucket": chance.choice(["1", "4"]),
                "file.format": chance.choice(["parquet", "orc"]),
                "num-sorted-run.compaction-trigger": chance.choice(["2", "9"]),
                **engine,
            },
        )
        for _ in range(chance.randint(1, 4)):
            drawn = [(chance.randint(0, 20), chance.randint(0, 2)) for _ in range(chance.randint(1, 25))]
            drawn = list(dict.fromkeys(drawn))
            n = [chance.randint(0, 9) for _ in drawn]
            rows = {"k": pa.array([key(i) for i, _ in drawn], arrow), "j": pa.array([j for _, j in drawn], pa.int32())}
            if not engine and chance.random() < 0.5:
                rows["rowkind"] = [chance.choice(["+I", "-D"]) for _ in drawn]
            table.upsert(pa.table({**rows, "n": pa.array(n, pa.int64())}))
        if chance.random() < 0.3:
            table.compact(full=True)
        whole = table.scan().to_arrow().to_pylist()
        for _ in range(8):
            one, other = sorted((key(chance.randint(0, 20)), key(chance.randint(0, 20))))
            j, n = chance.randint(0, 2), chance.randint(0, 9)
            where, test = chance.choice(
                [
                    (f"k = {shown(one)}", lambda r, one=one: r["k"] == one),
                    (
                        f"k = {shown(one)} AND j = {j}",
                        lambda r, one=one, j=j: (r["k"], r["j"]) == (one, j),
                    ),
                    (
                        f"k IN ({shown(one)}, {shown(other)}) AND j IN (0, {j}) AND n >= {n}",
                        lambda r, w=(one, other), j=j, n=n: r["k"] in w and r["j"] in (0, j) and r["n"] >= n,
                    ),
                    (
                        f"(k = {shown(one)} AND j = 1 AND n < {n}) OR (k = {shown(other)} AND j = {j})",
                        lambda r, one=one, o=other, j=j, n=n: (
                            ((r["k"], r["j"]) == (one, 1) and r["n"] < n) or (r["k"], r["j"]) == (o, j)
                        ),
                    ),
                    (
                        f"k > {shown(one)} AND k <= {shown(other)}",
                        lambda r, a=one, b=other: a < r["k"] <= b,
                    ),
                    (f"NOT (k = {shown(one)}) AND n = {n}", lambda r, a=one, n=n: r["k"] != a and r["n"] == n),
                ]
            )
            scan = table.scan(where=where)
            expected = [r for r in whole if test(r)]
            found = scan.to_arrow().to_pylist()
            assert sorted(map(str, found)) == sorted(map(str, expected)), (seed, kind, where)
            assert scan.count() == len(expected), (seed, kind, where)


def test_zeros_of_either_sign_are_found_by_each_other(lake):
    table = made(lake, [("k", pa.float64()), ("v", pa.int64())], ["k"], bucket="8")
    table.upsert(pa.table({"k": [-0.0, 1.0, float("nan")], "v": [1, 2, 3]}))
    assert table.scan(where="k = 0.0").to_arrow()["v"].to_pylist() == [1]
    assert table.scan(where="k IN (CAST('NaN' AS DOUBLE))").to_arrow()["v"].to_pylist() == [3]


def test_values_that_a_condition_lists():
    fields = (Field(0, "a", scalar(Kind.INT)), Field(1, "b", scalar(Kind.STRING)))

    def of(where, names=("a",), limit=10):
        found = listed(bind(sql_text.parse(where), fields), names, limit)
        return None if found is None else sorted(found)

    assert of("a = 1 AND b = 'x'", ("a", "b")) == [(1, "x")]
    assert of("a IN (1, 2) AND b IN ('x', 'y')", ("b", "a")) == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]
    assert of("a = 1 OR a = 2 AND b = 'x'") == [(1,), (2,)]
    assert of("a = 1 OR b = 'x'") is None
    assert of("a > 1") is None
    assert of("a = 1.5") == []  # No such number.
    assert of(f"a IN ({', '.join(map(str, range(11)))})") is None
    assert of("a = 1", ("a", "b")) is None
