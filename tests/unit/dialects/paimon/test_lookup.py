"""Paimon tables whose compactions look up older rows (`changelog-producer=lookup`, `force-lookup`), beside a dict by key."""

import random

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import CorruptFile, InvalidInput, Lake
from lakeformat.engines.files import parquet

SCHEMA = pa.schema([("id", pa.int64()), ("j", pa.string()), ("n", pa.int64()), ("v", pa.string())])
ENGINES = {
    "deduplicate": {},
    "sequence": {"sequence.field": "n"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.v.aggregate-function": "listagg",
        "aggregation.remove-record-on-delete": "true",
    },
    "group": {
        "merge-engine": "partial-update",
        "fields.n.sequence-group": "v",
        "fields.v.aggregate-function": "listagg",
    },
    "first-row": {"merge-engine": "first-row"},
}


def merged(engine, old, new):
    """What one more row makes of the row of its key; None for none."""
    kind, n, v = new
    if kind == "-D":
        return None
    if old is None:
        return n, v
    match engine:
        case "deduplicate":
            return n, v
        case "sequence":
            return (n, v) if n >= old[0] else old
        case "partial-update":
            return old[0] if n is None else n, old[1] if v is None else v
        case "aggregation":
            numbers = [number for number in (old[0], n) if number is not None]
            texts = [text for text in (old[1], v) if text is not None]
            return sum(numbers) if numbers else None, ",".join(texts) if texts else None
        case "group":
            if n is None or old[0] is None:  # A row without a number says nothing, but where it is alone.
                return (None, None) if n is None and old[0] is None else (n, v) if old[0] is None else old
            if n >= old[0]:
                return n, old[1] if v is None else v if old[1] is None else f"{old[1]},{v}"
            return old[0], old[1] if v is None else v if old[1] is None else f"{v},{old[1]}"
        case "first-row":
            return old


def replayed(table):
    """The rows that a changelog leads to, each change of which fits what was there."""
    held, gone = {}, {}
    for row in table.changes(0).to_arrow().to_pylist():
        key, values = (row["id"], row["j"]), (row["n"], row["v"])
        match row["_row_kind"]:
            case "+I":
                assert key not in held
                held[key] = values
            case "-D":
                assert held.pop(key) == values
            case "-U":
                assert held[key] == values
                gone[key] = held.pop(key)
            case "+U":
                assert gone.pop(key) is not None
                held[key] = values
    assert not gone
    return held


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "option"),
    [*((engine, option) for engine in ENGINES for option in ("lookup", "force")), ("first-row", "none")],
)
def test_rows_merge_with_what_higher_levels_have_of_them_once(tmp_path, engine, option):
    deepest, has_levels = 0, engine not in ("aggregation", "group")
    for seed in range(4):
        if seed > 1 and (deepest > 2) == has_levels:
            break
        chance = random.Random(f"{engine} {option} {seed}")
        given = {
            "bucket": "1",
            "num-sorted-run.compaction-trigger": chance.choice(["2", "5"]),
            "file.format": chance.choice(["parquet", "orc"]),
            **ENGINES[engine],
            **{"lookup": {"changelog-producer": "lookup"}, "force": {"force-lookup": "true"}, "none": {}}[option],
        }
        lake = Lake(str(tmp_path / str(seed)), fsync="false")
        table = lake.create_table("d.t", SCHEMA, format="paimon", primary_key=["id", "j"], properties=given)
        model = {}
        wide = chance.choice([8, 60])
        for turn in range(7):
            rows = []
            for _ in range(chance.choice([1, 3, wide])):
                key = chance.randrange(wide), chance.choice("ab")
                n = chance.randrange(9) if engine == "sequence" else chance.choice([None, *range(9)])
                v = chance.choice([None, *"xyz"])
                kinds = ["+I"] if engine in ("first-row", "group", "sequence") else ["+I", "+I", "+U", "-D"]
                rows.append((key, chance.choice(kinds), n, v))
            if engine in ("partial-update", "aggregation", "group"):  # Rows of one write are merged alone (as in Java).
                rows = list({key: (key, *rest) for key, *rest in rows}.values())
            for key, *new in rows:
                after = merged(engine, model.get(key), tuple(new))
                model = {k: r for k, r in model.items() if k != key} | ({} if after is None else {key: after})
            table.upsert(
                pa.table(
                    {
                        "id": pa.array([key[0] for key, *_ in rows], pa.int64()),
                        "j": [key[1] for key, *_ in rows],
                        "rowkind": [kind for _, kind, _, _ in rows],
                        "n": pa.array([n for *_, n, _ in rows], pa.int64()),
                        "v": pa.array([v for *_, v in rows], pa.string()),
                    }
                )
            )
            found = {(r["id"], r["j"]): (r["n"], r["v"]) for r in table.scan().to_arrow().to_pylist()}
            assert found == model, (engine, seed)
            levels = set(table.inspect.files()["level"].to_pylist())
            assert 0 not in levels, (engine, seed)
            if engine == "first-row":  # Others read these levels without merging.
                assert sum(table.inspect.files()["row_count"].to_pylist()) == len(model), seed
            deepest = max(deepest, len(levels))
            if option == "lookup" and turn % 3 == 0:  # From the first change on each time.
                assert replayed(table) == model, (engine, seed)
        table.compact(full=True)
        found = {(r["id"], r["j"]): (r["n"], r["v"]) for r in table.scan().to_arrow().to_pylist()}
        assert found == model, (engine, seed)
        if option == "lookup":
            assert replayed(table) == model, (engine, seed)
    assert (deepest > 2) == has_levels  # Keys stood on several levels.


