"""Iceberg's verbs by row in any order, beside a plain list of rows: both modes, both granularities, versions 2 and 3."""

import os
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from lakeformat import Conflict
from lakeformat.commit import commit
from lakeformat.dialects.iceberg import manifest, scan
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines import worker
from lakeformat.model.operation import Request, RowDelta
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.work import Content
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors

dialect = Iceberg()

STEPS = int(os.environ.get("LAKEFORMAT_STEPS", "15"))
SEEDS = int(os.environ.get("LAKEFORMAT_SEEDS", "50")) // 50
PARTITIONS = ("a", "b", None)
VERBS = (
    "append",
    "append",
    "delete",
    "delete",
    "update",
    "keys",
    "overwrite",
    "compact",
    "rewrite",
    "convert",
    "mode",
    "version",
    "drop",
    "branch",
    "branch",
)


def table(seed: int) -> Table:
    found = Table("t", MemoryFiles(f"memory://model-{seed}"), dialect)
    fields = (
        Field(0, "id", scalar(Kind.BIGINT)), Field(1, "v", scalar(Kind.INT)), Field(2, "dt", scalar(Kind.STRING)),
    )  # fmt: skip
    properties = {"commit.manifest.min-count-to-merge": "3"}
    create(found, Schema(fields, identity("dt"), (), properties))
    return found


def delete_keys(t: Table, ids: list[int], dt: str | None) -> None:
    """Equality deletes, as streaming writers make them."""
    store = doors.store(t)
    base = dialect.load(store, dialect.head(store).version())
    field = base.schema.field("id")
    layout = replace(
        base.layout(), fields=(field,), partition_by=(), directory=lambda v, b: "data", stats=(),
        content=Content.EQUALITY_DELETES,
    )  # fmt: skip
    (file,) = worker.write(store, iter([pa.record_batch({"id": pa.array(ids)})]), layout)
    file = replace(file, partition=(dt,), spec_id=0, compared=(field.id,))
    operation = RowDelta(request=Request(id=file.path, branch=t._branch), added=(file,), kind="append", isolation=None)
    commit(store, dialect.head(store), dialect, operation)


@pytest.mark.parametrize("seed", range(max(SEEDS, 1)))
def test_any_order_of_changes_by_row_gives_the_rows_of_a_plain_list(seed: int):
    chance = random.Random(seed)
    t, rows, next_id = table(seed), [], 0
    main, on, line = t, "main", []  # `line`: the snapshots that led to the branch `on`.
    past: dict[int, list] = {}
    elsewhere: dict[str, tuple[list, list]] = {}  # Of other branches the rows, and the snapshots that led there.
    for step in range(2 * STEPS):
        verb, limit, dt = chance.choice(VERBS), chance.randrange(-3, 4), chance.choice(PARTITIONS)
        where = "dt is null" if dt is None else f"dt = '{dt}'"
        match verb:
            case "append" | "overwrite":
                new = [(next_id + i, chance.choice([None, -2, 0, 2]), dt) for i in range(chance.randrange(1, 5))]
                next_id += len(new)
                data = pa.table(list(zip(*new, strict=True)), schema=pa.schema(
                    [("id", pa.int64()), ("v", pa.int32()), ("dt", pa.string())]))  # fmt: skip
                if verb == "overwrite":
                    rows = [r for r in rows if r[2] != dt]
                    t.overwrite_partitions(data)
                else:
                    t.append(data)
                rows = rows + new
            case "delete":
                t.delete(f"v > {limit} and {where}")
                rows = [r for r in rows if not (r[1] is not None and r[1] > limit and r[2] == dt)]
            case "update":
                t.update({"v": "v + 1"}, where=f"v < {limit}")
                rows = [(r[0], r[1] + 1, r[2]) if r[1] is not None and r[1] < limit else r for r in rows]
            case "keys":
                ids = [i for i in range(next_id) if chance.random() < 0.2] or [0]
                delete_keys(t, ids, dt)
                rows = [r for r in rows if not (r[0] in ids and r[2] == dt)]
            case "compact":
                t.compact(full=chance.random() < 0.5)
            case "rewrite":
                t.rewrite_position_deletes(full=True)
            case "convert":
                t.convert_equality_deletes(where=where if chance.random() < 0.3 else None)
            case "mode":
                mode = chance.choice(["copy-on-write", "merge-on-read", "merge-on-read"])
                granularity = {"write.delete.granularity": chance.choice(["file", "partition"])}
                t.alter().set_properties({f"write.{v}.mode": mode for v in ("delete", "update")} | granularity).commit()
            case "version" if chance.random() < 0.3:
                t.alter().set_properties({"format-version": "3"}).commit()
            case "drop":
                t.delete(where)
                rows = [r for r in rows if r[2] != dt]
            case "branch" if past:
                elsewhere[on] = (rows, line)
                match chance.choice(["begin", "go", "go", "forward", "end"]):
                    case "begin":
                        t.create_branch(f"b{step}")
                        elsewhere[f"b{step}"] = (rows, list(line))
                    case "forward" if elsewhere.keys() - {"main"}:
                        to = chance.choice(sorted(elsewhere.keys() - {"main"}))
                        if (elsewhere["main"][1] or [None])[-1] in elsewhere[to][1]:
                            main.fast_forward(to)
                            elsewhere["main"] = (elsewhere[to][0], list(elsewhere[to][1]))
                        else:
                            with pytest.raises(Conflict):
                                main.fast_forward(to)
                    case "end" if gone := sorted(elsewhere.keys() - {"main", on}):
                        main.delete_branch(gone[0])
                        del elsewhere[gone[0]]
                on = chance.choice(sorted(elsewhere))
                t, (rows, line) = main.branch(on), elsewhere.pop(on)
        deletes = manifest.live_entries(doors.store(t), doors.view(t).state, content=manifest.ManifestContent.DELETES)
        marked = deletes.filter(pa.array(scan.is_vector(deletes)))["referenced_data_file"].to_pylist()
        assert len(marked) == len(set(marked)), f"seed {seed}, step {step}: {verb}"
        found = t.scan().to_arrow()
        seen = list(zip(*(found[n].to_pylist() for n in ("id", "v", "dt")), strict=True))
        assert sorted(seen, key=str) == sorted(rows, key=str), f"seed {seed}, step {step}: {verb}"
        assert t.scan().count() == len(rows)
        assert t.scan(where="v >= 0").count() == sum(r[1] is not None and r[1] >= 0 for r in rows)
        if (current := t.current_snapshot()) is not None:
            past[current.id] = sorted(rows, key=str)
            line += [current.id] if current.id not in line else []
        for name, (others, _) in elsewhere.items():
            assert main.branch(name).scan().count() == len(others), f"seed {seed}, step {step}: {verb}, branch {name}"
    for id in chance.sample(sorted(past), min(3, len(past))):
        held = main.scan(snapshot_id=id).to_arrow()
        assert sorted(zip(*(held[n].to_pylist() for n in ("id", "v", "dt")), strict=True), key=str) == past[id]
    main.expire_snapshots(retain_last=1)
    for name, (there, _) in {**elsewhere, on: (rows, line)}.items():
        left = main.branch(name).scan()
        assert left.count() == len(there)
        assert sorted(left.to_arrow()["id"].to_pylist()) == sorted(r[0] for r in there)
