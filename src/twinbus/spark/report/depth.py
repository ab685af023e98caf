"""The number of messages in the backlog queues, second by second, computed from what went in and what left.

- Messages leave a queue in the order they came.
- If a measurement shows more than was counted, the measurement counts, because the ledger may begin in the middle.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from twinbus.spark.report.by_second import QueueMoves, QueueName
from twinbus.spark.report.facts import BacklogSeries, QueuePeak
from twinbus.spark.report.period import Period


class QueueDepth:
    """One queue: its messages, bytes and the age of the oldest in ms, at the end of each second of the period."""

    def __init__(self, moves: QueueMoves, period: Period) -> None:
        self.depth: list[int] = []
        self.size: list[int] = []
        self.oldest_ms: list[int] = []
        # Arrivals: time in ms, messages left, and their bytes.
        lots: deque[list[int]] = deque()
        for at_s in range(period.start_s, period.end_s):
            before = sum(lot[1] for lot in lots)
            if moves.into[at_s]:
                lots.append([at_s * 1000, moves.into[at_s], moves.into_bytes[at_s]])
            look = moves.looks.get(at_s)
            if look is not None and (more := look.depth - before - moves.into[at_s]) > 0:
                lots.appendleft([at_s * 1000 - look.oldest_ms, more, more * look.depth_bytes // look.depth])
            self._leave(lots, moves.out_of[at_s])
            self.depth.append(sum(lot[1] for lot in lots))
            self.size.append(sum(lot[2] for lot in lots))
            self.oldest_ms.append((at_s + 1) * 1000 - lots[0][0] if lots else 0)

    @staticmethod
    def _leave(lots: deque[list[int]], count: int) -> None:
        while count and lots:
            lot = lots[0]
            taken = min(count, lot[1])
            lot[2] -= lot[2] * taken // lot[1]
            lot[1] -= taken
            count -= taken
            if not lot[1]:
                lots.popleft()


def depths(queues: Mapping[QueueName, QueueMoves], period: Period) -> tuple[BacklogSeries, list[QueuePeak]] | None:
    """The maximum of all queues together in each piece of the period, and each queue's peak; None if there are none."""
    if not queues:
        return None
    found = {name: QueueDepth(moves, period) for name, moves in sorted(queues.items())}
    ones = list(found.values())
    dead: Counter[int] = Counter()
    for moves in queues.values():
        dead.update({at_s: look.dead for at_s, look in moves.looks.items()})
    series = BacklogSeries(
        depth=_most(period, [sum(each) for each in zip(*(one.depth for one in ones), strict=True)]),
        fullest=_most(period, [max(each) for each in zip(*(one.depth for one in ones), strict=True)]),
        depth_bytes=_most(period, [sum(each) for each in zip(*(one.size for one in ones), strict=True)]),
        oldest_ms=_most(period, [max(each) for each in zip(*(one.oldest_ms for one in ones), strict=True)]),
        dead=tuple(
            max((dead[at] for at in range(start, start + period.width_s) if at in dead), default=None)
            for start in period.pieces
        ),
    )
    peaks = [
        QueuePeak(
            namespace=name[0],
            queue=name[1],
            depth=max(one.depth),
            depth_bytes=max(one.size),
            oldest_ms=max(one.oldest_ms),
            dead=max((look.dead for look in queues[name].looks.values()), default=0),
        )
        for name, one in found.items()
    ]
    return series, sorted(peaks, key=lambda peak: (-peak.depth, peak.namespace, peak.queue))


def _most(period: Period, seconds: list[int]) -> tuple[int, ...]:
    first = period.start_s
    return tuple(
        max(seconds[max(start - first, 0) : start + period.width_s - first], default=0) for start in period.pieces
    )
