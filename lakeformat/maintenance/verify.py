"""Verification of a table's current snapshot against storage: what is missing, damaged, or counted wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakeformat.dialects.dialect import AnyView
from lakeformat.engines.files import formats
from lakeformat.engines.row_level import deletes
from lakeformat.errors import LakeError
from lakeformat.maintenance import sweep
from lakeformat.model.dataclass import dataclass
from lakeformat.model.work import FilesTask
from lakeformat.storage.store import Reader

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a table that is not as its metadata says. `kind`: "missing", "size", "content" (a file that cannot
    be read, or has other rows than the metadata says), or "counts" (of the metadata, or missing snapshots). `path`: the
    file, as the metadata names it; None for "counts"."""

    kind: str
    path: str | None
    text: str


def verify(store: Reader, view: AnyView, deep: bool) -> list[Damage]:
    """The damage of the current snapshot: missing files, files of another size and wrong counts; with `deep` also
    files whose footers, pages or delete files cannot be read, or that have other row counts. Each file is read once.

    Raises `CorruptTable` and `CorruptFile` for metadata that cannot be read.
    """
    tasks, stored = view.scan(), {file.path: file.size_bytes for file in store.list("")}
    parts = [part for task in tasks for part in sweep.with_parts(task) if isinstance(part, FilesTask)]
    lost = sweep.missing_of(store, tasks, stored)
    damage = [Damage("missing", path, f"{path}: the table lists it, but it does not exist") for path in lost]
    damage += _sizes(store.root, stored, parts)
    damage += [Damage("counts", None, text) for text in view.inspect("discrepancies")["text"].to_pylist()]
    if deep:
        damaged = {finding.path for finding in damage}
        for part in parts:
            damage += (finding for finding in _contents(store, part) if finding.path not in damaged)
    return damage


# --- private ----------------------------------------------------------------------------------------------------------


def _sizes(root: str, stored: Mapping[str, int], parts: list[FilesTask]) -> Iterator[Damage]:
    """Files in the table's folder that have another size than the metadata says. `stored`: path -> bytes."""
    inside = f"{root}/"
    recorded = {path: size for part in parts for path, size in zip(part.paths, part.sizes_bytes, strict=True)}
    for path, size in recorded.items():
        actual = stored.get(path.removeprefix(inside), size)
        if actual != size:
            yield Damage("size", path, f"{path}: {actual} bytes, and the table says {size}")


def _contents(store: Reader, part: FilesTask) -> Iterator[Damage]:
    """Damage that shows when the files of a task and their delete files are read."""
    for index, path in enumerate(part.paths):
        try:
            with formats.blamed(path):
                file = formats.opened(store, path, part.file_format, key=part.keys[index] if part.keys else None)
                rows = sum(batch.num_rows for _, batch in file.batches(file.fields(None), None, _BATCH_ROWS))
            if rows != part.row_counts[index]:
                yield Damage("content", path, f"{path}: {rows} rows, and the table says {part.row_counts[index]}")
            for delete in part.deletes[index] if part.deletes else ():
                with formats.blamed(delete.path, "delete file"):
                    deletes.deleted_rows(store, path, [delete])
        except LakeError as error:
            yield Damage("content", path, str(error))
