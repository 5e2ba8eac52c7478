"""state + predicate -> ReadTasks: live files, pruned by partition and by bounds, packed into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import expression, single_value
from lakeformat.dialects.iceberg import manifest, options
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.errors import UnsupportedFeature
from lakeformat.model import predicate as conditions
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Row, Scalar, Schema, find_field
from lakeformat.model.work import ReadTask
from lakeformat.storage.store import Reader


@dataclass(frozen=True, slots=True)
class Files:
    """Live data files of one snapshot: rows of `manifest.ENTRY` with their partition columns."""

    entries: pa.Table

    def __len__(self) -> int:
        return len(self.entries)

    def filter(self, keep: pa.Array) -> Files:
        return Files(self.entries.filter(keep))

    @property
    def paths(self) -> pa.Array:
        return self.entries["file_path"].combine_chunks()

    @property
    def row_count(self) -> int:
        return pc.sum(self.entries["record_count"]).as_py() or 0


def scan(
    reader: Reader, base: State, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS
) -> list[ReadTask]:
    """The tasks that together read the rows for which `predicate` (bound to the schema) is true."""
    found = files(reader, base, predicate)
    residual = _residual(base, found, predicate)
    fields = project(base.schema.fields, columns)
    return tasks(reader, base, found, _with_columns_of(residual, fields, base.schema), residual)


def files(reader: Reader, base: State, predicate: Expression = ALWAYS) -> Files:
    """The live files that may hold a row for which `predicate` is true."""
    scope, rest = conditions.split(predicate, base.schema.partitioning.columns)
    entries = manifest.live_entries(reader, base, scope)
    if rest != ALWAYS or not manifest.tells(base, entries, scope):
        bounds = _bounds(base, entries, conditions.columns_of(predicate))
        entries = entries.filter(expression.may_match(predicate, bounds, len(entries)))
    return Files(entries)


def count(reader: Reader, base: State, predicate: Expression = ALWAYS) -> int | None:
    """The number of rows for which `predicate` is true, where metadata alone can tell it exactly; else None."""
    found = files(reader, base, predicate)
    if _residual(base, found, predicate) == ALWAYS:
        return found.row_count
    return found.row_count if bool(matching_wholly(reader, base, found, predicate).all()) else None


def matching_wholly(reader: Reader, base: State, found: Files, predicate: Expression) -> np.ndarray:
    """For each file, whether its partition and its bounds prove that every row satisfies `predicate`."""
    scope, rest = conditions.split(predicate, base.schema.partitioning.columns)
    if rest == ALWAYS and manifest.tells(base, found.entries, scope):
        inside = manifest.in_scope(found.entries, base, scope)["file_path"].combine_chunks()
        return np.asarray(pc.is_in(found.paths, value_set=inside))
    bounds = _bounds(base, found.entries, conditions.columns_of(predicate))
    return np.asarray(expression.must_match(predicate, bounds, len(found)))


def tasks(
    reader: Reader,
    base: State,
    found: Files,
    fields: tuple[Field, ...],
    predicate: Expression = ALWAYS,
    alone: bool = False,
) -> list[ReadTask]:
    """Files -> tasks of about `read.split.target-size`. With `alone`, a task for each file, in the order of the files."""
    formats = pc.unique(pc.utf8_lower(found.entries["file_format"])).to_pylist()
    for format in formats:
        if format != "parquet":
            raise UnsupportedFeature(
                f"{reader.root}: data files in {format}: lakeformat reads Parquet in Iceberg tables"
            )
    given = base.schema.properties
    target = options.integer(given, "read.split.target-size", 128 << 20)
    opening = options.integer(given, "read.split.open-file-cost", 4 << 20)
    sizes = np.asarray(found.entries["file_size_in_bytes"])
    weights = np.cumsum(np.maximum(sizes, opening))
    paths, row_counts = found.paths.to_pylist(), found.entries["record_count"].to_pylist()
    result = []
    start, before = 0, 0
    while start < len(found):
        end = start + 1
        if not alone:
            end = max(int(np.searchsorted(weights, before + target, side="right")), end)
        result.append(
            ReadTask(
                paths=tuple(paths[start:end]),
                row_counts=tuple(row_counts[start:end]),
                sizes_bytes=tuple(sizes[start:end].tolist()),
                file_format="parquet",
                fields=fields,
                predicate=predicate,
            )
        )
        start, before = end, int(weights[end - 1])
    return result


def project(fields: tuple[Field, ...], columns: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns asked for, in the order asked for; `a.b` keeps only `b` of the row `a`. Raises `NotFound`."""
    if columns is None:
        return fields
    chosen: dict[str, list[str] | None] = {}
    whole = {f.name for f in fields}
    for name in columns:
        first, _, rest = name.partition(".")
        if name in whole or not rest:
            chosen[name] = None
        elif chosen.setdefault(first, []) is not None:
            chosen[first].append(rest)  # type: ignore[union-attr]
    return tuple(_part(find_field(fields, name), inner) for name, inner in chosen.items())


# --- private ----------------------------------------------------------------------------------------------------------


def _part(field: Field, inner: list[str] | None) -> Field:
    if inner is None:
        return field
    if not isinstance(field.type, Row):
        return find_field((field,), f"{field.name}.{inner[0]}")
    return replace(field, type=Row(project(field.type.fields, inner)))


def _with_columns_of(predicate: Expression, fields: tuple[Field, ...], schema: Schema) -> tuple[Field, ...]:
    """`fields`, and whole the columns that the condition needs."""
    needed = conditions.columns_of(predicate)
    chosen = [find_field(schema.fields, f.name) if f.name in needed else f for f in fields]
    return (*chosen, *(f for f in schema.fields if f.name in needed and f.name not in {c.name for c in chosen}))


def _residual(base: State, found: Files, predicate: Expression) -> Expression:
    """What is left to test on rows once whole partitions are chosen."""
    scope, rest = conditions.split(predicate, base.schema.partitioning.columns)
    return rest if manifest.tells(base, found.entries, scope) else predicate


def _bounds(base: State, entries: pa.Table, names: Iterable[str]) -> Mapping[str, expression.Bounds]:
    """What manifests tell of the columns `names`, one row an entry."""
    bounds = {}
    rows = entries["record_count"].combine_chunks()
    for name in names:
        field = find_field(base.schema.fields, name)
        if not isinstance(field.type, Scalar):
            continue
        low, high = (
            single_value.decode(manifest.look_up(entries[n], field.id), field.type)
            for n in ("lower_bounds", "upper_bounds")
        )
        nulls = manifest.look_up(entries["null_value_counts"], field.id)
        bounds[name] = expression.Bounds(low, high, nulls, rows)
    return bounds
