"""Every type of Paimon through create, append, scan, compaction and change of schema; conditions that never lose a row."""

import json
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import CorruptFile, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.dialects.paimon import types
from lakeformat.expression import evaluation, sql_text
from lakeformat.model.predicate import bind
from lakeformat.model.schema import Field, Schema, walk
from tests.golden import wire
from tests.simulation.racing import SEEDS

FORMATS = ("parquet", "orc", "avro")
ROW = {"type": "ROW", "fields": [{"id": 1, "name": "x", "type": "INT"}, {"id": 2, "name": "y", "type": "STRING"}]}
COLUMNS = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None, 0],
    "SMALLINT": [-32768, 32767, None],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, None],
    "FLOAT": [1.5, -0.0, "NaN", "Infinity", "-Infinity", None, 1.401298464324817e-45],
    "DOUBLE": [1e308, -0.0, "NaN", "Infinity", "-Infinity", None, 5e-324],
    "DECIMAL(1, 0)": ["9", "-9", None],
    "DECIMAL(5, 5)": ["0.99999", "-0.99999", None],
    "DECIMAL(18, 4)": ["12345678901234.5678", "-0.0001", None],
    "DECIMAL(19, 0)": ["9999999999999999999", "-9999999999999999999", None],
    "DECIMAL(38, 10)": ["9999999999999999999999999999.9999999999", "-1.2800000000", None],
    "DECIMAL(38, 38)": ["0.99999999999999999999999999999999999999", None],
    "CHAR(3)": ["abc", "日本語", "", "a", None],
    "VARCHAR(5)": ["abcde", "", "😀", None],
    "STRING": ["", " ", "x" * 1000, "😀é日", "\u0000", None],
    "BINARY(4)": ["00ff00ff", None],
    "VARBINARY(4)": ["00ff00ff", "", "00", None],
    "BYTES": ["", "00" * 100, None],
    "DATE": [0, -719162, 2932896, 19723, None],
    "TIME(0)": [0, 86399000, None],
    "TIME(3)": [0, 86399999, 1, None],
    "TIMESTAMP(0)": [0, -1000000000, 253402300799000000000, None],
    "TIMESTAMP(3)": [1000000, -1000000, 1704067200123000000, None],
    "TIMESTAMP(6)": [1000, -1000, 253402300799999999000, None],
    "TIMESTAMP(9)": [1, -1, 1704067200123456789, -(2**62), None],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [1000000, -1000000, None],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [1000, -1000, None],
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": [1, -1, None],
    "ARRAY<INT>": [[1, None, 3], [], None],
    "ARRAY<ARRAY>": [[[1], [], None], [], None],
    "ARRAY<ROW>": [[[1, "a"], None, [None, None]], [], None],
    "MAP<STRING,INT>": [[["a", 1], ["b", None]], [], None],
    "MAP<INT,ROW>": [[[1, [2, "b"]], [3, None]], [], None],
    "MULTISET<STRING>": [[["a", 2], ["b", 1]], [], None],
    "ROW": [[1, "a"], [None, None], None],
    "ROW<ROW>": [[[1, "a"], 5], [None, 6], None],
}
NESTED = {
    "ARRAY<INT>": {"type": "ARRAY", "element": "INT"},
    "ARRAY<ARRAY>": {"type": "ARRAY", "element": {"type": "ARRAY", "element": "INT"}},
    "ARRAY<ROW>": {"type": "ARRAY", "element": ROW},
    "MAP<STRING,INT>": {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"},
    "MAP<INT,ROW>": {"type": "MAP", "key": "INT NOT NULL", "value": ROW},
    "MULTISET<STRING>": {"type": "MULTISET", "element": "STRING NOT NULL"},
    "ROW": ROW,
    "ROW<ROW>": {
        "type": "ROW",
        "fields": [{"id": 3, "name": "in", "type": ROW}, {"id": 4, "name": "n", "type": "INT"}],
    },
}


def type_of(name):
    return NESTED.get(name, name)


def columns_of(format):
    """Without what files of a format have no place for."""
    lacking = {"orc": ("BINARY(4)", "VARBINARY(4)"), "avro": ("TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE")}
    found = {k: v for k, v in COLUMNS.items() if k not in lacking.get(format, ())}
    if format == "orc":  # No fractions before 1970, nothing beyond what nanoseconds reach.
        found |= {
            k: [n for n in v if n is None or 0 <= n < 2**63] for k, v in found.items() if k.startswith("TIMESTAMP")
        }
    return found


def named(type):
    return "c_" + "".join(c if c.isalnum() else "_" for c in type)


def create(path, fields, partition_by=(), **properties):
    """A table of wire fields."""
    made = tuple(Field(-1, f["name"], *types.parse_type(f["type"])) for f in fields)
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in properties.items()}
    return Lake(str(path)).create_table("d.t", Schema(made), partition_by=partition_by, properties=given)


