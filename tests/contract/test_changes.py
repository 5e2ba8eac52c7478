"""Changes between snapshots: applied to the rows of the one they give the rows of the other."""

import datetime
import json
import os
import random
import re
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeformat import CorruptTable, InvalidInput, Lake, NoSuchFile, NotFound, UnsupportedFeature
from tests.draw import some

EXAMPLES = int(os.environ.get("LAKEFORMAT_EXAMPLES", "3"))
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "warehouse"))


def make(lake, name="d.t", keyed=False, format="paimon", **properties):
    key = {"primary_key": ["id", "dt"], "properties": {"bucket": "2"} | properties} if keyed else {}
    return lake.create_table(name, SCHEMA, format=format, partition_by=["dt"], **key)


def rows(*given):
    return pa.Table.from_pylist([dict(zip(("id", "v", "dt"), row, strict=True)) for row in given], SCHEMA)


def told(changes):
    return [(row["_row_kind"], row["id"], row["v"], row["dt"]) for row in changes.to_arrow().to_pylist()]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_column_called_as_the_kinds_are_is_left_out(lake, format):
    schema = pa.schema([("id", pa.int64()), ("_row_kind", pa.string())])
    table = lake.create_table("d.t", schema, format=format)
    table.append(pa.table({"id": [1], "_row_kind": ["mine"]}))
    with pytest.raises(InvalidInput, match="a column of the table is called '_row_kind'"):
        table.changes(0)
    assert table.changes(0, columns=["id"]).to_arrow().to_pylist() == [{"id": 1, "_row_kind": "+I"}]
    if format == "paimon":
        with pytest.raises(InvalidInput, match="a column of the table is called '_row_kind'"):
            table.inspect.audit_log()
        assert table.inspect.audit_log(columns=["id"]).to_pylist() == [{"rowkind": "+I", "id": 1}]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_changes_after_a_snapshot_that_did_not_lead_there_are_refused(lake, format):
    table = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format=format)
    first = table.append(pa.table({"id": [1]}))
    last = table.append(pa.table({"id": [2]}))
    assert table.changes(last.id).to_arrow().num_rows == 0
    for after, until in ((last.id + 7, None), (last.id, first.id)):
        with pytest.raises(NotFound, match=f"snapshot {after} .*did not lead to"):
            table.changes(after, until).to_arrow()


def multiset(table, snapshot_id):
    if snapshot_id == 0:
        return Counter()
    return Counter(tuple(row.values()) for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist())


def applied(before, changes, keyed):
    """Rows after changes: as a table with a key takes them, or as one without."""
    if not keyed:
        after = Counter(before)
        for kind, *row in changes:
            after[tuple(row)] += 1 if kind == "+I" else -1
        assert min(after.values(), default=0) >= 0
        return +after
    held = {(row[0], row[2]): row for row in before}
    for kind, *row in changes:
        if kind in ("+I", "+U"):
            held[row[0], row[2]] = tuple(row)
        else:
            held.pop((row[0], row[2]), None)
    return Counter(held.values())


def test_appended_rows_came(lake):
    table = make(lake)
    table.append(rows((1, "a", "x")))
    table.append(rows((2, "b", "y"), (3, "c", "x")))
    table.compact(full=True)
    assert sorted(told(table.changes(0))) == [("+I", 1, "a", "x"), ("+I", 2, "b", "y"), ("+I", 3, "c", "x")]
    assert sorted(told(table.changes(1))) == [("+I", 2, "b", "y"), ("+I", 3, "c", "x")]
    assert told(table.changes(0, 1)) == [("+I", 1, "a", "x")]
    assert told(table.changes(2)) == []
    found = table.changes(0, columns=["v"], where="dt = 'x' and id > 1").to_arrow()
    assert found.to_pylist() == [{"v": "c", "_row_kind": "+I"}]


def test_changes_of_a_keyed_table_have_row_kinds(lake):
    table = make(lake, keyed=True)
    table.upsert(rows((1, "a", "x"), (2, "b", "x")))
    table.upsert(rows((1, "A", "x")))
    table.delete("id = 2")
    table.update({"v": "'B'"}, where="id = 1")
    assert told(table.changes(1)) == [("+I", 1, "A", "x"), ("-D", 2, "b", "x"), ("+U", 1, "B", "x")]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["plain", "none", "input"]), data=st.data())
