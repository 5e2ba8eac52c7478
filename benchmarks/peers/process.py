"""A peer as a process: requests as lines of JSON into it, answers as lines of JSON out of it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.judge import environments
from tests.judge.environments import PythonPeer

HERE = Path(__file__).resolve().parent
ADBC = PythonPeer("adbc", ("adbc-driver-postgresql==1.13.0", "pyarrow==26.0.1"))


class PeerFailed(RuntimeError):
    """A peer died, or answered with an error; the message holds its own words."""


class Peer:
    """One running process of a peer."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  It lives as long as the process.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=_surroundings()
        )

    def ask(self, **request: Any) -> Any:
        """The peer's answer; raises `PeerFailed`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise PeerFailed(f"{self.name} died on {request}\n{self._log.read()[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {answer['error']}")
        return answer["answer"]

    def close(self) -> None:
        """End the process, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


@contextmanager
def pypaimon() -> Iterator[Peer]:
    """pypaimon 2.1 in its own environment, the judge's."""
    with _running("pypaimon", environments.PYPAIMON, "peer_pypaimon.py") as peer:
        yield peer


@contextmanager
def pyiceberg() -> Iterator[Peer]:
    """pyiceberg 0.12 in its own environment, the judge's."""
    with _running("pyiceberg", environments.PYICEBERG, "peer_pyiceberg.py") as peer:
        yield peer


@contextmanager
def adbc() -> Iterator[Peer]:
    """ADBC's driver of PostgreSQL in an environment of its own."""
    with _running("ADBC", ADBC, "peer_adbc.py") as peer:
        yield peer


@contextmanager
def iceberg_on_spark(warehouse: Path) -> Iterator[Peer]:
    """Iceberg 1.10.2 on Spark 3.5 with a Hadoop catalog in `warehouse`; its JVM runs when this returns."""
    with _running("Iceberg on Spark", environments.ICEBERG, "peer_iceberg.py") as peer:
        peer.ask(verb="start", warehouse=str(warehouse))
        yield peer


@contextmanager
def _running(name: str, environment: PythonPeer, script: str) -> Iterator[Peer]:
    peer = Peer(name, [environments.command(environment)[0], str(HERE / script)])
    try:
        yield peer
    finally:
        peer.close()


def _surroundings() -> dict[str, str]:
    """Without what would make the peer find our own packages or our own Spark."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "PYSPARK", "VIRTUAL_ENV"))}