def same(fields, found, rows):
    return wire.multiset(fields, wire.from_arrow(found)) == wire.multiset(fields, rows)


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_comes_back_as_it_was(tmp_path, format):
    columns = columns_of(format)
    fields = [{"name": "i", "type": "INT"}] + [{"name": named(n), "type": type_of(n)} for n in columns]
    longest = max(map(len, columns.values()))
    rows = [[i, *(values[i % len(values)] for values in columns.values())] for i in range(longest * 2)]
    t = create(tmp_path, fields, file__format=format)
    t.append(wire.to_arrow(fields, rows[:longest]))
    t.append(wire.to_arrow(fields, rows[longest:]))
    assert same(fields, t.scan().to_arrow(), rows)
    t.compact(full=True)
    assert len(t.inspect.files()) == 1
    assert same(fields, t.scan().to_arrow(), rows)
    t.delete("i = 0")
    assert same(fields, t.scan().to_arrow(), rows[1:])
    back = Lake(str(tmp_path)).table("d.t")
    assert [str(f.type) for f in back.schema.fields] == [str(f.type) for f in t.schema.fields]
    for i, name in enumerate(columns, 1):
        one = t.scan(columns=[named(name)], where="i = 1").to_arrow()
        assert same([fields[i]], one, [[rows[1][i]]]), name


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("nulls", [True, False])
def test_files_with_only_nulls_or_no_nulls(tmp_path, format, nulls):
    columns = columns_of(format)
    fields = [{"name": "i", "type": "INT"}] + [{"name": named(n), "type": type_of(n)} for n in columns]
    rows = [[i, *(None if nulls else values[0] for values in columns.values())] for i in range(3)]
    t = create(tmp_path, fields, file__format=format)
    t.append(wire.to_arrow(fields, rows))
    assert same(fields, t.scan().to_arrow(), rows)
    for name in columns:
        found = t.scan(where=f"{named(name)} is null")
        assert found.count() == found.to_arrow().num_rows == (3 if nulls else 0), name


SORTED = {
    k: v for k, v in COLUMNS.items() if k not in NESTED and not k.startswith(("BINARY", "VARBINARY", "BYTES", "TIME("))
}


def literal(kind, value):
    """A wire value as SQL text."""
    if value is None:
        return "null"
    base = kind.split("(")[0]
    if base in ("CHAR", "VARCHAR", "STRING"):
        return "'" + value.replace("'", "''") + "'"
    if base == "DATE":
        return f"date '{wire.date_text(value)}'"
    if base in ("FLOAT", "DOUBLE"):
        return f"cast('{value}' as {base})"
    if base == "DECIMAL":
        return f"cast('{value}' as {kind})"
    if base == "TIMESTAMP":
        text = f"{wire.timestamp_text(value)}" + (
            f"{value % 1000:03}" if value % 1000 and "." in wire.timestamp_text(value) else ""
        )
        return f"cast('{text}' as {kind})"
    return str(value).lower()


