"""Variants as DuckDB and Java's Paimon 1.3.1 have them: they read ours, plain and shredded, and what we make of DuckDB's shredded files
is what it reads from them. Java's table is in `tests/golden/variant`."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Field, Lake, Schema
from lakeformat.codec import variant
from lakeformat.model.type_text import parse_type

from . import environments
from .peers import Conversation

GOLDEN = environments.ROOT / "tests/golden/variant/duckdb_shredded.parquet"

FIELDS = Schema((Field(-1, "id", parse_type("bigint")), Field(-1, "v", parse_type("variant"))))


def duckdb(*arguments: str) -> Any:
    command = [*environments.script(environments.DUCKDB, "variants_duckdb.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def differing(file: Path, expected: list[Any]) -> list[Any]:
    """The rows that DuckDB reads otherwise."""
    found = duckdb("read", str(file))
    return [(row, other) for row, other in zip(found, expected, strict=True) if row != other]


@pytest.fixture(scope="module")
def shredded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shredded")
    duckdb("write", str(folder))
    return folder


@pytest.mark.parametrize("shape", ["object", "list", "text", "other"])
def test_shredded_files_of_duckdb_hold_what_it_reads_from_them(shredded: Path, tmp_path: Path, shape: str) -> None:
    given = shredded / f"{shape}.parquet"
    expected = duckdb("read", str(given))
    names = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["v"]}]'
    properties = {"format-version": "3", "schema.name-mapping.default": names}
    t = Lake(tmp_path).create_table("d.t", FIELDS, format="iceberg", properties=properties)
    t.append(pa.table({"id": range(2000), "v": pa.nulls(2000)}))
    (path,) = tmp_path.rglob("*.parquet")
    shutil.copy(given, path)
    t.overwrite(t.scan().to_arrow())
    written = max(tmp_path.rglob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)
    assert written != path
    assert len(pq.ParquetFile(written).schema) == 3  # Plain: id, value, metadata.
    assert differing(written, expected) == []
    # As our writer shreds it, and read back as the same table.
    t.alter().set_properties({"write.parquet.shred-variants": "true"}).commit()
    t.overwrite(t.scan().to_arrow())
    written = max(tmp_path.rglob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)
    assert len(pq.ParquetFile(written).schema) > 3
    assert differing(written, expected) == []
    t.overwrite(t.scan().to_arrow())
    assert differing(max(tmp_path.rglob("*.parquet"), key=lambda each: each.stat().st_mtime_ns), expected) == []
    assert variant.has_form(t.scan().schema.field("v").type)


@pytest.mark.parametrize("how", ["inferred", "named"])
def test_java_reads_shredded_variants_as_it_does_plain_ones(tmp_path: Path, how: str) -> None:
    """Values of every type that it can read, in columns or beside them."""
    parts = {"a": "INT", "b": "STRING", "Ä": "DATE", "zz": "DECIMAL(9, 3)", "e": "TIMESTAMP(6)"}
    fields: list[dict[str, Any]] = [{"name": name, "type": type} for name, type in parts.items()]
    fields.append({"name": "c", "type": {"type": "ARRAY", "element": "SMALLINT"}})
    row = {"type": "ROW", "fields": [{"name": "v", "type": {"type": "ROW", "fields": fields}}]}
    asked = {"variant.shreddingSchema": json.dumps(row)} if how == "named" else {"variant.inferShreddingSchema": "true"}
    source = pq.ParquetFile(GOLDEN).read()
    java = Conversation("paimon-catalogs", environments.paimon_catalogs)
    seen = []
    for name, properties in (("plain", {}), ("shredded", asked)):
        t = Lake(tmp_path).create_table(f"d.{name}", FIELDS, format="paimon", properties=properties)
        t.append(pa.table({"id": source["id"], "v": variant.plain(source["v"].combine_chunks(), "v")}))
        seen.append(sorted(java.ask(verb="read", catalog={"warehouse": str(tmp_path)}, table=f"d.{name}")))
    java.close()
    (path,) = (tmp_path / "d.db/shredded").rglob("*.parquet")
    assert "typed_value" in pq.ParquetFile(path).schema_arrow.field("v").type.names
    assert seen[0] == seen[1]
    assert len(seen[0]) == 40
