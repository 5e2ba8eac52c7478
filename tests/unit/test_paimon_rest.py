"""Paimon's REST catalog, read: a server of this process answers as Java's does, or worse."""

import json
import pickle
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound, StoreError, UnsupportedFeature
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

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query, path = parse_qs(address.query), address.path.removeprefix("/api/v1/")
        missing = 404, {"resourceType": "TABLE", "message": "none", "code": 404}
        if self.headers["Authorization"] != "Bearer token":
            self.say(401, {"message": "who are you"})
        elif path == "config":
            self.say(200 if query["warehouse"] == ["main"] else 400, self.server.config)
        else:
            status, body = self.server.answers.get(unquote(path.removeprefix("p%20r/")), missing)
            if isinstance(body, list):
                key, *names = body
                begin = int(query.get("pageToken", ["0"])[0])
                following = str(begin + 2) if begin + 2 < len(names) else None
                body = {key: names[begin : begin + 2], "nextPageToken": following}
            self.say(status, body)

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
            "databases/n/tables/t": (200, {"name": "t", "path": f"file:{tmp_path}/served/n.db/t", "schema": {"options": {}}}),
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
    for change in (
        lambda: table.append(pa.table({"id": [9]})),
        lambda: table.alter().add_column("x", "int").commit(),
        lambda: table.create_branch("b"),
        lambda: lake.drop_table("n.t"),
        lambda: lake.rename_table("n.t", "n.u"),
        lambda: lake.register_table("n.u", table.uri),
        lambda: lake.create_namespace("other"),
        lambda: lake.alter_namespace("n", {"k": "2"}),
        lambda: lake.create_table("n.u", SCHEMA),
        lambda: lake.create_table_as("n.u", pa.table({"id": [9]}), SCHEMA),
    ):
        with pytest.raises((UnsupportedFeature, InvalidInput), match="read only"):
            change()
    assert table.scan().count() == 3
    for name in ("n.none", "x.t"):
        assert not lake.exists(name)
    with pytest.raises(NotFound, match=r"n\.none"):
        lake.drop_table("n.none")


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
        (table, (200, {"path": 1, "schema": {}}), StoreError, protocol),
        (table, (200, {"path": "/x", "schema": {"options": {"type": "object-table"}}}), UnsupportedFeature, "object-table"),
        (table, (200, {"path": "/x", "schema": {"options": {"type": "format-table"}}}), UnsupportedFeature, "format-table"),
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
    server.config = {"overrides": {"prefix": "p r", "data-token.enabled": "true"}}
    with pytest.raises(UnsupportedFeature, match="data-token"):
        opened(server, tmp_path, **{"header.x": "another client"}).table("n.t")
