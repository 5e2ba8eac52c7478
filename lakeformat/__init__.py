"""Read and write Apache Paimon and Apache Iceberg tables: with PyArrow in this process, with PySpark on a cluster. No
JVM connector.

`import lakeformat` loads the errors alone; everything else is imported with the first name that needs it.
"""

from typing import TYPE_CHECKING

from lakeformat import lazy
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
    MissingKey,
    NoSuchFile,
    NotFound,
    OutOfReach,
    OutsideScope,
    SourceError,
    StoreError,
    UnsupportedFeature,
)

if TYPE_CHECKING:
    from lakeformat.lake import Lake
    from lakeformat.model.schema import Field, Schema
    from lakeformat.model.snapshot import Snapshot
    from lakeformat.reading.scan import Scan
    from lakeformat.table import Table
    from lakeformat.warehouse.read_only_table import open_table

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
    "MissingKey",
    "NoSuchFile",
    "NotFound",
    "OutOfReach",
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

__getattr__ = lazy.names(
    __name__,
    {
        "Field": "model.schema",
        "Lake": "lake",
        "Scan": "reading.scan",
        "Schema": "model.schema",
        "Snapshot": "model.snapshot",
        "Table": "table",
        "open_table": "warehouse.read_only_table",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
