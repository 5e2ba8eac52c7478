"""The table that an asset declares by its metadata and docstring, and how an input is read.

Metadata that an asset may set (see also `lakeformat.dagster.partition_keys`). A misspelt key is refused, and so is a
key by which another IO manager would change what is written:

    table             "db.name", or "name" in the resource's database; without it the asset key
    lake              the name of the resource that is the table's warehouse, "lake" unless it says otherwise; the
                      asset's IO manager is one of the same warehouse
    partition_by      maps Dagster's partitions to the table's partition columns
    partition_expr    the same where it is one column (or one per dimension), as Dagster's other IO managers call it:
                      of a timestamp the time of the partition, of a date its days, of any other type its key
    layout            the table's partition columns, where they are not those of `partition_by`, in its order
    format            "paimon" unless it says otherwise
    primary_key       a column, or a list of them
    unique_key        the same, of rows that `checks_for` checks
    unique_over       "partition" (the default): no two rows of a partition of the asset have the same `unique_key`;
                      "table": no two rows of the table
    write             how a frame changes the table (`write_mode` is the same, and may also be metadata of the output,
                      at run time):
                      "replace" (the default)  exactly the run's partitions become the frame's rows
                      "upsert"                 rows take the place of those with the same primary key
                      "merge"                  MERGE INTO, as `merge` says; the frame is the source
                      "append"                 rows are added, once for a run (with re-executions), step and partitions;
                                               a new run adds again
    merge             {"on": "t.id = s.id", "matched": [{"when": "s.op = 'cancel'", "then": "delete"},
                      {"then": "update_all"}], "not_matched": [{"then": "insert_all"}], "not_matched_by_source": [...]};
                      `then` may be a mapping of columns to expressions
    audit             True: rows go to a branch of the run, which `lakeformat.dagster.published` publishes
    maintenance       False: `maintenance` leaves the table out; or limits of its own, the fields of `Upkeep`
    table_properties  of the table
    table_evolution   what a run does where the table is not as the asset declares: another key, partitions, properties:
                      "refuse" (the default)   it fails, and names the change that would follow
                      "alter"                  it makes this change
    schema_evolution  what a frame may change about the columns that are there:
                      "refuse" (the default)   nothing, and it must have all columns
                      "add"                    new columns are added; those that it lacks become NULL
                      "widen"                  that, and types become wider
    dagster/column_schema  a `dg.TableSchema`: the descriptions of its columns become the comments of the table's
    lineage           {"column": ["upstream.column", ...], "*": "upstream"}: where each column comes from;
                      "*" is every column that is not named and comes unchanged from one upstream asset

The docstring is the table's comment. Lines after `Columns:` are the comments of its columns:

    Every order, by the day it was placed.

    Columns:
        day: The day it was placed.
        amount: In euros, without tax.
"""

import difflib
import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
import pyarrow as pa

from lakeformat import sql
from lakeformat.codec.arrow import to_arrow
from lakeformat.dagster.partition_keys import PartitionBy, check_expression, check_partition_by, columns_of
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.partition import Partitioning, TransformKind, parse_field, require_identity
from lakeformat.model.schema import Field

