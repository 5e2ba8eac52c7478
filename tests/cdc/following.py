"""A world for change data capture: a table in memory whose storage fails, and what a changelog must lead to."""

import os
import random
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pytest

from lakeformat import Conflict, LakeError, SourceError, Table, UnsupportedFeature
from lakeformat.cdc import readers, run, sync_database, sync_table
from lakeformat.cdc.source import Disconnected
from lakeformat.model.schema import Schema
from lakeformat.storage.cache import Cache
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import create
from lakeformat.warehouse.roots import FORMATS
from tests.simulation.failing import NthCallFails

IS_LONG = int(os.environ.get("LAKEFORMAT_SEEDS", "100")) > 1000  # `make test-long`.
WORKLOADS = range(200)  # As many of them as `LAKEFORMAT_SEEDS` asks for.
ROUNDS = int(os.environ.get("LAKEFORMAT_CDC_ROUNDS", "20" if IS_LONG else "5"))  # Of syncs that fail, for each seed.


class OneTable:
    """A lake of one table, over any store."""

    def __init__(self, store, format):
        self.store, self.format = store, format

    def create_table(self, name, fields, *, primary_key, properties, if_exists, **others):
        table = Table(name, self.store, FORMATS[self.format](Cache()))
        if not self.store.list(""):
            create(table, Schema(tuple(fields), primary_key=tuple(primary_key), properties=properties or {}))
        return table


class NthFetchFails:
    """A source whose call or fetch number `n` (from 1), or whose n-th of a `kind`, raises, before its effect or `after` it; with `drop`, that is called
    before it in place of raising, e.g. so that connections drop. All others do as they should. `made`: how many there were."""

    def __init__(self, source, n, after=False, drop=None, kind=None):
        self._source, self._n, self._after, self._drop, self._kind = source, n, after, drop, kind
        self._lock, self.made, self.failed = threading.Lock(), 0, None

    @property
    def name(self):
        return self._source.name

    def __getattr__(self, name):
        call = getattr(self._source, name)
        if name == "view":
            return lambda *tables: self._viewed(call(*tables))
        return (
            call if name in {"parse", "retention", "misfits"} else self._counted(name, call)
        )  # Positions are parsed without the server.

    def _counted(self, name, call):
        def counted(*arguments):
            with self._lock:  # Chunks are fetched by a thread of their own.
                counts = self._kind in (None, name)
                self.made += counts
                fails = counts and self.made == self._n
            if fails:
                self.failed = name
            if fails and self._drop is not None:
                self._drop()
                fails = False
            if fails and not self._after:
                raise SourceError(f"{name} fails")
            answer = call(*arguments)
            if fails:
                raise SourceError(f"{name}: the answer is lost")
            return self._fetched(name, answer) if name == "changes" else answer

        return counted

    def _fetched(self, name, items):
        fetch = self._counted(f"{name}: fetch", lambda: next(items, None))
        while (item := fetch()) is not None:
            yield item

    @contextmanager
    def _viewed(self, view):
        with ExitStack() as stack:
            opened = self._counted("view", lambda: stack.enter_context(view))()
            yield _View(opened, self._fetched)


class _View:
    def __init__(self, view, fetched):
        self._view, self._fetched, self.text, self.until = view, fetched, view.text, view.until

    def narrowed_to(self, table):
        return _View(self._view.narrowed_to(table), self._fetched)

    def chunks(self, after, size):
        return self._fetched("chunks", self._view.chunks(after, size))


def changelog_properties(format):
    """Properties of a table that keeps each change."""
    return {"changelog-producer": "input", "bucket": "1"} if format == "paimon" else {}


def replay(changes, key, rows=()):
    """The rows that a changelog leads to from `rows`, by key; fails where a change is there twice, or one is left out."""
    rows = {tuple(row[name] for name in key): row for row in rows}
    for change in changes:
        kind = change.pop("_row_kind")
        at = tuple(change[name] for name in key)
        if kind in {"+I", "+U"}:
            assert at not in rows, f"{kind} of {at}, which is there: {change}"
            rows[at] = change
        else:
            assert rows.pop(at, None) == change, f"{kind} of {at}, which is not there: {change}"
    return rows


