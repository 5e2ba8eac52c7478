"""Type widening: which types hold all values of another."""

from __future__ import annotations

from lakeformat.model.schema import Kind, Scalar, Type

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)


def holds(have: Type, want: Type) -> bool:
    """Whether a column of type `have` holds all values of type `want`."""
    if have == want:
        return True
    if not isinstance(have, Scalar) or not isinstance(want, Scalar):
        return False
    if have.kind in _INTEGERS and want.kind in _INTEGERS:
        return _INTEGERS.index(have.kind) >= _INTEGERS.index(want.kind)
    if have.kind in _TEXTS and want.kind in _TEXTS:
        return have.kind is Kind.STRING or (want.kind is not Kind.STRING and have.parameters >= want.parameters)
    if have.kind is Kind.DECIMAL and want.kind is Kind.DECIMAL:
        (precision, scale), (wanted, digits) = have.parameters, want.parameters
        return scale >= digits and precision - scale >= wanted - digits
    blobs = {Kind.BYTES, Kind.BINARY, Kind.VARBINARY, Kind.FIXED}
    if have.kind in blobs and want.kind in blobs:
        return have.kind is Kind.BYTES or have.parameters >= want.parameters
    alike = ({Kind.FLOAT, Kind.DOUBLE}, {Kind.TIME, Kind.TIME_MICROS}, {Kind.TIMESTAMP}, {Kind.TIMESTAMP_TZ})
    if have.kind is Kind.FLOAT and want.kind is Kind.DOUBLE:
        return False
    if any({have.kind, want.kind} <= kinds for kinds in alike):
        return have.kind in {Kind.TIME, Kind.TIME_MICROS, Kind.DOUBLE} or have.parameters >= want.parameters
    return False
