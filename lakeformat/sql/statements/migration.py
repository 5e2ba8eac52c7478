"""CALL of the procedures that make tables of existing files, and of tables in Spark's own catalog."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeformat.engines.choose import spark_engine
from lakeformat.errors import LakeError, NotFound
from lakeformat.model.snapshot import Snapshot
from lakeformat.sql import names
from lakeformat.sql.result import Result, listing
from lakeformat.storage.allowed import allowed_in
from lakeformat.storage.files import open_store

if TYPE_CHECKING:
    from lakeformat.sql.statements.call import Call

_OF_SPARK = "spark_catalog"
_FOLDER = re.compile(r"`?parquet`?\.`([^`]+)`", re.IGNORECASE)
_HIVE = "hive"  # The source type for tables of Spark's own catalog, which may be a Hive metastore's.


def add_files(call: Call) -> Result:
    """Add the Parquet files of a folder, source_table => '`parquet`.`path`', or of a table of Spark's."""
    table, source = call.table(), str(call.need("source_table"))
    partition_filter = {str(name): value for name, value in (call.take("partition_filter") or {}).items()}
    check = bool(call.take("check_duplicate_files", True))
    call.close(("parallelism",))
    if (folder := _folder(source)) is None:
        spark, name = _of_spark(call, source)
        made = table.add_spark_table(spark, name, partition_filter, check, **call.context.verb)
        return _added(made)
    chosen_folders = {f"{name}={value}" for name, value in partition_filter.items()}
    lake = call.context.lake
    store = open_store(folder, {}, None, allowed_in(lake.uri, lake.allowed_locations))
    listed = [file.path for file in store.list("") if file.path.lower().endswith((".parquet", ".parq"))]
    chosen = [store.location(path) for path in listed if chosen_folders <= set(path.split("/"))]
    if not chosen:
        raise call.context.script.invalid(call.offset, f"{call.name}: no Parquet files in {folder}")
    return _added(table.add_files(chosen, check_duplicate_files=check, spark=call.context.spark, **call.context.verb))


def snapshot(call: Call) -> Result:
    """Create a table from the Parquet files of a folder, source_table => '`parquet`.`path`', or of a table of
    Spark's."""
    source, name = str(call.need("source_table")), _target(call, str(call.need("table")))
    location, properties = call.take("location"), call.mapping("properties")
    lake = call.context.lake
    if (folder := _folder(source)) is not None:
        if location is not None:
            raise call.context.script.unsupported(
                call.offset, f"{call.name}(location => ...) of a folder: the table lies in the warehouse"
            )
        call.close(("parallelism",))
        table = lake.snapshot_table(folder, name, properties=properties, spark=call.context.spark)
    else:
        call.close(("parallelism",))
        spark, of_spark = _of_spark(call, source)
        table = lake.snapshot_spark_table(spark, of_spark, name, location=location, properties=properties)
    return listing({"imported_files_count": pa.int64()}, [(len(table.inspect.files()),)])


def migrate(call: Call) -> Result:
    """Make a table of Spark's, or a folder of Parquet files at the table's place, a table of the same name."""
    source, properties = str(call.need("table")), call.mapping("properties")
    drop_backup, backup_name = bool(call.take("drop_backup", False)), call.take("backup_table_name")
    call.close(("parallelism",))
    context, name = call.context, _target(call, source)
    if context.lake.exists(name):
        raise context.script.invalid(
            call.offset,
            f"{call.name}: {name} is a table already, of {context.lake.uri}; drop it, or rename one of the two",
        )
    table = None
    if context.spark is not None or source.startswith(f"{_OF_SPARK}."):
        spark, of_spark = _of_spark(call, source)
        try:
            table = context.lake.migrate_spark_table(
                spark, of_spark, name, properties=properties, drop_backup=drop_backup, backup_name=backup_name
            )
        except NotFound:
            if source.startswith(f"{_OF_SPARK}."):
                raise
    if table is None:
        if drop_backup or backup_name is not None:
            raise context.script.unsupported(call.offset, f"{call.name}: a folder of files has no backup")
        try:
            table = context.lake.migrate_table(name, properties=properties, spark=context.spark)
        except NotFound as error:
            raise context.script.invalid(call.offset, f"{call.name}: {error}; {_NEEDS_SPARK}") from error
    return listing({"migrated_files_count": pa.int64()}, [(len(table.inspect.files()),)])


