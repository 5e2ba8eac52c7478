"""Tags and branches, and the snapshots that they name."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

from lakeformat.dialects.iceberg import options
from lakeformat.dialects.iceberg.metadata.documents import snapshots_by_id
from lakeformat.dialects.iceberg.metadata.state import MAIN, State
from lakeformat.errors import (
    InvalidInput,
    NotFound,
)
from lakeformat.model.operation import Request, SetTag
from lakeformat.storage.store import Reader

_TAG_NAME = re.compile(r"[^/\\\x00-\x1f\ud800-\udfff]+")


def branches(base: State) -> dict[str, Mapping[str, Any]]:
    """Branch name -> its reference; includes `main` once there is a snapshot."""
    return {name: ref for name, ref in (base.document.get("refs") or {}).items() if ref["type"] == "branch"}


def snapshots(base: State) -> dict[int, Mapping[str, Any]]:
    """Every snapshot of the document, by id."""
    return snapshots_by_id(base.document)


def snapshot_of(base: State, snapshot_id: int | None) -> Mapping[str, Any] | None:
    """A snapshot of the document; the one that the table is looked at from is at hand."""
    if base.snapshot_document is not None and base.snapshot_document["snapshot-id"] == snapshot_id:
        return base.snapshot_document
    return None if snapshot_id is None else snapshots(base).get(snapshot_id)


def current_id(base: State) -> int | None:
    """The snapshot from which the table is seen."""
    return None if base.snapshot_document is None else base.snapshot_document["snapshot-id"]


def tags(base: State) -> dict[str, Mapping[str, Any]]:
    """Tag name -> its reference."""
    return {name: ref for name, ref in (base.document.get("refs") or {}).items() if ref["type"] == "tag"}


def check_name(base: State, kind: str, name: str) -> None:
    """Raise `InvalidInput` for an invalid name of a tag or branch."""
    if not _TAG_NAME.fullmatch(name) or name in {".", ".."} or not name.strip() or name.isdigit():
        raise InvalidInput(
            f"{kind} {name!r}: a name must not be empty, a number, or hold slashes or control characters"
        )
    other = "branch" if kind == "tag" else "tag"
    if (name == MAIN and kind == "tag") or (base.document.get("refs") or {}).get(name, {}).get("type") == other:
        raise InvalidInput(f"{kind} {name!r}: there is a {other} of that name")


def tag(reader: Reader, base: State, name: str, now_ms: int, retain_ms: int | None) -> SetTag:
    """The operation that tags the snapshot of `base`, for `retain_ms` or for ever."""
    check_name(base, "tag", name)
    if base.snapshot_document is None:
        raise NotFound(f"{reader.root}: the table has no snapshot that tag {name!r} could keep; write something first")
    request = Request(id=str(uuid.uuid4()), absent_until=base.version)
    snapshot_id = base.snapshot_document["snapshot-id"]
    return SetTag(request=request, name=name, snapshot_id=snapshot_id, retain_ms=retain_ms)


def expired_tags(reader: Reader, base: State, now_ms: int) -> list[str]:
    """The expired tags and branches: their snapshot is older than their own `max-ref-age-ms`, or than the table's
    `history.expire.max-ref-age-ms`. `main` never expires."""
    by_id = snapshots(base)
    most = options.read(base.schema.properties).max_ref_age_ms
    return sorted(
        name
        for name, ref in (base.document.get("refs") or {}).items()
        if name != MAIN and now_ms - by_id[ref["snapshot-id"]]["timestamp-ms"] >= ref.get("max-ref-age-ms", most)
    )
