"""A conversation with one peer: requests as lines of JSON into its process, answers as lines of JSON out of it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from . import environments


class PeerRefused(Exception):
    """The peer answered a request with an error of its own; the message is its traceback."""


class Conversation:
    """One running process of a peer, started at the first request, and again after it was closed or died."""

    def __init__(self, name: str, command: Callable[[], list[str]] | None = None) -> None:
        self.name = name
        self._command = command or partial(environments.command, environments.PEERS[name])
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - it lives as long as the process

    def ask(self, **request: Any) -> Any:
        """The peer's answer. Raises PeerRefused with the peer's own words when it fails or dies."""
        process = self._started()
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.close()
            raise PeerRefused(f"{self.name} died (exit {process.returncode}) on {request}\n{self._said()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerRefused(f"{self.name}: {answer['error']}")
        return answer["answer"]

    def close(self) -> None:
        """End the process, if one runs."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait(timeout=60)
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(environments.ROOT),
                    "SPARK_SUBMIT_OPTS": "",
                },  # Those are for our own Spark.
                text=True,
                encoding="utf-8",
            )
        return self._process

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]
