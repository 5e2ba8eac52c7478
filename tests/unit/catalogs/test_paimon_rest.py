"""Paimon's REST catalog: a server of this process answers as Java's does, or worse."""

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest

from lakeformat import (
    AlreadyExists,
    CommitLost,
    CommitUnknown,
    InvalidInput,
    Lake,
    NotFound,
    StoreError,
    UnsupportedFeature,
)
from lakeformat.errors import StoreRefused
from lakeformat.storage.credentials import Renewing
from tests.unit.serving import Serving

SCHEMA = pa.schema([("id", pa.int64())])
OPTIONS = {"format": "paimon", "warehouse": "main", "token": "token"}


class Server(ThreadingHTTPServer):
    """Answers are what the test says: `{path below the prefix: (status, body)}`; a body that is a list is one of pages of two."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.config: object = {"defaults": {"prefix": "p r"}}
        self.answers: dict[str, tuple[int, object]] = {}
        self.respond = lambda path, body: self.answers.get(path)
        self.delete = lambda path: None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query, path = parse_qs(address.query), address.path.removeprefix("/api/v1/")
        kind = "SNAPSHOT" if path.endswith("/snapshot") else "TABLE"
        missing = 404, {"resourceType": kind, "message": "none", "code": 404}
        if self.headers["Authorization"] != "Bearer token":
            self.say(401, {"message": "who are you"})
        elif path == "config":
            self.say(200 if query["warehouse"] == ["main"] else 400, self.server.config)
        else:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"]))) if self.command == "POST" else None
            below, respond = unquote(path.removeprefix("p%20r/")), self.server.respond
            status, body = (self.server.delete(below) if self.command == "DELETE" else respond(below, asked)) or missing
            if isinstance(body, list):
                key, *names = body
                begin = int(query.get("pageToken", ["0"])[0])
                following = str(begin + 2) if begin + 2 < len(names) else None
                body = {key: names[begin : begin + 2], "nextPageToken": following}
            self.say(status, body)

    do_POST = do_DELETE = do_GET

    def say(self, status: int, body: object) -> None:
        text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(tmp_path):
    made = Lake(tmp_path / "served").create_table("n.t", SCHEMA)
    for number in range(3):
        made.append(pa.table({"id": [number]}))
    with Serving(found := Server()):
        found.answers = {
            "databases": (200, ["databases", "b", "n", "a.b"]),
            "databases/n/tables": (200, ["tables", *(f"t{i}" for i in range(4)), "t"]),
            "databases/n/tables/t": (200, {"name": "t", "id": "1", "path": f"file:{tmp_path}/served/n.db/t", "schema": {"options": {}}}),
            "databases/n/tables/t/snapshot": (200, {"snapshot": {"snapshot": {"id": 2}, "recordCount": 2}}),
            "databases/n": (200, {"name": "n", "options": {"k": "v"}}),
        }  # fmt: skip
        yield found


def opened(server, folder, **options):
    return Lake(folder / "w", catalog=server.address, catalog_options={**OPTIONS, **options})


def test_tables_are_listed_and_read_as_the_server_says(server, tmp_path):
    lake = pickle.loads(pickle.dumps(opened(server, tmp_path)))
    assert lake.namespaces() == ["a.b", "b", "n"]
    assert lake.tables("n") == ["n.t", "n.t0", "n.t1", "n.t2", "n.t3"]
    assert lake.namespace_properties("n") == {"k": "v"}
    table = lake.table("n.t")
    assert table.scan().to_arrow()["id"].to_pylist() == [
        0,
        1,
    ]  # The third snapshot lies there, and nobody committed it.
    assert (table.format, table.current_snapshot().id) == ("paimon", 2)
    server.answers["databases/n/tables/t/snapshot"] = 404, {"resourceType": "SNAPSHOT"}
    assert table.scan().count() == 0
    server.answers["databases/n/tables/t/snapshot"] = 200, {"snapshot": {"snapshot": {"id": 3}}}
    assert table.scan().count() == 3
    for name in ("n.none", "x.t"):
        assert not lake.exists(name)
    with pytest.raises(NotFound, match=r"n\.none"):
        lake.drop_table("n.none")


def test_a_folder_becomes_a_table_of_the_server(server, tmp_path):
    lake, known, asked = opened(server, tmp_path), server.answers, []
    folder = known["databases/n/tables/t"][1]["path"]
    table = known.pop("databases/n/tables/t")

    def respond(path, body):
        if body is None:
            return known.get(path)
        asked.append((path, body))
        if path == "databases/n/register":
            known["databases/n/tables/t"] = table
        return answers[-1] if path == "databases/n/register" else (200, {})

    server.respond, answers = respond, []
    for answer, error, says in (
        ((404, {}), UnsupportedFeature, "does not register tables"),
        ((405, {}), UnsupportedFeature, "does not register tables"),
        ((409, {}), AlreadyExists, r"n\.t: a table exists already"),
        ((403, {"message": "not for you"}), StoreError, "not for you"),
    ):
        answers.append(answer)
        with pytest.raises(error, match=says):
            lake.register_table("n.t", folder)
        known.pop("databases/n/tables/t")
    with pytest.raises(NotFound, match="no Paimon table is in"):
        lake.register_table("n.t", str(tmp_path))
    answers.append((200, {}))
    assert lake.register_table("n.t", folder).scan().count() == 2
    assert asked[-1] == ("databases/n/register", {"identifier": {"database": "n", "object": "t"}, "path": folder})
    with pytest.raises(AlreadyExists, match=r"n\.t"):
        lake.register_table("n.t", folder)


def test_answers_that_cannot_be_are_named(server, tmp_path):
    lake, table, protocol = opened(server, tmp_path), "databases/n/tables/t", "Paimon's REST protocol"

    def read():
        assert lake.tables("n")
        assert lake.table("n.t").scan().count() == 2

    for path, answer, error, says in (
        (table, (404, {}), StoreError, "404"),
        (table, (403, {"message": "not for you"}), StoreError, "not for you"),
        (table, (500, "<html>"), StoreError, "500"),
        (table, (200, "<html>"), StoreError, "<html>"),
        (table, (200, {}), StoreError, protocol),
        (table, (200, {"id": "1", "path": 1, "schema": {}}), StoreError, protocol),
        (table, (200, {"id": "1", "path": "/x", "schema": {"options": {"type": "object-table"}}}), UnsupportedFeature, "object-table"),
        (table, (200, {"id": "1", "path": "/x", "schema": {"options": {"type": "format-table"}}}), UnsupportedFeature, "format-table"),
        (f"{table}/snapshot", (200, {"snapshot": 7}), StoreError, protocol),
        ("databases", (200, {"databases": [7]}), StoreError, protocol),
        ("databases/n/tables", (200, {"tables": ["t"], "nextPageToken": "x"}), StoreError, "no end"),
    ):  # fmt: skip
        good = server.answers[path]
        server.answers[path] = answer
        with pytest.raises(error, match=says):
            read()
        server.answers[path] = good


def test_what_is_not_supported_is_refused_by_name(server, tmp_path):
    with pytest.raises(UnsupportedFeature, match=r"token\.provider='dlf'"):
        opened(server, tmp_path, **{"token.provider": "dlf"})
    with pytest.raises(InvalidInput, match=r"token\.provider"):
        opened(server, tmp_path, secret="x")
    with pytest.raises(InvalidInput, match="hudi"):
        opened(server, tmp_path, format="hudi")
    with pytest.raises(StoreError, match="401: who are you") as caught:
        opened(server, tmp_path, token="stolen").tables("n")
    assert "stolen" not in str(caught.value)


def test_tokens_for_files_are_asked_for_and_asked_for_again(server, tmp_path):
    server.config = {"overrides": {"prefix": "p r", "data-token.enabled": "true"}}
    lake = opened(server, tmp_path, **{"header.x": "another client"})
    with pytest.raises(StoreError, match="a token for its files"):
        lake.table("n.t")
    key = "databases/n/tables/t/token"
    server.answers[key] = 200, {"token": {}, "expiresAtMillis": "soon"}
    with pytest.raises(StoreError, match="Paimon's REST protocol"):
        lake.table("n.t")
    server.answers[key] = 200, {"token": {"any": "a"}, "expiresAtMillis": 1}
    assert lake.table("n.t").scan().count() == 2  # Local files need none.
    catalog, there = lake._catalog, server.answers["databases/n/tables/t"][1]
    said = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "s3.session-token": "t", "s3.endpoint": "http://e"}
    for path, token, says in (("oss://b/t", said, "oss"), ("s3://b/t", {"x": "y"}, "no keys for S3")):
        there["path"], server.answers[key] = path, (200, {"token": token, "expiresAtMillis": 1})
        with pytest.raises(UnsupportedFeature, match=says):
            catalog.find("n.t", {})
    server.answers[key] = 200, {"token": said, "expiresAtMillis": 5_000}
    found = catalog.find("n.t", {})
    assert (found.root, found.options) == ("s3://b/t", {"s3.endpoint": "http://e"})
    clock = iter([0, 1000, 3000, 3000, 3000])
    renewing = Renewing(found.lease, lambda: next(clock))
    assert renewing()["token"] == "t"
    server.answers[key] = 200, {"token": {**said, "s3.session-token": "u"}, "expiresAtMillis": 9_000}
    assert renewing()["token"] == "u"
    assert not any(secret in repr(found) for secret in ("'k'", "'s'", "'t'"))


class Committing:
    """The server's part of a commit, over a folder: it checks which table is meant and creates the snapshot's file in its own way."""

    def __init__(self, server, folder):
        self.server, self.folder, self.lock = server, folder, threading.Lock()
        self.counts, self.requests, self.fails = {}, 0, None
        server.respond = self.respond

    def respond(self, path, body):
        """(status, body) of a request. `fails`: (which request, whether its answer alone is lost)."""
        with self.lock:
            self.requests += 1
            number, is_late = self.fails or (0, False)
            if self.requests == number and not is_late:
                return 500, {"message": "no"}
            if body is not None and path.endswith("/commit"):
                answer = self.commit(path, body)
            elif body is not None and "changes" in body:
                answer = self.alter(body["changes"])
            else:
                answer = self.server.answers.get(path)
            return (500, {"message": "lost"}) if self.requests == number else answer

    def alter(self, changes):
        """As far as columns are added, last, and options set."""
        newest = max((self.folder / "schema").iterdir(), key=lambda path: int(path.name[7:]))
        schema = json.loads(newest.read_text())
        for change in changes:
            if change["action"] == "setOption":
                schema["options"][change["key"]] = change["value"]
                continue
            (name,) = change["fieldNames"]
            if any(field["name"] == name for field in schema["fields"]):
                return 409, {"resourceType": "COLUMN", "message": f"there is a column {name}"}
            schema["highestFieldId"] += 1
            schema["fields"].append({"id": schema["highestFieldId"], "name": name, "type": change["dataType"]})
        schema["id"] += 1
        (self.folder / f"schema/schema-{schema['id']}").write_text(json.dumps({**schema, "timeMillis": 7}))
        return 200, {}

    def commit(self, path, body):
        snapshot = {k: v for k, v in body["snapshot"].items() if k not in ("uuid", "operation")}
        branch = path.partition("$branch_")[2].removesuffix("/commit")
        made = self.folder / (f"branch/branch-{branch}" if branch else "") / f"snapshot/snapshot-{snapshot['id']}"
        if body["tableId"] != "the id":
            return 404, {"resourceType": "TABLE", "message": "another table"}
        made.parent.mkdir(exist_ok=True)
        try:
            with made.open("x") as file:
                json.dump(snapshot, file, indent=4)
        except FileExistsError:
            return 200, {"success": False}
        for entry in body["statistics"]:
            total = self.counts.setdefault(tuple(entry["spec"].items()), [0, 0, 0])
            for i, key in enumerate(("recordCount", "fileCount", "fileSizeInBytes")):
                total[i] += entry[key]
        self.server.answers[path.removesuffix("commit") + "snapshot"] = 200, {"snapshot": {"snapshot": snapshot}}
        return 200, {"success": True}


@pytest.fixture
def served(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("dt", pa.string())])
    made = Lake(tmp_path / "served").create_table(
        "n.t", schema, partition_by=["dt"], properties={"commit.max-retries": "2"}
    )
    made.create_branch("b")
    with Serving(found := Server()):
        found.answers["databases/n/tables/t"] = 200, {"id": "the id", "path": made.uri, "schema": {}}
        yield Committing(found, tmp_path / "served/n.db/t"), opened(found, tmp_path)


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [f"d{id % 2}" for id in ids]})


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def counted(table):
    """By partition: rows, files, bytes. A file with a deletion vector counts as before, as in Java."""
    found = table.inspect.partitions().to_pylist()
    return {(("dt", r["dt"]),): [r["row_count"], r["file_count"], r["size_bytes"]] for r in found}


def test_commits_go_through_the_server_and_count_what_each_partition_has(served):
    committing, lake = served
    table = lake.table("n.t")
    for change in (
        lambda: table.append(rows(1, 2, 3, 4)),
        lambda: table.append(rows(5)),
        lambda: table.delete("id = 1"),
        lambda: table.update({"id": "id + 10"}, "id = 2"),
        lambda: table.overwrite(rows(7), {"dt": "d1"}),
        lambda: table.compact(full=True),
        lambda: table.rollback_to(2),
        lambda: table.append(pa.table({"id": [9], "dt": pa.nulls(1, pa.string())})),
        lambda: table.delete("dt is null"),
    ):
        change()
        expected = counted(table)
        found = {
            tuple((k, None if v == "__DEFAULT_PARTITION__" else v) for k, v in spec): n
            for spec, n in committing.counts.items()
        }
        assert {k: v for k, v in found.items() if any(v)} == expected
    assert ids(table) == [1, 2, 3, 4, 5]
    branch = table.branch("b")
    branch.append(rows(6))
    assert (ids(branch), ids(table)) == ([6], [1, 2, 3, 4, 5])
    table.create_tag("kept")
    branch.append(rows(7))
    branch.create_tag("ours")
    branch.expire_snapshots(retain_last=1)
    branch.delete_tag("ours")
    assert (ids(branch), len(branch.snapshots()), [snapshot.id for snapshot in table.snapshots()][-1]) == ([6, 7], 1, 8)
    table.expire_snapshots(retain_last=1)
    assert (ids(table), len(list((committing.folder / "snapshot").glob("snapshot-*")))) == ([1, 2, 3, 4, 5], 1)
    committing.server.answers["databases/n/tables/t"][1]["id"] = "another"
    with pytest.raises(StoreRefused, match="another table"):
        lake.table("n.t").append(rows(8))
    assert ids(table) == [1, 2, 3, 4, 5]


def test_the_server_makes_and_drops_branches(served):
    """At a tag; a snapshot without one gets a tag for the time of the call."""
    committing, lake = served
    table, theirs, asked = lake.table("n.t"), Lake(committing.folder.parent.parent).table("n.t"), []

    def respond(path, body):
        if "$branch_" in path:
            newest = theirs.branch(path.partition("$branch_")[2].removesuffix("/snapshot")).current_snapshot()
            return newest and (200, {"snapshot": {"snapshot": {"id": newest.id}}})
        if not path.endswith("/branches"):
            return committing.respond(path, body)
        asked.append((body["branch"], body["fromTag"]))
        theirs.create_branch(body["branch"], tag=body["fromTag"])
        return 200, {}

    def delete(path):
        asked.append(path)
        theirs.delete_branch(path.rpartition("/")[2])
        return 200, {}

    committing.server.respond, committing.server.delete = respond, delete
    table.create_branch("empty")
    table.append(rows(1))
    table.create_tag("kept")
    table.append(rows(2))
    table.create_branch("tagged", tag="kept")
    table.create_branch("newest")
    assert [ids(table.branch(name)) for name in ("empty", "tagged", "newest")] == [[], [1], [1, 2]]
    assert asked[:2] == [("empty", None), ("tagged", "kept")]
    assert [name for name, _ in asked] == ["empty", "tagged", "newest"]
    for of in (table, table.branch("newest")):
        assert of.inspect.tags()["tag_name"].to_pylist() == (["kept"] if of is table else [])
    with pytest.raises(UnsupportedFeature, match="does not rename branches"):
        table.rename_branch("tagged", "other")
    table.delete_branch("tagged")
    assert asked[-1] == "databases/n/tables/t/branches/tagged"
    assert sorted(table.inspect.branches()["branch_name"].to_pylist()) == ["b", "empty", "newest"]


@pytest.mark.parametrize("is_late", [False, True])
def test_each_request_of_a_commit_may_fail_once(served, is_late):
    committing, lake = served
    table, expected = lake.table("n.t"), []
    for verb in range(3):
        for number in range(1, 12):
            id = f"{verb}-{number}"
            change = (
                lambda id=id, number=number: table.append(rows(number), id=id),
                lambda id=id: table.delete("dt = 'd0'", id=id),
                lambda id=id, number=number: table.compact(full=True, id=id),
            )[verb]
            committing.requests, committing.fails = 0, (number, is_late)
            for _ in range(3):
                try:
                    change()
                    break
                except StoreError:
                    pass
            else:
                raise AssertionError(id)
            expected = (
                sorted([*expected, number]) if verb == 0 else [i for i in expected if i % 2] if verb == 1 else expected
            )
            committing.fails, asked = None, committing.requests
            assert ids(table) == expected
            if asked < number:
                break
    operations = [snapshot.operation_id for snapshot in table.snapshots()]
    assert len(operations) == len(set(operations))
    assert {k: v for k, v in committing.counts.items() if any(v)} == counted(table)


@pytest.mark.parametrize("is_late", [False, True])
def test_each_request_of_a_schema_change_may_fail_once(served, is_late):
    """The change is made once; where the answer was lost, what the server wrote says that it was."""
    committing, lake = served
    table = lake.table("n.t")
    for number in range(1, 12):
        committing.requests, committing.fails = 0, (number, is_late)
        for _ in range(3):
            try:
                table.alter().add_column(f"x{number}", "int").set_properties(
                    {"snapshot.num-retained.min": str(number)}
                ).commit()
                break
            except AlreadyExists:  # What failed was to look at it afterwards.
                break
            except StoreError:
                pass
        else:
            raise AssertionError(number)
        committing.fails, asked = None, committing.requests
        assert table.schema.names == ("id", "dt", *(f"x{i}" for i in range(1, number + 1)))
        assert table.schema.id == number
        if asked < number:
            break
    else:
        raise AssertionError("requests have no end")
    twin, record = table.dry_run()
    twin.append(rows(1))
    twin.alter().add_column("later", "int").commit()
    twin.append(rows(2))
    assert (ids(twin), ids(table), len(twin.snapshots()), table.current_snapshot()) == ([1, 2], [], 2, None)
    assert record.written
    with pytest.raises(AlreadyExists):
        table.alter().add_column("x1", "int").commit()


def test_a_table_that_another_made_meanwhile_is_there_already(served):
    committing, lake = served
    asked = []

    def respond(path, body):
        if body is not None:
            asked.append((path, body))
            return (409, {"resourceType": "TABLE"}) if path.endswith("/tables") else (200, {})
        return committing.server.answers.get(path)

    committing.server.respond = respond
    with pytest.raises(AlreadyExists, match=r"n\.u"):
        lake.create_table("n.u", SCHEMA, comment="c", properties={"bucket": "-1"})
    (_, (path, body)) = asked
    field = {"id": 0, "name": "id", "type": "BIGINT"}
    schema = {"fields": [field], "partitionKeys": [], "primaryKeys": [], "options": {"bucket": "-1"}, "comment": "c"}
    assert (path, body) == ("databases/n/tables", {"identifier": {"database": "n", "object": "u"}, "schema": schema})


def test_names_are_the_servers_to_change(served):
    committing, lake = served
    server, asked = committing.server, []
    there = server.answers["databases/n/tables/t"]

    def respond(method, path, body):
        if method == "GET":
            return server.answers.get(path)
        asked.append((method, path, body))
        return server.answers.get(f"{method} {path}")

    server.respond = lambda path, body: respond("GET" if body is None else "POST", path, body)
    server.delete = lambda path: respond("DELETE", path, None)
    server.answers |= {
        "POST databases": (200, {}),
        "DELETE databases/m": (200, {}),
        "DELETE databases/n/tables/t": (200, {}),
    }
    server.answers |= {"databases": (200, {"databases": ["m", "n"]}), "databases/m/tables": (200, {"tables": []})}
    server.answers["databases/n/tables"] = 200, {"tables": ["t"]}
    lake.create_namespace("m")
    lake.drop_namespace("m")
    for purge in (False, True):
        lake.drop_table("n.t", purge=purge)
    assert ids(lake.table("n.t")) == []  # Of its files the server disposes.
    server.answers["POST databases"] = 409, {"resourceType": "DATABASE"}
    with pytest.raises(NotFound, match=r"n\.t"):
        lake.rename_table("n.t", "m.u")
    found = iter([None, there])
    server.answers["POST tables/rename"] = 200, {}
    server.respond = lambda path, body: (
        next(found) if path == "databases/m/tables/u" else respond("GET" if body is None else "POST", path, body)
    )
    assert lake.rename_table("n.t", "m.u").name == "m.u"
    renaming = {"source": {"database": "n", "object": "t"}, "destination": {"database": "m", "object": "u"}}
    assert asked == [
        ("POST", "databases", {"name": "m", "options": {}}),
        ("DELETE", "databases/m", None),
        *[("DELETE", "databases/n/tables/t", None)] * 2,
        *[("POST", "databases", {"name": "m", "options": {}}), ("POST", "tables/rename", renaming)] * 2,
    ]
    with pytest.raises(NotFound, match=r"n\.none"):
        lake.drop_table("n.none", purge=True)


def test_racing_writers_each_land_once(served):
    _, lake = served
    with ThreadPoolExecutor(2) as writers:
        table = lake.table("n.t")

        def write(number):
            landed = None
            while landed is None:
                with suppress(CommitLost, CommitUnknown):
                    landed = table.append(rows(number), id=f"w{number}")

        list(writers.map(write, range(8)))
    assert ids(table) == list(range(8))
    assert [snapshot.id for snapshot in table.snapshots()] == list(range(1, 9))


def serve_functions(server):
    """Answer requests about functions as Java's server does; what was stored, by name, and the requests."""
    known, asked = {}, []

    def respond(path, body):
        if "/functions" not in path:
            return server.answers.get(path)
        name = path.partition("databases/n/functions")[2].strip("/")
        asked.append((path, body))
        if not name and body is None:
            return 200, ["functions", *sorted(known)]
        if not name:
            if body["name"] in known:
                return 409, {"resourceType": "FUNCTION", "resourceName": body["name"]}
            known[body["name"]] = body
            return 200, {}
        if name not in known:
            return 404, {"resourceType": "FUNCTION", "resourceName": name}
        if body is None:
            return 200, {"uuid": "1", **known[name], "owner": "me", "createdAt": 1}
        for change in body["changes"]:
            definitions = {**known[name]["definitions"], change["name"]: change["definition"]}
            known[name] = {**known[name], "definitions": definitions}
        return 200, {}

    def delete(path):
        asked.append((path, None))
        if known.pop(path.rpartition("/")[2], None) is None:
            return 404, {"resourceType": "FUNCTION"}
        return 200, {}

    server.respond, server.delete = respond, delete
    return known, asked


