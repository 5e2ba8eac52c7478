"""Tables with a primary key whose options of merging are drawn together, beside a model that takes one row at a time.

The model (`tests/unit/row_model.py`) merges what stands in the files, read by pyarrow alone: then scans, compactions and
changelogs are right whatever was merged with what. Where the order of merging makes no difference, it also merges all rows ever
written.
"""

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from lakeformat import Lake
from lakeformat.model.work import Aggregation, MergeEngine, MergeSpec, SequenceGroup
from lakeformat.table import Table
from tests.unit import row_model

KINDS = ["+I", "-U", "+U", "-D"]
SYSTEM = ["_SEQUENCE_NUMBER", "_VALUE_KIND"]
TYPES = {
    "a": pa.int32(),
    "n": pa.int64(),
    "t": pa.string(),
    "l": pa.list_(pa.int32()),
    "g": pa.int64(),
    "h": pa.int32(),
    "s": pa.int64(),
}
NUMBERS = {"a": "int32", "n": "int64"}
SMALL = st.none() | st.integers(-2, 3)
VALUES = {
    "a": SMALL,
    "n": SMALL,
    "t": st.none() | st.sampled_from(["x", "y", "x,y", " "]),
    "l": st.none() | st.lists(st.integers(0, 2), max_size=2),
    "g": SMALL,
    "h": SMALL,
    "s": SMALL,
}
OF_ANY = ["last_value", "last_non_null_value", "first_value", "first_non_null_value"]
FUNCTIONS = {
    "a": ["sum", "max", "min", *OF_ANY],
    "n": ["sum", "product", "max", "min", *OF_ANY],
    "t": ["listagg", "max", *OF_ANY],
    "l": ["collect", *OF_ANY],
    "g": ["max", *OF_ANY],
    "h": ["min", *OF_ANY],
    "s": ["max", *OF_ANY],
}
CAN_RETRACT = {"sum", "collect", "last_value", "last_non_null_value"}
COMMUTES = {"sum", "max", "min"}
FILTERS = {
    "a > 0": lambda r: r["a"] is not None and r["a"] > 0,
    "t = 'x'": lambda r: r["t"] == "x",
    "id < 2": lambda r: r["id"] < 2,
    "g is null": lambda r: r["g"] is None,
    "id = 1 and n <= 1": lambda r: r["id"] == 1 and r["n"] is not None and r["n"] <= 1,
    "h is not null or id = 3": lambda r: r["h"] is not None or r["id"] == 3,
}


@dataclass(frozen=True)
class Case:
    """A table and how its rows merge."""

    spec: MergeSpec
    columns: tuple[str, ...]
    options: dict[str, str]
    kinds: tuple[str, ...]  # Of the rows written.
    partitioned: bool = False
    thin: bool = False
    kind_column: bool = False

    @property
    def looks_up(self) -> bool:
        return self.options.get("changelog-producer") == "lookup" or self.options.get("force-lookup") == "true"

    @property
    def marked(self) -> bool:
        return "deletion-vectors.enabled" in self.options

    @property
    def keeps_first(self) -> bool:
        return self.options["merge-engine"] == "first-row"

    @property
    def tells(self) -> bool:
        return self.options.get("changelog-producer") in ("lookup", "full-compaction")

    @property
    def key(self) -> tuple[str, ...]:
        return ("p", "id") if self.partitioned else ("id",)

    @property
    def is_associative(self) -> bool:
        """Whether it makes no difference what was merged before what."""
        spec = self.spec
        retracts = {"-U", "-D"} & {*self.kinds} and not spec.ignore_delete
        if spec.engine in ("deduplicate", "first-row"):
            return not (retracts and spec.sequence)
        if retracts:
            return False
        functions = {aggregation.column: aggregation.function for aggregation in spec.aggregations}
        if spec.sequence:
            values = [c for c in self.columns if c not in spec.sequence]
            return not spec.groups and all(functions.get(c) in COMMUTES for c in values)
        return True


