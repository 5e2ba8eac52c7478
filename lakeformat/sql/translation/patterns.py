"""Patterns in a query's text -> DuckDB's: regular expressions of Java, formats of dates and times,
and paths into JSON."""

from __future__ import annotations

import re

LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?$"
_NO_BREAK = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t-\r "}
_ATOM = re.compile(
    r"""(?P<class>\[\^?\]?(?:\\.|[^\[\]\\&])*\])|(?P<letters>\\[dwsDWS])|(?P<escape>\\[^A-Za-z0-9])|(?P<control>\\[tnr])
    |(?P<dot>[.])|(?P<end>\$)|(?P<group>\((?:\?:)?)|(?P<plain>[^\\\[\](){}*+?.$])|(?P<close>[)])|(?P<times>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})[?]?)""",
    re.VERBOSE | re.DOTALL,
)


def regex(pattern: str) -> tuple[str, int] | None:
    """RE2's spelling of a regular expression of Java, and the number of its groups.
    None for what the two read differently."""
    spelt, groups, position, before = "", 0, 0, ""
    while position < len(pattern):
        match = _ATOM.match(pattern, position)
        if match is None:
            return None
        kind, text = match.lastgroup, match[0]
        position = match.end()
        if kind == "times" and before in ("", "times", "open"):  # Possessive, or nothing that repeats.
            return None
        part = _atom(str(kind), text, position == len(pattern))
        if part is None:
            return None
        groups += text == "("
        spelt += part
        before = "open" if kind == "group" or text in ("|", "^") else str(kind)
    return spelt, groups


def is_plain(pattern: str) -> bool:
    """Whether a regular expression matches only its own text."""
    return not re.search(r"[\\\[\](){}*+?.$^|]", pattern)


def replacement(text: str, groups: int) -> str | None:
    """RE2's spelling of a replacement of Java: `$1` is `\\1`. None for named groups and unknown ones."""
    parts = re.findall(r"\\.|[$]\d|[$]|.", text, re.DOTALL)
    if any(part in ("$", "\\") for part in parts) or re.search(r"[$]\d\d", text):
        return None
    if any(part[0] == "$" and int(part[1]) > groups for part in parts):
        return None
    spelt = ["\\" + part[1:] if part[0] == "$" else part[1:] if part[0] == "\\" else part for part in parts]
    return "".join("\\\\" if part == "\\" else part for part in spelt)


_WRITTEN = {
    "yyyy": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m", "dd": "%d", "d": "%-d", "HH": "%H",
    "H": "%-H",
    "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "SSS": "%g", "SSSSSS": "%f", "a": "%p",
    "EEEE": "%A", "EEE": "%a", "EE": "%a", "E": "%a", "DDD": "%j",
}  # fmt: skip
_READ = {
    "yyyy": ("%Y", "[0-9]{4}"),
    "MMMM": ("%B", "[A-Za-z]+"),
    "MMM": ("%b", "[A-Za-z]{3}"),
    "MM": ("%m", "[0-9]{2}"),
    "M": ("%m", "[0-9]{1,2}"),
    "dd": ("%d", "[0-9]{2}"),
    "d": ("%d", "[0-9]{1,2}"),
    "HH": ("%H", "([01][0-9]|2[0-3])"),
    "H": ("%H", "([01]?[0-9]|2[0-3])"),
    "hh": ("%I", "(0[1-9]|1[0-2])"),
    "h": ("%I", "(0?[1-9]|1[0-2])"),
    "mm": ("%M", "[0-5][0-9]"),
    "m": ("%M", "[0-5]?[0-9]"),
    "ss": ("%S", "[0-5][0-9]"),
    "s": ("%S", "[0-5]?[0-9]"),
    "SSS": ("%g", "[0-9]{3}"),
    "SSSSSS": ("%f", "[0-9]{6}"),
    "a": ("%p", "[AP]M"),
}


def written(format: str) -> str | None:
    """The strftime format of a format by which Spark writes a date or a time; None for letters that DuckDB has not."""
    spelt = ""
    for letters, other in _parts(format) or [("", None)]:
        if other is None:
            if letters not in _WRITTEN:
                return None
            spelt += _WRITTEN[letters]
        else:
            spelt += other.replace("%", "%%")
    return spelt


def read(format: str) -> tuple[str, str] | None:
    """The strptime format, and the form as a regular expression, of text that Spark reads by a format. None for a
    format without a year of four digits, with optional parts, or with letters that DuckDB has not."""
    spelt, form, used = "", "", list[str]()
    for letters, other in _parts(format) or [("", None)]:
        if other is not None:
            spelt, form = spelt + other.replace("%", "%%"), form + re.escape(other)
        elif letters not in _READ or letters[0] in used:
            return None
        else:
            used.append(letters[0])
            spelt, form = spelt + _READ[letters][0], form + _READ[letters][1]
    if "y" not in used or ("h" in used) != ("a" in used) or ("H" in used and "h" in used):
        return None
    if (
        ("d" in used and "M" not in used)
        or ("m" in used and not {"h", "H"} & {*used})
        or ("s" in used and "m" not in used)
    ):
        return None
    return (spelt, form) if "S" not in used or "s" in used else None


def json_path(path: str) -> list[str | int] | None:
    """The steps of a path into JSON: names and indexes. None for wildcards and for other spellings."""
    if not re.fullmatch(r"\$(?:[.][A-Za-z_]\w*|\['[^'\\\]]+'\]|\[\d{1,9}\])*", path):
        return None
    steps = re.findall(r"[.](\w+)|\['([^']+)'\]|\[(\d+)\]", path)
    return [int(index) if index else name or quoted for name, quoted, index in steps]


# --- private ----------------------------------------------------------------------------------------------------------


def _atom(kind: str, text: str, is_last: bool) -> str | None:
    match kind:
        case "class":
            return _class(text)
        case "letters":
            return f"[{'^' if text[1].isupper() else ''}{_CLASSES[text[1].lower()]}]"
        case "dot":
            return _NO_BREAK
        case "end":
            return LINE_END if is_last else None
        case _:
            return text


def _class(text: str) -> str | None:
    inner = re.sub(r"\\([dws])", lambda match: _CLASSES[match[1]], text[1:-1])
    if re.search(r"\\[A-Za-mo-qsu-z0-9]", inner) or inner.startswith(("]", "^]")):
        return None
    return f"[{inner}]"


def _parts(format: str) -> list[tuple[str, str | None]] | None:
    """A format as runs of one letter, and as text between them: (letters, None) or ("", text)."""
    if re.search(r"[\[\]{}#]", format) or format.count("'") % 2:
        return None
    parts: list[tuple[str, str | None]] = []
    for match in re.finditer(r"(([A-Za-z])\2*)|('(?:[^']|'')*')|([^A-Za-z'])", format):
        letters, quoted, other = match[1], match[3], match[4]
        if letters:
            parts.append((letters, None))
        else:
            text = other if quoted is None else quoted[1:-1].replace("''", "'") or "'"
            parts.append(("", text))
    return parts
