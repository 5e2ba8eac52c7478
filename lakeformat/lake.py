"""Lake: a warehouse. It maps table names to Tables and knows which format each table has."""

from __future__ import annotations

import difflib
import os
import re
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeformat import lazy
from lakeformat import sql as statements
from lakeformat import table as tables
from lakeformat.arguments import is_spark, require_spark
from lakeformat.catalogs.catalog import Catalog, TableAccess
from lakeformat.catalogs.choose import open_catalog, table_defaults
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.dialects.iceberg import metadata as iceberg
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.encryption import MasterKeys
from lakeformat.dialects.iceberg.metadata import METADATA_FOLDER
from lakeformat.engines.choose import spark_engine
from lakeformat.engines.exchange.layout import layout
from lakeformat.engines.hive_folder import HiveFolder, look
from lakeformat.errors import (
    AlreadyExists,
    CommitUnknown,
    CorruptFile,
    CorruptTable,
    InvalidInput,
    LakeError,
    NoSuchFile,
    NotFound,
    OutOfReach,
    StoreError,
    UnsupportedFeature,
)
from lakeformat.expression.order import parse
from lakeformat.maintenance import convert, mirror
from lakeformat.maintenance.drop import drop
from lakeformat.model import html
from lakeformat.model.log import log
from lakeformat.model.partition import Partitioning, SortOrder, parse_field
from lakeformat.model.schema import Field, Schema, spelled
from lakeformat.model.session_table import SessionFiles, SessionTable, require_parquet
from lakeformat.model.snapshot import Snapshot
from lakeformat.storage import fence, paths
from lakeformat.storage.allowed import allowed_in, real
from lakeformat.storage.cache import CACHE_BYTES, Cache
from lakeformat.storage.catalogued import Catalogued, files_of
from lakeformat.storage.files import missing_folder, open_store
from lakeformat.storage.rehearsal import Rehearsal
from lakeformat.storage.several import several
from lakeformat.storage.store import Store
from lakeformat.table import Table
from lakeformat.warehouse import adopting
from lakeformat.warehouse.adopting import Adoptable
from lakeformat.warehouse.creating import create_by
from lakeformat.warehouse.data_source import Reading, TablesByOptions
from lakeformat.warehouse.functions import Functions
from lakeformat.warehouse.roots import FORMATS, read_root, refers_to_catalog
from lakeformat.warehouse.views import Views

if TYPE_CHECKING:
    from lakeformat.warehouse import loading
else:
    loading = lazy.library("lakeformat.warehouse.loading")

# Properties of Spark's tables that say nothing about a lake's.
_OF_SPARK = frozenset({
    "path", "location", "provider", "transient_lastDdlTime", "serialization.format", "EXTERNAL", "write.metadata.path",
    "write.data.path", "write.object-storage.path", "write.folder-storage.path",
})  # fmt: skip
_LISTING = 32  # Folders that are looked into side by side.
_DATABASE = ".db"  # Suffix of a namespace's folder.
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f.\s$\ud800-\udfff]+")


