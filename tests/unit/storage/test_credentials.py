"""Storage credentials of a REST catalog that run out, and tokens that do: asked for anew, in every process."""

import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest

from lakeformat import Lake, StoreError, UnsupportedFeature
from lakeformat.catalogs import vended
from lakeformat.catalogs.catalog import TableAccess
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.credentials import Issued, Lease, Renewing
from lakeformat.storage.files import open_store
from lakeformat.table import Table
from tests import doors
from tests.unit.rest_server import RestServer
from tests.unit.s3_server import S3Server

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64())])
HOUR = 3600


# --- when new ones are asked for ----------------------------------------------------------------------------------------


class Source:
    """Issues credentials for an hour, numbered; or fails."""

    def __init__(self, now, seconds=HOUR):
        self.now, self.seconds, self.count, self.fails = now, seconds, 0, False

    def issue(self):
        if self.fails:
            raise StoreError("the catalog does not answer")
        self.count += 1
        return Issued((("access_key_id", f"k{self.count}"),), int((self.now() + self.seconds) * 1000))


@pytest.fixture
def time():
    class Clock:
        now = 1_000_000.0

        def __call__(self):
            return self.now

        def ms(self):
            return int(self.now * 1000)

    return Clock()


def held(renewing):
    return renewing()["access_key_id"]


def test_credentials_are_renewed_five_minutes_before_their_end(time):
    source = Source(time)
    renewing = Renewing(Lease(source, source.issue()), time.ms)
    time.now += HOUR - 301
    assert held(renewing) == "k1"
    time.now += 1
    assert [held(renewing) for _ in range(3)] == ["k2"] * 3
    assert renewing()["expires_at"].timestamp() == time.now + HOUR
    assert source.count == 2


def test_short_ones_live_half_of_their_time(time):
    source = Source(time, 60)
    renewing = Renewing(Lease(source, source.issue()), time.ms)
    time.now += 29
    assert held(renewing) == "k1"
    time.now += 1
    assert held(renewing) == "k2"


def test_those_that_are_over_when_they_come_are_renewed_at_once(time):
    source = Source(time)
    late = source.issue()
    time.now += 2 * HOUR
    assert held(Renewing(Lease(source, late), time.ms)) == "k2"


def test_without_an_end_they_are_never_renewed(time):
    source = Source(time)
    renewing = Renewing(Lease(source, Issued((("token", "t"),))), time.ms)
    time.now += 1000 * HOUR
    assert renewing() == {"token": "t", "expires_at": None}
    assert source.count == 0


def test_a_catalog_that_does_not_answer_costs_nothing_until_they_are_over(time):
    source = Source(time)
    renewing = Renewing(Lease(source, source.issue()), time.ms)
    source.fails = True
    time.now += HOUR - 100
    assert held(renewing) == "k1"
    source.fails = False
    time.now += 49
    assert held(renewing) == "k1", "asked again too soon"
    time.now += 1
    assert held(renewing) == "k2"
    source.fails = True
    time.now += HOUR
    with pytest.raises(StoreError, match="does not answer"):
        renewing()


def test_threads_ask_once(time):
    source = Source(time)
    renewing = Renewing(Lease(source, Issued((), 0)), time.ms)
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait()
        renewing()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.count == 1


# --- what catalogs say --------------------------------------------------------------------------------------------------

S3 = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.session-token": "t"}


