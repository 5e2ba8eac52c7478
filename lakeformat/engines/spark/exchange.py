"""Files of others on Spark: tasks run the one reader and writer, so that values mean the same as in this process."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeformat.engines.exchange import reading, writing
from lakeformat.engines.exchange.layout import FileLayout
from lakeformat.engines.exchange.reading import Source, Tally
from lakeformat.engines.exchange.writing import ExportedFile
from lakeformat.engines.spark import executors, jobs
from lakeformat.engines.spark.types import arrow_of, spark_field
from lakeformat.errors import LakeError
from lakeformat.storage.store import Store


def examined(spark: SparkSession, store: Store, sources: Sequence[Source]) -> list[Tally]:
    """What is in the files; one task each."""
    return jobs.each(spark, store, sources, reading.examine)


def loading_frame(spark: SparkSession, store: Store, sources: Sequence[Source]) -> DataFrame:
    """The rows of the files; one task each."""
    fields = tuple(replace(field, nullable=True) for field in sources[0].fields)
    blobs = tuple(pickle.dumps(source) for source in sources)
    schema = T.StructType([spark_field(field) for field in fields])
    ids = spark.range(0, len(blobs), 1, len(blobs))
    return ids.mapInArrow(partial(executors.load, store, blobs, fields), schema)


def export(frame: DataFrame, store: Store, layout: FileLayout) -> list[ExportedFile]:
    """Write the frame to files, at least one. An attempt of a task writes the names of the attempt before; files that
    no task answered for are deleted."""
    schema, name = arrow_of(frame.schema), str(uuid.uuid4())
    writing.require_exported(schema, layout)
    files: list[ExportedFile] = []
    try:
        answers: list[Any] = jobs.collected(
            frame.sparkSession, store, frame, partial(executors.export, store, schema, layout, name)
        )
        files = [file for answer in answers for file in answer]
        if not files:
            files = writing.export(store, (), schema, layout, f"part-00000-{name}")
    finally:
        with suppress(LakeError):
            kept = {file.path for file in files}
            strays = [listed.path for listed in store.list("") if name in listed.path and listed.path not in kept]
            store.delete(strays)
    return sorted(files, key=lambda file: file.path)
