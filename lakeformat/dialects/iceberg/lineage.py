"""Which snapshots and documents led to the current one.

In the Hadoop layout a document's file is a number, and `write.metadata.delete-after-commit.enabled` frees numbers. A
writer that is held up between its look at the folder and its `create` can take one that was used and freed: a stray,
below the newest document, of which that one knows nothing.
"""

from __future__ import annotations

from lakeformat.codec import document
from lakeformat.dialects.iceberg import manifest, metadata
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.model.operation import Operation, WithoutSnapshot, new_files
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.store import Reader


def settle(reader: Reader, operation: Operation, base: State, plan: Plan, since: int) -> Outcome:
    """What became of an attempt whose outcome the answer left open; see the protocol."""
    request = operation.request
    if not base.exists:  # The table is gone.
        return Outcome.LOST
    if isinstance(operation, WithoutSnapshot):
        is_known = metadata.is_known_since(reader, base, request, since)
        return {True: Outcome.PUBLISHED, False: Outcome.LOST, None: Outcome.UNKNOWN}[is_known]
    if plan.snapshot.id in metadata.snapshots(base):
        return Outcome.PUBLISHED
    seen = metadata.on(reader, base, request.branch)
    committed = next(
        s for s in document.parse(plan.root, plan.root_path)["snapshots"] if s["snapshot-id"] == plan.snapshot.id
    )
    chain = metadata.ancestry(seen, metadata.current_id(seen))
    ids = [None] if not chain else [*(s["snapshot-id"] for s in chain), chain[-1].get("parent-snapshot-id")]
    if committed.get("parent-snapshot-id") in ids:
        return Outcome.LOST  # Had it landed, it would stand between its parent and whatever came after.
    new_paths = {*map(reader.location, new_files(operation)), *map(reader.location, plan.files)}
    metas = manifest.metas_of(reader, seen.snapshot_document)
    live = manifest.read_all(reader, seen, metas)["file_path"].to_pylist()
    # Its snapshot may have expired; only it can have added these files.
    return Outcome.PUBLISHED if new_paths & {*live, *metas["manifest_path"].to_pylist()} else Outcome.UNKNOWN
