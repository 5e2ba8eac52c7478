"""File indexes of Paimon tables: what they leave out, and that they go with their files."""

import datetime as dt
import hashlib
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import InvalidInput, Lake, UnsupportedFeature
from lakeformat.codec.paimon import file_index
from lakeformat.codec.paimon.bitmap_index import Bitmaps, BitSlices
from lakeformat.dialects.paimon import manifest
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.errors import CorruptFile
from lakeformat.model.schema import Kind, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.golden.archives import unzipped

NAMES = ["embedded", "beside"]  # In the manifest, and in files beside the data files.


def golden(name: str) -> Table:
    return Table("t", unzipped(f"file_index/{name}.zip"), Paimon())


def literal(value) -> str:
    match value:
        case bool() | int() | float() | Decimal():
            return str(value)
        case str():
            return f"'{value}'"
        case dt.datetime():
            return f"TIMESTAMP '{value}'"
        case _:
            return f"DATE '{value}'"


def files(table: Table, where: str) -> int:
    return sum(len(task.paths) for task in table.scan(where=where).plan())


@pytest.mark.parametrize("name", NAMES)
def test_files_that_hold_none_of_the_values_are_left_out(name):
    """Java 1.3.1 kept no bounds of these columns, and bloom filters of all."""
    table = golden(name)
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == 18
    for row in rows[::4]:
        for column, value in row.items():
            where = f"{column} = {literal(value)}"
            assert table.scan(where=where).to_arrow().to_pylist() == [row], where
            assert files(table, where) == 1, where
    first, last = rows[0], rows[-1]
    assert files(table, f"a IN ({literal(first['a'])}, {literal(last['a'])}, 'none')") == 2
    assert files(table, f"id = {first['id']} AND b = {last['b']}") == 0
    assert files(table, f"id = {first['id']} OR b = {last['b']}") == 3
    assert [files(table, w) for w in ("b > 0", "a IS NULL", "a LIKE 'x%'", "id <=> NULL")] == [3, 3, 3, 3]
    assert table.scan(where="b = 1").count() == 0


def test_an_index_that_is_lost_leaves_nothing_out_and_a_damaged_one_is_an_error():
    table = golden("beside")
    path = next(file.path for file in doors.store(table).list("") if file.path.endswith(".index"))
    doors.store(table).delete([path])
    assert files(Table("t", doors.store(table), Paimon()), "b = 1") == 1
    for damaged in (b"", b"no index of any kind", doors.store(table).read(path.replace(".index", ""))):
        doors.store(table).write(path, damaged)
        with pytest.raises(CorruptFile, match=r"\.index"):
            Table("t", doors.store(table), Paimon()).scan(where="b = 1").to_arrow()


def test_index_files_stay_with_their_files_and_go_with_them():
    table = golden("beside")

    def indexes() -> set[str]:
        return {file.path for file in doors.store(table).list("") if file.path.endswith(".index")}

    def live() -> set[str]:
        return {f"{path}.index" for task in table.scan().plan() for path in task.paths}

    before = indexes()
    assert len(before) == 3
    table.remove_orphan_files(older_than="2100-01-01")
    table.alter().rename_column("b", "c").add_column("b", "int").commit()
    assert indexes() == before
    assert files(table, "c = -7") == 1
    assert files(table, "b = -7") == 0  # The column is younger than all files.
    table.delete("c = -7")
    assert table.scan().count() == 17
    assert files(table, "c = 1") == 0  # What was written again has an index of its own.
    assert indexes() == before | live()
    table.compact(full=True)
    assert indexes() > before | live()
    table.expire_snapshots(retain_last=1, older_than="2100-01-01")
    assert indexes() == live()
    assert len(live()) == 1
    table.truncate()
    table.expire_snapshots(retain_last=1, older_than="2100-01-01")
    assert indexes() == set()


