"""The assets' pure functions, on the real data; what they should give is counted with Arrow, not with Spark."""

import pyarrow.compute as pc
import pytest

from assets.joined import OBSERVED, join_weather
from assets.marts import delays_by_airport, score_carriers
from assets.nycflights13 import COLUMNS, read, read_days

DAYS = ["2013-01-01", "2013-01-31"]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frames(spark):
    days = {name: spark.createDataFrame(read_days(name, DAYS)) for name in ("flights", "weather")}
    return days | {name: spark.createDataFrame(read(name)) for name in ("airlines", "airports", "planes")}


def test_the_packaged_files_are_read_whole_and_typed():
    assert {name: read(name).num_rows for name in COLUMNS} == {
        "flights": 336_776,
        "weather": 26_115,
        "airlines": 16,
        "airports": 1_458,
        "planes": 3_322,
    }
    assert read("flights")["dep_time"].null_count == 8_255  # Cancelled flights.
    assert pc.min_max(read("flights")["dt"]).as_py() == {"min": "2013-01-01", "max": "2013-12-31"}
    january = [f"2013-01-{day:02d}" for day in range(1, 32)]
    assert read_days("flights", january).num_rows == 27_004


def test_every_flight_keeps_its_row_with_the_weather_of_its_hour(frames):
    joined = join_weather(frames["flights"], frames["weather"])
    rows = joined.toArrow()
    flights = read_days("flights", DAYS)
    assert rows.num_rows == flights.num_rows
    keys = ["dt", "carrier", "flight", "origin"]
    assert rows.group_by(keys).aggregate([]).num_rows == flights.num_rows
    weather = read_days("weather", DAYS).select(["origin", "time_hour", *OBSERVED])
    expected = flights.join(weather, ["origin", "time_hour"], join_type="left outer")
    for name in OBSERVED:
        assert rows[name].null_count == expected[name].null_count
        assert pc.sum(rows[name]).as_py() == pytest.approx(pc.sum(expected[name]).as_py())


def test_delays_are_counted_for_each_day_and_destination(frames):
    rows = delays_by_airport(frames["flights"], frames["airports"]).toArrow()
    flights = read_days("flights", DAYS)
    assert rows.num_rows == flights.group_by(["dt", "dest"]).aggregate([]).num_rows
    assert pc.sum(rows["flights"]).as_py() == flights.num_rows
    assert pc.sum(rows["cancelled"]).as_py() == flights["dep_time"].null_count
    phoenix = rows.filter((pc.field("dt") == "2013-01-01") & (pc.field("dest") == "PHX")).to_pylist()[0]
    landed = flights.filter((pc.field("dt") == "2013-01-01") & (pc.field("dest") == "PHX"))["arr_delay"]
    assert phoenix["airport"] == "Phoenix Sky Harbor Intl"
    assert phoenix["mean_arr_delay"] == pytest.approx(pc.mean(landed).as_py())
    assert phoenix["late_share"] == pytest.approx(pc.mean(pc.greater_equal(landed, 15)).as_py())


def test_an_airport_that_nobody_lists_keeps_its_delays(frames):
    rows = delays_by_airport(frames["flights"], frames["airports"]).toArrow()
    san_juan = rows.filter(pc.field("dest") == "SJU")
    assert san_juan.num_rows == 2
    assert san_juan["airport"].null_count == 2


def test_carriers_are_scored_by_month(frames):
    rows = score_carriers(frames["flights"], frames["airlines"], frames["planes"]).toArrow()
    flights = read_days("flights", DAYS)
    assert set(rows["month"].to_pylist()) == {"2013-01"}
    assert sorted(rows["carrier"].to_pylist()) == sorted(set(flights["carrier"].to_pylist()))
    assert pc.sum(rows["flights"]).as_py() == flights.num_rows
    flown = flights.filter(pc.is_valid(flights["dep_time"])).join(
        read("planes").select(["tailnum", "seats"]), ["tailnum"], join_type="inner"
    )
    assert pc.sum(rows["seats"]).as_py() == pc.sum(flown["seats"]).as_py()
    united = rows.filter(pc.field("carrier") == "UA").to_pylist()[0]
    assert united["airline"] == "United Air Lines Inc."
