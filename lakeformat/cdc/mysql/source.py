"""MySQL and MariaDB sources: snapshots by SELECT, changes from the binary log."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from lakeformat.cdc import failures
from lakeformat.cdc.misfits import Misfits
from lakeformat.cdc.mysql import address, row_events, statements, text_rows
from lakeformat.cdc.mysql import types as mysql_types
from lakeformat.cdc.mysql.charsets import Charsets
from lakeformat.cdc.mysql.event_rows import EventRows, TransactionEnds, mark_updates
from lakeformat.cdc.mysql.gtids import Gtid, Gtids
from lakeformat.cdc.mysql.keys import KeyColumn, compared, text_of
from lakeformat.cdc.mysql.log_reader import Event, EventType, LogReader, RowsEvent, mariadb_gtid, mysql_gtid
from lakeformat.cdc.mysql.row_events import LogColumn
from lakeformat.cdc.mysql.table_map import TableMap
from lakeformat.cdc.mysql.text_rows import TextColumn, TextRows
from lakeformat.cdc.mysql.types import MySqlType
from lakeformat.cdc.readers import CHUNK_BYTES, Piece, Readers, are_bounded, connected, required
from lakeformat.cdc.source import (
    Chunk,
    Disconnected,
    Emptied,
    Failed,
    Position,
    Rewritten,
    SourceTable,
    TableChanges,
    Transactions,
    chosen_key,
)
from lakeformat.cdc.spool import MEMORY_BYTES, Messages
from lakeformat.cdc.type_option import OnMisfit, TypeOption
from lakeformat.codec.plain_values import row_kinds
from lakeformat.errors import CorruptFile, InvalidInput, LakeError, NotFound, SourceError, UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field
from lakeformat.model.work import ROW_KIND

_WANTED = {  # Required server variables; a variable that the server lacks is not required.
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
}
_COMPRESSED = " COMPRESSED*/"  # In the column type of MariaDB.
_AT_START = {"log_bin"}  # Cannot be set while the server runs.
_DENIED = {1044, 1142, 1227}
_NO_LOGIN = 1045
_LOCK_TIMEOUT = 1205
# Errors of a server that stops, has no connection left or cannot be reached, and of connections that drop.
_LOST = {1040, 1053, 1077, 1079, 1152, *range(1158, 1162), 1184, 1927, 2002, 2003, 2006, 2013, 2055, 3169, 4031}
# Foreign key rules that change rows of the referencing table.
_CASCADES = {
    "CASCADE",
    "SET NULL",
    "SET DEFAULT",
}
_PARSE_ERROR = 1064
_HEARTBEAT_SECONDS = 0.5  # Heartbeat interval; a heartbeat marks the end of the log.
_ROW_BYTES = 1024  # Bytes allowed per row of a batch, up to `MEMORY_BYTES`; beyond that it spills to disk.
_FILE_BITS = 40  # Low bits of `Position.order`: the offset in the log file.
_STANDALONE, _PREPARED_XA = (
    1,
    64,
)  # Flags of MariaDB's GTID event: one statement and no transaction; a prepared XA transaction.
_HEARTBEATS = {EventType.HEARTBEAT, EventType.HEARTBEAT_V2}
_DESCRIPTIONS = 10_000  # Table map events kept.
_UNCONVERTED = "?"  # As the server shows a character that it cannot convert.
_KEYS_A_QUERY = 500
_BEGIN = "BEGIN"  # As MySQL writes it, before the rows of each transaction.
_TRIES = 3
_WAIT_SECONDS = 86_400
_GTID_SET = 4  # Column of MySQL's SHOW MASTER STATUS.
_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")


class MySql:
    """A MySQL (8) or MariaDB (10.6 or newer) server: `url` is `mysql://user:password@host:port`, optionally with
    `?unix_socket=/path`, and with MySQL's `ssl_mode`, `ssl_ca`, `ssl_cert` and `ssl_key` (with `ssl_ca` the server's
    certificate is verified), `connect_timeout`. A foreign key with ON DELETE CASCADE or a similar rule changes rows
    without logging them (MariaDB, and MySQL before 9.6). Such tables are refused, unless `?unlogged_cascades=accept`
    follows them without these changes.

    Tables are named `database.table`. The user needs SELECT, REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG
    MONITOR), and on MySQL RELOAD. `server_id` distinguishes this reader from the server's replicas; random by default.
    `exclude_columns`: "database.table.column". `name`: the name recorded in tables, for a server whose address may
    change; the address by default. `on_misfit`: what becomes of a value that its column cannot hold, such as a TIME
    above 24 hours: "stop" the table, or "null", which `Report.misfits` counts. `text_columns`:
    "database.table.column", those that are STRING. `readers`: how many connections read a snapshot, a chunk each, in
    one consistent view; as many chunks are held in memory. More than one needs RELOAD on MariaDB too, and one further
    connection that finds the chunk boundaries. `lock_seconds`: how long FLUSH TABLES WITH READ LOCK, which blocks all
    writers, may wait for running statements.
    """

    def __init__(
        self,
        url: str,
        *,
        type_options: Collection[TypeOption | str] = (),
        exclude_columns: Collection[str] = (),
        server_id: int | None = None,
        name: str | None = None,
        readers: int = 1,
        lock_seconds: int = 10,
        on_misfit: OnMisfit | str = OnMisfit.STOP,
        text_columns: Collection[str] = (),
    ) -> None:
        parsed = address.parse(url)
        self._settings, self._takes_cascades = parsed.settings, parsed.follows_cascades
        self._server_id = random.randrange(1 << 16, 1 << 32) if server_id is None else server_id
        self._options, self._excluded = frozenset(map(TypeOption, type_options)), frozenset(exclude_columns)
        self.misfits = Misfits(on_misfit, text_columns)
        self._connection: Any = None
        self._name, self._readers, self._lock_seconds = name, required(readers), lock_seconds
        if lock_seconds < 1:
            raise InvalidInput(f"lock_seconds={lock_seconds}: it must be at least 1")
        self._types: dict[str, dict[str, MySqlType]] = {}  # Table -> column -> type.
        self._without_transactions: set[str] = set()  # Tables of engines whose changes a ROLLBACK leaves.
        self._translated: dict[str, Position] = {}  # Positions of other servers, translated to this server's log.

    def __repr__(self) -> str:
        return f"MySql({self.name!r})"

    @property
    def name(self) -> str:
        here = f"{self._settings.get('unix_socket') or self._settings['host']}:{self._settings['port']}"
        return f"mysql/{here if self._name is None else self._name}"

    @property
    def retention(self) -> MySql:
        return self

    # --- tables ---

    def table_names(self) -> list[str]:
        rows = self._rows(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN %s ORDER BY 1, 2",
            _SYSTEM,
        )
        return [f"{schema}.{table}" for schema, table in rows]

    def describe(self, name: str, key: Sequence[str] | None = None) -> SourceTable:
        schema, _, table = name.partition(".")
        columns = self._rows(
            "SELECT column_name, data_type, column_type, character_maximum_length, numeric_precision, numeric_scale, "
            "datetime_precision, character_set_name, collation_name, is_nullable, column_comment FROM "
            "information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            schema,
            table,
        )
        if not columns:
            raise NotFound(
                f"no table {name!r} that this user may SELECT; there are: "
                f"{', '.join(self.table_names()[:20])} (database.table)"
            )
        self._require_logged(name)
        declared = self._rows(
            "SELECT column_name FROM information_schema.key_column_usage "
            "WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position",
            schema,
            table,
        )
        if compressed := [row[0] for row in columns if _COMPRESSED in row[2]]:
            raise UnsupportedFeature(
                f"{name}: column {compressed[0]!r} is COMPRESSED, and its log cannot be read; ALTER TABLE ... "
                "MODIFY it without COMPRESSED"
            )
        kept = [row for row in columns if f"{name}.{row[0]}" not in self._excluded]
        chosen = chosen_key(name, [row[0] for row in declared], key, {row[0] for row in kept})
        types = {
            row[0]: MySqlType(row[1].lower(), row[2].lower() if row[1] not in ("enum", "set") else row[2], *row[3:9])
            for row in kept
        }
        self._types[name] = self._types.get(name, {}) | types
        may_be_required = TypeOption.TO_NULLABLE not in self._options and not self.misfits.become_null
        fields = tuple(
            Field(
                NO_ID,
                row[0],
                mysql_types.to_type(row[0], types[row[0]], self._options_of(name, row[0]), is_key=row[0] in chosen),
                nullable=row[0] not in chosen and not (row[9] == "NO" and may_be_required and not _has_zero(row[1])),
                comment=row[10] or None,
            )
            for row in kept
        )
        comment = self._rows(
            "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            schema,
            table,
        )
        return SourceTable(
            name,
            fields,
            chosen,
            comment[0][0] or None,
            chosen == tuple(row[0] for row in declared),
            version=json.dumps([field.name for field in fields]),
        )

    def _options_of(self, table: str, column: str) -> Collection[TypeOption]:
        return {TypeOption.TO_STRING} if self.misfits.is_text(table, column) else self._options

    def _require_logged(self, name: str) -> None:
        """Raise if the server does not log all changes of the table."""
        schema, _, table = name.partition(".")
        status = self._log_status()
        only, never = (set(filter(None, str(listed).split(","))) for listed in (status[2:4] if status else ("", "")))
        if schema in never or (only and schema not in only):
            raise SourceError(
                f"{name}: the server leaves the database {schema!r} out of its log (binlog_do_db, binlog_ignore_db); "
                "change that in its configuration, restart it, and load the table again (restart=True)"
            )
        kind = self._rows(
            "SELECT table_type, transactions FROM information_schema.tables LEFT JOIN information_schema.engines USING "
            "(engine) WHERE table_schema = %s AND table_name = %s",
            schema,
            table,
        )
        if kind and kind[0][1] == "NO":
            self._without_transactions.add(name)
        else:
            self._without_transactions.discard(name)
        if kind and kind[0][0] == "SYSTEM VERSIONED":
            raise UnsupportedFeature(f"{name}: its rows have versions (WITH SYSTEM VERSIONING), which are not followed")
        rules = (
            ()
            if self._takes_cascades or self._logs_cascades
            else self._rows(
                "SELECT constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints "
                "WHERE constraint_schema = %s AND table_name = %s",
                schema,
                table,
            )
        )
        for constraint, on_delete, on_update in rules:
            for event, rule in (("DELETE", on_delete), ("UPDATE", on_update)):
                if rule in _CASCADES:
                    raise SourceError(
                        f"{name}: its foreign key {constraint!r} changes rows by ON {event} {rule}, which the server "
                        "does not log (MySQL does from 9.6 on); make it RESTRICT, or follow the table without these "
                        "changes: mysql://...?unlogged_cascades=accept"
                    )

    @cached_property
    def _logs_cascades(self) -> bool:
        """MySQL logs cascades since 9.6, unless `innodb_native_foreign_keys` is ON."""
        rows = self._rows("SHOW GLOBAL VARIABLES WHERE variable_name = 'innodb_native_foreign_keys'")
        return bool(rows) and rows[0][1].upper() in {"OFF", "0"}

    # --- the log ---

    def begin(self, tables: Sequence[SourceTable], is_anew: bool = False) -> Position:
        settings = {
            row[0].lower(): row[1].upper()
            for row in self._rows("SHOW GLOBAL VARIABLES WHERE variable_name IN %s", tuple(_WANTED))
        }
        for name, setting in _WANTED.items():
            value = settings.get(name)
            if value in {setting, None}:
                if value is None and name == "binlog_row_metadata":
                    raise UnsupportedFeature(
                        "the server's log has no column names; MySQL 8.0.14 or MariaDB 10.5 is needed"
                    )
                continue
            where = (
                "in the server's configuration, and restart it"
                if name in _AT_START
                else f"SET GLOBAL {name} = '{setting}'"
            )
            what = f"{name} = {setting} {where}" if name in _AT_START else where
            raise SourceError(f"{name} is {value}, so the server's log lacks changes; {what}")
        for _ in range(_TRIES):
            before = self._gtids_of_log()
            end = self.position()
            if ";" in end.text or not before:
                return end
            file, _, offset = end.text.rpartition(":")
            if self._gtids_of_log() == before:  # No commit in between.
                return self._position_at(file, int(offset), before)
        return self._position_at(file, int(offset))

    def _gtids_of_log(self) -> str:
        return str(self._rows("SELECT @@gtid_binlog_pos")[0][0] or "") if self._is_mariadb else ""

    def position(self) -> Position:
        status = self._log_status()
        if not status:
            raise SourceError(
                "log_bin is OFF: the server writes no log; set log_bin in its configuration, and restart it"
            )
        gtids = status[_GTID_SET].replace("\n", "") if len(status) > _GTID_SET else ""
        return self._position_at(status[0], status[1], gtids)

    def _log_status(self) -> Sequence[Any]:
        """File, offset, binlog_do_db, binlog_ignore_db, and on MySQL the GTID set; empty without a log."""
        try:
            rows = self._rows("SHOW MASTER STATUS")
        except SourceError as error:
            if not isinstance(error.__cause__, pymysql.Error) or error.__cause__.args[0] != _PARSE_ERROR:
                raise
            rows = self._rows("SHOW BINARY LOG STATUS")
        return rows[0] if rows else ()

    def _position_at(self, file: str, index: int, gtids: str | None = None) -> Position:
        """The position at an offset of this server's log, with the GTIDs before it (None: ask the server)."""
        if gtids is None:
            gtids = self._gtids_before(file, index)
        order = _order(file, index)
        return Position(order, f"{file}:{index};{self._server};{gtids}" if gtids else f"{file}:{index}")

    def _gtids_before(self, file: str, index: int) -> str:
        """MariaDB: the GTIDs before an offset; empty on MySQL."""
        if not self._is_mariadb:
            return ""
        return str(self._rows("SELECT BINLOG_GTID_POS(%s, %s)", file, index)[0][0] or "")

    @cached_property
    def _is_mariadb(self) -> bool:
        return "mariadb" in str(self._rows("SELECT version()")[0][0]).lower()

    @cached_property
    def _server(self) -> str:
        """The server's id within its replication group."""
        return str(self._rows("SELECT @@server_id" if self._is_mariadb else "SELECT @@server_uuid")[0][0])

    def parse(self, text: str) -> Position:
        where, _, identity = text.partition(";")
        file, _, offset = where.rpartition(":")
        if not re.fullmatch(r".+\.\d+", file) or not offset.isdecimal():
            raise InvalidInput(f"position {text!r} is not a position of MySQL, e.g. 'mysql-bin.000003:154'")
        server, _, gtids = identity.partition(";")
        if gtids and server != self._server:
            if text not in self._translated:
                self._translated[text] = self._translate(text, gtids)
            return self._translated[text]
        return Position(_order(file, int(offset)), text)

    def _translate(self, text: str, gtids: str) -> Position:
        """Translate a position of another server of the group to this server's log: before the first transaction that
        is not in `gtids`. Transactions of `gtids` that come later in this log are skipped when it is read."""
        seen, end = Gtids.parse(gtids), self.position()
        if not self._is_mariadb and not self._rows("SELECT GTID_SUBSET(%s, @@gtid_executed)", gtids)[0][0]:
            raise self._behind(text, "it lacks some of these transactions")
        try:
            with refusals(), closing(self._log_reader(seen)) as reader:
                before = reader.file, reader.offset
                while (event := reader.fetch()) is not None:
                    gtid = _gtid(event)
                    if gtid is not None and gtid not in seen:
                        file, offset = before
                        return Position(_order(file, offset), f"{file}:{offset};{self._server};{seen}")
                    before = reader.file, reader.offset
                    is_quiet = event.type in _HEARTBEATS
                    if is_quiet and _order(*before) >= end.order:
                        return Position(end.order, f"{end.text.partition(';')[0]};{self._server};{seen}")
        except SourceError as error:
            raise self._behind(text, str(error.__cause__)) from error
        raise SourceError(f"the server ended its log before {gtids}; run it again")

    def _log_reader(self, after: tuple[str, int] | Gtids) -> LogReader:
        is_mariadb, connection = self._is_mariadb, self._connect()
        return LogReader(connection, self._server_id, after, _HEARTBEAT_SECONDS, is_mariadb=is_mariadb)

    @cached_property
    def _charsets(self) -> Charsets:
        names = self._rows("SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL")
        if self._is_mariadb:  # Collations of several character sets, since MariaDB 10.10.
            with suppress(SourceError):
                names += self._rows(
                    "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
                )
        return Charsets(self._converted, {id: name for id, name in names if name is not None})

    def _converted(self, charset: str, characters: Sequence[bytes]) -> list[str]:
        """Characters of a character set, as the server converts them."""
        columns = ", ".join(f"CONVERT(CONVERT(x'{one.hex()}' USING {charset}) USING utf8mb4)" for one in characters)
        (row,) = self._rows(f"SELECT {columns}")
        return [text or _UNCONVERTED for text in row]

    def _behind(self, text: str, why: str) -> NotFound:
        return NotFound(
            f"the log of {self.name} does not go on from {text}, a position of another server: {why}. If it is a "
            "replica that is behind, run it again when it has caught up; else take the table anew (restart=True)"
        )

    def served(self) -> Collection[str]:
        return ()

    def keep_apart(self, name: str) -> bool:
        """The log is kept anyway."""
        return True

    def kept_apart(self, names: Collection[str]) -> Collection[str]:
        return ()

    def apart(self, name: str) -> MySql:
        return self

    def rejoin(self, name: str, position: Position) -> bool:
        return True

    def kept_bytes(self, name: str) -> None:
        return None

    def signatures(self, names: Collection[str]) -> Mapping[str, str]:
        if not names:
            return {}
        column = "CONCAT_WS('|', ordinal_position, column_name, column_type, is_nullable, column_comment)"
        rows = self._rows(
            f"SELECT table_schema, table_name, COUNT(*), BIT_XOR(CAST(CONV(LEFT(SHA2({column}, 256), 15), 16, 10) AS "
            "UNSIGNED)) FROM information_schema.columns WHERE (table_schema, table_name) IN %s GROUP BY 1, 2",
            tuple(tuple(name.split(".", 1)) for name in names),
        )
        return {f"{schema}.{table}": f"{count}/{digest}" for schema, table, count, digest in rows}

    def exclusive(self) -> AbstractContextManager[None]:
        return nullcontext()

    def acknowledge(self, position: Position) -> None:
        """Does nothing: binlog_expire_logs_seconds decides how long the server keeps its log."""

    # --- the snapshot ---

    def kept(self, names: Collection[str]) -> Mapping[str, str]:
        """All tables: the binary log always has them, and logs DROP and RENAME."""
        return dict.fromkeys(names, "")

    def rewritten(self, before: str, table: SourceTable) -> Collection[str]:
        """New columns; other changes are statements in the log."""
        return {field.name for field in table.fields}.difference(json.loads(before))

    @contextmanager
    def view(self, table: SourceTable, *others: SourceTable) -> Iterator[MySqlView]:
        with connected(self._connect, self._readers) as readers:
            with refusals():
                position = self._consistent((readers.first, *readers.others))
            yield MySqlView(position.text, position, readers, self, table)

    def _consistent(self, connections: Sequence[Any]) -> Position:
        """Begin a transaction on each connection, all in one consistent view; returns its log position."""
        with ExitStack() as stack:
            cursors = [stack.enter_context(connection.cursor()) for connection in connections]
            for cursor in cursors:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            with nullcontext() if self._is_mariadb and len(cursors) == 1 else self._locked(cursors[0]):
                for cursor in cursors:
                    cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                if not self._is_mariadb:
                    return self.position()
            cursors[0].execute(
                "SHOW STATUS WHERE variable_name IN ('binlog_snapshot_file', 'binlog_snapshot_position')"
            )
            status = {name.lower(): value for name, value in cursors[0].fetchall()}
            return self._position_at(status["binlog_snapshot_file"], int(status["binlog_snapshot_position"]))

    @contextmanager
    def _locked(self, cursor: Any) -> Iterator[None]:
        """Hold FLUSH TABLES WITH READ LOCK: the server commits nothing meanwhile."""
        cursor.execute("SET SESSION lock_wait_timeout = %s", (self._lock_seconds,))
        try:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
        except pymysql.Error as error:
            if error.args[0] == _LOCK_TIMEOUT:
                cursor.execute("UNLOCK TABLES")  # The lock may be partly held.
                otherwise = ", or read with readers=1, which needs no lock" if self._is_mariadb else ""
                raise SourceError(
                    f"statements or locks held FLUSH TABLES WITH READ LOCK back for {self._lock_seconds} s "
                    "(lock_seconds), and it all writers; "
                    f"run it again when they have ended (SHOW PROCESSLIST){otherwise}"
                ) from error
            if error.args[0] not in _DENIED:
                raise
            otherwise = ", or read with readers=1" if self._is_mariadb else ""
            raise SourceError(
                f"readers={self._readers}: a snapshot begins under FLUSH TABLES WITH READ LOCK, which the server "
                f"denies ({error.args[1]}); GRANT RELOAD ON *.* TO the user{otherwise}"
            ) from error
        try:
            yield
        finally:
            cursor.execute("UNLOCK TABLES")

    def has_values(self, table: SourceTable, columns: Collection[str]) -> bool:
        tests = " OR ".join(f"{_quoted(column)} IS NOT NULL" for column in columns)
        return bool(self._rows(f"SELECT 1 FROM {_quoted_table(table.name)} WHERE {tests} LIMIT 1"))

    def covers(self, view: str, ends: np.ndarray, transactions: np.ndarray) -> np.ndarray:
        covered: np.ndarray = ends <= self.parse(view).order
        return covered

    def upto(self, table: SourceTable, rows: pa.Table, key: tuple[str, ...]) -> np.ndarray:
        columns, covered = self._key(table), np.zeros(rows.num_rows, bool)
        bound = [column.of_text(text) for column, text in zip(columns, key, strict=True)]
        if all(
            isinstance(value, int) and _is_whole(rows[name].type) for value, name in zip(bound, table.key, strict=True)
        ):
            return _at_most([rows[name] for name in table.key], bound)
        # The server compares by its own collation, at 0.1 ms per key.
        keys = list(zip(*(rows[name].to_pylist() for name in table.key), strict=True))
        placeholders = [column.placeholder for column in columns]
        test, order = compared(placeholders, placeholders, "<", or_equal=True)
        with refusals(), self._open().cursor() as cursor:
            for start in range(0, len(keys), _KEYS_A_QUERY):
                values = list[Any]()
                for row in keys[start : start + _KEYS_A_QUERY]:
                    left = [column.of_row(value) for column, value in zip(columns, row, strict=True)]
                    values += [left[number] if is_left else bound[number] for is_left, number in order]
                tests = [test] * len(keys[start : start + _KEYS_A_QUERY])
                cursor.execute(f"SELECT {', '.join(tests)}", values)
                covered[start : start + len(tests)] = np.array(cursor.fetchone(), dtype=bool)
        return covered

    def _key(self, table: SourceTable) -> list[KeyColumn]:
        return [KeyColumn(name, self._types[table.name][name]) for name in table.key]

    # --- changes ---

    def changes(
        self, after: Position, until: Position, tables: Mapping[str, SourceTable], limit: int
    ) -> Iterator[Transactions]:
        self._require_log(after)
        if until <= after:
            return
        log, batch = _Log(self, after, tables), _Batch(self, dict(tables), limit)
        try:
            while log.order < until.order:
                log.read(batch, until.order, limit)
                yield from batch.transactions(log.position)
                batch.close()
                batch = _Batch(self, batch.tables, limit)
        finally:
            batch.close()
            log.close()

    def _require_log(self, after: Position) -> None:
        file = after.text.partition(";")[0].rpartition(":")[0]
        logs = [row[0] for row in self._rows("SHOW BINARY LOGS")]
        if file not in logs:
            raise NotFound(
                f"the log after {after.text} is purged: the server has {logs[0]} to {logs[-1]}. Keep it longer "
                f"(binlog_expire_logs_seconds), and load the table again (restart=True)"
            )
        if self.position() < after:
            raise NotFound(
                f"the server's log ends before {after.text}: it was reset; load the table again (restart=True)"
            )

    # --- the connection ---

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Any:
        if self._connection is None or not self._connection.open:
            self._connection = self._connect()
            for name in ("_server", "_charsets"):  # The address may resolve to another server now.
                self.__dict__.pop(name, None)
            self._translated.clear()
        return self._connection

    def _connect(self) -> Any:
        with refusals():
            connection = pymysql.connect(**self._settings, autocommit=True)
            with connection.cursor() as cursor:
                # The server waits while a chunk is committed.
                cursor.execute(f"SET time_zone = '+00:00', sql_mode = '', net_write_timeout = {_WAIT_SECONDS}")
            return connection

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with refusals(), self._open().cursor() as cursor:
            cursor.execute(query, values or None)
            return list(cursor.fetchall())


