"""Tables with a primary key, by merge engine: what rows written at different times become."""

import datasketches
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from lakeformat import Conflict, CorruptFile, InvalidInput, Lake, UnsupportedFeature
from lakeformat.engines.keyed import roaring64


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "warehouse"))


def make(lake, engine, columns, **properties):
    given = {"bucket": "1", "merge-engine": engine} | properties
    return lake.create_table(
        "d.t", pa.schema([("id", pa.int64()), *columns]), format="paimon", primary_key=["id"], properties=given
    )


def write(table, *rows):
    schema = table.scan().schema
    if any("rowkind" in row for row in rows):
        schema = schema.append(pa.field("rowkind", pa.string()))
    schema = pa.schema([field.with_nullable(True) for field in schema])
    table.upsert(pa.Table.from_pylist(list(rows), schema))


def read(table, **how):
    return table.scan(**how).to_arrow().to_pylist()


def test_partial_update_fills_rows_from_several_writers(lake):
    table = make(lake, "partial-update", [("a", pa.string()), ("b", pa.int32())])
    write(table, {"id": 1, "a": "x"}, {"id": 1, "b": 1}, {"id": 2, "a": "y"})
    write(table, {"id": 1, "b": 2}, {"id": 3, "b": 3})
    assert read(table) == [{"id": 1, "a": "x", "b": 2}, {"id": 2, "a": "y", "b": None}, {"id": 3, "a": None, "b": 3}]
    assert read(table, columns=["b"], where="a = 'x'") == [{"b": 2}]
    with pytest.raises(InvalidInput, match="cannot take rows back"):
        write(table, {"id": 1, "rowkind": "-D"})
    with pytest.raises(UnsupportedFeature, match="remove-record-on-delete"):
        table.delete("id = 1")
    with pytest.raises(UnsupportedFeature, match="update on a table with merge engine 'partial-update'"):
        table.update({"a": "'z'"}, where="id = 1")


def test_partial_update_removes_rows_where_the_option_says_so(lake):
    removing = {"partial-update.remove-record-on-delete": "true"}
    table = make(lake, "partial-update", [("a", pa.string()), ("b", pa.int32())], **removing)
    write(table, {"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y"})
    table.delete("id = 1")
    assert read(table) == [{"id": 2, "a": "y", "b": None}]
    write(table, {"id": 1, "b": 7})
    assert read(table, where="id = 1") == [{"id": 1, "a": None, "b": 7}]


def test_sequence_groups_have_orders_of_their_own(lake):
    groups = {
        "fields.g.sequence-group": "a",
        "fields.h.sequence-group": "total",
        "fields.total.aggregate-function": "sum",
        "partial-update.remove-record-on-sequence-group": "h",
    }
    columns = [("a", pa.string()), ("g", pa.int32()), ("total", pa.int64()), ("h", pa.int32())]
    table = make(lake, "partial-update", columns, **groups)
    write(table, {"id": 1, "a": "two", "g": 2, "total": 5, "h": 1})
    write(table, {"id": 1, "a": "one", "g": 1, "total": 6, "h": 0})
    assert read(table) == [{"id": 1, "a": "two", "g": 2, "total": 11, "h": 1}]
    assert read(table, columns=["a", "total"]) == [{"a": "two", "total": 11}]
    assert (read(table, columns=["a"]), read(table, columns=["id"])) == ([{"a": "two"}], [{"id": 1}])
    write(table, {"id": 1, "h": 2, "rowkind": "-D"})
    assert read(table) == []
    assert table.scan().count() == 0


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize("marked", [False, True])
def test_what_an_older_row_changes_is_in_the_changelog(lake, producer, marked):
    """The merged row has the number of the newest one, which it had before."""
    if marked and producer == "full-compaction":
        return
    given = {"sequence.field": "s", "changelog-producer": producer}
    given |= {"deletion-vectors.enabled": "true"} if marked else {}
    table = make(lake, "partial-update", [("s", pa.int32()), ("a", pa.string())], **given)
    write(table, {"id": 1, "s": 5, "a": None}, {"id": 2, "s": 5, "a": "x"})
    write(table, {"id": 1, "s": 4, "a": "late"}, {"id": 2, "s": 4, "a": "lost"})
    assert read(table, where="id = 1") == [{"id": 1, "s": 5, "a": "late"}]
    rows = table.changes(0).to_arrow().to_pylist()
    rows = [(row["_row_kind"], row["s"], row["a"]) for row in rows if row["id"] == 1]
    assert rows == [("+I", 5, None), ("-U", 5, None), ("+U", 5, "late")]


