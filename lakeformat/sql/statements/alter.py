"""ALTER TABLE and COMMENT ON -> alter(), branches, tags, drop_partitions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sqlglot.tokens import TokenType

from lakeformat.errors import AlreadyExists, NotFound
from lakeformat.model.partition import parse_field
from lakeformat.model.predicate import resolve
from lakeformat.sql import declare, names
from lakeformat.sql.result import Result, metrics, nothing
from lakeformat.sql.session import Context
from lakeformat.sql.statements import create, databases, insert, views
from lakeformat.sql.text import Cursor
from lakeformat.table import Table
from lakeformat.verbs.alter import Alteration

# Actions of ALTER COLUMN; any other word begins a declaration.
_ACTIONS = {"TYPE", "COMMENT", "FIRST", "AFTER", "DROP", "SET"}
_UNITS = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}


def alter(context: Context, cursor: Cursor) -> Result:
    cursor.expect("ALTER")
    if cursor.peek("VIEW"):
        return views.alter(context, cursor)
    if databases.are_next(cursor):
        return databases.alter(context, cursor)
    if not cursor.take("TABLE"):
        cursor.refuse(f"ALTER {cursor.word()}; supported: ALTER TABLE, ALTER VIEW and ALTER DATABASE")
    if_exists = cursor.take("IF EXISTS")
    offset = cursor.offset
    path = cursor.path()
    try:
        table = names.table(context, path, f"SQL at {context.script.position(offset)}")
    except NotFound:
        if if_exists:
            return nothing()
        raise
    start, word = cursor.offset, cursor.word()
    form = _FORMS.get(word)
    if form is None:
        cursor.refuse(f"ALTER TABLE ... {word}; supported: {', '.join(sorted(_FORMS))}")
    cursor.at += 1
    assert form is not None
    outcome = form(context, cursor, table, start)
    if isinstance(outcome, Result):
        return outcome
    cursor.close()
    if outcome is not None and outcome.changes:
        outcome.commit()
    return nothing()


def comment(context: Context, cursor: Cursor) -> Result:
    """COMMENT ON TABLE t IS 'text'."""
    cursor.expect("COMMENT")
    cursor.expect("ON")
    if not cursor.take("TABLE"):
        cursor.refuse(f"COMMENT ON {cursor.word()}; supported: COMMENT ON TABLE")
    at = cursor.offset
    table = names.table(context, cursor.path(), f"SQL at {context.script.position(at)}")
    cursor.expect("IS")
    said = None if cursor.take("NULL") else cursor.string()
    cursor.close()
    table.alter().set_comment(said).commit()
    return nothing()


# --- private ----------------------------------------------------------------------------------------------------------


def _column(table: Table, path: tuple[str, ...]) -> str:
    """A column's path in the table's spelling; `element`, `key` and `value` of collections stay as written."""
    try:
        return ".".join(resolve(path, table.schema.fields)[0])
    except NotFound:
        if len(path) == 1:
            raise
        return ".".join((*resolve(path[:1], table.schema.fields)[0], *path[1:]))


def _set(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    if cursor.take("TBLPROPERTIES") or cursor.peek("("):
        properties = declare.properties(cursor)
        alteration = table.alter()
        if "comment" in properties:
            alteration = alteration.set_comment(properties.pop("comment"))
        return alteration.set_properties(properties) if properties else alteration
    if cursor.take("IDENTIFIER FIELDS"):
        return table.alter().set_primary_key(_names(cursor))
    cursor.refuse(f"ALTER TABLE ... SET {cursor.word()}; supported: SET TBLPROPERTIES and SET IDENTIFIER FIELDS", start)
    return None


def _names(cursor: Cursor) -> list[str]:
    """`a, b.c`"""
    paths = [".".join(cursor.path())]
    while cursor.take(","):
        paths.append(".".join(cursor.path()))
    return paths


def _unset(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    cursor.expect("TBLPROPERTIES")
    if_exists = cursor.take("IF EXISTS")
    keys = cursor.listed(lambda: declare.key(cursor))
    missing = [key for key in keys if key not in table.properties and key != "comment"]
    if missing and not if_exists:
        raise context.script.invalid(
            start, f"{table.name} has no property {missing[0]!r}; say UNSET TBLPROPERTIES IF EXISTS"
        )
    alteration = table.alter()
    if "comment" in keys:
        alteration = alteration.set_comment(None)
    rest = [key for key in keys if key != "comment"]
    return alteration.remove_properties(*rest) if rest else alteration


def _reset(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    """Flink's RESET ('key')."""
    return table.alter().remove_properties(*cursor.listed(lambda: declare.key(cursor)))


