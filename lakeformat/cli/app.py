"""The commands under one name, the options they share, and what becomes of errors: one line, and exit code 2."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from lakeformat import LakeError, __version__
from lakeformat.cli import (
    branch,
    cdc,
    compact,
    convert,
    copy,
    count,
    diff,
    doctor,
    expire,
    files,
    head,
    log,
    ls,
    rollback,
    show,
    sql,
    sweep,
    tag,
    why,
)
from lakeformat.cli.session import Session
from lakeformat.cli.warehouses import chosen

_Refused: Any = typer.BadParameter.__mro__[
    2
]  # Click's base of all errors of usage; Typer brings its own copy of Click.

COMMANDS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        ls, show, log, diff, files, why, head, count, sql, compact, expire, sweep, rollback, tag, branch, doctor, copy, convert, cdc
    )
}  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lakeformat {__version__}")
        raise typer.Exit


def shared(
    context: typer.Context,
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse", "-w", envvar="LAKEFORMAT_WAREHOUSE", help="A path, a URI, or a name in the config file."
        ),
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(envvar="LAKEFORMAT_CATALOG", help="`sql`, an address of SQLAlchemy, or `https://...`.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="Of the storage; may be repeated.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(envvar="LAKEFORMAT_CONFIG", help="By default ./lakeformat.toml, then the user's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the library logs.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(message)s", stream=sys.stderr)
    context.obj = Session(lambda: chosen(warehouse, catalog, option or [], config), as_json)


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0, 1 where `doctor` found something, 2 for whatever could not be done."""
    as_json = "--json" in arguments  # Wherever it stands.
    if wrong := [each for each in arguments if not _is_text(each)]:
        return _failed(f"the argument {wrong[0]!a} is not UTF-8 text; give its bytes in UTF-8", as_json)
    rest = [each for each in arguments if each != "--json"] or ["--help"]
    try:
        named = tuple(name for name in COMMANDS if name in rest)
        wanted = tuple(COMMANDS) if not named or {"-h", "--help"} & {*rest} else named
        given = ["--json", *rest] if as_json else rest
        result = _command(wanted).main(args=given, prog_name="lakeformat", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except _Refused as error:
        return _failed(error.format_message(), as_json)
    except LakeError as error:
        return _failed(str(error), as_json)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # `lakeformat log | head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@cache  # Typer makes each command of its signature: those that are not asked for would take longer than `count` does.
def _command(names: tuple[str, ...]) -> Any:
    app = typer.Typer(
        name="lakeformat",
        help="Apache Paimon and Apache Iceberg tables, from the shell.",
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(shared)
    for name in names:
        app.command(name)(getattr(COMMANDS[name], name))
    return typer.main.get_command(app)


def _is_text(argument: str) -> bool:
    """Bytes that are not UTF-8 arrive as surrogates."""
    return not any("\ud800" <= each <= "\udfff" for each in argument)


def _failed(message: str, as_json: bool) -> int:
    line = " ".join(message.split())
    print(json.dumps({"error": line}) if as_json else f"lakeformat: {line}", file=sys.stderr)
    return 2
