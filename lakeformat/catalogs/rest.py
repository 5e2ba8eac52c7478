"""Iceberg's REST catalog: the server keeps the pointer, writes the roots, and checks the requirements of a commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

import requests

from lakeformat import redact
from lakeformat.catalogs import documents, signing, vended
from lakeformat.catalogs.catalog import TableAccess, ViewMetadata
from lakeformat.codec import document
from lakeformat.errors import AlreadyExists, CorruptFile, InvalidInput, LakeError, NotFound, StoreError, StoreRefused
from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.catalogued import is_within
from lakeformat.storage.credentials import Issued, Lease
from lakeformat.storage.head import Head, Pointer, RehearsedHead, root_pointer
from lakeformat.storage.store import Reader, Store

_VIEWS = "view-endpoints-supported"  # The endpoints of servers that list none, as in Java's client and pyiceberg.
_VIEW_ENDPOINT = "GET /v1/{prefix}/namespaces/{namespace}/views"
_TIMEOUT_SECONDS = (10, 60)  # Seconds to connect, and to answer.
_SEPARATOR, _UNIT_SEPARATOR = "namespace-separator", "%1F"  # The option, encoded as in URLs, and its default.
OPTIONS = (
    frozenset(
        {"credential", "format", _SEPARATOR, "oauth2-server-uri", "prefix", "scope", "token", "warehouse", _VIEWS}
    )
    | signing.OPTIONS
)
_EXPIRED = (401, 419)
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Response:
    """A server's response: the status, the JSON object of the body, or the beginning of any other body."""

    status: int
    body: Mapping[str, Any]
    nonsense: str = ""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        error = self.body.get("error")
        said = error.get("message", error.get("type")) if isinstance(error, dict) else self.body.get("message")
        return said if isinstance(said, str) else self.nonsense or f"HTTP {self.status}"


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """The tables of the server at `uri` (its path before `/v1`). `options`: see `OPTIONS`, and `header.<name>`."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"RestCatalog({redact.address(self.uri)!r})"

    @property
    def format(self) -> str:
        return "iceberg"

    @property
    def names_are_folders(self) -> bool:
        return False

    @property
    def vends_credentials(self) -> bool:
        return True

    def namespaces(self) -> list[str]:
        namespaces: set[str] = set()
        ahead = [""]
        while ahead:
            parent = ahead.pop()
            query = {"parent": self.separator.join(parent.split("."))} if parent else {}
            inside = {*self._listed("namespaces", "namespaces", query, _namespace)} - namespaces
            namespaces |= inside  # A server that ignores `parent` lists the same namespaces for each.
            ahead += inside
        return sorted(namespaces)

    def tables(self, namespace: str) -> list[str]:
        return sorted(self._listed(f"namespaces/{self.levels(namespace)}/tables", "identifiers", {}, _table))

    def find(self, name: str, options: Mapping[str, str]) -> TableAccess | None:
        loaded = self.entry(name).load()
        if loaded is None:
            return None
        with specified(f"{self.uri}: {name}"):
            location = _text(loaded["metadata"]["location"]).rstrip("/")
            access = vended.read(loaded, location)
        issuer = RestIssuer(self.entry(name), location, access.endpoint)
        return TableAccess(location, access.options, Lease(issuer, access.issued) if access.issued else None)

    def entry(self, name: str) -> RestEntry:
        namespace, _, table = name.rpartition(".")
        return RestEntry(self, namespace, table)

    def create_namespace(self, name: str) -> None:
        response = self.ask("POST", "namespaces", {"namespace": name.split("."), "properties": {}})
        if not response.is_good and response.status != 409:
            raise self.refused(response, f"namespace {name}")

    def namespace_properties(self, name: str) -> dict[str, str]:
        response = self.ask("GET", f"namespaces/{self.levels(name)}")
        if response.status == 404:
            return {}
        if not response.is_good:
            raise self.refused(response, f"namespace {name}")
        with specified(f"{self.uri}: {name}"):
            given = response.body.get("properties") or {}
            return {_text(key): _text(value) for key, value in given.items()}

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        body = {"updates": dict(properties), "removals": sorted(remove)}
        response = self.ask("POST", f"namespaces/{self.levels(name)}/properties", body)
        if not response.is_good:
            raise self.refused(response, f"namespace {name}")

    def drop_namespace(self, name: str) -> None:
        response = self.ask("DELETE", f"namespaces/{self.levels(name)}")
        if response.status == 409:
            raise InvalidInput(f"namespace {name!r} is not empty, says {self.uri}: {response.message}")
        if not response.is_good and response.status != 404:
            raise self.refused(response, f"namespace {name}")

    def location_of(self, namespace: str) -> str | None:
        return None

    def register(self, name: str, metadata_location: str) -> None:
        namespace, _, table = name.rpartition(".")
        body = {"name": table, "metadata-location": metadata_location}
        response = self.ask("POST", f"namespaces/{self.levels(namespace)}/register", body)
        if response.status == 409:
            raise AlreadyExists(f"{name}: a table exists already in {self.uri}; drop it first")
        if not response.is_good:
            raise self.refused(response, name)

    def rename(self, old: str, new: str) -> None:
        self._rename(old, new, "table")

    def drop(self, name: str) -> None:
        self._drop(self.entry(name).path, name, "table", {"purgeRequested": "false"})

    def show(self, name: str, newest: Callable[[], tuple[str, Mapping[str, Any]]]) -> None:
        lost: StoreError | None = None  # A change without an answer: the next round sees whether it was made.
        for _ in range(_ROUNDS):
            entry = self.entry(name)
            loaded = entry.load()
            location, new = newest()  # Read after the server's, which is never ahead of it but after a rollback.
            if loaded is None:
                self.create_namespace(entry.namespace)
                try:
                    with suppress(AlreadyExists):
                        self.register(name, location)
                except StoreError as error:
                    if lost:
                        raise
                    lost = error
                continue
            with specified(f"{self.uri}: {name}"):
                base = loaded["metadata"]
                if not documents.goes_on(base, new):
                    with suppress(NotFound):
                        self.drop(name)
                    continue
                # The server writes its documents beside the newest one, and deletes none.
                beside = {
                    "write.metadata.path": location.rpartition("/")[0],
                    "write.metadata.delete-after-commit.enabled": "false",
                }
                new = {**new, "properties": {**new["properties"], **beside}}
                if not documents.updates(base, new):
                    return
                body = {
                    "identifier": {"namespace": entry.namespace.split("."), "name": entry.table},
                    "requirements": documents.requirements(base, new),
                    "updates": documents.updates(base, new),
                }
            try:
                response = self.ask("POST", entry.path, body)
            except StoreError as error:
                if lost:
                    raise
                lost = error
                continue
            if not response.is_good and response.status not in (404, 409):
                raise self.refused(response, name)
        raise StoreError(f"{self.uri}: {name}: other writers change the table faster than it is loaded; try again")

    @property
    def keeps_views(self) -> bool:
        return _client(self.uri, self.options, os.getpid()).keeps_views

    @property
    def places_views(self) -> bool:
        return True

    def views(self, namespace: str) -> list[str]:
        return sorted(self._listed(f"namespaces/{self.levels(namespace)}/views", "identifiers", {}, _table))

    def has_view(self, name: str) -> bool:
        return self.find_view(name, {}) is not None

    def find_view(self, name: str, options: Mapping[str, str]) -> ViewMetadata | None:
        response = self.ask("GET", self._view(name))
        if response.status == 404:
            return None
        if not response.is_good:
            raise self.refused(response, name)
        with specified(f"{self.uri}: {name}"):
            return ViewMetadata(_text(response.body["metadata-location"]), dict(response.body["metadata"].items()))

    def publish_view(
        self, name: str, base: ViewMetadata | None, document: Mapping[str, Any], nonce: str, options: Mapping[str, str]
    ) -> bool:
        namespace, _, view = name.rpartition(".")
        if base is None:
            self.create_namespace(namespace)
            response = self.ask(
                "POST", f"namespaces/{self.levels(namespace)}/views", documents.view_creation(view, document)
            )
        else:
            with specified(f"{self.uri}: {name}"):
                body = {
                    "identifier": {"namespace": namespace.split("."), "name": view},
                    "requirements": [{"type": "assert-view-uuid", "uuid": _text(base.document["view-uuid"])}],
                    "updates": documents.view_updates(base.document, document),
                }
            response = self.ask("POST", self._view(name), body)
        if not response.is_good and response.status not in (404, 409):
            raise self.refused(response, name)
        return response.is_good

    def rename_view(self, old: str, new: str) -> None:
        self._rename(old, new, "view")

    def drop_view(self, name: str, root: str, options: Mapping[str, str]) -> None:
        self._drop(self._view(name), name, "view")

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> Response:
        """One request. It is repeated only if its token has expired, which the server checks before anything else.
        `path` is below the catalog's prefix, or below its address if it begins with a slash.

        Raises `StoreError` if there was no response, or one that leaves open whether the request was carried out.
        """
        client = _client(self.uri, self.options, os.getpid())
        response = client.send(method, path, body, query)
        if response.status in _EXPIRED and client.renew():
            response = client.send(method, path, body, query)
        elif response.status in _EXPIRED:
            raise StoreError(
                f"{self.refused(response, path)}; with catalog_options 'credential' a token that runs out is renewed"
            )
        if response.status >= 500 or response.status in (408, 429, *_EXPIRED):
            raise self.refused(response, path)
        return _understood(response, f"{self.uri}: {path}")

    @property
    def separator(self) -> str:
        """What separates the levels of a namespace in URLs, as the server's configuration says."""
        return unquote(self.setting(_SEPARATOR) or _UNIT_SEPARATOR)

    def levels(self, namespace: str) -> str:
        """A namespace as a part of a URL's path."""
        return _quoted(self.separator).join(map(_quoted, namespace.split(".")))

    def setting(self, key: str) -> str | None:
        """An option of the user, or else of the server's configuration."""
        return _client(self.uri, self.options, os.getpid()).setting(key)

    def refused(self, response: Response, label: str) -> StoreError:
        said = redact.redacted(response.message, *redact.secrets_of(dict(self.options)))
        return StoreError(f"{self.uri}: {label}: the catalog says {response.status}: {said}")

    def _view(self, name: str) -> str:
        namespace, _, view = name.rpartition(".")
        return f"namespaces/{self.levels(namespace)}/views/{_quoted(view)}"

    def _rename(self, old: str, new: str, kind: str) -> None:
        source, destination = (
            {"namespace": n.rpartition(".")[0].split("."), "name": n.rpartition(".")[2]} for n in (old, new)
        )
        response = self.ask("POST", f"{kind}s/rename", {"source": source, "destination": destination})
        if response.status == 409:
            raise AlreadyExists(f"{new}: there is a table or a view already in {self.uri}")
        if response.status == 404:
            raise NotFound(f"no {kind} {old!r} in {self.uri}")
        if not response.is_good:
            raise self.refused(response, old)

    def _drop(self, path: str, name: str, kind: str, query: Mapping[str, str] | None = None) -> None:
        response = self.ask("DELETE", path, query=query)
        if response.status == 404:
            raise NotFound(f"no {kind} {name!r} in {self.uri}")
        if not response.is_good:
            raise self.refused(response, name)

    def _listed(self, path: str, key: str, query: Mapping[str, str], read: Callable[[Any], str]) -> list[str]:
        """The entries of all pages of a listing, passed through `read`; empty if the namespace does not exist."""
        entries: list[str] = []
        token, seen = "", {""}
        while True:
            response = self.ask("GET", path, query={**query, **({"pageToken": token} if token else {})})
            if response.status == 404:
                return entries
            if not response.is_good:
                raise self.refused(response, path)
            with specified(f"{self.uri}: {path}"):
                entries += map(read, _list(response.body[key]))
                token = _text(response.body.get("next-page-token") or "")
            if not token:
                return entries
            if token in seen:
                raise StoreError(f"{self.uri}: {path}: page {token!r} of the listing refers to itself: it has no end")
            seen.add(token)


