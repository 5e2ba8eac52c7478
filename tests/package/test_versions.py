"""A warehouse of an earlier version is read and written by this one, and the other way round, as docs/scope.md promises.

The earlier version is the last tag; `EARLIER=COMMIT make package` takes another commit.
"""

import json
import os
import subprocess

import pytest

from tests.package.building import ROOT, build, environment, install

WAREHOUSE = ROOT / "tests" / "package" / "warehouse.py"
TAG = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True)
EARLIER = [commit for commit in [os.environ.get("EARLIER") or TAG.stdout.strip()] if commit]


@pytest.fixture(scope="module")
def pythons(built, tmp_path_factory):
    """By version, the Python of an environment that has it."""
    folder = tmp_path_factory.mktemp("versions")
    wheels = {"this": built[0]}
    for commit in EARLIER:
        (folder / "source").mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=archive, check=True)
        wheels[commit] = build(folder / "source", folder / "dist")[0]
    by_version = {}
    for version, wheel in wheels.items():
        by_version[version] = environment(folder / f"python-{version}")
        install(by_version[version], str(wheel))
    return by_version


@pytest.mark.parametrize("earlier", EARLIER)
@pytest.mark.parametrize("is_first", [True, False], ids=["then-this", "this-first"])
def test_two_versions_write_to_one_warehouse(earlier, is_first, pythons, tmp_path):
    first, second = (pythons[earlier], pythons["this"]) if is_first else (pythons["this"], pythons[earlier])

    def run(python: str, step: str) -> str:
        command = [python, str(WAREHOUSE), step, str(tmp_path / "warehouse")]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    run(first, "make")
    assert json.loads(run(second, "show")) == json.loads(run(first, "show"))
    run(second, "go-on")
    rows = json.loads(run(first, "show"))
    assert rows == json.loads(run(second, "show"))
    for name in ("paimon", "iceberg"):
        assert [row["id"] for row in rows[name]] == [4, 5, 7]
        assert [row["id"] for row in rows[f"{name} loaded"]] == [1, 2, 3, 4]
        assert [row["id"] for row in rows[f"{name} audit"]] == [3, 4, 5, 6, 8]
        assert [(row["id"], row["amount"]) for row in rows[f"{name} keyed"]] == [
            (2, 20.5),
            (3, None),
            (4, 4.5),
            (9, 9.5),
        ]
        assert [(row["id"], row["amount"]) for row in rows[f"{name} marked"]] == [(3, None), (4, 5.5)]