class Lake:
    """A warehouse: the tables below one folder or bucket.

    A Lake can be pickled. It opens nothing before it is asked for a table.

    Without a `catalog`, each table is a folder `<namespace>.db/<table>` of the warehouse. With one, the catalog says
    where the Iceberg tables are, and Paimon tables stay folders; `catalog_options={"format": "paimon"}` makes it a
    catalog of Paimon tables, and Iceberg tables stay folders.

    Args:
        uri: A path or a URI, e.g. `/data/warehouse` or `s3://bucket/warehouse`.
        catalog: `"sql"` is a SQL catalog in the file `catalog.sqlite` of the warehouse; a SQLAlchemy URL
            (`sqlite:///...`, `postgresql+psycopg://...`) is a SQL catalog in that database; `https://...` is a REST
            catalog.
        catalog_options: For a SQL catalog `name`, the catalog's name in its database ("default"; "jdbc" for Paimon),
            and for Paimon `lock.enabled`. For a REST catalog `token` or `credential`, `warehouse`, `prefix`, `scope`,
            `oauth2-server-uri`, `view-endpoints-supported` and `header.*`; for Paimon only `token`, `warehouse`,
            `prefix` and `header.*`. With or without a catalog `table-default.<property>`, a property of new tables that
            do not set it: of those that the catalog keeps, and without one of Paimon tables.
        cache_bytes: The size of the lake's cache of decoded manifests and delete files in memory; 0 for none. Each
            Spark worker keeps half as many bytes of delete files between tasks.
        encryption_keys: What opens encrypted Iceberg tables (`encryption.key-id`): master keys by id (AES, 16, 24 or 32
            bytes), for keys wrapped by AES GCM as nonce, ciphertext and tag; or a function of a wrapped key and the id
            of its master key, which asks a KMS and returns the key. Pickling the lake pickles them too. Tasks take the
            keys of their files to Spark's executors.
        allowed_locations: Folders, as absolute paths or URIs. The lake then opens, lists, writes and deletes files only
            in them and in its warehouse, whatever a table's metadata or a catalog names; `OutOfReach` is raised for
            others. None, the default, allows all; see docs/trust.md.
        options: Storage options, e.g. `endpoint`, `region`, `access_key_id`, `secret_access_key` for S3. Options that
            are not given are taken from the environment.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        catalog: str | None = None,
        catalog_options: Mapping[str, str] | None = None,
        cache_bytes: int = CACHE_BYTES,
        encryption_keys: Mapping[str, bytes] | Callable[[bytes, str], bytes] | None = None,
        allowed_locations: Iterable[str | os.PathLike[str]] | None = None,
        **options: str,
    ) -> None:
        self.uri = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
        if not isinstance(self.uri, str):
            raise InvalidInput(f"{uri!r} is not a warehouse; give a path or a URI")
        self._options = dict(options)
        self._allowed = allowed_in(self.uri, allowed_locations)
        self._open = partial(open_store, options=self._options, allowed=self._allowed)
        self._store: Store = self._open(self.uri)
        of_catalog, self._table_defaults = table_defaults(catalog, catalog_options or {})
        self._catalog: Catalog | None = (
            None if catalog is None else open_catalog(catalog, of_catalog, self._store.root, self._allowed)
        )
        if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 0:
            raise InvalidInput(f"cache_bytes={cache_bytes!r}: give a whole number of bytes, 0 or more")
        cache = Cache(cache_bytes)
        self._formats = {name: format(cache) for name, format in FORMATS.items()}
        self._formats["iceberg"] = Iceberg(cache, MasterKeys(encryption_keys))
        self._session = statements.Session()

    def __repr__(self) -> str:
        return f"Lake({self.uri!r})"

    @property
    def allowed_locations(self) -> tuple[str, ...] | None:
        """The folders that the lake keeps to, the warehouse first; None if it goes wherever a table's files lie."""
        return None if self._allowed is None else self._allowed.folders

    def _repr_html_(self) -> str:
        names = [] if missing_folder(self._store) else self.tables()
        rows = ((name, self.table(name).format) for name in names)
        return html.table(repr(self), ("table", "format"), rows)

    def create_table(
        self,
        name: str,
        schema: Any,
        format: str = "paimon",
        partition_by: Iterable[str] = (),
        primary_key: Iterable[str] = (),
        properties: Mapping[str, Any] | None = None,
        comment: str | None = None,
        if_exists: str = "error",
        sort_by: Iterable[str] = (),
        *,
        location: str | None = None,
    ) -> Table:
        """Create an empty table and return it.

        Args:
            name: `namespace.table`.
            schema: A `pyarrow.Schema`, a PySpark `StructType` or a lakeformat `Schema`.
            format: `"paimon"` or `"iceberg"`.
            partition_by: Columns; for Iceberg also transforms of columns, e.g. `"days(ts)"`, `"bucket(16, id)"`.
            primary_key: Paimon's primary key, or Iceberg's identifier fields.
            properties: Table options of the format.
            comment: A comment on the table.
            if_exists: `"error"` raises `AlreadyExists`; `"ignore"` returns the existing table unchanged.
            sort_by: The sort order of the rows in each file, e.g. `"days(ts)"`, `"id DESC NULLS LAST"` (Iceberg).
            location: The folder of a table that a SQL catalog keeps; it may lie outside the warehouse. A Paimon table
                there is external: if one is there already, with these columns, partitions, key and properties, it gets
                this name, and `drop_table` leaves its files.

        Raises `InvalidInput` and `UnsupportedFeature` for a declaration that the format cannot have.
        """
        if if_exists not in {"error", "ignore"}:
            raise InvalidInput(f"if_exists={if_exists!r}: it must be 'error' or 'ignore'")
        _require_format(format)
        self._require_warehouse()
        if existing := self._find(name):
            if if_exists == "ignore":
                return existing
            raise AlreadyExists(
                f"{name}: a table exists already at {existing.uri}; pass if_exists='ignore' to keep it unchanged"
            )
        declaration = (schema, format, partition_by, primary_key, properties, comment, sort_by)
        catalog = self._keeper(format)
        if location is not None and catalog is not None and catalog.names_are_folders:
            external = Table(name, self._open(location), self._formats[format])
            if self._format(external._store) == format:
                declared = _declared(
                    schema,
                    _names("partition_by", partition_by),
                    _names("primary_key", primary_key),
                    properties or {},
                    comment,
                    (),
                )
                _require_alike(name, declared, external)
                return self.register_table(name, external.uri)
        table, declared = self._new(name, *declaration, location)
        try:
            tables.create(table, declared)
        except AlreadyExists as error:
            if if_exists == "error" and catalog is not None and catalog.names_are_folders:
                raise AlreadyExists(f"{error}; register_table({name!r}, {table.uri!r}) gives it its name") from error
            if if_exists == "error":
                raise
        if catalog is not None and catalog.names_are_folders:
            with suppress(AlreadyExists):  # Another writer created it at the same time.
                catalog.register(name, table.uri)
        return self.table(name)  # The catalog chose the location.

    def create_table_as(
        self,
        name: str,
        data: Any,
        schema: Any,
        format: str = "paimon",
        partition_by: Iterable[str] = (),
        primary_key: Iterable[str] = (),
        properties: Mapping[str, Any] | None = None,
        comment: str | None = None,
        sort_by: Iterable[str] = (),
        *,
        location: str | None = None,
        id: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Create a table with the rows of `data`; return the snapshot, or None when there are no rows.

        The rows are written before the table appears. An Iceberg table and its first snapshot appear in one commit. A
        Paimon table, and a table in a REST catalog, is created first and dropped again if the commit of its rows fails.

        The arguments are those of `create_table`; `id` and `snapshot_properties` are the `id` and `properties` of
        `Table.append`. Raises `AlreadyExists`.
        """
        return self.create_table_by(
            name,
            lambda table: table.append(data, id=id, properties=snapshot_properties),
            schema,
            format,
            partition_by,
            primary_key,
            properties,
            comment,
            sort_by,
            location=location,
        )

    def create_table_by(
        self,
        name: str,
        write: Callable[[Table], Snapshot | None],
        schema: Any,
        format: str = "paimon",
        partition_by: Iterable[str] = (),
        primary_key: Iterable[str] = (),
        properties: Mapping[str, Any] | None = None,
        comment: str | None = None,
        sort_by: Iterable[str] = (),
        *,
        location: str | None = None,
    ) -> Snapshot | None:
        """Create a table by its first write; return the snapshot, or None when there are no rows.

        `write` gets the table, which is empty and seen by nobody else, and calls one verb that adds rows, e.g.
        `lambda t: t.upsert(rows)`. What the verb refuses leaves no table behind. How table and rows appear: see
        `create_table_as`. The other arguments are those of `create_table`. Raises `AlreadyExists`.
        """
        _require_format(format)
        self._require_warehouse()
        if there := self._find(name):
            raise AlreadyExists(f"{name}: a table exists already at {there.uri}")
        declaration = (schema, format, partition_by, primary_key, properties, comment, sort_by)
        catalog = self._keeper(format)
        if catalog is None or not (catalog.vends_credentials or catalog.names_are_folders):
            table, declared = self._new(name, *declaration, location)
            return create_by(table, declared, write)
        table = self.create_table(
            name, schema, format, partition_by, primary_key, properties, comment, "error", sort_by, location=location
        )
        try:
            return write(table)
        except CommitUnknown:
            raise
        except BaseException:
            with suppress(LakeError):
                if table.current_snapshot() is None:  # No other writer has committed to it.
                    self.drop_table(name, purge=location is not None)
            raise

    def _new(
        self,
        name: str,
        schema: Any,
        format: str,
        partition_by: Iterable[str],
        primary_key: Iterable[str],
        properties: Mapping[str, Any] | None,
        comment: str | None,
        sort_by: Iterable[str],
        location: str | None,
    ) -> tuple[Table, Schema]:
        """A table that does not exist yet, and its schema."""
        declared = _declared(
            schema,
            _names("partition_by", partition_by),
            _names("primary_key", primary_key),
            properties or {},
            comment,
            _names("sort_by", sort_by),
        )
        if format == ("paimon" if self._catalog is None else self._catalog.format):
            declared = replace(declared, properties={**self._table_defaults, **declared.properties})
        if location is not None and not self.places(format):
            raise UnsupportedFeature(
                f"{name}: location={location!r}: only tables of a SQL catalog take a location; "
                "others are in the warehouse"
            )
        catalog = self._keeper(format)
        if catalog is not None and not catalog.names_are_folders:
            root = self._new_root(name) if location is None else self._free(name, location)
            catalog.create_namespace(name.rpartition(".")[0])
            return Table(name, self._catalogued(catalog, name, TableAccess(root)), self._formats[format]), declared
        store = self._table_store(name) if location is None else self._open(self._free(name, location))
        if self.views.is_there(name):
            raise AlreadyExists(f"{name}: there is a view of that name")
        if said := refers_to_catalog(store):
            raise AlreadyExists(f"{name}: {store.root} {said}")
        if self._format(store) not in (None, format):
            raise AlreadyExists(
                f"{name}: a Paimon table without its line in the catalog lies at {store.root}; "
                f"register_table({name!r}, {store.root!r}) gives it its name, and drop_table then removes it"
            )
        if catalog is not None:
            catalog.create_namespace(name.rpartition(".")[0])
            store = Catalogued(store, catalog.entry(name))
        return Table(name, store, self._formats[format]), declared

    def table(self, name: str) -> Table:
        """Open an existing table. Raises `NotFound`, which suggests similar names."""
        table = self._find(name)
        if table is None:
            self._require_warehouse()
            if self.views.is_there(name):
                raise NotFound(f"no table {name!r} in {self.uri}: {name} is a view, which sql() reads")
            if name.count(".") == 1 and (said := refers_to_catalog(self._table_store(name))):
                raise NotFound(f"no table {name!r} in {self.uri}: its folder {said}")
            if self._catalog is None and (missing := missing_folder(self._store)):
                raise NotFound(f"no table {name!r}: no warehouse at {self.uri}: {missing}; create_table makes it")
            namespace = name.partition(".")[0]
            there = self.tables(namespace) if namespace in self.namespaces() else self.namespaces()
            near = difflib.get_close_matches(name, there, 3) or there[:10]
            shown = f"; there are: {', '.join(near)}" if near else "; nothing lies below it: it is new, or misspelt"
            raise NotFound(f"no table {name!r} in {self.uri}{shown}")
        return table

    def exists(self, name: str) -> bool:
        """Whether the table exists."""
        return self._find(name) is not None

    def namespaces(self) -> list[str]:
        """The names of the namespaces (databases), sorted. Raises `NotFound` for a local folder that does not exist."""
        namespaces = {f.removesuffix(_DATABASE) for f in self._store.folders("") if f.endswith(_DATABASE)}
        if not namespaces:
            self._require_warehouse()
            if self._catalog is None and (said := missing_folder(self._store)):
                raise NotFound(f"no warehouse at {self.uri}: {said}; create_table makes it")
        return sorted(namespaces | set(self._catalog.namespaces() if self._catalog else ()))

    def tables(self, namespace: str | None = None) -> list[str]:
        """The full names of the tables in one namespace or in all, sorted. Raises `NotFound` for a namespace that does
        not exist.

        Folders of Iceberg tables that only a catalog can open are left out and logged.
        """
        namespaces = self.namespaces()
        if namespace is not None and namespace not in namespaces:
            raise NotFound(f"no namespace {namespace!r} in {self.uri}; there are: {', '.join(namespaces) or 'none'}")
        names, unnamed = set(), []
        for database in namespaces if namespace is None else [namespace]:
            if self._catalog:
                names |= set(self._catalog.tables(database))
            folders = [] if "." in database else self._store.folders(f"{database}{_DATABASE}")
            in_folders = [f"{database}.{folder}" for folder in folders if _NAME.fullmatch(folder)]
            stores = [self._table_store(name) for name in in_folders]
            for name, store, format in zip(
                in_folders, stores, several(self._format_of_folder, stores, _LISTING), strict=True
            ):
                if format is not None:
                    names.add(name)
                elif self._catalog is None and refers_to_catalog(store):
                    unnamed.append(store.root)
        if unnamed:
            log.warning(
                "%s: %d folders hold Iceberg tables of a catalog, which are not listed, e.g. %s; "
                "open Lake(..., catalog=...)",
                self.uri,
                len(unnamed),
                unnamed[0],
            )
        return sorted(names)

    @property
    def views(self) -> Views:
        """The views of the catalog: Iceberg views, in a SQL or a REST catalog. `sql` creates and reads them."""
        return Views(self._catalog, self._store.root, self._options)

    @property
    def functions(self) -> Functions:
        """The functions of the catalog, in Paimon's model: in a SQL catalog, or in Paimon's REST catalog. `sql` creates
        and calls them."""
        return Functions(self._catalog)

    def create_namespace(self, name: str) -> None:
        """Create a namespace in the catalog; no error if it exists. In a warehouse without a catalog, the first table
        creates the folder of its namespace."""
        _require_name(f"{name}.table")
        if self._catalog is not None:
            self._catalog.create_namespace(name)

    @property
    def places_tables(self) -> bool:
        """Whether the caller may choose the location of a new Iceberg table; see `places`."""
        return self.places("iceberg")

    def places(self, format: str) -> bool:
        """Whether the caller may choose the location of a new table of the format. True for the tables that a SQL
        catalog keeps; a REST catalog chooses the location itself,
        and without a catalog a table's name is its location."""
        catalog = self._keeper(format)
        return catalog is not None and not catalog.vends_credentials

    def repair(self, *names: str) -> list[str]:
        """Give the Paimon tables in the warehouse's folders their names in the SQL catalog, where it lacks them, e.g.
        those that other engines wrote without it; returns the names (Paimon's `sys.repair`).

        `names` are tables, `namespace.table`, and namespaces; without any, all of the warehouse. Names whose folder is
        gone stay. Raises `NotFound` for a name without a folder, before anything is registered, and
        `UnsupportedFeature` for a warehouse without a SQL catalog of Paimon tables.
        """
        catalog = self._keeper("paimon")
        if catalog is None or not catalog.names_are_folders:
            raise UnsupportedFeature(
                f"{self.uri}: repair gives folders of Paimon tables their names in a SQL catalog of Paimon; "
                "without a catalog the folders are the names, and a server keeps its own"
            )
        folders = [f.removesuffix(_DATABASE) for f in self._store.folders("") if f.endswith(_DATABASE)]
        lacking: list[str] = []
        for name in names or folders:
            _require_name(name if "." in name else f"{name}.table")
            namespace = name.rpartition(".")[0] or name
            inside = [name] if "." in name else [f"{name}.{f}" for f in self._store.folders(f"{name}{_DATABASE}")]
            inside = [table for table in inside if _NAME.fullmatch(table.rpartition(".")[2])]
            paimon_tables = [table for table in inside if self._format(self._table_store(table)) == "paimon"]
            if ("." in name and not paimon_tables) or namespace not in folders:
                raise NotFound(f"{name}: no Paimon table is in {self._store.root}/{namespace}{_DATABASE}")
            known = catalog.tables(namespace)
            lacking += [table for table in paimon_tables if table not in known and table not in lacking]
        for namespace in sorted({name.rpartition(".")[0] or name for name in names or folders}):
            catalog.create_namespace(namespace)
        for table in lacking:
            with suppress(AlreadyExists):  # Another process registered it.
                catalog.register(table, self._table_store(table).root)
        return sorted(lacking)

    @property
    def keeps_properties(self) -> bool:
        """Whether namespaces have properties. True with a catalog, False for folders."""
        return self._catalog is not None

    def namespace_properties(self, name: str) -> dict[str, str]:
        """The properties of a namespace; empty without a catalog. Raises `NotFound`."""
        _require_name(f"{name}.table")
        if name not in (known := self.namespaces()):
            raise NotFound(f"no namespace {name!r} in {self.uri}; there are: {', '.join(known) or 'none'}")
        return {} if self._catalog is None else self._catalog.namespace_properties(name)

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str] = ()) -> None:
        """Set the properties of a namespace, and remove those named in `remove`.

        The property `location` is the folder for new Iceberg tables of the namespace, unless the catalog chooses it.
        Raises `NotFound`, and `UnsupportedFeature` without a catalog: folders have no properties.
        """
        _require_name(f"{name}.table")
        if self._catalog is None:
            raise UnsupportedFeature(
                f"namespace {name}: this warehouse keeps no properties of namespaces; "
                "one with a catalog does: Lake(..., catalog='sql')"
            )
        self.namespace_properties(name)
        self._catalog.create_namespace(name)  # A folder of Paimon tables may not be known to it yet.
        self._catalog.alter_namespace(name, properties, remove)

    def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace. Raises `InvalidInput` if it has tables, views or functions."""
        _require_name(f"{name}.table")
        if name in self.namespaces() and (
            there := [*self.tables(name), *self.views.names(name), *self.functions.names(name)]
        ):
            raise InvalidInput(f"namespace {name!r} holds {', '.join(there[:5])}; drop them first")
        self._store.remove_empty_folders([f"{name}{_DATABASE}"])
        if self._catalog is not None:
            self._catalog.drop_namespace(name)

    def register_table(self, name: str, metadata_location: str) -> Table:
        """Register an existing table in the catalog under `name`.

        Args:
            name: `namespace.table`.
            metadata_location: The newest metadata file of an Iceberg table, which is read first; for a Paimon catalog
                the table's folder. Outside the warehouse of a SQL catalog the table is external:
                `drop_table` leaves its files.

        Raises `AlreadyExists`, `NoSuchFile`, `CorruptTable`, `NotFound` if there is no table, and `UnsupportedFeature`
        for an unknown format version.
        """
        if self._catalog is None:
            raise InvalidInput(f"{self.uri} has no catalog to register {name!r} in; open Lake(..., catalog='sql')")
        if there := self._find(name):
            raise AlreadyExists(f"{name}: a table exists already at {there.uri}")
        if self._catalog.format == "paimon":
            if self._format(self._open(metadata_location)) != "paimon":
                raise NotFound(f"{name}: no Paimon table is in {metadata_location}; give its folder")
            self._catalog.create_namespace(name.rpartition(".")[0])
            folder = self._open(metadata_location).root
            self._catalog.register(name, folder if self._catalog.names_are_folders else metadata_location)
            return self.table(name)
        try:
            metadata_location, _ = read_root(metadata_location, self._options, self._allowed)
        except StoreError as error:
            if isinstance(error, NoSuchFile) or not self._catalog.vends_credentials:
                raise
        self._catalog.create_namespace(name.rpartition(".")[0])
        self._catalog.register(name, metadata_location)
        return self.table(name)

    def snapshot_table(
        self,
        folder: str,
        name: str,
        *,
        schema: pa.Schema | None = None,
        properties: Mapping[str, Any] | None = None,
        spark: Any = None,
    ) -> Table:
        """Create the Iceberg table `name` over the Parquet files of a folder, without moving them: a way to try Iceberg
        on existing data.

        All files are added in one snapshot. Folders `column=value` become partitions; their values are integers, dates
        or text unless `schema` gives another type. The table has `gc.enabled=false`, so none of its operations deletes
        a file of the folder; files it writes lie in its own folder.

        Raises as `Table.add_files` does, and `UnsupportedFeature` for files of other formats. No table is left behind
        after an error.
        """
        described = self._looked_at(self._open(folder), name, schema, properties)
        asked = {**(properties or {}), "gc.enabled": "false", "snapshot": "true"}
        table = self.create_table(name, described.schema, "iceberg", described.partition_by, properties=asked)
        table.add_files(described.paths, spark=spark)
        return table

    def migrate_table(
        self,
        name: str,
        *,
        schema: pa.Schema | None = None,
        properties: Mapping[str, Any] | None = None,
        spark: Any = None,
    ) -> Table:
        """Turn a folder of Parquet files into an Iceberg table of the same name, in one snapshot.

        The folder is `<namespace>.db/<table>` of the warehouse. Metadata is written beside the data files, which stay
        unchanged and readable as a folder until compaction and expiry remove them. Otherwise as `snapshot_table`.
        """
        _require_name(name)
        if there := self._find(name):
            raise AlreadyExists(f"{name}: a table exists already at {there.uri}")
        store = self._table_store(name)
        folder = self._looked_at(store, name, schema, properties)
        declared = _declared(
            folder.schema, folder.partition_by, (), {**(properties or {}), "migrated": "true"}, None, ()
        )
        if (catalog := self._keeper("iceberg")) is not None:
            catalog.create_namespace(name.rpartition(".")[0])
            store = self._catalogued(catalog, name, TableAccess(store.root))
        tables.create(Table(name, store, self._formats["iceberg"]), declared)
        table = self.table(name)
        table.add_files(folder.paths, spark=spark)
        return table

    def snapshot_spark_table(
        self,
        spark: Any,
        source: str,
        name: str,
        *,
        location: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Table:
        """Create the Iceberg table `name` over the Parquet files of a table of Spark's own catalog, in one commit: a
        way to try Iceberg on existing data. The source stays as it is, and both may be written from then on: what one
        writes is not seen by the other.

        The columns, partitions, comment and properties are those of the source, with `properties` besides. The table
        has `gc.enabled=false`, so none of its operations deletes a file of the source.

        Args:
            spark: The session whose catalog has the source.
            source: `namespace.table` of that catalog.
            name: The new table, `namespace.table`.
            location: Its folder, in a SQL catalog, as in `create_table`; not the source's.
            properties: Table options.

        Raises as `Table.add_files` does, and `NotFound`, `AlreadyExists`, and `UnsupportedFeature` for files of other
        formats. Nothing is written after an error.
        """
        described = spark_engine.session_tables.describe(spark, source)
        own = {"gc.enabled": "false", "snapshot": "true"}
        files = spark_engine.session_tables.files(spark, described, {})
        table, adoptable = self._over(spark, described, name, files, properties, own, location)
        inside = (paths.relative(described.location, table.uri), paths.relative(table.uri, described.location))
        if any(path is not None for path in inside):
            raise InvalidInput(
                f"{name}: of its folder {table.uri} and that of {described.name}, {described.location}, one "
                "contains the other; give another location"
            )
        return self._created_over(spark, table, adoptable, files)

    def migrate_spark_table(
        self,
        spark: Any,
        source: str,
        name: str | None = None,
        *,
        properties: Mapping[str, Any] | None = None,
        drop_backup: bool = False,
        backup_name: str | None = None,
    ) -> Table:
        """Turn a table of Spark's own catalog with Parquet files into an Iceberg table of this lake, in one commit.

        First the source is renamed in Spark's catalog, so that nobody writes to it any more; it stays there as a backup
        that reads the same files. After an error it gets its name back. In a SQL catalog the new table lies at the
        source's location and owns the files from then on; elsewhere its metadata lie in the warehouse, and it names
        the files by absolute paths, of which none of its operations deletes any.

        Args:
            spark: The session whose catalog has the source.
            source: `namespace.table` of that catalog.
            name: The new table; by default the source's name.
            properties: Table options, beside those of the source.
            drop_backup: Drop the backup from Spark's catalog in the end; its files stay.
            backup_name: The backup's name in the source's namespace, by default `<table>_BACKUP_`.

        Raises as `snapshot_spark_table` does, and `UnsupportedFeature` for a managed table of Spark's: renaming it
        would move its files, and dropping it delete them.
        """
        described = spark_engine.session_tables.describe(spark, source)
        if described.is_managed:
            raise UnsupportedFeature(
                f"{described.name} is a managed table: Spark moves its files when it is renamed to a backup, and "
                "deletes them when that is dropped; copy it with import_spark_table, "
                "or make it one with a LOCATION first"
            )
        name = name or described.name
        location = described.location if self.places_tables else None
        files = spark_engine.session_tables.files(spark, described, {})
        table, adoptable = self._over(spark, described, name, files, properties, {"migrated": "true"}, location)
        backup = spark_engine.session_tables.rename(spark, described, backup_name or f"{described.path[-1]}_BACKUP_")
        try:
            latest = spark_engine.session_tables.files(spark, backup, {})
            if latest != files:  # Written before it got its other name.
                table, adoptable = self._over(spark, backup, name, latest, properties, {"migrated": "true"}, location)
            created = self._created_over(spark, table, adoptable, latest)
        except CommitUnknown as error:
            raise CommitUnknown(
                f"{error}. If there is no table {name}, give the source its name back: "
                f"it is {backup.name} in Spark's catalog"
            ) from error
        except BaseException as error:
            try:
                spark_engine.session_tables.rename(spark, backup, described.path[-1])
            except LakeError as second:
                raise LakeError(
                    f"{error}; and the source is still {backup.name} in Spark's catalog: {second}"
                ) from error
            raise
        if drop_backup:
            spark_engine.session_tables.drop(spark, backup)
        return created

    def import_spark_table(
        self,
        spark: Any,
        source: str,
        name: str | None = None,
        format: str = "paimon",
        *,
        properties: Mapping[str, Any] | None = None,
        drop_source: bool = False,
    ) -> Table:
        """Copy a table of Spark's own catalog, of any file format that Spark reads, to a new table without a key.

        Columns, partitions and comments are those of the source. Spark compares the rows of both by count and by a
        checksum (without maps and variants); where they differ, the new table is dropped again. Stop writers of a
        source that is to be dropped: what they write after the comparison goes with it.

        Args:
            spark: The session whose catalog has the source, and which copies the rows.
            source: `namespace.table` of that catalog.
            name: The new table; by default the source's name.
            format: `"paimon"` or `"iceberg"`.
            properties: Table options.
            drop_source: Drop the source from Spark's catalog in the end.
                Spark then deletes the files of a managed table.

        Raises `NotFound`, `AlreadyExists`, and `LakeError` for rows that differ, e.g. because others wrote to the
        source meanwhile.
        """
        described = spark_engine.session_tables.describe(spark, source)
        name = name or described.name
        schema = Schema(described.fields, comment=described.comment)
        snapshot = self.create_table_as(
            name,
            spark_engine.session_tables.rows(spark, described),
            schema,
            format,
            described.partition_by,
            properties=properties,
        )
        table = self.table(name)
        try:
            rows = table.scan(snapshot_id=snapshot.id if snapshot else None).to_spark(spark)
            source_sum, copy_sum = (
                spark_engine.session_tables.checksum(frame)
                for frame in (spark_engine.session_tables.rows(spark, described), rows)
            )
            if source_sum != copy_sum:
                raise LakeError(
                    f"{name}: not copied: {described.name} has {source_sum[0]:,} rows, the copy {copy_sum[0]:,}, or "
                    "their checksums differ: it may have been written to at the same time; try again"
                )
        except BaseException:
            with suppress(LakeError):
                current = table.current_snapshot()
                if (current and current.id) == (snapshot and snapshot.id):  # No other writer has committed to it.
                    self.drop_table(name, purge=True)
            raise
        log.info("%s: %d rows copied from %s, checksum %d", name, copy_sum[0], described.name, copy_sum[1])
        if drop_source:
            spark_engine.session_tables.drop(spark, described)
        return table

    def _over(
        self,
        spark: Any,
        source: SessionTable,
        name: str,
        files: SessionFiles,
        properties: Mapping[str, Any] | None,
        location_properties: Mapping[str, str],
        location: str | None,
    ) -> tuple[Table, Adoptable]:
        """An Iceberg table that does not exist yet, and the files of a table of Spark's as its files."""
        require_parquet(source)
        self._require_warehouse()
        if there := self._find(name):
            raise AlreadyExists(f"{name}: a table exists already at {there.uri}")
        table_properties = {key: value for key, value in source.properties.items() if key not in _OF_SPARK}
        table_properties |= {**(properties or {}), **location_properties}
        schema = Schema(source.fields)
        table, declared = self._new(
            name, schema, "iceberg", source.partition_by, (), table_properties, source.comment, (), location
        )
        return table, adopting.inspect(table, declared, files, spark)

    def _created_over(self, spark: Any, table: Table, adoptable: Adoptable, files: SessionFiles) -> Table:
        """The table, created over the files."""
        catalog = self._keeper("iceberg")
        if catalog is None or not catalog.vends_credentials:
            adopting.create_over(table, adoptable)
            return self.table(table.name)
        tables.create(table, adoptable.schema)  # The catalog chooses the location.
        created = self.table(table.name)
        try:
            created.add_files(files.paths, files.partitions, spark=spark)
        except CommitUnknown:
            raise
        except BaseException:
            with suppress(LakeError):
                catalog.drop(table.name)
            raise
        return created

    def _looked_at(
        self, store: Store, name: str, schema: pa.Schema | None, properties: Mapping[str, Any] | None
    ) -> HiveFolder:
        """The files and columns of a folder. All files are first added to a table in memory, so that a file that does
        not fit is found before anything is written."""
        folder = look(store, schema)
        twin = Table(name, Rehearsal(store), self._formats["iceberg"])
        tables.create(twin, _declared(folder.schema, folder.partition_by, (), properties or {}, None, ()))
        twin.add_files(folder.paths)
        return folder

    def load_files(
        self,
        name: str | Table,
        source: str,
        format: str,
        options: Mapping[str, Any] | None = None,
        *,
        columns: Sequence[str] | None = None,
        pattern: str | None = None,
        force: bool = False,
        on_error: str = "abort_statement",
        folders: Sequence[str] | None = None,
        spark: Any = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> loading.Load:
        """Append the rows of CSV, JSON or Parquet files to a table, in one commit: `COPY INTO table` of SQL. See
        docs/writing.md.

        A file that was loaded before (its path, size and time of modification tell) is skipped, also after a crash.
        The record of loaded files is Paimon's, beside the table; a rollback of the table does not change it.

        Args:
            name: The table.
            source: A folder, of which the files directly in it are loaded, or a file. Names that begin with `_` or `.`
                are left out.
            format: `"csv"`, `"json"` (an object per line) or `"parquet"`.
            options: The options that `FILE_FORMAT` of `COPY INTO` has, by their names there, e.g. `{"SKIP_HEADER": 1}`.
            columns: The columns that the files give; CSV by position, the others by name. Others get their default or
                null. By default all columns.
            pattern: A regular expression that is found in the names of the files to load.
            force: Load files again that were loaded before.
            on_error: For a row that does not fit: `"abort_statement"` raises, `"continue"` leaves it out,
                `"skip_file"` leaves its file out.
            folders: The folders in which the files must lie, links followed; by default they may lie anywhere.
            spark: A Spark session whose tasks read the files, one each.
            id: Makes the verb exactly-once.
            properties: Written into the snapshot.

        Raises `InvalidInput` with the file, row and column; nothing is loaded then. `NotFound` if there is no file.
        """
        if on_error not in loading.ON_ERROR:
            raise InvalidInput(f"on_error={on_error!r}: it is one of {', '.join(loading.ON_ERROR)}")
        file_layout = layout(format, options or {})
        store, file = self._exchanged(source)
        opened = name if isinstance(name, Table) else self.table(name)
        return loading.load(
            opened, store, file, pattern, folders, file_layout, columns, force, on_error, spark, id, properties
        )

    def export_files(
        self,
        data: Any,
        folder: str,
        format: str,
        options: Mapping[str, Any] | None = None,
        *,
        overwrite: bool = False,
    ) -> loading.Export:
        """Write rows to CSV, JSON or Parquet files of a folder: `COPY INTO 'folder'` of SQL. See docs/writing.md.

        Args:
            data: A scan, a table, or any data that `Table.append` takes. Spark's frames are written by its tasks.
            folder: The folder; it must hold no files, unless `overwrite`.
            format: `"csv"`, `"json"` (an object per line, without nulls) or `"parquet"`.
            options: The options that `FILE_FORMAT` of `COPY INTO` has, by their names there, e.g. `{"HEADER": True}`.
            overwrite: Delete the files directly in the folder once the new ones are written.

        Raises `AlreadyExists`, `InvalidInput` for a folder of the warehouse or of a table, and `UnsupportedFeature` for
        columns that the format cannot spell. No new file is left behind then.
        """
        file_layout = layout(format, options or {}, exports=True)
        store, _ = self._exchanged(folder, is_folder=True)
        roots = [real(self._store.root), real(store.root)]
        if any(paths.relative(a, b) is not None for a, b in (roots, roots[::-1])) or self._format(store) is not None:
            raise InvalidInput(
                f"{folder} is a place of tables; export into a folder outside of the warehouse {self.uri}"
            )
        return loading.export(store, data, file_layout, overwrite)

    def _exchanged(self, address: str, is_folder: bool = False) -> tuple[Store, str]:
        """The store of a folder, or of a file's folder and the file's name;
        with the lake's options where they are of its service."""
        if not isinstance(address, str) or not address:
            raise InvalidInput(f"{address!r} is not a folder; give a path or a URI")
        if self._allowed is not None:
            self._allowed.require(address, address)
        same = paths.family(paths.scheme_of(address) or "file") == paths.family(paths.scheme_of(self._store.root))
        options = self._options if same else {}
        folder, _, file = address.rstrip("/").rpartition("/")
        if not is_folder and file and not address.endswith("/"):
            store = open_store(folder or "/", options)  # Of that file alone.
            if store.exists(file):
                return store, file
        return open_store(address, options, None, self._allowed), ""

    def convert(self, name: str, to: str, history: bool = False, spark: Any = None) -> Table:
        """Convert the table to the other format in place; its name and location stay.

        Data files are kept, except those that the other format cannot represent, which are rewritten. Both formats'
        rows are compared by count and checksum before the switch, which is atomic. Interrupted at any point, the table
        is complete in one of the formats, and the same call resumes. Writers that still use the old format fail after
        the switch.

        Args:
            name: The table.
            to: `"paimon"` or `"iceberg"`.
            history: Keep all snapshots and tags readable; otherwise only the newest snapshot.
            spark: A Spark session that rewrites files.

        Raises `UnsupportedFeature` for what the other format cannot represent; nothing has changed then.
        """
        table = self._convertible(name, to)
        self._convert(table, table._store, to, history, spark)
        return self.table(name)

    def rehearse_convert(self, name: str, to: str, history: bool = False) -> tuple[Table, Rehearsal]:
        """The table as `convert` would leave it, and a record of the files that it would write and delete.

        Rows are compared as in `convert`. Nothing is changed: data files that would be rewritten are in memory whole.
        Raises what `convert` raises.
        """
        table = self._convertible(name, to)
        _, record = table.dry_run()
        self._convert(table, record, to, history, None)
        return Table(table.name, record, self._formats[to]), record

    def _convertible(self, name: str, to: str) -> Table:
        _require_format(to)
        table = self.table(name)
        if isinstance(table._store, Catalogued) or self._catalog is not None:
            raise UnsupportedFeature(
                f"{name}: tables of a warehouse with a catalog are not converted in place: copy it (lakeformat "
                f"copy {name} ... --format {to})"
            )
        return table

    def _convert(self, table: Table, store: Store, to: str, history: bool, spark: Any) -> None:
        if table.format == to:
            former = next(other for name, other in self._formats.items() if name != to)
            convert.finish(store, former, table._format, spark)
        else:
            convert.convert(store, table._format, self._formats[to], history, spark)

    def register(self, spark: Any, name: str = "lakeformat") -> None:
        """Register this warehouse with a Spark session as the data source `name`. See docs/spark.md.

        `spark.read.format("lakeformat").load("db.t")` reads the newest rows. The options `snapshot`, `tag`, `as_of` and
        `branch` select others; `from_snapshot` (and `to_snapshot`) reads changes, with their kinds in `_row_kind`.
        `table.scan().to_spark(spark)` is faster.

        `spark.readStream` streams the current rows and then the changes, or with `from_snapshot` only the changes after
        it; `maxFilesPerTrigger` and `maxRowsPerTrigger` limit a batch.

        `frame.write.format("lakeformat").mode("append").save("db.t")` appends; mode("overwrite") on a partitioned table
        needs `partitionOverwriteMode` "static" or "dynamic".

        `frame.writeStream.format("lakeformat").option("table", "db.t").option("user", "job")`, with a checkpoint
        location, commits each batch exactly once under `user`, which must be unique to the stream (see `Table.stream`).
        """
        spark_engine.register(spark, name, TablesByOptions(self))

    def attach(self, spark: Any, tables: Sequence[str] | None = None, pack: str | None = None) -> list[str]:
        """Make a Spark session able to run lakeformat, and make tables readable by name in it: `spark.sql("SELECT *
        FROM nyc.flights")`, `spark.table("nyc.flights")`.

        One task checks what the workers have installed. Workers without lakeformat, or with another version, get our
        code; with `pack="auto"` they also get the packages it needs, as this process has them.
        `spark.sql.python.filterPushdown.enabled` is switched on.

        Each query reads the newest snapshot. The columns and the list of tables are fixed by this call: attach again
        after they change; a column that was dropped or has another type since then is an error. Spark reads all columns
        of such a table, whereas `sql(text, spark)` reads only those that the query needs. The tables are read-only.

        Args:
            spark: The session.
            tables: The tables; all by default.
            pack: `"auto"`, or an archive made by `lakeformat.engines.spark.pack_packages()`.

        Returns:
            The names of the tables.

        Raises `UnsupportedFeature` if workers lack a package or run another minor version of Python, or for a name that
        Spark cannot have, and `AlreadyExists` for a name that Spark's catalog has.
        """
        require_spark(spark)
        if tables is not None and (isinstance(tables, str) or not all(isinstance(table, str) for table in tables)):
            raise InvalidInput(f"tables={tables!r}: give a list of names, e.g. ['shop.orders']")
        names = [self.table(table).name for table in tables] if tables is not None else self.tables()
        spark_engine.ready(spark, pack)
        spark_engine.push_filters(spark)
        self.register(spark)  # USING lakeformat then raises an error that says what to do instead.
        for name in names:
            spark_engine.attach(spark, name, self._store.root, partial(_current, self, name))
        return names

    def sql(
        self,
        text: str,
        spark: Any = None,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        id: str | None = None,
        properties: Mapping[str, str] | None = None,
        folders: Sequence[str] = (),
        **frames: Any,
    ) -> statements.Result:
        """Run Spark SQL: one statement, or several separated by `;`. Returns the result of the last one. See
        docs/sql.md.

        Queries run in this process on DuckDB (`pip install 'lakeformat[duckdb]'`); with `spark` the text is passed to
        Spark unchanged. A statement that writes is one commit, and its result is one row of the snapshot's metrics.
        Names without a namespace are resolved in the namespace of the last USE, or in `default`.

        Args:
            text: The statements.
            spark: The session that runs queries.
            params: Values for `:name` (a mapping) or `?` (a list).
            id: Makes a statement that writes run exactly once, as in `Table`.
            properties: Written into the snapshot.
            folders: The folders (paths or URIs) whose files `COPY INTO` may read and write; by default none.
            frames: Arrow, pandas, polars or Spark frames that the text may name beside the tables.

        Raises `InvalidInput` and `UnsupportedFeature` with line and column.
        """
        results = statements.run(self, self._session, text, spark, params, id, properties, frames, folders)
        return deque(results, maxlen=1).pop()

    def sql_script(
        self,
        text: str,
        spark: Any = None,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        folders: Sequence[str] = (),
        **frames: Any,
    ) -> Iterator[statements.Result]:
        """As `sql`, with the result of every statement: each runs when its result is requested."""
        return statements.run(self, self._session, text, spark, params, None, None, frames, folders)

    def rename_table(self, old: str, new: str) -> Table:
        """Rename a table, also into another namespace; returns it under its new name.

        In a catalog the files stay where they are; Paimon's JDBC catalog moves them. Without a catalog, only Paimon
        tables on local storage can be renamed: a rename on object storage is not atomic, and an Iceberg table refers to
        its files by absolute paths.
        """
        table = self.table(old)
        if there := self._find(new):
            raise AlreadyExists(f"{new}: a table exists already at {there.uri}")
        catalog = self._catalog if isinstance(table._store, Catalogued) else None
        if catalog is not None:
            catalog.create_namespace(new.rpartition(".")[0])
        access = None if catalog is None else catalog.find(old, self._options)
        if catalog is not None and (not catalog.names_are_folders or (access is not None and access.is_external)):
            catalog.rename(old, new)
            return self.table(new)
        if not table._format.is_movable:
            raise UnsupportedFeature(
                f"{old}: an {table.format} table names its files by absolute paths and cannot move; write its rows "
                "to a new table, or keep Iceberg tables in a catalog"
            )
        if any(map(paths.is_absolute, table._view().files().paths.to_pylist())):
            raise UnsupportedFeature(
                f"{old}: its metadata names data files by absolute paths, as those of a converted table, and cannot "
                "move; write its rows to a new table"
            )
        beside = mirror.find(table._store, table._format)
        if catalog is None:
            self._store.move_folder(_folder(old), _folder(new))
        else:
            catalog.rename(old, new)
        moved = self.table(new)
        if beside is not None:  # It names files by absolute paths, and has moved along or lies beside.
            inside = beside.root == table._store.root
            mirror.remove(moved._store, replace(beside, root=moved._store.root) if inside else beside)
        mirror.after(moved._store, moved._format)
        return moved

    def drop_table(self, name: str, if_exists: bool = False, purge: bool = False) -> None:
        """Drop a table. Raises `NotFound`, unless `if_exists`.

        Without a catalog the files are deleted, and so are those of a table in Paimon's SQL catalog unless it is
        external (`location`) and `purge` is false. With another catalog only the name is dropped, unless `purge`: then
        the files below the table's location that its metadata reaches, and those named as engines name files, are
        deleted first. Other files and other tables stay: tables that share the location are named by `InvalidInput`,
        and nothing is deleted. An interrupted drop can be repeated; until then readers may find files missing.
        """
        _require_name(name)
        if self._catalog is not None and self._catalog.names_are_folders:
            access = self._catalog.find(name, self._options)
            table = self._find(name)
            if access is not None and table is not None:
                if purge or not access.is_external:
                    self._remove_files(table)
                self._catalog.drop(name)  # Last, so that an interrupted drop can be repeated.
                return
        elif self._catalog is not None:
            try:
                self._purge(self._catalog, name) if purge else self._catalog.drop(name)
                return
            except NotFound:
                if name.count(".") > 1 and not if_exists:
                    raise
        if if_exists and not self.exists(name):
            return
        table = self.table(name)
        store = table._store
        if (catalog := self._keeper("iceberg")) is not None:
            _require_alone(name, catalog.entry(name).sharers(store))
        if not purge and (there := iceberg.documents_of_catalogs(store)) and not mirror.is_shown(store, table._format):
            raise InvalidInput(
                f"{name}: a catalog has a table at {store.root} too ({METADATA_FOLDER}/{there[-1]}); drop it there "
                "first, and then this one with purge=True, which removes these files as well"
            )
        self._remove_files(table)

    def _remove_files(self, table: Table, forget: Callable[[], None] | None = None) -> None:
        mirror.forget(table._store, table._format)
        store = table._store
        # Then it goes by its files' names.
        with suppress(NoSuchFile, NotFound, OutOfReach, CorruptFile, CorruptTable, UnsupportedFeature):
            store = table._runner.reach(table._view())
        drop(store, table._format, forget)
        fence.forget(store)
        if folder := paths.relative(self._store.root, table.uri):
            self._store.remove_empty_folders([folder])

    def _purge(self, catalog: Catalog, name: str) -> None:
        """Delete the files of a catalog's table, and its name. Raises `NotFound`."""
        try:
            entry = catalog.find(name, self._options)
        except NoSuchFile as error:
            log.warning("%s: %s; which files the table had is unknown: none is deleted", name, error)
            catalog.drop(name)
            return
        if entry is None:
            raise NotFound(f"no table {name!r} in {self.uri}")
        if entry.guard:
            catalog.drop(name)  # The server removes the files.
            return
        store = self._catalogued(catalog, name, entry)
        table = Table(name, store, self._formats[catalog.format])
        if table.properties.get("gc.enabled", "true").strip().lower() == "false":
            raise UnsupportedFeature(f"{name}: gc.enabled=false: others use this table's files; drop it without purge")
        _require_alone(name, catalog.entry(name).sharers(store))
        if iceberg.is_table(files_of(store)):
            raise InvalidInput(
                f"{name}: the folder {store.root} is a table without a catalog too (v<N>.metadata.json); drop {name} "
                "without purge, and then that table from its own warehouse"
            )
        self._remove_files(table, partial(catalog.drop, name))

    def _find(self, name: str) -> Table | None:
        _require_name(name)
        if self._catalog is not None and (access := self._catalog.find(name, self._options)):
            return Table(name, self._catalogued(self._catalog, name, access), self._formats[self._catalog.format])
        if self._catalog is not None and name.count(".") > 1:
            return None  # Of namespaces inside others there are no folders.
        store = self._table_store(name)
        format = self._format_of_folder(store)
        return None if format is None else Table(name, store, self._formats[format])

    def _catalogued(self, catalog: Catalog, name: str, access: TableAccess) -> Store:
        store = open_store(access.root, {**self._options, **access.options}, access.lease, self._allowed, name)
        return Catalogued(access.guard(store) if access.guard else store, access.entry or catalog.entry(name))

    def _new_root(self, name: str) -> str:
        """The location for a new table of the catalog: a folder that no other table uses, not even one that was
        renamed."""
        namespace, _, table = name.rpartition(".")
        below = self._catalog.location_of(namespace) if self._catalog is not None else None
        store = self._store if below is None else self._open(below, named_by=name)
        folder = f"{namespace}{_DATABASE}/{table}" if below is None else table
        is_used = store.names(f"{folder}/metadata") or store.folders(folder)
        return f"{store.root}/{folder}{f'-{uuid.uuid4()}' if is_used else ''}"

    def _free(self, name: str, location: str) -> str:
        """The folder `location`. Raises where another table is in it."""
        if not isinstance(location, str) or not paths.is_absolute(location):
            raise InvalidInput(
                f"{name}: location={location!r}: give an absolute path, or an address such as s3://bucket/folder"
            )
        store = self._open(location)
        if self._format(store) is not None or store.names("metadata"):
            raise AlreadyExists(f"{name}: there is a table at {store.root} already; give this one a folder of its own")
        return store.root

    def _table_store(self, name: str) -> Store:
        return self._open(f"{self._store.root}/{_folder(name)}")

    def _require_warehouse(self) -> None:
        if self._format(self._store) is not None:
            raise InvalidInput(
                f"{self.uri} is a table, not a warehouse; open the folder two above it, and then the table by name, or "
                "read it by lakeformat.open_table"
            )
        holds_namespaces = any(folder.endswith(_DATABASE) for folder in self._store.folders(""))
        if self._catalog is None and not holds_namespaces and (said := refers_to_catalog(self._store)):
            raise InvalidInput(f"{self.uri} is a table, not a warehouse: it {said}")

    def _keeper(self, format: str) -> Catalog | None:
        """The catalog, if it keeps tables of that format."""
        return self._catalog if self._catalog is not None and self._catalog.format == format else None

    def _format_of_folder(self, store: Store) -> str | None:
        """The format of a table that is a folder without a catalog entry. Where the catalog's names are folders, a
        folder without an entry is no table: its creation or its drop was not finished."""
        format = self._format(store)
        catalog = None if format is None else self._keeper(format)
        return None if catalog is not None and catalog.names_are_folders else format

    def _format(self, store: Store) -> str | None:
        return next((format for format, reader in self._formats.items() if reader.is_table(store)), None)


def _current(lake: Lake, name: str) -> Reading:
    """What Spark reads of an attached table: its newest snapshot."""
    return Reading(lake.table(name).scan())


def _require_alone(name: str, others: Sequence[str]) -> None:
    if others:
        raise InvalidInput(
            f"{name} shares its location with {', '.join(others)}: its files are not removed; "
            "drop the name without purge"
        )


def _require_format(format: str) -> None:
    if format not in FORMATS:
        raise UnsupportedFeature(f"format={format!r}: lakeformat makes tables of {', '.join(FORMATS)}")


def _require_name(name: str) -> None:
    """Raise `InvalidInput` unless the text is `namespace.table`. A catalog's namespace may contain dots."""
    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) < 2 or not all(_NAME.fullmatch(p) for p in parts):
        raise InvalidInput(
            f"{name!r} is not a table name: write 'namespace.table', each part without slashes, dots, "
            "spaces or control characters"
        )


