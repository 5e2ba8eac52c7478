"""The merge engine of a table with a primary key, as its options define it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace

from lakeformat.dialects.paimon import options
from lakeformat.dialects.paimon.options import SEQUENCE_GROUP, TableOptions, boolean, integer, names
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, Row, Scalar, Schema, Type
from lakeformat.model.work import Aggregation, MergeEngine, MergeSpec, NullKeys, SequenceGroup


def kind_column(schema: Schema, where: str) -> str | None:
    """`rowkind.field`: the column of row kinds. Raises `InvalidInput`."""
    columns = options.read(schema).rowkind_field
    if len(columns) > 1:
        raise InvalidInput(f"{where}: rowkind.field names {', '.join(columns)}; only one column can hold the row kind")
    _require_columns(schema, columns, "rowkind.field", where)
    return columns[0] if columns else None


def merging(schema: Schema, where: str) -> MergeSpec:
    """The merge that the options of a table with a primary key define. Raises `InvalidInput` for invalid options, and
    `UnsupportedFeature` for unknown functions (SchemaValidation, *MergeFunction.Factory)."""
    table_options = options.read(schema)
    engine = _merge_engine(table_options, where)
    sequence = table_options.sequence_field
    _require_columns(schema, sequence, "sequence.field", where)
    if repeated := [name for name in sequence if sequence.count(name) > 1]:
        raise InvalidInput(f"{where}: sequence.field names {repeated[0]!r} twice")
    producer = table_options.changelog_producer
    if engine is MergeEngine.FIRST_ROW and producer not in {"none", "lookup"}:
        raise InvalidInput(f"{where}: merge engine 'first-row' has changelog-producer none or lookup, not {producer}")
    if engine is MergeEngine.FIRST_ROW and sequence:
        raise InvalidInput(f"{where}: merge engine 'first-row' keeps the first row that came; it has no sequence.field")
    groups = _groups(schema, where) if engine is MergeEngine.PARTIAL_UPDATE else ()
    ignore = table_options.ignore_delete
    removing = f"{engine}.remove-record-on-delete"
    remove = engine in {MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION} and _flag(schema, removing)
    aggregations = (
        _aggregations(schema, engine, sequence, groups, where)
        if engine in {MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION}
        else ()
    )
    for clashes, with_what in (
        (ignore and remove, "ignore-delete"),
        (
            remove
            and any(aggregation.ignore_retract for aggregation in aggregations)
            and engine is MergeEngine.AGGREGATION,
            "ignore-retract",
        ),
        (remove and groups, "a sequence-group"),
    ):
        if clashes:
            raise InvalidInput(f"{where}: {removing} and {with_what} contradict each other; set one of them only")
    if ignore and any(group.removes_record for group in groups):
        raise InvalidInput(
            f"{where}: ignore-delete and partial-update.remove-record-on-sequence-group contradict each other; "
            "set one of them only"
        )
    return MergeSpec(
        key=tuple(name for name in schema.primary_key if name not in schema.partitioning.names),
        engine=engine,
        sequence=sequence,
        is_ascending=table_options.sequence_field_sort_order == "ascending",
        ignore_delete=ignore,
        remove_on_delete=remove,
        aggregations=aggregations,
        groups=groups,
        partition=schema.partitioning.names,
    )


def _merge_engine(table_options: TableOptions, where: str) -> MergeEngine:
    name = table_options.merge_engine
    try:
        return MergeEngine(name)
    except ValueError:
        raise UnsupportedFeature(f"{where}: merge engine {name!r}; supported: {', '.join(MergeEngine)}") from None


def _flag(schema: Schema, key: str) -> bool:
    """An option that is on or off, whose key contains an engine or a column; off by default."""
    return key in schema.properties and boolean(key, schema.properties[key])


def _names(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    return names(key, properties.get(key, ""))


def _groups(schema: Schema, where: str) -> tuple[SequenceGroup, ...]:
    properties = schema.properties
    removing = options.read(schema).partial_update_remove_record_on_sequence_group
    groups: list[SequenceGroup] = []
    taken: dict[str, str] = {}
    for key in sorted(properties):
        if not key.startswith("fields.") or not key.endswith(SEQUENCE_GROUP):
            continue
        sequence = tuple(name.strip() for name in key[len("fields.") : -len(SEQUENCE_GROUP)].split(","))
        columns = _names(properties, key)
        for name in (*sequence, *columns):
            _require_columns(schema, (name,), key, where)
            if name in schema.primary_key:
                raise InvalidInput(f"{where}: {key} names {name!r}, which is in the primary key")
            if name in taken:
                raise InvalidInput(f"{where}: column {name!r} is in two sequence groups: {taken[name]} and {key}")
            taken[name] = key
        groups.append(SequenceGroup(sequence, columns, bool({*sequence} & {*removing})))
    if outside := [name for name in removing if all(name not in group.sequence for group in groups)]:
        raise InvalidInput(
            f"{where}: partial-update.remove-record-on-sequence-group names {outside[0]!r}, "
            "which orders no sequence-group"
        )
    return tuple(groups)


def _aggregations(
    schema: Schema, engine: str, sequence: tuple[str, ...], groups: tuple[SequenceGroup, ...], where: str
) -> tuple[Aggregation, ...]:
    properties, aggregations = schema.properties, []
    grouped = {name for group in groups for name in group.columns}
    ordering = {*(name for group in groups for name in group.sequence)}
    # Where keys change partitions, rows of one partition have the same in its columns.
    # A sequence field may be in a group.
    unordered = {*ordering, *schema.primary_key, *schema.partitioning.names}
    unordered |= {*sequence} if engine is MergeEngine.AGGREGATION else set()
    for key in properties:
        column = key[len("fields.") : -len(".aggregate-function")]
        if key.startswith("fields.") and key.endswith(".aggregate-function"):
            _require_columns(schema, (column,), key, where)
            if column in sequence:
                raise InvalidInput(f"{where}: {key}: {column!r} is in sequence.field, which is never aggregated")
            if column in ordering:
                raise InvalidInput(f"{where}: {key}: {column!r} orders a sequence-group, which is never aggregated")
    for field in schema.fields:
        prefix = f"fields.{field.name}"
        own = properties.get(f"{prefix}.aggregate-function")
        function = own or properties.get("fields.default-aggregate-function")
        if function is None or field.name in unordered:
            continue
        function = _FUNCTION_NAMES.get(function.strip(), function.strip())
        _require_function(function, field, where)
        if engine is MergeEngine.PARTIAL_UPDATE and field.name not in grouped:
            if function != "last_non_null_value":
                raise InvalidInput(
                    f"{where}: column {field.name!r} has the aggregate function {function!r} and no sequence group; "
                    "with merge engine 'partial-update' name it in a 'fields.<sequence column>.sequence-group'"
                )
            continue
        distinct = _flag(schema, f"{prefix}.distinct") and function in {"listagg", "collect"}
        delimiter = properties.get(f"{prefix}.list-agg-delimiter", ",")
        if distinct and function == "listagg" and not delimiter:
            raise InvalidInput(f"{where}: {prefix}.list-agg-delimiter is empty; distinct parts need one")
        ignores = _flag(schema, f"{prefix}.ignore-retract")
        rule = Aggregation(field.name, function, ignores, distinct, delimiter)
        if function in _NESTED:
            rule = _nested(rule, field, properties, where)
        elif function == "merge_map_with_keytime":
            rule = replace(rule, time=_time(field, properties, where))
        aggregations.append(rule)
    return tuple(aggregations)


def _nested(rule: Aggregation, field: Field, properties: Mapping[str, str], where: str) -> Aggregation:
    """`rule` with the nested-row options."""
    prefix = f"fields.{field.name}"
    key = _names(properties, f"{prefix}.nested-key")
    null_keys = properties.get(f"{prefix}.nested-key-null-strategy")
    sequence: tuple[str, ...] = ()
    limit = None
    if rule.function == "nested_update":
        sequence = _names(properties, f"{prefix}.nested-sequence-field")
        count = f"{prefix}.count-limit"
        limit = integer(count, properties[count]) if count in properties else None
    inner = {part.name: part.type for part in field.type.element.type.fields}  # type: ignore[union-attr]  # A list of rows, checked before.
    for option, columns in (("nested-key", key), ("nested-sequence-field", sequence)):
        for name in columns:
            if name not in inner:
                raise InvalidInput(f"{where}: {prefix}.{option} names {name!r}, which {field.type} does not have")
            if not isinstance(inner[name], Scalar):
                raise InvalidInput(
                    f"{where}: {prefix}.{option} names {name!r}, which is {inner[name]}; it takes plain values"
                )
    asks = [f"{prefix}.nested-sequence-field"] * bool(sequence) + [f"{prefix}.nested-key-null-strategy"] * bool(
        null_keys
    )
    asks += ["nested_partial_update"] * (rule.function == "nested_partial_update")
    if asks and not key:
        raise InvalidInput(f"{where}: column {field.name!r}: {asks[0]} needs {prefix}.nested-key")
    if limit is not None and limit < 0:
        raise InvalidInput(f"{where}: {prefix}.count-limit is {limit}; it counts rows from 0")
    try:
        kind = NullKeys((null_keys or "merge").strip().lower())
    except ValueError:
        raise InvalidInput(
            f"{where}: {prefix}.nested-key-null-strategy is {null_keys!r}; it is 'merge', 'ignore' or 'error'"
        ) from None
    return replace(rule, nested_key=key, nested_sequence=sequence, null_keys=kind, limit=limit)


def _time(field: Field, properties: Mapping[str, str], where: str) -> str:
    """The column that says how new each row of a map is: `ts-field`, or the last one
    (FieldMergeMapWithKeyTimeAggFactory)."""
    key, inner = f"fields.{field.name}.ts-field", field.type.value.type.fields  # type: ignore[union-attr]  # A map of rows, checked before.
    name = properties.get(key, inner[-1].name)
    time = next((part for part in inner if part.name == name), None)
    if time is None:
        raise InvalidInput(f"{where}: {key} names {name!r}, which {field.type} does not have")
    if not _is_text(time.type):
        raise InvalidInput(
            f"{where}: column {field.name!r}: merge_map_with_keytime compares {name!r}, which is {time.type}; it takes "
            f"text. Name another column of {field.type} in {key}"
        )
    return name


def _require_function(function: str, field: Field, where: str) -> None:
    if function not in _FUNCTIONS:
        near = difflib.get_close_matches(function, _FUNCTIONS, 1)
        raise InvalidInput(
            f"{where}: column {field.name!r}: unknown aggregate function {function!r}; "
            f"{f'did you mean {near[0]!r}' if near else 'supported: ' + ', '.join(_FUNCTIONS)}"
        )
    types, fits = _FUNCTIONS[function]
    if not fits(field.type):
        raise InvalidInput(
            f"{where}: column {field.name!r} is {field.type}; aggregate function {function!r} takes {types}"
        )
    match field.type:
        case Scalar(Kind.DECIMAL, (digits, _)) if function == "product" and digits > 37:
            raise UnsupportedFeature(
                f"{where}: column {field.name!r}: the product of {field.type}: not supported; at most 37 digits"
            )


def _require_columns(schema: Schema, columns: tuple[str, ...], option: str, where: str) -> None:
    """Raise `InvalidInput` for an option with the name of a column that does not exist."""
    for name in columns:
        if name not in schema.names:
            raise InvalidInput(
                f"{where}: {option} names {name!r}, which is not a column; there are {', '.join(schema.names)}"
            )


def _is_scalar(*kinds: Kind) -> Callable[[Type], bool]:
    return lambda type: isinstance(type, Scalar) and (not kinds or type.kind in kinds)


def _is_list_of_rows(type: Type) -> bool:
    return isinstance(type, ListOf) and isinstance(type.element.type, Row)


def _is_map_of_rows(type: Type) -> bool:
    return isinstance(type, MapOf) and isinstance(type.value.type, Row) and len(type.value.type.fields) > 1


_is_text = _is_scalar(Kind.STRING, Kind.VARCHAR)
_NESTED = ("nested_update", "nested_partial_update")
_NUMBERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_FUNCTION_NAMES = {"first_not_null_value": "first_non_null_value"}  # Java's older spelling.
# Function -> (what it takes, whether a type is that).
_FUNCTIONS: dict[str, tuple[str, Callable[[Type], bool]]] = {
    "sum": ("numbers", _is_scalar(*_NUMBERS)),
    "product": ("numbers", _is_scalar(*_NUMBERS)),
    "max": ("plain values", _is_scalar()),
    "min": ("plain values", _is_scalar()),
    "last_value": ("any type", lambda type: True),
    "last_non_null_value": ("any type", lambda type: True),
    "first_value": ("any type", lambda type: True),
    "first_non_null_value": ("any type", lambda type: True),
    "listagg": ("text", _is_text),
    "bool_and": ("booleans", _is_scalar(Kind.BOOLEAN)),
    "bool_or": ("booleans", _is_scalar(Kind.BOOLEAN)),
    "collect": ("arrays", lambda type: isinstance(type, ListOf)),
    "merge_map": ("maps", lambda type: isinstance(type, MapOf)),
    "merge_map_with_keytime": ("maps of rows of two columns or more", _is_map_of_rows),
    "nested_update": ("arrays of rows", _is_list_of_rows),
    "nested_partial_update": ("arrays of rows", _is_list_of_rows),
    "rbm32": ("bytes", _is_scalar(Kind.BYTES, Kind.VARBINARY)),
    "rbm64": ("bytes", _is_scalar(Kind.BYTES, Kind.VARBINARY)),
    "hll_sketch": ("bytes", _is_scalar(Kind.BYTES, Kind.VARBINARY)),
    "theta_sketch": ("bytes", _is_scalar(Kind.BYTES, Kind.VARBINARY)),
}
