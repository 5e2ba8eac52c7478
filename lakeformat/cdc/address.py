"""Opens a source by its address; imports the database client of that source only."""

from __future__ import annotations

from collections.abc import Collection

from lakeformat import lazy
from lakeformat.cdc.source import Source
from lakeformat.cdc.type_option import TypeOption
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
) -> Source:
    """Open the database at `url`: `postgresql://user:password@host/database` or `mysql://user:password@host:port`.
    `slot` is PostgreSQL's replication slot, `readers` the number of connections that read a snapshot, `name` the name
    recorded in tables for a MySQL server whose address may change. Raises `InvalidInput` for any other address, and if
    the client is not installed."""
    scheme = url.partition("://")[0]
    try:
        if scheme in _POSTGRES:
            if name is not None:
                raise InvalidInput(
                    f"name={name!r} is for MySQL; tables of PostgreSQL record the slot, whatever the address"
                )
            return _postgres.Postgres(url, slot, type_options, exclude_columns, readers)
        if scheme in _MYSQL:
            return _mysql.MySql(
                url, type_options=type_options, exclude_columns=exclude_columns, readers=readers, name=name
            )
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{scheme}://... needs the package {error.name}: pip install 'lakeformat[cdc]'") from error
    raise InvalidInput("the source is not an address that is known; give postgresql://... or mysql://...")