def _folder(name: str) -> str:
    """The folder of `namespace.table` below the warehouse. Raises `InvalidInput` for an invalid name."""
    _require_name(name)
    namespace, _, table = name.rpartition(".")
    if "." in namespace:
        raise InvalidInput(
            f"{name!r} is not a table name here: write 'namespace.table'; only a catalog has namespaces inside others"
        )
    return f"{namespace}{_DATABASE}/{table}"


def _declared(
    schema: Any,
    partition_by: tuple[str, ...],
    primary_key: tuple[str, ...],
    properties: Mapping[str, Any],
    comment: str | None,
    sort_by: tuple[str, ...],
) -> Schema:
    if not isinstance(properties, Mapping) or not all(isinstance(key, str) for key in properties):
        raise InvalidInput(f"properties={properties!r}: give a mapping of option names to values")
    if comment is not None and not isinstance(comment, str):
        raise InvalidInput(f"comment={comment!r}: it must be text")
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in properties.items()}
    fields = schema.fields if isinstance(schema, Schema) else _fields(schema)
    parsed = (parse_field(p) for p in partition_by)
    named = (replace(field, source=spelled(fields, field.source)) for field in parsed)
    partitioning = Partitioning(tuple(parse_field(str(field)) for field in named))  # Which is named after its source.
    primary_key = tuple(spelled(fields, name) for name in primary_key)
    order = SortOrder(parse(sort_by, fields, "sort_by"))
    if isinstance(schema, Schema):
        return Schema(
            fields=fields,
            partitioning=partitioning or schema.partitioning,
            primary_key=primary_key or schema.primary_key,
            properties={**schema.properties, **texts},
            comment=comment if comment is not None else schema.comment,
            sort_order=order or schema.sort_order,
        )
    return Schema(fields, partitioning, primary_key, texts, comment, sort_order=order)


