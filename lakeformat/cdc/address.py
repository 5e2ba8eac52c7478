"""Opens a source by its address; imports the database client of that source only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lakeformat import lazy
from lakeformat.cdc.source import Source
from lakeformat.cdc.type_option import OnMisfit, TypeOption
from lakeformat.errors import InvalidInput

_POSTGRES, _MYSQL = ("postgresql", "postgres"), ("mysql", "mariadb")
_postgres, _mysql = (lazy.library(f"lakeformat.cdc.{name}.source") for name in ("postgres", "mysql"))


def open_source(
    url: str,
    *,
    slot: str = "lakeformat",
    type_options: Collection[TypeOption | str] = (),
    exclude_columns: Collection[str] = (),
    readers: int = 1,
    name: str | None = None,
    on_misfit: OnMisfit | str = OnMisfit.STOP,
    text_columns: Collection[str] = (),
    lock_seconds: int | None = None,
) -> Source:
    """Open the database at `url`: `postgresql://user:password@host/database` or `mysql://user:password@host:port`.
    `slot` is PostgreSQL's replication slot, `readers` the number of connections that read a snapshot, `name` the name
    recorded in tables for a MySQL server whose address may change. `on_misfit` ("stop" or "null") says what becomes of
    values that their column cannot hold, and `text_columns` ("schema.table.column") which are STRING.
    `lock_seconds`: how long MySQL's FLUSH TABLES WITH READ LOCK may wait.

    Raises `InvalidInput` for any other address, and if the client is not installed.
    """
    scheme = url.partition("://")[0]
    common: dict[str, Any] = {
        "type_options": type_options,
        "exclude_columns": exclude_columns,
        "readers": readers,
        "on_misfit": on_misfit,
        "text_columns": text_columns,
    }
    try:
        if scheme in _POSTGRES:
            if name is not None:
                raise InvalidInput(
                    f"name={name!r} is for MySQL; tables of PostgreSQL record the slot, whatever the address"
                )
            if lock_seconds is not None:
                raise InvalidInput(f"lock_seconds={lock_seconds!r} is for MySQL; PostgreSQL locks no table")
            return _postgres.Postgres(url, slot, **common)
        if scheme in _MYSQL:
            locks = {} if lock_seconds is None else {"lock_seconds": lock_seconds}
            return _mysql.MySql(url, name=name, **locks, **common)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{scheme}://... needs the package {error.name}: pip install 'lakeformat[cdc]'") from error
    raise InvalidInput("the source is not an address that is known; give postgresql://... or mysql://...")
