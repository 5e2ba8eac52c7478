"""Clients of object storage, one for each bucket and process, and their options."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import lru_cache
from typing import Any

from obstore.store import from_url

from lakeformat import redact
from lakeformat.errors import InvalidInput
from lakeformat.storage import paths
from lakeformat.storage.credentials import Lease, Renewing
from lakeformat.storage.failures import first_line

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "abfs", "abfss", "azure", "http", "https")

# Options of the HTTP client, for every service. All others are the service's: credentials, region, endpoint.
CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses",
    "read_timeout", "root_certificate", "timeout", "user_agent",
})  # fmt: skip


@lru_cache(maxsize=64)
def client_of(
    base: str, options: tuple[tuple[str, str], ...], lease: Lease | None, retrying: bool, process: int
) -> Any:
    """The client of one bucket. It does not retry: a put that won would come back as lost from its own repetition."""
    service: dict[str, str] = {}
    http: dict[str, str] = {}
    retry: dict[str, Any] = {}
    for name, value in options:
        key, value = _option(name, value)
        match key:
            case "max_retries":
                retry[key] = _number(name, value)
            case "retry_timeout":
                retry[key] = timedelta(seconds=_number(name, value))
            case _:
                (http if key in CLIENT_OPTIONS else service)[key] = value
    if base.startswith("http:") or endpoint(options).startswith("http://"):
        http.setdefault("allow_http", "true")
    if not retrying:
        retry["max_retries"] = 0
    try:
        return from_url(
            base,
            client_options=http or None,
            retry_config=retry or None,
            **({"config": service} if service else {}),
            **({"credential_provider": Renewing(lease)} if lease else {}),
        )
    except BaseException as error:
        # A panic of the native library is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        option_names = sorted(name for name, _ in options)
        secrets = redact.secrets_of(dict(options))
        said = redact.redacted(first_line(error), *secrets)
        raise InvalidInput(f"{base}: cannot open the store with options {option_names}: {said}") from redact.cause(
            error, *secrets
        )


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise InvalidInput(f"option {name}={value!r}: a whole number is expected")
    return int(value)


def truth(name: str, value: str) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise InvalidInput(f"option {name}={value!r}: 'true' or 'false' is expected")
    return str(value).lower() == "true"


def _option(name: str, value: str) -> tuple[str, str]:
    """An option by obstore's name; `s3.endpoint` and the like are the names of the formats' catalogs."""
    key = name.lower().replace("-", "_").replace(".", "_")
    for prefix in ("s3_", "aws_"):
        if key.startswith(prefix):
            key = key[len(prefix) :]
            match key:
                case "access_key":
                    key = "access_key_id"
                case "secret_key":
                    key = "secret_access_key"
                case "path_style_access":
                    return "virtual_hosted_style_request", str(not truth(name, value)).lower()
    return key, value


def endpoint(options: tuple[tuple[str, str], ...]) -> str:
    by_name = dict(_option(name, value) for name, value in options)
    for key in ("endpoint", "endpoint_url", "azure_endpoint", "azure_storage_endpoint"):
        if key in by_name:
            return by_name[key]
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def same_bucket(base: str) -> tuple[str | None, str]:
    scheme, _, bucket = base.partition("://")
    return paths.family(scheme), bucket
