"""Secrets are removed from texts here and nowhere else.

Every `LakeError` passes its message through `redacted`. Code that raises one from an error of another library raises it
from `cause(error)`; code that shows an address given by the user shows `address(text)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

_SHOWN = "***"
_SECRET_KEY = (
    r"[\w.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|signature|(?:api|access|account)[_-]?key)"
)
# `//user:SECRET@host`; what is only digits up to a slash is a port. `jdbc:oracle:thin:user/SECRET@host`.
# `?password=SECRET`, as also `&` and `;` separate them; `sig` signs addresses of Azure.
_IN_TEXT = (
    re.compile(r"(?P<before>//[^\s/:@'\"]*:)(?!\d+(?:[/?#\s'\"]|$))(?P<secret>[^\s'\"]*)(?=@)"),
    re.compile(r"(?P<before>jdbc:\w+:\w+:[^\s/'\"@]*/)(?P<secret>[^\s'\"@]*)(?=@)", re.IGNORECASE),
    re.compile(rf"(?P<before>[?&;](?:{_SECRET_KEY}|sig)=)(?P<secret>[^&;\s'\"]*)", re.IGNORECASE),
)
_IN_ADDRESS = (*_IN_TEXT, re.compile(r"(?P<before>:)(?P<secret>[^\s:@]*)(?=@)"))
_IS_SECRET = re.compile(_SECRET_KEY, re.IGNORECASE)
_LEAST = 4  # Shorter secrets are not searched for by themselves: they are parts of many words.


def redacted(text: str, *secrets: str) -> str:
    """`text` without passwords in addresses, and without these `secrets`."""
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\g<before>{_SHOWN}", text)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST:
            text = text.replace(secret, _SHOWN)
    return text


def address(text: str) -> str:
    """An address given by the user, without its secrets; also one that no library can parse."""
    for pattern in _IN_ADDRESS:
        text = pattern.sub(rf"\g<before>{_SHOWN}", text)
    return text


def secrets_in(text: str) -> tuple[str, ...]:
    """The secrets in an address, as written and as decoded."""
    secrets = {match["secret"] for pattern in _IN_ADDRESS for match in pattern.finditer(text)}
    return tuple(sorted(secrets | {unquote(secret) for secret in secrets}))


def secrets_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The values of options whose names mark them as secret, and the parts of `client:secret`."""
    values = [str(value) for key, value in options.items() if _IS_SECRET.search(key) or key.startswith("header.")]
    return tuple({part for value in values for part in (value, value.strip(), value.rpartition(":")[2])} - {""})


def cause(error: BaseException, *secrets: str) -> BaseException | None:
    """`error`, or a copy of its type with a redacted text if it, or an error that caused it, contains a secret. None if
    there can be no such copy."""
    shown = (f"{part}\n{part!r}" for part in _chain(error))
    if all(text == redacted(text, *secrets) for text in shown):
        return error
    try:
        return type(error)(redacted(str(error), *secrets))
    except Exception:  # An error of another library that is made of more than a text.
        return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
