"""Python values become what the column holds without loss, or are refused: never another value."""

import datetime
import itertools
import math
import zoneinfo
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.engines import python_values
from lakeformat.engines.arrow import in_memory

UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=5))
VALUES = [
    *(0, 1, -1, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**70, True),
    *(0.0, 1.0, 1.5, 0.1, 1e300, math.inf, math.nan, float(2**53), float(2**53 + 2), np.float32(0.1), np.int8(5)),
    *(Decimal(3), Decimal("1.5"), Decimal("1.005"), Decimal("NaN"), Decimal("1E+40")),
    *(datetime.date(2020, 1, 1), datetime.time(1, 2, 3, 4000), datetime.time(1, 2, 3, 4), datetime.time(1, tzinfo=UTC)),
    *(datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, 5, 0, 0, 1), datetime.datetime(1, 1, 1)),
    *(datetime.datetime(2020, 1, 1, tzinfo=UTC), datetime.datetime(2020, 1, 1, 3, tzinfo=EAST)),
    *(pd.Timestamp(1), pd.Timestamp(1000), pd.Timestamp(1001, tz="UTC"), np.datetime64("2020-01-01T00:00:00.000001")),
    *("a", b"a", "1", None),
]
TYPES = [
    *(pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 0)),
    *(pa.date32(), pa.time32("ms"), pa.time64("us"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    *(pa.timestamp("ns"), pa.string(), pa.binary(), pa.bool_()),
]


def is_same(value, stored):
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value) == pd.Timestamp(stored)
    if isinstance(value, float | np.floating) and isinstance(stored, float):
        return math.isclose(value, stored, rel_tol=1e-7) or (math.isnan(value) and math.isnan(stored))
    if type(value) is datetime.datetime and type(stored) is datetime.date:
        return value == datetime.datetime.combine(stored, datetime.time())
    if isinstance(value, str) and isinstance(stored, bytes):
        return value.encode() == stored
    if isinstance(value, bytes) and isinstance(stored, str):
        return value == stored.encode()
    return bool(value == stored)


@pytest.mark.parametrize("nesting", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize("type", TYPES, ids=str)
def test_each_value_is_kept_or_refused_in_each_type(type, nesting):
    outer, wrap, unwrap = {
        "plain": (type, lambda value: value, lambda stored: stored),
        "list": (pa.list_(type), lambda value: [None, value], lambda stored: stored[1]),
        "struct": (pa.struct([("x", type)]), lambda value: {"x": value}, lambda stored: stored["x"]),
        "map": (pa.map_(pa.string(), type), lambda value: {"k": value}, lambda stored: stored[0][1]),
    }[nesting]
    for value in VALUES:
        try:
            column = python_values.column([None, wrap(value)], "v", outer)
        except InvalidInput:
            continue
        stored = unwrap(column.to_pylist()[1])
        assert is_same(value, stored), (value, stored)


@pytest.mark.parametrize("form", ["dict of lists", "list of dicts", "pandas"])
def test_pairs_of_values_are_kept_or_refused_in_the_derived_type(form):
    for pair in itertools.permutations([value for value in VALUES if value is not None], 2):
        if form == "pandas" and any(value != value for value in pair):  # NaN is null there.
            continue
        data = {
            "dict of lists": lambda pair: {"v": list(pair)},
            "list of dicts": lambda pair: [{"v": value} for value in pair],
            "pandas": lambda pair: pd.DataFrame({"v": pd.Series(pair, dtype=object)}),
        }[form](pair)
        try:
            stored = in_memory(data)["v"].to_pylist()
        except InvalidInput:
            continue
        assert all(map(is_same, pair, stored)), (pair, stored)


def test_what_fits_is_taken():
    whole = [1.0, 2, float(2**53), -float(2**53)]
    assert python_values.column(whole, "v", pa.int64()).to_pylist() == [1, 2, 2**53, -(2**53)]
    days = [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 2)]
    assert python_values.column(days, "v", pa.date32()).to_pylist() == [days[0], datetime.date(2020, 1, 2)]
    east = datetime.datetime(2020, 1, 1, 5, tzinfo=EAST)
    assert python_values.column([east], "v", pa.timestamp("us", "UTC")).to_pylist() == [east]
    again = datetime.datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("America/New_York"))
    assert python_values.column([again], "v", pa.timestamp("us", "UTC"))[0].as_py().hour == 6