@st.composite
def cases(draw: Any) -> Case:
    columns = tuple(draw(st.permutations(list(TYPES))))
    engine = draw(st.sampled_from(["deduplicate", "partial-update", "partial-update", "aggregation", "first-row"]))
    options = {
        "bucket": draw(st.sampled_from(["1", "2", "-1"])),
        "merge-engine": engine,
        "num-sorted-run.compaction-trigger": draw(st.sampled_from(["2", "3", "5"])),
        "num-levels": draw(st.sampled_from(["3", "6"])),
        "write-only": draw(st.sampled_from(["true", "true", "false"])),
        "dynamic-bucket.target-row-num": "2",
        "manifest.merge-min-count": "2",
    }
    if draw(st.booleans()):
        options["compaction.file-size"] = "1 b"
    sequence: tuple[str, ...] = ()
    if engine != "first-row":
        sequence = draw(st.sampled_from([(), (), ("s",), ("s", "h"), ("g", "s"), ("a",)]))
    is_ascending = draw(st.booleans()) if sequence else True
    if sequence:
        options["sequence.field"] = ",".join(sequence)
        options["sequence.field.sort-order"] = "ascending" if is_ascending else "descending"
    groups: list[SequenceGroup] = []
    if engine == "partial-update":
        of = st.sampled_from([(), ("g",), ("g", "h"), ("h", "g")])
        first = draw(of)
        members = list(draw(st.permutations(["a", "n", "t", "l"])))
        if first:
            groups.append(SequenceGroup(first, tuple(members[: draw(st.integers(1, 3))])))
        if len(first) == 1 and draw(st.booleans()):
            taken = len(groups[0].columns)
            groups.append(SequenceGroup(("h",), tuple(members[taken : taken + draw(st.integers(1, 2))])))
    removing = ignore = False
    if engine != "deduplicate" or not sequence or draw(st.booleans()):
        ignore = engine == "first-row" or draw(st.booleans())
    if not ignore and engine in ("partial-update", "aggregation") and not groups:
        removing = draw(st.booleans())
    if groups and not ignore and draw(st.booleans()):
        chosen = draw(st.sampled_from(range(len(groups))))
        groups[chosen] = SequenceGroup(groups[chosen].sequence, groups[chosen].columns, True)
        options["partial-update.remove-record-on-sequence-group"] = groups[chosen].sequence[-1]
    for group in groups:
        options[f"fields.{','.join(group.sequence)}.sequence-group"] = ",".join(group.columns)
    if ignore:
        named = [] if engine == "aggregation" else [f"{engine}.ignore-delete"]
        options[draw(st.sampled_from(["ignore-delete", *named]))] = "true"
    if removing:
        options[f"{engine}.remove-record-on-delete"] = "true"
    rules = draw(aggregations(engine, columns, sequence, groups, removing, options))
    if engine == "deduplicate" or ignore or (engine == "partial-update" and removing):
        kinds = tuple(KINDS)
    elif engine == "aggregation" and removing:
        kinds = ("+I", "+U", "-D")
    elif (groups or engine == "aggregation") and all(r.ignore_retract or r.function in CAN_RETRACT for r in rules):
        kinds = tuple(KINDS)
    else:
        kinds = ("+I", "+U")
    if draw(st.booleans()):
        kinds = ("+I", "+U")
    marked = engine != "first-row" and draw(st.sampled_from([False, False, True]))
    producers = ["none", "lookup"] if engine == "first-row" else ["none", "input", "lookup", "full-compaction"]
    producer = draw(st.sampled_from([p for p in producers if not (marked and p == "full-compaction")]))
    options["changelog-producer"] = producer
    if marked:
        options |= {"deletion-vectors.enabled": "true", "write-only": "false"}
    elif producer in ("none", "input") and draw(st.sampled_from([False, False, True])):
        options["force-lookup"] = "true"
    if draw(st.booleans()):
        options["data-file.thin-mode"] = "true"
    if "-U" in kinds and draw(st.booleans()):
        options["ignore-update-before"] = "true"
    return Case(
        MergeSpec(
            ("id",),
            MergeEngine(engine),
            sequence,
            is_ascending,
            ignore,
            removing,
            aggregations=tuple(rules),
            groups=tuple(groups),
        ),
        columns,
        options,
        kinds,
        partitioned=draw(st.booleans()),
        thin="data-file.thin-mode" in options,
        # A default function is that of the column of kinds, too.
        kind_column="fields.default-aggregate-function" not in options and draw(st.sampled_from([False, False, True])),
    )


