"""The library's log: one event is one line, whatever names, ids and values of the data it tells of."""

from __future__ import annotations

import logging
import re

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def escaped(text: str) -> str:
    """The text with control characters and line breaks as escapes, as `repr` has them."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class _OneLine(logging.Filter):
    """Escapes messages, and indents tracebacks, so that no line of an error looks like another message."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = escaped(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            lines = logging.Formatter().formatException(record.exc_info).split("\n")
            record.exc_text = "\n".join(f"    {escaped(line)}" for line in lines)
        return True


log = logging.getLogger("lakeformat")
log.addFilter(_OneLine())