def a_server_crashes_within_a_sync(source, name, execute, rows_there, crash, format):
    """The server is killed and started again before a chunk of a snapshot is fetched, and before a later batch of changes; `t (id, v)` has no rows."""
    store = MemoryFiles()
    execute("INSERT INTO t VALUES " + ", ".join(f"({id}, 0)" for id in range(1, 10)))
    for kind in ("chunks: fetch", "changes: fetch"):
        crashing = NthFetchFails(source, 2, drop=crash, kind=kind)
        for of in (crashing, source):
            properties = changelog_properties(format)
            sync_table(of, name, OneTable(store, format), "d.t", format, batch_rows=3, properties=properties)
            source.close()
            execute("UPDATE t SET v = v + 1 WHERE id IN (1, 5, 9)")
        assert crashing.failed == kind
        for number in range(3):
            execute(f"UPDATE t SET v = {number} WHERE id < 4")
    sync_table(source, name, OneTable(store, format), "d.t", format)
    table = OneTable(store, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["v"]) for row in rows] == rows_there()
    if format == "paimon":
        changes = replay(table.changes(0).to_arrow().to_pylist(), ["id"])
        assert [changes[key] for key in sorted(changes)] == rows


def a_sync_goes_on_after_its_connections_drop(sources, lake, interrupt, insert, tries=3):
    """A sync that goes on until it is stopped connects again; `sources`: (source, names of its tables), `insert(number)`: a row into each."""
    source, names = sources
    stopped, included = threading.Event(), "|".join(map(re.escape, names))
    how = {"until": "stopped", "stop": stopped.is_set, "poll_seconds": 0.05}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sync_database, source, lake, "d", including=included, **how)
        try:
            for number in range(tries):
                insert(number)
                for name in names:
                    deadline = time.monotonic() + 60
                    while True:
                        assert time.monotonic() < deadline, f"{name}: change {number} does not come"
                        assert not running.done(), running.result()
                        target = f"d.{name.rpartition('.')[2]}"
                        if lake.exists(target) and lake.table(target).scan().count() > number:
                            break
                        time.sleep(0.05)
                interrupt()
        finally:
            stopped.set()
        reports = running.result()
    assert {name: report.error for name, report in reports.items()} == dict.fromkeys(names)
    source.close()


def a_sync_up_to_now_goes_on_after_its_connections_drop(source, name, lake, drop, execute, monkeypatch, caplog):
    """Whichever call of the source the drop comes before; `t (id, v)` has no rows. Each try is in the log, and no change comes twice."""
    monkeypatch.setattr(run, "FIRST_DELAY", 0.01)
    properties = changelog_properties("paimon")
    for number, kind in enumerate(("describe", "begin", "view", "chunks: fetch", "position", "changes: fetch")):
        execute("INSERT INTO t VALUES " + ", ".join(f"({10 * number + row}, 0)" for row in range(9)))
        execute("UPDATE t SET v = v + 1 WHERE id % 10 = 1")
        dropping = NthFetchFails(source, 2 if kind == "chunks: fetch" else 1, drop=drop, kind=kind)
        restart = kind in {"begin", "view", "chunks: fetch"} and kind
        report = sync_table(dropping, name, lake, "d.t", batch_rows=3, properties=properties, restart=restart)
        assert (dropping.failed, report.is_complete) == (kind, True)
        table = lake.table("d.t")
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert [row["id"] for row in rows] == [10 * ten + row for ten in range(number + 1) for row in range(9)]
        changes = replay(table.changes(0).to_arrow().to_pylist(), ["id"])
        assert [changes[key] for key in sorted(changes)] == rows
    assert "connecting again in" in caplog.text
    with pytest.raises(Disconnected):
        sync_table(NthFetchFails(source, 1, drop=drop, kind="position"), name, lake, "d.t", reconnect_seconds=0)


