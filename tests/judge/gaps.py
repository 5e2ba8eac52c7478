"""What a judge is wrong about or lacks: each a strict expected failure of the cases it spoils, until it is mended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest

from lakeformat import LakeError

from .peers import PeerRefused
from .recipes import Recipe

FAILURES = (AssertionError, PeerRefused, LakeError)


@dataclass(frozen=True, slots=True)
class Gap:
    """Patterns (as of file names) for who writes, which recipe, who reads and what is looked at; and the reason."""

    writer: str
    recipe: str
    reader: str
    view: str
    reason: str

    def spoils(self, writer: str, recipe: str, reader: str, view: str) -> bool:
        pairs = ((writer, self.writer), (recipe, self.recipe), (reader, self.reader), (view, self.view))
        return all(any(fnmatchcase(name, one) for one in pattern.split("|")) for name, pattern in pairs)


BEFORE_1970_ORC = "before_epoch_orc|last_second_orc|nanoseconds_before_epoch_orc"
GAPS = (
    # Merge engines.
    Gap("lakeformat", "groups", "pypaimon", "latest", "it has no sequence groups"),
    Gap("pypaimon", "groups", "lakeformat", "latest", "it has no sequence groups"),
    Gap("lakeformat", "nested_partial", "java", "latest", "nested_partial_update came after 0.9"),
    Gap("java", "nested_partial", "lakeformat", "latest", "nested_partial_update came after 0.9"),
    Gap("lakeformat", "timed_maps", "java", "latest", "merge_map_with_keytime came after 0.9"),
    Gap("java", "timed_maps", "lakeformat", "latest", "merge_map_with_keytime came after 0.9"),
    Gap("lakeformat", "nested_ordered", "java", "latest", "an order of nested rows, and limits to the row, came after 0.9"),
    Gap("lakeformat", "sketches", "pypaimon", "latest", "its environment has no datasketches"),
    Gap("lakeformat", "bitmaps", "pypaimon", "latest", "it has no rbm64"),
    Gap("pypaimon", "bitmaps", "lakeformat", "latest", "it has no rbm64"),
    Gap("lakeformat", "collections|timed_maps", "pypaimon", "latest", "it cannot turn the maps it merged into Arrow"),
    Gap("pypaimon", "first", "lakeformat", "latest", "it leaves rows of a first-row table on level 0, where nobody shows them before they are compacted"),
    Gap("lakeformat", "marked_widely_*", "pypaimon|java", "latest|snapshots", "they know vectors of 32 bits only"),
    # Java 0.9, reading.
    Gap("lakeformat", "hollow_parquet", "java", "latest|snapshots", "its Parquet reader takes a ROW of nulls for a null"),
    Gap("lakeformat", "nanoseconds_parquet", "java", "latest|snapshots", "it reads TIMESTAMP(6) from INT64 only, and Arrow writes INT96 for all the timestamps of a file or for none"),
    Gap("lakeformat", "scalars_parquet", "java", "conditions on tinyint|conditions on smallint", "it hands Parquet a Byte or a Short to compare with the file's Integer"),
    Gap("lakeformat", "evolved_*", "java", "conditions on widened|conditions on added", "it loses rows of its own tables too when a condition speaks of a column whose type or place changed"),
    Gap("lakeformat", "scalars_orc", "java", "conditions on date", "it compares dates before 1582 in two calendars, and loses them in its own tables too"),
    Gap("lakeformat", "keyed_thin_*", "java", "latest|snapshots", "files without key columns came after 0.9"),
    # Java 0.9, writing.
    Gap("java", "last_second_orc", "lakeformat", "latest|snapshots", "ORC itself has no way to write a fraction of the last second before 1970: it becomes one after"),
    # pypaimon 2.1, reading.
    Gap("lakeformat", "multisets_*", "pypaimon", "latest|snapshots", "it has no MULTISET"),
    Gap("lakeformat", "partitioned_avro|evolved_avro|overwritten_avro", "pypaimon", "columns", "it finds no rows in an Avro file when only partition columns are asked for"),
    Gap("lakeformat", "partitioned_by_timestamp_9", "pypaimon", "latest|snapshots", "it looks for the folder of a partition value cut to microseconds"),
    Gap("lakeformat", "scalars_orc", "pypaimon", "conditions on time_3", "it compares a TIME with ORC's integer"),
    # pypaimon 2.1, writing.
    Gap("pypaimon", "multisets_*", "lakeformat", "*", "it has no MULTISET"),
    Gap("pypaimon", "nested_avro|hollow_avro", "lakeformat", "*", "it gives the ROWs inside an ARRAY a schema that refuses nulls"),
    Gap("pypaimon", "compacted_*|keyed_compacted_*|keyed_marked_*", "lakeformat", "*", "it does not compact"),
    Gap("pypaimon", "expired_*|tagged_*", "lakeformat", "*", "it does not expire snapshots"),
    Gap("pypaimon", "partitioned_by_timestamp_9", "lakeformat", "*", "it cuts the nanoseconds off a partition value, so that an overwrite meets no partition"),
    # paimon-rust 0.4, reading.
    Gap("lakeformat", "partitioned_by_float|partitioned_by_double", "rust", "latest|snapshots", "it refuses FLOAT and DOUBLE as partition keys"),
    Gap("lakeformat", "changelog_*", "rust", "changes", "it has no reading of changelogs: incremental-between is refused"),
    # lakeformat, writing.
    Gap("lakeformat", "binaries_orc", "*", "*", "refused, as Paimon itself has done since 1.0: its ORC has a type for BYTES alone"),
    Gap("java", "nanoseconds_before_epoch_parquet", "lakeformat", "latest|snapshots", "refused: it writes a negative part of a day as INT96, which Arrow cannot tell from a time beyond 2262"),
    Gap("lakeformat", BEFORE_1970_ORC, "*", "*", "refused: Arrow's ORC writer puts a negative fraction beside a second before 1970, which others cannot read"),
)  # fmt: skip


def cases(writers: Iterable[str], recipes: Iterable[Recipe], readers: Iterable[str], view: str) -> list:
    """One parameter set (writer, recipe, reader) a case, marked where a gap spoils it."""
    readers = tuple(readers)
    return [
        pytest.param(
            writer, recipe, reader, id=f"{recipe.name}-{writer}-{reader}", marks=_marks(writer, recipe, reader, view)
        )
        for writer in writers
        for recipe in recipes
        for reader in readers
    ]


def _marks(writer: str, recipe: Recipe, reader: str, view: str) -> list:
    found = [gap.reason for gap in GAPS if gap.spoils(writer, recipe.name, reader, view)]
    return [pytest.mark.xfail(strict=True, raises=FAILURES, reason="; ".join(found))] if found else []
