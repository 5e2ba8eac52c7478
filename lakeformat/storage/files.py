"""Stores over local files and over object storage, with the files that they read and write; `open_store` chooses by the
URI."""

from __future__ import annotations

import difflib
import errno
import io
import os
import re
import stat
import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import field
from datetime import timedelta
from functools import lru_cache
from itertools import chain, islice
from operator import itemgetter
from types import TracebackType
from typing import Any, BinaryIO, cast

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import from_url

from lakeformat import redact
from lakeformat.errors import (
    AlreadyExists,
    InvalidInput,
    LakeError,
    NoSuchFile,
    StoreError,
    StoreRefused,
    UnsupportedFeature,
)
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import listing, paths
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.credentials import Lease, Renewing
from lakeformat.storage.store import Listed, R, Reader, Store, T

_ORDERED = ("s3://", "gs://")  # Services that can list from any name on, in the order of names.
IN_FLIGHT = 32  # Concurrent requests of one call: a thousand take as long as thirty in sequence.
TAIL_BYTES = 256 << 10  # The last bytes of a file, fetched with its size: the footer, or all of a small file.

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "abfs", "abfss", "azure", "http", "https")

_STATUS = re.compile(r"status code: (\d{3})")

# Options of the HTTP client, for every service. All others are the service's: credentials, region, endpoint.
CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses",
    "read_timeout", "root_certificate", "timeout", "user_agent",
})  # fmt: skip


