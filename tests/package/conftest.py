"""The wheel and the sdist of this tree, as a release builds them, and the interpreters that there are, by version."""

import subprocess
from pathlib import Path

import pytest

from tests.package.building import ROOT, build
from tests.package.interpreters import VERSIONS, interpreters

INTERPRETERS = interpreters()
REPOSITORY = "https://code.example/lakeformat"  # As a release names it.


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    settings = (source / "pyproject.toml").read_text()
    assert 'repository = ""' in settings
    (source / "pyproject.toml").write_text(settings.replace('repository = ""', f'repository = "{REPOSITORY}"'))
    return build(source, folder)


def pytest_terminal_summary(terminalreporter):
    for version in VERSIONS:
        where = INTERPRETERS.get(version, "no interpreter is here, so it was not tried")
        terminalreporter.write_line(f"Python {version}: {where}")
