"""Table options by their documented keys: a misspelt key is refused; a key that lakeformat does not act on is logged
once."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable

from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.log import log

_OURS = "lakeformat."
_CUTOFF = 0.8  # Of difflib's ratio: two swapped letters in a word of six still pass, other words do not.
_PART_CUTOFF = 0.6
_SEPARATORS = re.compile(r"[-_. ]")

_logged: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Documented:
    """The option keys that a format documents. A `*` in a key stands for a name, e.g. of a column."""

    heeded: frozenset[str]  # lakeformat acts on these, or refuses values that it does not support.
    ignored: frozenset[str]  # Only other engines act on these.

    @classmethod
    def declared(cls, heeded: Iterable[str], others: str) -> Documented:
        """The keys of declared options, and others as text, separated by spaces."""
        kept = frozenset(heeded)
        return cls(kept, frozenset(others.split()) - kept)

    def is_heeded(self, key: str) -> bool:
        return _matches(key, self.heeded)

    def is_known(self, key: str) -> bool:
        return _matches(key, self.heeded) or _matches(key, self.ignored)


def near(key: str, documented: Documented) -> str | None:
    """The documented key that the unknown `key` was meant to be, or two with "or"; None for a user's own key, which
    resembles none."""
    return _near(key, documented.heeded | documented.ignored)


def check(keys: Iterable[str], documented: Documented, kind: str, where: str) -> None:
    """Raise `InvalidInput` for misspelt keys. Log those that lakeformat does not act on, once per table and key.

    `kind`: the format's word for an option. `where`: the table.
    """
    ignored = []
    for key in keys:
        if documented.is_heeded(key):
            continue
        if not key.strip():
            raise InvalidInput(f"{where}: unknown {kind} {key!r}: it has no name")
        if documented.is_known(key):
            ignored.append(key)
        elif meant := near(key, documented):
            raise InvalidInput(f"{where}: unknown {kind} {key!r}; did you mean {meant}?")
        elif key.startswith(_OURS):
            ours = sorted(key for key in documented.heeded if key.startswith(_OURS))
            raise InvalidInput(f"{where}: unknown {kind} {key!r}; those of lakeformat are {', '.join(ours)}")
    for key in ignored:
        if (where, key) not in _logged:
            _logged.add((where, key))
            log.warning("%s: %s %r is kept for other engines; lakeformat does not act on it", where, kind, key)


def _matches(key: str, keys: frozenset[str]) -> bool:
    return key in keys or bool(_pattern(keys).fullmatch(key))


@functools.cache
def _pattern(keys: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(".+".join(map(re.escape, key.split("*"))) for key in keys if "*" in key) or r"(?!)")


@functools.lru_cache(1024)
def _near(key: str, keys: frozenset[str]) -> str | None:
    candidates = [(_likeness(key, known), known) for known in keys if "*" not in known]
    candidates += [known for family in keys if "*" in family for known in _in_family(key, family)]
    best = max(likeness for likeness, _ in candidates)
    if best < _CUTOFF:
        return None
    return " or ".join(repr(meant) for likeness, meant in sorted(candidates) if likeness == best)


def _likeness(key: str, other: str) -> float:
    """0 to 1. Case and separators do not count; keys with equally many parts are compared part by part."""
    key, other = key.lower(), other.lower()
    if _SEPARATORS.sub("", key) == _SEPARATORS.sub("", other):
        return 1.0
    matcher = difflib.SequenceMatcher(None, key, other, autojunk=False)
    if matcher.real_quick_ratio() < _CUTOFF or matcher.quick_ratio() < _CUTOFF:
        return 0.0
    parts, others = key.split("."), other.split(".")
    if len(parts) == len(others) and any(
        difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() < _PART_CUTOFF
        for a, b in zip(parts, others, strict=True)
    ):
        return 0.0
    return matcher.ratio()


def _in_family(key: str, family: str) -> list[tuple[float, str]]:
    """The likeness of `key` to a documented key with a `*`, apart from the name, and the key it would be then."""
    head, tail = family.split("*", 1)
    before, after, parts = head.count("."), tail.count("."), key.split(".")
    if before + after < 2 or "*" in tail or len(parts) < before + after + 1:
        return []  # `spark.*` and the like: any name may follow.
    name = ".".join(parts[before : len(parts) - after])
    given = ".".join([*parts[:before], "", *parts[len(parts) - after :]])
    return [(_likeness(given, head + tail), f"{head}{name}{tail}")]
