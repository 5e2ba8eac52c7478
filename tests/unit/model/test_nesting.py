"""Nothing is stored that readers of its files refuse: types nested too deeply are refused when a schema is made."""

from contextlib import suppress

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.engines.arrow import batches
from lakeformat.errors import LakeError, UnsupportedFeature

FILES = [(format, files) for format in ("iceberg", "paimon") for files in ("parquet", "orc", "avro")]
OPTIONS = {"iceberg": "write.format.default", "paimon": "file.format"}


def nested(kind, depth):
    type, value = pa.int64(), 5
    for level in range(depth):
        match kind if kind != "mixed" else ("row", "list", "map")[level % 3]:
            case "row":
                type, value = pa.struct([("a", type)]), {"a": value}
            case "list":
                type, value = pa.list_(type), [value]
            case "map":
                type, value = pa.map_(pa.string(), type), [("k", value)]
    return type, value


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("format", "files"), FILES)
@pytest.mark.parametrize("kind", ["row", "list", "map", "mixed"])
def test_what_is_stored_can_be_read(tmp_path, format, files, kind):
    accepted = []
    for depth in (1, 40, 45, 46, 70, 89, 91, 110, 400):
        type, value = nested(kind, depth)
        schema = pa.schema([("id", pa.int64()), ("x", type)])
        with suppress(UnsupportedFeature):
            table = Lake(tmp_path).create_table(
                f"d.t{depth}", schema, format=format, properties={OPTIONS[format]: files}
            )
            accepted.append(depth)
            table.append(pa.table({"id": [1], "x": pa.array([value], type)}, schema=schema))
            assert table.scan(where="id = 1").to_arrow()["x"].to_pylist() == [value], depth
    assert accepted == {"row": [1, 40, 45, 46, 70, 89], "mixed": [1, 40, 45, 46]}.get(kind, [1, 40, 45])


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_a_column_that_is_added_has_the_same_limit(tmp_path, format):
    table = Lake(tmp_path).create_table("d.t", pa.schema([("id", pa.int64())]), format=format)
    for depth in (60, 300):
        with pytest.raises(LakeError, match="nest"):
            table.alter().add_column("x", "array<" * depth + "int" + ">" * depth).commit()
    table.append({"id": [1]})
    assert table.scan().count() == 1


def test_deeper_types_than_python_recurses_are_refused():
    type, _ = nested("list", 3000)
    with pytest.raises(UnsupportedFeature, match="nested deeper"):
        list(batches(pa.table({"x": pa.nulls(0, type)})))


def test_text_with_half_of_a_surrogate_pair_is_refused(tmp_path):
    table = Lake(tmp_path).create_table("d.t", pa.schema([("a", pa.string())]))
    for data in ([{"a": "x\ud800"}], {"a": ["x\ud800"]}):
        with pytest.raises(LakeError, match=r"Unicode|surrogate"):
            table.append(data)
