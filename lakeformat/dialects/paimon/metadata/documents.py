"""JSON documents with checked keys, and files whose names end in a number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any

from lakeformat.codec import parsing
from lakeformat.codec.document import encoded
from lakeformat.errors import CorruptFile
from lakeformat.storage.store import Reader


def numbers_in(reader: Reader, folder: str, prefix: str) -> list[int]:
    return numbers_among(reader.names(folder), prefix)


def numbers_among(names: Iterable[str], prefix: str) -> list[int]:
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in numbers if number.isdecimal())


def parsed(data: bytes, where: str, keys: Mapping[str, type | UnionType]) -> dict[str, Any]:
    """A JSON object whose `keys` have these types; other keys are ignored."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{where}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptFile(f"{where}: a JSON {type(document).__name__}, not an object")
    for key, kind in keys.items():
        value = document.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CorruptFile(f"{where}: {key} is {value!r}")
    parsing.check_values(document, data)
    return document


def emit(document: Mapping[str, Any]) -> bytes:
    return encoded(json.dumps(document, indent=2, ensure_ascii=False))
