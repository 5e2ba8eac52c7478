"""What only object storage can do wrong: services that do not keep their word, are away, or repeat a request."""

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.errors import CommitUnknown, InvalidInput, StoreError, StoreRefused, UnsupportedFeature
from lakeformat.model.snapshot import Outcome, Plan, Snapshot
from lakeformat.storage import client, listing
from lakeformat.storage.files import open_store
from lakeformat.storage.head import CreateHead
from lakeformat.storage.objects import ObjectFiles
from tests.unit.s3_server import S3Server, Wsgi


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def plan(version: int, root: bytes = b"root") -> Plan:
    snapshot = Snapshot(version, "append", 0, 0)
    return Plan({}, f"snapshot/snapshot-{version}", root, snapshot, {"snapshot/LATEST": str(version).encode()})


def test_the_server_of_these_tests_honours_the_conditional_put(s3: S3Server):
    store = open_store(f"{s3.new_bucket()}/t", s3.options)
    assert store.create("a", b"1")
    assert not store.create("a", b"2")
    assert store.read("a") == b"1"
    assert [listed.path for listed in store.list("")] == ["a"], "the probe cleans up after itself"


def test_a_service_that_ignores_the_condition_is_refused_as_a_head():
    def deaf(inner: Wsgi) -> Wsgi:
        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            environ.pop("HTTP_IF_NONE_MATCH", None)
            return inner(environ, start_response)

        return app

    with S3Server(deaf) as server:
        store = open_store(f"{server.new_bucket()}/t", server.options)
        store.write("f", b"x")
        for _ in range(2):
            with pytest.raises(UnsupportedFeature, match="ignores"):
                CreateHead(store).advance(0, plan(1))
        assert [listed.path for listed in store.list("")] == ["f"], "nothing was published"


def test_plain_http_is_for_reading(s3: S3Server):
    bucket = s3.new_bucket()
    open_store(f"{bucket}/t", s3.options).write("k=a b/f%20", b"x" * 3_000_000)
    s3.client().put_object_acl(Bucket=bucket.removeprefix("s3://"), Key="t/k=a b/f%20", ACL="public-read")
    endpoint = s3.options["aws_endpoint"]
    reader = open_store(f"{endpoint}/{bucket.removeprefix('s3://')}/t", {"max_retries": "1"})
    assert reader.read("k=a b/f%20") == b"x" * 3_000_000
    assert list(reader.read_many(["k=a b/f%20"] * 3)) == [b"x" * 3_000_000] * 3
    assert reader.exists("k=a b/f%20")
    with reader.open("k=a b/f%20") as file:
        file.seek(2_999_999)
        assert file.read() == b"x"
    with pytest.raises(UnsupportedFeature, match="only if it is absent"):
        reader.create("new", b"x")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize(("rows", "columns"), [(1_500_000, 1), (200_000, 6)])
def test_rows_that_several_threads_encode_are_written(s3: S3Server, format: str, rows: int, columns: int):
    lake = Lake(s3.new_bucket(), **s3.options)
    data = pa.table({f"c{index}": pa.array(range(rows), pa.int64()) for index in range(columns)})
    table = lake.create_table("d.t", data.schema, format=format)
    table.append(data)
    assert table.scan().to_arrow().sort_by("c0").equals(data)


def test_a_put_that_the_client_repeats_does_not_lose_to_itself():
    """The first answer to the put of the snapshot is swallowed by a 503, after its effect."""
    seen: list[str] = []

    def flaky(inner: Wsgi) -> Wsgi:
        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if environ["REQUEST_METHOD"] != "PUT" or "snapshot-1" not in path:
                return inner(environ, start_response)
            seen.append(path)
            if len(seen) > 1:
                return inner(environ, start_response)
            list(inner(environ, lambda status, headers, error=None: None))
            start_response("503 Slow Down", [("Content-Length", "0")])
            return []

        return app

    with S3Server(flaky) as server:
        store = open_store(f"{server.new_bucket()}/t", server.options)
        head = CreateHead(store)
        with pytest.raises(StoreError, match="503"):
            head.advance(0, plan(1, b"mine"))
        assert len(seen) == 1, "a conditional put is not repeated behind our back"
        assert head.version() == 1
        assert head.advance(0, plan(1, b"yours")) is Outcome.LOST


