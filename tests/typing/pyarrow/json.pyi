from typing import Any

from . import RecordBatchReader, Schema, Table

class ReadOptions:
    def __init__(self, use_threads: bool | None = None, block_size: int | None = None) -> None: ...

class ParseOptions:
    def __init__(
        self,
        explicit_schema: Schema | None = None,
        newlines_in_values: bool | None = None,
        unexpected_field_behavior: str | None = None,
    ) -> None: ...

def read_json(input_file: Any, read_options: Any = None, parse_options: ParseOptions | None = None) -> Table: ...
def open_json(
    input_file: Any, read_options: Any = None, parse_options: ParseOptions | None = None
) -> RecordBatchReader: ...
