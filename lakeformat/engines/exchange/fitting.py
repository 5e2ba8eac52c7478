"""Values of files -> a table's columns, with the rows that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.arrow import arrow_schema, from_arrow, to_arrow
from lakeformat.engines.kernels import assign, casts
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field, Kind, ListOf, Row, Scalar, Type, scalar, walk

_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_NUMBERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_WHOLE = _NUMBERS[:4]
_AS_TEXT = (*_TEXTS, *_NUMBERS, Kind.BOOLEAN, Kind.DATE, Kind.TIME, Kind.TIME_MICROS, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
_INSIDE = (*_TEXTS, *(kind for kind in _NUMBERS if kind is not Kind.DECIMAL), Kind.BOOLEAN)  # Parts of nested JSON.
_PLAIN = (pa.types.is_integer, pa.types.is_date, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_floating)
_TEXT = scalar(Kind.STRING)
_ZONE = r"\s*(?P<zone>Z|UTC|[+-]\d\d:\d\d)$"
_SHOWN = 60  # Characters of a value in an error.


@dataclass(frozen=True, slots=True)
class Fitted:
    """A column of the table. `bad`: which rows do not fit; None if all do. `first`: the first of those, and why."""

    column: pa.Array
    bad: np.ndarray | None = None
    first: tuple[int, str] | None = None


def require_text(fields: Sequence[Field], format: str, nested: bool) -> None:
    """Raise `UnsupportedFeature` for columns that CSV or JSON has no one spelling of. `nested`: whether lists and rows
    can be read."""
    for field in fields:
        if isinstance(field.type, Scalar):
            is_known = field.type.kind in _AS_TEXT
        else:
            parts = [part.type for part in walk((field,)) if isinstance(part.type, Scalar)]
            is_known = nested and _without_maps(field.type) and all(part.kind in _INSIDE for part in parts)
        if not is_known:
            raise UnsupportedFeature(
                f"column {field.name}: {format} files have no spelling of {field.type} that all engines read; load it "
                "from PARQUET files, or leave it out of the list of columns"
            )


def fitted(values: pa.Array, field: Field) -> Fitted:
    """Values of a file as the column `field`; text is parsed."""
    values = layouts.plain(values)
    loose = Field(field.id, field.name, field.type, comment=field.comment)
    if pa.types.is_null(values.type):
        result = Fitted(casts.nulls(len(values), to_arrow(field.type)))
    elif pa.types.is_string(values.type) and isinstance(field.type, Scalar):
        result = _parsed(values, loose)
    else:
        result = _converted(_stored(values, field.type), loose)
    if field.nullable or not result.column.null_count:
        return result
    nulls = result.column.is_null().to_numpy(zero_copy_only=False)
    others = nulls if result.bad is None else nulls & ~result.bad
    if not others.any():
        return result
    lacking = int(np.argmax(others)), f"column {field.name} is NOT NULL, and the value is null"
    return Fitted(result.column, nulls, lacking if result.first is None else min(result.first, lacking))


def is_text(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in _TEXTS


def texts(values: pa.Array, name: str) -> Fitted:
    """Bytes as text."""
    return _whole_or_halves(values, lambda part: part.cast(pa.string()), pa.string(), name)


def as_null(values: pa.Array, null_if: Sequence[str], empty: bool) -> pa.Array:
    """The values, null where their text is one of `null_if`, or `empty`."""
    null_texts = [*null_if, *([""] if empty else [])]
    if not null_texts or pa.types.is_nested(values.type) or pa.types.is_null(values.type):
        return values
    if not pa.types.is_string(values.type) and not null_if:
        return values
    spelt = values if pa.types.is_string(values.type) else values.cast(pa.string())
    return pc.if_else(pc.is_in(spelt, pa.array(null_texts)), pa.scalar(None, values.type), values)


# --- private ----------------------------------------------------------------------------------------------------------


def _without_maps(type: Type) -> bool:
    match type:
        case ListOf(element):
            return _without_maps(element.type)
        case Row(parts):
            return all(_without_maps(part.type) for part in parts)
        case _:
            return isinstance(type, Scalar)


def _stored(values: pa.Array, type: Type) -> pa.Array:
    """As Spark's store assignment: numbers, dates and booleans become text, and timestamps lose or get the zone UTC."""
    if not isinstance(type, Scalar):
        return values
    if type.kind in _TEXTS and any(test(values.type) for test in _PLAIN):
        return casts.project(values, from_arrow(values.type), _TEXT, "")
    wanted = to_arrow(type)
    if pa.types.is_timestamp(values.type) and pa.types.is_timestamp(wanted) and bool(values.type.tz) != bool(wanted.tz):
        return values.view(pa.timestamp(values.type.unit, wanted.tz))
    return values


def _converted(values: pa.Array, field: Field) -> Fitted:
    target = to_arrow(field.type)
    try:
        assign.check(pa.schema([pa.field(field.name, values.type)]), (field,))
    except InvalidInput as error:
        bad = values.is_valid().to_numpy(zero_copy_only=False)
        first = (int(np.argmax(bad)), str(error)) if bad.any() else None
        return Fitted(casts.nulls(len(values), target), bad if first else None, first)
    return _whole_or_halves(values, lambda part: _assigned(part, field), target, field.name)


