"""A Dagster partition as table partitions: every kind of partitions, every type of column, and what is refused."""

import itertools
from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster.partition_keys import Window, columns_of, indexes_of, partition_specs, predicate_of
from lakeformat.errors import InvalidInput
from lakeformat.model import predicate
from tests.row_conditions import value_of

TEXT, INT, DATE, WALL, INSTANT = pa.string(), pa.int32(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
DAILY = dg.DailyPartitionsDefinition("2013-01-01")
HOURLY = dg.HourlyPartitionsDefinition("2013-01-01-00:00")
WEEKLY = dg.WeeklyPartitionsDefinition("2013-01-01")
MONTHLY = dg.MonthlyPartitionsDefinition("2013-01-01")
FROM_SIX = dg.DailyPartitionsDefinition("2013-01-01", hour_offset=6)
WEEKS_FROM_THREE = dg.WeeklyPartitionsDefinition("2013-01-01", hour_offset=3, day_offset=1, timezone="America/New_York")
FROM_THE_15TH = dg.MonthlyPartitionsDefinition("2013-01-01", day_offset=15)
BERLIN = dg.HourlyPartitionsDefinition("2013-01-01-00:00", timezone="Europe/Berlin")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us", "7"])
CELLS = dg.MultiPartitionsDefinition({"day": DAILY, "region": REGIONS})
HOURLY_CELLS = dg.MultiPartitionsDefinition({"time": HOURLY, "region": REGIONS})

ONE_KEY = [
    (DAILY, "2013-01-31", "dt", {"dt": TEXT}, [{"dt": "2013-01-31"}]),
    (DAILY, "2013-01-31", "dt", {"dt": DATE}, [{"dt": date(2013, 1, 31)}]),
    (DAILY, "2013-01-31", {"date": "dt"}, {"dt": INT}, [{"dt": 20130131}]),
    (DAILY, "2013-01-31", "dt", {"dt": WALL}, [{"dt": datetime(2013, 1, 31)}]),
    (DAILY, "2013-01-31", {"date": "dt"}, {"dt": WALL}, [{"dt": datetime(2013, 1, 31)}]),
    (
        HOURLY,
        "2013-01-31-05:00",
        {"date": "dt", "hour": "h"},
        {"dt": DATE, "h": INT},
        [{"dt": date(2013, 1, 31), "h": 5}],
    ),
    (
        HOURLY,
        "2013-01-31-05:00",
        {"date": "dt", "hour": "h"},
        {"dt": TEXT, "h": TEXT},
        [{"dt": "2013-01-31", "h": "05"}],
    ),
    (HOURLY, "2013-01-31-05:00", "key", {"key": TEXT}, [{"key": "2013-01-31-05:00"}]),
    (
        BERLIN,
        "2013-01-31-05:00",
        {"start": "at"},
        {"at": INSTANT},
        [{"at": datetime(2013, 1, 31, 4, tzinfo=UTC)}],
    ),
    (BERLIN, "2013-01-31-05:00", {"start": "at"}, {"at": WALL}, [{"at": datetime(2013, 1, 31, 5)}]),
    (
        DAILY,
        "2013-01-31",
        {"window": "at"},
        {"at": WALL},
        [{"at": Window(datetime(2013, 1, 31), datetime(2013, 2, 1))}],
    ),
    (
        BERLIN,
        "2013-03-31-01:00",
        {"window": "at"},
        {"at": INSTANT},
        [{"at": Window(datetime(2013, 3, 31, 0, tzinfo=UTC), datetime(2013, 3, 31, 1, tzinfo=UTC))}],
    ),
    (WEEKLY, "2013-01-06", {"window": "dt"}, {"dt": DATE}, [{"dt": Window(date(2013, 1, 6), date(2013, 1, 13))}]),
    (WEEKLY, "2013-01-06", "week", {"week": DATE}, [{"week": date(2013, 1, 6)}]),
    (WEEKLY, "2013-01-06", {"days": "dt"}, {"dt": TEXT}, [{"dt": f"2013-01-{day:02d}"} for day in range(6, 13)]),
    (FROM_SIX, "2013-02-01", {"date": "dt"}, {"dt": DATE}, [{"dt": date(2013, 2, 1)}]),
    (WEEKS_FROM_THREE, "2013-02-04", {"date": "dt"}, {"dt": TEXT}, [{"dt": "2013-02-04"}]),
    (FROM_THE_15TH, "2013-02-15", {"month": "m"}, {"m": TEXT}, [{"m": "2013-02"}]),
    (MONTHLY, "2013-02-01", {"month": "m"}, {"m": TEXT}, [{"m": "2013-02"}]),
    (MONTHLY, "2013-02-01", {"month": "m"}, {"m": INT}, [{"m": 201302}]),
    (MONTHLY, "2013-02-01", {"month": "m"}, {"m": DATE}, [{"m": date(2013, 2, 1)}]),
    (MONTHLY, "2013-02-01", {"year": "y", "month": "m"}, {"y": INT, "m": TEXT}, [{"y": 2013, "m": "2013-02"}]),
    (REGIONS, "eu", "region", {"region": TEXT}, [{"region": "eu"}]),
    (REGIONS, "7", {"key": "number"}, {"number": INT}, [{"number": 7}]),
    (dg.DynamicPartitionsDefinition(name="files"), "a.csv", "file", {"file": TEXT}, [{"file": "a.csv"}]),
    (
        CELLS,
        "2013-01-31|eu",
        {"day": "dt", "region": "r"},
        {"dt": DATE, "r": TEXT},
        [{"dt": date(2013, 1, 31), "r": "eu"}],
    ),
    (
        HOURLY_CELLS,
        "us|2013-01-31-05:00",
        {"time": {"date": "dt", "hour": "h"}, "region": "r"},
        {"dt": TEXT, "h": INT, "r": TEXT},
        [{"dt": "2013-01-31", "h": 5, "r": "us"}],
    ),
]


@pytest.mark.parametrize(("definition", "key", "partition_by", "types", "expected"), ONE_KEY)
def test_a_key_stands_for_table_partitions_with_values_of_the_columns_types(
    definition, key, partition_by, types, expected
):
    assert partition_specs(definition, [key], partition_by, types) == {key: tuple(expected)}
    assert set(columns_of(partition_by)) == set(expected[0])


@pytest.mark.parametrize(("day", "hours"), [("2013-03-31", 23), ("2013-10-27", 24), ("2013-10-28", 24)])
def test_a_day_over_hourly_table_partitions_has_the_hours_that_the_clock_shows(day, hours):
    berlin = dg.DailyPartitionsDefinition("2013-01-01", timezone="Europe/Berlin")
    found = partition_specs(berlin, [day], {"date": "dt", "hours": "h"}, {"dt": TEXT, "h": INT})[day]
    assert len(found) == hours
    assert {spec["dt"] for spec in found} == {day}


QUARTERS = dg.TimeWindowPartitionsDefinition(
    cron_schedule="*/15 * * * *", start="2013-01-01-00:00", fmt="%Y-%m-%d-%H:%M"
)

REFUSED = [
    (HOURLY, ["2013-01-31-05:00"], {"date": "dt"}, {"dt": TEXT}, "shares"),
    (HOURLY, ["2013-01-31-05:00"], "dt", {"dt": INT}, "shares"),
    (DAILY, ["2013-02-15"], {"month": "m"}, {"m": TEXT}, "shares"),
    (MONTHLY, ["2013-02-01"], {"year": "y"}, {"y": INT}, "shares"),
    (WEEKS_FROM_THREE, ["2013-02-04"], {"days": "dt"}, {"dt": TEXT}, "shares .*map its time, {'window': ...}"),
    (BERLIN, ["2013-10-27-02:00"], {"date": "dt", "hour": "h"}, {"dt": TEXT, "h": INT}, "UTC if the clock is set"),
    (HOURLY, ["2013-01-31-05:00"], {"hour": "h"}, {"h": INT}, "each day has the same 'hour'.*map 'date' too"),
    (DAILY, ["2013-01-31"], {"hours": "h"}, {"h": INT}, "map 'date' too"),
    (
        QUARTERS,
        ["2013-01-31-05:15"],
        {"date": "dt", "minute": "m"},
        {"dt": TEXT, "m": INT},
        "each hour has.*map 'hour' too",
    ),
    (dg.StaticPartitionsDefinition(["1", "01"]), ["01"], "n", {"n": INT}, "'1' and '01' both stand for 1"),
    (dg.StaticPartitionsDefinition(["1", "01"]), ["1", "01"], "n", {"n": INT}, "both stand for"),
    (HOURLY, ["2013-01-31-05:00"], {"window": "dt"}, {"dt": DATE}, "begins or ends within a day"),
    (DAILY, ["2013-01-31"], {"window": "dt"}, {"dt": TEXT}, "use a timestamp or date column"),
    (REGIONS, ["eu"], "n", {"n": INT}, "'eu' is not a int32"),
    (REGIONS, ["eu"], {"date": "dt"}, {"dt": TEXT}, "one part, 'key'"),
    (DAILY, ["2013-01-31"], {"day": "dt"}, {"dt": TEXT}, "no part 'day'.*there are date, days"),
    (DAILY, ["2013-01-31"], {"date": "dt"}, {"ts": TEXT}, r"\['dt'\].*does not have.*\['ts'\]"),
    (DAILY, ["2013-01-31"], {"date": "dt"}, {"dt": pa.float64()}, "no form of type double"),
    (CELLS, ["2013-01-31|eu"], {"day": "dt"}, {"dt": TEXT}, r"each dimension: day, region"),
]


@pytest.mark.parametrize(("definition", "keys", "partition_by", "types", "message"), REFUSED)
def test_a_mapping_that_would_destroy_a_neighbour_or_makes_no_sense_is_refused(
    definition, keys, partition_by, types, message
):
    with pytest.raises(InvalidInput, match=message):
        partition_specs(definition, keys, partition_by, types)


def test_the_predicate_holds_for_exactly_the_partitions_asked_for():
    keys = ["2013-01-31|eu", "2013-02-01|us"]
    mapping, types = {"day": "dt", "region": "r"}, {"dt": TEXT, "r": TEXT}
    condition = predicate_of(partition_specs(CELLS, keys, mapping, types), ["dt", "r"])
    rows = [{"dt": dt, "r": r} for dt in ("2013-01-31", "2013-02-01") for r in ("eu", "us")]
    assert [row for row in rows if value_of(condition, row)] == [rows[0], rows[3]]
    assert predicate.is_never(predicate_of({}, ["dt", "r"]))


IN_RANGE = [
    case for case in ONE_KEY if isinstance(case[0], dg.TimeWindowPartitionsDefinition | dg.MultiPartitionsDefinition)
]


@pytest.mark.parametrize(("definition", "key", "partition_by", "types", "expected"), IN_RANGE)
def test_each_row_is_found_in_the_partition_whose_condition_holds_for_it(
    definition, key, partition_by, types, expected
):
    names = columns_of(partition_by)
    around = list(definition.get_partition_keys(current_time=datetime(2013, 4, 1, tzinfo=UTC)))
    position = around.index(key)
    keys = around[max(0, position - 3) : position + 3]
    try:
        specs = partition_specs(definition, keys, partition_by, types)
    except InvalidInput:  # A neighbour that shares a table partition.
        specs = partition_specs(definition, [key], partition_by, types)
    values = {name: [] for name in names}
    for several in specs.values():
        for spec in several:
            for name in names:
                value = spec[name]
                moments = [value.start, value.end] if isinstance(value, Window) else [value]
                values[name] += [*moments, None]
    rows = [tuple(row) for row in itertools.islice(itertools.product(*values.values()), 3000)]
    table = pa.table({name: pa.array([row[n] for row in rows], types[name]) for n, name in enumerate(names)})
    indexes = indexes_of(specs, table).tolist()
    for index, row in zip(indexes, table.to_pylist(), strict=True):
        holding = [n for n, key in enumerate(specs) if value_of(predicate_of({key: specs[key]}, names), row)]
        assert holding == ([] if index == -1 else [index]), row


def test_windows_that_follow_each_other_are_one_condition():
    keys = ["2013-01-02", "2013-01-01", "2013-01-04"]
    specs = partition_specs(DAILY, keys, {"window": "at"}, {"at": WALL})
    condition = predicate_of(specs, ["at"])
    held = [day for day in range(1, 7) if value_of(condition, {"at": datetime(2013, 1, day, 23, 59)})]
    assert held == [1, 2, 4]
    assert not value_of(condition, {"at": datetime(2013, 1, 3)})
    assert value_of(condition, {"at": datetime(2013, 1, 4)})
    assert str(condition).count("'and'") == 2


def test_a_year_of_hours_is_mapped_in_a_blink():
    keys = HOURLY.get_partition_keys_in_range(dg.PartitionKeyRange("2013-01-01-00:00", "2013-12-31-23:00"))
    specs = partition_specs(HOURLY, keys, {"date": "dt", "hour": "h"}, {"dt": TEXT, "h": INT})
    assert len({tuple(spec.values()) for several in specs.values() for spec in several}) == len(keys) == 8760
