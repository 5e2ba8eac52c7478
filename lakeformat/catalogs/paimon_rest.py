"""Paimon's REST catalog: the server lists the tables, knows where each is and which snapshot is the newest, and commits
the next one."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, BinaryIO
from urllib.parse import quote

from lakeformat import redact
from lakeformat.catalogs import paimon_schema, vended
from lakeformat.catalogs.catalog import FunctionMetadata, TableAccess
from lakeformat.catalogs.rest import Response, RestCatalog, specified
from lakeformat.errors import AlreadyExists, NotFound, StoreError, StoreRefused, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.credentials import Issued, Lease
from lakeformat.storage.head import EXPIRING, RESTORED, CreateHead, Head, RehearsedHead
from lakeformat.storage.store import ForwardingStore, Reader, Store
from lakeformat.storage.swapped import Swapped

OPTIONS = frozenset({"format", "prefix", "token", "token.provider", "warehouse"})
_NOT_YET = "this change through the server of Paimon's REST catalog is not supported"
_BRANCH = re.compile(r"^branch/branch-[^/]*/")
_PROTOCOL = "Paimon's REST protocol"
_NO_SUCH_REQUEST = (404, 405)  # What servers answer to a request that they do not know.
_DATABASE, _TABLE, _SNAPSHOT, _FUNCTION = (
    "DATABASE",
    "TABLE",
    "SNAPSHOT",
    "FUNCTION",
)  # The resource types that a 404 names.


@dataclass(frozen=True, slots=True)
class PaimonRestCatalog:
    """The tables of the server at `uri` (its path before `/v1`). `options`: see `OPTIONS`, and `header.<name>`."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"PaimonRestCatalog({redact.address(self.uri)!r})"

    @property
    def format(self) -> str:
        return "paimon"

    @property
    def functions(self) -> ServedFunctions:
        return ServedFunctions(self)

    @property
    def names_are_folders(self) -> bool:
        return False

    @property
    def vends_credentials(self) -> bool:
        return True

    def namespaces(self) -> list[str]:
        return sorted(self._listed("databases", "databases"))

    def tables(self, namespace: str) -> list[str]:
        names = self._listed(f"databases/{_quoted(namespace)}/tables", "tables")
        return sorted(f"{namespace}.{name}" for name in names)

    def find(self, name: str, options: Mapping[str, str]) -> TableAccess | None:
        response = self._get(_path(name), name, (_DATABASE, _TABLE))
        if response is None:
            return None
        with specified(f"{self.uri}: {name}", _PROTOCOL):
            root, given = response.body.get("path"), (response.body["schema"].get("options") or {})
            root, kind = root or given.get("path"), given.get("type", "table")
            id = response.body["id"]
            if not (isinstance(root, str) and isinstance(kind, str) and isinstance(id, str)):
                raise TypeError(f"a table {id!r} of type {kind!r} at {root!r}")
        if kind.lower() != "table":
            raise UnsupportedFeature(
                f"{name}: {self.uri} has it as a table of type {kind!r}: only 'table' is supported"
            )
        location = root.rstrip("/")
        access = vended.Vended()
        if (self._server.setting("data-token.enabled") or "").lower() == "true":
            access = self.token(name, location)
        lease = Lease(TokenIssuer(self, name, location), access.issued) if access.issued else None
        return TableAccess(location, access.options, lease, entry=ServedEntry(self, name, id), guard=ServedFiles)

    def entry(self, name: str) -> ServedEntry:
        return ServedEntry(self, name)

    def namespace_properties(self, name: str) -> dict[str, str]:
        response = self._get(f"databases/{_quoted(name)}", name, (_DATABASE,))
        if response is None:
            return {}
        with specified(f"{self.uri}: {name}", _PROTOCOL):
            return {str(key): str(value) for key, value in (response.body.get("options") or {}).items()}

    def create_namespace(self, name: str) -> None:
        self._changed("POST", "databases", {"name": name, "options": {}}, name, ignored=409)

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        body = {"removals": sorted(remove), "updates": dict(properties)}
        response = self._server.ask("POST", f"databases/{_quoted(name)}", body)
        if not response.is_good:
            raise self._server.refused(response, f"namespace {name}")

    def drop_namespace(self, name: str) -> None:
        self._changed("DELETE", f"databases/{_quoted(name)}", None, name, ignored=404)

    def location_of(self, namespace: str) -> str | None:
        return None

    def register(self, name: str, metadata_location: str) -> None:
        namespace, _, table = name.rpartition(".")
        body = {"identifier": {"database": namespace, "object": table}, "path": metadata_location}
        response = self._server.ask("POST", f"databases/{_quoted(namespace)}/register", body)
        if response.status == 409:
            raise AlreadyExists(f"{name}: a table exists already in {self.uri}; drop it first")
        if response.status in _NO_SUCH_REQUEST:
            raise UnsupportedFeature(
                f"{name}: {self.uri} does not register tables ({response.status}); create the table and copy its rows"
            )
        if not response.is_good:
            raise self._server.refused(response, name)

    def rename(self, old: str, new: str) -> None:
        names = (name.rpartition(".") for name in (old, new))
        source, destination = ({"database": database, "object": table} for database, _, table in names)
        self._changed("POST", "tables/rename", {"source": source, "destination": destination}, old)

    def drop(self, name: str) -> None:
        self._changed("DELETE", _path(name), None, name)

    def create(self, name: str, schema: Mapping[str, Any]) -> None:
        """Create a table with this schema document. Raises `AlreadyExists`."""
        namespace, _, table = name.rpartition(".")
        body = {"identifier": {"database": namespace, "object": table}, "schema": paimon_schema.creation(schema)}
        response = self._server.ask("POST", f"databases/{_quoted(namespace)}/tables", body)
        if response.status == 409:
            raise AlreadyExists(f"{name}: a table exists already in {self.uri}")
        if not response.is_good:
            raise StoreRefused(str(self._server.refused(response, name)))

    def alter(self, name: str, changes: list[dict[str, Any]]) -> Response:
        """Have the server change the schema of a table, or of a branch as in `newest`."""
        return self._server.ask("POST", _path(name), {"changes": changes})

    def create_branch(self, name: str, branch: str, tag: str | None) -> None:
        """Create a branch at a tag, or without snapshots. Raises `AlreadyExists`."""
        body = {"branch": branch, "fromTag": tag}
        response = self._server.ask("POST", f"{_path(name)}/branches", body)
        if response.status == 409:
            raise AlreadyExists(f"{name}: there is a branch {branch!r}; delete it first")
        if not response.is_good:
            raise self._server.refused(response, f"branch {branch} of {name}")

    def drop_branch(self, name: str, branch: str) -> None:
        """Drop a branch; no error if it does not exist."""
        response = self._server.ask("DELETE", f"{_path(name)}/branches/{_quoted(branch)}")
        if not response.is_good and response.status != 404:
            raise self._server.refused(response, f"branch {branch} of {name}")

    def token(self, name: str, location: str) -> vended.Vended:
        """The credentials for a table's files that the server issues (`data-token.enabled`)."""
        response = self._server.ask("GET", f"{_path(name)}/token")
        if not response.is_good:
            raise self._server.refused(response, f"{name}: a token for its files")
        with specified(f"{self.uri}: {name}: a token for its files", _PROTOCOL):
            token, expires_ms = response.body["token"], response.body["expiresAtMillis"]
            if not isinstance(expires_ms, int) or not all(isinstance(value, str) for value in token.values()):
                raise TypeError(f"a token that runs out at {expires_ms!r}")
            return vended.of_paimon(token, expires_ms, location)

    def newest(self, name: str, may_lack: bool = False) -> int:
        """The id of the newest snapshot of a table, or of a branch `table$branch_x`; 0 before the first, and with
        `may_lack` also for a table that does not exist."""
        response = self._get(f"{_path(name)}/snapshot", name, (_SNAPSHOT, _TABLE) if may_lack else (_SNAPSHOT,))
        if response is None:
            return 0
        with specified(f"{self.uri}: the newest snapshot of {name}", _PROTOCOL):
            newest = response.body["snapshot"]
            return 0 if newest is None else int(newest["snapshot"]["id"])

    def commit(self, name: str, id: str, plan: Plan) -> Outcome:
        """Have the server make `plan` the next snapshot of the table whose catalog id is `id`, or of a branch as in
        `newest`."""
        body = {"tableId": id, "snapshot": json.loads(plan.root), "statistics": list(plan.statistics())}
        response = self._server.ask("POST", f"{_path(name)}/commit", body)
        if response.is_good and response.body.get("success") is True:
            return Outcome.PUBLISHED
        if response.is_good or response.status == 409:
            return Outcome.UNKNOWN  # A proxy may have repeated a commit that landed: history decides.
        raise StoreRefused(str(self._server.refused(response, f"{name} (id {id})")))

    @property
    def _server(self) -> RestCatalog:
        given = tuple(pair for pair in self.options if pair[0] not in ("format", "token.provider"))
        return RestCatalog(self.uri, given)

    def _get(
        self,
        path: str,
        label: str,
        may_lack: Collection[str],
        query: Mapping[str, str] | None = None,
        none_at: Collection[int] = (),
    ) -> Response | None:
        """The response; None if the server says that one of `may_lack` does not exist,
        or at one of the statuses `none_at`."""
        server = self._server
        response = server.ask("GET", path, query=query)
        if response.status in none_at:
            return None
        if response.status == 404 and response.body.get("resourceType") in may_lack:
            return None
        if not response.is_good:
            raise server.refused(response, label)
        return response

    def _changed(
        self, method: str, path: str, body: Mapping[str, Any] | None, name: str, ignored: int | None = None
    ) -> None:
        """One request that changes the catalog; `ignored` is the status for a change that was made already."""
        response = self._server.ask(method, path, body)
        if response.status == 404 and ignored != 404:
            raise NotFound(f"no table {name!r} in {self.uri}")
        if not response.is_good and response.status != ignored:
            raise self._server.refused(response, name)

    def _listed(self, path: str, key: str, none_at: Collection[int] = ()) -> list[str]:
        """The names of all pages; none if the database does not exist, or at one of the statuses `none_at`."""
        entries: list[str] = []
        token, seen = "", {""}
        while True:
            response = self._get(path, path, (_DATABASE,), {"pageToken": token} if token else None, none_at)
            if response is None:
                return []
            with specified(f"{self.uri}: {path}", _PROTOCOL):
                page, following = response.body.get(key) or [], response.body.get("nextPageToken") or ""
                if not all(isinstance(item, str) for item in (*page, following)):
                    raise TypeError("a name that is not text")
            entries += page
            if not following or not page:
                return entries
            if following in seen:
                raise StoreError(
                    f"{self.uri}: {path}: page {following!r} of the listing refers to itself: it has no end"
                )
            seen.add(token := following)