def open_store(
    uri: str,
    options: Mapping[str, str] | None = None,
    lease: Lease | None = None,
    allowed: Allowed | None = None,
    named_by: str | None = None,
) -> Store:
    """Open the Store rooted at a folder: a plain path, `file:`, `s3://`, `gs://`, `az://`, `abfss://`, or read-only
    `https://`.

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
        return LocalFiles(folder, _truth("fsync", settings.get("fsync", "true")), allowed)
    if scheme not in OBJECT_SCHEMES:
        raise InvalidInput(f"{uri}: cannot open {scheme}: URIs; supported: file, {', '.join(OBJECT_SCHEMES)}")
    base, prefix = paths.bucket_and_key(uri)
    if ":" in base.partition("://")[2].rpartition("@")[0]:
        raise InvalidInput(
            f"{uri}: a password in an address is written into the files of its tables; "
            "give credentials as options instead"
        )
    return ObjectFiles(base, prefix, tuple(sorted((str(k), str(v)) for k, v in settings.items())), lease, allowed)


def missing_folder(store: Store) -> str | None:
    """An error text if the folder of a local store does not exist; None if it does, and for object storage, which has
    no folders."""
    if not isinstance(store, LocalFiles) or os.path.isdir(store.folder):
        return None
    above, name = os.path.split(store.folder)
    while not os.path.isdir(above):
        above, name = os.path.split(above)
    near = difflib.get_close_matches(name, _names(above, os.DirEntry.is_dir), 3)
    return f"{above} has no folder {name!r}" + (f"; near it are {', '.join(near)}" if near else "")


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files below `folder`, an absolute path. A file appears whole under its name, or not at all.

    Hidden names (`.<name>.<uuid>.tmp`) are files that are being written; those of killed processes are left to the
    sweep.
    """

    folder: str
    fsync: bool = True
    allowed: Allowed | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        return f"file://{self.folder}"

    @property
    def is_local(self) -> bool:
        return True

    def location(self, path: str) -> str:
        elsewhere = _outside(self, path)
        return elsewhere[0].location(elsewhere[1]) if elsewhere else f"file://{self._path(path)}"

    def read(self, path: str) -> bytes:
        if elsewhere := _outside(self, path):
            return elsewhere[0].read(elsewhere[1])
        name = self._file(path)
        with _store_errors(name, "read"), open(name, "rb", buffering=0) as file:
            return file.readall()

    def _read_if_there(self, path: str) -> bytes | None:
        """The file's bytes; None if it does not exist, which is cheaper than raising an error."""
        return self.read(path) if _outside(self, path) or os.path.lexists(self._file(path)) else None

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        return several(lambda path: _or_none(self._read_if_there, path), paths, 8 if len(paths) >= 32 else 1)

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return several(work, items, threads)

    def exists(self, path: str) -> bool:
        if elsewhere := _outside(self, path):
            return elsewhere[0].exists(elsewhere[1])
        return _is_file(self._file(path))

    def folders(self, prefix: str) -> list[str]:
        return _names(self._path(prefix), os.DirEntry.is_dir)

    def names(self, prefix: str) -> list[str]:
        return _names(self._path(prefix), os.DirEntry.is_file)

    def list(self, prefix: str) -> list[Listed]:
        top = self._path(prefix)
        files: list[Listed] = []
        with _store_errors(top, "list"):
            _walk(top, len(self.folder) + 1, files)
        return sorted(files, key=lambda listed: listed.path)

    def open(self, path: str) -> BinaryIO:
        if elsewhere := _outside(self, path):
            return elsewhere[0].open(elsewhere[1])
        name = self._file(path)
        if not _is_file(name):
            raise NoSuchFile(f"{name}: no such file")
        with _store_errors(name, "open"):
            return cast(BinaryIO, pa.OSFile(name, "rb"))

    def write(self, path: str, data: bytes) -> None:
        self.write_many({path: data})

    def write_many(self, files: Mapping[str, bytes]) -> None:
        names = {self._file(path): data for path, data in files.items()}
        for name, data in names.items():
            self._replace(name, data, self.fsync)
        for folder in dict.fromkeys(map(os.path.dirname, names)):
            self._settle(f"{folder}/")

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self._replace(self._file(path), data, False)

    def create(self, path: str, data: bytes) -> bool:
        """See `Store.create`. `os.link` decides, so the winner's content is whole when its name appears.

        Raises `UnsupportedFeature` on a file system without hard links.
        """
        name = self._file(path)
        with _store_errors(name, "create"):
            hidden = _hidden(name, data, self.fsync)
            try:
                os.link(hidden, name)
            except FileExistsError:
                # On NFS the answer to a successful link may be lost, and the kernel repeats the call.
                if os.stat(hidden).st_nlink < 2:
                    return False
            except OSError as error:
                if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV):
                    raise UnsupportedFeature(
                        f"{name}: this file system has no hard links ({error.strerror}), so a file cannot be created "
                        "only if nobody else has; tables that are written must be on a file system that has them"
                    ) from error
                raise
            finally:
                with suppress(OSError):
                    os.unlink(hidden)
            self._settle(name)
            return True

    def create_stream(self, path: str) -> BinaryIO:
        name = self._file(path)
        hidden = _hidden_name(name)
        with _store_errors(name, "create"):
            descriptor = _new_file(hidden, self.fsync)
            sink = open(descriptor, "wb", buffering=1 << 20)  # noqa: SIM115  NewFile closes it.

        def publish() -> None:
            with _store_errors(name, "write"):
                with sink:
                    sink.flush()
                    if self.fsync:
                        os.fsync(descriptor)
                os.replace(hidden, name)
                self._settle(name)

        def abandon() -> None:
            with suppress(OSError):
                sink.close()
            with suppress(OSError):
                os.unlink(hidden)

        return cast(BinaryIO, NewFile(name, sink.write, publish, abandon))

    def delete(self, paths: Iterable[str]) -> None:
        failed: list[tuple[str, OSError]] = []
        for name in [self._file(path) for path in paths]:
            try:
                os.unlink(name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failed.append((name, error))
        if failed:
            name, reason = failed[0]
            more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
            raise StoreError(f"{name}: cannot delete{more}: {reason.strerror}") from reason

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            name = self._path(prefix)
            while len(name) > len(self.folder):
                try:
                    os.rmdir(name)
                except (FileNotFoundError, NotADirectoryError):
                    pass
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                        break
                    raise StoreError(f"{name}: cannot remove the folder: {error.strerror}") from error
                name = name.rpartition("/")[0]

    def move_folder(self, old: str, new: str) -> None:
        source, target = self._path(old), self._path(new)
        with _store_errors(target, "move a folder to"):
            if os.path.lexists(target):
                raise AlreadyExists(f"{target} is there already; {source} was not moved")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(source, target)

    def _path(self, path: str) -> str:
        """The absolute path of a name or an absolute URI, which must lie in the folder; "" for the root "/"."""
        if paths.is_absolute(path):
            relative = self._relative(path)
            if relative is None:
                raise InvalidInput(f"{path} is not in {self.root}: nothing is listed or changed outside the root")
            path = relative
        name = paths.inside(self.root, path)
        file = f"{self.folder}/{name}" if name else self.folder
        if self.allowed is not None:  # A link may lead out of the folder.
            self.allowed.require(file or "/", self.root)
        return file

    def _file(self, path: str) -> str:
        name = self._path(path)
        if name == self.folder:
            raise InvalidInput(f"{path!r} names the root {self.root} itself, not a file in it")
        return name

    def _relative(self, uri: str) -> str | None:
        if (rest := paths.plainly_below(self.folder, uri)) is not None:
            return rest
        if paths.scheme_of(uri) not in (None, "file"):
            return None
        if ".." in uri.split("/"):
            raise InvalidInput(f"{uri!r} is not a name inside {self.root}: '..' is not allowed")
        name = paths.local_folder(uri)
        return name[len(self.folder) + 1 :] if f"{name}/".startswith(f"{self.folder}/") else None

    def _reader_of(self, uri: str) -> Reader:
        if paths.scheme_of(uri) in (None, "file"):
            return LocalFiles("", self.fsync, self.allowed)
        return open_store(uri.rpartition("/")[0], None, None, self.allowed, self.root)

    def elsewhere(self, root: str) -> Store:
        """The Store of another folder."""
        if paths.scheme_of(root) in (None, "file"):
            if self.allowed is not None:
                self.allowed.require(root, self.root)
            return LocalFiles(paths.local_folder(root), self.fsync, self.allowed)
        return open_store(root, None, None, self.allowed, self.root)

    def _replace(self, name: str, data: bytes, fsync: bool) -> None:
        """Write without a sync of the folder."""
        with _store_errors(name, "write"):
            hidden = _hidden(name, data, fsync)
            with _removed_unless_done(hidden):
                os.replace(hidden, name)

    def _settle(self, name: str) -> None:
        if self.fsync:
            _sync_folder(os.path.dirname(name))


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """The objects of `base` (`s3://bucket`) below `prefix`. Each process opens one client per bucket, on first use."""

    base: str
    prefix: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    lease: Lease | None = field(default=None, repr=False)
    allowed: Allowed | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        return f"{self.base}/{self.prefix}" if self.prefix else self.base

    @property
    def is_local(self) -> bool:
        return False

    def location(self, path: str) -> str:
        elsewhere = _outside(self, path)
        if elsewhere:
            return elsewhere[0].location(elsewhere[1])
        key = self._path(path)
        return f"{self.base}/{key}" if key else self.base

    def read(self, path: str) -> bytes:
        if elsewhere := _outside(self, path):
            return elsewhere[0].read(elsewhere[1])
        key = self._file(path)
        with _store_errors(f"{self.base}/{key}", "read"):
            return bytes(obstore.get(self._client(), key).bytes())

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        return several(lambda path: _or_none(self.read, path), paths, IN_FLIGHT)

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return several(work, items, max(threads, IN_FLIGHT))

    def exists(self, path: str) -> bool:
        if elsewhere := _outside(self, path):
            return elsewhere[0].exists(elsewhere[1])
        key = self._file(path)
        try:
            with _store_errors(f"{self.base}/{key}", "look for"):
                obstore.head(self._client(), key)
        except NoSuchFile:
            return False
        return True

    def folders(self, prefix: str) -> list[str]:
        key = self._path(prefix)
        with _store_errors(f"{self.base}/{key}", "list"):
            prefixes = obstore.list_with_delimiter(self._client(), key or None)["common_prefixes"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in prefixes)

    def names(self, prefix: str) -> list[str]:
        key = self._path(prefix)
        with _store_errors(f"{self.base}/{key}", "list"):
            objects = obstore.list_with_delimiter(self._client(), key or None)["objects"]
        return sorted(entry["path"].rpartition("/")[2] for entry in objects)

    def list(self, prefix: str) -> list[Listed]:
        key = self._path(prefix)
        skip = len(self.prefix) + 1 if self.prefix else 0
        with _store_errors(f"{self.base}/{key}", "list"):
            objects = listing.listed(self._client(), key or None, self.several, self.base.startswith(_ORDERED))
        return sorted(
            (
                Listed(entry["path"][skip:], entry["size"], int(entry["last_modified"].timestamp() * 1000))
                for entry in objects
            ),
            key=lambda listed: listed.path,
        )

    def open(self, path: str) -> BinaryIO:
        if elsewhere := _outside(self, path):
            return elsewhere[0].open(elsewhere[1])
        key = self._file(path)
        name, client = f"{self.base}/{key}", self._client()
        with _store_errors(name, "open"):
            try:
                response = obstore.get(client, key, options={"range": {"suffix": TAIL_BYTES}})
                size, tail = response.meta["size"], response.bytes()
            except FileNotFoundError:
                raise
            except (BaseError, NotImplementedError):  # Azure has no suffix ranges, and S3 none of an empty object.
                size, tail = obstore.head(client, key)["size"], b""

        def fetch(starts: Sequence[int], ends: Sequence[int]) -> Sequence[Any]:
            with _store_errors(name, "read"):
                return obstore.get_ranges(client, key, starts=starts, ends=ends)

        return cast(BinaryIO, Ranges(name, size, fetch, tail))

    def write(self, path: str, data: bytes) -> None:
        key = self._file(path)
        with _store_errors(f"{self.base}/{key}", "write"):
            obstore.put(self._client(), key, bytes(data))

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for _ in self.several(lambda path: self.write(path, files[path]), files):
            pass

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        """See `Store.create`; by a conditional put.

        Raises `UnsupportedFeature` for a service without conditional puts, or one that ignores the condition (tested
        once per process).
        """
        key = self._file(path)
        _require_conditional_put(self, key.rpartition("/")[0])
        return _put_if_absent(self, key, data)

    def create_stream(self, path: str) -> BinaryIO:
        key = self._file(path)
        name = f"{self.base}/{key}"
        with _store_errors(name, "create"):
            sink = obstore.open_writer(self._client(), key, buffer_size=8 << 20, max_concurrency=8)

        def write(data: Any) -> None:
            with _store_errors(name, "write"):
                sink.write(data)

        def publish() -> None:
            with _store_errors(name, "write"):
                sink.close()

        return cast(BinaryIO, NewFile(name, write, publish, lambda: None))

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._file(path) for path in paths]
        pages = [keys[start : start + 1000] for start in range(0, len(keys), 1000)]
        for _ in self.several(self._delete, pages):
            pass

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        """Does nothing: object storage has no folders."""
        for prefix in prefixes:
            self._path(prefix)

    def move_folder(self, old: str, new: str) -> None:
        raise UnsupportedFeature(
            f"{self.root}: object storage cannot give {old} another name in one step; "
            "write the rows to a new table instead"
        )

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects, as many per request as the service takes."""
        client = self._client()
        with _store_errors(f"{self.base}/{keys[0]}", f"delete {len(keys)} objects, among them"):
            try:
                obstore.delete(client, keys)
            except FileNotFoundError:  # Google and Azure raise this for an object that does not exist, and stop.
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(client, key)

    def _client(self) -> Any:
        return _client(self.base, self.options, self.lease, True, os.getpid())

    def _path(self, path: str) -> str:
        if paths.is_absolute(path):
            relative = self._relative(path)
            if relative is None:
                raise InvalidInput(f"{path} is not in {self.root}: nothing is listed or changed outside the root")
            path = relative
        name = paths.inside(self.root, path)
        return f"{self.prefix}/{name}" if self.prefix and name else self.prefix or name

    def _file(self, path: str) -> str:
        key = self._path(path)
        if key == self.prefix:
            raise InvalidInput(f"{path!r} names the root {self.root} itself, not a file in it")
        return key

    def _relative(self, uri: str) -> str | None:
        if paths.scheme_of(uri) not in OBJECT_SCHEMES:
            return None
        base, key = paths.bucket_and_key(uri)
        if _same_bucket(base) != _same_bucket(self.base):
            return None
        if not self.prefix:
            return key
        return key[len(self.prefix) + 1 :] if f"{key}/".startswith(f"{self.prefix}/") else None

    def _reader_of(self, uri: str) -> Reader:
        if paths.scheme_of(uri) in (None, "file"):
            return LocalFiles("", allowed=self.allowed)
        return self.elsewhere(uri.rpartition("/")[0])

    def elsewhere(self, root: str) -> Store:
        """The Store of another folder, with the same credentials if it is of the same service."""
        if paths.family(paths.scheme_of(root)) == _same_bucket(self.base)[0]:
            return open_store(root, dict(self.options), self.lease, self.allowed, self.root)
        return open_store(root, None, None, self.allowed, self.root)


def _is_file(name: str) -> bool:
    with _store_errors(name, "look for"):
        try:
            return stat.S_ISREG(os.stat(name).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def _outside(store: LocalFiles | ObjectFiles, path: str) -> tuple[Reader, str] | None:
    """The reader and name of an absolute `path` outside `store`; None for a path inside it."""
    if not paths.is_absolute(path) or store._relative(path) is not None:
        return None
    if store.allowed is not None:
        store.allowed.require(path, store.root)
    reader = store._reader_of(path)
    if isinstance(reader, LocalFiles):
        return reader, paths.local_folder(path)[1:]
    return reader, path.rpartition("/")[2]


def _or_none(read: Callable[[str], bytes | None], path: str) -> bytes | None:
    try:
        return read(path)
    except NoSuchFile:
        return None


@contextmanager
def _store_errors(name: str, verb: str) -> Iterator[None]:
    """Turn any error of a library into a `StoreError` that names the file."""
    try:
        yield
    except LakeError:
        raise
    except FileNotFoundError as error:
        raise NoSuchFile(f"{name}: no such file") from error
    except (NotADirectoryError, IsADirectoryError) as error:
        if verb in ("read", "open", "list", "look for"):  # Object storage refuses such a name too.
            raise NoSuchFile(f"{name}: no such file ({error.strerror})") from error
        raise StoreError(f"{name}: cannot {verb}: {error.strerror}") from error
    except (OSError, BaseError, ValueError, NotImplementedError, pa.ArrowException) as error:
        raise StoreError(f"{name}: cannot {verb}: {_first_line(error)}") from redact.cause(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _truth(name: str, value: str) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise InvalidInput(f"option {name}={value!r}: 'true' or 'false' is expected")
    return str(value).lower() == "true"


def _names(top: str, chosen: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    """The entries of a folder, by name; empty if it does not exist."""
    try:
        with _store_errors(top, "list"), os.scandir(top or "/") as entries:
            return sorted([entry.name for entry in entries if chosen(entry)])
    except NoSuchFile:
        return []


def _walk(folder: str, skip: int, files: list[Listed]) -> None:
    """Every file below `folder`. Links to folders are not followed. Files that disappear during the walk are left
    out."""
    try:
        entries = os.scandir(folder or "/")
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _walk(f"{folder}/{entry.name}", skip, files)
            elif entry.is_file():
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                path = f"{folder}/{entry.name}"[skip:]
                files.append(Listed(path, status.st_size, status.st_mtime_ns // 1_000_000))


def _hidden(name: str, data: bytes, fsync: bool) -> str:
    """Write `data` beside `name` under a temporary name."""
    hidden = _hidden_name(name)
    descriptor = _new_file(hidden, fsync)
    with _removed_unless_done(hidden), open(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view.nbytes:
            view = view[file.write(view) :]
        if fsync:
            os.fsync(descriptor)
    return hidden


def _hidden_name(name: str) -> str:
    folder, _, last = name.rpartition("/")
    return f"{folder}/.{last[:60]}.{uuid.uuid4()}.tmp"


def _new_file(name: str, fsync: bool) -> int:
    """Create a file, and its folder. Retries, since another process may be removing empty folders. Raises
    `StoreRefused` if no file can be made there."""
    folder = parent = name.rpartition("/")[0]
    for _ in range(100):
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError:
            while parent and not os.path.isdir(parent):
                parent = parent.rpartition("/")[0]
            try:
                os.makedirs(folder, exist_ok=True)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unwritable(folder, "the folder cannot be made", error) from error
        except OSError as error:
            raise _unwritable(folder, "a file in the folder cannot be made", error) from error
        else:
            while fsync and len(parent) < len(folder):
                folder = folder.rpartition("/")[0]
                _sync_folder(folder or "/")
            return descriptor
    raise StoreRefused(f"{folder}: the folder cannot be made, or is removed as often as it is made")


def _unwritable(folder: str, reason: str, error: OSError) -> OSError:
    """For good if the folder's path, rights or file system refuse it; else the error itself."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ELOOP):
        return StoreRefused(f"{folder}: {reason}: {error.strerror}")
    return error


