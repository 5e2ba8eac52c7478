"""Spark's workers: whether they can run the library, and how they get what they lack."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeformat import errors
from lakeformat.engines.spark import session
from lakeformat.errors import InvalidInput, UnsupportedFeature

# The packages that workers import.
MODULES = (
    "pyarrow",
    "numpy",
    "cramjam",
    "fastavro",
    "sqlglot",
    "obstore",
    "tqdm",
    "pyroaring",
)
_DISTRIBUTIONS = (*MODULES, "pandas")  # What is packed for them, with what these need.
_NAME = "lakeformat-packages"  # Of the folder that Spark unpacks the archive to, in a task's working folder.
_PYTHON = "spark.sql.execution.pyspark.python"  # The Python that Spark starts for Arrow functions.
_LEFT_OUT = re.compile(r"(^|/)(tests?|include|__pycache__)/|\.(pyc|pxd|pyx|h|hpp)$")


def ready(spark: SparkSession, pack: str | None = None) -> None:
    """Make the workers of `spark` able to run the library: one task reports what they have, and what they lack is sent.

    Our own code is sent if it is not installed, or another version. With `pack="auto"` so are the packages that it
    needs, those of this process; a path is an archive made by `pack_packages`. Raises `UnsupportedFeature` that names
    what is missing otherwise, and for workers with another minor version of Python or another platform.
    """
    session.require_running(spark)
    session.run_here_as_here(spark)
    state = _probe(spark)
    if state["missing"] and pack is not None:
        _require_like_here(state)
        _send(spark, pack_packages(state["python"]) if pack == "auto" else Path(pack))
        state = _probe(spark)
    if state["missing"]:
        raise UnsupportedFeature(
            f"Spark's workers run Python {state['version']} ({state['python']} on {state['host']}), which lacks "
            f"{', '.join(state['missing'])}: set PYSPARK_PYTHON to one that has them before the session starts, "
            "install lakeformat there, or say lake.attach(spark, pack='auto') to send them what this process has"
        )
    if state["lakeformat"] != _version():
        session.add_to_session(spark)


def pack_packages(python: str = "python3") -> Path:
    """An archive of the packages that workers need, as this process has them, with a script that runs the workers' own
    `python` with them. It is made once for these versions and cached (`XDG_CACHE_HOME`)."""
    distributions = _needed()
    versions = sorted(f"{name}={distribution.version}" for name, distribution in distributions.items())
    key = hashlib.sha256("\n".join([sysconfig.get_platform(), sys.version, python, *versions]).encode()).hexdigest()[
        :16
    ]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakeformat"
    packed = folder / f"packages-{key}.tar.gz"
    if not packed.exists():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=folder)
        start = f'#!/bin/sh\nhere="$(dirname "$0")"\nPYTHONPATH="$here/site:$PYTHONPATH" exec "{python}" "$@"\n'
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
            entry = tarfile.TarInfo("python")
            entry.size, entry.mode = len(start), 0o755
            archive.addfile(entry, BytesIO(start.encode()))
            for distribution in distributions.values():
                _add(archive, distribution)
        os.replace(unfinished, packed)
    return packed


def _add(archive: tarfile.TarFile, distribution: metadata.Distribution) -> None:
    for path in distribution.files or ():
        name = path.as_posix()
        where = Path(str(distribution.locate_file(path)))
        if not name.startswith("..") and not _LEFT_OUT.search(name) and where.is_file():
            archive.add(where, f"site/{name}")


def _needed() -> dict[str, metadata.Distribution]:
    """The packages and their dependencies, by name."""
    distributions: dict[str, metadata.Distribution] = {}
    waiting = list(_DISTRIBUTIONS)
    while waiting:
        name = waiting.pop()
        if name in distributions:
            continue
        try:
            distributions[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # For another version of Python, or an extra that is not used.
        for text in distributions[name].requires or ():
            wanted, _, marker = text.partition(";")
            if "extra" not in marker:
                waiting.append(re.split(r"[^\w.-]", wanted.strip(), maxsplit=1)[0])
    return distributions


def _send(spark: SparkSession, packed: Path) -> None:
    """Have the workers unpack the packages, and run their own Python with them."""
    if not packed.is_file():
        raise InvalidInput(f"pack={str(packed)!r}: there is no such archive; give 'auto', or what pack_packages() made")
    spark.addArtifacts(f"{packed}#{_NAME}", archive=True)
    spark.conf.set(_PYTHON, f"{_NAME}/python")
    session.plan_here(spark)


def _require_like_here(worker: dict[str, Any]) -> None:
    if worker["platform"] != sysconfig.get_platform():
        raise UnsupportedFeature(
            f"Spark's workers are {worker['platform']} ({worker['host']}), and this process is "
            f"{sysconfig.get_platform()}: its packages do not run there; install lakeformat on the workers"
        )


def _version() -> str:
    return str(importlib.import_module(errors.__name__.partition(".")[0]).__version__)


def _probe(spark: SparkSession) -> dict[str, Any]:
    """What one task reports about its worker."""
    probe = F.udf(_probing(MODULES), "string", useArrow=False)  # Without Arrow, which may be missing.
    try:
        (row,) = spark.range(0, 1, 1, 1).select(probe("id")).collect()
    except Exception as error:
        mismatch = re.search(r"PYTHON_VERSION_MISMATCH\]\D*([\d.]+\d)\D+([\d.]+\d)", str(error))
        if mismatch is None:
            raise
        raise UnsupportedFeature(
            f"Spark's workers run Python {mismatch[1]}, and this process {mismatch[2]}: both have to be of the same "
            "minor version; set PYSPARK_PYTHON to the Python that workers are to run before the session starts, or "
            "run this process with theirs"
        ) from error
    document: dict[str, Any] = json.loads(row[0])
    return document


def _probing(modules: tuple[str, ...]) -> Callable[[int], str]:
    """The function that the task runs. It is nested, so that it is pickled as code, not as a name in a module that may
    not exist there."""

    def probe(index: int) -> str:
        import importlib
        import importlib.util
        import json
        import platform
        import sys
        import sysconfig

        version = None
        if importlib.util.find_spec("lakeformat") is not None:
            try:
                version = importlib.import_module("lakeformat").__version__
            except ImportError:  # It is installed, but a dependency is not.
                version = ""
        return json.dumps(
            {
                "version": platform.python_version(),
                "python": sys.executable,
                "platform": sysconfig.get_platform(),
                "host": platform.node(),
                "missing": [module for module in modules if importlib.util.find_spec(module) is None],
                "lakeformat": version,
            }
        )

    return probe
