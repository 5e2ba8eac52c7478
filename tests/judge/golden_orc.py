"""Golden ORC files of a Java writer that is not in UTC: timestamps around 1970, with what Spark reads from them.

`python -m tests.judge.golden_orc Europe/Berlin` (from the root of the repository) makes one anew, on a JVM in that time zone.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "orc"
# No fraction of the last second before 1970 in UTC: Java's ORC writer itself makes it one of the second after.
MOMENTS = (
    "1960-01-01 00:00:00.25", "1969-12-31 12:00:00.75", "1969-12-31 18:59:58.75", "1969-12-31 19:00:00", "1969-12-31 19:00:00.000999",
    "1969-12-31 19:00:00.25", "1969-12-31 20:00:00.75", "1969-12-31 23:59:58.001", "1969-12-31 23:59:59.5", "1970-01-01 00:00:00",
    "1970-01-01 00:00:00.001", "1970-01-01 00:00:00.5", None, "1970-01-01 00:30:00", "1970-01-01 00:30:00.000999", "1970-01-01 00:30:00.001",
    "1970-01-01 00:30:00.5", "1970-01-01 00:59:58.999999", "1970-01-01 01:00:00.25", "1970-01-01 02:00:00.5", "2020-06-01 12:00:00.5",
)  # fmt: skip
COLUMNS = ("at", "plain", "many[0]", "deep.at", "deep.by_key['k']")


def main() -> None:
    zone = sys.argv[1]
    java = f"-Duser.timezone={zone}"
    spark = SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", java).getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", zone)
    moments = spark.createDataFrame(list(enumerate(MOMENTS)), "id int, text string").selectExpr(
        "id", "cast(text as timestamp) at", "cast(text as timestamp_ntz) plain"
    )
    rows = moments.selectExpr("*", "array(at) many", "named_struct('at', at, 'by_key', map('k', at)) deep")
    with tempfile.TemporaryDirectory() as folder:
        rows.coalesce(1).write.mode("overwrite").option("compression", "zlib").orc(folder)
        texts = spark.read.orc(folder).orderBy("id").selectExpr(*(f"cast({column} as string)" for column in COLUMNS))
        expected = [list(row) for row in texts.collect()]
        name = zone.lower().replace("/", "_")
        GOLDEN.mkdir(exist_ok=True)
        shutil.copy(next(Path(folder).glob("*.orc")), GOLDEN / f"{name}.orc")
    assert all(row == [text] * len(COLUMNS) for row, text in zip(expected, MOMENTS, strict=True)), expected
    (GOLDEN / f"{name}.json").write_text(json.dumps({"zone": zone, "moments": [row[0] for row in expected]}, indent=1))


if __name__ == "__main__":
    main()
