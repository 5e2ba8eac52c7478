"""Spark Connect, where the way of rows is another one: through workers and back, into this process, into a data source."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.draw import IS_LONG

ROOT = Path(__file__).parent.parent.parent
# Each way of rows once.
CHOSEN = {
    "contract/test_marked.py": ["changes_lead_from_one_snapshot_to_another[spark-lookup]"],
    "contract/test_crossing.py": ["an_overwrite_by_row_moves_keys[spark-deduplicate]"],
    "contract/test_merge.py": ["all_kinds_of_clauses_in_one_snapshot[iceberg merge-on-read-spark by join]"],
    "contract/test_changelogs.py": ["a_spark_frame_is_written_partition_by_partition_in_its_order"],
    "contract/test_planning.py": ["rows_are_the_same_wherever_manifests_are_decoded[iceberg]"],
    "contract/test_streaming.py": ["spark_appends_to_tables_of_a_warehouse_as_a_data_source"],
    "contract/test_data_source.py": ["filters_of_every_type_leave_out_files"],
    "sql/test_migration.py": ["a_migration_that_fails_gives_the_source_its_name_and_keeps_its_files"],
    "sql/test_spark.py": ["text_goes_to_spark_as_it_is"],
}
OF_A_NIGHT = {
    "contract/test_marked.py": "streams_of or one_after_the_other and partitions",
    "contract/test_crossing.py": "engines_move_rows_alike",
    "contract/test_merge.py": "all_kinds_of_clauses or two_rows_of_the_source",
    "contract/test_data_source.py": "stream_of_spark",
    "sql/test_migration.py": "migrat or snapshot or hive",
    "sql/test_functions.py": "functions_on_spark",
    "sql/test_spark.py": "queries_give or changes_on_spark or views_are or attached_tables",
}


@pytest.mark.spark
def test_spark_connect_does_the_same():
    """Tests of other files, in one process, for a process holds one kind of session."""
    run([f"tests/{file}::test_{name}" for file, names in CHOSEN.items() for name in names])


@pytest.mark.spark
@pytest.mark.parametrize(("file", "words"), OF_A_NIGHT.items() if IS_LONG else [])
def test_spark_connect_does_the_same_all_night(file: str, words: str):
    run([f"tests/{file}", "-m", "spark", "-k", f"spark and ({words})"])


def run(tests: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    environment = {
        **os.environ,
        "SPARK_TEST_REMOTE": "local[2]",
        "SPARK_TESTING": "1",  # Any free port.
        # The server's workers start in folders of its own.
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]),
    }
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]
