"""Which files a statement may reach: those in folders that the caller names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.storage import paths

WAY_OUT = (
    "name the folders that statements may reach: sql(..., folders=['/data/in', 's3://bucket/in']), "
    "or --folder at the command line"
)


def allowed(address: str, folders: Sequence[str]) -> str:
    """The address, without links, if it is or lies in one of the folders. Raises `UnsupportedFeature` for others, and
    `InvalidInput` for `..`."""
    if ".." in address.split("/"):
        raise InvalidInput(f"{address!r}: '..' is not allowed in it; write the whole path")
    target = real(address)
    if not any(paths.relative(real(folder), target) is not None for folder in folders):
        among = ", ".join(folders) or "none"
        raise UnsupportedFeature(
            f"{address}: this file or folder is out of reach (folders in reach: {among}); {WAY_OUT}"
        )
    return target


def real(address: str) -> str:
    """The address without links, with one spelling of its scheme."""
    if paths.scheme_of(address) in (None, "file"):
        return os.path.realpath(paths.local_folder(address) or "/")
    base, key = paths.bucket_and_key(address)
    return f"{base}/{key}"
