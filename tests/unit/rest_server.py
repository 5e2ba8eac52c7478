"""A REST catalog of one table on this machine for tests: it hands out storage credentials and tokens that run out."""

import copy
import gzip
import json
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.serving import Serving


def applied(base: dict[str, Any], updates: list[dict[str, Any]]) -> dict[str, Any]:
    """A commit, in the words of the specification's updates."""
    made = copy.deepcopy(base)
    for update in updates:
        match update["action"]:
            case "add-schema":
                made["schemas"].append(update["schema"])
                made["last-column-id"] = update["last-column-id"]
            case "set-current-schema":
                made["current-schema-id"] = update["schema-id"]
            case "set-properties":
                made["properties"].update(update["updates"])
            case "remove-properties":
                for key in update["removals"]:
                    del made["properties"][key]
            case "add-snapshot":
                made["snapshots"].append(update["snapshot"])
                made["last-sequence-number"] = update["snapshot"]["sequence-number"]
            case "remove-snapshots":
                made["snapshots"] = [s for s in made["snapshots"] if s["snapshot-id"] not in update["snapshot-ids"]]
            case "set-snapshot-ref":
                ref = {k: v for k, v in update.items() if k not in ("action", "ref-name")}
                made["refs"][update["ref-name"]] = ref
                if update["ref-name"] == "main":
                    made["current-snapshot-id"] = ref["snapshot-id"]
            case "remove-snapshot-ref":
                del made["refs"][update["ref-name"]]
            case other:
                raise AssertionError(other)
    return made


def view_applied(base: dict[str, Any], updates: list[dict[str, Any]]) -> dict[str, Any]:
    """A commit to a view; what is added gets its number here, as in Java's server."""
    made = copy.deepcopy(base)
    added: dict[str, int] = {}
    for update in updates:
        match update["action"]:
            case "add-schema":
                added["schema"] = 1 + max(s["schema-id"] for s in made["schemas"])
                made["schemas"].append({**update["schema"], "schema-id": added["schema"]})
            case "add-view-version":
                version = update["view-version"]
                added["version"] = 1 + max(v["version-id"] for v in made["versions"])
                schema_id = added["schema"] if version["schema-id"] == -1 else version["schema-id"]
                assert schema_id in {s["schema-id"] for s in made["schemas"]}
                made["versions"].append({**version, "version-id": added["version"], "schema-id": schema_id})
            case "set-current-view-version":
                chosen = update["view-version-id"]
                made["current-version-id"] = added["version"] if chosen == -1 else chosen
                entry = {"timestamp-ms": int(time.time() * 1000), "version-id": made["current-version-id"]}
                made["version-log"].append(entry)
            case "set-properties":
                made["properties"].update(update["updates"])
            case "remove-properties":
                for key in update["removals"]:
                    del made["properties"][key]
            case other:
                raise AssertionError(other)
    return made


