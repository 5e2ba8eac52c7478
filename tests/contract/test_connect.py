"""Spark Connect, where the way of rows is another one: through workers and back, into this process, into a data source."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IS_LONG = int(os.environ.get("LAKEFORMAT_SEEDS", "100")) > 1000  # `make test-long`.
CHOSEN = {
    "test_marked.py": "changes_lead and lookup or streams_of" + " or one_after_the_other and partitions" * IS_LONG,
    "test_crossing.py": "deduplicate and (engines_move or moves_keys)",
    "test_merge.py": "all_kinds_of_clauses or two_rows_of_the_source and join",
    "test_changelogs.py": "partition_by_partition",
    "test_planning.py": "rows_are_the_same and iceberg",
    "test_streaming.py": "appends_to_tables",
    "test_data_source.py": "leave_out_files" + " or stream_of_spark" * IS_LONG,
    "../sql/test_migration.py": "migration_that_fails" + " or migrat or snapshot or hive" * IS_LONG,
    **({"../sql/test_functions.py": "functions_on_spark"} if IS_LONG else {}),
    "../sql/test_spark.py": "text_goes or changes_on_spark and paimon"
    + " or queries_give or changes_on_spark or views_are or attached_tables" * IS_LONG,
}


@pytest.mark.spark
def test_spark_connect_does_the_same():
    """Tests of other files, in one process, for a process holds one kind of session."""
    files = [str((HERE / name).resolve()) for name in CHOSEN]
    chosen = " or ".join(f"({Path(name).stem} and ({words}))" for name, words in CHOSEN.items())
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    environment = {
        **os.environ,
        "SPARK_TEST_REMOTE": "local[2]",
        "SPARK_TESTING": "1",  # Any free port.
        # The server's workers start in folders of its own.
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]),
    }
    run = subprocess.run(
        [*command, "-m", "spark", "-k", f"spark and ({chosen})"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
