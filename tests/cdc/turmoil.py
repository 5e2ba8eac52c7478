"""A database in turmoil: sessions that write tables of all key types beside others that are not followed, schema changes, rollbacks, servers that
restart, connections that are cut, and processes that are killed. A sync that follows it must lead to what the source has, row by row.

`python -m tests.cdc postgres iceberg MINUTES [SEED]` runs seed after seed; `mariadb` and `mysql` are the other servers.
"""

import datetime
import logging
import multiprocessing
import os
import random
import re
import socket
import threading
import time
import uuid
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
import pymysql

from lakeformat import Lake
from lakeformat.cdc import MySql, Postgres, sync_database
from lakeformat.cdc.source import Disconnected
from tests.cdc import servers
from tests.cdc.following import changelog_properties, replay

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.cdc.turmoil"])


def _text(characters):
    """A text of two of these characters for each number, as a literal."""
    return lambda n: f"'{characters[n % len(characters)]}{characters[n // len(characters) % len(characters)]}'"


_MYSQL_KEYS = {
    "int": str,
    "tinyint(1)": lambda n: str(n % 100),
    "bigint unsigned": lambda n: str(n * 10**17),
    "decimal(12, 3)": lambda n: f"{n - 20}.{n:03}",
    "bit(9)": lambda n: f"b'{n:b}'",
    "year": lambda n: str(1990 + n),
    "date": lambda n: f"'2024-01-{n % 28 + 1:02}'",
    "datetime(3)": lambda n: f"'1969-12-31 23:59:{n % 60:02}.{n:03}'",
    "timestamp(3)": lambda n: f"'2024-02-29 23:59:{n % 60:02}.{n:03}'",
    "binary(3)": lambda n: f"x'{n % 7:02x}00{n:02x}'",
    "varbinary(3)": lambda n: f"x'{n:02x}'",
    "enum('z', 'b', 'B2', 'a', 'd')": lambda n: str(n % 5 + 1),
    "varchar(9) CHARACTER SET ascii COLLATE ascii_bin": _text("aAzZ_~09"),
    "varchar(9) CHARACTER SET latin1 COLLATE latin1_bin": _text("aAäÄzß€~"),
    "varchar(9) CHARACTER SET latin1": _text("aAäÄzß€~"),
    "varchar(9) CHARACTER SET gbk": _text("aAz啊把一中国"),
    "varchar(9) CHARACTER SET gbk COLLATE gbk_bin": _text("aAz啊把一中国"),
    "varchar(9) CHARACTER SET sjis": _text("aAzあ亜表ソ"),
    "varchar(9) CHARACTER SET big5": _text("aAz一中國功"),
    "varchar(9) CHARACTER SET koi8r": _text("aAzЖжЯя"),
    "varchar(9) CHARACTER SET utf8mb4": _text("aAäÄ€😀あ中"),
    "char(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": _text("aAäÄ€😀あ中"),
}
_POSTGRES_KEYS = {
    "int": str,
    "bigint": lambda n: str(n * 10**17 - 9),
    "smallint": lambda n: str(n - 20),
    "numeric(12, 3)": lambda n: f"{n - 20}.{n:03}",
    "date": lambda n: f"'2024-01-{n % 28 + 1:02}'",
    "timestamp(3)": lambda n: f"'1969-12-31 23:59:{n % 60:02}.{n:03}'",
    "timestamptz(3)": lambda n: f"'2024-02-29 23:59:{n % 60:02}.{n:03}+05:30'",
    "uuid": lambda n: f"'{n % 10}50e8400-e29b-41d4-a716-4466554400{n:02}'",
    "bytea": lambda n: f"'\\x{n % 7:02x}00{n:02x}'",
    "text": _text("aAäÄ€😀あ中_"),
    'text COLLATE "C"': _text("aAäÄ€😀あ中_"),
    "varchar(9)": _text("aAäÄ€😀あ中_"),
}


