from typing import Any

from . import RecordBatch, Schema, Table

class ORCFile:
    metadata: Any
    schema: Schema
    nrows: int
    nstripes: int
    writer: str
    software_version: str
    compression: str
    def __init__(self, source: Any) -> None: ...
    def read(self, columns: list[Any] | None = None) -> Table: ...
    def read_stripe(self, n: int, columns: list[Any] | None = None) -> RecordBatch: ...

class ORCWriter:
    def __init__(self, where: Any, **options: Any) -> None: ...
    def write(self, table: Table) -> None: ...
    def close(self) -> None: ...
