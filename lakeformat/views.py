"""Views: a query kept under a name in a catalog, as Iceberg's view specification (format version 1) has it.

A view's document holds versions, each with the query in one or more SQL dialects and the schema of its rows; ours is Spark's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeformat.catalogs.catalog import Catalog, ViewCatalog
from lakeformat.codec import document as documents
from lakeformat.dialects.iceberg import metadata, types
from lakeformat.errors import AlreadyExists, Conflict, CorruptFile, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model import evolution
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Stamp
from lakeformat.storage.files import open_store
from lakeformat.storage.paths import relative

DIALECT = "spark"
QUERY_COLUMNS = (
    "spark.query-column-names"  # What the query calls its columns; the schema has the view's names, in the same order.
)
_COMMENT, _LOCATION = "comment", "location"
_KEPT_VERSIONS, _MAY_DROP_DIALECTS = "version.history.num-entries", "replace.drop-dialect.allowed"
_DEFAULT_KEPT_VERSIONS = 10


@dataclass(frozen=True, slots=True)
class View:
    """A view at its current version: `query` is Spark SQL, in which names without a namespace are of `namespace`."""

    name: str
    query: str
    namespace: str
    fields: tuple[Field, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None

    @property
    def query_columns(self) -> tuple[str, ...]:
        """What the query calls its columns."""
        names = tuple(filter(None, self.properties.get(QUERY_COLUMNS, "").split(",")))
        return names if len(names) == len(self.fields) else tuple(each.name for each in self.fields)


@dataclass(frozen=True, slots=True)
class Views:
    """The views of a catalog; new ones lie below `root`, and `options` are those of the storage. A change is one swap of the view's
    metadata file; one that meets another's raises `Conflict`."""

    catalog: Catalog | None
    root: str
    options: Mapping[str, str]

    @property
    def are_kept(self) -> bool:
        """Whether the catalog keeps views; folders do not, neither Iceberg's nor Paimon's."""
        return isinstance(self.catalog, ViewCatalog)

    def names(self, namespace: str) -> list[str]:
        """Full names; none where views are not kept."""
        return self.catalog.views(namespace) if isinstance(self.catalog, ViewCatalog) else []

    def is_there(self, name: str) -> bool:
        return isinstance(self.catalog, ViewCatalog) and self.catalog.find_view(name) is not None

    def find(self, name: str) -> View | None:
        found = self._document(name)
        return None if found is None else parse(found[1], name, found[0])

    def create(self, view: View, if_exists: str) -> None:
        """`if_exists`: "error" raises `AlreadyExists`, "ignore" leaves the view that is there, "replace" gives it the new query."""
        there, stamp = self._document(view.name), Stamp.now()
        if there is None:
            location = (view.location or f"{self.root}/{view.name.replace('.', '.db/', 1)}").rstrip("/")
            self._publish(view.name, None, created(view, location, stamp), stamp)
        elif if_exists == "replace":
            self._publish(view.name, there[0], replaced(there[1], view, stamp), stamp)
        elif if_exists == "error":
            raise AlreadyExists(f"{view.name}: there is a view already; CREATE OR REPLACE VIEW gives it another query")

    def alter(self, name: str, properties: Mapping[str, str], unset: frozenset[str] = frozenset()) -> None:
        """Raises `NotFound`."""
        there = self._document(name)
        if there is None:
            raise NotFound(f"no view {name!r}")
        self._publish(name, there[0], altered(there[1], properties, unset), Stamp.now())

    def alter_dialect(self, name: str, action: str, dialect: str, query: str | None) -> None:
        """Add, update or drop what the view says in one dialect; the others and its columns stay. Raises `NotFound`,
        `AlreadyExists`."""
        there = self._document(name)
        if there is None:
            raise NotFound(f"no view {name!r}")
        stamp = Stamp.now()
        self._publish(name, there[0], in_dialect(there[1], name, action, dialect, query, stamp), stamp)

    def rename(self, old: str, new: str) -> None:
        self._kept(old).rename_view(old, new)

    def drop(self, name: str) -> None:
        """With its metadata files. Raises `NotFound`."""
        catalog, there = self._kept(name), self._document(name)
        catalog.drop_view(name)
        if there is not None:
            place, document = there
            store = open_store(place.rpartition("/")[0], self.options)
            files = [file for file in store.names("") if file.endswith(".metadata.json")]
            store.delete([file for file in files if _uuid_of(store.read(file), file) == document.get("view-uuid")])
            if folder := relative(self.root, place.rpartition("/")[0]):
                open_store(self.root, self.options).remove_empty_folders([folder])

    def _document(self, name: str) -> tuple[str, dict[str, Any]] | None:
        place = self.catalog.find_view(name) if isinstance(self.catalog, ViewCatalog) else None
        if place is None:
            return None
        return place, documents.parse(open_store(place.rpartition("/")[0], self.options).read(place), place)

    def _publish(self, name: str, old: str | None, document: Mapping[str, Any], stamp: Stamp) -> None:
        catalog, store = self._kept(name), open_store(f"{document['location']}/metadata", self.options)
        number = 0 if old is None else _number(old) + 1
        file = f"{number:05d}-{uuid.uuid5(uuid.NAMESPACE_OID, stamp.nonce)}.metadata.json"
        store.create(file, documents.emit(document))
        if not catalog.swap_view(name, old, store.location(file)):
            store.delete([file])
            if old is None:
                raise AlreadyExists(f"{name}: there is a table or a view of that name already")
            raise Conflict(f"view {name} was changed by somebody else meanwhile; nothing was changed here")

    def _kept(self, name: str) -> ViewCatalog:
        if not isinstance(self.catalog, ViewCatalog):
            raise UnsupportedFeature(
                f"view {name}: this warehouse keeps no views; one with a SQL catalog does: Lake(..., catalog='sql')"
            )
        return self.catalog


