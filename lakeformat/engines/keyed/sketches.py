"""Unions of Apache DataSketches' sketches, folded as Paimon's Java engine does (FieldHllSketchAgg,
FieldThetaSketchAgg)."""

from __future__ import annotations

from functools import partial, reduce
from types import ModuleType

from lakeformat.errors import CorruptFile, UnsupportedFeature


def union(function: str, sketches: list[bytes], where: str) -> bytes:
    """The union by `hll_sketch` or `theta_sketch` of two sketches or more. Raises `CorruptFile` for bytes that are
    none, and `UnsupportedFeature` where the package is not installed."""
    try:
        import datasketches
    except ImportError as error:
        raise UnsupportedFeature(
            f"{where}: aggregate function {function!r} needs the package datasketches: "
            "pip install 'lakeformat[sketches]'"
        ) from error
    fold = {"hll_sketch": _hll, "theta_sketch": _theta}[function]
    try:
        return reduce(partial(fold, datasketches), sketches)
    except (ValueError, IndexError, RuntimeError) as error:
        raise CorruptFile(f"{where}: not a sketch of {function}: {error}") from error


def _hll(library: ModuleType, before: bytes, value: bytes) -> bytes:
    newer = library.hll_sketch.deserialize(value)
    both = library.hll_union(newer.lg_config_k)  # Of the newer one, unless the other is coarser.
    both.update(newer)
    both.update(library.hll_sketch.deserialize(before))
    return bytes(both.get_result(library.tgt_hll_type.HLL_4).serialize_compact())


def _theta(library: ModuleType, before: bytes, value: bytes) -> bytes:
    both = library.theta_union()
    for sketch in (before, value):
        both.update(library.compact_theta_sketch.deserialize(sketch))
    return bytes(both.get_result().serialize())