OVER_PARTITION, OVER_TABLE = "partition", "table"
FORMATS = ("paimon", "iceberg")
SIDES = ("t", "s")  # The table's row and the frame's, in the expressions of `merge`.
WRITES = ("replace", "upsert", "merge", "append")
EVOLUTIONS = ("refuse", "add", "widen")
TABLE_EVOLUTIONS = ("refuse", "alter")
OF_ASSETS = frozenset((
    "table", "partition_by", "partition_expr", "layout", "format", "primary_key", "write", "write_mode", "merge",
    "table_properties", "schema_evolution", "lineage", "unique_key", "unique_over", "maintenance", "audit", "publishes",
    "table_evolution", "lake",
))  # fmt: skip
OF_OTHERS: Mapping[str, str] = {  # Keys of other IO managers, and ours that replace them.
    "mode": "'write'",
    "upsert_options": "'primary_key', or 'write': 'merge'",
    "schema_update_mode": "'schema_evolution'",
    "schema_mode": "'schema_evolution'",
    "overwrite_schema": "'schema_evolution'",
    "partition_spec_update_mode": "'layout' for a new table, and Table.alter() for one that is there",
    "schema": "'table': 'db.name'",
    "root_name": "'table': 'db.name'",
    "table_name": "'table': 'db.name'",
    "pk": "'primary_key'",
    "join_cols": "'primary_key'",
    "merge_keys": "'primary_key'",
    "partition_column": "'partition_by'",
    "partition_columns": "'partition_by'",
    "partition_cols": "'partition_by'",
    "partition_keys": "'partition_by'",
    "partitioned_by": "'partition_by'",
    "partition_spec": "'layout'",
    "table_format": "'format'",
    "tblproperties": "'table_properties'",
    "columns": "the metadata of the input: dg.AssetIn(metadata={'columns': [...]})",
}
AT_RUN_TIME = ("write", "write_mode", "merge")  # Output metadata that overrides the asset's.
OF_INPUTS = frozenset(("columns", "snapshot_id", "tag", "as_of"))
EVERY_COLUMN = "*"  # In `lineage`.
LAKE = "lake"  # The resource of a table whose asset names none.
SOURCE_TABLE = "cdc/source_table"  # Of an asset that follows a table of a database, whose key it has.
ON = "on"  # The key of `merge` that has the condition.
THEN: Mapping[str, tuple[str, ...]] = {  # The clauses of `merge`, and the actions of each.
    "matched": ("update_all", "delete"),
    "not_matched": ("insert_all",),
    "not_matched_by_source": ("delete",),
}
_TABLE_NAME = re.compile(r"[^.\s/\\$]+(\.[^.\s/\\$]+)*")
_COLUMNS = re.compile(r"^Columns:\n+((?:.+(?:\n|$))+)", re.MULTILINE)
_COLUMN = re.compile(r"(?:[-*] )?`?([^\s`:]+)`?: +(.+)")


@dataclass(frozen=True, slots=True)
class AssetTable:
    """The table that an asset declares."""

    asset: dg.AssetKey
    name: str
    partitions: dg.PartitionsDefinition | None = None
    partition_by: PartitionBy | None = None
    # `partition_by` names a column for each dimension, and its type says the rest; see `settled`.
    is_expression: bool = False
    layout: tuple[str, ...] = ()
    format: str = "paimon"
    primary_key: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    write: str = "replace"
    evolution: str = "refuse"
    audit: bool = False
    descriptions: tuple[tuple[str, str], ...] = ()  # Of columns.
    merge: Mapping[str, Any] | None = None
    lineage: Mapping[str, Any] | None = None
    comment: str | None = None
    named: frozenset[str] = frozenset()  # The metadata that the asset has.
    follows: bool = False  # Whether a run changes the table where it is not as declared.


@dataclass(frozen=True, slots=True)
class Pin:
    """The version of a table to read; the current one if nothing is set."""

    snapshot_id: int | None = None
    tag: str | None = None
    as_of: str | None = None


CURRENT = Pin()


def table_name(asset: dg.AssetKey, metadata: Mapping[str, Any], database: str) -> str:
    """The table of an asset: its metadata's `table`, or else its key; in `database` if that has one part."""
    if "table" in metadata:
        name = metadata["table"]
        if not isinstance(name, str):
            raise InvalidInput(f"{asset.to_user_string()}: table={name!r}; give its name as text, 'db.name'")
        with naming(asset.to_user_string()):
            check_table_name(name)
        return name if "." in name else f"{database}.{name}"
    path = asset.path if len(asset.path) > 1 else [database, *asset.path]
    return f"{'_'.join(path[:-1])}.{path[-1]}"


def check_table_name(name: str) -> None:
    """Raise `InvalidInput` for a text that is neither 'db.name' nor 'name'."""
    if not _TABLE_NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a table name; write 'db.name', each part without spaces, slashes and $")


