"""Runs the console blocks of a page, as a user would, and compares what is printed."""

import multiprocessing
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from dagster_dg_cli.cli import main

PRELOAD = ["dagster", "dagster.components", "dagster_dg_cli.cli", "lakeformat.dagster"]


def commands(page: Path) -> list[tuple[str, str]]:
    """The commands of a page's console blocks, and what each prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [(line, printed) for line, _, printed in (part.partition("\n") for part in parts)]


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is `expected`, where `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def run(command: str, folder: Path) -> str:
    """What a command prints. `dg` runs in a process that has imported Dagster already, which is most of its time."""
    words = shlex.split(command)
    if words[0] == "dg":
        output = folder.parent / "output"
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(PRELOAD)
        process = server.Process(target=_dg, args=(words, folder, output))
        process.start()
        process.join()
        printed = output.read_text()
        assert process.exitcode == 0, printed
        return printed
    if words[0] == "lakeformat":
        command = command.replace("lakeformat", f"{shlex.quote(sys.executable)} -m lakeformat.cli.main", 1)
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _dg(words: list[str], folder: Path, output: Path) -> None:
    with output.open("w") as file:
        for standard in (1, 2):
            os.dup2(file.fileno(), standard)
    os.chdir(folder)
    os.environ["COLUMNS"] = "120"
    sys.argv = words
    main()
