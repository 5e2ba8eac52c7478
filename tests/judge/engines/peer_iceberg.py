"""Iceberg's own runtime behind the judge's protocol: any statement on tables of a Hadoop catalog.

1.10.2 on Spark 3.5, whose jar a package brings, or the jar that is its argument (1.11.0 on Spark 4.1).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from protocol import rows, serve
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

os.environ["PYSPARK_PYTHON"] = sys.executable
if len(sys.argv) > 1:
    JAR = Path(sys.argv[1])
else:
    (PACKAGE,) = importlib.util.find_spec("snowpark_connect_deps_iceberg").submodule_search_locations
    (JAR,) = (Path(PACKAGE) / "jars").glob("iceberg-spark-runtime-3.5_2.12-*.jar")
SESSION = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", str(JAR))
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
SESSION.sparkContext.setLogLevel("ERROR")


@cache
def session(warehouse: str) -> SparkSession:
    """Spark keeps a catalog for as long as a session lives, so each warehouse has its own, where it is called `lake`."""
    made = SESSION.newSession()
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": warehouse,
        ".cache-enabled": "false",
    }.items():
        made.conf.set(f"spark.sql.catalog.lake{name}", value)
    return made


def run(request: dict) -> Any:
    """Run statements on tables called `lake.<namespace>.<table>`; the rows of the last."""
    spark = session(request["warehouse"])
    found = None
    for statement in request["statements"]:
        found = spark.sql(statement)
    batches = found._collect_as_arrow()  # `toArrow` refuses null variants.
    return rows(pa.Table.from_batches(batches) if batches else to_arrow_schema(found.schema).empty_table())


def java(request: dict) -> list:
    """The rows of a table as Iceberg's own Java library reads them, without Spark and so with all types: each as Java spells
    it. With `rows`, they are first appended as a file of `format`: values by column, times and the like as text."""
    jvm = SESSION._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.hadoop.HadoopTables(SESSION._jsc.hadoopConfiguration()).load(request["location"])
    if "rows" in request:
        schema = table.schema()
        path = f"{table.location()}/data/by-java-{request['format']}.{request['format'].lower()}"
        output = table.io().newOutputFile(path)
        format = iceberg.FileFormat.valueOf(request["format"])
        appender = iceberg.data.GenericAppenderFactory(schema, table.spec()).newAppender(output, format)
        for row in request["rows"]:
            record = iceberg.data.GenericRecord.create(schema)
            for name, value in row.items():
                record.setField(name, _java(jvm, schema.findType(name), value))
            appender.add(record)
        appender.close()
        made = iceberg.DataFiles.builder(table.spec()).withInputFile(output.toInputFile()).withFormat(format)
        table.newAppend().appendFile(made.withMetrics(appender.metrics()).build()).commit()
    found = iceberg.data.IcebergGenerics.read(table).build()
    rows = []
    records = found.iterator()
    while records.hasNext():
        record = records.next()
        rows.append([_text(jvm, record.get(i)) for i in range(record.size())])
    return rows


def boxes(request: dict) -> list:
    """For each data file the lower and upper bound of a column of geometries, as Java's library spells them; None without bounds."""
    jvm = SESSION._jvm
    table = jvm.org.apache.iceberg.hadoop.HadoopTables(SESSION._jsc.hadoopConfiguration()).load(request["location"])
    id = table.schema().findField(request["column"]).fieldId()
    found = []
    for task in table.newScan().includeColumnStats().planFiles().iterator():
        ends = [bounds and bounds.get(id) for bounds in (task.file().lowerBounds(), task.file().upperBounds())]
        bound, order = jvm.org.apache.iceberg.geospatial.GeospatialBound, jvm.java.nio.ByteOrder.LITTLE_ENDIAN
        found.append([end and bound.fromByteBuffer(end.order(order)).simpleString() for end in ends])
    return found


def _java(jvm: Any, kind: Any, value: Any) -> Any:
    match str(kind.typeId()):
        case "LONG":
            return jvm.java.lang.Long(value)
        case "TIME":
            return jvm.java.time.LocalTime.parse(value)
        case "UUID":
            return jvm.java.util.UUID.fromString(value)
        case "FIXED":
            return bytes.fromhex(value)
        case "TIMESTAMP_NANO" if kind.shouldAdjustToUTC():
            return jvm.java.time.OffsetDateTime.parse(value)
        case "TIMESTAMP_NANO":
            return jvm.java.time.LocalDateTime.parse(value)
    return value


def _text(jvm: Any, value: Any) -> Any:
    """Numbers and text as they are, bytes in hexadecimal, all else as Java spells it."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else value.toString()


def delete_keys(request: dict) -> None:
    """Equality deletes in one row delta, as streaming writers make them: of rows {column: text}, in a partition (its values)
    or, in a table without partitions, everywhere."""
    table, iceberg = loaded(request), SESSION._jvm.org.apache.iceberg
    key = table.schema().select(list(request["rows"][0]))
    ids = SESSION._sc._gateway.new_array(SESSION._jvm.int, key.columns().size())
    for index in range(key.columns().size()):
        ids[index] = key.columns().get(index).fieldId()
    partition = None
    if request.get("partition"):
        partition = iceberg.PartitionData(table.spec().partitionType())
        for index, value in enumerate(request["partition"]):
            partition.set(index, value)
    factory = iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, key, None)
    index = table.locationProvider().newDataLocation(f"{request['name']}-deletes.parquet")
    file = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(index))
    writer = factory.newEqDeleteWriter(file, iceberg.FileFormat.PARQUET, partition)
    for row in request["rows"]:
        record = iceberg.data.GenericRecord.create(key)
        for name, value in row.items():
            record.setField(name, value)
        writer.write(record)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def add_default(request: dict) -> None:
    """A column of whole numbers with an initial and a write default, which the SQL of Spark 3.5 cannot say."""
    iceberg = SESSION._jvm.org.apache.iceberg
    number = iceberg.types.Types.IntegerType.get()
    default = iceberg.expressions.Expressions.lit(request["value"])
    loaded(request).updateSchema().addColumn(request["column"], number, default).commit()


def loaded(request: dict) -> Any:
    spark = session(request["warehouse"])
    return SESSION._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, request["table"])


serve({"run": run, "java": java, "boxes": boxes, "delete_keys": delete_keys, "add_default": add_default})
