"""The file formats that are read and written, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakeformat.engines.files import avro, orc, parquet, text
from lakeformat.errors import UnsupportedFeature
from lakeformat.storage.store import Reader

FORMATS: dict[str, Any] = {"parquet": parquet, "orc": orc, "avro": avro}

TEXTS: dict[str, Any] = {"csv": text.Csv, "json": text.Json}


def opened(store: Reader, path: str, format: str, text_options: Iterable[tuple[str, str]] | None = None) -> Any:
    """A file opened for reading; of CSV and JSON with the options that it is written by. Raises `UnsupportedFeature` for a format that
    is not known."""
    if format in TEXTS and text_options is not None:
        return TEXTS[format](pa.PythonFile(store.open(path), "r"), path, dict(text_options))
    if format not in FORMATS:
        raise UnsupportedFeature(f"{path}: file format {format!r} cannot be read; known are {', '.join(FORMATS)}")
    source: Any = store.open(path)
    if not isinstance(source, pa.NativeFile):
        source = _Ranged(source) if hasattr(source, "prefetch") else pa.PythonFile(source, "r")
    return FORMATS[format].File(source, path)


class _Ranged(pa.PythonFile):
    """A file for Arrow, which can fetch ranges together."""

    def __init__(self, source: Any) -> None:
        self.prefetch = source.prefetch
