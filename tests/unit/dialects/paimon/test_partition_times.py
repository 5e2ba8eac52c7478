"""The time that a partition names is the one that Java reads, or none."""

import datetime
import logging
import random

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.dialects.paimon import partition_times
from lakeformat.errors import InvalidInput
from tests.draw import IS_LONG


def moment(formatter, text):
    properties = {"partition.timestamp-formatter": formatter} if formatter else {}
    return partition_times.moment(properties, {"dt": text})


def millis(text):
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "formatter", "values", "expected"),
    [
        (None, None, {"dt": "2023-01-02", "hour": "5"}, "2023-01-02T00:00:00"),
        (None, None, {"dt": "2023-1-2 3:4:5", "hour": "5"}, "2023-01-02T03:04:05"),
        (None, None, {"dt": "2023-01-02 03:04:05.25"}, "2023-01-02T03:04:05.250"),
        (None, None, {"dt": "2023-02-30"}, "2023-03-02T00:00:00"),
        (None, None, {"dt": "2023-01-02 03:04"}, None),
        (None, None, {"dt": "2023-01-02.1"}, None),
        (None, None, {"dt": "2023-01"}, None),
        (None, None, {"dt": "2023-01-02", "hour": None}, "2023-01-02T00:00:00"),
        ("$dt $hour:00:00", None, {"dt": "2023-01-02", "hour": "5"}, "2023-01-02T05:00:00"),
        ("$dt", None, {"dt": "2023-01-02", "hour": None}, None),
        ("$dt $dth", "yyyyMMdd HH", {"dt": "20230102", "dth": "05"}, "2023-01-02T05:00:00"),
        ("$dt $dth", "yyyyMMdd HH", {"dt": "20230102", "dth": "5"}, None),
        ("$dt $dth", "yyyyMMdd H", {"dt": "20230102", "dth": "5"}, "2023-01-02T05:00:00"),
        (None, "yyyyMMdd", {"dt": "20230102"}, "2023-01-02T00:00:00"),
        (None, "yyyyMMdd", {"dt": "202301"}, None),
        (None, "yyyyMMdd", {"dt": "2023010203"}, None),
        (None, "yyyyMMdd", {"dt": "20230102.5"}, None),
        (None, "yyyyMMdd", {"dt": " 20230102"}, None),
        (None, "yyyyMMdd", {"dt": "2023 1 2"}, None),
        (None, "yyyyMMdd", {"dt": "20231302"}, None),
        (None, "yyyyMMdd", {"dt": "20230231"}, "2023-02-28T00:00:00"),
        (None, "yyyyMM", {"dt": "202301"}, None),
        (None, "yyyy'Q'MM'D'dd", {"dt": "2023Q04D01"}, "2023-04-01T00:00:00"),
        (None, "yyyy-MM-dd'T'HH:mm[:ss]", {"dt": "2023-04-01T24:00"}, "2023-04-02T00:00:00"),
        (None, "yyyyMMddHHmm", {"dt": "202304011260"}, None),
        (None, "yyyyMMdd", {"dt": None}, None),
        (None, "yyyyMMdd", {"dt": ""}, None),
    ],
)
def test_a_text_names_a_time_if_all_of_it_matches(pattern, formatter, values, expected):
    properties = {"partition.timestamp-pattern": pattern, "partition.timestamp-formatter": formatter}
    found = partition_times.moment({k: v for k, v in properties.items() if v}, values)
    assert found == (expected and millis(expected))


@pytest.mark.parametrize("formatter", ["yyyy-QQ", "yyyyMMMdd", "yyMMdd", "yyyyMMddMM", "yyyy[MM", "EEE"])
def test_a_formatter_that_is_not_supported_is_refused(formatter):
    with pytest.raises(InvalidInput, match=r"partition\.timestamp-formatter"):
        moment(formatter, "20230102")


def test_a_partition_that_names_no_time_is_kept_and_named(tmp_path, caplog):
    properties = {"partition.expiration-time": "30 d", "partition.timestamp-formatter": "yyyyMMdd"}
    fields = pa.schema([("id", pa.int64()), ("m", pa.string())])
    table = Lake(str(tmp_path)).create_table("d.t", fields, partition_by=["m"], properties=properties)
    today = datetime.date.today()
    kept = [today.strftime("%Y%m"), today.strftime("%Y%m%d"), "199912", "1999120", None, "x"]
    table.append(pa.table({"id": [*range(6), 6], "m": [*kept, "19991231"]}))
    with caplog.at_level(logging.WARNING, "lakeformat"):
        assert table.expire_partitions().rows_removed == 1
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert "5 partitions name no time" in caplog.text


FORMATTERS = [
    *("yyyyMMdd", "yyyy-MM-dd", "uuuuMMdd HH", "yyyyMMddHHmmss", "yyyyMMdd'T'HHmm", "yyyy/M/d H:m:s", "yyyyMM"),
    *("yyyy-MM-dd[ HH:mm[:ss]]", "yyyy-MM-dd HH:mm:ss.SSS", "MMdd", "yyyyMMdd mm", "yyyyMMdd HHss", "y-M-d"),
    *("yyyy''MM''dd", "ddMMyyyy"),
]
FORMS = [
    *("%Y%m%d", "%Y-%m-%d", "%Y%m%d %H", "%Y%m%d%H%M%S", "%Y%m%dT%H%M", "%Y/%m/%d %H:%M:%S", "%Y%m", "%d%m%Y"),
    *("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S.123", "%Y-%m-%d %H:%M:%S", "%m%d", "%Y'%m'%d"),
]


@pytest.mark.parametrize("seed", range(20))
def test_java_reads_the_same_times(spark, seed):
    """Against `java.time`, with texts that nearly fit."""
    chance = random.Random(seed)
    java = spark._jvm.java.time
    for _ in range(150 if IS_LONG else 40):
        formatter = chance.choice(FORMATTERS)
        day = datetime.datetime(chance.choice([1970, 2000, 2023, 2024]), 2, 28)
        day += datetime.timedelta(hours=chance.randrange(99))
        text = day.strftime(chance.choice(FORMS))
        if chance.random() < 0.6:
            place = chance.randrange(len(text))
            text = (
                text[:place] + chance.choice(["", "0", "1", "3", "9", "x", " "]) + text[place + chance.randrange(2) :]
            )
        assert moment(formatter, text) == _java(java, formatter, text), (formatter, text)


def _java(java, formatter, text):
    form = java.format.DateTimeFormatter.ofPattern(formatter)
    for parse, midnight in ((java.LocalDateTime, ""), (java.LocalDate, "T00:00")):
        try:
            parsed = f"{parse.parse(text, form)}{midnight}"
        except Exception as error:
            if "could not be parsed" not in str(error):
                raise
            continue
        return java.LocalDateTime.parse(parsed).toInstant(java.ZoneOffset.UTC).toEpochMilli()
    return None
