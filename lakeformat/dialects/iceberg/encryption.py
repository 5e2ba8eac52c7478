"""Encrypted tables: which key opens which file (spec: Encryption Keys; encryption/StandardEncryptionManager.java).

The document names the keys of manifest lists, each encrypted with a key encryption key, and those wrapped with the
master key of a KMS. A manifest list has the keys of its manifests, a manifest those of its files.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa

from lakeformat.codec.avro.decode import varint
from lakeformat.codec.iceberg import gcm_stream
from lakeformat.errors import CorruptFile, CorruptTable, InvalidInput, LakeError, MissingKey, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.work import FileKey

Given = Mapping[str, bytes] | Callable[[bytes, str], bytes]

_MADE = "KEY_TIMESTAMP"  # A property of a key encryption key: when it was made, which what it encrypts is signed with.


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """What a user gives to open tables with: master keys by id, or what asks a KMS. What was unwrapped is kept; copies
    in other processes begin without. No `repr` shows a key."""

    given: Given | None = field(default=None, repr=False)
    _known: dict[tuple[str, bytes], bytes] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.given is None or callable(self.given):
            return
        if not isinstance(self.given, Mapping):
            raise InvalidInput(
                "encryption_keys: give master keys (bytes) by id, or a function (wrapped key, key id) -> key"
            )
        for id, key in self.given.items():
            if not isinstance(id, str) or not isinstance(key, bytes) or len(key) not in gcm_stream.KEY_SIZES:
                raise InvalidInput(f"encryption_keys[{id!r}]: give 16, 24 or 32 bytes, under the id of the key as text")

    def __reduce__(self) -> tuple[type[MasterKeys], tuple[Given | None]]:
        return MasterKeys, (self.given,)

    def unwrapped(self, wrapped: bytes, id: str, where: str) -> bytes:
        """A key encryption key. Raises `MissingKey`."""
        if (id, wrapped) not in self._known:
            self._known[id, wrapped] = self._unwrapped(wrapped, id, where)
        return self._known[id, wrapped]

    def _unwrapped(self, wrapped: bytes, id: str, where: str) -> bytes:
        if self.given is None or (isinstance(self.given, Mapping) and id not in self.given):
            raise MissingKey(
                f"{where}: encrypted with the master key {id!r}, which was not given; "
                "give it by Lake(..., encryption_keys=...)"
            )
        if isinstance(self.given, Mapping):
            try:
                return gcm_stream.opened_block(self.given[id], wrapped, None)
            except gcm_stream.WrongTag:
                raise MissingKey(
                    f"{where}: the master key given as {id!r} does not open it: it is another key, or the table's "
                    "metadata is damaged; for a KMS that wraps keys by its own method, give a function"
                ) from None
        try:
            data = self.given(wrapped, id)
        except LakeError:
            raise
        except Exception as error:  # Its own; what it says may hold more than should be shown.
            raise MissingKey(f"{where}: no key for the master key {id!r}: {type(error).__name__}") from error
        if not isinstance(data, bytes) or len(data) not in gcm_stream.KEY_SIZES:
            raise InvalidInput(
                f"{where}: the function given as encryption_keys did not return 16, 24 or 32 bytes for {id!r}"
            )
        return data


class Keyring:
    """The keys of a table's metadata files, by path: those of manifest lists by its document,
    those of manifests by the lists."""

    __slots__ = ("_document", "_lists", "_manifests", "_master", "_where")

    def __init__(self, master: MasterKeys, document: Mapping[str, Any], where: str) -> None:
        self._master, self._document, self._where = master, document, where
        self._lists: dict[str, str] | None = None
        self._manifests: dict[str, bytes] = {}

    def keys_of(self, paths: Sequence[str]) -> dict[str, FileKey]:
        """The keys of those files that are encrypted. Raises `MissingKey`."""
        if self._lists is None:
            snapshots = self._document.get("snapshots") or () if "encryption-keys" in self._document else ()
            self._lists = {
                snapshot["manifest-list"]: snapshot["key-id"]
                for snapshot in snapshots
                if snapshot.get("key-id") is not None
            }
        if not self._lists and not self._manifests:
            return {}
        keys = {path: file_key(self._manifests[path], path) for path in paths if path in self._manifests}
        return keys | {path: self._of_list(self._lists[path], path) for path in paths if path in self._lists}

    def learn(self, metas: pa.Table) -> None:
        """Manifests as their list has them, with their keys."""
        if metas["key_metadata"].null_count < len(metas):
            pairs = zip(metas["manifest_path"].to_pylist(), metas["key_metadata"].to_pylist(), strict=True)
            self._manifests.update((path, key) for path, key in pairs if key is not None)

    def _of_list(self, id: str, path: str) -> FileKey:
        entry = self._entry(id)
        by = self._entry(entry.get("encrypted-by-id"))
        timestamp, master = (by.get("properties") or {}).get(_MADE), by.get("encrypted-by-id")
        if timestamp is None or master is None:
            raise CorruptTable(f"{self._where}: encryption key {by['key-id']!r} has no {_MADE}, or no master key")
        key = self._master.unwrapped(_bytes_of(by, self._where), master, self._where)
        try:
            return file_key(gcm_stream.opened_block(key, _bytes_of(entry, self._where), timestamp.encode()), path)
        except gcm_stream.WrongTag:
            raise CorruptTable(
                f"{self._where}: encryption key {id!r} is damaged, "
                f"or was encrypted with another key than {by['key-id']!r}"
            ) from None

    def _entry(self, id: str | None) -> Mapping[str, Any]:
        for known in self._document["encryption-keys"]:
            if known["key-id"] == id:
                entry: Mapping[str, Any] = known
                return entry
        raise CorruptTable(f"{self._where}: the table's metadata has no encryption key {id!r}")


def file_key(data: bytes, where: str) -> FileKey:
    """Standard key metadata (encryption/StandardKeyMetadata.java): a version, then an Avro record of the key, the
    prefix of what is signed, and the length of the file."""
    if data[:1] != b"\x01":
        raise UnsupportedFeature(
            f"{where}: encrypted in a way of its own: its key metadata begins with {bytes(data[:1])!r}, not 1"
        )
    try:
        key, offset = _sized(data, 1)
        branch, offset = varint(data, offset)
        signed, offset = _sized(data, offset) if branch else (b"", offset)
        size = None
        if offset < len(data):
            branch, offset = varint(data, offset)
            size = varint(data, offset)[0] if branch else None
    except IndexError:
        raise CorruptFile(f"{where}: its key metadata is cut off") from None
    if len(key) not in gcm_stream.KEY_SIZES:
        raise CorruptFile(f"{where}: its key metadata holds a key of {len(key)} bytes, not 16, 24 or 32")
    return FileKey(key, signed, size)


def file_keys(entries: pa.Table) -> tuple[FileKey | None, ...]:
    """The keys of files, as their manifests have them."""
    pairs = zip(entries["key_metadata"].to_pylist(), entries["file_path"].to_pylist(), strict=True)
    return tuple(None if data is None else file_key(data, path) for data, path in pairs)


def _sized(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = varint(data, offset)
    if size < 0 or offset + size > len(data):
        raise IndexError
    return data[offset : offset + size], offset + size


def _bytes_of(entry: Mapping[str, Any], where: str) -> bytes:
    try:
        return base64.b64decode(entry["encrypted-key-metadata"], validate=True)
    except (KeyError, binascii.Error):
        raise CorruptTable(
            f"{where}: encryption key {entry['key-id']!r} has no encrypted-key-metadata in base64"
        ) from None
