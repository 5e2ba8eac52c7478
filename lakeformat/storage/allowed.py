"""Which files may be reached: those in folders that the caller names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from lakeformat.errors import InvalidInput, OutOfReach, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import paths

WAY_OUT = (
    "name the folders that statements may reach: sql(..., folders=['/data/in', 's3://bucket/in']), "
    "or --folder at the command line"
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The folders in which a lake may open, list, write and delete files, as `real` spells them."""

    folders: tuple[str, ...]

    def require(self, location: str, named_by: str) -> None:
        """Raise `OutOfReach` unless the absolute location is or lies in one of the folders. `named_by`: the table, or
        what else names the location."""
        if not _within(real(location), self.folders):
            by = "" if named_by == location else f"{named_by} names "
            raise OutOfReach(
                f"{by}{location}, which is in none of the allowed locations ({', '.join(self.folders)}); if you "
                "trust it, add its folder to allowed_locations (--allowed-location at the command line)"
            )


def allowed_in(root: str, locations: Iterable[str | os.PathLike[str]] | None) -> Allowed | None:
    """What `allowed_locations` names, with the folder `root`; None allows all. Raises `InvalidInput`."""
    if locations is None:
        return None
    if isinstance(locations, str | bytes | os.PathLike) or not isinstance(locations, Iterable):
        raise InvalidInput(f"allowed_locations={locations!r}: give a list of folders")
    folders = [os.fspath(location) if isinstance(location, os.PathLike) else location for location in locations]
    for folder in folders:
        if not isinstance(folder, str) or not paths.is_absolute(folder) or ".." in folder.split("/"):
            raise InvalidInput(
                f"allowed_locations: {folder!r} is not a folder: give an absolute path without '..', or an address "
                "such "
                "as s3://bucket/folder"
            )
    return Allowed(tuple(dict.fromkeys(map(real, (root, *folders)))))


def allowed(address: str, folders: Sequence[str]) -> str:
    """The address, without links, if it is or lies in one of the folders. Raises `UnsupportedFeature` for others, and
    `InvalidInput` for `..`."""
    if ".." in address.split("/"):
        raise InvalidInput(f"{address!r}: '..' is not allowed in it; write the whole path")
    target = real(address)
    if not _within(target, map(real, folders)):
        among = ", ".join(folders) or "none"
        raise UnsupportedFeature(
            f"{address}: this file or folder is out of reach (folders in reach: {among}); {WAY_OUT}"
        )
    return target


def real(address: str) -> str:
    """The address without links, with one spelling of its scheme, and of the host of a web address."""
    scheme = paths.scheme_of(address)
    if scheme in (None, "file"):
        return os.path.realpath(paths.local_folder(address) or "/")
    base, key = (paths.name_node_and_path if scheme == "hdfs" else paths.bucket_and_key)(address)
    if scheme in ("http", "https"):
        base = base.lower()
    return f"{base}/{key}".rstrip("/")


def _within(address: str, folders: Iterable[str]) -> bool:
    """Whether an address lies in one of the folders, all as `real` spells them. A web address without encryption does
    not lie in one with it."""
    return any(
        paths.relative(folder, address) is not None
        for folder in folders
        if not (folder.startswith("https:") and address.startswith("http:"))
    )
