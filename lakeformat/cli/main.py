"""What the console script runs."""

from __future__ import annotations

import sys

try:
    from lakeformat.cli.app import run
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich", "click"}:
        raise
    sys.exit(f"lakeformat: the command line needs {error.name}: pip install 'lakeformat[cli]'")


def main() -> None:
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]  # No command needs it, and pa.array would import it.
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
