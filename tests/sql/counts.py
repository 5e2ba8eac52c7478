"""What SQL in process can do, counted for docs/sql.md: `python -m tests.sql.counts`."""

from lakeformat.sql.translation import signatures, special
from tests.sql import differential_changes, spark_answers
from tests.sql.test_metadata_tables import ANSWERS


def functions() -> set[str]:
    """The names of functions that run in process."""
    tables = (
        signatures.SCALARS, signatures.AGGREGATES, signatures.WINDOWS, special.SCALARS, special.AGGREGATES,
    )  # fmt: skip
    return {name for table in tables for name in table}


def sentences() -> tuple[str, ...]:
    """The counts as the page has them."""
    runs = [run for _, run in differential_changes.recorded()]
    columns = sum(len(answer["columns"]) for answer in ANSWERS["tables"].values())
    return (
        f"{len(functions())} functions run in process, and {len(spark_answers.load())} calls of functions and "
        "operators have recorded answers of Spark.",
        f"{sum(map(len, runs))} random INSERT, UPDATE, DELETE and MERGE statements, in {len(runs)} runs, have recorded rows of "
        "Iceberg on Spark, or its refusal.",
        f"{len(ANSWERS['tables'])} metadata tables with {columns} columns are compared with recorded answers of the connectors.",
    )


if __name__ == "__main__":
    print("\n".join(sentences()))