@dataclass(slots=True)
class MySqlView:
    """A table in one consistent-snapshot transaction; `text` is the log position of the view."""

    text: str
    until: Position
    _readers: Readers
    _source: MySql
    _table: SourceTable

    def narrowed_to(self, table: SourceTable) -> MySqlView:
        return replace(self, _table=table)

    def chunks(self, after: tuple[str, ...] | None, size: int) -> Iterator[Chunk]:
        read = partial(self._read, is_bounded=are_bounded(self._table.fields, size))
        return self._readers.chunks(after, lambda start: self._last_key(start, size), read)

    def _last_key(self, after: tuple[str, ...] | None, size: int) -> tuple[str, ...] | None:
        keys = ", ".join(column.expression for column in self._source._key(self._table))
        condition, values = self._between(after, None)
        query = (
            f"SELECT {keys} FROM {_escaped_table(self._table.name)} WHERE {condition} ORDER BY {keys} LIMIT 2 OFFSET "
            f"{size - 1}"
        )
        rows = _fetched(self._readers.first, query, values)
        return tuple(map(text_of, rows[0])) if len(rows) == 2 else None

    def _read(
        self, connection: Any, after: tuple[str, ...] | None, upto: tuple[str, ...] | None, is_bounded: bool
    ) -> Iterator[Piece]:
        condition, values = self._between(after, upto)
        types = self._source._types[self._table.name]
        # In text form the server rounds a float to six digits.
        columns = [
            _escaped(field.name) + (" + 0e0" if types[field.name].name == "float" else "")
            for field in self._table.fields
        ]
        order, limit = "", 1 << 62
        if not is_bounded:  # A piece may end at any row, whose key is the bound then.
            keys = [column.expression for column in self._source._key(self._table)]
            columns, order, limit = [*columns, *keys], f" ORDER BY {', '.join(keys)}", CHUNK_BYTES
        query = f"SELECT {', '.join(columns)} FROM {_escaped_table(self._table.name)} WHERE {condition}{order}"
        with refusals(), closing(text_rows.fetch(connection, query, values, limit)) as pieces:
            for rows in pieces:
                if rows.is_last:
                    yield partial(self._parsed, rows), upto
                    continue  # Leave the query to its end.
                parsed = text_rows.columns(rows)
                last = tuple(text_of(column.last_value()) for column in parsed[len(self._table.fields) :])
                yield partial(self._converted, parsed), last

    def _parsed(self, rows: TextRows) -> pa.Table:
        return self._converted(text_rows.columns(rows))

    def _converted(self, columns: Sequence[TextColumn]) -> pa.Table:
        types = self._source._types[self._table.name]
        arrays = [  # Columns of the key may follow.
            self._source.misfits.converted(
                self._table.name, self._table.key, field, column, _from_texts(field, types[field.name])
            )
            for field, column in zip(self._table.fields, columns, strict=False)
        ]
        return pa.Table.from_arrays(arrays, schema=self._table.arrow_schema)

    def _between(self, after: tuple[str, ...] | None, upto: tuple[str, ...] | None) -> tuple[str, list[Any]]:
        columns, parts, values = self._source._key(self._table), ["true"], list[Any]()
        names, placeholders = ([getattr(column, side) for column in columns] for side in ("expression", "placeholder"))
        for sign, key in ((">", after), ("<", upto)):
            if key is not None:
                bound = [column.of_text(text) for column, text in zip(columns, key, strict=True)]
                condition, order = compared(names, placeholders, sign, or_equal=sign == "<")
                parts.append(condition)
                values += [bound[number] for _, number in order]
        return " AND ".join(parts), values