def _add(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    if cursor.take("PARTITION FIELD"):
        text = declare.transform(cursor)
        return table.alter().add_partition_field(text, cursor.part() if cursor.take("AS") else None)
    if cursor.peek("PARTITION"):
        cursor.refuse("ADD PARTITION; a partition comes with its first row", start)
    if cursor.peek("CONSTRAINT"):
        cursor.refuse("ADD CONSTRAINT", start)
    cursor.take("COLUMNS") or cursor.take("COLUMN")
    if_not_exists = cursor.take("IF NOT EXISTS")
    if if_not_exists and cursor.peek("PARTITION ("):
        cursor.refuse("ADD PARTITION; a partition comes with its first row", start)
    if cursor.peek("("):
        declared = cursor.listed(lambda: declare.column(context, cursor))
    else:
        declared = [declare.column(context, cursor)]
        while cursor.take(","):
            declared.append(declare.column(context, cursor))
    declare.require_kept(context, table.format, [column.field for column in declared], start)
    alteration, known = table.alter(), {name.casefold() for name in table.schema.names}
    for column in declared:
        if if_not_exists and len(column.path) == 1 and column.path[0].casefold() in known:
            continue
        path = column.path
        if len(path) > 1:
            path = (*_column(table, path[:-1]).split("."), path[-1])
        alteration = alteration.add_column(
            ".".join(path),
            column.type,
            nullable=column.nullable,
            comment=column.comment,
            default=column.default,
            first=column.first,
            after=column.after,
        )
    return alteration


def _drop(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    if cursor.take("PARTITION FIELD"):
        return table.alter().drop_partition_field(_partition_field(table, declare.transform(cursor)))
    if cursor.take("IDENTIFIER FIELDS"):
        return _drop_identifier_fields(context, cursor, table, start)
    for kind in ("BRANCH", "TAG"):
        if cursor.take(kind):
            return _drop_reference(context, cursor, table, kind)
    if_exists = cursor.take("IF EXISTS")
    if cursor.peek("PARTITION"):
        return _drop_partitions(context, cursor, table)
    cursor.take("COLUMNS") or cursor.take("COLUMN")
    return _drop_columns(cursor, table, cursor.take("IF EXISTS") or if_exists)


def _drop_identifier_fields(context: Context, cursor: Cursor, table: Table, start: int) -> Alteration:
    key = table.schema.primary_key
    going = {resolve((name,), table.schema.fields)[0][0] for name in _names(cursor)}
    if strange := sorted(going - set(key)):
        raise context.script.invalid(
            start, f"{strange[0]!r} is not an identifier field of {table.name}; those are: {', '.join(key) or 'none'}"
        )
    return table.alter().set_primary_key([name for name in key if name not in going])


def _drop_partitions(context: Context, cursor: Cursor, table: Table) -> Result:
    specs = []
    while cursor.take("PARTITION"):
        specs.append(insert.partition(context, cursor, table))
        cursor.take(",")
    cursor.take("PURGE")
    cursor.close()
    return metrics(table.drop_partitions(specs, **context.verb))


def _drop_columns(cursor: Cursor, table: Table, if_exists: bool) -> Alteration:
    if cursor.peek("("):
        paths = cursor.listed(cursor.path)
    else:
        paths = [cursor.path()]
        while cursor.take(","):
            paths.append(cursor.path())
    alteration = table.alter()
    for path in paths:
        try:
            alteration = alteration.drop_column(_column(table, path))
        except NotFound:
            if not if_exists:
                raise
    return alteration


def _rename(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    if cursor.take("TO"):
        return create.rename(context, cursor, table)
    if cursor.take("COLUMN"):
        old = _column(table, cursor.path())
        cursor.expect("TO")
        return table.alter().rename_column(old, cursor.part())
    if cursor.take("TAG"):
        old = _named(cursor)
        cursor.expect("TO")
        new = _named(cursor)
        cursor.close()
        rename_tag(table, old, new)
        return nothing()
    cursor.refuse(f"RENAME {cursor.word()}; supported: RENAME TO, RENAME COLUMN and RENAME TAG", start)
    return None


def _delete(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    """Paimon's DELETE TAG [IF EXISTS] `a,b`."""
    if not cursor.take("TAG"):
        cursor.refuse(f"ALTER TABLE ... DELETE {cursor.word()}; supported: DELETE TAG", start)
    return _drop_reference(context, cursor, table, "TAG", several=True)


def rename_tag(table: Table, old: str, new: str) -> None:
    """Rename a tag; it keeps its snapshot and retention. The old name is deleted last. Raises `NotFound`,
    `AlreadyExists`."""
    tags = {row["tag_name"]: row for row in table.inspect.tags().to_pylist()}
    if old not in tags:
        raise NotFound(f"{table.name}: no tag {old!r}; there are: {', '.join(tags) or 'none'}")
    if new in tags:
        raise AlreadyExists(f"{table.name}: there is a tag {new!r} already")
    retained = tags[old]["retained_ms"]
    table.create_tag(new, tags[old]["snapshot_id"], None if retained is None else dt.timedelta(milliseconds=retained))
    table.delete_tag(old)


def _change(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    """ALTER [COLUMN] a TYPE t, and the other column actions of ALTER and CHANGE."""
    cursor.take("COLUMN")
    alteration = table.alter()
    while True:
        name = _column(table, cursor.path())
        alteration = (_changed if cursor.done or cursor.word() in _ACTIONS else _declared_anew)(
            context, cursor, table, alteration, name
        )
        while not cursor.done and not cursor.peek(","):
            alteration = _changed(context, cursor, table, alteration, name)
        if not cursor.take(","):
            return alteration


def _declared_anew(context: Context, cursor: Cursor, table: Table, alteration: Alteration, name: str) -> Alteration:
    """CHANGE COLUMN a b BIGINT COMMENT 'text' AFTER c: redeclares the column, under the same or a new name."""
    declared = declare.column(context, cursor)
    if not declared.nullable:
        cursor.refuse(f"NOT NULL of {name}: existing rows may hold nulls; write them into a new table")
    if len(declared.path) > 1:
        cursor.fail(f"expected the new name of {name}, one word")
    alteration = alteration.change_type(name, declared.type)
    alteration = alteration if declared.comment is None else alteration.change_comment(name, declared.comment)
    alteration = alteration if declared.default is None else alteration.change_default(name, declared.default)
    if declared.first or declared.after is not None:
        alteration = alteration.move_column(name, first=declared.first, after=declared.after)
    same = declared.path[0] == name.rpartition(".")[2]
    return alteration if same else alteration.rename_column(name, declared.path[0])


def _changed(context: Context, cursor: Cursor, table: Table, alteration: Alteration, name: str) -> Alteration:
    if cursor.take("TYPE"):
        return alteration.change_type(name, declare.type_(context, cursor))
    if cursor.take("COMMENT"):
        return alteration.change_comment(name, cursor.string())
    if cursor.take("FIRST"):
        return alteration.move_column(name, first=True)
    if cursor.take("AFTER"):
        return alteration.move_column(name, after=cursor.path()[-1])
    if cursor.take("DROP NOT NULL"):
        return alteration.drop_not_null(name)
    if cursor.take("SET DEFAULT"):
        piece = cursor.until(",")
        column = next((field for field in table.schema.fields if field.name == name), None)
        default = declare.default(context, piece, None if column is None else column.type)
        if column is not None:
            declare.require_kept(context, table.format, [replace(column, default=default)], piece.origin(0))
        return alteration.change_default(name, default)
    if cursor.take("DROP DEFAULT"):
        return alteration.change_default(name, None)
    if cursor.peek("SET NOT NULL"):
        cursor.refuse(f"SET NOT NULL of {name}: existing rows may hold nulls; write them into a new table")
    cursor.fail("expected TYPE, COMMENT, FIRST, AFTER, SET DEFAULT, DROP DEFAULT or DROP NOT NULL")
    return None


def _partition_field(table: Table, text: str) -> str:
    """The name of a partition field, given by name or by transform."""
    fields = table.schema.partitioning.fields
    if any(field.name == text for field in fields):
        return text
    asked = parse_field(text)
    for field in fields:
        if (field.source.casefold(), field.transform) == (asked.source.casefold(), asked.transform):
            return field.name
    there = ", ".join(f"{field.name} = {create.transform_text(field)}" for field in fields) or "none"
    raise NotFound(f"{table.name}: no partition field {text!r}; there are: {there}")


def _replace(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    if cursor.take("PARTITION FIELD"):
        old = _partition_field(table, declare.transform(cursor))
        cursor.expect("WITH")
        text = declare.transform(cursor)
        alteration = table.alter().drop_partition_field(old)
        return alteration.add_partition_field(text, cursor.part() if cursor.take("AS") else None)
    for kind in ("BRANCH", "TAG"):
        if cursor.take(kind):
            return _reference(context, cursor, table, kind, replace=True, may_create=False)
    cursor.refuse(f"ALTER TABLE ... REPLACE {cursor.word()}; supported: PARTITION FIELD, BRANCH and TAG", start)
    return None


def _write(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    """WRITE [LOCALLY] ORDERED BY, DISTRIBUTED BY PARTITION, UNORDERED: sort order and distribution of rows."""
    alteration, mode, order = table.alter(), None, None
    if cursor.take("UNORDERED"):
        mode, order = "none", []
    else:
        if cursor.take("DISTRIBUTED BY PARTITION"):
            mode = "hash"
        locally = cursor.take("LOCALLY")
        if cursor.take("ORDERED BY"):
            mode = mode or ("none" if locally else "range")
            order = _order(cursor)
        elif mode is None or locally:
            cursor.fail("expected ORDERED BY, DISTRIBUTED BY PARTITION or UNORDERED")
    if order is not None:
        alteration = alteration.set_sort_order(order)
    return alteration.set_properties({"write.distribution-mode": str(mode)})


def _order(cursor: Cursor) -> list[str]:
    parens, terms = cursor.take("("), []
    while True:
        words = [declare.transform(cursor)]
        while cursor.word() in ("ASC", "DESC", "NULLS", "FIRST", "LAST"):
            words.append(cursor.part())
        terms.append(" ".join(words))
        if not cursor.take(","):
            break
    if parens:
        cursor.expect(")")
    return terms


def _create(context: Context, cursor: Cursor, table: Table, start: int) -> Any:
    replace = cursor.take("OR REPLACE")
    for kind in ("BRANCH", "TAG"):
        if cursor.take(kind):
            return _reference(context, cursor, table, kind, replace)
    cursor.refuse(f"ALTER TABLE ... CREATE {cursor.word()}; supported: BRANCH and TAG", start)
    return None


def _named(cursor: Cursor) -> str:
    return cursor.string() if cursor.kind is TokenType.STRING else cursor.part()


def _reference(
    context: Context, cursor: Cursor, table: Table, kind: str, replace: bool, may_create: bool = True
) -> Result:
    """A branch or tag: [IF NOT EXISTS] name [AS OF VERSION n] [RETAIN n DAYS] [WITH SNAPSHOT RETENTION ...]."""
    if_not_exists = cursor.take("IF NOT EXISTS")
    start = cursor.offset
    name = _named(cursor)
    snapshot_id = cursor.number() if cursor.take("AS OF VERSION") else None
    retain = _age(cursor) if cursor.take("RETAIN") else None
    keep_snapshots = keep_younger_than = None
    if cursor.take("WITH SNAPSHOT RETENTION"):
        if cursor.word(1) == "SNAPSHOTS":
            keep_snapshots = cursor.number()
            cursor.expect("SNAPSHOTS")
        if not cursor.done:
            keep_younger_than = _age(cursor)
    cursor.close()
    names_of_kind = {"BRANCH": table.inspect.branches, "TAG": table.inspect.tags}[kind]().column(0).to_pylist()
    where = f"SQL at {context.script.position(start)}: {table.name}"
    if name in names_of_kind and if_not_exists:
        return nothing()
    if name in names_of_kind and not replace:
        raise AlreadyExists(f"{where} has a {kind.lower()} {name!r} already")
    if kind == "TAG" and (keep_snapshots or keep_younger_than):
        cursor.refuse("SNAPSHOT RETENTION of a tag; a tag is one snapshot", start)
    if replace and not may_create and name not in names_of_kind:
        raise NotFound(f"{where} has no {kind.lower()} {name!r}; use CREATE OR REPLACE")
    if kind == "TAG":
        _make_tag(table, name, snapshot_id, retain, name in names_of_kind)
    else:
        begin = partial(
            table.create_branch, name, retain=retain, keep_snapshots=keep_snapshots, keep_younger_than=keep_younger_than
        )
        _make_branch(table, name, snapshot_id, begin, name in names_of_kind)
    return nothing()


def _make_tag(table: Table, name: str, snapshot_id: int | None, retain: dt.timedelta | None, replaces: bool) -> None:
    if replaces:
        snapshot_id = table.scan(snapshot_id=snapshot_id).snapshot_id  # Raises before the tag is deleted.
        table.delete_tag(name)
    table.create_tag(name, snapshot_id, retain)


def _make_branch(
    table: Table, name: str, snapshot_id: int | None, begin: Callable[[int | None], Any], replaces: bool
) -> None:
    if replaces:
        snapshot_id = snapshot_id if snapshot_id is not None else table.scan().snapshot_id
        table.scan(snapshot_id=snapshot_id)  # Raises without a snapshot, before the branch is deleted.
        with suppress(AlreadyExists):
            begin(snapshot_id)  # Raises for invalid arguments, also before the deletion.
        table.delete_branch(name)
    begin(snapshot_id)


def _drop_reference(context: Context, cursor: Cursor, table: Table, kind: str, several: bool = False) -> Result:
    if_exists = cursor.take("IF EXISTS")
    name = _named(cursor)
    cursor.close()
    drop = table.delete_tag if kind == "TAG" else table.delete_branch
    for reference in name.split(",") if several else [name]:
        try:
            drop(reference.strip())
        except NotFound:
            if not if_exists:
                raise
    return nothing()


def _age(cursor: Cursor) -> dt.timedelta:
    """`7 DAYS`."""
    count = cursor.number()
    unit = cursor.word().removesuffix("S")
    if unit not in _UNITS:
        cursor.fail("expected DAYS, HOURS, MINUTES or SECONDS")
    cursor.at += 1
    return dt.timedelta(seconds=count * _UNITS[unit])


_FORMS = {
    "SET": _set,
    "UNSET": _unset,
    "RESET": _reset,
    "ADD": _add,
    "DROP": _drop,
    "DELETE": _delete,
    "RENAME": _rename,
    "ALTER": _change,
    "CHANGE": _change,
    "MODIFY": _change,
    "REPLACE": _replace,
    "WRITE": _write,
    "CREATE": _create,
}
