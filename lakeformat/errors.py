"""The one error tree.

    LakeError
    ├── InvalidInput            the caller asked for something impossible: names it and the way out
    │   └── OutsideScope        rows outside the partitions that an overwrite declared
    ├── NotFound                the warehouse, table, snapshot, tag, column or file does not exist
    ├── AlreadyExists           a table, tag or column of that name exists
    ├── OutOfReach              a location that lies in none of those that the lake allows: nothing was fetched from it
    ├── UnsupportedFeature      the table uses something lakeformat does not know: refused, never half-read
    │   └── MissingKey          an encrypted table, without the key that opens it
    ├── CorruptTable            metadata that contradicts itself or is not there
    │   └── CorruptFile         bytes that are not what their name says
    ├── StoreError              storage refused, or its answer did not come
    │   ├── NoSuchFile          storage says the file is not there
    │   └── StoreRefused        storage said no for good: nothing was done, and asking again does not help
    ├── SourceError             a database whose changes are followed refused: says what to set there
    └── CommitError
        ├── Conflict            others changed what this operation relied on; nothing was written
        ├── CommitLost          every attempt lost the race; nothing was written
        └── CommitUnknown       no answer came; ask again with the same id, delete nothing

A message names the thing, what was found, and the way out.
"""

from typing import Any, ClassVar

from lakeformat.redact import redacted


class LakeError(Exception):
    """The base of all errors that lakeformat raises on purpose. Its message shows no passwords of addresses.

    `retryable`: whether the same call may succeed later although nobody mends anything.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(redacted(argument) if isinstance(argument, str) else argument for argument in arguments))


class InvalidInput(LakeError, ValueError):
    """The caller asked for something impossible. The message names it and the way out."""

    retryable = False


class OutsideScope(InvalidInput):
    """Rows outside the partitions that an overwrite declared. Nothing was committed."""


class NotFound(LakeError, LookupError):
    """The warehouse, table, snapshot, tag, column or file does not exist."""

    retryable = False


class AlreadyExists(LakeError):
    """A table, tag, column or file of that name exists."""

    retryable = False


class OutOfReach(LakeError):
    """A location that lies in none of those that the lake allows. Nothing was read from it or written to it."""

    retryable = False


class UnsupportedFeature(LakeError):
    """The table uses a feature that lakeformat does not support. It is refused, never half-read."""

    retryable = False


class MissingKey(UnsupportedFeature):
    """An encrypted table whose master key was not given, or is another than was given."""


class CorruptTable(LakeError):
    """Metadata is missing or contradicts itself."""

    retryable = False


class CorruptFile(CorruptTable):
    """A file does not hold what its name says."""


class StoreError(LakeError, OSError):
    """Storage failed, or its answer did not come."""


class NoSuchFile(StoreError):
    """Storage has no such file."""


class StoreRefused(StoreError):
    """Storage refused for good: nothing was done, and a retry does not help."""

    retryable = False


class SourceError(LakeError):
    """A database that is followed refused or cannot be reached. The message says what to set there."""


class CommitError(LakeError):
    """An operation did not become part of the table, or may not have."""


class Conflict(CommitError):
    """Others changed what this operation relied on. Nothing was written."""


class CommitLost(CommitError):
    """Other writers were faster in every attempt. Nothing was written."""


class CommitUnknown(CommitError):
    """Storage did not answer: the operation may have landed. Run it again with the same id."""
