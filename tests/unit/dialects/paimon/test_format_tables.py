"""Paimon's format tables: folders of files that others write, as Java 1.3.1 reads them."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from lakeformat import Lake
from lakeformat.cli.app import run
from lakeformat.dagster.pictures import partitions_picture
from lakeformat.dialects.paimon import metadata
from lakeformat.errors import CorruptFile, CorruptTable, LakeError, UnsupportedFeature
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar

SCHEMA = pa.schema(
    [("id", pa.int64()), ("a", pa.string()), ("x", pa.decimal128(9, 2)), ("d", pa.date32()), ("ts", pa.timestamp("ms")), ("ok", pa.bool_()),
     ("f", pa.float64())]
)  # fmt: skip
KINDS = (scalar(Kind.BIGINT), scalar(Kind.STRING), scalar(Kind.DECIMAL, 9, 2), scalar(Kind.DATE), scalar(Kind.TIMESTAMP, 3),
         scalar(Kind.BOOLEAN), scalar(Kind.DOUBLE))  # fmt: skip
ROWS = [
    (1, 'one, "two"', Decimal("1.50"), dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, 5, 678000), True, 1.5),
    (2, "é\\n", None, None, None, False, None),
    (3, None, Decimal("-0.05"), dt.date(1969, 1, 2), dt.datetime(1969, 1, 2, 3, 4, 5), None, float("inf")),
]
DATA = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], SCHEMA)
CSV = """1,"one, ""two\""",1.50,2024-01-02,2024-01-02 03:04:05.678,true,1.5
2,é\\\\n,,,,false,
3,,-0.05,1969-01-02,1969-01-02 03:04:05,,Infinity
"""
JSON = """{"id":1,"a":"one, \\"two\\"","x":1.50,"d":"2024-01-02","ts":"2024-01-02 03:04:05.678","ok":true,"f":1.5,"more":1}
{"a":"é\\\\n","id":2,"x":null,"ok":false}
{"id":3,"x":-0.05,"d":"1969-01-02","ts":"1969-01-02 03:04:05","f":Infinity}
"""


def described(folder, file_format, **properties):
    """A folder with the schema that says what it is; its tables are partitioned by p and q."""
    names = [Field(i, name, kind) for i, (name, kind) in enumerate(zip(SCHEMA.names, KINDS, strict=True))]
    fields = (*names, Field(7, "p", scalar(Kind.INT)), Field(8, "q", scalar(Kind.STRING)))
    schema = Schema(
        fields, identity("p", "q"), (), {"type": "format-table", "file.format": file_format, **properties}, id=0
    )
    (folder / "d.db" / "t" / "schema").mkdir(parents=True)
    (folder / "d.db" / "t" / "schema" / "schema-0").write_bytes(metadata.emit_schema(schema, 1, "id"))
    return folder / "d.db" / "t"


def put(root, path, file_format):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    match file_format:
        case "parquet":
            pq.write_table(DATA, file)
        case "orc":
            po.write_table(DATA, file)
        case "csv":
            file.write_text(CSV)
        case "json":
            file.write_text(JSON.replace(',"f":Infinity', ""))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "csv", "json"])
def test_files_of_a_folder_are_the_rows_of_a_table(tmp_path, file_format):
    root = described(tmp_path, file_format)
    for path in (
        "p=1/q=a%2Fb/one",
        "p=2/q=__DEFAULT_PARTITION__/two",
        "p=1/q=a%2Fb/_hidden",
        "p=1/q=a%2Fb/.part",
        "_SUCCESS",
    ):
        put(root, path, file_format)
    table = Lake(tmp_path).table("d.t")
    last = ROWS[2] if file_format != "json" else (*ROWS[2][:-1], None)
    rows = [*ROWS[:2], last]
    expected = [(*row, *place) for place in ((1, "a/b"), (2, None)) for row in rows]
    found = table.scan().to_arrow()
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
    assert table.scan().count() == 6
    assert table.scan(["q", "id"], where="p = 1 AND x < 0").to_arrow().to_pylist() == [{"q": "a/b", "id": 3}]
    assert [task.paths for task in table.scan(where="q IS NULL").plan()] == [("p=2/q=__DEFAULT_PARTITION__/two",)]
    assert table.scan(where="p > 2").plan() == []
    assert len(table.scan(limit=4).to_arrow()) == 4
    lake = Lake(tmp_path)
    assert lake.tables("d") == ["d.t"]
    assert lake.sql("SELECT p, count(*) AS n FROM d.t WHERE ok IS NOT NULL GROUP BY p ORDER BY p").to_arrow().to_pydict() == {
        "p": [1, 2], "n": [2, 2]
    }  # fmt: skip
    (shown,) = lake.sql("EXPLAIN SELECT id FROM d.t WHERE p = 1").to_arrow().to_pylist()
    assert (shown["files_read"], shown["rows_read"], shown["files"]) == (1, None, 2)
    partitions = table.inspect.partitions().to_pylist()
    assert [
        (partition["p"], partition["q"], partition["file_count"], partition["row_count"]) for partition in partitions
    ] == [
        (1, "a/b", 1, None),
        (2, None, 1, None),
    ]
    put(root, "p=3/q=new/three", file_format)
    assert table.scan().count() == 9


def test_options_say_how_text_is_written(tmp_path):
    root = described(tmp_path, "csv", **{"csv.include-header": "true", "csv.field-delimiter": ";", "csv.null-literal": "NULL",
                                         "format-table.partition-path-only-value": "true"})  # fmt: skip
    (root / "7" / "z").mkdir(parents=True)
    (root / "7" / "z" / "a").write_text(
        "other;names;x;d;ts;ok;f\n1;a;1.50;2024-01-02;NULL;true;1.5\n2;;NULL;NULL;NULL;NULL;NULL\n"
    )
    (root / "7" / "z" / "empty").write_text("")
    found = Lake(tmp_path).table("d.t").scan(["id", "a", "x", "p", "q"]).to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, "a", Decimal("1.50"), 7, "z"), (2, "", None, 7, "z")]
    for key, value in (("csv.field-delimiter", "||"), ("csv.line-delimiter", ";")):
        put(described(tmp_path / key, "csv", **{key: value}), "p=1/q=1/a", "csv")
        odd = Lake(tmp_path / key).table("d.t").scan()
        with pytest.raises(UnsupportedFeature, match=key):
            odd.to_arrow()


def test_a_file_may_lack_columns_and_must_be_of_the_format(tmp_path):
    root = described(tmp_path, "parquet")
    (root / "p=1" / "q=1").mkdir(parents=True)
    pq.write_table(DATA.select(["f", "id"]), root / "p=1" / "q=1" / "some")
    table = Lake(tmp_path).table("d.t")
    assert table.scan(["id", "a", "f"]).to_arrow()["a"].null_count == 3
    assert table.scan(where="a IS NULL").count() == 3
    (root / "p=1" / "q=1" / "other").write_text(CSV)
    with pytest.raises(CorruptFile, match="other"):
        table.scan().to_arrow()
    (root / "p=1" / "q=1" / "other").unlink()
    (root / "p=x" / "q=1").mkdir(parents=True)
    (root / "p=x" / "q=1" / "some").write_text("")
    with pytest.raises(LakeError, match="'x' is not a valid int"):
        table.scan().to_arrow()
    (root / "p=x" / "q=1" / "some").unlink()
    put(root, "1/2/some", "parquet")
    with pytest.raises(CorruptTable, match="p=value"):
        table.scan().to_arrow()


def test_verbs_that_would_change_the_folder_are_refused(tmp_path):
    root = described(tmp_path, "parquet")
    put(root, "p=1/q=1/a", "parquet")
    table = Lake(tmp_path).table("d.t")
    row = table.scan(limit=1).to_arrow()
    before = sorted(root.rglob("*"))
    for verb in (
        lambda: table.append(row), lambda: table.overwrite(row), lambda: table.overwrite_partitions(row), lambda: table.delete("id = 1"),
        lambda: table.delete("p = 1"), lambda: table.truncate(), lambda: table.update({"a": "'x'"}, "id = 1"), lambda: table.compact(sort_by=["id"]),
        lambda: table.drop_partitions([{"p": 1}]), lambda: table.create_tag("v"), lambda: Lake(tmp_path).rename_table("d.t", "d.u"),
        lambda: table.alter().add_column("n", "int").commit(),
        lambda: table.merge_into(row, "t.id = s.id").when_matched().delete().merge(), lambda: table.inspect.files(),
        lambda: table.create_branch("b"), lambda: Lake(tmp_path).convert("d.t", to="iceberg"),
    ):  # fmt: skip
        with pytest.raises(LakeError):
            verb()
    assert table.compact(full=True) is None
    table.expire_snapshots(retain_last=1)
    assert table.remove_orphan_files(older_than="2100-01-01") == []
    assert sorted(root.rglob("*")) == before
    assert table.scan().count() == 3
    assert "small" in partitions_picture(table.inspect.partitions(), 1).md_str
    assert run(["--warehouse", str(tmp_path), "doctor"]) == run(["--warehouse", str(tmp_path), "show", "d.t"]) == 0
    Lake(tmp_path).drop_table("d.t")  # The files are others'.
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["a"]


@pytest.mark.parametrize(
    ("properties", "word"),
    [({"file.format": "text"}, "files of text|of text files"), ({"type": "object-table"}, "object-table"), ({"path": "/else/where"}, "elsewhere")],
)  # fmt: skip
def test_other_folders_are_refused_by_name(tmp_path, properties, word):
    described(tmp_path, **{"file_format": "parquet"} | properties)
    with pytest.raises(UnsupportedFeature, match=word):
        Lake(tmp_path).table("d.t").scan()