@pytest.mark.drawn(12)
@pytest.mark.parametrize(
    ("kind", "how"),
    [(k, how) for k in SORTED for how in ("unpartitioned", "partitioned")]
    + [(k, how) for k in ("DOUBLE", "STRING") for how in ("counts", "none", "sparse")],
)
def test_no_condition_loses_a_row(tmp_path, kind, how):
    """One file a value: every comparison with every value gives the rows that it gives on the rows themselves."""
    values = SORTED[kind]
    if how == "partitioned":
        values = [v[:200] if isinstance(v, str) else v for v in values]
    fields = [{"name": "i", "type": "INT"}, {"name": "k", "type": kind}]
    properties = {"counts": {"metadata__stats_mode": "counts"}, "none": {"metadata__stats_mode": "none"},
                  "sparse": {"metadata__stats_dense_store": "false"}}.get(how, {})  # fmt: skip
    t = create(tmp_path, fields, ["k"] if how == "partitioned" else (), **properties)
    rows = list(enumerate(values))
    for row in rows:
        t.append(wire.to_arrow(fields, [row]))
    every = t.scan().to_arrow().sort_by("i")
    assert same(fields, every, rows)
    columns = fields_from_arrow(every.schema)
    for at, value in enumerate(values if how == "unpartitioned" else values[::2]):
        text = literal(kind, value)
        conditions = (
            f"k = {text}", f"k <> {text}", f"k < {text}", f"k >= {text}", f"k <=> {text}", f"not (k > {text})",
            f"k in ({text}, null)", f"k = {text} or i = 0", f"k > {text} and i >= 0",
        )  # fmt: skip
        for condition in conditions if SEEDS > 1000 else conditions[at % 3 :: 3]:
            found = t.scan(columns=["i"], where=condition)
            expected = every.filter(evaluation.mask(bind(sql_text.parse(condition), columns), every))["i"].to_pylist()
            assert sorted(found.to_arrow()["i"].to_pylist()) == sorted(expected), condition
            assert found.count() == len(expected), condition
    for condition, test in (("k is null", lambda v: v is None), ("k is not null", lambda v: v is not None)):
        expected = [i for i, v in rows if test(v)]
        assert sorted(t.scan(where=condition).to_arrow()["i"].to_pylist()) == expected
        assert t.scan(where=condition).count() == len(expected)
    # Deletes by such conditions leave the rest, whatever the bounds made of it.
    text = literal(kind, values[0])
    gone = t.scan(where=f"k = {text}").count()
    t.delete(f"k = {text}")
    assert t.scan().count() == len(rows) - gone
    assert t.scan(where=f"k = {text}").count() == 0


def test_long_texts_are_found_beyond_what_bounds_keep(tmp_path):
    t = create(
        tmp_path, [{"name": "i", "type": "INT"}, {"name": "k", "type": "STRING"}], metadata__stats_mode="truncate(3)"
    )
    texts = ["abc", "abcd", "abd", "ab", "\U0010ffff" * 5, "ab\ud7ff\uffffz", "ab\U0010ffffz", "", "zzzz"]
    for i, text in enumerate(texts):
        t.append(pa.table({"i": pa.array([i], pa.int32()), "k": [text]}))
    for i, text in enumerate(texts):
        for condition, test in (
            (f"k = '{text}'", str.__eq__),
            (f"k > '{text}'", str.__gt__),
            (f"k < '{text}'", str.__lt__),
        ):
            expected = [n for n, other in enumerate(texts) if test(other, text)]
            assert sorted(t.scan(where=condition).to_arrow()["i"].to_pylist()) == expected, condition
            assert t.scan(where=condition).count() == len(expected)
        assert i in t.scan(where=f"k like '{text}%'").to_arrow()["i"].to_pylist()


# --- field ids and nested changes -------------------------------------------------------------------------------------


