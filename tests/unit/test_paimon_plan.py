"""What a commit makes of an operation: index manifests, statistics, totals, what is inherited, and what one must not write."""

import json

import pyarrow as pa
import pytest

from lakeformat import CorruptFile, Lake, NoSuchFile, NotFound, OutsideScope, UnsupportedFeature
from lakeformat.codec import avro
from lakeformat.dialects.paimon import conflict, manifest, metadata, plan
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.dialects.paimon.metadata import State
from lakeformat.model.operation import Append, Overwrite, Request, Rewrite
from lakeformat.model.partition import identity
from lakeformat.model.predicate import ALWAYS, bind, in_tuples
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage.memory import MemoryFiles

dialect = Paimon()

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])


def rows(*ids, dt="x"):
    return pa.table({"id": list(ids), "v": ["v"] * len(ids), "dt": [dt] * len(ids)})


@pytest.fixture
def home(tmp_path):
    return tmp_path / "d.db" / "t"


@pytest.fixture
def table(tmp_path):
    return Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"])


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())


def document(home, id):
    return json.loads((home / f"snapshot/snapshot-{id}").read_text())


NULLABLE = ["null", "string"]
RANGES = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [
        {"name": "f0", "type": "string"},
        {"name": "f1", "type": "int"},
        {"name": "f2", "type": "int"},
        {"name": "_CARDINALITY", "type": ["null", "long"], "default": None},
    ],
}
# As Java writes it.
INDEX_SCHEMA = {
    "type": "record",
    "name": "record",
    "namespace": "org.apache.paimon.avro.generated",
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {
            "name": "_DELETIONS_VECTORS_RANGES",
            "type": ["null", {"type": "array", "items": ["null", RANGES]}],
            "default": None,
        },
        {"name": "_EXTERNAL_PATH", "type": NULLABLE, "default": None},
    ],
}
INDEX = manifest.INDEX_ENTRY


def with_index(home, schema, snapshot_id, entries):
    """Give a snapshot an index manifest: (type, partition, bucket, file name) of each file."""
    kinds, partitions, buckets, names = zip(*entries, strict=True)
    count = len(entries)
    columns = {
        "_VERSION": [1] * count,
        "_KIND": [0] * count,
        "_PARTITION": manifest.partition_rows(list(partitions), schema),
        "_BUCKET": buckets,
        "_INDEX_TYPE": kinds,
        "_FILE_NAME": names,
        "_FILE_SIZE": [10] * count,
        "_ROW_COUNT": [1] * count,
        "_DELETIONS_VECTORS_RANGES": [[None, {"f0": n, "f1": 1, "f2": 22, "_CARDINALITY": None}] for n in names],
        "_EXTERNAL_PATH": ["s3://elsewhere/x"] + [None] * (count - 1),
    }
    arrays = [
        columns[f.name] if isinstance(columns[f.name], pa.Array) else pa.array(columns[f.name], f.type) for f in INDEX
    ]
    (home / "manifest/index-manifest-x-0").write_bytes(
        avro.encode(pa.Table.from_arrays(arrays, schema=INDEX), INDEX_SCHEMA)
    )
    path = home / f"snapshot/snapshot-{snapshot_id}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"indexManifest": "index-manifest-x-0"}))


def index_of(home, id):
    name = document(home, id).get("indexManifest")
    if name is None:
        return None
    found = avro.decode((home / "manifest" / name).read_bytes())
    assert found.schema == INDEX_SCHEMA
    for row in found.table.to_pylist():
        assert row["_DELETIONS_VECTORS_RANGES"] == [
            None,
            {"f0": row["_FILE_NAME"], "f1": 1, "f2": 22, "_CARDINALITY": None},
        ]
    return dict(zip(found.table["_FILE_NAME"].to_pylist(), found.table["_EXTERNAL_PATH"].to_pylist(), strict=True))


# --- indexes ----------------------------------------------------------------------------------------------------------


def test_indexes_of_overwritten_partitions_go_and_the_others_stay_whole(table, home):
    for dt in ("a", "b", "c"):
        table.append(rows(1, dt=dt))
    schema = table.schema
    with_index(
        home,
        schema,
        3,
        [("HASH", ("a",), 0, "index-a"), ("HASH", ("b",), 0, "index-b"), ("BTREE", ("c",), 0, "index-c")],
    )
    table.append(rows(2, dt="a"))
    assert document(home, 4)["indexManifest"] == "index-manifest-x-0"
    table.overwrite_partitions(rows(3, dt="b"))
    assert index_of(home, 5) == {"index-a": "s3://elsewhere/x", "index-c": None}
    table.overwrite_partitions(rows(4, dt="nowhere"))
    assert index_of(home, 6) == {"index-a": "s3://elsewhere/x", "index-c": None}
    table.drop_partitions([{"dt": "c"}])
    assert index_of(home, 7) == {"index-a": "s3://elsewhere/x"}
    table.truncate()
    assert index_of(home, 8) is None
    back = table.rollback_to(5)
    assert index_of(home, back.id) == {"index-a": "s3://elsewhere/x", "index-c": None}


