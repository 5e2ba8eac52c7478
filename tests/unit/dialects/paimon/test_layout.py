"""Where Paimon files go, and what is kept of a column: names of folders, bounds, write tasks."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, UnsupportedFeature
from lakeformat.codec.paimon import binary_row
from lakeformat.dialects.paimon import layout, manifest, metadata, plan, types
from lakeformat.dialects.paimon.layout import Directory
from lakeformat.dialects.paimon.metadata import State
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.work import ColumnStats, StatsMode, WrittenFile
from tests.golden import wire

VECTORS = Path(__file__).parents[3] / "golden" / "vectors"
NULL = "__DEFAULT_PARTITION__"
NAMED = (NULL, True, "")
FLOATS = (scalar(Kind.FLOAT), scalar(Kind.DOUBLE))
PATHS = json.loads((VECTORS / "partition_path.json").read_text())["rows"]
BOUNDS = json.loads((VECTORS / "bounds.json").read_text())["columns"]


def kind_of(text):
    return types.parse_type(text)[0]


def fits(field, value):
    """Whether Arrow has room for a value: nanoseconds end in the year 2262."""
    return not (
        isinstance(field["type"], str)
        and field["type"].startswith(("TIMESTAMP(7)", "TIMESTAMP(9)"))
        and value
        and not -(2**63) <= value < 2**63
    )


def partition_of(fields, row):
    """A wire row as `WrittenFile.partition` has it."""
    return manifest.partition_values(
        wire.to_arrow(fields, [row]),
        Schema(
            tuple(Field(i, f["name"], kind_of(f["type"])) for i, f in enumerate(fields)),
            identity(*(f["name"] for f in fields)),
        ),
    )[0]


def test_partition_folders_are_named_as_the_java_engine_names_them():
    wrong = []
    for vector in PATHS:
        fields = vector["fields"]
        if not all(map(fits, fields, vector["row"])):
            continue
        place = Directory(tuple(f["name"] for f in fields), tuple(kind_of(f["type"]) for f in fields), *NAMED)
        found = "/".join(place.partition(partition_of(fields, vector["row"]))) + "/"
        if found != vector["path"]:
            wrong.append((vector, found))
    assert wrong == []
    assert len(PATHS) > 400


@pytest.mark.parametrize(
    ("kind", "value", "legacy", "sql"),
    [
        ("DATE", 19723, "19723", "2024-01-01"),
        ("DATE", -1, "-1", "1969-12-31"),
        ("BOOLEAN", True, "true", "true"),
        ("TIMESTAMP(6)", 1704067200000000000, "2024-01-01T00%3A00", "2024-01-01 00%3A00%3A00.000000"),
        ("TIMESTAMP(0)", 1704067200000000000, "2024-01-01T00%3A00", "2024-01-01 00%3A00%3A00"),
        ("TIMESTAMP(3)", 1704067200120000000, "2024-01-01T00%3A00%3A00.120", "2024-01-01 00%3A00%3A00.120"),
        ("TIMESTAMP(0)", -62135596800000000000, "0001-01-01T00%3A00", "0001-01-01 00%3A00%3A00"),
        ("TIME(0)", 3661000, "3661000", "01%3A01%3A01"),
        ("DECIMAL(5, 2)", "1.50", "1.50", "1.50"),
        ("STRING", "a b", "a b", "a b"),
        ("INT", None, "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
    ],
)
def test_folders_without_legacy_names_show_values_as_sql_casts_them(kind, value, legacy, sql):
    fields = [{"name": "k", "type": kind}]
    values = partition_of(fields, [value])
    shown = [Directory(("k",), (kind_of(kind),), NULL, legacy, "").partition(values) for legacy in (True, False)]
    assert shown == [[f"k={legacy}"], [f"k={sql}"]]


@pytest.mark.parametrize(
    ("text", "blank"),
    [("", True), (" ", True), ("\t", True), ("\u2003", True), ("\u00a0", False), ("\u202f", False), ("\x85", False)],
)
def test_blank_is_what_java_calls_whitespace(text, blank):
    found = Directory(("k",), (scalar(Kind.STRING),), *NAMED).partition((text,))[0]
    assert (found == "k=__DEFAULT_PARTITION__") is blank


def test_null_empty_and_blank_partitions_share_a_folder_and_stay_apart(tmp_path):
    t = Lake(str(tmp_path)).create_table("d.t", pa.schema([("id", pa.int64()), ("k", pa.string())]), partition_by=["k"])
    rows = [(1, None), (2, ""), (3, " "), (4, "a"), (5, None), (6, "  ")]
    made = t.append(pa.table({"id": [i for i, _ in rows], "k": [k for _, k in rows]}))
    assert {p.values[0]: p.rows_added for p in made.partitions} == {None: 2, "": 1, " ": 1, "  ": 1, "a": 1}
    folders = {path.rsplit("/", 2)[0] for path in t.inspect.files()["path"].to_pylist()}
    assert folders == {"k=__DEFAULT_PARTITION__", "k=a"}

    def ids(**how):
        return sorted(t.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())

    assert ids() == [1, 2, 3, 4, 5, 6]
    assert [ids(where=w) for w in ("k is null", "k = ''", "k = ' '", "k is not null")] == [
        [1, 5],
        [2],
        [3],
        [2, 3, 4, 6],
    ]
    t.overwrite_partitions(pa.table({"id": [10], "k": pa.array([None], pa.string())}))
    assert ids() == [2, 3, 4, 6, 10]
    t.overwrite_partitions(pa.table({"id": [20], "k": [""]}), partitions=[{"k": ""}])
    assert ids() == [3, 4, 6, 10, 20]
    t.drop_partitions([{"k": " "}, {"k": None}])
    assert ids() == [4, 6, 20]


def test_partition_names_with_every_odd_character_read_back(tmp_path):
    odd = ["a/b", "..", ".", "%2F", "k=v", "日本", "😀", "x\ny", "a:b", 'q"q', "#", "~", "a b", "\u00a0", "[x]", "?*"]
    t = Lake(str(tmp_path)).create_table("d.t", pa.schema([("id", pa.int64()), ("k", pa.string())]), partition_by="k")
    t.append(pa.table({"id": range(len(odd)), "k": odd}))
    assert sorted(zip(*t.scan().to_arrow().to_pydict().values(), strict=True)) == list(enumerate(odd))
    for i, text in enumerate(odd):
        assert t.scan(where=f"id = {i}").to_arrow()["k"].to_pylist() == [text]
    t.compact(full=True)
    t.expire_snapshots(retain_last=1)
    assert t.scan().count() == len(odd)


def bounds_by_plan(kind, mode, values):
    """What a manifest would keep of a file that holds `values`."""
    array = wire.to_arrow([{"name": "k", "type": kind}], [[v] for v in values])["k"].combine_chunks()
    present = [v for v in manifest.partition_values(pa.table({"k": array}), PARTITIONED(kind)) if v[0] is not None]
    ordered = [v[0] for v in present]
    told = ColumnStats(min(ordered, default=None), max(ordered, default=None), array.null_count, len(array))
    schema = Schema((Field(0, "k", kind_of(kind)),), properties={"metadata.stats-mode": mode}, last_field_id=0)
    file = WrittenFile("bucket-0/x.parquet", (), len(array), 1, stats={0: told})
    stats, columns = plan._value_stats((file,), schema)
    if columns == []:
        return None, None, None
    low, high = (
        wire.from_arrow(pa.table({"k": binary_row.decode(stats.field(i), [kind_of(kind)])[0]}))[0][0] for i in (0, 1)
    )
    return low, high, stats.field(2).to_pylist()[0][0]


def PARTITIONED(kind):
    return Schema((Field(0, "k", kind_of(kind)),), identity("k"))


def test_bounds_are_cut_as_the_java_engine_cuts_them():
    wrong = []
    for vector in BOUNDS:
        values = [v for v in vector["values"] if fits(vector, v)]
        unbounded = kind_of(vector["type"]) in FLOATS and "NaN" in values  # Then the writer knows no bounds.
        if unbounded or len(values) < len(vector["values"]):
            continue
        found = bounds_by_plan(vector["type"], vector["mode"], values)
        expected = (vector["min"], vector["max"], vector["null_count"])
        if found == expected:
            continue
        if _beyond_surrogates(vector) and found[1] > max(v for v in values if v is not None):
            continue
        # Without an upper bound there is no use in a lower one.
        if expected[1] is None and found == (None, None, expected[2]):
            continue
        wrong.append((vector, found))
    assert wrong == []
    assert len(BOUNDS) > 100


def _beyond_surrogates(vector):
    """The engine's mistake, see the file: our bound is a true one."""
    return vector["max"] is not None and str(vector["max"]).endswith("?")