def test_ids_of_fields_stand_in_the_schema_and_in_parquet_as_java_puts_them(tmp_path):
    fields = [
        {"name": "a", "type": "INT"},
        {"name": "r", "type": ROW},
        {"name": "l", "type": {"type": "ARRAY", "element": {"type": "ARRAY", "element": "INT"}}},
        {"name": "m", "type": {"type": "MAP", "key": "STRING NOT NULL", "value": ROW}},
    ]
    t = create(tmp_path, fields)
    document = json.loads((tmp_path / "d.db/t/schema/schema-0").read_text())
    assert document["highestFieldId"] == 7
    assert [f["id"] for f in document["fields"]] == [0, 1, 4, 5]
    assert [f["id"] for f in document["fields"][1]["type"]["fields"]] == [2, 3]
    assert [f["id"] for f in document["fields"][3]["type"]["value"]["fields"]] == [6, 7]
    t.append(wire.to_arrow(fields, [[1, [1, "a"], [[1]], [["k", [1, "b"]]]]]))
    path = next((tmp_path / "d.db/t/bucket-0").iterdir())
    schema = pq.read_schema(path)

    def id_of(field):
        return int(field.metadata[b"PARQUET:field_id"])

    assert [id_of(f) for f in schema] == [0, 1, 4, 5]
    assert [id_of(f) for f in schema.field("r").type] == [2, 3]
    outer = schema.field("l").type.value_field
    assert (id_of(outer), id_of(outer.type.value_field)) == (536870911 + 1024 * 4 + 1, 536870911 + 1024 * 4 + 2)
    entries = schema.field("m").type
    assert id_of(entries.key_field) == 536870911 - 1024 * 5 - 1
    assert id_of(entries.item_field) == 536870911 + 1024 * 5 + 1
    assert [id_of(f) for f in entries.item_field.type] == [6, 7]


@pytest.mark.parametrize("format", FORMATS)
def test_parts_of_rows_come_and_go_at_any_depth(tmp_path, format):
    fields = [
        {"name": "i", "type": "INT"},
        {"name": "r", "type": ROW},
        {"name": "l", "type": {"type": "ARRAY", "element": ROW}},
        {"name": "m", "type": {"type": "MAP", "key": "STRING NOT NULL", "value": ROW}},
    ]
    t = create(tmp_path, fields, file__format=format)
    t.append(wire.to_arrow(fields, [[1, [1, "a"], [[1, "a"], None], [["k", [1, "a"]]]], [2, None, None, None]]))
    for path in ("r", "l.element", "m.value"):
        t.alter().add_column(f"{path}.z", "double").rename_column(f"{path}.x", "renamed").drop_column(
            f"{path}.y"
        ).commit()
    t.alter().change_type("r.renamed", "bigint").add_column("r.y", "int").commit()
    new = {
        "i": 3,
        "r": {"renamed": 2**40, "z": 0.5, "y": 7},
        "l": [{"renamed": 3, "z": None}],
        "m": [("q", {"renamed": 4, "z": 1.0})],
    }
    t.append(pa.Table.from_pylist([new], t.scan().schema))
    expected = [
        {"i": 1, "r": {"renamed": 1, "z": None, "y": None}, "l": [{"renamed": 1, "z": None}, None], "m": [("k", {"renamed": 1, "z": None})]},
        {"i": 2, "r": None, "l": None, "m": None},
        new,
    ]  # fmt: skip
    assert sorted(t.scan().to_arrow().to_pylist(), key=lambda r: r["i"]) == expected
    assert t.scan(snapshot_id=1).to_arrow().to_pylist()[0]["r"] == {"x": 1, "y": "a"}
    t.compact(full=True)
    assert sorted(t.scan().to_arrow().to_pylist(), key=lambda r: r["i"]) == expected
    assert t.scan(columns=["r.renamed"], where="i = 3").to_arrow().to_pylist() == [{"r": {"renamed": 2**40}}]


