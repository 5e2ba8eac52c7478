"""Row groups that a rewrite leaves as they are go to the new file as bytes: rows, statistics and footers are those of a whole rewrite."""

import datetime as dt
import decimal
import random
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeformat import CorruptFile, Lake
from lakeformat.engines import worker
from lakeformat.expression import sql_text
from lakeformat.model.predicate import bind
from lakeformat.model.work import RewriteTask

ROWS = 6000
LEAST = "65536"  # Bytes of rows in memory, of which a row group is made.
SIZE = {"paimon": "parquet.block.size", "iceberg": "write.parquet.row-group-size-bytes"}
CODEC = {"paimon": "file.compression", "iceberg": "write.parquet.compression-codec"}


def columns(rng):
    """Name -> values of many types, with nulls, NaNs, long texts, and lists that are null or empty."""

    def some(made, nulls=0.1):
        return [None if rng.random() < nulls else made(i) for i in range(ROWS)]

    word = lambda i: f"w{rng.randrange(20)}"  # noqa: E731
    found = {
        "n": pa.array(some(lambda i: rng.randrange(-(1 << 62), 1 << 62)), pa.int64()),
        "f": pa.array(some(lambda i: float("nan") if rng.random() < 0.001 else rng.random()), pa.float64()),
        "g": pa.array(some(lambda i: rng.random()), pa.float32()),
        "b": pa.array(some(lambda i: rng.random() < 0.5), pa.bool_()),
        "d": pa.array(some(lambda i: decimal.Decimal(rng.randrange(10**9)).scaleb(-3)), pa.decimal128(12, 3)),
        "day": pa.array(some(lambda i: dt.date(2000, 1, 1) + dt.timedelta(rng.randrange(9999))), pa.date32()),
        "at": pa.array(some(lambda i: rng.randrange(1 << 50)), pa.timestamp("us")),
        "word": pa.array(some(word), pa.string()),
        "long": pa.array(some(lambda i: "x" * rng.randrange(5000) if rng.random() < 0.002 else word(i)), pa.string()),
        "raw": pa.array(some(lambda i: rng.randbytes(rng.randrange(9))), pa.binary()),
        "nothing": pa.nulls(ROWS, pa.string()),
        "list": pa.array(some(lambda i: [word(i)] * rng.randrange(3)), pa.list_(pa.string())),
        "map": pa.array(some(lambda i: {word(i): i}), pa.map_(pa.string(), pa.int32())),
        "row": pa.array(
            some(lambda i: {"a": rng.choice([None, i]), "b": [i, None]}),
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))]),
        ),
    }
    chosen = rng.sample(sorted(found), 8)
    ids = pa.array(np.arange(ROWS))
    return pa.table({"id": ids, **{name: found[name] for name in chosen}, "p": pa.repeat("a", ROWS)})


def created(tmp_path, format, data, codec="zstd"):
    properties = {SIZE[format]: LEAST, CODEC[format]: codec}
    table = Lake(str(tmp_path)).create_table(
        "a.b", data.schema, format=format, partition_by=["p"], properties=properties
    )
    table.append(data)
    return table


def row_groups(store, path):
    """The pages of each row group of a file, as bytes; the whole of it is read, checksums too."""
    data = store.read(path)
    metadata = pq.read_metadata(pa.BufferReader(data))
    read = pq.read_table(pa.BufferReader(data), page_checksum_verification=True, use_threads=False)
    assert read.num_rows == metadata.num_rows
    groups, end = [], 4
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        pages = []
        for chunk in (group.column(i) for i in range(group.num_columns)):
            start = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
            assert start == end, "pages lie one after the other"
            end = start + chunk.total_compressed_size
            pages.append(data[start:end])
        groups.append(tuple(pages))
    return groups


def comparable(rows):
    """The rows with floats as text, in which NaNs are equal."""
    columns = [column.cast(pa.string()) if pa.types.is_floating(column.type) else column for column in rows.columns]
    return pa.table(columns, rows.column_names)


def the_file(table):
    ((path,),) = (task.paths for task in table.scan().plan())
    return path


def without_sizes(file):
    stats = {id: replace(stat, size_bytes=None) for id, stat in file.stats.items()}
    return file.partition, file.bucket, file.row_count, stats


