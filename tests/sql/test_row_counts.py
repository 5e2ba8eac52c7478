"""What a statement says of the rows that it updated, deleted and inserted: as many as differ, or that it is not known."""

import random

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.engines.arrow import ArrowEngine
from tests.contract.in_parts import Workers, by_parts
from tests.sql.conftest import rows

KINDS = {
    "paimon": ("paimon", {}),
    "paimon-vectors": ("paimon", {"deletion-vectors.enabled": "true"}),
    "paimon-columns": ("paimon", {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}),
    "paimon-key": ("paimon", {"primary-key": "id,p", "bucket": "2", "changelog-producer": "input"}),
    "iceberg-cow": ("iceberg", dict.fromkeys((f"write.{v}.mode" for v in ("delete", "update", "merge")), "copy-on-write")),
    "iceberg-mor": ("iceberg", dict.fromkeys((f"write.{v}.mode" for v in ("delete", "update", "merge")), "merge-on-read")),
    "iceberg-3": (
        "iceberg",
        {"format-version": "3"} | dict.fromkeys((f"write.{v}.mode" for v in ("delete", "update", "merge")), "merge-on-read"),
    ),
}  # fmt: skip
MERGE = """
    MERGE INTO d.t t USING s ON t.id = s.id AND t.p = s.p
    WHEN MATCHED AND s.v = 1 THEN DELETE WHEN MATCHED AND s.v < 8 THEN UPDATE SET v = t.v + s.v + 1000
    WHEN NOT MATCHED AND s.v <> 4 THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.v % 7 = 3 THEN DELETE
"""


def table(tmp_path, kind):
    format, properties = KINDS[kind]
    lake = Lake(tmp_path)
    pairs = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
    lake.sql(
        f"CREATE TABLE d.t (id BIGINT NOT NULL, v INT, p STRING NOT NULL) USING {format} PARTITIONED BY (p)"
        + (f" TBLPROPERTIES ({pairs})" if pairs else "")
    )
    return lake


def counts(result):
    (row,) = result.to_arrow().to_pylist()
    names = ("num_updated_rows", "num_deleted_rows", "num_inserted_rows")
    told = tuple(row[name] for name in names)
    assert row["num_affected_rows"] == (None if None in told else sum(told))
    return told


def differing(before, after):
    """(updated, deleted, inserted) of rows with a key of their own."""
    old, new = ({(id, p): v for id, v, p in found} for found in (before, after))
    updated = sum(old[key] != new[key] for key in old.keys() & new.keys())
    return updated, len(old.keys() - new.keys()), len(new.keys() - old.keys())


def numbered(chance, fresh):
    ids = [*chance.sample(range(60), 12), *fresh]
    return pa.table({"id": ids, "v": [chance.randrange(10) for _ in ids], "p": [f"p{id % 3}" for id in ids]})


def changed(lake, chance, step, spark=None):
    """Run a random statement; (the counts that it tells, those of the rows before and after)."""
    low, part = chance.randrange(60), f"p{chance.randrange(3)}"
    statement = chance.choice(
        [
            MERGE,
            MERGE,
            f"DELETE FROM d.t WHERE v % 10 = {chance.randrange(10)}",
            f"DELETE FROM d.t WHERE p = '{part}' AND id > {low}",
            f"DELETE FROM d.t WHERE id BETWEEN {low} AND {low + 5}",
            f"UPDATE d.t SET v = v + 1000 WHERE id > {low}",
            f"UPDATE d.t SET v = v + 1000 WHERE id IN (SELECT id + 1 FROM s) AND p = '{part}'",
            f"DELETE FROM d.t WHERE p = '{part}'",
            "INSERT INTO d.t SELECT id + 100000, v, p FROM s",
        ]
    )
    statement = statement.replace("100000", str(1000 * (step + 1)))
    staged = numbered(chance, range(100 + 10 * step, 103 + 10 * step))
    before = rows(lake.table("d.t"))
    told = counts(lake.sql(statement, s=staged, spark=spark))
    return statement, told, differing(before, rows(lake.table("d.t")))


def filled(tmp_path, kind):
    lake = table(tmp_path, kind)
    if kind == "paimon-columns":
        lake.sql("ALTER TABLE d.t SET TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO d.t SELECT id, CAST(id % 10 AS INT), concat('p', id % 3) FROM range(60)")
    return lake


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_the_rows_that_differ(tmp_path, kind):
    chance, known = random.Random(kind), 0
    lake = filled(tmp_path, kind)
    for step in range(16):
        statement, told, differing_rows = changed(lake, chance, step)
        for one, other in zip(told, differing_rows, strict=True):
            assert one in (None, other), (kind, statement, told, differing_rows)
        known += None not in told
    assert known >= 10, "most are known"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "paimon-key"])
