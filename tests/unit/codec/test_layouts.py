"""Arrays of other libraries, in any layout, become the values they hold; what is no array of its type is refused."""

import random

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.codec import layouts
from lakeformat.codec.arrow import fields_from_arrow, from_arrow
from lakeformat.engines.arrow import batches
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Kind, scalar
from tests.unit.foreign_layouts import SCALARS, Labelled, encoded, random_type, random_value

FORMATS = ["iceberg", "paimon"]


@pytest.mark.parametrize("seed", range(50))
def test_any_layout_becomes_the_values_it_holds(seed):
    for number in range(60):
        rng = random.Random(f"{seed} {number}")
        type = random_type(rng)
        values = [random_value(rng, type) for _ in range(rng.randint(0, 30))]
        array = encoded(values, type, rng)
        plain = layouts.plain(array)
        plain.validate(full=True)
        assert plain.to_pylist() == values, (seed, number, array.type)
        assert plain.type == layouts.plain_type(array.type)
        assert layouts.plain(plain) is plain
        pieces = list(layouts.plain_batches(pa.record_batch([array], ["a"]), 200))
        assert [value for piece in pieces for value in piece["a"].to_pylist()] == values, (seed, number, array.type)
        assert all(piece.num_rows == 1 or piece.nbytes <= 400 for piece in pieces), (seed, number, array.type)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("files", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_verb_stores_the_values_of_any_layout(tmp_path, format, files):
    lake = Lake(tmp_path)
    properties = {{"iceberg": "write.format.default", "paimon": "file.format"}[format]: files}
    scalars = [type for type in SCALARS if (format, files, type) != ("paimon", "orc", pa.binary(3))]
    for number in range(8):
        rng = random.Random(f"verbs {number}")
        count, types = rng.randint(1, 20), [random_type(rng, scalars=scalars) for _ in range(3)]
        names = [f"c{i}" for i in range(len(types))]
        schema = pa.schema([("id", pa.int64()), *zip(names, types, strict=True)])

        def rows(ids):
            columns = [[random_value(rng, type) for _ in ids] for type in types]  # noqa: B023
            arrays = [encoded(column, type, rng) for column, type in zip(columns, types, strict=True)]  # noqa: B023
            listed = [dict(zip(schema.names, row, strict=True)) for row in zip(ids, *columns, strict=True)]  # noqa: B023
            return pa.table([encoded(list(ids), pa.int64(), rng), *arrays], names=schema.names), listed  # noqa: B023

        table = lake.create_table(f"d.t{number}", schema, format=format, properties=properties)
        data, expected = rows(range(count))
        table.append(data)
        assert table.scan().to_arrow().to_pylist() == expected, number
        data, changed = rows(range(count // 2, count + 3))
        table.merge_into(data, "t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()
        result = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        assert result == [*expected[: count // 2], *changed], number


def test_lists_that_reach_beyond_their_elements_are_refused():
    values = pa.array([1, 2, 3])
    for offset, size in ((2, 2), (-1, 2), (0, -1), (2**31 - 1, 1)):
        buffers = [None, *(pa.py_buffer(np.array([0, number], np.int32)) for number in (offset, size))]
        view = pa.Array.from_buffers(pa.list_view(pa.int64()), 2, buffers, children=[values])
        with pytest.raises(InvalidInput, match=r"beyond|not valid Arrow"):
            list(batches(pa.table({"a": view})))
        with pytest.raises(InvalidInput, match="beyond"):
            layouts.plain(view)
    offsets = pa.py_buffer(np.array([0, 9, 2], np.int32))
    listed = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, offsets], children=[values])
    with pytest.raises(InvalidInput, match=r"beyond|not valid Arrow"):
        list(batches(pa.table({"a": listed})))


def test_values_of_null_lists_are_no_values(tmp_path):
    """A list of a fixed size has elements below a null, which need not be values."""
    kind = pa.list_(pa.field("element", pa.int64(), nullable=False), 2)
    column = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, None, None]), type=kind, mask=pa.array([False, True]))
    table = Lake(tmp_path).create_table("d.t", pa.schema([("a", pa.list_(kind.value_field))]), format="iceberg")
    table.append(pa.table({"a": column}))
    assert table.scan().to_arrow()["a"].to_pylist() == [[1, 2], None]


@pytest.mark.parametrize("format", FORMATS)
def test_polars_frames_of_all_types(tmp_path, format):
    frame = pl.DataFrame(
        {
            "category": pl.Series(["x", None, "y"], dtype=pl.Categorical),
            "enum": pl.Series(["y", "z", "y"], dtype=pl.Enum(["y", "z"])),
            "list": pl.Series([["a"], None, ["long enough for a buffer", None]]),
            "array": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
            "categories": pl.Series([["a", "b"], [], None], dtype=pl.List(pl.Categorical)),
            "struct": pl.Series([{"a": "x", "b": [1]}, None, {"a": None, "b": []}]),
            "decimal": pl.Series(["1.5", None, "-2.25"]).cast(pl.Decimal(38, 4)),
            "binary": pl.Series([b"x", None, b"y" * 20]),
        }
    )
    expected = frame.slice(1).to_dicts()
    lake = Lake(tmp_path)
    schema = pa.schema(frame.slice(1).to_arrow().schema)
    lake.create_table_as("d.t", frame.slice(1), schema, format=format)
    table = lake.table("d.t")
    assert table.scan().to_arrow().to_pylist() == expected
    table.overwrite(frame.slice(1))
    assert table.scan().to_polars().to_dicts() == expected


def test_extension_types_have_the_table_type_of_what_they_are():
    assert from_arrow(pa.list_(pa.uuid())).element.type == scalar(Kind.UUID)
    assert from_arrow(pa.dictionary(pa.int8(), pa.uuid())) == scalar(Kind.UUID)
    assert from_arrow(pa.bool8()) == scalar(Kind.BOOLEAN)
    assert from_arrow(pa.json_()) == scalar(Kind.STRING)
    assert from_arrow(pa.run_end_encoded(pa.int32(), pa.string_view())) == scalar(Kind.STRING)
    assert str(from_arrow(pa.large_list_view(pa.string_view()))) == "array<string>"
    for unknown in (
        Labelled(pa.int64()),
        pa.list_(Labelled(pa.int64())),
        pa.opaque(pa.binary(16), "hugeint", "DuckDB"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"extension type .* give its storage"):
            from_arrow(unknown)
        with pytest.raises(UnsupportedFeature, match=r"^column odd: Arrow's extension type"):
            fields_from_arrow(pa.schema({"id": pa.int64(), "odd": unknown}))


def test_sql_over_frames_of_any_layout(tmp_path):
    lake, count = Lake(tmp_path), 0
    for number in range(60):
        rng = random.Random(f"sql {number}")
        type = random_type(rng)
        if "map" in str(type):  # DuckDB refuses keys that repeat.
            continue
        values = [random_value(rng, type) for _ in range(7)]
        frame = pa.table({"id": range(7), "a": encoded(values, type, rng)})
        result = lake.sql("select a from f order by id", f=frame).to_arrow()["a"].to_pylist()
        assert result == values, (number, frame.schema)
        count += 1
    assert count > 20


def test_rows_within_rows_of_several_batches_reach_duckdb(tmp_path):
    """Batches of merged rows are slices, in which DuckDB reads a row within a row from the start of the buffer."""
    ids = pa.array(np.arange(150_000))
    inner = pa.StructArray.from_arrays([ids], ["x"])
    rows = pa.table({"id": ids, "a": pa.StructArray.from_arrays([inner], ["y"])})
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), rows.schema.field("a")])
    lake = Lake(tmp_path)
    table = lake.create_table("d.t", schema, primary_key=["id"], properties={"bucket": "1"})
    table.upsert(rows)
    table.upsert(rows.slice(0, 10))
    for result in (lake.sql("select id, a from d.t").to_arrow(), table.scan().to_duckdb().to_arrow_table()):
        nested = result["a"].combine_chunks().field(0).field(0)
        assert nested.equals(result["id"].combine_chunks())
    other = lake.create_table("d.u", schema, format="iceberg")
    other.append(rows)
    assert table.scan().checksum() == other.scan().checksum()
