"""Golden tables of pyiceberg and pypaimon, packed with the rows that each reads at every snapshot.

From the root of the repository, with the Python of the engine's own environment: `python -m tests.judge.golden_python pyiceberg`
(or `pypaimon`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.golden import wire

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("n", pa.decimal128(9, 2)), ("dt", pa.string())])


def rows(start: int, end: int, day: str) -> pa.Table:
    ids = range(start, end)
    numbers = pa.array([str(id) + ".25" for id in ids]).cast(pa.decimal128(9, 2))
    return pa.table(
        [pa.array(ids, pa.int64()), pa.array([f"k{id}" for id in ids]), numbers, [day] * len(ids)], schema=SCHEMA
    )


def answer(found: pa.Table) -> dict[str, Any]:
    return {"columns": [{"name": name} for name in found.column_names], "rows": wire.from_arrow(found)}


def pyiceberg(folder: Path) -> tuple[Path, dict[str, Any]]:
    """An append, a second one, a delete that rewrites a file, a new column, an overwrite of rows, and a tag."""
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog("g", uri="sqlite://", warehouse=f"file://{folder}")
    types, transforms = import_module("pyiceberg.types"), import_module("pyiceberg.transforms")
    catalog.create_namespace("g")
    table = catalog.create_table("g.t", SCHEMA, properties={"format-version": "2"})
    with table.update_spec() as update:
        update.add_field("dt", transforms.IdentityTransform(), "dt")
    table.append(rows(0, 4, "a"))
    table.append(rows(4, 7, "b"))
    table.delete("id = 2")
    with table.update_schema() as update:
        update.add_column("extra", types.StringType())
    table.append(rows(7, 8, "c").append_column("extra", pa.array(["more"])))
    place = table.location().removeprefix("file://")
    snapshots = {
        str(each.snapshot_id): answer(table.scan(snapshot_id=each.snapshot_id).to_arrow())
        for each in table.metadata.snapshots
    }
    newest = max(Path(place, "metadata").glob("*.metadata.json"))  # As a table without a catalog names it.
    Path(place, "metadata", "v1.metadata.json").write_bytes(newest.read_bytes())
    Path(place, "metadata", "version-hint.text").write_text("1")
    return Path(place), {
        "location": table.location(),
        "snapshots": snapshots,
        "latest": answer(table.scan().to_arrow()),
        "lineage": None,
    }


def pypaimon(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A partitioned table: two appends, and an overwrite of one partition."""
    paimon = import_module("pypaimon")
    catalog = paimon.CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("g", True)
    catalog.create_table("g.t", paimon.Schema.from_pyarrow_schema(SCHEMA, partition_keys=["dt"]), False)
    table = catalog.get_table("g.t")

    def write(given: pa.Table, overwritten: dict[str, str] | None = None) -> None:
        builder = table.new_batch_write_builder()
        builder = builder if overwritten is None else builder.overwrite(overwritten)
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(given)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def read(options: dict[str, str]) -> pa.Table:
        builder = table.copy(options).new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    write(rows(0, 4, "a"))
    write(rows(4, 7, "b"))
    write(rows(10, 12, "a"), {"dt": "a"})
    snapshots = {str(id): answer(read({"scan.snapshot-id": str(id)})) for id in (1, 2, 3)}
    return folder / "g.db" / "t", {"snapshots": snapshots, "latest": answer(read({})), "tags": {}}


def main(engine: str) -> None:
    with tempfile.TemporaryDirectory() as work:
        folder, expected = {"pyiceberg": pyiceberg, "pypaimon": pypaimon}[engine](Path(work))
        expected["engine"] = f"{engine} {version(engine)}"
        to = GOLDEN / ("iceberg" if engine == "pyiceberg" else "python") / f"{engine}.zip"
        to.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
                packed.writestr(
                    zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED
                )
            packed.writestr(zipfile.ZipInfo("expected.json"), json.dumps(expected), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(sys.argv[1])
