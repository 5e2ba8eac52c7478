"""Manifests: what is live, what merging keeps, what is read of which, and what other engines' files say."""

import pickle
import random
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import CorruptFile, CorruptTable, Lake, NoSuchFile, UnsupportedFeature
from lakeformat.codec.avro import file as avro
from lakeformat.dialects.paimon import manifest, scan
from lakeformat.dialects.paimon.manifest import ENTRY, EntryKind
from lakeformat.expression import sql_text
from lakeformat.model.partition import identity
from lakeformat.model.predicate import ALWAYS, bind, in_tuples, split
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.cache import Cache, cached, keeps_part
from lakeformat.storage.memory import MemoryFiles

ADD, DELETE = int(EntryKind.ADD), int(EntryKind.DELETE)
PLAIN = Schema((Field(0, "id", scalar(Kind.BIGINT)),), last_field_id=0)


def by(kind, **options):
    return Schema((Field(0, "id", scalar(Kind.INT)), Field(1, "k", kind)), identity("k"), (), options)


def entries(rows, schema=PLAIN):
    """(kind, name[, partition values, bucket, level, extra files]) -> rows of ENTRY."""
    filled = []
    for kind, name, *more in rows:
        values, bucket, level, extra = [*more, *[(), 0, 0, ()][len(more) :]]
        filled.append((kind, name, tuple(values), bucket, level, list(extra)))
    count = len(filled)
    kinds, names, values, buckets, levels, extras = zip(*filled, strict=True) if filled else [()] * 6
    stats = manifest.stats_struct([], [], [], [[]] * count)
    columns = {
        "_KIND": list(kinds),
        "_PARTITION": manifest.partition_rows(list(values), schema),
        "_BUCKET": list(buckets),
        "_TOTAL_BUCKETS": [-1] * count,
        "_FILE_NAME": list(names),
        "_FILE_SIZE": [10] * count,
        "_ROW_COUNT": [1] * count,
        "_MIN_KEY": manifest.empty_rows(count),
        "_MAX_KEY": manifest.empty_rows(count),
        "_KEY_STATS": stats,
        "_VALUE_STATS": stats,
        "_MIN_SEQUENCE_NUMBER": [0] * count,
        "_MAX_SEQUENCE_NUMBER": [0] * count,
        "_SCHEMA_ID": [0] * count,
        "_LEVEL": list(levels),
        "_EXTRA_FILES": extras,
    }
    return pa.Table.from_arrays(
        [
            columns[f.name]
            if isinstance(columns.get(f.name), pa.Array)
            else pa.array(columns.get(f.name, [None] * count), f.type)
            for f in ENTRY
        ],
        schema=ENTRY,
    )


def names(table):
    return table["_FILE_NAME"].to_pylist()


# --- fold -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "live", "unmatched"),
    [
        ([], [], []),
        ([(ADD, "a"), (ADD, "b")], ["a", "b"], []),
        ([(ADD, "a"), (ADD, "b"), (DELETE, "a")], ["b"], []),
        ([(DELETE, "z"), (ADD, "a")], ["a"], ["z"]),
        # Another bucket, partition or level is another file.
        ([(ADD, "a"), (DELETE, "a", (), 1)], ["a"], ["a"]),
        ([(ADD, "a"), (DELETE, "a", (), 0, 5)], ["a"], ["a"]),
        # An upgrade takes a file away and adds it again at another level.
        ([(ADD, "a"), (DELETE, "a"), (ADD, "a", (), 0, 5)], ["a"], []),
        # It may come and go.
        ([(ADD, "a"), (DELETE, "a"), (ADD, "a")], ["a"], []),
        ([(ADD, "a"), (DELETE, "a"), (ADD, "a"), (DELETE, "a")], [], []),
        ([(ADD, "b"), (ADD, "a"), (DELETE, "a"), (ADD, "a"), (DELETE, "b")], ["a"], []),
        # Of what was added before these entries begin, the last DELETE has to stay, once.
        ([(DELETE, "a"), (ADD, "a"), (DELETE, "a")], [], ["a"]),
        # An index file was added to it: two files, as Java sees them.
        ([(ADD, "a"), (DELETE, "a"), (ADD, "a", (), 0, 0, ["a.index"])], ["a"], []),
        ([(DELETE, "a"), (ADD, "a", (), 0, 0, ["a.index"])], ["a"], ["a"]),
    ],
)
def test_fold(history, live, unmatched):
    for cut in ([history], [[entry] for entry in history]):
        found, left = manifest.fold([entries(piece) for piece in cut])
        assert (names(found), names(left)) == (live, unmatched)


