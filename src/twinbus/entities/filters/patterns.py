"""LIKE patterns: `%` matches any run of characters, `_` any one character.

The `%` signs split a pattern into pieces. The first piece is anchored at the start of the text, the last at its end,
and each piece between them takes its first match, which is never worse than a later one. There is no backtracking, so
no pattern can make a match slow: a middle piece with `_` is searched in a long text with one bit for each position
where it could be, and each character of the piece clears those that it does not fit.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from twinbus.limits import SQL_TEXT_CHARS_MAX

Matcher: TypeAlias = Callable[[str], bool]
# A character, or None for `_`.
Piece: TypeAlias = list[str | None]
# Finds a piece at or after the second argument and before the third; -1 if there is none.
_Search: TypeAlias = Callable[[str, int, int], int]

# Patterns taken from properties repeat.
_PATTERNS_MAX: Final = 256
# A piece up to this length is tried at each position of any text, ...
_SHORT_CHARS_MAX: Final = 8
# ... and one up to this length at each position of a short text.
_MEDIUM_CHARS_MAX: Final = 32
_SHORT_TEXT_CHARS_MAX: Final = 512
# Texts whose positions are remembered: many rules look at one property.
_TEXTS_MAX: Final = 4


class PatternError(ValueError):
    """The pattern or its escape character is invalid; the text says why."""


@functools.lru_cache(maxsize=_PATTERNS_MAX)
def compile_pattern(pattern: str, escape: str | None) -> Matcher:
    """A function that tells whether a text matches the pattern."""
    if len(pattern) > SQL_TEXT_CHARS_MAX:
        raise PatternError(f"a LIKE pattern has at most {SQL_TEXT_CHARS_MAX} characters, this one has {len(pattern)}")
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        return _whole(pieces[0])
    head, *middle, tail = pieces
    middle = [piece for piece in middle if piece]
    return _simple(head, middle, tail) or _anchored(head, middle, tail)


def _pieces(pattern: str, escape: str | None) -> list[Piece]:
    if escape is not None and len(escape) != 1:
        raise PatternError(f"the escape of LIKE is one character, not {len(escape)}")
    pieces: list[Piece] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            escaped = next(signs, None)
            if escaped is None:
                raise PatternError("a LIKE pattern cannot end with its escape character")
            pieces[-1].append(escaped)
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return pieces


def _literal(piece: Piece) -> str | None:
    """The piece as text; None if it contains `_`."""
    return None if None in piece else "".join(sign for sign in piece if sign is not None)


def _expression(piece: Piece) -> re.Pattern[str]:
    # Single characters and no repetition, so the expression cannot backtrack.
    return re.compile("".join("." if sign is None else re.escape(sign) for sign in piece), re.DOTALL)


def _whole(piece: Piece) -> Matcher:
    literal = _literal(piece)
    if literal is not None:
        return lambda text: text == literal
    expression = _expression(piece)
    return lambda text: expression.fullmatch(text) is not None


def _simple(head: Piece, middle: list[Piece], tail: Piece) -> Matcher | None:
    """The most common patterns: `abc%`, `%abc`, `%abc%`, `%`."""
    start, end = _literal(head), _literal(tail)
    if not middle and start is not None and not tail:
        return lambda text: text.startswith(start)
    if not middle and end is not None and not head:
        return lambda text: text.endswith(end)
    within = _literal(middle[0]) if len(middle) == 1 and not head and not tail else None
    return None if within is None else lambda text: within in text


def _anchored(head: Piece, middle: list[Piece], tail: Piece) -> Matcher:
    starts, ends = _expression(head).match, _expression(tail).match
    head_chars, tail_chars = len(head), len(tail)
    searches = [(_search(piece), len(piece)) for piece in middle]

    def matches(text: str) -> bool:
        end = len(text) - tail_chars
        at = head_chars
        if end < at or starts(text) is None or ends(text, end) is None:
            return False
        for search, chars in searches:
            at = search(text, at, end)
            if at < 0:
                return False
            at += chars
        return True

    return matches


def _search(piece: Piece) -> _Search:
    # `_` at either end only shifts the position of the core.
    before = next((at for at, sign in enumerate(piece) if sign is not None), len(piece))
    after = next((at for at, sign in enumerate(reversed(piece)) if sign is not None), 0)
    core = piece[before : len(piece) - after]
    literal = _literal(core)
    if literal is not None:

        def find(text: str, start: int, end: int) -> int:
            found = text.find(literal, start + before, end - after) if start + len(piece) <= end else -1
            return found - before if found >= 0 else -1

        return find
    expression = _expression(piece) if len(core) <= _MEDIUM_CHARS_MAX else None
    always = len(core) <= _SHORT_CHARS_MAX
    signs = [(at, sign) for at, sign in enumerate(piece) if sign is not None]

    def search(text: str, start: int, end: int) -> int:
        if expression is not None and (always or end - start <= _SHORT_TEXT_CHARS_MAX):
            found = expression.search(text, start, end)
            return -1 if found is None else found.start()
        last = end - len(piece)
        if last < start:
            return -1
        places = _places(text)
        # The highest bit stands for the first character. All positions where the piece has room are possible, ...
        state = ((1 << last - start + 1) - 1) << len(text) - 1 - last
        for at, sign in signs:
            # ... until a character of the piece is not where it should be.
            state &= places.of(sign) << at
            if not state:
                return -1
        return len(text) - state.bit_length()

    return search


class _Places:
    """Where each character is in a text: one bit for each position, the first position highest."""

    __slots__ = ("_bits", "_planes", "_signs")

    def __init__(self, text: str) -> None:
        try:
            self._planes = [text.encode("latin-1")]
        except UnicodeEncodeError:
            raw = text.encode("utf-32-le", "surrogatepass")
            self._planes = [raw[0::4], raw[1::4], raw[2::4]]
        # By byte of a character and its value.
        self._bits: dict[tuple[int, int], int] = {}
        self._signs: dict[str, int] = {}

    def of(self, sign: str) -> int:
        found = self._signs.get(sign)
        if found is None:
            found = self._signs[sign] = self._found(ord(sign))
        return found

    def _found(self, code: int) -> int:
        if code >> 8 * len(self._planes):
            return 0
        found = -1
        for plane in range(len(self._planes)):
            found &= self._found_byte(plane, code >> 8 * plane & 0xFF)
        return found

    def _found_byte(self, plane: int, byte: int) -> int:
        found = self._bits.get((plane, byte))
        if found is None:
            found = self._bits[plane, byte] = int(self._planes[plane].translate(_digits(byte)), 2)
        return found


@functools.lru_cache(maxsize=_TEXTS_MAX)
def _places(text: str) -> _Places:
    return _Places(text)


@functools.cache
def _digits(byte: int) -> bytes:
    """A table that turns this byte into the digit 1, and all others into 0."""
    return b"0" * byte + b"1" + b"0" * (255 - byte)