@pytest.mark.parametrize(
    "name",
    [
        *("endpoint", "endpoint_url", "aws_endpoint", "s3.endpoint", "azure_endpoint", "azure_storage_endpoint"),
        *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ],
)
def test_an_endpoint_is_known_by_each_of_its_names(name: str, monkeypatch: pytest.MonkeyPatch):
    """A service at an endpoint is tested for conditional puts."""
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    assert client.endpoint((("region", "r"),)) == ""
    options = ((name, "http://e"),)
    if name.isupper():
        monkeypatch.setenv(name, "http://e")
        options = ()
    assert client.endpoint(options) == "http://e"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (501, UnsupportedFeature),
        (400, StoreRefused),
        (403, StoreRefused),
        (404, StoreRefused),
        (409, CommitUnknown),
        (500, CommitUnknown),
    ],
)
def test_a_conditional_put_that_is_refused_says_what_the_store_said(status: int, error: type[Exception]):
    """At once where that is final: 409 says that another request for the name is under way."""
    puts: list[str] = []

    def refusing(inner: Wsgi) -> Wsgi:
        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if environ["REQUEST_METHOD"] != "PUT" or "snapshot-1" not in path:
                return inner(environ, start_response)
            puts.append(path)
            environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            # That the outcome is unknown is said with the first line of what the store said.
            body = b"<Error><Code>NotThisOne</Code></Error>"
            body = body if status == 500 else b"<?xml version='1.0'?>\n" + body
            start_response(f"{status} Refused", [("Content-Length", str(len(body)))])
            return [body]

        return app

    with S3Server(refusing) as server:
        properties = {"commit.max-retries": "2"}
        lake = Lake(f"{server.new_bucket()}/w", **server.options)
        table = lake.create_table("a.t", pa.schema({"id": pa.int64()}), properties=properties)
        with pytest.raises(error, match="NotThisOne") as caught:
            table.append(pa.table({"id": [1]}))
        assert str(status) in str(caught.value)
        assert len(puts) == (3 if status in (409, 500) else 1)


def test_a_service_that_throttles_is_asked_again():
    """Every request is answered by 503 when it first comes, without effect."""
    asked: Counter[tuple[str, str]] = Counter()

    def throttling(inner: Wsgi) -> Wsgi:
        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            path = environ["PATH_INFO"] + environ["QUERY_STRING"].replace("%2F", "/")
            request = environ["REQUEST_METHOD"], path.partition(".create-probe-")[0]
            asked[request] += 1
            if asked[request] > 1 or "/w/" not in path:
                return inner(environ, start_response)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            body = b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"
            start_response("503 Slow Down", [("Content-Length", str(len(body)))])
            return [body]

        return app

    with S3Server(throttling) as server:
        table = Lake(f"{server.new_bucket()}/w", **server.options).create_table("a.t", pa.schema({"id": pa.int64()}))
        made = table.append(pa.table({"id": [1]}))
        assert made.attempts == 2, "the conditional put is the loop's to repeat"
        assert table.scan().to_arrow().to_pydict() == {"id": [1]}
    files = {path for method, path in asked if method == "GET" and path.endswith(".parquet")}
    assert len(files) == 1
    assert asked["GET", files.pop()] == 2, "one answer brings a small file"
    assert not [path for method, path in asked if method == "HEAD" and path.endswith(".parquet")]


def test_a_service_that_is_away_is_a_store_error():
    options = {
        "aws_endpoint": "http://127.0.0.1:9",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "max_retries": "0",
    }
    store = open_store("s3://bucket/t", options)
    for attempt in (
        lambda: store.read("f"),
        lambda: list(store.read_many(["f", "g"])),
        lambda: store.exists("f"),
        lambda: store.list(""),
        lambda: store.folders(""),
        lambda: store.open("f"),
        lambda: store.write("f", b"x"),
        lambda: store.create("f", b"x"),
        lambda: store.delete(["f"]),
        lambda: write_stream(store),
    ):
        with pytest.raises(StoreError, match="s3://bucket/t") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    given = {"azure_storage_account_name": "a", "azure_storage_account_key": "eA==", "max_retries": "0"}
    away = open_store("az://bucket/t", {**given, "azure_storage_endpoint": "http://127.0.0.1:9/a"})
    with pytest.raises(StoreError, match="error sending request"):  # It is asked, also without TLS.
        away.read("f")
    with pytest.raises(StoreError):
        CreateHead(store).advance(0, plan(1))


def write_stream(store: Any) -> None:
    with store.create_stream("f") as stream:
        stream.write(b"x")


def test_a_missing_bucket_is_a_store_error(s3: S3Server):
    store = open_store(f"s3://none-{uuid.uuid4()}/t", s3.options)
    with pytest.raises(StoreError):
        store.write("f", b"x")
    with pytest.raises(StoreError):
        store.list("")


@pytest.mark.parametrize(
    "options", [{"nonsense": "x"}, {"timeout": "soon"}, {"max_retries": "many"}, {"s3.path.style.access": "perhaps"}]
)
def test_an_unknown_option_is_named(options: dict[str, str]):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        open_store("s3://bucket/t", options).read("f")


