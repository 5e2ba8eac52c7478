"""A Store in a dict, for tests and simulation. It has the contract of the real ones, for the threads of one process."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, cast

from lakeformat import clock
from lakeformat.errors import InvalidInput, NoSuchFile, UnsupportedFeature
from lakeformat.storage import paths
from lakeformat.storage.several import several
from lakeformat.storage.store import Listed, R, T
from lakeformat.storage.streams import NewFile


class MemoryFiles:
    """Files by name. `now_ms` is the modification time of new files, so that a test can make files old."""

    def __init__(self, root: str = "memory://files", now_ms: Callable[[], int] = clock.now_ms) -> None:
        self._root, self._now_ms = root.rstrip("/"), now_ms
        self._files: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    @property
    def root(self) -> str:
        return self._root

    @property
    def is_local(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"MemoryFiles({self._root!r}, {len(self._files)} files)"

    def location(self, path: str) -> str:
        name = self._name(path)
        return f"{self._root}/{name}" if name else self._root

    def read(self, path: str) -> bytes:
        name = self._file(path)
        with self._lock:
            if name not in self._files:
                raise NoSuchFile(f"{self._root}/{name}: no such file")
            return self._files[name][0]

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        names = [self._file(path) for path in paths]
        with self._lock:
            return [self._files[name][0] if name in self._files else None for name in names]

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return several(work, items, threads)

    def exists(self, path: str) -> bool:
        name = self._file(path)
        with self._lock:
            return name in self._files

    def folders(self, prefix: str) -> list[str]:
        return sorted({path.split("/", 1)[0] for path in self._below(prefix) if "/" in path})

    def names(self, prefix: str) -> list[str]:
        return sorted(path for path in self._below(prefix) if "/" not in path)

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def write(self, path: str, data: bytes) -> None:
        name, content = self._file(path), bytes(data)
        with self._lock:
            self._files[name] = content, self._now_ms()

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.write(path, data)

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        name, content = self._file(path), bytes(data)
        with self._lock:
            if name in self._files:
                return False
            self._files[name] = content, self._now_ms()
            return True

    def create_stream(self, path: str) -> BinaryIO:
        name, content = self._file(path), io.BytesIO()
        stream = NewFile(
            f"{self._root}/{name}", content.write, lambda: self.write(name, content.getvalue()), content.close
        )
        return cast(BinaryIO, stream)

    def delete(self, paths: Iterable[str]) -> None:
        names = [self._file(path) for path in paths]
        with self._lock:
            for name in names:
                self._files.pop(name, None)

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        """Does nothing: a folder exists as long as it has a file."""
        for prefix in prefixes:
            self._name(prefix)

    def move_folder(self, old: str, new: str) -> None:
        raise UnsupportedFeature(f"{self.root}: cannot move {old} to {new}: files in memory keep their names")

    def list(self, prefix: str) -> list[Listed]:
        name = self._name(prefix)
        below = f"{name}/" if name else ""
        with self._lock:
            return [
                Listed(path, len(data), modified_ms)
                for path, (data, modified_ms) in sorted(self._files.items())
                if path.startswith(below)
            ]

    def _below(self, prefix: str) -> Sequence[str]:
        name = self._name(prefix)
        below = f"{name}/" if name else ""
        with self._lock:
            return [path[len(below) :] for path in self._files if path.startswith(below)]

    def _name(self, path: str) -> str:
        if path == self._root or path.startswith(f"{self._root}/"):
            path = path[len(self._root) + 1 :]
        if paths.is_absolute(path):
            raise InvalidInput(f"{path} is not in {self._root}; files in memory know no other root")
        return paths.inside(self._root, path)

    def _file(self, path: str) -> str:
        name = self._name(path)
        if not name:
            raise InvalidInput(f"{path!r} names the root {self._root} itself, not a file in it")
        return name
