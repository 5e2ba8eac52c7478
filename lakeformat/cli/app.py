"""The command group `lakeformat`, its shared options, and its errors: one line and exit code 2."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from lakeformat import InvalidInput, LakeError, __version__, lazy
from lakeformat.cli.session import Session
from lakeformat.cli.warehouses import chosen

# Each is a module with a function of its name. A call imports the command that it runs, `--help` all.
COMMANDS = {
    name: lazy.library(f"lakeformat.cli.commands.{name}")
    for name in (
        "ls", "show", "log", "diff", "files", "partitions", "why", "head", "count", "sql", "create", "rename", "drop",
        "delete", "compact", "expire", "sweep", "rollback", "tag", "branch", "doctor", "copy", "convert", "cdc", "slot",
    )
}  # fmt: skip


_OUTPUTS = {"--json", "--csv"}


class Commands(click.Group):
    """The commands in the order of `COMMANDS`."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(COMMANDS[name], name)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; an unknown command is answered with those of a similar name."""
        if arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
            close = get_close_matches(arguments[0], COMMANDS, 3, 0.5)
            near = f"; did you mean {' or '.join(close)}?" if close else "; lakeformat --help lists the commands"
            raise click.UsageError(f"No such command {arguments[0]!r}{near}")
        return super().resolve_command(context, arguments)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--warehouse",
    "-w",
    envvar="LAKEFORMAT_WAREHOUSE",
    show_envvar=True,
    help="A path, a URI, or a name in the config file.",
)
@click.option(
    "--catalog", envvar="LAKEFORMAT_CATALOG", show_envvar=True, help="`sql`, a SQLAlchemy URL, or `https://...`."
)
@click.option("--option", "-o", multiple=True, metavar="KEY=VALUE", help="A storage option; may be repeated.")
@click.option(
    "--allowed-location",
    "allowed",
    multiple=True,
    metavar="FOLDER",
    help="Keep to the warehouse and this folder, wherever tables point; may be repeated.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="LAKEFORMAT_CONFIG",
    show_envvar=True,
    help="By default ./lakeformat.toml, then the user's own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header; null is empty, empty text is quoted.")
@click.option("--verbose", "-v", is_flag=True, help="Print the library's log messages.")
@click.version_option(__version__, message="lakeformat %(version)s", help="Print the version.")
@click.pass_context
def lakeformat(
    context: click.Context,
    warehouse: str | None,
    catalog: str | None,
    option: tuple[str, ...],
    allowed: tuple[str, ...],
    config: Path | None,
    as_json: bool,
    as_csv: bool,
    verbose: bool,
) -> None:
    """Read and manage Apache Paimon and Apache Iceberg tables from the shell."""
    logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(message)s", stream=sys.stderr)
    if as_json and as_csv:
        raise InvalidInput("--json or --csv, not both")
    context.obj = Session(
        lambda: chosen(warehouse, catalog, option, allowed, config),
        as_json,
        as_csv,
        lambda name: chosen(name, None, (), allowed, config),
    )


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0; 1 if the command found or left a problem, as `doctor` does;
    2 for an error; 130 if interrupted."""
    as_json = "--json" in arguments
    if wrong := [argument for argument in arguments if not _is_text(argument)]:
        return _failed(f"the argument {wrong[0]!a} is not UTF-8 text; give its bytes in UTF-8", as_json)
    output = [argument for argument in arguments if argument in _OUTPUTS]  # At any position.
    rest = [argument for argument in arguments if argument not in _OUTPUTS] or ["--help"]
    try:
        result = lakeformat.main(args=[*output, *rest], prog_name="lakeformat", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        return _failed(error.format_message(), as_json)
    except LakeError as error:
        return _failed(str(error), as_json)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # The reader closed the pipe: `lakeformat log | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _is_text(argument: str) -> bool:
    """Whether an argument is UTF-8; Python decodes other bytes to surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def _failed(message: str, as_json: bool) -> int:
    line = " ".join(message.split())
    print(json.dumps({"error": line}) if as_json else f"lakeformat: {line}", file=sys.stderr)
    return 2