def test_stats_modes_by_column_and_dense_or_not():
    fields = (Field(0, "a", scalar(Kind.INT)), Field(1, "b", scalar(Kind.STRING)), Field(2, "c", scalar(Kind.INT)))
    given = {"metadata.stats-mode": "full", "fields.a.stats-mode": "none", "fields.b.stats-mode": "counts"}
    stats = {0: ColumnStats(1, 2, 0, 2), 1: ColumnStats("x", "y", 1, 2), 2: ColumnStats(3, 4, 0, 2)}
    file = WrittenFile("x.parquet", (), 2, 1, stats=stats)
    dense, names = plan._value_stats((file,), Schema(fields, properties=given))
    assert names == ["b", "c"]
    low = binary_row.decode(dense.field(0), [fields[1].type, fields[2].type])
    assert [c.to_pylist() for c in low] == [[None], [3]]
    assert dense.field(2).to_pylist() == [[1, 0]]
    full, names = plan._value_stats((file,), Schema(fields, properties=given | {"metadata.stats-dense-store": "false"}))
    assert names is None
    assert [c.to_pylist() for c in binary_row.decode(full.field(1), [f.type for f in fields])] == [[None], [None], [4]]
    assert full.field(2).to_pylist() == [[None, 1, 0]]


@pytest.mark.parametrize("mode", ["", "truncate", "truncate(0)", "truncate(-1)", "truncate(x)", "most"])
def test_an_unknown_stats_mode_is_refused_when_the_table_is_made(tmp_path, mode):
    lake = Lake(str(tmp_path))
    with pytest.raises(InvalidInput, match="stats"):
        lake.create_table("d.t", pa.schema([("a", pa.int32())]), properties={"metadata.stats-mode": mode})
    assert lake.namespaces() == [] or lake.tables() == []


