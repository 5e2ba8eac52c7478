"""The head: the one name that commits contest."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from typing import Protocol, TypeVar

from lakeformat.errors import NoSuchFile, StoreError
from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.store import Store

HINT, RESTORED, EXPIRING = "LATEST", "RESTORED", "EXPIRING-"  # Files beside the versions; the last is a prefix.
_NUMBER = re.compile(r"v?(\d{1,18})(?=[-.])")


class Head(Protocol):
    def version(self) -> int:
        """The current version; 0 before the first. Raises `StoreError`."""
        ...

    def advance(self, version: int, plan: Plan) -> Outcome:
        """Make `plan.root` the version after `version`, if that is still the current one.

        PUBLISHED and LOST are returned on proof only; UNKNOWN if storage answered and history has to decide. Raises
        `StoreError` if no answer came, so that the attempt may have landed or may still land; `StoreRefused` if it
        cannot have; `UnsupportedFeature` if the storage cannot decide a race. No two attempts have equal roots: each
        names files of its own.
        """
        ...

    def rehearsed(self) -> Head:
        """This head in a dry run, whose store is only a record: it starts at this version and moves in memory. A head
        that a catalog moves is read, and never moved."""
        ...


T = TypeVar("T")


def load_newest(head: Head, load: Callable[[int], T]) -> T:
    """`load` of the newest version. If it expires between the look and the read, the newest one is looked up again."""
    while True:
        version = head.version()
        try:
            return load(version)
        except NoSuchFile:
            if head.version() == version:
                raise


@dataclass(frozen=True, slots=True)
class _Newest:
    """A version, and the contents of its file and of the marks of its folder. `is_proven`:
    it was the newest after that was read."""

    version: int
    contents: tuple[bytes | None, ...]
    is_proven: bool


@dataclass(slots=True)
class Newest:
    """The newest versions that heads of one process have seen, by folder, where a folder holds more than `few` names:
    there a few reads tell for less than a listing that nothing newer has come."""

    few: int = 256
    versions: dict[str, _Newest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateHead:
    """Versions are numbered files, e.g. `snapshot/snapshot-7`; creating the next one is the commit. For Paimon, and as
    `metadata/v7.metadata.json` for Iceberg's Hadoop tables.

    The newest version is the one that the folder lists. The hint file that other engines read first (`LATEST`) is not
    proof by itself: after a restore there is a gap above an old version, and a hint that a slow writer set back to it
    would pass every check short of a listing. A commit made on it would then be hidden below the real newest version.

    With `newest`, on local storage, a version that was the newest still is if the next one does not exist and neither
    its own file nor a mark has changed. A name becomes free in two ways only. Expiry deletes the oldest versions first,
    so a version that exists has no free name above it. A restore deletes the versions that it undoes, and first writes
    the file `RESTORED` with content that no file had before. The hint must name the version too, as a second witness.
    """

    store: Store
    folder: str = "snapshot"
    prefix: str = "snapshot-"
    suffixes: tuple[str, ...] = ("",)  # The names of one version: all writers that commit on one base choose the same.
    newest: Newest | None = None
    key: str = ""  # By which `newest` knows the folder.

    def version(self) -> int:
        newest = self._remembered()
        if newest is not None and not self.store.exists(self._path(newest.version + 1)) and self._is_proven(newest):
            return newest.version
        version, names = self._listed()
        if self.newest is not None and self.store.is_local and names > self.newest.few and version > 0:
            contents = self._contents(version)
            is_proven = newest is not None and (newest.version, newest.contents) == (version, contents)
            self.newest.versions[self.key] = _Newest(version, contents, is_proven)
        return version

    def _listed(self) -> tuple[int, int]:
        """The newest version, and how many names the folder holds."""
        # Of names with one ending the longest that comes last has the highest number: a commit asks four times, and a
        # folder may hold very many.
        highest, pattern = 0, self._pattern
        names = self.store.names(self.folder)
        candidates = [name for name in names if name.startswith(self.prefix)]  # Iceberg's manifests lie beside them.
        for ending in self.suffixes:
            for name in sorted([name for name in candidates if name.endswith(ending)], key=len)[::-1]:
                match = pattern.fullmatch(name)
                if match and match[2] == ending:
                    highest = max(highest, int(match[1]))
                    break
        return highest, len(names)

    def _remembered(self) -> _Newest | None:
        return None if self.newest is None else self.newest.versions.get(self.key)

    def _is_proven(self, newest: _Newest) -> bool:
        """Whether no name above a version that was the newest has become free since. The answer holds for the time
        before the call, so callers look for the next name, or take it, first."""
        is_hinted = newest.contents[1] == str(newest.version).encode()
        return newest.is_proven and is_hinted and self._contents(newest.version) == newest.contents

    def _contents(self, version: int) -> tuple[bytes | None, ...]:
        return tuple(self.store.read_many([self._path(version), f"{self.folder}/{HINT}", f"{self.folder}/{RESTORED}"]))

    def _path(self, version: int) -> str:
        return f"{self.folder}/{self.prefix}{version}{self.suffixes[0]}"

    def versions(self) -> list[int]:
        """Every version whose file exists, ascending. Expiry and restores leave gaps."""
        return sorted({int(match[1]) for match in map(self._pattern.fullmatch, self.store.names(self.folder)) if match})

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(self.prefix)}([1-9][0-9]{{0,18}})({'|'.join(map(re.escape, self.suffixes))})")

    def advance(self, version: int, plan: Plan) -> Outcome:
        is_version = plan.root_path.startswith(f"{self.folder}/")  # A schema is a root in a folder of its own.
        names = [f"{self.folder}/{self.prefix}{version + 1}{suffix}" for suffix in self.suffixes]
        assert not is_version or plan.root_path in names, (plan.root_path, version)
        # The name may be free again, since expiry and restores delete: later versions would hide what is created.
        if is_version and self.version() > version:
            return Outcome.LOST
        newest = self._remembered()
        created = self.store.create(plan.root_path, plan.root)
        # A client or proxy that repeats a request can lose the race to itself: the root that is there decides.
        if not created and self.store.read(plan.root_path) != plan.root:
            return Outcome.LOST
        # However close the look before, a writer can be stopped after it, or its put be slow. The newest version is
        # never deleted, so if ours is the newest now, nothing newer was there when it was created.
        follows = is_version and newest is not None and newest.version == version and self._is_proven(newest)
        if not follows:
            if is_version and self.version() != version + 1:
                return Outcome.UNKNOWN
        elif newest is not None and self.newest is not None:
            contents = (plan.root, str(version + 1).encode(), newest.contents[2])
            self.newest.versions[self.key] = _Newest(version + 1, contents, is_proven=True)
        with suppress(StoreError):
            self.store.write_hints(plan.hints)
        return Outcome.PUBLISHED

    def rehearsed(self) -> Head:
        return self  # Its names are files of the store.


@dataclass(frozen=True, slots=True)
class FollowHead(CreateHead):
    """Versions have the numbers of the followed table: they rise, not always by one. A version's root may be written
    again, since it shows the followed table as it is now; the writer checks whether it does."""

    def advance(self, version: int, plan: Plan) -> Outcome:
        number = self.number(plan.root_path)
        if self.version() > version:
            return Outcome.LOST
        if number <= version:
            self.store.write(plan.root_path, plan.root)
        elif not self.store.create(plan.root_path, plan.root) and self.store.read(plan.root_path) != plan.root:
            return Outcome.LOST
        if self.version() != number:
            return Outcome.UNKNOWN
        with suppress(StoreError):
            self.store.write_hints(plan.hints)
        return Outcome.PUBLISHED

    def number(self, path: str) -> int:
        match = _NUMBER.match(path.rpartition("/")[2])
        assert match is not None, path
        return int(match[1])


class Pointer(int):
    """A version that a catalog names: one more than the number in its root's name, and the location of that root."""

    location: str

    def __new__(cls, location: str) -> Pointer:
        match = _NUMBER.match(location.rpartition("/")[2])
        self = super().__new__(cls, int(match[1]) + 1 if match else 1)
        self.location = location
        return self

    def __eq__(self, other: object) -> bool:
        """Whether two pointers name the same root: a server need not number its roots."""
        return self.location == other.location if isinstance(other, Pointer) else int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # An int that is made of its location.
        return (self.location,)

    def __repr__(self) -> str:
        return f"Pointer({self.location!r})"