def test_the_last_of_equal_files_is_the_one_that_stays():
    found, left = manifest.fold([entries([(ADD, "a"), (DELETE, "a"), (ADD, "a", (), 0, 0, ["a.index"])])])
    assert found["_EXTRA_FILES"].to_pylist() == [["a.index"]]
    assert len(left) == 0


@pytest.mark.parametrize("seed", range(10))
def test_merging_keeps_what_is_live_whatever_is_merged_with_what(seed):
    """Random histories of valid commits, each in a manifest, merged at random points; a model of plain sets beside."""
    rolls = random.Random(seed)
    options = dict.fromkeys(["manifest.target-file-size"], "8 mb") | rolls.choice(
        [
            {"manifest.target-file-size": "1 b", "manifest.merge-min-count": "3"},
            {"manifest.target-file-size": "3 kb", "manifest.merge-min-count": "4"},
            {"manifest.full-compaction-threshold-size": "1 b"},
            {"manifest.full-compaction-threshold-size": "2 kb", "manifest.target-file-size": "1 kb"},
            {"manifest.merge-min-count": "2"},
        ]
    )
    schema, store = by(scalar(Kind.STRING), **options), MemoryFiles(f"memory://merge-{seed}")
    live, metas, number = {}, manifest.EMPTY_METAS, 0
    for step in range(40):
        history = []
        for _ in range(rolls.randint(1, 4)):
            partition = (rolls.choice(["a", "b", None]),)
            history.append((ADD, f"f{number}", partition))
            number += 1
        gone = rolls.sample(sorted(live), min(len(live), rolls.choice([0, 0, 1, 3])))
        history = [(DELETE, name, live.pop(name)) for name in gone] + history
        live |= {name: partition for kind, name, partition in history if kind == ADD}
        merged = manifest.merge(store, metas, schema, f"manifest-{seed}-base-{step}")
        fresh = manifest.emit(entries(history, schema), schema, f"manifest-{seed}-delta-{step}")
        for path, data in {**merged.files, **fresh.files}.items():
            store.write(path, data)
        metas = pa.concat_tables([merged.metas, fresh.metas])
        found, unmatched = manifest.fold(manifest.read_entries(store, metas["_FILE_NAME"].to_pylist()))
        assert sorted(names(found)) == sorted(live), (seed, step)
        assert len(unmatched) == 0
        scope = in_tuples(["k"], [(None,)])
        pruned = manifest.prune_metas(metas, schema, scope)
        kept = manifest.fold(
            [
                manifest.in_scope(t, schema, scope)
                for t in manifest.read_entries(store, pruned["_FILE_NAME"].to_pylist())
            ]
        )[0]
        assert sorted(names(kept)) == sorted(n for n, p in live.items() if p == (None,)), (seed, step)
    assert len(metas) < 40 or options["manifest.target-file-size"] == "1 b"


def test_minor_merges_leave_few_manifests_and_rewrite_little():
    """150 commits: the number of manifests and the bytes rewritten for each stay bounded."""
    schema = by(
        scalar(Kind.STRING),
        **{
            "manifest.target-file-size": "4 kb",
            "manifest.merge-min-count": "10",
            "manifest.full-compaction-threshold-size": "1 gb",
        },
    )
    store, metas, most, rewritten = MemoryFiles("memory://minor"), manifest.EMPTY_METAS, 0, 0
    for step in range(150):
        merged = manifest.merge(store, metas, schema, f"manifest-base-{step}")
        fresh = manifest.emit(entries([(ADD, f"data-{step:08}", ("a",))], schema), schema, f"manifest-delta-{step}")
        for path, data in {**merged.files, **fresh.files}.items():
            store.write(path, data)
        metas = pa.concat_tables([merged.metas, fresh.metas])
        most, rewritten = max(most, len(metas)), rewritten + sum(map(len, merged.files.values()))
    assert pc.sum(metas["_NUM_ADDED_FILES"]).as_py() == 150
    assert most < 50
    assert rewritten / 150 < 4_000


