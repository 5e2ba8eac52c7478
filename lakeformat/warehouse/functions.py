"""Functions: definitions that a catalog stores under a name, in Paimon's model (`org.apache.paimon.function`).

A function has parameters, a type, and definitions by engine: a SQL body, files with a class, or a lambda of a language.
We call SQL bodies in Spark's dialect, as Paimon writes them for Spark 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from lakeformat.catalogs.catalog import Catalog, FunctionCatalog, FunctionKeeper, FunctionMetadata
from lakeformat.codec.parsing import specified
from lakeformat.dialects.paimon import types
from lakeformat.errors import (
    AlreadyExists,
    InvalidInput,
    NotFound,
    UnsupportedFeature,
)
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field

ENGINE = "spark"
NOT_KEPT = (
    "this warehouse stores no functions; one with a SQL catalog does, Lake(..., catalog='sql'), "
    "and one with Paimon's REST catalog"
)
_SPECIFIED = "function as Paimon has it"
_IS_QUERY = "spark.sql-function.is-query"  # Options by which Paimon tells Spark how to read the body.
_DETERMINISTIC, _CONTAINS_SQL = "spark.sql-function.deterministic", "spark.sql-function.contains-sql"
_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_-]+")  # Paimon's FunctionNameValidator, without dots.
_KINDS = {
    "sql": ("definition",),
    "lambda": ("definition", "language"),
    "file": ("fileResources", "language", "className", "functionName"),
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function. Its parameters' defaults are SQL text; `returns` holds its one result,
    or is None if that is not known.

    `definitions`: by engine, each as JSON of Paimon's model: `{"type": "sql", "definition": "w * h"}`, `{"type":
    "lambda", "definition": "...", "language": "JAVA"}`, or `{"type": "file", "fileResources": [...],
    "className": "...", ...}`.
    """

    name: str
    parameters: tuple[Field, ...] = ()
    returns: Field | None = None
    definitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    deterministic: bool = True
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    session_namespace: str | None = (
        None  # Of a temporary function, whose name has no namespace: where its body's names are.
    )

    @property
    def is_temporary(self) -> bool:
        return self.session_namespace is not None

    @property
    def namespace(self) -> str:
        """Where the names in the body are resolved."""
        return self.name.rpartition(".")[0] if self.session_namespace is None else self.session_namespace

    @property
    def definition(self) -> Mapping[str, Any] | None:
        """Spark's definition."""
        return self.definitions.get(ENGINE)

    @property
    def body(self) -> str | None:
        """The body of a SQL function."""
        definition = self.definition
        return str(definition["definition"]) if definition is not None and definition["type"] == "sql" else None

    @property
    def reads_tables(self) -> bool:
        return self.options.get(_CONTAINS_SQL, "true").lower() == "false"


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of a catalog."""

    catalog: Catalog | None

    @property
    def are_kept(self) -> bool:
        """Whether the catalog stores functions. Folders and Iceberg's REST catalogs do not."""
        return self._keeper is not None

    def names(self, namespace: str) -> list[str]:
        """The full names of the functions; empty if the catalog stores none."""
        return [] if self._keeper is None else sorted(f"{namespace}.{name}" for name in self._keeper.names(namespace))

    def find(self, name: str) -> Function | None:
        """The function of this name; the case may differ."""
        stored = self._stored(name)
        if stored is None and self._keeper is not None:
            near = [other for other in self.names(name.rpartition(".")[0]) if other.casefold() == name.casefold()]
            if len(near) == 1:
                name, stored = near[0], self._stored(near[0])
        return None if stored is None else parse(stored.document, name)

    def create(self, function: Function, if_exists: str = "error") -> None:
        """Store a function. `if_exists`: "error" raises `AlreadyExists`, "ignore" keeps the existing function,
        "replace" gives it this definition. In Paimon's REST catalog a replacement is a drop and a creation, as in
        Paimon. Raises `InvalidInput` for a name that Paimon does not take."""
        keeper, name = self._required(function.name), function.name
        if not _NAME.fullmatch(name.rpartition(".")[2]):
            raise InvalidInput(
                f"function {name!r}: write ASCII letters, digits, - and _, at least one letter (Paimon's rule)"
            )
        document = emit(function)
        stored = self._stored(name)
        if stored is None:
            keeper.create(name, document)
        elif if_exists == "replace":
            keeper.replace(name, stored, document)
        elif if_exists != "ignore":
            raise AlreadyExists(f"{name}: the function exists already; CREATE OR REPLACE FUNCTION replaces it")

    def alter(self, name: str, change: Mapping[str, Any]) -> None:
        """Make one change, JSON of Paimon's `FunctionChange`: `{"action": "addDefinition", "name": "spark",
        "definition": {...}}`, `updateDefinition`, `dropDefinition`, `setOption` (`key`, `value`), `removeOption`
        (`key`), `updateComment` (`comment`). Raises `NotFound`, `AlreadyExists`, `InvalidInput`, and `Conflict` if
        another change came first."""
        keeper, stored = self._required(name), self._stored(name)
        if stored is None:
            raise NotFound(f"no function {name!r}")
        keeper.change(name, stored, changed(stored.document, change, name), change)

    def drop(self, name: str) -> None:
        """Drop a function. Raises `NotFound`."""
        self._required(name).drop(name)

    @property
    def _keeper(self) -> FunctionKeeper | None:
        return self.catalog.functions if isinstance(self.catalog, FunctionCatalog) else None

    def _stored(self, name: str) -> FunctionMetadata | None:
        return None if self._keeper is None else self._keeper.find(name)

    def _required(self, name: str) -> FunctionKeeper:
        if self._keeper is None:
            raise UnsupportedFeature(f"function {name}: {NOT_KEPT}")
        return self._keeper


