"""Consumers, which keep the snapshots that they have not read."""

from __future__ import annotations

import time

from lakeformat.dialects.paimon.metadata.documents import emit, parsed
from lakeformat.dialects.paimon.metadata.folders import CONSUMER_FOLDER
from lakeformat.dialects.paimon.metadata.refs import NAME
from lakeformat.dialects.paimon.metadata.state import State
from lakeformat.dialects.part import Part
from lakeformat.errors import CorruptFile, InvalidInput, NoSuchFile
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.store import Reader


def consumers(reader: Reader) -> dict[str, int]:
    """Consumer -> the next snapshot it will read, which expiry must keep. A half-written file is read again."""
    next_snapshots: dict[str, int] = {}
    for name in reader.names(CONSUMER_FOLDER):
        if not name.startswith("consumer-"):
            continue
        path = f"{CONSUMER_FOLDER}/{name}"
        for attempt in range(10):
            try:
                document = parsed(reader.read(path), f"{reader.root}/{path}", {"nextSnapshot": int})
                next_snapshots[name.removeprefix("consumer-")] = document["nextSnapshot"]
                break
            except NoSuchFile:
                break
            except CorruptFile:
                if attempt == 9:
                    raise
                time.sleep(0.01 * (attempt + 1))
    return next_snapshots


@dataclass(frozen=True, slots=True)
class Consumers(Part[State]):
    """Named readers, whose progress the table keeps."""

    def progress(self, name: str) -> int | None:
        """The next snapshot that a consumer will read; None if it does not exist."""
        self.path(name)
        return consumers(self.reader).get(name)

    def file(self, name: str, next_snapshot: int) -> tuple[str, bytes]:
        """The path and bytes of the file with a consumer's progress."""
        return self.path(name), emit({"nextSnapshot": next_snapshot})

    def path(self, name: str) -> str:
        """The path of that file. Raises `InvalidInput` for an invalid name."""
        if not isinstance(name, str) or not NAME.fullmatch(name) or not name.strip():
            raise InvalidInput(f"consumer {name!r}: a name must not be empty, or hold slashes or control characters")
        return f"{CONSUMER_FOLDER}/consumer-{name}"