def test_changes_lead_from_one_snapshot_to_another(tmp_path_factory, kind, data):
    lake, keyed = Lake(str(tmp_path_factory.mktemp("changes"))), kind != "plain"
    table = make(lake, keyed=keyed, **({"changelog-producer": kind} if keyed else {}))
    row = st.tuples(st.integers(1, 4), st.sampled_from("abc"), st.sampled_from("xy"))
    write = table.upsert if keyed else table.append
    ids, parts = st.integers(1, 4), st.sampled_from("xy")
    verbs = {
        "write": lambda: write(rows(*data.draw(st.lists(row, min_size=1, max_size=4)))),
        "replace": lambda: table.overwrite_partitions(rows(*data.draw(st.lists(row, min_size=1, max_size=3)))),
        "delete": lambda: table.delete(f"id = {data.draw(ids)}"),
        "update": lambda: table.update({"v": "'z'"}, where=f"id <= {data.draw(ids)}"),
        "drop": lambda: table.drop_partitions([{"dt": data.draw(parts)}]),
        "back": lambda: table.rollback_to(snapshot_id=data.draw(st.sampled_from([s.id for s in table.snapshots()]))),
    }
    table.append(rows((1, "a", "x")))
    for verb in data.draw(st.lists(st.sampled_from(sorted(verbs)), min_size=1, max_size=6)):
        verbs[verb]()
    kept = [0, *(snapshot.id for snapshot in table.snapshots())]
    start = data.draw(st.sampled_from(kept))
    stop = data.draw(st.sampled_from([id for id in kept if id >= max(start, 1)]))
    changes = told(table.changes(start, stop))
    assert applied(multiset(table, start), changes, keyed) == multiset(table, stop)


def test_a_changelog_holds_rows_as_they_came(lake, caplog):
    table = make(lake, keyed=True, **{"changelog-producer": "input"})
    made = table.upsert(
        rows((2, "b", "x"), (1, "a", "x"), (1, "A", "x")).append_column("rowkind", [["+I", "+I", "+U"]])
    )
    assert (made.rows_added, table.scan().count()) == (2, 2)
    table.upsert(rows((1, "A", "x"), (1, "z", "x"), (2, "b", "x")).append_column("rowkind", [["-U", "+U", "-D"]]))
    assert table.inspect.snapshots()["changelog_record_count"].to_pylist() == [3, 3]
    assert sorted(told(table.changes(0, 1))) == [("+I", 1, "a", "x"), ("+I", 2, "b", "x"), ("+U", 1, "A", "x")]
    of_one = [row for row in told(table.changes(0)) if row[1] == 1]
    assert of_one == [("+I", 1, "a", "x"), ("+U", 1, "A", "x"), ("-U", 1, "A", "x"), ("+U", 1, "z", "x")]
    assert told(table.changes(1, where="id = 2")) == [("-D", 2, "b", "x")]
    table.update({"v": "'u'"}, where="id = 1")
    table.delete("id = 1")
    assert told(table.changes(2)) == [("+U", 1, "u", "x"), ("-D", 1, "u", "x")]
    assert caplog.messages == [] or "an overwrite writes no changelog" not in caplog.text
    table.upsert(rows((5, "e", "x"), (6, "f", "y")))
    table.overwrite_partitions(rows((7, "g", "x")))
    assert "an overwrite writes no changelog" in caplog.text
    assert table.inspect.snapshots()["changelog_record_count"].to_pylist()[-1] is None
    assert sorted(told(table.changes(5))) == [("+I", 7, "g", "x"), ("-D", 5, "e", "x")]


def test_changelog_files_go_with_their_snapshots(lake):
    table = make(lake, keyed=True, **{"changelog-producer": "input"})
    home = Path(table.uri.removeprefix("file://"))
    for n in range(1, 6):
        table.upsert(rows((n, "a", "x")))
    table.create_tag("kept", snapshot_id=2)
    assert len(list(home.rglob("changelog-*"))) == 5
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    table.remove_orphan_files(older_than=now)
    assert len(list(home.rglob("changelog-*"))) == 5
    table.expire_snapshots(retain_last=2, older_than=now)
    assert len(list(home.rglob("changelog-*"))) == 3
    assert [row[1] for row in told(table.changes(3))] == [4, 5]
    table.delete_tag("kept")
    assert len(list(home.rglob("changelog-*"))) == 2
    assert table.remove_orphan_files(older_than=now) == []
    assert table.scan().count() == 5