class RestServer(Serving):
    """Serves while in a `with`. `read` and `write` are the storage's; `location` is the root of the table `a.t`.

    Each answer with credentials has a new access key, `vended-<n>`, that is over at once for the first `short` of them and
    never after. A token is good for `uses` requests.
    """

    def __init__(
        self,
        metadata_location: str,
        read: Callable[[str], bytes],
        write: Callable[[str, bytes], None],
        options: dict[str, str],
        short: int = 0,
        uses: int = 1000,
    ) -> None:
        self.pointer, self.read, self.write, self.options = metadata_location, read, write, options
        self.short, self.uses, self.compresses = short, uses, False
        self.properties: dict[str, Any] = {}  # Of the namespace `a`.
        self.names = ["t"]  # Of the tables in `a`; "alias" is `a.t` under another name.
        self.views: dict[str, dict[str, Any]] | None = None  # Of the namespace `a`; None: it keeps no views.
        self.endpoint: str | None = "/v1/namespaces/a/tables/t/credentials"
        # None: no answer; bytes: all that is sent, its status line and headers included.
        self.fault: Callable[[Callable[[], Any]], tuple[int, Any] | bytes | None] = lambda answer: answer()
        self.vended: list[str] = []
        self.asked: list[str] = []
        self.tokens: dict[str, int] = {}
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self._answer(handler)

            do_POST = do_DELETE = do_GET

            def log_message(handler, *_: Any) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.address = f"http://127.0.0.1:{self._server.server_port}/catalog"

    def is_good(self, key: str) -> bool:
        """Whether storage takes this access key."""
        return not key.startswith("vended-") or (key in self.vended and int(key.split("-")[1]) > self.short)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        asked = handler.command, handler.path, handler.headers.get("Authorization"), body
        with self._lock:
            answer = self.fault(lambda: self._told(*asked))
        if answer is None:
            handler.close_connection = True
            return
        if isinstance(answer, bytes):
            handler.wfile.write(answer)
            return
        status, told = answer
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _told(self, method: str, path: str, token: str | None, body: bytes) -> tuple[int, dict[str, Any]]:
        path, _, query = path.removeprefix("/catalog/v1/").partition("?")
        self.asked.append(f"{method} {path}")
        if path == "oauth/tokens":
            if token is not None or b"client_secret=secret" not in body:
                return 401, {"error": {"message": "wrong credential"}}
            self.tokens[f"Bearer token-{len(self.tokens)}"] = self.uses
            return 200, {"access_token": list(self.tokens)[-1].removeprefix("Bearer "), "token_type": "bearer"}
        if self.tokens.get(token or "", 0) < 1:
            return 401, {"error": {"message": "the token ran out"}}
        self.tokens[token or ""] -= 1
        match method, path:
            case "GET", "config":
                paths = ["namespaces/{namespace}/tables", "namespaces/{namespace}/views"][
                    : 1 + (self.views is not None)
                ]
                return 200, {"defaults": {}, "overrides": {}, "endpoints": [f"GET /v1/{{prefix}}/{p}" for p in paths]}
            case _ if self.views is not None and "views" in path.split("/"):
                return self._of_views(self.views, method, path, json.loads(body or b"{}"))
            case "GET", "namespaces":
                return 200, {"namespaces": [] if "parent=" in query else [["a"]]}
            case "GET", "namespaces/a":
                return 200, {"namespace": ["a"], "properties": self.properties}
            case "POST", "namespaces/a/properties":
                changes = json.loads(body)
                self.properties = {k: v for k, v in self.properties.items() if k not in changes["removals"]}
                self.properties |= changes["updates"]
                return 200, {"updated": sorted(changes["updates"]), "removed": changes["removals"], "missing": []}
            case "POST", "namespaces":
                return 409, {"error": {"message": "there is a namespace a"}}
            case "DELETE", "namespaces/a":
                return (409, {"error": {"message": "it has tables"}}) if self.names else (204, {})
            case "GET", "namespaces/a/tables":
                return 200, {"identifiers": [{"namespace": ["a"], "name": name} for name in self.names]}
            case "DELETE", "namespaces/a/tables/t" if "t" in self.names:
                self.names.remove("t")
                return 204, {}
            case "GET", "namespaces/a/tables/alias" if "alias" in self.names:
                return 200, self._table()
            case _, "namespaces/a/tables/t" if "t" not in self.names:
                return 404, {"error": {"message": "no such table"}}
            case "GET", "namespaces/a/tables/t":
                refresh = {} if self.endpoint is None else {"client.refresh-credentials-endpoint": self.endpoint}
                return 200, {**self._table(), "config": {**self.options, **refresh}, **self._credentials()}
            case "GET", "namespaces/a/tables/t/credentials":
                return 200, self._credentials()
            case "POST", "namespaces/a/tables/t":
                base, asked = self._document(), json.loads(body)
                for requirement in asked["requirements"]:
                    current = base["refs"].get(requirement.get("ref"), {}).get("snapshot-id")
                    if requirement["type"] == "assert-ref-snapshot-id" and requirement["snapshot-id"] != current:
                        return 409, {"error": {"message": "the table has moved"}}
                previous = {"timestamp-ms": base["last-updated-ms"], "metadata-file": self.pointer}
                made = {**applied(base, asked["updates"]), "last-updated-ms": int(time.time() * 1000)}
                made["metadata-log"] = [*base.get("metadata-log", ()), previous]
                ending = ".gz.metadata.json" if self.compresses else ".metadata.json"
                self.pointer = f"{base['location']}/metadata/{uuid.uuid4()}{ending}"
                data = json.dumps(made).encode()
                self.write(self.pointer, gzip.compress(data) if self.compresses else data)
                return 200, self._table()
            case _:
                return 404, {"error": {"message": f"nothing at {path}"}}

    def _of_views(
        self, views: dict[str, dict[str, Any]], method: str, path: str, asked: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        name = path.rpartition("/")[2]
        match method, path.removesuffix(f"/{name}"):
            case "GET", "namespaces/a":
                return 200, {"identifiers": [{"namespace": ["a"], "name": name} for name in views]}
            case "POST", "namespaces/a":
                if asked["name"] in [*views, *self.names]:
                    return 409, {"error": {"message": "there is one of that name"}}
                assert asked["schema"]["type"] == "struct"
                views[asked["name"]] = {
                    "view-uuid": str(uuid.uuid4()), "format-version": 1, "location": asked.get("location", "memory://views"),
                    "schemas": [asked["schema"]], "current-version-id": 1, "versions": [{**asked["view-version"], "version-id": 1}],
                    "version-log": [{"timestamp-ms": 1, "version-id": 1}], "properties": asked["properties"],
                }  # fmt: skip
                return 200, self._view(views, asked["name"])
            case "POST", "views":
                old, new = (asked[key]["name"] for key in ("source", "destination"))
                if old not in views:
                    return 404, {"error": {"message": "no such view"}}
                if new in [*views, *self.names]:
                    return 409, {"error": {"message": "there is one of that name"}}
                views[new] = views.pop(old)
                return 204, {}
        if name not in views:
            return 404, {"error": {"message": "no such view"}}
        if method == "DELETE":
            del views[name]
            return 204, {}
        if method == "POST":
            (required,) = asked["requirements"]
            if required != {"type": "assert-view-uuid", "uuid": views[name]["view-uuid"]}:
                return 409, {"error": {"message": "it is another view"}}
            views[name] = view_applied(views[name], asked["updates"])
        return 200, self._view(views, name)

    def _view(self, views: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
        return {"metadata-location": f"{views[name]['location']}/metadata/v.json", "metadata": views[name]}

    def _table(self) -> dict[str, Any]:
        return {"metadata-location": self.pointer, "metadata": self._document()}

    def _document(self) -> dict[str, Any]:
        data = self.read(self.pointer)
        return json.loads(gzip.decompress(data) if self.pointer.endswith(".gz.metadata.json") else data)

    def _credentials(self) -> dict[str, Any]:
        self.vended.append(f"vended-{len(self.vended) + 1}")
        ends = time.time() + (-1 if len(self.vended) <= self.short else 3600)
        keys = {
            "s3.access-key-id": self.vended[-1],
            "s3.secret-access-key": "hidden",
            "s3.session-token": "session",
            "s3.session-token-expires-at-ms": str(int(ends * 1000)),
        }
        wrong = {**keys, "s3.access-key-id": "vended-0"}
        return {
            "storage-credentials": [{"prefix": "s3://", "config": wrong}, {"prefix": self._prefix(), "config": keys}]
        }

    def _prefix(self) -> str:
        return self.pointer.rpartition("/metadata/")[0]
