"""A changelog from Spark: the rows of each key go to one task, which writes all of their files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeformat.engines.kernels import assign
from lakeformat.engines.row_level.delta import DeltaFiles, input_fields
from lakeformat.engines.spark import executors, few, jobs, session
from lakeformat.engines.spark.frames import OURS, assignable, quoted
from lakeformat.engines.spark.types import arrow_of
from lakeformat.model.log import log
from lakeformat.model.work import ROW_KIND, DeltaLayout, WrittenFile
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Store


def check(frame: DataFrame, layout: DeltaLayout) -> None:
    """Raise `InvalidInput` for columns that do not fit."""
    session.require_running(frame.sparkSession)
    session.run_here_as_here(frame.sparkSession)
    schema = arrow_of(assignable(frame, layout.data.fields).schema)
    index = schema.get_field_index(ROW_KIND.name)
    assign.check(schema if index < 0 else schema.remove(index), input_fields(layout), layout.data.partition_by)


def write(
    frames: Sequence[DataFrame], store: Store, layout: DeltaLayout, upsert: bool, max_keys: int, buffer_bytes: int
) -> list[WrittenFile]:
    """The files of one commit. Rows count in the order of the frames, and within one in the order of its partitions.
    One task knows at most `max_keys` keys. Few rows are collected and written by the driver, which is cheaper than a
    shuffle."""
    for frame in frames:
        check(frame, layout)
    make = partial(DeltaFiles, upsert=upsert, max_keys=max_keys, buffer_bytes=buffer_bytes)
    frames = [assignable(frame, layout.data.fields) for frame in frames]
    local = [few.collected(frame) for frame in frames] if all(few.guessed_few(frame) for frame in frames) else [None]
    if all(table is not None for table in local):
        log.info("%s: a changelog of few rows, %d frames: written by the driver", store.root, len(frames))
        return make(store, layout).write_all(local)
    keys = [field.name for field in layout.equality_deletes.fields]
    # A column that one frame lacks would be null, not its default.
    if len({_columns(frame) for frame in frames}) > 1 or not set(keys) <= set(frames[0].columns):
        log.info("%s: a changelog of %d frames with different columns: written by the driver", store.root, len(frames))
        return make(store, layout).write_all(frames)
    log.info(
        "%s: a changelog of %d frames: spread by key over tasks, "
        "each of which writes files of all partitions that it has rows of",
        store.root,
        len(frames),
    )
    numbered = [
        frame.withColumns({f"{OURS}frame": F.lit(index), f"{OURS}row": F.monotonically_increasing_id()})
        for index, frame in enumerate(frames)
    ]
    names = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    together = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), numbered)
    ordered = together.repartition(*(F.col(quoted(name)) for name in keys)).sortWithinPartitions(
        f"{OURS}frame", f"{OURS}row"
    )
    work = partial(executors.write_delta, files_of(store), layout, make)
    with session.in_large_batches(frames[0].sparkSession):
        answers = jobs.collected(frames[0].sparkSession, store, ordered.select(*map(quoted, names)), work)
    return [file for files in answers for file in files]


def _columns(frame: DataFrame) -> frozenset[tuple[str, str]]:
    """The columns of the rows, except their kinds, which are optional."""
    return frozenset((field.name, field.dataType.json()) for field in frame.schema if field.name != ROW_KIND.name)
