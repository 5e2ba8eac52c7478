"""A store of local files."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from typing import BinaryIO, cast

import pyarrow as pa

from lakeformat.errors import AlreadyExists, InvalidInput, NoSuchFile, StoreError, StoreRefused, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import paths
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.failures import store_errors
from lakeformat.storage.several import or_none, several
from lakeformat.storage.store import Listed, Opener, R, Reader, Store, T
from lakeformat.storage.streams import NewFile


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files below `folder`, an absolute path. A file appears whole under its name, or not at all.

    Hidden names (`.<name>.<uuid>.tmp`) are files that are being written; those of killed processes are left to the
    sweep.
    """

    folder: str
    opener: Opener = field(repr=False, compare=False)
    fsync: bool = True
    allowed: Allowed | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        return f"file://{self.folder}"

    @property
    def is_local(self) -> bool:
        return True

    def location(self, path: str) -> str:
        elsewhere = self._outside(path)
        return elsewhere[0].location(elsewhere[1]) if elsewhere else f"file://{self._path(path)}"

    def read(self, path: str) -> bytes:
        if elsewhere := self._outside(path):
            return elsewhere[0].read(elsewhere[1])
        name = self._file(path)
        with store_errors(name, "read"), open(name, "rb", buffering=0) as file:
            return file.readall()

    def _read_if_there(self, path: str) -> bytes | None:
        """The file's bytes; None if it does not exist, which is cheaper than raising an error."""
        return self.read(path) if self._outside(path) or os.path.lexists(self._file(path)) else None

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        return several(lambda path: or_none(self._read_if_there, path), paths, 8 if len(paths) >= 32 else 1)

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return several(work, items, threads)

    def exists(self, path: str) -> bool:
        if elsewhere := self._outside(path):
            return elsewhere[0].exists(elsewhere[1])
        return _is_file(self._file(path))

    def folders(self, prefix: str) -> list[str]:
        return names_of(self._path(prefix), os.DirEntry.is_dir)

    def names(self, prefix: str) -> list[str]:
        return names_of(self._path(prefix), os.DirEntry.is_file)

    def list(self, prefix: str) -> list[Listed]:
        top = self._path(prefix)
        files: list[Listed] = []
        with store_errors(top, "list"):
            _walk(top, len(self.folder) + 1, files)
        return sorted(files, key=lambda listed: listed.path)

    def open(self, path: str) -> BinaryIO:
        if elsewhere := self._outside(path):
            return elsewhere[0].open(elsewhere[1])
        name = self._file(path)
        if not _is_file(name):
            raise NoSuchFile(f"{name}: no such file")
        with store_errors(name, "open"):
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
        with store_errors(name, "create"):
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
        with store_errors(name, "create"):
            descriptor = _new_file(hidden, self.fsync)
            sink = open(descriptor, "wb", buffering=1 << 20)  # noqa: SIM115  NewFile closes it.

        def publish() -> None:
            with store_errors(name, "write"):
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
        with store_errors(target, "move a folder to"):
            if os.path.lexists(target):
                raise AlreadyExists(f"{target} exists already; {source} was not moved")
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

    def _outside(self, path: str) -> tuple[Reader, str] | None:
        """The reader and name of an absolute `path` outside the folder; None for a path inside it."""
        if not paths.is_absolute(path) or self._relative(path) is not None:
            return None
        if self.allowed is not None:
            self.allowed.require(path, self.root)
        if paths.scheme_of(path) in (None, "file"):
            return replace(self, folder=""), paths.local_folder(path)[1:]
        folder, _, name = path.rpartition("/")
        return self.elsewhere(folder), name

    def elsewhere(self, root: str) -> Store:
        """The Store of another folder."""
        if paths.scheme_of(root) not in (None, "file"):
            return self.opener(root, None, None, self.allowed, self.root)
        if self.allowed is not None:
            self.allowed.require(root, self.root)
        return replace(self, folder=paths.local_folder(root))

    def _replace(self, name: str, data: bytes, fsync: bool) -> None:
        """Write without a sync of the folder."""
        with store_errors(name, "write"):
            hidden = _hidden(name, data, fsync)
            with _removed_unless_done(hidden):
                os.replace(hidden, name)

    def _settle(self, name: str) -> None:
        if self.fsync:
            _sync_folder(os.path.dirname(name))


def _is_file(name: str) -> bool:
    with store_errors(name, "look for"):
        try:
            return stat.S_ISREG(os.stat(name).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def names_of(top: str, chosen: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    """The entries of a folder, by name; empty if it does not exist."""
    try:
        with store_errors(top, "list"), os.scandir(top or "/") as entries:
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
