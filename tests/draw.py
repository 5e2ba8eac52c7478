"""What `make test` takes of what there is to try, where `make test-long` takes all: the first, the last, and some that are drawn.

All runs draw the same, on any day. `LAKEFORMAT_DRAW=7 make test` draws others; each run prints its number, and what falls
then is an old fault.
"""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

Choice = TypeVar("Choice")

IS_LONG = int(os.environ.get("LAKEFORMAT_SEEDS", "50")) > 1000  # `make test-long`.
# Kept for the processes that this one starts: all draw the same.
DRAW = os.environ.setdefault("LAKEFORMAT_DRAW", "739947")


def some(choices: Sequence[Choice], count: int, *subject: object) -> list[Choice]:
    """`count` of the choices in their order, of few choices all; which ones depends on the draw and on the `subject`."""
    if IS_LONG or len(choices) <= count:
        return list(choices)
    numbers = random.Random(f"{DRAW} {subject}").sample(range(len(choices)), count)
    return [choices[number] for number in sorted(numbers)]


def ends_and_some(choices: Sequence[Choice], count: int, *subject: object) -> list[Choice]:
    """The first choice, the last one, and `count` of those between, as `some` takes them."""
    return [*choices[:1], *some(choices[1:-1], count, *subject), *choices[1:][-1:]]