def test_functions_are_the_servers(server, tmp_path):
    lake, (known, asked) = opened(server, tmp_path), serve_functions(server)
    lake.sql("USE n; CREATE FUNCTION area(w INT, h INT DEFAULT 2) RETURN w * h")
    assert asked[-1] == (
        "databases/n/functions",
        {
            "name": "area",
            "inputParams": [
                {"id": 0, "name": "w", "type": "INT"},
                {"id": 1, "name": "h", "type": "INT", "defaultValue": "2"},
            ],
            "returnParams": [{"id": 0, "name": "area", "type": "INT"}],
            "deterministic": True,
            "definitions": {"spark": {"type": "sql", "definition": "w * h"}},
            "comment": None,
            "options": {
                "spark.sql-function.is-query": "false",
                "spark.sql-function.deterministic": "true",
                "spark.sql-function.contains-sql": "true",
            },
        },
    )
    assert lake.sql("SELECT area(3) AS a, n.area(3, 4) AS b").to_arrow().to_pylist() == [{"a": 6, "b": 12}]
    assert lake.sql("SELECT area(id, 5) AS a FROM t").to_arrow()["a"].to_pylist() == [0, 5]
    assert lake.functions.names("n") == ["n.area"]
    with pytest.raises(AlreadyExists):
        lake.sql("CREATE FUNCTION area(w INT) RETURN w")
    lake.sql("CREATE OR REPLACE FUNCTION area(w INT) RETURN w + 1")
    assert [path for path, _ in asked[-2:]] == ["databases/n/functions/area", "databases/n/functions"]
    assert lake.sql("SELECT area(3) AS a").to_arrow().to_pylist() == [{"a": 4}]
    java = {"type": "lambda", "definition": "(Integer w) -> w", "language": "JAVA"}
    change = {"action": "addDefinition", "name": "flink", "definition": java}
    lake.sql("CALL sys.alter_function('area', :change)", params={"change": json.dumps(change)})
    assert asked[-1] == ("databases/n/functions/area", {"changes": [change]})
    assert sorted(known["area"]["definitions"]) == ["flink", "spark"]
    lake.sql("CREATE FUNCTION udf AS 'com.example.Udf' USING JAR '/a.jar', JAR '/b.jar'")
    (definition,) = known["udf"]["definitions"].values()
    assert definition == {
        "type": "file",
        "fileResources": [{"definition": "jar", "uri": "/a.jar"}, {"definition": "jar", "uri": "/b.jar"}],
        "language": "JAVA",
        "className": "com.example.Udf",
        "functionName": "udf",
    }
    with pytest.raises(UnsupportedFeature, match=r"n\.udf is a Java class"):
        lake.sql("SELECT udf(1)")
    lake.sql("DROP FUNCTION area; CALL sys.drop_function('udf'); DROP FUNCTION IF EXISTS area")
    assert known == {}
    with pytest.raises(NotFound, match=r"n\.area"):
        lake.functions.drop("n.area")


