"""Use Spark as the tests do, and keep the classes its JVM loaded: `python tests/spark_classes.py FILE`.

A JVM that maps such an archive (class data sharing) starts with half of the CPU time. `make test` makes it once; where it
is absent, or of another Java, tests run without it.
"""

import os
import sys
import tempfile
from pathlib import Path

# No JVM of the tests lives long enough to gain by better code. One that cannot use the archive would say so where results are read.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
# Of drivers: a plan is run once, and to compile it takes longer.
UNCOMPILED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"


def main(archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": f"{JVM} {UNCOMPILED} -XX:ArchiveClassesAtExit={unfinished}",
    }
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        use(session, folder)
    gateway = SparkContext._gateway.proc
    session.stop()
    gateway.stdin.close()  # Python's JVM ends with its input, and writes the archive then.
    gateway.wait()
    unfinished.replace(archive)


def use(session, folder: str) -> None:
    import pyarrow as pa

    from lakeformat import Lake

    lake = Lake(folder)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("part", pa.int64())])
    rows = session.range(100).selectExpr("id", "concat('n', id % 7) as name", "id % 2 as part")
    for format in ("paimon", "iceberg"):
        table = lake.create_table(f"db.{format}", schema, format=format, partition_by=["part"])
        table.overwrite(rows)
        table.append(rows)
        table.merge_into(
            rows.limit(5), on="t.id = s.id"
        ).when_matched().update_all().when_not_matched().insert_all().merge()
        table.scan().to_spark(session).groupBy("name").count().toPandas()
    session.createDataFrame(pa.table({"id": [1, 2]})).join(rows, "id").repartition(2, "name").toArrow()
    stream = session.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, id: batch.count())
    stream.trigger(once=True).option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
