"""Bytes of a data file that are flipped, cut, spliced or set to what counts and lengths must not be: read, or an error that names the file.

Nothing ends the process, waits or takes memory, whatever Arrow does with such a file.
"""

import os
import subprocess
import sys

import pytest

from tests.unit.engines.damaging import KINDS

SEEDS = int(os.environ.get("LAKEFORMAT_EXAMPLES", "0")) * 5 or 12  # Of each kind of file.
RESULTS = {"read", "CorruptFile", "InvalidInput", "UnsupportedFeature", "CorruptTable"}


def test_damaged_bytes_are_read_or_refused(tmp_path):
    command = [sys.executable, "-m", "tests.unit.engines.damaging", str(tmp_path), "0", str(SEEDS), *KINDS]
    child = subprocess.run(command, capture_output=True, text=True, timeout=30 + SEEDS * len(KINDS))
    lines = [line.rpartition(": ") for line in child.stdout.splitlines()]
    assert child.returncode == 0, f"died of {lines[-1] if lines else 'the start'}: {child.stderr[-2000:]}"
    assert [line for line in lines if line[2] not in RESULTS] == []
    assert len(lines) == SEEDS * len(KINDS)


@pytest.mark.parametrize("longer", [True, False])
def test_a_footer_that_arrow_ends_the_process_over(tmp_path, longer):
    """Sizes of histograms that do not fit a column: Arrow's reader raises an error, its metadata ends the process."""
    code = """
import io, sys
import pyarrow as pa, pyarrow.parquet as pq
from lakeformat import CorruptFile, Lake
table = Lake(sys.argv[1]).create_table("d.t", pa.schema([("words", pa.list_(pa.string()))]), "iceberg")
table.append({"words": [["a", None], [], None] * 9})
path = table.uri.removeprefix("file://") + "/" + table.inspect.files()["path"][0].as_py().rpartition("/t/")[2]
data = bytearray(open(path, "rb").read())
size = int.from_bytes(data[-8:-4], "little")
died = 0
for spot in range(len(data) - 8 - size, len(data) - 8):
    if data[spot] & 15 == 6 and data[spot] >> 4 in (2, 3, 4):  # The head of a list of numbers.
        data[spot] += 16 if sys.argv[2] == "True" else -16
        open(path, "wb").write(data)
        try:
            Lake(sys.argv[1]).table("d.t").scan().to_arrow()
        except CorruptFile:
            died += 1
        data[spot] -= 16 if sys.argv[2] == "True" else -16
assert died
"""
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(longer)], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr[-2000:]