def lake_key(asset: dg.AssetKey, metadata: Mapping[str, Any]) -> str:
    """The name of the resource that is the warehouse of an asset's table. Raises `InvalidInput`."""
    name = metadata.get("lake", LAKE)
    if not isinstance(name, str):
        raise InvalidInput(f"{asset.to_user_string()}: lake={name!r}; name the resource, a LakeResource, as text")
    return name


def declared(
    asset: dg.AssetKey,
    name: str,
    partitions: dg.PartitionsDefinition | None,
    metadata: Mapping[str, Any],
    description: str | None = None,
) -> AssetTable:
    """The table that an asset declares by its metadata and description. Raises `InvalidInput`."""
    asset_name = asset.to_user_string()
    refuse_near(f"{asset_name}: metadata", metadata, OF_ASSETS)
    if theirs := next((key for key in metadata if key in OF_OTHERS), None):
        raise InvalidInput(f"{asset_name}: metadata {theirs!r} is another IO manager's; here it is {OF_OTHERS[theirs]}")
    partition_by, write = (
        metadata.get("partition_by"),
        _one_of(asset_name, "write", _write_of(asset_name, metadata), WRITES),
    )
    expression = metadata.get("partition_expr") if partitions is not None and partition_by is None else None
    evolution = _one_of(asset_name, "schema_evolution", str(metadata.get("schema_evolution", "refuse")), EVOLUTIONS)
    merge = metadata.get("merge")
    if (write == "merge") != (merge is not None):
        raise InvalidInput(f"{asset_name}: 'merge' says how to merge where write is 'merge', and only there")
    if merge is not None:
        _check_merge(asset_name, merge)
    if partitions is not None and partition_by is None and expression is None and write == "replace":
        raise InvalidInput(
            f"{asset_name} has partitions, but its metadata has no 'partition_by' that says which columns "
            f"of {name} they are, e.g. metadata={{'partition_by': {{'date': 'dt'}}}}"
        )
    mapping = next((key for key in ("partition_by", "partition_expr") if key in metadata), None)
    if mapping is not None and partitions is None and write == "replace":
        raise InvalidInput(
            f"{asset_name}: {mapping!r} maps Dagster's partitions onto columns, and the asset has no partitions_def, "
            f"so that each run would replace all of {name}; give it one, or write 'layout': [...] for a table with "
            "partitions that is replaced whole"
        )
    with naming(asset_name):
        if partition_by is not None:
            check_partition_by(partitions, partition_by)
        if expression is not None:
            check_expression(partitions, expression)
    if write == "upsert" and not metadata.get("primary_key") and SOURCE_TABLE not in metadata:
        raise InvalidInput(f"{asset_name}: write='upsert' replaces rows of the same key; declare 'primary_key': [...]")
    if not names_of(asset_name, metadata, "unique_key") and "unique_over" in metadata:
        raise InvalidInput(
            f"{asset_name}: 'unique_over' says where 'unique_key' is unique; declare 'unique_key': [...]"
        )
    lake_key(asset, metadata)
    unique_over(asset_name, metadata)
    maintenance_limits(asset_name, metadata)
    format = _one_of(asset_name, "format", str(metadata.get("format", "paimon")), FORMATS)
    layout = names_of(asset_name, metadata, "layout")
    _check_layout(asset_name, layout, partition_by, metadata)
    comment, described = described_by(description or "")
    return AssetTable(
        asset=asset,
        name=name,
        partitions=partitions,
        partition_by=partition_by if expression is None else expression,
        is_expression=expression is not None,
        layout=layout or (columns_of(partition_by, windows=False) if partition_by else ()),
        format=format,
        primary_key=names_of(asset_name, metadata, "primary_key"),
        properties=_properties(asset_name, metadata),
        write=write,
        evolution=evolution,
        audit=_flag(asset_name, metadata, "audit"),
        descriptions=tuple({**dict(described), **_schema_descriptions(metadata)}.items()),
        merge=merge,
        lineage=_lineage(asset_name, metadata),
        comment=None if "publishes" in metadata else comment or None,
        named=frozenset(metadata),
        follows=_one_of(asset_name, "table_evolution", str(metadata.get("table_evolution", "refuse")), TABLE_EVOLUTIONS)
        == "alter",
    )