LIFE = {
    "files": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction", "write-only": "true"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "no key": None,
}
LATER = datetime.timedelta(days=-1)


def steps(table):
    """Snapshots with changelogs and without, whose files compaction replaced, lifted and left."""
    for n in range(3):
        table.append(rows((n, "a", "x"), (n + 10, "a", "y")))
        table.append(rows((n, f"b{n}", "x"), (7, f"b{n}", "x")))
        table.compact(full=n == 1)
    if table.schema.primary_key:
        table.delete("id = 7")
        table.update({"v": "'u'"}, where="id = 1")
        table.compact(full=True)


def read(table, first, last):
    return [
        sorted(told(table.changes(start, stop)), key=str) for start in range(first, last) for stop in (start + 1, last)
    ]


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("properties", LIFE.values(), ids=LIFE)
def test_changelogs_outlive_their_snapshots(lake, properties):
    kept = {"changelog.num-retained.min": "100"}
    table = make(lake, keyed=properties is not None, **{**(properties or {}), **kept})
    table.alter().set_properties(kept).commit()
    home = Path(table.uri.removeprefix("file://"))
    steps(table)
    last, content = table.current_snapshot().id, multiset(table, table.current_snapshot().id)
    before = read(table, 0, last)
    assert any(before)
    for most in (last - 2, 3, 1):
        gone = table.expire_snapshots(retain_last=most)
        assert [snapshot.id for snapshot in table.snapshots()] == list(range(last - most + 1, last + 1))
        assert set(gone.snapshots) <= {int(path.name[10:]) for path in home.glob("changelog/changelog-*")}
        table.remove_orphan_files(older_than=LATER)
        assert read(table, 0, last) == before
        assert multiset(table, last) == content
        for document in (json.loads(path.read_text()) for path in home.glob("changelog/changelog-*")):
            lists = [document.get("changelogManifestList") or document["deltaManifestList"]]
            lists = lists if document["commitKind"] == "APPEND" else [document.get("changelogManifestList")]
            assert all((home / "manifest" / name).exists() for name in lists if name)
        for path in home.glob("changelog/changelog-*[13579]"):  # As other engines leave them.
            document = json.loads(path.read_text())
            document.pop("lakeformatManifests", None)
            path.write_text(json.dumps(document))
    assert (home / "changelog/EARLIEST").read_text() == "1"
    assert (home / "changelog/LATEST").read_text() == str(last - 1)
    with pytest.raises(NotFound):
        table.scan(snapshot_id=1)
    log = table.changes(1, consumer="etl")
    assert log.to_arrow().num_rows == len(told(table.changes(1)))
    over = {"changelog.num-retained.min": "1", "changelog.num-retained.max": "4"}
    table.alter().set_properties(over).commit()
    table.expire_snapshots(retain_last=1)
    assert sorted(int(path.name[10:]) for path in home.glob("changelog/changelog-*")) == list(range(2, last))
    table.drop_consumer("etl")
    table.expire_snapshots(retain_last=1)
    assert sorted(int(path.name[10:]) for path in home.glob("changelog/changelog-*")) == list(range(last - 3, last))
    assert read(table, last - 4, last) == before[2 * (last - 4) :]
    with pytest.raises(NotFound):
        table.changes(last - 5).to_arrow()
    assert table.remove_orphan_files(older_than=LATER, dry_run=True) == [], "expiry leaves nothing behind"
    table.alter().set_properties({"changelog.num-retained.max": "1"}).commit()
    table.expire_snapshots(retain_last=1)
    assert list(home.glob("changelog/changelog-*")) == []
    assert table.remove_orphan_files(older_than=LATER, dry_run=True) == []
    assert multiset(table, last) == content


