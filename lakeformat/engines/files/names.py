"""Names of new files: no other write has them, and those of an engine's tasks name the job and the task."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_job: ContextVar[str | None] = ContextVar("job", default=None)
_task: ContextVar[tuple[int, int]] = ContextVar("task", default=(0, 0))


def new_job() -> str:
    """What the names that a job's tasks give have in them, and no other names: the first half of a uuid."""
    return str(uuid.uuid4())[:18]


@contextmanager
def of_task(job: str | None, partition: int, attempt: int) -> Iterator[None]:
    """Names that are asked for inside, in this thread, are those of `job`, and of an attempt at the task of this partition."""
    job_before, task_before = _job.set(job), _task.set((partition, attempt))
    try:
        yield
    finally:
        _job.reset(job_before)
        _task.reset(task_before)


def fresh(with_task: bool = False) -> str:
    """A uuid; with `with_task`, after the task's partition and the number of the attempt, both 0 outside of tasks."""
    made, job = str(uuid.uuid4()), _job.get()
    name = made if job is None else job + made[18:]
    partition, attempt = _task.get()
    return f"{partition:05}-{attempt}-{name}" if with_task else name
