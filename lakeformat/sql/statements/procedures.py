"""CALL: procedures of Paimon (`sys.*`) and Iceberg (`system.*`), implemented by verbs."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakeformat import arguments, clock
from lakeformat.errors import NotFound
from lakeformat.model.predicate import ALWAYS, Expression, coerce, or_, partition_equals, resolve
from lakeformat.model.snapshot import Snapshot
from lakeformat.reading import partitions
from lakeformat.sql import names, parameters, query, sources, text
from lakeformat.sql.result import Result, listing, metrics
from lakeformat.sql.session import Context
from lakeformat.sql.statements import alter, call_results, changelog, migration
from lakeformat.sql.statements.call import Call, Procedure
from lakeformat.sql.text import Cursor, Piece
from lakeformat.table import Table
from lakeformat.warehouse.functions import NOT_KEPT as NO_FUNCTIONS
from lakeformat.warehouse.functions import parse
from lakeformat.warehouse.views import NOT_KEPT


def call(context: Context, cursor: Cursor) -> Result:
    cursor.expect("CALL")
    offset = cursor.offset
    path = tuple(part.lower() for part in cursor.path())
    if len(path) < 2 or path[-2] not in _DIALECTS:
        cursor.refuse(
            f"CALL {'.'.join(path)}; write CALL sys.name(...) as in Paimon, or CALL system.name(...) as in Iceberg",
            offset,
        )
    procedures = _DIALECTS[path[-2]]
    procedure = procedures.get(path[-1])
    if procedure is None:
        cursor.refuse(f"CALL {'.'.join(path[-2:])}; supported: {', '.join(sorted(procedures))}", offset)
    assert procedure is not None
    arguments: dict[str, Any] = {}
    spellings = {parameter.replace("_", ""): parameter for parameter in procedure.parameters}

    def argument() -> None:
        here = cursor.offset
        if cursor.word(1) in ("=>", "="):
            name = cursor.part()
            cursor.at += 1
            parameter = spellings.get(name.lower().replace("_", ""))
            if parameter is None:
                raise context.script.invalid(
                    here, f"{path[-1]} has no argument {name}; it has {', '.join(procedure.parameters)}"
                )
        else:
            if len(arguments) >= len(procedure.parameters):
                raise context.script.invalid(here, f"{path[-1]} takes {', '.join(procedure.parameters)}")
            parameter = procedure.parameters[len(arguments)]
        if parameter in arguments:
            raise context.script.invalid(here, f"{path[-1]}: {parameter} is given twice")
        arguments[parameter] = _value(context, cursor.until(",", ")"))

    cursor.listed(argument)
    cursor.close()
    return procedure.run(Call(context, ".".join(path[-2:]), offset, arguments))


# --- private ----------------------------------------------------------------------------------------------------------


def _value(context: Context, piece: Piece) -> Any:
    """A constant, array(...) or map(...)."""
    node = parameters.marked(text.expression(piece))
    if isinstance(node, exp.Array):
        return [_constant(context, piece, expression) for expression in node.expressions]
    if isinstance(node, exp.VarMap | exp.Map):
        keys, values = node.args["keys"].expressions, node.args["values"].expressions
        return {_constant(context, piece, k): _constant(context, piece, v) for k, v in zip(keys, values, strict=True)}
    return _constant(context, piece, node)


def _constant(context: Context, piece: Piece, node: Any) -> Any:
    value = parameters.node_constant(node, context.params)
    return query.constant(context, piece) if value is parameters.UNKNOWN else value


def _moment(value: Any) -> Any:
    """A time argument: TIMESTAMP, its text, or milliseconds since 1970."""
    return (
        value
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime)
        else dt.datetime(value.year, value.month, value.day)
    )


def _age(call: Call, name: str, value: Any) -> dt.timedelta | None:
    """`7 d`, `24 h`, `PT24H`."""
    if value is None:
        return None
    words = str(value).strip().lower().removeprefix("p").removeprefix("t")
    number = words.rstrip("abcdefghijklmnopqrstuvwxyz ")
    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
    unit = words[len(number) :].strip()
    unit = {"min": "m", "sec": "s"}.get(unit, unit if unit == "ms" else unit[:1])
    if not number.strip().isdecimal() or unit not in units:
        raise call.context.script.invalid(
            call.offset, f"{call.name}: {name} => {value!r} is not a duration; write e.g. '7 d'"
        )
    return dt.timedelta(seconds=int(number) * units[unit])


def _ok(**values: Any) -> Result:
    kinds = {
        name: pa.bool_() if isinstance(v, bool) else pa.int64() if isinstance(v, int) else pa.string()
        for name, v in values.items()
    }
    return listing(kinds, [tuple(values.values())])


def _specs(call: Call, table: Table, text: str) -> Expression:
    """`dt=a,hh=1;dt=b` -> a condition on partition columns."""
    return or_(*map(partition_equals, _partitions(call, table, text)))


def _partitions(call: Call, table: Table, text: str) -> list[dict[str, Any]]:
    fields, specs = {field.name: field for field in table.schema.fields}, []
    for spec in filter(None, (part.strip() for part in text.split(";"))):
        values = {}
        for pair in spec.split(","):
            name, equals, value = (part.strip() for part in pair.partition("="))
            if not equals or name not in fields:
                said = f"{call.name}: {pair!r} is not a partition; write e.g. 'dt=2023-05-01'"
                raise call.context.script.invalid(call.offset, said)
            values[name] = coerce(value.strip("'\""), fields[name].type, name)
        specs.append(values)
    return specs


def _compact(call: Call) -> Result:
    table = call.table()
    specs, where, idle = call.take("partitions"), call.take("where"), call.take("partition_idle_time")
    call.no_options(("sink.parallelism", "scan.parallelism"))
    if specs and where:
        raise call.context.script.invalid(call.offset, f"{call.name} takes partitions or where, not both")
    strategy, order = str(call.take("order_strategy") or "none").lower(), call.take("order_by")
    sort_by: list[str] | None = None
    if strategy in ("order", "zorder", "hilbert") and order:
        columns = [column.strip() for column in str(order).split(",")]
        sort_by = columns if strategy == "order" else [f"{strategy}({', '.join(columns)})"]
    elif strategy != "none":
        raise call.context.script.unsupported(
            call.offset,
            f"{call.name}(order_strategy => {strategy!r}): supported are order, zorder and hilbert, with order_by",
        )
    full = str(call.take("compact_strategy") or "").lower() == "full"
    buckets = call.take("buckets")
    numbers = None if buckets is None else arguments.ranges(f"{call.name}: buckets =>", str(buckets))
    call.close()
    condition = _specs(call, table, specs) if specs else where
    if idle is not None:
        condition, full = _idle(call, table, _age(call, "partition_idle_time", idle), condition), True
    snapshot = table.compact(
        full=full,
        where=condition,
        spark=call.context.spark,
        sort_by=sort_by,
        buckets=numbers,
        **call.context.verb,
    )
    return metrics(snapshot)


def _rescale(call: Call) -> Result:
    """Rewrite partitions with another number of buckets, which becomes the table's."""
    table, count, specs = call.table(), call.whole_or_none("bucket_num"), call.take("partitions")
    call.close(("scan_parallelism", "sink_parallelism"))
    before = table.current_snapshot()
    if before is None:
        return metrics(None)
    if count is not None and str(count) != table.properties.get("bucket"):
        if count < 1:
            raise call.context.script.invalid(
                call.offset, f"{call.name}: bucket_num => {count} is not a number of buckets"
            )
        table.alter().set_properties({"bucket": str(count)}).commit()
    rows = table.scan(where=_specs(call, table, specs) if specs else None, snapshot_id=before.id)
    data = rows.to_arrow() if call.context.spark is None else rows.to_spark(call.context.spark)
    chosen = _partitions(call, table, specs) if specs else None
    if chosen is None:
        return metrics(table.overwrite(data, pinned_to=before.id, **call.context.verb))
    return metrics(table.overwrite_partitions(data, partitions=chosen, pinned_to=before.id, **call.context.verb))


