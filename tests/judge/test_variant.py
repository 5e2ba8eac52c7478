"""Variants as DuckDB has them: it reads ours, and what we make of its shredded files is what it reads from them.

Java Paimon 1.3.1 wrote the table in `tests/golden/variant` and read one of ours; it is no peer here yet. No runtime of Iceberg for Spark 4 is
one either.
"""

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

FIELDS = Schema((Field(-1, "id", parse_type("bigint")), Field(-1, "v", parse_type("variant"))))


def duckdb(*arguments: str) -> Any:
    command = [*environments.script(environments.DUCKDB, "variants_duckdb.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


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
    found = duckdb("read", str(written))
    assert [row for row, other in zip(found, expected, strict=True) if row != other] == []
    assert variant.has_form(t.scan().schema.field("v").type)
