"""Tables with a primary key, the public verbs in any order, beside a dict by key: time travel, compaction and expiry."""

import os
import random
import shutil
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakeformat import Lake, OutsideScope, open_table
from lakeformat.table import Table

Key = tuple[str, int]
Row = tuple[int | None, str]  # The values of a key: `n` and `v`.

IDS = st.integers(0, 12)
PARTITIONS = st.sampled_from(["a", "b"])
ROWS = st.lists(
    st.tuples(
        PARTITIONS, IDS, st.one_of(st.none(), st.integers(-3, 3)), st.sampled_from(["+I", "+U", "-U", "-D", None])
    ),
    max_size=8,
)
STEPS = int(os.environ.get("LAKEFORMAT_STEPS", "15"))
EXAMPLES = int(os.environ.get("LAKEFORMAT_EXAMPLES", "3"))


class Keyed(RuleBasedStateMachine):
    """`rows` is the table now, `past` what it was at each snapshot that is there.

    With `ordered`, `n` is the sequence field; then nothing is deleted, for how long a deleted row is remembered depends on
    compaction. With `crossing`, keys are `id` alone, and change partitions.
    """

    @initialize(
        file_format=st.sampled_from(["parquet", "parquet", "orc", "avro"]),
        bucket=st.sampled_from(["1", "2", "-1"]),
        layout=st.sampled_from(["whole", "parted", "crossing"]),
        ordered=st.booleans(),
        lifts=st.booleans(),
        write_only=st.booleans(),
        marked=st.booleans(),
        looks_up=st.booleans(),
        mirrored=st.booleans(),
    )
    def create(
        self,
        file_format: str,
        bucket: str,
        layout: str,
        ordered: bool,
        lifts: bool,
        write_only: bool,
        marked: bool,
        looks_up: bool,
        mirrored: bool,
    ) -> None:
        self.folder = tempfile.mkdtemp(prefix="lakeformat-keyed-")
        self.partitioned, self.crossing = layout != "whole", layout == "crossing"
        self.ordered = ordered and not self.crossing
        self.marked, self.mirrored = marked, mirrored
        properties = {
            "file.format": "parquet" if mirrored else file_format,
            "bucket": "-1" if self.crossing else bucket,
            "num-sorted-run.compaction-trigger": "2",
            "num-levels": "4",
            "dynamic-bucket.target-row-num": "3",
            "manifest.merge-min-count": "2",
        }
        properties |= {"sequence.field": "n"} if self.ordered else {}
        properties |= {"write-only": "true"} if write_only and not self.marked else {}
        properties |= {"deletion-vectors.enabled": "true"} if self.marked else {}
        if mirrored:
            properties |= {"metadata.iceberg.storage": "hadoop-catalog"}
        if mirrored and marked:
            properties |= {"deletion-vectors.bitmap64": "true", "metadata.iceberg.format-version": "3"}
        properties |= {"compaction.file-size": "1 b"} if lifts else {}
        properties |= {"changelog-producer": "lookup"} if looks_up else {}
        self.lake().create_table(
            "db.t",
            pa.schema([("dt", pa.string()), ("id", pa.int64()), ("n", pa.int32()), ("v", pa.string())]),
            format="paimon",
            partition_by=["dt"] if self.partitioned else [],
            primary_key=["id"] if self.crossing else ["dt", "id"],
            properties=properties,
        )
        self.rows: dict[Key, Row] = {}
        self.past: dict[int, dict[Key, Row] | None] = {}  # None: rows that wait for the compaction after them.
        self.turn = 0
        self.opened: Table | None = None

    def lake(self) -> Lake:
        return Lake(self.folder, fsync="false")

    @property
    def table(self) -> Table:
        self.opened = self.opened or self.lake().table("db.t")
        return self.opened

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule()
    def open_anew(self) -> None:
        self.opened = None

    # --- rows ---

    @rule(given=ROWS)
    def upsert(self, given: list[Any]) -> None:
        data, rows = self.data(given)
        made = self.table.upsert(data)
        self.done(made, self.after(self.rows, rows), when=bool(rows))

    @precondition(lambda self: not self.ordered)
    @rule(limit=st.integers(-3, 3))
    def delete(self, limit: int) -> None:
        kept = {k: r for k, r in self.rows.items() if r[0] is None or r[0] <= limit}
        self.done(self.table.delete(f"n > {limit}"), kept, when=len(kept) < len(self.rows))

    @rule(limit=st.integers(-3, 3))
    def update(self, limit: int) -> None:
        self.turn += 1
        hit = {k: (r[0], f"u{self.turn}") for k, r in self.rows.items() if r[0] is not None and r[0] < limit}
        made = self.table.update({"v": f"'u{self.turn}'"}, f"n < {limit}")
        self.done(made, self.rows | hit, when=bool(hit))

    @rule(given=ROWS)
    def overwrite_dynamically(self, given: list[Any]) -> None:
        data, rows = self.data(given)
        touched = {row[0] for row in rows}
        elsewhere = {k for k in self.rows if self.crossing and k[0] not in touched and k[1] in {row[1] for row in rows}}
        if elsewhere and self.marked:
            with pytest.raises(OutsideScope):
                self.table.overwrite_partitions(data)
            return
        kept = {k: r for k, r in self.rows.items() if self.partitioned and k[0] not in touched} if rows else self.rows
        made = self.table.overwrite_partitions(data)
        self.done(made, self.beside(kept, rows) | self.after({}, rows), when=bool(rows))

    @rule(given=ROWS)
    def overwrite_everything(self, given: list[Any]) -> None:
        data, rows = self.data(given, long=True)  # Much below, so that a compaction may be of little on top of it.
        self.done(self.table.overwrite(data), self.after({}, rows))

    @precondition(lambda self: not self.ordered)
    @rule(limit=st.integers(-3, 3), given=ROWS)
    def overwrite_rows(self, limit: int, given: list[Any]) -> None:
        data, rows = self.data([(dt, id, limit, None) for dt, id, _, _ in given])
        kept = {k: r for k, r in self.rows.items() if r[0] != limit}
        self.done(self.table.overwrite(data, where=f"n = {limit}"), self.after(kept, rows))

    @precondition(lambda self: self.crossing)
    @rule(partition=PARTITIONS, limit=st.integers(-3, 3))
    def move(self, partition: str, limit: int) -> None:
        hit = {k: r for k, r in self.rows.items() if r[0] == limit}
        made = self.table.update({"dt": f"'{partition}'"}, f"n = {limit}")
        moved = {(partition, id): r for (_, id), r in hit.items()}
        self.done(made, {k: r for k, r in self.rows.items() if k not in hit} | moved, when=bool(hit))

    @precondition(lambda self: self.partitioned)
    @rule(partition=PARTITIONS)
    def drop_partition(self, partition: str) -> None:
        made = self.table.drop_partitions([{"dt": partition}])
        self.done(made, {k: r for k, r in self.rows.items() if k[0] != partition})

    # --- upkeep ---

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        made = self.table.compact(full=full)
        self.done(made, self.rows, when=made is not None)
        if full:
            files = self.table.inspect.files()
            assert all(level > 0 for level in files["level"].to_pylist())
            assert not self.mirrored or self.marked or not self.past or self.shown() == self.rows

    @rule(keep=st.integers(1, 4))
    def expire(self, keep: int) -> None:
        found = self.table.expire_snapshots(retain_last=keep)
        ids = sorted(self.past)
        assert list(found.snapshots) == ids[: max(len(ids) - keep, 0)]
        self.past = {id: self.past[id] for id in ids[max(len(ids) - keep, 0) :]}

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([i for i in sorted(self.past) if self.past[i] is not None]))
        made = self.table.rollback_to(snapshot_id=id)
        if made is not None:
            self.past = {i: p for i, p in self.past.items() if i <= id}
            self.done(made, self.past[id] or {})

    # --- what must hold ---

    @invariant()
    def the_table_is_what_the_dict_says(self) -> None:
        if not hasattr(self, "folder"):
            return
        assert self.content() == self.rows
        assert self.table.scan().count() == len(self.rows)
        for condition, holds in (
            ("n > 0", lambda k, r: r[0] is not None and r[0] > 0),
            ("id < 5 and v like 'v%'", lambda k, r: k[1] < 5 and r[1].startswith("v")),
            ("dt = 'b' or n is null", lambda k, r: k[0] == "b" or r[0] is None),
        ):
            wanted = {k: r for k, r in self.rows.items() if holds(k, r)}
            assert self.content(where=condition) == wanted, condition
            assert self.table.scan(where=condition).count() == len(wanted), condition

    @invariant()
    def the_past_is_what_it_was(self) -> None:
        if not hasattr(self, "folder"):
            return
        assert [s.id for s in self.table.snapshots()] == sorted(self.past)
        for id in [i for i in sorted(self.past) if self.past[i] is not None][:2]:
            assert self.content(snapshot_id=id) == self.past[id]

    @invariant()
    def iceberg_readers_see_the_same(self) -> None:
        """With deletion vectors after each write; without, after each full compaction (`compact`)."""
        if hasattr(self, "folder") and self.mirrored and self.marked and self.past:
            assert self.shown() == self.rows

    # --- private ---

    def shown(self) -> dict[Key, Row]:
        return self.by_key(open_table(f"{self.folder}/iceberg/db/t").scan().to_arrow())

    def data(
        self, given: list[Any], long: bool = False
    ) -> tuple[pa.Table, list[tuple[str, int, int | None, str, str | None]]]:
        self.turn += 1
        rest = random.Random(self.turn).randbytes(3000).hex() if long else ""
        rows = [
            (dt, id, n, f"v{self.turn}.{at}{rest}", None if self.ordered else kind)
            for at, (dt, id, n, kind) in enumerate(given)
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 5
        types = [pa.string(), pa.int64(), pa.int32(), pa.string(), pa.string()]
        names = ["dt", "id", "n", "v", "rowkind"]
        arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
        return pa.table(arrays, names), rows

    def after(self, before: dict[Key, Row], rows: list[Any]) -> dict[Key, Row]:
        now = dict(before)
        for dt, id, n, v, kind in rows:
            now = self.beside(now, [(dt, id)])
            old = now.get((dt, id))
            if self.ordered and old is not None and old[0] is not None and (n is None or n < old[0]):
                continue
            if kind in ("-U", "-D"):
                now.pop((dt, id), None)
            else:
                now[dt, id] = (n, v)
        return now

    def beside(self, rows: dict[Key, Row], others: list[Any]) -> dict[Key, Row]:
        """What of `rows` stays where other rows come with keys of theirs in other partitions."""
        ids = {dt_id[1]: dt_id[0] for dt_id in others} if self.crossing else {}
        return {k: r for k, r in rows.items() if ids.get(k[1], k[0]) == k[0]}

    def done(self, made: Any, rows: dict[Key, Row], when: bool = True) -> None:
        assert (made is not None) == when
        self.rows = rows
        if made is not None:
            self.past[made.id] = rows
            after = self.table.snapshots(after=made.id)  # The compaction that belongs to a write.
            assert [s.operation_id for s in after] in ([], [f"{made.operation_id}/compact"])
            self.past |= {snapshot.id: rows for snapshot in after}
            if self.marked and after:
                self.past[made.id] = None

    def content(self, **how: Any) -> dict[Key, Row]:
        return self.by_key(self.table.scan(**how).to_arrow())

    def by_key(self, table: pa.Table) -> dict[Key, Row]:
        found = table.to_pylist()
        rows = {(r["dt"], r["id"]): (r["n"], r["v"]) for r in found}
        assert len(rows) == len(found) == len({r["id"] for r in found} if self.crossing else rows)
        return rows


TestKeyed = Keyed.TestCase
TestKeyed.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    database=None,
)
