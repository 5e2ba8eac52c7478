"""Tags and branches: names of snapshots."""

from __future__ import annotations

import calendar
import datetime
import re
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lakeformat.dialects.paimon import options
from lakeformat.dialects.paimon.metadata.folders import BRANCH_FOLDER, MAIN, ROOT_FOLDERS, TAG_FOLDER
from lakeformat.dialects.paimon.metadata.schemas import newest_schema_after
from lakeformat.dialects.paimon.metadata.snapshots import emit_snapshot, parse_snapshot
from lakeformat.dialects.paimon.metadata.state import State
from lakeformat.errors import CorruptFile, InvalidInput, NoSuchFile, NotFound
from lakeformat.model.schema import Schema
from lakeformat.model.tag_schedule import TagSchedule
from lakeformat.storage.store import Reader, Store
from lakeformat.storage.swapped import Swapped

PIN = "lakeformat-keep-"  # Begins the name of a tag that keeps a snapshot while a verb refers to it.
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
# (period, the name of its tags, for strftime), by period and formatter.
_PERIODS = {
    ("daily", "with_dashes"): (_DAY, "%Y-%m-%d"),
    ("daily", "without_dashes"): (_DAY, "%Y%m%d"),
    ("daily", "without_dashes_and_spaces"): (_DAY, "%Y%m%d"),
    ("hourly", "with_dashes"): (_HOUR, "%Y-%m-%d %H"),
    ("hourly", "without_dashes"): (_HOUR, "%Y%m%d %H"),
    ("hourly", "without_dashes_and_spaces"): (_HOUR, "%Y%m%d%H"),
    ("two-hours", "with_dashes"): (2 * _HOUR, "%Y-%m-%d %H"),
    ("two-hours", "without_dashes"): (2 * _HOUR, "%Y-%m-%d %H"),
    ("two-hours", "without_dashes_and_spaces"): (2 * _HOUR, "%Y-%m-%d %H"),
}
NAME = re.compile(r"[^/\\\x00-\x1f\ud800-\udfff]+")


def check_new_name(kind: str, name: str) -> None:
    """Raise `InvalidInput` for a new tag or branch whose name is a number, as a snapshot's. Automatic tags of a day may
    be called so; they are read and deleted as any."""
    if isinstance(name, str) and name.isdigit():
        raise InvalidInput(f"{kind} {name!r}: a new name must not be a number")


def tag_schedule(schema: Schema) -> TagSchedule | None:
    """The tags that the table makes by itself (`tag.*`). Raises `InvalidInput` for a delay that is too long."""
    table_options = options.read(schema)
    mode = table_options.tag_automatic_creation
    if mode == "none":
        return None
    period, pattern = _PERIODS[table_options.tag_creation_period, table_options.tag_period_formatter]
    if table_options.tag_creation_period_duration is not None:
        period, pattern = timedelta(milliseconds=table_options.tag_creation_period_duration), "%Y%m%d%H%M"
    delay = timedelta(milliseconds=table_options.tag_creation_delay)
    if not delay < period:
        raise InvalidInput(f"option 'tag.creation-delay' is {delay}; it must be shorter than the period, {period}")
    custom = table_options.tag_batch_customized_name
    batch_name = "batch-write-%Y-%m-%d" if custom is None else custom.replace("%", "%%")
    return TagSchedule(
        pattern,
        period,
        delay,
        table_options.sink_watermark_time_zone if mode == "watermark" else None,
        table_options.tag_automatic_completion,
        None if mode == "batch" else table_options.tag_num_retained_max,
        table_options.tag_default_time_retained,
        batch_name if mode == "batch" else None,
    )


