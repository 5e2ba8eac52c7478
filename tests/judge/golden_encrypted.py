"""Golden encrypted tables of Iceberg's Java 1.11, with the rows that it reads from them: `python -m tests.judge.golden_encrypted`."""

from __future__ import annotations

import json
import subprocess
import tempfile
import zipfile
from pathlib import Path

from . import environments

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "encrypted"
KEY_ID = "keyA"
TABLES = {
    "parquet": "00112233445566778899aabbccddeeff",
    "avro": "ffeeddccbbaa99887766554433221100" * 2,
}  # With their master keys.


def main() -> None:
    """Write both tables."""
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        for name in TABLES:
            expected = {"engine": "Apache Iceberg 1.11.0", "key": TABLES[name], **made(folder, name)}
            with zipfile.ZipFile(GOLDEN / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
                for path in sorted(
                    p for p in Path(folder, name).rglob("*") if p.is_file() and not p.name.startswith(".")
                ):
                    packed.write(path, path.relative_to(Path(folder, name)))
                packed.writestr("expected.json", json.dumps(expected))


def made(folder: str, name: str) -> dict:
    """Have Java make a table; the rows that it reads at each snapshot, oldest first, in the order of their ids."""
    command = environments.encrypted_table(folder, name, name, TABLES[name])
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    snapshots: dict[str, list] = {}
    for line in said.splitlines():
        first, *rest = line.split("\t")
        if first == "snapshot":
            rows = snapshots[rest[0]] = []
        else:
            rows.append([int(first), *rest])
    return {"location": f"{folder}/{name}", "snapshots": {id: sorted(rows) for id, rows in snapshots.items()}}


if __name__ == "__main__":
    main()