@pytest.mark.parametrize("format", FORMATS)
def test_only_the_parts_asked_for_are_returned_whatever_the_condition_needs(tmp_path, format):
    odd = "b_c" if format == "avro" else "b.c"
    fields = [{"name": "i", "type": "INT"}, {"name": "a", "type": ROW}, {"name": odd, "type": "INT"}]
    t = create(tmp_path, fields, file__format=format)
    t.append(wire.to_arrow(fields, [[1, [1, "p"], 5], [2, [2, "q"], 6], [3, None, 7]]))
    found = t.scan(columns=["a.y"], where="a.x = 1").to_arrow()
    assert found.to_pylist() == [{"a": {"y": "p"}}]
    assert str(found.schema.field("a").type) == "struct<y: string>"
    assert t.scan(columns=["a.y", "i"], where="a.x >= 1 and i < 3").to_arrow().to_pylist() == [
        {"a": {"y": "p"}, "i": 1},
        {"a": {"y": "q"}, "i": 2},
    ]
    assert t.scan(columns=["a.y"], where="a.x is null").to_arrow().to_pylist() == [{"a": None}]
    assert t.scan(columns=["a.y", "a.x"]).to_arrow().to_pylist()[0] == {"a": {"y": "p", "x": 1}}
    assert t.scan(columns=["a", "a.y"]).to_arrow().to_pylist()[0] == {"a": {"x": 1, "y": "p"}}
    assert t.scan(columns=[odd], where="i = 2").to_arrow().to_pylist() == [{odd: 6}]
    assert t.scan(columns=["i"], where="a.x = 2", limit=1).to_arrow().to_pylist() == [{"i": 2}]
    assert t.scan(where="a.x = 2").count() == 1
    assert t.scan(columns=[], where="a.x = 2").to_arrow().num_rows == 1
    for columns in (["a.nope"], ["i.x"], ["a.x.y"]):
        with pytest.raises(NotFound):
            t.scan(columns=columns)


@pytest.mark.parametrize("format", FORMATS)
def test_old_files_under_changed_columns_are_never_wrongly_left_out(tmp_path, format):
    fields = [
        {"name": "i", "type": "INT"},
        {"name": "n", "type": "INT"},
        {"name": "s", "type": "VARCHAR(3)"},
        {"name": "d", "type": "DECIMAL(4, 2)"},
    ]
    t = create(tmp_path, fields, file__format=format)
    t.append(wire.to_arrow(fields, [[1, 5, "abc", "1.50"], [2, None, None, None]]))
    t.alter().rename_column("n", "m").change_type("m", "bigint").change_type("s", "string").change_type(
        "d", "decimal(10, 4)"
    ).commit()
    t.alter().add_column("n", "string").add_column("late", "int").commit()
    t.append(
        pa.Table.from_pylist(
            [{"i": 3, "m": 2**40, "s": "long text", "d": Decimal("123456.7891"), "n": "x", "late": 1}], t.scan().schema
        )
    )
    for condition, expected in {
        "m = 5": [1], "m > 4": [1, 3], "m is null": [2], "s = 'abc'": [1], "s > 'abc'": [3], "d = 1.5": [1], "d < 2": [1],
        "d > 100": [3], "n is null": [1, 2], "n = 'x'": [3], "n <> 'y'": [3], "late is null": [1, 2], "late = 1": [3],
        "late <=> null": [1, 2], "not (late = 1)": [], "late is not null or i = 1": [1, 3], "coalesce(late, 0) = 0": [1, 2],
        "n is null and late is null and m = 5": [1], "late in (1, null)": [3],
    }.items():  # fmt: skip
        assert sorted(t.scan(columns=["i"], where=condition).to_arrow()["i"].to_pylist()) == expected, condition
        assert t.scan(where=condition).count() == len(expected), condition
    t.delete("late is null and m = 5")
    t.update({"late": "7"}, where="late is null")
    assert sorted(t.scan(columns=["i", "late"]).to_arrow().to_pylist(), key=str) == [
        {"i": 2, "late": 7},
        {"i": 3, "late": 1},
    ]


