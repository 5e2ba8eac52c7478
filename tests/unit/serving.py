"""A server of this process for tests."""

import threading
from types import TracebackType
from typing import Any, Self


class Serving:
    """Lets a server (of `socketserver`, or one like it) serve while in a `with`."""

    def __init__(self, server: Any) -> None:
        self._server = server
        # By default a server looks twice a second whether it is to stop, and each of hundreds of tests would wait for that.
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
