"""A Store that refuses every change, for tables opened read-only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import BinaryIO

from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.head import Head, Pointer, RehearsedHead, root_pointer
from lakeformat.storage.store import ForwardingReader, Reader, Store


class Unchanging(ABC):
    """The calls of a `Store` that change files, each of which raises `refusal`."""

    __slots__ = ()

    @abstractmethod
    def refusal(self, path: str) -> LakeError: ...

    def write(self, path: str, data: bytes) -> None:
        raise self.refusal(path)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for path in files:
            raise self.refusal(path)

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        raise self.refusal(path)

    def create_stream(self, path: str) -> BinaryIO:
        raise self.refusal(path)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            raise self.refusal(path)

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            raise self.refusal(prefix)

    def move_folder(self, old: str, new: str) -> None:
        raise self.refusal(old)


@dataclass(frozen=True, slots=True)
class ReadOnly(Unchanging, ForwardingReader):
    """`store`, read-only."""

    store: Store

    def refusal(self, path: str) -> LakeError:
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