@pytest.mark.parametrize(
    ("location", "config", "options", "values", "expires_ms", "endpoint"),
    [
        ("s3://b/t", S3, {}, {"access_key_id": "k", "secret_access_key": "s", "token": "t"}, None, ""),
        (
            "s3a://b/t",
            {
                **S3,
                "s3.session-token-expires-at-ms": "5",
                "client.region": "r",
                "s3.endpoint": "e",
                "s3.path-style-access": "true",
                "s3.remote-signing-enabled": "true",
                "s3.multipart.size": "1",
                "client.refresh-credentials-endpoint": "/v1/c",
            },
            {"s3.region": "r", "s3.endpoint": "e", "s3.path-style-access": "true"},
            {"access_key_id": "k", "secret_access_key": "s", "token": "t"},
            5,
            "/v1/c",
        ),
        ("s3://b/t", {"s3.region": "a", "client.region": "b"}, {"s3.region": "a"}, None, None, ""),
        (
            "gs://b/t",
            {
                "gcs.oauth2.token": "t",
                "gcs.oauth2.token-expires-at": "7",
                "gcs.oauth2.refresh-credentials-endpoint": "v1/c",
            },
            {},
            {"token": "t"},
            7,
            "v1/c",
        ),
        ("gs://b/t", {"gcs.no-auth": "true", "gcs.project-id": "p"}, {"skip_signature": "true"}, None, None, ""),
        (
            "abfss://c@acc.dfs.core.windows.net/t",
            {
                "adls.sas-token.other": "x",
                "adls.sas-token.acc.dfs.core.windows.net": "?sv=1",
                "adls.sas-token-expires-at-ms.acc": "9",
                "adls.refresh-credentials-endpoint": "c",
            },
            {},
            {"sas_token": "sv=1"},
            9,
            "c",
        ),
        (
            "abfss://c@acc.dfs.core.windows.net/t",
            {"adls.auth.shared-key.account.name": "acc", "adls.auth.shared-key.account.key": "a2V5"},
            {"account_name": "acc", "account_key": "a2V5"},
            None,
            None,
            "",
        ),
        ("file:///w/t", S3, {}, None, None, ""),
    ],
)
def test_what_a_catalog_says_of_storage(location, config, options, values, expires_ms, endpoint):
    found = vended.read({"config": config}, location)
    issued = None if values is None else Issued(tuple(values.items()), expires_ms)
    assert (dict(found.options), found.issued, found.endpoint) == (options, issued, endpoint)
    if issued is not None:  # The library takes them.
        store = open_store(location, found.options, Lease(Source(lambda: 0), issued))
        assert store._client() is not None


