"""Which manifests a plan decodes whole, and which in part: without bounds, which a condition reads again."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from lakeformat.storage.cache import keeps_part
from lakeformat.storage.store import Reader

LARGE_BYTES = 16 << 20  # Bytes of manifests that are planned together: some 360,000 entries.
PART_BYTES = 1 << 20  # Bytes of a manifest, on average, from which on decoding only what a plan needs is worth it.


class Way(Enum):
    """How a plan decodes manifests."""

    WHOLE = auto()
    PART = auto()  # Only what tasks need.
    PART_AND_BOUNDS = auto()  # What tasks need is cached; bounds are read again, and not kept.


def way(
    reader: Reader,
    paths: Sequence[str],
    size_bytes: int,
    asks_bounds: bool,
    large_bytes: int = LARGE_BYTES,
    part_bytes: int = PART_BYTES,
) -> Way:
    """How to decode the manifests at `paths`, which have `size_bytes` together, for a plan. Only what tasks need is
    decoded if manifests have more than `part_bytes` on average, which saves time, or more than `large_bytes` together,
    which saves memory. Only with more than `large_bytes` are bounds read again each time, instead of kept."""
    is_large = size_bytes > large_bytes
    if asks_bounds:
        return Way.PART_AND_BOUNDS if is_large and all(keeps_part(reader, path) for path in paths) else Way.WHOLE
    return Way.PART if is_large or size_bytes > part_bytes * len(paths) else Way.WHOLE