def test_renamed_columns_keep_what_is_said_of_them(lake):
    columns = [("a", pa.int32()), ("g", pa.int32()), ("h", pa.int32()), ("s", pa.int32()), ("k", pa.string())]
    given = {
        "fields.g, h.sequence-group": "a",
        "fields.default-aggregate-function": "last_non_null_value",
        "fields.a.aggregate-function": "max",
        "fields.a.ignore-retract": "true",
        "sequence.field": "s",
        "rowkind.field": "k",
        "partial-update.remove-record-on-sequence-group": "h",
        "changelog-producer.row-deduplicate-ignore-fields": "a,s",
    }
    table = make(lake, "partial-update", columns, **given)
    write(table, {"id": 1, "a": 3, "g": 1, "h": 1, "s": 1, "k": "+I"})
    renaming = table.alter().rename_column("a", "most").rename_column("s", "at").rename_column("k", "kind")
    renaming.rename_column("g", "x").rename_column("h", "g").rename_column("x", "h").commit()
    assert {name: table.properties[name] for name in table.properties if name not in {"bucket", "merge-engine"}} == {
        "fields.h,g.sequence-group": "most",
        "fields.default-aggregate-function": "last_non_null_value",
        "fields.most.aggregate-function": "max",
        "fields.most.ignore-retract": "true",
        "sequence.field": "at",
        "rowkind.field": "kind",
        "partial-update.remove-record-on-sequence-group": "g",
        "changelog-producer.row-deduplicate-ignore-fields": "most,at",
    }
    write(table, {"id": 1, "most": 9, "h": 1, "g": 2, "at": 2, "kind": "-U"})
    write(table, {"id": 1, "most": 2, "h": 1, "g": 0, "at": 3, "kind": "+U"})
    assert read(table) == [{"id": 1, "most": 3, "h": 1, "g": 2, "at": 3, "kind": "+U"}]
    table.alter().change_type("most", "bigint").change_type("g", "bigint").add_column("new", "int").commit()
    write(table, {"id": 1, "most": 1 << 40, "h": 1, "g": 1 << 40, "at": 4, "kind": "+U", "new": 7})
    table.compact(full=True)
    assert read(table) == [{"id": 1, "most": 1 << 40, "h": 1, "g": 1 << 40, "at": 4, "kind": "+U", "new": 7}]
    for name, option in (("most", "sequence-group"), ("g", "sequence-group"), ("at", "sequence"), ("kind", "rowkind")):
        with pytest.raises(InvalidInput, match=f"{option}.* names '{name}', which is not a column"):
            table.alter().drop_column(name).commit()
    with pytest.raises(InvalidInput, match=r"option 'sequence\.field' is set when a table is made"):
        table.alter().rename_column("at", "s").set_properties({"sequence.field": "g"}).commit()


@pytest.mark.parametrize("engine", ["aggregation", "partial-update", "deduplicate", "first-row"])
def test_deletes_are_ignored_by_each_name_of_the_option(lake, engine):
    for option in (
        "ignore-delete",
        "first-row.ignore-delete",
        "deduplicate.ignore-delete",
        "partial-update.ignore-delete",
    ):
        table = make(lake, engine, [("a", pa.int32())], **{option: "true"})
        write(table, {"id": 1, "a": 1}, {"id": 1, "rowkind": "-D"})
        assert read(table) == [{"id": 1, "a": 1}]
        lake.drop_table("d.t")


