"""Paimon's format tables (`type=format-table`): a folder of Parquet, ORC, CSV or JSON files without a history of its
own, with folders for partitions. Every file that lies there counts, by whatever name, but for those that begin with `_`
or `.`; here they are read (FormatTableScan, FormatTableRead)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.partition_listing import partition_listing
from lakeformat.dialects.paimon import inspect, manifest, metadata, options, scan
from lakeformat.dialects.paimon.compaction import Compaction
from lakeformat.dialects.paimon.expire import Expiring
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.paimon.mirror import Mirroring
from lakeformat.dialects.paimon.view import PaimonView
from lakeformat.dialects.part import Owned, Part
from lakeformat.errors import CorruptTable, InvalidInput, UnsupportedFeature
from lakeformat.expression import evaluation
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression, columns_of, split
from lakeformat.model.schema import Field, Scalar, Type, with_columns
from lakeformat.model.snapshot import Expiry, Retention
from lakeformat.model.work import FilesTask, ReadTask, RewriteTask
from lakeformat.storage.store import Listed

TYPE = "format-table"
_FORMATS = ("parquet", "orc", "csv", "json")
_TEXT_OPTIONS = ("csv.", "json.", "field-delimiter")
_PATH_OPTION, _VALUES_ONLY = "path", "format-table.partition-path-only-value"


def _refused(part: Part[State], *arguments: Any, **named: Any) -> NoReturn:
    raise UnsupportedFeature(
        f"{part.reader.root}: a format table is read-only here; write its files with the engine that owns them, "
        "or copy its rows to a table of its own"
    )


@dataclass(frozen=True, slots=True)
class _Compaction(Compaction):
    """Nothing to do: there is nothing to compact."""

    def tasks(
        self,
        full: bool = False,
        scope: Expression = ALWAYS,
        now_ms: int | None = None,
        min_files: int | None = None,
        buckets: Sequence[int] | None = None,
    ) -> list[RewriteTask]:
        return []

    def sorting(self, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        raise UnsupportedFeature(
            f"{self.reader.root}: compact(sort_by=...) of a format table, which is read only: not supported"
        )


@dataclass(frozen=True, slots=True)
class _Expiring(Expiring):
    """Nothing to do: no snapshot expires, and no file is an orphan, since all files are the table."""

    def snapshots(self, retention: Retention, now_ms: int) -> Expiry:
        return Expiry((), ())

    def orphans(self, older_than_ms: int) -> list[Listed]:
        return []


@dataclass(frozen=True, slots=True)
class _Mirroring(Mirroring):
    shown = published = _refused


@dataclass(frozen=True, slots=True)
class FolderView(PaimonView):
    """A format table, as it is each time it is read. It cannot be changed."""

    def project(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        file_format = self._file_format
        if file_format not in _FORMATS:
            raise UnsupportedFeature(
                f"{self.reader.root}: a format table of {file_format} files; supported: {', '.join(_FORMATS)}"
            )
        elsewhere = self.schema.properties.get(_PATH_OPTION)
        if elsewhere is not None and _plain(elsewhere) != _plain(self.reader.root):
            raise UnsupportedFeature(
                f"{self.reader.root}: a format table whose files lie elsewhere, in {elsewhere} (option path): "
                "not supported"
            )
        return scan.project(self.state, columns)

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> Sequence[ReadTask]:
        schema, file_format = self.schema, self._file_format
        scope, rest = split(predicate, schema.partitioning.names)
        fields = with_columns(columns_of(rest), self.project(columns), schema.fields)
        keys = [schema.field(name) for name in schema.partitioning.names]
        text = {k: v for k, v in schema.properties.items() if k.startswith(_TEXT_OPTIONS)}
        return [
            FilesTask(
                paths=tuple(file.path for file in files),
                row_counts=(),
                sizes_bytes=tuple(file.size_bytes for file in files),
                file_format=file_format,
                fields=fields,
                file_fields=tuple(f for f in schema.fields if f not in keys),
                predicate=rest,
                constants=tuple((f.id, value) for f, value in zip(keys, partition, strict=True)),
                partition=partition,
                text_options=tuple(sorted(text.items())) if file_format in ("csv", "json") else None,
            )
            for partition, files in self._by_partition(scope).items()
        ]

    compaction = Owned(_Compaction)
    expiring = Owned(_Expiring)
    mirroring = Owned(_Mirroring)

    def count(self, predicate: Expression = ALWAYS) -> int | None:
        return None  # Row counts are unknown.

    def inspect(self, name: str, *arguments: Any) -> pa.Table:
        if name == "partitions":
            return self._partitions(*arguments)
        if name in ("files", "manifests"):
            _refused(self)
        return inspect.INSPECTIONS[name](inspect.Inspections(self.reader, self.state), *arguments)

    # These would treat the folder as a table with snapshots, to which its files do not belong.
    plan = layout = rewriting = delete_layout = files = tasks = tag = _refused
    branches = property(_refused)

    @property
    def _file_format(self) -> str:
        said = self.schema.properties.get("file.format")
        return options.read(self.schema).file_format if said is None else said.lower()

    def _by_partition(self, scope: Expression = ALWAYS) -> Mapping[tuple[Any, ...], list[Listed]]:
        """The files of each partition for which `scope` is true."""
        schema = self.schema
        names = schema.partitioning.names
        by_folder: dict[tuple[str, ...], list[Listed]] = {}
        for listed in self.reader.list(""):
            *folders, file = listed.path.split("/")
            hidden = any(part[:1] in ("_", ".") for part in (*folders[len(names) :], file))
            if hidden or len(folders) < len(names) or listed.path.startswith(f"{metadata.SCHEMA_FOLDER}/"):
                continue
            by_folder.setdefault(tuple(folders[: len(names)]), []).append(listed)
        partitions = [self._partition(folders) for folders in by_folder]
        keep = np.ones(len(partitions), bool)
        if scope != ALWAYS and partitions:
            keep = np.asarray(evaluation.mask(scope, manifest.partition_table(partitions, schema)).fill_null(False))
        data_files: dict[tuple[Any, ...], list[Listed]] = {}
        for partition, files, kept in zip(partitions, by_folder.values(), keep.tolist(), strict=True):
            if kept:
                data_files.setdefault(partition, []).extend(sorted(files, key=lambda file: file.path))
        return data_files

    def _partition(self, folders: tuple[str, ...]) -> tuple[Any, ...]:
        """The values in the names of folders, `key=value` or only the value."""
        schema = self.schema
        alone = schema.properties.get(_VALUES_ONLY, "").lower() == "true"
        missing, values = options.read(schema).partition_default_name, []
        for name, folder in zip(schema.partitioning.names, folders, strict=True):
            key, said, text = ("", "=", folder) if alone else folder.partition("=")
            if not said or (not alone and unquote(key) != name):
                raise CorruptTable(
                    f"{self.reader.root}/{'/'.join(folders)}: a folder of a partition by {name} is called {name}=value"
                )
            text = unquote(text)
            values.append(
                None if text == missing else _value(text, schema.field(name).type, f"{self.reader.root}/{folder}")
            )
        return tuple(values)

    def _partitions(self, small_file_bytes: int | None = None) -> pa.Table:
        schema, partitions = self.schema, self._by_partition()
        small = options.read(schema).small_file_bytes if small_file_bytes is None else small_file_bytes
        table = manifest.partition_table(list(partitions), schema)
        sizes = [[file.size_bytes for file in files] for files in partitions.values()]
        figures = {
            "file_count": [len(size) for size in sizes],
            "small_file_count": [sum(size < small for size in group) for group in sizes],
            "row_count": [None] * len(sizes),
            "deleted_row_count": [0] * len(sizes),
            "size_bytes": [sum(size) for size in sizes],
            "last_modified_ms": [max(file.modified_ms for file in files) for files in partitions.values()],
        }
        measures = {name: pa.array(counts, pa.int64()) for name, counts in figures.items()}
        return partition_listing({name: table[name] for name in table.column_names}, [0] * len(sizes), measures)


def _plain(location: str) -> str:
    return location.removeprefix("file:").strip("/")


def _value(text: str, type: Type, where: str) -> Any:
    arrow = to_arrow(type)
    if (
        not isinstance(type, Scalar)
        or (pa.types.is_temporal(arrow) and not pa.types.is_date(arrow))
        or pa.types.is_binary(arrow)
    ):
        raise UnsupportedFeature(f"{where}: a format table with a partition of type {type}: not supported")
    try:
        return pa.scalar(text).cast(arrow).as_py()
    except pa.ArrowException as error:
        raise InvalidInput(f"{where}: {text!r} is not a valid {type}") from error
