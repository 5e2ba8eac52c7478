"""Integers keep all digits on their way through pandas, and floats that may stand for several integers are refused."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.dagster import frames as dagster_frames
from lakeformat.errors import InvalidInput

ID = (1 << 60) + 1
WIDTHS = {pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64"}
NESTED = {
    "list": (pa.list_(pa.int64()), [[ID, None], None, [ID]]),
    "lists": (pa.list_(pa.list_(pa.int64())), [[[ID, None]], [], None]),
    "row": (pa.struct([("a", pa.int64())]), [{"a": ID}, {"a": None}, {"a": ID - 1}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", ID), ("l", None)], None, []]),
    "rows": (pa.list_(pa.struct([("a", pa.int64())])), [[{"a": ID}, {"a": None}], None, []]),
}


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_integers_with_nulls_come_back_through_pandas(tmp_path, format):
    kinds = [pa.int32(), pa.int64()] if format == "iceberg" else WIDTHS
    columns = {f"n{kind}": pa.array([2 ** (kind.bit_width - 1) - 1, None, -1], kind) for kind in kinds}
    columns |= {f"w{kind}": pa.array([2 ** (kind.bit_width - 1) - 1, 0, -1], kind) for kind in kinds}
    columns |= {name: pa.array(values, kind) for name, (kind, values) in NESTED.items()}
    rows = pa.table(columns)
    lake = Lake(tmp_path)
    table = lake.create_table("d.t", rows.schema, format=format)
    table.append(rows)
    for frame in (
        table.scan().to_pandas(),
        lake.sql("select * from d.t").to_pandas(),
        table.changes(from_snapshot=0).to_pandas(),
    ):
        for kind in kinds:
            assert str(frame[f"n{kind}"].dtype) == WIDTHS[kind]
            assert frame[f"w{kind}"].dtype == np.dtype(str(kind))  # As ever, where there is no null.
    for frame in (table.scan().to_pandas(), lake.sql("select * from d.t").to_pandas()):
        assert frame["map"].tolist() == NESTED["map"][1]
        table.overwrite(frame.drop(columns="map"))  # pandas' lists of pairs are no maps to pyarrow.
        names = [name for name in rows.column_names if name != "map"]
        assert table.scan(names).to_arrow().to_pylist() == rows.select(names).to_pylist()
        table.overwrite(rows)


def test_frames_of_any_shape(tmp_path):
    rows = pa.table({"a": pa.array([None, None], pa.int64()), "b": [1, 2]})
    table = Lake(tmp_path).create_table("d.t", rows.schema)
    assert table.scan().to_pandas().shape == (0, 2)
    table.append(rows)
    frame = table.scan().to_pandas()
    assert list(frame.columns) == ["a", "b"]
    assert frame["a"].isna().all()
    assert frame["b"].tolist() == [1, 2]


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
@pytest.mark.parametrize(("dtype", "most"), [("float64", 1 << 53), ("float32", 1 << 24), ("float16", 1 << 11)])
def test_floats_that_may_stand_for_several_integers_are_refused(tmp_path, format, dtype, most):
    schema = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int64()))])
    table = Lake(tmp_path).create_table("d.t", schema, format=format)
    fits = np.array([float(most), float(-most), 0.0], dtype)
    table.append({"id": pa.array(fits)})
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [-most, 0, most]
    beyond = pa.array(np.array([1.0, most * 2.0], dtype))
    for data in ({"id": beyond}, {"l": pa.ListArray.from_arrays([0, 2], beyond)}):
        for write in (table.append, table.overwrite):
            with pytest.raises(InvalidInput, match=r"a float above .* may stand for several integers"):
                write(data)
    with pytest.raises(InvalidInput, match="may stand for several integers"):
        table.update({"id": "cast(9007199254740994 as double)"}, "id = 0")
    assert table.scan().count() == 3


def test_pandas_own_frames_with_nulls(tmp_path):
    table = Lake(tmp_path).create_table("d.t", pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidInput, match="Int64"):
        table.append(pd.DataFrame({"id": [float(ID), None]}))
    table.append(pd.DataFrame({"id": pd.array([ID, None], "Int64")}))
    assert table.scan().to_arrow()["id"].to_pylist() == [ID, None]


def test_frames_that_make_no_columns_are_refused_by_the_library(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    table = Lake(tmp_path).create_table("d.t", schema)
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    frames = {
        "Sparse": pd.DataFrame({"id": pd.arrays.SparseArray([1, 0, 0])}),
        "Duplicate": pd.DataFrame([[1, 2]], columns=["id", "id"]),
        "twice": pa.table({"s": twice}),
    }
    for match, frame in frames.items():
        with pytest.raises(InvalidInput, match=match):
            table.append(frame)


class OfPandas3(pd.DataFrame):
    __module__ = "pandas"  # As version 3 names the module of its frames.


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (OfPandas3([[1, 2]], columns=["a", "a"]), "a"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "a"),
        (pd.DataFrame({"a": ["\ud800"]}, dtype=object), "not Unicode"),
        (pd.DataFrame({"a": [1, "x"]}, dtype=object), "Arrow columns"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([1], name="a")), "index is called"),
    ],
)
def test_frames_of_pandas_are_refused_alike_by_verbs_queries_and_assets(frame, message, tmp_path):
    lake = Lake(str(tmp_path / "w"))
    table = lake.create_table("d.t", pa.schema([("a", pa.string())]))
    for take in (table.append, lambda data: lake.sql("SELECT * FROM f", f=data).to_arrow(), dagster_frames.to_write):
        with pytest.raises(InvalidInput, match=message):
            take(frame)


def test_the_named_index_of_a_pandas_frame_is_a_column_everywhere(tmp_path):
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="key"))
    lake = Lake(str(tmp_path / "w"))
    rows = lake.sql("SELECT key, a FROM f", f=frame).to_arrow()
    assert rows.to_pylist() == [{"key": "x", "a": 1}, {"key": "y", "a": 2}]
    assert sorted(dagster_frames.to_write(frame).column_names) == ["a", "key"]
    assert dagster_frames.to_write(frame.reset_index(drop=True)).column_names == ["a"]
