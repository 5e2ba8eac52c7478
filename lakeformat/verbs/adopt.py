"""add_files: existing files become part of a table in place. Each is inspected, then one snapshot names them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.operation import Adopt
from lakeformat.model.work import AdoptTask
from lakeformat.verbs.change import Change


def plan(
    change: Change,
    paths: Sequence[str],
    partitions: Sequence[Mapping[str, Any]],
    may_repeat: bool,
    set_properties: Callable[[Mapping[str, str]], None],
) -> Adopt | None:
    """The operation that adds these files, each with the values in `partitions` of columns that it lacks; None if they
    have no rows. If files have no field ids, the table first gets a name mapping."""
    view = change.view
    adoption = view.adoption()
    if adoption is None:
        raise UnsupportedFeature(
            f"add_files: a {view.format.capitalize()} table takes no files where they are: they lie in its own "
            "folders; append their rows (append(pyarrow.dataset.dataset(paths).to_table())), or use an Iceberg table"
        )
    mapping, properties = adoption
    layout, columns = view.layout(), view.schema.partitioning.columns
    for name in sorted({name for partition in partitions for name in partition}):
        if name not in columns:
            raise InvalidInput(
                f"add_files: partition names {name!r}, which is not a column whose own values are partitions; those "
                "are "
                f"{', '.join(columns) or 'none'}"
            )
    if len(set(paths)) < len(paths):
        (twice, _), *_ = Counter(paths).most_common(1)
        raise InvalidInput(f"add_files: {twice} is given twice")
    tasks = [
        AdoptTask(path, layout, mapping, partition=tuple(partition.items()))
        for path, partition in zip(paths, partitions, strict=True)
    ]
    adopted = change.engine.adopt(change.files, tasks)
    added = tuple(file.file for file in adopted if file.file is not None)
    if not added:
        return None
    if properties and not all(file.has_ids for file in adopted):
        set_properties(properties)
    return Adopt(request=change.request, added=added, may_repeat=may_repeat)