@pytest.mark.parametrize("producer", ["none", "input"])
def test_rows_of_before_an_update_are_ignored_where_asked_for(lake, producer):
    """As they are written, and only they: files of others may hold them."""
    options = {"fields.n.aggregate-function": "sum", "changelog-producer": producer}
    table = make(lake, "aggregation", [("n", pa.int32())], **options, **{"ignore-update-before": "true"})
    write(table, {"id": 1, "n": 1}, {"id": 1, "n": 1, "rowkind": "-U"}, {"id": 1, "n": 5, "rowkind": "+U"})
    write(table, {"id": 1, "n": 2, "rowkind": "-D"}, {"id": 2, "n": 7, "rowkind": "-U"})
    write(table, {"id": 1, "n": 3, "rowkind": "-U"})
    assert read(table) == [{"id": 1, "n": 4}]
    assert len(table.snapshots()) == 2
    seen = {row["_row_kind"] for row in table.changes(from_snapshot=0).to_arrow().to_pylist()}
    assert "-U" not in seen
    if producer == "input":
        assert seen == {"+I", "+U", "-D"}
    with pytest.raises(UnsupportedFeature, match="'ignore-update-before' on a table whose keys may change partitions"):
        lake.create_table(
            "d.crossing",
            pa.schema([("id", pa.int64()), ("day", pa.string())]),
            format="paimon",
            primary_key=["id"],
            partition_by=["day"],
            properties={"ignore-update-before": "true"},
        )


