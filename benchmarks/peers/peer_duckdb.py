"""DuckDB's side of the benchmarks: its Iceberg extension, with a REST catalog. Each timed verb returns wall and
processor seconds."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
from serve import serve

_connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for _package in (duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg):
    (_extension,) = Path(_package.__file__).parent.rglob("*.duckdb_extension")
    _connection.load_extension(str(_extension))


_place: dict[str, str] = {}


def load(catalog: str, credential: str, source: str, location: str) -> int:
    """A table with the rows of the Parquet files in `source`, partitioned by their first column; how many it holds."""
    _place.update(catalog=catalog, credential=credential)
    _attach()
    _connection.execute("create schema if not exists lake.bench")
    columns = _connection.execute(f"describe select * from read_parquet('{source}/*.parquet')").fetchall()
    declared = ", ".join(f"{name} {kind}" for name, kind, *_ in columns)
    _connection.execute(
        f"create table lake.bench.events ({declared}) partitioned by ({columns[0][0]}) "
        f"with ('format-version' = '2', 'location' = '{location}')"
    )
    _connection.execute(f"insert into lake.bench.events select * from read_parquet('{source}/*.parquet')")
    return _count()


def merge(changes: str, key: list[str], updated: list[str], rows: int) -> list[float]:
    """Merge the rows of a Parquet file: `updated` columns of those whose `key` is there, all of the others."""
    _attach()
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    _connection.execute(
        f"merge into lake.bench.events t using (select * from read_parquet('{changes}')) s "
        f"on {' and '.join(f't.{name} = s.{name}' for name in key)} "
        f"when matched then update set {', '.join(f'{name} = s.{name}' for name in updated)} "
        "when not matched then insert *"
    )
    took = [time.perf_counter() - wall, time.process_time() - processor]
    assert _count() == rows, _count()
    return took


def _attach() -> None:
    """Reach the catalog with a new token: each is good for some tens of requests."""
    user, _, secret = _place["credential"].partition(":")
    form = urlencode({"grant_type": "client_credentials", "client_id": user, "client_secret": secret})
    with urlopen(f"{_place['catalog']}/v1/oauth/tokens", form.encode()) as answer:
        token = json.load(answer)["access_token"]
    _connection.execute("detach database if exists lake")
    _connection.execute(f"create or replace secret catalog (type iceberg, token '{token}')")
    _connection.execute(
        f"attach 'main' as lake (type iceberg, secret catalog, endpoint '{_place['catalog']}', "
        "access_delegation_mode 'none')"
    )


def _count() -> int:
    (count,) = _connection.execute("select count(*) from lake.bench.events").fetchone() or (0,)
    return int(count)


VERBS = (load, merge)
serve({verb.__name__: verb for verb in VERBS})