def test_a_full_merge_is_not_done_again_by_the_next_commit():
    schema = PLAIN_WITH({"manifest.target-file-size": "10 kb", "manifest.full-compaction-threshold-size": "20 kb"})
    rolls = random.Random(5)
    many = [(ADD, f"data-{rolls.getrandbits(128):032x}") for _ in range(3000)]
    store = MemoryFiles("memory://full")
    start = [
        manifest.emit(entries(many[i : i + 30], schema), schema, f"manifest-start-{i}") for i in range(0, 3000, 30)
    ]
    metas = pa.concat_tables([s.metas for s in start])
    for version in start:
        for path, data in version.files.items():
            store.write(path, data)
    merges = 0
    for step in range(30):
        merged = manifest.merge(store, metas, schema, f"manifest-base-{step}")
        merges += sum(map(len, merged.files.values())) > 30_000
        fresh = manifest.emit(entries([(ADD, f"late-{step}")], schema), schema, f"manifest-delta-{step}")
        for path, data in {**merged.files, **fresh.files}.items():
            store.write(path, data)
        metas = pa.concat_tables([merged.metas, fresh.metas])
    assert merges == 1
    assert pc.sum(metas["_NUM_ADDED_FILES"]).as_py() == 3030


def test_a_full_merge_reads_large_manifests_for_what_is_deleted_only():
    schema = PLAIN_WITH({"manifest.target-file-size": "4 kb", "manifest.full-compaction-threshold-size": "2 kb"})
    rolls, store = random.Random(7), MemoryFiles("memory://large")

    def made(name, rows):
        found = manifest.emit(entries(rows, PLAIN), PLAIN, name)  # One manifest, whatever its size.
        for path, data in found.files.items():
            store.write(path, data)
        return found.metas

    adds = [(ADD, f"data-{rolls.getrandbits(128):032x}") for _ in range(600)]
    large = [made(f"manifest-large-{i}", adds[i : i + 200]) for i in range(0, 400, 200)]
    small = [made(f"manifest-small-{i}", adds[i : i + 10]) for i in range(400, 600, 10)]
    first = large[0]["_FILE_NAME"][0].as_py()
    kept = store.read(f"manifest/{first}")
    store.delete([f"manifest/{first}"])
    merged = manifest.merge(store, pa.concat_tables([*large, *small]), schema, "manifest-a")
    assert merged.metas["_FILE_NAME"].to_pylist()[:2] == [entry["_FILE_NAME"][0].as_py() for entry in large]
    assert pc.sum(merged.metas["_NUM_ADDED_FILES"]).as_py() == 600
    gone = made("manifest-gone", [(DELETE, adds[5][1])])
    with pytest.raises(NoSuchFile, match=first):
        manifest.merge(store, pa.concat_tables([*large, *small, gone]), schema, "manifest-b")
    store.write(f"manifest/{first}", kept)
    merged = manifest.merge(store, pa.concat_tables([*large, *small, gone]), schema, "manifest-c")
    assert first not in merged.metas["_FILE_NAME"].to_pylist()
    assert pc.sum(merged.metas["_NUM_ADDED_FILES"]).as_py() == 599
    assert pc.sum(merged.metas["_NUM_DELETED_FILES"]).as_py() == 0


def PLAIN_WITH(options):
    return Schema(PLAIN.fields, properties=options, last_field_id=0)


def test_manifests_are_cut_at_their_target_size():
    schema = PLAIN_WITH({"manifest.target-file-size": "10 kb"})
    rolls = random.Random(6)
    table = entries([(ADD, f"data-{rolls.getrandbits(256):064x}") for _ in range(3000)])
    made = manifest.emit(table, schema, "manifest-x")
    assert len(made.files) > 5
    assert made.metas["_FILE_SIZE"].to_pylist() == [len(d) for d in made.files.values()]
    back = pa.concat_tables([manifest.parse(d, p) for p, d in made.files.items()])
    assert back.equals(table.combine_chunks())
    assert manifest.emit(table.slice(0, 0), schema, "manifest-y").files == {}


# --- pruning ----------------------------------------------------------------------------------------------------------