@dataclass
class SourceTable:
    name: str  # With its database or schema.
    key: dict  # Column -> the function of its literals.
    is_followed: bool
    is_transactional: bool = True
    added: dict = field(default_factory=dict)  # Columns of schema changes, with a value.

    @property
    def target(self):
        return f"d.{self.name.partition('.')[2]}"

    def at(self, n, sep=" AND "):
        """The condition, or with `sep=", "` the assignments, of key number `n`."""
        return sep.join(f"{name} = {self.literals(n)[index]}" for index, name in enumerate(self.key))

    def literals(self, n):
        # The second column repeats, so that keys differ in either.
        return [make(n if index == 0 else n % 3) for index, make in enumerate(self.key.values())]


class OnMySql:
    """MariaDB or MySQL; `prefix` begins the names of the two databases."""

    errors, keys = pymysql.Error, _MYSQL_KEYS

    def __init__(self, server, prefix=""):
        self._server, self._prefix = server, prefix
        self.databases, self.socket = [f"{prefix}a", f"{prefix}b"], server.socket
        self.can_crash = True  # A table of MyISAM is not what the log says after a crash.

    def session(self):
        connection = self._server.connect()
        execute = _executed(connection)
        execute("SET time_zone = '+00:00', innodb_lock_wait_timeout = 1, lock_wait_timeout = 5")
        with suppress(pymysql.Error):  # Temporary tables need one.
            execute(f"USE {self.databases[0]}")
        return execute

    def source(self, path, readers):
        return partial(MySql, f"mysql://root@localhost?unix_socket={path}", name="turmoil", readers=readers)

    def create_databases(self, execute):
        for name in self.databases:
            execute(f"CREATE DATABASE {name}")

    def drop_databases(self, execute):
        for name in self.databases:
            execute(f"DROP DATABASE {name}")

    def create(self, execute, table, types, draw):
        columns = ", ".join(f"{name} {type} NOT NULL" for name, type in zip(table.key, types, strict=True))
        engine = "InnoDB" if table.is_transactional else "MyISAM"
        charset = draw.choice(["latin1", "gbk", "sjis", "utf8mb4"])
        execute(
            f"CREATE TABLE {table.name} ({columns}, v int, note text CHARACTER SET {charset}, n decimal(9, 2), "
            f"PRIMARY KEY ({', '.join(table.key)})) ENGINE={engine}"
        )

    def upsert(self, table, number, v, note):
        names, values = f"{', '.join(table.key)}, v, note", ", ".join(table.literals(number))
        return f"INSERT INTO {table.name} ({names}) VALUES ({values}, {v}, {note}) ON DUPLICATE KEY UPDATE v = {v}, note = {note}"

    def further(self, table, number, v, change, draw):
        """Runs of statements around `change` that this server has."""
        names, values = f"{', '.join(table.key)}, v", ", ".join(table.literals(number))
        savepoint = draw.choice(["s", "`S`", "`t u`", "`ro``ll`"])
        return [
            [f"REPLACE INTO {table.name} ({names}) VALUES ({values}, {v})"],
            ["CREATE TEMPORARY TABLE IF NOT EXISTS tt (id int)", "INSERT INTO tt VALUES (1)"],
            ["DROP TEMPORARY TABLE IF EXISTS tt"],
            [f"SAVEPOINT {savepoint}"],
            [f"ROLLBACK TO {savepoint}"],
            [f"SAVEPOINT {savepoint}", change, f"ROLLBACK TO {savepoint}"],
            [f"RELEASE SAVEPOINT {savepoint}"],
        ]

    def alterations(self, table, number, old, draw):
        name = table.name
        statements = [f"ALTER TABLE {name} MODIFY v bigint", f"ALTER TABLE {name} CONVERT TO CHARACTER SET utf8mb4"]
        if old is not None:
            statements += [
                f"ALTER TABLE {name} MODIFY {old} varchar({draw.choice([99, 150])}) CHARACTER SET {draw.choice(['latin1', 'utf8mb4'])}"
            ]
        return [*statements, "FLUSH BINARY LOGS"]

    def restart(self, is_crash):
        if is_crash and self.can_crash:
            self._server.crash(*servers.LOGS_ALL, *servers.DURABLE)
        else:
            self._server.stop()
            self._server.start(*servers.LOGS_ALL, *servers.DURABLE)


