"""The merge kernels against a model that takes one row at a time."""

import math
import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from lakeformat.engines.kernels import ranks
from lakeformat.engines.keyed import roaring64
from lakeformat.engines.keyed.aggregate import FUNCTIONS
from lakeformat.engines.keyed.merge import merge, merge_in_batches
from lakeformat.engines.row_level import arrow_merge, outcomes
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.lake import Lake
from lakeformat.model.work import Aggregation, MergeEngine, MergeSpec, NullKeys, SequenceGroup
from tests.unit import row_model

KINDS = st.sampled_from([0, 0, 0, 2, 1, 3])
SMALL = st.none() | st.integers(-2, 2)
FEW = settings(
    max_examples=int(os.environ.get("LAKEFORMAT_EXAMPLES", "5")), deadline=None
)  # Of each function and type.
SYSTEM = [pa.field("_SEQUENCE_NUMBER", pa.int64(), False), pa.field("_VALUE_KIND", pa.int8(), False)]

SCHEMA = pa.schema(
    [
        pa.field("k1", pa.int32(), False),
        pa.field("k2", pa.string(), False),
        *SYSTEM,
        pa.field("s1", pa.int32()),
        pa.field("s2", pa.string()),
        pa.field("v", pa.string()),
    ]
)


def table_of(rows, schema=SCHEMA, pieces=1):
    """Rows as a table of several chunks, as files give them."""
    step = max(1, -(-len(rows) // pieces))
    parts = [pa.Table.from_pylist(rows[at : at + step], schema) for at in range(0, len(rows), step)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


@st.composite
def rows_of(draw, columns, keys=2, most=16):
    """Rows of few keys, with sequence numbers that are each given once."""
    count = draw(st.integers(0, most))
    numbers = draw(st.permutations(range(count)))
    return [
        {
            "k": draw(st.integers(0, keys)),
            "_SEQUENCE_NUMBER": numbers[i],
            "_VALUE_KIND": draw(KINDS),
            **{name: draw(values) for name, values in columns.items()},
        }
        for i in range(count)
    ]


def check(rows, schema, spec, types=None, pieces=1, shown=lambda rows: rows):
    table = table_of(rows, schema, pieces)
    try:
        expected = row_model.merge(rows, spec, types)
    except row_model.Refused:
        with pytest.raises((UnsupportedFeature, InvalidInput)):
            merge(table, spec)
        return
    found = merge(table, spec)
    found.validate(full=True)
    assert found.schema == schema
    assert shown(found.to_pylist()) == shown(expected)


@settings(deadline=None)
@given(
    rows=rows_of(
        {
            "k1": st.integers(-1, 1),
            "k2": st.sampled_from(["", "a", "é", "z"]),
            "s1": SMALL,
            "s2": st.none() | st.sampled_from(["a", "b"]),
            "v": st.none() | st.sampled_from("xyz"),
        },
        most=24,
    ),
    engine=st.sampled_from([MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW]),
    key=st.sampled_from([("k1",), ("k2",), ("k1", "k2")]),
    sequence=st.sampled_from([(), ("s1",), ("s2", "s1")]),
    is_ascending=st.booleans(),
    ignore_delete=st.booleans(),
    pieces=st.integers(1, 3),
)
def test_one_row_of_each_key_is_kept(rows, engine, key, sequence, is_ascending, ignore_delete, pieces):
    rows = [{name: row[name] for name in SCHEMA.names} for row in rows]
    check(rows, SCHEMA, MergeSpec(key, engine, sequence, is_ascending, ignore_delete), pieces=pieces)


NUMBERS = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "float": (pa.float32(), st.floats(-8, 8, width=16)),
    "double": (pa.float64(), st.floats(-1e6, 1e6)),
    (3, 1): (pa.decimal128(3, 1), st.decimals(-99, 99, places=1)),
    (18, 2): (pa.decimal128(18, 2), st.decimals(-(10**16) + 1, 10**16 - 1, places=2)),
    (37, 0): (pa.decimal128(37, 0), st.decimals(-(10**37) + 1, 10**37 - 1, places=0)),
}
STRUCT = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string()), pa.field("c", pa.int64())])
STRUCTS = st.fixed_dictionaries({"a": SMALL, "b": st.none() | st.sampled_from("xy"), "c": SMALL})
TIMED = pa.struct([pa.field("n", pa.int64()), pa.field("t", pa.string())])
# Of these times the last two stand the other way round in UTF-16, which is Java's order.
TIMED_ROWS = st.fixed_dictionaries(
    {"n": SMALL, "t": st.none() | st.sampled_from(["", "1", "2", "\ufffd", "\U0001f600"])}
)
LETTERS = st.sampled_from(["a", "b", "a,b", "b,,a", " ", "", "a;b"])
VALUES = {
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), LETTERS),
    "list": (pa.list_(pa.int32()), st.lists(SMALL, max_size=3)),
    "structs": (pa.list_(STRUCT), st.lists(st.none() | STRUCTS, max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(st.sampled_from("abc"), SMALL).map(lambda d: sorted(d.items())),
    ),
    "timed map": (
        pa.map_(pa.string(), TIMED),
        st.dictionaries(st.sampled_from("ab"), st.none() | TIMED_ROWS).map(lambda d: sorted(d.items())),
    ),
    "bitmap": (pa.binary(), st.frozensets(st.integers(0, 70000), max_size=3)),
    "wide bitmap": (pa.binary(), st.frozensets(st.integers(0, 1 << 20) | st.integers(0, (1 << 64) - 1), max_size=3)),
}
CASES = [
    *((name, kind) for kind in NUMBERS for name in ("sum", "product")),
    *((name, kind) for kind in ("int64", "double", (18, 2)) for name in ("max", "min")),
    *((name, "text") for name in ("max", "min", "listagg")),
    *((name, kind) for kind in ("text", "map") for name in ("last_value", "first_value")),
    *((name, kind) for kind in ("int32",) for name in ("last_non_null_value", "first_non_null_value")),
    ("bool_and", "bool"),
    ("bool_or", "bool"),
    ("collect", "list"),
    ("collect", "structs"),
    ("merge_map", "map"),
    ("merge_map_with_keytime", "timed map"),
    ("nested_update", "structs"),
    ("nested_partial_update", "structs"),
    ("rbm32", "bitmap"),
    ("rbm64", "wide bitmap"),
]


