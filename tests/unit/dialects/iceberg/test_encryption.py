"""Encrypted Iceberg tables: those of Java row for row, deletion vectors and long files; and what is said where a key does not fit."""

import base64
import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import lakeformat
from lakeformat import CorruptFile, CorruptTable, InvalidInput, Lake, MissingKey, UnsupportedFeature
from lakeformat.codec.iceberg import gcm_stream
from lakeformat.dialects.iceberg import encryption
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.encryption import MasterKeys
from lakeformat.model.work import FileKey
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table

GOLDEN = Path(__file__).parents[3] / "golden" / "encrypted"
MASTER = {"keyA": b"m" * 32}
FILE = FileKey(b"k" * 16, b"signed")


def of_java(name, keys=None):
    """(a table that Java encrypted, opened with `keys` or its own; its files; what Java read from it)."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as packed:
        expected = json.loads(packed.read("expected.json"))
        store = MemoryFiles(expected["location"])
        for path in packed.namelist():
            if path != "expected.json":
                store.write(path, packed.read(path))
    own = {"keyA": bytes.fromhex(expected["key"])}
    return Table("g.t", store, Iceberg(keys=MasterKeys(own if keys is None else keys))), store, expected


def rows(scan):
    return [list(row.values()) for row in scan.to_arrow().sort_by("id").to_pylist()]


@pytest.mark.parametrize("name", ["parquet", "avro"])
def test_a_table_that_java_encrypted_reads_row_for_row(name):
    table, _, expected = of_java(name)
    for snapshot_id, told in expected["snapshots"].items():
        assert rows(table.scan(snapshot_id=int(snapshot_id))) == told
    assert rows(table.scan(where="id >= 8 and k = 'a'")) == [[id, "a", f"value {id}"] for id in (8, 10, 11)]
    assert table.scan(where="id > 6").count() == 4
    task = pickle.loads(pickle.dumps(table.scan().plan()[0]))
    assert task.keys
    assert all(key.key.hex() not in repr(task) for key in task.keys)
    assert repr(task.keys[0].key) not in repr(task)
    assert repr(task.keys[0].signed) not in repr(task)


def test_a_function_stands_for_a_kms_and_is_asked_once(tmp_path):
    asked = []

    def unwrap(wrapped, key_id):
        asked.append(key_id)
        return gcm_stream.opened_block(bytes.fromhex(of_java("avro")[2]["key"]), wrapped, None)

    table, _, expected = of_java("avro", unwrap)
    for snapshot_id, told in expected["snapshots"].items():
        assert rows(table.scan(snapshot_id=int(snapshot_id))) == told
    assert asked == ["keyA"]


def raising(wrapped, key_id):
    raise RuntimeError("secret")


def test_a_key_that_is_missing_or_wrong_is_named_and_never_shown():
    for keys, said in (
        ({}, "encrypted with the master key 'keyA', which was not given; give it by Lake"),
        ({"keyB": b"s" * 16}, "which was not given"),
        ({"keyA": b"s" * 16}, "the master key given as 'keyA' does not open it"),
        (raising, "no key for the master key 'keyA': RuntimeError"),
    ):
        table = of_java("parquet", keys)[0]
        assert table.snapshots()
        assert table.schema.fields
        with pytest.raises(MissingKey, match=said) as failure:
            table.scan().to_arrow()
        assert "sss" not in str(failure.value)
        assert "secret" not in str(failure.value)
    with pytest.raises(InvalidInput, match="did not return 16, 24 or 32 bytes"):
        of_java("parquet", lambda wrapped, key_id: "no")[0].scan().to_arrow()
    for keys in ({"a": b"short"}, {"a": "k" * 16}, {1: b"k" * 16}, b"k" * 16):
        with pytest.raises(InvalidInput, match="encryption_keys") as failure:
            Lake("/nowhere", encryption_keys=keys)
        assert "kkk" not in str(failure.value)
        assert "short" not in str(failure.value)
    assert "mmm" not in repr(Lake("/nowhere", encryption_keys=MASTER)) + repr(MasterKeys(MASTER)) + repr(
        Iceberg(keys=MasterKeys(MASTER))
    )


@pytest.mark.parametrize("name", ["parquet", "avro"])
def test_a_damaged_file_of_any_kind_is_named(name):
    for part in ("metadata/snap-", "-m0.avro", "data/k=b/"):
        table, store, _ = of_java(name)
        for path in [f.path for f in store.list("") if part in f.path]:
            data = bytearray(store.read(path))
            data[100] ^= 1  # Within pages: nobody reads the indexes that follow them.
            store.write(path, bytes(data))
        with pytest.raises(CorruptFile, match=part):
            table.scan().to_arrow()
    table, store, _ = of_java("avro")
    for path in [f.path for f in store.list("") if "data/k=b/" in f.path]:
        store.write(path, store.read(path)[:-20])
    with pytest.raises(CorruptFile, match=r"k=b.*its table says 5\d\d"):
        table.scan().to_arrow()


def test_damaged_keys_of_the_table_are_named():
    for change, said in (
        (lambda key: key.pop("properties", None), "has no KEY_TIMESTAMP"),
        (lambda key: key.__setitem__("encrypted-key-metadata", "?"), "in base64"),
        (lambda key: key.__setitem__("key-id", "other"), "has no encryption key"),
        (
            lambda key: key["properties"].__setitem__("KEY_TIMESTAMP", "1") if "properties" in key else None,
            "is damaged",
        ),
    ):
        table, store, _ = of_java("avro")
        path = max(f.path for f in store.list("metadata") if f.path.endswith(".metadata.json"))
        document = json.loads(store.read(path))
        for key in document["encryption-keys"]:
            change(key)
        store.write(path, json.dumps(document).encode())
        with pytest.raises(CorruptTable, match=said):
            table.scan().to_arrow()


def test_an_encrypted_table_is_not_written():
    table, store, _ = of_java("parquet")
    before = {f.path for f in store.list("")}
    for verb in (
        lambda: table.append(pa.table({"id": [1], "k": ["a"], "v": ["b"]})),
        lambda: table.delete(where="id = 1"),
        lambda: table.compact(full=True),
        lambda: table.create_tag("t"),
        lambda: table.expire_snapshots(retain_last=1),
    ):
        with pytest.raises(UnsupportedFeature, match="encrypt"):
            verb()
    assert {f.path for f in store.list("")} == before


def sealed(key, plain, signed=None):
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, plain, signed)


def stream(key, plain, block=1 << 20):
    """An AES GCM stream."""
    pieces = [plain[at : at + block] for at in range(0, max(len(plain), 1), block)]
    blocks = (sealed(key.key, piece, key.signed + struct.pack("<i", n)) for n, piece in enumerate(pieces))
    return b"AGS1" + struct.pack("<i", block) + b"".join(blocks)


def metadata(key, size=None):
    """Standard key metadata, as Java writes it."""

    def number(n):
        n, out = n << 1, b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])

    length = b"\0" if size is None else b"\2" + number(size)
    return b"\1" + number(len(key.key)) + key.key + b"\2" + number(len(key.signed)) + key.signed + length


def test_a_stream_of_blocks_is_read_at_random():
    plain = os.urandom(1000)
    for block in (7, 100, 500, 1000, 1001):
        data = stream(FILE, plain, block)
        file = gcm_stream.Stream(io.BytesIO(data + b"more"), FileKey(FILE.key, FILE.signed, len(data)), "f")
        assert file.size() == 1000
        assert gcm_stream.decrypt(data, FILE, "f") == plain
        for start, end in ((0, 1), (499, 501), (993, 1000), (0, 1000), (995, 1005)):
            file.seek(start)
            assert file.read(end - start) == plain[start:end]
        assert io.BufferedReader(file).seek(-3, io.SEEK_END) == 997
    assert gcm_stream.decrypt(stream(FILE, b""), FILE, "f") == b""
    data = stream(FILE, plain, 100)
    swapped = data[:8] + data[136:264] + data[8:136] + data[264:]
    for damaged, said in (
        (swapped, "encrypted block 0 is damaged"),
        (data[:8], "cut off"),
        (data[: 8 + 128 * 3 + 20], "cut off"),
        (data[:4] + struct.pack("<i", -1) + data[8:], "blocks of -1 bytes"),
        (b"PAR1" + data[4:], "not encrypted, as its table says"),
        (b"", "not encrypted, as its table says"),
    ):
        with pytest.raises(CorruptFile, match=said):
            gcm_stream.decrypt(damaged, FILE, "f")


def test_key_metadata_of_other_kinds_is_refused():
    assert encryption.file_key(metadata(FILE, 77), "f") == FileKey(FILE.key, FILE.signed, 77)
    assert encryption.file_key(metadata(FILE)[:-1], "f") == FILE  # Of Iceberg before 1.11.
    with pytest.raises(UnsupportedFeature, match="in a way of its own"):
        encryption.file_key(b"\2abc", "f")
    for data in (b"\1", b"\1\x20abc", metadata(FILE)[:20], b"\1\2k\0\0"):
        with pytest.raises(CorruptFile, match="key metadata"):
            encryption.file_key(data, "f")


def encrypt(folder):
    """A table of ours (version 3) as Java would have encrypted it: data and deletion vectors, manifests, their list."""

    def changed(path, change, name):
        reader = fastavro.reader(io.BytesIO(Path(path).read_bytes()))
        records, out = list(reader), io.BytesIO()
        for record in records:
            change(record)
        fastavro.writer(
            out,
            reader.writer_schema,
            records,
            metadata={k: v for k, v in reader.metadata.items() if not k.startswith("avro.")},
        )
        key = FileKey(os.urandom(16), name)
        Path(path).write_bytes(data := stream(key, out.getvalue(), 512))
        return metadata(key, len(data))

    def file(entry):
        held = entry["data_file"]
        path, key = Path(held["file_path"].removeprefix("file://")), FileKey(os.urandom(16), os.urandom(16))
        if held["key_metadata"] is not None or not path.exists():
            return
        if held["file_format"].lower() == "parquet":
            props = pe.create_encryption_properties(key.key, aad_prefix=key.signed, store_aad_prefix=False)
            pq.write_table(pq.read_table(path), path, encryption_properties=props, row_group_size=1000)
        else:
            path.write_bytes(stream(key, path.read_bytes(), 64))
        held["key_metadata"], held["file_size_in_bytes"] = metadata(key), path.stat().st_size

    document = max(folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    base = json.loads(document.read_text())
    base["snapshots"] = [s for s in base["snapshots"] if s["snapshot-id"] == base["current-snapshot-id"]]
    base["snapshots"][0].pop("parent-snapshot-id", None)
    base["snapshot-log"] = base["snapshot-log"][-1:]

    def manifest(meta):
        meta["key_metadata"] = changed(meta["manifest_path"].removeprefix("file://"), file, b"manifest")

    own, kek = changed(base["snapshots"][0]["manifest-list"].removeprefix("file://"), manifest, b"list"), os.urandom(16)
    base["snapshots"][0]["key-id"] = "list"
    text = lambda data: base64.b64encode(data).decode()  # noqa: E731
    base["encryption-keys"] = [
        {"key-id": "kek", "encrypted-key-metadata": text(sealed(MASTER["keyA"], kek)), "encrypted-by-id": "keyA",
         "properties": {"KEY_TIMESTAMP": "1700000000000"}},
        {"key-id": "list", "encrypted-key-metadata": text(sealed(kek, own, b"1700000000000")), "encrypted-by-id": "kek"},
    ]  # fmt: skip
    base["properties"]["encryption.key-id"] = "keyA"
    document.write_text(json.dumps(base))


def test_deletion_vectors_long_files_and_queries_in_a_lake(tmp_path):
    lake = Lake(tmp_path, encryption_keys=MASTER)
    properties = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = lake.create_table("d.t", schema, format="iceberg", properties=properties)
    table.append(pa.table({"id": range(5000), "v": [f"value {i}" for i in range(5000)]}))
    table.delete(where="id % 10 = 3")
    expected = table.scan().to_arrow().sort_by("id")
    encrypt(tmp_path / "d.db/t")
    opened = lakeformat.open_table(tmp_path / "d.db/t", encryption_keys=MASTER)
    for each in (
        Lake(tmp_path, encryption_keys=MASTER).table("d.t"),
        pickle.loads(pickle.dumps(lake)).table("d.t"),
        opened,
    ):
        assert each.scan().to_arrow().sort_by("id") == expected
        assert each.scan().count() == 4500
        assert each.scan(where="id between 4001 and 4005").to_arrow()["id"].to_pylist() == [4001, 4002, 4004, 4005]
    found = Lake(tmp_path, encryption_keys=MASTER).sql("select count(*) c, max(v) m from d.t where id >= 1000")
    assert found.to_arrow().to_pylist() == [{"c": 3600, "m": "value 4999"}]
    with pytest.raises(MissingKey):
        Lake(tmp_path).sql("select * from d.t").to_arrow()