def _idle(call: Call, table: Table, age: dt.timedelta | None, condition: Any) -> Expression:
    """The partitions that were not modified for this long."""
    assert age is not None
    if condition is not None:
        raise call.context.script.invalid(
            call.offset, f"{call.name} takes partition_idle_time without partitions and where"
        )
    columns = partitions.identity_columns(table.inspect.partitions(), table.inspect.partition_specs())
    limit = arguments.before(age, clock.now_ms())
    measures = table.inspect.partition_measures(columns) or {}
    idle = [values for values, row in measures.items() if row["last_modified_ms"] < limit]
    if not columns:
        return ALWAYS if idle else or_()
    return or_(*(partition_equals(dict(zip(columns, values, strict=True))) for values in idle))


def _compact_database(call: Call) -> Result:
    chosen = _matching(call, "including_databases")
    including, unwanted = _matching(call, "including_tables"), _matching(call, "excluding_tables", ".^")
    call.no_options(("sink.parallelism", "scan.parallelism"))
    call.close()
    done = []
    for name in (n for d in call.context.lake.namespaces() if chosen.fullmatch(d) for n in call.context.lake.tables(d)):
        if including.fullmatch(name) and not unwanted.fullmatch(name):
            made = call.context.lake.table(name).compact(spark=call.context.spark)
            done.append((name, None if made is None else made.id))
    return listing({"table": pa.string(), "snapshot_id": pa.int64()}, done)


def _matching(call: Call, name: str, default: str = ".*") -> re.Pattern[str]:
    pattern = str(call.take(name) or default)
    try:
        return re.compile(pattern)
    except re.error as error:
        raise call.context.script.invalid(
            call.offset, f"{call.name}: {name} => {pattern!r} is not a regular expression"
        ) from error


def _rewrite_data_files(call: Call) -> Result:
    table = call.table()
    strategy, order = str(call.take("strategy") or "binpack").lower(), call.take("sort_order")
    options = dict(call.take("options") or {})
    where = call.take("where")
    sort_by: list[str] | bool | None = None
    if strategy == "sort" or order:
        sort_by = _outer_split(str(order)) if order else True
    elif strategy != "binpack":
        raise call.context.script.unsupported(
            call.offset, f"{call.name}(strategy => {strategy!r}): supported are binpack and sort"
        )
    full = str(options.pop("rewrite-all", "false")).lower() == "true"
    least = options.pop("min-input-files", None)
    in_parts = str(options.pop("partial-progress.enabled", "false")).lower() == "true"
    most = call.whole("partial-progress.max-commits", options.pop("partial-progress.max-commits", 10))
    if options:
        raise call.context.script.unsupported(
            call.offset, f"{call.name}: option {next(iter(options))!r} is not supported"
        )
    call.close()
    settings: dict[str, Any] = {"partial_progress": True, "max_commits": most} if in_parts else {}
    settings["min_files"] = _count(call, "min-input-files", least)
    if full and table.format == "iceberg":
        settings["min_files"] = 1
    rewrite = partial(table.compact, full=full, where=where, sort_by=sort_by, spark=call.context.spark)
    return call_results.rewritten(table, partial(rewrite, **settings, **call.context.verb), call_results.DATA_FILES)