def _sync_folder(folder: str) -> None:
    with suppress(OSError):  # Some file systems have no fsync of a folder.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _removed_unless_done(hidden: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(hidden)
        raise


@lru_cache(maxsize=64)
def _client(base: str, options: tuple[tuple[str, str], ...], lease: Lease | None, retrying: bool, process: int) -> Any:
    """The client of one bucket. It does not retry: a put that won would come back as lost from its own repetition."""
    service: dict[str, str] = {}
    client: dict[str, str] = {}
    retry: dict[str, Any] = {}
    for name, value in options:
        key, value = _option(name, value)
        match key:
            case "max_retries":
                retry[key] = _number(name, value)
            case "retry_timeout":
                retry[key] = timedelta(seconds=_number(name, value))
            case _:
                (client if key in CLIENT_OPTIONS else service)[key] = value
    if base.startswith("http:") or _endpoint(options).startswith("http://"):
        client.setdefault("allow_http", "true")
    if not retrying:
        retry["max_retries"] = 0
    try:
        return from_url(
            base,
            client_options=client or None,
            retry_config=retry or None,
            **({"config": service} if service else {}),
            **({"credential_provider": Renewing(lease)} if lease else {}),
        )
    except BaseException as error:
        # A panic of the native library is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        option_names = sorted(name for name, _ in options)
        secrets = redact.secrets_of(dict(options))
        said = redact.redacted(_first_line(error), *secrets)
        raise InvalidInput(f"{base}: cannot open the store with options {option_names}: {said}") from redact.cause(
            error, *secrets
        )


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise InvalidInput(f"option {name}={value!r}: a whole number is expected")
    return int(value)


