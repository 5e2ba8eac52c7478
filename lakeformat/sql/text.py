"""SQL text: its tokens with offsets, its statements, and a cursor that reads one statement from left to right."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokens import Token, TokenType

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import sql_text
from lakeformat.expression.sql_text import doubled_quotes
from lakeformat.model.dataclass import dataclass

DOLLAR = "\ue000"  # Replaces the `$` of `t$snapshots`, one character by one: sqlglot would read it as a parameter.
_QUESTION, _QUESTIONS = 0xE100, 0x1700  # Private-use characters that replace the first `?`, the second ...

OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
NO_STATEMENT = "the text of sql(...) has no statement; write e.g. SELECT 1"
_TEXTS = {TokenType.STRING, TokenType.RAW_STRING}
_QUOTED = {TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.HINT}


class _Tokenizer(Spark.Tokenizer):
    """sqlglot's tokenizer for Spark, which here also tokenizes the words after CALL, EXPLAIN and SHOW."""

    COMMANDS: ClassVar[set[Any]] = set()


@dataclass(frozen=True, slots=True)
class Script:
    """The user's text. `text` has the length of `original`;
    only spellings that sqlglot misreads are replaced, in place."""

    original: str
    text: str
    tokens: tuple[Token, ...]

    def position(self, offset: int) -> str:
        """Line and column of an offset, both from 1."""
        before = self.original[: max(offset, 0)]
        return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"

    def invalid(self, offset: int, message: str) -> InvalidInput:
        return InvalidInput(f"SQL at {self.position(offset)}: {message}")

    def unsupported(self, offset: int, message: str) -> UnsupportedFeature:
        return UnsupportedFeature(f"SQL at {self.position(offset)}: {message}")

    @property
    def question_marks(self) -> int:
        """How many `?` there are."""
        return sum(token.token_type is TokenType.VAR and question_mark(token.text) is not None for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a script, or several parts joined. `places` maps offsets in `text` to offsets in the script."""

    script: Script
    text: str
    places: tuple[tuple[int, int], ...]  # (offset in `text`, offset in the script), ascending

    @classmethod
    def cut(cls, script: Script, start: int, end: int) -> Piece:
        return cls(script, script.text[start:end], ((0, start),))

    @classmethod
    def join(cls, script: Script, parts: Sequence[str | Piece]) -> Piece:
        """Join pieces of the script with SQL text of our own between them."""
        text, places = "", []
        for part in parts:
            if isinstance(part, Piece):
                places += [(len(text) + at, origin) for at, origin in part.places]
                text += part.text
            else:
                text += part
        return cls(script, text, tuple(places) or ((0, 0),))

    def part(self, start: int, end: int) -> Piece:
        """The piece's text from `start` to `end`."""
        inside = ((at - start, origin) for at, origin in self.places if start < at < end)
        return Piece(self.script, self.text[start:end], ((0, self.origin(start)), *inside))

    def origin(self, offset: int) -> int:
        """The offset in the script for an offset in `text`."""
        index = next((i for i in reversed(range(len(self.places))) if self.places[i][0] <= offset), 0)
        at, origin = self.places[index]
        position = origin + max(offset - at, 0)
        # Text of our own between two pieces has no place; that of a function's body is at the call.
        following = self.places[index + 1][1] if index + 1 < len(self.places) else position
        return min(position, following) if following >= origin else position


def read(original: str) -> Script:
    """Tokenize a script. Raises `InvalidInput` if that fails, e.g. for an unclosed quote."""
    if not isinstance(original, str):
        raise InvalidInput(f"sql({original!r}): give SQL text")
    if any(c == DOLLAR or question_mark(c) is not None for c in original):
        raise InvalidInput("SQL with characters of Unicode's private use area; pass them as a parameter")
    if not original.strip():
        raise InvalidInput(NO_STATEMENT)
    tokens = _tokenize(original)
    changed = list(original)
    for here, after in itertools.pairwise(tokens):
        if here.token_type is TokenType.PARAMETER and here.text == "$" and after.start == here.end + 1:
            changed[here.start] = DOLLAR
    for token in tokens:
        if token.token_type is TokenType.PARAMETER and token.text == "@":  # sqlglot reads it as an alias.
            script = Script(original, original, tuple(tokens))
            raise script.unsupported(
                token.start, "@, Delta's time travel; write t VERSION AS OF 1 or TIMESTAMP AS OF '...'"
            )
    for offset in doubled_quotes(original, tokens):
        changed[offset] = "\\"
    marks = [token for token in tokens if token.token_type is TokenType.PLACEHOLDER]
    if len(marks) > _QUESTIONS:
        raise InvalidInput(f"SQL with {len(marks)} parameters; at most {_QUESTIONS} are taken")
    for index, mark in enumerate(marks):
        changed[mark.start] = chr(_QUESTION + index)
    _spell_time_travel(tokens, changed)
    text = "".join(changed)
    script = Script(original, text, tuple(_tokenize(text) if text != original else tokens))
    for statement in statements(script):
        _require_operands(statement)
    return script


def question_mark(text: str) -> int | None:
    """The index, from 0, of the `?` that a name stands for."""
    index = ord(text) - _QUESTION if len(text) == 1 else -1
    return index if 0 <= index < _QUESTIONS else None


def statements(script: Script) -> Iterator[Cursor]:
    """The statements, separated by `;`."""
    here: list[Token] = []
    for token in script.tokens:
        if token.token_type is not TokenType.SEMICOLON:
            here.append(token)
        elif here:
            yield Cursor(script, here)
            here = []
    if here:
        yield Cursor(script, here)


@dataclass(slots=True)
class Cursor:
    """One statement's tokens and the reading position."""

    script: Script
    tokens: Sequence[Token]
    at: int = 0

    # --- looking ---

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    @property
    def offset(self) -> int:
        """The offset of the next token, or of the statement's end."""
        return self.tokens[self.at].start if not self.done else self.tokens[-1].end + 1

    @property
    def kind(self) -> TokenType | None:
        """The type of the next token; None at the end."""
        return None if self.done else self.tokens[self.at].token_type

    @property
    def end(self) -> int:
        """The offset of the statement's end."""
        return self.tokens[-1].end + 1

    def word(self, ahead: int = 0) -> str:
        """The next token in upper case; "" for quoted text and past the end."""
        index = self.at + ahead
        if index >= len(self.tokens):
            return ""
        token = self.tokens[index]
        return "" if token.token_type in _QUOTED or token.token_type is TokenType.IDENTIFIER else token.text.upper()

    def peek(self, *words: str) -> bool:
        """Whether these words come next."""
        return all(self.word(i) == word for i, word in enumerate(self._apart(words)))

    # --- reading ---

    def take(self, *words: str) -> bool:
        """Read these words if they come next."""
        words = tuple(self._apart(words))
        if not self.peek(*words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            self.fail(f"expected {' '.join(words)}")

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise `InvalidInput` here, showing what was found."""
        here = self.script.original[self.offset : self.end][:40].split("\n")[0] if not self.done else "the end"
        raise self.script.invalid(self.offset if offset is None else offset, f"{message}, found {here!r}")

    def refuse(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise `UnsupportedFeature` here."""
        raise self.script.unsupported(self.offset if offset is None else offset, message)

    def close(self) -> None:
        """Raise if tokens are left."""
        if not self.done:
            self.fail("expected the end of the statement")

    def part(self) -> str:
        """One name: a word, or in backquotes."""
        if self.done:
            self.fail("expected a name")
        token = self.tokens[self.at]
        if token.token_type is TokenType.IDENTIFIER:
            self.at += 1
            return token.text
        if token.token_type in _QUOTED or not _is_word(token.text):
            self.fail("expected a name")
        self.at += 1
        return token.text.replace(DOLLAR, "$")

    def path(self) -> tuple[str, ...]:
        """A dotted name: `db.t`, or a column's `a.b.c`."""
        parts = [self.part()]
        while self.take("."):
            parts.append(self.part())
        return tuple(parts)

    def string(self) -> str:
        """A quoted text; adjacent ones are joined."""
        if self.kind not in _TEXTS:
            self.fail("expected text in quotes")
        value = ""
        while self.kind in _TEXTS:
            value += self.tokens[self.at].text
            self.at += 1
        return value

    def number(self) -> int:
        """An integer."""
        negative = self.take("-")
        if self.kind is not TokenType.NUMBER or not self.tokens[self.at].text.isdecimal():
            self.fail("expected a whole number")
        self.at += 1
        return (-1 if negative else 1) * int(self.tokens[self.at - 1].text)

    def listed(self, item: Callable[[], Any]) -> list[Any]:
        """Items in parentheses, separated by commas."""
        self.expect("(")
        items: list[Any] = []
        while not self.take(")"):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def like(self, names: Sequence[str]) -> list[str]:
        """The names that `[LIKE] 'pattern'` at the statement's end chooses; all without one."""
        self.take("LIKE")
        if self.done:
            return list(names)
        kept = matching(self.string(), names)
        self.close()
        return kept

    def until(self, *stops: str) -> Piece:
        """The text before one of these words (outside parentheses and CASE), or before the end."""
        start, depth, first = self.offset, 0, self.at
        while not self.done and (depth or self.word() not in stops):
            token = self.tokens[self.at]
            depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
            if depth < 0:
                break
            self.at += 1
        if self.at == first:
            self.fail("expected an expression")
        return Piece.cut(self.script, start, self.tokens[self.at - 1].end + 1)

    def enclosed(self) -> Piece:
        """The text inside the parentheses that come next."""
        self.expect("(")
        piece = self.until()
        self.expect(")")
        return piece

    def rest(self) -> Piece:
        piece = Piece.cut(self.script, self.offset, self.end)
        self.at = len(self.tokens)
        return piece

    @staticmethod
    def _apart(words: Sequence[str]) -> list[str]:
        return [word for phrase in words for word in phrase.split(" ")]


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that a pattern matches, in any case: `*` matches any text, `|` separates patterns, as in Spark."""
    patterns = [part.strip().casefold() for part in pattern.replace("%", "*").split("|")]
    return [name for name in names if any(fnmatch.fnmatchcase(name.casefold(), part) for part in patterns)]


def tokens(piece: Piece) -> list[Token]:
    """A piece's tokens, with offsets in its own text."""
    return _tokenize(piece.text)


def parse(piece: Piece, kind: str = "query", dialect: Any = None) -> Any:
    """Parse a piece to sqlglot's tree. Raises `InvalidInput` with the place in the script."""
    try:
        trees = sqlglot.parse(_without_versions(piece), read=dialect or sql_text.spark())
    except (ParseError, TokenError) as error:
        raise _misread(piece, error, kind) from error
    except (SqlglotError, LookupError, AttributeError, TypeError, ValueError) as error:
        raise piece.script.invalid(piece.origin(0), f"this {kind} cannot be read: {error}") from error
    except RecursionError as error:
        raise piece.script.invalid(piece.origin(0), f"this {kind} is nested too deeply") from error
    if len(trees) != 1 or trees[0] is None:
        raise piece.script.invalid(piece.origin(0), f"expected one {kind}")
    return trees[0]


TIMES = frozenset({"TIMESTAMP", "VERSION"})


def version_end(tokens: Sequence[Token], start: int) -> int:
    """The index behind the `VERSION | TIMESTAMP AS OF expression` that begins at an index;
    the index itself if none does."""
    if start + 3 >= len(tokens) or tokens[start].token_type in (TokenType.IDENTIFIER, *_QUOTED):
        return start
    words = [token.text.upper() for token in tokens[start : start + 3]]
    if words[0] not in TIMES or words[1:] != ["AS", "OF"]:
        return start
    end = _operand_end(tokens, start + 3)
    while words[0] == "TIMESTAMP" and end < len(tokens) and tokens[end].token_type in _ARITHMETIC:
        end = _operand_end(tokens, end + 1)
    return end


def expression(piece: Piece) -> Any:
    """sqlglot's tree of an expression."""
    select = parse(Piece.join(piece.script, ["SELECT ", piece]), "expression")
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or set(_set_keys(select)) != {"expressions"}:
        raise piece.script.invalid(piece.origin(0), "expected one expression")
    projection = select.expressions[0]
    if isinstance(projection, exp.Alias | exp.Star):
        raise piece.script.invalid(piece.origin(0), "expected an expression without an alias")
    return projection


def requalified(node: Any, sides: Mapping[tuple[str, ...], tuple[str, ...]]) -> Any:
    """The tree with the qualifiers of its columns, old ones in lower case -> new ones, replaced."""

    def change(node: Any) -> Any:
        if not isinstance(node, exp.Column):
            return node
        parts = list(node.parts)
        for old, new in sides.items():
            if len(parts) > len(old) and tuple(p.name.casefold() for p in parts[: len(old)]) == old:
                kept = [exp.to_identifier(name, quoted=True) for name in new] + [p.copy() for p in parts[len(old) :]]
                return (
                    exp.Dot.build([exp.Column(this=kept[0]), *kept[1:]])
                    if len(kept) > 4
                    else exp.column(*reversed(kept))
                )
        return node

    return node.transform(change)


# --- private ----------------------------------------------------------------------------------------------------------


def _set_keys(node: Any) -> Iterator[str]:
    return (key for key, value in node.args.items() if value not in (None, False, []))


_ARITHMETIC = {TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DPIPE}
_UNITS = re.compile(r"(YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND|MICROSECOND)S?", re.IGNORECASE)


def _operand_end(tokens: Sequence[Token], start: int) -> int:
    """The index behind one operand: a literal, a parameter, a name, a call, an interval,
    or what stands in parentheses."""
    index = start

    def kind(ahead: int = 0) -> TokenType | None:
        return tokens[index + ahead].token_type if index + ahead < len(tokens) else None

    while kind() in (TokenType.DASH, TokenType.PLUS):
        index += 1
    if kind() is TokenType.INTERVAL:
        index += 2 if kind(1) is TokenType.DASH else 1
        while kind() in (TokenType.NUMBER, TokenType.STRING) or (
            kind() is not None and _UNITS.fullmatch(tokens[index].text)
        ):
            index += 1
        return index
    if kind() is TokenType.COLON or (
        kind(1) is TokenType.STRING and kind() is not TokenType.L_PAREN
    ):  # :name, DATE '...'
        return index + 2
    while kind(1) is TokenType.DOT:
        index += 2
    if kind(1) is TokenType.L_PAREN and kind() not in (TokenType.STRING, TokenType.NUMBER):
        index += 1
    depth = 0
    while kind() is not None:
        depth += (kind() in OPENING) - (kind() in CLOSING)
        index += 1
        if depth <= 0:
            break
    return index


def _without_versions(piece: Piece) -> str:
    """A piece's text with spaces in place of `VERSION | TIMESTAMP AS OF expression`: sqlglot reads a part of the
    expression only."""
    if not re.search(r"\bAS\s+OF\b", piece.text, re.IGNORECASE):
        return piece.text
    spelt, changed = tokens(piece), list(piece.text)
    for index in range(1, len(spelt)):
        if (end := version_end(spelt, index)) > index and spelt[index - 1].token_type is not TokenType.COMMA:
            if end < len(spelt) and spelt[end].token_type in _ARITHMETIC:
                said = f"VERSION AS OF takes a number or a text, found {spelt[end].text!r} behind it"
                raise piece.script.invalid(piece.origin(spelt[end].start), said)
            start, stop = spelt[index].start, spelt[end - 1].end + 1
            changed[start:stop] = " " * (stop - start)
    return "".join(changed)


_WANTING = {  # After these comes an operand.
    TokenType.COMMA, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
    TokenType.PLUS,
    TokenType.DASH, TokenType.SLASH, TokenType.MOD, TokenType.DPIPE, TokenType.NULLSAFE_EQ, TokenType.DIV,
}  # fmt: skip
_WANTING_WORDS = {
    "SELECT",
    "FROM",
    "WHERE",
    "HAVING",
    "QUALIFY",
    "ON",
    "USING",
    "BY",
    "JOIN",
    "WHEN",
    "THEN",
    "ELSE",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
}
_BEHIND_NAMES = {TokenType.DOT, TokenType.ALIAS, TokenType.FROM, TokenType.FARROW}
_ENDING = {TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.SEMICOLON}
_CLAUSES = {
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ON",
    "THEN",
    "WHEN",
    "ELSE",
    "END",
    "USING",
}

# Behind another word, BY is a name.
_BEFORE_BY = {"GROUP", "ORDER", "PARTITION", "PARTITIONED", "CLUSTER", "CLUSTERED", "SORT", "SORTED", "DISTRIBUTE"}


def _require_operands(cursor: Cursor) -> None:
    """Refuse a comma, an operator or a keyword with nothing behind it, which sqlglot reads as if it were not there."""
    if cursor.word() in ("SET", "RESET"):  # A value may be any text.
        return
    tokens = cursor.tokens
    has_types = any(
        here.text.upper() in ("ARRAY", "MAP", "STRUCT", "ROW", "MULTISET") and after.token_type is TokenType.LT
        for here, after in itertools.pairwise(tokens)
    )
    for index, token in enumerate(tokens):
        cursor.at = index
        if has_types and token.token_type is TokenType.GT:  # ARRAY<INT>, ...
            continue
        word = cursor.word()
        if token.token_type is TokenType.HEX_STRING and cursor.script.text[token.start] == "0":
            raise cursor.script.invalid(token.start, f"0x{token.text} is not a number; write X'{token.text}' for bytes")
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if following is not None and _is_empty(cursor, following):
            raise cursor.script.invalid(
                following.start, f"expected something between {token.text!r} and {following.text!r}"
            )
        if word in ("LIMIT", "OFFSET") and following is None and index > 1:
            cursor.at = index + 1
            cursor.fail(f"expected a number behind {token.text!r}")
        before = tokens[index - 1] if index > 0 else None
        is_name = before is not None and (
            before.token_type is TokenType.DOT or (word == "BY" and before.text.upper() not in _BEFORE_BY)
        )
        is_dot = token.token_type is TokenType.DOT
        if not is_dot and token.token_type not in _WANTING and (word not in _WANTING_WORDS or is_name):
            continue
        cursor.at = index + 1
        if (
            cursor.done
            or cursor.kind in _ENDING
            or (is_dot and cursor.kind is TokenType.DOT)
            or _is_clause(cursor, word, is_dot)
        ):
            cursor.fail(f"expected something behind {token.text!r}")
    cursor.at = 0


def _is_empty(cursor: Cursor, following: Token) -> bool:
    """Whether a token and the next one enclose a part that may not be empty."""
    if cursor.kind is TokenType.L_PAREN and following.token_type is TokenType.COMMA:
        return True
    words = (cursor.word(), cursor.word(1))
    if words[0] == "LIMIT" and following.token_type is TokenType.COMMA and cursor.word(2).isdecimal():
        return True
    return words in {("OVER", "FROM"), ("OVER", "WHERE"), ("OVER", "GROUP")} or (
        words == ("EXCEPT", "(") and cursor.word(2) == ")"
    )


def _is_clause(cursor: Cursor, before: str, is_dot: bool) -> bool:
    """Whether a keyword comes next that begins a clause, and is no name."""
    word = cursor.word()
    if is_dot or word not in _CLAUSES:
        return False
    if word in ("GROUP", "ORDER"):
        return cursor.word(1) == "BY"
    if before == "SELECT" and word != "FROM":
        return False
    following = cursor.tokens[cursor.at + 1] if cursor.at + 1 < len(cursor.tokens) else None
    is_named = following is None or following.token_type in _ENDING | _WANTING | _BEHIND_NAMES
    return not is_named or (following is None and word in ("END", "WHERE", "HAVING"))


def _is_word(text: str) -> bool:
    return bool(text) and question_mark(text) is None and all(c.isalnum() or c in "_" + DOLLAR for c in text)


def _tokenize(text: str) -> list[Token]:
    try:
        pieces = list(_Tokenizer(dialect=Spark()).tokenize(text))
    except TokenError as error:
        raise InvalidInput(f"SQL cannot be taken apart (a quote or a comment that is not closed?): {error}") from error
    return [word for token in pieces for word in _words(token, text)]


def _words(token: Token, text: str) -> list[Token]:
    """Split `PARTITIONED BY`, one token in sqlglot, into two."""
    is_one = token.token_type in _QUOTED or token.token_type is TokenType.IDENTIFIER
    if is_one or not any(c.isspace() for c in token.text):
        return [token]
    matches = re.finditer(r"\S+", text[token.start : token.end + 1])
    return [
        Token(
            TokenType.VAR, match[0], token.line, token.col, token.start + match.start(), token.start + match.end() - 1
        )
        for match in matches
    ]


def _spell_time_travel(tokens: Sequence[Token], changed: list[str]) -> None:
    """`FOR SYSTEM_VERSION AS OF` -> `VERSION AS OF`, padded to the same length."""
    spelt = {"SYSTEM_VERSION": "VERSION", "SYSTEM_TIME": "TIMESTAMP", "VERSION": "VERSION", "TIMESTAMP": "TIMESTAMP"}
    for index, token in enumerate(tokens[:-2]):
        of = [t.text.upper() for t in tokens[index + 1 : index + 3]]
        if token.text.upper() not in spelt or of != ["AS", "OF"] or token.token_type in _QUOTED:
            continue
        word = spelt[token.text.upper()]
        changed[token.start : token.end + 1] = word.ljust(token.end + 1 - token.start)
        before = tokens[index - 1] if index else token
        if before.text.upper() == "FOR":
            changed[before.start : before.end + 1] = "   "


def _misread(piece: Piece, error: SqlglotError, kind: str) -> InvalidInput:
    errors = getattr(error, "errors", None) or [{}]
    first = errors[0]
    line, column = first.get("line"), first.get("col")
    near = first.get("highlight") or ""
    message = str(first.get("description") or "syntax error")
    message = "syntax error" if "<" in message else message.rstrip(".")
    if line is None or column is None:
        return piece.script.invalid(piece.origin(0), f"this {kind} cannot be read: {message}")
    lines = piece.text.split("\n")
    offset = sum(len(above) + 1 for above in lines[: line - 1]) + max(column - len(near), 0)
    return piece.script.invalid(piece.origin(offset), f"{message}, near {near or 'the end'!r}")
