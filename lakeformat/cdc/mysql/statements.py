"""Parses statements of the MySQL and MariaDB binary log: which tables they change, as far as the text tells."""

from __future__ import annotations

import re
from collections.abc import Collection

_NAME = r"(?:`(?:[^`]|``)+`|[^`\s.;,(]+)"
_WHOLE = rf"(?:(?P<schema>{_NAME})\s*\.\s*)?(?P<table>{_NAME})"
_WHOLE_NAME = re.compile(_WHOLE)
_QUALIFIED = rf"(?:{_NAME}\s*\.\s*)?{_NAME}"
_TOKEN = re.compile(
    r"""(?P<kept>`(?:[^`]|``)*`|"(?:[^"\\]|\\.|"")*")|(?P<literal>'(?:[^'\\]|\\.|'')*')|/\*M?!\d*|/\*.*?\*/|\*/|--(?=\s)[^\n]*|\#[^\n]*""",
    re.DOTALL,
)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_WHOLE}", re.IGNORECASE)
_DROP = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_DROP_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?(?P<schema>{_NAME})", re.IGNORECASE)
_CREATE = re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?!IF\s+NOT\s){_WHOLE}", re.IGNORECASE)
_RENAME = re.compile(r"RENAME\s+TABLES?\s", re.IGNORECASE)
_RENAME_PAIR = re.compile(
    rf"(?P<old>{_QUALIFIED})\s+(?:WAIT\s+\d+\s+|NOWAIT\s+)?TO\s+(?P<new>{_QUALIFIED})", re.IGNORECASE
)
_ALTER_RENAME = re.compile(
    rf"ALTER\s+(?:\w+\s+)*?TABLE\s+(?:IF\s+EXISTS\s+)?{_WHOLE}.*?[\s,]RENAME\s+(?!(?:COLUMN|INDEX|KEY)\s)",
    re.IGNORECASE | re.DOTALL,
)
# Clauses of ALTER TABLE that change values of existing rows, or bring or remove rows, without row events. DROP COLUMN
# does if a column of the same name is added, DROP PRIMARY KEY if another key identified rows meanwhile, and so did the
# actions of a dropped foreign key.
_REWRITE = re.compile(
    r"\b(?:IGNORE|MODIFY|CHANGE|CONVERT|RENAME\s+COLUMN|IMPORT|DISCARD|TRUNCATE|EXCHANGE|"
    r"DROP\s+(?!INDEX\b|KEY\b|CHECK\b|DEFAULT\b))",
    re.IGNORECASE,
)
_BOUNDARY = re.compile(
    rf"(?P<words>BEGIN|COMMIT|ROLLBACK(?:\s+TO)?|SAVEPOINT|RELEASE\s+SAVEPOINT)\b(?:\s+SAVEPOINT\b)?\s*(?P<name>{_NAME})?\s*$",
    re.IGNORECASE,
)
_ROW_CHANGE = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD)\b", re.IGNORECASE)


def plain(text: str) -> str:
    """The statement without comments and with empty literals. The content of `/*!50100 ... */` is executed, so it
    stays."""
    return _TOKEN.sub(lambda match: match["kept"] or ("''" if match["literal"] else " "), text).strip()


def verb(text: str) -> str:
    """The first word, in upper case: "ALTER"."""
    return text.split(None, 1)[0].upper().rstrip(";") if text else ""


def boundary(text: str) -> tuple[str, str] | None:
    """The statement that begins or ends a transaction or a part of one, in upper case, and the savepoint that it names;
    None for any other statement."""
    match = _BOUNDARY.match(text)
    if match is None:
        return None
    return " ".join(match["words"].upper().split()), _unquoted(match["name"] or "").casefold()


def names(text: str, table: str) -> bool:
    """Whether the statement contains the name of `table` ("database.table"), without its database."""
    name = re.escape(table.partition(".")[2].replace("`", "``"))
    return re.search(rf"(?<!\w){name}(?!\w)", text) is not None


def changes_rows(text: str) -> bool:
    """Whether the statement changes rows; with `binlog_format = ROW` the log has row events instead."""
    return _ROW_CHANGE.match(text) is not None


def rewrites(text: str) -> bool:
    """Whether an ALTER TABLE may change rows, which are not logged: by a changed column,
    or by whole partitions or files."""
    return _REWRITE.search(text) is not None


def truncated(text: str, schema: str) -> str | None:
    """The table that TRUNCATE empties."""
    match = _TRUNCATE.match(text)
    return None if match is None else _named(match, schema)


def removed(text: str, schema: str, tables: Collection[str]) -> list[str]:
    """The names that no longer refer to the same table after the statement. A name that another table takes in the same
    RENAME TABLE continues: gh-ost and pt-online-schema-change swap tables this way."""
    if match := _DROP.match(text):
        return [_named(name, schema) for name in _WHOLE_NAME.finditer(text, match.end())]
    if match := _DROP_DATABASE.match(text):
        return [table for table in tables if table.startswith(f"{_unquoted(match['schema'])}.")]
    if match := _CREATE.match(text) or _ALTER_RENAME.match(text):
        return [_named(match, schema)]
    old, new = _renamed(text, schema)
    return [table for table in old if table not in new]


def exchanged(text: str, schema: str) -> list[str]:
    """The names that RENAME TABLE gives to another table."""
    old, new = _renamed(text, schema)
    return [table for table in old if table in new]


def _renamed(text: str, schema: str) -> tuple[list[str], list[str]]:
    """The old and the new names in a RENAME TABLE."""
    match = _RENAME.match(text)
    pairs = [] if match is None else list(_RENAME_PAIR.finditer(text, match.end()))
    old, new = ([_qualified(pair[side], schema) for pair in pairs] for side in ("old", "new"))
    return old, new


def _qualified(name: str, schema: str) -> str:
    match = _WHOLE_NAME.match(name)
    assert match is not None, name
    return _named(match, schema)


def _named(match: re.Match[str], schema: str) -> str:
    return f"{_unquoted(match['schema'] or schema)}.{_unquoted(match['table'])}"


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
