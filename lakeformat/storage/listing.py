"""Parallel listing of object storage: many objects below a name are listed part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import Any

import obstore

PAGE = 1000  # The most objects in one answer.
_FEW = 4  # So many answers in sequence take as long as finding where to cut.
_PARTS = 64
_DEPTH = 3

Several = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


def listed(client: Any, prefix: str | None, several: Several, cuts: bool, page: int = PAGE) -> list[Any]:
    """All objects below `prefix`, unordered. With `cuts`, for a service that can list from any name on, more objects
    than fit a few answers are listed from several names at a time, between folders. Any other service is listed
    sequentially."""
    first = [entry for chunk in islice(obstore.list(client, prefix, chunk_size=page), _FEW) for entry in chunk]
    if len(first) < _FEW * page:
        return first
    if cuts:
        folders = _folders(client, prefix, several)
        names = folders[:: -(-len(folders) // _PARTS) or 1]
        parts = list(several(partial(_between, client, prefix, page), pairwise([None, *names, None])))
        if all(part is not None for part in parts):
            return [entry for part in parts for entry in part]
    return [entry for chunk in obstore.list(client, prefix, chunk_size=page) for entry in chunk]


def _folders(client: Any, prefix: str | None, several: Several) -> list[str]:
    """Folders below `prefix`, level by level, until there are enough to cut at; sorted."""
    below: list[str] = []
    level: Sequence[str | None] = [prefix]
    for _ in range(_DEPTH):
        inside = [folder for folders in several(partial(_inside, client), level) for folder in folders]
        below += inside
        if not inside or len(below) >= _PARTS:
            break
        level = inside
    return sorted(below)


def _inside(client: Any, prefix: str | None) -> list[str]:
    return list(obstore.list_with_delimiter(client, prefix)["common_prefixes"])


def _between(client: Any, prefix: str | None, page: int, ends: tuple[str | None, str | None]) -> list[Any] | None:
    """The objects after one name, up to and including another; None if they do not come in the order of their names."""
    start, end = ends
    objects: list[Any] = []
    before = ""
    for chunk in obstore.list(client, prefix, offset=start, chunk_size=page):
        for entry in chunk:
            path = entry["path"]
            if path < before:
                return None
            before = path
            if end is not None and path > end:
                return objects
            if start is None or path > start:  # A service may start at the first anyway.
                objects.append(entry)
    return objects