def a_sync_of_all_takes_up_tables(source, lake, execute, tables, including, has_names):
    """A sync that goes on follows tables that are made later, and one that is renamed for a moment if the log has no names of tables (`has_names`), else
    without it; `tables`: the full names of `t` and `late`."""
    first, late = tables
    execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    stopped = threading.Event()
    how = {"until": "stopped", "stop": stopped.is_set, "poll_seconds": 0.05, "including": including}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sync_database, source, lake, "d", **how)

        def follows(name, ids):
            deadline = time.monotonic() + 60
            while (
                not lake.exists(f"d.{name}")
                or sorted(lake.table(f"d.{name}").scan().to_arrow()["id"].to_pylist()) != ids
            ):
                assert time.monotonic() < deadline, f"{name}: {ids} do not come"
                assert not running.done(), running.result()
                time.sleep(0.05)

        try:
            follows("t", [1])
            execute("CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)")
            follows("late", [1])
            execute("INSERT INTO t VALUES (2)", "INSERT INTO late VALUES (2)")
            follows("t", [1, 2])
            follows("late", [1, 2])
            execute("ALTER TABLE t RENAME TO hidden", "INSERT INTO late VALUES (3)")
            follows("late", [1, 2, 3])
            execute("INSERT INTO hidden VALUES (3)", "ALTER TABLE hidden RENAME TO t", "INSERT INTO t VALUES (4)")
            follows("t", [1, 2] if has_names else [1, 2, 3, 4])
            execute("INSERT INTO late VALUES (4)")
            follows("late", [1, 2, 3, 4])
        finally:
            stopped.set()
        reports = running.result()
    assert reports[late].error is None
    assert has_names or reports[first].error is None


class RaisesFor:
    """A source that raises `error`, of a library, where a view of one table is opened."""

    def __init__(self, source, table, error):
        self._source, self._table, self._error = source, table, error

    @property
    def name(self):
        return self._source.name

    def __getattr__(self, name):
        return getattr(self._source, name)

    def view(self, table, *others):
        if table.name == self._table:
            raise self._error
        return self._source.view(table, *others)


def a_library_stops_one_table(source, names, lake):
    """An exception of a library stops the table that it is of, in its first sync, and not those beside it."""
    stopped, good = names
    for error in (OverflowError("too large"), UnicodeDecodeError("ascii", b"x", 0, 1, "odd"), pa.ArrowInvalid("odd")):
        reports = sync_database(
            RaisesFor(source, stopped, error), lake, "d", including="|".join(map(re.escape, names)), batch_rows=10
        )
        assert type(error).__name__ in str(reports[stopped].error)
        assert stopped in str(reports[stopped].error)
        assert (reports[good].error, reports[good].is_complete) == (None, True)
        beside = {good: f"d.{good.rpartition('.')[2]}"}
        with pytest.raises(UnsupportedFeature, match=type(error).__name__):
            sync_table(RaisesFor(source, stopped, error), stopped, lake, "d.alone", slot_shared_with=beside)
    assert all(
        report.is_complete
        for report in sync_database(source, lake, "d", including="|".join(map(re.escape, names))).values()
    )


def wide_rows_are_read_in_chunks_by_bytes(source, name, lake, format, count, width, monkeypatch):
    """`t (id, v)` has `count` rows, of `width` characters where `id` is even and of few where it is odd; an interrupted snapshot goes on. Chunks are an
    eighth of what they are."""
    chunk_bytes = readers.CHUNK_BYTES // 8
    for module in (readers, sys.modules[type(source).__module__]):
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    table = source.describe(name)
    with source.view(table) as view:
        chunks = [(chunk.rows.nbytes, chunk.rows.num_rows, chunk.upto) for chunk in view.chunks(None, 100_000)]
    assert sum(rows for _, rows, _ in chunks) == count
    assert max(size for size, _, _ in chunks) < readers.CHUNK_BYTES + 4 * width
    assert len(chunks) >= count * width // 2 // readers.CHUNK_BYTES
    assert [upto is None for _, _, upto in chunks] == [False] * (len(chunks) - 1) + [True]
    report = sync_table(source, name, lake, "d.t", format, max_rows=1)
    assert not report.is_complete
    report = sync_table(source, name, lake, "d.t", format)
    assert report.is_complete
    ids = lake.table("d.t").scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(count))


class Dies(NthCallFails):
    """A store of a process that is killed at call number `n`: what it would still call has no effect."""

    def __getattr__(self, name):
        call = super().__getattr__(name)

        def alive(*arguments):
            if self.failed is not None:
                raise Killed
            try:
                return call(*arguments)
            except LakeError:
                if self.failed is not None:
                    raise Killed from None
                raise

        return alive


class Killed(SystemExit):
    """The process ends here."""


