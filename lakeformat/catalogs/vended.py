"""A REST catalog's storage configuration of a table, as storage options and credentials that expire.

Names are those of Iceberg's `FileIO`s: `s3.*` and `client.region`, `gcs.*`, `adls.*`. Settings of Java's clients
(retries, signers, multipart sizes, ...) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lakeformat.errors import StoreError, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import paths
from lakeformat.storage.credentials import Issued

_REFRESH = "refresh-credentials-endpoint"  # Names after `client.`, `gcs.oauth2.` or `adls.`.
_YEAR_9999_MS = 253_402_300_799_000  # Later expiry times, such as `Long.MAX_VALUE`, mean never.
_S3_OPTIONS = ("s3.endpoint", "s3.path-style-access", "s3.region")
_S3_KEYS = {
    "s3.access-key-id": "access_key_id", "s3.secret-access-key": "secret_access_key", "s3.session-token": "token",
}  # fmt: skip

# The names after the scheme in `fs.s3a.access.key`, `s3.access-key`, ...
_PAIMON_S3 = {"endpoint": "s3.endpoint", "path.style.access": "s3.path-style-access", "endpoint.region": "s3.region"}
_PAIMON_S3_KEYS = {"access.key": "access_key_id", "secret.key": "secret_access_key", "session.token": "token"}


@dataclass(frozen=True, slots=True)
class Vended:
    """`options` of the storage; `issued` credentials, if any; `endpoint` for the next ones, if the server names one."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    issued: Issued | None = None
    endpoint: str = ""


def read(answer: Mapping[str, Any], location: str) -> Vended:
    """The storage access to `location` in a `LoadTableResult` or `LoadCredentialsResponse`. Raises
    `UnsupportedFeature`."""
    answered = {**(answer.get("config") or {})}
    for storage in sorted(answer.get("storage-credentials") or (), key=lambda credential: len(credential["prefix"])):
        if location.startswith(storage["prefix"]):
            answered |= storage["config"]
    config = {name: str(value) for name, value in answered.items()}
    match paths.scheme_of(location):
        case "s3" | "s3a":
            return _s3(config, location)
        case "gs":
            return _gcs(config)
        case "abfs" | "abfss":
            return _adls(config, location)
    return Vended()


def of_paimon(token: Mapping[str, str], expires_ms: int, location: str) -> Vended:
    """The storage access to `location` in a token of Paimon's REST catalog, whose names are those of its `FileIO`s.
    Raises `UnsupportedFeature` for storage whose tokens are not supported."""
    scheme = paths.scheme_of(location)
    if scheme in (None, "file"):
        return Vended()
    if scheme not in ("s3", "s3a"):
        raise UnsupportedFeature(
            f"{location}: the catalog hands out a token for {scheme}: files; supported: those for s3:"
        )
    answered: dict[str, str] = {}
    for key, value in token.items():
        name = key.removeprefix("fs.").replace("-", ".")
        if name.startswith(("s3.", "s3a.")):
            answered[name.partition(".")[2]] = value
    options = {option: answered[name] for name, option in _PAIMON_S3.items() if name in answered}
    values = tuple((name, answered[key]) for key, name in _PAIMON_S3_KEYS.items() if key in answered)
    if not values:
        raise UnsupportedFeature(
            f"{location}: the catalog's token names no keys for S3, but {', '.join(sorted(token))}"
        )
    return Vended(options, Issued(values, expires_ms if expires_ms <= _YEAR_9999_MS else None))


def _s3(config: Mapping[str, str], location: str) -> Vended:
    options = {name: config[name] for name in _S3_OPTIONS if name in config}
    if "client.region" in config:
        options.setdefault("s3.region", config["client.region"])
    if config.get("s3.sse.type", "none") != "none":
        raise UnsupportedFeature(
            f"{location}: the catalog asks for encryption by the S3 client (s3.sse.type={config['s3.sse.type']}); let "
            "the bucket encrypt instead"
        )
    values = tuple((name, config[said]) for said, name in _S3_KEYS.items() if said in config)
    if not values and config.get("s3.remote-signing-enabled") == "true":
        raise UnsupportedFeature(
            f"{location}: the catalog wants to sign each request (s3.remote-signing-enabled); let it vend credentials"
        )
    expires = _milliseconds(config, "s3.session-token-expires-at-ms")
    return Vended(options, Issued(values, expires) if values else None, config.get(f"client.{_REFRESH}", ""))


def _gcs(config: Mapping[str, str]) -> Vended:
    options = {"base_url": config["gcs.service.host"]} if "gcs.service.host" in config else {}
    if config.get("gcs.no-auth") == "true":
        options["skip_signature"] = "true"
    if "gcs.oauth2.token" not in config:
        return Vended(options)
    issued = Issued((("token", config["gcs.oauth2.token"]),), _milliseconds(config, "gcs.oauth2.token-expires-at"))
    return Vended(options, issued, config.get(f"gcs.oauth2.{_REFRESH}", ""))


def _adls(config: Mapping[str, str], location: str) -> Vended:
    account, key = (config.get(f"adls.auth.shared-key.account.{part}") for part in ("name", "key"))
    options = {"account_name": account, "account_key": key} if account and key else {}
    host = location.partition("://")[2].partition("/")[0].rpartition("@")[2]
    for of in (host, host.partition(".")[0]):
        if token := config.get(f"adls.sas-token.{of}"):
            expires = next(
                (expires_ms for name in (of, host, host.partition(".")[0])
                 if (expires_ms := _milliseconds(config, f"adls.sas-token-expires-at-ms.{name}")) is not None),
                None,
            )  # fmt: skip
            issued = Issued((("sas_token", token.removeprefix("?")),), expires)
            return Vended(options, issued, config.get(f"adls.{_REFRESH}", ""))
    return Vended(options)


def _milliseconds(config: Mapping[str, str], name: str) -> int | None:
    value = config.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit():
        raise StoreError(f"the catalog says {name}={value!r}; milliseconds are expected")
    expires_ms = int(value)
    return expires_ms if expires_ms <= _YEAR_9999_MS else None
