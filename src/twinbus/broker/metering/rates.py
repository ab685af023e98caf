"""Messages per second by entity, over the last minute.

- The meter reports the growth of its counters once per interval, so an operation costs nothing extra.
- An interval holds only entities that moved messages, and only a bounded number of them individually.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from twinbus.ledger.words import OK, Kind
from twinbus.limits import METRICS_ENTITIES_MAX, RATES_RECENT_MS, RATES_SAMPLES

# Label of the entities beyond the limit; no entity can have this name.
OTHERS: Final = "$others"
# The order of the numbers in a sample.
FLOWS: Final = ("sent", "received", "completed")
_FLOW_OF: Final = {Kind.SEND: 0, Kind.SCHEDULE: 0, Kind.RECEIVE: 1, Kind.RECEIVE_DEFERRED: 1, Kind.COMPLETE: 2}


class RateSample:
    """One interval: its length, and how many messages each entity moved."""

    __slots__ = ("flows", "span_ms")

    def __init__(self, span_ms: int) -> None:
        self.span_ms = span_ms
        self.flows: dict[str, list[int]] = {}


class Rates:
    """The last minute of a namespace."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[RateSample] = deque(maxlen=RATES_SAMPLES)

    def begin(self, span_ms: int) -> None:
        """Start recording an interval that lasted `span_ms`."""
        self._samples.append(RateSample(max(span_ms, 1)))

    def add(self, path: str, kind: Kind, outcome: str, count: int) -> None:
        """Record messages that an entity moved in the interval."""
        flow = _FLOW_OF.get(kind)
        if flow is None or outcome != OK:
            return
        flows = self._samples[-1].flows
        found = flows.get(path)
        if found is None:
            found = flows.setdefault(path if len(flows) < METRICS_ENTITIES_MAX else OTHERS, [0] * len(FLOWS))
        found[flow] += count

    def recent(self, wanted: Callable[[str], bool] = lambda path: True) -> dict[str, dict[str, float]]:
        """Recent messages per second, of the entities that moved any."""
        sums: dict[str, list[int]] = {}
        span_ms = 0
        for sample in reversed(self._samples):
            if span_ms >= RATES_RECENT_MS:
                break
            span_ms += sample.span_ms
            for path, flows in sample.flows.items():
                if wanted(path):
                    total = sums.setdefault(path, [0] * len(FLOWS))
                    for flow, count in enumerate(flows):
                        total[flow] += count
        return {
            path: {name: round(total[flow] * 1000 / span_ms, 1) for flow, name in enumerate(FLOWS)}
            for path, total in sums.items()
        }

    def history(self, path: str) -> dict[str, Any]:
        """One entity's intervals of the last minute, oldest first: length and messages per second."""
        nothing = [0] * len(FLOWS)
        found = [(sample.span_ms, sample.flows.get(path, nothing)) for sample in self._samples]
        told: dict[str, Any] = {
            name: [round(flows[flow] * 1000 / span_ms, 1) for span_ms, flows in found]
            for flow, name in enumerate(FLOWS)
        }
        return {"span_ms": [span_ms for span_ms, _ in found], **told}