def _option(name: str, value: str) -> tuple[str, str]:
    """An option by obstore's name; `s3.endpoint` and the like are the names of the formats' catalogs."""
    key = name.lower().replace("-", "_").replace(".", "_")
    for prefix in ("s3_", "aws_"):
        if key.startswith(prefix):
            key = key[len(prefix) :]
            match key:
                case "access_key":
                    key = "access_key_id"
                case "secret_key":
                    key = "secret_access_key"
                case "path_style_access":
                    return "virtual_hosted_style_request", str(not _truth(name, value)).lower()
    return key, value


def _endpoint(options: tuple[tuple[str, str], ...]) -> str:
    by_name = dict(_option(name, value) for name, value in options)
    for key in ("endpoint", "endpoint_url", "azure_endpoint", "azure_storage_endpoint"):
        if key in by_name:
            return by_name[key]
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _put_if_absent(store: ObjectFiles, key: str, data: bytes) -> bool:
    base, client = store.base, _client(store.base, store.options, store.lease, False, os.getpid())
    name = f"{base}/{key}"
    try:
        with _store_errors(name, "create"):
            obstore.put(client, key, bytes(data), mode="create", use_multipart=False)
    except StoreError as error:
        answer = " ".join(str(error.__cause__).split())  # XML with several lines.
        status = int(match[1]) if (match := _STATUS.search(answer)) else None
        match error.__cause__:
            case AlreadyExistsError() | PreconditionError():
                # S3 answers 409 also while another request for the name is running, which may fail.
                if status == 409 and not store.exists(key.removeprefix(f"{store.prefix}/")):
                    raise StoreError(f"{name}: cannot create: {answer}") from error
                return False
            case NotImplementedError() | NotSupportedError():
                status = 501
            case FileNotFoundError():
                status = 404  # The bucket.
        if status == 501:
            raise UnsupportedFeature(
                f"{base}: this store cannot create an object only if it is absent, so tables in it can be read but "
                f"not written: {answer}"
            ) from error
        if status is not None and 400 <= status < 500 and status not in (408, 409, 412, 429):
            raise StoreRefused(f"{name}: cannot create: {answer}") from error
        raise
    return True