def test_the_lowest_level_above_0_has_all_of_a_row_that_is_above_it(tmp_path):
    """As Java writes tables whose functions add up; it is said of a table that was written without them."""
    lake = Lake(str(tmp_path), fsync="false")
    given = {"bucket": "1", "changelog-producer": "lookup", "merge-engine": "partial-update"}
    given |= {"fields.n.sequence-group": "v"}
    table = lake.create_table("d.t", SCHEMA, format="paimon", primary_key=["id", "j"], properties=given)
    for n, v in ((1, "a"), (2, "b"), (3, "c")):
        table.upsert(pa.table({"id": [1, 9], "j": ["j", "j"], "n": [n, n], "v": [v, v]}))
    assert len(set(table.inspect.files()["level"].to_pylist())) == 3
    table.alter().set_properties({"fields.v.aggregate-function": "listagg", "write-only": "true"}).commit()
    table.upsert(pa.table({"id": [1], "j": ["j"], "n": [4], "v": ["d"]}))
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["n"], row["v"]) for row in rows] == [(1, 4, "c,d"), (9, 3, "c")]


@pytest.mark.parametrize("turned", [("false", "true"), ("true", "false")])
@pytest.mark.parametrize("engine", ["aggregation", "sequence", "deduplicate"])
def test_how_levels_are_read_changes_only_where_there_is_one(tmp_path, turned, engine):
    lake, (before, after) = Lake(str(tmp_path), fsync="false"), turned
    given = {"bucket": "1", "num-levels": "6", "num-sorted-run.compaction-trigger": "2", "force-lookup": before}
    given |= ENGINES[engine]
    table = lake.create_table("d.t", SCHEMA, format="paimon", primary_key=["id", "j"], properties=given)
    many = pa.table({"id": range(20_000), "j": ["j"] * 20_000, "n": [1] * 20_000, "v": ["a"] * 20_000})
    table.upsert(many)
    table.compact(full=True)
    for _ in range(3):
        table.upsert(many.slice(1, 1))
    several = len(set(table.inspect.files()["level"].to_pylist()) - {0}) > 1
    rows, change = table.scan().to_arrow().sort_by("id"), table.alter().set_properties({"force-lookup": after})
    if several and engine != "deduplicate":
        with pytest.raises(InvalidInput, match=r"'force-lookup' .* compact\(full=True\) first"):
            change.commit()
        table.compact(full=True)
    change.commit()
    assert table.scan().to_arrow().sort_by("id").equals(rows)
    assert several == (engine != "aggregation" or before == "false")  # Look-ups of what adds up leave one level.


@pytest.mark.parametrize("key", [["id"], ["j", "id"]])
def test_few_new_rows_leave_large_files_where_they_are(tmp_path, key):
    """Of a large file only the row groups are read that may have a new key, and none of it is written again."""
    lake = Lake(str(tmp_path), fsync="false")
    given = {"bucket": "1", "changelog-producer": "lookup", "file.compression": "none"}
    table = lake.create_table("d.t", SCHEMA, format="paimon", primary_key=key, properties=given)
    count = 3 * parquet.GROUP_ROWS
    ids = np.arange(count)
    table.upsert(pa.table({"id": ids, "j": np.char.mod("%07d", ids), "n": ids, "v": pa.nulls(count, pa.string())}))
    (large,) = table.inspect.files()["path"].to_pylist()
    path = next(tmp_path.rglob(large))
    content = bytearray(path.read_bytes())
    begin = parquet.pq.ParquetFile(path).metadata.row_group(2).column(len(key) + 2).data_page_offset
    content[begin + 1000 : begin + 2000] = bytes(1000)  # Whoever reads these rows is told so by a checksum.
    path.write_bytes(content)
    with pytest.raises(CorruptFile):
        table.scan().to_arrow()
    for turn in range(3):
        before = table.current_snapshot().id
        table.upsert(pa.table({"id": [7, 9], "j": ["0000007", "0000009"], "n": [-turn, -turn], "v": ["x", "y"]}))
        rows = table.changes(before).to_arrow().sort_by([("id", "ascending"), ("_row_kind", "descending")]).to_pylist()
        assert [(row["_row_kind"], row["id"], row["n"]) for row in rows] == [
            (kind, id, n) for id in (7, 9) for kind, n in (("-U", id if turn == 0 else 1 - turn), ("+U", -turn))
        ]
        assert large in table.inspect.files()["path"].to_pylist()
    assert table.scan(where="id = 7 AND j = '0000007'").to_arrow()["n"].to_pylist() == [-2]
