"""lakeformat on a Spark that reads `s3a://` itself: `ours_on_s3a.py WAREHOUSE OPTIONS(JSON) JARS TABLE...` prints, for each table,
its rows and whether Spark's own reader gave them, and then what the log said."""

import json
import logging
import sys

from pyspark.sql import SparkSession

from lakeformat import Lake


def main(warehouse: str, options: dict[str, str], jars: str, names: list[str]) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]  # Its one use.
    logging.getLogger("lakeformat").addHandler(handler)
    logging.getLogger("lakeformat").setLevel(logging.INFO)
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    for name, value in {
        "endpoint": options["aws_endpoint"],
        "endpoint.region": options["aws_region"],
        "access.key": options["aws_access_key_id"],
        "secret.key": options["aws_secret_access_key"],
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }.items():
        builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    tables = {}
    for name in names:
        frame = Lake(warehouse, **options).table(name).scan().to_spark(spark)
        by_spark = [path.partition(":")[0] for path in frame.inputFiles()]
        tables[name] = {"by_spark": by_spark, "rows": sorted(map(str, frame.toArrow().to_pylist()))}
    spark.stop()
    print(json.dumps({"tables": tables, "said": [line for line in said if "Spark" in line]}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4:])