def test_a_dropped_column_added_again_is_another_column(tmp_path):
    t = create(tmp_path, [{"name": "i", "type": "INT"}, {"name": "n", "type": "INT"}])
    t.append(pa.table({"i": pa.array([1], pa.int32()), "n": pa.array([5], pa.int32())}))
    t.alter().drop_column("n").commit()
    t.alter().add_column("n", "int").commit()
    assert t.scan().to_arrow().to_pylist() == [{"i": 1, "n": None}]
    assert t.scan(where="n = 5").count() == 0
    assert t.scan(where="n is null").count() == 1
    assert t.schema.field("n").id == 2


# --- deletes, updates and overwrites by condition ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_changes_by_condition_against_rows_in_a_list(tmp_path, seed):
    """Random deletes, updates and overwrites over partition and other columns, beside a plain list of rows."""
    rolls = random.Random(seed)
    schema = pa.schema([("i", pa.int64()), ("n", pa.int64()), ("p", pa.string())])
    properties = {"file.format": rolls.choice(FORMATS)} | rolls.choice([{}, {"bucket": "2", "bucket-key": "i"}])
    t = Lake(str(tmp_path)).create_table("d.t", schema, partition_by=["p"], properties=properties)
    model, number = [], 0

    def fresh(count, n=None):
        nonlocal number
        number += count
        return [
            {
                "i": number - j,
                "n": rolls.choice([None, *range(5)]) if n is None else n,
                "p": rolls.choice(["a", "b", None]),
            }
            for j in range(count)
        ]

    conditions = [
        ("p = 'a'", lambda r: r["p"] == "a"),
        ("p is null", lambda r: r["p"] is None),
        ("n = 2", lambda r: r["n"] == 2),
        ("n > 3 or p = 'b'", lambda r: (r["n"] or 0) > 3 or r["p"] == "b"),
        ("n is null and p is not null", lambda r: r["n"] is None and r["p"] is not None),
        ("n < 2 and p <=> null", lambda r: r["n"] is not None and r["n"] < 2 and r["p"] is None),
        ("i % 3 = 0", lambda r: r["i"] % 3 == 0),
        ("true", lambda r: True),
    ]
    for _ in range(12):
        text, test = rolls.choice(conditions)
        match rolls.choice(["append", "append", "delete", "update", "overwrite", "move"]):
            case "append":
                added = fresh(rolls.randint(1, 8))
                t.append(pa.Table.from_pylist(added, schema))
                model += added
            case "delete":
                t.delete(text)
                model = [r for r in model if not test(r)]
            case "update":
                t.update({"n": "i + coalesce(n, 0)"}, where=text)
                model = [{**r, "n": r["i"] + (r["n"] or 0)} if test(r) else r for r in model]
            case "move":
                t.update({"p": "case when p = 'a' then 'b' else 'a' end"}, where=text)
                model = [{**r, "p": "b" if r["p"] == "a" else "a"} if test(r) else r for r in model]
            case "overwrite":
                added = [r for r in fresh(6) if test(r)]
                t.overwrite(pa.Table.from_pylist(added, schema), where=text)
                model = [r for r in model if not test(r)] + added
        found = t.scan().to_arrow().to_pylist()
        assert sorted(found, key=str) == sorted(model, key=str), (seed, text)
        assert t.scan(where=text).count() == sum(map(test, model)), (seed, text)
        current = t.current_snapshot()
        assert current is None or current.total_rows == len(model), seed