def _is_whole(type: pa.DataType) -> bool:
    return pa.types.is_integer(type) or (pa.types.is_decimal(type) and type.scale == 0)


def _at_most(columns: Sequence[pa.ChunkedArray], bound: Sequence[int]) -> np.ndarray:
    """Per row: whether its integer key is at most `bound`."""
    mask, same = np.zeros(len(columns[0]), bool), np.ones(len(columns[0]), bool)
    for column, limit in zip(columns, bound, strict=True):
        value = pa.scalar(Decimal(limit) if pa.types.is_decimal(column.type) else limit, column.type)
        mask |= same & pc.less(column, value).to_numpy(zero_copy_only=False)
        same &= pc.equal(column, value).to_numpy(zero_copy_only=False)
    return mask | same


def _fetched(connection: Any, query: str, values: list[Any]) -> list[Any]:
    with refusals(), connection.cursor() as cursor:
        cursor.execute(query, tuple(values))  # Passed even if empty: % is doubled in names.
        return list(cursor.fetchall())


class _Batch:
    """Transactions read from the log and not yet yielded.
    Events beyond the memory limit are spilled to disk in parts."""

    def __init__(self, source: MySql, tables: dict[str, SourceTable], limit: int) -> None:
        self.source, self.tables = source, tables
        self.rows: dict[str, EventRows] = {}
        self._parts: list[dict[str, EventRows]] = []  # The spilled parts, before `rows`.
        self._messages = Messages()
        self._part_bytes = min(MEMORY_BYTES, limit * _ROW_BYTES)
        self._waiting_bytes, self._events, self._ends = 0, 0, TransactionEnds()
        # Rows that are decoded, and bytes of the shortest one.
        self._row_count, self._smallest = 0, 1
        self.committed_ms: int | None = None
        self.failed: dict[str, tuple[Failed, ...]] = {}
        self.rewritten: dict[str, tuple[Rewritten, ...]] = {}

    def rewrite(self, name: str, order: int) -> None:
        """A statement before a log position changed rows of one table. A view that covers the last one covers all, and
        the rows logged before it, which may have other types: they are dropped."""
        for part in (*self._parts, self.rows):
            part.pop(name, None)
        self._waiting_bytes = sum(rows.waiting_bytes for rows in self.rows.values())
        orders = np.array([order], np.int64)
        self.rewritten[name] = (Rewritten(name, orders, orders),)

    def fail(self, name: str, error: LakeError, order: int) -> None:
        """Stop one table before a log position; the others continue. Only the first and the last failed position are
        kept: if a view of the table covers the last, it covers all."""
        orders = np.array([order], np.int64)
        self.failed[name] = (*self.failed.get(name, ())[:1], Failed(error, name, orders, orders))

    @property
    def next_event(self) -> int:
        """The number of the next row event."""
        return self._events

    def undo(self, number: int) -> None:
        """Drop the row events from this one on, but those of tables whose engine has no transactions."""
        for part in (*self._parts, self.rows):
            for name in part.keys() - self.source._without_transactions:
                part[name].drop(number)

    def add(self, event: RowsEvent, table: TableMap) -> None:
        """Add a row event. Raises `LakeError`, and adds nothing, if the table cannot be followed through it."""
        name = table.name
        if event.is_partial:
            raise SourceError(
                f"{name}: the log has parts of changed JSON values; SET GLOBAL binlog_row_value_options = '' (and in "
                "the session that writes), and load the table again (restart=True)"
            )
        if not event.is_whole:
            raise SourceError(
                f"{name}: the log lacks columns of changed rows; SET GLOBAL binlog_row_image = 'FULL' (and in the "
                "session that writes), and load the table again (restart=True)"
            )
        rows, body = self.rows.get(name), event.rows
        if rows is None:
            self.rows[name] = rows = EventRows()
        if rows.described is not table:
            self._follow(table)
            rows.described, rows.columns = table, table.columns
        rows.waiting.append((rows.columns, body))
        rows.waiting_bytes += len(body)
        rows.kinds.append(event.kind)
        rows.places.append(self._events)
        self._events += 1
        self._waiting_bytes += len(body)
        if self._waiting_bytes > self._part_bytes:
            self._spill()

    def _spill(self) -> None:
        for row in self.rows.values():
            row.spill(self._messages)
        self._parts.append(self.rows)
        self.rows, self._waiting_bytes = {}, 0

    def _follow(self, log: TableMap) -> None:
        """Add the log's new columns to the table; raise for columns that cannot be decoded."""
        name = log.name
        new = {column.name for column in log.columns} - {field.name for field in self.tables[name].fields}
        new -= self._left_out(name)
        if new:
            self.describe(name)
            self._add_gone(name, [column for column in log.columns if column.name in new])
        types = self.source._types[name]
        for column in log.columns:
            if column.type in row_events.OLD_TIMES and column.name in types and types[column.name].digits:
                raise UnsupportedFeature(
                    f"{name}: column {column.name!r} has fractions of seconds in the form of mysql56_temporal_format = "
                    "OFF, which the log does not describe; SET GLOBAL mysql56_temporal_format = ON, ALTER TABLE ... "
                    "FORCE, and load the table again (restart=True)"
                )

    def has(self, count: int) -> bool:
        """Whether the batch has at least `count` rows.
        Events are only decoded to count rows once their size allows for so many."""
        if self._parts:
            return True
        if self._row_count + self._waiting_bytes // self._smallest < count:
            return False
        if sum(row.row_count + row.waiting_bytes // row.smallest for row in self.rows.values()) < count:
            return False
        for name, rows in list(self.rows.items()):
            try:
                with failures.of_table(name):
                    rows.decode(self.source._charsets)
            except LakeError as error:
                self.fail(name, error, self._ends.position(rows.places[-1]))
                self.rows[name] = EventRows()
        self._waiting_bytes, self._row_count = 0, sum(row.row_count for row in self.rows.values())
        self._smallest = min((row.smallest for row in self.rows.values() if row.row_count), default=1)
        return self._row_count >= count

    def _add_gone(self, name: str, columns: Sequence[LogColumn]) -> None:
        """Add columns that the logged rows have and the table has dropped since."""
        table, types = self.tables[name], self.source._types[name]
        known = {field.name for field in table.fields}
        for column in columns:
            if column.name not in known:
                types[column.name] = mysql_types.of_log(column)
                options = self.source._options_of(name, column.name)
                type = mysql_types.to_type(column.name, types[column.name], options)
                table = replace(table, fields=(*table.fields, Field(NO_ID, column.name, type)))
        self.tables[name] = table

    def _left_out(self, name: str) -> set[str]:
        return {
            excluded.rpartition(".")[2] for excluded in self.source._excluded if excluded.rpartition(".")[0] == name
        }

    def describe(self, name: str) -> None:
        """Read the table's columns again; dropped columns stay, as nullable."""
        old = self.tables[name]
        try:
            now = self.source.describe(name, old.key)
        except (NotFound, InvalidInput):
            return  # Dropped since, or its key changed: changes up to then have the old columns.
        known = {field.name for field in now.fields}
        gone = tuple(replace(field, nullable=True) for field in old.fields if field.name not in known)
        self.tables[name] = replace(now, fields=(*now.fields, *gone))

    def empty(self, name: str, end: int) -> None:
        rows = self.rows.setdefault(name, EventRows())
        rows.emptied = (len(rows.kinds), end)

    def end(self, end: int, timestamp: int) -> None:
        self._ends.end(self._events, end, timestamp * 1000)
        self.committed_ms = timestamp * 1000

    def transactions(self, position: Position) -> Iterator[Transactions]:
        self._messages.finish()
        parts = [*self._parts, self.rows]
        self._parts, self.rows = [], {}
        while parts:
            part, changes = parts.pop(0), {}
            for name in list(part):
                rows = part.pop(name)
                try:
                    with failures.of_table(name):
                        rows.load(self._messages)
                        changes[name] = self._changes(rows, self.tables[name])
                except LakeError as error:
                    self.fail(name, error, position.order)
            yield Transactions(position, self.committed_ms, changes, self.failed, self.rewritten, not parts)

    def close(self) -> None:
        self._messages.close()

    def _changes(self, events: EventRows, table: SourceTable) -> TableChanges:
        events.decode(self.source._charsets)
        types, schema = self.source._types[table.name], table.arrow_schema
        counts = np.concatenate([np.empty(0, np.int64), *(piece.counts for piece in events.pieces)])
        kinds = np.repeat(np.array(events.kinds, np.int8), counts)
        parts, first = [pa.Table.from_batches([], schema)], 0
        for piece in events.pieces:
            count = int(piece.counts.sum())
            mark_updates(kinds[first : first + count], piece.arrays, table.key)
            first += count
            arrays = [
                pa.nulls(count, schema.field(field.name).type)
                if field.name not in piece.arrays
                else self.source.misfits.converted(
                    table.name, table.key, field, piece.arrays[field.name], _from_log(field, types[field.name])
                )
                for field in table.fields
            ]
            parts.append(pa.Table.from_arrays(arrays, schema=schema))
        rows = pa.concat_tables(parts).append_column(ROW_KIND.name, row_kinds().take(pa.array(kinds)))
        ends, times, places = (
            np.repeat(values, counts)
            for values in (*self._ends.of_events(events.places), np.array(events.places, np.int64))
        )
        emptied: tuple[Emptied, ...] = ()
        if events.emptied is not None:
            event, end = events.emptied
            emptied = (Emptied(int(counts[:event].sum()), end, end),)
        return TableChanges(table, rows, ends, ends, times, places, {}, emptied)


def _from_texts(field: Field, type: MySqlType) -> Callable[[TextColumn], pa.Array]:
    return lambda texts: mysql_types.of_texts(field.name, texts, type, field.type)


def _from_log(field: Field, type: MySqlType) -> Callable[[pa.Array], pa.Array]:
    return lambda values: mysql_types.of_log_values(field.name, values, type, field.type)


class _Log:
    """Reads the server's log from a position, over one connection. If it drops, reading fails and the next sync
    restarts from the committed position."""

    def __init__(self, source: MySql, after: Position, tables: Mapping[str, SourceTable]) -> None:
        where, _, identity = after.text.partition(";")
        file, _, offset = where.rpartition(":")
        self._source, self._tables, self.order = source, tables, after.order
        self._file, self._place = file, int(offset)
        gtids = identity.partition(";")[2] or source._gtids_before(file, int(offset))
        # A MySQL position without GTIDs does not tell which transactions are before it.
        self._gtids = Gtids.parse(gtids) if gtids or source._is_mariadb else None
        self._has_moved = after in source._translated.values()
        self._next: Gtid | None = None  # GTID of the current transaction.
        self._is_known = self._is_xa = False
        self._is_open = False  # After a GTID.
        self._is_begun = False  # Within a transaction, which its statements do not end.
        self._read_file, self._file_order = "", 0  # The file of the last event, and the order of its begin.
        self._first = 0  # Number of the transaction's first row event.
        self._savepoints: dict[str, int] = {}  # Name -> number of the row event after it.
        self._described: dict[
            bytes, TableMap
        ] = {}  # By the content of their events, which repeats for each transaction.
        # By the ids of this file. A server that restarts counts anew; it writes a format description then.
        self._of_id: dict[int, TableMap] = {}
        with refusals():
            self._reader = source._log_reader((file, int(offset)))

    def read(self, batch: _Batch, until: int, limit: int) -> None:
        """Read events into `batch`, up to one that ends a transaction or a DDL statement, or that is outside of one, at
        which `batch` has `limit` rows or that is at log position `until`."""
        with refusals():
            while self.order < until and not batch.has(limit):
                while not self._read_event(batch):
                    pass

    def _read_event(self, batch: _Batch) -> bool:
        reader = self._reader
        event = reader.fetch()
        if event is None:
            raise Disconnected(f"the server ended its log after {self.position.text}; run it again")
        if reader.file != self._read_file:
            self._read_file, self._file_order = reader.file, _order(reader.file, 0)
        order, rows = self._file_order | reader.offset, reader.rows(event)
        if rows is not None:
            self._add_rows(rows, batch, order)
            return False
        match event.type:
            case EventType.TABLE_MAP:
                table_id, description = reader.table(event)
                self._of_id[table_id] = self._table(description)
                return False
            case EventType.GTID | EventType.MARIADB_GTID:
                self._begin_transaction(event, batch)
                return False
            case EventType.XID | EventType.XA_PREPARE:
                batch.end(order, event.time)
            case EventType.QUERY | EventType.QUERY_COMPRESSED | EventType.EXECUTE_LOAD_QUERY:
                if not self._statement(event, batch, order):
                    return False
            case EventType.FORMAT_DESCRIPTION:
                self._of_id.clear()
                if self._is_open:
                    return False
            case _ if self._is_open:
                return False
        self._end_transaction(order)
        return True

    def _table(self, description: bytes) -> TableMap:
        table = self._described.get(description)
        if table is None:
            if len(self._described) >= _DESCRIPTIONS:
                self._described.clear()
            table = TableMap(description, self._source._charsets, is_mariadb=self._source._is_mariadb)
            self._described[description] = table
        return table

    def _add_rows(self, event: RowsEvent, batch: _Batch, order: int) -> None:
        table = self._of_id.get(event.table_id)
        if table is None:
            raise CorruptFile(
                f"binary log: rows before {self._reader.file}:{self._reader.offset} are of no described table"
            )
        if self._is_fresh(table.name, order):
            try:
                if self._is_xa or not table.has_names:
                    raise self._refusal(table)
                batch.add(event, table)
            except Exception as error:
                batch.fail(table.name, failures.named(table.name, error), order)

    def _begin_transaction(self, event: Event, batch: _Batch) -> None:
        if event.type == EventType.MARIADB_GTID:
            gtid, flags = mariadb_gtid(event)
            # MariaDB's log has no XA START, and no BEGIN.
            self._is_xa, self._is_begun = bool(flags & _PREPARED_XA), not flags & _STANDALONE
        else:
            gtid, self._is_xa, self._is_begun = mysql_gtid(event), False, False
        self._is_open, self._next = True, gtid
        self._first = batch.next_event
        self._savepoints.clear()
        self._is_known = False
        if self._gtids is not None and self._has_moved:
            self._is_known = gtid in self._gtids
        # One MariaDB server's log may have GTIDs out of order, so its last one does not include all before it.
        elif self._gtids is not None and self._gtids.has_of_server(gtid):
            raise NotFound(
                f"the server's log after {self.position.text} has {gtid}, which comes before: it is another log, the "
                "server was reset or restored; load the tables again (restart=True)"
            )

    def _end_transaction(self, order: int) -> None:
        """Advance to log position `order`, at which a transaction, a statement or an event outside of one ends."""
        self._is_open = self._is_begun = self._is_xa = False
        if order > self.order:
            self._file, self._place, self.order = self._reader.file, self._reader.offset, order
            if self._next is not None and self._gtids is not None:
                self._gtids.add(self._next)
        self._next = None

    @property
    def position(self) -> Position:
        return self._source._position_at(self._file, self._place, "" if self._gtids is None else str(self._gtids))

    def _is_fresh(self, name: str, order: int) -> bool:
        """Whether the event is of a followed table and after the position."""
        return name in self._tables and order > self.order and not self._is_known

    def _refusal(self, table: TableMap) -> LakeError:
        """Rows that lack column names or belong to an XA transaction are not followed."""
        if not table.has_names:
            return SourceError(
                f"{table.name}: the log after {self.position.text} was written without column names; SET GLOBAL "
                "binlog_row_metadata = 'FULL', and load the table again (restart=True)"
            )
        return UnsupportedFeature(
            f"{table.name}: the log after {self.position.text} has an XA transaction of it, which is not followed; "
            "load the table again (restart=True)"
        )

    def _begin(self, batch: _Batch) -> None:
        self._is_open = self._is_begun = True
        self._first = batch.next_event
        self._savepoints.clear()

    def _boundary(self, text: str, batch: _Batch) -> bool | None:
        """Begin, end or undo a transaction or a part of it; whether that ends it. None for any other statement."""
        match statements.boundary(text):
            case "BEGIN", _:
                self._begin(batch)
            case "SAVEPOINT", name:
                self._savepoints[name] = batch.next_event
            case "ROLLBACK TO", name:
                # Without a savepoint of that name in the log it is before all that the transaction logged.
                batch.undo(self._savepoints.get(name, self._first))
            case "ROLLBACK", _:
                batch.undo(self._first)
                return True
            case "COMMIT", _:
                return True
            case None:
                return None
        return False

    def _statement(self, event: Event, batch: _Batch, order: int) -> bool:
        """Apply a logged statement to `batch`; True if it ends a transaction."""
        schema, query = self._reader.statement(event)
        if query == _BEGIN:
            self._begin(batch)
            return False
        text = statements.plain(query)
        verb = statements.verb(text)
        if (ends := self._boundary(text, batch)) is not None:
            if ends:
                batch.end(order, event.time)
            return ends
        named = [table for table in batch.tables if statements.names(text, table)]
        error: LakeError
        fresh = [name for name in named if self._is_fresh(name, order)]
        if verb == "XA":
            is_end = not re.match(r"XA\s+(?:START|BEGIN|END)\b", text, re.IGNORECASE)
            self._is_open = self._is_begun = self._is_xa = not is_end
            if is_end:
                batch.end(order, event.time)
            return is_end
        for name in fresh if statements.changes_rows(text) else ():
            error = SourceError(
                f"{name}: the log after {self.position.text} has changes as statements ({text[:60]!r}); SET GLOBAL "
                "binlog_format = 'ROW' (and in the session that writes), and take the table anew (restart=True)"
            )
            batch.fail(name, error, order)
        rewrites = verb == "ALTER" and statements.rewrites(text)
        exchanged = statements.exchanged(text, schema)
        for name in batch.tables:
            if self._is_fresh(name, order) and ((rewrites and name in named) or name in exchanged):
                batch.rewrite(name, order)
        for name in statements.removed(text, schema, batch.tables):
            if self._is_fresh(name, order):
                error = NotFound(
                    f"{name} was dropped, renamed or made anew in the log after {self.position.text}, and its old rows "
                    "are not deleted by it; take the table anew (restart=True)"
                )
                batch.fail(name, error, order)
        truncated = statements.truncated(text, schema)
        if truncated is not None:
            if truncated in batch.tables and not self._is_known:
                batch.empty(truncated, order)
        elif verb in {"ALTER", "CREATE", "RENAME", "DROP"}:
            for name in named:
                try:
                    batch.describe(name)
                except LakeError as refused:
                    batch.fail(name, refused, order)
        if self._is_begun:  # E.g. of a temporary table.
            return False
        batch.end(order, event.time)
        return True

    def close(self) -> None:
        self._reader.close()


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _escaped(name: str) -> str:
    """The quoted name, for a query with placeholders."""
    return _quoted(name).replace("%", "%%")


def _escaped_table(name: str) -> str:
    return _quoted_table(name).replace("%", "%%")


def _quoted_table(name: str) -> str:
    schema, _, table = name.partition(".")
    return f"{_quoted(schema)}.{_quoted(table)}"


def _has_zero(type: str) -> bool:
    """Whether the type allows zero dates (0000-00-00), which become null."""
    return type in {"date", "datetime", "timestamp"}


def _order(file: str, index: int) -> int:
    return int(file.rpartition(".")[2]) << _FILE_BITS | index


def _gtid(event: Event) -> Gtid | None:
    match event.type:
        case EventType.GTID:
            return mysql_gtid(event)
        case EventType.MARIADB_GTID:
            return mariadb_gtid(event)[0]
        case _:
            return None


@contextmanager
def refusals() -> Iterator[None]:
    """Raise server errors and broken connections as `SourceError`."""
    try:
        yield
    except pymysql.Error as error:
        code = error.args[0] if error.args else None
        if code in _DENIED:
            raise SourceError(
                f"the server denies it: {error}; GRANT SELECT, RELOAD, REPLICATION SLAVE, "
                "REPLICATION CLIENT ON *.* TO the user"
            ) from error
        if code == _NO_LOGIN:
            raise SourceError(
                f"the server does not let the user in: {error}; give the user and the password that it has now in the "
                "address, mysql://user:password@host, and run it again"
            ) from error
        kind = Disconnected if code in _LOST or isinstance(error, pymysql.InterfaceError) else SourceError
        raise kind(f"the server refused, or cannot be reached: {error}; fix that and run it again") from error
