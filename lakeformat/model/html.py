"""HTML for notebooks: a value as a captioned table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of text under a bold caption; every cell is escaped, None is an empty cell."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{'' if v is None else escape(str(v))}</td>" for v in row)
        + "</tr>"
        for row in rows
    )
    return f"<p><b>{escape(caption)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
