"""Spark jobs that run our work in tasks, and the results of the tasks."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakeformat import errors
from lakeformat.engines.files import formats
from lakeformat.engines.row_level.merge_parts import PartResult
from lakeformat.engines.spark import executors, session
from lakeformat.engines.spark.frames import mapped
from lakeformat.errors import LakeError
from lakeformat.model.log import log
from lakeformat.model.work import WrittenFile, paths_of
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Store

_PAUSES = (0.0, 1.0, 2.0)  # Seconds before each listing of what the tasks of a failed job have written.


def each(spark: SparkSession, store: Store, tasks: Sequence[Any], work: Callable[[Store, Any], Any]) -> list[Any]:
    """The results of `work` for each task, in order."""
    if not tasks:
        return []
    blobs = tuple(pickle.dumps(task) for task in tasks)
    ids = spark.range(0, len(blobs), 1, len(blobs))
    answers = collected(spark, store, ids, partial(executors.each, files_of(store), blobs, work))
    by_place = dict(answers)
    return [by_place[index] for index in range(len(tasks))]


def collected(spark: SparkSession, store: Store, frame: DataFrame, work: executors.Work) -> list[Any]:
    """The results of `work` on the frame's rows, one per task. An error that a task returned is raised.

    If the job ends before all tasks have returned, the files that tasks wrote are deleted: only the driver could have
    committed them.
    """
    job = formats.new_job()
    answered = mapped(frame, partial(executors.of_job, job, work), "answer binary")
    try:
        with session.cancelled_with_caller(spark):
            answers = [pickle.loads(bytes(row[0])) for row in _named(answered.collect)]
    except BaseException:
        _delete(store, job)
        raise
    errors = [answer for answer in answers if isinstance(answer, LakeError)]
    if errors:
        with suppress(LakeError):
            store.delete(paths_of(file for answer in answers for file in _files(answer)))
        raise errors[0]
    return answers


def _delete(store: Store, job: str) -> None:
    """Delete the files that a job's tasks wrote, including tasks that take a moment to stop."""
    count, folders = 0, set[str]()
    try:
        for pause in _PAUSES:
            time.sleep(pause)
            paths = [file.path for file in store.list("") if job in file.path.rpartition("/")[2]]
            store.delete(paths)
            count += len(paths)
            folders |= {path.rpartition("/")[0] for path in paths}
            if pause and not paths:
                break
        store.remove_empty_folders(folders)
    except LakeError as error:
        log.warning(
            "%s: a Spark job failed, and the files of its tasks, those with %s in their names, cannot be deleted now: "
            "%s. remove_orphan_files will remove them",
            store.root, job, error,
        )  # fmt: skip
        return
    log.warning(
        "%s: a Spark job failed; %d files that its tasks had written are deleted. A task that has not stopped by now "
        "may write more, with %s in their names: remove_orphan_files will remove them",
        store.root, count, job,
    )  # fmt: skip


# Errors of ours as Spark and Sail tell them.
_OURS = re.compile(r"(?:lakeformat\.errors\.|External error: )(InvalidInput|OutsideScope|UnsupportedFeature): (.*)")
# Spark's names of errors of the values of expressions.
_OF_A_VALUE = re.compile(
    r"\[(?:CAST_|ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|NUMERIC_VALUE_OUT_OF_RANGE)\S*\] (.*)"
)


def _named(collect: Callable[[], Any]) -> Any:
    """The result of `collect`. An error of ours from an earlier stage is raised as itself, not as Spark's error."""
    try:
        return collect()
    except Exception as error:
        if match := _OURS.search(str(error)):
            raise getattr(errors, match[1])(match[2]) from error
        if match := _OF_A_VALUE.search(str(error)):
            raise errors.InvalidInput(f"a value does not fit the condition: {match[1]}") from error
        raise


def _files(answer: Any) -> list[WrittenFile]:
    match answer:
        case (int(), made):
            return _files(made)
        case (list(files), _):
            return files
        case PartResult(files, beside):
            return [*files, *beside]
        case list(files):
            return files
        case _:
            return []