_HAS_CONDITIONAL_PUT: set[tuple[str, tuple[tuple[str, str], ...]]] = set()


def _require_conditional_put(store: ObjectFiles, folder: str) -> None:
    """Refuse a service that accepts `If-None-Match: *` and overwrites anyway, as some S3-compatible ones do."""
    base, options = store.base, store.options
    if (base, options) in _HAS_CONDITIONAL_PUT:
        return
    if _same_bucket(base)[0] == "s3" and _endpoint(options):  # Amazon, Google and Azure need no test.
        key = f"{folder}/.create-probe-{uuid.uuid4()}".lstrip("/")
        try:
            if not _put_if_absent(store, key, b"1"):
                raise StoreError(f"{base}/{key}: storage says that a new, random name exists already")
            if _put_if_absent(store, key, b"2"):
                raise UnsupportedFeature(
                    f"{base}: the service at {_endpoint(options)} ignores `If-None-Match: *` and overwrites, so "
                    "writers would lose each other's commits; tables in it can be read but not written"
                )
        finally:
            with suppress(OSError, BaseError):
                obstore.delete(store._client(), key)
    _HAS_CONDITIONAL_PUT.add((base, options))


def _same_bucket(base: str) -> tuple[str | None, str]:
    scheme, _, bucket = base.partition("://")
    return paths.family(scheme), bucket