class OnPostgres:
    """PostgreSQL, with two schemas of one database. `restart(mode)` is None where others use the server too."""

    errors, keys, databases = psycopg.Error, _POSTGRES_KEYS, ["a", "b"]
    can_crash = True

    def __init__(self, dsn, folder, restart=None, slot="turmoil"):
        self._dsn, self._folder, self._restart, self._slot = dsn, folder, restart, slot
        self.socket = f"{folder}/.s.PGSQL.5432"

    def session(self):
        execute = _executed(psycopg.connect(self._dsn, autocommit=True))
        execute("SET lock_timeout = '1s'")
        execute("SET TimeZone = 'UTC'")
        return execute

    def source(self, path, readers):
        dsn = self._dsn if path == self.socket else self._dsn.replace(str(self._folder), str(Path(path).parent))
        return partial(Postgres, dsn, slot=self._slot, readers=readers)

    def create_databases(self, execute):
        for name in self.databases:
            execute(f"CREATE SCHEMA {name}")

    def drop_databases(self, execute):
        source = self.source(self.socket, 1)()
        source.drop()
        source.close()
        for name in self.databases:
            execute(f"DROP SCHEMA {name} CASCADE")
        execute(f"DROP PUBLICATION IF EXISTS {self._slot}")

    def create(self, execute, table, types, draw):
        columns = ", ".join(f"{name} {type}" for name, type in zip(table.key, types, strict=True))
        execute(
            f"CREATE TABLE {table.name} ({columns}, v int, note text, n numeric(9, 2), PRIMARY KEY ({', '.join(table.key)}))"
        )
        execute(f"ALTER TABLE {table.name} ALTER note SET STORAGE EXTERNAL")
        execute(f"ALTER TABLE {table.name} REPLICA IDENTITY {draw.choice(['FULL', 'DEFAULT'])}")

    def upsert(self, table, number, v, note):
        names, values = f"{', '.join(table.key)}, v, note", ", ".join(table.literals(number))
        return (
            f"INSERT INTO {table.name} ({names}) VALUES ({values}, {v}, {note}) ON CONFLICT ({', '.join(table.key)}) "
            f"DO UPDATE SET v = {v}, note = EXCLUDED.note"
        )

    def further(self, table, number, v, change, draw):
        return [
            ["CREATE TEMPORARY TABLE IF NOT EXISTS tt (id int)", "INSERT INTO tt VALUES (1)", "DROP TABLE tt"],
            ["SAVEPOINT s", change, "ROLLBACK TO s"],
            ["SAVEPOINT s", "SAVEPOINT t", change, "RELEASE SAVEPOINT t", "ROLLBACK TO s", "RELEASE SAVEPOINT s"],
            ["SAVEPOINT s", change, "RELEASE SAVEPOINT s"],
        ]

    def alterations(self, table, number, old, draw):
        name, alone = table.name, table.name.partition(".")[2]
        statements = [
            f"ALTER TABLE {name} ALTER v TYPE bigint",
            f"ALTER TABLE {name} RENAME TO {alone}x; ALTER TABLE {name}x RENAME TO {alone}",
            f"ALTER TABLE {name} ALTER n TYPE numeric(9, 2) USING n + 1",
            f"ALTER TABLE {name} REPLICA IDENTITY {draw.choice(['FULL', 'DEFAULT'])}",
        ]
        if old is not None:
            statements += [f"ALTER TABLE {name} ALTER {old} TYPE varchar(99)"]
        return statements

    def restart(self, is_crash):
        if self._restart is not None:
            self._restart("immediate" if is_crash else "fast")


def _executed(connection):
    """A function that executes a statement, and returns the names of the columns with the rows."""

    def execute(statement):
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return ([column[0] for column in cursor.description], cursor.fetchall()) if cursor.description else ([], [])

    execute.close = connection.close
    return execute