def _count(call: Call, name: str, value: Any) -> int | None:
    count = None if value is None else call.whole(name, value)
    if count is not None and count < 1:
        raise call.context.script.invalid(call.offset, f"{call.name}: {name} => {value!r} is not a number of files")
    return None if count is None else max(count, 2)  # As there, one file alone is not enough.


def _outer_split(text: str) -> list[str]:
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def _expired(call: Call, last: Any, older: Any, at_once: Any = None, ids: Any = None) -> Result:
    """`at_once`: how many snapshots may expire, oldest first; `ids`: further snapshots to expire."""
    table = call.table()
    call.close(("max_concurrent_deletes", "stream_results"))
    keep_from = None
    if at_once is not None:
        most = call.whole("max_deletes", at_once)
        if most < 0:
            raise call.context.script.invalid(call.offset, f"{call.name}: {at_once!r} is not a number of snapshots")
        keep_from = next((snapshot.id + most for snapshot in table.snapshots()), None)
    limit = None if older is None else _moment(older)
    expire = partial(
        table.expire_snapshots, retain_last=last, older_than=limit, keep_from=keep_from, snapshot_ids=ids or ()
    )
    if table.format == "iceberg":
        return call_results.expired(table, expire)
    expiry = expire()
    return _ok(expired_snapshots=len(expiry.snapshots), deleted_files=sum(len(wave) for wave in expiry.waves))


def _expire_iceberg(call: Call) -> Result:
    return _expired(call, call.take("retain_last"), call.take("older_than"), ids=call.take("snapshot_ids"))


def _expire_paimon(call: Call) -> Result:
    most, least, older = call.take("retain_max"), call.take("retain_min"), call.take("older_than")
    options = call.options()
    at_once = options.pop("snapshot.expire.limit", call.take("max_deletes"))
    call.refuse_options(options)
    if most is not None and least is not None and most != least:
        raise call.context.script.unsupported(call.offset, f"{call.name}: say retain_max or retain_min, not both")
    return _expired(call, most if most is not None else least, older, at_once)


def _orphans(call: Call) -> Result:
    tables = call.tables()
    older, dry = call.take("older_than"), bool(call.take("dry_run", False))
    settings = {"below": call.take("location")}
    call.close(("max_concurrent_deletes", "parallelism", "mode", "stream_results"))
    settings |= {} if older is None else {"older_than": _moment(older)}
    files = [file for table in tables for file in table.remove_orphan_files(dry_run=dry, **settings)]
    return listing({"orphan_file_location": pa.string()}, [(file.path,) for file in files])


def _rolled(call: Call, table: Table, **to: Any) -> Result:
    before = table.current_snapshot()
    call.close()
    made: Snapshot | None = table.rollback_to(**to, **call.context.verb)
    after = made.id if made else before.id if before else None
    return listing(
        {"previous_snapshot_id": pa.int64(), "current_snapshot_id": pa.int64()},
        [(before.id if before else None, after)],
    )


def _rollback_paimon(call: Call) -> Result:
    table, snapshot, tag = call.table(), call.whole_or_none("snapshot"), call.take("tag")
    if snapshot is not None:
        return _rolled(call, table, snapshot_id=snapshot)
    if tag is not None:
        return _rolled(call, table, tag=str(tag))
    version = str(call.need("version"))
    # A tag may be called by a number, as daily tags are, where Java takes each number for a snapshot's.
    is_tag = not version.isdecimal() or (
        version in table.inspect.tags()["tag_name"].to_pylist()
        and int(version) not in {snapshot.id for snapshot in table.snapshots()}
    )
    return _rolled(call, table, **({"tag": version} if is_tag else {"snapshot_id": int(version)}))


def _rollback_to_watermark(call: Call) -> Result:
    """Roll back to the last snapshot whose watermark is not later."""
    limit, table = call.whole("watermark", call.need("watermark")), call.table()
    snapshots = table.inspect.snapshots()
    rows = snapshots.to_pylist() if "watermark" in snapshots.column_names else []
    passed = [row["snapshot_id"] for row in rows if row["watermark"] is not None and row["watermark"] <= limit]
    if not passed:
        raise call.context.script.invalid(
            call.offset, f"{call.name}: no snapshot has a watermark of {limit} or earlier"
        )
    return _rolled(call, table, snapshot_id=max(passed))


def _tag_from_timestamp(call: Call) -> Result:
    """Tag the first snapshot after the time."""
    table, name = call.table(), str(call.need("tag"))
    after = call.whole("timestamp", call.need("timestamp"))
    retain = _age(call, "time_retained", call.take("time_retained"))
    call.close()
    later = [snapshot for snapshot in table.snapshots() if snapshot.timestamp_ms > after]
    if not later:
        raise call.context.script.invalid(call.offset, f"{call.name}: no snapshot is later than {after}")
    table.create_tag(name, later[0].id, retain)
    return listing(
        {"tagName": pa.string(), "snapshot": pa.int64(), "commit_time": pa.int64()},
        [(name, later[0].id, later[0].timestamp_ms)],
    )


