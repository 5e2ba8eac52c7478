"""COPY INTO: files are loaded once, whatever is in them, and rows come back from files as they were."""

import gzip
import json
import os
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import AlreadyExists, CommitUnknown, CorruptFile, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.storage import load_history
from tests.simulation.failing import AT_ONCE
from tests.sql.conftest import rows
from tests.unit.s3_server import S3Server

TABLE = "CREATE TABLE t (a INT, b STRING, d DECIMAL(5, 2)) USING {}"


@pytest.fixture(params=["paimon", "iceberg"])
def format(request):
    return request.param


@pytest.fixture
def data(tmp_path):
    """Where a test puts its files."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def sql(lake, format, data):
    """Runs statements that may reach `data`; there is a table `t`."""
    lake.sql(TABLE.format(format))

    def run(text, **more):
        return lake.sql(text.replace("DATA", str(data)), folders=[str(data)], **more)

    return run


def told(result):
    return [tuple(row.values()) for row in result.to_arrow().to_pylist()]


def statuses(result):
    return [(row["file_name"], row["status"], row["rows_loaded"]) for row in result.to_arrow().to_pylist()]


LOAD = "COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV)"


def test_a_file_is_loaded_once(sql, lake, data, format):
    (data / "b.csv").write_text("2,y,2\n")
    (data / "a.csv").write_text("1,x,1.5\n")
    (data / "_SUCCESS").write_text("")
    (data / ".hidden").write_text("nothing")
    made = sql(LOAD)
    assert statuses(made) == [("a.csv", "LOADED", 1), ("b.csv", "LOADED", 1)]
    assert made.snapshot.rows_added == 2
    assert statuses(sql(LOAD)) == [("a.csv", "SKIPPED", 0), ("b.csv", "SKIPPED", 0)]
    (data / "c.csv").write_text("3,z,3\n")
    (data / "b.csv").write_text("22,y,2\n")
    assert statuses(sql(LOAD)) == [("a.csv", "SKIPPED", 0), ("b.csv", "LOADED", 1), ("c.csv", "LOADED", 1)]
    assert [row[0] for row in rows(lake.table("default.t"))] == [1, 2, 22, 3]
    assert len(lake.table("default.t").snapshots()) == 2
    assert statuses(sql(f"{LOAD} FORCE = TRUE PATTERN = '^c'")) == [("c.csv", "LOADED", 1)]
    assert len(rows(lake.table("default.t"))) == 5
    with pytest.raises(NotFound, match="no file whose name has 'xyz'"):
        sql(f"{LOAD} PATTERN = 'xyz'")
    # No table that comes after remembers the files.
    lake.table("default.t").remove_orphan_files(older_than=AT_ONCE)
    assert {status for _, status, _ in statuses(sql(LOAD))} == {"SKIPPED"}
    lake.drop_table("default.t")
    lake.sql(TABLE.format(format))
    assert {status for _, status, _ in statuses(sql(LOAD))} == {"LOADED"}


def test_a_converted_table_knows_its_files(sql, lake, data, format):
    (data / "a.csv").write_text("1,x,1\n")
    sql(LOAD)
    other = {"paimon": "iceberg", "iceberg": "paimon"}[format]
    lake.convert("default.t", other)
    (data / "b.csv").write_text("2,y,2\n")
    assert statuses(sql(LOAD)) == [("a.csv", "SKIPPED", 0), ("b.csv", "LOADED", 1)]
    lake.drop_table("default.t")
    lake.sql(TABLE.format(other))
    assert statuses(sql(LOAD)) == [("a.csv", "LOADED", 1), ("b.csv", "LOADED", 1)]


@pytest.mark.parametrize("format", ["paimon"])
def test_paimons_own_records_count(sql, lake, data, format):
    """As CopyLoadHistoryManager writes them."""
    file = data / "a.csv"
    file.write_text("1,x,1\n")
    sql(LOAD)
    (written,) = (Path(lake.table("default.t").uri.removeprefix("file://")) / "copy-into" / "history").iterdir()
    record = json.loads(written.read_text())
    modified_ms = next(os.scandir(data)).stat().st_mtime_ns // 1_000_000
    assert record == {
        "filePath": f"file:{file}", "fileSize": 6, "lastModified": modified_ms,
        "rowsLoaded": 1, "loadedAt": int(written.name.rpartition("-")[2]), "snapshotId": 1,
    }  # fmt: skip
    written.write_text("{")
    with pytest.raises(CorruptFile, match="check whether the table has the rows of its load"):
        sql(LOAD)


def die(*_):
    raise RuntimeError("the machine is off")


def test_a_load_that_died_after_its_commit_is_not_repeated(sql, lake, data, monkeypatch):
    (data / "a.csv").write_text("1,x,1\n")
    with monkeypatch.context() as patch:
        patch.setattr(load_history, "record", die)
        with pytest.raises(RuntimeError, match="the machine is off"):
            sql(LOAD)
    (data / "b.csv").write_text("2,y,2\n")
    assert statuses(sql(LOAD)) == [("a.csv", "SKIPPED", 0), ("b.csv", "LOADED", 1)]
    assert [row[0] for row in rows(lake.table("default.t"))] == [1, 2]


def test_a_load_whose_commit_nobody_can_see_any_more_is_not_guessed(sql, lake, data, monkeypatch):
    (data / "a.csv").write_text("1,x,1\n")
    with monkeypatch.context() as patch:
        patch.setattr(load_history, "record", die)
        with pytest.raises(RuntimeError, match="the machine is off"):
            sql(LOAD)
    for number in range(2):
        lake.sql(f"INSERT INTO t VALUES ({number}, 'q', 0)")
    lake.table("default.t").expire_snapshots(retain_last=1, older_than=AT_ONCE)
    with pytest.raises(CommitUnknown, match=r"Check whether the table has its rows, then delete .*pending-"):
        sql(LOAD)
    assert len(rows(lake.table("default.t"))) == 3


ODD = {
    "quotes": ('1,"say ""hi"", \\"ho\\"",1\n', [(1, 'say "hi", "ho"', Decimal("1.00"))]),
    "breaks": ('1,"two\nlines",1\r\n2,"three\r\n\n",2\n', [(1, "two\nlines", Decimal(1)), (2, "three\r\n\n", Decimal(2))]),
    "byte order mark": ("\ufeff1,é数,\n", [(1, "é数", None)]),
    "backslashes": ('1,C:\\new,1\n2,"C:\\new\\\\",2\n', [(1, "C:\\new", Decimal(1)), (2, "C:\\new\\", Decimal(2))]),
    "empty fields": (',"",\n\n"",x,""\n', [(None, "", None), (None, "x", None)]),
    "no end of line": ("1,x, +1.50 ", [(1, "x", Decimal("1.50"))]),
    "nothing": ("", []),
    "empty lines": ("\n\n", []),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_odd_files_are_read(sql, lake, data, case):
    text, expected = ODD[case]
    (data / "a.csv").write_bytes(text.encode())
    (data / "b.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert statuses(sql(f"{LOAD} PATTERN = 'a.csv$'")) == [("a.csv", "LOADED", len(expected))]
    assert rows(lake.table("default.t")) == sorted(expected, key=repr)
    assert statuses(sql(f"{LOAD} PATTERN = 'gz$'")) == [("b.csv.gz", "LOADED", len(expected))]


BAD = {
    "1,x\n": "row 1: 2 fields, not 3: '1,x'",
    "1,x,1\n1,2,3,4\n": "row 2: 4 fields, not 3",
    "1,x,1\nq,x,1\n": "row 2: column a: 'q' is not a valid int",
    "2147483648,x,1\n": "row 1: column a: '2147483648' is not a valid int",
    "1.5,x,1\n": "'1.5' is not a valid int",
    "1,x,1234.5\n": "column d: '1234.5' is not a valid decimal",
    "1,x,0.125\n": "column d: '0.125' is not a valid decimal",
    '1,"open,1\n2,y,2\n': "a quote is not closed",
    "1,\udcff,1\n": "row 1: column b: Invalid UTF8",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_rows_are_named_and_nothing_is_loaded(sql, lake, data, text):
    (data / "a.csv").write_text("7,good,7\n")
    (data / "b.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput) as error:
        sql(LOAD)
    assert "b.csv: " in str(error.value)
    assert BAD[text] in str(error.value)
    table = lake.table("default.t")
    assert table.current_snapshot() is None
    assert not [file.path for file in table.stored_files() if file.path.endswith((".parquet", ".orc"))]
    skipped = sql(f"{LOAD} ON_ERROR = SKIP_FILE")
    assert statuses(skipped) == [("a.csv", "LOADED", 1), ("b.csv", "LOAD_FAILED", 0)]
    assert BAD[text] in told(skipped)[1][5]
    assert [row[0] for row in rows(table)] == [7]


def test_bad_rows_are_left_out_on_request(sql, lake, data):
    (data / "a.csv").write_text("1,x,1\nq,x,1\n1,2\n4,y,4\n")
    (data / "b.csv").write_text("none,x,1\n")
    found = told(sql(f"{LOAD} ON_ERROR = CONTINUE"))
    assert found == [
        ("a.csv", "PARTIALLY_LOADED", 2, 4, 2, "row 2: column a: 'q' is not a valid int"),
        ("b.csv", "LOAD_FAILED", 0, 1, 1, "row 1: column a: 'none' is not a valid int"),
    ]
    assert [row[0] for row in rows(lake.table("default.t"))] == [1, 4]
    assert [status for _, status, _ in statuses(sql(f"{LOAD} ON_ERROR = CONTINUE"))] == ["SKIPPED", "LOAD_FAILED"]


JSON = {
    '{"a": 1, "b": "x", "d": 1.5, "more": {"z": 1}}\n\n{"b": null}': [(1, "x", Decimal("1.5")), (None, None, None)],
    '{"a": "1", "b": 2.5, "d": "1"}\n{"a": 2, "b": "y", "d": 2}': [(1, "2.5", Decimal(1)), (2, "y", Decimal(2))],
    '{"a": 1, "b": {"c": [1]}}': [(1, '{"c":[1]}', None)],
    '{"a": 1, "b": "\\u00e9\\n"}': [(1, "é\n", None)],
}


@pytest.mark.parametrize("text", JSON)
def test_json_is_read_by_name(sql, lake, data, text):
    (data / "a.json").write_text(text)
    sql("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = JSON)")
    assert rows(lake.table("default.t")) == sorted(JSON[text], key=repr)


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ('[{"a": 1}]', "", "row 1: no JSON object; MULTI_LINE = TRUE reads arrays"),
        ('[{"a": 1},\n', ", MULTI_LINE = TRUE", "the JSON document ends before it is complete"),
        ('{"a": 1}\n{"a": tru}', "", "row 2: Expecting value"),
        ('{"a": 1}\n{"a": true}', "", "row 2: column a: bool does not fit int"),
        ('{"a": 1}\n{"a": [1]}', "", "column a: '[1]' is not a valid int"),
        ('{"a": 1}\n{"b": "\\ud800"}', "", "row 2: 'utf-8' codec can't encode"),
        ('{"a": 1}\n{"b": "\udcff"}', "", "row 2: 'utf-8' codec can't decode"),
    ],
)
def test_bad_json_is_named(sql, lake, data, text, more, said):
    (data / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput) as error:
        sql(f"COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = JSON{more})")
    assert "a.json: " in str(error.value)
    assert said in str(error.value)
    assert lake.table("default.t").current_snapshot() is None


def test_parquet_is_read_by_name(sql, lake, data):
    pq.write_table(pa.table({"B": [1, 2], "A": pa.array([1, 2], pa.int64()), "more": [[1], [2]]}), data / "a.parquet")
    sql("COPY INTO t FROM 'DATA/a.parquet' FILE_FORMAT = (TYPE = PARQUET)")
    assert rows(lake.table("default.t")) == [(1, "1", None), (2, "2", None)]
    for name, columns, said in (
        ("b", {"a": [1.5]}, "row 1: column a: a value does not fit int without loss"),
        ("c", {"q": [1]}, "none of the columns a, b, d is in the file, which has q"),
        ("d", {"a": [[1]]}, "column a: list<element: int64> does not fit int"),
        ("e", {"a": [1], "A": [2]}, "columns a and A both have the name of column a"),
    ):
        pq.write_table(pa.table(columns), data / f"{name}.parquet")
        with pytest.raises(InvalidInput) as error:
            sql(f"COPY INTO t FROM 'DATA/{name}.parquet' FILE_FORMAT = (TYPE = PARQUET)")
        assert f"{name}.parquet: " in str(error.value)
        assert said in str(error.value)
    (data / "f.parquet").write_text("a,b")
    with pytest.raises(InvalidInput, match=r"f\.parquet: Parquet file size is 3 bytes"):
        sql("COPY INTO t FROM 'DATA/f.parquet' FILE_FORMAT = (TYPE = PARQUET)")


def test_columns_partitions_keys_and_defaults(sql, lake, data, format):
    options = {"paimon": "'primary-key' = 'k,p', 'bucket' = '1'", "iceberg": "'format-version' = '3'"}
    lake.sql(
        f"CREATE TABLE u (k INT NOT NULL, v STRING DEFAULT 'none', p STRING NOT NULL) USING {format} PARTITIONED BY (p) TBLPROPERTIES ({options[format]})"
    )
    (data / "a.csv").write_text("x,1\ny,2\nx,1\n")
    sql("COPY INTO u (P, k) FROM 'DATA' FILE_FORMAT = (TYPE = CSV)")
    expected = [(1, "none", "x"), (1, "none", "x"), (2, "none", "y")]
    assert rows(lake.table("default.u")) == (expected[1:] if format == "paimon" else expected)
    assert rows(lake.sql("SHOW PARTITIONS u")) == [("p=x",), ("p=y",)]
    for columns, said in (
        ("(k, K, p)", "twice"),
        ("(k)", "'p' is NOT NULL"),
        ("(k, p, q)", "q"),
        ("(v, p)", "'k' is NOT NULL"),
    ):
        with pytest.raises((InvalidInput, NotFound), match=said):
            sql(f"COPY INTO u {columns} FROM 'DATA' FILE_FORMAT = (TYPE = CSV)")
    (data / "a.csv").write_text("x,\n")
    with pytest.raises(InvalidInput, match="row 1: column k is NOT NULL"):
        sql("COPY INTO u (p, k) FROM 'DATA' FILE_FORMAT = (TYPE = CSV)")


NESTED = pa.table(
    {
        "i": pa.array([1, None], pa.int32()),
        "s": ['a"b\\c,d\n', ""],
        "f": [0.5, float("inf")],
        "d": pa.array([19000, -1], pa.date32()),
        "t": pa.array([1_600_000_000_123_456, 0], pa.timestamp("us")),
        "z": pa.array([1_600_000_000_123_000, None], pa.timestamp("us", "UTC")),
        "m": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "o": [True, False],
    }
)
LISTS = NESTED.append_column("l", pa.array([[1, None], None])).append_column("r", pa.array([{"x": "q", "y": 1}, None]))


@pytest.mark.parametrize("more", ["", ", COMPRESSION = GZIP"])
@pytest.mark.parametrize("kind", ["CSV", "JSON", "PARQUET"])
def test_rows_come_back_from_files(sql, lake, data, format, kind, more):
    table = NESTED if kind == "CSV" else LISTS
    wanted = lake.create_table("default.x", table.schema, format=format)
    wanted.append(table)
    made = told(sql(f"COPY INTO 'DATA/out' FROM x FILE_FORMAT = (TYPE = {kind}{more})"))
    assert made == [(f"file://{data}/out", 1, 2)]
    lake.create_table("default.y", table.schema, format=format)
    sql(f"COPY INTO y FROM 'DATA/out' FILE_FORMAT = (TYPE = {kind}{more})")
    assert rows(lake.table("default.y")) == rows(wanted)


def test_a_column_alone_keeps_its_nulls(sql, lake, data):
    lake.sql(
        "CREATE TABLE u (a INT) USING paimon; CREATE TABLE v (a INT) USING paimon; INSERT INTO u VALUES (1), (NULL), (2)"
    )
    sql("COPY INTO 'DATA/out' FROM u FILE_FORMAT = (TYPE = CSV)")
    sql("COPY INTO v FROM 'DATA/out' FILE_FORMAT = (TYPE = CSV)")
    assert rows(lake.table("default.v")) == [(1,), (2,), (None,)]


def test_an_export_replaces_files_only_when_told(sql, lake, data):
    (data / "out" / "below").mkdir(parents=True)
    (data / "out" / "below" / "kept.csv").write_text("1")
    (data / "out" / "old.csv").write_text("1")
    export = "COPY INTO 'DATA/out' FROM (SELECT 1 AS a) FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)"
    with pytest.raises(AlreadyExists, match="OVERWRITE = TRUE replaces them"):
        sql(export)
    sql(f"{export} OVERWRITE = TRUE")
    (file,) = (data / "out").glob("*.csv")
    assert file.read_text() == "a\n1\n"
    assert (data / "out" / "below" / "kept.csv").exists()
    with pytest.raises(UnsupportedFeature, match="column b: CSV files have no spelling"):
        sql("COPY INTO 'DATA/more' FROM (SELECT 1 AS a, array(1) AS b) FILE_FORMAT = (TYPE = CSV)")
    with pytest.raises(UnsupportedFeature, match="two columns of one name"):
        sql("COPY INTO 'DATA/more' FROM (SELECT 1 AS a, 2 AS A) FILE_FORMAT = (TYPE = JSON)")
    assert not (data / "more").exists()


def test_no_export_writes_into_the_warehouse(sql, lake, tmp_path, data):
    (data / "link").symlink_to(tmp_path / "warehouse")
    for folder in (tmp_path / "warehouse" / "x", tmp_path, data / "link" / "default.db" / "t"):
        with pytest.raises(InvalidInput, match="is a place of tables"):
            lake.sql(
                f"COPY INTO '{folder}' FROM t FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE", folders=[str(tmp_path)]
            )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("COPY INTO t FROM 'DATA'", "expected FILE_FORMAT"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (SKIP_HEADER = 1)", "FILE_FORMAT needs TYPE"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = XML)", "supported are CSV, JSON and PARQUET"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 2)", "SKIP_HEADER='2': it is 0 or 1"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)", "HEADER: no option for reading CSV files"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV, FIELD_DELIMITER = '||')", "more than one byte"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV, FIELD_DELIMITER = '\"')", "the delimiter must be another sign"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV, COMPRESSION = LZO)", "COMPRESSION='LZO'"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV) ON_ERROR = SKIP_FILE_10", "ON_ERROR = SKIP_FILE_10"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV) PATTERN = '('", "is not a regular expression"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV) FORCE = 1", "it is TRUE or FALSE"),
        ("COPY INTO t FROM 'DATA' FILE_FORMAT = (TYPE = CSV) PURGE = TRUE", "expected PATTERN, FORCE, ON_ERROR"),
        ("COPY INTO t FROM 'DATA/nothing/' FILE_FORMAT = (TYPE = CSV)", "no file lies there"),
        ("COPY INTO t.branch_b FROM 'DATA' FILE_FORMAT = (TYPE = CSV)", "branch"),
        ("COPY INTO 'DATA' FROM (DELETE FROM t) FILE_FORMAT = (TYPE = CSV)", "DELETE"),
        ("COPY INTO 'DATA/x' FROM t FILE_FORMAT = (TYPE = JSON, DATE_FORMAT = 'qq')", "'qq' is not known"),
    ],
)  # fmt: skip
def test_statements_that_are_refused(sql, lake, data, text, said):
    with pytest.raises((InvalidInput, UnsupportedFeature, NotFound)) as error:
        sql(text)
    assert said in str(error.value)
    assert lake.table("default.t").current_snapshot() is None
    assert list(data.iterdir()) == []


def test_an_id_loads_once(sql, lake, data):
    (data / "a.csv").write_text("1,x,1\n")
    first = sql(f"{LOAD} FORCE = TRUE", id="once").snapshot
    assert sql(f"{LOAD} FORCE = TRUE", id="once").snapshot.id == first.id
    assert len(rows(lake.table("default.t"))) == 1


def test_object_storage_with_the_lakes_options(tmp_path):
    with S3Server() as server:
        bucket = server.new_bucket()
        lake = Lake(f"{bucket}/warehouse", **server.options)
        lake.sql("CREATE TABLE t (a INT) USING iceberg; INSERT INTO t VALUES (1), (2)")
        export = "COPY INTO '{}' FROM t FILE_FORMAT = (TYPE = CSV)"
        lake.sql(export.format(f"{bucket.replace('s3', 's3a')}/out"), folders=[f"{bucket}/out"])
        lake.sql(f"COPY INTO t FROM '{bucket}/out/' FILE_FORMAT = (TYPE = CSV)", folders=[f"{bucket}/out/"])
        assert rows(lake.table("default.t")) == [(1,), (1,), (2,), (2,)]
        lake.sql(export.format(tmp_path / "local"), folders=[str(tmp_path)])
        for folder in (f"{bucket}/out2", f"{bucket}2/out", f"{bucket}/out/../warehouse"):
            with pytest.raises((UnsupportedFeature, InvalidInput)):
                lake.sql(export.format(folder), folders=[f"{bucket}/out"])


def test_large_files_are_read_in_parts(sql, lake, data):
    count = 200_000
    (data / "a.csv").write_text("".join(f'{i},"text {i} \\"q\\"",1.25\n' for i in range(count)))
    (data / "a.json").write_text("[" + ",\n".join(f'{{"a": {i}, "b": "x\\\\{i}"}}' for i in range(count)) + "]")
    sql(f"{LOAD} PATTERN = 'csv$'")
    sql("COPY INTO t FROM 'DATA/a.json' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = TRUE)")
    assert told(lake.sql("SELECT count(*), sum(a), min(b), max(d) FROM t WHERE b LIKE 'text%'")) == [
        (count, count * (count - 1) // 2, 'text 0 "q"', Decimal("1.25"))
    ]
    assert told(lake.sql("SELECT count(*), sum(a) FROM t WHERE b LIKE 'x%'")) == [(count, count * (count - 1) // 2)]


@pytest.mark.spark
def test_spark_reads_and_writes_the_same(lake, data, format, spark):
    lake.sql(TABLE.format(format))
    (data / "a.csv").write_text('1,"x\ny",1\nq,x,1\n')
    (data / "b.csv").write_text("2,z,2\n")

    def run(text):
        return lake.sql(text.replace("DATA", str(data)), spark=spark, folders=[str(data)])

    with pytest.raises(InvalidInput, match=r"a\.csv: row 2: column a: 'q' is not a valid int"):
        run(LOAD)
    assert statuses(run(f"{LOAD} ON_ERROR = SKIP_FILE")) == [("a.csv", "LOAD_FAILED", 0), ("b.csv", "LOADED", 1)]
    assert statuses(run(f"{LOAD} ON_ERROR = CONTINUE")) == [("a.csv", "PARTIALLY_LOADED", 1), ("b.csv", "SKIPPED", 0)]
    assert [row[0] for row in rows(lake.table("default.t"))] == [1, 2]
    assert told(run("COPY INTO 'DATA/out' FROM t FILE_FORMAT = (TYPE = JSON)"))[0][2] == 2
    text = "".join(sorted(line for file in (data / "out").iterdir() for line in file.read_text().splitlines(True)))
    assert text == '{"a":1,"b":"x\\ny","d":1.00}\n{"a":2,"b":"z","d":2.00}\n'
    assert told(
        run("COPY INTO 'DATA/none' FROM (SELECT a FROM t WHERE a > 9) FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)")
    )[0][1:] == (1, 0)
    with pytest.raises(UnsupportedFeature, match="no spelling"):
        run("COPY INTO 'DATA/more' FROM (SELECT array(a) AS l FROM t) FILE_FORMAT = (TYPE = CSV)")
    shutil.rmtree(data / "out")
