"""A copy of a table under another prefix is prepared: files that contain paths are rewritten into a staging folder, and
a list says which files to copy where."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterator

import pyarrow as pa

from lakeformat.dialects.dialect import AnyView, Relocation
from lakeformat.engines import worker
from lakeformat.engines.files.formats import opened
from lakeformat.engines.row_level.deletes import PATH_ID, POSITION_ID
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field, Kind, scalar
from lakeformat.model.work import Content, Encoding, Naming, OneFolder, WriteTask
from lakeformat.storage.paths import is_absolute, relative
from lakeformat.storage.reaching import reaching
from lakeformat.storage.store import Store

_FIELDS = (
    Field(PATH_ID, "file_path", scalar(Kind.STRING), nullable=False),
    Field(POSITION_ID, "pos", scalar(Kind.BIGINT), nullable=False),
)
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class Relocated:
    """A prepared copy. `file_list` is a CSV file without a header; each line has a source and a target. `latest` is the
    name of its newest metadata file."""

    latest: str
    file_list: str
    rewritten: int
    copied: int


def prepare(
    store: Store, view: AnyView, source: str, target: str, versions: tuple[str | None, str | None], staging: str | None
) -> Relocated:
    """Prepare a copy of the files between two `versions` under another prefix, in `staging` or a folder of the
    table."""
    relocation = view.relocation(source, target, *versions)
    if relocation is None:
        raise UnsupportedFeature(
            f"{store.root}: a {view.format.capitalize()} table names its files relative to its folder: copy the folder"
        )
    folder = staging or f"{store.location('metadata')}/copy-table-staging-{uuid.uuid4()}"
    return relocate(store, relocation, folder)


def relocate(store: Store, relocation: Relocation, staging: str) -> Relocated:
    """Write the files that contain paths below the absolute folder `staging`, and the list of files."""
    if not is_absolute(staging):
        raise InvalidInput(f"staging={staging!r}: give an absolute path or a URI")
    staging = staging.rstrip("/")
    into = reaching(store, (staging,)) if relative(store.root, staging) is None else store
    lines: dict[str, str] = {}

    def staged(target: str) -> str:
        lines[target] = path = f"{staging}/{relative(relocation.target, target)}"
        return path

    sizes = {}
    for path, format in relocation.position_deletes():
        to = staged(relocation.moved(path))
        if format == "puffin":
            data = relocation.vectors(store.read(path), path)
            into.write(to, data)
            sizes[path] = len(data)
        else:
            sizes[path] = _rewritten(store, into, path, format, to, relocation)
    for target, data in relocation.files(sizes).items():
        into.write(staged(target), data)
    copies = {relocation.moved(path): path for path in relocation.copies()}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((path, target) for target, path in {**copies, **lines}.items())
    file_list = f"{staging}/file-list.csv"
    into.write(file_list, text.getvalue().encode())
    return Relocated(relocation.latest, store.location(file_list), len(lines), len(copies))


def _rewritten(store: Store, into: Store, path: str, format: str, to: str, relocation: Relocation) -> int:
    """Write position deletes with the new paths of data files; returns the size of the new file."""
    file = opened(store, path, format)
    fields = {field.id: field for field in file.fields(None)}
    if not {PATH_ID, POSITION_ID} <= fields.keys():
        raise CorruptFile(f"{path}: position deletes without the ids of their columns")

    def rows() -> Iterator[pa.RecordBatch]:
        for _, batch in file.batches((fields[PATH_ID], fields[POSITION_ID]), None, _BATCH_ROWS):
            paths = batch.column(fields[PATH_ID].name)
            moved = relocation.moved_all(paths if pa.types.is_dictionary(paths.type) else paths.cast(pa.string()))
            yield pa.record_batch(
                [moved.cast(pa.string()), batch.column(fields[POSITION_ID].name)],
                names=[field.name for field in _FIELDS],
            )

    task = WriteTask(
        fields=_FIELDS,
        directory=OneFolder(""),
        content=Content.POSITION_DELETES,
        encoding=Encoding(
            format,
            {"orc": "zlib", "avro": "gzip"}.get(format, "zstd"),
            options={"orc.field-ids": "true", "avro.field-ids": "true"},
        ),
        naming=Naming(locate=lambda folder, name: to),
        target_size_bytes=1 << 62,
    )
    (made,) = worker.write(into, rows(), task)
    return made.size_bytes