class Workload:
    """Random transactions, and statements that change the table, on a table of a server: `execute(statement)`; the seed says which.

    `types`: columns beside `id` and `version`, each with its type and literals of it; `more`: further statements, with the names `id`, `version` and
    `values` in braces; `widen`: the statement that gives `column` another `type`."""

    def __init__(self, execute, table, seed, types, more, widen, alters=True):
        self.execute, self.table, self.draw, self.types = execute, table, random.Random(seed), types
        self._more, self._widen, self.version, self._added, self._alters = more, widen, 0, {}, alters
        columns = "".join(f", {name} {type}" for name, (type, _) in types.items())
        execute(f"CREATE TABLE {table} (id int PRIMARY KEY, version int{columns})")

    def step(self):
        """One transaction of up to six statements, one of five rolled back; one step of twelve alters the table."""
        if self._alters and self.draw.random() < 1 / 12:
            self.execute(self._alter())
            return
        statements = [self._statement() for _ in range(self.draw.randint(1, 6))]
        is_undone = self.draw.random() < 0.2
        for statement in ("BEGIN", *statements, "ROLLBACK" if is_undone else "COMMIT"):
            self.execute(statement)

    def _alter(self):
        table, number, old = self.table, self.version, self.draw.choice([None, *self._added])
        self.version += 1
        match self.draw.randint(0, 5) if old else 0:
            case 1:
                del self._added[old]
                return f"ALTER TABLE {table} DROP COLUMN {old}"
            case 2:
                self._added[f"r{number}"] = self._added.pop(old)
                return f"ALTER TABLE {table} RENAME COLUMN {old} TO r{number}"
            case 3:
                wider, value = {"int": ("bigint", 2**40), "varchar(3)": ("varchar(99)", "'longer'")}.get(
                    self._added[old][0], self._added[old]
                )
                self._added[old] = wider, value
                return self._widen.format(table=table, column=old, type=wider)
            case 4:
                return f"TRUNCATE TABLE {table}"
            case _:
                type, value = self.draw.choice([("int", 7), ("varchar(3)", "'abc'")])
                self._added[f"x{number}"] = type, value
                more = self.draw.choice(["", f" DEFAULT {value}", f" NOT NULL DEFAULT {value}"])
                return f"ALTER TABLE {table} ADD COLUMN x{number} {type}{more}"

    def _statement(self):
        self.version += 1
        table, version, draw = self.table, self.version, self.draw
        id, other = draw.randint(1, 60), draw.randint(1, 60)
        values = ", ".join(str(draw.choice(["NULL", *literals])) for _, literals in self.types.values())
        added = draw.choice(["", *(f", {name} = {value}" for name, (_, value) in self._added.items())])
        many = ", ".join(f"({1000 + number}, {version})" for number in draw.sample(range(400), draw.choice([20, 300])))
        none = f"NOT EXISTS (SELECT 1 FROM (SELECT id FROM {table}) x WHERE x.id = {other})"
        named = f"(id, version{''.join(f', {name}' for name in self.types)})"
        one = {"table": f"{table} {named}", "id": id, "version": version, "values": values}
        match draw.randint(0, 11):
            case 0 | 1:
                return f"DELETE FROM {table} WHERE id = {id}"
            case 2 | 3:
                return f"UPDATE {table} SET id = {other}, version = {version} WHERE id = {id} AND {none}"
            case 4 | 5:
                return f"UPDATE {table} SET version = {version}{added} WHERE id BETWEEN {id} AND {id + 5}"
            case 6 if draw.random() < 0.4:
                return f"DELETE FROM {table} WHERE id >= 1000"
            case 7 if draw.random() < 0.4:
                return self._more[0].format(table=f"{table} (id, version)", rows=many, version=version)
            case 8 if draw.random() < 0.2:
                return f"UPDATE {table} SET version = {version}{added}"
            case _:
                return draw.choice(self._more[1:]).format(**one)


