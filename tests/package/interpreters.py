"""The interpreters that there are, by version. `python interpreters.py 3.13` prints the path of one."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

CLASSIFIER = "Programming Language :: Python :: "
PROJECT = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())["project"]
VERSIONS = [
    classifier.removeprefix(CLASSIFIER) for classifier in PROJECT["classifiers"] if classifier.startswith(CLASSIFIER)
]


def interpreters() -> dict[str, str]:
    """The first interpreter of each version: this one, those of `$PYTHONS`, of the path, of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        sys.executable,
        *os.environ.get("PYTHONS", "").split(),
        *filter(None, (shutil.which(f"python{version}") for version in VERSIONS)),
        *map(str, sorted(pyenv.glob("*/bin/python"))),
    ]
    found: dict[str, str] = {}
    for candidate in candidates:
        code = "import sys; print('{}.{}'.format(*sys.version_info))"
        said = subprocess.run(
            [candidate, "-I", "-c", code], capture_output=True, text=True
        )  # A shim of pyenv may fail.
        if said.stdout.strip() in VERSIONS:
            found.setdefault(said.stdout.strip(), candidate)
    return found


if __name__ == "__main__":
    if (path := interpreters().get(sys.argv[1])) is None:
        print(f"no Python {sys.argv[1]} is here; {sys.executable} is tried instead", file=sys.stderr)
    print(path or sys.executable)