def shown(rows, read=BitMap.deserialize):
    """Rows with what has no order in order, and numbers that are not equal to themselves as text."""
    return [{name: _shown(value, read) for name, value in row.items()} for row in rows]


def _shown(value, read):
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, bytes):
        return list(read(value))
    if isinstance(value, float):
        return str(value + 0.0)
    if isinstance(value, list):
        return sorted(map(_text, value)) if any(isinstance(part, dict | tuple) for part in value) else value
    return value


def _text(value):
    if isinstance(value, tuple):
        return str([_text(part) for part in value])
    return str(sorted(value.items())) if isinstance(value, dict) else str(value)


def stored(rows, write=lambda values: BitMap(values).serialize()):
    return [{n: write(v) if isinstance(v, frozenset) else v for n, v in row.items()} for row in rows]


def compared(rows, schema, spec, types):
    is_wide = types["v"] == "wide bitmap"
    written = stored(rows, lambda values: roaring64.serialize(BitMap64(values))) if is_wide else stored(rows)
    table = table_of(written, schema, 2)
    try:
        expected = row_model.merge(rows, spec, types)
    except row_model.Refused:
        with pytest.raises((UnsupportedFeature, InvalidInput)):
            merge(table, spec)
        return
    found = merge(table, spec)
    found.validate(full=True)
    assert found.schema == schema
    found_rows = found.to_pylist()
    distinct = any(aggregation.distinct and aggregation.function == "collect" for aggregation in spec.aggregations)
    for row in (*found_rows, *expected):
        if distinct and isinstance(row["v"], list):
            row["v"] = sorted(map(_text, row["v"]))
    read = roaring64.deserialize if is_wide else BitMap.deserialize
    assert shown(found_rows, read) == shown(expected, read)