def test_a_mix_at_which_pyarrow_dies_is_refused():
    mix = [np.datetime64("2020-01-01"), np.int8(5)]
    frame = pd.DataFrame({"v": pd.Series(mix, dtype=object)})
    for data in ({"v": mix}, {"v": [mix]}, {"v": [[mix]]}, [{"v": {"x": value}} for value in mix], frame):
        with pytest.raises(InvalidInput, match=r"numpy\.datetime64 beside numpy\.int8"):
            in_memory(data)


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_nothing_is_stored_of_rows_that_do_not_fit(tmp_path, format):
    fields = pa.schema(
        {"i": pa.int64(), "t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC"), "f": pa.float32()}
        | {"s": pa.struct([("a", pa.int64())])}
    )
    table = Lake(tmp_path).create_table("d.t", fields, format=format)
    noon = datetime.datetime(2020, 1, 1, 12)
    for row, message in [
        ({"i": 1.5}, "1.5 does not fit int64"),
        ({"t": noon.replace(tzinfo=EAST)}, "the wall clock you mean"),
        ({"z": noon}, "set its time zone first"),
        ({"s": {"a": 1, "b": 2}}, "a row has 'b'"),
        ({"s": {"a": 1.5}}, "s.a"),
        ({1: 2}, "columns are named by text"),
        ({"f": 1e300}, "without loss"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            table.append([{"i": 0}, row])
    with pytest.raises(InvalidInput, match="becomes infinite"):
        table.append(pa.table({"f": [1e300]}))
    with pytest.raises(InvalidInput, match="becomes infinite"):
        table.append(pa.table({"i": [1]})).id and table.update({"f": "-1e300"}, where="i = 1")
    assert table.scan(columns=["f"]).to_arrow()["f"].to_pylist() == [None]
    table.overwrite([{"f": math.inf, "t": noon, "z": noon.replace(tzinfo=EAST), "s": {}}])
    (row,) = table.scan().to_arrow().to_pylist()
    assert row == {
        "i": None, "t": noon, "z": noon.replace(hour=7, tzinfo=UTC), "f": math.inf, "s": {"a": None}
    }  # fmt: skip


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_text_that_is_not_utf_8_is_refused_wherever_it_is(tmp_path, format):
    text = pa.array(["a", "b\N{LATIN SMALL LETTER E WITH ACUTE}", "c"])
    data = text.buffers()[2].to_pybytes().replace("\N{LATIN SMALL LETTER E WITH ACUTE}".encode(), b"\xff\xff")
    broken = pa.Array.from_buffers(pa.string(), 3, [None, text.buffers()[1], pa.py_buffer(data)])
    arrays = [broken, broken.cast(pa.large_string()), broken.cast(pa.string_view()), broken.dictionary_encode()]
    arrays += [pa.StructArray.from_arrays([broken], ["s"]), pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), broken)]
    lake = Lake(tmp_path)
    for number, array in enumerate(arrays):
        columns = pa.table({"v": array})
        table = lake.create_table(f"d.t{number}", columns.schema, format=format)
        with pytest.raises(InvalidInput, match="UTF8"):
            table.append(columns)
        assert table.scan().count() == 0


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_types_that_metadata_cannot_say_make_no_table(tmp_path, format):
    lake = Lake(tmp_path)
    for type in (pa.decimal128(5, -2), pa.decimal128(5, 6), pa.binary(0), pa.struct([])):
        for nested in (type, pa.list_(type), pa.struct([("x", type)]), pa.map_(pa.string(), type)):
            with pytest.raises(InvalidInput, match="column v: "):
                lake.create_table("d.t", pa.schema([("k", pa.int64()), ("v", nested)]), format=format)
    assert not lake.exists("d.t")