def test_a_missing_or_broken_index_manifest_is_named(table, home):
    table.append(rows(1))
    with_index(home, table.schema, 1, [("HASH", ("x",), 0, "index-a")])
    (home / "manifest/index-manifest-x-0").write_bytes(b"?")
    for verb in (lambda: table.scan().to_arrow(), lambda: table.overwrite(rows(2))):
        with pytest.raises(CorruptFile, match="index-manifest-x-0"):
            verb()
    (home / "manifest/index-manifest-x-0").unlink()
    for verb in (lambda: table.scan().to_arrow(), lambda: table.overwrite(rows(2))):
        with pytest.raises(NoSuchFile, match="index-manifest-x-0"):
            verb()


# --- what a snapshot says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "kind", "operation"),
    [
        (lambda t: t.append(rows(9)), "APPEND", "WRITE"),
        (lambda t: t.overwrite(rows(9)), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.overwrite_partitions(rows(9)), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.overwrite(rows(1), where="id = 1"), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.truncate(), "OVERWRITE", "TRUNCATE"),
        (lambda t: t.drop_partitions([{"dt": "x"}]), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.delete("id = 1"), "OVERWRITE", "DELETE"),
        (lambda t: t.delete("dt = 'x'"), "OVERWRITE", "DELETE"),
        (lambda t: t.update({"v": "'w'"}), "OVERWRITE", "UPDATE"),
        (lambda t: t.compact(full=True), "COMPACT", None),
        (lambda t: t.rollback_to(1), "OVERWRITE", None),
    ],
)
def test_kinds_totals_and_deltas(table, home, verb, kind, operation):
    table.append(rows(1, 2))
    table.append(rows(3, dt="y"))
    table.append(rows(4))
    made = verb(table)
    found = document(home, 4)
    assert (found["commitKind"], found.get("operation")) == (kind, operation)
    assert found["totalRecordCount"] == table.scan().count() == table.scan().to_arrow().num_rows == made.total_rows
    assert found["deltaRecordCount"] == found["totalRecordCount"] - 4
    assert made.rows_added - made.rows_removed == (
        found["deltaRecordCount"] if table.snapshots()[-1].properties == {} else 0
    )
    assert table.current_snapshot().partitions == made.partitions


def test_entries_say_of_new_files_what_java_says(table):
    table.append(rows(1, 2))
    table.append(rows(3))
    base = table._view()
    [entry] = base.files().entries.slice(0, 1).to_pylist()
    for key, value in {
        "_KIND": 0, "_BUCKET": 0, "_TOTAL_BUCKETS": -1, "_MIN_KEY": bytes(12), "_MAX_KEY": bytes(12), "_MIN_SEQUENCE_NUMBER": 0,
        "_MAX_SEQUENCE_NUMBER": 1, "_LEVEL": 0, "_EXTRA_FILES": [], "_DELETE_ROW_COUNT": 0, "_FILE_SOURCE": 0, "_ROW_COUNT": 2,
        "_EMBEDDED_FILE_INDEX": None, "_EXTERNAL_PATH": None, "_FIRST_ROW_ID": None, "_WRITE_COLS": None, "_SCHEMA_ID": 0,
        "_VALUE_STATS_COLS": None, "_PARTITION": bytes.fromhex("00000001") + bytes(8) + b"x" + bytes(6) + b"\x81",
    }.items():  # fmt: skip
        assert entry[key] == value, key
    assert entry["_KEY_STATS"] == {"_MIN_VALUES": bytes(12), "_MAX_VALUES": bytes(12), "_NULL_COUNTS": []}


def test_rows_of_a_fixed_bucket_are_numbered_on_from_its_newest(tmp_path):
    """Append tables with buckets are read in that order."""
    properties = {"bucket": "1", "bucket-key": "id", "write-only": "true"}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], properties=properties)
    for given in (rows(1, 2, 3), rows(4, 5), rows(6, dt="y"), rows(7)):
        table.append(given)
    live = table._view().files().entries
    ends = ("_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER", "_ROW_COUNT")
    assert sorted(zip(*(live[name].to_pylist() for name in ends), strict=True)) == [
        (0, 0, 1), (0, 2, 3), (3, 4, 2), (5, 5, 1),
    ]  # fmt: skip


def test_a_file_without_rows_or_without_stats_is_no_trouble():
    schema = metadata.declare(Schema((Field(-1, "id", scalar(Kind.BIGINT)), Field(-1, "s", scalar(Kind.STRING)))), "t")
    file = WrittenFile("bucket-0/data-x.parquet", (), 3, 10)
    stats, columns = plan._value_stats((file,), schema)
    assert columns is None
    assert stats.field(2).to_pylist() == [[None, None]]


