"""The layout of exchanged files: the format and its options, with the names that `COPY INTO` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass

_CSV = {"FIELD_DELIMITER": ",", "QUOTE": '"', "ESCAPE": "\\", "COMPRESSION": "NONE"}
_VALUES = {"NULL_IF": (), "EMPTY_FIELD_AS_NULL": False}
LOADED: Mapping[str, Mapping[str, Any]] = {
    "CSV": {**_CSV, "SKIP_HEADER": False, **_VALUES},
    "JSON": {"MULTI_LINE": False, "COMPRESSION": "NONE", **_VALUES},
    "PARQUET": {"COMPRESSION": "AUTO"},
}
EXPORTED: Mapping[str, Mapping[str, Any]] = {
    "CSV": {**_CSV, "HEADER": False},
    "JSON": {"COMPRESSION": "NONE", "DATE_FORMAT": "", "TIMESTAMP_FORMAT": ""},
    "PARQUET": {"COMPRESSION": "SNAPPY"},
}
_CODECS = {"NONE": None, "UNCOMPRESSED": None, "GZIP": "gzip", "BZIP2": "bz2", "BZ2": "bz2", "ZSTD": "zstd"}
SUFFIXES = {"gzip": ".gz", "bz2": ".bz2", "zstd": ".zst"}
_OF_PARQUET = ("NONE", "UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")
_TRUTH = {"TRUE": True, "FALSE": False, "1": True, "0": False}
_ESCAPES = {"\\t": "\t", "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A format ("CSV", "JSON" or "PARQUET") and the values of all its options."""

    format: str
    options: Mapping[str, Any]

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    @property
    def codec(self) -> str | None:
        """Arrow's name of the compression of text; None for none."""
        return _CODECS[self["COMPRESSION"]]


def layout(format: str, options: Mapping[str, Any], exports: bool = False) -> FileLayout:
    """The format with its options, the others at their defaults. Raises `InvalidInput` for unknown options and values,
    and `UnsupportedFeature` for what Arrow cannot read or write."""
    name = str(format).upper()
    defaults = (EXPORTED if exports else LOADED).get(name)
    if defaults is None:
        raise UnsupportedFeature(f"files of the format {format!r}: supported are CSV, JSON and PARQUET")
    values = dict(defaults)
    for option, value in options.items():
        key = option.upper()
        if key not in defaults:
            raise InvalidInput(
                f"{option}: no option for {'writing' if exports else 'reading'} {name} files; "
                f"there are {', '.join(defaults)}"
            )
        values[key] = _checked(name, key, value)
    if name == "CSV":
        signs = [values["FIELD_DELIMITER"], values["QUOTE"]]
        if "" in signs[:1] or signs[0] in (signs[1], values["ESCAPE"]) or {"\n", "\r"} & set(signs):
            raise InvalidInput(
                f"FIELD_DELIMITER={signs[0]!r}, QUOTE={signs[1]!r}, ESCAPE={values['ESCAPE']!r}: the delimiter must be "
                "another sign than those, and no line break"
            )
    return FileLayout(name, values)


def _checked(format: str, option: str, value: Any) -> Any:
    match option:
        case "FIELD_DELIMITER" | "QUOTE" | "ESCAPE":
            sign = str(_ESCAPES.get(value, value))
            if len(sign.encode()) > 1:
                raise UnsupportedFeature(f"{option}={value!r}: signs of more than one byte are not supported")
            return sign
        case "SKIP_HEADER" | "HEADER" | "MULTI_LINE" | "EMPTY_FIELD_AS_NULL":
            word = str(value).upper()
            if word not in _TRUTH:
                allowed = "0 or 1" if option == "SKIP_HEADER" else "TRUE or FALSE"
                raise InvalidInput(f"{option}={value!r}: it is {allowed}")
            return _TRUTH[word]
        case "NULL_IF":
            texts = (value,) if isinstance(value, str) else tuple(value)
            if not all(isinstance(text, str) for text in texts):
                raise InvalidInput(f"NULL_IF={value!r}: give texts, e.g. ('NULL', '')")
            return texts
        case "COMPRESSION":
            codec = str(value).upper()
            codecs = (*_OF_PARQUET, "AUTO") if format == "PARQUET" else (*_CODECS, "AUTO")
            if codec not in codecs:
                raise UnsupportedFeature(f"COMPRESSION={value!r} of {format} files; supported: {', '.join(codecs)}")
            return "NONE" if codec == "AUTO" and format != "PARQUET" else codec
    return str(value)