@dataclass(frozen=True, slots=True)
class RestEntry:
    """A table's entry in a REST catalog."""

    catalog: RestCatalog
    namespace: str
    table: str

    @property
    def path(self) -> str:
        return f"namespaces/{self.catalog.levels(self.namespace)}/tables/{_quoted(self.table)}"

    def head(self, store: Store) -> RestHead:
        return RestHead(store, self)

    def sharers(self, reader: Reader) -> list[str]:
        """Loads each of the server's tables: no other request lists locations."""
        catalog, names = self.catalog, []
        for name in (name for namespace in catalog.namespaces() for name in catalog.tables(namespace)):
            entry = catalog.entry(name)
            loaded = None if entry == self else entry.load({"snapshots": "refs"})
            if loaded is None:
                continue
            with specified(f"{catalog.uri}: {name}"):
                places = (loaded["metadata"].get("location"), loaded.get("metadata-location"))
                if any(location and is_within(reader.root, location) for location in places):
                    names.append(name)
        return sorted(names)

    def load(self, query: Mapping[str, str] | None = None) -> Mapping[str, Any] | None:
        """The server's `LoadTableResult`; None if the table does not exist."""
        response = self.catalog.ask("GET", self.path, query=query)
        if response.status == 404:
            return None
        if not response.is_good:
            raise self.catalog.refused(response, f"{self.namespace}.{self.table}")
        return response.body

    def location(self) -> str | None:
        """The location of the newest root."""
        loaded = self.load()
        if loaded is None:
            return None
        with specified(f"{self.catalog.uri}: {self.namespace}.{self.table}"):
            return _text(loaded["metadata-location"])


