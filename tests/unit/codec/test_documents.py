"""Documents of which a part was parsed and written before: the same values, the same bytes, the same refusals."""

import gzip
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakeformat import CorruptTable, Lake
from lakeformat.codec import document as documents
from lakeformat.codec.document import Written
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import CorruptFile
from lakeformat.storage.cache import Cache
from lakeformat.storage.files import open_store
from lakeformat.table import Table

KNOWN = [{"id": 1, "text": "ö ,] \\"}, {"id": 2}]
WRITTEN = Written().followed(KNOWN[:1]).followed(KNOWN)
TEXT = b"".join(WRITTEN.text)


def dumped(document):
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "data",
    [
        dumped({"a": 1, "parts": [*KNOWN, {"id": 3}], "b": 2}),
        dumped({"parts": KNOWN}),
        dumped({"parts": KNOWN[:1]}),
        dumped({"parts": []}),
        dumped({"other": {"parts": KNOWN}, "parts": [{"id": 9}]}),
        dumped({"other": {"parts": KNOWN}}),
        dumped({'"parts': KNOWN}),
        dumped({"a": '"parts":[' + TEXT.decode(), "parts": KNOWN}),
        b'{"parts":[1],"parts":[' + TEXT + b"]}",
        b'{"parts":[' + TEXT + b'],"parts":[7]}',
        b'{ "parts" : [' + TEXT + b"]}",
        gzip.compress(dumped({"parts": [*KNOWN, {"id": 3}]}), mtime=0),
    ],
)
def test_a_document_says_the_same_whatever_is_known_of_its_lists(data):
    document, rest, cut = documents.parse_after(data, "it", {"parts": WRITTEN, "absent": WRITTEN})
    whole = document | {name: [*begun.parts, *document[name]] for name, begun in cut.items()}
    assert whole == documents.parse(data, "it")
    assert list(whole) == list(documents.parse(data, "it"))
    assert len(rest) == len(data) or cut


@pytest.mark.parametrize("after", [b"]", b",", b",]}", b"}", b',"parts":[}'])
def test_what_is_no_json_is_none_whatever_is_known_of_its_lists(after):
    with pytest.raises(CorruptFile, match="not JSON"):
        documents.parse_after(b'{"parts":[' + TEXT + after, "it", {"parts": WRITTEN})


@pytest.mark.parametrize("more", [[], [{"id": 3}]])
def test_the_text_of_a_list_is_written_again(more):
    document = {"a": {"x": "é"}, "parts": [*KNOWN, *more], "none": None}
    assert WRITTEN.begins(document["parts"])
    assert not WRITTEN.begins([dict(KNOWN[0]), KNOWN[1]])
    assert documents.emit(document, lists={"parts": WRITTEN}) == dumped(document) == documents.emit(document)
    assert b"".join(WRITTEN.followed(document["parts"]).text) == dumped(document["parts"])[1:-1]


SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A table of some snapshots, the folder of its documents, and what it knows of their lists."""
    uri = Lake(tmp_path_factory.mktemp("grown")).create_table("d.t", SCHEMA, format="iceberg").uri
    store, cache = open_store(uri, {"fsync": "false"}), Cache()
    table = Table("d.t", store, Iceberg(cache))
    for number in range(5):
        table.append(pa.table({"id": [number]}))
    table.delete("id = 1")
    table.expire_snapshots(retain_last=4)
    table.create_branch("side")
    for number in range(3):
        table.append(pa.table({"id": [number]}), properties={"note": f"n{number}"})
    return (
        table,
        Path(uri.removeprefix("file://")) / "metadata",
        lambda: {name: cache.written(store.root)[name] for name in ("snapshots", "snapshot-log")},
    )


def test_versions_have_the_bytes_that_they_have_without_the_text_of_the_one_before(grown):
    _, folder, _ = grown
    for path in folder.glob("v*.metadata.json"):
        assert path.read_bytes() == dumped(json.loads(path.read_bytes())), path


def test_a_lake_that_wrote_the_versions_sees_what_another_sees(grown):
    table, folder, known = grown
    (version, newest) = max((int(path.name[1:].partition(".")[0]), path) for path in folder.glob("v*.metadata.json"))
    document, rest, cut = documents.parse_after(newest.read_bytes(), "it", known())
    assert {name: len(document[name]) for name in cut} == {"snapshots": 1, "snapshot-log": 1}
    assert len(rest) < newest.stat().st_size / 2, version
    fresh = Lake(table.uri.rpartition("/d.db")[0]).table("d.t")
    assert table.snapshots() == fresh.snapshots()
    assert table.inspect.snapshots().equals(fresh.inspect.snapshots())
    assert table.inspect.history().equals(fresh.inspect.history())


def itself(document):
    document["snapshots"][-1]["parent-snapshot-id"] = document["snapshots"][-1]["snapshot-id"]


def each_other(document):
    """The newest comes from the oldest, whose parent has expired: its id is taken again."""
    document["snapshots"][-1] |= {
        "snapshot-id": document["snapshots"][0]["parent-snapshot-id"],
        "parent-snapshot-id": document["snapshots"][0]["snapshot-id"],
    }
    document["current-snapshot-id"] = document["refs"]["main"]["snapshot-id"] = document["snapshots"][-1]["snapshot-id"]


def no_number(document):
    document["snapshots"][-1]["timestamp-ms"] = "today"


def beyond(document):
    document["snapshot-log"][-1]["timestamp-ms"] = 2**63


def surrogate(document):
    document["snapshots"][-1]["summary"]["note"] = "\ud800"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (itself, "is its own ancestor"),
        (each_other, "is its own ancestor"),
        (no_number, r"it\['snapshots'\].*'timestamp-ms'"),
        (beyond, "beyond 64 bits"),
        (surrogate, "surrogates not allowed"),
    ],
)
def test_what_is_new_in_a_version_is_checked(grown, change, says):
    table, folder, _ = grown
    path = max(folder.glob("v*.metadata.json"), key=lambda field: int(field.name[1:].partition(".")[0]))
    before = path.read_bytes()
    document = json.loads(before)
    change(document)
    path.write_bytes(json.dumps(document, separators=(",", ":")).encode())
    try:
        for reader in (table, Lake(table.uri.rpartition("/d.db")[0])):
            with pytest.raises(CorruptTable, match=says):
                (reader if reader is table else reader.table("d.t")).append(pa.table({"id": [9]}))
    finally:
        path.write_bytes(before)


def test_a_text_of_very_many_pieces_stays_one():
    parts = [{"id": number} for number in range(200)]
    grown = Written()
    for count in range(len(parts)):
        grown = grown.followed(parts[: count + 1])
    assert b"".join(grown.text) == dumped(parts)[1:-1]
    assert len(grown.text) < len(parts) / 2
    document = {"parts": [*parts, {"id": 200}]}
    assert documents.emit(document, lists={"parts": grown}) == dumped(document)
    assert documents.parse_after(dumped(document), "it", {"parts": grown})[0] == {"parts": [{"id": 200}]}


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_lists_that_repeat_those_before_them_say_the_same_to_others(tmp_path, format):
    """In Iceberg's, the fields of a record change with the format version."""
    table = Lake(tmp_path, fsync="false").create_table("d.t", SCHEMA, format=format)
    for number in range(9):
        table.append(pa.table({"id": [number]}))
        if number == 3 and format == "iceberg":
            table.alter().set_properties({"format-version": "3"}).commit()
        if number == 6:
            table.delete("id = 2")
        fresh = Lake(tmp_path, fsync="false").table("d.t")
        assert fresh.inspect.manifests().equals(table.inspect.manifests())
        assert fresh.scan().to_arrow()["id"].to_pylist() == table.scan().to_arrow()["id"].to_pylist()
    assert sorted(fresh.scan().to_arrow()["id"].to_pylist()) == [0, 1, 3, 4, 5, 6, 7, 8]
    names = "manifest/manifest-list-*" if format == "paimon" else "metadata/snap-*.avro"
    lists = sorted(Path(table.uri.removeprefix("file://")).glob(names))
    assert len(lists) == (20 if format == "paimon" else 10)
    for list_ in lists:
        records = [*fastavro.reader(list_.open("rb"))]
        paths = [record.get("_FILE_NAME") or record.get("manifest_path") for record in records]
        assert len(set(paths)) == len(paths)