@st.composite
def aggregations(draw, engine, columns, sequence, groups, removing, options):  # type: ignore[no-untyped-def]
    if engine not in ("partial-update", "aggregation"):
        return []
    inside = {c for group in groups for c in group.columns}
    orders = {c for group in groups for c in group.sequence}
    default = draw(st.sampled_from([None, None, *OF_ANY])) if engine == "aggregation" else None
    if engine == "partial-update" and inside:
        free = {*columns} - inside - orders
        default = draw(st.sampled_from([None, "last_non_null_value"] + ([] if free else [*OF_ANY])))
    if default:
        options["fields.default-aggregate-function"] = default
    rules = []
    for column in columns:
        if column in orders or (engine == "partial-update" and column not in inside):
            continue
        if column in sequence and engine == "aggregation":
            continue
        own = None if column in sequence else draw(st.none() | st.sampled_from(FUNCTIONS[column]))
        function = own or default
        if own:
            options[f"fields.{column}.aggregate-function"] = own
        ignores = not removing and draw(st.booleans())
        if ignores:
            options[f"fields.{column}.ignore-retract"] = "true"
        distinct = function in ("listagg", "collect") and draw(st.booleans())
        if distinct:
            options[f"fields.{column}.distinct"] = "true"
        if function or (engine == "aggregation" and ignores):
            rules.append(Aggregation(column, function or "last_non_null_value", ignores, distinct))
    return rules