_FETCH_BYTES = 1 << 20  # Bytes fetched at least.


class NewFile:
    """A file that is written from front to back. It appears with `close`; a `with` block left by an exception abandons
    it.

    Dropping it without `close` never publishes half a file.
    """

    mode = "wb"

    def __init__(
        self, name: str, write: Callable[[Any], object], publish: Callable[[], object], abandon: Callable[[], object]
    ) -> None:
        self.name = name
        self._write, self._publish, self._abandon = write, publish, abandon
        self._position = 0
        self._open = True

    @property
    def closed(self) -> bool:
        return not self._open

    def write(self, data: Any) -> int:
        if not self._open:
            raise ValueError(f"{self.name}: write to a closed file")
        with memoryview(data) as view:
            size = view.nbytes
            try:
                self._write(data)
            except LakeError:
                raise
            except Exception as error:
                raise StoreError(f"{self.name}: cannot write: {error}") from error
        self._position += size
        return size

    def flush(self) -> None:
        """Does nothing: the file appears with `close`, not before."""

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._publish()
        except BaseException as error:
            self._withdraw()
            if isinstance(error, LakeError) or not isinstance(error, Exception):
                raise
            raise StoreError(f"{self.name}: cannot finish the file: {error}") from error

    def discard(self) -> None:
        """Abandon the file."""
        if self._open:
            self._open = False
            self._withdraw()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _withdraw(self) -> None:
        with suppress(Exception):  # A temporary file that could not be removed is left to the sweep.
            self._abandon()


