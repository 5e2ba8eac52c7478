"""A Store that refuses every change, for tables opened read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import BinaryIO

from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.head import Head, Pointer, RehearsedHead, root_pointer
from lakeformat.storage.store import ForwardingReader, Reader, Store


@dataclass(frozen=True, slots=True)
class ReadOnly(ForwardingReader):
    """`store`, read-only."""

    store: Store

    def write(self, path: str, data: bytes) -> None:
        raise self._refusal(path)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for path in files:
            raise self._refusal(path)

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        raise self._refusal(path)

    def create_stream(self, path: str) -> BinaryIO:
        raise self._refusal(path)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            raise self._refusal(path)

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            raise self._refusal(prefix)

    def move_folder(self, old: str, new: str) -> None:
        raise self._refusal(old)

    def _refusal(self, path: str) -> InvalidInput:
        return InvalidInput(f"{self.root}: {path} cannot be changed: this table was opened read-only")


@dataclass(frozen=True, slots=True)
class Fixed:
    """The catalog entry and head of a table opened by one of its metadata files, which stays its newest root."""

    root: str
    store: Store | None = None

    def head(self, store: Store) -> Head:
        return replace(self, store=store)

    def version(self) -> int:
        return Pointer(self.root)

    def advance(self, version: int, plan: Plan) -> Outcome:
        raise InvalidInput(f"{self.root}: this table was opened read-only, by its metadata file")

    def rehearsed(self) -> Head:
        assert self.store is not None, self
        return RehearsedHead(self, self.store, root_pointer)

    def sharers(self, reader: Reader) -> list[str]:
        return []