class Proxy:
    """A socket whose connections go on to that of a server, and are cut when told to, or after as many bytes as are drawn."""

    def __init__(self, path, target, draw):
        self.path, self._target, self._draw, self._ends = path, target, draw, set()
        self.cuts = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o777)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                continue
            self._ends |= {client, server}
            left = [self._draw.randint(1, 60_000) if self.cuts and self._draw.random() < 0.3 else 1 << 40]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(*ends, left), daemon=True).start()

    def _pass_on(self, ingoing, outgoing, left):
        with suppress(OSError):
            while left[0] > 0 and (received := ingoing.recv(1 << 16)):
                outgoing.sendall(received[: left[0]])
                left[0] -= len(received)
        for end in (ingoing, outgoing):
            self._shut(end)

    def _shut(self, end):
        self._ends.discard(end)
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def cut(self):
        for end in list(self._ends):
            self._shut(end)

    def close(self):
        self._listener.close()
        self.cut()


class Writer:
    """A session of random transactions, some rolled back, over followed tables and others; an error ends the transaction."""

    def __init__(self, side, tables, seed, alters):
        self._side, self._tables, self._draw, self._alters = side, tables, random.Random(seed), alters
        self._execute, self._version = None, seed % 1000 * 1_000_000
        self.errors = Counter()

    def run(self, count, pause=0.0):
        for _ in range(count):
            try:
                if self._execute is None:
                    self._execute = self._connected()
                self._step()
            except self._side.errors as error:
                self.errors[re.sub(r"[0-9]+", "0", str(error))[:60]] += 1
                try:
                    self._execute("ROLLBACK")
                except self._side.errors:
                    self._execute = None
            time.sleep(pause)
        if self._execute is not None:
            self._execute.close()
            self._execute = None

    def _connected(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._side.session()
            except self._side.errors:  # The server restarts.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _step(self):
        draw, execute = self._draw, self._execute
        if self._alters and draw.random() < 0.06:
            for statement in self._alteration().split("; "):
                execute(statement)
            return
        if draw.random() < 0.3:
            for statement in self._statements():
                execute(statement)  # Each a transaction of its own.
            return
        execute("BEGIN")
        for _ in range(draw.choice([1, 2, 3, 5, 20])):
            for statement in self._statements():
                execute(statement)
        execute("ROLLBACK" if draw.random() < 0.25 else "COMMIT")

    def _statements(self):
        draw, table = self._draw, self._draw.choice(self._tables)
        self._version += 1
        v, here, other = self._version, draw.randint(0, 40), draw.randint(0, 40)
        note = draw.choice(["NULL", "''", "'a'", f"'{v}'", f"repeat('{v % 10}', {3000 + v % 100})"])
        added = draw.choice(["", *(f", {name} = {value}" for name, value in table.added.copy().items())])
        delete = f"DELETE FROM {table.name} WHERE {table.at(other)}"
        move = f"UPDATE {table.name} SET {table.at(other, ', ')}, v = {v}{added} WHERE {table.at(here)}"
        match draw.randint(0, 13):
            case 0 | 1 | 2:
                return [self._side.upsert(table, here, v, note)]
            case 3:
                return [self._side.upsert(table, draw.randint(0, 40), v, note) for _ in range(10)]
            case 4:
                return [delete]
            case 5 | 6:
                return [delete, move]
            case 7:
                third = draw.randint(41, 60)  # Two rows exchange their keys.
                moves = [(here, third), (other, here), (third, other)]
                return [f"UPDATE {table.name} SET {table.at(to, ', ')} WHERE {table.at(come)}" for come, to in moves]
            case 8 | 9:
                return [f"UPDATE {table.name} SET v = {v}{added} WHERE v % 5 = {v % 5}"]
            case 10:
                return [f"UPDATE {table.name} SET note = {note}, n = {v % 1000}.5 WHERE {table.at(here)}"]
            case 11:
                return [f"DELETE FROM {table.name} WHERE v % 7 = {v % 7}"]
            case _:
                change = self._side.upsert(table, here, v, note)
                return draw.choice(self._side.further(table, here, v, change, draw))

    def _alteration(self):
        draw, table = self._draw, self._draw.choice(self._tables)
        self._version += 1
        number, old = self._version, draw.choice([None, *table.added])
        alter = f"ALTER TABLE {table.name}"
        match draw.randint(0, 6):
            case 0 | 1:
                value = draw.choice(["'abc'", "'ä'"])
                table.added[f"x{number}"] = value
                more = draw.choice(["", f" DEFAULT {value}", f" NOT NULL DEFAULT {value}"])
                return f"{alter} ADD COLUMN x{number} varchar(50){more}"
            case 2 if old:
                table.added.pop(old, None)
                return f"{alter} DROP COLUMN {old}"
            case 3 if old:
                table.added[f"r{number}"] = table.added.pop(old, "'r'")
                return f"{alter} RENAME COLUMN {old} TO r{number}"
            case 4:
                return f"TRUNCATE TABLE {table.name}"
            case 5 if isinstance(self._side, OnMySql):
                other = self._tables[
                    self._tables.index(table) ^ 1
                ]  # Of the same shape, and only one of both is followed.
                table.added, other.added = other.added, table.added
                third = f"{self._side.databases[0]}.x{number}"
                return f"RENAME TABLE {table.name} TO {third}, {other.name} TO {table.name}, {third} TO {other.name}"
            case _:
                return draw.choice(self._side.alterations(table, number, old, draw))


def _follow(opened, warehouse, format, including, batch_rows):
    """A process that follows the tables until it is killed."""
    logging.basicConfig(filename=f"{warehouse}.log", level=logging.WARNING)
    source = opened()
    how = {"until": "stopped", "stop": lambda: False, "poll_seconds": 0.02}
    while True:
        with suppress(Disconnected):  # A server that cannot be reached at first is an error at once.
            _synced(source, warehouse, format, including, batch_rows, **how)


def _synced(source, warehouse, format, including, batch_rows, **how):
    properties = changelog_properties(format)
    return sync_database(
        source, Lake(warehouse), "d", format, including=including, batch_rows=batch_rows, properties=properties, **how
    )


def tables_of(side, execute, draw, count):
    """As many tables that are followed, and one beside each that is not, of the same shape."""
    tables = []
    for number in range(count):
        types = draw.sample(list(side.keys), draw.choice([1, 1, 2]))
        # What is not transactional stays when it is rolled back.
        is_transactional = draw.random() < 0.8 or isinstance(side, OnPostgres)
        for is_followed in draw.sample([True, False], 2):
            name = f"{draw.choice(side.databases)}.{'f' if is_followed else 'u'}{number}"
            key = {f"k{index}": side.keys[type] for index, type in enumerate(types)}
            table = SourceTable(name, key, is_followed, is_transactional)
            side.create(execute, table, types, draw)
            execute("BEGIN")
            for number_of_key in range(41):  # Of several chunks of a snapshot.
                execute(side.upsert(table, number_of_key, number_of_key, "'first'"))
            execute("COMMIT")
            tables.append(table)
    return tables


class Turmoil:
    """One seed: tables, sessions that write them, and a process that follows them into `warehouse`."""

    def __init__(self, side, format, folder, seed, *, tables=4, writers=2, alters=True):
        self.side, self.format, self.seed, self.draw = side, format, seed, random.Random(seed)
        self.warehouse, self.events = f"{folder}/warehouse", Counter()
        self.execute = side.session()
        side.create_databases(self.execute)
        self.tables = tables_of(side, self.execute, self.draw, tables)
        side.can_crash = all(table.is_transactional for table in self.tables)
        self.including = rf"({'|'.join(side.databases)})\.f\d+"
        self.proxy = Proxy(f"{folder}/{Path(side.socket).name}", side.socket, self.draw)
        self.writers = [Writer(side, self.tables, 1000 * seed + n, alters and n == 0) for n in range(writers)]
        self._process = None

    def begin(self):
        batch_rows, readers = self.draw.choice([3, 10, 40, 1000]), self.draw.choice([1, 1, 2])
        opened = self.side.source(self.proxy.path, readers)
        arguments = opened, self.warehouse, self.format, self.including, batch_rows
        self._process = _PROCESSES.Process(target=_follow, args=arguments, daemon=True)
        self._process.start()

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def round(self, steps, events, seconds=1.0, pause=0.01):
        """Sessions write while these events come, and then the table is compared with the source."""
        threads = [threading.Thread(target=writer.run, args=(steps, pause)) for writer in self.writers]
        self.proxy.cuts = "cuts" in events
        self.begin()
        for thread in threads:
            thread.start()
        for event in events:
            time.sleep(self.draw.random() * seconds)
            self.events[event] += 1
            match event:
                case "kill":
                    self.kill()
                    self.begin()
                case "cut":
                    self.proxy.cut()
                case "restart" | "crash":
                    self.side.restart(event == "crash")
        for thread in threads:
            thread.join()
        time.sleep(self.draw.random() * seconds)
        self.kill()
        self.check()

    def check(self):
        """Each followed table is that of the source after a sync where nothing fails, and its changelog leads to it."""
        try:
            self.execute("SELECT 1")
        except self.side.errors:
            self.execute = self.side.session()
        for table in self.tables:
            with suppress(self.side.errors):  # A restart came between the two halves of a rename.
                self.execute(f"ALTER TABLE {table.name}x RENAME TO {table.name.partition('.')[2]}")
        anew = self.draw.choice([{}, {}, {}, {"restart": True, "swap": True}])
        self.events["swaps"] += bool(anew)
        for _ in range(3):  # A table that was altered is tried again.
            with closing(self.side.source(self.side.socket, 1)()) as source:
                reports = _synced(source, self.warehouse, self.format, self.including, 1000, **anew)
            if not (failed := {name: str(report.error) for name, report in reports.items() if report.error}):
                break
            self.events["stopped once"] += 1
        assert not failed, f"seed {self.seed}: {failed}"
        lake = Lake(self.warehouse)
        for table in self.tables:
            if not table.is_followed:
                assert not lake.exists(table.target), f"seed {self.seed}: {table.name} is not followed"
                continue
            names, rows = self.execute(f"SELECT * FROM {table.name}")
            expected = {tuple(map(_plain, row[: len(table.key)])): tuple(map(_plain, row)) for row in rows}
            scanned = lake.table(table.target).scan(columns=names).to_arrow()
            found = [tuple(_plain(row[name]) for name in names) for row in scanned.to_pylist()]
            here = {row[: len(table.key)]: row for row in found}
            assert len(found) == len(here), f"seed {self.seed}: {table.name} has keys twice"
            differences = [
                (expected.get(key), here.get(key)) for key in {*expected, *here} if expected.get(key) != here.get(key)
            ]
            assert not differences, (
                f"seed {self.seed}: {table.name} {names}, there and here: {differences[:5]} of {len(differences)}"
            )
            self.events["rows"] += len(expected)
            self.events["tables"] += 1
            # Tables of MyISAM have no consistent view: a snapshot may have read what the log says later.
            if self.format == "paimon" and isinstance(self.side, OnMySql) and table.is_transactional:
                changes = lake.table(table.target).changes(0, columns=names).to_arrow().to_pylist()
                replayed = replay(changes, list(table.key))
                assert len(replayed) == len(expected), f"seed {self.seed}: the changelog of {table.name}"
                for row in replayed.values():
                    values = tuple(_plain(row[name]) for name in names)
                    assert values == expected[values[: len(table.key)]], (
                        f"seed {self.seed}: the changelog of {table.name}"
                    )

    def close(self):
        self.kill()
        self.proxy.close()
        self.side.drop_databases(self.execute)
        self.execute.close()


def _plain(value):
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return str(value) if isinstance(value, uuid.UUID) else value
