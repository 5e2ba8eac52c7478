"""The same statements through Paimon's own connector on Spark and through `lake.sql`, in process and on Spark: the same rows after
each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakeformat import Lake
from tests.golden import wire

from .environments import PAIMON_SPARK, jar, script
from .peers import Conversation
from .test_iceberg import counted
from .test_sql import SEED, STEPS, Statements, on_spark

__all__ = ["on_spark"]

TABLES = {
    "append": "CREATE TABLE d.t (id BIGINT, v STRING, n INT, dt STRING) {using}PARTITIONED BY (dt)",
    "primary key": "CREATE TABLE d.t (id BIGINT NOT NULL, v STRING, n INT, dt STRING NOT NULL) {using}PARTITIONED BY (dt) "
    "TBLPROPERTIES ('primary-key' = 'id,dt', 'bucket' = '2')",
    "deletion vectors": "CREATE TABLE d.t (id BIGINT NOT NULL, v STRING, n INT, dt STRING NOT NULL) {using}PARTITIONED BY (dt) "
    "TBLPROPERTIES ('primary-key' = 'id,dt', 'bucket' = '2', 'deletion-vectors.enabled' = 'true')",
}


@dataclass
class OfPaimon(Statements):
    """Statements that Paimon 0.9 runs: its MERGE wants the columns of INSERT from the source, and a source without a target's name."""

    keyed: bool = False

    def change(self) -> str:
        low, dt, one = self.chance.randrange(40), self.chance.choice("abc"), self.chance.choice(self.numbers)
        numbers = ", ".join(self.numbers)
        match self.chance.randrange(13):
            case 0 | 1 | 2:
                return f"INSERT INTO {{t}} VALUES {self._rows()}"
            case 3:
                return f"INSERT INTO {{t}} SELECT id + 100, upper(v), {numbers}, dt FROM {{t}} WHERE {self.where()}"
            case 4:
                return f"INSERT OVERWRITE {{t}} PARTITION (dt = '{dt}') SELECT id + 1, v, {numbers} FROM {{t}} WHERE id < {low} AND dt = '{dt}'"
            case 5:
                return f"INSERT OVERWRITE {{t}} SELECT id, v, {numbers}, dt FROM {{t}} WHERE NOT (id <=> {low})"
            case 6 | 7:
                return f"DELETE FROM {{t}} WHERE {self.where()}"
            case 8:
                return f"DELETE FROM {{t}} WHERE id IN (SELECT max(id) FROM {{t}} WHERE dt = '{dt}')"
            case 9:
                return f"UPDATE {{t}} SET {one} = coalesce({one}, 0) + 1, v = concat(v, '{dt}') WHERE {self.where()}"
            case 10 if not self.keyed:
                return f"UPDATE {{t}} SET dt = '{dt}' WHERE {self.where()}"
            case 10 | 11:
                return self._merge(low)
        return self._alter()

    def _rows(self) -> str:
        """Of different ids: which of two rows of a key is the later, the distribution says."""
        ids = self.chance.sample(range(40), self.chance.randrange(1, 9))
        rows = []
        for id in ids:
            given = [self.chance.choice([str(self.chance.randrange(40)), "NULL"]) for _ in self.numbers]
            rows.append(
                f"({id}, {self.chance.choice([repr(f'v{id}'), 'NULL'])}, {', '.join(given)}, '{self.chance.choice('abc')}')"
            )
        return ", ".join(rows)

    def _merge(self, low: int) -> str:
        names = ", ".join(["id", "v", *self.numbers, "dt"])
        values = ", ".join(["'s' AS v", *(f"{low % 9} AS {number}" for number in self.numbers)])
        source = f"(SELECT id, dt, {values} FROM (SELECT DISTINCT id, dt FROM {{t}} WHERE id >= {low} UNION ALL SELECT {1000 + low}L, 'c'))"
        one = self.chance.choice(self.numbers)
        clauses = [f"WHEN MATCHED AND s.id % 3 = {low % 3} THEN DELETE", f"WHEN MATCHED THEN UPDATE SET {one} = s.id % 100, v = 'm'",
                   f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({names})"]  # fmt: skip
        chosen = [clause for clause in clauses if self.chance.random() < 0.7] or clauses[:1]
        return f"MERGE INTO {{t}} AS t USING {source} AS s ON t.id = s.id AND t.dt = s.dt {' '.join(chosen)}"


@pytest.fixture(scope="module")
def paimon_spark() -> Iterator[Conversation]:
    made = Conversation(
        "Paimon's connector",
        lambda: [
            *script(PAIMON_SPARK, "peer_paimon_spark.py"),
            str(jar("org.apache.paimon", "paimon-spark-3.5", "0.9.0")),
        ],
    )
    yield made
    made.close()


@pytest.mark.parametrize("kind", TABLES)
def test_statements_do_what_they_do_in_paimon_s_own_connector(
    paimon_spark: Conversation, on_spark: Conversation, tmp_path: Path, kind: str
) -> None:
    root = tmp_path / kind.replace(
        " ", "_"
    )  # The engines keep what they know of a path, which another test may have had.
    lake, spark_warehouse, theirs = Lake(root / "here"), str(root / "there"), str(root / "theirs")
    made = OfPaimon(random.Random(kind + SEED), keyed="primary" in TABLES[kind])

    def ask(text: str) -> list[list[Any]]:
        """The rows, by each."""
        whole = text.replace("{t}", "d.t")
        return [
            paimon_spark.ask(verb="run", warehouse=theirs, statements=[whole.replace("{using}", "")])["rows"],
            wire.from_arrow(lake.sql(whole.replace("{using}", "USING paimon ")).to_arrow()),
            on_spark.ask(verb="sql", warehouse=spark_warehouse, text=whole.replace("{using}", "USING paimon "))["rows"],
        ]

    ask("CREATE DATABASE d")
    ask(TABLES[kind])
    for step in range(STEPS // 2):
        text = made.change() if step else f"INSERT INTO {{t}} VALUES {made._rows()}"
        ask(text)
        for each in ("SELECT * FROM {t}", made.query()):
            them, here, there = (counted(found) for found in ask(each))
            assert them == here == there, f"{kind}, step {step}: {text}; then {each}"


def test_statistics_are_those_of_paimon_s_own_connector(paimon_spark: Conversation, tmp_path: Path) -> None:
    """Both analyze one table: the same figures, but for what Java estimates. The connector's planner reads ours."""
    lake = Lake(tmp_path / "w")
    lake.sql(
        "CREATE TABLE d.t (k INT, v STRING, f DOUBLE, day DATE, n DECIMAL(10, 2), b BOOLEAN, x BINARY, l BIGINT) USING paimon"
    )
    lake.sql(
        "INSERT INTO d.t VALUES (1, 'a', 1.5D, DATE '2020-01-01', 1.5, true, X'0102', 1), (2, '', -0.25D, DATE '1969-12-31', -2.25, false, X'', 3),"
        "(3, 'häß', NULL, NULL, NULL, NULL, NULL, NULL), (4, NULL, 1e20D, NULL, 7, NULL, X'01', -9)"
    )

    def analyzed() -> dict[str, Any]:
        path = lake.table("d.t").inspect.statistics()["path"][0].as_py()
        columns: dict[str, Any] = json.loads(Path(path.removeprefix("file://")).read_text())["colStats"]
        return columns

    lake.sql("ANALYZE TABLE d.t COMPUTE STATISTICS FOR ALL COLUMNS")
    own = analyzed()
    told = paimon_spark.ask(
        verb="run", warehouse=str(tmp_path / "w"), statements=["EXPLAIN COST SELECT * FROM d.t WHERE k = 9"]
    )
    assert "rowCount=4" in told["rows"][0][0]
    paimon_spark.ask(
        verb="run",
        warehouse=str(tmp_path / "w"),
        statements=["ANALYZE TABLE d.t COMPUTE STATISTICS FOR ALL COLUMNS", "SELECT 1"],
    )
    theirs = analyzed()
    assert len(lake.table("d.t").snapshots()) == 3
    assert own == theirs
