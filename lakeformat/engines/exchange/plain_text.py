"""Bytes of text files as Arrow's readers take them: CSV without escape signs, and JSON with one row per line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from lakeformat.errors import InvalidInput

_BLOCK = 4 << 20
_LONGEST_LINE = 64 << 20
_QUOTE, _BACKSLASH, _COMMA, _SPACE, _LINE_END = (ord(sign) for sign in '"\\, \n')
_OPENING, _CLOSING = np.frombuffer(b"{[", np.uint8), np.frombuffer(b"}]", np.uint8)
_BREAKS = np.frombuffer(b"\r\n", np.uint8)


class PlainCsv(io.RawIOBase):
    r"""A CSV file whose quotes inside quoted fields are doubled, not escaped: `"a\"b"` becomes `"a""b"`.

    As in Spark, the escape sign counts only inside quotes and only before a quote or itself. `end`, lines without a
    meaning, follow the last line: a reader that does not see them is still inside quotes.
    """

    def __init__(self, source: Any, quote: str, escape: str, end: bytes) -> None:
        super().__init__()
        self._source, self._end = source, end
        self._signs = (ord(quote), ord(escape)) if quote and escape and quote != escape else None
        self._is_inside, self._rest, self._last = False, b"", b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """`size` bytes or more, fewer only at the end: Arrow reads each answer as whole rows, a header apart."""
        parts: list[bytes] = []
        while sum(map(len, parts)) < (size if size >= 0 else _BLOCK):
            data = bytes(self._source.read(_BLOCK if size < 0 else size))
            if not data:
                parts.append(self._closing(b"".join([self._last, *parts])[-1:]))
                break
            parts.append(self._unescaped(data))
        made = b"".join(parts)
        self._last = made[-1:] or self._last
        return made

    def _closing(self, last: bytes) -> bytes:
        """What follows the source's bytes, once. `last`: the last byte before it."""
        end, self._end = self._end, b""
        rest, self._rest = self._rest, b""
        return rest + (b"" if not end or (rest or last)[-1:] == b"\n" else b"\n") + end

    def _unescaped(self, data: bytes) -> bytes:
        if self._signs is None:
            return data
        escape = bytes([self._signs[1]])
        data = self._rest + data
        kept = data.rstrip(escape)
        self._rest = data[len(kept) :]
        return self._plain(kept, *self._signs) if kept else b""

    def _plain(self, data: bytes, quote: int, escape: int) -> bytes:
        if escape not in data:
            self._is_inside ^= bool(data.count(quote) & 1)
            return data
        signs = np.frombuffer(data, np.uint8)
        escaped, places, is_second = _escapes(signs, escape)
        quotes = (signs == quote) & ~escaped
        inside = (np.cumsum(quotes) + self._is_inside) & 1 == 1
        self._is_inside = bool(inside[-1])
        plain_signs, keep = signs.copy(), np.ones(len(signs), bool)
        # Before a quote the escape becomes the first of two quotes; of two escapes one stays.
        before_quote = places[~is_second & inside[places]]
        before_quote = before_quote[(before_quote + 1 < len(signs))]
        before_quote = before_quote[escaped[before_quote + 1] & (signs[before_quote + 1] == quote)]
        plain_signs[before_quote] = quote
        keep[places[is_second & inside[places]]] = False
        return plain_signs[keep].tobytes()


def _escapes(signs: np.ndarray, escape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(whether a sign follows an escape that is not escaped itself, where the escapes are, whether each of them is the
    second of a pair)."""
    places = np.flatnonzero(signs == escape)
    starts = np.concatenate(([True], np.diff(places) > 1)) if len(places) else np.zeros(0, bool)
    first = np.maximum.accumulate(np.where(starts, places, 0)) if len(places) else places
    is_second = (places - first) % 2 == 1
    escaped = np.zeros(len(signs), bool)
    after = places[~is_second] + 1
    escaped[after[after < len(signs)]] = True
    return escaped, places, is_second


def lines(source: Any, is_document: bool) -> Iterator[bytes]:
    """A file's lines of JSON, many at a time. `is_document`: it is one array, or objects over several lines. Raises
    `InvalidInput` for a document that ends too early, or a line that never does."""
    document = _Document() if is_document else None
    rest: list[bytes] = []
    while block := bytes(source.read(_BLOCK)):
        data = block if document is None else document.lines(block)
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, data[:cut]])
            rest = []
        rest.append(data[cut:])
        if sum(map(len, rest)) > _LONGEST_LINE:
            raise InvalidInput(
                "a line of more than 64 MiB; MULTI_LINE = TRUE reads arrays and objects over several lines"
            )
    if document is not None:
        rest.append(document.end())
    if last := b"".join(rest):
        yield last


class _Document:
    """JSON arrays and objects -> their elements, one per line."""

    def __init__(self) -> None:
        self._is_inside, self._depth, self._is_array, self._rest = False, 0, False, b""

    def lines(self, block: bytes) -> bytes:
        data = self._rest + block
        data, self._rest = data.rstrip(b"\\"), data[len(data.rstrip(b"\\")) :]
        if not data:
            return b""
        signs = np.frombuffer(data, np.uint8)
        escaped, _, _ = _escapes(signs, _BACKSLASH)
        inside = (np.cumsum((signs == _QUOTE) & ~escaped) + self._is_inside) & 1 == 1
        opening, closing = np.isin(signs, _OPENING) & ~inside, np.isin(signs, _CLOSING) & ~inside
        depth = self._depth + np.cumsum(opening.astype(np.int64) - closing)
        if self._depth == 0 and opening.any():
            self._is_array = signs[np.argmax(opening)] == _OPENING[1]
        self._is_inside, self._depth = bool(inside[-1]), int(depth[-1])
        line_signs = signs.copy()
        line_signs[np.isin(signs, _BREAKS) & ~inside] = _SPACE
        if self._is_array:
            line_signs[opening & (depth == 1)] = _SPACE
            line_signs[closing & (depth == 0)] = _LINE_END
            line_signs[(signs == _COMMA) & ~inside & (depth == 1)] = _LINE_END
            return line_signs.tobytes()
        return np.insert(line_signs, np.flatnonzero(closing & (depth == 0)) + 1, _LINE_END).tobytes()

    def end(self) -> bytes:
        if self._depth or self._is_inside:
            raise InvalidInput("the JSON document ends before it is complete")
        return self._rest