def aggregations(function, data):
    nested = {}
    if function.startswith("nested"):
        keys = [("a",), ("b", "a")] + [()] * (function == "nested_update")
        nested["nested_key"] = data.draw(st.sampled_from(keys))
        if nested["nested_key"]:
            nested["null_keys"] = data.draw(st.sampled_from([NullKeys.MERGE, NullKeys.MERGE, *NullKeys]))
    if function == "nested_update":
        nested["limit"] = data.draw(st.none() | st.integers(0, 4))
        if nested["nested_key"]:
            nested["nested_sequence"] = data.draw(st.sampled_from([(), ("c",), ("b", "c")]))
    if function == "merge_map_with_keytime":
        nested["time"] = "t"
    return Aggregation(
        "v",
        function,
        ignore_retract=data.draw(st.booleans()),
        distinct=data.draw(st.booleans()) if function in ("listagg", "collect") else False,
        delimiter=data.draw(st.sampled_from([",", ";"])) if function == "listagg" else ",",
        **nested,
    )


@pytest.mark.drawn(20)
@pytest.mark.parametrize(("function", "kind"), CASES, ids=str)
@FEW
@given(data=st.data())
def test_aggregation(function, kind, data):
    type, values = (NUMBERS | VALUES)[kind]
    rows = data.draw(rows_of({"v": st.none() | values, "s": SMALL}))
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, pa.field("v", type), pa.field("s", pa.int64())])
    spec = MergeSpec(
        ("k",),
        MergeEngine.AGGREGATION,
        data.draw(st.sampled_from([(), ("s",)])),
        remove_on_delete=data.draw(st.booleans()),
        aggregations=(aggregations(function, data),),
    )
    compared(rows, schema, spec, {"v": kind})


@pytest.mark.drawn(20)
@pytest.mark.parametrize(("function", "kind"), CASES, ids=str)
@FEW
@given(data=st.data())
def test_partial_update_aggregates_inside_sequence_groups(function, kind, data):
    type, values = (NUMBERS | VALUES)[kind]
    rows = data.draw(rows_of({"v": st.none() | values, "g1": SMALL, "g2": SMALL}))
    fields = [pa.field("v", type), pa.field("g1", pa.int64()), pa.field("g2", pa.int64())]
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, *fields])
    sequence = data.draw(st.sampled_from([("g1",), ("g2", "g1")]))
    group = SequenceGroup(sequence, ("v",), removes_record=data.draw(st.booleans()))
    spec = MergeSpec(("k",), MergeEngine.PARTIAL_UPDATE, aggregations=(aggregations(function, data),), groups=(group,))
    compared(rows, schema, spec, {"v": kind})


def nested_rows(function, *events, **how):
    """What becomes of (order, rows inside as (a, b, c)) by a partial update."""
    fields = [pa.field("v", pa.list_(STRUCT)), pa.field("g", pa.int64())]
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, *fields])
    rows = [
        {"k": 1, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": 0, "g": g}
        | {"v": None if inside is None else [dict(zip("abc", values, strict=True)) for values in inside]}
        for n, (g, inside) in enumerate(events)
    ]
    how = Aggregation("v", function, **how)
    spec = MergeSpec(("k",), MergeEngine.PARTIAL_UPDATE, aggregations=(how,), groups=(SequenceGroup(("g",), ("v",)),))
    [row] = merge(table_of(rows, schema, 2), spec).to_pylist()
    return [tuple(item.values()) for item in row["v"]]


def test_an_older_row_counts_as_older_inside_too():
    new, old, other = (1, "new", 0), (1, "old", 0), (2, "x", 0)
    keyed = {"nested_key": ("a",)}
    assert nested_rows("nested_update", (2, [new]), (1, [old, other]), **keyed) == [new, other]
    assert nested_rows("nested_update", (2, [new]), (1, [old]), nested_sequence=("c",), **keyed) == [new]
    assert nested_rows("nested_partial_update", (2, [(1, None, 5)]), (1, [(1, "old", 4)]), **keyed) == [(1, "old", 5)]


def test_an_older_row_stands_before_a_list_with_a_limit():
    """As Java: it comes as a whole, and what was there fills up to the limit."""
    a, b, c = ((n, "x", 0) for n in range(3))
    assert nested_rows("nested_update", (2, [a]), (1, [b, c]), limit=1) == [b, c]
    assert nested_rows("nested_update", (2, [a]), (1, [b, c]), (0, None), limit=1) == [b]
    assert nested_rows("nested_update", (2, None), (1, [b, c]), limit=1) == [b, c]
    assert nested_rows("nested_update", (1, [a, b]), (2, [c, b]), limit=1, nested_key=("a",)) == [a]


SYSTEM_NAMES = [field.name for field in SYSTEM]
GROUPED = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        *SYSTEM,
        *(pa.field(name, pa.int64()) for name in ("a", "g", "b", "h1", "h2", "c", "d")),
    ]
)


