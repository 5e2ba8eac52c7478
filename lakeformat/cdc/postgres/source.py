"""PostgreSQL source: snapshots by COPY, changes from a logical replication slot with `pgoutput`."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import select
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn
from pyarrow import csv

from lakeformat.cdc import failures
from lakeformat.cdc.misfits import Misfits
from lakeformat.cdc.postgres import pgoutput
from lakeformat.cdc.postgres import types as postgres_types
from lakeformat.cdc.postgres.types import PostgresType
from lakeformat.cdc.readers import CHUNK_BYTES, Piece, Readers, are_bounded, connected, required
from lakeformat.cdc.source import (
    Chunk,
    Disconnected,
    Emptied,
    Failed,
    InUse,
    Position,
    Rewritten,
    SourceTable,
    TableChanges,
    Transactions,
    chosen_key,
)
from lakeformat.cdc.spool import MEMORY_BYTES, Messages
from lakeformat.cdc.type_option import OnMisfit, TypeOption
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.plain_values import row_kinds
from lakeformat.errors import InvalidInput, LakeError, NotFound, SourceError, UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field
from lakeformat.model.work import ROW_KIND, RowKind

log = logging.getLogger(__name__)
_LEAST_VERSION = 140000
_COPY_HEADER = 19  # Bytes before the first row of a binary COPY.
_COPY_FIELD = 6  # Bytes before the single column of each row: column count (int16) and length (int32).
_ROW_BYTES = (
    128  # Bytes of the log kept in memory per row of a batch, at least `MEMORY_BYTES`; beyond that it spills to disk.
)
_PARTS_FROM = 2  # A run of more than this many times `limit` messages comes in parts.
_FLUSH_DELAYS = 3  # A commit without synchronous_commit is on disk after at most this many WAL writer delays.
_FLUSH_PAUSE = 0.01
_WAIT_SECONDS = 60.0
_LOST = (
    "08",
    "57P",
    "53300",
)  # SQLSTATEs of connections that drop, of a server that stops or starts, and of too many connections.
_SETTINGS = {
    "statement_timeout": "0",  # A role has one for its queries; a snapshot takes as long as its table.
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "search_path": "",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "row_security": "off",  # Raise an error, do not hide rows, if a policy applies.
    "idle_in_transaction_session_timeout": "0",  # The snapshot's connection is idle while a chunk is committed.
}
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_APART, _APART_LENGTH = (
    "_apart_",
    44,
)  # In the name of a slot that keeps the log for one table; the most characters before it.
_FIRST_OWN_TYPE = 16384  # Oids below are of types that PostgreSQL brings.
# The files of a table, or of the partitions of one; the transactions that attached them; and whether each was made as a
# partition (CREATE TABLE ... PARTITION OF), before it had rows: ATTACH PARTITION changes all columns of a table.
_FILES = """
SELECT c.oid, concat_ws('/', c.relfilenode, (
  SELECT string_agg(i.xmin::text, ',' ORDER BY i.inhrelid) FROM pg_inherits i
  WHERE c.relispartition AND i.inhrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid))
)), (
  SELECT bool_or(a.xmin = t.xmin AND a.cmin = t.cmin) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
)
FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
WHERE c.relkind = 'r' AND c.oid IN (SELECT relid FROM pg_partition_tree(%s) UNION ALL SELECT %s) ORDER BY 1
"""
_OWN_TYPES = """
SELECT md5(COALESCE((SELECT string_agg(oid::text || enumlabel, ',' ORDER BY oid) FROM pg_enum), '') || '/' || COALESCE((
  SELECT string_agg(attrelid::text || ' ' || attnum::text || attname || atttypid::text, ',' ORDER BY attrelid, attnum)
  FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relkind = 'c' AND attnum > 0), ''))