# --- sizes, stats, type texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_files_roll_at_their_target_size(tmp_path, format):
    t = create(tmp_path, [{"name": "i", "type": "BIGINT"}, {"name": "v", "type": "STRING"}], file__format=format,
               target_file_size="200 kb", file__compression="none")  # fmt: skip
    count = 30_000
    rolls = random.Random(1)
    t.append(pa.table({"i": range(count), "v": [f"{rolls.getrandbits(256):064x}" for _ in range(count)]}))
    sizes = t.inspect.files()["size_bytes"].to_pylist()
    assert 5 < len(sizes) < 30
    assert max(sizes) < 400 << 10
    assert t.scan().to_arrow()["i"].to_pylist() == list(range(count))
    assert t.scan(where="i = 12345").to_arrow()["i"].to_pylist() == [12345]
    assert len(t.scan(where="i = 12345").plan()[0].paths) == 1


@pytest.mark.parametrize("name", COLUMNS)
def test_type_texts_come_back(name):
    wired = type_of(name)
    kind, nullable = types.parse_type(wired)
    assert nullable
    assert types.emit_type(kind, True) == wired
    assert types.parse_type(types.emit_type(kind, False)) == (kind, False)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("INTEGER", "INT"), ("DECIMAL", "DECIMAL(10, 0)"), ("DECIMAL(5)", "DECIMAL(5, 0)"), ("DECIMAL(5,2)", "DECIMAL(5, 2)"),
        ("VARCHAR(2147483647)", "STRING"), ("VARBINARY(2147483647)", "BYTES"), ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)"), ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"), ("TIME", "TIME(0)"), ("CHAR", "CHAR(1)"), ("BINARY", "BINARY(1)"),
    ],
)  # fmt: skip
def test_other_spellings(text, same):
    assert types.emit_type(*types.parse_type(text)) == same
    assert types.emit_type(*types.parse_type(f"{text} NOT NULL")) == f"{same} NOT NULL"


@pytest.mark.parametrize(
    "value",
    ["", "int", "INT NULL", "INT(5)", "DECIMAL(39, 0)", "DECIMAL(0, 0)", "DECIMAL(5, 6)", "VARCHAR(0)", "TIMESTAMP(10)", "CHAR(99999999999)",
     "INT NOT NULL NOT NULL", 5, None, [], {}, {"type": "ARRAY"}, {"type": "MAP", "key": "INT"}, {"type": "ROW"}, {"type": "ROW", "fields": 5},
     {"type": "ROW", "fields": [{"name": "x", "type": "INT"}]}, {"type": 5}, {"type": "ARRAY", "element": "nope"}],
)  # fmt: skip
def test_texts_that_are_no_type(value):
    with pytest.raises((CorruptFile, UnsupportedFeature)):
        types.parse_type(value)


def test_names_that_avro_cannot_have_are_refused_when_the_table_is_made(tmp_path):
    for name in ("b.c", "1a", "a b", "a-b"):
        with pytest.raises(InvalidInput, match="Avro's names"):
            create(tmp_path, [{"name": name, "type": "INT"}], file__format="avro")
    t = create(tmp_path, [{"name": "b.c", "type": "INT"}])
    with pytest.raises(InvalidInput, match="Avro's names"):
        t.alter().set_properties({"file.format": "avro"}).commit()


def test_fields_of_a_schema_have_ids_of_their_own(tmp_path):
    fields = [{"name": n, "type": type_of(n)} for n in COLUMNS]
    t = create(tmp_path, fields)
    given = [f.id for f in walk(t.schema.fields) if f.id >= 0]
    assert sorted(given) == list(range(len(given)))
    t.alter().add_column("late", "struct<a: int, b: array<struct<c: int>>>").commit()
    given = [f.id for f in walk(t.schema.fields) if f.id >= 0]
    assert sorted(given) == list(range(len(given)))
    assert t.schema.last_field_id == len(given) - 1
    with pytest.raises(InvalidInput):
        t.alter().add_column("m", "map<struct<a: int>, int>").drop_column("m.key").commit()
