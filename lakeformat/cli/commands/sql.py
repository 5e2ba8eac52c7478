"""sql: statements from the arguments, a file, or a prompt with history and completion."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakeformat import InvalidInput, LakeError, NotFound
from lakeformat.cli.session import Session, data_grid
from lakeformat.cli.warehouses import user_file

if TYPE_CHECKING:
    from lakeformat import Lake

_SHOWN = 1000  # Rows.
_ENDED = re.compile(r";\s*(--[^\n]*\s*)?\Z")
_ACROSS = 8  # A single row with more columns is shown as a list.


@click.command()
@click.argument("statement", required=False, help="SQL; without it and --file, a prompt.")
@click.option("--file", "-f", type=click.Path(path_type=Path), help="A file of statements; - is standard input.")
@click.option(
    "--param", "-p", "parameter", multiple=True, metavar="NAME=VALUE", help="For `:NAME`, as text; may be repeated."
)
@click.option(
    "--folder", multiple=True, metavar="DIR", help="A folder or URI that COPY INTO may reach; may be repeated."
)
@click.pass_obj
def sql(
    session: Session, statement: str | None, file: Path | None, parameter: tuple[str, ...], folder: tuple[str, ...]
) -> None:
    """Run SQL over tables of both formats."""
    if statement is not None and file is not None:
        raise InvalidInput("sql: a statement or a file, not both")
    parameters = dict(_pair(pair) for pair in parameter)
    if file is not None:
        statement = _read(file)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read()
    if statement is None:
        _prompt(session, parameters, folder)
    else:
        _run(session, statement, parameters, folder)


def _run(session: Session, text: str, parameters: dict[str, str], folders: tuple[str, ...]) -> None:
    table = session.lake.sql(text, params=parameters or None, folders=folders).to_arrow()
    names = table.column_names
    if session.as_json and len(set(names)) < len(names):
        raise InvalidInput(f"two columns of one name among {', '.join(names)}: JSON holds one; give them names with AS")
    columns = [column.to_pylist() for column in (table if session.as_json else table.slice(0, _SHOWN)).columns]
    rows = list(zip(*columns, strict=True))
    data = [dict(zip(names, row, strict=True)) for row in rows]
    if len(rows) == 1 and len(names) > _ACROSS:
        session.answer(data, lambda: data_grid(("", ""), list(zip(names, rows[0], strict=True))))
    else:
        session.answer(data, lambda: data_grid(names, rows))
    if len(table) > _SHOWN and not session.as_json:
        session.console.print(Text(f"the first {_SHOWN} of {len(table):,} rows", style="dim"))


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"--param {text!r}: write NAME=VALUE")
    return name, value


def _prompt(session: Session, parameters: dict[str, str], folders: tuple[str, ...]) -> None:
    """The prompt: a semicolon ends a statement; an error does not end the prompt."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
    except ModuleNotFoundError:
        raise InvalidInput("the prompt needs prompt_toolkit: pip install 'lakeformat[cli]'") from None
    file = user_file().parent / "lakeformat_history"
    history: Any = InMemoryHistory()
    with suppress(OSError):  # Where no file can be written, the history ends with the prompt.
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        history = FileHistory(str(file))
    words = WordCompleter(_words(session.lake), ignore_case=True, sentence=False, WORD=True)
    prompt: Any = PromptSession(history=history, completer=words, complete_while_typing=False)
    session.console.print(Text("SQL; statements end with a semicolon, Ctrl-D leaves", style="dim"))
    text = ""
    while True:
        try:
            text += prompt.prompt("...> " if text.strip() else "sql> ") + "\n"
        except KeyboardInterrupt:
            text = ""
            continue
        except EOFError:
            return
        if not _ENDED.search(text):
            continue
        try:
            _run(session, text, parameters, folders)
        except LakeError as error:
            session.console.print(Text(str(error), style="red"))
        text = ""


def _words(lake: Lake) -> list[str]:
    """The words to complete: SQL keywords, tables and their columns."""
    words = (
        "SELECT FROM WHERE GROUP BY ORDER LIMIT INSERT INTO OVERWRITE VALUES UPDATE SET DELETE MERGE USING CREATE "
        "TABLE ALTER DROP CALL EXPLAIN SHOW TABLES DESCRIBE"
    )
    offered = words.split()
    try:
        tables = lake.tables()
    except NotFound:  # The warehouse does not exist yet.
        tables = []
    for name in tables:
        offered.append(name)
        try:
            offered += lake.table(name).schema.names
        except LakeError:  # No columns of unreadable tables.
            continue
    return sorted(set(offered))
