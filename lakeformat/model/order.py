"""In what order rows stand in files: by columns and transforms of columns, each with its direction."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.model.partition import Transform, TransformKind


@dataclass(frozen=True, slots=True)
class SortField:
    """One part of an order: a column, or a part of one by its path, as `transform` has it.

    Floats go as in Java: -0.0 below 0.0, NaN above all. Text and binary go by unsigned bytes.
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
    """Rows that are alike in several columns, or parts of rows, near each other: along the z-order, by the bits of their values
    in turn, or along a Hilbert curve, of which neighbours are neighbours in all columns.

    Of text and binary the first 8 bytes count; nulls come first. Only what is there is sorted so: no table's order is this.
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
    """By what the rows of a table's files are sorted; without fields, by nothing."""

    fields: tuple[SortField, ...] = ()
    id: int = 0
    unknown: str | None = None  # What of it lakeformat does not know: files cannot be sorted by it.

    def __bool__(self) -> bool:
        return bool(self.fields)
