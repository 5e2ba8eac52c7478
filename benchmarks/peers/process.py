"""A peer as a process: requests as lines of JSON into it, answers as lines of JSON out of it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.judge import environments
from tests.judge.environments import PythonPeer

HERE = Path(__file__).resolve().parent
ADBC = PythonPeer("adbc", ("adbc-driver-postgresql==1.13.0", "pyarrow==26.0.1"))
DELTALAKE = PythonPeer("deltalake", ("deltalake==1.6.6", "pyarrow==26.0.1"))
DUCKDB = PythonPeer(
    "duckdb-rest",
    (
        "duckdb==1.5.5",
        "duckdb-extension-avro==1.5.5",
        "duckdb-extension-httpfs==1.5.5",
        "duckdb-extension-iceberg==1.5.5",
        "pyarrow==26.0.1",
    ),
)
# The newest Spark that Iceberg has a runtime for, with what lakeformat needs: Maven brings the jar.
NEWEST_ICEBERG = PythonPeer(
    "newest-iceberg",
    (
        "pyspark==4.1.4",
        "pyarrow==26.0.1",
        "pandas==2.2.3",
        "cramjam>=2.9",
        "fastavro>=1.9",
        "sqlglot>=30.25",
        "obstore>=0.10",
        "tqdm>=4.66",
        "pyroaring>=1.0",
    ),
)
NEWEST_RUNTIME = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
SAIL = PythonPeer("sail", ("pysail==0.7.2", "pyspark-client==4.0.1", "pyarrow==22.0.0", "pandas==2.2.3"))
CONNECTORX = PythonPeer("connectorx", ("connectorx==0.4.6", "pyarrow==26.0.1"))
DEBEZIUM = PythonPeer("debezium", ("pydbzengine==3.6.3.0", "jpype1==1.7.1"))
DLT = PythonPeer(
    "dlt",
    (
        "dlt[filesystem,parquet,pyiceberg,sql-database]==1.31.0",
        "connectorx==0.4.6",
        "psycopg2-binary==2.9.13",
        "pyarrow==26.0.1",
    ),
)
_CREDENTIAL = "bench:secret"


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


def pypaimon() -> AbstractContextManager[Peer]:
    """pypaimon 2.1 in its own environment, the judge's."""
    return _running("pypaimon", environments.PYPAIMON, "peer_pypaimon.py")


def pyiceberg() -> AbstractContextManager[Peer]:
    """pyiceberg 0.12 in its own environment, the judge's."""
    return _running("pyiceberg", environments.PYICEBERG, "peer_pyiceberg.py")


def paimon_rust() -> AbstractContextManager[Peer]:
    """paimon-rust in its own environment, the judge's."""
    return _running("paimon-rust", environments.RUST, "peer_paimon_rust.py")


def adbc() -> AbstractContextManager[Peer]:
    """ADBC's driver of PostgreSQL in an environment of its own."""
    return _running("ADBC", ADBC, "peer_adbc.py")


def deltalake() -> AbstractContextManager[Peer]:
    """delta-rs in an environment of its own."""
    return _running("delta-rs", DELTALAKE, "peer_deltalake.py")


def connectorx() -> AbstractContextManager[Peer]:
    """ConnectorX in an environment of its own."""
    return _running("ConnectorX", CONNECTORX, "peer_connectorx.py")


def debezium() -> AbstractContextManager[Peer]:
    """Debezium's engine, by pydbzengine, in an environment of its own; the JVM runs in the peer's process."""
    return _running("Debezium", DEBEZIUM, "peer_debezium.py")


def dlt() -> AbstractContextManager[Peer]:
    """dlt with ConnectorX and pyiceberg in an environment of its own."""
    return _running("dlt", DLT, "peer_dlt.py")


def sail() -> AbstractContextManager[Peer]:
    """Sail in an environment of its own, its server in the peer's process."""
    return _running("Sail", SAIL, "peer_sail.py")


@contextmanager
def duckdb_iceberg(warehouse: Path) -> Iterator[tuple[Peer, dict[str, str]]]:
    """DuckDB with its Iceberg extension, and how to reach the REST catalog that it writes through:
    Iceberg's own, a JVM beside it."""
    warehouse.mkdir(parents=True)
    server = subprocess.Popen(
        environments.rest_server(warehouse, _CREDENTIAL), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        with _running("DuckDB", DUCKDB, "peer_duckdb.py") as peer:
            yield peer, {"catalog": server.stdout.readline().strip(), "credential": _CREDENTIAL}
    finally:
        server.stdin.close()
        server.wait(timeout=60)


@contextmanager
def iceberg_on_spark(warehouse: Path) -> Iterator[Peer]:
    """Iceberg 1.10.2 on Spark 3.5 with a Hadoop catalog in `warehouse`; its JVM runs when this returns."""
    with _running("Iceberg on Spark", environments.ICEBERG, "peer_iceberg.py") as peer:
        peer.ask(verb="start", warehouse=str(warehouse))
        yield peer


@contextmanager
def newest_iceberg(warehouse: Path) -> Iterator[Peer]:
    """Iceberg 1.12.0 on Spark 4.1, and lakeformat in the same session, over the tables of `warehouse`."""
    with _running("Iceberg on Spark 4.1", NEWEST_ICEBERG, "peer_newest_iceberg.py") as peer:
        peer.ask(verb="start", warehouse=str(warehouse), jar=str(environments.jar(*NEWEST_RUNTIME)))
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