@settings(deadline=None)
@given(
    rows=rows_of(dict.fromkeys(GROUPED.names[3:], SMALL), keys=1, most=14),
    groups=st.sampled_from(
        [
            (),
            (SequenceGroup(("g",), ("a", "b")),),
            (SequenceGroup(("g",), ("a", "b")), SequenceGroup(("h1", "h2"), ("c",))),
            (SequenceGroup(("g",), ("a", "b"), True), SequenceGroup(("h1", "h2"), ("c",))),
            (SequenceGroup(("g",), ("a",), True), SequenceGroup(("h2",), ("c", "b"), True)),
        ]
    ),
    sequence=st.sampled_from([(), ("d",)]),
    ignore_delete=st.booleans(),
    remove_on_delete=st.booleans(),
    asked=st.sets(st.sampled_from(GROUPED.names[3:]), max_size=2),
)
def test_partial_update(rows, groups, sequence, ignore_delete, remove_on_delete, asked):
    if groups:
        remove_on_delete = False
    spec = MergeSpec(
        ("k",),
        MergeEngine.PARTIAL_UPDATE,
        sequence,
        ignore_delete=ignore_delete,
        remove_on_delete=remove_on_delete and not ignore_delete,
        groups=groups,
    )
    check(rows, GROUPED, spec, pieces=2)
    named = [name for name in GROUPED.names if name in {"k", *SYSTEM_NAMES, *spec.needed(asked)}]
    try:
        whole = merge(table_of(rows, GROUPED), spec)
    except UnsupportedFeature:
        return
    assert merge(table_of(rows, GROUPED).select(named), spec) == whole.select(named)


def test_every_function_is_tested():
    sketches = {"hll_sketch", "theta_sketch"}  # In tests/contract/test_merge_engines.py.
    assert {name for name, _ in CASES} | sketches == FUNCTIONS.keys()


def test_of_equal_sequence_numbers_the_later_file_wins():
    rows = [{"k1": 1, "k2": "", "_SEQUENCE_NUMBER": 7, "_VALUE_KIND": 0, "s1": None, "s2": None, "v": v} for v in "abc"]
    assert merge(table_of(rows, pieces=3), MergeSpec(("k1",))).column("v").to_pylist() == ["c"]


def test_an_engine_nobody_knows_is_refused_by_name(tmp_path):
    schema, properties = pa.schema({"id": pa.int64()}), {"merge-engine": "last-row"}
    with pytest.raises(UnsupportedFeature, match="'last-row'; supported: deduplicate"):
        Lake(str(tmp_path)).create_table("d.t", schema, format="paimon", primary_key=["id"], properties=properties)


def test_a_projection_keeps_what_merging_needs():
    groups = (SequenceGroup(("g",), ("a", "b")), SequenceGroup(("h",), ("c",), removes_record=True))
    spec = MergeSpec(("k",), MergeEngine.PARTIAL_UPDATE, ("s",), groups=groups)
    assert spec.needed(["a"]) == ("a", "s", "g", "h")
    assert spec.needed(["z"]) == ("z", "s", "h")