@dataclass(frozen=True, slots=True)
class ServedFunctions:
    """The functions of the server."""

    catalog: PaimonRestCatalog

    def names(self, namespace: str) -> list[str]:
        """The functions of a namespace; none from a server that does not know the request."""
        return sorted(self.catalog._listed(f"databases/{_quoted(namespace)}/functions", "functions", _NO_SUCH_REQUEST))

    def find(self, name: str) -> FunctionMetadata | None:
        response = self.catalog._server.ask("GET", _function(name))
        if response.status in _NO_SUCH_REQUEST:
            return None
        if not response.is_good:
            raise self.catalog._server.refused(response, f"function {name}")
        return FunctionMetadata(response.body)

    def create(self, name: str, document: Mapping[str, Any]) -> None:
        response = self.catalog._server.ask("POST", _function(name).rpartition("/")[0], document)
        if response.status == 409:
            raise AlreadyExists(f"{name}: the function exists already in {self.catalog.uri}")
        self._require_good(response, name)

    def replace(self, name: str, base: FunctionMetadata, document: Mapping[str, Any]) -> None:
        self.drop(name)
        try:
            self.create(name, document)
        except StoreRefused:
            keys = ("name", "inputParams", "returnParams", "deterministic", "definitions", "comment", "options")
            self.create(name, {key: base.document.get(key) for key in keys})
            raise

    def change(self, name: str, base: FunctionMetadata, document: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        response = self.catalog._server.ask("POST", _function(name), {"changes": [dict(change)]})
        self._require_good(response, name)

    def drop(self, name: str) -> None:
        self._require_good(self.catalog._server.ask("DELETE", _function(name)), name)

    def _require_good(self, response: Response, name: str) -> None:
        kind = response.body.get("resourceType")
        if response.status == 404 and kind in (_DATABASE, _FUNCTION):
            raise NotFound(f"no {str(kind).lower()} for function {name!r} in {self.catalog.uri}")
        if response.status in _NO_SUCH_REQUEST:
            raise UnsupportedFeature(f"function {name}: {self.catalog.uri} stores no functions ({response.status})")
        if not response.is_good:
            raise StoreRefused(str(self.catalog._server.refused(response, f"function {name}")))


@dataclass(frozen=True, slots=True)
class ServedEntry:
    """A table of the server: its name, and its id, which no later table gets."""

    catalog: PaimonRestCatalog
    name: str
    id: str = ""

    def head(self, store: Store) -> CreateHead:
        branch = store.inner.removeprefix("branch/branch-") if isinstance(store, Swapped) else None
        name = self.name if branch is None else f"{self.name}$branch_{branch}"
        return ServedHead(store, catalog=self.catalog, name=name, id=self.id)

    def create_branch(self, name: str, tag: str | None) -> None:
        self.catalog.create_branch(self.name, name, tag)

    def drop_branch(self, name: str) -> None:
        self.catalog.drop_branch(self.name, name)

    def sharers(self, reader: Reader) -> list[str]:
        return []


@dataclass(frozen=True, slots=True)
class ServedHead(CreateHead):
    """A head that the server reads and moves. Snapshots in the table's folder beyond it are not committed."""

    catalog: PaimonRestCatalog = field(kw_only=True)
    name: str = field(kw_only=True)
    id: str = field(kw_only=True)

    def version(self) -> int:
        return self.catalog.newest(self.name, may_lack=not self.id)

    def advance(self, version: int, plan: Plan) -> Outcome:
        if not plan.root_path.startswith(f"{self.folder}/"):
            return self._evolve(plan)
        # Servers check only that the name is free, and expiry frees old names, which must not be taken again.
        if self.version() != version:
            return Outcome.LOST
        return self.catalog.commit(self.name, self.id, plan)

    def rehearsed(self) -> Head:
        return RehearsedHead(self, self.store, _following)

    def _evolve(self, plan: Plan) -> Outcome:
        """Have the server create the schema that is the plan's root. Its schema is compared with ours: a faster
        writer's may be there."""
        new = json.loads(plan.root)
        if new["id"] == 0:
            self.catalog.create(self.name, new)
            return Outcome.PUBLISHED
        folder, _, _ = plan.root_path.rpartition("/")
        old = json.loads(self.store.read(f"{folder}/schema-{new['id'] - 1}"))
        changes = paimon_schema.changes({"options": {}, **old}, new, self.name)
        if not self._is_free(plan.root_path):
            return Outcome.LOST
        try:
            response = self.catalog.alter(self.name, changes) if changes else None
        except StoreError:
            if self._holds(plan.root_path, new):
                return Outcome.PUBLISHED
            raise
        if response is None or (response.is_good and self._holds(plan.root_path, new)):
            return Outcome.PUBLISHED
        if response.is_good or not self._is_free(plan.root_path):
            return Outcome.LOST  # The server has applied the change to a newer schema, or refuses it.
        raise StoreRefused(f"{self.name}: {self.catalog.uri}: the catalog says {response.status}: {response.message}")

    def _is_free(self, path: str) -> bool:
        return not self.store.exists(path)

    def _holds(self, path: str, new: Mapping[str, Any]) -> bool:
        (data,) = self.store.read_many([path])
        return data is not None and paimon_schema.is_same({"options": {}, **json.loads(data)}, new)


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """Issues the next token for a table's files."""

    catalog: PaimonRestCatalog
    name: str
    location: str

    def issue(self) -> Issued:
        issued = self.catalog.token(self.name, self.location).issued
        if issued is None:
            raise StoreError(f"{self.catalog.uri}: {self.name}: the catalog hands out no token any more for its files")
        return issued


@dataclass(frozen=True, slots=True)
class ServedFiles(ForwardingStore):
    """A table's files. The server writes schemas and new snapshots, also those of branches, and creates branches. As in
    Java, we write the rest: data, manifests, tags, consumers, and we delete expired snapshots, with the mark of heads
    that read the folder (`CreateHead`)."""

    store: Store

    def write(self, path: str, data: bytes) -> None:
        self._require_ours([path])
        self.store.write(path, data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        self._require_ours(files)
        self.store.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        self._require_ours([path])
        return self.store.create(path, data)

    def create_stream(self, path: str) -> BinaryIO:
        self._require_ours([path])
        return self.store.create_stream(path)

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        self._require_ours(gone, ("schema/",))
        self.store.delete(gone)

    def move_folder(self, old: str, new: str) -> None:
        self._require_ours([f"{old}/", f"{new}/"])
        self.store.move_folder(old, new)

    def _require_ours(self, paths: Iterable[str], served: tuple[str, ...] = ("schema/", "snapshot/")) -> None:
        for path in paths:
            is_beside = path.rpartition("/")[2].startswith((RESTORED, EXPIRING))
            if _BRANCH.sub("", path).startswith(served) and not is_beside:
                raise UnsupportedFeature(f"{self.root}: {path}: {_NOT_YET}")


# --- private ----------------------------------------------------------------------------------------------------------


def _following(store: Store, version: int, plan: Plan) -> int:
    return version + plan.root_path.startswith("snapshot/")


def _path(name: str) -> str:
    namespace, _, table = name.rpartition(".")
    return f"databases/{_quoted(namespace)}/tables/{_quoted(table)}"


def _function(name: str) -> str:
    namespace, _, function = name.rpartition(".")
    return f"databases/{_quoted(namespace)}/functions/{_quoted(function)}"


def _quoted(name: Any) -> str:
    return quote(name, safe="", errors="surrogatepass")