@dataclass(frozen=True, slots=True)
class RestIssuer:
    """Issues the next credentials for the table at `location`: from the `endpoint` that the server named, if it is one
    of the catalog, or else by loading the table again."""

    entry: RestEntry
    location: str
    endpoint: str

    def issue(self) -> Issued:
        catalog, name = self.entry.catalog, f"{self.entry.namespace}.{self.entry.table}"
        path = self.endpoint.removeprefix(f"{catalog.uri}/")
        if not path or "://" in path:  # A token is sent to the catalog only.
            path = self.entry.path
        response = catalog.ask("GET", path if path == self.entry.path else f"/{path.lstrip('/')}")
        if not response.is_good:
            raise catalog.refused(response, f"{name}: new credentials for its files")
        with specified(f"{catalog.uri}: {name}: new credentials for its files"):
            credentials = vended.read(response.body, self.location)
        if credentials.issued is None:
            raise StoreError(f"{catalog.uri}: {name}: the catalog vends no credentials any more for {self.location}")
        return credentials.issued


@dataclass(frozen=True, slots=True)
class RestHead:
    """A head whose commits send requirements and updates; the server writes the root.

    A status alone proves nothing: a gateway that repeats a request turns a commit that landed into a 409, and a login
    page is a 200. A response with metadata that contains our change proves that it was published; otherwise the table's
    history decides.
    """

    store: Store
    entry: RestEntry

    def version(self) -> int:
        location = self.entry.location()
        return 0 if location is None else Pointer(location)

    def advance(self, version: int, plan: Plan) -> Outcome:
        new, catalog, name = document.parse(plan.root, plan.root_path), self.entry.catalog, self.entry.table
        base: Mapping[str, Any] = {}
        if isinstance(version, Pointer):
            base = document.parse(self.store.read(version.location), version.location)
            body = {
                "identifier": {"namespace": self.entry.namespace.split("."), "name": name},
                "requirements": documents.requirements(base, new),
                "updates": documents.updates(base, new),
            }
            response = catalog.ask("POST", self.entry.path, body)
        else:
            path = f"namespaces/{self.entry.catalog.levels(self.entry.namespace)}/tables"
            response = catalog.ask("POST", path, documents.creation(name, new))
        if (
            response.is_good
            and "metadata-location" in response.body
            and documents.holds(response.body.get("metadata"), base, new)
        ):
            return Outcome.PUBLISHED
        if response.is_good or response.status in (404, 409):
            return Outcome.UNKNOWN
        raise StoreRefused(str(catalog.refused(response, f"{self.entry.namespace}.{name}")))

    def rehearsed(self) -> Head:
        return RehearsedHead(self, self.store, root_pointer)