class Ranges(io.RawIOBase):
    """Random access to a file of `size` bytes through `fetch(starts, ends)`, which requests several ranges together.
    `tail`: its last bytes. A small read fetches more, for the next reads."""

    def __init__(
        self, name: str, size: int, fetch: Callable[[Sequence[int], Sequence[int]], Sequence[Any]], tail: Any = b""
    ) -> None:
        super().__init__()
        self.name = name
        self._size, self._fetch, self._position = size, fetch, 0
        tail = memoryview(tail)
        self._tail = size - tail.nbytes, tail
        self._ahead: list[tuple[int, memoryview]] = []  # Sorted by start.
        self._last = 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"{self.name}: seek to {start + offset}, before the start")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges (start, end) together and keep them, in place of those prefetched before."""
        missing = sorted({(a, b) for a, b in ranges if a < b and self._in_memory(a, b) is None})
        self._ahead = []
        fetched = self._fetch([a for a, _ in missing], [b for _, b in missing]) if missing else []
        self._ahead = [(start, memoryview(data)) for (start, _), data in zip(missing, fetched, strict=True)]

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._take(self._size if size is None or size < 0 else size))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            data = self._take(target.nbytes)
            target[: data.nbytes] = data
            return data.nbytes

    def _take(self, size: int) -> memoryview:
        start, end = self._position, min(self._position + size, self._size)
        if end <= start:
            return memoryview(b"")
        data = self._in_memory(start, end)
        if data is None:
            until = min(max(end, start + _FETCH_BYTES), self._size)
            (fetched,) = self._fetch([start], [until])
            self._last = start, memoryview(fetched)
            data = self._last[1][: end - start]
        self._position += data.nbytes
        return data

    def _in_memory(self, start: int, end: int) -> memoryview | None:
        """The bytes of a range, if all of them are in memory."""
        index = bisect_right(self._ahead, start, key=itemgetter(0))
        for at, data in (self._tail, self._last, *self._ahead[max(0, index - 1) : index]):
            if at <= start and end <= at + data.nbytes:
                return data[start - at : end - at]
        return None


def several(work: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """The results of `work` for each item, in order, on `threads` threads. At most twice as many results wait in
    memory."""
    left = iter(items)
    first = list(islice(left, 2 * threads))
    if threads == 1 or len(first) < 2:
        return map(work, chain(first, left))
    return _on_threads(work, first, left, threads)


def _on_threads(work: Callable[[T], R], first: Sequence[T], left: Iterator[T], threads: int) -> Iterator[R]:
    with ThreadPoolExecutor(min(threads, len(first)), "lakeformat") as pool:
        waiting = deque(pool.submit(work, item) for item in first)
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in islice(left, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()