@pytest.mark.parametrize("name", [*NAMES, "bitmaps"])
@pytest.mark.parametrize("later", [False, True], ids=["written with files", "written later"])
def test_indexes_are_those_of_java(name, later):
    theirs, ours = golden(name), Table("t", MemoryFiles(), Paimon())
    given = dict(theirs.schema.properties)
    of_indexes = {key: value for key, value in given.items() if key.startswith("file-index.")}
    plain = {key: value for key, value in given.items() if key not in of_indexes}
    create(ours, replace(theirs.schema, properties=plain) if later else theirs.schema)
    for snapshot in theirs.snapshots():
        ours.append(theirs.scan(snapshot_id=snapshot.id).to_arrow().slice(ours.scan().count()))
    if later:
        assert ours.rewrite_file_index() is None
        ours.alter().set_properties(of_indexes).commit()
        assert ours.rewrite_file_index(id="once").files_added == 3
        assert ours.rewrite_file_index(id="once").operation_id == "once"
        assert ours.rewrite_file_index() is None
    made, expected = indexes_of(ours), indexes_of(theirs)
    for _, blobs in expected:
        blobs.pop("m[k]", None)  # Of keys of maps they are not written.
    assert made == expected
    assert len(made) == 3


def indexes_of(table: Table) -> list[tuple[bool, dict[str, dict[str, bytes]]]]:
    """Of each file whether its indexes lie in its entry, and what they are."""
    view = doors.view(table)
    entries = manifest.live_entries(view.reader, view.state.document, view.schema).sort_by("_CREATION_TIME")
    found = []
    for name, extra, embedded in zip(
        *(entries[n].to_pylist() for n in ("_FILE_NAME", "_EXTRA_FILES", "_EMBEDDED_FILE_INDEX")), strict=True
    ):
        assert len(extra) == (embedded is None)
        assert all(other.startswith(name) and other.endswith(".index") for other in extra)
        data = view.reader.read(f"bucket-0/{extra[0]}") if embedded is None else embedded
        found.append((embedded is not None, file_index.parse(data, name)))
    return sorted(found, key=lambda pair: str(sorted(pair[1].items())))


def test_each_type_with_a_hash_gets_a_filter_and_others_are_refused(tmp_path):
    lake = Lake(str(tmp_path))
    given = pa.table(
        {
            "t": pa.array([1, None, 3], pa.int8()),
            "f": pa.array([0.0, -0.0, float("nan")], pa.float32()),
            "at": pa.array([1, 2, None], pa.timestamp("us")),
            "s": ["", "a" * 40, "é" * 70],
            "m": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int32())),
            "no": [True, False, None],
        }
    )
    names = "t, f, at, s, m[k]"
    table = lake.create_table(
        "d.t", given.schema, format="paimon", properties={"file-index.bloom-filter.columns": names}
    )
    table.append(given)
    ((is_embedded, found),) = indexes_of(table)
    assert not is_embedded
    assert list(found) == ["t", "f", "at", "s"]
    for text in given["s"].to_pylist():
        assert files(table, f"s = '{text}'") == 1
    assert files(table, "s = 'b'") == files(table, "t = 2") == 0
    for kind, columns, more, message in (
        ("bloom-filter", "no", {}, "a boolean"),
        ("bloom-filter", "nowhere", {}, "not a column"),
        ("bloom-filter", "t", {"items": "few"}, "items"),
        ("bloom-filter", "t", {"fpp": "1"}, "fpp"),
        ("bitmap", "m", {}, "of which there are no such indexes"),
        ("bitmap", "t", {"version": "3"}, "it is 1 or 2"),
        ("bitmap", "t", {"index-block-size": "0 b"}, "above zero"),
        ("bsi", "s", {}, "a string"),
    ):
        own = {f"file-index.{kind}.{columns}.{key}": value for key, value in more.items()}
        with pytest.raises(InvalidInput, match=message):
            lake.create_table(
                "d.u", given.schema, format="paimon", properties={f"file-index.{kind}.columns": columns, **own}
            )


# Of Java 1.3.1: the first half of the SHA-256 of an index of these values, and its length.
JAVA = {
    "text": ("cc688637e162653b", 7507),
    "text1": ("b9f0dc3410f2a61b", 7098),
    "text-blocks": ("9905ddcd13660ffc", 7720),
    "int": ("2f00a37fde21c9ec", 6890),
    "long": ("c0ebbb1552021a39", 7138),
    "double": ("692134570d970b03", 7138),
    "small": ("0a21dfe6b7d32ab0", 6550),
    "runs": ("07281fbdd93f831c", 144),
    "turns": ("cc3ea27eb63b666b", 32861),
    "bsi": ("5137971de997ef5c", 50435),
    "bsi-runs": ("18e96df0e05f8511", 576),
    "last12": ("42d60655a3d2eec3", 394),
    "last13": ("a732bbb3cc905b26", 426),
    "last14": ("c476aefae61f9971", 458),
    "last25": ("e1a50867a51ec13e", 810),
}


