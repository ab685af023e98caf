"""LIKE patterns: `%` matches any run of characters, `_` any one character.

The `%` signs split a pattern into pieces. The first piece is anchored at the start of the text, the last at its end,
and each piece between them takes its first match, which is never worse than a later one. There is no backtracking, so
no pattern can make a match slow: a long middle piece with `_` is searched in one pass over the text, with one bit for
each character of the piece.
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
# A piece up to this length is tried at each position: at most this many comparisons per character.
_SHORT_CHARS_MAX: Final = 32


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
    if len(core) <= _SHORT_CHARS_MAX:
        expression = _expression(piece)

        def look(text: str, start: int, end: int) -> int:
            found = expression.search(text, start, end)
            return -1 if found is None else found.start()

        return look
    # Bit n of `state`: the last n + 1 characters of the text match the first n + 1 of the piece.
    anything = sum(1 << at for at, sign in enumerate(piece) if sign is None)
    masks: dict[str, int] = {}
    for at, sign in enumerate(piece):
        if sign is not None:
            masks[sign] = masks.get(sign, anything) | 1 << at
    goal = 1 << len(piece) - 1
    last = len(piece) - 1

    def search(text: str, start: int, end: int) -> int:
        state = 0
        for at in range(start, end):
            state = (state << 1 | 1) & masks.get(text[at], anything)
            if state & goal:
                return at - last
        return -1

    return search
