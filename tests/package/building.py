"""Environments, and the wheel and the sdist of a tree."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def environment(folder: Path, interpreter: str = sys.executable) -> str:
    """The Python of a new environment."""
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    return str(folder / "bin" / "python")


def install(python: str, *packages: str) -> None:
    """In the versions that `make test` has; what builds the package, in the newest."""
    constraints = ["--constraint", str(ROOT / "constraints.txt")] if "build" not in packages else []
    # -I: pip would take what is on PYTHONPATH for installed.
    pip = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *constraints, *packages], check=True)


def build(source: Path, folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist in `folder`, each from the tree itself."""
    python = environment(folder / "build")
    install(python, "build", "setuptools>=77", "wheel")
    parts = ["--sdist", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([python, "-m", "build", *parts, str(source)], check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist
