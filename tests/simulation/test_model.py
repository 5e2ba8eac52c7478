"""The public verbs in any order, beside a model of plain dicts: time travel, tags, branches, and the table opened anew."""

import datetime
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakeformat import Conflict, Lake, NotFound, Snapshot, StoreError, open_table
from lakeformat.table import Table
from tests.simulation.failing import NthCallFails

Row = dict[str, Any]

PARTITIONS = st.sampled_from(["a", "b", "c/d", "", None])
VALUES = st.one_of(st.none(), st.integers(-3, 3))
ROWS = st.lists(st.tuples(VALUES, PARTITIONS), min_size=0, max_size=6)
STEPS = int(os.environ.get("LAKEFORMAT_STEPS", "15"))
EXAMPLES = int(os.environ.get("LAKEFORMAT_EXAMPLES", "5"))


class Verbs(RuleBasedStateMachine):
    """`rows` is the table now, `past` what it was at each snapshot that is there, `tags` what each tag keeps, `schemas` a number for
    each schema that it had: all of the branch `on`; `elsewhere` has the same of the others. A snapshot that two of them have is one
    object.

    Rows have a value under each column's first name, which it keeps; `columns` says what it is called now.
    """

    @initialize(
        file_format=st.sampled_from(["parquet", "parquet", "orc", "avro"]),
        partitioned=st.booleans(),
        bucket=st.sampled_from([None, None, 2]),
        merge=st.sampled_from(["2", "30"]),
        vectors=st.sampled_from([None, 32, 64]),
        evolving=st.booleans(),
        indexed=st.sampled_from([None, "1 b", "1 kb"]),
        mirrored=st.booleans(),
    )
    def create(
        self,
        file_format: str,
        partitioned: bool,
        bucket: int | None,
        merge: str,
        vectors: int | None,
        evolving: bool,
        indexed: str | None,
        mirrored: bool,
    ) -> None:
        self.folder = tempfile.mkdtemp(prefix="lakeformat-model-")
        self.mirrored, evolving = mirrored, evolving and not mirrored  # Of whose files Iceberg would read rows twice.
        file_format, vectors = ("parquet", vectors and 64) if self.mirrored else (file_format, vectors)
        properties = {"file.format": file_format, "manifest.merge-min-count": merge, "compaction.min.file-num": "2"}
        if evolving:
            properties |= {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
            bucket, vectors = None, vectors or 32
        if indexed:
            properties |= {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "3"}
            properties |= {
                "file-index.in-manifest-threshold": indexed,
                "file-index.bitmap.columns": "v,dt",
                "file-index.bsi.columns": "v,id",
            }
        if bucket:
            properties |= {"bucket": str(bucket), "bucket-key": "id"}
        if vectors:
            wide = {"deletion-vectors.bitmap64": "true"} if vectors == 64 else {}
            properties |= {"deletion-vectors.enabled": "true", "deletion-vector.index-file.target-size": "60 b"} | wide
        if self.mirrored:
            version = {"metadata.iceberg.format-version": "3"} if vectors else {}
            properties |= {"metadata.iceberg.storage": "hadoop-catalog"} | version
        self.marks, self.evolving = bool(vectors), evolving
        self.partitioned = partitioned
        self.columns = {"id": "id", "v": "v", "dt": "dt"}
        self.lake().create_table(
            "db.t",
            pa.schema([("id", pa.int64()), ("v", pa.int32()), ("dt", pa.string())]),
            partition_by=["dt"] if partitioned else [],
            properties=properties,
        )
        self.rows: list[Row] = []
        self.past: dict[int, tuple[dict[str, str], list[Row]]] = {}
        self.tags: dict[str, tuple[dict[str, str], list[Row]]] = {}
        self.next_id = 0
        self.opened: Table | None = None
        self.schemas = [0]
        self.on = "main"
        self.elsewhere: dict[str, dict[str, Any]] = {}

    def lake(self) -> Lake:
        return Lake(self.folder, fsync="false")

    @property
    def table(self) -> Table:
        self.opened = self.opened or self.lake().table("db.t")
        return self.opened.branch(self.on)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule()
    def open_anew(self) -> None:
        self.opened = None

    # --- rows ---

    @rule(given=ROWS)
    def append(self, given: list[tuple[Any, Any]]) -> None:
        data, rows = self.data(given)
        made = self.table.append(data)
        self.done(made, [*self.rows, *rows], when=bool(rows), added=len(rows), removed=0)

    @rule(given=ROWS)
    def overwrite_dynamically(self, given: list[tuple[Any, Any]]) -> None:
        data, rows = self.data(given)
        touched = {row["dt"] for row in rows}
        kept = [r for r in self.rows if self.partitioned and r["dt"] not in touched] if rows else self.rows
        removed = len(self.rows) - len(kept)
        made = self.table.overwrite_partitions(data)
        self.done(made, [*kept, *rows], when=bool(rows), added=len(rows), removed=removed)

    @precondition(lambda self: self.partitioned)
    @rule(given=ROWS, others=st.lists(PARTITIONS, max_size=2))
    def overwrite_declared(self, given: list[tuple[Any, Any]], others: list[Any]) -> None:
        data, rows = self.data(given)
        declared = {row["dt"] for row in rows} | set(others)
        if not declared:
            return
        kept = [r for r in self.rows if r["dt"] not in declared]
        made = self.table.overwrite_partitions(data, [{"dt": p} for p in declared])
        self.done(made, [*kept, *rows], added=len(rows), removed=len(self.rows) - len(kept))

    @precondition(lambda self: self.partitioned)
    @rule(given=ROWS, partition=PARTITIONS)
    def overwrite_statically(self, given: list[tuple[Any, Any]], partition: Any) -> None:
        data, rows = self.data([(v, partition) for v, _ in given])
        kept = [r for r in self.rows if r["dt"] != partition]
        made = self.table.overwrite(data, {"dt": partition})
        self.done(made, [*kept, *rows], added=len(rows), removed=len(self.rows) - len(kept))

    @rule(given=ROWS)
    def overwrite_everything(self, given: list[tuple[Any, Any]]) -> None:
        data, rows = self.data(given)
        self.done(self.table.overwrite(data), rows, added=len(rows), removed=len(self.rows))

    @rule()
    def truncate(self) -> None:
        self.done(self.table.truncate(), [], added=0, removed=len(self.rows))

    @precondition(lambda self: self.partitioned)
    @rule(partition=PARTITIONS)
    def drop_partition(self, partition: Any) -> None:
        kept = [r for r in self.rows if r["dt"] != partition]
        self.done(self.table.drop_partitions([{"dt": partition}]), kept)

    @rule(limit=st.integers(-3, 3))
    def delete(self, limit: int) -> None:
        kept = [r for r in self.rows if not (r["v"] is not None and r["v"] > limit)]
        self.done(self.table.delete(f"v > {limit}"), kept, when=len(kept) < len(self.rows))

    @rule(limit=st.integers(-3, 3))
    def update(self, limit: int) -> None:
        hit = [r["v"] is not None and r["v"] < limit for r in self.rows]
        after = [{**r, "v": r["v"] + 1} if h else r for r, h in zip(self.rows, hit, strict=True)]
        self.done(self.table.update({"v": "v + 1"}, f"v < {limit}"), after, when=any(hit))

    @rule(limit=st.integers(-3, 3), given=ROWS)
    def merge(self, limit: int, given: list[tuple[Any, Any]]) -> None:
        data, rows = self.data(given)
        source = pa.concat_tables([self.table.scan(where=f"v > {limit}").to_arrow(), data])
        after = {r["id"]: r for r in self.rows}
        for row in [r for r in self.rows if r["v"] is not None and r["v"] > limit]:
            if row["v"] == 3:
                del after[row["id"]]
            else:
                after[row["id"]] = {**row, "v": row["v"] - 1}
        asked = self.table.merge_into(source, "t.id = s.id").when_matched("t.v = 3").delete()
        made = asked.when_matched().update({"v": "s.v - 1"}).when_not_matched().insert_all().merge()
        self.done(made, [*after.values(), *rows], when=len(source) > 0)

    # --- schema ---

    @precondition(lambda self: len(self.columns) < 6)
    @rule()
    def add_column(self) -> None:
        name = f"c{self.next_id}"
        self.next_id += 1
        self.table.alter().add_column(name, "string").commit()
        self.columns = {**self.columns, name: name}
        self.rows = [{**r, name: None} for r in self.rows]
        self.schemas = [*self.schemas, self.next_id]

    @precondition(lambda self: len(self.columns) > 3)
    @rule(data=st.data())
    def drop_or_rename_column(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(list(self.columns)[3:]))
        name = self.columns[column]
        self.next_id += 1
        self.schemas = [*self.schemas, self.next_id]
        if data.draw(st.booleans()):
            self.table.alter().drop_column(name).commit()
            self.columns = {k: v for k, v in self.columns.items() if k != column}
            self.rows = self.in_columns(self.rows)
        else:
            new = f"c{self.next_id}"
            self.next_id += 1
            self.table.alter().rename_column(name, new).commit()
            self.columns = {**self.columns, column: new}

    # --- branches ---

    def here(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rows", "columns", "past", "tags", "schemas")}

    def go(self, name: str) -> None:
        self.elsewhere[self.on] = self.here()
        self.on = name
        for what, value in self.elsewhere.pop(name).items():
            setattr(self, what, value)

    @precondition(lambda self: len(self.elsewhere) < 2)
    @rule()
    def begin_branch(self) -> None:
        name = f"b{self.next_id}"
        self.next_id += 1
        self.table.create_branch(name)
        newest = max(self.past, default=None)
        past = {} if newest is None else {newest: self.past[newest]}
        self.elsewhere[name] = {**self.here(), "past": past, "tags": {}}
        self.go(name)

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        self.go(data.draw(st.sampled_from(sorted(self.elsewhere))))

    @precondition(lambda self: self.elsewhere.keys() - {"main"})
    @rule(data=st.data())
    def delete_branch(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.elsewhere.keys() - {"main"})))
        self.table.delete_branch(name)
        del self.elsewhere[name]

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data())
    def fast_forward(self, data: st.DataObject) -> None:
        to = data.draw(st.sampled_from(sorted(self.elsewhere)))
        ahead = self.elsewhere[to]
        newest = self.past[max(self.past)] if self.past else None
        shared = [id for id, rows in sorted(ahead["past"].items()) if rows is newest]
        same_schemas = all(own == other for own, other in zip(self.schemas, ahead["schemas"], strict=False))
        if (newest is not None and not shared) or not same_schemas:
            try:
                self.table.fast_forward(to)
            except Conflict:
                return
            raise AssertionError(f"{self.on} went forward to {to}")
        self.table.fast_forward(to)
        after = shared[-1] if shared else 0
        rest = [ahead["past"][id] for id in sorted(ahead["past"]) if id > after]
        start = max(self.past, default=0) + 1
        self.past = self.past | dict(enumerate(rest, start))
        if len(ahead["schemas"]) > len(self.schemas):
            self.schemas, self.columns = ahead["schemas"], ahead["columns"]
        self.rows = self.in_columns(rest[-1][1] if rest else self.rows)
        self.tags = ahead["tags"] | self.tags

    # --- upkeep ---

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        made = self.table.compact(full=full)
        self.done(made, self.rows, when=made is not None)

    @rule(keep=st.integers(1, 4))
    def expire(self, keep: int) -> None:
        found = self.table.expire_snapshots(retain_last=keep)
        ids = sorted(self.past)
        main = self.elsewhere.get("main", {"past": {}})["past"]
        awaited = [
            id for id in ids if main and self.past[id] is main[max(main)]
        ]  # What the table has still to take over stays.
        gone = [id for id in ids[: max(len(ids) - keep, 0)] if not awaited or id < awaited[0]]
        assert list(found.snapshots) == gone
        self.past = {id: self.past[id] for id in ids if id not in gone}

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.past)))
        self.table.create_tag(f"t{self.next_id}", snapshot_id=id)
        self.tags[f"t{self.next_id}"] = self.past[id]
        self.next_id += 1

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def delete_tag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tags)))
        self.table.delete_tag(name)
        del self.tags[name]

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.past)))
        if id == max(self.past):
            assert self.table.rollback_to(snapshot_id=id) is None
            return
        self.rolled_back(id, self.table.rollback_to(snapshot_id=id))

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def roll_back_in_two_runs(self, data: st.DataObject) -> None:
        """The first dies before it deletes the snapshots in between; another process follows with the mirror, then it runs again."""
        id, once = data.draw(st.sampled_from(sorted(self.past)[:-1])), f"r{self.next_id}"
        self.next_id += 1
        table = self.table
        where = "" if self.on == "main" else "branch/branch-b*/"
        store = NthCallFails(table._whole, 1, False, kind=f"delete {where}snapshot/snapshot-*")
        try:
            Table(table.name, store, table._format, table._branch).rollback_to(snapshot_id=id, id=once)
        except StoreError:
            assert store.failed
        else:
            raise AssertionError("no snapshot was deleted")
        self.lake().table("db.t").sync_iceberg()
        self.rolled_back(id, self.table.rollback_to(snapshot_id=id, id=once))

    def rolled_back(self, id: int, made: Snapshot | None) -> None:
        self.past = {i: p for i, p in self.past.items() if i <= id}
        # The schema stays the newest: columns added since are null, columns dropped since stay dropped.
        self.rows = self.in_columns(self.past[id][1])
        assert made is not None
        self.past[made.id] = self.columns, self.rows

    @rule()
    def sweep(self) -> None:
        self.table.remove_orphan_files(older_than=datetime.timedelta(days=-1))  # Everything is older than tomorrow.

    # --- what must hold ---

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        if not hasattr(self, "rows"):
            return
        table = self.table
        assert table.schema.names == tuple(self.columns.values())
        assert same(table.scan().to_arrow(), self.columns, self.rows)
        assert table.scan().count() == len(self.rows)
        assert [s.id for s in table.snapshots()] == sorted(self.past)
        hit = [r for r in self.rows if r["v"] is not None and r["v"] >= 1]
        assert same(table.scan(where="v >= 1").to_arrow(), self.columns, hit)
        hit = [r for r in self.rows if r["v"] == 1]
        assert same(table.scan(where="v = 1").to_arrow(), self.columns, hit)
        hit = [r for r in self.rows if r["dt"] == "c/d"]
        assert same(table.scan(["dt", "id"], where="dt = 'c/d'").to_arrow(), {"dt": "dt", "id": "id"}, hit)

    @invariant()
    def the_past_is_what_it_was(self) -> None:
        if not hasattr(self, "rows"):
            return
        for id, (columns, rows) in self.past.items():
            assert same(self.table.scan(snapshot_id=id).to_arrow(), columns, rows), id
        for name, (columns, rows) in self.tags.items():
            assert same(self.table.scan(tag=name).to_arrow(), columns, rows), name
        for name, branch_rows in self.elsewhere.items():
            assert same(self.table.branch(name).scan().to_arrow(), branch_rows["columns"], branch_rows["rows"]), name

    @invariant()
    def iceberg_readers_see_the_same(self) -> None:
        """The rows of main, of its first tag and of the oldest snapshot that the metadata has."""
        if not getattr(self, "mirrored", False) or not hasattr(self, "rows"):
            return
        main = self.elsewhere.get("main") or self.here()
        try:
            shown = open_table(f"{self.folder}/iceberg/db/t")
        except NotFound:  # Its first commit makes it.
            assert not main["past"]
            return
        past, tags = main["past"], main["tags"]
        assert same(shown.scan().to_arrow(), main["columns"], main["rows"])
        for name in shown.inspect.tags()["tag_name"].to_pylist()[:1]:
            assert same(shown.scan(tag=name).to_arrow(), *tags[name]), name
        for snapshot in [snapshot.id for snapshot in shown.snapshots() if snapshot.id in past][:1]:
            assert same(shown.scan(snapshot_id=snapshot).to_arrow(), *past[snapshot]), snapshot
        assert not past or shown.current_snapshot().id == max(past)

    # --- private ---

    def data(self, given: list[tuple[Any, Any]]) -> tuple[pa.Table, list[Row]]:
        rows = []
        for value, partition in given:
            others = dict.fromkeys(list(self.columns)[3:], "x")
            rows.append({"id": self.next_id, "v": value, "dt": partition} | others)
            self.next_id += 1
        types = {"id": pa.int64(), "v": pa.int32()}
        schema = pa.schema([(column, types.get(column, pa.string())) for column in self.columns])
        return pa.Table.from_pylist(rows, schema).rename_columns(list(self.columns.values())), rows

    def done(
        self, made: Any, rows: list[Row], when: bool = True, added: int | None = None, removed: int | None = None
    ) -> None:
        assert (made is not None) == when
        if made is None:
            return
        assert made.id == max(self.past, default=made.id - 1) + 1
        assert made.attempts == 1
        assert made.total_rows == len(rows) or self.marks  # Which counts rows that deletion vectors took.
        if added is not None and not self.evolving:  # Where a row counts in each file of its columns.
            assert (made.rows_added, made.rows_removed) == (added, removed)
        self.rows = rows
        self.past[made.id] = self.columns, rows

    def in_columns(self, rows: list[Row]) -> list[Row]:
        return [{column: row.get(column) for column in self.columns} for row in rows]


def same(found: pa.Table, columns: dict[str, str], rows: list[Row]) -> bool:
    assert found.column_names == list(columns.values()), (found.column_names, columns)
    key: Callable[[Row], Any] = lambda row: row["id"]  # noqa: E731
    expected = [{name: row[column] for column, name in columns.items()} for row in sorted(rows, key=key)]
    return sorted(found.to_pylist(), key=key) == expected


TestVerbs = Verbs.TestCase
TestVerbs.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
