from collections.abc import Iterator, Sequence
from typing import Any, Self

from . import RecordBatch, Schema, Table

class ParquetSchema:
    names: list[str]
    def __len__(self) -> int: ...
    def column(self, i: int) -> Any: ...
    def to_arrow_schema(self) -> Schema: ...

class ColumnChunkMetaData:
    path_in_schema: str
    physical_type: str
    compression: str
    encodings: tuple[str, ...]
    num_values: int
    statistics: Any
    is_stats_set: bool
    has_dictionary_page: bool
    dictionary_page_offset: int | None
    data_page_offset: int
    file_offset: int
    total_compressed_size: int
    total_uncompressed_size: int

class RowGroupMetaData:
    num_rows: int
    num_columns: int
    total_byte_size: int
    def column(self, i: int) -> ColumnChunkMetaData: ...

class FileMetaData:
    created_by: str
    format_version: str
    metadata: dict[bytes, bytes] | None
    num_columns: int
    num_rows: int
    num_row_groups: int
    schema: ParquetSchema
    serialized_size: int
    def row_group(self, i: int) -> RowGroupMetaData: ...

class ParquetFile:
    metadata: FileMetaData
    schema: ParquetSchema
    schema_arrow: Schema
    num_row_groups: int
    reader: Any
    def __init__(self, source: Any, *, metadata: Any = None, **options: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: Any, **kwargs: Any) -> None: ...
    def close(self, force: bool = False) -> None: ...
    def iter_batches(
        self,
        batch_size: int = 65536,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
        use_pandas_metadata: bool = False,
    ) -> Iterator[RecordBatch]: ...
    def read(
        self, columns: Sequence[str] | None = None, use_threads: bool = True, use_pandas_metadata: bool = False
    ) -> Table: ...
    def read_row_group(
        self, i: int, columns: Sequence[str] | None = None, use_threads: bool = True, use_pandas_metadata: bool = False
    ) -> Table: ...
    def read_row_groups(
        self,
        row_groups: Sequence[int],
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
        use_pandas_metadata: bool = False,
    ) -> Table: ...

class ParquetWriter:
    is_open: bool
    writer: Any
    def __init__(self, where: Any, schema: Schema, *, compression: Any = "snappy", **options: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: Any, **kwargs: Any) -> None: ...
    def write_batch(self, batch: RecordBatch, row_group_size: int | None = None) -> None: ...
    def write_table(self, table: Table, row_group_size: int | None = None) -> None: ...
    def add_key_value_metadata(self, key_value_metadata: dict[str, str]) -> None: ...
    def close(self) -> None: ...

def read_metadata(
    where: Any, memory_map: bool = False, decryption_properties: Any = None, filesystem: Any = None
) -> FileMetaData: ...
def read_schema(
    where: Any, memory_map: bool = False, decryption_properties: Any = None, filesystem: Any = None
) -> Schema: ...
def write_table(
    table: Table, where: Any, row_group_size: int | None = None, *, compression: Any = "snappy", **options: Any
) -> None: ...
