"""A REST catalog's server, and gateways before it, that fail in every way: a commit lands once, or says that it may have."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, StoreError
from lakeformat.catalogs import signing
from lakeformat.catalogs.rest import RestCatalog
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import CommitError, StoreRefused
from lakeformat.model import evolution
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.credentials import Renewing
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.unit.rest_server import RestServer
from tests.unit.serving import Serving

dialect = Iceberg()

SCHEMA = Schema(fields=(Field(0, "id", scalar(Kind.BIGINT)),))
LOGIN = b"<html>Please log in</html>"
Answer = Callable[[], tuple[int, Any]]


def twice(answer: Answer) -> tuple[int, Any]:
    answer()
    return answer()


def unheard(answer: Answer) -> None:
    answer()


def landed_as(body: Any) -> Callable[[Answer], tuple[int, Any]]:
    return lambda answer: (answer()[0], body)


FAULTS: dict[str, Callable[[Answer], tuple[int, Any] | None]] = {
    "no answer": lambda answer: None,
    "lost answer": unheard,
    "repeated request": twice,
    "server error": lambda answer: (503, {}),
    "login page": lambda answer: (200, LOGIN),
    "empty object": lambda answer: (200, {}),
    "list": lambda answer: (200, []),
    "landed, login page": landed_as(LOGIN),
    "landed, empty object": landed_as({}),
    "landed, server error": lambda answer: (answer(), (502, LOGIN))[1],
}
VERBS: dict[str, Callable[[Table], object]] = {
    "append": lambda t: t.append(rows(3), id="op"),
    "evolve": lambda t: t.evolve([evolution.AddColumn("x", "int")], id="op"),
}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def place() -> Iterator[tuple[RestServer, Callable[[], Table], Callable[[], None]]]:
    """(the server, the table `a.t` as a client sees it, what puts everything back as it was)."""
    store = MemoryFiles("memory://rest")
    made = Table("t", store, dialect)
    create(made, SCHEMA)
    made.append(rows(1, 2))
    files = dict(store._files)
    pointer = "memory://rest/metadata/v2.metadata.json"
    with RestServer(pointer, store.read, store.write, {}) as server:
        catalog = RestCatalog(server.address, (("credential", "client:secret"),))

        def table() -> Table:
            return Table("a.t", Catalogued(store, catalog.entry("a.t")), dialect)

        def reset() -> None:
            store._files, server.pointer, server.asked = dict(files), pointer, []
            server.fault = lambda answer: answer()

        yield server, table, reset


def at(n: int, fault: Callable[[Answer], Any], seen: list[int]) -> Callable[[Answer], Any]:
    """The fault, at the n-th request."""

    def answer(asked: Answer) -> Any:
        seen.append(len(seen) + 1)
        return fault(asked) if seen[-1] == n else asked()

    return answer


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_commit_lands_once_whatever_becomes_of_one_request(place, verb: str, fault: str):
    server, table, reset = place
    table().scan()  # The client is there.
    server.asked = []
    VERBS[verb](table())
    requests = len(server.asked)
    assert requests > 2
    for n in range(1, requests + 1):
        seen: list[int] = []
        reset()
        server.fault = at(n, FAULTS[fault], seen)
        try:
            VERBS[verb](table())
        except (StoreError, CommitError):
            server.fault = lambda answer: answer()
            VERBS[verb](table())  # Asking again by the same id ends it.
        server.fault = lambda answer: answer()
        found = table()
        assert sorted(found.scan().to_arrow()["id"].to_pylist()) == ([1, 2, 3] if verb == "append" else [1, 2]), n
        assert [s.operation_id for s in found.snapshots()].count("op") == (verb == "append"), n
        assert list(found.schema.names) == (["id"] if verb == "append" else ["id", "x"]), n


def test_a_commit_that_a_gateway_repeats_keeps_its_manifests(place):
    """It lands once and answers 409 the second time: that is no proof that it lost."""
    server, table, _ = place
    server.fault = lambda answer: twice(answer) if server.asked[-1:] == ["GET namespaces/a/tables/t"] else answer()
    made = table().append(rows(3), id="op")
    assert made.operation_id == "op"
    assert sorted(table().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_what_a_server_refuses_for_good_is_said_at_once(place):
    server, table, _ = place
    refusals = []

    def refuse(answer: Answer) -> tuple[int, Any]:
        before = len(server.asked)
        status, told = answer()
        if server.asked[before].startswith("POST namespaces"):
            refusals.append(status)
            return 403, {"error": {"message": "not yours"}}
        return status, told

    server.fault = refuse
    with pytest.raises(StoreRefused, match="403: not yours"):
        table().append(rows(3))
    assert len(refusals) == 1


@pytest.mark.parametrize(
    "body", [LOGIN, b"", [], {}, {"metadata": []}, {"metadata-location": 5, "metadata": {}}, "x", 7]
)
@pytest.mark.parametrize("status", [200, 204, 302])
def test_answers_that_are_none_of_icebergs_are_named(place, body: Any, status: int):
    server, table, _ = place
    table().scan()
    catalog = doors.store(table()).entry.catalog
    server.fault = lambda answer: (status, body)
    for ask in (
        lambda: catalog.namespaces(),
        lambda: catalog.tables("a"),
        lambda: catalog.find("a.t", {}),
        lambda: table().scan().to_arrow(),
        lambda: table().append(rows(3)),
        lambda: RestCatalog(server.address, (("token", f"{body}{status}"),)).find("a.t", {}),
    ):
        with pytest.raises((StoreError, CommitError), match="catalog"):
            ask()


def test_a_listing_without_an_end_is_refused(place):
    server, table, _ = place
    catalog = doors.store(table()).entry.catalog
    catalog.namespaces()  # The client is there.
    server.fault = lambda answer: (200, {**answer()[1], "next-page-token": "again"})
    with pytest.raises(StoreError, match="namespaces: page 'again' of the listing refers to itself"):
        catalog.namespaces()
    server.fault = lambda answer: (200, {**answer()[1], "namespaces": [["a"]]})  # Whatever the parent is.
    assert catalog.namespaces() == ["a"]


def test_a_token_that_no_header_can_hold_is_refused_and_asked_for_again(place):
    server, _, _ = place
    catalog = RestCatalog(server.address, (("credential", "client:secret"), ("scope", "other")))
    server.fault = lambda answer: (200, {"access_token": "a\nb"})
    with pytest.raises(StoreError, match="oauth/tokens: a token: the answer is not as Iceberg's REST specification"):
        catalog.namespaces()
    server.fault = lambda answer: answer()
    assert catalog.namespaces() == ["a"]


def test_credentials_that_never_end(place):
    server, table, _ = place
    catalog = doors.store(table()).entry.catalog
    catalog.namespaces()  # The client is there.
    config = {"s3.access-key-id": "a", "s3.session-token-expires-at-ms": str(2**63 - 1)}
    server.fault = lambda answer: (200, {"metadata": {"location": "s3://b/t"}, "config": config})
    lease = catalog.find("a.t", {}).lease
    assert Renewing(lease)()["expires_at"] is None


def test_a_namespace_has_properties_and_goes(place, tmp_path):
    server, table, _ = place
    lake = Lake(tmp_path, catalog=server.address, catalog_options={"credential": "client:secret"})
    lake.alter_namespace("a", {"owner": "me", "k": "1"})
    lake.alter_namespace("a", {"k": "2"}, ["owner"])
    assert lake.namespace_properties("a") == server.properties == {"k": "2"}
    with pytest.raises(InvalidInput, match=r"holds a\.t"):
        lake.drop_namespace("a")
    server.properties = {"k": 2}
    with pytest.raises(StoreError, match="as Iceberg's REST specification"):
        lake.namespace_properties("a")
    catalog = doors.store(table()).entry.catalog
    with pytest.raises(InvalidInput, match="it has tables"):
        catalog.drop_namespace("a")
    server.names = []
    catalog.drop_namespace("a")
    catalog.drop_namespace("gone")
    assert catalog.namespace_properties("gone") == {}
    server.fault = lambda answer: (403, {"error": {"message": "not yours"}})
    for ask in (
        lambda: catalog.namespace_properties("a"),
        lambda: catalog.alter_namespace("a", {}, ()),
        lambda: catalog.drop_namespace("a"),
    ):
        with pytest.raises(StoreError, match="not yours"):
            ask()


class SigningServer(Serving):
    """A catalog that answers requests which the key `AKID` has signed as AWS says (Signature Version 4), computed here once more."""

    def __init__(self) -> None:
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
                scheme, _, said = handler.headers["Authorization"].partition(" ")
                parts = dict(part.split("=", 1) for part in said.split(", "))
                key, *scope = parts["Credential"].split("/")
                path, _, query = handler.path.partition("?")
                names = parts["SignedHeaders"].split(";")
                canonical = [
                    handler.command, quote(path), "&".join(sorted(query.split("&"))),
                    *(f"{name}:{handler.headers[name].strip()}" for name in names), "", parts["SignedHeaders"],
                    hashlib.sha256(body).hexdigest(),
                ]  # fmt: skip
                hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
                text = "\n".join([scheme, handler.headers["X-Amz-Date"], "/".join(scope), hashed]).encode()
                secret = b"AWS4hidden key"
                for each in scope:
                    secret = hmac.digest(secret, each.encode(), "sha256")
                is_good = (
                    key == "AKID"
                    and {"host", "x-amz-date", "x-amz-security-token"} <= set(names)
                    and scope[1:] == ["eu-central-1", "glue", "aws4_request"]
                    and hmac.digest(secret, text, "sha256").hex() == parts["Signature"]
                )
                self.asked.append(f"{handler.command} {handler.path} {is_good}")
                answer = json.dumps({"namespaces": [["a b"]] if "namespaces" in path and "parent" not in query else []})
                handler.send_response(200 if is_good else 403)
                handler.send_header("Content-Length", str(len(answer)))
                handler.end_headers()
                handler.wfile.write(answer.encode())

            do_POST = do_GET

            def log_message(handler, *_: Any) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.address = f"http://127.0.0.1:{self._server.server_port}/iceberg"


def test_requests_are_signed_for_aws():
    options = {"rest.sigv4-enabled": "true", "rest.signing-name": "glue", "rest.signing-region": "eu-central-1",
               "client.access-key-id": "AKID", "client.secret-access-key": "hidden key", "client.session-token": "session",
               "warehouse": "123:s3tablescatalog/a b+c"}  # fmt: skip
    with SigningServer() as server:
        catalog = RestCatalog(server.address, tuple(options.items()))
        assert catalog.namespaces() == ["a b"]
        catalog.create_namespace("new/one")
        catalog.alter_namespace("new\x1fone", {"owner": "me"}, ())
        assert [request.endswith(" True") for request in server.asked] == [True] * len(server.asked), server.asked
        wrong = RestCatalog(server.address, tuple({**options, "client.secret-access-key": "another"}.items()))
        with pytest.raises(StoreError, match="403") as caught:
            wrong.namespaces()
        assert "another" not in str(caught.value)
    assert "AKID" not in repr(catalog)


def test_signing_names_what_it_lacks(monkeypatch):
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(InvalidInput, match=r"rest\.signing-region"):
        signing.signing({"rest.sigv4-enabled": "true"})
    assert signing.signing({"rest.signing-name": "glue"}) is None


@pytest.mark.parametrize(
    ("separator", "in_path", "in_query"),
    [
        (None, "a%1Fb%20c", "a%1Fb+c"),
        ("%1F", "a%1Fb%20c", "a%1Fb+c"),
        ("%2E", "a.b%20c", "a.b+c"),
        (".", "a.b%20c", "a.b+c"),
        ("%7C%2F", "a%7C%2Fb%20c", "a%7C%2Fb+c"),
    ],
)
def test_levels_of_a_namespace_are_separated_as_the_server_says(separator, in_path, in_query):
    """rest-catalog-open-api.yaml: the override `namespace-separator` of /v1/config."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.removeprefix("/v1/").partition("?")
            overrides = {} if separator is None else {"namespace-separator": separator}
            answers: dict[str, dict[str, Any]] = {
                "config": {"defaults": {}, "overrides": overrides},
                "namespaces": {"namespaces": [] if query else [["a", "b c"]]},
            }
            asked.append((path, query))
            data = json.dumps(answers.get(path, {"error": {"message": "no"}})).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with Serving(server):
        catalog = RestCatalog(f"http://127.0.0.1:{server.server_port}")
        assert catalog.namespaces() == ["a.b c"]
        assert ("namespaces", f"parent={in_query}") in asked
        del asked[:]
        assert catalog.tables("a.b c") == catalog.views("a.b c") == []
        assert catalog.find("a.b c.t", {}) is catalog.find_view("a.b c.v", {}) is None
        assert catalog.namespace_properties("a.b c") == {}
        catalog.drop_namespace("a.b c")
        with pytest.raises(StoreError):
            catalog.alter_namespace("a.b c", {"k": "v"}, [])
        with pytest.raises(StoreError):
            catalog.register("a.b c.t", "s3://b/m.json")
    assert len(asked) == 8
    assert {path.split("/")[1] for path, _ in asked} == {in_path}