def test_bitmaps_of_many_values_are_those_of_java():
    """Values of several rows come in the order of a HashMap, which depends on their hashes and on when it grew."""
    turn, place = (np.arange(2000) * 7919 % 997) % 97, np.arange(100_000)
    last = {n: np.arange(2 * n - 1) for n in (12, 13, 14, 25)}
    text = pa.array(["é" * (number % 7) + str(number) for number in turn.tolist()])
    made = {
        "text": (Bitmaps(2, 16 << 10), text, Kind.STRING),
        "text1": (Bitmaps(1, 16 << 10), text, Kind.STRING),
        "text-blocks": (Bitmaps(2, 200), text, Kind.STRING),
        "int": (Bitmaps(2, 100), pa.array(turn * 100003 - 5000000, pa.int32()), Kind.INT),
        "long": (Bitmaps(2, 16 << 10), pa.array(turn * 100000000003 - 5000000000000), Kind.BIGINT),
        "double": (Bitmaps(2, 16 << 10), pa.array(np.where(turn == 50, np.nan, turn / 4 - 10)), Kind.DOUBLE),
        "small": (Bitmaps(2, 16 << 10), pa.array((turn * 300 - 9000).astype(np.int16)), Kind.SMALLINT),
        "runs": (Bitmaps(2, 16 << 10), pa.array(place // 30000, pa.int32(), mask=place // 30000 == 2), Kind.INT),
        "turns": (Bitmaps(2, 16 << 10), pa.array(place % 3 == 0), Kind.BOOLEAN),
        "bsi": (
            BitSlices(),
            pa.array(turn * 1000003 - 40000000, pa.int64(), mask=np.arange(2000) % 11 == 0),
            Kind.BIGINT,
        ),
        "bsi-runs": (BitSlices(), pa.array(place // 1000, pa.int32()), Kind.INT),
    }
    for n, i in last.items():
        values = np.where(i < n - 1, i, np.where(i < 2 * n - 2, i - n + 1, n)) * 48271
        made[f"last{n}"] = (Bitmaps(2, 16 << 10), pa.array(values, pa.int32()), Kind.INT)
    found = {}
    for name, (index, values, kind) in made.items():
        for part in (values[:1001], values[1001:]):
            index.add(part, scalar(kind))
        found[name] = hashlib.sha256(bytes(index)).hexdigest()[:16], len(bytes(index))
    assert found == JAVA


def test_files_of_our_own_are_left_out_by_bitmaps_and_bit_slices(tmp_path):
    properties = {"file-index.bitmap.columns": "a,n", "file-index.bsi.columns": "n", "metadata.stats-mode": "none"}
    schema = pa.schema([("a", pa.string()), ("n", pa.int64())])
    table = Lake(tmp_path).create_table("d.t", schema, format="paimon", properties=properties)
    for low in (0, 10):
        table.append(
            pa.table(
                {
                    "a": [f"v{i}" for i in range(low, low + 10)] + [None],
                    "n": [i * (-1) ** i for i in range(low, low + 10)] + [None],
                },
                schema,
            )
        )
    for where, count in (
        ("a = 'v3'", 1),
        ("n = -13", 1),
        ("n IN (2, 12)", 2),
        ("a IN ('v', 'w')", 0),
        ("n = 13", 0),
        ("a IS NULL", 2),
    ):
        assert files(table, where) == count, where
    assert [row["n"] for row in table.scan(where="n = -13").to_arrow().to_pylist()] == [-13]
    table.delete("n = 4")
    assert files(table, "n = 4") == files(table, "a = 'v4'") == 0  # What was written again has indexes of its own.
    table.compact(full=True)
    assert files(table, "n = 4") == 0
    assert files(table, "n = 12") == 1
    with pytest.raises(InvalidInput, match="no bit slices"):
        table.append(pa.table({"a": ["x"], "n": [-(2**63)]}, schema))


@pytest.mark.parametrize("key", [(), ("id",)])
def test_files_get_the_indexes_that_they_lack_and_keep_the_others(tmp_path, key):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=not key), ("v", pa.string()), ("p", pa.int64())])
    options = {"metadata.stats-mode": "none", "file-index.in-manifest-threshold": "1 b"}
    options |= {"bucket": "1", "write-only": "true"} if key else {"deletion-vectors.enabled": "true"}
    t = Lake(tmp_path).create_table(
        "d.t", schema, partition_by=["p"], primary_key=[*key, *(["p"] if key else [])], properties=options
    )
    if key:
        schema = pa.schema([field.with_nullable(field.name == "v") for field in schema])
    for low in (0, 10, 20):
        ids = range(low, low + 10)
        t.append(pa.table({"id": ids, "v": [f"v{i}" for i in ids], "p": [low // 20] * 10}, schema=schema))
    t.delete("id in (1, 12)")
    before = t.scan().to_arrow().sort_by("id").to_pylist()
    t.alter().set_properties({"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "20"}).commit()
    one = t.rewrite_file_index("p = 0")
    assert [p.values for p in one.partitions] == [(0,)]
    assert (one.kind, t.changes(one.id - 1).to_arrow().num_rows) == ("compact", 0)
    assert t.rewrite_file_index("p = 0") is None
    t.alter().rename_column("v", "w").add_column("v", "string").set_properties(
        {"file-index.bitmap.columns": "w"}
    ).commit()
    assert t.rewrite_file_index() is not None
    assert t.rewrite_file_index() is None
    view = doors.view(t)
    entries = manifest.live_entries(view.reader, view.state.document, view.schema)
    extra = zip(entries["_PARTITION"].to_pylist(), entries["_EXTRA_FILES"].to_pylist(), strict=True)
    paths = {path.rsplit("/", 1)[-1]: path for path in (file.path for file in t.stored_files())}
    for _, (name,) in extra:
        assert set(file_index.parse(view.reader.read(paths[name]), name)["v"]) == {"bloom-filter", "bitmap"}
    assert files(t, "w = 'v15'") == (5 if key else 1)  # Rows of a key in several files are merged first.
    assert [row["id"] for row in t.scan(where="w = 'v15'").to_arrow().to_pylist()] == [15]
    assert t.scan(where="w = 'v12'").count() == 0
    after = t.scan(["id", "w", "p"]).to_arrow().sort_by("id").rename_columns(["id", "v", "p"]).to_pylist()
    assert after == before
    t.rewrite_manifests()
    t.expire_snapshots(retain_last=1)
    t.remove_orphan_files(older_than=dt.timedelta(days=-1))
    indexes = [file.path for file in t.stored_files() if file.path.endswith(".index")]
    assert sorted(name.rsplit("/", 1)[-1] for name in indexes) == sorted(
        n for names in entries["_EXTRA_FILES"].to_pylist() for n in names
    )
    assert t.scan(where="w = 'v15'").count() == 1


def test_tables_without_file_indexes_say_so(tmp_path):
    schema = pa.schema([("id", pa.int64())])
    iceberg = Lake(tmp_path).create_table("d.i", schema, format="iceberg")
    with pytest.raises(UnsupportedFeature, match="has no file indexes"):
        iceberg.rewrite_file_index()
    given = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "file-index.bitmap.columns": "id"}
    with pytest.raises(UnsupportedFeature, match="create_global_index"):
        Lake(tmp_path).create_table("d.t", schema, properties=given).rewrite_file_index()


def test_filters_of_keys_leave_out_files_of_tables_with_keys(tmp_path):
    properties = {"bucket": "1", "write-only": "true", "file-index.bloom-filter.columns": "id, v"}
    properties |= {f"file-index.bloom-filter.{name}.items": "9" for name in ("id", "v")}
    schema = pa.schema([("id", pa.string()), ("v", pa.string())])
    table = Lake(str(tmp_path)).create_table("d.t", schema, format="paimon", primary_key=["id"], properties=properties)
    for ids in (["a", "m", "z"], ["b", "n", "y"], ["c", "n", "x"]):
        table.upsert(pa.table({"id": ids, "v": ids}))
    assert files(table, "id = 'm'") == 1
    assert files(table, "id = 'n'") == 2
    assert files(table, "v = 'm'") == 3  # Another row of its key may be newer.
    table.compact(full=True)
    assert files(table, "id = 'k'") == 0
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["a", "b", "c", "m", "n", "x", "y", "z"]


PRUNED = ("id", "a", "b", "d", "n", "old", "few")  # Of the others the index is left aside.
KEPT = ("f", "p", "milli", "micro", "nano", "yes")


def test_bitmaps_and_bit_slices_leave_out_files_and_no_rows():
    """Java 1.3.1 kept no bounds; `old` has a bitmap of the first version, `id`, `a`, `b`, `f`, `milli`, `nano` and `yes` of the second,
    the others have bit slices. NULLs, NaN and both zeros are among the values."""
    table = golden("bitmaps")
    rows = table.scan([*PRUNED, *KEPT]).to_arrow()
    assert len(rows) == 24
    for column in rows.column_names:
        given = [row for row in rows[column].to_pylist() if row is not None and row == row][::15]
        listed = ", ".join(literal(value) for value in given)
        same = [pc.equal(rows[column], pa.scalar(value, rows[column].type)) for value in given]
        among = pc.or_kleene(*same)
        assert matches(table, rows, f"{column} = {literal(given[0])}", same[0])
        assert matches(table, rows, f"{column} != {literal(given[0])}", pc.invert(same[0]))
        assert matches(table, rows, f"{column} IN ({listed})", among)
        assert matches(table, rows, f"{column} NOT IN ({listed})", pc.invert(among))
        assert matches(table, rows, f"{column} IS NULL", rows[column].is_null())
        assert files(table, f"{column} = {literal(given[1])}") == (1 if column in PRUNED else 3), column
    zeros = pc.equal(rows["f"], 0.0)
    assert matches(table, rows, "f = 0.0", zeros)
    assert matches(table, rows, "f = -0.0", zeros)
    assert matches(table, rows, "b = 77", pc.equal(rows["b"], 77))  # Two rows, so that a bitmap has them.
    assert matches(table, rows, "b <=> NULL", rows["b"].is_null())
    assert matches(table, rows, "b IN (NULL, 77)", pc.equal(rows["b"], 77))
    for column, nowhere in (("d", "DATE '1969-12-31'"), ("a", "'é'"), ("a", f"'{'é' * 9000}'"), ("id", "-6"), ("old", "9"),
                            ("few", "18"), ("n", "-4"), ("b", "70000000000")):  # fmt: skip
        assert table.scan(where=f"{column} = {nowhere}").count() == 0
        assert files(table, f"{column} = {nowhere}") == 0, (column, nowhere)


def matches(table: Table, rows: pa.Table, where: str, mask: pa.ChunkedArray) -> bool:
    """Whether the rows of `where` are those of which `mask` is true."""
    found, kept = table.scan(rows.column_names, where=where).to_arrow(), rows.filter(mask)
    return found["id"].to_pylist() == kept["id"].to_pylist() and found["a"].to_pylist() == kept["a"].to_pylist()


def test_a_damaged_bitmap_is_an_error():
    wanted = file_index.Lookup(pa.array([1], pa.int32()), scalar(Kind.INT))
    for kind in ("bitmap", "bsi"):
        for damaged in (b"", bytes([1, 0, 0, 0, 9]), bytes([1, 0, 0, 0, 9, 1, 1, 0, 0])):
            with pytest.raises(CorruptFile, match="where"):
                file_index.may_hold({kind: damaged}, wanted, "where")


def test_an_index_without_values_says_nothing():
    """Of a key of maps that no row has, Java writes an index at the position -1."""
    whole = file_index.emit({"m[k]": {"bitmap": b""}, "a": {"bitmap": b"some"}})
    start = whole.index(b"bitmap") + len("bitmap")
    empty = whole[:start] + (-1).to_bytes(4, "big", signed=True) + whole[start + 4 :]
    assert file_index.parse(empty, "where") == {"a": {"bitmap": b"some"}}


def test_a_column_that_is_renamed_keeps_its_indexes(tmp_path):
    properties = {"file-index.bloom-filter.columns": "a,b", "file-index.bloom-filter.a.items": "9"}
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    table = Lake(str(tmp_path)).create_table("d.t", schema, format="paimon", properties=properties)
    table.alter().rename_column("a", "c").commit()
    given = {key: value for key, value in table.schema.properties.items() if key.startswith("file-index")}
    assert given == {"file-index.bloom-filter.columns": "c,b", "file-index.bloom-filter.c.items": "9"}


def test_texts_are_hashed_as_by_xxhash64():
    texts = [b"", b"a", b"Nobody inspects the spammish repetition"]
    found = file_index.hashes(pa.array(texts), scalar(Kind.BYTES)).tolist()
    assert found == [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0xFBCEA83C8A378BF1]