def postgres_workload(execute, table, seed, columns=None):
    """Of all types, and altered; or with these columns alone, and not."""
    types = {
        "name": ("text", ["''", "'a'", "'ä\"\n,'"]),
        "note": ("text", ["''", "repeat('n', 3000)"]),
        "a": ("numeric(12, 2)", ["-1.05", "9999999999.99"]),
        "b": ("timestamp(3)", ["'1969-12-31 23:59:59.999'", "'2024-02-29 12:00:00'"]),
        "c": ("timestamptz", ["'2024-02-29 12:00:00.123456+05:30'"]),
        "d": ("date", ["'0001-12-31'", "'2024-02-29'"]),
        "e": ("double precision", ["0.1", "-1e300"]),
        "f": ("boolean", ["true", "false"]),
        "g": ("bytea", ["''", "'\\x00ff10'"]),
        "h": ("jsonb", ["'{\"a\": [1]}'"]),
        "i": ("uuid", ["'750e8400-e29b-41d4-a716-446655440000'"]),
        "j": ("int[]", ["'{1,NULL}'"]),
        "k": ("time(3)", ["'23:59:59.123'"]),
        "l": ("char(3)", ["'ab'"]),
        "m": ("smallint", ["-7"]),
        "n": ("real", ["1.5"]),
    }
    insert = "INSERT INTO {table} VALUES ({id}, {version}, {values}) ON CONFLICT (id) DO "
    more = [
        "INSERT INTO {table} VALUES {rows} ON CONFLICT (id) DO UPDATE SET version = {version}",
        insert + "UPDATE SET version = EXCLUDED.version, name = EXCLUDED.name",
        insert + "NOTHING",
    ]
    types = {name: types[name] for name in columns or types}
    widen = "ALTER TABLE {table} ALTER {column} TYPE {type}"
    made = Workload(execute, table, seed, types, more, widen, alters=columns is None)
    execute(
        f"ALTER TABLE {table} ALTER note SET STORAGE EXTERNAL"
    )  # The log leaves a long value out that did not change.
    if (seed + seed // 2) % 2 == 0:
        execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    return made


def mysql_workload(execute, table, seed, columns=None):
    """As `postgres_workload`, for MySQL and MariaDB."""
    types = {
        "name": ("varchar(9)", ["''", "'ä'"]),
        "note": ("set('a', 'b')", ["''", "'a,b'"]),
        "a": ("decimal(30, 9)", ["-1.000000001", "99999999999999"]),
        "b": ("datetime(6)", ["'2024-02-29 12:00:00.123456'", "'0000-00-00'"]),
        "c": ("timestamp(3) NULL", ["'2024-02-29 12:00:00.123'"]),
        "d": ("date", ["'1000-01-01'"]),
        "e": ("double", ["0.1", "-1e300"]),
        "f": ("tinyint(1)", ["1", "0"]),
        "g": ("varbinary(9)", ["''", "x'00ff10'"]),
        "h": ("json", ["'{\"a\": [1]}'"]),
        "i": ("enum('x', 'y')", ["'y'"]),
        "j": ("bit(9)", ["b'100000001'"]),
        "k": ("time(3)", ["'23:59:59.123'"]),
        "l": ("bigint unsigned", ["18446744073709551615"]),
        "m": ("mediumint", ["-8388608"]),
        "n": ("float", ["1.5"]),
        "o": ("longtext", ["repeat('n', 3000)"]),
        "p": ("year", ["1901"]),
    }
    upsert = "ON DUPLICATE KEY UPDATE version = {version}"
    insert = "INSERT INTO {table} VALUES ({id}, {version}, {values})"
    more = [
        f"INSERT INTO {{table}} VALUES {{rows}} {upsert}",
        f"{insert} {upsert}",
        insert.replace("INSERT", "REPLACE"),
    ]
    types = {name: types[name] for name in columns or types}
    widen = "ALTER TABLE {table} MODIFY {column} {type}"
    return Workload(execute, table, seed, types, more, widen, alters=columns is None)


def every_change_comes_once(source, name, work, rows_there, drop, format, seed, *, changelog, rounds):
    """A random workload between syncs, with an odd seed beside them, of which one call of the storage or of the source fails, at which the process dies,
    or whose connections drop: at the end the table is the source's, and so is what its changelog leads to."""
    draw, store, failures = random.Random(seed), MemoryFiles(), 0
    properties = changelog_properties(format)
    for _ in range(20):
        work.step()

    def sync(over, of=source):
        return sync_table(of, name, OneTable(over, format), "d.t", format, properties=properties, batch_rows=15)

    def steps(count):
        for _ in range(count):
            work.step()

    with ThreadPoolExecutor(1) as beside:
        for _ in range(rounds):
            n, after = draw.randint(1, 12), draw.random() < 0.5
            over, of = store, source
            match draw.randint(0, 3):
                case 0:
                    over = NthCallFails(store, n, after)
                case 1:
                    over = Dies(store, n, after)
                case 2:
                    of = NthFetchFails(source, n, after)
                case 3:
                    drop()
            count = draw.randint(0, 3)
            writes = beside.submit(steps if seed % 2 else lambda _: None, count)
            try:
                sync(over, of)
            except (LakeError, Killed):
                failures += 1
                source.close()
            writes.result()
            if not seed % 2:
                steps(count)
    for _ in range(3):  # A table that is altered between, beside the last of its syncs, is read again.
        source.close()
        sync(store)
    sync_table(source, name, fresh := OneTable(MemoryFiles(), format), "d.t", format)
    found, read = (
        OneTable(each, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
        for each in (store, fresh.store)
    )
    names = read.scan().to_arrow().schema.names
    rows, expected = (scanned.scan(columns=names).to_arrow().sort_by("id").to_pylist() for scanned in (found, read))
    assert [(row["id"], row["version"]) for row in rows] == rows_there(), f"seed {seed}"
    assert rows == expected, f"seed {seed}"
    assert failures, f"seed {seed}: nothing failed"
    if changelog and format == "paimon":
        replayed = replay(found.changes(0, columns=names).to_arrow().to_pylist(), ["id"])
        assert [replayed[key] for key in sorted(replayed)] == expected, f"seed {seed}"


def two_syncs_at_once(sources, name, work, rows_there, seed):
    """Two processes that sync one table: of both at each moment one commits, the other is refused, and at the end each change came once."""
    store, refused = MemoryFiles(), []
    for _ in range(20):
        work.step()

    def sync(source):
        lake = OneTable(store, "paimon")
        properties = {"changelog-producer": "input", "bucket": "1"}
        return sync_table(source, name, lake, "d.t", "paimon", properties=properties, batch_rows=15)

    def racer(source):
        for _ in range(3):
            try:
                sync(source)
            except (Conflict, SourceError) as error:
                refused.append(str(error))
                source.close()

    sync(sources[0])
    with ThreadPoolExecutor(2) as pool:
        racers = [pool.submit(racer, source) for source in sources]
        for _ in range(10):
            work.step()
        for future in racers:
            future.result()
    for opened in sources:
        opened.close()
    sync(sources[0])
    table = OneTable(store, "paimon").create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["version"]) for row in found] == rows_there(), f"seed {seed}: {refused}"
    changes = table.changes(0, columns=["id", "version"]).to_arrow().to_pylist()
    assert sorted(row["id"] for row in replay(changes, ["id"]).values()) == [row["id"] for row in found], f"seed {seed}"