@pytest.mark.parametrize(("seed", "format"), [*enumerate(["paimon", "iceberg"] * 8)])
def test_a_file_with_copied_row_groups_is_as_one_that_was_written_anew(tmp_path, seed, format):
    rng = random.Random(seed)
    data = columns(rng)
    codec = ("zstd", "snappy", "none", "gzip")[seed // 2 % 4]
    table = created(tmp_path, format, data, codec)
    store, view = table.scan().store, table.scan().view
    (task,) = view.scan()
    fields, layout = view.rewriting()
    before = row_groups(store, task.paths[0])
    assert len(before) > 4
    for low in (0, ROWS - 9, rng.randrange(ROWS - 9), -9):  # In the first row group, in the last, in any, in none.
        goes = sql_text.parse(f"id >= {low} and id < {low + 9}")
        (made,) = worker.rewrite(store, RewriteTask((task,), layout, delete_where=bind(goes, fields)))
        left = list(worker.read(store, replace(task, predicate=bind(negated(low), fields))))
        (anew,) = worker.write(store, left, layout)
        assert without_sizes(made) == without_sizes(anew), (seed, low)
        read = replace(task, paths=(made.path,), row_counts=(made.row_count,), sizes_bytes=(made.size_bytes,))
        found = pa.Table.from_batches(worker.read(store, read))
        assert comparable(found).equals(comparable(pa.Table.from_batches(left))), (seed, low)
        after = row_groups(store, made.path)
        assert len(set(before) & set(after)) >= len(before) - (low >= 0) * 2, (seed, low)
        judge = duckdb.read_parquet(f"{store.root}/{made.path}".removeprefix("file://")).to_arrow_table()
        assert judge["id"].equals(found["id"])
        assert judge.num_columns == found.num_columns
        assert len(made.split_offsets) == len(after)
        assert list(made.split_offsets) == sorted(made.split_offsets)


def negated(low):
    return sql_text.parse(f"id < {low} or id >= {low + 9}")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_verbs_copy_what_they_leave_and_nothing_that_a_table_now_holds_otherwise(tmp_path, format):
    words = pa.array([f"w{i % 20}" for i in range(ROWS)])
    expected = pa.table(
        {"id": np.arange(ROWS), "w": words, "x": np.arange(ROWS) / 8, "p": ["a"] * ROWS, "v": np.arange(ROWS)}
    )
    expected = expected.append_column("l", pa.array([["x", None]] * ROWS))
    table = created(tmp_path, format, expected)

    def alike(verb):
        """Of how many row groups of the table's file a file with the same bytes was there before, and how many there are."""
        before = row_groups(table.scan().store, the_file(table))
        verb()
        found = table.scan().to_arrow()
        assert comparable(found).equals(comparable(expected.cast(found.schema)))
        after = row_groups(table.scan().store, the_file(table))
        return len(set(before) & set(after)), len(after)

    def counted(id):
        """Add one to the `v` of a row."""
        nonlocal expected
        place, v = expected.column_names.index("v"), expected["v"]
        expected = expected.set_column(place, "v", pc.if_else(pc.equal(expected["id"], id), pc.add(v, 1), v))
        return expected.filter(pc.equal(expected["id"], id))

    def update(id):
        counted(id)
        return lambda: table.update({"v": "v + 1"}, where=f"id = {id}")

    expected = expected.filter(pc.not_equal(expected["id"], 3000))
    copied, groups = alike(lambda: table.delete("id = 3000"))
    assert copied == groups - 1 > 2
    source = counted(77)
    assert alike(lambda: table.merge_into(source, "t.id = s.id").when_matched().update_all().merge())[0] == groups - 1
    assert alike(update(5000))[0] == groups - 1
    table.alter().add_column("more", "int").commit()
    expected = expected.append_column("more", pa.nulls(len(expected), pa.int32()))
    assert alike(update(5))[0] == 0  # The file lacks a column.
    copied, groups = alike(update(6))
    assert copied == groups - 1 > 2
    table.alter().set_properties({CODEC[format]: "gzip"}).commit()
    assert alike(update(7))[0] == 0
    table.alter().rename_column("id", "n").rename_column("v", "id").rename_column("n", "v").commit()
    names = {"id": "v", "v": "id"}
    expected = expected.rename_columns([names.get(name, name) for name in expected.column_names])
    expected = expected.filter(pc.not_equal(expected["v"], 9))
    assert alike(lambda: table.delete("v = 9"))[0] == 0


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_compaction_copies_large_row_groups_and_writes_small_ones_anew(tmp_path, format):
    rng = random.Random(3)
    properties = {CODEC[format]: "none" if format == "paimon" else "uncompressed"}
    schema = pa.schema([("id", pa.int64()), ("raw", pa.binary())])
    table = Lake(str(tmp_path)).create_table("a.b", schema, format=format, properties=properties)
    parts = [
        pa.table({"id": range(i * 100, i * 100 + n), "raw": [rng.randbytes(50_000) for _ in range(n)]})
        for i, n in enumerate((90, 2, 3, 90, 1))
    ]
    for part in parts:
        table.append(part)
    paths = [path for task in table.scan().plan() for path in task.paths]
    before = [group for path in paths for group in row_groups(table.scan().store, path)]
    table.compact(full=True)
    after = row_groups(table.scan().store, the_file(table))
    assert {group for group in before if sum(map(len, group)) > 4 << 20} <= set(after)
    assert len(before) == 5
    assert len(after) == 4
    found = table.scan().to_arrow()
    assert found.sort_by("id").equals(pa.concat_tables(parts).cast(found.schema).sort_by("id"))


def test_files_with_bloom_filters_are_written_anew_as_these_are_made_of_rows(tmp_path):
    words = [f"w{i * 7919 % ROWS}" for i in range(ROWS)]
    data = pa.table({"id": np.arange(ROWS), "w": words, "v": [b"0123456789" * 6] * ROWS})
    properties = {SIZE["paimon"]: LEAST, "file-index.bloom-filter.columns": "w"}
    table = Lake(str(tmp_path)).create_table("a.b", data.schema, format="paimon", properties=properties)
    table.append(data)
    assert len(row_groups(table.scan().store, the_file(table))) > 4
    table.delete("id = 3000")
    for id in (0, 10, ROWS - 1):
        assert table.scan(where=f"w = '{words[id]}'").to_arrow()["id"].to_pylist() == [id]
    assert table.scan(where=f"w = '{words[3000]}'").count() == 0
    assert list(table.scan(where="w = 'w17x'").plan()) == []  # Between the bounds, and no such value.


def test_row_groups_of_a_file_from_before_partitions_go_to_where_their_rows_belong(tmp_path):
    properties = {SIZE["iceberg"]: LEAST}
    half = ROWS // 2
    data = pa.table(
        {"id": np.arange(ROWS), "p": ["a"] * (half + 9) + ["b"] * (half - 9), "v": [b"0123456789" * 6] * ROWS}
    )
    table = Lake(str(tmp_path)).create_table("a.b", data.schema, format="iceberg", properties=properties)
    table.append(data)
    before = row_groups(table.scan().store, the_file(table))
    table.alter().add_partition_field("p").commit()
    table.delete("id = 7")
    left = data.filter(pc.not_equal(data["id"], 7))
    for value in "ab":
        (task,) = table.scan(where=f"p = '{value}'").plan()
        found = pa.Table.from_batches(worker.read(table.scan().store, task)).sort_by("id")
        assert found.equals(left.filter(pc.equal(left["p"], value)).cast(found.schema))
        assert len(set(before) & set(row_groups(table.scan().store, *task.paths)))


def test_a_page_that_is_damaged_is_not_copied(tmp_path):
    table = created(tmp_path, "paimon", columns(random.Random(5)))
    path, root = the_file(table), Path(table.scan().store.root.removeprefix("file://"))
    data = bytearray((root / path).read_bytes())
    chunk = pq.read_metadata(root / path).row_group(1).column(1)
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= (
        1  # Of a row group and a column that nothing is asked of.
    )
    (root / path).write_bytes(data)
    with pytest.raises(CorruptFile, match=f"{path}.*(damaged|read)"):
        table.delete("id = 0")
    (task,) = table.scan().plan()
    assert task.paths == (path,)
