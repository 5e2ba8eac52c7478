"""The entry point of the console script."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from io import TextIOWrapper

gc.set_threshold(200_000)  # Garbage collection during imports costs 5 % of a command.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread per core for linear algebra.

try:
    from lakeformat.cli.app import run
except ModuleNotFoundError as error:
    if error.name not in {"rich", "click"}:
        raise
    sys.exit(f"lakeformat: the command line needs {error.name}: pip install 'lakeformat[cli]'")


class WithoutPandas:
    """A finder that hides pandas, which `pa.array` would import and no command needs. (pyarrow takes None in
    `sys.modules` for the module.)"""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for pandas; leave every other module to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError("no command needs pandas", name=name)


def main() -> None:
    """Run the command of `sys.argv`, and leave without taking the interpreter down, a sixth of a short command."""
    sys.meta_path.insert(0, WithoutPandas)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # A locale other than UTF-8 lacks characters that rows and pictures have.
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
