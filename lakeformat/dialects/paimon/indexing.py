"""File indexes of existing files: which files lack indexes that the table's options ask for, and their entries with new ones.

Deleted rows are indexed too: bitmaps name positions in the file. (FileIndexProcessor)
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import file_index
from lakeformat.dialects.paimon import layout, manifest, metadata, options, scan
from lakeformat.dialects.paimon.metadata import State
from lakeformat.errors import Conflict, UnsupportedFeature
from lakeformat.model.predicate import Expression
from lakeformat.model.work import SEQUENCE, VALUE_KIND, IndexTask, ReadTask
from lakeformat.storage.store import Reader

ENDING = ".index"


def tasks(reader: Reader, base: State, scope: Expression) -> list[IndexTask]:
    """For each file that lacks an index, what is to be indexed. `scope`: a condition on partition columns."""
    wanted = layout.file_indexes(base.schema)
    if wanted is None:
        return []
    metadata.require_writable(base.schema, reader.root)
    metadata.require_rewritable(base.schema, reader.root)
    if options.of(base.schema).data_evolution_enabled:
        raise UnsupportedFeature(
            f"{reader.root}: file indexes of a table with data evolution, whose columns are in several files, are not used; "
            "create_global_index(column)"
        )
    entries = scan.files(reader, base, scope).entries
    system = (SEQUENCE, VALUE_KIND) if base.schema.primary_key else ()
    rows = zip(
        scan.paths(entries, base.schema).to_pylist(),
        scan.index_files(reader, entries, base.schema),
        *(entries[name].to_pylist() for name in ("_SCHEMA_ID", "_ROW_COUNT", "_FILE_SIZE")),
        scan.file_formats(entries).to_pylist(),
        strict=True,
    )
    result = []
    for path, (index_path, data), schema_id, row_count, size_bytes, file_format in rows:
        kept = {} if data is None else file_index.parse(data, f"{reader.root}/{index_path}")
        own = {field.id: field for field in metadata.schema_at(reader, base, schema_id).fields}
        columns = [(column, own.get(base.schema.field(column.column).id)) for column in wanted.columns]
        missing = {
            column: field.name
            for column, field in columns
            if field is not None
            and field.type == base.schema.field(column.column).type
            and column.kind not in kept.get(field.name, {})
        }
        if missing:
            names = dict.fromkeys(column.column for column in missing)
            read = ReadTask(
                paths=(path,),
                row_counts=(row_count,),
                sizes_bytes=(size_bytes,),
                file_format=file_format,
                fields=tuple(base.schema.field(name) for name in names),
                file_fields=(*system, *own.values()),
            )
            result.append(IndexTask(read, tuple(missing.items()), kept, wanted.embedded_bytes))
    return result


def require_some(reader: Reader, base: State, indexes: Mapping[str, bytes | str]) -> None:
    """Raise `Conflict` if none of the indexed files is live."""
    if not len(_live(reader, base, indexes)):
        raise Conflict(f"{reader.root}: others have replaced all of the files that were indexed; run it again")


def renewed(
    reader: Reader, base: State, indexes: Mapping[str, bytes | str]
) -> tuple[pa.Table, pa.Table, tuple[str, ...]]:
    """(the live entries of the indexed files, the same with the new indexes, the files of indexes that none has)."""
    entries = _live(reader, base, indexes)
    paths = scan.paths(entries, base.schema).to_pylist()
    own = [indexes[path] for path in paths]
    extra = [
        [
            *(name for name in names or () if not name.endswith(ENDING)),
            *([_name(index)] if isinstance(index, str) else []),
        ]
        for names, index in zip(entries["_EXTRA_FILES"].to_pylist(), own, strict=True)
    ]
    columns = {"_EXTRA_FILES": extra, "_EMBEDDED_FILE_INDEX": [i if isinstance(i, bytes) else None for i in own]}
    made = entries
    for name, values in columns.items():
        field = manifest.ENTRY.field(name)
        made = made.set_column(made.column_names.index(name), field, pa.array(values, field.type))
    gone = {*indexes} - {*paths}
    return entries, made, tuple(index for path in gone if isinstance(index := indexes[path], str))


# --- private ----------------------------------------------------------------------------------------------------------


def _live(reader: Reader, base: State, indexes: Mapping[str, bytes | str]) -> pa.Table:
    entries = manifest.live_entries(reader, base.document, base.schema)
    return entries.filter(pc.is_in(scan.paths(entries, base.schema), value_set=pa.array([*indexes], pa.string())))


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