def test_an_overwrite_that_expired_is_read_from_its_changelog_or_refused(lake):
    table = make(lake, keyed=True, **{"changelog.time-retained": "7 d"})
    table.upsert(rows((1, "a", "x")))
    table.overwrite_partitions(rows((2, "b", "x")))
    table.upsert(rows((3, "c", "x")))
    table.upsert(rows((4, "d", "x")))
    table.expire_snapshots(retain_last=1)
    assert told(table.changes(0, 1)) == [("+I", 1, "a", "x")]
    with pytest.raises(NotFound, match="snapshot 2 has expired, and its rows were not written to a changelog"):
        table.changes(0).to_arrow()
    assert told(table.changes(2)) == [("+I", 3, "c", "x"), ("+I", 4, "d", "x")]


def test_a_consumer_may_protect_changelogs_alone(lake):
    table = make(lake, keyed=True, **{"changelog.num-retained.min": "2", "consumer.changelog-only": "true"})
    for n in range(6):
        table.upsert(rows((n, "a", "x")))
    changes = table.changes(2, consumer="etl")
    assert [row[1] for row in told(changes)] == [2, 3, 4, 5]
    table.alter().set_properties(
        {"changelog.num-retained.max": "3", "snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"}
    ).commit()
    table.expire_snapshots()
    assert [snapshot.id for snapshot in table.snapshots()] == [6]
    assert [row[1] for row in told(table.changes(consumer="etl"))] == [2, 3, 4, 5]
    with pytest.raises(NotFound):
        table.changes(1).to_arrow()


def test_producers_have_names(lake):
    with pytest.raises(InvalidInput, match="must be 'none', 'input', 'lookup' or 'full-compaction'"):
        make(lake, keyed=True, **{"changelog-producer": "all"})


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize(("ignored", "told_ids"), [("", [2]), ("v", [])])
def test_updates_that_change_nothing_are_left_out_where_asked_for(lake, producer, ignored, told_ids):
    given = {
        "changelog-producer": producer,
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": ignored,
    }
    table = make(lake, keyed=True, **given)
    table.upsert(rows((1, "a", "x"), (2, "b", "x"), (3, None, "x")))
    first = table.current_snapshot().id
    table.upsert(rows((1, "a", "x"), (2, "B", "x"), (3, None, "x"), (4, "d", "x")))
    found = told(table.changes(first))
    assert sorted({row[1] for row in found if row[0] in ("-U", "+U")}) == told_ids
    assert [row for row in found if row[0] == "+I"] == [("+I", 4, "d", "x")]
    assert len(found) == 1 + 2 * len(told_ids)


def log(table, *between, **how):
    found = table.inspect.audit_log(*between, **how)
    assert found.column_names[0] == "rowkind"
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_the_audit_log_shows_rows_and_what_was_taken_back(lake):
    table = make(lake, keyed=True, **{"write-only": "true"})
    assert log(table) == []
    table.upsert(rows((1, "a", "x"), (2, "b", "x"), (3, "c", "y")))
    table.update({"v": "'B'"}, where="id = 2")
    first = table.current_snapshot().id
    table.delete("id in (1, 3)")
    expected = [("+I", 3, "c", "y"), ("+U", 2, "B", "x")]
    assert log(table, None, first) == [("+I", 1, "a", "x"), *expected]
    gone = [("-D", 1, "a", "x"), ("-D", 3, "c", "y")]
    assert log(table) == [expected[1], *gone]
    assert log(table, columns=["id"], where="dt = 'x' and v <> 'B'") == [("-D", 1)]
    assert log(table, first) == gone
    assert log(table, 0, first) == sorted(told(table.changes(0, first)))
    table.compact(full=True)
    assert log(table) == [expected[1]]
    assert log(table, 0) == sorted(told(table.changes(0)))


