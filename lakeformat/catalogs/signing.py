"""Requests with AWS signatures (Signature Version 4), for catalogs such as Glue's that take no token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakeformat.errors import InvalidInput, StoreError
from lakeformat.model.dataclass import dataclass

OPTIONS = frozenset(
    {
        "client.access-key-id",
        "client.secret-access-key",
        "client.session-token",
        "rest.signing-name",
        "rest.signing-region",
        "rest.sigv4-enabled",
    }
)
_SIGNED = {"content-type", "host"}  # Signed besides AWS's own headers; proxies may change the others.


def signing(options: Mapping[str, str]) -> Callable[[Any], Any] | None:
    """The signer of requests to a catalog with these options; None if they ask for no signatures. Raises
    `InvalidInput`."""
    if options.get("rest.sigv4-enabled", "false").strip().lower() != "true":
        return None
    try:
        from botocore.session import Session
    except ModuleNotFoundError as error:
        raise InvalidInput("rest.sigv4-enabled=true needs botocore: install lakeformat[aws]") from error
    session = Session()
    region = options.get("rest.signing-region") or session.get_config_variable("region")
    if not region:
        raise InvalidInput("rest.sigv4-enabled=true needs a region: set 'rest.signing-region', e.g. 'eu-central-1'")
    if "client.access-key-id" in options:
        keys = (options.get(f"client.{name}") for name in ("access-key-id", "secret-access-key", "session-token"))
        session.set_credentials(*keys)
    return _Signed(session, options.get("rest.signing-name") or "execute-api", region)


@dataclass(frozen=True, slots=True)
class _Signed:
    """Signs each request with the current credentials: those of a role expire, and botocore renews them."""

    session: Any
    service: str
    region: str

    def __call__(self, request: Any) -> Any:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        credentials = self.session.get_credentials()
        if credentials is None:
            raise StoreError(
                f"{request.url}: no AWS credentials to sign with: give 'client.access-key-id' and "
                "'client.secret-access-key', or set the environment as for the AWS command line"
            )
        # The only encoding of a blank that AWS accepts; a plus sign is %2B.
        request.url = request.url.replace("+", "%20")
        given = {name: value for name, value in request.headers.items() if name.lower() in _SIGNED}
        signed = AWSRequest(request.method, request.url, given, request.body)
        SigV4Auth(credentials.get_frozen_credentials(), self.service, self.region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request
