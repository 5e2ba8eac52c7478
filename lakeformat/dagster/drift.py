"""Where the table of an asset is not as the asset declares, and the change that makes it so."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakeformat.dagster.declaration import AssetTable
from lakeformat.errors import InvalidInput
from lakeformat.model.partition import PartitionField, Transform, TransformKind, parse_field

_MERGES_COLUMNS = ("partial-update", "aggregation")  # Paimon's merge engines that take rows without some columns.


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a declaration and a table. `calls` are what `alter()` needs, with their arguments; none if
    the format cannot follow, and then `advice` says the way out."""

    text: str
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    advice: str = ""

    @property
    def change(self) -> str:
        """The change as a person writes it."""
        chain = "".join(f".{name}({', '.join(map(repr, arguments))})" for name, arguments in self.calls)
        return f"table.alter(){chain}.commit()" if chain else self.advice


def follow(table: Any, to: AssetTable) -> None:
    """Change the table as the asset declares, if its `table_evolution` is "alter". Raises `InvalidInput` for what then
    differs, with the change that would follow."""
    differing = list(differences(table, to))
    calls = [call for difference in differing for call in difference.calls] if to.follows else []
    if calls:
        change = table.alter()
        for name, arguments in calls:
            change = getattr(change, name)(*arguments)
        change.commit()
        differing = [difference for difference in differing if not difference.calls]
    if differing:
        raise InvalidInput(refusal(to, differing))


def refusal(to: AssetTable, differing: Sequence[Difference]) -> str:
    """Why a run is refused by differences that it does not follow, and the ways out."""
    return (
        f"{to.name} is not as the asset declares: {'; '.join(d.text for d in differing)}. Declare what is there, "
        f"or change the table: {'; '.join(d.change for d in differing)}"
        + ("" if all(not d.calls for d in differing) else "; 'table_evolution': 'alter' lets a run do so")
    )


def missing_columns(table: Any, to: AssetTable, others: Iterable[str]) -> list[str]:
    """The columns that the asset describes, and `others`, which the table does not have."""
    names = {name.casefold() for name in table.schema.names}
    return [
        name
        for name in dict.fromkeys((*(name for name, _ in to.descriptions), *others))
        if name.casefold() not in names and "." not in name
    ]


def differences(table: Any, to: AssetTable) -> Iterator[Difference]:
    """What the declaration names and the table has otherwise: format, key, partitions, properties."""
    schema, is_iceberg = table.schema, table.format == "iceberg"
    if "format" in to.named and table.format != to.format:
        advice = f"lake.lake.convert({to.name!r}, {to.format!r})"
        yield Difference(f"format={to.format!r}, and it is {table.format}", advice=advice)
        return
    if to.primary_key and set(to.primary_key) != set(schema.primary_key):
        key = ", ".join(schema.primary_key) or "none"
        if to.write != "upsert" or schema.primary_key:
            fixed = (
                ""
                if is_iceberg
                else "write the rows to a new table, as the primary key of a Paimon table cannot change"
            )
            keyed = (("set_primary_key", (list(to.primary_key),)),) if is_iceberg else ()
            yield Difference(f"primary_key={list(to.primary_key)}, and its key is {key}", keyed, fixed)
    declared = [parse_field(text) for text in to.layout]
    fields = [field for field in schema.partitioning.fields if field.transform.kind is not TransformKind.VOID]
    if not to.is_expression and declared and [_part(field) for field in declared] != [_part(field) for field in fields]:
        calls = (
            *(("drop_partition_field", (field.name,)) for field in fields),
            *(("add_partition_field", (text,)) for text in to.layout),
        )
        fixed = "" if is_iceberg else "write the rows to a new table, as the partitions of a Paimon table stay"
        text = (
            f"partitioned by {', '.join(to.layout)}, and it is by "
            f"{', '.join(field.name for field in fields) or 'nothing'}"
        )
        yield Difference(text, calls if is_iceberg else (), fixed)
    changed = {key: value for key, value in to.properties if schema.properties.get(key) != value}
    if changed:
        now = ", ".join(f"{key}={schema.properties.get(key, 'unset')}" for key in changed)
        yield Difference(
            f"table_properties {', '.join(f'{k}={v}' for k, v in changed.items())}, and it has {now}",
            (("set_properties", (changed,)),),
        )


def refuse_missing(table: Any, to: AssetTable, columns: Collection[str]) -> None:
    """Raise `InvalidInput` for columns of the table that a frame lacks, which would become NULL, unless the asset's
    `schema_evolution` lets columns come and go."""
    schema = table.schema
    if to.evolution != "refuse" or to.write == "merge":
        return
    if to.write == "upsert" and (
        table.format == "iceberg" or schema.properties.get("merge-engine") in _MERGES_COLUMNS or not schema.primary_key
    ):
        return  # Rows that are there keep their values.
    known = {name.casefold() for name in columns}
    lacking = [field.name for field in schema.fields if field.default is None and field.name.casefold() not in known]
    if lacking:
        drops = "".join(f".drop_column({name!r})" for name in lacking)
        raise InvalidInput(
            f"the frame lacks {', '.join(lacking)}, which {to.name} has, and each row would have NULL there; return "
            f"the column, drop it by table.alter(){drops}.commit(), or let columns come and go: "
            "'schema_evolution': 'add'"
        )


def _part(field: PartitionField) -> tuple[str, Transform]:
    return field.source, field.transform
