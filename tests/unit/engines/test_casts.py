"""Evolved columns of Paimon tables: files of one type read as another, as Java's casts do in a JVM whose zone is UTC."""

import datetime as dt
import json

import pyarrow as pa
import pytest

from lakeformat import Field, InvalidInput, Lake, Schema
from lakeformat.codec.arrow import to_arrow
from lakeformat.model.type_text import parse_type


def evolved(root, have, want, values):
    """A table of ids, and `values` of the type `have` in a column that Java then made a `want`."""
    held = parse_type(have)
    t = Lake(root).create_table("d.t", Schema((Field(-1, "id", parse_type("int")), Field(-1, "v", held))))
    rows = {"id": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, to_arrow(held))}
    t.append(pa.table(rows))
    (first,) = root.rglob("schema-0")
    schema = json.loads(first.read_text())
    schema["id"], schema["fields"][1]["type"] = 1, want
    (first.parent / "schema-1").write_text(json.dumps(schema))
    return t


def at(*moment, zone=None):
    return dt.datetime(*moment, tzinfo=zone)


UTC = dt.UTC
ZONED = "TIMESTAMP(6) WITH LOCAL TIME ZONE"


@pytest.mark.parametrize(
    ("have", "want", "values", "expected"),
    [
        # Milliseconds towards the past, then seconds towards 1970.
        ("timestamp(6)", "BIGINT", [-1, -1_000_000, -1_999_999, 1_999_999, None], [0, -1, -2, 1, None]),
        ("timestamp(3)", "INT", [-1, -1001, 1999], [0, -1, 1]),
        ("timestamp_ltz(9)", "INT", [1_700_000_000_999_999_999], [1_700_000_000]),
        ("int", "TIMESTAMP(6)", [-1, 0, None], [at(1969, 12, 31, 23, 59, 59), at(1970, 1, 1), None]),
        ("bigint", ZONED, [253_402_300_799], [at(9999, 12, 31, 23, 59, 59, zone=UTC)]),
        ("timestamp(3)", ZONED, [1, None], [at(1970, 1, 1, 0, 0, 0, 1000, zone=UTC), None]),
        ("timestamp_ltz(6)", "TIMESTAMP(3)", [-1, 1999], [at(1969, 12, 31, 23, 59, 59, 999000), at(1970, 1, 1, 0, 0, 0, 1000)]),
        ("timestamp(6)", "TIME(3)", [-1, 86_400_001_000], [dt.time(23, 59, 59, 999000), dt.time(0, 0, 0, 1000)]),
        ("timestamp_ltz(6)", "STRING", [2, -1, None], ["1970-01-01 00:00:00.000002", "1969-12-31 23:59:59.999999", None]),
        ("timestamp_ltz(3)", "VARCHAR(19)", [1], ["1970-01-01 00:00:00"]),
        *(
            (f"{kind}({digits})", "STRING", [0, 1], [f"1970-01-01 00:00:00{fraction}", f"1970-01-01 00:00:00.{1:0{unit}}"])
            for kind in ("timestamp", "timestamp_ltz")
            for digits, unit, fraction in ((0, 3, ""), (2, 3, ".00"), (3, 3, ".000"), (5, 6, ".00000"), (9, 9, ".000000000"))
        ),
        ("time", "TIMESTAMP(6)", [dt.time(9, 30), None], [at(1970, 1, 1, 9, 30), None]),
        (
            "string",
            ZONED,
            ["2024-01-05 1:2:3.1234569", "2024-1-5", "0001-01-01 00:00:00", None],
            [at(2024, 1, 5, 1, 2, 3, 123456, zone=UTC), at(2024, 1, 5, zone=UTC), at(1, 1, 1, zone=UTC), None],
        ),
        (
            "varchar(30)",
            "TIMESTAMP(3)",
            ["2022-12-12 09:30:00.123456", "1700000000123", "2022-12-12T09:30"],
            [at(2022, 12, 12, 9, 30, 0, 123000), at(2023, 11, 14, 22, 13, 20, 123000), at(2022, 12, 12, 9, 30)],
        ),
        (
            "string",
            "TIME(3)",
            ["09:30:10", "9:3", "23:59:59.9994", "0:0:0.0005", "1000", None],
            [dt.time(9, 30, 10), dt.time(9, 3), dt.time(23, 59, 59, 999000), dt.time(0, 0, 0, 1000), dt.time(0, 0, 1), None],
        ),
    ],
)  # fmt: skip
def test_evolved_columns_are_read_as_java_casts_them(tmp_path, have, want, values, expected):
    t = evolved(tmp_path, have, want, values)
    found = t.scan().to_arrow()
    assert found["v"].to_pylist() == expected
    assert found.schema == t.scan().schema
    missing = [id for id, value in enumerate(expected) if value is None]
    assert t.scan(where="v is null").to_arrow()["id"].to_pylist() == missing


def test_conditions_on_an_evolved_column_see_its_new_values(tmp_path):
    t = evolved(tmp_path, "timestamp(6)", "BIGINT", [5_000_000, 7_000_001])
    assert t.scan(where="v = 7").to_arrow()["id"].to_pylist() == [1]
    assert t.scan(where="v < 6").count() == 1
    assert t.scan(where="v > 100").count() == 0


@pytest.mark.parametrize(
    ("have", "want", "value", "said"),
    [
        ("timestamp(6)", "INT", 1 << 53, "column v: .* cannot become int"),
        ("bigint", "TIMESTAMP(6)", 1 << 60, "column v: .* cannot become timestamp"),
        ("smallint", "TIMESTAMP(6)", 1, "smallint cannot be read as timestamp"),
        ("timestamp(6)", "SMALLINT", 1, "timestamp.* cannot be read as smallint"),
        ("string", ZONED, "soon", "column v: .*'soon'"),
        ("string", ZONED, "1700000000123", "column v: .*'1700000000123'"),
        ("string", ZONED, "2024-02-30 00:00:00", "column v: .*2024-02-30"),
        ("string", "TIME(3)", "23:59:59.9995", "column v: .*a day or more"),
        ("string", "TIME(3)", "25:00:00", "column v: .*25:00:00"),
        ("string", "TIME(3)", "99999999999999999999", "column v: .*99999999999999999999"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, have, want, value, said):
    with pytest.raises(InvalidInput, match=said):
        evolved(tmp_path, have, want, [value]).scan().to_arrow()
