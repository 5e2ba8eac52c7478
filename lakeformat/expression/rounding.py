"""Rounding of numbers as Spark does it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.arrow import Values
from lakeformat.errors import InvalidInput

_MOST_PLACES = 9
_SMALLEST, _LARGEST = 1e-10, 1e17  # Between them a float's decimal text has at most 38 places.


def rounded(values: Values, places: int) -> Values:
    """Integers and floats, half away from zero; floats to 0 up to 9 places by their decimal text:
    1.005 becomes 1.01."""
    if pa.types.is_integer(values.type) or not 0 <= places <= _MOST_PLACES:
        return pc.cast(pc.round(values, ndigits=places, round_mode="half_towards_infinity"), values.type)
    size = pc.abs(values)
    plain = pc.and_(pc.greater_equal(size, _SMALLEST), pc.less(size, _LARGEST))
    text = pc.cast(pc.if_else(plain, values, pa.scalar(0, values.type)), pa.string())
    exact = pc.round(pc.cast(text, pa.decimal256(76, 38)), ndigits=places, round_mode="half_towards_infinity")
    others = pc.if_else(pc.less(size, _SMALLEST), pa.scalar(0, values.type), values)  # Larger ones have no fraction.
    return pc.if_else(plain, pc.cast(pc.cast(exact, pa.string()), values.type), others)


def whole(values: Values) -> Values:
    """Floats without a fraction as BIGINT; NaN is 0. Raises `InvalidInput` for numbers beyond BIGINT."""
    try:
        return pc.cast(pc.if_else(pc.is_nan(values), pa.scalar(0, values.type), values), pa.int64())
    except pa.ArrowInvalid as error:
        raise InvalidInput("a number beyond BIGINT") from error
