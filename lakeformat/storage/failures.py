"""Errors of storage: those of libraries become lakeformat's, with the name of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from obstore.exceptions import BaseError

from lakeformat import redact
from lakeformat.errors import LakeError, NoSuchFile, StoreError


@contextmanager
def store_errors(name: str, verb: str) -> Iterator[None]:
    """Turn any error of a library into a `StoreError` that names the file."""
    try:
        yield
    except LakeError:
        raise
    except FileNotFoundError as error:
        raise NoSuchFile(f"{name}: no such file") from error
    except (NotADirectoryError, IsADirectoryError) as error:
        if verb in ("read", "open", "list", "look for"):  # Object storage refuses such a name too.
            raise NoSuchFile(f"{name}: no such file ({error.strerror})") from error
        raise StoreError(f"{name}: cannot {verb}: {error.strerror}") from error
    except (OSError, BaseError, ValueError, NotImplementedError, pa.ArrowException) as error:
        raise StoreError(f"{name}: cannot {verb}: {first_line(error)}") from redact.cause(error)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