@dataclass
class World:
    """A table, its model, and what is to be compared."""

    case: Case
    table: Table
    folder: Path
    numbers: int = 0
    history: list[dict] = field(default_factory=list)
    settled: dict[tuple, dict] = field(default_factory=dict)  # With deletion vectors: the merged row of each key.
    told_at: dict[int, dict] = field(
        default_factory=dict
    )  # Snapshots -> rows there, where changelogs tell all of them.

    def merged(self, rows: list[dict]) -> list[dict]:
        """Rows of keys within partitions."""
        parts = defaultdict(list)
        for row in rows:
            parts[row.get("p")].append({name: value for name, value in row.items() if name != "p"})
        return [
            {"p": part, **row} if self.case.partitioned else row
            for part, own in parts.items()
            for row in row_model.merge(own, self.case.spec, NUMBERS)
        ]

    def key(self, row: dict) -> tuple:
        return tuple(row[name] for name in self.case.key)

    # --- what stands in files ---

    def stored(self) -> list[dict]:
        """The rows of all files as they stand, each with its place."""
        files = self.table.inspect.files().to_pylist()
        found = []
        for file in files:
            for row in pq.ParquetFile(self.folder / file["path"]).read().to_pylist():
                own = {name: row[name] for name in (*self.case.key, *self.names, *SYSTEM)}
                place = {"path": file["path"], "level": file["level"], "bucket": (file["partition"], file["bucket"])}
                found.append(own | {"at": place})
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.case.columns, "k") if self.case.kind_column else self.case.columns

    def lowest(self, rows: list[dict]) -> list[dict]:
        """Where compactions look up, of the rows above level 0 those of the lowest level."""
        if not self.case.looks_up:
            return rows
        least: dict[tuple, int] = {}
        for row in rows:
            if row["at"]["level"]:
                least[self.key(row)] = min(least.get(self.key(row), 99), row["at"]["level"])
        return [r for r in rows if r["at"]["level"] in (0, least.get(self.key(r)))]

    def one_of_each(self, rows: list[dict]) -> dict[tuple, dict]:
        plain = [{name: value for name, value in row.items() if name != "at"} for row in rows]
        merged = self.merged(plain)
        return {self.key(row): row for row in merged}

    # --- steps ---

    def write(self, rows: list[dict], missing: set[str]) -> None:
        for row in rows:
            row.update(dict.fromkeys(missing))
        schema = self.table.scan().schema
        fields = [f.with_nullable(True) for f in schema if f.name not in missing]
        if not self.case.kind_column:
            fields.append(pa.field("rowkind", pa.string()))
        before = self.stored()
        self.table.upsert(
            pa.Table.from_pylist([{**r, "rowkind": r["kind"], "k": r["kind"]} for r in rows], pa.schema(fields))
        )
        given = []
        for row in rows:
            self.numbers += 1
            values = {name: row.get(name) for name in (*self.case.key, *self.case.columns)}
            values |= {"k": row["kind"]} if self.case.kind_column else {}
            given.append(values | {"_SEQUENCE_NUMBER": self.numbers, "_VALUE_KIND": KINDS.index(row["kind"])})
        if "ignore-update-before" in self.case.options:
            given = [row for row in given if row["_VALUE_KIND"] != KINDS.index("-U")]
        self.history += given
        given = [r for r in given if not (self.case.spec.ignore_delete and r["_VALUE_KIND"] in (1, 3))]
        buffered = self.merged(given)
        if self.case.marked:
            for row in buffered:
                key = self.key(row)
                under = [self.settled.pop(key)] if key in self.settled else []
                (row,) = self.merged([*under, row])
                if row["_VALUE_KIND"] in (0, 2):
                    self.settled[key] = row
        elif self.case.options["write-only"] == "true":
            known = {row["at"]["path"] for row in before}
            after = self.stored()
            new = [row for row in after if row["at"]["path"] not in known]
            assert self.told_rows(new) == self.told_rows(buffered)
            assert all(row["at"]["level"] == 0 for row in new)
            kept = [row for row in after if row["at"]["path"] in known]
            assert kept == before

    def told_rows(self, rows: list[dict], kinds: bool = True) -> list:
        """Rows without their numbers, comparable."""
        return sorted(
            (
                [
                    self.key(row),
                    row["_VALUE_KIND"] if kinds else 0,
                    *(self.shown(name, row[name]) for name in self.names),
                ]
                for row in rows
            ),
            key=str,
        )

    def shown(self, name: str, value: Any) -> Any:
        is_set = any(aggregation.distinct and aggregation.column == name for aggregation in self.case.spec.aggregations)
        return sorted(value) if is_set and isinstance(value, list) else value

    def compact(self, full: bool) -> None:
        before = self.stored()
        self.table.compact(full=full)
        if self.case.marked:
            return
        after = self.stored()
        if (
            self.case.keeps_first
        ):  # What is above level 0 is read without merging, and rows that came late are left out.
            assert all(row["at"]["level"] > 0 for row in after)
            assert self.told_rows(after, False) == self.told_rows(list(self.one_of_each(before).values()), False)
            return
        had, has = ({row["at"]["path"] for row in rows} for rows in (before, after))
        added = [row for row in after if row["at"]["path"] not in had]
        taken = [row for row in before if row["at"]["path"] not in has]
        keys = {self.key(row) for row in taken}
        if self.case.looks_up:
            taken = [row for row in self.lowest(before) if self.key(row) in keys]
        expected = self.one_of_each(taken)
        found = {self.key(row): row for row in added}
        assert len(found) == len(added)
        left = {self.key(row) for row in after if row["at"]["path"] in had}
        for key, row in expected.items():
            if row["_VALUE_KIND"] in (0, 2):
                assert key in found, key
            elif key not in found and not self.case.looks_up:
                assert key not in left, key
        assert self.told_rows(list(found.values())) == self.told_rows([expected[key] for key in found])
        if full:
            assert all(row["_VALUE_KIND"] in (0, 2) and row["at"]["level"] > 0 for row in after)

    # --- comparing ---

    def expected(self) -> dict[tuple, dict]:
        if self.case.marked:
            return self.settled
        rows = self.stored()
        if self.case.keeps_first:
            rows = [row for row in rows if row["at"]["level"]]
            assert len({self.key(row) for row in rows}) == len(rows)
        rows = self.one_of_each(self.lowest(rows))
        return {key: row for key, row in rows.items() if row["_VALUE_KIND"] in (0, 2)}

    def check(self, data: Any) -> None:
        expected = self.expected()
        names = [*self.case.key, *self.names]
        rows = {key: {n: self.shown(n, row[n]) for n in names} for key, row in expected.items()}
        found = self.table.scan().to_arrow().to_pylist()
        assert self.by_key(found) == rows
        assert self.table.scan().count() == len(rows)
        waits = self.case.keeps_first and any(row["at"]["level"] == 0 for row in self.stored())
        if self.case.is_associative and not waits:
            merged = [row for row in self.merged(self.history) if row["_VALUE_KIND"] in (0, 2)]
            assert self.told_rows(merged, False) == self.told_rows(list(expected.values()), False)
        chosen = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=3), label="columns")
        where = data.draw(st.sampled_from([None, *FILTERS]), label="where")
        shown = [name for name in names if name in chosen]
        hits = [row for row in rows.values() if where is None or FILTERS[where](row)]
        part = self.table.scan(columns=shown, where=where).to_arrow().to_pylist()
        part = [{n: self.shown(n, v) for n, v in row.items()} for row in part]
        assert sorted(map(str, part)) == sorted(str({n: row[n] for n in shown}) for row in hits), (shown, where)
        assert self.table.scan(where=where).count() == len(hits)
        self.check_changes(rows)

    def by_key(self, rows: list[dict]) -> dict[tuple, dict]:
        found = {self.key(row): {n: self.shown(n, v) for n, v in row.items()} for row in rows}
        assert len(found) == len(rows)
        return found

    def check_changes(self, rows: dict[tuple, dict]) -> None:
        now = self.table.current_snapshot()
        if now is None:
            return
        there = {snapshot.id for snapshot in self.table.snapshots()}
        levels = self.table.inspect.files()["level"].to_pylist()
        spec = self.case.spec
        plain = spec.engine == "deduplicate" and not spec.sequence
        if (self.case.tells and 0 in levels) or not (self.case.tells or (plain and not self.case.marked)):
            return
        for since, earlier in self.told_at.items():
            if since in there or since == 0:
                if since == 0 and 1 not in there:
                    continue
                assert self.replayed(since, earlier) == rows, since
        self.told_at[now.id] = rows

    def replayed(self, since: int, rows: dict[tuple, dict]) -> dict[tuple, dict]:
        held, gone = dict(rows), {}
        for row in self.table.changes(since).to_arrow().to_pylist():
            kind = row.pop("_row_kind")
            row = {n: self.shown(n, v) for n, v in row.items()}
            key = self.key(row)
            if not self.case.tells:
                held.pop(key, None)
                if kind in ("+I", "+U"):
                    held[key] = row
                continue
            match kind:
                case "+I":
                    assert key not in held, key
                    held[key] = row
                case "-D":
                    assert held.pop(key) == row, key
                case "-U":
                    assert held[key] == row, key
                    gone[key] = held.pop(key)
                case "+U":
                    assert gone.pop(key) is not None
                    held[key] = row
        assert not gone
        return held


def made(case: Case, folder: Path) -> World:
    fields = [pa.field("id", pa.int64(), False)]
    fields += [pa.field("p", pa.string(), False)] if case.partitioned else []
    fields += [pa.field(name, TYPES[name]) for name in case.columns]
    options = dict(case.options)
    if case.kind_column:
        fields.append(pa.field("k", pa.string()))
        options["rowkind.field"] = "k"
    lake = Lake(str(folder), fsync="false")
    table = lake.create_table(
        "d.t",
        pa.schema(fields),
        format="paimon",
        partition_by=["p"] if case.partitioned else [],
        primary_key=list(case.key),
        properties=options,
    )
    world = World(case, table, folder / "d.db" / "t")
    world.told_at[0] = {}
    return world


@st.composite
def batches(draw: Any, case: Case) -> tuple[list[dict], set[str]]:
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.integers(0, 3),
                    "p": st.sampled_from("xy"),
                    "kind": st.sampled_from(case.kinds),
                    **VALUES,
                }
            ),
            min_size=1,
            max_size=6,
        )
    )
    missing = draw(st.sets(st.sampled_from(case.columns), max_size=2))
    return rows, missing


@settings(
    max_examples=int(os.environ.get("LAKEFORMAT_EXAMPLES", "6")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    database=None,
    derandomize="LAKEFORMAT_EXAMPLES" not in os.environ,  # `make test` repeats itself; `make test-long` draws anew.
)
@given(data=st.data(), case=cases())
def test_options_of_merging_together(tmp_path_factory: Any, data: Any, case: Case) -> None:
    note(str(case.options))
    world = made(case, tmp_path_factory.mktemp("world"))
    for _ in range(data.draw(st.integers(1, 6), label="steps")):
        step = data.draw(st.sampled_from(["write", "write", "write", "compact", "full", "expire"]), label="step")
        if step == "write":
            world.write(*data.draw(batches(case), label="rows"))
        elif step == "expire":
            world.table.expire_snapshots(retain_last=data.draw(st.integers(1, 3)))
        else:
            world.compact(step == "full")
        world.check(data)