PARTITION_VALUES = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
    "DOUBLE": [-1.5, 0.0, float("inf"), float("nan")],
    "FLOAT": [0.25, float("nan")],
    "STRING": ["", " ", "a", "a\x00", "é", "😀", "z" * 200],
    "DECIMAL(38, 10)": ["-1.5000000000", "0E-10", "9999999999999999999999999999.9999999999"],
    "DATE": [-100000, 0, 19723],
    "TIMESTAMP(9)": [-1, 0, 1704067200123456789],
    "TIMESTAMP(3)": [-1000000, 1704067200123000000],
    "TIME(3)": [0, 86399999],
}


@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_partitions_of_every_type_are_found_in_the_manifests_that_hold_them(kind):
    """Each value in a manifest of its own, in pairs, and with null: scopes find exactly the partitions they name."""
    from lakeformat.dialects.paimon import types
    from tests.golden import wire

    type = types.parse_type(kind)[0]
    schema = by(type)
    fields = [{"name": "k", "type": kind}]
    wired = [*PARTITION_VALUES[kind], None]
    values = [manifest.partition_values(wire.to_arrow(fields, [[v]]), schema)[0] for v in wired]
    groups = [[i] for i in range(len(values))] + [[i, j] for i in range(len(values)) for j in range(i)]
    store, metas = MemoryFiles(f"memory://prune-{kind}"), []
    for n, group in enumerate(groups):
        made = manifest.emit(
            entries([(ADD, f"{n}-{i}", values[i]) for i in group], schema), schema, f"manifest-{kind}-{n}"
        )
        for path, data in made.files.items():
            store.write(path, data)
        metas.append(made.metas)
    metas = pa.concat_tables(metas)
    for i in range(len(values)):
        scope = bind(manifest.scope_of(schema, [values[i]]), schema.fields)
        pruned = manifest.prune_metas(metas, schema, scope)
        found = [
            manifest.in_scope(t, schema, scope) for t in manifest.read_entries(store, pruned["_FILE_NAME"].to_pylist())
        ]
        expected = sorted(f"{n}-{i}" for n, group in enumerate(groups) if i in group)
        assert sorted(n for t in found for n in names(t)) == expected, wired[i]
    for text, holds in (("k is null", lambda v: v is None), ("k is not null", lambda v: v is not None)):
        scope = bind(sql_text.parse(text), schema.fields)
        pruned = manifest.prune_metas(metas, schema, scope)
        expected = [f"manifest-{kind}-{n}-0" for n, g in enumerate(groups) if any(holds(wired[i]) for i in g)]
        assert names(pruned) == expected
    biggest = bind(sql_text.parse("k > 1e300"), schema.fields) if kind == "DOUBLE" else None
    if biggest is not None:  # A NaN is greater than all numbers.
        found = names(manifest.prune_metas(metas, schema, biggest))
        assert {f"manifest-{kind}-{n}-0" for n, g in enumerate(groups) if {2, 3} & set(g)} <= set(found)


def test_a_manifest_without_partition_stats_is_not_pruned():
    schema = by(scalar(Kind.STRING))
    made = manifest.emit(entries([(ADD, "f", ("a",))], schema), schema, "manifest-bare")
    stats = pa.StructArray.from_arrays(
        [
            *(made.metas["_PARTITION_STATS"].combine_chunks().field(i) for i in (0, 1)),
            pa.nulls(1, pa.list_(pa.int64())),
        ],
        fields=list(manifest.META.field("_PARTITION_STATS").type),
    )
    metas = made.metas.set_column(5, manifest.META.field("_PARTITION_STATS"), stats)
    assert len(manifest.prune_metas(metas, schema, in_tuples(["k"], [("a",)]))) == 1
    assert len(manifest.prune_metas(metas, schema, in_tuples(["k"], [("b",)]))) == 0
    assert len(manifest.prune_metas(metas, schema, in_tuples(["k"], [(None,)]))) == 1