def test_plans_are_the_same_for_the_same_stamp(table):
    table.append(rows(1))
    base = table._view()
    added = table._write(base, rows(2))
    operation = Append(request=Request(id="x"), added=added)
    one, two, other = (base.plan(operation, Stamp(5, "n", a)) for a in (0, 0, 1))
    assert list(one.files) == list(two.files)
    assert (one.root_path, one.root) == (two.root_path, two.root)
    assert not one.files.keys() & other.files.keys()
    assert one.root != other.root


def test_files_written_under_an_older_schema_say_so(table, home):
    base = table._view()
    added = table._write(base, rows(1))
    request, _ = table._asked(base, None, None)
    table.alter().add_column("late", "int").rename_column("v", "w").commit()
    table._commit(base, Append(request=request, added=added))
    assert table.inspect.files()["schema_id"].to_pylist() == [0]
    assert document(home, 1)["schemaId"] == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "w": "v", "dt": "x", "late": None}]
    assert table.scan(where="w = 'v' and late is null").count() == 1


def test_files_of_unknown_ending_are_refused_by_name(table):
    table.append(rows(1))
    base = table._view()
    for path in ("dt=x/bucket-0/data-x", "dt=x/bucket-0/data-x.csv.gz", "dt=x/bucket-0/data-x.vortex"):
        file = WrittenFile(path, ("x",), 1, 1)
        made = table._commit(base, Append(request=Request(id=path), added=(file,)))
        with pytest.raises(UnsupportedFeature, match="format"):
            table.scan().to_arrow()
        table.rollback_to(made.id - 1) if made.id > 1 else None


# --- conflicts --------------------------------------------------------------------------------------------------------


PARTED = Schema(
    (Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))), identity("dt"), id=0, last_field_id=1
)


def test_files_outside_the_scope_are_refused():
    files = [WrittenFile(f"dt={p}/bucket-0/x.parquet", (p,), 1, 1) for p in ("a", None, "")]
    scope = bind(in_tuples(["dt"], [("a",), (None,)]), PARTED.fields)
    conflict.require_inside(tuple(files[:2]), PARTED, scope)
    with pytest.raises(OutsideScope, match="1 partitions"):
        conflict.require_inside(tuple(files), PARTED, scope)
    conflict.require_inside(tuple(files), PARTED, ALWAYS)
    conflict.require_inside((), PARTED, scope)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_TZ", "DATE", "DECIMAL", "DOUBLE", "TIME", "BOOLEAN"])
def test_declared_partitions_of_every_type(tmp_path, kind):
    import datetime
    from decimal import Decimal

    utc = datetime.UTC
    type, value, other = {
        "TIMESTAMP": (pa.timestamp("us"), datetime.datetime(2013, 1, 5, 6), datetime.datetime(2013, 1, 6)),
        "TIMESTAMP_TZ": (pa.timestamp("us", "UTC"), datetime.datetime(2013, 1, 5, 6, tzinfo=utc), datetime.datetime(2013, 1, 6, tzinfo=utc)),
        "DATE": (pa.date32(), datetime.date(2013, 1, 5), datetime.date(2013, 1, 6)),
        "DECIMAL": (pa.decimal128(5, 2), Decimal("1.50"), Decimal("2.00")),
        "DOUBLE": (pa.float64(), 1.5, float("nan")),
        "TIME": (pa.time32("ms"), datetime.time(1, 2, 3), datetime.time(0)),
        "BOOLEAN": (pa.bool_(), True, False),
    }[kind]  # fmt: skip
    schema = pa.schema([("id", pa.int64()), ("k", type)])
    t = Lake(str(tmp_path)).create_table("d.t", schema, partition_by=["k"])
    data = pa.table({"id": [1, 2], "k": pa.array([value, other], type)})
    t.append(data)
    t.overwrite_partitions(data.slice(0, 1), partitions=[{"k": value}])
    with pytest.raises(OutsideScope):
        t.overwrite_partitions(data, partitions=[{"k": value}])
    assert t.scan().count() == 2
    made = t.overwrite_partitions(data.slice(0, 0), partitions=[{"k": other}])
    assert (made.rows_removed, ids(t)) == (1, [1])
    t.overwrite_partitions(data)
    assert ids(t) == [1, 2]
    t.overwrite(data.slice(0, 1), partition={"k": value}, pinned_to=t.current_snapshot().id)
    t.drop_partitions([{"k": value}])
    assert ids(t) == [2]


def test_operations_on_a_table_that_is_gone():
    store = MemoryFiles("memory://gone")
    base = State(0, Schema((), id=-1), exists=False)
    for operation in (
        Append(request=Request(id="x"), added=()),
        Overwrite(request=Request(id="x"), added=()),
        Rewrite(request=Request(id="x"), removed=(), added=()),
    ):
        with pytest.raises(NotFound, match="gone"):
            conflict.check(store, operation, base)