def the_rows_of_a_filter_are_followed(source, name, work, rows_there, format, seed):
    """A random workload between syncs with a row filter, of which every third fails or dies, and which takes another filter halfway; `rows_there(where)`:
    the ids and versions of the source's rows that satisfy it. After each sync the table has those, and its changelog leads to them."""
    draw, store, failures = random.Random(seed), MemoryFiles(), 0
    properties = changelog_properties(format)
    filters = ["version % 3 <> 0", "id < 1200 AND (version % 2 = 0 OR id > 30)"]
    for number in range(9):
        for _ in range(draw.randint(2, 6)):
            work.step()
        where, over, of, n = filters[number > 4], store, source, draw.randint(1, 12)
        if number % 3 == 1:
            over, of = draw.choice(
                [
                    (NthCallFails(store, n, False), source),
                    (Dies(store, n, False), source),
                    (store, NthFetchFails(source, n)),
                ]
            )
        try:
            sync_table(
                of, name, OneTable(over, format), "d.t", format, properties=properties, batch_rows=100, where=where
            )
        except (LakeError, Killed):
            assert number % 3 == 1, f"seed {seed}, sync {number}"
            failures += 1
            source.close()
            continue
        table = OneTable(store, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
        rows = table.scan(columns=["id", "version"]).to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["version"]) for row in rows] == rows_there(where), f"seed {seed}, sync {number}"
    assert failures, f"seed {seed}: nothing failed"
    sync_table(source, name, fresh := OneTable(MemoryFiles(), format), "d.t", format, where=where)
    read = fresh.create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
    names = read.scan().to_arrow().schema.names
    found, expected = (scanned.scan(columns=names).to_arrow().sort_by("id").to_pylist() for scanned in (table, read))
    assert found == expected, f"seed {seed}"
    if format == "paimon":
        replayed = replay(table.changes(0, columns=names).to_arrow().to_pylist(), ["id"])
        assert [replayed[key] for key in sorted(replayed)] == expected, f"seed {seed}"