def tag_path(name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in {".", ".."} or not name.strip():
        raise InvalidInput(f"tag {name!r}: a name must not be empty, or hold slashes or control characters")
    return f"{TAG_FOLDER}/tag-{name}"


def read_tag(reader: Reader, name: str) -> dict[str, Any]:
    """A tag's document. Raises `NotFound`."""
    path = tag_path(name)
    try:
        return parse_snapshot(reader.read(path), f"{reader.root}/{path}")
    except NoSuchFile:
        names = ", ".join(sorted(tags(reader))) or "none"
        raise NotFound(f"{reader.root}: no tag {name!r}; there are: {names}") from None


def tags(reader: Reader, branch: str = "", pins: bool = False) -> dict[str, dict[str, Any]]:
    """Tag name -> its document. With `pins` also those that keep a snapshot while a verb refers to it."""
    folder = f"{branch}{TAG_FOLDER}"
    names = [name for name in reader.names(folder) if name.startswith("tag-")]
    paths = [f"{folder}/{name}" for name in names if pins or not name.startswith(f"tag-{PIN}")]
    files = zip(paths, reader.read_many(paths), strict=True)
    prefix = len(f"{folder}/tag-")
    return {path[prefix:]: parse_snapshot(data, f"{reader.root}/{path}") for path, data in files if data is not None}


def emit_tag(document: Mapping[str, Any], now_ms: int, retain_ms: int | None) -> bytes:
    """A snapshot's document -> a tag file, for `retain_ms` or for ever."""
    created = [*time.localtime(now_ms // 1000)[:6], now_ms % 1000 * 1_000_000]
    retained = None if retain_ms is None else retain_ms / 1000
    return emit_snapshot({**document, "tagCreateTime": created, "tagTimeRetained": retained})


def tag(reader: Reader, base: State, name: str, now_ms: int, retain_ms: int | None) -> tuple[str, bytes]:
    """The path and bytes of a tag on the snapshot of `base`, for `retain_ms` or for ever."""
    if base.document is None:
        raise NotFound(f"{reader.root}: the table has no snapshot that tag {name!r} could keep; write something first")
    schedule = tag_schedule(newest_schema_after(reader, base.schema)) if str(name).isdigit() else None
    if schedule is None or schedule.start_of(name) is None:  # Not an automatic one.
        check_new_name("tag", name)
    return tag_path(name), emit_tag(base.document, now_ms, retain_ms)


def pin(base: State, now_ms: int, retain_ms: int) -> tuple[str, bytes] | None:
    """The path and bytes of a tag that keeps the snapshot of `base` while a verb refers to it; None if there is
    none."""
    if base.document is None:
        return None
    return tag_path(f"{PIN}{uuid.uuid4()}"), emit_tag(base.document, now_ms, retain_ms)


def expired_tags(reader: Reader, base: State, now_ms: int) -> list[str]:
    """The tags whose retention is over."""
    over = []
    for name, document in tags(reader, pins=True).items():
        created, retained = tag_created_ms(reader, name, document), document.get("tagTimeRetained")
        if created is not None and retained is not None and created + retained * 1000 < now_ms:
            over.append(name)
    return sorted(over)


def tag_created_ms(reader: Reader, name: str, document: Mapping[str, Any]) -> int | None:
    """The creation time of a tag, in milliseconds since 1970, rounded to seconds; None if its file does not record
    it."""
    created = document.get("tagCreateTime")
    if created is None:
        return None
    try:
        moment = datetime.datetime(*created[:6], *(n // 1000 for n in created[6:]))
    except (TypeError, ValueError) as error:
        raise CorruptFile(f"{reader.root}/{tag_path(name)}: tagCreateTime is {created!r} ({error})") from error
    return epoch_ms(calendar.timegm(moment.timetuple()) * 1000)


def local_ms(epoch_ms: int) -> int:
    """A time as Java's LocalDateTime: the local clock's, in milliseconds as if it were UTC."""
    return epoch_ms + time.localtime(epoch_ms // 1000).tm_gmtoff * 1000


def epoch_ms(local_ms: int) -> int:
    """Such a time in milliseconds since 1970."""
    seconds, rest = divmod(local_ms, 1000)
    return int(time.mktime((*time.gmtime(seconds)[:8], -1))) * 1000 + rest


def branch_folder(name: str) -> str:
    """The folder of a branch's schemas, snapshots and tags; for `main`, its folders as seen from a branch. Raises
    `InvalidInput`."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or not name.strip():
        raise InvalidInput(f"branch {name!r}: a name must not be empty, or hold slashes or control characters")
    return f"{BRANCH_FOLDER}/branch-{name}"


def on_branch(store: Store, name: str) -> Store:
    """The table's files as seen from one of its branches: its root documents are its own, all other files are
    shared."""
    return Swapped(store, ROOT_FOLDERS, branch_folder(name), branch_folder(MAIN))


def branches(reader: Reader) -> list[str]:
    """The folders of the other branches, each with a slash at its end; from a branch, also that of `main`."""
    return [f"{BRANCH_FOLDER}/{name}/" for name in reader.folders(BRANCH_FOLDER) if name.startswith("branch-")]
