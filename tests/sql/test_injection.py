"""What SQL cannot reach: files, settings, extensions, other statements; and what no value or name becomes."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, LakeError, NotFound, UnsupportedFeature
from tests.sql.conftest import rows

NASTY = [
    "'",
    "''",
    '"',
    "`",
    "\\",
    "\\'",
    "' OR 1=1 --",
    "'; DROP TABLE shop.orders; --",
    "/* */ -- {0} {{x}} {name} ${x} :id ? $1 %s",
    "ünïcödé 数据 \u202e \x00".replace("\x00", ""),
    "line\nbreak\ttab",
]


@pytest.mark.parametrize("value", NASTY)
def test_a_value_is_a_value(lake, orders, value):
    lake.sql("INSERT INTO shop.orders (id, name, dt) VALUES (:i, :v, '05-01')", params={"i": 77, "v": value})
    assert rows(lake.sql("SELECT id FROM shop.orders WHERE name = :v", params={"v": value})) == [(77,)]
    assert rows(lake.sql("SELECT name FROM shop.orders WHERE id = ? AND name IN (?, ?)", params=[77, value, ""])) == [
        (value,)
    ]
    lake.sql(
        "UPDATE shop.orders SET name = concat(:v, initcap(:v)) WHERE name = :v AND initcap(name) IS NOT NULL",
        params={"v": value},
    )
    lake.sql("DELETE FROM shop.orders WHERE startswith(name, ?)", params=[value])
    assert len(rows(orders)) == 5
    doubled = value.replace("\\", "\\\\").replace("'", "\\'")
    assert rows(lake.sql(f"SELECT '{doubled}' AS v")) == [(value,)]


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a{b}", "a--b", "a/*b", "数据", "select", "a:b", "a?b", "a;b"])
def test_a_name_in_backquotes_is_a_name(lake, orders, name):
    lake.sql(f"CREATE TABLE shop.c (`{name}` INT, `x``y` STRING) USING {orders.format}")
    lake.sql(f"INSERT INTO shop.c (`x``y`, `{name}`) VALUES ('t', 1)")
    lake.sql(f"UPDATE shop.c SET `{name}` = `{name}` + (SELECT max(`{name}`) FROM shop.c) WHERE `x``y` = 't'")
    assert rows(lake.sql(f"SELECT `{name}`, c.`x``y` FROM shop.c WHERE c.`{name}` > 0")) == [(2, "t")]
    frame = pa.table({name: [1]})
    assert rows(lake.sql(f"SELECT q.`{name}` FROM `{name}` q", **{name: frame})) == [(1,)]
    assert lake.table("shop.c").schema.names == (name, "x`y")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM `{file}`",
        "SELECT * FROM csv.`{file}`",
        "SELECT * FROM read_text('{file}')",
        "SELECT read_text('{file}')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_settings",
        "SELECT * FROM information_schema.tables",
        "SELECT getenv('HOME')",
        "SELECT current_setting('threads')",
        "SELECT * FROM pragma_version()",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "COPY (SELECT 1) TO '{file}'",
        "COPY shop.orders TO '{file}'",
        "COPY INTO shop.orders FROM '{file}' FILE_FORMAT = (TYPE = CSV)",
        "COPY INTO '{file}.out' FROM shop.orders FILE_FORMAT = (TYPE = CSV)",
        "INSTALL httpfs",
        "LOAD httpfs",
        "ATTACH '{file}' AS x",
        "PRAGMA database_list",
        "SET threads = 1",
        "SET enable_external_access = true",
        "EXPORT DATABASE '{file}'",
        "CREATE MACRO f() AS 1",
        "CREATE TABLE shop.x AS SELECT * FROM read_csv('{file}')",
        "INSERT INTO shop.orders SELECT * FROM read_parquet('{file}')",
        "DELETE FROM shop.orders WHERE name IN (SELECT content FROM read_text('{file}'))",
        "INSERT INTO `{file}` SELECT 1",
        "DROP TABLE `../../etc`",
        "DROP TABLE shop.`../orders`",
        "EXECUTE x",
        "ADD JAR '/x.jar'",
    ],
)
def test_nothing_but_tables_and_functions_is_in_reach(lake, orders, tmp_path, text):
    file = tmp_path / "secret.csv"
    file.write_text("a\nsecret\n")
    with pytest.raises((UnsupportedFeature, InvalidInput, NotFound)) as raised:
        lake.sql(text.format(file=file))
    assert "secret\n" not in str(raised.value)
    assert file.read_text() == "a\nsecret\n"
    assert len(rows(orders)) == 5


def test_frames_are_only_what_was_passed(lake):
    secret = pa.table({"a": [1]})  # A local name, which DuckDB left alone would find.
    with pytest.raises(LakeError, match="secret"):
        lake.sql("SELECT * FROM secret")
    assert len(secret) == 1


def test_a_private_character_is_refused(lake):
    with pytest.raises(InvalidInput, match="private use"):
        lake.sql("SELECT '\ue000'")


def test_statements_share_no_rows_and_no_settings(lake, orders):
    assert lake.sql("SELECT count(*) FROM t", t=pa.table({"a": [1]})).to_arrow()[0][0].as_py() == 1
    with pytest.raises(NotFound):
        lake.sql("SELECT count(*) FROM t")
    with pytest.raises((InvalidInput, UnsupportedFeature, NotFound)):
        lake.sql("SELECT * FROM _lakeformat_0")
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(lake.sql, "SELECT max(a) + count(*) FROM t", t=pa.table({"a": [n] * n})) for n in range(1, 20)
        ]
        assert [query.result().to_arrow()[0][0].as_py() for query in asked] == [2 * n for n in range(1, 20)]
    assert lake.sql("SELECT date_format(TIMESTAMP '2020-01-01 12:00:00', 'HH')").to_arrow()[0][0].as_py() == "12"


@pytest.fixture
def reached(tmp_path):
    """A folder in reach, beside others with its name and more, and links out of it."""
    for name in ("in", "in2", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("6,secret,1,05-01\n")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "links").mkdir()
    (tmp_path / "in" / "links" / "b.csv").symlink_to(tmp_path / "out" / "a.csv")
    (tmp_path / "by_link").symlink_to(tmp_path / "in")
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "in2",
        "in2/a.csv",
        "in/../out",
        "in/../out/a.csv",
        "in/folder",
        "in/folder/a.csv",
        "in/links",
        "in/links/b.csv",
        "out",
        "",
        "in%2f..%2fout",
        "in/\\u002e\\u002e/out",
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_files_elsewhere_are_out_of_reach(lake, orders, reached, path, scheme):
    folders = [str(reached / "in")]
    with pytest.raises((UnsupportedFeature, InvalidInput, NotFound)) as raised:
        lake.sql(f"COPY INTO shop.orders FROM '{scheme}{reached}/{path}' FILE_FORMAT = (TYPE = CSV)", folders=folders)
    assert "secret" not in str(raised.value)
    before = sorted(reached.rglob("*"))
    for folder in (f"{scheme}{reached}/{path}", f"{scheme}{reached}/{path}/more"):
        if not path.startswith(
            ("in/links", "in%", "in/\\u")
        ):  # Written beside a link, or into a folder of that very name.
            with pytest.raises((UnsupportedFeature, InvalidInput)):
                lake.sql(
                    f"COPY INTO '{folder}' FROM shop.orders FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE",
                    folders=folders,
                )
    assert sorted(reached.rglob("*")) == before
    assert len(rows(orders)) == 5


def test_files_in_reach_are_found_by_any_of_their_names(lake, orders, reached):
    for folders in ([str(reached / "in")], [f"file://{reached}/in/"], ["s3://bucket/x", f"{reached}/by_link"], ["/"]):
        for path in (f"{reached}/in/a.csv", f"file://{reached}/in/", f"{reached}/by_link", f"{reached}//in/./"):
            lake.sql(f"COPY INTO shop.orders FROM '{path}' FILE_FORMAT = (TYPE = CSV) FORCE = TRUE", folders=folders)
    assert len(rows(orders)) == 21
    for folders in ("/data", [""], [1]):
        with pytest.raises(InvalidInput, match="give a list of folders"):
            lake.sql("SELECT 1", folders=folders)


def test_what_a_copied_file_holds_is_never_code(lake, orders, reached):
    (reached / "in" / "a.csv").write_text('7,"\'; DROP TABLE shop.orders; --",1,05-01\n8,${x} {0} :id ?,1,05-01\n')
    lake.sql(f"COPY INTO shop.orders FROM '{reached}/in' FILE_FORMAT = (TYPE = CSV)", folders=[str(reached)])
    assert rows(lake.sql("SELECT name FROM shop.orders WHERE id > 6")) == [
        ("'; DROP TABLE shop.orders; --",), ("${x} {0} :id ?",)
    ]  # fmt: skip
