"""Tags that a Paimon table makes by itself: of each period, as Java's TagAutoCreation makes them."""

import datetime
import time
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, clock


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """A function that makes a table with options and commits at these times of the local clock; it returns its tags."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()

    def at(text, zone="Asia/Kolkata"):
        moment = datetime.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
        return int(moment.timestamp() * 1000)

    def make(times, watermarks=(), name="d.t", **options):
        rows = pa.table({"id": pa.array([1], pa.int64())})
        properties = {f"tag.{key.replace('_', '-')}": value for key, value in options.items()}
        table = Lake(tmp_path).create_table(name, rows.schema, properties=properties)
        for number, text in enumerate(times):
            monkeypatch.setattr(clock, "now_ms", lambda text=text: at(text))
            watermark = at(watermarks[number], "UTC") if number < len(watermarks) else None
            table.append(rows, watermark=watermark)
        listed = table.inspect.tags()
        return table, dict(zip(listed["tag_name"].to_pylist(), listed["snapshot_id"].to_pylist(), strict=True))

    yield make
    monkeypatch.undo()
    time.tzset()


DAYS = [
    "2024-01-01 10:00",
    "2024-01-01 23:59",
    "2024-01-02 00:30",
    "2024-01-02 01:00",
    "2024-01-05 09:00",
    "2024-01-05 10:00",
]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"2023-12-31": 1, "2024-01-01": 3, "2024-01-04": 5}),
        ({"creation_delay": "1 h"}, {"2023-12-31": 1, "2024-01-01": 4, "2024-01-04": 5}),
        (
            {"automatic_completion": "true"},
            {"2023-12-31": 1, "2024-01-01": 3, "2024-01-02": 5, "2024-01-03": 6},
        ),
        ({"num_retained_max": "2"}, {"2024-01-01": 3, "2024-01-04": 5}),
        ({"period_formatter": "without_dashes"}, {"20231231": 1, "20240101": 3, "20240104": 5}),
        (
            {"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"},
            {"2024010109": 1, "2024010122": 2, "2024010123": 3, "2024010200": 4, "2024010508": 5, "2024010509": 6},
        ),
        (
            {"creation_period": "two-hours"},
            {"2024-01-01 08": 1, "2024-01-01 20": 2, "2024-01-01 22": 3, "2024-01-05 06": 5, "2024-01-05 08": 6},
        ),
        (
            {"creation_period_duration": "12 h"},
            {"202312311200": 1, "202401010000": 2, "202401011200": 3, "202401041200": 5},
        ),
    ],
)
def test_the_first_commit_after_a_period_is_tagged(commits, options, expected):
    assert commits(DAYS, automatic_creation="process-time", **options)[1] == expected


def test_watermarks_decide_where_a_table_says_so(commits):
    marks = ["2024-01-01 10:00", "2024-01-01 11:00", "2024-01-02 00:00", "2024-01-02 05:00"]
    assert commits(DAYS[:4], marks, automatic_creation="watermark")[1] == {"2023-12-31": 1, "2024-01-01": 3}
    assert commits(DAYS, name="d.without", automatic_creation="watermark")[1] == {}


def test_batch_writes_move_the_tag_of_their_day(commits):
    assert commits(DAYS, automatic_creation="batch")[1] == {
        "batch-write-2024-01-01": 2,
        "batch-write-2024-01-02": 4,
        "batch-write-2024-01-05": 6,
    }
    assert commits(DAYS, name="d.c", automatic_creation="batch", **{"batch.customized_name": "last%d"})[1] == {
        "last%d": 6
    }


def test_the_procedure_makes_the_tags_of_commits_by_others(commits, tmp_path):
    table, tags = commits(DAYS)
    assert tags == {}
    table.create_tag("mine", 2)
    options = {"tag.automatic-creation": "process-time", "tag.default-time-retained": "90 d"}
    lake = Lake(tmp_path)
    assert lake.sql("CALL sys.trigger_tag_automatic_creation(table => 'd.t')").to_arrow()["result"].to_pylist() == [
        True
    ]
    assert table.inspect.tags().num_rows == 1
    table.alter().set_properties(options).commit()
    lake.sql("CALL sys.trigger_tag_automatic_creation(table => 'd.t')")
    listed = {row["tag_name"]: (row["snapshot_id"], row["retained_ms"]) for row in table.inspect.tags().to_pylist()}
    kept = 90 * 86_400_000
    assert listed == {"mine": (2, None), "2023-12-31": (1, kept), "2024-01-01": (3, kept), "2024-01-04": (5, kept)}
    assert table.create_automatic_tags() == []
    table.alter().set_properties({"tag.period-formatter": "without_dashes"}).commit()
    assert table.create_automatic_tags() == ["20231231", "20240101", "20240104"]
    assert table.scan(tag="20240101").snapshot_id == 3
    with pytest.raises(InvalidInput, match="must not be a number"):
        table.create_tag("77")


def test_a_delay_as_long_as_the_period_is_refused(commits):
    with pytest.raises(InvalidInput, match=r"tag\.creation-delay"):
        commits([], automatic_creation="process-time", creation_delay="24 h")[0].create_automatic_tags()


def test_iceberg_tables_make_none(tmp_path):
    rows = pa.table({"id": [1]})
    table = Lake(tmp_path).create_table("d.i", rows.schema, format="iceberg")
    table.append(rows)
    assert table.create_automatic_tags() == []
