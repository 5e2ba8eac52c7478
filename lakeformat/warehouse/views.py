"""Views: queries that a catalog keeps under a name, in Iceberg's view format (version 1).

A view's document holds versions, each with the query in one or more SQL dialects and the schema of its rows. We use
Spark's dialect.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from lakeformat.catalogs.catalog import Catalog, ViewCatalog, ViewMetadata
from lakeformat.codec.parsing import specified
from lakeformat.dialects.iceberg import metadata, types
from lakeformat.errors import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    NotFound,
    UnsupportedFeature,
)
from lakeformat.model import evolution
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Stamp

DIALECT = "spark"
QUERY_COLUMNS = (
    "spark.query-column-names"  # Property: the query's own column names; the schema has the view's, in the same order.
)
NOT_KEPT = (
    "this warehouse keeps no views; one with a SQL catalog does, Lake(..., catalog='sql'), "
    "and one with a REST catalog whose server has views"
)
_COMMENT, _LOCATION = "comment", "location"
_KEPT_VERSIONS, _MAY_DROP_DIALECTS = "version.history.num-entries", "replace.drop-dialect.allowed"
_SPECIFIED = "view metadata as Iceberg's specification has it"
_DEFAULT_KEPT_VERSIONS = 10


@dataclass(frozen=True, slots=True)
class View:
    """A view at its current version. `query` is Spark SQL; names without a namespace are resolved in `namespace`."""

    name: str
    query: str
    namespace: str
    fields: tuple[Field, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None

    @property
    def query_columns(self) -> tuple[str, ...]:
        """The column names of the query."""
        names = tuple(filter(None, self.properties.get(QUERY_COLUMNS, "").split(",")))
        return names if len(names) == len(self.fields) else tuple(column.name for column in self.fields)


@dataclass(frozen=True, slots=True)
class Views:
    """The views of a catalog. New ones are placed below `root` unless the catalog chooses; `options` are storage
    options.

    Each change is one commit of the view's metadata, and raises `Conflict` if another change was committed first. A
    REST server is sent the change alone and applies it to its current version.
    """

    catalog: Catalog | None
    root: str
    options: Mapping[str, str]

    @property
    def are_kept(self) -> bool:
        """Whether the catalog keeps views. Folders do not, and some REST servers do not."""
        return self._keeper is not None

    def names(self, namespace: str) -> list[str]:
        """The full names of the views; empty if the catalog keeps none."""
        return [] if self._keeper is None else self._keeper.views(namespace)

    def is_there(self, name: str) -> bool:
        return self._keeper is not None and self._keeper.has_view(name)

    def find(self, name: str) -> View | None:
        entry = self._entry(name)
        return None if entry is None else parse(entry.document, name, entry.location)

    def create(self, view: View, if_exists: str) -> None:
        """Create a view. `if_exists`: "error" raises `AlreadyExists`, "ignore" keeps the existing view, "replace" gives
        it the new query."""
        entry, stamp, catalog = self._entry(view.name), Stamp.now(), self._required(view.name)
        if entry is None:
            placed = None if catalog.places_views else f"{self.root}/{view.name.replace('.', '.db/', 1)}"
            location = view.location or placed
            self._publish(view.name, None, created(view, location and location.rstrip("/"), stamp), stamp)
        elif if_exists == "replace":
            self._change(view.name, entry, lambda base: replaced(base, view, stamp), stamp)
        elif if_exists == "error":
            raise AlreadyExists(f"{view.name}: the view exists already; CREATE OR REPLACE VIEW replaces it")

    def alter(self, name: str, properties: Mapping[str, str], unset: frozenset[str] = frozenset()) -> None:
        """Set and unset properties. Raises `NotFound`."""
        self._change(name, self._require(name), lambda base: altered(base, properties, unset), Stamp.now())

    def alter_dialect(self, name: str, action: str, dialect: str, query: str | None) -> None:
        """Add, update or drop the query in one SQL dialect; other dialects and the columns stay. Raises `NotFound`,
        `AlreadyExists`."""
        there, stamp = self._require(name), Stamp.now()
        self._change(name, there, lambda base: in_dialect(base, name, action, dialect, query, stamp), stamp)

    def rename(self, old: str, new: str) -> None:
        self._required(old).rename_view(old, new)

    def drop(self, name: str) -> None:
        """Drop the view and its metadata files. Raises `NotFound`."""
        self._required(name).drop_view(name, self.root, self.options)

    @property
    def _keeper(self) -> ViewCatalog | None:
        return self.catalog if isinstance(self.catalog, ViewCatalog) and self.catalog.keeps_views else None

    def _entry(self, name: str) -> ViewMetadata | None:
        return None if self._keeper is None else self._keeper.find_view(name, self.options)

    def _require(self, name: str) -> ViewMetadata:
        view = self._entry(name)
        if view is None:
            raise NotFound(f"no view {name!r}")
        return view

    def _change(
        self, name: str, base: ViewMetadata, change: Callable[[Mapping[str, Any]], dict[str, Any]], stamp: Stamp
    ) -> None:
        with specified(base.location, _SPECIFIED):
            document = change(base.document)
        self._publish(name, base, document, stamp)

    def _publish(self, name: str, base: ViewMetadata | None, document: Mapping[str, Any], stamp: Stamp) -> None:
        if not self._required(name).publish_view(name, base, document, stamp.nonce, self.options):
            if base is None:
                raise AlreadyExists(f"{name}: there is a table or a view of that name already")
            raise Conflict(f"view {name} was changed by another writer meanwhile; nothing was changed here")

    def _required(self, name: str) -> ViewCatalog:
        if self._keeper is None:
            raise UnsupportedFeature(f"view {name}: {NOT_KEPT}")
        return self._keeper


def parse(document: Mapping[str, Any], name: str, where: str) -> View:
    """Parse a view's document. Raises `CorruptFile`, and `UnsupportedFeature` for a view without a query in Spark's
    dialect."""
    with specified(where, _SPECIFIED):
        version = _current(document)
        sql = {entry["dialect"].lower(): entry["sql"] for entry in version["representations"] if entry["type"] == "sql"}
        schema = next(schema for schema in document["schemas"] if schema["schema-id"] == version["schema-id"])
        fields = types.parse_fields(schema)
        namespace = ".".join(version["default-namespace"])
        properties = {str(key): str(value) for key, value in (document.get("properties") or {}).items()}
        location = str(document["location"])
    if DIALECT not in sql:
        raise UnsupportedFeature(
            f"view {name} is written in {', '.join(sorted(sql)) or 'no SQL'}; lakeformat reads views in Spark's dialect"
        )
    return View(name, sql[DIALECT], namespace, fields, properties, properties.get(_COMMENT), location)


def created(view: View, location: str | None, stamp: Stamp) -> dict[str, Any]:
    """The first document of a view. `location`: None if the catalog chooses it."""
    return _with_version(
        {
            "view-uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/view")),
            "format-version": 1,
            **({} if location is None else {"location": location}),
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
    """The document with another query; the view's properties are added to the existing ones. Raises
    `UnsupportedFeature` if the current version has dialects that would be lost, as Java does."""
    properties = {**(base.get("properties") or {}), **_properties(view)}
    before = {entry.get("dialect", "").lower() for entry in _current(base).get("representations", ())}
    if before - {DIALECT} and properties.get(_MAY_DROP_DIALECTS, "false").lower() != "true":
        raise UnsupportedFeature(
            f"view {view.name} is also written in {', '.join(sorted(before - {DIALECT}))}, which replacing it would "
            f"lose; set its property {_MAY_DROP_DIALECTS}=true to allow that"
        )
    return _with_version({**base, "properties": properties}, view, stamp)


def altered(base: Mapping[str, Any], properties: Mapping[str, str], unset: frozenset[str]) -> dict[str, Any]:
    """The document with other properties."""
    kept = {key: value for key, value in (base.get("properties") or {}).items() if key not in unset}
    return {**base, "properties": {**kept, **properties}}


def in_dialect(
    base: Mapping[str, Any], name: str, action: str, dialect: str, query: str | None, stamp: Stamp
) -> dict[str, Any]:
    """The document with a new version in which one dialect is added, updated or dropped. Raises `NotFound` for an
    update or drop of a dialect that does not exist, `AlreadyExists` for an add of one that does, `InvalidInput` for a
    drop of the last one."""
    current = _current(base)
    kept = [entry for entry in current["representations"] if entry.get("dialect", "").lower() != dialect.lower()]
    is_there = len(kept) < len(current["representations"])
    if is_there and action == "add":
        raise AlreadyExists(f"view {name} is written in {dialect} already; say 'update'")
    if not is_there and action != "add":
        known = ", ".join(entry.get("dialect", "") for entry in current["representations"])
        raise NotFound(f"view {name} is not written in {dialect}; it is in {known}")
    if query is not None:
        kept.append({"type": "sql", "sql": query, "dialect": dialect})
    if not kept:
        raise InvalidInput(f"view {name} is written in {dialect} only; DROP VIEW, or add another dialect first")
    changing = ("version-id", "timestamp-ms", "representations")
    said = {key: value for key, value in current.items() if key not in changing}
    return _versioned(base, {**said, "representations": kept}, stamp)


# --- private ----------------------------------------------------------------------------------------------------------


def _current(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(version for version in document["versions"] if version["version-id"] == document["current-version-id"])


def _properties(view: View) -> dict[str, str]:
    comment = {} if view.comment is None else {_COMMENT: view.comment}
    return {**{key: value for key, value in view.properties.items() if key != _LOCATION}, **comment}


def _with_version(base: Mapping[str, Any], view: View, stamp: Stamp) -> dict[str, Any]:
    """Make a new version the current one; an existing version with the same content is used again."""
    fields, _ = evolution.number(view.fields, 0, collections_have_ids=True)
    schemas = list(base["schemas"])
    schema = metadata.emit_schema(fields, 1 + max((schema["schema-id"] for schema in schemas), default=-1), [])
    same = next((entry for entry in schemas if entry["fields"] == schema["fields"]), None)
    if same is None:
        schemas.append(schema)
    version = {
        "schema-id": (same or schema)["schema-id"],
        "summary": {"engine-name": "lakeformat"},
        "default-namespace": view.namespace.split("."),
        "representations": [{"type": "sql", "sql": view.query, "dialect": DIALECT}],
    }
    return _versioned({**base, "schemas": schemas}, version, stamp)


def _versioned(base: Mapping[str, Any], fields: Mapping[str, Any], stamp: Stamp) -> dict[str, Any]:
    versions = list(base["versions"])
    version = next(
        (version for version in versions if all(version.get(key) == value for key, value in fields.items())), None
    )
    if version is None:
        version = {"version-id": 1 + max((version["version-id"] for version in versions), default=0), **fields}
        version["timestamp-ms"] = stamp.now_ms
        versions.append(version)
    entry = {"timestamp-ms": stamp.now_ms, "version-id": version["version-id"]}
    kept = max(int(base["properties"].get(_KEPT_VERSIONS, _DEFAULT_KEPT_VERSIONS)), 1)
    newest = sorted(versions, key=lambda entry: (entry is version, entry["version-id"]))[-kept:]
    known = {version["version-id"] for version in newest}
    log = [*base["version-log"], entry]
    first = next((i for i in reversed(range(len(log))) if log[i]["version-id"] not in known), -1) + 1
    return {
        **base,
        "versions": sorted(newest, key=lambda version: version["version-id"]),
        "current-version-id": version["version-id"],
        "version-log": log[first:],
    }