def parse(document: Mapping[str, Any], name: str, where: str) -> View:
    """Raises `CorruptFile`, and `UnsupportedFeature` for a view in dialects other than Spark's."""
    try:
        version = _current(document)
        sql = {each["dialect"].lower(): each["sql"] for each in version["representations"] if each["type"] == "sql"}
        schema = next(each for each in document["schemas"] if each["schema-id"] == version["schema-id"])
        fields = types.parse_fields(schema)
        namespace = ".".join(version["default-namespace"])
        properties = {str(key): str(value) for key, value in (document.get("properties") or {}).items()}
        location = str(document["location"])
    except (LookupError, TypeError, AttributeError, StopIteration) as error:
        raise CorruptFile(f"{where}: no view metadata as Iceberg's specification has it ({error!r})") from error
    if DIALECT not in sql:
        raise UnsupportedFeature(
            f"view {name} is written in {', '.join(sorted(sql)) or 'no SQL'}; lakeformat reads views in Spark's dialect"
        )
    return View(name, sql[DIALECT], namespace, fields, properties, properties.get(_COMMENT), location)


def created(view: View, location: str, stamp: Stamp) -> dict[str, Any]:
    """The first document of a view."""
    return _with_version(
        {
            "view-uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/view")),
            "format-version": 1,
            "location": location,
            "schemas": [],
            "current-version-id": 0,
            "versions": [],
            "version-log": [],
            "properties": _properties(view),
        },
        view,
        stamp,
    )


def replaced(base: Mapping[str, Any], view: View, stamp: Stamp) -> dict[str, Any]:
    """The document of a view with another query; its properties are added to those it has. Raises `UnsupportedFeature` where the
    version before is in dialects that would be lost, as Java does."""
    properties = {**(base.get("properties") or {}), **_properties(view)}
    before = {each.get("dialect", "").lower() for each in _current(base).get("representations", ())}
    if before - {DIALECT} and properties.get(_MAY_DROP_DIALECTS, "false").lower() != "true":
        raise UnsupportedFeature(
            f"view {view.name} is also written in {', '.join(sorted(before - {DIALECT}))}, which replacing it would lose; set its "
            f"property {_MAY_DROP_DIALECTS}=true to allow that"
        )
    return _with_version({**base, "properties": properties}, view, stamp)


