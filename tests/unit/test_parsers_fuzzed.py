"""Whatever is in a file: parsers, and what reads what they give, raise nothing but a `LakeError` that names the file.

Valid documents with a part replaced, and valid files with bits flipped or cut short. The number of examples is small; run one
test with another profile to search longer (`--hypothesis-profile`).
"""

import contextlib
import copy
import json
import random
import re
import sqlite3
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeformat import CorruptFile, CorruptTable, Lake
from lakeformat.catalogs.rest import RestCatalog, RestIssuer
from lakeformat.catalogs.sql import SqlCatalog
from lakeformat.codec import bitmap, parsing
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.codec.avro import encode as avro_encode
from lakeformat.codec.avro import file as avro
from lakeformat.codec.paimon import vector_file
from lakeformat.dialects.iceberg import manifest, name_mapping, scan
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.scan import Files
from lakeformat.dialects.paimon import manifest as paimon_manifest
from lakeformat.dialects.paimon import metadata as paimon_metadata
from lakeformat.engines.keyed import roaring64
from lakeformat.errors import LakeError
from lakeformat.expression import sql_text
from lakeformat.model.predicate import bind
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Plan, Stamp
from lakeformat.storage.credentials import Renewing
from lakeformat.storage.files import open_store
from lakeformat.storage.head import Pointer
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.warehouse.views import View, Views, created
from tests import doors
from tests.draw import IS_LONG
from tests.sql.examples import GROUPS
from tests.unit.rest_server import RestServer

dialect = Iceberg()

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("dt", pa.string()), ("st", pa.struct([("a", pa.int32())]))]
)
JUNK = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    1e308,
    "",
    "x",
    "1",
    [],
    ["x"],
    [[]],
    {},
    {"a": None},
    [{}],
    "\ud800",
    [None],
    10**400,
]
NUMBERS = count()


def fuzzed(examples):
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    how = settings(
        max_examples=examples if IS_LONG else examples // 3,
        derandomize=True,
        deadline=None,
        suppress_health_check=checks,
    )
    return lambda test: how(given(seed=st.integers(0, 2**32))(test))


def rows(start):
    ids = list(range(start, start + 4))
    return pa.table(
        {"id": ids, "v": ["x"] * 4, "dt": ["ab"[i % 2] for i in ids], "st": [{"a": 1}, None] * 2}, schema=SCHEMA
    )


