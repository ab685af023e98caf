"""The depth of backlog queues, computed from what went in and what left."""

from __future__ import annotations

from collections import Counter

from twinbus.ledger.records import Backlog
from twinbus.ledger.words import LedgerSource
from twinbus.spark.report.by_second import QueueMoves
from twinbus.spark.report.depth import depths
from twinbus.spark.report.period import Period

# Ten seconds from 1,000 on.
PERIOD = Period(1_000, 1_010, 1)


def look(at_s: int, depth: int, oldest_ms: int, dead: int = 0) -> Backlog:
    times = {"start_ms": at_s * 1000, "end_ms": at_s * 1000}
    names = {"namespace": "dr", "entity": "q", "source": LedgerSource.SYPHON}
    return Backlog(
        id=f"x-{at_s:x}", depth=depth, depth_bytes=depth * 10, oldest_ms=oldest_ms, dead=dead, **times, **names
    )


def test_messages_leave_in_the_order_they_came() -> None:
    moves = QueueMoves(
        into=Counter({1_001: 5, 1_002: 5}), into_bytes=Counter({1_001: 50, 1_002: 100}), out_of=Counter({1_004: 7})
    )
    found = depths({("dr", "q"): moves}, PERIOD)
    assert found is not None
    series, (peak,) = found
    assert series.depth == (0, 5, 10, 10, 3, 3, 3, 3, 3, 3)
    assert series.depth_bytes == (0, 50, 150, 150, 60, 60, 60, 60, 60, 60)
    # The first five are gone: the oldest is from second 1,002.
    assert series.oldest_ms[3:5] == (3_000, 3_000)
    assert (peak.depth, peak.depth_bytes, peak.oldest_ms) == (10, 150, 8_000)
    assert depths({}, PERIOD) is None


def test_what_was_there_before_is_seen_by_a_look() -> None:
    moves = QueueMoves(out_of=Counter({1_005: 4}), looks={1_003: look(1_003, 6, 20_000, dead=1)})
    found = depths({("dr", "q"): moves, ("dr", "r"): QueueMoves(into=Counter({1_000: 2}))}, PERIOD)
    assert found is not None
    series, peaks = found
    assert series.depth == (2, 2, 2, 8, 8, 4, 4, 4, 4, 4)
    assert series.fullest == (2, 2, 2, 6, 6, 2, 2, 2, 2, 2)
    assert series.oldest_ms[3] == 21_000
    assert series.dead == (None, None, None, 1, None, None, None, None, None, None)
    assert [peak.queue for peak in peaks] == ["q", "r"]


def test_more_that_left_than_came_is_nothing() -> None:
    found = depths({("dr", "q"): QueueMoves(into=Counter({1_001: 1}), out_of=Counter({1_002: 9}))}, PERIOD)
    assert found is not None
    assert found[0].depth == (0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    wide = depths({("dr", "q"): QueueMoves(into=Counter({1_001: 1}))}, Period(1_000, 1_010, 5))
    assert wide is not None
    assert wide[0].depth == (1, 1)