def altered(base: Mapping[str, Any], properties: Mapping[str, str], unset: frozenset[str]) -> dict[str, Any]:
    """The document with other properties."""
    kept = {key: value for key, value in (base.get("properties") or {}).items() if key not in unset}
    return {**base, "properties": {**kept, **properties}}


def in_dialect(
    base: Mapping[str, Any], name: str, action: str, dialect: str, query: str | None, stamp: Stamp
) -> dict[str, Any]:
    """The document with a version that has a dialect added, updated or dropped. Raises `NotFound` for one to update or drop that
    is not there, `AlreadyExists` for one to add that is, `InvalidInput` for the last one."""
    current = _current(base)
    kept = [each for each in current["representations"] if each.get("dialect", "").lower() != dialect.lower()]
    is_there = len(kept) < len(current["representations"])
    if is_there and action == "add":
        raise AlreadyExists(f"view {name} is written in {dialect} already; say 'update'")
    if not is_there and action != "add":
        known = ", ".join(each.get("dialect", "") for each in current["representations"])
        raise NotFound(f"view {name} is not written in {dialect}; it is in {known}")
    if query is not None:
        kept.append({"type": "sql", "sql": query, "dialect": dialect})
    if not kept:
        raise InvalidInput(f"view {name} is written in {dialect} only; DROP VIEW, or add another dialect first")
    changing = ("version-id", "timestamp-ms", "representations")
    said = {key: value for key, value in current.items() if key not in changing}
    return _versioned(base, {**said, "representations": kept}, stamp)


# --- private ----------------------------------------------------------------------------------------------------------


def _uuid_of(data: bytes, where: str) -> Any:
    try:
        return documents.parse(data, where).get("view-uuid")
    except CorruptFile:  # Somebody else's.
        return None


def _number(place: str) -> int:
    """The number that a metadata file's name begins with, as other engines count them."""
    digits = place.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _current(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(each for each in document["versions"] if each["version-id"] == document["current-version-id"])


def _properties(view: View) -> dict[str, str]:
    comment = {} if view.comment is None else {_COMMENT: view.comment}
    return {**{key: value for key, value in view.properties.items() if key != _LOCATION}, **comment}


def _with_version(base: Mapping[str, Any], view: View, stamp: Stamp) -> dict[str, Any]:
    """A new version becomes the current one, unless one that says the same is there."""
    fields, _ = evolution.number(view.fields, 0, collections_have_ids=True)
    schemas = list(base["schemas"])
    schema = metadata.emit_schema(fields, 1 + max((each["schema-id"] for each in schemas), default=-1), [])
    same = next((each for each in schemas if each["fields"] == schema["fields"]), None)
    if same is None:
        schemas.append(schema)
    made = {
        "schema-id": (same or schema)["schema-id"],
        "summary": {"engine-name": "lakeformat"},
        "default-namespace": view.namespace.split("."),
        "representations": [{"type": "sql", "sql": view.query, "dialect": DIALECT}],
    }
    return _versioned({**base, "schemas": schemas}, made, stamp)


def _versioned(base: Mapping[str, Any], made: Mapping[str, Any], stamp: Stamp) -> dict[str, Any]:
    versions = list(base["versions"])
    there = next((each for each in versions if all(each.get(key) == value for key, value in made.items())), None)
    if there is None:
        there = {"version-id": 1 + max((each["version-id"] for each in versions), default=0), **made}
        there["timestamp-ms"] = stamp.now_ms
        versions.append(there)
    entry = {"timestamp-ms": stamp.now_ms, "version-id": there["version-id"]}
    kept = max(int(base["properties"].get(_KEPT_VERSIONS, _DEFAULT_KEPT_VERSIONS)), 1)
    newest = sorted(versions, key=lambda each: (each is there, each["version-id"]))[-kept:]
    known = {each["version-id"] for each in newest}
    log = [*base["version-log"], entry]
    first = next((i for i in reversed(range(len(log))) if log[i]["version-id"] not in known), -1) + 1
    return {
        **base,
        "versions": sorted(newest, key=lambda each: each["version-id"]),
        "current-version-id": there["version-id"],
        "version-log": log[first:],
    }
