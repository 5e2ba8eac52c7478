"""Apache Iceberg, under the names that every format goes by."""

from lakeformat.dialects.iceberg.compaction import compaction, delete_compaction, has_many_manifests, sorting, upkeep
from lakeformat.dialects.iceberg.conflict import check, isolation
from lakeformat.dialects.iceberg.expire import (
    default_retention,
    expired_partitions,
    expiry,
    expiry_of_tag,
    orphans,
    replaced_history,
)
from lakeformat.dialects.iceberg.inspect import INSPECTIONS
from lakeformat.dialects.iceberg.layout import adoption, delete_layout, delta_layout, layout, rewriting
from lakeformat.dialects.iceberg.manifest import rows_in, scope_of
from lakeformat.dialects.iceberg.metadata import (
    at,
    at_tag,
    at_time,
    attempts,
    consumer,
    consumer_path,
    expired_tags,
    head,
    history,
    is_table,
    load,
    on,
    progress,
    require_readable,
    tag,
)
from lakeformat.dialects.iceberg.plan import changes, find, plan
from lakeformat.dialects.iceberg.scan import (
    audit,
    chooses_files,
    complete,
    count,
    delta,
    files,
    located,
    matching_wholly,
    project,
    scan,
    tasks,
)

name = "iceberg"
is_movable = False  # Metadata and manifests name their files by absolute paths.

__all__ = [
    "INSPECTIONS",
    "adoption",
    "at",
    "at_tag",
    "at_time",
    "attempts",
    "audit",
    "changes",
    "check",
    "chooses_files",
    "compaction",
    "complete",
    "consumer",
    "consumer_path",
    "count",
    "default_retention",
    "delete_compaction",
    "delete_layout",
    "delta",
    "delta_layout",
    "expired_partitions",
    "expired_tags",
    "expiry",
    "expiry_of_tag",
    "files",
    "find",
    "has_many_manifests",
    "head",
    "history",
    "is_movable",
    "is_table",
    "isolation",
    "layout",
    "load",
    "located",
    "matching_wholly",
    "name",
    "on",
    "orphans",
    "plan",
    "progress",
    "project",
    "replaced_history",
    "require_readable",
    "rewriting",
    "rows_in",
    "scan",
    "scope_of",
    "sorting",
    "tag",
    "tasks",
    "upkeep",
]
