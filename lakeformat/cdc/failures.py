"""Errors of libraries as errors of the table that they stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeformat.errors import LakeError, UnsupportedFeature


def named(name: str, error: Exception) -> LakeError:
    """`error`, if it is a `LakeError`; else an `UnsupportedFeature` that names the table."""
    if isinstance(error, LakeError):
        return error
    failure = UnsupportedFeature(
        f"{name} cannot be followed: {type(error).__name__}: {error}. Nothing is lost: the source keeps the changes; "
        "leave the column out (exclude_columns), or the table"
    )
    failure.__cause__ = error
    return failure


@contextmanager
def of_table(name: str) -> Iterator[None]:
    """Raise an exception that is not a `LakeError` as one that names the table."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        raise named(name, error) from error
