"""The package's addresses and its README, from one setting: `repository` in `[tool.lakeformat]` of pyproject.toml.

Package indexes show the README alone: its links to files become addresses there, at the tag of the version. Without the
setting, links and pictures of files are left out.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["lakeformat"]["repository"].rstrip("/")
(VERSION,) = re.findall(r'^__version__ = "(.*)"', (ROOT / "lakeformat" / "__init__.py").read_text(), re.MULTILINE)
LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)")


def absolute(link: re.Match[str]) -> str:
    is_picture, text, path = link.groups()
    if not REPOSITORY:
        return "" if is_picture else text
    return f"{is_picture}[{text}]({REPOSITORY}/{'raw' if is_picture else 'blob'}/v{VERSION}/{path})"


ADDRESSES = {
    "Homepage": REPOSITORY,
    "Repository": REPOSITORY,
    "Documentation": f"{REPOSITORY}/blob/v{VERSION}/docs/index.md",
    "Changelog": f"{REPOSITORY}/blob/v{VERSION}/CHANGELOG.md",
}
setup(
    long_description=LINK.sub(absolute, (ROOT / "README.md").read_text()),
    long_description_content_type="text/markdown",
    project_urls=ADDRESSES if REPOSITORY else {},
)
