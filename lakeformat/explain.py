"""What a scan leaves out, file by file, and by which condition and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.pruning import Bounds
from lakeformat.codec.spark_sql import to_sql
from lakeformat.dialects.dialect import AnyView
from lakeformat.engines import worker
from lakeformat.errors import InvalidInput
from lakeformat.model.predicate import ALWAYS, Expression, columns_of, conjuncts
from lakeformat.model.work import ReadTask
from lakeformat.storage.store import Reader

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
    """One row a live data file, by path: `left_out_by` is the first part of the condition that no row of the file can satisfy,
    null for a file that is read, and `bounds` what metadata knows of that part's columns in the file. Of Parquet files that are
    read, footers say how many of their row groups are."""
    every, kept = view.files(), view.files(predicate)
    paths = every.paths
    left_out_by, bounds = np.full(len(every), None, object), np.full(len(every), None, object)
    parts = [each for each in conjuncts(predicate) if each != ALWAYS]
    for part in [
        *parts,
        *([predicate] if len(parts) > 1 else []),
    ]:  # Several together may leave out more than each alone.
        surviving = kept if part is predicate else view.files(part)
        excluded = ~np.asarray(pc.is_in(paths, value_set=surviving.paths)) & (left_out_by == None)  # noqa: E711
        if not excluded.any():
            continue
        left_out_by[excluded] = text(part)
        gone = every.filter(pa.array(excluded))
        shown = bounds[excluded]
        for rows, known in view.bounds(gone, sorted(columns_of(part))):
            shown[rows] = _texts(known, len(rows))
        bounds[excluded] = shown
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    groups: dict[str, tuple[int, int]] = {}
    fields = view.schema.fields
    for task in view.tasks(every, fields, ALWAYS, True):
        for each in _leaves(task):
            counts.update(zip(each.paths, each.row_counts, strict=True))
            sizes.update(zip(each.paths, each.sizes_bytes, strict=True))
    read = [each for task in view.tasks(kept, fields, predicate, True) for each in _leaves(task)]
    parquet = [each for each in read if each.file_format == "parquet"]
    for each, found in zip(parquet, reader.several(partial(worker.row_groups, reader), parquet, 8), strict=True):
        groups.update(zip(each.paths, found, strict=True))
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


def text(condition: Expression) -> str:
    """A condition as people read it."""
    try:
        return to_sql(condition)
    except InvalidInput:  # A value without a literal of its own.
        return "..."


def _leaves(task: ReadTask) -> list[ReadTask]:
    return [leaf for part in task.parts for leaf in _leaves(part)] if task.parts else [task]


def _texts(known: Mapping[str, Bounds], count: int) -> list[str | None]:
    """`id: 5 .. 9, nulls: 0`, for each file."""
    shown: list[list[str]] = [[] for _ in range(count)]
    for name, each in known.items():
        ends = zip(each.minimum.to_pylist(), each.maximum.to_pylist(), each.null_count.to_pylist(), strict=True)
        for texts, (low, high, nulls) in zip(shown, ends, strict=True):
            span = "no values" if low is None and high is None else f"{_value(low)} .. {_value(high)}"
            texts.append(f"{name}: {span}" + ("" if not nulls else f", {nulls} nulls"))
    return ["; ".join(texts) or None for texts in shown]


def _value(bound: Any) -> str:
    return "?" if bound is None else str(bound)