def state(fields, properties, partition_by=()):
    declared = metadata.declare(Schema(fields, identity(*partition_by), (), properties), "t")
    return State(0, declared)


def test_layout_says_where_files_go_and_how_they_are_made():
    fields = (Field(-1, "a", scalar(Kind.INT)), Field(-1, "p", scalar(Kind.STRING)))
    properties = {
        "bucket": "4",
        "bucket-key": "a",
        "file.format": "ORC",
        "file.compression": "LZ4",
        "target-file-size": "5 mb",
        "data-file.prefix": "x-",
        "data-file.path-directory": "data/",
        "partition.default-name": "NONE",
        "orc.stripe.size": "1",
    }
    task = layout.layout(state(fields, properties, ["p"]))
    assert (task.encoding.file_format, task.encoding.compression, task.encoding.compression_level) == (
        "orc",
        "lz4",
        None,
    )
    assert (task.target_size_bytes, task.naming.prefix) == (5 << 20, "x-")
    assert (task.bucket.columns, task.bucket.count, task.bucket.function) == (("a",), 4, "default")
    assert task.directory((None,), 3) == "data/p=NONE/bucket-3"
    assert task.encoding.options["orc.stripe.size"] == "1"
    assert task.stats == ((StatsMode.TRUNCATE, 16),) * 2


def test_a_table_with_all_of_it_reads_back(tmp_path):
    properties = {
        "bucket": 3,
        "bucket-key": "a",
        "data-file.path-directory": "data",
        "partition.default-name": "NONE",
        "partition.legacy-name": False,
        "data-file.prefix": "x-",
    }
    t = Lake(str(tmp_path)).create_table(
        "d.t", pa.schema([("a", pa.int32()), ("d", pa.date32())]), partition_by=["d"], properties=properties
    )
    t.append(pa.table({"a": [1, 2, 3], "d": pa.array([None, 19723, 19723], pa.int32()).cast(pa.date32())}))
    paths = t.inspect.files()["path"].to_pylist()
    assert {p.split("/")[0] for p in paths} == {"data"}
    assert {p.split("/")[1] for p in paths} == {"d=NONE", "d=2024-01-01"}
    assert sorted(t.scan().to_arrow()["a"].to_pylist()) == [1, 2, 3]
    assert t.scan(where="d is null").to_arrow()["a"].to_pylist() == [1]


def test_several_buckets_without_a_key_are_not_written():
    # Old engines hashed the whole row then; nobody does any more.
    schema = Schema((Field(0, "a", scalar(Kind.INT)),), properties={"bucket": "4"}, id=0, last_field_id=0)
    with pytest.raises(UnsupportedFeature, match="bucket-key"):
        layout.layout(State(1, schema))
    one = layout.layout(State(1, replace(schema, properties={"bucket": "1"})))
    assert (one.bucket, one.default_bucket) == (None, 0)