"""
# What `describe`, `kept` and `rewritten` say of tables, but for comments.
_SIGNATURES = """
SELECT n.nspname || '.' || c.relname, md5(concat_ws('/', c.oid, c.relkind,
  (SELECT string_agg(concat_ws(' ', a.attnum, a.attname, a.xmin), ',' ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0),
  (SELECT string_agg(concat_ws(' ', f.oid, f.relfilenode, f.relreplident, i.xmin), ',' ORDER BY f.oid) FROM pg_class f
    LEFT JOIN pg_inherits i ON f.relispartition AND i.inhrelid = f.oid
    WHERE f.oid = c.oid OR f.oid IN (SELECT relid FROM pg_partition_tree(c.oid))),
  (SELECT string_agg(concat_ws(' ', p.xmin, r.oid, r.xmin), ',') FROM pg_publication p
    JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid WHERE p.pubname = %s),
  (SELECT string_agg(i.indexrelid::text, ',' ORDER BY 1) FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
  ({types})))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname || '.' || c.relname = ANY(%s)
""".replace("{types}", _OWN_TYPES)
_PEEK = """
COPY (
  SELECT data FROM pg_logical_slot_peek_binary_changes({}, {}, {}, 'proto_version', '1', 'publication_names', {})
) TO STDOUT (FORMAT binary)
"""


class Postgres:
    """A PostgreSQL database (14 or newer): `dsn` is a libpq connection string.

    `slot` names the replication slot and the publication of one `sync_table` or `sync_database`; both are created if
    missing. The server keeps its log until the slot has read it: call `drop()` when the slot is no longer needed.
    `exclude_columns`: "schema.table.column". `readers`: how many connections read a snapshot, a chunk each, in one
    consistent view; as many chunks are held in memory. `on_misfit`: what becomes of a value that its column cannot
    hold, such as `infinity`: "stop" the table, or "null", which `Report.misfits` counts. `text_columns`:
    "schema.table.column", those that are STRING. The role needs REPLICATION and SELECT on the tables, and must
    own them to create the publication.
    """

    def __init__(
        self,
        dsn: str,
        slot: str = "lakeformat",
        type_options: Collection[TypeOption | str] = (),
        exclude_columns: Collection[str] = (),
        readers: int = 1,
        *,
        on_misfit: OnMisfit | str = OnMisfit.STOP,
        text_columns: Collection[str] = (),
    ) -> None:
        if not re.fullmatch(r"[a-z0-9_]{1,63}", slot):
            raise InvalidInput(f"slot {slot!r}: PostgreSQL takes lower-case letters, digits and _, at most 63")
        _require_parsed(dsn)
        self._read_slot = slot  # A copy of the slot, in `apart`.
        self._dsn, self._slot, self._options = dsn, slot, frozenset(map(TypeOption, type_options))
        self._excluded, self._readers = frozenset(exclude_columns), required(readers)
        self.misfits = Misfits(on_misfit, text_columns)
        self._connection: psycopg.Connection | None = None
        self._types: dict[int, PostgresType] = {}
        self._roots: set[str] = set()  # Partitioned tables.
        self._files: dict[str, list[Any]] = {}  # As `_FILES` returns them.
        self._numbers: dict[str, dict[str, int]] = {}  # By table: the number of each of its columns.
        self._oids: dict[str, int] = {}  # The log identifies tables by oid, so a temporary rename does not matter.

    def __repr__(self) -> str:
        return f"Postgres(slot={self._slot!r})"

    @property
    def name(self) -> str:
        return f"postgres/{self._slot}"

    @property
    def retention(self) -> Postgres:
        return self

    # --- tables ---

    def table_names(self) -> list[str]:
        rows = self._rows(
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p' "
            "AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY 1"
        )
        return [row[0] for row in rows]

    def describe(self, name: str, key: Sequence[str] | None = None) -> SourceTable:
        # In one view: columns of one moment with files of the next would hide the ALTER TABLE between them.
        with refusals(), self._open().transaction():
            return self._described(name, key)

    def _described(self, name: str, key: Sequence[str] | None) -> SourceTable:
        schema, _, table = name.partition(".") if "." in name else ("public", "", name)
        rows = self._rows(
            "SELECT c.oid, (SELECT CASE WHEN bool_and(leaf.relreplident = 'f') THEN 'f' WHEN "
            "bool_and(leaf.relreplident = 'd') THEN 'd' ELSE 'n' END FROM pg_class leaf WHERE leaf.oid = c.oid AND "
            "c.relkind = 'r' OR leaf.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)), "
            "obj_description(c.oid), has_table_privilege(c.oid, 'SELECT'), current_user, c.relkind = 'p' FROM pg_class "
            "c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN "
            "('r', 'p')",
            schema,
            table,
        )
        if not rows:
            raise NotFound(f"no table {name!r} in the database; there are: {', '.join(self.table_names()[:20])}")
        oid, identity, comment, is_readable, role, is_root = rows[0]
        self._oids[f"{schema}.{table}"] = oid
        if is_root:
            self._roots.add(f"{schema}.{table}")
        quoted = ".".join(f'"{part}"' for part in (schema, table))
        if not is_readable:
            raise SourceError(f"{name}: {role} may not read it; GRANT SELECT ON {quoted} TO {role}")
        columns = self._rows(
            "SELECT attname, atttypid, atttypmod, attnotnull, col_description(attrelid, attnum), attgenerated <> '', "
            "attnum, xmin::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY "
            "attnum",
            oid,
        )
        declared = tuple(
            row[0]
            for row in self._rows(
                "SELECT a.attname FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, n) "
                "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
                "WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.n",
                oid,
            )
        )
        # Generated columns are not in the log.
        self._numbers[f"{schema}.{table}"] = {row[0]: row[6] for row in columns if not row[5]}
        followed = [row for row in columns if not row[5] and f"{schema}.{table}.{row[0]}" not in self._excluded]
        chosen = chosen_key(name, declared, key, {row[0] for row in followed})
        is_full = identity == "f"
        if not is_full and not (identity == "d" and chosen == declared):
            which = ", of the table and of each of its partitions" if is_root else ""
            raise SourceError(
                f"{name}: its changes lack the rows that they replace; "
                f"ALTER TABLE {quoted} REPLICA IDENTITY FULL{which}"
            )
        may_be_required = is_full and TypeOption.TO_NULLABLE not in self._options and not self.misfits.become_null
        # Without REPLICA IDENTITY FULL the log has only the key of a deleted row.
        fields = tuple(
            self._field(
                f"{schema}.{table}",
                row[0],
                row[1],
                row[2],
                nullable=row[0] not in chosen and not (row[3] and may_be_required),
                comment=row[4],
            )
            for row in followed
        )
        version = self._version(f"{schema}.{table}", oid, followed)
        return SourceTable(
            f"{schema}.{table}", fields, chosen, comment, chosen == declared, version=version, logs_old_rows=is_full
        )

    def _version(self, name: str, oid: int, columns: Sequence[Any]) -> str:
        """The table's version for `rewritten`, as JSON: column -> [number, transaction that last changed it], the
        largest oid among the table's files and their digest, the digest of enums and composite types, and the oid of
        the primary key."""
        self._files[name] = files = self._rows(_FILES, oid, oid)
        has_own = any(row[1] >= _FIRST_OWN_TYPE for row in columns)
        types = self._rows(_OWN_TYPES)[0][0] if has_own else ""
        names = {row[0]: [row[6], row[7]] for row in columns}
        last = max((leaf for leaf, _, _ in files), default=0)
        keys = self._rows("SELECT oid::bigint FROM pg_constraint WHERE conrelid = %s AND contype = 'p'", oid)
        return json.dumps([names, last, _digest(files, last), types, *(key for (key,) in keys)])

    def rewritten(self, before: str, table: SourceTable) -> Collection[str]:
        (old, last, files, types, *key), (now, _, _, types_now, *key_now) = map(json.loads, (before, table.version))
        leaves = self._files[table.name]
        has_changed = _digest(leaves, last) != files
        is_attached = any(leaf > last and not born for leaf, _, born in leaves)
        if (table.name in self._roots and (has_changed or is_attached)) or types not in ("", types_now):
            return set(now)
        if key and key != key_now:  # Another one may have identified rows meanwhile.
            return set(now)
        return {
            name
            for name, (number, changed) in now.items()
            if name not in old or old[name][0] != number or (has_changed and old[name][1] != changed)
        }

    def _field(self, table: str, name: str, oid: int, modifier: int, nullable: bool, comment: str | None) -> Field:
        options = {TypeOption.TO_STRING} if self.misfits.is_text(table, name) else self._options
        return Field(NO_ID, name, postgres_types.to_type(name, self._type(oid, modifier), options), nullable, comment)

    def _type(self, oid: int, modifier: int) -> PostgresType:
        """The type with this oid; a domain resolves to its base type."""
        if oid not in self._types:
            rows = self._rows("SELECT typname, typtype = 'd', typbasetype, typtypmod FROM pg_type WHERE oid = %s", oid)
            if not rows:
                return PostgresType("text")  # The type was dropped since: only the text of its values is known.
            name, is_domain, of, own = rows[0]
            self._types[oid] = self._type(of, own) if is_domain else PostgresType(name)
        known = self._types[oid]
        return known if known.modifier >= 0 else PostgresType(known.name, modifier)

    # --- the slot ---

    def begin(self, tables: Sequence[SourceTable], is_anew: bool = False) -> Position:
        self._require_settings()
        if is_anew:
            self._drop_lost_slot()
        elif self._slot_state() is None:
            raise NotFound(
                f"slot {self._slot!r} does not exist: it was dropped, or the server is another, and changes since the "
                "tables' positions are not kept; load the tables again (restart=True)"
            )
        self._publish([table.name for table in tables])
        slot = self._slot_state()
        if slot is None:
            self._make_slot()
            slot = self._slot_state()
        assert slot is not None
        return slot

    def _make_slot(self) -> None:
        """Create the slot; the server waits for running transactions first."""
        self._rows("SELECT set_config('statement_timeout', %s, false)", f"{_WAIT_SECONDS:.0f}s")
        try:
            self._rows("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", self._slot)
        except SourceError as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            raise SourceError(
                f"slot {self._slot!r} was not made, for transactions still run after {_WAIT_SECONDS:.0f} s (see "
                "pg_stat_activity); run it again when they have ended"
            ) from error
        finally:
            if self._connection is not None and not self._connection.closed:
                self._rows("SELECT set_config('statement_timeout', '0', false)")

    def served(self) -> Collection[str]:
        return sorted(self._published())

    def signatures(self, names: Collection[str]) -> Mapping[str, str]:
        return dict(self._rows(_SIGNATURES, self._slot, list(names)))

    def keep_apart(self, name: str) -> bool:
        """By a copy of the slot. False if the server has no slot left."""
        if self.kept_apart([name]):
            return True
        try:
            self._rows("SELECT pg_copy_logical_replication_slot(%s, %s)", self._slot, self._apart_slot(name))
        except SourceError as error:
            log.warning("the slot %r keeps the log for all tables while %s is stopped: %s", self._slot, name, error)
            return False
        return True

    def kept_apart(self, names: Collection[str]) -> Collection[str]:
        slots = {self._apart_slot(name): name for name in names}
        rows = self._rows("SELECT slot_name FROM pg_replication_slots WHERE slot_name = ANY(%s)", list(slots))
        return {slots[slot] for (slot,) in rows}

    def apart(self, name: str) -> Postgres:
        self._open()
        other = copy(self)  # It shares the connection.
        other._read_slot = self._apart_slot(name)
        return other

    def rejoin(self, name: str, position: Position) -> bool:
        if not self.kept_apart([name]):
            return True
        confirmed = self._slot_state()
        if confirmed is not None and confirmed > position:
            return False
        self._rows("SELECT pg_drop_replication_slot(%s)", self._apart_slot(name))
        return True

    def kept_bytes(self, name: str) -> int | None:
        rows = self._rows(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE "
            "slot_name = ANY(%s) ORDER BY slot_name = %s",
            [self._apart_slot(name), self._slot],
            self._slot,
        )
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    def _apart_slot(self, name: str) -> str:
        """The name of the slot that keeps the log for one table."""
        return (
            f"{self._slot[:_APART_LENGTH]}{_APART}{hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:12]}"
        )

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        self._rows("SELECT pg_advisory_lock(hashtext(%s))", self._slot)
        try:
            yield
        finally:
            with suppress(LakeError):  # A connection that dropped has no lock.
                self._rows("SELECT pg_advisory_unlock(hashtext(%s))", self._slot)

    def kept(self, names: Collection[str]) -> Mapping[str, str]:
        """The published tables, each with its publication entry. A table that was dropped or removed has a new entry
        when it is added again. The entry includes the `xmin` of the publication's row, which
        `ALTER PUBLICATION ... SET (publish = ...)` changes."""
        self._whole_publication(names)
        rows = self._rows(
            "SELECT n.nspname || '.' || c.relname, p.xmin::text || '/' || r.oid::text || '/' || c.oid::text "
            "FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
            self._slot,
        )
        return {name: entry for name, entry in rows if name in names}

    def _require_settings(self) -> None:
        version, level, role, may_replicate = self._rows(
            "SELECT current_setting('server_version_num')::int, current_setting('wal_level'), current_user, "
            "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)"
        )[0]
        if version < _LEAST_VERSION:
            raise UnsupportedFeature(f"PostgreSQL {version // 10000}: change data capture needs 14 or newer")
        if level != "logical":
            raise SourceError(
                f"wal_level is {level}: the server's log has no rows; ALTER SYSTEM SET wal_level = 'logical', and "
                f"restart the server"
            )
        if not may_replicate:
            raise SourceError(f"{role} may not read changes; ALTER ROLE {role} REPLICATION")

    def _publish(self, names: Sequence[str]) -> None:
        """Add these tables to the publication. Changes of transactions that are already running may not be published,
        so wait for them to end."""
        is_there, published = self._whole_publication(names)
        missing = [name for name in names if name not in published]
        if is_there and not missing:
            return
        tables = sql.SQL(", ").join(self._only(name) for name in missing or names)
        verb = (
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}")
            if is_there
            else sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
        ).format(sql.Identifier(self._slot), tables)
        try:
            self._execute(verb)
        except SourceError as error:
            if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise
            raise SourceError(
                f"this role may not publish {', '.join(missing)} ({error.__cause__.diag.message_primary}); have their "
                f"owner run: {verb.as_string(self._open())}"
            ) from error
        horizon = self._rows("SELECT pg_current_xact_id()::text::bigint")[0][0]
        deadline = time.monotonic() + _WAIT_SECONDS
        while self._rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")[0][0] < horizon:
            if time.monotonic() > deadline:
                raise SourceError(
                    f"transactions that are older than the publication {self._slot!r} still run after "
                    f"{_WAIT_SECONDS:.0f} s (see pg_stat_activity); run it again when they have ended"
                )
            time.sleep(0.05)

    def _whole_publication(self, names: Collection[str]) -> tuple[bool, dict[str, bool]]:
        """(whether the publication exists, its tables). Raises if it omits changes of these tables."""
        settings = self._rows(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate AND pubviaroot FROM pg_publication WHERE "
            "pubname = %s",
            self._slot,
        )
        published = self._published()
        if settings and not settings[0][0]:
            raise SourceError(
                f"publication {self._slot!r} leaves changes out; ALTER PUBLICATION {self._slot} SET (publish = "
                "'insert, update, delete, truncate', publish_via_partition_root = true), "
                "and load the tables again (restart=True)"
            )
        if partial := [name for name in names if published.get(name)]:
            raise SourceError(
                f"publication {self._slot!r} has {partial[0]} with a row filter or a list of columns, and so leaves "
                "changes out; drop it from the publication, and load it again (restart=True)"
            )
        return bool(settings), published

    def _published(self) -> dict[str, bool]:
        """The tables that the publication lists -> whether a row filter or a column list restricts them. FOR ALL TABLES
        lists none: it would silently include a table that was dropped and created again."""
        rows = self._rows(
            "SELECT n.nspname || '.' || c.relname, "
            "to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL "  # Since PostgreSQL 15.
            "FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
            self._slot,
        )
        return dict(rows)

    def _slot_state(self) -> Position | None:
        """The confirmed position of the slot; None if there is no slot."""
        rows = self._rows(
            "SELECT confirmed_flush_lsn::text, wal_status, plugin, database = current_database() "
            "FROM pg_replication_slots WHERE slot_name = %s",
            self._read_slot,
        )
        if not rows:
            return None
        confirmed, status, plugin, is_here = rows[0]
        if plugin != "pgoutput" or not is_here:
            raise InvalidInput(
                f"slot {self._read_slot!r} is of another database or plugin ({plugin}); choose another slot="
            )
        if status == "lost" or confirmed is None:
            raise NotFound(
                f"slot {self._read_slot!r} has lost its log: more than max_slot_wal_keep_size was written since; raise "
                "that, and load the table again (restart=True), as all tables of the slot"
            )
        return self.parse(confirmed)

    def _drop_lost_slot(self) -> None:
        lost = "wal_status = 'lost' OR confirmed_flush_lsn IS NULL"
        if self._rows(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND ({lost})", self._slot):
            self._rows("SELECT pg_drop_replication_slot(%s)", self._slot)

    def acknowledge(self, position: Position) -> None:
        confirmed = self._slot_state()
        if confirmed is not None and confirmed < position:
            self._rows("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", self._read_slot, position.text)

    def drop(self) -> bool:
        """Drop the slot and the publication, so that the server no longer keeps its log for them.
        Returns whether there was a slot."""
        apart = (
            "SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s) "
            "AND database = current_database()"
        )
        for (name,) in self._rows(apart, f"{self._slot[:_APART_LENGTH]}{_APART}"):
            self._rows("SELECT pg_drop_replication_slot(%s)", name)
        has_slot = bool(self._rows("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", self._slot))
        if has_slot:
            self._rows("SELECT pg_drop_replication_slot(%s)", self._slot)
        self._execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self._slot)))
        return has_slot

    # --- positions ---

    def parse(self, text: str) -> Position:
        if not re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text):
            raise InvalidInput(f"position {text!r} is not a position of PostgreSQL, e.g. '0/16B3748'")
        high, low = text.split("/")
        return _position(int(high, 16) << 32 | int(low, 16))

    def position(self) -> Position:
        """The end of the log that is on disk, which is all that the server sends. Waits a moment for commits without
        `synchronous_commit`."""
        text, delay_ms = self._rows(
            "SELECT pg_current_wal_insert_lsn()::text, setting::int FROM pg_settings WHERE name = 'wal_writer_delay'"
        )[0]
        target, deadline = self.parse(text), time.monotonic() + _FLUSH_DELAYS * delay_ms / 1000 + _FLUSH_PAUSE
        while True:
            flushed = self.parse(self._rows("SELECT pg_current_wal_flush_lsn()::text")[0][0])
            if flushed >= target or time.monotonic() > deadline:
                return min(target, flushed)
            time.sleep(_FLUSH_PAUSE)

    # --- the snapshot ---

    @contextmanager
    def view(self, table: SourceTable, *others: SourceTable) -> Iterator[PostgresView]:
        with connected(self._connect, self._readers) as readers:
            connection = readers.first
            with refusals():
                connection.execute(_READ)
                # A table rewritten between the view and its first read would look empty.
                names = sql.SQL(", ").join(sql.Identifier(*part.name.split(".", 1)) for part in (table, *others))
                connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
                shown = connection.execute("SELECT pg_current_snapshot()::text").fetchone()[0]
                until = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]
                if readers.others:
                    exported = connection.execute("SELECT pg_export_snapshot()").fetchone()[0]
                for other in readers.others:
                    other.execute(_READ)
                    other.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))
            # A crash would take back what is not on disk yet, and new transactions would get the numbers that the view
            # takes for past ones.
            self.position()
            yield PostgresView(shown, self.parse(until), readers, self, table)

    def has_values(self, table: SourceTable, columns: Collection[str]) -> bool:
        tests = sql.SQL(" OR ").join(sql.SQL("{} IS NOT NULL").format(sql.Identifier(column)) for column in columns)
        query = sql.SQL("SELECT 1 FROM {} WHERE {} LIMIT 1").format(self._only(table.name), tests)
        return bool(self._rows(query))

    def _only(self, name: str) -> sql.Composable:
        """`ONLY table`, as the log assigns rows of child tables to the child;
        a partitioned table with its partitions."""
        identifier = sql.Identifier(*name.split(".", 1))
        return identifier if name in self._roots else sql.SQL("ONLY {}").format(identifier)

    def covers(self, view: str, ends: np.ndarray, transactions: np.ndarray) -> np.ndarray:
        oldest, next_, running = view.split(":")
        # The log has the low 32 bits of a transaction id; the full id is the one nearest the view's.
        low, xmax = transactions, int(next_)
        numbers = xmax + ((low - xmax + 2**31) % 2**32 - 2**31)
        among = np.array([int(xid) for xid in running.split(",") if xid], np.int64)
        covered: np.ndarray = (numbers < int(oldest)) | ((numbers < xmax) & ~np.isin(numbers, among))
        return covered

    def upto(self, table: SourceTable, rows: pa.Table, key: tuple[str, ...]) -> np.ndarray:
        types = self._key_types(table)
        columns = [_texts(rows[name]) for name in table.key]
        unnest = sql.SQL(", ").join(sql.SQL("{}::text[]").format(sql.Literal(column)) for column in columns)
        names = [sql.Identifier(f"k{i}") for i in range(len(columns))]
        query = sql.SQL(
            "SELECT n FROM unnest({}) WITH ORDINALITY AS given({}, n) WHERE ({}) <= ({}) ORDER BY n"
        ).format(
            unnest,
            sql.SQL(", ").join(names),
            _typed(names, types),
            _typed([sql.Literal(value) for value in key], types),
        )
        covered = np.zeros(rows.num_rows, bool)
        covered[[row[0] - 1 for row in self._rows(query)]] = True
        return covered

    def _key_types(self, table: SourceTable) -> list[tuple[str, str | None]]:
        """The type and the collation (None: none) of each key column."""
        schema, _, name = table.name.partition(".")
        rows = self._rows(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), "
            "quote_ident(cn.nspname) || '.' || quote_ident(co.collname) "
            "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = "
            "co.collnamespace WHERE n.nspname = %s AND c.relname = %s",
            schema,
            name,
        )
        types = {row[0]: (row[1], row[2]) for row in rows}
        return [types[column] for column in table.key]

    # --- changes ---

    def changes(
        self, after: Position, until: Position, tables: Mapping[str, SourceTable], limit: int
    ) -> Iterator[Transactions]:
        kept = self._slot_state()
        if kept is None:
            raise NotFound(
                f"slot {self._slot!r} is gone, and with it the changes after {after.text}; "
                "load the tables again (restart=True)"
            )
        if kept > after:
            raise NotFound(
                f"slot {self._slot!r} holds the changes after {kept.text}, and those after {after.text} are needed: "
                "the table was rolled back, the slot was made anew for other tables, or something else read the slot; "
                "load the table again (restart=True)"
            )
        if self.parse(self._rows("SELECT pg_current_wal_insert_lsn()::text")[0][0]) < after:
            raise NotFound(
                f"the server's log ends before {after.text}: it was restored, or is another server; "
                "load the tables again (restart=True)"
            )
        tables, current, memory_bytes = dict(tables), after, max(MEMORY_BYTES, limit * _ROW_BYTES)
        while current < until:
            if self._slot_state() is None:
                raise NotFound(
                    f"slot {self._slot!r} was dropped while it was read; load the tables again (restart=True)"
                )
            with closing(self._peek(until, limit, memory_bytes)) as messages:
                is_all = len(messages) - 1 < limit
                parts = _parts(messages, limit)
                transactions = pgoutput.commits(_read(messages, parts))
                ends = transactions.ends  # The server stops after the transaction that reaches the limit.
                reached = int(ends[-1]) if len(ends) else 0
                position = _position(max(reached, until.order) if is_all else reached)
                if position <= current and not is_all:
                    limit *= 2  # Everything read was acknowledged before: read further.
                    continue
                fresh = ends > current.order
                committed = int(transactions.committed_ms[fresh][-1]) if fresh.any() else None
                relations, is_last = dict[int, pgoutput.Relation](), False
                for (first, end), (data, starts) in zip(parts, _read(messages, parts), strict=True):
                    is_last = end == parts[-1][1]
                    decoded = pgoutput.decode(data, starts, relations, transactions, first)
                    del data, starts
                    relations = decoded.relations
                    changes_by_table, failed, rewritten = self._tables(decoded, tables, current)
                    del decoded
                    yield Transactions(position, committed, changes_by_table, failed, rewritten, is_last)
                    del changes_by_table
            current = position

    def _peek(self, until: Position, limit: int, memory_bytes: int) -> Messages:
        """About `limit` log messages up to `until`, in whole transactions, and the COPY trailer."""
        given = (self._read_slot, until.text, limit, f'"{self._slot}"')
        query = sql.SQL(_PEEK).format(*map(sql.Literal, given))
        messages = Messages(memory_bytes)
        with refusals():
            connection = self._open()
            append = messages.lengths.append
            for message in _copy(connection.pgconn, query.as_bytes(connection)):
                if message is not None:
                    messages.data += message
                    append(len(message))
                elif len(messages.data) > memory_bytes:
                    messages.spill()
        messages.finish()
        return messages

    def _tables(
        self, decoded: pgoutput.Decoded, tables: dict[str, SourceTable], after: Position
    ) -> tuple[dict[str, TableChanges], dict[str, tuple[Failed, ...]], dict[str, tuple[Rewritten, ...]]]:
        changes, failed = dict[str, TableChanges](), dict[str, tuple[Failed, ...]]()
        rewritten = dict[str, tuple[Rewritten, ...]]()
        names = {self._oids.get(name): name for name in tables}
        changed = {row.relation.id for row in decoded.rows} | {relation.id for relation, _ in decoded.truncated}

        def fail(name: str, error: LakeError, places: np.ndarray) -> None:
            places = places[decoded.ends[places] > after.order]
            if len(places):
                lost = Failed(error, name, decoded.ends[places], decoded.transactions[places])
                failed[name] = (*failed.get(name, ()), lost)

        for oid, name in sorted((oid, names[oid]) for oid in changed & names.keys()):
            pieces, emptied = (
                list[pgoutput.RelationRows](),
                [at for relation, at in decoded.truncated if relation.id == oid],
            )
            for piece in decoded.rows:
                if piece.relation.id == oid:
                    try:
                        with failures.of_table(name):
                            tables[name] = self._evolved(tables[name], piece.relation)
                        pieces.append(piece)
                        if renamed := self._renamed(name, piece.relation):
                            places = decoded.ends[piece.places], decoded.transactions[piece.places]
                            rewritten[name] = (*rewritten.get(name, ()), Rewritten(name, *places, renamed))
                    except LakeError as error:
                        fail(name, error, piece.places)
            try:
                with failures.of_table(name):
                    changes[name] = self._rows_of(decoded, tables[name], pieces, emptied, after)
            except LakeError as error:
                fail(name, error, np.concatenate([np.array(emptied, np.int64), *(piece.places for piece in pieces)]))
        return changes, failed, rewritten

    def _renamed(self, name: str, relation: pgoutput.Relation) -> frozenset[str]:
        """The columns that may have had other names when the rows of `relation` were logged, which lack their values:
        those that two columns exchanged since, and those that it lacks if it has others; none of them was dropped."""
        logged = [column[0] for column in relation.columns]
        renamed = _with_other_names(self._numbers[name], logged)
        if renamed:  # Perhaps renamed since the table was described.
            query = (
                "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND "
                "attgenerated = ''"
            )
            self._numbers[name] = {row[0]: row[1] for row in self._rows(query, relation.id)}
            renamed = _with_other_names(self._numbers[name], logged)
        return renamed

    def _rows_of(
        self,
        decoded: pgoutput.Decoded,
        table: SourceTable,
        pieces: list[pgoutput.RelationRows],
        emptied: list[int],
        after: Position,
    ) -> TableChanges:
        schema = table.arrow_schema
        kinds, replaced = _with_key_changes(pieces, table.key)
        places = np.concatenate([np.empty(0, np.int64), *(piece.places for piece in pieces)])
        order = np.lexsort((np.concatenate([np.empty(0, np.int64), *replaced]), places))
        order = order[decoded.ends[places[order]] > after.order]
        parts = [self._values(piece, table) for piece in pieces]
        whole = pa.concat_tables([pa.Table.from_batches([], schema), *(part for part, _ in parts)]).combine_chunks()
        codes = np.concatenate([np.empty(0, np.int8), *kinds])
        rows = whole.append_column(ROW_KIND.name, row_kinds().take(pa.array(codes)))
        if not np.array_equal(order, np.arange(len(places))):
            rows = rows.take(pa.array(order))
        unknown = {
            name: np.concatenate([part.get(name, np.zeros(table.num_rows, bool)) for table, part in parts])[order]
            for name in schema.names
            if any(name in part for _, part in parts)
        }
        places = places[order]
        last = max((at for at in emptied if decoded.ends[at] > after.order), default=None)
        truncated: tuple[Emptied, ...] = ()
        if last is not None:
            row = int(np.searchsorted(places, last))
            truncated = (Emptied(row, int(decoded.ends[last]), int(decoded.transactions[last])),)
        times, ends = decoded.committed_ms[places], decoded.ends[places]
        lacking = np.concatenate([np.empty(0, bool), *(piece.lacks_old_row for piece in pieces)])[order].any()
        return TableChanges(
            table, rows, ends, decoded.transactions[places], times, places, unknown, truncated, not lacking
        )

    def _values(self, piece: pgoutput.RelationRows, table: SourceTable) -> tuple[pa.Table, dict[str, np.ndarray]]:
        """The rows in the table's current columns,
        and per column a mask of the rows whose unchanged value the log omits."""
        indexes = {column[0]: i for i, column in enumerate(piece.relation.columns)}
        arrays, unknown = [], {}
        for field in table.fields:
            index = indexes.get(field.name)
            if index is None:
                arrays.append(pa.nulls(len(piece.places), to_arrow(field.type)))
                continue
            _, oid, modifier = piece.relation.columns[index]
            type = self._type(oid, modifier)
            arrays.append(
                self.misfits.converted(table.name, table.key, field, piece.columns[index], _converter(field, type))
            )
            same = piece.unchanged[index]
            if same is not None:
                unknown[field.name] = same
        return pa.Table.from_arrays(arrays, schema=table.arrow_schema), unknown

    def _evolved(self, table: SourceTable, relation: pgoutput.Relation) -> SourceTable:
        """The table with new columns and current types from a `Relation`."""
        fields = {field.name: field for field in table.fields}
        if gone := [name for name in table.key if name not in {column[0] for column in relation.columns}]:
            raise UnsupportedFeature(
                f"{table.name} no longer has the column {gone[0]!r} of its primary key: it was renamed or dropped; "
                "nothing is lost, take it into another table"
            )
        is_own = table.name not in self._roots  # Each partition has its own replica identity.
        if is_own and relation.identity in "di" and relation.key != set(table.key):
            raise SourceError(
                f"{table.name}: changes in the log lack the key of the rows that they replace, for its replica "
                f"identity was ({', '.join(sorted(relation.key))}) for a while; ALTER TABLE ... REPLICA IDENTITY FULL, "
                "and load the table again (restart=True)"
            )
        for name, oid, modifier in relation.columns:
            if f"{table.name}.{name}" in self._excluded:
                continue
            old = fields.get(name)
            made = self._field(table.name, name, oid, modifier, True, None)
            may_lack = is_own and relation.identity != "f" and name not in table.key  # A deleted row has only its key.
            fields[name] = made if old is None else replace(old, type=made.type, nullable=old.nullable or may_lack)
        return replace(table, fields=tuple(fields.values()))

    # --- the connection ---

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection:
        with refusals():
            # A prepared statement fails once a table that it reads was altered.
            connection = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            for name, value in _SETTINGS.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))
            return connection

    def _rows(self, query: str | sql.Composed, *values: Any) -> list[Any]:
        with refusals():
            return self._open().execute(query, values or None).fetchall()

    def _execute(self, statement: sql.Composed) -> None:
        with refusals():
            self._open().execute(statement)


@dataclass(slots=True)
class PostgresView:
    """A table in a repeatable-read transaction; `text` is its `pg_snapshot`."""

    text: str
    until: Position
    _readers: Readers
    _source: Postgres
    _table: SourceTable

    def narrowed_to(self, table: SourceTable) -> PostgresView:
        return replace(self, _table=table)

    def chunks(self, after: tuple[str, ...] | None, size: int) -> Iterator[Chunk]:
        read = partial(self._read, is_bounded=are_bounded(self._table.fields, size))
        return self._readers.chunks(after, lambda start: self._last_key(start, size), read)

    def _last_key(self, after: tuple[str, ...] | None, size: int) -> tuple[str, ...] | None:
        """The key of the last of the next `size` rows; None if no more rows follow."""
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT 2 OFFSET {}").format(
            self._key_texts(), self._name(), self._between(after, None), self._keys(), sql.Literal(size - 1)
        )
        with refusals():
            rows = self._readers.first.execute(query).fetchall()
        return tuple(rows[0]) if len(rows) == 2 else None

    def _read(
        self,
        connection: psycopg.Connection,
        after: tuple[str, ...] | None,
        upto: tuple[str, ...] | None,
        is_bounded: bool,
    ) -> Iterator[Piece]:
        columns: list[sql.Composable] = [sql.Identifier(field.name) for field in self._table.fields]
        order, limit = sql.Composed([]), 1 << 62
        if not is_bounded:  # A piece may end at any row, whose key is the bound then.
            columns.append(self._key_texts())
            order, limit = sql.SQL(" ORDER BY {}").format(self._keys()), CHUNK_BYTES
        query = sql.SQL("COPY (SELECT {} FROM {} WHERE {}{}) TO STDOUT (FORMAT csv)").format(
            sql.SQL(", ").join(columns), self._name(), self._between(after, upto), order
        )
        count = 0 if is_bounded else len(self._table.key)
        with refusals():
            data, size = bytearray(), 0
            for message in _copy(connection.pgconn, query.as_bytes(connection)):
                if message is None:
                    continue
                if len(data) >= limit:
                    yield partial(self._parsed, data, count), self._last_of(data[-size:])
                    data = bytearray()
                data += message
                size = len(message)
            yield partial(self._parsed, data, count), upto

    def _key_texts(self) -> sql.Composed:
        # If the text had the column's name, ORDER BY would sort by the text.
        return sql.SQL(", ").join(
            sql.SQL("{}::text AS {}").format(sql.Identifier(name), sql.Identifier(f"text of {name}"))
            for name in self._table.key
        )

    def _last_of(self, row: bytearray) -> tuple[str, ...]:
        """The key of a row of COPY's CSV, which its last columns are."""
        columns = _csv_columns(row, [pa.binary()] * (len(self._table.fields) + len(self._table.key)))
        return tuple(column[0].as_py().decode() for column in columns[len(self._table.fields) :])

    def _parsed(self, data: bytearray, keys: int) -> pa.Table:
        """The rows of COPY's CSV, in which `keys` columns follow the table's."""
        schema, fields = self._table.arrow_schema, self._table.fields
        if not data:
            return pa.Table.from_batches([], schema)
        types = [
            schema.field(field.name).type if postgres_types.is_parsed_by_arrow(field.type) else pa.binary()
            for field in fields
        ] + [pa.binary()] * keys
        try:
            columns = _csv_columns(data, types)
        except pa.ArrowInvalid:  # `to_values` parses more, and names the column of a value that it cannot.
            columns = _csv_columns(data, [pa.binary()] * len(types))
        misfits = self._source.misfits
        arrays = [
            column
            if column.type == schema.field(field.name).type and not pa.types.is_binary(column.type)
            else misfits.converted(self._table.name, self._table.key, field, column, _converter(field))
            for field, column in zip(fields, columns, strict=False)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _between(self, after: tuple[str, ...] | None, upto: tuple[str, ...] | None) -> sql.Composable:
        types = self._source._key_types(self._table)
        parts = [
            sql.SQL("({}) {} ({})").format(
                self._keys(), sql.SQL(sign), _typed([sql.Literal(value) for value in key], types)
            )
            for sign, key in ((">", after), ("<=", upto))
            if key is not None
        ]
        return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true")

    def _keys(self) -> sql.Composable:
        return sql.SQL(", ").join(sql.Identifier(name) for name in self._table.key)

    def _name(self) -> sql.Composable:
        return self._source._only(self._table.name)


def _converter(field: Field, type: PostgresType | None = None) -> Callable[[pa.Array], pa.Array]:
    return lambda texts: postgres_types.to_values(field.name, texts, type, field.type)


def _parts(messages: Messages, limit: int) -> list[tuple[int, int]]:
    """(first, end) of each part of the messages without the trailer: one part,
    or parts of about `limit` if there are many more."""
    ranges = messages.ranges(max(limit, len(messages)) if len(messages) <= _PARTS_FROM * limit else limit)
    *others, (first, end) = ranges
    return [*others, (first, end - 1)] if end - 1 > first or not others else others


def _read(messages: Messages, parts: Sequence[tuple[int, int]]) -> Iterator[tuple[bytearray, np.ndarray]]:
    """The bytes of each part, and where its messages begin, after their COPY headers."""
    for first, end in parts:
        data, starts = messages.read(first, end)
        starts += _COPY_FIELD
        if first == 0:
            starts[:1] += _COPY_HEADER  # The header comes with the first row, or with the trailer if there are no rows.
        yield data, starts


def _copy(connection: PGconn, query: bytes) -> Iterator[memoryview | None]:
    """The messages of COPY's output, one per row; None where it waits for the server. psycopg's own iterator takes four
    times as long. The connection cannot be used if this ends halfway."""
    next_message = connection.get_copy_data
    result: Any = connection.exec_(query)
    if result.status == ExecStatus.COPY_OUT:
        while True:
            size, message = next_message(1)
            if size > 0:
                yield message
            elif size == 0:  # No data yet: wait with the GIL released.
                yield None
                select.select([connection.socket], [], [])
                connection.consume_input()
            else:
                break
        result = connection.get_result()
        while connection.get_result() is not None:
            pass
    if result is None or result.status != ExecStatus.COMMAND_OK:
        state = b"" if result is None else result.error_field(DiagnosticField.SQLSTATE) or b""
        kind: type[psycopg.Error] = psycopg.DatabaseError
        with suppress(KeyError):  # psycopg does not know SQLSTATEs raised by user functions.
            kind = psycopg.errors.lookup(state.decode())
        raise kind(connection.get_error_message())


def _csv_columns(data: bytearray, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns of COPY's CSV, in which only null has no quotes and no characters."""
    names = [str(number) for number in range(len(types))]
    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        csv.ReadOptions(column_names=names, block_size=len(data) + 1),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    return [pa.concat_arrays(table[name].chunks) for name in names]


def _texts(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_binary(column.type):
        return [rf"\x{value.hex()}" for value in column.to_pylist()]
    texts: list[str] = column.cast(pa.string()).to_pylist()
    return texts


def _require_parsed(dsn: str) -> None:
    try:
        psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:  # Its text may show a part of the password.
        raise InvalidInput(
            "the source is not an address of PostgreSQL, or has an option that libpq does not know; give "
            "postgresql://user:password@host/database, with special characters of the password as %xx"
        ) from None


@contextmanager
def refusals() -> Iterator[None]:
    """Raise PostgreSQL's errors and broken connections as `SourceError`."""
    try:
        yield
    except psycopg.errors.ObjectInUse as error:
        raise InUse(f"another process reads the slot, and one at a time may: {error}") from error
    except psycopg.errors.ConfigurationLimitExceeded as error:
        raise SourceError(f"{error}; raise max_replication_slots, or drop a slot that nobody reads") from error
    except psycopg.Error as error:
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
            error.sqlstate is None or error.sqlstate.startswith(_LOST)
        )
        kind = Disconnected if is_lost else SourceError
        raise kind(f"PostgreSQL refused, or cannot be reached: {error}; fix that and run it again") from error


def _typed(texts: Sequence[sql.Composable], types: list[tuple[str, str | None]]) -> sql.Composable:
    """Texts cast to these types, with the collation by which their columns compare."""
    return sql.SQL(", ").join(
        sql.SQL("{}::{}{}").format(text, sql.SQL(type), sql.SQL(f" COLLATE {collation}" if collation else ""))
        for text, (type, collation) in zip(texts, types, strict=True)
    )


def _with_key_changes(
    pieces: list[pgoutput.RelationRows], key: tuple[str, ...]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The kinds of the rows, and per row 1 if it is the second row of its message, else 0. An update that changes the
    key becomes DELETE and INSERT. Omitted values are copied from the old row if it is complete."""
    kinds, seconds = (
        [piece.kinds.copy() for piece in pieces],
        [np.zeros(len(piece.places), np.int64) for piece in pieces],
    )
    for number, piece in enumerate(pieces):
        if piece.replaces is None:
            continue
        old, seconds[number] = pieces[number - 1], np.ones(len(piece.places), np.int64)
        names = [column[0] for column in piece.relation.columns]
        moved, rows = old.is_key_only[piece.replaces], pa.array(piece.replaces)
        for name in key:
            same = pc.equal(old.columns[names.index(name)].take(rows), piece.columns[names.index(name)])
            moved = moved | ~np.asarray(pc.fill_null(same, False))
        kinds[number - 1][piece.replaces[moved]] = RowKind.DELETE
        kinds[number][moved] = RowKind.INSERT
        for index, same in enumerate(piece.unchanged):
            if same is not None:
                known = same & ~old.is_key_only[piece.replaces]
                piece.columns[index] = pc.if_else(pa.array(known), old.columns[index].take(rows), piece.columns[index])
                piece.unchanged[index] = same & ~known
    return kinds, seconds


def _with_other_names(numbers: Mapping[str, int], logged: Sequence[str]) -> frozenset[str]:
    """Which columns, by their numbers, had or may have had other names among those that were `logged`, in order."""
    present = [numbers[name] for name in logged if name in numbers]
    if present != sorted(present):
        return frozenset(numbers)
    return frozenset(numbers).difference(logged) if len(present) < len(logged) else frozenset()


def _digest(files: Sequence[Any], last: int) -> str:
    """A digest of the files with oids up to `last`."""
    text = ",".join(f"{leaf}/{file}" for leaf, file, _ in files if leaf <= last)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _position(order: int) -> Position:
    return Position(order, f"{order >> 32:X}/{order & 0xFFFFFFFF:X}")