def test_tasks_are_made_of_the_columns_that_planning_reads(tmp_path):
    table = Lake(str(tmp_path)).create_table(
        "a.b", pa.schema([("k", pa.string()), ("v", pa.int64())]), partition_by=["k"]
    )
    for day in ("a", "b"):
        table.append(pa.table({"k": [day] * 3, "v": [1, 2, 3]}))
    table.drop_partitions([{"k": "a"}])
    state, store = table.scan().view.state, table.scan().store
    metas = manifest.read_metas(store, state.document)
    planned = manifest.fold(manifest.read_all(store, metas, manifest.PLANNED))[0]
    assert planned.schema == manifest.PLANNED
    assert not {"_VALUE_STATS", "_KEY_STATS", "_MIN_KEY"} & set(planned.column_names)
    found = scan.Files(planned, state.schema)
    assert scan.tasks(store, state, found, state.schema.fields) == table.scan().plan() != []
    for read in (cached(store, cache := Cache()), cached(store, cache)):  # Taken from what is kept whole, too.
        whole = manifest.fold(manifest.read_all(read, metas))[0]
        assert manifest.fold(manifest.read_all(read, metas, manifest.PLANNED))[0] == whole.select(planned.column_names)


def test_a_plan_of_large_manifests_decodes_what_tasks_need_and_a_condition_the_rest(tmp_path):
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    table = Lake(str(tmp_path)).create_table("a.b", schema, partition_by=["k"])
    for v in range(3):
        table.append(pa.table({"k": ["a", "b"], "v": [v, v]}))
    state, store = table.scan().view.state, table.scan().store
    paths = [f"manifest/{name}" for name in manifest.read_metas(store, state.document)["_FILE_NAME"].to_pylist()]

    def planned(reader, part_bytes, matching=None):
        return manifest.live_entries(
            reader, state.document, state.schema, to_plan=True, matching=matching, part_bytes=part_bytes
        )

    reader = cached(store, cache := Cache())
    part = planned(reader, 0)
    assert {keeps_part(reader, path) for path in paths} == {True}
    assert part == planned(cached(store, Cache()), 1 << 20)

    def matching(entries):
        return scan._may_match(reader, state, entries, bind(sql_text.parse("v = 1"), state.schema.fields))

    assert len(planned(reader, 0, matching)) == 2
    assert all(cache.get(store.root, path).schema == ENTRY for path in paths)  # For the next condition.


def test_bounds_are_read_by_where_they_begin_where_planning_left_them_out(tmp_path):
    table = Lake(str(tmp_path)).create_table(
        "a.b", pa.schema([("k", pa.string()), ("v", pa.int64()), ("name", pa.string())]), partition_by=["k"]
    )
    for i in range(10):
        rows = {"k": ["ab"[i % 2]], "v": [None if i % 7 == 0 else i], "name": ["long " * (i % 3) + str(i)]}
        table.append(pa.table(rows))
    table.alter().add_column("w", "int").commit()
    table.append(pa.table({"k": ["a"], "v": [100], "name": ["x"], "w": pa.array([1], pa.int32())}))
    table.delete(where="k = 'b' and v > 4")
    state, store = table.scan().view.state, table.scan().store

    def found(condition, reader, large_bytes):
        predicate = bind(sql_text.parse(condition), state.schema.fields)
        scope, rest = split(predicate, ["k"])
        matching = None if rest == ALWAYS else partial(scan._may_match, reader, state, predicate=predicate)
        return manifest.live_entries(reader, state.document, state.schema, scope, True, matching, large_bytes)

    reader = cached(store, Cache())
    assert found("k is not null", reader, 0).schema == manifest.PLANNED
    conditions = [
        "v = 4",
        "v is null",
        "name = 'long long 2'",
        "w = 1",
        "k = 'a' and v < 3",
        "k = 'b' and v > 2",
        "v > 1000",
    ]
    for condition in conditions:
        part = found(condition, reader, 0)
        assert part.column_names == manifest.PLANNED.names, condition
        assert names(part) == names(found(condition, store, 1 << 30)), condition
        assert len(part) < 4, condition


# --- what others wrote, and damage ------------------------------------------------------------------------------------


def avro_of(rows, change=lambda schema: schema):
    table, schema = manifest._nest(entries(rows)), change(dict(manifest.ENTRY_SCHEMA))
    file, known = table["_FILE"].combine_chunks(), {f["name"] for f in schema["fields"][-1]["type"]["fields"]}
    fields = [f for f in file.type if f.name in known]
    file = pa.StructArray.from_arrays([file.field(f.name) for f in fields], fields=fields)
    return avro.encode(table.set_column(table.schema.get_field_index("_FILE"), "_FILE", file), schema)


