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
from pyspark.sql.variant_utils import VariantUtils

from lakeformat import Field, Lake, Schema
from lakeformat.codec.variant import variant
from lakeformat.model.type_text import parse_type
from lakeformat.table import Table

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
    written = max(tmp_path.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert written != path
    assert len(pq.ParquetFile(written).schema) == 3  # Plain: id, value, metadata.
    assert differing(written, expected) == []
    # As our writer shreds it, and read back as the same table.
    t.alter().set_properties({"write.parquet.shred-variants": "true"}).commit()
    t.overwrite(t.scan().to_arrow())
    written = max(tmp_path.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert len(pq.ParquetFile(written).schema) > 3
    assert differing(written, expected) == []
    t.overwrite(t.scan().to_arrow())
    assert differing(max(tmp_path.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns), expected) == []
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


# --- Iceberg's own runtime ----------------------------------------------------------------------------------------------

# Iceberg 1.11 cannot shred decimals of more than 18 digits.
MIXED = """select id, case id % 9
  when 0 then to_variant_object(named_struct('a', id, 'b', concat('text ', id), 'c', array(1, id), 'd', named_struct('x', 1.5d)))
  when 1 then parse_json(concat('{"a": "no number", "d": {"x": ', id, ', "y": [{"z": null}]}, "Ä": true}'))
  when 2 then cast(date '2024-02-03' as variant)
  when 3 then to_variant_object(named_struct('a', timestamp '2024-01-02 03:04:05.678901', 'bin', x'ff00', 'n', timestamp_ntz '1969-12-31 23:59:59'))
  when 4 then null
  when 5 then parse_json('null')
  when 6 then to_variant_object(array(cast(1.25 as decimal(9, 2)), null))
  when 7 then to_variant_object(named_struct('a', 2.5f, 'b', repeat('long', 30), 'u', cast(1234567890.12 as decimal(18, 2))))
  else cast(id as variant) end as v from range(START, STOP)"""
SHREDDED = "'write.parquet.shred-variants'='true'"


def decoded(value: Any) -> Any:
    """A variant (its bytes, or hex of them) as PySpark decodes it."""
    if value is None:
        return None
    blobs = [value["value"], value["metadata"]] if isinstance(value, dict) else [bytes.fromhex(text) for text in value]
    return repr(VariantUtils.to_python(*blobs))


def by_id(table: Table, **how: Any) -> list[Any]:
    return [
        (row["id"], decoded(row["v"])) for row in table.scan(["id", "v"], **how).to_arrow().sort_by("id").to_pylist()
    ]


def asked(engines: Any, lake: Path, *statements: str) -> list[Any]:
    return engines["iceberg-spark-4"].ask(verb="run", warehouse=str(lake), statements=statements)["rows"]


def theirs(engines: Any, lake: Path, where: str = "true") -> list[Any]:
    rows = asked(engines, lake, f"select id, v from lake.`d.db`.t where {where} order by id")
    return [(id, decoded(value)) for id, value in rows]


@pytest.mark.parametrize("shred", ["false", "true"])
def test_icebergs_runtime_reads_and_changes_our_variants(engines: Any, tmp_path: Path, shred: str) -> None:
    properties = {"format-version": "3", "write.parquet.shred-variants": shred, "write.delete.mode": "merge-on-read"}
    t = Lake(tmp_path).create_table("d.t", FIELDS, format="iceberg", properties=properties)
    source = pq.ParquetFile(GOLDEN).read()
    given = pa.table({"id": source["id"], "v": variant.plain(source["v"].combine_chunks(), "v")})
    t.append(given)
    (path,) = tmp_path.rglob("*.parquet")
    assert ("typed_value" in pq.ParquetFile(path).schema_arrow.field("v").type.names) == (shred == "true")
    assert theirs(engines, tmp_path) == by_id(t)
    hit = "try_variant_get(v, '$.d.x', 'double') >= 16"
    assert [id for id, _ in theirs(engines, tmp_path, hit)] == [id for id, _ in by_id(t, where="id in (21, 28, 35)")]
    asked(
        engines,
        tmp_path,
        "delete from lake.`d.db`.t where id = 8",
        "update lake.`d.db`.t set v = parse_json('[1]') where id = 0",
    )
    t = Lake(tmp_path).table("d.t")
    assert by_id(t, where="id <= 8")[0] == (0, "[1]")
    assert theirs(engines, tmp_path) == by_id(t)
    lineage = "select id, _row_id, _last_updated_sequence_number from lake.`d.db`.t order by id"
    own = t.scan(["id", "_row_id", "_last_updated_sequence_number"]).to_arrow().sort_by("id")
    assert asked(engines, tmp_path, lineage) == [list(row.values()) for row in own.to_pylist()]


@pytest.mark.parametrize("how", ["'format-version'='3'", f"'format-version'='3', {SHREDDED}"])
def test_variants_of_icebergs_runtime_hold_what_it_reads_from_them(engines: Any, tmp_path: Path, how: str) -> None:
    properties = f"{how}, 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
    asked(
        engines,
        tmp_path,
        f"create table lake.`d.db`.t (id bigint, v variant) using iceberg tblproperties({properties})",
        f"insert into lake.`d.db`.t {MIXED.replace('START', '0').replace('STOP', '90')}",
        f"insert into lake.`d.db`.t {MIXED.replace('START', '90').replace('STOP', '100')}",
        "delete from lake.`d.db`.t where id in (9, 91)",
        "update lake.`d.db`.t set v = cast(1 as variant) where id = 2",
    )
    t = Lake(tmp_path).table("d.t")
    types = [
        pq.ParquetFile(path).schema_arrow.field("v").type.names
        for path in tmp_path.rglob("*.parquet")
        if "deletes" not in path.name
    ]
    assert any("typed_value" in names for names in types) == ("shred" in how)
    expected = theirs(engines, tmp_path)
    assert len(expected) == 98
    assert by_id(t) == expected
    hit = [id for id, _ in theirs(engines, tmp_path, "try_variant_get(v, '$.b', 'string') like 'text%'")]
    assert (
        t.scan(["id"], where="id % 9 = 0 and variant_get(v, '$.b', 'string') like 'text%'")
        .to_arrow()["id"]
        .sort()
        .to_pylist()
        == hit
    )
    t.update({"v": None}, where="id = 0")
    t.compact(full=True)
    expected[0] = (0, None)
    assert by_id(t) == theirs(engines, tmp_path) == expected
