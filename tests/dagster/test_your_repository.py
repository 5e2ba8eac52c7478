"""docs/your-repository.md, run from top to bottom in somebody else's repository, which has a package `resources` of its own."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "your-repository.md"

RESOURCES = """
import pyarrow as pa

def fetch_orders(days):
    return pa.table({"day": [day for day in days for _ in "ab"], "product": ["a", "b"] * len(days), "amount": [1.0, 2.0] * len(days)})
"""

NOT_INSTALLED = """
import sys

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pandas", "polars", "grpc", "assets", "pipelines"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled)
"""

WHAT_THERE_IS_AT_THE_END = """
repository = defs.get_repository_def()
repository.load_all_definitions()
assert {"daily", "rerun_partitions", "maintain", "sweep_orphans"} <= {j.name for j in repository.get_all_jobs()}
assert {s.name for s in repository.sensor_defs if s.default_status.name == "RUNNING"} == {"compaction", "snapshot_expiry", "foreign_commits"}
assert {s.name: s.default_status.name for s in repository.schedule_defs} == dict.fromkeys(["daily_schedule", "late_orders", "sweep"], "RUNNING")
result = defs.resolve_job_def("daily").execute_in_process(instance=instance, partition_key="2026-01-02")
evaluations = result.get_asset_check_evaluations()
assert len(evaluations) == 3 + 4 + 2 and all(e.passed for e in evaluations), evaluations
import datetime
(late,) = repository.get_schedule_def("late_orders").evaluate_tick(
    dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime.datetime(2026, 2, 4, 3, 30, tzinfo=datetime.UTC))
).run_requests
assert late.tags["dagster/asset_partition_range_start"] == "2026-02-01", late.tags
print("done")
"""


def test_the_page_runs_from_top_to_bottom_in_a_foreign_repository(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert sum(1 for line in blocks[0].splitlines() if line.strip()) <= 15
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "__init__.py").write_text(RESOURCES)
    (tmp_path / "definitions.py").write_text("\n".join([NOT_INSTALLED, *blocks, WHAT_THERE_IS_AT_THE_END]))
    command = [sys.executable, "definitions.py"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "DAGSTER_DISABLE_TELEMETRY": "1"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.endswith("done\n"), run.stderr[-4000:]