def test_older_files_lack_columns_and_newer_have_more():
    def older(schema):
        file = dict(schema["fields"][-1]["type"])
        file["fields"] = file["fields"][:12]
        return {**schema, "fields": [*schema["fields"][:-1], {"name": "_FILE", "type": file}]}

    found = manifest.parse(avro_of([(ADD, "a")], older), "m")
    assert found.schema == ENTRY
    assert found["_FILE_SOURCE"].to_pylist() == [None]

    def newer(schema):
        file = dict(schema["fields"][-1]["type"])
        file["fields"] = [*file["fields"], {"name": "_NEWS", "type": ["null", "long"], "default": None}]
        return {**schema, "fields": [*schema["fields"][:-1], {"name": "_FILE", "type": file}]}

    assert names(manifest.parse(avro_of([(ADD, "a")], newer), "m")) == ["a"]


def test_an_unknown_field_with_a_value_is_refused_by_name():
    table = manifest._nest(entries([(ADD, "a")]))
    file = table["_FILE"].combine_chunks()
    fields = [*file.type, pa.field("_NEWS", pa.int64())]
    file = pa.StructArray.from_arrays([*file.flatten(), pa.array([7])], fields=fields)
    schema = {**manifest.ENTRY_SCHEMA, "fields": list(manifest.ENTRY_SCHEMA["fields"])}
    inner = dict(schema["fields"][-1]["type"])
    inner["fields"] = [*inner["fields"], {"name": "_NEWS", "type": ["null", "long"], "default": None}]
    schema["fields"][-1] = {"name": "_FILE", "type": inner}
    data = avro.encode(table.set_column(table.schema.get_field_index("_FILE"), "_FILE", file), schema)
    for columns in (ENTRY, manifest.PLANNED):
        with pytest.raises(UnsupportedFeature, match="_NEWS"):
            manifest.parse(data, "m", columns)


def test_versions_and_kinds_that_nobody_knows_are_refused():
    table = manifest._nest(entries([(ADD, "a"), (ADD, "b")]))
    newer = table.set_column(0, "_VERSION", pa.array([2, 3], pa.int32()))
    with pytest.raises(UnsupportedFeature, match="version 3"):
        manifest.parse(avro.encode(newer, manifest.ENTRY_SCHEMA), "m")
    strange = table.set_column(1, "_KIND", pa.array([0, 7], pa.int32()))
    with pytest.raises(CorruptFile, match="kind"):
        manifest.parse(avro.encode(strange, manifest.ENTRY_SCHEMA), "m")


def test_a_list_is_no_manifest_and_neither_is_anything_else():
    made = manifest.emit(entries([(ADD, "a")]), PLAIN, "manifest-q")
    listed = manifest.emit_list(made.metas, PLAIN)
    data = made.files["manifest/manifest-q-0"]
    for parse, wrong in (
        (manifest.parse, listed),
        (manifest.parse_list, data),
        (manifest.parse_index, data),
        (manifest.parse, b""),
        (manifest.parse_list, b"Obj\x01"),
        (manifest.parse_index, b"{}"),
        (manifest.parse, b"ORC" + bytes(100)),
        (manifest.parse, data[:-20]),
    ):
        with pytest.raises(CorruptFile, match="some/place"):
            parse(wrong, "some/place")


def test_a_manifest_with_other_entries_than_its_list_says_is_corrupt():
    store = MemoryFiles("memory://counts")
    made = manifest.emit(entries([(ADD, "a"), (ADD, "b")]), PLAIN, "manifest-counts")
    other = manifest.emit(entries([(ADD, "a")]), PLAIN, "manifest-counts")
    store.write("manifest/manifest-counts-0", other.files["manifest/manifest-counts-0"])
    store.write("manifest/l", manifest.emit_list(made.metas, PLAIN))
    store.write("manifest/e", manifest.emit_list(manifest.EMPTY_METAS, PLAIN))
    with pytest.raises(CorruptTable, match="manifest-counts-0"):
        manifest.live_entries(store, {"baseManifestList": "e", "deltaManifestList": "l"}, PLAIN)