def at_run_time(metadata: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    """An asset's metadata, overridden by the metadata of its output."""
    asked = {name: output[name] for name in AT_RUN_TIME if name in output}
    plain = {name: value.value if isinstance(value, dg.MetadataValue) else value for name, value in asked.items()}
    return {name: value for name, value in metadata.items() if not (asked and name in AT_RUN_TIME)} | plain


def settled(of: AssetTable, fields: Iterable[Field]) -> AssetTable:
    """`of` with a complete `partition_by`: a `partition_expr` leaves the mapping to the types of `fields`."""
    if not of.is_expression:
        return of
    types = {field.name: to_arrow(field.type) for field in fields}
    partition_by = _by_types(of, of.partition_by, of.partitions, types)
    layout = of.layout or columns_of(partition_by, windows=False)
    return replace(of, partition_by=partition_by, is_expression=False, layout=layout)


def pin_of(subject: str, metadata: Mapping[str, Any]) -> tuple[Pin, list[str] | None]:
    """The version and the columns that an input's metadata asks for; None for all columns."""
    if unknown := [name for name in metadata if name not in OF_INPUTS and "/" not in name]:
        near = difflib.get_close_matches(unknown[0], sorted(OF_INPUTS), 1) or sorted(OF_INPUTS)
        raise InvalidInput(
            f"{subject}: input metadata {unknown[0]!r} means nothing here; did you mean {', '.join(near)}?"
        )
    columns = metadata.get("columns")
    if columns is not None and (isinstance(columns, str) or not all(isinstance(name, str) for name in columns)):
        raise InvalidInput(f"{subject}: columns={columns!r}; give a list of names, e.g. ['id', 'dt']")
    pin = Pin(**{name: metadata[name] for name in ("snapshot_id", "tag", "as_of") if name in metadata})
    return pin, None if columns is None else list(columns)


def refuse_near(subject: str, names: Iterable[str], known_names: Collection[str]) -> None:
    """Raise `InvalidInput` for a misspelt name; names with a slash belong to others."""
    for name in names:
        near = (
            [] if name in known_names or "/" in name else difflib.get_close_matches(name, sorted(known_names), 1, 0.75)
        )
        if near:
            raise InvalidInput(f"{subject}: {name!r} means nothing here; did you mean {near[0]!r}?")


def names_of(subject: str, metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The column or columns that the metadata `key` names. Raises `InvalidInput`."""
    names = metadata.get(key) or ()
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"{subject}: {key}={names!r}; name a column, or a list of them")
    if len(set(names)) < len(names):
        raise InvalidInput(f"{subject}: {key}={names!r} names a column twice; name each once")
    return tuple(names)


@contextmanager
def naming(subject: str) -> Iterator[None]:
    """Name the subject of an error."""
    try:
        yield
    except LakeError as error:
        raise InvalidInput(f"{subject}: {error}") from error


def maintenance_limits(subject: str, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The limits of its own that an asset's metadata gives its maintenance. Raises `InvalidInput`."""
    limits = metadata.get("maintenance", {})
    if isinstance(limits, Mapping):
        return limits
    if not isinstance(limits, bool):
        raise InvalidInput(
            f"{subject}: maintenance={limits!r}; give limits of its own, e.g. {{'max_small_files': 4}}, or False"
        )
    return {}


def upstream_of(lineage: Mapping[str, Any] | None) -> list[str]:
    """The asset keys that a declared lineage names."""
    texts = {name: [several] if isinstance(several, str) else several for name, several in (lineage or {}).items()}
    return list(dict.fromkeys(
        text if name == EVERY_COLUMN else text.rpartition(".")[0] for name, several in texts.items() for text in several
    ))  # fmt: skip


def unique_over(subject: str, metadata: Mapping[str, Any]) -> str:
    """Where the metadata's `unique_key` is unique: in each partition, or in the table. Raises `InvalidInput`."""
    return _one_of(
        subject, "unique_over", str(metadata.get("unique_over", OVER_PARTITION)), (OVER_PARTITION, OVER_TABLE)
    )


def described_by(description: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The comments of the table, and of its columns (after a line `Columns:`), in a description."""
    text = inspect.cleandoc(description)
    section = _COLUMNS.search(text)
    comments: list[tuple[str, str]] = []
    for line in textwrap.dedent(section[1]).splitlines() if section else ():
        if column := _COLUMN.fullmatch(line):
            comments.append((column[1], column[2]))
        elif comments:  # A continued line.
            name, before = comments.pop()
            comments.append((name, f"{before} {line.strip()}"))
    if section is None or not comments:
        return text, ()
    rest = text[: section.start()].rstrip() + "\n\n" + text[section.end() :].lstrip()
    return rest.strip(), tuple(comments)


def with_column_schema(spec: dg.AssetSpec) -> dg.AssetSpec:
    """A spec whose description has no `Columns:`: its columns are metadata `dagster/column_schema`, so that an asset's
    page shows each column's comment once, in the table of columns, and not in the description too. Use it by
    `defs.map_asset_specs(func=with_column_schema)`, or on one asset."""
    description, comments = described_by(spec.description or "")
    if not comments:
        return spec
    described = {**dict(comments), **_schema_descriptions(spec.metadata)}
    # The types are those of the last run, which Dagster shows.
    schema = dg.TableSchema([dg.TableColumn(name, "", description=text) for name, text in described.items()])
    return spec.replace_attributes(description=description, metadata={**spec.metadata, "dagster/column_schema": schema})


def option_text(value: Any) -> str:
    """A table option as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- private ----------------------------------------------------------------------------------------------------------


def _by_types(
    of: AssetTable, expression: Any, definition: dg.PartitionsDefinition | None, types: Mapping[str, pa.DataType]
) -> dict[str, Any]:
    if isinstance(definition, dg.MultiPartitionsDefinition) and isinstance(expression, Mapping):
        inner = {partitions_def.name: partitions_def.partitions_def for partitions_def in definition.partitions_defs}
        return {name: _by_types(of, column, inner.get(name), types) for name, column in expression.items()}
    if not isinstance(expression, str) or expression not in types:
        raise InvalidInput(
            f"{of.asset.to_user_string()}: partition_expr={expression!r}; name a column (of {', '.join(types)}), or "
            "map each dimension to one; other expressions are for `partition_by` and hidden partitions"
        )
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        if pa.types.is_timestamp(types[expression]):
            return {"window": expression}
        if pa.types.is_date(types[expression]):
            return {"days": expression}
    return {"key": expression}


def _schema_descriptions(metadata: Mapping[str, Any]) -> dict[str, str]:
    columns = metadata.get("dagster/column_schema")
    schema = columns.schema if isinstance(columns, dg.TableSchemaMetadataValue) else columns
    if schema is None:
        return {}
    if not isinstance(schema, dg.TableSchema):
        raise InvalidInput(f"'dagster/column_schema' is {type(schema).__name__}; give a dg.TableSchema")
    return {column.name: column.description for column in schema.columns if column.description}


def _write_of(subject: str, metadata: Mapping[str, Any]) -> str:
    declared = {name: str(metadata[name]) for name in ("write", "write_mode") if name in metadata}
    if len(set(declared.values())) > 1:
        raise InvalidInput(f"{subject}: {declared} do not agree; say one of them")
    return next(iter(declared.values()), "replace")


def _one_of(subject: str, key: str, value: str, choices: Collection[str]) -> str:
    if value not in choices:
        raise InvalidInput(f"{subject}: {key}={value!r}; it must be one of {', '.join(choices)}")
    return value


def _check_layout(subject: str, layout: Sequence[str], partition_by: Any, metadata: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for a layout that no table of the format has, and for one whose partitions are not by the
    columns of `partition_by`."""
    with naming(subject):
        partitioning = Partitioning(tuple(parse_field(text, "layout") for text in layout))
        if metadata.get("format") == "paimon":
            require_identity(partitioning, "paimon")
    plain = [field.source for field in partitioning.fields if field.transform.kind is TransformKind.IDENTITY]
    for name in columns_of(partition_by, windows=False) if layout and partition_by else ():
        if name in plain:
            continue
        advice = (
            f"map the partition's time onto it: {{'window': {name!r}}}" if name in partitioning.sources else "add it"
        )
        raise InvalidInput(
            f"{subject}: layout={list(layout)} is not by the values of {name}, which partition_by names; {advice}, or "
            "leave out 'layout'"
        )


def _properties(subject: str, metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    properties = _mapping(subject, metadata, "table_properties")
    for name, value in properties.items():
        if not (isinstance(name, str) and name and isinstance(value, str | bool | int | float)):
            raise InvalidInput(f"{subject}: table_properties={{{name!r}: {value!r}}}; give names and values as text")
    return tuple(sorted((name, option_text(value)) for name, value in properties.items()))


def _lineage(subject: str, metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    lineage = _mapping(subject, metadata, "lineage")
    for name, several in lineage.items():
        if name == EVERY_COLUMN:
            is_known = isinstance(several, str) and bool(several)
            form = "the asset from which all other columns come unchanged, 'orders'"
        else:
            is_known = (
                isinstance(several, Sequence)
                and not isinstance(several, str)
                and all(isinstance(text, str) and all(text.rpartition(".")[::2]) for text in several)
            )
            form = "the columns that it comes from, ['orders.amount']"
        if not is_known:
            raise InvalidInput(f"{subject}: lineage={{{name!r}: {several!r}}}; give {form}")
    return lineage or None


def _mapping(subject: str, metadata: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    mapping = metadata.get(key) or {}
    if not isinstance(mapping, Mapping):
        raise InvalidInput(f"{subject}: {key}={mapping!r}; give a mapping")
    return mapping


def _flag(subject: str, metadata: Mapping[str, Any], key: str) -> bool:
    flag = metadata.get(key, False)
    if not isinstance(flag, bool):
        raise InvalidInput(f"{subject}: {key}={flag!r}; give True or False")
    return flag


def _check_merge(subject: str, merge: Any) -> None:
    """Raise `InvalidInput` for a `merge` of another shape, whose clauses or conditions would otherwise be ignored."""
    wrong = f"{subject}: merge="
    if not isinstance(merge, Mapping) or not isinstance(merge.get(ON), str):
        raise InvalidInput(f"{wrong}{merge!r}; it has a condition, 'on': 't.id = s.id', and clauses")
    with naming(f"{wrong}{{{ON!r}: ...}}"):
        sql.expression(merge[ON], SIDES)
    if not any(clauses for kind, clauses in merge.items() if kind != ON):
        raise InvalidInput(
            f"{wrong}{merge!r} has no clause, and would change nothing; its clauses are {', '.join(THEN)}"
        )
    for kind, clauses in merge.items():
        if kind == ON:
            continue
        if kind not in THEN:
            raise InvalidInput(f"{wrong}{{{kind!r}: ...}}; its clauses are {', '.join(THEN)}")
        if isinstance(clauses, str | Mapping) or not isinstance(clauses, Collection):
            raise InvalidInput(f"{wrong}{{{kind!r}: {clauses!r}}}; give a list of clauses")
        for clause in clauses:
            _check_clause(f"{wrong}{{{kind!r}: [{clause!r}]}}", clause, THEN[kind])


def _check_clause(subject: str, clause: Any, named: tuple[str, ...]) -> None:
    if not isinstance(clause, Mapping) or "then" not in clause or not clause.keys() <= {"when", "then"}:
        raise InvalidInput(f"{subject}; a clause has 'then', and 'when' where it has a condition")
    then = clause["then"]
    if not (isinstance(then, Mapping) and then) and then not in named:
        raise InvalidInput(f"{subject}; 'then' is {' or '.join(map(repr, named))}, or maps columns to expressions")
    with naming(subject):
        if "when" in clause:
            sql.expression(clause["when"], SIDES)
        for value in then.values() if isinstance(then, Mapping) else ():
            if isinstance(value, str):
                sql.expression(value, SIDES)
