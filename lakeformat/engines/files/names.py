"""Names of new files: no other write has them, and those of a job's tasks name the job."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_job: ContextVar[str | None] = ContextVar("job", default=None)


def new_job() -> str:
    """What the names that a job's tasks give have in them, and no other names: the first half of a uuid."""
    return str(uuid.uuid4())[:18]


@contextmanager
def of_job(job: str) -> Iterator[None]:
    """Names that are asked for inside, in this thread, are those of `job`."""
    before = _job.set(job)
    try:
        yield
    finally:
        _job.reset(before)


def fresh() -> str:
    """A uuid."""
    made, job = str(uuid.uuid4()), _job.get()
    return made if job is None else job + made[18:]
