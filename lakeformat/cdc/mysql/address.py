"""The address of a MySQL server: where it is, who connects, and how the connection is secured.

Source: MySQL reference manual, "Command Options for Encrypted Connections".
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from lakeformat.errors import InvalidInput

_SCHEMES = ("mysql", "mariadb")
_PORT = 3306
# Without the address: its password cannot be told from the rest.
_NONE = (
    "the source is not an address of MySQL; give mysql://user:password@host:port, "
    "with special characters of the password as %xx"
)
_FILES = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password")
_SWITCHES = ("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
_OPTIONS = ("unix_socket", "unlogged_cascades", "connect_timeout", "ssl_mode", *_FILES, *_SWITCHES)
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class TlsMode(StrEnum):
    """MySQL's `--ssl-mode`."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"  # TLS if the server has it.
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"  # By default if a CA is given.
    VERIFY_IDENTITY = "VERIFY_IDENTITY"


@dataclass(frozen=True, slots=True)
class Address:
    settings: Mapping[str, Any]  # Of `pymysql.connect`.
    follows_cascades: bool  # Whether tables are followed whose foreign keys change rows that the log lacks.


def parse(url: str) -> Address:
    """The address of `url`. Raises `InvalidInput`, without its password, if it is none,
    or has an option that is not known."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError:  # Its text may show a part of the password.
        raise InvalidInput(_NONE) from None
    if parts.scheme not in _SCHEMES:
        raise InvalidInput(_NONE)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise InvalidInput(
            f"the address of MySQL has the option {unknown[0]!r}, which is not known; there are: {', '.join(_OPTIONS)}"
        )
    accepts = options.get("unlogged_cascades", "refuse")
    if accepts not in {"accept", "refuse"}:
        raise InvalidInput(f"unlogged_cascades={accepts!r}: it is 'accept' or 'refuse'")
    settings: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "charset": "utf8mb4",
        **_tls(options),
    }
    if "unix_socket" in options:
        # A socket is not encrypted, and loading certificates takes longer than a small sync.
        settings |= {"unix_socket": options["unix_socket"], "ssl_disabled": True, "ssl": None}
    if "connect_timeout" in options:
        settings["connect_timeout"] = _seconds(options["connect_timeout"])
    return Address(settings, accepts == "accept")


def _tls(options: Mapping[str, str]) -> dict[str, Any]:
    switches = {name: _switch(name, options[name]) for name in _SWITCHES if name in options}
    mode = _mode(options, switches)
    if mode is TlsMode.DISABLED:
        if extra := sorted(options.keys() & {*_FILES, "ssl_verify_cert", "ssl_verify_identity"}):
            raise InvalidInput(f"the address disables TLS and has {extra[0]!r}; leave one out")
        return {"ssl_disabled": True}
    if mode is TlsMode.PREFERRED:
        return {}
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"), options.get("ssl_key_password"))
    except OSError as error:
        names = ", ".join(f"{name}={options[name]!r}" for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in options)
        raise InvalidInput(f"the certificates of the address cannot be read ({names}): {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # MySQL's own certificates lack what it asks for.
    context.check_hostname = mode is TlsMode.VERIFY_IDENTITY
    context.verify_mode = ssl.CERT_NONE if mode is TlsMode.REQUIRED else ssl.CERT_REQUIRED
    return {"ssl": context}  # PyMySQL refuses a server without TLS then.


def _mode(options: Mapping[str, str], switches: Mapping[str, bool]) -> TlsMode:
    if "ssl_mode" in options:
        try:
            return TlsMode(options["ssl_mode"].upper())
        except ValueError:
            raise InvalidInput(f"ssl_mode={options['ssl_mode']!r}: it is one of {', '.join(TlsMode)}") from None
    if switches.get("ssl_disabled"):
        return TlsMode.DISABLED
    if switches.get("ssl_verify_identity"):
        return TlsMode.VERIFY_IDENTITY
    if switches.get("ssl_verify_cert", "ssl_ca" in options):
        return TlsMode.VERIFY_CA
    return TlsMode.REQUIRED if options.keys() & {*_FILES, "ssl_verify_cert"} else TlsMode.PREFERRED


def _switch(name: str, text: str) -> bool:
    if text.lower() in _TRUE or text.lower() in _FALSE:
        return text.lower() in _TRUE
    raise InvalidInput(f"{name}={text!r}: it is true or false")


def _seconds(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise InvalidInput(f"connect_timeout={text!r}: give whole seconds above 0")
    return int(text)