def test_rows_of_a_table_without_a_key_are_inserts_in_the_audit_log(lake):
    table = make(lake)
    table.append(rows((1, "a", "x"), (2, "b", "y")))
    table.delete("id = 1")
    assert log(table) == [("+I", 2, "b", "y")]
    assert ("-D", 1, "a", "x") in log(table, 1)
    iceberg = lake.create_table("d.i", SCHEMA, format="iceberg")
    with pytest.raises(UnsupportedFeature, match="audit log of an Iceberg table"):
        iceberg.inspect.audit_log()


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_compaction_writes_the_changelog(lake, producer):
    table = make(lake, keyed=True, **{"changelog-producer": producer, "write-only": "true"})
    table.upsert(rows((1, "a", "x"), (2, "b", "x"), (3, "c", "y")))
    assert told(table.changes(0)) == []
    table.compact(full=True)
    first = table.current_snapshot().id
    assert sorted(told(table.changes(0))) == [("+I", 1, "a", "x"), ("+I", 2, "b", "x"), ("+I", 3, "c", "y")]
    table.upsert(rows((1, "A", "x"), (4, "d", "x")))
    table.upsert(rows((1, "AA", "x")))
    table.delete("id = 2")
    table.compact(full=True)
    of_x = [row for row in told(table.changes(first)) if row[3] == "x"]
    assert sorted(of_x, key=lambda row: (row[1], row[0] != "-U")) == [
        ("-U", 1, "a", "x"),
        ("+U", 1, "AA", "x"),
        ("-D", 2, "b", "x"),
        ("+I", 4, "d", "x"),
    ]
    assert len(told(table.changes(first))) == 4
    counts = table.inspect.snapshots()["changelog_record_count"].to_pylist()
    assert [count for count in counts if count] == [3, 4]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    producer=st.sampled_from(["lookup", "full-compaction"]),
    engine=st.sampled_from(["deduplicate", "partial-update", "aggregation"]),
    data=st.data(),
)
def test_a_changelog_of_compactions_is_strict(tmp_path_factory, producer, engine, data):
    """A row comes only where there is none, goes only as it was, and at the end the rows are the table's."""
    options = {"merge-engine": engine, "changelog-producer": producer, "num-sorted-run.compaction-trigger": "2"}
    if engine == "aggregation":
        options |= {"fields.v.aggregate-function": "max", "aggregation.remove-record-on-delete": "true"}
    if engine == "partial-update":
        options["partial-update.remove-record-on-delete"] = "true"
    table = make(Lake(str(tmp_path_factory.mktemp("strict"))), keyed=True, **options)
    row = st.tuples(st.integers(1, 4), st.none() | st.sampled_from("abc"), st.just("x"))
    for _ in range(data.draw(st.integers(1, 6))):
        table.upsert(rows(*data.draw(st.lists(row, min_size=1, max_size=3))))
        match data.draw(st.sampled_from(["write", "delete", "compact", "full"])):
            case "delete":
                table.delete(f"id = {data.draw(st.integers(1, 4))}")
            case "compact":
                table.compact()
            case "full":
                table.compact(full=True)
    table.compact(full=True)
    held: dict = {}
    gone = None
    for kind, id, v, dt in told(table.changes(0)):
        match kind:
            case "+I":
                assert (id, dt) not in held
                held[id, dt] = v
            case "-D" | "-U":
                assert held.pop((id, dt)) == v
            case "+U":
                assert gone == ("-U", id)
                held[id, dt] = v
        gone = (kind, id)
    assert Counter((id, v, dt) for (id, dt), v in held.items()) == multiset(table, table.current_snapshot().id)


def test_changes_from_old_files_have_new_columns(lake):
    table = make(lake)
    table.append(rows((1, "a", "x")))
    table.alter().add_column("n", "int").rename_column("v", "w").commit()
    table.append(pa.table({"id": [2], "w": ["b"], "dt": ["x"], "n": [5]}))
    found = table.changes(0, columns=["w", "n"]).to_arrow().to_pylist()
    assert found == [{"w": "a", "n": None, "_row_kind": "+I"}, {"w": "b", "n": 5, "_row_kind": "+I"}]


