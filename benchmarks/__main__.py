"""Run benchmarks by name, all of them without one: `python -m benchmarks planning writing`.

`short` stands for those that take ten minutes together: no JVM, and no peer but pypaimon.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import machine

NAMES = (
    "planning", "million", "writing", "reading", "threads", "writers", "paimon_rust", "merging", "commits", "upkeep",
    "spark_overwrite", "newest_iceberg", "by_name", "iceberg", "keys", "sql", "cdc",
)  # fmt: skip
SHORT = ("reading", "threads", "writing", "planning", "writers")
BUILT = Path(__file__).resolve().parents[1] / ".bench"


def main(names: list[str]) -> int:
    names = list(SHORT) if names == ["short"] else names
    if unknown := [n for n in names if n not in NAMES]:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}, and short", file=sys.stderr)
        return 2
    print(machine(), flush=True)
    BUILT.mkdir(exist_ok=True)
    for name in names or NAMES:
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=BUILT) as folder:
            for figure in importlib.import_module(f"benchmarks.{name}").run(Path(folder)):
                print(f"{name}: {figure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
