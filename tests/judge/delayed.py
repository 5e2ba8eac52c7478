"""A network before a server: each answer comes later by a while, and what was asked, and when, is written down."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1\.1\r\n")


@dataclass(slots=True)
class Request:
    method: str
    target: str  # The path and the query.
    begun: float  # Seconds.
    ended: float


@dataclass
class Delayed:
    """Hands on what comes to a free port of this machine to `port`, while in a `with`. Clients send one request at a time over a
    connection, as HTTP/1.1 has it."""

    port: int
    seconds: float = 0.04
    requests: list[Request] = field(default_factory=list)
    own_port: int = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        serving = asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.own_port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        def stop() -> None:
            self._server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.1, self._loop.stop)

        self._loop.call_soon_threadsafe(stop)
        self._thread.join()
        self._loop.close()

    def in_sequence(self, since: float = 0.0) -> int:
        """How many of the requests that began after `since` waited for one another: the most of which none began before the one
        before it had ended."""
        count, end = 0, 0.0
        for request in sorted(self.requests, key=lambda request: request.ended):
            if request.begun >= max(end, since):
                count, end = count + 1, request.ended
        return count

    async def _connected(self, ours: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        theirs, on = await asyncio.open_connection("127.0.0.1", self.port)
        running: list[Request] = []

        async def ask() -> None:
            while data := await ours.read(1 << 16):
                if found := _REQUEST.match(data):
                    now = time.monotonic()
                    running[:] = [Request(found[1].decode(), found[2].decode(), now, now)]
                    self.requests.extend(running)
                on.write(data)
                await on.drain()
            on.close()

        async def answer() -> None:
            waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

            async def come() -> None:
                while True:
                    due, data = await waiting.get()
                    await asyncio.sleep(due - time.monotonic())
                    for request in running:
                        request.ended = time.monotonic()
                    back.write(data)
                    if not data:
                        back.close()
                        return

            coming = asyncio.ensure_future(come())
            while True:
                data = await theirs.read(1 << 20)
                waiting.put_nowait((time.monotonic() + self.seconds, data))
                if not data:
                    await coming
                    return

        try:
            await asyncio.gather(ask(), answer())
        except (ConnectionError, asyncio.CancelledError):
            on.close()
            back.close()
