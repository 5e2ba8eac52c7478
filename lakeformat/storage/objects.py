"""A store of the objects of a bucket."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from lakeformat.errors import InvalidInput, NoSuchFile, StoreError, StoreRefused, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import listing, paths
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.client import OBJECT_SCHEMES, client_of, endpoint, same_bucket
from lakeformat.storage.credentials import Lease
from lakeformat.storage.failures import store_errors
from lakeformat.storage.several import or_none, several
from lakeformat.storage.store import Listed, Opener, R, Reader, Store, T
from lakeformat.storage.streams import NewFile, Ranges

_ORDERED = ("s3://", "gs://")  # Services that can list from any name on, in the order of names.
IN_FLIGHT = 32  # Concurrent requests of one call: a thousand take as long as thirty in sequence.
TAIL_BYTES = 256 << 10  # The last bytes of a file, fetched with its size: the footer, or all of a small file.

_STATUS = re.compile(r"status code: (\d{3})")


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """The objects of `base` (`s3://bucket`) below `prefix`. Each process opens one client per bucket, on first use."""

    base: str
    prefix: str
    opener: Opener = field(repr=False, compare=False)
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
        elsewhere = self._outside(path)
        if elsewhere:
            return elsewhere[0].location(elsewhere[1])
        key = self._path(path)
        return f"{self.base}/{key}" if key else self.base

    def read(self, path: str) -> bytes:
        if elsewhere := self._outside(path):
            return elsewhere[0].read(elsewhere[1])
        key = self._file(path)
        with store_errors(f"{self.base}/{key}", "read"):
            return bytes(obstore.get(self._client(), key).bytes())

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        return several(lambda path: or_none(self.read, path), paths, IN_FLIGHT)

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return several(work, items, max(threads, IN_FLIGHT))

    def exists(self, path: str) -> bool:
        if elsewhere := self._outside(path):
            return elsewhere[0].exists(elsewhere[1])
        key = self._file(path)
        try:
            with store_errors(f"{self.base}/{key}", "look for"):
                obstore.head(self._client(), key)
        except NoSuchFile:
            return False
        return True

    def folders(self, prefix: str) -> list[str]:
        key = self._path(prefix)
        with store_errors(f"{self.base}/{key}", "list"):
            prefixes = obstore.list_with_delimiter(self._client(), key or None)["common_prefixes"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in prefixes)

    def names(self, prefix: str) -> list[str]:
        key = self._path(prefix)
        with store_errors(f"{self.base}/{key}", "list"):
            objects = obstore.list_with_delimiter(self._client(), key or None)["objects"]
        return sorted(entry["path"].rpartition("/")[2] for entry in objects)

    def list(self, prefix: str) -> list[Listed]:
        key = self._path(prefix)
        skip = len(self.prefix) + 1 if self.prefix else 0
        with store_errors(f"{self.base}/{key}", "list"):
            objects = listing.listed(self._client(), key or None, self.several, self.base.startswith(_ORDERED))
        return sorted(
            (
                Listed(entry["path"][skip:], entry["size"], int(entry["last_modified"].timestamp() * 1000))
                for entry in objects
            ),
            key=lambda listed: listed.path,
        )

    def open(self, path: str) -> BinaryIO:
        if elsewhere := self._outside(path):
            return elsewhere[0].open(elsewhere[1])
        key = self._file(path)
        name, client = f"{self.base}/{key}", self._client()
        with store_errors(name, "open"):
            try:
                response = obstore.get(client, key, options={"range": {"suffix": TAIL_BYTES}})
                size, tail = response.meta["size"], response.bytes()
            except FileNotFoundError:
                raise
            except (BaseError, NotImplementedError):  # Azure has no suffix ranges, and S3 none of an empty object.
                size, tail = obstore.head(client, key)["size"], b""

        def fetch(starts: Sequence[int], ends: Sequence[int]) -> Sequence[Any]:
            with store_errors(name, "read"):
                return obstore.get_ranges(client, key, starts=starts, ends=ends)

        return cast(BinaryIO, Ranges(name, size, fetch, tail))

    def write(self, path: str, data: bytes) -> None:
        key = self._file(path)
        with store_errors(f"{self.base}/{key}", "write"):
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
        with store_errors(name, "create"):
            sink = obstore.open_writer(self._client(), key, buffer_size=8 << 20, max_concurrency=8)

        def write(data: Any) -> None:
            with store_errors(name, "write"):
                sink.write(data)

        def publish() -> None:
            with store_errors(name, "write"):
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
        with store_errors(f"{self.base}/{keys[0]}", f"delete {len(keys)} objects, among them"):
            try:
                obstore.delete(client, keys)
            except FileNotFoundError:  # Google and Azure raise this for an object that does not exist, and stop.
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(client, key)

    def _client(self) -> Any:
        return client_of(self.base, self.options, self.lease, True, os.getpid())

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
        if same_bucket(base) != same_bucket(self.base):
            return None
        if not self.prefix:
            return key
        return key[len(self.prefix) + 1 :] if f"{key}/".startswith(f"{self.prefix}/") else None

    def _outside(self, path: str) -> tuple[Reader, str] | None:
        """The reader and name of an absolute `path` outside the prefix; None for a path inside it."""
        if not paths.is_absolute(path) or self._relative(path) is not None:
            return None
        if self.allowed is not None:
            self.allowed.require(path, self.root)
        folder, _, name = path.rpartition("/")
        return self.elsewhere(folder), name

    def elsewhere(self, root: str) -> Store:
        """The Store of another folder, with the same credentials if it is of the same service."""
        if paths.family(paths.scheme_of(root)) == same_bucket(self.base)[0]:
            return self.opener(root, dict(self.options), self.lease, self.allowed, self.root)
        return self.opener(root, None, None, self.allowed, self.root)


def _put_if_absent(store: ObjectFiles, key: str, data: bytes) -> bool:
    base, client = store.base, client_of(store.base, store.options, store.lease, False, os.getpid())
    name = f"{base}/{key}"
    try:
        with store_errors(name, "create"):
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
    if same_bucket(base)[0] == "s3" and endpoint(options):  # Amazon, Google and Azure need no test.
        key = f"{folder}/.create-probe-{uuid.uuid4()}".lstrip("/")
        try:
            if not _put_if_absent(store, key, b"1"):
                raise StoreError(f"{base}/{key}: storage says that a new, random name exists already")
            if _put_if_absent(store, key, b"2"):
                raise UnsupportedFeature(
                    f"{base}: the service at {endpoint(options)} ignores `If-None-Match: *` and overwrites, so "
                    "writers would lose each other's commits; tables in it can be read but not written"
                )
        finally:
            with suppress(OSError, BaseError):
                obstore.delete(store._client(), key)
    _HAS_CONDITIONAL_PUT.add((base, options))