def test_merges_by_parts_count_too(tmp_path, monkeypatch, kind):
    lake, chance = filled(tmp_path, kind), random.Random(kind)
    lake.sql("DELETE FROM d.t WHERE id % 9 = 4")
    monkeypatch.setattr(ArrowEngine, "stage", by_parts(ArrowEngine.stage, Workers()))
    for step in range(3):
        before = rows(lake.table("d.t"))
        updated, deleted, inserted = counts(lake.sql(MERGE, s=numbered(chance, range(100 + step, 103 + step))))
        expected = differing(before, rows(lake.table("d.t")))
        assert (updated, deleted) == expected[:2]
        assert inserted == expected[2]


@pytest.mark.spark
@pytest.mark.parametrize("limit", [1 << 20, -1])
@pytest.mark.parametrize("kind", ["paimon", "paimon-key", "iceberg-3"])
def test_merges_on_spark_count_too(tmp_path, spark, monkeypatch, kind, limit):
    monkeypatch.setattr("lakeformat.engines.spark.merge._PART_BYTES", limit)
    lake, chance = filled(tmp_path, kind), random.Random(kind)
    lake.sql("DELETE FROM d.t WHERE id % 9 = 4")
    before = rows(lake.table("d.t"))
    told = counts(lake.sql(MERGE, s=spark.createDataFrame(numbered(chance, range(100, 103)))))
    by_join = kind == "paimon-key" and limit < 0
    assert told == ((None, None, None) if by_join else differing(before, rows(lake.table("d.t"))))


@pytest.mark.parametrize("kind", KINDS)
def test_inserts_and_overwrites(tmp_path, kind):
    lake = filled(tmp_path, kind)
    unknown = kind == "paimon-key"  # A row may replace another.
    assert counts(lake.sql("INSERT INTO d.t VALUES (1000, 1, 'p1'), (1001, 2, 'p2')")) == (
        (None, None, None) if unknown else (0, 0, 2)
    )
    overwrite = lake.sql("INSERT OVERWRITE d.t PARTITION (p = 'p1') VALUES (1, 1), (2, 1), (3, 1)")
    assert counts(overwrite) == ((None, None, None) if unknown else (0, 21, 3))
    if kind != "paimon-columns":  # Where no row leaves its file.
        replaced = counts(lake.sql("INSERT INTO d.t REPLACE WHERE p = 'p2' AND id > 3 SELECT 9, 9, 'p2'"))
        assert replaced == ((None, None, None) if unknown else (0, 20, 1))
    assert counts(lake.sql("DELETE FROM d.t WHERE id = 77777")) == (0, 0, 0)
    format = KINDS[kind][0]
    made = lake.sql(f"CREATE TABLE d.copy USING {format} AS SELECT * FROM d.t WHERE p = 'p1'")
    assert counts(made) == (0, 0, 3)


def test_a_statement_that_landed_before_counts_nothing_again(tmp_path):
    lake = filled(tmp_path, "iceberg-mor")
    assert counts(lake.sql("DELETE FROM d.t WHERE id < 5", id="once")) == (0, 5, 0)
    assert counts(lake.sql("DELETE FROM d.t WHERE id < 5", id="once")) == (None, None, None)


def test_rows_that_position_deletes_took_before_are_not_counted_twice(tmp_path):
    lake = filled(tmp_path, "iceberg-mor")
    lake.sql("DELETE FROM d.t WHERE id IN (1, 4, 7)")
    assert counts(lake.sql("DELETE FROM d.t WHERE id < 10 AND p = 'p1'")) == (0, 0, 0)
    lake.sql("ALTER TABLE d.t SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    assert counts(lake.sql("DELETE FROM d.t WHERE id < 20 AND p = 'p1'")) == (0, 4, 0)
    assert counts(lake.sql("DELETE FROM d.t WHERE p = 'p1'"))[1] in (None, 13)


@pytest.mark.parametrize("kind", ["paimon", "iceberg-cow", "iceberg-3"])
def test_an_overwrite_counts_what_others_added_since_it_began(tmp_path, monkeypatch, kind):
    lake = filled(tmp_path, kind)
    if kind == "iceberg-3":
        lake.sql("DELETE FROM d.t WHERE id = 1")  # By a deletion vector.
    written = ArrowEngine.write

    def late(self, *arguments, **named):
        monkeypatch.setattr(ArrowEngine, "write", written)
        lake.sql("INSERT INTO d.t VALUES (1000, 1, 'p1'), (1001, 2, 'p1')")
        return written(self, *arguments, **named)

    monkeypatch.setattr(ArrowEngine, "write", late)
    told = counts(lake.sql("INSERT OVERWRITE d.t PARTITION (p = 'p1') VALUES (1, 1), (2, 1), (3, 1)"))
    assert lake.sql("SELECT count(*) FROM d.t WHERE p = 'p1'").to_arrow().column(0).to_pylist() == [3]
    assert told == (0, None if kind == "iceberg-3" else 22, 3)