def test_credentials_of_the_longest_prefix_come_before_the_configuration():
    answer = {
        "config": {**S3, "s3.region": "r"},
        "storage-credentials": [
            {"prefix": "s3://b/t", "config": {"s3.access-key-id": "near"}},
            {"prefix": "s3://b", "config": {"s3.access-key-id": "far"}},
            {"prefix": "s3://other", "config": {"s3.access-key-id": "other"}},
        ],
    }
    found = vended.read(answer, "s3://b/t")
    assert dict(found.issued.values)["access_key_id"] == "near"
    assert found.options == {"s3.region": "r"}
    assert "near" not in repr(found)


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"s3.sse.type": "kms", **S3}, UnsupportedFeature, "s3.sse.type=kms"),
        ({"s3.remote-signing-enabled": "true"}, UnsupportedFeature, "remote-signing"),
        ({**S3, "s3.session-token-expires-at-ms": "soon"}, StoreError, "expires-at-ms='soon'"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(config, error, says):
    with pytest.raises(error, match=says) as raised:
        vended.read({"config": config}, "s3://b/t")
    assert "s3.secret" not in str(raised.value)


# --- a table in storage that takes only keys of the day -----------------------------------------------------------------


@contextmanager
def catalog(short, uses=1000):
    """A lake whose storage refuses vended keys that are over, and the catalog's server."""
    served: list[RestServer] = []

    def guard(inner):
        def app(environ, start_response):
            key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
            if served and not served[0].is_good(key):
                start_response("403 Forbidden", [("Content-Length", "0")])
                return [b""]
            return inner(environ, start_response)

        return app

    with S3Server(guard) as storage:
        warehouse = f"{storage.new_bucket()}/w"
        made = Lake(warehouse, **storage.options).create_table("a.t", SCHEMA, format="iceberg")
        made.append(pa.table({"id": [1]}))
        client = storage.client()

        def place(location):
            bucket, _, key = location.removeprefix("s3://").partition("/")
            return {"Bucket": bucket, "Key": key}

        newest = max(f.path for f in doors.store(made).list("metadata") if f.path.endswith(".metadata.json"))
        server = RestServer(
            f"{made.uri}/{newest}",
            read=lambda location: client.get_object(**place(location))["Body"].read(),
            write=lambda location, data: client.put_object(**place(location), Body=data),
            options={"s3.endpoint": storage.options["aws_endpoint"], "client.region": "us-east-1"},
            short=short,
            uses=uses,
        )
        served.append(server)
        with server:
            yield Lake(warehouse, catalog=server.address, catalog_options={"credential": "me:secret"}), server


def ids_in(store):
    return ids(Table("a.t", store, iceberg))


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("endpoint", ["/v1/namespaces/a/tables/t/credentials", None, "https://elsewhere.test/v1/c"])
def test_a_job_goes_on_with_new_credentials(endpoint):
    with catalog(short=1) as (lake, server):
        server.endpoint = endpoint
        table = lake.table("a.t")
        assert server.vended == ["vended-1"], "it is over already"
        table.append(pa.table({"id": [2, 3]}))
        table.delete("id = 1")
        assert ids(table) == [2, 3]
        asked = [path for path in server.asked if path.endswith("/credentials")]
        assert bool(asked) == (endpoint is not None and endpoint.startswith("/"))
        shown = f"{table!r} {doors.store(table)!r} {lake!r}"
        assert not any(text in shown for text in ("vended-", "hidden", "secret"))


def test_a_server_may_compress_the_metadata():
    with catalog(short=0) as (lake, server):
        server.compresses = True
        table = lake.table("a.t")
        for n in (2, 3):
            table.append(pa.table({"id": [n]}))
        assert server.pointer.endswith(".gz.metadata.json")
        assert server.read(server.pointer).startswith(b"\x1f\x8b")
        table.alter().set_properties({"write.metadata.compression-codec": "gzip"}).commit()
        table.append(pa.table({"id": [4]}))
        assert ids(lake.table("a.t")) == [1, 2, 3, 4]


def test_another_process_asks_for_its_own():
    with catalog(short=1_000_000) as (lake, server):
        table = lake.table("a.t")
        with pytest.raises(StoreError) as raised:  # All of them are over.
            ids(table)
        assert not any(text in f"{raised.value}" for text in ("hidden", "secret", "session"))
        server.short = len(server.vended)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(ids_in, doors.store(table)).result() == [1]
        assert server.is_good(server.vended[-1])


def test_a_token_that_runs_out_is_asked_for_again():
    with catalog(short=0, uses=3) as (lake, server):
        table = lake.table("a.t")
        for n in range(2, 6):
            table.append(pa.table({"id": [n]}))
        assert ids(table) == [1, 2, 3, 4, 5]
        assert len(server.tokens) > 2
        server.tokens["Bearer given"] = 1
        fixed = Lake(lake.uri, catalog=server.address, catalog_options={"token": "given"})
        with pytest.raises(StoreError, match=r"401: the token ran out; with catalog_options 'credential'") as raised:
            fixed.table("a.t")
        assert "given" not in str(raised.value)


def test_workers_are_handed_the_files_without_what_opens_the_catalog(tmp_path):
    options = {"credential": "me:secret", "token": "secret"}
    lake = Lake(tmp_path, catalog="http://127.0.0.1:1", catalog_options=options)
    store = lake._catalogued(lake._catalog, "a.t", TableAccess(str(tmp_path / "t")))
    assert b"secret" in pickle.dumps(store)
    assert b"secret" not in pickle.dumps(files_of(store))
    assert files_of(files_of(store)) is files_of(store)
