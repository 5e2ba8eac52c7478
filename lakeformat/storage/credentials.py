"""Credentials of object storage that expire, and where the next ones come from."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from lakeformat import clock
from lakeformat.errors import LakeError
from lakeformat.model.dataclass import dataclass

# New credentials are requested so long before the old ones expire, or after half of their lifetime if that is later.
MARGIN_MS = 300_000


@dataclass(frozen=True, slots=True)
class Issued:
    """Credentials by obstore's names (`access_key_id`, `token`, `sas_token`, ...), and when they expire (epoch ms)."""

    values: tuple[tuple[str, str], ...] = field(repr=False)
    expires_ms: int | None = None


class Issuer(Protocol):
    """Issues credentials. Picklable and hashable."""

    def issue(self) -> Issued:
        """New credentials. Raises `StoreError`."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """Credentials, and who issues the next ones. It can be sent to other processes, each of which renews for itself."""

    issuer: Issuer = field(repr=False)
    first: Issued


class Renewing:
    """Credentials as obstore requests them: new ones near their expiry, from any thread."""

    def __init__(self, lease: Lease, now_ms: Callable[[], int] = clock.now_ms) -> None:
        self._issuer, self._now_ms, self._lock = lease.issuer, now_ms, threading.Lock()
        self._renew_at_ms: float | None = None
        self._take(lease.first)

    def __call__(self) -> dict[str, Any]:
        with self._lock:
            if self._renew_at_ms is not None and self._now_ms() >= self._renew_at_ms:
                self._renew()
            expires_ms = self._issued.expires_ms
            moment = None if expires_ms is None else datetime.datetime.fromtimestamp(expires_ms / 1000, datetime.UTC)
            return {**dict(self._issued.values), "expires_at": moment}

    def _renew(self) -> None:
        assert self._issued.expires_ms is not None, self._issued
        try:
            self._take(self._issuer.issue())
        except LakeError:
            now, end = self._now_ms(), self._issued.expires_ms
            if now >= end:
                raise
            self._renew_at_ms = now + max((end - now) / 2, 1000)  # The current ones are valid until then.

    def _take(self, issued: Issued) -> None:
        self._issued, now = issued, self._now_ms()
        if issued.expires_ms is None:
            self._renew_at_ms = None
        else:
            end = issued.expires_ms
            self._renew_at_ms = max(end - MARGIN_MS, now + max(end - now, 0) / 2)
