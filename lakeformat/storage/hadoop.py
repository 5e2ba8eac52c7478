"""A store of the files of a Hadoop file system, through Arrow's client, which needs Java and libhdfs. Read-only: the
client has no create that fails for a file that exists, and its move replaces files, so that writers would lose each
other's commits (pyarrow's documentation, `FileSystem.move` and `open_output_stream`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from importlib import import_module
from typing import Any, BinaryIO, cast

from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import paths
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.failures import first_line, store_errors
from lakeformat.storage.read_only import Unchanging
from lakeformat.storage.several import or_none, several
from lakeformat.storage.store import Listed, Opener, R, Reader, Store, T

_IN_FLIGHT = 8  # Concurrent requests of one call: each takes a thread of the JVM.


@dataclass(frozen=True, slots=True)
class HadoopFiles(Unchanging):
    """The files below the folder `prefix` of the name node or name service `base` (`hdfs://host:port`). Each process
    connects once to each of them, on first use. `options`: `user`, `kerb_ticket`, and keys of Hadoop's configuration.
    """

    base: str
    prefix: str
    opener: Opener = field(repr=False, compare=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allowed: Allowed | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        return f"{self.base}/{self.prefix}" if self.prefix else self.base

    @property
    def is_local(self) -> bool:
        return False

    def location(self, path: str) -> str:
        if elsewhere := self._outside(path):
            return elsewhere[0].location(elsewhere[1])
        return self.base + self._path(path)

    def read(self, path: str) -> bytes:
        if elsewhere := self._outside(path):
            return elsewhere[0].read(elsewhere[1])
        name = self._path(path)
        with store_errors(self.base + name, "read"), self._files().open_input_stream(name) as file:
            return bytes(file.read())

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        return several(lambda path: or_none(self.read, path), paths, _IN_FLIGHT)

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return several(work, items, max(threads, _IN_FLIGHT))

    def exists(self, path: str) -> bool:
        if elsewhere := self._outside(path):
            return elsewhere[0].exists(elsewhere[1])
        name = self._path(path)
        with store_errors(self.base + name, "look for"):
            return bool(self._files().get_file_info(name).is_file)

    def folders(self, prefix: str) -> list[str]:
        return sorted(info.base_name for info in self._listed(prefix, False) if not info.is_file)

    def names(self, prefix: str) -> list[str]:
        return sorted(info.base_name for info in self._listed(prefix, False) if info.is_file)

    def list(self, prefix: str) -> list[Listed]:
        skip = len(self.prefix) + 1 if self.prefix else 0
        return sorted(
            (
                Listed(info.path.lstrip("/")[skip:], info.size, (info.mtime_ns or 0) // 1_000_000)
                for info in self._listed(prefix, True)
                if info.is_file
            ),
            key=lambda listed: listed.path,
        )

    def open(self, path: str) -> BinaryIO:
        if elsewhere := self._outside(path):
            return elsewhere[0].open(elsewhere[1])
        name = self._path(path)
        with store_errors(self.base + name, "open"):
            return cast(BinaryIO, self._files().open_input_file(name))

    def refusal(self, path: str) -> LakeError:
        return UnsupportedFeature(
            f"{self.root}: {path} cannot be changed: tables in HDFS can be read but not written, as Arrow's client "
            "cannot create a file only if it is absent; copy the table to local or object storage to change it"
        )

    def elsewhere(self, root: str) -> Store:
        """The Store of another folder, with the same options if it is in HDFS too."""
        options = dict(self.options) if paths.scheme_of(root) == "hdfs" else None
        return self.opener(root, options, None, self.allowed, self.root)

    def _listed(self, prefix: str, recursive: bool) -> Iterable[Any]:
        name = self._path(prefix)
        selector = import_module("pyarrow.fs").FileSelector(name, allow_not_found=True, recursive=recursive)
        with store_errors(self.base + name, "list"):
            return cast(Iterable[Any], self._files().get_file_info(selector))

    def _files(self) -> Any:
        return _client(self.base, self.options, os.getpid())

    def _path(self, path: str) -> str:
        """The absolute path in the file system."""
        if paths.is_absolute(path):
            relative = self._relative(path)
            if relative is None:
                raise InvalidInput(f"{path} is not in {self.root}: nothing is listed outside the root")
            path = relative
        name = paths.inside(self.root, path)
        return "/" + "/".join(part for part in (self.prefix, name) if part)

    def _relative(self, uri: str) -> str | None:
        if paths.scheme_of(uri) != "hdfs":
            return None
        base, name = paths.name_node_and_path(uri)
        if base != self.base:
            return None
        return paths.relative(f"/{self.prefix}", f"/{name}") if self.prefix else name

    def _outside(self, path: str) -> tuple[Reader, str] | None:
        """The reader and name of an absolute `path` outside the prefix; None for a path inside it."""
        if not paths.is_absolute(path) or self._relative(path) is not None:
            return None
        folder, _, name = path.rpartition("/")
        return self.elsewhere(folder), name


# --- private ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _client(base: str, options: tuple[tuple[str, str], ...], process: int) -> Any:
    """Arrow's client of a name node; raises `UnsupportedFeature` without Java or libhdfs."""
    host, _, port = base.partition("://")[2].partition(":")
    configuration = dict(options)
    user, ticket = configuration.pop("user", None), configuration.pop("kerb_ticket", None)
    # A name service is known to Hadoop's configuration, and has no port.
    address = host if port else f"hdfs://{host}" if host else "default"
    try:
        return import_module("pyarrow.fs").HadoopFileSystem(
            address, int(port or 0), user=user, kerb_ticket=ticket, extra_conf=configuration or None
        )
    except OSError as error:
        line = first_line(error)
        if "load lib" in line:
            raise UnsupportedFeature(
                f"{base}: HDFS needs Java and libhdfs, which pyarrow did not find ({line}): set JAVA_HOME, "
                "ARROW_LIBHDFS_DIR and CLASSPATH (`hadoop classpath --glob`)"
            ) from error
        with store_errors(base, "connect to"):
            raise