def test_a_function_stays_if_its_replacement_is_refused(server, tmp_path):
    lake, (known, _) = opened(server, tmp_path), serve_functions(server)
    lake.sql("USE n; CREATE FUNCTION f(w INT) RETURN w")
    respond = server.respond

    def refuse(path, body):
        is_new = path.endswith("/functions") and body is not None and len(body["inputParams"]) == 2
        return (400, {"message": "no"}) if is_new else respond(path, body)

    server.respond = refuse
    with pytest.raises(StoreRefused, match="no"):
        lake.sql("CREATE OR REPLACE FUNCTION f(w INT, h INT) RETURN w")
    assert len(known["f"]["inputParams"]) == 1
    assert lake.sql("SELECT f(7) AS a").to_arrow().to_pylist() == [{"a": 7}]


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_without_functions(server, tmp_path, status):
    lake = opened(server, tmp_path)
    server.respond = lambda path, body: (status, {}) if "/functions" in path else server.answers.get(path)
    assert lake.functions.names("n") == []
    with pytest.raises(UnsupportedFeature, match="the function f is not known"):
        lake.sql("USE n; SELECT f(1)")
    with pytest.raises(UnsupportedFeature, match=r"stores no functions"):
        lake.sql("CREATE FUNCTION f(w INT) RETURN w")
    assert lake.sql("SELECT count(*) AS n FROM t").to_arrow().to_pylist() == [{"n": 2}]
