"""Explain: which files a scan skips, and by which condition and bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.dialect import AnyView
from lakeformat.engines import worker
from lakeformat.errors import InvalidInput
from lakeformat.expression.pruning import Bounds
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.predicate import ALWAYS, Expression, columns_of, conjuncts
from lakeformat.storage.store import Reader

MANIFESTS = pa.schema(
    [
        ("path", pa.string()),
        ("file_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("left_out_by", pa.string()),
        ("bounds", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("row_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("left_out_by", pa.string()),
        ("bounds", pa.string()),
        ("row_groups_read", pa.int64()),
        ("row_groups", pa.int64()),
    ]
)


def explain(reader: Reader, view: AnyView, predicate: Expression) -> pa.Table:
    """One row per live data file, sorted by path. `left_out_by` is the first part of the condition that no row of the
    file can satisfy (null for a file that is read), and `bounds` the file's bounds of that part's columns. For Parquet
    files that are read, the footers say how many of their row groups are."""
    every, kept = view.files(), view.files(predicate)
    paths = every.paths

    def shown(excluded: np.ndarray, columns: set[str]) -> np.ndarray:
        texts = np.full(int(excluded.sum()), None, object)
        for rows, known in view.pruning.bounds(every.filter(pa.array(excluded)), sorted(columns)):
            texts[rows] = _texts(known, len(rows))
        return texts

    left_out_by, bounds = _left_out(
        paths, predicate, lambda part: (kept if part is predicate else view.files(part)).paths, shown
    )
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    groups: dict[str, tuple[int, int]] = {}
    fields = view.schema.fields
    for task in view.tasks(every, fields, ALWAYS, True):
        for leaf in task.leaves:
            counts.update(zip(leaf.paths, leaf.row_counts, strict=True))
            sizes.update(zip(leaf.paths, leaf.sizes_bytes, strict=True))
    read = [leaf for task in view.tasks(kept, fields, predicate, True) for leaf in task.leaves]
    parquet = [task for task in read if task.file_format == "parquet"]
    for file_task, ranges in zip(parquet, reader.several(partial(worker.row_groups, reader), parquet, 8), strict=True):
        groups.update(zip(file_task.paths, ranges, strict=True))
    names = paths.to_pylist()
    columns = [
        names,
        [counts.get(name) for name in names],
        [sizes.get(name) for name in names],
        list(left_out_by),
        list(bounds),
        [groups.get(name, (None, None))[0] for name in names],
        [groups.get(name, (None, None))[1] for name in names],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA).sort_by("path")


def manifests(view: AnyView, predicate: Expression) -> pa.Table:
    """One row per manifest. `left_out_by` is the first part of the condition that its partition bounds exclude (null
    for a manifest that is read), and `bounds` are these bounds."""
    every = view.pruning.manifests()

    def shown(excluded: np.ndarray, columns: set[str]) -> np.ndarray:
        texts = np.full(len(every), None, object)
        for rows, known in view.pruning.manifest_bounds():
            texts[rows] = _texts(
                {name: bounds for name, bounds in known.items() if name in columns} or known, len(rows)
            )
        return texts[excluded]

    left_out_by, bounds = _left_out(every["path"], predicate, lambda part: view.pruning.manifests(part)["path"], shown)
    columns = [every["path"], every["file_count"], every["size_bytes"], list(left_out_by), list(bounds)]
    return pa.table(dict(zip(MANIFESTS.names, columns, strict=True)), schema=MANIFESTS)


def text(condition: Expression) -> str:
    """A condition as text for people."""
    try:
        return to_sql(condition)
    except InvalidInput:  # A value that SQL has no literal for.
        return "..."


def _left_out(
    paths: pa.Array | pa.ChunkedArray,
    predicate: Expression,
    surviving: Callable[[Expression], pa.Array | pa.ChunkedArray],
    shown: Callable[[np.ndarray, set[str]], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """For each of `paths` (the first part of the condition that excludes it, or None; the bounds that do).

    `surviving`: the paths that a condition does not exclude. `shown`: the bounds of columns as text, for the paths in a
    mask.
    """
    left_out_by, bounds = np.full(len(paths), None, object), np.full(len(paths), None, object)
    parts = [conjunct for conjunct in conjuncts(predicate) if conjunct != ALWAYS]
    # Several parts together may exclude more than each alone.
    for part in [*parts, *([predicate] if len(parts) > 1 else [])]:
        kept = surviving(part)
        excluded = ~np.asarray(pc.is_in(paths, value_set=kept)) & (left_out_by == None)  # noqa: E711  Compared by numpy, value by value.
        if excluded.any():
            left_out_by[excluded] = text(part)
            bounds[excluded] = shown(excluded, set(columns_of(part)))
    return left_out_by, bounds


def _texts(bounds_of: Mapping[str, Bounds], count: int) -> list[str | None]:
    """`id: 5 .. 9, nulls: 0`, for each file."""
    shown: list[list[str]] = [[] for _ in range(count)]
    for name, bounds in bounds_of.items():
        ends = zip(bounds.minimum.to_pylist(), bounds.maximum.to_pylist(), bounds.null_count.to_pylist(), strict=True)
        for texts, (low, high, nulls) in zip(shown, ends, strict=True):
            span = "no values" if low is None and high is None else f"{_value(low)} .. {_value(high)}"
            texts.append(f"{name}: {span}" + ("" if not nulls else f", {nulls} nulls"))
    return ["; ".join(texts) or None for texts in shown]


def _value(bound: Any) -> str:
    return "?" if bound is None else str(bound)
