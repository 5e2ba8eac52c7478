"""Choose a catalog by its address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module

from lakeformat import redact
from lakeformat.catalogs.catalog import Catalog
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.storage import paths
from lakeformat.storage.allowed import Allowed

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~\xa0-\xff](?:[ \t!-~\xa0-\xff]*[!-~\xa0-\xff])?)?")
_SQL_OPTIONS = {"iceberg": ("format", "name"), "paimon": ("format", "name", "lock.enabled")}
_SQLITE = "catalog.sqlite"  # File in the warehouse's folder.
_TABLE_DEFAULT = "table-default."


def table_defaults(address: str | None, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A catalog's own options, and the properties of new tables that do not set them (`table-default.<property>`;
    Paimon's CatalogUtils.tableDefaultOptions, Iceberg's CatalogProperties). Raises `InvalidInput`."""
    defaults = {key.removeprefix(_TABLE_DEFAULT): options[key] for key in options if key.startswith(_TABLE_DEFAULT)}
    catalog_options = {key: options[key] for key in options if not key.startswith(_TABLE_DEFAULT)}
    for key, value in defaults.items():
        if not key or not isinstance(value, str):
            raise InvalidInput(
                f"catalog_options: '{_TABLE_DEFAULT}{key}' is {value!r}: write {_TABLE_DEFAULT}<property> and text"
            )
    if catalog_options and address is None:
        raise InvalidInput(
            f"catalog_options: {min(catalog_options)!r} needs a catalog; say which, e.g. "
            f"catalog='sql'. Known for folders is {_TABLE_DEFAULT}<property>, for new Paimon tables"
        )
    return catalog_options, defaults


def open_catalog(address: str, options: Mapping[str, str], warehouse: str, allowed: Allowed | None = None) -> Catalog:
    """Open a catalog: `sql` (SQLite in the warehouse's folder), a SQLAlchemy URL, or the `http(s)://` address of a REST
    catalog.

    Raises `InvalidInput`.
    """
    if not isinstance(address, str) or not address:
        raise InvalidInput(f"catalog={address!r}: write 'sql' or a database's address, e.g. 'postgresql+psycopg://...'")
    if address.startswith(("http://", "https://")):
        return _rest(address, options)
    format = _format(options, "a SQL catalog")
    if unknown := sorted(options.keys() - set(_SQL_OPTIONS[format])):
        raise InvalidInput(
            f"catalog_options: {unknown[0]!r} is not an option of a SQL catalog of {format}; supported: "
            f"{', '.join(_SQL_OPTIONS[format])}, {_TABLE_DEFAULT}*"
        )
    if address == "sql":
        if paths.scheme_of(warehouse) not in (None, "file"):
            raise InvalidInput(
                f"catalog='sql' keeps SQLite in the warehouse, and {warehouse} is not local; name a database"
            )
        address = f"sqlite:///{paths.local_folder(warehouse)}/{_SQLITE}"
    try:
        module = import_module("lakeformat.catalogs.sql" if format == "iceberg" else "lakeformat.catalogs.paimon_sql")
    except ModuleNotFoundError as error:
        raise InvalidInput(f"catalog={redact.address(address)!r} needs SQLAlchemy: install lakeformat[sql]") from error
    if format == "iceberg":
        return module.SqlCatalog(address, options.get("name", "default"), allowed)
    return module.PaimonSqlCatalog(address, warehouse, options.get("name", "jdbc"), _locks(options, warehouse))


def _format(options: Mapping[str, str], label: str) -> str:
    """The table format that the options ask `label` to keep."""
    format = options.get("format", "iceberg")
    if format not in _SQL_OPTIONS:
        raise InvalidInput(f"catalog_options: format={format!r}: {label} is one of {' or '.join(_SQL_OPTIONS)}")
    return format


def _locks(options: Mapping[str, str], warehouse: str) -> bool:
    """Whether commits of Paimon's JDBC catalog take a lock: where Java's does, unless an option says otherwise."""
    enabled = options.get("lock.enabled", "false" if paths.scheme_of(warehouse) in (None, "file") else "true")
    if str(enabled).lower() not in ("true", "false"):
        raise InvalidInput(f"catalog_options: lock.enabled={enabled!r}: it must be 'true' or 'false'")
    return str(enabled).lower() == "true"


def _rest(address: str, options: Mapping[str, str]) -> Catalog:
    format = _format(options, "a REST catalog")
    try:
        rest = import_module("lakeformat.catalogs.rest" if format == "iceberg" else "lakeformat.catalogs.paimon_rest")
    except ModuleNotFoundError as error:
        raise InvalidInput(f"catalog={redact.address(address)!r} needs requests: install lakeformat[rest]") from error
    for key, value in options.items():
        if key not in rest.OPTIONS and not key.startswith("header."):
            known = ", ".join(sorted(rest.OPTIONS))
            raise InvalidInput(
                f"catalog_options: {key!r} is not an option of a REST catalog; supported: {known}, "
                f"header.*, {_TABLE_DEFAULT}*"
            )
        if not isinstance(value, str):
            raise InvalidInput(f"catalog_options: {key!r} must be text")
        if key.startswith("header.") and not _HEADER_NAME.fullmatch(key.removeprefix("header.")):
            raise InvalidInput(f"catalog_options: {key!r} is not a name that a header may have")
        if (key.startswith("header.") or key == "token") and not _HEADER_VALUE.fullmatch(value):
            raise InvalidInput(
                f"catalog_options: the value of {key!r} holds what a header may not: a line break, a character beyond "
                "Latin-1, or blanks at an end"
            )
    pairs = tuple(sorted(options.items()))
    if format == "iceberg":
        return rest.RestCatalog(address.rstrip("/"), tuple(pair for pair in pairs if pair[0] != "format"))
    if (provider := options.get("token.provider", "bear")) != "bear":
        raise UnsupportedFeature(
            f"catalog_options: token.provider={provider!r}: not supported; 'bear' is, with 'token'"
        )
    return rest.PaimonRestCatalog(address.rstrip("/"), pairs)
