"""Merges by parts in this process, as Spark's tasks do them: the source in files, parts of the table one after the other."""

import uuid
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines import worker
from lakeformat.engines.row_level import merge_parts, outcomes
from lakeformat.engines.row_level.arrow_merge import ArrowSource
from lakeformat.errors import LakeError
from lakeformat.model.evolution import number
from lakeformat.model.schema import NO_ID, Field, Kind, scalar
from lakeformat.model.work import Naming, OneFolder, WriteTask


@dataclass(frozen=True)
class Workers:
    """`count` workers; rows go from one to another only with `spreads`. `worked` notes what they did."""

    count: int = 3
    spreads: bool = True
    worked: list = field(default_factory=list)

    def each(self, store, tasks, work):
        if tasks:
            self.worked.append((work.func.__name__, len(tasks)))
        found = []
        try:
            found.extend(work(store, task) for task in tasks)
        except BaseException:
            made = [
                file
                for result in found
                for file in (result if isinstance(result, list) else [*result.files, *result.beside])
            ]
            with suppress(LakeError):
                store.delete([file.path for file in made])
            raise
        return found

    def spread(self, store, tasks, layout):
        self.worked.append(("spread", len(tasks)))
        if not self.spreads:
            return None
        return worker.write(store, (batch for task in tasks for batch in worker.read(store, task)), layout)


class PartsSource:
    """A merge's source whose rows lie in two files, those of the second before those of the first."""

    def __init__(self, store, table, workers):
        self.store, self.workers, self.table = store, workers, table
        self.fields = fields_from_arrow(table.schema)
        self.key, self.untyped = (), frozenset()
        held, last = number(tuple(Field(NO_ID, f"c{i}", f.type) for i, f in enumerate(self.fields)), -1, True)
        held = (*held, Field(last + 1, outcomes.ROW, scalar(Kind.BIGINT)))
        self.folder = f"merge-{uuid.uuid4()}"
        self.beside = WriteTask(held, OneFolder(self.folder), naming=Naming("00000-0-"))
        rows = table.append_column(outcomes.ROW, pa.array(range(0, 10 * len(table), 10), pa.int64()))
        rows = rows.rename_columns([f.name for f in held])
        half = len(table) // 2
        self.files = []
        for part in (rows.slice(half), rows.slice(0, half)):
            self.files += worker.write(store, part.to_batches(), self.beside)
        self.tasks = tuple(merge_parts.read_back(file, held) for file in self.files)
        self.parts = None

    def keep_last(self, key):
        self.key = key

    def spread(self, merge, limit):
        return outcomes.spread(merge, outcomes.named("s", self.table), limit)

    def decide(self, merge, tasks):
        staged = merge_parts.Staged(self.fields, self.tasks, self.key)
        self.parts = merge_parts.MergeByParts(self.store, staged, self.beside, self.workers)
        return self.parts.decide(merge, tasks)

    def write(self, *given, **named):
        return self.parts.write(*given, **named)

    def mark(self, *given, **named):
        return self.parts.mark(*given, **named)

    def write_by_key(self, *given):
        return ArrowSource(self.store, self.table, map).write_by_key(*given)

    def close(self):
        self.store.delete([*(file.path for file in self.files), *(self.parts.paths if self.parts else ())])
        self.store.remove_empty_folders([self.folder])


def by_parts(stage, workers):
    """`ArrowEngine.stage` for merges by parts."""

    def staged(engine, store, data, layout, hints):
        source = stage(engine, store, data, layout, hints)
        table = source._rows.table
        names = [name.partition(".")[2] for name in table.column_names]
        return PartsSource(store, table.rename_columns(names), workers)

    return staged
