"""The contested name: whoever moves it has committed."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from lakeformat.errors import StoreError
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.store import Store


class Head(Protocol):
    def version(self) -> int:
        """The version that is current now; 0 before the first. Raises `StoreError`."""
        ...

    def advance(self, version: int, plan: Plan) -> Outcome:
        """Make `plan.root` the version after `version`, if that is still the current one.

        PUBLISHED and LOST are said on proof only; all else is UNKNOWN. Raises `UnsupportedFeature` where the storage
        cannot decide a race. Two attempts never have equal roots: each names files of its own.
        """
        ...


@dataclass(frozen=True, slots=True)
class CreateHead:
    """Versions are numbered files, `snapshot/snapshot-7`; creating the next one is the commit. Paimon's, and with
    `metadata/v7.metadata.json` that of Iceberg's Hadoop layout.

    The newest version is what the folder says. The hint file that others read first (`LATEST`) is not asked: after a
    restore there is a gap above an old version, and a hint that a slow writer set back to it would pass every check
    short of a listing. A commit made on it would then be hidden below the real one.
    """

    store: Store
    folder: str = "snapshot"
    prefix: str = "snapshot-"
    suffix: str = ""

    def version(self) -> int:
        return max(self.versions(), default=0)

    def versions(self) -> list[int]:
        """Every version that has its file, ascending; expiry and restores leave gaps."""
        number = re.compile(re.escape(self.prefix) + r"([1-9][0-9]{0,18})" + re.escape(self.suffix))
        found = map(number.fullmatch, self.store.names(self.folder))
        return sorted(int(match.group(1)) for match in found if match)

    def advance(self, version: int, plan: Plan) -> Outcome:
        is_version = plan.root_path.startswith(f"{self.folder}/")  # A schema is a root with a folder of its own.
        assert not is_version or plan.root_path == f"{self.folder}/{self.prefix}{version + 1}{self.suffix}", (
            plan.root_path,
            version,
        )
        try:
            # The name may be free again, since expiry and restores delete: later versions would hide what is created.
            if is_version and self.version() > version:
                return Outcome.LOST
            created = self.store.create(plan.root_path, plan.root)
            # A client or proxy that repeats a request can lose the race to itself: the root that is there tells.
            if not created and self.store.read(plan.root_path) != plan.root:
                return Outcome.LOST
        except StoreError:
            return Outcome.UNKNOWN
        with suppress(StoreError):
            for path, data in plan.hints.items():
                self.store.write(path, data)
        return Outcome.PUBLISHED