def test_aggregation_adds_up(lake):
    columns = [
        ("n", pa.int64()),
        ("most", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("seen", pa.map_(pa.string(), pa.int32())),
        ("all", pa.string()),
        ("last", pa.string()),
    ]
    functions = {"n": "sum", "most": "max", "tags": "collect", "seen": "merge_map", "all": "listagg"}
    options = {f"fields.{name}.aggregate-function": function for name, function in functions.items()}
    table = make(lake, "aggregation", columns, **options, **{"fields.tags.distinct": "true"})
    write(table, {"id": 1, "n": 1, "most": 2.0, "tags": ["a"], "seen": [("x", 1)], "all": "p", "last": "q"})
    write(table, {"id": 1, "n": 2, "most": 1.0, "tags": ["b", "a"], "seen": [("x", 2)], "all": "r", "last": None})
    merged = {"id": 1, "n": 3, "most": 2.0, "tags": ["a", "b"], "seen": [("x", 2)], "all": "p,r", "last": "q"}
    assert read(table) == [merged]
    assert read(table, columns=["n"], where="n > 2") == [{"n": 3}]
    with pytest.raises(InvalidInput, match="'max' of column 'most'"):
        write(table, {"id": 1, "n": 1, "rowkind": "-D"})


def test_entries_of_a_map_have_times_of_their_own(lake):
    row = pa.struct([("n", pa.int32()), ("at", pa.string()), ("by", pa.string())])
    columns = [("m", pa.map_(pa.string(), row)), ("other", pa.map_(pa.string(), row))]
    options = {f"fields.{name}.aggregate-function": "merge_map_with_keytime" for name in ("m", "other")}
    table = make(lake, "aggregation", columns, **options, **{"fields.m.ts-field": "at"})
    old, new, none = (
        {"n": n, "at": at, "by": by} for n, at, by in ((1, "10:00", "b"), (2, "11:00", "a"), (3, None, "c"))
    )
    write(table, {"id": 1, "m": [("x", new), ("y", old), ("z", old)], "other": [("x", new)]})
    write(table, {"id": 1, "m": [("x", old), ("y", none), ("z", None), ("w", new)], "other": [("x", old)]})
    assert read(table) == [{"id": 1, "m": [("x", new), ("y", old), ("w", new)], "other": [("x", old)]}]
    with pytest.raises(InvalidInput, match="'merge_map_with_keytime' of column 'm'"):
        write(table, {"id": 1, "rowkind": "-D"})


@pytest.mark.parametrize("crossing", [False, True], ids=["fixed", "crossing"])
@pytest.mark.parametrize("removes", ["false", "true"])
def test_rows_taken_back_stay_in_their_partition(lake, crossing, removes):
    """And have a value where there must be one: what cannot be null is not taken back."""
    columns = [("id", pa.int64()), ("dt", pa.string()), ("n", pa.int64()), ("v", pa.string())]
    schema = pa.schema([*columns, pa.field("w", pa.string(), nullable=False)])
    options = {"fields.n.aggregate-function": "sum", "aggregation.remove-record-on-delete": removes}
    table = lake.create_table(
        "d.t",
        schema,
        format="paimon",
        partition_by=["dt"],
        primary_key=["id"] if crossing else ["id", "dt"],
        properties={"bucket": "-1" if crossing else "1", "merge-engine": "aggregation", **options},
    )
    write(table, *({"id": id, "dt": "x", "n": 5, "v": "a", "w": "b"} for id in (1, 2)))
    write(table, *({"id": id, "dt": "x", "n": 2, "v": "a", "w": "b", "rowkind": "-U"} for id in (1, 2)))
    write(table, {"id": 2, "dt": "x", "n": 1, "v": "a", "w": "c", "rowkind": "-D"})
    left = {"id": 2, "dt": "x", "n": 2, "v": None, "w": "c"}
    wanted = [{"id": 1, "dt": "x", "n": 3, "v": None, "w": "b"}, *([left] if removes == "false" else [])]
    assert read(table) == read(table, where="dt = 'x'") == wanted
    table.compact(full=True)
    assert read(table) == wanted
    assert len(table.inspect.files()) == 1


def test_aggregation_takes_rows_back(lake):
    table = make(lake, "aggregation", [("n", pa.int64())], **{"fields.n.aggregate-function": "sum"})
    write(table, {"id": 1, "n": 5}, {"id": 2, "n": 5})
    write(
        table,
        {"id": 1, "n": 2, "rowkind": "-U"},
        {"id": 1, "n": 3, "rowkind": "+U"},
        {"id": 2, "n": 4, "rowkind": "-D"},
    )
    assert read(table) == [{"id": 1, "n": 6}, {"id": 2, "n": 1}]


def test_first_row_keeps_what_came_first(lake):
    table = make(lake, "first-row", [("a", pa.string())], **{"first-row.ignore-delete": "true"})
    write(table, {"id": 1, "a": "first"}, {"id": 1, "a": "second"})
    write(table, {"id": 1, "a": "third"}, {"id": 2, "a": "other"}, {"id": 2, "a": "gone", "rowkind": "-D"})
    assert read(table) == [{"id": 1, "a": "first"}, {"id": 2, "a": "other"}]
    with pytest.raises(UnsupportedFeature, match="delete on a table with merge engine 'first-row'"):
        table.delete("id = 1")


def test_first_rows_are_seen_once_they_are_compacted(lake):
    """As by Paimon's own readers, in batches; a write compacts them unless the table is write-only."""
    table = make(lake, "first-row", [("a", pa.string())], **{"write-only": "true"})
    write(table, {"id": 1, "a": "first"}, {"id": 2, "a": "first"})
    assert (read(table), table.scan().count(), table.scan(where="id = 1").count()) == ([], 0, 0)
    assert table.changes(0).to_arrow()["id"].to_pylist() == [1, 2]
    source = pa.table({"id": [2, 3], "a": ["merged", "merged"]})
    table.merge_into(source, on="t.id = s.id").when_not_matched().insert_all().merge()
    assert sum(table.inspect.files()["row_count"].to_pylist()) == 3, "what nobody sees yet is there"
    table.compact()
    seen = [{"id": 1, "a": "first"}, {"id": 2, "a": "first"}, {"id": 3, "a": "merged"}]
    assert (read(table), table.scan().count()) == (seen, 3)
    write(table, {"id": 3, "a": "late"}, {"id": 4, "a": "late"})
    assert (read(table), table.scan(where="a = 'late'").count()) == (seen, 0)
    with pytest.raises(Conflict, match="wait for compaction"):
        table.overwrite(pa.table({"id": [9], "a": ["x"]}), pinned_to=table.current_snapshot().id)
    since = table.current_snapshot().id
    table.overwrite(pa.table({"id": [1, 5], "a": ["new", "new"]}))
    rows = [tuple(row.values()) for row in table.changes(since).to_arrow().to_pylist()]
    gone = [(1, "first", "-D"), (2, "first", "-D"), (3, "merged", "-D"), (4, "late", "-D")]
    assert rows == [*gone, (1, "new", "+I"), (5, "new", "+I")]
    table.alter().set_properties({"write-only": "false"}).commit()
    write(table, {"id": 1, "a": "late"}, {"id": 6, "a": "new"})
    assert [(row["id"], row["a"]) for row in read(table)] == [(1, "new"), (5, "new"), (6, "new")]


ORDERED = {"sequence.snapshot-ordering": "true", "write-only": "true"}


@pytest.mark.parametrize("marked", ["false", "true"])
def test_rows_of_later_snapshots_are_newer_whatever_their_numbers(lake, marked):
    """A writer that began before others numbers its rows as if theirs were not there; its commit comes last."""
    table = make(lake, "deduplicate", [("a", pa.string())], **ORDERED, **{"deletion-vectors.enabled": marked})
    stream = table.stream("late")
    late = stream.prepare(1, pa.table({"id": [1], "a": ["late"]}))
    for i in range(3):
        write(table, *({"id": id, "a": f"{id} at {i}"} for id in range(1, 9)))
    numbers = pa.table(table.inspect.files())
    stamped = [(1, 1), (2, 2), (3, 3)]
    assert (
        sorted(zip(*(numbers[f"{end}_sequence_number"].to_pylist() for end in ("min", "max")), strict=True)) == stamped
    )
    stream.commit(late)
    expected = [{"id": 1, "a": "late"}, *({"id": id, "a": f"{id} at 2"} for id in range(2, 9))]
    table.compact(full=True)
    assert read(table) == expected
    (file,) = pa.table(table.inspect.files()).to_pylist()  # Its rows hold the snapshots that they came with.
    assert (file["min_sequence_number"], file["max_sequence_number"]) == (3, 4)
    write(table, {"id": 2, "rowkind": "-D"}, {"id": 3, "a": "new", "rowkind": "+I"})
    table.compact(full=True)
    expected = [{"id": 1, "a": "late"}, {"id": 3, "a": "new"}, *expected[3:]]
    assert read(table) == expected


def test_rows_of_later_snapshots_are_newer_in_each_merge_engine(lake):
    """A compaction of the older files, which knows each row's snapshot, stands below what came meanwhile."""
    for engine, expected in (("partial-update", "late"), ("aggregation", "late"), ("first-row", "early")):
        given = {"fields.a.aggregate-function": "last_value"} if engine == "aggregation" else {}
        table = make(lake, engine, [("a", pa.string())], **ORDERED, **given)
        stream = table.stream("late")
        late = stream.prepare(1, pa.table({"id": [1], "a": ["late"]}))
        write(table, {"id": 1, "a": "early"}, {"id": 2, "a": "two"})
        write(table, {"id": 2, "a": "three"})
        table.compact(full=True)
        stream.commit(late)
        if engine == "first-row":
            table.compact(full=True)
        assert read(table, where="id = 1") == [{"id": 1, "a": expected}], engine
        lake.drop_table("d.t", purge=True)


def test_rows_merge_on_spark_as_here(lake, spark):
    table = make(lake, "aggregation", [("n", pa.int64())], **{"fields.default-aggregate-function": "sum"})
    write(table, {"id": 1, "n": 5}, {"id": 2, "n": 5})
    table.upsert(spark.createDataFrame([(1, 3), (3, 1)], "id bigint, n bigint"))
    found = sorted(tuple(row) for row in table.scan().to_spark(spark).collect())
    assert found == [(1, 8), (2, 5), (3, 1)]


ORDERS = pa.list_(pa.struct([("x", pa.int32()), ("at", pa.int32()), ("note", pa.string())]))


def nested(function, **options):
    return {"fields.r.aggregate-function": function} | {f"fields.r.{name}": value for name, value in options.items()}


def orders(*rows):
    return [dict(zip(("x", "at", "note"), row, strict=True)) for row in rows]


def test_rows_inside_a_row_have_keys_an_order_and_a_limit(lake):
    options = nested("nested_update", **{"nested-key": "x", "nested-sequence-field": "at", "count-limit": "2"})
    table = make(lake, "aggregation", [("r", ORDERS)], **options)
    write(table, {"id": 1, "r": orders((1, 5, "new"))})
    write(table, {"id": 1, "r": orders((1, 4, "old"), (2, 1, "b"), (3, 1, "too many"))})
    write(table, {"id": 1, "r": orders((2, 1, "B"))}, {"id": 2, "r": None})
    assert read(table) == [{"id": 1, "r": orders((1, 5, "new"), (2, 1, "B"))}, {"id": 2, "r": None}]
    write(table, {"id": 1, "r": orders((1, 0, None)), "rowkind": "-U"})
    write(table, {"id": 1, "r": orders((3, 1, "c"))})
    table.compact(full=True)
    [row] = read(table, where="id = 1")
    assert sorted(item["note"] for item in row["r"]) == ["B", "c"]


def test_rows_inside_a_row_are_filled_column_by_column(lake):
    table = make(lake, "aggregation", [("r", ORDERS)], **nested("nested_partial_update", **{"nested-key": "x"}))
    write(table, {"id": 1, "r": orders((1, 5, None), (2, None, "b"))})
    write(table, {"id": 1, "r": orders((2, 7, None), (1, None, "a"), (None, 1, "nobody"))})
    assert read(table) == [{"id": 1, "r": orders((1, 5, "a"), (2, 7, "b"), (None, 1, "nobody"))}]
    with pytest.raises(InvalidInput, match="'nested_partial_update' of column 'r'"):
        write(table, {"id": 1, "r": [], "rowkind": "-D"})


@pytest.mark.parametrize("function", ["nested_update", "nested_partial_update"])
def test_null_in_a_nested_key_is_left_out_or_refused_where_so_said(lake, function):
    given = {"nested-key": "x", "nested-key-null-strategy": "ignore"}
    table = make(lake, "aggregation", [("r", ORDERS)], **nested(function, **given))
    write(table, {"id": 1, "r": orders((1, 5, "a"))})
    write(table, {"id": 1, "r": orders((None, 5, "nobody"), (2, 5, "b"))})
    assert read(table) == [{"id": 1, "r": orders((1, 5, "a"), (2, 5, "b"))}]
    table.alter().set_properties({"fields.r.nested-key-null-strategy": "error"}).commit()
    with pytest.raises(InvalidInput, match=r"column 'r'.*\(x\).*nested-key-null-strategy"):
        lake.table("d.t").scan().to_arrow()


def test_bitmaps_of_64_bits_are_united(lake):
    options = {"fields.b.aggregate-function": "rbm64", "fields.default-aggregate-function": "last_value"}
    table = make(lake, "aggregation", [("b", pa.binary())], **options)
    write(table, {"id": 1, "b": roaring64.serialize(BitMap64([1, 1 << 40]))}, {"id": 2, "b": None})
    write(table, {"id": 1, "b": roaring64.serialize(BitMap64([2, 1 << 63]))}, {"id": 2, "b": b"\x00"})
    one, two = read(table)
    assert list(roaring64.deserialize(one["b"])) == [1, 2, 1 << 40, 1 << 63]
    assert two["b"] == b"\x00"
    write(table, {"id": 2, "b": b"no bitmap"})
    with pytest.raises(CorruptFile, match="column 'b': not a roaring bitmap of rbm64"):
        read(table)


def hll(*values):
    made = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_4)
    for value in values:
        made.update(value)
    return bytes(made.serialize_compact())


