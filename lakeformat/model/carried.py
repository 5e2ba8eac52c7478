"""Properties of a snapshot that speak of all its rows, and not of its commit: the snapshot made of it has them as well.

So they outlast the commits that wrote them, where only those expire. Snapshots of other engines carry nothing: what the one before
them had is then found in the history, as long as that is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakeformat.errors import CorruptTable

STREAMS = "lakeformat.streams"  # The largest number that each stream has committed, by its user.
_FOLLOWS = "cdc."  # How far the rows follow a database.
_OF_THE_COMMIT = "cdc.committed-ms"
_MOST_STREAMS = 20  # Those that committed last; a table written under ever new names would carry all of them.


def properties(
    given: Mapping[str, str],
    session: tuple[str, int] | None,
    before: Mapping[str, str],
    streams: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The properties of a snapshot: those of its commit, and what it carries from the one `before`, whose rows it has. A commit that says how far
    its rows follow says all of it. `streams`: the properties of the snapshot from which those of streams come, if that is another."""
    made = dict(given)
    if not any(name.startswith(_FOLLOWS) for name in given):
        made = {k: v for k, v in before.items() if k.startswith(_FOLLOWS) and k != _OF_THE_COMMIT} | made
    numbers = committed(before if streams is None else streams)
    if session is not None:
        user, number = session
        numbers[user] = max(number, numbers.pop(user, number))
    if numbers:
        made[STREAMS] = json.dumps(dict(list(numbers.items())[-_MOST_STREAMS:]))
    return made


def committed(carried: Mapping[str, str]) -> dict[str, int]:
    """Of each stream that a snapshot's properties know: its largest number. Raises `CorruptTable`."""
    text = carried.get(STREAMS, "{}")
    try:
        return {str(user): int(number) for user, number in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptTable(f"a snapshot's property {STREAMS} is {text!r}, and no numbers of streams") from error
