"""Errors of parsers: a file with unexpected content is a `CorruptFile` that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import UnionType
from typing import Any

import numpy as np

from lakeformat.errors import CorruptFile, CorruptTable, InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field, Row, walk

# A type; [shape] for lists; {key: shape}, a key with "?" where it may be missing or null; {str: shape} for maps.
Shape = Any


@contextmanager
def naming(where: str, error: type[CorruptTable] = CorruptFile) -> Iterator[None]:
    """Any error while `where` is parsed becomes `error` (or `UnsupportedFeature`), which names `where`."""
    try:
        yield
    except (CorruptTable, UnsupportedFeature) as cause:
        if where in str(cause):
            raise
        raise type(cause)(f"{where}: {cause}") from cause
    except InvalidInput as cause:
        raise error(f"{where}: {cause}") from cause
    except LakeError:
        raise
    except Exception as cause:  # Errors of Python, numpy and Arrow for bytes that a parser does not expect.
        raise error(f"{where}: not what such a file holds ({type(cause).__name__}: {cause})"[:1000]) from cause


@contextmanager
def specified(where: str, document: str) -> Iterator[None]:
    """A missing key, or a value of another type, is a `CorruptFile`: `where` holds no `document`. Other errors pass."""
    try:
        yield
    except LakeError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, StopIteration) as error:
        raise CorruptFile(f"{where}: no {document} ({error!r})") from error


def check(document: Any, shape: Shape, path: str = "it") -> None:
    """Raise `CorruptFile` for the first part of a JSON document that does not match `shape`, naming its `path`."""
    if _fits(document, shape):
        return
    match shape:
        case type() | UnionType():
            wanted = getattr(shape, "__name__", str(shape))
            raise CorruptFile(f"{path} is {str(document)[:80]!r}, not {wanted}")
        case [inner]:
            check(document, list, path)
            for number, part in enumerate(document):
                check(part, inner, f"{path}[{number}]")
        case Mapping() if str in shape:
            check(document, dict, path)
            for key, part in document.items():
                check(part, shape[str], f"{path}[{key!r}]")
        case Mapping():
            check(document, dict, path)
            for key, inner in shape.items():
                name = key.removeprefix("?")
                if document.get(name) is not None:
                    check(document[name], inner, f"{path}[{name!r}]")
                elif name == key:
                    raise CorruptFile(f"{path} has no {name!r}")


def _fits(document: Any, shape: Shape) -> bool:
    """Whether a part of a JSON document matches `shape`: most do, and the names of their places are never built."""
    kind = type(shape)
    if kind is dict:
        if not isinstance(document, dict):
            return False
        if str in shape:
            part_type = shape[str]
            return all(type(part) is part_type or _fits(part, part_type) for part in document.values())
        for key, part_type in shape.items():
            part = document.get(key.removeprefix("?"))
            if part is None:
                if key[0] != "?":
                    return False
            elif type(part) is not part_type and not _fits(part, part_type):
                return False
        return True
    if kind is list:
        part_type = shape[0]
        return isinstance(document, list) and all(
            type(part) is part_type or _fits(part, part_type) for part in document
        )
    return isinstance(document, shape) and (shape is bool or not isinstance(document, bool))


_BEYOND = b"9223372036854775808"  # 2^63, beyond 64-bit integers.
_LONG_NUMBER = re.compile(rb"[0-9]{19,}")  # Few bytes are searched faster by a pattern than by whole arrays.
_SMALL_BYTES = 4 << 10
_HALF_A_PAIR = re.compile(rb"\\u[dD]|\xed[\xa0-\xbf]|\0")  # Half a surrogate pair, or UTF-16 text.
_BEGINS_ONE = (b"\\u", b"\xed", b"\0")  # Searched first: far faster than the pattern.


def check_values(document: Any, data: bytes | None = None) -> None:
    """Raise `CorruptFile` for integers beyond 64 bits and for text that is not valid UTF-8, anywhere in a JSON
    document.

    `data` is the document's source: if its bytes can hold neither, the document is not searched.
    """
    if data is not None and not (any(start in data for start in _BEGINS_ONE) and _HALF_A_PAIR.search(data)):
        if len(data) <= _SMALL_BYTES:
            if all(len(digits) <= 19 and digits < _BEYOND for digits in _LONG_NUMBER.findall(data)):
                return
        else:
            starts, lengths = _long_numbers(data)
            if lengths.max(initial=0) <= 19 and all(data[at : at + 19] < _BEYOND for at in starts.tolist()):
                return
    left = [document]
    while left:
        match left.pop():
            case dict() as part:
                left += [*part, *part.values()]
            case list() as part:
                left += part
            case int() as part if not -(2**63) <= part < 2**63:
                raise CorruptFile(f"it holds the number {str(part)[:40]}, beyond 64 bits")
            case str() as part:
                part.encode()


def _long_numbers(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where runs of 19 or more digits begin, and their lengths."""
    digits = np.empty(len(data) + 2, bool)
    digits[0] = digits[-1] = False
    digits[1:-1] = np.frombuffer(data, np.uint8) - np.uint8(ord("0")) < 10
    edges = np.flatnonzero(digits[1:] != digits[:-1])
    lengths = edges[1::2] - edges[::2]
    long = lengths >= 19
    return edges[::2][long], lengths[long]


def check_columns(fields: tuple[Field, ...]) -> None:
    """Raise `CorruptFile` for duplicate names or ids of columns or of fields of a row, and for invalid ones."""
    seen: set[int] = set()
    for field in walk(fields):
        check(field.id, int, "the id of a field")
        if not NO_ID <= field.id < 2**31:
            raise CorruptFile(f"field {field.name!r} has the id {field.id}, beyond 32 bits")
        check(field.name, str, "the name of a field")
        if field.id != NO_ID and field.id in seen:
            raise CorruptFile(f"two fields have the id {field.id}, one of them {field.name!r}")
        seen.add(field.id)
        parts = field.type.fields if isinstance(field.type, Row) else ()
        _check_names(parts)
    _check_names(fields)


def _check_names(fields: tuple[Field, ...]) -> None:
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise CorruptFile(f"two columns are called {next(name for name in names if names.count(name) > 1)!r}")