class Entry(Protocol):
    """A table's entry in a catalog. Calls raise `StoreError` when the catalog fails or does not answer."""

    def location(self) -> str | None:
        """The location of the newest root; None if the catalog has no such table."""
        ...

    def swap(self, old: str | None, new: str) -> bool:
        """Make `new` the newest root if the newest is `old` (None: no such table). Atomic among all writers.

        Returns True only on proof.
        """
        ...


@dataclass(frozen=True, slots=True)
class SwapHead:
    """Roots have unique names; the catalog says which is the newest, and a commit changes that entry."""

    store: Store
    entry: Entry

    def version(self) -> int:
        location = self.entry.location()
        return 0 if location is None else Pointer(location)

    def advance(self, version: int, plan: Plan) -> Outcome:
        old = version.location if isinstance(version, Pointer) else None
        self.store.write(plan.root_path, plan.root)
        # A refusal is no proof of a lost race: a proxy may have repeated a swap that succeeded.
        return Outcome.PUBLISHED if self.entry.swap(old, self.store.location(plan.root_path)) else Outcome.UNKNOWN

    def rehearsed(self) -> Head:
        return RehearsedHead(self, self.store, root_pointer)


@dataclass(slots=True)
class RehearsedHead:
    """A catalog's head that moves in memory only, over a store that keeps writes in memory."""

    head: Head
    store: Store
    # The version that a plan makes.
    following: Callable[[Store, int, Plan], int]
    now: int | None = None

    def version(self) -> int:
        return self.head.version() if self.now is None else self.now

    def advance(self, version: int, plan: Plan) -> Outcome:
        if self.version() != version:
            return Outcome.LOST
        self.store.write(plan.root_path, plan.root)
        self.now = self.following(self.store, version, plan)
        return Outcome.PUBLISHED

    def rehearsed(self) -> Head:
        return self


def root_pointer(store: Store, version: int, plan: Plan) -> int:
    return Pointer(store.location(plan.root_path))
