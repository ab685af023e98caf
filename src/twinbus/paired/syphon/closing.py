"""Makes the two namespaces of a pair with a syphon end together.

- When one is closed or faulted, the other must be closed within five seconds. Otherwise it is faulted, and the reason
  names the one that ended first, and why.
- Pure: it is told what happens, and says how long to wait and what to do then.
"""

from __future__ import annotations

from enum import StrEnum

from twinbus.clock import Clock
from twinbus.limits import PAIR_CLOSE_S


class Side(StrEnum):
    """One of the two namespaces."""

    PRIMARY = "primary"
    SECONDARY = "secondary"

    @property
    def other(self) -> Side:
        return Side.SECONDARY if self is Side.PRIMARY else Side.PRIMARY


class ClosingTogether:
    """The state of the two namespaces; uses a monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Those that have ended, and why; None if closed normally.
        self._gone: dict[Side, str | None] = {}
        # The one that ended first, and the deadline of the other; None while both are open.
        self._first: Side | None = None
        self._until_ms = 0

    def end(self, side: Side, fault: str | None = None) -> None:
        """A namespace was closed, or faulted for a reason."""
        if side in self._gone:
            return
        self._gone[side] = fault
        if self._first is None:
            self._first = side
            self._until_ms = self._clock.now_ms() + round(PAIR_CLOSE_S * 1000)

    @property
    def left_ms(self) -> int | None:
        """How long the other still has; None if there is nothing to wait for."""
        if self._first is None or len(self._gone) == 2:
            return None
        return max(self._until_ms - self._clock.now_ms(), 0)

    def due(self) -> tuple[Side, str] | None:
        """The namespace to fault now, and its reason; None if it is not time."""
        if self.left_ms != 0 or self._first is None:
            return None
        first, fault = self._first, self._gone[self._first]
        how = "was closed" if fault is None else f"was faulted ({fault})"
        text = (
            f"The {first.other} of the pair was faulted by its syphon: the {first} {how}, and the {first.other} was "
            f"not closed within {PAIR_CLOSE_S:g} seconds."
        )
        self.end(first.other, text)
        return first.other, text