def test_a_missing_manifest_is_named():
    store = MemoryFiles("memory://missing")
    made = manifest.emit(entries([(ADD, "a")]), PLAIN, "manifest-gone")
    store.write("manifest/l", manifest.emit_list(made.metas, PLAIN))
    store.write("manifest/e", manifest.emit_list(manifest.EMPTY_METAS, PLAIN))
    document = {"baseManifestList": "e", "deltaManifestList": "l"}
    with pytest.raises(NoSuchFile, match="manifest-gone-0"):
        manifest.live_entries(store, document, PLAIN)
    with pytest.raises(NoSuchFile, match="manifest/nowhere"):
        manifest.live_entries(store, {**document, "deltaManifestList": "nowhere"}, PLAIN)


def test_orc_manifests_are_read(tmp_path):
    from pyarrow import orc

    orc.write_table(manifest._nest(entries([(ADD, "a"), (DELETE, "b")])), str(tmp_path / "m"))
    found = manifest.parse((tmp_path / "m").read_bytes(), "m")
    assert found["_KIND"].to_pylist() == [ADD, DELETE]
    assert found.schema == ENTRY


def test_thousands_of_commits_keep_a_table_readable_and_a_commit_cheap(tmp_path):
    """Real commits; the bytes a commit writes below manifest/ do not grow with the table's age."""
    t = Lake(str(tmp_path)).create_table("d.t", pa.schema([("id", pa.int64())]))
    sizes = []
    for i in range(70):
        made = t.append(pa.table({"id": [i]}))
        listed = [p.stat().st_size for p in (tmp_path / "d.db/t/manifest").iterdir()]
        sizes.append((len(listed), sum(listed)))
    assert made.total_rows == 70
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == list(range(70))
    written = np.diff([s for _, s in sizes])
    assert np.median(written[60:]) < 3 * np.median(written[:10])
    assert len(t.inspect.manifests()) < 40


@pytest.mark.parametrize("largest", [5, 20, 90])
def test_tasks_take_as_many_files_as_their_size_allows_and_are_made_when_asked_for(tmp_path, largest):
    properties = {"source.split.target-size": "64 b", "source.split.open-file-cost": "8 b"}
    table = Lake(str(tmp_path)).create_table("a.b", pa.schema([("v", pa.int64())]), properties=properties)
    table.append(pa.table({"v": [1]}))
    state, store = table.scan().view.state, table.scan().store
    one = manifest.live_entries(store, state.document, state.schema)
    sizes = np.random.default_rng(11).integers(0, largest, 500)
    entries = pa.concat_tables([one] * 500)
    entries = entries.set_column(entries.column_names.index("_FILE_SIZE"), "_FILE_SIZE", pa.array(sizes))
    names = pa.array([f"{i}.parquet" for i in range(500)])
    entries = entries.set_column(entries.column_names.index("_FILE_NAME"), "_FILE_NAME", names)
    external = pa.array([f"s3://far/{i}.parquet" if i % 3 == 0 else None for i in range(500)])
    entries = entries.set_column(entries.column_names.index("_EXTERNAL_PATH"), "_EXTERNAL_PATH", external)
    found = scan.Files(entries, state.schema)
    tasks = scan.tasks(store, state, found, state.schema.fields)
    expected = [
        there or f"bucket-0/{name}" for there, name in zip(external.to_pylist(), names.to_pylist(), strict=True)
    ]
    assert [path for task in tasks for path in task.paths] == expected == found.paths.to_pylist()
    assert [size for task in tasks for size in task.sizes_bytes] == sizes.tolist()
    weights = [[max(size, 8) for size in task.sizes_bytes] for task in tasks]
    assert all(sum(weight) <= 64 or len(weight) == 1 for weight in weights)
    assert all(
        sum(sizes) + after[0] > 64 for sizes, after in pairwise(weights)
    )  # No task leaves room for the next file.
    assert tasks == list(tasks) != tasks[1:] == [*tasks][1:]
    assert tasks[-1] == list(tasks)[-1] is not tasks[-1]
    assert pickle.loads(pickle.dumps(tasks)) == tasks
    with pytest.raises(IndexError):
        tasks[len(tasks)]
