"""Whether the snapshots of a document exist and come from one another,
without reading those again that were checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeformat.errors import CorruptFile
from lakeformat.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of the first `count` snapshots of a document, and of those that they come from."""

    count: int = 0
    ids: frozenset[int] = frozenset()
    parents: frozenset[int] = frozenset()

    def followed(self, snapshots: Sequence[Mapping[str, Any]]) -> Ids:
        """Of snapshots that begin with these."""
        new = snapshots[self.count :]
        parents = {snapshot["parent-snapshot-id"] for snapshot in new if snapshot.get("parent-snapshot-id") is not None}
        return Ids(len(snapshots), self.ids | {snapshot["snapshot-id"] for snapshot in new}, self.parents | parents)


def of_id(document: Mapping[str, Any], snapshot_id: int) -> Mapping[str, Any]:
    """A snapshot that is there: one of the newest, mostly."""
    return next(snapshot for snapshot in reversed(document["snapshots"]) if snapshot["snapshot-id"] == snapshot_id)


def check(document: Mapping[str, Any], current: int | None, checked: Ids | None) -> None:
    """Raise `CorruptFile` if a referenced snapshot does not exist, or if parents form a cycle; the `checked` snapshots
    are known not to."""
    every = document.get("snapshots") or ()
    new = {snapshot["snapshot-id"]: snapshot for snapshot in every[checked.count if checked else 0 :]}
    if checked and not (new.keys().isdisjoint(checked.parents) and new.keys().isdisjoint(checked.ids)):
        checked, new = None, {snapshot["snapshot-id"]: snapshot for snapshot in every}
    old = checked.ids if checked else frozenset()
    if current is not None and current not in new and current not in old:
        raise CorruptFile(f"the current snapshot {current} is not among the snapshots")
    for name, ref in document["refs"].items():
        if ref["snapshot-id"] not in new and ref["snapshot-id"] not in old:
            raise CorruptFile(
                f"{ref['type']} {name!r} is of snapshot {ref['snapshot-id']}, which is not among the snapshots"
            )
    ended: set[int] = set()
    for id in new:
        chain: dict[int, None] = {}
        ancestor: int | None = id
        while ancestor is not None and ancestor in new and ancestor not in ended:
            if ancestor in chain:
                raise CorruptFile(f"snapshot {ancestor} is its own ancestor")
            chain[ancestor] = None
            ancestor = new[ancestor].get("parent-snapshot-id")
        ended.update(chain)  # A union with a keys view would copy the set.
