"""The tests on another day: `LAKEFORMAT_TEST_DAY=+400d`, or `leap-day` (noon, UTC), moves the clock of their processes.

The times of files move along: a file that is new on the disk is new in a listing. The clocks of what is not Python stay: of a JVM, of a
database server, and of DuckDB's own functions.
"""

import datetime
import importlib.abc
import importlib.machinery
import os
import sys
import time
from calendar import isleap
from itertools import count
from types import SimpleNamespace
from typing import Any

import time_machine

_DAY = "LAKEFORMAT_TEST_DAY"
_scandir = os.scandir


def move() -> None:
    """Move this process's clock, and the times of the files that it lists. Processes that it starts do the same."""
    day = os.environ[_DAY]
    if day == "leap-day":  # All processes move by as many seconds as the first.
        now = datetime.datetime.now(datetime.UTC)
        leap_days = (datetime.datetime(y, 2, 29, 12, tzinfo=datetime.UTC) for y in count(now.year) if isleap(y))
        noon = next(leap_day for leap_day in leap_days if leap_day > now)
        day = os.environ[_DAY] = f"+{round((noon - now).total_seconds())}s"
    time_machine.travel(time.time() + int(day[1:-1]) * {"d": 86_400, "s": 1}[day[-1]], tick=True).start()
    _Entry.nanoseconds = time.time_ns() - time_machine.escape_hatch.time.time_ns()  # A start takes time as well.
    os.scandir, os.DirEntry = _Listing, _Entry
    sys.meta_path.insert(0, _Grpc())


class _Grpc(importlib.abc.MetaPathFinder):
    """gRPC keeps the clock of the machine, by which its core waits until the times that Python tells it."""

    modules = ("_cython.cygrpc", "_channel", "_common", "_server", "_utilities")

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.removeprefix("grpc.") not in self.modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None, name
        assert spec.loader is not None, name
        execute = spec.loader.exec_module

        def executed(module: Any) -> None:
            execute(module)
            module.time = SimpleNamespace(**{**vars(time), "time": time_machine.escape_hatch.time.time})

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


class _Listing:
    """`os.scandir`, whose entries are as old as they would be."""

    def __init__(self, path: Any = ".") -> None:
        self._entries = _scandir(path)

    def __enter__(self) -> "_Listing":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> "_Listing":
        return self

    def __next__(self) -> "_Entry":
        return _Entry(next(self._entries))

    def close(self) -> None:
        self._entries.close()


class _Entry(os.PathLike):
    nanoseconds = 0

    def __init__(self, entry: os.DirEntry) -> None:
        self._entry = entry
        self.name, self.path, self.inode, self.is_symlink = entry.name, entry.path, entry.inode, entry.is_symlink

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_dir(follow_symlinks=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_file(follow_symlinks=follow_symlinks)

    def is_junction(self) -> bool:
        return False

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        status, moved = self._entry.stat(follow_symlinks=follow_symlinks), {}
        for name in ("st_atime", "st_mtime", "st_ctime"):
            moved[name] = getattr(status, name) + self.nanoseconds / 1e9
            moved[f"{name}_ns"] = getattr(status, f"{name}_ns") + self.nanoseconds
        return os.stat_result(tuple(status), moved)