def of_sql(
    name: str,
    parameters: tuple[Field, ...],
    returns: Field,
    body: str,
    is_query: bool,
    reads_tables: bool,
    deterministic: bool,
    comment: str | None,
) -> Function:
    """A SQL function with the options that Paimon writes for Spark."""
    options = {
        _IS_QUERY: str(is_query).lower(),
        _DETERMINISTIC: str(deterministic).lower(),
        _CONTAINS_SQL: str(not reads_tables).lower(),
    }
    definition = {"type": "sql", "definition": body}
    return Function(name, parameters, returns, {ENGINE: definition}, deterministic, comment, options)


def parse(document: Mapping[str, Any], name: str) -> Function:
    """Parse a function's document. Raises `CorruptFile`."""
    with specified(f"function {name}", _SPECIFIED):
        parameters = tuple(types.parse_field(value) for value in document.get("inputParams") or ())
        returned = [types.parse_field(value) for value in document.get("returnParams") or ()]
        definitions = {engine: _definition(value) for engine, value in (document.get("definitions") or {}).items()}
        options = {str(key): str(value) for key, value in (document.get("options") or {}).items()}
        comment = document.get("comment")
        is_deterministic = bool(document.get("deterministic", True))
    return Function(
        name, parameters, returned[0] if returned else None, definitions, is_deterministic, comment, options
    )


def emit(function: Function) -> dict[str, Any]:
    """A function's document, the body of Paimon's request that creates it."""
    _, _, last = function.name.rpartition(".")
    return {
        "name": last,
        "inputParams": [types.emit_field(parameter) for parameter in types.number(function.parameters)[0]],
        "returnParams": [] if function.returns is None else [types.emit_field(types.number((function.returns,))[0][0])],
        "deterministic": function.deterministic,
        "definitions": {engine: dict(value) for engine, value in function.definitions.items()},
        "comment": function.comment,
        "options": dict(function.options),
    }


def changed(document: Mapping[str, Any], change: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The document after a change; see `Functions.alter`."""
    action = change.get("action") if isinstance(change, Mapping) else None
    if not isinstance(action, str) or action not in _CHANGES:
        raise InvalidInput(f"function {name}: a change has an action, one of {', '.join(_CHANGES)}; this is {change!r}")
    keys, apply = _CHANGES[action]
    if missing := [key for key in keys if not isinstance(change.get(key), str)]:
        raise InvalidInput(f"function {name}: {action} needs {missing[0]!r} as text; this is {change!r}")
    with specified(f"function {name}", _SPECIFIED):
        return apply(dict(document), change, name)


# --- private ----------------------------------------------------------------------------------------------------------


def _definition(value: Any) -> Mapping[str, Any]:
    """A definition with the keys of its kind. Raises `InvalidInput`."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind not in _KINDS or any(key not in value for key in _KINDS[kind][:1]):
        raise InvalidInput(
            "a definition has a type (sql, lambda or file) with "
            f"{', '.join(key for keys in _KINDS.values() for key in keys[:1])}; this is {value!r}"
        )
    return value


def _defined(document: dict[str, Any], change: Mapping[str, Any], name: str) -> dict[str, Any]:
    action, engine, definitions = change["action"], change["name"], dict(document.get("definitions") or {})
    if action == "addDefinition" and engine in definitions:
        raise AlreadyExists(f"function {name} has a definition for {engine!r} already; say 'updateDefinition'")
    if action != "addDefinition" and engine not in definitions:
        raise NotFound(f"function {name} has no definition for {engine!r}; it has {', '.join(definitions) or 'none'}")
    if action == "dropDefinition":
        del definitions[engine]
    else:
        definitions[engine] = dict(_definition(change.get("definition")))
    return {**document, "definitions": definitions}


def _with_option(document: dict[str, Any], change: Mapping[str, Any], name: str) -> dict[str, Any]:
    options = {key: value for key, value in (document.get("options") or {}).items() if key != change["key"]}
    if change["action"] == "setOption":
        options[change["key"]] = change["value"]
    return {**document, "options": options}


def _with_comment(document: dict[str, Any], change: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**document, "comment": change.get("comment")}


_CHANGES: Mapping[str, tuple[tuple[str, ...], Callable[..., dict[str, Any]]]] = {
    "addDefinition": (("name",), _defined),
    "updateDefinition": (("name",), _defined),
    "dropDefinition": (("name",), _defined),
    "setOption": (("key", "value"), _with_option),
    "removeOption": (("key",), _with_option),
    "updateComment": ((), _with_comment),
}
