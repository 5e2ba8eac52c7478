"""`open_store`, which chooses a store by its URI."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping

from lakeformat.errors import InvalidInput
from lakeformat.storage import paths
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.client import OBJECT_SCHEMES, truth
from lakeformat.storage.credentials import Lease
from lakeformat.storage.hadoop import HadoopFiles
from lakeformat.storage.local import LocalFiles, names_of
from lakeformat.storage.objects import ObjectFiles
from lakeformat.storage.store import Store


def open_store(
    uri: str,
    options: Mapping[str, str] | None = None,
    lease: Lease | None = None,
    allowed: Allowed | None = None,
    named_by: str | None = None,
) -> Store:
    """Open the Store rooted at a folder: a plain path, `file:`, `s3://`, `gs://`, `az://`, `abfss://`, or read-only
    `https://`, or read-only `hdfs://`, which needs Java and libhdfs.

    A URI is taken literally, as by the formats' Java engines: `%20` is three characters. Nothing is contacted yet.

    Local options: `fsync` ("true", the default: a file survives a power cut once its call has returned; or "false").
    Object storage: the service's own options, with or without their prefix (`aws_endpoint`, `endpoint`, `region`,
    `access_key_id`, `s3.endpoint`, `s3.access-key`, ...), the HTTP client's (`timeout`, `allow_http`, ...),
    `max_retries` and `retry_timeout` (seconds), and the service's usual environment variables. `lease`: credentials
    instead of those in the options. `allowed`: the locations to which the store keeps, wherever a path given to it
    points; `named_by` names the folder in errors about that. Raises `InvalidInput` and `OutOfReach`.
    """
    settings = dict(options or {})
    scheme = paths.scheme_of(uri)
    if allowed is not None:
        allowed.require(uri, named_by or uri)
    if scheme in (None, "file"):
        if unknown := sorted(settings.keys() - {"fsync"}):
            raise InvalidInput(f"{uri}: unknown option {unknown[0]!r} for local files; the only one is 'fsync'")
        folder = paths.local_folder(uri)
        if os.path.isfile(folder):
            raise InvalidInput(f"{uri} is a file; a warehouse or a table is a folder")
        return LocalFiles(folder, open_store, truth("fsync", settings.get("fsync", "true")), allowed)
    if scheme == "hdfs":
        node, path = paths.name_node_and_path(uri)
        return HadoopFiles(
            node, path, open_store, tuple(sorted((str(k), str(v)) for k, v in settings.items())), allowed
        )
    if scheme not in OBJECT_SCHEMES:
        raise InvalidInput(f"{uri}: cannot open {scheme}: URIs; supported: file, hdfs, {', '.join(OBJECT_SCHEMES)}")
    base, prefix = paths.bucket_and_key(uri)
    if ":" in base.partition("://")[2].rpartition("@")[0]:
        raise InvalidInput(
            f"{uri}: a password in an address is written into the files of its tables; "
            "give credentials as options instead"
        )
    return ObjectFiles(
        base, prefix, open_store, tuple(sorted((str(k), str(v)) for k, v in settings.items())), lease, allowed
    )


def missing_folder(store: Store) -> str | None:
    """An error text if the folder of a local store does not exist; None if it does, and for object storage, which has
    no folders."""
    if not isinstance(store, LocalFiles) or os.path.isdir(store.folder):
        return None
    above, name = os.path.split(store.folder)
    while not os.path.isdir(above):
        above, name = os.path.split(above)
    near = difflib.get_close_matches(name, names_of(above, os.DirEntry.is_dir), 3)
    return f"{above} has no folder {name!r}" + (f"; near it are {', '.join(near)}" if near else "")
