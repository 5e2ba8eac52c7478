"""sql: statements from the arguments, a file, or a prompt with history and completion."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.text import Text

from lakeformat import InvalidInput, LakeError, NotFound
from lakeformat.cli.session import Session
from lakeformat.cli.warehouses import user_file

if TYPE_CHECKING:
    from lakeformat import Lake

_SHOWN = 1000  # Rows on a terminal.
_ENDED = re.compile(r";\s*(--[^\n]*\s*)?\Z")


class Answers(NamedTuple):
    """What statements take, and how their rows are shown."""

    parameters: dict[str, str]
    folders: tuple[str, ...]
    limit: int | None
    as_records: bool


@click.command()
@click.argument("statement", required=False, help="SQL; without it and --file, a prompt.")
@click.option("--file", "-f", type=click.Path(path_type=Path), help="A file of statements; - is standard input.")
@click.option(
    "--param", "-p", "parameter", multiple=True, metavar="NAME=VALUE", help="For `:NAME`, as text; may be repeated."
)
@click.option(
    "--folder", multiple=True, metavar="DIR", help="A folder or URI that COPY INTO may reach; may be repeated."
)
@click.option("--limit", "-n", type=click.IntRange(min=0), help="How many rows; on a terminal 1,000, else all.")
@click.option("--expanded", "-x", is_flag=True, help="One column a line.")
@click.pass_obj
def sql(
    session: Session,
    statement: str | None,
    file: Path | None,
    parameter: tuple[str, ...],
    folder: tuple[str, ...],
    limit: int | None,
    expanded: bool,
) -> None:
    """Run SQL over tables of both formats.

    Every statement of a text answers; JSON and CSV hold the rows of the last.
    """
    if statement is not None and file is not None:
        raise InvalidInput("sql: a statement or a file, not both")
    answers = Answers(dict(_pair(pair) for pair in parameter), folder, limit, expanded)
    if file is not None:
        statement = _read(file)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read()
    if statement is None:
        _prompt(session, answers)
    else:
        _run(session, statement, answers)


def _run(session: Session, text: str, answers: Answers) -> None:
    """Print the rows of each statement; with JSON and CSV, which are one document, those of the last."""
    results = session.lake.sql_script(text, params=answers.parameters or None, folders=answers.folders)
    separator = ""
    for result in results:
        last = result
        if not (session.as_json or session.as_csv):
            print(separator, end="")
            _print(session, result, answers)
            separator = "\n"
    if session.as_json or session.as_csv:
        session.rows(last.to_batches(), answers.limit)


def _print(session: Session, result: Any, answers: Answers) -> None:
    if not result.schema.names:
        print("ok")
        return
    limit = answers.limit if answers.limit is not None or not session.console.is_terminal else _SHOWN
    session.rows(result.to_batches(), limit, answers.as_records)
    if answers.limit is None and limit is not None and len(result) > limit:
        note = f"the first {limit:,} of {len(result):,} rows; --limit shows more"
        session.notes.print(Text(note, style="dim"))


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


def _prompt(session: Session, answers: Answers) -> None:
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
            _run(session, text, answers)
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