def theta(*values):
    made = datasketches.update_theta_sketch()
    for value in values:
        made.update(value)
    return bytes(made.compact().serialize())


def test_sketches_are_united(lake):
    options = {"fields.h.aggregate-function": "hll_sketch", "fields.t.aggregate-function": "theta_sketch"}
    table = make(lake, "aggregation", [("h", pa.binary()), ("t", pa.binary())], **options)
    few, many = range(5), range(9000)
    write(
        table, {"id": 1, "h": hll(*few), "t": theta(*few)}, {"id": 2, "h": hll(*many[:6000]), "t": theta(*many[:6000])}
    )
    write(table, {"id": 1, "h": None, "t": None}, {"id": 2, "h": hll(*many[4000:]), "t": theta(*many[4000:])})
    write(table, {"id": 1, "h": hll(7), "t": theta(7)}, {"id": 3, "h": b"any", "t": None})
    table.compact(full=True)
    one, two, three = read(table)
    assert one == {"id": 1, "h": hll(7, *few), "t": theta(7, *few)}
    assert datasketches.hll_sketch.deserialize(two["h"]).get_estimate() == pytest.approx(9000, rel=0.02)
    assert datasketches.compact_theta_sketch.deserialize(two["t"]).get_estimate() == pytest.approx(9000, rel=0.02)
    assert three == {"id": 3, "h": b"any", "t": None}  # Alone, a value stays as it is.
    write(table, {"id": 1, "h": None, "t": b"no sketch"})
    with pytest.raises(CorruptFile, match="column 't': not a sketch of theta_sketch"):
        read(table)


