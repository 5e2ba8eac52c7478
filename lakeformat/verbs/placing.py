"""Keys whose partition may change: which existing rows are looked up, what is removed elsewhere, and which rows come
after which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakeformat.dialects.dialect import AnyView
from lakeformat.model.predicate import ALWAYS, NEVER, Call, Expression, not_
from lakeformat.model.work import SEQUENCE, VALUE_KIND, Content, FilesTask, WriteTask, WrittenFile
from lakeformat.verbs.change import Change


def with_lookup(view: AnyView, layout: WriteTask, but: Expression = NEVER) -> WriteTask:
    """`layout` that looks up where existing keys are, among all rows except those for which `but` is true. Unchanged if
    keys stay in their partition."""
    if layout.keyed is None or layout.keyed.places is None:
        return layout
    assert view.keyed is not None, view
    places = layout.keyed.places
    columns = tuple(dict.fromkeys((*places.key, *places.partition)))
    tasks = () if but == ALWAYS else tuple(view.keyed.located(columns, _not_true(but)))
    return replace(layout, keyed=replace(layout.keyed, places=replace(places, tasks=tasks)))


def after(layout: WriteTask, files: Iterable[WrittenFile]) -> WriteTask:
    """`layout` for rows that come after those of `files`, which are written and not committed: sequence numbers
    continue theirs, and new keys use the buckets assigned there."""
    if layout.keyed is None:
        return layout
    first, index = dict(layout.keyed.first or {}), layout.keyed.index
    buckets_of = {partition: dict(buckets) for partition, buckets in (index.files if index else {}).items()}
    for file in files:
        if file.keys is not None:
            folder = file.path.rpartition("/")[0]
            first[folder] = max(first.get(folder, 0), file.keys.last_sequence + 1)
        elif file.content is Content.HASH_INDEX:
            buckets_of.setdefault(repr(file.partition), {})[file.bucket] = file.path
    if index is not None:
        index = replace(index, files={partition: tuple(buckets.items()) for partition, buckets in buckets_of.items()})
    return replace(layout, keyed=replace(layout.keyed, first=first, index=index))


def remove_elsewhere(change: Change, added: Sequence[WrittenFile], scope: Expression) -> tuple[WrittenFile, ...]:
    """Files with delete rows for the rows outside `scope` whose keys `added` has; none if keys stay in their
    partition."""
    view = change.view
    layout = with_lookup(view, view.layout(from_files=True), but=scope)
    if layout.keyed is None or layout.keyed.places is None or not layout.keyed.places.tasks:
        return ()
    keyed = replace(
        layout.keyed,
        places=replace(layout.keyed.places, only_removes=True),
        kind_column=None,
        changelog_prefix=None,
    )
    columns = (SEQUENCE, VALUE_KIND, *view.schema.fields)
    tasks = [
        FilesTask((f.path,), (f.row_count,), (f.size_bytes,), f.file_format, view.schema.fields, columns)
        for f in added
        if f.content is Content.DATA
    ]
    rows = change.engine.read(change.files, tasks, view.schema.fields)
    return tuple(change.engine.write(change.files, rows, replace(layout, keyed=keyed)))


def _not_true(condition: Expression) -> Expression:
    return ALWAYS if condition == NEVER else not_(Call("coalesce", (condition, NEVER)))
