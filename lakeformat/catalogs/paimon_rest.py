"""Paimon's REST catalog, to be read: the server says which tables there are, where each lies and which snapshot is its newest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote

from lakeformat import redact
from lakeformat.catalogs.catalog import Found
from lakeformat.catalogs.rest import Response, RestCatalog, specified
from lakeformat.errors import NotFound, StoreError, UnsupportedFeature
from lakeformat.storage.head import CreateHead
from lakeformat.storage.store import Reader, Store

OPTIONS = frozenset({"format", "prefix", "token", "token.provider", "warehouse"})
_READ_ONLY = "tables of Paimon's REST catalog are read only: commits through its server are not supported"
_PROTOCOL = "Paimon's REST protocol"
_DATABASE, _TABLE, _SNAPSHOT = "DATABASE", "TABLE", "SNAPSHOT"  # What a 404 says is missing.


@dataclass(frozen=True, slots=True)
class PaimonRestCatalog:
    """The tables that the server at `uri` (its path before `/v1`) knows. `options`: see `OPTIONS`, and `header.<name>`."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"PaimonRestCatalog({redact.address(self.uri)!r})"

    @property
    def format(self) -> str:
        return "paimon"

    @property
    def names_are_folders(self) -> bool:
        return False

    @property
    def vends_credentials(self) -> bool:
        return True

    def namespaces(self) -> list[str]:
        return sorted(self._listed("databases", "databases"))

    def tables(self, namespace: str) -> list[str]:
        found = self._listed(f"databases/{_quoted(namespace)}/tables", "tables")
        return sorted(f"{namespace}.{name}" for name in found)

    def find(self, name: str, options: Mapping[str, str]) -> Found | None:
        response = self._get(_path(name), name, (_DATABASE, _TABLE))
        if response is None:
            return None
        if (self._server.setting("data-token.enabled") or "").lower() == "true":
            raise UnsupportedFeature(
                f"{name}: {self.uri} hands out tokens for the files of its tables (data-token.enabled=true), which are not supported"
            )
        with specified(f"{self.uri}: {name}", _PROTOCOL):
            root, given = response.body.get("path"), response.body["schema"].get("options") or {}
            root, kind = root or given.get("path"), given.get("type", "table")
            if not isinstance(root, str) or not isinstance(kind, str):
                raise TypeError(f"a table of type {kind!r} at {root!r}")
        if kind.lower() != "table":
            raise UnsupportedFeature(
                f"{name}: {self.uri} has it as a table of type {kind!r}: only 'table' is supported"
            )
        return Found(root.rstrip("/"), read_only=_READ_ONLY)

    def place(self, name: str) -> ServedEntry:
        return ServedEntry(self, name)

    def namespace_properties(self, name: str) -> dict[str, str]:
        response = self._get(f"databases/{_quoted(name)}", name, (_DATABASE,))
        if response is None:
            return {}
        with specified(f"{self.uri}: {name}", _PROTOCOL):
            return {str(key): str(value) for key, value in (response.body.get("options") or {}).items()}

    def create_namespace(self, name: str) -> None:
        if name not in self.namespaces():
            self._refuse(name)

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        self._refuse(name)

    def drop_namespace(self, name: str) -> None:
        if name in self.namespaces():
            self._refuse(name)

    def location_of(self, namespace: str) -> str | None:
        self._refuse(namespace)

    def register(self, name: str, metadata_location: str) -> None:
        self._refuse(name)

    def rename(self, old: str, new: str) -> None:
        self._refuse(old)

    def drop(self, name: str) -> None:
        if self.find(name, {}) is None:
            raise NotFound(f"no table {name!r} in {self.uri}")
        self._refuse(name)

    def newest(self, name: str) -> int:
        """The id of the table's newest snapshot; 0 before the first."""
        response = self._get(f"{_path(name)}/snapshot", name, (_SNAPSHOT,))
        if response is None:
            return 0
        with specified(f"{self.uri}: the newest snapshot of {name}", _PROTOCOL):
            found = response.body["snapshot"]
            return 0 if found is None else int(found["snapshot"]["id"])

    @property
    def _server(self) -> RestCatalog:
        given = tuple(pair for pair in self.options if pair[0] not in ("format", "token.provider"))
        return RestCatalog(self.uri, given)

    def _get(
        self, path: str, what: str, may_lack: Collection[str], query: Mapping[str, str] | None = None
    ) -> Response | None:
        """The answer; None where the server says that one of `may_lack` is not there."""
        server = self._server
        response = server.ask("GET", path, query=query)
        if response.status == 404 and response.body.get("resourceType") in may_lack:
            return None
        if not response.is_good:
            raise server.refused(response, what)
        return response

    def _listed(self, path: str, key: str) -> list[str]:
        found: list[str] = []
        token, seen = "", {""}
        while True:
            response = self._get(path, path, (_DATABASE,), {"pageToken": token} if token else None)
            if response is None:
                return []
            with specified(f"{self.uri}: {path}", _PROTOCOL):
                page, following = response.body.get(key) or [], response.body.get("nextPageToken") or ""
                if not all(isinstance(each, str) for each in (*page, following)):
                    raise TypeError("a name that is no text")
            found += page
            if not following or not page:
                return found
            if following in seen:
                raise StoreError(
                    f"{self.uri}: {path}: page {following!r} of the listing refers to itself: it has no end"
                )
            seen.add(token := following)

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedFeature(f"{what}: {self.uri}: {_READ_ONLY}")


@dataclass(frozen=True, slots=True)
class ServedEntry:
    """A table as the server knows it."""

    catalog: PaimonRestCatalog
    name: str

    def head(self, store: Store) -> CreateHead:
        return ServedHead(store, entry=self)

    def sharers(self, reader: Reader) -> list[str]:
        return []


@dataclass(frozen=True, slots=True)
class ServedHead(CreateHead):
    """A head that the server tells: what lies in the table's folder beyond it nobody has committed."""

    entry: ServedEntry = field(kw_only=True)

    def version(self) -> int:
        return self.entry.catalog.newest(self.entry.name)


# --- private ----------------------------------------------------------------------------------------------------------


def _path(name: str) -> str:
    namespace, _, table = name.rpartition(".")
    return f"databases/{_quoted(namespace)}/tables/{_quoted(table)}"


def _quoted(name: Any) -> str:
    return quote(name, safe="", errors="surrogatepass")
