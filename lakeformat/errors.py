"""The one error tree.

    LakeError
    ├── InvalidInput            the caller asked for something that cannot be: names the thing and the way out
    │   └── OutsideScope        rows outside the partitions that an overwrite declared
    ├── NotFound                no such warehouse, table, snapshot, tag, column or file
    ├── AlreadyExists           a table, tag or column of that name is there
    ├── UnsupportedFeature      the table uses something lakeformat does not know: refused, never half-read
    ├── CorruptTable            metadata that contradicts itself or is not there
    │   └── CorruptFile         bytes that are not what their name says
    ├── StoreError              storage refused, or its answer did not come
    │   ├── NoSuchFile          storage says the file is not there
    │   └── StoreRefused        storage said no for good: nothing was done, and asking again does not help
    ├── SourceError             a database whose changes are followed refused: says what to set there
    └── CommitError
        ├── Conflict            somebody changed what this operation relied on; nothing was written
        ├── CommitLost          every attempt lost the race; nothing was written
        └── CommitUnknown       no answer came; ask again with the same id, delete nothing

A message names the thing, what was found, and the way out.
"""

from typing import Any

from lakeformat.redact import redacted


class LakeError(Exception):
    """Whatever lakeformat raises on purpose. Passwords in the addresses of its message are not shown."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in arguments))


class InvalidInput(LakeError, ValueError):
    """The caller asked for something that cannot be."""


class OutsideScope(InvalidInput):
    """Rows outside the partitions that an overwrite declared; nothing was committed."""


class NotFound(LakeError, LookupError):
    """No such warehouse, table, snapshot, tag, column or file."""


class AlreadyExists(LakeError):
    """A table, tag or column of that name is there."""


class UnsupportedFeature(LakeError):
    """The table uses something lakeformat does not know."""


class CorruptTable(LakeError):
    """Metadata that contradicts itself or is not there."""


class CorruptFile(CorruptTable):
    """Bytes that are not what their name says."""


class StoreError(LakeError, OSError):
    """Storage refused, or its answer did not come."""


class NoSuchFile(StoreError):
    """Storage says the file is not there."""


class StoreRefused(StoreError):
    """Storage said no for good: nothing was done."""


class SourceError(LakeError):
    """A database whose changes are followed cannot be reached or refused; the message says what to set there."""


class CommitError(LakeError):
    """An operation that did not become part of the table, or may not have."""


class Conflict(CommitError):
    """Somebody changed what this operation relied on."""


class CommitLost(CommitError):
    """Every attempt lost the race."""


class CommitUnknown(CommitError):
    """No answer came: the operation may or may not have landed. Ask again with the same id."""