@pytest.mark.parametrize(
    "spelling",
    [
        {"s3.endpoint": "", "s3.access-key": "test", "s3.secret-key": "test", "s3.path.style.access": "true"},
        {"endpoint": "", "access_key_id": "test", "secret_access_key": "test", "allow_http": "true"},
        {"AWS_ENDPOINT": "", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "aws_allow_http": "true"},
        {"s3.endpoint": "", "s3.access-key-id": "test", "s3.secret-access-key": "test", "s3.region": "eu-west-1"},
    ],
)
def test_options_go_by_the_names_that_catalogs_use(s3: S3Server, spelling: dict[str, str]):
    bucket = s3.new_bucket()
    options = {name: value or s3.options["aws_endpoint"] for name, value in spelling.items()}
    store = open_store(f"{bucket}/t", options)
    store.write("f", b"x")
    assert store.create("g", b"x")
    assert open_store(f"{bucket}/t", s3.options).read("f") == b"x"


def test_the_environment_names_the_service(s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    bucket = s3.new_bucket()
    for name, value in {
        "AWS_ENDPOINT_URL": s3.options["aws_endpoint"],
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"{bucket}/{uuid.uuid4()}")
    store.write("f", b"x")
    assert store.create("g", b"x")
    assert not store.create("g", b"x")


def test_secrets_do_not_show():
    store = open_store("s3://bucket/t", {"aws_secret_access_key": "hush"})
    assert isinstance(store, ObjectFiles)
    assert "hush" not in repr(store)


def test_files_go_to_another_bucket_where_a_table_says_so(s3: S3Server, tmp_path: Any):
    home, far = s3.new_bucket(), s3.new_bucket()
    lake = Lake(f"{home}/w", catalog=f"sqlite:///{tmp_path}/catalog.sqlite", **s3.options)
    properties = {
        "write.data.path": f"{far.replace('s3://', 's3a://')}/data",
        "write.metadata.path": f"{far}/metadata",
        "write.object-storage.enabled": "true",
    }
    table = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format="iceberg", properties=properties)
    for ids in ([1, 2], [3]):
        table.append(pa.table({"id": ids}))
    table.delete("id = 2")
    table.expire_snapshots(retain_last=1)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
    names = [file.path for file in open_store(far, s3.options).list("")]
    assert sum(name.startswith("data/") and "/d.db/t/" in name for name in names) == 2, names
    assert table.compute_table_stats().startswith(f"{far}/metadata/")
    assert table.missing_files() == table.remove_orphan_files(older_than=0) == []
    lake.drop_table("d.t", purge=True)
    assert open_store(far, s3.options).list("") == open_store(home, s3.options).list("") == []


def test_many_objects_are_listed_part_by_part():
    """Also by a service that does not begin where it is asked to, or lists in no order: each object once."""
    asked: list[str] = []
    is_deaf = is_random = False

    def altered(inner: Wsgi) -> Wsgi:
        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            query = environ["QUERY_STRING"]
            if environ["REQUEST_METHOD"] != "GET" or "list-type=2" not in query:
                return inner(environ, start_response)
            asked.append(query)
            if is_deaf:
                environ["QUERY_STRING"] = re.sub(r"&?start-after=[^&]*", "", query)
            if not is_random:
                return inner(environ, start_response)
            answer: list[Any] = []
            body = b"".join(inner(environ, lambda *given: answer.append(given)))
            objects = re.findall(rb"<Contents>.*?</Contents>", body, re.DOTALL)
            for key, other in zip(objects, reversed(objects), strict=True):
                body = body.replace(key, other.replace(b"Contents", b"contents"), 1)
            start_response(*answer[0])
            return [body.replace(b"contents>", b"Contents>")]

        return app

    with S3Server(altered) as server:
        store = open_store(f"{server.new_bucket()}/t", server.options)
        assert isinstance(store, ObjectFiles)
        names = [f"data/p={n % 7}/b-{n % 3}/{n}" for n in range(40)]
        names += ["data/p=1", "data/p=1-1/x", "metadata/v1", "a", "z"]
        store.write_many(dict.fromkeys(names, b"x"))
        for is_deaf, is_random, cuts in (  # noqa: B007  The server looks at these.
            (False, False, True),
            (True, False, True),
            (False, True, True),
            (False, False, False),
        ):
            asked.clear()
            found = listing.listed(store._client(), "t", store.several, cuts, page=4)
            assert sorted(entry["path"] for entry in found) == sorted(f"t/{name}" for name in names)
            parts = [request for request in asked if "start-after" in request]
            assert len(parts) == (2 + 8 + 21 if cuts else 0), "from each folder on"
            whole = [request for request in asked if request not in parts and "delimiter" not in request]
            assert len(whole) == 3 if is_random else 2, "the first, and up to the first folder, or all"
