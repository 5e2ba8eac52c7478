"""A table that is read again beside its old rows, which stay until the new ones replace them in one commit."""

import pytest

from lakeformat import InvalidInput, Lake, LakeError
from lakeformat.cdc import sync_database, sync_table
from lakeformat.storage.memory import MemoryFiles
from tests.cdc.following import Dies, Killed, NthFetchFails, OneTable, changelog_properties, replay
from tests.draw import ends_and_some
from tests.simulation.failing import holding

FORMATS = pytest.mark.parametrize("format", ["paimon", "iceberg"])
OLD = [(id, 0) for id in range(1, 8)]
NEW = [(id, 1) for id in range(3, 12)]


def filled(server, key="PRIMARY KEY"):
    """The source's table, with other rows than a table that lost its log has."""
    server.execute(f"CREATE TABLE t (id int {key}, v int)")
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    server.execute("INSERT INTO t SELECT id, 0 FROM generate_series(1, 7) id")


def rows_of(table):
    return sorted((row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist())


def table_in(store, format):
    return OneTable(store, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")


@FORMATS
def test_whatever_ends_a_swap_the_rows_are_the_old_or_the_new_ones(server, source, format):
    filled(server)
    store = MemoryFiles()

    def sync(over, of=source, **how):
        properties = changelog_properties(format)
        return sync_table(of, "t", OneTable(over, format), "d.t", format, properties=properties, batch_rows=3, **how)

    sync(store)
    source.drop()
    source.close()
    server.execute(
        "DELETE FROM t WHERE id < 3; INSERT INTO t SELECT id, 0 FROM generate_series(8, 11) id; UPDATE t SET v = 1"
    )
    base = {file.path: store.read(file.path) for file in store.list("")}
    counted = Dies(holding(base), 0, False)
    fetches = NthFetchFails(source, 0)
    report = sync(counted, fetches, restart=True, swap=True)
    assert (report.snapshot_rows, report.is_complete) == (len(NEW), True)
    calls = counted.made.total()
    faults = [("call", n) for n in ends_and_some(range(1, calls + 1), 3, format)]
    faults += [("fetch", n) for n in ends_and_some(range(1, fetches.made + 1), 1, format)]
    seen = set()
    for kind, n in faults:
        over = holding(base)
        try:
            if kind == "call":
                sync(Dies(over, n, n % 2 == 0), restart="once", swap=True)
            else:
                sync(over, NthFetchFails(source, n), restart="once", swap=True)
        except (LakeError, Killed):
            source.close()
        rows = rows_of(table_in(over, format))
        assert rows in (OLD, NEW), f"{kind} {n}"
        seen.add(tuple(rows))
        sync(over, restart="once", swap=True)
        assert rows_of(table_in(over, format)) == NEW, f"{kind} {n}"
        replayed = (
            replay(table_in(over, format).changes(0).to_arrow().to_pylist(), ["id"]) if format == "paimon" else NEW
        )
        assert len(replayed) == len(NEW)
    assert seen == {tuple(OLD), tuple(NEW)}


@FORMATS
def test_changes_beside_a_swap_come_once(server, source, format):
    filled(server)
    store = MemoryFiles()
    properties = changelog_properties(format)

    def sync(over, of=source, **how):
        return sync_table(of, "t", OneTable(over, format), "d.t", format, properties=properties, batch_rows=3, **how)

    sync(store)
    server.execute("UPDATE t SET v = 1 WHERE id = 1")

    def write():  # The view is open; its connection stays.
        server.execute("UPDATE t SET v = v + 10 WHERE id < 6; DELETE FROM t WHERE id = 7; INSERT INTO t VALUES (8, 5)")

    sync(store, NthFetchFails(source, 2, drop=write, kind="chunks: fetch"), restart=True, swap=True)
    sync(store)
    expected = server.execute("SELECT id, v FROM t ORDER BY id").fetchall()
    assert rows_of(table_in(store, format)) == expected
    if format == "paimon":
        replayed = replay(table_in(store, format).changes(0).to_arrow().to_pylist(), ["id"])
        assert sorted((row["id"], row["v"]) for row in replayed.values()) == expected


@FORMATS
def test_a_swap_of_a_table_without_unique_keys_keeps_the_last_row_of_each(server, source, tmp_path, format):
    filled(server, key="NOT NULL")
    lake = Lake(tmp_path)
    server.execute("INSERT INTO t VALUES (1, 9)")
    for how in ({}, {"restart": True, "swap": True}):
        sync_table(source, "t", lake, "d.t", format, primary_key=["id"], **how)
        assert [id for id, _ in rows_of(lake.table("d.t"))] == list(range(1, 8))


def test_all_tables_of_a_slot_that_was_dropped_are_swapped(server, source, tmp_path):
    filled(server)
    lake = Lake(tmp_path)
    server.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    sync_database(source, lake, "d")
    source.drop()
    source.close()
    server.execute("UPDATE t SET v = 2; ALTER TABLE t ADD w int DEFAULT 3")
    reports = sync_database(source, lake, "d", restart=True, swap=True)
    assert {name: report.error for name, report in reports.items()} == {"public.empty": None, "public.t": None}
    rows = lake.table("d.t").scan().to_arrow().to_pylist()
    assert {(row["v"], row["w"]) for row in rows} == {(2, 3)}
    assert len(rows) == 7
    counts = [lake.table("d.t").scan(snapshot_id=snapshot.id).count() for snapshot in lake.table("d.t").snapshots()]
    assert counts == sorted(counts), "the table was empty in between"
    with pytest.raises(InvalidInput, match="goes with restart=True"):
        sync_database(source, lake, "d", swap=True)