def _tag_from_watermark(call: Call) -> Result:
    """Tag the first snapshot with at least this watermark."""
    table, name, watermark = call.table(), str(call.need("tag")), call.whole("watermark", call.need("watermark"))
    retain = _age(call, "time_retained", call.take("time_retained"))
    call.close()
    at = f"SQL at {call.context.script.position(call.offset)}"
    table.create_tag(name, sources.watermarked(table, watermark, at), retain)
    return _ok(result=True)


def _rename_tag(call: Call) -> Result:
    table, old, new = call.table(), str(call.need("tag")), str(call.need("target_tag"))
    call.close()
    alter.rename_tag(table, old, new)
    return _ok(result=True)


def _replace_tag(call: Call) -> Result:
    table, name, snapshot = call.table(), str(call.need("tag")), call.whole_or_none("snapshot")
    retain = _age(call, "time_retained", call.take("time_retained"))
    call.close()
    snapshot_id = table.scan(snapshot_id=snapshot).snapshot_id
    table.delete_tag(name)
    table.create_tag(name, snapshot_id, retain)
    return _ok(result=True)


def _mark_done(call: Call) -> Result:
    table, given = call.table(), str(call.need("partitions"))
    call.close()
    table.mark_partitions_done(_partitions(call, table, given))
    return _ok(result=True)


def _alter_view_dialect(call: Call) -> Result:
    """Add, update or drop a view's query in a dialect ('spark')."""
    name, action = names.full(call.context, tuple(str(call.need("view")).split("."))), str(call.need("action")).lower()
    dialect, query = str(call.take("engine") or "spark"), call.take("query")
    call.close()
    if action not in ("add", "update", "drop") or (query is None) != (action == "drop"):
        raise call.context.script.invalid(
            call.offset, f"{call.name} takes 'add' or 'update' with a query, or 'drop' without; this is {action!r}"
        )
    if not call.context.lake.views.are_kept:
        raise call.context.script.unsupported(call.offset, f"{call.name}: {NOT_KEPT}")
    call.context.lake.views.alter_dialect(name, action, dialect, query)
    return _ok(result=True)


def _create_function(call: Call) -> Result:
    """Store a function without definitions; `alter_function` adds them."""
    name = _function(call)
    inputs, returns = (_json(call, key, list) for key in ("input_params", "return_params"))
    deterministic = bool(call.take("deterministic", True))
    comment = call.take("comment")
    document = {
        "inputParams": inputs, "returnParams": returns, "deterministic": deterministic, "definitions": {},
        "comment": None if comment is None else str(comment), "options": call.options(),
    }  # fmt: skip
    call.close()
    call.context.lake.functions.create(parse(document, name))
    return _ok(result=True)


def _alter_function(call: Call) -> Result:
    name, change = _function(call), _json(call, "change", dict)
    call.close()
    call.context.lake.functions.alter(name, change)
    return _ok(result=True)


def _drop_function(call: Call) -> Result:
    name = _function(call)
    call.close()
    call.context.lake.functions.drop(name)
    return _ok(result=True)


def _function(call: Call) -> str:
    if not call.context.lake.functions.are_kept:
        raise call.context.script.unsupported(call.offset, f"{call.name}: {NO_FUNCTIONS}")
    return names.full(call.context, tuple(str(call.need("function")).split(".")))


def _json(call: Call, key: str, kind: type) -> Any:
    """An argument that is the text of a JSON array or object."""
    text = call.need(key)
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        value = None
    if not isinstance(value, kind):
        what = "array" if kind is list else "object"
        raise call.context.script.invalid(call.offset, f"{call.name}: {key} => {text!r} is not JSON {what}")
    return value


def _missing_files(call: Call) -> Result:
    tables, dry = call.tables(), bool(call.take("dry_run", False))
    call.close(("parallelism",))
    by_table = [(table, table.missing_files()) for table in tables]
    for table, missing in by_table:
        if missing and not dry:
            table.remove_missing_files(**call.context.verb)
    return listing({"file": pa.string()}, [(path,) for _, missing in by_table for path in missing])


def _purge(call: Call) -> Result:
    table = call.table()
    call.close()
    table.purge()
    return _ok(result=True)


def _clear_consumers(call: Call) -> Result:
    table, including = call.table(), _matching(call, "including_consumers")
    unwanted = _matching(call, "excluding_consumers", ".^")
    call.close()
    known = table.inspect.consumers().column(0).to_pylist()
    for name in known:
        if including.fullmatch(name) and not unwanted.fullmatch(name):
            table.drop_consumer(name)
    return _ok(result=True)


