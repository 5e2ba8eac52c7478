"""The statistics file that a snapshot names: figures of columns, as ANALYZE TABLE of Paimon's engines writes them
(`org.apache.paimon.stats.Statistics`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.figures import Figures, figures_table
from lakeformat.dialects.paimon import layout, manifest, metadata
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import CorruptTable, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Request, SetStatistics
from lakeformat.model.schema import Field, Kind, Scalar

_LENGTHS = {  # Spark's default sizes, in bytes; text and bytes have lengths of their own.
    Kind.BOOLEAN: 1, Kind.TINYINT: 1, Kind.SMALLINT: 2, Kind.INT: 4, Kind.BIGINT: 8, Kind.FLOAT: 4, Kind.DOUBLE: 8,
    Kind.DATE: 4, Kind.TIME: 4, Kind.TIMESTAMP: 8, Kind.TIMESTAMP_TZ: 8,
}  # fmt: skip
_KEYS = {"snapshotId": int, "schemaId": int, "mergedRecordCount": int | None, "mergedRecordSize": int | None,
         "colStats": dict | None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statistics(Part[State]):
    """The statistics file of a snapshot."""

    def comparable(self, values: pa.Array, field: Field) -> pa.Array:
        """Values as bytes, none of them empty: sketches do not count empty ones."""
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        elif pa.types.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())
        text = values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())
        return pc.binary_join_element_wise(pa.scalar(b"="), text, pa.scalar(b""))

    def of_columns(self, request: Request, figures: Mapping[int, Figures], row_count: int) -> SetStatistics:
        """The file of figures by field id, for the base's snapshot."""
        document = self.state.document
        assert document is not None
        live = manifest.live_entries(self.reader, document, self.state.schema)
        size, written = int(np.sum(np.asarray(live["_FILE_SIZE"]))), document.get("totalRecordCount") or 0
        statistics = {
            "snapshotId": document["id"],
            "schemaId": self.state.schema.id,
            "mergedRecordCount": row_count,
            "mergedRecordSize": size * row_count // written if written else 0,
            "colStats": {
                field.name: _emit(field, figures[field.id]) for field in self.state.schema.fields if field.id in figures
            },
        }
        data = json.dumps(statistics, ensure_ascii=False).encode()
        return SetStatistics(request=request, snapshot_id=document["id"], of="table", data=data)

    def of_partitions(self, request: Request) -> SetStatistics:
        """Raises `UnsupportedFeature`."""
        raise UnsupportedFeature(
            f"{self.reader.root}: Paimon has no statistics of partitions; its manifests have their counts and sizes"
        )

    def registered(self) -> pa.Table:
        """One row per column in the statistics file that the snapshot names; see `Inspect.statistics`."""
        name = (self.state.document or {}).get("statistics")
        if not name:
            return figures_table([])
        path, rows = f"{self.reader.root}/{metadata.statistics_path(name)}", []
        data = self.reader.read(metadata.statistics_path(name))
        statistics = metadata.parsed(data, path, _KEYS)
        for column, figures in (statistics["colStats"] or {}).items():
            if not isinstance(figures, dict):
                raise CorruptTable(f"{path}: the figures of column {column!r} are {figures!r}")
            rows.append((statistics["snapshotId"], "table", column, figures.get("distinctCount"), path, len(data)))
        return figures_table(rows)


# --- private ----------------------------------------------------------------------------------------------------------


def _emit(field: Field, figures: Figures) -> dict[str, Any]:
    assert isinstance(field.type, Scalar)
    value_count = figures.row_count - figures.null_count
    if (kind := field.type.kind) is Kind.DECIMAL:
        average = longest = 8 if field.type.parameters[0] <= 18 else 16
    elif (length := _LENGTHS.get(kind)) is not None:
        average = longest = length
    else:
        average, longest = -(-figures.total_length // value_count) if value_count else 0, figures.max_length
    least, greatest = [None, None] if figures.bounds is None else _texts(figures.bounds, field)
    if figures.has_nan:  # As Spark compares: NaN is the greatest number.
        least, greatest = least or "NaN", "NaN"
    emitted = {
        "colId": field.id,
        "distinctCount": min(round(figures.sketch.estimate), value_count),
        "min": least,
        "max": greatest,
        "nullCount": figures.null_count,
        "avgLen": average,
        "maxLen": longest,
    }
    return {key: value for key, value in emitted.items() if value is not None}


def _texts(bounds: pa.Array, field: Field) -> list[str]:
    """Values as Java's serializers spell them: dates and times as numbers, instants in UTC."""
    if isinstance(field.type, Scalar) and field.type.kind in (Kind.DATE, Kind.TIME):
        return [str(value) for value in bounds.cast(pa.int32()).to_pylist()]
    values = bounds.cast(pa.int64()) if pa.types.is_timestamp(bounds.type) else bounds
    return [layout.sql_text(value, field.type) for value in values.to_pylist()]
