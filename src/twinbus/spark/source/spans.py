"""Ranges of sequence numbers: a short text for many messages in a stream's offset, and dividing work.

- A span is first and last, both included; spans are in order and do not touch.
- The text form is `1-500,503,510-512`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from twinbus.errors import ConfigError

Span = tuple[int, int]


def spans_of(numbers: Iterable[int]) -> list[Span]:
    """The spans of a set of numbers."""
    found: list[Span] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def numbers_of(spans: Iterable[Span]) -> Iterator[int]:
    """All numbers in some spans."""
    for first, last in spans:
        yield from range(first, last + 1)


def count_of(spans: Iterable[Span]) -> int:
    return sum(last - first + 1 for first, last in spans)


def to_text(spans: Iterable[Span]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def from_text(text: str) -> list[Span]:
    found: list[Span] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            found.append((int(first), int(last or first)))
    except ValueError:
        raise ConfigError("An offset of the checkpoint is invalid: it was not written by this source.") from None
    return found


def divided(span: Span, parts: int, least: int, wanted: int = 1) -> list[Span]:
    """Divide a span into at most `parts` pieces of about the same length, none shorter than `least` unless that many
    are `wanted`."""
    first, last = span
    length = last - first + 1
    if length <= 0:
        return []
    pieces = pieces_of(length, parts, least, wanted)
    bounds = [first + length * index // pieces for index in range(pieces + 1)]
    return [(start, end - 1) for start, end in pairwise(bounds)]


def pieces_of(length: int, parts: int, least: int, wanted: int) -> int:
    return min(length, max(1, min(parts, -(-length // least)), wanted))


def shared_out(spans: list[Span], parts: int, least: int, wanted: int = 1) -> list[list[Span]]:
    """Distribute spans over at most `parts` workers, in order, with about as many numbers each."""
    total = count_of(spans)
    if total == 0:
        return []
    pieces = pieces_of(total, parts, least, wanted)
    shares: list[list[Span]] = []
    left = list(spans)
    for index in range(pieces):
        wanted = total * (index + 1) // pieces - total * index // pieces
        share: list[Span] = []
        while wanted and left:
            first, last = left[0]
            taken = min(wanted, last - first + 1)
            share.append((first, first + taken - 1))
            wanted -= taken
            if first + taken > last:
                left.pop(0)
            else:
                left[0] = (first + taken, last)
        shares.append(share)
    return shares