@contextmanager
def specified(label: str, specification: str = "Iceberg's REST specification") -> Iterator[None]:
    """Raise `StoreError` for a body with a missing key or a value of another type."""
    try:
        yield
    except LakeError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{label}: the answer is not as {specification} has it ({error!r}); is this the address of such a catalog?"
        ) from error


# --- private ----------------------------------------------------------------------------------------------------------


class _Client:
    """A process's connections to a server, with its configuration and a token."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri, self._options = uri.rstrip("/"), dict(options)
        self._session = requests.Session()
        self._session.headers["X-Iceberg-Access-Delegation"] = "vended-credentials"
        for key, value in options.items():
            if key.startswith("header."):
                self._session.headers[key.removeprefix("header.")] = value
        self._prefix = ""
        # From the user's options alone: a server must not choose what is signed for whom.
        self._session.auth = signing.signing(options)
        self._say_token(self._options.get("token"))
        self.renew()
        query = {"warehouse": options["warehouse"]} if "warehouse" in options else None
        response = self.send("GET", "config", query=query)
        if not response.is_good:
            message = redact.redacted(response.message, *redact.secrets_of(options))
            raise StoreError(f"{uri}: the catalog's configuration: {response.status}: {message}")
        with specified(f"{uri}: the catalog's configuration"):
            configuration = _understood(response, f"{uri}: the catalog's configuration").body
            merged = {**(configuration.get("defaults") or {}), **options, **(configuration.get("overrides") or {})}
            self._options = {name: str(value) for name, value in merged.items() if value is not None}
            if self._options.get("token") != options.get("token"):
                self._say_token(_token(self._options.get("token", "")))
            listed = [_text(endpoint) for endpoint in _list(configuration.get("endpoints") or [])]
        is_said = self._options.get(_VIEWS, "false").lower() == "true"
        self.keeps_views = _VIEW_ENDPOINT in listed if listed else is_said
        self._uri = self._options.get("uri", self._uri).rstrip("/")
        self._prefix = _quoted(self._options["prefix"]) + "/" if self._options.get("prefix") else ""

    def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> Response:
        below = path if path.startswith("/") else f"/v1/{self._prefix}{path}"
        return self._sent(method, f"{self._uri}{below}", json=body, params=query)

    def setting(self, key: str) -> str | None:
        return self._options.get(key)

    def renew(self) -> bool:
        """Get a new token, if there is a credential; returns whether it got one."""
        credential = self._options.get("credential")
        if not credential:
            return False
        client, _, secret = credential.rpartition(":")
        form = {
            "grant_type": "client_credentials", "client_secret": secret, "scope": self._options.get("scope", "catalog"),
            **({"client_id": client} if client else {}),
        }  # fmt: skip
        where = self._options.get("oauth2-server-uri", f"{self._uri}/v1/oauth/tokens")
        response = self._sent("POST", where, data=form, headers={"Authorization": None})
        if not response.is_good:
            message = redact.redacted(response.message, *redact.secrets_of(self._options))
            raise StoreError(f"{where}: no token for this credential: {response.status}: {message}")
        with specified(f"{where}: a token"):
            self._say_token(_token(_understood(response, f"{where}: a token").body["access_token"]))
        return True

    def _say_token(self, token: str | None) -> None:
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def _sent(self, method: str, address: str, **request: Any) -> Response:
        try:
            answer = self._session.request(method, address, timeout=_TIMEOUT_SECONDS, allow_redirects=False, **request)
        except (requests.RequestException, ValueError) as error:
            raise StoreError(f"{address}: the catalog does not answer: {type(error).__name__}") from redact.cause(
                error, *redact.secrets_in(address), *redact.secrets_of(self._options)
            )
        try:
            return Response(answer.status_code, document.parse(answer.content, address))
        except CorruptFile:
            begun = " ".join(answer.content[:200].decode(errors="replace").split())[:60]
            return Response(answer.status_code, {}, redact.redacted(begun, *redact.secrets_of(self._options)))


def _understood(response: Response, label: str) -> Response:
    """The response. Raises for a successful status whose body is no JSON object."""
    if response.is_good and response.nonsense:
        raise StoreError(
            f"{label}: the answer is not JSON object but {response.nonsense!r}; "
            "is this the address of an Iceberg REST catalog?"
        )
    return response


@cache
def _client(uri: str, options: tuple[tuple[str, str], ...], process: int) -> _Client:
    """One client per process, since connections do not survive a fork."""
    if not uri.startswith(("http://", "https://")):
        raise InvalidInput(f"catalog={uri!r} is not an address of a REST catalog")
    return _Client(uri, dict(options))


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")  # No server has a name with a lone surrogate.


def _namespace(levels: Any) -> str:
    return ".".join(map(_text, _list(levels)))


def _table(identifier: Any) -> str:
    return f"{_namespace(identifier['namespace'])}.{_text(identifier['name'])}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _token(value: Any) -> str:
    token = _text(value)
    if not token.isascii() or not token.isprintable():
        raise ValueError("a token that no header can hold")  # It would make every later request fail.
    return token


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} in place of a list")
    return value