def _changelog_view(call: Call) -> Result:
    """A view of this session with the changes between two snapshots, computed once."""
    table, options = call.table(), call.options()
    name = str(call.take("changelog_view") or f"{table.name.rpartition('.')[2]}_changes")
    net, updates = bool(call.take("net_changes", False)), call.take("compute_updates")
    keys = call.take("identifier_columns")

    def number(name: str) -> int | None:
        given = options.pop(name, None)
        return None if given is None else call.whole(name, given)

    ids = [number("start-snapshot-id"), number("end-snapshot-id")]
    times = [number("start-timestamp"), number("end-timestamp")]
    if options:
        raise call.context.script.unsupported(
            call.offset, f"{call.name}: option {next(iter(options))!r} is not supported"
        )
    call.close()
    for index, time in enumerate(times):
        if time is not None:
            ids[index] = next((s.id for s in reversed(table.snapshots()) if s.timestamp_ms <= time), 0)
    if updates and not keys and not table.schema.primary_key:
        raise call.context.script.invalid(call.offset, f"{call.name} needs identifier_columns; {table.name} has no key")
    wanted = keys or (table.schema.primary_key if updates else ())
    spelled = [resolve((str(column),), table.schema.fields)[0][0] for column in wanted]
    call.context.session.views[name] = changelog.read(table, *ids, net=net, update_keys=spelled)
    return listing({"changelog_view": pa.string()}, [(name,)])


def _set_current(call: Call) -> Result:
    snapshot_id, ref = call.take("snapshot_id"), call.take("ref")
    if (snapshot_id is None) == (ref is None):
        raise call.context.script.invalid(call.offset, f"{call.name} takes snapshot_id or ref")
    return _rolled(call, call.table(), **({"snapshot_id": snapshot_id} if ref is None else {"tag": ref}))


def _create_tag(call: Call) -> Result:
    table, name, snapshot = call.table(), str(call.need("tag")), call.whole_or_none("snapshot")
    retain = _age(call, "time_retained", call.take("time_retained"))
    call.close()
    table.create_tag(name, snapshot, retain)
    return _ok(result=True)


def _delete_tag(call: Call) -> Result:
    table, given = call.table(), str(call.need("tag"))
    call.close()
    for name in given.split(","):
        table.delete_tag(name.strip())
    return _ok(result=True)


def _create_branch(call: Call) -> Result:
    table, name, tag = call.table(), str(call.need("branch")), call.take("tag")
    call.close()
    if tag is not None:
        table.create_branch(name, tag=str(tag))
        return _ok(result=True)
    try:
        table.create_branch(name, 0)  # An empty branch, as in Paimon.
    except NotFound:
        table.create_branch(name)
    return _ok(result=True)


def _delete_branch(call: Call) -> Result:
    table, given = call.table(), str(call.need("branch"))
    call.close()
    for name in given.split(","):
        table.delete_branch(name.strip())
    return _ok(result=True)


def _rename_branch(call: Call) -> Result:
    table, name, to = call.table(), str(call.need("from_branch")), str(call.need("to_branch"))
    call.close()
    table.rename_branch(name, to)
    return _ok(result=True)


def _merge_branch(call: Call) -> Result:
    table, source = call.table(), str(call.need("source_branch"))
    target = str(call.take("target_branch") or "main")
    call.close()
    return metrics(table.branch(target).merge_branch(source, **call.context.verb))


def _repair_earliest(call: Call) -> Result:
    table, snapshot_id = call.table(), call.whole("snapshot_id", call.need("snapshot_id"))
    call.close()
    before = table.repair_earliest_snapshot(snapshot_id)
    return _ok(previous_earliest_snapshot_id=before, current_earliest_snapshot_id=snapshot_id)


def _fast_forward_iceberg(call: Call) -> Result:
    table, branch, to = call.table(), str(call.need("branch")), str(call.need("to"))
    call.close()
    on = table.branch(branch)
    before = on.current_snapshot()
    on.fast_forward(to)
    after = on.current_snapshot()
    kinds = {"branch_updated": pa.string(), "previous_ref": pa.int64(), "updated_ref": pa.int64()}
    return listing(kinds, [(branch, before.id if before else None, after.id if after else None)])


def _cherrypick(call: Call) -> Result:
    table, snapshot_id = call.table(), call.whole("snapshot_id", call.need("snapshot_id"))
    call.close()
    return _published(snapshot_id, table.cherry_pick(snapshot_id))


def _publish(call: Call) -> Result:
    table, wap_id = call.table(), str(call.need("wap_id"))
    call.close()
    made = table.publish(wap_id)
    return _published(int(made.properties.get("source-snapshot-id", made.id)), made)


def _published(source: int, snapshot: Snapshot) -> Result:
    kinds = {"source_snapshot_id": pa.int64(), "current_snapshot_id": pa.int64()}
    return listing(kinds, [(source, snapshot.id)])


def _fast_forward_paimon(call: Call) -> Result:
    table, branch = call.table(), str(call.need("branch"))
    call.close()
    table.fast_forward(branch)
    return _ok(result=True)


def _rewrite_manifests(call: Call) -> Result:
    table = call.table()
    call.close(("use_caching",))
    return call_results.rewritten(table, partial(table.rewrite_manifests, **call.context.verb), call_results.MANIFESTS)


