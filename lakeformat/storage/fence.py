"""A table that changes its format where it lies: a mark says to which, and a fence in the place of the next version that it has."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakeformat.errors import CorruptFile, NoSuchFile, NotFound
from lakeformat.storage.store import Reader, Store

MARK = "schema/converting"
_BEGIN = b"This table is of another format now: "


@dataclass(frozen=True, slots=True)
class Conversion:
    """Of a table that becomes one of the format `to`: it is one as soon as there is a fence at `path`, where its other format would
    have its next version; the mark says that it `stood` once nothing is left to do. `key` is its primary key, `gone` the data files that
    only the other format's metadata names."""

    to: str
    path: str
    key: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    stood: bool = False

    def emit(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_done(self, reader: Reader) -> bool:
        """Whether the fence stands, or stood."""
        try:
            return self.stood or reader.read(self.path).startswith(_BEGIN)
        except NoSuchFile:
            return False


def forget(store: Store) -> None:
    """Delete the mark and the fence, of a table that is gone."""
    found = conversion(store)
    if found is not None:
        store.delete([found.path, MARK])
        store.remove_empty_folders([path.rpartition("/")[0] for path in (found.path, MARK)])


def fence(to: str, nonce: str) -> bytes:
    """What no engine of the former format reads as a version."""
    return _BEGIN + f"{to} (by lakeformat, {nonce})\n".encode()


def conversion(reader: Reader) -> Conversion | None:
    """The conversion that is under way, or that is done but for files of the former format."""
    try:
        found = json.loads(reader.read(MARK))
        return Conversion(found["to"], found["path"], tuple(found["key"]), tuple(found["gone"]), found["stood"])
    except NoSuchFile:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{reader.root}/{MARK}: not what lakeformat writes there: {error!r}") from error


def refuse(data: bytes, where: str) -> None:
    """Raise `NotFound` for a fence."""
    if data.startswith(_BEGIN):
        raise NotFound(f"{where}: the table was converted to another format; open it again by its name")