def migrate_table(call: Call) -> Result:
    """Copy a table of Spark's to a new Paimon table, then drop it there unless delete_origin => false."""
    _require_hive(call)
    source = str(call.need("table"))
    name, drop = _target(call, str(call.take("target_table") or source)), bool(call.take("delete_origin", True))
    options = _options(call)
    call.close(("parallelism",))
    spark, of_spark = _of_spark(call, source)
    call.context.lake.import_spark_table(spark, of_spark, name, "paimon", properties=options, drop_source=drop)
    return listing({"result": pa.bool_()}, [(True,)])


def migrate_database(call: Call) -> Result:
    """`migrate_table` of each table of a database. Raises `LakeError` in the end for those that failed."""
    _require_hive(call)
    database, options = str(call.need("database")), _options(call)
    call.close(("parallelism",))
    spark, _ = _of_spark(call, f"{database}.*")
    done, failed = [], []
    for table in spark_engine.session_tables.names(spark, database):
        name = f"{database}.{table}"
        try:
            call.context.lake.import_spark_table(spark, name, name, "paimon", properties=options, drop_source=True)
            done.append((name, True))
        except LakeError as error:
            failed.append(f"{name}: {error}")
    if failed:
        raise LakeError(
            f"{call.name}: {len(done)} of {len(done) + len(failed)} tables of {database} were migrated; "
            f"not {'; '.join(failed)}"
        )
    return listing({"table": pa.string(), "result": pa.bool_()}, done)


# --- private ----------------------------------------------------------------------------------------------------------

_NEEDS_SPARK = (
    "a table of Spark's own catalog needs the session: lake.sql(text, spark=spark); of a folder of Parquet files write "
    "'`parquet`.`/folder`'"
)


def _folder(source: str) -> str | None:
    match = _FOLDER.fullmatch(source)
    return match[1] if match else None


def _of_spark(call: Call, source: str) -> tuple[Any, str]:
    """The session, and the name that it knows the source by."""
    context = call.context
    if context.spark is None:
        raise context.script.unsupported(call.offset, f"{call.name}: {source}: {_NEEDS_SPARK}")
    path = source.replace("`", "").split(".")
    if len(path) == 3 and path[0] in context.session.catalogs:
        path = path[1:]
    return context.spark, ".".join(path if len(path) > 1 else [context.session.database, *path])


def _target(call: Call, name: str) -> str:
    return names.full(call.context, tuple(name.replace("`", "").removeprefix(f"{_OF_SPARK}.").split(".")))


def _options(call: Call) -> dict[str, str]:
    options = {**call.options(), **call.mapping("options_map")}
    if options.get("bucket", "-1") != "-1":
        raise call.context.script.invalid(
            call.offset, f"{call.name}: bucket={options['bucket']}: a migrated table has none (bucket=-1)"
        )
    return options


def _require_hive(call: Call) -> None:
    source_type = str(call.need("source_type")).lower()
    if source_type != _HIVE:
        raise call.context.script.unsupported(
            call.offset,
            f"{call.name}(source_type => {source_type!r}): known is 'hive', the tables of Spark's own catalog; read "
            "others as a frame and write CREATE TABLE ... AS SELECT * FROM frame",
        )


def _added(snapshot: Snapshot | None) -> Result:
    kinds = {"added_files_count": pa.int64(), "changed_partition_count": pa.int64()}
    return listing(kinds, [(0, 0) if snapshot is None else (snapshot.files_added, len(snapshot.partitions or ()))])
