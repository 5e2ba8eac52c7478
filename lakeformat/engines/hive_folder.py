"""A folder of Parquet files with Hive partitions (folders `name=value`): its files and columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.engines.adopt import folders
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.store import Reader

_PARQUET = (".parquet", ".parq")
_WHOLE = re.compile(r"0|-?[1-9]\d{0,18}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class HiveFolder:
    """`paths` are absolute; `schema` has the columns of all files, then those of the partitions."""

    paths: tuple[str, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]


def look(store: Reader, table_schema: pa.Schema | None = None) -> HiveFolder:
    """The data files below the store's root; names that begin with `_` or `.` are ignored. Partition columns are
    integers or dates if all of their values are, otherwise text; columns of `table_schema` have the types there. Raises
    `NotFound`, `UnsupportedFeature` for files that are not Parquet, and `InvalidInput` for files with incompatible
    columns."""
    names = [file.path for file in store.list("") if not any(part[0] in "_." for part in file.path.split("/"))]
    if not names:
        raise NotFound(f"{store.root} holds no files")
    if strange := [name for name in names if not name.lower().endswith(_PARQUET)]:
        kind = (
            strange[0].rpartition(".")[2].upper() if "." in strange[0].rpartition("/")[2] else "a file without a suffix"
        )
        raise UnsupportedFeature(
            f"{store.root}: {strange[0]} is {kind}, not Parquet: folders of Parquet files become tables; write the "
            "rows of others to a new table (append)"
        )
    by = [tuple(folders(name)) for name in names]
    if len(set(by)) > 1:
        raise InvalidInput(
            f"{store.root}: {names[0]} lies in folders of {', '.join(by[0]) or 'no partition'}, another file in "
            f"folders of {', '.join(next(keys for keys in by if keys != by[0])) or 'no partition'}; "
            "all must be partitioned alike"
        )
    paths = tuple(store.location(name) for name in names)
    stored = _columns(store, paths)
    values = [folders(name) for name in names]
    parts = [pa.field(name, _type([value[name] for value in values])) for name in by[0] if name not in stored.names]
    schema = pa.schema([*(field.remove_metadata().with_nullable(True) for field in stored), *parts])
    if table_schema is not None:
        schema = pa.schema(
            [table_schema.field(field.name) if field.name in table_schema.names else field for field in schema]
        )
    return HiveFolder(paths, schema, by[0])


def _columns(store: Reader, paths: Sequence[str]) -> pa.Schema:
    def columns(path: str) -> pa.Schema:
        try:
            with store.open(path) as file:
                return pq.read_schema(file)
        except pa.ArrowException as error:
            raise InvalidInput(f"{path}: no Parquet file that can be read: {error}") from error

    with ThreadPoolExecutor(8, "footers") as pool:
        schemas = list(pool.map(columns, paths))
    try:
        return pa.unify_schemas([schema.remove_metadata() for schema in schemas], promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInput(f"{store.root}: the files' columns are not compatible: {error}") from error


def _type(values: Sequence[str | None]) -> pa.DataType:
    texts = [value for value in values if value is not None]
    if texts and all(map(_WHOLE.fullmatch, texts)):
        return pa.int32() if all(abs(int(text)) < 1 << 31 for text in texts) else pa.int64()
    return pa.date32() if texts and all(map(_DATE.fullmatch, texts)) else pa.string()