def _compact_manifest(call: Call) -> Result:
    """Merge manifests, or sort them by partition columns as Paimon's `manifest-sort.*` options ask."""
    table, dry = call.table(), call.take("dry_run")
    options = call.options()
    for option in ("enabled", "partition_field", "max_rewrite_size"):
        if (value := call.take(f"manifest_sort_{option}")) is not None:
            options[f"manifest-sort.{option.replace('_', '-')}"] = str(value)
    settings: dict[str, Any] = {}
    if options.pop("manifest-sort.enabled", "false").lower() == "true":
        field = options.pop("manifest-sort.partition-field", None)
        most = options.pop("manifest-sort.max-rewrite-size", "256 mb")
        full = options.pop("manifest-sort.force-rewrite", "false").lower() == "true"
        settings = {"sort_by": True if field is None else [field], "full": full, "max_bytes": _bytes(call, most)}
    call.refuse_options(options)
    call.close()
    if dry:
        table, _ = table.dry_run()
    return metrics(table.rewrite_manifests(**settings, **call.context.verb))


def _bytes(call: Call, text: str) -> int:
    """`256 mb`, `1gb`, `1024`."""
    match = re.fullmatch(
        r"(\d+)\s*(b|bytes|kb?|kibibytes|mb?|mebibytes|gb?|gibibytes|tb?|tebibytes)?", text.strip().lower()
    )
    if match is None:
        raise call.context.script.invalid(call.offset, f"{call.name}: {text!r} is not a size; write e.g. '256 mb'")
    return int(match[1]) << 10 * "bkmgt".index((match[2] or "b")[0])


def _rewrite_file_index(call: Call) -> Result:
    table, where = call.table(), call.take("where")
    call.close()
    made = table.rewrite_file_index(where, **call.context.verb)
    counts = (0, 0) if made is None else (len(made.partitions or ()), made.files_added)
    return listing({"written_partitions": pa.int32(), "written_indexes": pa.int32()}, [counts])


def _create_global_index(call: Call) -> Result:
    table, column, kind, specs = (
        call.table(),
        str(call.need("index_column")),
        _index_kind(call),
        call.take("partitions"),
    )
    call.no_options(_INDEX_SIZES)
    call.close()
    table.create_global_index(column, kind, _specs(call, table, specs) if specs else None, **call.context.verb)
    return _ok(result=True)


def _drop_global_index(call: Call) -> Result:
    table, column, kind, specs = (
        call.table(),
        str(call.need("index_column")),
        _index_kind(call),
        call.take("partitions"),
    )
    dry = bool(call.take("dry_run"))
    call.close()
    condition = _specs(call, table, specs) if specs else None
    gone = table.drop_global_index(column, kind, condition, dry_run=dry, **call.context.verb)
    return listing({"dropped_files": pa.int64()}, [(len(gone),)])


def _index_kind(call: Call) -> str:
    kind = str(call.need("index_type")).strip().lower()
    if kind != "btree":
        raise call.context.script.unsupported(
            call.offset, f"{call.name}: index_type => {kind!r} is not supported; supported: 'btree'"
        )
    return kind


_INDEX_SIZES = ("sorted-index.records-per-range", "sorted-index.records-per-file", "btree-index.records-per-range")


def _materialize(call: Call) -> Result:
    """Rewrite the data files that have deletion vectors, and files worth compacting with them."""
    table, specs = call.table(), call.take("partitions")
    call.close(("parallelism",))
    condition = _specs(call, table, specs) if specs else None
    return metrics(table.compact(full=True, where=condition, spark=call.context.spark, **call.context.verb))


def _automatic_tags(call: Call) -> Result:
    """Create the tags that `tag.automatic-creation` asks for, as each commit does."""
    table = call.table()
    call.close()
    table.create_automatic_tags()
    return _ok(result=True)


def _position_deletes(call: Call) -> Result:
    table, where = call.table(), call.take("where")
    options = dict(call.take("options") or {})
    full = str(options.pop("rewrite-all", "false")).lower() == "true"
    least = _count(call, "min-input-files", options.pop("min-input-files", None))
    if options:
        raise call.context.script.unsupported(
            call.offset, f"{call.name}: option {next(iter(options))!r} is not supported"
        )
    call.close()
    rewrite = partial(table.rewrite_position_deletes, full=full, where=where, spark=call.context.spark, min_files=least)
    return call_results.rewritten(table, partial(rewrite, **call.context.verb), call_results.DELETE_FILES)


def _table_stats(call: Call) -> Result:
    table, snapshot_id, columns = call.table(), call.take("snapshot_id"), call.take("columns")
    call.close()
    return listing({"statistics_file": pa.string()}, [(table.compute_table_stats(columns, snapshot_id),)])


def _partition_stats(call: Call) -> Result:
    table, snapshot_id = call.table(), call.take("snapshot_id")
    call.close()
    return listing({"partition_statistics_file": pa.string()}, [(table.compute_partition_stats(snapshot_id),)])


def _rewrite_path(call: Call) -> Result:
    table, source, target = call.table(), str(call.need("source_prefix")), str(call.need("target_prefix"))
    start, end, staging = call.take("start_version"), call.take("end_version"), call.take("staging_location")
    call.close()
    made = table.rewrite_table_path(source, target, start_version=start, end_version=end, staging=staging)
    return _ok(latest_version=made.latest, file_list_location=made.file_list)


def _register(call: Call) -> Result:
    name, location = str(call.need("table")), str(call.need("metadata_file"))
    call.close()
    table = call.context.lake.register_table(names.full(call.context, tuple(name.split("."))), location)
    snapshot = table.current_snapshot()
    return listing(
        {"current_snapshot_id": pa.int64(), "total_records_count": pa.int64(), "total_data_files_count": pa.int64()},
        [
            (snapshot.id, snapshot.total_rows, table.inspect.connector("data_files").num_rows)
            if snapshot
            else (None, None, None)
        ],
    )


