"""The reader of mysql-replication, which reads logs with statements and columns that it does not know."""

from __future__ import annotations

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent
from pymysqlreplication.exceptions import StatusVariableMismatch
from pymysqlreplication.row_event import OptionalMetaData, TableMapEvent

__all__ = ["BinLogStreamReader"]

_read_status = QueryEvent._read_status_vars_value_for_key


def _read_known_status(event: QueryEvent, key: int) -> None:
    """Read a statement's status variables up to the first one that the library does not know: its length is not recorded, so the rest is skipped.

    The library rejects the whole event (`StatusVariableMismatch`); MySQL 9.7 logs such a variable. lakeformat uses none of them.
    """
    start = event.__dict__.setdefault("_status_start", event.packet.read_bytes - 1)
    try:
        _read_status(event, key)
    except StatusVariableMismatch:
        event.packet.advance(start + event.status_vars_length - event.packet.read_bytes)


QueryEvent._read_status_vars_value_for_key = _read_known_status
_read_metadata = TableMapEvent._get_optional_meta_data


def _read_known_metadata(event: TableMapEvent) -> OptionalMetaData:
    """The columns' metadata; none if a column is of a type that the library does not know, as MariaDB's COMPRESSED, which ends the library's
    reading with a ValueError."""
    try:
        return _read_metadata(event)
    except ValueError:
        return OptionalMetaData()


TableMapEvent._get_optional_meta_data = _read_known_metadata
