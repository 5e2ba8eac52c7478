"""A table under another prefix: metadata, manifests and position deletes contain absolute paths, which all change.

Rewriting a file twice gives the same bytes, so that a later, incremental run records the same size.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import document
from lakeformat.codec.avro import file as avro
from lakeformat.dialects.iceberg import expire, manifest, metadata
from lakeformat.dialects.iceberg.manifest import META, FileContent, Status
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.iceberg.scan import PATH_ID
from lakeformat.errors import CorruptFile, InvalidInput, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.cache import in_catalog
from lakeformat.storage.paths import relative
from lakeformat.storage.store import Reader

_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


@dataclass(frozen=True, slots=True)
class Relocation:
    """From below the prefix `source` to below `target`: the versions after that of `start`, up to that of `end`."""

    reader: Reader
    source: str
    target: str
    start: State
    end: State
    documents: Mapping[str, Mapping[str, Any]]  # By location, newest first.

    @property
    def latest(self) -> str:
        return self.end.location.rpartition("/")[2]

    def moved(self, path: str) -> str:
        """A path at the target. Raises `InvalidInput` for a path outside the source."""
        inside = relative(self.source, path)
        if inside is None:
            raise InvalidInput(
                f"{path} is not below source_prefix={self.source!r}; give the prefix of all of the table's files"
            )
        return f"{self.target}/{inside}" if inside else self.target

    def moved_all(self, paths: pa.Array) -> pa.Array:
        """`moved` of a column of text; null stays null."""
        distinct: Any = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
        distinct_paths = distinct.dictionary
        prefix = f"{self.source}/"
        moved = pc.binary_join_element_wise(f"{self.target}/", pc.utf8_slice_codeunits(distinct_paths, len(prefix)), "")
        plain = np.asarray(pc.starts_with(distinct_paths, prefix))
        others = [self.moved(path) for path in distinct_paths.filter(pa.array(~plain)).to_pylist()]
        if others:
            moved = pc.replace_with_mask(moved, pa.array(~plain), pa.array(others, moved.type))
        return moved.take(distinct.indices)

    def position_deletes(self) -> list[tuple[str, str]]:
        """(path, format) of the delete files that refer to data files by path; Puffin files hold deletion vectors."""
        paths: dict[str, str] = {}
        for entries in manifest.read_raw(self.reader, _manifests(self.reader, self._snapshots).to_pylist()):
            own = entries.filter(pc.equal(entries["content"], int(FileContent.POSITION_DELETES)))
            live = own.filter(pc.not_equal(own["status"], int(Status.DELETED)))
            paths |= zip(live["file_path"].to_pylist(), pc.utf8_lower(live["file_format"]).to_pylist(), strict=True)
        return list(paths.items())

    def vectors(self, data: bytes, path: str) -> bytes:
        """A Puffin file of deletion vectors with the new paths of the data files."""
        (size,) = struct.unpack("<i", data[-12:-8])
        if data[-8] & 1:
            raise CorruptFile(f"{path}: a compressed footer, which files of deletion vectors do not have")
        footer = json.loads(data[-12 - size : -12])
        for blob in footer["blobs"]:
            named = blob["properties"].get("referenced-data-file")
            if named is not None:
                blob["properties"]["referenced-data-file"] = self.moved(named)
        text = json.dumps(footer, separators=(",", ":")).encode()
        return data[: -12 - size] + text + struct.pack("<i", len(text)) + data[-8:]

    def files(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        """The rewritten metadata files, manifest lists and manifests, by path at the target. `sizes` are those of the
        position delete files, by their old paths."""
        rewritten: dict[str, bytes] = {}
        manifests = _manifests(self.reader, self._snapshots).to_pylist()
        lengths: dict[str, int] = {}
        for path in manifests:
            data = self._manifest(path, sizes)
            rewritten[self.moved(path)], lengths[path] = data, len(data)
        for snapshot in self._snapshots:
            if "manifest-list" in snapshot:
                rewritten[self.moved(snapshot["manifest-list"])] = self._list(snapshot, lengths)
        for location, old in self.documents.items():
            rewritten[self.moved(location)] = metadata.emit(self._document(old), location)
        if not in_catalog(self.reader):
            rewritten[self.moved(self.reader.location(metadata.HINT))] = str(self.end.version).encode()
        return rewritten

    def copies(self) -> list[str]:
        """The files to copy unchanged, by their old paths: data, equality deletes and statistics."""
        rewritten = {path for path, _ in self.position_deletes()}
        data, _, _, stats = expire.reached(self.reader, self.end, self._snapshots)
        before = expire.reached(self.reader, self.start, list(metadata.snapshots(self.start).values()), missing_ok=True)
        known = pa.concat_arrays([before[0], before[3]])
        fresh = pa.concat_arrays([data, stats])
        fresh = fresh.filter(pc.invert(pc.is_in(fresh, value_set=known)))
        return [path for path in fresh.to_pylist() if path not in rewritten]

    @property
    def _snapshots(self) -> list[Mapping[str, Any]]:
        there = metadata.snapshots(self.start) if self.start.exists else {}
        return [s for i, s in metadata.snapshots(self.end).items() if i not in there]

    def _manifest(self, path: str, sizes: Mapping[str, int]) -> bytes:
        data = self.reader.read(path)
        head, entries = avro.read_head(data), manifest.parse(data, path)
        spec = self.end.specs[int(head.metadata.get("partition-spec-id", b"0"))]
        version = max(int(head.metadata.get("format-version", b"1")), 2)
        paths = entries["file_path"].combine_chunks()
        places = pc.index_in(paths, value_set=pa.array(list(sizes), pa.string()))
        made = pa.array(list(sizes.values()), pa.int64()).take(places)
        entries = _set(entries, "file_size_in_bytes", pc.coalesce(made, entries["file_size_in_bytes"]))
        entries = _set(entries, "file_path", self.moved_all(paths))
        entries = _set(
            entries, "referenced_data_file", self.moved_all(entries["referenced_data_file"].combine_chunks())
        )
        for name in ("lower_bounds", "upper_bounds"):
            entries = _set(entries, name, self._bounds(entries[name].combine_chunks()))
        kept = {key: value for key, value in head.metadata.items() if not key.startswith("avro.")}
        kept |= {"format-version": str(version).encode(), "content": kept.get("content", b"data")}
        return manifest.encode(entries, self.end, spec, version, kept)

    def _bounds(self, bounds: pa.ListArray) -> pa.Array:
        """Bounds by field id, with paths of data files moved."""
        pairs = bounds.flatten()
        keys, values = pairs.field("key"), pairs.field("value")
        is_path = pc.equal(keys, PATH_ID)
        if not pc.any(is_path, min_count=0).as_py():
            return bounds
        moved = self.moved_all(values.filter(is_path).cast(pa.string())).cast(pa.binary())
        changed = pa.StructArray.from_arrays(
            [keys, pc.replace_with_mask(values, is_path, moved)], fields=list(bounds.type.value_type)
        )
        lengths = np.asarray(pc.fill_null(pc.list_value_length(bounds), 0))
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, changed, type=bounds.type, mask=bounds.is_null())

    def _list(self, snapshot: Mapping[str, Any], lengths: Mapping[str, int]) -> bytes:
        (metas,) = manifest.read_lists(self.reader, [snapshot["manifest-list"]])
        paths = metas["manifest_path"].combine_chunks()
        metas = _set(metas, "manifest_length", pa.array([lengths[path] for path in paths.to_pylist()], pa.int64()))
        metas = _set(metas, "manifest_path", self.moved_all(paths))
        return manifest.emit_list(
            metas.select(META.names),
            self.end,
            snapshot["snapshot-id"],
            snapshot.get("parent-snapshot-id"),
            snapshot.get("sequence-number", 0),
            snapshot.get("first-row-id"),
        )

    def _document(self, old: Mapping[str, Any]) -> dict[str, Any]:
        moved = self.moved
        properties = dict(old.get("properties") or {})
        for key in _PATHS:
            if key in properties and relative(self.source, properties[key].rstrip("/")) is not None:
                properties[key] = moved(properties[key].rstrip("/"))
        log = old.get("metadata-log") or ()
        snapshots = [{**s, **_each(s, ("manifest-list",), moved)} for s in old.get("snapshots") or ()]
        document = {
            **old,
            "location": moved(old["location"].rstrip("/")),
            "properties": properties,
            "metadata-log": [{**e, "metadata-file": moved(e["metadata-file"])} for e in log],
            "snapshots": snapshots,
        }
        for key in ("statistics", "partition-statistics"):
            if key in old:
                document[key] = [{**s, "statistics-path": moved(s["statistics-path"])} for s in old[key]]
        return document


def relocation(reader: Reader, base: State, source: str, target: str, start: str | None, end: str | None) -> Relocation:
    """The table under another prefix. `start` and `end` are names of its metadata files. Raises `InvalidInput`, and
    `NotFound` for a version that its log does not list."""
    chain = metadata.named_documents(base)
    names = [path.rpartition("/")[2] for path in chain]
    for name in (start, end):
        if name is not None and name.rpartition("/")[2] not in names:
            raise NotFound(f"{reader.root}: no metadata file {name!r}; the log names {', '.join(names[:10])}")
    first = 0 if end is None else names.index(end.rpartition("/")[2])
    last = len(names) if start is None else names.index(start.rpartition("/")[2])
    if start is not None and last <= first:
        raise InvalidInput(f"{reader.root}: start_version={start!r} is not older than {names[first]!r}")
    chosen = chain[first:last]
    documents = {
        path: document.parse(data, path)
        for path, data in zip(chosen, reader.read_many(chosen), strict=True)
        if data is not None
    }
    newest = metadata.parse(reader.read(chain[first]), base.version - first, chain[first])
    before = metadata.NOTHING if start is None else metadata.parse(reader.read(chain[last]), 0, chain[last])
    if newest.document["format-version"] < 2 or any("manifests" in s for s in metadata.snapshots(newest).values()):
        raise InvalidInput(f"{reader.root}: a table of version 1: make it one of version 2 first")
    return Relocation(reader, source.rstrip("/"), target.rstrip("/"), before, newest, documents)


# --- private ----------------------------------------------------------------------------------------------------------


def _manifests(reader: Reader, snapshots: list[Mapping[str, Any]]) -> pa.Array:
    tables = manifest.read_lists(reader, [s["manifest-list"] for s in snapshots])
    return pc.unique(pa.concat_tables([manifest.EMPTY_METAS, *tables])["manifest_path"].combine_chunks())


def _set(table: pa.Table, name: str, values: Any) -> pa.Table:
    position = table.schema.get_field_index(name)
    return table.set_column(position, table.schema.field(position), values)


def _each(entry: Mapping[str, Any], keys: tuple[str, ...], moved: Any) -> dict[str, Any]:
    return {key: moved(entry[key]) for key in keys if key in entry}