def test_a_consumer_goes_on_where_it_was_and_protects_what_it_has_to_read(lake):
    table = make(lake)
    for n in range(1, 6):
        table.append(rows((n, "a", "x")))
    changes = table.changes(2, consumer="etl")
    assert [row[1] for row in told(changes)] == [3, 4, 5]
    assert [row[1] for row in told(table.changes(consumer="etl"))] == [3, 4, 5]  # Not acknowledged: told again.
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    table.expire_snapshots(retain_last=1, older_than=now)
    assert [snapshot.id for snapshot in table.snapshots()] == [3, 4, 5]
    assert table.inspect.consumers().to_pylist() == [{"consumer_id": "etl", "next_snapshot_id": 3}]
    changes.acknowledge()
    table.append(rows((6, "a", "x")))
    assert [row[1] for row in told(table.changes(consumer="etl"))] == [6]
    table.expire_snapshots(retain_last=1, older_than=now)
    assert [snapshot.id for snapshot in table.snapshots()] == [6]
    table.drop_consumer("etl")
    with pytest.raises(NotFound, match="no consumer 'etl'"):
        table.drop_consumer("etl")
    with pytest.raises(NotFound, match="snapshot 5 does not exist"):
        table.changes(4).to_arrow()
    assert told(table.changes(consumer="new")) == [("+I", 6, "a", "x")]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_consumer_protects_the_rows_that_an_overwrite_took(lake, keyed):
    """The snapshot before it has them, which the consumer has read already."""
    table = make(lake, keyed=keyed, **{"write-only": "true"})
    table.append(rows((1, "a", "x"), (2, "b", "x")))
    changes = table.changes(0, consumer="etl")
    changes.acknowledge()
    table.overwrite(rows((1, "c", "x")))
    table.append(rows((3, "d", "x")))
    assert table.expire_snapshots(retain_last=1).snapshots == ()
    unread = table.changes(consumer="etl")
    assert sorted(told(unread)) == [("+I", 1, "c", "x"), ("+I", 3, "d", "x"), ("-D", 1, "a", "x"), ("-D", 2, "b", "x")]
    table.changes(to_snapshot=2, consumer="etl").acknowledge()
    assert table.expire_snapshots(retain_last=1).snapshots == (1, 2)
    table.append(rows((4, "e", "x")))
    table.drop_consumer("etl")


@pytest.mark.parametrize("keyed", [False, True])
def test_what_an_overwrite_took_from_a_snapshot_that_expired_cannot_be_read(lake, keyed):
    table = make(lake, keyed=keyed)
    table.append(rows((1, "a", "x")))
    table.overwrite(rows((1, "c", "x")))
    table.expire_snapshots(retain_last=1)
    with pytest.raises(NotFound, match="snapshot 1 does not exist: it may have expired"):
        table.changes(1).to_arrow()


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_row_whose_sequence_number_repeats_is_in_the_changelog(lake, producer):
    """Of two writers who know nothing of each other: what is there has the same number, and then a larger one."""
    properties = {"changelog-producer": producer, "write-only": "true", "merge-engine": "aggregation", "bucket": "1"}
    table = make(lake, keyed=True, **properties, **{"fields.v.aggregate-function": "max"})
    first, second = table.stream("first"), table.stream("second")
    late = [second.prepare(n, rows((1, v, "x"))) for n, v in enumerate(["c", "d"])]
    at_once = [first.prepare(n, rows((1, v, "x"))) for n, v in enumerate(["a", "b"])]
    for session, each in ((first, at_once[0]), (second, late[0]), (first, at_once[1]), (second, late[1])):
        session.commit(each)
        table.compact(full=True)
    held: dict[int, str] = {}
    for kind, key, v, _ in told(table.changes(0)):
        assert kind in ("+I", "+U") or held[key] == v
        held[key] = v
    assert held == {1: "d"}


def test_changes_need_a_beginning(lake):
    table = make(lake)
    with pytest.raises(InvalidInput, match="needs from_snapshot"):
        table.changes()
    with pytest.raises(InvalidInput, match="without a consumer"):
        table.changes(0).acknowledge()
    assert told(table.changes(0)) == []
    with pytest.raises(InvalidInput, match="a name must not be empty"):
        table.changes(0, consumer="a/b")


def test_iceberg_tables_have_no_consumers(lake):
    table = make(lake, format="iceberg")
    table.append(rows((1, "a", "x")))
    with pytest.raises(UnsupportedFeature, match="Iceberg tables have no consumers"):
        table.changes(consumer="c")


def iceberg(lake, mode, version="2", name="d.i"):
    modes = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}
    properties = {**modes, "format-version": version}
    return lake.create_table(name, SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)


