from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import DataType, RecordBatch, RecordBatchReader, Schema, Table

class ReadOptions:
    def __init__(
        self,
        *,
        use_threads: bool | None = None,
        block_size: int | None = None,
        skip_rows: int | None = None,
        skip_rows_after_names: int | None = None,
        column_names: Sequence[str] | None = None,
        autogenerate_column_names: bool | None = None,
        encoding: str = "utf8",
    ) -> None: ...

class ParseOptions:
    def __init__(
        self,
        *,
        delimiter: str | None = None,
        quote_char: str | bool | None = None,
        double_quote: bool | None = None,
        escape_char: str | bool | None = None,
        newlines_in_values: bool | None = None,
        ignore_empty_lines: bool | None = None,
        invalid_row_handler: Callable[[Any], str] | None = None,
    ) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        check_utf8: bool | None = None,
        column_types: Schema | Mapping[str, DataType] | None = None,
        null_values: Sequence[str] | None = None,
        true_values: Sequence[str] | None = None,
        false_values: Sequence[str] | None = None,
        decimal_point: str | None = None,
        strings_can_be_null: bool | None = None,
        quoted_strings_can_be_null: bool | None = None,
        include_columns: Sequence[str] | None = None,
        include_missing_columns: bool | None = None,
        timestamp_parsers: Sequence[str] | None = None,
    ) -> None: ...

def read_csv(
    input_file: Any,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> Table: ...
def open_csv(
    input_file: Any,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> RecordBatchReader: ...

class CSVWriter:
    def __init__(self, sink: Any, schema: Schema, write_options: Any = None, *, memory_pool: Any = None) -> None: ...
    def __enter__(self) -> CSVWriter: ...
    def __exit__(self, *error: object) -> None: ...
    def write_batch(self, batch: RecordBatch) -> None: ...
