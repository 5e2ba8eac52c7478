"""VARIANT in Arrow: a struct of the binaries `value` and `metadata` (Parquet's VariantEncoding.md)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.variant import shredded as variant_shredded
from lakeformat.errors import InvalidInput

# The metadata `variant` and the field order are PySpark's, so that batches are exchanged with Spark unchanged.
ARROW = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())


def has_form(type: pa.DataType) -> bool:
    """Whether a type can hold variants, annotated or not: a struct of the binaries `metadata` and `value`."""
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if not pa.types.is_struct(type):
        return False
    return {field.name for field in type} == {"metadata", "value"} and all(field.type in _BINARY for field in type)


def plain(array: pa.Array, name: str) -> pa.Array:
    """An array of variants in the form `ARROW`.

    A shredded array (with `typed_value`) is reassembled; for its errors see `variant_shredded.values`. Raises
    `InvalidInput`, naming the column `name`, for another type and for a row without metadata or value.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    names = [field.name for field in array.type] if pa.types.is_struct(array.type) else []
    is_shredded = "typed_value" in names and "metadata" in names
    if not is_shredded and not has_form(array.type):
        raise InvalidInput(
            f"column {name}: {array.type} is not a variant, which is a struct of the binaries metadata and value"
        )
    parts = []
    for field in ARROW:
        if is_shredded and field.name == "value":
            part = variant_shredded.values(array)
        else:
            part = pc.struct_field(array, [names.index(field.name)])
        if part.null_count > array.null_count:
            raise InvalidInput(f"column {name}: {part.null_count - array.null_count} variants have no {field.name}")
        if part.null_count:
            part = pc.fill_null(part, b"")
        parts.append(part.cast(pa.binary()))
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(ARROW, len(array), [validity], children=parts)
