"""How a table's rows are laid out: partitions, and the sort order within files, both by transforms of columns."""

from __future__ import annotations

import re
from enum import StrEnum

from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass


class TransformKind(StrEnum):
    IDENTITY = "identity"
    BUCKET = "bucket"  # parameter: number of buckets
    TRUNCATE = "truncate"  # parameter: width
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    VOID = "void"


_TRANSFORM = re.compile(r"\s*(?P<name>\w+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)\s*")
_TRANSFORMS = {
    "year": TransformKind.YEAR, "years": TransformKind.YEAR,
    "month": TransformKind.MONTH, "months": TransformKind.MONTH,
    "day": TransformKind.DAY, "days": TransformKind.DAY, "date": TransformKind.DAY,
    "hour": TransformKind.HOUR, "hours": TransformKind.HOUR,
    "bucket": TransformKind.BUCKET, "truncate": TransformKind.TRUNCATE, "void": TransformKind.VOID,
    "identity": TransformKind.IDENTITY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Transform:
    """A function from a column's value to a partition's, e.g. `bucket[16]`."""

    kind: TransformKind = TransformKind.IDENTITY
    parameter: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}[{self.parameter}]" if self.parameter is not None else str(self.kind)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition column: `transform` applied to the column `source`, called `name`."""

    source: str
    transform: Transform
    name: str
    id: int = -1

    def __str__(self) -> str:
        """As `partition_by` takes it: `dt`, `bucket(16, id)`."""
        if self.transform.kind is TransformKind.IDENTITY:
            return self.source
        number = self.transform.parameter
        return f"{self.transform.kind}({'' if number is None else f'{number}, '}{self.source})"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition columns in order; none for a table that has no partitions."""

    fields: tuple[PartitionField, ...] = ()
    id: int = 0

    def __bool__(self) -> bool:
        return bool(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that partition by their own value: conditions on them select whole partitions."""
        return tuple(f.source for f in self.fields if f.transform.kind is TransformKind.IDENTITY)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(f.source for f in self.fields)


def identity(*columns: str) -> Partitioning:
    """Partitioning by the columns' own values."""
    return Partitioning(tuple(PartitionField(name, Transform(), name) for name in columns))


def require_identity(partitioning: Partitioning, format: str) -> None:
    """Refuse transforms where the format knows only plain columns."""
    for field in partitioning.fields:
        if field.transform.kind is not TransformKind.IDENTITY:
            raise InvalidInput(
                f"partition_by {field.transform}({field.source}): {format} partitions by plain columns only; "
                f"add a column that holds the value, or use format='iceberg'"
            )


def parse_field(text: str, label: str = "partition_by") -> PartitionField:
    """`dt`, `days(ts)`, `bucket(16, id)` -> the partition field. Raises `InvalidInput`, naming `label`."""
    match = _TRANSFORM.fullmatch(text)
    if not match:
        return PartitionField(text, Transform(), text)
    kind = _TRANSFORMS.get(match["name"].lower())
    if kind is None:
        raise InvalidInput(
            f"{label} {text!r}: no transform {match['name']!r}; there are {', '.join(sorted(_TRANSFORMS))}"
        )
    wants = kind in {TransformKind.BUCKET, TransformKind.TRUNCATE}
    if wants != (match["number"] is not None):
        raise InvalidInput(f"{label} {text!r}: write {kind}({'16, ' if wants else ''}{match['column']})")
    number = int(match["number"]) if wants else None
    name = match["column"] if kind is TransformKind.IDENTITY else f"{match['column']}_{kind}"
    return PartitionField(match["column"], Transform(kind, number), name)


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a sort order: `transform` of a column, or of a field inside one.

    Floats sort as in Java: -0.0 below 0.0, NaN above all. Text and binary sort by unsigned bytes.
    """

    source: tuple[str, ...]
    transform: Transform = Transform()
    descending: bool = False
    nulls_last: bool = False

    def __str__(self) -> str:
        """As Spark's DDL writes it: `bucket(16, id) DESC NULLS LAST`."""
        name, number = ".".join(self.source), self.transform.parameter
        if self.transform.kind is not TransformKind.IDENTITY:
            name = f"{self.transform.kind}({'' if number is None else f'{number}, '}{name})"
        return f"{name} {'DESC' if self.descending else 'ASC'} NULLS {'LAST' if self.nulls_last else 'FIRST'}"


@dataclass(frozen=True, slots=True)
class Curve:
    """A space-filling curve over several columns: z-order, which interleaves the bits of their values, or Hilbert,
    whose neighbours are neighbours in all columns.

    Of text and binary the first 8 bytes count; nulls come first. Compaction sorts by it; it is no table's sort order.
    """

    sources: tuple[tuple[str, ...], ...]
    kind: str = "zorder"  # or "hilbert"

    @property
    def descending(self) -> bool:
        return False

    @property
    def nulls_last(self) -> bool:
        return False


Sort = SortField | Curve


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The sort order of the rows in a table's files; without fields, unsorted."""

    fields: tuple[SortField, ...] = ()
    id: int = 0
    unknown: str | None = None  # The part that lakeformat does not know; files cannot be sorted by it.

    def __bool__(self) -> bool:
        return bool(self.fields)
