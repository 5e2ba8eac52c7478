"""Flights with what was around them."""

from pyspark.sql import DataFrame

from assets.table import DAILY, FOLLOW_UPSTREAM, table

OBSERVED = ("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib")


def join_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Each flight with the weather at its airport in the hour it was to leave; nulls where none was observed."""
    observed = weather.select("origin", "time_hour", *OBSERVED)
    columns = ["carrier", "flight", "tailnum", "origin", "dest", "time_hour", "dep_delay", "arr_delay"]
    return flights.join(observed, ["origin", "time_hour"], "left").select("dt", *columns, *OBSERVED)


@table(
    group="joined",
    partitions=DAILY,
    partition_by={"date": "dt"},
    unique=["dt", "carrier", "flight", "origin"],
    lineage={"*": "flights", **{name: [f"weather.{name}"] for name in OBSERVED}},
    automation_condition=FOLLOW_UPSTREAM,
)
def flight_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Each flight with the weather at its airport in the hour it was to leave.

    Columns:
    - `dt`: The day of departure, the table's partition.
    - `temp`: °F, as all that follows null where nothing was observed.
    - `dep_delay`: Minutes; early departures are negative.
    - `arr_delay`: Minutes; early arrivals are negative.
    """
    return join_weather(flights, weather)
