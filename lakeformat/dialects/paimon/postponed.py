"""Rows that wait for a bucket (`bucket` = -2): compaction assigns one, which makes them visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.paimon import manifest, metadata, options, scan
from lakeformat.dialects.paimon.layout import POSTPONED_BUCKET, in_buckets
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import InvalidInput
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Schema
from lakeformat.model.work import BUCKET, VALUE_KIND, BucketRule, MergeTask, ReadTask, RewriteTask


@dataclass(frozen=True, slots=True)
class Keyed(Part[State]):
    """Rows that are merged by key, as row-level changes must see them."""

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> Sequence[ReadTask]:
        """As `scan.scan`, with rows that readers do not see before compaction."""
        return scan.scan(self.reader, self._complete(), columns, predicate)

    def scan_by_bucket(
        self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS
    ) -> Sequence[ReadTask]:
        """As `scan`; each task has files of one bucket."""
        return scan.scan(self.reader, self._complete(), columns, predicate, by_bucket=True)

    def located(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> list[ReadTask]:
        """As `scan`, with each row's bucket (`BUCKET`)."""
        result: list[ReadTask] = []
        for task in self.scan_by_bucket(columns, predicate):
            if not isinstance(task, MergeTask):
                result.append(replace(task, fields=(*task.fields, BUCKET)))
                continue
            parts = tuple(replace(part, fields=(*part.fields, BUCKET), bucket=task.bucket) for part in task.parts)
            result.append(replace(task, fields=(*task.fields, BUCKET), parts=parts))
        return result

    def placement(self, scope: Expression) -> list[RewriteTask]:
        """For each partition with waiting rows, the task that writes them into buckets, in the order in which they were
        written, by the times of their files (PostponeBucketCompactSplitSource). `scope`: on partition columns only."""
        schema = self.state.schema
        if options.read(schema).bucket != POSTPONED_BUCKET:
            return []
        live = manifest.live_entries(self.reader, self.state.document, schema, scope)
        waits = np.asarray(pc.equal(live["_BUCKET"], POSTPONED_BUCKET))
        if not waits.any():
            return []
        write = in_buckets(self.state, self.reader)
        codes, _ = manifest.partitions(live, schema)
        created = np.asarray(pc.fill_null(live["_CREATION_TIME"], 0), np.int64)
        order = np.lexsort((np.asarray(live["_MIN_SEQUENCE_NUMBER"]), created, codes))
        order = order[waits[order]]
        key, function = metadata.bucket_key(schema), options.read(schema).bucket_function_type
        result = []
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            waiting = live.take(pa.array(rows))
            placed = live.filter(pa.array((codes == codes[rows[0]]) & ~waits))
            count = _bucket_count(schema, waiting, placed)
            files = scan.Files(waiting, schema)
            read = scan.standing(self.reader, self.state, files, (*schema.fields, VALUE_KIND))
            result.append(RewriteTask(tuple(read), replace(write, bucket=BucketRule(key, count, function))))
        return result

    def _complete(self) -> State:
        """Raises `InvalidInput` if rows wait for a bucket: row-level changes would not see them."""
        complete = replace(self.state, is_complete=True)
        if options.read(self.state.schema).bucket != POSTPONED_BUCKET:
            return complete
        live = manifest.live_entries(self.reader, self.state.document, self.state.schema, ALWAYS)
        waiting = live.filter(pc.equal(live["_BUCKET"], POSTPONED_BUCKET))
        if len(waiting):
            raise InvalidInput(
                f"{self.reader.root}: {pc.sum(waiting['_ROW_COUNT']).as_py()} rows wait for a bucket (bucket=-2), and "
                "a change by row would not see them; compact() first, or upsert rows with a rowkind"
            )
        return complete


def _bucket_count(schema: Schema, waiting: pa.Table, placed: pa.Table) -> int:
    """The bucket count of a partition: its own, or else by `postpone.default-bucket-num`, or by how many rows or bytes
    wait."""
    table_options = options.read(schema)
    if len(placed):
        return int(pc.max(placed["_TOTAL_BUCKETS"]).as_py())
    if table_options.postpone_default_bucket_num is not None:
        return table_options.postpone_default_bucket_num
    if table_options.postpone_target_row_num is not None:
        buckets = -(-pc.sum(waiting["_ROW_COUNT"]).as_py() // table_options.postpone_target_row_num)
    else:
        buckets = -(-pc.sum(waiting["_FILE_SIZE"]).as_py() // table_options.postpone_target_size)
    return max(min(buckets, table_options.postpone_max_buckets), 1)
