"""Files that tell readers where to begin."""

from __future__ import annotations

from lakeformat.dialects.paimon.metadata.folders import SNAPSHOT_FOLDER
from lakeformat.dialects.paimon.metadata.snapshots import snapshot_ids, spans
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.storage.store import Reader


def earliest(reader: Reader, snapshot_id: int) -> tuple[int, dict[str, bytes]]:
    """(the snapshot that other engines take for the earliest, the hint that makes it `snapshot_id`): they read the hint
    `EARLIEST`, and expect every number from there on (SnapshotManager.repairEarliestSnapshot)."""
    ids, path = snapshot_ids(reader), f"{SNAPSHOT_FOLDER}/EARLIEST"
    if not ids:
        raise NotFound(f"{reader.root}: the table has no snapshot")
    (hint,) = reader.read_many([path])
    hinted = int(hint) if hint is not None and hint.strip().isdigit() else ids[0]
    before = hinted if hinted in ids else ids[0]
    missing = sorted({*range(snapshot_id, ids[-1] + 1)} - {*ids})
    if snapshot_id < before or snapshot_id > ids[-1] or missing:
        said = f"the snapshots {spans(missing)} after it are missing" if missing else f"it is {before} to {ids[-1]}"
        raise InvalidInput(f"{reader.root}: snapshot {snapshot_id} cannot be the earliest: {said}")
    return before, {path: str(snapshot_id).encode()}
