"""The conversion of a table's format: a mark says to which, and a fence takes the name of the table's next version."""

from __future__ import annotations

import json
from dataclasses import asdict

from lakeformat.errors import CorruptFile, NoSuchFile, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.store import Reader, Store

MARK = "schema/converting"
_BEGIN = b"This table is of another format now: "


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion of a table to the format `to`. It is done as soon as there is a fence at `path`, the name of the
    next version of the old format. `key` is the table's primary key, `gone` the data files that only the old format's
    metadata refers to. `stood` is True once nothing is left to do."""

    to: str
    path: str
    key: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    stood: bool = False

    def emit(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_done(self, reader: Reader) -> bool:
        """Whether the fence exists, or did."""
        try:
            return self.stood or reader.read(self.path).startswith(_BEGIN)
        except NoSuchFile:
            return False


def forget(store: Store) -> None:
    """Delete the mark and the fence of a dropped table."""
    begun = conversion(store)
    if begun is not None:
        store.delete([begun.path, MARK])
        store.remove_empty_folders([path.rpartition("/")[0] for path in (begun.path, MARK)])


def fence(to: str, nonce: str) -> bytes:
    """A document that no engine of the old format accepts as a version."""
    return _BEGIN + f"{to} (by lakeformat, {nonce})\n".encode()


def conversion(reader: Reader) -> Conversion | None:
    """The conversion that is running, or that is done except for files of the old format."""
    try:
        document = json.loads(reader.read(MARK))
        return Conversion(
            document["to"], document["path"], tuple(document["key"]), tuple(document["gone"]), document["stood"]
        )
    except NoSuchFile:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{reader.root}/{MARK}: not what lakeformat writes there: {error!r}") from error


def refuse(data: bytes, where: str) -> None:
    """Raise `NotFound` for a fence."""
    if data.startswith(_BEGIN):
        raise NotFound(f"{where}: the table was converted to another format; open it again by its name")
