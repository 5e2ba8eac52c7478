"""Data that can be read once: readers and iterators of batches. Whether one has been read already cannot be seen; it
gives no batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from lakeformat.engines.kernels import casts
from lakeformat.errors import InvalidInput
from lakeformat.model.log import log

_WAY_OUT = "read it into a table first (reader.read_all()), which also says so where there are no rows"
_begun: WeakSet[Any] = WeakSet()  # What was read from, by this process.


def parts(data: Iterable[Any]) -> Iterator[Any]:
    """What the data give. Raises `InvalidInput` for a reader or an iterator that was read from before; warns if one
    gives nothing."""
    return _parts(data) if isinstance(data, pa.RecordBatchReader | Iterator) else iter(data)


def required(data: Any) -> Any:
    """The data, for a verb that takes rows away where there are none: a reader or an iterator without one batch, also
    an empty one, raises `InvalidInput`. Anything else is returned as it is."""
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(data.schema, _parts(data, is_required=True))
    return _parts(data, is_required=True) if isinstance(data, Iterator) else data


def never_without(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; one without rows if there are none,
    so that the reader of them is not taken for one that was read."""
    is_empty = True
    for batch in batches:
        is_empty = False
        yield batch
    if is_empty:
        yield pa.RecordBatch.from_arrays([casts.nulls(0, field.type) for field in schema], schema=schema)


# --- private ----------------------------------------------------------------------------------------------------------


def _parts(data: Iterable[Any], is_required: bool = False) -> Iterator[Any]:
    name = type(data).__name__
    if _is_begun(data):
        raise InvalidInput(f"this {name} was read by an earlier write and has no rows any more; {_WAY_OUT}")
    is_empty = True
    for part in data:
        if is_empty:
            with suppress(TypeError):  # Not all iterators can be remembered.
                _begun.add(data)
            is_empty = False
        yield part
    if is_empty and is_required:
        raise InvalidInput(
            f"this {name} has no batches, and the rows that it replaces would be lost: it was read before, "
            f"or has no rows; {_WAY_OUT}"
        )
    if is_empty:
        log.warning("this %s has no batches: it was read before, or has no rows; nothing is written", name)


def _is_begun(data: Any) -> bool:
    try:
        return data in _begun
    except TypeError:
        return False
