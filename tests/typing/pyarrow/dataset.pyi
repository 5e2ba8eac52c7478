from typing import Any

from . import Schema

class ParquetFragmentScanOptions:
    def __init__(self, **options: Any) -> None: ...

class ParquetFileFormat:
    def __init__(self, read_options: Any = None, default_fragment_scan_options: Any = None, **options: Any) -> None: ...
    def make_fragment(
        self,
        file: Any,
        filesystem: Any = None,
        partition_expression: Any = None,
        row_groups: Any = None,
        *,
        file_size: int | None = None,
    ) -> Any: ...
    def inspect(self, file: Any, filesystem: Any = None) -> Schema: ...