TYPES = [("a", pa.int32()), ("b", pa.string()), ("g", pa.int32()), ("r", pa.list_(pa.struct([("x", pa.int32())])))]
TYPES.append(("m", pa.map_(pa.string(), pa.struct([("x", pa.string()), ("y", pa.int32())]))))
WRONG = [
    ("aggregation", {"fields.a.aggregate-function": "summ"}, "did you mean 'sum'"),
    ("aggregation", {"fields.b.aggregate-function": "sum"}, "'b' is string; aggregate function 'sum' takes numbers"),
    ("aggregation", {"fields.z.aggregate-function": "sum"}, "names 'z', which is not a column"),
    ("aggregation", {"fields.default-aggregate-function": "bool_or"}, "takes booleans"),
    ("aggregation", {"fields.r.aggregate-function": "nested_update", "fields.r.nested-key": "y"}, "names 'y'"),
    ("aggregation", nested("nested_update", **{"nested-sequence-field": "x"}), "needs fields.r.nested-key"),
    ("aggregation", nested("nested_update", **{"nested-key-null-strategy": "merge"}), "needs fields.r.nested-key"),
    ("aggregation", nested("nested_partial_update"), "needs fields.r.nested-key"),
    (
        "aggregation",
        nested("nested_update", **{"nested-key": "x", "nested-sequence-field": "z"}),
        "nested-sequence-field names 'z'",
    ),
    ("aggregation", nested("nested_update", **{"nested-key": "x", "nested-key-null-strategy": "drop"}), "'drop'"),
    ("aggregation", nested("nested_update", **{"count-limit": "-1"}), "count-limit is -1"),
    ("aggregation", nested("nested_update", **{"count-limit": "few"}), "whole number"),
    ("aggregation", {"fields.b.aggregate-function": "rbm64"}, "takes bytes"),
    ("aggregation", {"fields.b.aggregate-function": "hll_sketch"}, "takes bytes"),
    ("aggregation", {"fields.m.aggregate-function": "merge_map_with_keytime"}, "compares 'y', which is int"),
    (
        "aggregation",
        {"fields.m.aggregate-function": "merge_map_with_keytime", "fields.m.ts-field": "z"},
        "ts-field names 'z'",
    ),
    ("aggregation", {"fields.a.aggregate-function": "merge_map_with_keytime"}, "takes maps of rows"),
    ("aggregation", {"sequence.field": "g", "fields.g.aggregate-function": "max"}, "never aggregated"),
    (
        "aggregation",
        {
            "fields.a.aggregate-function": "max",
            "fields.a.ignore-retract": "true",
            "aggregation.remove-record-on-delete": "true",
        },
        "contradict",
    ),
    ("partial-update", {"fields.a.aggregate-function": "sum"}, "no sequence group"),
    ("deduplicate", {"record-level.expire-time": "1 d"}, "needs record-level.time-field"),
    (
        "deduplicate",
        {"record-level.expire-time": "1 d", "record-level.time-field": "z"},
        "names 'z', which is not a column",
    ),
    ("deduplicate", {"record-level.expire-time": "1 d", "record-level.time-field": "b"}, "'b', which is string"),
    ("partial-update", {"fields.q.sequence-group": "a"}, "names 'q'"),
    ("partial-update", {"fields.g.sequence-group": "a", "fields.b.sequence-group": "a"}, "two sequence groups"),
    ("partial-update", {"fields.g.sequence-group": "id"}, "in the primary key"),
    (
        "partial-update",
        {"fields.g.sequence-group": "a", "fields.g.aggregate-function": "max"},
        "'g' orders a sequence-group, which is never aggregated",
    ),
    (  # A sequence field, too, is aggregated where it is not in a group's order, which Java refuses.
        "partial-update",
        {"fields.b.sequence-group": "a,r", "sequence.field": "g", "fields.default-aggregate-function": "first_value"},
        "column 'g' has the aggregate function 'first_value' and no sequence group",
    ),
    ("deduplicate", {"sequence.field": "g,a,g"}, "sequence.field names 'g' twice"),
    ("partial-update", {"ignore-delete": "true", "partial-update.remove-record-on-delete": "true"}, "contradict"),
    (
        "partial-update",
        {"fields.g.sequence-group": "a", "partial-update.remove-record-on-sequence-group": "b"},
        "orders no sequence-group",
    ),
    ("first-row", {"sequence.field": "g"}, "no sequence.field"),
    ("deduplicate", {"sequence.snapshot-ordering": "true"}, "needs write-only=true"),
    ("deduplicate", {"sequence.snapshot-ordering": "true", "write-only": "true", "sequence.field": "g"}, "two orders"),
    ("deduplicate", {"sequence.field": "g", "sequence.field.sort-order": "down"}, "'ascending' or 'descending'"),
]
REFUSED = [
    ("newest", {}, "merge engine 'newest'"),
]


@pytest.mark.parametrize(("engine", "options", "message"), WRONG, ids=lambda v: None if isinstance(v, dict) else v)
def test_options_that_cannot_be_are_said_when_a_table_is_made(lake, engine, options, message):
    with pytest.raises(InvalidInput, match=message):
        make(lake, engine, TYPES, **options)
    assert not lake.exists("d.t")


@pytest.mark.parametrize(("engine", "options", "message"), REFUSED, ids=lambda v: None if isinstance(v, dict) else v)
def test_what_is_not_supported_is_refused_by_name(lake, engine, options, message):
    with pytest.raises(UnsupportedFeature, match=message):
        make(lake, engine, TYPES, **options)


def test_an_alteration_is_checked_too(lake):
    table = make(lake, "aggregation", TYPES, **{"fields.a.aggregate-function": "sum"})
    with pytest.raises(InvalidInput, match="unknown aggregate function 'summ'"):
        table.alter().set_properties({"fields.a.aggregate-function": "summ"}).commit()
    with pytest.raises(InvalidInput, match="names 'a', which is not a column"):
        table.alter().drop_column("a").commit()