def _ancestors(call: Call) -> Result:
    table, snapshot_id = call.table(), call.take("snapshot_id")
    call.close()
    snapshots = table.snapshots() if table.current_snapshot() else []
    if snapshot_id is not None:
        ids = [snapshot.id for snapshot in snapshots]
        if snapshot_id not in ids:
            raise call.context.script.invalid(
                call.offset, f"{call.name}: {snapshot_id} did not lead to the current snapshot"
            )
        snapshots = snapshots[: ids.index(snapshot_id) + 1]
    return listing(
        {"snapshot_id": pa.int64(), "timestamp": pa.int64()},
        [(snapshot.id, snapshot.timestamp_ms) for snapshot in reversed(snapshots)],
    )


def _expire_tags(call: Call) -> Result:
    """Drop tags past their retention and, with `older_than`, tags created before that time."""
    table, older = call.table(), call.take("older_than")
    call.close()
    now = dt.datetime.fromtimestamp(clock.now_ms() / 1000, dt.UTC)
    limit = None if older is None else dt.datetime.fromtimestamp(arguments.epoch_ms(_moment(older)) / 1000, dt.UTC)
    tags = [row for row in table.inspect.tags().to_pylist() if row.get("create_time") is not None]
    over = [
        row["tag_name"]
        for row in tags
        if (limit is not None and row["create_time"] < limit)
        or (row["retained_ms"] is not None and row["create_time"] + dt.timedelta(milliseconds=row["retained_ms"]) < now)
    ]
    for name in over:
        table.delete_tag(name)
    return listing({"expired_tags": pa.string()}, [(name,) for name in over])


def _expire_partitions(call: Call) -> Result:
    table = call.table()
    options = call.options()
    for argument, option in _OF_PARTITION_EXPIRY.items():
        if (value := call.take(argument)) is not None:
            options[option] = str(value)
    known = [*_OF_PARTITION_EXPIRY.values()]
    call.refuse_options({name: value for name, value in options.items() if name not in known})
    call.close()
    return metrics(table.expire_partitions(options=options, **call.context.verb))


_OF_PARTITION_EXPIRY = {
    "expiration_time": "partition.expiration-time",
    "timestamp_formatter": "partition.timestamp-formatter",
    "timestamp_pattern": "partition.timestamp-pattern",
    "expire_strategy": "partition.expiration-strategy",
    "max_expires": "partition.expiration-max-num",
}


def _drop_consumer(call: Call) -> Result:
    table, name, following = call.table(), str(call.need("consumer_id")), call.whole_or_none("next_snapshot_id")
    call.close()
    if following is None or name in table.inspect.consumers().column(0).to_pylist():
        table.drop_consumer(name)
    if following is not None:
        table.changes(following - 1, consumer=name)  # Create the consumer at this snapshot.
    return _ok(result=True)


def _repair(call: Call) -> Result:
    """Give folders of tables their names in the catalog: of 'db.t,db2', or of all."""
    given = str(call.take("database_or_table") or "")
    call.close()
    wanted = [name.strip().replace("`", "") for name in given.split(",") if name.strip()]
    return listing({"table": pa.string()}, [(name,) for name in call.context.lake.repair(*wanted)])