def _require_alike(name: str, declared: Schema, table: Table) -> None:
    """Raise `InvalidInput` if an existing table is not as declared; it may have more properties."""
    schema = table.schema
    pairs = {
        "columns": tuple(tuple((f.name, str(f.type)) for f in of.fields) for of in (declared, schema)),
        "partitions": (declared.partitioning.names, schema.partitioning.names),
        "primary key": (declared.primary_key, schema.primary_key),
        **{f"property {key!r}": (value, schema.properties.get(key)) for key, value in declared.properties.items()},
    }
    for label, (declared_value, table_value) in pairs.items():
        if declared_value != table_value:
            raise InvalidInput(
                f"{name}: {label} {declared_value!r} of the declaration, and {table_value!r} of the table that is at "
                f"{table.uri} already; register_table, or CREATE TABLE ... LOCATION without columns, takes it as it is"
            )


def _fields(schema: Any) -> tuple[Field, ...]:
    if isinstance(schema, pa.Schema):
        return fields_from_arrow(schema)
    if is_spark(schema) and type(schema).__name__ == "StructType":
        return spark_engine.fields_from_spark(schema)
    if isinstance(schema, tuple | list) and all(isinstance(f, Field) for f in schema):
        return tuple(schema)
    if hasattr(schema, "__arrow_c_schema__"):
        return fields_from_arrow(pa.schema(schema))
    raise InvalidInput(
        f"schema is a {type(schema).__name__}; give a pyarrow.Schema, a PySpark StructType or a lakeformat Schema"
        + ("; rows are written afterwards, with append: give their .schema here" if hasattr(schema, "schema") else "")
    )


def _names(label: str, names: Iterable[str]) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in listed):
        raise InvalidInput(f"{label}={names!r}: give names of columns")
    return listed
