"""A server of this process for tests."""

import threading
from types import TracebackType
from typing import Any, Self


class Serving:
    """Lets a server (of `socketserver`, or one like it) serve while in a `with`."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