def _assigned(values: pa.Array, field: Field) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([values], names=[field.name])
    return assign.assign(batch, (field,)).column(0)


def _parsed(values: pa.Array, field: Field) -> Fitted:
    assert isinstance(field.type, Scalar), field
    kind, target, field_type = field.type.kind, to_arrow(field.type), field.type

    def parse(part: pa.Array) -> pa.Array:
        if kind in _TEXTS:
            return _assigned(part, field)
        part = pc.utf8_trim_whitespace(part)
        if kind in _NUMBERS:
            return pc.replace_substring_regex(part, r"^\+([0-9.])", r"\1").cast(target)
        if kind in (Kind.DATE, Kind.TIME, Kind.TIME_MICROS):
            return part.cast(target)
        if kind is Kind.TIMESTAMP_TZ:
            return _instants(part, field_type, field.name)
        if kind is Kind.TIMESTAMP:
            _require_date(part)
        return casts.project(part, _TEXT, field_type, field.name)

    try:
        return Fitted(parse(values))
    except (InvalidInput, pa.ArrowInvalid):  # Values repeat, also those that do not fit.
        encoded = values.dictionary_encode()
    shapeless = pc.fill_null(pc.invert(pc.match_substring_regex(encoded.dictionary, _shape(kind))), False)
    shaped = pc.if_else(shapeless, pa.scalar(None, pa.string()), encoded.dictionary)
    words = _whole_or_halves(shaped, parse, target, field.name)
    bad_words = shapeless.to_numpy(zero_copy_only=False)
    bad_words = bad_words if words.bad is None else bad_words | words.bad
    column = words.column.take(encoded.indices)
    bad = pc.fill_null(pa.array(bad_words).take(encoded.indices), False).to_numpy(zero_copy_only=False)
    at = int(np.argmax(bad))
    return Fitted(column, bad, (at, _misfit(values[at], field))) if bad.any() else Fitted(column)


def _shape(kind: Kind) -> str:
    """A pattern that every text of the type has, by which most others are known at once."""
    if kind in _WHOLE:
        return r"^\s*[+-]?\d+\s*$"
    if kind in _NUMBERS:
        return r"^\s*[+-]?(\d|\.\d|[nNiI])"
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ):
        return r"^\s*\d{4}-\d"
    return ""


def _misfit(value: pa.Scalar, field: Field) -> str:
    text = repr(value.as_py())
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"column {field.name}: {shown} is not a valid {field.type}"


def _instants(values: pa.Array, type: Scalar, name: str) -> pa.Array:
    """Timestamps with their zone behind them; without one they are of UTC."""
    _require_date(values)
    zones = pc.struct_field(pc.extract_regex(values, _ZONE), [0])
    wall = casts.project(
        pc.replace_substring_regex(values, _ZONE, ""), _TEXT, Scalar(Kind.TIMESTAMP, type.parameters), name
    )
    is_offset = pc.fill_null(pc.match_substring_regex(zones, r"^[+-]"), False)
    offsets = pc.if_else(is_offset, zones, pa.scalar("+00:00"))
    minutes = pc.add(
        pc.multiply(pc.utf8_slice_codeunits(offsets, 1, 3).cast(pa.int64()), 60),
        pc.utf8_slice_codeunits(offsets, 4, 6).cast(pa.int64()),
    )
    signs = pc.if_else(pc.starts_with(offsets, "-"), pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))
    shift = pc.multiply(pc.multiply(minutes, signs), 60).cast(pa.duration("s")).cast(pa.duration(wall.type.unit))
    return pc.subtract(wall, shift).cast(pa.timestamp(wall.type.unit)).view(to_arrow(type))


def _require_date(values: pa.Array) -> None:
    """Raise `InvalidInput` for texts of digits alone, which the formats' own defaults may count in units since 1970."""
    if pc.any(pc.match_substring_regex(values, r"^[+-]?\d*$"), min_count=0).as_py():
        raise InvalidInput("no timestamp")


def _whole_or_halves(
    values: pa.Array, convert: Callable[[pa.Array], pa.Array], target: pa.DataType, name: str
) -> Fitted:
    """`convert` of all values; where it fails of halves, and of halves of those, down to the values that do not fit."""
    bad: list[tuple[int, str]] = []

    def parts(start: int, end: int) -> list[pa.Array]:
        try:
            return [convert(values.slice(start, end - start))]
        except (InvalidInput, pa.ArrowInvalid, UnicodeDecodeError) as error:
            if end - start == 1:
                bad.append((start, str(error) if f"column {name}" in str(error) else f"column {name}: {error}"))
                return [casts.nulls(1, target)]
        middle = (start + end) // 2
        return [*parts(start, middle), *parts(middle, end)]

    pieces = parts(0, len(values))
    if not bad:
        return Fitted(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces))
    mask = np.zeros(len(values), bool)
    mask[[at for at, _ in bad]] = True
    return Fitted(pa.concat_arrays(pieces), mask, bad[0])


def table(columns: Sequence[pa.Array], fields: Sequence[Field]) -> pa.RecordBatch:
    """Columns that are `fitted` as a batch."""
    loose = tuple(Field(field.id, field.name, field.type) for field in fields)
    return pa.RecordBatch.from_arrays(list(columns), schema=arrow_schema(loose))
