"""Progress of long work: a bar in a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from lakeformat import lazy
from lakeformat.model.log import log

tqdm = lazy.library("tqdm")
T = TypeVar("T")
_QUIET_SECONDS = 5.0


def track(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items, one by one. Shows the progress; in a log at most every five seconds."""
    if sys.stderr.isatty():
        yield from tqdm.tqdm(items, desc=label, total=total, leave=False)
        return
    logged = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - logged > _QUIET_SECONDS:
            logged = time.monotonic()
            log.info("%s: %d of %d", label, done, total)
        yield item
