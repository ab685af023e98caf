"""Which records are known: the numbers of each run's ids, as ranges.

- An id is a run and a number. A writer counts up, so the known ids of a run are a few ranges, however many records.
- This is exact: a record is a repeat if and only if its number is in the set.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class NumberSet:
    """A set of numbers as ranges that do not touch."""

    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in sorted(ranges):
            if self._highs and low <= self._highs[-1] + 1:
                self._highs[-1] = max(self._highs[-1], high)
            else:
                self._lows.append(low)
                self._highs.append(high)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._lows, self._highs, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberSet) and self._lows == other._lows and self._highs == other._highs

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._lows, number) - 1
        return at >= 0 and number <= self._highs[at]

    def add(self, number: int) -> bool:
        """Add a number; returns whether it is new. The usual case, a writer's next number, costs almost nothing."""
        highs = self._highs
        if highs and number == highs[-1] + 1:
            highs[-1] = number
            return True
        at = bisect_right(self._lows, number)
        if at and number <= highs[at - 1]:
            return False
        if at and number == highs[at - 1] + 1:
            highs[at - 1] = number
            at -= 1
        else:
            self._lows.insert(at, number)
            highs.insert(at, number)
        if at + 1 < len(highs) and self._lows[at + 1] == number + 1:
            highs[at] = highs[at + 1]
            del self._lows[at + 1], highs[at + 1]
        return True

    def __or__(self, other: NumberSet) -> NumberSet:
        return NumberSet([*self, *other])

    def __sub__(self, other: NumberSet) -> NumberSet:
        left: list[tuple[int, int]] = []
        for low, high in self:
            at = max(bisect_right(other._lows, low) - 1, 0)
            while at < len(other._lows) and other._lows[at] <= high:
                if other._lows[at] > low:
                    left.append((low, other._lows[at] - 1))
                low = max(low, other._highs[at] + 1)
                at += 1
            if low <= high:
                left.append((low, high))
        return NumberSet(left)