def parts(document, path=()):
    """Where every part of a document lies."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, part in items:
        yield from parts(part, (*path, key))


def changed(document, chance):
    """The document with some of its parts taken out, replaced or moved."""
    found = {"it": copy.deepcopy(document)}
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        path = ("it", *chance.choice(list(parts(found["it"]))))
        at = found
        for key in path[:-1]:
            at = at[key]
        match chance.randrange(4):
            case 0 if isinstance(at, dict) and len(path) > 1:
                del at[path[-1]]
            case 1 if isinstance(at, list) and at:
                at.append(copy.deepcopy(chance.choice(at)))
            case 2:
                inner = found["it"]
                for key in chance.choice(list(parts(found["it"]))):
                    inner = inner[key]
                at[path[-1]] = copy.deepcopy(inner)
            case _:
                at[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    return found["it"]


def flipped(data, chance):
    """The bytes with a few bits flipped, or cut short, or with a run of them put elsewhere."""
    found = bytearray(data)
    match chance.randrange(6):
        case 0:
            return bytes(found[: chance.randrange(len(found))])
        case 1:
            at, to, size = (chance.randrange(len(found)) for _ in range(3))
            found[to : to + size % 64] = found[at : at + size % 64]
            return bytes(found)
    for _ in range(chance.choice([1, 1, 2, 8])):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def with_schema(data, schema):
    """An Avro file whose header has another schema."""
    head = avro.read_head(data)
    said = {**head.metadata, "avro.schema": json.dumps(schema).encode()}
    out = [b"Obj\x01", avro_encode.varint(len(said))]
    for name, value in said.items():
        out += [avro_encode.varint(len(name)), name.encode(), avro_encode.varint(len(value)), value]
    return b"".join([*out, b"\0", head.sync, data[head.size_bytes :]])


def plain(data):
    """An Avro file without compression, so that a flipped bit is a value and no broken block."""
    decoded = avro.decode(data)
    kept = {k: v for k, v in decoded.metadata.items() if not k.startswith("avro.")}
    return avro.encode(decoded.table, decoded.schema, "null", kept, sync=bytes(16))


def named(error, where):
    assert isinstance(error, LakeError), error
    assert where in str(error), f"{where!r} is not named: {error}"


# --- Iceberg ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory):
    properties = {"format-version": "2", "write.delete.mode": "merge-on-read"}
    t = Lake(tmp_path_factory.mktemp("iceberg"), fsync="false").create_table(
        "d.t", SCHEMA, format="iceberg", partition_by=["dt", "truncate(4, id)"], properties=properties
    )
    t.append(rows(0))
    t.append(rows(4))
    t.delete("id = 3")
    t.create_tag("kept")
    t.create_branch("side")
    return t


def metadata_file(table):
    return max((Path(table.uri[7:]) / "metadata").glob("v*.json"), key=lambda p: int(p.name[1:].split(".")[0]))


def look(table):
    """Whatever can be asked of a table without changing it."""
    yield lambda: table.schema
    yield lambda: table.properties
    yield lambda: [repr(snapshot) for snapshot in table.snapshots()]
    yield lambda: table.scan().to_arrow()
    yield lambda: table.scan(where="dt = 'a' and id < 2").count()
    yield lambda: table.scan(tag="kept").to_arrow()
    yield lambda: table.scan(as_of="2100-01-01 00:00:00").plan()
    yield lambda: table.branch("side").scan().count()
    yield lambda: table.changes(0).to_arrow()
    for name in (
        "files",
        "partitions",
        "snapshots",
        "tags",
        "branches",
        "schemas",
        "options",
        "manifests",
        "history",
        "refs",
    ):
        if hasattr(table.inspect, name):
            yield getattr(table.inspect, name)


@fuzzed(40)
def test_iceberg_metadata(iceberg, seed):
    chance, path = random.Random(seed), metadata_file(iceberg)
    valid = path.read_bytes()
    try:
        path.write_bytes(
            json.dumps(changed(json.loads(valid), chance)).encode() if chance.random() < 0.8 else flipped(valid, chance)
        )
        for look_up in look(iceberg):
            with contextlib.suppress(LakeError):
                look_up()
    finally:
        path.write_bytes(valid)


@fuzzed(120)
def test_iceberg_name_mapping(iceberg, seed):
    chance = random.Random(seed)
    mapping = name_mapping.default(iceberg.schema.fields)
    text = json.dumps(changed(mapping, chance))
    text = text if chance.random() < 0.7 else flipped(text.encode(), chance).decode(errors="replace")
    assert name_mapping.evolved(text, iceberg.schema.fields, iceberg.schema.fields[::-1])
    try:
        name_mapping.parse(text)
    except CorruptTable as error:
        named(error, name_mapping.PROPERTY)


@pytest.mark.parametrize(
    "text", ['{"field-id": 1}', "1", "null", '[{"field-id": 1}]', '[{"field-id": 1, "names": "v"}]', "[1]", "{"]
)
def test_a_name_mapping_that_is_none(tmp_path, text):
    t = Lake(tmp_path, fsync="false").create_table(
        "d.t", SCHEMA, format="iceberg", properties={name_mapping.PROPERTY: text}
    )
    t.append(rows(0))
    with pytest.raises(CorruptTable, match=r"schema\.name-mapping\.default"):
        t.scan().to_arrow()


def avro_files(table):
    """(a data manifest, a manifest of deletes, a manifest list, its rows)."""
    base = doors.view(table).state
    path = base.snapshot_document["manifest-list"]
    metas = manifest.parse_list(doors.store(table).read(path), path)
    names = [metas.filter(pa.compute.equal(metas["content"], kind))["manifest_path"][0].as_py() for kind in (0, 1)]
    return *(doors.store(table).read(name) for name in names), doors.store(table).read(path), metas


def read_manifest(base, data, meta):
    """What a scan makes of a manifest; its name is new each time, for manifests are kept by name."""
    store, name = MemoryFiles(), f"m-{next(NUMBERS)}.avro"
    store.write(name, data)
    place = manifest.META.get_field_index("manifest_path")
    meta = meta.set_column(place, manifest.META.field(place), pa.array([name]))
    try:
        entries = manifest.read_all(store, base, meta)
    except LakeError as error:
        named(error, name)
        return
    where = bind(sql_text.parse("dt = 'a' and id < 2 or v > 'x'"), base.schema.fields)
    try:
        if meta["content"][0].as_py() == 0:
            found = scan.may_hold(base, manifest.by_partition(entries, base, where), where)
            scan.tasks(store, base, Files(found, entries.slice(0, 0)), base.schema.fields, where)
        else:
            scan.all_delete_files(store, base, entries)
    except LakeError:
        pass


@fuzzed(120)
def test_iceberg_manifests(iceberg, seed):
    chance = random.Random(seed)
    data, deletes, _, metas = avro_files(iceberg)
    kind = chance.randrange(2)
    whole = plain((data, deletes)[kind])
    if chance.random() < 0.4:
        try:
            made = with_schema(whole, changed(avro.read_head(whole).schema, chance))
        except LakeError:
            return
    else:
        made = flipped(whole, chance)
    own = metas.filter(pa.compute.equal(metas["content"], kind)).slice(0, 1)
    read_manifest(doors.view(iceberg).state, made, own)


@fuzzed(120)
def test_iceberg_manifest_lists(iceberg, seed):
    chance = random.Random(seed)
    whole = plain(avro_files(iceberg)[2])
    made = (
        flipped(whole, chance)
        if chance.random() < 0.6
        else with_schema(whole, changed(avro.read_head(whole).schema, chance))
    )
    base = doors.view(iceberg).state
    where = bind(sql_text.parse("dt = 'a' and id < 2"), base.schema.fields)
    try:
        metas = manifest.parse_list(made, "snap-1.avro")
    except LakeError as error:
        named(error, "snap-1.avro")
        return
    with contextlib.suppress(LakeError):
        manifest.prune_metas(metas, base, where, where)


def test_a_manifest_whose_data_file_is_a_union(iceberg):
    decoded = avro.decode(avro_files(iceberg)[0])
    (file,) = [f for f in decoded.schema["fields"] if f["name"] == "data_file"]
    file["type"] = ["null", file["type"]]
    with pytest.raises(CorruptFile, match=r"m\.avro: data_file is of type \['null'"):
        manifest.parse(avro.encode(decoded.table, decoded.schema), "m.avro")


@fuzzed(120)
def test_deletion_vectors(seed):
    chance = random.Random(seed)
    positions = np.unique(np.array([chance.randrange(2 ** chance.randrange(1, 31)) for _ in range(50)]))
    vector = bitmap.encode(positions, wide=chance.random() < 0.5)
    index, offsets = vector_file.emit([vector, vector])
    for parse in (
        lambda: bitmap.decode(bitmap.framed(flipped(vector, chance)), "v.puffin"),
        lambda: bitmap.decode(
            vector_file.take(flipped(index, chance), offsets[1], vector_file.length(vector), "v.puffin"), "v.puffin"
        ),
        lambda: bitmap.decode(
            vector_file.take(index, chance.randrange(-9, 2**31), chance.randrange(99), "v.puffin"), "v.puffin"
        ),
    ):
        try:
            parse()
        except LakeError as error:
            named(error, "v.puffin")
    with contextlib.suppress(ValueError):
        roaring64.deserialize(flipped(roaring64.serialize(roaring64.BitMap64(positions.tolist())), chance))


# --- Paimon -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paimon(tmp_path_factory):
    properties = {"bucket": "1", "deletion-vectors.enabled": "true"}
    t = Lake(tmp_path_factory.mktemp("paimon"), fsync="false").create_table(
        "d.t", SCHEMA, format="paimon", partition_by=["dt"], primary_key=["id", "dt"], properties=properties
    )
    t.append(rows(0))
    t.append(rows(2))
    t.create_tag("kept")
    return t


@pytest.mark.parametrize("folder", ["snapshot", "schema"])
@fuzzed(40)
def test_paimon_documents(paimon, folder, seed):
    chance = random.Random(seed)
    path = max((Path(paimon.uri[7:]) / folder).glob(f"{folder}-*"), key=lambda p: int(p.name.split("-")[1]))
    valid = path.read_bytes()
    try:
        path.write_bytes(
            json.dumps(changed(json.loads(valid), chance)).encode() if chance.random() < 0.8 else flipped(valid, chance)
        )
        for look_up in look(paimon):
            with contextlib.suppress(LakeError):
                look_up()
    finally:
        path.write_bytes(valid)


@fuzzed(120)
def test_paimon_manifests(paimon, seed):
    chance = random.Random(seed)
    folder = Path(paimon.uri[7:]) / "manifest"
    path = chance.choice(sorted(folder.iterdir()))
    if path.name.startswith("index-manifest"):
        parse = paimon_manifest.parse_index
    else:
        parse = paimon_manifest.parse_list if path.name.startswith("manifest-list") else paimon_manifest.parse
    whole = plain(path.read_bytes())
    made = (
        flipped(whole, chance)
        if chance.random() < 0.6
        else with_schema(whole, changed(avro.read_head(whole).schema, chance))
    )
    try:
        parse(made, "manifest-1")
    except LakeError as error:
        named(error, "manifest-1")


@fuzzed(120)
def test_paimon_changelog_documents(paimon, seed):
    chance = random.Random(seed)
    path = next((Path(paimon.uri[7:]) / "snapshot").glob("snapshot-1"))
    data = json.dumps(changed(json.loads(path.read_bytes()), chance)).encode()
    for parse in (paimon_metadata.parse_snapshot, paimon_metadata.parse_changelog):
        try:
            parse(data, "snapshot-1")
        except LakeError as error:
            named(error, "snapshot-1")


# --- catalogs ---------------------------------------------------------------------------------------------------------

OPTIONS = {
    "s3.endpoint": "http://127.0.0.1:1",
    "s3.region": "here",
    "s3.access-key-id": "a",
    "s3.session-token-expires-at-ms": "1",
    "gcs.oauth2.token": "a",
    "gcs.oauth2.token-expires-at": "1",
    "adls.sas-token.a": "?sig",
    "adls.sas-token-expires-at-ms.a": "1",
}
DEEP = b'{"metadata":' + b"[" * 100_000
LOCATIONS = [
    "s3://b/t",
    "gs://b/t",
    "abfss://c@a/t",
    "file:///t",
    "",
    "~",
    "\0",
    "file://host/t",
    "x:/",
    "s3://u:p@b/t",
]
STATUSES = [200, 200, 201, 204, 206, 301, 304, 400, 401, 403, 404, 409, 419, 429, 500, 503, 999]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32-be", "latin-1", "utf-7"]
CHARSETS = ["undefined", "idna", "hex", "punycode", "nothing", "utf-16", ""]
HEADERS = [
    "Content-Length: 100000", "Content-Length: -1", "Content-Length: x", "Content-Encoding: gzip", "Content-Encoding: x",
    "Transfer-Encoding: chunked", "Location: /catalog/v1/config", "Location: http://[", "\xff: \xff", "x", "Set-Cookie: =;=",
]  # fmt: skip


def response(status, body, chance):
    """An answer as it goes over the wire: in another encoding, with headers that say something else of it, or cut short."""
    charset = chance.choice(CHARSETS)
    lines = [f"HTTP/1.1 {status} OK", f"Content-Type: application/json; charset={charset}"]
    lines += chance.sample(HEADERS, chance.randrange(3))
    data = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    return flipped(data, chance) if chance.random() < 0.3 else data


def spoilt(answer, chance):
    """What a server answers in place of `answer`."""
    status, body = answer()
    if "overrides" in body:
        body["overrides"] |= chance.choice([{}, {"prefix": "p"}, {"uri": ""}, {"token": "x"}, {"scope": "x"}])
    if isinstance(body.get("metadata"), dict):
        body["metadata"]["location"] = chance.choice([*LOCATIONS, body["metadata"]["location"]])
    if "storage-credentials" in body:
        body["storage-credentials"] += [{"prefix": "", "config": dict(OPTIONS)}]
    status = status if chance.random() < 0.6 else chance.choice(STATUSES)
    text = json.dumps(changed(body, chance), allow_nan=True)
    match chance.randrange(8):
        case 0:
            return status, flipped(text.encode(), chance)
        case 1:
            return status, chance.choice([*JUNK, [text], DEEP, b"9" * 5000, b"\xff\xfe", b"{", {"error": body}])
        case 2:
            return response(status, text.encode(chance.choice(ENCODINGS), errors="replace"), chance)
        case 3:
            return None
        case _:
            return status, text.encode()


@pytest.fixture(scope="module")
def rest():
    """(a server of one table, the table's files, a plan to commit)."""
    files = MemoryFiles("memory://rest")
    table = Table("a.t", files, dialect)
    create(table, Schema(fields_from_arrow(SCHEMA)))
    table.append(rows(0))
    names = [f"metadata/v{n}.metadata.json" for n in (1, 2)]
    plan = Plan({}, names[1], files.read(names[1]), None)
    with RestServer(files.location(names[0]), files.read, files.write, dict(OPTIONS)) as server:
        yield server, files, plan


VIEW = View("a.v", "SELECT 1 AS a", "a", fields_from_arrow(pa.schema([("a", pa.int32())])), {"c": "d"})


@fuzzed(150)
def test_rest_answers(rest, seed):
    """Nothing but a `LakeError` leaves the client of a REST catalog, whatever the server answers."""
    server, files, plan = rest
    chance = random.Random(seed)
    server.names, server.pointer, server.fault = (
        ["t", "alias"],
        files.location("metadata/v1.metadata.json"),
        lambda answer: answer(),
    )
    catalog = RestCatalog(server.address, (("credential", "client:secret"), ("header.x", str(seed))))
    server.views = {"v": created(VIEW, "memory://views", Stamp(1, "n"))}
    views = Views(catalog, files.root, {})
    entry = catalog.entry("a.t")
    if chance.random() < 0.7:  # Else it asks for the configuration and a token first.
        catalog.namespaces()

    def found():
        found = catalog.find("a.t", {})
        if found is not None:
            open_store(found.root, found.options)
            if found.lease is not None:
                Renewing(found.lease)()

    ask = chance.choice([
        lambda: [catalog.tables(namespace) for namespace in catalog.namespaces()],
        found,
        found,
        found,
        entry.location,
        lambda: catalog.drop("a.t"),
        lambda: catalog.rename("a.t", "a.u"),
        lambda: catalog.register("a.t", "x"),
        lambda: catalog.create_namespace("a"),
        lambda: entry.sharers(files),
        lambda: entry.head(files).version(),
        lambda: entry.head(files).advance(Pointer(server.pointer), plan),
        lambda: entry.head(files).advance(0, plan),
        lambda: [views.find(name) for name in views.names("a")],
        lambda: views.create(VIEW, "replace"),
        lambda: views.create(replace(VIEW, name="a.w"), "error"),
        lambda: views.alter("a.v", {"k": "v"}, frozenset(["c"])),
        lambda: views.alter_dialect("a.v", "add", "trino", "SELECT 1"),
        lambda: views.rename("a.v", "a.w"),
        lambda: views.drop("a.v"),
        lambda: RestIssuer(entry, "s3://b/t", chance.choice(["", "/v1/config", catalog.uri])).issue(),
    ])  # fmt: skip
    broken = []

    def fault(answer):
        try:
            return spoilt(answer, chance)
        except Exception as error:
            broken.append(error)

    often = chance.choice([0.2, 0.9])
    server.fault = lambda answer: fault(answer) if chance.random() < often else answer()
    with contextlib.suppress(LakeError):
        ask()
    assert not broken


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """(a database whose columns take any value, a client of it, the place of a table's metadata file, the table's files)."""
    folder = tmp_path_factory.mktemp("sql")
    t = Lake(folder / "w", fsync="false").create_table("d.t", SCHEMA, format="iceberg")
    t.append(rows(0))
    connection = sqlite3.connect(folder / "any.sqlite")
    for name, columns in TABLES.items():
        connection.execute(f"create table {name} ({', '.join(columns)})")
    connection.commit()
    client = SqlCatalog(f"sqlite:///{folder}/any.sqlite")
    yield connection, client, metadata_file(t).as_uri().replace("file:///", "file:/"), doors.store(t)
    connection.close()


TABLES = {
    "iceberg_tables": [
        "catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location", "iceberg_type",
    ],
    "iceberg_namespace_properties": ["catalog_name", "namespace", "property_key", "property_value"],
}  # fmt: skip
VALUES = [
    None, 0, -1, 2**62, 1.5, 1e308, float("inf"), b"", b"\xff\x00", "", "x", "a.b", "\0", "/", "~", "x:/y", "file://host/x", "é" * 500,
    "file:/x/metadata/v1.metadata.json", "/proc/self/mem", "//", "../x", "memory://x/y",
]  # fmt: skip


@fuzzed(80)
def test_lines_of_sql_catalogs(database, seed):
    """Nothing but a `LakeError` leaves the client of a SQL catalog, whatever the database holds."""
    connection, catalog, location, files = database
    chance = random.Random(seed)
    for table, columns in TABLES.items():
        connection.execute(f"delete from {table}")
        for line in [
            ["default", "a", "t", location, None, "TABLE"],
            ["default", "a", "b", location, location, "TABLE"],
        ]:
            line = [value if chance.random() < 0.7 else chance.choice(VALUES) for value in line]
            connection.execute(f"insert into {table} values ({', '.join('?' * len(columns))})", line[: len(columns)])
    if chance.random() < 0.2:  # What SQLite holds for text need not be UTF-8.
        connection.execute("update iceberg_tables set metadata_location = cast(x'ff2f' as text) where table_name = 't'")
    connection.commit()
    name = chance.choice(["a.t", "a.t", "a.t", "a.b", "x", "", ".", "a.\0", "\ud800.t", "a." + "t" * 10000])
    entry = catalog.entry(name)
    for ask in (
        catalog.namespaces,
        lambda: [catalog.tables(namespace) for namespace in catalog.namespaces()],
        lambda: catalog.find(name, {}),
        entry.location,
        lambda: entry.sharers(files),
        lambda: entry.head(files).version(),
        lambda: entry.swap(location, "x"),
        lambda: catalog.register(name, location),
        lambda: catalog.create_namespace(name),
        lambda: catalog.rename(name, "c.t"),
        lambda: catalog.drop(name),
    ):
        with contextlib.suppress(LakeError):
            ask()


@fuzzed(30)
def test_sqlite_files_of_catalogs(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("sqlite")
    whole = SqlCatalog(f"sqlite:///{folder}/whole.sqlite")
    whole.register("a.t", "/x/metadata/v1.metadata.json")
    data = flipped((folder / "whole.sqlite").read_bytes(), random.Random(seed))
    (folder / "c.sqlite").write_bytes(data)
    catalog = SqlCatalog(f"sqlite:///{folder}/c.sqlite")
    for ask in (catalog.namespaces, lambda: catalog.tables("a"), lambda: catalog.drop("a.t")):
        with contextlib.suppress(LakeError):
            ask()


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": [9223372036854775808]}', b'{"a": -9223372036854775809}', b'{"a": {"b": 10000000000000000000000}}',
        b'{"a": "\\ud800"}', b'{"\\uDc00": 1}', b'{"a": "\xed\xa0\x80"}', '{"a": 9223372036854775808}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_numbers_and_texts_that_no_file_holds_are_found_by_the_bytes(data):
    with pytest.raises((CorruptFile, UnicodeError)):
        parsing.check_values(json.loads(data), data)


@pytest.mark.parametrize(
    "data",
    [b'{"a": 9223372036854775807, "b": "12345678901234567890"}', '{"a": "\\ud83d\\ude00 \ud7ff"}'.encode(), b"{}"],
)
def test_numbers_and_texts_that_files_hold_pass(data):
    parsing.check_values(json.loads(data), data)


WORDS = [
    "SELECT", "FROM", "WHERE", "(", ")", ",", "'x'", "`a`", "*", "1", "-1", "NULL", "AS", "VERSION", "OF", ".", "?", ":x", "||",
    "::INT", "[0]", "{", "}", "OVER", "LATERAL", "VIEW", "ROWS", "UNION", "VALUES", "INTERVAL", "CASE", "END", "/*", "--\n", ";",
    "@", "$", "EXISTS", "BY", "struct", "map", "array", "TABLE", "PARTITION", "=>", "->", "\x00", "1e400", "map('a', {x})",
]  # fmt: skip


@pytest.fixture(scope="module")
def statements(tmp_path_factory):
    """(a warehouse, the statements of the connectors' pages that stay within it, as parts)."""
    lake = Lake(tmp_path_factory.mktemp("sql") / "w", fsync="false")
    for name, format in (
        ("db.sample", "iceberg"),
        ("db.tbl", "iceberg"),
        ("default.t", "paimon"),
        ("default.my_table", "paimon"),
    ):
        lake.create_table(name, SCHEMA, format=format, partition_by=["dt"]).append(rows(0))
    examples = {example.sql for group in GROUPS for example in group.examples}
    kept = [example for example in sorted(examples) if not re.search("(?i)orphan|drop|purge|location|folder", example)]
    return lake, [
        re.findall(r"\s+|\w+|'[^']*'|`[^`]*`|.", re.sub(r"\b(prod|spark_catalog)\.", "", text)) for text in kept
    ]


@fuzzed(400)
def test_statements(statements, seed):
    """Nothing but a `LakeError` leaves `lake.sql`, whatever its text."""
    lake, known = statements
    chance = random.Random(seed)
    parts = list(chance.choice(known))
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(parts) + 1)
        inside = chance.choice(known)
        start = chance.randrange(len(inside))
        added = chance.choice([[], [f" {chance.choice(WORDS)} "], inside[start : start + 8]])
        parts[place : place + chance.randrange(2)] = added
    with contextlib.suppress(LakeError):
        lake.sql("".join(parts)).to_arrow()
