"""Real Apache Paimon and Apache Iceberg tables from Python: PyArrow here, PySpark on a cluster, no JVM connector."""

from lakeformat.errors import (
    AlreadyExists,
    CommitError,
    CommitLost,
    CommitUnknown,
    Conflict,
    CorruptFile,
    CorruptTable,
    InvalidInput,
    LakeError,
    NoSuchFile,
    NotFound,
    OutsideScope,
    SourceError,
    StoreError,
    UnsupportedFeature,
)
from lakeformat.lake import Lake
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import Snapshot
from lakeformat.opened import open_table
from lakeformat.scan import Scan
from lakeformat.table import Table

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "CommitError",
    "CommitLost",
    "CommitUnknown",
    "Conflict",
    "CorruptFile",
    "CorruptTable",
    "Field",
    "InvalidInput",
    "Lake",
    "LakeError",
    "NoSuchFile",
    "NotFound",
    "OutsideScope",
    "Scan",
    "Schema",
    "Snapshot",
    "SourceError",
    "StoreError",
    "Table",
    "UnsupportedFeature",
    "__version__",
    "open_table",
]
