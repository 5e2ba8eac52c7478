"""The choice of the warehouse: by option, environment, or name in a config file, which holds no secret."""

from __future__ import annotations

import base64
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakeformat
from lakeformat import InvalidInput
from lakeformat.cli.pairs import pairs

if TYPE_CHECKING:
    from lakeformat import Lake

HERE = Path("lakeformat.toml")
KEYS = {"uri", "catalog", "catalog_options", "options", "encryption_keys", "allowed_locations"}
MASTER_KEYS = "LAKEFORMAT_ENCRYPTION_KEYS"  # id=BASE64,id=BASE64
_SECRET = re.compile(r"secret|password|token|credential|access_key|account_key|sas|service_account_key", re.IGNORECASE)


def user_file() -> Path:
    """The path of the user's config file."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "lakeformat.toml"


def chosen(
    warehouse: str | None, catalog: str | None, options: Sequence[str], allowed: Sequence[str], config: Path | None
) -> Lake:
    """The warehouse of the options, the environment and the config file. Raises `InvalidInput`."""
    arguments: dict[str, Any] = pairs("--option", options, "KEY=VALUE, e.g. region=eu-central-1", takes_empty=True)
    path, document = _read(config)
    named: Mapping[str, Any] = document.get("warehouses", {})
    name = warehouse or document.get("default")
    if name is None:
        raise InvalidInput(
            "which warehouse? Give --warehouse DIR (or URI), set LAKEFORMAT_WAREHOUSE, or write a "
            f'{HERE} with default = "name" and [warehouses.name] uri = "..."'
        )
    if name not in named:
        if warehouse is None:
            raise InvalidInput(f"{path}: default = {name!r}, and there is no [warehouses.{name}]")
        keys = _master_keys({}, MASTER_KEYS)
        return lakeformat.Lake(
            name, catalog=catalog, encryption_keys=keys, allowed_locations=allowed or None, **arguments
        )
    entry = dict(named[name])
    if unknown := sorted(entry.keys() - KEYS):
        raise InvalidInput(f"{path}: [warehouses.{name}] has {unknown[0]!r}; it may have {', '.join(sorted(KEYS))}")
    if "uri" not in entry:
        raise InvalidInput(f"{path}: [warehouses.{name}] has no uri")
    where = f"{path}: [warehouses.{name}"
    catalog_options = _filled(entry.get("catalog_options", {}), f"{where}.catalog_options]")
    return lakeformat.Lake(
        _value("uri", entry["uri"], f"{where}]"),
        catalog=catalog or entry.get("catalog"),
        catalog_options=catalog_options or None,
        encryption_keys=_master_keys(entry.get("encryption_keys", {}), f"{where}.encryption_keys]"),
        allowed_locations=allowed or entry.get("allowed_locations"),
        **{**_filled(entry.get("options", {}), f"{where}.options]"), **arguments},
    )


def _read(config: Path | None) -> tuple[Path, dict[str, Any]]:
    for path in (HERE, user_file()) if config is None else (config,):
        if config is None and not path.is_file():
            continue
        try:
            return path, tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"{path} is not TOML: {error}") from error
    return HERE, {}


def _master_keys(named: Mapping[str, Any], where: str) -> dict[str, bytes] | None:
    """Master keys by id, in base64 as `LakeResource` takes them: of the environment variable, and of a config file's
    entry, which names variables."""
    entries = (entry.partition("=") for entry in filter(None, os.environ.get(MASTER_KEYS, "").split(",")))
    texts = {id.strip(): (MASTER_KEYS, text.strip()) for id, _, text in entries}
    for id, name in named.items():
        if not str(name).startswith("$"):
            raise InvalidInput(f'{where} {id}: a key does not belong in a file; write {id} = "$NAME" and set NAME')
        texts[id] = where, _value(id, name, where)
    keys = {}
    for id, (origin, text) in texts.items():
        try:
            keys[id] = base64.b64decode(text, validate=True)
        except ValueError:
            raise InvalidInput(f"{origin} {id}: give the key in base64") from None
    return keys or None


def _filled(options: Mapping[str, Any], where: str) -> dict[str, str]:
    return {key: _value(key, value, where) for key, value in options.items()}


def _value(key: str, value: Any, where: str) -> str:
    """`$NAME` is read from the environment; secrets come only from there."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text.startswith("$"):
        if text[1:] not in os.environ:
            raise InvalidInput(f"{where} {key} = {text!r}: the environment has no {text[1:]}")
        return os.environ[text[1:]]
    if _SECRET.search(key):
        raise InvalidInput(f'{where} {key}: a secret does not belong in a file; write {key} = "$NAME" and set NAME')
    return text