_ICEBERG: Mapping[str, Procedure] = {
    "rollback_to_snapshot": Procedure(
        ("table", "snapshot_id"), lambda c: _rolled(c, c.table(), snapshot_id=c.need("snapshot_id"))
    ),
    "rollback_to_timestamp": Procedure(
        ("table", "timestamp"), lambda c: _rolled(c, c.table(), as_of=_moment(c.need("timestamp")))
    ),
    "set_current_snapshot": Procedure(("table", "snapshot_id", "ref"), _set_current),
    "fast_forward": Procedure(("table", "branch", "to"), _fast_forward_iceberg),
    "cherrypick_snapshot": Procedure(("table", "snapshot_id"), _cherrypick),
    "publish_changes": Procedure(("table", "wap_id"), _publish),
    "expire_snapshots": Procedure(
        (
            "table",
            "older_than",
            "retain_last",
            "max_concurrent_deletes",
            "stream_results",
            "snapshot_ids",
            "clean_expired_metadata",
        ),
        _expire_iceberg,
    ),
    "remove_orphan_files": Procedure(
        (
            "table",
            "older_than",
            "location",
            "dry_run",
            "max_concurrent_deletes",
            "file_list_view",
            "equal_schemes",
            "equal_authorities",
            "prefix_mismatch_mode",
        ),
        _orphans,
    ),
    "rewrite_data_files": Procedure(("table", "strategy", "sort_order", "options", "where"), _rewrite_data_files),
    "rewrite_manifests": Procedure(("table", "use_caching", "spec_id", "sort_by"), _rewrite_manifests),
    "rewrite_position_delete_files": Procedure(("table", "options", "where"), _position_deletes),
    "compute_table_stats": Procedure(("table", "snapshot_id", "columns"), _table_stats),
    "compute_partition_stats": Procedure(("table", "snapshot_id"), _partition_stats),
    "rewrite_table_path": Procedure(
        ("table", "source_prefix", "target_prefix", "start_version", "end_version", "staging_location"), _rewrite_path
    ),
    "snapshot": Procedure(("source_table", "table", "location", "properties", "parallelism"), migration.snapshot),
    "migrate": Procedure(("table", "properties", "drop_backup", "backup_table_name", "parallelism"), migration.migrate),
    "register_table": Procedure(("table", "metadata_file"), _register),
    "ancestors_of": Procedure(("table", "snapshot_id"), _ancestors),
    "create_changelog_view": Procedure(
        ("table", "changelog_view", "options", "net_changes", "compute_updates", "identifier_columns"), _changelog_view
    ),
    "add_files": Procedure(
        ("table", "source_table", "partition_filter", "check_duplicate_files", "parallelism"),
        migration.add_files,
    ),
}
_PAIMON: Mapping[str, Procedure] = {
    "compact": Procedure(
        (
            "table",
            "partitions",
            "compact_strategy",
            "order_strategy",
            "order_by",
            "where",
            "options",
            "partition_idle_time",
            "buckets",
        ),
        _compact,
    ),
    "compact_manifest": Procedure(
        (
            "table",
            "options",
            "dry_run",
            "manifest_sort_enabled",
            "manifest_sort_partition_field",
            "manifest_sort_max_rewrite_size",
        ),
        _compact_manifest,
    ),
    "materialize_deletion_vectors": Procedure(("table", "partitions", "parallelism"), _materialize),
    "rewrite_file_index": Procedure(("table", "where"), _rewrite_file_index),
    "create_global_index": Procedure(
        ("table", "index_column", "index_type", "partitions", "options"), _create_global_index
    ),
    "drop_global_index": Procedure(
        ("table", "index_column", "index_type", "partitions", "dry_run"), _drop_global_index
    ),
    "trigger_tag_automatic_creation": Procedure(("table",), _automatic_tags),
    "expire_snapshots": Procedure(
        ("table", "retain_max", "retain_min", "older_than", "max_deletes", "options"), _expire_paimon
    ),
    "expire_partitions": Procedure(
        (
            "table",
            "expiration_time",
            "timestamp_formatter",
            "timestamp_pattern",
            "expire_strategy",
            "max_expires",
            "options",
        ),
        _expire_partitions,
    ),
    "expire_tags": Procedure(("table", "older_than"), _expire_tags),
    "create_tag": Procedure(("table", "tag", "snapshot", "time_retained"), _create_tag),
    "create_tag_from_timestamp": Procedure(("table", "tag", "timestamp", "time_retained"), _tag_from_timestamp),
    "create_tag_from_watermark": Procedure(("table", "tag", "watermark", "time_retained"), _tag_from_watermark),
    "rescale": Procedure(("table", "bucket_num", "partitions", "scan_parallelism", "sink_parallelism"), _rescale),
    "rename_tag": Procedure(("table", "tag", "target_tag"), _rename_tag),
    "replace_tag": Procedure(("table", "tag", "snapshot", "time_retained"), _replace_tag),
    "delete_tag": Procedure(("table", "tag"), _delete_tag),
    "rollback": Procedure(("table", "version", "snapshot", "tag"), _rollback_paimon),
    "rollback_to_watermark": Procedure(("table", "watermark"), _rollback_to_watermark),
    "remove_unexisting_files": Procedure(("table", "dry_run", "parallelism"), _missing_files),
    "compact_database": Procedure(
        ("including_databases", "including_tables", "excluding_tables", "options"), _compact_database
    ),
    "purge_files": Procedure(("table",), _purge),
    "mark_partition_done": Procedure(("table", "partitions"), _mark_done),
    "create_function": Procedure(
        ("function", "input_params", "return_params", "deterministic", "comment", "options"), _create_function
    ),
    "alter_function": Procedure(("function", "change"), _alter_function),
    "drop_function": Procedure(("function",), _drop_function),
    "alter_view_dialect": Procedure(("view", "action", "engine", "query"), _alter_view_dialect),
    "clear_consumers": Procedure(("table", "including_consumers", "excluding_consumers"), _clear_consumers),
    "rollback_to_timestamp": Procedure(
        ("table", "timestamp"), lambda c: _rolled(c, c.table(), as_of=_moment(c.need("timestamp")))
    ),
    "remove_orphan_files": Procedure(("table", "older_than", "dry_run", "parallelism", "mode"), _orphans),
    "create_branch": Procedure(("table", "branch", "tag"), _create_branch),
    "delete_branch": Procedure(("table", "branch"), _delete_branch),
    "rename_branch": Procedure(("table", "from_branch", "to_branch"), _rename_branch),
    "merge_branch": Procedure(("table", "source_branch", "target_branch"), _merge_branch),
    "repair_earliest_snapshot": Procedure(("table", "snapshot_id"), _repair_earliest),
    "fast_forward": Procedure(("table", "branch"), _fast_forward_paimon),
    "repair": Procedure(("database_or_table",), _repair),
    "migrate_table": Procedure(
        ("source_type", "table", "options", "target_table", "delete_origin", "options_map", "parallelism"),
        migration.migrate_table,
    ),
    "migrate_database": Procedure(
        ("source_type", "database", "options", "options_map", "parallelism"), migration.migrate_database
    ),
    "reset_consumer": Procedure(("table", "consumer_id", "next_snapshot_id"), _drop_consumer),
}
_DIALECTS = {"system": _ICEBERG, "sys": _PAIMON}
