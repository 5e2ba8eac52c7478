"""Work of Spark's tasks, and what they answered."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakeformat import errors
from lakeformat.engines.merge_parts import Made
from lakeformat.engines.spark import executors, session
from lakeformat.errors import LakeError
from lakeformat.model.work import WrittenFile
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Store


def each(spark: SparkSession, store: Store, tasks: Sequence[Any], work: Callable[[Store, Any], Any]) -> list[Any]:
    """What `work` makes of each task, in the order of the tasks."""
    if not tasks:
        return []
    blobs = tuple(pickle.dumps(each) for each in tasks)
    ids = spark.range(0, len(blobs), 1, len(blobs))
    answers = collected(
        spark, store, ids.mapInArrow(partial(executors.each, files_of(store), blobs, work), "answer binary")
    )
    by_place = dict(answers)
    return [by_place[place] for place in range(len(tasks))]


def collected(spark: SparkSession, store: Store, frame: DataFrame) -> list[Any]:
    """What the tasks answered. An error that a task answered is raised, and what others wrote is deleted."""
    with session.cancelled_with_caller(spark):
        answers = [pickle.loads(bytes(row[0])) for row in _named(frame.collect)]
    errors = [each for each in answers if isinstance(each, LakeError)]
    if errors:
        with suppress(LakeError):
            store.delete([file.path for each in answers for file in _files(each)])
        raise errors[0]
    return answers


def _named(collect: Callable[[], Any]) -> Any:
    """What `collect` gives. A mistake that a task before the last one found is told by its name, not as Spark's error."""
    try:
        return collect()
    except Exception as error:
        found = re.search(r"lakeformat\.errors\.(InvalidInput|OutsideScope|UnsupportedFeature): (.*)", str(error))
        if found is None:
            raise
        raise getattr(errors, found[1])(found[2]) from error


def _files(answer: Any) -> list[WrittenFile]:
    match answer:
        case (int(), made):
            return _files(made)
        case Made(files, beside):
            return [*files, *beside]
        case list(files):
            return files
        case _:
            return []