def test_rows_that_are_marked_are_changes_one_by_one(lake):
    for version in ("2", "3"):
        table = iceberg(lake, "merge-on-read", version, f"d.v{version}")
        first = table.append(rows((1, "a", "x"), (2, "b", "x"), (3, "c", "x"))).id
        table.delete("id = 1")
        second = table.update({"v": "'B'"}, where="id = 2").id
        assert told(table.changes(first)) == [("-D", 1, "a", "x"), ("-D", 2, "b", "x"), ("+I", 2, "B", "x")]
        assert told(table.changes(first, where="id = 1")) == [("-D", 1, "a", "x")]
        table.compact(full=True)
        table.rewrite_manifests()
        assert told(table.changes(second)) == []
        table.overwrite_partitions(rows((9, "z", "x")))
        found = told(table.changes(second))
        assert sorted(found) == [("+I", 9, "z", "x"), ("-D", 2, "B", "x"), ("-D", 3, "c", "x")]
        assert found[-1][0] == "+I"


def test_changes_of_deltas_include_the_rows_that_equality_deletes_removed(lake):
    table = iceberg(lake, "merge-on-read")
    before = table.append(rows((1, "a", "x"), (2, "b", "x"), (3, "c", "y"))).id
    schema = pa.schema([*SCHEMA, ("rowkind", pa.string())])
    with table.delta_writer("cdc", key=["id", "dt"], upsert=True, buffer_bytes=1) as writer:
        written = [
            (1, "A", "x", "+U"),
            (1, "AA", "x", "+U"),
            (3, "", "y", "-D"),
            (4, "d", "y", "+I"),
            (4, "", "y", "-D"),
        ]
        for row in written:  # Each in a file of its own, so that places are deleted in the commit that adds them.
            writer.write(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True))], schema))
        writer.checkpoint(1)
    assert sorted(told(table.changes(before))) == [("+I", 1, "AA", "x"), ("-D", 1, "a", "x"), ("-D", 3, "c", "y")]


def test_changes_are_only_of_ancestors_of_a_snapshot(lake):
    table = iceberg(lake, "merge-on-read")
    first, second, third = (table.append(rows((n, "v", "x"))).id for n in (1, 2, 3))
    assert told(table.changes(first, second)) == [("+I", 2, "v", "x")]
    assert told(table.changes(third)) == []
    branch = table.create_branch("b", snapshot_id=first)
    branch.append(rows((7, "b", "x")))
    assert told(branch.changes(first)) == [("+I", 7, "b", "x")]
    with pytest.raises(NotFound, match="did not lead to"):
        branch.changes(second).to_arrow()
    table.delete_branch("b")
    table.rollback_to(snapshot_id=second)
    assert told(table.changes(second)) == []
    table.expire_snapshots(retain_last=1)
    with pytest.raises(NotFound, match="does not exist"):
        table.changes(first).to_arrow()


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_changes_of_an_iceberg_table_is_read(lake, seed):
    chance = random.Random(seed)
    table = iceberg(lake, chance.choice(["copy-on-write", "merge-on-read"]), chance.choice("23"))
    schema = pa.schema([*SCHEMA, ("rowkind", pa.string())])
    with table.delta_writer("cdc", key=["id", "dt"], upsert=True, buffer_bytes=1) as writer:
        for step in range(18):
            low, digit = chance.randrange(30), chance.randrange(5)
            some = [(i, f"{step}", chance.choice("xy")) for i in range(low, low + 5)]
            match chance.choice(
                ["append", "delete", "update", "merge", "overwrite", "compact", "stream", "mode", "sort"]
            ):
                case "append":
                    table.append(rows(*some))
                case "delete":
                    table.delete(f"id % 5 = {digit}")
                case "update":
                    table.update({"v": f"'{step}'", "dt": "'z'"}, where=f"id % 5 = {digit}")
                case "merge":
                    source = rows(*((i, "m", "x") for i in range(low, low + 4)))
                    chain = table.merge_into(source, on="t.id = s.id").when_matched("t.id % 2 = 0").delete()
                    chain.when_matched().update_all().when_not_matched().insert_all().merge()
                case "overwrite":
                    table.overwrite_partitions(rows(*some))
                case "compact":
                    table.compact(full=True)
                case "sort":
                    table.compact(sort_by=["id"])
                case "stream":
                    kinds = [(*row, chance.choice(["+U", "-D"])) for row in some]
                    given = [dict(zip(schema.names, row, strict=True)) for row in kinds]
                    writer.write(pa.Table.from_pylist(given, schema))
                    writer.checkpoint(step)
                case "mode":
                    mode = chance.choice(["copy-on-write", "merge-on-read"])
                    table.alter().set_properties(
                        {f"write.{v}.mode": mode for v in ("delete", "update", "merge")}
                    ).commit()
    ids = [0, *(snapshot.id for snapshot in table.snapshots())]
    for start, stop in [*pairwise(ids), (0, ids[-1]), (ids[1], ids[-1])]:
        found = told(table.changes(start, stop)) if stop else []
        assert applied(multiset(table, start), found, keyed=False) == multiset(table, stop), (seed, start, stop)