def test_a_removed_row_keeps_what_cannot_be_null():
    """As Java: the -D fills the columns that are not nullable, and what comes next counts on from there."""
    schema = pa.schema(
        [pa.field("k", pa.int64(), False), *SYSTEM, pa.field("v", pa.int64(), False), pa.field("w", pa.int64())]
    )
    rows = [
        {"k": 1, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": kind, "v": v, "w": v}
        for n, (kind, v) in enumerate([(0, 7), (3, 5)])
    ]
    spec = MergeSpec(
        ("k",),
        MergeEngine.AGGREGATION,
        remove_on_delete=True,
        aggregations=(Aggregation("v", "sum"), Aggregation("w", "sum")),
    )
    assert merge(table_of(rows, schema), spec).to_pylist() == [{**rows[1], "v": 5, "w": None}]
    rows.append({"k": 1, "_SEQUENCE_NUMBER": 2, "_VALUE_KIND": 0, "v": 1, "w": 1})
    assert merge(table_of(rows, schema), spec).to_pylist() == [{**rows[2], "v": 6, "w": 1}]


@pytest.mark.parametrize(
    ("function", "type", "values"),
    [
        ("collect", pa.list_(pa.int64()), [[1], [2]]),
        ("last_value", pa.string(), ["a", "b"]),
        ("sum", pa.int64(), [1, 2]),
    ],
)
def test_what_cannot_be_null_is_that_of_the_newest_row_where_nothing_is_left(function, type, values):
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, pa.field("v", type, False)])
    rows = [{"k": 1, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": 1, "v": v} for n, v in enumerate(values)]
    found = merge(
        table_of(rows, schema), MergeSpec(("k",), MergeEngine.AGGREGATION, aggregations=(Aggregation("v", function),))
    )
    found.validate(full=True)
    assert found["v"].null_count == 0
    assert function == "sum" or found["v"].to_pylist() == values[1:]


def test_floats_are_added_one_after_the_other():
    """Another order of additions would give other last digits."""
    values = [0.1, 1e16, -1e16, 0.3, 0.7, 1e-9] * 30
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, pa.field("v", pa.float64())])
    rows = [{"k": 1, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": 0, "v": v} for n, v in enumerate(values)]
    total = 0.0
    for value in values:
        total += value
    spec = MergeSpec(("k",), MergeEngine.AGGREGATION, aggregations=(Aggregation("v", "sum"),))
    assert merge(table_of(rows, schema), spec).column("v").to_pylist() == [total] != [math.fsum(values)]


def test_what_cannot_be_taken_back_names_the_column_and_the_way_out():
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, pa.field("v", pa.int64())])
    rows = [{"k": 1, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": kind, "v": 1} for n, kind in enumerate([0, 3])]
    spec = MergeSpec(("k",), MergeEngine.AGGREGATION, aggregations=(Aggregation("v", "max"),))
    with pytest.raises(UnsupportedFeature, match=r"column 'v'.*'max'.*fields\.v\.ignore-retract"):
        merge(table_of(rows, schema), spec)
    with pytest.raises(UnsupportedFeature, match=r"partial-update\.remove-record-on-delete"):
        merge(table_of(rows, schema), MergeSpec(("k",), MergeEngine.PARTIAL_UPDATE))


def test_decimals_that_get_too_large_are_null_and_begin_anew():
    schema = pa.schema([pa.field("k", pa.int64(), False), *SYSTEM, pa.field("v", pa.decimal128(3, 1))])
    rows = [
        {"k": 1, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": 0, "v": Decimal(v)} for n, v in enumerate(["99.0", "2.0", "5.5"])
    ]
    spec = MergeSpec(("k",), MergeEngine.AGGREGATION, aggregations=(Aggregation("v", "sum"),))
    assert merge(table_of(rows, schema), spec).column("v").to_pylist() == [Decimal("5.5")]


@pytest.mark.parametrize("engine", [MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW, MergeEngine.PARTIAL_UPDATE])
@FEW
@given(data=st.data())
def test_batches_of_a_merge_are_the_merge(engine, data):
    with_retracts, size = data.draw(st.booleans()), data.draw(st.integers(1, 5))
    rows = data.draw(rows_of({"v": st.none() | st.text(max_size=2)}, keys=6))
    spec = MergeSpec(("k",), engine, ignore_delete=engine != MergeEngine.DEDUPLICATE)
    schema = pa.schema([("k", pa.int64()), *SYSTEM, ("v", pa.string())])
    expected = merge(table_of(rows, schema, 3), spec)
    if not with_retracts:
        expected = expected.filter(
            pa.array([kind not in (1, 3) for kind in expected["_VALUE_KIND"].to_pylist()], pa.bool_())
        )
    found = list(merge_in_batches(table_of(rows, schema, 3), spec, size, with_retracts))
    assert pa.Table.from_batches(found, schema).equals(expected.combine_chunks())
    assert all(0 < len(part) <= size for part in found)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("engine", [MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW])
def test_batches_of_sorted_runs_are_the_merge_of_all_rows(engine, numbered, is_sorted):
    random = np.random.default_rng(7)
    pool = pa.array([None, -math.inf, -1.0, -0.0, 0.0, 2.5, math.inf, math.nan])
    runs = []
    for run in range(4):
        count = int(random.choice([3, 300, 1500]))
        places = random.integers(0, len(pool) * 200, count)
        if engine == MergeEngine.DEDUPLICATE:
            places = np.unique(places)
        keys = pa.table({"a": pool.take(pa.array(places // 200)), "b": (places % 200).astype(str)})
        order = pa.array(np.argsort(ranks.ranks(keys.columns), kind="stable") if is_sorted else np.arange(len(places)))
        kinds = random.integers(0, 4, len(places)) if engine == MergeEngine.DEDUPLICATE else np.zeros(len(places))
        columns = {"_SEQUENCE_NUMBER": run * 10_000 + np.arange(len(places)), "_VALUE_KIND": kinds.astype(np.int8)}
        runs.append(
            pa.table({**dict(zip("ab", keys.take(order).columns, strict=True)), **columns, "v": np.arange(len(places))})
        )
    rows, spec = pa.concat_tables(runs), MergeSpec(("a", "b"), engine)
    if not is_sorted and engine == MergeEngine.FIRST_ROW:
        rows = rows.set_column(2, "_SEQUENCE_NUMBER", pa.array(random.permutation(rows.num_rows)))
    expected = merge(rows, spec)
    given = rows if numbered or not is_sorted else rows.drop_columns(["_SEQUENCE_NUMBER"])

    found = list(merge_in_batches(given, spec, 64, True, {"_SEQUENCE_NUMBER", "a"}))

    asked = ["b", "_VALUE_KIND", "v"]
    assert repr(pa.Table.from_batches(found).to_pylist()) == repr(expected.select(asked).to_pylist())
    assert all(0 < len(part) <= 64 for part in found)


def test_slices_of_matches_are_consecutive_and_about_as_large_as_asked():
    few, half = [3] * 50, [outcomes._PAIRS // 2] * 7
    for counts in (
        [],
        [1],
        few,
        half,
        [outcomes._PAIRS * 3],
        [1, outcomes._PAIRS * 2, 1, 1],
        [*few, *half, 0, 0, *few],
    ):
        slices = [slice.tolist() for slice in outcomes._slices(np.array(counts, np.int64))]
        assert [place for slice in slices for place in slice] == list(range(len(counts)))
        assert all(slices)
        sizes = [[counts[place] for place in slice] for slice in slices]
        assert all(sum(size) - max(size) <= outcomes._PAIRS for size in sizes)
        assert len(slices) <= 1 + sum(counts) // outcomes._PAIRS
    assert [slice.tolist() for slice in outcomes._slices(np.array(half))] == [[0], [1, 2], [3, 4], [5, 6]]


def test_wide_rows_are_merged_few_at_a_time():
    count = 300
    ids = [*range(count), *range(0, count, 3)]
    texts = ["x" * 100] * count + ["y" * 100] * len(range(0, count, 3))
    rows = pa.table(
        {
            "id": ids,
            "_SEQUENCE_NUMBER": pa.array(range(len(ids)), pa.int64()),
            "_VALUE_KIND": pa.array([0] * len(ids), pa.int8()),
            "s": texts,
        }
    )
    batches = list(
        merge_in_batches(rows, MergeSpec(("id",), MergeEngine.DEDUPLICATE), 1 << 17, False, window_bytes=1 << 12)
    )
    assert max(batch.nbytes for batch in batches) < 1 << 14
    result = pa.Table.from_batches(batches).sort_by("id")
    assert result["id"].to_pylist() == list(range(count))
    assert [text[0] for text in result["s"].to_pylist()] == ["y" if i % 3 == 0 else "x" for i in range(count)]


@pytest.mark.parametrize("keys", [[1, 2, 1, None, 2, None, 3], [3, 1, 2], []])
def test_the_last_row_of_each_key_of_a_source_is_left(keys):
    source = pa.table({"s.k": pa.array(keys, pa.int64()), "s.row": range(len(keys))})
    last = sorted({key: row for row, key in enumerate(keys)}.values())
    assert arrow_merge.last_of_each(source, ("k",))["s.row"].to_pylist() == last
