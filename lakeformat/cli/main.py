"""What the console script runs."""

from __future__ import annotations

import gc
import sys

gc.set_threshold(200_000)  # Modules are no garbage: looking for some while they load takes a twentieth of a command.

try:
    from lakeformat.cli.app import run
except ModuleNotFoundError as error:
    if error.name not in {"rich", "click"}:
        raise
    sys.exit(f"lakeformat: the command line needs {error.name}: pip install 'lakeformat[cli]'")


class WithoutPandas:
    """Finds no pandas: no command needs it, and `pa.array` would import it. (None in `sys.modules`, pyarrow takes for the module.)"""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for pandas; leave every other module to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError("no command needs pandas", name=name)


def main() -> None:
    sys.meta_path.insert(0, WithoutPandas)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