MARKED = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "kind",
    [
        {"format": "iceberg"},
        {"format": "iceberg", "properties": {**MARKED, "format-version": "2"}},
        {"format": "iceberg", "properties": {**MARKED, "format-version": "3"}},
        {"format": "paimon"},
        {"format": "paimon", "properties": {"deletion-vectors.enabled": "true"}},
        {"format": "paimon", "primary_key": ["id", "dt"], "properties": {"bucket": "1", "changelog-producer": "input"}},
        {
            "format": "paimon",
            "primary_key": ["id", "dt"],
            "properties": {"bucket": "1", "changelog-producer": "lookup"},
        },
    ],
    ids=str,
)
def test_no_changes_are_left_out_where_a_file_is_missing_or_cut(lake, tmp_path, kind):
    table = lake.create_table("d.t", SCHEMA, partition_by=["dt"], **kind)
    table.append(rows((1, "a", "x"), (2, "b", "x"), (3, "c", "y")))
    table.append(rows((5, "a", "x"), (6, "b", "x"), (7, "c", "y")))
    table.delete("id = 1")
    table.update({"v": "'B'"}, where="id in (2, 7)")
    if kind.get("properties", {}).get("format-version") == "2":
        with table.delta_writer("cdc", key=["id", "dt"], upsert=True) as writer:
            writer.write(rows((2, "AA", "x"), (4, "d", "y")).append_column("rowkind", pa.array(["+U", "-D"])))
            writer.checkpoint(1)
    table.overwrite_partitions(rows((9, "z", "y")))
    first, *_, last = (snapshot.id for snapshot in table.snapshots())
    top = tmp_path / "warehouse/d.db/t"

    def changed():
        return sorted(told(Lake(str(tmp_path / "warehouse")).table("d.t").changes(first, last)))

    whole = changed()
    assert len(whole) >= 9
    for path in some(sorted(path for path in top.rglob("*") if path.is_file()), 4, str(kind)):
        data = path.read_bytes()
        # An Avro file that ends after a block, or its header, is a whole one without its last rows.
        sync = data[-16:] if path.suffix == ".avro" or "manifest" in path.name else None
        ends = [match.end() for match in re.finditer(re.escape(sync), data)][:-1] if sync else []
        for size in {None, len(data) // 2, *ends}:
            path.unlink() if size is None else path.write_bytes(data[:size])
            with suppress(CorruptTable, NoSuchFile, NotFound):
                assert changed() == whole, (path, size)
        path.write_bytes(data)
    assert changed() == whole


@pytest.mark.spark
def test_changes_on_spark(lake, spark):
    table = make(lake, keyed=True)
    assert table.changes(0).to_spark(spark).count() == 0
    table.upsert(rows((1, "a", "x"), (2, "b", "y")))
    table.delete("id = 2")
    table.overwrite_partitions(rows((3, "c", "x")))
    found = sorted((r._row_kind, r.id, r.v, r.dt) for r in table.changes(0).to_spark(spark).collect())
    assert found == sorted(told(table.changes(0)))
    marked = iceberg(lake, "merge-on-read")
    marked.append(rows((1, "a", "x"), (2, "b", "y")))
    marked.update({"v": "'B'"}, where="id = 2")
    found = sorted((r._row_kind, r.id, r.v, r.dt) for r in marked.changes(0).to_spark(spark).collect())
    assert found == sorted(told(marked.changes(0))) == [
        ("+I", 1, "a", "x"), ("+I", 2, "B", "y"), ("+I", 2, "b", "y"), ("-D", 2, "b", "y")]  # fmt: skip
