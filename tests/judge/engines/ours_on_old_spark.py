"""How lakeformat refuses what the oldest PySpark that it runs on lacks: `ours_on_old_spark.py FOLDER`, without a JVM."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import pyarrow as pa
import pyspark
from pyspark.sql import types as T

from lakeformat import Lake, UnsupportedFeature
from lakeformat.engines.spark import data_source
from lakeformat.warehouse.data_source import TablesByOptions


def main(folder: str) -> None:
    lake = Lake(folder)
    lake.create_table("d.t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    schema = T.StructType([T.StructField("id", T.LongType())])

    class Source(data_source._Source):
        _tables, _pushes = TablesByOptions(lake), False

    said = {}
    for name, options, ask in [
        ("stream", {}, lambda source: source.streamReader(schema)),
        ("maxFilesPerTrigger", {"maxFilesPerTrigger": "1"}, lambda source: source.streamReader(schema)),
        ("maxRowsPerTrigger", {"maxRowsPerTrigger": "1"}, lambda source: source.streamReader(schema)),
        ("writer", {}, lambda source: source.writer(schema, False)),
        ("streamWriter", {"user": "u"}, lambda source: source.streamWriter(schema, False)),
    ]:
        try:
            said[name] = type(ask(Source({"table": "d.t", **options}))).__name__
        except UnsupportedFeature as error:
            said[name] = str(error)
    print(json.dumps({"version": pyspark.__version__, "said": said}))


if __name__ == "__main__":
    main(sys.argv[1])
